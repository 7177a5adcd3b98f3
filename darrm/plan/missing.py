"""The accuracy with missing votes, which fair dice replace.

A release of K votes with r missing is one of K − r votes: each class gets each missing vote with the same
probability, and the answer is compared with the votes that are present. A die is independent of the data, so the
guarantee is that for K votes (`darrm.votes`). A histogram and a roll of r dice make a histogram of K votes; the law
is computed once for each.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from darrm.numerics import Array

SEED = 20_250_102  # public: the same rolls for everybody
MOST_ROLLED = 2**18  # histograms with a roll each: of more, rolls are drawn


@dataclass(frozen=True, eq=False)
class Rolled:
    """Histograms with their rolls: the histograms of the law, and the correct answers."""

    asked: NDArray[np.int64]  # (m, C) different histograms of K votes, the largest count first
    place: NDArray[np.int64]  # (n·R,) which of these each histogram becomes with each roll
    counts_as: NDArray[np.bool_]  # (n·R, C) correct answers, in the order of `asked`
    chances: Array  # (R,) of the rolls
    drawn: int = 0  # how many rolls were drawn for each histogram; 0 where all were listed

    def shares(self, law: Callable[[NDArray[np.int64]], Array]) -> Array:
        """Compute for each histogram how often an answer is one that counts: (n,)."""
        told = np.sum(law(self.asked)[self.place] * self.counts_as, axis=1)
        return np.asarray(np.clip(told.reshape(-1, self.chances.size) @ self.chances, 0.0, 1.0))


def number_of_rolls(missing: int, classes: int) -> int:
    """Count how r dice may fall.

    >>> number_of_rolls(2, 3), number_of_rolls(0, 3)
    (6, 1)
    """
    return math.comb(missing + classes - 1, missing)


def rolled(
    counts: NDArray[np.int64], counts_as: NDArray[np.bool_], missing: int, *, drawn: int | None = None
) -> Rolled:
    """Roll dice for missing votes: all rolls with their chances, or ``drawn`` rolls for each histogram.

    Of three votes two are there and agree; the third is as likely for each of three classes:

    >>> found = rolled(np.array([[2, 0, 0]]), np.array([[True, False, False]]), 1)
    >>> found.asked.tolist(), found.shares(lambda counts: counts / 3.0).round(4)
    ([[2, 1, 0], [3, 0, 0]], array([0.7778]))
    """
    n, C = counts.shape
    if not missing:
        return Rolled(counts, np.arange(n), counts_as, np.ones(1))
    if drawn is None:
        dice = combinations_with_replacement(range(C), missing)
        rolls = np.array([np.bincount(np.array(roll, dtype=np.int64), minlength=C) for roll in dice])[None]
        ways = [math.factorial(missing) / math.prod(map(math.factorial, roll)) for roll in rolls[0].tolist()]
        chances = np.array(ways) / float(C) ** missing
    else:
        rolls = np.random.default_rng(SEED).multinomial(missing, np.full(C, 1.0 / C), size=(n, drawn))
        chances = np.full(drawn, 1.0 / drawn)
    every = (counts[:, None, :] + rolls).reshape(-1, C)
    order = np.argsort(-every, axis=1, kind="stable")
    asked, place = np.unique(np.take_along_axis(every, order, axis=1), axis=0, return_inverse=True)
    chosen = np.take_along_axis(np.repeat(counts_as, chances.size, axis=0), order, axis=1)
    return Rolled(asked, place.reshape(-1), chosen, chances, drawn or 0)
