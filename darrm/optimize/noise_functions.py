"""The γ with the smallest expected error, by rows that are generated as they are broken.

`GeneratedRows` states the linear program of `lp_models.gamma_lp`, generates its privacy rows from the dominating family
and, once that is content, from the full set, and hands the solver's point to `certify`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from darrm.errors import checks
from darrm.laws.noise_function import NoiseFunction
from darrm.laws.priors import Dirichlet, weights_of
from darrm.optimize.closed_form import best_for_plain_voters, has_closed_form
from darrm.optimize.plurality import versions
from darrm.optimize.privacy_oracle import PrivacyOracle
from darrm.optimize.question import Question
from darrm.probability import Array
from darrm.problem import Problem, Voters
from darrm.proof.corners import CornerCounts
from darrm.proof.error_bound import Multiplier, Row, largest, lower_bound
from darrm.proof.optimality import Solution
from darrm.proof.table import Table, certify
from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.knots import Hats, Knots, Ramps
from lp_models.options import Progress, SolveOptions
from lp_models.program import Status
from lp_models.row_generation import Result, minimize_with_rows

# weights below this part of the largest say nothing; there a tie-break of the next size decides
_SMALLEST_WEIGHT = 1e-8
_TIE_BREAK = 1e-8
# above so many places that tie-break is in the way of the bound: such a prior is solved for with a common one beside
# it first, of this size (the largest from which few rounds lead to the prior alone), and then by itself with a smaller
# tie-break
_MOST_WITH_SILENCE, _SMALL_TIE_BREAK = 400, 1e-10
_BESIDE: dict[Shape, float] = {Shape.FREE: 1e-6, Shape.MONOTONE: 1e-5}
# with more variables than these a solve goes from coarse to fine, and begins with so many intervals between knots
_MOST_AT_ONCE, _FIRST_INTERVALS = 100, 128
_KNOTS: dict[Shape, type[Knots]] = {Shape.FREE: Hats, Shape.MONOTONE: Ramps}
_GAP_OF_START = 1e-4  # relative, of what a solve begins with: the monotone γ of a free one, that of fewer voters
# a monotone solve begins with the rows that hold for one of so many voters, if these are not too few to be like them
_PART, _FEWEST = 4, 300


@dataclass(frozen=True)
class Found:
    """A γ that a solver proposes, and what it says of it."""

    gamma: NoiseFunction
    multipliers: tuple[Multiplier, ...]
    status: Status
    provenance: dict[str, str]

    @classmethod
    def of(cls, oracle: PrivacyOracle, result: Result) -> Found:
        """Read a result; of a sampled error the last variable is no part of γ."""
        voters = oracle.voters
        gamma = NoiseFunction(voters.K, oracle.shape.variables_to_gamma(result.point[: voters.half_size]))
        rows = largest(_labelled(result), voters)
        provenance = {"solver": "production", "made by": versions("darrm", "highspy"), **result.provenance}
        return cls(gamma, rows, result.status, provenance)


class GeneratedRows:
    """The production program: rows are found where they are broken."""

    def answers(self, question: Question) -> bool:
        """Whether the prior makes the expected error of a γ linear, and nobody asked for every row."""
        return question.problem.has_noise_function and question.solver == "production" and not question.is_sampled

    def table(self, question: Question) -> Table:
        """Solve, and prove what came out."""
        problem, prior = question.problem, question.belief
        oracle = PrivacyOracle(problem.for_certain, question.of_shape)
        found = Found.of(oracle, solve(oracle, weights_of(prior, problem.voters.K), question))
        gamma = found.gamma
        if has_closed_form(problem.voters):  # the largest private γ at every l, also where the prior is silent
            gamma = best_for_plain_voters(problem.for_certain)
        solution = Solution(prior, found.multipliers, found.status.value, question.of_shape.value, question.objective)
        return certify(problem, gamma).with_solution(solution, found.provenance)


def solve(oracle: PrivacyOracle, weights: Array, question: Question) -> Result:
    """Minimize the expected error of so many weights, from the rows of a table near by if there is one."""
    known = _rows_of(question.start, oracle.voters)
    tie_break = tie_break_of(weights, oracle)
    if tie_break is None or weights.size <= _MOST_WITH_SILENCE:
        return _solve_linear(oracle, weights, question.settings, tie_break, question.report, known)
    return _solve_through_silence(oracle, weights, question.settings, question.report, known)


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
    # a free γ then starts from a monotone one, and a monotone one from the rows that hold for fewer voters
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
        # the dominating family is all that a monotone γ needs, and its looks are thorough
        start = oracle.beginning(rows_in(found), gamma if np.isfinite(found.value) else None)
        options = left_of(options, started)
    elif not known and (problem := _of_fewer(oracle.problem)) is not None:
        found = _solve_for_fewer(oracle, problem, weights, rough)
        if found.status in {Status.TIME_LIMIT, Status.INTERRUPTED}:
            return found
        start, options = oracle.beginning(rows_in(found)), left_of(options, started)
    dear = oracle.shape is Shape.FREE and oracle.problem.voters.each.exact_delta > 0  # the border of the full set
    knots = _KNOTS[oracle.shape].spread(weights.size, _FIRST_INTERVALS, keeps_rows=dear)
    result = minimize_with_rows(program, oracle, options, tie_break=tie_break, report=report, knots=knots, start=start)
    return result if found is None else _with_better_bound(oracle, weights, result, found)


def _of_fewer(problem: Problem) -> Problem | None:
    voters = problem.voters
    fewer = voters.K // (2 * _PART) * 2 + voters.K % 2  # ties as before
    is_private = voters.each.is_private
    if fewer < _FEWEST or voters.own is not None or (is_private and problem.exact_m > fewer):
        return None
    return replace(problem, voters=replace(voters, K=fewer, overlap=min(fewer, -(-voters.reached // _PART))))


def _solve_for_fewer(oracle: PrivacyOracle, problem: Problem, weights: Array, options: SolveOptions) -> Result:
    """Solve a monotone problem for fewer voters; stretch γ and the rows that hold, valid ones whatever they are of."""
    # about the same share of the voters sits at each corner where a row holds, so few rows are missing
    n = problem.voters.half_size
    bounds = np.arange(n) * weights.size // n
    found = _solve_linear(PrivacyOracle(problem, oracle.shape), np.add.reduceat(weights, bounds), options, None, None)
    places = np.arange(weights.size) * n / weights.size
    gamma = np.interp(places, np.arange(n), oracle.shape.variables_to_gamma(found.point))
    stretched = {row.stretched(oracle.voters.K): y for y, row in found.multipliers if isinstance(row, CornerCounts)}
    multipliers = tuple((y, row) for row, y in stretched.items() if row.is_of(oracle.voters))
    return replace(found, point=oracle.shape.gamma_to_variables(gamma), multipliers=multipliers)


def rows_in(found: Result) -> list[Row]:
    """Return the rows of a result that speak of voters."""
    return [row for _, row in _labelled(found)]


def _labelled(found: Result) -> list[Multiplier]:
    return [(y, row) for y, row in found.multipliers if isinstance(row, Row)]


def left_of(options: SolveOptions, started: float) -> SolveOptions:
    """Return options with the time that is left since a start."""
    return replace(options, time_limit=max(0.0, options.time_limit - (time.perf_counter() - started)))


def _solve_through_silence(
    oracle: PrivacyOracle,
    weights: Array,
    options: SolveOptions,
    report: Callable[[Progress], None] | None,
    known: Sequence[Row],
) -> Result:
    # with a little of a common prior beside the silent one first, then for the latter alone: the rows that hold for
    # both together nearly hold for one, so two or three rounds with all variables close the gap
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
    """Keep the multipliers of the part before where time ran out before better ones came."""
    if result.status not in {Status.TIME_LIMIT, Status.INTERRUPTED}:
        return result
    shape, voters = oracle.shape.value, oracle.voters

    def bound(found: Result) -> float:
        return lower_bound(oracle.problem, weights, shape, largest(_labelled(found), voters))

    return replace(result, multipliers=max((result, before), key=bound).multipliers)


def tie_break_of(weights: Array, oracle: PrivacyOracle) -> Array | None:
    """Return a small cost that prefers what a common prior likes, where the prior has next to no opinion."""
    # U[0.5, 1] gives the numbers of ones near a tie weights down to 1e-60 at K = 501; without this the solver would
    # leave γ there wherever it happens to be. The bound and the value are about the prior alone.
    largest = float(np.max(weights))
    silent = weights < _SMALLEST_WEIGHT * largest
    if not np.any(silent):
        return None
    common = np.where(silent, Dirichlet().weights(oracle.voters.K), 0.0)
    return oracle.shape.rows(-_TIE_BREAK * largest / float(np.max(common)) * common)
