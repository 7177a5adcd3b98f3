"""Find the γ with the smallest expected error; `certify` proves the solver's point.

`generate_rows` adds privacy rows that the current point violates to the program of `lp_models.gamma_lp`: first rows of
the dominating family, then of the full set. `write_every_row` solves the whole program of Lemma 5.1 with cvxpy.
`fit_draws` minimizes the expected error over draws of a prior, absolute value included [D, Eq. 2].
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from darrm.errors import SolveError
from darrm.majority import baselines
from darrm.majority.certify import Multiplier, largest, lower_bound
from darrm.majority.closed_form import best_for_non_private_voters, has_closed_form
from darrm.majority.corners import CornerCounts, Row, budget_below
from darrm.majority.dominating import choose_violated, stop_after
from darrm.majority.groups import GroupSet, make_row_set
from darrm.majority.noise_function import NoiseFunction, differences, number_of_draws
from darrm.numerics import Array
from darrm.optimize.plurality import make_provenance, versions
from darrm.optimize.request import LARGEST_FACTOR, Request, count_thorough_rows, scale_to_float_range
from darrm.priors import Dirichlet, compute_weights
from darrm.problem import Problem
from darrm.table.optimality import Optimality, Solution
from darrm.table.table import Table, certify
from darrm.util.extras import require
from lp_models.gamma_lp import EpigraphOracle, SampledError, Shape, expected_error_program, sampled_error_program
from lp_models.highs import Hats, Knots, Ramps
from lp_models.options import Progress, SolveOptions
from lp_models.program import Status
from lp_models.reference import gamma_program, solve_with_cvxpy
from lp_models.row_generation import Result, Separation, minimize_with_rows

# of ε + Δ: below it, floating-point rounding costs more than the distance to the limit ε → 0
MIN_SIZE = Fraction(1, 2**25)
_MIN_RETRY_GAP = 1e-6  # relative: above it, simple rules are tried too
# weights below this fraction of the largest are negligible; there a tie-break of the size below decides
_NEGLIGIBLE_WEIGHT = 1e-8
_TIE_BREAK = 1e-8
# with more levels than this, that tie-break would weaken the bound: a first solve adds a common prior with the weight
# below, the largest from which a second solve needs few rounds; the second has the prior alone and a smaller tie-break
_MAX_TIE_BREAK_LEVELS, _SMALL_TIE_BREAK = 400, 1e-10
_COMMON_PRIOR_WEIGHT: dict[Shape, float] = {Shape.FREE: 1e-6, Shape.MONOTONE: 1e-5}
# with more variables than this, a solve refines a coarse grid that starts with this number of intervals
_MAX_UNREFINED_SIZE, _FIRST_INTERVALS = 100, 128
_START_GAP = 1e-4  # relative, of a solve that starts another: the monotone γ for a free γ, or the γ for fewer voters
# a monotone solve starts from the active rows for K / 4 voters, unless these are too few to be similar
_VOTER_RATIO, _MIN_START_VOTERS = 4, 300
_STOPPED = {Status.TIME_LIMIT, Status.INTERRUPTED}


def generate_rows(request: Request) -> Table:
    """Solve by row generation, and try simple rules, too, if the solver leaves a gap."""
    problem, prior = request.problem, request.prior
    scaled, factor = scale_to_float_range(problem.conditional_on_inclusion, MIN_SIZE)
    weights = compute_weights(prior, problem.voters.K)
    program = GammaProgram(PrivacyOracle(scaled, request.shape), weights, request.report)
    result = program.solve(request.options, request.rows_of_start)
    gamma, multipliers = program.read_proposal(result, problem, factor)
    if has_closed_form(problem.voters):  # the largest private γ at every l, even if the prior has no weight there
        gamma = best_for_non_private_voters(problem.conditional_on_inclusion)
    solution = Solution(prior, multipliers, result.status.value, request.shape.value, "linear")
    table = certify(problem, gamma).with_solution(solution, {"solver": "production", **make_provenance(result)})
    optimality = table.optimality
    if optimality is None or optimality.gap <= max(_MIN_RETRY_GAP * optimality.value, request.options.floor):
        return table
    best, least_error = table, optimality.value
    for propose in (baselines.subsampling, baselines.double_subsampling, baselines.truth):
        with suppress(ValueError):
            rule = propose(problem.conditional_on_inclusion)
            if rule.expected_error(prior) < least_error:
                rule_table = certify(problem, rule).with_solution(solution, table.provenance)
                if (error := rule_table.gamma.expected_error(prior)) < least_error:
                    best, least_error = rule_table, error
    return best


def write_every_row(request: Request) -> Table:
    """Solve the program of every row of Lemma 5.1 with cvxpy; `SolveError` if the solver finds no optimum."""
    require("cvxpy")
    prior, shape = request.prior, request.shape
    problem, factor = scale_to_float_range(request.problem.conditional_on_inclusion, MIN_SIZE)
    K, full = problem.voters.K, gamma_program(problem)
    matrix, limits = full.program.matrix, np.full(len(full.counts), budget_below(problem.target))
    solution = solve_with_cvxpy(expected_error_program(compute_weights(prior, K), shape, matrix, limits))
    status = solution.status.value
    if solution.status is not Status.OPTIMAL:
        raise SolveError("the reference solver found no optimum: try --solver production", status=status)
    duals = solution.duals[-len(matrix) :]
    rows = [(float(duals[row]), label_corner_counts(full.counts[row].tolist())) for row in np.flatnonzero(duals)]
    multipliers = _rescale(rows, problem, factor)
    proof = Solution(prior, multipliers, status, shape.value, "linear")
    table = certify(request.problem, NoiseFunction(K, shape.variables_to_gamma(solution.point)))
    versions_of = {"made by": versions("darrm", "cvxpy", "highspy"), "rows written": str(len(matrix))}
    return table.with_solution(proof, {"solver": request.solver, **versions_of})


def label_corner_counts(counts: list[int]) -> CornerCounts:
    """Convert the numbers of voters at the corners of `lp_models.reference.corner_pairs` to the label of their row."""
    zeros, ones, high, low, *moved_counts = counts + [0] * (8 - len(counts))
    moved_zeros_prime, moved_zeros, moved_ones, moved_ones_prime = moved_counts
    all_zeros, all_ones = zeros + moved_zeros + moved_zeros_prime, ones + moved_ones + moved_ones_prime
    return CornerCounts(high, low, all_zeros, all_ones, moved_zeros, moved_ones, moved_zeros_prime, moved_ones_prime)


class GammaProgram:
    def __init__(self, oracle: PrivacyOracle, weights: Array, report: Callable[[Progress], None] | None = None) -> None:
        self.oracle, self.weights, self.report = oracle, weights, report
        self.problem, self.shape = oracle.problem, oracle.shape
        self.program = expected_error_program(weights, oracle.shape)

    def solve(self, options: SolveOptions, rows: Sequence[Row] = ()) -> Result:
        tie_break = self.build_tie_break()
        if tie_break is None or self.weights.size <= _MAX_TIE_BREAK_LEVELS:
            return self.solve_linear(options, tie_break, rows)
        # first with a small multiple of a common prior added, then with the prior alone: the two solves share most
        # active rows, so two or three rounds with all variables close the gap
        start_time, common = time.perf_counter(), Dirichlet().weights(self.oracle.voters.K)
        extra = float(np.max(self.weights)) / float(np.max(common)) * common
        mixed = GammaProgram(self.oracle, self.weights + _COMMON_PRIOR_WEIGHT[self.shape] * extra, self.report)
        first = mixed.solve_linear(options, None, rows)
        if first.status in _STOPPED:
            return first
        start = self.oracle.start_from(_list_rows(first), first.point if np.isfinite(first.value) else None)
        second = self._minimize(_subtract_time(options, start_time), self.shape.rows(-_SMALL_TIE_BREAK * extra), start)
        return self._with_better_bound(second, first)

    def build_tie_break(self) -> Array | None:
        """Return a small cost that follows a common prior at the levels with negligible weights."""
        # U[0.5, 1] has weights down to 1e-60 near a tie at K = 501, where γ would be arbitrary without a tie-break
        largest_weight = float(np.max(self.weights))
        is_negligible = self.weights < _NEGLIGIBLE_WEIGHT * largest_weight
        if not np.any(is_negligible):
            return None
        common = np.where(is_negligible, Dirichlet().weights(self.oracle.voters.K), 0.0)
        return self.shape.rows(-_TIE_BREAK * largest_weight / float(np.max(common)) * common)

    def read_proposal(
        self, result: Result, problem: Problem, factor: Fraction
    ) -> tuple[NoiseFunction, tuple[Multiplier, ...]]:
        """Return γ, without θ of a sampled error, and the multipliers of the original problem."""
        voters = self.oracle.voters
        gamma = NoiseFunction(voters.K, self.shape.variables_to_gamma(result.point[: voters.num_upper_levels]))
        return gamma, _rescale(_list_labelled(result), problem, factor)

    def _minimize(
        self, options: SolveOptions, tie_break: Array | None, start: Separation, knots: Knots | None = None
    ) -> Result:
        return minimize_with_rows(
            self.program, self.oracle, options, tie_break=tie_break, report=self.report, knots=knots, start=start
        )

    def solve_linear(self, options: SolveOptions, tie_break: Array | None, rows: Sequence[Row]) -> Result:
        """Solve; with many levels a free γ starts from a monotone γ, and that γ from the rows for fewer voters."""
        start, is_free = self.oracle.start_from(rows), self.shape is Shape.FREE
        if self.weights.size <= _MAX_UNREFINED_SIZE:
            return self._minimize(options, tie_break, start)
        start_time, coarse = time.perf_counter(), replace(options, gap=max(options.gap, _START_GAP))
        first: Result | None = None
        if is_free:
            monotone_oracle = PrivacyOracle(self.problem, Shape.MONOTONE)
            first = GammaProgram(monotone_oracle, self.weights, self.report).solve_linear(coarse, None, rows)
            gamma = Shape.MONOTONE.variables_to_gamma(first.point)
            if first.status in _STOPPED:
                return replace(first, point=gamma)
            # a monotone γ needs only the dominating family, so its separation is always thorough
            start = self.oracle.start_from(_list_rows(first), gamma if np.isfinite(first.value) else None)
        elif not rows and (problem := _shrink_problem(self.problem)) is not None:
            first = self._solve_for_fewer(problem, coarse)
            if first.status in _STOPPED:
                return first
            start = self.oracle.start_from(_list_rows(first))
        options = options if first is None else _subtract_time(options, start_time)
        keeps_rows = is_free and self.problem.voters.each.exact_delta > 0  # rows of the border
        knots = (Hats if is_free else Ramps).spread(self.weights.size, _FIRST_INTERVALS, keeps_rows=keeps_rows)
        result = self._minimize(options, tie_break, start, knots)
        return result if first is None else self._with_better_bound(result, first)

    def _solve_for_fewer(self, problem: Problem, options: SolveOptions) -> Result:
        """Solve for fewer voters, then stretch γ and the active rows to K; stretched rows are valid."""
        # the share of voters at each corner of an active row depends little on K, so few rows are missing
        n, size, voters = problem.voters.num_upper_levels, self.weights.size, self.oracle.voters
        smaller_program = GammaProgram(
            PrivacyOracle(problem, self.shape), np.add.reduceat(self.weights, np.arange(n) * size // n)
        )
        result = smaller_program.solve_linear(options, None, ())
        gamma = np.interp(np.arange(size) * n / size, np.arange(n), self.shape.variables_to_gamma(result.point))
        stretched_rows = {row.stretch(voters.K): y for y, row in result.multipliers if isinstance(row, CornerCounts)}
        multipliers = tuple((y, row) for row, y in stretched_rows.items() if row.is_row_of(voters))
        return replace(result, point=self.shape.gamma_to_variables(gamma), multipliers=multipliers)

    def _with_better_bound(self, result: Result, first: Result) -> Result:
        """Keep the multipliers of the first solve if a limit stopped the second one before it found better ones."""
        if result.status not in _STOPPED:
            return result

        def compute_bound(candidate: Result) -> float:
            rows = largest(_list_labelled(candidate), self.oracle.voters)
            return lower_bound(self.problem, self.weights, self.shape.value, rows)

        return replace(result, multipliers=max((result, first), key=compute_bound).multipliers)


def _list_rows(result: Result) -> list[Row]:
    return [row for _, row in _list_labelled(result)]


def _subtract_time(options: SolveOptions, start_time: float) -> SolveOptions:
    return replace(options, time_limit=max(0.0, options.time_limit - (time.perf_counter() - start_time)))


def _list_labelled(result: Result) -> list[Multiplier]:
    return [(y, row) for y, row in result.multipliers if isinstance(row, Row)]


def _rescale(rows: Sequence[tuple[float, Row]], problem: Problem, factor: Fraction) -> tuple[Multiplier, ...]:
    """Scale multipliers to the rows of the original problem, which are smaller by ``factor`` if voters are private."""
    ratio = float(min(factor, LARGEST_FACTOR)) if problem.voters.private_groups else 1.0
    return tuple((y * ratio, row) for y, row in largest(rows, problem.voters))


def _shrink_problem(problem: Problem) -> Problem | None:
    voters = problem.voters
    size = voters.K // (2 * _VOTER_RATIO) * 2 + voters.K % 2  # keeps the parity, so ties too
    is_private = voters.each.is_private
    if size < _MIN_START_VOTERS or voters.per_voter is not None or (is_private and problem.exact_m > size):
        return None
    return replace(problem, voters=replace(voters, K=size, overlap=min(size, -(-voters.reached // _VOTER_RATIO))))


# the border of the full set is searched too, once no row of the dominating family exceeds the budget by more than this
# factor
_BORDER_FACTOR = 1.01
# a row is violated if its cost exceeds the budget by more than this fraction of it
_ROW_TOLERANCE = 1e-12


class PrivacyOracle:
    def __init__(self, problem: Problem, shape: Shape) -> None:
        self.problem, self.shape, self.voters = problem, shape, problem.voters
        self.full = make_row_set(problem.voters, problem.target.exact_epsilon)
        self.budget = budget_below(problem.target)

    def separate(self, point: Array, *, thorough: bool, deadline: float) -> Separation:
        """Find violated rows of both chains, which suffice for Δ = 0 or a monotone γ, else of the border too."""
        gamma, full_set = self.shape.variables_to_gamma(point), self.full
        limit = self.budget * (1.0 + _ROW_TOLERANCE)
        rows: Sequence[Row]
        if isinstance(full_set, GroupSet):
            group_maxima = full_set.maxima(gamma, limit, deadline)
            worst, rows, thorough = group_maxima.worst, [row for _, row in group_maxima.broken], True
        elif thorough:
            maxima = full_set.maxima(gamma, limit, deadline)
            worst, rows = maxima.worst, self.choose_useful(maxima.broken, limit)
        else:
            find_maxima = partial(full_set.family.maxima, gamma, full_set.exp_epsilon, deadline, floor=limit)
            chains = [find_maxima()]
            is_falling = bool(np.any(np.diff(gamma) < 0.0))
            thorough = not is_falling or full_set.corners.delta == 0.0
            border_rows: tuple[tuple[float, CornerCounts], ...] = ()
            worst = chains[0].worst
            if not thorough and worst <= self.budget * _BORDER_FACTOR:
                border_worst, border_rows = full_set.border(gamma, limit, deadline)
                worst = max(worst, border_worst)
            elif is_falling:
                chains.append(find_maxima(low=True))
                worst = max(worst, chains[1].worst)
            rows = [full_set.family.row(best, j) for best in chains for j in choose_violated(best.costs, limit)]
            rows += self.choose_useful(border_rows, limit)
        # recomputed from γ, which is clipped
        feasible = self.shape.gamma_to_variables(gamma * (self.budget / max(worst, self.budget)))
        matrix = self.compute_rows(rows, deadline)
        return Separation(matrix, np.full(len(rows), self.budget), feasible, thorough, rows)

    def start_from(self, rows: Sequence[Row], point: Array | None = None) -> Separation:
        feasible = np.zeros(self.voters.num_upper_levels) if point is None else point
        limits = np.full(len(rows), self.budget)
        matrix = self.compute_rows(rows, np.inf)
        return Separation(matrix, limits, feasible, thorough=point is not None, labels=rows)

    def compute_rows(self, rows: Sequence[Row], deadline: float) -> Array:
        matrix = np.empty((len(rows), self.voters.num_upper_levels))
        for place, row in enumerate(rows):
            stop_after(deadline)
            matrix[place] = row.coefficients(self.voters, self.full.exp_epsilon.value)
        return self.shape.rows(matrix)

    def choose_useful(self, rows: Sequence[tuple[float, CornerCounts]], limit: float) -> list[CornerCounts]:
        costs = np.array([cost for cost, _ in rows])
        return [rows[index][1] for index in choose_violated(costs, limit, count_thorough_rows(self.problem.voters.K))]


_FIT_SEED = 20_250_503  # for the draws in the objective; estimates use another seed


def fit_draws(request: Request) -> Table:
    problem, prior, K = request.problem, request.prior, request.problem.voters.K
    count = number_of_draws(K, request.draws)
    generator = np.random.default_rng(_FIT_SEED) if request.rng is None else request.rng
    sampled = SampledError(differences(prior.probabilities(K, count, rng=generator)))
    scaled, factor = scale_to_float_range(problem.conditional_on_inclusion, MIN_SIZE)
    program = GammaProgram(PrivacyOracle(scaled, request.shape), sampled.weights, request.report)
    result, weights = _fit_sampled_error(program, sampled, request)
    gamma, multipliers = program.read_proposal(result, problem, factor)
    table, shape, status = certify(problem, gamma), request.shape.value, result.status.value
    value = sampled.value(table.gamma.half)
    bound = min(value, lower_bound(problem.conditional_on_inclusion, weights, shape, multipliers))
    held_out = table.gamma.estimate_error(prior, draws=count, rng=generator)
    # without multipliers: their bound needs the draws, which no file keeps
    optimality = Optimality(prior, shape, "expected-error", value, bound, status, held_out)
    provenance = {"solver": "production", **make_provenance(result), "draws fitted": str(count)}
    return table.with_optimality(optimality, provenance)


def _fit_sampled_error(program: GammaProgram, sampled: SampledError, request: Request) -> tuple[Result, Array]:
    # few γ change the sign of enough draws to matter: with many voters the linear solve is usually enough
    start_time, options = time.perf_counter(), request.options
    result = program.solve(options, request.rows_of_start)
    if result.status not in {Status.OPTIMAL, Status.STALLED}:
        return result, sampled.weights
    value = sampled.value(program.shape.variables_to_gamma(result.point))
    if value - result.bound <= max(options.gap * value, options.floor):
        return result, sampled.weights
    result = _fit_turned_draws(program, sampled, result, _subtract_time(options, start_time))
    tangents = [(y, tangent) for y, tangent in result.multipliers if isinstance(tangent, np.ndarray)]
    return result, _compute_tangent_weights(sampled, tangents)


def _fit_turned_draws(program: GammaProgram, sampled: SampledError, first: Result, options: SolveOptions) -> Result:
    oracle, shape = program.oracle, program.shape
    epigraph = EpigraphOracle(oracle, sampled, shape)
    gamma = shape.variables_to_gamma(first.point)
    rows = oracle.start_from(_list_rows(first), first.point if np.isfinite(first.value) else None)
    start = epigraph.lift(rows, [sampled.tangent(np.zeros_like(gamma)), sampled.tangent(gamma)])
    lifted_program = sampled_error_program(sampled.linear, sampled.share, shape)
    tie_break = program.build_tie_break()
    tie = None if tie_break is None else np.append(tie_break, 0.0)
    result = minimize_with_rows(lifted_program, epigraph, options, tie_break=tie, report=program.report, start=start)
    rounds, generated = first.rounds + result.rounds, first.rows_generated + result.rows_generated
    return replace(result, rounds=rounds, rows_generated=generated)


def _compute_tangent_weights(sampled: SampledError, tangents: Sequence[tuple[float, Array]]) -> Array:
    """Return w with ½ Σ_l w_l (1 − γ(l)) ≤ F(γ) for every γ: linear part plus tangents with Σ y ≤ s, the share of θ."""
    factor = sampled.share / max(sampled.share, sum(y for y, _ in tangents), np.finfo(np.float64).tiny)
    weights: Array = sampled.linear + 2.0 * factor * sum((y * t for y, t in tangents), np.zeros(sampled.linear.size))
    return weights
