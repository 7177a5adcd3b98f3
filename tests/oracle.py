"""The privacy condition over all assignments of corners to voters: in exact fractions, and in floats for more voters.

Nothing here is computed by darrm. e^x becomes a rational with an error of at most 1e-60 of e^x − 1, so results are
exact for problems that differ from the real one by less than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain, combinations_with_replacement, pairwise, product
from typing import TYPE_CHECKING

import mpmath
import numpy as np

if TYPE_CHECKING:
    from darrm import NoiseFunction, PrivacyParams, Problem, Voters

Array = np.ndarray
Corner = tuple[Fraction, Fraction]  # the probabilities (p, p') of a voter's 1 on two neighboring data sets


def exponential(x: Fraction) -> Fraction:
    digits = 70 + max(0, len(str(x.denominator)) - len(str(x.numerator)))
    with mpmath.workdps(digits + 10):
        text = mpmath.nstr(mpmath.exp(mpmath.mpf(x.numerator) / x.denominator), digits, min_fixed=-1, max_fixed=-1)
    return Fraction(text)


def exact_budget(problem: Problem) -> Fraction:
    return exponential(problem.target.exact_epsilon) - 1 + 2 * problem.target.exact_delta


def list_corners(each: PrivacyParams) -> list[Corner]:
    """List the corners of the region that (ε, Δ)-privacy allows, those with p = p' first."""
    zero, one = Fraction(0), Fraction(1)
    if not each.is_private:
        return [(zero, zero), (one, one), (one, zero), (zero, one)]
    growth, delta = exponential(each.exact_epsilon), each.exact_delta
    hi, lo = (growth + delta) / (growth + 1), (1 - delta) / (growth + 1)
    corners = [(zero, zero), (one, one), (hi, lo), (lo, hi)]
    if delta:
        corners += [(zero, delta), (delta, zero), (1 - delta, one), (one, 1 - delta)]
    return corners


def lowest_partner(p: Array, each: PrivacyParams) -> Array:
    """Compute the smallest p' that (ε, Δ)-privacy allows for p, in floats; the largest is 1 − lowest_partner(1 − p)."""
    e, delta = np.exp(each.epsilon), each.delta
    return np.maximum.reduce([np.zeros_like(p), (p - delta) / e, 1 - e * (1 - p) - delta])


def corner_rows(voters: Voters) -> Iterator[tuple[Corner, ...]]:
    """Yield every multiset of corners, group by group, with at most ``overlap`` influenced voters."""
    groups = [combinations_with_replacement(list_corners(each), n) for n, each in voters.groups]
    for parts in product(*groups):
        row = tuple(chain.from_iterable(parts))
        if sum(p != p_prime for p, p_prime in row) <= voters.reached:
            yield row


def all_multisets(voters: Voters) -> tuple[Array, Array]:
    """List `corner_rows` as (p, p'), two float arrays (rows, K)."""
    rows = np.array([[(float(p), float(p_prime)) for p, p_prime in row] for row in corner_rows(voters)])
    return rows[:, :, 0], rows[:, :, 1]


def laws_of_ones(p: Array) -> Array:
    """Compute the law of the number of ones of independent voters: (…, K) → (…, K + 1)."""
    law = np.ones((*p.shape[:-1], 1))
    for voter in range(p.shape[-1]):
        one, zeros = p[..., voter, None], np.zeros((*p.shape[:-1], 1))
        law = np.concatenate([law * (1.0 - one), zeros], axis=-1) + np.concatenate([zeros, law * one], axis=-1)
    return law


def signed_values(K: int, half: Iterable[float]) -> list[Fraction]:
    top = [Fraction(float(value)) for value in half]
    middle = [Fraction(0)] if K % 2 == 0 else []
    return [-value for value in reversed(top)] + middle + top


def signed_floats(K: int, half: Iterable[float]) -> Array:
    return np.array(signed_values(K, half), dtype=np.float64)


def privacy_cost(problem: Problem, gamma: NoiseFunction, p: Array, p_prime: Array) -> Array:
    """Compute f(p, p'; γ) for probabilities on two neighboring data sets: two arrays (…, K) → (…)."""
    g = signed_floats(gamma.K, gamma.half)
    ratio = float(np.exp(problem.target.epsilon))
    return np.asarray(laws_of_ones(np.asarray(p)) @ g - ratio * (laws_of_ones(np.asarray(p_prime)) @ g))


def worst_cost(problem: Problem, gamma: NoiseFunction) -> float:
    return float(np.max(privacy_cost(problem, gamma, *all_multisets(problem.voters))))


def all_coefficients(problem: Problem) -> Array:
    """Compute the coefficients of γ in the cost of every multiset, shape (rows, K − ⌊K/2⌋)."""
    first, second = map(laws_of_ones, all_multisets(problem.voters))
    cost = first - float(np.exp(problem.target.epsilon)) * second
    return np.asarray((cost - cost[:, ::-1])[:, problem.voters.K // 2 + 1 :])


def exact_worst_cost(problem: Problem, half: Iterable[float]) -> Fraction:
    """Compute the largest f over all assignments with at most ``overlap`` influenced voters, by recursion on voters.

    A voter without influence of the person has p = p'; f is linear in p, so the values 0 and 1 are enough.
    f depends on the number of ones only, so the recursion assigns corners to the voters of a group in ascending order.
    """
    # corners with p = p' come last: they remain possible when the overlap is used up
    corners = [
        sorted(list_corners(each), key=lambda corner: corner[0] == corner[1])
        for n, each in problem.voters.groups
        for _ in range(n)
    ]
    ratio = exponential(problem.target.exact_epsilon)
    g = signed_values(problem.voters.K, half)

    def find_worst(
        voter: int, remaining_overlap: int, first: list[Fraction], second: list[Fraction], min_corner: int = 0
    ) -> Fraction:
        # first[s] = E[g(s + ones among the voters placed so far)], likewise second for p'
        if voter == len(corners):
            return first[0] - ratio * second[0]
        if voter and corners[voter] != corners[voter - 1]:
            min_corner = 0
        return max(
            find_worst(
                voter + 1, remaining_overlap - (p != p_prime), average(first, p), average(second, p_prime), number
            )
            for number, (p, p_prime) in enumerate(corners[voter])
            if number >= min_corner and (remaining_overlap or p == p_prime)
        )

    return find_worst(0, problem.voters.reached, g, g)


def exact_divergence(problem: Problem, half: Iterable[float]) -> Fraction:
    """Compute the largest Pr_p[o] − e^ε Pr_{p'}[o] of an output o at the target's ε."""
    return (1 - exponential(problem.target.exact_epsilon) + exact_worst_cost(problem, half)) / 2


def average(values: list[Fraction], p: Fraction) -> list[Fraction]:
    return [(1 - p) * low + p * high for low, high in pairwise(values)]


def exact_rows(problem: Problem) -> list[list[Fraction]]:
    """Compute γ's coefficients in the cost of every multiset of corners with at most ``overlap`` influenced voters."""
    K, ratio = problem.voters.K, exponential(problem.target.exact_epsilon)
    rows = []
    for row in corner_rows(problem.voters):
        first, second = law(p for p, _ in row), law(p_prime for _, p_prime in row)
        cost = [p_ones - ratio * q_ones for p_ones, q_ones in zip(first, second, strict=True)]
        rows.append([cost[ones] - cost[K - ones] for ones in range(K // 2 + 1, K + 1)])
    return rows


def law(probabilities: Iterable[Fraction]) -> list[Fraction]:
    probabilities_of_ones = [Fraction(1)]
    for p in probabilities:
        probabilities_of_ones = [
            (1 - p) * low + p * high
            for low, high in zip(
                [*probabilities_of_ones, Fraction(0)], [Fraction(0), *probabilities_of_ones], strict=True
            )
        ]
    return probabilities_of_ones


def exact_least_error(problem: Problem, weights: Iterable[float], shape: str) -> Fraction:
    """Compute the smallest ½ Σ w (1 − γ) over all private γ, or over the monotone ones."""
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
    """Maximize gain · x with rows x ≤ limits, x ≥ 0 and limits ≥ 0, by the simplex method with Bland's rule."""
    n, value = len(gain), Fraction(0)
    # the dictionary: every basic variable = limit − row · (the nonbasic ones)
    basic, free = list(range(n, n + len(rows))), list(range(n))
    rows, limits, gain = [list(row) for row in rows], list(limits), list(gain)
    while True:
        improving = [place for place in range(n) if gain[place] > 0]
        if not improving:
            return value
        entering = min(improving, key=lambda place: free[place])
        ratios = [(limits[r] / rows[r][entering], basic[r], r) for r in range(len(rows)) if rows[r][entering] > 0]
        step, _, leaving = min(ratios)
        pivot = rows[leaving]
        scale = 1 / pivot[entering]
        pivot_row = [scale * (entry if place != entering else 1) for place, entry in enumerate(pivot)]
        for r, row in enumerate(rows):
            if r != leaving and row[entering] != 0:
                factor = row[entering]
                rows[r] = [
                    (entry if place != entering else 0) - factor * pivot_row[place] for place, entry in enumerate(row)
                ]
                limits[r] -= factor * step
        factor = gain[entering]
        value += factor * step
        gain = [(entry if place != entering else 0) - factor * pivot_row[place] for place, entry in enumerate(gain)]
        rows[leaving], limits[leaving] = pivot_row, step
        basic[leaving], free[entering] = free[entering], basic[leaving]
