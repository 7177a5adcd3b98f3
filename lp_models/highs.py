"""Linear programs solved by HiGHS: once, or repeatedly while rows are added and dropped.

HiGHS stops at an absolute feasibility tolerance, 1e-10 at its strictest. Dense rows and their cost are therefore passed
multiplied by `_SCALE`, with HiGHS's own scaling off: the tolerance in our units is 1e-14. At 1e-10 the row generation
stalls at violations near 1e-9.

**Knots.** A program over x in [0, 1]^n is restricted to x = U z with z in [0, 1]^k and a sparse U. The solver gets a U
for every row a, and c U. The bound is over all x, so a restriction never makes it false, only weak.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import compress
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from lp_models.program import Array, BlockProgram, LinearProgram, RowLabel, Solution, SparseRows, Status

_SCALE = 1e4  # the largest coefficient of every row and of the cost, as HiGHS gets them
_MIN_COEFFICIENT = 1e-290  # keeps the scale of rows with tiny coefficients finite
_TOLERANCE = 1e-10  # the smallest that HiGHS accepts

_MAX_RUN_SECONDS = 60.0  # of one run of a dense program, which may cycle; most take less than one second
# for dense programs: a warm start skips presolve anyway, and perturbed costs take three times as long at such
# tolerances
_WARM_START_OPTIONS: dict[str, float | str] = {
    "presolve": "off",
    "simplex_scale_strategy": 0,
    "dual_simplex_cost_perturbation_multiplier": 0.0,
}
_PARTS_PER_INTERVAL = 2  # when knots are refined


class Knots(ABC):
    """The places where x may bend: the first places of its intervals, ascending."""

    def __init__(self, starts: NDArray[np.int64], n: int, *, keeps_rows: bool = False) -> None:
        self.starts, self.n, self.keeps_rows = starts, n, keeps_rows
        self.lengths = np.diff(starts, append=n)

    @classmethod
    def spread(cls, n: int, intervals: int, *, keeps_rows: bool = False) -> Knots:
        starts = np.unique(np.linspace(0, n, min(n, intervals), endpoint=False).astype(np.int64))
        return cls(starts, n, keeps_rows=keeps_rows)

    @property
    def is_full(self) -> bool:
        return self.starts.size == self.n

    @abstractmethod
    def prolong(self, z: Array) -> Array:
        """Compute U z: shape (k,) → (n,)."""

    @abstractmethod
    def restrict(self, rows: Array) -> Array:
        """Compute a U for each row a: shape (…, n) → (…, k)."""

    def repair(self, duals: Array, reduced: Array) -> Array:
        """Return multipliers with a better bound."""
        del reduced
        return duals

    def refine(self) -> Knots:
        cuts = [self.starts + self.lengths * i // _PARTS_PER_INTERVAL for i in range(_PARTS_PER_INTERVAL)]
        return type(self)(np.unique(np.concatenate(cuts)), self.n, keeps_rows=self.keeps_rows)


class Hats(Knots):
    """x is linear between knots, constant behind the last one, and has the values z at knots."""

    def prolong(self, z: Array) -> Array:
        return z if self.is_full else np.interp(np.arange(self.n), self.starts, z)

    def restrict(self, rows: Array) -> Array:
        if self.is_full:
            return rows
        share = (np.arange(self.n) - np.repeat(self.starts, self.lengths)) / np.repeat(self.lengths, self.lengths)
        share[self.starts[-1] :] = 0.0
        result = np.add.reduceat(rows * (1.0 - share), self.starts, axis=-1)
        result[..., 1:] += np.add.reduceat(rows * share, self.starts, axis=-1)[..., :-1]
        return np.asarray(result)


class Ramps(Knots):
    """x are the steps of a non-decreasing function, equal between knots with the total z; row 0 is Σ x ≤ 1."""

    def prolong(self, z: Array) -> Array:
        return z if self.is_full else np.repeat(z / self.lengths, self.lengths)

    def restrict(self, rows: Array) -> Array:
        return rows if self.is_full else np.asarray(np.add.reduceat(rows, self.starts, axis=-1) / self.lengths)

    def repair(self, duals: Array, reduced: Array) -> Array:
        raised_duals = duals.copy()
        raised_duals[0] = max(0.0, duals[0] - float(np.min(reduced)))
        return raised_duals


class Master:
    """HiGHS with one program for warm-started solves, while rows are added and dropped; the cost is minimized."""

    # retries after a failed warm start: no change, perturbed costs, presolve, HiGHS's own scaling, interior point
    retries: tuple[tuple[str, float | str], ...] = (
        ("presolve", "off"),
        ("dual_simplex_cost_perturbation_multiplier", 1.0),
        ("presolve", "on"),
        ("simplex_scale_strategy", 4),
        ("dual_feasibility_tolerance", 1e-8),
        ("solver", "ipm"),
    )

    def __init__(self, program: LinearProgram | BlockProgram, knots: Knots | None = None) -> None:
        self.program = program
        self.sign = -1.0 if isinstance(program, BlockProgram) else 1.0  # of the cost in results
        self.labels: list[RowLabel] = []  # the oracle's names of rows
        self.limits, self.idle = np.empty(0), np.empty(0, dtype=np.int64)
        self.matrix: Any  # an array, or the `SparseRows` of a `BlockProgram`
        if isinstance(program, BlockProgram):
            self.cost, self.offset, self._cost_scale = -program.gains, 0.0, 1.0
            self.lower, self.upper = np.full(self.cost.size, program.least), 1.0 / program.sizes
            self.matrix, self._equations, self._permanent = SparseRows.none(), program.starts.size, 0
        else:
            self.cost, self.offset = program.cost, program.offset
            largest = np.max(np.abs(program.cost), initial=0.0)
            self._cost_scale = _SCALE / largest if largest > 0.0 else 1.0
            self.lower, self.upper = np.zeros(self.cost.size), np.ones(self.cost.size)
            self.matrix = np.empty((0, self.cost.size))
            self._equations, self._permanent = 0, program.limits.size
        self._extra_cost = np.zeros_like(self.cost)
        self.restrict(knots)
        if isinstance(program, LinearProgram) and program.limits.size:
            self.add_rows(program.matrix, program.limits)

    def value(self, point: Array) -> float:
        return float(self.cost @ point) + self.offset

    def restrict(self, knots: Knots | None) -> None:
        """Restrict the solver to variables at knots, or to x itself for None; the rows stay."""
        self.knots = knots
        cost = self._restrict_rows(self.cost + self._extra_cost) * self._cost_scale
        self.variables, empty = cost.size, np.empty(0, dtype=np.int32)
        is_sparse = isinstance(self.program, BlockProgram)
        self._highs = _create_solver({} if is_sparse else _WARM_START_OPTIONS)
        self._max_run_seconds = np.inf if is_sparse else _MAX_RUN_SECONDS
        lower, upper = self.lower[: cost.size], self.upper[: cost.size]
        self._highs.addCols(cost.size, cost, lower, upper, 0, empty, empty, np.empty(0))
        if isinstance(self.program, BlockProgram):
            sizes, starts = self.program.sizes, self.program.starts
            columns, ones = np.arange(sizes.size, dtype=np.int32), np.ones(starts.size)
            self._highs.addRows(starts.size, ones, ones, sizes.size, starts.astype(np.int32), columns, sizes)
        self._row_scales = np.empty(0)
        if self.limits.size:
            self._pass_rows(self.matrix, self.limits)

    def _restrict_rows(self, rows: Array) -> Array:
        return rows if self.knots is None else self.knots.restrict(rows)

    def add_cost(self, extra: Array) -> None:
        """Add to the cost that the solver minimizes; values and bounds ignore it."""
        self._extra_cost = extra
        cost = self._restrict_rows(self.cost + extra) * self._cost_scale
        self._highs.changeColsCost(cost.size, np.arange(cost.size, dtype=np.int32), cost)

    def add_rows(self, matrix: Array | SparseRows, limits: Array, labels: Sequence[RowLabel] = ()) -> None:
        self.labels += labels or [None] * limits.size
        self._pass_rows(matrix, limits)
        if isinstance(matrix, SparseRows):
            self.matrix = self.matrix.join_rows(matrix)
        else:
            self.matrix = np.vstack([self.matrix, matrix])
        self.limits = np.concatenate([self.limits, limits])
        self.idle = np.concatenate([self.idle, np.zeros(limits.size, dtype=np.int64)])

    def _pass_rows(self, matrix: Array | SparseRows, limits: Array) -> None:
        count = limits.size
        if isinstance(matrix, SparseRows):
            scale, values, columns = np.ones(count), matrix.values, matrix.columns.astype(np.int32)
            starts = np.searchsorted(matrix.rows, np.arange(count)).astype(np.int32)
        else:
            rows = self._restrict_rows(matrix)
            scale = _SCALE / np.maximum(np.max(np.abs(rows), axis=1), _MIN_COEFFICIENT)
            values, columns = (rows * scale[:, None]).ravel(), np.tile(np.arange(rows.shape[1], dtype=np.int32), count)
            starts = np.arange(count, dtype=np.int32) * rows.shape[1]
        lower_limits = np.full(count, -highspy.kHighsInf)
        self._highs.addRows(count, lower_limits, limits * scale, values.size, starts, columns, values)
        self._row_scales = np.concatenate([self._row_scales, scale])

    def drop_idle_rows(self, idle_rounds: int) -> None:
        """Drop rows without a multiplier in the last rounds; sparse rows are cheap and stay."""
        if isinstance(self.matrix, SparseRows):
            return
        is_kept = self.idle < idle_rounds
        is_kept[: self._permanent] = True
        dropped_rows = np.flatnonzero(~is_kept).astype(np.int32)
        if dropped_rows.size:
            self._highs.deleteRows(dropped_rows.size, dropped_rows)
            self.matrix, self.limits, self.idle = self.matrix[is_kept], self.limits[is_kept], self.idle[is_kept]
            self._row_scales = self._row_scales[is_kept]
            self.labels = list(compress(self.labels, is_kept))

    def solve(self, seconds: float = np.inf) -> Solution:
        """Solve in at most ``seconds``; the bound is valid in any case."""
        variables, row_duals, optimal = self.run(seconds)
        expected = self.variables, self._equations + self.limits.size
        is_complete = (variables.size, row_duals.size) == expected  # HiGHS may return nothing
        if is_complete and np.all(np.isfinite(variables)) and np.all(np.isfinite(row_duals)):
            variables = np.clip(variables, self.lower[: variables.size], self.upper[: variables.size])
            point = variables if self.knots is None else self.knots.prolong(variables)
            # HiGHS's duals of <= rows are non-positive; undo both scalings
            duals = np.maximum(-row_duals[self._equations :], 0.0) * self._row_scales / self._cost_scale
        else:
            point, duals, optimal = np.zeros(self.cost.size), np.zeros(self.limits.size), False
        self.idle = np.where(duals > 0.0, 0, self.idle + 1)
        if self.knots is not None:
            duals = self.knots.repair(duals, self.cost + duals @ self.matrix)
        bound = self.program.bound(self.matrix, self.limits, duals)
        status = Status.OPTIMAL if optimal else Status.FAILED
        return Solution(point, duals, self.value(point), bound, status)

    def forget(self) -> None:
        """Drop the basis: long chains of warm starts drift."""
        self._highs.clearSolver()

    def run(self, seconds: float) -> tuple[Array, Array, bool]:
        """Solve from the last basis, then without a basis with `retries`; ``seconds`` limits all runs together.

        Returns variables, HiGHS's multipliers of rows, and whether they are optimal.
        """
        deadline = time.perf_counter() + seconds
        optimal = self._run_once(seconds)
        for option, value in self.retries:
            if optimal or time.perf_counter() >= deadline:
                break
            default = self._highs.getOptionValue(option)[1]
            self._highs.setOptionValue(option, value)
            self.forget()
            optimal = self._run_once(deadline - time.perf_counter())
            self._highs.setOptionValue(option, default)
        solution = self._highs.getSolution()
        return np.array(solution.col_value, dtype=np.float64), np.array(solution.row_dual, dtype=np.float64), optimal

    def _run_once(self, seconds: float) -> bool:
        # HiGHS counts the seconds of all runs of one solver together
        spent = self._highs.getRunTime()
        self._highs.setOptionValue("time_limit", spent + max(0.0, min(seconds, self._max_run_seconds)))
        self._highs.run()
        return bool(self._highs.getModelStatus() == highspy.HighsModelStatus.kOptimal)


def _create_solver(options: dict[str, float | str]) -> highspy.Highs:
    highs = highspy.Highs()
    common = {"output_flag": False, "threads": 1, "solver": "simplex"}
    tolerances = {"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE}
    for option, value in {**common, **tolerances, **options}.items():
        highs.setOptionValue(option, value)
    return highs
