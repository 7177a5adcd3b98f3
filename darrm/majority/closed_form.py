"""The optimal γ for non-private voters with overlap 1, in closed form: under (ε, δ) and under a Rényi budget.

Non-private voters have ``PrivacyParams("inf")``: their votes may be any function of the data. Let
h(s) = Pr[output 1 | s ones] = (1 + g(s))/2. A person moves the number of ones by one, so a release is private if
(x, y) = (h(s), h(s+1)) is in a set R for every s, which is symmetric under exchange and under (x, y) → (1 − x, 1 − y):

* (ε, δ)-privacy, c = e^ε:  y ≤ c·x + δ,  1 − x ≤ c·(1 − y) + δ,  and both with x and y exchanged;
* a Rényi budget:  D_α(x ‖ y) ≤ ρ and D_α(y ‖ x) ≤ ρ, the divergences between Bernoulli variables. If voters resample
  their examples per query and a person is sampled with probability q, the same of (1 − q)x + qy and x, in both
  directions, and with x and y exchanged: linear maps of (x, y), so R is convex.

**Closed form.** h(K/2) = 1/2 for even K; for odd K, h((K−1)/2) is the smallest x ≤ 1/2 with (x, 1 − x) in R. Then
downwards h(s) is the smallest x with (x, h(s+1)) in R, but at least η, and h(K−s) = 1 − h(s). For (ε, δ), with η = 0,

    (1) h((K−1)/2) = (1 − δ)/(1 + c),        h(s) = max(0, (h(s+1) − δ)/c, 1 − δ − c·(1 − h(s+1))).

**Theorem.** Among all private h with η ≤ h and h(K−s) = 1 − h(s), this one is the smallest at every s < K/2 and the
largest at every s > K/2: it returns the majority with the largest probability for every number of ones, so it is
optimal under every prior. *Proof.* R is convex, closed, symmetric and contains the diagonal. So its lower boundary
x(y) = min {x : (x, y) in R} is a convex function of y with x(0) = 0 and x ≥ 0, and does not fall. Any private h has
h(s) ≥ x(h(s+1)), and for odd K the point (h(s), 1 − h(s)) of R at s = (K−1)/2; by induction no private h is below the
closed form at any s < K/2, by symmetry none is above it at s > K/2. And it is private: where h(s) = x(h(s+1)) by
definition; where η is larger, η lies between x(h(s+1)) and h(s+1), and R holds the whole segment between its boundary
and the diagonal. Above the middle everything is mirrored. ∎ Symmetry costs nothing: h(s) and 1 − h(K−s) are private
together, so is their mean, which is right as often as they are if both answers count alike. Any other convex, symmetric
R that contains the diagonal (several orders, a trade-off curve) has the same theorem. The test that would catch a
failure, `tests/majority/test_closed_form.py`, minimizes every h(s) by itself with a linear program over all symmetric
h, and tries every h on a grid in exact fractions.

**Many queries.** Then steps are small, D_α ≈ α(dh)²/(2h(1 − h)), and h(s) tends to sin²(π/4 + √(ρ/(2α))·(s − K/2)): an
arc that ends. At the tie it is √(π/2) = 1.25 times as steep as the answer of GNMax whose noisy count has divergence ρ:
the count's Gaussian curve Φ(√(2ρ/α)·(s − K/2)) spends budget on differences that the answer does not show.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from darrm.majority.noise_function import NoiseFunction
from darrm.numerics.bisection import bisect_safe
from darrm.problem import Problem, Voters
from darrm.util import checks

# η under a Rényi budget, so that no divergence is infinite. γ is a float near 1 there, with steps of 2⁻⁵³.
SMALLEST_LIE = 2.0**-36


def has_closed_form(voters: Voters) -> bool:
    """Return whether the theorem speaks about these voters."""
    return voters.are_non_private and voters.reached == 1


def best_for_non_private_voters(problem: Problem) -> NoiseFunction:
    """Compute γ(l) = 2h(l) − 1 of (1), in floats; `certify` proves it and scales away the rounding.

    `ValueError` if the voters are private or one person reaches more than one of them.

    >>> from darrm import Problem, PrivacyParams, Voters
    >>> problem = Problem(Voters(11, PrivacyParams("inf"), overlap=1), PrivacyParams("0.2676", "0.0003"))
    >>> ((1 + best_for_non_private_voters(problem).half) / 2).round(3)
    array([0.567, 0.669, 0.747, 0.806, 0.852, 0.887])
    """
    if not has_closed_form(problem.voters):
        checks.fail("problem", str(problem), "one of voters that are not private, with overlap 1")
    K, delta = problem.voters.K, problem.target.delta
    shrink = math.exp(-problem.target.epsilon)
    growth = problem.cost_ratio

    def next_lie(above: float) -> float:
        return max(0.0, (above - delta) * shrink, 1.0 - delta - growth * (1.0 - above))

    # h(K − l) = 1 − h(l) for l = ⌊K/2⌋ + 1 … K
    lies = [(1.0 - delta) * shrink / (1.0 + shrink) if K % 2 else next_lie(0.5)]
    while len(lies) < problem.voters.num_upper_levels:
        lies.append(next_lie(lies[-1]))
    return NoiseFunction(K, np.clip(1.0 - 2.0 * np.array(lies), 0.0, 1.0))


def bernoulli_divergence(order: float, x: float, y: float) -> float:
    """Compute D_α(Bern(x) ‖ Bern(y)) for α > 1 and x, y in (0, 1).

    >>> round(bernoulli_divergence(2.0, 0.75, 0.25), 12) == round(math.log(0.75**2 / 0.25 + 0.25**2 / 0.75), 12)
    True
    """
    one = order * math.log(x) - (order - 1.0) * math.log(y)
    zero = order * math.log1p(-x) - (order - 1.0) * math.log1p(-y)
    high, low = max(one, zero), min(one, zero)
    return max(0.0, high + math.log1p(math.exp(low - high))) / (order - 1.0)


def best_under_renyi(K: int, order: float, budget: float, rate: float = 1.0) -> NoiseFunction:
    """Compute γ(l) = 2h(l) − 1 under a Rényi budget, in floats; its divergence is to be bounded by `renyi_divergences`.

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
        pairs = ((1.0 - rate) * x + rate * y, x), ((1.0 - rate) * y + rate * x, y)
        return max(bernoulli_divergence(order, *pair) for a, b in pairs for pair in ((a, b), (b, a))) <= budget

    def smallest(top: float, allowed: Callable[[float], bool]) -> float:
        if top <= SMALLEST_LIE or allowed(SMALLEST_LIE):
            return SMALLEST_LIE
        return bisect_safe(allowed, inside=top, outside=SMALLEST_LIE, geometric=True)

    lies = [smallest(0.5, lambda x: allowed(x, 1.0 - x)) if K % 2 else smallest(0.5, partial(allowed, 0.5))]
    while len(lies) < K - K // 2:
        lies.append(smallest(lies[-1], partial(allowed, lies[-1])))
    return NoiseFunction(K, 1.0 - 2.0 * np.array(lies))
