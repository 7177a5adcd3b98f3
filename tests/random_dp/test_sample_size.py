"""Sample sizes against fifty-digit arithmetic, and brute force over ρ."""

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.random_dp.sample_size import exchangeable_sample_size, sample_size, smallest_gamma

SIZES = st.integers(3, 10**9)


def to_decimal(value: float) -> mpmath.mpf:
    return mpmath.mpf(repr(float(value)))


def least_k(m: int, gamma: mpmath.mpf, rho: mpmath.mpf) -> mpmath.mpf:
    """Compute the right side of inequality (2)."""
    return m * (1 - gamma + rho + mpmath.sqrt(mpmath.log(1 / rho) / (2 * m)))


@given(gamma=st.floats(1e-6, 0.999))
def test_the_sizes_for_a_gamma_are_those_of_fifty_digits(gamma: float) -> None:
    with mpmath.workdps(50):
        g = to_decimal(gamma)
        rho = mpmath.exp(mpmath.lambertw(-g / (2 * mpmath.sqrt(mpmath.e)), -1).real + mpmath.mpf("0.5"))
        m = int(mpmath.ceil(mpmath.log(1 / rho) / (2 * (g - rho) ** 2)))
        size = sample_size(gamma=gamma)
        assert (size.m, size.k, size.gamma) == (m, int(mpmath.ceil(least_k(m, g, rho))), gamma)
        assert abs(size.rho - rho) < 1e-13 * rho


@given(m=SIZES)
def test_the_gamma_for_a_size_is_the_smallest(m: int) -> None:
    with mpmath.workdps(50):
        rho = mpmath.exp(mpmath.lambertw(mpmath.mpf(-1) / (4 * m), -1).real / 2)
        smallest = rho + mpmath.sqrt(mpmath.log(1 / rho) / (2 * m))
        size = sample_size(m=m)
        assert size.k == m
        assert smallest <= to_decimal(size.gamma) <= smallest * (1 + mpmath.mpf("1e-13"))
        assert sample_size(gamma=size.gamma, m=m).k == m


@given(m=SIZES, share=st.floats(0.0, 0.999))
def test_the_rank_for_gamma_and_size_is_that_of_fifty_digits(m: int, share: float) -> None:
    smallest = float(smallest_gamma(m)[1])
    gamma = max(smallest, smallest + share * (0.999 - smallest))
    with mpmath.workdps(50):
        size = sample_size(gamma=gamma, m=m)
        assert size.k == min(m, int(mpmath.ceil(least_k(m, to_decimal(gamma), mpmath.mpf(size.rho)))))
        assert size.m == m


@pytest.mark.parametrize("gamma", [0.9, 0.3, 0.05, 0.001])
def test_no_other_rho_needs_fewer_pairs(gamma: float) -> None:
    rhos = np.geomspace(1e-12, min(gamma, 0.5) * (1 - 1e-9), 20_000)
    pairs = np.log(1 / rhos) / (2 * (gamma - rhos) ** 2)
    assert sample_size(gamma=gamma).m - 1 < pairs.min() <= sample_size(gamma=gamma).m


@pytest.mark.parametrize("m", [5, 100, 10_000])
def test_no_other_rho_gives_a_smaller_gamma(m: int) -> None:
    rhos = np.geomspace(1e-12, 0.5, 20_000)
    gammas = rhos + np.sqrt(np.log(1 / rhos) / (2 * m))
    assert gammas.min() == pytest.approx(float(smallest_gamma(m)[1]), rel=1e-6)


@given(gamma=st.floats(1e-4, 0.999), extra=st.integers(0, 1000))
def test_exchangeable_sizes_are_sufficient_and_smallest(gamma: float, extra: int) -> None:
    exact = Fraction(repr(gamma))
    size = exchangeable_sample_size(gamma=gamma)
    assert Fraction(size.k, size.m + 1) >= 1 - exact
    assert size.m == 1 or Fraction(size.m - 1, size.m) < 1 - exact  # one pair fewer is not sufficient
    larger = exchangeable_sample_size(gamma=gamma, m=size.m + extra)
    assert Fraction(larger.k, larger.m + 1) >= 1 - exact
    assert larger.k == 1 or Fraction(larger.k - 1, larger.m + 1) < 1 - exact
    assert larger.k <= larger.m


@given(m=st.integers(1, 10**6))
def test_the_exchangeable_gamma_is_one_over_m_plus_one_rounded_up(m: int) -> None:
    gamma = Fraction(repr(exchangeable_sample_size(m=m).gamma))
    assert Fraction(1, m + 1) <= gamma < Fraction(1, m + 1) * (1 + Fraction(1, 10**12))


@pytest.mark.parametrize(
    ("rule", "arguments", "message"),
    [
        (sample_size, {}, "at least one of them"),
        (sample_size, {"gamma": 0.0}, r"in \(0, 1\)"),
        (sample_size, {"gamma": 1.0}, r"in \(0, 1\)"),
        (sample_size, {"gamma": math.nan}, "gamma must be a finite number"),
        (sample_size, {"gamma": "x"}, "gamma must be a finite number"),
        (sample_size, {"gamma": 1e-12}, "at least 1e-07"),
        (sample_size, {"gamma": 0.05, "m": 100}, r"at least 0\.159724174610471 for m = 100.*m = 1305"),
        (sample_size, {"m": 1}, "m must be an integer of at least 2"),
        (sample_size, {"m": 10.0}, "m must be an integer"),
        (sample_size, {"m": True}, "m must be an integer"),
        (sample_size, {"m": 10**15 + 1}, "m must be at most"),
        (exchangeable_sample_size, {}, "at least one of them"),
        (exchangeable_sample_size, {"gamma": 1.0}, r"in \(0, 1\)"),
        (exchangeable_sample_size, {"gamma": 0.01, "m": 50}, r"1/\(m \+ 1\) = 0\.0196078 for m = 50.*m = 99"),
        (exchangeable_sample_size, {"m": 0}, "m must"),
    ],
)
def test_refusals(rule: Callable[..., object], arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rule(**arguments)
