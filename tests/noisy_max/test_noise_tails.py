import math

import numpy as np
import pytest

from darrm.noisy_max import noise_law
from darrm.noisy_max.noise_law import (
    discrete_gaussian_log_survival,
    gaussian_log_tails,
    laplace_log_tails,
    sum_of_tails,
)
from darrm.numerics.integer_noise import DiscreteGaussian, DiscreteLaplace
from tests.noisy_max.oracles import wide_law_of


def difference_log_survival(log_mass: np.ndarray, largest: int) -> np.ndarray:
    """Log Pr[X − Y ≥ g] for two draws of a law, from its definition."""
    upper = np.logaddexp.accumulate(log_mass[::-1])[::-1]
    size = log_mass.size
    return np.array([np.logaddexp.reduce(log_mass[: size - gap] + upper[gap:]) for gap in range(largest + 1)])


@pytest.mark.parametrize("sigma", [0.5, 0.7, 1.0, 3.0, 40.0])
def test_the_discrete_gaussian_tail_is_bounded_closely(sigma: float) -> None:
    largest = math.ceil(8 * sigma)
    true = difference_log_survival(wide_law_of(DiscreteGaussian(sigma))[1], largest)
    bound = gaussian_log_tails(np.arange(largest + 1), sigma, "discrete")
    assert np.all(bound[1:] >= true[1:])
    if sigma >= 3.0:  # and looser by the midpoint rule's error only: about (g/σ²)²/96, relative
        gaps = np.arange(1, largest + 1)
        assert np.all(bound[1:] - true[1:] <= (gaps / sigma**2) ** 2 / 80 + 1 / (40 * sigma**2))
    assert bound[0] >= math.log(0.5)  # from there on no bound is drawn


@pytest.mark.parametrize("gamma", [0.05, 0.5, 2.0])
def test_the_discrete_laplace_tail_is_exact(gamma: float) -> None:
    true = difference_log_survival(wide_law_of(DiscreteLaplace(gamma))[1], 30)
    assert np.allclose(laplace_log_tails(np.arange(31), gamma, "discrete"), true, rtol=1e-9, atol=1e-12)


def test_tails_of_whole_number_noise_are_above_those_of_continuous_noise() -> None:
    for tails, parameter in ((gaussian_log_tails, 5.0), (laplace_log_tails, 0.2)):
        gaps = np.arange(51)
        assert np.all(tails(gaps, parameter, "discrete") >= tails(gaps, parameter, "continuous"))


def test_tails_of_almost_endless_noise_are_a_coin() -> None:
    assert np.exp(laplace_log_tails(np.arange(4), 1e-300, "discrete")) == pytest.approx([0.5] * 4, rel=1e-12)


def test_survival_of_one_draw() -> None:
    log_mass = wide_law_of(DiscreteGaussian(3.0))[1]
    middle = log_mass.size // 2
    true = np.logaddexp.accumulate(log_mass[::-1])[::-1][middle - 20 : middle + 21]
    assert np.allclose(discrete_gaussian_log_survival(np.arange(-20, 21), 3.0), true, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("sigma", [0.5, 0.6, math.sqrt(0.5), 1.0, 3.0, 50.0])
def test_the_closed_form_of_one_draw_is_a_bound_and_close(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.arange(-int(12 * sigma) - 2, int(12 * sigma) + 3)
    exact = discrete_gaussian_log_survival(points, sigma)
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
    assert np.exp(sum_of_tails(gaps, logs[gaps])) == pytest.approx([2e-300, 1.0, 0.25])
    assert sum_of_tails(gaps, logs[gaps])[0] == pytest.approx(math.log(2e-300), rel=1e-14)


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
def test_bad_arguments(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
