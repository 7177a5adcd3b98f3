"""γ, the probability of returning the majority, as a function of the number of ones: a proposal, not yet a proof.

**Priors without a closed form** have sampled errors. For one draw p of the voters' probabilities the error of γ is |½
Σ_{l>K/2} (α_l − α_{K−l})(1 − γ(l))| with α the Poisson binomial distribution of p [D, Definition 2.4]: only the
differences d_l = α_l − α_{K−l} matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.numerics import Array
from darrm.numerics.binomial import poisson_binomial_pmf
from darrm.numerics.exact_sampling import require_generator
from darrm.priors import Prior, check_prior, compute_weights, law_of_ones
from darrm.util import checks
from darrm.util.files import Json

# the seed of estimates; fits have another one, so no optimum is judged by the draws of its own fit
ESTIMATE_SEED = 20_240_901
_MAX_DRAWS, _MIN_DRAWS = 20_000, 5_000
_MAX_DRAWN_NUMBERS = 400_000  # K times the default number of draws, within the two limits above
_CHUNK_SIZE = 250  # draws in a block, whose distributions fit the processor's cache


@dataclass(frozen=True)
class Estimate:
    """A mean over independent draws; ``standard_error`` is the sample standard deviation over √draws."""

    draws: int
    mean: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.mean:.6g} ± {self.standard_error:.2g} ({self.draws:,} draws)"


@dataclass(frozen=True, eq=False)
class NoiseFunction:
    """A symmetric γ: {0 … K} → [0, 1], γ(l) = γ(K − l); for even K, γ(K/2) = 0: a tie is a fair coin.

    ``K`` is the number of voters and ``half`` γ(⌊K/2⌋ + 1), …, γ(K): shape (K − ⌊K/2⌋,), copied and made read-only.
    `ValueError` if the shape is wrong or a value lies outside [0, 1].

    >>> gamma = NoiseFunction(3, [0.5, 1.0])
    >>> gamma.full
    array([1. , 0.5, 0.5, 1. ])
    >>> gamma.signed
    array([-1. , -0.5,  0.5,  1. ])
    """

    K: int
    half: Array

    __setstate__ = checks.set_read_only

    def __init__(self, K: int, half: ArrayLike) -> None:
        checks.integer_at_least(1, K=K)
        size = K - K // 2
        values = _to_array("half", half, str(size))
        if values.shape != (size,):
            advice = "give γ at l = ⌊K/2⌋+1 … K, or all K + 1 values to NoiseFunction.from_full"
            checks.fail("half", values.shape, f"of shape ({size},) for K = {K}", advice)
        if not np.all((values >= 0.0) & (values <= 1.0)):
            index = int(np.flatnonzero(~((values >= 0.0) & (values <= 1.0)))[0])
            checks.fail(f"γ({K // 2 + 1 + index})", float(values[index]), "in [0, 1]")
        values.setflags(write=False)
        object.__setattr__(self, "K", int(K))
        object.__setattr__(self, "half", values)

    @classmethod
    def from_full(cls, full: ArrayLike) -> NoiseFunction:
        """Build from all K + 1 values; `ValueError` if γ(l) ≠ γ(K − l) for some l, or γ(K/2) ≠ 0 for even K."""
        values = _to_array("full", full, "K + 1")
        if values.ndim != 1 or values.size < 2:
            checks.fail("full", values.shape, "of shape (K + 1,) with K ≥ 1")
        K = values.size - 1
        different = np.flatnonzero(values != values[::-1])
        if different.size:
            ones = int(different[0])
            pair = f"γ({ones}) = {values[ones]} and γ({K - ones}) = {values[K - ones]}"
            raise ValueError(f"γ must be symmetric, γ(l) = γ(K − l), got {pair}")
        if K % 2 == 0 and values[K // 2] != 0.0:
            checks.fail(f"γ({K // 2})", float(values[K // 2]), "0 for even K", "a tie has no majority to tell")
        return cls(K, values[K // 2 + 1 :])

    @classmethod
    def from_function(cls, K: int, gamma: Callable[[int], float]) -> NoiseFunction:
        """Build from γ(l) for l = ⌊K/2⌋ + 1 … K ones; `ValueError` if a value is no number in [0, 1].

        >>> NoiseFunction.from_function(5, lambda ones: (2 * ones - 5) / 5).half
        array([0.2, 0.6, 1. ])
        """
        checks.integer_at_least(1, K=K)
        if not callable(gamma):
            checks.fail("gamma", gamma, "a function of the number of ones", "a list of values goes to NoiseFunction")
        return cls(K, [gamma(ones) for ones in range(K // 2 + 1, K + 1)])

    @classmethod
    def from_json(cls, K: int, values: Json) -> NoiseFunction:
        """Read what `to_json` wrote; `ValueError` if it is something else."""
        size = K - K // 2
        if not isinstance(values, list) or len(values) != size:
            length = checks.Text(f"{len(values)}" if isinstance(values, list) else "no list")
            checks.fail("the number of values", length, f"the {size} that K = {K} needs")
        checks.probability(**{f"value {place}": value for place, value in enumerate(values)})
        return cls(K, values)

    def to_json(self) -> list[float]:
        """Write `half` as plain data."""
        return [float(value) for value in self.half]

    @overload
    def __call__(self, ones: int) -> float: ...

    @overload
    def __call__(self, ones: Sequence[int] | NDArray[np.integer]) -> Array: ...

    def __call__(self, ones: ArrayLike) -> float | Array:
        """Return γ(l) for a number of ones, or an array of them."""
        levels = np.asarray(ones)
        if levels.dtype.kind not in "iu" or np.any((levels < 0) | (levels > self.K)):
            checks.fail("the number of ones", ones, f"an integer from 0 to K = {self.K}")
        values = self.full[levels]
        return float(values) if levels.ndim == 0 else values

    @property
    def classes(self) -> int:
        """Two."""
        return 2

    def probabilities(self, counts: ArrayLike) -> Array:
        """Compute the probability of both answers for (n, 2) histograms → (n, 2).

        >>> NoiseFunction(3, [0.5, 1.0]).probabilities([[3, 0], [1, 2]]).tolist()
        [[1.0, 0.0], [0.25, 0.75]]
        """
        share_of_ones = 0.5 * (1.0 + self.signed[np.asarray(counts, dtype=np.int64)[:, 1]])
        return np.column_stack([1.0 - share_of_ones, share_of_ones])

    @property
    def levels(self) -> NDArray[np.int64]:
        """The numbers of ones l of `half`."""
        return np.arange(self.K // 2 + 1, self.K + 1)

    @property
    def full(self) -> Array:
        """γ(0) … γ(K), shape (K + 1,)."""
        return np.abs(self.signed)

    @property
    def signed(self) -> Array:
        """g(l) = +γ(l) for l > K/2 and −γ(l) for l < K/2, shape (K + 1,): Pr[output 1 | l] = (1 + g(l))/2."""
        return signed_function(self.half, self.K)

    @property
    def is_monotone(self) -> bool:
        """Whether γ never falls on the way from the tie to unanimity."""
        return bool(np.all(np.diff(self.half) >= 0.0))

    def expected_error(self, prior: Prior | str) -> float:
        """Compute the expected error [D, Definition 2.4], ½ Σ_l w_l (1 − γ(l)) if the prior has weights.

        For other priors the mean of `estimate_error`, which states its precision.
        """
        prior = check_prior(prior)
        if not prior.has_closed_form:
            return self.estimate_error(prior).mean
        return float(0.5 * np.sum(compute_weights(prior, self.K) * (1.0 - self.half)))

    def estimate_error(
        self, prior: Prior | str, *, draws: int | None = None, rng: np.random.Generator | None = None
    ) -> Estimate:
        """Estimate the expected error from draws of any prior, with its standard error.

        ``draws`` is at least 2, by default 20,000 for few voters, falling to 5,000 for many. The default seed is fixed,
        so that noise functions are compared on the same draws.

        >>> from darrm.priors import Independent
        >>> print(NoiseFunction(3, [0.2, 0.8]).estimate_error(Independent(0.5, 1.0)))
        0.153364 ± 0.00025 (20,000 draws)
        """
        prior = check_prior(prior)
        generator = np.random.default_rng(ESTIMATE_SEED) if rng is None else rng
        require_generator(generator)
        count = number_of_draws(self.K, draws)
        return summarize(compute_errors(self.half, differences(prior.probabilities(self.K, count, rng=generator))))

    def share_answered(self, prior: Prior | str) -> float:
        """Return 1: there is always an answer."""
        del prior
        return 1.0

    def accuracy(self, prior: Prior | str) -> float | None:
        """Compute the accuracy, Σ_l Pr[l ones]·(1 + γ(l))/2; at a tie both labels count as the majority.

        None for a prior that can only be sampled.
        """
        prior = check_prior(prior)
        ones = law_of_ones(prior, self.K)
        if ones is None:
            return None
        agreement = 0.5 + 0.5 * self.full
        if self.K % 2 == 0:
            agreement[self.K // 2] = 1.0
        return float(ones @ agreement)

    def with_missing(self, missing: int) -> NoiseFunction:
        """Return the γ of K − ``missing`` votes if fair coins replace the others; `ValueError` unless 0 ≤ missing < K.

        A coin turns g(l) into (g(l) + g(l + 1))/2, an odd function again. `expected_error` and `accuracy` are then
        about the majority of the remaining votes; the guarantee is that of γ with K votes.

        >>> gamma = NoiseFunction(3, [0.5, 1.0]).with_missing(1)
        >>> gamma.K, gamma.half  # one vote is a tie, two are 3 or 2 with the coin
        (2, array([0.75]))
        """
        checks.integer_at_least(0, most=self.K - 1, missing=missing, advice="without a vote there is no majority")
        g = self.signed
        for _ in range(missing):
            g = (g[:-1] + g[1:]) / 2.0
        K = self.K - missing
        return NoiseFunction(K, g[K // 2 + 1 :])

    def scale_by(self, factor: float) -> NoiseFunction:
        """Multiply by a factor in [0, 1], rounding every value down."""
        checks.probability(factor=factor)
        if factor == 1.0:
            return self
        return NoiseFunction(self.K, np.maximum(0.0, np.nextafter(self.half * factor, 0.0)))


def _to_array(name: str, values: ArrayLike, count: str) -> Array:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        return checks.fail(name, values, f"an array of {count} numbers in [0, 1]")


def signed_function(half: Array, K: int) -> Array:
    """Extend the free half of γ to g(l), l = 0 … K: shape (h,) → (K + 1,)."""
    g = np.zeros(K + 1)
    g[K // 2 + 1 :] = half
    g[: half.size] = -half[::-1]
    return g


def number_of_draws(K: int, requested: int | None = None) -> int:
    """Check a number of draws, or choose one: 20,000 for few voters, falling to 5,000 for many.

    >>> number_of_draws(11), number_of_draws(41), number_of_draws(101)
    (20000, 9756, 5000)
    """
    if requested is not None:
        checks.integer_at_least(2, draws=requested)
    draws = max(_MIN_DRAWS, min(_MAX_DRAWS, _MAX_DRAWN_NUMBERS // K)) if requested is None else int(requested)
    checks.affordable(f"{draws:,} draws of the prior for {K:,} voters", draws * K, "take fewer draws")
    return draws


def differences(probabilities: Array) -> Array:
    """Compute d_l = α_l − α_{K−l} for l > K/2, for every row of probabilities: shape (T, K) → (T, K − ⌊K/2⌋).

    `ValueError` unless the array is two-dimensional and all values are probabilities.
    """
    values = np.asarray(probabilities, dtype=np.float64)
    if values.ndim != 2 or 0 in values.shape:
        checks.fail("probabilities", values.shape, "of shape (draws, K), neither 0")
    if not np.all((values >= 0.0) & (values <= 1.0)):
        checks.fail("probabilities", checks.Text("a value outside"), "in [0, 1]")
    count, K = values.shape
    result = np.empty((count, K - K // 2))
    for start in range(0, count, _CHUNK_SIZE):
        pmf = poisson_binomial_pmf(values[start : start + _CHUNK_SIZE])
        result[start : start + _CHUNK_SIZE] = pmf[:, K // 2 + 1 :] - pmf[:, : K - K // 2][:, ::-1]
    return result


def compute_errors(half: Array, sampled: Array) -> Array:
    """Compute |½ Σ_l d_l (1 − γ(l))| for every draw: shapes (h,) and (T, h) → (T,)."""
    return np.asarray(0.5 * np.abs(sampled @ (1.0 - half)), dtype=np.float64)


def summarize(errors: Array) -> Estimate:
    """Return the mean of at least two errors, with its standard error."""
    if errors.size < 2:
        checks.fail("draws", int(errors.size), "at least 2", "one draw has no standard error")
    standard_error = float(np.std(errors, ddof=1)) / float(np.sqrt(errors.size))
    return Estimate(int(errors.size), float(np.mean(errors)), standard_error)
