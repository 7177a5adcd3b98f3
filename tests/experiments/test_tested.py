"""Runs that are tested first: the least budget with which votes pass."""

from pathlib import Path

import numpy as np
import pytest

from darrm.privacy import PrivacyParams
from darrm.votes import Votes
from experiments import tested
from experiments.aggregators.votes import EnsembleVotes
from experiments.pages import read_json
from experiments.teachers import TeacherVotes
from experiments.tested import PASS_PROBABILITY, Setting, find_least_budget

DATA = Path(__file__).parents[2] / "docs" / "reproduction" / "tested"
WAYS = ("one teacher", "no noise")
VOTES = Votes.from_counts([[58, 2, 0]] * 30 + [[40, 15, 5]] * 10)
SETTING = Setting(40, 40, 12.0, 5.0)


@pytest.mark.slow
def test_the_least_budget_passes_and_one_less_does_not() -> None:
    epsilon, order = find_least_budget(VOTES, SETTING, 1e-3, 3.0)

    def chance(budget: float) -> float:
        return tested.make_run(VOTES, SETTING, PrivacyParams(budget, 1e-3), order).pass_chance(VOTES)

    assert chance(epsilon) >= PASS_PROBABILITY > chance(0.998 * epsilon)
    split = Votes.from_counts([[31, 29, 0]] * 40)
    assert find_least_budget(split, SETTING, 1e-3, 3.0)[0] > 1.2 * epsilon


@pytest.mark.parametrize(("name", "title"), [("mnist", "MNIST"), ("fashion-mnist", "Fashion-MNIST")])
def test_private_teachers_are_right_as_often_as_their_votes_say(name: str, title: str) -> None:
    kept, rows = TeacherVotes.load(DATA / f"{name}-votes.npz"), read_json(DATA / "private_teachers.json")
    row, plurality = (next(one for one in rows if (one["data"], one["name"]) == (title, way)) for way in WAYS)
    for kind, votes in (("private", kept.private), ("plain", kept.plain)):
        assert row[kind]["mean"] == pytest.approx((votes == kept.truth[:, None]).mean(), abs=1e-9)
        right = np.mean(
            [EnsembleVotes(name, Votes.from_labels(one, 10), kept.truth).plurality_accuracy for one in votes]
        )
        assert plurality[kind]["mean"] == pytest.approx(right, abs=1e-9)
