"""The six data sets of the benchmark: rows in [-1, 1] by bounds that are public for everybody, and how they are split.

A bound is a range of the column, rounded outwards to one digit, as somebody who knows the field would say it; that it
was read from the rows is covered by nobody's guarantee, ours or another's. Images are averaged over 2 × 2 pixels.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darrm.numerics import Array
from darrm.util.extras import require
from experiments import datasets
from experiments.census import load_adult

QUESTIONS, PUBLIC = 100, 500  # at the most, and at most a fifth of the rows each
TITLES = {
    "wine": "wine",
    "breast-cancer": "breast cancer",
    "digits": "digits",
    "synthetic": "synthetic of seven classes",
    "adult": "Adult",
    "mnist": "MNIST 5 against 8",
}
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Private rows with their labels, public ones without, and questions with their answers."""

    x: Array  # (N, d) in [-1, 1]
    y: Labels  # (N,)
    public: Array
    questions: Array
    answers: Labels
    classes: int


def load(name: str) -> tuple[Array, Labels]:
    """Load all rows of a data set, scaled to [-1, 1], and their classes as whole numbers from 0."""
    sets = require("sklearn.datasets")
    if name == "wine":
        return bounded(*sets.load_wine(return_X_y=True))
    if name == "breast-cancer":
        return bounded(*sets.load_breast_cancer(return_X_y=True))
    if name == "digits":
        return bounded(*sets.load_digits(return_X_y=True))
    if name == "synthetic":
        made = sets.make_classification(
            10_000, 20, n_informative=10, n_classes=7, n_clusters_per_class=1, class_sep=1.5, random_state=37
        )
        return bounded(*made)
    if name == "adult":
        table = load_adult()
        x = np.concatenate([table.train_x, table.test_x]).astype(np.float64)
        return bounded(x, np.concatenate([table.train_y, table.test_y]))
    images = datasets.load(name)
    x = np.concatenate([images.train_x, images.test_x])[:, 0].astype(np.float64)
    averaged = x.reshape(len(x), 14, 2, 14, 2).mean(axis=(2, 4)).reshape(len(x), -1)
    return 2.0 * averaged - 1.0, np.concatenate([images.train_y, images.test_y])


def bounded(x: Array, y: Labels) -> tuple[Array, Labels]:
    """Scale columns to [-1, 1] by their bounds.

    >>> bounded(np.array([[0.0, 3.0], [7.0, 3.0], [3.5, 3.0]]), np.arange(3))[0].tolist()
    [[-1.0, 1.0], [1.0, 1.0], [0.0, 1.0]]
    """
    low, high = outwards(x.min(axis=0), np.floor), outwards(x.max(axis=0), np.ceil)
    low = np.where(low == high, 0.0, low)
    width = np.where(low == high, 1.0, high - low)
    return 2.0 * (x - low) / width - 1.0, np.asarray(y, dtype=np.int64)


def outwards(bounds: Array, rounding: np.ufunc) -> Array:
    """Round numbers down or up to one digit.

    >>> outwards(np.array([0.0, 7.2, 1234.0, -31.0]), np.ceil).tolist()
    [0.0, 8.0, 2000.0, -30.0]
    """
    digit = 10.0 ** np.floor(np.log10(np.maximum(np.abs(bounds), 1e-12)))
    return np.asarray(rounding(bounds / digit) * digit)


def split(name: str, seed: int) -> Split:
    """Split a data set by a seed into private rows, public ones, and questions."""
    x, y = load(name)
    order = np.random.default_rng(seed).permutation(len(x))
    questions, public = min(QUESTIONS, len(x) // 5), min(PUBLIC, len(x) // 5)
    asked, shown, private = np.split(order, [questions, questions + public])
    return Split(x[private], y[private], x[shown], x[asked], y[asked], int(y.max()) + 1)
