"""The bounds of [P] and [P17] against fifty digits, and against the exact laws of small ensembles."""

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from darrm.numerics.integer_noise import DiscreteGaussian, DiscreteLaplace
from darrm.pate.smooth_sensitivity import CostShape
from darrm.pate.theorem_6 import _is_theorem_6_valid, gaussian_renyi, laplace_log_q, laplace_renyi, log_q
from tests.pate.support import (
    compute_distances,
    list_histograms,
    lnmax_moments,
    log_lattice_win_probabilities,
    log_win_probabilities,
    theorem_6,
)

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


Q = {
    "Gaussian": log_q,
    "discrete Gaussian": lambda rows, sigma: log_q(rows, sigma, noise="discrete"),
    "discrete Laplace": lambda rows, gamma: laplace_log_q(rows, gamma, noise="discrete"),
}


def log_winners(law: str, rows: np.ndarray, parameter: float) -> np.ndarray:
    if law == "Gaussian":
        return log_win_probabilities(rows, parameter)
    noise = DiscreteLaplace if law == "discrete Laplace" else DiscreteGaussian
    return log_lattice_win_probabilities(rows, noise(parameter))


@pytest.mark.parametrize(
    ("law", "voters", "classes", "parameter"),
    [
        *(("Gaussian", *case) for case in ((12, 2, 1.0), (12, 2, 2.0), (12, 3, 1.5), (8, 3, 1.0))),
        *(("discrete Gaussian", *case) for case in ((12, 2, 1.0), (12, 3, 1.5), (9, 3, 0.7))),
        *(("discrete Laplace", *case) for case in ((12, 2, 0.5), (12, 3, 1.0), (9, 3, 0.2))),
    ],
)
def test_bounds_dominate_the_true_divergence(law: str, voters: int, classes: int, parameter: float) -> None:
    rows = list_histograms(voters, classes)
    log_p, logs = log_winners(law, rows, parameter), Q[law](rows, parameter)
    renyi: Callable[..., Any] = laplace_renyi if law == "discrete Laplace" else gaussian_renyi
    is_neighbor = compute_distances(rows) == 1
    for order in (1.2, 2.0, 5.0, 40.0) if law == "discrete Laplace" else (1.2, 2.0, 3.0, 6.0):
        bound = renyi(logs, parameter, [order])[:, 0]
        pairs = np.logaddexp.reduce(order * log_p[:, None] - (order - 1.0) * log_p[None], axis=2) / (order - 1.0)
        assert np.all(np.where(is_neighbor, pairs, 0.0).max(axis=1) <= bound * (1 + 1e-9))
        if law == "Gaussian" and order <= 3.0:
            assert bound.min() < 0.3 * order / parameter**2  # Theorem 6 is the smaller bound


@pytest.mark.parametrize("law", ["Gaussian", "discrete Gaussian"])
def test_q_bounds_the_probability_of_another_answer(law: str) -> None:
    rows, sigma = list_histograms(12, 3), 1.5
    plurality, logs = rows.argmax(axis=1), Q[law](rows, sigma)
    others = np.arange(3) != plurality[:, np.newaxis]
    log_other = np.log(np.where(others, np.exp(log_winners(law, rows, sigma)), 0.0).sum(axis=1))
    decided = logs <= math.log(0.5)
    assert decided.sum() > 20
    assert np.all(log_other[decided] <= logs[decided] + 1e-12)
    decided &= plurality == 2  # ties go to lower classes, so here they all count as overtaken
    assert np.all(logs[decided] <= log_other[decided] + 0.5)


def test_q_of_laplace_noise_is_exact_for_two_classes() -> None:
    rows = list_histograms(12, 2)
    log_p, logs = log_winners("discrete Laplace", rows, 0.4), Q["discrete Laplace"](rows, 0.4)
    is_second = rows[:, 1] > rows[:, 0]  # class 0 wins ties, and the bound counts them as won by it
    assert np.allclose(logs[is_second], log_p[is_second, 0], rtol=1e-10)


@given(st.floats(1.0, 5000.0), st.floats(1.01, 500.0), st.integers(2, 200))
def test_cost_rises_with_q_up_to_q0_and_is_flat_beyond(sigma: float, order: float, classes: int) -> None:
    shape = CostShape(sigma, order, classes)
    end = shape.log_q0
    assume(math.isfinite(end))
    below = shape.cost(np.linspace(6.0 * end, end, 400))
    assert np.all(np.diff(below) >= -1e-11 * below[1:])
    assert np.all(shape.cost(np.linspace(end + 1e-6 * abs(end), 0.0, 50)) == shape.ceiling)


def test_bounds_are_positive_and_at_most_proposition_8() -> None:
    values = gaussian_renyi(np.linspace(-3000.0, 0.0, 501), 20.0, ORDERS)
    assert np.all((values > 0.0) & (values <= np.array(ORDERS) / 400.0))
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
