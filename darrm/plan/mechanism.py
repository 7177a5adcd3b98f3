"""Mechanisms with one parameter: each value gives a law of the answers and a cost that grows with the rate.

The answers of private *models* share the randomness of their training, so their costs do not add up. `reduce_workload`
plans for non-private voters instead, within the larger budget that `darrm.loss.joint_bound` leaves for the release.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from darrm.account.accountant import PrivacyAccountant
from darrm.account.bounds import Bound, models_bound
from darrm.aggregator import Aggregator
from darrm.errors import PlanError
from darrm.loss.joint_bound import release_within
from darrm.loss.privacy_cost import PrivacyCost
from darrm.plan.accuracy import MOST_PLANNED, Law, Measure
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload, is_open
from darrm.util.figures import GRAY


def make_accountant(workload: Workload, query: PrivacyCost) -> PrivacyAccountant:
    return PrivacyAccountant(workload.voters, [query.repeat(workload.queries)])


def reduce_workload(workload: Workload, *, one_by_one: bool = False) -> Workload:
    """Replace private models by non-private voters; the overlap stays, or is 1 with ``one_by_one``.

    >>> from darrm import PrivacyParams, Voters
    >>> models = Voters(11, PrivacyParams(1), overlap=1, models=True)
    >>> release = reduce_workload(Workload(models, 100, PrivacyParams("0.5", "1e-5")))
    >>> release.voters.each.is_private, round(release.total.epsilon, 2), round(release.total.delta, 6)
    (False, 1.18, 3.5e-05)
    """
    voters = workload.voters
    if workload.queries == 1 or not voters.are_private_models:
        return workload
    non_private = Voters(voters.K, PrivacyParams("inf"), 1 if one_by_one else voters.overlap)
    # a part of ε remains for the rounding of reports
    usable_total = PrivacyParams(workload.total.exact_epsilon * (1 - Fraction(1, 250_000)), workload.total.exact_delta)
    total = release_within(voters, usable_total, one_by_one=one_by_one) or workload.total
    return replace(workload, voters=non_private, total=total)


def list_releases(workload: Workload) -> list[Workload]:
    release = reduce_workload(workload)
    if release == workload or workload.voters.reached == 1:
        return [release]
    return [release, reduce_workload(workload, one_by_one=True)]


def needs_no_noise(workload: Workload) -> bool:
    if workload.queries == 1 or not workload.voters.are_private_models:
        return False
    cap = models_bound(workload.voters, workload.total.delta)
    return cap is not None and cap.epsilon <= workload.total.epsilon


def rounded(value: Fraction | float, rounding: str = ROUND_FLOOR) -> Fraction:
    """Round to six significant digits, by default down."""
    exact = Fraction(value)
    context = Context(prec=6, rounding=rounding)
    return Fraction(context.divide(Decimal(exact.numerator), Decimal(exact.denominator)))


@contextmanager
def as_plan_error() -> Iterator[None]:
    """Let a failed check of a range or a size leave the mechanism out; any other error has to end the plan."""
    try:
        yield
    except ValueError as error:
        raise PlanError(str(error)) from error


def no_report(_: str) -> None:
    """Report nothing."""


@dataclass(frozen=True, eq=False)
class Search:
    """The task of a calibration; a smaller objective than ``to_beat`` is better than the best so far."""

    workload: Workload
    measure: Measure
    to_beat: float = math.inf
    report: Callable[[str], None] = no_report


class Proposal:
    """A mechanism at one value of its parameter.

    ``law`` maps (n, C) histograms with the largest count first to the (n, C) probabilities of the answers. ``cost`` is
    that of one query, by default the aggregator's; ``total`` is that of all queries, where a theorem states it.
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
        """The exact cost of one query; `PlanError` if only that of all queries is known."""
        if self._aggregator is not None:
            return self._aggregator.privacy_cost()
        if self._cost is None:
            raise PlanError("only the cost of all queries together is known")
        return self._cost

    def quick_cost(self) -> PrivacyCost | None:
        """Return an upper bound on the cost without a search, if there is one."""

    def proved_law(self) -> Law:
        """Return the law after its proof; its last digits may differ."""
        return self.law

    def release(self) -> Aggregator | None:
        """Make the aggregator that releases."""
        return self._aggregator

    def build_mixture(self, search: Search) -> "Mechanism | None":
        """Return the mixtures of this law with random guessing, for the private models of a search."""


class Mechanism:
    """A mechanism with one parameter, for one workload: a subclass defines `at`.

    `PlanError` leaves it out of a plan, with the message as the reason; any other error ends the plan.
    """

    slug: ClassVar[str] = ""  # the name in commands and files
    name: ClassVar[str] = ""  # for readers
    about: ClassVar[str] = ""  # a sentence about the calibration
    color: ClassVar[str] = GRAY  # of its line in pictures
    linewidth: ClassVar[float] = 1.2
    classes: ClassVar[tuple[int, int]] = (2, MOST_PLANNED)  # the smallest and the largest number
    is_open_set: ClassVar[bool] = False  # whether it answers open questions
    only_compared: ClassVar[str] = ""  # the reason why this library does not release it
    is_slow: ClassVar[bool] = False  # a plan ends its calibration early if it does not beat the best so far
    is_table: ClassVar[bool] = False  # makes tables: overlapping private models try both of `list_releases`

    is_exact: bool = False  # the parameter is the rate itself, and not rounded to six digits
    start: float = 1.0  # the first rate of a search
    limits: tuple[float, float] = (0.0, math.inf)  # the smallest and the largest rate
    tolerance: float = 1e-7  # a search ends if this part of ε is left
    rough_tolerance: float = 1e-4  # replaces ``tolerance`` in a rough calibration
    rate_tolerance: float = 1e-6  # relative width of the bracket at which a search ends at a jump
    max_gain: float = math.inf  # the largest factor from the rate of an estimate to an admitted rate
    goal: float | None = None  # relative gain over the best so far that is tried first
    max_refined: int = 3  # instances that are calibrated to the end, best start first
    is_refined: bool = False  # `finish` makes a proposal more accurate, so a trial does not show the final accuracy

    def __init__(self, search: Search, workload: Workload) -> None:
        self.search, self.workload = search, workload

    @classmethod
    def releases(cls, workload: Workload) -> Sequence[Workload]:
        """List the workloads to calibrate for."""
        return list_releases(workload) if cls.is_table else [reduce_workload(workload)]

    @classmethod
    def instances(cls, search: Search, release: Workload) -> "Sequence[Mechanism]":
        """Make the instances to calibrate; `PlanError` if the mechanism does not apply."""
        return [cls(search, release)]

    @classmethod
    def applies_to(cls, workload: Workload) -> bool:  # noqa: ARG003 (overridden)
        """Whether a plan mentions the mechanism."""
        return True

    @classmethod
    def answers(cls, classes: int) -> bool:
        """Whether it answers questions with this number of classes."""
        return cls.is_open_set if is_open(classes) else cls.classes[0] <= classes <= cls.classes[1]

    def at(self, parameter: float) -> Proposal:
        """Make the proposal; `PlanError` if there is none."""
        raise NotImplementedError

    def value(self, rate: float) -> float:
        """Convert a rate to the parameter, rounded to the cheaper side."""
        return rate if self.is_exact else min(max(float(rounded(rate)), self.limits[0]), self.limits[1])

    def estimate(self, parameter: float) -> PrivacyCost | None:
        """Estimate the cost of a query, which is no bound."""

    def finish(self, parameter: float) -> Proposal | None:
        """Make the proposal once more with its last digits, if that differs."""


class FixedMechanism(Mechanism):
    """A mechanism without a free parameter: the budget admits its only proposal or refuses it."""

    limits = (1.0, 1.0)
    rough_tolerance = 0.0

    def at(self, parameter: float) -> Proposal:  # noqa: ARG002 (there is one proposal)
        return self.propose()

    def propose(self) -> Proposal:
        raise NotImplementedError
