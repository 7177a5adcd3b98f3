"""The worst Rényi divergence of a monotone γ where voter i satisfies (ε_i, Δ_i).

`darrm.majority.renyi` has the theorem for equal voters: E(P, Q), with P = Pr_p[output 1] and Q = Pr_{p'}[output 1], is
convex in each voter's pair (p_i, p'_i), grows with P and falls with Q as long as P ≥ Q. Every step of its proof moves
one voter along a chain of that voter's own corners, so it holds voter by voter, and the rows are those of
`darrm.majority.groups`. Only rows on the front of large P and small Q matter.

**Rounding.** P and Q are known to within e, so E is taken at (P + e, Q − e), where E is at least as large. If an
answer may be certain, Q − e is not positive, and the bound is ∞.
"""

from fractions import Fraction

import numpy as np

from darrm.loss.vote_counts import undominated
from darrm.majority.corners import ratio_of
from darrm.majority.groups import KindSet
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array
from darrm.problem import Voters

_UNIT = 2.0**-53  # relative error of one rounding


def divergences_of_kinds(voters: Voters, gamma: NoiseFunction, orders: Array) -> Array:
    """Bound the worst Rényi divergence between neighbors for each order, shape (n,) → (n,); ∞ if unknown.

    Of two voters the first alone may be reached, and tells more than the second:

    >>> from darrm import PrivacyParams
    >>> two = Voters.of([PrivacyParams("1"), PrivacyParams("0.1")], overlap=1)
    >>> divergences_of_kinds(two, NoiseFunction(2, [0.5]), np.array([2.0])).round(6)
    array([0.059797])
    """
    equal = ratio_of(Fraction(0))
    rows = KindSet(voters, Fraction(0))
    first, second = rows.expectations(gamma.half)
    off = 0.5 * rows.rounding(equal) + 4.0 * _UNIT
    P, Q = np.minimum(0.5 * (1.0 + first) + off, 1.0), np.maximum(0.5 * (1.0 + second) - off, 0.0)
    front = undominated(P, Q)
    if Q[front[0]] == 0.0:
        return np.full(orders.shape, np.inf)
    with np.errstate(divide="ignore"):
        logs = np.log(np.stack([P[front], 1.0 - P[front], Q[front], 1.0 - Q[front]]))
    worst = [np.max(np.logaddexp(*(a * logs[:2] - (a - 1.0) * logs[2:]))) for a in orders]
    size = float(np.max(-logs[np.isfinite(logs)], initial=1.0))
    error = 16.0 * _UNIT * (2.0 * orders + 1.0) * (1.0 + size)
    return np.asarray(np.maximum((np.array(worst) + error) / (orders - 1.0), 0.0))
