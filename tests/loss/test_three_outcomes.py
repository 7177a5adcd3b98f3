"""The reduction of a label to three outcomes, lemma by lemma, in exact fractions over all small votes."""

import itertools
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from darrm.noisy_max.label_supremum import TwoClasses
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace, IntegerNoise

Noise = tuple[int, ...]  # weights at 0, 1, …: log-concave
Law = tuple[Fraction, ...]
NOISES: tuple[Noise, ...] = ((1, 2, 1), (1, 3, 3, 1), (4, 2, 1), (1, 1))
RATIOS = tuple(map(Fraction, ("1", "5/4", "2", "4")))
ORDERS = tuple(itertools.permutations("abo"))  # who wins ties, the first before the others


def mass(noise: Noise, x: int) -> Fraction:
    return Fraction(noise[x], sum(noise)) if 0 <= x < len(noise) else Fraction(0)


@cache
def S(noise: Noise, i: int, j: int) -> Fraction:
    """Pr[i + X ≥ 0, i + X ≥ j + Y]."""
    points = range(len(noise))
    return sum((mass(noise, x) * mass(noise, y) for x in points for y in points if i + x >= max(0, j + y)), Fraction(0))


def below(noise: Noise, t: int) -> Fraction:
    return sum((mass(noise, x) for x in range(min(t, len(noise) - 1) + 1)), Fraction(0))


@cache
def outcomes(noise: Noise, i: int, j: int, z: int) -> Law:
    """The law of a, b and another at (i, j), ties to a (z = 0) or to b (z = 1)."""
    return S(noise, i, j + z), S(noise, j, i + 1 - z), below(noise, -i - 1) * below(noise, -j - 1)


def hockey(P: Law, Q: Law, ratio: Fraction) -> Fraction:
    return sum((max(Fraction(0), p - ratio * q) for p, q in zip(P, Q, strict=True)), Fraction(0))


@cache
def supremum(noise: Noise, ratio: Fraction) -> Fraction:
    reach = 2 * len(noise) + 2
    places = itertools.product(range(-reach, reach + 1), range(-reach, reach + 1), (0, 1))
    return max(hockey(outcomes(noise, i, j, z), outcomes(noise, i - 1, j + 1, z), ratio) for i, j, z in places)


@cache
def conditional(noise: Noise, a: int, b: int, height: int, order: tuple[str, ...]) -> Law:
    """The law of a, b and another for so many votes and a known best of the others, by enumeration."""
    law = dict.fromkeys("abo", Fraction(0))
    for x, y in itertools.product(range(len(noise)), repeat=2):
        noisy = {"a": a + x, "b": b + y, "o": height}
        law[max(order, key=noisy.__getitem__)] += mass(noise, x) * mass(noise, y)
    return law["a"], law["b"], law["o"]


def label(noise: Noise, counts: tuple[int, ...]) -> Law:
    """The law of the label, ties shared."""
    law = [Fraction(0)] * len(counts)
    for draws in itertools.product(range(len(noise)), repeat=len(counts)):
        chance = Fraction(1)
        for x in draws:
            chance *= mass(noise, x)
        noisy = [count + x for count, x in zip(counts, draws, strict=True)]
        winners = [c for c, value in enumerate(noisy) if value == max(noisy)]
        for c in winners:
            law[c] += chance / len(winners)
    return tuple(law)


@pytest.mark.parametrize("noise", NOISES)
def test_lemma_1_two_tables_hold_all_six_orders_of_ties(noise: Noise) -> None:
    for a, b, order in itertools.product(range(-4, 5), range(-4, 5), ORDERS):
        before = {name: order.index(name) for name in "abo"}
        i = a if before["a"] < before["o"] else a - 1  # the least count that beats the others is one more
        j = b if before["b"] < before["o"] else b - 1
        z = int(before["b"] < before["a"])
        if i - a != j - b:  # one of them beats the others at ties: the shift has decided between a and b
            z = 1 - z if (i - a < j - b) == (z == 1) else z
        assert conditional(noise, a, b, 0, order) == outcomes(noise, i, j, z), (a, b, order)


@pytest.mark.parametrize("noise", NOISES)
def test_lemma_2_the_reverse_direction_is_the_forward_one_with_the_names_exchanged(noise: Noise) -> None:
    for i, j, z in itertools.product(range(-5, 6), range(-5, 6), (0, 1)):
        a, b, other = outcomes(noise, i - 1, j + 1, z)
        assert outcomes(noise, j + 1, i - 1, 1 - z) == (b, a, other)


@pytest.mark.parametrize("noise", NOISES)
def test_lemma_3_all_losses_fall_in_i_and_rise_in_j(noise: Noise) -> None:
    for i, j, z in itertools.product(range(-5, 6), range(-5, 6), (0, 1)):
        here = outcomes(noise, i, j, z), outcomes(noise, i - 1, j + 1, z)
        for di, dj in ((1, 0), (0, -1)):
            there = outcomes(noise, i + di, j + dj, z), outcomes(noise, i + di - 1, j + dj + 1, z)
            for p, q, p_there, q_there in zip(*here, *there, strict=True):
                assert p * q_there >= p_there * q or q == q_there == 0, (i, j, z, di, dj)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("K", "C"), [(3, 2), (4, 3), (3, 4)])
def test_theorem_no_label_costs_more_than_three_outcomes(noise: Noise, K: int, C: int) -> None:
    histograms = [h for h in itertools.product(range(K + 1), repeat=C) if sum(h) == K]
    laws = {h: label(noise, h) for h in histograms}
    for counts in histograms:
        if counts[0]:
            moved = laws[counts[0] - 1, counts[1] + 1, *counts[2:]]
            for ratio in RATIOS:
                assert hockey(laws[counts], moved, ratio) <= supremum(noise, ratio)
                assert hockey(moved, laws[counts], ratio) <= supremum(noise, ratio)


# of these two classes alone cost less than with a third beside them
MORE_WITH_A_THIRD = {((1, 3, 3, 1), Fraction(4)), ((4, 2, 1), Fraction(2)), ((4, 2, 1), Fraction(4))}


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("noise", NOISES)
def test_it_is_attained_where_the_others_are_far_below(noise: Noise, ratio: Fraction) -> None:
    # i and j beyond the noise: a label of two with ties to one of them has just this law
    far = 3 * len(noise)
    worst = max(
        hockey(outcomes(noise, far + d, far, z), outcomes(noise, far + d - 1, far + 1, z), ratio)
        for d, z in itertools.product(range(-far, far + 1), (0, 1))
    )
    two = max(
        hockey(conditional(noise, d, 0, -far, order), conditional(noise, d - 1, 1, -far, order), ratio)
        for d, order in itertools.product(range(-far // 2, far // 2 + 1), ORDERS)
    )
    assert worst == two
    if (noise, ratio) in MORE_WITH_A_THIRD:
        assert two < supremum(noise, ratio) < 1
    else:
        assert two == supremum(noise, ratio)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("noise", NOISES)
def test_it_is_attained_by_a_third_that_is_known(noise: Noise, ratio: Fraction) -> None:
    # the supremum is a label's, given the others: for votes of a and b, a height of the third, and an order of ties
    span = range(-2 * len(noise), 2 * len(noise) + 1)
    worst = max(
        hockey(conditional(noise, a, b, 0, order), conditional(noise, a - 1, b + 1, 0, order), ratio)
        for a, b, order in itertools.product(span, span, ORDERS)
    )
    assert worst == supremum(noise, ratio)


@pytest.mark.parametrize(
    "noise", [DiscreteGaussian(0.8), DiscreteLaplace(1.0), AsymmetricNoise(2.0, 3.0, 2.0, 1.5)], ids=str
)
def test_the_library_computes_these_outcomes(noise: IntegerNoise) -> None:
    points = np.arange(-40, 41)
    logs = noise.log_weights(points)
    f = np.exp(logs - np.logaddexp.reduce(logs))
    both = np.outer(f, f)
    laws = TwoClasses(noise)
    for i, j, z in itertools.product((-3, 0, 1, 4), (-2, 0, 3), (0, 1)):
        p_a, q_a, p_b, q_b = laws.compute_move_logs(np.array([i]), np.array([j]), z)
        for (a, b), first_log, second_log in (((i, j), p_a, p_b), ((i - 1, j + 1), q_a, q_b)):
            A, B = (a + points)[:, None], (b + points)[None, :]
            first = (A >= 0) & ((A > B) | ((A == B) & (z == 0)))
            second = (B >= 0) & ((B > A) | ((A == B) & (z == 1)))
            assert np.exp([first_log[0], second_log[0]]) == pytest.approx(
                [both[first].sum(), both[second].sum()], rel=1e-9
            )
