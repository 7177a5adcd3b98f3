"""Mechanisms with one parameter: each value of it gives a law of the answers and a cost.

Costs grow with the rate. A mechanism converts a rate to its parameter, and `Mechanism.at` makes a `Proposal`;
`darrm.plan.calibration.calibrate` finds the largest rate within a budget.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

from darrm.account.bounds import Bound
from darrm.aggregator import Released
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


def no_report(_: str) -> None:
    """Report nothing."""


@dataclass(frozen=True, eq=False)
class Search:
    """The task of a calibration: workload, measure, and the objective to beat (smaller is better)."""

    workload: Workload
    measure: Measure
    to_beat: float = math.inf
    report: Callable[[str], None] = no_report
    is_fine: bool = True  # False: up to `Mechanism.rough` of ε may be left


class Proposal:
    """A mechanism at one value of its parameter.

    ``law`` maps histograms with the largest count first to the probabilities of the answers; ``settings`` are the
    parameters by name. ``total`` is the cost of all queries, if a theorem states it; ``instructions`` replace commands.
    """

    total: Bound | None = None
    instructions: tuple[str, ...] = ()
    remark: str = ""

    def __init__(self, law: Law, settings: Mapping[str, float]) -> None:
        self.law, self.settings = law, settings

    @cached_property
    def cost(self) -> PrivacyCost:
        """The exact cost of one query."""
        return self.compute_cost()

    def compute_cost(self) -> PrivacyCost:
        """Compute the exact cost of one query."""
        raise PlanError("only the cost of all queries together is known")

    def quick_cost(self) -> PrivacyCost | None:
        """Return a quick upper bound on the cost, or None."""
        return None

    def proved_law(self) -> Law:
        """Return the law after its proof, which may change the last digits."""
        return self.law

    def release(self) -> Released | None:
        """Return the aggregator, or None."""
        return None

    def shrinking(self, search: Search) -> "Mechanism | None":  # noqa: ARG002 (overridden)
        """Return less accurate versions of this law for the private models of a search, or None."""
        return None


class Mechanism:
    """A mechanism with one parameter. A subclass defines `at`; an instance belongs to one workload.

    Attributes
    ----------
    slug, name, about
        The name in commands and files, the name for readers, and a sentence about the calibration.
    color, linewidth
        Its line in pictures.
    classes, is_open_set
        The smallest and the largest number of classes, and whether it answers open questions.
    only_compared
        The reason why this library does not release it; empty if it does.
    is_slow
        Whether calibration takes seconds; a plan ends it early if it does not beat the best so far.
    is_best_of_one
        Whether it is the optimum for a single query.
    start, limits
        The first rate of a search, and the smallest and the largest.
    unused, rough, narrow
        A search ends if this part of ε is left, or the rate is known to this part. ``rough`` replaces ``unused``
        until the best mechanism is calibrated again.
    has_estimate, hope, goal
        Whether `estimate` gives the first rate; the budget admits at most ``hope`` times that rate. With a ``goal`` the
        search first tries the smallest rate that beats the best so far by this relative difference.
    followed
        The number of instances that are calibrated to the end, best start first.
    """

    slug: ClassVar[str] = ""
    name: ClassVar[str] = ""
    about: ClassVar[str] = ""
    color: ClassVar[str] = GRAY
    linewidth: ClassVar[float] = 1.2
    classes: ClassVar[tuple[int, int]] = (2, MOST_PLANNED)
    is_open_set: ClassVar[bool] = False
    only_compared: ClassVar[str] = ""
    is_slow: ClassVar[bool] = False
    is_best_of_one: ClassVar[bool] = False

    start: float = 1.0
    limits: tuple[float, float] = (0.0, math.inf)
    unused: float = 1e-7
    rough: float = 1e-4
    narrow: float = 2e-6
    hope: float = math.inf
    goal: float | None = None
    followed: int = 3
    has_estimate: bool = False

    def __init__(self, search: Search, workload: Workload | None = None) -> None:
        self.search = search
        self.workload = counted(search.workload) if workload is None else workload

    @property
    def is_refined(self) -> bool:
        """Whether `finish` makes a proposal more accurate, so that a trial does not show what the mechanism reaches."""
        return False

    @classmethod
    def instances(cls, search: Search) -> Iterable[Self]:
        """Return the instances to calibrate; the best counts. `PlanError` if the mechanism does not apply."""
        return [cls(search)]

    @classmethod
    def applies_to(cls, workload: Workload) -> bool:  # noqa: ARG003 (overridden)
        """Return whether a plan for the workload mentions the mechanism."""
        return True

    @classmethod
    def is_for(cls, classes: int) -> bool:
        """Return whether it answers questions with this number of classes."""
        return cls.is_open_set if is_open(classes) else cls.classes[0] <= classes <= cls.classes[1]

    @classmethod
    def meant_for(cls) -> str:
        """Return a sentence about the numbers of classes."""
        least, most = cls.classes
        return f"it is for {'two' if most == 2 else f'{least} to {most:,}'} classes only"

    def at(self, parameter: float) -> Proposal:
        """Make the proposal with a value of the parameter; `PlanError` if there is none."""
        raise NotImplementedError

    def value(self, rate: float) -> float:
        """Return the parameter at a rate, rounded to the cheaper side."""
        return float(rounded(rate))

    def estimate(self, parameter: float) -> PrivacyCost:
        """Estimate the cost of a query quickly; it is no bound."""
        raise NotImplementedError

    def finish(self, parameter: float) -> Proposal | None:  # noqa: ARG002 (overridden)
        """Make the same proposal with the last digits, or None."""
        return None


class FixedMechanism(Mechanism):
    """A mechanism without a free parameter: the budget admits it, or not."""

    limits = (1.0, 1.0)
    rough = 0.0


def falling(rate: float, limits: tuple[float, float]) -> float:
    """Return 1/rate, rounded up to six digits and within limits."""
    return min(max(float(rounded(1.0 / rate, ROUND_CEILING)), 1.0 / limits[1]), 1.0 / max(limits[0], 1e-300))


def each_release(kind: type[Mechanism], search: Search) -> Iterable[Mechanism]:
    """Make an instance for each workload of `releases_of`; `PlanError` if none is possible."""
    made, reasons = [], []
    for release in releases_of(search.workload):
        try:
            made.append(kind(search, release))
        except PlanError as error:
            reasons.append(str(error))
    if not made:
        raise PlanError(reasons[-1])
    return made
