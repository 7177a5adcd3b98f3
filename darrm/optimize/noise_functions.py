"""Find the γ with the smallest expected error by row generation.

`generate_rows` states the linear program of `lp_models.gamma_lp` and adds privacy rows that the current point violates:
first rows of the dominating family, then rows of the full set. `certify` proves the solver's point.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from darrm.majority import baselines
from darrm.majority.closed_form import best_for_non_private_voters, has_closed_form
from darrm.majority.corners import CornerCounts
from darrm.majority.error_bound import Multiplier, Row, largest, lower_bound
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array
from darrm.optimize.plurality import versions
from darrm.optimize.privacy_oracle import PrivacyOracle
from darrm.optimize.request import Request, in_range
from darrm.priors import Dirichlet, weights_of
from darrm.problem import Problem, Voters
from darrm.table.optimality import Solution
from darrm.table.table import Table, certify
from darrm.util import checks
from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.knots import Hats, Knots, Ramps
from lp_models.options import Progress, SolveOptions
from lp_models.program import Status
from lp_models.row_generation import Result, minimize_with_rows

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
_KNOTS: dict[Shape, type[Knots]] = {Shape.FREE: Hats, Shape.MONOTONE: Ramps}
_GAP_OF_START = 1e-4  # relative, of a starting solve: the monotone γ for a free γ, or the γ for fewer voters
# a monotone solve starts from the active rows for K / 4 voters, unless these are too few to be similar
_PART, _FEWEST = 4, 300


@dataclass(frozen=True)
class SolverResult:
    """A γ that a solver proposes, with its multipliers and status."""

    gamma: NoiseFunction
    multipliers: tuple[Multiplier, ...]
    status: Status
    provenance: dict[str, str]

    @classmethod
    def of(cls, oracle: PrivacyOracle, result: Result) -> SolverResult:
        """Convert a result; with a sampled error the last variable is not part of γ."""
        voters = oracle.voters
        gamma = NoiseFunction(voters.K, oracle.shape.variables_to_gamma(result.point[: voters.num_upper_levels]))
        rows = largest(_labelled(result), voters)
        provenance = {"solver": "production", "made by": versions("darrm", "highspy"), **result.provenance}
        return cls(gamma, rows, result.status, provenance)


def generate_rows(request: Request) -> Table:
    """Solve by row generation and certify the result."""
    problem, prior = request.problem, request.belief
    nearby, factor = in_range(problem.conditional_on_inclusion, LEAST_SIZE)
    oracle = PrivacyOracle(nearby, request.of_shape)
    found = SolverResult.of(oracle, solve(oracle, weights_of(prior, problem.voters.K), request))
    gamma, multipliers = found.gamma, in_proportion(found.multipliers, problem.voters, factor)
    if has_closed_form(problem.voters):  # the largest private γ at every l, even if the prior has no weight there
        gamma = best_for_non_private_voters(problem.conditional_on_inclusion)
    solution = Solution(prior, multipliers, found.status.value, request.of_shape.value, request.objective)
    table = certify(problem, gamma).with_solution(solution, found.provenance)
    return best_of(table, solution, request)


def in_proportion(multipliers: tuple[Multiplier, ...], voters: Voters, factor: Fraction) -> tuple[Multiplier, ...]:
    """Scale multipliers to the rows of the original problem, which are smaller by ``factor`` if voters are private."""
    grown = float(min(factor, _LARGEST_FACTOR)) if voters.private_kinds else 1.0
    return tuple((y * grown, row) for y, row in multipliers)


def best_of(table: Table, solution: Solution, request: Request) -> Table:
    """Return the best of the table and the simple rules if the solver left a gap."""
    optimality = table.optimality
    if optimality is None or optimality.gap <= max(_WIDE_GAP * optimality.value, request.settings.floor):
        return table
    for propose in (baselines.subsampling, baselines.double_subsampling, baselines.truth):
        with suppress(ValueError):
            rule = propose(request.problem.conditional_on_inclusion)
            if rule.expected_error(solution.prior) < optimality.value:
                simple = certify(request.problem, rule).with_solution(solution, table.provenance)
                table = min(table, simple, key=_error)
    return table


def _error(table: Table) -> float:
    return math.inf if table.optimality is None else table.optimality.value


def solve(oracle: PrivacyOracle, weights: Array, request: Request) -> Result:
    """Minimize the expected error with these weights, starting from the active rows of ``request.start``, if any."""
    known = _rows_of(request.start, oracle.voters)
    tie_break = tie_break_of(weights, oracle)
    if tie_break is None or weights.size <= _MOST_WITH_SILENCE:
        return _solve_linear(oracle, weights, request.settings, tie_break, request.report, known)
    return _solve_through_silence(oracle, weights, request.settings, request.report, known)


def _rows_of(start: Table | None, voters: Voters) -> tuple[Row, ...]:
    if start is None:
        return ()
    checks.instance(Table, start=start, advice="optimize_table and optimize_many return it")
    multipliers = start.optimality.multipliers if start.optimality is not None else None
    return tuple(row for _, row in multipliers or () if row.is_of(voters))


def _solve_linear(
    oracle: PrivacyOracle,
    weights: Array,
    options: SolveOptions,
    tie_break: Array | None,
    report: Callable[[Progress], None] | None,
    known: Sequence[Row] = (),
) -> Result:
    # with many levels a free γ starts from a monotone γ, and a monotone γ from the active rows for fewer voters
    program, start = expected_error_program(weights, oracle.shape), oracle.beginning(known)
    if weights.size <= _MOST_AT_ONCE:
        return minimize_with_rows(program, oracle, options, tie_break=tie_break, report=report, start=start)
    started, rough = time.perf_counter(), replace(options, gap=max(options.gap, _GAP_OF_START))
    found: Result | None = None
    if oracle.shape is Shape.FREE:
        monotone = PrivacyOracle(oracle.problem, Shape.MONOTONE)
        found = _solve_linear(monotone, weights, rough, None, report, known)
        gamma = Shape.MONOTONE.variables_to_gamma(found.point)
        if found.status in {Status.TIME_LIMIT, Status.INTERRUPTED}:
            return replace(found, point=gamma)
        # a monotone γ needs only the dominating family, so its separation is always thorough
        start = oracle.beginning(rows_in(found), gamma if np.isfinite(found.value) else None)
        options = left_of(options, started)
    elif not known and (problem := _of_fewer(oracle.problem)) is not None:
        found = _solve_for_fewer(oracle, problem, weights, rough)
        if found.status in {Status.TIME_LIMIT, Status.INTERRUPTED}:
            return found
        start, options = oracle.beginning(rows_in(found)), left_of(options, started)
    dear = oracle.shape is Shape.FREE and oracle.problem.voters.each.exact_delta > 0  # rows of the border
    knots = _KNOTS[oracle.shape].spread(weights.size, _FIRST_INTERVALS, keeps_rows=dear)
    result = minimize_with_rows(program, oracle, options, tie_break=tie_break, report=report, knots=knots, start=start)
    return result if found is None else _with_better_bound(oracle, weights, result, found)


def _of_fewer(problem: Problem) -> Problem | None:
    voters = problem.voters
    fewer = voters.K // (2 * _PART) * 2 + voters.K % 2  # keeps the parity, so ties too
    is_private = voters.each.is_private
    if fewer < _FEWEST or voters.own is not None or (is_private and problem.exact_m > fewer):
        return None
    return replace(problem, voters=replace(voters, K=fewer, overlap=min(fewer, -(-voters.reached // _PART))))


def _solve_for_fewer(oracle: PrivacyOracle, problem: Problem, weights: Array, options: SolveOptions) -> Result:
    """Solve a monotone problem for fewer voters, then stretch γ and the active rows to K; stretched rows are valid."""
    # the share of voters at each corner of an active row depends little on K, so few rows are missing
    n = problem.voters.num_upper_levels
    bounds = np.arange(n) * weights.size // n
    found = _solve_linear(PrivacyOracle(problem, oracle.shape), np.add.reduceat(weights, bounds), options, None, None)
    places = np.arange(weights.size) * n / weights.size
    gamma = np.interp(places, np.arange(n), oracle.shape.variables_to_gamma(found.point))
    stretched = {row.stretched(oracle.voters.K): y for y, row in found.multipliers if isinstance(row, CornerCounts)}
    multipliers = tuple((y, row) for row, y in stretched.items() if row.is_of(oracle.voters))
    return replace(found, point=oracle.shape.gamma_to_variables(gamma), multipliers=multipliers)


def rows_in(found: Result) -> list[Row]:
    """Return the rows of a result that constrain privacy."""
    return [row for _, row in _labelled(found)]


def _labelled(found: Result) -> list[Multiplier]:
    return [(y, row) for y, row in found.multipliers if isinstance(row, Row)]


def left_of(options: SolveOptions, started: float) -> SolveOptions:
    """Return options with the time limit reduced by the time since ``started``."""
    return replace(options, time_limit=max(0.0, options.time_limit - (time.perf_counter() - started)))


def _solve_through_silence(
    oracle: PrivacyOracle,
    weights: Array,
    options: SolveOptions,
    report: Callable[[Progress], None] | None,
    known: Sequence[Row],
) -> Result:
    # first with a small multiple of a common prior added, then with the prior alone: the two solves share most active
    # rows, so two or three rounds with all variables close the gap
    started, common = time.perf_counter(), Dirichlet().weights(oracle.voters.K)
    beside = float(np.max(weights)) / float(np.max(common)) * common
    first = _solve_linear(oracle, weights + _BESIDE[oracle.shape] * beside, options, None, report, known)
    if first.status in {Status.TIME_LIMIT, Status.INTERRUPTED}:
        return first
    start = oracle.beginning(rows_in(first), first.point if np.isfinite(first.value) else None)
    tie_break = oracle.shape.rows(-_SMALL_TIE_BREAK * beside)
    program, left = expected_error_program(weights, oracle.shape), left_of(options, started)
    second = minimize_with_rows(program, oracle, left, tie_break=tie_break, report=report, start=start)
    return _with_better_bound(oracle, weights, second, first)


def _with_better_bound(oracle: PrivacyOracle, weights: Array, result: Result, before: Result) -> Result:
    """Keep the multipliers of the first solve if the time limit stopped the second one before it found better ones."""
    if result.status not in {Status.TIME_LIMIT, Status.INTERRUPTED}:
        return result
    shape, voters = oracle.shape.value, oracle.voters

    def bound(found: Result) -> float:
        return lower_bound(oracle.problem, weights, shape, largest(_labelled(found), voters))

    return replace(result, multipliers=max((result, before), key=bound).multipliers)


def tie_break_of(weights: Array, oracle: PrivacyOracle) -> Array | None:
    """Return a small cost that follows a common prior at the levels with negligible weights."""
    # U[0.5, 1] has weights down to 1e-60 near a tie at K = 501; without a tie-break γ would be arbitrary there. The
    # bound and the value use the prior alone.
    largest = float(np.max(weights))
    silent = weights < _SMALLEST_WEIGHT * largest
    if not np.any(silent):
        return None
    common = np.where(silent, Dirichlet().weights(oracle.voters.K), 0.0)
    return oracle.shape.rows(-_TIE_BREAK * largest / float(np.max(common)) * common)
