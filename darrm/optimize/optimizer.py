"""The best noise function for a problem, with its proof and with a bound on every other one.

`optimize_table` hands a question to the one program that answers it. Nothing that a solver says is believed: privacy
comes from the proof, optimality from a bound recomputed from the duals, which go with the table.

**Why the free optimum is not monotone.** The rows limit E_p[g] − c·E_{p'}[g], which is about how g *changes* under
small moves of the number of ones. Averages blur γ, so a γ that alternates between 1 and 0 near the tie has the same
blurred slope as one that rises gently, and the program, being linear, prefers corners: γ = 1 where a vote is worth
most under the prior, 0 beside it to pay for that. Where every l matters by itself (auditors, few voters), choose
``shape="monotone"``: the more votes, the more truth, for a few per cent more expected error.
"""

from collections.abc import Callable

import numpy as np

from darrm.laws.priors import Prior
from darrm.optimize.every_row import EveryRow
from darrm.optimize.fitted_draws import FittedDraws
from darrm.optimize.noise_functions import GeneratedRows
from darrm.optimize.plurality import Pluralities
from darrm.optimize.question import Program, Question
from darrm.problem import Problem
from darrm.proof.table import Table
from lp_models.options import Progress, SolveOptions

PROGRAMS: tuple[Program, ...] = (GeneratedRows(), FittedDraws(), EveryRow(), Pluralities())


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
    question = Question(problem, prior, options, report, shape, objective, solver, draws, rng, start)
    (program,) = (one for one in PROGRAMS if one.answers(question))
    return program.table(question)
