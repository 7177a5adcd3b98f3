"""Pairs of neighboring histograms up to renaming, against all histograms, and the limits on their number."""

import itertools

import numpy as np
import pytest

from darrm.plurality import partitions
from darrm.plurality.partitions import Histogram, Partitions, list_partitions, neighbors, number_of_partitions


def orbits(part: Histogram, reached: int) -> set[Histogram]:
    """List neighbors at 1 to ``reached`` votes, one for each renaming of classes with equal counts in n."""
    results = set()
    for other in itertools.product(range(sum(part) + 1), repeat=len(part)):
        moved = sum(abs(a - b) for a, b in zip(part, other, strict=True))
        if sum(other) == sum(part) and 0 < moved <= 2 * reached:
            # within the classes with equally many votes in n the counts fall
            results.add(tuple(-b for _, b in sorted((-a, -b) for a, b in zip(part, other, strict=True))))
    return results


@pytest.mark.parametrize(("K", "classes"), [(1, 3), (4, 2), (7, 2), (5, 3), (4, 4)])
@pytest.mark.parametrize("reached", [1, 2, 3, 6])
def test_pairs_are_all_neighbors_each_once(K: int, classes: int, reached: int) -> None:
    partition_list = Partitions(K, classes)
    pairs = partition_list.pairs(reached)
    expected = [
        (place, other) for place, part in enumerate(partition_list.parts) for other in orbits(part, min(reached, K))
    ]
    assert sorted(zip(pairs.first, pairs.second, strict=True)) == sorted(expected)
    assert pairs.pair[pairs.starts].tolist() == list(range(len(expected)))
    for part in partition_list.parts:
        assert sorted(neighbors(part, reached)) == sorted(orbits(part, reached))


def test_partitions_and_pairs_are_refused_above_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = number_of_partitions(9, 4)
    monkeypatch.setattr(partitions, "MOST_PARTITIONS", limit)
    partition_list = Partitions(9, 4)
    assert len(partition_list.parts) == limit
    largest = max(partition_list.parts, key=lambda part: len(neighbors(part, 2)))
    num_neighbors = len(neighbors(largest, 2))
    monkeypatch.setattr(partitions, "MOST_PAIRS", num_neighbors + 1)  # and the partition itself
    with pytest.raises(ValueError, match=r"number of pairs of neighbors must be at most"):
        partition_list.pairs(2)
    monkeypatch.setattr(partitions, "MOST_PAIRS", num_neighbors)
    with pytest.raises(ValueError, match=r"number of neighbors of a histogram must be at most"):
        neighbors(largest, 2)
    monkeypatch.setattr(partitions, "MOST_PARTITIONS", limit - 1)
    with pytest.raises(ValueError, match=r"number of partitions of 9 votes into 4 classes must be at most"):
        Partitions(9, 4)


@pytest.mark.parametrize("counts", [[2, 1, 0], [3, 2], [5, -1, 0], [2, 1, 1, 0]])
def test_histograms_of_other_votes_have_no_place(counts: list[int]) -> None:
    with pytest.raises(ValueError, match="4 votes for 3 classes"):
        list_partitions(4, 3).find_places(np.array([counts]))
