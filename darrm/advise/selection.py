"""Selection mechanisms as releases of a majority: the exponential mechanism and permute-and-flip.

They know the votes only, so a person who reaches t voters moves t votes. With M = 2l − K > 0 the lead of the majority:

* the exponential mechanism [MT07] takes a class with probability proportional to e^{ε₀·count/(2t)}: for two classes
  Pr[truth] = 1/(1 + e^{−ε₀M/(2t)}), and t moved votes change the log-odds by ε₀;
* permute-and-flip [MS20] takes the leader with probability 1 − ½e^{−ε₀M/(2t)}.

Both are laws of one bit for every number of ones, so their Rényi curve and their privacy profile are computed from all
pairs of neighbors, in log space: the accountant knows as much about them as about a table of our own.
"""

import math
from collections.abc import Callable

import numpy as np

from darrm.advise.noisy_counts import leads
from darrm.gamma.priors import Prior
from darrm.losses.charges import Charge
from darrm.losses.profile import PrivacyProfile
from darrm.losses.renyi import RenyiCurve
from darrm.plan.budget import account_of, largest_within
from darrm.plan.option import ReleaseOption
from darrm.privacy import LARGEST_EXPONENT, PrivacyParams
from darrm.probability import Array
from darrm.problem import Workload

ROUNDING = 1e-12  # of a curve, relative, and of a profile, absolute
PROFILE_POINTS = 129


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
        return Charge(name, guarantee=PrivacyParams(epsilon), renyi=curve, profile=profile)

    epsilon = largest_within(workload, charge)
    return ReleaseOption(
        name=name,
        workload=workload,
        truth=-np.expm1(log_lies(epsilon)),
        cost=account_of(workload, charge(epsilon)).spent(workload.total.delta).bounds[0],
        settings={"epsilon": epsilon},
        only_compared="this library does not draw from it",
    )


def curve_of_votes(log_lies: Array, K: int, moved: int) -> RenyiCurve:
    """Compute the Rényi curve of a bit that depends on the number of ones, where a person moves up to so many votes.

    ``log_lies`` is log Pr[the answer is not the majority] for l = floor(K/2) + 1 … K; a tie is a fair coin.
    Randomized response with ε = 1:

    >>> lie = np.log([1.0 / (1.0 + math.e)])
    >>> bool(np.allclose(curve_of_votes(lie, 1, 1).values, RenyiCurve.of_pure(1.0).values))
    True
    """

    def value_at(orders: Array) -> Array:
        worst = np.zeros(orders.shape)
        a = orders[:, None]
        for (p_one, q_one), (p_zero, q_zero) in _neighbors(log_lies, K, moved):
            log_sum = np.logaddexp(a * p_one - (a - 1.0) * q_one, a * p_zero - (a - 1.0) * q_zero)
            np.maximum(worst, np.max(log_sum, axis=1) / (orders - 1.0), out=worst)
        return worst * (1.0 + ROUNDING)

    return RenyiCurve.of(value_at)


def profile_of_votes(log_lies: Array, K: int, moved: int) -> PrivacyProfile | None:
    """Compute the privacy profile of such a bit, rounded up: max over neighbors and answers of max(0, p − e^ε·q).

    From ε = 0 to the largest privacy loss, where δ = 0; None where that loss is beyond what a profile may hold.
    Randomized response with ε = log 3 has total variation distance 1/2:

    >>> profile = profile_of_votes(np.log([0.25]), 1, 1)
    >>> round(profile.deltas[0], 9), round(profile.epsilons[-1] - math.log(3.0), 9)
    (0.5, 0.0)
    """
    answers = [answer for pair in _neighbors(log_lies, K, moved) for answer in pair]
    largest = max(float(np.max(p - q)) for p, q in answers)
    top = largest + ROUNDING * (1.0 + largest)
    if top > LARGEST_EXPONENT:
        return None
    grid = np.linspace(0.0, top, PROFILE_POINTS)
    deltas = np.zeros(PROFILE_POINTS)
    for p, q in answers:
        # an exponent above 0 belongs to a difference below 0
        scaled = np.exp(np.minimum(grid[:, None] + q, 0.0))
        np.maximum(deltas, np.max(np.exp(p) - scaled, axis=1), out=deltas)
    deltas[:-1] += ROUNDING  # the last loss was rounded up instead
    deltas[-1] = 0.0
    falling = np.minimum(1.0, np.maximum.accumulate(deltas[::-1])[::-1])
    return PrivacyProfile(tuple(grid.tolist()), tuple(falling.tolist()))


def _neighbors(log_lies: Array, K: int, moved: int) -> list[tuple[tuple[Array, Array], tuple[Array, Array]]]:
    """List log (Pr[answer | l + t], Pr[answer | l]) of the answers 1 and 0 for all l, one entry a distance t.

    The other way round it is the same with 0 and 1 exchanged: Pr[1 | l] = Pr[0 | K − l].
    """
    log_zero = np.full(K + 1, math.log(0.5))
    log_zero[K // 2 + 1 :] = log_lies
    log_zero[: log_lies.size] = np.log1p(-np.exp(log_lies))[::-1]
    log_one = log_zero[::-1]
    return [((log_one[t:], log_one[:-t]), (log_zero[t:], log_zero[:-t])) for t in range(1, moved + 1)]
