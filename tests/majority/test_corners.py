"""Rows survive a round trip through plain data; other data are refused; and the bounds of rows in exact fractions."""

from dataclasses import astuple
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from darrm import PrivacyParams, Problem, Voters
from darrm.majority.certify import lower_bound, multipliers_from_json
from darrm.majority.corners import CornerCounts
from darrm.majority.groups import GroupCounts
from tests.oracle import exact_budget, exponential, law, list_corners

EQUAL = Voters(4, PrivacyParams("0.1", "0.01"))
DIFFERENT = Voters.of([PrivacyParams("0.1", "0.01")] * 2 + [PrivacyParams("0.2", "0.01")] * 2)


@cache
def list_counts(voters: int) -> list[CornerCounts]:
    """List all rows of some voters of one group."""
    counts = (CornerCounts(*each) for each in product(range(voters + 1), repeat=8) if sum(each[:4]) == voters)
    return [
        each
        for each in counts
        if max(each.moved_zeros, each.moved_zeros_prime) <= each.zeros
        and max(each.moved_ones, each.moved_ones_prime) <= each.ones
    ]


def test_a_row_of_equal_voters_survives_plain_data() -> None:
    rows = list_counts(4)
    assert {row for row in rows if row.is_row_of(EQUAL)} == set(rows)
    texts = [row.to_list() for row in rows]
    assert len(set(map(str, texts))) == len(rows)
    for row, counts in zip(rows, texts, strict=True):
        assert multipliers_from_json([[0.5, *counts]], EQUAL) == ((0.5, row),)
        assert counts == [] or counts[-1] != 0
        assert counts + [0] * (7 - len(counts)) == [row.high, row.low, *astuple(row)[3:]]


def test_a_row_of_groups_survives_plain_data() -> None:
    for parts in product(list_counts(2), repeat=2):
        row = GroupCounts(parts)
        assert multipliers_from_json([[0.0, *row.to_list()]], DIFFERENT) == ((0.0, row),)


def probabilities(hi: Fraction, delta: Fraction, places: tuple[int, ...]) -> list[Fraction]:
    """List the probabilities of voters: how many are at hi, lo, Δ, 0, 1 − Δ and 1."""
    values = (hi, 1 - hi, delta, Fraction(0), 1 - delta, Fraction(1))
    return [value for value, count in zip(values, places, strict=True) for _ in range(count)]


@pytest.mark.parametrize(
    "problem",
    [
        Problem(Voters(3, PrivacyParams("0.7", "0.05")), PrivacyParams("0.9", "0.06")),
        Problem(Voters(4, PrivacyParams("1e-9", "1e-12")), PrivacyParams("1e-9", "2e-12")),
        Problem(Voters(4, PrivacyParams("inf"), 4), PrivacyParams("0.8")),
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", ["free", "monotone"])
def test_lower_bound_is_that_of_exact_fractions_rounded_down(problem: Problem, shape: str) -> None:
    """(1) and (2) of the theorem, with the coefficients of every row from its voters' probabilities."""
    K, each, ratio = problem.voters.K, problem.voters.each, exponential(problem.target.exact_epsilon)
    hi, delta = list_corners(each)[2][0], each.exact_delta if each.is_private else Fraction(0)
    rng, num_positive = np.random.default_rng(K), 0
    # only rows that the majority itself breaks give a bound
    rows = [
        row for row in list_counts(K) if np.sum(row.coefficients(problem.voters, problem.cost_ratio)) > problem.budget
    ]
    for _ in range(40):
        weights = rng.random(K - K // 2)
        reduced, bound = [-Fraction(float(w)) / 2 for w in weights], sum(map(Fraction, weights.tolist())) / 2
        multipliers = []
        for row in rng.choice(np.array(rows, dtype=object), 2).tolist():
            y = float(rng.exponential(0.1))
            multipliers.append((y, row))
            p = (row.high, row.low, row.moved_zeros, row.zeros - row.moved_zeros)
            p_prime = (row.low, row.high, row.moved_zeros_prime, row.zeros - row.moved_zeros_prime)
            first = law(probabilities(hi, delta, (*p, row.moved_ones, row.ones - row.moved_ones)))
            second = law(probabilities(hi, delta, (*p_prime, row.moved_ones_prime, row.ones - row.moved_ones_prime)))
            cost = [x - ratio * x_prime for x, x_prime in zip(first, second, strict=True)]
            for place, ones in enumerate(range(K // 2 + 1, K + 1)):
                reduced[place] += Fraction(y) * (cost[ones] - cost[K - ones])
            bound -= exact_budget(problem) * Fraction(y)
        tails = [sum(reduced[place:], Fraction(0)) for place in range(len(reduced))]
        bound += sum(min(value, Fraction(0)) for value in reduced) if shape == "free" else min(*tails, Fraction(0))
        bound, num_positive = max(bound, Fraction(0)), num_positive + (bound > 0)
        assert bound * (1 - Fraction(1, 10**15)) <= lower_bound(problem, weights, shape, multipliers) <= bound
    assert num_positive > 10


@pytest.mark.parametrize(
    ("entry", "voters"),
    [
        ("row", EQUAL),
        ([-0.5, 1], EQUAL),
        ([0.5, 5], EQUAL),
        ([0.5, 1, 1, 1, 2], EQUAL),  # one voter is near 0, and two move
        ([0.5, 1, 1, 1, 0, 2], EQUAL),
        ([0.5, -1], EQUAL),
        ([0.5, 1.5], EQUAL),
        ([0.5, [1]], DIFFERENT),
        ([0.5, [1], 1], DIFFERENT),
        ([0.5, [3], []], DIFFERENT),
    ],
)
def test_other_data_are_no_row(entry: Any, voters: Voters) -> None:
    with pytest.raises((TypeError, ValueError)):
        multipliers_from_json([entry], voters)


def test_a_row_touches_at_most_the_overlap() -> None:
    overlap = Voters(4, PrivacyParams("0.1", "0.01"), overlap=1)
    for row in list_counts(4):
        moved_near_zero = abs(row.moved_zeros - row.moved_zeros_prime)
        moved_near_one = abs(row.moved_ones - row.moved_ones_prime)
        assert row.is_row_of(overlap) == (row.high + row.low + moved_near_zero + moved_near_one <= 1)


def test_at_most_as_many_multipliers_as_voters_are_read() -> None:
    assert len(multipliers_from_json([[0.5, 1]] * 4, EQUAL)) == 4
    with pytest.raises(ValueError, match="at most K = 4"):
        multipliers_from_json([[0.5, 1]] * 5, EQUAL)
