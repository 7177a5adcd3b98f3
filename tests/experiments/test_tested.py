"""Runs that are tested first: the least budget with which votes pass."""

import pytest

from darrm.privacy import PrivacyParams
from darrm.votes import Votes
from experiments import tested
from experiments.tested import CHANCE, Setting, least_budget

VOTES = Votes.of_counts([[58, 2, 0]] * 30 + [[40, 15, 5]] * 10)
SETTING = Setting(40, 40, 12.0, 5.0)


@pytest.mark.slow
def test_the_least_budget_passes_and_one_less_does_not() -> None:
    epsilon, order = least_budget(VOTES, SETTING, 1e-3, 3.0)

    def chance(budget: float) -> float:
        return tested.tested_run(VOTES, SETTING, PrivacyParams(budget, 1e-3), order).pass_chance(VOTES)

    assert chance(epsilon) >= CHANCE > chance(0.998 * epsilon)
    split = Votes.of_counts([[31, 29, 0]] * 40)
    assert least_budget(split, SETTING, 1e-3, 3.0)[0] > 1.2 * epsilon
