"""Mechanisms that know the votes only, charged for the label that they release, for any number of classes.

A person who reaches t voters moves t votes, whether the voters are private or not. GNMax, LNMax and shaped noise give
every count a noise of its own; the exponential mechanism and permute-and-flip choose a class by its votes.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from decimal import ROUND_CEILING

import numpy as np
from numpy.typing import NDArray

from darrm.errors import PlanError
from darrm.losses.amplification import rate_of
from darrm.losses.charges import Charge
from darrm.losses.renyi import RenyiCurve
from darrm.losses.vanishing import least_threshold
from darrm.mechanisms.noisy_law import WinningLaw, answering_probabilities, chosen, lags_of
from darrm.mechanisms.noisy_max import GNMax, LNMax, ShapedMax
from darrm.mechanisms.noisy_maximum import Mechanism, NoisyMaximum
from darrm.optimize.shape import DEAR, best_shape
from darrm.plan.budget import account_of, counted
from darrm.plan.family import Search, largest_rate
from darrm.plan.parameter import Parameter, Precision, Proposal, rounded, six_digits
from darrm.plan.share_right import Law
from darrm.privacy import PrivacyParams
from darrm.probability import Array
from darrm.probability.exact_inversion import WIDEST
from darrm.probability.integer_noise import LARGEST_SCALE, SMALLEST_SCALE, IntegerNoise, ShapedNoise
from darrm.probability.special import softmax
from darrm.problem import Workload, is_open

# by whether there are two classes: certified costs of alike scales differ by a part in ten thousand, and a charge of
# wide noise takes a quarter of a second
PRECISION = {False: Precision(unused=1e-4, narrow=2e-3, rough=3e-3), True: Precision(unused=1e-4, narrow=2e-3)}
SHAPED = Precision(unused=1e-3, narrow=2e-3)  # of shaped noise whose charge takes seconds
HOPE = {False: 1.1, True: 1.0}  # times the rate of an estimate: of more classes the privacy profile may admit more
ROUNDED_DOWN = 1.0 - 1e-4  # of the widest shaped noise: its scales are rounded
# of the Rényi divergence of a label, λ times the squared rate: about what is certified, where a search starts
GAUSSIAN_SHARE, GAUSSIAN_BEND, GAUSSIAN_POWER, LAPLACE_SHARE = 0.646, 0.0226, 2.1, 0.671
# of open answers, where the right tail decides the threshold: the steepest, and a left scale from as long to 3 times
RATIOS_FOR_STRINGS, KNOWN_SCALE, STEEPEST, LEAST_FOR_STRINGS = (1.0, 1.5, 2.0, 3.0), 64.0, 3.0, 1e-30
LEAST_SIGMA, LARGEST_GAMMA, LARGEST_EPSILON = 0.5, 50.0, 700.0  # what mechanisms take: the votes are told almost


def exponential_law(epsilon: float, reached: int) -> Law:
    """Return the law of the exponential mechanism [MT07]: a class has the weight e^{ε·count/(2t)}."""
    return lambda counts: np.asarray(softmax(counts * (epsilon / (2.0 * reached)), axis=1))


def permute_and_flip_law(epsilon: float, reached: int) -> Law:
    """Integrate Pr[c] = e_c ∫_0^1 Π_{j ≠ c}(1 − e_j·s) ds: with C/2 nodes exactly, with some √C to twelve digits.

    A class that permute-and-flip [MS20] looks at in the s-th part of a random order is answered if its coin shows heads
    and those of all that were looked at before showed tails. For two classes the truth is 1 − ½e^{−ε(lead)/(2t)}.
    """

    def law(counts: NDArray[np.int64]) -> Array:
        nodes, weights = np.polynomial.legendre.leggauss(
            min(counts.shape[1] // 2 + 1, math.isqrt(16 * counts.shape[1]) + 20)
        )
        lags, place = lags_of(counts)
        heads = np.exp(-lags * (epsilon / (2.0 * reached)))[:, None]
        tails = 1.0 - heads * (nodes + 1.0) / 2.0
        return chosen(place, np.log(tails), heads / tails, weights / 2.0)

    return law


def gaussian(search: Search) -> Iterable[Parameter]:
    """Turn down the σ of GNMax."""
    return [gaussian_of(search.workload)]


def laplace(search: Search) -> Iterable[Parameter]:
    """Turn up the γ of LNMax."""

    def estimate(gamma: float) -> Charge:
        rate = gamma * search.workload.voters.reached
        curve = RenyiCurve.of(lambda orders: np.minimum(LAPLACE_SHARE * orders * rate**2, 2.0 * rate))
        return Charge("LNMax", PrivacyParams(2.0 * rate), curve)

    return [
        Parameter(
            workload=counted(search.workload),
            make=lambda gamma: _of(search.workload, LNMax(gamma, reached=search.workload.voters.reached), gamma=gamma),
            start=first_rate(search.workload),
            limits=(1e-9, LARGEST_GAMMA),
            estimate=estimate if search.workload.voters.sampled is None else None,
            hope=HOPE[search.workload.has_noise_function],
            goal=None,
            precision=PRECISION[search.workload.has_noise_function],
        )
    ]


def shaped_noise(search: Search) -> Iterable[Parameter]:
    """Turn down the scale of the noise whose shape is right most often at the cost of the Gaussian in the budget."""
    if search.workload.voters.sampled is not None:
        raise PlanError(
            "its shape is chosen for votes that always move; voters that draw their examples need less noise"
        )
    if is_open(search.workload.classes):
        return _shapes_for_strings(search.workload)
    work, parameter = search.workload, gaussian_of(search.workload)
    release, estimate = parameter.workload, parameter.estimate
    if release.total.exact_delta == 0 or estimate is None:
        raise PlanError("its Rényi curve gives no (epsilon, 0)")
    rate = largest_rate(release, lambda rate: estimate(parameter.value(rate)), parameter.start, parameter.limits[1])
    curve = _gaussian_curve(rate)
    whole = account_of(release, Charge("GNMax", renyi=_gaussian_curve(rate * work.voters.reached))).charges[0].renyi
    if whole is None:
        raise PlanError("nothing is known of its divergence")
    order = whole.repeated(release.queries).best(release.total.delta).order
    budget = float(curve.values[curve.orders == order][0])
    shape = best_shape(work.voters.K, work.classes, search.measure.prior, order=order, budget=budget)
    if shape.gain <= 2.0 * shape.gain_error:
        raise PlanError("of the shapes that were tried none is right more often than a Gaussian")
    noise = shape.noise

    def make(scale: float) -> Proposal:
        scaled = _scaled(noise, scale)
        return _of(work, ShapedMax(scaled, work.voters.reached), **asdict(scaled))

    certified = ShapedMax(noise, work.voters.reached).guarantee  # known already
    shorter = min(1.0, noise.left / noise.right)
    widest = noise.right * min(LARGEST_SCALE / max(noise.left, noise.right), WIDEST / noise.deviation)
    limits = (1.0 / (ROUNDED_DOWN * widest), shorter / SMALLEST_SCALE)
    return [
        Parameter(
            workload=release,
            make=make,
            start=1.0 / noise.right,
            limits=limits,
            value=falling(limits),
            estimate=lambda scale: Charge("ShapedMax", renyi=_narrowed(certified, noise.right / scale)),
            goal=None,
            precision=SHAPED if noise.deviation > DEAR else PRECISION[True],
        )
    ]


def _shapes_for_strings(work: Workload) -> list[Parameter]:
    """Turn down the scale of noise with a short right tail: what one person alone says is under a low threshold."""
    reached, parameters = work.voters.reached, []
    for ratio in RATIOS_FOR_STRINGS:
        known = ShapedNoise(KNOWN_SCALE, KNOWN_SCALE * ratio, STEEPEST, STEEPEST)
        curve = ShapedMax(known, reached).guarantee
        limits = (known.deviation / (ROUNDED_DOWN * WIDEST * known.right), min(1.0, ratio) / SMALLEST_SCALE)

        def make(scale: float, known: ShapedNoise = known) -> Proposal:
            scaled = _scaled(known, scale)
            return _of(work, ShapedMax(scaled, reached), **asdict(scaled))

        def estimate(scale: float, curve: RenyiCurve = curve) -> Charge:
            return Charge("ShapedMax", renyi=_narrowed(curve, KNOWN_SCALE / scale), vanishing=for_strings(work))

        parameters.append(
            Parameter(
                workload=work,
                make=make,
                start=first_rate(work) / 2.0,
                limits=limits,
                value=falling(limits),
                estimate=estimate,
                goal=None,
                precision=PRECISION[True],
            )
        )
    return parameters


def _scaled(noise: ShapedNoise, scale: float) -> ShapedNoise:
    left = float(rounded(scale * noise.left / noise.right, ROUND_CEILING))
    return ShapedNoise(scale, left, noise.right_power, noise.left_power)


def gaussian_of(workload: Workload) -> Parameter:
    """Describe the σ of GNMax."""
    reached = workload.voters.reached
    limits = (0.0, 1.0 / LEAST_SIGMA)

    lost = for_strings(workload) if is_open(workload.classes) else 0.0

    def estimate(sigma: float) -> Charge:
        return Charge("GNMax", renyi=_gaussian_curve(reached / sigma), vanishing=lost)

    return Parameter(
        workload=counted(workload),
        make=lambda sigma: _of(workload, GNMax(sigma, reached=reached), sigma=sigma),
        start=first_rate(workload),
        limits=limits,
        value=falling(limits),
        estimate=estimate if workload.voters.sampled is None else None,
        hope=HOPE[workload.has_noise_function],
        goal=None,
        precision=PRECISION[workload.has_noise_function],
    )


def falling(limits: tuple[float, float]) -> Callable[[float], float]:
    """Return rate → 1/rate for costs that fall as the parameter grows: six digits, rounded up, and within limits."""

    def value(rate: float) -> float:
        return min(max(float(rounded(1.0 / rate, ROUND_CEILING)), 1.0 / limits[1]), 1.0 / max(limits[0], 1e-300))

    return value


def first_rate(workload: Workload) -> float:
    """Return about what many queries admit, up to a factor, where a search starts."""
    release = counted(workload)
    once = release.total.epsilon / (2.0 * math.sqrt(release.queries) * release.voters.reached)
    sampled = release.voters.sampled
    return once if sampled is None else min(once / rate_of(sampled), 1.0)


def selection(search: Search, kind: Callable[[float, int], Mechanism], law: Callable[[float, int], Law]) -> Parameter:
    """Describe the ε of a mechanism that chooses a class by its votes."""
    reached = search.workload.voters.reached

    def make(epsilon: float) -> Proposal:
        return _of(search.workload, kind(epsilon, reached), law(epsilon, reached), epsilon=epsilon)

    limits = (1e-12, LARGEST_EPSILON)
    return Parameter(
        workload=counted(search.workload),
        make=make,
        start=first_rate(search.workload),
        limits=limits,
        value=lambda rate: min(max(six_digits(rate), limits[0]), limits[1]),
        goal=None,
    )


def for_strings(workload: Workload) -> float:
    """Return the δ of a query for strings that one person alone says: half of its share of the total.

    `PlanError` where there is none.
    """
    share = float(workload.total.exact_delta / (2 * workload.queries)) * (1.0 - 2.0**-50)
    if not share > LEAST_FOR_STRINGS:
        raise PlanError("a threshold hides what one person alone says but for a delta, and the total has none left")
    return share


def _of_open(workload: Workload, mechanism: GNMax | LNMax | ShapedMax, settings: Mapping[str, float]) -> Proposal:
    try:
        threshold = least_threshold(mechanism.law, for_strings(workload), moved=mechanism.reached)
    except ValueError as error:
        raise PlanError(str(error)) from error
    release = NoisyMaximum(mechanism, workload.voters, workload.classes, threshold)
    return Proposal(
        law=lambda counts: answering_probabilities(mechanism.law, counts, threshold),
        price=release.charge,
        release=lambda: release,
        settings={**settings, "threshold": threshold},
    )


def _of(workload: Workload, mechanism: Mechanism, law: Law | None = None, **settings: float) -> Proposal:
    voters, classes = workload.voters, workload.classes
    if is_open(classes) and isinstance(mechanism, GNMax | LNMax | ShapedMax):
        return _of_open(workload, mechanism, settings)
    return Proposal(
        law=_noisy_law(mechanism) if law is None else law,
        price=mechanism.charge if voters.sampled is None else lambda: NoisyMaximum(mechanism, voters, classes).charge(),
        release=lambda: NoisyMaximum(mechanism, voters, classes),
        settings=settings,
    )


def _noisy_law(mechanism: Mechanism) -> Law:
    noise: IntegerNoise = getattr(mechanism, "law", None) or getattr(mechanism, "noise")  # noqa: B009 (both kinds)
    return WinningLaw(noise)


def _narrowed(curve: RenyiCurve, times: float) -> RenyiCurve:
    return RenyiCurve(curve.orders, curve.values * times**2)


def _gaussian_curve(rate: float) -> RenyiCurve:
    def values(orders: Array) -> Array:
        return orders * rate**2 * np.minimum(1.0, GAUSSIAN_SHARE + GAUSSIAN_BEND * (orders * rate) ** GAUSSIAN_POWER)

    return RenyiCurve.of(values)
