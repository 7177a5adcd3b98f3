"""Laws of many classes: the auditor's own arithmetic against brute force and the prover, and what it calls false."""

import itertools
import json
from collections.abc import Callable
from fractions import Fraction
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import certify, optimize_table, priors
from darrm.commands.command_line import run
from darrm.ledger.ledger import PrivacyLedger
from darrm.optimize.plurality import optimize_plurality
from darrm.pate import GNMax, NoisyMaximum
from darrm.plurality.plurality_law import random_law
from darrm.plurality.proof import largest_excess, pairs_of
from darrm.priors import Dirichlet, Prior, Spread
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.release import release_debited
from darrm.table.release import Release
from darrm.table.table import Table
from darrm.util.json_files import checksum_of
from darrm.verify.__main__ import main
from darrm.verify.audit import audit, judge_file
from darrm.verify.histograms import worst_differences, worst_of_private_voters
from darrm.verify.optimality import accuracy
from darrm.verify.verdicts import FALSE, PROVED, Verdict
from darrm.votes import Votes
from darrm.votes.labels_file import save_labels
from tests.plurality.test_voter_corners import any_law, worst_by_hand
from tests.verify.support import table_of

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
        found = worst_differences(table_of(table), [epsilon], reached)
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
    assert float(exact) == pytest.approx(right / len(histograms), abs=1e-14)
    skewed = optimize_plurality(PROBLEM, prior=Dirichlet(0.3))
    assert share_right(skewed) == pytest.approx(skewed.share_right, abs=1e-12)
    spread = optimize_plurality(PROBLEM, prior=Spread())
    assert share_right(spread) == pytest.approx(spread.share_right, abs=1e-12)
    three = [share_right(spread, Dirichlet(a)) for a in (1.0, 1 / PROBLEM.classes, 0.1 / PROBLEM.classes)]
    assert share_right(spread) == pytest.approx(np.mean(np.array(three, dtype=float)), abs=1e-12)


def test_an_honest_table_is_proved(table: Table) -> None:
    read, verdicts = judge_file(json.dumps(table.to_json()).encode())
    assert read is not None
    assert read.digest == table.digest
    assert false_claims(verdicts) == ""
    proved = [each.claim for each in verdicts if each.verdict == PROVED]
    assert any("one label is" in claim for claim in proved)
    assert any("no private law has a larger accuracy" in claim for claim in proved)
    assert any("the accuracy is" in claim for claim in proved)


def share_right(table: Table, prior: Prior | None = None) -> Fraction:
    assert table.optimality is not None
    written = priors.to_json(prior or table.optimality.prior, table.problem.voters.K, table.problem.classes)
    found = accuracy(table_of(table), written)
    assert found is not None
    return found


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
        (broken, "one label is"),
        (vain, "no private law"),
        (figure, "no pair of neighbors"),
        (talkative, "remark"),
    ):
        assert word in false_claims(judge_file(forged(table, change))[1])


def test_table_ledger_and_labels_together(table: Table, tmp_path: Path) -> None:
    table.save(tmp_path / "t.json")
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(10, "0.05"))
    votes = Votes.of_counts([[4, 2, 0], [2, 2, 2], [0, 1, 5]] * 5)
    labels = release_debited(Release(table), votes, ledger=ledger)
    save_labels(tmp_path / "labels.csv", labels)
    found = audit([tmp_path / "t.json", tmp_path / "l.sqlite", tmp_path / "labels.csv"], draws=10)
    assert false_claims(list(found.verdicts)) == ""
    assert sum("the privacy profile of a query" in each.claim for each in found.verdicts) == 1
    page = tmp_path / "report.html"
    given = [str(tmp_path / "t.json"), str(tmp_path / "l.sqlite"), "--report", str(page), "--quiet"]
    assert main(given) == 0
    assert page.read_text().count("PASS: ") == 1
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
    assert "one person's data influence at most 1 of the 50 voters" in shown


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("voters", "classes"),
    [
        (Voters(3, PrivacyParams("0.4")), 3),
        (Voters(2, PrivacyParams("0.6")), 4),
        (Voters(3, PrivacyParams("0.4"), overlap=2), 3),
        (Voters(2, PrivacyParams("0.6", "0.05")), 3),
        (Voters.of([PrivacyParams("0.2"), PrivacyParams("0.9"), PrivacyParams("inf")]), 3),
    ],
)
def test_the_auditor_finds_the_worst_of_all_multisets(voters: Voters, classes: int) -> None:
    target = PrivacyParams("0.9", "0.06")
    table = certify(Problem(voters, target, classes), any_law(voters, classes, 8, falls=True))
    epsilons = [Fraction(0), Fraction(9, 10), Fraction(2)]
    enclosures = worst_of_private_voters(table_of(table), epsilons)
    assert enclosures is not None
    for epsilon, found in zip(epsilons, enclosures, strict=True):
        by_hand = worst_by_hand(voters, table.plurality, exp(epsilon))
        assert float(found.lower) - 1e-12 <= by_hand <= float(found.upper) + 1e-12
        assert found.upper - found.lower < Fraction(1, 10**12)
    assert enclosures[1].upper <= target.exact_delta


def test_what_is_too_large_is_left_to_the_prover() -> None:
    voters = Voters(14, PrivacyParams("0.4"))
    table = certify(Problem(voters, PrivacyParams("0.9"), 3), random_law(14, 3))
    assert worst_of_private_voters(table_of(table), [Fraction(1)]) is None


def test_a_table_of_private_voters_is_proved_by_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = optimize_table(Problem(Voters(4, PrivacyParams("0.4")), PrivacyParams("0.8"), 3))
    table.save(tmp_path / "table.json")
    assert main([str(tmp_path / "table.json"), "--all"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("PASS  one label is (0.8, 0)-DP\n")
    assert "whole numbers over all multisets of corners" in shown
