"""Rules of a release that one wrong comparison would break, found by `tests.mutants`."""

from pathlib import Path

import numpy as np
import pytest

from darrm.ledger.ledger import PrivacyLedger
from darrm.privacy import PrivacyParams
from darrm.release import __main__ as command
from darrm.release.partitions import survey
from darrm.table.release import Release
from tests.doors import releasing
from tests.release.tables import table_of
from tests.release.test_open_answers import MostSaid

NO_LABEL = "no query has a label (an empty field): no string had enough votes; the budget is spent"


@pytest.mark.parametrize(("rows", "is_noted"), [("a,b,c\nd,e,f\n", True), ("a,b,c\nd,d,f\n", False)])
def test_only_a_release_without_any_label_says_so(
    rows: str, is_noted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "load_release", lambda _: MostSaid())
    PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(1000, "0.1"))
    (tmp_path / "votes.csv").write_text(rows)
    assert releasing(tmp_path, "votes.csv", output="labels.csv") == 0
    assert (NO_LABEL in capsys.readouterr().err) is is_noted


@pytest.mark.parametrize(
    ("option", "reason"), [(["--force"], "--force is for"), (["--rows", "voters"], "--rows voters is")]
)
def test_options_of_one_file_are_refused_for_many(
    option: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "votes").mkdir()
    (tmp_path / "votes" / "a.parquet").touch()
    PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(1000, "0.1"))
    assert releasing(tmp_path, "votes", *option, output="labels") == 2
    assert reason in capsys.readouterr().err


def test_files_without_queries_are_published_once(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "votes").mkdir()
    for name, rows in (("a", 0), ("b", 2)):
        columns = {f"v{voter}": np.ones(rows, dtype=int) for voter in range(3)}
        parquet.write_table(arrow.table(columns), tmp_path / "votes" / f"{name}.parquet")
    release = Release(table_of([1.0, 1.0]))
    found = survey(release, tmp_path / "votes", tmp_path / "labels")
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(5, "1e-3"))
    assert found.release(ledger).rows == 2
    written = sorted(path.name for path in (tmp_path / "labels").glob("*.parquet"))
    assert written == ["a.parquet", "b.parquet"]
