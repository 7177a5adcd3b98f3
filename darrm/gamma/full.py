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
Δ²(n_0² + n_1²)/8 · max |T''| nearby. Where that still leaves a doubt and K ≤ `EXACT_UP_TO`, all (a, a_1) are tried.
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
from darrm.gamma.shifts import NearShifts
from darrm.probability.poisson_binomial import STEP_ERROR, smooth

if TYPE_CHECKING:
    from collections.abc import Iterator
    from fractions import Fraction

    from darrm.privacy import MajorityProblem

Array = NDArray[np.float64]

EXACT_UP_TO = 201
BLOCK_NUMBERS = 2**16


@dataclass(frozen=True, eq=False)
class FullMaxima:
    """What was found in the full set.

    Attributes
    ----------
    worst
        A rigorous upper bound on the cost of every row.
    costs
        For each level j that was looked at, the largest computed cost; shape (levels,).
    rows
        The row that attains it, one for each level.
    levels
        How many levels had to be looked at.
    slack
        The part of `worst` that is not a cost of a row: rounding, tails, moves and curvature.
    """

    worst: float
    costs: Array
    rows: tuple[CornerCounts, ...]
    levels: int
    slack: float


@dataclass(frozen=True, eq=False)
class _State:
    """The best row of one block: its cost, an upper bound for the block, and where it is."""

    cost: float
    bound: float
    row: CornerCounts


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

    def maxima(self, half: Array) -> FullMaxima:
        """Bound the cost of every row of the full set; ``half`` has shape (K − floor(K/2),)."""
        found = self.family.maxima(half)
        best = float(np.max(found.costs))
        bound = best
        costs: list[float] = []
        rows: list[CornerCounts] = []
        moves = 0.0
        for j, blocks in enumerate(self._levels(half)):
            steepest_fall = -min(float(np.min(np.diff(block), initial=0.0)) for _, block in blocks)
            error = 2.0 * STEP_ERROR * j
            if steepest_fall <= error:
                moves = self._cost_of_moves(steepest_fall + error)
                break
            states = [self._examine(first_low, block, j, best) for first_low, block in blocks]
            state = max(states, key=lambda state: state.cost)
            costs.append(state.cost)
            rows.append(state.row)
            best = max(best, state.cost)
            bound = max(bound, *(state.bound for state in states))
        worst = float(np.nextafter(bound + self.family.rounding + moves, np.inf))
        return FullMaxima(worst, np.array(costs), tuple(rows), len(costs), worst - best)

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

    def _examine(self, first_low: int, block: Array, j: int, best: float) -> _State:
        """Find the largest cost among the states of a block."""
        N = block.shape[1] - 1
        ratio = self.constants.ratio
        if self.constants.delta == 0.0:
            costs = block + ratio * block[:, ::-1]
            index = int(np.argmax(costs))
            state, ones = divmod(index, N + 1)
            low = first_low + state
            cost = float(costs[state, ones])
            return _State(cost, cost, CornerCounts(j - low, low, N - ones, ones))
        screened = self.shifts.screen(block)
        hopeful = np.flatnonzero(np.max(screened + ratio * screened[:, ::-1], axis=1) > best - self.family.rounding)
        if hopeful.size == 0:
            return _State(-np.inf, best, CornerCounts(j, 0, N, 0))
        near = self.shifts.vertices(block[hopeful])
        costs = near.values + ratio * near.values[:, ::-1]
        bounds = near.bounds + ratio * near.bounds[:, ::-1]
        index = int(np.argmax(costs))
        state, ones = divmod(index, N + 1)
        low = first_low + int(hopeful[state])
        cost, bound = float(costs[state, ones]), float(np.max(bounds))
        if self.problem.K <= EXACT_UP_TO:
            doubtful = np.argwhere(bounds > max(best, cost))
            exact = [self._enumerate(block[hopeful[row]], int(n_1)) for row, n_1 in doubtful]
            bound = max([best, cost, *exact])
        choice, mirrored = near.choice[state, ones], near.choice[state, N - ones]
        row = CornerCounts(
            j - low,
            low,
            N - ones,
            ones,
            moved_zeros=(N - ones) * int(choice & 1),
            moved_ones=ones * int(choice >> 1),
            moved_ones_prime=ones * int(mirrored & 1),
            moved_zeros_prime=(N - ones) * int(mirrored >> 1),
        )
        return _State(cost, bound, row)

    def _enumerate(self, level: Array, ones: int) -> float:
        """Compute the cost of a state exactly, trying every (a, a_1) of both terms."""
        N = level.size - 1
        return self.shifts.best_of_all(level, ones) + self.constants.ratio * self.shifts.best_of_all(level, N - ones)
