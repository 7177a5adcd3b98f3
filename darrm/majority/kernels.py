"""The loops over all rows of a level, in numpy or compiled by numba, and the choice between both.

`darrm.majority.compiled` holds the same kernels for numba (``pip install 'darrm[compiled]'``), up to twenty times
faster and 200 MB larger. Both make the same sums and products in the same order, so results agree to the bit, apart
from the sign of a zero, and one error bound holds for both. Processor seconds of a solve at ε = 0.1:

====================== ===== ===== ======
K, m, Δ                numpy numba choice
====================== ===== ===== ======
11, 3, 1e-5             0.03   0.6   0.03
201, 20, 1e-5            0.5   0.8    0.8
201, 10, 1e-2            5.7   1.8    1.8
1,001, 10, 1e-5         27.3   7.2    7.3
====================== ===== ===== ======

Loading compiled code takes 0.6 seconds. A process loads it after numpy has worked for that long, so it takes at most
twice the time of the better choice.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from darrm.numerics import Array
from darrm.numerics.binomial import smooth

LOADING = 6e8  # nanoseconds: importing numba and reading the kernels from its cache
LEVELS_A_TOP = 32  # levels that share one bound on a block of places
_NO_TAILS = np.zeros(1)


class KernelParams(NamedTuple):
    delta_weights: Array  # Pr[Bin(n, Δ) = i], shape (J + 1, K + 1)
    hi: float
    exp_epsilon: float  # c
    slack: float  # by how much a computed cost exceeds bounds from T some levels before: `DominatingFamily.excess`
    error_of_falls: float  # of a difference of T, times the level
    tails: Array = _NO_TAILS  # Pr[more than k moves], k = 0, 1, …, the last for moves not followed
    delta_squared: float = 0.0
    tail_curvature: float = 0.0  # the curvature from moves beyond J


def triangle_maxima(
    chain: Array,
    params: KernelParams,
    low: bool,
    floor: float,
    unaffected: int,
    costs: Array,
    places: NDArray[np.int64],
) -> None:
    """Write the largest cost of each level and its first place into ``costs`` and ``places``, a level for each entry.

    A cost of at most ``floor`` may be any such number. ``chain`` is T(s) of the first level and is overwritten with the
    level after the last; if ``low``, it is the chain of (lo, hi). Places count the windows of the unaffected voters one
    after the other.
    """
    del floor
    level = chain
    for j in range(costs.size):
        windows = level[None, :] if unaffected == 0 else sliding_window_view(level, level.size - unaffected)
        expectation = moved_zeros(params.delta_weights, -windows[::-1, ::-1] if low else windows)
        row_costs = expectation + params.exp_epsilon * expectation[::-1, ::-1]
        places[j] = row_costs.argmax()
        costs[j] = row_costs.flat[places[j]]
        level = smooth(level, params.hi)
    chain[: level.size] = level


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
    """Bound V of `darrm.majority.full_set` from above entry by entry: shape (states, N + 1) → the same.

    At most N voters move, each by one step. With R_k(s) = max of T within k steps of s, V(n_1) is at most T(n_1) + Σ_k
    Pr[at least k moves]·(R_k − R_{k−1})(n_1), plus 2 times the probability of more moves.
    """
    bound = block.copy()
    largest = block
    for tail in tails[:-1]:
        wider = largest.copy()
        np.maximum(wider[:, :-1], largest[:, 1:], out=wider[:, :-1])
        np.maximum(wider[:, 1:], largest[:, :-1], out=wider[:, 1:])
        bound += tail * (wider - largest)
        largest = wider
    result: Array = bound + 2.0 * tails[-1]
    return result


def vertices(block: Array, params: KernelParams, values: Array, bounds: Array, choice: NDArray[np.int64]) -> None:
    """Write the best of four vertices for each state and number of voters near 1, its index, and a bound on all moves.

    All arrays have the shape (states, N + 1).
    """
    N, weights = block.shape[1] - 1, params.delta_weights
    zeros, ones = moved_zeros(weights, block), moved_zeros(weights, block[:, ::-1])[:, ::-1]
    candidates = np.stack([block, zeros, ones, _move_both(weights, block)])
    choice[:] = candidates.argmax(axis=0)
    values[:] = np.take_along_axis(candidates, choice[None], axis=0)[0]
    n_1 = np.arange(N + 1.0)
    lever = params.delta_squared * ((N - n_1) ** 2 + n_1**2) / 8.0
    bounds[:] = values + 1.0001 * lever * (curvature(block, weights.shape[0] - 1) + params.tail_curvature)


def _move_both(weights: Array, block: Array) -> Array:
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


def curvature(block: Array, J: int) -> Array:
    """Compute the largest |T''| within J steps: shape (states, N + 1) → the same."""
    second = np.zeros_like(block)
    if block.shape[1] > 2:
        second[:, 1:-1] = np.abs(np.diff(block, n=2, axis=1))
    windows = sliding_window_view(np.pad(second, ((0, 0), (J, J))), 2 * J + 1, axis=1)
    return np.asarray(windows.max(axis=-1), dtype=np.float64)


def outer_costs(level: Array, params: KernelParams, threshold: float, first: int, costs: Array, bounds: Array) -> int:
    """Write the largest cost with moves at vertices over both chains, and a bound on the costs with any moves.

    Only costs above ``threshold`` and bounds above both are exact; other entries stay unchanged. ``level`` is T of the
    level ``first`` and is overwritten. Returns the number of passed levels, with ``level`` one further, or minus this
    number if T does not fall at the last of them, with ``level`` that level.
    """
    chain = level.copy()
    for index in range(costs.size):
        block = np.stack([chain, -chain[::-1]])[: 2 if first + index else 1]
        screened = screen(block, params.tails)
        block = block[np.max(screened + params.exp_epsilon * screened[:, ::-1], axis=1) > threshold]
        if len(block):
            values, uppers, choice = np.empty(block.shape), np.empty(block.shape), np.empty(block.shape, dtype=np.int64)
            vertices(block, params, values, uppers, choice)
            cost = np.max(values + params.exp_epsilon * values[:, ::-1])
            costs[index] = cost if cost > threshold else costs[index]
            bounds[index] = np.max(uppers + params.exp_epsilon * uppers[:, ::-1])
        level[: chain.size] = chain
        if largest_fall(chain) <= params.error_of_falls * (first + index):
            return -1 - index
        chain = smooth(chain, params.hi)
    level[: chain.size] = chain
    return costs.size


def largest_fall(level: Array) -> float:
    """Return the largest step down, or 0."""
    return -float(np.min(np.diff(level), initial=0.0))


class Kernels(NamedTuple):
    """The three kernels, of numpy or of numba; they write into their last arguments."""

    triangle_maxima: Callable[..., None]
    vertices: Callable[..., None]
    outer_costs: Callable[..., int]


NUMPY = Kernels(triangle_maxima, vertices, outer_costs)


class KernelChoice:
    """The choice between numpy and numba, by the estimated work of this process in nanoseconds."""

    def __init__(self) -> None:
        self.nanoseconds = 0.0

    def choose(self, nanoseconds: float) -> Kernels:
        """Count the work of the next call; return compiled kernels if they pay off and numba is installed."""
        self.nanoseconds += nanoseconds
        return (load() or NUMPY) if self.nanoseconds >= LOADING else NUMPY


KERNEL = KernelChoice()


def is_available() -> bool:
    return find_spec("numba") is not None


def advice() -> str | None:
    """Return a line about what would have made this process faster, or None if nothing would."""
    if KERNEL.nanoseconds < LOADING or is_available():
        return None
    return "the search spends its time in loops that can be compiled: pip install 'darrm[compiled]'"


@cache
def load() -> Kernels | None:
    """Import numba and compile, or read the cache; None without numba."""
    return Kernels(*import_module("darrm.majority.compiled").kernels()) if is_available() else None
