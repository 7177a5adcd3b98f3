"""Sampled sensitivity of a black box [S, Algorithm 1], and a release with it [S, Algorithm 2].

    G_i = ‖f(D_{1…n}) − f(D_{1…n−1,n+1})‖,  D ~ P^{n+1},  i = 1 … m;      Δ̂ = G_(k)

The function must be deterministic (a random learner has a fixed seed) and the same for sampled and real data. The
sampled data are public: a seeded generator draws them, and draws can be replayed.

A data set is a list, an array, or a tuple of arrays with one row per record, such as (features, labels). Neighbors D
and D′ of n records share n − 1 records: D is the first n of n + 1 independent draws, and D′ is D with one record
replaced by the last draw.

Norms of the difference f(D) − f(D′) are rounded up. A difference of two floats is rounded once and a sum of d terms at
most d more times, each by a factor of at most 1 + 2⁻⁵². So the factor 1 + (d + 4)·2⁻⁵¹ covers all roundings.
"""

from __future__ import annotations

import math
import secrets
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Generic, TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from darrm.errors import SamplingError
from darrm.privacy import Number, PrivacyParams
from darrm.random_dp.guarantee import RandomDP
from darrm.random_dp.mechanisms import Mechanism, Norm, canonicalize
from darrm.random_dp.sample_size import SampleSize, exchangeable_sample_size, sample_size
from darrm.util import checks
from darrm.util.extras import require
from darrm.util.progress import bar

Records = Any  # a list of anything, an array (n, …), or a tuple of such columns
Function = Callable[..., object]
RecordSampler = Callable[[np.random.Generator, int], Records]
Outcome = tuple[float, tuple[int, ...]] | str  # a sensitivity and the value's shape, or why a draw failed

NORMS = ("l1", "l2", "sup")


def to_finite_floats(answer: object) -> NDArray[np.float64]:
    """Convert a black box's value to an array of finite 64-bit floats; otherwise `ValueError`."""
    value = np.asarray(answer)
    if value.dtype.kind not in "biuf":
        checks.fail("the function's value", str(value.dtype), "a number or an array of numbers")
    numbers = canonicalize(value)
    wrong_values = numbers[~np.isfinite(numbers)]
    if wrong_values.size:
        checks.fail("the function's value", float(wrong_values[0]), "finite everywhere")
    return numbers


def count_records(records: Records) -> int:
    """Count the records; `ValueError` if they have no length, or the columns differ in length."""
    columns = records if isinstance(records, tuple) else (records,)
    try:
        lengths = [len(column) for column in columns]
    except TypeError:
        kinds = ", ".join(type(column).__name__ for column in columns)
        return checks.fail("records", kinds, "a list, an array, or a tuple of arrays")
    if len(set(lengths)) != 1:
        checks.fail("records", lengths, "columns of one length each", "a tuple holds columns; a list holds records")
    return lengths[0]


def make_neighbors(draws: Records, position: int) -> tuple[Records, Records]:
    """Make neighboring data sets of n records from n + 1 draws, as copies that a function may change.

    >>> make_neighbors([10, 20, 30, 40], position=2)
    ([10, 20, 30], [10, 20, 40])
    """
    if isinstance(draws, tuple):
        pairs = [make_neighbors(column, position) for column in draws]
        return tuple(first for first, _ in pairs), tuple(second for _, second in pairs)
    copy: Callable[[Records], Records] = np.array if isinstance(draws, np.ndarray) else list
    first, second = copy(draws[:-1]), copy(draws[:-1])
    second[position] = draws[-1]
    return first, second


def compute_norm(difference: NDArray[np.float64], norm: Norm) -> float:
    """Compute the norm of a difference of any shape, rounded up; a callable's value is not rounded."""
    if callable(norm):
        value = float(norm(difference))
    else:
        sizes = np.abs(difference).ravel()
        value = float(np.max(sizes, initial=0.0))
        if value not in (0.0, math.inf):
            shares = sizes / value  # so that squares neither overflow nor vanish
            factor = {"l1": float(np.sum(shares)), "l2": math.sqrt(float(np.sum(shares * shares))), "sup": 1.0}[norm]
            value = math.nextafter(factor * value * (1.0 + (sizes.size + 4) * 2.0**-51), math.inf)
    if not 0.0 <= value < math.inf:
        checks.fail("the norm of f(D) - f(D')", value, "a finite number of at least 0")
    return value


_RULES = {"theorem 15": sample_size, "exchangeability": exchangeable_sample_size}
_BATCHES_PER_WORKER = 4  # enough to keep a worker busy, few enough for prompt reports


@dataclass(frozen=True)
class SampledSensitivity:
    """A sensitivity Δ̂ that bounds a new pair of neighboring data sets with probability at least 1 − γ."""

    value: float  # Δ̂, the k-th smallest of the m sampled ‖f(D) − f(D′)‖; 0 if the function is constant on the sample
    size: SampleSize  # (m, k, ρ, γ) of the run
    records: int  # n, of each data set
    distribution: str  # a name of the distribution of one record
    norm: Norm  # of the differences
    position: str  # of the record that differs between neighbors: "last" or "random"
    shape: tuple[int, ...]  # of the function's value
    seed: int  # of the run; (seed, index) replays a draw
    largest: float  # of the m sampled sensitivities

    def guarantee(self, privacy: PrivacyParams, noise: str) -> RandomDP:
        """Return the guarantee of a mechanism with this sensitivity."""
        return RandomDP(privacy, self.size.gamma, self.records, self.distribution, noise)

    def warn_without_noise(self) -> None:
        """Warn at a release with Δ̂ = 0: the output is the value without noise."""
        if self.value == 0.0:
            warnings.warn(
                f"the sampled sensitivity is 0, so no noise is added. Pairs of data sets whose values differ, a share "
                f"{self.size.gamma:.6g} at most, are distinguishable with certainty: sample with a smaller gamma",
                UserWarning,
                stacklevel=3,
            )

    def __str__(self) -> str:
        name = self.norm if isinstance(self.norm, str) else getattr(self.norm, "__name__", "callable")
        return (
            f"sensitivity {self.value:.6g} in the {name} norm, rank {self.size.k} of {self.size.m} sampled pairs of "
            f"{self.records} records from {self.distribution} (gamma = {self.size.gamma:.6g})"
        )


@dataclass(frozen=True)
class Execution:
    """Execution settings; they do not change the result.

    ``report`` gets all sensitivities so far, after every batch; stopping early at a favorable number invalidates γ.
    """

    jobs: int | None = 1  # worker processes; None takes the configuration of ``joblib.parallel_config``
    backend: str | None = None  # of joblib ("loky", "threading", "dask", "ray", …); None takes the configured one
    batch_size: int = 32  # draws per task
    progress: bool = False  # whether to show a bar on standard error
    report: Callable[[NDArray[np.float64]], None] | None = None

    def __post_init__(self) -> None:
        checks.integer_at_least(1, batch_size=self.batch_size)
        if self.jobs is not None and self.jobs != -1:
            checks.integer_at_least(1, jobs=self.jobs, advice="or -1 for all cores, or None for joblib's configuration")


class EstimateOptions(TypedDict, total=False):
    gamma: Number | None
    m: int | None
    rule: str
    seed: int | None
    execution: Execution | None


@dataclass(frozen=True, eq=False)
class SensitivitySampler:
    """Estimates the sensitivity of any function on any distribution of records [S, Algorithm 1].

    Parameters
    ----------
    function
        Maps a data set of n records to a number or an array.
    sampler
        ``sampler(rng, count)`` returns ``count`` independent records: an array, a list, or a tuple of columns.
    norm
        "l1", "l2", "sup", or a callable on f(D) − f(D′).
    distribution
        Name of the sampler's distribution, part of every guarantee; by default the sampler's name, if it has one.
    position
        "last": the neighbors differ in the last record, as in [S]. "random": in a uniformly drawn record, for functions
        that do not ignore the order of records.

    >>> def exponential(rng, count):
    ...     return rng.exponential(size=count)
    >>> sampler = SensitivitySampler(np.mean, exponential, "l1", distribution="Exp(1)")
    >>> print(sampler.estimate(records=100, gamma=0.1, seed=1))
    sensitivity 0.0709573 in the l1 norm, rank 285 of 285 sampled pairs of 100 records from Exp(1) (gamma = 0.1)
    """

    function: Function
    sampler: RecordSampler
    norm: Norm
    _: KW_ONLY
    distribution: str = ""
    position: str = "last"

    def __post_init__(self) -> None:
        for name in ("function", "sampler"):
            if not callable(getattr(self, name)):
                checks.fail(name, getattr(self, name), "callable")
        if not callable(self.norm):
            checks.one_of(
                NORMS, norm=self.norm, advice="or give a callable that takes the difference and returns its norm"
            )
        checks.one_of(("last", "random"), position=self.position)
        if not self.distribution:
            name = getattr(self.sampler, "__qualname__", "") or "<anonymous>"
            random_name = f"unnamed distribution {secrets.token_hex(4)}"
            object.__setattr__(
                self, "distribution", random_name if "<" in name else f"{self.sampler.__module__}.{name}"
            )

    def estimate(
        self,
        records: int,
        *,
        gamma: Number | None = None,
        m: int | None = None,
        rule: str = "theorem 15",
        seed: int | None = None,
        execution: Execution | None = None,
    ) -> SampledSensitivity:
        """Sample m pairs and return the k-th smallest sensitivity, for n = ``records`` of the real data set.

        Give γ, m or both; the rule determines the rest: "theorem 15" [S, Table 1], or "exchangeability" (fewer pairs;
        `darrm.random_dp.sample_size`). The seed ≥ 0 is by default random. `ValueError` if m pairs are too few for γ;
        `SamplingError`, with the draw's seed, if the function raises, is not finite, or changes its value's shape.
        """
        checks.one_of(_RULES, rule=rule)
        size = _RULES[rule](gamma=gamma, m=m)
        seed = secrets.randbits(64) if seed is None else seed
        values, shape = self._measure_all(records, size.m, seed, execution)
        return SampledSensitivity(
            value=compute_order_statistic(values, size.k),
            size=size,
            records=int(records),
            distribution=self.distribution,
            norm=self.norm,
            position=self.position,
            shape=shape,
            seed=int(seed),
            largest=float(np.max(values)),
        )

    def measure(
        self, records: int, m: int, *, seed: int | None = None, execution: Execution | None = None
    ) -> NDArray[np.float64]:
        """Return the sensitivities of m pairs in the order of the draws, shape (m,)."""
        checks.integer_at_least(1, m=m)
        values, _ = self._measure_all(records, int(m), secrets.randbits(64) if seed is None else seed, execution)
        return values

    def replay(self, records: int, seed: int, index: int) -> tuple[Records, Records]:
        """Return the data sets of one draw, such as that of a `SamplingError`."""
        checks.integer_at_least(1, records=records)
        checks.integer_at_least(0, seed=seed, index=index)
        rng = np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=(int(index),)))
        draws = self.sampler(rng, int(records) + 1)
        if count_records(draws) != records + 1:
            checks.fail("the sampler's answer", count_records(draws), f"{records + 1} records, as it was asked for")
        return make_neighbors(draws, records - 1 if self.position == "last" else int(rng.integers(records)))

    def _measure_batch(self, records: int, seed: int, start: int, stop: int) -> list[Outcome]:
        """Measure the draws start … stop − 1, up to the first failure, sent back as text."""
        outcomes: list[Outcome] = []
        try:
            for index in range(start, stop):
                first, second = (to_finite_floats(self.function(data)) for data in self.replay(records, seed, index))
                if first.shape != second.shape:
                    checks.fail("the function's shape", second.shape, f"{first.shape}, as on the neighboring data set")
                with np.errstate(over="ignore"):
                    difference = first - second
                outcomes.append((compute_norm(difference, self.norm), first.shape))
        except Exception as error:  # noqa: BLE001 (a black box may raise anything; the batch reports it)
            outcomes.append(f"{type(error).__name__}: {error}")
        return outcomes

    def _measure_all(
        self, records: int, m: int, seed: int, execution: Execution | None
    ) -> tuple[NDArray[np.float64], tuple[int, ...]]:
        checks.integer_at_least(1, records=records)
        checks.integer_at_least(0, seed=seed)
        execution, values, count = execution or Execution(), np.empty(m), 0
        shape: tuple[int, ...] | None = None
        with ExitStack() as stack:
            advance = stack.enter_context(bar(m, "pairs", enabled=execution.progress))
            for batch in _measure_batches(partial(self._measure_batch, int(records), int(seed)), m, execution, stack):
                for outcome in batch:
                    if isinstance(outcome, str):
                        raise SamplingError(outcome, seed=int(seed), index=count)
                    values[count], value_shape = outcome
                    shape = value_shape if shape is None else shape
                    if value_shape != shape:
                        reason = f"the function's value has shape {value_shape}, where an earlier draw had {shape}"
                        raise SamplingError(reason, seed=int(seed), index=count)
                    count += 1
                advance(len(batch))
                if execution.report is not None:
                    execution.report(values[:count].copy())
        return values, shape or ()


def compute_order_statistic(values: NDArray[np.float64], k: int) -> float:
    return float(np.partition(values, k - 1)[k - 1])


def _measure_batches(
    measure: Callable[[int, int], list[Outcome]], m: int, execution: Execution, stack: ExitStack
) -> Iterator[list[Outcome]]:
    spans = [(start, min(start + execution.batch_size, m)) for start in range(0, m, execution.batch_size)]
    if execution.jobs == 1 and execution.backend is None:
        yield from (measure(*span) for span in spans)
        return
    joblib = require("joblib")
    pool = stack.enter_context(joblib.Parallel(n_jobs=execution.jobs, backend=execution.backend))
    chunk_size = _BATCHES_PER_WORKER * joblib.effective_n_jobs(execution.jobs)
    for chunk_start in range(0, len(spans), chunk_size):
        yield from pool(joblib.delayed(measure)(*span) for span in spans[chunk_start : chunk_start + chunk_size])


Released = TypeVar("Released")


@dataclass(frozen=True, eq=False)
class Release(Generic[Released]):
    """A released value with its guarantee; the sensitivity may be reused, and each release has a separate cost."""

    value: Released  # output of the mechanism
    guarantee: RandomDP  # includes a description of the noise
    sensitivity: SampledSensitivity


def sample_then_respond(
    data: Records,
    mechanism: Mechanism[Released],
    sampler: SensitivitySampler,
    *,
    rng: np.random.Generator | None = None,
    **sampling: Unpack[EstimateOptions],
) -> Release[Released]:
    """Release f(data) with a sensitivity sampled for data sets of the same size [S, Algorithm 2].

    ``sampling`` are arguments of `SensitivitySampler.estimate`; ``rng`` is for experiments only. `ValueError` if the
    norms of mechanism and sampler differ, or the function fails on the data: a failure reveals information about the
    data, and no guarantee covers it. `SamplingError` if the function fails on sampled data.

    >>> from darrm.privacy import PrivacyParams
    >>> from darrm.random_dp.mechanisms import Laplace
    >>> sampler = SensitivitySampler(np.mean, np.random.Generator.random, "l1", distribution="U[0, 1]")
    >>> answer = sample_then_respond(np.arange(50) / 50, Laplace(PrivacyParams(1)), sampler, gamma=0.1)
    >>> print(answer.guarantee)
    (1, 0)-private on all but a share 0.1 of the neighboring pairs of 50 records from U[0, 1]
    """
    if not hasattr(mechanism, "describe_noise"):
        advice = "the data come first, then the mechanism, then the sampler"
        description = checks.Text(type(mechanism).__name__)
        checks.fail("mechanism", description, "a mechanism, like Laplace(PrivacyParams(0.5))", advice)
    checks.instance(SensitivitySampler, sampler=sampler, advice="say SensitivitySampler(function, sampler, norm)")
    if mechanism.norm != sampler.norm:
        checks.fail("the sampler's norm", sampler.norm, f"{mechanism.norm!r}, as the mechanism needs")
    records = count_records(data)
    sensitivity = sampler.estimate(records, **sampling)
    return respond(data, mechanism, sampler, sensitivity, rng=rng)


def respond(
    data: Records,
    mechanism: Mechanism[Released],
    sampler: SensitivitySampler,
    sensitivity: SampledSensitivity,
    *,
    rng: np.random.Generator | None = None,
) -> Release[Released]:
    """Release f(data) with an existing sampled sensitivity, for the same function and number of records.

    `ValueError` if the sensitivity has another norm, distribution, number of records or shape of the function's value.
    Warns if it is 0: no noise is added.
    """
    value = to_finite_floats(sampler.function(data))
    requirements = (
        ("norm", sensitivity.norm, mechanism.norm),
        ("distribution", sensitivity.distribution, sampler.distribution),
        ("number of records", sensitivity.records, count_records(data)),
        ("shape of the function's value", sensitivity.shape, value.shape),
    )
    for name, actual, expected in requirements:
        if actual != expected:
            checks.fail(f"the sensitivity's {name}", actual, f"{expected!r}", "sample it again for this release")
    sensitivity.warn_without_noise()
    noise = mechanism.describe_noise(sensitivity.value, rng)
    guarantee = sensitivity.guarantee(mechanism.privacy, noise)
    return Release(mechanism.release(value, sensitivity.value, rng=rng), guarantee, sensitivity)
