"""One draw of the sensitivity sampler: two neighboring data sets and the distance of a function's values on them.

A data set is a list, an array, or a tuple of arrays with one row per record, such as (features, labels). Neighbors D
and D′ of n records share n − 1 records. They come from n + 1 independent draws: D is the first n, and D′ is D with one
record replaced by the last draw [S, Algorithm 1].

A draw can be replayed from (seed, index). Its generator depends only on these two, so the result does not depend on
the number of processes or the batch size.

Norms of the difference f(D) − f(D′) are rounded up, so that a sensitivity is never below the true value. A difference
of two floats is rounded once and a sum of d terms at most d more times, each by a factor of at most 1 + 2⁻⁵². So the
factor 1 + (d + 4)·2⁻⁵¹ covers all roundings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.util import checks

Records = Any  # a list of anything, an array (n, …), or a tuple of such columns
Function = Callable[[Any], Any]
RecordSampler = Callable[[np.random.Generator, int], Any]
Norm = str | Callable[[NDArray[np.float64]], float]

NORMS = ("l1", "l2", "sup")
POSITIONS = ("last", "random")


@dataclass(frozen=True)
class Draws:
    """Shared settings of all draws of a run; workers receive a copy."""

    function: Function
    sampler: RecordSampler
    norm: Norm
    position: str
    records: int
    seed: int

    def pair(self, index: int) -> tuple[Records, Records]:
        """Draw the neighboring data sets of one index."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(index,)))
        draws = self.sampler(rng, self.records + 1)
        if count(draws) != self.records + 1:
            checks.fail("the sampler's answer", count(draws), f"{self.records + 1} records, as it was asked for")
        place = self.records - 1 if self.position == "last" else int(rng.integers(self.records))
        return neighbors(draws, place)

    def measure(self, index: int) -> tuple[float, tuple[int, ...]]:
        """Measure ‖f(D) − f(D′)‖ on one pair; also return the shape of f."""
        first, second = (value_of(self.function, data) for data in self.pair(index))
        if first.shape != second.shape:
            checks.fail("the function's shape", second.shape, f"{first.shape}, as on the neighboring data set")
        with np.errstate(over="ignore"):
            difference = first - second
        return norm_of(difference, self.norm), first.shape

    def batch(self, start: int, stop: int) -> Batch:
        """Measure the draws start … stop − 1; stop at the first failure and describe it instead of raising.

        A black box may raise any exception, and not every exception can be sent back from a worker process.
        """
        values = np.empty(stop - start)
        shape: tuple[int, ...] | None = None
        for index in range(start, stop):
            try:
                values[index - start], now = self.measure(index)
            except Exception as error:  # noqa: BLE001 (a black box may raise anything; the batch reports it)
                return Batch(values[: index - start], shape, index, f"{type(error).__name__}: {error}")
            shape = now if shape is None else shape
            if now != shape:
                return Batch(values[: index - start], shape, index, another_shape(now, shape))
        return Batch(values, shape)


@dataclass(frozen=True)
class Batch:
    """The sensitivities of consecutive draws, or the first draw that failed and why."""

    values: NDArray[np.float64]
    shape: tuple[int, ...] | None
    failed: int | None = None
    reason: str = ""


def another_shape(now: tuple[int, ...] | None, before: tuple[int, ...]) -> str:
    """Return the error text for a draw with another shape than earlier draws."""
    return f"the function's value has shape {now}, where an earlier draw had {before}"


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
