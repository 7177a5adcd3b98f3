"""A run's cost on a scale of votes: how many moved votes it lies above next to nothing, which may be published.

Let q_i be the probability that label i misses the likeliest class, and G = Σ_i c(q_i) over the answered queries the
bound of `darrm.losses.missed_label`: it bounds the exact cost in both directions. One person's vote in every query
moves each q_i = t(κ_i) to at most t(κ_i − 2), so each cost g to at most U(g), a concave rising function, and by
Jensen's inequality G to at most n·U(G/n) for n answers, or fewer, as U(0) = 0. Marks on the line with

    mark_{j+16} = n·U(mark_j/n)

are therefore such that G ≤ mark_j gives G' ≤ mark_{j+16}; exchanging both data sets, φ(G) = min{j : G ≤ mark_j} moves
by at most 16 either way. So φ + N, with N a discrete Gaussian of 16·s, costs λ/(2s²) at every order λ [CKS20,
Proposition 5], and mark_{φ+N} may be published. No condition, no smoothing, no noise that depends on the votes; sixteen
marks to a vote only make the rounding up small.

A budget is tested without noise on the mark, see `darrm.pate.tested`.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Generic, Protocol, TypeVar

import numpy as np

from darrm.errors import checks
from darrm.losses.label_given_votes import LabelCosts
from darrm.losses.missed_label import MissedLabel
from darrm.pate.gnss import check_publication, order_for
from darrm.privacy import exact_number
from darrm.probability import Array
from darrm.probability.exact_sampling import discrete_gaussian, uniform_below

MARKS_A_VOTE = 16
_SMALLEST_MARK = 1e-4  # nats: of a total that is published; less is rounded up to it
_ROUNDING = 1e-9  # relative: of sums and of the probabilities that they are made of
_NEAR = 0.999  # of the most that a run costs: the last marks before it are that
_LARGEST_ORDER, _DEVIATIONS = 1e4, (1e-2, 1e6)


@dataclass(frozen=True)
class PublicationParameters:
    """How a cost is to be published on the scale of votes; to be fixed without looking at the private votes.

    Parameters
    ----------
    order
        λ > 1, the order of the Rényi divergence at which the cost is taken.
    deviation
        s > 0, the standard deviation of the noise, in votes.
    safety
        z ≥ 0: the published figure is that of z·s more votes, and too small with probability Φ(−z) only. It is a
        constant and costs nothing.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Examples
    --------
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
        """The Rényi divergence at ``order`` that the publication itself costs: λ/(2s²)."""
        return self.order / (2.0 * self.deviation**2)


def publication_rule(epsilon: float, delta: float, *, safety: float = 0.0) -> PublicationParameters:
    """Choose parameters from a target alone, without the votes: λ = 1 + 2·log(1/δ)/ε, and s such that it costs ε/8.

    >>> chosen = publication_rule(epsilon=1.0, delta=1e-5)
    >>> round(chosen.order, 3), round(chosen.deviation, 3), round(chosen.cost, 3)
    (24.026, 9.803, 0.125)
    """
    order = order_for(epsilon, delta)
    return PublicationParameters(order, 2.0 * math.sqrt(order / epsilon), safety)


class VoteBound(Protocol):
    """What one answer costs by numbers that one vote moves: `MissedLabel`, or a bound of `darrm.pate.checked_cost`."""

    @property
    def order(self) -> float:
        """The order of the divergence."""
        ...

    @property
    def least(self) -> float:
        """About what an answer costs at least; less is counted as that."""
        ...

    @property
    def after_one_vote(self) -> tuple[Array, Array]:
        """The cost after one vote has moved by the cost before: vertices of a concave rising function."""
        ...


Bound = TypeVar("Bound", bound=VoteBound)


@dataclass(frozen=True)
class VoteScale(Generic[Bound]):
    """The marks for so many answers, each bounded at one order; public.

    >>> scale = VoteScale(MissedLabel(40.0, 16.0), answers=360)
    >>> bool(scale.cost_at(scale.mark_of(0.1)) >= 0.1), scale.mark_of(0.1) - scale.mark_of(0.09) < MARKS_A_VOTE * 2
    (True, True)
    """

    bound: Bound
    answers: int
    least: float = _SMALLEST_MARK

    @cached_property
    def marks(self) -> Array:
        """The marks, in nats, rising to what all answers cost whatever the votes."""
        most = self.answers * float(self.bound.after_one_vote[1][-1])  # may be less than the ceiling
        if not most:
            return np.zeros(1)
        if not math.isfinite(most):
            advice = "nothing bounds a label of such narrow noise there"
            checks.fail("order", self.bound.order, "smaller", advice)
        first = min(max(self.least, self.answers * self.bound.least), most)
        marks = [first * (self._after(first) / first) ** (part / MARKS_A_VOTE) for part in range(MARKS_A_VOTE)]
        while marks[-1] < _NEAR * most:  # beyond, a vote may hardly move it: the last mark is the most
            marks.append(self._after(marks[-MARKS_A_VOTE]))
        marks[-1] = most
        return np.asarray(np.minimum(np.array(marks), most))

    def mark_of(self, total: float) -> int:
        """Return φ, the number of the first mark that is at least so high: **private data**."""
        return min(int(np.searchsorted(self.marks, total)), self.marks.size - 1)

    def cost_at(self, mark: int) -> float:
        """Return the cost at a mark; those beyond the ends count as the ends."""
        return float(self.marks[min(max(mark, 0), self.marks.size - 1)])

    def published(self, mark: int, parameters: PublicationParameters, *, rng: np.random.Generator | None) -> float:
        """Draw the cost that may be published, from the operating system unless ``rng`` is given for experiments."""
        variance = (MARKS_A_VOTE * exact_number("deviation", parameters.deviation)) ** 2
        noise = int(discrete_gaussian(variance, 1, uniform_below(rng))[0])
        return self.cost_at(mark + noise + math.ceil(MARKS_A_VOTE * parameters.safety * parameters.deviation))

    def _after(self, total: float) -> float:
        return self.answers * float(np.interp(total / self.answers, *self.bound.after_one_vote)) * (1.0 + _ROUNDING)


@lru_cache(maxsize=64)
def vote_scale(sigma: float, order: float, answers: int) -> VoteScale[MissedLabel]:
    """Keep the marks of the labels of GNMax, for a scale that is asked for several runs."""
    return VoteScale(MissedLabel(sigma, order), answers)


def mark_of_run(scale: VoteScale[MissedLabel], label: LabelCosts, answered: Array) -> int:
    """Return φ of a run of GNMax, of which each label counts so often: **private data**."""
    return scale.mark_of(float(label.times(answered) @ scale.bound.cost(label.missed)))
