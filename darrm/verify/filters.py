"""Compose queries by Rényi divergences: totals of fixed kinds, and a filter for kinds chosen on the way.

A *cost* holds the proved guarantees of one query, (ε, δ), points of its profile, a Rényi curve, or several of them, and
the number of queries. Balls of `flint` enclose every number, and their safe ends are compared.

**Fixed kinds.** ρ in all at the order α > 1 gives (ε, δ) with ε = ρ + c(α) [CKS20, Proposition 12],

    c(α) = log(1 − 1/α) − (log r + log α)/(α − 1)        at r = δ.

**Kinds chosen on the way.** A budget (ε, δ) fixes d, the share for the queries' own δ_i, r = δ − d, and one
order α. If every course of answers ends with Σε_i ≤ ε and Σδ_i ≤ d, or with Σρ_i ≤ ε − c(α), all answers are (ε, δ)-
private, for any α > 1 that the budget fixes: docs/theory/composition.md proves it. ρ_i
is the least of

1. the chord of (α − 1)·ρ(α), which is convex, between the orders of the curve; before the first ρ is no larger,
2. if Σδ_i ≤ d or δ_i = 0, log((e^{αε_i} + e^{(1−α)ε_i})/(1 + e^{ε_i}))/(α − 1) of randomized response [M17, Proposition
   6],
3. as in 2, the divergence with likelihood ratios cut off at c = e^{ε_i}: log(1 + α(α − 1)·I)/(α − 1), where
   I = ∫_1^∞ u^{−α−1}·H(u) du + ∫_1^c u^{α−2}·H(u) du, H the line through the points of the profile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import exp, inf, log, log1p

from flint import arb, ctx

from darrm.verify.formats import Charge
from darrm.verify.numbers import Point, ball, conversion, upper_end

_BITS = 192
_LEAST, _BISECTIONS = 2.0**-20, 80  # of α − 1: an order nearer 1 belongs to an ε without protection
Curve = Sequence[tuple[Fraction, Fraction]]  # (α, ρ), increasing


@dataclass(frozen=True)
class Cost:
    """Proved guarantees of a query, and the number of queries."""

    count: int = 1
    guarantee: Point | None = None
    profile: Sequence[Point] = ()
    curve: Curve = ()


def costs_of(charges: Sequence[Charge]) -> list[Cost]:
    """Read the numbers of charges, without proof."""
    return [
        Cost(
            charge.count,
            charge.guarantee,
            charge.points(),
            [
                (Fraction(order), Fraction(value))
                for order, value in zip(charge.orders, charge.divergences, strict=True)
                if value < inf
            ],
        )
        for charge in charges
    ]


def renyi_epsilon(costs: Sequence[Cost], delta: Fraction) -> Fraction | None:
    """Bound the ε of fixed kinds at one δ > 0, at the best order of their curves; None if one has no curve.

    A hundred answers under a Gaussian of sensitivity 1 and standard deviation 10:

    >>> curve = [(Fraction(order), Fraction(order, 200)) for order in range(2, 20)]
    >>> round(float(renyi_epsilon([Cost(100, curve=curve)], Fraction(1, 10**5))), 3)
    4.753
    """
    with ctx.workprec(_BITS):
        found = []
        for order in sorted({order for cost in costs for order, _ in cost.curve}):
            used = _used(costs, order, confessing=False, curves_only=True)
            if used is not None:
                found.append(max(Fraction(0), upper_end(used + conversion(order, delta))))
    return min(found, default=None)


def filter_admits(costs: Sequence[Cost], epsilon: Fraction, delta: Fraction, set_aside: Fraction) -> bool:
    """Prove that a budget (ε, δ) admits queries whose kinds were chosen on the way, δ·``set_aside`` for their own δ.

    A hundred queries of ε = 0.1:

    >>> hundred = [Cost(100, guarantee=(Fraction(1, 10), Fraction(0)))]
    >>> [filter_admits(hundred, Fraction(epsilon), Fraction(1, 100), Fraction(1, 2)) for epsilon in ("2.97", "2.98")]
    [False, True]
    """
    aside = delta * set_aside
    pairs = [(cost.guarantee, cost.count) for cost in costs if cost.guarantee is not None]
    confessing = sum((own[1] * count for own, count in pairs), Fraction(0)) <= aside
    if confessing and len(pairs) == len(costs) and sum(own[0] * count for own, count in pairs) <= epsilon:
        return True
    if delta <= aside or epsilon <= 0:
        return not costs
    with ctx.workprec(_BITS):
        order = filter_order(epsilon, delta - aside)
        used = _used(costs, order, confessing=confessing)
        return used is not None and bool(used + conversion(order, delta - aside) <= ball(epsilon))


def filter_order(epsilon: Fraction, rest: Fraction) -> Fraction:
    """Return the order of a budget: next to where ε = c(α) + α·(log(1/r) − log α)/(α − 1)²."""
    log_rest = -log(rest)

    def falls_short(above: float) -> bool:
        order = 1.0 + above
        converted = log(above) - log1p(above) + (log_rest - log1p(above)) / above
        return converted + order * (log_rest - log1p(above)) / above**2 < epsilon

    low, high = log(_LEAST), max(log(_LEAST), log(1.0 / rest - 1.0)) if rest < 1 else log(_LEAST)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if falls_short(exp(middle)) else (middle, high)
    return 1 + Fraction(exp(low))


def _used(costs: Sequence[Cost], order: Fraction, *, confessing: bool, curves_only: bool = False) -> arb | None:
    total = arb(0)
    for cost in costs:
        bounds = [_of_curve(cost.curve, order)]
        if cost.guarantee is not None and not curves_only and (confessing or cost.guarantee[1] == 0):
            bounds.append(_of_response(cost.guarantee[0], order))
            if cost.profile:
                bounds.append(_of_cut(cost.profile, cost.guarantee[0], order))
        ends = [upper_end(bound) for bound in bounds if bound is not None and bound.is_finite()]
        if not ends:
            return None
        total += cost.count * ball(max(Fraction(0), min(ends)))
    return total


def _of_curve(curve: Curve, order: Fraction) -> arb | None:
    if not curve or order > curve[-1][0]:
        return None
    if order <= curve[0][0]:
        return ball(curve[0][1])
    (first, low), (last, high) = next(pair for pair in pairwise(curve) if order <= pair[1][0])
    below, above = (first - 1) * low, (last - 1) * high
    return ball((below + (above - below) * (order - first) / (last - first)) / (order - 1))


def _of_response(epsilon: Fraction, order: Fraction) -> arb:
    alpha, x = ball(order), ball(epsilon)
    return (((alpha * x).exp() + ((1 - alpha) * x).exp()) / (1 + x.exp())).log() / (alpha - 1)


def _of_cut(profile: Sequence[Point], epsilon: Fraction, order: Fraction) -> arb:
    points = sorted(profile)
    growth, delta = ball(points[0][0]).exp(), ball(points[0][1])
    if points[0][0] > 0:
        points = [(Fraction(0), upper_end((growth - 1 + 2 * delta) / (growth + 1))), *points]
    last, bottom = points[-1]
    alpha, end = ball(order), ball(last).exp()
    integral = ball(bottom) * end**-alpha / alpha
    for first, second in pairwise(points):
        integral += _under_chord(first, second, second[0], -alpha)
        if first[0] < epsilon:
            integral += _under_chord(first, second, min(epsilon, second[0]), alpha - 1)
    if epsilon > last:
        integral += ball(bottom) * (ball(epsilon).exp() ** (alpha - 1) - end ** (alpha - 1)) / (alpha - 1)
    return (1 + alpha * (alpha - 1) * integral).log() / (alpha - 1)


def _under_chord(first: Point, second: Point, until: Fraction, power: arb) -> arb:
    """Enclose ∫ u^{power − 1}·H(u) du from a point of the profile to e^until, along the chord to the next."""
    start, end, stop = (ball(epsilon).exp() for epsilon in (first[0], second[0], until))
    slope = (ball(second[1]) - ball(first[1])) / (end - start)
    base = ball(first[1]) - slope * start
    constant = base * (stop**power - start**power) / power
    return constant + slope * (stop ** (power + 1) - start ** (power + 1)) / (power + 1)
