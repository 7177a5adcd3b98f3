"""Log-concave integer noise for votes, and exact draws by inversion.

The bounds on labels need log-concavity, w(x)² ≥ w(x − 1)·w(x + 1).

**Inversion.** The draw is the x with F(x − 1) ≤ U < F(x), U = 0.u₁u₂… uniform. U starts with 16 bits, then 48 bits if
these do not decide between two x, and words of 64 bits if a boundary F(x) is too close. Ball arithmetic on a table of
w(x) and a tail bound encloses each boundary in an interval of words: ratios of log-concave w fall, so Σ_{y ≥ x} w(y) ≤
w(x)/(1 − w(x)/w(x − 1)) to the right of the table, and likewise to the left. Every refinement uses a longer table and
more precise balls, so each draw ends with probability 1 without rounding.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, count
from typing import Protocol

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from darrm.numerics import Array
from darrm.numerics.exact_sampling import require_generator
from darrm.util import checks

SMALLEST_SCALE, LARGEST_SCALE = 0.5, 4096.0  # votes, of shaped noise
# exact as floats; with other powers the rounding of log-weights would exceed the stated error
POWERS = tuple(quarters / 4.0 for quarters in range(4, 13))


class IntegerNoise(Protocol):
    """A log-concave law on all integers; equal laws are equal and have equal hashes."""

    @property
    def deviation(self) -> float:
        """Its approximate standard deviation, in votes: the scale of bounds and draws."""
        ...

    def log_weights(self, points: NDArray[np.int64]) -> Array:
        """Compute log w(x) elementwise, Pr[x] = w(x)/Σw, each to a relative error of 2^-50."""
        ...

    def enclosed_log_weights(self, points: Iterable[int]) -> Iterator[arb]:
        """Enclose log w(x) of each point in balls, for the decimal values of the parameters."""
        ...

    def __hash__(self) -> int:
        """Hash the noise: caches of costs use it as key."""
        ...


@dataclass(frozen=True)
class DiscreteGaussian:
    """Pr[x] ∝ e^{−x²/(2σ²)} on the integers [CKS20].

    >>> DiscreteGaussian(2.0).log_weights(np.array([0, -2]))
    array([-0. , -0.5])
    """

    sigma: float

    def __post_init__(self) -> None:
        checks.positive(sigma=self.sigma)

    @property
    def deviation(self) -> float:
        return self.sigma

    def log_weights(self, points: NDArray[np.int64]) -> Array:
        return np.asarray(-((points / self.sigma) ** 2) / 2.0)

    def enclosed_log_weights(self, points: Iterable[int]) -> Iterator[arb]:
        rate = -1 / (2 * ball(self.sigma) ** 2)
        return (rate * point**2 for point in points)


@dataclass(frozen=True)
class DiscreteLaplace:
    """Pr[x] ∝ e^{−γ|x|} on the integers, the two-sided geometric law.

    >>> DiscreteLaplace(0.5).log_weights(np.array([0, -2]))
    array([-0., -1.])
    """

    gamma: float

    def __post_init__(self) -> None:
        checks.positive(gamma=self.gamma)

    @property
    def deviation(self) -> float:
        """The √2/γ of the continuous law."""
        return float(np.sqrt(2.0) / self.gamma)

    def log_weights(self, points: NDArray[np.int64]) -> Array:
        return np.asarray(-self.gamma * np.abs(points))

    def enclosed_log_weights(self, points: Iterable[int]) -> Iterator[arb]:
        rate = -ball(self.gamma)
        return (rate * abs(point) for point in points)


@dataclass(frozen=True)
class AsymmetricNoise:
    """Pr[x] ∝ e^{−(x/s)^q} for x ≥ 0 and e^{−(|x|/ℓ)^p} for x < 0: with ℓ > s a shorter right tail.

    With many classes the largest noise causes errors, so a short right tail reduces them. Scales s = ``right`` and ℓ =
    ``left`` are in [½, 4096] votes; powers q = ``right_power`` and p = ``left_power`` are multiples of ¼ in [1, 3], so
    that the law is log-concave. Else `ValueError`.

    >>> AsymmetricNoise(right=4.0, left=8.0, right_power=3.0, left_power=2.0).log_weights(np.array([-8, 0, 4, 8]))
    array([-1., -0., -1., -8.])
    """

    right: float
    left: float
    right_power: float
    left_power: float

    def __post_init__(self) -> None:
        checks.positive(right=self.right, left=self.left)
        for name, scale in (("right", self.right), ("left", self.left)):
            if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
                checks.fail(name, scale, f"in [{SMALLEST_SCALE:g}, {LARGEST_SCALE:g}] votes")
        for name, power in (("right_power", self.right_power), ("left_power", self.left_power)):
            if power not in POWERS:
                checks.fail(name, power, "a multiple of 0.25 from 1 to 3")

    def with_right_scale(self, right: float) -> AsymmetricNoise:
        """Return the noise of the same shape with another right scale; scales have six digits.

        >>> AsymmetricNoise(4.0, 8.0, 3.0, 2.0).with_right_scale(5.0)
        AsymmetricNoise(right=5.0, left=10.0, right_power=3.0, left_power=2.0)
        """
        left = float(f"{right * self.left / self.right:.6g}")
        return replace(self, right=float(f"{right:.6g}"), left=left)

    @property
    def deviation(self) -> float:
        """The standard deviation of the continuous law."""
        mass, mean, square = (
            self.right ** (k + 1) * math.gamma((k + 1) / self.right_power) / self.right_power
            + (-1) ** k * self.left ** (k + 1) * math.gamma((k + 1) / self.left_power) / self.left_power
            for k in range(3)
        )
        return math.sqrt(square / mass - (mean / mass) ** 2)

    def log_weights(self, points: NDArray[np.int64]) -> Array:
        size = np.abs(points)
        right, left = (size / self.right) ** self.right_power, (size / self.left) ** self.left_power
        return -np.where(points >= 0, right, left)

    def enclosed_log_weights(self, points: Iterable[int]) -> Iterator[arb]:
        right, left = ball(self.right), ball(self.left)
        right_power, left_power = ball(self.right_power), ball(self.left_power)
        return (-((x / right) ** right_power) if x >= 0 else -((-x / left) ** left_power) for x in points)


def ball(parameter: float) -> arb:
    """Enclose the shortest decimal of a float."""
    top, bottom = Fraction(repr(float(parameter))).as_integer_ratio()
    return arb(top) / bottom


WIDEST = 1024.0  # the largest deviation in votes: a table of at most 2^18 points, built within a second
_GUARD_BITS = 64  # of balls, in addition to words; affects only the length and speed of tables
_TAIL_BITS = 8  # the tail beyond the table is below 2^-8 of the last bit of a word
_PREFIXES = np.arange(2**16, dtype=np.uint64) << np.uint64(48)

Source = Callable[[int], bytes]  # returns a number of uniform bytes


def bytes_from(rng: np.random.Generator | None) -> Source:
    if rng is None:
        return os.urandom
    require_generator(rng)
    return rng.bytes


class ExactInversion:
    """A sampler of one integer noise whose deviation is at most `WIDEST`.

    >>> from darrm.numerics.integer_noise import DiscreteGaussian
    >>> ExactInversion(DiscreteGaussian(40.0)).draw(4, source=lambda size: bytes([128] * size))
    array([0, 0, 0, 0])
    """

    def __init__(self, noise: IntegerNoise) -> None:
        if not noise.deviation <= WIDEST:
            checks.fail("the deviation of the noise", noise.deviation, f"at most {WIDEST:g} votes")
        self._noise = noise
        self._first, low, high = _enclose_boundaries(noise, 64)
        self._low, self._high = np.array(low, dtype=np.uint64), np.array(high, dtype=np.uint64)
        lower, upper = self._count_boundaries(_PREFIXES)[1], self._count_boundaries(_PREFIXES | np.uint64(2**48 - 1))[0]
        self._is_undecided = lower != upper
        self._values = self._first + lower

    def draw(self, size: int, *, source: Source = os.urandom) -> NDArray[np.int64]:
        checks.integer_at_least(0, size=size)
        prefix = np.frombuffer(source(2 * size), dtype="<u2")
        values: NDArray[np.int64] = self._values[prefix]
        undecided = np.flatnonzero(self._is_undecided[prefix])
        suffix = np.frombuffer(source(8 * undecided.size), dtype="<u8") >> np.uint64(16)
        words = _PREFIXES[prefix[undecided]] | suffix
        upper, lower = self._count_boundaries(words)
        values[undecided] = self._first + lower
        for place in np.flatnonzero(upper != lower):
            values[undecided[place]] = self._refine(int(words[place]), source)
        return values

    def _count_boundaries(self, words: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Count the boundaries that may lie below U, and those that certainly do, for the first words of U."""
        upper, lower = np.searchsorted(self._low, words, side="right"), np.searchsorted(self._high, words, side="left")
        return np.asarray(upper), np.asarray(lower)

    def _refine(self, word: int, source: Source) -> int:
        bits = 64
        while True:
            bits, word = bits + 64, word << 64 | int.from_bytes(source(8), "little")
            first, low, high = _enclose_boundaries(self._noise, bits)
            lower = bisect_left(high, word)
            if bisect_right(low, word) == lower:
                return first + lower


def _enclose_boundaries(noise: IntegerNoise, bits: int) -> tuple[int, list[int], list[int]]:
    """Enclose F(x)·2^bits, rounded down, from the point before a table on: return this point and two lists."""
    # With i boundaries below U the draw is this point plus i. Values beyond both ends stay undecided.
    with ctx.workprec(bits + _GUARD_BITS):
        right, right_tail = _enclose_weights(noise, 1, bits)
        left, left_tail = _enclose_weights(noise, -1, bits)
        sums = list(accumulate([left_tail, *left[:0:-1], *right]))
        scale = arb(2**bits) / (sums[-1] + right_tail)
        scaled = [total * scale for total in sums]
        max_word = 2**bits - 1
        low = [min(max(int(boundary.lower().floor().unique_fmpz()), 0), max_word) for boundary in scaled]
        high = [min(int(boundary.upper().floor().unique_fmpz()), max_word) for boundary in scaled]
    return -len(left), low, high


def _enclose_weights(noise: IntegerNoise, step: int, bits: int) -> tuple[list[arb], arb]:
    """Enclose w(0), w(step), … up to a point with a negligible tail beyond, and the sum of this tail."""
    log_weights = noise.enclosed_log_weights(count(0, step))
    weights = [next(log_weights).exp()]
    threshold = weights[0] * arb(2) ** -(bits + _TAIL_BITS)
    while True:
        weight = next(log_weights).exp()
        if weight < threshold and (tail := weight / (1 - weight / weights[-1])) < threshold:
            half = tail.upper() / 2
            return weights, arb(half, half)
        weights.append(weight)
