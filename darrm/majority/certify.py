"""Proofs: that a noise function satisfies every row of the full set, strictly and in real arithmetic.

There are two rigorous provers. Ball arithmetic looks at every row if the averaging steps are few, or if the budget is
so small that rounding would hide it: every number is an interval that contains the real one. Otherwise floats do, with
an a-priori bound on every error (`darrm.majority.full_set`). The budget is that of the exact decimals of the problem.

Repair by scaling: f(s·γ) = s·f(γ) and B > 0, so min(1, B/β)·γ is private for any β that is at least the worst cost.

**Balls.** They follow the two chains of `darrm.majority.full_set` in plain Python, over flint's ``arb``, without
truncated tails and stopping rule, and are the second opinion on the float code in the tests. Many voters near 0 and 1
are each moved with a small Δ: E[T(n_1 − Bin(a_1, Δ) + Bin(a, Δ))] is linear in the probability of every single move. So
it is T(n_1) + Δ·(a·(T(n_1 + 1) − T(n_1)) + a_1·(T(n_1 − 1) − T(n_1))) up to ½Δ²·M²·max |T''| for M = a + a_1 ≤ N
moves: the second derivative along the diagonal is a sum of M(M − 1) second differences of T. Of a budget B ≥ 2Δ, as
every δ ≥ Δ has, this takes the part M²·Δ at most.
"""

from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from math import comb

import numpy as np
from flint import arb, ctx

from darrm.errors import CertificationError
from darrm.loss.certificate import Certificate
from darrm.majority.corners import (
    PRECISION_BITS,
    budget_below,
    corners_of,
    full_set_size,
    precision_of,
    ratio_of,
    upper_float,
)
from darrm.majority.groups import GroupSet, rows_of
from darrm.majority.noise_function import NoiseFunction, signed_function
from darrm.privacy import at_least, at_most
from darrm.problem import Problem, Voters
from darrm.util import checks

_MOST_BALL_STEPS = 20_000  # a few hundredths of a second of ball arithmetic
_COARSE = 2.0**-20  # floats may round away this part of the budget, not more
BALLS = f"ball arithmetic, {PRECISION_BITS} bits"
FLOATS = "floating point with an a-priori error bound"
_FIRST_SHRINK = 1.0 - 2.0**-50  # what rounding of the scaled γ may cost
_MOST_ATTEMPTS = 12
# voters near 0 and 1 whose moves are all looked at, of a γ that is monotone or not
_MOST_MOVED = {False: 40, True: 300}

_Level = list[arb]


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
    rows = rows_of(problem.voters, problem.target.exact_epsilon)
    if isinstance(rows, GroupSet):
        if not gamma.is_monotone:
            advice = "where voters differ only such a γ is proved: take shape='monotone'"
            checks.fail("γ", "one that falls", "one that never falls on the way from the tie to unanimity", advice)
        steps = rows.steps()
    else:
        steps = averaging_steps(problem.voters, gamma)
    if steps > _MOST_BALL_STEPS and rows.rounding(rows.ratio) <= _COARSE * budget_below(problem.target):
        return rows.worst(gamma.half), FLOATS
    bits = precision_of(problem.target)
    ball = rows.worst_ball(gamma.half, bits) if isinstance(rows, GroupSet) else worst_cost_ball(problem, gamma)
    return upper_float(ball), BALLS


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


def averaging_steps(voters: Voters, gamma: NoiseFunction) -> int:
    """Bound the work: how many averages all (n_h, n_l) and all moves would take.

    `worst_cost_ball` takes far fewer since pairs of opposite voters are known to be dominated, but tables name their
    method, and a problem keeps the one that it has had.
    """
    # an overlap below K leaves fewer voters to move but more windows to move them in
    windows = voters.K - voters.reached + 1
    if voters.each.exact_delta == 0:
        return comb(voters.K + 2, 2) if gamma.is_monotone else comb(voters.K + 3, 3)
    if gamma.is_monotone:
        return windows * comb(voters.reached + 3, 3)
    return windows * comb(voters.reached + 5, 5)


def worst_cost_ball(problem: Problem, gamma: NoiseFunction) -> arb:
    """Enclose the largest privacy cost over the full set: the upper end is above every cost."""
    corners, ratio = corners_of(problem.voters.each), ratio_of(problem.target.exact_epsilon).ball
    with ctx.workprec(precision_of(problem.target)):
        start = [arb(float(value)) for value in signed_function(gamma.half, problem.voters.K)]
        states = [
            pair
            for level in _levels(start, corners.ball_hi, problem.voters.reached)
            for chain in ([level] if gamma.is_monotone else [level, [-value for value in reversed(level)]])
            for pair in _windows(chain, problem.voters)
        ]
        delta = corners.ball_delta
        # rows without moves near 0 and 1: all rows for Δ = 0
        unmoved = [_largest_cost(own, mirrored, ratio) for own, mirrored in states]
        worst = reduce(arb.max, unmoved)
        if problem.voters.each.exact_delta == 0:
            return worst
        exact = _all_zeros_moved if gamma.is_monotone else _best_moves
        for (own, mirrored), cost in zip(states, unmoved, strict=True):
            move = exact if len(own) <= _MOST_MOVED[gamma.is_monotone] else _moved_at_first_order
            # a term gains at most (expected moves) · (steepest step): most states cannot reach the worst
            if cost + (len(own) - 1) * delta * (_steepest(own) + ratio * _steepest(mirrored)) < worst:
                continue
            moved = move(own, delta)
            moved_mirrored = moved if mirrored is own else move(mirrored, delta)
            worst = worst.max(_largest_cost(moved, moved_mirrored, ratio))
        return worst


def _largest_cost(own: _Level, mirrored: _Level, ratio: arb) -> arb:
    return reduce(arb.max, (first + ratio * second for first, second in zip(own, reversed(mirrored), strict=True)))


def _steepest(level: _Level) -> arb:
    return reduce(arb.max, (abs(second - first) for first, second in pairwise(level)), arb(0))


def _smooth(level: _Level, p: arb) -> _Level:
    rest = 1 - p
    return [rest * first + p * second for first, second in pairwise(level)]


def _levels(level: _Level, hi: arb, reached: int) -> Iterator[_Level]:
    """Yield T for j = 0 … t voters at (hi, lo); reversed and negated it is T for (lo, hi)."""
    for _ in range(reached):
        yield level
        level = _smooth(level, hi)
    yield level


def _windows(level: _Level, voters: Voters) -> Iterator[tuple[_Level, _Level]]:
    """Yield the window of the touched voters for every number of voters frozen at 1, and its mirror."""
    if voters.each.exact_delta == 0:
        yield level, level  # no moves: only the place matters, and every place is in some window
        return
    frozen = voters.K - voters.reached
    windows = [level[ones : len(level) - frozen + ones] for ones in range(frozen + 1)]
    yield from zip(windows, reversed(windows), strict=True)


def _best_moves(level: _Level, delta: arb) -> _Level:
    """Compute V(n_1) = max over a, a_1 of E[T(n_1 − Bin(a_1, Δ) + Bin(a, Δ))] for n_1 = 0 … N."""
    # where T does not fall, a = n_0 and a_1 = 0 are best
    if all(second >= first for first, second in pairwise(level)):
        return _all_zeros_moved(level, delta)
    best = list(level)
    moved_zeros = level
    while moved_zeros:
        moved_both = moved_zeros
        a_1 = 0
        while moved_both:
            for s, value in enumerate(moved_both):
                best[s + a_1] = best[s + a_1].max(value)
            moved_both = _smooth(moved_both, 1 - delta)
            a_1 += 1
        moved_zeros = _smooth(moved_zeros, delta)
    return best


def _moved_at_first_order(level: _Level, delta: arb) -> _Level:
    """Bound V(n_1) from above for n_1 = 0 … N."""
    N = len(level) - 1
    rises = [second - first for first, second in pairwise(level)]
    curved = reduce(arb.max, (abs(second - first) for first, second in pairwise(rises)), arb(0))
    rest, zero = (delta * N) ** 2 * curved / 2, arb(0)
    up = [(N - n) * rise.max(zero) for n, rise in enumerate(rises)] + [zero]
    down = [zero] + [n * (-rise).max(zero) for n, rise in enumerate(rises, 1)]
    return [value + delta * (more + less) + rest for value, more, less in zip(level, up, down, strict=True)]


def _all_zeros_moved(level: _Level, delta: arb) -> _Level:
    """Compute E[T(n_1 + Bin(N − n_1, Δ))] for n_1 = 0 … N."""
    result = []
    while level:
        result.append(level[-1])
        level = _smooth(level, delta)
    return result[::-1]
