"""An audit of a plurality: its own arithmetic against the law, and what it calls false."""

import itertools
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.account.ledger import PrivacyLedger
from darrm.laws.plurality_law import PluralityLaw
from darrm.laws.priors import Dirichlet, Spread
from darrm.mechanisms.release import Release
from darrm.optimize.plurality import optimize_plurality
from darrm.pate import GNMax, NoisyMaximum
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.proof.moves import largest_excess, pairs_of
from darrm.proof.stored import checksum_of
from darrm.proof.table import Table
from darrm.release import release_debited
from darrm.system.command_line import run
from darrm.system.votes_file import save_labels
from darrm.verify.__main__ import main
from darrm.verify.audit import audit
from darrm.verify.plurality import share_right, worst_differences
from darrm.verify.table import exact_of, judge_privacy, judge_table
from darrm.verify.verdicts import FALSE, PROVED, Verdict
from darrm.votes import Votes

PROBLEM = Problem(Voters(6, PrivacyParams("inf"), overlap=1), PrivacyParams("0.5", "1e-3"), 3)


@pytest.fixture(scope="module")
def table() -> Table:
    return optimize_plurality(PROBLEM)


def false_claims(verdicts: list[Verdict]) -> str:
    return "; ".join(f"{each.claim} ({each.reason})" for each in verdicts if each.verdict == FALSE)


@pytest.mark.parametrize("reached", [1, 2])
def test_two_pieces_of_code_that_share_nothing_agree(reached: int) -> None:
    problem = Problem(Voters(4, PrivacyParams("inf"), overlap=reached), PrivacyParams("0.7", "0.01"), 3)
    table = optimize_plurality(problem)
    for epsilon in (Fraction(7, 10), Fraction(0), Fraction(2)):
        found = worst_differences(table, [epsilon], reached)
        assert found is not None
        ours = largest_excess(table.plurality, pairs_of(problem), epsilon)
        assert found[0].lower - Fraction(1, 2**90) <= ours <= found[0].upper + Fraction(1, 2**90)
        assert found[0].upper - found[0].lower < Fraction(1, 2**90)


def test_the_share_is_counted_over_all_histograms(table: Table) -> None:
    histograms = [n for n in itertools.product(range(7), repeat=3) if sum(n) == 6]
    h = table.plurality.probabilities(histograms)
    right = sum(
        float(p)
        for n, row in zip(histograms, h, strict=True)
        for votes, p in zip(n, row, strict=True)
        if votes == max(n)
    )
    exact = share_right(table)
    assert exact is not None
    assert float(exact) == pytest.approx(right / len(histograms), abs=1e-14)
    skewed = optimize_plurality(PROBLEM, prior=Dirichlet(0.3))
    assert share_right(skewed) == pytest.approx(skewed.share_right, abs=1e-12)
    spread = optimize_plurality(PROBLEM, prior=Spread())
    assert share_right(spread) == pytest.approx(spread.share_right, abs=1e-12)
    three = [share_right(spread, Dirichlet(a)) for a in (1.0, 1 / PROBLEM.classes, 0.1 / PROBLEM.classes)]
    assert share_right(spread) == pytest.approx(np.mean(np.array(three, dtype=float)), abs=1e-12)


def test_an_honest_table_is_proved(table: Table) -> None:
    read, verdicts = judge_table(json.dumps(table.to_json()).encode())
    assert read is not None
    assert read.digest == table.digest
    assert false_claims(verdicts) == ""
    proved = [each.claim for each in verdicts if each.verdict == PROVED]
    assert any("differentially private" in claim for claim in proved)
    assert any("no private mechanism" in claim for claim in proved)
    assert any("share of right labels is" in claim for claim in proved)


def forged(table: Table, change: Callable[[dict[str, Any]], None]) -> bytes:
    data = json.loads(json.dumps(table.to_json()))
    change(data)
    data["checksum"] = checksum_of({"problem": data["problem"], "weights": data["weights"]})
    return json.dumps(data).encode()


def test_what_is_false_is_called_false(table: Table) -> None:
    def broken(data: dict[str, Any]) -> None:
        data["weights"][0] = [2**53, 0]

    def vain(data: dict[str, Any]) -> None:
        data["optimality"]["bound"] -= 1e-3

    def figure(data: dict[str, Any]) -> None:
        data["certificate"]["worst_cost"] /= 2

    def talkative(data: dict[str, Any]) -> None:
        data["remark"] = "trust me"

    for change, word in (
        (broken, "neighbors differ by"),
        (vain, "the bound must be"),
        (figure, "the cost of no pair of neighbors"),
        (talkative, "/remark"),
    ):
        assert word in false_claims(judge_table(forged(table, change))[1])


def test_a_law_that_the_prover_let_through_is_caught(table: Table) -> None:
    weights = table.plurality.weights.copy()
    weights[0] += 2**40
    weights[1] -= 2**40
    planted = PluralityLaw(6, 3, weights)
    object.__setattr__(lying := table.with_optimality(table.optimality, {}), "law", planted)
    assert "one label is" in false_claims(list(judge_privacy(lying.to_json()["certificate"], exact_of(lying))))


def test_table_ledger_and_labels_together(table: Table, tmp_path: Path) -> None:
    table.save(tmp_path / "t.json")
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(10, "0.05"))
    votes = Votes.of_counts([[4, 2, 0], [2, 2, 2], [0, 1, 5]] * 5)
    labels = release_debited(Release(table), votes, ledger=ledger)
    save_labels(tmp_path / "labels.csv", labels)
    found = audit([tmp_path / "t.json", tmp_path / "l.sqlite", tmp_path / "labels.csv"], draws=10)
    assert false_claims(list(found.verdicts)) == ""
    assert sum("costs what one with this table costs" in each.claim for each in found.verdicts) == 1
    page = tmp_path / "report.html"
    given = [str(tmp_path / "t.json"), str(tmp_path / "l.sqlite"), "--report", str(page), "--quiet"]
    assert main(given) == 0
    assert "is one of 3 classes" in page.read_text()
    other = optimize_plurality(Problem(PROBLEM.voters, PrivacyParams("0.4", "1e-3"), 3))
    other.save(tmp_path / "other.json")
    assert "queries were answered with this table" in false_claims(
        list(audit([tmp_path / "other.json", tmp_path / "l.sqlite"]).verdicts)
    )


def test_a_mechanism_is_judged_by_its_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    NoisyMaximum(GNMax(8.0), Voters(50, PrivacyParams("inf"), overlap=1), 3).save(path)
    assert run(lambda: main([str(path)])) == 0
    shown = capsys.readouterr().out
    assert "proved here           mechanism: the Rényi curve of a query is at least what it costs" in shown
    assert "proved here           mechanism: the privacy profile of a query is at least what it costs" in shown
