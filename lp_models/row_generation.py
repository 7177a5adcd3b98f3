"""Row generation: minimize a cost subject to too many rows to list, which an oracle separates.

The master program holds some of the rows. Each round solves it for a lower bound. The oracle returns rows that the
solution violates and a nearby feasible point, an upper bound. The loop stops when the two bounds meet. If the oracle's
rows are deep and spread out, querying the master's vertex needs fewer rounds and less time up to K = 5,001 than in–out
separation with any weight in 0.1 … 0.5.

**Coarse to fine.** With many variables the master starts with a few (knots) and gets more when the knots, and not
missing rows, cause the gap. *The result is optimal for any levels:* a point is judged by all rows, at its value in the
whole program, and the bound is the Lagrangian one over all variables, which holds for any multipliers.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lp_models.highs import Knots, Master
from lp_models.options import Progress, SolveOptions
from lp_models.program import Array, BlockProgram, LinearProgram, RowLabel, Solution, Status

# knots are refined when missing rows cause at most this share of the gap
_MAX_MISSING_SHARE = 0.5
_MAX_FEW_ROWS = 100  # are never dropped
_WIDE_RELATIVE_GAP = 1e-6  # relative to the value: a larger gap does not come from the solver's precision
_SHARE_OF_ROUNDS = 0.9  # of a time limit; the remainder is for the check of all rows that gives a value


@dataclass(frozen=True, eq=False)
class Separation:
    # the examined rows that the point violates: (r, n), or `lp_models.program.SparseRows`
    matrix: Any
    limits: Array  # their limits, (r,)
    feasible: Array  # a point near the query, (n,), that satisfies every examined row
    thorough: bool  # whether every row of the feasible set was examined
    labels: Sequence[RowLabel] = ()  # the oracle's names of the rows, r of them or none


def start_at(feasible: Array) -> Separation:
    return Separation(np.empty((0, feasible.size)), np.empty(0), feasible, thorough=True)


class Oracle(Protocol):
    def separate(self, point: Array, *, thorough: bool, deadline: float) -> Separation:
        """Find violated rows, all if ``thorough``; `TimeoutError` when `time.perf_counter` passes ``deadline``."""
        ...


@dataclass(frozen=True, eq=False)
class Result:
    """``point`` satisfies every row up to rounding, unless the time limit prevented every check of all rows."""

    point: Array
    value: float
    bound: float
    status: Status
    rounds: int
    rows_generated: int
    multipliers: tuple[tuple[float, RowLabel], ...]  # positive multipliers that prove ``bound``, with their rows

    @property
    def provenance(self) -> dict[str, str]:
        return {"rounds": str(self.rounds), "rows generated": str(self.rows_generated)}


def minimize_with_rows(
    program: LinearProgram | BlockProgram,
    oracle: Oracle,
    options: SolveOptions,
    *,
    tie_break: Array | None = None,
    report: Callable[[Progress], None] | None = None,
    knots: Knots | None = None,
    start: Separation | None = None,
) -> Result:
    """Minimize ``program`` subject to its rows and all of the oracle's; a `BlockProgram` is maximized.

    ``tie_break`` is a small extra cost (n,) between points of equal cost; ``knots`` select the variables to begin with;
    ``start`` has rows and, if it is thorough, a point: no result is worse. At a time limit, after Ctrl-C, and when the
    solver fails the result is the best point and bound so far.
    """
    master = Master(program, knots)
    loop = _Loop(master, oracle, options, tie_break, report)
    if start is not None:
        if start.limits.size:
            master.add_rows(start.matrix, start.limits, start.labels)
        if start.thorough:
            loop.accept(start.feasible)
    try:
        status = loop.run()
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return loop.build_result(status)


@dataclass(eq=False)
class _Loop:
    master: Master
    oracle: Oracle
    options: SolveOptions
    tie_break: Array | None
    report: Callable[[Progress], None] | None
    best: Array | None = None
    value: float = np.inf
    bound: float = -np.inf
    multipliers: tuple[tuple[float, RowLabel], ...] = ()  # of the bound
    mark: tuple[int, float, float] = (0, np.inf, -np.inf)  # round, value and bound at the last progress
    candidate_value: float = np.inf
    rounds: int = 0
    num_generated: int = 0

    def __post_init__(self) -> None:
        self.started = time.perf_counter()
        self.end = self.started + self.options.time_limit
        self.deadline = self.started + _SHARE_OF_ROUNDS * self.options.time_limit
        self.candidate = np.zeros(self.master.cost.size)

    def run(self) -> Status:
        """Repeat rounds with the tie-break, then without it if the solve stalls.

        Without a tie-break the master jumps between points of equal cost in every round and wastes rows.
        """
        if self.tie_break is None:
            return self.run_rounds()
        self.master.add_cost(self.tie_break)
        status = self.run_rounds()
        if status is not Status.STALLED:
            return status
        tied_point, tied_value = self.best, self.value
        self.mark = (self.rounds, np.inf, -np.inf)
        self.master.add_cost(np.zeros_like(self.tie_break))
        status = self.run_rounds()
        if status in {Status.OPTIMAL, Status.STALLED}:
            if tied_point is not None and tied_value - self.value <= self.compute_tolerance(self.value):
                self.best, self.value = tied_point, tied_value
            elif time.perf_counter() < self.deadline:
                self.break_ties(self.tie_break)
        return status

    def break_ties(self, tie_break: Array) -> None:
        """Repeat rounds for the cost plus the small extra one; keep the result if its value is as good."""
        best, value, bound, multipliers = self.best, self.value, self.bound, self.multipliers
        max_value = value + max(self.compute_tolerance(value), value - bound)
        self.best, self.value, self.bound, self.candidate_value = None, np.inf, -np.inf, np.inf
        self.mark = (self.rounds, np.inf, -np.inf)
        self.master.add_cost(tie_break)
        try:
            self.run_rounds()
        finally:
            if self.best is None or self.value > max_value:
                self.best, self.value = best, value
            self.bound, self.multipliers = bound, multipliers

    def run_rounds(self) -> Status:
        has_new_basis = False
        while True:
            try:
                status = self.run_round()
            except TimeoutError:
                return Status.TIME_LIMIT
            if self.has_moved():
                has_new_basis = False
            elif self.rounds - self.mark[0] >= self.options.patience * (20 if self.is_wide() else 1):
                status = status or Status.STALLED
            if status is Status.STALLED and not has_new_basis:
                has_new_basis, status = True, None
                self.mark = (self.rounds, *self.mark[1:])
                self.master.forget()
            if status is not None:
                return status
            if time.perf_counter() >= self.deadline:
                return Status.TIME_LIMIT

    def run_round(self) -> Status | None:
        solution = self.master.solve(self.deadline - time.perf_counter())
        self.rounds += 1
        if solution.bound > self.bound:
            labeled_duals = zip(solution.duals.tolist(), self.master.labels, strict=True)
            self.bound, self.multipliers = solution.bound, tuple(pair for pair in labeled_duals if pair[0] > 0.0)
        is_restricted = self.master.knots is not None and not self.master.knots.is_full
        if solution.status is Status.FAILED and not is_restricted:
            return Status.TIME_LIMIT if time.perf_counter() >= self.deadline else Status.FAILED
        # without time for a check here, `build_result` makes it feasible
        self.candidate = self.candidate if np.isfinite(self.candidate_value) else solution.point
        cuts = self.oracle.separate(solution.point, thorough=False, deadline=self.deadline)
        cut_value = self.master.value(cuts.feasible)
        if cut_value < self.candidate_value:
            self.candidate, self.candidate_value = cuts.feasible, cut_value
        was_refined = self.refine(cut_value, solution, cuts)
        if not (was_refined or cuts.thorough) and (cuts.limits.size == 0 or self.is_closed(cut_value)):
            cuts = self.oracle.separate(solution.point, thorough=True, deadline=self.deadline)
        self.accept_or_check(cuts)
        if self.report is not None:
            value, sign = min(self.value, self.candidate_value), self.master.sign
            seconds = time.perf_counter() - self.started
            self.report(Progress(self.rounds, self.master.limits.size, sign * value, sign * self.bound, seconds))
        if self.is_closed(self.value):
            return Status.OPTIMAL
        if cuts.limits.size == 0:
            return None if was_refined else Status.STALLED
        knots = self.master.knots  # if separation costs more than solving, coarse masters keep more rows
        variables = self.master.cost.size if knots is not None and knots.keeps_rows else self.master.variables
        if self.master.limits.size > max(_MAX_FEW_ROWS, self.options.rows_per_variable * variables):
            self.master.drop_idle_rows(self.options.idle_rounds)
        self.add_cuts(cuts)
        return None

    def accept_or_check(self, cuts: Separation) -> None:
        if cuts.thorough:
            self.accept(cuts.feasible)
            return
        if not self.is_closed(self.candidate_value):
            return
        cuts = self.oracle.separate(self.candidate, thorough=True, deadline=self.deadline)
        self.accept(cuts.feasible)
        self.candidate, self.candidate_value = cuts.feasible, self.master.value(cuts.feasible)
        self.add_cuts(cuts)

    def add_cuts(self, cuts: Separation) -> None:
        self.master.add_rows(cuts.matrix, cuts.limits, cuts.labels)
        self.num_generated += cuts.limits.size

    def refine(self, value: float, solution: Solution, cuts: Separation) -> bool:
        """Add knots if few knots, and not missing rows, cause the gap; return whether they do."""
        knots, missing_gap = self.master.knots, value - solution.value
        if knots is None or knots.is_full or self.is_closed(value):
            return False
        has_failed = solution.status is Status.FAILED
        if not has_failed and cuts.limits.size and missing_gap > _MAX_MISSING_SHARE * (value - solution.bound):
            return False
        self.master.drop_idle_rows(1)
        self.master.restrict(knots.refine())
        return True

    def is_wide(self) -> bool:
        return self.candidate_value - self.bound > _WIDE_RELATIVE_GAP * abs(self.candidate_value)

    def has_moved(self) -> bool:
        """Return whether value or bound has moved by a share of the gap since the mark; if so, reset the mark."""
        _, value, bound = self.mark
        # rounding may put the value below the bound; a negative step would always count as progress
        step = (0.01 if self.is_wide() else 0.1) * max(0.0, self.candidate_value - self.bound)
        is_moved = not np.isfinite(value) or self.candidate_value < value - step or self.bound > bound + step
        if is_moved:
            self.mark = (self.rounds, self.candidate_value, self.bound)
        return is_moved

    def accept(self, feasible: Array) -> None:
        """Keep the better of the incumbent and a feasible point; of equal ones the later breaks ties better."""
        value = self.master.value(feasible)
        if value <= self.value:
            self.best, self.value = feasible, value

    def is_closed(self, value: float) -> bool:
        if not (np.isfinite(value) and np.isfinite(self.bound)):
            return False
        return value - self.bound <= self.compute_tolerance(value)

    def compute_tolerance(self, value: float) -> float:
        return max(self.options.gap * abs(value), self.options.floor)

    def build_result(self, status: Status) -> Result:
        """Collect the result; unless the gap is closed, check the most promising point in the time left."""
        if status is not Status.OPTIMAL or self.best is None:
            with suppress(TimeoutError):
                self.accept(self.oracle.separate(self.candidate, thorough=True, deadline=self.end).feasible)
        return Result(
            point=self.candidate if self.best is None else self.best,
            value=self.master.sign * self.value,
            bound=self.master.sign * float(self.bound),
            status=status,
            rounds=self.rounds,
            rows_generated=self.num_generated,
            multipliers=self.multipliers,
        )
