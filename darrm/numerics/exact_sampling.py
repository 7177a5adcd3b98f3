"""Exact draws without rounding: discrete Laplace and Gaussian integers [CKS20, Algorithms 1 to 3], and coins.

Floating-point noise leaks: the possible values of ``count + scale * normal()`` depend on the count. These draws use
integers only, in 64 bits where every intermediate fits, and one random step: "uniform below n", by rejection.

**Coins.** A coin of probability p = 0.b₁b₂b₃… (binary) shows heads if and only if a uniform U = 0.u₁u₂u₃… is below p.
The first byte decides all but one in 256 coins; after a tie words of 64 bits are compared. *Proof that Pr[heads] = p.*
The first byte or word that differs decides U < p, and later words change nothing. If all digits of p agree with those
of U, then U ≥ p: tails. Hence Pr[heads] = Pr[U < p] = p for every p with finitely many digits, so for every float. ∎

**Timing.** The pair (label, tie) reveals more about p than the label. So the number of coins with words is fixed: n
coins have n/256 + t or more ties with probability at most exp(−t²/(2·(n/256 + t/3))) (*Bernstein's inequality*), here
2⁻⁶⁴. The number of bytes and of calls then depends only on n and the longest p, except with probability 2⁻⁶⁴ for a
block of coins and 2⁻⁷² for each coin.
"""

import math
import os
import secrets
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.util import checks

# numerators and denominators up to this limit stay in 64 bits after multiplication by the trial number (below 2^8)
_MAX_INT64_FACTOR = 2**54
_MAX_NUMERATOR = 2**62
Integers = NDArray[Any]  # of 64 bits, or Python's integers for larger numbers
UniformBelow = Callable[[Integers], Integers]  # for each n of an array, a whole number uniform on 0 … n − 1
_MAX_NUM_SCALES = 64  # larger draws use unbounded integers
_MAX_SCALE = 2**50


def system_uniform_below(limits: Integers) -> Integers:
    """Draw a uniform whole number below each limit, int64 or Python's, from the operating system by rejection."""
    if limits.dtype == object:
        return np.array([secrets.randbelow(int(n)) for n in limits], dtype=object)
    return _uniform_below_64(limits, _draw_system_words)


def _draw_system_words(size: int) -> NDArray[np.uint64]:
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


def require_generator(rng: object) -> None:
    """Raise `ValueError` for seeds and other objects that draw no bytes."""
    if not hasattr(rng, "bytes"):
        checks.fail("rng", rng, "a generator", "say np.random.default_rng(seed), or leave rng out to release")


def uniform_below(rng: np.random.Generator | None) -> UniformBelow:
    """Return the operating system's source, or a reproducible one for tests and experiments."""
    if rng is None:
        return system_uniform_below
    require_generator(rng)

    def draw_words(size: int) -> NDArray[np.uint64]:
        return rng.integers(0, 2**64, size, dtype=np.uint64)

    def draw_below(limits: Integers) -> Integers:
        if limits.dtype == object:
            return np.array([_draw_unbounded_below(int(n), rng) for n in limits], dtype=object)
        return _uniform_below_64(limits, draw_words)

    return draw_below


def bernoulli_exp(
    numerator: Integers, denominator: Integers, below: UniformBelow = system_uniform_below
) -> NDArray[np.bool_]:
    """Toss coins that show True with probability exp(−a/b) exactly, for whole a ≥ 0, b ≥ 1 [CKS20, Algorithm 1].

    For a/b ≤ 1: with A_k ~ Bernoulli(a/(b k)) drawn until the first failure at k = N, N is odd with probability
    Σ_j (−a/b)^j / j! = exp(−a/b). For a/b > 1 the whole part is a chain of coins of probability exp(−1).

    >>> bernoulli_exp(np.array([0, 0]), np.array([1, 7])).tolist()
    [True, True]
    """
    result = np.ones(numerator.shape, dtype=bool)
    whole_part = numerator // denominator
    open_chains = np.flatnonzero(whole_part > 0)
    step = 0
    while open_chains.size:
        ones = np.ones(open_chains.size, dtype=numerator.dtype)
        heads = _toss_bernoulli_exp(ones, ones, below)
        result[open_chains[~heads]] = False
        step += 1
        open_chains = open_chains[heads]
        open_chains = open_chains[whole_part[open_chains] > step]
    coins = np.flatnonzero(result)
    result[coins] = _toss_bernoulli_exp(numerator[coins] % denominator[coins], denominator[coins], below)
    return result


def discrete_laplace(scale: Fraction, size: int, below: UniformBelow = system_uniform_below) -> NDArray[np.int64]:
    """Draw integers with Pr[x] = (e^{1/s} − 1)/(e^{1/s} + 1) · e^{−|x|/s} exactly for s > 0 [CKS20, Algorithm 2]."""
    checks.positive(scale=scale)
    _check_scale(math.floor(scale))
    top, bottom = scale.numerator, scale.denominator
    dtype = np.int64 if top * bottom <= _MAX_INT64_FACTOR else object

    def attempt(count: int) -> tuple[Integers, NDArray[np.bool_]]:
        tops: Integers = np.full(count, top, dtype=dtype)
        draws = below(tops)
        accepted = np.flatnonzero(bernoulli_exp(draws, tops, below))
        magnitude = (draws[accepted] + top * _geometric_exp_one(accepted.size, dtype, below)) // bottom
        is_negative = below(np.full(accepted.size, 2, dtype=dtype)) == 1
        value = np.where(is_negative, -magnitude, magnitude)
        is_accepted = ~(is_negative & (magnitude == 0))  # otherwise 0 would count twice, as +0 and as −0
        return value, is_accepted

    return _repeat_attempts(attempt, size)


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
    reach = _MAX_NUM_SCALES * scale
    fits_int64 = denominator <= _MAX_INT64_FACTOR and (reach * scale * bottom + top) ** 2 < _MAX_NUMERATOR

    def attempt(count: int) -> tuple[Integers, NDArray[np.bool_]]:
        value: Integers = discrete_laplace(Fraction(scale), count, below)
        # a draw beyond the reach has probability e^-64, but may happen
        if not fits_int64 or np.any(np.abs(value) > reach):
            value = value.astype(object)
        numerator = (np.abs(value) * (scale * bottom) - top) ** 2
        return value, bernoulli_exp(numerator, np.full(count, denominator, dtype=value.dtype), below)

    return _repeat_attempts(attempt, size)


def _repeat_attempts(attempt: Callable[[int], tuple[Integers, NDArray[np.bool_]]], size: int) -> NDArray[np.int64]:
    checks.integer_at_least(0, size=size)
    parts: list[NDArray[np.int64]] = []
    num_missing = size
    while num_missing:
        value, is_accepted = attempt(num_missing)
        parts.append(value[is_accepted].astype(np.int64))
        num_missing -= int(np.count_nonzero(is_accepted))
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _toss_bernoulli_exp(numerator: Integers, denominator: Integers, below: UniformBelow) -> NDArray[np.bool_]:
    result = np.zeros(numerator.shape, dtype=bool)
    active = np.arange(numerator.size)
    trial = 1
    while active.size:
        is_success = below(denominator[active] * trial) < numerator[active]
        result[active[~is_success]] = trial % 2 == 1
        active = active[is_success]
        trial += 1
    return result


def _geometric_exp_one(size: int, dtype: type, below: UniformBelow) -> Integers:
    count: Integers = np.zeros(size, dtype=dtype)
    active = np.arange(size)
    while active.size:
        ones: Integers = np.ones(active.size, dtype=dtype)
        active = active[_toss_bernoulli_exp(ones, ones, below)]
        count[active] += 1
    return count


def _uniform_below_64(limits: NDArray[np.int64], draw_words: Callable[[int], NDArray[np.uint64]]) -> NDArray[np.int64]:
    """Reduce 64-bit words modulo n; reject the words of the incomplete block of n."""
    n = limits.astype(np.uint64)
    draws = draw_words(n.size)
    # 2^64 mod n, as (−n) mod n in 64-bit arithmetic; words below it belong to the incomplete block
    incomplete = (np.uint64(0) - n) % n
    rejected = np.flatnonzero(draws < incomplete)
    if rejected.size:
        draws = draws.copy()
    while rejected.size:
        draws[rejected] = draw_words(rejected.size)
        rejected = rejected[draws[rejected] < incomplete[rejected]]
    return (draws % n).astype(np.int64)


def _draw_unbounded_below(limit: int, rng: np.random.Generator) -> int:
    bits = limit.bit_length()
    while True:
        number = int.from_bytes(rng.bytes((bits + 7) // 8), "little") >> (-bits % 8)
        if number < limit:
            return number


def _check_scale(scale: int) -> None:
    """Raise `ValueError` if draws might not fit into 64 bits (a draw beyond 2^12 scales has probability e^-4096)."""
    if scale > _MAX_SCALE:
        checks.fail("scale", scale, f"at most {_MAX_SCALE}", "noise of this size leaves nothing of the data")


_BLOCK_SIZE = 2**18  # coins per block: 256 kB of random bytes
_LOG_RARITY = 64 * math.log(2.0)  # −log of the probability of an unusual number of bytes


class ExactCoins:
    """A row of coins, each with its own exact probability of heads.

    The probabilities are in [0, 1) and have a power of two as denominator.

    >>> coins = ExactCoins([Fraction(0), Fraction(3, 4)])
    >>> coins.flip(np.array([0, 1, 1]), source=lambda size: bytes([255, 255, 0]))
    array([False, False,  True])
    """

    def __init__(self, probabilities: Sequence[Fraction]) -> None:
        if not probabilities:
            checks.fail("probabilities", probabilities, "at least one")
        for p in probabilities:
            if not 0 <= p < 1 or p.denominator & (p.denominator - 1):
                checks.fail("probability", p, "in [0, 1) with a power of two as denominator")
        self.probabilities = tuple(map(Fraction, probabilities))
        longest = max(p.denominator.bit_length() - 1 for p in self.probabilities)
        levels = max(0, -(-(longest - 8) // 64))
        scaled = [int(p * 2 ** (8 + 64 * levels)) for p in self.probabilities]
        # binary digits of probability i: the byte _first_bytes[i], then the words _words[0][i], _words[1][i], …
        self._first_bytes = np.array([number >> (64 * levels) for number in scaled], dtype=np.uint8)
        self._words = [
            np.array([number >> (64 * level) & (2**64 - 1) for number in scaled], dtype="<u8")
            for level in reversed(range(levels))
        ]

    def flip(self, coins: NDArray[np.int64], *, source: Callable[[int], bytes] = os.urandom) -> NDArray[np.bool_]:
        """Flip coin ``coins[q]`` for every q, independently; ``source`` returns a number of uniform bytes."""
        heads = np.empty(coins.size, dtype=np.bool_)
        for start in range(0, coins.size, _BLOCK_SIZE):
            block = slice(start, start + _BLOCK_SIZE)
            heads[block] = self._flip_block(coins[block], source)
        return heads

    def _flip_block(self, coins: NDArray[np.int64], source: Callable[[int], bytes]) -> NDArray[np.bool_]:
        uniform, digits = _draw_digits(coins.size, self._first_bytes.dtype, source), self._first_bytes[coins]
        heads = uniform < digits
        undecided = np.flatnonzero(uniform == digits)
        num_words = max(_bound_ties(coins.size), undecided.size)
        for words in self._words:
            if not num_words:
                break
            uniform, digits = _draw_digits(num_words, words.dtype, source)[: undecided.size], words[coins[undecided]]
            heads[undecided] = uniform < digits
            undecided = undecided[uniform == digits]
            num_words = undecided.size
        # if all digits agree, U >= p means tails, as in `heads`
        return heads


def _bound_ties(coins: int) -> int:
    """Bound the ties of the first byte, except with probability 2⁻⁶⁴; at most ``coins``."""
    mean = coins / 256
    return min(coins, math.ceil(mean + _LOG_RARITY / 3 + math.sqrt(_LOG_RARITY**2 / 9 + 2 * _LOG_RARITY * mean)))


def _draw_digits(size: int, dtype: np.dtype[Any], source: Callable[[int], bytes]) -> NDArray[np.unsignedinteger]:
    return np.frombuffer(source(size * dtype.itemsize), dtype=dtype)
