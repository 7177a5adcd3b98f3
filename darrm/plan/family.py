"""Families of mechanisms, and `calibrate`: the largest parameter whose Q charges the accountant admits.

A `Family` says which numbers may be turned up until the budget is used up, its `Parameter` objects, and what each
value of them makes, a `Proposal`: a law of the answers and a charge, computed when they are asked for. `calibrate` is
the only search there is. It looks at logarithms: log ε(rate), what the accountant reports of all queries, is nearly
linear in log rate, the rate being a number that costs grow with. What it returns was tried, and admitted.

A charge may take seconds to compute, and so may the law, where it is an optimum of its own. So a search begins at what
an estimate of the charge admits, and where a release is known that it has to beat, one trial often decides: with the
least rate that is right as often as that.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache

from darrm.account.accountant import Spent
from darrm.errors import PlanError
from darrm.losses.charges import Charge
from darrm.plan.budget import account_of, counted
from darrm.plan.option import Option, how_to_release
from darrm.plan.parameter import Parameter, Precision, Proposal
from darrm.plan.share_right import MOST_PLANNED, Measure
from darrm.problem import Workload, is_open
from darrm.system.figures import GRAY
from darrm.system.progress import StatusLine

SINGLE = Precision(unused=2e-5, narrow=1e-9)  # of what costs no time


@dataclass(frozen=True, eq=False)
class Search:
    """What a family is asked: what decides, what it has to beat (the smaller the better), and whom to tell.

    Where it is not ``fine``, some part of the budget may be left: the best is calibrated once more.
    """

    workload: Workload
    measure: Measure
    to_beat: float
    report: Callable[[str], None]
    fine: bool = True


@dataclass(frozen=True, eq=False)
class Family:
    """Mechanisms of one kind, and how pages and pictures show them.

    Attributes
    ----------
    name
        As reports, tables and pictures show it.
    parameters
        What may be turned up for a workload; raises `PlanError` with the reason where the family does not apply.
    about
        A sentence about how it is calibrated, for pages.
    color, linewidth
        Its line in pictures, where its place in the list gives the dashes: relatives may share a color.
    classes
        The least and the largest number of classes that it is for.
    open_answers
        Whether it answers open questions, too.
    only_compared
        Why this library does not release it; empty for one that it releases.
    planned
        Whether a plan asks it: others are never right more often than one that it asks.
    optimal
        Whether it looks for the best law: what cannot be better than what is known is not looked for, as it takes long.
    best_of_one
        Whether of a single query nothing else is right more often.
    arises
        Whether to ask it about a workload at all.
    """

    name: str
    parameters: Callable[[Search], Iterable[Parameter]]
    about: str = ""
    color: str = GRAY
    linewidth: float = 1.2
    classes: tuple[int, int] = (2, MOST_PLANNED)
    open_answers: bool = False
    only_compared: str = ""
    planned: bool = True
    optimal: bool = False
    best_of_one: bool = False
    arises: Callable[[Workload], bool] = lambda _: True

    @property
    def meant_for(self) -> str:
        """How many classes it is for, in words."""
        least, most = self.classes
        return f"it is for {'two' if most == 2 else f'{least} to {most:,}'} classes only"

    def is_for(self, classes: int) -> bool:
        """Whether it answers questions with so many classes."""
        return self.open_answers if is_open(classes) else self.classes[0] <= classes <= self.classes[1]


def calibrate(
    workload: Workload,
    family: Family,
    *,
    measure: Measure | None = None,
    to_beat: float = math.inf,
    report: Callable[[str], None] | None = None,
    fine: bool = True,
) -> Option:
    """Find the member of a family that is right most often of those whose Q charges the accountant admits.

    Parameters
    ----------
    workload
        The voters, how many votes are released, and the budget of all of them together.
    family
        What is calibrated.
    measure
        What decides, a `darrm.plan.share_right.Measure`; by default that of no prior in particular.
    to_beat
        An error, or a share of wrong labels, that is known already: a member that cannot have less need not be found.
    report
        Called with a few words at every step.
    fine
        Whether to go on where little of the budget is left but another charge takes long.

    Raises
    ------
    PlanError
        If no member is within the budget, the family does not apply, or none would beat what is known.

    Examples
    --------
    >>> from darrm import PrivacyParams, Voters
    >>> from darrm.plan.families import named
    >>> work = Workload(Voters(50, PrivacyParams("inf"), overlap=1), 500, PrivacyParams(2, "1e-5"), classes=10)
    >>> option = calibrate(work, named("GNMax by label"))
    >>> option.spent.epsilon <= 2, round(option.settings["sigma"])
    (True, 55)
    """
    show = report or StatusLine(enabled=False).show
    search = Search(workload, measure or Measure(workload, None), to_beat, show, fine)
    if not family.is_for(workload.classes):
        raise PlanError(family.meant_for)
    climbs = [_Climb(search, parameter) for parameter in family.parameters(search)]
    if len(climbs) > 1:
        climbs.sort(key=lambda climb: climb.wrong(climb.rate))
    for climb in climbs[: climbs[0].parameter.followed]:
        climb.turn_up()
    if len(climbs) > 1:
        climbs.sort(key=lambda climb: climb.wrong(climb.rate))
    best = next((climb for climb in climbs if climb.is_admitted), None)
    if best is None:
        raise PlanError("; ".join(dict.fromkeys(climb.reason for climb in climbs)))
    return best.option(family)


def largest_rate(workload: Workload, charge: Callable[[float], Charge], start: float, most: float = math.inf) -> float:
    """Find the largest rate whose Q charges the accountant admits; `PlanError` if there is none.

    >>> from darrm import PrivacyParams, Voters
    >>> work = Workload(Voters(5, PrivacyParams("inf"), overlap=1), 20, PrivacyParams(2))
    >>> round(largest_rate(work, lambda rate: Charge("one", guarantee=PrivacyParams(rate)), 1.0), 5)
    0.1
    """
    rate, _ = _last_below(lambda rate: _excess(workload, charge(rate)), start, (0.0, most))
    if rate == 0.0:
        raise PlanError(f"no parameter composes within {workload.total}")
    return rate


class _Climb:
    def __init__(self, search: Search, parameter: Parameter) -> None:
        self.search, self.parameter = search, parameter
        self.total = parameter.workload.total
        self.reason = f"no parameter composes within {self.total}"
        self.refused = False
        self.made = cache(parameter.make)
        self._costs: dict[float, float] = {}
        self._wrong: dict[float, float] = {}
        self.slope = parameter.precision.slope
        self.rate = self._estimated()

    def _estimated(self) -> float:
        parameter, estimate = self.parameter, self.parameter.estimate
        if estimate is None:
            return parameter.start
        least, most = parameter.limits
        rate = largest_rate(parameter.workload, lambda rate: estimate(parameter.value(rate)), parameter.start, most)
        low, high = (_excess(parameter.workload, estimate(parameter.value(near))) for near in (0.99 * rate, rate))
        if math.isfinite(high - low):
            self.slope = (high - low) / -math.log(0.99)
        return min(max(rate, least), most)

    def excess(self, rate: float) -> float:
        """Compute log(ε of all queries/total ε), at most 0 where they are admitted."""
        value = self.parameter.value(rate)
        if value not in self._costs:
            self._costs[value] = self._computed(value, at_limit=rate >= self.parameter.limits[1])
        return self._costs[value]

    def _computed(self, value: float, *, at_limit: bool) -> float:
        try:
            proposal = self.made(value)
            if at_limit and self._admits(proposal):  # nothing is left to be turned up
                return -math.inf
            return _excess(self.parameter.workload, proposal.charge)
        except PlanError as error:  # it tells the truth too surely for any (ε, δ)
            self.reason = str(error)
            return math.inf

    @property
    def is_admitted(self) -> bool:
        """Whether the accountant admits all queries at the rate."""
        value = self.parameter.value(self.rate)
        if self.refused or value in self._costs:
            return not self.refused and self._costs[value] <= 0.0
        try:
            return self._admits(self.made(value))
        except PlanError as error:
            self.reason = str(error)
            return False

    def _admits(self, proposal: Proposal) -> bool:
        """Ask the accountant, first about what costs no time."""
        workload, quick = self.parameter.workload, proposal.quick
        if proposal.total is not None or (quick is not None and account_of(workload, quick()).admits(self.total)):
            return True
        return account_of(workload, proposal.charge).admits(self.total)

    def wrong(self, rate: float) -> float:
        """Compute what decides at a rate: infinity where nothing is proposed."""
        value = self.parameter.value(rate)
        if value not in self._wrong:
            try:
                self._wrong[value] = self.search.measure.wrong(self.made(value).law)
            except PlanError as error:
                self.reason, self._wrong[value] = str(error), math.inf
        return self._wrong[value]

    def turn_up(self) -> None:
        """Go to the largest rate that is admitted, and to none where that cannot beat what is known."""
        parameter = self.parameter
        if self.rate < parameter.limits[1] and not self._may_beat_what_is_known():
            return
        rate, _ = _last_below(
            self.excess,
            self.rate,
            parameter.limits,
            replace(
                parameter.precision,
                rough=0.0 if self.search.fine else parameter.precision.rough,
                slope=self.slope,
            ),
        )
        if rate > 0.0:
            self.rate = rate

    def _may_beat_what_is_known(self) -> bool:
        """Look whether something with less error may be admitted; if so, the search goes on from there."""
        parameter, to_beat = self.parameter, self.search.to_beat
        if to_beat == math.inf or parameter.goal is None is parameter.estimate:
            return True
        most = min(parameter.limits[1], parameter.hope * self.rate)
        if parameter.goal is None:
            self.reason = f"by an estimate at most {1.0 - self.wrong(most):.4f} of its labels would be right"
            self.refused = self.wrong(most) >= to_beat
            return not self.refused
        if parameter.estimate is not None and self.wrong(self.rate) < to_beat:
            return True
        self.reason = "what it admits would not be right more often"
        self.refused = parameter.estimate is None  # what an estimate begins with is known to be admitted, mostly
        least = parameter.limits[0] if self.refused else self.rate
        if self.wrong(most) < to_beat:
            aim, close = to_beat * (1.0 - parameter.goal), replace(SINGLE, unused=parameter.goal / 2.0)
            goal, _ = _last_below(lambda rate: _ratio(aim, self.wrong(rate)), self.rate, (least, most), close)
            if goal == 0.0 or self.excess(goal) <= 0.0:
                self.rate, self.refused = goal or self.rate, False
                return True
        return False

    def option(self, family: Family) -> Option:
        """Return what was found as an option, certified for the models that were asked about."""
        search, parameter, rate = self.search, self.parameter, self.rate
        proposal = self.made(parameter.value(rate))
        if parameter.finish is not None:
            fine = parameter.finish(parameter.value(rate))
            fits = _excess(parameter.workload, fine.charge) <= 0.0
            better = fits and search.measure.wrong(fine.law) <= self.wrong(rate)
            proposal = fine if better else proposal
        if proposal.shrunk is not None and counted(search.workload) != search.workload:
            shrinking = _Climb(search, proposal.shrunk(search.workload))
            shrinking.turn_up()
            if not shrinking.is_admitted:
                raise PlanError(shrinking.reason)
            proposal = shrinking.made(shrinking.parameter.value(shrinking.rate))
        return _option(search, family, proposal, (parameter, rate))


def _option(search: Search, family: Family, proposal: Proposal, place: tuple[Parameter, float]) -> Option:
    work, measure = search.workload, search.measure
    law = proposal.law if proposal.proved is None else proposal.proved()
    aggregator = None if family.only_compared or proposal.release is None else proposal.release()
    total, delta = proposal.total, work.total.delta
    if total is not None:
        spent = Spent(total.epsilon, delta, total.name, total.explanation, (total,), work.queries)
    else:
        spent = account_of(work, proposal.charge if aggregator is None else aggregator.charge()).spent(delta)
    command = () if aggregator is None else how_to_release(work, measure.prior, family.name)
    return Option(
        name=family.name,
        workload=work,
        truth=measure.truth(law),
        spent=spent,
        settings=proposal.settings,
        aggregator=aggregator,
        instructions=() if family.only_compared else proposal.instructions or command,
        only_compared=family.only_compared,
        remark=proposal.remark,
        share_right=measure.share_right(law),
        columns=measure.columns(law),
        expected_error=measure.expected_error(law),
        answered=measure.share_answered(law),
        levels=measure.levels,
        law=law,
        place=place,
    )


def _excess(workload: Workload, charge: Charge) -> float:
    total, account = workload.total, account_of(workload, charge)
    spent = account.smallest_epsilon(total.delta)
    # exact sums may meet the total where floats do not
    admitted = spent <= total.epsilon or account.admits(total)
    ratio = _ratio(spent, total.epsilon)
    return min(ratio, 0.0) if admitted else max(ratio, 1e-300)


def _ratio(value: float, other: float) -> float:
    return math.log(value / other) if 0.0 < value < math.inf and 0.0 < other < math.inf else value - other


def _last_below(
    excess: Callable[[float], float], start: float, limits: tuple[float, float], precision: Precision = SINGLE
) -> tuple[float, float]:
    """Find where an excess that grows with the rate reaches 0: the last rate below, or 0, and the first above."""
    # secants in logarithms, and after some trials every third step a bisection; a rate that is returned was tried, but
    # for the ends 0 and infinity
    least, most = max(limits[0], precision.least), limits[1]
    ends = {
        True: (0.0, -math.inf),
        False: (math.inf, math.inf),
    }  # the last rate below and the first above: (rate, excess)
    points: list[tuple[float, float]] = []
    rate = min(max(start, least), most)
    for trial in range(precision.trials):
        value = excess(rate)
        below = value <= 0.0
        ends[below] = rate, value
        inside, outside = ends[True][0], ends[False][0]
        if (
            (below and (value >= -max(precision.unused, precision.rough) or rate >= most))
            or outside <= least
            or _is_close(ends, precision)
        ):
            break
        step = math.log(2.0 if below else 0.5)
        if math.isfinite(value):
            points = [*points[-1:], (math.log(rate), value)]
            step = -(value + precision.unused / 2.0) / _slope(points, precision.slope)
        stride = math.log(precision.stride)
        guess = rate * math.exp(max(-stride, min(stride, step)))
        if math.isinf(outside) and guess <= inside:
            guess = 2.0 * inside
        elif inside == 0.0 and guess >= outside:
            guess = outside / 16.0
        elif inside > 0.0 and math.isfinite(outside):
            bisects = trial >= precision.straight and trial % 3 == 2
            if bisects or not inside < guess < outside:
                guess = math.sqrt(inside) * math.sqrt(outside)
        rate = min(max(guess, least), most)
    return ends[True][0], ends[False][0]


def _is_close(ends: dict[bool, tuple[float, float]], precision: Precision) -> bool:
    (inside, value), (outside, above) = ends[True], ends[False]
    if inside == 0.0 or not outside - inside <= precision.narrow * outside:
        return False
    wide = math.log(outside / inside)
    return wide <= precision.closest or above - value > precision.jump * precision.slope * wide


def _slope(points: list[tuple[float, float]], slope: float) -> float:
    """Compute d log ε/d log rate from the last two trials, between that of pure and twice that of Gaussian noise."""
    if len(points) < 2 or points[0][0] == points[1][0]:
        return min(4.0, max(0.25, slope))
    (x, y), (a, b) = points
    return min(4.0, max(0.25, (b - y) / (a - x)))
