"""Vote counts: the (Q, C) whole numbers that every PATE aggregator reads, checked once.

>>> counts_from_labels([[0, 2, 2], [1, 1, 1]], classes=3).tolist()
[[1, 0, 2], [0, 3, 0]]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm import checks

LARGEST_ELECTORATE = 2**31 - 1


def check_histograms(histograms: ArrayLike) -> NDArray[np.int64]:
    """Read vote counts: one row a query, one column a class, every row the same number K ≥ 1 of votes.

    Parameters
    ----------
    histograms
        (Q, C) whole numbers, Q ≥ 1, C ≥ 2; floats are taken where they are whole.

    Returns
    -------
    NDArray
        (Q, C) int64.

    Raises
    ------
    ValueError
        If a count is NaN, infinite, negative or no whole number, the shape is wrong, there are no votes, or the rows
        do not sum to the same K.

    Examples
    --------
    >>> check_histograms([[3, -1]])
    Traceback (most recent call last):
    ...
    ValueError: vote counts must be at least 0, got -1: row 0 is wrong; a count says how many teachers chose a class
    """
    counts = _whole_numbers("vote counts", histograms)
    if counts.ndim != 2 or counts.shape[0] < 1:
        checks.fail("the shape of the vote counts", counts.shape, "(queries, classes) with at least one query")
    if counts.shape[1] < 2:
        checks.fail(
            "the number of classes C", counts.shape[1], "at least 2", "with one class there is nothing to vote on"
        )
    if counts.min() < 0:
        row = int(np.argmax((counts < 0).any(axis=1)))
        checks.fail(
            "vote counts",
            int(counts[row].min()),
            "at least 0",
            f"row {row} is wrong; a count says how many teachers chose a class",
        )
    if counts.max() > LARGEST_ELECTORATE:
        checks.fail("vote counts", int(counts.max()), f"at most {LARGEST_ELECTORATE}")
    votes = counts.sum(axis=1)
    if votes[0] < 1:
        checks.fail("the number of voters K", int(votes[0]), "at least 1", "row 0 has no votes")
    if np.any(votes != votes[0]):
        row = int(np.argmax(votes != votes[0]))
        checks.fail(
            f"the sum of row {row}",
            int(votes[row]),
            f"K = {int(votes[0])}, the sum of row 0",
            "every teacher votes on every query",
        )
    return counts


def counts_from_labels(labels: ArrayLike, classes: int | None = None) -> NDArray[np.int64]:
    """Count the votes of each class: (Q, K) labels 0 … C − 1 become (Q, C) counts.

    Parameters
    ----------
    labels
        (Q, K) whole numbers: the label that each of K teachers gives to each of Q queries.
    classes
        The number C ≥ 2 of classes; by default the largest label plus one (at least 2). It must be public.

    Raises
    ------
    ValueError
        If a label is no whole number in 0 … C − 1, or the shape is wrong.
    """
    votes = _whole_numbers("labels", labels)
    if votes.ndim != 2 or 0 in votes.shape:
        checks.fail("the shape of the labels", votes.shape, "(queries, teachers) with at least one of each")
    if votes.min() < 0:
        checks.fail("labels", int(votes.min()), "at least 0", "classes are numbered from 0")
    found = int(votes.max()) + 1
    if classes is None:
        classes = max(found, 2)
    checks.integer_at_least(2, classes=classes)
    if found > classes:
        checks.fail("labels", found - 1, f"below the number of classes, {classes}")
    queries = votes.shape[0]
    flat = (votes + classes * np.arange(queries)[:, np.newaxis]).ravel()
    return np.bincount(flat, minlength=queries * classes).reshape(queries, classes).astype(np.int64)


def _whole_numbers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    try:
        array = np.asarray(values)
    except ValueError:
        return checks.fail(name, "rows of different lengths", "a rectangular array")
    if array.dtype == bool or array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.dtype.kind != "f":
        checks.fail(f"the type of the {name}", str(array.dtype), "whole numbers")
    if not np.all(np.isfinite(array)):
        checks.fail(name, float(array[~np.isfinite(array)].flat[0]), "finite", "remove or repair the query")
    if np.any(array != np.rint(array)) or np.any(np.abs(array) > LARGEST_ELECTORATE):
        wrong = array[(array != np.rint(array)) | (np.abs(array) > LARGEST_ELECTORATE)]
        checks.fail(name, float(wrong.flat[0]), f"whole numbers of at most {LARGEST_ELECTORATE}")
    return array.astype(np.int64)
