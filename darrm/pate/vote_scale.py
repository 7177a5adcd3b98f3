"""The cost of a run on a scale of votes: its level counts moved votes, so noise on it makes the cost publishable.

**Theorem.** Let q_i be the probability that label i misses the likeliest class, and G = Σ_i c(q_i) over the answered
queries, with the bound c of `darrm.noisy_max.mislabel_bound`: G bounds the exact cost in both directions. For marks
with mark_{j+16} = n·U(mark_j/n), φ(G) = min{j : G ≤ mark_j} changes by at most 16 between neighbors. *Proof.* One vote
in every query changes each q_i = t(κ_i) to at most t(κ_i − 2), so each cost g to at most U(g), a concave increasing
function. By Jensen's inequality G becomes at most n·U(G/n) for n answers, or fewer, as U(0) = 0. So G ≤ mark_j gives
G' ≤ mark_{j+16}; exchange both data sets for the other direction. ∎ (`tests/pate/test_vote_scale.py`)

So φ + N, with N a discrete Gaussian of 16·s, costs λ/(2s²) at every order λ [CKS20, Proposition 5], and mark_{φ+N} may
be published, without conditions, smoothing, or noise that depends on the votes. Sixteen marks to a vote keep the
rounding up small. A budget test needs no noise on the mark, see `darrm.pate.tested`.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from darrm.noisy_max.mislabel_bound import MislabelBound
from darrm.numerics import Array
from darrm.numerics.exact_sampling import discrete_gaussian, uniform_below
from darrm.pate.checked_cost import CheckedCost
from darrm.pate.gnss import check_publication, order_for
from darrm.privacy import exact_number
from darrm.util import checks

MARKS_A_VOTE = 16
_SMALLEST_MARK = 1e-4  # nats: the smallest published total
_ROUNDING = 1e-9  # relative: of sums and their probabilities
_NEAR = 0.999  # of the largest cost of a run: marks beyond are replaced by the largest cost
_LARGEST_ORDER, _DEVIATIONS = 1e4, (1e-2, 1e6)


@dataclass(frozen=True)
class PublicationParameters:
    """Parameters for publishing a cost on the scale of votes; choose them without the private votes.

    Parameters
    ----------
    order
        λ > 1, the order of the Rényi divergence.
    deviation
        s > 0, the standard deviation of the noise, in votes.
    safety
        z ≥ 0: z·s votes are added to the published figure, which is then too small with probability Φ(−z). The constant
        is free.

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
        """The Rényi cost of the publication at ``order``: λ/(2s²)."""
        return self.order / (2.0 * self.deviation**2)


def publication_rule(epsilon: float, delta: float, *, safety: float = 0.0) -> PublicationParameters:
    """Choose parameters from a target, without the votes: λ = 1 + 2·log(1/δ)/ε, and s such that the cost is ε/8.

    >>> chosen = publication_rule(epsilon=1.0, delta=1e-5)
    >>> round(chosen.order, 3), round(chosen.deviation, 3), round(chosen.cost, 3)
    (24.026, 9.803, 0.125)
    """
    order = order_for(epsilon, delta)
    return PublicationParameters(order, 2.0 * math.sqrt(order / epsilon), safety)


@dataclass(frozen=True)
class VoteScale:
    """The public marks of the costs of a number of answers, at one order.

    >>> from darrm.noisy_max.mislabel_bound import GaussianMislabelBound
    >>> scale = VoteScale(GaussianMislabelBound(40.0, 16.0), answers=360)
    >>> bool(scale.cost_at(scale.mark_of(0.1)) >= 0.1), scale.mark_of(0.1) - scale.mark_of(0.09) < MARKS_A_VOTE * 2
    (True, True)
    """

    bound: MislabelBound | CheckedCost
    answers: int
    least: float = _SMALLEST_MARK

    @cached_property
    def marks(self) -> Array:
        """The marks, in nats, increasing to the largest cost of all answers."""
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

    def mark_of(self, total: float) -> int:
        """Return φ, the number of the first mark that is at least ``total``: **private data**."""
        return min(int(np.searchsorted(self.marks, total)), self.marks.size - 1)

    def cost_at(self, mark: int) -> float:
        """Return the cost at a mark, clipped to the ends of the scale."""
        return float(self.marks[min(max(mark, 0), self.marks.size - 1)])

    def published(self, mark: int, parameters: PublicationParameters, *, rng: np.random.Generator | None) -> float:
        """Draw the cost to publish, from the operating system unless ``rng`` is given for experiments."""
        variance = (MARKS_A_VOTE * exact_number("deviation", parameters.deviation)) ** 2
        noise = int(discrete_gaussian(variance, 1, uniform_below(rng))[0])
        return self.cost_at(mark + noise + math.ceil(MARKS_A_VOTE * parameters.safety * parameters.deviation))

    def _after(self, total: float) -> float:
        return self.answers * float(np.interp(total / self.answers, *self.bound.after_one_vote)) * (1.0 + _ROUNDING)
