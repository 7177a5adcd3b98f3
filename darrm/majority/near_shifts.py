"""The voters near 0 and 1 when Δ > 0: what moving some of them by Δ can add to an expectation.

For a state with N voters near 0 or 1, n_1 of them near 1, and T(s) the expectation over all other voters,

    V(n_1) = max over a ≤ n_0 = N − n_1, a_1 ≤ n_1 of   E[T(n_1 − Bin(a_1, Δ) + Bin(a, Δ))].

Three answers, each slower and sharper than the one before: a bound for each n_1, the four vertices a ∈ {0, n_0}, a_1 ∈
{0, n_1} with a curvature bound, and branch and bound over cells of pairs with the same bound.

**The curvature bound.** Let T''(s) = T(s + 1) − 2T(s) + T(s − 1), X ~ Bin(a_1, Δ) and Y ~ Bin(a, Δ). The second
difference of φ(a, a_1) = E[T(n_1 − X + Y)] from a to a + 2 is Δ²·E[T''(n_1 − X + Y + 1)], from a_1 to a_1 + 2 it is
Δ²·E[T''(n_1 − X + Y − 1)]. If X and Y are at most J − 1, T'' is taken within J steps of n_1; X or Y is larger with
probability at most Pr[X + Y ≥ J] ≤ Pr[Bin(N, Δ) ≥ J], and |T''| ≤ 4 then. So both second differences are at most

    Δ²·M(n_1),      M(n_1) = max of |T''| within J steps of n_1, + 4·Pr[Bin(K, Δ) ≥ J].

A function on 0 … n whose second differences are at least −D is at most its larger end plus D·n²/8. Once in a and then,
at the two ends, in a_1: V(n_1) is at most the best vertex plus Δ²·(n_0² + n_1²)/8·M(n_1). T'' is taken where all of
n_1 − X + Y ± 1 and its neighbors lie in 0 … N, because X ≤ a_1 ≤ n_1 and Y ≤ a ≤ n_0. ∎
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from darrm.majority.corners import CostRatio
from darrm.majority.dominating import DominatingFamily
from darrm.majority.loops import WORK
from darrm.majority.numpy_loops import KernelParams
from darrm.numerics import Array
from darrm.numerics.binomial import tail_bound

_SCREENED_MOVES = 3
_PIECES = 64  # cells each way that a search begins with
_MOST_PAIRS = 2**16  # that are all computed


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

    def numbers(self, ratio: CostRatio) -> KernelParams:
        """Return the parameters of the kernels."""
        return self.family.numbers(ratio)._replace(tails=self.tails, delta_squared=self.delta**2, rest=self.rest)

    @cached_property
    def tails(self) -> Array:
        """Bounds on Pr[more than k of at most K voters move] for k = 0 … `_SCREENED_MOVES`."""
        return np.array([self._tail(k) for k in range(_SCREENED_MOVES + 1)])

    @cached_property
    def rest(self) -> float:
        """What M(n_1) adds for moves beyond J."""
        return 4.0 * self._tail(self.family.terms - 1)

    def vertices(self, block: Array, numbers: KernelParams) -> Vertices:
        """Compute the four vertices and the curvature bound; shape (states, N + 1)."""
        loops = WORK.loops(block.shape[0] * (self.family.terms + 1.0) ** 2 * (block.shape[1] + 2_000.0))
        result = Vertices(np.empty(block.shape), np.empty(block.shape), np.empty(block.shape, dtype=np.int64))
        loops.vertices(np.ascontiguousarray(block), numbers, result.values, result.bounds, result.choice)
        return result

    def search(
        self, block: Array, found: Vertices, numbers: KernelParams, state: int, n_1: int, enough: float
    ) -> tuple[float, float, int, int]:
        """Search V(n_1) of one state by branch and bound, after `vertices` of the block.

        Nothing is searched that cannot exceed ``enough``. If there are few pairs (a, a_1), all are computed. Else a
        grid of pairs comes first. The bound of the module holds for each cell of the grid: it shrinks as the square of
        the cell. Cells whose bound exceeds the best pair and ``enough`` are computed in full, the largest bound first.

        Returns the best pair's value, an upper bound on V, a and a_1. The bound is the value or at most ``enough``.
        """
        value, bound, n_0 = float(found.values[state, n_1]), float(found.bounds[state, n_1]), block.shape[1] - 1 - n_1
        if bound <= enough:
            choice = int(found.choice[state, n_1])
            return value, bound, n_0 * (choice & 1), n_1 * (choice >> 1)
        pairs = _Pairs(numbers.delta_weights, block[state], n_1)
        if (n_0 + 1) * (n_1 + 1) <= _MOST_PAIRS:
            best, a, a_1 = pairs.best_inside(0, n_0, 0, n_1)
            return best, best, a, a_1
        zeros, ones = (np.unique(np.arange(_PIECES + 1) * size // _PIECES) for size in (n_0, n_1))
        values = pairs.values(zeros, ones)
        place = np.unravel_index(int(np.argmax(values)), values.shape)
        best, a, a_1 = float(values[place]), int(zeros[place[0]]), int(ones[place[1]])
        curvature = 1.0001 * (bound - value) / max(1, n_0**2 + n_1**2)
        zero_cells, one_cells = (list(pairwise(grid.tolist())) or [(0, 0)] for grid in (zeros, ones))
        squares = [np.array([float(end - start) ** 2 for start, end in cells]) for cells in (zero_cells, one_cells)]
        tops = sliding_window_view(values, (min(2, zeros.size), min(2, ones.size))).max(axis=(2, 3))
        bounds = tops + curvature * np.add.outer(*squares)
        for cell in np.argsort(-bounds, axis=None, kind="stable").tolist():
            row, column = divmod(cell, len(one_cells))
            if bounds[row, column] <= max(best, enough):
                return best, max(best, float(bounds[row, column])), a, a_1
            best, a, a_1 = max((best, a, a_1), pairs.best_inside(*zero_cells[row], *one_cells[column]))
        return best, best, a, a_1

    def _tail(self, most: int) -> float:
        return tail_bound(self.family.voters.K, self.delta, most)


class _Pairs:
    """E[T(n_1 − Bin(a_1, Δ) + Bin(a, Δ))] for pairs (a, a_1), as products of two short sums."""

    def __init__(self, weights: Array, level: Array, n_1: int) -> None:
        J = weights.shape[0] - 1
        moves = J + n_1 + np.arange(J + 1)[:, None] - np.arange(J + 1)
        self._zeros, self._ones_moved = weights.T, np.pad(level, J)[moves] @ weights[:, : n_1 + 1]

    def values(self, zeros: NDArray[np.int64], ones: NDArray[np.int64]) -> Array:
        """Compute all pairs of some a and some a_1."""
        return np.asarray(self._zeros[zeros] @ self._ones_moved[:, ones])

    def best_inside(self, first_a: int, last_a: int, first_a_1: int, last_a_1: int) -> tuple[float, int, int]:
        """Find the largest value of a cell: it, a and a_1."""
        values = self._zeros[first_a : last_a + 1] @ self._ones_moved[:, first_a_1 : last_a_1 + 1]
        a, a_1 = divmod(int(np.argmax(values)), values.shape[1])
        return float(values[a, a_1]), first_a + a, first_a_1 + a_1
