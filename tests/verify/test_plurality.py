"""Laws of many classes: the auditor's own arithmetic against brute force and the prover, and what it calls false."""

import itertools
import json
from collections.abc import Callable
from fractions import Fraction
from math import exp
from pathlib import Path

import numpy as np
import pytest

from darrm import certify, optimize_table, priors
from darrm.optimize.plurality import optimize_plurality
from darrm.plurality.plurality_law import random_law
from darrm.plurality.proof import largest_excess, pairs_of
from darrm.priors import Dirichlet, Prior, Spread
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.table import Table
from darrm.verify.__main__ import main
from darrm.verify.audit import judge_file
from darrm.verify.histograms import worst_differences, worst_of_private_voters
from darrm.verify.optimality import accuracy
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


@pytest.mark.parametrize(
    ("keys", "change", "claim"),
    [
        (("optimality", "bound"), lambda bound: bound - 1e-3, "no private law"),
        (("certificate", "worst_cost"), lambda cost: cost / 2, "no pair of neighbors"),
    ],
)
def test_a_false_figure_is_called_false(
    table: Table, keys: tuple[str, str], change: Callable[[float], float], claim: str
) -> None:
    data = table.to_json()
    data[keys[0]] = {**data[keys[0]], keys[1]: change(data[keys[0]][keys[1]])}
    assert claim in false_claims(judge_file(json.dumps(data).encode())[1])


def share_right(table: Table, prior: Prior | None = None) -> Fraction:
    assert table.optimality is not None
    written = priors.to_json(prior or table.optimality.prior, table.problem.voters.K, table.problem.classes)
    found = accuracy(table_of(table), written)
    assert found is not None
    return found


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
