"""The optimal γ for non-private voters with overlap 1, in closed form, and the optimal monotone γ under a Rényi budget.

Votes of non-private voters may be any function of the data. Let h(s) = Pr[output 1 | s ones] = (1 + g(s))/2. A person
moves the number of ones by one, so a release is private if (x, y) = (h(s), h(s+1)) is in a set R for every s. R is
closed, convex, contains the diagonal, and is symmetric under exchange and under (x, y) → (1 − x, 1 − y):

* (ε, δ)-privacy, c = e^ε:  y ≤ c·x + δ,  1 − x ≤ c·(1 − y) + δ,  and both with x and y exchanged;
* a Rényi budget:  D_α(x ‖ y) ≤ ρ and D_α(y ‖ x) ≤ ρ for Bernoulli variables. If each query includes a person with
  probability q, the same bounds on (1 − q)x + qy and x, in both directions, and with x and y exchanged.

**Closed form.** h(K/2) = 1/2 for even K; for odd K, h((K−1)/2) is the smallest x ≤ 1/2 with (x, 1 − x) in R. Downwards
h(s) is the smallest x with (x, h(s+1)) in R, but at least η, and h(K−s) = 1 − h(s). For (ε, δ), with η = 0,

    (1) h((K−1)/2) = (1 − δ)/(1 + c),        h(s) = max(0, (h(s+1) − δ)/c, 1 − δ − c·(1 − h(s+1))).

**Theorem.** Among all private h with η ≤ h and h(K−s) = 1 − h(s), this one is the smallest at every s < K/2 and the
largest at every s > K/2, so it is optimal under every prior. *Proof.* The lower boundary x(y) = min {x : (x, y) in R}
is convex with x(0) = 0 and x ≥ 0, so it does not fall. Any private h has h(s) ≥ x(h(s+1)), and for odd K (h(s), 1 −
h(s)) is in R at s = (K−1)/2. By induction no private h is below the closed form at any s < K/2; by symmetry none is
above it at s > K/2. The closed form is private: where h(s) = x(h(s+1)) by definition; where η is larger, η lies between
x(h(s+1)) and h(s+1), and R contains the whole segment to the diagonal. ∎ Symmetry costs nothing: h(s) and 1 − h(K−s)
are private together, and so is their mean. `tests/majority/test_closed_form.py` minimizes every h(s) by itself with a
linear program, and tries every h on a grid in exact fractions.

**Many queries.** For small steps D_α ≈ α(dh)²/(2h(1 − h)), so h(s) tends to sin²(π/4 + √(ρ/(2α))·(s − K/2)): an arc
that ends. At the tie it is √(π/2) = 1.25 times as steep as GNMax with the divergence ρ.

**Other voters under a Rényi budget.** The expected error is linear in γ. By `darrm.majority.costs` the constraint is
E(P_r, Q_r) ≤ e^{(α−1)ρ} for the rows r of the dominating family, a convex set in the plane of (P, Q). It is the
intersection of its supporting half-planes. The one at a boundary point (P*, Q*) with r = P*/Q*, s = (1 − P*)/(1 − Q*)
is

    P − c·Q ≤ P* − c·Q*,    c = −(∂E/∂Q)/(∂E/∂P) = (α − 1)/α · (r^α − s^α)/(r^{α−1} − s^{α−1}).

`lp_models.row_generation` adds broken half-planes: every round is a relaxation and gives a bound. Scaling γ moves (P,
Q) on a line to (½, ½), which gives the boundary point and a feasible γ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from darrm.loss.amplification import get_rate
from darrm.majority.costs import RenyiRows, reflect
from darrm.majority.dominating import LevelMaxima, choose_violated, stop_after
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array
from darrm.numerics.bisection import bisect_safe
from darrm.priors import Prior, compute_weights
from darrm.problem import Problem, Voters
from darrm.util import checks
from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.options import SolveOptions
from lp_models.program import LinearProgram
from lp_models.row_generation import Separation, minimize_with_rows

# η under a Rényi budget, so that no divergence is infinite. γ is a float near 1 there, with steps of 2⁻⁵³.
SMALLEST_LIE = 2.0**-36
COARSE = SolveOptions(gap=1e-4, time_limit=60.0)  # enough to compare orders
FINE = SolveOptions(gap=1e-6, time_limit=300.0)  # of results: beyond the digits of reports
_RELATIVE_TOLERANCE = 1e-9  # a row is violated if its divergence exceeds the budget by more than this share
_MAX_QUICK_LEVELS = 64  # levels of a quick separation: neighbors are violated together
_BISECTION_STEPS = 60  # of a factor in [0, 1]: to the last digit


def has_closed_form(voters: Voters) -> bool:
    return voters.are_non_private and voters.reached == 1


def best_for_non_private_voters(problem: Problem) -> NoiseFunction:
    """Compute γ(l) = 2h(l) − 1 of (1), in floats; `certify` proves it and scales away the rounding.

    `ValueError` if the voters are private or the overlap exceeds 1.

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

    def compute_next_lie(previous: float) -> float:
        return max(0.0, (previous - delta) * shrink, 1.0 - delta - growth * (1.0 - previous))

    # h(K − l) = 1 − h(l) for l = ⌊K/2⌋ + 1 … K
    lies = [(1.0 - delta) * shrink / (1.0 + shrink) if K % 2 else compute_next_lie(0.5)]
    while len(lies) < problem.voters.num_upper_levels:
        lies.append(compute_next_lie(lies[-1]))
    return NoiseFunction(K, np.clip(1.0 - 2.0 * np.array(lies), 0.0, 1.0))


def bernoulli_divergence(order: float, x: float, y: float) -> float:
    """Compute D_α(Bern(x) ‖ Bern(y)) for α > 1 and x, y in (0, 1)."""
    log_one = order * math.log(x) - (order - 1.0) * math.log(y)
    log_zero = order * math.log1p(-x) - (order - 1.0) * math.log1p(-y)
    high, low = max(log_one, log_zero), min(log_one, log_zero)
    return max(0.0, high + math.log1p(math.exp(low - high))) / (order - 1.0)


def best_under_renyi(K: int, order: float, budget: float, rate: float = 1.0) -> NoiseFunction:
    """Compute γ(l) = 2h(l) − 1 for D_α ≤ ρ, in floats; `renyi_divergences` bounds its divergence.

    ``order`` is α > 1, ``budget`` ρ > 0, and ``rate`` q in (0, 1]. `ValueError` if one lies outside its range.
    """
    checks.integer_at_least(1, K=K)
    checks.positive(budget=budget)
    if not order > 1.0:
        checks.fail("order", order, "above 1")

    def is_allowed(x: float, y: float) -> bool:
        pairs = ((1.0 - rate) * x + rate * y, x), ((1.0 - rate) * y + rate * x, y)
        return max(bernoulli_divergence(order, *pair) for a, b in pairs for pair in ((a, b), (b, a))) <= budget

    def find_smallest(top: float, is_allowed: Callable[[float], bool]) -> float:
        if top <= SMALLEST_LIE or is_allowed(SMALLEST_LIE):
            return SMALLEST_LIE
        return bisect_safe(is_allowed, inside=top, outside=SMALLEST_LIE, geometric=True)

    def is_allowed_at_tie(x: float) -> bool:
        return is_allowed(x, 1.0 - x)

    lies = [find_smallest(0.5, is_allowed_at_tie if K % 2 else partial(is_allowed, 0.5))]
    while len(lies) < K - K // 2:
        lies.append(find_smallest(lies[-1], partial(is_allowed, lies[-1])))
    return NoiseFunction(K, 1.0 - 2.0 * np.array(lies))


@dataclass(frozen=True, eq=False)
class RenyiOptimum:
    """The best γ found for one order and budget; a proposal, like every `NoiseFunction`.

    No monotone γ with lies of at least `SMALLEST_LIE` and this divergence has an expected error below ``bound``, up to
    the last digits of the bisection of the closed form.
    """

    gamma: NoiseFunction  # monotone, with lies of at least `SMALLEST_LIE`
    value: float  # its expected error
    bound: float
    planes: tuple[tuple[Array, float], ...] = ()  # half-planes for this order and budget that prove the bound


def optimize_under_renyi(
    voters: Voters,
    prior: Prior,
    order: float,
    budget: float,
    *,
    options: SolveOptions = FINE,
    to_beat: float = math.inf,
    start: RenyiOptimum | None = None,
) -> RenyiOptimum:
    """Find the monotone γ with the smallest expected error whose divergence of one order is at most a budget.

    ``order`` is α > 1 and ``budget`` ρ > 0; the prior has a linear expected error; else `ValueError`. The solve stops
    once its bound exceeds ``to_beat``, with a γ that need not stay within the budget. ``start`` is a coarser solution
    of the same problem; its half-planes are reused.
    """
    checks.positive(budget=budget)
    if not order > 1.0:
        checks.fail("order", order, "above 1")
    if has_closed_form(voters):
        rate = 1.0 if voters.sampled is None else get_rate(voters.sampled)
        gamma = best_under_renyi(voters.K, order, budget, rate)
        value = gamma.expected_error(prior)
        return RenyiOptimum(gamma, value, value)
    program = expected_error_program(compute_weights(prior, voters.K), Shape.MONOTONE)
    limits = program.limits.copy()
    limits[0] = 1.0 - 2.0 * SMALLEST_LIE  # the row Σ u ≤ 1 of the monotone shape
    start_planes = () if start is None else start.planes
    matrix = np.vstack([program.matrix, *(plane for plane, _ in start_planes)])
    program = replace(program, matrix=matrix, limits=np.append(limits, [limit for _, limit in start_planes]))
    result = minimize_with_rows(program, _RenyiOracle(voters, order, budget, program, to_beat), options)
    gamma = NoiseFunction(voters.K, Shape.MONOTONE.variables_to_gamma(result.point))
    planes = tuple(plane for _, plane in result.multipliers if plane is not None)
    return RenyiOptimum(gamma, gamma.expected_error(prior), result.bound, (*start_planes, *planes))


class _RenyiOracle:
    def __init__(self, voters: Voters, order: float, budget: float, program: LinearProgram, to_beat: float) -> None:
        self.program, self.to_beat = program, to_beat
        self.rows = RenyiRows(voters)
        self.order = order
        self.limit = (order - 1.0) * budget

    def separate(self, point: Array, *, thorough: bool, deadline: float) -> Separation:
        """Return the most divergent row of each level, or of some levels unless ``thorough``, if it is violated."""
        stop_after(deadline)
        if self.program.offset + float(self.program.cost @ point) > self.to_beat:  # the cost of a relaxation
            raise TimeoutError
        stride = 1 if thorough else 1 + self.rows.voters.reached // _MAX_QUICK_LEVELS
        half = np.minimum(Shape.MONOTONE.variables_to_gamma(point), 1.0 - 2.0 * SMALLEST_LIE)
        maxima, factor = self._find_worst_rows(np.maximum.accumulate(half), stride)
        broken = choose_violated(maxima.costs, self.limit * (1.0 + _RELATIVE_TOLERANCE))
        planes = [self._build_half_plane(maxima, level, half) for level in broken]
        matrix = np.array([row for row, _ in planes]).reshape(-1, half.size)
        limits = np.array([limit for _, limit in planes])
        feasible = Shape.MONOTONE.gamma_to_variables(half * factor)
        matrix = Shape.MONOTONE.rows(matrix)
        labels = list(zip(matrix, limits.tolist(), strict=True))
        return Separation(matrix, limits, feasible, stride == 1, labels)

    def _find_worst_rows(self, half: Array, stride: int) -> tuple[LevelMaxima, float]:
        levels = self.rows.voters.reached + 1
        costs, broken_P, broken_Q = np.full(levels, -np.inf), [], []
        ones, unaffected_ones = np.zeros((2, levels), dtype=np.int64)
        for level in self.rows.levels(half, stride=stride):
            Q = reflect(level.zeros)
            log_P, log_not_P = np.log(level.ones), np.log(level.zeros)
            exponents = self._compute_exponents(log_P, log_not_P, reflect(log_not_P), reflect(log_P))
            worst_place = np.unravel_index(int(np.argmax(exponents)), exponents.shape)
            costs[level.j], (unaffected_ones[level.j], ones[level.j]) = exponents[worst_place], worst_place
            is_broken = exponents > self.limit
            broken_P.append(level.ones[is_broken])
            broken_Q.append(Q[is_broken])
        factor = self._find_common_factor(np.concatenate(broken_P), np.concatenate(broken_Q))
        return LevelMaxima(costs, ones, unaffected_ones, 0.0), factor

    def _find_common_factor(self, P: Array, Q: Array) -> float:
        factor = 1.0
        while P.size:
            p, q = 0.5 + factor * (P - 0.5), 0.5 + factor * (Q - 0.5)
            exponents = self._compute_exponents(*np.log([p, 1.0 - p, q, 1.0 - q]))
            is_broken = exponents > self.limit
            if not np.any(is_broken):
                break
            worst = int(np.argmax(exponents))
            factor = min(float(np.nextafter(factor, 0.0)), self._find_factor(float(P[worst]), float(Q[worst])))
            P, Q = P[is_broken], Q[is_broken]
        return factor

    def _compute_exponents(
        self, log_P: ArrayLike, log_not_P: ArrayLike, log_Q: ArrayLike, log_not_Q: ArrayLike
    ) -> Array:
        first = self.order * np.asarray(log_P) - (self.order - 1.0) * np.asarray(log_Q)
        second = self.order * np.asarray(log_not_P) - (self.order - 1.0) * np.asarray(log_not_Q)
        return np.asarray(np.logaddexp(first, second))

    def _find_factor(self, P: float, Q: float) -> float:
        def is_allowed(factor: float) -> bool:
            p, q = 0.5 + factor * (P - 0.5), 0.5 + factor * (Q - 0.5)
            log_one = self.order * math.log(p) - (self.order - 1.0) * math.log(q)
            log_zero = self.order * math.log(1.0 - p) - (self.order - 1.0) * math.log(1.0 - q)
            return max(log_one, log_zero) + math.log1p(math.exp(-abs(log_one - log_zero))) <= self.limit

        return bisect_safe(is_allowed, inside=0.0, outside=1.0, steps=_BISECTION_STEPS)

    def _build_half_plane(self, maxima: LevelMaxima, level: int, half: Array) -> tuple[Array, float]:
        """Return the supporting half-plane at the point of the boundary between the row's (P, Q) and (½, ½)."""
        row, voters = self.rows.family.row(maxima, level), self.rows.voters
        first = row.coefficients(voters, 0.0)
        second = row.coefficients(voters, 1.0) - first  # E_q[g] = −E_{p'}[g]
        P, Q = 0.5 + 0.5 * float(first @ half), 0.5 - 0.5 * float(second @ half)
        factor = self._find_factor(P, Q)
        p, q = 0.5 + factor * (P - 0.5), 0.5 + factor * (Q - 0.5)
        r, s = np.log(p / q), np.log((1.0 - p) / (1.0 - q))
        alpha = self.order
        slope = (alpha - 1.0) / alpha * np.exp(r) * np.expm1(alpha * (s - r)) / np.expm1((alpha - 1.0) * (s - r))
        return first + slope * second, (2.0 * p - 1.0) - slope * (2.0 * q - 1.0)
