"""Tables that use a few voters only: γ_Sub, possibly mixed with a fair coin.

The majority of n voters drawn without replacement, with a fair coin for a tie, is 1 given l ones among K with
probability (1 + g(l))/2, where for l > K/2

    γ_n(l) = Pr[J > n/2] − Pr[J < n/2],   J hypergeometric: ones among n drawn of K with l ones.

So a label of γ = s·γ_n uses n voters, drawn independently of the votes, and is replaced by a fair coin with probability
1 − s.

**Theorem.** Let one person influence t of several (ε, Δ)-private models, and let Q labels use n models each, drawn
independently of the data. Then the labels are as private as min(Qn, t) answers of (ε, Δ)-private mechanisms together.
*Proof.* Fix the drawn models; their law is the same on both data sets. The labels are post-processing of at most Qn
models. A person influences at most min(Qn, t) of them, and the models are independent. A mixture with equal weights on
both sides is no less private, by joint convexity of the hockey-stick divergence. ∎

Floats are near γ_n, not equal to it. If each label's law is within η of that of a label of n voters, in total
variation, then Q of them are within Qη, and H_{e^x}(P ‖ P') grows by at most (1 + e^x)·Qη, which is subtracted from δ.
"""

import math
from fractions import Fraction
from functools import lru_cache

from darrm.loss.privacy_cost import Sample
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics.binomial import hypergeometric_pmf
from darrm.table.table import Table

_MOST_DISTANCE = 1e-12  # of two equal laws: far above the rounding of γ, far below the distance of any other γ


@lru_cache(maxsize=64)  # of immutable tables: every cost of one needs it
def sample_of(table: Table) -> Sample | None:
    """Find the smallest n for which a table is the majority of n voters, mixed with the fair coin; None for others.

    >>> from darrm import Problem, PrivacyParams, Voters, certify
    >>> from darrm.majority import baselines
    >>> problem = Problem.from_allowance(Voters(11, PrivacyParams(1)), 3)
    >>> sample_of(certify(problem, baselines.subsampling(problem))).voters
    3
    """
    if not isinstance(table.law, NoiseFunction):
        return None
    K, half = table.gamma.K, [Fraction(float(value)) for value in table.gamma.half]
    first, told = table.problem.voters.first_majority, half[-1]
    for size in range(1, K):
        weights = hypergeometric_pmf(K, first, size)
        near = math.fsum(math.copysign(w, 2 * ones - size) for ones, w in enumerate(weights) if 2 * ones != size)
        if abs(float(half[0]) - float(told) * near) > 4.0 * _MOST_DISTANCE:
            continue
        exact = (told * _majority_of_sample(K, ones, size) for ones in range(first, K + 1))
        distance = max(abs(value - other) for value, other in zip(half, exact, strict=True)) / 2
        if distance <= _MOST_DISTANCE:
            return Sample(size, math.nextafter(float(distance), math.inf) if distance else 0.0)
    return None


def _majority_of_sample(K: int, ones: int, size: int) -> Fraction:
    drawn = range(max(0, size - (K - ones)), min(size, ones) + 1)
    lead = sum(
        (1 if 2 * j > size else -1) * math.comb(ones, j) * math.comb(K - ones, size - j) for j in drawn if 2 * j != size
    )
    return Fraction(lead, math.comb(K, size))
