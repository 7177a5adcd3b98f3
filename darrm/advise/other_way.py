"""The question the other way round: how much of something a wanted share of right labels leaves room for."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

from darrm.errors import PlanError, checks
from darrm.laws.priors import Prior
from darrm.plan.search import plan
from darrm.privacy import PrivacyParams
from darrm.probability.bisection import last_allowed
from darrm.problem import MOST_QUERIES, MOST_VOTERS, Workload

TOLERANCE = 0.02  # relative: a search is some ten plans
LARGEST_EPSILON, LEAST_EPSILON = 1e4, 1e-4


@dataclass(frozen=True)
class _Quantity:
    """What is looked for: its value in a workload, a workload with another one, and the hardest and easiest value."""

    of: Callable[[Workload], float]
    put: Callable[[Workload, float], Workload]
    hardest: float
    easiest: float


def _with_voters(work: Workload, K: float) -> Workload:
    return replace(work, voters=replace(work.voters, K=round(K)))


def _with_epsilon(work: Workload, epsilon: float) -> Workload:
    return replace(work, total=PrivacyParams(f"{epsilon:.6g}", work.total.exact_delta))


QUANTITIES = {
    "queries": _Quantity(
        lambda work: work.queries, lambda work, Q: replace(work, queries=round(Q)), float(MOST_QUERIES), 1.0
    ),
    "voters": _Quantity(lambda work: work.voters.K, _with_voters, 1.0, float(MOST_VOTERS)),
    "epsilon": _Quantity(lambda work: work.total.epsilon, _with_epsilon, LEAST_EPSILON, LARGEST_EPSILON),
}


def affordable(
    workload: Workload,
    right: float,
    what: str = "queries",
    *,
    prior: Prior | None = None,
    report: Callable[[str], None] = lambda _: None,
    stoppable: bool = False,
) -> Workload:
    """Find the most queries, the fewest voters or the least total ε at which a plan has a share of right labels.

    What else the workload says stays. The workload that is returned was planned for, and has the share; one that is
    harder by 2 %, or by one, has not.

    Parameters
    ----------
    workload, prior
        As for `darrm.plan.plan`; the search begins at the number that the workload says.
    right
        The share of right labels that is wanted, under the prior.
    what
        ``"queries"``, ``"voters"`` or ``"epsilon"``.
    report
        Called with a few words before each plan.
    stoppable
        Whether Ctrl-C (`KeyboardInterrupt`) returns the hardest workload that had the share until then, with a warning.

    Raises
    ------
    PlanError
        If no number gives the share, or none is known when the search is stopped.

    Examples
    --------
    >>> from darrm import Voters
    >>> work = Workload(Voters(101, PrivacyParams("inf"), overlap=1), 10, PrivacyParams(1))
    >>> affordable(work, 0.9, "epsilon").total
    PrivacyParams(epsilon=0.984375, delta=0)
    """
    checks.probability(right=right)
    if what not in QUANTITIES:
        checks.fail("what", what, " or ".join(QUANTITIES))
    if what == "voters" and workload.voters.own is not None:
        checks.fail("what", what, "queries or epsilon", "these voters are told apart")
    quantity = QUANTITIES[what]
    tried: dict[Workload, bool] = {}

    def enough(value: float) -> bool:
        asked = quantity.put(workload, value)
        if asked not in tried:
            report(f"{right:.4g} right: trying {what} {quantity.of(asked):,.5g}")
            try:
                tried[asked] = plan(asked, prior=prior).best.right >= right
            except PlanError:  # no release at all
                tried[asked] = False
        return tried[asked]

    try:
        return quantity.put(workload, _last_enough(enough, quantity, workload, (right, what)))
    except KeyboardInterrupt:
        known = [asked for asked, is_enough in tried.items() if is_enough]
        if not stoppable:
            raise
        if not known:
            raise PlanError(
                f"stopped before any {what} with {right:.4g} right labels were found: give it more time"
            ) from None
        warnings.warn("stopped early: what follows is the best until then, and not the best of all", stacklevel=2)
        return min(known, key=lambda asked: abs(quantity.of(asked) - quantity.hardest))


def _last_enough(
    enough: Callable[[float], bool], quantity: _Quantity, workload: Workload, wanted: tuple[float, str]
) -> float:
    """Double or halve until one value is enough and one is not, then bisect."""
    right, what = wanted
    whole = float if what == "epsilon" else lambda number: float(round(number))
    value = float(quantity.of(workload))
    good = enough(value)
    end = quantity.hardest if good else quantity.easiest
    ends = {good: value}
    while len(ends) < 2:
        if value == end and good:
            return value
        if value == end:
            raise PlanError(f"no {what} up to {end:,.5g} gives {right:.4g} right labels under this prior")
        value = min(2.0 * value, end) if end > value else max(whole(value / 2.0), end)
        ends[enough(value)] = value
    return last_allowed(enough, ends[True], ends[False], tolerance=TOLERANCE)
