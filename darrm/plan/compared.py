"""What is only compared with releases of this library: noisy counts, which cost more than the label alone.

Both counts of a moved vote change by t, in opposite directions: sensitivity √2·t for Gaussian noise, and 2γt for
Laplace noise of scale 1/γ. Nobody sees the noisy counts; `darrm.plan.by_label` charges for what is released.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from darrm.account.bounds import Bound
from darrm.errors import PlanError
from darrm.losses.charges import Charge
from darrm.losses.gaussian import SENSITIVITY, analytic_sigma, renyi_sigma
from darrm.losses.renyi import RenyiCurve
from darrm.mechanisms.noisy_law import WinningLaw
from darrm.plan.budget import counted
from darrm.plan.by_label import LEAST_SIGMA, first_rate
from darrm.plan.family import Search
from darrm.plan.optimum import per_query
from darrm.plan.parameter import Parameter, Proposal, fixed
from darrm.plan.share_right import Law
from darrm.plan.tables import check_private
from darrm.privacy import PrivacyParams
from darrm.probability.integer_noise import DiscreteGaussian, DiscreteLaplace
from darrm.problem import Workload

MOST_SIGMA = 3e5  # of discrete noise, in votes; more would need gigabytes to be written down
_LEAST_GAMMA, LARGEST_GAMMA = 1e-11, 1e3  # per vote


def gnmax_of_the_paper(search: Search) -> Iterable[Parameter]:
    """Take the σ of [D, Section D.2.1], for all queries together."""
    work, reached = search.workload, search.workload.voters.reached
    with _refused(work):
        sigma = max(LEAST_SIGMA, renyi_sigma(counted(work).total, work.queries).value * reached)
    curve = RenyiCurve.of(lambda orders: orders * (reached / sigma) ** 2)
    charge = Charge("GNMax", renyi=curve, reached=reached)
    return [fixed(counted(work), Proposal(law=_gaussian(sigma), price=lambda: charge, settings={"sigma": sigma}))]


def gnmax_tight(search: Search) -> Iterable[Parameter]:
    """Take the least σ that any accounting of the noisy counts allows [BW18, Theorem 8].

    All Q answers together are one Gaussian mechanism of sensitivity √(2Q)·t, whose (ε, δ) is known exactly, whatever
    the number of classes.
    """
    work = search.workload
    with _refused(work):
        sensitivity = SENSITIVITY * math.sqrt(work.queries) * work.voters.reached
        sigma = analytic_sigma(counted(work).total, sensitivity=sensitivity).value
    total = Bound("analytic Gaussian", work.total.epsilon, "all answers are one Gaussian mechanism [BW18, Theorem 8]")
    return [fixed(work, Proposal(law=_gaussian(sigma), total=total, settings={"sigma": sigma}))]


def lnmax(search: Search) -> Iterable[Parameter]:
    """Turn up the γ of discrete Laplace noise, charged for both counts."""
    reached = search.workload.voters.reached

    def make(gamma: float) -> Proposal:
        rate = gamma * reached
        curve = RenyiCurve.of(lambda orders: np.minimum(2.0 * rate**2 * orders, 2.0 * rate))
        charge = Charge("LNMax", guarantee=PrivacyParams(2.0 * rate), renyi=curve, reached=reached)
        noise = DiscreteLaplace(max(gamma, _LEAST_GAMMA))  # wider noise answers next to the same
        return Proposal(law=WinningLaw(noise), price=lambda: charge, settings={"gamma": gamma})

    limits = (_LEAST_GAMMA, LARGEST_GAMMA)
    start = first_rate(search.workload)
    return [Parameter(workload=counted(search.workload), make=make, start=start, limits=limits, value=float)]


def darrm_of_the_paper(search: Search) -> Iterable[Parameter]:
    """DaRRM as [D] has it: one person may reach all K voters, and queries compose by their (ε, δ)."""
    check_private(search.workload)
    voters = replace(search.workload.voters, overlap=None)
    return per_query(replace(search, workload=replace(search.workload, voters=voters)))


def _gaussian(sigma: float) -> Law:
    if sigma > MOST_SIGMA:
        raise PlanError(f"its noise would have sigma = {sigma:.3g} votes: nothing is left to be computed")
    return WinningLaw(DiscreteGaussian(max(LEAST_SIGMA, sigma)))


@contextmanager
def _refused(workload: Workload) -> Iterator[None]:
    if workload.total.exact_delta == 0:
        raise PlanError("Gaussian noise gives no (epsilon, 0)")
    try:
        yield
    except ValueError as error:
        raise PlanError(str(error)) from error
