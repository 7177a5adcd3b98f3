"""Plans stay within their budget, by every road to the total, and take the best candidate."""

import math
import warnings
from dataclasses import replace
from decimal import ROUND_CEILING
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from darrm import priors
from darrm.account.accountant import PrivacyAccountant
from darrm.errors import BudgetExceededError, PlanError
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.gaussian import analytic_sigma
from darrm.majority.closed_form import best_for_non_private_voters
from darrm.majority.costs import divergence
from darrm.majority.noise_function import NoiseFunction
from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.numerics.binomial import poisson_binomial_pmf
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.optimize.optimizer import optimize_table
from darrm.plan import Mechanism, Proposal, Workload, calibrate, find_mechanism, plan
from darrm.plan.mechanism import FixedMechanism, rounded
from darrm.plan.tables import find_smallest_target, largest_epsilon
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.release import DaRRM
from darrm.table.table import Table
from tests.oracle import all_multisets
from tests.planned import ONE, planned


class Nothing(FixedMechanism):
    slug = "nothing"

    def propose(self) -> Proposal:
        raise PlanError("not tried")


class Stopped(Mechanism):
    slug = "stops"

    def at(self, parameter: float) -> Proposal:  # noqa: ARG002 (there is none)
        raise KeyboardInterrupt


PLAIN = PrivacyParams("inf")
PRIVATE = PrivacyParams("0.1")
WITH_DELTA = PrivacyParams("0.1", "1e-5")
WITH_DELTA_OF_ONE = PrivacyParams(1, "1e-6")
SETTINGS = [
    (11, PLAIN, 1, 1, ("0.5", "1e-6")),
    (5, PLAIN, 2, 10, ("2", "1e-5")),
    pytest.param(11, PLAIN, 3, 10, ("2", "1e-5"), marks=pytest.mark.slow),
    (6, PRIVATE, None, 50, ("3", "1e-4")),
    pytest.param(6, WITH_DELTA, 2, 30, ("2", "1e-2"), marks=pytest.mark.slow),
    (11, WITH_DELTA, None, 1000, ("2", "1e-5")),
    (1, PRIVATE, None, 3, ("0.1", "1e-6")),
    (3, PRIVATE, None, 2, ("5", "1e-5")),
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("K", "each", "overlap", "queries", "total"), SETTINGS)
def test_the_total_stays_within_the_budget(
    tmp_path: Path, K: int, each: PrivacyParams, overlap: int | None, queries: int, total: tuple[str, str]
) -> None:
    budget = PrivacyParams(*total)
    found = planned(Workload(Voters(K, each, overlap=overlap), queries, budget))
    found.table.save(tmp_path / "t.json")
    aggregator = DaRRM(Table.load(tmp_path / "t.json"))
    cost = aggregator.privacy_cost(queries)
    account = PrivacyAccountant(costs=[cost])
    assert account.admits(budget)
    assert account.spent(budget.delta).epsilon == pytest.approx(found.spent.epsilon, rel=1e-9)
    assert found.spent.epsilon <= budget.epsilon * (1 + 1e-12)
    shown = [round(option.accuracy, 4) for option in found.rows]
    assert shown == sorted(shown, reverse=True)
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", budget)
    ledger.debit(aggregator.privacy_cost(queries))
    with pytest.raises(BudgetExceededError):
        ledger.debit(aggregator.privacy_cost(200 * queries))
    assert aggregator.release(np.ones((2, K), dtype=int)).shape == (2,)


def gaussian_truth(K: int, sigma: float) -> np.ndarray:
    levels = np.arange(K // 2 + 1, K + 1)
    return winning_probabilities(DiscreteGaussian(sigma), np.column_stack([levels, K - levels]))[:, 0]


def test_one_query_is_the_optimum_of_one_query() -> None:
    target = PrivacyParams("0.3", "3e-5")
    found = plan(
        Workload(Voters(11, WITH_DELTA), 1, target),
        prior=priors.Independent(0.5, 1.0),
        objective="error",
        mechanisms=[find_mechanism("optimal")],
    )
    alone = optimize_table(Problem(Voters(11, WITH_DELTA), target))
    assert found.table.gamma.half == pytest.approx(alone.gamma.half)
    assert found.table.problem.target == target
    plain = plan(Workload(Voters(11, PLAIN, overlap=1), 1, target), mechanisms=[find_mechanism("optimal")])
    assert plain.table.gamma.half == pytest.approx(
        best_for_non_private_voters(Problem(Voters(11, PLAIN, overlap=1), target)).half, abs=1e-12
    )


def test_many_queries_beat_the_gaussian_of_the_same_divergence_at_every_margin() -> None:
    K, queries, total = 101, 100, PrivacyParams(3, "1e-5")
    few = [find_mechanism("rdp-optimal"), find_mechanism("permute-and-flip")]
    found = plan(Workload(Voters(K, PLAIN, overlap=1), queries, total), mechanisms=few)
    assert found.best.slug == "rdp-optimal"
    sigma = analytic_sigma(total, sensitivity=math.sqrt(2.0 * queries)).value
    truth = 0.5 * (1.0 + found.table.gamma.half)
    assert np.all(truth >= gaussian_truth(K, sigma) - 1e-9)


@pytest.mark.slow
def test_the_total_bounds_every_pair_of_neighbors_below_one_allowance() -> None:
    """m < 1: composed exactly for each pair of laws, no pair costs more than the plan says."""
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import privacy_loss_distribution as pld

    queries, total = 1000, PrivacyParams("2", "1e-5")
    found = planned(Workload(Voters(5, PRIVATE), queries, total))
    h = 0.5 * (1.0 + found.table.gamma.signed)
    p, p_prime = all_multisets(found.table.problem.voters)
    P, Q = poisson_binomial_pmf(p) @ h, poisson_binomial_pmf(p_prime) @ h
    steep = np.argsort(-np.abs(P - Q))[:2]
    for place in steep:
        first = {0: 1.0 - float(P[place]), 1: float(P[place])}
        second = {0: 1.0 - float(Q[place]), 1: float(Q[place])}
        logs = {key: math.log(value) for key, value in first.items()}
        others = {key: math.log(value) for key, value in second.items()}
        one = pld.from_two_probability_mass_functions(logs, others, value_discretization_interval=1e-4, symmetric=False)
        assert one.self_compose(queries).get_epsilon_for_delta(total.delta) <= found.spent.epsilon


@pytest.mark.slow
def test_the_per_query_search_goes_to_what_it_has_to_beat() -> None:
    work = Workload(Voters(6, PRIVATE), 50, PrivacyParams("3", "1e-4"))
    best = calibrate(work, find_mechanism("optimal"))
    assert 0.999 < best.spent.epsilon / 3.0 <= 1.0
    wrong = 1.0 - best.accuracy
    beaten = calibrate(work, find_mechanism("optimal"), to_beat=1.01 * wrong)
    assert beaten.spent.epsilon <= 3.0
    assert 1.0 - beaten.accuracy < 1.01 * wrong
    unbeaten = calibrate(
        work, find_mechanism("optimal"), to_beat=0.97 * wrong
    )  # a coarse trial does not show its accuracy
    assert unbeaten.accuracy == pytest.approx(best.accuracy, abs=1e-6)


def test_no_query_of_private_voters_costs_more_than_all_voters_do() -> None:
    total = PrivacyParams("3", "1e-4")
    assert largest_epsilon(Workload(Voters(6, PRIVATE), 50, total)) == 6 * PRIVATE.exact_epsilon < 3
    assert largest_epsilon(Workload(Voters(60, PRIVATE), 50, total)) == 3
    assert largest_epsilon(Workload(Voters(6, PrivacyParams("inf"), overlap=1), 50, total)) == 3


def test_a_pure_budget_is_met_by_the_per_query_optimum() -> None:
    found = plan(Workload(Voters(11, PLAIN, overlap=1), 10, PrivacyParams(1)))
    assert found.best.slug == "optimal"
    assert found.table.problem.target == PrivacyParams("0.1")
    assert dict(found.left_out)["rdp-optimal"] == "a Rényi budget needs delta > 0"


@pytest.mark.slow
def test_a_pure_budget_below_one_allowance_is_met_by_a_law() -> None:
    """100 times the voters' own epsilon exceeds the budget; the exact profile of a law that tells less does not."""
    found = plan(Workload(Voters(11, PRIVATE), 100, PrivacyParams(4)))
    assert found.best.slug in {"permute-and-flip", "exponential"}
    assert divergence(Voters(11, PRIVATE), found.table.gamma, Fraction(4, 100)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("value", [0.1234567, 1e-9, 2.0 / 3.0, 123456.7])
def test_rounded_numbers_lie_on_the_safe_side(value: float) -> None:
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
    gamma = NoiseFunction(work.voters.K, half)
    target = find_smallest_target(work, gamma).target
    assert divergence(work.voters, gamma, target.exact_epsilon) <= target.exact_delta
    assert target.exact_delta <= max(work.voters.each.exact_delta, work.total.exact_delta / (2 * work.queries))
    if target.exact_epsilon > (work.voters.each.exact_epsilon if work.voters.each.is_private else 0):
        assert divergence(work.voters, gamma, target.exact_epsilon * Fraction(99, 100)) > target.exact_delta


def test_a_gamma_that_only_delta_one_admits_has_no_target() -> None:
    with pytest.raises(PlanError, match="no epsilon of at most 15"):
        find_smallest_target(
            Workload(Voters(3, PLAIN, overlap=1), 2, PrivacyParams(2, "1e-5")), NoiseFunction(3, [1, 1])
        )


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_private_models_are_planned_for_both_ends(tmp_path: Path, overlap: int) -> None:
    """The whole stays within the budget by what is proved for models, and a ledger admits it; one is one query."""
    asked = Workload(Voters(3, WITH_DELTA_OF_ONE, overlap=overlap, models=True), 4, PrivacyParams("0.5", "1e-5"))
    law = [find_mechanism("permute-and-flip")]
    found = plan(asked, mechanisms=law)
    alone = plan(replace(asked, voters=Voters(3, PLAIN, overlap=overlap)), mechanisms=law)
    assert found.workload == asked
    assert found.table.problem.voters == asked.voters
    assert found.best.accuracy > alone.best.accuracy
    assert found.spent.bound == "joint bound"
    assert 0.95 * 0.5 < found.spent.epsilon <= 0.5
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", asked.total)
    ledger.debit(found.aggregator.privacy_cost(4))
    with pytest.raises(BudgetExceededError):
        ledger.debit(found.aggregator.privacy_cost(4))
    assert "--models" in str(found)
    once = Workload(Voters(3, WITH_DELTA, models=True), 1, PrivacyParams("0.2", "1e-4"))
    assert planned(once).table.problem.voters == once.voters


@pytest.mark.parametrize(("voters", "warned"), [(Voters(25_001, PLAIN, 1), True), (Voters(25_000, PLAIN, 1), False)])
def test_a_plan_that_takes_minutes_says_so(voters: Voters, warned: bool) -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with pytest.raises(PlanError, match="not tried"):
            plan(Workload(voters, 10, PrivacyParams(2, "1e-5")), mechanisms=[Nothing])
    said = "a plan for 25,001 voters with an overlap of 1 takes a minute or more"
    assert [said in str(one.message) for one in heard] == [True] * warned


def test_a_search_that_is_stopped_returns_whole_options_and_says_so() -> None:
    stop, never, first = Stopped, find_mechanism("exponential"), find_mechanism("permute-and-flip")
    with pytest.warns(UserWarning, match="stopped early"):
        found = plan(ONE, mechanisms=[first, stop, never], stoppable=True)
    assert [option.slug for option in found.rows] == ["permute-and-flip"]
    assert found.best.spent.epsilon <= ONE.total.epsilon
    assert [slug for slug, reason in found.left_out if "was stopped" in reason] == ["stops", "exponential"]
    with pytest.raises(KeyboardInterrupt):
        plan(ONE, mechanisms=[first, stop, never])
    with pytest.raises(PlanError, match="before any mechanism was calibrated"):
        plan(ONE, mechanisms=[stop, first], stoppable=True)
