"""Mechanisms beside the optima: their laws by simulation and enumeration, and that each keeps its budget."""

import math
from itertools import pairwise

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.errors import PlanError
from darrm.loss.renyi import DEFAULT_ORDERS
from darrm.loss.vote_counts import curve_of_votes, profile_of_votes
from darrm.majority.costs import renyi_divergences
from darrm.majority.noise_function import NoiseFunction
from darrm.pate import GNMax, LNMax
from darrm.plan import Workload
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from tests.planned import FRESH, MANY, ONE, PLAIN, calibrated, planned, rivals

PAPER = "gnmax-paper"
NOISY = (PAPER, "gnmax-analytic", "gnmax", "lnmax-counts", "lnmax")
RIVALS = (*NOISY, "exponential", "permute-and-flip", "randomized-response")


def law(truth: np.ndarray, K: int) -> np.ndarray:
    h = np.full(K + 1, 0.5)
    h[K // 2 + 1 :] = truth
    h[: truth.size] = 1.0 - truth[::-1]
    return h


def hockey_stick(h: np.ndarray, epsilon: float, moved: int) -> float:
    """The definition, over every pair of numbers of ones that a person can turn into each other."""
    worst = 0.0
    for a in range(len(h)):
        for b in range(max(0, a - moved), min(len(h), a + moved + 1)):
            for p, q in ((h[a], h[b]), (1 - h[a], 1 - h[b])):
                worst = max(worst, p - math.exp(epsilon) * q)
    return worst


@pytest.mark.parametrize("overlap", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rival", [*RIVALS, "optimal"])
def test_one_query_is_private_by_the_definition(rival: str, overlap: int) -> None:
    work = Workload(Voters(11, PLAIN, overlap=overlap), 1, PrivacyParams("0.2676", "0.0003"))
    option = calibrated(work, rival)
    assert hockey_stick(law(option.curve, 11), work.total.epsilon, overlap) <= work.total.delta * (1 + 1e-9)
    assert option.spent.epsilon <= work.total.epsilon * (1 + 1e-12)
    assert np.all(np.diff(option.curve) >= 0)


@pytest.mark.parametrize("moved", [1, 2, 4])
@pytest.mark.parametrize("K", [4, 7])
def test_the_curve_of_votes_is_that_of_the_noise_function(K: int, moved: int) -> None:
    lies = np.exp(-0.3 * (2 * np.arange(K // 2 + 1, K + 1) - K)) / 2.0
    curve = curve_of_votes(np.log(lies), K, moved)
    problem = Problem(Voters(K, PLAIN, overlap=moved), PrivacyParams(1))
    found = renyi_divergences(problem.voters, NoiseFunction(K, 1.0 - 2.0 * lies), DEFAULT_ORDERS[::20])
    assert curve.values[::20] == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("moved", [1, 2, 4])
@pytest.mark.parametrize("K", [4, 7])
@pytest.mark.parametrize("rate", [0.05, 1.0, 9.0])
def test_the_profile_of_votes_by_the_definition(K: int, moved: int, rate: float) -> None:
    truth = 1.0 - 0.5 * np.exp(-rate * (2 * np.arange(K // 2 + 1, K + 1) - K) / 2.0)
    profile = profile_of_votes(np.log1p(-truth), K, moved)
    assert profile is not None
    h = law(truth, K)
    for epsilon, delta in zip(profile.epsilons, profile.deltas, strict=True):
        exact = hockey_stick(h, epsilon, moved)
        assert exact - 1e-13 <= delta <= exact + 3e-12  # never below, but for the oracle's own rounding
    assert profile.deltas[-1] == 0.0


def test_a_loss_beyond_every_profile_has_none() -> None:
    assert profile_of_votes(np.array([-1e6]), 1, 1) is None


@pytest.mark.parametrize(
    "rival",
    [pytest.param("exponential", marks=pytest.mark.slow), "permute-and-flip"],
)
def test_many_selections_are_counted_by_their_profile_and_stay_within_the_budget(rival: str) -> None:
    work = Workload(Voters(11, PLAIN, overlap=1), 100, PrivacyParams("0.5", "1e-6"))
    option = calibrated(work, rival)
    assert option.spent.bound == "pld"  # without the profile: renyi or optimal, with more noise
    assert repeated_divergence(law(option.curve, 11), work.total.epsilon, work.queries) <= work.total.delta


def repeated_divergence(h: np.ndarray, epsilon: float, queries: int) -> float:
    """The worst divergence of so many answers to one pair of neighbors: the loss takes queries + 1 values."""
    worst = 0.0
    ones = np.arange(queries + 1)
    log_choose = np.array([math.log(math.comb(queries, k)) for k in ones])
    steps = list(pairwise(h))
    for p, q in [*steps, *((above, below) for below, above in steps)]:
        weights = np.exp(log_choose + ones * math.log(p) + (queries - ones) * math.log1p(-p))
        loss = ones * math.log(p / q) + (queries - ones) * math.log((1 - p) / (1 - q))
        worst = max(worst, float(np.sum(weights * np.maximum(0.0, -np.expm1(epsilon - loss)))))
    return worst


@pytest.mark.slow
def test_a_little_less_noise_would_break_the_budget() -> None:
    work = Workload(Voters(101, PLAIN, overlap=1), 100, PrivacyParams(3, "1e-5"))
    counts = calibrated(work, "lnmax-counts").settings["gamma"]
    for name, make in (("gnmax", lambda s: GNMax(1.0 / s)), ("lnmax", LNMax)):
        (setting,) = calibrated(work, name).settings.values()
        rate = 1.0 / setting if name == "gnmax" else setting
        for factor, admitted in ((1.0, True), (1.006, False)):
            cost = make(rate * factor).privacy_cost(100)
            assert PrivacyAccountant(costs=[cost]).admits(work.total) is admitted
    assert rate > 1.2 * counts
    paper = calibrated(work, PAPER)
    conversion = GNMax(paper.settings["sigma"], "continuous").guarantee.repeat(100).convert(1e-5, conversion="classic")
    assert conversion.epsilon == pytest.approx(3.0, rel=2e-3)


@pytest.mark.parametrize(
    "work",
    [
        ONE,
        MANY,
        pytest.param(Workload(Voters(11, PrivacyParams("0.1")), 20, PrivacyParams(2, "1e-4")), marks=pytest.mark.slow),
        pytest.param(FRESH, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_ours_is_at_least_as_accurate(work: Workload) -> None:
    ours = planned(work).best.accuracy
    for option in rivals(work).rows:
        assert option.spent.epsilon <= work.total.epsilon * (1 + 1e-9), option.slug
        assert ours >= option.accuracy - 1e-9, option.slug


def test_noise_too_wide_to_be_written_down_is_refused() -> None:
    work = Workload(Voters(3, PLAIN, overlap=1), 10**12, PrivacyParams("1", "1e-5"))
    for name in (PAPER, "gnmax-analytic"):
        with pytest.raises(PlanError, match=r"sigma = .* votes: nothing is left to be computed"):
            calibrated(work, name)
