"""Find the best noise function for a problem, with its proof and an optimality bound.

No solver is trusted: privacy comes from the proof, and the optimality bound is recomputed from the duals in the table.

**Why the free optimum is not monotone.** The rows limit E_p[g] − c·E_{p'}[g], how g *changes* under small moves of the
number of ones. Expectations smooth γ, so a γ that alternates between 1 and 0 near the tie has the same smoothed slope
as one that rises gently. The program is linear, so it prefers corners. If each single l matters, choose
``shape="monotone"``, for a few percent more expected error.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain

import numpy as np

from darrm.optimize.noise_functions import fit_draws, generate_rows, write_every_row
from darrm.optimize.plurality import optimize_plurality
from darrm.optimize.request import OBJECTIVES, Request, default_shape, prior_to_optimize
from darrm.priors import Prior
from darrm.privacy import Number, PrivacyPair, PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.optimality import SHAPES
from darrm.table.table import Table
from darrm.util import checks
from darrm.util.extras import require
from lp_models.gamma_lp import Shape
from lp_models.options import Progress, SolveOptions


def optimize_table(
    problem: Problem | None = None,
    *,
    K: int | None = None,
    m: Number | None = None,
    each: PrivacyPair | None = None,
    prior: Prior | str | None = None,
    shape: str | None = None,
    objective: str = OBJECTIVES[0],
    solver: str = "production",
    options: SolveOptions | None = None,
    draws: int | None = None,
    rng: np.random.Generator | None = None,
    report: Callable[[Progress], None] | None = None,
    start: Table | None = None,
) -> Table:
    """Find and certify the γ with the smallest expected error; with more than two classes, call `optimize_plurality`.

    Parameters
    ----------
    problem
        With more than two classes only ``prior``, ``options`` and ``report`` apply.
    K, m, each
        Instead of a problem; by default 11, 3 and (0.1, 1e-5), the paper's example.
    prior
        Public; by default independent p_i ~ U[0.5, 1].
    shape
        ``"free"``, or ``"monotone"``: γ never decreases from the tie to unanimity, the default if voters differ.
    objective
        ``"expected-error"`` under the prior [D, Eq. 2], by draws unless it is linear in γ (no p_i is below 1/2, or all
        are equal). ``"surrogate"``: the paper's linear one, `darrm.priors.find_surrogate`.
    solver
        ``"production"`` generates rows; ``"reference"`` lists every row of Lemma 5.1 and needs cvxpy.
    options, report
        When to stop, and what to call once per round; they change no guarantee.
    draws, rng
        Of a prior without linear expected error, by default 20,000 to 5,000 with a fixed seed.
    start
        The table of a similar problem, for the production solver.

    Returns
    -------
    Table
        Proven private; ``optimality`` holds its expected error and a lower bound on that of every private γ.

    Raises
    ------
    ValueError
        If there are too many voters, the prior has no surrogate, or the reference solver would have to sample.
    SolveError
        If the reference solver fails. The production solver always returns its best proven γ.

    Examples
    --------
    >>> optimize_table(K=5, m=1, each=(0.1, 0), shape="monotone").gamma.half.round(9)
    array([0.2, 0.6, 1. ])
    """
    if problem is None:
        pair = PrivacyParams("0.1", "1e-5") if each is None else PrivacyParams.of(each, "each")
        problem = Problem.from_allowance(Voters(11 if K is None else K, pair), 3 if m is None else m)
    elif K is not None or m is not None or each is not None:
        checks.fail("problem", problem, "left out if you pass K, m or each", "pass one or the other")
    checks.instance(Problem, problem=problem, advice="say Problem(voters, target)")
    if not problem.has_noise_function:
        extra = {"shape": shape, "objective": objective, "solver": solver, "draws": draws, "rng": rng, "start": start}
        for name, value in extra.items():
            if value not in {None, "free", OBJECTIVES[0], "production"}:
                checks.fail(name, value, f"left out for {problem.classes} classes", "it is about γ, for two classes")
        return optimize_plurality(problem, prior=prior, options=options, report=report)
    shape = default_shape(problem.voters) if shape is None else shape
    checks.one_of(SHAPES, shape=shape)
    request = Request(
        problem=problem,
        prior=prior_to_optimize(prior, objective),
        shape=Shape(shape),
        solver=solver,
        options=SolveOptions() if options is None else options,
        report=report,
        draws=draws,
        rng=rng,
        start=start,
    )
    if solver == "reference":
        return write_every_row(request)
    return fit_draws(request) if request.is_sampled else generate_rows(request)


def optimize_many(
    problems: Iterable[Problem],
    *,
    prior: Prior | str | None = None,
    shape: str = "free",
    options: SolveOptions | None = None,
    jobs: int = 1,
) -> list[Table]:
    """Find and prove the noise functions with the smallest expected errors for many problems.

    A solve starts from the active rows of the previous problem with the same voters: sort a sweep by m. ``jobs`` is the
    number of processes, −1 for one per core; others than 1 need joblib (the extra ``sampling``). `ValueError` as
    `optimize_table`.

    >>> from darrm import PrivacyParams, Voters
    >>> voters = Voters(5, PrivacyParams(0.1))
    >>> sweep = [Problem.from_allowance(voters, m) for m in (1, 2, 3)]
    >>> [round(table.optimality.value, 4) for table in optimize_many(sweep, shape="monotone")]
    [0.1465, 0.0427, 0.0]
    """
    all_problems = list(problems)
    for place, problem in enumerate(all_problems):
        checks.instance(Problem, **{f"problems[{place}]": problem}, advice="say Problem(voters, target)")
    checks.one_of(SHAPES, shape=shape)
    if jobs != -1:
        checks.integer_at_least(1, jobs=jobs, advice="or -1 for all cores")
    groups: dict[object, list[int]] = {}
    for place, problem in enumerate(all_problems):
        groups.setdefault((problem.voters, problem.classes), []).append(place)
    solve = partial(_solve_in_turn, prior=prior, shape=shape, options=options)
    tasks = [[all_problems[place] for place in places] for places in groups.values()]
    if jobs == 1 or len(tasks) < 2:
        parts = [solve(task) for task in tasks]
    else:
        joblib = require("joblib")
        parts = joblib.Parallel(n_jobs=jobs)(joblib.delayed(solve)(task) for task in tasks)
    tables = dict(zip(chain(*groups.values()), chain(*parts), strict=True))
    return [tables[place] for place in range(len(all_problems))]


def _solve_in_turn(
    problems: Sequence[Problem], prior: Prior | str | None, shape: str, options: SolveOptions | None
) -> list[Table]:
    tables: list[Table] = []
    for problem in problems:
        start = tables[-1] if tables and problem.has_noise_function else None  # other laws have no such rows
        tables.append(optimize_table(problem, prior=prior, shape=shape, options=options, start=start))
    return tables
