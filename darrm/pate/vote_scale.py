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
every other class has at most min(m, K − m) votes. A q below `LEAST_MISSED` is reported as that. U is the least concave
increasing function above all pairs (F at a state, F after the move). Branch and bound: for a cell of κ the pair (F at
its right end, F after the move at its left end) bounds all its pairs, and cells within 1e-4 of the majorant of attained
pairs are dropped. (`tests/pate/test_tested.py`)
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
_WIDEST, _FINER = 1024, 4  # places of a cell at first, and the parts of a divided cell
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
        return self._of(plurality, self.label.cost(missed))

    @cached_property
    def after_one_vote(self) -> Curve:
        """Vertices of a concave increasing bound on the cost after a vote by the cost before."""
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


MARKS_A_VOTE = 16
_SMALLEST_MARK = 1e-4  # nats: the smallest published total

_NEAR = 0.999  # of the largest cost of a run: marks beyond are replaced by the largest cost
_LARGEST_ORDER, _DEVIATIONS = 1e4, (1e-2, 1e6)


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
        check_publication(self.order, _LARGEST_ORDER, self.safety, noise, _DEVIATIONS, unit=" votes")

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
        most = self.answers * float(self.bound.after_one_vote[1][-1])  # may be less than the ceiling
        if not most:
            return np.zeros(1)
        if not math.isfinite(most):
            advice = "the cost of a label is unbounded for such narrow noise"
            checks.fail("order", self.bound.order, "smaller", advice)
        first = min(max(self.least, self.answers * self.bound.least), most)
        marks = [first * (self._after(first) / first) ** (part / MARKS_A_VOTE) for part in range(MARKS_A_VOTE)]
        while marks[-1] < _NEAR * most:  # beyond, steps become tiny
            marks.append(self._after(marks[-MARKS_A_VOTE]))
        marks[-1] = most
        return np.asarray(np.minimum(np.array(marks), most))

    def find_mark(self, total: float) -> int:
        """Return φ, the first mark of at least ``total``: **private data**."""
        return min(int(np.searchsorted(self.marks, total)), self.marks.size - 1)

    def cost_at(self, mark: int) -> float:
        return float(self.marks[min(max(mark, 0), self.marks.size - 1)])

    def published(self, mark: int, parameters: PublicationParameters, *, rng: np.random.Generator | None) -> float:
        """Draw the cost to publish; ``rng`` is for experiments."""
        variance = (MARKS_A_VOTE * exact_number("deviation", parameters.deviation)) ** 2
        noise = int(discrete_gaussian(variance, 1, uniform_below(rng))[0])
        return self.cost_at(mark + noise + math.ceil(MARKS_A_VOTE * parameters.safety * parameters.deviation))

    def _after(self, total: float) -> float:
        return self.answers * float(np.interp(total / self.answers, *self.bound.after_one_vote)) * (1.0 + _ROUNDING)
