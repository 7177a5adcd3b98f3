"""Releases of noisy maxima with and without a check: their laws, costs and refusals."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from darrm.noisy_max.mechanisms import AsymmetricMax, GNMax, LNMax, NoisyMax
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace
from darrm.pate.confident import ConfidentGNMax, InteractiveGNMax, NoisyCheck
from darrm.privacy import PrivacyParams
from darrm.votes import ABSTAIN, Votes
from tests.noisy_max.oracles import Counts, label_laws, wide_law_of

ROW = (6, 4, 2)
SKEWED = AsymmetricNoise(4.0, 6.0, 2.5, 2.0)
DRAWS = 60_000
MARGIN = 5.5 * math.sqrt(0.25 / DRAWS)  # five and a half standard errors: false alarms below 1e-6 after all cells
GAUSSIAN = label_laws(DiscreteGaussian(300.0), (600, 400, 200), fair=True, reach=12_000)  # on a lattice of 1/100 vote
DISCRETE = label_laws(DiscreteGaussian(3.0), ROW, fair=True)
LAPLACE = (2 + 0.3 * 2) / 4 * math.exp(-0.3 * 2)  # the probability of the class that is two votes behind


def compute_frequencies(labels: np.ndarray, classes: int) -> np.ndarray:
    return np.array([np.mean(labels == c) for c in range(classes)])


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("aggregator", "counts", "law"),
    [
        (GNMax(3.0), ROW, DISCRETE),
        (GNMax(3.0, noise="continuous"), ROW, GAUSSIAN),
        (LNMax(0.3), ROW, label_laws(DiscreteLaplace(0.3), ROW, fair=True)),
        (LNMax(0.3, noise="continuous"), (6, 4), np.array([1.0 - LAPLACE, LAPLACE])),
        (AsymmetricMax(SKEWED), ROW, label_laws(SKEWED, ROW, fair=True)),
    ],
)
def test_released_labels_follow_the_law(aggregator: NoisyMax, counts: Counts, law: np.ndarray) -> None:
    labels = aggregator.release(Votes.from_counts([counts] * DRAWS), rng=np.random.default_rng(3))
    assert np.abs(compute_frequencies(labels, len(counts)) - law).max() < MARGIN


@pytest.mark.statistical
@pytest.mark.parametrize(("noise", "law"), [("discrete", DISCRETE), ("continuous", GAUSSIAN)])
def test_confident_gnmax_passes_with_its_probability_and_answers_by_gnmax(noise: str, law: np.ndarray) -> None:
    aggregator = ConfidentGNMax(threshold=7, sigma_threshold=4.0, sigma_answer=3.0, noise=noise)
    labels = aggregator.release(Votes.from_counts([ROW] * DRAWS), rng=np.random.default_rng(5))
    passes, fails = np.exp(aggregator.check.log_probabilities(np.array([6]))).ravel()
    assert passes + fails == pytest.approx(1.0, abs=1e-12)
    assert abs(np.mean(labels != ABSTAIN) - passes) < MARGIN
    assert np.abs(compute_frequencies(labels[labels != ABSTAIN], 3) - law).max() < 2 * MARGIN


def test_a_check_passes_at_the_threshold_itself() -> None:
    at, below = NoisyCheck(6, 2.0).log_probabilities(np.array([6, 5]))[0]
    points, logs = wide_law_of(DiscreteGaussian(2.0))
    assert math.exp(at) == pytest.approx(np.exp(logs[points >= 0]).sum(), rel=1e-10)
    assert math.exp(below) == pytest.approx(np.exp(logs[points > 0]).sum(), rel=1e-10)
    assert NoisyCheck(5.5, 2.0).log_probabilities(np.array([5]))[0][0] == pytest.approx(below)


def test_interactive_gnmax_answers_reinforces_and_declines() -> None:
    aggregator = InteractiveGNMax(50, sigma_threshold=1.0, sigma_answer=1.0, confidence=0.8)
    votes = Votes.from_counts([[100, 0], [0, 100], [50, 50], [95, 5], [20, 80]], classes=("cat", "dog"))
    scores = [[0.1, 0.9], [0.1, 0.9], [0.5, 0.5], [0.2, 0.8], [0.2, 0.8]]  # a confidence of 0.8 does not exceed 0.8
    release = aggregator.with_scores(scores).answer(votes, rng=np.random.default_rng(0))
    assert release.labels.tolist() == ["cat", "dog", "-1", "cat", "-1"]
    assert release.outcome.tolist() == ["answered", "reinforced", "declined", "answered", "declined"]
    assert release.answered.tolist() == [True, False, False, True, False]


def test_the_interactive_statistic_is_the_largest_surplus_and_moves_by_at_most_one() -> None:
    aggregator, rng = InteractiveGNMax(20, 10.0, 10.0, 0.8), np.random.default_rng(1)
    counts, scores = rng.multinomial(30, [0.4, 0.3, 0.3], size=200), rng.dirichlet([1.0, 1.0, 1.0], size=200)
    statistic = aggregator.statistic(Votes.from_counts(counts), scores)
    assert np.abs(statistic - (counts - 30 * scores).max(axis=1)).max() <= 0.5
    moved = counts + np.where(counts[:, :1] > 0, [-1, 0, 1], 0)
    assert np.abs(aggregator.statistic(Votes.from_counts(moved), scores) - statistic).max() == 1


def test_continuous_noise_costs_what_the_paper_says() -> None:
    orders = GNMax(40.0, "continuous").guarantee.orders
    assert np.allclose(GNMax(40.0, "continuous", reached=3).guarantee.values, 9 * orders / 1600)
    confident = ConfidentGNMax(200, 150.0, 40.0, "continuous")
    assert np.allclose(confident.guarantee.values, orders / (2 * 150**2) + orders / 1600)
    assert InteractiveGNMax(200, 150.0, 40.0, 0.9, "continuous").guarantee == confident.guarantee


def test_a_person_who_moves_more_votes_costs_more() -> None:
    single, double = (GNMax(9.0, reached=reached).privacy_cost() for reached in (1, 2))
    assert double.reached == 2
    assert single.renyi is not None
    assert double.renyi is not None
    assert np.all(double.renyi.values > 2 * single.renyi.values)
    laplace = LNMax(0.3, reached=2).privacy_cost()
    assert (laplace.guarantee, laplace.reached) == (PrivacyParams("1.2"), 2)


ARRAY: Any = np.array([[3, 1]])  # labels or counts


def release_scored(scores: Any) -> object:
    return InteractiveGNMax(1, 1.0, 1.0, 0.5).with_scores(scores).release(Votes.from_counts([[3, 1]]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GNMax(9.0, reached=0), "reached must be"),
        (lambda: GNMax(3.0, "continuous").release(Votes.from_counts([[3, 1]])), "needs rng="),
        (lambda: LNMax(0.3, "continuous").release(Votes.from_counts([[3, 1]])), "needs rng="),
        (lambda: LNMax(math.inf), "gamma must be"),
        (lambda: AsymmetricMax(40.0), "noise must be an AsymmetricNoise"),  # type: ignore[arg-type]
        (lambda: AsymmetricMax(AsymmetricNoise(4000.0, 4000.0, 2.0, 2.0)), "of a deviation of at most 1024 votes"),
        (lambda: AsymmetricMax(SKEWED, reached=0), "reached must be"),
        (lambda: ConfidentGNMax(1, 1.0, 1.0).statistic(ARRAY), "use Votes.from_labels"),
        (lambda: InteractiveGNMax(1, 1.0, 1.0, 0.5).statistic(ARRAY, [[0.5, 0.5]]), "use Votes.from_labels"),
        (lambda: ConfidentGNMax(math.nan, 1.0, 1.0), "threshold must be a finite number"),
        (lambda: ConfidentGNMax(1, 0.0, 1.0), "sigma_threshold must be"),
        (lambda: ConfidentGNMax(1, 1.0, -1.0), "sigma_answer must be"),
        (lambda: InteractiveGNMax(1, 1.0, 1.0, 1.5), "confidence must be"),
        (lambda: release_scored([[0.5, 0.4]]), "the sum of the scores of row 0"),
        (lambda: release_scored([[1.5, -0.5]]), "scores must be in"),
        (lambda: release_scored([[math.nan, 1.0]]), "scores must be in"),
        (lambda: release_scored([[1.0]]), "the shape of the scores"),
    ],
)
def test_refusals(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
