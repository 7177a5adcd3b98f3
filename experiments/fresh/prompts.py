"""Prompts without a language model: each answers as the nearest of a few private examples, drawn for the question.

What is near is said by random features with a public seed, fitted to nothing. Everybody is drawn for a question by a
coin of his own, and seated by a draw of his own, as `darrm.prompts.ResampledPrompts` does it with exact coins.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darrm.numerics import Array
from darrm.votes import Votes
from experiments import datasets
from experiments.census import load_adult

FEATURES = 512
SEED = 33  # public: of the features, the draws and the questions
Features = NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Examples:
    """Private examples, one a person, and public questions with their answers, all as features of length 1."""

    name: str
    x: Features  # (N, d)
    y: Labels  # (N,)
    questions: Features  # (Q, d)
    answers: Labels  # (Q,)

    @property
    def classes(self) -> int:
        """How many answers there are."""
        return int(max(self.y.max(), self.answers.max())) + 1


def load(name: str) -> Examples:
    """Load examples and questions of a data set; `experiments.datasets` says where from."""
    if name == "adult":
        table = load_adult()
        parts = table.train_x, table.train_y, table.test_x, table.test_y
    else:
        images = datasets.load(name, datasets.ALL_CLASSES)
        parts = images.train_x, images.train_y, images.test_x, images.test_y
    rng = np.random.default_rng(SEED)
    x, questions = (part.reshape(len(part), -1) for part in parts[::2])
    weights = rng.normal(size=(x.shape[1], FEATURES)).astype(np.float32)
    order = rng.permutation(len(questions))
    return Examples(name, _features(x, weights), parts[1], _features(questions, weights)[order], parts[3][order])


def _features(x: NDArray[np.float32], weights: Features) -> Features:
    """Rectify random projections of vectors of length 1: (n, p) → (n, d), of length 1."""
    rows = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    hidden = np.maximum(rows @ weights, 0.0)
    return np.asarray(hidden / np.maximum(np.linalg.norm(hidden, axis=1, keepdims=True), 1e-9), dtype=np.float32)


def votes_of(examples: Examples, K: int, rate: float, queries: int, *, rng: np.random.Generator) -> Votes:
    """Let K prompts vote on the first questions, again from the first where they are fewer; an empty one guesses."""
    people, labels = len(examples.x), np.empty((queries, K), dtype=np.int64)
    for query in range(queries):
        drawn = rng.choice(people, rng.binomial(people, rate), replace=False)
        seats = rng.integers(K, size=drawn.size)
        near = examples.x[drawn] @ examples.questions[query % len(examples.questions)]
        nearest = np.lexsort((near, seats))  # the last of each seat is its nearest
        last = np.append(np.diff(seats[nearest]) > 0, True) if drawn.size else np.empty(0, dtype=bool)
        labels[query] = rng.integers(examples.classes, size=K)
        labels[query, seats[nearest][last]] = examples.y[drawn[nearest[last]]]
    return Votes.of_labels(labels, classes=examples.classes)


def true_labels(examples: Examples, queries: int) -> Labels:
    """Return the answers to the questions that `votes_of` asks."""
    return examples.answers[np.arange(queries) % len(examples.answers)]


@dataclass(frozen=True)
class Told:
    """How often labels with a law are those of the votes, any of several with the most, and how often they are true."""

    kept: float
    accuracy: float


def told(votes: Votes, answers: Labels, probabilities: Array | None = None) -> Told:
    """Add up exactly: (Q, C) probabilities of the classes in falling order of their votes; None for the votes alone."""
    order = np.argsort(-votes.counts, axis=1, kind="stable")
    falling = np.take_along_axis(votes.counts, order, axis=1)
    leads = falling == falling[:, :1]
    law = leads / leads.sum(axis=1, keepdims=True) if probabilities is None else probabilities
    right = order == answers[:, None]
    return Told(float((law * leads).sum(axis=1).mean()), float((law * right).sum(axis=1).mean()))
