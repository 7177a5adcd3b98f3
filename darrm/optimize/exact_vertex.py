"""The vertex that a linear program's solver found, computed again to more digits than the solver has.

A vertex is the solution of a square linear system: the rows that hold with equality there, in the variables that are
not at a bound, and its multipliers are the solution of the transposed one with the cost on the right. HiGHS names the
rows and the variables, its *basis*; its floats satisfy the system up to 1e-10 of a row's largest coefficient. Here the
system is written and solved in balls that contain the real e^ε, so that γ and the multipliers are those of the basis up
to the last bit of a float. Nothing has to be believed: both go through `certify` and `lower_bound` as before, which
know no basis. If the basis is the optimal one, what is left of the gap is the rounding of these two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import accumulate

import numpy as np
from flint import arb, arb_mat, arb_poly, ctx, fmpq

from darrm import checks
from darrm.laws import priors
from darrm.probability import Array
from darrm.problem import MajorityProblem
from darrm.proof.corners import PRECISION_BITS, CornerCounts, ratio_of
from darrm.proof.optimality import Multiplier
from darrm.proof.table import GammaTable
from lp_models.gamma_lp import Shape

_MOST_BITS = 16 * PRECISION_BITS  # no system of K = 2,001 has needed more than twice `PRECISION_BITS`
_AT_A_BOUND = 1e-9  # a variable within this of 0 or 1 is at it: the solver is off by less
_WANTED = 2.0**-60  # how wide an enclosure may be that is rounded to a float


@dataclass(frozen=True)
class Basis:
    """Which rows hold with equality at a vertex, and which of the shape's variables are not at a bound there.

    As many rows as variables, where the shape's own row Σ u ≤ 1 counts as one if it is active.
    """

    rows: tuple[CornerCounts, ...]
    free: tuple[int, ...]  # variables that the rows determine; the others are 0 …
    at_one: tuple[int, ...] = ()  # … or 1
    reaches_one: bool = False  # of the monotone shape: whether γ(K) = 1

    def __post_init__(self) -> None:
        if len(self.rows) + self.reaches_one != len(self.free):
            rows = checks.Found(f"{len(self.rows) + self.reaches_one} rows for {len(self.free)} variables")
            checks.fail("basis", rows, "as many active rows as variables between their bounds")


def refined(
    problem: MajorityProblem, weights: Array, shape: Shape, basis: Basis
) -> tuple[Array, tuple[Multiplier, ...]]:
    """Compute γ and the multipliers of a basis, each rounded once.

    Parameters
    ----------
    problem
        The voters and the target.
    weights
        w_l of the expected error, shape (h,).
    shape
        Which γ are allowed, and so what the variables are.
    basis
        Of the solver.

    Returns
    -------
    gamma
        Shape (h,), clipped to [0, 1].
    multipliers
        The rows of the basis with their multipliers, as far as these are positive.

    Raises
    ------
    ZeroDivisionError
        If the rows are not seen to be independent at 2,048 bits.
    """
    bits = PRECISION_BITS
    while True:
        with ctx.workprec(bits):
            try:
                gamma, duals = _solved(problem, weights, shape, basis)
            except ZeroDivisionError:
                if 2 * bits > _MOST_BITS:
                    raise
            else:
                widest = max((float(each.rad()) for each in [*gamma, *duals]), default=0.0)
                if widest < _WANTED or 2 * bits > _MOST_BITS:
                    break
        bits *= 2
    half = np.clip(np.array([float(value.mid()) for value in gamma]), 0.0, 1.0)
    multipliers = zip((float(y.mid()) for y in duals), basis.rows, strict=False)  # Σ u ≤ 1 stands last
    return half, tuple((y, row) for y, row in multipliers if y > 0.0)


def basis_of(table: GammaTable) -> Basis:
    """Read a basis off an optimized table: the rows with multipliers, and as many variables.

    These are the variables that lie between 0 and 1 and, where a row more holds by chance, those at a bound whose
    reduced cost is nearest to 0.

    `ValueError` if the table keeps no multipliers, or fewer than there are such variables: then several γ may be
    optimal.
    """
    problem, optimality = table.problem, table.optimality
    if optimality is None or optimality.multipliers is None:
        return checks.fail("table", checks.Found("one without multipliers"), "optimized under a prior with weights")
    shape, half = Shape(optimality.shape), table.gamma.half
    # for δ = 0 the row of voters who all agree is γ(K) ≤ 1: one of the bounds, not another row beside it
    agreed = (CornerCounts(0, 0, table.gamma.K, 0), CornerCounts(0, 0, 0, table.gamma.K))
    same = agreed if problem.target.exact_delta == 0 else ()
    held = [(y, row) for y, row in optimality.multipliers if isinstance(row, CornerCounts) and row not in same]
    variables = shape.gamma_to_variables(half)
    between = (variables > _AT_A_BOUND) & (variables < 1.0 - _AT_A_BOUND)
    ratio = ratio_of(problem.target.exact_epsilon).value
    weights = priors.weights_of(optimality.prior, table.gamma.K)
    reduced = shape.rows(sum((y * row.coefficients(problem.voters, ratio) for y, row in held), -0.5 * weights))
    reaches_one = shape is Shape.MONOTONE and bool(half[-1] >= 1.0 - _AT_A_BOUND) and bool(np.any(between))
    if reaches_one:
        reduced = reduced - reduced[between][0]  # Σ u ≤ 1 has a multiplier of its own
    order = np.lexsort((np.abs(reduced), ~between))
    size = max(int(np.count_nonzero(between)), len(held) + reaches_one)
    free = np.sort(order[:size]).tolist()
    at_one = [int(k) for k in np.flatnonzero(variables >= 1.0 - _AT_A_BOUND) if k not in free]
    return Basis(tuple(row for _, row in held), tuple(free), tuple(at_one), reaches_one=reaches_one)


class EnclosedRows:
    """Rows of a problem as balls at the precision that is set when it is made."""

    def __init__(self, problem: MajorityProblem) -> None:
        each, target = problem.voters.each, problem.target
        self.K, self.first = problem.voters.K, problem.voters.first_majority
        self.delta = _ball(each.exact_delta)
        growth = _ball(each.exact_epsilon).exp() if each.is_private else None
        self.hi = arb(1) if growth is None else (growth + self.delta) / (growth + 1)
        self.ratio = _ball(target.exact_epsilon).exp()
        self.budget = self.ratio - 1 + 2 * _ball(target.exact_delta)
        self.power = cache(self._power)

    def _power(self, corner: str, exponent: int) -> arb_poly:
        """Enclose the law of so many voters at a corner."""
        p = {"hi": self.hi, "lo": 1 - self.hi, "Δ": self.delta, "1−Δ": 1 - self.delta}[corner]
        return arb_poly([1 - p, p]) ** exponent

    def coefficients(self, row: CornerCounts) -> list[arb]:
        """Enclose a with f = Σ_{l>K/2} a_l γ(l), as `CornerCounts.coefficients` computes it in floats."""
        near = self.power("hi", row.high) * self.power("lo", row.low)
        first = self.law(near, row.ones, row.moved_zeros, row.moved_ones)
        second = self.law(near, row.zeros, row.moved_ones_prime, row.moved_zeros_prime)
        total = [one + self.ratio * other for one, other in zip(first, second, strict=True)]
        return [total[ones] - total[self.K - ones] for ones in range(self.first, self.K + 1)]

    def law(self, near: arb_poly, ones: int, rising: int, falling: int) -> list[arb]:
        """Enclose the law of the number of ones, given that of the voters at (hi, lo) and (lo, hi)."""
        moved = near * self.power("Δ", rising) * self.power("1−Δ", falling)
        law: list[arb] = [arb(0)] * (ones - falling) + moved.coeffs()
        return law + [arb(0)] * (self.K + 1 - len(law))


def _solved(problem: MajorityProblem, weights: Array, shape: Shape, basis: Basis) -> tuple[list[arb], list[arb]]:
    """Enclose γ and the multipliers of the rows at the precision that is set."""
    rows = EnclosedRows(problem)
    matrix = [_over_variables(shape, rows.coefficients(row)) for row in basis.rows]
    cost = _over_variables(shape, [arb(float(w)) / 2 for w in weights])
    limits = [rows.budget] * len(matrix)
    if basis.reaches_one:
        matrix.append([arb(1)] * len(cost))
        limits.append(arb(1))
    size = len(matrix)
    square = arb_mat(size, size, [row[k] for row in matrix for k in basis.free])
    left = [limit - sum((row[k] for k in basis.at_one), arb(0)) for row, limit in zip(matrix, limits, strict=True)]
    point = [arb(0)] * len(cost)
    for k in basis.at_one:
        point[k] = arb(1)
    for k, value in zip(basis.free, square.solve(arb_mat(size, 1, left)).entries(), strict=True):
        point[k] = value
    duals: list[arb] = square.transpose().solve(arb_mat(size, 1, [cost[k] for k in basis.free])).entries()
    gamma: list[arb] = point if shape is Shape.FREE else list(accumulate(point))
    return gamma, duals


def _over_variables(shape: Shape, coefficients: Sequence[arb]) -> list[arb]:
    """Turn coefficients of γ into those of the variables, as `Shape.rows` does in floats."""
    if shape is Shape.FREE:
        return list(coefficients)
    return list(accumulate(reversed(coefficients)))[::-1]


def _ball(value: Fraction) -> arb:
    return arb(fmpq(value.numerator, value.denominator))
