"""Mechanisms with one parameter: each value of it gives a law of the answers and a cost.

Costs grow with the rate of a search. A mechanism converts a rate to its parameter, and `Mechanism.at` makes a
`Proposal`; `darrm.plan.calibration.calibrate` finds the largest rate within a budget.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from darrm.account.bounds import Bound
from darrm.aggregator import Aggregator
from darrm.errors import PlanError
from darrm.loss.privacy_cost import PrivacyCost
from darrm.plan.accuracy import MOST_PLANNED, Law, Measure
from darrm.plan.budget import counted, releases_of
from darrm.problem import Workload, is_open
from darrm.util.figures import GRAY

DIGITS = 6  # of a calibrated parameter


def rounded(value: Fraction | float, rounding: str = ROUND_FLOOR) -> Fraction:
    """Round to `DIGITS` significant digits, by default down.

    >>> from decimal import ROUND_CEILING
    >>> [float(rounded(value)) for value in (0.1234567, Fraction(2, 3), 0.0)], float(rounded(0.1234561, ROUND_CEILING))
    ([0.123456, 0.666666, 0.0], 0.123457)
    """
    exact = Fraction(value)
    context = Context(prec=DIGITS, rounding=rounding)
    return Fraction(context.divide(Decimal(exact.numerator), Decimal(exact.denominator)))


@contextmanager
def as_plan_error() -> Iterator[None]:
    """Turn the `ValueError` of a check of ranges or sizes into a `PlanError`: a plan leaves the mechanism out.

    Put only such checks inside. Any other error in a mechanism has to end the plan.
    """
    try:
        yield
    except ValueError as error:
        raise PlanError(str(error)) from error


def no_report(_: str) -> None:
    """Report nothing."""


@dataclass(frozen=True, eq=False)
class Search:
    """The task of a calibration: workload, measure, and the objective to beat (smaller is better)."""

    workload: Workload
    measure: Measure
    to_beat: float = math.inf
    report: Callable[[str], None] = no_report


class Proposal:
    """A mechanism at one value of its parameter; a subclass may compute `cost` and the aggregator when asked.

    ``law`` maps histograms with the largest count first to the probabilities of the answers, and ``settings`` are the
    parameters by name. ``cost`` is that of one query, by default that of the aggregator, or ``total`` that of all
    queries if a theorem states it.
    """

    def __init__(
        self,
        law: Law,
        settings: Mapping[str, float],
        aggregator: Aggregator | None = None,
        *,
        cost: PrivacyCost | None = None,
        total: Bound | None = None,
        instructions: tuple[str, ...] = (),
        remark: str = "",
    ) -> None:
        self.law, self.settings, self.total = law, settings, total
        self.instructions, self.remark = instructions, remark
        self._aggregator, self._cost = aggregator, cost

    @cached_property
    def cost(self) -> PrivacyCost:
        """The exact cost of one query."""
        if self._aggregator is not None:
            return self._aggregator.privacy_cost()
        if self._cost is None:
            raise PlanError("only the cost of all queries together is known")
        return self._cost

    def quick_cost(self) -> PrivacyCost | None:
        """Return a quick upper bound on the cost, or None."""

    def proved_law(self) -> Law:
        """Return the law after its proof, which may change the last digits."""
        return self.law

    def release(self) -> Aggregator | None:
        """Return the aggregator, or None."""
        return self._aggregator

    def shrinking(self, search: Search) -> "Mechanism | None":
        """Return less accurate versions of this law for the private models of a search, or None."""


class Mechanism:
    """A mechanism with one parameter. A subclass defines `at`; an instance belongs to one workload.

    A plan leaves out a mechanism that raises `PlanError`, with its message; any other error ends the plan.
    """

    slug: ClassVar[str] = ""  # the name in commands and files
    name: ClassVar[str] = ""  # for readers
    about: ClassVar[str] = ""  # a sentence about the calibration
    color: ClassVar[str] = GRAY  # of its line in pictures
    linewidth: ClassVar[float] = 1.2
    classes: ClassVar[tuple[int, int]] = (2, MOST_PLANNED)  # the smallest and the largest number
    is_open_set: ClassVar[bool] = False  # whether it answers open questions
    only_compared: ClassVar[str] = ""  # the reason why this library does not release it
    is_slow: ClassVar[bool] = False  # a plan ends a calibration of seconds early if it does not beat the best so far
    is_table: ClassVar[bool] = False  # makes tables, which overlapping private models may get from either `releases_of`

    is_exact: bool = False  # the parameter is the rate itself, and not rounded to six digits
    start: float = 1.0  # the first rate of a search
    limits: tuple[float, float] = (0.0, math.inf)  # the smallest and the largest rate
    unused: float = 1e-7  # a search ends if this part of ε is left
    rough: float = 1e-4  # replaces ``unused`` in a rough calibration
    narrow: float = 1e-6  # a search ends at a jump of the cost if its rate is known to this part
    hope: float = math.inf  # the largest factor from the rate of an estimate to an admitted rate
    goal: float | None = None  # first the smallest rate is tried that beats the best so far by this relative difference
    followed: int = 3  # instances that are calibrated to the end, best start first
    is_refined: bool = False  # `finish` makes a proposal more accurate, so a trial does not show the final accuracy

    def __init__(self, search: Search, workload: Workload) -> None:
        self.search, self.workload = search, workload

    @classmethod
    def releases(cls, workload: Workload) -> Sequence[Workload]:
        """List the workloads to calibrate for: those whose queries add up."""
        return releases_of(workload) if cls.is_table else [counted(workload)]

    @classmethod
    def instances(cls, search: Search, release: Workload) -> "Sequence[Mechanism]":
        """Return the instances to calibrate for a release; `PlanError` if the mechanism does not apply."""
        return [cls(search, release)]

    @classmethod
    def applies_to(cls, workload: Workload) -> bool:  # noqa: ARG003 (overridden)
        """Return whether a plan for the workload mentions the mechanism."""
        return True

    @classmethod
    def check_classes(cls, classes: int) -> None:
        """Raise `PlanError` unless it answers questions with this number of classes."""
        least, most = cls.classes
        if not (cls.is_open_set if is_open(classes) else least <= classes <= most):
            raise PlanError(f"it is for {'two' if most == 2 else f'{least} to {most:,}'} classes only")

    def at(self, parameter: float) -> Proposal:
        """Make the proposal with a value of the parameter; `PlanError` if there is none."""
        raise NotImplementedError

    def value(self, rate: float) -> float:
        """Return the parameter at a rate, rounded to the cheaper side."""
        return rate if self.is_exact else min(max(float(rounded(rate)), self.limits[0]), self.limits[1])

    def estimate(self, parameter: float) -> PrivacyCost | None:
        """Estimate the cost of a query quickly, which is no bound; None without an estimate."""

    def finish(self, parameter: float) -> Proposal | None:
        """Make the same proposal with the last digits, or None."""


class FixedMechanism(Mechanism):
    """A mechanism without a free parameter: the budget admits its only proposal, or not."""

    limits = (1.0, 1.0)
    rough = 0.0

    def at(self, parameter: float) -> Proposal:  # noqa: ARG002 (there is one proposal)
        """Make the only proposal."""
        return self.propose()

    def propose(self) -> Proposal:
        """Make the only proposal; `PlanError` if there is none."""
        raise NotImplementedError
