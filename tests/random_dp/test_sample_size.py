"""Sample sizes against fifty-digit arithmetic, and brute force over ρ."""

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.random_dp.sample_size import (
    exchangeable_sample_size,
    sample_size,
    smallest_gamma,
)

GAMMAS = st.floats(1e-6, 0.999)
SIZES = st.integers(3, 10**9)


def decimal(value: float) -> mpmath.mpf:
    return mpmath.mpf(repr(float(value)))


def least_m(gamma: mpmath.mpf, rho: mpmath.mpf) -> mpmath.mpf:
    return mpmath.log(1 / rho) / (2 * (gamma - rho) ** 2)


def least_k(m: int, gamma: mpmath.mpf, rho: mpmath.mpf) -> mpmath.mpf:
    return m * (1 - gamma + rho + mpmath.sqrt(mpmath.log(1 / rho) / (2 * m)))


@given(gamma=GAMMAS)
def test_given_gamma_the_sizes_are_those_of_fifty_digits(gamma: float) -> None:
    with mpmath.workdps(50):
        g = decimal(gamma)
        rho = mpmath.exp(mpmath.lambertw(-g / (2 * mpmath.sqrt(mpmath.e)), -1).real + mpmath.mpf("0.5"))
        m = int(mpmath.ceil(least_m(g, rho)))
        found = sample_size(gamma=gamma)
        assert found.m == m
        assert abs(found.rho - rho) < 1e-13 * rho
        assert found.k == int(mpmath.ceil(least_k(m, g, rho)))
        assert found.gamma == gamma


@given(m=SIZES)
def test_given_m_gamma_is_the_smallest(m: int) -> None:
    with mpmath.workdps(50):
        rho = mpmath.exp(mpmath.lambertw(mpmath.mpf(-1) / (4 * m), -1).real / 2)
        smallest = rho + mpmath.sqrt(mpmath.log(1 / rho) / (2 * m))
        found = sample_size(m=m)
        assert found.k == m
        assert smallest <= decimal(found.gamma) <= smallest * (1 + mpmath.mpf("1e-13"))
        assert sample_size(gamma=found.gamma, m=m).k == m


@given(m=SIZES, share=st.floats(0.0, 0.999))
def test_given_both_k_is_that_of_fifty_digits(m: int, share: float) -> None:
    _, smallest = smallest_gamma(m)
    gamma = float(smallest) + share * (0.999 - float(smallest))
    gamma = max(float(smallest), gamma)
    with mpmath.workdps(50):
        found = sample_size(gamma=gamma, m=m)
        assert found.k == min(m, int(mpmath.ceil(least_k(m, decimal(gamma), mpmath.mpf(found.rho)))))
        assert found.m == m


@pytest.mark.parametrize("gamma", [0.9, 0.3, 0.05, 0.001])
def test_no_other_rho_needs_fewer_pairs(gamma: float) -> None:
    rhos = np.geomspace(1e-12, min(gamma, 0.5) * (1 - 1e-9), 20_000)
    efforts = np.log(1 / rhos) / (2 * (gamma - rhos) ** 2)
    best = sample_size(gamma=gamma).m
    assert best - 1 < efforts.min() <= best
    assert abs(rhos[np.argmin(efforts)] / sample_size(gamma=gamma).rho - 1) < 5e-3


@pytest.mark.parametrize("m", [5, 100, 10_000])
def test_no_other_rho_gives_a_smaller_gamma(m: int) -> None:
    rhos = np.geomspace(1e-12, 0.5, 20_000)
    gammas = rhos + np.sqrt(np.log(1 / rhos) / (2 * m))
    assert abs(gammas.min() / float(smallest_gamma(m)[1]) - 1) < 1e-6
    assert abs(rhos[np.argmin(gammas)] / smallest_gamma(m)[0] - 1) < 5e-3


@given(gamma=GAMMAS)
def test_theorem_15_holds_for_the_chosen_sizes(gamma: float) -> None:
    m, k, rho, same = sample_size(gamma=gamma)
    assert same == gamma
    assert 0 < rho < min(gamma, 0.5)
    assert 1 <= k <= m
    with mpmath.workdps(50):
        assert m >= least_m(decimal(gamma), mpmath.mpf(rho))
        assert k >= least_k(m, decimal(gamma), mpmath.mpf(rho)) or k == m


def test_published_rows() -> None:
    # γ = 0.05 with m = 1500 is what the paper's SVM experiment uses; it lies just above the smallest γ for that m
    assert 0.0468 < sample_size(m=1500).gamma < 0.05
    assert sample_size(gamma=0.05, m=1500).k == 1496
    assert sample_size(gamma=0.01).m <= 50_000
    assert [sample_size(gamma=gamma).m for gamma in (0.5, 0.1)] == [8, 285]


def test_a_gamma_out_of_reach_is_refused_with_the_smallest_and_the_needed_m() -> None:
    with pytest.raises(ValueError, match=r"gamma must be at least 0\.159724174610471 for m = 100.*m = 1305") as info:
        sample_size(gamma=0.05, m=100)
    assert "\n" not in str(info.value)


@given(gamma=st.floats(1e-4, 0.999), extra=st.integers(0, 1000))
def test_exchangeable_sizes_are_sufficient_and_smallest(gamma: float, extra: int) -> None:
    exact = Fraction(repr(gamma))
    size = exchangeable_sample_size(gamma=gamma)
    assert Fraction(size.k, size.m + 1) >= 1 - exact
    assert size.m == 1 or Fraction(size.m - 1, size.m) < 1 - exact  # one pair fewer would not do
    more = exchangeable_sample_size(gamma=gamma, m=size.m + extra)
    assert Fraction(more.k, more.m + 1) >= 1 - exact
    assert more.k == 1 or Fraction(more.k - 1, more.m + 1) < 1 - exact
    assert more.k <= more.m


@given(m=st.integers(1, 10**6))
def test_exchangeable_gamma_is_not_below_one_over_m_plus_one(m: int) -> None:
    size = exchangeable_sample_size(m=m)
    assert Fraction(1, m + 1) <= Fraction(repr(size.gamma)) < Fraction(1, m + 1) * (1 + Fraction(1, 10**12))


@pytest.mark.parametrize(
    ("rule", "arguments", "words"),
    [
        (sample_size, {}, "at least one of them"),
        (sample_size, {"gamma": 0.0}, "in (0, 1)"),
        (sample_size, {"gamma": 1.0}, "in (0, 1)"),
        (sample_size, {"gamma": math.nan}, "gamma must be a finite number"),
        (sample_size, {"gamma": "x"}, "gamma must be a finite number"),
        (sample_size, {"gamma": 1e-12}, "at least 1e-07"),
        (sample_size, {"m": 1}, "m must be an integer of at least 2"),
        (sample_size, {"m": 10.0}, "m must be an integer"),
        (sample_size, {"m": True}, "m must be an integer"),
        (sample_size, {"m": 10**18}, "m must be at most"),
        (exchangeable_sample_size, {}, "at least one of them"),
        (exchangeable_sample_size, {"gamma": 1.0}, "in (0, 1)"),
        (exchangeable_sample_size, {"gamma": 0.01, "m": 50}, "m = 99"),
        (exchangeable_sample_size, {"m": 0}, "m must"),
    ],
)
def test_bad_arguments(rule: Callable[..., object], arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match="must be") as info:
        rule(**arguments)
    assert words in str(info.value)
