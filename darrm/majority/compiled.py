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
_BLOCK_SIZE = 64  # places that one bound can skip


def kernels() -> Iterator[Callable[..., object]]:
    """Compile when first called, in the order of `darrm.majority.kernels.Kernels`."""
    yield from (_compile(kernel) for kernel in (triangle_maxima, vertices, outer_costs))


def _compile(function: Callable[..., object]) -> Callable[..., object]:
    numba = require("numba")
    for shared in _JITTED_FUNCTIONS:
        numba.extending.register_jitable(shared)
    compiled: Callable[..., object]
    try:
        compiled = numba.njit(function, cache=True, nogil=True, error_model="numpy")
    except RuntimeError:  # neither the package nor the user's cache is writable
        compiled = numba.njit(function, nogil=True, error_model="numpy")

    def call_with_plain_tuples(*arguments: object) -> object:
        return compiled(*(tuple(value) if isinstance(value, tuple) else value for value in arguments))

    return call_with_plain_tuples  # numba needs fifty microseconds a call for a named tuple


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
    tops, block = np.empty((2, level.size // _BLOCK_SIZE + 1)), np.empty((2, _BLOCK_SIZE))
    place = 0
    for j in range(costs.size):
        size = level.size - j
        width = size - unaffected
        if j % LEVELS_A_TOP == 0:
            _bound_blocks(level[:size], 0, weights.shape[0] - 1, tops)
        # the block of the previous level's maximum comes first: then few others need a search
        place = min(place, (unaffected + 1) * width - 1)
        likely = (place // width, place % width // _BLOCK_SIZE)
        record = _search_block(level[:size], reversed_weights, exp_epsilon, (*likely, width), block, (-np.inf, place))
        for unaffected_ones in range(unaffected + 1):
            for number in range(-(-width // _BLOCK_SIZE)):
                first, offset = divmod(unaffected_ones + number * _BLOCK_SIZE, _BLOCK_SIZE)
                top, reflected_top = tops[0, first], tops[1, first]
                if offset and first + 1 < tops.shape[1]:
                    top, reflected_top = max(top, tops[0, first + 1]), max(reflected_top, tops[1, first + 1])
                bound = top + exp_epsilon * reflected_top + params.slack
                if bound > floor and bound >= record[0] and (unaffected_ones, number) != likely:
                    record = _search_block(
                        level[:size], reversed_weights, exp_epsilon, (unaffected_ones, number, width), block, record
                    )
        costs[j], places[j] = record
        place = record[1]
        # g is odd, so for (lo, hi) only the weights of the averages change places
        _advance(level[:size], params.hi if low else 1.0 - params.hi, 1.0 - params.hi if low else params.hi)


def _advance(level: Array, first_weight: float, second_weight: float) -> None:
    """Overwrite T, shape (N + 1,), with the N values of the next level."""
    for s in range(_U(level.size - 1)):
        level[s] = first_weight * level[s] + second_weight * level[s + _U(1)]


def _has_fall(level: Array, tolerance: float) -> bool:
    num_falls = 0
    for s in range(_U(level.size - 1)):
        num_falls += level[s] - level[s + _U(1)] > tolerance
    return num_falls > 0


def _bound_blocks(level: Array, down: int, up: int, tops: Array) -> None:
    """Bound T around each block of places, and T(N − s), for the next `LEVELS_A_TOP` levels, with moves down and up."""
    size, reach = level.size, _BLOCK_SIZE + LEVELS_A_TOP
    tops[:] = -np.inf  # a value of the next level lies between two neighbors of this one
    for block in range(-(-size // _BLOCK_SIZE)):
        start = block * _BLOCK_SIZE
        tops[0, block] = _find_largest(level[max(0, start - down) : min(start + reach + up, size)])
        tops[1, block] = _find_largest(level[max(0, size - start - reach - down) : min(size - start + up, size)])


def _find_largest(values: Array) -> float:
    lanes = np.full(8, -np.inf)
    num_full = values.size - values.size % 8
    for s in range(_U(0), _U(num_full), _U(8)):
        for k in range(_U(8)):
            lanes[k] = max(lanes[k], values[s + k])
    top = -np.inf
    for k in range(8):
        top = max(top, lanes[k])
    for s in range(num_full, values.size):
        top = max(top, values[s])
    return top


def _search_block(
    level: Array,
    reversed_weights: Array,
    exp_epsilon: float,
    position: tuple[int, int, int],
    block: Array,
    record: tuple[float, int],
) -> tuple[float, int]:
    """Search one block in the window of unaffected voters at 1; return the best cost so far and its first place."""
    (unaffected_ones, number, width), (best, place) = position, record
    start, last, shift = number * _BLOCK_SIZE, width - 1, reversed_weights.shape[1] - width
    count = min(_BLOCK_SIZE, width - start)
    direct, reflected, mirror_start = block[0, :count], block[1, :count], last - start - count + 1
    window, mirror_window = (
        level[unaffected_ones : unaffected_ones + width],
        level[level.size - width - unaffected_ones : level.size - unaffected_ones],
    )
    _average_up(window[start:], reversed_weights, shift + start, direct)
    _average_up(mirror_window[mirror_start:], reversed_weights, shift + mirror_start, reflected)
    num_above = 0
    for b in range(_U(count)):
        direct[b] += exp_epsilon * reflected[_U(count - 1) - b]
        num_above += direct[b] >= best
    if num_above:
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


def _bound_moves(level: Array, tails: Array, bound: Array) -> None:
    size = level.size
    largest, wider = level.copy(), np.empty(size)
    bound[:] = level
    for k in range(tails.size - 1):
        wider[0], wider[size - 1] = largest[0], largest[size - 1]
        if size > 1:
            wider[0], wider[size - 1] = max(largest[0], largest[1]), max(largest[size - 1], largest[size - 2])
        for s in range(_U(1), _U(size - 1)):
            right_largest = max(largest[s], largest[s + _U(1)])
            wider[s] = max(right_largest, largest[s - _U(1)])
        for s in range(_U(size)):
            bound[s] += tails[k] * (wider[s] - largest[s])
        largest, wider = wider, largest
    tail_bound = 2.0 * tails[-1]
    for s in range(_U(size)):
        bound[s] += tail_bound


def vertices(block: Array, params: KernelParams, values: Array, bounds: Array, choice: NDArray[np.int64]) -> None:
    params = KernelParams(*params)
    for state in range(block.shape[0]):
        _find_best_vertices(block[state], 0, params, values[state], bounds[state], choice[state])


def _find_best_vertices(
    level: Array, first: int, params: KernelParams, values: Array, bounds: Array, choice: NDArray[np.int64]
) -> None:
    """Compute the best vertices of one T, shape (N + 1,), at the places from ``first`` on."""
    weights = params.delta_weights
    N, count, window = level.size - 1, values.size, level[first:]
    up_weights = weights[:, N + 1 - first - count : N + 1 - first][:, ::-1].copy()
    zeros, reflected, both_moved, curvatures = np.empty(count), np.empty(count), np.empty(count), np.zeros(count)
    _average_up(window, up_weights, 0, zeros)
    last = N + 1 - first - count
    _average_up(level[::-1][last:].copy(), weights[:, first : first + count][:, ::-1].copy(), 0, reflected)
    ones = reflected[::-1]
    _average_both(level, up_weights, weights[:, first : first + count], first, both_moved)
    _bound_curvature(level, weights.shape[0] - 1, first, curvatures)
    for b in range(_U(count)):
        best, best_choice = window[b], 0
        if zeros[b] > best:
            best, best_choice = zeros[b], 1
        if ones[b] > best:
            best, best_choice = ones[b], 2
        if both_moved[b] > best:
            best, best_choice = both_moved[b], 3
        values[b], choice[b] = best, best_choice
        n_1 = float(_U(first) + b)
        lever = params.delta_squared * ((N - n_1) * (N - n_1) + n_1 * n_1) / 8.0
        bounds[b] = best + 1.0001 * lever * (curvatures[b] + params.tail_curvature)


def _average_both(level: Array, up: Array, down: Array, first: int, result: Array) -> None:
    J, N, count, window = up.shape[0] - 1, level.size - 1, result.size, level[first:]
    band = np.zeros((2 * J + 1, count))
    for i in range(J + 1):
        for k in range(J + 1):
            row, up_weights, down_weights = band[J + i - k], up[i], down[k]
            for b in range(_U(count)):
                row[b] += up_weights[b] * down_weights[b]
    for b in range(_U(count)):
        result[b] = band[J, b] * window[b]
    for d in range(1, min(J, N) + 1):
        forward, right, skip = band[J + d], window[d:], max(0, d - first)
        for b in range(_U(min(count, max(0, window.size - d)))):
            result[b] += forward[b] * right[b]
        if skip < count:
            backward, left, target = (band[J - d][skip:], level[first + skip - d :], result[skip:])
            for b in range(_U(count - skip)):
                target[b] += backward[b] * left[b]


def _bound_curvature(level: Array, J: int, first: int, result: Array) -> None:
    N, count = level.size - 1, result.size
    start, stop = max(0, first - J), min(N + 1, first + count + J)
    curvature = np.zeros(stop - start)
    for s in range(_U(max(start, 1)), _U(min(stop, N))):
        curvature[s - _U(start)] = abs((level[s + _U(1)] - level[s]) - (level[s] - level[s - _U(1)]))
    for d in range(-J, J + 1):
        num_skipped = max(0, start - first - d)
        if num_skipped < count:
            window, target = curvature[first + num_skipped + d - start :], result[num_skipped:]
            for b in range(_U(max(0, min(window.size, count - num_skipped)))):
                target[b] = max(target[b], window[b])


def outer_costs(level: Array, params: KernelParams, threshold: float, first: int, costs: Array, bounds: Array) -> int:
    params = KernelParams(*params)
    J, count = params.delta_weights.shape[0] - 1, -(-level.size // _BLOCK_SIZE)
    tops, values, uppers = np.empty((2, 2, count)), np.empty((2, _BLOCK_SIZE)), np.empty((2, _BLOCK_SIZE))
    for index in range(costs.size):
        size = level.size - index
        current, best = level[:size], threshold
        if index % LEVELS_A_TOP == 0:
            _bound_blocks(current, J, J, tops[0])
            _bound_blocks(-current[::-1], J, J, tops[1])
        for low in range(2 if first + index else 1):
            chain = -current[::-1] if low else current
            for number in range(-(-size // _BLOCK_SIZE)):
                if tops[low, 0, number] + params.exp_epsilon * tops[low, 1, number] + params.slack > best:
                    cost, bound = _bound_block(chain, number * _BLOCK_SIZE, params, values, uppers, best)
                    best, bounds[index] = max(best, cost), max(bounds[index], bound)
        if best > threshold:
            costs[index] = best
        if not _has_fall(current, params.error_of_falls * (first + index)):
            return -1 - index
        _advance(current, 1.0 - params.hi, params.hi)
    return costs.size


def _bound_block(
    level: Array, start: int, params: KernelParams, values: Array, uppers: Array, best: float
) -> tuple[float, float]:
    """Compute the largest cost of a block with moves at vertices and a bound on any moves; −∞ if at most ``best``."""
    size, margin, exp_epsilon = level.size, params.tails.size - 1, params.exp_epsilon
    count, choice = min(_BLOCK_SIZE, size - start), np.empty(_BLOCK_SIZE, dtype=np.int64)
    starts = start, size - start - count
    for side in range(2):
        first_place = max(0, starts[side] - margin)
        window = level[first_place : min(size, starts[side] + count + margin)]
        bound = np.empty(window.size)
        _bound_moves(window, params.tails, bound)
        values[side, :count] = bound[starts[side] - first_place :][:count]
    if _find_largest_sum(values[0, :count], exp_epsilon, values[1, :count]) + params.slack <= best:
        return -np.inf, -np.inf
    for side in range(2):
        _find_best_vertices(level, starts[side], params, values[side, :count], uppers[side, :count], choice[:count])
    return (
        _find_largest_sum(values[0, :count], exp_epsilon, values[1, :count]),
        _find_largest_sum(uppers[0, :count], exp_epsilon, uppers[1, :count]),
    )


def _find_largest_sum(first: Array, exp_epsilon: float, second: Array) -> float:
    best = -np.inf
    for b in range(_U(first.size)):
        best = max(best, first[b] + exp_epsilon * second[_U(first.size - 1) - b])
    return best


_JITTED_FUNCTIONS = (
    *(_advance, _has_fall, _find_largest, _bound_blocks, _average_up, _search_block),
    *(_bound_moves, _average_both, _bound_curvature, _find_best_vertices, _find_largest_sum, _bound_block),
)
