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
from numpy.typing import NDArray

from darrm.probability import Array
from darrm.probability.binomial import tail_bound
from darrm.proof.corners import CostRatio
from darrm.proof.dominating import DominatingFamily
from darrm.proof.loops import WORK
from darrm.proof.numpy_loops import Numbers

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

    def numbers(self, ratio: CostRatio) -> Numbers:
        """Return what the loops need of these voters."""
        return self.family.numbers(ratio)._replace(tails=self.tails, delta_squared=self.delta**2, rest=self.rest)

    @cached_property
    def tails(self) -> Array:
        """Bounds on Pr[more than k of at most K voters move] for k = 0 … `_SCREENED_MOVES`."""
        return np.array([self._tail(k) for k in range(_SCREENED_MOVES + 1)])

    @cached_property
    def rest(self) -> float:
        """What M(n_1) adds for moves beyond J."""
        return 4.0 * self._tail(self.family.terms - 1)

    def vertices(self, block: Array, numbers: Numbers) -> Vertices:
        """Compute the four vertices and the curvature bound; shape (states, N + 1)."""
        loops = WORK.loops(block.shape[0] * (self.family.terms + 1.0) ** 2 * (block.shape[1] + 2_000.0))
        result = Vertices(np.empty(block.shape), np.empty(block.shape), np.empty(block.shape, dtype=np.int64))
        loops.vertices(np.ascontiguousarray(block), numbers, result.values, result.bounds, result.choice)
        return result

    def search(
        self, block: Array, found: Vertices, numbers: Numbers, state: int, n_1: int, enough: float
    ) -> tuple[float, float, int, int]:
        """Search V(n_1) of one state by branch and bound, after what `vertices` found for the block.

        Nothing is searched that cannot exceed ``enough``. The bound of the module holds for every cell of
        pairs (a, a_1) between its corners: it shrinks as the square of the cell, and where a cell is one step wide
        nothing is added. Cells whose bound exceeds the best pair and ``enough`` are cut into four.

        Returns the best pair's value, an upper bound on V, a and a_1. The bound is the value or at most ``enough``,
        unless more than `_MOST_CELLS` cells are open at once.
        """
        value, bound, N = float(found.values[state, n_1]), float(found.bounds[state, n_1]), block.shape[1] - 1
        if bound <= enough:
            choice = int(found.choice[state, n_1])
            return value, bound, (N - n_1) * (choice & 1), n_1 * (choice >> 1)
        curvature = 1.0001 * (bound - value) / max(1, (N - n_1) ** 2 + n_1**2)
        grid, level = (_grid(N - n_1), _grid(n_1)), np.ascontiguousarray(block[state])
        loops = WORK.loops(_NANOSECONDS_A_SEARCH)
        best, left, a, a_1 = loops.search(level, n_1, numbers, curvature, enough, grid, _MOST_CELLS)
        return best, max(best, left), a, a_1

    def _tail(self, most: int) -> float:
        return tail_bound(self.family.voters.K, self.delta, most)


def _grid(size: int) -> NDArray[np.int64]:
    return np.unique(np.arange(_PIECES + 1) * size // _PIECES) if size else np.zeros(2, dtype=np.int64)
