import numpy as np
import pytest

from darrm.errors import PlanError
from darrm.loss.renyi import DEFAULT_ORDERS
from darrm.noisy_max.label_cost import label_curve, label_estimate
from darrm.noisy_max.noisy_law import best_shape, winning_probabilities
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.priors import Dirichlet


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
