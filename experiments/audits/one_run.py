"""Privacy auditing with one training run [SNJ23]: bounds on ε by guesses about many canaries.

Each of m canaries is in the training data by a fair coin of its own. From the trained model the auditor guesses r of
the coins, r fixed beforehand, and v guesses are right. Were the training (ε, δ)-private, then

    Pr[at least v are right] ≤ β + 2mδ·α,   β = Pr[B ≥ v],   α = max over i = 1 … v of Pr[v − i ≤ B < v]/i,

with B ~ Bin(r, e^ε/(1 + e^ε)) [SNJ23, Appendix D]. For δ = 0 the proof is short: given the output and the coins before
it, the odds of a coin are at most e^ε, so a guess, which depends on the output alone, is right with probability at most
e^ε/(1 + e^ε), and v is dominated by B. A claim with a smaller ε implies one with a larger: so every ε is refuted that
is not above a refuted one.
"""

import math

import numpy as np

from darrm.numerics.binomial import binomial_pmf
from darrm.numerics.bisection import bisect_safe
from darrm.util import checks

_MOST_EPSILON = 100.0


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Bound the probability of at least ``right`` right guesses under an (ε, δ)-private training.

    >>> round(p_value(1000, 100, 75, 0.673, 1e-4), 3)
    0.05
    """
    checks.integer_at_least(0, canaries=canaries, guesses=guesses, right=right)
    if not right <= guesses <= canaries:
        checks.fail("right, guesses, canaries", (right, guesses, canaries), "in ascending order")
    checks.non_negative(epsilon=epsilon)
    checks.probability(delta=delta)
    law = binomial_pmf(guesses, 1.0 / (1.0 + math.exp(-epsilon)))
    below = np.cumsum(law[:right][::-1]) / np.arange(1, right + 1)
    alpha = float(np.max(below, initial=0.0))
    return min(1.0, float(np.sum(law[right:])) + 2.0 * canaries * delta * alpha)


def refuted_epsilon(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """Find the largest ε that the guesses refute at δ; 0 if they refute none.

    The example of the paper [SNJ23, Appendix D]:

    >>> round(refuted_epsilon(1000, 100, 75, 1e-4, 0.95), 3)
    0.673
    """
    checks.open_probability(confidence=confidence)

    def refuted(epsilon: float) -> bool:
        return p_value(canaries, guesses, right, epsilon, delta) <= 1.0 - confidence

    return bisect_safe(refuted, 0.0, _MOST_EPSILON) if refuted(0.0) else 0.0
