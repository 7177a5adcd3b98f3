from __future__ import annotations

import math

import numpy as np
import pytest

from darrm.pate.vote_counts import check_histograms, counts_from_labels


def test_labels_become_counts() -> None:
    labels = np.array([[0, 1, 1, 3], [2, 2, 2, 2]])
    assert counts_from_labels(labels).tolist() == [[1, 2, 0, 1], [0, 0, 4, 0]]
    assert counts_from_labels(labels, classes=6).shape == (2, 6)
    assert counts_from_labels(np.zeros((1, 3))).tolist() == [[3, 0]]


def test_whole_floats_are_taken_and_the_input_stays_untouched() -> None:
    votes = np.array([[2.0, 1.0]])
    counts = check_histograms(votes)
    counts[0, 0] = 9
    assert counts.dtype == np.int64
    assert votes[0, 0] == 2.0
    already = np.array([[2, 1]])
    check_histograms(already)[0, 0] = 9
    assert already[0, 0] == 2


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        ([[1.0, math.nan]], "vote counts must be finite, got nan"),
        ([[1.0, math.inf]], "vote counts must be finite, got inf"),
        ([[3, -1]], "vote counts must be at least 0, got -1"),
        ([[1.5, 1.5]], "vote counts must be whole numbers"),
        ([[3, 1], [2, 1]], "the sum of row 1 must be K = 4, the sum of row 0, got 3"),
        ([[0, 0]], "the number of voters K must be at least 1, got 0"),
        ([[5]], "the number of classes C must be at least 2, got 1"),
        ([3, 1], "the shape of the vote counts must be"),
        (np.zeros((0, 3)), "the shape of the vote counts must be"),
        ([["a", "b"]], "the type of the vote counts must be whole numbers"),
        ([[1, 2], [3]], "vote counts must be a rectangular array"),
        ([[2**40, 1]], "vote counts must be at most"),
        ([[1e300, 1]], "vote counts must be whole numbers of at most"),
    ],
)
def test_malformed_counts_are_named(votes: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        check_histograms(votes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([[0, -1]], None, "labels must be at least 0, got -1"),
        ([[0, 5]], 3, "labels must be below the number of classes, 3, got 5"),
        ([[0, 1]], 1, "classes must be an integer of at least 2"),
        ([[]], None, "the shape of the labels"),
        ([[0.0, math.nan]], None, "labels must be finite"),
    ],
)
def test_malformed_labels_are_named(labels: object, classes: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        counts_from_labels(labels, classes)
