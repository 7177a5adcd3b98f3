"""The worst privacy cost in ball arithmetic: every number is an interval that contains the real one.

The same rows as in `darrm.gamma.dominating` and `darrm.gamma.full`, in plain Python over flint's ``arb`` and without
any of their shortcuts: no truncated tails, no curvature, no stopping rule. It is the proof for problems small enough,
and the second opinion on the float code in the tests.
"""

from __future__ import annotations

from itertools import pairwise
from math import comb
from typing import TYPE_CHECKING

from flint import arb, ctx

from darrm.gamma.corners import PRECISION_BITS, constants_of
from darrm.gamma.noise_function import signed_function

if TYPE_CHECKING:
    from collections.abc import Iterator

    from darrm.gamma.noise_function import NoiseFunction
    from darrm.privacy import MajorityProblem

Level = list[arb]


def averaging_steps(problem: MajorityProblem, gamma: NoiseFunction) -> int:
    """Estimate the work: how many averages `worst_cost_ball` will take."""
    # an overlap below K leaves fewer voters to move but more windows to move them in
    windows = problem.K - problem.reached + 1
    if problem.each.exact_delta == 0:
        return comb(problem.K + 2, 2) if gamma.is_monotone else comb(problem.K + 3, 3)
    if gamma.is_monotone:
        return windows * comb(problem.reached + 3, 3)
    return windows * comb(problem.reached + 5, 5)


def worst_cost_ball(problem: MajorityProblem, gamma: NoiseFunction) -> arb:
    """Enclose the largest privacy cost over the full set.

    Returns
    -------
    arb
        Its upper end is above every cost.
    """
    constants = constants_of(problem)
    with ctx.workprec(PRECISION_BITS):
        start = [arb(float(value)) for value in signed_function(gamma.half, problem.K)]
        worst: arb | None = None
        for level in _levels(start, constants.ball_hi, problem, monotone=gamma.is_monotone):
            for best, partner in _windows(level, problem, constants.ball_delta, monotone=gamma.is_monotone):
                for first, second in zip(best, reversed(partner), strict=True):
                    cost = first + constants.ball_ratio * second
                    worst = cost if worst is None else worst.max(cost)
        return worst


def _smooth(level: Level, p: arb) -> Level:
    rest = 1 - p
    return [rest * first + p * second for first, second in pairwise(level)]


def _levels(start: Level, hi: arb, problem: MajorityProblem, *, monotone: bool) -> Iterator[Level]:
    """Give T for every (n_h, n_l) with n_h + n_l ≤ t; for monotone γ only n_l = 0."""
    fewest = problem.K - problem.reached
    base = start
    while len(base) > fewest:
        level = base
        while len(level) > fewest:
            yield level
            level = _smooth(level, hi)
        base = [] if monotone else _smooth(base, 1 - hi)


def _windows(level: Level, problem: MajorityProblem, delta: arb, *, monotone: bool) -> Iterator[tuple[Level, Level]]:
    """Give the best moves of the touched voters for every number of frozen ones, with those of the mirrored row."""
    if problem.each.exact_delta == 0:
        yield level, level  # no moves: only the place matters, and every place is in some window
        return
    frozen = problem.K - problem.reached
    move = _all_zeros_moved if monotone else _best_moves
    best = [move(level[ones : len(level) - frozen + ones], delta) for ones in range(frozen + 1)]
    yield from zip(best, reversed(best), strict=True)


def _all_zeros_moved(level: Level, delta: arb) -> Level:
    """Compute E[T(n_1 + Bin(N − n_1, Δ))] for n_1 = 0 … N."""
    result = []
    while level:
        result.append(level[-1])
        level = _smooth(level, delta)
    return result[::-1]


def _best_moves(level: Level, delta: arb) -> Level:
    """Compute V(n_1) = max over a, a_1 of E[T(n_1 − Bin(a_1, Δ) + Bin(a, Δ))] for n_1 = 0 … N."""
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
