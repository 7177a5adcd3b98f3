"""What releases the answers of an estimator: the best release that a plan finds, or the caller's own aggregator."""

from dataclasses import replace
from functools import lru_cache
from typing import cast

import numpy as np

from darrm.aggregator import Aggregator
from darrm.errors import PlanError, checks
from darrm.estimators.confident import LimitedConfident
from darrm.laws.priors import parse
from darrm.losses.charges import Charge
from darrm.pate.confident import CheckedGNMax, ScoredGNMax
from darrm.pate.tested import TestedRun
from darrm.plan.budget import account_of, needs_no_noise
from darrm.plan.families import named
from darrm.plan.family import calibrate
from darrm.plan.option import Option
from darrm.plan.search import plan
from darrm.plan.share_right import Measure
from darrm.problem import Voters, Workload
from darrm.system.extras import Untyped

BEST, CONFIDENT = "best", "confident"
PLANS_KEPT = 64  # a grid search fits the same workload over and over, and a plan takes seconds


def planned(workload: Workload, aggregator: Untyped, named: tuple[str, ...] = (BEST,)) -> Option:
    """Return what releases a workload within its total budget, planned without a look at data.

    Parameters
    ----------
    workload
        Voters, number of answers, budget.
    aggregator
        ``"best"``, or an `Aggregator` of the caller's, whose charge must fit.
    named
        The words that are allowed.

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
        advice = "its scores are those of queries in their order, and public inputs are asked in a random one"
        checks.fail("aggregator", checks.Found("a ScoredGNMax"), "one for any inputs", advice)
    charge: Charge = aggregator.charge()
    account = account_of(workload, charge)
    if not account.admits(workload.total):
        asked = f"{workload.queries} answers by {charge.what}"
        raise PlanError(f"{asked} do not fit into {workload.total}: take more noise, or fewer answers")
    return Option(
        name=charge.what,
        workload=workload,
        truth=np.full(workload.voters.half_size, np.nan),  # an aggregator says what it costs, not how often it is right
        spent=account.spent(workload.total.delta),
        aggregator=aggregator,
        instructions=(repr(aggregator),),
    )


def check_answers_all(aggregator: Untyped) -> None:
    """Raise `ValueError` for an aggregator that declines queries, of which a vote could only say that for nothing."""
    tested = isinstance(aggregator, TestedRun) and (aggregator.otherwise is None or aggregator.check is not None)
    if tested or isinstance(aggregator, CheckedGNMax | LimitedConfident):
        checks.fail("aggregator", repr(aggregator), "one that answers every query", "a PATEClassifier declines")


@lru_cache(maxsize=PLANS_KEPT)
def _best(workload: Workload) -> Option:
    if needs_no_noise(workload):
        # the votes are published as they are: a table of γ = 1 would be paid for at every question
        return replace(calibrate(workload, named("no noise")), aggregator=None)
    return plan(workload).option


@lru_cache(maxsize=PLANS_KEPT)
def tested_run(workload: Workload, aggregator: str, votes_look_like: str | None) -> TestedRun:
    """Plan a run that is tested first, for votes like public ones.

    Raises
    ------
    ValueError
        If it is not said what the votes look like, or the aggregator is neither ``"best"`` nor ``"confident"``.
    PlanError
        If votes like these pass at no noise.
    """
    if votes_look_like is None:
        advice = "a public belief, such as 'dirichlet:0.01' for teachers that mostly agree, or 'votes:FILE'"
        checks.fail("votes_look_like", None, "said where accounting='tested'", advice)
    family = {BEST: "GNMax, tested first, else by label", CONFIDENT: "Confident-GNMax, tested first"}
    checks.one_of(family, aggregator=aggregator)
    measure = Measure(workload, parse(votes_look_like, workload.classes))
    run = calibrate(workload, named(family[aggregator]), measure=measure).aggregator
    return cast("TestedRun", run)


def charge_of_models(voters: Voters) -> Charge:
    """Describe what private models cost whose answers need no noise: it is paid once, when they are trained.

    All K models together are one mechanism: a person's data reach one of them, which is (ε, Δ)-private.
    """
    return Charge(f"{voters.K} private models on disjoint shards", guarantee=voters.each, reached=1)
