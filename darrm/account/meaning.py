"""The meaning of (ε, δ) for one person: what an attacker can guess, and how much their belief can change.

An attacker who distinguishes two versions of a person's data, and is wrong in a share α of the cases of one version, is
right in at most

    t(α) = min(e^ε·α + δ, 1 − e^{−ε}·(1 − δ − α))        [KOV15, Theorem 2.1]

of those of the other, `power_of_test`. An attacker who believes in a version with probability p, and sees an event that
has a probability of α or more with the other one, then believes in it with at most p·t(α)/(p·t(α) + (1 − p)·α),
`belief_after`: an event that is rarer than δ may reveal everything. *Proof.* By Bayes the odds grow by the event's
ratio of probabilities, at most t(x)/x for its probability x ≥ α; t is concave and t(0) ≥ 0, so that falls in x. ∎

No claim of a release rests on these sentences.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from darrm.numerics import Array
from darrm.privacy import at_most

ALARMS = 0.05  # the share of wrong guesses


def power_of_test(epsilon: float, delta: float, level: float = ALARMS) -> float:
    """Compute the largest share of right guesses at a share ``level`` of wrong ones."""
    below = math.exp(min(epsilon, 700.0)) * level + delta
    return min(1.0, below, 1.0 - math.exp(-epsilon) * max(0.0, 1.0 - delta - level))


def belief_after(epsilon: float, delta: float, prior: ArrayLike, level: float = ALARMS) -> Array:
    """Compute the largest belief after an event whose probability is ``level`` or more if it is false."""
    p, power = np.asarray(prior, dtype=np.float64), power_of_test(epsilon, delta, level)
    if level == delta == 0.0:  # the limit of both
        power, level = math.exp(min(epsilon, 700.0)), 1.0
    total = p * power + (1.0 - p) * level
    return np.divide(p * power, total, out=np.zeros_like(total), where=total > 0.0)


def explain_guarantee(event: str, epsilon: float, delta: float, *, present: bool = False) -> str:
    """Explain (ε, δ) in one sentence; with ``present`` the other data lack this person."""
    growth = at_most(math.exp(epsilon), 4) if epsilon < math.log(1e300) else "more than 1e300"
    factor, power = f"e^{at_most(epsilon)} = {growth}", power_of_test(epsilon, delta)
    compared = "without the data of this person" if present else "with other data of this person"
    if delta > 0.0:
        bound = f"Any event of {event} is at most {factor} times as likely, plus {at_most(delta, 6)}, as {compared}"
    else:
        bound = f"The odds of any belief about a person change by at most {factor} after {event}"
    return f"{bound}; a test with {100 * ALARMS:g} % false alarms has power {at_most(100.0 * power, 4)} % at most"
