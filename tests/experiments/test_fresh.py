"""Prompts with resampled examples: who is drawn, what they vote, and what their rivals are charged."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binom, norm

pytest.importorskip("torch")

from darrm.plan.planner import find_mechanism
from darrm.votes import Votes
from experiments import fresh


def test_prompts_that_see_everybody_vote_rightly_and_empty_ones_guess() -> None:
    """Two classes whose examples lie at the two axes: a prompt with one of each votes by the question alone."""
    axes, y, answers = np.eye(2, dtype=np.float32), np.arange(400) % 2, np.arange(200) % 2
    examples, rng = fresh.Examples("corners", axes[y], y, axes[answers], answers), np.random.default_rng(1)
    full = fresh.collect_votes(examples, 3, 0.9, 200, rng=rng)
    assert fresh.average_shares(full, answers)["accuracy"] == 1.0
    assert full.counts.max(axis=1).min() == 3
    nobody = fresh.collect_votes(examples, 1, 1e-9, 4_000, rng=rng).ones
    assert abs(nobody.mean() - 0.5) <= 4.9 * 0.5 / math.sqrt(4_000)  # false alarms: 1e-6


def two_people(rate: float, classes: int) -> dict[tuple[int, int], float]:
    """The chances of how many of two prompts answer as person 0 and as person 1, whom they believe less."""
    chances: dict[tuple[int, int], float] = {}
    prompts = {0: rate / 2.0, 1: rate / 2.0, None: 1.0 - rate}
    guesses = {0: 1.0 / classes, 1: 1.0 / classes, 2: 1.0 - 2.0 / classes}
    for (of_first, p), (of_second, q) in itertools.product(prompts.items(), repeat=2):
        for (guess, r), (second, s) in itertools.product(guesses.items(), repeat=2):
            answers = [0 if of_first == k else 1 if of_second == k else (guess, second)[k] for k in (0, 1)]
            key = answers.count(0), answers.count(1)
            chances[key] = chances.get(key, 0.0) + p * q * r * s
    return chances


def test_every_person_is_drawn_and_assigned_by_their_own_coins() -> None:
    rate, classes, questions = 0.85, 50, 2_000
    x, y = np.array([[1.0, 0.0], [0.6, 0.8]], dtype=np.float32), np.arange(2)
    examples = fresh.Examples("two", x, y, x[:1], np.array([classes - 1]))
    counts = fresh.collect_votes(examples, 2, rate, questions, rng=np.random.default_rng(2)).counts
    seen = Counter(zip(*counts[:, :2].T.tolist(), strict=True))
    # each of the six numbers leaves its bounds with a chance of 1.6e-7 at most: false alarms: 1e-6
    honest = two_people(rate, classes)
    least, most = ({cell: binom.ppf(tail, questions, p) for cell, p in honest.items()} for tail in (8e-8, 1.0 - 8e-8))
    assert sum(honest.values()) == pytest.approx(1.0)
    assert seen.keys() <= honest.keys()
    assert all(least[cell] <= seen[cell] <= most[cell] for cell in honest)
    for wrong in (0.9 * rate, 1.1 * rate):  # a rate that is 10 % off would be seen
        law = two_people(wrong, classes).items()
        passes = [binom.cdf(most[c], questions, p) - binom.cdf(least[c] - 1, questions, p) for c, p in law]
        assert min(passes) < 0.01


def test_shares_are_added_up_exactly() -> None:
    votes, answers = Votes.from_counts([[2, 2, 0], [0, 1, 3]]), np.array([1, 1])
    assert fresh.average_shares(votes, answers) == {"kept": 1.0, "accuracy": 0.25}  # half of the tie is right
    law = np.array([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1]])
    assert fresh.average_shares(votes, answers, law) == pytest.approx(
        {"kept": (0.9 + 0.5) / 2, "accuracy": (0.3 + 0.4) / 2}
    )


@pytest.mark.slow
def test_a_row_keeps_more_than_its_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dp_accounting")
    monkeypatch.setattr(fresh, "EPSILONS", (3,))
    monkeypatch.setattr("darrm.plan.planner.MECHANISMS", [find_mechanism(slug) for slug in fresh.FIXED_SLUGS])
    (row,) = fresh.compute_rows(fresh.load("digits"), fresh.Setting(10, 4, 20))
    assert row["spent"] <= row["epsilon"] == 3
    assert row["still"]["kept"] < row["gaussian"]["kept"] < row["ours"]["kept"] <= 1.0
    assert row["still"]["kept"] < row["by_label"]["kept"] < row["ours"]["kept"]


def test_noise_on_counts_covers_both_counts_that_a_vote_moves() -> None:
    """By δ of the Gaussian mechanism [BW18, Theorem 8]; another 2 % less noise would not do."""
    pytest.importorskip("dp_accounting")
    epsilon, delta, moved = 2.0, 1e-5, math.hypot(1.0, -1.0)
    sigma = fresh.find_count_sigma(1.0, 1, epsilon, delta)
    spent = []
    for tried in (sigma, sigma / 1.02):
        first, second = (norm.cdf(side * moved / (2.0 * tried) - epsilon * tried / moved) for side in (1.0, -1.0))
        spent.append(first - math.exp(epsilon) * second)
    assert spent[0] <= delta < spent[1]


def test_a_private_model_has_the_noise_that_its_budget_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    # each question has its own axis, and two people who know its answer
    axes, answers = np.tile(np.eye(200, dtype=np.float32), (2, 1)), np.arange(200) % 2
    examples = fresh.Examples("axes", axes, np.tile(answers, 2), axes[:200], answers)
    asked: list[tuple[float, ...]] = []

    def right(noise: float) -> float:
        def find_least_noise(*budget: float) -> float:
            asked.append(budget)
            return noise

        monkeypatch.setattr(fresh, "find_least_noise", find_least_noise)
        return fresh.measure_private_model(examples, 3.0, 1e-5, rng=np.random.default_rng(3))

    assert right(1e-6) == 1.0
    # at most 2 · STEPS of signal in noise of √STEPS · 10⁴: 200 answers by chance, false alarms: 1e-6
    assert abs(right(1e4) - 0.5) <= 4.9 * 0.5 / math.sqrt(200)
    assert asked == [(1.0, fresh.STEPS, 3.0, 1e-5)] * 2
