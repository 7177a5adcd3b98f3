"""The auditor's totals: Rényi filters and private models against laws, the accountant, and courses of answers."""

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
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
from darrm.table.release import describe_cost as cost_model
from darrm.verify import totals
from darrm.verify.audit import audit
from darrm.verify.formats import Charge
from darrm.verify.sums import compose_delta
from darrm.verify.totals import Priced, prove_filter, smallest_total
from darrm.verify.verdicts import FALSE, exponential
from tests.verify.support import charge_of, cost_of

GAUSSIAN = [(Fraction(order), Fraction(order, 200)) for order in range(2, 20)]
GAUSSIAN_CURVE: dict[str, Any] = {
    name: tuple(float(pair[place]) for pair in GAUSSIAN) for place, name in enumerate(("orders", "divergences"))
}
NOISE = DiscreteGaussian(10.0)


@pytest.fixture(scope="module", autouse=True)
def _precision() -> Iterator[None]:
    with ctx.workprec(192):
        yield


def value(ball: arb | None) -> float:
    assert ball is not None
    assert float(ball.rad()) < 1e-30
    return float(ball.mid())


@pytest.mark.parametrize(("epsilon", "order"), [("0.1", "2"), ("1", "7"), ("3", "1.5"), ("0.001", "200")])
def test_randomized_response_has_its_divergence(epsilon: str, order: str) -> None:
    x, alpha = float(epsilon), float(order)
    truth = 1.0 / (1.0 + math.exp(-x))
    moment = truth**alpha * (1.0 - truth) ** (1.0 - alpha) + (1.0 - truth) ** alpha * truth ** (1.0 - alpha)
    expected = math.log(moment) / (alpha - 1.0)
    pair = (Fraction(epsilon), Fraction(order))
    assert value(totals._bound_response(*pair)) == pytest.approx(expected, rel=1e-9)
    # its profile bends at ε alone, and what a cut there leaves is all of it
    profile = [(Fraction(0), Fraction(math.tanh(x / 2.0))), (pair[0], Fraction(0))]
    assert value(totals._bound_cut_ratios(profile, *pair)) == pytest.approx(expected, rel=1e-9)
    assert value(totals._bound_cut_ratios(profile[1:], *pair)) == pytest.approx(expected, rel=1e-9)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=2, max_size=4),
    st.lists(st.integers(0, 12), min_size=1, max_size=5, unique=True),
    st.integers(0, 12),
    st.sampled_from([Fraction(5, 4), Fraction(2), Fraction(6)]),
)
def test_no_law_with_the_profile_leaves_more(
    weights: list[tuple[int, int]], places: list[int], cut: int, order: Fraction
) -> None:
    sizes = [sum(side) for side in zip(*weights, strict=True)]
    law = [(Fraction(p, sizes[0]), Fraction(q, sizes[1])) for p, q in weights]

    def delta(epsilon: Fraction) -> Fraction:
        ratio = exponential(epsilon).lower
        sides = [[max(Fraction(0), both[own] - ratio * both[1 - own]) for both in law] for own in (0, 1)]
        return max(sum(side, Fraction(0)) for side in sides)

    profile = [(Fraction(place, 4), delta(Fraction(place, 4))) for place in places]
    epsilon, alpha = Fraction(cut, 4), float(order)
    left = math.log(sum(float(q) * min(float(p / q), math.exp(epsilon)) ** alpha for p, q in law)) / (alpha - 1.0)
    assert value(totals._bound_cut_ratios(profile, epsilon, order)) >= left - 1e-12


def test_a_curve_is_read_between_its_orders() -> None:
    two = [GAUSSIAN[0], GAUSSIAN[-1]]
    chord = (Fraction(1, 100) + (Fraction(18 * 19, 200) - Fraction(1, 100)) * Fraction(3, 17)) / 4
    assert value(totals._interpolate_curve(two, Fraction(5))) == pytest.approx(float(chord), rel=1e-15)
    assert value(totals._interpolate_curve(GAUSSIAN, Fraction(7))) == 7 / 200
    assert value(totals._interpolate_curve(GAUSSIAN, Fraction(3, 2))) == 1 / 100
    assert totals._interpolate_curve(GAUSSIAN, Fraction(20)) is None
    assert totals._interpolate_curve((), Fraction(2)) is None


@pytest.mark.parametrize("delta", ["1e-3", "1e-5", "1e-12"])
def test_fixed_kinds_cost_what_the_accountant_says(delta: str) -> None:
    curves = [label_curve(DiscreteGaussian(sigma)) for sigma in (10.0, 25.0)]
    charges = [PrivacyCost("a", renyi=curves[0], count=50), PrivacyCost("b", renyi=curves[1], count=7)]
    priced: list[totals.Priced] = [(charge_of(one), None) for one in charges]
    expected = (curves[0].repeat(50) + curves[1].repeat(7)).best(float(delta)).epsilon
    found = smallest_total(priced, Fraction(delta), goal=0.0)
    assert found is not None
    assert found.epsilon == pytest.approx(expected, rel=1e-9)
    other = Charge(guarantee=(Fraction(1), Fraction(0)))
    assert smallest_total([*priced, (other, None)], Fraction(delta), goal=0.0) is None


def pair(epsilon: str, delta: str, count: int) -> PrivacyCost:
    return PrivacyCost("a", guarantee=PrivacyParams(epsilon, delta), count=count)


BOTH = PrivacyCost(
    "b", guarantee=PrivacyParams("0.3", "1e-8"), profile=label_profile(DiscreteGaussian(30.0)), count=100
)
CHOSEN = {
    "pure": ([pair("0.1", "0", 100)], "0.01", HALF),
    "some fail": ([pair("0.1", "1e-6", 100), pair("0.3", "1e-7", 10)], "1e-3", HALF),
    "curves": ([PrivacyCost("labels", renyi=label_curve(NOISE), count=100)], "1e-5", Fraction(0)),
    "a profile": ([BOTH], "1e-5", HALF),
    "a curve beside a pair": (
        [PrivacyCost("labels", renyi=label_curve(NOISE), count=9), pair("0.5", "0", 9)],
        "1e-5",
        HALF,
    ),
    "the epsilons": ([pair("0.1", "1e-6", 3)], "1e-5", HALF),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_a_budget_admits_what_the_accountant_lets_in(name: str) -> None:
    charges, delta, aside = CHOSEN[name]
    bound = filter_bound(tuple(charges), float(delta), aside)
    assert bound is not None
    costs, epsilon = [charge_of(one) for one in charges], Fraction(bound.epsilon)
    assert prove_filter(costs, epsilon * (1 + Fraction(1, 10**6)), Fraction(delta), aside)
    assert not prove_filter(costs, epsilon * (1 - Fraction(1, 10**6)), Fraction(delta), aside)


@pytest.mark.parametrize(("epsilon", "delta"), [("0.5", "1e-6"), ("3", "1e-2"), ("10", "1e-9")])
def test_what_is_admitted_is_private(epsilon: str, delta: str) -> None:
    budget = (Fraction(epsilon), Fraction(delta))
    each, count = Fraction(epsilon) / 20, 0
    while prove_filter([Charge(count + 1, (each, Fraction(0)))], *budget, Fraction(0)):
        count += 1
    assert count >= 20
    assert compose_delta([([(each, Fraction(0))], count)], budget[0]) <= budget[1]


def test_what_nothing_bounds_is_not_admitted() -> None:
    failing = Charge(2, (Fraction(1, 10), Fraction(1, 100)), profile=((0.0,), (0.1,)))
    whole = (Fraction(5), Fraction(3, 100))
    assert prove_filter([failing], *whole, Fraction(2, 3))
    assert not prove_filter([failing], *whole, Fraction(65, 100))
    assert prove_filter([replace(failing, **GAUSSIAN_CURVE)], *whole, Fraction(65, 100))
    assert not prove_filter([replace(failing, **GAUSSIAN_CURVE, count=1000)], *whole, Fraction(65, 100))
    assert not prove_filter([Charge(1)], *whole, HALF)
    assert not prove_filter([Charge(1, **GAUSSIAN_CURVE)], *whole, Fraction(1))
    assert prove_filter([], *whole, Fraction(1))


PLAIN = PrivacyParams("inf")
ONE = Voters(5, PrivacyParams("1", "1e-6"), overlap=1, models=True)
TWO = Voters(7, PrivacyParams("0.4", "1e-5"), overlap=2, models=True)
ALL = Voters(3, PrivacyParams("0.7"), models=True)
UNLIKE = Voters.of(
    [PrivacyParams("0.2", "1e-6")] * 3 + [PrivacyParams("0.6", "1e-5"), PrivacyParams("1")], 2, models=True
)
TARGET = PrivacyParams("1.5", "1e-3")


def table_for(voters: Voters) -> Table:
    half = [0.1, 0.15, 0.25, 0.4][: voters.num_upper_levels]
    return certify(Problem(voters, TARGET), NoiseFunction(voters.K, half))


def priced(table: Table, queries: int) -> list[Priced]:
    return [(charge_of(cost_model(table, queries)), cost_of(table))]


ACCOUNTS = {
    "one shard": (ONE, 20, "1e-4"),
    "few answers": (ONE, 2, "1e-5"),
    "no delta": (ALL, 3, "0"),
    "two shards": (TWO, 30, "1e-3"),
    "all models": (ALL, 4, "1e-6"),
    "models that differ": (UNLIKE, 12, "1e-4"),
}
BOUNDS = {
    "private models": "the composition of the models",
    "non-private voters": "the costs for voters without a guarantee",
    "joint bound": "the joint bound of models and release",
    "subsampling": "subsampling of the models",
}


def proved(account: list[Priced], delta: Fraction, enough: Fraction) -> dict[str, Fraction]:
    models = account[0][0].models
    assert models is not None
    found = totals._bound_models(models, account, delta, enough)
    return {how: epsilon for epsilon, how in found if epsilon is not None}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ACCOUNTS)
def test_each_bound_is_the_accountants(name: str) -> None:
    voters, queries, delta = ACCOUNTS[name]
    table = table_for(voters)
    account = priced(table, queries)
    spent = PrivacyAccountant(costs=[cost_model(table, queries)]).spent(float(delta))
    for bound in spent.bounds:
        enough = Fraction(bound.epsilon)
        # losses for voters without a guarantee, added in whole numbers, are some thousandth above those in floats
        room = Fraction(1, 10**9) if bound.name == "private models" else Fraction(2, 1000)
        found = proved(account, Fraction(delta), enough)[BOUNDS[bound.name]]
        assert found <= enough * (1 + room)
        # models that differ count as what they are here, as the most public of them for the accountant
        if voters.per_voter is None:
            lower = proved(account, Fraction(delta), enough * Fraction(9, 10)).get(BOUNDS[bound.name])
            assert lower is None or lower >= enough * (1 - Fraction(1, 10**6))
    least = smallest_total(account, Fraction(delta), goal=spent.epsilon)
    assert least is not None
    assert not least.stated
    assert least.epsilon <= spent.epsilon * 1.002


@pytest.mark.parametrize(("each", "release"), [("1", "1"), ("2", "0.3"), ("0.1", "4")])
def test_the_joint_bound_of_pure_privacy_has_a_closed_form(each: str, release: str) -> None:
    voters = Voters(5, PrivacyParams(each), overlap=1, models=True)
    plain = PrivacyCost("a release", guarantee=PrivacyParams(release), voters=Voters(5, PLAIN, overlap=1))
    charge = PrivacyCost(
        "of models", guarantee=PrivacyParams(9), voters=voters, for_non_private_voters=(plain,), count=2
    )
    account: list[Priced] = [(charge_of(charge), None)]
    x = Fraction(2.0 * math.atanh(math.tanh(float(each) / 2.0) * math.tanh(float(release))))
    joint = BOUNDS["joint bound"]
    assert proved(account, Fraction(0), x)[joint] == x * totals._JOINT_FACTORS[0]
    assert proved(account, Fraction(0), x * (1 - Fraction(1, 10**8)))[joint] > x


def labels_of(bits: tuple[int, ...], course: tuple[tuple[int, ...], ...], gamma: NoiseFunction) -> Iterator[float]:
    """Yield Pr[labels] for all labels; model k answers question q with its bit, turned where course[q][k] is 1."""
    ones = [sum(bit ^ turned for bit, turned in zip(bits, turns, strict=True)) for turns in course]
    shares = [0.5 * (1.0 + gamma.signed[count]) for count in ones]
    for labels in product((0, 1), repeat=len(course)):
        yield math.prod(share if label else 1.0 - share for share, label in zip(shares, labels, strict=True))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("reached", "delta"),
    [
        *((1, "0.01"), (2, "0.1"), (3, "0.01")),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((1, "0.1"), (2, "0.01"), (3, "0.1"))),
    ],
)
def test_no_course_of_answers_costs_more(reached: int, delta: str) -> None:
    epsilon, each = 1.0, PrivacyParams("1")
    voters = Voters(3, each, overlap=reached, models=True)
    table = certify(Problem(voters, PrivacyParams("2.9")), NoiseFunction(3, [0.4, 0.9]))
    found = smallest_total(priced(table, 3), Fraction(delta), goal=0.0)
    assert found is not None
    likely, worst = 1.0 / (1.0 + math.exp(-epsilon)), 0.0
    for course in product(product((0, 1), repeat=3), repeat=3):
        laws = []
        for truth in (1, 0):
            own = [(truth if k < reached else 1) for k in range(3)]
            chances = [
                (bits, math.prod(likely if bit == own[k] else 1.0 - likely for k, bit in enumerate(bits)))
                for bits in product((0, 1), repeat=3)
            ]
            laws.append(sum(chance * np.array(list(labels_of(bits, course, table.gamma))) for bits, chance in chances))
        worst = max(worst, float(np.maximum(0.0, laws[0] - math.exp(found.epsilon) * laws[1]).sum()))
    assert worst <= float(delta)
    if reached == 3:
        assert found.epsilon < 3.0  # less than the models alone, to which it is nothing


def test_few_voters_are_examined_or_not() -> None:
    voters = Voters(11, PrivacyParams("0.3", "1e-6"), models=True)
    table = certify(Problem.from_allowance(voters, 3), baselines.subsampling(Problem.from_allowance(voters, 3)))
    account, delta, name = priced(table, 3), Fraction(1, 10**4), BOUNDS["subsampling"]
    spent = {one.name: one.epsilon for one in PrivacyAccountant(costs=[cost_model(table, 3)]).spent(1e-4).bounds}
    found = proved(account, delta, Fraction(0))[name]
    assert float(found) == pytest.approx(spent["subsampling"], rel=1e-6)
    fewer = replace(account[0][0], sample=(1, 0.0))  # a lie: it looks at three
    assert name not in proved([(fewer, account[0][1])], delta, Fraction(0))
    assert proved([(fewer, None)], delta, Fraction(0))[name] < found  # where no table is among the files


def test_models_of_a_boundless_epsilon_stop_no_audit(tmp_path: Path) -> None:
    voters = Voters(5, PrivacyParams("1e110"), overlap=2, models=True)
    plain = PrivacyCost("a release", guarantee=PrivacyParams("1e100"), voters=Voters(5, PLAIN, overlap=2))
    charge = PrivacyCost(
        "of models", guarantee=PrivacyParams("1e100"), voters=voters, for_non_private_voters=(plain,), count=2
    )
    assert smallest_total([(charge_of(charge), None)], Fraction(0), goal=1e100) is None
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams("1e111", "1e-5"))
    ledger.debit(PrivacyCost("a release", guarantee=PrivacyParams("1e100", "1e-9"), count=2))
    assert [one.claim for one in audit([tmp_path]).verdicts if one.verdict == FALSE] == []


@pytest.mark.slow
def test_a_cheap_pair_of_a_table_is_not_believed() -> None:
    table = table_for(ONE)
    charge, exact = priced(table, 20)[0]
    cheap = replace(charge.plain[0][1], guarantee=(Fraction(1, 1000), Fraction(0)))
    lying = replace(charge, plain=((charge.plain[0][0], cheap),))
    delta = Fraction(1, 10**4)
    honest = smallest_total([(charge, exact)], delta, goal=0.0)
    judged, believed = (smallest_total([(lying, by)], delta, goal=0.0) for by in (exact, None))
    assert honest is not None
    assert judged is not None
    assert believed is not None
    assert believed.epsilon < 0.05 < honest.epsilon * 0.999 < judged.epsilon
    assert (believed.stated, judged.stated) == (True, False)
