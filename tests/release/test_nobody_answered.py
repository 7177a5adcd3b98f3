"""Queries of a file or a stream that nobody answered are neither answered nor paid for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.commands.command_line import run
from darrm.errors import DarrmError
from darrm.ledger.ledger import PrivacyLedger
from darrm.optimize import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import OPEN as ANY
from darrm.problem import Problem, Voters
from darrm.release import __main__ as command
from darrm.release import release_debited
from darrm.release.delivery import check_answered
from darrm.release.partitions import release_partitions
from darrm.table.release import Release
from darrm.votes import Votes
from tests.serve.deployments import table

OPEN = Release(optimize_table(Problem(Voters(3, PrivacyParams("inf"), overlap=1), PrivacyParams("0.1"), ANY)))


def ledger_of(folder: Path) -> PrivacyLedger:
    return PrivacyLedger.create(folder / "l.sqlite", PrivacyParams(10, "0.1"))


def test_a_file_with_lines_of_commas_is_refused_with_their_numbers_and_leaves_no_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table().save(tmp_path / "t.json")
    (tmp_path / "v.csv").write_text("1,0,1\n" * 20 + ",,\n" * 3)
    words = [str(tmp_path / "v.csv"), "--table", str(tmp_path / "t.json"), "--ledger", str(tmp_path / "l.sqlite")]
    words += ["--create-budget", "3,0", "--missing", "coin", "--output", str(tmp_path / "labels.csv"), "--quiet"]
    assert run(lambda: command.main(words)) == 2
    assert "none for queries 20, 21, 22: leave them out" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json", "v.csv"]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([[None] * 3], "query 0: leave it out"),
        ([[1, None, None], [None] * 3, [0, 0, 0]], "query 1: leave it out"),
        ([[None] * 3] * 7, "queries 0, 1, 2, 3, 4 and 2 more: leave them out"),
    ],
)
@pytest.mark.parametrize("kind", ["labels", "answers"])
def test_queries_without_a_vote_are_named(rows: Any, named: str, kind: str) -> None:
    words: Any = [[None if vote is None else f"w{vote}" for vote in row] for row in rows]
    votes = Votes.of_labels(rows, missing="coin") if kind == "labels" else Votes.of_answers(words, missing="blank")
    with pytest.raises(ValueError, match=named):
        check_answered(votes)
    check_answered(votes[:0])


def test_votes_in_memory_are_answered_so_that_a_failure_of_all_prompts_is_not_seen(tmp_path: Path) -> None:
    rows: Any = [[None] * 3]
    ledger, votes = ledger_of(tmp_path), Votes.of_labels(rows, missing="coin")
    assert release_debited(Release(table()), votes, ledger=ledger).size == 1


@pytest.mark.parametrize("more", [[], ["--format", "json"]])
@pytest.mark.parametrize("missing", ["coin", "blank"])
def test_a_line_of_a_stream_is_named_and_ends_it_unpaid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], missing: str, more: list[str]
) -> None:
    ledger = ledger_of(tmp_path)
    monkeypatch.setattr(command, "load_release", lambda _: Release(table()) if missing == "coin" else OPEN)
    one = '"1"' if more and missing == "blank" else "1"
    lines = f"[{one},null,{one}]\n[null,null,null]\n" if more else "1,,1\n,,\n"
    (tmp_path / "lines").write_text(lines)
    words = ["stream", "--table", "t.json", "--ledger", str(tmp_path / "l.sqlite"), "--missing", missing, "--quiet"]
    with (tmp_path / "lines").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert run(lambda: command.main([*words, *more])) == 2
    assert "line 2 has no vote at all: leave the question out" in capfd.readouterr().err
    assert [entry.count for entry in ledger.entries()] == [1]


def test_a_row_of_nulls_in_parquet_is_named_before_the_debit(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = np.array([["a", "b", "a"]] * 3 + [[None] * 3] + [["a", None, None]])
    columns = arrow.table({f"v{n}": arrow.array(rows[:, n].tolist(), arrow.string()) for n in range(3)})
    parquet.write_table(columns, tmp_path / "v.parquet", row_group_size=2)
    ledger = ledger_of(tmp_path)
    with pytest.raises((ValueError, DarrmError), match=r"v\.parquet.*none for query 3: leave it out"):
        release_partitions(
            OPEN, tmp_path / "v.parquet", output=tmp_path / "o.parquet", ledger=ledger, classes="open", missing="blank"
        )
    assert ledger.entries() == ()
