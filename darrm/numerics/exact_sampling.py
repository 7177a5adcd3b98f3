"""Integer noise without rounding: discrete Laplace and Gaussian draws whose laws are exact [CKS20, Algorithms 1 to 3].

Floating-point noise leaks: the set of values that ``count + scale * normal()`` can take depends on the count. The draws
here use whole numbers only, and the only random step is "uniform below n", made from the operating system's bits by
rejection. So a draw's law is the one in its docstring, not an approximation of it.

All functions draw many values at once: the rejection loops run on the values that are still open. Whole numbers are
64-bit where every intermediate fits, and Python's unbounded ones otherwise; the arithmetic is the same text for both.
"""

import math
import os
import secrets
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from darrm.util import checks

# numerators and denominators up to here may be multiplied by the trial number (below 2^8) and stay in 64 bits
_LARGEST_INT64 = 2**54
_LARGEST_NUMERATOR = 2**62
Integers = NDArray[Any]  # of 64 bits, or Python's own where these would not do
_REACH = 64  # scales; draws beyond them go through unbounded whole numbers
_LARGEST_SCALE = 2**50


class UniformBelow(Protocol):
    """A source of randomness: for each n of an array, a whole number uniform on 0 … n − 1."""

    def __call__(self, limits: Integers) -> Integers:
        """Draw one number below each limit."""


def system_uniform_below(limits: Integers) -> Integers:
    """Draw a uniform whole number below each limit, int64 or Python's, from the operating system by rejection."""
    if limits.dtype == object:
        return np.array([secrets.randbelow(int(n)) for n in limits], dtype=object)
    return _uniform_below_64(limits, lambda size: np.frombuffer(os.urandom(8 * size), dtype=np.uint64))


def require_generator(rng: object) -> None:
    """Raise `ValueError` for a seed, or anything else that draws no bytes."""
    if not hasattr(rng, "bytes"):
        checks.fail("rng", rng, "a generator", "say np.random.default_rng(seed), or leave rng out to release")


def uniform_below(rng: np.random.Generator | None) -> UniformBelow:
    """Return the source of a release, the operating system, or a reproducible one for tests and experiments."""
    if rng is None:
        return system_uniform_below
    require_generator(rng)

    def below(limits: Integers) -> Integers:
        if limits.dtype == object:
            return np.array([_unbounded_below(int(n), rng) for n in limits], dtype=object)
        return _uniform_below_64(limits, lambda size: rng.integers(0, 2**64, size, dtype=np.uint64))

    return below


def bernoulli_exp(
    numerator: Integers, denominator: Integers, below: UniformBelow = system_uniform_below
) -> NDArray[np.bool_]:
    """Toss coins that show True with probability exp(−a/b) exactly, for whole a ≥ 0, b ≥ 1 [CKS20, Algorithm 1].

    For a/b ≤ 1: with A_k ~ Bernoulli(a/(b k)) drawn until the first failure at k = N, N is odd with probability
    Σ_j (−a/b)^j / j! = exp(−a/b). For a/b > 1 the whole part is a chain of coins of probability exp(−1).

    >>> bernoulli_exp(np.array([0, 0]), np.array([1, 7])).tolist()
    [True, True]
    """
    alive = np.ones(numerator.shape, dtype=bool)
    whole = numerator // denominator
    open_chains = np.flatnonzero(whole > 0)
    step = 0
    while open_chains.size:
        ones = np.ones(open_chains.size, dtype=numerator.dtype)
        heads = _bernoulli_exp_at_most_one(ones, ones, below)
        alive[open_chains[~heads]] = False
        step += 1
        open_chains = open_chains[heads]
        open_chains = open_chains[whole[open_chains] > step]
    rest = np.flatnonzero(alive)
    alive[rest] = _bernoulli_exp_at_most_one(numerator[rest] % denominator[rest], denominator[rest], below)
    return alive


def discrete_laplace(scale: Fraction, size: int, below: UniformBelow = system_uniform_below) -> NDArray[np.int64]:
    """Draw integers with Pr[x] = (e^{1/s} − 1)/(e^{1/s} + 1) · e^{−|x|/s} exactly [CKS20, Algorithm 2].

    ``scale`` is s > 0 as an exact fraction t/u.
    """
    checks.positive(scale=scale)
    _check_scale(math.floor(scale))
    top, bottom = scale.numerator, scale.denominator
    dtype = np.int64 if top * bottom <= _LARGEST_INT64 else object

    def attempt(count: int) -> tuple[Integers, NDArray[np.bool_]]:
        tops: Integers = np.full(count, top, dtype=dtype)
        uniform = below(tops)
        accepted = np.flatnonzero(bernoulli_exp(uniform, tops, below))
        magnitude = (uniform[accepted] + top * _geometric_exp_one(accepted.size, dtype, below)) // bottom
        negative = below(np.full(accepted.size, 2, dtype=dtype)) == 1
        value = np.where(negative, -magnitude, magnitude)
        kept = ~(negative & (magnitude == 0))  # zero would be drawn twice, as +0 and as −0
        return value, kept

    return _until_filled(attempt, size)


def discrete_gaussian(variance: Fraction, size: int, below: UniformBelow = system_uniform_below) -> NDArray[np.int64]:
    """Draw integers with Pr[x] proportional to e^{−x²/(2σ²)} exactly [CKS20, Algorithm 3].

    A discrete Laplace draw Y of scale t = ⌊σ⌋ + 1 is kept with probability exp(−(|Y| − σ²/t)²/(2σ²)). ``variance``
    is σ² > 0; the law's variance is at most this.
    """
    checks.positive(variance=variance)
    _check_scale(math.isqrt(math.floor(variance)))
    top, bottom = variance.numerator, variance.denominator
    scale = math.isqrt(top // bottom) + 1
    denominator = 2 * top * bottom * scale**2
    reach = _REACH * scale
    fits = denominator <= _LARGEST_INT64 and (reach * scale * bottom + top) ** 2 < _LARGEST_NUMERATOR

    def attempt(count: int) -> tuple[Integers, NDArray[np.bool_]]:
        value: Integers = discrete_laplace(Fraction(scale), count, below)
        if not fits or np.any(np.abs(value) > reach):  # a draw beyond the reach has probability e^-64, but may happen
            value = value.astype(object)
        numerator = (np.abs(value) * (scale * bottom) - top) ** 2
        return value, bernoulli_exp(numerator, np.full(count, denominator, dtype=value.dtype), below)

    return _until_filled(attempt, size)


def _until_filled(attempt: Callable[[int], tuple[Integers, NDArray[np.bool_]]], size: int) -> NDArray[np.int64]:
    checks.integer_at_least(0, size=size)
    filled: list[NDArray[np.int64]] = []
    missing = size
    while missing:
        value, kept = attempt(missing)
        filled.append(value[kept].astype(np.int64))
        missing -= int(np.count_nonzero(kept))
    return np.concatenate(filled) if filled else np.zeros(0, dtype=np.int64)


def _bernoulli_exp_at_most_one(numerator: Integers, denominator: Integers, below: UniformBelow) -> NDArray[np.bool_]:
    """Toss coins of probability exp(−a/b) for a/b ≤ 1: count the trials until Bernoulli(a/(b k)) fails."""
    result = np.zeros(numerator.shape, dtype=bool)
    active = np.arange(numerator.size)
    trial = 1
    while active.size:
        success = below(denominator[active] * trial) < numerator[active]
        result[active[~success]] = trial % 2 == 1
        active = active[success]
        trial += 1
    return result


def _geometric_exp_one(size: int, dtype: type, below: UniformBelow) -> Integers:
    count: Integers = np.zeros(size, dtype=dtype)
    active = np.arange(size)
    while active.size:
        ones: Integers = np.ones(active.size, dtype=dtype)
        active = active[_bernoulli_exp_at_most_one(ones, ones, below)]
        count[active] += 1
    return count


def _uniform_below_64(limits: NDArray[np.int64], words: Callable[[int], NDArray[np.uint64]]) -> NDArray[np.int64]:
    """Reduce 64-bit words modulo n, rejecting the words of the last, incomplete block of n."""
    n = limits.astype(np.uint64)
    word = words(n.size)
    # 2^64 mod n, as (−n) mod n in 64-bit arithmetic; words below it belong to the incomplete block
    incomplete = (np.uint64(0) - n) % n
    bad = np.flatnonzero(word < incomplete)
    if bad.size:
        word = word.copy()
    while bad.size:
        word[bad] = words(bad.size)
        bad = bad[word[bad] < incomplete[bad]]
    return (word % n).astype(np.int64)


def _unbounded_below(limit: int, rng: np.random.Generator) -> int:
    bits = limit.bit_length()
    while True:
        number = int.from_bytes(rng.bytes((bits + 7) // 8), "little") >> (-bits % 8)
        if number < limit:
            return number


def _check_scale(scale: int) -> None:
    """Refuse scales whose draws might not fit into 64 bits (a draw beyond 2^12 scales has probability e^-4096)."""
    if scale > _LARGEST_SCALE:
        checks.fail("scale", scale, f"at most {_LARGEST_SCALE}", "noise of this size leaves nothing of the data")
