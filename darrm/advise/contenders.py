"""The aggregators that are compared at one budget, and the one place where another is added.

A `Contender` says how to calibrate an aggregator to a workload, and how pages and pictures show it. `advise`, its
report, and `experiments.aggregators` with its tables and pictures go through the list: to add an aggregator, add it to
`CONTENDERS`, or hand a longer list to `advise` and to `experiments.aggregators.comparison.compare`. For more than two
classes the list comes from `darrm.plan.plurality.FAMILIES`, and one that is handed over is added.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from darrm.account.bounds import models_bound
from darrm.advise import noisy_counts, selection, tables
from darrm.errors import PlanError
from darrm.laws.priors import Prior
from darrm.plan.option import NO_NOISE, ReleaseOption, kind_of_votes
from darrm.plan.search import plan
from darrm.plan.share_right import ShareRight
from darrm.problem import Workload
from darrm.system.figures import BLACK, BLUE, GRAY, GREEN, ORANGE, PURPLE, SKY_BLUE, VERMILION


@dataclass(frozen=True)
class Contender:
    """An aggregator that may release a workload.

    Attributes
    ----------
    name
        As reports, tables and pictures show it.
    calibrate
        (workload, prior) → the best that it does within the workload's budget. Raises `PlanError` with the reason where
        it does not apply; None where the question does not arise. It must heed `darrm.plan.budget.counted`.
    about
        A sentence about how it is calibrated, for pages.
    color, linewidth
        Its line in pictures, where its place in the list gives the dashes: relatives may share a color.
    two_classes_only
        Whether nothing of the kind is known for more classes.
    """

    name: str
    calibrate: Callable[[Workload, Prior], ReleaseOption | None]
    about: str
    color: str
    linewidth: float = 1.2
    two_classes_only: bool = False


def no_noise(workload: Workload, _prior: object) -> ReleaseOption | None:
    """Publish the votes of private models as they are, if the models that a person reaches stay within the budget."""
    voters, total = workload.voters, workload.total
    if not (voters.models and voters.each.is_private):
        return None
    cap = models_bound(voters, total.delta)
    if cap is None:
        raise PlanError(f"the {voters.reached} models a person reaches fail with more than delta = {total.delta:g}")
    if cap.epsilon > total.epsilon:
        raise PlanError(f"the {voters.reached} models a person reaches cost epsilon = {cap.epsilon:.6g} together")
    return ReleaseOption(
        name="no noise",
        workload=workload,
        truth=np.ones(voters.half_size),
        cost=cap,
        instructions=(
            f"publish the {kind_of_votes(workload)} of the models' votes as it is, for as many queries as you like",
        ),
        remark=NO_NOISE,
        share_right=ShareRight(1.0),
    )


OURS = Contender(
    "ours",
    lambda workload, prior: plan(workload, prior=prior).option,
    "`darrm.plan.plan`, its total as the accountant reports it.",
    BLACK,
    2.4,
)
BY_COUNTS = "counted by its noisy counts, which cost more than the bit alone."
BY_LABEL = "counted by its label, for any number of classes, as `darrm.pate` charges it."
BY_BIT = (
    "the largest parameter that the accountant admits, given the exact Rényi curve and privacy profile of the bit "
    "that is released, as it is for ours."
)
BY_TABLE = "the largest allowance whose certified table the accountant admits."
CONTENDERS = (
    Contender("no noise: private models", no_noise, "the votes of private models as they are.", GRAY),
    OURS,
    Contender(
        "GNMax, paper's σ",
        noisy_counts.gnmax_of_the_paper,
        "σ from the Rényi bound of DaRRM's Appendix D.2.1, for all queries together; discrete noise; " + BY_COUNTS,
        BLUE,
    ),
    Contender(
        "GNMax, tight σ",
        noisy_counts.gnmax_tight,
        "the least σ for which Q answers together, one Gaussian mechanism, are (ε, δ)-private; continuous noise. No "
        "accounting of the noisy counts can allow less noise.",
        BLUE,
    ),
    Contender(
        "GNMax by label", noisy_counts.gnmax_by_label, "the least σ that the accountant admits; " + BY_LABEL, BLUE
    ),
    Contender("LNMax", noisy_counts.lnmax, "the largest γ that the accountant admits; " + BY_COUNTS, ORANGE),
    Contender(
        "LNMax by label", noisy_counts.lnmax_by_label, "the largest γ that the accountant admits; " + BY_LABEL, ORANGE
    ),
    Contender("exponential mechanism", selection.exponential_mechanism, BY_BIT, VERMILION),
    Contender("permute-and-flip", selection.permute_and_flip, BY_BIT, PURPLE),
    Contender("subsampling", tables.subsampling, BY_TABLE, GREEN, two_classes_only=True),
    Contender("double subsampling", tables.double_subsampling, BY_TABLE, GREEN, two_classes_only=True),
    Contender(
        "DaRRM of the paper",
        tables.darrm_of_the_paper,
        "one person may reach all voters, and a query is optimized for its (ε, δ).",
        SKY_BLUE,
        two_classes_only=True,
    ),
    Contender(
        "randomized response",
        tables.randomized_response,
        "one probability of the truth, the largest whose certified table the accountant admits.",
        GRAY,
        two_classes_only=True,
    ),
)
