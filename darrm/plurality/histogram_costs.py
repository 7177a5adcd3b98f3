"""The exact Rényi curve and privacy profile of one answer of a plurality, over all pairs of neighbors.

Both are about the law as it is drawn, whole numbers over 2^53, for voters about whom nothing is promised: every pair of
neighboring histograms may occur, and by joint convexity no pair of laws on the votes is worse. For a pair with the
terms t of k_t classes, h_t before and h'_t after,

    (α − 1) D_α = log Σ_t k_t h_t^α h'_t^{1−α},        δ(ε) = Σ_t k_t (h_t − e^ε h'_t)_+.

As a function of x = e^ε the second is the largest of straight lines, one for each number of the terms with the largest
losses h_t/h'_t; so is the maximum over all pairs, whose corners hold the whole profile.
"""

from functools import partial

import numpy as np

from darrm.loss.amplification import subsampled_curve
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.loss.vote_counts import ROUNDING, profile_of_lines
from darrm.numerics import Array
from darrm.plurality.partitions import partitions_of
from darrm.plurality.plurality_law import PluralityLaw

_AT_ONCE = 2**22  # numbers of an array: orders times terms


def curve_of_law(law: PluralityLaw, reached: int, rate: float = 1.0) -> RenyiCurve:
    """Compute the largest Rényi divergence of all pairs at every order, rounded up; ∞ where an answer can vanish.

    With a ``rate`` below 1 a person is included in each query with that probability, independently.

    A voter who answers truly with probability 3/4, and each of two other ways with 1/8:

    >>> law = PluralityLaw.of_probabilities(1, 3, [0.75, 0.125])
    >>> curve = curve_of_law(law, 1)
    >>> float(curve.values[curve.orders == 2.0].round(6)[0]), round(float(np.log(6**2 / 8 + 1 / 6 / 8 + 1 / 8)), 6)
    (1.535971, 1.535971)
    """
    pairs = partitions_of(law.K, law.classes).pairs(reached)
    with np.errstate(divide="ignore"):
        logs, counts = np.log(law.each), np.log(pairs.classes)
    before, after = pairs.sides(logs, absent=-np.inf)
    impossible = np.isneginf(before)
    if rate < 1.0:
        # without the person the law is the one after the move or, as moves go both ways, the one before
        totals = partial(np.add.reduceat, indices=pairs.starts)
        return subsampled_curve(counts + before, counts + after, rate, totals)

    def value_at(orders: Array) -> Array:
        worst = np.empty(orders.size)
        for block in np.array_split(np.arange(orders.size), 1 + orders.size * before.size // _AT_ONCE):
            a = orders[block, None]
            with np.errstate(invalid="ignore"):
                powers = np.where(impossible, -np.inf, counts + a * before - (a - 1.0) * after)
            largest = np.maximum.reduceat(powers, pairs.starts, axis=1)
            with np.errstate(invalid="ignore", over="ignore"):
                scaled = np.exp(powers - np.repeat(largest, np.diff([*pairs.starts, pairs.pair.size]), axis=1))
                sums = largest + np.log(np.add.reduceat(scaled, pairs.starts, axis=1))
            sums = np.where(np.isposinf(largest), np.inf, sums)
            worst[block] = np.max(sums, axis=1) / (orders[block] - 1.0)
        # the logarithms of powers are off by a few units in the last place of their exponents
        size = float(np.max(-logs, where=np.isfinite(logs), initial=1.0))
        error = 16.0 * np.finfo(np.float64).eps * (2.0 * orders + 1.0) / (orders - 1.0) * (1.0 + size)
        return np.asarray((np.maximum(worst, 0.0) + error) * (1.0 + ROUNDING))

    return RenyiCurve.of(value_at)


def profile_of_law(law: PluralityLaw, reached: int) -> PrivacyProfile | None:
    """Compute the privacy profile at all its corners, rounded up; None if it bounds nothing, δ = 1.

    >>> law = PluralityLaw.of_probabilities(1, 3, [0.75, 0.125])
    >>> profile = profile_of_law(law, 1)
    >>> round(profile.deltas[0], 9), round(float(np.exp(profile.epsilons[-1])), 9)
    (0.625, 6.0)
    """
    pairs = partitions_of(law.K, law.classes).pairs(reached)
    # a row for each pair, a column for each of its terms, padded with 0
    place = np.arange(pairs.pair.size) - pairs.starts[pairs.pair]
    before, after = np.zeros((2, len(pairs.first), int(place.max()) + 1))
    for rows, side in zip((before, after), pairs.sides(law.each), strict=True):
        rows[pairs.pair, place] = pairs.classes * side
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(after > 0.0, np.log(before) - np.log(after), np.where(before > 0.0, np.inf, -np.inf))
    falling = np.argsort(-loss, axis=1, kind="stable")
    p, q = (np.cumsum(np.take_along_axis(each, falling, axis=1), axis=1).ravel() for each in (before, after))
    certain = float(np.max(np.sum(before, axis=1, where=np.isposinf(loss))))
    return profile_of_lines(p, q, largest=float(np.max(loss[np.isfinite(loss)], initial=0.0)), certain=certain)
