"""Separation over the full set of Lemma 5.1 with O(K²) work, as for the dominating family.

**Pairs (theorem).** No row with a voter at (hi, lo) and one at (lo, hi) costs more than every row without such a pair.
*Proof.* hi + lo = 1, so the number x of ones among the two has the same law under p and under p'. Given x they are as
good as two voters at (0, 0) or (1, 1): with the others fixed, f = Σ_x Pr[x]·f(row with the pair frozen at x ones), an
average of costs of rows of the full set, in which no person touches more voters. ∎ Pair after pair, the worst row has
n_h voters at (hi, lo) and none at (lo, hi), or n_l at (lo, hi) and none at (hi, lo): two chains instead of K²/2.

**Mirror.** With T_j(s) = E[g(s + Bin(j, hi))], the chain of `darrm.majority.dominating`, and g odd about K/2,
E[g(s + Bin(j, lo))] = −T_j(K − j − s). So one Pascal triangle holds both chains. For Δ = 0 that is all: γ is private if
and only if |T_j(s) + c·T_j(K − j − s)| ≤ B for every j and s.

**Voters near 0 and 1 for Δ > 0.** By the decoupling of `darrm.majority.corners` a row costs V(n_1) + c·V(N − n_1) where
N = K − j and, for the T of its chain, V(n_1) = max over a ≤ n_0, a_1 ≤ n_1 of E[T(n_1 − Bin(a_1, Δ) + Bin(a, Δ))]. In a
(and in a_1) the second difference of this is Δ²·E[T'' (…)], so V is at most the best of the four choices a ∈ {0, n_0},
a_1 ∈ {0, n_1} plus Δ²(n_0² + n_1²)/8 · max |T''| nearby (proof in `darrm.majority.near_shifts`). Branch and bound
over (a, a_1) decides the entries that this leaves undecided.

**The last level with moves (theorem).** If T_j does not fall, no row with j or more voters at (hi, lo), and no row with
more than j at (lo, hi), costs more than every row of the dominating family and of (lo, hi) up to level j.
*Proof.* By the mirror both chains are monotone at level j, and above it, smoothing being an average. With all others
fixed, f is A + p_i·D − c·p'_i·D' where D = E_p[g(L + 1) − g(L)] over the others, D' likewise under p'. If j of the
others sit at (hi, lo), or j at (lo, hi), D ≥ 0 and D' ≥ 0, so f does not fall when p_i grows and p'_i shrinks. With j
voters at (hi, lo) that holds for all voters near 0 and 1, which may move to (Δ, 0) and (1, 1 − Δ), whichever side they
are on. With more than j at (lo, hi) it holds for each of them: move one to (hi, lo), and the pair that it makes goes by
the theorem of pairs. Two fewer are left; go on while they are more than j. ∎ A monotone γ has a monotone level 0, and
the dominating family is all there is. Floats show D ≥ −τ only; each of at most K − j moves then loses at
most (1 + c)·max(hi − lo, Δ)·τ, which is added to the result.

**With frozen voters.** If one person reaches t < K voters the same proofs hold with "voter" read as a touched one.
Moves are made only by touched voters, a pair that goes freezes two of them, the frozen ones do not move, and
the rows that are reached are windows of the two chains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from darrm.majority.corners import CornerCounts, corners_of, ratio_of
from darrm.majority.dominating import DominatingFamily, LevelMaxima, choose_violated, stop_after
from darrm.majority.loops import NUMPY, WORK
from darrm.majority.near_shifts import NearShifts, Vertices
from darrm.majority.noise_function import signed_function
from darrm.majority.numpy_loops import KernelParams, LevelBuffer, LevelRange, fall_of, screen
from darrm.numerics import Array
from darrm.numerics.binomial import STEP_ERROR, smooth
from darrm.problem import Voters

Answer = TypeVar("Answer")

Broken = tuple[float, CornerCounts]
Moves = tuple[int, int, int, int]  # voters near 0 and 1 with p moved by Δ, and those with p' moved

_NANOSECONDS_A_SCREEN = 1e5  # of both chains of a level in numpy
_KEPT_LEVELS, _PLACES_A_PASS = 64, 2**23  # of one call of the loops
_BORDER_LEVELS = 120, 8  # whose rows a look at the border names, at least, and as a part of K
_BELOW = 1.0 - 2.0**-48  # more than the few roundings of a cost


@dataclass(frozen=True, eq=False)
class FullMaxima:
    """The worst cost of the full set, with broken rows."""

    worst: float  # a rigorous upper bound on the cost of every row
    broken: tuple[Broken, ...]  # rows above the limit with their computed costs: the local maxima of every level
    levels: int  # at how many levels moves of voters near 0 and 1 were looked at; none for Δ = 0
    slack: float  # the part of `worst` that is not a cost of a row: rounding, tails and moves


@dataclass(frozen=True, eq=False)
class _Outside:
    cost: float
    bound: float
    broken: tuple[Broken, ...] = ()
    levels: int = 0
    moves: float = 0.0  # the largest loss by the moves of the stopping rule


@dataclass(frozen=True, eq=False)
class _Passed:
    """The end of a pass over levels: T at the next level, and the levels to examine."""

    level: Array
    j: int
    levels: Sequence[tuple[Array, int]] = ()
    fall: float | None = None  # how much T falls at j, if that is no more than floats can tell: it ends there


@dataclass(frozen=True, eq=False)
class _Window:
    """T of some chains at level j over the places that touched voters can reach, and of the mirrored rows."""

    own: Array  # shape (chains, N + 1)
    mirrored: Array
    lows: NDArray[np.int64]  # of every chain the number at (lo, hi): 0 or j
    j: int
    frozen: int

    def only(self, chains: NDArray[np.int64]) -> _Window:
        own = self.own[chains]
        mirrored = own if self.mirrored is self.own else self.mirrored[chains]
        return _Window(own, mirrored, self.lows[chains], self.j, self.frozen)

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
    def _numbers(self) -> KernelParams:
        return self.shifts.numbers(self.ratio)

    @cached_property
    def shifts(self) -> NearShifts:
        """The voters near 0 and 1, for Δ > 0."""
        return NearShifts(self.family)

    def maxima(self, half: Array, limit: float = np.inf, deadline: float = np.inf) -> FullMaxima:
        """Bound the cost of every row and name rows above ``limit``; ``half`` is γ at l = ⌊K/2⌋+1 … K.

        Raises `TimeoutError` when `time.perf_counter` passes ``deadline``.
        """
        high = self.family.maxima(half, self.ratio, deadline)
        found = self._outside(half, float(np.max(high.costs)), limit, deadline)
        best = max(float(np.max(high.costs)), found.cost)
        bound = max(best, found.bound) + self.family.rounding(self.ratio) + found.moves
        worst = float(np.nextafter(bound, np.inf))
        return FullMaxima(worst, self._named(high, limit) + found.broken, found.levels, worst - best)

    def border(self, half: Array, limit: float, deadline: float = np.inf) -> tuple[float, tuple[Broken, ...]]:
        """Look at the rows outside the dominating family only, moves at vertices, for costs above ``limit``.

        Returns the largest computed cost that was met, and rows above ``limit`` with their costs, of some levels only
        where many have them.
        """
        start = signed_function(half, self.voters.K)
        if np.all(np.diff(start) >= 0.0):
            return -np.inf, ()
        low = self.family.maxima(half, self.ratio, deadline, low=True, floor=limit)
        costs = np.full(self.voters.reached + 1, -np.inf)
        passed = _Passed(start, 0)
        while passed.fall is None and passed.j <= self.voters.reached:
            stop_after(deadline)
            passed = self._pass(passed, limit, None, costs)
            for level, j in passed.levels:
                examined = self._examine_windows(level, j, limit, limit, searches=False)
                costs[j] = max(found.cost for found in examined)
        costs[costs <= limit] = -np.inf
        broken, level, j = list(self._named(low, limit)), start, 0
        least, part = _BORDER_LEVELS
        for chosen in sorted(choose_violated(costs, limit, max(least, self.voters.K // part))):
            while j < chosen:
                level, j = smooth(level, self.corners.hi), j + 1
            for found in self._examine_windows(level, j, limit, limit, searches=False):
                broken.extend(found.broken)
        return max(float(np.max(low.costs)), float(np.max(costs))), tuple(broken)

    def _outside(self, half: Array, best: float, limit: float, deadline: float) -> _Outside:
        level = signed_function(half, self.voters.K)
        if np.all(np.diff(level) >= 0.0):
            return _Outside(-np.inf, -np.inf)
        low = self.family.maxima(half, self.ratio, deadline, low=True)
        cost = bound = float(np.max(low.costs))
        broken = list(self._named(low, limit))
        if self.corners.delta == 0.0:
            return _Outside(cost, bound, tuple(broken))
        costs, passed = np.full(self.voters.reached + 1, -np.inf), _Passed(level, 0)
        while passed.fall is None and passed.j <= self.voters.reached:
            stop_after(deadline)
            passed = self._pass(passed, limit, max(best, cost), costs)
            cost = max(cost, float(np.max(costs)))
            for level, j in passed.levels:
                for found in self._examine_windows(level, j, max(best, cost), limit):
                    broken.extend(found.broken)
                    cost, bound = max(cost, found.cost), max(bound, found.bound)
        bound = max(bound, cost)
        if passed.fall is None:
            return _Outside(cost, bound, tuple(broken), self.voters.reached + 1)
        moves = self._cost_of_moves(passed.j, passed.fall + _error_of_falls(passed.j))
        return _Outside(cost, bound, tuple(broken), passed.j + 1, moves)

    def _pass(self, passed: _Passed, limit: float, best: float | None, costs: Array) -> _Passed:
        """Pass over levels after those passed, as `darrm.majority.loops.Loops`; without ``best`` their costs only."""
        j, level, last = passed.j, passed.level.copy(), self.voters.reached
        # windows of frozen voters are looked at one by one, in numpy
        loops = WORK.loops(_KEPT_LEVELS * _NANOSECONDS_A_SCREEN) if last == self.voters.K else NUMPY
        span = LevelRange(j, max(1, _PLACES_A_PASS // level.size), last)
        kept = LevelBuffer(np.empty((_KEPT_LEVELS, level.size)), np.empty(_KEPT_LEVELS, dtype=np.int64))
        if best is None:
            ended = loops.border_costs(level, span, self._numbers, limit, costs, kept)
        else:
            ended = loops.pass_levels(level, span, self._numbers, limit, best, costs, kept)
        after = ended if ended >= 0 else -1 - ended
        places = [(place, at) for place, at in enumerate(kept.places.tolist()) if at >= 0]
        levels = [(kept.levels[place, : level.size - (at - j)], at) for place, at in places]
        level = level[: max(0, level.size - (after - j))]
        return _Passed(level, after, levels, fall_of(level) if ended < 0 else None)

    def _named(self, found: LevelMaxima, limit: float) -> tuple[Broken, ...]:
        return tuple(
            (float(found.costs[j]), self.family.row(found, int(j))) for j in np.flatnonzero(found.costs > limit)
        )

    def _cost_of_moves(self, j: int, fall: float) -> float:
        """Bound what K − j moves to rows that were looked at can lose where D ≥ −fall."""
        widest = max(2.0 * self.corners.hi - 1.0, self.corners.delta)
        return float(1.0001 * (self.voters.K - j) * (1.0 + self.ratio.value) * widest * fall)

    def _examine_windows(
        self, level: Array, j: int, best: float, limit: float, *, searches: bool = True
    ) -> Iterator[_Outside]:
        lows = np.array([0, j] if j else [0])  # without voters at (hi, lo) or (lo, hi) the two chains are one
        block = np.stack([level, -level[::-1]])[: lows.size]
        held = self.voters.K - self.voters.reached
        width = block.shape[1] - held
        for frozen in range(held + 1):
            own, other = block[:, frozen : frozen + width], block[:, held - frozen : held - frozen + width]
            found = self._examine(
                _Window(own, own if held == 0 else other, lows, j, frozen), best, limit, searches=searches
            )
            best = max(best, found.cost)
            yield found

    def _examine(self, window: _Window, best: float, limit: float, *, searches: bool = True) -> _Outside:
        ratio = self.ratio.value
        active = self._active(window, min(best, limit))
        if active.size == 0:
            return _Outside(-np.inf, -np.inf)
        window = window.only(active)
        own, mirrored = window.each(lambda block: self.shifts.vertices(block, self._numbers))
        costs = own.values + ratio * mirrored.values[:, ::-1]
        bounds = own.bounds + ratio * mirrored.bounds[:, ::-1]
        largest = float(np.max(costs))
        broken = []
        for chain, ones in zip(*np.nonzero(_peaks(costs, limit)), strict=True):
            zeros = costs.shape[1] - 1 - int(ones)
            first_bits, second_bits = int(own.choice[chain, ones]), int(mirrored.choice[chain, zeros])
            moves = zeros * (first_bits & 1), int(ones) * (first_bits >> 1)
            moves_prime = zeros * (second_bits >> 1), int(ones) * (second_bits & 1)
            broken.append((float(costs[chain, ones]), self._row(window, chain, int(ones), moves + moves_prime)))
        bound = largest
        undecided = np.argwhere(bounds > max(best, largest))
        if not searches:
            undecided = undecided[:0]
        for chain, ones in undecided[np.argsort(-bounds[tuple(undecided.T)], kind="stable")].tolist():
            if bounds[chain, ones] <= max(best, bound):
                break
            cost, upper, row = self._searched(window, (own, mirrored), chain, ones, max(best, bound))
            largest, bound = max(largest, cost), max(bound, upper)
            if cost > max(limit, costs[chain, ones]):
                broken.append((cost, row))
        return _Outside(largest, bound, tuple(broken))

    def _active(self, window: _Window, least: float) -> NDArray[np.int64]:
        first, second = window.each(lambda block: screen(block, self.shifts.tails))
        return np.flatnonzero(np.max(first + self.ratio.value * second[:, ::-1], axis=1) > least)

    def _row(self, window: _Window, chain: int, ones: int, moves: Moves) -> CornerCounts:
        low, all_ones = int(window.lows[chain]), ones + window.frozen
        return CornerCounts(window.j - low, low, self.voters.K - window.j - all_ones, all_ones, *moves)

    def _searched(
        self, window: _Window, vertices: tuple[Vertices, Vertices], chain: int, ones: int, least: float
    ) -> tuple[float, float, CornerCounts]:
        """Search the (a, a_1) of one number of voters near 1: a cost, a bound on all above ``least``, and the row."""
        zeros, ratio = window.own.shape[1] - 1 - ones, self.ratio.value
        own, mirrored = vertices
        least *= _BELOW  # so that no rounding of the sum lifts it above
        # the dearer term first: it leaves the other less to decide
        enough = (least - float(own.bounds[chain, ones])) / ratio
        second = self.shifts.search(window.mirrored, mirrored, self._numbers, chain, zeros, enough)
        first = self.shifts.search(window.own, own, self._numbers, chain, ones, least - ratio * second[1])
        cost, upper = (one + ratio * other for one, other in zip(first[:2], second[:2], strict=True))
        return cost, upper, self._row(window, chain, ones, (*first[2:], second[3], second[2]))


def _peaks(costs: Array, limit: float) -> NDArray[np.bool_]:
    """Mark the entries of a matrix that exceed the limit and their neighbors in the row: shape (r, n) → the same."""
    found = costs > limit
    found[:, 1:] &= costs[:, 1:] >= costs[:, :-1]
    found[:, :-1] &= costs[:, :-1] > costs[:, 1:]
    return found


def _error_of_falls(j: int) -> float:
    return 2.0 * STEP_ERROR * j
