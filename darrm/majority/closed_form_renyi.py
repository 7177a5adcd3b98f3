"""The optimal γ under a Rényi budget for non-private voters with overlap 1, in closed form.

The closed form of `darrm.majority.closed_form` with another constraint on neighbors. With h(s) = Pr[output 1 | s ones]
let

    R = {(x, y) in [0, 1]² : D_α(x ‖ y) ≤ ρ and D_α(y ‖ x) ≤ ρ},

D_α the Rényi divergence between Bernoulli variables. A release is private if (h(s), h(s+1)) is in R for every s.

    (1) h(K/2) = 1/2 for even K; for odd K, h((K−1)/2) is the smallest x ≤ 1/2 with (x, 1 − x) in R;
    (2) downwards, h(s) is the largest of η and the smallest x with (x, h(s+1)) in R;        h(K−s) = 1 − h(s).

If voters resample their examples per query, and a person is sampled with probability q, R asks the same of
(1 − q)x + qy and x, in both directions, and with x and y exchanged. These are linear maps of (x, y), so R is convex.

**Theorem.** Among all private h with η ≤ h and h(K−s) = 1 − h(s), this one returns the majority with the largest
probability for every number of ones. *Proof.* R is convex, closed, symmetric under exchange and under (x, y) → (1 − x,
1 − y), and contains the diagonal. Its lower boundary x(y) = min {x : (x, y) in R} is a convex function of y with x(0) =
0 and x ≥ 0, so it does not fall. Any private h has h(s) ≥ x(h(s+1)), and for odd K the point (h(s), 1 − h(s)) of R at s
= (K−1)/2; by induction no private h is below (2) at any s < K/2. And (2) is private: for h(s) = x(h(s+1)) by
definition; where η is larger, η lies between x(h(s+1)) and h(s+1), and R holds the whole segment between its boundary
and the diagonal. Above the middle everything is mirrored. ∎ Any other convex, symmetric R that contains the diagonal
(several orders, a trade-off curve) has the same theorem.

For many queries steps are small, D_α ≈ α(dh)²/(2h(1 − h)), and (2) tends to h(s) = sin²(π/4 + √(ρ/(2α))·(s − K/2)): an
arc that ends. At the tie it is √(π/2) = 1.25 times as steep as the answer of GNMax whose noisy count has divergence ρ:
the count's Gaussian curve Φ(√(2ρ/α)·(s − K/2)) spends budget on differences that the answer does not show.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from darrm.majority.noise_function import NoiseFunction
from darrm.numerics.bisection import bisect_safe
from darrm.util import checks

# η: lies are at least this probable, so that no divergence is infinite. γ is a float near 1 there, with steps of 2⁻⁵³.
SMALLEST_LIE = 2.0**-36


def bernoulli_divergence(order: float, x: float, y: float) -> float:
    """Compute D_α(Bern(x) ‖ Bern(y)) for α > 1 and x, y in (0, 1).

    >>> round(bernoulli_divergence(2.0, 0.75, 0.25), 12) == round(math.log(0.75**2 / 0.25 + 0.25**2 / 0.75), 12)
    True
    """
    one = order * math.log(x) - (order - 1.0) * math.log(y)
    zero = order * math.log1p(-x) - (order - 1.0) * math.log1p(-y)
    high, low = max(one, zero), min(one, zero)
    return max(0.0, high + math.log1p(math.exp(low - high))) / (order - 1.0)


def drawn_divergence(order: float, without: float, moved: float, rate: float) -> float:
    """Compute the larger D_α of both directions between Bern(x) and (1 − q)Bern(x) + q·Bern(y), x and y in (0, 1).

    >>> drawn_divergence(2.0, 0.25, 0.75, 1.0) == max(
    ...     bernoulli_divergence(2.0, 0.75, 0.25), bernoulli_divergence(2.0, 0.25, 0.75)
    ... )
    True
    """
    mixture = (1.0 - rate) * without + rate * moved
    return max(bernoulli_divergence(order, mixture, without), bernoulli_divergence(order, without, mixture))


def best_under_renyi(K: int, order: float, budget: float, rate: float = 1.0) -> NoiseFunction:
    """Compute γ(l) = 2h(l) − 1 of (1) and (2), in floats; its divergence is to be bounded by `renyi_divergences`.

    ``order`` is α > 1, ``budget`` ρ > 0, the divergence of that order that neighbors may have, and ``rate`` q in (0, 1]
    the probability that a person's vote is moved, below 1 for resampled examples. `ValueError`
    if one lies outside its range.

    >>> best_under_renyi(5, 4.0, 0.2).half.round(4)
    array([0.1733, 0.4645, 0.6872])
    """
    checks.integer_at_least(1, K=K)
    checks.positive(budget=budget)
    if not order > 1.0:
        checks.fail("order", order, "above 1")

    def allowed(x: float, y: float) -> bool:
        return max(drawn_divergence(order, x, y, rate), drawn_divergence(order, y, x, rate)) <= budget

    lies = []
    lie = 0.5
    for index in range(K - K // 2):
        if index == 0 and K % 2 == 1:
            lie = _smallest_lie(0.5, lambda x: allowed(x, 1.0 - x))
        elif lie > SMALLEST_LIE:
            lie = _smallest_lie(lie, partial(allowed, lie))
        lies.append(lie)
    return NoiseFunction(K, 1.0 - 2.0 * np.array(lies))


def _smallest_lie(top: float, allowed: Callable[[float], bool]) -> float:
    if allowed(SMALLEST_LIE):
        return SMALLEST_LIE
    return bisect_safe(allowed, inside=top, outside=SMALLEST_LIE, geometric=True)
