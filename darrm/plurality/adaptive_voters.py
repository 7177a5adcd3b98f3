"""A bound on the excess over all private voters, if their multisets are too many to list: adaptive voters.

Let voters vote one after the other, each choosing its corner (`darrm.plurality.voter_corners`) with knowledge of the
earlier votes. Voters who choose beforehand are a special case, so a bound for adaptive voters holds for all. With equal
ε_0, the ratio of the probabilities of the votes under p and p' is e^{ε_0 s} for a whole number s. So the worst excess
is a recursion over the votes n so far and s: W(n, s) = (1 − e^{ε − ε_0 s}) h_S(n) after the last vote, and before

    W(n, s) = (1 − Δ)·max_{a, b} {hi·W(n + 1_a, s + 1) + lo·W(n + 1_b, s − 1), W(n + 1_a, s)}
              + Δ·(max_u U(n + 1_u) − e^{ε − ε_0 s}·min_v L(n + 1_v)),

where U and L are the largest and the smallest h_S that the later voters can make of n. The bound is W(0, 0). It is not
tight: laws that it proves have more noise than needed.

Rounding: a few units of 1 + e^{ε − ε_0 s} at every (n, s), as |W| is no larger. The mean of that weight is the same
after every vote, hi·e^{−ε_0(s+1)} + lo·e^{−ε_0(s−1)} = e^{−ε_0 s}: together K times 1 + e^ε units. States are the
counts of the answers S and of the other classes, each in falling order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from darrm.majority.corners import corners_of, enclose_exp
from darrm.numerics import Array
from darrm.plurality.partitions import falling_counts, partitions_of
from darrm.problem import Problem

_STEP = 2.0**-50  # relative: hi, lo and a few products and sums, each rounded once

State = tuple[tuple[int, ...], tuple[int, ...]]  # the counts of the answers, and those of the other classes


@dataclass(frozen=True)
class _Votes:
    states: tuple[State, ...]
    following: NDArray[np.int64]  # (n, most), the states after one more vote, padded with the first one


class VotersInTurn:
    """Voters that are all alike, as seen from the first ``answers`` classes."""

    def __init__(self, problem: Problem, answers: int) -> None:
        self.problem, self.answers, self.K = problem, answers, problem.voters.K
        corners, each = corners_of(problem.voters.each), problem.voters.each
        self.hi, self.lo, self.delta = corners.share, corners.share_left, each.delta
        s = np.arange(-self.K, self.K + 1)
        ratio = enclose_exp(problem.target.exact_epsilon).value
        self.ratio = ratio * np.exp(-each.epsilon * s)  # of p' to p, times e^ε
        self.votes = [_votes(k, problem.classes, answers) for k in range(self.K + 1)]

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """The group of every answer, once all have voted: shape (n, S)."""
        partitions, classes = partitions_of(self.K, self.problem.classes), self.problem.classes
        counts = np.array([[*own, *others] for own, others in self.votes[-1].states]).reshape(-1, classes)
        return partitions.groups_of(counts)[:, : self.answers]

    def worst(self, each: Array) -> tuple[float, Array]:
        """Bound the cost of a law from above, and return a linear function of laws that attains the bound at it."""
        values = each[self.groups].sum(axis=1)
        worst, upper, lower = values[:, None] * (1.0 - self.ratio), values, values
        choices = []
        for votes in reversed(self.votes[:-1]):
            worst, upper, lower, chosen = self._step(votes, worst, upper, lower)
            choices.append(chosen)
        roundings = self.K * (1.0 + self.problem.voters.each.epsilon) + self.problem.classes + 4
        error = _STEP * roundings * (1.0 + float(self.ratio[self.K]))
        return float(worst[0, self.K]) + error, self._attained(choices[::-1], each.size)

    def _step(
        self, votes: _Votes, worst: Array, upper: Array, lower: Array
    ) -> tuple[Array, Array, Array, tuple[NDArray[np.int64], ...]]:
        to = votes.following
        most, least = to[np.arange(len(to)), upper[to].argmax(axis=1)], to[np.arange(len(to)), lower[to].argmin(axis=1)]
        up, down = np.full(worst.shape, -math.inf), np.full(worst.shape, -math.inf)
        up[:, :-1], down[:, 1:] = self.hi * worst[:, 1:], self.lo * worst[:, :-1]
        still, first, second = (rows[to].argmax(axis=1) for rows in (worst, up, down))
        place = np.arange(worst.shape[1])
        one, two, three = (np.take_along_axis(to, chosen, axis=1) for chosen in (still, first, second))
        moved = up[two, place] + down[three, place]
        moves = moved > worst[one, place]
        cost = np.where(moves, moved, worst[one, place])
        more = upper[most][:, None] - self.ratio * lower[least][:, None]
        cost = (1.0 - self.delta) * cost + self.delta * more
        return cost, upper[most], lower[least], (moves, one, two, three, most, least)

    def _attained(self, choices: list[tuple[NDArray[np.int64], ...]], size: int) -> Array:
        both, p_only, q_only = np.zeros((1, 2 * self.K + 1)), np.zeros(1), np.zeros(1)
        both[0, self.K] = 1.0
        for votes, (moves, one, two, three, most, least) in zip(self.votes[1:], choices, strict=True):
            following = np.zeros((len(votes.states), both.shape[1]))
            p_next, q_next = np.zeros(len(votes.states)), np.zeros(len(votes.states))
            np.add.at(p_next, most, p_only + self.delta * both.sum(axis=1))
            np.add.at(q_next, least, q_only + self.delta * (both * self.ratio).sum(axis=1))
            mass = (1.0 - self.delta) * both
            place = np.broadcast_to(np.arange(both.shape[1]), mass.shape)
            np.add.at(following, (one[~moves], place[~moves]), mass[~moves])
            np.add.at(following, (two[moves], np.minimum(place[moves] + 1, 2 * self.K)), self.hi * mass[moves])
            np.add.at(following, (three[moves], np.maximum(place[moves] - 1, 0)), self.lo * mass[moves])
            both, p_only, q_only = following, p_next, q_next
        weights = (both * (1.0 - self.ratio)).sum(axis=1) + p_only - q_only
        entries = [np.bincount(column, weights, minlength=size) for column in self.groups.T]
        return np.asarray(np.sum(entries, axis=0))


@lru_cache(maxsize=256)
def _votes(k: int, classes: int, answers: int) -> _Votes:
    states = _states(k, classes, answers)
    after = {state: place for place, state in enumerate(_states(k + 1, classes, answers))}
    rows = []
    for own, others in states:
        grown = [(_raised(own, place), others) for place in range(len(own))]
        grown += [(own, _raised(others, place)) for place in range(len(others))]
        rows.append(sorted({after[state] for state in grown}))
    most = max(map(len, rows))
    return _Votes(states, np.array([[*row, *row[:1] * (most - len(row))] for row in rows]))


@lru_cache(maxsize=512)
def _states(k: int, classes: int, answers: int) -> tuple[State, ...]:
    return tuple(
        (own, others)
        for votes in range(k + 1)
        for own in falling_counts(votes, answers, votes)
        for others in falling_counts(k - votes, classes - answers, k - votes)
    )


def _raised(counts: tuple[int, ...], place: int) -> tuple[int, ...]:
    return tuple(sorted((*counts[:place], counts[place] + 1, *counts[place + 1 :]), reverse=True))
