"""That a plurality's answers are private: every pair of neighboring histograms in whole numbers.

A law (`darrm.plurality.plurality_law`) is (ε, δ)-private if for every pair (n, n') of
`darrm.plurality.partitions.Pairs`

    (1)  Σ_c (h_c(n) − e^ε h_c(n'))_+ ≤ δ,        h_c(n) = w/(m·2^53),

the largest difference Pr[S | n] − e^ε Pr[S | n'] of any set S of answers. With L = lcm(1 … C) every h is a whole number
over L·2^53, and e^ε is at least a whole number over 2^128 (over more bits for small ε): so the sum over the terms of a
pair, rounded up, is a whole number over L·2^181, and (1) is decided without a float. Pairs up to a renaming of the
classes are all pairs. Of open answers no answer is one of the classes c, and a string that only n holds has h_c(n') =
0.

**Repair.** With u = 1/C, of open answers all of it on no answer, (1 − s)h + s·u answers at random with probability s.
The left side of (1) is jointly convex and positively homogeneous in (h(n), h(n')), and at (u, u) it is 0: so it falls
at least by the factor 1 − s, and some s < 1 proves any law for any ε, δ > 0.
"""

import math
from fractions import Fraction

import numpy as np

from darrm.majority.corners import precision_for, ratio_of, whole_below
from darrm.numerics import Array
from darrm.numerics.bisection import bisect_safe
from darrm.plurality.partitions import Pairs, partitions_of
from darrm.plurality.plurality_law import WEIGHT_BITS, PluralityLaw
from darrm.problem import Problem
from darrm.util import checks

_ROUNDING, _SAFELY = 2.0**-46, 1.0 + 2.0**-20  # margins for rounding of the first attempt at a repair


def pairs_of(problem: Problem) -> Pairs:
    """Return the pairs of neighbors of a problem; `ValueError` unless its voters are non-private."""
    if not problem.voters.are_non_private:
        advice = "a private voter's answers are no moved votes: certify takes a γ of such voters"
        checks.fail("problem.voters", str(problem.voters), "plain", advice)
    return partitions_of(problem.voters.K, problem.classes).pairs(problem.voters.reached)


def largest_excess(law: PluralityLaw, pairs: Pairs, epsilon: Fraction) -> Fraction:
    """Bound the left side of (1) from above for all pairs; tight but for the rounding of e^ε.

    >>> voter = PluralityLaw.of_probabilities(1, 3, [1.0, 0.0])  # the only vote
    >>> largest_excess(voter, partitions_of(1, 3).pairs(1), Fraction(1))
    Fraction(1, 1)
    """
    sizes = law.partitions.sizes.tolist()
    bits = precision_for(epsilon)
    common, ratio = math.lcm(*set(sizes)), whole_below(ratio_of(epsilon).ball, bits)
    numbers = [w * (common // m) for w, m in zip(law.weights.tolist(), sizes, strict=True)]
    # a string without votes in n' is the last one
    shifted, grown = [number << bits for number in numbers], [number * ratio for number in [*numbers, 0]]
    sums = [0] * len(pairs.first)
    terms = (pairs.pair.tolist(), pairs.before.tolist(), pairs.after.tolist(), pairs.classes.tolist())
    for pair, before, after, count in zip(*terms, strict=True):
        difference = shifted[before] - grown[after]
        if difference > 0:
            sums[pair] += count * difference
    return Fraction(max(sums), common << (WEIGHT_BITS + bits))


def share_needed(problem: Problem, pairs: Pairs, each: Array) -> float:
    """Find in floats how much of a random answer makes a law private: the least s of the module, rounded up.

    ``each`` holds the probability of one class of each group.
    """
    ratio, delta = float(ratio_of(problem.target.exact_epsilon).value), problem.target.delta
    # the budget, or the slack of a random answer, covers an excess that rounding hides
    spare = max(delta, min(1.0, math.expm1(problem.target.epsilon)), _ROUNDING)
    differences, random = (
        before - ratio * after
        for before, after in map(pairs.sides, (each, partitions_of(problem.voters.K, problem.classes).random))
    )

    def allowed(share: float) -> bool:
        positive = pairs.classes * np.maximum(0.0, (1.0 - share) * differences + share * random)
        return bool(np.max(np.bincount(pairs.pair, positive)) <= delta)

    return min(1.0, _SAFELY * bisect_safe(allowed, 1.0, 0.0) + _ROUNDING / spare)
