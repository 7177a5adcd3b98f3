"""Rows survive a round trip through plain data; other data are refused."""

from dataclasses import astuple
from itertools import product
from typing import Any

import pytest

from darrm import PrivacyParams, Voters
from darrm.majority.certify import multipliers_from_json
from darrm.majority.corners import CornerCounts
from darrm.majority.groups import GroupCounts

EQUAL = Voters(4, PrivacyParams("0.1", "0.01"))
DIFFERENT = Voters.of([PrivacyParams("0.1", "0.01")] * 2 + [PrivacyParams("0.2", "0.01")] * 2)


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
