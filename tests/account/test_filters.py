"""Filters: no adversary who chooses kinds after answers passes the budget, whatever the strategy."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.account.filters import HALF, _bound_cut_divergence, filter_bound
from darrm.errors import BudgetExceededError
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.composition import optimal_epsilon
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.majority.noise_function import NoiseFunction
from darrm.optimize.optimizer import optimize_table
from darrm.priors import Dirichlet
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.release import describe_cost
from darrm.table.table import certify

UNIT = 0.1  # of privacy losses
Kinds = Mapping[str, tuple[PrivacyCost, int, float]]  # what is charged, the loss in units, how often all is confessed

# that of ε = 0.3 is (0.2, 0.0547)-private, too: its own δ is set aside or, by its curve, does not count
CURVED = PrivacyCost("curved", PrivacyParams("0.2", "0.055"), RenyiCurve.from_pure(0.3))
PROFILE = PrivacyProfile((0.0, 0.3), (0.01 + 0.99 * math.tanh(0.15), 0.01))
KINDS: dict[str, tuple[PrivacyParams, Kinds]] = {
    "pure": (
        PrivacyParams("2", "0.05"),
        {e: (PrivacyCost(e, PrivacyParams(e)), round(float(e) / UNIT), 0.0) for e in ("0.3", "0.5", "1")},
    ),
    "confessing": (
        PrivacyParams("2", "0.2"),
        {
            "all": (PrivacyCost("all", PrivacyParams("0", "0.1")), 0, 0.1),
            "0.3": (PrivacyCost("0.3", PrivacyParams("0.3")), 3, 0.0),
            "1": (PrivacyCost("1", PrivacyParams("1")), 10, 0.0),
        },
    ),
    "curved": (
        PrivacyParams("1.2", "0.2"),
        {
            "all": (PrivacyCost("all", PrivacyParams("0", "0.02")), 0, 0.02),
            "curved": (CURVED, 3, 0.0),
            "1": (PrivacyCost("1", PrivacyParams("1")), 10, 0.0),
        },
    ),
    "profiled": (
        PrivacyParams("1.5", "0.2"),
        {
            "all": (PrivacyCost("all", PrivacyParams("0", "0.05")), 0, 0.05),
            # no curve: confesses a little, tells with ε = 0.3, and is said to be (0.5, 0.01)-private
            "profiled": (PrivacyCost("profiled", PrivacyParams("0.5", "0.01"), profile=PROFILE), 3, 0.01),
            "1": (PrivacyCost("1", PrivacyParams("1")), 10, 0.0),
        },
    ),
}


def best_attack(kinds: Kinds, budget: PrivacyParams, share: Fraction) -> float:
    """The largest P(S) − e^ε·P'(S) of any course of admitted queries, each chosen after the answers before."""
    costs, losses, confessed = zip(*kinds.values(), strict=True)

    @cache
    def is_admitted(counts: tuple[int, ...]) -> bool:
        held = [cost.repeat(count) for cost, count in zip(costs, counts, strict=True) if count]
        return PrivacyAccountant(costs=held, set_aside=share).admits(budget, adaptive=True)

    @cache
    def value(counts: tuple[int, ...], loss: int) -> float:
        best = max(0.0, 1.0 - math.exp(budget.epsilon - UNIT * loss))
        for kind, (step, all_of_it) in enumerate(zip(losses, confessed, strict=True)):
            after = (*counts[:kind], counts[kind] + 1, *counts[kind + 1 :])
            if is_admitted(after):
                truth = 1.0 / (1.0 + math.exp(-UNIT * step))
                told = truth * value(after, loss + step) + (1.0 - truth) * value(after, loss - step)
                best = max(best, all_of_it + (1.0 - all_of_it) * told)
        return best

    return value((0,) * len(kinds), 0)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("share", [HALF, pytest.param(Fraction(0), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_no_strategy_passes_the_budget(name: str, share: Fraction) -> None:
    budget, kinds = KINDS[name]
    attack = best_attack(kinds, budget, share)
    assert attack <= budget.delta
    if share or name != "profiled":  # whose queries have a δ and no curve
        assert attack > 0.2 * budget.delta


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (2.0, 1e-5), (8.0, 0.01)])
def test_the_order_is_that_of_the_budget(epsilon: float, delta: float) -> None:
    """A budget admits what its own order does, which neither the queries nor their number choose."""
    orders = np.linspace(1.01, min(1.0 / delta, 80.0), 400_000)
    room = epsilon - np.log1p(-1.0 / orders) + (math.log(delta) + np.log(orders)) / (orders - 1.0)
    best = int(np.argmax(room / orders))
    order, room_there = orders[best], room[best]
    budget, none = PrivacyParams(epsilon, delta), Fraction(0)
    curves: list[Callable[[Any], Any]] = [
        lambda a: 1e-3 * a,
        lambda a: np.minimum(3e-3 * a, 5e-3),
        lambda a: 1e-4 * a**2,
    ]
    for curve in curves:
        query = PrivacyCost("a", renyi=RenyiCurve.of(curve, np.unique([*np.arange(1.5, 80.0, 0.5), order])))
        admitted = PrivacyAccountant(set_aside=none).queries_that_fit(query, budget, most=10**6, adaptive=True)
        assert admitted == pytest.approx(room_there / float(curve(order)), rel=2e-4, abs=1.0)


def test_a_filter_lies_between_fixed_kinds_and_that_of_their_squares() -> None:
    """[WRRW23, Theorem 1]: ½Σε_i² + √(2Σε_i²·log(1/δ')) with half of δ for δ'."""
    for epsilon, count, delta in ((0.05, 100, 1e-3), (0.3, 30, 0.01), (1.0, 5, 0.2), (1e-3, 10**5, 1e-9)):
        params = PrivacyParams(epsilon, 1e-16)
        squares = count * epsilon**2
        bound = filter_bound((PrivacyCost("a", params, count=count),), delta)
        known = min(count * epsilon, 0.5 * squares + math.sqrt(-2.0 * squares * math.log(delta / 2.0)))
        assert bound is not None
        assert optimal_epsilon([(params, count)], delta) <= bound.epsilon <= known * (1.0 + 1e-9)


def test_what_a_cut_leaves_is_bounded_by_the_profile() -> None:
    """Of laws on a few answers: E[min(x, c)^α] itself; of randomized response nothing is lost."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        p, q = rng.dirichlet(np.full(5, 0.7), 2)
        grid = np.linspace(0.0, 3.0, 601)
        heights = np.maximum(
            *(np.clip(x - np.exp(grid)[:, None] * y, 0.0, None).sum(axis=1) for x, y in ((p, q), (q, p)))
        )
        profile = PrivacyProfile(
            tuple(grid), tuple(np.minimum(1.0, np.maximum.accumulate(heights[::-1])[::-1] + 1e-15))
        )
        for epsilon, order in ((0.5, 1.1), (0.5, 2.4), (1.2, 2.4), (2.0, 9.0), (4.0, 3.0)):
            c = math.exp(epsilon)
            moments = [float(np.sum(y * np.minimum(x / y, c) ** order)) for x, y in ((p, q), (q, p))]
            found = math.exp((order - 1.0) * _bound_cut_divergence(profile, epsilon, order))
            assert found >= max(moments) * (1.0 - 1e-12)
    for epsilon, order in ((0.5, 2.0), (1.0, 1.5), (2.0, 20.0)):
        response = PrivacyProfile((0.0, epsilon), (math.tanh(epsilon / 2.0), 0.0))
        exact = float(RenyiCurve.from_pure(epsilon, [order]).values[0])
        assert _bound_cut_divergence(response, epsilon, order) == pytest.approx(exact, rel=1e-9)
        assert _bound_cut_divergence(response, epsilon, order) >= exact * (1.0 - 1e-12)


def test_a_certain_answer_is_counted_by_its_profile() -> None:
    """γ = 1 has no Rényi curve of use; forty of these were planned, and sums admit sixteen."""
    hospitals = ("0.02", "0.05", "0.08", "0.1", "0.1", "0.1", "0.15", "0.2", "0.2", "0.3", "0.5")
    voters = Voters.of([PrivacyParams(epsilon, "1e-6") for epsilon in hospitals])
    gamma = NoiseFunction(11, [0.59491843, 0.66053643, 0.82244246, 0.92930336, 0.97967424, 1.0])
    cost = describe_cost(certify(Problem(voters, PrivacyParams("0.5", "1e-4")), gamma))
    budget = PrivacyParams(8, "0.01")
    assert PrivacyAccountant().queries_that_fit(cost, budget, most=60, adaptive=True) >= 31
    bare = replace(cost, profile=None, renyi=None)
    assert PrivacyAccountant().queries_that_fit(bare, budget, most=60, adaptive=True) <= 21


def test_what_has_neither_a_curve_nor_room_for_its_delta_is_refused() -> None:
    ledger = PrivacyLedger.create(":memory:", PrivacyParams(8, "0.01"), composition="renyi")
    bare = PrivacyCost("a free γ", PrivacyParams("0.5", "1e-9"))
    with pytest.raises(
        BudgetExceededError, match="needs a Rényi curve, or delta 0, on a ledger of composition 'renyi'"
    ):
        ledger.debit(bare)
    ledger.debit(PrivacyCost("pure", PrivacyParams("0.5")))
    ledger.debit(PrivacyCost("known", PrivacyParams("0.5", "1e-3"), RenyiCurve.from_pure(0.6)).repeat(3))
    assert ledger.spent.queries == 4
    only = PrivacyCost("x", profile=PrivacyProfile((0.0, 0.1), (0.1, 0.0)))
    assert PrivacyAccountant(costs=[only]).spent(0.01, adaptive=True).bound == "none"


SEVEN = ("0.1", "0.2", "0.3", "0.4", "0.5", "0.7", "1")


def test_a_hospital_without_a_promise_joins_a_stream() -> None:
    """Thirty questions that were planned for (8, 0.01): the table changes after any of them."""
    hospitals = [PrivacyParams(epsilon) for epsilon in SEVEN]
    joined = [*hospitals, PrivacyParams("inf")]
    targets = (PrivacyParams("0.5208", "0.000166666"), PrivacyParams("0.4963", "0.000166666"))
    voters = (Voters.of(hospitals), Voters.of(joined, overlap=7))
    before, after = (
        describe_cost(optimize_table(Problem(who, target), prior=Dirichlet(), shape="monotone"))
        for who, target in zip(voters, targets, strict=True)
    )
    budget = PrivacyParams(8, "0.01")
    for first in (0, 10, 20):
        answers = {}
        for kinds in ("adaptive", "renyi"):
            ledger = PrivacyLedger.create(":memory:", budget, composition=kinds)
            if first:
                ledger.debit(before.repeat(first))
            answers[kinds] = first + ledger.queries_that_fit(after)
        assert answers["renyi"] >= 27
        assert answers["adaptive"] >= 24
