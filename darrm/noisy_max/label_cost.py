"""The privacy cost of the label of a noisy maximum, for any votes, classes and voters: less than that of noisy counts.

**Theorem (reduction).** The divergence of the label between neighbors is at most the supremum, over whole numbers i, j
and z in {0, 1}, of the divergence of three outcomes {a, b, other} from (i, j) to (i − 1, j + 1) in `label_supremum`.
*Proof.* A release adds independent noise to the votes of each class and publishes the class with the largest sum. One
vote moves from class a to class b. Given the noisy counts of all other classes, which have the same law before and
after, the label depends on the noisy counts of a and b and on the best of the others, its height m and its priority at
ties. exp((α − 1)·D_α) and the hockey-stick divergence are jointly convex, so the label's divergence is at most the
supremum over x = n_a − m and y = n_b − m of that of three outcomes under (x, y) → (x − 1, y + 1). A tie follows an
order of (a, b, best other), random or not: a mixture of six orders. On whole numbers the place of "other" in the order
shifts i or j by one, so all six are two tables over (i, j): ties between a and b go to a (z = 0) or to b (z = 1). The
reverse direction is (j + 1, i − 1) → (j, i) with the names exchanged: the forward direction with the other z. ∎

So one supremum in two dimensions covers both directions and every tie rule (`tests/noisy_max/test_label_cost.py`).

**More moves.** t moves are a chain: D_α(P‖R) ≤ (α − 1/p)/(α − 1)·D_{pα}(P‖Q) + D_{q(α − 1/p)}(Q‖R), 1/p + 1/q = 1
[M17, Proposition 11], tight for curves linear in α. (α − 1)·D_α and (exp((α − 1)·D_α) − 1)/(α(α − 1)) are convex in α
(the second is ∫∫ of L²·e^{(u + αv)L} over a triangle), so chords bound them.

Permute-and-flip has one-sided noise: given the other counts its divergence is infinite, so its cost is pure ε.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike

from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import DEFAULT_ORDERS, RenyiCurve
from darrm.noisy_max.label_supremum import (
    TINY,
    HockeyStick,
    Measure,
    Renyi,
    SubsampledRenyi,
    TwoClasses,
    bound_log_shift_cost,
    estimate,
    supremum,
    threshold_supremum,
)
from darrm.noisy_max.noise_law import NoiseDifference, log_above, tabulate_log_masses
from darrm.numerics import Array
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace, IntegerNoise
from darrm.privacy import LARGEST_EXPONENT
from darrm.util import checks

_LARGEST_DEVIATION = 1e4  # votes: beyond, labels cost as much as their counts
# votes, for noise without a closed form: a profile of wider noise takes seconds, and for its many queries the curve is
# the better bound
_MAX_PROFILE_DEVIATION = 32.0
_DEEP_CUT, _STEEP_POWER, _SMALL_DEVIATION = 250.0, 1.5, 6.0  # −log of tail masses, powers, votes of deviation
_ORDERS_PER_DEVIATION = 5.0  # beyond, the bound by counts is less than 8 % above the label's
_MAX_POINTS = 5_000  # votes and far deviations of a law of two classes
_REACH, _SUBSAMPLED_ORDERS = 30.0, 12.0  # votes, and orders of subsampled costs, per deviation
_POINTS, _FEW_POINTS, _SMALLEST_DELTA = 100, 48, 1e-12  # of a profile: neighbors differ by a factor of about 2
_LONG_TAIL_RATIO = 0.95  # of the deviation
_LOG_STEP, _DEVIATION_STEP = 1.08, 0.12  # between computed orders: chords cost 0.2 %


@lru_cache(maxsize=64)
def label_curve(noise: IntegerNoise, *, moved: int = 1, rate: float = 1.0, votes: int | None = None) -> RenyiCurve:
    """Bound the Rényi divergence of the label of a noisy maximum, for any number of classes and voters, any tie rule.

    The noise is independent for each class and log-concave, with tails as `label_supremum` requires. One person moves
    ``moved`` ≥ 1 votes, with probability ``rate`` (ignored for several votes): below 1 for voters that resample
    examples (Poisson), where ``votes`` bounds leads.

    At order 8 the noisy counts of GNMax with σ = 40 cost 0.005, the label 0.003204:

    >>> curve = label_curve(DiscreteGaussian(40.0))
    >>> 0.003204 < float(curve.values[curve.orders == 8.0][0]) < 0.003236
    True
    """
    checks.integer_at_least(1, moved=moved)
    by_counts = counts_curve(noise, moved)
    if moved > 1:
        small, large = moved // 2, moved - moved // 2
        return _compose_moves(label_curve(noise, moved=large), large, label_curve(noise, moved=small), small).minimum(
            by_counts
        )
    if noise.deviation > _LARGEST_DEVIATION:
        return by_counts
    if rate < 1.0:
        return _bound_between_knots(noise, partial(supremum, votes=votes), rate).minimum(label_curve(noise))
    return _bound_between_knots(noise, supremum).minimum(by_counts)


def is_two_class_exact(noise: IntegerNoise, K: int) -> bool:
    return K + _REACH * noise.deviation <= _MAX_POINTS


@lru_cache(maxsize=64)
def two_class_errors(noise: IntegerNoise, K: int) -> Array:
    """Compute log Pr[the label of two classes is not the majority] for l = floor(K/2) + 1 … K votes, ties shared.

    It takes about (K + 30 deviations)² operations: see `is_two_class_exact`.
    """
    margin = int(_REACH * noise.deviation) + 30  # a Laplace tail is e^{−42} of the values in use
    logs = tabulate_log_masses(noise, -K - 2 * margin, K + 2 * margin)
    # of the difference of two noises, from 0 on: for large leads only logarithms are floats
    difference = np.array([np.logaddexp.reduce(logs[d:] + logs[: logs.size - d]) for d in range(K + margin + 1)])
    tails = log_above(difference)
    leads = 2 * np.arange(K // 2 + 1, K + 1) - K
    return np.asarray(tails[leads] + np.log1p(-0.5 * np.exp(difference[leads] - tails[leads])))


@lru_cache(maxsize=64)
def threshold_curve(noise: IntegerNoise) -> RenyiCurve:
    """Bound the Rényi divergence of one noisy comparison of a count with a threshold when one vote moves."""
    by_count = RenyiCurve.unknown()
    if isinstance(noise, DiscreteGaussian):
        by_count = RenyiCurve(DEFAULT_ORDERS, DEFAULT_ORDERS / (2.0 * noise.sigma**2))
    if noise.deviation > _LARGEST_DEVIATION:
        return by_count
    return _bound_between_knots(noise, threshold_supremum).minimum(by_count)


def _bound_between_knots(
    noise: IntegerNoise, supremum_of: Callable[[TwoClasses, Measure], Array], rate: float = 1.0
) -> RenyiCurve:
    """Bound a supremum at the knots and by chords between them; ∞ beyond the last."""
    masses, scale = TwoClasses(noise).masses, noise.deviation
    if scale > _SMALL_DEVIATION:  # of divergences, in votes: less than the deviation if one tail is long
        narrow_scale = 1.0 / math.sqrt(float(np.sum(np.diff(masses) ** 2 / np.maximum(masses[:-1], 1e-300))))
        scale = narrow_scale if narrow_scale < _LONG_TAIL_RATIO * scale else scale
    deviation = min(noise.deviation, 1.5 * scale)
    is_computed = (largest_order(deviation) if rate == 1.0 else _SUBSAMPLED_ORDERS * deviation + 2.0) >= DEFAULT_ORDERS
    orders = DEFAULT_ORDERS[is_computed]
    knot_orders = np.union1d(knots(orders, scale), knots(orders, noise.deviation))
    measure: Measure = Renyi(knot_orders, deviation) if rate == 1.0 else SubsampledRenyi(knot_orders, deviation, rate)
    # for a subsampled vote the relevant losses exceed the order, where narrow noise has next to no mass
    depths = _choose_cut_depths(noise) if rate == 1.0 else (TINY, _DEEP_CUT)
    excess = np.fmin.reduce([supremum_of(TwoClasses(noise, tiny), measure) for tiny in depths])
    excess = np.max(excess.reshape(-1, knot_orders.size), axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        logs = np.interp(orders, knot_orders, np.log1p(excess)) / (orders - 1.0)
        ratios = np.interp(orders, knot_orders, excess / (knot_orders * (knot_orders - 1.0)))
        values = np.fmin(logs, np.log1p(ratios * orders * (orders - 1.0)) / (orders - 1.0))
    all_values = np.full(DEFAULT_ORDERS.size, np.inf)
    all_values[is_computed] = np.where(np.isnan(values), np.inf, values * (1.0 + 1e-12))
    return RenyiCurve(DEFAULT_ORDERS, all_values)


def _choose_cut_depths(noise: IntegerNoise) -> tuple[float, ...]:
    """Return −log of the tail masses to include; steep tails of narrow noise matter at large orders."""
    if not isinstance(noise, AsymmetricNoise) or noise.deviation > _SMALL_DEVIATION:
        return (TINY,)
    # with smaller scales masses fall so fast that their products underflow
    steep = min(noise.right_power, noise.left_power) >= _STEEP_POWER and min(noise.right, noise.left) >= 1.0
    return (TINY, _DEEP_CUT) if steep else (TINY,)


def label_estimate(noise: IntegerNoise, orders: ArrayLike) -> Array:
    """Estimate the label's Rényi divergences from below, (L,) → (L,): for searches, NOT a bound."""
    grid = np.asarray(orders, dtype=np.float64)
    return np.asarray(np.log1p(estimate(TwoClasses(noise), Renyi(grid, noise.deviation), stride=4)) / (grid - 1.0))


def counts_curve(noise: IntegerNoise, moved: int = 1) -> RenyiCurve:
    """Bound the label by two noisy counts [CKS20, Proposition 5], [M17, Proposition 6]."""
    if isinstance(noise, DiscreteGaussian):
        return RenyiCurve(DEFAULT_ORDERS, DEFAULT_ORDERS * (moved / noise.sigma) ** 2)
    if isinstance(noise, DiscreteLaplace):
        return RenyiCurve.from_pure(2.0 * moved * noise.gamma)
    if moved > 1:
        return RenyiCurve.unknown()
    laws = TwoClasses(noise, _choose_cut_depths(noise)[-1])

    def value_at(orders: Array) -> Array:
        logs = bound_log_shift_cost(laws, orders, +1) + bound_log_shift_cost(laws, orders, -1)
        return np.asarray(np.maximum(logs, 0.0) / (orders - 1.0) * (1.0 + 1e-9))

    return RenyiCurve.of(value_at)


def largest_order(deviation: float) -> float:
    return _ORDERS_PER_DEVIATION * deviation + 2.0


def knots(orders: Array, deviation: float) -> Array:
    """Choose orders at which chords are close to the curve."""
    places = [float(orders[0])]
    while places[-1] < orders[-1]:
        target = max(places[-1] * _LOG_STEP, places[-1] + _DEVIATION_STEP * deviation)
        last_index = int(np.searchsorted(orders, target, side="right")) - 1
        next_index = int(np.searchsorted(orders, places[-1], side="right"))
        places.append(float(orders[max(last_index, next_index)]))
    return np.array(places)


def _compose_moves(first: RenyiCurve, a: int, second: RenyiCurve, b: int) -> RenyiCurve:
    """Compose a and b moves, with the best p of a grid."""

    def value_at(orders: Array) -> Array:
        best = np.full(orders.shape, np.inf)
        for factor in 2.0 ** np.arange(-4.0, 4.25, 0.25):
            p = 1.0 + factor * (orders - 1.0) / orders * b / a
            q = p / (p - 1.0)
            total = (orders - 1.0 / p) / (orders - 1.0) * first.bounds_at(p * orders)
            total = total + second.bounds_at(q * (orders - 1.0 / p))
            best = np.minimum(best, total * (1.0 + 1e-12))
        return best

    return RenyiCurve.of(value_at)


@lru_cache(maxsize=64)
def label_profile(noise: IntegerNoise, *, moved: int = 1) -> PrivacyProfile | None:
    """Bound δ as a function of ε for the label, as `label_curve` does; None for wide noise.

    For Gaussian noise it equals that of the noisy counts: their best test, a half-space, is "a beats b". Several
    moved votes are a group: δ_t(tε) ≤ δ(ε)·(1 + e^ε + … + e^{(t−1)ε}).

    >>> profile = label_profile(DiscreteGaussian(10.0))
    >>> round(profile.delta_at(0.1), 3), round(profile.epsilon_at(1e-5), 2)
    (0.021, 0.5)
    """
    checks.integer_at_least(1, moved=moved)
    if noise.deviation > _LARGEST_DEVIATION:
        return None
    if moved > 1:
        return _bound_group_profile(label_profile(noise), moved)
    if isinstance(noise, DiscreteGaussian):
        return _compute_gaussian_profile(noise.sigma)
    if noise.deviation > _MAX_PROFILE_DEVIATION:
        return None
    laws = TwoClasses(noise)
    pure = 2.0 * noise.gamma if isinstance(noise, DiscreteLaplace) else np.inf
    scale = 1.0 / noise.deviation
    trial_grid = np.linspace(0.0, min(pure, 20.0 * scale + 8.0 * scale**2), _FEW_POINTS)
    last = int(np.argmax(np.append(estimate(laws, HockeyStick(trial_grid)), 0.0) < _SMALLEST_DELTA))
    grid = np.linspace(0.0, trial_grid[min(last, trial_grid.size - 1)], _FEW_POINTS)
    deltas = np.minimum(1.0, np.maximum.accumulate(supremum(laws, HockeyStick(grid))[::-1])[::-1])
    if np.isfinite(pure):
        grid, deltas = np.append(grid[grid < pure], pure * (1.0 + 1e-12)), np.append(deltas[grid < pure], 0.0)
    return PrivacyProfile(tuple(grid.tolist()), tuple(deltas.tolist()))


def _compute_gaussian_profile(sigma: float) -> PrivacyProfile:
    # The privacy loss is (D + 1)/σ² with the D of `NoiseDifference`.
    law = NoiseDifference(sigma)
    masses = np.exp(law.log_masses)
    losses = (np.arange(law.first, law.last + 1) + 1) / sigma**2
    grid = np.linspace(0.0, min((11.0 * sigma + 1.0) / sigma**2, 0.9 * LARGEST_EXPONENT), _POINTS)
    deltas = np.array([np.sum(masses * -np.expm1(np.minimum(epsilon - losses, 0.0))) for epsilon in grid])
    return PrivacyProfile(tuple(grid.tolist()), tuple(np.minimum(1.0, deltas * (1.0 + 1e-11) + 1e-15).tolist()))


def _bound_group_profile(profile: PrivacyProfile | None, moved: int) -> PrivacyProfile | None:
    """Bound the profile of several moves; None if its ε exceed the largest exponent."""
    if profile is None:
        return None
    epsilons, deltas = (part[moved * profile.arrays()[0] < LARGEST_EXPONENT] for part in profile.arrays())
    if epsilons.size < 2:
        return None
    factors = np.append(float(moved), np.expm1(moved * epsilons[1:]) / np.expm1(epsilons[1:])) * (1.0 + 1e-12)
    bounds = np.minimum.accumulate(np.minimum(1.0, deltas * factors))
    return PrivacyProfile(tuple((moved * epsilons * (1.0 + 1e-15)).tolist()), tuple(bounds.tolist()))
