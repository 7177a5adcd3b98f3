"""Bound the cost of a label of a noisy maximum, in code that shares nothing with the prover.

Let classes a and b be i and j votes above the least noisy count that beats all others. Given the others, the label
is a, b or neither. A vote moves from a to b: (i, j) → (i − 1, j + 1). With independent noises X, f(w) = Pr[X = w],
G(t) = Pr[X ≤ t] and S(i, j) = Pr[i + X_a ≥ 0, i + X_a ≥ j + X_b] the three outcomes have the probabilities

    S(i, j + z),    S(j, i + 1 − z),    G(−i − 1)·G(−j − 1),    z = 1 where b wins ties, else 0.

Divergences are jointly convex, so the largest over all (i, j, z) bounds that of any number of classes, in both
directions (`darrm.noisy_max.label_cost` has the proof). Each is Σ q·φ(L) over the outcomes: q is after the move, L =
log p/q, and φ falls for L < 0 and rises for L > 0. The noise is log-concave, so all three L fall in i and rise in j and
z, and each q is largest at one corner of a block of (i, j, z), which bounds the block. Blocks are halved until every
bound is within `_TOLERANCE` of the largest value, or at most ``goal``. Blocks where one class leads by more votes than
there are, up to ties, are left out.

**Outside** of −R ≤ i, j ≤ 3R, |i − j| ≤ 2R. Let τ be the mass of X beyond −l or r, l and r ≤ R, and for α-divergences
A(w) = f(w)^α·f(w + 1)^{1−α}, B(w) = f(w)^α·f(w − 1)^{1−α} with sums H_A, H_B and tails beyond −l or r of at most T_A,
T_B. By Hölder's inequality an outcome that needs a pair of noises in a set adds at most Σ A(u)·B(v) over the set, so
one that needs some noise beyond −l or r adds at most T = T_A·H_B + H_A·T_B. So does an outcome of probability below
`min_probability`: with both noises within −l and r it would be likelier.

- i < −R: a needs X_a ≥ R. Then b and "neither" have p at most, and q at least 1 − τ times, that of the single bit
  "j + X_b ≥ 0", whose threshold moves by one vote. Likewise j < −R.
- |i − j| > 2R and neither of both below −R: one of a and b, and "neither", need a noise beyond ±R. The third outcome
  adds at most (1 − 2τ)^{1−α}.
- max(i, j) > 3R, |i − j| ≤ 2R: "neither" needs a noise beyond ±R, and a and b have p at most, and q at least 1 − τ
  times, those of "i + X_a ≥ j + X_b" without others (G grows, so given a win X_a below −i is less likely than without).

Single bits and pairs without others are one-dimensional. The hockey stick is bounded likewise, with τ in place of T.
Sums of positive floats are off by 2^-52 for each summand: `_Noise.rounding`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darrm.verify.verdicts import Array, Interval

Integers = NDArray[np.int64]
_TAIL_EXPONENT = 39.0  # −log of the mass beyond R
# −log of the smallest weight at ±R, and of the smallest one that is summed; then for steep noise and large orders
_SUPPORT_EXPONENTS = ((80.0, 250.0), (160.0, 400.0))
_TOLERANCE = 1e-3  # relative, of a divergence above the largest value found
_FINE_TOLERANCE, _MAX_FINE_BLOCKS = 1e-6, 1 << 15  # if ``goal`` is not refuted, and blocks are few
# blocks at once; terms along diagonals, fifteen seconds; terms in memory
_MAX_BLOCKS, _MAX_SUMMED, _MAX_STORED = 1 << 20, 1 << 31, 1 << 26
_DIAGONALS_PER_BLOCK = 32  # of one block and its middle, at most
_MAX_SUPPORT = 1 << 21  # numbers of a support: noise of 100,000 votes
_ROUNDING_MARGIN = 1e-8  # relative, for roundings and for votes outside the box
_DELTA_ERROR = 1e-15  # of a δ: near the resolution of floats
_FLOAT_ERROR = 1e-9  # relative: probabilities are off by 2^-53, losses by 2^-50
_MAX_EXPONENT = 700.0  # of the largest float
_TIE_VOTES = 1  # by which i − j may differ from the lead before the move: ties with the best of the others
_MAX_DEVIATIONS = 32.0  # of one noise: the difference of two is larger with probability e^{−256}
_WEIGHT_ERROR = 1e-12  # relative, of f; errors of sums are separate
_MIN_SLOPE, _MAX_END_WEIGHT = 1e-4, 1e-25  # of truncated tails: the rest adds e^{−48} at most


class TooWideError(ValueError):
    """The noise is too wide, or the order too large."""


@dataclass(frozen=True)
class RenyiPenalty:
    """exp((α − 1)·D_α) − 1 = Σ q·φ(L) of P = (1 − r)·q + r·p and q, or of q and P if ``is_reversed``.

    For r = 1, φ(L) = e^{αL} − 1 − α(e^L − 1). φ is convex in e^L, and at most r times the φ of p and q, or of q and p:
    the bound outside the box holds.
    """

    order: float
    rate: float = 1.0
    is_reversed: bool = False

    def weigh(self, losses: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            t = self.rate * np.expm1(losses)
            order = 1.0 - self.order if self.is_reversed else self.order
            values = np.expm1(order * (losses if self.rate == 1.0 else np.log1p(t))) - order * t
        return np.asarray(np.where(np.isnan(values), np.inf, np.maximum(values, 0.0)))

    def convert(self, cost: float) -> float:
        return math.expm1(min((self.order - 1.0) * cost, _MAX_EXPONENT))

    def bound_outside(self, noise: "_Noise", inner_cost: float) -> float:
        """Bound the cost outside the box, if no bit and no pair without others costs more than ``inner_cost``."""
        factor = math.expm1(-(self.order - 1.0) * math.log1p(-2.0 * noise.tail_mass))
        return inner_cost + (1.0 + inner_cost) * factor + 2.0 * noise.bound_tilted_tails(self.order)


@dataclass(frozen=True)
class _HockeyStick:
    """δ at ε: Σ q·φ(L) with φ(L) = max(0, e^L − e^ε)."""

    epsilon: float

    def weigh(self, losses: Array) -> Array:
        return np.asarray(np.maximum(0.0, np.exp(np.minimum(losses, _MAX_EXPONENT)) - math.exp(self.epsilon)))

    def convert(self, cost: float) -> float:
        return cost

    def bound_outside(self, noise: "_Noise", inner_cost: float) -> float:
        return inner_cost + (2.0 + 2.0 * math.exp(self.epsilon)) * noise.tail_mass


_Penalty = RenyiPenalty | _HockeyStick


def widen(value: float) -> Interval[float]:
    """Enclose a value that was computed in floats."""
    return Interval(value * (1.0 - _FLOAT_ERROR), value * (1.0 + _FLOAT_ERROR))


def gaussian(sigma: float) -> Callable[[Array], Array]:
    rate = 1.0 / (2.0 * sigma**2)
    return lambda x: -rate * x**2


def renyi_of_label(
    log_weights: Callable[[Array], Array], order: float, *, lead: float = math.inf, goal: float = 0.0, rate: float = 1.0
) -> Interval[float]:
    """Enclose the Rényi divergence of a label for one vote moved with probability ``rate``; `TooWideError` if slow.

    ``log_weights`` of the noise are log-concave, at most 0 = w(0). No class leads by more than ``lead`` votes. An upper
    end of at most ``goal`` need not be close.

    >>> cost = renyi_of_label(gaussian(40.0), 8.0)
    >>> 0.003203 < cost.lower < cost.upper < 0.003209
    True
    """
    penalties = [
        RenyiPenalty(order, rate, is_reversed=is_reversed) for is_reversed in (False, True)[: 1 + (rate < 1.0)]
    ]
    noise = _make_noise(log_weights, order)
    lows, highs = zip(*(_find_largest(noise, penalty, lead + _TIE_VOTES, goal) for penalty in penalties), strict=True)
    low, high = (math.log1p(max(sums)) / (order - 1.0) for sums in (lows, highs))
    return Interval(low * (1.0 - 1e-13), high * (1.0 + 1e-13))


def delta_of_label(
    log_weights: Callable[[Array], Array], epsilon: float, *, lead: float = math.inf, goal: float = 0.0
) -> Interval[float]:
    """See `renyi_of_label`."""
    low, high = _find_largest(_make_noise(log_weights, 1.0), _HockeyStick(epsilon), lead + _TIE_VOTES, goal)
    return Interval(max(0.0, low - _DELTA_ERROR), min(1.0, high))  # the error of differences of floats


def delta_of_gaussian_label(sigma: float, epsilon: float) -> Interval[float]:
    """Enclose the δ of a label of Gaussian noise: that of both noisy counts, whose best test is "a beats b".

    Their loss is (D + 1)/σ² of D = X_a − X_b, Pr[D = d] ∝ exp(−d²/4σ²)·Σ_x exp(−(x − d/2)²/σ²).

    >>> delta = delta_of_gaussian_label(10.0, 0.1)
    >>> 0.0209 < delta.lower < delta.upper < 0.021, delta.upper < delta.lower * (1 + 1e-9)
    (True, True)
    """
    radius = math.ceil(_MAX_DEVIATIONS * sigma) + 8
    if radius > _MAX_SUPPORT:
        raise TooWideError("noise this wide takes too long")
    points = np.arange(-radius, radius + 1).astype(np.float64)
    theta = [_add_positive(np.exp(-(((points - half) / sigma) ** 2))) for half in (0.0, 0.5)]
    law = np.exp(-((points / (2.0 * sigma)) ** 2)) * np.where(points % 2 == 0, *theta)
    losses, total = (points + 1.0) / sigma**2, _add_positive(law)
    is_larger = losses > epsilon
    delta = _add_positive(law[is_larger] * -np.expm1(epsilon - losses[is_larger])) / total
    error = _WEIGHT_ERROR * delta + 2.0**-50 * _add_positive(law[is_larger] * losses[is_larger]) / total
    return Interval(max(0.0, delta - error), min(1.0, delta + error + math.exp(-_SUPPORT_EXPONENTS[0][1])))


def _add_positive(terms: Array) -> float:
    # positive numbers, whose sum is off by 512 roundings at most
    return math.fsum(np.add.reduceat(terms, np.arange(0, terms.size, 512)).tolist()) if terms.size else 0.0


def _make_noise(log_weights: Callable[[Array], Array], order: float) -> "_Noise":
    try:
        return _Noise(log_weights, order)
    except TooWideError:
        return _Noise(log_weights, order, *_SUPPORT_EXPONENTS[1])


def find_support(log_weights: Callable[[Array], Array], smallest: float, max_width: float) -> tuple[Integers, Array]:
    """Return whole numbers up to which log w falls to −``smallest``, and log w; else `TooWideError`."""
    width = 16
    while min(-log_weights(np.array([-width, width], dtype=np.float64))) < smallest:
        width *= 2
        if width > max_width:
            raise TooWideError("noise this wide takes too long")
    points = np.arange(-width, width + 1)
    return points, log_weights(points.astype(np.float64))


class _Noise:
    def __init__(
        self,
        log_weights: Callable[[Array], Array],
        order: float,
        edge_exponent: float = _SUPPORT_EXPONENTS[0][0],
        smallest: float = _SUPPORT_EXPONENTS[0][1],
    ) -> None:
        # an outcome is rarer only if a noise is beyond −l or r
        self.edge_exponent, self.min_probability = edge_exponent, math.exp(-2.0 * edge_exponent - 6.0)
        points, logs = find_support(log_weights, smallest, _MAX_SUPPORT)
        points = points[logs >= -smallest]
        if points.size < 8:  # numbers of a support
            raise TooWideError("the noise is next to none")
        self.first, self.last = int(points[0]), int(points[-1])
        self.logs = logs[logs >= -smallest] - math.log(np.sum(np.exp(logs)))
        self.f = np.exp(self.logs)
        self.G, self.upper_tails = np.cumsum(self.f), np.cumsum(self.f[::-1])[::-1]
        self.rounding = self.f.size * 2.0**-52 + _WEIGHT_ERROR
        self._log_sums: list[float] = []  # of f, A and B
        self.radius = self._find_radius(order)
        self.tail_mass = 2.0 * math.exp(-_TAIL_EXPONENT)
        self._reversed = self.f[::-1].copy(), self.G[::-1].copy()
        self._diagonals: dict[int, Array] = {}
        self.summed_terms = 0

    def _tilt(self, order: float, step: int) -> Array:
        """Compute log f(w)^α·f(w ± 1)^{1−α}, −∞ at the end of the support."""
        neighbor_logs = np.roll(self.logs, -step)
        neighbor_logs[-1 if step > 0 else 0] = np.inf
        with np.errstate(invalid="ignore"):
            tilted = self.logs + (order - 1.0) * (self.logs - neighbor_logs)
        return np.asarray(np.where(np.isinf(neighbor_logs), -np.inf, tilted))

    def _find_radius(self, order: float) -> int:
        """Find R: beyond ±R each tail, relative to its sum, is at most e^{−39}."""
        radius = 1
        for logs in (self.logs, self._tilt(order, +1), self._tilt(order, -1)):
            top = float(np.max(logs))
            weights = np.exp(logs - top)
            # the last terms must fall fast enough that the mass beyond the support is negligible
            slopes = np.diff(logs[np.isfinite(logs)])
            if min(slopes[0], -slopes[-1]) < _MIN_SLOPE or max(weights[1], weights[-2]) > _MAX_END_WEIGHT:
                raise TooWideError(f"order {order:g} is too large for noise with these tails")
            total = float(np.sum(weights))
            self._log_sums.append(top + math.log(total))
            for direction, length in ((slice(None), -self.first), (slice(None, None, -1), self.last)):
                tail = np.cumsum(weights[direction])
                tail_length = length - int(np.searchsorted(tail, total * math.exp(-_TAIL_EXPONENT - 1.0))) + 2
                if tail_length > length or self.logs[direction][length - tail_length] < -self.edge_exponent:
                    raise TooWideError(f"order {order:g} is too large for noise with these tails, or it is too narrow")
                radius = max(radius, tail_length)
        return radius

    def bound_tilted_tails(self, order: float) -> float:
        """Bound T, and α times τ."""
        logs = self._log_sums[1] + self._log_sums[2]
        return 4.0 * math.exp(logs - _TAIL_EXPONENT) + 2.0 * order * self.tail_mass if logs < 600.0 else math.inf

    def cdf(self, t: Integers) -> Array:
        return np.asarray(np.where(t < self.first, 0.0, self.G[np.clip(t - self.first, 0, self.G.size - 1)]))

    def survival(self, t: Integers) -> Array:
        return np.asarray(np.where(t > self.last, 0.0, self.upper_tails[np.clip(t - self.first, 0, self.G.size - 1)]))

    def compute_wins(self, i: Integers, j: Integers) -> Array:
        """Compute S(i, j) elementwise, by sums along diagonals i − j that are kept."""
        chances = np.where(i > j, self.survival(-i), 0.0)
        index, inside = np.clip(self.last + i + 1, 0, self.f.size), np.flatnonzero(np.abs(i - j) < self.f.size)
        order = inside[np.argsort(i[inside] - j[inside], kind="stable")]
        gaps, starts = np.unique(i[order] - j[order], return_index=True)
        for gap, start, end in zip(gaps.tolist(), starts, [*starts[1:], order.size], strict=False):
            members = order[start:end]
            last_index = int(np.max(index[members]))
            if gap not in self._diagonals or self._diagonals[gap].size <= last_index:
                self._diagonals[gap] = self._sum_diagonal(gap, min(self.f.size, last_index + self.f.size // 16))
            chances[members] = self._diagonals[gap][index[members]]
        return chances

    def _sum_diagonal(self, gap: int, count: int) -> Array:
        """Compute Pr[X_a > last − n, X_a + gap ≥ X_b] for all n up to ``count``."""
        self.summed_terms += count
        if self.summed_terms > _MAX_SUMMED:
            raise TooWideError("noise this wide takes too long")
        if len(self._diagonals) * self.f.size > _MAX_STORED:
            self._diagonals.clear()
        sums, (weights, distribution) = np.zeros(count + 1), self._reversed
        start, end = min(max(0, gap), count), min(self.f.size + min(0, gap), count)
        sums[1 : start + 1] = weights[:start]
        sums[start + 1 : end + 1] = weights[start:end] * distribution[start - gap : end - gap]
        return np.asarray(np.cumsum(sums, out=sums))


def _find_outcomes(noise: _Noise, i: Integers, j: Integers, z: int) -> list[tuple[Array, Array]]:
    return [
        (noise.compute_wins(i, j + z), noise.compute_wins(i - 1, j + 1 + z)),
        (noise.compute_wins(j, i + 1 - z), noise.compute_wins(j + 1, i - z)),
        (noise.cdf(-i - 1) * noise.cdf(-j - 1), noise.cdf(-i) * noise.cdf(-j - 2)),
    ]


def _find_losses(p: Array, q: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(p) - np.log(q))


def _find_largest(noise: _Noise, penalty: _Penalty, lead: float, goal: float) -> tuple[float, float]:
    blocks, best, highest = _list_first_blocks(noise), 0.0, 0.0
    goal_sum = penalty.convert(goal) * (1.0 - _ROUNDING_MARGIN)
    while blocks.shape[1]:
        if blocks.shape[1] > _MAX_BLOCKS:
            raise TooWideError("too many places cost about as much")
        blocks = _drop_impossible(noise, blocks, lead)
        tolerance = _FINE_TOLERANCE if best <= goal_sum and blocks.shape[1] < _MAX_FINE_BLOCKS else _TOLERANCE
        threshold, bound_parts = max(goal_sum, best * (1.0 + tolerance)) if best else 0.0, list[Array]()
        for part in _split_by_diagonals(noise, blocks):
            bound, attained = _evaluate_blocks(noise, penalty, part, lead, threshold)
            bound_parts.append(bound)
            best = max(best, attained)
        bounds, is_single = np.concatenate(bound_parts), blocks[2] + blocks[3] == 0
        is_done = is_single | (bounds <= max(goal_sum, best * (1.0 + tolerance)))
        highest = max(highest, float(np.max(bounds[is_done], initial=0.0)))
        blocks = _halve_blocks(blocks[:, ~is_done])
    if not math.isfinite(best):
        raise TooWideError("it is more than floats hold")
    return best * (1.0 - 1e-6), penalty.bound_outside(noise, highest * (1.0 + 4.0 * noise.rounding))


def _list_first_blocks(noise: _Noise) -> Integers:
    """List (i, j, more of i, more of j) of the box, of single bits, and of pairs without others."""
    R = noise.radius
    side = max(1, R // 4)
    distance = max(noise.last - noise.first, 4 * R + 4 * side) + 2  # apart from the box
    starts = np.arange(-R, 3 * R + 1, side)
    i, j = (corner.ravel() for corner in np.meshgrid(starts, starts, indexing="ij"))
    is_near = np.abs(i - j) <= 2 * R + side
    box = np.stack([i[is_near], j[is_near], np.full(is_near.sum(), side - 1), np.full(is_near.sum(), side - 1)])
    line = np.arange(-2 * R - 2, 2 * R + 3, side)
    zero, extent = np.zeros_like(line), np.full(line.shape, side - 1)
    lowest, highest = zero - 2 * R - distance, zero + 2 * R + distance
    lines = ([lowest, line, zero, extent], [line, lowest, extent, zero], [highest, highest + line, zero, extent])
    return np.concatenate([box, *(np.stack(rows) for rows in lines)], axis=1)


def _drop_impossible(noise: _Noise, blocks: Integers, lead: float) -> Integers:
    i, j, width, height = blocks
    gap, is_single = i - j, np.abs(i - j) > 3 * noise.radius + 2
    is_possible = is_single | ((gap - height <= lead) & (gap + width >= -lead))
    return np.asarray(blocks[:, is_possible][:, np.argsort(gap[is_possible], kind="stable")])


def _split_by_diagonals(noise: _Noise, blocks: Integers) -> list[Integers]:
    """Split blocks, sorted by i − j, into parts whose diagonals fit into memory."""
    starts = np.unique(blocks[0] - blocks[1], return_index=True)[1]
    return np.split(blocks, starts[:: max(1, _MAX_STORED // (_DIAGONALS_PER_BLOCK * noise.f.size))][1:], axis=1)


def _evaluate_blocks(
    noise: _Noise, penalty: _Penalty, blocks: Integers, lead: float, threshold: float
) -> tuple[Array, float]:
    bounds = _bound_blocks(noise, penalty, blocks)
    open_blocks = np.flatnonzero((bounds > threshold) | (blocks[2] + blocks[3] == 0))
    i, j, width, height = blocks[:, open_blocks]
    middle = i + width // 2, j + height // 2
    evaluations, is_single = [_evaluate_places(noise, penalty, *middle, z) for z in (0, 1)], width + height == 0
    bounds[open_blocks[is_single]] = np.maximum(*(value[is_single] for _, value in evaluations))
    gap = middle[0] - middle[1]  # before a move, so that there are no more votes after it
    is_possible = (gap <= lead - _TIE_VOTES) & (gap >= 2 + _TIE_VOTES - lead)
    return bounds, max(float(np.max(value[is_possible], initial=0.0)) for value, _ in evaluations)


def _halve_blocks(blocks: Integers) -> Integers:
    for side in (0, 1):
        start, extent = blocks[side], blocks[2 + side]
        is_long = extent > 0
        first, second = blocks.copy(), blocks[:, is_long].copy()
        first[2 + side] = np.where(is_long, (extent - 1) // 2, extent)
        second[side], second[2 + side] = (start + (extent + 1) // 2)[is_long], (extent // 2)[is_long]
        blocks = np.concatenate([first, second], axis=1)
    return blocks


def _evaluate_places(noise: _Noise, penalty: _Penalty, i: Integers, j: Integers, z: int) -> tuple[Array, Array]:
    outcomes = [(q, [_find_losses(p, q)]) for p, q in _find_outcomes(noise, i, j, z)]
    exact, rounded = (sum(_bound_term(noise, penalty, q, losses, by) for q, losses in outcomes) for by in (0.0, 1.0))
    return np.asarray(exact), np.asarray(rounded)


def _bound_blocks(noise: _Noise, penalty: _Penalty, blocks: Integers) -> Array:
    i, j, width, height = blocks
    highest, lowest = _find_outcomes(noise, i, j + height, 1), _find_outcomes(noise, i + width, j, 0)
    nearest = noise.cdf(-i) * noise.cdf(-j - 2)
    total = np.zeros(i.shape)
    for outcome, q in enumerate((lowest[0][1], highest[1][1], nearest)):
        total += _bound_term(noise, penalty, q, [_find_losses(*highest[outcome]), _find_losses(*lowest[outcome])])
    return total


def _bound_term(noise: _Noise, penalty: _Penalty, q: Array, losses: list[Array], roundings: float = 1.0) -> Array:
    """Bound the term of one outcome; one that underflows adds nothing."""
    slack = 2.0 * roundings * noise.rounding
    values = [penalty.weigh(value) for loss in losses for value in (loss + slack, loss - slack)]
    with np.errstate(invalid="ignore", over="ignore"):
        term = np.where(q > noise.min_probability, q * np.max(values, axis=0), 0.0)
    return np.asarray(np.where(np.isnan(term), np.inf, term))
