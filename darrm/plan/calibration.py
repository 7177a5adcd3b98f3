"""The only search of a plan: the largest rate of a mechanism whose Q queries the accountant admits.

The logarithm of the accountant's ε is nearly linear in log rate, so the search takes secants, and bisects if they fail.
As a cost may take seconds, it starts at the rate that an estimate admits.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from darrm.account.accountant import Spent
from darrm.aggregator import Aggregator
from darrm.errors import PlanError
from darrm.loss.privacy_cost import PrivacyCost
from darrm.plan.accuracy import Accuracy, Law, Measure
from darrm.plan.mechanism import Mechanism, Proposal, Search, make_accountant, no_report, reduce_workload
from darrm.problem import Workload
from darrm.table.table import Table

QUICK_TOLERANCE = 2e-5  # part of ε that a search may leave if costs take no time
FIRST_SLOPE = 1.15  # slope of log ε over log rate at first: 1 for pure privacy, up to 2 for Gaussian noise
MAX_TRIALS, SECANT_TRIALS = 60, 9  # trials; after nine of them every third bisects
MAX_LOG_STEP = math.log(8.0)  # step of log rate until two rates bracket the result
JUMP_SLOPES, MIN_LOG_WIDTH, RATE_TOLERANCE = 2.0, 1e-9, 1e-6  # of a jump; relative widths that end a search
MIN_RATE = 1e-100  # below, an answer is a guess


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibratedMechanism:
    """A mechanism with the parameters that use up the budget of a workload."""

    slug: str  # the name in commands and files
    name: str  # for readers
    workload: Workload
    # Pr[the answer is the majority], given each of `levels`, numbers of votes for it out of K without the missing: the
    # mean of both sides; for more classes the others share the rest evenly
    curve: NDArray[np.float64]
    spent: Spent  # the cost of all queries at the budget's δ
    settings: Mapping[str, float] = field(default_factory=dict)  # the parameters by name
    aggregator: Aggregator | None = None
    instructions: tuple[str, ...] = ()  # what to do without an aggregator
    only_compared: str = ""  # the reason why this library does not release it
    remark: str = ""  # another sentence for readers
    estimate: Accuracy | None = None  # the accuracy under the prior, if it is known
    consensus: Mapping[str, Accuracy] = field(default_factory=dict)  # accuracies under the three reference priors
    regret: float | None = None  # the largest difference to the best under one of these, after a ranking
    expected_error: float | None = None  # of two classes, under the prior
    answered: float | None = None  # the share of open questions, under the prior
    levels: NDArray[np.int64] = field(default_factory=partial(np.arange, 0))
    law: Law | None = None
    rough: "_Calibration | None" = field(default=None, repr=False)  # may use more of the budget; None once finished

    def __getstate__(self) -> dict[str, object]:
        """Leave out the law and the search, which are code."""
        return {**self.__dict__, "law": None, "rough": None}

    @property
    def accuracy(self) -> float:
        """The accuracy under the prior, or NaN."""
        return math.nan if self.estimate is None else self.estimate.value

    @property
    def is_released(self) -> bool:
        """Whether this library releases it."""
        return not self.only_compared

    @property
    def table(self) -> Table | None:
        """The certified table of the aggregator, or None."""
        table = getattr(self.aggregator, "table", None)
        return table if isinstance(table, Table) else None

    def refine(self) -> "CalibratedMechanism":
        """Finish a rough calibration: its trials are not made again."""
        return self if self.rough is None else self.rough.run(math.inf)


def calibrate(
    workload: Workload,
    mechanism: type[Mechanism],
    *,
    measure: Measure | None = None,
    to_beat: float = math.inf,
    report: Callable[[str], None] = no_report,
    is_fine: bool = True,
) -> CalibratedMechanism:
    """Find the most accurate parameter of a mechanism within the budget of a workload.

    The default ``measure`` has no prior. The search may end early if the objective cannot be smaller than ``to_beat``.
    Without ``is_fine`` it may leave a part of the budget, which `CalibratedMechanism.refine` uses. `PlanError` if no
    parameter is within the budget or beats ``to_beat``, or the mechanism does not apply.

    >>> from darrm import PrivacyParams, Voters
    >>> from darrm.plan import find_mechanism
    >>> work = Workload(Voters(50, PrivacyParams("inf"), overlap=1), 500, PrivacyParams(2, "1e-5"), classes=10)
    >>> gnmax = calibrate(work, find_mechanism("gnmax"))
    >>> gnmax.spent.epsilon <= 2, round(gnmax.settings["sigma"])
    (True, 55)
    """
    fewest, most = mechanism.classes
    if not mechanism.answers(workload.classes):
        raise PlanError(f"it is for {'two' if most == fewest else f'{fewest} to {most:,}'} classes only")
    search = Search(workload, measure or Measure(workload, None), to_beat, report)
    return _Calibration(search, mechanism).run(to_beat, is_fine=is_fine)


def largest_rate(
    workload: Workload, cost: Callable[[float], PrivacyCost], start: float, max_rate: float = math.inf
) -> float:
    """Find the largest rate whose Q queries the accountant admits; `PlanError` if there is none."""

    def compute_excess(rate: float) -> float:
        return _compute_excess(workload, cost(rate))

    rate = _find_largest_rate(compute_excess, start, (0.0, max_rate))
    if rate == 0.0:
        raise PlanError(f"no parameter composes within {workload.total}")
    return rate


class _Calibration:
    """The search over the instances of a mechanism: the most accurate ones go to their largest rates."""

    def __init__(self, search: Search, mechanism: type[Mechanism]) -> None:
        self.search, self.mechanism = search, mechanism
        instances, reason = list[Mechanism](), ""
        for release in mechanism.releases(search.workload):
            try:
                instances += mechanism.instances(search, release)
            except PlanError as error:
                reason = str(error)
        if not instances:
            raise PlanError(reason)
        self.trials = self._rank_trials([_Trial(instance) for instance in instances])

    def run(self, to_beat: float, *, is_fine: bool = True) -> CalibratedMechanism:
        finalists = self.trials[: self.trials[0].mechanism.max_refined]
        for trial in finalists:
            trial.raise_rate(to_beat, is_fine=is_fine)
        if all(trial.is_refused for trial in finalists):
            raise PlanError(finalists[0].reason)
        best = next((trial for trial in self._rank_trials(self.trials) if trial.is_admitted()), None)
        if best is None:
            raise PlanError("; ".join(dict.fromkeys(trial.reason for trial in self.trials)))
        proposal, work, measure = best.build_proposal(), self.search.workload, self.search.measure
        law, total, delta = proposal.proved_law(), proposal.total, work.total.delta
        aggregator = None if self.mechanism.only_compared else proposal.release()
        if total is not None:
            spent = Spent(total.epsilon, delta, total.name, total.explanation, (total,), work.queries)
        else:
            cost = proposal.cost if aggregator is None else aggregator.privacy_cost()
            spent = make_accountant(work, cost).spent(delta)
        return CalibratedMechanism(
            slug=self.mechanism.slug,
            name=self.mechanism.name,
            workload=work,
            curve=measure.curve(law),
            spent=spent,
            settings=proposal.settings,
            aggregator=aggregator,
            instructions=proposal.instructions,
            only_compared=self.mechanism.only_compared,
            remark=proposal.remark,
            estimate=measure.accuracy(law),
            consensus=measure.consensus(law),
            expected_error=measure.expected_error(law),
            answered=measure.share_answered(law),
            levels=measure.levels,
            law=law,
            rough=self if not is_fine and best.mechanism.rough_tolerance > best.mechanism.tolerance else None,
        )

    def _rank_trials(self, trials: list["_Trial"]) -> list["_Trial"]:
        return sorted(trials, key=_Trial.compute_loss) if len(trials) > 1 else trials


class _Trial:
    def __init__(self, mechanism: Mechanism) -> None:
        self.mechanism, self.search, self.workload = mechanism, mechanism.search, mechanism.workload
        self.at = cache(mechanism.at)
        self.reason, self.is_refused = f"no parameter composes within {self.workload.total}", False
        self._excesses: dict[float, float] = {}
        self._losses: dict[float, float] = {}
        self.start, self._slope = mechanism.start, FIRST_SLOPE
        self._has_estimate = mechanism.estimate(mechanism.value(self.start)) is not None
        if self._has_estimate:
            min_rate, max_rate = mechanism.limits
            rate = _find_largest_rate(self._estimate_excess, self.start, (0.0, max_rate))
            if rate == 0.0:
                raise PlanError(self.reason)
            rise = self._estimate_excess(rate) - self._estimate_excess(0.99 * rate)
            self._slope = rise / -math.log(0.99) if math.isfinite(rise) else FIRST_SLOPE
            self.start = min(max(rate, min_rate), max_rate)
        self.rate = self.start

    def _estimate_excess(self, rate: float) -> float:
        cost = self.mechanism.estimate(self.mechanism.value(rate))
        return math.inf if cost is None else _compute_excess(self.workload, cost)

    def compute_excess(self, rate: float) -> float:
        """Return log(ε of all queries/total ε), at most 0 if they are admitted."""
        value = self.mechanism.value(rate)
        if value not in self._excesses:
            try:
                proposal = self.at(value)
                is_last = rate >= self.mechanism.limits[1] and self._admits(proposal)
                self._excesses[value] = -math.inf if is_last else _compute_excess(self.workload, proposal.cost)
            except PlanError as error:  # the answer is too certain for any (ε, δ)
                self.reason, self._excesses[value] = str(error), math.inf
        return self._excesses[value]

    def is_admitted(self) -> bool:
        return not self.is_refused and self.compute_excess(self.rate) <= 0.0

    def _admits(self, proposal: Proposal) -> bool:
        if proposal.total is not None:
            return True
        quick_cost, total = proposal.quick_cost(), self.workload.total
        is_cheap = quick_cost is not None and make_accountant(self.workload, quick_cost).admits(total)
        return is_cheap or make_accountant(self.workload, proposal.cost).admits(total)

    def compute_loss(self, rate: float | None = None) -> float:
        value = self.mechanism.value(self.rate if rate is None else rate)
        if value not in self._losses:
            try:
                self._losses[value] = self.search.measure.compute_loss(self.at(value).law)
            except PlanError as error:
                self.reason, self._losses[value] = str(error), math.inf
        return self._losses[value]

    def raise_rate(self, to_beat: float = math.inf, *, is_fine: bool = True) -> None:
        mechanism, self.rate = self.mechanism, self.start
        if self.rate < mechanism.limits[1] and not self._may_beat(to_beat):
            return
        tolerance = mechanism.tolerance if is_fine else max(mechanism.tolerance, mechanism.rough_tolerance)
        rate = _find_largest_rate(
            self.compute_excess,
            self.rate,
            mechanism.limits,
            tolerance=tolerance,
            target=mechanism.tolerance,
            rate_tolerance=mechanism.rate_tolerance,
            slope=self._slope,
        )
        self.rate = rate or self.rate

    def _may_beat(self, to_beat: float) -> bool:
        """Return whether the budget may admit a smaller objective; if so, the search continues from `rate`."""
        mechanism, goal = self.mechanism, self.mechanism.goal
        if to_beat == math.inf or not self._has_estimate or mechanism.is_refined:
            return True
        max_rate = min(mechanism.limits[1], mechanism.max_gain * self.rate)
        if goal is None:
            self.is_refused = self.compute_loss(max_rate) >= to_beat
            self.reason = f"not calibrated; an estimate of its {self._describe_objective(max_rate)}"
            return not self.is_refused
        if self.compute_loss() < to_beat:
            return True
        self.reason = f"not calibrated to the end; at a first trial its {self._describe_objective(self.rate)}"
        self.is_refused = True
        if self.compute_loss(max_rate) < to_beat:
            target = to_beat * (1.0 - goal)

            def compute_gain(rate: float) -> float:
                return _log_ratio(target, self.compute_loss(rate))

            rate = _find_largest_rate(compute_gain, self.rate, (self.rate, max_rate), tolerance=goal / 2.0)
            if rate == 0.0 or self.compute_excess(rate) <= 0.0:
                self.rate, self.is_refused = rate or self.rate, False
        return not self.is_refused

    def _describe_objective(self, rate: float) -> str:
        measure, loss = self.search.measure, self.compute_loss(rate)
        return f"{measure.name} is {loss if measure.is_error else 1.0 - loss:.4f}"

    def build_proposal(self) -> Proposal:
        search, value = self.search, self.mechanism.value(self.rate)
        proposal, final = self.at(value), self.mechanism.finish(value)
        if final is not None and _compute_excess(self.workload, final.cost) <= 0.0:
            is_better = search.measure.compute_loss(final.law) <= self.compute_loss()
            proposal = final if is_better else proposal
        if (
            reduce_workload(search.workload) != search.workload
            and (mixture := proposal.build_mixture(search)) is not None
        ):
            mixture_trial = _Trial(mixture)
            mixture_trial.raise_rate()
            if not mixture_trial.is_admitted():
                raise PlanError(mixture_trial.reason)
            return mixture_trial.at(mixture.value(mixture_trial.rate))
        return proposal


def _compute_excess(workload: Workload, cost: PrivacyCost) -> float:
    total, account = workload.total, make_accountant(workload, cost)
    epsilon = account.smallest_epsilon(total.delta)
    # exact sums may meet the total where floats do not
    is_admitted = epsilon <= total.epsilon or account.admits(total)
    ratio = _log_ratio(epsilon, total.epsilon)
    return min(ratio, 0.0) if is_admitted else max(ratio, 1e-300)


def _log_ratio(value: float, reference: float) -> float:
    return math.log(value / reference) if 0.0 < value < math.inf and 0.0 < reference < math.inf else value - reference


def _find_largest_rate(
    compute_excess: Callable[[float], float],
    start: float,
    limits: tuple[float, float],
    *,
    tolerance: float = QUICK_TOLERANCE,
    target: float | None = None,
    rate_tolerance: float = RATE_TOLERANCE,
    slope: float = FIRST_SLOPE,
) -> float:
    """Find the largest rate, of those tried, at which a growing excess is at most 0; 0 if there is none.

    The search aims at an excess of −``target``/2, by default −``tolerance``/2.
    """
    min_rate, max_rate = max(limits[0], MIN_RATE), limits[1]
    lower, lower_value, upper, upper_value = 0.0, -math.inf, math.inf, math.inf
    old: tuple[float, float] | None = None  # log rate and excess of the previous trial
    rate = min(max(start, min_rate), max_rate)
    for trial in range(MAX_TRIALS):
        value = compute_excess(rate)
        is_below = value <= 0.0
        if is_below:
            lower, lower_value = rate, value
        else:
            upper, upper_value = rate, value
        if (is_below and (value >= -tolerance or rate >= max_rate)) or upper <= min_rate:
            break
        if lower > 0.0 and upper - lower <= rate_tolerance * upper:
            width, rise = math.log(upper / lower), upper_value - lower_value
            if width <= MIN_LOG_WIDTH or rise > JUMP_SLOPES * slope * width:
                break
        step = math.log(2.0 if is_below else 0.5)
        if math.isfinite(value):
            point = math.log(rate), value
            secant = slope if old is None or old[0] == point[0] else (value - old[1]) / (point[0] - old[0])
            step = -(value + (tolerance if target is None else target) / 2.0) / min(4.0, max(0.25, secant))
            old = point
        guess = rate * math.exp(max(-MAX_LOG_STEP, min(MAX_LOG_STEP, step)))
        is_cut = (trial >= SECANT_TRIALS and trial % 3 == 2) or not lower < guess < upper
        if math.isinf(upper) and guess <= lower:
            guess = 2.0 * lower
        elif lower == 0.0 and guess >= upper:
            guess = upper / 16.0
        elif lower > 0.0 and math.isfinite(upper) and is_cut:
            guess = math.sqrt(lower) * math.sqrt(upper)
        rate = min(max(guess, min_rate), max_rate)
    return lower
