"""Calibrations use up the budget and never exceed it, and the optima are those of their definitions."""

import math
from dataclasses import replace
from decimal import ROUND_CEILING
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from darrm import priors
from darrm.account.accountant import PrivacyAccountant
from darrm.aggregator import load_release
from darrm.errors import BudgetExceededError, PlanError
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.gaussian import analytic_sigma
from darrm.loss.privacy_cost import PrivacyCost
from darrm.majority.closed_form import best_for_non_private_voters
from darrm.majority.costs import divergence
from darrm.majority.noise_function import NoiseFunction
from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.numerics.binomial import poisson_binomial_pmf
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.optimize.optimizer import optimize_table
from darrm.plan import Workload, calibrate, find_mechanism, plan
from darrm.plan.calibration import largest_rate
from darrm.plan.mechanism import reduce_workload, rounded
from darrm.plan.tables import find_smallest_target, largest_epsilon
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.release import release_debited
from darrm.votes import Votes
from tests.oracle import all_multisets
from tests.planned import FRESH, MANY, ONE, PLAIN, calibrated, complete_plan, find_mechanisms, plan_once

PRIVATE = PrivacyParams("0.1")
WITH_DELTA = PrivacyParams("0.1", "1e-5")
WORKS = [
    Workload(Voters(5, PLAIN, overlap=1), 5, PrivacyParams("2", "1e-5"), classes=3),
    Workload(Voters(5, PLAIN, 2), 10, PrivacyParams("2", "1e-5")),
    Workload(Voters(11, PLAIN, 1), 1, PrivacyParams("0.5", "1e-6")),
    Workload(Voters(6, PRIVATE), 50, PrivacyParams("3", "1e-4")),
    Workload(Voters(6, WITH_DELTA, 2), 30, PrivacyParams("2", "1e-2")),
    Workload(Voters(11, WITH_DELTA), 1000, PrivacyParams("2", "1e-5")),
    Workload(Voters(1, PRIVATE), 3, PrivacyParams("0.1", "1e-6")),
    Workload(Voters(3, PRIVATE), 2, PrivacyParams("5", "1e-5")),
    Workload(Voters(30, PLAIN, overlap=1), 12, PrivacyParams("3", "1e-5"), classes=4),
    Workload(
        Voters(12, PrivacyParams("1", "1e-6"), overlap=1, models=True), 30, PrivacyParams("0.8", "1e-5"), classes=3
    ),
]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("work", WORKS, ids=str)
def test_a_ledger_with_the_budget_admits_all_queries_of_the_saved_plan(work: Workload, tmp_path: Path) -> None:
    result = plan_once(work)
    result.save(tmp_path / "plan.json")
    aggregator = load_release(tmp_path / "plan.json")
    cost = aggregator.privacy_cost(work.queries)
    assert aggregator.privacy_cost().to_text() == result.aggregator.privacy_cost().to_text()
    spent = PrivacyAccountant(work.voters, [cost]).spent(work.total.delta)
    assert result.spent.epsilon <= work.total.epsilon * (1 + 1e-12)
    assert spent.epsilon == pytest.approx(result.spent.epsilon, rel=1e-9)
    votes = Votes.from_labels(np.ones((work.queries, work.voters.K), dtype=int), classes=work.classes)
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", work.total)
    assert release_debited(aggregator, votes, ledger=ledger).shape == (work.queries,)
    more = 1 if work.classes > 2 else 200 * work.queries  # for two classes the certificate may leave a few queries
    with pytest.raises(BudgetExceededError):
        ledger.debit(aggregator.privacy_cost(more))


SELECTIONS = ("exponential", "permute-and-flip")
NOISES = ("gnmax-paper", "gnmax-analytic", "gnmax", "lnmax-counts", "lnmax")


def compute_answers(curve: np.ndarray, K: int) -> np.ndarray:
    """Compute Pr[1] at each number of ones from Pr[majority]."""
    answers = np.full(K + 1, 0.5)
    answers[K // 2 + 1 :] = curve
    answers[: curve.size] = 1.0 - curve[::-1]
    return answers


@pytest.mark.parametrize("overlap", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("slug", [*NOISES, *SELECTIONS, "randomized-response", "optimal"])
def test_one_query_is_private_by_the_definition(slug: str, overlap: int) -> None:
    work = Workload(Voters(11, PLAIN, overlap=overlap), 1, PrivacyParams("0.2676", "0.0003"))
    row = calibrated(work, slug)
    one = compute_answers(row.curve, 11)
    pairs = [(a, b) for a in range(12) for b in range(12) if abs(a - b) <= overlap]
    deltas = [
        p - math.exp(work.total.epsilon) * q for a, b in pairs for p, q in ((one[a], one[b]), (1 - one[a], 1 - one[b]))
    ]
    assert max(deltas) <= work.total.delta * (1 + 1e-9)
    assert row.spent.epsilon <= work.total.epsilon * (1 + 1e-12)
    assert np.all(np.diff(row.curve) >= 0)


@pytest.mark.parametrize("slug", [pytest.param("exponential", marks=pytest.mark.slow), "permute-and-flip"])
def test_many_queries_are_private_by_the_definition_and_counted_by_their_profile(slug: str) -> None:
    work = Workload(Voters(11, PLAIN, overlap=1), 100, PrivacyParams("0.5", "1e-6"))
    row, ones = calibrated(work, slug), np.arange(101)
    assert row.spent.bound == "pld"  # without the profile it is renyi or optimal, with more noise
    log_choose = np.array([math.log(math.comb(100, k)) for k in ones])
    steps = list(pairwise(compute_answers(row.curve, 11)))
    for p, q in [*steps, *((above, below) for below, above in steps)]:
        weights = np.exp(log_choose + ones * math.log(p) + (100 - ones) * math.log1p(-p))
        losses = ones * math.log(p / q) + (100 - ones) * math.log((1 - p) / (1 - q))
        assert np.sum(weights * np.maximum(0.0, -np.expm1(work.total.epsilon - losses))) <= work.total.delta


@pytest.mark.parametrize("start", [1e-6, 5.0, 1e6])
def test_the_largest_rate_uses_up_the_budget_of_any_cost(start: float) -> None:
    rates: list[float] = []

    def compute_cost(rate: float) -> PrivacyCost:
        rates.append(rate)
        return PrivacyCost("steps", guarantee=PrivacyParams(min(600.0, 1e-4 * min(1e3, rate) ** 3)))

    work = replace(MANY, queries=12, total=PrivacyParams("3", "1e-5"))
    rate = largest_rate(work, compute_cost, start)
    spent = PrivacyAccountant(costs=[compute_cost(rate).repeat(12)]).spent(1e-5).epsilon
    assert 3.0 * (1 - 1e-4) <= spent <= 3.0
    assert len(rates) < 45
    with pytest.raises(PlanError, match="no parameter composes"):
        largest_rate(work, lambda _: PrivacyCost("dear", guarantee=PrivacyParams(100)), start)


# the optima


def test_one_query_is_the_optimum_of_one_query() -> None:
    target, optimal = PrivacyParams("0.3", "3e-5"), find_mechanisms("optimal")
    work = Workload(Voters(11, WITH_DELTA), 1, target)
    result = plan(work, prior=priors.Independent(0.5, 1.0), objective="error", mechanisms=optimal)
    assert result.table.gamma.half == pytest.approx(optimize_table(Problem(work.voters, target)).gamma.half)
    assert result.table.problem.target == target
    work = replace(work, voters=Voters(11, PLAIN, overlap=1))
    exact = best_for_non_private_voters(Problem(work.voters, target))
    assert plan(work, mechanisms=optimal).table.gamma.half == pytest.approx(exact.half, abs=1e-12)


def test_private_voters_of_three_classes_are_planned_by_their_own_privacy() -> None:
    work = Workload(Voters(7, PRIVATE), 1, PrivacyParams("0.3"), 3)
    mechanisms = find_mechanisms("optimal", "subsampling", "double-subsampling", "randomized-response", "gnmax")
    result = plan(work, prior=priors.Dirichlet(), mechanisms=mechanisms, complete=True)
    accuracies = {row.slug: row.accuracy for row in result.rows}
    assert accuracies.keys() >= {"subsampling", "double-subsampling", "randomized-response"}
    assert max(accuracies, key=accuracies.__getitem__) == "optimal"
    assert accuracies["optimal"] == pytest.approx(0.97385, abs=1e-5)


def test_a_pure_budget_is_shared_by_the_optimum_per_query() -> None:
    result = plan(Workload(Voters(11, PLAIN, overlap=1), 10, PrivacyParams(1)), mechanisms=find_mechanisms("optimal"))
    assert result.table.problem.target == PrivacyParams("0.1")


@pytest.mark.parametrize("work", [ONE, MANY, pytest.param(FRESH, marks=pytest.mark.slow)], ids=str)
def test_no_other_mechanism_is_more_accurate_than_the_optima(work: Workload) -> None:
    best = plan_once(work).best
    assert best.slug in {"optimal", "rdp-optimal"}
    others = find_mechanisms(*NOISES, *SELECTIONS, "randomized-response", "no-noise")
    for row in complete_plan(work, [mechanism for mechanism in others if mechanism.applies_to(work)]).rows:
        assert row.spent.epsilon <= work.total.epsilon * (1 + 1e-9), row.slug
        assert row.accuracy <= best.accuracy + 1e-9, row.slug


def test_many_queries_beat_the_gaussian_of_the_same_divergence_at_every_margin() -> None:
    K, queries, total = 101, 100, PrivacyParams(3, "1e-5")
    work = Workload(Voters(K, PLAIN, overlap=1), queries, total)
    result = plan(work, mechanisms=find_mechanisms("rdp-optimal", "permute-and-flip"))
    assert result.best.slug == "rdp-optimal"
    noise = DiscreteGaussian(analytic_sigma(total, sensitivity=math.sqrt(2.0 * queries)).value)
    levels = np.arange(K // 2 + 1, K + 1)
    gaussian = winning_probabilities(noise, np.column_stack([levels, K - levels]))[:, 0]
    assert np.all(0.5 * (1.0 + result.table.gamma.half) >= gaussian - 1e-9)


@pytest.mark.slow
def test_the_total_bounds_every_pair_of_neighbors_below_one_allowance() -> None:
    """m < 1: composed by privacy loss distributions, no pair of laws costs more than the plan's total."""
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    work = Workload(Voters(5, PRIVATE), 1000, PrivacyParams("2", "1e-5"))
    result = plan_once(work)
    answers = 0.5 * (1.0 + result.table.gamma.signed)
    P, Q = (poisson_binomial_pmf(votes) @ answers for votes in all_multisets(result.table.problem.voters))
    for place in np.argsort(-np.abs(P - Q))[:2]:
        first, second = ({0: math.log1p(-law[place]), 1: math.log(law[place])} for law in (P, Q))
        one = pld.from_two_probability_mass_functions(
            first, second, value_discretization_interval=1e-4, symmetric=False
        )
        assert one.self_compose(1000).get_epsilon_for_delta(work.total.delta) <= result.spent.epsilon


@pytest.mark.slow
def test_a_pure_budget_below_one_allowance_is_met_by_a_law() -> None:
    """100 times the voters' own epsilon exceeds the budget; the exact profile of the law does not."""
    voters = Voters(11, PRIVATE)
    result = plan(Workload(voters, 100, PrivacyParams(4)))
    assert result.best.slug in {"permute-and-flip", "exponential"}
    assert divergence(voters, result.table.gamma, Fraction(4, 100)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.slow
def test_the_search_for_the_optimum_stops_only_where_it_cannot_win() -> None:
    work, optimal = Workload(Voters(6, PRIVATE), 50, PrivacyParams("3", "1e-4")), find_mechanism("optimal")
    best = calibrate(work, optimal)
    assert 0.999 < best.spent.epsilon / 3.0 <= 1.0
    loss = 1.0 - best.accuracy
    beaten = calibrate(work, optimal, to_beat=1.01 * loss)
    assert beaten.spent.epsilon <= 3.0
    assert 1.0 - beaten.accuracy < 1.01 * loss
    # a coarse trial does not show its accuracy
    assert calibrate(work, optimal, to_beat=0.97 * loss).accuracy == pytest.approx(best.accuracy, abs=1e-6)


# private models


def test_models_are_reduced_to_as_many_non_private_voters_as_a_person_influences() -> None:
    work = Workload(Voters(5, PrivacyParams(1), overlap=2, models=True), 10, PrivacyParams("0.5", "1e-5"))
    assert reduce_workload(work).voters == Voters(5, PLAIN, overlap=2)
    assert reduce_workload(work, one_by_one=True).voters == Voters(5, PLAIN, overlap=1)


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [1, 2])
def test_private_models_are_planned_with_less_noise_than_non_private_voters(overlap: int) -> None:
    voters = Voters(3, PrivacyParams(1, "1e-6"), overlap=overlap, models=True)
    work, law = Workload(voters, 4, PrivacyParams("0.5", "1e-5")), find_mechanisms("permute-and-flip")
    result, plain = plan(work, mechanisms=law), plan(replace(work, voters=Voters(3, PLAIN, overlap)), mechanisms=law)
    assert result.best.accuracy > plain.best.accuracy
    assert (result.workload, result.table.problem.voters, result.spent.bound) == (work, voters, "joint bound")
    assert 0.95 * 0.5 < result.spent.epsilon <= 0.5
    cost, ledger = result.aggregator.privacy_cost(4), PrivacyLedger.create(":memory:", work.total)
    ledger.debit(cost)
    with pytest.raises(BudgetExceededError):
        ledger.debit(cost)
    assert "--models" in str(result)


def test_models_of_three_classes_are_planned_by_the_joint_bound() -> None:
    work = Workload(Voters(5, PrivacyParams("0.5"), overlap=1, models=True), 30, PrivacyParams("0.3", "1e-5"), 3)
    result = plan(work, mechanisms=find_mechanisms("optimal"))
    assert result.spent.bound == "joint bound"
    assert result.table.problem.voters == work.voters


# numbers of a search


def test_no_query_of_private_voters_costs_more_than_all_voters() -> None:
    total = PrivacyParams("3", "1e-4")
    assert largest_epsilon(Workload(Voters(6, PRIVATE), 50, total)) == 6 * PRIVATE.exact_epsilon < 3
    assert largest_epsilon(Workload(Voters(60, PRIVATE), 50, total)) == 3
    assert largest_epsilon(Workload(Voters(6, PLAIN, overlap=1), 50, total)) == 3


@pytest.mark.parametrize("value", [0.1234567, 1e-9, 2.0 / 3.0, 123456.7])
def test_rounded_numbers_are_on_the_safe_side(value: float) -> None:
    assert rounded(value) <= value <= rounded(value, ROUND_CEILING)
    assert float(rounded(value, ROUND_CEILING) - rounded(value)) <= 1.1e-5 * value


@pytest.mark.parametrize(
    ("work", "half"),
    [
        (Workload(Voters(5, PLAIN, overlap=2), 10, PrivacyParams(2, "1e-5")), [0.1, 0.3, 0.4]),
        (Workload(Voters(5, WITH_DELTA, overlap=3), 10, PrivacyParams(2, "1e-3")), [0.5, 0.7, 0.9]),
        (Workload(Voters(4, PRIVATE), 10, PrivacyParams(2, "1e-3")), [1.0, 1.0]),
    ],
    ids=str,
)
def test_the_smallest_target_is_satisfied_and_no_smaller_one(work: Workload, half: list[float]) -> None:
    gamma, each = NoiseFunction(work.voters.K, half), work.voters.each
    target = find_smallest_target(work, gamma).target
    assert divergence(work.voters, gamma, target.exact_epsilon) <= target.exact_delta
    assert target.exact_delta <= max(each.exact_delta, work.total.exact_delta / (2 * work.queries))
    if target.exact_epsilon > (each.exact_epsilon if each.is_private else 0):
        assert divergence(work.voters, gamma, target.exact_epsilon * Fraction(99, 100)) > target.exact_delta


def test_a_gamma_that_needs_delta_one_has_no_target() -> None:
    work = Workload(Voters(3, PLAIN, overlap=1), 2, PrivacyParams(2, "1e-5"))
    with pytest.raises(PlanError, match="no epsilon of at most 15"):
        find_smallest_target(work, NoiseFunction(3, [1, 1]))
