"""The cost of a query of Confident-GNMax by two numbers: the votes of the plurality, and the probability to miss it.

**Theorem.** The answer is one of C + 1: no answer, or a class. Let a be the probability that the check passes before,
a′ after a vote moves, and E = exp((α − 1)·D_α) of the label. Then

    exp((α − 1)·D_α) of the answer  =  (1 − a)^α·(1 − a′)^{1−α} + a^α·a′^{1−α}·E,

in either direction. *Proof.* Given the votes, check and label are independent. ∎ The
plurality m changes by at most one vote, which leaves three values of a′, and the label's q bounds E
(`darrm.noisy_max.mislabel_bound`). So F(m, q), the largest of these, bounds the cost of the answer for all neighbors.

One vote changes (m, q = t(κ)) to an m′ within 1 and a q′ of at most t(κ − 2), among the pairs that K voters can form:
if the plurality has m votes, every other class has at most min(m, K − m). A q below `LEAST_MISSED` is reported as that,
although its check may be expensive. The cost g becomes at most U(g), the least concave increasing function above all
pairs (F at a state, F after the move). Branch and bound finds it: for a cell of κ the pair (F at its right end, F after
the move at its left end) bounds all pairs of the cell, and cells within 1e-4 of the majorant of attained pairs are
dropped. (`tests/pate/test_tested.py`)
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from darrm.noisy_max.cost_given_votes import LEAST_MISSED
from darrm.noisy_max.mislabel_bound import Curve, GaussianMislabelBound, majorant
from darrm.numerics import Array
from darrm.pate.confident import EXACT_ROUNDING, NoisyCheck
from darrm.util import checks

MOST_VOTERS = 20_000  # the search lists pairs of m and κ
_WIDEST, _FINER = 1024, 4  # places of a cell at first, and the parts of a divided cell
_TOLERANCE = 1e-4  # relative, above the majorant
_ROUNDING = 1e-9


@dataclass(frozen=True)
class CheckedCost:
    """F(m, q), and its change by one vote.

    Examples
    --------
    >>> from darrm.noisy_max.mislabel_bound import GaussianMislabelBound
    >>> bound = CheckedCost(GaussianMislabelBound(40.0, 20.0), NoisyCheck(200.0, 150.0), voters=250, classes=10)
    >>> bound.cost(np.array([1e-6, 0.3]), np.array([250, 150])).round(6).tolist()
    [0.000277, 0.003863]
    """

    label: GaussianMislabelBound  # c(q) of the label, at the order
    check: NoisyCheck  # the noisy comparison of the plurality with the threshold, of discrete noise
    voters: int  # K
    classes: int  # C

    def __post_init__(self) -> None:
        advice = "the costs of all pluralities are listed"
        checks.integer_at_least(2, most=MOST_VOTERS, voters=self.voters, advice=advice)
        if not self.check.is_summed(np.array([-1, self.voters + 1])):
            checks.fail("the check", self.check, "of discrete noise that can be summed")

    @property
    def order(self) -> float:
        """The order of the divergence."""
        return self.label.order

    def cost(self, missed: Array, plurality: NDArray[np.int64]) -> Array:
        """Bound the cost of queries by their probabilities of another label and their pluralities, elementwise."""
        return self._of(plurality, self.label.cost(missed))

    @cached_property
    def after_one_vote(self) -> Curve:
        """Bound the cost after one vote moved by the cost before: vertices of a concave increasing function."""
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
            open_cells = after > np.interp(before, *hull) * (1.0 + _TOLERANCE)
            width //= _FINER
            start = (start[open_cells][:, None] + width * np.arange(_FINER)).ravel()
            m = np.repeat(m[open_cells], _FINER)[start < last]
            start = start[start < last]

    @cached_property
    def least(self) -> float:
        """About the least cost of a query; smaller ones count as this."""
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
        return np.asarray(np.minimum(below, self._last - 1))  # smaller values are reported as `LEAST_MISSED`

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
        """Compute the largest F of a neighbor whose q is at most that of a place."""
        there = [np.clip(m + step, self._least, self.voters) for step in (-1, 0, 1)]
        return np.max([self._of(n, costs[np.maximum(place, self._likeliest[n])]) for n in there], axis=0)  # type: ignore[no-any-return]
