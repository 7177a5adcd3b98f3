"""The auditor's own arithmetic for private voters of many classes, against brute force and against the prover."""

from fractions import Fraction
from math import exp
from pathlib import Path

import pytest

from darrm import PrivacyParams, Problem, Voters, certify, optimize_table
from darrm.plurality.plurality_law import random_law
from darrm.verify.__main__ import main
from darrm.verify.histograms import worst_of_private_voters
from tests.plurality.test_voter_corners import any_law, worst_by_hand
from tests.verify.support import table_of


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
