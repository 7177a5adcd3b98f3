"""Laws of many classes: the auditor's own arithmetic against brute force and the prover, and what it calls false."""

import json
from fractions import Fraction
from math import exp
from pathlib import Path

import pytest

from darrm import certify, optimize_table
from darrm.optimize.plurality import optimize_plurality
from darrm.plurality.plurality_law import random_law
from darrm.plurality.proof import largest_excess, pairs_of
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.table import Table
from darrm.verify.__main__ import main
from darrm.verify.audit import judge_file
from darrm.verify.costs import worst_differences, worst_of_private_voters
from tests.plurality.test_voter_corners import any_law, worst_by_hand
from tests.verify.support import false_claims, table_of

PROBLEM = Problem(Voters(6, PrivacyParams("inf"), overlap=1), PrivacyParams("0.5", "1e-3"), 3)


@pytest.fixture(scope="module")
def table() -> Table:
    return optimize_plurality(PROBLEM)


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


def test_a_false_worst_cost_is_called_false(table: Table) -> None:
    data = table.to_json()
    data["certificate"] = {**data["certificate"], "worst_cost": data["certificate"]["worst_cost"] / 2}
    assert "no pair of neighbors" in false_claims(judge_file(json.dumps(data).encode())[1])


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
