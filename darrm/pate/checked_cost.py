"""What a query of Confident-GNMax costs by two numbers: how many votes the plurality has, and how likely it is missed.

A query has one of C + 1 answers: none, or a class. With a the probability that the check passes, before, and a′ after a
vote has moved, and E = exp((α − 1)·D_α) of the label,

    exp((α − 1)·D_α) of the answer  =  (1 − a)^α·(1 − a′)^{1−α} + a^α·a′^{1−α}·E,

in either direction. The plurality m moves by at most one vote, which is three values of a′; E is bounded by the label's
q (`darrm.losses.missed_label`). So F(m, q), the largest of these, bounds the cost of the answer, whatever the neighbor.

One vote takes (m, q = t(κ)) to an m′ within 1 and a q′ of at most t(κ − 2), and of what so many voters can make: where
m have voted for the plurality, no other has more than min(m, K − m). A q below `LEAST_MISSED` is told as that, and its
check may cost much all the same. The cost g becomes at most U(g), the least concave rising function above all pairs (F
at a state, F after the move). It is found by branch and bound: for a cell of κ the pair (F at its right end, F after
the move at its left end) is above all pairs of the cell, and cells that lie below the majorant of pairs that occur, by
a part in ten thousand, are left out.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from darrm.errors import checks
from darrm.losses.label_given_votes import LEAST_MISSED
from darrm.losses.missed_label import MissedLabel, majorant
from darrm.pate.confident import EXACT_ROUNDING, NoisyCheck
from darrm.probability import Array

MOST_VOTERS = 20_000  # pairs of m and κ are listed
_WIDEST, _FINER = 1024, 4  # places of a cell at first, and parts of one that is divided
_TOLERANCE = 1e-4  # relative, above the majorant
_ROUNDING = 1e-9


@dataclass(frozen=True)
class CheckedCost:
    """F(m, q), and how far one vote moves it.

    Examples
    --------
    >>> from darrm.losses.missed_label import MissedLabel
    >>> bound = CheckedCost(MissedLabel(40.0, 20.0), NoisyCheck(200.0, 150.0), voters=250, classes=10)
    >>> bound.cost(np.array([250, 150]), np.array([1e-6, 0.3])).round(6).tolist()
    [0.000277, 0.003863]
    """

    label: MissedLabel  # c(q) of the label, at the order
    check: NoisyCheck  # the noisy comparison of the plurality with the threshold, of discrete noise
    voters: int  # K
    classes: int  # C

    def __post_init__(self) -> None:
        advice = "the costs of all pluralities are listed"
        checks.integer_at_least(2, most=MOST_VOTERS, voters=self.voters, advice=advice)
        if not self.check.summed(np.array([-1, self.voters + 1])):
            checks.fail("the check", self.check, "of discrete noise that can be summed")

    @property
    def order(self) -> float:
        """The order of the divergence."""
        return self.label.order

    def cost(self, statistic: NDArray[np.int64], missed: Array) -> Array:
        """Bound the cost of queries by their pluralities and probabilities to miss these, elementwise."""
        return self._of(statistic, self.label.cost(missed))

    @cached_property
    def after_one_vote(self) -> tuple[Array, Array]:
        """Bound the cost after one vote has moved by the cost before: vertices of a concave rising function."""
        low, high, shift = self.label.costs_at_places
        last = self._last
        pluralities, starts, width = np.arange(self._least, self.voters + 1), np.arange(0, last, _WIDEST), _WIDEST
        m, start = np.repeat(pluralities, starts.size), np.tile(starts, pluralities.size)
        hull = np.zeros(1), np.zeros(1)
        while True:
            possible = start + width > self._likeliest[m]
            m, start = m[possible], start[possible]
            before = self._of(m, low[np.minimum(start + width, last)])
            after = self._moved(m, high, start - shift)
            if width == 1:
                raised = hull[1] * (1.0 + _TOLERANCE)
                return majorant(np.append(hull[0], before), np.append(raised, after))
            here = np.maximum(start, self._likeliest[m])
            hull = majorant(
                np.append(hull[0], self._of(m, high[here])), np.append(hull[1], self._moved(m, low, here - shift))
            )
            kept = after > np.interp(before, *hull) * (1.0 + _TOLERANCE)
            width //= _FINER
            start = (start[kept][:, None] + width * np.arange(_FINER)).ravel()
            m = np.repeat(m[kept], _FINER)[start < last]
            start = start[start < last]

    @cached_property
    def least(self) -> float:
        """About what a query costs at least; less is counted as that."""
        m = np.arange(self._least, self.voters + 1)
        return float(np.min(self._of(m, np.full(m.size, self.label.costs_at_places[0][self._last]))))

    @property
    def _least(self) -> int:
        return -(-self.voters // self.classes)

    @property
    def _last(self) -> int:
        return int(np.argmax(self.label.places[0] < LEAST_MISSED))

    @cached_property
    def _likeliest(self) -> NDArray[np.int64]:
        m, (q, _) = np.arange(self.voters + 1), self.label.places
        behind = self.label.overtakes(np.maximum(m - np.minimum(m, self.voters - m), 0))
        others = np.minimum((self.classes - 1) * behind, 1.0 - 1.0 / self.classes)
        below = np.searchsorted(-q, -others * (1.0 + _ROUNDING), side="right") - 1
        return np.asarray(np.minimum(below, self._last - 1))  # less than `LEAST_MISSED` is told as that

    @cached_property
    def _checks(self) -> tuple[Array, Array]:
        """Log a^α·a′^{1−α} and log (1 − a)^α·(1 − a′)^{1−α} of all m, one row for each m′ and direction: (5, K + 1)."""
        inner, less = slice(1, -1), self.order - 1.0
        parts = []
        for logs in self.check.log_probabilities(np.arange(-1, self.voters + 2)):
            here = logs[inner]
            there = (logs[:-2], logs[2:])
            moved = [here + less * (here - other) for other in there] + [
                other + less * (other - here) for other in there
            ]
            parts.append(np.array([here, *moved]))
        return parts[0], parts[1]

    def _of(self, m: NDArray[np.int64], label: Array) -> Array:
        less = self.order - 1.0
        passes, fails = self._checks
        worst = np.full(np.shape(label), -np.inf)
        for passing, failing in zip(passes, fails, strict=True):
            np.maximum(worst, np.logaddexp(passing[m] + less * label, failing[m]), out=worst)
        return np.asarray(np.maximum(worst, 0.0) / less + (2.0 * self.order - 1.0) / less * EXACT_ROUNDING)

    def _moved(self, m: NDArray[np.int64], costs: Array, place: NDArray[np.int64]) -> Array:
        """Compute the largest F of a neighbor, whose q is at most that of a place."""
        there = [np.clip(m + step, self._least, self.voters) for step in (-1, 0, 1)]
        return np.max([self._of(n, costs[np.maximum(place, self._likeliest[n])]) for n in there], axis=0)  # type: ignore[no-any-return]
