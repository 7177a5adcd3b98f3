"""Train non-private classifiers on disjoint shards (overlap 1) and record their votes."""

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
RIDGE = 10.0  # large, because a voter sees a few hundred images of 784 pixels


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
        """How often the plurality is the true label; a tie of k classes counts 1/k."""
        counts = self.votes.counts
        leads = counts == counts.max(axis=1, keepdims=True)
        return float(np.mean(leads[np.arange(len(leads)), self.labels] / leads.sum(axis=1)))

    def accuracy(self, truth: NDArray[np.float64]) -> float:
        """Compute the expected accuracy of a release of two classes.

        ``truth`` has Pr[the release returns the majority] for each size l of a majority, ascending.
        """
        probability = np.full(self.voters + 1, 0.5)
        probability[self.voters // 2 + 1 :] = truth
        probability[: truth.size] = 1.0 - truth[::-1]  # of the answer 1
        chance_of_one = probability[self.votes.counts[:, 1]]
        return float(np.mean(np.where(self.labels == 1, chance_of_one, 1.0 - chance_of_one)))


def record_digits(K: int) -> EnsembleVotes:
    """Train K logistic regressions to tell odd from even on scikit-learn's digits, four fifths of them for training."""
    bunch = require("sklearn.datasets").load_digits()
    order = np.random.default_rng(SEED).permutation(len(bunch.target))
    x, y = bunch.data[order] / 16.0, bunch.target[order] % 2
    size = len(y) * 4 // 5
    name = f"digits, odd or even, {K} voters"
    return _record_votes(name, (x[:size], y[:size]), (x[size:], y[size:]), K, _make_logistic)


def record_ten_classes(name: str, K: int) -> EnsembleVotes:
    """Train K linear classifiers on all ten classes, by regularized least squares."""
    return _record_votes(f"{name}, {K} voters", *_load_shuffled(name, ALL_CLASSES), K, _make_ridge)


def record_two_class_votes(*, quick: bool = False) -> list[EnsembleVotes]:
    """Record the votes of logistic regressions: on digits, and on MNIST's classes 5 and 8 if its files are present."""
    ensembles = [record_digits(K) for K in DIGITS_VOTERS[: 1 if quick else None]]
    if not quick and _has_files("mnist"):
        train, test = _load_shuffled("mnist", (5, 8))
        ensembles += [_record_votes(f"MNIST, 5 or 8, {K} voters", train, test, K, _make_logistic) for K in MNIST_VOTERS]
    return ensembles


def record_ten_class_votes(*, quick: bool = False) -> list[EnsembleVotes]:
    """Record the votes of every ensemble of ten classes whose files are present."""
    names = [] if quick else [name for name in ("mnist", "fashion-mnist") if _has_files(name)]
    return [
        record_ten_classes("digits", TEN_CLASSES_VOTERS[0]),
        *(record_ten_classes(name, K) for name in names for K in TEN_CLASSES_VOTERS),
    ]


def _has_files(name: str) -> bool:
    """Whether DARRM_DATA_DIR has the files of a data set."""
    folder = os.environ.get(DATA_VARIABLE)
    return folder is not None and (Path(folder) / name).is_dir()


def _load_shuffled(name: str, classes: tuple[int, ...]) -> tuple[Examples, Examples]:
    """Load training images, in random order, and test images, as vectors of pixels."""
    data = load(name, classes)
    order = np.random.default_rng(SEED).permutation(len(data.train_y))
    x, test_x = (images.reshape(len(images), -1) for images in (data.train_x[order], data.test_x))
    return (x, data.train_y[order]), (test_x, data.test_y)


def _make_logistic() -> Any:  # noqa: ANN401 (of a library without types)
    return require("sklearn.linear_model").LogisticRegression(max_iter=200)


def _make_ridge() -> Any:  # noqa: ANN401 (of a library without types)
    return require("sklearn.linear_model").RidgeClassifier(alpha=RIDGE)


def _record_votes(name: str, train: Examples, test: Examples, K: int, model: Callable[[], Any]) -> EnsembleVotes:
    exceptions = require("sklearn.exceptions")
    classes = int(max(train[1].max(), test[1].max())) + 1
    counts = np.zeros((len(test[1]), classes), dtype=np.int64)
    rows = np.arange(len(counts))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)  # a voter need not be trained to the end
        for shard_x, shard_y in zip(*(np.array_split(part, K) for part in train), strict=True):
            is_constant = np.all(shard_y == shard_y[0])
            answers = shard_y[0] if is_constant else model().fit(shard_x, shard_y).predict(test[0])
            counts[rows, answers] += 1
    return EnsembleVotes(name, Votes.from_counts(counts), np.asarray(test[1], dtype=np.int64))
