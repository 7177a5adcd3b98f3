"""Exact coins: Bernoulli draws whose probability is the number that was asked for, to the last bit, many at once.

A coin with probability p = 0.b₁b₂b₃… (binary) shows heads exactly when a uniform U = 0.u₁u₂u₃… lies below p. Both are
compared word by word; almost always the first word decides, and only where the words are equal more is drawn. Nothing
is rounded, so Pr[heads] = p for every p with finitely many binary digits, which is every float.
"""

import os
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from darrm import checks

_BLOCK = 2**18  # coins decided at a time: 2 MB of random bytes
_WORD_TYPES = {8: "u1", 64: "<u8"}


class ExactCoins:
    """A row of coins, each with its own exact probability of heads.

    The probabilities are in [0, 1) and have a power of two as denominator; words have 64 bits, or 8, which makes a
    proof by listing all random bytes short.

    >>> coins = ExactCoins([Fraction(0), Fraction(3, 4)])
    >>> coins.flip(np.array([0, 1, 1]), source=lambda size: bytes([255] * 8 * 2 + [0] * 8)[:size])
    array([False, False,  True])
    """

    def __init__(self, probabilities: Sequence[Fraction], *, word_bits: int = 64) -> None:
        if word_bits not in _WORD_TYPES:
            checks.fail("word_bits", word_bits, "8 or 64")
        if not probabilities:
            checks.fail("probabilities", probabilities, "at least one")
        for p in probabilities:
            if not 0 <= p < 1 or p.denominator & (p.denominator - 1):
                checks.fail("probability", p, "in [0, 1) with a power of two as denominator")
        self.probabilities = tuple(map(Fraction, probabilities))
        self._dtype = np.dtype(_WORD_TYPES[word_bits])
        longest = max(p.denominator.bit_length() - 1 for p in self.probabilities)
        levels = max(1, -(-longest // word_bits))
        scaled = [int(p * 2 ** (levels * word_bits)) for p in self.probabilities]
        mask = 2**word_bits - 1
        # _words[j][i]: word j of the binary digits of probability i
        self._words = tuple(
            np.array([number >> (word_bits * (levels - 1 - level)) & mask for number in scaled], dtype=self._dtype)
            for level in range(levels)
        )

    def flip(self, which: NDArray[np.int64], *, source: Callable[[int], bytes] = os.urandom) -> NDArray[np.bool_]:
        """Flip coin ``which[q]`` for every q, independently; ``source`` gives that many uniform bytes."""
        heads = np.empty(which.size, dtype=np.bool_)
        for start in range(0, which.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            heads[block] = self._flip_block(which[block], source)
        return heads

    def _flip_block(self, which: NDArray[np.int64], source: Callable[[int], bytes]) -> NDArray[np.bool_]:
        uniform = self._draw(which.size, source)
        digits = self._words[0][which]
        heads = uniform < digits
        undecided = np.flatnonzero(uniform == digits)
        for words in self._words[1:]:
            if not undecided.size:
                break
            uniform = self._draw(undecided.size, source)
            digits = words[which[undecided]]
            heads[undecided] = uniform < digits
            undecided = undecided[uniform == digits]
        # where all digits agree U >= p: tails, which is what `heads` holds there
        return heads

    def _draw(self, size: int, source: Callable[[int], bytes]) -> NDArray[np.unsignedinteger]:
        return np.frombuffer(source(size * self._dtype.itemsize), dtype=self._dtype)
