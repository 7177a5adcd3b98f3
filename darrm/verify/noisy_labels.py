"""Bound the cost of a label of a noisy maximum, in code that shares nothing with the prover.

Two classes a and b are i and j votes above the least noisy count that beats all others, so given the others the label
is a, b or neither; a vote moves from a to b: (i, j) → (i − 1, j + 1). With independent noises X, f(w) = Pr[X = w],
G(t) = Pr[X ≤ t] and S(i, j) = Pr[i + X_a ≥ 0, i + X_a ≥ j + X_b] the three outcomes have the probabilities

    S(i, j + z),    S(j, i + 1 − z),    G(−i − 1)·G(−j − 1),    z = 1 where b wins ties, else 0.

Divergences are jointly convex, so the largest over all (i, j, z) bounds that of any number of classes, in both
directions (`darrm.noisy_max.label_cost` has the proof). Each is Σ q·φ(L) over the outcomes, q after the move,
L = log p/q, φ falling below and rising above 0. The noise is log-concave, so all three L fall in i and rise in j and z,
and each q is largest at one corner of a block of (i, j, z), which bounds the block. Blocks are halved until every bound
is within `_TOLERANCE` of the largest value, or at most ``enough``. Blocks where one class leads by more votes than
there are, up to ties, are left out.

**Outside** of −R ≤ i, j ≤ 3R, |i − j| ≤ 2R. Let τ be the mass of X beyond −l or r, l and r ≤ R, and for α-divergences
A(w) = f(w)^α·f(w + 1)^{1−α}, B(w) = f(w)^α·f(w − 1)^{1−α} with sums H_A, H_B and tails beyond −l or r of at most T_A,
T_B. By Hölder's inequality an outcome that needs a pair of noises in a set adds at most Σ A(u)·B(v) over the set, so
one that needs some noise beyond −l or r adds at most T = T_A·H_B + H_A·T_B: also one of probability below `rarest`,
for with both noises within it is likelier.

- i < −R: a needs X_a ≥ R. Then b and neither have p at most, and q at least 1 − τ times, that of the single bit
  "j + X_b ≥ 0", whose threshold moves by one vote. Likewise j < −R.
- |i − j| > 2R and neither of both below −R: one of a and b, and neither, need a noise beyond ±R. The last one adds at
  most (1 − 2τ)^{1−α}.
- max(i, j) > 3R, |i − j| ≤ 2R: neither needs a noise beyond ±R, and a and b have p at most, and q at least 1 − τ times,
  those of "i + X_a ≥ j + X_b" without others (G grows, so given a win X_a below −i is less likely than without).

Single bits and pairs without others are one-dimensional. The hockey stick is bounded with τ for T. Sums of positive
floats are off by 2^-52 for each summand: `_Noise.rounding`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darrm.verify.verdicts import Array, Interval

Integers = NDArray[np.int64]
_TINY = 39.0  # −log of the mass beyond R
# −log of the smallest weights next to R, and of those that are summed; the second pair for steep noise, large orders
_ENDS = ((80.0, 250.0), (160.0, 400.0))
_TOLERANCE = 1e-3  # relative, of a divergence above the largest value found
_FINER, _FEW_BLOCKS = 1e-6, 1 << 15  # if ``enough`` is not refuted, and blocks are few
_MOST_BLOCKS, _MOST_SUMMED, _MOST_KEPT = 1 << 20, 1 << 31, 1 << 26  # at once; terms along diagonals: fifteen seconds
_DIAGONALS = 32  # that a place and its block need, at most
_LONGEST = 1 << 21  # numbers of a support: noise of 100,000 votes
_ROOM = 1e-8  # relative, for roundings and for votes outside the box
_LEAST = 1e-15  # of a δ: near the resolution of floats
_OF_FLOATS = 1e-9  # relative: probabilities are off by 2^-53, losses by 2^-50
_EXPONENT = 700.0  # of the largest float
_TIES = 1  # vote: i − j is the lead before the move, up to who wins ties with the best of the others
_DEVIATIONS = 32.0  # of one noise: the difference of two is larger with probability e^{−256}
_RELATIVE = 1e-12  # of f, without the errors of sums
_SLOPE, _LEFT_OUT = 1e-4, 1e-25  # of truncated tails: the rest adds e^{−48} at most


class TooWideError(ValueError):
    """The noise is too wide, or the order too large."""


@dataclass(frozen=True)
class RenyiPenalty:
    """exp((α − 1)·D_α) − 1 = Σ q·φ(L) of P = (1 − r)·q + r·p and q, or of q and P with ``back``.

    For r = 1, φ(L) = e^{αL} − 1 − α(e^L − 1). φ is convex in e^L, and at most r times the φ of p and q, or of q and p:
    the bound outside the box holds.
    """

    order: float
    rate: float = 1.0
    back: bool = False

    def weigh(self, losses: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            t = self.rate * np.expm1(losses)
            order = 1.0 - self.order if self.back else self.order
            values = np.expm1(order * (losses if self.rate == 1.0 else np.log1p(t))) - order * t
        return np.asarray(np.where(np.isnan(values), np.inf, np.maximum(values, 0.0)))

    def sum(self, cost: float) -> float:
        return math.expm1(min((self.order - 1.0) * cost, _EXPONENT))

    def outside(self, noise: "_Noise", inner: float) -> float:
        """Bound the cost outside the box, if no bit and no pair without others costs more than ``inner``."""
        factor = math.expm1(-(self.order - 1.0) * math.log1p(-2.0 * noise.beyond))
        return inner + (1.0 + inner) * factor + 2.0 * noise.tilted_beyond(self.order)


@dataclass(frozen=True)
class _HockeyStick:
    """δ at ε: Σ q·φ(L) with φ(L) = max(0, e^L − e^ε)."""

    epsilon: float

    def weigh(self, losses: Array) -> Array:
        return np.asarray(np.maximum(0.0, np.exp(np.minimum(losses, _EXPONENT)) - math.exp(self.epsilon)))

    def sum(self, cost: float) -> float:
        return cost

    def outside(self, noise: "_Noise", inner: float) -> float:
        return inner + (2.0 + 2.0 * math.exp(self.epsilon)) * noise.beyond


_Penalty = RenyiPenalty | _HockeyStick


def widen(value: float) -> Interval[float]:
    """Enclose a value that was computed in floats."""
    return Interval(value * (1.0 - _OF_FLOATS), value * (1.0 + _OF_FLOATS))


def gaussian(sigma: float) -> Callable[[Array], Array]:
    rate = 1.0 / (2.0 * sigma**2)
    return lambda x: -rate * x**2


def renyi_of_label(
    log_weights: Callable[[Array], Array],
    order: float,
    *,
    lead: float = math.inf,
    enough: float = 0.0,
    rate: float = 1.0,
) -> Interval[float]:
    """Enclose the Rényi divergence of a label for one vote moved with probability ``rate``; `TooWideError` if slow.

    ``log_weights`` of the noise are log-concave, at most 0 = w(0). No class leads by more than ``lead`` votes. An upper
    end of at most ``enough`` need not be close.

    >>> cost = renyi_of_label(gaussian(40.0), 8.0)
    >>> 0.003203 < cost.lower < cost.upper < 0.003209
    True
    """
    penalties = [RenyiPenalty(order, rate, back=back) for back in (False, True)[: 1 + (rate < 1.0)]]
    noise = _noise_of(log_weights, order)
    lows, highs = zip(*(_largest(noise, penalty, lead + _TIES, enough) for penalty in penalties), strict=True)
    low, high = (math.log1p(max(sums)) / (order - 1.0) for sums in (lows, highs))
    return Interval(low * (1.0 - 1e-13), high * (1.0 + 1e-13))


def delta_of_label(
    log_weights: Callable[[Array], Array], epsilon: float, *, lead: float = math.inf, enough: float = 0.0
) -> Interval[float]:
    """See `renyi_of_label`."""
    low, high = _largest(_noise_of(log_weights, 1.0), _HockeyStick(epsilon), lead + _TIES, enough)
    return Interval(max(0.0, low - _LEAST), min(1.0, high))  # the error of differences of floats


def delta_of_gaussian_label(sigma: float, epsilon: float) -> Interval[float]:
    """Enclose the δ of a label of Gaussian noise: that of both noisy counts, whose best test is "a beats b".

    Their loss is (D + 1)/σ² of D = X_a − X_b, Pr[D = d] ∝ exp(−d²/4σ²)·Σ_x exp(−(x − d/2)²/σ²).

    >>> delta = delta_of_gaussian_label(10.0, 0.1)
    >>> 0.0209 < delta.lower < delta.upper < 0.021, delta.upper < delta.lower * (1 + 1e-9)
    (True, True)
    """
    reach = math.ceil(_DEVIATIONS * sigma) + 8
    if reach > _LONGEST:
        raise TooWideError("noise this wide takes too long")
    points = np.arange(-reach, reach + 1).astype(np.float64)
    theta = [_sum(np.exp(-(((points - half) / sigma) ** 2))) for half in (0.0, 0.5)]
    law = np.exp(-((points / (2.0 * sigma)) ** 2)) * np.where(points % 2 == 0, *theta)
    losses, total = (points + 1.0) / sigma**2, _sum(law)
    larger = losses > epsilon
    delta = _sum(law[larger] * -np.expm1(epsilon - losses[larger])) / total
    error = _RELATIVE * delta + 2.0**-50 * _sum(law[larger] * losses[larger]) / total
    return Interval(max(0.0, delta - error), min(1.0, delta + error + math.exp(-_ENDS[0][1])))


def _sum(terms: Array) -> float:
    # positive numbers, whose sum is off by 512 roundings at most
    return math.fsum(np.add.reduceat(terms, np.arange(0, terms.size, 512)).tolist()) if terms.size else 0.0


def _noise_of(log_weights: Callable[[Array], Array], order: float) -> "_Noise":
    try:
        return _Noise(log_weights, order)
    except TooWideError:
        return _Noise(log_weights, order, *_ENDS[1])


def wide_support(log_weights: Callable[[Array], Array], smallest: float, longest: float) -> tuple[Integers, Array]:
    """Return whole numbers up to which log w falls to −``smallest``, and log w; else `TooWideError`."""
    width = 16
    while min(-log_weights(np.array([-width, width], dtype=np.float64))) < smallest:
        width *= 2
        if width > longest:
            raise TooWideError("noise this wide takes too long")
    points = np.arange(-width, width + 1)
    return points, log_weights(points.astype(np.float64))


class _Noise:
    def __init__(
        self,
        log_weights: Callable[[Array], Array],
        order: float,
        narrow: float = _ENDS[0][0],
        smallest: float = _ENDS[0][1],
    ) -> None:
        self.narrow, self.rarest = narrow, math.exp(-2.0 * narrow - 6.0)  # below it a noise is beyond −l or r
        points, logs = wide_support(log_weights, smallest, _LONGEST)
        points = points[logs >= -smallest]
        if points.size < 8:  # numbers of a support
            raise TooWideError("the noise is next to none")
        self.first, self.last = int(points[0]), int(points[-1])
        self.logs = logs[logs >= -smallest] - math.log(np.sum(np.exp(logs)))
        self.f = np.exp(self.logs)
        self.G, self.above = np.cumsum(self.f), np.cumsum(self.f[::-1])[::-1]
        self.rounding = self.f.size * 2.0**-52 + _RELATIVE
        self._log_sums: list[float] = []  # of f, A and B
        self.reach = self._reach(order)
        self.beyond = 2.0 * math.exp(-_TINY)
        self._downwards = self.f[::-1].copy(), self.G[::-1].copy()
        self._diagonals: dict[int, Array] = {}
        self.summed = 0

    def _tilted(self, order: float, step: int) -> Array:
        """Compute log f(w)^α·f(w ± 1)^{1−α}, −∞ at the end of the support."""
        beside = np.roll(self.logs, -step)
        beside[-1 if step > 0 else 0] = np.inf
        with np.errstate(invalid="ignore"):
            tilted = self.logs + (order - 1.0) * (self.logs - beside)
        return np.asarray(np.where(np.isinf(beside), -np.inf, tilted))

    def _reach(self, order: float) -> int:
        """Find R: beyond ±R each tail, relative to its sum, is at most e^{−39}."""
        reach = 1
        for logs in (self.logs, self._tilted(order, +1), self._tilted(order, -1)):
            top = float(np.max(logs))
            weights = np.exp(logs - top)
            # the last terms must fall fast enough that the mass beyond the support is negligible
            slopes = np.diff(logs[np.isfinite(logs)])
            if min(slopes[0], -slopes[-1]) < _SLOPE or max(weights[1], weights[-2]) > _LEFT_OUT:
                raise TooWideError(f"order {order:g} is too large for noise with these tails")
            total = float(np.sum(weights))
            self._log_sums.append(top + math.log(total))
            for outwards, far in ((slice(None), -self.first), (slice(None, None, -1), self.last)):
                tail = np.cumsum(weights[outwards])
                own = far - int(np.searchsorted(tail, total * math.exp(-_TINY - 1.0))) + 2
                if own > far or self.logs[outwards][far - own] < -self.narrow:
                    raise TooWideError(f"order {order:g} is too large for noise with these tails, or it is too narrow")
                reach = max(reach, own)
        return reach

    def tilted_beyond(self, order: float) -> float:
        """Bound T, and α times τ."""
        both = self._log_sums[1] + self._log_sums[2]
        return 4.0 * math.exp(both - _TINY) + 2.0 * order * self.beyond if both < 600.0 else math.inf

    def at_most(self, t: Integers) -> Array:
        return np.asarray(np.where(t < self.first, 0.0, self.G[np.clip(t - self.first, 0, self.G.size - 1)]))

    def at_least(self, t: Integers) -> Array:
        return np.asarray(np.where(t > self.last, 0.0, self.above[np.clip(t - self.first, 0, self.G.size - 1)]))

    def wins(self, i: Integers, j: Integers) -> Array:
        """Compute S(i, j) elementwise, by sums along diagonals i − j that are kept."""
        chances = np.where(i > j, self.at_least(-i), 0.0)
        place, near = np.clip(self.last + i + 1, 0, self.f.size), np.flatnonzero(np.abs(i - j) < self.f.size)
        order = near[np.argsort(i[near] - j[near], kind="stable")]
        gaps, starts = np.unique(i[order] - j[order], return_index=True)
        for gap, start, end in zip(gaps.tolist(), starts, [*starts[1:], order.size], strict=False):
            here = order[start:end]
            most = int(np.max(place[here]))
            if gap not in self._diagonals or self._diagonals[gap].size <= most:
                self._diagonals[gap] = self._sums_along(gap, min(self.f.size, most + self.f.size // 16))
            chances[here] = self._diagonals[gap][place[here]]
        return chances

    def _sums_along(self, gap: int, most: int) -> Array:
        """Compute Pr[X_a > last − n, X_a + gap ≥ X_b] for all n up to ``most``."""
        self.summed += most
        if self.summed > _MOST_SUMMED:
            raise TooWideError("noise this wide takes too long")
        if len(self._diagonals) * self.f.size > _MOST_KEPT:
            self._diagonals.clear()
        sums, (won, beaten) = np.zeros(most + 1), self._downwards
        start, end = min(max(0, gap), most), min(self.f.size + min(0, gap), most)
        sums[1 : start + 1] = won[:start]
        sums[start + 1 : end + 1] = won[start:end] * beaten[start - gap : end - gap]
        return np.asarray(np.cumsum(sums, out=sums))


def _outcomes(noise: _Noise, i: Integers, j: Integers, z: int) -> list[tuple[Array, Array]]:
    return [
        (noise.wins(i, j + z), noise.wins(i - 1, j + 1 + z)),
        (noise.wins(j, i + 1 - z), noise.wins(j + 1, i - z)),
        (noise.at_most(-i - 1) * noise.at_most(-j - 1), noise.at_most(-i) * noise.at_most(-j - 2)),
    ]


def _losses(p: Array, q: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(p) - np.log(q))


def _largest(noise: _Noise, penalty: _Penalty, lead: float, enough: float) -> tuple[float, float]:
    blocks, best, highest = _first_blocks(noise), 0.0, 0.0
    allowed = penalty.sum(enough) * (1.0 - _ROOM)
    while blocks.shape[1]:
        if blocks.shape[1] > _MOST_BLOCKS:
            raise TooWideError("too many places cost about as much")
        blocks = _within(noise, blocks, lead)
        near = _FINER if best <= allowed and blocks.shape[1] < _FEW_BLOCKS else _TOLERANCE
        few, judged = max(allowed, best * (1.0 + near)) if best else 0.0, list[Array]()
        for part in _along_diagonals(noise, blocks):
            bound, attained = _judge(noise, penalty, part, lead, few)
            judged.append(bound)
            best = max(best, attained)
        bounds, single = np.concatenate(judged), blocks[2] + blocks[3] == 0
        done = single | (bounds <= max(allowed, best * (1.0 + near)))
        highest = max(highest, float(np.max(bounds[done], initial=0.0)))
        blocks = _halve(blocks[:, ~done])
    if not math.isfinite(best):
        raise TooWideError("it is more than floats hold")
    return best * (1.0 - 1e-6), penalty.outside(noise, highest * (1.0 + 4.0 * noise.rounding))


def _first_blocks(noise: _Noise) -> Integers:
    """List (i, j, more of i, more of j) of the box, of single bits, and of pairs without others."""
    R = noise.reach
    side = max(1, R // 4)
    far = max(noise.last - noise.first, 4 * R + 4 * side) + 2  # apart from the box
    starts = np.arange(-R, 3 * R + 1, side)
    i, j = (corner.ravel() for corner in np.meshgrid(starts, starts, indexing="ij"))
    near = np.abs(i - j) <= 2 * R + side
    box = np.stack([i[near], j[near], np.full(near.sum(), side - 1), np.full(near.sum(), side - 1)])
    line = np.arange(-2 * R - 2, 2 * R + 3, side)
    zero, more = np.zeros_like(line), np.full(line.shape, side - 1)
    never, always = zero - 2 * R - far, zero + 2 * R + far
    lines = ([never, line, zero, more], [line, never, more, zero], [always, always + line, zero, more])
    return np.concatenate([box, *(np.stack(rows) for rows in lines)], axis=1)


def _within(noise: _Noise, blocks: Integers, lead: float) -> Integers:
    i, j, across, along = blocks
    gap, bit = i - j, np.abs(i - j) > 3 * noise.reach + 2
    kept = bit | ((gap - along <= lead) & (gap + across >= -lead))
    return np.asarray(blocks[:, kept][:, np.argsort(gap[kept], kind="stable")])


def _along_diagonals(noise: _Noise, blocks: Integers) -> list[Integers]:
    """Split blocks, sorted by i − j, into parts whose diagonals fit into memory."""
    starts = np.unique(blocks[0] - blocks[1], return_index=True)[1]
    return np.split(blocks, starts[:: max(1, _MOST_KEPT // (_DIAGONALS * noise.f.size))][1:], axis=1)


def _judge(noise: _Noise, penalty: _Penalty, blocks: Integers, lead: float, few: float) -> tuple[Array, float]:
    bounds = _bounds(noise, penalty, blocks)
    more = np.flatnonzero((bounds > few) | (blocks[2] + blocks[3] == 0))
    i, j, across, along = blocks[:, more]
    middle = i + across // 2, j + along // 2
    both, single = [_values(noise, penalty, *middle, z) for z in (0, 1)], across + along == 0
    bounds[more[single]] = np.maximum(*(value[single] for _, value in both))
    gap = middle[0] - middle[1]  # before a move, so that there are no more votes after it
    possible = (gap <= lead - _TIES) & (gap >= 2 + _TIES - lead)
    return bounds, max(float(np.max(value[possible], initial=0.0)) for value, _ in both)


def _halve(blocks: Integers) -> Integers:
    for side in (0, 1):
        start, more = blocks[side], blocks[2 + side]
        long = more > 0
        first, second = blocks.copy(), blocks[:, long].copy()
        first[2 + side] = np.where(long, (more - 1) // 2, more)
        second[side], second[2 + side] = (start + (more + 1) // 2)[long], (more // 2)[long]
        blocks = np.concatenate([first, second], axis=1)
    return blocks


def _values(noise: _Noise, penalty: _Penalty, i: Integers, j: Integers, z: int) -> tuple[Array, Array]:
    outcomes = [(q, [_losses(p, q)]) for p, q in _outcomes(noise, i, j, z)]
    exact, rounded = (sum(_bound_term(noise, penalty, q, losses, by) for q, losses in outcomes) for by in (0.0, 1.0))
    return np.asarray(exact), np.asarray(rounded)


def _bounds(noise: _Noise, penalty: _Penalty, blocks: Integers) -> Array:
    i, j, across, along = blocks
    highest, lowest = _outcomes(noise, i, j + along, 1), _outcomes(noise, i + across, j, 0)
    nearest = noise.at_most(-i) * noise.at_most(-j - 2)
    total = np.zeros(i.shape)
    for place, q in enumerate((lowest[0][1], highest[1][1], nearest)):
        total += _bound_term(noise, penalty, q, [_losses(*highest[place]), _losses(*lowest[place])])
    return total


def _bound_term(noise: _Noise, penalty: _Penalty, q: Array, losses: list[Array], rounded: float = 1.0) -> Array:
    """Bound the term of one outcome; one that underflows adds nothing."""
    slack = 2.0 * rounded * noise.rounding
    ends = [penalty.weigh(end) for loss in losses for end in (loss + slack, loss - slack)]
    with np.errstate(invalid="ignore", over="ignore"):
        added = np.where(q > noise.rarest, q * np.max(ends, axis=0), 0.0)
    return np.asarray(np.where(np.isnan(added), np.inf, added))
