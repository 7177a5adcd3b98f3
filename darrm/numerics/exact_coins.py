"""Exact coins: many Bernoulli draws at once, each with exactly the given probability.

A coin with probability p = 0.b₁b₂b₃… (binary) shows heads if and only if a uniform U = 0.u₁u₂u₃… is below p. The first
byte of both decides all coins but one in 256. Only if these bytes are equal (a tie), further words of 64 bits are
compared. Nothing is rounded: Pr[heads] = p for every p with finitely many binary digits, so for every float.

*Proof.* The first byte or word that differs decides U < p. Later words do not change the outcome, drawn or not. If all
digits of p are used up without a difference, then U ≥ p: tails. Hence Pr[heads] = Pr[U < p] = p. ∎

**Timing.** A uniform byte equals any given byte with probability 1/256, so ties alone do not depend on p. But the pair
(label, tie) reveals more about p than the label, and one coin in 256 is too often to ignore. So words are drawn for a
fixed number of coins: as many as n coins tie with probability at least 1 − 2⁻⁶⁴ (all, for few coins). The number of
bytes and of calls then depends only on the number of coins and on the length of the longest p, except with probability
2⁻⁶⁴ for a block of coins, and 2⁻⁷² for each. By *Bernstein's inequality* n coins have n/256 + t or more ties with
probability at most exp(−t²/(2·(n/256 + t/3))).
"""

import math
import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.util import checks

_BLOCK = 2**18  # coins decided at a time: 256 kB of random bytes
_RARE = 64 * math.log(2.0)  # −log of the probability that the number of bytes drawn is another one


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
        # the binary digits of probability i: the byte _first[i], then the words _rest[0][i], _rest[1][i], …
        self._first = np.array([number >> (64 * levels) for number in scaled], dtype=np.uint8)
        self._rest = [
            np.array([number >> (64 * level) & (2**64 - 1) for number in scaled], dtype="<u8")
            for level in reversed(range(levels))
        ]

    def flip(self, which: NDArray[np.int64], *, source: Callable[[int], bytes] = os.urandom) -> NDArray[np.bool_]:
        """Flip coin ``which[q]`` for every q, independently; ``source`` gives that many uniform bytes."""
        heads = np.empty(which.size, dtype=np.bool_)
        for start in range(0, which.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            heads[block] = self._flip_block(which[block], source)
        return heads

    def _flip_block(self, which: NDArray[np.int64], source: Callable[[int], bytes]) -> NDArray[np.bool_]:
        uniform, digits = _draw(which.size, self._first.dtype, source), self._first[which]
        heads = uniform < digits
        undecided = np.flatnonzero(uniform == digits)
        drawn = max(_usual_ties(which.size), undecided.size)
        for words in self._rest:
            if not drawn:
                break
            uniform, digits = _draw(drawn, words.dtype, source)[: undecided.size], words[which[undecided]]
            heads[undecided] = uniform < digits
            undecided = undecided[uniform == digits]
            drawn = undecided.size
        # where all digits agree U >= p: tails, which is what `heads` holds there
        return heads


def _usual_ties(coins: int) -> int:
    """Return a number that the ties of the first byte exceed with probability 2⁻⁶⁴ at most, and no more than all."""
    mean = coins / 256
    return min(coins, math.ceil(mean + _RARE / 3 + math.sqrt(_RARE**2 / 9 + 2 * _RARE * mean)))


def _draw(size: int, dtype: np.dtype[Any], source: Callable[[int], bytes]) -> NDArray[np.unsignedinteger]:
    return np.frombuffer(source(size * dtype.itemsize), dtype=dtype)
