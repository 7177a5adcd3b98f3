"""Totals: Rényi filters and private models against laws, the accountant, and every course of answers."""

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from darrm import NoiseFunction, PrivacyLedger, PrivacyParams, Problem, Table, Voters, certify
from darrm.account.accountant import PrivacyAccountant
from darrm.account.filters import HALF, filter_bound
from darrm.loss.privacy_cost import PrivacyCost
from darrm.majority import baselines
from darrm.noisy_max.label_cost import label_curve, label_profile
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.table.release import describe_cost
from darrm.verify import totals
from darrm.verify.audit import audit
from darrm.verify.formats import Charge
from darrm.verify.sums import compose_delta
from darrm.verify.totals import Priced, Total, prove_filter, smallest_total
from darrm.verify.verdicts import exponential
from tests.account.test_models import list_label_laws
from tests.verify.support import charge_of, cost_of
from tests.verify.test_sums import pay_pairs

GAUSSIAN = [(Fraction(order), Fraction(order, 200)) for order in range(2, 20)]
GAUSSIAN_CURVE: dict[str, Any] = {
    name: tuple(float(pair[place]) for pair in GAUSSIAN) for place, name in enumerate(("orders", "divergences"))
}


@pytest.fixture(scope="module", autouse=True)
def _precision() -> Iterator[None]:
    with ctx.workprec(192):
        yield


def to_float(ball: arb | None) -> float:
    assert ball is not None
    assert float(ball.rad()) < 1e-30
    return float(ball.mid())


def find_total(account: list[Priced], delta: Fraction, goal: float = 0.0) -> Total:
    total = smallest_total(account, delta, goal=goal)
    assert total is not None
    return total


# ------------------------------------------------------------------------------------------------ filters


@pytest.mark.parametrize(("epsilon", "order"), [("0.1", "2"), ("1", "7"), ("3", "1.5"), ("0.001", "200")])
def test_randomized_response_has_its_divergence(epsilon: str, order: str) -> None:
    x, alpha = float(epsilon), float(order)
    truth = 1.0 / (1.0 + math.exp(-x))
    moment = truth**alpha * (1.0 - truth) ** (1.0 - alpha) + (1.0 - truth) ** alpha * truth ** (1.0 - alpha)
    expected = math.log(moment) / (alpha - 1.0)
    pair = (Fraction(epsilon), Fraction(order))
    assert to_float(totals._bound_response(*pair)) == pytest.approx(expected, rel=1e-9)
    # its profile bends at ε alone, so that a cut there leaves all of it
    profile = [(Fraction(0), Fraction(math.tanh(x / 2.0))), (pair[0], Fraction(0))]
    for points in (profile, profile[1:]):
        assert to_float(totals._bound_cut_ratios(points, *pair)) == pytest.approx(expected, rel=1e-9)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=2, max_size=4),
    st.lists(st.integers(0, 12), min_size=1, max_size=5, unique=True),
    st.integers(0, 12),
    st.sampled_from([Fraction(5, 4), Fraction(2), Fraction(6)]),
)
def test_no_law_with_a_profile_has_a_larger_cut_divergence(
    weights: list[tuple[int, int]], places: list[int], cut: int, order: Fraction
) -> None:
    sizes = [sum(side) for side in zip(*weights, strict=True)]
    law = [(Fraction(p, sizes[0]), Fraction(q, sizes[1])) for p, q in weights]

    def compute_delta(epsilon: Fraction) -> Fraction:
        ratio = exponential(epsilon).lower
        sides = [[max(Fraction(0), pair[side] - ratio * pair[1 - side]) for pair in law] for side in (0, 1)]
        return max(sum(side, Fraction(0)) for side in sides)

    profile = [(Fraction(place, 4), compute_delta(Fraction(place, 4))) for place in places]
    epsilon, alpha = Fraction(cut, 4), float(order)
    moment = sum(float(q) * min(float(p / q), math.exp(epsilon)) ** alpha for p, q in law)
    assert to_float(totals._bound_cut_ratios(profile, epsilon, order)) >= math.log(moment) / (alpha - 1.0) - 1e-12


def pay_labels(sigma: float, count: int) -> PrivacyCost:
    return PrivacyCost("labels", renyi=label_curve(DiscreteGaussian(sigma)), count=count)


PROFILE = PrivacyCost(
    "b", guarantee=PrivacyParams("0.3", "1e-8"), profile=label_profile(DiscreteGaussian(30.0)), count=100
)
ADMITTED = {
    "pure": ([pay_pairs("0.1", "0", 100)], "0.01", HALF),
    "with δ": ([pay_pairs("0.1", "1e-6", 100), pay_pairs("0.3", "1e-7", 10)], "1e-3", HALF),
    "curves": ([pay_labels(10.0, 100)], "1e-5", Fraction(0)),
    "a profile": ([PROFILE], "1e-5", HALF),
    "a curve and a pair": ([pay_labels(10.0, 9), pay_pairs("0.5", "0", 9)], "1e-5", HALF),
    "sums": ([pay_pairs("0.1", "1e-6", 3)], "1e-5", HALF),
}


@pytest.mark.parametrize("name", ADMITTED)
def test_a_filter_admits_what_the_accountant_admits(name: str) -> None:
    charges, delta, share = ADMITTED[name]
    bound = filter_bound(tuple(charges), float(delta), share)
    assert bound is not None
    costs, epsilon = [charge_of(charge) for charge in charges], Fraction(bound.epsilon)
    assert prove_filter(costs, epsilon * (1 + Fraction(1, 10**6)), Fraction(delta), share)
    assert not prove_filter(costs, epsilon * (1 - Fraction(1, 10**6)), Fraction(delta), share)


@pytest.mark.parametrize(("epsilon", "delta"), [("0.5", "1e-6"), ("3", "1e-2"), ("10", "1e-9")])
def test_admitted_queries_are_private(epsilon: str, delta: str) -> None:
    budget = (Fraction(epsilon), Fraction(delta))
    query, count = (Fraction(epsilon) / 20, Fraction(0)), 0
    while prove_filter([Charge(count + 1, query)], *budget, Fraction(0)):
        count += 1
    assert count >= 20
    assert compose_delta([([query], count)], budget[0]) <= budget[1]


def test_a_filter_admits_no_query_without_a_bound() -> None:
    failing = Charge(2, (Fraction(1, 10), Fraction(1, 100)), profile=((0.0,), (0.1,)))
    budget = (Fraction(5), Fraction(3, 100))
    assert prove_filter([failing], *budget, Fraction(2, 3))
    assert not prove_filter([failing], *budget, Fraction(65, 100))
    assert prove_filter([replace(failing, **GAUSSIAN_CURVE)], *budget, Fraction(65, 100))
    assert not prove_filter([replace(failing, **GAUSSIAN_CURVE, count=1000)], *budget, Fraction(65, 100))
    assert not prove_filter([Charge(1)], *budget, HALF)
    assert not prove_filter([Charge(1, **GAUSSIAN_CURVE)], *budget, Fraction(1))
    assert prove_filter([], *budget, Fraction(1))


def test_a_curve_is_interpolated_between_its_orders() -> None:
    ends = [GAUSSIAN[0], GAUSSIAN[-1]]
    chord = (Fraction(1, 100) + (Fraction(18 * 19, 200) - Fraction(1, 100)) * Fraction(3, 17)) / 4
    assert to_float(totals._interpolate_curve(ends, Fraction(5))) == pytest.approx(float(chord), rel=1e-15)
    for order, value in ((7, 7 / 200), (Fraction(3, 2), 1 / 100)):
        assert to_float(totals._interpolate_curve(GAUSSIAN, Fraction(order))) == value
    assert totals._interpolate_curve(GAUSSIAN, Fraction(20)) is None
    assert totals._interpolate_curve((), Fraction(2)) is None


# ------------------------------------------------------------------------------------------------ planned queries


@pytest.mark.parametrize("delta", ["1e-3", "1e-5", "1e-12"])
def test_planned_curves_cost_what_the_accountant_computes(delta: str) -> None:
    charges = [pay_labels(10.0, 50), pay_labels(25.0, 7)]
    account: list[Priced] = [(charge_of(charge), None) for charge in charges]
    expected = PrivacyAccountant(costs=charges).smallest_epsilon(float(delta))
    assert find_total(account, Fraction(delta)).epsilon == pytest.approx(expected, rel=1e-9)
    other = Charge(guarantee=(Fraction(1), Fraction(0)))
    assert smallest_total([*account, (other, None)], Fraction(delta), goal=0.0) is None


def test_a_sum_with_a_larger_delta_is_no_total() -> None:
    account: list[Priced] = [(charge_of(pay_pairs("0.1", "1e-3", 10)), None)]
    assert smallest_total(account, Fraction(1, 10**5), goal=0.0) is None
    assert find_total(account, Fraction(1, 50), 1.0).epsilon == pytest.approx(1.0)


# ------------------------------------------------------------------------------------------------ private models

NON_PRIVATE = PrivacyParams("inf")
ONE_SHARD = Voters(5, PrivacyParams("1", "1e-6"), overlap=1, models=True)
DIFFERENT = Voters.of(
    [PrivacyParams("0.2", "1e-6")] * 3 + [PrivacyParams("0.6", "1e-5"), PrivacyParams("1")], 2, models=True
)
ALL_MODELS = Voters(3, PrivacyParams("0.7"), models=True)
ACCOUNTS = {
    "one shard": (ONE_SHARD, 20, "1e-4"),
    "few answers": (ONE_SHARD, 2, "1e-5"),
    "no delta": (ALL_MODELS, 3, "0"),
    "two shards": (Voters(7, PrivacyParams("0.4", "1e-5"), overlap=2, models=True), 30, "1e-3"),
    "all models": (ALL_MODELS, 4, "1e-6"),
    "different models": (DIFFERENT, 12, "1e-4"),
}
BOUNDS = {
    "private models": "the composition of the models",
    "non-private voters": "the costs for voters without a guarantee",
    "joint bound": "the joint bound of models and release",
    "subsampling": "subsampling of the models",
}


def make_table(voters: Voters) -> Table:
    half = [0.1, 0.15, 0.25, 0.4][: voters.num_upper_levels]
    return certify(Problem(voters, PrivacyParams("1.5", "1e-3")), NoiseFunction(voters.K, half))


def price(table: Table, queries: int) -> list[Priced]:
    return [(charge_of(describe_cost(table, queries)), cost_of(table))]


def list_bounds(account: list[Priced], delta: Fraction, goal: Fraction) -> dict[str, Fraction]:
    models = account[0][0].models
    assert models is not None
    return {how: epsilon for epsilon, how in totals._bound_models(models, account, delta, goal) if epsilon is not None}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ACCOUNTS)
def test_each_bound_for_models_is_that_of_the_accountant(name: str) -> None:
    voters, queries, delta = ACCOUNTS[name]
    table = make_table(voters)
    account = price(table, queries)
    spent = PrivacyAccountant(costs=[describe_cost(table, queries)]).spent(float(delta))
    for bound in spent.bounds:
        goal, how = Fraction(bound.epsilon), BOUNDS[bound.name]
        # losses for voters without a guarantee, added in whole numbers, are some thousandth above those in floats
        tolerance = Fraction(1, 10**9) if bound.name == "private models" else Fraction(2, 1000)
        assert list_bounds(account, Fraction(delta), goal)[how] <= goal * (1 + tolerance)
        # different models count as what they are here, as the least private of them for the accountant
        if voters.per_voter is None:
            smaller = list_bounds(account, Fraction(delta), goal * Fraction(9, 10)).get(how)
            assert smaller is None or smaller >= goal * (1 - Fraction(1, 10**6))
    total = find_total(account, Fraction(delta), spent.epsilon)
    assert not total.stated
    assert total.epsilon <= spent.epsilon * 1.002


def make_model_charge(each: str, release: str, overlap: int, stated: str) -> list[Priced]:
    """Make a charge for two answers of five models, which only the ledger states."""
    models = Voters(5, PrivacyParams(each), overlap=overlap, models=True)
    public = Voters(5, NON_PRIVATE, overlap=overlap)
    plain = PrivacyCost("a release", guarantee=PrivacyParams(release), voters=public)
    settings: dict[str, Any] = {"for_non_private_voters": (plain,), "count": 2}
    return [(charge_of(PrivacyCost("of models", PrivacyParams(stated), voters=models, **settings)), None)]


@pytest.mark.parametrize(("each", "release"), [("1", "1"), ("2", "0.3"), ("0.1", "4")])
def test_the_joint_bound_of_pure_privacy_has_a_closed_form(each: str, release: str) -> None:
    account = make_model_charge(each, release, 1, "9")
    x = Fraction(2.0 * math.atanh(math.tanh(float(each) / 2.0) * math.tanh(float(release))))
    joint = BOUNDS["joint bound"]
    assert list_bounds(account, Fraction(0), x)[joint] == x * totals._JOINT_FACTORS[0]
    assert list_bounds(account, Fraction(0), x * (1 - Fraction(1, 10**8)))[joint] > x


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("overlap", "delta"), [(1, "0.01"), (2, "0.1"), (3, "0.01"), (1, "0.1"), (2, "0.01"), (3, "0.1")]
)
def test_no_strategy_of_models_costs_more(overlap: int, delta: str) -> None:
    voters = Voters(3, PrivacyParams("1"), overlap=overlap, models=True)
    table = certify(Problem(voters, PrivacyParams("2.9")), NoiseFunction(3, [0.4, 0.9]))
    total = find_total(price(table, 3), Fraction(delta))
    laws = list_label_laws(0.5 * (1.0 + table.gamma.signed), [1.0] * overlap, 3 - overlap, 3)
    worst = max(float(np.maximum(0.0, p - math.exp(total.epsilon) * q).sum(axis=1).max()) for p, q in laws)
    assert worst <= float(delta)
    assert overlap < 3 or total.epsilon < 3.0  # less than the models alone, to which it is nothing


def test_subsampled_models_cost_less_only_if_the_table_proves_it() -> None:
    voters = Voters(11, PrivacyParams("0.3", "1e-6"), models=True)
    problem = Problem.from_allowance(voters, 3)
    table = certify(problem, baselines.subsampling(problem))
    account, delta, how = price(table, 3), Fraction(1, 10**4), BOUNDS["subsampling"]
    bounds = PrivacyAccountant(costs=[describe_cost(table, 3)]).spent(1e-4).bounds
    expected = {bound.name: bound.epsilon for bound in bounds}["subsampling"]
    epsilon = list_bounds(account, delta, Fraction(0))[how]
    assert float(epsilon) == pytest.approx(expected, rel=1e-6)
    charge = replace(account[0][0], sample=(1, 0.0))  # a lie: a label looks at three voters
    assert how not in list_bounds([(charge, account[0][1])], delta, Fraction(0))
    assert list_bounds([(charge, None)], delta, Fraction(0))[how] < epsilon  # without a table among the files


@pytest.mark.slow
def test_a_small_stated_pair_is_not_believed_where_the_table_is_there() -> None:
    charge, cost = price(make_table(ONE_SHARD), 20)[0]
    cheap = replace(charge.plain[0][1], guarantee=(Fraction(1, 1000), Fraction(0)))
    lie = replace(charge, plain=((charge.plain[0][0], cheap),))
    delta = Fraction(1, 10**4)
    honest, with_table, without_table = (
        find_total([priced], delta) for priced in ((charge, cost), (lie, cost), (lie, None))
    )
    assert without_table.epsilon < 0.05 < honest.epsilon * 0.999 < with_table.epsilon
    assert (without_table.stated, with_table.stated) == (True, False)


def test_a_huge_epsilon_stops_no_audit(tmp_path: Path) -> None:
    assert smallest_total(make_model_charge("1e110", "1e100", 2, "1e100"), Fraction(0), goal=1e100) is None
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams("1e111", "1e-5"))
    ledger.debit(PrivacyCost("a release", guarantee=PrivacyParams("1e100", "1e-9"), count=2))
    assert audit([tmp_path]).status == 0
