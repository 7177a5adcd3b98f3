"""The privacy condition in exact rational arithmetic over every assignment of corners to voters, one voter at a time.

Nothing here shares code with the package. e^x is replaced by a rational within 1e-60 of it, so results are exact for
problems that differ from the real one by less than that.
"""

from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np

from darrm.privacy import PrivacyParams
from darrm.problem import MajorityProblem


def exponential(x: Fraction) -> Fraction:
    with mpmath.workdps(80):
        text = mpmath.nstr(mpmath.exp(mpmath.mpf(x.numerator) / x.denominator), 70, min_fixed=-1, max_fixed=-1)
    return Fraction(text)


def corner_list(problem: MajorityProblem) -> list[tuple[Fraction, Fraction]]:
    zero, one = Fraction(0), Fraction(1)
    if not problem.voters.each.is_private:
        return [(zero, zero), (one, one), (one, zero), (zero, one)]
    growth, delta = exponential(problem.voters.each.exact_epsilon), problem.voters.each.exact_delta
    hi, lo = (growth + delta) / (growth + 1), (1 - delta) / (growth + 1)
    pairs = [(zero, zero), (one, one), (hi, lo), (lo, hi)]
    if delta:
        pairs += [(zero, delta), (delta, zero), (1 - delta, one), (one, 1 - delta)]
    return pairs


def exact_budget(problem: MajorityProblem) -> Fraction:
    return exponential(problem.target.exact_epsilon) - 1 + 2 * problem.target.exact_delta


def signed_values(K: int, half: Iterable[float]) -> list[Fraction]:
    top = [Fraction(float(value)) for value in half]
    middle = [Fraction(0)] if K % 2 == 0 else []
    return [-value for value in reversed(top)] + middle + top


def exact_worst_cost(problem: MajorityProblem, half: Iterable[float]) -> Fraction:
    """The largest f over all assignments with at most ``overlap`` touched voters, by walking the tree of voters.

    A voter whom the person does not reach has p = p', any value; f is linear in it, so 0 and 1 are enough.
    """
    pairs = corner_list(problem)
    ratio = exponential(problem.target.exact_epsilon)
    g = signed_values(problem.voters.K, half)

    def descend(voters: int, touchable: int, first: list[Fraction], second: list[Fraction]) -> Fraction:
        # first[s] = E[g(s + ones among the voters placed so far)], likewise second for p'
        if voters == 0:
            return first[0] - ratio * second[0]
        return max(
            descend(voters - 1, touchable - (p != p_prime), average(first, p), average(second, p_prime))
            for p, p_prime in pairs
            if touchable or p == p_prime
        )

    return descend(problem.voters.K, problem.voters.reached, g, g)


def average(values: list[Fraction], p: Fraction) -> list[Fraction]:
    return [(1 - p) * low + p * high for low, high in pairwise(values)]


def lowest_partner(p: np.ndarray, each: PrivacyParams) -> np.ndarray:
    """The smallest p' that (ε, Δ)-privacy allows beside p, in floats; the largest is 1 − lowest_partner(1 − p)."""
    e, delta = np.exp(each.epsilon), each.delta
    return np.maximum.reduce([np.zeros_like(p), (p - delta) / e, 1 - e * (1 - p) - delta])
