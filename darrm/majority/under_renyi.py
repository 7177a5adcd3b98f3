"""The best monotone γ whose Rényi divergence of one order stays within a budget: a conic program, solved by rows.

The expected error is linear in γ and, by `darrm.majority.renyi`, the constraint is E(P_r, Q_r) ≤ e^{(α−1)ρ} for the
rows r of the dominating family, a convex set in the plane of (P, Q). It is the intersection of its supporting
half-planes, and the one at a boundary point (P*, Q*) reads

    P − c·Q ≤ P* − c·Q*,    c = −(∂E/∂Q)/(∂E/∂P) = (α − 1)/α · (r^α − s^α)/(r^{α−1} − s^{α−1}),    r = P*/Q*,
                                                                                          s = (1 − P*)/(1 − Q*).

With P − c·Q = (1 − c + f)/2 this is a bound on the privacy cost f of the same corner with another c: a Rényi budget is
(ε, δ)-privacy at infinitely many ε. So `lp_models.row_generation` solves it, taking half-planes as they are broken;
every round's program is a relaxation and gives a bound. Scaling γ moves (P, Q) on a line to (½, ½), which gives both
the boundary point and a feasible γ.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from darrm.loss.amplification import rate_of
from darrm.majority.closed_form import SMALLEST_LIE, best_under_renyi, has_closed_form
from darrm.majority.corners import CornerCounts
from darrm.majority.dominating import LevelMaxima, choose_violated, stop_after
from darrm.majority.noise_function import NoiseFunction
from darrm.majority.renyi import RenyiRows, reflected
from darrm.numerics import Array
from darrm.numerics.bisection import bisect_safe
from darrm.priors import Prior, weights_of
from darrm.problem import Voters
from darrm.util import checks
from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.options import SolveOptions
from lp_models.program import LinearProgram
from lp_models.row_generation import Separation, minimize_with_rows

COARSE = SolveOptions(gap=1e-4, time_limit=60.0)  # enough to compare orders
FINE = SolveOptions(gap=1e-6, time_limit=300.0)  # of results: beyond the digits of reports
_BROKEN = 1e-9  # a row is broken when its divergence exceeds the budget by more than this part of it
_LEVELS_A_LOOK = 64  # levels of a quick look: neighbors break together
_BISECTIONS = 60  # of a factor in [0, 1]: to the last digit


@dataclass(frozen=True, eq=False)
class RenyiOptimum:
    """The best γ found for one order and budget; a proposal, like every `NoiseFunction`.

    No monotone γ with lies of at least `SMALLEST_LIE` and this divergence has an expected error below ``bound``, up to
    the last digits of the bisection of the closed form.
    """

    gamma: NoiseFunction  # monotone, with lies of at least `SMALLEST_LIE`
    value: float  # its expected error
    bound: float
    planes: tuple[tuple[Array, float], ...] = ()  # the half-planes that make the bound: of this order and budget


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
    """Find the monotone γ with the smallest expected error whose Rényi divergence of one order is at most a budget.

    ``order`` is α > 1 and ``budget`` ρ > 0; the prior has a linear expected error, else `ValueError`. The row
    generation stops once its bound is above the expected error ``to_beat``, with a γ that need not stay within the
    budget. ``start`` is a coarser solution for the same voters, order and budget, whose half-planes are taken over.

    >>> from darrm.priors import Dirichlet
    >>> from darrm import PrivacyParams, Voters
    >>> voters = Voters(5, PrivacyParams("inf"), overlap=1)
    >>> optimize_under_renyi(voters, Dirichlet(), 4.0, 0.2).gamma.half.round(4)
    array([0.1733, 0.4645, 0.6872])
    """
    checks.positive(budget=budget)
    if not order > 1.0:
        checks.fail("order", order, "above 1")
    if has_closed_form(voters):
        rate = 1.0 if voters.sampled is None else rate_of(voters.sampled)
        gamma = best_under_renyi(voters.K, order, budget, rate)
        value = gamma.expected_error(prior)
        return RenyiOptimum(gamma, value, value)
    program = expected_error_program(weights_of(prior, voters.K), Shape.MONOTONE)
    limits = program.limits.copy()
    limits[0] = 1.0 - 2.0 * SMALLEST_LIE  # the row Σ u ≤ 1 of the monotone shape
    known = () if start is None else start.planes
    matrix = np.vstack([program.matrix, *(plane for plane, _ in known)])
    program = replace(program, matrix=matrix, limits=np.append(limits, [limit for _, limit in known]))
    result = minimize_with_rows(program, _RenyiOracle(voters, order, budget, program, to_beat), options)
    gamma = NoiseFunction(voters.K, Shape.MONOTONE.variables_to_gamma(result.point))
    planes = tuple(plane for _, plane in result.multipliers if plane is not None)
    return RenyiOptimum(gamma, gamma.expected_error(prior), result.bound, (*known, *planes))


class _RenyiOracle:
    def __init__(self, voters: Voters, order: float, budget: float, program: LinearProgram, to_beat: float) -> None:
        self.program, self.to_beat = program, to_beat
        self.rows = RenyiRows(voters)
        self.order = order
        self.limit = (order - 1.0) * budget

    def separate(self, point: Array, *, thorough: bool, deadline: float) -> Separation:
        """Take at every level, or at some unless thorough, the row with the largest divergence if it is broken."""
        stop_after(deadline)
        if self.program.offset + float(self.program.cost @ point) > self.to_beat:  # of a relaxation
            raise TimeoutError
        every = 1 if thorough else 1 + self.rows.voters.reached // _LEVELS_A_LOOK
        half = np.minimum(Shape.MONOTONE.variables_to_gamma(point), 1.0 - 2.0 * SMALLEST_LIE)
        found, factor = self._worst_rows(np.maximum.accumulate(half), every)
        broken = choose_violated(found.costs, self.limit * (1.0 + _BROKEN))
        planes = [self._half_plane(found, level, half) for level in broken]
        matrix = np.array([row for row, _ in planes]).reshape(-1, half.size)
        limits = np.array([limit for _, limit in planes])
        feasible = Shape.MONOTONE.gamma_to_variables(half * factor)
        matrix = Shape.MONOTONE.rows(matrix)
        labels = list(zip(matrix, limits.tolist(), strict=True))
        return Separation(matrix, limits, feasible, every == 1, labels)

    def _worst_rows(self, half: Array, every: int) -> tuple[LevelMaxima, float]:
        levels = self.rows.voters.reached + 1
        costs, broken_P, broken_Q = np.full(levels, -np.inf), [], []
        ones, frozen = np.zeros((2, levels), dtype=np.int64)
        for level in self.rows.levels(half, every=every):
            other = reflected(level.zeros)
            log_P, log_not_P = np.log(level.ones), np.log(level.zeros)
            exponents = self._exponents(log_P, log_not_P, reflected(log_not_P), reflected(log_P))
            worst = np.unravel_index(int(np.argmax(exponents)), exponents.shape)
            costs[level.j], (frozen[level.j], ones[level.j]) = exponents[worst], worst
            broken = exponents > self.limit
            broken_P.append(level.ones[broken])
            broken_Q.append(other[broken])
        factor = self._common_factor(np.concatenate(broken_P), np.concatenate(broken_Q))
        return LevelMaxima(costs, ones, frozen, 0.0), factor

    def _common_factor(self, P: Array, Q: Array) -> float:
        factor = 1.0
        while P.size:
            p, q = 0.5 + factor * (P - 0.5), 0.5 + factor * (Q - 0.5)
            exponents = self._exponents(*np.log([p, 1.0 - p, q, 1.0 - q]))
            broken = exponents > self.limit
            if not np.any(broken):
                break
            worst = int(np.argmax(exponents))
            factor = min(float(np.nextafter(factor, 0.0)), self._factor(float(P[worst]), float(Q[worst])))
            P, Q = P[broken], Q[broken]
        return factor

    def _exponents(self, log_P: ArrayLike, log_not_P: ArrayLike, log_Q: ArrayLike, log_not_Q: ArrayLike) -> Array:
        first = self.order * np.asarray(log_P) - (self.order - 1.0) * np.asarray(log_Q)
        second = self.order * np.asarray(log_not_P) - (self.order - 1.0) * np.asarray(log_not_Q)
        return np.asarray(np.logaddexp(first, second))

    def _factor(self, P: float, Q: float) -> float:
        def allowed(factor: float) -> bool:
            p, q = 0.5 + factor * (P - 0.5), 0.5 + factor * (Q - 0.5)
            one = self.order * math.log(p) - (self.order - 1.0) * math.log(q)
            zero = self.order * math.log(1.0 - p) - (self.order - 1.0) * math.log(1.0 - q)
            return max(one, zero) + math.log1p(math.exp(-abs(one - zero))) <= self.limit

        return bisect_safe(allowed, inside=0.0, outside=1.0, steps=_BISECTIONS)

    def _half_plane(self, found: LevelMaxima, level: int, half: Array) -> tuple[Array, float]:
        """Return the supporting half-plane at the point of the boundary between the row's (P, Q) and (½, ½)."""
        row: CornerCounts = self.rows.family.row(found, level)
        voters = self.rows.voters
        first = row.coefficients(voters, 0.0)
        second = row.coefficients(voters, 1.0) - first  # E_q[g] = −E_{p'}[g]
        P, Q = 0.5 + 0.5 * float(first @ half), 0.5 - 0.5 * float(second @ half)
        factor = self._factor(P, Q)
        p, q = 0.5 + factor * (P - 0.5), 0.5 + factor * (Q - 0.5)
        r, s = np.log(p / q), np.log((1.0 - p) / (1.0 - q))
        alpha = self.order
        ratio = (alpha - 1.0) / alpha * np.exp(r) * np.expm1(alpha * (s - r)) / np.expm1((alpha - 1.0) * (s - r))
        return first + ratio * second, (2.0 * p - 1.0) - ratio * (2.0 * q - 1.0)
