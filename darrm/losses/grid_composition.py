"""Composition of privacy losses on a grid by fast Fourier transform, with a bound on everything that is rounded.

A query of kind g has its loss at c·h with probability m_g(c), for integers c and a common step h, and an infinite loss
with probability i_g. The losses of k_g queries of each kind add up, so their distribution is the convolution of all,
and with v for it

    δ(ε) = 1 − Π (1 − i_g)^{k_g} + Σ_{ch > ε} v(c)·(1 − e^{ε − ch}).

A transform's error is relative to the largest value, and what counts are small ones. So it is taken of the tilted
masses w_g(c) = m_g(c)·e^{λch}/M_g, whose convolution is largest near the ε that is looked for, and
v(c) = e^{K − λch}·(w_1 * w_2 * …)(c) with K = Σ k_g·log M_g, for any M_g: with M_g(λ) = Σ m_g(c)·e^{λch} the right
side never exceeds e^{K − λch}, the Chernoff bound, and ε_δ(λ) = (K − log δ)/λ is safe for every λ > 0.

**Why the result holds.** Everything that enters δ(ε) is non-negative, so larger is safe.

* *Window.* The transform has n cells, fewer than the support of the sum. What lies outside comes back at another cell,
  which only adds there; where that may count, a second window is so long that next to nothing does. It is missed at its
  own place only if that is above the window; the Chernoff bound at another λ says how much that is, and it is added as
  an infinite loss.
* *Transform.* n is a power of two. Every output is the sum of n inputs, each multiplied by twiddle factors on log₂ n
  levels; a level's complex product (3u [H02, Lemma 3.5]), sum (u) and twiddle factor (u) change a partial sum by less
  than 8u of the sum of its inputs' moduli. So no output is off by more than e = 8u·log₂ n·Σ|w| (1 + 0.01).
* *Power.* Repeated squaring changes F^k by less than 3uk of itself, and the k factors' own errors by
  k·e·(|F| + e)^{k−1}. The inverse transform averages: no cell is off by more than the mean over all frequencies of
  these and of its own e.
* *The rest*, exponentials and sums, has relative errors of a few u times the size of the exponents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from darrm.probability import Array
from darrm.probability.bisection import last_allowed_integer

_UNIT = 2.0**-53  # relative error of one rounding
_LEVEL = 8.0 * _UNIT  # of one of the log₂ n levels of a transform
_NEGLIGIBLE = 1e-12  # part of δ that may lie above the window
_LEFT = 1e-14  # part of the tilted distribution that may lie below it
_MOST_EXPONENT = 600.0  # of a tilt: e^600 is a float
_TILTS = 2.0 ** (np.arange(-60, 61) / 4.0)  # λ: a better one changes nothing but the rounding
# where Chernoff's bound is so far above what was found, in units of 1/λ, less tilt leaves more digits: few queries
_FAR, _LOWER_TILTS = 6.0, 6
_PARTS = 2.0 ** (np.arange(-12, 7) / 2.0)  # of a tilt, by which another one bounds the tail on the left
_MOST_LEVELS = 21  # log₂ of the cells of a transform: a tenth of a second and 100 MB
_MOST_ROUNDING = 1e-3  # relative; with more there is no answer
_NO_BETTER = 1e-9  # relative
_NEXT = 4  # cells around where a sum reaches what it may be
_SMALLEST = 1e-300  # more than all that underflows


@dataclass(frozen=True, eq=False)
class GridQueries:
    """So many queries of one kind: their losses are multiples of the step."""

    first: int  # the smallest loss with a mass, in steps
    masses: Array  # shape (n,): the probabilities of first, first + 1, … steps, or bounds on them from above
    infinite: float  # that of an infinite loss
    count: int

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], Array]:
        places = np.flatnonzero(self.masses)
        return self.first + places, np.log(self.masses[places])

    def log_moment(self, tilt: float, step: float) -> float:
        """Compute log M = log Σ m·e^{λch}."""
        losses, logs = self._places
        exponents = tilt * step * losses + logs
        top = float(np.max(exponents))
        return top + math.log(float(np.sum(np.exp(exponents - top))))

    def tilted(self, tilt: float, step: float, log_moment: float) -> tuple[Array, float]:
        """Compute w = m·e^{λch}/M, and a bound on its relative error."""
        losses, logs = self._places
        exponents = tilt * step * losses
        result = np.zeros(self.masses.size)
        result[losses - self.first] = np.exp(exponents + logs - log_moment)
        most = float(np.max(np.abs(exponents)) + np.max(np.abs(logs))) + abs(log_moment)
        return result, 4.0 * _UNIT * (most + 4.0)

    @property
    def last(self) -> int:
        """The largest loss with a mass, in steps."""
        return self.first + self.masses.size - 1


@dataclass(frozen=True, eq=False)
class GridComposition:
    """The total loss of queries of several kinds on one grid."""

    kinds: Sequence[GridQueries]
    step: float

    @property
    def infinite(self) -> float:
        """Bound the probability of an infinite loss, 1 − Π (1 − i)^k."""
        if any(kind.infinite >= 1.0 for kind in self.kinds):
            return 1.0
        log_finite = sum(kind.count * math.log1p(-kind.infinite) for kind in self.kinds)
        return min(1.0, -math.expm1(log_finite) * (1.0 + 32.0 * _UNIT))

    def smallest_epsilon(self, delta: float) -> float:
        """Find an ε ≥ 0, nearly the smallest, with δ(ε) ≤ ``delta``; ∞ where rounding leaves nothing of it."""
        room = delta - self.infinite
        if room <= 0.0:
            return math.inf
        if self._highest <= 0:
            return 0.0
        most = _MOST_EXPONENT / (self.step * max(max(abs(kind.first), abs(kind.last)) for kind in self.kinds))
        tilts = _TILTS[: max(1, int(np.searchsorted(_TILTS, most)))]
        # more than this with a probability of at most `_NEGLIGIBLE` of the room
        safe = self._best_tilt(tilts, _NEGLIGIBLE * room)
        top = self._cell(self._chernoff(safe, _NEGLIGIBLE * room))
        tilt, best = self._best_tilt(tilts, room), math.inf
        for _ in range(_LOWER_TILTS):
            bottom, last, lengths = self._lengths(tilt, top)
            answered, own = False, math.inf
            for levels in lengths:
                window = self._window(tilt, bottom, levels)
                if window is not None:
                    losses, masses, rounding = window
                    own = min(own, _smallest(losses, masses, room * (1.0 - 4.0 * _NEGLIGIBLE - rounding)))
                    answered = True
                # what comes back from above lies below ε, where it does not count
                if self.step * (last - 2**levels) <= min(best, own) < math.inf:
                    break
            worse, best = own > best * (1.0 + _NO_BETTER), min(best, own)
            if not answered or worse:  # with less tilt more comes back, and counts
                break
            if tilt * (self._chernoff(tilt, room) - best) < _FAR:
                break
            tilt /= 4.0
        return best * (1.0 + 16.0 * _UNIT)  # losses are products and sums of floats

    @property
    def _highest(self) -> int:
        return sum(kind.count * kind.last for kind in self.kinds)

    def _cell(self, loss: float) -> int:
        return max(0, min(self._highest, math.ceil(min(loss, self.step * self._highest) / self.step)))

    def _log_moments(self, tilt: float) -> float:
        return sum(kind.count * kind.log_moment(tilt, self.step) for kind in self.kinds)

    def _chernoff(self, tilt: float, delta: float) -> float:
        return (self._log_moments(tilt) - math.log(delta)) / tilt

    def _best_tilt(self, tilts: Array, delta: float) -> float:
        rises = last_allowed_integer(
            lambda place: self._chernoff(tilts[place - 1], delta) < self._chernoff(tilts[place], delta),
            inside=tilts.size,
            outside=0,
        )
        return float(tilts[rises - 1])

    def _lengths(self, tilt: float, top: int) -> tuple[int, int, list[int]]:
        """Return where windows begin, where all ends, and log₂ of their cells: one to ``top``, and one with all."""
        # what is above a window comes back at its bottom, where it may count too much; a longer one rounds more
        logs, lowest = self._log_moments(tilt), sum(kind.count * kind.first for kind in self.kinds)
        reach = max(
            (math.log(_LEFT) + logs - self._log_moments(tilt * (1.0 - part))) / (tilt * part) for part in _PARTS
        )
        bottom = max(lowest, math.floor(reach / self.step))
        tail = min((self._log_moments(tilt * (1.0 + part)) - logs - math.log(_LEFT)) / (tilt * part) for part in _PARTS)
        ends = (top, max(top, self._cell(tail)))
        lengths = {max(1, math.ceil(math.log2(max(1, end - bottom + 1)))) for end in ends}
        return bottom, ends[1], [levels for levels in sorted(lengths) if levels <= _MOST_LEVELS]

    def _window(self, tilt: float, bottom: int, levels: int) -> tuple[Array, Array, float] | None:
        """Bound v(c) for the c ≥ 0 of a window of 2^levels cells; None if its rounding is too large."""
        # Returns losses, masses and what is left to bound of their rounding, relative.
        logs, lowest = self._log_moments(tilt), sum(kind.count * kind.first for kind in self.kinds)
        n = 2**levels
        transform = np.ones(n // 2 + 1, dtype=np.complex128)
        sizes, relative = np.ones(n // 2 + 1), np.zeros(n // 2 + 1)
        losses = self.step * np.arange(bottom, bottom + n)
        rounding = n * _UNIT + 4.0 * _UNIT * (abs(logs) + tilt * float(np.max(np.abs(losses))))
        for kind in self.kinds:
            tilted, tilting = kind.tilted(tilt, self.step, kind.log_moment(tilt, self.step))
            own = np.fft.rfft(np.pad(tilted, (0, -tilted.size % n)).reshape(-1, n).sum(axis=0))
            error = 1.01 * (_LEVEL * levels + tilted.size * _UNIT) * float(np.sum(tilted))
            bounds = np.abs(own) * (1.0 + 4.0 * _UNIT) + error
            rounding += kind.count * tilting
            relative += kind.count * (error / bounds + 3.0 * _UNIT)
            sizes *= bounds**kind.count
            transform *= _power(own, kind.count)
        if rounding + float(np.max(relative * sizes)) > _MOST_ROUNDING:
            return None
        errors = 1.01 * sizes * (relative + _LEVEL * levels)
        a_cell = (2.0 * float(np.sum(errors)) - float(errors[0])) / n + _SMALLEST
        # the sum's cell ``lowest`` is the transform's cell 0
        tilted_sum = np.roll(np.fft.irfft(transform, n), lowest - bottom)
        with np.errstate(over="ignore"):
            masses = (np.maximum(tilted_sum, 0.0) + a_cell) * np.exp(logs - tilt * losses)
        return losses[losses >= 0.0], np.minimum(masses, 2.0)[losses >= 0.0], rounding


def _power(values: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    result = np.ones_like(values)
    while exponent:
        if exponent & 1:
            result = result * values
        exponent >>= 1
        values = values * values if exponent else values
    return result


def _smallest(losses: Array, masses: Array, room: float) -> float:
    """Find the smallest ε with Σ masses·max(0, 1 − e^{ε − loss}) ≤ room."""
    if losses.size == 0:
        return 0.0
    above = np.cumsum(masses[::-1])[::-1]
    kept = max(1, int(np.count_nonzero(above > _NEGLIGIBLE * room)))
    losses, masses, room = losses[:kept], masses[:kept], room * (1.0 - _NEGLIGIBLE)

    def allowed(place: int) -> bool:
        return float(masses[place:] @ -np.expm1(losses[place] - losses[place:])) <= room

    # where sums that round more say that it is, or next to it
    damping = np.exp(np.maximum(losses[0] - losses, -_MOST_EXPONENT))
    tails = np.cumsum((masses * damping)[::-1])[::-1]
    with np.errstate(over="ignore", invalid="ignore"):
        sums = above[:kept] - tails / damping
    guess = int(np.argmax(sums <= room)) if np.any(sums <= room) else kept
    high, low = min(kept, guess + _NEXT), max(-1, guess - _NEXT)
    inside = high if high == kept or allowed(high) else kept
    outside = low if low == -1 or not allowed(low) else -1
    place = last_allowed_integer(allowed, inside=inside, outside=outside)
    if place == 0:
        return float(losses[0])
    # between two cells the sum is total − e^{ε − loss}·damped
    total = float(np.sum(masses[place:])) * (1.0 + 2.0 * losses.size * _UNIT)
    damped = float(masses[place:] @ np.exp(losses[place] - losses[place:]))
    between = float(losses[place]) + math.log(min(1.0, (total - room) / damped))
    return min(between * (1.0 + 8.0 * _UNIT), float(losses[place]))
