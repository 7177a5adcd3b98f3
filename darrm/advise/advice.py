"""Which aggregator to use: every option that applies to a workload, ranked by its expected accuracy.

What is counted depends on how the voters draw their randomness. Private voters that draw it afresh at every query
compose a query at a time. Private *models* do not: their votes on all queries share the training's randomness, so only
two statements are proved for many queries, and only these are used. Either any number of answers is post-processing of
the models a person reaches (then no noise is needed), or the votes count as those of voters that are not private. The
latter holds because, given the models of the untouched voters, which have the same law on both data sets, all queries
are about a vote of which a person moves at most t.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from darrm.account.bounds import models_bound
from darrm.advise.rivals import rivals
from darrm.errors import PlanError
from darrm.gamma.priors import CommonP, Prior
from darrm.plan.option import ReleaseOption
from darrm.plan.search import plan
from darrm.problem import Workload

NO_NOISE = "no noise: private models"
OURS = "ours"


@dataclass(frozen=True)
class Advice:
    """The options that apply, the best first, and what else should be known.

    Attributes
    ----------
    workload
        What was asked.
    counted_as
        The workload that the options were calibrated to: the votes alone where the voters are models and queries many.
    options
        Ranked by `ReleaseOption.accuracy` under the prior.
    absent
        (name, reason) of what does not apply.
    remarks
        Sentences about this workload.
    prior
        The public belief.
    """

    workload: Workload
    counted_as: Workload
    options: tuple[ReleaseOption, ...]
    absent: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]
    prior: Prior


def advise(workload: Workload, *, prior: Prior | None = None) -> Advice:
    """Calibrate everything that applies, and rank it.

    Parameters
    ----------
    workload
        The voters, how many votes are released, and the budget of all of them together.
    prior
        A public belief with linear expected error; `CommonP` by default.

    Raises
    ------
    PlanError
        If nothing applies.

    Examples
    --------
    >>> from darrm import PrivacyParams, Voters, Workload
    >>> voters = Voters(11, PrivacyParams("0.0892", "1e-4"), overlap=1, models=True)
    >>> advise(Workload(voters, 100, PrivacyParams(1, "1e-4"))).options[0].name
    'no noise: private models'
    """
    belief = CommonP() if prior is None else prior
    options: list[ReleaseOption] = []
    absent: list[tuple[str, str]] = []
    counted = workload.counted()
    if workload.voters.models and workload.voters.each.is_private:
        cap = _private_models(workload)
        if isinstance(cap, ReleaseOption):
            options.append(cap)
        else:
            absent.append((NO_NOISE, cap))
    try:
        found = plan(counted, prior=belief)
        options.append(found.option)
    except PlanError as error:
        absent.append((OURS, str(error)))
    others = rivals(counted, belief)
    options += others.options
    absent += others.absent
    if not options:
        raise PlanError("nothing applies: " + "; ".join(f"{name}: {reason}" for name, reason in absent))
    options.sort(key=lambda option: -option.accuracy(belief))  # stable: ours stays before its equals
    remarks = tuple(_remarks(workload, counted, options))
    return Advice(workload, counted, tuple(options), tuple(absent), remarks, belief)


def _private_models(workload: Workload) -> ReleaseOption | str:
    """Answer without noise if the models that a person reaches stay within the budget; else say what they cost."""
    cap = models_bound(workload.voters, workload.total.delta)
    reached = workload.voters.reached
    if cap is None:
        return f"the {reached} models a person reaches fail with more than delta = {workload.total.delta:g}"
    if cap.epsilon > workload.total.epsilon:
        return f"the {reached} models a person reaches cost epsilon = {cap.epsilon:.6g} together"
    truth = np.ones(workload.voters.K - workload.voters.K // 2)
    return ReleaseOption(NO_NOISE, workload.voters.K, truth, cap.epsilon, cap.name)


def _remarks(workload: Workload, counted: Workload, options: list[ReleaseOption]) -> list[str]:
    found = []
    best = options[0]
    if best.name == NO_NOISE:
        found.append("No noise is needed: any number of answers is post-processing of models that are private already.")
    elif bool(np.all(best.truth == 1.0)):
        parallel = "a person reaches one voter, so an answer costs what one voter costs (parallel composition)"
        found.append(
            f"No noise is needed: {parallel if workload.voters.reached == 1 else 'the voters are private enough'}."
        )
    if counted != workload:
        found.append(
            "Models that answer many queries share their training's randomness, and adding up per-query guarantees is "
            "not proved for them: their votes are counted as those of voters that are not private."
        )
    elif workload.voters.each.is_private and workload.queries > 1:
        found.append("Counted a query at a time: voters draw fresh randomness for each. Trained models: say --models.")
    if not counted.voters.each.is_private and counted.voters.reached == counted.voters.K:
        found.append(
            "One person may move every vote, so nothing beats randomised response. If a person's data reach fewer "
            "voters (disjoint shards: one), say so with --overlap."
        )
    return found
