"""Laws of a label when only two classes matter: three outcomes, and the difference of two noises.

**Three outcomes.** Classes a and b have noisy counts, and the best of the other classes has a known one. Let i be the
votes of a above the least count that beats the others, and j the same for b; a tie with the others enters through i
and j. With independent noises X_a and X_b, A = i + X_a and B = j + X_b, the label is

    a  if A ≥ 0 and A > B,    b  if B ≥ 0 and B > A,    another class if A < 0 and B < 0,

and a tie A = B ≥ 0 goes to a (z = 0) or to b (z = 1). Three functions of the noise give all probabilities,

    G(t) = Pr[X ≤ t],    F(i) = Pr[X ≥ −i],    S(i, j) = Pr[A ≥ 0, A ≥ B] = Σ_{w ≥ −i} f(w)·G(w + i − j):

    Pr[a] = S(i, j + z),    Pr[b] = S(j, i + 1 − z),    Pr[other] = G(−i − 1)·G(−j − 1).

S is a sum of positive numbers along a diagonal i − j, so its rounding is relative. One vote from a to b moves (i, j) to
(i − 1, j + 1). `TwoClasses` computes the laws before and after.

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

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from darrm.noisy_max.noise_table import NoiseTable
from darrm.numerics import Array
from darrm.numerics.integer_noise import IntegerNoise

Integers = NDArray[np.int64]
SMALL, TINY = 7.0, 40.0  # −log of the mass beyond `TwoClasses.near`, and beyond `left` and `right`
_NEGLIGIBLE = 38.0  # −log of a tail that is cut off, relative to the smallest tail in use
_DOUBLINGS, _TRIED = 62, 64  # of a number of votes in a search: all whole numbers; how many at once
_AT_ONCE = 1 << 17  # numbers in one block of diagonals: a megabyte, which fits the cache


@dataclass(frozen=True)
class Moved:
    """Log-probabilities of a and b before (p) and after (q) the move, elementwise."""

    p_a: Array
    q_a: Array
    p_b: Array
    q_b: Array


@dataclass(frozen=True)
class TwoClasses:
    """F, G and S of one noise.

    ``tiny`` is −log of the mass beyond `left` and `right`; products of two masses have to be floats.
    """

    noise: IntegerNoise
    tiny: float = TINY

    @cached_property
    def right(self) -> int:
        """The least number of votes r, about, with Pr[X ≥ r] ≤ e^{−tiny}."""
        return self._find_reach(+1, self.tiny)

    @cached_property
    def left(self) -> int:
        """The least number of votes r, about, with Pr[X ≤ −r] ≤ e^{−tiny}."""
        return self._find_reach(-1, self.tiny)

    @cached_property
    def near(self) -> int:
        """The least number of votes r, about, with Pr[X ≤ −r] ≤ e^{−7}."""
        return self._find_reach(-1, SMALL)

    @cached_property
    def support(self) -> Integers:
        """The values that sums run over; the rest is below e^{−38} of the tails just beyond `left` and `right`."""
        last = np.array([-self.left - 2, self.right + 2])
        low, high = self._top - self.noise.log_weights(last) + _NEGLIGIBLE
        return np.arange(-self._find_reach(-1, float(low)), self._find_reach(+1, float(high)) + 1)

    @cached_property
    def masses(self) -> Array:
        """Pr[X = x] on the support."""
        return np.exp(self.log_masses(self.support))

    @cached_property
    def below(self) -> Array:
        """G on the support."""
        return np.cumsum(self.masses)

    @cached_property
    def above(self) -> Array:
        """Pr[X ≥ x] on the support."""
        return np.cumsum(self.masses[::-1])[::-1]

    @property
    def rounding(self) -> float:
        """Bound the error of each log-probability: sums of n positive numbers, whose logs err by 2^-50 of 300."""
        return float(self.support.size * 2.0**-53 + 1e-12)

    def log_masses(self, points: Integers) -> Array:
        """Log Pr[X = x] elementwise."""
        return np.asarray(self.noise.log_weights(points) - self._log_total)

    def log_G(self, points: Integers) -> Array:
        """Log Pr[X ≤ t] elementwise: 0 above the support, −∞ below it."""
        return np.asarray(self._logs_below[np.clip(points - self.support[0] + 1, 0, self.support.size + 1)])

    def log_F(self, points: Integers) -> Array:
        """Log Pr[X ≥ −i] elementwise: 0 below the support, −∞ above it."""
        return np.asarray(self._logs_above[np.clip(-points - self.support[0] + 1, 0, self.support.size + 1)])

    def log_S(self, i: Integers, j: Integers) -> Array:
        """Log S(i, j) elementwise, a block of diagonals at a time."""
        size = self.support.size
        least, most = min(int(np.min(i - j)), 0), max(int(np.max(i - j)), 0)
        met = np.bincount(i - j - least) > 0
        diagonals = np.flatnonzero(met)  # relative to `least`
        windows = sliding_window_view(np.concatenate([np.zeros(-least), self.below, np.ones(most)]), size)
        start = np.clip(-i - self.support[0], 0, size - 1)
        begins = np.bincount(start) > 0
        starts, place = np.flatnonzero(begins), (np.cumsum(begins) - 1)[start]
        low, high = int(starts[0]), int(starts[-1])  # all sums begin between the two
        which = (np.cumsum(met) - 1).astype(np.uint16 if diagonals.size < 1 << 16 else np.int64)[i - j - least]
        order = np.argsort(which, kind="stable")  # a radix sort for 16 bits
        ends = np.concatenate([[0], np.cumsum(np.bincount(which))])
        sums = np.empty(i.shape)
        rows = max(1, _AT_ONCE // size)
        for top in range(0, diagonals.size, rows):
            below = windows[diagonals[top : top + rows]]  # row d − least: G(w + d)
            beyond = below[:, high:] @ self.masses[high:]
            between = below[:, low:high] * self.masses[low:high]
            if low < high:  # few different starts: add up the terms between two of them first
                between = np.add.reduceat(between, starts[:-1] - low, axis=1)
            tails = np.cumsum(np.column_stack([beyond, between[:, ::-1]]), axis=1)
            here = order[ends[top] : ends[min(top + rows, diagonals.size)]]
            sums[here] = tails[which[here] - top, starts.size - 1 - place[here]]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(sums))

    def moved(self, i: Integers, j: Integers, z: int) -> Moved:
        """Compute both laws of a and b, before (i, j) and after (i − 1, j + 1) the move; z = 1: ties go to b."""
        one, other = (i, i - 1, j, j + 1), (j + z, j + 1 + z, i + 1 - z, i - z)  # many diagonals coincide
        return Moved(*np.split(self.log_S(np.concatenate(one), np.concatenate(other)), 4))

    @cached_property
    def _logs_below(self) -> Array:
        with np.errstate(divide="ignore"):
            return np.concatenate([[-np.inf], np.log(self.below), [0.0]])

    @cached_property
    def _logs_above(self) -> Array:
        with np.errstate(divide="ignore"):
            return np.concatenate([[0.0], np.log(self.above), [-np.inf]])

    @cached_property
    def _log_total(self) -> float:
        return float(np.logaddexp.reduce(self.noise.log_weights(self.support)))

    @cached_property
    def _top(self) -> float:
        """The largest log-weight; a mode beyond two deviations of 0 would only lengthen the reach."""
        around = 2 * math.ceil(self.noise.deviation)
        return float(np.max(self.noise.log_weights(np.arange(-around, around + 1))))

    def _find_reach(self, sign: int, exponent: float) -> int:
        """Find the least r beyond the mode with w(±r) ≤ e^{−exponent}·w(mode)."""
        # By log-concavity weights fall geometrically from the mode to r and at least as fast beyond, so that
        # Pr[X ≥ r] ≤ x/(1 − x) for x = w(r)/w(mode).

        def first_small(tried: Integers) -> int:
            return int(np.argmax(self.noise.log_weights(sign * tried) <= self._top - exponent - 1e-9))

        tried = np.concatenate([[0], 1 << np.arange(_DOUBLINGS)])
        while (place := first_small(tried)) and tried[place] - tried[place - 1] > 1:
            tried = np.unique(np.linspace(tried[place - 1], tried[place], _TRIED).astype(np.int64))
        return int(tried[place])


_REACH = 30.0  # σ: tails down to e^{−225}
_LARGEST_ORDER = 8.0  # σ: the terms of A are largest near κ = 2(α − 1), within the tables


@dataclass(frozen=True)
class NoiseDifference:
    """The tails of D for discrete Gaussian noise of σ votes on each count, at whole κ from `first` on.

    >>> law = NoiseDifference(40.0)
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
        return NoiseTable(self.first, self.log_masses).log_above

    def covers(self, order: float) -> bool:
        """Return whether the tables are long enough for the sums at this order."""
        return order <= _LARGEST_ORDER * max(self.sigma, 1.0)

    def log_sums(self, order: float, sign: int) -> Array:
        """Compute log A(κ) for ``sign`` 1 and log B(κ) for −1 at the κ of the tables; ∞ beyond `covers`."""
        if not self.covers(order):
            return np.full(self.log_masses.shape, np.inf)
        points = np.arange(self.first, self.last + 1)
        # log f(k) − log f(k ± 2) = (1 ± k)/σ²
        logs = self.log_masses + (order - 1.0) * (1.0 + sign * points) / self.sigma**2
        return NoiseTable(self.first, logs).log_above

    def index_of(self, log_probability: float) -> int:
        """Return the place in the tables of the largest κ with t(κ) at least the probability."""
        return max(int(np.searchsorted(-self.log_tails, -log_probability, side="right")) - 1, 0)
