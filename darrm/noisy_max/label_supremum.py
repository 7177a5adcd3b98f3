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
_CUT_DEPTH = 38.0  # −log of a tail that is cut off, relative to the smallest tail in use
_MAX_ENTRIES = 1 << 17  # numbers in one block of diagonals: a megabyte, which fits the cache
TOLERANCE, DELTA_TOLERANCE = 0.007, 0.02  # relative, of a divergence and of a δ above the best known value
_MAX_BLOCKS = 1 << 18  # at a time: bounds the memory and the time of a call
_MAX_EVALUATED = 16  # blocks evaluated in a round, to improve the best known value
_LARGEST_LOG, _SMALLEST_LOG = 700.0, -690.0  # of floats, and of sums whose smaller terms underflow harmlessly
_ROUNDING = 2.0**-47  # absolute, of sums of a few terms of size 1, and all probabilities below e^{−39}


class TwoClasses:
    """F, G and S of one noise; ``tiny`` is −log of the mass beyond `left` and `right`, whose products are floats."""

    def __init__(self, noise: IntegerNoise, tiny: float = TINY) -> None:
        self.noise, self.tiny = noise, tiny
        # about the smallest r with Pr[X ≥ r] ≤ e^{−tiny}, Pr[X ≤ −r] ≤ e^{−tiny}, and Pr[X ≤ −r] ≤ e^{−7}
        self.right, self.left = find_reach(noise, +1, tiny), find_reach(noise, -1, tiny)
        self.near = find_reach(noise, -1, SMALL)
        # sums run over the support; the rest is below e^{−38} of the tails just beyond `left` and `right`
        low, high = _CUT_DEPTH - noise.log_weights(np.array([-self.left - 2, self.right + 2]))
        self.support = np.arange(-find_reach(noise, -1, float(low)), find_reach(noise, +1, float(high)) + 1)
        self._log_total = float(np.logaddexp.reduce(noise.log_weights(self.support)))
        self.masses = np.exp(self.log_masses(self.support))
        self._cumulative = np.cumsum(self.masses)
        with np.errstate(divide="ignore"):
            self._logs_below = np.concatenate([[-np.inf], np.log(self._cumulative), [0.0]])
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
        first, last = min(int(np.min(i - j)), 0), max(int(np.max(i - j)), 0)
        is_needed = np.bincount(i - j - first) > 0
        diagonals = np.flatnonzero(is_needed)  # relative to `first`
        windows = sliding_window_view(np.concatenate([np.zeros(-first), self._cumulative, np.ones(last)]), size)
        start = np.clip(-i - self.support[0], 0, size - 1)
        is_start = np.bincount(start) > 0
        starts, start_index = np.flatnonzero(is_start), (np.cumsum(is_start) - 1)[start]
        low, high = int(starts[0]), int(starts[-1])  # all sums begin between the two
        diagonal = (np.cumsum(is_needed) - 1).astype(np.uint16 if diagonals.size < 1 << 16 else np.int64)[i - j - first]
        order = np.argsort(diagonal, kind="stable")  # a radix sort for 16 bits
        ends = np.concatenate([[0], np.cumsum(np.bincount(diagonal))])
        sums = np.empty(i.shape)
        rows = max(1, _MAX_ENTRIES // size)
        for top in range(0, diagonals.size, rows):
            cumulative = windows[diagonals[top : top + rows]]  # row d − least: G(w + d)
            tail_sums = cumulative[:, high:] @ self.masses[high:]
            segment_sums = cumulative[:, low:high] * self.masses[low:high]
            if low < high:  # few different starts: add up the terms between two of them first
                segment_sums = np.add.reduceat(segment_sums, starts[:-1] - low, axis=1)
            tails = np.cumsum(np.column_stack([tail_sums, segment_sums[:, ::-1]]), axis=1)
            members = order[ends[top] : ends[min(top + rows, diagonals.size)]]
            sums[members] = tails[diagonal[members] - top, starts.size - 1 - start_index[members]]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(sums))

    def compute_move_logs(self, i: Integers, j: Integers, z: int) -> tuple[Array, Array, Array, Array]:
        """Compute log Pr[a] before and after a move, then log Pr[b]; z = 1: ties go to b."""
        first, second = (i, i - 1, j, j + 1), (j + z, j + 1 + z, i + 1 - z, i - z)  # many diagonals coincide
        p_a, q_a, p_b, q_b = np.split(self.log_S(np.concatenate(first), np.concatenate(second)), 4)
        return p_a, q_a, p_b, q_b


class Measure:
    """Several divergences at once, each Σ q·φ(L) over the outcomes."""

    size: int  # the number of divergences
    max_summed: ClassVar[int] = 1 << 27  # numbers along diagonals for one size of blocks: bounds the time of a call

    def penalty(self, losses: Array, index: int) -> Array:
        """Compute φ(L); ∞ beyond the floats."""
        raise NotImplementedError

    def log_bound(self, losses: Array, _index: int) -> Array:
        """Bound log φ(L), where φ(L) is no float."""
        return losses

    def compute_stop_bounds(self, values: Array) -> Array:
        """Compute the bounds at which a block is finished, from the best known values."""
        return np.asarray(np.expm1((1.0 + TOLERANCE) * np.log1p(values)))

    def bound_outside(self, laws: TwoClasses, bits: Array) -> Array:
        """Bound the contribution of places outside the blocks, given the supremum ``bits`` of single bits."""
        raise NotImplementedError


class Renyi(Measure):
    """exp((α − 1)·D_α) − 1 at several orders."""

    def __init__(self, orders: Array, deviation: float) -> None:
        self.orders, self.deviation, self.size = orders, deviation, orders.size

    def penalty(self, losses: Array, index: int) -> Array:
        order = self.orders[index]
        return np.asarray(np.expm1(order * losses) - order * np.expm1(np.minimum(losses, _LARGEST_LOG / order)))

    def log_bound(self, losses: Array, index: int) -> Array:
        return np.asarray(self.orders[index] * losses)

    def compute_stop_bounds(self, values: Array) -> Array:
        # large orders need more blocks, and matter for few answers only, for which the profile is the better bound
        tolerance = TOLERANCE * np.maximum(1.0, self.orders / (2.0 * self.deviation)) ** 2
        return np.asarray(np.expm1((1.0 + tolerance) * np.log1p(values)))

    def bound_outside(self, laws: TwoClasses, bits: Array) -> Array:
        right, left = _bound_tail(laws, self.orders, +1), _bound_tail(laws, self.orders, -1)
        gamma = 1.0 + bits
        with np.errstate(over="ignore", invalid="ignore"):
            excess = left * (1.0 + np.exp(bound_log_shift_cost(laws, self.orders, +1))) + right * gamma
            excess += _ROUNDING * (gamma + self.orders)
        return np.where(np.isnan(excess), np.inf, excess)


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

    def log_bound(self, losses: Array, index: int) -> Array:
        side, place = divmod(index, self.orders.size)
        order, log_t = self.orders[place], losses + np.log(self.rate)  # t = q(e^L − 1) ≤ qe^L; penalty ≤ (1 + t)^α
        return np.asarray(np.log(order) + log_t if side else order * np.logaddexp(0.0, log_t))

    def bound_outside(self, laws: TwoClasses, bits: Array) -> Array:
        unsampled = Renyi(self.orders, self.deviation)
        halves, mass = 2.0 ** (self.orders - 1.0), np.exp(-laws.tiny + 2.0)
        factor = np.minimum(self.rate, halves * self.rate**self.orders)
        forward = factor * unsampled.bound_outside(laws, _bound_single_bit(laws, unsampled)) + halves * mass
        reverse = mass * (self.orders + (1.0 - self.rate) ** (1.0 - self.orders))
        return np.concatenate([forward, reverse]) + _ROUNDING * (bits + 1.0 + np.tile(self.orders, 2))


class HockeyStick(Measure):
    """δ at several ε."""

    max_summed = 1 << 26  # at ε near 0 one class far behind is the worst: many diagonals, little gain

    def __init__(self, epsilons: Array) -> None:
        self.epsilons, self.size = epsilons, epsilons.size

    def penalty(self, losses: Array, index: int) -> Array:
        epsilon = self.epsilons[index]
        return np.asarray(np.exp(epsilon) * np.expm1(np.clip(losses - epsilon, 0.0, _LARGEST_LOG - epsilon)))

    def compute_stop_bounds(self, values: Array) -> Array:
        return (1.0 + DELTA_TOLERANCE) * values

    def bound_outside(self, _laws: TwoClasses, _bits: Array) -> Array:
        """Return the rounding error: the tails are below e^{−39}."""
        return np.full(self.size, _ROUNDING)


def supremum(laws: TwoClasses, measure: Measure, votes: int | None = None) -> Array:
    """Bound sup Σ q·φ(L) over all (i, j, z), for each divergence.

    With K ``votes``, a leads b by at most K before the move and trails by at most K after it. A tie with the others may
    add one to i or j, so 1 − K ≤ i − j ≤ K + 1.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # unknown values count as ∞
        bits = _bound_single_bit(laws, measure)
        best = np.zeros(measure.size)
        reach = laws.left + laws.right
        leads = (-reach, reach) if votes is None else (max(-reach, 1 - votes), min(reach, votes + 1))
        line = _search_blocks(laws, measure, best, leads, on_line=True) + 2.0 * bits * np.exp(
            laws.log_G(np.array([-laws.near]))
        )
        plane = _search_blocks(laws, measure, best, leads, on_line=False)
        return np.asarray(np.maximum(np.maximum(plane, line), bits) + measure.bound_outside(laws, bits))


def threshold_supremum(laws: TwoClasses, measure: Measure) -> Array:
    """Bound sup Σ q·φ(L) of one count against a threshold."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        bits = _bound_single_bit(laws, measure)
        return np.asarray(bits + measure.bound_outside(laws, bits))


def estimate(laws: TwoClasses, measure: Measure, *, stride: int = 1) -> Array:
    """Bound the supremum from below by the largest Σ q·φ(L) on a grid; with ``stride`` 4 first on every fourth line."""
    step = max(1, laws.right // 60)
    first_line, last_line = -2 * laws.right // step // 5, (laws.near + laws.right) // step - 1
    places = np.indices((-(-(last_line + 1 - first_line) // stride),) * 2).reshape(2, -1) * stride + first_line
    offsets = np.indices((2 * stride + 1,) * 2).reshape(2, 1, -1) - stride
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for _ in range(min(stride, 2)):
            i, j = places * step
            likely = (np.minimum(i, j) < laws.right // 2) & (np.abs(i - j) <= laws.right)
            likely &= (np.min(places, axis=0) >= first_line) & (np.max(places, axis=0) <= last_line)
            places = places[:, likely]
            table = _tabulate_outcomes(laws, i[likely], j[likely], 0)
            values = [_sum_terms(table, measure, index) for index in range(measure.size)]
            best = places[:, np.unique([np.nanargmax(row) for row in values])]
            places = (best[:, :, None] + offsets).reshape(2, -1)
        return np.array([np.nanmax(row) for row in values])


def _tabulate_outcomes(laws: TwoClasses, i: Integers, j: Integers, z: int) -> tuple[tuple[Array, Array], ...]:
    """Compute log-probabilities after the move, and losses, of a, b and other."""
    p_a, q_a, p_b, q_b = laws.compute_move_logs(i, j, z)
    i, j = np.minimum(i, laws.left), np.minimum(j, laws.left)
    log_below_i, log_below_j = laws.log_G(-i), laws.log_G(-j - 2)
    other_loss = laws.log_G(-i - 1) - log_below_i + laws.log_G(-j - 1) - log_below_j
    return (q_a, p_a - q_a), (q_b, p_b - q_b), (log_below_i + log_below_j, other_loss)


def _sum_terms(
    table: tuple[tuple[Array, Array], ...], measure: Measure, index: int, at: Integers | slice = slice(None)
) -> Array:
    return np.asarray(sum(_compute_terms(measure, index, log[at], loss[at]) for log, loss in table))


def _compute_terms(measure: Measure, index: int, log_after: Array, losses: Array) -> Array:
    """Compute q·φ(L), or a bound if φ(L) overflows; NaN if q is too small."""
    penalty = measure.penalty(losses, index)
    terms = np.exp(log_after) * penalty
    large = np.isinf(penalty)
    if large.any():
        bounds = np.exp(log_after + measure.log_bound(losses, index))
        terms = np.where(large, np.where(log_after > _SMALLEST_LOG, bounds, np.nan), terms)
    return np.asarray(terms)


class _Blocks:
    """Blocks of places and both z; losses of a and b fall from the corner `high` to `low`, up to an excess."""

    def __init__(self, laws: TwoClasses, places: Integers, sides: tuple[int, int], loss_excess: float) -> None:
        i, j = places
        self.low, self._margin = _tabulate_outcomes(laws, i + sides[0] - 1, j, 0), 4.0 * laws.rounding
        high, self._loss_excess = _tabulate_outcomes(laws, i, j + sides[1] - 1, 1), loss_excess + self._margin
        self._other_after = laws.log_G(-np.minimum(i, laws.left)) + laws.log_G(-np.minimum(j, laws.left) - 2)
        # the corners of a single (i, j) are its points
        self._corners = [(self.low, self.low), (high, high)] if sides == (1, 1) else [(self.low, high)]

    def bound_blocks(self, measure: Measure, index: int, indices: Integers) -> Array:
        """Bound Σ q·φ(L) in some of the blocks; ∞ if unknown."""
        bounds = []
        for low, high in self._corners:
            a = _compute_terms(measure, index, low[0][0][indices], high[0][1][indices] + self._loss_excess)
            b = _compute_terms(measure, index, high[1][0][indices], low[1][1][indices] - self._loss_excess)
            lower_end = _compute_terms(measure, index, self._other_after[indices], low[2][1][indices] - self._margin)
            upper_end = _compute_terms(measure, index, self._other_after[indices], high[2][1][indices] + self._margin)
            bound = (a + b + np.maximum(lower_end, upper_end)) * (1.0 + self._margin)
            bounds.append(np.where(np.isnan(bound), np.inf, bound))
        return reduce(np.maximum, bounds)


def _search_blocks(laws: TwoClasses, measure: Measure, best: Array, leads: tuple[int, int], *, on_line: bool) -> Array:
    # Search the blocks of the plane, or of the line on which i and j exceed `near`.
    low, high = leads
    end = laws.near + laws.left - low  # both are above it on the line
    side = 1 << int(math.log2(max(1.0, laws.noise.deviation)))
    columns = np.arange(low + end, high + end + 1, side) if on_line else np.arange(-laws.right, laws.near + high, side)
    places = np.array([grid.ravel() for grid in np.meshgrid(columns, [end] if on_line else columns)])
    active = np.ones((measure.size, places.shape[1]), dtype=bool)
    loss_excess = _bound_loss_excess(laws) if on_line else 0.0
    bound = np.zeros(measure.size)
    while True:
        i, j = places
        is_relevant = (i - j < high + side) & (j - i < side - low) & active.any(axis=0)
        if not on_line:
            is_relevant &= np.minimum(i, j) < laws.near
        places, active = places[:, is_relevant], active[:, is_relevant]
        i, j = places
        blocks = _Blocks(laws, places, (side, 1 if on_line else side), loss_excess)
        open_bounds = _finish_blocks(blocks, measure, active, best, bound)
        for index in np.argsort(-active.sum(axis=1)):  # too many blocks: most active ones keep their bounds
            if _is_affordable(laws, measure, i - j, np.any(active, axis=0)):
                break
            bound[index] = max(bound[index], open_bounds[index])
            active[index] = False
        if not (side > 1 and active.any()):
            return np.maximum(bound, open_bounds)
        side //= 2
        steps = [(0, 0), (side, 0)] if on_line else [(0, 0), (side, 0), (0, side), (side, side)]
        places = np.concatenate([places + np.array(step)[:, None] for step in steps], axis=1)
        active = np.concatenate([active] * len(steps), axis=1)


def _finish_blocks(blocks: _Blocks, measure: Measure, active: NDArray[np.bool_], best: Array, bound: Array) -> Array:
    """Update the best values, add finished blocks to ``bound``, and return the largest bounds of open blocks."""
    open_bounds = np.zeros(measure.size)
    for index, is_open in enumerate(active):
        indices = np.flatnonzero(is_open)
        if not indices.size:
            continue
        bounds = blocks.bound_blocks(measure, index, indices)
        likely = indices[np.argpartition(bounds, -min(_MAX_EVALUATED, indices.size))[-_MAX_EVALUATED:]]
        best[index] = np.fmax(best[index], np.fmax.reduce(_sum_terms(blocks.low, measure, index, likely)))
        is_finished = bounds <= measure.compute_stop_bounds(best)[index]
        is_open[indices[is_finished]] = False
        bound[index] = np.max(bounds, where=is_finished, initial=bound[index])
        open_bounds[index] = np.max(bounds, where=~is_finished, initial=0.0)
    return open_bounds


def _is_affordable(laws: TwoClasses, measure: Measure, diagonals: Integers, active: NDArray[np.bool_]) -> bool:
    blocks, diagonal_count = int(np.count_nonzero(active)), int(np.unique(diagonals[active]).size)
    return 4 * blocks <= _MAX_BLOCKS and 8 * diagonal_count * laws.support.size <= measure.max_summed


def _bound_loss_excess(laws: TwoClasses) -> float:
    """Bound the excess of L_a at i ≥ `near` over its limit: −log(1 − f(−near)/Pr[X ≥ −near])."""
    point = np.array([laws.near])
    return float(-np.log1p(-np.exp(laws.log_masses(-point) - laws.log_F(point)))[0])


def _bound_single_bit(laws: TwoClasses, measure: Measure) -> Array:
    """Bound the supremum for one count against a threshold, if the count gains or loses one vote."""
    step = max(1, int(laws.noise.deviation / 128.0))
    starts = np.arange(-laws.right - 1, laws.left + 2, step)
    ends = starts + step - 1
    margin = 4.0 * laws.rounding

    def win(i: Integers) -> Array:
        return laws.log_F(i) - laws.log_F(i - 1)

    def lose(i: Integers) -> Array:
        return laws.log_G(-i - 1) - laws.log_G(-i)

    logs = np.array([laws.log_F(ends - 1), laws.log_G(-starts), laws.log_F(ends + 1), laws.log_G(-starts - 2)])
    losses = np.array([win(starts), lose(ends), -win(starts + 1), -lose(ends + 1)])
    losses += np.array([margin, -margin, -margin, margin])[:, None]
    bits = np.zeros(measure.size)
    for index in range(measure.size):
        wins_before, loses_before, wins_after, loses_after = _compute_terms(measure, index, logs, losses)
        bits[index] = np.max([wins_before + loses_before, wins_after + loses_after]) * (1.0 + margin)
    return np.where(np.isnan(bits), np.inf, bits)


def _bound_tail(laws: TwoClasses, orders: Array, sign: int) -> Array:
    """Bound T_r(right) or T_l(left), a geometric sum; ∞ if it may not converge."""
    start = laws.right if sign > 0 else laws.left
    logs = laws.log_masses(sign * np.arange(start, start + 3))
    v = -np.diff(logs)
    exponent = logs[0] + (orders - 1.0) * v[0] + 1e-9
    decay = v[0] - (orders - 1.0) * (v[1] - v[0]) - 1e-9
    return np.where(decay > 0.0, np.exp(exponent) / -np.expm1(-np.maximum(decay, 1e-300)), np.inf)


def bound_log_shift_cost(laws: TwoClasses, orders: Array, sign: int) -> Array:
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
        return np.asarray(np.logaddexp(np.logaddexp(logs, np.log(_bound_tail(laws, orders, sign))), -60.0) + 1e-9)
