"""A certified table as an answer to a workload, with the total that the accountant reports for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from darrm.account.accountant import PrivacyAccountant, Spent
from darrm.errors import PlanError
from darrm.gamma.noise_function import NoiseFunction
from darrm.gamma.priors import Prior
from darrm.plan.budget import account_of
from darrm.plan.option import ReleaseOption
from darrm.privacy import PrivacyParams
from darrm.probability.bisection import last_allowed
from darrm.problem import MajorityProblem, Workload
from darrm.proof.charge import charge_of
from darrm.proof.profile import divergence
from darrm.proof.table import GammaTable
from darrm.release.majority import DaRRM

DIGITS = 6  # of the ε and δ of one query that a search finds
LARGEST_TARGET = Fraction(15)  # beyond, δ of one query is rounding
BISECTIONS = 40


@dataclass(frozen=True, eq=False)
class Candidate:
    """A table that was found for a workload under a prior, by which method, and the settings that the search chose."""

    method: str
    workload: Workload
    table: GammaTable
    prior: Prior
    settings: Mapping[str, float]

    @cached_property
    def account(self) -> PrivacyAccountant:
        """All queries, charged."""
        return account_of(self.workload, charge_of(self.table))

    @cached_property
    def spent(self) -> Spent:
        """What the accountant reports for all queries at the budget's δ."""
        return self.account.spent(self.workload.total.delta)

    @property
    def is_within_budget(self) -> bool:
        """Whether the accountant admits all queries."""
        return self.account.admits(self.workload.total)

    @cached_property
    def expected_error(self) -> float:
        """The expected error under the prior."""
        return self.table.gamma.expected_error(self.prior)

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
            epsilon=self.spent.epsilon,
            bound=self.spent.bound,
            settings=self.settings,
            aggregator=None if only_compared else DaRRM(self.table),
            instructions=instructions,
            only_compared=only_compared,
        )


def smallest_target(workload: Workload, gamma: NoiseFunction) -> MajorityProblem:
    """State an (ε, δ) that one query satisfies, so that γ can be certified as it is.

    δ is half of a query's share of the total where that is allowed, ε the smallest that goes with it; `PlanError` if γ
    tells the truth so surely that only δ = 1 is left.
    """
    each = workload.voters.each
    least = each.exact_epsilon if each.is_private else Fraction(1, 10**6)
    most = each.exact_epsilon * workload.voters.reached if each.is_private else LARGEST_TARGET
    most = max(least, min(most, LARGEST_TARGET))
    delta = max(each.exact_delta, rounded_down(workload.total.exact_delta / (2 * workload.queries)))
    if divergence(workload.voters, gamma, most) > delta:
        delta = max(delta, rounded_up(divergence(workload.voters, gamma, most)))
    if delta >= 1:
        raise PlanError(f"one query has no epsilon of at most {float(most):g}")

    def private(epsilon: Fraction) -> bool:
        return divergence(workload.voters, gamma, epsilon) <= delta

    smallest = least if private(least) else last_allowed(private, most, least, steps=BISECTIONS, tolerance=1e-6)
    epsilon = min(most, rounded_up(smallest)) if smallest > least else least
    return workload.problem(PrivacyParams(epsilon, delta))


def rounded_down(value: Fraction | float) -> Fraction:
    """Keep six significant digits, rounding down: a number that a report can print in full.

    >>> [float(rounded_down(value)) for value in (0.1234567, Fraction(2, 3), 0.0)]
    [0.123456, 0.666666, 0.0]
    """
    return _rounded(value, ROUND_FLOOR)


def rounded_up(value: Fraction | float) -> Fraction:
    """Keep six significant digits, rounding up.

    >>> float(rounded_up(0.1234561))
    0.123457
    """
    return _rounded(value, ROUND_CEILING)


def _rounded(value: Fraction | float, rounding: str) -> Fraction:
    """Keep `DIGITS` significant digits."""
    exact = Fraction(value)
    context = Context(prec=DIGITS, rounding=rounding)
    return Fraction(context.divide(Decimal(exact.numerator), Decimal(exact.denominator)))
