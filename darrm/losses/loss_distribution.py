"""The privacy loss of many randomized responses: its distribution, and the divergence that follows from it.

k queries with ε each: the loss is ε(2l − k) with l ~ Binomial(k, e^ε/(1 + e^ε)); several kinds add up independently.
The hockey-stick divergence at ε is Σ weight · max(0, 1 − e^{ε − loss}). Everything is kept as logarithms, so that any δ
down to the smallest float is meaningful, and every sum comes with a bound on its rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from darrm.probability.bisection import last_allowed

_UNIT = 2.0**-53  # relative error of one rounding
_MOST_ATOMS = 2**21  # 2 million atoms take 30 MB and about a second a bound
_NEGLIGIBLE = 1e-12  # share of δ that may be set aside
_BISECTIONS = 60  # the interval shrinks below the last place of its upper end


class TooManyKindsError(ValueError):
    """The exact loss distribution of so many different kinds of queries would not fit in memory."""


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """Atoms of the total privacy loss with their log weights, and bounds on the absolute error of both."""

    losses: NDArray[np.float64]  # shape (n,), non-decreasing, in nats
    log_weights: NDArray[np.float64]  # shape (n,): log of the probability under the first of the two data sets
    weight_rounding: float
    loss_rounding: float

    @classmethod
    def of_groups(cls, groups: Sequence[tuple[float, int]]) -> LossDistribution:
        """Build the distribution for (ε, k) groups.

        `TooManyKindsError` if Π(k + 1) exceeds two million.
        """
        if math.prod(count + 1 for _, count in groups) > _MOST_ATOMS:
            raise TooManyKindsError(f"the exact composition of {len(groups)} kinds of queries has too many terms")
        losses, log_weights = np.zeros(1), np.zeros(1)
        weight_rounding, largest_loss = 0.0, 0.0
        for epsilon, count in groups:
            ones = np.arange(count + 1, dtype=np.float64)
            log_normalizer = np.logaddexp(0.0, epsilon)
            log_factorials = gammaln(ones + 1.0)
            log_choose = log_factorials[-1] - log_factorials - log_factorials[::-1]
            group_weights = log_choose + ones * epsilon - count * log_normalizer
            losses = np.add.outer(losses, epsilon * (2.0 * ones - count)).ravel()
            log_weights = np.add.outer(log_weights, group_weights).ravel()
            # four rounded terms a weight, each computed to a few units in the last place
            weight_rounding += 16.0 * _UNIT * (3.0 * float(log_factorials[-1]) + 2.0 * count * log_normalizer + 1.0)
            largest_loss += epsilon * count
        order = np.argsort(losses, kind="stable")
        loss_rounding = 4.0 * (len(groups) + 1) * _UNIT * largest_loss
        return cls(losses[order], log_weights[order], weight_rounding, loss_rounding)

    def log_divergence(self, epsilon: float) -> float:
        """Bound log Σ weight · max(0, 1 − e^{ε − loss}) from above."""
        # an atom whose rounded loss is this much below ε may in truth lie above it
        slack = self.loss_rounding + 4.0 * _UNIT * epsilon
        first = int(np.searchsorted(self.losses, epsilon - slack, side="left"))
        if first == self.losses.size:
            return -math.inf
        excess = np.maximum(self.losses[first:] - epsilon + slack, 0.0)
        with np.errstate(divide="ignore"):
            terms = self.log_weights[first:] + np.log(-np.expm1(-excess))
        top = float(np.max(terms))
        if top == -math.inf:
            return -math.inf
        total = top + math.log(float(np.sum(np.exp(terms - top))))
        # a term t is off by (2 + |t|)u, and e^{t − top} by 1 + top − t ≤ e^{top − t} units more, their sum by one unit
        # for each, and |top| ≤ |total| + log n: less than four units for each of the n
        return total + self.weight_rounding + 4.0 * _UNIT * terms.size * (1.0 + abs(total))

    def smallest_epsilon(self, log_delta: float, *, to_beat: float = math.inf) -> float:
        """Find the smallest ε ≥ 0 whose bounded divergence is at most e^{log_delta}; ∞ if it is above ``to_beat``.

        Atoms so light that all of them together stay below 10⁻¹² of it are set aside: of a million only some thousands
        are left.
        """
        kept = self.log_weights > log_delta + math.log(_NEGLIGIBLE / self.losses.size) - self.weight_rounding
        if not kept.any():
            return 0.0
        heavy = replace(self, losses=self.losses[kept], log_weights=self.log_weights[kept])
        room = log_delta + math.log1p(-_NEGLIGIBLE)
        if heavy.log_divergence(0.0) <= room:
            return 0.0
        largest = max(0.0, float(self.losses[-1])) + self.loss_rounding
        if to_beat < largest:
            if heavy.log_divergence(to_beat) > room:
                return math.inf
            largest = to_beat
        return last_allowed(
            lambda epsilon: heavy.log_divergence(epsilon) <= room, inside=largest, outside=0.0, steps=_BISECTIONS
        )
