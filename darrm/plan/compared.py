"""Mechanisms that are only compared: noisy counts, which cost more than the label alone.

A moved vote changes two counts by t, in opposite directions: sensitivity √2·t for Gaussian noise, and 2γt for Laplace
noise of scale 1/γ. The noisy counts are never published; `darrm.plan.noisy` charges for the label.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from darrm.account.bounds import Bound
from darrm.errors import PlanError
from darrm.loss.gaussian import SENSITIVITY, analytic_sigma, renyi_sigma
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.noisy_max.noisy_law import WinningLaw
from darrm.numerics.integer_noise import DiscreteGaussian, DiscreteLaplace
from darrm.plan.accuracy import Law
from darrm.plan.mechanism import FixedMechanism, Mechanism, Proposal, Search
from darrm.plan.noisy import LEAST_SIGMA, first_rate
from darrm.plan.optimum import Optimal
from darrm.plan.tables import check_private
from darrm.privacy import PrivacyParams
from darrm.problem import Workload
from darrm.util.figures import BLUE, ORANGE, SKY_BLUE

MOST_SIGMA = 3e5  # of discrete noise, in votes; more would need gigabytes
LEAST_GAMMA, LARGEST_GAMMA = 1e-11, 1e3  # per vote
DEARER = "its labels cost less than its noisy counts"


class _Compared(Mechanism):
    @classmethod
    def applies_to(cls, workload: Workload) -> bool:
        """Return whether a person's votes may move on every question, as these mechanisms assume."""
        return workload.voters.sampled is None


class _ComparedProposal(Proposal):
    def __init__(self, law: Law, settings: dict[str, float], cost: PrivacyCost | None, total: Bound | None) -> None:
        super().__init__(law, settings)
        self._cost, self.total = cost, total

    def compute_cost(self) -> PrivacyCost:
        return super().compute_cost() if self._cost is None else self._cost


class PaperGNMax(_Compared, FixedMechanism):
    """Take the σ of [D, Section D.2.1], for all queries together."""

    slug, name, color, only_compared = "gnmax-paper", "GNMax as in the paper", BLUE, DEARER
    about = "σ from the Rényi bound of DaRRM's Appendix D.2.1, for all queries together; counted by its noisy counts."

    def at(self, parameter: float) -> Proposal:  # noqa: ARG002 (there is one proposal)
        """Make the noise."""
        work, overlap = self.workload, self.workload.voters.reached
        check_delta(work)
        try:
            sigma = max(LEAST_SIGMA, renyi_sigma(work.total, work.queries).value * overlap)
        except ValueError as error:
            raise PlanError(str(error)) from error
        curve = RenyiCurve.of(lambda orders: orders * (overlap / sigma) ** 2)
        cost = PrivacyCost("GNMax", renyi=curve, reached=overlap)
        return _ComparedProposal(gaussian_law(sigma), {"sigma": sigma}, cost, None)


class AnalyticGNMax(_Compared, FixedMechanism):
    """Take the least σ that any accounting of the noisy counts allows [BW18, Theorem 8].

    All Q answers together are one Gaussian mechanism of sensitivity √(2Q)·t, whose (ε, δ) is known exactly, whatever
    the number of classes.
    """

    slug, name, color = "gnmax-analytic", "GNMax, analytic σ", BLUE
    only_compared = "it is charged for the noisy counts, which are not released"
    about = (
        "the least σ for which Q answers together, one Gaussian mechanism, are (ε, δ)-private. No accounting of the "
        "noisy counts can allow less noise."
    )

    def at(self, parameter: float) -> Proposal:  # noqa: ARG002 (there is one proposal)
        """Make the noise."""
        work, asked = self.workload, self.search.workload
        check_delta(asked)
        try:
            sensitivity = SENSITIVITY * math.sqrt(work.queries) * asked.voters.reached
            sigma = analytic_sigma(work.total, sensitivity=sensitivity).value
        except ValueError as error:
            raise PlanError(str(error)) from error
        why = "all answers are one Gaussian mechanism [BW18, Theorem 8]"
        total = Bound("analytic", asked.total.epsilon, why)
        return _ComparedProposal(gaussian_law(sigma), {"sigma": sigma}, None, total)


class LNMaxByCounts(_Compared):
    """Turn up the γ of discrete Laplace noise, charged for both counts."""

    slug, name, color, only_compared = "lnmax-counts", "LNMax by noisy counts", ORANGE, DEARER
    about = "the largest γ that the accountant admits; counted by its noisy counts, which cost more than the label."
    limits = (LEAST_GAMMA, LARGEST_GAMMA)

    def __init__(self, search: Search, workload: Workload | None = None) -> None:
        super().__init__(search, workload)
        self.start = first_rate(search.workload)

    def value(self, rate: float) -> float:
        """Return γ as it is."""
        return rate

    def at(self, parameter: float) -> Proposal:
        """Make the noise with γ."""
        overlap = self.search.workload.voters.reached
        rate = parameter * overlap
        curve = RenyiCurve.of(lambda orders: np.minimum(2.0 * rate**2 * orders, 2.0 * rate))
        cost = PrivacyCost("LNMax", guarantee=PrivacyParams(2.0 * rate), renyi=curve, reached=overlap)
        noise = DiscreteLaplace(max(parameter, LEAST_GAMMA))  # wider noise answers next to the same
        return _ComparedProposal(WinningLaw(noise), {"gamma": parameter}, cost, None)


class PaperDaRRM(_Compared):
    """DaRRM as [D] has it: one person may reach all K voters, and queries compose by their (ε, δ)."""

    slug, name, color, classes = "darrm-paper", "DaRRM of the paper", SKY_BLUE, (2, 2)
    is_slow = True
    about = "one person may reach all voters, and a query is optimized for its (ε, δ)."

    @classmethod
    def instances(cls, search: Search) -> Iterable[Mechanism]:  # type: ignore[override]
        """Make the optimum for voters without disjoint shards."""
        check_private(search.workload)
        voters = replace(search.workload.voters, overlap=None)
        return Optimal.instances(replace(search, workload=replace(search.workload, voters=voters)))


def gaussian_law(sigma: float) -> Law:
    """Return the law of the largest count with Gaussian noise; `PlanError` where σ is too large to compute with."""
    if sigma > MOST_SIGMA:
        raise PlanError(f"its noise would have sigma = {sigma:.3g} votes: nothing is left to be computed")
    return WinningLaw(DiscreteGaussian(max(LEAST_SIGMA, sigma)))


def check_delta(workload: Workload) -> None:
    """Raise `PlanError` where δ is 0."""
    if workload.total.exact_delta == 0:
        raise PlanError("Gaussian noise gives no (epsilon, 0)")
