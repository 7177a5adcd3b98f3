"""The worst privacy cost in ball arithmetic: every number is an interval that contains the real one.

The two chains of `darrm.majority.full_set`, in plain Python over flint's ``arb`` and without truncated tails and
stopping rule. It is the proof of small problems and of small budgets, and the second opinion on the float code in the
tests.

**Many voters near 0 and 1, each moved with a small Δ.** E[T(n_1 − Bin(a_1, Δ) + Bin(a, Δ))] is linear in the
probability of every single move. So it is T(n_1) + Δ·(a·(T(n_1 + 1) − T(n_1)) + a_1·(T(n_1 − 1) − T(n_1))) up to
½Δ²·M²·max |T''| for M = a + a_1 ≤ N moves: the second derivative along the diagonal is a sum of M(M − 1) second
differences of T. Of a budget B ≥ 2Δ, as every δ ≥ Δ has, this takes the part M²·Δ at most.
"""

from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from math import comb

from flint import arb, ctx

from darrm.majority.corners import corners_of, precision_of, ratio_of
from darrm.majority.noise_function import NoiseFunction, signed_function
from darrm.problem import Problem, Voters

_MOST_MOVED = {
    False: 40,
    True: 300,
}  # voters near 0 and 1 whose moves are all looked at, of a γ that is monotone or not

_Level = list[arb]


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
