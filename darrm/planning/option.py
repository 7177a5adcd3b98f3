"""One way to release a workload, with what the accountant reports for it and how often it tells the truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from darrm.accounting.accountant import PrivacyAccountant
from darrm.gamma.noise_function import NoiseFunction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from darrm.accounting.accountant import Spent
    from darrm.accounting.charges import Charge
    from darrm.gamma.priors import Prior
    from darrm.planning.workload import Workload


@dataclass(frozen=True, eq=False)
class ReleaseOption:
    """A release that stays within the budget of a workload.

    Attributes
    ----------
    name
        The mechanism, as tables and pictures show it.
    workload
        What it is for.
    truth
        Pr[the answer is the true majority | l ones] for l = floor(K/2) + 1 … K, shape (K − floor(K/2),): the mean of
        both sides where a mechanism treats the two answers differently.
    charge
        What one query costs.
    settings
        The mechanism's parameters by name.
    """

    name: str
    workload: Workload
    truth: NDArray[np.float64]
    charge: Charge
    settings: Mapping[str, float] = field(default_factory=dict)

    def spent(self) -> Spent:
        """Give what the accountant reports for all queries at the budget's δ."""
        total = self.workload.total
        return PrivacyAccountant(charges=[self.charge.repeated(self.workload.queries)]).spent(total.delta)

    def accuracy(self, prior: Prior) -> float:
        """Compute 1 − the expected error under a prior: the error of [D, Definition 2.4] with γ = 2·truth − 1.

        Answers that are worse than a coin count as a coin.
        """
        return 1.0 - NoiseFunction(self.workload.K, np.clip(2.0 * self.truth - 1.0, 0.0, 1.0)).expected_error(prior)
