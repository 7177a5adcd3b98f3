"""The plurality of voters drawn at random: baselines of the optimum, proved for any number of voters.

**Theorem** (for n = m and s = η = 0 [D, Lemma 3.1])**.** Let a law be within η of (1 − s)·h + s·u in total variation at
every histogram, u a random class and h the plurality of n of K voters drawn without replacement. If a person influences
t voters, each (ε, Δ)-private, then for ε' ≥ min(n, t)·ε every set S of answers has

    E_p[S] − e^{ε'}·E_{p'}[S] ≤ (1 − s)·(1 − (1 − Δ)^{min(n, t)}) − s·(e^{ε'} − 1)/C + (1 + e^{ε'})·η.

*Proof.* Fix the draw, which does not depend on the data. The plurality is post-processing of n answers, of which
min(n, t) may change. With probability (1 − Δ)^{min(n, t)} all of them are randomized responses, and every event is at
most e^{min(n, t)·ε} times as likely as on the neighboring data. A random class adds #S/C·(1 − e^{ε'}), #S ≥ 1. ∎
"""

from fractions import Fraction

import numpy as np

from darrm.majority.baselines import integer_allowance
from darrm.majority.corners import enclose_exp
from darrm.numerics import Array
from darrm.plurality.partitions import histograms_of
from darrm.plurality.plurality_law import PluralityLaw, true_plurality
from darrm.problem import Problem

_MOST_DISTANCE = 1e-12  # of laws that are meant to be equal: far above the rounding of weights
_ROUNDING = 2.0**-50


def subsampled_plurality(problem: Problem) -> PluralityLaw:
    """Return the plurality of m voters drawn without replacement, ties at random [D, Lemma 3.1].

    (mε, 1 − (1 − Δ)^m)-private. `ValueError` if m is not an integer.
    """
    return true_plurality(problem.voters.K, problem.classes, integer_allowance(problem, "γ_Sub"))


def double_subsampled_plurality(problem: Problem) -> PluralityLaw:
    """Return the plurality of 2m − 1 voters, of all for m ≥ (K+1)/2: a proposal."""
    seen = 2 * integer_allowance(problem, "γ_DSub") - 1
    return true_plurality(problem.voters.K, problem.classes, min(seen, problem.voters.K))


def excess_of_drawn(problem: Problem, law: PluralityLaw) -> Fraction | None:
    """Bound the largest excess of such a law, at least 0; None for any other law, or if voters differ."""
    bound = _bound_of_drawn(problem, law.each)
    return None if bound is None else Fraction(max(0.0, bound))


def share_for_drawn(problem: Problem, each: Array) -> float | None:
    """Find how much of a random answer such a law needs; None for others."""
    bound = _bound_of_drawn(problem, each)
    if bound is None:
        return None
    over = bound - problem.target.delta
    spare = (enclose_exp(problem.target.exact_epsilon).value - 1.0) / problem.classes
    return min(1.0, max(0.0, over) / spare + _ROUNDING / spare)


def _bound_of_drawn(problem: Problem, each: Array) -> float | None:
    """Bound the excess by the theorem, for the first n that fits; None if none does."""
    voters, C, ratio = problem.voters, problem.classes, enclose_exp(problem.target.exact_epsilon)
    if len(voters.groups) > 1 or not voters.each.is_private:
        return None
    most = int(problem.target.exact_epsilon / voters.each.exact_epsilon)
    most = voters.K if most >= voters.reached else most
    random = max(0.0, (1.0 - float(each[0])) * C / (C - 1))
    for number in range(1, most + 1):
        law = true_plurality(voters.K, C, number)
        partitions = law.partitions
        apart = partitions.sizes * np.abs(each - (1.0 - random) * law.each - random / C)
        distance = float(np.max(np.add.reduceat(apart, partitions.starts)))
        if distance <= _MOST_DISTANCE:
            # h is a sum of rounded products of C factors, and its weights add up to one again
            distance += _ROUNDING * (histograms_of(number, C).number + 2 * C + 8)
            reached = min(number, voters.reached)
            fails = float(1 - (1 - problem.voters.each.exact_delta) ** reached)
            bound = (1.0 - random) * fails - random * (ratio.value - 1.0) / C
            return bound + (1.0 + ratio.value) * (distance + _ROUNDING) + ratio.error
    return None
