"""The law of a noisy maximum against the list of all noises, and the search for the best shape."""

from collections.abc import Callable
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


def list_all_noises(noise: IntegerNoise, counts: list[int], reach: int) -> np.ndarray:
    """Sum every outcome of every noise within the reach, ties shared."""
    points, logs = law_of(noise, reach)
    mass = np.exp(logs)
    law = np.zeros(len(counts))
    for indices in product(range(points.size), repeat=len(counts)):
        noisy = np.asarray(counts) + points[list(indices)]
        is_top = noisy == noisy.max()
        law[is_top] += np.prod(mass[list(indices)]) / is_top.sum()
    return law


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("noise", "counts", "reach"),
    [
        (AsymmetricNoise(1.0, 1.5, 3.0, 2.0), [3, 0], 8),
        (DiscreteGaussian(0.5), [2, 2, 1], 5),
        (DiscreteGaussian(0.8), [3, 2, 2], 8),
        (DiscreteLaplace(3.0), [0, 2, 1], 9),
        (DiscreteGaussian(0.5), [2, 1, 1, 0], 5),
        (DiscreteGaussian(0.6), [0, 9], 8),
        (AsymmetricNoise(1.0, 1.5, 3.0, 2.0), [2, 1, 1], 8),
    ],
)
def test_the_law_is_the_sum_over_all_noises(noise: IntegerNoise, counts: list[int], reach: int) -> None:
    law = list_all_noises(noise, counts, reach)
    assert winning_probabilities(noise, np.array([counts]))[0] == pytest.approx(law, abs=1e-10)
    accuracy = law[np.array(counts) == max(counts)].sum()
    assert WinningLaw(noise).compute_accuracy(np.array([counts]))[0] == pytest.approx(accuracy, abs=1e-10)


@pytest.mark.parametrize(
    ("limit", "size"), [("_MAX_TABLE_ENTRIES", 1), ("_MAX_TABLE_ENTRIES", 7), ("_MAX_BLOCK_ENTRIES", 1000)]
)
def test_blocks_change_nothing(limit: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Dirichlet(0.5).sample(50, 4, 50, rng=np.random.default_rng(4))
    whole = winning_probabilities(DiscreteGaussian(4.0), counts)
    monkeypatch.setattr(noisy_law, limit, size)
    assert winning_probabilities(DiscreteGaussian(4.0), counts) == pytest.approx(whole, abs=1e-14)


@pytest.mark.parametrize(
    ("noise", "error"),
    [
        (DiscreteGaussian(20.0), 1e-6),
        (DiscreteGaussian(33.0), 1e-4),
        pytest.param(DiscreteLaplace(0.05), 1e-6, marks=pytest.mark.slow),
        pytest.param(DiscreteGaussian(127.0), 1e-4, marks=pytest.mark.slow),
        pytest.param(DiscreteLaplace(0.014), 2e-4, marks=pytest.mark.slow),
    ],
)
def test_few_nodes_err_by_less_than_documented(
    noise: IntegerNoise, error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Dirichlet(0.5).sample(3000, 12, 40, rng=np.random.default_rng(3))
    approximate = winning_probabilities(noise, counts)
    monkeypatch.setattr(noisy_law, "_MAX_EIGHT_NODE_DEVIATION", np.inf)
    monkeypatch.setattr(noisy_law, "_MAX_TWO_NODE_DEVIATION", np.inf)
    exact = winning_probabilities(noise, counts)
    assert exact.sum(axis=1) == pytest.approx(np.ones(40), abs=1e-12)
    assert np.max(np.abs(approximate - exact)) < error


def test_noise_wider_than_all_tables_has_the_law_of_a_narrower_one_to_scale() -> None:
    counts = np.array([[1000, 400, 0], [700, 700, 100]])
    wide = winning_probabilities(DiscreteGaussian(1e9), counts * 1_000_000)
    assert wide == pytest.approx(winning_probabilities(DiscreteGaussian(1e3), counts), abs=1e-4)


@pytest.mark.slow
def test_ten_classes_gain_accuracy_at_a_certified_cost() -> None:
    shape = best_shape(250, 10, Dirichlet(0.5), order=16.0, budget=0.01)
    assert shape.cost == label_curve(shape.noise).values[np.searchsorted(DEFAULT_ORDERS, 16.0)]
    assert 0.0098 < shape.cost <= 0.01
    # measured another way: the Gaussian of this cost, and other histograms
    counts = Dirichlet(0.5).sample(250, 10, 4000, rng=np.random.default_rng(1))
    gaussian = DiscreteGaussian(32.117)
    assert label_estimate(gaussian, [16.0])[0] == pytest.approx(0.01, rel=1e-3)
    gain = winning_probabilities(shape.noise, counts) - winning_probabilities(gaussian, counts)
    is_top = counts == counts.max(axis=1, keepdims=True)
    assert (gain * is_top).sum(axis=1).mean() == pytest.approx(shape.gain, abs=0.002)
    assert shape.gain > 0.0155
    assert 0.0 < shape.gain_error < 0.001


def test_two_classes_gain_little_and_lose_nothing() -> None:
    assert -1e-4 <= best_shape(40, 2, order=8.0, budget=0.05).gain < 0.01


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: best_shape(40, 3, order=7.77, budget=0.05), ValueError, "order must be one of"),
        (lambda: best_shape(40, 1, order=8.0, budget=0.05), ValueError, "classes must be"),
        (lambda: best_shape(40, 3, order=8.0, budget=1e-9), PlanError, "no asymmetric noise"),
    ],
)
def test_refusals(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
