"""The full set of Lemma 5.1, looked at exactly without writing it down.

State: n_h voters at (hi, lo), n_l at (lo, hi), N = K − n_h − n_l near 0 or 1. T(s) = E[g(s + Bin(n_h, hi) +
Bin(n_l, lo))] for s = 0 … N comes from its neighbours by one averaging step: a triangle of triangles.

**Where it may stop (theorem).** Call a level j = n_h + n_l monotone if every T of that level is non-decreasing. Then
every row with more than j voters at (hi, lo) or (lo, hi) costs no more than some row of the dominating family.
*Proof.* Smoothing is an average, so a level above a monotone one is monotone. Take a row with more than j such
voters and let i be any voter. With all others fixed, f is A + p_i·D − c·p'_i·D' where D = E_p[g(L + 1) − g(L)] over
the others, D' likewise under p'. If at least j of the others sit at (hi, lo) or (lo, hi), D ≥ 0 and D' ≥ 0, so f does
not fall when p_i grows and p'_i shrinks. Moving (lo, hi) to (hi, lo) keeps the number of such voters; do it for all
of them. Then more than j voters are at (hi, lo) and every other voter may move to (Δ, 0) or (1, 1 − Δ), whichever side
it is on. ∎ For a monotone γ level 0 is monotone and the dominating family is all there is. In floats D ≥ −τ is what
can be seen; each of at most K moves then loses at most (1 + c)·max(hi − lo, Δ)·τ, which is added to the result.

**Voters near 0 and 1 for Δ > 0.** By the decoupling of `darrm.gamma.corners` a row costs V(n_1) + c·V(N − n_1) with
V(n_1) = max over a ≤ n_0, a_1 ≤ n_1 of E[T(n_1 − Bin(a_1, Δ) + Bin(a, Δ))]. In a (and in a_1) the second difference of
this is Δ²·E[T'' (…)], so V is at most the best of the four choices a ∈ {0, n_0}, a_1 ∈ {0, n_1} plus
Δ²(n_0² + n_1²)/8 · max |T''| nearby. Where that still leaves a doubt, all (a, a_1) are tried: the result is exact
unless more than `MOST_DOUBTS` entries of one block are in doubt, and then `slack` says what the bound costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from darrm.gamma.corners import CornerCounts, constants_of
from darrm.gamma.dominating import DominatingFamily
from darrm.gamma.noise_function import signed_function
from darrm.gamma.shifts import NearShifts, Vertices
from darrm.probability.poisson_binomial import STEP_ERROR, smooth

if TYPE_CHECKING:
    from collections.abc import Iterator
    from fractions import Fraction

    from darrm.privacy import MajorityProblem

Array = NDArray[np.float64]

MOST_DOUBTS = 256
BLOCK_NUMBERS = 2**16
STATES_A_BLOCK = 3


@dataclass(frozen=True, eq=False)
class FullMaxima:
    """What was found in the full set.

    Attributes
    ----------
    worst
        A rigorous upper bound on the cost of every row.
    broken
        Rows whose computed cost exceeds the limit, at most `STATES_A_BLOCK` of a block, with that cost.
    levels
        How many levels had to be looked at.
    slack
        The part of `worst` that is not a cost of a row: rounding, tails, moves and undecided curvature.
    """

    worst: float
    broken: tuple[tuple[float, CornerCounts], ...]
    levels: int
    slack: float


@dataclass(frozen=True, eq=False)
class _BlockMaxima:
    """The largest computed cost of a block, an upper bound for it, and its broken rows."""

    cost: float
    bound: float
    broken: tuple[tuple[float, CornerCounts], ...] = ()


class FullSet:
    """Separation over all corners of one problem."""

    def __init__(self, problem: MajorityProblem, cost_epsilon: Fraction | None = None) -> None:
        self.problem = problem
        self.constants = constants_of(problem, cost_epsilon)
        self.family = DominatingFamily(problem, cost_epsilon)

    @cached_property
    def shifts(self) -> NearShifts:
        """The voters near 0 and 1, for Δ > 0."""
        return NearShifts(self.family)

    def maxima(self, half: Array, limit: float = np.inf) -> FullMaxima:
        """Bound the cost of every row and collect rows that cost more than ``limit``.

        Parameters
        ----------
        half
            γ at l = floor(K/2)+1 … K, shape (K − floor(K/2),).
        limit
            Rows above it are named.
        """
        found = self.family.maxima(half)
        best = float(np.max(found.costs))
        bound = best
        broken: list[tuple[float, CornerCounts]] = []
        moves, levels = 0.0, 0
        for j, blocks in enumerate(self._levels(half)):
            steepest_fall = -min(float(np.min(np.diff(block), initial=0.0)) for _, block in blocks)
            error = 2.0 * STEP_ERROR * j
            if steepest_fall <= error:
                moves = self._cost_of_moves(steepest_fall + error)
                break
            levels = j + 1
            for first_low, block in blocks:
                block_maxima = self._examine(first_low, block, j, best, limit)
                broken.extend(block_maxima.broken)
                best = max(best, block_maxima.cost)
                bound = max(bound, block_maxima.bound)
        worst = float(np.nextafter(max(best, bound) + self.family.rounding + moves, np.inf))
        return FullMaxima(worst, tuple(broken), levels, worst - best)

    def border(self, half: Array, limit: float) -> tuple[float, tuple[tuple[float, CornerCounts], ...]]:
        """Look at the states with n_h = 0 only: where rows outside the dominating family break first.

        Returns
        -------
        (largest computed cost, rows above ``limit`` with their costs)
        """
        level = signed_function(half, self.problem.K)[None, :]
        worst = -np.inf
        broken: list[tuple[float, CornerCounts]] = []
        for j in range(self.problem.K + 1):
            if np.all(np.diff(level) >= 0.0):
                break
            found = self._examine(j, level, j, max(worst, self.constants.budget), limit)
            worst = max(worst, found.cost)
            broken.extend(found.broken)
            level = smooth(level, 1.0 - self.constants.hi)
        return worst, tuple(broken)

    def _cost_of_moves(self, fall: float) -> float:
        """Bound what K moves to the dominating family can lose where D ≥ −fall."""
        if fall == 0.0:
            return 0.0
        hi = self.constants.hi
        widest = max(2.0 * hi - 1.0, self.constants.delta)
        return float(1.0001 * self.problem.K * (1.0 + self.constants.ratio) * widest * fall)

    def _levels(self, half: Array) -> Iterator[list[tuple[int, Array]]]:
        """Give, for j = 0 … K, the T of all (n_h, n_l) with sum j: blocks of rows n_l = first, first + 1 and so on."""
        hi = self.constants.hi
        rows_a_block = max(1, BLOCK_NUMBERS // (self.problem.K + 1))
        level = signed_function(half, self.problem.K)[None, :]
        blocks = [(0, level)]
        for _ in range(self.problem.K):
            yield blocks
            newest = smooth(blocks[-1][1][-1:], 1.0 - hi)
            blocks = [(first, smooth(block, hi)) for first, block in blocks]
            first, last = blocks[-1]
            if last.shape[0] < rows_a_block:
                blocks[-1] = (first, np.vstack([last, newest]))
            else:
                blocks.append((first + last.shape[0], newest))
        yield blocks

    def _examine(self, first_low: int, block: Array, j: int, best: float, limit: float) -> _BlockMaxima:
        """Find the largest cost among the states of a block, and its broken rows."""
        N = block.shape[1] - 1
        ratio = self.constants.ratio
        costs = block + ratio * block[:, ::-1]
        largest = float(np.max(costs))
        if self.constants.delta == 0.0:
            rows = [(j - first_low - state, first_low + state, ones) for state, ones in _deepest(costs, limit)]
            values = [float(costs[low - first_low, ones]) for _, low, ones in rows]
            named = [CornerCounts(high, low, N - ones, ones) for high, low, ones in rows]
            return _BlockMaxima(largest, largest, tuple(zip(values, named, strict=True)))
        promise = np.max(costs, axis=1) + (1.0 + ratio) * self.shifts.most_gained(block)
        hopeful = np.flatnonzero(promise > best)
        if hopeful.size:
            screened = self.shifts.screen(block[hopeful])
            hopeful = hopeful[np.max(screened + ratio * screened[:, ::-1], axis=1) > best]
        if hopeful.size == 0:
            return _BlockMaxima(largest, largest)
        near = self.shifts.vertices(block[hopeful])
        costs = near.values + ratio * near.values[:, ::-1]
        bounds = near.bounds + ratio * near.bounds[:, ::-1]
        largest = float(np.max(costs))
        doubtful = np.argwhere(bounds > max(best, largest))
        broken = [
            (float(costs[state, ones]), self._vertex_row(j, first_low + int(hopeful[state]), near, state, ones))
            for state, ones in _deepest(costs, limit)
        ]
        if doubtful.shape[0] > MOST_DOUBTS:
            return _BlockMaxima(largest, float(np.max(bounds)), tuple(broken))
        for state, ones in doubtful:
            low = first_low + int(hopeful[state])
            cost, row = self._try_all(block[hopeful[state]], (j - low, low), int(ones))
            largest = max(largest, cost)
            if cost > limit:
                broken.append((cost, row))
        return _BlockMaxima(largest, largest, tuple(broken))

    def _vertex_row(self, j: int, low: int, near: Vertices, state: int, ones: int) -> CornerCounts:
        """Name the row of the best vertices."""
        N = near.choice.shape[1] - 1
        choice, mirrored = int(near.choice[state, ones]), int(near.choice[state, N - ones])
        return CornerCounts(
            j - low,
            low,
            N - ones,
            ones,
            moved_zeros=(N - ones) * (choice & 1),
            moved_ones=ones * (choice >> 1),
            moved_ones_prime=ones * (mirrored & 1),
            moved_zeros_prime=(N - ones) * (mirrored >> 1),
        )

    def _try_all(self, level: Array, high_low: tuple[int, int], ones: int) -> tuple[float, CornerCounts]:
        """Compute the cost of a state exactly, trying every (a, a_1) of both terms."""
        N = level.size - 1
        first, moved_zeros, moved_ones = self.shifts.best_of_all(level, ones)
        second, moved_ones_prime, moved_zeros_prime = self.shifts.best_of_all(level, N - ones)
        row = CornerCounts(
            *high_low,
            N - ones,
            ones,
            moved_zeros=moved_zeros,
            moved_ones=moved_ones,
            moved_zeros_prime=moved_zeros_prime,
            moved_ones_prime=moved_ones_prime,
        )
        return first + self.constants.ratio * second, row


def _deepest(costs: Array, limit: float) -> list[tuple[int, int]]:
    """Find the best entry of each of the `STATES_A_BLOCK` best rows of a matrix, where it exceeds ``limit``."""
    if limit == np.inf:
        return []
    best = np.max(costs, axis=1)
    states = np.argsort(-best, kind="stable")[:STATES_A_BLOCK]
    return [(int(state), int(np.argmax(costs[state]))) for state in states if best[state] > limit]
