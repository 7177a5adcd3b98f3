"""How many queries, how many voters or which ε a wanted accuracy takes, and plans at several ε."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from darrm.errors import PlanError
from darrm.numerics.bisection import bisect_safe
from darrm.plan.mechanism import no_report
from darrm.plan.mechanisms import MECHANISMS
from darrm.plan.planner import plan
from darrm.plan.results import Plan, Sweep
from darrm.priors import Prior
from darrm.privacy import PrivacyParams
from darrm.problem import MOST_QUERIES, MOST_VOTERS, Workload
from darrm.util import checks
from darrm.util.progress import stoppable_search

TOLERANCE = 0.02  # relative: a search is some ten plans
# the hardest and the easiest value of each quantity
QUANTITIES = {"queries": (float(MOST_QUERIES), 1.0), "voters": (1.0, float(MOST_VOTERS)), "epsilon": (1e-4, 1e4)}
RELEASED = tuple(mechanism for mechanism in MECHANISMS if not mechanism.only_compared)


def affordable(
    workload: Workload,
    accuracy: float,
    what: str = "queries",
    *,
    prior: Prior | None = None,
    report: Callable[[str], None] = no_report,
    stoppable: bool = False,
) -> Workload:
    """Find the most queries, the fewest voters or the smallest total ε with which a plan has an accuracy.

    The result has the accuracy; a workload that is harder by 2 %, or by one, has not.

    Parameters
    ----------
    workload, prior
        As for `darrm.plan.plan`; the search begins at the number of the workload.
    accuracy
        The wanted accuracy under the prior.
    what
        ``"queries"``, ``"voters"`` or ``"epsilon"``.
    report
        Called with a few words before each plan.
    stoppable
        Whether Ctrl-C (`KeyboardInterrupt`) returns the hardest workload that had the accuracy, with a warning.

    Raises
    ------
    PlanError
        If no number gives the accuracy, or none is known when the search is stopped.

    Examples
    --------
    >>> from darrm import Voters
    >>> from darrm.priors import Dirichlet
    >>> work = Workload(Voters(101, PrivacyParams("inf"), overlap=1), 10, PrivacyParams(1))
    >>> affordable(work, 0.9, "epsilon", prior=Dirichlet()).total
    PrivacyParams(epsilon=0.984375, delta=0)
    """
    checks.probability(accuracy=accuracy)
    checks.one_of(QUANTITIES, what=what)
    if what == "voters" and workload.voters.own is not None:
        checks.fail("what", what, "queries or epsilon", "these voters differ from each other")
    tried: dict[Workload, bool] = {}

    def is_enough(value: float) -> bool:
        asked = _changed(workload, what, value)
        if asked not in tried:
            report(f"accuracy {accuracy:.4g}: trying {what} {_value(asked, what):,.5g}")
            try:
                tried[asked] = plan(asked, prior=prior, mechanisms=RELEASED).best.accuracy >= accuracy
            except PlanError:  # no release at all
                tried[asked] = False
        return tried[asked]

    try:
        with stoppable_search(enabled=stoppable):
            return _changed(workload, what, _last_enough(is_enough, _value(workload, what), what, accuracy))
    except KeyboardInterrupt:
        known = [asked for asked, enough in tried.items() if enough]
        if not stoppable:
            raise
        if not known:
            raise PlanError(
                f"stopped before any {what} with an accuracy of {accuracy:.4g} were found: take more time"
            ) from None
        warnings.warn("stopped early: the plan is the best until then", stacklevel=2)
        return min(known, key=lambda asked: abs(_value(asked, what) - QUANTITIES[what][0]))


def _value(workload: Workload, what: str) -> float:
    return {"queries": workload.queries, "voters": workload.voters.K, "epsilon": workload.total.epsilon}[what]


def _changed(workload: Workload, what: str, value: float) -> Workload:
    if what == "queries":
        return replace(workload, queries=round(value))
    if what == "voters":
        return replace(workload, voters=replace(workload.voters, K=round(value)))
    return replace(workload, total=PrivacyParams(f"{value:.6g}", workload.total.exact_delta))


def _last_enough(is_enough: Callable[[float], bool], value: float, what: str, accuracy: float) -> float:
    """Double or halve until one value is enough and one is not, then bisect."""
    is_good = is_enough(value)
    end = QUANTITIES[what][0 if is_good else 1]
    ends = {is_good: value}
    while len(ends) < 2:
        if value == end and is_good:
            return value
        if value == end:
            raise PlanError(f"no {what} up to {end:,.5g} have an accuracy of {accuracy:.4g} under this prior")
        half = value / 2.0 if what == "epsilon" else float(round(value / 2.0))
        value = min(2.0 * value, end) if end > value else max(half, end)
        ends[is_enough(value)] = value
    return bisect_safe(is_enough, ends[True], ends[False], tolerance=TOLERANCE)


def sweep(
    workload: Workload,
    epsilons: Sequence[str | float],
    *,
    report: Callable[[str], None] = no_report,
    stoppable: bool = False,
    **options: Any,  # noqa: ANN401 (those of plan)
) -> Sweep:
    """Plan at each total ε; budgets that are too small are left out, with a warning.

    The ``options`` are those of `darrm.plan.plan`. A sweep looks at no votes, so a choice of ε by it costs nothing.

    Raises
    ------
    PlanError
        If no budget has a plan.

    Examples
    --------
    >>> from darrm import Voters
    >>> from darrm.priors import Dirichlet
    >>> work = Workload(Voters(11, PrivacyParams("inf"), overlap=1), 1, PrivacyParams(1, "1e-5"))
    >>> {epsilon: round(accuracy, 3) for epsilon, accuracy in sweep(work, ["0.1", 1], prior=Dirichlet()).best.items()}
    {0.1: 0.625, 1.0: 0.929}
    """
    totals = sorted(
        {PrivacyParams(epsilon, workload.total.exact_delta) for epsilon in epsilons}, key=lambda total: total.epsilon
    )
    if not totals:
        checks.fail("epsilons", epsilons, "at least one total epsilon")
    plans: list[Plan] = []
    reasons: list[str] = []
    try:
        with stoppable_search(enabled=stoppable):
            for place, total in enumerate(totals, 1):
                report(f"budget {place} of {len(totals)}: epsilon {total.epsilon:g}")
                try:
                    plans.append(plan(replace(workload, total=total), **options))
                except PlanError as error:
                    reasons.append(f"the total epsilon {total.epsilon:g} has no plan: {error}")
    except KeyboardInterrupt:
        if not stoppable:
            raise
        if not plans:
            raise PlanError("stopped before there was a plan for any budget: take more time") from None
        warnings.warn(f"stopped early: {len(plans)} of {len(totals)} budgets have a plan", stacklevel=2)
    if not plans:
        raise PlanError(reasons[0])
    for reason in reasons:
        warnings.warn(reason, stacklevel=2)
    return Sweep(tuple(plans))
