"""Votes recorded in the run: classifiers that are not private, trained on disjoint shards, so that the overlap is 1."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.util.extras import require
from darrm.votes import Votes
from experiments.datasets import ALL_CLASSES, load
from experiments.download import DATA_VARIABLE

Examples = tuple[NDArray[Any], NDArray[np.int64]]  # inputs and classes

SEED = 20_261_121
DIGITS_VOTERS = (11, 101)
MNIST_VOTERS = (101, 251)
TEN_CLASSES_VOTERS = (50, 250)
RIDGE = 10.0  # of the penalty: a voter sees a few hundred images of 784 pixels


@dataclass(frozen=True, eq=False)
class EnsembleVotes:
    """The votes of an ensemble on a test set, and the true classes, shape (n,)."""

    name: str
    votes: Votes
    labels: NDArray[np.int64]

    @property
    def voters(self) -> int:
        return self.votes.voters

    @property
    def plurality_accuracy(self) -> float:
        """How often the plurality is the label; of k classes with the most votes each counts one in k."""
        counts = self.votes.counts
        leads = counts == counts.max(axis=1, keepdims=True)
        return float(np.mean(leads[np.arange(len(leads)), self.labels] / leads.sum(axis=1)))

    def accuracy(self, truth: NDArray[np.float64]) -> float:
        """Compute the expected label accuracy of a release of two classes.

        It returns a majority of l votes with probability ``truth`` of l.
        """
        probability = np.full(self.voters + 1, 0.5)
        probability[self.voters // 2 + 1 :] = truth
        probability[: truth.size] = 1.0 - truth[::-1]  # of the answer 1
        of_one = probability[self.votes.counts[:, 1]]
        return float(np.mean(np.where(self.labels == 1, of_one, 1.0 - of_one)))


def digits(K: int) -> EnsembleVotes:
    """Train K logistic regressions to tell odd from even on scikit-learn's digits, four fifths of them for training."""
    bunch = require("sklearn.datasets").load_digits()
    order = np.random.default_rng(SEED).permutation(len(bunch.target))
    x, y = bunch.data[order] / 16.0, bunch.target[order] % 2
    cut = len(y) * 4 // 5
    return _votes(f"digits, odd or even, {K} voters", (x[:cut], y[:cut]), (x[cut:], y[cut:]), K, _logistic)


def mnist(K: int) -> EnsembleVotes:
    """Train K logistic regressions on MNIST's classes 5 and 8."""
    return _votes(f"MNIST, 5 or 8, {K} voters", *_shuffled("mnist", (5, 8)), K, _logistic)


def ten_classes(name: str, K: int) -> EnsembleVotes:
    """Train K linear classifiers on all ten classes, by regularized least squares."""
    return _votes(f"{name}, {K} voters", *_shuffled(name, ALL_CLASSES), K, _ridge)


def available(*, quick: bool = False) -> list[EnsembleVotes]:
    """Record the votes of every ensemble of two classes whose data are there: digits always, MNIST with its files."""
    if quick:
        return [digits(DIGITS_VOTERS[0])]
    ensembles = [digits(K) for K in DIGITS_VOTERS]
    return ensembles + ([mnist(K) for K in MNIST_VOTERS] if _has("mnist") else [])


def available_of_ten_classes(*, quick: bool = False) -> list[EnsembleVotes]:
    """Record the votes of every ensemble of ten classes whose data are there."""
    ensembles = [ten_classes("digits", TEN_CLASSES_VOTERS[0])]
    if quick:
        return ensembles
    return ensembles + [
        ten_classes(name, K) for name in ("mnist", "fashion-mnist") if _has(name) for K in TEN_CLASSES_VOTERS
    ]


def _has(name: str) -> bool:
    """Return whether the files of a data set are in the first place searched."""
    folder = os.environ.get(DATA_VARIABLE)
    return folder is not None and (Path(folder) / name).is_dir()


def _shuffled(name: str, classes: tuple[int, ...]) -> tuple[Examples, Examples]:
    """Load training and test images as vectors of pixels, the first in random order."""
    data = load(name, classes)
    order = np.random.default_rng(SEED).permutation(len(data.train_y))
    x, test_x = (part.reshape(len(part), -1) for part in (data.train_x[order], data.test_x))
    return (x, data.train_y[order]), (test_x, data.test_y)


def _logistic() -> Any:  # noqa: ANN401 (of a library without types)
    return require("sklearn.linear_model").LogisticRegression(max_iter=200)


def _ridge() -> Any:  # noqa: ANN401 (of a library without types)
    return require("sklearn.linear_model").RidgeClassifier(alpha=RIDGE)


def _votes(name: str, train: Examples, test: Examples, K: int, model: Callable[[], Any]) -> EnsembleVotes:
    exceptions = require("sklearn.exceptions")
    classes = int(max(train[1].max(), test[1].max())) + 1
    counts = np.zeros((len(test[1]), classes), dtype=np.int64)
    rows = np.arange(len(counts))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)  # a voter need not be trained to the end
        for shard_x, shard_y in zip(*(np.array_split(part, K) for part in train), strict=True):
            if np.all(shard_y == shard_y[0]):
                counts[:, shard_y[0]] += 1
            else:
                counts[rows, model().fit(shard_x, shard_y).predict(test[0])] += 1
    return EnsembleVotes(name, Votes.of_counts(counts), np.asarray(test[1], dtype=np.int64))
