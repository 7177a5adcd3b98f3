"""What the scale of votes rests on, lemma by lemma, in exact fractions; noise whose difference has weights 2^{−|k|}."""

import itertools
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from darrm.noisy_max.mislabel_bound import GaussianMislabelBound
from darrm.pate.vote_scale import MARKS_A_VOTE, VoteScale

POINTS = range(-3, 4)  # D before the move; every subset of them is an event
THIRD = Fraction(1, 3)
ALPHA = 2


def f(k: int) -> Fraction:
    """Pr[D = k] before the move; after it D stands at k with f(k + 2)."""
    return THIRD / 2 ** abs(k)


@cache
def t(kappa: Fraction) -> Fraction:
    """Pr[D ≥ κ], linear between whole κ."""

    def whole(k: int) -> Fraction:
        return 2 * THIRD / 2**k if k > 0 else 1 - 2 * THIRD / 2 ** (1 - k)

    low = kappa.numerator // kappa.denominator
    return whole(low) + (kappa - low) * (whole(low + 1) - whole(low))


@cache
def place_of(probability: Fraction) -> Fraction:
    """The κ with t(κ) = probability."""
    low = next(k for k in range(-60, 60) if t(Fraction(k + 1)) <= probability)
    here, there = t(Fraction(low)), t(Fraction(low + 1))
    return low + (here - probability) / (here - there)


def events() -> list[tuple[Fraction, Fraction, tuple[int, ...]]]:
    """All subsets of the points, with their probabilities before and after the move."""
    subsets = itertools.chain.from_iterable(itertools.combinations(POINTS, size) for size in range(1, len(POINTS) + 1))
    return [(sum(map(f, event), Fraction(0)), sum((f(k + 2) for k in event), Fraction(0)), event) for event in subsets]


EVENTS = events()


def test_lemma_1_an_event_moves_along_the_tail() -> None:
    for before, after, _ in EVENTS:
        kappa = place_of(before)
        assert t(kappa + 2) <= after <= t(kappa - 2)


def test_lemma_1_is_attained_by_the_tails() -> None:
    for k in range(-4, 8):
        # D ≥ k has t(k + 2) after the move, and D ≤ −k, of the same probability, t(k − 2)
        rest = 2 * f(62)  # of j from 60 on
        assert sum((f(j + 2) for j in range(k, 60)), rest) == t(Fraction(k + 2))
        low = 1 - t(Fraction(1 - k))
        assert low == t(Fraction(k))
        assert 1 - t(Fraction(3 - k)) == t(Fraction(k - 2))


def added(k: int) -> Fraction:
    """A(κ) of whole κ for α = 2: Σ f(j)²/f(j + 2) over j ≥ κ, in closed form from 0 on."""
    tail = Fraction(4) * t(Fraction(max(k, 0)))
    return tail + sum((f(j) ** ALPHA * f(j + 2) ** (1 - ALPHA) for j in range(k, 0)), Fraction(0))


def test_lemma_2_an_unlikely_event_costs_little() -> None:
    for before, after, event in EVENTS:
        kappa = place_of(before)
        most = added(kappa.numerator // kappa.denominator)  # of an event at least as likely
        told = sum((f(k) ** ALPHA * f(k + 2) ** (1 - ALPHA) for k in event), Fraction(0))
        assert before**ALPHA * after ** (1 - ALPHA) <= told <= most


def test_lemma_2_is_attained_by_a_tail_that_is_told() -> None:
    for k in (0, 1, 3):
        rest = 4 * 2 * f(80)  # of j from 80 on
        assert sum((f(j) ** ALPHA * f(j + 2) ** (1 - ALPHA) for j in range(k, 80)), rest) == added(k)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_lemma_3_a_total_moves_by_one_step_of_the_scale(n: int) -> None:
    def U(g: Fraction) -> Fraction:  # concave, rising, at least g
        return min(3 * g, g + 1, g / 2 + 2)

    costs = [Fraction(k, 4) for k in range(13)]
    for answers in itertools.product(costs, repeat=n):
        total = sum(answers, Fraction(0))
        assert sum(map(U, answers), Fraction(0)) <= n * U(total / n)
    # equal answers attain it: no smaller step of the marks would do
    for g in costs:
        assert sum((U(g) for _ in range(n)), Fraction(0)) == n * U(g)


def test_theorem_equal_answers_move_the_mark_by_one_vote_and_no_less() -> None:
    scale = VoteScale(GaussianMislabelBound(40.0, 16.0), answers=20)
    places, values = scale.bound.after_one_vote
    for mark in (5, 40, 200):
        total = scale.cost_at(mark)
        moved = 20 * float(np.interp(total / 20, places, values))  # twenty equal answers, each moved by a vote
        assert scale.mark_of(moved * (1.0 - 1e-9)) - mark == MARKS_A_VOTE
        for share in (0.3, 0.9):  # others, of the same total, move no farther
            parts = total * share / 10, total * (1.0 - share) / 10
            unequal = sum(10 * float(np.interp(part, places, values)) for part in parts)
            assert scale.mark_of(unequal * (1.0 - 1e-9)) - mark <= MARKS_A_VOTE
