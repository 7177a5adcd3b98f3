"""Voters that differ: the worst privacy cost of a monotone γ where voter i satisfies (ε_i, Δ_i).

The cost f = E_p[g(L)] − c·E_{p'}[g(L)] is linear in each voter's pair (p_i, p'_i). With a γ that does not fall away
from the tie it rises with p_i and falls with p'_i, for any others. So [D, Lemma 5.1] and the reduction of
`darrm.majority.dominating` hold voter by voter: a touched voter of group i is at (hi_i, lo_i), (Δ_i, 0) or (1, 1 −
Δ_i), an untouched one at (0, 0) or (1, 1). Rows are counted group by group: Π C(K_i + 2, 2) with overlap K, 3^K if all
voters differ. With overlap t every choice of at most t touched voters is a row.

**All rows at once.** Start with T = g. For one group after the other T(s) becomes E[g(s + ones of this group)] for
every state of the group, until one value is left for each row: E_p[g], and with lo and the moves of p' E_{p'}[g].

**Rounding.** At most K averaging steps for hi and Δ together, and for every group J + 1 products and sums of its short
binomial.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from itertools import pairwise
from math import comb, prod

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from darrm.majority.corners import CornerCounts, ExpEpsilon, Row, corners_of, enclose_exp, placements
from darrm.majority.dominating import TAIL, delta_weights, moves_followed, stop_after
from darrm.majority.full_set import FullSet
from darrm.majority.noise_function import signed_function
from darrm.numerics import Array
from darrm.numerics.binomial import STEP_ERROR, smooth
from darrm.problem import Voters
from darrm.util import checks

MOST_ROWS = 4_000_000  # a second or two and some 200 MB
MOST_GROUPS = 14  # more groups with three places each exceed the rows
_MAX_NAMED_ROWS = 240  # of one separation


@dataclass(frozen=True)
class GroupCounts(Row):
    parts: tuple[CornerCounts, ...]

    def counts(self) -> tuple[CornerCounts, ...]:
        return self.parts


@dataclass(frozen=True, eq=False)
class GroupMaxima:
    worst: float  # a rigorous upper bound on the cost of every row
    broken: tuple[tuple[float, GroupCounts], ...]  # some of the rows above the limit, with their costs


def number_of_rows(voters: Voters) -> int:
    """Count the rows of a proof for voters that differ."""
    if voters.overlap is None:
        return prod(comb(n + 2, 2) for n, _ in voters.groups)
    return placements(voters, [3 if each.exact_delta > 0 else 1 for _, each in voters.groups])


def _yield_states(n: int, reached: int, moves: bool, *, is_full: bool) -> Iterator[CornerCounts]:
    """Yield the placements of n voters of one group with few touched; if ``is_full``, all near 0 and 1 are moved."""
    for high in range(min(n, reached) + 1):
        for ones in range(n - high + 1):
            zeros = n - high - ones
            if not moves:
                yield CornerCounts(high, 0, zeros, ones)
                continue
            for a in [zeros] if is_full else range(min(zeros, reached - high) + 1):
                for b in [ones] if is_full else range(min(ones, reached - high - a) + 1):
                    yield CornerCounts(high, 0, zeros, ones, moved_zeros=a, moved_ones_prime=b)


def is_searchable(voters: Voters) -> bool:
    return voters.per_voter is None or (len(voters.groups) <= MOST_GROUPS and number_of_rows(voters) <= MOST_ROWS)


def check_groups(voters: Voters) -> None:
    """Raise `ValueError` if voters differ and have too many rows."""
    if not is_searchable(voters):
        advice = "round their ε and Δ up to fewer groups: voters.round_up_to(3)"
        checks.fail("rows of voters that differ", "more", f"at most {MOST_ROWS:,}", advice)


class GroupSet:
    """All rows of voters that differ, for monotone γ."""

    def __init__(self, voters: Voters, epsilon: Fraction) -> None:
        check_groups(voters)
        self.voters, self.exp_epsilon = voters, enclose_exp(epsilon)

    @cached_property
    def states(self) -> list[list[CornerCounts]]:
        voters, is_full = self.voters, self.voters.overlap is None
        return [
            list(_yield_states(n, voters.reached, each.exact_delta > 0, is_full=is_full)) for n, each in voters.groups
        ]

    @cached_property
    def _row_choices(self) -> list[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        """For each group the parent and the state of the group, of every row with at most t touched voters."""
        choices, touched = [], np.zeros(1, dtype=np.int32)
        for states in self.states:
            sums = touched[:, None] + np.array([state.touched for state in states], dtype=np.int32)
            parents, state_numbers = np.nonzero(sums <= self.voters.reached)
            choices.append((parents.astype(np.int32), state_numbers.astype(np.int32)))
            touched = sums[parents, state_numbers]
        return choices

    @cached_property
    def _keys(self) -> NDArray[np.int64]:
        """The number of voters at (hi, lo) and of ones, as one number a row: rows with equal keys are similar."""
        key = np.zeros(1, dtype=np.int64)
        for states, (parents, state_numbers) in zip(self.states, self._row_choices, strict=True):
            state_keys = np.array([state.high * (self.voters.K + 1) + state.ones for state in states], dtype=np.int64)
            key = key[parents] + state_keys[state_numbers]
        return key

    def expectations(self, half: Array, deadline: float = np.inf) -> tuple[Array, Array]:
        """Compute E_p[g] and E_{p'}[g] of every row; ``half`` is γ at l = ⌊K/2⌋+1 … K.

        Raises `TimeoutError` when `time.perf_counter` passes ``deadline``.
        """
        first = second = signed_function(half, self.voters.K)[None, :]
        groups = zip(self.voters.groups, self.states, self._row_choices, strict=True)
        for (n, each), states, (parents, state_numbers) in groups:
            stop_after(deadline)
            corners = corners_of(each)
            weights = delta_weights(n, each, moves_followed(n, corners.delta))
            is_complete = parents.size == first.shape[0] * len(states)
            rows = (slice(None), slice(None)) if is_complete else (parents, state_numbers)
            width = first.shape[1] - n
            first = self._average_group(first, states, n, corners.hi, weights, up=True)[rows].reshape(-1, width)
            second = self._average_group(second, states, n, 1.0 - corners.hi, weights, up=False)[rows].reshape(
                -1, width
            )
        return first[:, 0], second[:, 0]

    @staticmethod
    def _average_group(
        levels: Array, states: list[CornerCounts], n: int, p: float, weights: Array, *, up: bool
    ) -> Array:
        """Average T over the voters of a group, for every state: shape (r, w) → (r, states, w − n)."""
        width = levels.shape[1] - n
        result = np.empty((levels.shape[0], len(states), width))
        level, high = levels, 0
        for place, state in enumerate(states):
            while high < state.high:
                level, high = smooth(level, p), high + 1
            num_moved = state.moved_zeros if up else state.moved_ones_prime
            total = weights[0, num_moved] * level[:, state.ones : state.ones + width]
            for i in range(1, min(weights.shape[0] - 1, num_moved) + 1):
                start = state.ones + (i if up else -i)
                total += weights[i, num_moved] * level[:, start : start + width]
            result[:, place] = total
        return result

    def rounding(self, exp_epsilon: ExpEpsilon) -> float:
        """Bound the distance between a computed cost and the real one, for |g| ≤ 1."""
        voters = self.voters
        terms = sum(2 * moves_followed(n, corners_of(each).delta) + 8 for n, each in voters.groups)
        one_term = STEP_ERROR * (voters.K + terms) + 2.0 * TAIL * len(voters.groups)
        return (1.0 + exp_epsilon.value) * (one_term + STEP_ERROR) + exp_epsilon.error

    def worst(self, half: Array) -> float:
        return self.worst_at(half, [self.exp_epsilon])[0]

    def worst_at(self, half: Array, exp_epsilons: Iterable[ExpEpsilon]) -> list[float]:
        """Bound the cost of every row from above at each of many factors c, in one pass over the rows."""
        first, second = self.expectations(half)
        return [self._bound_worst(first - exp_epsilon.value * second, exp_epsilon) for exp_epsilon in exp_epsilons]

    def _bound_worst(self, costs: Array, exp_epsilon: ExpEpsilon) -> float:
        return float(np.nextafter(float(np.max(costs)) + self.rounding(exp_epsilon), np.inf))

    def maxima(self, half: Array, limit: float = np.inf, deadline: float = np.inf) -> GroupMaxima:
        """Bound the cost of every row and return some rows above ``limit``: the costliest of similar ones."""
        first, second = self.expectations(half, deadline)
        costs = first - self.exp_epsilon.value * second
        violated = np.flatnonzero(costs > limit)
        order = violated[np.argsort(-costs[violated], kind="stable")]
        _, costliest = np.unique(self._keys[order], return_index=True)
        selected = order[np.sort(costliest)][:_MAX_NAMED_ROWS]
        return GroupMaxima(
            self._bound_worst(costs, self.exp_epsilon),
            tuple((float(costs[row]), self._build_row(int(row))) for row in selected),
        )

    def _build_row(self, row: int) -> GroupCounts:
        parts: list[CornerCounts] = []
        for states, (parents, state_numbers) in zip(reversed(self.states), reversed(self._row_choices), strict=True):
            parts.append(states[state_numbers[row]])
            row = int(parents[row])
        return GroupCounts(tuple(reversed(parts)))

    def steps(self) -> int:
        """Bound how many averages `worst_ball` takes."""
        total, prefix = 0, 1
        width = self.voters.K + 1
        for (n, _), states in zip(self.voters.groups, self.states, strict=True):
            prefix, width = prefix * len(states), width - n
            total += 2 * prefix * (width + n) * max(1, n)
        return total

    def worst_ball(self, half: Array, bits: int = 128) -> arb:
        with ctx.workprec(bits):
            start = [arb(float(value)) for value in signed_function(half, self.voters.K)]
            pairs = [(start, start, 0)]
            for (n, each), states in zip(self.voters.groups, self.states, strict=True):
                corners = corners_of(each)
                pairs = [
                    (
                        _average_group_ball(first, state, n, corners.ball_hi, corners.ball_delta, up=True),
                        _average_group_ball(second, state, n, 1 - corners.ball_hi, corners.ball_delta, up=False),
                        touched + state.touched,
                    )
                    for first, second, touched in pairs
                    for state in states
                    if touched + state.touched <= self.voters.reached
                ]
            costs = [first[0] - self.exp_epsilon.ball * second[0] for first, second, _ in pairs]
            return reduce(arb.max, costs)


def make_row_set(voters: Voters, epsilon: Fraction) -> FullSet | GroupSet:
    """Return all rows of these voters, equal or not, for the cost with c = e^epsilon."""
    return FullSet(voters, epsilon) if voters.per_voter is None else GroupSet(voters, epsilon)


def _average_group_ball(level: list[arb], state: CornerCounts, n: int, p: arb, delta: arb, *, up: bool) -> list[arb]:
    num_moved = state.moved_zeros if up else state.moved_ones_prime
    for probability in [p] * state.high + ([delta] if up else [1 - delta]) * num_moved:
        level = [(1 - probability) * low + probability * high for low, high in pairwise(level)]
    num_certain = state.ones if up else state.ones - num_moved
    return level[num_certain : num_certain + len(level) - (n - state.high - num_moved)]
