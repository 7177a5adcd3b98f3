"""Proofs: that a noise function satisfies every row of the full set, strictly and in real arithmetic.

There are two rigorous provers. Ball arithmetic looks at every row (`darrm.majority.balls`) if the averaging steps are
few, or if the budget is so small that rounding would hide it. Otherwise floats do, with an a-priori bound on every
error (`darrm.majority.full_set`). The budget is that of the exact decimals of the problem.

Repair by scaling: f(s·γ) = s·f(γ) and B > 0, so min(1, B/β)·γ is private for any β that is at least the worst cost.
"""

import numpy as np

from darrm.errors import CertificationError
from darrm.loss.certificate import Certificate
from darrm.majority.balls import averaging_steps, worst_cost_ball
from darrm.majority.corners import PRECISION_BITS, budget_below, full_set_size, precision_of, upper_float
from darrm.majority.full_set import FullSet
from darrm.majority.groups import KindSet
from darrm.majority.noise_function import NoiseFunction
from darrm.privacy import at_least, at_most
from darrm.problem import Problem
from darrm.util import checks

_MOST_BALL_STEPS = 20_000  # a few hundredths of a second of ball arithmetic
_COARSE = 2.0**-20  # floats may round away this part of the budget, not more
BALLS = f"ball arithmetic, {PRECISION_BITS} bits"
FLOATS = "floating point with an a-priori error bound"
_FIRST_SHRINK = 1.0 - 2.0**-50  # what rounding of the scaled γ may cost
_MOST_ATTEMPTS = 12


def bound_worst_cost(problem: Problem, gamma: NoiseFunction) -> tuple[float, str]:
    """Bound the largest privacy cost from above; return the bound and the method."""
    checks.instance(Problem, problem=problem)
    checks.instance(NoiseFunction, gamma=gamma)
    if not problem.has_noise_function:
        checks.fail(
            "problem.classes", problem.classes, "2", "γ is about two classes: certify takes a PluralityLaw for more"
        )
    if gamma.K != problem.voters.K:
        checks.fail("gamma.K", gamma.K, f"K = {problem.voters.K} of the problem")
    if not np.any(gamma.half):
        return 0.0, BALLS  # fair coins
    coarse = _COARSE * budget_below(problem.target)
    if problem.voters.own is not None:
        return _bound_of_kinds(problem, gamma, coarse)
    full = FullSet(problem.voters, problem.target.exact_epsilon)
    few = averaging_steps(problem.voters, gamma) <= _MOST_BALL_STEPS
    if few or full.family.rounding(full.ratio) > coarse:
        return upper_float(worst_cost_ball(problem, gamma)), BALLS
    return full.maxima(gamma.half).worst, FLOATS


def _bound_of_kinds(problem: Problem, gamma: NoiseFunction, coarse: float) -> tuple[float, str]:
    rows = KindSet(problem.voters, problem.target.exact_epsilon)
    if not gamma.is_monotone:
        advice = "where voters differ only such a γ is proved: take shape='monotone'"
        checks.fail("γ", "one that falls", "one that never falls on the way from the tie to unanimity", advice)
    if rows.steps() <= _MOST_BALL_STEPS or rows.rounding(rows.ratio) > coarse:
        return upper_float(rows.worst_ball(gamma.half, precision_of(problem.target))), BALLS
    return rows.worst(gamma.half), FLOATS


def prove(problem: Problem, gamma: NoiseFunction, scale: float = 1.0) -> Certificate:
    """Prove that γ is private as it stands.

    `CertificationError` if the bound on its worst cost exceeds the budget.

    >>> from darrm import Problem, NoiseFunction, PrivacyParams, Voters
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 1)
    >>> prove(problem, NoiseFunction(3, [0.33, 0.99])).rows
    20
    >>> prove(problem, NoiseFunction(3, [1.0, 1.0]))
    Traceback (most recent call last):
    ...
    darrm.errors.CertificationError: the worst privacy cost is up to 0.157626, above the budget 0.10517: scale γ by
    0.667222 or let certify do it
    """
    worst_cost, method = bound_worst_cost(problem, gamma)
    budget = budget_below(problem.target)
    if worst_cost > budget:
        raise CertificationError(
            f"the worst privacy cost is up to {at_most(worst_cost, 6)}, above the budget {at_least(budget, 6)}: "
            f"scale γ by {budget / worst_cost:.6g} or let certify do it",
            worst_cost=worst_cost,
            budget=budget,
        )
    rows = full_set_size(problem.voters)
    return Certificate(worst_cost, budget, rows, method, scale)


def scale_and_prove(problem: Problem, gamma: NoiseFunction) -> tuple[NoiseFunction, Certificate]:
    """Scale γ down until the proof holds, and prove the result.

    If no float below γ is close enough to prove it, as for a denormal budget, the result is fair coins.
    """
    checks.instance(Problem, problem=problem, advice="say Problem(voters, target)")
    checks.instance(NoiseFunction, gamma=gamma, advice="say NoiseFunction(K, values)")
    factor, shrink = 1.0, _FIRST_SHRINK
    scaled = gamma
    for _ in range(_MOST_ATTEMPTS):
        try:
            return scaled, prove(problem, scaled, scale=factor)
        except CertificationError as error:
            failure = error
        factor = float(np.nextafter(factor * (failure.budget / failure.worst_cost) * shrink, 0.0))
        shrink = 1.0 - 8.0 * (1.0 - shrink)
        scaled = gamma.scaled(factor)
    scaled = gamma.scaled(0.0)
    return scaled, prove(problem, scaled, scale=0.0)
