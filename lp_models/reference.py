"""The γ-optimization with all rows of the paper: an independent check of row generation.

With α and α' the Poisson binomial laws of the number of ones under p and p', and γ(l) = γ(K − l),

    max   ½ Σ_{l>K/2} w_l γ(l)                                                    the utility [D, Eq. 202]
    s.t.  Σ_{l>K/2} (α_l − α_{K−l} − e^{mε}(α'_l − α'_{K−l})) γ(l) ≤ e^{mε} − 1 + 2δ     [D, Lemma 3.4]
          for all (p, p') whose pairs (p_i, p'_i) are corners                            [D, Lemma 5.1]
          0 ≤ γ(l) ≤ 1

Lemma 5.1: the left side is linear in each pair (p_i, p'_i), so only corners of the region that (ε, Δ)-privacy allows
can be worst, and only how many voters are at each corner counts: O(K³) rows for Δ = 0, O(K⁷) for Δ > 0. For overlap t,
rows with more than t pairs p_i ≠ p'_i are omitted.

>>> from darrm import PrivacyParams, Problem, Voters
>>> program = gamma_program(Problem.from_allowance(Voters(3, PrivacyParams("0.1")), 1))
>>> program.variables, len(program.names), program.names[2]
(('gamma_2', 'gamma_3'), 20, 'row_2_0_1_0')
>>> round(program.solve().value, 6), program.to_cvxpy().is_dcp()
(0.09375, True)
"""

import importlib
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb, exp, inf
from pathlib import Path
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.program import Array, LinearProgram, Solution, Status

_MAX_ROWS = 2_000_000
_PRIOR_MEAN = 0.75  # of p_i ~ U[0.5, 1], the paper's prior


@dataclass(frozen=True, eq=False)
class GammaProgram:
    """The program as matrices, with a name for each row and each variable."""

    program: LinearProgram  # over γ(l), l > K/2
    pairs: Array  # the corners (p, p'): shape (corners, 2)
    counts: NDArray[np.int64]  # of voters at each corner: shape (rows, corners)
    first: Array  # the coefficients of γ in E_p[g], shape (rows, n)
    second: Array  # the same for p'

    @property
    def variables(self) -> tuple[str, ...]:
        """``gamma_l`` for l > K/2."""
        K = int(self.counts[0].sum())
        return tuple(f"gamma_{ones}" for ones in range(K // 2 + 1, K + 1))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """``row_`` and the number of voters at each of `pairs`."""
        return tuple("row_" + "_".join(map(str, counts)) for counts in self.counts.tolist())

    def probabilities(self) -> tuple[Array, Array]:
        """Return all rows as (p, p'), two arrays of shape (rows, K)."""
        voters = int(self.counts[0].sum())
        corner = np.tile(np.arange(len(self.pairs)), len(self.counts)).repeat(self.counts.ravel()).reshape(-1, voters)
        return self.pairs[corner, 0], self.pairs[corner, 1]

    def solve(self) -> Solution:
        """Solve the whole program through cvxpy."""
        return solve_with_cvxpy(self.program)

    def to_cvxpy(self) -> Any:  # noqa: ANN401 (cvxpy has no types)
        """Return the `cvxpy.Problem` of the expected error ½ Σ_l w_l (1 − γ(l)), with the variable ``gamma``."""
        return to_cvxpy(self.program, "gamma")

    def to_mps(self, path: str | Path) -> None:
        """Write the program as an MPS file, with names."""
        program, highs = self.program, highspy.Highs()
        highs.setOptionValue("output_flag", False)
        (rows, columns), empty = program.matrix.shape, np.empty(0, dtype=np.int32)
        highs.addCols(columns, program.cost, np.zeros(columns), np.ones(columns), 0, empty, empty, np.empty(0))
        starts, places = np.arange(rows, dtype=np.int32) * columns, np.tile(np.arange(columns, dtype=np.int32), rows)
        highs.addRows(
            *(rows, np.full(rows, -highspy.kHighsInf), program.limits, rows * columns),
            *(starts, places, program.matrix.ravel()),
        )
        highs.changeObjectiveOffset(program.offset)
        for column, name in enumerate(self.variables):
            highs.passColName(column, name)
        for row, name in enumerate(self.names):
            highs.passRowName(row, name)
        if highs.writeModel(str(path)) == highspy.HighsStatus.kError:
            raise OSError(f"cannot write {path}: choose a file whose name ends in .mps")


def gamma_program(problem: Any, weights: Array | None = None) -> GammaProgram:  # noqa: ANN401 (no import of darrm here)
    """State the whole program of a `darrm.Problem` with equal voters; `ValueError` above two million rows.

    ``weights`` are w_l for l > K/2; by default for p_i ~ U[0.5, 1].
    """
    voters, target = problem.voters, problem.target
    K, exp_epsilon = voters.K, exp(target.epsilon)
    each = voters.each
    pairs = corner_pairs(each.epsilon if each.is_private else inf, each.delta)
    rows = comb(K + len(pairs) - 1, K)
    if rows > _MAX_ROWS:
        raise ValueError(
            f"the whole program of K = {K} has {rows:,} rows, too many to write down (at most {_MAX_ROWS:,}). "
            "Use the production solver, which generates rows."
        )
    multisets = combinations_with_replacement(range(len(pairs)), K)
    corners = np.fromiter((corner for row in multisets for corner in row), dtype=np.int8).reshape(-1, K)
    counts = np.stack([np.count_nonzero(corners == corner, axis=1) for corner in range(len(pairs))], axis=1)
    counts = counts[counts @ (pairs[:, 0] != pairs[:, 1]) <= voters.reached].astype(np.int64)
    first, second = (_compute_differences(counts, pairs[:, side]) for side in (0, 1))
    if weights is None:
        weights = _compute_differences(np.array([[K]]), np.array([_PRIOR_MEAN]))[0]
    limits = np.full(len(counts), exp_epsilon - 1.0 + 2.0 * target.delta)
    program = expected_error_program(weights, Shape.FREE, first - exp_epsilon * second, limits)
    return GammaProgram(program, pairs, counts, first, second)


def corner_pairs(epsilon: float, delta: float) -> Array:
    """List the corners (p, p') of the region that (ε, Δ)-privacy allows: shape (8, 2), or (4, 2) for Δ = 0.

    >>> corner_pairs(0.1, 0.0).round(4)[2:]
    array([[0.525, 0.475],
           [0.475, 0.525]])
    """
    shrink = exp(-epsilon) if epsilon < inf else 0.0
    hi = (1.0 + delta * shrink) / (1.0 + shrink)
    pairs = [(0.0, 0.0), (1.0, 1.0), (hi, 1.0 - hi), (1.0 - hi, hi)]
    if delta > 0.0:
        pairs += [(0.0, delta), (delta, 0.0), (1.0 - delta, 1.0), (1.0, 1.0 - delta)]
    return np.array(pairs)


def _compute_differences(counts: NDArray[np.int64], probabilities: Array) -> Array:
    """Compute α_l − α_{K−l} for l > K/2 and every row of counts of voters at these probabilities of a 1."""
    K = int(counts[0].sum())
    law = np.zeros((len(counts), K + 1))
    law[:, 0] = 1.0
    for count, p in zip(counts.T, probabilities.tolist(), strict=True):
        for voter in range(int(count.max())):
            p_one = np.where(voter < count, p, 0.0)[:, None]
            law[:, 1:] = law[:, 1:] * (1.0 - p_one) + law[:, :-1] * p_one
            law[:, :1] *= 1.0 - p_one
    return np.asarray((law - law[:, ::-1])[:, K // 2 + 1 :])


def to_cvxpy(program: LinearProgram, name: str = "x") -> Any:  # noqa: ANN401 (cvxpy has no types)
    cvxpy = importlib.import_module("cvxpy")
    x = cvxpy.Variable(program.cost.size, name=name)
    objective = cvxpy.Minimize(program.cost @ x + program.offset)
    return cvxpy.Problem(objective, [program.matrix @ x <= program.limits, x >= 0.0, x <= 1.0])


def solve_with_cvxpy(program: LinearProgram) -> Solution:
    """Solve a linear program with all its rows through cvxpy; `Status.FAILED` where it finds no optimum or raises."""
    cvxpy, problem = importlib.import_module("cvxpy"), to_cvxpy(program)
    (x,), rows = problem.variables(), problem.constraints[0]
    with suppress(cvxpy.error.SolverError):  # then no value is set
        problem.solve(
            solver=cvxpy.HIGHS, primal_feasibility_tolerance=1e-10, dual_feasibility_tolerance=1e-10, threads=1
        )
    if x.value is None or rows.dual_value is None:
        empty = np.zeros(program.cost.size)
        return Solution(empty, np.zeros(program.limits.size), program.offset, -np.inf, Status.FAILED)
    point = np.clip(np.asarray(x.value, dtype=np.float64), 0.0, 1.0)
    duals = np.maximum(np.asarray(rows.dual_value, dtype=np.float64).reshape(-1), 0.0)
    value = float(program.cost @ point) + program.offset
    return Solution(point, duals, value, program.bound(program.matrix, program.limits, duals), Status.OPTIMAL)
