"""Composition of (ε, δ) guarantees over k queries: simple, general and optimal.

Floating-point results are rounded up by a bound on the error. Queries may depend on earlier answers; their pairs (ε, δ)
may not.

=================  ==========================  ===============================================================
here               source                      statement
=================  ==========================  ===============================================================
compose_simple     [D, Theorem 2.2]            (kε, kδ), exact fractions
compose_general    [D, Theorem 2.3]            [KOV15, Theorem 3.4], closed form with a slack δ′
compose_optimal    [KOV15, Theorem 3.3]        the smallest ε at a given δ for all (ε, δ) mechanisms
=================  ==========================  ===============================================================

The optimal ε follows from the privacy loss of randomized responses, `LossDistribution`: k queries with ε each lose ε(2l
− k) with l ~ Binomial(k, e^ε/(1 + e^ε)); losses of several kinds add up independently. The hockey-stick divergence at ε
is Σ weight · max(0, 1 − e^{ε − loss}). Weights are logarithms, and every sum includes a bound on its rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from darrm.numerics.bisection import bisect_safe
from darrm.numerics.special import gammaln
from darrm.privacy import PrivacyPair, PrivacyParams
from darrm.util import checks

_UNIT = 2.0**-53  # relative error of one rounding
_MAX_ATOMS = 2**21  # 2 million atoms take 30 MB and about a second a bound
_NEGLIGIBLE_SHARE = 1e-12  # the share of δ for dropped atoms
_BISECTION_STEPS = 60  # the interval shrinks below the last place of its upper end
_ROUNDING = 100 * 2.0**-52  # relative, for a closed form with fewer than 100 operations of 2^-52 each
Group = tuple[PrivacyParams, int]  # a guarantee and how many queries have it


class TooManyKindsError(ValueError):
    """The exact loss distribution of the queries has too many values for the memory."""


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """Atoms of the total privacy loss, and bounds on their absolute errors."""

    losses: NDArray[np.float64]  # shape (n,), non-decreasing, in nats
    log_weights: NDArray[np.float64]  # shape (n,): log of the probability under the first of the two data sets
    weight_rounding: float
    loss_rounding: float

    @classmethod
    def from_groups(cls, groups: Sequence[tuple[float, int]]) -> LossDistribution:
        """Return the distribution of (ε, k) groups; `TooManyKindsError` above two million atoms."""
        if math.prod(count + 1 for _, count in groups) > _MAX_ATOMS:
            raise TooManyKindsError(f"the exact composition of {len(groups)} kinds of queries has too many terms")
        losses, log_weights = np.zeros(1), np.zeros(1)
        weight_rounding, largest_loss = 0.0, 0.0
        for epsilon, count in groups:
            ones = np.arange(count + 1, dtype=np.float64)
            log_normalizer = np.logaddexp(0.0, epsilon)
            log_factorials = gammaln(ones + 1.0)
            log_choose = log_factorials[-1] - log_factorials - log_factorials[::-1]
            group_weights = log_choose + ones * epsilon - count * log_normalizer
            losses = np.add.outer(losses, epsilon * (2.0 * ones - count)).ravel()
            log_weights = np.add.outer(log_weights, group_weights).ravel()
            # four rounded terms for each weight, each accurate to a few units in the last place
            weight_rounding += 16.0 * _UNIT * (3.0 * float(log_factorials[-1]) + 2.0 * count * log_normalizer + 1.0)
            largest_loss += epsilon * count
        order = np.argsort(losses, kind="stable")
        loss_rounding = 4.0 * (len(groups) + 1) * _UNIT * largest_loss
        return cls(losses[order], log_weights[order], weight_rounding, loss_rounding)

    def log_divergence(self, epsilon: float) -> float:
        """Bound log Σ weight · max(0, 1 − e^{ε − loss}) from above."""
        # an atom may be above ε if its rounded loss is at most this much below ε
        slack = self.loss_rounding + 4.0 * _UNIT * epsilon
        first = int(np.searchsorted(self.losses, epsilon - slack, side="left"))
        if first == self.losses.size:
            return -math.inf
        excess = np.maximum(self.losses[first:] - epsilon + slack, 0.0)
        with np.errstate(divide="ignore"):
            terms = self.log_weights[first:] + np.log(-np.expm1(-excess))
        top = float(np.max(terms))
        if top == -math.inf:
            return -math.inf
        total = top + math.log(float(np.sum(np.exp(terms - top))))
        # a term t errs by (2 + |t|)u, and e^{t − top} by 1 + top − t ≤ e^{top − t} units more, their sum by one unit
        # a term, and |top| ≤ |total| + log n: less than four units a term
        return total + self.weight_rounding + 4.0 * _UNIT * terms.size * (1.0 + abs(total))

    def smallest_epsilon(self, log_delta: float, *, to_beat: float = math.inf) -> float:
        """Find the smallest ε ≥ 0 whose bounded divergence is at most e^{log_delta}; ∞ above ``to_beat``."""
        is_heavy = self.log_weights > log_delta + math.log(_NEGLIGIBLE_SHARE / self.losses.size) - self.weight_rounding
        if not is_heavy.any():
            return 0.0
        heavy = replace(self, losses=self.losses[is_heavy], log_weights=self.log_weights[is_heavy])
        log_limit = log_delta + math.log1p(-_NEGLIGIBLE_SHARE)
        if heavy.log_divergence(0.0) <= log_limit:
            return 0.0
        largest = max(0.0, float(self.losses[-1])) + self.loss_rounding
        if to_beat < largest:
            if heavy.log_divergence(to_beat) > log_limit:
                return math.inf
            largest = to_beat

        def is_allowed(epsilon: float) -> bool:
            return heavy.log_divergence(epsilon) <= log_limit

        return bisect_safe(is_allowed, inside=largest, outside=0.0, steps=_BISECTION_STEPS)


def compose_simple(params: PrivacyPair, k: int) -> PrivacyParams:
    """Add the guarantees of k ≥ 1 queries: (kε, kδ) [D, Theorem 2.2]; `ValueError` if kδ reaches 1.

    >>> compose_simple(PrivacyParams(0.1, 1e-5), 3)
    PrivacyParams(epsilon=0.3, delta=0.00003)
    """
    params = _check_query(params, k)
    delta = int(k) * params.exact_delta
    if delta >= 1:
        checks.fail("k", k, f"below 1/delta = {1.0 / params.delta:g}", "the composed delta would reach 1")
    return PrivacyParams(int(k) * params.exact_epsilon, delta)


def compose_general(params: PrivacyPair, k: int, delta_prime: float) -> PrivacyParams:
    """Compose k ≥ 1 queries by the closed form with a slack δ′ in (0, 1) [D, Theorem 2.3], [KOV15, Theorem 3.4].

    ε_k = min{kε, A + ε√(2k log(e + √(kε²)/δ′)), A + ε√(2k log(1/δ′))} with A = kε(e^ε − 1)/(e^ε + 1), and
    δ_k = 1 − (1 − δ)^k (1 − δ′). The last row of the first block of [D, Table 2]:

    >>> total = compose_general(PrivacyParams(0.2676, 0.0003), 100, delta_prime=1e-4)
    >>> f"({total.epsilon:.3f}, {total.delta:.3f})"
    '(15.044, 0.030)'
    """
    params = _check_query(params, k)
    checks.open_probability(delta_prime=delta_prime)
    epsilon = general_epsilon([(params, int(k))], delta_prime)
    delta = -math.expm1(int(k) * math.log1p(-params.delta) + math.log1p(-delta_prime))
    return PrivacyParams(epsilon, min(delta * (1.0 + _ROUNDING), math.nextafter(1.0, 0.0)))


def compose_optimal(params: PrivacyPair, k: int, delta: float) -> PrivacyParams:
    """Find the smallest ε at which k ≥ 1 queries are (ε, δ)-private for all mechanisms [KOV15, Theorem 3.3].

    δ_k(ε_k) = 1 − (1 − δ)^k (1 − Σ_l C(k, l) max(0, e^{lε} − e^{ε_k + (k−l)ε})/(1 + e^ε)^k), inverted and rounded up.
    `ValueError` if ``delta`` is below 1 − (1 − δ_query)^k.

    >>> query = PrivacyParams(0.2676, 0.0003)
    >>> [round(compose_optimal(query, k, compose_general(query, k, 1e-4).delta).epsilon, 3) for k in (20, 50, 100)]
    [4.268, 7.946, 12.597]
    """
    params = _check_query(params, k)
    checks.probability_below_one(delta=delta)
    epsilon = optimal_epsilon([(params, int(k))], delta)
    if math.isinf(epsilon):
        minimum = -math.expm1(int(k) * math.log1p(-params.delta))
        checks.fail("delta", delta, f"above 1 - (1 - {params.delta:g})^{k} = {minimum:.6g}", "allow a larger delta")
    return PrivacyParams(epsilon, delta)


def _check_query(params: PrivacyPair, k: int) -> PrivacyParams:
    pair = PrivacyParams.of(params, "params")
    checks.integer_at_least(1, k=k)
    return pair


def general_epsilon(groups: Sequence[Group], delta_prime: float) -> float:
    """Compute the ε of the general form for queries of several kinds [KOV15, Theorem 3.5], rounded up.

    With E = Σε_i, V = Σε_i² and A = Σε_i(e^{ε_i} − 1)/(e^{ε_i} + 1):
    min{E, A + √(2V log(e + √V/δ′)), A + √(2V log(1/δ′))}.
    """
    total = sum(count * params.epsilon for params, count in groups)
    squares = sum(count * params.epsilon**2 for params, count in groups)
    drift = sum(count * params.epsilon * math.tanh(params.epsilon / 2.0) for params, count in groups)
    log_factor = min(math.log(math.e + math.sqrt(squares) / delta_prime), -math.log(delta_prime))
    epsilon = min(total, drift + math.sqrt(2.0 * squares * log_factor))
    return epsilon * (1.0 + _ROUNDING)


def optimal_epsilon(groups: Sequence[Group], delta: float, *, to_beat: float = math.inf) -> float:
    """Find the optimal ε for queries of several kinds, rounded up; ∞ if there is none [MV16, Theorem 1.5].

    If ε exceeds ``to_beat``, the result is any number above ``to_beat``. The worst mechanism is randomized response
    that reveals everything with probability δ_i: the total loss has at most Π(k_i + 1) values.
    """
    simple = sum((count * params.exact_epsilon for params, count in groups), Fraction(0))
    simple_delta = sum((count * params.exact_delta for params, count in groups), Fraction(0))
    simple_epsilon = round_up(simple)
    log_limit = log_remaining_delta(groups, delta)
    if log_limit == -math.inf:
        return simple_epsilon if simple_delta <= Fraction(delta) else math.inf
    losses = LossDistribution.from_groups([(params.epsilon, count) for params, count in groups])
    return min(simple_epsilon, losses.smallest_epsilon(log_limit, to_beat=to_beat))


def log_remaining_delta(groups: Sequence[Group], delta: float) -> float:
    """Compute log(1 − (1 − δ)/Π(1 − δ_i)^{k_i}), rounded down; −∞ for 0."""
    log_queries = sum(count * math.log1p(-params.delta) for params, count in groups)
    log_target = math.log1p(-delta)
    exponent = log_target - log_queries
    exponent += _ROUNDING * (abs(log_target) + abs(log_queries))
    if exponent >= 0.0:
        return -math.inf
    return math.log(-math.expm1(exponent) * (1.0 - _ROUNDING))


def round_up(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)
