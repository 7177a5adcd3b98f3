"""What exact arithmetic says of a majority's table, by code that shares nothing with the prover."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import lcm

import numpy as np

from darrm.errors import DarrmError
from darrm.laws import priors
from darrm.losses.charges import Charge
from darrm.optimize import SolveOptions
from darrm.optimize.optimizer import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.proof.charge import charge_of
from darrm.proof.evidence import CORNERS
from darrm.proof.table import Table
from darrm.verify.answering import OfTable
from darrm.verify.drawn import MOST_PAIRS, pairs_of_ones
from darrm.verify.exact import (
    Enclosure,
    Laws,
    ReleaseNumbers,
    budget,
    divergences,
    expected_error,
    worst_costs,
    worst_labels,
)
from darrm.verify.noisy_labels import Between, between, divergence
from darrm.verify.verdicts import ABOUT_TABLE, CLAIMED, CONSISTENT, FALSE, NOTE, PROVED, Verdict, judged

_SEARCH_SECONDS = 10.0  # for a noise function that is better than the file says one can be


@dataclass(frozen=True, eq=False)
class ExactMajority(OfTable):
    """A noise function γ, whose cost is f = E_p[g] − e^ε·E_{p'}[g] and whose figure of merit is its expected error."""

    numbers, version, read = "gamma", CORNERS.versions[-1], Table.from_json
    merit, sign, tolerance = "expected error", -1, Fraction(1, 10**12)

    @property
    def release(self) -> ReleaseNumbers:
        """The plain numbers of the table, for the exact checker."""
        voters = self.voters
        own = None if voters.own is None else tuple((n, _numbers(kind)) for n, kind in voters.kinds)
        half = tuple(Fraction(float(value)) for value in self.table.gamma.half)
        return ReleaseNumbers(voters.K, _numbers(voters.each), voters.reached, half, own)

    def worst(self, epsilon: Fraction) -> Enclosure | None:
        """Enclose the largest cost at ε; None if there are too many rows."""
        found = worst_costs(self.release, [epsilon])
        return None if found is None else found[0]

    def budget(self, target: PrivacyParams) -> Enclosure:
        """Enclose what the cost may be."""
        return budget(target.exact_epsilon, target.exact_delta)

    def certain_deltas(self, epsilons: Sequence[Fraction]) -> list[Enclosure] | None:
        """Enclose the smallest δ of one label for each ε; None if there are too many rows."""
        return divergences(self.release, epsilons)

    def certain_renyi(self, order: float) -> Between | None:
        """Enclose the Rényi divergence of a label at an order; None if there are too many rows."""
        return _renyi(self.release, order)

    def laws(self) -> tuple[list[Laws], int] | None:
        """List the laws of a label for all numbers of ones that differ by a person's votes."""
        numbers = self.release
        if (numbers.K + 1) * (2 * numbers.reached + 1) > MOST_PAIRS:
            return None
        unit = lcm(*(value.denominator for value in numbers.half))
        law = [(unit - one, unit + one) for one in (int(value * unit) for value in numbers.signed)]
        return [(law[ones], law[other]) for ones, other in pairs_of_ones(numbers.K, numbers.reached)], 2 * unit

    def value(self) -> Fraction | None:
        """Compute the expected error exactly; None if the file does not say all that it takes."""
        optimality, numbers = self.table.optimality, self.release
        if optimality is None or optimality.held_out is not None:
            return None
        match optimality.prior:
            case priors.Dirichlet(concentration=1.0):
                return expected_error(numbers.K, numbers.half, None)
            case priors.Point(p=p):
                return expected_error(numbers.K, numbers.half, Fraction(p))
            case priors.Independent(low=low, high=high) if low >= 0.5:
                return expected_error(numbers.K, numbers.half, (Fraction(low) + Fraction(high)) / 2)
        return None

    @property
    def not_in_the_file(self) -> str:
        """Why the expected error is not computed."""
        optimality = self.table.optimality
        if optimality is None or optimality.held_out is not None or not priors.is_built_in(optimality.prior):
            return "the file does not hold what it takes to compute it: an own prior, or draws"
        return f"under {priors.in_words(optimality.prior)} it is not computed in whole numbers"

    def notes(self) -> Iterator[Verdict]:
        """Judge what is said beside the expected error and its bound."""
        optimality, gamma = self.table.optimality, self.table.gamma
        if optimality is None:
            return
        if optimality.held_out is not None:
            claim = f"on draws that were not fitted it is {optimality.held_out}"
            yield Verdict(ABOUT_TABLE, claim, CLAIMED, "the draws are not in the file")
        reason = "it never falls on the way from the tie to unanimity" if gamma.is_monotone else "it falls somewhere"
        holds = optimality.shape == "free" or (optimality.shape == "monotone" and gamma.is_monotone)
        yield judged(ABOUT_TABLE, f"γ is of the shape {optimality.shape!r}", reason, holds=holds, how=PROVED)
        yield Verdict(ABOUT_TABLE, f"the objective was {optimality.objective!r}", CLAIMED, NOTE)

    @property
    def believed(self) -> str:
        """For which prior the expected error is stated."""
        return "" if self.table.optimality is None else f"for {priors.in_words(self.table.optimality.prior)}"

    @property
    def bound_claim(self) -> str:
        """What the bound says."""
        optimality = self.table.optimality
        shape, bound = ("", None) if optimality is None else (optimality.shape, optimality.bound)
        return f"no private γ of the {shape} shape has an expected error below {bound!r}"

    def search(self) -> tuple[str, str]:
        """Look for a γ that is better than the file says one can be."""
        optimality = self.table.optimality
        if optimality is None or self.value() is None:
            return CLAIMED, self.not_in_the_file
        options = SolveOptions(time_limit=_SEARCH_SECONDS)
        try:
            found = optimize_table(self.table.problem, prior=optimality.prior, shape=optimality.shape, options=options)
        except (DarrmError, ValueError) as error:
            return CLAIMED, f"this release found nothing to compare it with: {error}"
        ours = found.gamma.expected_error(optimality.prior)
        if ours < optimality.bound - float(self.tolerance):
            return FALSE, f"this release found a γ with {ours!r}, and proved it private"
        if found.optimality is not None and not found.optimality.claimed and found.optimality.bound >= optimality.bound:
            return PROVED, f"this release proves the bound {found.optimality.bound!r}"
        return CONSISTENT, f"the best γ that this release finds has {ours!r}"

    def cost(self, *, voters: Voters | None = None, exact: bool | None = None) -> Charge:
        """Describe what a query costs."""
        return charge_of(self.table, 1, voters=voters, exact=exact)

    def in_words(self, labels: str) -> str:
        """Say what one of the labels tells."""
        half = self.table.gamma.half
        varies = "the larger the more of them agree" if self.table.gamma.is_monotone else "by how many of them agree"
        truth = f"with a probability γ between {half.min():.4g} and {half.max():.4g}, {varies}"
        return f"{labels} tells the majority of {self.table.gamma.K} voters {truth}; otherwise it is a fair coin."


@lru_cache(maxsize=64)  # tables do not change, and a ledger and a plan ask for the same orders
def _renyi(release: ReleaseNumbers, order: float) -> Between | None:
    found = worst_labels(release)
    if found is None:
        return None
    largest = 0.0
    for first, second in found:
        largest = max(largest, divergence(np.array(first), np.array(second), order))
    return between(largest)


def _numbers(each: PrivacyParams) -> tuple[Fraction, Fraction] | None:
    return (each.exact_epsilon, each.exact_delta) if each.is_private else None
