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
_AT_ONCE = 1 << 20  # numbers of one block of diagonals


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

    def log_G(self, points: Integers) -> Array:  # noqa: N802 (the formula's letter)
        """Log Pr[X ≤ t] elementwise: 0 above the support; −∞ below it."""
        place = points - self.support[0]
        with np.errstate(divide="ignore"):
            inside = np.log(self.below[np.clip(place, 0, self.support.size - 1)])
        return np.where(place < 0, -np.inf, np.where(place >= self.support.size, 0.0, inside))

    def log_F(self, points: Integers) -> Array:  # noqa: N802 (the formula's letter)
        """Log Pr[X ≥ −i] elementwise: 0 where the support ends; −∞ beyond it."""
        place = -points - self.support[0]
        with np.errstate(divide="ignore"):
            inside = np.log(self.above[np.clip(place, 0, self.support.size - 1)])
        return np.where(place >= self.support.size, -np.inf, np.where(place < 0, 0.0, inside))

    def log_S(self, i: Integers, j: Integers) -> Array:  # noqa: N802 (the formula's letter)
        """Log S(i, j) elementwise, a block of diagonals at a time."""
        first, size = int(self.support[0]), self.support.size
        least, most = min(int(np.min(i - j)), 0), max(int(np.max(i - j)), 0)
        which = i - j - least
        diagonals = np.flatnonzero(np.bincount(which))  # from `least` on
        padded = np.concatenate([np.zeros(-least), self.below, np.ones(most)])
        windows = sliding_window_view(padded, size)  # row d − least: G(w + d)
        start = np.clip(-i - first, 0, size - 1)
        which = np.searchsorted(diagonals, which).astype(np.uint16 if diagonals.size < 1 << 16 else np.int64)
        order = np.argsort(which, kind="stable")  # of 16 bits: by counting
        ends = np.concatenate([[0], np.cumsum(np.bincount(which, minlength=diagonals.size))])
        sums = np.empty(i.shape)
        rows = max(1, _AT_ONCE // size)
        for low in range(0, diagonals.size, rows):
            high = min(low + rows, diagonals.size)
            products = windows[diagonals[low:high]] * self.masses
            tails = np.cumsum(products[:, ::-1], axis=1)  # column n: the last n + 1 terms
            here = order[ends[low] : ends[high]]
            sums[here] = tails[which[here] - low, size - 1 - start[here]]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(sums))

    def moved(self, i: Integers, j: Integers, z: Integers) -> Moved:
        """Compute both laws of a and b, before (i, j) and after (i − 1, j + 1) the move; z = 1: ties go to b."""
        return Moved(
            self.log_S(i, j + z),
            self.log_S(i - 1, j + 1 + z),
            self.log_S(j, i + 1 - z),
            self.log_S(j + 1, i - z),
        )

    @cached_property
    def _log_total(self) -> float:
        return float(np.logaddexp.reduce(self.noise.log_weights(self.support)))

    @cached_property
    def _top(self) -> float:
        """The largest log-weight: the mode lies within two deviations of 0, or `_reach` would only be longer."""
        around = 2 * math.ceil(self.noise.deviation)
        return float(np.max(self.noise.log_weights(np.arange(-around, around + 1))))

    def _reach(self, sign: int, exponent: float) -> int:
        """Find the least r beyond the mode with w(±r) ≤ e^{−exponent}·w(mode): the mass beyond is hardly more.

        By log-concavity Pr[X ≥ r] ≤ x/(1 − x) for x = w(r)/w(mode): the weights fall geometrically from the mode to r,
        at least so fast beyond.
        """

        def small(r: int) -> bool:
            return bool(self.noise.log_weights(np.array([sign * r]))[0] <= self._top - exponent - 1e-9)

        low, high = 0, 1
        while not small(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if small(middle) else (middle, high)
        return high
