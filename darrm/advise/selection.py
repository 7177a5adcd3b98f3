"""Selection mechanisms as releases of a majority: the exponential mechanism and permute-and-flip.

They know the votes only, so a person who reaches t voters moves t votes. With M = 2l − K > 0 the lead of the majority:

* the exponential mechanism [MT07] takes a class with probability proportional to e^{ε₀·count/(2t)}: for two classes
  Pr[truth] = 1/(1 + e^{−ε₀M/(2t)}), and t moved votes change the log-odds by ε₀;
* permute-and-flip [MS20] takes the leader with probability 1 − ½e^{−ε₀M/(2t)}.

Both are laws of one bit for every number of ones, so their Rényi curve and their privacy profile are exact
(`darrm.losses.vote_counts`): the accountant knows as much about them as about a table of our own.
"""

import math
from collections.abc import Callable

import numpy as np

from darrm.advise.noisy_counts import leads
from darrm.laws.priors import Prior
from darrm.losses.charges import Charge
from darrm.losses.vote_counts import curve_of_votes, profile_of_votes
from darrm.plan.budget import account_of, counted, largest_within
from darrm.plan.option import ReleaseOption
from darrm.privacy import PrivacyParams
from darrm.probability import Array
from darrm.problem import Workload


def exponential_mechanism(workload: Workload, _prior: Prior) -> ReleaseOption:
    """Weigh the two classes by e^{ε₀·count/(2t)} [MT07], with the largest ε₀ that the accountant admits."""
    return _selection(workload, "exponential mechanism", lambda exponent: np.negative(np.logaddexp(0.0, exponent)))


def permute_and_flip(workload: Workload, _prior: Prior) -> ReleaseOption:
    """Take the leader unless a flip with probability e^{−ε₀M/(2t)} says otherwise [MS20], with the largest such ε₀."""
    return _selection(workload, "permute-and-flip", lambda exponent: -math.log(2.0) - exponent)


def _selection(workload: Workload, name: str, log_lie: Callable[[Array], Array]) -> ReleaseOption:
    """Calibrate a mechanism that lies with probability exp(log_lie(ε₀M/(2t)))."""
    voters, lead = workload.voters, leads(workload.voters.K).astype(np.float64)

    def log_lies(epsilon: float) -> Array:
        return log_lie(epsilon * lead / (2.0 * voters.reached))

    def charge(epsilon: float) -> Charge:
        lies = log_lies(epsilon)
        curve = curve_of_votes(lies, voters.K, voters.reached)
        profile = profile_of_votes(lies, voters.K, voters.reached)
        return Charge(name, PrivacyParams(epsilon), curve, profile, reached=voters.reached)

    epsilon = largest_within(counted(workload), charge)
    return ReleaseOption(
        name=name,
        workload=workload,
        truth=-np.expm1(log_lies(epsilon)),
        cost=account_of(workload, charge(epsilon)).spent(workload.total.delta).bounds[0],
        settings={"epsilon": epsilon},
        only_compared="it is counted by its exact law of two classes, which plan tries and releases as a table",
    )
