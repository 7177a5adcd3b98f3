"""The law of a noisy maximum's label when all classes but two are known: three outcomes in two dimensions.

Classes a and b have noisy counts; the best of the others stands at a known level. On whole numbers let i be the votes
of a above the least count with which it beats the others, and j the same for b: a tie with the others is so in the
definition of i and j. With independent noises X_a, X_b, A = i + X_a and B = j + X_b the label is

    a  if A ≥ 0 and A > B,    b  if B ≥ 0 and B > A,    one of the others if A < 0 and B < 0,

and a tie A = B ≥ 0 goes to a (z = 0) or to b (z = 1). All of it is read off three functions of the noise,

    G(t) = Pr[X ≤ t],    F(i) = Pr[X ≥ −i],    S(i, j) = Pr[A ≥ 0, A ≥ B] = Σ_{w ≥ −i} f(w)·G(w + i − j):

    Pr[a] = S(i, j + z),    Pr[b] = S(j, i + 1 − z),    Pr[other] = G(−i − 1)·G(−j − 1).

S is a sum along a diagonal i − j, from the far end: sums of positive numbers, whose rounding is relative.

One vote moved from a to b leads from (i, j) to (i − 1, j + 1). `TwoClasses` computes both laws.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from darrm.probability import Array
from darrm.probability.integer_noise import IntegerNoise

Integers = NDArray[np.int64]
SMALL, TINY = 7.0, 40.0  # −log of the mass beyond `TwoClasses.near` and beyond `left` and `right`
_NEGLIGIBLE = 38.0  # −log of what a cut-off tail is, next to the smallest tail that is used
_DOUBLINGS, _TRIED = 62, 64  # of a number of votes that is looked for, all that are whole numbers; how many at once
_AT_ONCE = 1 << 16  # numbers of one block of diagonals: half a megabyte, which stays in the cache


@dataclass(frozen=True)
class Moved:
    """Logarithms of the probabilities of a and b before (p) and after (q) the vote has moved, elementwise."""

    p_a: Array
    q_a: Array
    p_b: Array
    q_b: Array


@dataclass(frozen=True)
class TwoClasses:
    """The sums F, G and S of one noise, computed where they are asked for."""

    noise: IntegerNoise

    @cached_property
    def right(self) -> int:
        """A number of votes r with Pr[X ≥ r] ≤ e^{−40}, about the least."""
        return self._reach(+1, TINY)

    @cached_property
    def left(self) -> int:
        """A number of votes r with Pr[X ≤ −r] ≤ e^{−40}, about the least."""
        return self._reach(-1, TINY)

    @cached_property
    def near(self) -> int:
        """A number of votes r with Pr[X ≤ −r] ≤ e^{−7}, about the least."""
        return self._reach(-1, SMALL)

    @cached_property
    def support(self) -> Integers:
        """The values that are summed: what is left out is below e^{−38} of the tails just beyond `left` and `right`."""
        last = np.array([-self.left - 2, self.right + 2])
        low, high = self._top - self.noise.log_weights(last) + _NEGLIGIBLE
        return np.arange(-self._reach(-1, float(low)), self._reach(+1, float(high)) + 1)

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
        """Log Pr[X ≤ t] elementwise: 0 above the support; −∞ below it."""
        return np.asarray(self._logs_below[np.clip(points - self.support[0] + 1, 0, self.support.size + 1)])

    def log_F(self, points: Integers) -> Array:
        """Log Pr[X ≥ −i] elementwise: 0 where the support ends; −∞ beyond it."""
        return np.asarray(self._logs_above[np.clip(-points - self.support[0] + 1, 0, self.support.size + 1)])

    def log_S(self, i: Integers, j: Integers) -> Array:
        """Log S(i, j) elementwise, a block of diagonals at a time."""
        size = self.support.size
        least, most = min(int(np.min(i - j)), 0), max(int(np.max(i - j)), 0)
        met = np.bincount(i - j - least) > 0
        diagonals = np.flatnonzero(met)  # from `least` on
        windows = sliding_window_view(np.concatenate([np.zeros(-least), self.below, np.ones(most)]), size)
        start = np.clip(-i - self.support[0], 0, size - 1)
        low, high = int(np.min(start)), int(np.max(start))  # sums begin between the two
        which = (np.cumsum(met) - 1).astype(np.uint16 if diagonals.size < 1 << 16 else np.int64)[i - j - least]
        order = np.argsort(which, kind="stable")  # of 16 bits: by counting
        ends = np.concatenate([[0], np.cumsum(np.bincount(which))])
        sums = np.empty(i.shape)
        rows = max(1, _AT_ONCE // size)
        for top in range(0, diagonals.size, rows):
            below = windows[diagonals[top : top + rows]]  # row d − least: G(w + d)
            beyond = below[:, high:] @ self.masses[high:]
            products = below[:, low:high] * self.masses[low:high]
            tails = np.cumsum(np.column_stack([beyond, products[:, ::-1]]), axis=1)
            here = order[ends[top] : ends[min(top + rows, diagonals.size)]]
            sums[here] = tails[which[here] - top, high - start[here]]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(sums))

    def moved(self, i: Integers, j: Integers, z: int) -> Moved:
        """Compute both laws of a and b, before (i, j) and after (i − 1, j + 1) the move; z = 1: ties go to b."""
        one, other = (i, i - 1, j, j + 1), (j + z, j + 1 + z, i + 1 - z, i - z)  # many diagonals are the same
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
        """The largest log-weight: the mode lies within two deviations of 0, or `_reach` would only be longer."""
        around = 2 * math.ceil(self.noise.deviation)
        return float(np.max(self.noise.log_weights(np.arange(-around, around + 1))))

    def _reach(self, sign: int, exponent: float) -> int:
        """Find the least r beyond the mode with w(±r) ≤ e^{−exponent}·w(mode): the mass beyond is hardly more."""
        # By log-concavity Pr[X ≥ r] ≤ x/(1 − x) for x = w(r)/w(mode): the weights fall geometrically from the mode to
        # r, at least so fast beyond.

        def first_small(tried: Integers) -> int:
            return int(np.argmax(self.noise.log_weights(sign * tried) <= self._top - exponent - 1e-9))

        tried = np.concatenate([[0], 1 << np.arange(_DOUBLINGS)])
        while (place := first_small(tried)) and tried[place] - tried[place - 1] > 1:
            tried = np.unique(np.linspace(tried[place - 1], tried[place], _TRIED).astype(np.int64))
        return int(tried[place])
