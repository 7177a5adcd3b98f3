"""Two noisy counts between which one vote moves: the pair of laws behind every label of Gaussian noise.

A vote moves from class a to class b. The noisy counts of both tell a release before from one after by their difference
alone: D = X_a − X_b has Pr[D = k] = f(k) ∝ e^{−k²/(4σ²)}·Σ_j e^{−(j + k/2)²/σ²}, whose sum over j depends on whether k
is even, and after the move it stands at k with f(k + 2). So a label is drawn from D by one and the same kernel on both
sides, and what is true of every test between f(k) and f(k + 2) is true of labels:

- **An event moves along the tail.** Let t(κ) = Pr[D ≥ κ], linear between whole κ. An event of probability t(κ) has
  one in [t(κ + 2), t(κ − 2)] after the move (Neyman and Pearson).
- **An unlikely event costs little.** The outcomes of an event of probability at most t(κ) add at most
  A(κ) = Σ_{k ≥ κ} f(k)^α·f(k + 2)^{1−α} to exp((α − 1)·D_α): p^α·q^{1−α} is convex and homogeneous, so it is at most
  Σ_k Pr[event | k]·f(k)^α·f(k + 2)^{1−α}, whose second factor grows with k. In the reverse direction it is A(κ − 2).

B(κ) is the same sum with f(k − 2): of an event that the move makes likelier.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from darrm.probability import Array

_REACH = 30.0  # σ: tails down to e^{−225}
_LARGEST_ORDER = 8.0  # σ: the terms of A are largest near κ = 2(α − 1), within the tables


@dataclass(frozen=True)
class MovedVote:
    """The tails of D for discrete Gaussian noise of σ votes on each count, at whole κ from `first` on.

    >>> law = MovedVote(40.0)
    >>> round(float(np.exp(law.log_tails[120 - law.first])), 4)
    0.0173
    """

    sigma: float

    @property
    def last(self) -> int:
        """The last κ of the tables."""
        return int(_REACH * max(self.sigma, 1.0)) + 4

    @property
    def first(self) -> int:
        """The first κ of the tables."""
        return -self.last

    @cached_property
    def log_masses(self) -> Array:
        """Log f(k), k from `first` to `last`."""
        around = np.arange(-int(12.0 * self.sigma) - 12, int(12.0 * self.sigma) + 13)
        parity = np.log([np.sum(np.exp(-(((around + half) / self.sigma) ** 2))) for half in (0.0, 0.5)])
        points = np.arange(self.first, self.last + 1)
        logs = -((points / (2.0 * self.sigma)) ** 2) + parity[points % 2]
        return np.asarray(logs - np.logaddexp.reduce(logs))

    @cached_property
    def log_tails(self) -> Array:
        """Log t(κ), κ from `first` to `last`."""
        return np.logaddexp.accumulate(self.log_masses[::-1])[::-1]

    def summed(self, order: float) -> bool:
        """Return whether the tables reach far enough for the sums at this order."""
        return order <= _LARGEST_ORDER * max(self.sigma, 1.0)

    def log_sums(self, order: float, sign: int) -> Array:
        """Compute log A(κ) for ``sign`` 1 and log B(κ) for −1 at the κ of the tables; ∞ if not `summed`."""
        if not self.summed(order):
            return np.full(self.log_masses.shape, np.inf)
        points = np.arange(self.first, self.last + 1)
        # log f(k) − log f(k ± 2) = (1 ± k)/σ²
        logs = self.log_masses + (order - 1.0) * (1.0 + sign * points) / self.sigma**2
        return np.asarray(np.logaddexp.accumulate(logs[::-1])[::-1])

    def index_of(self, log_probability: float) -> int:
        """Return where the tables hold the largest κ with t(κ) at least the probability."""
        return max(int(np.searchsorted(-self.log_tails, -log_probability, side="right")) - 1, 0)
