"""Data sets as the sampler sees them: a list, an array, or a tuple of arrays with one row a record.

Neighbouring data sets D, D′ of n records share n − 1 of them. They are cut out of n + 1 independent draws: D is the
first n, and D′ is D with one record replaced by the last draw [S, Algorithm 1].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from darrm import checks

# a list of anything, an array (n, …), or a tuple of such columns, as in (features, labels)
Records = Any


def count(records: Records) -> int:
    """Count the records of a data set.

    Raises
    ------
    ValueError
        If the object has no length, or the columns of a tuple have different lengths.

    Examples
    --------
    >>> count([3, 1, 2]), count((np.zeros((4, 2)), np.zeros(4)))
    (3, 4)
    """
    if not isinstance(records, tuple):
        return _length(records)
    lengths = [_length(column) for column in records]
    if not lengths or len(set(lengths)) != 1:
        checks.fail("records", lengths, "columns of one length each", "a tuple holds columns; a list holds records")
    return lengths[0]


def neighbours(draws: Records, position: int) -> tuple[Records, Records]:
    """Cut two neighbouring data sets of n records out of n + 1 draws; they differ in the record at ``position``.

    Both are copies, so that a function which changes its argument cannot change the other data set.

    Examples
    --------
    >>> neighbours([10, 20, 30, 40], position=2)
    ([10, 20, 30], [10, 20, 40])
    >>> neighbours(np.array([10, 20, 30]), position=0)
    (array([10, 20]), array([30, 20]))
    """
    if isinstance(draws, tuple):
        pairs = [neighbours(column, position) for column in draws]
        return tuple(first for first, _ in pairs), tuple(second for _, second in pairs)
    copy: Callable[[Records], Records] = np.array if isinstance(draws, np.ndarray) else list
    first, second = copy(draws[:-1]), copy(draws[:-1])
    second[position] = draws[-1]
    return first, second


def _length(records: Records) -> int:
    try:
        return len(records)
    except TypeError:
        return checks.fail("records", type(records).__name__, "a list, an array, or a tuple of arrays")
