"""Sizes of the experiments of [P], and synthetic votes of such sizes.

The teachers' votes behind the tables of [P] are not public any more (Glyph's never were). The votes made here have the
right shape and a plausible spread of agreement, from a fixed seed; figures computed from them say something about the code
and the mechanisms, and nothing about MNIST, SVHN, Adult or Glyph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class VoteSize:
    """How many queries, teachers and classes, and the seed of the votes.

    Attributes
    ----------
    queries, voters, classes
        Q, K, C.
    agreement
        Parameters of the beta law of the share of teachers who agree.
    """

    queries: int
    voters: int
    classes: int
    agreement: tuple[float, float]
    seed: int = 2018


MNIST_SIZE = VoteSize(640, 250, 10, (6.0, 1.0))
GLYPH_SIZE = VoteSize(12_000, 5000, 150, (3.0, 0.8))


def pate_like_votes(size: VoteSize) -> NDArray[np.int64]:
    """Draw (Q, C) vote counts: a share of the teachers agree on one class, the others spread over few classes.

    Examples
    --------
    >>> votes = pate_like_votes(VoteSize(3, 100, 4, (6.0, 1.0)))
    >>> votes.shape, votes.sum(axis=1).tolist()
    ((3, 4), [100, 100, 100])
    """
    rng = np.random.default_rng(size.seed)
    share = rng.beta(*size.agreement, size=size.queries)
    rest = rng.dirichlet(np.full(size.classes, 0.2), size=size.queries)
    probabilities = (1.0 - share)[:, np.newaxis] * rest
    winners = rng.integers(size.classes, size=size.queries)
    probabilities[np.arange(size.queries), winners] += share
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return np.stack([rng.multinomial(size.voters, row) for row in probabilities])
