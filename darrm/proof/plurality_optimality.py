"""How good a plurality is under a prior on histograms, and the proof that no private one is better.

Let P_p be the prior's probability of the partition p, c_j = m_j P_p for its group of classes with the most votes and 0
for its other groups: the share of right labels of a law h is Σ_j c_j h_j.

**Theorem.** For any multipliers z_t ≥ 0 of the terms of pairs of neighbors, with y_r the largest z_t/k_t of a pair's
terms (k_t classes each) and ρ_j = c_j − Σ_t z_t [j = n's group of t] + e^ε Σ_t z_t [j = the group of n' of t],

    (1)   no (ε, δ)-private mechanism has a share of right labels above   δ Σ_r y_r + Σ_p max_{j in p} ρ_j/m_j.

*Proof.* First a law h that treats classes alike. It is private, so for each pair Σ_t z_t (h_i − e^ε h_j) ≤
y_r Σ_t k_t (h_i − e^ε h_j)_+ ≤ y_r δ. Hence Σ_j c_j h_j ≤ Σ_j ρ_j h_j + δ Σ_r y_r, and in every partition h_j ≥ 0 and
Σ_j m_j h_j = 1. Now any mechanism on the votes of K voters, private for every change of at most t votes. Apply a random
permutation to the voters and to the classes, and undo that of the classes in the answer: the neighbors stay neighbors,
divergences are jointly convex, and a prior that calls voters and classes by no name sees the same share of right
labels. What comes out depends on the histogram only and treats classes alike. ∎

Good multipliers come from the solver; bad ones give a weak bound, never a false one. So a table keeps them, and whoever
loads it computes (1) again in balls that contain the real numbers. P_p are the floats that the prior computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from flint import arb, ctx, fmpq

from darrm import checks
from darrm.errors import TableError
from darrm.laws import priors
from darrm.laws.partitions import Histogram, partitions_of
from darrm.laws.plurality_law import PluralityLaw
from darrm.laws.priors import Prior
from darrm.problem import Problem
from darrm.proof.corners import PRECISION_BITS, ratio_of, upper_float
from darrm.proof.optimality import STATUSES
from darrm.proof.plurality import pairs_of

# of a share of right labels: the rounding of a few thousand additions, and of another library's logarithms
_TOLERANCE = 1e-10


class PairMultipliers(NamedTuple):
    """z of the theorem for the terms of one pair of neighbors, in the order of `Partitions.terms`."""

    place: int  # the number of the partition n
    aligned: Histogram  # n'
    weights: tuple[float, ...]


@dataclass(frozen=True)
class PluralityOptimality:
    """How good a law is under a prior, and how much better one could be; a claim until `checked` has computed it."""

    prior: Prior
    value: float  # share of right labels of the certified law
    bound: float  # no private mechanism has a larger one
    status: str  # of `darrm.proof.optimality.STATUSES`: why the solver stopped; a comment, not a claim
    multipliers: tuple[PairMultipliers, ...] | None = field(default=None, repr=False)
    claimed: bool = True  # value or bound are the maker's word

    @property
    def gap(self) -> float:
        """``bound`` − ``value``, at least 0."""
        return max(0.0, self.bound - self.value)

    def __str__(self) -> str:
        source = "claimed by the maker" if self.claimed else "proved"
        return f"{self.value:.10g} of the labels right, no private mechanism above {self.bound:.10g} ({source})"

    def checked(self, problem: Problem, law: PluralityLaw) -> PluralityOptimality:
        """Return the same with value and bound computed again, as far as the prior and the multipliers allow.

        `TableError` if something does not hold.
        """
        try:
            checks.one_of(STATUSES, status=self.status)
            checks.probability(value=self.value)
            checks.finite(bound=self.bound)
            if isinstance(self.prior, priors.StoredPrior):
                if not self.bound >= self.value - _TOLERANCE:
                    checks.fail("the bound", self.bound, f"at least the share of right labels {self.value!r}")
                return replace(self, claimed=True)
            value = law.share_right(self.prior)
            if not abs(self.value - value) <= _TOLERANCE:
                checks.fail("the share of right labels", self.value, f"that of the law, {value!r}")
            # the share is rounded: it may lie above a bound that meets it
            bound = max(value, upper_bound(problem, self.prior, self.multipliers or ()))
            if self.multipliers is None:
                return replace(self, value=value, bound=max(value, self.bound), claimed=True)
            if not abs(self.bound - bound) <= _TOLERANCE:
                checks.fail("the bound", self.bound, f"what its multipliers prove, {bound!r}")
            return replace(self, value=value, bound=bound, claimed=False)
        except ValueError as error:
            raise TableError("optimality", str(error)) from error

    def to_json(self, problem: Problem) -> dict[str, Any]:
        """Write it as plain data; a file does not say what is proved."""
        stored = self.multipliers
        return {
            "prior": priors.to_json(self.prior, problem.voters.K, problem.classes),
            "value": self.value,
            "bound": self.bound,
            "status": self.status,
            "multipliers": None
            if stored is None
            else [[each.place, list(each.aligned), list(each.weights)] for each in stored],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], problem: Problem) -> PluralityOptimality:
        """Read what `to_json` wrote: a claim; `KeyError`, `TypeError` or `ValueError` if it is malformed."""
        checks.finite(value=data["value"], bound=data["bound"])
        stored = data["multipliers"]
        return cls(
            priors.from_json(data["prior"]),
            float(data["value"]),
            float(data["bound"]),
            data["status"],
            None if stored is None else _multipliers_from_json(stored, problem),
        )


def upper_bound(problem: Problem, prior: Prior, multipliers: Sequence[PairMultipliers]) -> float:
    """Compute a float that is at least (1), and at most 1, as every share is.

    Without multipliers nothing is known but that:

    >>> from darrm import PrivacyParams, Voters
    >>> problem = Problem(Voters(3, PrivacyParams("inf"), overlap=1), PrivacyParams(1), 3)
    >>> round(upper_bound(problem, Dirichlet(), []), 12)
    1.0
    """
    partitions = partitions_of(problem.voters.K, problem.classes)
    ratio, delta = ratio_of(problem.target.exact_epsilon).ball, problem.target.exact_delta
    sizes = partitions.sizes.tolist()
    with ctx.workprec(PRECISION_BITS):
        reduced = [arb(0)] * len(sizes)
        for group, probability in zip(
            partitions.starts.tolist(), partitions.probabilities(prior).tolist(), strict=True
        ):
            reduced[group] = sizes[group] * arb(probability)
        total = arb(0)
        for place, aligned, weights in multipliers:
            largest = arb(0)
            for (before, after, count), weight in zip(partitions.terms(place, aligned), weights, strict=True):
                z = arb(weight)
                reduced[before] -= z
                reduced[after] += ratio * z
                largest = largest.max(z / count)
            total += largest
        bound = total * arb(fmpq(delta.numerator, delta.denominator))
        best: dict[int, arb] = {}
        for place, size, each in zip(partitions.blocks.tolist(), sizes, reduced, strict=True):
            share = each / size
            best[place] = best[place].max(share) if place in best else share
        return min(1.0, upper_float(sum(best.values(), bound)))


def _multipliers_from_json(data: Any, problem: Problem) -> tuple[PairMultipliers, ...]:  # noqa: ANN401 (JSON)
    """Read multipliers of pairs of neighbors; `TypeError`, `KeyError` or `ValueError` if they are no such list."""
    pairs, partitions = pairs_of(problem), partitions_of(problem.voters.K, problem.classes)
    known = set(zip(pairs.first, pairs.second, strict=True))
    if not isinstance(data, list) or len(data) > len(known):
        checks.fail("multipliers", type(data).__name__, f"a list of at most {len(known)} pairs of neighbors")
    found = []
    for place, aligned, weights in data:
        if type(place) is not int or any(type(votes) is not int for votes in aligned):
            checks.fail("multipliers", [place, aligned], "about whole numbers")
        if (place, tuple(aligned)) not in known:
            checks.fail("multipliers", [place, aligned], "of neighbors of a partition, aligned to it")
        if len(weights) != len(partitions.terms(place, tuple(aligned))):
            checks.fail("multipliers", weights, "a number for each term of the pair")
        for weight in weights:
            checks.non_negative(multiplier=weight)
        found.append(PairMultipliers(place, tuple(aligned), tuple(map(float, weights))))
    return tuple(found)
