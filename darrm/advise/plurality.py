"""What is only compared for more than two classes: Gaussian noise that is charged for the counts, not for the label."""

import math

from darrm.account.bounds import Bound
from darrm.errors import PlanError
from darrm.gamma.histogram_priors import HistogramPrior
from darrm.losses.gaussian import SENSITIVITY, analytic_sigma
from darrm.pate.noisy_law import winning_probabilities
from darrm.plan.budget import counted
from darrm.plan.option import ReleaseOption
from darrm.plan.plurality import leading
from darrm.plan.share_right import share_right
from darrm.probability.integer_noise import DiscreteGaussian
from darrm.problem import Workload

BY_COUNTS = "GNMax, tight σ"
TWO_CLASSES_ONLY = "it is for two classes only"


def gnmax_by_counts(workload: Workload, prior: HistogramPrior) -> ReleaseOption:
    """GNMax with the least σ that any accounting of its noisy counts allows [BW18, Theorem 8].

    All Q answers together are one Gaussian mechanism of sensitivity √(2Q)·t, whose (ε, δ) is known exactly, whatever
    the number of classes. `PlanError` for δ = 0.
    """
    total, voters = counted(workload).total, workload.voters
    if total.exact_delta == 0:
        raise PlanError("Gaussian noise gives no (epsilon, 0)")
    sigma = analytic_sigma(total, sensitivity=SENSITIVITY * math.sqrt(workload.queries) * voters.reached).value
    noise = DiscreteGaussian(sigma)
    return ReleaseOption(
        name=BY_COUNTS,
        workload=workload,
        truth=winning_probabilities(noise, leading(workload))[:, 0],
        cost=Bound("analytic Gaussian", workload.total.epsilon, "all answers are one Gaussian mechanism"),
        settings={"sigma": sigma},
        only_compared="it is charged for the noisy counts, which nobody sees",
        share_right=share_right(lambda counts: winning_probabilities(noise, counts), voters.K, workload.classes, prior),
    )
