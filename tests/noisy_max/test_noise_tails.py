import math
from collections.abc import Callable
from functools import partial

import mpmath
import numpy as np
import pytest

from darrm.noisy_max import noise_law
from darrm.noisy_max.cost_given_votes import _Tables
from darrm.noisy_max.noise_law import (
    discrete_gaussian_log_survival,
    gaussian_log_tails,
    laplace_log_tails,
    sum_of_tails,
)
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace, IntegerNoise
from tests.noisy_max.oracles import wide_law_of


def sum_difference_tails(log_mass: np.ndarray, largest: int) -> np.ndarray:
    """Compute log Pr[X − Y ≥ g] for two draws of a law, from its definition."""
    upper = np.logaddexp.accumulate(log_mass[::-1])[::-1]
    size = log_mass.size
    return np.array([np.logaddexp.reduce(log_mass[: size - gap] + upper[gap:]) for gap in range(largest + 1)])


@pytest.mark.parametrize("sigma", [0.5, 0.7, 1.0, 3.0, 40.0])
def test_the_discrete_gaussian_tail_is_bounded_closely(sigma: float) -> None:
    gaps = np.arange(math.ceil(8 * sigma) + 1)
    exact = sum_difference_tails(wide_law_of(DiscreteGaussian(sigma))[1], gaps[-1])
    bound = gaussian_log_tails(gaps, sigma, "discrete")
    assert np.all(bound[1:] >= exact[1:])
    assert bound[0] >= math.log(0.5)  # larger q bound nothing
    if sigma >= 3.0:  # looser by the midpoint rule's error only: about (g/σ²)²/96, relative
        assert np.all(bound[1:] - exact[1:] <= (gaps[1:] / sigma**2) ** 2 / 80 + 1 / (40 * sigma**2))


@pytest.mark.parametrize(
    "noise",
    [DiscreteGaussian(2.0), AsymmetricNoise(4.0, 6.0, 2.5, 2.0), *map(DiscreteLaplace, (0.05, 0.5, 2.0))],
    ids=str,
)
def test_tables_hold_the_tails_of_a_difference(noise: IntegerNoise) -> None:
    exact = sum_difference_tails(wide_law_of(noise)[1], 30)
    assert _Tables(noise, 3).log_tails[:31] == pytest.approx(exact, rel=1e-9, abs=1e-12)


def sum_laplace_tail(gap: int, gamma: float) -> mpmath.mpf:
    a = mpmath.exp(-mpmath.mpf(gamma))
    b = (1 + a * a) / (1 - a * a)
    return ((1 - a) / (1 + a)) ** 2 * a**gap * ((gap + b) / (1 - a) + a / (1 - a) ** 2)


@pytest.mark.parametrize(
    ("bound", "compute_tail"),
    [
        (lambda gaps: gaussian_log_tails(gaps, 5.0), lambda gap: mpmath.erfc(mpmath.mpf(gap) / 10) / 2),
        (lambda gaps: laplace_log_tails(gaps, 0.25), lambda gap: mpmath.exp(-gap / 4) * (2 + gap / 4) / 4),
        *(
            (partial(laplace_log_tails, gamma=gamma, noise="discrete"), partial(sum_laplace_tail, gamma=gamma))
            for gamma in (0.3, 2.0, 1e-300)
        ),
    ],
)
def test_tails_are_rounded_up(
    bound: Callable[[np.ndarray], np.ndarray], compute_tail: Callable[[mpmath.mpf], mpmath.mpf]
) -> None:
    with mpmath.workdps(700):
        for gap, value in enumerate(bound(np.arange(40)).tolist()):
            exact = mpmath.log(compute_tail(mpmath.mpf(gap)))
            assert exact <= value <= exact + 2.0**-45 * (1 - exact)


@pytest.mark.parametrize("sigma", [0.5, 0.6, math.sqrt(0.5), 1.0, 3.0, 50.0])
def test_the_survival_of_one_draw_is_exact_and_its_closed_form_a_close_bound(
    sigma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach = int(12 * sigma) + 2
    points = np.arange(-reach, reach + 1)
    exact = discrete_gaussian_log_survival(points, sigma)
    log_mass = wide_law_of(DiscreteGaussian(sigma))[1]
    sums = np.logaddexp.accumulate(log_mass[::-1])[::-1][log_mass.size // 2 + points]
    assert np.allclose(exact, sums, rtol=1e-11, atol=1e-13)
    monkeypatch.setattr(noise_law, "MOST_SUMMED", 0)
    closed = discrete_gaussian_log_survival(points, sigma)
    rare = points >= 1  # the smaller one of Pr[X ≥ k] and Pr[X < k]; the other is its complement
    assert np.all(closed[rare] >= exact[rare])
    assert np.all(closed[~rare] <= exact[~rare] + 1e-12)
    if sigma >= 3.0:  # looser by the midpoint rule's error only: about (k/σ²)²/24, relative
        assert np.all(closed[rare] - exact[rare] <= (points[rare] / sigma**2) ** 2 / 20 + 1 / (20 * sigma**2))
        assert np.allclose(np.exp(closed), np.exp(exact), atol=1 / (40 * sigma**2))


def test_sums_skip_the_winner_and_stop_at_one() -> None:
    logs = np.log([0.5, 0.25, 1e-300])
    gaps = np.array([[-1, 2, 2], [0, 0, -1], [-1, 1, 2]])
    assert np.exp(sum_of_tails(gaps, logs[gaps])) == pytest.approx([2e-300, 1.0, 0.25], rel=1e-13)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gaussian_log_tails(3, 0.4, "discrete"), "sigma must be at least 0.5 for discrete noise"),
        (lambda: gaussian_log_tails(3, math.nan), "sigma must be a positive finite number"),
        (lambda: gaussian_log_tails(3, 1.0, "pink"), "noise must be one of continuous, discrete"),
        (lambda: gaussian_log_tails(3, 1e300), "sigma must be in"),
        (lambda: laplace_log_tails(3, -1.0), "gamma must be a positive finite number"),
    ],
)
def test_refusals(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
