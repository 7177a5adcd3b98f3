"""Noise on whole numbers of votes, as log-concave laws.

The bounds of `darrm.loss` need log-concavity, w(x)² ≥ w(x − 1)·w(x + 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

import numpy as np
from flint import arb
from numpy.typing import NDArray

from darrm.numerics import Array
from darrm.util import checks

SMALLEST_SCALE, LARGEST_SCALE = 0.5, 4096.0  # votes, of shaped noise
# exact as floats; with larger ones, or with others, the rounding of log-weights would exceed the stated error
POWERS = tuple(quarters / 4.0 for quarters in range(4, 13))


class IntegerNoise(Protocol):
    """A log-concave law on all integers; equal laws are equal and have equal hashes."""

    @property
    def deviation(self) -> float:
        """About its standard deviation, in votes: the scale of bounds and draws."""
        ...

    def log_weights(self, points: NDArray[np.int64]) -> Array:
        """Compute log w(x) elementwise, Pr[x] = w(x)/Σw, each to a relative error of 2^-50."""
        ...

    def enclosed_log_weights(self, points: Iterable[int]) -> Iterator[arb]:
        """Enclose log w(x) of one point after the other in balls, for the decimals that the parameters show."""
        ...

    def __hash__(self) -> int:
        """Costs are kept by the noise."""
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
        """Its σ."""
        return self.sigma

    def log_weights(self, points: NDArray[np.int64]) -> Array:
        """Compute −x²/(2σ²)."""
        return np.asarray(-((points / self.sigma) ** 2) / 2.0)

    def enclosed_log_weights(self, points: Iterable[int]) -> Iterator[arb]:
        """Enclose −x²/(2σ²)."""
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
        """Compute −γ|x|."""
        return np.asarray(-self.gamma * np.abs(points))

    def enclosed_log_weights(self, points: Iterable[int]) -> Iterator[arb]:
        """Enclose −γ|x|."""
        rate = -ball(self.gamma)
        return (rate * abs(point) for point in points)


@dataclass(frozen=True)
class AsymmetricNoise:
    """Pr[x] ∝ e^{−(x/s)^q} for x ≥ 0 and e^{−(|x|/ℓ)^p} for x < 0: with ℓ > s short on the right and long on the left.

    Of many classes it is the largest of their noises that makes errors, so a short right tail makes fewer.

    Parameters
    ----------
    right, left
        The scales s and ℓ in votes, in [½, 4096].
    right_power, left_power
        q and p, multiples of ¼ in [1, 3]: from 1 on the law is log-concave.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Examples
    --------
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

    def scaled(self, right: float) -> AsymmetricNoise:
        """Return the noise of the same shape with another right scale; scales have six digits.

        >>> AsymmetricNoise(4.0, 8.0, 3.0, 2.0).scaled(5.0)
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
        """Compute −(x/s)^q, or −(|x|/ℓ)^p."""
        size = np.abs(points)
        right, left = (size / self.right) ** self.right_power, (size / self.left) ** self.left_power
        return -np.where(points >= 0, right, left)

    def enclosed_log_weights(self, points: Iterable[int]) -> Iterator[arb]:
        """Enclose −(x/s)^q, or −(|x|/ℓ)^p."""
        right, left = ball(self.right), ball(self.left)
        right_power, left_power = ball(self.right_power), ball(self.left_power)
        return (-((x / right) ** right_power) if x >= 0 else -((-x / left) ** left_power) for x in points)


def ball(parameter: float) -> arb:
    """Enclose the number that the shortest decimal of a float means."""
    top, bottom = Fraction(repr(float(parameter))).as_integer_ratio()
    return arb(top) / bottom
