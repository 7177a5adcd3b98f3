"""A certified table as an answer to a workload, with the total that the accountant reports for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cached_property

from darrm.account.accountant import PrivacyAccountant, Spent
from darrm.gamma.priors import Prior
from darrm.losses.charges import Charge
from darrm.plan.option import ReleaseOption
from darrm.problem import Workload
from darrm.proof.table import GammaTable
from darrm.release.majority import DaRRM

DIGITS = 6  # of the ε and δ of one query that a search finds


@dataclass(frozen=True, eq=False)
class Candidate:
    """A table that was found for a workload.

    Attributes
    ----------
    method
        How it was found.
    workload
        What it is for.
    table
        The proven noise function.
    prior
        The public belief under which it was chosen.
    settings
        What the search settled on, by name.
    """

    method: str
    workload: Workload
    table: GammaTable
    prior: Prior
    settings: Mapping[str, float]

    @cached_property
    def aggregator(self) -> DaRRM:
        """What releases the answers."""
        return DaRRM(self.table)

    @cached_property
    def charge(self) -> Charge:
        """What one query costs."""
        return self.aggregator.charge()

    @cached_property
    def spent(self) -> Spent:
        """What the accountant reports for all queries at the budget's δ."""
        account = PrivacyAccountant(charges=[self.charge.repeated(self.workload.queries)])
        return account.spent(self.workload.total.delta)

    @property
    def is_within_budget(self) -> bool:
        """Whether the accountant admits all queries."""
        account = PrivacyAccountant(charges=[self.charge.repeated(self.workload.queries)])
        return account.admits(self.workload.total)

    @cached_property
    def expected_error(self) -> float:
        """The expected error under the prior."""
        return self.table.gamma.expected_error(self.prior)

    def option(self) -> ReleaseOption:
        """Give it as one option among others."""
        truth = 0.5 * (1.0 + self.table.gamma.half)
        spent = self.spent
        return ReleaseOption("ours", self.workload.voters.K, truth, spent.epsilon, spent.bound, self.settings)


def rounded_down(value: Fraction | float) -> Fraction:
    """Keep six significant digits, rounding down: a number that a report can print in full.

    Examples
    --------
    >>> [float(rounded_down(value)) for value in (0.1234567, Fraction(2, 3), 0.0)]
    [0.123456, 0.666666, 0.0]
    """
    return _rounded(value, ROUND_FLOOR)


def rounded_up(value: Fraction | float) -> Fraction:
    """Keep six significant digits, rounding up.

    Examples
    --------
    >>> float(rounded_up(0.1234561))
    0.123457
    """
    return _rounded(value, ROUND_CEILING)


def _rounded(value: Fraction | float, rounding: str) -> Fraction:
    exact = Fraction(value)
    context = Context(prec=DIGITS, rounding=rounding)
    return Fraction(context.divide(Decimal(exact.numerator), Decimal(exact.denominator)))
