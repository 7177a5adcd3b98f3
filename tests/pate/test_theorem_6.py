"""The bounds of [P] and [P17] against fifty digits, and against the exact laws of small ensembles."""

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from darrm.numerics.integer_noise import DiscreteGaussian, DiscreteLaplace, IntegerNoise
from darrm.pate.smooth_sensitivity import CostShape
from darrm.pate.theorem_6 import _is_theorem_6_valid, gaussian_renyi, laplace_log_q, laplace_renyi, log_q
from tests.noisy_max.oracles import histograms, label_laws, worst_divergence
from tests.pate.support import lnmax_moments, theorem_6

LOGS = (-0.3, -0.7, -1.0, -3.0, -10.0, -40.0, -150.0, -345.0, math.log(1e-300), -2000.0)
ORDERS = (1.01, 1.5, 2.0, 7.5, 14.0, 50.0, 200.0, 500.0)
LARGEST_EXCESS = 2e-12  # of rounding up, relative


@pytest.mark.parametrize(
    ("bound", "oracle", "parameter"),
    [(gaussian_renyi, theorem_6, sigma) for sigma in (1.0, 40.0, 5000.0)]
    + [(laplace_renyi, lnmax_moments, gamma) for gamma in (1e-4, 0.05, 0.5, 3.0)]
    + [pytest.param(gaussian_renyi, theorem_6, sigma, marks=pytest.mark.slow) for sigma in (3.0, 150.0, 1000.0)],
)
def test_bounds_against_fifty_digits(bound: Callable, oracle: Callable, parameter: float) -> None:
    values = bound(LOGS, parameter, ORDERS)
    last_digit = mpmath.mpf(2) ** (-53 if bound is gaussian_renyi else -51)
    dependent = 0
    for row, log_probability in enumerate(LOGS):
        for column, order in enumerate(ORDERS):
            exact = oracle(log_probability, parameter, order)
            assert values[row, column] >= exact * (1 - last_digit)
            if exact > 1e-290:
                assert values[row, column] <= exact * (1 + LARGEST_EXCESS)
            dependent += exact < oracle(-1e-9, parameter, order) * (1 - 1e-9)  # q near 1 is the bound for any votes
    assert dependent >= 10


@pytest.mark.parametrize("sigma", [0.2, 0.7, 1.0, 2.0, 40.0])
def test_the_condition_on_q_is_the_papers(sigma: float) -> None:
    # tested by itself: for Gaussian noise the smaller of the two bounds hides its failures
    logs = np.linspace(-40.0, -0.01, 801)
    valid = _is_theorem_6_valid(logs, sigma * np.sqrt(-logs), sigma)
    for log_probability, is_valid in zip(logs.tolist(), valid.tolist(), strict=True):
        q, mu = math.exp(log_probability), sigma * math.sqrt(-log_probability)
        largest = 0.5
        if mu > 1.0:
            ratio = (mu + 1.0) / mu * mu / (mu - 1.0)
            largest = min(0.5, math.exp((mu - 1.0) * mu / sigma**2) / ratio**mu)
        assert is_valid == (mu > 1.0 and q <= largest)
    assert sigma > 1.0 or 0 < valid.sum() < valid.size


@pytest.mark.parametrize(
    ("noise", "voters", "classes"),
    [
        (DiscreteGaussian(1.0), 12, 2),
        (DiscreteGaussian(1.5), 12, 3),
        (DiscreteGaussian(0.7), 9, 3),
        (DiscreteLaplace(0.5), 12, 2),
        (DiscreteLaplace(1.0), 12, 3),
        (DiscreteLaplace(0.2), 9, 3),
    ],
    ids=str,
)
def test_bounds_dominate_the_true_divergence(noise: IntegerNoise, voters: int, classes: int) -> None:
    laws = {row: label_laws(noise, row, fair=False) for row in histograms(voters, classes)}
    for order in (1.2, 2.0, 3.0, 6.0):
        if isinstance(noise, DiscreteGaussian):
            bounds = gaussian_renyi(log_q(list(laws), noise.sigma, noise="discrete"), noise.sigma, [order])
            assert order > 2.0 or bounds.min() < 0.5 * order / noise.sigma**2  # Theorem 6 is the smaller bound
        else:
            assert isinstance(noise, DiscreteLaplace)
            bounds = laplace_renyi(laplace_log_q(list(laws), noise.gamma, noise="discrete"), noise.gamma, [order])
        for row, bound in zip(laws, bounds[:, 0], strict=True):
            assert worst_divergence(laws, row, order, forward_only=True) <= bound * (1 + 1e-9)


@given(st.floats(1.0, 5000.0), st.floats(1.01, 500.0), st.integers(2, 200))
def test_cost_rises_with_q_up_to_q0_and_is_flat_beyond(sigma: float, order: float, classes: int) -> None:
    shape = CostShape(sigma, order, classes)
    end = shape.log_q0
    assume(math.isfinite(end))
    below = shape.cost(np.linspace(6.0 * end, end, 400))
    assert np.all(np.diff(below) >= -1e-11 * below[1:])
    assert np.all(shape.cost(np.linspace(end + 1e-6 * abs(end), 0.0, 50)) == shape.ceiling)


def test_a_certain_answer_costs_nothing() -> None:
    assert np.all(gaussian_renyi([-np.inf], 20.0, ORDERS) < 1e-300)


def test_theorem_6_never_helps_with_eleven_voters() -> None:
    # [D, Algorithm 6, D.2.1]: with K = 11 and C = 2 the condition never holds, even when all teachers agree
    assert gaussian_renyi(log_q([[11, 0]], 21.46), 21.46, [34.31])[0, 0] == 34.31 / 21.46**2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.1], 40.0, [2.0]), "log_q must be"),
        (([math.nan], 40.0, [2.0]), "log_q must be"),
        (([-1.0], 0.0, [2.0]), "sigma must be"),
        (([-1.0], math.inf, [2.0]), "sigma must be"),
        (([-1.0], 40.0, [1.0]), "orders must be"),
        (([-1.0], 40.0, []), "orders must be"),
        (([-1.0], 40.0, [math.inf]), "orders must be"),
    ],
)
def test_refusals(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gaussian_renyi(*arguments)
