"""The voters near 0 and 1 when Δ > 0: what moving some of them by Δ can add to an expectation.

For a state with N voters near 0 or 1, n_1 of them near 1, and T(s) the expectation over all other voters,

    V(n_1) = max over a ≤ n_0 = N − n_1, a_1 ≤ n_1 of   E[T(n_1 − Bin(a_1, Δ) + Bin(a, Δ))].

Three answers, each dearer and sharper than the one before: a bound for each n_1, the four vertices a ∈ {0, n_0}, a_1 ∈
{0, n_1} with a curvature bound, and branch and bound over cells of pairs with the same bound.

**The curvature bound.** Let T''(s) = T(s + 1) − 2T(s) + T(s − 1), X ~ Bin(a_1, Δ) and Y ~ Bin(a, Δ). The second
difference of φ(a, a_1) = E[T(n_1 − X + Y)] from a to a + 2 is Δ²·E[T''(n_1 − X + Y + 1)], from a_1 to a_1 + 2 it is
Δ²·E[T''(n_1 − X + Y − 1)]. If X and Y are at most J − 1, T'' is taken within J steps of n_1; X or Y is larger with
probability at most Pr[X + Y ≥ J] ≤ Pr[Bin(N, Δ) ≥ J], and |T''| ≤ 4 then. So both second differences are at most

    Δ²·M(n_1),      M(n_1) = max of |T''| within J steps of n_1, + 4·Pr[Bin(K, Δ) ≥ J].

A function on 0 … n whose second differences are at least −D is at most its larger end plus D·n²/8. Once in a and then,
at the two ends, in a_1: V(n_1) is at most the best vertex plus Δ²·(n_0² + n_1²)/8·M(n_1). T'' is taken where all of
n_1 − X + Y ± 1 and its neighbors lie in 0 … N, because X ≤ a_1 ≤ n_1 and Y ≤ a ≤ n_0 leave room for the step. ∎
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from darrm.probability import Array
from darrm.probability.binomial import tail_bound
from darrm.proof.compiled import WORK
from darrm.proof.dominating import DominatingFamily

_SCREENED_MOVES = 3
_PIECES = 64  # cells each way that a search begins with
_MOST_CELLS = 2**14
_NANOSECONDS_A_SEARCH = 2e6


@dataclass(frozen=True, eq=False)
class Vertices:
    """The best vertex of every n_1: arrays of shape (states, N + 1)."""

    values: Array  # the largest of the four
    bounds: Array  # an upper bound on V
    choice: NDArray[np.int64]  # bit 0: all zeros are moved to Δ, bit 1: all ones are moved to 1 − Δ


class NearShifts:
    """The three answers for one problem with Δ > 0."""

    def __init__(self, family: DominatingFamily) -> None:
        self.family = family
        self.delta = family.corners.delta
        self._band: tuple[int, Array] = (-1, np.empty((0, 0)))

    @cached_property
    def tails(self) -> Array:
        """Bounds on Pr[more than k of at most K voters move] for k = 0 … `_SCREENED_MOVES`."""
        return np.array([self._tail(k) for k in range(_SCREENED_MOVES + 1)])

    @cached_property
    def rest(self) -> float:
        """What M(n_1) adds for moves beyond J."""
        return 4.0 * self._tail(self.family.terms - 1)

    def screen(self, block: Array) -> Array:
        """Bound V from above entry by entry: shape (states, N + 1) → the same.

        At most N voters move, each by one step. With R_k(s) = max of T within k steps of s, V(n_1) is at most
        T(n_1) + Σ_k Pr[at least k moves]·(R_k − R_{k−1})(n_1), and beyond `_SCREENED_MOVES` by at most 2.
        """
        bound = block.copy()
        reach = block
        for tail in self.tails[:-1]:
            wider = reach.copy()
            np.maximum(wider[:, :-1], reach[:, 1:], out=wider[:, :-1])
            np.maximum(wider[:, 1:], reach[:, :-1], out=wider[:, 1:])
            bound += tail * (wider - reach)
            reach = wider
        result: Array = bound + 2.0 * self.tails[-1]
        return result

    def vertices(self, block: Array) -> Vertices:
        """Compute the four vertices and the curvature bound; shape (states, N + 1)."""
        N, J = block.shape[1] - 1, self.family.terms
        loops = WORK.loops(block.shape[0] * (J + 1.0) ** 2 * (N + 2_000.0))
        if loops is not None:
            result = Vertices(np.empty(block.shape), np.empty(block.shape), np.empty(block.shape, dtype=np.int64))
            for state, level in enumerate(block):
                numbers = self.family.delta_weights, self.delta**2, self.rest
                arrays = result.values[state], result.bounds[state], result.choice[state]
                loops.vertices(np.ascontiguousarray(level), 0, *numbers, *arrays)
            return result
        candidates = np.stack(
            [
                block,
                self.family.with_moved_zeros(block),
                self.family.with_moved_zeros(block[:, ::-1])[:, ::-1],
                self._both_moved(block),
            ]
        )
        choice = candidates.argmax(axis=0)
        values = np.take_along_axis(candidates, choice[None], axis=0)[0]
        n_1 = np.arange(N + 1.0)
        lever = self.delta**2 * ((N - n_1) ** 2 + n_1**2) / 8.0
        return Vertices(values, values + 1.0001 * lever * self._curvature(block), choice)

    def search(
        self, block: Array, found: Vertices, state: int, n_1: int, enough: float
    ) -> tuple[float, float, int, int]:
        """Search V(n_1) of one state by branch and bound, after what `vertices` found for the block.

        Nothing is searched that cannot exceed ``enough``. The bound of the module holds for every cell of
        pairs (a, a_1) between its corners: it shrinks as the square of the cell, and where a cell is one step wide
        nothing is added. Cells whose bound exceeds the best pair and ``enough`` are cut into four.

        Returns the best pair's value, an upper bound on V, a and a_1. The bound is the value or at most ``enough``,
        unless more than `_MOST_CELLS` cells are open at once.
        """
        level, value, bound = block[state], float(found.values[state, n_1]), float(found.bounds[state, n_1])
        N, J, weights = level.size - 1, self.family.terms, self.family.delta_weights
        if bound <= enough:
            choice = int(found.choice[state, n_1])
            return value, bound, (N - n_1) * (choice & 1), n_1 * (choice >> 1)
        curvature = 1.0001 * (bound - value) / max(1, (N - n_1) ** 2 + n_1**2)
        zeros, ones = _grid(N - n_1), _grid(n_1)
        loops = WORK.loops(_NANOSECONDS_A_SEARCH)
        if loops is not None:
            best, left, a, a_1 = loops.search(level, n_1, weights, curvature, enough, zeros, ones, _MOST_CELLS)
            return best, max(best, left), a, a_1
        padded = np.concatenate([np.zeros(J), level, np.zeros(J)])
        steps = np.arange(J + 1)
        window = padded[n_1 + J + steps[:, None] - steps[None, :]]
        # a grid of cells to begin with: all pairs where N is small
        values = _moved(window, weights[:, zeros, None], weights[:, None, ones])
        place = int(np.argmax(values))
        best, at = float(values.flat[place]), (int(zeros[place // ones.size]), int(ones[place % ones.size]))
        corners = np.stack([values[:-1, :-1], values[:-1, 1:], values[1:, :-1], values[1:, 1:]]).reshape(4, -1)
        low = np.stack(np.meshgrid(zeros[:-1], ones[:-1], indexing="ij")).reshape(2, -1)
        high = np.stack(np.meshgrid(zeros[1:], ones[1:], indexing="ij")).reshape(2, -1)
        left = -np.inf
        while low.shape[1]:
            width = high - low
            squares = np.where(width > 1, width, 0).astype(np.float64) ** 2
            bounds = np.max(corners, axis=0) + curvature * (squares[0] + squares[1])
            is_wide = np.any(width > 1, axis=0)
            is_open = is_wide & (bounds > max(best, enough))
            left = max(left, float(np.max(bounds[is_wide & ~is_open], initial=-np.inf)))
            if 4 * np.count_nonzero(is_open) > _MOST_CELLS:
                left = max(left, float(np.max(bounds[is_open])))
                break
            low, high = _quarters(low[:, is_open], high[:, is_open])
            pairs = np.stack([low, [low[0], high[1]], [high[0], low[1]], high])
            corners = _moved(window, weights[:, pairs[:, 0]], weights[:, pairs[:, 1]])
            if corners.size and np.max(corners) > best:
                corner, cell = np.unravel_index(int(np.argmax(corners)), corners.shape)
                best, at = float(corners[corner, cell]), (int(pairs[corner, 0, cell]), int(pairs[corner, 1, cell]))
        return best, max(best, left), *at

    def _both_moved(self, block: Array) -> Array:
        """Compute E[T(n_1 − Bin(n_1, Δ) + Bin(n_0, Δ))]."""
        N = block.shape[1] - 1
        band = self._difference_weights(N)
        J = (band.shape[0] - 1) // 2
        result: Array = band[J] * block
        for d in range(1, min(J, N) + 1):
            result[:, : N + 1 - d] += band[J + d, : N + 1 - d] * block[:, d:]
            result[:, d:] += band[J - d, d:] * block[:, : N + 1 - d]
        return result

    def _difference_weights(self, N: int) -> Array:
        """Pr[Bin(n_0, Δ) − Bin(n_1, Δ) = d] for d = −J … J (rows) and n_1 = 0 … N (columns)."""
        if self._band[0] != N:
            weights, J = self.family.delta_weights, self.family.terms
            up, down = weights[:, N::-1], weights[:, : N + 1]
            band = np.zeros((2 * J + 1, N + 1))
            for i in range(J + 1):
                for k in range(J + 1):
                    band[J + i - k] += up[i] * down[k]
            self._band = (N, band)
        return self._band[1]

    def _curvature(self, block: Array) -> Array:
        """Compute M(n_1) of the module: shape (states, N + 1) → the same."""
        second = np.zeros_like(block)
        if block.shape[1] > 2:
            second[:, 1:-1] = np.abs(np.diff(block, n=2, axis=1))
        J = self.family.terms
        padded = np.pad(second, ((0, 0), (J, J)))
        windows = sliding_window_view(padded, 2 * J + 1, axis=1)
        return np.asarray(windows.max(axis=-1) + self.rest, dtype=np.float64)

    def _tail(self, most: int) -> float:
        """Bound the probability that more than so many voters move, however many are near 0 and 1."""
        return tail_bound(self.family.voters.K, self.delta, most)


def _grid(size: int) -> NDArray[np.int64]:
    """Return 0 … size in at most `_PIECES` intervals, at least one, which may be empty."""
    return np.unique(np.arange(_PIECES + 1) * size // _PIECES) if size else np.zeros(2, dtype=np.int64)


def _moved(window: Array, zeros: Array, ones: Array) -> Array:
    """Compute Σ_i zeros[i]·(Σ_k window[i, k]·ones[k]), terms in this order."""
    total: Array = 0.0 * zeros[0] * ones[0]
    for weight, row in zip(zeros, window, strict=True):
        inner = row[0] * ones[0]
        for value, other in zip(row[1:], ones[1:], strict=True):
            inner = inner + value * other
        total = total + weight * inner
    return total


def _quarters(low: NDArray[np.int64], high: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut the sides of cells that are longer than one step in the middle: shapes (2, c) twice → (2, at most 4c)."""
    for side in (0, 1):
        long = high[side] - low[side] > 1
        middle = np.where(long, (low[side] + high[side]) // 2, high[side])
        first_high, second_low = high.copy(), low[:, long]
        first_high[side], second_low[side] = middle, middle[long]
        low, high = np.hstack([low, second_low]), np.hstack([first_high, high[:, long]])
    return low, high
