"""Optimize many problems: a sweep over m, ε, Δ or K, on several cores, with warm starts.

Two neighboring problems of a sweep have nearly the same active rows. So a solve starts from the active rows of the
previous solve with the same voters. A row counts voters at corners, so it is a row of both problems. A warm start
shortens a solve and cannot weaken privacy: every table is proved separately.

Problems that can warm-start each other form a group, and each group is one task. The results do not depend on the
process that runs a task.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from darrm.optimize.optimizer import optimize_table
from darrm.priors import Prior
from darrm.problem import Problem
from darrm.table.optimality import SHAPES
from darrm.table.table import Table
from darrm.util import checks
from darrm.util.extras import require
from lp_models.options import SolveOptions


def optimize_many(
    problems: Iterable[Problem],
    *,
    prior: Prior | str | None = None,
    shape: str = "free",
    options: SolveOptions | None = None,
    jobs: int = 1,
) -> list[Table]:
    """Find and prove the noise functions with the smallest linear expected errors for many problems.

    Parameters
    ----------
    problems
        The voters and targets. Problems with the same K, ε, Δ and overlap are solved in the order of the list: sort a
        sweep by m.
    prior, shape, options
        As for `optimize_table`; they apply to all problems.
    jobs
        The number of processes; −1 for one per core. Other values than 1 need joblib (the extra ``sampling``). The
        tables do not depend on it.

    Returns
    -------
    list of Table
        One table per problem, in the same order.

    Raises
    ------
    ValueError
        If an item is not a `Problem`, ``jobs`` is neither positive nor −1, joblib is missing, or `optimize_table`
        raises it.

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
    problems: Sequence[Problem], *, prior: Prior | str | None, shape: str, options: SolveOptions | None
) -> list[Table]:
    tables: list[Table] = []
    for problem in problems:
        start = tables[-1] if tables and problem.has_noise_function else None  # other laws have no such rows
        tables.append(optimize_table(problem, prior=prior, shape=shape, options=options, start=start))
    return tables
