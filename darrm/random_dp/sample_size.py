"""How many pairs to sample, and which order statistic of their sensitivities to take [S, Theorem 15, Table 1].

====================  ===========  ================================================================================
here                  [S]          meaning
====================  ===========  ================================================================================
``m``                 m            sampled pairs of neighbouring data sets
``k``                 k            the k-th smallest of the m sensitivities is taken
``rho``               ρ            the probability, part of γ, with which the sample may mislead
``gamma``             γ            the share of pairs that random differential privacy leaves without a promise
====================  ===========  ================================================================================

Theorem 15 asks for

    m ≥ log(1/ρ) / (2 (γ − ρ)²)                                                            (1)
    k ≥ m (1 − γ + ρ + √(log(1/ρ) / (2m)))                                                 (2)

with 0 < ρ < min(γ, 1/2). Any such ρ is valid, so a float from `scipy.special.lambertw` does no harm; what must not err
is the rounding of m and k upwards, which is done on 60-digit decimals of the exact γ and ρ.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_UP, Context, Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import lambertw

from darrm import checks
from darrm.privacy import Number, exact_number

DIGITS = 60
WORK = Context(prec=DIGITS)
# sixty digits are wrong in the last two or three; a margin of 1e-50 covers them
MARGIN = 1 + Decimal("1e-50")
LARGEST_M = 10**15
SMALLEST_GAMMA = 1e-7  # below it the sample would exceed LARGEST_M


class SampleSize(NamedTuple):
    """How to sample: m pairs, the k-th smallest sensitivity, with (m, k, ρ, γ) as in [S, Theorem 15]."""

    m: int
    k: int
    rho: float
    gamma: float


def sample_size(*, gamma: Number | None = None, m: int | None = None) -> SampleSize:
    """Choose (m, k, ρ, γ) by one of the three operating points of [S, Table 1].

    =========  ==============  ================================================
    given      optimised       ρ
    =========  ==============  ================================================
    γ          least m         exp(W₋₁(−γ/(2√e)) + 1/2)       (Corollary 20)
    m and γ    least k         exp(W₋₁(−1/(4m))/2)            (Corollary 21)
    m          least γ         exp(W₋₁(−1/(4m))/2)            (Corollary 22)
    =========  ==============  ================================================

    Parameters
    ----------
    gamma
        γ in (0, 1), the share of pairs without a promise.
    m
        Number of pairs to sample.

    Raises
    ------
    ValueError
        If neither is given, one is out of range, or γ is too small for m; the message names the
        smallest γ that m reaches.

    Examples
    --------
    >>> sample_size(gamma=0.05)
    SampleSize(m=1305, k=1305, rho=0.004182869932698051, gamma=0.05)
    >>> sample_size(m=1500)
    SampleSize(m=1500, k=1500, rho=0.0038736827447679984, gamma=0.0468990613439255)
    >>> sample_size(gamma=0.01, m=1500)
    Traceback (most recent call last):
    ...
    ValueError: gamma must be at least 0.0468990613439255 for m = 1500, got 0.01: sample more pairs (m = 41971), or
    accept a larger gamma
    """
    if gamma is None and m is None:
        checks.fail("gamma, m", None, "given, at least one of them")
    if m is None:
        exact = _exact_gamma(gamma)
        rho = rho_of_gamma(float(exact))
        effort = _smallest_m(exact, rho)
        return SampleSize(effort, order_statistic(exact, rho, effort), rho, float(exact))
    rho, smallest = smallest_gamma(m)
    if gamma is None:
        return SampleSize(int(m), int(m), rho, float(smallest))
    exact = _exact_gamma(gamma)
    if exact < smallest:
        needed = sample_size(gamma=exact).m
        checks.fail(
            "gamma",
            float(exact),
            f"at least {float(smallest)} for m = {m}",
            f"sample more pairs (m = {needed}), or accept a larger gamma",
        )
    return SampleSize(int(m), order_statistic(exact, rho, int(m)), rho, float(exact))


def rho_of_gamma(gamma: float) -> float:
    """Compute the ρ that needs the fewest samples for γ: exp(W₋₁(−γ/(2√e)) + 1/2) [S, Corollary 20]."""
    return math.exp(_lambert(-gamma / (2.0 * math.exp(0.5))) + 0.5)


def rho_of_m(m: int) -> float:
    """Compute the ρ with the smallest k, or γ, for m samples: exp(W₋₁(−1/(4m))/2) [S, Corollaries 21 and 22]."""
    return math.exp(0.5 * _lambert(-0.25 / m))


def smallest_gamma(m: int) -> tuple[float, Fraction]:
    """Compute ρ and the smallest γ that m samples reach, ρ + √(log(1/ρ)/(2m)), rounded up to 15 digits.

    Examples
    --------
    >>> rho, gamma = smallest_gamma(100)
    >>> round(rho, 6), float(gamma)
    (0.017589, 0.159724174610471)
    """
    checks.integer_at_least(2, m=m, advice="with fewer pairs no gamma below 1 is reached")
    if m > LARGEST_M:
        checks.fail("m", m, f"at most {LARGEST_M}", "so many pairs cannot be sampled")
    rho = rho_of_m(int(m))
    bound = WORK.multiply(WORK.add(Decimal(rho), _deviation(rho, int(m))), MARGIN)
    return rho, Fraction(Context(prec=15, rounding=ROUND_UP).plus(bound))


def order_statistic(gamma: Fraction, rho: float, m: int) -> int:
    """Compute the smallest k that inequality (2) of the module's page allows, never rounded down."""
    share = WORK.add(WORK.add(_decimal(1 - gamma), Decimal(rho)), _deviation(rho, m))
    # at the smallest gamma for m the right-hand side is m itself; the margin must not lift it to m + 1
    return min(m, _ceiling(WORK.multiply(Decimal(m), share)))


def effort_bounds(gamma: float) -> tuple[float, float]:
    """Bound the least m for γ on both sides by the bounds of Chatzigeorgiou on W₋₁ [S, Corollary 16].

    At the optimum γ = ρ(1 + 2L) with L = log(1/ρ), so that m = (1 + 2L)²/(8 L γ²), increasing in L ≥ 1/2, and

        1/2 + √(2u) + 2u/3 < L < 1/2 + √(2u) + u,          u = log(2/γ) − 1/2.

    So m·γ²/log(1/γ) falls to 1/2: the rate is Θ(γ⁻² log(1/γ)), where the paper writes a small o.

    Examples
    --------
    >>> low, high = effort_bounds(0.05)
    >>> low < sample_size(gamma=0.05).m < high
    True
    """
    checks.open_probability(gamma=gamma)
    u = math.log(2.0 / gamma) - 0.5
    low, high = (0.5 + math.sqrt(2.0 * u) + part * u for part in (2.0 / 3.0, 1.0))
    first, last = ((1.0 + 2.0 * exponent) ** 2 / (8.0 * exponent * gamma**2) for exponent in (low, high))
    return first, last + 1.0


def effort_curve(gammas: ArrayLike) -> NDArray[np.int64]:
    """Compute the least m for each γ [S, Figure 2]."""
    return np.array([sample_size(gamma=float(gamma)).m for gamma in np.ravel(gammas)], dtype=np.int64)


def index_curve(m: int, gammas: ArrayLike) -> NDArray[np.float64]:
    """Compute k/m for each γ at m samples, NaN where m does not reach that γ [S, Figure 3]."""
    _, smallest = smallest_gamma(m)
    asked = [float(gamma) for gamma in np.ravel(gammas)]
    return np.array(
        [sample_size(gamma=g, m=m).k / m if exact_number("gamma", g) >= smallest else np.nan for g in asked]
    )


def _exact_gamma(gamma: Number | None) -> Fraction:
    exact = exact_number("gamma", gamma)  # type: ignore[arg-type]  # None is refused there
    if not 0 < exact < 1:
        checks.fail("gamma", gamma, "in (0, 1)")
    if exact < Fraction(SMALLEST_GAMMA):
        checks.fail("gamma", gamma, f"at least {SMALLEST_GAMMA}", "a smaller one needs more pairs than can be sampled")
    return exact


def _smallest_m(gamma: Fraction, rho: float) -> int:
    gap = WORK.subtract(_decimal(gamma), Decimal(rho))
    return _ceiling(WORK.divide(_log_inverse(rho), WORK.multiply(Decimal(2), WORK.multiply(gap, gap))))


def _deviation(rho: float, m: int) -> Decimal:
    return WORK.sqrt(WORK.divide(_log_inverse(rho), Decimal(2 * m)))


def _log_inverse(rho: float) -> Decimal:
    return -WORK.ln(Decimal(rho))


def _decimal(value: Fraction) -> Decimal:
    return WORK.divide(Decimal(value.numerator), Decimal(value.denominator))


def _ceiling(value: Decimal) -> int:
    return int(WORK.multiply(value, MARGIN).to_integral_value(rounding=ROUND_CEILING))


def _lambert(x: float) -> float:
    return float(lambertw(x, -1).real)
