"""Pairs of neighboring histograms up to renaming, against all histograms, and the limits on their number."""

import itertools

import numpy as np
import pytest

from darrm.plurality import partitions
from darrm.plurality.partitions import (
    Histogram,
    Histograms,
    Partitions,
    check_law,
    histograms_of,
    list_partitions,
    neighbors,
    number_of_partitions,
)
from darrm.problem import OPEN


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
    assert len(Partitions(2, partitions.MOST_LISTED).parts) == 2
    with pytest.raises(ValueError, match="classes must be an integer of at most 100"):
        Partitions(2, 101)
    monkeypatch.setattr(partitions, "MOST_HISTOGRAMS", 220)
    assert Histograms(9, 4).number == 220
    with pytest.raises(ValueError, match=r"number of histograms of 10 votes for 4 classes must be at most 220"):
        Histograms(10, 4)


@pytest.mark.parametrize(("K", "classes"), [(1, 2), (5, 3), (4, 6), (22, 15), (5, OPEN)])
def test_every_histogram_has_the_place_of_its_partition_and_the_group_of_each_class(K: int, classes: int) -> None:
    """The keys of 22 votes for 15 classes exceed 64 bits; the last group of open answers is that of no answer."""
    partition_list, strings = list_partitions(K, classes), K + 2 if classes == OPEN else classes
    padded = [(*part, *(0,) * strings)[:strings] for part in partition_list.parts]
    shuffled = np.random.default_rng(K).permuted(np.array(padded), axis=1)
    assert partition_list.find_places(shuffled).tolist() == list(range(len(padded)))
    no_answer = [0] if classes == OPEN else []
    groups = [[partition_list.groups[place, n] for n in row + no_answer] for place, row in enumerate(shuffled.tolist())]
    assert partition_list.find_groups(shuffled).tolist() == groups


@pytest.mark.parametrize(("K", "classes"), [(0, 3), (4, 1), (3, 2), (5, 4)])
def test_histograms_are_listed_once_and_found_with_one_more_vote(K: int, classes: int) -> None:
    histograms = histograms_of(K, classes)
    rows = sorted((n for n in itertools.product(range(K + 1), repeat=classes) if sum(n) == K), reverse=True)
    assert histograms.counts.tolist() == list(map(list, rows))
    assert histograms.find_places(histograms.counts).tolist() == list(range(histograms.number))
    for label in range(classes):
        grown = histograms_of(K + 1, classes).counts[histograms.plus(label)]
        assert (grown - histograms.counts).tolist() == [np.eye(classes, dtype=int)[label].tolist()] * len(rows)


@pytest.mark.parametrize("counts", [[2, 1, 0], [3, 2], [5, -1, 0], [2, 1, 1, 0]])
def test_histograms_of_other_votes_have_no_place(counts: list[int]) -> None:
    with pytest.raises(ValueError, match="4 votes for 3 classes"):
        list_partitions(4, 3).find_places(np.array([counts]))


@pytest.mark.parametrize("error", [1.5e-6, -1.5e-6, float("nan")])
def test_probabilities_of_a_prior_add_up_to_one(error: float) -> None:
    assert check_law(np.array([0.5, 0.5 + 0.9e-6])).tolist() == [0.5, 0.5 + 0.9e-6]
    with pytest.raises(ValueError, match="sum of the prior's probabilities of histograms must be 1"):
        check_law(np.array([0.5, 0.5 + error]))
