"""What a label of a noisy maximum costs, computed by code that shares nothing with the prover.

Two classes a and b stand i and j votes above the least noisy count with which they beat all others, so given the others
the label is a, b or neither; a vote moves from a to b: (i, j) → (i − 1, j + 1). With independent noises X, f(w) =
Pr[X = w], G(t) = Pr[X ≤ t] and S(i, j) = Pr[i + X_a ≥ 0, i + X_a ≥ j + X_b] the three outcomes have the probabilities

    S(i, j + z),    S(j, i + 1 − z),    G(−i − 1)·G(−j − 1),    z = 1 where b wins ties, else 0.

Divergences are jointly convex, so the largest over all (i, j, z) bounds that of labels among any number of classes
(`darrm.losses.label` proves it, and that both directions are covered). Each is Σ q·φ(L) over the outcomes, with q after
the move, L = log p/q, and φ falling below and rising above 0. All three L fall in i and rise in j and z, where the
noise is log-concave, and each q is largest at one corner of a block of (i, j, z): that bounds a block. Blocks are
halved until what is left is within `_TOLERANCE` of the largest value found.

**Outside** of −R ≤ i, j ≤ 3R, |i − j| ≤ 2R. Let τ be the mass of X beyond −l or r, l and r ≤ R, and for α-divergences
A(w) = f(w)^α·f(w + 1)^{1−α}, B(w) = f(w)^α·f(w − 1)^{1−α} with sums H_A, H_B and tails beyond −l or r of at most T_A,
T_B. By Hölder's inequality an outcome that needs a pair of noises in a set adds at most Σ A(u)·B(v) over the set, so
one that needs some noise beyond −l or r adds at most T = T_A·H_B + H_A·T_B: also one of probability below `_UNHELD`,
for with both noises within it is likelier.

- i < −R: a needs X_a ≥ R. Then b and neither have p at most, and q at least 1 − τ times, that of the single bit
  "j + X_b ≥ 0", whose threshold moves by one vote. Likewise j < −R.
- |i − j| > 2R and neither of both below −R: one of a and b, and neither, need a noise beyond ±R. The last one adds at
  most (1 − 2τ)^{1−α}.
- max(i, j) > 3R, |i − j| ≤ 2R: neither needs a noise beyond ±R, and a and b have p at most, and q at least 1 − τ times,
  those of "i + X_a ≥ j + X_b" without others (G grows, so given a win X_a below −i is less likely than without).

Single bits and pairs without others are one-dimensional and looked at one by one. The hockey stick is bounded in the
same way with τ for T. Sums of positive numbers in floats are off by 2^-52 for each summand: `_Noise.rounding`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
_TINY = 39.0  # −log of what lies beyond R
_LAST, _NARROW = 250.0, 80.0  # −log of the smallest weights that are summed, and of those next to R
_TOLERANCE = 1e-3  # relative, of a divergence above the largest value found
_MOST_BLOCKS, _MOST_SUMMED = 1 << 20, 1 << 30  # at once; noises along diagonals: some fifteen seconds
_LONGEST = 1 << 21  # numbers of a support: noise of 100,000 votes
_OF_FLOATS = 1e-9  # relative: probabilities are off by 2^-53, losses by 2^-50
_EXPONENT = 700.0  # of what floats hold
_SHORTEST = 8  # numbers of a support
_LONGEST_LINE = 1 << 15  # votes: the convolution takes a second
_RELATIVE = 1e-12  # of f, beside what sums add
_SLOPE, _LEFT_OUT = 1e-4, 1e-25  # of tails where they are cut off: what is left out adds e^{−48} at most
_UNHELD = math.exp(-2.0 * _NARROW - 6.0)  # the least probability that is added: below it a noise is beyond −l or r


class TooWideError(ValueError):
    """The noise is too wide, or the order too large, for what is computed here."""


class _Penalty(Protocol):
    """What a divergence adds for an outcome, φ(L), and what is outside the box."""

    def of(self, losses: Array) -> Array:
        """Compute φ(L), which falls below 0 and rises above."""

    def outside(self, noise: "_Noise", inner: float) -> float:
        """Bound what every place outside the box costs, where no bit and no pair without others costs more."""


@dataclass(frozen=True)
class RenyiPenalty:
    """exp((α − 1)·D_α) − 1 = Σ q·φ(L) with φ(L) = e^{αL} − 1 − α(e^L − 1)."""

    order: float

    def of(self, losses: Array) -> Array:
        """Compute φ(L)."""
        small = np.minimum(losses, _EXPONENT / self.order)
        values = np.expm1(self.order * small) - self.order * np.expm1(small)
        return np.asarray(np.where(losses > small, np.inf, values))

    def outside(self, noise: "_Noise", inner: float) -> float:
        """Bound it as the module says; terms linear in p and q are of outcomes that need a noise beyond ±R, too."""
        factor = math.expm1(-(self.order - 1.0) * math.log1p(-2.0 * noise.beyond))
        return inner + (1.0 + inner) * factor + 2.0 * noise.tilted_beyond(self.order)


@dataclass(frozen=True)
class _HockeyStick:
    """δ at ε: Σ q·φ(L) with φ(L) = max(0, e^L − e^ε)."""

    epsilon: float

    def of(self, losses: Array) -> Array:
        """Compute φ(L)."""
        return np.asarray(np.maximum(0.0, np.exp(np.minimum(losses, _EXPONENT)) - math.exp(self.epsilon)))

    def outside(self, noise: "_Noise", inner: float) -> float:
        """Bound it as the module says."""
        return inner + (2.0 + 2.0 * math.exp(self.epsilon)) * noise.beyond


@dataclass(frozen=True)
class Between:
    """The largest cost over all votes lies between two numbers."""

    low: float
    high: float


def divergence(p: Array, q: Array, order: float) -> float:
    """Compute the largest D_α of rows of outcomes, (n, C) each, whose probabilities are exact but for their floats."""
    if np.any((p > 0.0) & (q == 0.0)):
        return math.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.where(p > 0.0, np.log(p) - np.log(q), -_EXPONENT)
        if np.max(losses) * order < _EXPONENT:
            terms = np.where(p > 0.0, q * RenyiPenalty(order).of(losses), q * (order - 1.0))
            return float(np.max(np.log1p(terms.sum(axis=-1)))) / (order - 1.0)
        logs = np.where(p > 0.0, order * losses + np.log(q), -np.inf)
    return float(np.max(np.logaddexp.reduce(logs, axis=-1))) / (order - 1.0)


def between(value: float) -> Between:
    """Enclose what `divergence` computed."""
    return Between(value * (1.0 - _OF_FLOATS), value * (1.0 + _OF_FLOATS))


def renyi_of_label(log_weights: Callable[[Array], Array], order: float) -> Between:
    """Enclose the Rényi divergence of a label at an order, where one vote moves.

    Parameters
    ----------
    log_weights
        log w(x) of the noise up to a constant, at whole numbers given as floats: log-concave, at most 0 = w(0).
    order
        α > 1.

    Raises
    ------
    TooWideError
        If it takes too long.

    Examples
    --------
    GNMax with σ = 40 at order 8: the label costs 0.003204, the noisy counts 0.005.

    >>> found = renyi_of_label(lambda x: -(x**2) / 3200.0, 8.0)
    >>> 0.003203 < found.low < found.high < 0.003209
    True
    """
    low, high = _largest(_Noise(log_weights, order), RenyiPenalty(order))
    scale = 1.0 / (order - 1.0)
    return Between(math.log1p(low) * scale * (1.0 - 1e-13), math.log1p(high) * scale * (1.0 + 1e-13))


def delta_of_label(log_weights: Callable[[Array], Array], epsilon: float) -> Between:
    """Enclose the δ of a label at an ε, where one vote moves; parameters as for `renyi_of_label`.

    >>> found = delta_of_label(lambda x: -(x**2) / 200.0, 0.1)
    >>> 0.0209 < found.low < found.high < 0.021
    True
    """
    low, high = _largest(_Noise(log_weights, 1.0), _HockeyStick(epsilon))
    return Between(low, min(1.0, high))


def delta_of_gaussian_label(sigma: float, epsilon: float) -> Between:
    """Enclose the δ of a label of Gaussian noise: that of both noisy counts, which only their difference tells apart.

    A label is made of the noisy counts, and whether a beats b without others is their best test.

    >>> found = delta_of_gaussian_label(10.0, 0.1)
    >>> 0.0209 < found.low < found.high < 0.021, found.high < found.low * (1 + 1e-9)
    (True, True)
    """
    noise = _Noise(lambda x: -(x**2) / (2.0 * sigma**2), 1.0)
    if noise.reach > _LONGEST_LINE:
        raise TooWideError("noise this wide takes too long")
    inner = noise.f[(np.abs(np.arange(noise.first, noise.last + 1)) <= noise.reach)]
    law = np.convolve(inner, inner)
    moved = np.append(law[2:], [0.0, 0.0])
    gained = law - math.exp(epsilon) * moved
    rounded = 4.0 * noise.rounding * law  # of both terms, where the first is larger
    delta = float(np.sum(np.maximum(0.0, gained)))
    error = float(np.sum(rounded[gained > -rounded]))
    return Between(max(0.0, delta - error), min(1.0, delta + error + 4.0 * noise.beyond))


class _Noise:
    """The law of the noise of one class, and its sums."""

    def __init__(self, log_weights: Callable[[Array], Array], order: float) -> None:
        width = 16
        while min(-log_weights(np.array([-width, width], dtype=np.float64))) < _LAST:
            width *= 2
            if width > _LONGEST:
                raise TooWideError("noise this wide takes too long")
        points = np.arange(-width, width + 1)
        logs = log_weights(points.astype(np.float64))
        points = points[logs >= -_LAST]
        if points.size < _SHORTEST:
            raise TooWideError("the noise is next to none")
        self.first, self.last = int(points[0]), int(points[-1])
        self.logs = logs[logs >= -_LAST] - math.log(np.sum(np.exp(logs)))
        self.f = np.exp(self.logs)
        self.G, self.above = np.cumsum(self.f), np.cumsum(self.f[::-1])[::-1]
        self.rounding = self.f.size * 2.0**-52 + _RELATIVE
        self._log_sums: list[float] = []  # of f, A and B
        self.reach = self._reach(order)
        self.beyond = 2.0 * math.exp(-_TINY)
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
        """Find R: beyond ±R all tails, of f and tilted ones relative to their sums, are at most e^{−39}."""
        reach = 1
        for logs in (self.logs, self._tilted(order, +1), self._tilted(order, -1)):
            top = float(np.max(logs))
            weights = np.exp(logs - top)
            # the last terms must fall so fast that what is beyond the support does not count
            slopes = np.diff(logs[np.isfinite(logs)])
            if min(slopes[0], -slopes[-1]) < _SLOPE or max(weights[1], weights[-2]) > _LEFT_OUT:
                raise TooWideError(f"order {order:g} is too large for noise with these tails")
            total = float(np.sum(weights))
            self._log_sums.append(top + math.log(total))
            for outwards, far in ((slice(None), -self.first), (slice(None, None, -1), self.last)):
                tail = np.cumsum(weights[outwards])
                own = far - int(np.searchsorted(tail, total * math.exp(-_TINY - 1.0))) + 2
                if own > far or self.logs[outwards][far - own] < -_NARROW:
                    raise TooWideError(f"order {order:g} is too large for noise with these tails, or it is too narrow")
                reach = max(reach, own)
        return reach

    def tilted_beyond(self, order: float) -> float:
        """Bound T, and α times τ."""
        both = self._log_sums[1] + self._log_sums[2]
        return 4.0 * math.exp(both - _TINY) + 2.0 * order * self.beyond if both < 600.0 else math.inf

    def at_most(self, t: Integers) -> Array:
        """G(t) elementwise."""
        return np.asarray(np.where(t < self.first, 0.0, self.G[np.clip(t - self.first, 0, self.G.size - 1)]))

    def at_least(self, t: Integers) -> Array:
        """Pr[X ≥ t] elementwise."""
        return np.asarray(np.where(t > self.last, 0.0, self.above[np.clip(t - self.first, 0, self.G.size - 1)]))

    def wins(self, i: Integers, j: Integers) -> Array:
        """S(i, j) elementwise: a sum along the diagonal i − j, which is kept."""
        found = np.empty(i.shape)
        gaps, places, numbers = np.unique(i - j, return_inverse=True, return_counts=True)
        of_gaps = np.split(np.argsort(places.ravel(), kind="stable"), np.cumsum(numbers)[:-1])
        for gap, here in zip(gaps.tolist(), of_gaps, strict=True):
            if gap not in self._diagonals:
                self.summed += self.f.size
                if self.summed > _MOST_SUMMED:
                    raise TooWideError("noise this wide takes too long")
                if len(self._diagonals) * self.f.size > 1 << 26:
                    self._diagonals.clear()
                beaten = self.at_most(np.arange(self.first, self.last + 1) + gap)
                self._diagonals[gap] = np.append(np.cumsum((self.f * beaten)[::-1])[::-1], 0.0)
            found[here] = self._diagonals[gap][np.clip(-i[here] - self.first, 0, self.f.size)]
        return found


def _outcomes(noise: _Noise, i: Integers, j: Integers, z: int) -> list[tuple[Array, Array]]:
    """Return p and q of a, b and neither."""
    return [
        (noise.wins(i, j + z), noise.wins(i - 1, j + 1 + z)),
        (noise.wins(j, i + 1 - z), noise.wins(j + 1, i - z)),
        (noise.at_most(-i - 1) * noise.at_most(-j - 1), noise.at_most(-i) * noise.at_most(-j - 2)),
    ]


def _losses(p: Array, q: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(p) - np.log(q))


def _largest(noise: _Noise, penalty: _Penalty) -> tuple[float, float]:
    """Enclose the largest Σ q·φ(L) over all places: blocks of the box, and of the three lines outside it."""
    blocks, best, highest = _first_blocks(noise), 0.0, 0.0
    while blocks.shape[1]:
        if blocks.shape[1] > _MOST_BLOCKS:
            raise TooWideError("too many places cost about as much")
        i, j, across, along = blocks
        middle = i + across // 2, j + along // 2
        values = np.maximum(*(_value(noise, penalty, *middle, z, 1.0) for z in (0, 1)))
        best = max(best, *(float(np.max(_value(noise, penalty, *middle, z, 0.0))) for z in (0, 1)))
        single = across + along == 0
        bounds = np.where(single, values, _bounds(noise, penalty, blocks))
        done = single | (bounds <= best * (1.0 + _TOLERANCE))
        highest = max(highest, float(np.max(bounds[done], initial=0.0)))
        blocks = _halved(blocks[:, ~done])
    if not math.isfinite(best):
        raise TooWideError("it is more than floats hold")
    return best * (1.0 - 1e-6), penalty.outside(noise, highest * (1.0 + 4.0 * noise.rounding))


def _first_blocks(noise: _Noise) -> Integers:
    """List (i, j, more of i, more of j): the box, then a bit of b, a bit of a, and a pair without others."""
    R, far = noise.reach, noise.last - noise.first + 2
    side = max(1, R // 4)
    starts = np.arange(-R, 3 * R + 1, side)
    i, j = (corner.ravel() for corner in np.meshgrid(starts, starts, indexing="ij"))
    near = np.abs(i - j) <= 2 * R + side
    box = np.stack([i[near], j[near], np.full(near.sum(), side - 1), np.full(near.sum(), side - 1)])
    line = np.arange(-2 * R - 2, 2 * R + 3, side)
    zero, more = np.zeros_like(line), np.full(line.shape, side - 1)
    never, always = zero - 2 * R - far, zero + 2 * R + far
    lines = ([never, line, zero, more], [line, never, more, zero], [always, always + line, zero, more])
    return np.concatenate([box, *(np.stack(rows) for rows in lines)], axis=1)


def _halved(blocks: Integers) -> Integers:
    """Halve blocks both ways, where they are longer than one place."""
    for side in (0, 1):
        start, more = blocks[side], blocks[2 + side]
        long = more > 0
        first, second = blocks.copy(), blocks[:, long].copy()
        first[2 + side] = np.where(long, (more - 1) // 2, more)
        second[side], second[2 + side] = (start + (more + 1) // 2)[long], (more // 2)[long]
        blocks = np.concatenate([first, second], axis=1)
    return blocks


def _value(noise: _Noise, penalty: _Penalty, i: Integers, j: Integers, z: int, rounded: float) -> Array:
    """Compute Σ q·φ(L), with so many roundings on each loss."""
    total = np.zeros(i.shape)
    for p, q in _outcomes(noise, i, j, z):
        total += _added(noise, penalty, q, [_losses(p, q)], rounded)
    return total


def _bounds(noise: _Noise, penalty: _Penalty, blocks: Integers) -> Array:
    """Bound Σ q·φ(L) over whole blocks and both z, as the module says."""
    i, j, across, along = blocks
    highest, lowest = _outcomes(noise, i, j + along, 1), _outcomes(noise, i + across, j, 0)
    nearest = noise.at_most(-i) * noise.at_most(-j - 2)
    total = np.zeros(i.shape)
    for place, q in enumerate((lowest[0][1], highest[1][1], nearest)):
        total += _added(noise, penalty, q, [_losses(*highest[place]), _losses(*lowest[place])])
    return total


def _added(noise: _Noise, penalty: _Penalty, q: Array, losses: list[Array], rounded: float = 1.0) -> Array:
    """Bound what one outcome adds; what floats do not hold needs noises so far beyond ±R that nothing is added."""
    slack = 2.0 * rounded * noise.rounding
    ends = [penalty.of(end) for loss in losses for end in (loss + slack, loss - slack)]
    with np.errstate(invalid="ignore", over="ignore"):
        added = np.where(q > _UNHELD, q * np.max(ends, axis=0), 0.0)
    return np.asarray(np.where(np.isnan(added), np.inf, added))
