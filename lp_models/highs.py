"""Linear programs solved by HiGHS: once, or again and again while rows come and go.

HiGHS stops at an absolute feasibility tolerance, 1e-10 at its strictest. Rows and costs of a `Master` are therefore
passed multiplied by `_SCALE`, with HiGHS's own scaling off: the tolerance in our units is 1e-14. At 1e-10 the row
generation stalls at violations near 1e-9.

**Knots.** A program over x in [0, 1]^n is restricted to x = U z with z in [0, 1]^k and a sparse U. The solver gets a U
for every row a, and c U. The bound is over all x, so a restriction never makes it false, only weak.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import compress

import highspy
import numpy as np
from numpy.typing import NDArray

from lp_models.program import (
    Array,
    BlockProgram,
    LinearProgram,
    RowLabel,
    Solution,
    SparseRows,
    Status,
    lagrangian_bound,
)

_SCALE = 1e4  # the largest coefficient of every row and of the cost, as HiGHS gets them
_SMALLEST = 1e-290  # of these coefficients: rows of smaller ones are scaled by finite numbers, too
_TOLERANCE = 1e-10  # the strictest that HiGHS accepts

_CUT = 2  # parts of each interval of knots at the next level


class Knots(ABC):
    """Where x may bend: the first places of its intervals, ascending."""

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
    def up(self, z: Array) -> Array:
        """Compute U z: shape (k,) → (n,)."""

    @abstractmethod
    def down(self, rows: Array) -> Array:
        """Compute a U for each row a: shape (…, n) → (…, k)."""

    def repaired(self, duals: Array, reduced: Array) -> Array:
        """Return multipliers with a better bound."""
        del reduced
        return duals

    def refined(self) -> Knots:
        cuts = [self.starts + self.lengths * i // _CUT for i in range(_CUT)]
        return type(self)(np.unique(np.concatenate(cuts)), self.n, keeps_rows=self.keeps_rows)


class Hats(Knots):
    """x is linear between knots, where z are its values, and constant behind the last one."""

    def up(self, z: Array) -> Array:
        return z if self.is_full else np.interp(np.arange(self.n), self.starts, z)

    def down(self, rows: Array) -> Array:
        if self.is_full:
            return rows
        share = (np.arange(self.n) - np.repeat(self.starts, self.lengths)) / np.repeat(self.lengths, self.lengths)
        share[self.starts[-1] :] = 0.0
        result = np.add.reduceat(rows * (1.0 - share), self.starts, axis=-1)
        result[..., 1:] += np.add.reduceat(rows * share, self.starts, axis=-1)[..., :-1]
        return np.asarray(result)


class Ramps(Knots):
    """x are the steps of a function that never falls, even between knots, where z are its rises; row 0 is Σ x ≤ 1."""

    def up(self, z: Array) -> Array:
        return z if self.is_full else np.repeat(z / self.lengths, self.lengths)

    def down(self, rows: Array) -> Array:
        return rows if self.is_full else np.asarray(np.add.reduceat(rows, self.starts, axis=-1) / self.lengths)

    def repaired(self, duals: Array, reduced: Array) -> Array:
        raised = duals.copy()
        raised[0] = max(0.0, duals[0] - float(np.min(reduced)))
        return raised


class Solver:
    """HiGHS with one program between warm-started solves; values and bounds are about the program's cost."""

    sign = 1.0  # of the cost in results: it is minimized
    longest_run = 60.0  # seconds of one run of the simplex method, which may go around; most take less than one
    # tried when degeneracy defeats the warm start: no change, perturbed costs, presolve, HiGHS's own scaling,
    # interior point
    retries: tuple[tuple[str, float | str], ...] = (
        ("presolve", "off"),
        ("dual_simplex_cost_perturbation_multiplier", 1.0),
        ("presolve", "on"),
        ("simplex_scale_strategy", 4),
        ("dual_feasibility_tolerance", 1e-8),
        ("solver", "ipm"),
    )
    cost: Array
    offset: float
    _highs: highspy.Highs

    def value(self, point: Array) -> float:
        return float(self.cost @ point) + self.offset

    def forget(self) -> None:
        """Drop the basis: long chains of warm starts drift."""
        self._highs.clearSolver()

    def run(self, seconds: float) -> tuple[Array, Array, bool]:
        """Solve from the last basis, else from nothing with `retries`; ``seconds`` limits all runs, `longest_run` each.

        Returns variables, HiGHS's multipliers of rows, and whether they are optimal.
        """
        deadline = time.perf_counter() + seconds
        optimal = self._run(seconds)
        for option, value in self.retries:
            if optimal or time.perf_counter() >= deadline:
                break
            kept = self._highs.getOptionValue(option)[1]
            self._highs.setOptionValue(option, value)
            self.forget()
            optimal = self._run(deadline - time.perf_counter())
            self._highs.setOptionValue(option, kept)
        raw = self._highs.getSolution()
        return np.array(raw.col_value, dtype=np.float64), np.array(raw.row_dual, dtype=np.float64), optimal

    def _run(self, seconds: float) -> bool:
        # HiGHS counts the seconds of all runs of one solver together
        spent = self._highs.getRunTime()
        self._highs.setOptionValue("time_limit", spent + max(0.0, min(seconds, self.longest_run)))
        self._highs.run()
        return bool(self._highs.getModelStatus() == highspy.HighsModelStatus.kOptimal)


class Master(Solver):
    def __init__(self, program: LinearProgram, knots: Knots | None = None) -> None:
        self.cost, self.offset = program.cost, program.offset
        self.matrix = np.empty((0, program.cost.size))
        self.limits = np.empty(0)
        self.labels: list[RowLabel] = []  # the oracle's names of rows
        self.idle = np.empty(0, dtype=np.int64)
        self._permanent = program.limits.size
        largest = np.max(np.abs(program.cost), initial=0.0)
        self._cost_scale = _SCALE / largest if largest > 0.0 else 1.0
        self._extra_cost = np.zeros_like(program.cost)
        self._row_scales = np.empty(0)
        self.restrict(knots)
        if program.limits.size:
            self.add_rows(program.matrix, program.limits)

    def restrict(self, knots: Knots | None) -> None:
        """Let the solver have variables at knots only, or x itself for None; the rows stay."""
        self.knots = knots
        cost = self._down(self.cost + self._extra_cost) * self._cost_scale
        self.variables, empty = cost.size, np.empty(0, dtype=np.int32)
        # a warm start skips presolve anyway; perturbed costs, cleaned up at such tolerances, take three times as long
        options: dict[str, float | str] = {
            "presolve": "off",
            "simplex_scale_strategy": 0,
            "dual_simplex_cost_perturbation_multiplier": 0.0,
        }
        self._highs = _new_solver(**options)
        zeros, ones = np.zeros(cost.size), np.ones(cost.size)
        self._highs.addCols(cost.size, cost, zeros, ones, 0, empty, empty, np.empty(0))
        self._row_scales = np.empty(0)
        if self.limits.size:
            self._pass_rows(self.matrix, self.limits)

    def _down(self, rows: Array) -> Array:
        return rows if self.knots is None else self.knots.down(rows)

    def add_cost(self, extra: Array) -> None:
        """Add to the cost that the solver minimizes; values and bounds ignore it."""
        self._extra_cost = extra
        cost = self._down(self.cost + extra) * self._cost_scale
        self._highs.changeColsCost(cost.size, np.arange(cost.size, dtype=np.int32), cost)

    def add_rows(self, matrix: Array, limits: Array, labels: Sequence[RowLabel] = ()) -> None:
        self.labels += labels or [None] * limits.size
        self._pass_rows(matrix, limits)
        self.matrix = np.vstack([self.matrix, matrix])
        self.limits = np.concatenate([self.limits, limits])
        self.idle = np.concatenate([self.idle, np.zeros(limits.size, dtype=np.int64)])

    def _pass_rows(self, matrix: Array, limits: Array) -> None:
        rows = self._down(matrix)
        count, n = rows.shape
        scale = _SCALE / np.maximum(np.max(np.abs(rows), axis=1), _SMALLEST)
        self._highs.addRows(
            count,
            np.full(count, -highspy.kHighsInf),
            limits * scale,
            count * n,
            np.arange(count, dtype=np.int32) * n,
            np.tile(np.arange(n, dtype=np.int32), count),
            (rows * scale[:, None]).ravel(),
        )
        self._row_scales = np.concatenate([self._row_scales, scale])

    def drop_idle_rows(self, idle_rounds: int) -> None:
        keep = self.idle < idle_rounds
        keep[: self._permanent] = True
        drop = np.flatnonzero(~keep).astype(np.int32)
        if drop.size:
            self._highs.deleteRows(drop.size, drop)
            self.matrix, self.limits, self.idle = self.matrix[keep], self.limits[keep], self.idle[keep]
            self._row_scales = self._row_scales[keep]
            self.labels = list(compress(self.labels, keep))

    def solve(self, seconds: float = np.inf) -> Solution:
        """Solve in at most ``seconds``; the bound is valid in any case."""
        variables, row_duals, optimal = self.run(seconds)
        there = (variables.size, row_duals.size) == (self.variables, self.limits.size)  # HiGHS may return nothing
        if there and np.all(np.isfinite(variables)) and np.all(np.isfinite(row_duals)):
            variables = np.clip(variables, 0.0, 1.0)
            point = variables if self.knots is None else self.knots.up(variables)
            # HiGHS's duals of <= rows are non-positive; undo both scalings
            duals = np.maximum(-row_duals, 0.0) * self._row_scales / self._cost_scale
        else:
            point, duals, optimal = np.zeros(self.cost.size), np.zeros(self.limits.size), False
        self.idle = np.where(duals > 0.0, 0, self.idle + 1)
        if self.knots is not None:
            duals = self.knots.repaired(duals, self.cost + duals @ self.matrix)
        bound = lagrangian_bound(LinearProgram(self.cost, self.matrix, self.limits, self.offset), duals)
        status = Status.OPTIMAL if optimal else Status.FAILED
        return Solution(point, duals, self.value(point), bound, status)


class BlockMaster(Solver):
    """(4), (5), (7) of `lp_models.program` and the known rows (6), which all stay; minimizes −gains."""

    sign, longest_run, retries = -1.0, np.inf, (("presolve", "choose"),)
    knots = None

    def __init__(self, program: BlockProgram) -> None:
        self.program, self.cost, self.offset, self._highs = program, -program.gains, 0.0, _new_solver()
        self.variables = program.gains.size
        size, starts, empty = self.variables, program.starts, np.empty(0, dtype=np.int32)
        least, ones, columns = np.full(size, program.least), np.ones(starts.size), np.arange(size, dtype=np.int32)
        self._highs.addCols(size, self.cost, least, 1.0 / program.sizes, 0, empty, empty, np.empty(0))
        self._highs.addRows(starts.size, ones, ones, size, starts.astype(np.int32), columns, program.sizes)
        none = np.empty(0, dtype=np.int64)
        self.rows, self.labels = SparseRows(none, none, np.empty(0), np.empty(0)), list[RowLabel]()

    @property
    def limits(self) -> Array:
        return self.rows.limits

    def add_rows(self, rows: SparseRows, limits: Array, labels: Sequence[RowLabel] = ()) -> None:
        starts = np.searchsorted(rows.rows, np.arange(limits.size)).astype(np.int32)
        free, columns = np.full(limits.size, -highspy.kHighsInf), rows.columns.astype(np.int32)
        self._highs.addRows(limits.size, free, limits, rows.values.size, starts, columns, rows.values)
        self.rows, self.labels = self.rows.joined(rows), [*self.labels, *labels]

    def drop_idle_rows(self, idle_rounds: int) -> None:
        pass

    def solve(self, seconds: float = np.inf) -> Solution:
        variables, row_duals, optimal = self.run(seconds) if seconds > 0.0 else (self.cost, self.limits, False)
        if not optimal:
            return Solution(np.zeros(self.variables), np.zeros(self.limits.size), 0.0, -np.inf, Status.FAILED)
        duals = np.maximum(-row_duals[self.program.starts.size :], 0.0)
        point = np.maximum(variables, self.program.least)
        return Solution(point, duals, self.value(point), -self.program.bound(self.rows, duals), Status.OPTIMAL)


def _new_solver(**options: float | str) -> highspy.Highs:
    highs = highspy.Highs()
    common = {"output_flag": False, "threads": 1, "solver": "simplex"}
    tolerances = {"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE}
    for option, value in {**common, **tolerances, **options}.items():
        highs.setOptionValue(option, value)
    return highs
