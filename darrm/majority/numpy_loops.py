"""The loops of `darrm.majority.loops` in numpy, one array operation for all places of a level, and their parameters."""

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from darrm.numerics import Array
from darrm.numerics.binomial import smooth

LEVELS_A_TOP = 32  # levels for which one bound on a block of places is kept
_NO_TAILS = np.zeros(1)


class KernelParams(NamedTuple):
    """The parameters of the kernels: voters, and the cost with the factor c."""

    delta_weights: Array  # Pr[Bin(n, Δ) = i], shape (J + 1, K + 1)
    hi: float
    ratio: float  # c
    slack: float  # by how much a computed cost exceeds bounds from T some levels before: `DominatingFamily.excess`
    error_of_falls: float  # of a difference of T, times the level
    tails: Array = _NO_TAILS  # Pr[more than k moves], k = 0, 1, …, the last for moves not followed
    delta_squared: float = 0.0
    rest: float = 0.0  # the curvature's part of moves beyond J


class LevelRange(NamedTuple):
    """Levels first … last; a call passes at most ``most`` levels."""

    first: int
    most: int
    last: int


class LevelBuffer(NamedTuple):
    """Buffer of the levels to examine, shape (m, K + 1 − first), and their numbers, −1 after the last."""

    levels: Array
    places: NDArray[np.int64]


def triangle_maxima(
    own: Array, numbers: KernelParams, low: bool, floor: float, held: int, costs: Array, places: NDArray[np.int64]
) -> None:
    """Look at every cost of the levels, whatever ``floor`` is."""
    del floor
    level = own
    for j in range(costs.size):
        windows = level[None, :] if held == 0 else sliding_window_view(level, level.size - held)
        expectation = moved_zeros(numbers.delta_weights, -windows[::-1, ::-1] if low else windows)
        row_costs = expectation + numbers.ratio * expectation[::-1, ::-1]
        places[j] = row_costs.argmax()
        costs[j] = row_costs.flat[places[j]]
        level = smooth(level, numbers.hi)
    own[: level.size] = level


def moved_zeros(weights: Array, level: Array) -> Array:
    """Average T(b) over Bin(n_0, Δ) more ones, n_0 = N − b: shape (…, N + 1) → (…, N + 1)."""
    if weights.shape[0] == 1:
        return level
    N = level.shape[-1] - 1
    result: Array = weights[0, N::-1] * level
    for i in range(1, min(weights.shape[0] - 1, N) + 1):
        result[..., : N + 1 - i] += weights[i, N : i - 1 : -1] * level[..., i:]
    return result


def screen(block: Array, tails: Array) -> Array:
    """Bound V of `darrm.majority.near_shifts` from above entry by entry: shape (states, N + 1) → the same.

    At most N voters move, each by one step. With R_k(s) = max of T within k steps of s, V(n_1) is at most
    T(n_1) + Σ_k Pr[at least k moves]·(R_k − R_{k−1})(n_1), and beyond those that are followed by at most 2.
    """
    bound = block.copy()
    reach = block
    for tail in tails[:-1]:
        wider = reach.copy()
        np.maximum(wider[:, :-1], reach[:, 1:], out=wider[:, :-1])
        np.maximum(wider[:, 1:], reach[:, :-1], out=wider[:, 1:])
        bound += tail * (wider - reach)
        reach = wider
    result: Array = bound + 2.0 * tails[-1]
    return result


def vertices(block: Array, numbers: KernelParams, values: Array, bounds: Array, choice: NDArray[np.int64]) -> None:
    """Compute the best of the four vertices and the curvature bound; arrays of shape (states, N + 1)."""
    N, weights = block.shape[1] - 1, numbers.delta_weights
    zeros, ones = moved_zeros(weights, block), moved_zeros(weights, block[:, ::-1])[:, ::-1]
    candidates = np.stack([block, zeros, ones, _both_moved(weights, block)])
    choice[:] = candidates.argmax(axis=0)
    values[:] = np.take_along_axis(candidates, choice[None], axis=0)[0]
    n_1 = np.arange(N + 1.0)
    lever = numbers.delta_squared * ((N - n_1) ** 2 + n_1**2) / 8.0
    bounds[:] = values + 1.0001 * lever * (_curvature(block, weights.shape[0] - 1) + numbers.rest)


def _both_moved(weights: Array, block: Array) -> Array:
    """Compute E[T(n_1 − Bin(n_1, Δ) + Bin(n_0, Δ))]."""
    J, N = weights.shape[0] - 1, block.shape[1] - 1
    up, down = weights[:, N::-1], weights[:, : N + 1]
    band = np.zeros((2 * J + 1, N + 1))  # Pr[Bin(n_0, Δ) − Bin(n_1, Δ) = d] for d = −J … J and n_1 = 0 … N
    for i in range(J + 1):
        for k in range(J + 1):
            band[J + i - k] += up[i] * down[k]
    result: Array = band[J] * block
    for d in range(1, min(J, N) + 1):
        result[:, : N + 1 - d] += band[J + d, : N + 1 - d] * block[:, d:]
        result[:, d:] += band[J - d, d:] * block[:, : N + 1 - d]
    return result


def _curvature(block: Array, J: int) -> Array:
    """Compute the largest |T''| within J steps: shape (states, N + 1) → the same."""
    second = np.zeros_like(block)
    if block.shape[1] > 2:
        second[:, 1:-1] = np.abs(np.diff(block, n=2, axis=1))
    windows = sliding_window_view(np.pad(second, ((0, 0), (J, J))), 2 * J + 1, axis=1)
    return np.asarray(windows.max(axis=-1), dtype=np.float64)


def pass_levels(
    level: Array, span: LevelRange, numbers: KernelParams, limit: float, best: float, costs: Array, kept: LevelBuffer
) -> int:
    """Keep levels until the buffer is full; the caller screens them."""
    del best
    return keep_levels(level, span, numbers, limit, costs, kept)


def keep_levels(
    level: Array, span: LevelRange, numbers: KernelParams, limit: float, costs: Array, kept: LevelBuffer
) -> int:
    """Keep levels until the buffer is full."""
    del limit, costs
    kept.places[:] = -1
    own = level
    for count, j in enumerate(range(span.first, min(span.last, span.first + kept.places.size - 1) + 1)):
        kept.levels[count, : own.size], kept.places[count] = own, j
        if j < span.last and fall_of(own) <= numbers.error_of_falls * j:
            level[: own.size] = own
            return -1 - j
        own = smooth(own, numbers.hi)
    level[: own.size] = own
    return span.first + int(np.count_nonzero(kept.places >= 0))


def fall_of(level: Array) -> float:
    """Return the largest step down, or 0."""
    return -float(np.min(np.diff(level), initial=0.0))
