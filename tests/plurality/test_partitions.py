"""Pairs of neighboring histograms up to names, against all histograms; and what is too many to list."""

import itertools

import pytest

from darrm.plurality import partitions
from darrm.plurality.partitions import Histogram, Partitions, neighbors, number_of_partitions


def orbits(part: Histogram, reached: int) -> set[Histogram]:
    """All histograms that differ by one to ``reached`` votes, one for each renaming of classes that n cannot tell."""
    results = set()
    for other in itertools.product(range(sum(part) + 1), repeat=len(part)):
        moved = sum(abs(a - b) for a, b in zip(part, other, strict=True))
        if sum(other) == sum(part) and 0 < moved <= 2 * reached:
            # within the classes with equally many votes in n the counts fall
            results.add(tuple(-b for _, b in sorted((-a, -b) for a, b in zip(part, other, strict=True))))
    return results


@pytest.mark.parametrize(("K", "classes"), [(1, 3), (4, 2), (7, 2), (5, 3), (4, 4)])
@pytest.mark.parametrize("reached", [1, 2, 3, 6])
def test_the_pairs_are_all_neighbors_each_once(K: int, classes: int, reached: int) -> None:
    listed = Partitions(K, classes)
    pairs = listed.pairs(reached)
    expected = [(place, other) for place, part in enumerate(listed.parts) for other in orbits(part, min(reached, K))]
    assert sorted(zip(pairs.first, pairs.second, strict=True)) == sorted(expected)
    assert pairs.pair[pairs.starts].tolist() == list(range(len(expected)))
    for part in listed.parts:
        assert sorted(neighbors(part, reached)) == sorted(orbits(part, reached))


def test_what_is_too_much_is_what_exceeds_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    most = number_of_partitions(9, 4)
    monkeypatch.setattr(partitions, "MOST_PARTITIONS", most)
    listed = Partitions(9, 4)
    assert len(listed.parts) == most
    largest = max(listed.parts, key=lambda part: len(neighbors(part, 2)))
    neighbors_of_one = len(neighbors(largest, 2))
    monkeypatch.setattr(partitions, "MOST_PAIRS", neighbors_of_one + 1)  # and the partition itself
    with pytest.raises(ValueError, match=r"number of pairs of neighbors must be at most"):
        listed.pairs(2)
    monkeypatch.setattr(partitions, "MOST_PAIRS", neighbors_of_one)
    with pytest.raises(ValueError, match=r"number of neighbors of a histogram must be at most"):
        neighbors(largest, 2)
    monkeypatch.setattr(partitions, "MOST_PARTITIONS", most - 1)
    with pytest.raises(ValueError, match=r"number of partitions of 9 votes into 4 classes must be at most"):
        Partitions(9, 4)
