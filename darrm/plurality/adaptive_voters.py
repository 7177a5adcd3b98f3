"""Adaptive voters: a bound on the excess over all private voters if their multisets are too many to list.

Let voters vote one after the other and choose their corners (`darrm.plurality.voter_corners`) after seeing the earlier
votes. Voters who choose at the start are a special case, so a bound for adaptive voters holds for all. With equal ε_0,
the ratio of the probabilities of the votes under p and p' is e^{ε_0 s} for a whole number s. So the worst excess is a
recursion over the votes n so far and s: W(n, s) = (1 − e^{ε − ε_0 s}) h_S(n) after the last vote, and before

    W(n, s) = (1 − Δ)·max_{a, b} {hi·W(n + 1_a, s + 1) + lo·W(n + 1_b, s − 1), W(n + 1_a, s)}
              + Δ·(max_u U(n + 1_u) − e^{ε − ε_0 s}·min_v L(n + 1_v)),

where U and L are the largest and the smallest h_S that later voters can reach from n. The bound is W(0, 0). It is not
tight: it needs laws with more noise than necessary.

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
from darrm.plurality.partitions import falling_counts, list_partitions
from darrm.problem import Problem

_STEP_ERROR = 2.0**-50  # relative: hi, lo and a few products and sums, each rounded once

State = tuple[tuple[int, ...], tuple[int, ...]]  # the counts of the answers, and of the other classes


@dataclass(frozen=True)
class _VoteStates:
    states: tuple[State, ...]
    successors: NDArray[np.int64]  # (n, most), the states after one more vote, padded with the first one


class VotersInTurn:
    """Voters with equal guarantees, for the answers in the first ``answers`` classes."""

    def __init__(self, problem: Problem, answers: int) -> None:
        self.problem, self.answers, self.K = problem, answers, problem.voters.K
        corners, each = corners_of(problem.voters.each), problem.voters.each
        self.hi, self.lo, self.delta = corners.share, corners.share_complement, each.delta
        s = np.arange(-self.K, self.K + 1)
        ratio = enclose_exp(problem.target.exact_epsilon).value
        self.ratio = ratio * np.exp(-each.epsilon * s)  # of p' to p, times e^ε
        self.votes = [_list_votes(k, problem.classes, answers) for k in range(self.K + 1)]

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """The group of every answer after all votes: shape (n, S)."""
        partitions, classes = list_partitions(self.K, self.problem.classes), self.problem.classes
        counts = np.array([[*first, *others] for first, others in self.votes[-1].states]).reshape(-1, classes)
        return partitions.find_groups(counts)[:, : self.answers]

    def worst(self, probabilities: Array) -> tuple[float, Array]:
        """Bound the cost of a law from above, and return a linear function of laws that attains the bound at it."""
        values = probabilities[self.groups].sum(axis=1)
        worst, upper, lower = values[:, None] * (1.0 - self.ratio), values, values
        choices = []
        for votes in reversed(self.votes[:-1]):
            worst, upper, lower, choice = self._average_vote(votes, worst, upper, lower)
            choices.append(choice)
        roundings = self.K * (1.0 + self.problem.voters.each.epsilon) + self.problem.classes + 4
        error = _STEP_ERROR * roundings * (1.0 + float(self.ratio[self.K]))
        return float(worst[0, self.K]) + error, self._collect_weights(choices[::-1], probabilities.size)

    def _average_vote(
        self, votes: _VoteStates, worst: Array, upper: Array, lower: Array
    ) -> tuple[Array, Array, Array, tuple[NDArray[np.int64], ...]]:
        following = votes.successors
        places = np.arange(len(following))
        top = following[places, upper[following].argmax(axis=1)]
        bottom = following[places, lower[following].argmin(axis=1)]
        up, down = np.full(worst.shape, -math.inf), np.full(worst.shape, -math.inf)
        up[:, :-1], down[:, 1:] = self.hi * worst[:, 1:], self.lo * worst[:, :-1]
        stay, first, second = (rows[following].argmax(axis=1) for rows in (worst, up, down))
        shift = np.arange(worst.shape[1])
        same, raised, lowered = (np.take_along_axis(following, choice, axis=1) for choice in (stay, first, second))
        moved_cost = up[raised, shift] + down[lowered, shift]
        is_move = moved_cost > worst[same, shift]
        cost = np.where(is_move, moved_cost, worst[same, shift])
        failure = upper[top][:, None] - self.ratio * lower[bottom][:, None]
        cost = (1.0 - self.delta) * cost + self.delta * failure
        return (cost, upper[top], lower[bottom], (is_move, same, raised, lowered, top, bottom))

    def _collect_weights(self, choices: list[tuple[NDArray[np.int64], ...]], size: int) -> Array:
        joint, p_mass, q_mass = np.zeros((1, 2 * self.K + 1)), np.zeros(1), np.zeros(1)
        joint[0, self.K] = 1.0
        for votes, (is_move, same, raised, lowered, top, bottom) in zip(self.votes[1:], choices, strict=True):
            next_mass = np.zeros((len(votes.states), joint.shape[1]))
            p_next, q_next = np.zeros(len(votes.states)), np.zeros(len(votes.states))
            np.add.at(p_next, top, p_mass + self.delta * joint.sum(axis=1))
            np.add.at(q_next, bottom, q_mass + self.delta * (joint * self.ratio).sum(axis=1))
            mass = (1.0 - self.delta) * joint
            shift = np.broadcast_to(np.arange(joint.shape[1]), mass.shape)
            np.add.at(next_mass, (same[~is_move], shift[~is_move]), mass[~is_move])
            np.add.at(next_mass, (raised[is_move], np.minimum(shift[is_move] + 1, 2 * self.K)), self.hi * mass[is_move])
            np.add.at(next_mass, (lowered[is_move], np.maximum(shift[is_move] - 1, 0)), self.lo * mass[is_move])
            joint, p_mass, q_mass = next_mass, p_next, q_next
        weights = (joint * (1.0 - self.ratio)).sum(axis=1) + p_mass - q_mass
        entries = [np.bincount(column, weights, minlength=size) for column in self.groups.T]
        return np.asarray(np.sum(entries, axis=0))


@lru_cache(maxsize=256)
def _list_votes(k: int, classes: int, answers: int) -> _VoteStates:
    states = _list_states(k, classes, answers)
    state_numbers = {state: place for place, state in enumerate(_list_states(k + 1, classes, answers))}
    rows = []
    for first, others in states:
        successors = [(_add_vote(first, place), others) for place in range(len(first))]
        successors += [(first, _add_vote(others, place)) for place in range(len(others))]
        rows.append(sorted({state_numbers[state] for state in successors}))
    max_successors = max(map(len, rows))
    return _VoteStates(states, np.array([[*row, *row[:1] * (max_successors - len(row))] for row in rows]))


@lru_cache(maxsize=512)
def _list_states(k: int, classes: int, answers: int) -> tuple[State, ...]:
    return tuple(
        (first, others)
        for votes in range(k + 1)
        for first in falling_counts(votes, answers, votes)
        for others in falling_counts(k - votes, classes - answers, k - votes)
    )


def _add_vote(counts: tuple[int, ...], place: int) -> tuple[int, ...]:
    return tuple(sorted((*counts[:place], counts[place] + 1, *counts[place + 1 :]), reverse=True))
