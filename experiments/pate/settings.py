"""Define the studies of [P]: teachers, queries, aggregators, and printed numbers.

Simulated votes of these sizes have a fixed seed and are independent of the data sets.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.pate.confident import ConfidentGNMax


@dataclass(frozen=True)
class VoteSize:
    """Numbers of queries, teachers and classes of simulated votes, and their seed."""

    queries: int
    voters: int
    classes: int
    agreement: tuple[float, float]  # parameters of the beta distribution of the share of teachers who agree
    seed: int = 2018


def draw_pate_votes(size: VoteSize) -> NDArray[np.int64]:
    """Draw (Q, C) vote counts: a share of the teachers agree on one class, the others spread over few classes.

    >>> votes = draw_pate_votes(VoteSize(3, 100, 4, (6.0, 1.0)))
    >>> votes.shape, votes.sum(axis=1).tolist()
    ((3, 4), [100, 100, 100])
    """
    rng = np.random.default_rng(size.seed)
    share = rng.beta(*size.agreement, size=size.queries)
    other_classes = rng.dirichlet(np.full(size.classes, 0.2), size=size.queries)
    probabilities = (1.0 - share)[:, np.newaxis] * other_classes
    winners = rng.integers(size.classes, size=size.queries)
    probabilities[np.arange(size.queries), winners] += share
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return np.stack([rng.multinomial(size.voters, row) for row in probabilities])


@dataclass(frozen=True)
class Way:
    """An aggregator that labels the first ``queries`` inputs of the pool."""

    name: str
    aggregator: LNMax | GNMax | ConfidentGNMax
    queries: int
    printed: tuple[int, float, float] | None = None  # answers, ε and the student's accuracy in [P, Table 1]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A data set of Table 1: its teachers, its pool of queries, and its runs."""

    name: str  # in `experiments.datasets`
    title: str
    classes: int = 10
    teachers: int = 250
    pool: int = 9_000  # number of public inputs; the other test inputs are held out
    delta: float = 1e-5
    rows: tuple[Way, ...]  # of Table 1
    baseline: float | None = None  # the printed accuracy of the non-private baseline
    in_order: bool = False  # whether the pool is the first test images, as in [P], or a random subset
    points: tuple[Way, ...] = ()  # Confident-GNMax on other numbers of queries
    by_label: tuple[Way, ...] = ()  # GNMax with label-only accounting
    budgets: tuple[float, ...] = ()  # ε of DP-SGD
    scattering: bool = False  # whether to train linear models on scattering features by DP-SGD
    searched: VoteSize | None = None  # size of simulated votes, for a search of parameters that match the last row
    figure_4_queries: int = 1_000
    retrained: tuple[int, ...] = ()  # sizes of the separately trained smaller ensembles of Figure 4


LNMAX = LNMax(0.05)  # the γ of [P17]
MNIST_WAY = ConfidentGNMax(200, 150.0, 40.0)
SVHN_WAY = ConfidentGNMax(300, 200.0, 40.0)  # of Adult and SVHN
QUIET_WAY = GNMax(50.0)
DIGITS_WAY = ConfidentGNMax(40, 30.0, 8.0)  # MNIST's, for a fifth of its teachers
_DIGITS = Study(
    name="digits",
    title="Digits (scikit-learn)",
    teachers=50,
    pool=200,
    rows=(
        Way("LNMax", LNMax(0.25), 100),
        Way("GNMax, no check", GNMax(5.0), 100),  # costs as much as LNMax on simulated votes of this size
        Way("Confident-GNMax", DIGITS_WAY, 200),
    ),
    by_label=(Way("GNMax by label", GNMax(12.0), 100),),
    figure_4_queries=200,
)
_MNIST = Study(
    name="mnist",
    title="MNIST",
    rows=(
        Way("LNMax", LNMAX, 100, (100, 2.04, 0.980)),
        Way("LNMax", LNMAX, 1_000, (1_000, 8.03, 0.981)),
        Way("Confident-GNMax", MNIST_WAY, 640, (286, 1.97, 0.985)),
    ),
    baseline=0.992,
    in_order=True,
    points=tuple(Way("Confident-GNMax", MNIST_WAY, queries) for queries in (250, 2_000)),
    by_label=tuple(Way("GNMax by label", QUIET_WAY, queries) for queries in (50, 100, 300)),
    budgets=(1.0, 2.0),
    scattering=True,
    searched=VoteSize(640, 250, 10, (6.0, 1.0)),
    retrained=(25, 50, 125),
)
_FASHION_MNIST = replace(
    _MNIST,
    name="fashion-mnist",
    title="Fashion-MNIST",
    rows=tuple(replace(way, printed=None) for way in _MNIST.rows),
    baseline=None,
    in_order=False,
    retrained=(),
)
_ADULT = Study(
    name="adult",
    title="Adult",
    classes=2,
    pool=8_140,
    rows=(Way("LNMax", LNMAX, 500, (500, 2.66, 0.830)), Way("Confident-GNMax", SVHN_WAY, 1_500, (524, 1.90, 0.837))),
    baseline=0.850,
)
STUDIES = {study.name: study for study in (_DIGITS, _MNIST, _FASHION_MNIST, _ADULT)}


@dataclass(frozen=True)
class Table2Row:
    """A printed row of [P, Table 2]: expected ε at δ, then λ, the publications, and the last column, ε ± noise."""

    name: str
    epsilon: float
    delta: float
    order: float
    publications: tuple[tuple[float, float, float], ...]  # β, E[SS_β] and σ_SS, for each round of the training
    sanitized: float
    deviation: float


_GLYPH_ROUNDS = ((0.009, 0.00278, 26.4), (0.008, 0.00088, 38.7))
TABLE_2 = (
    Table2Row("MNIST", 2.00, 1e-5, 14.0, ((0.0329, 0.0618, 6.23),), 2.52, 0.385),
    Table2Row("SVHN", 4.96, 1e-6, 7.5, ((0.0533, 0.0717, 4.88),), 5.45, 0.350),
    Table2Row("Adult", 1.68, 1e-5, 15.5, ((0.0310, 0.0332, 7.92),), 2.09, 0.263),
    Table2Row("Glyph", 2.07, 1e-8, 20.5, ((0.0205, 0.0128, 11.9),), 2.29, 0.152),
    Table2Row("Glyph, two-round interactive", 0.837, 1e-8, 50.0, _GLYPH_ROUNDS, 1.00, 0.081),
)
MNIST_COST = 1.18  # of the answers, as printed: 2.52 = 1.18 + 0.52 − ln(1e-5)/14
# [D, Table 4]: target (ε, δ), printed λ and σ
TABLE_4 = (("MNIST", "0.2676", "0.0003", 34.31, 21.46), ("Fashion-MNIST", "0.2556", "0.0003", 35.74, 22.46))
