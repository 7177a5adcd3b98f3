"""The checked arguments of an optimization of γ, and the nearby problems that are solved instead.

Voters that differ are rounded up to fewer kinds (`fit_voters`). An active row at the optimum of the rounded voters
assigns a number of them to each corner. With the true (ε_i, Δ_i) at the same corners it is a row of the true voters,
which every γ that is private for them satisfies. So the program with these rows alone bounds the error of every such γ.
The bound is proved from the multipliers, like any other (`darrm.table.optimality`).
"""

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from itertools import islice

import numpy as np

from darrm.majority.certify import largest, lower_bound
from darrm.majority.corners import CornerCounts, Row, budget_below
from darrm.majority.groups import MOST_GROUPS, GroupCounts, check_groups, is_searchable
from darrm.numerics.exact_sampling import require_generator
from darrm.plurality import voter_corners
from darrm.priors import Independent, Prior, check_prior, compute_weights, find_surrogate
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters, is_law_a_gamma, is_open
from darrm.table.table import Table
from darrm.util import checks
from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.highs import Master
from lp_models.options import Progress, SolveOptions

SOLVERS = ("production", "reference")
OBJECTIVES = ("expected-error", "surrogate")
LARGEST_FACTOR = Fraction(10**300)  # of multipliers, so that none overflows
# in one search of a chain of K voters with overlap K: K = 31,622 and 141,421; a free γ needs many searches
MAX_AVERAGES = {"free": 10**9, "monotone": 2 * 10**10}
# limits of K/4, the number of rows taken from a thorough search: it costs as much as many solves, so it returns more
# rows than a cheap one
MIN_THOROUGH_ROWS, MAX_THOROUGH_ROWS = 240, 1_250


@dataclass(frozen=True, eq=False, kw_only=True)
class Request:
    problem: Problem
    prior: Prior
    shape: Shape
    solver: str
    options: SolveOptions
    report: Callable[[Progress], None] | None
    draws: int | None
    rng: np.random.Generator | None
    start: Table | None

    def __post_init__(self) -> None:
        voters = self.problem.voters
        checks.one_of(SOLVERS, solver=self.solver)
        checks.instance(SolveOptions, options=self.options, advice="say SolveOptions(gap=…, time_limit=…)")
        if self.rng is not None:
            require_generator(self.rng)
        if self.solver == "reference" and voters.per_voter is not None:
            checks.fail("solver", self.solver, "'production' where voters differ")
        if self.solver == "reference" and self.is_sampled:
            advice = "one row a draw is not written down"
            checks.fail("solver", self.solver, "'production' for a sampled expected error", advice)
        check_size(voters, self.shape.value)
        if self.start is not None:
            checks.instance(Table, start=self.start, advice="optimize_table and optimize_many return it")

    @property
    def rows_of_start(self) -> tuple[Row, ...]:
        optimality = None if self.start is None else self.start.optimality
        multipliers = None if optimality is None else optimality.multipliers
        return tuple(row for _, row in multipliers or () if row.is_row_of(self.problem.voters))

    @property
    def is_sampled(self) -> bool:
        return not self.prior.has_closed_form


def scale_to_float_range(problem: Problem, min_size: Fraction) -> tuple[Problem, Fraction]:
    """Return a problem in the range of floats, with every ε and δ multiplied by one factor, and the factor.

    As ε decreases, costs and budget stay in proportion: the best law tends to a limit.
    """
    voters, target = problem.voters, problem.target
    privacies = [params for _, params in voters.private_groups] or [target]
    size = max(params.exact_epsilon + params.exact_delta for params in privacies)
    if size >= min_size or is_open(problem.classes):  # a string from only one person must be hidden by δ alone
        return problem, Fraction(1)
    factor = min_size / size

    def scale(params: PrivacyParams) -> PrivacyParams:
        if not params.is_private:
            return params
        # γ = 1 needs less than δ = 1/2 for such a small ε
        return PrivacyParams(factor * params.exact_epsilon, min(factor * params.exact_delta, Fraction(1, 2)))

    per_voter = None if voters.per_voter is None else tuple(map(scale, voters.per_voter))
    return Problem(
        replace(voters, each=scale(voters.each), per_voter=per_voter), scale(target), problem.classes
    ), factor


def check_size(voters: Voters, shape: str = "free") -> None:
    """Raise `ValueError` unless a search takes seconds and its rows fit in memory."""
    if voters.per_voter is not None:
        if shape != "monotone":
            checks.fail("shape", shape, "'monotone' where voters differ", "only its rows are known")
        check_groups(voters)
    averages, limit = (voters.reached + 1) * voters.K, MAX_AVERAGES[shape]
    if averages > limit:
        advice = "take fewer voters, a smaller overlap" + (", or the monotone shape" if shape == "free" else "")
        checks.fail("K·(t + 1) for t voters whom one person reaches", averages, f"at most {limit}", advice)
    # all searches for a monotone γ are cheap
    rows = count_thorough_rows(voters.K) if shape == "free" else MIN_THOROUGH_ROWS
    checks.affordable(f"the rows for {voters.K:,} voters", rows * voters.num_upper_levels, "take fewer voters")


def count_thorough_rows(K: int) -> int:
    return min(max(MIN_THOROUGH_ROWS, K // 4), MAX_THOROUGH_ROWS)


def default_shape(voters: Voters) -> str:
    return "free" if voters.per_voter is None else "monotone"


def prior_to_optimize(prior: Prior | str | None, objective: str) -> Prior:
    checks.one_of(OBJECTIVES, objective=objective)
    checked_prior = Independent(0.5, 1.0) if prior is None else check_prior(prior)
    if objective != "surrogate":
        return checked_prior
    surrogate = find_surrogate(checked_prior)
    if surrogate is None:
        checks.fail("the prior", checked_prior.text, "symmetric about 1/2, or one with a linear error, for a surrogate")
    return surrogate


def fit_voters(voters: Voters, classes: int = 2) -> Voters:
    """Return the same voters if all rows can be searched, else with ε and Δ rounded up to as many kinds as fit."""

    def fits(rounded: Voters) -> bool:
        if is_law_a_gamma(classes):
            return is_searchable(rounded)
        return voter_corners.is_searchable(rounded, classes)

    if voters.per_voter is None or fits(voters):
        return voters
    fitted = Voters(voters.K, voters.each, voters.overlap, voters.models)
    for kinds in range(2, min(MOST_GROUPS, len(voters.groups)) + 1):
        rounded = voters.round_up_to(kinds)
        if not fits(rounded):
            break
        fitted = rounded
    return fitted


def least_error(voters: Voters, table: Table, prior: Prior) -> float:
    """Bound from below the expected error of every monotone γ that is private for the true voters."""
    optimality = table.optimality
    if optimality is None or not optimality.multipliers:
        return 0.0
    problem = Problem(voters, table.problem.target)
    rounded_rows = (row for _, row in optimality.multipliers)
    rows = [row for rounded in rounded_rows for row in _place_true_voters(rounded, table.problem.voters, voters)]
    weights, budget = compute_weights(prior, voters.K), budget_below(problem.target)
    coefficients = np.array([row.coefficients(voters, problem.cost_ratio) for row in rows])
    master = Master(expected_error_program(weights, Shape.MONOTONE))
    master.add_rows(Shape.MONOTONE.rows(coefficients), np.full(len(rows), budget), rows)
    duals = zip(master.solve().duals.tolist(), master.labels, strict=True)
    multipliers = [(y, row) for y, row in duals if isinstance(row, GroupCounts)]
    return lower_bound(problem, weights, "monotone", largest(multipliers, voters))


def _place_true_voters(row: Row, rounded: Voters, voters: Voters) -> Iterator[GroupCounts]:
    """Put the true voters at the corners of a rounded row: of each kind the weakest at (hi, lo), or the strongest."""
    parts = [(group, n) for (group, _), (n, _) in zip(row.split_by_group(rounded), rounded.groups, strict=True)]
    for weakest_first in (True, False):
        corners: list[CornerCounts] = []
        for group, n in parts:
            edges = [CornerCounts(0, 0, 1, 0, moved_zeros=int(i < group.moved_zeros)) for i in range(group.zeros)]
            moved_ones = group.moved_ones_prime
            edges += [CornerCounts(0, 0, 0, 1, moved_ones_prime=int(i < moved_ones)) for i in range(group.ones)]
            high = [CornerCounts(1, 0, 0, 0)] * (n - len(edges))
            corners += high + edges if weakest_first else edges + high
        iterator = iter(corners)
        sums = (np.sum([astuple(place) for place in islice(iterator, n)], axis=0).tolist() for n, _ in voters.groups)
        yield GroupCounts(tuple(CornerCounts(*counts) for counts in sums))
