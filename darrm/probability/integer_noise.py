"""Noise on whole numbers of votes, as log-concave laws: what is drawn, and what a label under it costs.

Log-concavity, w(x)² ≥ w(x − 1)·w(x + 1), is what the bounds of `darrm.losses` rest on.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from flint import arb
from numpy.typing import NDArray

from darrm import checks
from darrm.probability import Array


class IntegerNoise(Protocol):
    """A log-concave law on all integers; equal laws are equal and have equal hashes."""

    @property
    def deviation(self) -> float:
        """About its standard deviation, in votes: the scale on which bounds and draws are computed."""
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


def ball(parameter: float) -> arb:
    """Enclose the number that the shortest decimal of a float means."""
    top, bottom = Fraction(repr(float(parameter))).as_integer_ratio()
    return arb(top) / bottom
