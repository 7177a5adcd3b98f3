"""Strings that one person may make appear or vanish: what a threshold on noisy counts leaves of them.

Answers are open: a noisy maximum looks at the strings that were said, each with noise X of its own on its count, and
answers with the largest if it is at least T votes, else with nothing. A person who moves t votes may be the only one
who says a string, which the neighboring data set then does not contain: no noise hides it, the threshold has to.

**Theorem.** Let v = t·max_{1 ≤ n ≤ t} Pr[n + X ≥ T]/n. For neighbors D and D' with label laws P and P' there are laws
N and N', whose divergences are at most what the label of a noisy maximum costs for t moved votes
(`darrm.losses.label`), with P ≥ (1 − v)·N and P' ≥ (1 − v)·N'. Hence, for Q questions one after the other, whatever
each was chosen by, with V = 1 − Π(1 − v_i) ≤ Σ v_i,

    sup_S P(S) − e^ε·P'(S) ≤ V + (1 − V)·sup_S N(S) − e^ε·N'(S):

the sum of the v is paid from δ, and all else costs what it costs a noisy maximum of listed classes.

*Proof.* Let A be the strings of D that D' does not contain. They have at most t votes together, so the noisy count of
one of them reaches T with probability at most Σ_{a ∈ A} Pr[n_a + X ≥ T] ≤ v. If none does, the label is that of the
strings which both contain, whose noises are independent of these: this is N, and P = (1 − w)·N + w·(anything), w ≤ v.
The same for D'. From N to N' some of t votes move between strings of both, or to or from one of them, the threshold
standing at T: given the other noisy counts the label depends on those of the two, or the one, that a vote moves, and
the best of the others and the threshold are the third outcome of the theorem there, a constant being one of its
heights; of a vote that only leaves or comes, the other string stands at −∞. Answers of several questions multiply:
P ≥ Π(1 − v_i)·N, and P = (1 − V)·N + V·R for some R, so P − e^ε·P' ≤ V·R + (1 − V)·(N − e^ε·N'). ∎ The test that would
catch a failure goes through all neighbors of a few voters (`tests/losses/test_vanishing.py`).
"""

from functools import lru_cache

import numpy as np

from darrm.errors import checks
from darrm.losses.label_laws import TwoClasses
from darrm.probability.bisection import last_allowed_integer
from darrm.probability.integer_noise import IntegerNoise

_LEAST = 1e-33  # is added: the sums leave out less than e^{−76}
MOST_THRESHOLD = 2**40
_WIDEST = 20_000.0  # votes: the tails of wider noise take gigabytes, and no threshold for them is ever reached


def vanishing(noise: IntegerNoise, threshold: int, *, moved: int = 1) -> float:
    """Bound the probability that the label is a string which the neighboring data set does not contain.

    >>> from darrm.probability.integer_noise import DiscreteGaussian
    >>> round(vanishing(DiscreteGaussian(25.0), 135), 10)  # Pr[X ≥ 134]
    4.64e-08
    """
    checks.integer_at_least(1, threshold=threshold, moved=moved)
    check_width(noise)
    laws = _laws(noise)
    own = np.arange(1, moved + 1)
    each = np.exp(laws.log_F(own - threshold) + laws.rounding) / own
    return min(1.0, moved * (float(np.max(each)) * (1.0 + 1e-12) + _LEAST))


def check_width(noise: IntegerNoise) -> None:
    """Refuse noise whose tails are not added up with `ValueError`."""
    if noise.deviation > _WIDEST:
        checks.fail("noise", noise, f"of a deviation of at most {_WIDEST:g} votes where answers are open")


def least_threshold(noise: IntegerNoise, allowed: float, *, moved: int = 1) -> int:
    """Find the least threshold for which `vanishing` is allowed; `ValueError` if that is smaller than it ever is.

    >>> from darrm.probability.integer_noise import DiscreteGaussian
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
