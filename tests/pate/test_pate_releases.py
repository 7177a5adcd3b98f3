import math
from typing import Any

import numpy as np
import pytest

from darrm.noisy_max.mechanisms import AsymmetricMax, GNMax, LNMax, NoisyMax
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace
from darrm.pate.confident import ConfidentGNMax, InteractiveGNMax, NoisyCheck
from darrm.privacy import PrivacyParams
from darrm.votes import ABSTAIN, Votes
from tests.noisy_max.oracles import label_laws, wide_law_of
from tests.pate.pate_oracles import log_win_probabilities

ROW = np.array([[6, 4, 2]])
SHAPED = AsymmetricNoise(4.0, 6.0, 2.5, 2.0)
DRAWS = 60_000
SPREAD = 5.5 * math.sqrt(0.25 / DRAWS)  # five and a half standard errors: false alarms below 1e-6 after all cells


def repeated(row: Any) -> Votes:
    return Votes.from_counts(np.repeat(row, DRAWS, axis=0))


def frequencies(labels: np.ndarray, classes: int) -> np.ndarray:
    return np.array([np.mean(labels == c) for c in range(classes)])


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("aggregator", "law"),
    [
        (GNMax(3.0), label_laws(DiscreteGaussian(3.0), (6, 4, 2), fair=True)),
        (GNMax(3.0, noise="continuous"), np.exp(log_win_probabilities(ROW, 3.0)[0])),
        (LNMax(0.3), label_laws(DiscreteLaplace(0.3), (6, 4, 2), fair=True)),
        (AsymmetricMax(SHAPED), label_laws(SHAPED, (6, 4, 2), fair=True)),
    ],
)
def test_released_labels_follow_the_law(aggregator: NoisyMax, law: np.ndarray) -> None:
    labels = aggregator.release(repeated(ROW), rng=np.random.default_rng(3))
    assert np.abs(frequencies(labels, 3) - law).max() < SPREAD


@pytest.mark.statistical
def test_continuous_lnmax_follows_its_law() -> None:
    labels = LNMax(0.3, noise="continuous").release(repeated([[6, 4]]), rng=np.random.default_rng(4))
    expected = (2 + 0.3 * 2) / 4 * math.exp(-0.3 * 2)
    assert abs(np.mean(labels == 1) - expected) < SPREAD


@pytest.mark.statistical
@pytest.mark.parametrize("noise", ["discrete", "continuous"])
def test_confident_passes_as_often_as_it_says_and_then_answers_by_gnmax(noise: str) -> None:
    aggregator = ConfidentGNMax(threshold=7, sigma_threshold=4.0, sigma_answer=3.0, noise=noise)
    labels = aggregator.release(repeated(ROW), rng=np.random.default_rng(5))
    passes, fails = aggregator.check.log_probabilities(np.array([6]))
    assert math.exp(passes[0]) + math.exp(fails[0]) == pytest.approx(1.0, abs=1e-12)
    assert abs(np.mean(labels != ABSTAIN) - math.exp(passes[0])) < SPREAD
    law = np.exp(log_win_probabilities(ROW, 3.0)[0])
    if noise == "discrete":
        law = label_laws(DiscreteGaussian(3.0), (6, 4, 2), fair=True)
    given = labels[labels != ABSTAIN]
    assert np.abs(frequencies(given, 3) - law).max() < 2 * SPREAD


def test_a_check_passes_at_the_threshold_itself() -> None:
    # discrete noise: Pr[X >= 0] where the statistic equals T, and more than half
    check = NoisyCheck(6, 2.0)
    at, below = check.log_probabilities(np.array([6, 5]))[0]
    points, logs = wide_law_of(DiscreteGaussian(2.0))
    assert math.exp(at) == pytest.approx(np.exp(logs[points >= 0]).sum(), rel=1e-10)
    assert math.exp(below) == pytest.approx(np.exp(logs[points > 0]).sum(), rel=1e-10)
    assert NoisyCheck(5.5, 2.0).log_probabilities(np.array([5]))[0][0] == pytest.approx(below)


def test_interactive_answers_reinforces_and_declines() -> None:
    aggregator = InteractiveGNMax(50, sigma_threshold=1.0, sigma_answer=1.0, confidence=0.8)
    votes = Votes.from_counts([[100, 0], [0, 100], [50, 50], [95, 5]], classes=("cat", "dog"))
    scores = [[0.1, 0.9], [0.1, 0.9], [0.5, 0.5], [0.2, 0.8]]
    release = aggregator.with_scores(scores).answer(votes, rng=np.random.default_rng(0))
    assert release.labels.tolist() == ["cat", "dog", "-1", "cat"]
    assert release.outcome.tolist() == ["answered", "reinforced", "declined", "answered"]
    assert release.answered.tolist() == [True, False, False, True]
    # the confidence must be exceeded, not met
    at = aggregator.with_scores([[0.2, 0.8]]).answer(Votes.from_counts([[20, 80]]), rng=np.random.default_rng(0))
    assert at.outcome.tolist() == ["declined"]


def test_the_interactive_statistic_is_the_largest_surplus_and_moves_by_at_most_one() -> None:
    aggregator = InteractiveGNMax(20, 10.0, 10.0, 0.8)
    rng = np.random.default_rng(1)
    votes = rng.multinomial(30, [0.4, 0.3, 0.3], size=200)
    scores = rng.dirichlet([1.0, 1.0, 1.0], size=200)
    found = aggregator.statistic(Votes.from_counts(votes), scores)
    assert np.abs(found - (votes - 30 * scores).max(axis=1)).max() <= 0.5
    moved = votes.copy()
    movable = np.flatnonzero(votes[:, 0] > 0)
    moved[movable, 0] -= 1
    moved[movable, 2] += 1
    assert np.abs(aggregator.statistic(Votes.from_counts(moved), scores) - found).max() == 1


def test_continuous_noise_costs_what_the_paper_says() -> None:
    orders = GNMax(40.0, "continuous").guarantee.orders
    assert np.allclose(GNMax(40.0, "continuous").guarantee.values, orders / 1600)
    assert np.allclose(GNMax(40.0, "continuous", reached=3).guarantee.values, 9 * orders / 1600)
    confident = ConfidentGNMax(200, 150.0, 40.0, "continuous")
    assert np.allclose(confident.guarantee.values, orders / (2 * 150**2) + orders / 1600)
    assert InteractiveGNMax(200, 150.0, 40.0, 0.9, "continuous").guarantee == confident.guarantee


def test_a_person_who_moves_more_votes_costs_more() -> None:
    one, two = (GNMax(9.0, reached=reached).privacy_cost() for reached in (1, 2))
    assert two.reached == 2
    assert one.renyi is not None
    assert two.renyi is not None
    assert np.all(two.renyi.values > 2 * one.renyi.values)
    laplace = LNMax(0.3, reached=2).privacy_cost()
    assert (laplace.guarantee, laplace.reached) == (PrivacyParams("1.2"), 2)
    with pytest.raises(ValueError, match="reached must be"):
        GNMax(9.0, reached=0)


@pytest.mark.parametrize("make", [lambda: GNMax(3.0, "continuous"), lambda: LNMax(0.3, "continuous")])
def test_continuous_noise_is_for_experiments_only(make: object) -> None:
    with pytest.raises(ValueError, match="needs rng="):
        make().release(Votes.from_counts([[3, 1]]))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GNMax(0.0), "sigma must be"),
        (lambda: GNMax(3.0, "loud"), "noise must be one of"),
        (lambda: LNMax(math.inf), "gamma must be"),
        (lambda: AsymmetricMax(40.0), "noise must be an AsymmetricNoise"),  # type: ignore[arg-type]
        (lambda: AsymmetricMax(AsymmetricNoise(4000.0, 4000.0, 2.0, 2.0)), "of a deviation of at most 1024 votes"),
        (lambda: AsymmetricMax(SHAPED, reached=0), "reached must be"),
        (lambda: ConfidentGNMax(math.nan, 1.0, 1.0), "threshold must be a finite number"),
        (lambda: ConfidentGNMax(1, 0.0, 1.0), "sigma_threshold must be"),
        (lambda: ConfidentGNMax(1, 1.0, -1.0), "sigma_answer must be"),
        (lambda: InteractiveGNMax(1, 1.0, 1.0, 1.5), "confidence must be"),
    ],
)
def test_bad_parameters(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[0.5, 0.4]], "the sum of the scores of row 0"),
        ([[1.5, -0.5]], "scores must be in"),
        ([[math.nan, 1.0]], "scores must be in"),
        ([[1.0]], "the shape of the scores"),
    ],
)
def test_bad_scores(scores: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InteractiveGNMax(1, 1.0, 1.0, 0.5).with_scores(scores).release(Votes.from_counts([[3, 1]]))
