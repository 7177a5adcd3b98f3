"""The kernels of `darrm.majority.kernels`, written out place by place for numba.

Every kernel makes the sums and products of its twin in numpy in the same order, without contraction or reassociation
(no fast math); `tests/majority/test_compiled.py` compares them. The kernels pass over blocks of places whose costs
cannot exceed the largest one so far: a computed cost exceeds the bound from the largest T by at most ``slack``.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from darrm.majority.kernels import LEVELS_A_TOP, KernelParams
from darrm.numerics import Array
from darrm.util.extras import require

_U = np.uintp  # numba wraps signed indices around, which keeps loops from being vectorized
_BLOCK = 64  # places that are passed over at once


def kernels() -> Iterator[Callable[..., object]]:
    """Compile when first called, in the order of `darrm.majority.kernels.Kernels`."""
    yield from (_compiled(kernel) for kernel in (triangle_maxima, vertices, outer_costs))


def _compiled(function: Callable[..., object]) -> Callable[..., object]:
    numba = require("numba")
    for shared in _SHARED:
        numba.extending.register_jitable(shared)
    compiled: Callable[..., object]
    try:
        compiled = numba.njit(function, cache=True, nogil=True, error_model="numpy")
    except RuntimeError:  # neither the package nor the user's cache can be written to
        compiled = numba.njit(function, nogil=True, error_model="numpy")

    def with_plain_tuples(*arguments: object) -> object:
        return compiled(*(tuple(value) if isinstance(value, tuple) else value for value in arguments))

    return with_plain_tuples  # a named one takes numba fifty microseconds a call


def triangle_maxima(
    level: Array,
    params: KernelParams,
    low: bool,
    floor: float,
    unaffected: int,
    costs: Array,
    places: NDArray[np.int64],
) -> None:
    params = KernelParams(*params)
    exp_epsilon, weights = params.exp_epsilon, params.delta_weights
    reversed_weights = weights[:, ::-1].copy()  # the loops run forward through all they read
    tops, block = np.empty((2, level.size // _BLOCK + 1)), np.empty((2, _BLOCK))
    place = 0
    for j in range(costs.size):
        size = level.size - j
        width = size - unaffected
        if j % LEVELS_A_TOP == 0:
            _block_tops(level[:size], 0, weights.shape[0] - 1, tops)
        # the block of the last level's place comes first, so that few others have to be looked through
        place = min(place, (unaffected + 1) * width - 1)
        likely = (place // width, place % width // _BLOCK)
        record = _best_of_block(level[:size], reversed_weights, exp_epsilon, (*likely, width), block, (-np.inf, place))
        for unaffected_ones in range(unaffected + 1):
            for number in range(-(-width // _BLOCK)):
                first, beside = divmod(unaffected_ones + number * _BLOCK, _BLOCK)
                top, reflected_top = tops[0, first], tops[1, first]
                if beside and first + 1 < tops.shape[1]:
                    top, reflected_top = max(top, tops[0, first + 1]), max(reflected_top, tops[1, first + 1])
                most = top + exp_epsilon * reflected_top + params.slack
                if most > floor and most >= record[0] and (unaffected_ones, number) != likely:
                    record = _best_of_block(
                        level[:size], reversed_weights, exp_epsilon, (unaffected_ones, number, width), block, record
                    )
        costs[j], places[j] = record
        place = record[1]
        # g is odd, so for (lo, hi) only the weights of the averages change places
        _step(level[:size], params.hi if low else 1.0 - params.hi, 1.0 - params.hi if low else params.hi)


def _step(level: Array, first_weight: float, second_weight: float) -> None:
    """Overwrite T, shape (N + 1,), with the N values of the next level."""
    for s in range(_U(level.size - 1)):
        level[s] = first_weight * level[s] + second_weight * level[s + _U(1)]


def _falls(level: Array, most: float) -> bool:
    falls = 0
    for s in range(_U(level.size - 1)):
        falls += level[s] - level[s + _U(1)] > most
    return falls > 0


def _block_tops(level: Array, down: int, up: int, tops: Array) -> None:
    """Bound T around each block of places, and T(N − s), for as many levels as tops are kept and moves down and up."""
    size, reach = level.size, _BLOCK + LEVELS_A_TOP
    tops[:] = -np.inf  # a value of the next level lies between two neighbors of this one
    for block in range(-(-size // _BLOCK)):
        start = block * _BLOCK
        tops[0, block] = _largest(level[max(0, start - down) : min(start + reach + up, size)])
        tops[1, block] = _largest(level[max(0, size - start - reach - down) : min(size - start + up, size)])


def _largest(values: Array) -> float:
    lanes = np.full(8, -np.inf)
    whole = values.size - values.size % 8
    for s in range(_U(0), _U(whole), _U(8)):
        for k in range(_U(8)):
            lanes[k] = max(lanes[k], values[s + k])
    top = -np.inf
    for k in range(8):
        top = max(top, lanes[k])
    for s in range(whole, values.size):
        top = max(top, values[s])
    return top


def _best_of_block(
    level: Array,
    reversed_weights: Array,
    exp_epsilon: float,
    at: tuple[int, int, int],
    block: Array,
    record: tuple[float, int],
) -> tuple[float, int]:
    """Look at one block in the window of unaffected voters at 1: the best cost so far, at its first place."""
    (unaffected_ones, number, width), (best, place) = at, record
    start, last, shift = number * _BLOCK, width - 1, reversed_weights.shape[1] - width
    count = min(_BLOCK, width - start)
    direct, reflected, before = block[0, :count], block[1, :count], last - start - count + 1
    window, opposite = (
        level[unaffected_ones : unaffected_ones + width],
        level[level.size - width - unaffected_ones : level.size - unaffected_ones],
    )
    _average_up(window[start:], reversed_weights, shift + start, direct)
    _average_up(opposite[before:], reversed_weights, shift + before, reflected)
    above = 0
    for b in range(_U(count)):
        direct[b] += exp_epsilon * reflected[_U(count - 1) - b]
        above += direct[b] >= best
    if above:
        first = unaffected_ones * width + start
        for b in range(count):
            if direct[b] > best or (direct[b] == best and first + b < place):
                best, place = direct[b], first + b
    return best, place


def _average_up(values: Array, weights: Array, first: int, result: Array) -> None:
    """Compute Σ_i weights[i, first + b]·values[b + i] into ``result``, i ascending, where b + i is a place."""
    size = result.size
    row = weights[0][first:]
    for b in range(_U(size)):
        result[b] = row[b] * values[b]
    for i in range(1, min(weights.shape[0], values.size)):
        row, source = weights[i][first:], values[i:]
        for b in range(_U(min(size, values.size - i))):
            result[b] += row[b] * source[b]


def _screen(level: Array, tails: Array, bound: Array) -> None:
    size = level.size
    reach, wider = level.copy(), np.empty(size)
    bound[:] = level
    for k in range(tails.size - 1):
        wider[0], wider[size - 1] = reach[0], reach[size - 1]
        if size > 1:
            wider[0], wider[size - 1] = max(reach[0], reach[1]), max(reach[size - 1], reach[size - 2])
        for s in range(_U(1), _U(size - 1)):
            most = max(reach[s], reach[s + _U(1)])
            wider[s] = max(most, reach[s - _U(1)])
        for s in range(_U(size)):
            bound[s] += tails[k] * (wider[s] - reach[s])
        reach, wider = wider, reach
    rest = 2.0 * tails[-1]
    for s in range(_U(size)):
        bound[s] += rest


def vertices(block: Array, params: KernelParams, values: Array, bounds: Array, choice: NDArray[np.int64]) -> None:
    params = KernelParams(*params)
    for state in range(block.shape[0]):
        _vertices(block[state], 0, params, values[state], bounds[state], choice[state])


def _vertices(
    level: Array, first: int, params: KernelParams, values: Array, bounds: Array, choice: NDArray[np.int64]
) -> None:
    """Compute them for one T, shape (N + 1,), at the places from ``first`` that ``values`` can hold."""
    weights = params.delta_weights
    N, count, here = level.size - 1, values.size, level[first:]
    up = weights[:, N + 1 - first - count : N + 1 - first][:, ::-1].copy()
    zeros, reflected, both, around = np.empty(count), np.empty(count), np.empty(count), np.zeros(count)
    _average_up(here, up, 0, zeros)
    last = N + 1 - first - count
    _average_up(level[::-1][last:].copy(), weights[:, first : first + count][:, ::-1].copy(), 0, reflected)
    ones = reflected[::-1]
    _average_both(level, up, weights[:, first : first + count], first, both)
    _curvature(level, weights.shape[0] - 1, first, around)
    for b in range(_U(count)):
        best, which = here[b], 0
        if zeros[b] > best:
            best, which = zeros[b], 1
        if ones[b] > best:
            best, which = ones[b], 2
        if both[b] > best:
            best, which = both[b], 3
        values[b], choice[b] = best, which
        n_1 = float(_U(first) + b)
        lever = params.delta_squared * ((N - n_1) * (N - n_1) + n_1 * n_1) / 8.0
        bounds[b] = best + 1.0001 * lever * (around[b] + params.rest)


def _average_both(level: Array, up: Array, down: Array, first: int, result: Array) -> None:
    J, N, count, here = up.shape[0] - 1, level.size - 1, result.size, level[first:]
    band = np.zeros((2 * J + 1, count))
    for i in range(J + 1):
        for k in range(J + 1):
            row, one, other = band[J + i - k], up[i], down[k]
            for b in range(_U(count)):
                row[b] += one[b] * other[b]
    for b in range(_U(count)):
        result[b] = band[J, b] * here[b]
    for d in range(1, min(J, N) + 1):
        forward, after, skipped = band[J + d], here[d:], max(0, d - first)
        for b in range(_U(min(count, max(0, here.size - d)))):
            result[b] += forward[b] * after[b]
        if skipped < count:
            backward, before, target = band[J - d][skipped:], level[first + skipped - d :], result[skipped:]
            for b in range(_U(count - skipped)):
                target[b] += backward[b] * before[b]


def _curvature(level: Array, J: int, first: int, around: Array) -> None:
    N, count = level.size - 1, around.size
    start, stop = max(0, first - J), min(N + 1, first + count + J)
    curvature = np.zeros(stop - start)
    for s in range(_U(max(start, 1)), _U(min(stop, N))):
        curvature[s - _U(start)] = abs((level[s + _U(1)] - level[s]) - (level[s] - level[s - _U(1)]))
    for d in range(-J, J + 1):
        skipped = max(0, start - first - d)
        if skipped < count:
            near, target = curvature[first + skipped + d - start :], around[skipped:]
            for b in range(_U(max(0, min(near.size, count - skipped)))):
                target[b] = max(target[b], near[b])


def outer_costs(level: Array, params: KernelParams, least: float, first: int, costs: Array, bounds: Array) -> int:
    params = KernelParams(*params)
    J, count = params.delta_weights.shape[0] - 1, -(-level.size // _BLOCK)
    tops, values, uppers = np.empty((2, 2, count)), np.empty((2, _BLOCK)), np.empty((2, _BLOCK))
    for place in range(costs.size):
        size = level.size - place
        current, best = level[:size], least
        if place % LEVELS_A_TOP == 0:
            _block_tops(current, J, J, tops[0])
            _block_tops(-current[::-1], J, J, tops[1])
        for low in range(2 if first + place else 1):
            chain = -current[::-1] if low else current
            for number in range(-(-size // _BLOCK)):
                if tops[low, 0, number] + params.exp_epsilon * tops[low, 1, number] + params.slack > best:
                    cost, bound = _largest_of_block(chain, number * _BLOCK, params, values, uppers, best)
                    best, bounds[place] = max(best, cost), max(bounds[place], bound)
        if best > least:
            costs[place] = best
        if not _falls(current, params.error_of_falls * (first + place)):
            return -1 - place
        _step(current, 1.0 - params.hi, params.hi)
    return costs.size


def _largest_of_block(
    level: Array, start: int, params: KernelParams, values: Array, uppers: Array, best: float
) -> tuple[float, float]:
    """Compute the largest cost of a block with moves at vertices and a bound on any moves; −∞ if at most ``best``."""
    size, margin, exp_epsilon = level.size, params.tails.size - 1, params.exp_epsilon
    count, choice = min(_BLOCK, size - start), np.empty(_BLOCK, dtype=np.int64)
    starts = start, size - start - count
    for side in range(2):
        before = max(0, starts[side] - margin)
        near = level[before : min(size, starts[side] + count + margin)]
        bound = np.empty(near.size)
        _screen(near, params.tails, bound)
        values[side, :count] = bound[starts[side] - before :][:count]
    if _largest_sum(values[0, :count], exp_epsilon, values[1, :count]) + params.slack <= best:
        return -np.inf, -np.inf
    for side in range(2):
        _vertices(level, starts[side], params, values[side, :count], uppers[side, :count], choice[:count])
    return (
        _largest_sum(values[0, :count], exp_epsilon, values[1, :count]),
        _largest_sum(uppers[0, :count], exp_epsilon, uppers[1, :count]),
    )


def _largest_sum(first: Array, exp_epsilon: float, second: Array) -> float:
    best = -np.inf
    for b in range(_U(first.size)):
        best = max(best, first[b] + exp_epsilon * second[_U(first.size - 1) - b])
    return best


_SHARED = (
    *(_step, _falls, _largest, _block_tops, _average_up, _best_of_block),
    *(_screen, _average_both, _curvature, _vertices, _largest_sum, _largest_of_block),
)
