"""Coordinated votes for the next word: voters with similar *laws* draw with shared public randomness.

*Coordinated voting* [CCLNSS23, Section 4] draws one public u_v ~ Exp(1) for each word v in each step, and teacher i
votes argmin_v u_v / p_i(v).

*Theorem.* (a) Each vote has the law p_i. (b) Two teachers whose laws have the overlap s = Σ_v min(p_i(v), p_j(v)) cast
the same vote with probability at least s/(2 − s). (c) For every teacher j, E[largest count] ≥ Σ_i s_ij/(2 − s_ij).

*Proof.* (a) The u_v/p_i(v) are independent exponentials with rates p_i(v), which sum to one. So the minimum is at v
with probability p_i(v). (b) Both vote v if u_v·max(p_i(w)/p_i(v), p_j(w)/p_j(v)) ≤ u_w for all w ≠ v. This has
probability 1/Σ_w max(p_i(w)/p_i(v), p_j(w)/p_j(v)) ≥ min(p_i(v), p_j(v)) / Σ_w max(p_i(w), p_j(w)). The maximum of two
laws sums to 2 − s. Add over v. (c) The largest count is at least the count of teacher j's word. ∎

*Privacy.* The u depend only on the seed, the step and the word, so they may be public. For any fixed u, a vote is a
function of one teacher's data, so the guarantee of a mechanism on arbitrary votes holds.

The u come from bits of Philox 4×32-10 [SMDS11]: word and step are the counter, the first bytes of SHA-256(seed) are the
key. All arithmetic has a unique IEEE 754 rounding.
"""

import hashlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.numerics import Array
from darrm.util import checks

_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], dtype=np.uint64)  # of Philox 4×32
_KEY_STEPS = np.array([0x9E3779B9, 0xBB67AE85], dtype=np.uint64)
_MASK, _SHIFT, _ROUNDS = np.uint64(0xFFFFFFFF), np.uint64(32), 10
_BITS = 52  # of a uniform number: the middle of its interval is a float
_LOG_2 = 0.6931471805599453
_TERMS = 13  # of the logarithm: s²⁶ < 2⁻⁶⁶ for |s| ≤ 0.1716
_SUM_TOLERANCE = 1e-3  # for laws in half precision; logits do not sum to 1
_MIN_SUM = 1e-9
_MAX_STEP = 2**63 - 1

Laws = ArrayLike | tuple[ArrayLike, ArrayLike]


def coordinate_votes(probabilities: Laws, seed: int | str, *, step: int = 0) -> NDArray[np.int64]:
    """Draw K teachers' votes for a word, (K,) numbers of words, from their laws, with shared public randomness.

    ``probabilities`` are (K, V) laws that sum to one within 0.001; or a sparse pair of (K, k) word numbers and (K, k)
    probabilities, which may sum to less and are normalized. ``seed`` is public and independent of the data; each public
    ``step`` ≥ 0 has independent randomness.

    >>> coordinate_votes([[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]], seed=7, step=3).tolist()
    [0, 0, 1]
    >>> coordinate_votes(([[40_000, 7], [7, 40_000]], [[0.6, 0.3], [0.3, 0.6]]), seed="public", step=1).tolist()
    [40000, 40000]
    """
    words, laws = check_laws(probabilities)
    checks.integer_at_least(0, most=_MAX_STEP, step=step)
    if words is None:
        times = draw_exponentials(np.arange(laws.shape[1]), seed, step)
        return np.array([_find_first(times, law) for law in laws], dtype=np.int64)
    distinct_words, indices = np.unique(words, return_inverse=True)
    times = draw_exponentials(distinct_words, seed, step)[indices.reshape(words.shape)]
    return np.array([row[_find_first(t, law)] for row, t, law in zip(words, times, laws, strict=True)], dtype=np.int64)


def check_laws(probabilities: Laws) -> tuple[NDArray[np.int64] | None, Array]:
    """Check laws; return word numbers (None for all words) and probabilities, one row per teacher."""
    words = None
    if isinstance(probabilities, tuple) and len(probabilities) == 2:
        words, probabilities = np.asarray(probabilities[0]), probabilities[1]
    laws = np.asarray(probabilities)
    if laws.ndim != 2 or not laws.size or laws.dtype.kind not in "fiub":
        description = checks.Text(f"shape {laws.shape}, type {laws.dtype}")
        checks.fail("probabilities", description, "numbers of shape (voters, words)", "a row is the law of a voter")
    laws = laws.astype(np.float64)
    if (row := _find_first_row(~((laws >= 0.0) & (laws < np.inf)).all(axis=1))) is not None:
        checks.fail("probabilities", checks.Text(f"another number in row {row}"), "in [0, 1]", "no logits, no NaN")
    sums = laws.sum(axis=1)
    min_sum = _MIN_SUM if words is not None else 1.0 - _SUM_TOLERANCE
    if (row := _find_first_row((sums < min_sum) | (sums > 1.0 + _SUM_TOLERANCE))) is not None:
        advice = "give a probability for each word; the k likeliest words alone are a pair of numbers and probabilities"
        checks.fail(f"the sum of row {row} of the probabilities", float(sums[row]), "1", advice)
    if words is None:
        return None, laws
    if words.shape != laws.shape or words.dtype.kind not in "iu" or words.min() < 0:
        description = checks.Text(f"shape {words.shape}, type {words.dtype}")
        checks.fail("the numbers of words", description, f"whole numbers of at least 0, of shape {laws.shape}")
    words = words.astype(np.int64)
    sorted_words = np.sort(np.where(laws > 0.0, words, -1 - np.arange(laws.shape[1])), axis=1)
    if (row := _find_first_row((np.diff(sorted_words, axis=1) == 0).any(axis=1))) is not None:
        checks.fail("the numbers of words", checks.Text(f"a word twice in row {row}"), "different in each row")
    return words, laws


def _find_first_row(is_wrong: ArrayLike) -> int | None:
    return int(np.argmax(is_wrong)) if np.any(is_wrong) else None


def draw_exponentials(words: NDArray[np.int64], seed: int | str, step: int) -> Array:
    """Compute u_v ~ Exp(1), positive, of words at a step, from (seed, step, v)."""
    if isinstance(seed, bool) or not isinstance(seed, int | str | np.integer):
        checks.fail("seed", seed, "a whole number or text", "it is public, and the same for all teachers")
    digest = hashlib.sha256(str(seed).encode()).digest()
    key = (int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little"))
    word, number = np.asarray(words, dtype=np.uint64), np.full(len(words), step, dtype=np.uint64)
    bits = philox(np.stack([word & _MASK, word >> _SHIFT, number & _MASK, number >> _SHIFT]), key)
    word_bits = ((bits[0] << _SHIFT) | bits[1]) >> np.uint64(64 - _BITS)
    return -_log((word_bits.astype(np.float64) + 0.5) * 2.0**-_BITS)


def philox(counter: NDArray[np.uint64], key: tuple[int, int]) -> NDArray[np.uint64]:
    """Compute Philox 4×32-10 of counters: (4, n) words of 32 bits → (4, n)."""
    a, b, c, d = counter
    k0, k1 = (np.uint64(part) for part in key)
    for _ in range(_ROUNDS):
        x, y = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = (y >> _SHIFT) ^ b ^ k0, y & _MASK, (x >> _SHIFT) ^ d ^ k1, x & _MASK
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    return np.stack([a, b, c, d])


def _log(numbers: Array) -> Array:
    """Compute logarithms of numbers in (0, 1) by operations with a unique rounding."""
    x, power = np.frexp(numbers)
    is_small = x < 0.7071067811865476
    x, power = np.where(is_small, 2.0 * x, x), np.where(is_small, power - 1, power).astype(np.float64)
    s = (x - 1.0) / (x + 1.0)
    square, total = s * s, np.zeros_like(s)
    for k in reversed(range(_TERMS)):
        total = total * square + 1.0 / (2 * k + 1)
    return power * _LOG_2 + 2.0 * s * total


def _find_first(times: Array, law: Array) -> int:
    with np.errstate(divide="ignore", over="ignore"):
        return int(np.argmin(times / law))
