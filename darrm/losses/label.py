"""What the label of a noisy maximum costs: less than the noisy counts behind it, whatever the classes and voters.

**Reduction.** A release adds independent noise to each class's votes and publishes the class on top. One vote moves
from class a to class b. Given the noisy counts of all other classes, which have the same law before and after, the
label depends on the two noisy counts of a and b and on the best of the others, its height m and its priority at ties,
alone. exp((α − 1)·D_α) and the hockey-stick divergence are jointly convex, so the label's divergence is at most the
supremum, over x = n_a − m and y = n_b − m, of that of three outcomes {a, b, another} under (x, y) → (x − 1, y + 1): two
dimensions, for any number of classes and of voters. A tie is decided by an order of (a, b, best other), drawn at
random or not: a mixture of six orders. On whole numbers the place of "another" in the order shifts i or j of
`label_laws` by one, so all six are two tables over all (i, j): ties between a and b go to a (z = 0) or to b (z = 1).
The reverse direction is (j + 1, i − 1) → (j, i) with the names exchanged: the forward direction with the other z. So
the supremum over i, j and z bounds both directions and every rule for ties.

**More moves.** t moves are a chain: D_α(P‖R) ≤ (α − 1/p)/(α − 1)·D_{pα}(P‖Q) + D_{q(α − 1/p)}(Q‖R), 1/p + 1/q = 1
[M17, Proposition 11], which loses nothing for curves linear in α. Between orders (α − 1)·D_α and (exp((α − 1)·D_α) −
1)/(α(α − 1)) are convex in α (the second is ∫∫ of L²·e^{(u + αv)L} over a triangle), so chords bound them.

Permute-and-flip has one-sided noise: given the others its divergence is infinite, and it is charged as what it is
known to be, (ε, 0)-private.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike

from darrm.errors import checks
from darrm.losses.amplification import amplified_pure, drawn_penalties
from darrm.losses.label_laws import TINY, MovedVote, TwoClasses
from darrm.losses.label_supremum import (
    DrawnRenyi,
    HockeyStick,
    Measure,
    Renyi,
    estimate,
    log_moved,
    supremum,
    threshold_supremum,
)
from darrm.losses.profile import PrivacyProfile
from darrm.losses.renyi import DEFAULT_ORDERS, RenyiCurve
from darrm.privacy import LARGEST_EXPONENT
from darrm.probability import Array
from darrm.probability.integer_noise import DiscreteGaussian, DiscreteLaplace, IntegerNoise, ShapedNoise

_LARGEST_DEVIATION = 1e4  # votes: beyond, labels are charged by their counts
# votes, of noise without a closed form: a profile of wider noise takes seconds, and its queries are many, for which the
# curve is the better bound
_PROFILED_UP_TO = 32.0
_DEEP, _STEEP, _FEW_VOTES = 250.0, 1.5, 6.0  # −log of tail masses, powers, votes of deviation
_ORDERS_PER_DEVIATION = 5.0  # beyond, the counts' bound is less than 8 % above the label's
_MOST_POINTS = 5_000  # votes and far deviations of a law of two classes
_FAR, _DRAWN_ORDERS = 30.0, 12.0  # votes, and orders of a vote that rarely moves, per deviation
_POINTS, _FEW_POINTS, _LEAST_DELTA = 100, 48, 1e-12  # of a profile: neighbors differ by a factor of about 2
_CELLS = 2048  # of the smaller half of a probability: the bound is within a part in a hundred
_LONG_TAILED = 0.95  # of the deviation
_LOG_STEP, _DEVIATION_STEP = 1.08, 0.12  # between orders that are computed: chords cost 0.2 %


@lru_cache(maxsize=64)
def label_curve(noise: IntegerNoise, *, moved: int = 1, rate: float = 1.0, votes: int | None = None) -> RenyiCurve:
    """Bound the Rényi divergence of the label of a noisy maximum, for any number of classes and voters, any tie rule.

    The noise is log-concave, with tails as the module asks for; each class has its own. One person may move ``moved``
    votes, at least 1: with probability ``rate``, below 1 where he is drawn anew for each label (`darrm.sampling`, by a
    coin of his own); several votes cost as much as if he always did. Then ``votes`` is how many there are: where the
    noise is narrow, leads of more would cost most.

    Of GNMax with σ = 40 at order 8 the noisy counts cost 8/1600 = 0.005, the label 0.003204:

    >>> curve = label_curve(DiscreteGaussian(40.0))
    >>> 0.003204 < float(curve.values[curve.orders == 8.0][0]) < 0.003236
    True
    """
    checks.integer_at_least(1, moved=moved)
    by_counts = _by_counts(noise, moved)
    if moved > 1:
        return _lower(
            _chained(
                label_curve(noise, moved=moved - moved // 2),
                moved - moved // 2,
                label_curve(noise, moved=moved // 2),
                moved // 2,
            ),
            by_counts,
        )
    if noise.deviation > _LARGEST_DEVIATION:
        return by_counts
    if rate < 1.0:
        return _lower(_between_knots(noise, partial(supremum, votes=votes), rate), label_curve(noise))
    return _lower(_between_knots(noise, supremum), by_counts)


def is_exact_of_two(noise: IntegerNoise, K: int) -> bool:
    """Whether `label_of_two` takes less than seconds."""
    return K + _FAR * noise.deviation <= _MOST_POINTS


@lru_cache(maxsize=64)
def label_of_two(noise: IntegerNoise, K: int) -> Array:
    """Compute log Pr[a label of two classes is not the majority] for l = floor(K/2) + 1 … K votes, ties shared.

    The work is K + 30 deviations squared: `is_exact_of_two` says for how many it is seconds.

    >>> np.exp(label_of_two(DiscreteGaussian(1.0), 3)).round(4).tolist()
    [0.2491, 0.0206]
    """
    beyond = int(_FAR * noise.deviation) + 30  # a Laplace tail is e^{−42} of what is looked at
    points = np.arange(-K - 2 * beyond, K + 2 * beyond + 1)
    logs = noise.log_weights(points)
    logs = logs - np.logaddexp.reduce(logs)
    # of the difference of two noises, from 0 on: far leads have no floats but in logarithms
    difference = np.array([np.logaddexp.reduce(logs[d:] + logs[: logs.size - d]) for d in range(K + beyond + 1)])
    tails = np.logaddexp.accumulate(difference[::-1])[::-1]
    leads = 2 * np.arange(K // 2 + 1, K + 1) - K
    return np.asarray(tails[leads] + np.log1p(-0.5 * np.exp(difference[leads] - tails[leads])))


@lru_cache(maxsize=64)
def threshold_curve(noise: IntegerNoise) -> RenyiCurve:
    """Bound the Rényi divergence of one noisy comparison of a count with a threshold, where one vote moves.

    It tells one bit: of Gaussian noise about 2/π of the λ/(2σ²) that the noisy count costs.

    >>> curve = threshold_curve(DiscreteGaussian(150.0))
    >>> round(float(curve.values[curve.orders == 20.0][0]) / (20.0 / (2.0 * 150.0**2)), 3)
    0.637
    """
    by_count = RenyiCurve.of(lambda orders: np.full(orders.shape, np.inf))
    if isinstance(noise, DiscreteGaussian):
        by_count = RenyiCurve.of(lambda orders: orders / (2.0 * noise.sigma**2))
    if noise.deviation > _LARGEST_DEVIATION:
        return by_count
    return _lower(_between_knots(noise, threshold_supremum), by_count)


def _between_knots(
    noise: IntegerNoise, supremum_of: Callable[[TwoClasses, Measure], Array], rate: float = 1.0
) -> RenyiCurve:
    """Bound a supremum at the knots among the orders, and by chords between them; ∞ beyond the last."""
    scale = _scale(noise)
    deviation = min(noise.deviation, 1.5 * scale)
    computed = (largest_order(deviation) if rate == 1.0 else _DRAWN_ORDERS * deviation + 2.0) >= DEFAULT_ORDERS
    orders = DEFAULT_ORDERS[computed]
    at = np.union1d(knots(orders, scale), knots(orders, noise.deviation))
    measure: Measure = Renyi(at, deviation) if rate == 1.0 else DrawnRenyi(at, deviation, rate)
    # of a vote that rarely moves: what counts at an order lies beyond it, where narrow noise has no mass to speak of
    depths = _depths(noise) if rate == 1.0 else (TINY, _DEEP)
    excess = np.fmin.reduce([supremum_of(TwoClasses(noise, tiny), measure) for tiny in depths])
    excess = np.max(excess.reshape(-1, at.size), axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        logs = np.interp(orders, at, np.log1p(excess)) / (orders - 1.0)
        ratios = np.interp(orders, at, excess / (at * (at - 1.0)))
        values = np.fmin(logs, np.log1p(ratios * orders * (orders - 1.0)) / (orders - 1.0))
    full = np.full(DEFAULT_ORDERS.size, np.inf)
    full[computed] = np.where(np.isnan(values), np.inf, values * (1.0 + 1e-12))
    return RenyiCurve(DEFAULT_ORDERS, full)


def _scale(noise: IntegerNoise) -> float:
    """Return the votes on which divergences depend: the deviation, or less where a tail is long on one side."""
    masses = TwoClasses(noise).masses
    scale = 1.0 / math.sqrt(float(np.sum(np.diff(masses) ** 2 / np.maximum(masses[:-1], 1e-300))))
    has_long_tail = noise.deviation > _FEW_VOTES and scale < _LONG_TAILED * noise.deviation
    return scale if has_long_tail else noise.deviation


def _depths(noise: IntegerNoise) -> tuple[float, ...]:
    """Return how deep tails are looked at: those of shaped noise of few votes are steep, and count at large orders."""
    if not isinstance(noise, ShapedNoise) or noise.deviation > _FEW_VOTES:
        return (TINY,)
    # with smaller scales a mass falls so far from one vote to the next that products are none
    steep = min(noise.right_power, noise.left_power) >= _STEEP and min(noise.right, noise.left) >= 1.0
    return (TINY, _DEEP) if steep else (TINY,)


def label_estimate(noise: IntegerNoise, orders: ArrayLike) -> Array:
    """Estimate the label's Rényi divergences, from below: fast, for searches, and NOT a bound; (L,) → (L,)."""
    grid = np.asarray(orders, dtype=np.float64)
    return np.asarray(np.log1p(estimate(TwoClasses(noise), Renyi(grid, noise.deviation), every=4)) / (grid - 1.0))


def _lower(first: RenyiCurve, second: RenyiCurve) -> RenyiCurve:
    return RenyiCurve(first.orders, np.minimum(first.values, second.values))


def _by_counts(noise: IntegerNoise, moved: int) -> RenyiCurve:
    """Bound the label by two noisy counts that change by so many votes [CKS20, Proposition 5], [M17, Proposition 6]."""
    if isinstance(noise, DiscreteGaussian):
        return RenyiCurve.of(lambda orders: orders * (moved / noise.sigma) ** 2)
    if isinstance(noise, DiscreteLaplace):
        return RenyiCurve.of_pure(2.0 * moved * noise.gamma)
    if moved > 1:
        return RenyiCurve.of(lambda orders: np.full(orders.shape, np.inf))
    laws = TwoClasses(noise, _depths(noise)[-1])

    def value_at(orders: Array) -> Array:
        both = log_moved(laws, orders, +1) + log_moved(laws, orders, -1)
        return np.asarray(np.maximum(both, 0.0) / (orders - 1.0) * (1.0 + 1e-9))

    return RenyiCurve.of(value_at)


def largest_order(deviation: float) -> float:
    """Return up to which order labels are computed."""
    return _ORDERS_PER_DEVIATION * deviation + 2.0


def knots(orders: Array, deviation: float) -> Array:
    """Choose orders between which chords are close."""
    chosen = [float(orders[0])]
    while chosen[-1] < orders[-1]:
        near = max(chosen[-1] * _LOG_STEP, chosen[-1] + _DEVIATION_STEP * deviation)
        following = int(np.searchsorted(orders, near, side="right")) - 1
        least = int(np.searchsorted(orders, chosen[-1], side="right"))
        chosen.append(float(orders[max(following, least)]))
    return np.array(chosen)


def _chained(first: RenyiCurve, a: int, second: RenyiCurve, b: int) -> RenyiCurve:
    """Compose a moves and b moves into a chain, with the best p of a grid around that of curves linear in α."""

    def at(curve: RenyiCurve, orders: Array) -> Array:
        known = np.isfinite(curve.values)
        if not np.any(known):
            return np.full(orders.shape, np.inf)
        inside = (orders >= curve.orders[0]) & (orders <= curve.orders[known][-1])
        chord = np.interp(orders, curve.orders[known], ((curve.orders - 1.0) * curve.values)[known])
        below = np.where(orders < curve.orders[0], curve.values[0], np.inf)  # a divergence grows with its order
        return np.where(inside, chord / (orders - 1.0), below)

    def value_at(orders: Array) -> Array:
        best = np.full(orders.shape, np.inf)
        for factor in 2.0 ** np.arange(-4.0, 4.25, 0.25):
            p = 1.0 + factor * (orders - 1.0) / orders * b / a
            q = p / (p - 1.0)
            total = (orders - 1.0 / p) / (orders - 1.0) * at(first, p * orders) + at(second, q * (orders - 1.0 / p))
            best = np.minimum(best, total * (1.0 + 1e-12))
        return best

    return RenyiCurve.of(value_at)


@lru_cache(maxsize=64)
def label_profile(noise: IntegerNoise, *, moved: int = 1) -> PrivacyProfile | None:
    """Bound δ as a function of ε for the label of a noisy maximum, as `label_curve` does; None for wide noise.

    Of Gaussian noise it is that of the noisy counts: the best test between them, a half-space, is "a beats b". Several
    moved votes, which need not be of the same two classes, are a group: δ_t(tε) ≤ δ(ε)·(1 + e^ε + … + e^{(t−1)ε}).

    >>> profile = label_profile(DiscreteGaussian(10.0))
    >>> round(profile.delta_at(0.1), 3), round(profile.epsilon_at(1e-5), 2)
    (0.021, 0.5)
    """
    checks.integer_at_least(1, moved=moved)
    if noise.deviation > _LARGEST_DEVIATION:
        return None
    if isinstance(noise, DiscreteGaussian) and moved == 1:
        return _gaussian_profile(noise.sigma)
    if moved > 1:
        return _group(label_profile(noise), moved)
    if noise.deviation > _PROFILED_UP_TO:
        return None
    laws = TwoClasses(noise)
    pure = 2.0 * noise.gamma if isinstance(noise, DiscreteLaplace) else np.inf
    scale = 1.0 / noise.deviation
    tried = np.linspace(0.0, min(pure, 20.0 * scale + 8.0 * scale**2), _FEW_POINTS)
    reached = int(np.argmax(np.append(estimate(laws, HockeyStick(tried)), 0.0) < _LEAST_DELTA))
    grid = np.linspace(0.0, tried[min(reached, tried.size - 1)], _FEW_POINTS)
    deltas = np.minimum(1.0, np.maximum.accumulate(supremum(laws, HockeyStick(grid))[::-1])[::-1])
    if np.isfinite(pure):
        grid, deltas = np.append(grid[grid < pure], pure * (1.0 + 1e-12)), np.append(deltas[grid < pure], 0.0)
    return PrivacyProfile(tuple(grid.tolist()), tuple(deltas.tolist()))


def _gaussian_profile(sigma: float) -> PrivacyProfile:
    # The privacy loss is (D + 1)/σ² with the D of `MovedVote`.
    law = MovedVote(sigma)
    masses = np.exp(law.log_masses)
    losses = (np.arange(law.first, law.last + 1) + 1) / sigma**2
    grid = np.linspace(0.0, min((11.0 * sigma + 1.0) / sigma**2, 0.9 * LARGEST_EXPONENT), _POINTS)
    deltas = np.array([np.sum(masses * -np.expm1(np.minimum(epsilon - losses, 0.0))) for epsilon in grid])
    return PrivacyProfile(tuple(grid.tolist()), tuple(np.minimum(1.0, deltas * (1.0 + 1e-11) + 1e-15).tolist()))


def _group(one: PrivacyProfile | None, moved: int) -> PrivacyProfile | None:
    """Bound the profile of a chain of moves, each within ``one``; None where its ε are beyond all that is bounded."""
    if one is None:
        return None
    epsilons, deltas = (each[moved * one.arrays()[0] < LARGEST_EXPONENT] for each in one.arrays())
    if epsilons.size < 2:
        return None
    factors = np.append(float(moved), np.expm1(moved * epsilons[1:]) / np.expm1(epsilons[1:])) * (1.0 + 1e-12)
    bounds = np.minimum.accumulate(np.minimum(1.0, deltas * factors))
    return PrivacyProfile(tuple((moved * epsilons * (1.0 + 1e-15)).tolist()), tuple(bounds.tolist()))


def exponential_label_curve(epsilon: float, *, moved: int = 1, rate: float = 1.0) -> RenyiCurve:
    """Compute the Rényi curve of the exponential mechanism whose answers are (ε, 0)-private for one moved vote.

    A moved vote changes the weights of a and b by e^{∓ε/2}: Pr[after] = Pr[before]·r/E r, with r one of e^{−ε/2}, 1 and
    e^{ε/2}, and exp((α − 1)·D_α) = E[r^{1−α}]·(E r)^{α−1}. Spreading the mass at r = 1 over the other two at equal E r
    raises E[r^{1−α}], as it does every convex function: two classes are the worst. With u = Pr[r = e^{−ε/2}] the
    logarithm is concave in u, and largest at u = (1/(1 − e^{−ε}) − (α − 1)/(e^{(α−1)ε} − 1))/α; t moves are one of tε.
    Gumbel noise on the votes gives the same law. Of a vote that moves with probability ``rate`` only, two classes are
    the worst as well: what each adds rises or falls in u, and is taken at the larger end of each of many cells.

    At order 2 it costs 0.2402, randomized response with the same ε 0.7353:

    >>> at_two = DEFAULT_ORDERS == 2.0
    >>> [float(curve.values[at_two][0].round(4)) for curve in (exponential_label_curve(1.0), RenyiCurve.of_pure(1.0))]
    [0.2402, 0.7353]
    """
    checks.positive(epsilon=epsilon)
    checks.integer_at_least(1, moved=moved)
    whole = moved * epsilon
    if rate < 1.0:
        return _lower(_drawn_exponential(whole, rate), RenyiCurve.of_pure(amplified_pure(whole, rate)))

    def value_at(orders: Array) -> Array:
        less = orders - 1.0
        with np.errstate(over="ignore"):
            u = np.clip((1.0 / -np.expm1(-whole) - less / np.expm1(less * whole)) / orders, 1e-300, 1.0)
        # E r over e^{ε/2} and E r^{1−α} over e^{(α−1)ε/2}
        logs = less * np.log1p(u * np.expm1(-whole)) + np.log(u + (1.0 - u) * np.exp(-less * whole)) + less * whole
        rounding = 2.0**-48 * (1.0 + less * whole)
        return np.asarray(np.minimum(np.maximum(logs, 0.0) + rounding, less * whole) / less)

    return _lower(RenyiCurve.of(value_at), RenyiCurve.of_pure(whole))


def _drawn_exponential(epsilon: float, rate: float) -> RenyiCurve:
    """Bound the label of two classes, a with probability u and losing a vote, cell by cell of u."""
    tails = np.geomspace(1e-6, 0.5, _CELLS)
    u = np.concatenate([[0.0], tails, 1.0 - tails[-2::-1], [1.0]])
    with np.errstate(divide="ignore"):  # where e^{−ε} is less than floats tell from 0
        rises = np.minimum(epsilon, -np.log1p(u * np.expm1(-epsilon)))  # log r of b
    falls = -np.log(u + (1.0 - u) * np.exp(epsilon))  # of a

    def value_at(orders: Array) -> Array:
        a = orders[:, None]
        losing, winning = (drawn_penalties(log_ratio, a, rate) for log_ratio in (falls, rises))
        sides = [u[1:] * lost[:, :-1] + (1.0 - u[:-1]) * won[:, 1:] for lost, won in zip(losing, winning, strict=True)]
        with np.errstate(over="ignore"):
            worst = np.max(np.maximum(*sides), axis=1) * (1.0 + 1e-9) + 1e-15
        return np.asarray(np.log1p(worst) / (orders - 1.0))

    return RenyiCurve.of(value_at)


def exponential_label_profile(epsilon: float, *, moved: int = 1) -> PrivacyProfile:
    """Compute the privacy profile of the exponential mechanism whose answers are (ε, 0)-private for one moved vote.

    δ(x) = max_u u − e^x·u/(u + (1 − u)e^ε) = (1 − e^{(x − ε)/2})²/(1 − e^{−ε}): as in `exponential_label_curve`, the
    hockey stick E[max(0, 1 − e^x·r/E r)] is convex in r. Randomized response, the worst (ε, 0)-private mechanism:

    >>> round(exponential_label_profile(1.0).deltas[0], 4), round(float(np.tanh(0.5)), 4)
    (0.2449, 0.4621)
    """
    checks.positive(epsilon=epsilon)
    checks.integer_at_least(1, moved=moved)
    whole = moved * epsilon
    grid = np.linspace(0.0, whole, _POINTS)
    deltas = np.expm1((grid - whole) / 2.0) ** 2 / -np.expm1(-whole) * (1.0 + 1e-12)
    return PrivacyProfile(tuple(grid.tolist()), tuple(np.minimum(deltas, 1.0).tolist()))
