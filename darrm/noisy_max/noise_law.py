"""The law of the noise on one count and of the label, stated once for planning, charging and bounds.

Let f and F be the probabilities and the distribution function of the noise. A uniform V in [0, 1) for each class breaks
ties evenly, so class c wins if n_c + X_c + V_c is largest. X + V has the density f(⌊u⌋) and the piecewise linear
distribution function F̃(u) = F(⌊u⌋ − 1) + (u − ⌊u⌋)·f(⌊u⌋). With h(u) = f(⌊u⌋)/F̃(u),

    Pr[c wins] = ∫ h(u − n_c)·Π_j F̃(u − n_j) du.

Between whole numbers the integrand is a polynomial of degree C − 1, for which the Gauss-Legendre rule with C/2 nodes is
exact. Two integrators share this law. `noisy_law` sums floats over many histograms at once, for planning;
`cost_given_votes` adds logarithms for one histogram, and charges the error of the rule and of the rounding. One for
both would plan 8 to 27 times slower (1,000 histograms of ten classes, σ = 10 to 100). `label_supremum` integrates for
two classes and a level instead.

**The difference of two Gaussian noises.** D = X_a − X_b has Pr[D = k] = f(k) ∝ e^{−k²/(4σ²)}·Σ_j e^{−(j + k/2)²/σ²},
where the sum over j depends on the parity of k only. Noisy counts before and after a move differ only through D, which
has the probability f(k + 2) at k after the move. A label is drawn from D by the same kernel before and after, so every
bound for tests between f(k) and f(k + 2) holds for labels (`NoiseDifference`):

- *How far an event moves.* Let t(κ) = Pr[D ≥ κ], linear between whole κ. An event of probability t(κ) has a probability
  in [t(κ + 2), t(κ − 2)] after the move (Neyman and Pearson).
- *What an unlikely event costs.* Outcomes of an event of probability at most t(κ) add at most
  A(κ) = Σ_{k ≥ κ} f(k)^α·f(k + 2)^{1−α} to exp((α − 1)·D_α): p^α·q^{1−α} is convex and homogeneous, hence at most
  Σ_k Pr[event | k]·f(k)^α·f(k + 2)^{1−α}, and the second factor grows with k. In the reverse direction: A(κ − 2).

B(κ) is the same sum with f(k − 2), for an event that the move makes likelier.
"""

import numpy as np
from numpy.typing import NDArray

from darrm.numerics import Array
from darrm.numerics.integer_noise import IntegerNoise

Integers = NDArray[np.int64]
_DOUBLINGS, _TRIED = 62, 64  # of a number of votes in a search: all whole numbers; how many at once
_REACH = 30.0  # σ: tails down to e^{−225}
_LARGEST_ORDER = 8.0  # σ: the terms of A are largest near κ = 2(α − 1), within the tables


def log_masses_of(noise: IntegerNoise, first: int, last: int) -> Array:
    """Tabulate log Pr[X = x] for x from ``first`` to ``last``, normalized to 1 there."""
    logs = noise.log_weights(np.arange(first, last + 1))
    return np.asarray(logs - np.logaddexp.reduce(logs))


def log_above(logs: Array) -> Array:
    """Compute log Σ_{y ≥ x} along the last axis of a table of logarithms: log Pr[X ≥ x] for log-probabilities.

    >>> from darrm.numerics.integer_noise import DiscreteGaussian
    >>> np.exp(log_above(log_masses_of(DiscreteGaussian(2.0), -40, 40))[[40, 41]]).round(4).tolist()
    [0.5997, 0.4003]
    """
    return np.logaddexp.accumulate(logs[..., ::-1], axis=-1)[..., ::-1]


def log_below(logs: Array) -> Array:
    """Compute log Σ_{y < x} for a table of logarithms."""
    return np.append(-np.inf, np.logaddexp.accumulate(logs)[:-1])


def find_reach(noise: IntegerNoise, sign: int, exponent: float) -> int:
    """Find the least r with w(±r) ≤ e^{−exponent}, relative to the mode, which is 0.

    By log-concavity weights fall geometrically from 0 to r and at least as fast beyond, so that Pr[X ≥ r] ≤ x/(1 − x)
    for x = w(r).
    """
    tried = np.concatenate([[0], 1 << np.arange(_DOUBLINGS)])
    while True:
        place = int(np.argmax(noise.log_weights(sign * tried) <= -exponent - 1e-9))
        if not place or tried[place] - tried[place - 1] == 1:
            return int(tried[place])
        tried = np.unique(np.linspace(tried[place - 1], tried[place], _TRIED).astype(np.int64))


def unit_rule(size: int) -> tuple[Array, Array]:
    """Return the nodes and weights of the Gauss-Legendre rule on [0, 1], exact below degree 2·size."""
    nodes, weights = np.polynomial.legendre.leggauss(size)
    return (nodes + 1.0) / 2.0, weights / 2.0


class NoiseDifference:
    """The tails of D for discrete Gaussian noise of σ votes on each count, at whole κ from `first` to `last`.

    >>> law = NoiseDifference(40.0)
    >>> round(float(np.exp(law.log_tails[120 - law.first])), 4)
    0.0173
    """

    def __init__(self, sigma: float) -> None:
        self.sigma, self.last = sigma, int(_REACH * max(sigma, 1.0)) + 4
        self.first = -self.last
        around = np.arange(-int(12.0 * sigma) - 12, int(12.0 * sigma) + 13)
        parity = np.log([np.sum(np.exp(-(((around + half) / sigma) ** 2))) for half in (0.0, 0.5)])
        self._points = np.arange(self.first, self.last + 1)
        logs = -((self._points / (2.0 * sigma)) ** 2) + parity[self._points % 2]
        self.log_masses = logs - np.logaddexp.reduce(logs)
        self.log_tails = log_above(self.log_masses)

    def covers(self, order: float) -> bool:
        """Return whether the tables are long enough for the sums at this order."""
        return order <= _LARGEST_ORDER * max(self.sigma, 1.0)

    def log_sums(self, order: float, sign: int) -> Array:
        """Compute log A(κ) for ``sign`` 1 and log B(κ) for −1 at the κ of the tables; ∞ beyond `covers`."""
        if not self.covers(order):
            return np.full(self.log_masses.shape, np.inf)
        # log f(k) − log f(k ± 2) = (1 ± k)/σ²
        return log_above(self.log_masses + (order - 1.0) * (1.0 + sign * self._points) / self.sigma**2)

    def index_of(self, log_probability: float) -> int:
        """Return the place in the tables of the largest κ with t(κ) at least the probability."""
        return max(int(np.searchsorted(-self.log_tails, -log_probability, side="right")) - 1, 0)
