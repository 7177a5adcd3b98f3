"""Linear programs over blocks of shares, with rows between pairs of blocks that are found as they are broken.

Data: n variables x_j in blocks p, a size m_j and a gain c_j for each; a smallest share η ≥ 0; and an oracle that knows
rows Σ_j a_{r,j} x_j ≤ b_r with few entries.

    (1)  max   Σ_j c_j x_j
    (2)  s.t.  Σ_{j in p} m_j x_j = 1     for every block p
    (3)        Σ_j a_{r,j} x_j ≤ b_r      for every row r of the oracle, as they are found
    (4)        x_j ≥ η

Two kinds of rows are about pairs r of blocks, whose terms t in r each hold a number k_t and two variables x_i, x_j:

    (5)  Σ_{t in S} k_t (x_i − a x_j) ≤ b      for every S ⊆ r, which together say Σ_{t in r} k_t (x_i − a x_j)_+ ≤ b
    (6)  Σ_{t in r} k_t (u_t x_i − v_t x_j) ≤ b, supporting half-planes of a convex set

Written with a slack variable for every term, (5) is one program; rows found as they are broken take a quarter of its
time. Only the worst S of a pair can matter: the terms that are positive.

**Bound.** For y_r ≥ 0 and ρ_j = c_j − Σ_r y_r a_{r,j}, whatever fulfills (2), (3) and (4) has

    (7)  Σ_j c_j x_j ≤ Σ_r y_r b_r + Σ_p ( η Σ_{j in p} ρ_j + (1 − η Σ_{j in p} m_j) max_{j in p} ρ_j / m_j ).
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import highspy
import numpy as np
from numpy.typing import NDArray

from lp_models.options import Progress, SolveOptions
from lp_models.program import Array, RowLabel, Status
from lp_models.row_generation import Result

Indices = NDArray[np.int64]

_TOLERANCE = 1e-10  # of HiGHS, the strictest that it accepts
_PATIENCE = 15  # rounds without a better point or bound: what is left is below the solver's precision


@dataclass(frozen=True, eq=False)
class BlockProgram:
    """(1), (2) and (4): gains c, sizes m and blocks of the n variables, the blocks numbered from 0 and in order."""

    gains: Array
    sizes: Array
    blocks: Indices
    least: float = 0.0

    @property
    def starts(self) -> Indices:
        """The first variable of every block."""
        return np.flatnonzero(np.diff(self.blocks, prepend=-1))

    def bound(self, rows: "SparseRows", multipliers: Array) -> float:
        """Compute (7) in floats, for multipliers y of the rows."""
        reduced = self.gains - rows.transposed(multipliers, self.gains.size)
        best = np.maximum.reduceat(reduced / self.sizes, self.starts)
        free = 1.0 - self.least * np.add.reduceat(self.sizes, self.starts)
        return float(multipliers @ rows.limits + self.least * np.sum(reduced) + best @ free)


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows a_r·x ≤ b_r by their entries: number of the row, number of the variable, coefficient; rows in order."""

    rows: Indices
    columns: Indices
    values: Array
    limits: Array

    @classmethod
    def summed(cls, rows: Indices, columns: Indices, values: Array, limits: Array, variables: int) -> "SparseRows":
        """Add up entries that stand twice.

        >>> zero = np.array([0, 0])
        >>> SparseRows.summed(zero, zero, np.array([1.0, 2.0]), np.ones(1), 1).values
        array([3.])
        """
        places, where = np.unique(rows * variables + columns, return_inverse=True)
        total = np.bincount(where, values, minlength=places.size).astype(np.float64)
        return cls(places // variables, places % variables, total, limits)

    def transposed(self, multipliers: Array, variables: int) -> Array:
        """Compute Σ_r y_r a_r, shape (n,)."""
        entries = multipliers[self.rows] * self.values
        return np.bincount(self.columns, entries, minlength=variables).astype(np.float64)

    def joined(self, others: "SparseRows") -> "SparseRows":
        """Put other rows behind these."""
        return SparseRows(
            np.concatenate([self.rows, others.rows + self.limits.size]),
            np.concatenate([self.columns, others.columns]),
            np.concatenate([self.values, others.values]),
            np.concatenate([self.limits, others.limits]),
        )


@dataclass(frozen=True, eq=False)
class BlockSeparation:
    """An oracle's answer about one point: the rows that it breaks, what they are, and a point near it breaking none.

    Without ``thorough`` only some rows were looked at, and the point near it may break others.
    """

    rows: SparseRows
    labels: Sequence[RowLabel]
    feasible: Array
    thorough: bool = True


class BlockOracle(Protocol):
    """Knows all rows (3)."""

    def separate(self, point: Array) -> BlockSeparation:
        """Look at all rows."""
        ...


def maximize_with_rows(
    program: BlockProgram,
    oracle: BlockOracle,
    options: SolveOptions,
    *,
    start: Array,
    known: BlockSeparation | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Result:
    """Solve (1)–(4): solve what is known, look for broken rows, add them, repeat until value and bound meet.

    ``start`` fulfills all rows, ``known`` holds rows to begin with. Also at a time limit and after Ctrl-C, which wait
    for the solver's round, the result is the best point and the best bound so far.
    """
    deadline = time.perf_counter() + options.time_limit
    began, master = time.perf_counter(), _Master(program)
    if known is not None:
        master.add(known.rows, known.labels)
    best, value, bound = start, float(program.gains @ start), np.inf
    multipliers: tuple[tuple[float, RowLabel], ...] = ()
    near, rounds, last_move = value, 0, 0
    status = Status.INTERRUPTED
    with suppress(KeyboardInterrupt):
        while True:
            point = master.solve(deadline - time.perf_counter())
            if point is None:
                status = Status.TIME_LIMIT if time.perf_counter() >= deadline else Status.FAILED
                break
            rounds += 1
            found, cuts = program.bound(master.rows, master.duals), oracle.separate(np.maximum(point, program.least))
            reached = float(program.gains @ cuts.feasible)
            if min(found, bound) - max(reached, near) < 0.99 * (bound - near):
                last_move = rounds
            if found < bound:
                bound, multipliers = found, master.multipliers()
            if cuts.thorough and reached > value:
                best, value = cuts.feasible, reached
            near = value if cuts.thorough else max(reached, near)
            if report is not None:
                report(Progress(rounds, master.rows.limits.size, value, bound, time.perf_counter() - began))
            if bound - value <= max(options.gap * abs(value), options.floor):
                status = Status.OPTIMAL
                break
            if not cuts.labels or rounds - last_move >= _PATIENCE:
                status = Status.STALLED
                break
            master.add(cuts.rows, cuts.labels)
    return Result(best, value, bound, status, rounds, master.rows.limits.size, multipliers)


class _Master:
    """(1), (2), (4) and those rows (3) that are known, between warm-started solves."""

    def __init__(self, program: BlockProgram) -> None:
        self.program, self.highs = program, _new_solver(program)
        empty = np.empty(0, dtype=np.int64)
        self.rows, self.duals = SparseRows(empty, empty, np.empty(0), np.empty(0)), np.empty(0)
        self.labels = list[RowLabel]()

    def multipliers(self) -> tuple[tuple[float, RowLabel], ...]:
        """Pair the positive multipliers of the last solve with the labels of their rows."""
        return tuple((float(self.duals[place]), self.labels[place]) for place in np.flatnonzero(self.duals))

    def add(self, rows: SparseRows, labels: Sequence[RowLabel]) -> None:
        """Append rows."""
        count = rows.limits.size
        starts = np.searchsorted(rows.rows, np.arange(count)).astype(np.int32)
        free, columns = np.full(count, -highspy.kHighsInf), rows.columns.astype(np.int32)
        self.highs.addRows(count, free, rows.limits, rows.values.size, starts, columns, rows.values)
        self.rows, self.labels = self.rows.joined(rows), [*self.labels, *labels]

    def solve(self, seconds: float) -> Array | None:
        """Solve from the last basis, else from nothing; None if neither ends in time."""
        for _ in range(2):
            if seconds <= 0.0:
                break
            # HiGHS counts the seconds of all runs of one solver together
            self.highs.setOptionValue("time_limit", self.highs.getRunTime() + seconds)
            self.highs.run()
            if self.highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
                raw = self.highs.getSolution()
                # HiGHS's duals of <= rows are non-positive
                self.duals = np.maximum(-np.array(raw.row_dual)[self.program.starts.size :], 0.0)
                return np.array(raw.col_value, dtype=np.float64)
            self.highs.clearSolver()
        return None


def _new_solver(program: BlockProgram) -> highspy.Highs:
    highs = highspy.Highs()
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("solver", "simplex"),
        ("primal_feasibility_tolerance", _TOLERANCE),
        ("dual_feasibility_tolerance", _TOLERANCE),
    ):
        highs.setOptionValue(option, value)
    size, starts = program.gains.size, program.starts
    empty = np.empty(0, dtype=np.int32)
    least = np.full(size, program.least)
    highs.addCols(size, -program.gains, least, 1.0 / program.sizes, 0, empty, empty, np.empty(0))
    ones = np.ones(starts.size)
    columns = np.arange(size, dtype=np.int32)
    highs.addRows(starts.size, ones, ones, size, starts.astype(np.int32), columns, program.sizes)
    return highs
