"""Noisy counts and selection mechanisms as releases of a majority: GNMax, LNMax, exponential, permute-and-flip.

They know the votes only, so a person who reaches t voters moves t votes, whether the voters are private or not. With
M = 2l − K > 0 the lead of the majority:

* GNMax and LNMax add noise to both counts; the answer is wrong if the difference of the noises exceeds M, half the
  time if it equals M. The two counts move by t each, in opposite directions: sensitivity √2·t for Gaussian noise, and
  2γt for Laplace noise of scale 1/γ;
* the exponential mechanism [MT07] takes a class with probability proportional to e^{ε₀·count/(2t)}: for two classes
  Pr[truth] = 1/(1 + e^{−ε₀M/(2t)}), and t moved votes change the log-odds by ε₀;
* permute-and-flip [MS20] takes the leader with probability 1 − ½e^{−ε₀M/(2t)}.

The last two are laws of one bit for every number of ones, so their Rényi curve and their privacy profile are computed
from all pairs of neighbours, in log space: the accountant knows as much about them as about a table of our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from darrm.account.accountant import PrivacyAccountant, Spent
from darrm.losses.charges import Charge
from darrm.losses.gaussian import SENSITIVITY, Calibration, analytic_sigma, renyi_sigma
from darrm.losses.profile import PrivacyProfile
from darrm.losses.renyi import RenyiCurve
from darrm.pate.noise_tails import laplace_log_tails
from darrm.plan.option import ReleaseOption
from darrm.privacy import LARGEST_EXPONENT, PrivacyParams
from darrm.probability.bisection import last_allowed
from darrm.problem import Workload

Array = NDArray[np.float64]

BISECTIONS = 30
SPAN = 12.0  # standard deviations of a discrete Gaussian that are written down; what is left is below 1e-32
WIDEST = 4.0  # times the total ε: with δ > 0 one query may have more than ε
ROUNDING = 1e-12  # of a comparison's curve, relative, and of its profile, absolute
PROFILE_POINTS = 129  # of a comparison's profile


def gnmax_of_the_paper(workload: Workload) -> ReleaseOption:
    """GNMax with the σ of [D, Section D.2.1], for all queries together: discrete noise, as it is released."""
    found = renyi_sigma(workload.total, workload.queries)
    sigma = found.value * workload.voters.reached
    curve = RenyiCurve.of(lambda orders: orders * (workload.voters.reached / sigma) ** 2)
    spent = _spent(Charge(f"GNMax(sigma={sigma:g})", renyi=curve), workload)
    return ReleaseOption(
        "GNMax, paper's σ",
        workload.voters.K,
        1.0 - gaussian_lies(workload.voters.K, sigma),
        spent.epsilon,
        spent.bound,
        {"sigma": sigma},
    )


def gnmax_tight(workload: Workload) -> ReleaseOption:
    """GNMax with the least σ that any accounting of its noisy counts allows [BW18, Theorem 8], with continuous noise.

    All Q answers together are one Gaussian mechanism of sensitivity √(2Q)·t, whose (ε, δ) is known exactly.
    """
    sensitivity = SENSITIVITY * math.sqrt(workload.queries) * workload.voters.reached
    sigma = analytic_sigma(workload.total, sensitivity=sensitivity).value
    lead = 2 * _levels(workload.voters.K) - workload.voters.K
    truth = np.asarray(ndtr(lead / (sigma * math.sqrt(2.0))), dtype=np.float64)
    name, bound = "GNMax, tight σ", "analytic Gaussian, continuous noise"
    return ReleaseOption(name, workload.voters.K, truth, workload.total.epsilon, bound, {"sigma": sigma})


def lnmax(workload: Workload) -> ReleaseOption:
    """LNMax with the least discrete Laplace noise that the accountant admits."""

    def charge(gamma: float) -> Charge:
        rate = gamma * workload.voters.reached
        curve = RenyiCurve.of(lambda orders: np.minimum(2.0 * rate**2 * orders, 2.0 * rate))
        return Charge(f"LNMax(gamma={gamma:g})", guarantee=PrivacyParams(2.0 * rate), renyi=curve)

    gamma = largest_within(workload, "gamma", charge).value
    tails = np.exp(laplace_log_tails(workload.voters.K + 1, gamma, "discrete"))
    lead = 2 * _levels(workload.voters.K) - workload.voters.K
    truth = 1.0 - 0.5 * (tails[lead] + tails[lead + 1])
    spent = _spent(charge(gamma), workload)
    return ReleaseOption("LNMax", workload.voters.K, truth, spent.epsilon, spent.bound, {"gamma": gamma})


def exponential_mechanism(workload: Workload) -> ReleaseOption:
    """Weigh the two classes by e^{ε₀·count/(2t)} [MT07], with the largest ε₀ that the accountant admits."""
    return _selection(workload, "exponential mechanism", lambda exponent: np.negative(np.logaddexp(0.0, exponent)))


def permute_and_flip(workload: Workload) -> ReleaseOption:
    """Take the leader unless a flip with probability e^{−ε₀M/(2t)} says otherwise [MS20], with the largest such ε₀."""
    return _selection(workload, "permute-and-flip", lambda exponent: -math.log(2.0) - exponent)


def _selection(workload: Workload, name: str, log_lie: Callable[[Array], Array]) -> ReleaseOption:
    lead = np.asarray(2 * _levels(workload.voters.K) - workload.voters.K, dtype=np.float64)

    def log_lies(epsilon: float) -> Array:
        return log_lie(epsilon * lead / (2.0 * workload.voters.reached))

    def charge(epsilon: float) -> Charge:
        lies = log_lies(epsilon)
        curve = curve_of_votes(lies, workload.voters.K, workload.voters.reached)
        profile = profile_of_votes(lies, workload.voters.K, workload.voters.reached)
        return Charge(name, guarantee=PrivacyParams(epsilon), renyi=curve, profile=profile)

    epsilon = largest_within(workload, "epsilon", charge).value
    spent = _spent(charge(epsilon), workload)
    truth = -np.expm1(log_lies(epsilon))
    return ReleaseOption(name, workload.voters.K, truth, spent.epsilon, spent.bound, {"epsilon": epsilon})


def curve_of_votes(log_lies: Array, K: int, moved: int) -> RenyiCurve:
    """Compute the Rényi curve of a bit that depends on the number of ones, where a person moves up to so many votes.

    Parameters
    ----------
    log_lies
        log Pr[the answer is not the majority] for l = floor(K/2) + 1 … K; a tie is a fair coin.
    K, moved
        Numbers of voters and of votes that one person moves.

    Examples
    --------
    Randomised response with ε = 1:

    >>> lie = np.log([1.0 / (1.0 + math.e)])
    >>> bool(np.allclose(curve_of_votes(lie, 1, 1).values, RenyiCurve.of_pure(1.0).values))
    True
    """
    pairs = _neighbours(log_lies, K, moved)

    def value_at(orders: Array) -> Array:
        worst = np.zeros(orders.shape)
        for index, order in enumerate(orders):
            for (p_one, p_zero), (q_one, q_zero) in pairs:
                one = order * p_one - (order - 1.0) * q_one
                zero = order * p_zero - (order - 1.0) * q_zero
                largest = float(np.max(np.logaddexp(one, zero)))
                worst[index] = max(worst[index], largest / (order - 1.0))
        return worst * (1.0 + ROUNDING)

    return RenyiCurve.of(value_at)


def profile_of_votes(log_lies: Array, K: int, moved: int) -> PrivacyProfile | None:
    """Compute the privacy profile of such a bit, rounded up: max over neighbours and answers of max(0, p − e^ε·q).

    Parameters
    ----------
    log_lies, K, moved
        As for `curve_of_votes`.

    Returns
    -------
    profile
        From ε = 0 to the largest privacy loss, where δ = 0; None where that loss is beyond what a profile may hold.

    Examples
    --------
    Randomised response with ε = log 3 has total variation distance 1/2:

    >>> profile = profile_of_votes(np.log([0.25]), 1, 1)
    >>> round(profile.deltas[0], 9), round(profile.epsilons[-1] - math.log(3.0), 9)
    (0.5, 0.0)
    """
    answers = [(p, q) for first, second in _neighbours(log_lies, K, moved) for p, q in zip(first, second, strict=True)]
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


def _neighbours(log_lies: Array, K: int, moved: int) -> list[tuple[tuple[Array, Array], tuple[Array, Array]]]:
    """List (log Pr[1], log Pr[0]) of all numbers of ones and of their neighbours, both ways, one entry a distance."""
    log_zero = np.full(K + 1, math.log(0.5))
    log_zero[K // 2 + 1 :] = log_lies
    log_zero[: log_lies.size] = np.log1p(-np.exp(log_lies))[::-1]
    log_one = log_zero[::-1]
    found = []
    for t in range(1, moved + 1):
        more, fewer = ((log_one[cut], log_zero[cut]) for cut in (slice(t, None), slice(None, -t)))
        found += [(more, fewer), (fewer, more)]
    return found


def largest_within(workload: Workload, name: str, charge: Callable[[float], Charge]) -> Calibration:
    """Bisect for the largest parameter whose Q charges the accountant admits; a larger one costs more."""

    def admitted(parameter: float) -> bool:
        account = PrivacyAccountant(charges=[charge(parameter).repeated(workload.queries)])
        return account.admits(workload.total)

    found = last_allowed(admitted, 0.0, WIDEST * workload.total.epsilon, steps=BISECTIONS)
    return Calibration(name, found, workload.total, "the accountant")


def gaussian_lies(K: int, sigma: float) -> Array:
    """Compute the probability of the wrong class for discrete Gaussian noise of σ on both counts, ties shared.

    Returns
    -------
    array of shape (K − floor(K/2),) for l = floor(K/2) + 1 … K

    Examples
    --------
    >>> gaussian_lies(3, 1.0).round(4)
    array([0.2491, 0.0206])
    """
    reach = max(K + 1, math.ceil(SPAN * sigma))
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2.0 * sigma**2))
    difference = np.convolve(weights, weights) / np.sum(weights) ** 2  # of −2·reach … 2·reach
    exceeds = np.cumsum(difference[::-1])[::-1]
    lead = 2 * _levels(K) - K
    centre = 2 * reach
    return np.asarray(0.5 * (exceeds[centre + lead] + exceeds[centre + lead + 1]))


def _levels(K: int) -> NDArray[np.int64]:
    return np.arange(K // 2 + 1, K + 1)


def _spent(charge: Charge, workload: Workload) -> Spent:
    return PrivacyAccountant(charges=[charge.repeated(workload.queries)]).spent(workload.total.delta)
