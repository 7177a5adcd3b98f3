"""Composition of (ε, δ) guarantees over k queries: simple, general and optimal.

Every function returns a guarantee that holds: where floating point enters, the result is rounded up by a bound on the
error, never down. Adaptivity: the queries may depend on earlier answers, the pair (ε, δ) of each query may not.

=================  ==========================  ===============================================================
here               source                      statement
=================  ==========================  ===============================================================
compose_simple     [D, Theorem 2.2]            (kε, kδ), exact fractions
compose_general    [D, Theorem 2.3]            [KOV15, Theorem 3.4], closed form with a slack δ′
compose_optimal    [KOV15, Theorem 3.3]        the smallest ε at a given δ that holds for all (ε, δ) mechanisms
=================  ==========================  ===============================================================
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from darrm import checks
from darrm.losses.loss_distribution import LossDistribution
from darrm.privacy import PrivacyParams

# a guarantee and how many queries have it
Group = tuple[PrivacyParams, int]

# relative room for the few rounded operations of a closed form: each is below 2^-52, and fewer than 100 of them follow
# one another
_ROUNDING = 100 * 2.0**-52


def compose_simple(params: PrivacyParams, k: int) -> PrivacyParams:
    """Add the guarantees of k queries: (kε, kδ) [D, Theorem 2.2].

    `ValueError` if k is no positive integer, or kδ reaches 1, where nothing is promised any more.

    >>> compose_simple(PrivacyParams(0.1, 1e-5), 3)
    PrivacyParams(epsilon=0.3, delta=0.00003)
    """
    _check(params, k)
    delta = int(k) * params.exact_delta
    if delta >= 1:
        checks.fail("k", k, f"below 1/delta = {1.0 / params.delta:g}", "the composed delta would reach 1")
    return PrivacyParams(int(k) * params.exact_epsilon, delta)


def compose_general(params: PrivacyParams, k: int, delta_prime: float) -> PrivacyParams:
    """Compose k queries by the closed form with a slack δ′ [D, Theorem 2.3], [KOV15, Theorem 3.4].

    ε_k = min{kε, A + ε√(2k log(e + √(kε²)/δ′)), A + ε√(2k log(1/δ′))} with A = kε(e^ε − 1)/(e^ε + 1), and
    δ_k = 1 − (1 − δ)^k (1 − δ′).

    Parameters
    ----------
    params
        What one query satisfies.
    k
        Number of queries, at least 1.
    delta_prime
        The slack δ′ in (0, 1).

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    Examples
    --------
    The last row of the first block of [D, Table 2]:

    >>> total = compose_general(PrivacyParams(0.2676, 0.0003), 100, delta_prime=1e-4)
    >>> f"({total.epsilon:.3f}, {total.delta:.3f})"
    '(15.044, 0.030)'
    """
    _check(params, k)
    checks.open_probability(delta_prime=delta_prime)
    epsilon = general_epsilon([(params, int(k))], delta_prime)
    delta = -math.expm1(int(k) * math.log1p(-params.delta) + math.log1p(-delta_prime))
    return PrivacyParams(epsilon, min(delta * (1.0 + _ROUNDING), math.nextafter(1.0, 0.0)))


def compose_optimal(params: PrivacyParams, k: int, delta: float) -> PrivacyParams:
    """Find the smallest ε at which k queries are (ε, δ)-private whatever the mechanisms [KOV15, Theorem 3.3].

    δ_k(ε_k) = 1 − (1 − δ)^k (1 − Σ_l C(k, l) max(0, e^{lε} − e^{ε_k + (k−l)ε})/(1 + e^ε)^k), inverted by bisection in
    log space and rounded up by a bound on the rounding; no mechanism-independent bound is smaller.

    Parameters
    ----------
    params
        What one query satisfies.
    k
        Number of queries, at least 1; 10⁵ take about a second.
    delta
        The total δ, at least 1 − (1 − δ_query)^k.

    Raises
    ------
    ValueError
        If an argument lies outside its range, or ``delta`` is smaller than what k queries fail with anyway.

    Examples
    --------
    >>> query = PrivacyParams(0.2676, 0.0003)
    >>> [round(compose_optimal(query, k, compose_general(query, k, 1e-4).delta).epsilon, 3) for k in (20, 50, 100)]
    [4.268, 7.946, 12.597]
    """
    _check(params, k)
    checks.probability_below_one(delta=delta)
    epsilon = optimal_epsilon([(params, int(k))], delta)
    if math.isinf(epsilon):
        least = -math.expm1(int(k) * math.log1p(-params.delta))
        checks.fail("delta", delta, f"above 1 - (1 - {params.delta:g})^{k} = {least:.6g}", "allow a larger delta")
    return PrivacyParams(epsilon, delta)


def _check(params: PrivacyParams, k: int) -> None:
    checks.instance(PrivacyParams, params=params, advice="say PrivacyParams(epsilon, delta)")
    checks.integer_at_least(1, k=k)


def general_epsilon(groups: Sequence[Group], delta_prime: float) -> float:
    """Compute the ε of the general form for queries of several kinds [KOV15, Theorem 3.5], rounded up.

    With E = Σε_i, V = Σε_i² and A = Σε_i(e^{ε_i} − 1)/(e^{ε_i} + 1):
    min{E, A + √(2V log(e + √V/δ′)), A + √(2V log(1/δ′))}.
    """
    total, squares = _sums(groups)
    drift = sum(count * params.epsilon * math.tanh(params.epsilon / 2.0) for params, count in groups)
    spread = min(math.log(math.e + math.sqrt(squares) / delta_prime), -math.log(delta_prime))
    epsilon = min(total, drift + math.sqrt(2.0 * squares * spread))
    return epsilon * (1.0 + _ROUNDING)


def filter_epsilon(groups: Sequence[Group], delta_prime: float) -> float:
    """Compute the ε that holds even if each query's (ε_i, δ_i) was chosen after the earlier answers, rounded up.

    min{Σε_i, ½Σε_i² + √(2 Σε_i² log(1/δ′))}, at a total δ of δ′ + Σδ_i; the stopping rule must be fixed beforehand
    [WRRW23, Theorem 1].
    """
    total, squares = _sums(groups)
    epsilon = min(total, 0.5 * squares + math.sqrt(-2.0 * squares * math.log(delta_prime)))
    return epsilon * (1.0 + _ROUNDING)


def _sums(groups: Sequence[Group]) -> tuple[float, float]:
    total = sum(count * params.epsilon for params, count in groups)
    return total, sum(count * params.epsilon**2 for params, count in groups)


def optimal_epsilon(groups: Sequence[Group], delta: float, *, to_beat: float = math.inf) -> float:
    """Find the optimal ε for queries of several kinds, ∞ where none exists [MV16, Theorem 1.5], rounded up.

    One above ``to_beat`` is not looked for: then more than it is returned.

    The mechanism that is hardest to compose is randomized response that confesses with probability δ_i, so the total
    privacy loss has at most Π(k_i + 1) values and the sum over them is exact.
    """
    simple = sum((count * params.exact_epsilon for params, count in groups), Fraction(0))
    simple_delta = sum((count * params.exact_delta for params, count in groups), Fraction(0))
    top = round_up(simple)
    log_room = log_remaining_delta(groups, delta)
    if log_room == -math.inf:
        return top if simple_delta <= Fraction(delta) else math.inf
    losses = LossDistribution.of_groups([(params.epsilon, count) for params, count in groups])
    return min(top, losses.smallest_epsilon(log_room, to_beat=to_beat))


def log_remaining_delta(groups: Sequence[Group], delta: float) -> float:
    """Compute log(1 − (1 − δ)/Π(1 − δ_i)^{k_i}), what δ leaves for the sum, rounded down; −∞ for nothing."""
    spent = sum(count * math.log1p(-params.delta) for params, count in groups)
    allowed = math.log1p(-delta)
    exponent = allowed - spent
    exponent += _ROUNDING * (abs(allowed) + abs(spent))
    if exponent >= 0.0:
        return -math.inf
    return math.log(-math.expm1(exponent) * (1.0 - _ROUNDING))


def round_up(value: Fraction) -> float:
    """Return the float nearest to ``value`` or the next one above it, which is at least ``value``."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)
