"""Votes for the next word: voters that agree on a *law* rather than on a word draw with the same public randomness.

Where each teacher draws its word for itself, two that have the same law seldom say the same. *Coordinated voting*
[CCLNSS23, Section 4]: for each step there is one public u_v ~ Exp(1) for each word v, and teacher i votes

    argmin_v u_v / p_i(v).

*Theorem.* (a) Each vote has the law p_i. (b) Two teachers whose laws have the overlap s = Σ_v min(p_i(v), p_j(v)) say
the same with probability s/(2 − s) at least. (c) Hence E[largest count] is at least Σ_i s_ij/(2 − s_ij), for whichever
j is best: half of the sum of the overlaps with one teacher.

*Proof.* (a) The u_v/p_i(v) are independent exponentials of rates p_i(v), which sum to one: the least of them is at v
with probability p_i(v). (b) Both say v where u_v·max(p_i(w)/p_i(v), p_j(w)/p_j(v)) ≤ u_w for all w ≠ v, that is with
probability 1/Σ_w max(p_i(w)/p_i(v), p_j(w)/p_j(v)) ≥ min(p_i(v), p_j(v)) / Σ_w max(p_i(w), p_j(w)), and the largest of
two laws sums to 2 − s. Add over v. (c) As many teachers say the commonest word as say that of teacher j. ∎

*Privacy.* The u depend on the seed, the step and the word alone: they may be published. Whatever they are, a vote is
then a function of one teacher's data, so what releases the votes has the guarantee that it has for any votes.

The u need no library's generator: they are made from bits of Philox 4×32-10 [SMDS11], whose counter is the word and the
step and whose key is the beginning of SHA-256(seed), by arithmetic that IEEE 754 rounds in one way only.
"""

import hashlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.errors import checks
from darrm.probability import Array

_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], dtype=np.uint64)  # of Philox 4×32
_STEPS_OF_KEY = np.array([0x9E3779B9, 0xBB67AE85], dtype=np.uint64)
_LOW, _HALF, _ROUNDS = np.uint64(0xFFFFFFFF), np.uint64(32), 10
_BITS = 52  # of a uniform number, so that the middle of its interval is a float
_LOG_2 = 0.6931471805599453
_TERMS = 13  # of the logarithm: s²⁶ < 2⁻⁶⁶ where |s| ≤ 0.1716
_SUM_TOLERANCE = 1e-3  # laws in half precision; a sum only tells laws from logits, votes have the law p/Σp
_LEAST_SUM = 1e-9
_MOST_STEPS = 2**63 - 1

Laws = ArrayLike | tuple[ArrayLike, ArrayLike]


def coordinated(probabilities: Laws, seed: int | str, *, step: int = 0) -> NDArray[np.int64]:
    """Let K teachers vote for a word, each by its own law, all with the same public randomness.

    Parameters
    ----------
    probabilities
        (K, V) the law of each teacher; or, sparse, a pair of (K, k) numbers of words and (K, k) their probabilities: of
        the k likeliest words, say. A sparse law may sum to less than one, and stands for p/Σp; places that are not
        needed have probability 0. The work grows with the words that are listed.
    seed
        A public number or text, chosen without looking at the data.
    step
        At least 0, public: each step has randomness of its own.

    Returns
    -------
    votes
        (K,) numbers of words.

    Raises
    ------
    ValueError
        If these are no laws: NaN, negative, or dense ones that do not sum to one within 0.001.

    Examples
    --------
    >>> coordinated([[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]], seed=7, step=3).tolist()
    [0, 0, 1]
    >>> coordinated(([[40_000, 7], [7, 40_000]], [[0.6, 0.3], [0.3, 0.6]]), seed="public", step=1).tolist()
    [40000, 40000]
    """
    words, laws = laws_of(probabilities)
    checks.integer_at_least(0, most=_MOST_STEPS, step=step)
    if words is None:
        times = exponentials(np.arange(laws.shape[1]), seed, step)
        return np.array([_first(times, law) for law in laws], dtype=np.int64)
    listed, places = np.unique(words, return_inverse=True)
    times = exponentials(listed, seed, step)[places.reshape(words.shape)]
    return np.array([row[_first(t, law)] for row, t, law in zip(words, times, laws, strict=True)], dtype=np.int64)


def laws_of(probabilities: Laws) -> tuple[NDArray[np.int64] | None, Array]:
    """Check laws: the numbers of their words, None for all, and their probabilities, a row for each teacher."""
    words = None
    if isinstance(probabilities, tuple) and len(probabilities) == 2:
        words, probabilities = np.asarray(probabilities[0]), probabilities[1]
    laws = np.asarray(probabilities)
    if laws.ndim != 2 or not laws.size or laws.dtype.kind not in "fiub":
        found = checks.Found(f"shape {laws.shape}, type {laws.dtype}")
        checks.fail("probabilities", found, "numbers of shape (voters, words)", "a row is the law of a voter")
    laws = laws.astype(np.float64)
    if not np.all(laws >= 0.0) or np.any(laws == np.inf):
        row = int(np.argmax(~np.all((laws >= 0.0) & (laws < np.inf), axis=1)))
        checks.fail("probabilities", checks.Found(f"another number in row {row}"), "in [0, 1]", "no logits, no NaN")
    sums = laws.sum(axis=1)
    least = _LEAST_SUM if words is not None else 1.0 - _SUM_TOLERANCE
    if np.any((sums < least) | (sums > 1.0 + _SUM_TOLERANCE)):
        row = int(np.argmax((sums < least) | (sums > 1.0 + _SUM_TOLERANCE)))
        advice = "give a probability for each word; the k likeliest words alone are a pair of numbers and probabilities"
        checks.fail(f"the sum of row {row} of the probabilities", float(sums[row]), "1", advice)
    if words is None:
        return None, laws
    if words.shape != laws.shape or words.dtype.kind not in "iu" or words.min() < 0:
        found = checks.Found(f"shape {words.shape}, type {words.dtype}")
        checks.fail("the numbers of words", found, f"whole numbers of at least 0, of shape {laws.shape}")
    words = words.astype(np.int64)
    listed = np.sort(np.where(laws > 0.0, words, -1 - np.arange(laws.shape[1])), axis=1)
    if np.any(np.diff(listed, axis=1) == 0):
        row = int(np.argmax(np.any(np.diff(listed, axis=1) == 0, axis=1)))
        checks.fail("the numbers of words", checks.Found(f"a word twice in row {row}"), "different in each row")
    return words, laws


def exponentials(words: NDArray[np.int64], seed: int | str, step: int) -> Array:
    """Compute u_v ~ Exp(1) of words at a step, a public function of (seed, step, v): (n,) → (n,), all above 0.

    >>> exponentials(np.array([0, 1, 50_000]), seed=7, step=0).round(12).tolist()
    [0.980893990644, 0.706781389883, 0.038554487291]
    """
    if isinstance(seed, bool) or not isinstance(seed, int | str | np.integer):
        checks.fail("seed", seed, "a whole number or text", "it is public, and the same for all teachers")
    digest = hashlib.sha256(str(seed).encode()).digest()
    key = (int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little"))
    word, number = np.asarray(words, dtype=np.uint64), np.full(len(words), step, dtype=np.uint64)
    bits = philox(np.stack([word & _LOW, word >> _HALF, number & _LOW, number >> _HALF]), key)
    together = ((bits[0] << _HALF) | bits[1]) >> np.uint64(64 - _BITS)
    return -_log((together.astype(np.float64) + 0.5) * 2.0**-_BITS)


def philox(counter: NDArray[np.uint64], key: tuple[int, int]) -> NDArray[np.uint64]:
    """Compute Philox 4×32-10 of counters: (4, n) words of 32 bits → (4, n).

    >>> " ".join(f"{word:08x}" for word in philox(np.zeros((4, 1), dtype=np.uint64), (0, 0))[:, 0])
    '6627e8d5 e169c58d bc57ac4c 9b00dbd8'
    """
    a, b, c, d = counter
    first, second = (np.uint64(part) for part in key)
    for _ in range(_ROUNDS):
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = (right >> _HALF) ^ b ^ first, right & _LOW, (left >> _HALF) ^ d ^ second, left & _LOW
        first, second = (first + _STEPS_OF_KEY[0]) & _LOW, (second + _STEPS_OF_KEY[1]) & _LOW
    return np.stack([a, b, c, d])


def _log(numbers: Array) -> Array:
    """Compute logarithms of numbers in (0, 1) by operations that every machine rounds alike."""
    part, power = np.frexp(numbers)
    small = part < 0.7071067811865476
    part, power = np.where(small, 2.0 * part, part), np.where(small, power - 1, power).astype(np.float64)
    s = (part - 1.0) / (part + 1.0)
    square, total = s * s, np.zeros_like(s)
    for k in reversed(range(_TERMS)):
        total = total * square + 1.0 / (2 * k + 1)
    return power * _LOG_2 + 2.0 * s * total


def _first(times: Array, law: Array) -> int:
    with np.errstate(divide="ignore", over="ignore"):
        return int(np.argmin(times / law))
