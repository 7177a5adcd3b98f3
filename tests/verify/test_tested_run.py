"""An audit of tested runs: the theorem's condition, the ledger that paid, the labels that left."""

import json
from pathlib import Path
from typing import Any

import pytest

from darrm import PrivacyLedger, PrivacyParams, Voters, Votes
from darrm.mechanisms.noisy_max import GNMax
from darrm.mechanisms.noisy_maximum import NoisyMaximum
from darrm.pate.confident import NoisyCheck
from darrm.pate.files import save_release
from darrm.pate.tested import TestedRun
from darrm.release import release_debited
from darrm.verify.audit import audit
from darrm.verify.plain_words import to_quote
from darrm.verify.verdicts import FALSE

TEACHERS = Voters(60, PrivacyParams("inf"), overlap=1)
BUDGET = PrivacyParams(2, "1e-5")
RUN = TestedRun(NoisyMaximum(GNMax(5.0), TEACHERS, 3), 40, BUDGET, 7.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_release(tmp_path / "run.json", RUN)
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", BUDGET)
    votes = Votes.of_counts([[58, 1, 1]] * 33)
    release_debited(RUN, votes, ledger=ledger, output=tmp_path / "labels.csv")
    return tmp_path


def wrong(folder: Path) -> list[str]:
    return [verdict.claim for verdict in audit([folder]).verdicts if verdict.verdict == FALSE]


def test_an_honest_run_is_quoted(folder: Path) -> None:
    found = audit([folder])
    assert not [verdict for verdict in found.verdicts if verdict.verdict == FALSE]
    assert "all 40 labels of the ledger together are (2, 0.00001)-private, proved here" in to_quote(found)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("run", [RUN, TestedRun(RUN.answer, 20, BUDGET, 9.0, NoisyCheck(40.0, 8.0))])
@pytest.mark.parametrize("other", [None, NoisyMaximum(GNMax(60.0), TEACHERS, 3)])
def test_the_condition_is_computed_anew(
    run: TestedRun, other: NoisyMaximum | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = TestedRun(run.answer, run.queries, run.budget, run.order, run.check, other)
    save_release(tmp_path / "run.json", whole)
    assert wrong(tmp_path) == []
    # whoever releases with chances that are a hundredth larger is seen
    chances = whole.chances.copy()
    level = int((chances < 0.98).argmax())
    chances[level] *= 1.01
    monkeypatch.setattr(TestedRun, "chances", chances)
    assert wrong(tmp_path) == ["coin and labels together are (2, 1e-05)-differentially private"]


@pytest.mark.parametrize(
    "change",
    [
        {"queries": 41},
        {"order": "8.0"},
        {"budget": {"epsilon": "1.9", "delta": "0.00001"}},
        {"check": {"threshold": "40.0", "sigma": "8.0"}},
    ],
)
def test_another_run_than_the_one_that_paid_is_seen(folder: Path, change: dict[str, Any]) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert "they were drawn with this release" in wrong(folder)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("other", "honest"), [(None, True), (NoisyMaximum(GNMax(60.0), TEACHERS, 3), False)])
def test_a_query_without_a_label_is_no_class_of_its_own(
    other: NoisyMaximum | None, honest: bool, tmp_path: Path
) -> None:
    save_release(tmp_path / "run.json", TestedRun(RUN.answer, 40, BUDGET, 7.0, None, other))
    (tmp_path / "labels.csv").write_text("0\n1\n2\n-1\n")
    assert wrong(tmp_path) == ([] if honest else ["all 4 labels are of 3 classes"])
    (tmp_path / "labels.csv").write_text("0\n1\n2\n3\n")
    assert wrong(tmp_path) == ["all 4 labels are of 3 classes"]


def test_more_labels_than_the_run_pays_for_are_seen(folder: Path) -> None:
    labels = folder / "labels.csv"
    labels.write_text(labels.read_text() + "0\n" * 10)
    assert "they are the labels of a debit" in wrong(folder)
