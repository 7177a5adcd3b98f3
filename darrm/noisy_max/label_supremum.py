"""The supremum of a label's divergence when only two classes matter, bounded from above by branch and bound.

**Three outcomes.** Let i be the votes of class a above the least count that beats the others, and j the same for b; a
tie with the others enters through i and j. With independent noises, A = i + X_a and B = j + X_b, the label is

    a  if A ≥ 0 and A > B,    b  if B ≥ 0 and B > A,    another class if A < 0 and B < 0,

and a tie A = B ≥ 0 goes to a (z = 0) or to b (z = 1). Three functions of the noise give all probabilities,

    G(t) = Pr[X ≤ t],    F(i) = Pr[X ≥ −i],    S(i, j) = Pr[A ≥ 0, A ≥ B] = Σ_{w ≥ −i} f(w)·G(w + i − j):

    Pr[a] = S(i, j + z),    Pr[b] = S(j, i + 1 − z),    Pr[other] = G(−i − 1)·G(−j − 1).

S is a sum of positive numbers, so its rounding is relative. One vote from a to b moves (i, j) to (i − 1, j + 1).

**Theorem (monotone losses).** Let the noise be log-concave and L_o = log Pr[o | before]/Pr[o | after] for o = a, b,
other. All three are non-increasing in i and non-decreasing in j and z. Pr[a] grows in i and falls in j and z, Pr[b] the
other way round, and Pr[other] falls in both.

**Branch and bound.** For q_o = Pr[o | after] both Σ q_o = 1 and Σ q_o·e^{L_o} = 1. With
φ(L) = e^{αL} − 1 − α(e^L − 1) ≥ 0, which falls for L < 0 and rises for L > 0, exp((α − 1)·D_α) = 1 + Σ q_o·φ(L_o); the
hockey stick is Σ q_o·φ(L_o) with φ(L) = max(0, e^L − e^ε). On a block of (i, j) and both z each q_o and each φ(L_o) is
largest at a corner, which bounds all points. A block is finished when its bound exceeds the best known value by less
than the tolerance; others are halved, down to single (i, j), whose two corners are its two points. Whenever the search
ends, the largest bound of a finished or remaining block is valid.

`docs/theory/plurality.md` proves the theorem, and bounds places outside the blocks: beyond −`left` and `right`, where
f is tiny, and for i and j above `near`, where the third outcome nearly vanishes and blocks of a line are enough. **The
noise must have tails in which v(w + 1)/v(w) does not grow**, v(w) = log f(w)/f(w + 1), on both sides beyond `left` and
`right`: true for e^{−|x/s|^p} with p ≥ 1, and for linear log f.

(`tests/noisy_max/test_label_cost.py`, `test_subsampled_supremum.py`)
"""

import math
from functools import reduce
from typing import ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from darrm.loss.amplification import subsampled_penalties
from darrm.noisy_max.noise_law import Integers, find_reach
from darrm.numerics import Array
from darrm.numerics.integer_noise import IntegerNoise

SMALL, TINY = 7.0, 40.0  # −log of the mass beyond `TwoClasses.near`, and beyond `left` and `right`
_NEGLIGIBLE = 38.0  # −log of a tail that is cut off, relative to the smallest tail in use
_AT_ONCE = 1 << 17  # numbers in one block of diagonals: a megabyte, which fits the cache
TOLERANCE, DELTA_TOLERANCE = 0.007, 0.02  # relative, of a divergence and of a δ above the best known value
_MOST_BLOCKS = 1 << 18  # at a time; bounds memory, and the time of a call
_COMPARED = 16  # blocks of each round whose values are computed, for the best known value
_LARGEST_LOG, _LEAST_LOG = 700.0, -690.0  # of floats, and of sums whose smaller terms underflow harmlessly
_ROUNDING = 2.0**-47  # absolute, of sums of a few terms of size 1, and all probabilities below e^{−39}


class TwoClasses:
    """F, G and S of one noise; ``tiny`` is −log of the mass beyond `left` and `right`: products have to be floats."""

    def __init__(self, noise: IntegerNoise, tiny: float = TINY) -> None:
        self.noise, self.tiny = noise, tiny
        # the least numbers of votes r, about, with Pr[X ≥ r] and Pr[X ≤ −r] at most e^{−tiny}, and the latter e^{−7}
        self.right, self.left = find_reach(noise, +1, tiny), find_reach(noise, -1, tiny)
        self.near = find_reach(noise, -1, SMALL)
        # sums run over the support; the rest is below e^{−38} of the tails just beyond `left` and `right`
        low, high = _NEGLIGIBLE - noise.log_weights(np.array([-self.left - 2, self.right + 2]))
        self.support = np.arange(-find_reach(noise, -1, float(low)), find_reach(noise, +1, float(high)) + 1)
        self._log_total = float(np.logaddexp.reduce(noise.log_weights(self.support)))
        self.masses = np.exp(self.log_masses(self.support))
        self._below = np.cumsum(self.masses)
        with np.errstate(divide="ignore"):
            self._logs_below = np.concatenate([[-np.inf], np.log(self._below), [0.0]])
            self._logs_above = np.concatenate([[0.0], np.log(np.cumsum(self.masses[::-1])[::-1]), [-np.inf]])
        # bounds the error of each log-probability: sums of n positive numbers, whose logs err by 2^-50 of 300
        self.rounding = float(self.support.size * 2.0**-53 + 1e-12)

    def log_masses(self, points: Integers) -> Array:
        return np.asarray(self.noise.log_weights(points) - self._log_total)

    def log_G(self, points: Integers) -> Array:
        """Log Pr[X ≤ t] elementwise."""
        return np.asarray(self._logs_below[np.clip(points - self.support[0] + 1, 0, self.support.size + 1)])

    def log_F(self, points: Integers) -> Array:
        """Log Pr[X ≥ −i] elementwise."""
        return np.asarray(self._logs_above[np.clip(-points - self.support[0] + 1, 0, self.support.size + 1)])

    def log_S(self, i: Integers, j: Integers) -> Array:
        size = self.support.size
        least, most = min(int(np.min(i - j)), 0), max(int(np.max(i - j)), 0)
        met = np.bincount(i - j - least) > 0
        diagonals = np.flatnonzero(met)  # relative to `least`
        windows = sliding_window_view(np.concatenate([np.zeros(-least), self._below, np.ones(most)]), size)
        start = np.clip(-i - self.support[0], 0, size - 1)
        begins = np.bincount(start) > 0
        starts, place = np.flatnonzero(begins), (np.cumsum(begins) - 1)[start]
        low, high = int(starts[0]), int(starts[-1])  # all sums begin between the two
        which = (np.cumsum(met) - 1).astype(np.uint16 if diagonals.size < 1 << 16 else np.int64)[i - j - least]
        order = np.argsort(which, kind="stable")  # a radix sort for 16 bits
        ends = np.concatenate([[0], np.cumsum(np.bincount(which))])
        sums = np.empty(i.shape)
        rows = max(1, _AT_ONCE // size)
        for top in range(0, diagonals.size, rows):
            below = windows[diagonals[top : top + rows]]  # row d − least: G(w + d)
            beyond = below[:, high:] @ self.masses[high:]
            between = below[:, low:high] * self.masses[low:high]
            if low < high:  # few different starts: add up the terms between two of them first
                between = np.add.reduceat(between, starts[:-1] - low, axis=1)
            tails = np.cumsum(np.column_stack([beyond, between[:, ::-1]]), axis=1)
            here = order[ends[top] : ends[min(top + rows, diagonals.size)]]
            sums[here] = tails[which[here] - top, starts.size - 1 - place[here]]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(sums))

    def moved(self, i: Integers, j: Integers, z: int) -> tuple[Array, Array, Array, Array]:
        """Compute log Pr[a] before and after a move, then log Pr[b]; z = 1: ties go to b."""
        one, other = (i, i - 1, j, j + 1), (j + z, j + 1 + z, i + 1 - z, i - z)  # many diagonals coincide
        p_a, q_a, p_b, q_b = np.split(self.log_S(np.concatenate(one), np.concatenate(other)), 4)
        return p_a, q_a, p_b, q_b


class Measure:
    """Several divergences at once, each Σ q·φ(L) over the outcomes."""

    size: int  # the number of divergences
    most_summed: ClassVar[int] = 1 << 27  # numbers along diagonals for one size of blocks: bounds the time of a call

    def penalty(self, losses: Array, index: int) -> Array:
        """Compute φ(L); ∞ beyond the floats."""
        raise NotImplementedError

    def log_most(self, losses: Array, _index: int) -> Array:
        """Bound log φ(L), where φ(L) is no float."""
        return losses

    def enough(self, values: Array) -> Array:
        """Compute from the best known values the bounds at which a block is finished."""
        return np.asarray(np.expm1((1.0 + TOLERANCE) * np.log1p(values)))

    def outside(self, laws: TwoClasses, bits: Array) -> Array:
        """Bound the contribution of places outside the blocks, given the supremum ``bits`` of single bits."""
        raise NotImplementedError


class Renyi(Measure):
    """exp((α − 1)·D_α) − 1 at several orders."""

    def __init__(self, orders: Array, deviation: float) -> None:
        self.orders, self.deviation, self.size = orders, deviation, orders.size

    def penalty(self, losses: Array, index: int) -> Array:
        order = self.orders[index]
        return np.asarray(np.expm1(order * losses) - order * np.expm1(np.minimum(losses, _LARGEST_LOG / order)))

    def log_most(self, losses: Array, index: int) -> Array:
        return np.asarray(self.orders[index] * losses)

    def enough(self, values: Array) -> Array:
        # large orders need more blocks, and matter for few answers only, for which the profile is the better bound
        tolerance = TOLERANCE * np.maximum(1.0, self.orders / (2.0 * self.deviation)) ** 2
        return np.asarray(np.expm1((1.0 + tolerance) * np.log1p(values)))

    def outside(self, laws: TwoClasses, bits: Array) -> Array:
        right, left = _tail(laws, self.orders, +1), _tail(laws, self.orders, -1)
        gamma = 1.0 + bits
        with np.errstate(over="ignore", invalid="ignore"):
            added = left * (1.0 + np.exp(log_moved(laws, self.orders, +1))) + right * gamma
            added += _ROUNDING * (gamma + self.orders)
        return np.where(np.isnan(added), np.inf, added)


class SubsampledRenyi(Measure):
    """exp((α − 1)·D_α) − 1 for a vote that moves with probability q: from the mixture, then in the other direction.

    Outside the blocks one outcome has all but e^{−39} of the probability, or two outcomes are one bit. Another outcome,
    of probabilities a and b, adds at most min(q, 2^{α−1}q^α) times its contribution for a certain move, plus 2^{α−1}a,
    as f(1 − q + qr) ≤ q·f(r) and (1 + qr)^α ≤ 2^{α−1}(1 + (qr)^α); in the other direction at most (α − 1)qb + ((1 −
    q)^{1−α} − 1)a.
    """

    def __init__(self, orders: Array, deviation: float, rate: float) -> None:
        self.orders, self.deviation, self.rate, self.size = orders, deviation, rate, 2 * orders.size

    def penalty(self, losses: Array, index: int) -> Array:
        side, place = divmod(index, self.orders.size)
        return subsampled_penalties(np.minimum(losses, _LARGEST_LOG), self.orders[place], self.rate)[side]

    def log_most(self, losses: Array, index: int) -> Array:
        side, place = divmod(index, self.orders.size)
        order, log_t = self.orders[place], losses + np.log(self.rate)  # t = q(e^L − 1) ≤ qe^L; penalty ≤ (1 + t)^α
        return np.asarray(np.log(order) + log_t if side else order * np.logaddexp(0.0, log_t))

    def outside(self, laws: TwoClasses, bits: Array) -> Array:
        always = Renyi(self.orders, self.deviation)
        halves, mass = 2.0 ** (self.orders - 1.0), np.exp(-laws.tiny + 2.0)
        share = np.minimum(self.rate, halves * self.rate**self.orders)
        forward = share * always.outside(laws, _one_bit(laws, always)) + halves * mass
        least = mass * (self.orders + (1.0 - self.rate) ** (1.0 - self.orders))
        return np.concatenate([forward, least]) + _ROUNDING * (bits + 1.0 + np.tile(self.orders, 2))


class HockeyStick(Measure):
    """δ at several ε."""

    most_summed = 1 << 26  # at ε near 0 one class far behind is the worst: many diagonals, little gain

    def __init__(self, epsilons: Array) -> None:
        self.epsilons, self.size = epsilons, epsilons.size

    def penalty(self, losses: Array, index: int) -> Array:
        epsilon = self.epsilons[index]
        return np.asarray(np.exp(epsilon) * np.expm1(np.clip(losses - epsilon, 0.0, _LARGEST_LOG - epsilon)))

    def enough(self, values: Array) -> Array:
        return (1.0 + DELTA_TOLERANCE) * values

    def outside(self, _laws: TwoClasses, _bits: Array) -> Array:
        """Bound it by rounding: the tails are below e^{−39}."""
        return np.full(self.size, _ROUNDING)


def supremum(laws: TwoClasses, measure: Measure, votes: int | None = None) -> Array:
    """Bound sup Σ q·φ(L) over all (i, j, z), for each divergence.

    With K ``votes`` a is at most K ahead of b before and K behind after the move, a tie with the others may add one to
    i or j: 1 − K ≤ i − j ≤ K + 1.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # unknown values count as ∞
        bits = _one_bit(laws, measure)
        best = np.zeros(measure.size)
        apart = laws.left + laws.right
        leads = (-apart, apart) if votes is None else (max(-apart, 1 - votes), min(apart, votes + 1))
        far = _branched(laws, measure, best, leads, far=True) + 2.0 * bits * np.exp(laws.log_G(np.array([-laws.near])))
        close = _branched(laws, measure, best, leads, far=False)
        return np.asarray(np.maximum(np.maximum(close, far), bits) + measure.outside(laws, bits))


def threshold_supremum(laws: TwoClasses, measure: Measure) -> Array:
    """Bound sup Σ q·φ(L) of one count against a threshold."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        bits = _one_bit(laws, measure)
        return np.asarray(bits + measure.outside(laws, bits))


def estimate(laws: TwoClasses, measure: Measure, *, every: int = 1) -> Array:
    """Compute the largest Σ q·φ(L) on a grid, from below; ``every`` = 4 first on every fourth line."""
    step = max(1, laws.right // 60)
    first, last = -2 * laws.right // step // 5, (laws.near + laws.right) // step - 1
    places = np.indices((-(-(last + 1 - first) // every),) * 2).reshape(2, -1) * every + first
    around = np.indices((2 * every + 1,) * 2).reshape(2, 1, -1) - every
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for _ in range(min(every, 2)):
            i, j = places * step
            likely = (np.minimum(i, j) < laws.right // 2) & (np.abs(i - j) <= laws.right)
            likely &= (np.min(places, axis=0) >= first) & (np.max(places, axis=0) <= last)
            places = places[:, likely]
            table = _table(laws, i[likely], j[likely], 0)
            values = [_values(table, measure, index) for index in range(measure.size)]
            best = places[:, np.unique([np.nanargmax(one) for one in values])]
            places = (best[:, :, None] + around).reshape(2, -1)
        return np.array([np.nanmax(one) for one in values])


def _table(laws: TwoClasses, i: Integers, j: Integers, z: int) -> tuple[tuple[Array, Array], ...]:
    """Compute log-probabilities after the move, and losses, of a, b and other."""
    p_a, q_a, p_b, q_b = laws.moved(i, j, z)
    i, j = np.minimum(i, laws.left), np.minimum(j, laws.left)
    below_i, below_j = laws.log_G(-i), laws.log_G(-j - 2)
    other = laws.log_G(-i - 1) - below_i + laws.log_G(-j - 1) - below_j
    return (q_a, p_a - q_a), (q_b, p_b - q_b), (below_i + below_j, other)


def _values(
    table: tuple[tuple[Array, Array], ...], measure: Measure, index: int, at: Integers | slice = slice(None)
) -> Array:
    return np.asarray(sum(_added(measure, index, log[at], loss[at]) for log, loss in table))


def _added(measure: Measure, index: int, log_after: Array, losses: Array) -> Array:
    """Compute q·φ(L), or a bound if φ(L) overflows; NaN if q is too small."""
    penalty = measure.penalty(losses, index)
    added = np.exp(log_after) * penalty
    large = np.isinf(penalty)
    if large.any():
        most = np.exp(log_after + measure.log_most(losses, index))
        added = np.where(large, np.where(log_after > _LEAST_LOG, most, np.nan), added)
    return np.asarray(added)


class _Blocks:
    """Blocks of places and both z; losses of a and b fall from the corner `high` to `low`, up to ``farther``."""

    def __init__(self, laws: TwoClasses, places: Integers, sides: tuple[int, int], farther: float) -> None:
        i, j = places
        self.low, self._margin = _table(laws, i + sides[0] - 1, j, 0), 4.0 * laws.rounding
        high, self._farther = _table(laws, i, j + sides[1] - 1, 1), farther + self._margin
        self._other = laws.log_G(-np.minimum(i, laws.left)) + laws.log_G(-np.minimum(j, laws.left) - 2)
        # the corners of a single (i, j) are its points
        self._corners = [(self.low, self.low), (high, high)] if sides == (1, 1) else [(self.low, high)]

    def bounds(self, measure: Measure, index: int, at: Integers) -> Array:
        """Bound Σ q·φ(L) in some of the blocks; ∞ if unknown."""
        bounds = []
        for low, high in self._corners:
            a = _added(measure, index, low[0][0][at], high[0][1][at] + self._farther)
            b = _added(measure, index, high[1][0][at], low[1][1][at] - self._farther)
            least = _added(measure, index, self._other[at], low[2][1][at] - self._margin)
            most = _added(measure, index, self._other[at], high[2][1][at] + self._margin)
            bound = (a + b + np.maximum(least, most)) * (1.0 + self._margin)
            bounds.append(np.where(np.isnan(bound), np.inf, bound))
        return reduce(np.maximum, bounds)


def _branched(laws: TwoClasses, measure: Measure, best: Array, leads: tuple[int, int], *, far: bool) -> Array:
    # Blocks of the plane, or of the line with i and j ``far`` above `near`.
    least, most = leads
    end = laws.near + laws.left - least  # both are above it on the line
    side = 1 << int(math.log2(max(1.0, laws.noise.deviation)))
    columns = np.arange(least + end, most + end + 1, side) if far else np.arange(-laws.right, laws.near + most, side)
    places = np.array([grid.ravel() for grid in np.meshgrid(columns, [end] if far else columns)])
    active = np.ones((measure.size, places.shape[1]), dtype=bool)
    farther = _farther(laws) if far else 0.0
    bound = np.zeros(measure.size)
    while True:
        i, j = places
        inside = (i - j < most + side) & (j - i < side - least) & active.any(axis=0)
        if not far:
            inside &= np.minimum(i, j) < laws.near
        places, active = places[:, inside], active[:, inside]
        i, j = places
        blocks = _Blocks(laws, places, (side, 1 if far else side), farther)
        left = _finish_blocks(blocks, measure, active, best, bound)
        for index in np.argsort(-active.sum(axis=1)):  # too many blocks: those with the most keep their bound
            if _affordable(laws, measure, i - j, np.any(active, axis=0)):
                break
            bound[index] = max(bound[index], left[index])
            active[index] = False
        if not (side > 1 and active.any()):
            return np.maximum(bound, left)
        side //= 2
        steps = [(0, 0), (side, 0)] if far else [(0, 0), (side, 0), (0, side), (side, side)]
        places = np.concatenate([places + np.array(step)[:, None] for step in steps], axis=1)
        active = np.concatenate([active] * len(steps), axis=1)


def _finish_blocks(blocks: _Blocks, measure: Measure, active: NDArray[np.bool_], best: Array, bound: Array) -> Array:
    """Update the best values, move finished blocks to ``bound``, return the largest bounds left."""
    left = np.zeros(measure.size)
    for index, here in enumerate(active):
        at = np.flatnonzero(here)
        if not at.size:
            continue
        bounds = blocks.bounds(measure, index, at)
        likely = at[np.argpartition(bounds, -min(_COMPARED, at.size))[-_COMPARED:]]
        best[index] = np.fmax(best[index], np.fmax.reduce(_values(blocks.low, measure, index, likely)))
        done = bounds <= measure.enough(best)[index]
        here[at[done]] = False
        bound[index] = np.max(bounds, where=done, initial=bound[index])
        left[index] = np.max(bounds, where=~done, initial=0.0)
    return left


def _affordable(laws: TwoClasses, measure: Measure, diagonals: Integers, active: NDArray[np.bool_]) -> bool:
    blocks, met = int(np.count_nonzero(active)), int(np.unique(diagonals[active]).size)
    return 4 * blocks <= _MOST_BLOCKS and 8 * met * laws.support.size <= measure.most_summed


def _farther(laws: TwoClasses) -> float:
    """Bound the excess of L_a at i ≥ `near` over its limit: −log(1 − f(−near)/Pr[X ≥ −near])."""
    near = np.array([laws.near])
    return float(-np.log1p(-np.exp(laws.log_masses(-near) - laws.log_F(near)))[0])


def _one_bit(laws: TwoClasses, measure: Measure) -> Array:
    """Bound the supremum for one class against a threshold, growing or falling by one."""
    step = max(1, int(laws.noise.deviation / 128.0))
    first = np.arange(-laws.right - 1, laws.left + 2, step)
    last = first + step - 1
    margin = 4.0 * laws.rounding

    def wins(i: Integers) -> Array:
        return laws.log_F(i) - laws.log_F(i - 1)

    def loses(i: Integers) -> Array:
        return laws.log_G(-i - 1) - laws.log_G(-i)

    logs = np.array([laws.log_F(last - 1), laws.log_G(-first), laws.log_F(last + 1), laws.log_G(-first - 2)])
    losses = np.array([wins(first), loses(last), -wins(first + 1), -loses(last + 1)])
    losses += np.array([margin, -margin, -margin, margin])[:, None]
    bits = np.zeros(measure.size)
    for index in range(measure.size):
        wins_before, loses_before, wins_after, loses_after = _added(measure, index, logs, losses)
        bits[index] = np.max([wins_before + loses_before, wins_after + loses_after]) * (1.0 + margin)
    return np.where(np.isnan(bits), np.inf, bits)


def _tail(laws: TwoClasses, orders: Array, sign: int) -> Array:
    """Bound T_r(right) or T_l(left), a geometric sum; ∞ if it may not converge."""
    start = laws.right if sign > 0 else laws.left
    logs = laws.log_masses(sign * np.arange(start, start + 3))
    v = -np.diff(logs)
    exponent = logs[0] + (orders - 1.0) * v[0] + 1e-9
    falls = v[0] - (orders - 1.0) * (v[1] - v[0]) - 1e-9
    return np.where(falls > 0.0, np.exp(exponent) / -np.expm1(-np.maximum(falls, 1e-300)), np.inf)


def log_moved(laws: TwoClasses, orders: Array, sign: int) -> Array:
    """Bound log Σ_w f(w)^α·f(w ± 1)^{1−α}, the cost of one noisy count, in panels: f(w)/f(w ± 1) grows with ±w."""
    outward = laws.log_masses(laws.support)[::sign]
    growth = outward[:-1] - outward[1:]
    step = max(1, int(laws.noise.deviation / 256.0))
    starts = np.arange(0, growth.size, step)
    mass = np.logaddexp.reduceat(outward[:-1], starts)
    worst = growth[np.minimum(starts + step, growth.size) - 1]
    with np.errstate(over="ignore", divide="ignore"):
        logs = np.logaddexp.reduce(mass + (orders[:, None] - 1.0) * worst, axis=1)
        # left of the support the ratio is below 1
        return np.asarray(np.logaddexp(np.logaddexp(logs, np.log(_tail(laws, orders, sign))), -60.0) + 1e-9)
