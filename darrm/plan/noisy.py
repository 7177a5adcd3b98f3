"""Noisy maxima, charged for the label that they release, and for comparison for their noisy counts.

A person who may change t voters moves t votes, whether the voters are private or not. GNMax, LNMax and asymmetric noise
add noise to every count; `darrm.plan.tables` has the mechanisms that choose a class by its votes.

The mechanisms that are only compared charge for the noisy counts, which are never published. A moved vote changes two
counts by t, in opposite directions: sensitivity √2·t for Gaussian noise, and 2γt for Laplace noise of scale 1/γ.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import ROUND_CEILING
from functools import cached_property, partial
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from darrm.account.bounds import Bound
from darrm.aggregator import Released
from darrm.errors import PlanError
from darrm.loss.amplification import rate_of
from darrm.loss.gaussian import SENSITIVITY, analytic_sigma, renyi_sigma
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.noisy_max import mechanisms
from darrm.noisy_max.mechanisms import AsymmetricMax
from darrm.noisy_max.noisy_law import DEAR, WinningLaw, answering_probabilities, best_shape, chosen, lags_of
from darrm.noisy_max.noisy_maximum import Mechanism as Drawn
from darrm.noisy_max.noisy_maximum import NoisyMaximum, least_threshold
from darrm.numerics import Array
from darrm.numerics.integer_noise import (
    LARGEST_SCALE,
    SMALLEST_SCALE,
    WIDEST,
    AsymmetricNoise,
    DiscreteGaussian,
    DiscreteLaplace,
)
from darrm.numerics.special import softmax
from darrm.plan.accuracy import MOST_PLANNED, Law
from darrm.plan.budget import account_of, counted
from darrm.plan.calibration import largest_rate
from darrm.plan.mechanism import FixedMechanism, Mechanism, Proposal, Search, as_plan_error, rounded
from darrm.privacy import PrivacyParams
from darrm.problem import Workload, is_open
from darrm.util.figures import BLUE, ORANGE, VERMILION

ROUGH = 3e-3  # of ε: the cost of wide noise takes a quarter of a second
HOPE = 1.1  # times the rate of an estimate: the privacy profile of more than two classes may admit more
ROUNDED_DOWN = 1.0 - 1e-4  # of the widest noise: its scales are rounded
# the Rényi divergence of a label, λ times the squared rate: about the certified one
GAUSSIAN_SHARE, GAUSSIAN_BEND, GAUSSIAN_POWER, LAPLACE_SHARE = 0.646, 0.0226, 2.1, 0.671
# of open answers, with a threshold by the right tail: left scales over the right one, and the steepest power
OPEN_SET_RATIOS, KNOWN_SCALE, STEEPEST, LEAST_DELTA = (1.0, 1.5, 2.0, 3.0), 64.0, 3.0, 1e-30
LEAST_SIGMA, LARGEST_GAMMA, LARGEST_EPSILON = 0.5, 50.0, 700.0  # beyond, the answer is next to certain
MOST_SIGMA, LEAST_COUNT_GAMMA, LARGEST_COUNT_GAMMA = 3e5, 1e-11, 1e3  # of noisy counts: more noise takes gigabytes
LABEL = "charged for its label, for any number of classes, as `darrm.pate` charges it."
DEARER = "its labels cost less than its noisy counts"


def exponential_law(epsilon: float, overlap: int) -> Law:
    """Return the law of the exponential mechanism [MT07]: a class has the weight e^{ε·count/(2t)}."""
    return lambda counts: np.asarray(softmax(counts * (epsilon / (2.0 * overlap)), axis=1))


def permute_and_flip_law(epsilon: float, overlap: int) -> Law:
    """Integrate Pr[c] = e_c ∫_0^1 Π_{j ≠ c}(1 − e_j·s) ds: with C/2 nodes exactly, with some √C to twelve digits.

    Permute-and-flip [MS20] answers a class at the place s of a random order if its coin shows heads and the coins of
    all earlier classes showed tails. For two classes Pr[majority] is 1 − ½e^{−ε(lead)/(2t)}.
    """

    def law(counts: NDArray[np.int64]) -> Array:
        size = min(counts.shape[1] // 2 + 1, math.isqrt(16 * counts.shape[1]) + 20)
        nodes, weights = np.polynomial.legendre.leggauss(size)
        lags, place = lags_of(counts)
        heads = np.exp(-lags * (epsilon / (2.0 * overlap)))[:, None]
        tails = 1.0 - heads * (nodes + 1.0) / 2.0
        return chosen(place, np.log(tails), heads / tails, weights / 2.0)

    return law


class NoisyProposal(Proposal):
    """A noisy maximum or a selection mechanism, for listed classes or open answers."""

    def __init__(self, workload: Workload, drawn: Drawn, settings: Mapping[str, float], law: Law | None = None) -> None:
        threshold = None
        if law is None:  # a selection mechanism comes with its law
            noise = cast("mechanisms.NoisyMax", drawn).law
            law = WinningLaw(noise)
            if is_open(workload.classes):
                with as_plan_error():
                    threshold = least_threshold(noise, delta_of_threshold(workload), moved=drawn.reached)
                settings = {**settings, "threshold": threshold}
                law = partial(answering_probabilities, noise, threshold=threshold)
        super().__init__(law, settings)
        self._released = NoisyMaximum(drawn, workload.voters, workload.classes, threshold)

    @cached_property
    def cost(self) -> PrivacyCost:
        """The cost of the label, amplified where voters resample their examples."""
        released = self._released
        is_label_alone = released.voters.sampled is None and released.threshold is None
        return (released.mechanism if is_label_alone else released).privacy_cost()

    def release(self) -> Released:
        """Return the noisy maximum."""
        return self._released


class NoisyMechanism(Mechanism):
    """Noise whose cost takes long: its search needs an estimate."""

    is_slow = is_open_set = True
    is_scale: ClassVar[bool] = True  # the parameter is a scale of the noise
    unused, rough, narrow = 1e-4, ROUGH, 2e-3

    def __init__(self, search: Search, workload: Workload) -> None:
        super().__init__(search, workload)
        self.reached = search.workload.voters.reached
        self.hope = 1.0 if search.workload.has_noise_function else HOPE
        self.start = first_rate(search.workload)
        self.lost = 0.0
        if is_open(workload.classes):
            if workload.voters.sampled is not None:
                raise PlanError("open questions are for voters that are the same for every question")
            self.lost = delta_of_threshold(search.workload)

    def value(self, rate: float) -> float:
        """Return a scale that falls with the rate, 1/rate, rounded up to six digits and within limits; or the rate."""
        least, most = self.limits
        if not self.is_scale:
            return super().value(rate)
        return min(max(float(rounded(1.0 / max(rate, 1e-300), ROUND_CEILING)), 1.0 / most), 1.0 / max(least, 1e-300))

    def estimate(self, parameter: float) -> PrivacyCost | None:
        """Estimate the cost of the label by its usual share of the cost of the counts."""
        return None if self.search.workload.voters.sampled is not None else self.share(parameter)

    def share(self, parameter: float) -> PrivacyCost:
        """Estimate the cost for voters that keep their examples."""
        raise NotImplementedError


class GNMax(NoisyMechanism):
    """Turn down the σ of Gaussian noise."""

    slug, name, color = "gnmax", "GNMax", BLUE
    about = "the least σ that the accountant admits; " + LABEL
    limits = (0.0, 1.0 / LEAST_SIGMA)

    def at(self, parameter: float) -> Proposal:
        """Make the noise with σ."""
        drawn = mechanisms.GNMax(parameter, reached=self.reached)
        return NoisyProposal(self.search.workload, drawn, {"sigma": parameter})

    def share(self, parameter: float) -> PrivacyCost:
        """Take a part of the Rényi divergence of Gaussian counts."""
        return PrivacyCost("GNMax", renyi=_gaussian_curve(self.reached / parameter), vanishing=self.lost)


class LNMax(NoisyMechanism):
    """Turn up the γ of Laplace noise."""

    slug, name, color = "lnmax", "LNMax", ORANGE
    about = "the largest γ that it admits; " + LABEL
    limits, is_scale = (1e-9, LARGEST_GAMMA), False

    def at(self, parameter: float) -> Proposal:
        """Make the noise with γ."""
        drawn = mechanisms.LNMax(parameter, reached=self.reached)
        return NoisyProposal(self.search.workload, drawn, {"gamma": parameter})

    def share(self, parameter: float) -> PrivacyCost:
        """Take a part of the Rényi divergence of Laplace counts."""
        rate = parameter * self.reached
        curve = RenyiCurve.of(lambda orders: np.minimum(LAPLACE_SHARE * orders * rate**2, 2.0 * rate))
        return PrivacyCost("LNMax", PrivacyParams(2.0 * rate), curve)


class AsymmetricNoiseMax(NoisyMechanism):
    """Turn down the scale of the noise that is most accurate at the cost of the Gaussian within the budget.

    For open answers turn down noise with a short right tail: the answer of a single voter is below a low threshold.
    """

    slug, name, color = "asymmetric", "asymmetric noise", VERMILION
    about = "the best shape at the cost of GNMax; " + LABEL
    classes = (3, MOST_PLANNED)

    def __init__(self, search: Search, workload: Workload, noise: AsymmetricNoise) -> None:
        work = search.workload
        super().__init__(search, workload)
        self._noise, self._curve = noise, AsymmetricMax(noise, self.reached).guarantee
        widest = WIDEST / noise.deviation
        if is_open(work.classes):
            self.start = self.start / 2.0
        else:
            widest = min(LARGEST_SCALE / max(noise.left, noise.right), widest)
            self.start = 1.0 / noise.right
            self.unused = 1e-3 if noise.deviation > DEAR else self.unused
        least = 1.0 / (ROUNDED_DOWN * (noise.right * widest))
        self.limits = (least, min(1.0, noise.left / noise.right) / SMALLEST_SCALE)
        self.hope = math.inf

    @classmethod
    def instances(cls, search: Search, release: Workload) -> Sequence[Mechanism]:
        """Choose the shapes: one for listed classes, and one for each ratio of scales for open answers."""
        if search.workload.voters.sampled is not None:
            raise PlanError("its shape is not known for voters that resample their examples, which need less noise")
        if not is_open(search.workload.classes):
            return [cls(search, release, cls._best_noise(search, release))]
        noises = [AsymmetricNoise(KNOWN_SCALE, KNOWN_SCALE * ratio, STEEPEST, STEEPEST) for ratio in OPEN_SET_RATIOS]
        return [cls(search, release, noise) for noise in noises]

    @staticmethod
    def _best_noise(search: Search, release: Workload) -> AsymmetricNoise:
        work, gaussian = search.workload, GNMax(search, release)
        if release.total.exact_delta == 0:
            raise PlanError("its Rényi curve gives no (epsilon, 0)")
        rate = largest_rate(
            release, lambda rate: gaussian.share(gaussian.value(rate)), gaussian.start, gaussian.limits[1]
        )
        curve = _gaussian_curve(rate)
        cost = PrivacyCost("GNMax", renyi=_gaussian_curve(rate * gaussian.reached))
        of_all = account_of(release, cost).charges[0].renyi
        if of_all is None:
            raise PlanError("nothing is known of its divergence")
        order = of_all.repeated(release.queries).best(release.total.delta).order
        budget = float(curve.values[curve.orders == order][0])
        shape = best_shape(work.voters.K, work.classes, search.measure.prior, order=order, budget=budget)
        if shape.gain <= 2.0 * shape.gain_error:
            raise PlanError("no shape that was tried is more accurate than a Gaussian")
        return shape.noise

    def at(self, parameter: float) -> Proposal:
        """Make the noise of this shape with a right scale."""
        noise = self._noise
        left = float(rounded(parameter * noise.left / noise.right, ROUND_CEILING))
        scaled = AsymmetricNoise(parameter, left, noise.right_power, noise.left_power)
        return NoisyProposal(self.search.workload, AsymmetricMax(scaled, self.reached), asdict(scaled))

    def share(self, parameter: float) -> PrivacyCost:
        """Scale the Rényi divergence of the noise, which falls with the squared scale."""
        curve = RenyiCurve(self._curve.orders, self._curve.values * (self._noise.right / parameter) ** 2)
        return PrivacyCost("AsymmetricMax", renyi=curve, vanishing=self.lost)


class ByCounts(Mechanism):
    """A mechanism that is only compared: a person's votes may move on every question."""

    only_compared = DEARER

    @classmethod
    def applies_to(cls, workload: Workload) -> bool:
        """Return whether voters keep their examples."""
        return workload.voters.sampled is None


class PaperGNMax(ByCounts, FixedMechanism):
    """Take the σ of [D, Section D.2.1], for all queries together."""

    slug, name, color = "gnmax-paper", "GNMax as in the paper", BLUE
    about = "σ from the Rényi bound of DaRRM's Appendix D.2.1, for all queries together; counted by its noisy counts."

    def propose(self) -> Proposal:
        """Make the noise."""
        work, overlap = self.workload, self.workload.voters.reached
        _check_delta(work)
        with as_plan_error():
            sigma = max(LEAST_SIGMA, renyi_sigma(work.total, work.queries).value * overlap)
        curve = RenyiCurve.of(lambda orders: orders * (overlap / sigma) ** 2)
        return Proposal(_gaussian_law(sigma), {"sigma": sigma}, cost=PrivacyCost("GNMax", renyi=curve, reached=overlap))


class AnalyticGNMax(ByCounts, FixedMechanism):
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

    def propose(self) -> Proposal:
        """Make the noise."""
        work, asked = self.workload, self.search.workload
        _check_delta(asked)
        with as_plan_error():
            sensitivity = SENSITIVITY * math.sqrt(work.queries) * asked.voters.reached
            sigma = analytic_sigma(work.total, sensitivity=sensitivity).value
        why = "all answers are one Gaussian mechanism [BW18, Theorem 8]"
        total = Bound("analytic", asked.total.epsilon, why)
        return Proposal(_gaussian_law(sigma), {"sigma": sigma}, total=total)


class LNMaxByCounts(ByCounts):
    """Turn up the γ of discrete Laplace noise, charged for both counts."""

    slug, name, color = "lnmax-counts", "LNMax by noisy counts", ORANGE
    about = "the largest γ that the accountant admits; counted by its noisy counts, which cost more than the label."
    limits, is_exact = (LEAST_COUNT_GAMMA, LARGEST_COUNT_GAMMA), True

    def __init__(self, search: Search, workload: Workload) -> None:
        super().__init__(search, workload)
        self.start = first_rate(search.workload)

    def at(self, parameter: float) -> Proposal:
        """Make the noise with γ."""
        overlap = self.search.workload.voters.reached
        rate = parameter * overlap
        curve = RenyiCurve.of(lambda orders: np.minimum(2.0 * rate**2 * orders, 2.0 * rate))
        cost = PrivacyCost("LNMax", guarantee=PrivacyParams(2.0 * rate), renyi=curve, reached=overlap)
        noise = DiscreteLaplace(max(parameter, LEAST_COUNT_GAMMA))  # wider noise answers next to the same
        return Proposal(WinningLaw(noise), {"gamma": parameter}, cost=cost)


def _gaussian_law(sigma: float) -> Law:
    """Return the law of the largest count with Gaussian noise; `PlanError` where σ is too large to compute with."""
    if sigma > MOST_SIGMA:
        raise PlanError(f"its noise would have sigma = {sigma:.3g} votes: nothing is left to be computed")
    return WinningLaw(DiscreteGaussian(max(LEAST_SIGMA, sigma)))


def _check_delta(workload: Workload) -> None:
    if workload.total.exact_delta == 0:
        raise PlanError("Gaussian noise gives no (epsilon, 0)")


def first_rate(workload: Workload) -> float:
    """Return the rate of many queries up to a factor: the start of a search."""
    release = counted(workload)
    once = release.total.epsilon / (2.0 * math.sqrt(release.queries) * release.voters.reached)
    sampled = release.voters.sampled
    return once if sampled is None else min(once / rate_of(sampled), 1.0)


def delta_of_threshold(workload: Workload) -> float:
    """Return the δ of a query for the answer of a single voter: half of its share; `PlanError` if there is none."""
    share = float(workload.total.exact_delta / (2 * workload.queries)) * (1.0 - 2.0**-50)
    if not share > LEAST_DELTA:
        raise PlanError("a threshold hides the answers of single voters but for a delta, and the total has none")
    return share


def _gaussian_curve(rate: float) -> RenyiCurve:
    def values(orders: Array) -> Array:
        return orders * rate**2 * np.minimum(1.0, GAUSSIAN_SHARE + GAUSSIAN_BEND * (orders * rate) ** GAUSSIAN_POWER)

    return RenyiCurve.of(values)
