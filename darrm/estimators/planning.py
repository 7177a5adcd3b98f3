"""The aggregator of an estimator: the best plan, or one of the caller."""

from dataclasses import replace
from functools import lru_cache
from typing import cast

import numpy as np

from darrm.aggregator import Aggregator
from darrm.errors import PlanError
from darrm.estimators.confident import LimitedConfident
from darrm.loss.privacy_cost import PrivacyCost
from darrm.pate.confident import CheckedGNMax, ScoredGNMax
from darrm.pate.tested import TestedRun
from darrm.plan.accuracy import Measure
from darrm.plan.budget import account_of, needs_no_noise
from darrm.plan.calibration import CalibratedMechanism, calibrate
from darrm.plan.mechanisms import RELEASED, named
from darrm.plan.planner import plan
from darrm.priors import parse
from darrm.problem import Voters, Workload
from darrm.util import checks
from darrm.util.extras import Untyped

BEST, CONFIDENT = "best", "confident"
PLANS_KEPT = 64  # a grid search repeats the same workload, and a plan takes seconds


def planned(workload: Workload, aggregator: Untyped, named: tuple[str, ...] = (BEST,)) -> CalibratedMechanism:
    """Return the release of a workload within its total budget, independent of data.

    Parameters
    ----------
    workload
        Voters, number of answers, budget.
    aggregator
        ``"best"``, or an `Aggregator` whose cost must be within the budget.
    named
        The allowed words.

    Raises
    ------
    ValueError
        If it is neither.
    PlanError
        If nothing fits into the budget.
    """
    if isinstance(aggregator, str) and aggregator == BEST:
        return _best(workload)
    if isinstance(aggregator, str | type) or not isinstance(aggregator, Aggregator):
        words = " or ".join(map(repr, named))
        checks.fail("aggregator", aggregator, f"{words}, or an aggregator such as darrm.pate.GNMax(40)")
    if isinstance(aggregator, ScoredGNMax):
        advice = "its scores are for queries in order, and public inputs are queried in random order"
        checks.fail("aggregator", checks.Found("a ScoredGNMax"), "one for any inputs", advice)
    charge: PrivacyCost = aggregator.privacy_cost()
    account = account_of(workload, charge)
    if not account.admits(workload.total):
        asked = f"{workload.queries} answers by {charge.what}"
        raise PlanError(f"{asked} do not fit into {workload.total}: take more noise, or fewer answers")
    return CalibratedMechanism(
        slug="",
        name=charge.what,
        workload=workload,
        curve=np.full(workload.voters.num_upper_levels, np.nan),  # the accuracy of an aggregator is unknown
        spent=account.spent(workload.total.delta),
        aggregator=aggregator,
    )


def check_answers_all(aggregator: Untyped) -> None:
    """Raise `ValueError` for an aggregator that abstains: a vote would spend budget without an answer."""
    tested = isinstance(aggregator, TestedRun) and (aggregator.otherwise is None or aggregator.check is not None)
    if tested or isinstance(aggregator, CheckedGNMax | LimitedConfident):
        checks.fail("aggregator", repr(aggregator), "one that answers every query", "a PATEClassifier declines")


@lru_cache(maxsize=PLANS_KEPT)
def _best(workload: Workload) -> CalibratedMechanism:
    if needs_no_noise(workload):
        # the votes need no noise: a table of γ = 1 would be debited for every query
        return replace(calibrate(workload, named("no-noise")), aggregator=None)
    return plan(workload, mechanisms=RELEASED).best


@lru_cache(maxsize=PLANS_KEPT)
def tested_run(workload: Workload, aggregator: str, votes_look_like: str | None) -> TestedRun:
    """Plan a propose-test-release run, for a public belief about the votes.

    Raises
    ------
    ValueError
        If the belief is missing, or the aggregator is neither ``"best"`` nor ``"confident"``.
    PlanError
        If no noise passes the test for such votes.
    """
    if votes_look_like is None:
        advice = "a public belief, such as 'dirichlet:0.01' for teachers that mostly agree, or 'votes:FILE'"
        checks.fail("votes_look_like", None, "said where accounting='tested'", advice)
    slugs = {BEST: "gnmax-tested-else", CONFIDENT: "confident-tested"}
    checks.one_of(slugs, aggregator=aggregator)
    measure = Measure(workload, parse(votes_look_like, workload.classes))
    run = calibrate(workload, named(slugs[aggregator]), measure=measure).aggregator
    return cast("TestedRun", run)


def charge_of_models(voters: Voters) -> PrivacyCost:
    """Describe the cost of private models whose answers need no noise, debited once, after their training.

    All K models together are one mechanism: a person's data influence one of them, which is (ε, Δ)-private.
    """
    return PrivacyCost(f"{voters.K} private models on disjoint shards", guarantee=voters.each, reached=1)
