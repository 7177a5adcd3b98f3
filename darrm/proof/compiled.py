"""The inner loops of separation, written out place by place for numba (``pip install 'darrm[compiled]'``).

Every loop makes the sums and products of its numpy twin in the same order, without contraction or reassociation (no
fast math). So results agree to the bit, but for the sign of a zero, and one error bound holds for both;
`tests/proof/test_compiled.py` compares them. Compiled code is kept on disk, and loading it costs 0.6 seconds.
That is paid once numpy has been at work for as long: then no process takes more than twice what the better choice
would have been.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.probability import Array
from darrm.system.extras import require

LOADING = 6e8  # nanoseconds: importing numba and reading the loops from its cache

_U = np.uintp  # numba wraps signed indices around, which keeps loops from being vectorized
_BLOCK = 64  # places that are passed over at once
LEVELS_A_TOP = 32  # levels for which one bound on a block is kept


@dataclass(frozen=True)
class Loops:
    """The compiled functions of this module."""

    triangle_maxima: Callable[..., None]
    vertices: Callable[..., None]
    pass_levels: Callable[..., int]
    border_costs: Callable[..., int]
    search: Callable[..., tuple[float, float, int, int]]


class Work:
    """How long numpy has been at work in this process, estimated in nanoseconds."""

    def __init__(self) -> None:
        self.nanoseconds = 0.0

    def loops(self, nanoseconds: float) -> Loops | None:
        """Count work that is about to be done; return the compiled loops if they pay and numba is installed."""
        self.nanoseconds += nanoseconds
        return load() if self.nanoseconds >= LOADING else None


WORK = Work()


def is_available() -> bool:
    """Whether numba is installed; does not import it."""
    return find_spec("numba") is not None


def advice() -> str | None:
    """Return a line about what would have made this process faster, or None if nothing would."""
    if WORK.nanoseconds < LOADING or is_available():
        return None
    return "the search spends its time in loops that can be compiled: pip install 'darrm[compiled]'"


@cache
def load() -> Loops | None:
    """Import numba and compile, or read what was compiled before; None without numba."""
    if not is_available():
        return None
    return Loops(*(_compile(loop) for loop in (triangle_maxima, vertices, pass_levels, border_costs, search)))


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile when first called, keeping the code on disk where there is a place for it."""
    numba = require("numba")
    averages, tops = (_step, _falls, _average_up, _average_down), (_largest, _block_tops, _best_of_block)
    screens, sums = (_screen, _screen_exceeds, _block_screen), (_largest_sum, vertices, _block_vertices, _moved)
    for shared in averages + tops + screens + sums:
        numba.extending.register_jitable(shared)
    try:
        compiled: Callable[..., Any] = numba.njit(function, cache=True, nogil=True, error_model="numpy")
    except RuntimeError:  # neither the package nor the user's cache can be written to
        compiled = numba.njit(function, nogil=True, error_model="numpy")
    return compiled


def triangle_maxima(
    own: Array,
    first_weight: float,
    second_weight: float,
    ratio: float,
    slack: float,
    floor: float,
    delta_weights: Array,
    held: int,
    costs: Array,
    places: NDArray[np.int64],
) -> None:
    """Find the largest cost of as many levels as ``costs`` is long, and the first place where it stands.

    Where it is at most ``floor``, any of these costs is as good.

    ``own`` is T(s) of the first of these levels, shape (N + 1,), and overwritten with the level after the last; the
    next level is first_weight·T(s) + second_weight·T(s + 1). ``delta_weights`` has shape (J + 1, K + 1). The windows of
    ``held`` frozen voters stand one after the other. A block of places is passed over where no cost can be the largest:
    a computed cost is at most ``slack`` above what the largest T that it averages allow.
    """
    reflected = delta_weights[:, ::-1].copy()  # the loops run forward through all they read
    tops = np.empty((2, own.size // _BLOCK + 1))
    block = np.empty((2, _BLOCK))
    place = 0
    for j in range(costs.size):
        size = own.size - j
        width = size - held
        if j % LEVELS_A_TOP == 0:
            _block_tops(own[:size], 0, delta_weights.shape[0] - 1, tops)
        # the block of the last level's place comes first, so that few others have to be looked through
        place = min(place, (held + 1) * width - 1)
        likely, best = (place // width, place % width // _BLOCK), -np.inf
        best, place = _best_of_block(own[:size], reflected, ratio, *likely, width, block, best, place)
        for frozen in range(held + 1):
            for number in range(-(-width // _BLOCK)):
                first, beside = divmod(frozen + number * _BLOCK, _BLOCK)
                top, mirrored_top = tops[0, first], tops[1, first]
                if beside and first + 1 < tops.shape[1]:
                    top, mirrored_top = max(top, tops[0, first + 1]), max(mirrored_top, tops[1, first + 1])
                most = top + ratio * mirrored_top + slack
                if most > floor and most >= best and (frozen, number) != likely:
                    best, place = _best_of_block(
                        own[:size], reflected, ratio, frozen, number, width, block, best, place
                    )
        costs[j], places[j] = best, place
        _step(own[:size], first_weight, second_weight)


def _step(level: Array, first_weight: float, second_weight: float) -> None:
    """Overwrite T, shape (N + 1,), with the N values of the next level."""
    for s in range(_U(level.size - 1)):
        level[s] = first_weight * level[s] + second_weight * level[s + _U(1)]


def _falls(level: Array, most: float) -> bool:
    """Whether T falls by more than ``most`` anywhere."""
    falls = 0
    for s in range(_U(level.size - 1)):
        falls += level[s] - level[s + _U(1)] > most
    return falls > 0


def _block_tops(level: Array, down: int, up: int, tops: Array) -> None:
    """Bound T around each block of places, and T(N − s), for as many levels as tops are kept.

    A value of the next level lies between two neighbors of this one, and at most ``down`` ones and ``up`` zeros move.
    """
    size, reach = level.size, _BLOCK + LEVELS_A_TOP
    tops[:] = -np.inf
    for block in range(-(-size // _BLOCK)):
        start = block * _BLOCK
        tops[0, block] = _largest(level[max(0, start - down) : min(start + reach + up, size)])
        tops[1, block] = _largest(level[max(0, size - start - reach - down) : min(size - start + up, size)])


def _largest(values: Array) -> float:
    """Find the largest of some values, eight side by side."""
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
    reflected: Array,
    ratio: float,
    frozen: int,
    number: int,
    width: int,
    block: Array,
    best: float,
    place: int,
) -> tuple[float, int]:
    """Look at the costs of one block in the window of ``frozen`` voters at 1: the best so far, at its first place."""
    start, last, shift = number * _BLOCK, width - 1, reflected.shape[1] - width
    count = min(_BLOCK, width - start)
    own, mirrored, before = block[0, :count], block[1, :count], last - start - count + 1
    window, opposite = level[frozen : frozen + width], level[level.size - width - frozen : level.size - frozen]
    _average_up(window[start:], reflected, shift + start, own)
    _average_up(opposite[before:], reflected, shift + before, mirrored)
    above = 0
    for b in range(_U(count)):
        own[b] += ratio * mirrored[_U(count - 1) - b]
        above += own[b] >= best
    if above:
        first = frozen * width + start
        for b in range(count):
            if own[b] > best or (own[b] == best and first + b < place):
                best, place = own[b], first + b
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


def _average_down(values: Array, weights: Array, first: int, result: Array) -> None:
    """Compute Σ_i weights[i, first + b]·values[first + b − i] into ``result``, i ascending, where that is a place."""
    size = result.size
    row, source = weights[0][first:], values[first:]
    for b in range(_U(size)):
        result[b] = row[b] * source[b]
    for i in range(1, min(weights.shape[0], first + size)):
        skipped = max(0, i - first)
        row, source, target = weights[i][first + skipped :], values[first + skipped - i :], result[skipped:]
        for b in range(_U(size - skipped)):
            target[b] += row[b] * source[b]


def _screen(level: Array, tails: Array, bound: Array) -> None:
    """Compute `NearShifts.screen` of one T, all arrays of shape (N + 1,) but ``tails``.

    These are Pr[more than k moves] for k = 0, 1, …, the last of them for moves that are not followed.
    """
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


def _screen_exceeds(level: Array, ratio: float, tails: Array, least: float) -> bool:
    """Whether the screen of any cost exceeds ``least``."""
    bound = np.empty(level.size)
    _screen(level, tails, bound)
    above = 0
    mirrored = bound[::-1].copy()
    for s in range(_U(level.size)):
        above += bound[s] + ratio * mirrored[s] > least
    return above > 0


def vertices(  # noqa: C901, PLR0912 (loops are written out)
    level: Array,
    first: int,
    delta_weights: Array,
    delta_squared: float,
    rest: float,
    values: Array,
    bounds: Array,
    choice: NDArray[np.int64],
) -> None:
    """Compute `NearShifts.vertices` of one T, shape (N + 1,), at as many places from ``first`` as there is room for.

    ``rest`` is added to the curvature.
    """
    J, N, count = delta_weights.shape[0] - 1, level.size - 1, values.size
    down = delta_weights[:, first : first + count]
    up = delta_weights[:, N + 1 - first - count : N + 1 - first][:, ::-1].copy()
    band = np.zeros((2 * J + 1, count))
    for i in range(J + 1):
        for k in range(J + 1):
            row, one, other = band[J + i - k], up[i], down[k]
            for b in range(_U(count)):
                row[b] += one[b] * other[b]
    zeros, ones, both = np.empty(count), np.empty(count), np.empty(count)
    here = level[first:]
    _average_up(here, up, 0, zeros)
    _average_down(level, delta_weights, first, ones)
    for b in range(_U(count)):
        both[b] = band[J, b] * here[b]
    for d in range(1, min(J, N) + 1):
        forward, after, skipped = band[J + d], here[d:], max(0, d - first)
        for b in range(_U(min(count, max(0, here.size - d)))):
            both[b] += forward[b] * after[b]
        if skipped < count:
            backward, before, target = band[J - d][skipped:], level[first + skipped - d :], both[skipped:]
            for b in range(_U(count - skipped)):
                target[b] += backward[b] * before[b]
    start, stop = max(0, first - J), min(N + 1, first + count + J)
    curvature, around = np.zeros(stop - start), np.zeros(count)
    for s in range(_U(max(start, 1)), _U(min(stop, N))):
        curvature[s - _U(start)] = abs((level[s + _U(1)] - level[s]) - (level[s] - level[s - _U(1)]))
    for d in range(-J, J + 1):
        skipped = max(0, start - first - d)
        if skipped < count:
            near, target = curvature[first + skipped + d - start :], around[skipped:]
            for b in range(_U(max(0, min(near.size, count - skipped)))):
                target[b] = max(target[b], near[b])
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
        lever = delta_squared * ((N - n_1) * (N - n_1) + n_1 * n_1) / 8.0
        bounds[b] = best + 1.0001 * lever * (around[b] + rest)


def border_costs(
    level: Array,
    first: int,
    most: int,
    last: int,
    delta_weights: Array,
    hi: float,
    ratio: float,
    error_of_falls: float,
    tails: Array,
    slack: float,
    limit: float,
    costs: Array,
) -> int:
    """Find the largest cost above ``limit`` of at most ``most`` levels first … last of `FullSet`, moves at vertices.

    ``level`` is T at level ``first``, shape (K + 1 − first,), and becomes T at the next level; ``costs[j]`` receives
    the largest cost of level j, if it is above the limit. Returns what `pass_levels` does.
    """
    J, count = delta_weights.shape[0] - 1, -(-level.size // _BLOCK)
    tops, block = np.empty((2, 2, count)), np.empty((2, _BLOCK))
    for j in range(first, last + 1):
        if j - first == most:
            return j
        size = level.size - (j - first)
        own, best = level[:size], limit
        if (j - first) % LEVELS_A_TOP == 0:
            _block_tops(own, J, J, tops[0])
            _block_tops(-own[::-1], J, J, tops[1])
        for low in range(2 if j else 1):
            chain = -own[::-1] if low else own
            for number in range(-(-size // _BLOCK)):
                if tops[low, 0, number] + ratio * tops[low, 1, number] + slack <= best:
                    continue
                start = number * _BLOCK
                if _block_screen(chain, start, tails, ratio, block) + slack > best:
                    best = max(best, _block_vertices(chain, start, delta_weights, ratio, block))
        if best > limit:
            costs[j] = best
        if j < last and not _falls(own, error_of_falls * j):
            return -1 - j
        _step(own, 1.0 - hi, hi)
    return last + 1


def _block_screen(level: Array, start: int, tails: Array, ratio: float, block: Array) -> float:
    """Bound the costs of a block by what moves can reach."""
    size, margin = level.size, tails.size - 1
    count = min(_BLOCK, size - start)
    for side in range(2):
        place = size - start - count if side else start
        from_place = max(0, place - margin)
        near = level[from_place : min(size, place + count + margin)]
        bound = np.empty(near.size)
        _screen(near, tails, bound)
        block[side, :count] = bound[place - from_place :][:count]
    return _largest_sum(block[0, :count], ratio, block[1, :count])


def _block_vertices(level: Array, start: int, delta_weights: Array, ratio: float, block: Array) -> float:
    """Compute the largest cost of a block with moves at vertices."""
    count = min(_BLOCK, level.size - start)
    bounds, choice = np.empty(count), np.empty(count, dtype=np.int64)
    vertices(level, start, delta_weights, 0.0, 0.0, block[0, :count], bounds, choice)
    vertices(level, level.size - start - count, delta_weights, 0.0, 0.0, block[1, :count], bounds, choice)
    return _largest_sum(block[0, :count], ratio, block[1, :count])


def _largest_sum(first: Array, ratio: float, second: Array) -> float:
    """Find the largest first[b] + ratio·second[n − 1 − b]."""
    best = -np.inf
    for b in range(_U(first.size)):
        best = max(best, first[b] + ratio * second[_U(first.size - 1) - b])
    return best


def pass_levels(
    level: Array,
    first: int,
    most: int,
    last: int,
    delta_weights: Array,
    hi: float,
    ratio: float,
    error_of_falls: float,
    tails: Array,
    delta_squared: float,
    rest: float,
    limit: float,
    best: float,
    costs: Array,
    kept: Array,
    kept_levels: NDArray[np.int64],
) -> int:
    """Pass over at most ``most`` levels first … last of `FullSet` and keep those that have to be examined.

    ``level`` is T at level ``first``, shape (K + 1 − first,), and becomes T at the next level; ``kept`` has shape
    (m, K + 1 − first). A level is kept where a cost exceeds ``limit`` or a bound exceeds ``best`` and all costs passed,
    and after the m-th of them the pass ends. −1 marks the end of ``kept_levels``. ``costs[j]`` receives the largest
    cost of level j, if it was not kept and can exceed the lower of the two. Returns the next level, or −1 − j if T does
    not fall at level j, which was passed, and ``level`` is T there.
    """
    values, bounds = np.empty(level.size), np.empty(level.size)
    choice = np.empty(level.size, dtype=np.int64)
    kept_levels[:] = -1
    count, room = 0, kept_levels.size
    for j in range(first, last + 1):
        if j - first == most or count == room:
            return j
        size = level.size - (j - first)
        own, largest, is_kept = level[:size], -np.inf, False
        for low in range(2 if j else 1):
            chain = -own[::-1] if low else own
            if not _screen_exceeds(chain, ratio, tails, min(limit, best)):
                continue
            vertices(chain, 0, delta_weights, delta_squared, rest, values[:size], bounds[:size], choice[:size])
            cost = _largest_sum(values[:size], ratio, values[:size])
            upper = _largest_sum(bounds[:size], ratio, bounds[:size])
            largest = max(largest, cost)
            is_kept = is_kept or cost > limit or upper > max(best, cost)
        if is_kept:
            kept[count, :size], kept_levels[count] = own, j
            count += 1
        else:
            costs[j] = largest
            best = max(best, largest)
        if j < last and not _falls(own, error_of_falls * j):
            return -1 - j
        _step(own, 1.0 - hi, hi)
    return last + 1


def search(  # noqa: C901, PLR0912 (loops are written out)
    level: Array,
    n_1: int,
    weights: Array,
    curvature: float,
    enough: float,
    zeros: NDArray[np.int64],
    ones: NDArray[np.int64],
    most_cells: int,
) -> tuple[float, float, int, int]:
    """Search as `NearShifts.search` from a grid of zeros × ones: the best value, what is left, a and a_1."""
    J = weights.shape[0] - 1
    window = np.zeros((J + 1, J + 1))
    for i in range(J + 1):
        for k in range(J + 1):
            if 0 <= n_1 + i - k < level.size:
                window[i, k] = level[n_1 + i - k]
    values = np.empty((zeros.size, ones.size))
    best, left, a, a_1 = -np.inf, -np.inf, 0, 0
    for x in range(zeros.size):
        for y in range(ones.size):
            values[x, y] = _moved(window, weights, zeros[x], ones[y])
            if values[x, y] > best:
                best, a, a_1 = values[x, y], zeros[x], ones[y]
    cells, count = np.empty((max(most_cells, values.size), 4), dtype=np.int64), 0  # a and a_1 from and to
    tops = np.empty(cells.shape[0])
    for x in range(zeros.size - 1):
        for y in range(ones.size - 1):
            cells[count] = zeros[x], ones[y], zeros[x + 1], ones[y + 1]
            tops[count] = max(values[x, y], values[x, y + 1], values[x + 1, y], values[x + 1, y + 1])
            count += 1
    while count > 0:
        still_open, most = 0, -np.inf
        reach = max(best, enough)
        for cell in range(count):
            first, second = cells[cell, 2] - cells[cell, 0], cells[cell, 3] - cells[cell, 1]
            if first <= 1 and second <= 1:
                continue
            squares = (float(first) ** 2 if first > 1 else 0.0) + (float(second) ** 2 if second > 1 else 0.0)
            bound = tops[cell] + curvature * squares
            if bound > reach:
                cells[still_open] = cells[cell]
                still_open += 1
                most = max(most, bound)
            else:
                left = max(left, bound)
        if 4 * still_open > most_cells:
            return best, max(left, most), a, a_1
        count = still_open
        for side in range(2):
            halves = count
            for cell in range(count):
                low, high = cells[cell, side], cells[cell, side + 2]
                if high - low > 1:
                    cells[halves] = cells[cell]
                    cells[halves, side] = (low + high) // 2
                    cells[cell, side + 2] = (low + high) // 2
                    halves += 1
            count = halves
        for cell in range(count):
            tops[cell] = -np.inf
        reached, from_a, from_a_1 = best, a, a_1
        for corner in range(4):
            for cell in range(count):
                x, y = cells[cell, 2 * (corner // 2)], cells[cell, 1 + 2 * (corner % 2)]
                value = _moved(window, weights, x, y)
                tops[cell] = max(tops[cell], value)
                if value > reached:
                    reached, from_a, from_a_1 = value, x, y
        best, a, a_1 = reached, from_a, from_a_1
    return best, left, a, a_1


def _moved(window: Array, weights: Array, zeros: int, ones: int) -> float:
    """Compute Σ_i weights[i, zeros]·(Σ_k window[i, k]·weights[k, ones]), terms in this order."""
    total = 0.0
    for i in range(window.shape[0]):
        inner = window[i, 0] * weights[0, ones]
        for k in range(1, window.shape[0]):
            inner = inner + window[i, k] * weights[k, ones]
        total = total + weights[i, zeros] * inner
    return total
