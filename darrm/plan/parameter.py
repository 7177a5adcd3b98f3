"""What is turned up until a budget is used up: a `Parameter`, and the `Proposal` that each of its values makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cached_property

from darrm.account.bounds import Bound
from darrm.errors import PlanError
from darrm.losses.charges import Charge
from darrm.pate.files import Released
from darrm.plan.share_right import Law
from darrm.problem import Workload

DIGITS = 6  # of what a search finds


@dataclass(frozen=True, eq=False, kw_only=True)
class Proposal:
    """A mechanism with one value of its parameter.

    Attributes
    ----------
    law
        What it answers, on histograms with the largest count first.
    price
        Computes what one query costs for whom the search counts; None where ``total`` is known.
    proved
        What it answers once it is proved, where a proof changes the last digits.
    quick
        The same as ``price`` from what costs no time, an upper bound.
    release
        Makes what releases it, for the voters that were asked about; None for what is only compared, or where the votes
        are published as they are.
    settings
        Its parameters, by name.
    total
        What all queries cost, where a theorem says so.
    shrunk
        For a release calibrated for plain voters: what is to be certified for the private models that were asked about.
    instructions, remark
        What to do, where that is no command, and what else a reader should know.
    """

    law: Law
    price: Callable[[], Charge] | None = None
    proved: Callable[[], Law] | None = None
    quick: Callable[[], Charge] | None = None
    release: Callable[[], Released] | None = None
    settings: Mapping[str, float] = field(default_factory=dict)
    total: Bound | None = None
    shrunk: Callable[[Workload], Parameter] | None = None
    instructions: tuple[str, ...] = ()
    remark: str = ""

    @cached_property
    def charge(self) -> Charge:
        """What one query costs."""
        if self.price is None:
            raise PlanError("all queries together are known, one is not")
        return self.price()


def six_digits(rate: float) -> float:
    """Round a rate down to six digits, a number that a report can print in full."""
    return float(rounded(rate))


def rounded(value: Fraction | float, rounding: str = ROUND_FLOOR) -> Fraction:
    """Keep `DIGITS` significant digits; by default the rest is dropped.

    >>> from decimal import ROUND_CEILING
    >>> [float(rounded(value)) for value in (0.1234567, Fraction(2, 3), 0.0)], float(rounded(0.1234561, ROUND_CEILING))
    ([0.123456, 0.666666, 0.0], 0.123457)
    """
    exact = Fraction(value)
    context = Context(prec=DIGITS, rounding=rounding)
    return Fraction(context.divide(Decimal(exact.numerator), Decimal(exact.denominator)))


@dataclass(frozen=True)
class Precision:
    """When a search ends."""

    slope: float = (
        1.15  # of log ε over log rate as long as one is known: between that of pure privacy, 1, and many Gaussians
    )
    unused: float = 1e-7  # of ε may be left, and half of it is aimed at
    rough: float = 0.0  # of ε may be left by what is not the best: `darrm.plan.search.options_of` goes on with that
    narrow: float = 2e-6  # of the rate: where a cost jumps, no more is looked for
    jump: float = 2.0  # times the slope: between two rates a cost grows so fast only where it jumps
    trials: int = 60
    straight: int = 9  # trials, before every third one bisects
    stride: float = 8.0  # times the rate is the longest step before there are two ends
    closest: float = 1e-9  # of the rate: nothing is between
    least: float = 1e-100  # with a smaller rate every answer is a coin


@dataclass(frozen=True, eq=False, kw_only=True)
class Parameter:
    """A number that is turned up as far as the budget of a workload admits.

    Attributes
    ----------
    workload
        Whose account must admit all queries.
    make
        value → `Proposal`; `PlanError` where there is none.
    start
        The rate that a search starts with.
    limits
        The least and the largest rate.
    value
        rate → value: costs grow with the rate; rounded to the cheaper side.
    estimate
        value → about what an answer costs, where the charge itself, or the proposal, takes long; no bound.
    hope
        More than this times the rate of the estimate is not expected to be admitted.
    goal
        Where laws take less time than charges, the least rate that beats what is known is tried first: by so much,
        relative. None where it is not.
    precision
        When a search ends.
    followed
        Of several parameters of a family so many, those that begin best, are turned up.
    finish
        value → the same proposal, with the last digits.
    """

    workload: Workload
    make: Callable[[float], Proposal]
    start: float
    limits: tuple[float, float] = (0.0, math.inf)
    value: Callable[[float], float] = six_digits
    estimate: Callable[[float], Charge] | None = None
    hope: float = math.inf
    goal: float | None = 1e-7
    precision: Precision = Precision()
    followed: int = 3
    finish: Callable[[float], Proposal] | None = None


def fixed(workload: Workload, proposal: Proposal) -> Parameter:
    """Describe what has no parameter: it is admitted as it is, or not at all."""
    return Parameter(workload=workload, make=lambda _: proposal, start=1.0, limits=(1.0, 1.0))
