"""The optimal γ for non-private voters with overlap 1: PATE with two classes, in closed form.

Non-private voters have ``PrivacyParams("inf")``: their votes may be any function of the data.

Let h(s) = Pr[output 1 | s ones] = (1 + g(s))/2 and c = e^ε. A person moves the number of ones by one, so
(ε, δ)-privacy is, for s = 0 … K − 1 and both outputs, up and down,

    (1) h(s+1) ≤ c·h(s) + δ          (2) 1 − h(s) ≤ c·(1 − h(s+1)) + δ          and both with s and s + 1 exchanged.

**Closed form.** h(K/2) = 1/2 for even K, h((K−1)/2) = (1 − δ)/(1 + c) for odd K (at least 0), then downwards

    (3) h(s) = max(0, (h(s+1) − δ)/c, 1 − δ − c·(1 − h(s+1))),        h(K−s) = 1 − h(s).

**Theorem.** Among all private h with h(K−s) = 1 − h(s), this one is the smallest at every s < K/2 and the largest at
every s > K/2: it returns the majority with the largest probability for every number of ones, so it is optimal under
every prior. *Proof.* Solve (1) and (2) for h(s): no private h is below the right side of (3) at the same h(s+1). This
right side does not fall when h(s+1) grows. At the start h is fixed for even K, and for odd K
(1) at s = (K−1)/2 with h(s+1) = 1 − h(s) reads h(s)·(1 + c) ≥ 1 − δ. So by induction no private h is below the closed
form at any s < K/2; by symmetry none is above it at s > K/2. It remains that the closed form is private. For x in
[0, 1] and c ≥ 1 both (x − δ)/c and 1 − δ − c·(1 − x) are at most x, and the start is at most 1/2; so h does not fall in
s, and the exchanged inequalities hold. (1) and (2) below the middle are (3), those above it are their mirror images
under s → K − 1 − s, and the one in the middle for odd K is the start. ∎ Symmetry costs nothing: h(s) and 1 − h(K−s) are
private together, so is their mean, which is right as often as they are if both answers count alike.

The test that would catch a failure, `tests/majority/test_closed_form.py`, minimizes every h(s) by itself with a linear
program over all symmetric h, and tries every h on a grid in exact fractions.
"""

import math

import numpy as np

from darrm.majority.noise_function import NoiseFunction
from darrm.problem import Problem, Voters
from darrm.util import checks


def has_closed_form(voters: Voters) -> bool:
    """Return whether (3) speaks about these voters."""
    return voters.are_non_private and voters.reached == 1


def best_for_non_private_voters(problem: Problem) -> NoiseFunction:
    """Compute γ(l) = 2h(l) − 1 of the closed form (3), in floats; `certify` proves it and scales away the rounding.

    `ValueError` if the voters are private or one person reaches more than one of them.

    >>> from darrm import Problem, PrivacyParams, Voters
    >>> problem = Problem(Voters(11, PrivacyParams("inf"), overlap=1), PrivacyParams("0.2676", "0.0003"))
    >>> ((1 + best_for_non_private_voters(problem).half) / 2).round(3)
    array([0.567, 0.669, 0.747, 0.806, 0.852, 0.887])
    """
    if not has_closed_form(problem.voters):
        checks.fail("problem", str(problem), "one of voters that are not private, with overlap 1")
    K, delta = problem.voters.K, problem.target.delta
    shrink = math.exp(-problem.target.epsilon)
    growth = problem.cost_ratio

    def next_lie(above: float) -> float:
        return max(0.0, (above - delta) * shrink, 1.0 - delta - growth * (1.0 - above))

    # h(K − l) = 1 − h(l) for l = ⌊K/2⌋ + 1 … K
    lies = [(1.0 - delta) * shrink / (1.0 + shrink) if K % 2 else next_lie(0.5)]
    while len(lies) < problem.voters.num_upper_levels:
        lies.append(next_lie(lies[-1]))
    return NoiseFunction(K, np.clip(1.0 - 2.0 * np.array(lies), 0.0, 1.0))
