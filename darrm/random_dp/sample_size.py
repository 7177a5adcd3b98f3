"""Number of sampled pairs, and order statistic of their sensitivities [S, Theorem 15, Table 1].

A run samples m pairs of neighboring data sets, and takes the k-th smallest sensitivity Δ̂. γ is the share of pairs
without a guarantee; ρ, a part of it, is the probability of a misleading sample. Theorem 15 requires

    m ≥ log(1/ρ) / (2 (γ − ρ)²)                                                            (1)
    k ≥ m (1 − γ + ρ + √(log(1/ρ) / (2m)))                                                 (2)

with 0 < ρ < min(γ, 1/2). Every such ρ is valid, so a float from `scipy.special.lambertw` is safe. m and k are rounded
upwards, with 60-digit decimals of the exact γ and ρ.

A smaller sample has the same guarantee. Theorem 15 bounds a probability over the pair AND the sample:
Pr(G ≤ Δ̂) ≥ 1 − γ, G the sensitivity on a new pair. All m + 1 sensitivities are independent draws from one law, so each
rank of G is equally likely (ties only help), and

    Pr(G ≤ G_(k)) ≥ k / (m + 1).

So k ≥ (1 − γ)(m + 1) is enough: at γ = 0.05, m = 19 pairs instead of 1,305. This argument of conformal prediction is
not in [S]. It holds on average over samples: a small one may be unlucky. By Theorem 15, with probability at least 1 − ρ
over the samples, Δ̂ covers a share 1 − γ + ρ of the pairs. To reuse one Δ̂ for years, prefer Theorem 15.
"""

import math
from decimal import ROUND_CEILING, ROUND_UP, Context, Decimal, localcontext
from fractions import Fraction
from typing import NamedTuple

from scipy.special import lambertw

from darrm.privacy import Number, exact_number
from darrm.util import checks

_CONTEXT = Context(prec=60)
_MARGIN = 1 + Decimal("1e-50")  # covers errors in the last two or three of sixty digits
_MAX_M = 10**15
_MIN_GAMMA = 1e-7  # below it the sample would exceed the largest m


class SampleSize(NamedTuple):
    """Sample m pairs and take the k-th smallest sensitivity; (m, k, ρ, γ) as in [S, Theorem 15]."""

    m: int
    k: int
    rho: float
    gamma: float


def sample_size(*, gamma: Number | None = None, m: int | None = None) -> SampleSize:
    """Choose (m, k, ρ, γ) by one of the three operating points of [S, Table 1].

    =========  ==============  ================================================
    given      optimized       ρ
    =========  ==============  ================================================
    γ          least m         exp(W₋₁(−γ/(2√e)) + 1/2)       (Corollary 20)
    m and γ    least k         exp(W₋₁(−1/(4m))/2)            (Corollary 21)
    m          least γ         exp(W₋₁(−1/(4m))/2)            (Corollary 22)
    =========  ==============  ================================================

    `ValueError` if both are missing, γ is not in (0, 1), or γ is too small for m.

    >>> sample_size(gamma=0.05)
    SampleSize(m=1305, k=1305, rho=0.004182869932698051, gamma=0.05)
    >>> sample_size(m=1500)
    SampleSize(m=1500, k=1500, rho=0.0038736827447679984, gamma=0.0468990613439255)
    """
    if gamma is None and m is None:
        checks.fail("gamma, m", None, "given, at least one of them")
    if m is None:
        exact_gamma = _exact_gamma(gamma, _MIN_GAMMA)
        rho = math.exp(lambertw(-float(exact_gamma) / (2.0 * math.exp(0.5)), -1).real + 0.5)
        with localcontext(_CONTEXT):
            gap = _to_decimal(exact_gamma) - Decimal(rho)
            pairs = _round_up(-Decimal(rho).ln() / (2 * (gap * gap)))
        return SampleSize(pairs, order_statistic(exact_gamma, rho, pairs), rho, float(exact_gamma))
    rho, min_gamma = smallest_gamma(m)
    if gamma is None:
        return SampleSize(int(m), int(m), rho, float(min_gamma))
    exact_gamma = _exact_gamma(gamma, _MIN_GAMMA)
    if exact_gamma < min_gamma:
        needed_pairs = sample_size(gamma=exact_gamma).m
        advice = f"sample more pairs (m = {needed_pairs}), or accept a larger gamma"
        checks.fail("gamma", float(exact_gamma), f"at least {float(min_gamma)} for m = {m}", advice)
    return SampleSize(int(m), order_statistic(exact_gamma, rho, int(m)), rho, float(exact_gamma))


def smallest_gamma(m: int) -> tuple[float, Fraction]:
    """Compute ρ and the smallest γ for m samples, ρ + √(log(1/ρ)/(2m)), rounded up to 15 digits."""
    checks.integer_at_least(2, m=m, advice="with fewer pairs no gamma below 1 is reached")
    if m > _MAX_M:
        checks.fail("m", m, f"at most {_MAX_M}", "more pairs cannot be sampled")
    rho = math.exp(0.5 * lambertw(-0.25 / m, -1).real)
    with localcontext(_CONTEXT):
        bound = (Decimal(rho) + _compute_deviation(rho, int(m))) * _MARGIN
    return rho, Fraction(Context(prec=15, rounding=ROUND_UP).plus(bound))


def order_statistic(gamma: Fraction, rho: float, m: int) -> int:
    """Compute the smallest k of inequality (2), rounded up."""
    with localcontext(_CONTEXT):
        # at the smallest gamma for m the right-hand side is m itself; the margin must not lift it to m + 1
        return min(m, _round_up(m * (_to_decimal(1 - gamma) + Decimal(rho) + _compute_deviation(rho, m))))


def exchangeable_sample_size(*, gamma: Number | None = None, m: int | None = None) -> SampleSize:
    """Choose the smallest m or k by exchangeability: k = ⌈(1 − γ)(m + 1)⌉ ≤ m.

    Without γ it is 1/(m + 1); without m it is ⌈1/γ⌉ − 1. ρ is 0: no part of γ is reserved for a misleading sample.
    `ValueError` if both are missing, or γ is below 1/(m + 1).

    >>> exchangeable_sample_size(gamma=0.05)
    SampleSize(m=19, k=19, rho=0.0, gamma=0.05)
    """
    if m is not None:
        checks.integer_at_least(1, most=_MAX_M, m=m)
    if gamma is None:
        if m is None:
            checks.fail("gamma, m", None, "given, at least one of them")
        # a float slightly above 1/(m + 1), so that its decimal form is not below
        return SampleSize(int(m), int(m), 0.0, math.nextafter(math.nextafter(1.0 / (m + 1), 1.0), 1.0))
    exact_gamma = _exact_gamma(gamma)
    pairs = max(1, math.ceil(1 / exact_gamma) - 1) if m is None else int(m)
    if exact_gamma * (pairs + 1) < 1:
        advice = f"sample more pairs (m = {math.ceil(1 / exact_gamma) - 1}), or accept a larger gamma"
        checks.fail(
            "gamma", float(exact_gamma), f"at least 1/(m + 1) = {1.0 / (pairs + 1):.6g} for m = {pairs}", advice
        )
    return SampleSize(pairs, max(1, math.ceil((1 - exact_gamma) * (pairs + 1))), 0.0, float(exact_gamma))


def _exact_gamma(gamma: Number | None, smallest: float = 0.0) -> Fraction:
    exact_gamma = exact_number("gamma", gamma)  # type: ignore[arg-type]  # None is refused there
    if not 0 < exact_gamma < 1:
        checks.fail("gamma", gamma, "in (0, 1)")
    if exact_gamma < Fraction(smallest):
        checks.fail("gamma", gamma, f"at least {smallest}", "a smaller one needs more pairs than can be sampled")
    return exact_gamma


def _compute_deviation(rho: float, m: int) -> Decimal:
    """Return √(log(1/ρ)/(2m)) in the caller's decimal context."""
    return (-Decimal(rho).ln() / (2 * m)).sqrt()


def _to_decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / value.denominator


def _round_up(value: Decimal) -> int:
    return int((value * _MARGIN).to_integral_value(rounding=ROUND_CEILING))
