"""The accountant: how costs add up, what a budget admits, and which costs are refused."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.majority.noise_function import NoiseFunction
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism
from darrm.pate.confident import ConfidentGNMax, InteractiveGNMax
from darrm.privacy import PrivacyParams, at_most
from darrm.problem import Problem, Voters
from darrm.subsampling import Subsampling
from darrm.table.release import describe_cost
from darrm.table.table import certify
from tests.account.support import NON_PRIVATE, QUERY, bernoulli_profile, list_epsilons, make_table

COSTS = {
    "guarantee": PrivacyCost("a", guarantee=QUERY),
    "pure": PrivacyCost("a", guarantee=PrivacyParams(0.1, 0)),
    "renyi": PrivacyCost("a", renyi=RenyiCurve.of(lambda order: order / 800.0)),
    "profile": PrivacyCost("a", profile=bernoulli_profile()),
    "pure and renyi": PrivacyCost("a", guarantee=PrivacyParams(0.2, 0), renyi=RenyiCurve.from_pure(0.2)),
    "all": PrivacyCost(
        "a", guarantee=PrivacyParams(0.5, 0), renyi=RenyiCurve.from_pure(0.5), profile=bernoulli_profile()
    ),
}


@pytest.mark.parametrize("name", COSTS)
def test_costs_added_one_by_one_equal_one_repeated_cost(name: str) -> None:
    cost = COSTS[name]
    one_by_one = PrivacyAccountant(costs=[replace(cost.repeat(count), what=f"{count} queries") for count in (5, 1, 6)])
    at_once = PrivacyAccountant(costs=[cost.repeat(12)])
    spent, once = at_once.spent(0.01), PrivacyAccountant(costs=[cost]).spent(0.01)
    assert one_by_one.spent(0.01) == spent
    assert [kind.count for kind in one_by_one.costs] == [12]
    assert one_by_one.queries == at_once.queries == 12
    assert at_once.smallest_epsilon(0.01) == pytest.approx(spent.epsilon, rel=1e-9)
    assert spent.epsilon > 1.5 * once.epsilon
    epsilons, epsilons_of_one = list_epsilons(spent), list_epsilons(once)
    assert all(epsilons[bound] > epsilons_of_one[bound] for bound in epsilons.keys() & epsilons_of_one)
    assert f"12 queries: ({at_most(spent.epsilon, 5)}, 0.01) by {spent.bound}: {spent.explanation}" in str(spent)


@pytest.mark.parametrize("name", COSTS)
def test_queries_that_fit_is_the_largest_admitted_number(name: str) -> None:
    cost, budget = COSTS[name], PrivacyParams(2.0, 0.01)
    account = PrivacyAccountant(costs=[cost])
    count = account.queries_that_fit(cost, budget, most=5000)
    assert 1 <= count < 5000
    limits = [0, 1, count - 1, count]
    assert [account.queries_that_fit(cost, budget, most=most) for most in limits] == limits
    largest = PrivacyAccountant(costs=[cost.repeat(1 + count)])
    assert largest.admits(budget)
    assert largest.spent(0.01).epsilon <= 2.0
    assert not largest.plus(cost).admits(budget)


def test_queries_that_fit_ends_where_no_grid_holds_more() -> None:
    cost = NoisyMaximum(ExponentialMechanism(700), Voters.non_private(9, 1), 3).privacy_cost()
    for limit in (1, 10**6):
        assert PrivacyAccountant().queries_that_fit(cost, PrivacyParams(700, 0), most=limit) == 1


def test_an_empty_account_has_spent_nothing() -> None:
    assert PrivacyAccountant().spent(0.0).epsilon == 0.0
    assert "nothing spent" in str(PrivacyAccountant().spent(0.1))


@pytest.mark.parametrize("count", [1, 20, 50])
def test_a_delta_that_is_too_small_names_the_needed_one(count: int) -> None:
    account = PrivacyAccountant(costs=[PrivacyCost("a", guarantee=QUERY, count=count)])
    spent = account.spent(1e-6)
    assert (spent.epsilon, spent.bounds) == (math.inf, ())
    assert not account.admits(PrivacyParams(10, 1e-6))
    failure = 1 - (1 - QUERY.exact_delta) ** count
    needed_delta = float(at_most(failure, 2))
    assert spent.explanation == f"a delta of at least {needed_delta:g} is needed"
    assert account.spent(float(failure) * (1.0 - 1e-9)).epsilon == math.inf
    assert account.spent(needed_delta).epsilon < math.inf


def test_a_budget_is_compared_exactly() -> None:
    account = PrivacyAccountant(costs=[PrivacyCost("a", guarantee=PrivacyParams("0.3", "1e-6"), count=2)])
    for adaptive, delta in ((False, "2e-6"), (True, "4e-6")):  # half of δ is the slack of the filter
        assert account.admits(PrivacyParams("0.6", delta), adaptive=adaptive)
        assert not account.admits(PrivacyParams("0.599999999", delta), adaptive=adaptive)
        assert not account.admits(PrivacyParams("0.6", "1.9e-6"), adaptive=adaptive)
    assert not account.admits(PrivacyParams("0.6", "3e-6"), adaptive=True)


def test_spent_refuses_a_delta_out_of_range() -> None:
    for delta in (1.0, math.nan):
        with pytest.raises(ValueError, match="delta"):
            PrivacyAccountant().spent(delta)


# whose data a cost covers

PROBLEM = Problem(Voters.non_private(250, 1), PrivacyParams("0.3"))


@pytest.mark.parametrize(
    "cost",
    [
        GNMax(40.0).privacy_cost(100),
        ConfidentGNMax(200, 40.0, 40.0).privacy_cost(100),
        InteractiveGNMax(100, 40.0, 40.0, 0.9).with_scores([[0.5, 0.5]]).privacy_cost(),
        describe_cost(certify(PROBLEM, NoiseFunction(250, [0.1] * 125)), 3, exact=False),
    ],
    ids=lambda cost: cost.what[:9],
)
def test_an_account_refuses_a_cost_for_a_smaller_overlap(cost: PrivacyCost) -> None:
    assert cost.reached == 1
    # the overlap is no part of the stored cost, so kinds stay equal
    assert "reached" not in cost.to_text()
    assert PrivacyCost.from_text(cost.to_text(), what="a") == cost.kind
    declared = PrivacyAccountant(Voters.non_private(250, 1), [cost])
    assert declared.spent(0.01) == PrivacyAccountant(costs=[cost]).spent(0.01)
    for overlap in (2, 250):
        accountant = PrivacyAccountant(Voters(250, NON_PRIVATE, overlap))
        message = f"at most 1 of the voters.* reaches {overlap}: charge a release"
        with pytest.raises(ValueError, match=message):
            accountant.add(cost)
        with pytest.raises(ValueError, match=message):
            accountant.queries_that_fit(cost, PrivacyParams(1, 0.01), most=10)
        assert accountant.queries == 0


FRESH = Voters(5, PrivacyParams("0.5", "1e-6"), overlap=2)
MODELS = replace(FRESH, models=True)


@pytest.mark.parametrize(
    "declared",
    [
        *(replace(FRESH, each=each) for each in (PrivacyParams(3), PrivacyParams("0.5", "1e-5"), NON_PRIVATE)),
        replace(FRESH, K=7),
        replace(FRESH, overlap=3),
        replace(MODELS, each=PrivacyParams(3)),
    ],
)
def test_an_account_refuses_a_cost_for_more_private_voters(declared: Voters) -> None:
    cost = describe_cost(make_table(FRESH, [0.1, 0.2, 0.3]), exact=False)
    with pytest.raises(ValueError, match="reaches 3" if declared.overlap == 3 else "is charged for other voters"):
        PrivacyAccountant(declared, [cost])
    for covered in (FRESH, MODELS, replace(FRESH, each=PrivacyParams("0.4")), replace(FRESH, overlap=1)):
        assert PrivacyAccountant(covered, [cost]).queries == 1


SAMPLING = Subsampling.of("0.004")
COST_BY_HAND = PrivacyCost("by hand", PrivacyParams("0.1"))


def label_cost(sampling: Subsampling | None) -> PrivacyCost:
    return NoisyMaximum(LNMax(0.5), Voters(10, NON_PRIVATE, 1, sampled=sampling), 2).privacy_cost(3)


COSTS_BY_NEIGHBORS = {  # costs are added within a group only
    "answers change": [label_cost(None), GNMax(40.0).privacy_cost(), COST_BY_HAND],
    "one person more or less": [label_cost(SAMPLING), replace(COST_BY_HAND, sampling=Subsampling.of(1))],
    "one person is replaced": [
        label_cost(replace(SAMPLING, scheme="fixed")),
        replace(COST_BY_HAND, sampling=Subsampling(Fraction(1), "fixed")),
    ],
}


@pytest.mark.parametrize("composition", ["planned", "renyi", "adaptive"])
@pytest.mark.parametrize("group", COSTS_BY_NEIGHBORS)
def test_only_costs_for_the_same_neighbors_add_up(group: str, composition: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    first, *others = COSTS_BY_NEIGHBORS[group]
    PrivacyLedger.create(path, PrivacyParams(9, "1e-5"), composition=composition).debit(first)
    ledger = PrivacyLedger(path)  # it knows only what is in the file
    for cost in (cost for name, costs in COSTS_BY_NEIGHBORS.items() if name != group for cost in costs):
        with pytest.raises(ValueError, match="do not add up"):
            ledger.debit(cost)
        with pytest.raises(ValueError, match="do not add up"):
            ledger.queries_that_fit(cost)
    for cost in others:
        ledger.debit(cost)
    assert len(ledger.entries()) == 1 + len(others)


def test_declared_voters_refuse_costs_for_other_neighbors_and_rates() -> None:
    sampled = Voters.non_private(10, 1, sampled=SAMPLING)
    with pytest.raises(ValueError, match="these do not add up"):
        PrivacyAccountant(sampled, [GNMax(2.0).privacy_cost()])
    rarer = label_cost(Subsampling.of("0.001"))
    for declared in (Voters.non_private(10, 1), sampled):
        with pytest.raises(ValueError, match="charged for other voters"):
            PrivacyAccountant(declared, [rarer])
    account = PrivacyAccountant(costs=[label_cost(SAMPLING), rarer])
    assert "add or remove one person" in str(account.spent(1e-5))


def test_equal_costs_keep_the_weakest_promise() -> None:
    models = replace(MODELS, overlap=1)
    guarantee = PrivacyParams("0.25")
    votes, silent = PrivacyCost("votes", guarantee, reached=1), PrivacyCost("silent", guarantee)
    for pair in permutations([votes, silent]):
        assert list_epsilons(PrivacyAccountant(models, pair).spent(1e-3)).keys() == {"private models"}
    problem = Problem(replace(FRESH, overlap=1), PrivacyParams("0.5", "1e-6"))
    fresh = describe_cost(certify(problem, NoiseFunction(5, [0.1, 0.2, 0.3])), exact=False)
    for pair in permutations([PrivacyCost("votes", fresh.guarantee, reached=1), fresh]):
        with pytest.raises(ValueError, match="fresh randomness at every query"):
            PrivacyAccountant(models, pair)
