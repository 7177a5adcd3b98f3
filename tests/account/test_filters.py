"""Filters: no adversary who chooses kinds after answers passes the budget, whatever the strategy."""

import math
from collections.abc import Callable, Mapping
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
from darrm.privacy import PrivacyParams

UNIT = 0.1  # of privacy losses
Kinds = Mapping[str, tuple[PrivacyCost, int, float]]  # the cost, the loss in units, the probability of revealing all


def pure_kind(epsilon: str) -> tuple[PrivacyCost, int, float]:
    return PrivacyCost(epsilon, PrivacyParams(epsilon)), round(float(epsilon) / UNIT), 0.0


def revealing_kind(delta: str) -> tuple[PrivacyCost, int, float]:
    return PrivacyCost("all", PrivacyParams("0", delta)), 0, float(delta)


# randomized response with ε = 0.3 is (0.2, 0.0547)-private, too: its own δ is set aside or, by its curve, not needed
CURVED = PrivacyCost("curved", PrivacyParams("0.2", "0.055"), RenyiCurve.from_pure(0.3))
# it reveals all with probability 0.01, answers with ε = 0.3, and is charged as (0.5, 0.01)-private, without a curve
PROFILE = PrivacyProfile((0.0, 0.3), (0.01 + 0.99 * math.tanh(0.15), 0.01))
PROFILED = PrivacyCost("profiled", PrivacyParams("0.5", "0.01"), profile=PROFILE)
KINDS: dict[str, tuple[PrivacyParams, Kinds]] = {
    "pure": (PrivacyParams("2", "0.05"), {epsilon: pure_kind(epsilon) for epsilon in ("0.3", "0.5", "1")}),
    "revealing": (
        PrivacyParams("2", "0.2"),
        {"all": revealing_kind("0.1"), "0.3": pure_kind("0.3"), "1": pure_kind("1")},
    ),
    "curved": (
        PrivacyParams("1.2", "0.2"),
        {"all": revealing_kind("0.02"), "curved": (CURVED, 3, 0.0), "1": pure_kind("1")},
    ),
    "profiled": (
        PrivacyParams("1.5", "0.2"),
        {"all": revealing_kind("0.05"), "profiled": (PROFILED, 3, 0.01), "1": pure_kind("1")},
    ),
}


def compute_best_attack(kinds: Kinds, budget: PrivacyParams, share: Fraction) -> float:
    """Compute the largest P(S) − e^ε·P'(S) over admitted queries, each chosen after the answers before."""
    costs, losses, failures = zip(*kinds.values(), strict=True)

    @cache
    def is_admitted(counts: tuple[int, ...]) -> bool:
        charged = [cost.repeat(count) for cost, count in zip(costs, counts, strict=True) if count]
        return PrivacyAccountant(costs=charged, set_aside=share).admits(budget, adaptive=True)

    @cache
    def compute_value(counts: tuple[int, ...], loss: int) -> float:
        best = max(0.0, 1.0 - math.exp(budget.epsilon - UNIT * loss))
        for kind, (step, failure) in enumerate(zip(losses, failures, strict=True)):
            next_counts = (*counts[:kind], counts[kind] + 1, *counts[kind + 1 :])
            if is_admitted(next_counts):
                truth = 1.0 / (1.0 + math.exp(-UNIT * step))
                value = truth * compute_value(next_counts, loss + step)
                value += (1.0 - truth) * compute_value(next_counts, loss - step)
                best = max(best, failure + (1.0 - failure) * value)
        return best

    return compute_value((0,) * len(kinds), 0)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("share", [HALF, pytest.param(Fraction(0), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_no_adaptive_strategy_passes_the_budget(name: str, share: Fraction) -> None:
    budget, kinds = KINDS[name]
    attack = compute_best_attack(kinds, budget, share)
    assert attack <= budget.delta
    if share or name != "profiled":  # whose queries have a δ and no curve
        assert attack > 0.2 * budget.delta


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (2.0, 1e-5), (8.0, 0.01)])
def test_the_order_of_a_filter_depends_on_the_budget_alone(epsilon: float, delta: float) -> None:
    orders = np.linspace(1.01, min(1.0 / delta, 80.0), 400_000)
    limits = epsilon - np.log1p(-1.0 / orders) + (math.log(delta) + np.log(orders)) / (orders - 1.0)
    best = int(np.argmax(limits / orders))
    order, limit = orders[best], limits[best]
    budget = PrivacyParams(epsilon, delta)
    curves: list[Callable[[Any], Any]] = [
        lambda a: 1e-3 * a,
        lambda a: np.minimum(3e-3 * a, 5e-3),
        lambda a: 1e-4 * a**2,
    ]
    for curve in curves:
        query = PrivacyCost("a", renyi=RenyiCurve.of(curve, np.unique([*np.arange(1.5, 80.0, 0.5), order])))
        account = PrivacyAccountant(set_aside=Fraction(0))
        admitted = account.queries_that_fit(query, budget, most=10**6, adaptive=True)
        assert admitted == pytest.approx(limit / float(curve(order)), rel=2e-4, abs=1.0)


@pytest.mark.parametrize(
    ("epsilon", "count", "delta"), [(0.05, 100, 1e-3), (0.3, 30, 0.01), (1.0, 5, 0.2), (1e-3, 10**5, 1e-9)]
)
def test_a_filter_costs_more_than_fixed_kinds_and_less_than_squares(epsilon: float, count: int, delta: float) -> None:
    """[WRRW23, Theorem 1]: ½Σε_i² + √(2Σε_i²·log(1/δ')) with half of δ for δ'."""
    params, squares = PrivacyParams(epsilon, 1e-16), count * epsilon**2
    bound = filter_bound((PrivacyCost("a", params, count=count),), delta)
    known = min(count * epsilon, 0.5 * squares + math.sqrt(-2.0 * squares * math.log(delta / 2.0)))
    assert bound is not None
    assert optimal_epsilon([(params, count)], delta) <= bound.epsilon <= known * (1.0 + 1e-9)


def integrate_moment(profile: PrivacyProfile, epsilon: float, order: float) -> float:
    """Integrate the bound on E[min(x, c)^α] by Gauss's rule on every chord up to one that contains the cut."""
    u = np.exp(np.union1d(profile.epsilons, max(epsilon, profile.epsilons[-1])))
    nodes, weights = np.polynomial.legendre.leggauss(10)
    halves = 0.5 * np.diff(u)[:, None]
    points = u[:-1, None] + halves * (1.0 + nodes)
    areas = halves * weights * np.interp(points, np.exp(profile.epsilons), profile.deltas)
    tail = profile.deltas[-1] * u[-1] ** -order / order
    cut = np.sum((areas * points ** (order - 2.0))[u[:-1] < math.exp(epsilon)])
    return 1.0 + order * (order - 1.0) * float(np.sum(areas * points ** (-order - 1.0)) + tail + cut)


def test_the_divergence_after_a_cut_is_bounded_by_the_profile() -> None:
    """The bound is at least E[min(x, c)^α] of random laws, and exact for randomized response."""
    rng, grid = np.random.default_rng(5), np.linspace(0.0, 3.0, 601)
    for _ in range(60):
        p, q = rng.dirichlet(np.full(5, 0.7), 2)
        sides = [np.clip(x - np.exp(grid)[:, None] * y, 0.0, None).sum(axis=1) for x, y in ((p, q), (q, p))]
        deltas = np.minimum(1.0, np.maximum.accumulate(np.maximum(*sides)[::-1])[::-1] + 1e-15)
        profile = PrivacyProfile(tuple(grid), tuple(deltas))
        for epsilon, order in ((0.5, 1.1), (0.5, 2.4), (1.2, 2.4), (2.0, 9.0), (4.0, 3.0)):
            moments = [float(np.sum(y * np.minimum(x / y, math.exp(epsilon)) ** order)) for x, y in ((p, q), (q, p))]
            bound = math.exp((order - 1.0) * _bound_cut_divergence(profile, epsilon, order))
            assert bound >= max(moments) * (1.0 - 1e-12)
            assert bound == pytest.approx(integrate_moment(profile, epsilon, order), rel=1e-9)
    for epsilon, order in ((0.2, 1.1), (0.3, 3.0), (0.7, 8.0)):
        moment = math.exp((order - 1.0) * _bound_cut_divergence(PROFILE, epsilon, order))
        assert moment == pytest.approx(integrate_moment(PROFILE, epsilon, order), rel=1e-9)
    for epsilon, order in ((0.5, 2.0), (1.0, 1.5), (2.0, 20.0)):
        response = PrivacyProfile((0.0, epsilon), (math.tanh(epsilon / 2.0), 0.0))
        exact = float(RenyiCurve.from_pure(epsilon, [order]).values[0])
        assert exact * (1.0 - 1e-12) <= _bound_cut_divergence(response, epsilon, order) <= exact * (1.0 + 1e-9)


def test_a_delta_beyond_the_share_set_aside_needs_a_curve() -> None:
    account = PrivacyAccountant(costs=[PrivacyCost("a", guarantee=PrivacyParams(0.1, 1e-5), count=100)])
    spent = account.spent(0.01, adaptive=True)
    assert account.spent(0.01).epsilon < 2.97 < spent.epsilon < 2.98
    assert [account.admits(PrivacyParams(epsilon, 0.01), adaptive=True) for epsilon in (2.97, 2.98)] == [False, True]
    assert account.spent(0.0019, adaptive=True).bound == "none"
    assert PrivacyAccountant(costs=[PrivacyCost("a", PrivacyParams("0.1"))]).spent(0.0, adaptive=True).bound == "simple"
    profile_only = PrivacyCost("x", profile=PrivacyProfile((0.0, 0.1), (0.1, 0.0)))
    assert PrivacyAccountant(costs=[profile_only]).spent(0.01, adaptive=True).bound == "none"
    ledger = PrivacyLedger.create(":memory:", PrivacyParams(8, "0.01"), composition="renyi")
    with pytest.raises(BudgetExceededError, match="a Rényi curve, or delta 0, on a ledger of composition 'renyi'"):
        ledger.debit(PrivacyCost("a free γ", PrivacyParams("0.5", "1e-9")))
    ledger.debit(PrivacyCost("pure", PrivacyParams("0.5")))
    ledger.debit(PrivacyCost("known", PrivacyParams("0.5", "1e-3"), RenyiCurve.from_pure(0.6)).repeat(3))
    assert ledger.spent.queries == 4
