"""The best noise function for a problem, with its proof and with a bound on every other one.

`optimize_table` states the linear program of `lp_models.gamma_lp`, generates its privacy rows from the dominating
family and, once that is content, from the full set, and hands the solver's point to `certify`. Nothing that the solver
says is believed: privacy comes from the proof, optimality from a bound recomputed from the duals, which go with the
table.

**Why the free optimum is not monotone.** The rows limit E_p[g] − c·E_{p'}[g], which is about how g *changes* under
small moves of the number of ones. Averages blur γ, so a γ that alternates between 1 and 0 near the tie has the same
blurred slope as one that rises gently, and the program, being linear, prefers corners: γ = 1 where a vote is worth
most under the prior, 0 beside it to pay for that. Where every l matters by itself (auditors, few voters), choose
``shape="monotone"``: the more votes, the more truth, for a few per cent more expected error.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from darrm.errors import SolveError, checks
from darrm.laws import priors
from darrm.laws.noise_function import NoiseFunction
from darrm.laws.priors import Dirichlet, Independent, Prior, weights_of
from darrm.laws.sampled_error import differences, number_of_draws
from darrm.optimize.closed_form import best_for_plain_voters, has_closed_form
from darrm.optimize.plurality import optimize_plurality, versions
from darrm.probability import Array
from darrm.probability.exact_sampling import require_generator
from darrm.problem import Problem, Voters
from darrm.proof.corners import CornerCounts, budget_below
from darrm.proof.definition import all_coefficients, all_multisets, counts_of
from darrm.proof.dominating import choose_violated, stop_after
from darrm.proof.error_bound import Multiplier, Row, largest, lower_bound
from darrm.proof.kinds import KindSet, check_kinds, rows_of
from darrm.proof.optimality import OBJECTIVES, SHAPES, Optimality, Solution
from darrm.proof.table import Table, certify
from darrm.system.extras import require
from lp_models.epigraph import EpigraphOracle, SampledError
from lp_models.gamma_lp import Shape, expected_error_program, sampled_error_program
from lp_models.knots import Hats, Knots, Ramps
from lp_models.options import Progress, SolveOptions
from lp_models.program import Status
from lp_models.reference import solve_with_cvxpy
from lp_models.row_generation import Result, Separation, minimize_with_rows

SOLVERS = ("production", "reference")
# in one look at a chain of K voters that one person reaches all of: K = 31,622 and 141,421; a free γ needs many looks
MOST_AVERAGES = {"free": 10**9, "monotone": 2 * 10**10}
# rows taken from a thorough look, a quarter of K within these limits: it costs as much as many solves, so more than
# from a cheap one
_LEAST_ROWS, _MOST_ROWS = 240, 1_250
# once no row of the dominating family exceeds the budget by more than this factor, the border of the full set is
# looked at as well
_BORDER_FACTOR = 1.01
# weights below this part of the largest say nothing; there a tie-break of the next size decides
_SMALLEST_WEIGHT = 1e-8
_TIE_BREAK = 1e-8
# above so many places that tie-break is in the way of the bound: such a prior is solved for with a common one beside
# it first, of this size (the largest from which few rounds lead to the prior alone), and then by itself with a smaller
# tie-break
_MOST_WITH_SILENCE, _SMALL_TIE_BREAK = 400, 1e-10
_BESIDE: dict[Shape, float] = {Shape.FREE: 1e-6, Shape.MONOTONE: 1e-5}
_FIT_SEED = 20_250_503  # of the draws that are fitted; estimates use another
# with more variables than these a solve goes from coarse to fine, and begins with so many intervals between knots
_MOST_AT_ONCE, _FIRST_INTERVALS = 100, 128
_KNOTS: dict[Shape, type[Knots]] = {Shape.FREE: Hats, Shape.MONOTONE: Ramps}
_GAP_OF_START = 1e-4  # relative, of what a solve begins with: the monotone γ of a free one, that of fewer voters
# a monotone solve begins with the rows that hold for one of so many voters, if these are not too few to be like them
_PART, _FEWEST = 4, 300
# a row is broken when its cost exceeds the budget by more than this part of it
_BROKEN = 1e-12


@dataclass(frozen=True)
class _Found:
    gamma: NoiseFunction
    weights: Array  # of an expected error that is never above the program's cost
    multipliers: tuple[Multiplier, ...]
    status: Status
    provenance: dict[str, str]


def optimize_table(
    problem: Problem,
    *,
    prior: Prior | None = None,
    shape: str | None = None,
    objective: str = "linear",
    solver: str = "production",
    options: SolveOptions | None = None,
    draws: int | None = None,
    rng: np.random.Generator | None = None,
    report: Callable[[Progress], None] | None = None,
    start: Table | None = None,
) -> Table:
    """Find and prove the best law: the γ with the smallest expected error; of more classes `optimize_plurality`'s.

    Parameters
    ----------
    problem
        Voters, target and classes. With more than two classes ``prior``, ``options`` and ``report`` are used, and
        whatever else is said of the program for γ is refused.
    prior
        What is publicly believed about the voters; by default independent p_i ~ U[0.5, 1], the paper's surrogate, and
        for the objective ``"expected-error"`` independent p_i ~ U[0, 1].
    shape
        ``"free"``, or ``"monotone"`` for a γ that never falls on the way from the tie to unanimity. By default free,
        and monotone where voters differ, whose free γ are not known.
    objective
        ``"linear"``: the prior's linear expected error. ``"expected-error"``: the expected error itself, absolute
        value included [D, Eq. 2], over draws of the prior unless the prior makes it linear anyway.
    solver
        ``"production"`` generates rows; ``"reference"`` writes every row of Lemma 5.1 down and needs cvxpy.
    options
        When to stop; nothing in it changes a guarantee.
    draws
        How many draws of the prior the objective ``"expected-error"`` fits, and how many others judge the result:
        20,000 for few voters, falling to 5,000 for many.
    rng
        Where those draws come from; a fixed seed by default. Nothing private is drawn.
    report
        Called once a round of the production solver.
    start
        The table of a problem near by: the production solver begins with the rows that hold there. This saves rounds
        and changes no guarantee; `optimize_many` does it along a sweep.

    Returns
    -------
    Table
        Proven private; ``optimality`` holds its expected error and a bound below that of every private γ.

    Raises
    ------
    ValueError
        If an option is unknown or of another type, there are more voters than `check_size` allows, the prior has no
        linear expected error, or the reference solver is to sample.
    SolveError
        If the reference solver fails. The production solver always returns its best proven γ.

    Examples
    --------
    The optimum at m = 1, Δ = 0 is (2l − K)/K:

    >>> from darrm import Problem, PrivacyParams, Voters
    >>> problem = Problem.from_allowance(Voters(5, PrivacyParams(0.1)), 1)
    >>> optimize_table(problem, shape="monotone").gamma.half.round(9)
    array([0.2, 0.6, 1. ])
    """
    checks.instance(Problem, problem=problem, advice="say Problem(voters, target)")
    if not problem.has_noise_function:
        asked = {"shape": shape, "draws": draws, "rng": rng, "start": start, "objective": objective, "solver": solver}
        _check_left_out(asked, problem.classes)
        return optimize_plurality(problem, prior=prior, options=options, report=report)
    shape = default_shape(problem.voters) if shape is None else shape
    checks.one_of(SHAPES, shape=shape)
    belief = default_prior(objective) if prior is None else prior
    settings = SolveOptions() if options is None else options
    checks.instance(SolveOptions, options=settings, advice="say SolveOptions(gap=…, time_limit=…)")
    priors.check(belief)
    if rng is not None:
        require_generator(rng)
    is_sampled = objective == "expected-error" and not belief.has_closed_form
    _check_program(objective, solver, problem.voters, is_sampled=is_sampled)
    check_size(problem.voters, shape)
    solved = problem.for_certain  # where voters draw their examples anew; else the problem itself
    solve = partial(_solve_production, solved, Shape(shape), settings, report, _rows_of(start, problem.voters))
    if is_sampled:
        return _best_of_draws(problem, belief, shape, solve, draws, rng)
    weights = weights_of(belief, problem.voters.K)
    found = _solve_reference(solved, weights, Shape(shape)) if solver == "reference" else solve(weights)
    # the closed form is the largest private γ at every l, also where the prior is silent; the bound is the solver's
    closed = solver == "production" and has_closed_form(problem.voters)
    table = certify(problem, best_for_plain_voters(solved) if closed else found.gamma)
    solution = Solution(belief, found.multipliers, found.status.value, shape, objective)
    return table.with_solution(solution, {"solver": solver, **found.provenance})


def _check_left_out(asked: Mapping[str, object], classes: int) -> None:
    for name, setting in asked.items():
        if setting not in {None, "free", "linear", "production"}:
            checks.fail(name, setting, f"left out for {classes} classes", "it is about γ, for two classes")


def _check_program(objective: str, solver: str, voters: Voters, *, is_sampled: bool) -> None:
    checks.one_of(OBJECTIVES, objective=objective)
    checks.one_of(SOLVERS, solver=solver)
    if solver == "reference" and voters.own is not None:
        checks.fail("solver", solver, "'production' where voters differ")
    if solver == "reference" and is_sampled:
        advice = "one row a draw is not written down"
        checks.fail("solver", solver, "'production' for a sampled expected error", advice)


def _best_of_draws(
    problem: Problem,
    prior: Prior,
    shape: str,
    solve: Callable[[Array, SampledError], _Found],
    draws: int | None,
    rng: np.random.Generator | None,
) -> Table:
    count = number_of_draws(problem.voters.K, draws)
    generator = np.random.default_rng(_FIT_SEED) if rng is None else rng
    sampled = SampledError(differences(prior.probabilities(problem.voters.K, count, rng=generator)))
    found = solve(sampled.weights, sampled)
    table = certify(problem, found.gamma)
    value, status = sampled.value(table.gamma.half), found.status.value
    bound = min(value, lower_bound(problem.for_certain, found.weights, shape, found.multipliers))
    held_out = table.gamma.estimate_error(prior, draws=count, rng=generator)
    # without multipliers: no file keeps the draws, which their bound needs
    optimality = Optimality(prior, shape, "expected-error", value, bound, status, held_out)
    made_by = {"solver": SOLVERS[0], **found.provenance, "draws fitted": str(count)}
    return table.with_optimality(optimality, made_by)


def _rows_of(start: Table | None, voters: Voters) -> tuple[Row, ...]:
    if start is None:
        return ()
    checks.instance(Table, start=start, advice="optimize_table and optimize_many return it")
    multipliers = start.optimality.multipliers if start.optimality is not None else None
    return tuple(row for _, row in multipliers or () if row.is_of(voters))


def check_size(voters: Voters, shape: str = "free") -> None:
    """Check before the work that a look at the dominating family is a matter of seconds, and that its rows fit."""
    if voters.own is not None:
        if shape != "monotone":
            checks.fail("shape", shape, "'monotone' where voters differ", "only its rows are known")
        check_kinds(voters)
    averages, most = (voters.reached + 1) * voters.K, MOST_AVERAGES[shape]
    if averages > most:
        advice = "take fewer voters, a smaller overlap" + (", or the monotone shape" if shape == "free" else "")
        checks.fail("K·(t + 1) for t voters whom one person reaches", averages, f"at most {most}", advice)
    rows = _thorough_rows(voters.K) if shape == "free" else _LEAST_ROWS  # all looks at a monotone γ are cheap
    checks.affordable(f"the rows for {voters.K:,} voters", rows * voters.half_size, "take fewer voters")


def default_shape(voters: Voters) -> str:
    """Return ``"free"``, and ``"monotone"`` for voters that differ."""
    return "free" if voters.own is None else "monotone"


def default_prior(objective: str) -> Prior:
    """Return independent p_i ~ U[0.5, 1] for the linear objective, the paper's surrogate of U[0, 1]; else U[0, 1]."""
    return Independent(0.5 if objective == "linear" else 0.0, 1.0)


class PrivacyOracle:
    """The privacy rows of a problem, over the variables of a shape."""

    def __init__(self, problem: Problem, shape: Shape) -> None:
        self.problem, self.shape, self.voters = problem, shape, problem.voters
        self.full = rows_of(problem.voters, problem.target.exact_epsilon)
        self.budget = budget_below(problem.target)

    def separate(self, point: Array, *, thorough: bool, deadline: float) -> Separation:
        """Look for broken rows: of both chains, and for Δ > 0 of all moves near 0 and 1 if little else is broken.

        A look at both chains is thorough where these moves do not matter: for Δ = 0, and for a γ that never falls.
        """
        gamma, full = self.shape.variables_to_gamma(point), self.full
        limit = self.budget * (1.0 + _BROKEN)
        rows: Sequence[Row]
        if isinstance(full, KindSet):
            seen = full.maxima(gamma, limit, deadline)
            worst, rows, thorough = seen.worst, [row for _, row in seen.broken], True
        elif thorough:
            found = full.maxima(gamma, limit, deadline)
            worst, rows = found.worst, self.most_useful(found.broken, limit)
        else:
            look = partial(full.family.maxima, gamma, full.ratio, deadline, floor=limit)
            chains = [look()]
            falls = bool(np.any(np.diff(gamma) < 0.0))
            thorough = not falls or full.corners.delta == 0.0
            outside: tuple[tuple[float, CornerCounts], ...] = ()
            worst = chains[0].worst
            if not thorough and worst <= self.budget * _BORDER_FACTOR:
                border_worst, outside = full.border(gamma, limit, deadline)
                worst = max(worst, border_worst)
            elif falls:
                chains.append(look(low=True))
                worst = max(worst, chains[1].worst)
            rows = [full.family.row(each, j) for each in chains for j in choose_violated(each.costs, limit)]
            rows += self.most_useful(outside, limit)
        # back from γ, so that what clipping took is not forgotten
        feasible = self.shape.gamma_to_variables(gamma * (self.budget / max(worst, self.budget)))
        matrix = self.rows_over_variables(rows, deadline)
        return Separation(matrix, np.full(len(rows), self.budget), feasible, thorough, rows)

    def beginning(self, rows: Sequence[Row], point: Array | None = None) -> Separation:
        """Return what a solve may begin with: rows, and a point in these variables that all rows hold at, if known."""
        feasible = np.zeros(self.voters.half_size) if point is None else point
        limits = np.full(len(rows), self.budget)
        matrix = self.rows_over_variables(rows, np.inf)
        return Separation(matrix, limits, feasible, thorough=point is not None, labels=rows)

    def rows_over_variables(self, rows: Sequence[Row], deadline: float) -> Array:
        """Compute the coefficients of some rows: shape (r, n)."""
        matrix = np.empty((len(rows), self.voters.half_size))
        for place, row in enumerate(rows):
            stop_after(deadline)
            matrix[place] = row.coefficients(self.voters, self.full.ratio.value)
        return self.shape.rows(matrix)

    def most_useful(self, broken: Sequence[tuple[float, CornerCounts]], limit: float) -> list[CornerCounts]:
        """Choose among the rows of a thorough look."""
        costs = np.array([cost for cost, _ in broken])
        return [broken[index][1] for index in choose_violated(costs, limit, _thorough_rows(self.problem.voters.K))]


def _thorough_rows(K: int) -> int:
    return min(max(_LEAST_ROWS, K // 4), _MOST_ROWS)


def _solve_production(
    problem: Problem,
    shape: Shape,
    options: SolveOptions,
    report: Callable[[Progress], None] | None,
    known: Sequence[Row],
    weights: Array,
    sampled: SampledError | None = None,
) -> _Found:
    # few γ turn draws enough to matter: for many voters the sampled error costs what the linear one does
    started, oracle = time.perf_counter(), PrivacyOracle(problem, shape)
    silent = _preferred_in_silence(weights, problem.voters.K)
    tie_break = None if silent is None else shape.rows(-_TIE_BREAK * silent)
    if silent is None or weights.size <= _MOST_WITH_SILENCE:
        result = _solve_linear(oracle, weights, options, tie_break, report, known)
    else:
        result = _solve_through_silence(oracle, weights, options, report, known)
    if sampled is not None and result.status in {Status.OPTIMAL, Status.STALLED}:
        value = sampled.value(shape.variables_to_gamma(result.point))
        if value - result.bound > max(options.gap * value, options.floor):
            result = _fit_turned_draws(oracle, sampled, result, _left_of(options, started), tie_break, report)
            tangents = [(y, tangent) for y, tangent in result.multipliers if isinstance(tangent, np.ndarray)]
            weights = _tangent_weights(sampled, tangents)
    gamma = NoiseFunction(problem.voters.K, shape.variables_to_gamma(result.point[: weights.size]))
    rows = [(y, row) for y, row in result.multipliers if isinstance(row, Row)]
    provenance = {"made by": versions("darrm", "highspy"), **result.provenance}
    return _Found(gamma, weights, largest(rows, problem.voters), result.status, provenance)


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
    if oracle.shape is Shape.FREE:
        monotone = PrivacyOracle(oracle.problem, Shape.MONOTONE)
        found = _solve_linear(monotone, weights, rough, None, report, known)
        gamma = Shape.MONOTONE.variables_to_gamma(found.point)
        if found.status in {Status.TIME_LIMIT, Status.INTERRUPTED}:
            return replace(found, point=gamma)
        # the dominating family is all that a monotone γ needs, and its looks are thorough
        start = oracle.beginning(_rows_in(found), gamma if np.isfinite(found.value) else None)
        options = _left_of(options, started)
    elif not known and (problem := _of_fewer(oracle.problem)) is not None:
        found = _solve_for_fewer(oracle, problem, weights, rough)
        if found.status in {Status.TIME_LIMIT, Status.INTERRUPTED}:
            return found
        start, options = oracle.beginning(_rows_in(found)), _left_of(options, started)
    dear = oracle.shape is Shape.FREE and oracle.problem.voters.each.exact_delta > 0  # the border of the full set
    knots = _KNOTS[oracle.shape].spread(weights.size, _FIRST_INTERVALS, keeps_rows=dear)
    return minimize_with_rows(program, oracle, options, tie_break=tie_break, report=report, knots=knots, start=start)


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


def _rows_in(found: Result) -> list[Row]:
    return [row for _, row in found.multipliers if isinstance(row, Row)]


def _left_of(options: SolveOptions, started: float) -> SolveOptions:
    return replace(options, time_limit=max(0.0, options.time_limit - (time.perf_counter() - started)))


def _fit_turned_draws(
    oracle: PrivacyOracle,
    sampled: SampledError,
    found: Result,
    options: SolveOptions,
    tie_break: Array | None,
    report: Callable[[Progress], None] | None,
) -> Result:
    epigraph = EpigraphOracle(oracle, sampled, oracle.shape)
    gamma = oracle.shape.variables_to_gamma(found.point)
    known = oracle.beginning(_rows_in(found), found.point if np.isfinite(found.value) else None)
    start = epigraph.lifted(known, [sampled.tangent(np.zeros_like(gamma)), sampled.tangent(gamma)])
    program = sampled_error_program(sampled.linear, sampled.share, oracle.shape)
    extra = None if tie_break is None else np.append(tie_break, 0.0)
    result = minimize_with_rows(program, epigraph, options, tie_break=extra, report=report, start=start)
    rounds, generated = found.rounds + result.rounds, found.rows_generated + result.rows_generated
    return replace(result, rounds=rounds, rows_generated=generated)


def _tangent_weights(sampled: SampledError, tangents: Sequence[tuple[float, Array]]) -> Array:
    """Return w with ½ Σ_l w_l (1 − γ(l)) ≤ F(γ) for every γ: the linear part, and tangents with shares Σ y ≤ s of θ."""
    most = sampled.share / max(sampled.share, sum(y for y, _ in tangents), np.finfo(np.float64).tiny)
    weights: Array = sampled.linear + 2.0 * most * sum((y * t for y, t in tangents), np.zeros(sampled.linear.size))
    return weights


def _solve_reference(problem: Problem, weights: Array, shape: Shape) -> _Found:
    require("cvxpy")
    matrix = all_coefficients(problem)
    program = expected_error_program(weights, shape, matrix, np.full(len(matrix), budget_below(problem.target)))
    solution = solve_with_cvxpy(program)
    if solution.status is not Status.OPTIMAL:
        raise SolveError("the reference solver found no optimum: try --solver production", status=solution.status.value)
    gamma = NoiseFunction(problem.voters.K, shape.variables_to_gamma(solution.point))
    duals, pairs = solution.duals[-len(matrix) :], all_multisets(problem.voters)
    rows = [(float(duals[r]), counts_of(problem.voters, pairs[0][r], pairs[1][r])) for r in np.flatnonzero(duals)]
    provenance = {"made by": versions("darrm", "cvxpy", "highspy"), "rows written": str(len(matrix))}
    return _Found(gamma, weights, largest(rows, problem.voters), solution.status, provenance)


def _solve_through_silence(
    oracle: PrivacyOracle,
    weights: Array,
    options: SolveOptions,
    report: Callable[[Progress], None] | None,
    known: Sequence[Row],
) -> Result:
    """Solve with a little of a common prior beside the silent one, then for the latter alone, from the rows found."""
    # the rows that hold for both together nearly hold for one: two or three rounds with all variables close the gap
    started, K = time.perf_counter(), oracle.voters.K
    beside = float(np.max(weights)) * _scaled(Dirichlet().weights(K))
    first = _solve_linear(oracle, weights + _BESIDE[oracle.shape] * beside, options, None, report, known)
    if first.status in {Status.TIME_LIMIT, Status.INTERRUPTED}:
        return first
    start = oracle.beginning(_rows_in(first), first.point if np.isfinite(first.value) else None)
    tie_break = oracle.shape.rows(-_SMALL_TIE_BREAK * beside)
    program, left = expected_error_program(weights, oracle.shape), _left_of(options, started)
    return minimize_with_rows(program, oracle, left, tie_break=tie_break, report=report, start=start)


def _preferred_in_silence(weights: Array, K: int) -> Array | None:
    """Return what a common prior likes where the prior has next to no opinion, as large as its weights; or nothing."""
    # U[0.5, 1] gives the numbers of ones near a tie weights down to 1e-60 at K = 501; without a small cost there the
    # solver would leave γ wherever it happens to be. The bound and the value are about the prior alone.
    largest = float(np.max(weights))
    silent = weights < _SMALLEST_WEIGHT * largest
    if not np.any(silent):
        return None
    return largest * _scaled(np.where(silent, Dirichlet().weights(K), 0.0))


def _scaled(weights: Array) -> Array:
    return np.asarray(weights / np.max(weights))
