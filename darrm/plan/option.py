"""One way to release a workload: what it is counted as, and how often it tells the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from darrm.gamma.noise_function import NoiseFunction
from darrm.gamma.priors import Prior


@dataclass(frozen=True, eq=False)
class ReleaseOption:
    """A release that stays within the budget of a workload.

    Attributes
    ----------
    name
        The mechanism, as tables and pictures show it.
    K
        Number of voters.
    truth
        Pr[the answer is the true majority | l ones] for l = floor(K/2) + 1 … K, shape (K − floor(K/2),): the mean of
        both sides where a mechanism breaks ties for one answer.
    epsilon
        What all queries cost at the budget's δ.
    bound
        Who says so: the accountant's bound, or the theorem.
    settings
        The mechanism's parameters by name.
    """

    name: str
    K: int
    truth: NDArray[np.float64]
    epsilon: float
    bound: str
    settings: Mapping[str, float] = field(default_factory=dict)

    def accuracy(self, prior: Prior) -> float:
        """Compute 1 − the expected error under a prior: that of [D, Definition 2.4] with γ = 2·truth − 1.

        Where an answer is worse than a coin it counts as a coin, as if the majority were not asked.
        """
        gamma = np.clip(2.0 * self.truth - 1.0, 0.0, 1.0)
        return 1.0 - NoiseFunction(self.K, gamma).expected_error(prior)
