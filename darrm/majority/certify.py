"""Proofs in real arithmetic: that a noise function is private, and that no private one has a much smaller error.

**Privacy.** Two provers cover every row of the full set. Ball arithmetic encloses every number in an interval. It is
used if there are few averaging steps, or if the rounding of floats would hide a small budget. Otherwise floats are
used, with an a-priori bound on every error (`darrm.majority.full_set`). The budget comes from the exact decimals of the
problem. Repair by scaling: f(s·γ) = s·f(γ) and B > 0, so min(1, B/β)·γ is private for any bound β on the worst cost.

**Balls** follow the two chains without truncating tails or stopping early. If many voters near 0 and 1 are moved,
E[T(n_1 − Bin(a_1, Δ) + Bin(a, Δ))] is linear in the probability of each move. So it is T(n_1) + Δ·(a·(T(n_1 + 1) −
T(n_1)) + a_1·(T(n_1 − 1) − T(n_1))) up to ½Δ²·M²·max |T''| for M = a + a_1 ≤ N moves: the second derivative along the
diagonal is a sum of M(M − 1) second differences of T. The error is at most the share M²·Δ of a budget B ≥ 2Δ.

**Theorem (optimality).** Let w_l be the weights of the expected error ½ Σ_l w_l (1 − γ(l)), and y_r ≥ 0 any multipliers
of any rows a_r·γ ≤ B of the full set. With ρ_l = Σ_r y_r a_{r,l} − ½ w_l no private γ has an expected error below

    (1)  ½ Σ_l w_l − B Σ_r y_r + G,      G = Σ_l min(0, ρ_l),
    (2)  and no private γ that never falls one below the same with      G = min(0, min_k Σ_{l≥k} ρ_l).

*Proof.* A private γ satisfies the rows, so its expected error is at least ½ Σ_l w_l (1 − γ(l)) + Σ_r y_r (a_r·γ − B) =
½ Σ_l w_l − B Σ_r y_r + Σ_l ρ_l γ(l). In (1) every γ(l) is in [0, 1]. In (2) γ is a convex combination of 0 and of the
steps that are 1 from some k on, and a linear function is at least its smallest value there. ∎

Bad multipliers give a weak bound, never a false one. A table stores the solver's multipliers. Loading it computes the
bound again, in balls that contain the real e^ε, rows and budget; w are the floats of the prior. The law of the number
of ones of a row is a product of short polynomials, without terms below the rounding of the balls. The omitted mass is
(1 + c)·Σ y_r minus the sum of the coefficients; because |g| ≤ 1, the bound subtracts it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import pairwise, starmap
from operator import itemgetter

import numpy as np
from flint import arb, arb_poly, ctx

from darrm.errors import CertificationError
from darrm.loss.certificate import Certificate
from darrm.majority.corners import (
    PRECISION_BITS,
    CornerCounts,
    Row,
    budget_below,
    choose_precision,
    corners_of,
    enclose_budget,
    enclose_exp,
    full_set_size,
    lower_float,
    upper_float,
)
from darrm.majority.groups import GroupCounts, GroupSet, make_row_set
from darrm.majority.noise_function import NoiseFunction, signed_function
from darrm.numerics import Array
from darrm.privacy import at_least, at_most
from darrm.problem import Problem, Voters
from darrm.util import checks
from darrm.util.files import Json

_MAX_BALL_STEPS = 20_000  # a few hundredths of a second of ball arithmetic
_MAX_ROUNDING = 2.0**-20  # the share of the budget that rounding of floats may use up
BALLS = f"ball arithmetic, {PRECISION_BITS} bits"
FLOATS = "floating point with an a-priori error bound"
_FIRST_SHRINK = 1.0 - 2.0**-50  # what rounding of the scaled γ may cost
_MAX_ATTEMPTS = 12
# voters near 0 and 1 with exact averages of all moves, by whether γ is monotone
_MAX_EXACT_MOVES = {False: 40, True: 300}

Multiplier = tuple[float, Row]
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
    rows = make_row_set(problem.voters, problem.target.exact_epsilon)
    if isinstance(rows, GroupSet):
        if not gamma.is_monotone:
            advice = "where voters differ only such a γ is proved: take shape='monotone'"
            checks.fail("γ", "one that falls", "one that never falls on the way from the tie to unanimity", advice)
        steps = rows.steps()
    else:
        steps = averaging_steps(problem.voters, gamma)
    if steps > _MAX_BALL_STEPS and rows.rounding(rows.exp_epsilon) <= _MAX_ROUNDING * budget_below(problem.target):
        return rows.worst(gamma.half), FLOATS
    bits = choose_precision(problem.target)
    ball = rows.worst_ball(gamma.half, bits) if isinstance(rows, GroupSet) else worst_cost_ball(problem, gamma)
    return upper_float(ball), BALLS


def prove(problem: Problem, gamma: NoiseFunction, scale: float = 1.0) -> Certificate:
    """Prove that γ is private without scaling.

    `CertificationError` if the bound on its worst cost exceeds the budget.

    >>> from darrm import Problem, NoiseFunction, PrivacyParams, Voters
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 1)
    >>> prove(problem, NoiseFunction(3, [0.33, 0.99])).rows
    20
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
    for _ in range(_MAX_ATTEMPTS):
        try:
            return scaled, prove(problem, scaled, scale=factor)
        except CertificationError as error:
            failure = error
        factor = float(np.nextafter(factor * (failure.budget / failure.worst_cost) * shrink, 0.0))
        shrink = 1.0 - 8.0 * (1.0 - shrink)
        scaled = gamma.scale_by(factor)
    scaled = gamma.scale_by(0.0)
    return scaled, prove(problem, scaled, scale=0.0)


def averaging_steps(voters: Voters, gamma: NoiseFunction) -> int:
    """Bound the work of `worst_cost_ball`: all averages for (n_h, n_l) and all moves.

    The worst case is counted because the count decides the method, which stored tables name.
    """
    places = 2 if gamma.is_monotone else 3
    if voters.each.exact_delta == 0:
        return math.comb(voters.K + places, places)
    places = 2 * places - 1
    # an overlap below K leaves fewer voters to move but more windows to move them in
    return (voters.K - voters.reached + 1) * math.comb(voters.reached + places, places)


def worst_cost_ball(problem: Problem, gamma: NoiseFunction) -> arb:
    """Enclose the largest privacy cost over the full set."""
    corners, exp_epsilon = corners_of(problem.voters.each), enclose_exp(problem.target.exact_epsilon).ball
    with ctx.workprec(choose_precision(problem.target)):
        start = [arb(float(value)) for value in signed_function(gamma.half, problem.voters.K)]
        states = [
            pair
            for level in _yield_levels(start, corners.ball_hi, problem.voters.reached)
            for chain in ([level] if gamma.is_monotone else [level, [-value for value in reversed(level)]])
            for pair in _yield_windows(chain, problem.voters)
        ]
        delta = corners.ball_delta
        # rows without moves near 0 and 1: all rows for Δ = 0
        unmoved_costs = [_find_largest_cost(direct, reflected, exp_epsilon) for direct, reflected in states]
        worst = reduce(arb.max, unmoved_costs)
        if problem.voters.each.exact_delta == 0:
            return worst
        move_exactly = _move_all_zeros if gamma.is_monotone else _compute_best_moves
        for (direct, reflected), cost in zip(states, unmoved_costs, strict=True):
            move = move_exactly if len(direct) <= _MAX_EXACT_MOVES[gamma.is_monotone] else _bound_first_order
            # a term gains at most (expected moves) · (steepest step): most states cannot reach the worst
            if cost + (len(direct) - 1) * delta * (_find_slope(direct) + exp_epsilon * _find_slope(reflected)) < worst:
                continue
            moved_direct = move(direct, delta)
            moved_reflected = moved_direct if reflected is direct else move(reflected, delta)
            worst = worst.max(_find_largest_cost(moved_direct, moved_reflected, exp_epsilon))
        return worst


def _find_largest_cost(direct: _Level, reflected: _Level, exp_epsilon: arb) -> arb:
    return reduce(
        arb.max, (first + exp_epsilon * second for first, second in zip(direct, reversed(reflected), strict=True))
    )


def _find_slope(level: _Level) -> arb:
    return reduce(arb.max, (abs(second - first) for first, second in pairwise(level)), arb(0))


def _smooth(level: _Level, p: arb) -> _Level:
    complement = 1 - p
    return [complement * first + p * second for first, second in pairwise(level)]


def _yield_levels(level: _Level, hi: arb, reached: int) -> Iterator[_Level]:
    """Yield T for j = 0 … t voters at (hi, lo); reversed and negated it is T for (lo, hi)."""
    for _ in range(reached):
        yield level
        level = _smooth(level, hi)
    yield level


def _yield_windows(level: _Level, voters: Voters) -> Iterator[tuple[_Level, _Level]]:
    """Yield the window of the touched voters for every number of unaffected voters at 1, and its mirror."""
    if voters.each.exact_delta == 0:
        yield level, level  # no moves: only the place matters, and every place is in some window
        return
    unaffected = voters.K - voters.reached
    windows = [level[ones : len(level) - unaffected + ones] for ones in range(unaffected + 1)]
    yield from zip(windows, reversed(windows), strict=True)


def _compute_best_moves(level: _Level, delta: arb) -> _Level:
    """Compute V(n_1) = max over a, a_1 of E[T(n_1 − Bin(a_1, Δ) + Bin(a, Δ))] for n_1 = 0 … N."""
    # where T does not fall, a = n_0 and a_1 = 0 are best
    if all(second >= first for first, second in pairwise(level)):
        return _move_all_zeros(level, delta)
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


def _bound_first_order(level: _Level, delta: arb) -> _Level:
    N = len(level) - 1
    rises = [second - first for first, second in pairwise(level)]
    curvature = reduce(arb.max, (abs(second - first) for first, second in pairwise(rises)), arb(0))
    remainder, zero = (delta * N) ** 2 * curvature / 2, arb(0)
    ups = [(N - n) * rise.max(zero) for n, rise in enumerate(rises)] + [zero]
    downs = [zero] + [n * (-rise).max(zero) for n, rise in enumerate(rises, 1)]
    return [value + delta * (up + down) + remainder for value, up, down in zip(level, ups, downs, strict=True)]


def _move_all_zeros(level: _Level, delta: arb) -> _Level:
    """Compute E[T(n_1 + Bin(N − n_1, Δ))] for n_1 = 0 … N."""
    result = []
    while level:
        result.append(level[-1])
        level = _smooth(level, delta)
    return result[::-1]


def lower_bound(problem: Problem, weights: Array, shape: str, multipliers: Sequence[Multiplier]) -> float:
    """Compute a float that is at most (1), or (2) for the shape ``"monotone"``, and at least 0.

    ``weights`` are w_l for l = ⌊K/2⌋ + 1 … K, and ``multipliers`` pairs of y ≥ 0 and a row of the full set.
    """
    voters, K = problem.voters, problem.voters.K
    exp_epsilon = enclose_exp(problem.target.exact_epsilon).ball
    with ctx.workprec(choose_precision(problem.target)):
        total = sum((arb(y) for y, _ in multipliers), arb(0))
        law = _sum_laws(voters, exp_epsilon, multipliers)
        half_weights = [arb(float(w)) / 2 for w in weights]
        levels = range(voters.first_majority, K + 1)
        reduced = [law[ones] - law[K - ones] - w for ones, w in zip(levels, half_weights, strict=True)]
        gain = arb(0)
        if shape == "free":
            gain = sum((coefficient.min(0) for coefficient in reduced), gain)
        else:
            tail = arb(0)
            for coefficient in reversed(reduced):
                tail += coefficient
                gain = gain.min(tail)
        cut_mass = (1 + exp_epsilon) * total - sum(law, arb(0))
        bound = lower_float(sum(half_weights, arb(0)) - enclose_budget(problem.target) * total - cut_mass + gain)
    return max(0.0, bound)


def _sum_laws(voters: Voters, exp_epsilon: arb, multipliers: Sequence[Multiplier]) -> list[arb]:
    """Compute Σ_r y_r·(law of L under p + c·law of L under 1 − p') at L = 0 … K, without negligible terms."""
    total = [arb(0)] * (voters.K + 1)
    for y, row in multipliers:
        for weight, of_prime in ((arb(y), False), (arb(y) * exp_epsilon, True)):
            start, product = 0, arb_poly([weight])
            for part, corners in row.split_by_group(voters):
                ones, binomials = part.side(corners.ball_hi, corners.ball_delta, of_prime=of_prime)
                start += ones
                for first, law in starmap(_compute_binomial, binomials):
                    start, product = start + first, product * arb_poly(law)
            for place, probability in enumerate(product.coeffs(), start):
                total[place] += probability
    return total


def _compute_binomial(n: int, p: arb) -> tuple[int, list[arb]]:
    """Compute Pr[Bin(n, p) = i] where it exceeds 2^−bits; return the first i and the probabilities."""
    if p * (1 - p) == 0:
        return (n if p == 1 else 0), [arb(1)]
    mode = min(n, int((n + 1) * float(p.mid())))
    upward = [arb.bin_uiui(n, mode) * p**mode * (1 - p) ** (n - mode)]
    odds, downward, threshold = p / (1 - p), upward[:], arb(2) ** -ctx.prec
    for i in range(mode, n):
        upward.append(upward[-1] * ((n - i) * odds / (i + 1)))
        if not upward[-1] > threshold:
            break
    for i in range(mode, 0, -1):
        downward.append(downward[-1] * (i / odds / (n - i + 1)))
        if not downward[-1] > threshold:
            break
    return mode - len(downward) + 1, downward[:0:-1] + upward


def multipliers_from_json(data: Json, voters: Voters) -> tuple[Multiplier, ...]:
    """Read lists of y and the output of `Row.to_list`; `TypeError` or `ValueError` for other data.

    A vertex of the program has at most as many multipliers as γ has values, so more than K of them are refused.
    """
    if not isinstance(data, list) or len(data) > voters.K:
        checks.fail("multipliers", type(data).__name__, f"a list of at most K = {voters.K} entries")
    multipliers, numbers = [], [n for n, _ in voters.groups]
    for entry in data:
        if not isinstance(entry, list):
            checks.fail("multipliers", entry, "a list of lists")
        y, *counts = entry
        checks.non_negative(multiplier=y)
        lists = [counts] if len(numbers) == 1 else counts
        if len(lists) != len(numbers) or not all(isinstance(part, list) for part in lists):
            checks.fail("multipliers", entry, "a multiplier and a list of counts for each group of voters")
        parts = tuple(map(CornerCounts.from_list, lists, numbers))
        row = parts[0] if len(parts) == 1 else GroupCounts(parts)
        if not row.is_row_of(voters):
            checks.fail("multipliers", entry, "a multiplier and a row of these voters")
        multipliers.append((float(y), row))
    return tuple(multipliers)


def largest(multipliers: Sequence[Multiplier], voters: Voters) -> tuple[Multiplier, ...]:
    """Keep the K largest multipliers: a vertex has no more."""
    ordered = sorted(multipliers, key=itemgetter(0), reverse=True)[: voters.K]
    return tuple((y, row) for y, row in ordered if 0.0 < y < math.inf)
