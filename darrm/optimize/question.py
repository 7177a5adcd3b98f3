"""What an optimizer is asked, checked and with its defaults filled in; and what a program that answers looks like."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from darrm.errors import checks
from darrm.laws import priors
from darrm.laws.priors import Independent, Prior
from darrm.probability.exact_sampling import require_generator
from darrm.problem import Problem, Voters
from darrm.proof.kinds import check_kinds
from darrm.proof.optimality import OBJECTIVES, SHAPES
from darrm.proof.table import Table
from lp_models.gamma_lp import Shape
from lp_models.options import Progress, SolveOptions

SOLVERS = ("production", "reference")
# in one look at a chain of K voters that one person reaches all of: K = 31,622 and 141,421; a free γ needs many looks
MOST_AVERAGES = {"free": 10**9, "monotone": 2 * 10**10}
# rows taken from a thorough look, a quarter of K within these limits: it costs as much as many solves, so more than
# from a cheap one
LEAST_ROWS, MOST_ROWS = 240, 1_250


@dataclass(frozen=True, eq=False)
class Question:
    """A problem, and what `darrm.optimize.optimize_table` was told beside it."""

    problem: Problem
    prior: Prior | None
    options: SolveOptions | None
    report: Callable[[Progress], None] | None
    shape: str | None = None
    objective: str = "linear"
    solver: str = "production"
    draws: int | None = None
    rng: np.random.Generator | None = None
    start: Table | None = None

    def __post_init__(self) -> None:
        checks.instance(Problem, problem=self.problem, advice="say Problem(voters, target)")
        if self.problem.has_noise_function:
            self._check()
        else:
            self._check_left_out()

    def _check_left_out(self) -> None:
        for name in ("shape", "draws", "rng", "start", "objective", "solver"):
            setting, classes = getattr(self, name), self.problem.classes
            if setting not in {None, "free", "linear", "production"}:
                checks.fail(name, setting, f"left out for {classes} classes", "it is about γ, for two classes")

    def _check(self) -> None:
        voters = self.problem.voters
        if self.shape is not None:
            checks.one_of(SHAPES, shape=self.shape)
        checks.one_of(OBJECTIVES, objective=self.objective)
        checks.one_of(SOLVERS, solver=self.solver)
        checks.instance(SolveOptions, options=self.settings, advice="say SolveOptions(gap=…, time_limit=…)")
        priors.check(self.belief)
        if self.rng is not None:
            require_generator(self.rng)
        if self.solver == "reference" and voters.own is not None:
            checks.fail("solver", self.solver, "'production' where voters differ")
        if self.solver == "reference" and self.is_sampled:
            advice = "one row a draw is not written down"
            checks.fail("solver", self.solver, "'production' for a sampled expected error", advice)
        check_size(voters, self.of_shape.value)
        if self.start is not None:
            checks.instance(Table, start=self.start, advice="optimize_table and optimize_many return it")

    @property
    def belief(self) -> Prior:
        """The prior of a question about γ."""
        return default_prior(self.objective) if self.prior is None else self.prior

    @property
    def settings(self) -> SolveOptions:
        """When to stop."""
        return SolveOptions() if self.options is None else self.options

    @property
    def of_shape(self) -> Shape:
        """The shape of γ."""
        return Shape(default_shape(self.problem.voters) if self.shape is None else self.shape)

    @property
    def is_sampled(self) -> bool:
        """Whether γ is to minimize the expected error itself, over draws of a prior that does not make it linear."""
        return self.objective == "expected-error" and not self.belief.has_closed_form


class Program(Protocol):
    """One way to the best law."""

    def answers(self, question: Question) -> bool:
        """Whether it is this program's to answer."""
        ...

    def table(self, question: Question) -> Table:
        """Find the best law and prove it."""
        ...


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
    rows = thorough_rows(voters.K) if shape == "free" else LEAST_ROWS  # all looks at a monotone γ are cheap
    checks.affordable(f"the rows for {voters.K:,} voters", rows * voters.half_size, "take fewer voters")


def thorough_rows(K: int) -> int:
    """Return how many rows of a thorough look are taken."""
    return min(max(LEAST_ROWS, K // 4), MOST_ROWS)


def default_shape(voters: Voters) -> str:
    """Return ``"free"``, and ``"monotone"`` for voters that differ."""
    return "free" if voters.own is None else "monotone"


def default_prior(objective: str) -> Prior:
    """Return independent p_i ~ U[0.5, 1] for the linear objective, the paper's surrogate of U[0, 1]; else U[0, 1]."""
    return Independent(0.5 if objective == "linear" else 0.0, 1.0)
