"""Noisy maxima: charged for their label, charged for their noisy counts (only compared), or with propose-test-release.

A person who may change t voters moves t votes, whether the voters are private or not. The mechanisms that are only
compared charge for the noisy counts, which are never published: t moved votes change two counts by t, in opposite
directions, a sensitivity of √2·t for Gaussian noise and 2γt for Laplace noise of scale 1/γ.

Propose-test-release takes the least noise with which votes like public ones pass a private test of the whole run
(`darrm.pate.tested`). The guarantee holds for any private votes; if they differ from the public ones, the test probably
fails. The chance of passing is a mean over runs drawn from the public votes with a public seed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from decimal import ROUND_CEILING
from functools import cached_property, partial
from operator import itemgetter
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from darrm.account.bounds import Bound
from darrm.aggregator import Released
from darrm.errors import PlanError
from darrm.loss.amplification import get_rate
from darrm.loss.gaussian import SENSITIVITY, analytic_sigma, renyi_sigma
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.noisy_max import mechanisms, noisy_law
from darrm.noisy_max.cost_given_votes import WIDEST as MAX_TESTED_DEVIATION
from darrm.noisy_max.mechanisms import AsymmetricMax
from darrm.noisy_max.noisy_law import WinningLaw
from darrm.noisy_max.noisy_maximum import Mechanism as MaximumMechanism
from darrm.noisy_max.noisy_maximum import NoisyMaximum, find_threshold
from darrm.numerics import Array
from darrm.numerics.integer_noise import (
    LARGEST_SCALE,
    SMALLEST_SCALE,
    WIDEST,
    AsymmetricNoise,
    DiscreteGaussian,
    DiscreteLaplace,
)
from darrm.pate.confident import NoisyCheck
from darrm.pate.tested import LARGEST_ORDER, TestedRun
from darrm.plan.accuracy import MOST_PLANNED, SEED, Law, list_histograms
from darrm.plan.calibration import calibrate, largest_rate
from darrm.plan.mechanism import (
    FixedMechanism,
    Mechanism,
    Proposal,
    Search,
    as_plan_error,
    make_accountant,
    reduce_workload,
    rounded,
)
from darrm.privacy import PrivacyParams
from darrm.problem import Workload, is_open
from darrm.util.figures import BLUE, ORANGE, SKY_BLUE, VERMILION

# estimates of the Rényi divergence of a label, in units of λ times the squared rate
GAUSSIAN_SHARE, GAUSSIAN_BEND, GAUSSIAN_POWER, LAPLACE_SHARE = 0.646, 0.0226, 2.1, 0.671
# for open-set answers, whose threshold depends on the right tail: left scales over the right one, power of both tails
OPEN_SET_RATIOS, BASE_SCALE, MAX_POWER, MIN_DELTA = (1.0, 1.5, 2.0, 3.0), 64.0, 3.0, 1e-30
MIN_SIGMA, LARGEST_EPSILON = 0.5, 700.0  # beyond, the answer is nearly certain
MIN_COUNT_GAMMA = 1e-11  # of noisy counts: more noise takes gigabytes
LABEL_ACCOUNTING = "charged for its label, for any number of classes, as `darrm.pate` charges it."
PASS_CHANCE = 0.99  # of a tested run


class NoisyProposal(Proposal):
    def __init__(
        self, workload: Workload, maximum: MaximumMechanism, settings: Mapping[str, float], law: Law | None = None
    ) -> None:
        threshold = None
        if law is None:
            noise = cast("mechanisms.NoisyMax", maximum).law
            law = WinningLaw(noise)
            if is_open(workload.classes):
                with as_plan_error():
                    threshold = find_threshold(noise, delta_of_threshold(workload), moved=maximum.reached)
                settings = {**settings, "threshold": threshold}
                law = partial(noisy_law.answering_probabilities, noise, threshold=threshold)
        super().__init__(law, settings)
        self._maximum = NoisyMaximum(maximum, workload.voters, workload.classes, threshold)

    @cached_property
    def cost(self) -> PrivacyCost:
        maximum = self._maximum
        is_label_alone = maximum.voters.sampled is None and maximum.threshold is None
        return (maximum.mechanism if is_label_alone else maximum).privacy_cost()

    def release(self) -> Released:
        return self._maximum


class NoisyMechanism(Mechanism):
    """Noise whose cost takes long: its search needs an estimate."""

    is_slow = is_open_set = True
    is_scale: ClassVar[bool] = True  # the parameter is a scale of the noise
    # the cost of wide noise takes a quarter of a second
    tolerance, rough_tolerance, rate_tolerance = 1e-4, 3e-3, 2e-3

    def __init__(self, search: Search, workload: Workload) -> None:
        super().__init__(search, workload)
        self.reached = search.workload.voters.reached
        # the privacy profile of more than two classes may admit more than the estimate
        self.max_gain = 1.0 if search.workload.has_noise_function else 1.1
        self.start = first_rate(search.workload)
        self.vanishing = 0.0
        if is_open(workload.classes):
            if workload.voters.sampled is not None:
                raise PlanError("open questions are for voters that are the same for every question")
            self.vanishing = delta_of_threshold(search.workload)

    def value(self, rate: float) -> float:
        """Return the scale 1/rate, rounded up; or the rate, rounded down."""
        low, high = self.limits
        if not self.is_scale:
            return super().value(rate)
        return min(max(float(rounded(1.0 / max(rate, 1e-300), ROUND_CEILING)), 1.0 / high), 1.0 / max(low, 1e-300))

    def estimate(self, parameter: float) -> PrivacyCost | None:
        return None if self.search.workload.voters.sampled is not None else self.estimate_label_cost(parameter)

    def estimate_label_cost(self, parameter: float) -> PrivacyCost:
        """Estimate the cost of a label by its usual share of the cost of the counts."""
        raise NotImplementedError


class GNMax(NoisyMechanism):
    slug, name, color = "gnmax", "GNMax", BLUE
    about = "the least σ that the accountant admits; " + LABEL_ACCOUNTING
    limits = (0.0, 1.0 / MIN_SIGMA)

    def at(self, parameter: float) -> Proposal:
        maximum = mechanisms.GNMax(parameter, reached=self.reached)
        return NoisyProposal(self.search.workload, maximum, {"sigma": parameter})

    def estimate_label_cost(self, parameter: float) -> PrivacyCost:
        return PrivacyCost("GNMax", renyi=_estimate_gaussian_curve(self.reached / parameter), vanishing=self.vanishing)


class LNMax(NoisyMechanism):
    slug, name, color = "lnmax", "LNMax", ORANGE
    about = "the largest γ that it admits; " + LABEL_ACCOUNTING
    limits, is_scale = (1e-9, 50.0), False

    def at(self, parameter: float) -> Proposal:
        maximum = mechanisms.LNMax(parameter, reached=self.reached)
        return NoisyProposal(self.search.workload, maximum, {"gamma": parameter})

    def estimate_label_cost(self, parameter: float) -> PrivacyCost:
        rate = parameter * self.reached
        return PrivacyCost("LNMax", PrivacyParams(2.0 * rate), _estimate_laplace_curve(LAPLACE_SHARE, rate))


class AsymmetricNoiseMax(NoisyMechanism):
    """The shape of noise that is most accurate at the cost of the Gaussian.

    For open answers it has a short right tail, so that a low threshold hides the answers of single voters.
    """

    slug, name, color = "asymmetric", "asymmetric noise", VERMILION
    about = "the best shape at the cost of GNMax; " + LABEL_ACCOUNTING
    classes = (3, MOST_PLANNED)

    def __init__(self, search: Search, workload: Workload, noise: AsymmetricNoise) -> None:
        work = search.workload
        super().__init__(search, workload)
        self._noise, self._curve = noise, AsymmetricMax(noise, self.reached).guarantee
        max_scale = WIDEST / noise.deviation
        if is_open(work.classes):
            self.start = self.start / 2.0
        else:
            max_scale = min(LARGEST_SCALE / max(noise.left, noise.right), max_scale)
            self.start = 1.0 / noise.right
            self.tolerance = 1e-3 if noise.deviation > noisy_law.DEAR else self.tolerance
        min_rate = 1.0 / ((1.0 - 1e-4) * (noise.right * max_scale))  # the scales are rounded
        self.limits = (min_rate, min(1.0, noise.left / noise.right) / SMALLEST_SCALE)
        self.max_gain = math.inf

    @classmethod
    def instances(cls, search: Search, release: Workload) -> Sequence[Mechanism]:
        if search.workload.voters.sampled is not None:
            raise PlanError("its shape is not known for voters that resample their examples, which need less noise")
        if not is_open(search.workload.classes):
            return [cls(search, release, cls._find_best_noise(search, release))]
        noises = [AsymmetricNoise(BASE_SCALE, BASE_SCALE * ratio, MAX_POWER, MAX_POWER) for ratio in OPEN_SET_RATIOS]
        return [cls(search, release, noise) for noise in noises]

    @staticmethod
    def _find_best_noise(search: Search, release: Workload) -> AsymmetricNoise:
        work, gaussian = search.workload, GNMax(search, release)
        if release.total.exact_delta == 0:
            raise PlanError("its Rényi curve gives no (epsilon, 0)")

        def estimate_cost(rate: float) -> PrivacyCost:
            return gaussian.estimate_label_cost(gaussian.value(rate))

        rate = largest_rate(release, estimate_cost, gaussian.start, gaussian.limits[1])
        curve = _estimate_gaussian_curve(rate)
        cost = PrivacyCost("GNMax", renyi=_estimate_gaussian_curve(rate * gaussian.reached))
        total_curve = make_accountant(release, cost).costs[0].renyi
        if total_curve is None:
            raise PlanError("nothing is known of its divergence")
        order = total_curve.repeat(release.queries).best(release.total.delta).order
        budget = float(curve.values[curve.orders == order][0])
        shape = noisy_law.best_shape(work.voters.K, work.classes, search.measure.prior, order=order, budget=budget)
        if shape.gain <= 2.0 * shape.gain_error:
            raise PlanError("no shape that was tried is more accurate than a Gaussian")
        return shape.noise

    def at(self, parameter: float) -> Proposal:
        noise = self._noise
        left_scale = float(rounded(parameter * noise.left / noise.right, ROUND_CEILING))
        scaled = AsymmetricNoise(parameter, left_scale, noise.right_power, noise.left_power)
        return NoisyProposal(self.search.workload, AsymmetricMax(scaled, self.reached), asdict(scaled))

    def estimate_label_cost(self, parameter: float) -> PrivacyCost:
        curve = RenyiCurve(self._curve.orders, self._curve.values * (self._noise.right / parameter) ** 2)
        return PrivacyCost("AsymmetricMax", renyi=curve, vanishing=self.vanishing)


class ByCounts(Mechanism):
    """A mechanism that is charged for its noisy counts, and only compared."""

    only_compared = "its labels cost less than its noisy counts"

    @classmethod
    def applies_to(cls, workload: Workload) -> bool:
        return workload.voters.sampled is None


class PaperGNMax(ByCounts, FixedMechanism):
    slug, name, color = "gnmax-paper", "GNMax as in the paper", BLUE
    about = "σ from the Rényi bound of DaRRM's Appendix D.2.1, for all queries together; counted by its noisy counts."

    def propose(self) -> Proposal:
        work, overlap = self.workload, self.workload.voters.reached
        _check_delta(work)
        with as_plan_error():
            sigma = max(MIN_SIGMA, renyi_sigma(work.total, work.queries).value * overlap)
        curve = RenyiCurve.of(partial(np.multiply, (overlap / sigma) ** 2))
        return Proposal(_make_law(sigma), {"sigma": sigma}, cost=PrivacyCost("GNMax", renyi=curve, reached=overlap))


class AnalyticGNMax(ByCounts, FixedMechanism):
    """All Q answers are one Gaussian mechanism of sensitivity √(2Q)·t, with an exact (ε, δ) [BW18, Theorem 8]."""

    slug, name, color = "gnmax-analytic", "GNMax, analytic σ", BLUE
    only_compared = "it is charged for the noisy counts, which are not released"
    about = (
        "the least σ for which Q answers together, one Gaussian mechanism, are (ε, δ)-private. No accounting of the "
        "noisy counts can allow less noise."
    )

    def propose(self) -> Proposal:
        work, original = self.workload, self.search.workload
        _check_delta(original)
        with as_plan_error():
            sensitivity = SENSITIVITY * math.sqrt(work.queries) * original.voters.reached
            sigma = analytic_sigma(work.total, sensitivity=sensitivity).value
        total = Bound("analytic", original.total.epsilon, "all answers are one Gaussian mechanism [BW18, Theorem 8]")
        return Proposal(_make_law(sigma), {"sigma": sigma}, total=total)


class LNMaxByCounts(ByCounts):
    slug, name, color = "lnmax-counts", "LNMax by noisy counts", ORANGE
    about = "the largest γ that the accountant admits; counted by its noisy counts, which cost more than the label."
    limits, is_exact = (MIN_COUNT_GAMMA, 1e3), True

    def __init__(self, search: Search, workload: Workload) -> None:
        super().__init__(search, workload)
        self.start = first_rate(search.workload)

    def at(self, parameter: float) -> Proposal:
        overlap = self.search.workload.voters.reached
        rate = parameter * overlap
        guarantee = PrivacyParams(2.0 * rate)
        cost = PrivacyCost("LNMax", guarantee=guarantee, renyi=_estimate_laplace_curve(2.0, rate), reached=overlap)
        noise = DiscreteLaplace(max(parameter, MIN_COUNT_GAMMA))  # wider noise gives nearly the same answers
        return Proposal(WinningLaw(noise), {"gamma": parameter}, cost=cost)


def _make_law(sigma: float) -> Law:
    if sigma > 3e5:  # more noise takes gigabytes
        raise PlanError(f"its noise would have sigma = {sigma:.3g} votes: nothing is left to be computed")
    return WinningLaw(DiscreteGaussian(max(MIN_SIGMA, sigma)))


def _check_delta(workload: Workload) -> None:
    if workload.total.exact_delta == 0:
        raise PlanError("Gaussian noise gives no (epsilon, 0)")


def first_rate(workload: Workload) -> float:
    """Return a rate to start a search with."""
    release = reduce_workload(workload)
    rate = release.total.epsilon / (2.0 * math.sqrt(release.queries) * release.voters.reached)
    sampled = release.voters.sampled
    return rate if sampled is None else min(rate / get_rate(sampled), 1.0)


def delta_of_threshold(workload: Workload) -> float:
    """Return half of a query's share of δ, rounded down; `PlanError` if there is none."""
    share = float(workload.total.exact_delta / (2 * workload.queries)) * (1.0 - 2.0**-50)
    if not share > MIN_DELTA:
        raise PlanError("a threshold hides the answers of single voters only with a delta, and the total has none")
    return share


def _estimate_gaussian_curve(rate: float) -> RenyiCurve:
    def values(orders: Array) -> Array:
        return orders * rate**2 * np.minimum(1.0, GAUSSIAN_SHARE + GAUSSIAN_BEND * (orders * rate) ** GAUSSIAN_POWER)

    return RenyiCurve.of(values)


def _estimate_laplace_curve(share: float, rate: float) -> RenyiCurve:
    def values(orders: Array) -> Array:
        return np.minimum(share * orders * rate**2, 2.0 * rate)

    return RenyiCurve.of(values)


_ORDER_FACTORS = (0.8, 1.3)  # times log(1/δ)/ε, above 1
_CHECK_SETTINGS = tuple((share, ratio) for share in (0.6, 0.8) for ratio in (4.0, 12.0))  # T over K, and σ₁ over σ₂
_RUN_COUNT, _MAX_HISTOGRAMS = 64, 1024  # simulated runs; different votes to draw them from
_TEST_STEPS, _FINAL_STEPS = 4, 6  # of a bisection for every test, and for the best one


class TestedMechanism(FixedMechanism):
    about = "the least noise with which votes like the public ones pass a private test within the whole budget."
    has_check: ClassVar[bool] = False
    otherwise: ClassVar[type[Mechanism] | None] = None  # answers where the test fails

    def propose(self) -> Proposal:
        search, work = self.search, self.search.workload
        if not (work.voters.are_non_private and work.voters.reached == 1):
            raise PlanError("a test is proved for non-private voters, and a person who reaches one of them")
        if self.has_check and work.voters.K == 1:
            raise PlanError("a check of the largest count needs at least two voters")
        if work.total.delta == 0.0 or work.missing:
            raise PlanError("a test needs a delta above 0, and no missing votes")
        fallback, public = self._plan_fallback(), _PublicVotes(search)
        scale = math.log(1.0 / work.total.delta) / work.total.epsilon
        check_settings: list[tuple[int | None, float]] = [(None, 0.0)]
        if self.has_check:
            check_settings = [(round(share * work.voters.K), ratio) for share, ratio in _CHECK_SETTINGS]
        # with more voters a trial with a check takes seconds
        factors = _ORDER_FACTORS if work.voters.K <= 2000 else (1.0,)
        tests = [(min(1.0 + factor * scale, LARGEST_ORDER), *check) for factor in factors for check in check_settings]
        sufficient_sigma = 2.0 * math.sqrt(work.queries * math.log(1.25 / work.total.delta)) / work.total.epsilon
        sigma_range = MIN_SIGMA, min(max(sufficient_sigma, 1.0), MAX_TESTED_DEVIATION)
        passing = []
        for number, test in enumerate(tests, 1):
            search.report(f"{number} of {len(tests)} tests")
            build_run = partial(_build_run, work, test, fallback)
            if (sigmas := public.bisect_noise(build_run, sigma_range, _TEST_STEPS)) is not None:
                loss = search.measure.compute_loss(
                    partial(_compute_tested_law, build_run(sigmas[1]), public.estimate_chance(build_run(sigmas[1])))
                )
                passing.append((loss, sigmas, build_run))
        if not passing:
            raise PlanError(f"votes like these pass with a chance of {PASS_CHANCE:g} at no noise that pays for a test")
        _, sigmas, build_run = min(passing, key=itemgetter(0))
        search.report("the best test, closer")
        _, sigma = public.bisect_noise(build_run, sigmas, _FINAL_STEPS) or sigmas
        return _propose_run(build_run(sigma), public.estimate_chance(build_run(sigma)))

    def _plan_fallback(self) -> NoisyMaximum | None:
        if self.otherwise is None:
            return None
        work = self.search.workload
        # the remaining budget is for the outcome of the test
        budget = PrivacyParams(work.total.epsilon * 0.8, work.total.exact_delta / 2)
        plan = calibrate(replace(work, total=budget), self.otherwise, measure=self.search.measure)
        return cast("NoisyMaximum | None", plan.aggregator)


class TestedGNMax(TestedMechanism):
    slug, name, color, linewidth = "gnmax-tested", "GNMax, tested", BLUE, 2.0


class TestedGNMaxElse(TestedMechanism):
    slug, name, color, linewidth = "gnmax-tested-else", "GNMax, tested, else GNMax", BLUE, 1.6
    otherwise = GNMax


class TestedConfident(TestedMechanism):
    slug, name, color, linewidth = "confident-tested", "Confident-GNMax, tested", SKY_BLUE, 2.0
    has_check = True


class _PublicVotes:
    """Simulated runs on votes that are drawn from the public ones."""

    def __init__(self, search: Search) -> None:
        work = search.workload
        self.counts, weights = list_histograms(search.measure.prior, work.voters.K, work.classes, _MAX_HISTOGRAMS)
        shares = np.full(len(self.counts), 1.0 / len(self.counts)) if weights is None else weights
        self.run_counts = np.random.default_rng(SEED).multinomial(work.queries, shares / shares.sum(), size=_RUN_COUNT)

    def estimate_chance(self, run: TestedRun) -> float:
        return float(run.chances[run.find_level(self.run_counts @ run.bound_costs(self.counts))].mean())

    def bisect_noise(
        self, build_run: Callable[[float], TestedRun], sigmas: tuple[float, float], steps: int
    ) -> tuple[float, float] | None:
        """Bisect between too little noise and noise that passes; None if the most noise does not pass."""
        low, high = sigmas
        if self.estimate_chance(build_run(high)) < PASS_CHANCE:
            return None
        for _ in range(steps):
            sigma = math.sqrt(low * high)
            low, high = (low, sigma) if self.estimate_chance(build_run(sigma)) >= PASS_CHANCE else (sigma, high)
        return low, high


def _build_run(
    work: Workload, test: tuple[float, int | None, float], fallback: NoisyMaximum | None, sigma: float
) -> TestedRun:
    # the order, the threshold, and the ratio of both noises
    order, threshold, ratio = test
    sigma = float(rounded(sigma, ROUND_CEILING))
    check = None if threshold is None else NoisyCheck(float(threshold), float(rounded(ratio * sigma)))
    answer = NoisyMaximum(mechanisms.GNMax(sigma), work.voters, work.classes)
    return TestedRun(answer, work.queries, work.total, float(rounded(order)), check, fallback)


def _propose_run(run: TestedRun, chance: float) -> Proposal:
    settings = {"sigma": run.mechanism.law.deviation, "order": run.order, "chance": chance}
    if run.check is not None:
        settings |= {"threshold": run.check.threshold, "sigma_threshold": run.check.sigma}
    consequence = "else the budget is spent on nothing. A query without a label counts as a guess here."
    if run.otherwise is not None:
        consequence = f"else {run.otherwise.mechanism.privacy_cost().what} answers all queries."
    remark = (
        f"Labels leave only if a private test passes, for votes like the public ones with chance {chance:.3f}; "
        f"{consequence}"
    )
    total = Bound("simple", run.budget.epsilon, "a private test releases all labels, or none: it is one cost")
    return Proposal(partial(_compute_tested_law, run, chance), settings, run, total=total, remark=remark)


def _compute_tested_law(run: TestedRun, chance: float, counts: NDArray[np.int64]) -> Array:
    guess = 1.0 / counts.shape[1]
    answers = noisy_law.winning_probabilities(run.mechanism.law, counts)
    if run.check is not None:
        pass_probabilities = np.exp(run.check.log_probabilities(counts.max(axis=1))[0])[:, None]
        answers = pass_probabilities * answers + (1.0 - pass_probabilities) * guess
    fallback = np.full(answers.shape, guess)
    if run.otherwise is not None:
        fallback = noisy_law.winning_probabilities(cast("mechanisms.GNMax", run.otherwise.mechanism).law, counts)
    return np.asarray(chance * answers + (1.0 - chance) * fallback)
