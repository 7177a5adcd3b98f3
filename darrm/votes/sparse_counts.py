"""Counts in scipy's compressed rows, for many classes.

A dense matrix of 10,000 queries and 50,000 classes takes four gigabytes; 200 voters fill at most 200 entries a row.
scipy.sparse is loaded only where such counts are made.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.util import checks
from darrm.util.extras import Untyped, require

SparseCounts = Untyped  # a scipy.sparse.csr_array of whole numbers, with sorted columns in each row
Places = NDArray[np.integer[Any]]  # of columns, in integers of any size
_PLACES_AT_ONCE = 2**22


def is_sparse(counts: object) -> bool:
    return hasattr(counts, "indptr")


def sparse_of_dense(counts: NDArray[np.int64]) -> SparseCounts:
    return require("scipy.sparse").csr_array(counts)


def count_entries(counts: ArrayLike, columns: ArrayLike, starts: ArrayLike, classes: int) -> SparseCounts:
    """Add up entries: row q has those from ``starts[q]`` to ``starts[q + 1]``, also several in one column."""
    entries = np.asarray(counts, np.int64), np.asarray(columns, np.int32), np.asarray(starts, np.int32)
    matrix = require("scipy.sparse").csr_array(entries, shape=(entries[2].size - 1, classes))
    matrix.sum_duplicates()
    return matrix


def count_codes(codes: Places, classes: int) -> SparseCounts:
    """Count (Q, K) columns, one per voter; negative ones are not counted.

    >>> count_codes(np.array([[3, 1, 3], [0, -1, 0]]), 4).toarray().tolist()
    [[0, 1, 0, 2], [2, 0, 0, 0]]
    """
    parts, at_once = [count_entries([], [], [0], classes)], max(1, _PLACES_AT_ONCE // codes.shape[1])
    for start in range(0, len(codes), at_once):
        block = np.sort(codes[start : start + at_once], axis=1)  # faster than the sort of sum_duplicates
        is_counted = block >= 0
        starts = np.append(0, np.cumsum(np.count_nonzero(is_counted, axis=1)))
        parts.append(count_entries(np.ones(starts[-1], np.int64), block[is_counted], starts, classes))
    return stack(parts)


def stack(parts: Sequence[SparseCounts]) -> SparseCounts:
    return require("scipy.sparse").vstack(parts, format="csr")


def check_counts(counts: SparseCounts) -> SparseCounts:
    """Return a copy; `ValueError` unless its entries are whole numbers of at least 1."""
    copy = counts.tocsr(copy=True)
    copy.check_format()
    if copy.dtype.kind not in "iu" or not copy.has_canonical_format or copy.data.min(initial=1) < 1:
        checks.fail("sparse counts", checks.Found("others"), "whole numbers of at least 1, one entry a column and row")
    return copy.astype(np.int64)
