"""Find the γ with the smallest linear expected error, by row generation or with every row written down.

`generate_rows` states the linear program of `lp_models.gamma_lp` and adds privacy rows that the current point violates:
first rows of the dominating family, then rows of the full set. `write_every_row` solves the program of Lemma 5.1 as a
whole with cvxpy. `certify` proves the solver's point.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import numpy as np

from darrm.errors import SolveError
from darrm.majority import baselines
from darrm.majority.certify import Multiplier, largest, lower_bound
from darrm.majority.closed_form import best_for_non_private_voters, has_closed_form
from darrm.majority.corners import CornerCounts, Row, budget_below
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array
from darrm.optimize.plurality import versions
from darrm.optimize.privacy_oracle import PrivacyOracle
from darrm.optimize.request import Request, in_range
from darrm.priors import Dirichlet, weights_of
from darrm.problem import Problem
from darrm.table.optimality import Solution
from darrm.table.table import Table, certify
from darrm.util.extras import require
from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.highs import Hats, Knots, Ramps
from lp_models.options import Progress, SolveOptions
from lp_models.program import Status
from lp_models.reference import gamma_program, solve_with_cvxpy
from lp_models.row_generation import Result, Separation, minimize_with_rows

# of ε + Δ: below it, floating-point rounding costs more than the distance to the limit ε → 0
LEAST_SIZE = Fraction(1, 2**25)
_LARGEST_FACTOR = Fraction(10**300)
_WIDE_GAP = 1e-6  # relative: above it, simple rules are tried too
# weights below this fraction of the largest are negligible; there a tie-break of the next size decides
_SMALLEST_WEIGHT = 1e-8
_TIE_BREAK = 1e-8
# with more levels than this the tie-break would weaken the bound. The first solve then adds a common prior of the size
# below (the largest from which few rounds lead to the prior alone); the second uses the prior alone and a smaller
# tie-break
_MOST_WITH_SILENCE, _SMALL_TIE_BREAK = 400, 1e-10
_BESIDE: dict[Shape, float] = {Shape.FREE: 1e-6, Shape.MONOTONE: 1e-5}
# with more variables than this, a solve refines a coarse grid that starts with this number of intervals
_MOST_AT_ONCE, _FIRST_INTERVALS = 100, 128
_GAP_OF_START = 1e-4  # relative, of a starting solve: the monotone γ for a free γ, or the γ for fewer voters
# a monotone solve starts from the active rows for K / 4 voters, unless these are too few to be similar
_PART, _FEWEST = 4, 300
_STOPPED = {Status.TIME_LIMIT, Status.INTERRUPTED}


def generate_rows(request: Request) -> Table:
    """Solve by row generation and certify the result; try simple rules where the solver left a gap."""
    problem, prior = request.problem, request.prior
    nearby, factor = in_range(problem.conditional_on_inclusion, LEAST_SIZE)
    program = GammaProgram(PrivacyOracle(nearby, request.shape), weights_of(prior, problem.voters.K), request.report)
    result = program.solve(request.options, request.rows_of_start)
    gamma, multipliers = program.proposal(result, problem, factor)
    if has_closed_form(problem.voters):  # the largest private γ at every l, even if the prior has no weight there
        gamma = best_for_non_private_voters(problem.conditional_on_inclusion)
    solution = Solution(prior, multipliers, result.status.value, request.shape.value, "linear")
    table = certify(problem, gamma).with_solution(solution, made_by(result))
    if table.optimality is None or table.optimality.gap <= max(
        _WIDE_GAP * table.optimality.value, request.options.floor
    ):
        return table
    rules = [table]
    for propose in (baselines.subsampling, baselines.double_subsampling, baselines.truth):
        with suppress(ValueError):
            rule = propose(problem.conditional_on_inclusion)
            if rule.expected_error(prior) < table.optimality.value:
                rules.append(certify(problem, rule).with_solution(solution, table.provenance))
    return min(rules, key=_error)


def write_every_row(request: Request) -> Table:
    """Solve the program of every row of Lemma 5.1 with cvxpy; `SolveError` if the solver finds no optimum."""
    require("cvxpy")
    prior, shape = request.prior, request.shape
    problem, factor = in_range(request.problem.conditional_on_inclusion, LEAST_SIZE)
    K, whole = problem.voters.K, gamma_program(problem)
    matrix, limits = whole.program.matrix, np.full(len(whole.counts), budget_below(problem.target))
    solution = solve_with_cvxpy(expected_error_program(weights_of(prior, K), shape, matrix, limits))
    status = solution.status.value
    if solution.status is not Status.OPTIMAL:
        raise SolveError("the reference solver found no optimum: try --solver production", status=status)
    duals = solution.duals[-len(matrix) :]
    rows = [(float(duals[row]), counts_at(whole.counts[row].tolist())) for row in np.flatnonzero(duals)]
    multipliers = _in_proportion(largest(rows, problem.voters), problem, factor)
    proved = Solution(prior, multipliers, status, shape.value, "linear")
    table = certify(request.problem, NoiseFunction(K, shape.variables_to_gamma(solution.point)))
    versions_of = {"made by": versions("darrm", "cvxpy", "highspy"), "rows written": str(len(matrix))}
    return table.with_solution(proved, {"solver": request.solver, **versions_of})


def counts_at(counts: list[int]) -> CornerCounts:
    """Convert the numbers of voters at the corners of `lp_models.reference.corner_pairs` to the label of their row.

    >>> counts_at([1, 0, 2, 0, 0, 3, 0, 0])
    CornerCounts(high=2, low=0, zeros=4, ones=0, moved_zeros=3, moved_ones=0, moved_zeros_prime=0, moved_ones_prime=0)
    """
    zeros, ones, high, low, *moved = counts + [0] * (8 - len(counts))
    moved_zeros_prime, moved_zeros, moved_ones, moved_ones_prime = moved
    all_zeros, all_ones = zeros + moved_zeros + moved_zeros_prime, ones + moved_ones + moved_ones_prime
    return CornerCounts(high, low, all_zeros, all_ones, moved_zeros, moved_ones, moved_zeros_prime, moved_ones_prime)


class GammaProgram:
    """The linear program of a weighted expected error, its privacy rows, and how it is solved."""

    def __init__(self, oracle: PrivacyOracle, weights: Array, report: Callable[[Progress], None] | None = None) -> None:
        self.oracle, self.weights, self.report = oracle, weights, report
        self.problem, self.shape = oracle.problem, oracle.shape
        self.program = expected_error_program(weights, oracle.shape)

    def solve(self, options: SolveOptions, known: Sequence[Row] = ()) -> Result:
        """Minimize, starting from known active rows, if any."""
        tie_break = self.tie_break()
        if tie_break is None or self.weights.size <= _MOST_WITH_SILENCE:
            return self.solve_linear(options, tie_break, known)
        # first with a small multiple of a common prior added, then with the prior alone: the two solves share most
        # active rows, so two or three rounds with all variables close the gap
        started, common = time.perf_counter(), Dirichlet().weights(self.oracle.voters.K)
        beside = float(np.max(self.weights)) / float(np.max(common)) * common
        mixed = GammaProgram(self.oracle, self.weights + _BESIDE[self.shape] * beside, self.report)
        first = mixed.solve_linear(options, None, known)
        if first.status in _STOPPED:
            return first
        start = self.oracle.beginning(rows_in(first), first.point if np.isfinite(first.value) else None)
        second = self._minimize(left_of(options, started), self.shape.rows(-_SMALL_TIE_BREAK * beside), start)
        return self._with_better_bound(second, first)

    def tie_break(self) -> Array | None:
        """Return a small cost that follows a common prior at the levels with negligible weights."""
        # U[0.5, 1] has weights down to 1e-60 near a tie at K = 501; without a tie-break γ would be arbitrary there. The
        # bound and the value use the prior alone.
        top = float(np.max(self.weights))
        silent = self.weights < _SMALLEST_WEIGHT * top
        if not np.any(silent):
            return None
        common = np.where(silent, Dirichlet().weights(self.oracle.voters.K), 0.0)
        return self.shape.rows(-_TIE_BREAK * top / float(np.max(common)) * common)

    def proposal(
        self, result: Result, problem: Problem, factor: Fraction
    ) -> tuple[NoiseFunction, tuple[Multiplier, ...]]:
        """Return γ, without the last variable of a sampled error, and the multipliers of the original problem."""
        voters = self.oracle.voters
        gamma = NoiseFunction(voters.K, self.shape.variables_to_gamma(result.point[: voters.num_upper_levels]))
        return gamma, _in_proportion(largest(_labelled(result), voters), problem, factor)

    def _minimize(
        self, options: SolveOptions, tie_break: Array | None, start: Separation, knots: Knots | None = None
    ) -> Result:
        return minimize_with_rows(
            self.program, self.oracle, options, tie_break=tie_break, report=self.report, knots=knots, start=start
        )

    def solve_linear(self, options: SolveOptions, tie_break: Array | None, known: Sequence[Row]) -> Result:
        """Minimize; with many levels a free γ starts from a monotone one, and that from the rows for fewer voters."""
        start, is_free = self.oracle.beginning(known), self.shape is Shape.FREE
        if self.weights.size <= _MOST_AT_ONCE:
            return self._minimize(options, tie_break, start)
        started, rough = time.perf_counter(), replace(options, gap=max(options.gap, _GAP_OF_START))
        first: Result | None = None
        if is_free:
            monotone = PrivacyOracle(self.problem, Shape.MONOTONE)
            first = GammaProgram(monotone, self.weights, self.report).solve_linear(rough, None, known)
            gamma = Shape.MONOTONE.variables_to_gamma(first.point)
            if first.status in _STOPPED:
                return replace(first, point=gamma)
            # a monotone γ needs only the dominating family, so its separation is always thorough
            start = self.oracle.beginning(rows_in(first), gamma if np.isfinite(first.value) else None)
        elif not known and (problem := _of_fewer(self.problem)) is not None:
            first = self._solve_for_fewer(problem, rough)
            if first.status in _STOPPED:
                return first
            start = self.oracle.beginning(rows_in(first))
        options = options if first is None else left_of(options, started)
        dear = is_free and self.problem.voters.each.exact_delta > 0  # rows of the border
        knots = (Hats if is_free else Ramps).spread(self.weights.size, _FIRST_INTERVALS, keeps_rows=dear)
        result = self._minimize(options, tie_break, start, knots)
        return result if first is None else self._with_better_bound(result, first)

    def _solve_for_fewer(self, problem: Problem, options: SolveOptions) -> Result:
        """Solve for fewer voters, then stretch γ and the active rows to K; stretched rows are valid."""
        # the share of voters at each corner of an active row depends little on K, so few rows are missing
        n, size, voters = problem.voters.num_upper_levels, self.weights.size, self.oracle.voters
        fewer = GammaProgram(
            PrivacyOracle(problem, self.shape), np.add.reduceat(self.weights, np.arange(n) * size // n)
        )
        result = fewer.solve_linear(options, None, ())
        gamma = np.interp(np.arange(size) * n / size, np.arange(n), self.shape.variables_to_gamma(result.point))
        stretched = {row.stretched(voters.K): y for y, row in result.multipliers if isinstance(row, CornerCounts)}
        multipliers = tuple((y, row) for row, y in stretched.items() if row.is_of(voters))
        return replace(result, point=self.shape.gamma_to_variables(gamma), multipliers=multipliers)

    def _with_better_bound(self, result: Result, before: Result) -> Result:
        """Keep the multipliers of the first solve if a limit stopped the second one before it found better ones."""
        if result.status not in _STOPPED:
            return result

        def bound(solved: Result) -> float:
            rows = largest(_labelled(solved), self.oracle.voters)
            return lower_bound(self.problem, self.weights, self.shape.value, rows)

        return replace(result, multipliers=max((result, before), key=bound).multipliers)


def made_by(result: Result) -> dict[str, str]:
    """Name the solver, its version and its rounds."""
    return {"solver": "production", "made by": versions("darrm", "highspy"), **result.provenance}


def rows_in(result: Result) -> list[Row]:
    """Return the rows of a result that constrain privacy."""
    return [row for _, row in _labelled(result)]


def left_of(options: SolveOptions, started: float) -> SolveOptions:
    """Return options with the time limit reduced by the time since ``started``."""
    return replace(options, time_limit=max(0.0, options.time_limit - (time.perf_counter() - started)))


def _labelled(result: Result) -> list[Multiplier]:
    return [(y, row) for y, row in result.multipliers if isinstance(row, Row)]


def _in_proportion(rows: Iterable[Multiplier], problem: Problem, factor: Fraction) -> tuple[Multiplier, ...]:
    """Scale multipliers to the rows of the original problem, which are smaller by ``factor`` if voters are private."""
    grown = float(min(factor, _LARGEST_FACTOR)) if problem.voters.private_groups else 1.0
    return tuple((y * grown, row) for y, row in rows)


def _error(table: Table) -> float:
    return math.inf if table.optimality is None else table.optimality.value


def _of_fewer(problem: Problem) -> Problem | None:
    voters = problem.voters
    fewer = voters.K // (2 * _PART) * 2 + voters.K % 2  # keeps the parity, so ties too
    is_private = voters.each.is_private
    if fewer < _FEWEST or voters.per_voter is not None or (is_private and problem.exact_m > fewer):
        return None
    return replace(problem, voters=replace(voters, K=fewer, overlap=min(fewer, -(-voters.reached // _PART))))
