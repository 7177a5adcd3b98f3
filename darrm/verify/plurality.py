"""The claims of a plurality's table, decided in whole numbers by code that shares nothing with the prover.

The file holds, for each partition of K votes into C counts (the largest first) and each different count in it, the
probability that the answer is one of the classes with so many votes, in units of 2^-53; these classes share it alike.
So it names a law h on every histogram. It is (ε, δ)-private exactly if Σ_c max(0, h_c(n) − e^ε·h_c(n')) ≤ δ for all
histograms n and n' with Σ_c |n_c − n'_c| ≤ 2t. As h treats classes alike, n may be taken among the partitions; n' runs
over all histograms, class by class. With the least common multiple of 1 … C all numbers are whole; only e^ε is rounded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import factorial, lcm, prod

from darrm.laws.priors import Dirichlet
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.proof.charge import charge_of
from darrm.proof.evidence import MOVES
from darrm.proof.table import Table
from darrm.verify.exact import Enclosure, exponential
from darrm.verify.verdicts import CLAIMED, Verdict

MOST_WORK = 20_000_000  # classes of pairs of histograms: about twenty seconds
_UNIT = 2**53

Histogram = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ExactPlurality:
    """A law on histograms, whose cost is its largest Σ_c max(0, h_c(n) − e^ε·h_c(n')), the δ that it needs."""

    table: Table

    numbers, version, read = "weights", MOVES.versions[-1], Table.from_json
    can_be_attacked = False
    merit, sign = "share of right labels", 1
    tolerance = Fraction(1, 10**10)  # a prior is computed in floats
    not_in_the_file = "the file holds the name of the prior only"

    @property
    def classes(self) -> int:
        """How many different labels there can be."""
        return self.table.problem.classes

    def worst(self, epsilon: Fraction) -> Enclosure | None:
        """Enclose the largest cost at ε; None if there are too many pairs of neighbors."""
        found = self.deltas([epsilon])
        return None if found is None else found[0]

    def budget(self, target: PrivacyParams) -> Enclosure:
        """Return δ, which is what the cost may be."""
        return Enclosure(target.exact_delta, target.exact_delta)

    def deltas(self, epsilons: Sequence[Fraction]) -> list[Enclosure] | None:
        """Enclose the smallest δ of one label for each ε; None if there are too many pairs of neighbors."""
        return worst_differences(self.table, epsilons)

    def value(self) -> Fraction | None:
        """Compute the share of right labels exactly; None if the file does not hold the prior."""
        return share_right(self.table)

    def notes(self) -> Iterator[Verdict]:
        """Nothing else is said."""
        return iter(())

    @property
    def believed(self) -> str:
        """For which prior the share is stated."""
        return "" if self.table.optimality is None else f"where {self.table.optimality.prior} is believed"

    @property
    def bound_claim(self) -> str:
        """What the bound says."""
        optimality = self.table.optimality
        bound = None if optimality is None else optimality.bound
        return f"no private mechanism has a share of right labels above {bound!r}"

    def search(self) -> tuple[str, str]:
        """Look for nothing: the file must hold what proves its bound."""
        return CLAIMED, "the file does not hold what it takes to compute it"

    def cost(self, *, voters: Voters | None = None, exact: bool | None = None) -> Charge:  # noqa: ARG002 (plain voters)
        """Describe what a query costs."""
        return _charge_of_one(self.table)

    def in_words(self, labels: str) -> str:
        """Say what one of the labels tells."""
        law, voters = self.table.plurality, self.table.problem.voters
        top = law.weights[law.partitions.starts] / 2.0**53
        truth = f"with a probability between {top.min():.4g} and {top.max():.4g} that depends on the votes"
        return f"{labels} is one of {law.classes} classes: one with the most votes of {voters.K} voters {truth}."


def worst_differences(table: Table, epsilons: Sequence[Fraction]) -> list[Enclosure] | None:
    """Enclose the largest Σ_c max(0, h_c(n) − e^ε·h_c(n')) for each ε; None if there are too many pairs."""
    problem = table.problem
    K, C, reached = problem.voters.K, problem.classes, min(problem.voters.reached, problem.voters.K)
    weights = table.plurality.to_json()
    if len(weights) * (C * (C - 1)) ** reached * C * len(epsilons) > MOST_WORK:
        return None
    common = lcm(*range(1, C + 1))
    law = {}
    for part, given in zip(sorted(_partitions(K, C), reverse=True), weights, strict=True):
        values = sorted(set(part), reverse=True)
        law[part] = {votes: w * common // part.count(votes) for votes, w in zip(values, given, strict=True)}
    ratios = [exponential(epsilon) for epsilon in epsilons]
    bits = 1 << 128
    below, above = (
        [int(end * bits) + extra for end in ends]
        for ends, extra in (([ratio.lower for ratio in ratios], 0), ([ratio.upper for ratio in ratios], 1))
    )
    worst = [[0, 0] for _ in epsilons]
    for part, own in law.items():
        for other in _within(part, reached):
            theirs = law[tuple(sorted(other, reverse=True))]
            pairs = [(own[x], theirs[y]) for x, y in zip(part, other, strict=True)]
            for at, ends in enumerate(zip(above, below, strict=True)):
                for end, ratio in enumerate(ends):
                    total = sum(max(0, p * bits - ratio * q) for p, q in pairs)
                    worst[at][end] = max(worst[at][end], total)
    unit = common * _UNIT * bits
    return [Enclosure(Fraction(low, unit), Fraction(high, unit), "all pairs of histograms") for low, high in worst]


def share_right(table: Table) -> Fraction | None:
    """Compute the share of right labels exactly; None if the file does not hold the prior.

    A Dirichlet law of concentration a gives n the probability K!/Π n_c! · Π (a)_{n_c}/(Ca)_K, (a)_n = a·…·(a + n − 1).
    """
    optimality, problem = table.optimality, table.problem
    if optimality is None or not isinstance(optimality.prior, Dirichlet):
        return None
    K, C, a = problem.voters.K, problem.classes, Fraction(repr(optimality.prior.concentration))
    rising = [prod((a + i for i in range(n)), start=Fraction(1)) / factorial(n) for n in range(K + 1)]
    total = Fraction(0)
    for part, given in zip(sorted(_partitions(K, C), reverse=True), table.plurality.to_json(), strict=True):
        arrangements = factorial(C) // prod(factorial(part.count(votes)) for votes in set(part))
        total += arrangements * prod((rising[votes] for votes in part), start=Fraction(1)) * given[0]
    return total * factorial(K) / prod((C * a + i for i in range(K)), start=Fraction(1)) / _UNIT


def _partitions(K: int, C: int) -> set[Histogram]:
    """List the partitions of K votes into C counts, one vote after the other."""
    found = {(0,) * C}
    for _ in range(K):
        found = {
            (*part[:c], part[c] + 1, *part[c + 1 :])
            for part in found
            for c in range(C)
            if c == 0 or part[c - 1] > part[c]
        }
    return found


def _within(part: Histogram, reached: int) -> set[Histogram]:
    """List all histograms that so many voters can make of a partition."""
    found = {part}
    for _ in range(reached):
        found |= {
            tuple(votes - (c == source) + (c == target) for c, votes in enumerate(counts))
            for counts in found
            for source in range(len(part))
            for target in range(len(part))
            if counts[source]
        }
    return found - {part}


@lru_cache(maxsize=8)  # tables do not change, and their exact descriptions take seconds
def _charge_of_one(table: Table) -> Charge:
    return charge_of(table)
