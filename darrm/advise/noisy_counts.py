"""Noisy counts as releases of a majority: GNMax and LNMax.

They know the votes only, so a person who reaches t voters moves t votes, whether the voters are private or not. Both
add noise to both counts: with M = 2l − K > 0 the lead of the majority, the answer is wrong if the difference of the
noises exceeds M, half the time if it equals M. The two counts move by t each, in opposite directions: sensitivity √2·t
for Gaussian noise, and 2γt for Laplace noise of scale 1/γ. Those "by label" are charged for what is released alone, as
`darrm.pate` charges them (`darrm.losses.label`).
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.special import ndtr

from darrm.account.bounds import Bound
from darrm.aggregator import Aggregator
from darrm.errors import PlanError
from darrm.laws.priors import Prior
from darrm.losses.charges import Charge
from darrm.losses.gaussian import SENSITIVITY, analytic_sigma, renyi_sigma
from darrm.losses.renyi import RenyiCurve
from darrm.mechanisms.noise_tails import laplace_log_tails
from darrm.pate import GNMax, LNMax
from darrm.plan.budget import account_of, counted, largest_within
from darrm.plan.option import ReleaseOption
from darrm.privacy import PrivacyParams
from darrm.probability import Array
from darrm.problem import Workload

GAUSSIAN_REACH = 12.0  # standard deviations of a discrete Gaussian that are written down; what is left is below 1e-32
ENOUGH, AIM = 0.99, 0.997  # of ε: what is used at least, and what a corrected rate is to use
TRIALS = 8  # of rates, where the least noise is too much already, or the cost is far from linear
# of λt²/σ² and of λγ²t²: about what a label costs, where a search starts
GAUSSIAN_SHARE, LAPLACE_SHARE = 0.65, 0.67
LEAST_SIGMA, MOST_SIGMA = 0.5, 3e5  # of discrete noise, in votes; more would need gigabytes to be written down


def gnmax_of_the_paper(workload: Workload, _prior: Prior) -> ReleaseOption:
    """GNMax with the σ of [D, Section D.2.1], for all queries together: discrete noise, as it is released."""
    voters = workload.voters
    with _refused(workload):
        sigma = max(LEAST_SIGMA, renyi_sigma(counted(workload).total, workload.queries).value * voters.reached)
    curve = RenyiCurve.of(lambda orders: orders * (voters.reached / sigma) ** 2)
    charge = Charge("GNMax", renyi=curve, reached=voters.reached)
    return _option(workload, charge, 1.0 - gaussian_lies(voters.K, sigma), {"sigma": sigma})


def gnmax_tight(workload: Workload, _prior: Prior) -> ReleaseOption:
    """GNMax with the least σ that any accounting of its noisy counts allows, with continuous noise."""
    sigma = sigma_by_counts(workload)
    return ReleaseOption(
        name="GNMax",
        workload=workload,
        truth=np.asarray(ndtr(leads(workload.voters.K) / (sigma * math.sqrt(2.0))), dtype=np.float64),
        cost=Bound("analytic Gaussian, continuous noise", workload.total.epsilon, "[BW18, Theorem 8]"),
        settings={"sigma": sigma},
        only_compared="continuous noise is for experiments",
    )


def sigma_by_counts(workload: Workload) -> float:
    """Compute the least σ that any accounting of the noisy counts allows [BW18, Theorem 8]; `PlanError` for δ = 0.

    All Q answers together are one Gaussian mechanism of sensitivity √(2Q)·t, whose (ε, δ) is known exactly, whatever
    the number of classes.
    """
    sensitivity = SENSITIVITY * math.sqrt(workload.queries) * workload.voters.reached
    with _refused(workload):
        return analytic_sigma(counted(workload).total, sensitivity=sensitivity).value


def lnmax(workload: Workload, _prior: Prior) -> ReleaseOption:
    """LNMax with the least discrete Laplace noise that the accountant admits."""

    def charge(gamma: float) -> Charge:
        rate = gamma * workload.voters.reached
        curve = RenyiCurve.of(lambda orders: np.minimum(2.0 * rate**2 * orders, 2.0 * rate))
        return Charge("LNMax", guarantee=PrivacyParams(2.0 * rate), renyi=curve, reached=workload.voters.reached)

    gamma = largest_within(counted(workload), charge)
    return _option(workload, charge(gamma), _laplace_truth(workload.voters.K, gamma), {"gamma": gamma})


def _laplace_truth(K: int, gamma: float) -> Array:
    """Compute Pr[truth] under discrete Laplace noise on both counts, ties shared, for l = floor(K/2) + 1 … K."""
    tails = np.exp(laplace_log_tails(np.arange(K + 2), gamma, "discrete"))
    return np.asarray(1.0 - 0.5 * (tails[leads(K)] + tails[leads(K) + 1]))


def gnmax_by_label(workload: Workload, _prior: Prior) -> ReleaseOption:
    """GNMax with discrete noise that uses up what the accountant admits for its labels, to a percent."""
    goal, reached = counted(workload), workload.voters.reached
    by_counts = sigma_by_counts(workload)

    def estimate(rate: float) -> Charge:
        curve = RenyiCurve.of(lambda orders: GAUSSIAN_SHARE * orders * (rate * reached) ** 2)
        return Charge("GNMax by label", renyi=curve, reached=reached)

    def released(rate: float) -> GNMax:
        return GNMax(max(LEAST_SIGMA, 1.0 / rate), reached=reached)

    start = max(1.0 / by_counts, largest_within(goal, estimate))
    found = released(_certified(goal, start, lambda rate: released(rate).charge()))
    truth = 1.0 - gaussian_lies(workload.voters.K, found.sigma)
    return _option(workload, replace(found.charge(), what="GNMax by label"), truth, {"sigma": found.sigma}, found)


def lnmax_by_label(workload: Workload, _prior: Prior) -> ReleaseOption:
    """LNMax with discrete noise that uses up what the accountant admits for its labels, to a percent."""
    goal, reached = counted(workload), workload.voters.reached

    def estimate(gamma: float) -> Charge:
        rate = gamma * reached
        curve = RenyiCurve.of(lambda orders: np.minimum(LAPLACE_SHARE * rate**2 * orders, 2.0 * rate))
        return Charge("LNMax by label", PrivacyParams(2.0 * rate), curve, reached=reached)

    start = largest_within(goal, estimate)
    found = LNMax(_certified(goal, start, lambda gamma: LNMax(gamma, reached=reached).charge()), reached=reached)
    truth = _laplace_truth(workload.voters.K, found.gamma)
    return _option(workload, replace(found.charge(), what="LNMax by label"), truth, {"gamma": found.gamma}, found)


def _certified(workload: Workload, rate: float, charge: Callable[[float], Charge]) -> float:
    """Correct a rate by what its labels cost, which takes long to bound: the cost grows about linearly."""
    total, best = workload.total, 0.0
    for _ in range(TRIALS):
        account = account_of(workload, charge(rate))
        used = account.spent(total.delta).bounds[0].epsilon / total.epsilon
        admitted = account.admits(total)
        best = max(best, rate) if admitted else best
        if admitted and used > ENOUGH:
            break
        rate *= min(2.0, max(0.5, AIM / max(used, 1e-9)))
    if best == 0.0:
        raise PlanError(f"no noise was found whose labels fit into {total}")
    return best


def leads(K: int) -> NDArray[np.int64]:
    """M = 2l − K for l = floor(K/2) + 1 … K."""
    return 2 * np.arange(K // 2 + 1, K + 1) - K


def _option(
    workload: Workload, charge: Charge, truth: Array, settings: dict[str, float], aggregator: Aggregator | None = None
) -> ReleaseOption:
    """Account for all queries; an aggregator's own charge is about plain voters, and would be too much for models."""
    released = aggregator is not None and counted(workload) == workload
    lines = (
        f"from darrm.pate import {type(aggregator).__name__}",
        "from darrm.votes import Votes",
        f"{aggregator}.release(Votes.of_counts(counts))",
    )
    counts, plain = "its labels cost less than its noisy counts", "its ledger entry would be that of plain voters"
    return ReleaseOption(
        name=charge.what,
        workload=workload,
        truth=truth,
        cost=account_of(workload, charge).spent(workload.total.delta).bounds[0],
        settings=settings,
        aggregator=aggregator if released else None,
        instructions=lines if released else (),
        only_compared="" if released else counts if aggregator is None else plain,
    )


@contextmanager
def _refused(workload: Workload) -> Iterator[None]:
    """Turn a budget that no Gaussian noise meets into the reason for its absence."""
    if workload.total.exact_delta == 0:
        raise PlanError("Gaussian noise gives no (epsilon, 0)")
    try:
        yield
    except ValueError as error:
        raise PlanError(str(error)) from error


def gaussian_lies(K: int, sigma: float) -> Array:
    """Compute the probability of the wrong class for discrete Gaussian noise of σ on both counts, ties shared.

    With D the difference of the noises it is ½·(Pr[D ≥ M] + Pr[D ≥ M + 1]), for l = floor(K/2) + 1 … K.

    >>> gaussian_lies(3, 1.0).round(4)
    array([0.2491, 0.0206])
    """
    if sigma > MOST_SIGMA:
        raise PlanError(f"its noise would have sigma = {sigma:.3g} votes: nothing is left to be computed")
    reach = max(K + 1, math.ceil(GAUSSIAN_REACH * sigma))
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2.0 * sigma**2))
    weights /= np.sum(weights)
    tails = np.concatenate([np.cumsum(weights[::-1])[::-1], np.zeros(K + 1)])
    exceeds = sliding_window_view(tails, weights.size) @ weights  # Pr[D ≥ x] = Σ_j w_j·Pr[noise ≥ j + x], x = 0 … K + 1
    lead = leads(K)
    return np.asarray(0.5 * (exceeds[lead] + exceeds[lead + 1]))
