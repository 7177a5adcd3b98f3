"""An answer to a workload, with the total that the accountant reports for it; for two classes a certified table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from darrm.account.accountant import PrivacyAccountant, Spent
from darrm.errors import PlanError
from darrm.laws.noise_function import NoiseFunction
from darrm.laws.priors import Prior
from darrm.losses.charges import Charge
from darrm.mechanisms.release import Release
from darrm.plan.budget import account_of
from darrm.plan.option import ReleaseOption
from darrm.plan.share_right import ShareRight, share_of_majorities
from darrm.privacy import PrivacyParams
from darrm.probability.bisection import last_allowed
from darrm.problem import Problem, Workload
from darrm.proof.charge import charge_of
from darrm.proof.profile import divergence
from darrm.proof.table import Table, certify

DIGITS = 6  # of the ε and δ of one query that a search finds
LARGEST_TARGET = Fraction(15)  # beyond, δ of one query is rounding
BISECTIONS = 40
SCALINGS = 9


class Accounted(Protocol):
    """What every candidate says about its cost, from its workload and what one query costs."""

    workload: Workload

    @property
    def charge(self) -> Charge:
        """What one query costs."""
        ...

    @cached_property
    def account(self) -> PrivacyAccountant:
        """All queries, charged."""
        return account_of(self.workload, self.charge)

    @cached_property
    def spent(self) -> Spent:
        """What the accountant reports for all queries at the budget's δ."""
        return self.account.spent(self.workload.total.delta)

    @property
    def is_within_budget(self) -> bool:
        """Whether the accountant admits all queries."""
        return self.account.admits(self.workload.total)


@dataclass(frozen=True, eq=False)
class Candidate(Accounted):
    """A table that was found for a workload under a prior, by which method, and the settings that the search chose."""

    method: str
    workload: Workload
    table: Table
    prior: Prior
    settings: Mapping[str, float]

    @property
    def charge(self) -> Charge:
        """What one query costs."""
        return charge_of(self.table)

    @property
    def aggregator(self) -> Release:
        """What releases the answers."""
        return Release(self.table)

    @property
    def levels(self) -> NDArray[np.int64]:
        """The numbers of votes for the majority, l = floor(K/2) + 1 … K."""
        return self.table.gamma.levels

    @property
    def share_right(self) -> ShareRight | None:
        """The share of right labels under the prior; None where too little is known of it."""
        return share_of_majorities(self.truth, self.workload.voters.K, self.prior)

    @cached_property
    def expected_error(self) -> float:
        """The expected error under the prior."""
        return self.table.gamma.expected_error(self.prior)

    @cached_property
    def is_within_budget(self) -> bool:
        """Whether the accountant admits all queries, by the target alone or by the exact profile and curve."""
        quick = account_of(self.workload, charge_of(self.table, exact=False)).admits(self.workload.total)
        return quick or self.account.admits(self.workload.total)

    def restated(self, workload: Workload) -> Candidate:
        """Certify γ for the private models that a workload asked about, scaled down until their account admits it.

        `PlanError` if it is not admitted.
        """
        if self.workload == workload:
            return self
        for less in (0.0, *(10.0**power for power in range(-SCALINGS, 0))):
            gamma = self.table.gamma.scaled(1.0 - less)
            table = certify(smallest_target(workload, gamma), gamma)
            found = Candidate(self.method, workload, table, self.prior, self.settings)
            if found.is_within_budget:
                return found
        raise PlanError(f"a release within {self.workload.total} could not be scaled into the total of the models")

    @property
    def truth(self) -> NDArray[np.float64]:
        """Pr[the answer is the true majority | l ones] = (1 + γ(l))/2 for l = floor(K/2) + 1 … K."""
        return np.asarray(0.5 * (1.0 + self.table.gamma.half))

    def option(self, *, instructions: tuple[str, ...] = (), only_compared: str = "") -> ReleaseOption:
        """Return it as one option among others, with what to type or why it is only compared."""
        return ReleaseOption(
            name=self.method,
            workload=self.workload,
            truth=self.truth,
            cost=self.spent.bounds[0],
            settings=self.settings,
            aggregator=None if only_compared else self.aggregator,
            instructions=instructions,
            only_compared=only_compared,
        )


def smallest_target(workload: Workload, gamma: NoiseFunction) -> Problem:
    """State an (ε, δ) that one query satisfies, so that γ can be certified as it is.

    δ is half of a query's share of the total where that is allowed, ε the smallest that goes with it; `PlanError` if γ
    tells the truth so surely that only δ = 1 is left.
    """
    voters, each = workload.voters, workload.voters.each
    least = each.exact_epsilon if each.is_private else Fraction(1, 10**6)
    most = each.exact_epsilon * voters.reached if each.is_private else LARGEST_TARGET
    most = max(least, min(most, LARGEST_TARGET))
    delta = max(each.exact_delta, rounded(workload.total.exact_delta / (2 * workload.queries)))
    if (at_most := divergence(voters, gamma, most)) > delta:
        delta = rounded(at_most, ROUND_CEILING)
    if delta >= 1:
        raise PlanError(f"one query has no epsilon of at most {float(most):g}")

    def private(epsilon: Fraction) -> bool:
        return divergence(voters, gamma, epsilon) <= delta

    epsilon = least
    if not private(least):
        smallest = last_allowed(private, most, least, steps=BISECTIONS, tolerance=1e-6)
        epsilon = min(most, rounded(smallest, ROUND_CEILING))
    return workload.problem(PrivacyParams(epsilon, delta))


def rounded(value: Fraction | float, rounding: str = ROUND_FLOOR) -> Fraction:
    """Keep `DIGITS` significant digits, a number that a report can print in full; by default the rest is dropped.

    >>> [float(rounded(value)) for value in (0.1234567, Fraction(2, 3), 0.0)], float(rounded(0.1234561, ROUND_CEILING))
    ([0.123456, 0.666666, 0.0], 0.123457)
    """
    exact = Fraction(value)
    context = Context(prec=DIGITS, rounding=rounding)
    return Fraction(context.divide(Decimal(exact.numerator), Decimal(exact.denominator)))
