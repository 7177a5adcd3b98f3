"""Amplification by subsampling: how often a person is included, and which samples a sample covers."""

import itertools
import math
from fractions import Fraction

import pytest

from darrm.subsampling import SCHEMES, Subsampling


@pytest.mark.parametrize("records", [1, 2, 3])
def test_a_person_is_included_with_any_of_their_records(records: int) -> None:
    rate, size, people = Fraction(1, 3), 2, 6
    coins = itertools.product((True, False), repeat=records)
    any_heads = sum(math.prod(rate if head else 1 - rate for head in heads) for heads in coins if any(heads))
    assert Subsampling(rate, records=records).rate == any_heads
    samples = list(itertools.combinations(range(people), size))
    included = Fraction(sum(min(sample) < records for sample in samples), len(samples))
    fixed = Subsampling(Fraction(size, people), "fixed", records).rate
    assert included <= fixed <= 1
    assert fixed == included or records > 1
    assert Subsampling(Fraction(1, 2), "fixed", 3).rate == 1


def test_subsampling_covers_the_same_scheme_at_smaller_rates_only() -> None:
    frequent, rare = (
        {scheme: Subsampling(rate, scheme) for scheme in SCHEMES} for rate in (Fraction(1, 2), Fraction(1, 9))
    )
    assert all(
        frequent[first].covers(rare[second]) == (first == second)
        for first, second in itertools.product(SCHEMES, SCHEMES)
    )
    assert not any(rare[scheme].covers(frequent[scheme]) for scheme in SCHEMES)
    # two records at ¼ each are one at 7/16
    assert Subsampling(Fraction(7, 16)).covers(Subsampling(Fraction(1, 4), records=2))
    assert not Subsampling(Fraction(1, 4)).covers(Subsampling(Fraction(1, 4), records=2))
    assert "probability 0.4375; 2 records each, drawn with 0.25; neighbors" in str(
        Subsampling(Fraction(1, 4), records=2)
    )
