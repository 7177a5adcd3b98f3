"""Sums of privacy losses against explicit laws, exact composition, the accountant, and coarse arithmetic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm import PrivacyParams
from darrm.account.accountant import PrivacyAccountant
from darrm.loss.privacy_cost import PrivacyCost
from darrm.noisy_max.label_cost import label_profile
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.verify import sums, verdicts
from darrm.verify.sums import Kind, LossSum, choose_points, compose_delta, compose_epsilon
from tests.verify.support import charge_of

exponential = cache(verdicts.exponential)
EPSILONS = [Fraction(number, 10) for number in range(0, 45, 3)]
ONE_TENTH, SMALL = Fraction(1, 10), Fraction(1, 10**6)


@dataclass(frozen=True)
class Pair:
    """The laws of an answer on a data set and on its neighbor."""

    law: tuple[Fraction, ...]
    other: tuple[Fraction, ...]

    @property
    def reversed(self) -> "Pair":
        return Pair(self.other, self.law)

    def times(self, others: Sequence["Pair"]) -> "Pair":
        """Append a second answer, from a pair that the first answer chose."""
        law = [p * q for p, pair in zip(self.law, others, strict=True) for q in pair.law]
        other = [p * q for p, pair in zip(self.other, others, strict=True) for q in pair.other]
        return Pair(tuple(law), tuple(other))

    def delta(self, ratio: Fraction) -> Fraction:
        return sum((max(p - ratio * q, Fraction(0)) for p, q in zip(self.law, self.other, strict=True)), Fraction(0))


def list_points(pairs: Sequence[Pair], epsilons: Sequence[Fraction]) -> list[tuple[Fraction, Fraction]]:
    """List ε and the largest δ of any pair in any direction, which is too large by less than 1e-70."""
    both = [*pairs, *(pair.reversed for pair in pairs)]
    return [(epsilon, max(pair.delta(exponential(epsilon).lower) for pair in both)) for epsilon in epsilons]


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    weights = st.lists(st.integers(0, 20), min_size=3, max_size=3).filter(any)
    laws = [tuple(Fraction(weight, sum(law)) for weight in law) for law in (draw(weights), draw(weights))]
    return Pair(*laws)


@st.composite
def courses(draw: st.DrawFn) -> tuple[list[Kind], Pair]:
    """Draw two kinds and three answers; earlier answers choose the pairs of the second and the third."""
    first, second = (draw(st.lists(pairs(), min_size=1, max_size=3)) for _ in range(2))
    whole = draw(st.sampled_from(first))
    for kind in (first, second):
        choices = [draw(st.sampled_from([*kind, *(pair.reversed for pair in kind)])) for _ in whole.law]
        whole = whole.times(choices)
    kinds: list[Kind] = []
    for kind, count in ((first, 2), (second, 1)):
        places = draw(st.lists(st.sampled_from(EPSILONS), min_size=1, max_size=4, unique=True))
        kinds.append((list_points(kind, places), count))
    return kinds, whole


def check_course(kinds: list[Kind], whole: Pair, step: Fraction, tail: Fraction) -> None:
    """Check that a sum of losses is no smaller than the loss of all answers."""
    total = sums.compose(kinds, step, tail)
    assert sum(total.masses) <= 1 << total.bits
    assert min(total.masses) >= 0
    for pair in (whole, whole.reversed):
        for epsilon in (*EPSILONS[:8], Fraction(7, 10), Fraction(20)):
            assert total.delta(epsilon) >= pair.delta(exponential(epsilon).upper)
        for delta in (Fraction(1, 1000), ONE_TENTH, Fraction(1, 2)):
            epsilon_bound = total.epsilon(delta)
            assert epsilon_bound is None or pair.delta(exponential(epsilon_bound).upper) <= delta


@given(courses(), st.fractions(Fraction(1, 50), 3, max_denominator=60))
def test_no_adaptive_course_costs_more(course: tuple[list[Kind], Pair], step: Fraction) -> None:
    check_course(*course, step, Fraction(1, 10**9))


LAWS = [
    Pair((Fraction(3, 4), Fraction(1, 4)), (Fraction(1, 4), Fraction(3, 4))),
    Pair(  # with answers that only one data set has
        (ONE_TENTH, Fraction(6, 10), Fraction(3, 10), Fraction(0)),
        (Fraction(0), Fraction(3, 10), Fraction(6, 10), ONE_TENTH),
    ),
    Pair(*(tuple(Fraction(part, 64) for part in law) for law in ((32, 16, 8, 5, 3), (20, 15, 10, 9, 10)))),
]


@pytest.mark.parametrize("guard_bits", [3, 0])
def test_coarse_roundings_are_on_the_safe_side(guard_bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers have a dozen bits, and tails of some mass are cut off: a rounding to the wrong side shows."""
    for name, value in (("_SUM_BITS", 4), ("_TAIL_DIVISOR", 1), ("_GUARD_BITS", guard_bits)):
        monkeypatch.setattr(sums, name, value)
    check_randomized_response()
    for pair, count in product(LAWS, (1, 3)):
        kind = (list_points([pair], [Fraction(place, 8) for place in range(13)]), count)
        whole = pair
        for _ in range(count - 1):
            whole = whole.times([pair] * len(whole.law))
        for step in (Fraction(1, 8), Fraction(1, 3), Fraction(1, 20)):
            check_course([kind], whole, step, ONE_TENTH)


def read_delta(law: LossSum, epsilon: Fraction) -> Fraction:
    """Read δ off a law, within 1e-70."""
    masses = [(mass, (law.lowest + place) * law.step - epsilon) for place, mass in enumerate(law.masses)]
    finite = [mass * (1 - 1 / exponential(loss).lower) for mass, loss in masses if loss > 0]
    return (sum(finite, Fraction(0)) + (1 << law.bits) - sum(law.masses)) / (1 << law.bits)


def check_randomized_response() -> None:
    """Check that randomized response with ε has at least (e^ε − e^x)/(1 + e^ε) at x."""
    for place, parts in product(range(1, 60, 5), (1, 2, 3)):
        epsilon = Fraction(place, 20)
        growth = exponential(epsilon).lower
        lowest, masses = sums._build_loss([(epsilon, Fraction(0))], epsilon / parts, 8)
        law = LossSum(epsilon / parts, lowest, tuple(masses), 8)
        for x in (Fraction(0), epsilon / 3, epsilon / 2):
            assert read_delta(law, x) >= (growth - exponential(x).upper) / (1 + growth)
        assert sums._interpolate([(0, place), (7, 3)], 2 * parts) * 7 >= 3 * 2 * parts + place * (7 - 2 * parts)


def test_a_delta_of_few_bits_is_no_smaller() -> None:
    laws = [(lowest, Fraction(1, 7), (3, 0, *[1, 2] * 50)) for lowest in (-30, 0, 5)]
    laws += [(-3, Fraction(1, parts), (0, 0, 0, 0, 0, 500)) for parts in range(5, 40)]
    for lowest, step, masses in laws:
        law = LossSum(step, lowest, masses, 9)
        for epsilon in (Fraction(0), ONE_TENTH, step, 3 * step, 20 * step, 70 * step):
            assert read_delta(law, epsilon) <= law.delta(epsilon) + Fraction(1, 10**70)


# ------------------------------------------------------------------------------------------------ closed forms

BITS = (Fraction(3, 4), Fraction(1, 2))  # Pr[1] with a person, and without


def delta_of_many(bits: tuple[Fraction, Fraction], count: int, epsilon: Fraction) -> Fraction:
    """Compute δ of ``count`` bits, by how many are 1."""
    laws = ([math.comb(count, n) * p**n * (1 - p) ** (count - n) for n in range(count + 1)] for p in bits)
    return Pair(*map(tuple, laws)).delta(exponential(epsilon).upper)


def test_each_direction_is_added_up_by_itself() -> None:
    epsilons = [Fraction(place, 64) for place in range(60)]
    forward, back = (
        [(epsilon, delta_of_many(bits, 1, epsilon)) for epsilon in epsilons] for bits in (BITS, BITS[::-1])
    )
    both = [max(pair) for pair in zip(forward, back, strict=True)]
    ordered = ((back, (BITS, BITS[::-1])), (forward, (BITS[::-1], BITS)))
    # without ε = 0 the total variation is known of one direction only
    for (other, laws), first in product(ordered, (0, 25)):
        directed = sums.DirectedPoints(both[first:], other)
        for kind, bits in zip((directed, directed.exchanged), laws, strict=True):
            law = sums.compose([(kind, 8)], Fraction(1, 16), Fraction(1, 10**9))
            assert all(law.delta(4 * e) >= delta_of_many(bits, 8, 4 * e) for e in epsilons[:40:3])
    symmetric, total = (
        compose_epsilon([(kind, 40)], Fraction(1, 1000)) for kind in (both, sums.DirectedPoints(both, forward))
    )
    assert total is not None
    assert symmetric is not None
    assert max(delta_of_many(bits, 40, total) for bits in (BITS, BITS[::-1])) <= Fraction(1, 1000)
    assert total < symmetric


def compute_gaussian_delta(distance: float, epsilon: Fraction) -> Fraction:
    """Compute δ of two Gaussians with a distance in standard deviations, within 1e-40."""
    with mpmath.workdps(60):
        mu, x = mpmath.mpf(distance), mpmath.mpf(epsilon.numerator) / epsilon.denominator
        delta = mpmath.ncdf(mu / 2 - x / mu) - mpmath.exp(x) * mpmath.ncdf(-mu / 2 - x / mu)
        return Fraction(int(delta * 10**45), 10**45) + Fraction(1, 10**40)


@pytest.mark.parametrize(("distance", "count"), [(0.5, 1), (0.25, 64), (1 / 64, 1024), (1 / 256, 2**14)])
def test_gaussians_add_up_to_a_gaussian(distance: float, count: int) -> None:
    width, whole = Fraction(distance) / 4, distance * math.sqrt(count)
    places = [*range(30), *range(30, 60, 3)]
    points = [(width * place, compute_gaussian_delta(distance, width * place)) for place in places]
    epsilon = compose_epsilon([(points, count)], SMALL)
    assert epsilon is not None
    assert compute_gaussian_delta(whole, epsilon) <= SMALL <= compute_gaussian_delta(whole, epsilon * 99 / 100)
    delta = compose_delta([(points, count)], epsilon)
    assert compute_gaussian_delta(whole, epsilon) <= delta <= SMALL * 11 / 10


@pytest.mark.parametrize(("epsilon", "delta", "count"), [("0.5", "0", 30), ("0.1", "0.001", 50), ("3", "1e-9", 4)])
def test_pairs_compose_optimally(epsilon: str, delta: str, count: int) -> None:
    pair, total = (Fraction(epsilon), Fraction(delta)), Fraction(epsilon) * math.isqrt(2 * count)
    with mpmath.workdps(60):  # [KOV15, Theorem 3.3]
        growth, ratio = mpmath.exp(mpmath.mpf(epsilon)), mpmath.exp(mpmath.mpf(total.numerator) / total.denominator)
        gains = [max(0, growth**true - ratio * growth ** (count - true)) for true in range(count + 1)]
        terms = [mpmath.binomial(count, true) * gain for true, gain in enumerate(gains)]
        optimal = 1 - (1 - mpmath.mpf(delta)) ** count * (1 - mpmath.fsum(terms) / (1 + growth) ** count)
        bound = compose_delta([([pair], count)], total)
        assert abs(mpmath.mpf(bound.numerator) / bound.denominator - optimal) <= mpmath.mpf(10) ** -20


def test_limits() -> None:
    pure, failing = [(Fraction(1, 2), Fraction(0))], [(Fraction(0), Fraction(1, 4))]
    assert compose_epsilon([], Fraction(1, 2)) == compose_delta([], Fraction(0)) == 0
    assert compose_epsilon([(pure, 3)], Fraction(0)) == Fraction(3, 2)
    assert compose_epsilon([(failing, 1)], Fraction(0)) is None
    assert compose_epsilon([(failing, 2)], Fraction(43, 100)) is None
    assert compose_epsilon([(failing, 2)], Fraction(44, 100)) == 0
    assert 0 <= compose_delta([(failing, 2)], Fraction(3)) - Fraction(7, 16) < Fraction(1, 10**20)
    assert compose_delta([([(Fraction(1), Fraction(1))], 2)], Fraction(1)) == 1
    assert compose_epsilon([(pure, 2**53)], Fraction(1, 100)) == Fraction(2**52)  # too many for a sum of losses


# ------------------------------------------------------------------------------------------------ the accountant


def pay_pairs(epsilon: str, delta: str, count: int) -> PrivacyCost:
    return PrivacyCost("a query", guarantee=PrivacyParams(epsilon, delta), count=count)


def pay_labels(sigma: float, count: int) -> PrivacyCost:
    return PrivacyCost("labels", profile=label_profile(DiscreteGaussian(sigma)), count=count)


ACCOUNTS = {
    "thirty": ([pay_pairs("0.5", "1e-12", 30)], "1e-5"),
    "a hundred thousand": ([pay_pairs("0.001", "0", 100_000)], "1e-6"),
    "a thousand labels": ([pay_labels(100.0, 1000)], "1e-5"),
    "three kinds": ([pay_pairs("0.5", "0", 10), pay_pairs("0.3", "0", 20), pay_pairs("0.1", "1e-7", 100)], "1e-5"),
    "profile and pair": ([pay_labels(40.0, 200), pay_pairs("0.25", "1e-9", 10)], "1e-5"),
    "one label": ([pay_labels(10.0, 1)], "1e-6"),
    "no common step": (
        [pay_pairs("0.123456789", "0", 40), pay_pairs("0.7654321", "0", 7), pay_pairs("0.0333333331", "0", 500)],
        "1e-6",
    ),
    "one large of many": ([pay_pairs("1", "0", 1), pay_pairs("0.0003", "0", 100)], "1e-6"),
}


def list_kinds(charges: Sequence[PrivacyCost]) -> list[Kind]:
    """Return the points of costs, of the profile where there is one."""
    parsed = [charge_of(charge) for charge in charges]
    return [(charge.points() or [charge.guarantee or (Fraction(0), Fraction(0))], charge.count) for charge in parsed]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ACCOUNTS)
def test_a_total_is_within_one_percent_of_the_accountants(name: str) -> None:
    charges, delta = ACCOUNTS[name]
    spent, kinds = PrivacyAccountant(costs=charges).spent(float(delta)), list_kinds(charges)
    epsilon = compose_epsilon(kinds, Fraction(delta))
    assert epsilon is not None
    assert spent.epsilon * (1.0 - 1e-5) <= epsilon <= spent.epsilon * 1.01
    assert compose_delta(kinds, epsilon, least=Fraction(delta)) <= Fraction(delta) * 21 / 20


def test_a_goal_that_is_reached_stops_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds, counts, compose = list_kinds(ACCOUNTS["no common step"][0]), [0], sums.compose

    def compose_and_count(*arguments: Any) -> LossSum:
        counts[-1] += 1
        return compose(*arguments)

    monkeypatch.setattr(sums, "compose", compose_and_count)
    close = compose_epsilon(kinds, SMALL, goal=Fraction(14))
    counts.append(0)
    best = compose_epsilon(kinds, SMALL)
    assert best is not None
    assert close is not None
    assert best < close <= 14
    assert 1 <= counts[0] < counts[1]


# ------------------------------------------------------------------------------------------------ choice of points

LINE = [(Fraction(place), Fraction(1, 2 + place)) for place in range(5)]


@pytest.mark.parametrize(
    ("sigma", "count"), [(100.0, 1000), (10.0, 100), (10.0, 1), pytest.param(300.0, 10_000, marks=pytest.mark.slow)]
)
def test_twelve_points_are_nearly_as_good_as_all(sigma: float, count: int) -> None:
    ((points, _),) = list_kinds([pay_labels(sigma, count)])
    chosen = choose_points([(points, count)], SMALL, 12)[0]
    assert len(chosen) == 12
    assert set(chosen) < set(points)
    assert (chosen[0], chosen[-1]) == (points[0], points[-1])
    # the last are twelve points at equal distances
    best, close, even = (compose_epsilon([(some, count)], SMALL) for some in (points, chosen, points[::9]))
    assert best is not None
    assert close is not None
    assert even is not None
    assert best <= close <= best * Fraction(1011, 1000)
    assert even > close


def test_points_are_chosen_in_order_without_repetitions_and_to_both_ends() -> None:
    assert choose_points([(LINE, 1), (LINE[:1], 2)], SMALL, 1) == [[LINE[0], LINE[-1]], LINE[:1]]
    assert choose_points([(LINE[::-1], 1)], Fraction(0), 9) == [LINE]
    assert choose_points([([*LINE, (Fraction(4), Fraction(1))], 1)], SMALL, 9) == [LINE]
    far = [(Fraction(place * 100), Fraction(1, 2**place)) for place in range(8)]
    assert len(choose_points([(far, 1)], SMALL, 3)[0]) == 3
    close = (1 + Fraction(1, 10**20), Fraction(1, 3) - Fraction(1, 10**20))  # equal in floats
    assert choose_points([([*LINE, close], 1)], SMALL, 4)[0] == choose_points([(LINE, 1)], SMALL, 4)[0]
    assert compose_epsilon([([*LINE, close], 9)], SMALL) == compose_epsilon([(LINE, 9)], SMALL)
