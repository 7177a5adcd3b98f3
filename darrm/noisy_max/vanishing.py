"""Open-set answers: the probability that a threshold reveals a string that only one of two neighboring data sets has.

A noisy maximum of open-set answers adds noise X to the count of every string that occurs, and answers with the largest
noisy count if it is at least T votes, else with "no answer". A person who moves t votes may be the only one with some
string, which the neighboring data set then lacks: the threshold has to hide it.

**Theorem.** Let v = t·max_{1 ≤ n ≤ t} Pr[n + X ≥ T]/n. For neighbors D and D' with label laws P and P' there are laws
N and N', whose divergences are at most those of the label of a noisy maximum for t moved votes
(`darrm.noisy_max.label_cost`), with P ≥ (1 − v)·N and P' ≥ (1 − v)·N'. So for Q adaptively chosen questions, with
V = 1 − Π(1 − v_i) ≤ Σ v_i,

    sup_S P(S) − e^ε·P'(S) ≤ V + (1 − V)·sup_S N(S) − e^ε·N'(S):

the sum of the v is part of δ, and the rest costs the same as a noisy maximum over listed classes.

*Proof.* Let A be the strings of D that D' does not contain. They have at most t votes together, so the noisy count of
one of them reaches T with probability at most Σ_{a ∈ A} Pr[n_a + X ≥ T] ≤ v. Otherwise the label is that of the strings
in both data sets, whose noises are independent of these: this is N, and P = (1 − w)·N + w·(anything), w ≤ v. The same
holds for D'. From N to N' some of t votes move between strings of both, or to or from one of them, at the same
threshold T. Given the other noisy counts the label depends on those of the strings that a vote moves, and the third
outcome of the theorem in `label_cost` is the best of the other strings and the threshold, a constant among the heights;
if a vote only leaves or arrives, the other string has height −∞. Answers of several questions multiply:
P ≥ Π(1 − v_i)·N, and P = (1 − V)·N + V·R for some R, so P − e^ε·P' ≤ V·R + (1 − V)·(N − e^ε·N'). ∎ The guarding test
enumerates all neighbors of a few voters (`tests/noisy_max/test_vanishing.py`).
"""

from functools import lru_cache

import numpy as np

from darrm.noisy_max.label_laws import TwoClasses
from darrm.numerics.bisection import last_allowed_integer
from darrm.numerics.integer_noise import IntegerNoise
from darrm.util import checks

_LEAST = 1e-33  # added, because the sums lack up to e^{−76}
MOST_THRESHOLD = 2**40
_WIDEST = 20_000.0  # votes: the tails of wider noise take gigabytes, and its thresholds are out of reach


def vanishing(noise: IntegerNoise, threshold: int, *, moved: int = 1) -> float:
    """Bound the probability that the label is a string that the neighboring data set lacks.

    >>> from darrm.numerics.integer_noise import DiscreteGaussian
    >>> round(vanishing(DiscreteGaussian(25.0), 135), 10)  # Pr[X ≥ 134]
    4.64e-08
    """
    checks.integer_at_least(1, threshold=threshold, moved=moved)
    check_width(noise)
    laws = _laws(noise)
    votes = np.arange(1, moved + 1)
    per_vote = np.exp(laws.log_F(votes - threshold) + laws.rounding) / votes
    return min(1.0, moved * (float(np.max(per_vote)) * (1.0 + 1e-12) + _LEAST))


def check_width(noise: IntegerNoise) -> None:
    """Raise `ValueError` for noise that is too wide for its tails to be summed."""
    if noise.deviation > _WIDEST:
        checks.fail("noise", noise, f"of a deviation of at most {_WIDEST:g} votes for open-set answers")


def least_threshold(noise: IntegerNoise, allowed: float, *, moved: int = 1) -> int:
    """Find the least threshold with `vanishing` at most ``allowed``; `ValueError` if that is below its minimum.

    >>> from darrm.numerics.integer_noise import DiscreteGaussian
    >>> least_threshold(DiscreteGaussian(25.0), 5e-8)
    135
    """
    if not allowed > 2.0 * moved * _LEAST:
        checks.fail("allowed", allowed, f"above {2.0 * moved * _LEAST:g}", "a threshold needs a delta")
    return last_allowed_integer(
        lambda threshold: vanishing(noise, threshold, moved=moved) <= allowed, inside=MOST_THRESHOLD, outside=0
    )


@lru_cache(maxsize=64)
def _laws(noise: IntegerNoise) -> TwoClasses:
    return TwoClasses(noise)
