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
_BLOCK = 64  # places compared at once


@dataclass(frozen=True)
class Loops:
    """The compiled functions of this module."""

    triangle_maxima: Callable[..., None]
    vertices: Callable[..., None]
    pass_levels: Callable[..., int]
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
    return Loops(_compile(triangle_maxima), _compile(vertices), _compile(pass_levels), _compile(search))


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile when first called, keeping the code on disk where there is a place for it."""
    numba = require("numba")
    for shared in (_average_up, _average_down, _screen_exceeds, vertices, _moved):
        numba.extending.register_jitable(shared)
    try:
        compiled: Callable[..., Any] = numba.njit(function, cache=True, nogil=True, error_model="numpy")
    except RuntimeError:  # neither the package nor the user's cache can be written to
        compiled = numba.njit(function, nogil=True, error_model="numpy")
    return compiled


def triangle_maxima(  # noqa: C901, PLR0912 (loops are written out)
    own: Array,
    mirrored: Array,
    first_weight: float,
    second_weight: float,
    ratio: float,
    delta_weights: Array,
    held: int,
    costs: Array,
    places: NDArray[np.int64],
) -> None:
    """Find the largest cost of as many levels as ``costs`` is long, and the first place where it stands.

    ``own`` is T(s) of the first of these levels and ``mirrored`` T(N − s), both shape (N + 1,) and overwritten with the
    level after the last; the next level is first_weight·T(s) + second_weight·T(s + 1). ``delta_weights`` has shape (J +
    1, K + 1). The windows of ``held`` frozen voters stand one after the other.
    """
    terms, K = delta_weights.shape[0] - 1, delta_weights.shape[1] - 1
    reflected = delta_weights[:, ::-1].copy()  # the loops run forward through all they read
    moved, moved_mirrored = own, mirrored
    are_moved = terms > 0 or held > 0
    if are_moved:
        room = (held + 1) * (own.size - held)
        moved, moved_mirrored = np.empty(room), np.empty(room)
    place: Any = _U(0)
    for j in range(costs.size):
        size = own.size - j
        if are_moved:
            width = size - held
            size = (held + 1) * width
            for frozen in range(held + 1):
                window = slice(frozen * width, (frozen + 1) * width)
                _average_up(own[frozen:], reflected, K + 1 - width, moved[window])
            for b in range(_U(size)):
                moved_mirrored[b] = moved[_U(size - 1) - b]
        place = min(place, _U(size - 1))
        # just below the cost at the last level's place, so that few blocks have to be looked through
        best = np.nextafter(moved[place] + ratio * moved_mirrored[place], -np.inf)
        whole = _U(size - size % _BLOCK)
        for start in range(_U(0), whole, _U(_BLOCK)):
            above = 0
            for b in range(_U(_BLOCK)):
                above += moved[start + b] + ratio * moved_mirrored[start + b] > best
            if above:
                for b in range(start, start + _U(_BLOCK)):
                    cost = moved[b] + ratio * moved_mirrored[b]
                    if cost > best:
                        best, place = cost, b
        for b in range(whole, _U(size)):
            cost = moved[b] + ratio * moved_mirrored[b]
            if cost > best:
                best, place = cost, b
        costs[j], places[j] = best, place
        for s in range(_U(own.size - 1 - j)):
            own[s] = first_weight * own[s] + second_weight * own[s + _U(1)]
            mirrored[s] = second_weight * mirrored[s] + first_weight * mirrored[s + _U(1)]


def _average_up(values: Array, weights: Array, first: int, result: Array) -> None:
    """Compute Σ_i weights[i, first + b]·values[b + i] into ``result``, i ascending, where b + i is a place."""
    size = result.size
    row = weights[0][first:]
    for b in range(_U(size)):
        result[b] = row[b] * values[b]
    for i in range(1, min(weights.shape[0], size)):
        row, source = weights[i][first:], values[i:]
        for b in range(_U(size - i)):
            result[b] += row[b] * source[b]


def _average_down(values: Array, weights: Array, result: Array) -> None:
    """Compute Σ_i weights[i, b]·values[b − i] into ``result``, i ascending, where b − i is a place."""
    size = result.size
    row = weights[0]
    for b in range(_U(size)):
        result[b] = row[b] * values[b]
    for i in range(1, min(weights.shape[0], size)):
        row, target = weights[i][i:], result[i:]
        for b in range(_U(size - i)):
            target[b] += row[b] * values[b]


def _screen_exceeds(level: Array, ratio: float, tails: Array, least: float) -> bool:
    """Whether the bound of `NearShifts.screen` on any cost exceeds ``least``; ``level`` is T, shape (N + 1,).

    ``tails`` holds Pr[more than k moves] for k = 0, 1, …, the last of them for moves that are not followed.
    """
    size = level.size
    bound, reach, wider = level.copy(), level.copy(), np.empty(size)
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
    above = 0
    mirrored = bound[::-1].copy()
    for s in range(_U(size)):
        above += bound[s] + ratio * mirrored[s] > least
    return above > 0


def vertices(  # noqa: C901, PLR0912 (loops are written out)
    level: Array,
    delta_weights: Array,
    delta_squared: float,
    rest: float,
    values: Array,
    bounds: Array,
    choice: NDArray[np.int64],
) -> None:
    """Compute `NearShifts.vertices` of one T: four arrays of shape (N + 1,); ``rest`` is added to the curvature."""
    J, N = delta_weights.shape[0] - 1, level.size - 1
    up = delta_weights[:, N::-1].copy()
    band = np.zeros((2 * J + 1, N + 1))
    for i in range(J + 1):
        for k in range(J + 1):
            row, first, second = band[J + i - k], up[i], delta_weights[k]
            for b in range(_U(N + 1)):
                row[b] += first[b] * second[b]
    zeros, ones, both = np.empty(N + 1), np.empty(N + 1), np.empty(N + 1)
    _average_up(level, up, 0, zeros)
    _average_down(level, delta_weights, ones)
    for b in range(_U(N + 1)):
        both[b] = band[J, b] * level[b]
    for d in range(1, min(J, N) + 1):
        forward, backward, after, both_after = band[J + d], band[J - d][d:], level[d:], both[d:]
        for b in range(_U(N + 1 - d)):
            both[b] += forward[b] * after[b]
        for b in range(_U(N + 1 - d)):
            both_after[b] += backward[b] * level[b]
    curvature, around = np.zeros(N + 1), np.zeros(N + 1)
    for b in range(_U(1), _U(N)):
        curvature[b] = abs((level[b + _U(1)] - level[b]) - (level[b] - level[b - _U(1)]))
        around[b] = curvature[b]
    for d in range(1, min(J, N) + 1):
        after, around_after = curvature[d:], around[d:]
        for b in range(_U(N + 1 - d)):
            around[b] = max(around[b], after[b])
        for b in range(_U(N + 1 - d)):
            around_after[b] = max(around_after[b], curvature[b])
    for b in range(_U(N + 1)):
        best, which = level[b], 0
        if zeros[b] > best:
            best, which = zeros[b], 1
        if ones[b] > best:
            best, which = ones[b], 2
        if both[b] > best:
            best, which = both[b], 3
        values[b], choice[b] = best, which
        n_1 = float(b)
        lever = delta_squared * ((N - n_1) * (N - n_1) + n_1 * n_1) / 8.0
        bounds[b] = best + 1.0001 * lever * (around[b] + rest)


def pass_levels(
    level: Array,
    first: int,
    most: int,
    last: int,
    hi: float,
    ratio: float,
    error_of_falls: float,
    tails: Array,
    delta_weights: Array,
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
    and after the m-th of them the pass ends; for m = 0 none is kept. −1 marks the end of ``kept_levels``. ``costs[j]``
    receives the largest cost of level j, if it was not kept and can exceed the lower of the two. Returns the next
    level, or −1 − j if T does not fall at level j, which was passed, and ``level`` is T there.
    """
    values, bounds = np.empty(level.size), np.empty(level.size)
    choice = np.empty(level.size, dtype=np.int64)
    kept_levels[:] = -1
    count, room = 0, kept_levels.size
    for j in range(first, last + 1):
        if j - first == most or (room > 0 and count == room):
            return j
        size = level.size - (j - first)
        own, fall, largest, is_kept = level[:size], 0.0, -np.inf, False
        for b in range(_U(size - 1)):
            fall = max(fall, own[b] - own[b + _U(1)])
        for low in range(2 if j else 1):
            chain = -own[::-1] if low else own
            if not _screen_exceeds(chain, ratio, tails, min(limit, best)):
                continue
            vertices(chain, delta_weights, delta_squared, rest, values[:size], bounds[:size], choice[:size])
            cost, upper = -np.inf, -np.inf
            for b in range(_U(size)):
                cost = max(cost, values[b] + ratio * values[_U(size - 1) - b])
                upper = max(upper, bounds[b] + ratio * bounds[_U(size - 1) - b])
            largest = max(largest, cost)
            is_kept = is_kept or (room > 0 and (cost > limit or upper > max(best, cost)))
        if is_kept:
            kept[count, :size], kept_levels[count] = own, j
            count += 1
        else:
            costs[j] = largest
            best = max(best, largest) if room > 0 else best
        if fall <= error_of_falls * j and j < last:
            return -1 - j
        for s in range(_U(size - 1)):
            level[s] = (1.0 - hi) * level[s] + hi * level[s + _U(1)]
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
