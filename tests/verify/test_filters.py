"""The auditor's Rényi divergences against explicit laws, the accountant, and exact composition."""

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from darrm import PrivacyParams
from darrm.account.filters import HALF, filter_bound
from darrm.loss.privacy_cost import PrivacyCost
from darrm.noisy_max.label_cost import label_curve, label_profile
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.verify import totals
from darrm.verify.formats import Charge
from darrm.verify.sums import composed_delta
from darrm.verify.totals import filter_admits, smallest_total
from darrm.verify.verdicts import exponential
from tests.verify.support import charge_of

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
    assert value(totals._of_response(*pair)) == pytest.approx(expected, rel=1e-9)
    # its profile bends at ε alone, and what a cut there leaves is all of it
    profile = [(Fraction(0), Fraction(math.tanh(x / 2.0))), (pair[0], Fraction(0))]
    assert value(totals._of_cut(profile, *pair)) == pytest.approx(expected, rel=1e-9)
    assert value(totals._of_cut(profile[1:], *pair)) == pytest.approx(expected, rel=1e-9)


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
    assert value(totals._of_cut(profile, epsilon, order)) >= left - 1e-12


def test_a_curve_is_read_between_its_orders() -> None:
    two = [GAUSSIAN[0], GAUSSIAN[-1]]
    chord = (Fraction(1, 100) + (Fraction(18 * 19, 200) - Fraction(1, 100)) * Fraction(3, 17)) / 4
    assert value(totals._of_curve(two, Fraction(5))) == pytest.approx(float(chord), rel=1e-15)
    assert value(totals._of_curve(GAUSSIAN, Fraction(7))) == 7 / 200
    assert value(totals._of_curve(GAUSSIAN, Fraction(3, 2))) == 1 / 100
    assert totals._of_curve(GAUSSIAN, Fraction(20)) is None
    assert totals._of_curve((), Fraction(2)) is None


@pytest.mark.parametrize("delta", ["1e-3", "1e-5", "1e-12"])
def test_fixed_kinds_cost_what_the_accountant_says(delta: str) -> None:
    curves = [label_curve(DiscreteGaussian(sigma)) for sigma in (10.0, 25.0)]
    charges = [PrivacyCost("a", renyi=curves[0], count=50), PrivacyCost("b", renyi=curves[1], count=7)]
    priced: list[totals.Priced] = [(charge_of(one), None) for one in charges]
    expected = (curves[0].repeated(50) + curves[1].repeated(7)).best(float(delta)).epsilon
    found = smallest_total(priced, Fraction(delta), enough=0.0)
    assert found is not None
    assert found.epsilon == pytest.approx(expected, rel=1e-9)
    other = Charge(guarantee=(Fraction(1), Fraction(0)))
    assert smallest_total([*priced, (other, None)], Fraction(delta), enough=0.0) is None


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
    assert filter_admits(costs, epsilon * (1 + Fraction(1, 10**6)), Fraction(delta), aside)
    assert not filter_admits(costs, epsilon * (1 - Fraction(1, 10**6)), Fraction(delta), aside)


@pytest.mark.parametrize(("epsilon", "delta"), [("0.5", "1e-6"), ("3", "1e-2"), ("10", "1e-9")])
def test_what_is_admitted_is_private(epsilon: str, delta: str) -> None:
    budget = (Fraction(epsilon), Fraction(delta))
    each, count = Fraction(epsilon) / 20, 0
    while filter_admits([Charge(count + 1, (each, Fraction(0)))], *budget, Fraction(0)):
        count += 1
    assert count >= 20
    assert composed_delta([([(each, Fraction(0))], count)], budget[0]) <= budget[1]


def test_what_nothing_bounds_is_not_admitted() -> None:
    failing = Charge(2, (Fraction(1, 10), Fraction(1, 100)), profile=((0.0,), (0.1,)))
    whole = (Fraction(5), Fraction(3, 100))
    assert filter_admits([failing], *whole, Fraction(2, 3))
    assert not filter_admits([failing], *whole, Fraction(65, 100))
    assert filter_admits([replace(failing, **GAUSSIAN_CURVE)], *whole, Fraction(65, 100))
    assert not filter_admits([replace(failing, **GAUSSIAN_CURVE, count=1000)], *whole, Fraction(65, 100))
    assert not filter_admits([Charge(1)], *whole, HALF)
    assert not filter_admits([Charge(1, **GAUSSIAN_CURVE)], *whole, Fraction(1))
    assert filter_admits([], *whole, Fraction(1))
