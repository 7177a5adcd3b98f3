"""The checked arguments of an optimization of γ, their defaults, and the sizes that are solved."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from darrm.majority.corners import Row
from darrm.majority.groups import check_groups
from darrm.numerics.exact_sampling import require_generator
from darrm.priors import Independent, Prior, checked, surrogate_of
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters, is_open
from darrm.table.table import Table
from darrm.util import checks
from lp_models.gamma_lp import Shape
from lp_models.options import Progress, SolveOptions

SOLVERS = ("production", "reference")
OBJECTIVES = ("expected-error", "surrogate")
DEFAULT_PRIOR = Independent(0.5, 1.0)
# in one search of a chain of K voters with overlap K: K = 31,622 and 141,421; a free γ needs many searches
MOST_AVERAGES = {"free": 10**9, "monotone": 2 * 10**10}
# limits of K/4, the number of rows taken from a thorough search: it costs as much as many solves, so it returns more
# rows than a cheap one
LEAST_ROWS, MOST_ROWS = 240, 1_250
_LARGEST_DELTA = Fraction(1, 2)  # γ = 1 needs less for voters with the small ε of `in_range`


@dataclass(frozen=True, eq=False, kw_only=True)
class Request:
    """A problem with two classes, and the checked options of `darrm.optimize.optimize_table`."""

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
        """The active rows of the starting table that are rows of these voters."""
        optimality = None if self.start is None else self.start.optimality
        multipliers = None if optimality is None else optimality.multipliers
        return tuple(row for _, row in multipliers or () if row.is_of(self.problem.voters))

    @property
    def is_sampled(self) -> bool:
        """Whether the objective is the expected error over draws, because the prior does not make it linear."""
        return not self.prior.has_closed_form


def in_range(problem: Problem, least: Fraction) -> tuple[Problem, Fraction]:
    """Return a problem in the range of floats, with every ε and δ multiplied by one factor, and the factor.

    As ε decreases, the best law of private voters tends to a limit, because costs and budget stay in proportion. So the
    law for a larger ε is a good proposal for a smaller one, and its scaled multipliers give a good bound.
    """
    voters, target = problem.voters, problem.target
    privacies = [each for _, each in voters.private_groups] or [target]
    size = max(each.exact_epsilon + each.exact_delta for each in privacies)
    if size >= least or is_open(problem.classes):  # a string from only one person must be hidden by δ alone
        return problem, Fraction(1)
    factor = least / size

    def grown(params: PrivacyParams) -> PrivacyParams:
        if not params.is_private:
            return params
        return PrivacyParams(factor * params.exact_epsilon, min(factor * params.exact_delta, _LARGEST_DELTA))

    own = None if voters.per_voter is None else tuple(map(grown, voters.per_voter))
    return Problem(replace(voters, each=grown(voters.each), per_voter=own), grown(target), problem.classes), factor


def check_size(voters: Voters, shape: str = "free") -> None:
    """Raise unless a search of the dominating family takes seconds and its rows fit in memory."""
    if voters.per_voter is not None:
        if shape != "monotone":
            checks.fail("shape", shape, "'monotone' where voters differ", "only its rows are known")
        check_groups(voters)
    averages, most = (voters.reached + 1) * voters.K, MOST_AVERAGES[shape]
    if averages > most:
        advice = "take fewer voters, a smaller overlap" + (", or the monotone shape" if shape == "free" else "")
        checks.fail("K·(t + 1) for t voters whom one person reaches", averages, f"at most {most}", advice)
    rows = thorough_rows(voters.K) if shape == "free" else LEAST_ROWS  # all searches for a monotone γ are cheap
    checks.affordable(f"the rows for {voters.K:,} voters", rows * voters.num_upper_levels, "take fewer voters")


def thorough_rows(K: int) -> int:
    """Return the number of rows taken from a thorough search."""
    return min(max(LEAST_ROWS, K // 4), MOST_ROWS)


def default_shape(voters: Voters) -> str:
    """Return ``"free"``, or ``"monotone"`` if voters differ."""
    return "free" if voters.per_voter is None else "monotone"


def prior_to_optimize(prior: Prior | str | None, objective: str) -> Prior:
    """Return the prior of the expected error to minimize: the given one, or the surrogate of the paper."""
    checks.one_of(OBJECTIVES, objective=objective)
    believed = DEFAULT_PRIOR if prior is None else checked(prior)
    if objective != "surrogate":
        return believed
    surrogate = surrogate_of(believed)
    if surrogate is None:
        checks.fail("the prior", believed.text, "symmetric about 1/2, or one with a linear error, for a surrogate")
    return surrogate
