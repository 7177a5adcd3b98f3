"""Sparse counts: for each query the columns with votes, and their numbers of votes.

A matrix of 10,000 queries and 50,000 classes takes four gigabytes; 200 voters fill at most 200 entries per row.
The entries of row q are at ``starts[q] … starts[q + 1] − 1``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.util import checks

_PLACES_AT_ONCE = 2**22
Places = NDArray[np.integer[Any]]  # of columns, in integers of any size


@dataclass(frozen=True, eq=False, repr=False)
class SparseCounts:
    """Sparse (Q, C) counts; made by `of_dense`, `of_rows` or `from_codes`. `ValueError` for inconsistent arrays.

    Attributes
    ----------
    starts
        (Q + 1,) the first entry of each row, then the number of entries.
    columns
        (n,) the column of each entry, increasing within a row.
    values
        (n,) the count of each entry, at least 1.
    classes
        C, the number of columns.

    Examples
    --------
    >>> counts = SparseCounts.of_dense([[0, 3, 0, 1], [4, 0, 0, 0]])
    >>> counts, counts.columns.tolist(), counts.values.tolist(), counts.row_of.tolist()
    (SparseCounts(2 rows of 4 columns, 3 entries), [1, 3, 0], [3, 1, 4], [0, 0, 1])
    >>> counts.rows(slice(1, 2)).dense().tolist()
    [[4, 0, 0, 0]]
    """

    starts: NDArray[np.int64]
    columns: Places
    values: NDArray[np.int64]
    classes: int

    __setstate__ = checks.set_read_only

    def __post_init__(self) -> None:
        checks.integer_at_least(0, most=2**31 - 1, classes=self.classes)
        arrays = {name: np.array(getattr(self, name)) for name in ("starts", "columns", "values")}
        for name, array in arrays.items():
            if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
                checks.fail(name, checks.Found(f"shape {array.shape}, type {array.dtype}"), "whole numbers in a row")
        starts, columns, values = (array.astype(np.int64) for array in arrays.values())
        if not starts.size or starts[0] or np.any(np.diff(starts) < 0) or not starts[-1] == columns.size == values.size:
            advice = f"so that {columns.size} columns and {values.size} values stand row by row"
            checks.fail("starts", starts[:10], "from 0 up to the number of entries, none below the one before", advice)
        if columns.size and not (columns.min() >= 0 and columns.max() < self.classes and values.min() >= 1):
            checks.fail("entries", checks.Found("others"), f"columns from 0 to {self.classes - 1} and values above 0")
        same_row = np.ones(max(0, columns.size - 1), dtype=bool)
        same_row[starts[(starts > 0) & (starts < columns.size)] - 1] = False
        if np.any(np.diff(columns)[same_row] <= 0):
            checks.fail("columns", checks.Found("others"), "increasing within each row")
        self._hold(starts, columns, values, int(self.classes))

    def _hold(self, *attributes: NDArray[Any] | int) -> None:
        for name, value in zip(("starts", "columns", "values", "classes"), attributes, strict=True):
            held = value.astype(np.int32, copy=False) if isinstance(value, np.ndarray) and name == "columns" else value
            if isinstance(held, np.ndarray):
                held.setflags(write=False)
            object.__setattr__(self, name, held)

    @classmethod
    def _made(cls, *attributes: NDArray[Any] | int) -> SparseCounts:
        """Return counts from new arrays, without a check or a copy."""
        counts = object.__new__(cls)
        counts._hold(*attributes)
        return counts

    @classmethod
    def of_dense(cls, counts: NDArray[np.int64]) -> SparseCounts:
        """Keep the entries above zero of (Q, C) counts, which are at least 0."""
        matrix = np.asarray(counts)
        row, columns = np.nonzero(matrix)
        starts = np.searchsorted(row, np.arange(len(matrix) + 1)).astype(np.int64)
        return cls(starts, columns, matrix[row, columns], matrix.shape[1])

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[int, int]], classes: int) -> SparseCounts:
        """Make counts from rows that map a column to its count.

        >>> SparseCounts.of_rows([{5: 2, 0: 1}, {}], 6).dense().tolist()
        [[1, 0, 0, 0, 0, 2], [0, 0, 0, 0, 0, 0]]
        """
        sorted_rows = [sorted(row.items()) for row in rows]
        starts = np.cumsum([0, *map(len, sorted_rows)])
        entries = np.array([entry for row in sorted_rows for entry in row], dtype=np.int64).reshape(-1, 2)
        return cls(starts, entries[:, 0], entries[:, 1], classes)

    @classmethod
    def from_codes(cls, places: Places, classes: int) -> SparseCounts:
        """Count (Q, K) columns, one per voter; negative ones are not counted.

        >>> SparseCounts.from_codes(np.array([[3, 1, 3], [0, -1, 0]]), 4).dense().tolist()
        [[0, 1, 0, 2], [2, 0, 0, 0]]
        """
        queries, voters = places.shape
        lengths, columns, values = [np.zeros(1, np.int64)], [np.empty(0, np.int32)], [np.empty(0, np.int32)]
        at_once = max(1, _PLACES_AT_ONCE // max(1, voters))
        for start in range(0, queries, at_once):
            chosen = np.sort(places[start : start + at_once], axis=1)
            begins = np.ones(chosen.shape, dtype=bool)
            np.not_equal(chosen[:, 1:], chosen[:, :-1], out=begins[:, 1:])
            first = np.flatnonzero(begins)
            column, run = chosen.ravel()[first], np.diff(first, append=chosen.size)
            kept = column >= 0
            lengths.append(np.count_nonzero(begins & (chosen >= 0), axis=1))
            columns.append(column[kept].astype(np.int32))
            values.append(run[kept].astype(np.int32))  # at most K, below 2^31
        together = np.concatenate(columns)
        columns.clear()  # free memory before the values are copied
        starts, counts = np.cumsum(np.concatenate(lengths)), np.concatenate(values, dtype=np.int64)
        return cls._made(starts, together, counts, classes)

    @classmethod
    def concatenate(cls, several: Iterable[SparseCounts]) -> SparseCounts:
        """Concatenate rows of the same columns."""
        parts = list(several)
        ends = np.cumsum([0, *(part.columns.size for part in parts)])
        starts = [np.zeros(1, np.int64)]
        starts += [part.starts[1:] + end for part, end in zip(parts, ends[:-1], strict=True)]
        columns, values = ([getattr(part, name) for part in parts] for name in ("columns", "values"))
        return cls._made(np.concatenate(starts), np.concatenate(columns), np.concatenate(values), parts[0].classes)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def row_of(self) -> NDArray[np.int64]:
        """(n,) the row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @property
    def sums(self) -> NDArray[np.int64]:
        """(Q,) the sum of each row."""
        running = np.concatenate([[0], np.cumsum(self.values)])
        return np.asarray(running[self.starts[1:]] - running[self.starts[:-1]])

    def rows(self, which: slice | NDArray[np.bool_] | Places) -> SparseCounts:
        """Return some of the rows, in the order of ``which``."""
        chosen = np.arange(len(self))[which]
        lengths = np.diff(self.starts)[chosen]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.repeat(self.starts[:-1][chosen] - starts[:-1], lengths) + np.arange(starts[-1])
        return SparseCounts._made(starts, self.columns[entries], self.values[entries], self.classes)

    def renumbered(self, columns: Places, classes: int) -> SparseCounts:
        """Return the same counts with column c moved to ``columns[c]``; the new columns are distinct."""
        called = columns[self.columns]
        order = np.lexsort((called, self.row_of))
        return SparseCounts._made(self.starts.copy(), called[order], self.values[order], classes)

    def dense(self) -> NDArray[np.int64]:
        """Return the dense (Q, C) counts."""
        counts = np.zeros((len(self), self.classes), dtype=np.int64)
        counts[self.row_of, self.columns] = self.values
        return counts

    def __repr__(self) -> str:
        return f"SparseCounts({len(self):,} rows of {self.classes:,} columns, {self.columns.size:,} entries)"
