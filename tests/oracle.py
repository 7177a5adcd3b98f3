"""The privacy condition in exact rational arithmetic over every assignment of corners to voters, one voter at a time.

Nothing of darrm is called here. e^x is replaced by a rational that is off by at most 1e-60 of e^x − 1, so results are
exact for problems that differ from the real one by less than that.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING

import mpmath
import numpy as np

from lp_models.program import Array
from lp_models.reference import corner_pairs as pairs_of
from lp_models.reference import gamma_program

if TYPE_CHECKING:
    from darrm import NoiseFunction, PrivacyParams, Problem, Voters


def exponential(x: Fraction) -> Fraction:
    digits = 70 + max(0, len(str(x.denominator)) - len(str(x.numerator)))
    with mpmath.workdps(digits + 10):
        text = mpmath.nstr(mpmath.exp(mpmath.mpf(x.numerator) / x.denominator), digits, min_fixed=-1, max_fixed=-1)
    return Fraction(text)


def corner_list(problem: Problem) -> list[tuple[Fraction, Fraction]]:
    zero, one = Fraction(0), Fraction(1)
    if not problem.voters.each.is_private:
        return [(zero, zero), (one, one), (one, zero), (zero, one)]
    growth, delta = exponential(problem.voters.each.exact_epsilon), problem.voters.each.exact_delta
    hi, lo = (growth + delta) / (growth + 1), (1 - delta) / (growth + 1)
    pairs = [(zero, zero), (one, one), (hi, lo), (lo, hi)]
    if delta:
        pairs += [(zero, delta), (delta, zero), (1 - delta, one), (one, 1 - delta)]
    return pairs


def exact_budget(problem: Problem) -> Fraction:
    return exponential(problem.target.exact_epsilon) - 1 + 2 * problem.target.exact_delta


def signed_values(K: int, half: Iterable[float]) -> list[Fraction]:
    top = [Fraction(float(value)) for value in half]
    middle = [Fraction(0)] if K % 2 == 0 else []
    return [-value for value in reversed(top)] + middle + top


def exact_worst_cost(problem: Problem, half: Iterable[float]) -> Fraction:
    """The largest f over all assignments with at most ``overlap`` touched voters, by walking the tree of voters.

    A voter whom the person does not reach has p = p', any value; f is linear in it, so 0 and 1 are enough.
    Only the number of ones counts, so voters are placed in the order of their pairs: others repeat the same sum.
    """
    # those that touch nobody come last, so that they are left when nobody may be touched any more
    pairs = sorted(corner_list(problem), key=lambda pair: pair[0] == pair[1])
    ratio = exponential(problem.target.exact_epsilon)
    g = signed_values(problem.voters.K, half)

    def descend(voters: int, touchable: int, first: list[Fraction], second: list[Fraction], least: int = 0) -> Fraction:
        # first[s] = E[g(s + ones among the voters placed so far)], likewise second for p'
        if voters == 0:
            return first[0] - ratio * second[0]
        return max(
            descend(voters - 1, touchable - (p != p_prime), average(first, p), average(second, p_prime), number)
            for number, (p, p_prime) in enumerate(pairs)
            if number >= least and (touchable or p == p_prime)
        )

    return descend(problem.voters.K, problem.voters.reached, g, g)


def average(values: list[Fraction], p: Fraction) -> list[Fraction]:
    return [(1 - p) * low + p * high for low, high in pairwise(values)]


def lowest_partner(p: np.ndarray, each: PrivacyParams) -> np.ndarray:
    """The smallest p' that (ε, Δ)-privacy allows beside p, in floats; the largest is 1 − lowest_partner(1 − p)."""
    e, delta = np.exp(each.epsilon), each.delta
    return np.maximum.reduce([np.zeros_like(p), (p - delta) / e, 1 - e * (1 - p) - delta])


def exact_rows(problem: Problem) -> list[list[Fraction]]:
    """The coefficients of γ's free half in the cost of every multiset of corners with at most ``overlap`` touched."""
    K, ratio = problem.voters.K, exponential(problem.target.exact_epsilon)
    rows = []
    for corners in combinations_with_replacement(corner_list(problem), K):
        if sum(p != p_prime for p, p_prime in corners) <= problem.voters.reached:
            first, second = law(p for p, _ in corners), law(p_prime for _, p_prime in corners)
            cost = [one - ratio * other for one, other in zip(first, second, strict=True)]
            rows.append([cost[ones] - cost[K - ones] for ones in range(K // 2 + 1, K + 1)])
    return rows


def law(probabilities: Iterable[Fraction]) -> list[Fraction]:
    found = [Fraction(1)]
    for p in probabilities:
        found = [
            (1 - p) * stay + p * rise for stay, rise in zip([*found, Fraction(0)], [Fraction(0), *found], strict=True)
        ]
    return found


def exact_least_error(problem: Problem, weights: Iterable[float], shape: str) -> Fraction:
    """The smallest ½ Σ w (1 − γ) of all private γ, or of those that never fall."""
    w = [Fraction(float(weight)) for weight in weights]
    h = len(w)
    unit = [[Fraction(int(row == column)) for column in range(h)] for row in range(h)]
    costs = exact_rows(problem)
    rows, limits = costs + unit, [exact_budget(problem)] * len(costs) + [Fraction(1)] * h
    gain = w
    if shape == "monotone":  # γ(l) = u_1 + … + u_l
        rows = [[sum(row[k:], Fraction(0)) for k in range(h)] for row in rows]
        gain = [sum(w[k:], Fraction(0)) for k in range(h)]
    return (sum(w) - maximum(gain, rows, limits)) / 2


def maximum(gain: list[Fraction], rows: list[list[Fraction]], limits: list[Fraction]) -> Fraction:
    """The largest gain · x with rows x ≤ limits and x ≥ 0, limits ≥ 0: the simplex method with Bland's rule."""
    n, value = len(gain), Fraction(0)
    # the dictionary: every basic variable = limit − row · (the nonbasic ones)
    basic, free = list(range(n, n + len(rows))), list(range(n))
    rows, limits, gain = [list(row) for row in rows], list(limits), list(gain)
    while True:
        rising = [place for place in range(n) if gain[place] > 0]
        if not rising:
            return value
        enter = min(rising, key=lambda place: free[place])
        ratios = [(limits[r] / rows[r][enter], basic[r], r) for r in range(len(rows)) if rows[r][enter] > 0]
        step, _, leave = min(ratios)
        pivot = rows[leave]
        scale = 1 / pivot[enter]
        new = [scale * (entry if place != enter else 1) for place, entry in enumerate(pivot)]
        for r, row in enumerate(rows):
            if r != leave and row[enter] != 0:
                factor = row[enter]
                rows[r] = [(entry if place != enter else 0) - factor * new[place] for place, entry in enumerate(row)]
                limits[r] -= factor * step
        factor = gain[enter]
        value += factor * step
        gain = [(entry if place != enter else 0) - factor * new[place] for place, entry in enumerate(gain)]
        rows[leave], limits[leave] = new, step
        basic[leave], free[enter] = free[enter], basic[leave]


def exact_divergence(problem: Problem, half: Iterable[float]) -> Fraction:
    """The largest Pr_p[o] − e^ε Pr_{p'}[o] of an output o at the target's ε."""
    return (1 - exponential(problem.target.exact_epsilon) + exact_worst_cost(problem, half)) / 2


def privacy_cost(problem: Problem, gamma: NoiseFunction, p: Array, p_prime: Array) -> Array:
    """Compute f(p, p'; γ) for probabilities on two neighboring data sets: two arrays (…, K) → (…)."""
    first, second = (np.asarray(side, dtype=np.float64)[..., None] for side in (p, p_prime))
    own = mirrored = np.broadcast_to(
        np.array(signed_values(gamma.K, gamma.half), dtype=np.float64), (*p.shape[:-1], gamma.K + 1)
    )
    for voter in range(gamma.K):  # E[g(s + ones of the voters so far)]
        own = (1.0 - first[..., voter, :]) * own[..., :-1] + first[..., voter, :] * own[..., 1:]
        mirrored = (1.0 - second[..., voter, :]) * mirrored[..., :-1] + second[..., voter, :] * mirrored[..., 1:]
    return np.asarray(own[..., 0] - float(np.exp(problem.target.epsilon)) * mirrored[..., 0])


def corner_pairs(voters: Voters) -> Array:
    each = voters.each
    return pairs_of(each.epsilon if each.is_private else np.inf, each.delta)


def all_multisets(voters: Voters) -> tuple[Array, Array]:
    """Write every multiset of corners out as (p, p'), two arrays (rows, K)."""
    return gamma_program(SimpleNamespace(voters=voters, target=SimpleNamespace(epsilon=1.0, delta=0.0))).probabilities()


def all_coefficients(problem: Problem) -> Array:
    """Compute the coefficients of γ in the cost of every multiset, shape (rows, K − floor(K/2))."""
    return gamma_program(problem).program.matrix


def worst_cost(problem: Problem, gamma: NoiseFunction) -> float:
    return float(np.max(all_coefficients(problem) @ gamma.half))
