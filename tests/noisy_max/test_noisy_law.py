"""The law of a noisy maximum against the list of all noises, and the search for the best shape."""

from itertools import product

import numpy as np
import pytest

from darrm.errors import PlanError
from darrm.loss.renyi import DEFAULT_ORDERS
from darrm.noisy_max import noisy_law
from darrm.noisy_max.label_cost import label_curve, label_estimate
from darrm.noisy_max.noisy_law import WinningLaw, best_shape, winning_probabilities
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace, IntegerNoise
from darrm.priors import Dirichlet
from tests.noisy_max.oracles import law_of


def listed(noise: IntegerNoise, counts: list[int], reach: int) -> np.ndarray:
    """Every outcome of every noise within the reach, ties shared."""
    points, logs = law_of(noise, reach)
    mass = np.exp(logs)
    law = np.zeros(len(counts))
    for drawn in product(range(points.size), repeat=len(counts)):
        noisy = np.asarray(counts) + points[list(drawn)]
        best = noisy == noisy.max()
        law[best] += np.prod(mass[list(drawn)]) / best.sum()
    return law


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("noise", "counts", "reach"),
    [
        (DiscreteGaussian(0.8), [3, 2, 2], 8),
        (DiscreteLaplace(3.0), [0, 2, 1], 9),
        (DiscreteGaussian(0.5), [2, 1, 1, 0], 5),
        (DiscreteGaussian(0.6), [0, 9], 8),
        (DiscreteGaussian(0.8), [2, 2, 1], 8),
        (AsymmetricNoise(1.0, 1.5, 3.0, 2.0), [2, 1, 1], 8),
        (AsymmetricNoise(1.0, 1.5, 3.0, 2.0), [3, 0], 8),
    ],
)
def test_it_is_the_law_by_listing_all_noises(noise: IntegerNoise, counts: list[int], reach: int) -> None:
    law = listed(noise, counts, reach)
    assert winning_probabilities(noise, np.array([counts]))[0] == pytest.approx(law, abs=1e-10)
    right = law[np.array(counts) == max(counts)].sum()
    assert WinningLaw(noise).compute_accuracy(np.array([counts]))[0] == pytest.approx(right, abs=1e-10)


@pytest.mark.parametrize(
    ("limit", "size"), [("_MAX_TABLE_ENTRIES", 1), ("_MAX_TABLE_ENTRIES", 7), ("_MAX_BLOCK_ENTRIES", 1000)]
)
def test_tables_and_histograms_are_taken_in_blocks(limit: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Dirichlet(0.5).sample(50, 4, 50, rng=np.random.default_rng(4))
    whole = winning_probabilities(DiscreteGaussian(4.0), counts)
    monkeypatch.setattr(noisy_law, limit, size)
    assert winning_probabilities(DiscreteGaussian(4.0), counts) == pytest.approx(whole, abs=1e-14)


@pytest.mark.parametrize(
    ("noise", "error"),
    [
        (DiscreteGaussian(20.0), 1e-6),
        pytest.param(DiscreteLaplace(0.05), 1e-6, marks=pytest.mark.slow),
        (DiscreteGaussian(33.0), 1e-4),
        pytest.param(DiscreteGaussian(127.0), 1e-4, marks=pytest.mark.slow),
        pytest.param(DiscreteLaplace(0.014), 2e-4, marks=pytest.mark.slow),
    ],
)
def test_few_nodes_err_as_little_as_they_say(
    noise: IntegerNoise, error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Dirichlet(0.5).sample(3000, 12, 40, rng=np.random.default_rng(3))
    found = winning_probabilities(noise, counts)
    monkeypatch.setattr(noisy_law, "_MAX_EIGHT_NODE_DEVIATION", np.inf)
    monkeypatch.setattr(noisy_law, "_MAX_TWO_NODE_DEVIATION", np.inf)
    exact = winning_probabilities(noise, counts)
    assert exact.sum(axis=1) == pytest.approx(np.ones(40), abs=1e-12)
    assert np.max(np.abs(found - exact)) < error


def test_noise_that_is_too_wide_to_be_written_down_has_the_law_of_a_narrower_one_to_scale() -> None:
    counts = np.array([[1000, 400, 0], [700, 700, 100]])
    wide = winning_probabilities(DiscreteGaussian(1e9), counts * 1_000_000)
    assert wide == pytest.approx(winning_probabilities(DiscreteGaussian(1e3), counts), abs=1e-4)


@pytest.mark.slow
def test_ten_classes_gain_and_the_cost_is_certified() -> None:
    found = best_shape(250, 10, Dirichlet(0.5), order=16.0, budget=0.01)
    curve = label_curve(found.noise)
    assert found.cost == curve.values[np.searchsorted(DEFAULT_ORDERS, 16.0)] <= 0.01
    assert found.cost > 0.0098  # the budget is used
    # measured another way: the Gaussian of this cost, and other histograms
    counts = Dirichlet(0.5).sample(250, 10, 4000, rng=np.random.default_rng(1))
    best = counts == counts.max(axis=1, keepdims=True)
    sigma = 32.117  # of which label_estimate says 0.01
    assert label_estimate(DiscreteGaussian(sigma), [16.0])[0] == pytest.approx(0.01, rel=1e-3)
    gained = (
        winning_probabilities(found.noise, counts) - winning_probabilities(DiscreteGaussian(sigma), counts)
    ) * best
    assert gained.sum(axis=1).mean() == pytest.approx(found.gain, abs=0.002)
    assert found.gain > 0.0155
    assert 0.0 < found.gain_error < 0.001


def test_two_classes_gain_little_and_never_lose() -> None:
    found = best_shape(40, 2, order=8.0, budget=0.05)
    assert -1e-4 <= found.gain < 0.01


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="order must be one of"):
        best_shape(40, 3, order=7.77, budget=0.05)
    with pytest.raises(ValueError, match="classes must be"):
        best_shape(40, 1, order=8.0, budget=0.05)
    with pytest.raises(PlanError, match="no asymmetric noise"):
        best_shape(40, 3, order=8.0, budget=1e-9)
