"""The total cost of queries whose kinds were chosen after earlier answers: sums, and a Rényi filter.

If costs are chosen on the way, a *filter* ends a course of answers: sums over its queries stay within limits that ε and
δ alone determine. A share d of δ is set aside for the queries' own δ_i; r = δ − d is the rest.

==========  =========================================================================================================
here        meaning
==========  =========================================================================================================
α           the order, which ε and r determine: see below
c(α)        log(1 − 1/α) − (log r + log α)/(α − 1): what turns a divergence into ε [CKS20, Proposition 12]
ρ_i         bounds the Rényi divergence of order α of query i: by its curve or, if Σδ_i ≤ d, that of the rest after
            likelihood ratios are cut off at e^{ε_i}: by randomized response, or by the query's profile
==========  =========================================================================================================

**Theorem.** Let every course of answers, however the next query is chosen, end with (i) Σε_i ≤ ε and Σδ_i ≤ d, or (ii)
Σρ_i ≤ ε − c(α). Then all answers together are (ε, δ)-private.

*Proof.* Let a query *fail* with the mass by which its law p under P exceeds e^{ε_i} times its law q under P', at most
δ_i; the rest is p ∧ e^{ε_i}·q. Consider the queries until the sum of the δ_i first passes d. One of them fails with
probability at most d, because their δ_i add up to no more on any course. Let x be the product of the likelihood ratios
of a course, cut off at e^{ε_i} for queries that may fail and whose ρ_i bounds the rest. Given the past, the mean of
x_i^{α−1} under P without a failure is at most e^{(α−1)ρ_i}, so x^{α−1}·e^{−(α−1)Σρ_i} is a supermartingale [FZ21], and
over courses that end by (ii) the mean of x^{α−1} is at most e^{(α−1)(ε−c(α))}. As max(0, 1 − e^ε/x) is at most
x^{α−1}·e^{−(α−1)ε}·(1 − 1/α)^{α−1}/α, they add at most r to P(S) − e^ε·P'(S). Courses that end by (i) have, without a
failure, x ≤ e^ε, and add nothing. The sum is at most d + r = δ. ∎ `tests/account/test_filters.py` searches the best
strategy of an adversary.

**The rest after the cut.** e^{(α−1)ρ_i} is to bound E[min(x, c)^α] for x = p/q under q and c = e^{ε_i}. No pair of
(ε_i, δ_i)-close laws has more than randomized response that fails [KOV15]. And x^α, from c on its tangent, is
α(α − 1)∫_0^c t^{α−2}·(x − t)_+ dt, at least min(x, c)^α. So with the profile H(t) = sup E[(x − t)_+] of all neighbors,
which is 1 − t + t·H(1/t) at most for t < 1,

    E[min(x, c)^α] ≤ 1 + α(α − 1)·(∫_1^∞ u^{−α−1}·H(u) du + ∫_1^c u^{α−2}·H(u) du),

chord by chord of the profile, in closed form.

**Strings that vanish.** A query of open answers fails where its label is a string that only one of two data sets
contains, a mass of at most v (`darrm.noisy_max.noisy_maximum`): the rest is (1 − v)·N of P, P' ≥ (1 − v)·N', and N over
N' bounds the likelihood ratio. So v adds to its δ_i, and nothing bounds the query unless it may fail.

**The order.** Of queries with ρ_i = ρ·α most are admitted where (ε − c(α))/α is largest: where

    ε = c(α) + α·(log(1/r) − log α)/(α − 1)²,

whose second term is then the limit of Σρ_i. Both fall as α grows, so a larger ε has a smaller order and a larger limit,
and larger budgets admit all that smaller ones admit: the privacy loss is the smallest ε that admits an account. The
filter of [WRRW23, Theorem 1], ½Σε_i² + √(2Σε_i²·log(1/r)), is no smaller: it has ρ_i = ½ε_i²·α, converted by [M17].
"""

import math
from fractions import Fraction

import numpy as np

from darrm.account.bounds import Account, Bound, exact_sum, simple_bound
from darrm.loss.composition import round_up
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.numerics.bisection import bisect_safe
from darrm.privacy import PrivacyParams

HALF = Fraction(1, 2)
_MIN_LOG_ORDER = -20.0 * math.log(2.0)  # of log(α − 1): an order so near 1 belongs to an ε without any protection
_ROUNDING = 1e-12  # relative: some hundred rounded operations


def filter_bound(account: Account, delta: float, set_aside: Fraction = HALF) -> Bound | None:
    """Bound the account even if each query was chosen after the earlier answers; ``set_aside`` is d/δ.

    None if the δ_i exceed d and a query has no Rényi curve.
    """
    whole = PrivacyParams(0, delta).exact_delta
    aside, total = set_aside * whole, exact_sum(account)
    if aside == whole:
        return simple_bound(account, delta)
    guaranteed = sum(cost.count * cost.guarantee.exact_delta for cost in account if cost.guarantee is not None)
    failing_delta = guaranteed + sum(cost.count * Fraction(cost.vanishing) for cost in account)
    order, epsilon = _find_smallest_epsilon(account, float(whole - aside), confessing=failing_delta <= aside)
    explanation = f"a Rényi filter of order {order:.3g}"
    if total is not None and failing_delta <= aside and round_up(total[0]) <= epsilon:
        epsilon, explanation = round_up(total[0]), "the epsilons add up"
    if math.isinf(epsilon):
        return None
    return Bound("filter", epsilon, f"{explanation}: holds even if the kinds of queries were chosen after answers")


def _find_smallest_epsilon(account: Account, remaining_delta: float, *, confessing: bool) -> tuple[float, float]:
    log_inverse = -math.log(remaining_delta)

    def fits(log_order: float) -> bool:
        order = 1.0 + math.exp(log_order)
        total = math.fsum(cost.count * _bound_divergence(cost, order, confessing=confessing) for cost in account)
        return total * (1.0 + _ROUNDING) <= _compute_limit(log_order, log_inverse)

    if not fits(_MIN_LOG_ORDER):
        return math.inf, math.inf
    max_log_order = max(math.log(1.0 / remaining_delta - 1.0), _MIN_LOG_ORDER + 1.0)
    log_order = bisect_safe(fits, inside=_MIN_LOG_ORDER, outside=max_log_order, steps=60)
    # the ε whose filter has this order
    order = 1.0 + math.exp(log_order)
    c = math.log1p(-1.0 / order) + (log_inverse - math.log(order)) / math.exp(log_order)
    epsilon = c + _compute_limit(log_order, log_inverse)
    return order, max(0.0, epsilon) * (1.0 + _ROUNDING) + _ROUNDING


def _bound_divergence(cost: PrivacyCost, order: float, *, confessing: bool) -> float:
    bounds = [math.inf]
    if cost.vanishing and not confessing:
        return math.inf
    if cost.renyi is not None:
        value = cost.renyi.bound_at(order)
        bounds.append(math.inf if math.isnan(value) else value)
    if cost.guarantee is not None and (confessing or cost.guarantee.exact_delta == 0):
        bounds.append(float(RenyiCurve.from_pure(cost.guarantee.epsilon, [order]).values[0]))
        if cost.profile is not None:
            bounds.append(_bound_cut_divergence(cost.profile, cost.guarantee.epsilon, order))
    return min(bounds)


def _bound_cut_divergence(profile: PrivacyProfile, epsilon: float, order: float) -> float:
    """Bound the Rényi divergence of the rest after the cut at e^ε."""
    # a cut that lies further on leaves more: it is at a point of the profile, or beyond its last
    largest = profile.epsilons[-1]
    epsilons = np.array(
        [*profile.epsilons, *([max(epsilon, largest * (1.0 + 1e-9) + 1e-9)] if epsilon > largest else [])]
    )
    heights, u = profile.deltas_at(epsilons), np.exp(epsilons)
    slopes = np.diff(heights) / np.diff(u)
    bases, sizes = heights[:-1] - slopes * u[:-1], heights[:-1] - 2.0 * slopes * u[:-1]
    integral, rounding = float(heights[-1] * u[-1] ** -order / order), 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for power, until in ((-order, math.inf), (order - 1.0, epsilon)):
            inside = epsilons[:-1] < until  # the integral of (base + slope·u)·u^{power − 1}
            constant_part, linear_part = np.diff(u**power) / power, np.diff(u ** (power + 1.0)) / (power + 1.0)
            integral += float(np.sum((bases * constant_part + slopes * linear_part)[inside]))
            errors = (u[:-1] ** power + u[1:] ** power)[inside] * (1.0 / abs(power) + u[1:][inside] / abs(power + 1.0))
            rounding += float(np.sum(sizes[inside] * errors))
    # a power of a rounded number is off by as many units as its exponent
    integral += (order + 16.0) * 2.0**-52 * (rounding + abs(integral))
    moment = order * (order - 1.0) * integral
    return math.log1p(moment) * (1.0 + _ROUNDING) / (order - 1.0) if math.isfinite(moment) else math.inf


def _compute_limit(log_order: float, log_inverse: float) -> float:
    """Compute the limit of Σρ_i at the order 1 + e^place."""
    order = 1.0 + math.exp(log_order)
    return order * (log_inverse - math.log(order)) / math.exp(2.0 * log_order)
