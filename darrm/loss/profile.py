"""The privacy profile of one query: bounds on δ for every ε, as points and the safe chords between them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darrm.privacy import LARGEST_EXPONENT, PrivacyParams
from darrm.util import checks


@dataclass(frozen=True)
class PrivacyProfile:
    """Upper bounds on δ at increasing ε: the query is (ε_j, δ_j)-private for every j.

    x ↦ δ(log x) is convex in x = e^ε, so the chord between two points bounds it. Beyond the last point the last δ
    holds.

    Parameters
    ----------
    epsilons
        Strictly increasing from 0.
    deltas
        One for each ε, non-increasing, in [0, 1].
    reverse
        Non-increasing, at most ``deltas``: bounds for exchanged data sets; None if ``deltas`` covers both.

    Raises
    ------
    ValueError
        If the points do not satisfy these conditions.

    Examples
    --------
    Randomized response with ε = log 3; δ(0) is the total variation distance 1/2:

    >>> profile = PrivacyProfile((0.0, math.log(3.0)), (0.5, 0.0))
    >>> round(profile.delta_at(math.log(2.0)), 12)
    0.25
    >>> round(math.exp(profile.epsilon_at(0.25)), 12)
    2.0
    """

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    reverse: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilons", tuple(map(float, self.epsilons)))
        object.__setattr__(self, "deltas", tuple(map(float, self.deltas)))
        if len(self.epsilons) != len(self.deltas) or not self.epsilons:
            checks.fail("deltas", len(self.deltas), f"as many as epsilons ({len(self.epsilons)}), at least one")
        grid, bounds = self.arrays()
        if grid[0] != 0.0 or not np.all(np.diff(grid) > 0.0) or not grid[-1] <= LARGEST_EXPONENT:
            checks.fail("epsilons", self.epsilons, f"strictly increasing from 0 to at most {LARGEST_EXPONENT}")
        if not (np.all(bounds >= 0.0) and np.all(bounds <= 1.0) and np.all(np.diff(bounds) <= 0.0)):
            checks.fail("deltas", self.deltas, "non-increasing in [0, 1]", "a larger epsilon needs no larger delta")
        if self.reverse is not None:
            object.__setattr__(self, "reverse", tuple(map(float, self.reverse)))
            reverse = np.array(self.reverse)
            is_valid = reverse.shape == grid.shape and np.all(reverse >= 0.0) and np.all(np.diff(reverse) <= 0.0)
            if not (is_valid and np.all(reverse <= bounds)):
                checks.fail("reverse", self.reverse, "non-increasing, and nowhere above deltas")

    @classmethod
    def from_pair(cls, params: PrivacyParams) -> PrivacyProfile:
        """Return the profile of the worst (ε, δ)-private mechanism."""
        epsilon, delta = params.epsilon, params.delta
        if epsilon == 0.0:
            return cls((0.0,), (delta,))
        return cls((0.0, epsilon), (delta + (1.0 - delta) * math.tanh(epsilon / 2.0), delta))

    @property
    def parts(self) -> tuple[tuple[float, ...], ...]:
        """The stored tuples."""
        return (self.epsilons, self.deltas) if self.reverse is None else (self.epsilons, self.deltas, self.reverse)

    @property
    def sides(self) -> tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]:
        """(δ forward, δ reverse) for both orders of the data sets; one pair if equal."""
        reverse = self.deltas if self.reverse is None else self.reverse
        return ((self.deltas, reverse),) if self.reverse is None else ((self.deltas, reverse), (reverse, self.deltas))

    def arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return ε and δ as vectors."""
        return np.array(self.epsilons), np.array(self.deltas)

    def delta_at(self, epsilon: float) -> float:
        """Bound δ at ε ≥ 0 by a chord."""
        checks.non_negative(epsilon=epsilon)
        return float(self.deltas_at(np.array([epsilon], dtype=np.float64))[0])

    def deltas_at(self, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        """Apply `delta_at` to a vector."""
        grid, bounds = self.arrays()
        return np.asarray(np.interp(np.exp(np.minimum(epsilons, grid[-1])), np.exp(grid), bounds))

    def epsilon_at(self, delta: float) -> float:
        """Find the smallest ε ≥ 0 whose bound is at most ``delta``, or ∞."""
        checks.probability(delta=delta)
        grid, bounds = self.arrays()
        if delta < bounds[-1]:
            return math.inf
        if delta >= bounds[0]:
            return 0.0
        upper = int(np.argmax(bounds <= delta))  # the first point that is low enough; at least 1
        x_left, x_right = math.exp(grid[upper - 1]), math.exp(grid[upper])
        share = (bounds[upper - 1] - delta) / (bounds[upper - 1] - bounds[upper])
        epsilon = math.log(x_left + share * (x_right - x_left)) * (1.0 + 1e-15) + 1e-15  # rounded up
        return float(min(epsilon, grid[upper]))
