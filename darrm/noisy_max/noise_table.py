"""Log-probabilities and log-tails of a law on whole numbers, the table behind the laws of labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from darrm.numerics import Array
from darrm.numerics.integer_noise import IntegerNoise


@dataclass(frozen=True, eq=False)
class NoiseTable:
    """Log Pr[X = x] for consecutive whole numbers x from ``first`` on.

    >>> from darrm.numerics.integer_noise import DiscreteGaussian
    >>> table = NoiseTable.of(DiscreteGaussian(2.0), -40, 40)
    >>> np.exp(table.log_above[[40, 41]]).round(4).tolist()  # Pr[X ≥ 0] and Pr[X ≥ 1]
    [0.5997, 0.4003]
    """

    first: int
    log_masses: Array

    @classmethod
    def of(cls, noise: IntegerNoise, first: int, last: int) -> NoiseTable:
        """Tabulate a noise from ``first`` to ``last``, normalized to 1 there."""
        logs = noise.log_weights(np.arange(first, last + 1))
        return cls(first, np.asarray(logs - np.logaddexp.reduce(logs)))

    @property
    def last(self) -> int:
        """The last number of the table."""
        return self.first + self.log_masses.size - 1

    @cached_property
    def log_above(self) -> Array:
        """Log Pr[X ≥ x]."""
        return np.logaddexp.accumulate(self.log_masses[::-1])[::-1]

    @cached_property
    def log_below(self) -> Array:
        """Log Pr[X < x]."""
        return np.append(-np.inf, np.logaddexp.accumulate(self.log_masses)[:-1])
