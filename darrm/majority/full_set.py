"""Separation over the full set of Lemma 5.1 with O(K²) work, as for the dominating family.

**Pairs (theorem).** No row with a voter at (hi, lo) and one at (lo, hi) costs more than every row without such a pair.
*Proof.* hi + lo = 1, so the number x of ones among the two has the same law under p and under p'. With the others
fixed, f = Σ_x Pr[x]·f(row with the pair at x ones), an average of costs of rows of the full set in which no person
touches more voters. ∎ So the worst row has n_h voters at (hi, lo) and none at (lo, hi), or n_l and none: two chains.

**Mirror.** With T_j(s) = E[g(s + Bin(j, hi))], the chain of `darrm.majority.dominating`, and g odd about K/2, E[g(s +
Bin(j, lo))] = −T_j(K − j − s). So one Pascal triangle holds both chains. For Δ = 0 that is all: γ is private if and
only if |T_j(s) + c·T_j(K − j − s)| ≤ B for every j and s.

**Voters near 0 and 1 for Δ > 0.** By the decoupling of `darrm.majority.corners` a row costs V(n_1) + c·V(N − n_1) where
N = K − j and, for the T of its chain,

    V(n_1) = max over a ≤ n_0 = N − n_1, a_1 ≤ n_1 of   E[T(n_1 − Bin(a_1, Δ) + Bin(a, Δ))].

There are three bounds, each slower and sharper than the one before: `kernels.screen`; the four vertices a ∈ {0, n_0},
a_1 ∈ {0, n_1} with a curvature bound; and branch and bound over cells of pairs (a, a_1) with this bound.

**The curvature bound.** Let T''(s) = T(s + 1) − 2T(s) + T(s − 1), X ~ Bin(a_1, Δ) and Y ~ Bin(a, Δ). The second
difference of φ(a, a_1) = E[T(n_1 − X + Y)] in a is Δ²·E[T''(n_1 − X + Y + 1)], in a_1 it is Δ²·E[T''(n_1 − X + Y − 1)].
If X and Y are at most J − 1, T'' is taken within J steps of n_1; else, with probability at most Pr[Bin(N, Δ) ≥ J],
|T''| ≤ 4. So both second differences are at most

    Δ²·M(n_1),      M(n_1) = max of |T''| within J steps of n_1, + 4·Pr[Bin(K, Δ) ≥ J].

A function on 0 … n whose second differences are at least −D is at most its larger end plus D·n²/8. Applied in a and
then, at the two ends, in a_1: V(n_1) is at most the best vertex plus Δ²·(n_0² + n_1²)/8·M(n_1). ∎

**The last level with moves (theorem).** If T_j does not fall, no row with j or more voters at (hi, lo), and no row with
more than j at (lo, hi), costs more than every row of the dominating family and of (lo, hi) up to level j. *Proof.* Both
chains are monotone from level j on, because smoothing is an average. With all others fixed, f = A + p_i·D − c·p'_i·D'
where D = E_p[g(L + 1) − g(L)] over the others, and D' likewise under p'. If j of the others are at (hi, lo), or j at
(lo, hi), D and D' are at least 0, so f does not fall when p_i grows and p'_i shrinks. With j voters at (hi, lo) all
voters near 0 and 1 may move to (Δ, 0) and (1, 1 − Δ). With more than j at (lo, hi) move one to (hi, lo): the theorem of
pairs removes the pair, which leaves two fewer. Repeat while more than j remain. ∎ A monotone γ has a monotone level 0,
so the dominating family is enough. Floats show D ≥ −τ only: each of at most K − j moves loses at most (1 + c)·max(hi −
lo, Δ)·τ, which is added to the result.

**With unaffected voters** (t < K) the same proofs hold for the touched voters, and the reachable rows are windows of
the two chains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from darrm.majority.corners import CornerCounts, ExpEpsilon, corners_of, enclose_exp
from darrm.majority.dominating import DominatingFamily, LevelMaxima, choose_violated, stop_after
from darrm.majority.kernels import KERNEL, KernelParams, largest_fall, screen
from darrm.majority.noise_function import signed_function
from darrm.numerics import Array
from darrm.numerics.binomial import smooth, tail_bound
from darrm.problem import Voters

ViolatedRow = tuple[float, CornerCounts]
Moves = tuple[int, int, int, int]  # voters near 0 and 1 with p moved by Δ, and those with p' moved

_NANOSECONDS_PER_SCREEN = 1e5  # of both chains of a level in numpy
_PLACES_A_CALL = 2**23
_BORDER_LEVELS = 120, 8  # `border` returns rows of 120 levels, or of K/8 if that is more
_ROUNDING_FACTOR = 1.0 - 2.0**-48  # covers the few roundings of a cost
_SCREENED_MOVES = 3
_GRID_CELLS = 64  # in each direction, at the start of a search
_MAX_PAIRS = 2**16  # for which a search needs no grid


@dataclass(frozen=True, eq=False)
class FullMaxima:
    worst: float  # a rigorous upper bound on the cost of every row
    broken: tuple[ViolatedRow, ...]  # rows above the limit with their computed costs: the local maxima of every level
    levels: int  # the number of levels with moves of voters near 0 and 1; 0 for Δ = 0
    slack: float  # the part of `worst` that is not a cost of a row: rounding, tails and moves


@dataclass(frozen=True, eq=False)
class _OuterMaxima:
    """The rows outside the dominating family, or some of them."""

    cost: float = -np.inf
    bound: float = -np.inf
    broken: tuple[ViolatedRow, ...] = ()
    levels: int = 0
    moves: float = 0.0  # the largest loss by the moves of the stopping rule


@dataclass(frozen=True, eq=False)
class Vertices:
    """The best vertex of every n_1: arrays of shape (states, N + 1)."""

    values: Array  # the largest of the four
    bounds: Array  # an upper bound on V
    choice: NDArray[np.int64]  # bit 0: all zeros are moved to Δ, bit 1: all ones are moved to 1 − Δ


@dataclass(frozen=True, eq=False)
class _Window:
    """T of some chains at level j over the places of touched voters, and of the reflected rows."""

    direct: Array  # shape (chains, N + 1)
    reflected: Array
    lows: NDArray[np.int64]  # of every chain the number at (lo, hi): 0 or j
    j: int
    unaffected_ones: int


class FullSet:
    def __init__(self, voters: Voters, epsilon: Fraction) -> None:
        self.voters = voters
        self.corners = corners_of(voters.each)
        self.exp_epsilon = enclose_exp(epsilon)
        self.family = DominatingFamily(voters)

    @cached_property
    def params(self) -> KernelParams:
        tails = np.array([self._bound_tail(k) for k in range(_SCREENED_MOVES + 1)])
        tail_curvature = 4.0 * self._bound_tail(self.family.terms - 1)
        return self.family.params(self.exp_epsilon)._replace(
            tails=tails, delta_squared=self.corners.delta**2, tail_curvature=tail_curvature
        )

    def _bound_tail(self, max_moves: int) -> float:
        return tail_bound(self.voters.K, self.corners.delta, max_moves)

    def maxima(self, half: Array, limit: float = np.inf, deadline: float = np.inf) -> FullMaxima:
        """Bound the cost of every row and name rows above ``limit``; ``half`` is γ at l = ⌊K/2⌋+1 … K.

        Raises `TimeoutError` when `time.perf_counter` passes ``deadline``.
        """
        high = self.family.maxima(half, self.exp_epsilon, deadline)
        outer = self._find_outer_maxima(half, float(np.max(high.costs)), limit, deadline)
        best = max(float(np.max(high.costs)), outer.cost)
        bound = max(best, outer.bound) + self.family.rounding(self.exp_epsilon) + outer.moves
        worst = float(np.nextafter(bound, np.inf))
        return FullMaxima(worst, self._name_rows(high, limit) + outer.broken, outer.levels, worst - best)

    def rounding(self, exp_epsilon: ExpEpsilon) -> float:
        return self.family.rounding(exp_epsilon)

    def worst(self, half: Array) -> float:
        return self.maxima(half).worst

    def border(self, half: Array, limit: float, deadline: float = np.inf) -> tuple[float, tuple[ViolatedRow, ...]]:
        """Search the rows outside the dominating family, with moves at vertices, for costs above ``limit``.

        Returns the largest computed cost, and rows above ``limit`` with their costs: only of some levels if many have
        such rows.
        """
        start = signed_function(half, self.voters.K)
        if np.all(np.diff(start) >= 0.0):
            return -np.inf, ()
        low = self.family.maxima(half, self.exp_epsilon, deadline, low=True, floor=limit)
        costs, _, last, _ = self._bound_outer(start, limit, deadline)
        if self.voters.reached < self.voters.K:
            for level, j in self._yield_levels(start, range(last + 1)):
                costs[j] = max(outer.cost for outer in self._examine_windows(level, j, limit, limit, searches=False))
        broken = list(self._name_rows(low, limit))
        min_levels, divisor = _BORDER_LEVELS
        selected = choose_violated(costs, limit, max(min_levels, self.voters.K // divisor))
        for level, j in self._yield_levels(start, sorted(selected)):
            for examined in self._examine_windows(level, j, limit, limit, searches=False):
                broken.extend(examined.broken)
        worst = float(np.max(costs, where=costs > limit, initial=-np.inf))
        return max(float(np.max(low.costs)), worst), tuple(broken)

    def _find_outer_maxima(self, half: Array, best: float, limit: float, deadline: float) -> _OuterMaxima:
        start = signed_function(half, self.voters.K)
        if np.all(np.diff(start) >= 0.0):
            return _OuterMaxima()
        low = self.family.maxima(half, self.exp_epsilon, deadline, low=True)
        cost = bound = float(np.max(low.costs))
        broken = list(self._name_rows(low, limit))
        if self.corners.delta == 0.0:
            return _OuterMaxima(cost, bound, tuple(broken))
        costs, bounds, last, fall = self._bound_outer(start, min(max(best, cost), limit), deadline)
        undecided = []
        for j in range(last + 1):
            if costs[j] > limit or bounds[j] > max(best, cost, costs[j]):
                undecided.append(j)
            else:
                cost = max(cost, float(costs[j]))
        for level, j in self._yield_levels(start, undecided):
            stop_after(deadline)
            for examined in self._examine_windows(level, j, max(best, cost), limit):
                broken.extend(examined.broken)
                cost, bound = max(cost, examined.cost), max(bound, examined.bound)
        moves = 0.0 if fall is None else self._bound_cost_of_moves(last, fall + self.params.error_of_falls * last)
        return _OuterMaxima(cost, max(bound, cost), tuple(broken), last + 1, moves)

    def _bound_outer(self, start: Array, threshold: float, deadline: float) -> tuple[Array, Array, int, float | None]:
        """Compute costs and bounds of all levels, as `kernels.outer_costs`, up to the first that does not fall.

        Returns also the number of that level and its fall, which may be rounding; None for the last level of a window.
        With unaffected voters the bound of a level is ∞: its windows need separate examination.
        """
        costs, bounds = np.full((2, self.voters.reached + 1), -np.inf)
        level, j, last = start.copy(), 0, self.voters.reached
        if last < self.voters.K:
            while j < last and largest_fall(level) > self.params.error_of_falls * j:
                level, j = smooth(level, self.corners.hi), j + 1
            bounds[: j + 1] = np.inf
            return costs, bounds, j, largest_fall(level) if j < last else None
        while True:
            stop_after(deadline)
            kernels = KERNEL.choose(level.size * _NANOSECONDS_PER_SCREEN)
            step = slice(j, j + max(1, _PLACES_A_CALL // level.size))
            num_passed = kernels.outer_costs(level, self.params, threshold, j, costs[step], bounds[step])
            j, level = j + abs(num_passed), level[: level.size - abs(num_passed) + (num_passed < 0)]
            if num_passed < 0:
                return costs, bounds, j - 1, largest_fall(level)

    def _yield_levels(self, level: Array, numbers: Iterable[int]) -> Iterator[tuple[Array, int]]:
        """Yield T at some levels in ascending order."""
        j = 0
        for number in numbers:
            while j < number:
                level, j = smooth(level, self.corners.hi), j + 1
            yield level, j

    def _name_rows(self, maxima: LevelMaxima, limit: float) -> tuple[ViolatedRow, ...]:
        return tuple(
            (float(maxima.costs[j]), self.family.row(maxima, int(j))) for j in np.flatnonzero(maxima.costs > limit)
        )

    def _bound_cost_of_moves(self, j: int, fall: float) -> float:
        """Bound the loss of K − j moves to examined rows where D ≥ −fall."""
        widest = max(2.0 * self.corners.hi - 1.0, self.corners.delta)
        return float(1.0001 * (self.voters.K - j) * (1.0 + self.exp_epsilon.value) * widest * fall)

    def _examine_windows(
        self, level: Array, j: int, best: float, limit: float, *, searches: bool = True
    ) -> Iterator[_OuterMaxima]:
        lows = np.array([0, j] if j else [0])  # without voters at (hi, lo) or (lo, hi) the two chains are one
        block = np.stack([level, -level[::-1]])[: lows.size]
        unaffected = self.voters.K - self.voters.reached
        width = block.shape[1] - unaffected
        for unaffected_ones in range(unaffected + 1):
            direct, mirror = (
                block[:, unaffected_ones : unaffected_ones + width],
                block[:, unaffected - unaffected_ones : unaffected - unaffected_ones + width],
            )
            window = _Window(direct, direct if unaffected == 0 else mirror, lows, j, unaffected_ones)
            examined = self._examine(window, best, limit, searches=searches)
            best = max(best, examined.cost)
            yield examined

    def _examine(self, window: _Window, best: float, limit: float, *, searches: bool = True) -> _OuterMaxima:
        exp_epsilon, is_same = self.exp_epsilon.value, window.reflected is window.direct
        screened = screen(window.direct, self.params.tails)
        mirror_screened = screened if is_same else screen(window.reflected, self.params.tails)
        active = np.flatnonzero(np.max(screened + exp_epsilon * mirror_screened[:, ::-1], axis=1) > min(best, limit))
        if active.size == 0:
            return _OuterMaxima()
        block = window.direct[active]
        window = _Window(
            block, block if is_same else window.reflected[active], window.lows[active], window.j, window.unaffected_ones
        )
        direct = self.vertices(block)
        reflected = direct if is_same else self.vertices(window.reflected)
        costs = direct.values + exp_epsilon * reflected.values[:, ::-1]
        bounds = direct.bounds + exp_epsilon * reflected.bounds[:, ::-1]
        largest = float(np.max(costs))
        is_peak = costs > limit  # the local maxima
        is_peak[:, 1:] &= costs[:, 1:] >= costs[:, :-1]
        is_peak[:, :-1] &= costs[:, :-1] > costs[:, 1:]
        broken = [
            (float(costs[chain, ones]), self._build_vertex_row(window, (direct, reflected), chain, ones))
            for chain, ones in np.argwhere(is_peak).tolist()
        ]
        if not searches:
            return _OuterMaxima(largest, largest, tuple(broken))
        bound = largest
        undecided = np.argwhere(bounds > max(best, largest))
        for chain, ones in undecided[np.argsort(-bounds[tuple(undecided.T)], kind="stable")].tolist():
            if bounds[chain, ones] <= max(best, bound):
                break
            cost, row_bound, row = self._search_row(window, (direct, reflected), chain, ones, max(best, bound))
            largest, bound = max(largest, cost), max(bound, row_bound)
            if cost > max(limit, costs[chain, ones]):
                broken.append((cost, row))
        return _OuterMaxima(largest, bound, tuple(broken))

    def _build_vertex_row(
        self, window: _Window, vertices: tuple[Vertices, Vertices], chain: int, ones: int
    ) -> CornerCounts:
        zeros = window.direct.shape[1] - 1 - ones
        direct, reflected = int(vertices[0].choice[chain, ones]), int(vertices[1].choice[chain, zeros])
        moves = zeros * (direct & 1), ones * (direct >> 1), zeros * (reflected >> 1), ones * (reflected & 1)
        return self._build_row(window, chain, ones, moves)

    def _build_row(self, window: _Window, chain: int, ones: int, moves: Moves) -> CornerCounts:
        low, all_ones = int(window.lows[chain]), ones + window.unaffected_ones
        return CornerCounts(window.j - low, low, self.voters.K - window.j - all_ones, all_ones, *moves)

    def _search_row(
        self, window: _Window, vertices: tuple[Vertices, Vertices], chain: int, ones: int, threshold: float
    ) -> tuple[float, float, CornerCounts]:
        """Search the (a, a_1) of one n_1: a cost, a bound on all above ``threshold``, and the row."""
        zeros, exp_epsilon = window.direct.shape[1] - 1 - ones, self.exp_epsilon.value
        direct, reflected = vertices
        threshold *= _ROUNDING_FACTOR  # then no rounding of the sum exceeds the limit
        # the costlier term first: its bound tightens the limit of the other
        mirror_limit = (threshold - float(direct.bounds[chain, ones])) / exp_epsilon
        second = self.search(window.reflected, reflected, chain, zeros, mirror_limit)
        first = self.search(window.direct, direct, chain, ones, threshold - exp_epsilon * second[1])
        cost, bound = (x + exp_epsilon * y for x, y in zip(first[:2], second[:2], strict=True))
        return cost, bound, self._build_row(window, chain, ones, (*first[2:], second[3], second[2]))

    def vertices(self, block: Array) -> Vertices:
        kernels = KERNEL.choose(block.shape[0] * (self.family.terms + 1.0) ** 2 * (block.shape[1] + 2_000.0))
        result = Vertices(np.empty(block.shape), np.empty(block.shape), np.empty(block.shape, dtype=np.int64))
        kernels.vertices(np.ascontiguousarray(block), self.params, result.values, result.bounds, result.choice)
        return result

    def search(
        self, block: Array, vertices: Vertices, state: int, n_1: int, enough: float
    ) -> tuple[float, float, int, int]:
        """Search V(n_1) of one state by branch and bound, after `vertices` of the block.

        Few pairs (a, a_1) are all computed. Else a grid of pairs comes first. The bound of the module holds for each
        cell of the grid: it shrinks as the square of the cell. Cells whose bound exceeds the best pair and ``enough``
        are computed in full, the largest bound first.

        Returns the best pair's value, an upper bound on V, a and a_1. The bound is the value or at most ``enough``.
        """
        value, bound = float(vertices.values[state, n_1]), float(vertices.bounds[state, n_1])
        n_0 = block.shape[1] - 1 - n_1
        if bound <= enough:
            choice = int(vertices.choice[state, n_1])
            return value, bound, n_0 * (choice & 1), n_1 * (choice >> 1)
        pairs = _MovePairs(self.params.delta_weights, block[state], n_1)
        if (n_0 + 1) * (n_1 + 1) <= _MAX_PAIRS:
            best, a, a_1 = pairs.find_best(0, n_0, 0, n_1)
            return best, best, a, a_1
        # at least two lines of the grid each way: one cell
        zeros, ones = (np.unique(np.arange(_GRID_CELLS + 1) * max(1, size) // _GRID_CELLS) for size in (n_0, n_1))
        zeros, ones = np.minimum(zeros, n_0), np.minimum(ones, n_1)
        values = pairs.values(zeros, ones)
        place = np.unravel_index(int(np.argmax(values)), values.shape)
        best, a, a_1 = float(values[place]), int(zeros[place[0]]), int(ones[place[1]])
        curvature = 1.0001 * (bound - value) / max(1, n_0**2 + n_1**2)
        ends = np.maximum(values[:-1], values[1:])
        squares = np.add.outer(np.diff(zeros).astype(float) ** 2, np.diff(ones).astype(float) ** 2)
        bounds = np.maximum(ends[:, :-1], ends[:, 1:]) + curvature * squares
        is_open = bounds > max(best, enough)
        largest_closed = float(np.max(bounds, where=~is_open, initial=-np.inf))
        cells = np.argwhere(is_open)
        for row, column in cells[np.argsort(-bounds[is_open], kind="stable")].tolist():
            if bounds[row, column] <= max(best, enough):
                largest_closed = float(bounds[row, column])
                break
            cell = (*zeros[row : row + 2].tolist(), *ones[column : column + 2].tolist())
            best, a, a_1 = max((best, a, a_1), pairs.find_best(*cell))
        return best, max(best, largest_closed), a, a_1


class _MovePairs:
    """E[T(n_1 − Bin(a_1, Δ) + Bin(a, Δ))] for pairs (a, a_1), as products of two short sums."""

    def __init__(self, weights: Array, level: Array, n_1: int) -> None:
        J = weights.shape[0] - 1
        moves = J + n_1 + np.arange(J + 1)[:, None] - np.arange(J + 1)
        self._zeros, self._ones_moved = weights.T, np.pad(level, J)[moves] @ weights[:, : n_1 + 1]

    def values(self, zeros: NDArray[np.int64], ones: NDArray[np.int64]) -> Array:
        return np.asarray(self._zeros[zeros] @ self._ones_moved[:, ones])

    def find_best(self, first_a: int, last_a: int, first_a_1: int, last_a_1: int) -> tuple[float, int, int]:
        """Find the largest value of a cell: it, a and a_1."""
        values = self._zeros[first_a : last_a + 1] @ self._ones_moved[:, first_a_1 : last_a_1 + 1]
        a, a_1 = divmod(int(np.argmax(values)), values.shape[1])
        return float(values[a, a_1]), first_a + a, first_a_1 + a_1
