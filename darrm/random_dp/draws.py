"""One draw of the sensitivity sampler, replayable from (seed, index), and batches of them for worker processes.

A draw's generator depends on the seed and the draw's index only, so the result is the same for every number of
processes and every size of batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.random_dp.norms import Norm, norm_of
from darrm.random_dp.records import Records, count, neighbours

Function = Callable[[Any], Any]
RecordSampler = Callable[[np.random.Generator, int], Any]


POSITIONS = ("last", "random")


@dataclass(frozen=True)
class Draws:
    """What every draw of a run shares: the function, the distribution, the norm and the seed."""

    function: Function
    sampler: RecordSampler
    norm: Norm
    position: str
    records: int
    seed: int

    def pair(self, index: int) -> tuple[Records, Records]:
        """Draw the neighbouring data sets of one index."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(index,)))
        draws = self.sampler(rng, self.records + 1)
        if count(draws) != self.records + 1:
            checks.fail("the sampler's answer", count(draws), f"{self.records + 1} records, as it was asked for")
        place = self.records - 1 if self.position == "last" else int(rng.integers(self.records))
        return neighbours(draws, place)

    def measure(self, index: int) -> tuple[float, tuple[int, ...]]:
        """Measure ‖f(D) − f(D′)‖ on one pair; also give the shape of f."""
        first, second = (value_of(self.function, data) for data in self.pair(index))
        if first.shape != second.shape:
            checks.fail("the function's shape", second.shape, f"{first.shape}, as on the neighbouring data set")
        with np.errstate(over="ignore"):
            difference = first - second
        return norm_of(difference, self.norm), first.shape


@dataclass(frozen=True)
class Batch:
    """The sensitivities of consecutive draws, or the first draw that failed and why."""

    values: NDArray[np.float64]
    shape: tuple[int, ...] | None
    failed: int | None = None
    reason: str = ""


def value_of(function: Function, data: Records) -> NDArray[np.float64]:
    """Evaluate a black box on a data set, as an array of finite 64-bit floats.

    Raises
    ------
    ValueError
        If the value holds NaN or an infinity, or is no array of numbers.
    """
    value = np.asarray(function(data))
    if value.dtype.kind not in "biuf":
        checks.fail("the function's value", str(value.dtype), "a number or an array of numbers")
    numbers = value.astype(np.float64)
    if not np.all(np.isfinite(numbers)):
        bad = numbers[~np.isfinite(numbers)][0]
        checks.fail("the function's value", float(bad), "finite everywhere")
    return numbers


def measure_batch(draws: Draws, start: int, stop: int, shape: tuple[int, ...] | None) -> Batch:
    """Measure the draws start … stop − 1; stop at the first failure and describe it instead of raising.

    The black box may raise anything, and not every exception survives the way back from a worker process.
    """
    values = np.empty(stop - start)
    for index in range(start, stop):
        try:
            values[index - start], now = draws.measure(index)
        except Exception as error:  # noqa: BLE001 (a black box may raise anything; it is reported with its draw)
            return Batch(values[: index - start], shape, index, f"{type(error).__name__}: {error}")
        if shape is None:
            shape = now
        elif now != shape:
            reason = f"the function's value has shape {now}, where an earlier draw had {shape}"
            return Batch(values[: index - start], shape, index, reason)
    return Batch(values, shape)
