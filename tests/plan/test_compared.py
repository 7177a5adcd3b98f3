"""Mechanisms beside the optima: their laws by simulation and enumeration, and that each keeps its budget."""

import math
from itertools import pairwise

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.errors import PlanError
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import DEFAULT_ORDERS
from darrm.loss.vote_counts import curve_of_votes, profile_of_votes
from darrm.majority.noise_function import NoiseFunction
from darrm.majority.renyi import renyi_divergences
from darrm.pate import GNMax, LNMax
from darrm.plan import Workload
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.votes import Votes
from tests.planned import FRESH, MANY, ONE, PLAIN, calibrated, planned, rivals

DRAWS = 4_000
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


@pytest.mark.parametrize(("aggregator", "rival"), [(GNMax, PAPER), (LNMax, "lnmax-counts")])
def test_the_truth_is_that_of_the_released_labels(aggregator: type, rival: str) -> None:
    option = calibrated(ONE, rival)
    released = aggregator(next(iter(option.settings.values())))
    rng = np.random.default_rng(5)
    for place, ones in ((0, 6), (5, 11)):
        right = np.mean(released.release(Votes.of_counts(np.tile([11 - ones, ones], (DRAWS, 1))), rng=rng) == 1)
        other = np.mean(released.release(Votes.of_counts(np.tile([ones, 11 - ones], (DRAWS, 1))), rng=rng) == 0)
        # the mean of both sides; five standard errors
        assert 0.5 * (right + other) == pytest.approx(option.curve[place], abs=5 * 0.5 / math.sqrt(2 * DRAWS))


def test_selection_mechanisms_by_their_definition() -> None:
    option = calibrated(ONE, "exponential")
    epsilon = option.settings["epsilon"]
    weights = np.exp(epsilon * np.array([8, 3]) / 2.0)
    assert option.curve[2] == pytest.approx(weights[0] / weights.sum(), rel=1e-12)
    option = calibrated(ONE, "permute-and-flip")
    epsilon = option.settings["epsilon"]
    # the leader first: taken for certain; the other first: taken with this probability, else the leader
    other = math.exp(epsilon * (3 - 8) / 2.0)
    assert option.curve[2] == pytest.approx(0.5 + 0.5 * (1.0 - other), rel=1e-12)


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
            charge = make(rate * factor).privacy_cost(100)
            assert PrivacyAccountant(charges=[charge]).admits(work.total) is admitted
    assert rate > 1.2 * counts
    paper = calibrated(work, PAPER)
    conversion = (
        GNMax(paper.settings["sigma"], "continuous").guarantee.repeated(100).convert(1e-5, conversion="classic")
    )
    assert conversion.epsilon == pytest.approx(3.0, rel=2e-3)


@pytest.mark.slow
def test_which_rivals_apply() -> None:
    plain = rivals(ONE)
    assert {option.slug for option in plain.rows} == set(RIVALS)
    private_only = {"subsampling", "double-subsampling", "darrm-paper"}
    assert {name for name, _ in plain.left_out} == {*private_only, "asymmetric"}
    private = rivals(Workload(Voters(11, PrivacyParams("0.1")), 1, PrivacyParams("0.3", "1e-4")))
    assert {option.slug for option in private.rows} >= {"subsampling", "double-subsampling", "darrm-paper"}
    assert {"m": 3.0} in [dict(option.settings) for option in private.rows if option.slug == "subsampling"]
    pure = rivals(Workload(Voters(11, PLAIN, overlap=1), 5, PrivacyParams(1)))
    assert {name for name, _ in pure.left_out} >= {"gnmax-paper", "gnmax-analytic"}
    small = rivals(Workload(Voters(11, PrivacyParams("0.1")), 1, PrivacyParams("0.05", "1e-5")))
    assert {name for name, _ in small.left_out} >= {"subsampling", "darrm-paper", "randomized-response"}


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


def test_one_query_beats_every_rival_at_every_margin() -> None:
    ours = planned(ONE).best.curve
    for option in rivals(ONE).rows:
        assert np.all(ours >= option.curve - 1e-12), option.slug


def test_randomised_response_alone_knows_no_margin() -> None:
    (constant,) = (option for option in rivals(ONE).rows if option.slug == "randomized-response")
    # the largest constant leaves no room
    assert np.ptp(constant.curve) == 0.0
    h = law(constant.curve, 11)
    assert hockey_stick(h, ONE.total.epsilon, 1) == pytest.approx(ONE.total.delta, rel=1e-8)


def test_a_charge_of_the_curve_alone_is_what_the_accountant_converts() -> None:
    option = calibrated(Workload(Voters(11, PLAIN, overlap=1), 50, PrivacyParams(2, "1e-5")), "exponential")
    log_lies = np.log1p(-option.curve)
    charge = PrivacyCost("e", renyi=curve_of_votes(log_lies, 11, 1), count=50)
    assert PrivacyAccountant(charges=[charge]).spent(1e-5).epsilon == pytest.approx(option.spent.epsilon, rel=1e-6)


def test_noise_too_wide_to_be_written_down_is_refused() -> None:
    work = Workload(Voters(3, PLAIN, overlap=1), 10**12, PrivacyParams("1", "1e-5"))
    for name in (PAPER, "gnmax-analytic"):
        with pytest.raises(PlanError, match=r"sigma = .* votes: nothing is left to be computed"):
            calibrated(work, name)
