"""Propose-test-release runs: the least budget with which votes pass."""

from pathlib import Path

import numpy as np
import pytest

from darrm.pate.confident import ConfidentGNMax
from darrm.privacy import PrivacyParams
from darrm.votes import Votes
from experiments.aggregators.votes import EnsembleVotes
from experiments.pages import read_json
from experiments.teachers import TeacherVotes
from experiments.tested import PASS_PROBABILITY, find_least_budget, make_run

DATA = Path(__file__).parents[2] / "docs" / "reproduction" / "tested"


@pytest.mark.slow
def test_votes_pass_with_the_least_budget_and_not_with_less() -> None:
    aggregator, votes = ConfidentGNMax(40, 12.0, 5.0), Votes.from_counts([[58, 2, 0]] * 30 + [[40, 15, 5]] * 10)
    epsilon, order = find_least_budget(votes, aggregator, 1e-3, 3.0)
    passes, fails = (
        make_run(votes, aggregator, PrivacyParams(budget, 1e-3), order).pass_chance(votes)
        for budget in (epsilon, 0.998 * epsilon)
    )
    assert passes >= PASS_PROBABILITY > fails
    divided_votes = Votes.from_counts([[31, 29, 0]] * 40)
    assert find_least_budget(divided_votes, aggregator, 1e-3, 3.0)[0] > 1.2 * epsilon


@pytest.mark.parametrize(("name", "title"), [("mnist", "MNIST"), ("fashion-mnist", "Fashion-MNIST")])
def test_accuracies_of_private_teachers_are_those_of_their_stored_votes(name: str, title: str) -> None:
    stored = TeacherVotes.load(DATA / f"{name}-votes.npz")
    rows = {(row["data"], row["name"]): row for row in read_json(DATA / "private_teachers.json")}
    for kind, votes in (("private", stored.private), ("plain", stored.plain)):
        accuracy = (votes == stored.truth[:, None]).mean()
        assert rows[title, "one teacher"][kind]["mean"] == pytest.approx(accuracy, abs=1e-9)
        recorded = [EnsembleVotes(name, Votes.from_labels(labels, 10), stored.truth) for labels in votes]
        accuracy = np.mean([ensemble.plurality_accuracy for ensemble in recorded])
        assert rows[title, "no noise"][kind]["mean"] == pytest.approx(accuracy, abs=1e-9)
