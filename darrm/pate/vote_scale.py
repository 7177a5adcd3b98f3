"""The cost of a run on a scale of votes, whose level counts moved votes: noise on the level makes the cost publishable.

**Theorem (marks).** Let q_i be the probability that label i misses the likeliest class, and G = Σ_i c(q_i) over the
answered queries, with the bound c of `darrm.noisy_max.mislabel_bound`: G bounds the exact cost in both directions. For
marks with mark_{j+16} = n·U(mark_j/n), φ(G) = min{j : G ≤ mark_j} changes by at most 16 between neighbors. *Proof.* One
vote in every query changes each q_i = t(κ_i) to at most t(κ_i − 2), so each cost g to at most U(g), a concave
increasing function. By Jensen's inequality G becomes at most n·U(G/n) for n answers, or fewer, as U(0) = 0. So
G ≤ mark_j gives G' ≤ mark_{j+16}; exchange both data sets for the other direction. ∎ (`tests/pate/test_vote_scale.py`)

So φ + N, with N a discrete Gaussian of 16·s, costs λ/(2s²) at every order λ [CKS20, Proposition 5], and mark_{φ+N} may
be published, without conditions or smoothing.

**Theorem (Confident-GNMax).** Let a be the probability that the check passes before, a′ after a vote moves, and
E = exp((α − 1)·D_α) of the label. Then, in either direction,

    exp((α − 1)·D_α) of the answer  =  (1 − a)^α·(1 − a′)^{1−α} + a^α·a′^{1−α}·E.

*Proof.* Given the votes, check and label are independent, and the answer is "none" or a class. ∎ The plurality m
changes by at most one vote, which leaves three values of a′, and q bounds E: F(m, q), the largest, bounds the cost for
all neighbors.

One vote changes (m, q = t(κ)) to an m′ within 1 and a q′ of at most t(κ − 2), among the pairs that K voters can form:
every other class has at most min(m, K − m) votes. A q below `LEAST_MISSED` counts as `LEAST_MISSED`. U is the least
concave increasing function above all pairs (F at a state, F after the move). Branch and bound: for a cell of κ the pair
(F at its right end, F after the move at its left end) bounds all its pairs, and cells within 1e-4 of the majorant of
attained pairs are dropped. (`tests/pate/test_tested.py`)
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from darrm.noisy_max.cost_given_votes import LEAST_MISSED
from darrm.noisy_max.mislabel_bound import Curve, GaussianMislabelBound, MislabelBound, majorant
from darrm.numerics import Array
from darrm.numerics.exact_sampling import discrete_gaussian, uniform_below
from darrm.pate.confident import EXACT_ROUNDING, NoisyCheck
from darrm.pate.gnss import check_publication, order_for
from darrm.privacy import exact_number
from darrm.util import checks

MOST_VOTERS = 20_000  # the search lists pairs of m and κ
_WIDTH, _CELL_PARTS = 1024, 4  # places in a first cell, and parts of a divided cell
_TOLERANCE = 1e-4  # relative, above the majorant
_ROUNDING = 1e-9  # relative: of sums and their probabilities


@dataclass(frozen=True)
class CheckedCost:
    """F(m, q), and its change by one vote."""

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
        return self.label.order

    def cost(self, missed: Array, plurality: NDArray[np.int64]) -> Array:
        """Bound the cost of queries, elementwise."""
        return self._bound_cost(plurality, self.label.cost(missed))

    @cached_property
    def after_one_vote(self) -> Curve:
        """Vertices of a concave increasing bound on the cost after a vote by the cost before."""
        low, high, shift = self.label.costs_at_places
        last = self._last_place
        pluralities, starts, width = np.arange(self._min_plurality, self.voters + 1), np.arange(0, last, _WIDTH), _WIDTH
        m, start = np.repeat(pluralities, starts.size), np.tile(starts, pluralities.size)
        hull = np.zeros(1), np.zeros(1)
        while True:
            is_possible = start + width > self._first_places[m]
            m, start = m[is_possible], start[is_possible]
            costs = self._bound_cost(m, low[np.minimum(start + width, last)])
            moved_costs = self._bound_moved_cost(m, high, start - shift)
            if width == 1:
                raised_hull = hull[1] * (1.0 + _TOLERANCE)
                return majorant(np.append(hull[0], costs), np.append(raised_hull, moved_costs))
            attained_start = np.maximum(start, self._first_places[m])
            hull = majorant(
                np.append(hull[0], self._bound_cost(m, high[attained_start])),
                np.append(hull[1], self._bound_moved_cost(m, low, attained_start - shift)),
            )
            open_cells = moved_costs > np.interp(costs, *hull) * (1.0 + _TOLERANCE)
            width //= _CELL_PARTS
            start = (start[open_cells][:, None] + width * np.arange(_CELL_PARTS)).ravel()
            m = np.repeat(m[open_cells], _CELL_PARTS)[start < last]
            start = start[start < last]

    @cached_property
    def least(self) -> float:
        """Approximately the smallest cost of a query; smaller costs count as this one."""
        m = np.arange(self._min_plurality, self.voters + 1)
        return float(np.min(self._bound_cost(m, np.full(m.size, self.label.costs_at_places[0][self._last_place]))))

    @property
    def _min_plurality(self) -> int:
        return -(-self.voters // self.classes)

    @property
    def _last_place(self) -> int:
        return int(np.argmax(self.label.places[0] < LEAST_MISSED))

    @cached_property
    def _first_places(self) -> NDArray[np.int64]:
        m, (q, _) = np.arange(self.voters + 1), self.label.places
        overtaking = self.label.bound_overtaking(np.maximum(m - np.minimum(m, self.voters - m), 0))
        others_bound = np.minimum((self.classes - 1) * overtaking, 1.0 - 1.0 / self.classes)
        places = np.searchsorted(-q, -others_bound * (1.0 + _ROUNDING), side="right") - 1
        return np.asarray(np.minimum(places, self._last_place - 1))  # smaller values are reported as `LEAST_MISSED`

    @cached_property
    def _log_check_factors(self) -> tuple[Array, Array]:
        """Log a^α·a′^{1−α} and log (1 − a)^α·(1 − a′)^{1−α} of all m, one row for each m′ and direction: (5, K + 1)."""
        middle, power = slice(1, -1), self.order - 1.0
        parts = []
        for logs in self.check.log_probabilities(np.arange(-1, self.voters + 2)):
            log_same = logs[middle]
            log_moved = (logs[:-2], logs[2:])
            factors = [log_same + power * (log_same - neighbor) for neighbor in log_moved] + [
                neighbor + power * (neighbor - log_same) for neighbor in log_moved
            ]
            parts.append(np.array([log_same, *factors]))
        return parts[0], parts[1]

    def _bound_cost(self, m: NDArray[np.int64], label: Array) -> Array:
        power = self.order - 1.0
        passes, fails = self._log_check_factors
        worst = np.full(np.shape(label), -np.inf)
        for passing, failing in zip(passes, fails, strict=True):
            np.maximum(worst, np.logaddexp(passing[m] + power * label, failing[m]), out=worst)
        return np.asarray(np.maximum(worst, 0.0) / power + (2.0 * self.order - 1.0) / power * EXACT_ROUNDING)

    def _bound_moved_cost(self, m: NDArray[np.int64], costs: Array, place: NDArray[np.int64]) -> Array:
        """Compute the largest F of a neighbor whose q is at most that of a place."""
        pluralities = [np.clip(m + step, self._min_plurality, self.voters) for step in (-1, 0, 1)]
        return np.max(  # type: ignore[no-any-return]
            [self._bound_cost(n, costs[np.maximum(place, self._first_places[n])]) for n in pluralities], axis=0
        )


MARKS_A_VOTE = 16
_SMALLEST_MARK = 1e-4  # nats: the smallest published total

_FULL_COST_SHARE = 0.999  # of the largest cost of a run: marks beyond are replaced by the largest cost
_MAX_ORDER, _DEVIATION_RANGE = 1e4, (1e-2, 1e6)


@dataclass(frozen=True)
class PublicationParameters:
    """Parameters for publishing a cost on the scale of votes; choose them without the private votes.

    ``order`` is λ > 1, ``deviation`` s > 0 that of the noise, in votes. ``safety`` z ≥ 0 adds z·s votes: the figure is
    too small with probability Φ(−z).

    >>> PublicationParameters(order=18.0, deviation=8.0).cost
    0.140625
    """

    order: float
    deviation: float
    safety: float = 0.0

    def __post_init__(self) -> None:
        checks.positive(deviation=self.deviation)
        noise = ("deviation", self.deviation)
        check_publication(self.order, _MAX_ORDER, self.safety, noise, _DEVIATION_RANGE, unit=" votes")

    @property
    def cost(self) -> float:
        """The Rényi cost of the publication at ``order``: λ/(2s²)."""
        return self.order / (2.0 * self.deviation**2)


def publication_rule(epsilon: float, delta: float, *, safety: float = 0.0) -> PublicationParameters:
    """Choose λ = 1 + 2·log(1/δ)/ε, and s with a cost of ε/8, without the votes.

    >>> chosen = publication_rule(epsilon=1.0, delta=1e-5)
    >>> round(chosen.order, 3), round(chosen.deviation, 3), round(chosen.cost, 3)
    (24.026, 9.803, 0.125)
    """
    order = order_for(epsilon, delta)
    return PublicationParameters(order, 2.0 * math.sqrt(order / epsilon), safety)


@dataclass(frozen=True)
class VoteScale:
    """The public marks of the costs of a number of answers, at one order."""

    bound: MislabelBound | CheckedCost
    answers: int
    least: float = _SMALLEST_MARK

    @cached_property
    def marks(self) -> Array:
        """The increasing marks, in nats, to the largest cost."""
        largest = self.answers * float(self.bound.after_one_vote[1][-1])  # may be less than the ceiling
        if not largest:
            return np.zeros(1)
        if not math.isfinite(largest):
            advice = "the cost of a label is unbounded for such narrow noise"
            checks.fail("order", self.bound.order, "smaller", advice)
        low = min(max(self.least, self.answers * self.bound.least), largest)
        marks = [low * (self._bound_after_vote(low) / low) ** (part / MARKS_A_VOTE) for part in range(MARKS_A_VOTE)]
        while marks[-1] < _FULL_COST_SHARE * largest:  # beyond, steps become tiny
            marks.append(self._bound_after_vote(marks[-MARKS_A_VOTE]))
        marks[-1] = largest
        return np.asarray(np.minimum(np.array(marks), largest))

    def find_mark(self, total: float) -> int:
        """Return φ, the first mark of at least ``total``: **private data**."""
        return min(int(np.searchsorted(self.marks, total)), self.marks.size - 1)

    def cost_at(self, mark: int) -> float:
        return float(self.marks[min(max(mark, 0), self.marks.size - 1)])

    def draw_published(self, mark: int, parameters: PublicationParameters, *, rng: np.random.Generator | None) -> float:
        """Draw the cost to publish; ``rng`` is for experiments."""
        variance = (MARKS_A_VOTE * exact_number("deviation", parameters.deviation)) ** 2
        noise = int(discrete_gaussian(variance, 1, uniform_below(rng))[0])
        return self.cost_at(mark + noise + math.ceil(MARKS_A_VOTE * parameters.safety * parameters.deviation))

    def _bound_after_vote(self, total: float) -> float:
        return self.answers * float(np.interp(total / self.answers, *self.bound.after_one_vote)) * (1.0 + _ROUNDING)
