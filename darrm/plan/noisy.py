"""Noisy maxima and selection mechanisms, charged for the label that they release, for any number of classes.

A person who may change t voters moves t votes, whether the voters are private or not. GNMax, LNMax and asymmetric noise
add noise to every count; the exponential mechanism and permute-and-flip choose a class by its votes. For two classes
those two are noise functions: `darrm.plan.tables`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from decimal import ROUND_CEILING
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from darrm.aggregator import Released
from darrm.errors import PlanError
from darrm.loss.amplification import rate_of
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.noisy_max import mechanisms
from darrm.noisy_max.best_shape import DEAR, best_shape
from darrm.noisy_max.mechanisms import AsymmetricMax
from darrm.noisy_max.noisy_law import WinningLaw, answering_probabilities, chosen, lags_of
from darrm.noisy_max.noisy_maximum import Mechanism as Drawn
from darrm.noisy_max.noisy_maximum import NoisyMaximum, least_threshold
from darrm.numerics import Array
from darrm.numerics.exact_inversion import WIDEST
from darrm.numerics.integer_noise import LARGEST_SCALE, SMALLEST_SCALE, AsymmetricNoise, IntegerNoise
from darrm.numerics.special import softmax
from darrm.plan.accuracy import MOST_PLANNED, Law
from darrm.plan.budget import account_of, counted
from darrm.plan.calibration import largest_rate
from darrm.plan.mechanism import Mechanism, Proposal, Search, falling, rounded
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
LABEL = "charged for its label, for any number of classes, as `darrm.pate` charges it."


def exponential_law(epsilon: float, overlap: int) -> Law:
    """Return the law of the exponential mechanism [MT07]: a class has the weight e^{ε·count/(2t)}."""
    return lambda counts: np.asarray(softmax(counts * (epsilon / (2.0 * overlap)), axis=1))


def permute_and_flip_law(epsilon: float, overlap: int) -> Law:
    """Integrate Pr[c] = e_c ∫_0^1 Π_{j ≠ c}(1 − e_j·s) ds: with C/2 nodes exactly, with some √C to twelve digits.

    Permute-and-flip [MS20] answers a class at the place s of a random order if its coin shows heads and the coins of
    all earlier classes showed tails. For two classes Pr[majority] is 1 − ½e^{−ε(lead)/(2t)}.
    """

    def law(counts: NDArray[np.int64]) -> Array:
        nodes, weights = np.polynomial.legendre.leggauss(
            min(counts.shape[1] // 2 + 1, math.isqrt(16 * counts.shape[1]) + 20)
        )
        lags, place = lags_of(counts)
        heads = np.exp(-lags * (epsilon / (2.0 * overlap)))[:, None]
        tails = 1.0 - heads * (nodes + 1.0) / 2.0
        return chosen(place, np.log(tails), heads / tails, weights / 2.0)

    return law


class NoisyProposal(Proposal):
    """A noisy maximum or a selection mechanism, for listed classes or open answers."""

    def __init__(self, workload: Workload, drawn: Drawn, settings: Mapping[str, float], law: Law | None = None) -> None:
        threshold = None
        if is_open(workload.classes):
            threshold, law = self._open_set(workload, drawn)
            settings = {**settings, "threshold": threshold}
        super().__init__(WinningLaw(_noise_of(drawn)) if law is None else law, settings)
        self._drawn, self._voters = drawn, workload.voters
        self._released = NoisyMaximum(drawn, workload.voters, workload.classes, threshold)

    @staticmethod
    def _open_set(workload: Workload, drawn: Drawn) -> tuple[int, Law]:
        noise = _noise_of(drawn)
        try:
            threshold = least_threshold(noise, delta_of_threshold(workload), moved=drawn.reached)
        except ValueError as error:
            raise PlanError(str(error)) from error
        return threshold, lambda counts: answering_probabilities(noise, counts, threshold)

    def compute_cost(self) -> PrivacyCost:
        """Compute the cost of the label, amplified where voters resample their examples."""
        if self._voters.sampled is None and self._released.threshold is None:
            return self._drawn.privacy_cost()
        return self._released.privacy_cost()

    def release(self) -> Released:
        """Return the noisy maximum."""
        return self._released


class NoisyMechanism(Mechanism):
    """A mechanism of this module: its search needs an estimate, as the cost takes long."""

    is_slow = True
    unused, rough, narrow = 1e-4, ROUGH, 2e-3

    def __init__(self, search: Search, workload: Workload | None = None) -> None:
        super().__init__(search, workload)
        has_two_classes = search.workload.has_noise_function
        self.hope = 1.0 if has_two_classes else HOPE
        self.start = first_rate(search.workload)
        self.has_estimate = search.workload.voters.sampled is None


class GNMax(NoisyMechanism):
    """Turn down the σ of Gaussian noise."""

    slug, name, color = "gnmax", "GNMax", BLUE
    about = "the least σ that the accountant admits; " + LABEL
    is_open_set = True
    limits = (0.0, 1.0 / LEAST_SIGMA)

    def __init__(self, search: Search, workload: Workload | None = None) -> None:
        super().__init__(search, workload)
        self._lost = delta_of_threshold(search.workload) if is_open(search.workload.classes) else 0.0

    def at(self, parameter: float) -> Proposal:
        """Make the noise with σ."""
        work = self.search.workload
        return NoisyProposal(work, mechanisms.GNMax(parameter, reached=work.voters.reached), {"sigma": parameter})

    def value(self, rate: float) -> float:
        """Return σ."""
        return falling(rate, self.limits)

    def estimate(self, parameter: float) -> PrivacyCost:
        """Estimate the cost of the label by its usual share of the cost of the counts."""
        curve = _gaussian_curve(self.search.workload.voters.reached / parameter)
        return PrivacyCost("GNMax", renyi=curve, vanishing=self._lost)


class LNMax(NoisyMechanism):
    """Turn up the γ of Laplace noise."""

    slug, name, color = "lnmax", "LNMax", ORANGE
    about = "the largest γ that it admits; " + LABEL
    is_open_set = True
    limits = (1e-9, LARGEST_GAMMA)

    def at(self, parameter: float) -> Proposal:
        """Make the noise with γ."""
        work = self.search.workload
        return NoisyProposal(work, mechanisms.LNMax(parameter, reached=work.voters.reached), {"gamma": parameter})

    def estimate(self, parameter: float) -> PrivacyCost:
        """Estimate the cost of the label by its usual share of the cost of the counts."""
        rate = parameter * self.search.workload.voters.reached
        curve = RenyiCurve.of(lambda orders: np.minimum(LAPLACE_SHARE * orders * rate**2, 2.0 * rate))
        return PrivacyCost("LNMax", PrivacyParams(2.0 * rate), curve)


class AsymmetricNoiseMax(NoisyMechanism):
    """Turn down the scale of the noise that is most accurate at the cost of the Gaussian within the budget.

    For open answers turn down noise with a short right tail: the answer of a single voter is below a low threshold.
    """

    slug, name, color = "asymmetric", "asymmetric noise", VERMILION
    about = "the best shape at the cost of GNMax; " + LABEL
    classes = (3, MOST_PLANNED)
    is_open_set = True

    def __init__(self, search: Search, noise: AsymmetricNoise, curve: RenyiCurve, *, is_open_set: bool) -> None:
        super().__init__(search, search.workload if is_open_set else None)
        self._noise, self._curve = noise, curve
        self._lost = delta_of_threshold(search.workload) if is_open_set else 0.0
        widest = noise.right * (WIDEST / noise.deviation)
        if not is_open_set:
            widest = noise.right * min(LARGEST_SCALE / max(noise.left, noise.right), WIDEST / noise.deviation)
        self.limits = (1.0 / (ROUNDED_DOWN * widest), min(1.0, noise.left / noise.right) / SMALLEST_SCALE)
        self.start = first_rate(search.workload) / 2.0 if is_open_set else 1.0 / noise.right
        self.hope = math.inf
        if not is_open_set and noise.deviation > DEAR:
            self.unused = 1e-3

    @classmethod
    def instances(cls, search: Search) -> Iterable[Self]:
        """Choose the shapes: one for listed classes, and one for each ratio of scales for open answers."""
        work, t = search.workload, search.workload.voters.reached
        if work.voters.sampled is not None:
            raise PlanError("its shape is not known for voters that resample their examples, which need less noise")
        if is_open(work.classes):
            noises = [AsymmetricNoise(KNOWN_SCALE, KNOWN_SCALE * r, STEEPEST, STEEPEST) for r in OPEN_SET_RATIOS]
            return [cls(search, noise, AsymmetricMax(noise, t).guarantee, is_open_set=True) for noise in noises]
        noise = cls._best_noise(search)
        return [cls(search, noise, AsymmetricMax(noise, t).guarantee, is_open_set=False)]

    @staticmethod
    def _best_noise(search: Search) -> AsymmetricNoise:
        work, gaussian = search.workload, GNMax(search)
        release = gaussian.workload
        if release.total.exact_delta == 0:
            raise PlanError("its Rényi curve gives no (epsilon, 0)")
        rate = largest_rate(
            release,
            lambda rate: gaussian.estimate(gaussian.value(rate)),
            gaussian.start,
            gaussian.limits[1],
        )
        curve = _gaussian_curve(rate)
        cost = PrivacyCost("GNMax", renyi=_gaussian_curve(rate * work.voters.reached))
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
        noise, work = self._noise, self.search.workload
        left = float(rounded(parameter * noise.left / noise.right, ROUND_CEILING))
        scaled = AsymmetricNoise(parameter, left, noise.right_power, noise.left_power)
        return NoisyProposal(work, AsymmetricMax(scaled, work.voters.reached), asdict(scaled))

    def value(self, rate: float) -> float:
        """Return the right scale."""
        return falling(rate, self.limits)

    def estimate(self, parameter: float) -> PrivacyCost:
        """Estimate the cost: the Rényi divergence falls with the squared scale."""
        curve = RenyiCurve(self._curve.orders, self._curve.values * (self._noise.right / parameter) ** 2)
        return PrivacyCost("AsymmetricMax", renyi=curve, vanishing=self._lost)


class Selection(Mechanism):
    """Turn up the ε of a mechanism that chooses a class by its votes."""

    drawn: ClassVar[type[Drawn]]
    limits = (1e-12, LARGEST_EPSILON)

    def __init__(self, search: Search, workload: Workload | None = None) -> None:
        super().__init__(search, workload)
        self.start = first_rate(search.workload)

    def law(self, epsilon: float, overlap: int) -> Law:
        """Return the law of the answers."""
        raise NotImplementedError

    def at(self, parameter: float) -> Proposal:
        """Make the mechanism with ε."""
        work, t = self.search.workload, self.search.workload.voters.reached
        return NoisyProposal(work, self.drawn(parameter, t), {"epsilon": parameter}, self.law(parameter, t))  # type: ignore[arg-type]

    def value(self, rate: float) -> float:
        """Return ε."""
        return min(max(super().value(rate), self.limits[0]), self.limits[1])


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


def _noise_of(drawn: Drawn) -> IntegerNoise:
    noise: IntegerNoise = getattr(drawn, "law", None) or getattr(drawn, "noise")  # noqa: B009 (both kinds)
    return noise


def _gaussian_curve(rate: float) -> RenyiCurve:
    def values(orders: Array) -> Array:
        return orders * rate**2 * np.minimum(1.0, GAUSSIAN_SHARE + GAUSSIAN_BEND * (orders * rate) ** GAUSSIAN_POWER)

    return RenyiCurve.of(values)
