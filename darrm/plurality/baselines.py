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

_MAX_DISTANCE = 1e-12  # between laws that count as equal: far above the rounding of weights
_ROUNDING = 2.0**-50


def subsampled_plurality(problem: Problem) -> PluralityLaw:
    """Return the plurality of m voters drawn without replacement, ties at random [D, Lemma 3.1].

    (mε, 1 − (1 − Δ)^m)-private. `ValueError` if m is not an integer.
    """
    return true_plurality(problem.voters.K, problem.classes, integer_allowance(problem, "γ_Sub"))


def double_subsampled_plurality(problem: Problem) -> PluralityLaw:
    """Return the plurality of 2m − 1 voters, or of all K for m ≥ (K+1)/2: a proposal."""
    sample_size = 2 * integer_allowance(problem, "γ_DSub") - 1
    return true_plurality(problem.voters.K, problem.classes, min(sample_size, problem.voters.K))


def excess_of_drawn(problem: Problem, law: PluralityLaw) -> Fraction | None:
    """Bound the largest excess of a law of the theorem, at least 0; None for other laws, or if voters differ."""
    bound = _bound_excess(problem, law.each)
    return None if bound is None else Fraction(max(0.0, bound))


def share_for_drawn(problem: Problem, probabilities: Array) -> float | None:
    """Find the share of random answers that a law of the theorem needs; None for other laws."""
    bound = _bound_excess(problem, probabilities)
    if bound is None:
        return None
    excess = bound - problem.target.delta
    slack = (enclose_exp(problem.target.exact_epsilon).value - 1.0) / problem.classes
    return min(1.0, max(0.0, excess) / slack + _ROUNDING / slack)


def _bound_excess(problem: Problem, probabilities: Array) -> float | None:
    """Bound the excess by the theorem, for the first n that fits; None if none does."""
    voters, C, ratio = problem.voters, problem.classes, enclose_exp(problem.target.exact_epsilon)
    if len(voters.groups) > 1 or not voters.each.is_private:
        return None
    max_size = int(problem.target.exact_epsilon / voters.each.exact_epsilon)
    max_size = voters.K if max_size >= voters.reached else max_size
    random_share = max(0.0, (1.0 - float(probabilities[0])) * C / (C - 1))
    for sample_size in range(1, max_size + 1):
        law = true_plurality(voters.K, C, sample_size)
        partitions = law.partitions
        distances = partitions.sizes * np.abs(probabilities - (1.0 - random_share) * law.each - random_share / C)
        distance = float(np.max(np.add.reduceat(distances, partitions.starts)))
        if distance <= _MAX_DISTANCE:
            # h is a sum of rounded products of C factors, with normalized weights
            distance += _ROUNDING * (histograms_of(sample_size, C).number + 2 * C + 8)
            reached = min(sample_size, voters.reached)
            failure_probability = float(1 - (1 - problem.voters.each.exact_delta) ** reached)
            bound = (1.0 - random_share) * failure_probability - random_share * (ratio.value - 1.0) / C
            return bound + (1.0 + ratio.value) * (distance + _ROUNDING) + ratio.error
    return None
