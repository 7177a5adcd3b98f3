"""What would help where the budget is too small for the ensemble: more voters, fewer queries, a larger ε.

What a noisy maximum costs does not depend on the number of voters, so more of them see the same noise. The other two
ask how much noise leaves `GOAL` of the labels right, and then what the accountant says of it.
"""

import math
from collections.abc import Callable
from functools import lru_cache

from darrm.account.accountant import PrivacyAccountant
from darrm.plan.budget import account_of, counted
from darrm.plan.option import Option
from darrm.plan.search import Plan
from darrm.plan.share_right import MOST_OPEN_VOTERS, Law, Measure
from darrm.probability.bisection import last_allowed
from darrm.problem import MOST_VOTERS, Workload, is_open
from darrm.system.command_line import rounded_up

GOAL = 0.9  # of the labels
MORE = 5  # times as many voters
DRAWS = 512  # of histograms: what is said has two digits
TOLERANCE = 0.02  # relative


@lru_cache(maxsize=16)  # a report asks for its text and for its data
def remedies(plan: Plan) -> tuple[str, ...]:
    """Say with numbers what would make most labels right; nothing where most are, or for two classes.

    Most are where the share lies beyond halfway from that of a label that looks at nothing to one.
    """
    if not plan.options:
        return ()
    best, measure = plan.best, Measure(plan.workload, plan.prior)
    known, coins = best.share_right, measure.coin
    if best.expected_error is not None or known is None or coins is None or known.value >= (1.0 + coins.value) / 2.0:
        return ()
    # the law of a table is one for so many voters: what else would help is asked of the best noise
    noisy = next((option for option in plan.options if option.table is None), None)
    helpful = [] if noisy is None else [*_more_voters(noisy, measure), *_less_noise(noisy, measure)]
    now = f"Under this prior {known.value:.0%} of the labels would be right."
    return (f"{now} What would help: {', '.join(helpful)}.",) if helpful else ()


def reaches_all(workload: Workload) -> tuple[str, ...]:
    """Say that ``--overlap`` would help, where one person may move every vote of voters that count as plain ones.

    >>> from darrm import PrivacyParams, Voters
    >>> [len(reaches_all(Workload(Voters(9, PrivacyParams("inf"), T), 1, PrivacyParams(1)))) for T in (None, 9, 1)]
    [1, 1, 0]
    """
    voters = counted(workload).voters
    if not voters.are_plain or voters.reached < voters.K:
        return ()
    told = "If a person's data reach fewer voters (disjoint shards: one), say so with --overlap."
    return (f"One person may move every vote, so nothing beats randomized response. {told}",)


def as_open(listed: int) -> tuple[str, ...]:
    """Say that a long list is planned like open answers.

    >>> as_open(50_000)
    ('A list of 50,000 classes is planned like open answers: a class that nobody said has no noise, and is no answer.',)
    """
    if not listed:
        return ()
    planned = f"A list of {listed:,} classes is planned like open answers"
    return (f"{planned}: a class that nobody said has no noise, and is no answer.",)


def _right(measure: Measure, law: Law | None, K: int | None = None) -> float:
    share = None if law is None else measure.share_right(law, K, DRAWS)
    return math.nan if share is None else share.value


def _more_voters(best: Option, measure: Measure) -> list[str]:
    voters = best.workload.voters
    if voters.overlap is None:
        return []

    def share(K: float) -> float:
        return _right(measure, best.law, round(K))

    largest = MOST_OPEN_VOTERS if is_open(best.workload.classes) else MOST_VOTERS
    more = min(MORE * voters.K, largest)
    right = share(more)
    helpful = [f"{right:.0%} with {more:,} voters"]
    if right < GOAL <= share(largest):
        needed = last_allowed(
            lambda K: share(K) >= GOAL, float(largest), float(more), tolerance=TOLERANCE, geometric=True
        )
        helpful.append(f"{GOAL:.0%} with about {math.ceil(rounded_up(needed, 2)):,}")
    return [" and ".join(helpful) + f" (a person reaching {voters.reached})"]


def _less_noise(best: Option, measure: Measure) -> list[str]:
    work, release = best.workload, counted(best.workload)
    if best.place is None:
        return []
    parameter, rate = best.place

    def enough(rate: float) -> bool:
        return _right(measure, parameter.make(parameter.value(rate)).law) >= GOAL

    most = _first(enough, rate)
    if most is None:
        return []
    charge = parameter.make(parameter.value(last_allowed(enough, most, rate, tolerance=TOLERANCE))).charge
    queries = PrivacyAccountant(release.voters).queries_that_fit(charge, release.total, most=work.queries)
    epsilon = account_of(work, charge).smallest_epsilon(work.total.delta)
    helpful = [f"{GOAL:.0%} with {queries:,} of the {work.queries:,} queries"] if queries else []
    return helpful + ([f"{GOAL:.0%} with a total epsilon of {epsilon:.3g}"] if math.isfinite(epsilon) else [])


def _first(enough: Callable[[float], bool], rate: float) -> float | None:
    """Double the rate until it is enough; None if the votes without noise are not, or a thousand times is not."""
    for _ in range(10):
        rate *= 2.0
        if enough(rate):
            return rate
    return None
