"""The auditor's sums of losses against explicit laws, exact composition, the accountant, and coarse arithmetic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product

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
from darrm.verify.sums import Kind, LossSum, choose_points, compose_epsilon
from tests.verify.support import charge_of

exponential = cache(verdicts.exponential)
EPSILONS = [Fraction(number, 10) for number in range(0, 45, 3)]
ONE_TENTH = Fraction(1, 10)


@dataclass(frozen=True)
class Pair:
    """Laws of one answer on a data set and on its neighbor, with room for a third that is far from both."""

    own: tuple[Fraction, ...]
    other: tuple[Fraction, ...]

    @property
    def reversed(self) -> "Pair":
        return Pair(self.other, self.own)

    def times(self, others: Sequence["Pair"]) -> "Pair":
        """A second answer, from a pair that the first answer chose."""
        own = [p * q for p, pair in zip(self.own, others, strict=True) for q in pair.own]
        other = [p * q for p, pair in zip(self.other, others, strict=True) for q in pair.other]
        return Pair(tuple(own), tuple(other))

    def delta(self, ratio: Fraction) -> Fraction:
        return sum((max(p - ratio * q, Fraction(0)) for p, q in zip(self.own, self.other, strict=True)), Fraction(0))


def true_delta(pair: Pair, epsilon: Fraction) -> Fraction:
    """At least what is true, by less than 1e-70."""
    return pair.delta(exponential(epsilon).lower)


def points_of(pairs: Sequence[Pair], epsilons: Sequence[Fraction]) -> list[tuple[Fraction, Fraction]]:
    both = [*pairs, *(pair.reversed for pair in pairs)]
    return [(epsilon, max(true_delta(pair, epsilon) for pair in both)) for epsilon in epsilons]


@st.composite
def pairs(draw: st.DrawFn, outcomes: int = 3) -> Pair:
    def law() -> tuple[Fraction, ...]:
        weights = draw(st.lists(st.integers(0, 20), min_size=outcomes, max_size=outcomes).filter(any))
        return tuple(Fraction(weight, sum(weights)) for weight in weights)

    return Pair(law(), law())


@st.composite
def courses(draw: st.DrawFn) -> tuple[list[Kind], Pair]:
    """Two kinds, and three answers of them, the second and the third of a pair that the answers before chose."""
    first, second = (draw(st.lists(pairs(), min_size=1, max_size=3)) for _ in range(2))
    chosen = draw(st.sampled_from(first))
    whole = chosen
    for kind in (first, second):
        choices = [draw(st.sampled_from([*kind, *(pair.reversed for pair in kind)])) for _ in whole.own]
        whole = whole.times(choices)
    kinds: list[Kind] = []
    for kind, count in ((first, 2), (second, 1)):
        places = draw(st.lists(st.sampled_from(EPSILONS), min_size=1, max_size=4, unique=True))
        kinds.append((points_of(kind, places), count))
    return kinds, whole


def check_course(kinds: list[Kind], whole: Pair, step: Fraction, small: Fraction) -> None:
    total = sums.compose(kinds, step, small)
    assert sum(total.masses) <= 1 << total.bits
    assert min(total.masses) >= 0
    for pair in (whole, whole.reversed):
        for epsilon in (*EPSILONS[:8], Fraction(7, 10), Fraction(20)):
            assert total.delta(epsilon) >= pair.delta(exponential(epsilon).upper)
        for delta in (Fraction(1, 1000), ONE_TENTH, Fraction(1, 2)):
            least = total.epsilon(delta)
            if least is not None:
                assert pair.delta(exponential(least).upper) <= delta


@given(courses(), st.fractions(Fraction(1, 50), 3, max_denominator=60))
def test_no_adaptive_course_costs_more(course: tuple[list[Kind], Pair], step: Fraction) -> None:
    check_course(*course, step, Fraction(1, 10**9))


RESPONSE = Pair((Fraction(3, 4), Fraction(1, 4)), (Fraction(1, 4), Fraction(3, 4)))
CONFESSING = Pair(
    (ONE_TENTH, Fraction(6, 10), Fraction(3, 10), Fraction(0)),
    (Fraction(0), Fraction(3, 10), Fraction(6, 10), ONE_TENTH),
)
UNEVEN = Pair(
    tuple(Fraction(part, 64) for part in (32, 16, 8, 5, 3)),
    tuple(Fraction(part, 64) for part in (20, 15, 10, 9, 10)),
)


@pytest.mark.parametrize("guard", [3, 0])
def test_coarse_roundings_are_on_the_safe_side(guard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers have a dozen bits, and ends of some mass are cut off: a rounding to the wrong side is seen."""
    for name, value in (("_SUM_BITS", 4), ("_TAIL_DIVISOR", 1), ("_GUARD_BITS", guard)):
        monkeypatch.setattr(sums, name, value)
    check_one_response()
    for pair, count in product((RESPONSE, CONFESSING, UNEVEN), (1, 3)):
        kind = (points_of([pair], [Fraction(place, 8) for place in range(13)]), count)
        whole = pair
        for _ in range(count - 1):
            whole = whole.times([pair] * len(whole.own))
        for step in (Fraction(1, 8), Fraction(1, 3), Fraction(1, 20)):
            check_course([kind], whole, step, ONE_TENTH)


def read(law: LossSum, epsilon: Fraction) -> Fraction:
    """Read δ off a law, within 1e-70."""
    masses = [(mass, (law.lowest + place) * law.step - epsilon) for place, mass in enumerate(law.masses)]
    finite = [mass * (1 - 1 / exponential(loss).lower) for mass, loss in masses if loss > 0]
    return (sum(finite, Fraction(0)) + (1 << law.bits) - sum(law.masses)) / (1 << law.bits)


def check_one_response() -> None:
    """Randomized response with ε has (e^ε − e^x)/(1 + e^ε) at x."""
    for place, parts in product(range(1, 60, 5), (1, 2, 3)):
        epsilon = Fraction(place, 20)
        growth = exponential(epsilon).lower
        lowest, masses = sums._build_loss([(epsilon, Fraction(0))], epsilon / parts, 8)
        law = LossSum(epsilon / parts, lowest, tuple(masses), 8)
        for x in (Fraction(0), epsilon / 3, epsilon / 2):
            assert read(law, x) >= (growth - exponential(x).upper) / (1 + growth)
        assert sums._interpolate([(0, place), (7, 3)], 2 * parts) * 7 >= 3 * 2 * parts + place * (7 - 2 * parts)


def test_a_delta_read_off_few_bits_is_no_smaller() -> None:
    """Read δ off laws of many losses, of few bits."""
    laws = [(lowest, Fraction(1, 7), (3, 0, *[1, 2] * 50)) for lowest in (-30, 0, 5)]
    laws += [(-3, Fraction(1, parts), (0, 0, 0, 0, 0, 500)) for parts in range(5, 40)]
    for lowest, step, masses in laws:
        law = LossSum(step, lowest, masses, 9)
        for epsilon in (Fraction(0), ONE_TENTH, step, 3 * step, 20 * step, 70 * step):
            assert read(law, epsilon) <= law.delta(epsilon) + Fraction(1, 10**70)


BITS = (Fraction(3, 4), Fraction(1, 2))  # Pr[1] with a person, and without
OFTEN = [Fraction(place, 64) for place in range(60)]


def delta_of_many(bits: tuple[Fraction, Fraction], count: int, epsilon: Fraction) -> Fraction:
    """Compute δ of ``count`` bits, by how many are 1."""
    own, other = ([math.comb(count, n) * p**n * (1 - p) ** (count - n) for n in range(count + 1)] for p in bits)
    return Pair(tuple(own), tuple(other)).delta(exponential(epsilon).upper)


def test_each_direction_is_added_up_on_its_own() -> None:
    forward, back = ([(epsilon, delta_of_many(bits, 1, epsilon)) for epsilon in OFTEN] for bits in (BITS, BITS[::-1]))
    both = [max(pair) for pair in zip(forward, back, strict=True)]
    ordered = ((back, (BITS, BITS[::-1])), (forward, (BITS[::-1], BITS)))
    for (other, laws), first in product(ordered, (0, 25)):  # without ε = 0 the total variation is known of one only
        directed = sums.DirectedPoints(both[first:], other)
        for kind, bits in zip((directed, directed.exchanged), laws, strict=True):
            law = sums.compose([(kind, 8)], Fraction(1, 16), Fraction(1, 10**9))
            assert all(law.delta(4 * e) >= delta_of_many(bits, 8, 4 * e) for e in OFTEN[:40:3])
    symmetric, total = (
        sums.compose_epsilon([(kind, 40)], Fraction(1, 1000)) for kind in (both, sums.DirectedPoints(both, forward))
    )
    assert total is not None
    assert symmetric is not None
    assert max(delta_of_many(bits, 40, total) for bits in (BITS, BITS[::-1])) <= Fraction(1, 1000)
    assert total < symmetric


def gaussian_delta(distance: float, epsilon: Fraction) -> Fraction:
    """δ of two Gaussians so many standard deviations apart, within 1e-40."""
    with mpmath.workdps(60):
        mu, x = mpmath.mpf(distance), mpmath.mpf(epsilon.numerator) / epsilon.denominator
        delta = mpmath.ncdf(mu / 2 - x / mu) - mpmath.exp(x) * mpmath.ncdf(-mu / 2 - x / mu)
        return Fraction(int(delta * 10**45), 10**45) + Fraction(1, 10**40)


@pytest.mark.parametrize(("distance", "count"), [(0.5, 1), (0.25, 64), (1 / 64, 1024), (1 / 256, 2**14)])
def test_gaussians_add_up_to_a_gaussian(distance: float, count: int) -> None:
    delta, width = Fraction(1, 10**6), Fraction(distance) / 4
    points = [(width * place, gaussian_delta(distance, width * place)) for place in range(30)]
    points += [(width * place, gaussian_delta(distance, width * place)) for place in range(30, 60, 3)]
    found = sums.compose_epsilon([(points, count)], delta)
    assert found is not None
    whole = distance * math.sqrt(count)
    assert gaussian_delta(whole, found) <= delta
    assert gaussian_delta(whole, found * 99 / 100) >= delta
    least = sums.compose_delta([(points, count)], found)
    assert gaussian_delta(whole, found) <= least <= delta * 11 / 10


def one(epsilon: str, delta: str, count: int) -> PrivacyCost:
    return PrivacyCost("a query", guarantee=PrivacyParams(epsilon, delta), count=count)


def labels(sigma: float, count: int) -> PrivacyCost:
    return PrivacyCost("labels", profile=label_profile(DiscreteGaussian(sigma)), count=count)


ACCOUNTS = {
    "thirty": ([one("0.5", "1e-12", 30)], "1e-5"),
    "a hundred thousand": ([one("0.001", "0", 100_000)], "1e-6"),
    "a thousand labels": ([labels(100.0, 1000)], "1e-5"),
    "all of δ": ([one("0.5", "0", 10), one("0.3", "0", 20), one("0.1", "1e-7", 100)], "1e-5"),
    "one of many": ([one("1", "0", 1), one("0.0003", "0", 100)], "1e-6"),
    "profile and pair": ([labels(40.0, 200), one("0.25", "1e-9", 10)], "1e-5"),
    "no common step": ([one("0.123456789", "0", 40), one("0.7654321", "0", 7), one("0.0333333331", "0", 500)], "1e-6"),
    "one label": ([labels(10.0, 1)], "1e-6"),
}


def kinds_of(charges: Sequence[PrivacyCost]) -> list[Kind]:
    """Return the points of costs, of the profile where there is one."""
    found = [charge_of(one) for one in charges]
    return [(one.points() or [one.guarantee or (Fraction(0), Fraction(0))], one.count) for one in found]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in {"no common step", "one of many"})) for name in ACCOUNTS],
)
def test_within_one_percent_of_the_accountant(name: str) -> None:
    charges, delta = ACCOUNTS[name]
    spent = PrivacyAccountant(costs=charges).spent(float(delta))
    kinds = kinds_of(charges)
    found = sums.compose_epsilon(kinds, Fraction(delta))
    assert found is not None
    assert spent.epsilon * (1.0 - 1e-5) <= found <= spent.epsilon * 1.01
    assert sums.compose_delta(kinds, found, least=Fraction(delta)) <= Fraction(delta) * 21 / 20


@pytest.mark.parametrize(("epsilon", "delta", "count"), [("0.5", "0", 30), ("0.1", "0.001", 50), ("3", "1e-9", 4)])
def test_pairs_compose_optimally(epsilon: str, delta: str, count: int) -> None:
    pair, total = (Fraction(epsilon), Fraction(delta)), Fraction(epsilon) * math.isqrt(2 * count)
    with mpmath.workdps(60):  # [KOV15, Theorem 3.3]
        growth, ratio = mpmath.exp(mpmath.mpf(epsilon)), mpmath.exp(mpmath.mpf(total.numerator) / total.denominator)
        gains = [max(0, growth**true - ratio * growth ** (count - true)) for true in range(count + 1)]
        terms = [mpmath.binomial(count, true) * gain for true, gain in enumerate(gains)]
        optimal = 1 - (1 - mpmath.mpf(delta)) ** count * (1 - mpmath.fsum(terms) / (1 + growth) ** count)
        found = sums.compose_delta([([pair], count)], total)
        assert abs(mpmath.mpf(found.numerator) / found.denominator - optimal) <= mpmath.mpf(10) ** -20


def test_limits() -> None:
    pure, failing = [(Fraction(1, 2), Fraction(0))], [(Fraction(0), Fraction(1, 4))]
    assert sums.compose_epsilon([], Fraction(1, 2)) == sums.compose_delta([], Fraction(0)) == 0
    assert sums.compose_epsilon([(pure, 3)], Fraction(0)) == Fraction(3, 2)
    assert sums.compose_epsilon([(failing, 1)], Fraction(0)) is None
    assert sums.compose_epsilon([(failing, 2)], Fraction(43, 100)) is None
    assert sums.compose_epsilon([(failing, 2)], Fraction(44, 100)) == 0
    assert 0 <= sums.compose_delta([(failing, 2)], Fraction(3)) - Fraction(7, 16) < Fraction(1, 10**20)
    assert sums.compose_delta([([(Fraction(1), Fraction(1))], 2)], Fraction(1)) == 1
    assert sums.compose_epsilon([(pure, 2**53)], Fraction(1, 100)) == Fraction(2**52)  # as they add up: no sum fits


def test_enough_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = kinds_of(ACCOUNTS["no common step"][0])
    steps, compose = [], sums.compose

    def composed(kinds: Sequence[Kind], step: Fraction, delta: Fraction, *_: object, **__: object) -> LossSum:
        steps.append(step)
        return compose(kinds, step, delta)

    monkeypatch.setattr(sums, "compose", composed)
    found = sums.compose_epsilon(kinds, Fraction(1, 10**6), goal=Fraction(14))
    first = len(steps)
    best = sums.compose_epsilon(kinds, Fraction(1, 10**6))
    assert found is not None
    assert best is not None
    assert best < found <= 14
    assert 1 <= first < len(steps) - first


SMALL = Fraction(1, 10**6)


def kind_of_labels(sigma: float, count: int) -> Kind:
    cost = PrivacyCost("labels", profile=label_profile(DiscreteGaussian(sigma)), count=count)
    return charge_of(cost).points(), count


@pytest.mark.parametrize(
    ("sigma", "count"), [(100.0, 1000), (10.0, 100), (10.0, 1), pytest.param(300.0, 10_000, marks=pytest.mark.slow)]
)
def test_twelve_points_are_as_good_as_all(sigma: float, count: int) -> None:
    points, _ = kind_of_labels(sigma, count)
    chosen = choose_points([(points, count)], SMALL, 12)[0]
    assert len(chosen) == 12
    assert set(chosen) < set(points)
    assert (chosen[0], chosen[-1]) == (points[0], points[-1])
    best, near = (compose_epsilon([(some, count)], SMALL) for some in (points, chosen))
    assert best is not None
    assert near is not None
    assert best <= near <= best * Fraction(1011, 1000)
    even = compose_epsilon([(points[::9], count)], SMALL)  # also twelve
    assert even is not None
    assert even > near


def test_limits_of_points() -> None:
    line = [(Fraction(place), Fraction(1, 2 + place)) for place in range(5)]
    assert choose_points([(line, 1), (line[:1], 2)], SMALL, 1) == [[line[0], line[-1]], line[:1]]
    assert choose_points([(line[::-1], 1)], Fraction(0), 9) == [line]
    assert choose_points([([*line, (Fraction(4), Fraction(1))], 1)], SMALL, 9) == [line]
    far = [(Fraction(place * 100), Fraction(1, 2**place)) for place in range(8)]
    assert len(choose_points([(far, 1)], SMALL, 3)[0]) == 3


def test_points_that_floats_do_not_tell_apart_are_one() -> None:
    line = [(Fraction(place), Fraction(1, 2 + place)) for place in range(5)]
    near = (1 + Fraction(1, 10**20), Fraction(1, 3) - Fraction(1, 10**20))
    assert choose_points([([*line, near], 1)], SMALL, 4)[0] == choose_points([(line, 1)], SMALL, 4)[0]
    assert compose_epsilon([([*line, near], 9)], SMALL) == compose_epsilon([(line, 9)], SMALL)
