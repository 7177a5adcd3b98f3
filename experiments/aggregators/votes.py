"""Votes recorded in the run: classifiers that are not private, trained on disjoint shards, so that the overlap is 1."""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.system.extras import require
from experiments.datasets import load
from experiments.download import DATA_VARIABLE

Examples = tuple[NDArray[Any], NDArray[np.int64]]  # what is seen, and its class

SEED = 20_261_121
DIGITS_VOTERS = (11, 101)
MNIST_VOTERS = (101, 251)


@dataclass(frozen=True, eq=False)
class RecordedVotes:
    """The votes of an ensemble on a test set: votes for class 1 and true classes, shape (n,), and K voters."""

    name: str
    ones: NDArray[np.int64]
    labels: NDArray[np.int64]
    K: int

    @property
    def majority_accuracy(self) -> float:
        """How often the majority is the label, a tie counting one half."""
        right = np.where(2 * self.ones == self.K, 0.5, (2 * self.ones > self.K) == self.labels)
        return float(np.mean(right))

    def accuracy(self, truth: NDArray[np.float64]) -> float:
        """Compute the expected label accuracy of a release that tells the majority of l votes with ``truth`` of l."""
        probability = np.full(self.K + 1, 0.5)
        probability[self.K // 2 + 1 :] = truth
        probability[: truth.size] = 1.0 - truth[::-1]  # of the answer 1
        of_one = probability[self.ones]
        return float(np.mean(np.where(self.labels == 1, of_one, 1.0 - of_one)))


def digits(K: int) -> RecordedVotes:
    """Train K logistic regressions to tell odd from even on scikit-learn's digits, four fifths of them for training."""
    bunch = require("sklearn.datasets").load_digits()
    order = np.random.default_rng(SEED).permutation(len(bunch.target))
    x, y = bunch.data[order] / 16.0, bunch.target[order] % 2
    cut = len(y) * 4 // 5
    return _votes(f"digits, odd or even, {K} voters", (x[:cut], y[:cut]), (x[cut:], y[cut:]), K)


def mnist(K: int) -> RecordedVotes:
    """Train K logistic regressions on MNIST's classes 5 and 8."""
    data = load("mnist")
    order = np.random.default_rng(SEED).permutation(len(data.train_y))
    x, test_x = (part.reshape(len(part), -1) for part in (data.train_x[order], data.test_x))
    return _votes(f"MNIST, 5 or 8, {K} voters", (x, data.train_y[order]), (test_x, data.test_y), K)


def available(*, quick: bool = False) -> list[RecordedVotes]:
    """Record the votes of every ensemble whose data are there: digits always, MNIST where its files are."""
    if quick:
        return [digits(DIGITS_VOTERS[0])]
    found = [digits(K) for K in DIGITS_VOTERS]
    folder = os.environ.get(DATA_VARIABLE)
    if folder is not None and (Path(folder) / "mnist").is_dir():
        found += [mnist(K) for K in MNIST_VOTERS]
    return found


def _votes(name: str, train: Examples, test: Examples, K: int) -> RecordedVotes:
    linear_model, exceptions = require("sklearn.linear_model"), require("sklearn.exceptions")
    ones = np.zeros_like(test[1], dtype=np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)  # a voter need not be trained to the end
        for shard_x, shard_y in zip(*(np.array_split(part, K) for part in train), strict=True):
            if np.all(shard_y == shard_y[0]):
                ones += int(shard_y[0])
                continue
            model = linear_model.LogisticRegression(max_iter=200).fit(shard_x, shard_y)
            ones += model.predict(test[0]).astype(np.int64)
    return RecordedVotes(name, ones, np.asarray(test[1], dtype=np.int64), K)
