"""Prompts of fresh samples: who is drawn, what they vote, and what is claimed of them."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binom, norm

from darrm.plan.mechanisms import named
from darrm.votes import Votes
from experiments import fresh


def corners(people: int, questions: int) -> fresh.Examples:
    """Two classes whose examples lie at the two axes: a prompt with one of each votes by the question alone."""
    x = np.eye(2, dtype=np.float32)
    y = np.arange(people) % 2
    answers = np.arange(questions) % 2
    return fresh.Examples("corners", x[y], y, x[answers], answers)


def test_prompts_that_see_everybody_vote_rightly_and_empty_ones_guess() -> None:
    examples, rng = corners(400, 200), np.random.default_rng(1)
    full = fresh.votes_of(examples, 3, 0.9, 200, rng=rng)
    assert fresh.told(full, examples.answers).accuracy == 1.0
    assert full.counts.max(axis=1).min() == 3
    nobody = fresh.votes_of(examples, 1, 1e-9, 4_000, rng=rng).ones
    assert abs(nobody.mean() - 0.5) <= 4.9 * 0.5 / math.sqrt(4_000)  # false alarms: 1e-6


def two_people(rate: float, classes: int) -> dict[tuple[int, int], float]:
    """The chances of how many of two prompts answer as person 0 and as person 1, whom they believe less."""
    chances: dict[tuple[int, int], float] = {}
    seats = {0: rate / 2.0, 1: rate / 2.0, None: 1.0 - rate}
    guesses = {0: 1.0 / classes, 1: 1.0 / classes, 2: 1.0 - 2.0 / classes}
    for (seated, p), (other, q) in itertools.product(seats.items(), repeat=2):
        for (guess, r), (second, s) in itertools.product(guesses.items(), repeat=2):
            said = [0 if seated == k else 1 if other == k else (guess, second)[k] for k in (0, 1)]
            key = said.count(0), said.count(1)
            chances[key] = chances.get(key, 0.0) + p * q * r * s
    return chances


def test_everybody_is_drawn_and_seated_by_coins_of_his_own() -> None:
    rate, classes, questions = 0.85, 50, 2_000
    x, y = np.array([[1.0, 0.0], [0.6, 0.8]], dtype=np.float32), np.arange(2)
    examples = fresh.Examples("two", x, y, x[:1], np.array([classes - 1]))
    counts = fresh.votes_of(examples, 2, rate, questions, rng=np.random.default_rng(2)).counts
    seen = Counter(zip(*counts[:, :2].T.tolist(), strict=True))

    def passes(law: dict[tuple[int, int], float]) -> float:
        """The least chance, of all cells, that its number stays between the bounds below."""
        between = (
            binom.cdf(most[cell], questions, chance) - binom.cdf(least[cell] - 1, questions, chance)
            for cell, chance in law.items()
        )
        return float(min(between))

    # each of the six numbers leaves its bounds with a chance of 1.6e-7 at most: false alarms: 1e-6
    honest = two_people(rate, classes)
    least, most = ({cell: binom.ppf(tail, questions, p) for cell, p in honest.items()} for tail in (8e-8, 1.0 - 8e-8))
    assert sum(honest.values()) == pytest.approx(1.0)
    assert seen.keys() <= honest.keys()
    assert all(least[cell] <= seen[cell] <= most[cell] for cell in honest)
    assert passes(two_people(1.1 * rate, classes)) < 0.01  # so many questions that a rate 10 % too high is seen
    assert passes(two_people(0.9 * rate, classes)) < 0.01


def test_what_is_kept_is_added_up_exactly() -> None:
    votes = Votes.of_counts([[2, 2, 0], [0, 1, 3]])
    answers = np.array([1, 1])
    assert fresh.told(votes, answers).kept == 1.0
    assert fresh.told(votes, answers).accuracy == 0.25  # half of the tie is right
    law = np.array([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1]])
    found = fresh.told(votes, answers, law)
    assert found.kept == pytest.approx((0.9 + 0.5) / 2.0)
    assert found.accuracy == pytest.approx((0.3 + 0.4) / 2.0)


@pytest.mark.slow
def test_a_row_keeps_more_than_its_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dp_accounting")
    monkeypatch.setattr(fresh, "EPSILONS", (3,))
    monkeypatch.setattr("darrm.plan.planner.MECHANISMS", [named("gnmax"), named("exponential")])
    (row,) = fresh.rows_of(fresh.load("digits"), fresh.Setting(10, 4, 20))
    assert row["spent"] <= row["epsilon"] == 3
    assert row["still"]["kept"] < row["gaussian"]["kept"] < row["ours"]["kept"] <= 1.0
    assert row["still"]["kept"] < row["by_label"]["kept"] < row["ours"]["kept"]


@pytest.mark.slow
def test_noise_of_rivals_is_the_least() -> None:
    accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import pld_privacy_accountant

    noise = fresh.least_noise(0.05, 50, 2.0, 1e-5)
    spent = []
    for tried in (noise, noise / 1.02):
        account = pld_privacy_accountant.PLDAccountant(accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-3)
        account.compose(accounting.PoissonSampledDpEvent(0.05, accounting.GaussianDpEvent(tried)), 50)
        spent.append(account.get_epsilon(1e-5))
    assert spent[0] <= 2.0 < spent[1]


def test_noise_on_counts_covers_both_counts_that_a_vote_moves() -> None:
    pytest.importorskip("dp_accounting")
    epsilon, delta, moved = 2.0, 1e-5, math.hypot(1.0, -1.0)
    sigma = fresh.gaussian_counts(1.0, 1, epsilon, delta)

    def spent(sigma: float) -> float:
        """δ of the Gaussian mechanism [BW18, Theorem 8]."""
        first, second = (norm.cdf(side * moved / (2.0 * sigma) - epsilon * sigma / moved) for side in (1.0, -1.0))
        return float(first - math.exp(epsilon) * second)

    assert spent(sigma) <= delta < spent(sigma / 1.02)


def test_a_private_model_is_as_noisy_as_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # each question has one axis of its own, and two people who know its answer
    axes = np.tile(np.eye(200, dtype=np.float32), (2, 1))
    answers = np.arange(200) % 2
    examples = fresh.Examples("axes", axes, np.tile(answers, 2), axes[:200], answers)
    asked: list[tuple[float, ...]] = []

    def right(noise: float) -> float:
        def least(*budget: float) -> float:
            asked.append(budget)
            return noise

        monkeypatch.setattr(fresh, "least_noise", least)
        return fresh.private_model(examples, 3.0, 1e-5, rng=np.random.default_rng(3))

    assert right(0.0) == 1.0
    # at most 2 · STEPS of signal in noise of √STEPS · 10⁴: 200 answers by chance, false alarms: 1e-6
    assert abs(right(1e4) - 0.5) <= 4.9 * 0.5 / math.sqrt(200)
    assert asked == [(1.0, fresh.STEPS, 3.0, 1e-5)] * 2


def test_no_person_moves_a_step_by_more_than_is_paid_for() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(50, 6))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    targets, weights = np.eye(3)[rng.integers(3, size=50)], 30.0 * rng.normal(size=(6, 3))
    whole, moved = fresh.clipped_sum(x, targets, weights), []
    for person in range(50):
        without = fresh.clipped_sum(np.delete(x, person, 0), np.delete(targets, person, 0), weights)
        moved.append(float(np.linalg.norm(whole - without)))
    assert max(moved) == pytest.approx(fresh.CLIP)  # who is surely wrong has a gradient of √2
    assert fresh.clipped_sum(x[:1], targets[:1], np.zeros((6, 3))) == pytest.approx(
        np.outer(x[0], 1.0 / 3.0 - targets[0])
    )
