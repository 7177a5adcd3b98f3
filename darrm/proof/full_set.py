"""The full set of Lemma 5.1, looked at exactly without writing it down.

State: n_h voters at (hi, lo), n_l at (lo, hi), N = K − n_h − n_l near 0 or 1. T(s) = E[g(s + Bin(n_h, hi) +
Bin(n_l, lo))] for s = 0 … N comes from its neighbors by one averaging step: a triangle of triangles.

**Where it may stop (theorem).** Call a level j = n_h + n_l monotone if every T of that level is non-decreasing. Then
every row with more than j voters at (hi, lo) or (lo, hi), or with j of them at (hi, lo) and none at (lo, hi), costs no
more than some row of the dominating family. What is left of level j is looked at, with the voters near 0 and 1 at
(Δ, 0) and (1, 1 − Δ) only.
*Proof.* Smoothing is an average, so a level above a monotone one is monotone. Take a row with more than j such
voters and let i be any voter. With all others fixed, f is A + p_i·D − c·p'_i·D' where D = E_p[g(L + 1) − g(L)] over
the others, D' likewise under p'. If at least j of the others sit at (hi, lo) or (lo, hi), D ≥ 0 and D' ≥ 0, so f does
not fall when p_i grows and p'_i shrinks. Moving (lo, hi) to (hi, lo) keeps the number of such voters; do it for all
of them. Then more than j voters are at (hi, lo) and every other voter may move to (Δ, 0) or (1, 1 − Δ), whichever side
it is on. In a row with exactly j such voters D ≥ 0 for every voter near 0 or 1, and these may move all the same. ∎
For a monotone γ level 0 is monotone, D ≥ 0 whatever the others do, also where nobody is at (hi, lo) or (lo,
hi), and the dominating family is all there is. In floats D ≥ −τ is what
can be seen; each of at most K moves then loses at most (1 + c)·max(hi − lo, Δ)·τ, which is added to the result.

**With frozen voters.** If one person reaches t < K voters the same proof holds with "any other voter" read as any
other touched one. Moves are made only by the t touched voters, those at (hi, lo) or (lo, hi) and those near 0 and 1;
the frozen ones stay where they are, and the row that is reached is one of the windows of the dominating family. At
most t ≤ K voters move, so the price of τ covers them.

**Voters near 0 and 1 for Δ > 0.** By the decoupling of `darrm.proof.corners` a row costs V(n_1) + c·V(N − n_1) with
V(n_1) = max over a ≤ n_0, a_1 ≤ n_1 of E[T(n_1 − Bin(a_1, Δ) + Bin(a, Δ))]. In a (and in a_1) the second difference of
this is Δ²·E[T'' (…)], so V is at most the best of the four choices a ∈ {0, n_0}, a_1 ∈ {0, n_1} plus
Δ²(n_0² + n_1²)/8 · max |T''| nearby (proof in `darrm.proof.near_shifts`). Where that leaves an entry undecided, all
(a, a_1) are tried: the result is exact unless more than `_MOST_UNDECIDED` entries of one block are, and then `slack`
says what the bound costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from darrm.gamma.noise_function import signed_function
from darrm.probability import Array
from darrm.probability.poisson_binomial import STEP_ERROR, smooth
from darrm.problem import Voters
from darrm.proof.corners import CornerCounts, corners_of, ratio_of
from darrm.proof.dominating import DominatingFamily, stop_after
from darrm.proof.near_shifts import NearShifts

Answer = TypeVar("Answer")

Moves = tuple[int, int, int, int]  # voters near 0 and 1 with p moved by Δ, and those with p' moved

_MOST_UNDECIDED = 256
_BLOCK_NUMBERS = 2**16
_STATES_A_BLOCK = 3


@dataclass(frozen=True, eq=False)
class FullMaxima:
    """What was found in the full set."""

    worst: float  # a rigorous upper bound on the cost of every row
    broken: tuple[tuple[float, CornerCounts], ...]  # at most `_STATES_A_BLOCK` of a block, with their computed costs
    levels: int  # how many levels had to be looked at
    slack: float  # the part of `worst` that is not a cost of a row: rounding, tails, moves and undecided curvature


@dataclass(frozen=True, eq=False)
class _BlockMaxima:
    """The largest computed cost of a block, an upper bound for it, and its broken rows."""

    cost: float
    bound: float
    broken: tuple[tuple[float, CornerCounts], ...] = ()


@dataclass(frozen=True, eq=False)
class _Window:
    """T of some states over the places that touched voters can reach, and over those of the mirrored rows."""

    own: Array
    mirrored: Array
    j: int
    first_low: int
    frozen: int

    def only(self, states: NDArray[np.int64]) -> _Window:
        own = self.own[states]
        mirrored = own if self.mirrored is self.own else self.mirrored[states]
        return _Window(own, mirrored, self.j, self.first_low, self.frozen)

    def each(self, function: Callable[[Array], Answer]) -> tuple[Answer, Answer]:
        own = function(self.own)
        return own, own if self.mirrored is self.own else function(self.mirrored)


class FullSet:
    """Separation over all corners of given voters, for the cost with c = e^epsilon."""

    def __init__(self, voters: Voters, epsilon: Fraction) -> None:
        self.voters = voters
        self.corners = corners_of(voters.each)
        self.ratio = ratio_of(epsilon)
        self.family = DominatingFamily(voters)

    @cached_property
    def shifts(self) -> NearShifts:
        """The voters near 0 and 1, for Δ > 0."""
        return NearShifts(self.family)

    def maxima(self, half: Array, limit: float = np.inf, deadline: float = np.inf) -> FullMaxima:
        """Bound the cost of every row and name rows above ``limit``; ``half`` is γ at l = floor(K/2)+1 … K.

        Raises `TimeoutError` when `time.perf_counter` passes ``deadline``.
        """
        found = self.family.maxima(half, self.ratio, deadline)
        best = float(np.max(found.costs))
        bound = best
        broken: list[tuple[float, CornerCounts]] = []
        moves, levels = 0.0, 0
        for j, blocks in enumerate(self._levels(half)):
            steepest_fall = -min(float(np.min(np.diff(block), initial=0.0)) for _, block in blocks)
            error = 2.0 * STEP_ERROR * j
            is_monotone = steepest_fall <= error
            if is_monotone:
                moves = self._cost_of_moves(steepest_fall + error)
            if is_monotone and j == 0:
                break
            levels = j + 1
            for first, states in blocks:
                stop_after(deadline)
                # at the last level nobody at (lo, hi) is covered
                skipped = 1 if is_monotone and first == 0 else 0
                first_low, block = first + skipped, states[skipped:]
                for block_maxima in self._examine_windows(first_low, block, j, best, limit, is_last=is_monotone):
                    broken.extend(block_maxima.broken)
                    best = max(best, block_maxima.cost)
                    bound = max(bound, block_maxima.bound)
            if is_monotone:
                break
        worst = float(np.nextafter(max(best, bound) + self.family.rounding(self.ratio) + moves, np.inf))
        return FullMaxima(worst, tuple(broken), levels, worst - best)

    def border(
        self, half: Array, limit: float, deadline: float = np.inf
    ) -> tuple[float, tuple[tuple[float, CornerCounts], ...]]:
        """Look at the states with n_h = 0 only, where rows outside the dominating family break first.

        Returns the largest computed cost, and the rows above ``limit`` with their costs.
        """
        level = signed_function(half, self.voters.K)[None, :]
        worst = -np.inf
        broken: list[tuple[float, CornerCounts]] = []
        for j in range(self.voters.reached + 1):
            stop_after(deadline)
            is_monotone = bool(np.all(np.diff(level) >= 0.0))
            if is_monotone and j == 0:
                break
            for found in self._examine_windows(j, level, j, max(worst, limit), limit):
                worst = max(worst, found.cost)
                broken.extend(found.broken)
            if is_monotone:
                break
            level = smooth(level, 1.0 - self.corners.hi)
        return worst, tuple(broken)

    def _cost_of_moves(self, fall: float) -> float:
        """Bound what K moves to the dominating family can lose where D ≥ −fall."""
        widest = max(2.0 * self.corners.hi - 1.0, self.corners.delta)
        return float(1.0001 * self.voters.K * (1.0 + self.ratio.value) * widest * fall)

    def _levels(self, half: Array) -> Iterator[list[tuple[int, Array]]]:
        """Yield, for j = 0 … t, the T of all (n_h, n_l) with sum j: blocks of rows n_l = first, first + 1 and so on."""
        hi = self.corners.hi
        rows_a_block = max(1, _BLOCK_NUMBERS // (self.voters.K + 1))
        level = signed_function(half, self.voters.K)[None, :]
        blocks = [(0, level)]
        for _ in range(self.voters.reached):
            yield blocks
            newest = smooth(blocks[-1][1][-1:], 1.0 - hi)
            blocks = [(first, smooth(block, hi)) for first, block in blocks]
            first, last = blocks[-1]
            if last.shape[0] < rows_a_block:
                blocks[-1] = (first, np.vstack([last, newest]))
            else:
                blocks.append((first + last.shape[0], newest))
        yield blocks

    def _examine_windows(
        self, first_low: int, block: Array, j: int, best: float, limit: float, *, is_last: bool = False
    ) -> Iterator[_BlockMaxima]:
        """Examine a block once for every number of voters that may be frozen at 1, see `DominatingFamily.windows`."""
        if block.shape[0] == 0:
            return
        held = self.voters.K - self.voters.reached
        if held == 0 or self.corners.delta == 0.0:
            yield self._examine(_Window(block, block, j, first_low, 0), best, limit, is_last=is_last)
            return
        width = block.shape[1] - held
        for frozen in range(held + 1):
            mirrored = held - frozen
            own, other = block[:, frozen : frozen + width], block[:, mirrored : mirrored + width]
            found = self._examine(_Window(own, other, j, first_low, frozen), best, limit, is_last=is_last)
            best = max(best, found.cost)
            yield found

    def _examine(self, window: _Window, best: float, limit: float, *, is_last: bool) -> _BlockMaxima:
        """Find the largest cost among the states of a block, and its broken rows."""
        ratio = self.ratio.value
        if is_last or self.corners.delta == 0.0:
            own_moved, mirrored_moved = window.each(self.family.with_moved_zeros)
            costs = own_moved + ratio * mirrored_moved[:, ::-1]
            largest, touched = float(np.max(costs)), costs.shape[1] - 1
            named = tuple(
                (float(costs[state, ones]), self._row(window, state, ones, (touched - ones, 0, 0, ones)))
                for state, ones in _most_violated(costs, limit)
            )
            return _BlockMaxima(largest, largest, named)
        costs = window.own + ratio * window.mirrored[:, ::-1]
        largest = float(np.max(costs))
        gained = np.maximum(self.shifts.most_gained(window.own), self.shifts.most_gained(window.mirrored))
        active = np.flatnonzero(np.max(costs, axis=1) + (1.0 + ratio) * gained > best)  # states that may be worse
        if active.size:
            first, second = window.only(active).each(self.shifts.screen)
            active = active[np.max(first + ratio * second[:, ::-1], axis=1) > best]
        if active.size == 0:
            return _BlockMaxima(largest, largest)
        own, mirrored = window.only(active).each(self.shifts.vertices)
        costs = own.values + ratio * mirrored.values[:, ::-1]
        bounds = own.bounds + ratio * mirrored.bounds[:, ::-1]
        largest = float(np.max(costs))
        undecided = np.argwhere(bounds > max(best, largest))
        broken = []
        for state, ones in _most_violated(costs, limit):
            zeros = costs.shape[1] - 1 - ones
            first_bits, second_bits = int(own.choice[state, ones]), int(mirrored.choice[state, zeros])
            moves = zeros * (first_bits & 1), ones * (first_bits >> 1)
            moves_prime = zeros * (second_bits >> 1), ones * (second_bits & 1)
            broken.append((float(costs[state, ones]), self._row(window, int(active[state]), ones, moves + moves_prime)))
        if undecided.shape[0] > _MOST_UNDECIDED:
            return _BlockMaxima(largest, float(np.max(bounds)), tuple(broken))
        for state, ones in undecided:
            cost, row = self._try_all(window, int(active[state]), int(ones))
            largest = max(largest, cost)
            if cost > limit:
                broken.append((cost, row))
        return _BlockMaxima(largest, largest, tuple(broken))

    def _row(self, window: _Window, state: int, ones: int, moves: Moves = (0, 0, 0, 0)) -> CornerCounts:
        """Name a row of a window: ``ones`` touched voters near 1, and the frozen ones with them."""
        low = window.first_low + state
        all_ones = ones + window.frozen
        if self.corners.delta == 0.0:
            moves = (0, 0, 0, 0)
        return CornerCounts(window.j - low, low, self.voters.K - window.j - all_ones, all_ones, *moves)

    def _try_all(self, window: _Window, state: int, ones: int) -> tuple[float, CornerCounts]:
        """Compute the cost of a state exactly, trying every (a, a_1) of both terms."""
        zeros = window.own.shape[1] - 1 - ones
        first, moved_zeros, moved_ones = self.shifts.best_of_all(window.own[state], ones)
        second, moved_ones_prime, moved_zeros_prime = self.shifts.best_of_all(window.mirrored[state], zeros)
        moves = moved_zeros, moved_ones, moved_zeros_prime, moved_ones_prime
        return first + self.ratio.value * second, self._row(window, state, ones, moves)


def _most_violated(costs: Array, limit: float) -> list[tuple[int, int]]:
    """Find the best entry of each of the `_STATES_A_BLOCK` best rows of a matrix, where it exceeds ``limit``."""
    if limit == np.inf:
        return []
    best = np.max(costs, axis=1)
    states = np.argsort(-best, kind="stable")[:_STATES_A_BLOCK]
    return [(int(state), int(np.argmax(costs[state]))) for state in states if best[state] > limit]
