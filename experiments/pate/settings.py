"""Sizes of the experiments of [P], and synthetic votes of such sizes.

The teachers' votes behind the tables of [P] are not part of this project. The votes made here have the right shape and
a plausible spread of agreement, from a fixed seed; figures computed from them say something about the code and the
mechanisms, and nothing about MNIST, SVHN, Adult or Glyph.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class VoteSize:
    """How many queries, teachers and classes, and the seed of the votes."""

    queries: int
    voters: int
    classes: int
    agreement: tuple[float, float]  # parameters of the beta law of the share of teachers who agree
    seed: int = 2018


MNIST_SIZE = VoteSize(640, 250, 10, (6.0, 1.0))
GLYPH_SIZE = VoteSize(12_000, 5000, 150, (3.0, 0.8))


def pate_like_votes(size: VoteSize) -> NDArray[np.int64]:
    """Draw (Q, C) vote counts: a share of the teachers agree on one class, the others spread over few classes.

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


@dataclass(frozen=True)
class Study:
    """A data set of Table 1: who votes about how many queries of it, and δ of its rows."""

    name: str  # as `experiments.datasets` calls it, or "glyph" or "adult"
    classes: int
    teachers: int
    pool: int  # public inputs, the others of the test set are held out
    delta: float


STUDIES = {
    study.name: study
    for study in (
        Study("digits", 10, 50, 200, 1e-5),
        Study("mnist", 10, 250, 9_000, 1e-5),
        Study("fashion-mnist", 10, 250, 9_000, 1e-5),
        Study("glyph", 150, 5_000, 16_000, 1e-8),
        Study("svhn", 10, 250, 25_032, 1e-6),
        Study("adult", 2, 250, 8_140, 1e-5),
    )
}


@dataclass(frozen=True)
class Table2Row:
    """A printed row of [P, Table 2]: expected ε at δ, then λ, β, E[SS_β], σ_SS, and the last column, ε ± noise."""

    name: str
    epsilon: float
    delta: float
    order: float
    smoothness: float
    sensitivity: float
    noise_scale: float
    sanitized: float
    deviation: float


TABLE_2 = (
    Table2Row("MNIST", 2.00, 1e-5, 14.0, 0.0329, 0.0618, 6.23, 2.52, 0.385),
    Table2Row("SVHN", 4.96, 1e-6, 7.5, 0.0533, 0.0717, 4.88, 5.45, 0.350),
    Table2Row("Adult", 1.68, 1e-5, 15.5, 0.0310, 0.0332, 7.92, 2.09, 0.263),
    Table2Row("Glyph", 2.07, 1e-8, 20.5, 0.0205, 0.0128, 11.9, 2.29, 0.152),
)
MNIST_COST = 1.18  # of the answers, as printed: 2.52 = 1.18 + 0.52 − ln(1e-5)/14
# [D, Table 4]: target (ε, δ), printed λ and σ
TABLE_4 = (("MNIST", "0.2676", "0.0003", 34.31, 21.46), ("Fashion-MNIST", "0.2556", "0.0003", 35.74, 22.46))
