"""Composition of privacy losses on a grid by fast Fourier transform, with bounds on all rounding.

A query of kind g has loss c·h with probability m_g(c), for integers c and a common step h, and an infinite loss with
probability i_g. The losses of k_g queries of each kind add up to the convolution v of all, and

    δ(ε) = 1 − Π (1 − i_g)^{k_g} + Σ_{ch > ε} v(c)·(1 − e^{ε − ch}).

The error of a transform is relative to the largest value, but the relevant values are small. So the transform is
applied to the tilted masses w_g(c) = m_g(c)·e^{λch}/M_g, whose convolution is largest near the relevant ε, and
v(c) = e^{K − λch}·(w_1 * w_2 * …)(c) with K = Σ k_g·log M_g. With M_g(λ) = Σ m_g(c)·e^{λch} the right side never
exceeds e^{K − λch}, the Chernoff bound, and ε_δ(λ) = (K − log δ)/λ is safe for every λ > 0.

**Why the result is a bound.** All terms of δ(ε) are non-negative, so larger terms are safe.

* *Window.* The transform has n cells, fewer than the sum's support. Losses outside wrap around to another cell and only
  add mass there; if that may matter, a longer window is used. Mass is missing only above the window. The Chernoff bound
  at another λ limits that mass, which is added as an infinite loss.
* *Transform.* n is a power of two. Every output sums n inputs, each multiplied by twiddle factors on log₂ n levels; a
  level's complex product (3u [H02, Lemma 3.5]), sum (u) and twiddle factor (u) change a partial sum by less than 8u of
  the sum of its inputs' moduli. So no output errs by more than e = 8u·log₂ n·Σ|w| (1 + 0.01).
* *Power.* Repeated squaring changes F^k by less than 3uk of itself, and the errors of the k factors change it by
  k·e·(|F| + e)^{k−1}. The inverse transform averages: no cell errs by more than their mean over all frequencies, plus
  e.
* *The rest* has relative errors of a few u times the size of the exponents.

(`tests/loss/test_grid_composition.py`)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from darrm.numerics import Array
from darrm.numerics.bisection import last_allowed_integer

_UNIT = 2.0**-53  # relative error of one rounding
_LEVEL_ERROR = 8.0 * _UNIT  # on one of the log₂ n levels of a transform
_NEGLIGIBLE_SHARE = 1e-12  # the share of δ that may lie above the window
_LEFT_SHARE = 1e-14  # the share of the tilted distribution that may lie below the window
_MAX_EXPONENT = 600.0  # of tilted masses: e^600 is a float
_TILTS = 2.0 ** (np.arange(-60, 61) / 4.0)  # λ: a finer grid would only change the rounding
# if Chernoff's bound exceeds the result by this many 1/λ, a smaller tilt is more accurate (few queries)
_MIN_CHERNOFF_GAP, _MAX_TILTS = 6.0, 6
_TILT_PARTS = 2.0 ** (np.arange(-12, 7) / 2.0)  # relative changes of a tilt that bound both tails
_MAX_LEVELS = 21  # log₂ of the cells of a transform: a tenth of a second and 100 MB
_MAX_ROUNDING = 1e-3  # relative; above it a window has no result
_MIN_IMPROVEMENT = 1e-9  # relative
_SEARCH_CELLS = 4  # cells around the estimated crossing
_UNDERFLOW_BOUND = 1e-300  # exceeds all underflow


@dataclass(frozen=True, eq=False)
class GridQueries:
    """Queries of one kind, whose losses are multiples of the step."""

    first: int  # the smallest loss with a mass, in steps
    masses: Array  # shape (n,): the probabilities of first, first + 1, … steps, or bounds on them from above
    infinite: float  # the probability of an infinite loss
    count: int

    @cached_property
    def _support(self) -> tuple[NDArray[np.int64], Array]:
        places = np.flatnonzero(self.masses)
        return self.first + places, np.log(self.masses[places])

    def log_moment(self, tilt: float, step: float) -> float:
        """Compute log M = log Σ m·e^{λch}."""
        losses, logs = self._support
        exponents = tilt * step * losses + logs
        top = float(np.max(exponents))
        return top + math.log(float(np.sum(np.exp(exponents - top))))

    def tilted(self, tilt: float, step: float, log_moment: float) -> tuple[Array, float]:
        """Compute w = m·e^{λch}/M, and a bound on its relative error."""
        losses, logs = self._support
        exponents = tilt * step * losses
        result = np.zeros(self.masses.size)
        result[losses - self.first] = np.exp(exponents + logs - log_moment)
        largest_exponent = float(np.max(np.abs(exponents)) + np.max(np.abs(logs))) + abs(log_moment)
        return result, 4.0 * _UNIT * (largest_exponent + 4.0)

    @property
    def last(self) -> int:
        return self.first + self.masses.size - 1


@dataclass(frozen=True, eq=False)
class GridComposition:
    """The total loss of queries of several kinds on one grid."""

    kinds: Sequence[GridQueries]
    step: float

    @property
    def infinite(self) -> float:
        """Bound 1 − Π (1 − i)^k, the probability of an infinite loss."""
        if any(kind.infinite >= 1.0 for kind in self.kinds):
            return 1.0
        log_finite = sum(kind.count * math.log1p(-kind.infinite) for kind in self.kinds)
        return min(1.0, -math.expm1(log_finite) * (1.0 + 32.0 * _UNIT))

    def smallest_epsilon(self, delta: float) -> float:
        """Find nearly the smallest ε ≥ 0 with δ(ε) ≤ ``delta``; ∞ if rounding exceeds δ."""
        limit = delta - self.infinite
        if limit <= 0.0:
            return math.inf
        if self._last_cell <= 0:
            return 0.0
        max_tilt = _MAX_EXPONENT / (self.step * max(max(abs(kind.first), abs(kind.last)) for kind in self.kinds))
        tilts = _TILTS[: max(1, int(np.searchsorted(_TILTS, max_tilt)))]
        # the probability of a larger loss is at most `_NEGLIGIBLE_SHARE` of the limit
        safe_tilt = self._find_best_tilt(tilts, _NEGLIGIBLE_SHARE * limit)
        top = self._find_cell(self._bound_by_chernoff(safe_tilt, _NEGLIGIBLE_SHARE * limit))
        tilt, best = self._find_best_tilt(tilts, limit), math.inf
        for _ in range(_MAX_TILTS):
            bottom, last, lengths = self._choose_lengths(tilt, top)
            has_result, epsilon = False, math.inf
            for levels in lengths:
                window = self._bound_window(tilt, bottom, levels)
                if window is not None:
                    losses, masses, rounding = window
                    epsilon = min(
                        epsilon, _find_crossing(losses, masses, limit * (1.0 - 4.0 * _NEGLIGIBLE_SHARE - rounding))
                    )
                    has_result = True
                # losses that wrap around from above end below ε and have no effect
                if self.step * (last - 2**levels) <= min(best, epsilon) < math.inf:
                    break
            is_worse, best = epsilon > best * (1.0 + _MIN_IMPROVEMENT), min(best, epsilon)
            if not has_result or is_worse:  # a smaller tilt wraps more around
                break
            if tilt * (self._bound_by_chernoff(tilt, limit) - best) < _MIN_CHERNOFF_GAP:
                break
            tilt /= 4.0
        return best * (1.0 + 16.0 * _UNIT)  # losses are products and sums of floats

    @property
    def _last_cell(self) -> int:
        return sum(kind.count * kind.last for kind in self.kinds)

    def _find_cell(self, loss: float) -> int:
        return max(0, min(self._last_cell, math.ceil(min(loss, self.step * self._last_cell) / self.step)))

    def _sum_log_moments(self, tilt: float) -> float:
        return sum(kind.count * kind.log_moment(tilt, self.step) for kind in self.kinds)

    def _bound_by_chernoff(self, tilt: float, delta: float) -> float:
        return (self._sum_log_moments(tilt) - math.log(delta)) / tilt

    def _find_best_tilt(self, tilts: Array, delta: float) -> float:
        def is_falling(place: int) -> bool:
            return self._bound_by_chernoff(tilts[place - 1], delta) < self._bound_by_chernoff(tilts[place], delta)

        return float(tilts[last_allowed_integer(is_falling, inside=tilts.size, outside=0) - 1])

    def _choose_lengths(self, tilt: float, top: int) -> tuple[int, int, list[int]]:
        """Return the first cell of windows, the last cell of the sum, and log₂ of two lengths."""
        # losses above a window wrap around and may add too much mass; a longer window rounds more
        log_moments, lowest = self._sum_log_moments(tilt), sum(kind.count * kind.first for kind in self.kinds)
        left_end = max(
            (math.log(_LEFT_SHARE) + log_moments - self._sum_log_moments(tilt * (1.0 - part))) / (tilt * part)
            for part in _TILT_PARTS
        )
        bottom = max(lowest, math.floor(left_end / self.step))
        right_end = min(
            (self._sum_log_moments(tilt * (1.0 + part)) - log_moments - math.log(_LEFT_SHARE)) / (tilt * part)
            for part in _TILT_PARTS
        )
        ends = (top, max(top, self._find_cell(right_end)))
        lengths = {max(1, math.ceil(math.log2(max(1, end - bottom + 1)))) for end in ends}
        return bottom, ends[1], [levels for levels in sorted(lengths) if levels <= _MAX_LEVELS]

    def _bound_window(self, tilt: float, bottom: int, levels: int) -> tuple[Array, Array, float] | None:
        """Bound v(c) for c ≥ 0 in a window; None if the rounding is too large."""
        # Returns losses, masses and the remaining relative rounding of the masses.
        log_moments, lowest = self._sum_log_moments(tilt), sum(kind.count * kind.first for kind in self.kinds)
        n = 2**levels
        transform = np.ones(n // 2 + 1, dtype=np.complex128)
        sizes, relative = np.ones(n // 2 + 1), np.zeros(n // 2 + 1)
        losses = self.step * np.arange(bottom, bottom + n)
        rounding = n * _UNIT + 4.0 * _UNIT * (abs(log_moments) + tilt * float(np.max(np.abs(losses))))
        for kind in self.kinds:
            tilted, tilt_error = kind.tilted(tilt, self.step, kind.log_moment(tilt, self.step))
            spectrum = np.fft.rfft(np.pad(tilted, (0, -tilted.size % n)).reshape(-1, n).sum(axis=0))
            error = 1.01 * (_LEVEL_ERROR * levels + tilted.size * _UNIT) * float(np.sum(tilted))
            bounds = np.abs(spectrum) * (1.0 + 4.0 * _UNIT) + error
            rounding += kind.count * tilt_error
            relative += kind.count * (error / bounds + 3.0 * _UNIT)
            sizes *= bounds**kind.count
            transform *= _raise_to_power(spectrum, kind.count)
        if rounding + float(np.max(relative * sizes)) > _MAX_ROUNDING:
            return None
        errors = 1.01 * sizes * (relative + _LEVEL_ERROR * levels)
        cell_error = (2.0 * float(np.sum(errors)) - float(errors[0])) / n + _UNDERFLOW_BOUND
        # cell ``lowest`` of the sum is cell 0 of the transform
        tilted_sum = np.roll(np.fft.irfft(transform, n), lowest - bottom)
        with np.errstate(over="ignore"):
            masses = (np.maximum(tilted_sum, 0.0) + cell_error) * np.exp(log_moments - tilt * losses)
        return losses[losses >= 0.0], np.minimum(masses, 2.0)[losses >= 0.0], rounding


def _raise_to_power(values: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    result = np.ones_like(values)
    while exponent:
        if exponent & 1:
            result = result * values
        exponent >>= 1
        values = values * values if exponent else values
    return result


def _find_crossing(losses: Array, masses: Array, limit: float) -> float:
    """Find the smallest ε with Σ masses·max(0, 1 − e^{ε − loss}) ≤ limit."""
    if losses.size == 0:
        return 0.0
    tail_masses = np.cumsum(masses[::-1])[::-1]
    size = max(1, int(np.count_nonzero(tail_masses > _NEGLIGIBLE_SHARE * limit)))
    losses, masses, limit = losses[:size], masses[:size], limit * (1.0 - _NEGLIGIBLE_SHARE)

    def is_allowed(place: int) -> bool:
        return float(masses[place:] @ -np.expm1(losses[place] - losses[place:])) <= limit

    # a less accurate sum locates the crossing within a few cells
    damping = np.exp(np.maximum(losses[0] - losses, -_MAX_EXPONENT))
    tails = np.cumsum((masses * damping)[::-1])[::-1]
    with np.errstate(over="ignore", invalid="ignore"):
        sums = tail_masses[:size] - tails / damping
    guess = int(np.argmax(sums <= limit)) if np.any(sums <= limit) else size
    high, low = min(size, guess + _SEARCH_CELLS), max(-1, guess - _SEARCH_CELLS)
    inside = high if high == size or is_allowed(high) else size
    outside = low if low == -1 or not is_allowed(low) else -1
    place = last_allowed_integer(is_allowed, inside=inside, outside=outside)
    if place == 0:
        return float(losses[0])
    # between two cells the sum is total − e^{ε − loss}·damped
    total = float(np.sum(masses[place:])) * (1.0 + 2.0 * losses.size * _UNIT)
    damped = float(masses[place:] @ np.exp(losses[place] - losses[place:]))
    crossing = float(losses[place]) + math.log(min(1.0, (total - limit) / damped))
    return min(crossing * (1.0 + 8.0 * _UNIT), float(losses[place]))
