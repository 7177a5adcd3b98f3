"""Parts of one draw of the sensitivity sampler: neighboring data sets, and the distance of a function's values.

A data set is a list, an array, or a tuple of arrays with one row per record, such as (features, labels). Neighbors D
and D′ of n records share n − 1 records. They come from n + 1 independent draws: D is the first n, and D′ is D with one
record replaced by the last draw [S, Algorithm 1].

Norms of the difference f(D) − f(D′) are rounded up, so that a sensitivity is never below the true value. A difference
of two floats is rounded once and a sum of d terms at most d more times, each by a factor of at most 1 + 2⁻⁵². So the
factor 1 + (d + 4)·2⁻⁵¹ covers all roundings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.util import checks

Records = Any  # a list of anything, an array (n, …), or a tuple of such columns
Function = Callable[[Any], Any]
RecordSampler = Callable[[np.random.Generator, int], Any]
Norm = str | Callable[[NDArray[np.float64]], float]
Outcome = tuple[float, tuple[int, ...]] | str  # of a draw: a sensitivity and the shape of the value, or why it failed

NORMS = ("l1", "l2", "sup")
POSITIONS = ("last", "random")


def value_of(function: Function, data: Records) -> NDArray[np.float64]:
    """Evaluate a black box on a data set as an array of finite 64-bit floats; otherwise `ValueError`."""
    value = np.asarray(function(data))
    if value.dtype.kind not in "biuf":
        checks.fail("the function's value", str(value.dtype), "a number or an array of numbers")
    numbers = canonical(value)
    bad = numbers[~np.isfinite(numbers)]
    if bad.size:
        checks.fail("the function's value", float(bad[0]), "finite everywhere")
    return numbers


def canonical(value: ArrayLike) -> NDArray[np.float64]:
    """Copy numbers as 64-bit floats in C order, with one zero: arrays of equal finite numbers have equal bytes.

    A release without noise is these bytes: -0.0 and the memory order would distinguish equal arrays.

    >>> canonical([-0.0, 1])
    array([0., 1.])
    """
    numbers = np.array(value, dtype=np.float64, order="C")
    numbers += 0.0  # -0.0 + 0.0 is 0.0
    return numbers


def count(records: Records) -> int:
    """Count the records of a data set; `ValueError` if it has no length or its columns differ in length.

    >>> count([3, 1, 2]), count((np.zeros((4, 2)), np.zeros(4)))
    (3, 4)
    """
    columns = records if isinstance(records, tuple) else (records,)
    try:
        lengths = [len(column) for column in columns]
    except TypeError:
        kinds = ", ".join(type(column).__name__ for column in columns)
        return checks.fail("records", kinds, "a list, an array, or a tuple of arrays")
    if len(set(lengths)) != 1:
        checks.fail("records", lengths, "columns of one length each", "a tuple holds columns; a list holds records")
    return lengths[0]


def neighbors(draws: Records, position: int) -> tuple[Records, Records]:
    """Make two neighboring data sets of n records from n + 1 draws; they differ in the record at ``position``.

    Both are copies, so a function that changes its argument does not change the other data set.

    >>> neighbors([10, 20, 30, 40], position=2)
    ([10, 20, 30], [10, 20, 40])
    >>> neighbors(np.array([10, 20, 30]), position=0)
    (array([10, 20]), array([30, 20]))
    """
    if isinstance(draws, tuple):
        pairs = [neighbors(column, position) for column in draws]
        return tuple(first for first, _ in pairs), tuple(second for _, second in pairs)
    copy: Callable[[Records], Records] = np.array if isinstance(draws, np.ndarray) else list
    first, second = copy(draws[:-1]), copy(draws[:-1])
    second[position] = draws[-1]
    return first, second


def check_norm(norm: Norm) -> None:
    """Raise `ValueError` unless ``norm`` is "l1", "l2", "sup" or a callable."""
    if not callable(norm):
        checks.one_of(NORMS, norm=norm, advice="or give a callable that takes the difference and returns its norm")


def norm_of(difference: NDArray[np.float64], norm: Norm) -> float:
    """Compute the norm of a difference of any shape, rounded up; a callable's value is not rounded.

    >>> difference = np.array([3.0, -4.0])
    >>> [round(norm_of(difference, name), 12) for name in NORMS]
    [7.0, 5.0, 4.0]
    """
    value = float(norm(difference)) if callable(norm) else _norm_rounded_up(np.abs(difference).ravel(), norm)
    if not 0.0 <= value < math.inf:
        checks.fail("the norm of f(D) - f(D')", value, "a finite number of at least 0")
    return value


def _norm_rounded_up(sizes: NDArray[np.float64], norm: str) -> float:
    largest = float(np.max(sizes, initial=0.0))
    if largest in (0.0, math.inf):
        return largest
    # divide by the largest, so squares neither overflow nor vanish
    shares = sizes / largest
    value = {"l1": float(np.sum(shares)), "l2": math.sqrt(float(np.sum(shares * shares))), "sup": 1.0}[norm] * largest
    return math.nextafter(value * (1.0 + (sizes.size + 4) * 2.0**-51), math.inf)
