"""Privacy cost of a training, and trainings that fit a budget.

One step is a Poisson-subsampled Gaussian mechanism. dp-accounting discretizes its privacy loss distribution
pessimistically, and `darrm.loss.grid_composition` composes T steps and bounds the rounding, so the reported ε is an
upper bound. (dp-accounting's own composition is off by about 1e-14 in δ: at σ = 30, T = 1,000, δ = 1e-12 it returns
7.6627, but the least ε is 7.6654.) Neighbors differ in one blanked record (`Partition`), the accounting's
add-or-remove relation. Its noise multiplier is σ of `PrivateSGD`.
"""

import math
from collections.abc import Callable

import numpy as np

from darrm.loss.gaussian import Calibration, analytic_sigma
from darrm.loss.grid_composition import GridComposition, GridQueries
from darrm.numerics.bisection import last_allowed_integer
from darrm.privacy import PrivacyPair, PrivacyParams
from darrm.training.recipes import PrivateSGD
from darrm.util import checks
from darrm.util.extras import require

_DECIMALS = 6  # decimal places of the reported ε, rounded up
_ROUNDING_ERROR = 1e-9  # covers the floating-point error of one step's distribution and of this rounding
# of the discretization; a finer one moves ε by 2e-7
_MAX_INTERVAL, _MIN_INTERVAL, _RELATIVE_INTERVAL = 1e-3, 1e-5, 1e-4
_BYTES_PER_POINT = 64  # of a distribution: its probabilities, two transforms of them, and their product
_MIN_ACCOUNTED_NOISE = 0.1  # with less, a single step takes long, and epsilon is in the hundreds
_MAX_STEPS = 1_000_000
_MAX_NOISE = 1e6
_MIN_NOISE = 0.125  # with less, epsilon is in the hundreds, and the distributions are large
_NOISE_TOLERANCE = 1e-3  # relative width at which the search stops
_MIN_SLOPE, _MAX_SLOPE = -5.0, -0.2  # slopes of log ε over log σ that a secant may have
_MAX_SECANTS = 20
_MIN_EPSILON = 1e-12  # in place of 0 in a logarithm
_BOUND = "the privacy loss distribution of DP-SGD"


def compute_privacy(recipe: PrivateSGD, delta: float) -> PrivacyParams:
    """Bound the privacy loss of one trained teacher for one record of its shard: (ε, δ), ε rounded up to six places.

    `ValueError` if δ is not in (0, 1), or no finite ε holds at it. For about the set-up of the paper, which reports
    (0.0852, 10⁻⁴) for its 909 images a teacher [D, Section 6.2]:

    >>> compute_privacy(PrivateSGD(learning_rate=0.05, steps=143, sampling_rate=32 / 909, noise=12.0), 1e-4)
    PrivacyParams(epsilon=0.085075, delta=0.0001)
    """
    checks.instance(PrivateSGD, recipe=recipe, advice="training without noise promises nothing")
    checks.open_probability(delta=delta)
    epsilon = _bound_epsilon(recipe.noise, recipe.sampling_rate, recipe.steps, delta)
    if math.isinf(epsilon):
        checks.fail("delta", delta, "larger: no finite epsilon is known at it", "take some 1e-12 or more")
    return PrivacyParams(str(epsilon), str(delta))


def calibrate_sampling(target: PrivacyPair, *, noise: float, epochs: int) -> Calibration:
    """Find the largest batches that meet a positive target (ε, δ) of one teacher, for given noise.

    T steps at q = epochs/T use each record ``epochs`` times on average. Returns q, with the smallest T as
    ``settings["steps"]``; ``noise`` is in units of the clipping threshold. `ValueError` if a million steps miss the
    target.

    >>> print(calibrate_sampling(PrivacyParams(0.0892, 1e-4), noise=12.0, epochs=5))
    sampling rate = 0.0384615 (steps 130) for (0.0892, 0.0001), by the privacy loss distribution of DP-SGD
    """
    target = _check_target(target)
    checks.positive(noise=noise)
    checks.integer_at_least(1, epochs=epochs)

    def fits(steps: int) -> bool:
        return _bound_epsilon(noise, epochs / steps, steps, target.delta) <= target.epsilon

    high = epochs
    while not fits(high):
        high *= 2
        if high > _MAX_STEPS:
            checks.fail("target", str(target), f"reachable with noise = {noise:g}", "use more noise or fewer epochs")
    steps = last_allowed_integer(fits, inside=high, outside=max(epochs, high // 2) - 1)
    return Calibration("sampling rate", epochs / steps, target, _BOUND, {"steps": steps})


def calibrate_noise(target: PrivacyPair, *, sampling_rate: float, steps: int) -> Calibration:
    """Find the smallest noise that meets a positive target (ε, δ) of one teacher, for given batches.

    Returns σ, in units of the clipping threshold, at most 0.1 % above the least σ that meets the target by
    `compute_privacy`, or whose cost fits in memory (below, ε is in the hundreds). `ValueError` if σ exceeds a million.

    >>> noise = calibrate_noise(PrivacyParams(1, 1e-5), sampling_rate=1, steps=4).value
    >>> compute_privacy(PrivateSGD(0.1, 4, 1, noise), 1e-5).epsilon <= 1 < compute_privacy(
    ...     PrivateSGD(0.1, 4, 1, 0.99 * noise), 1e-5).epsilon
    True
    """
    target = _check_target(target)
    checks.positive(sampling_rate=sampling_rate)
    checks.probability(sampling_rate=sampling_rate)
    checks.integer_at_least(1, steps=steps)

    def excess(log_noise: float) -> float:
        """Return log(ε / target) at a noise; at most 0 if it fits."""
        noise = math.exp(log_noise)
        cells = _range_of_losses(noise, sampling_rate, steps) / _MAX_INTERVAL
        if cells * _BYTES_PER_POINT > checks.MOST_BYTES:
            return math.inf
        epsilon = _bound_epsilon(noise, sampling_rate, steps, target.delta, goal=target.epsilon)
        return math.log(max(epsilon, _MIN_EPSILON) / target.epsilon)

    # for many steps μ = q·√(T·(e^{1/σ²} − 1)) is that of one Gaussian [Dong, Roth, Su 2019]
    mu = 1.0 / analytic_sigma(target, sensitivity=1.0).value
    guess = -0.5 * math.log(math.log1p((mu / sampling_rate) ** 2 / steps))
    fitting_log_noise = _find_last_fitting(excess, guess, math.log(_MIN_NOISE), math.log(_MAX_NOISE))
    if fitting_log_noise is None:
        checks.fail("target", str(target), f"reachable with noise of at most {_MAX_NOISE:g}")
    return Calibration("noise", math.exp(fitting_log_noise), target, _BOUND)


def _find_last_fitting(excess: Callable[[float], float], guess: float, minimum: float, maximum: float) -> float | None:
    """Return the least place in [minimum, maximum], up to the tolerance, with an excess of at most 0, or None.

    The excess is decreasing. Secants aim just beyond its zero; where they fail, the midpoint is next.
    """
    last_outside, first_inside = -math.inf, math.inf  # the largest place that does not fit, the smallest that does
    place, slope, evaluations = min(max(guess, minimum), maximum), -1.0, 0
    previous: tuple[float, float] | None = None
    while True:
        value, evaluations = excess(place), evaluations + 1
        if value <= 0.0:
            first_inside = place
        elif place == maximum:
            return None
        else:
            last_outside = place
        if first_inside - max(last_outside, minimum) <= _NOISE_TOLERANCE:
            return first_inside
        next_place = place + math.log(2.0)  # if ε is infinite
        if math.isfinite(value):
            if previous is not None:
                slope = min(max((value - previous[1]) / (place - previous[0]), _MIN_SLOPE), _MAX_SLOPE)
            previous = place, value
            next_place = place - value / slope + math.copysign(_NOISE_TOLERANCE / 3.0, value)
        if evaluations >= _MAX_SECANTS or not last_outside < next_place < first_inside:
            ends = max(last_outside, minimum), min(first_inside, maximum)
            open_ends = [
                end for end, bound in zip(ends, (last_outside, first_inside), strict=True) if math.isinf(bound)
            ]
            next_place = open_ends[0] if open_ends else sum(ends) / 2.0
        place = min(max(next_place, minimum), maximum)


def _check_target(pair: PrivacyPair) -> PrivacyParams:
    target = PrivacyParams.of(pair, "target")
    if target.epsilon <= 0 or target.delta <= 0:
        checks.fail("target", str(target), "a pair of positive numbers", "DP-SGD reaches no (epsilon, 0) or (0, delta)")
    return target


def _bound_epsilon(noise: float, sampling_rate: float, steps: int, delta: float, *, goal: float = 0.0) -> float:
    """Bound ε; if the coarsest grid's bound is at most ``goal``, no finer grid is tried."""
    range_of_losses = _range_of_losses(noise, sampling_rate, steps)
    description = f"the privacy loss distribution of {steps:,} steps with noise = {noise:g}"
    checks.affordable(description, range_of_losses / _MAX_INTERVAL, "take more noise", bytes_each=_BYTES_PER_POINT)
    coarse_bound = _compose_epsilon(_MAX_INTERVAL, noise, sampling_rate, steps, delta)
    min_interval = max(_MIN_INTERVAL, range_of_losses * _BYTES_PER_POINT / checks.MOST_BYTES)
    interval = min(_MAX_INTERVAL, max(min_interval, coarse_bound * _RELATIVE_INTERVAL))
    epsilon = coarse_bound
    if coarse_bound > 0.0 and interval < _MAX_INTERVAL and _round_up(coarse_bound) > goal:
        # both are upper bounds
        epsilon = min(coarse_bound, _compose_epsilon(interval, noise, sampling_rate, steps, delta))
    return _round_up(epsilon)


def _round_up(epsilon: float) -> float:
    scale = 10.0**_DECIMALS
    return epsilon if math.isinf(epsilon) else math.ceil(epsilon * (1.0 + _ROUNDING_ERROR) * scale) / scale


def _range_of_losses(noise: float, sampling_rate: float, steps: int) -> float:
    # a step's loss is log(1 − q + q·e^L), L of mean 1/(2σ²) and deviation 1/σ; the step's deviation is at most 1/σ
    # and about q·√(e^{1/σ²} − 1)
    if noise < _MIN_ACCOUNTED_NOISE:
        checks.fail("noise", noise, f"at least {_MIN_ACCOUNTED_NOISE:g}", "with less, epsilon is above a hundred")
    max_loss = math.log1p(sampling_rate * math.expm1(0.5 / noise**2 + 8.0 / noise))
    deviation = min(1.0 / noise, sampling_rate * math.sqrt(math.expm1(noise**-2)))
    return max_loss + 16.0 * math.sqrt(steps) * deviation


def _compose_epsilon(interval: float, noise: float, sampling_rate: float, steps: int, delta: float) -> float:
    step_distribution = require("dp_accounting.pld.privacy_loss_distribution").from_gaussian_mechanism(
        standard_deviation=noise,
        pessimistic_estimate=True,
        value_discretization_interval=interval,
        sampling_prob=sampling_rate,
        use_connect_dots=True,
    )
    # remove and add a record; both are the same object without subsampling
    distributions = {step_distribution._pmf_remove, step_distribution._pmf_add}
    epsilons = []
    for pmf in (distribution.to_dense_pmf() for distribution in distributions):
        masses = np.maximum(np.asarray(pmf._probs, dtype=np.float64), 0.0)
        queries = GridQueries(int(pmf._lower_loss), masses, float(pmf._infinity_mass), steps)
        epsilons.append(GridComposition([queries], interval).smallest_epsilon(delta))
    return max(epsilons)
