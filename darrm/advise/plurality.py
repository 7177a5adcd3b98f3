"""What is only compared for more than two classes: Gaussian noise that is charged for the counts, not for the label."""

from darrm.account.bounds import Bound
from darrm.advise.noisy_counts import sigma_by_counts
from darrm.laws.priors import Prior
from darrm.mechanisms.noisy_law import winning_probabilities
from darrm.plan.option import ReleaseOption
from darrm.plan.plurality import leading
from darrm.plan.share_right import share_right
from darrm.probability.integer_noise import DiscreteGaussian
from darrm.problem import Workload

BY_COUNTS = "GNMax, tight σ"
TWO_CLASSES_ONLY = "it is for two classes only"


def gnmax_by_counts(workload: Workload, prior: Prior) -> ReleaseOption:
    """GNMax with the least σ that any accounting of its noisy counts allows; `PlanError` for δ = 0."""
    voters, sigma = workload.voters, sigma_by_counts(workload)
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
