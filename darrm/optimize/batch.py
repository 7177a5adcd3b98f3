"""Many problems at once: a sweep over m, ε, Δ or K, on several cores, each solve warm-started from the one before.

The rows that hold at the optimum of one problem nearly hold at that of the next, so a solve begins with those of the
last one with the same voters. Rows are counts of voters at corners, so they are rows of the other
problem as well, and rows can make a solve shorter but no point less private; the proof of every table is its own.

Problems that can warm-start each other make a group, and a group is one task: where the tasks run changes nothing.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from darrm.errors import checks
from darrm.laws.priors import Prior
from darrm.optimize.optimizer import optimize_table
from darrm.problem import Problem
from darrm.proof.optimality import SHAPES
from darrm.proof.table import Table
from darrm.system.extras import require
from lp_models.options import SolveOptions


def optimize_many(
    problems: Iterable[Problem],
    *,
    prior: Prior | None = None,
    shape: str = "free",
    options: SolveOptions | None = None,
    jobs: int = 1,
) -> list[Table]:
    """Find and prove the noise functions with the smallest linear expected errors for many problems.

    Parameters
    ----------
    problems
        The voters and targets. Those with the same K, ε, Δ and overlap are solved one after the other, in their order:
        sort a sweep by m.
    prior, shape, options
        As for `optimize_table`, the same for all.
    jobs
        Processes, by joblib (the extra ``sampling``) unless it is 1; −1 for as many as there are cores. The tables are
        the same for any number of them.

    Returns
    -------
    list of Table
        One for each problem, in their order.

    Raises
    ------
    ValueError
        If something is not a problem, ``jobs`` is neither positive nor −1, joblib is missing, or for the reasons of
        `optimize_table`.

    Examples
    --------
    >>> from darrm import PrivacyParams, Voters
    >>> voters = Voters(5, PrivacyParams(0.1))
    >>> sweep = [Problem.from_allowance(voters, m) for m in (1, 2, 3)]
    >>> [round(table.optimality.value, 4) for table in optimize_many(sweep, shape="monotone")]
    [0.1465, 0.0427, 0.0]
    """
    listed = list(problems)
    for place, problem in enumerate(listed):
        checks.instance(Problem, **{f"problems[{place}]": problem}, advice="say Problem(voters, target)")
    checks.one_of(SHAPES, shape=shape)
    if jobs != -1:
        checks.integer_at_least(1, jobs=jobs, advice="or -1 for all cores")
    groups: dict[object, list[int]] = {}
    for place, problem in enumerate(listed):
        groups.setdefault((problem.voters, problem.classes), []).append(place)
    solve = partial(_solve_in_turn, prior=prior, shape=shape, options=options)
    tasks = [[listed[place] for place in places] for places in groups.values()]
    if jobs == 1 or len(tasks) < 2:
        found = [solve(task) for task in tasks]
    else:
        joblib = require("joblib")
        found = joblib.Parallel(n_jobs=jobs)(joblib.delayed(solve)(task) for task in tasks)
    tables: dict[int, Table] = {}
    for places, part in zip(groups.values(), found, strict=True):
        tables.update(zip(places, part, strict=True))
    return [tables[place] for place in range(len(listed))]


def _solve_in_turn(
    problems: Sequence[Problem], *, prior: Prior | None, shape: str, options: SolveOptions | None
) -> list[Table]:
    tables: list[Table] = []
    for problem in problems:
        start = tables[-1] if tables and problem.has_noise_function else None  # a law of more has no such rows
        tables.append(optimize_table(problem, prior=prior, shape=shape, options=options, start=start))
    return tables
