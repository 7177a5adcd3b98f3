"""Prompts with resampled examples: who is drawn, how they vote, and the noise of their rivals."""

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
from experiments.datasets import LabeledImages


@pytest.mark.statistical
def test_every_person_is_drawn_and_assigned_independently() -> None:
    """Two people, two prompts: both counts against their law by enumeration; false alarms: 1e-6."""
    rate, classes, questions = 0.85, 50, 2_000
    x, y = np.array([[1.0, 0.0], [0.6, 0.8]], dtype=np.float32), np.arange(2)
    data = LabeledImages("two", x, y, x[:1], np.array([classes - 1]))
    counts = fresh.collect_votes(data, 2, rate, questions, rng=np.random.default_rng(2)).counts
    seen = Counter(zip(*counts[:, :2].T.tolist(), strict=True))
    law: Counter[tuple[int, int]] = Counter()
    prompts = {0: rate / 2.0, 1: rate / 2.0, None: 1.0 - rate}
    guesses = {0: 1.0 / classes, 1: 1.0 / classes, 2: 1.0 - 2.0 / classes}
    for (first, p), (second, q) in itertools.product(prompts.items(), repeat=2):  # person 0 is nearer than person 1
        for (guess, r), (other_guess, s) in itertools.product(guesses.items(), repeat=2):
            answers = [0 if first == k else 1 if second == k else (guess, other_guess)[k] for k in (0, 1)]
            law[answers.count(0), answers.count(1)] += p * q * r * s  # type: ignore[assignment]
    assert sum(law.values()) == pytest.approx(1.0)
    assert seen.keys() <= law.keys()
    for cell, p in law.items():  # each of the six counts leaves its bounds with a chance of at most 1.6e-7
        assert binom.ppf(8e-8, questions, p) <= seen[cell] <= binom.ppf(1.0 - 8e-8, questions, p)


def test_shares_are_exact() -> None:
    votes, answers = Votes.from_counts([[2, 2, 0], [0, 1, 3]]), np.array([1, 1])
    assert fresh.average_shares(votes, answers) == {"kept": 1.0, "accuracy": 0.25}  # half of the tie is right
    law = np.array([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1]])
    expected = {"kept": (0.9 + 0.5) / 2, "accuracy": (0.3 + 0.4) / 2}
    assert fresh.average_shares(votes, answers, law) == pytest.approx(expected)


@pytest.mark.slow
def test_resampling_keeps_more_labels_than_its_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dp_accounting")
    monkeypatch.setattr(fresh, "EPSILONS", (3,))
    monkeypatch.setattr("darrm.plan.planner.MECHANISMS", [find_mechanism(slug) for slug in fresh.FIXED_SLUGS])
    (row,) = fresh.compute_rows(fresh.load("digits"), 10, 4, 20)
    assert row["spent"] <= row["epsilon"] == 3
    for rival in ("gaussian", "by_label"):
        assert row["still"]["kept"] < row[rival]["kept"] < row["ours"]["kept"] <= 1.0


def test_noise_on_counts_covers_both_counts_that_a_vote_moves() -> None:
    """By δ of the Gaussian mechanism [BW18, Theorem 8]; 2 % less noise is too little."""
    pytest.importorskip("dp_accounting")
    epsilon, delta, distance = 2.0, 1e-5, math.sqrt(2.0)

    def compute_delta(sigma: float) -> float:
        first, second = (norm.cdf(s * distance / (2.0 * sigma) - epsilon * sigma / distance) for s in (1.0, -1.0))
        return float(first - math.exp(epsilon) * second)

    sigma = fresh.find_count_sigma(1.0, 1, epsilon, delta)
    assert compute_delta(sigma) <= delta < compute_delta(sigma / 1.02)


def test_a_private_model_has_the_noise_of_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    # each question has its own axis, and two people who know its answer
    axes, answers = np.tile(np.eye(200, dtype=np.float32), (2, 1)), np.arange(200) % 2
    data = LabeledImages("axes", axes, np.tile(answers, 2), axes[:200], answers)
    budgets: list[tuple[float, ...]] = []

    def measure(noise: float) -> float:
        def find_least_noise(*budget: float) -> float:
            budgets.append(budget)
            return noise

        monkeypatch.setattr(fresh, "find_least_noise", find_least_noise)
        return fresh.measure_private_model(data, 3.0, 1e-5, rng=np.random.default_rng(3))

    assert measure(1e-6) == 1.0
    # at most 2 · STEPS of signal in noise of √STEPS · 10⁴: 200 answers by chance, false alarms: 1e-6
    assert abs(measure(1e4) - 0.5) <= 4.9 * 0.5 / math.sqrt(200)
    assert budgets == [(1.0, fresh.STEPS, 3.0, 1e-5)] * 2
