"""The teachers of the stand-in for Glyph: linear discriminants on features that no data had a part in.

Features are what oriented derivatives of a picture, rectified, sum up to in each cell of a grid (a histogram of
oriented gradients). A teacher is Fisher's linear discriminant on the features of its own records: the class whose mean
is nearest in the metric of the covariance within classes, by how frequent it is. It needs the records' count, sum and
second moments only, so that a teacher takes milliseconds, and the discriminant of the union of all shards, which is
the non-private baseline, costs no more than adding the moments up.

A block of teachers makes its shards from the seed by itself and sends back counts, so that any backend of joblib may
run it and nobody holds (Q, K) labels.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from darrm.util.extras import require
from experiments.pate.glyph_images import SIDE, Records, Style, draw_records

CELLS = 4  # on each side of the grid
ORIENTATIONS = 8
FEATURES = CELLS**2 * ORIENTATIONS
AT_ONCE = 2000  # queries asked together, whose scores stay in a processor's cache


@dataclass(frozen=True)
class GlyphTask:
    """All that the votes depend on."""

    style: Style = field(default_factory=Style)
    teachers: int = 5_000
    records: int = 1_000  # in the shard of each teacher
    pool: int = 16_000
    test: int = 10_000
    shrinkage: float = 0.1  # towards a covariance with equal variances
    seed: int = 2018

    def shard(self, teacher: int) -> Records:
        """Make the records of one teacher."""
        return draw_records(self.style, (self.seed, 0, teacher), self.records)

    def public(self) -> Records:
        """Make the pool: no teacher's records, and labeled wrongly as often as theirs."""
        return draw_records(self.style, (self.seed, 1), self.pool)

    def held_out(self) -> Records:
        """Make the records that students are measured on."""
        return draw_records(self.style, (self.seed, 2), self.test)


@dataclass(frozen=True, eq=False)
class Moments:
    """What a linear discriminant needs to know of labeled features: it adds up over shards."""

    number: NDArray[np.int64]  # (C,) records of each class
    total: NDArray[np.float64]  # (C, FEATURES) the sum of their features
    second: NDArray[np.float64]  # (FEATURES, FEATURES) the sum of f fᵀ over all records

    @classmethod
    def of(cls, features: NDArray[np.float32], labels: NDArray[np.int64], classes: int) -> Self:
        """Sum up labeled features."""
        member = (labels == np.arange(classes)[:, np.newaxis]).astype(np.float32)
        number = np.bincount(labels, minlength=classes)
        return cls(number, (member @ features).astype(np.float64), (features.T @ features).astype(np.float64))

    @classmethod
    def none(cls, classes: int) -> Self:
        """Return the moments of no record."""
        square = np.zeros((FEATURES, FEATURES))
        return cls(np.zeros(classes, np.int64), np.zeros((classes, FEATURES)), square)

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(self.number + other.number, self.total + other.total, self.second + other.second)


@dataclass(frozen=True, eq=False)
class Discriminant:
    """A linear classifier of features: the largest of f W + b."""

    weights: NDArray[np.float32]  # (FEATURES, C)
    bias: NDArray[np.float32]  # (C,)

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the class of each of (n, FEATURES)."""
        parts = (features[at : at + AT_ONCE] for at in range(0, len(features), AT_ONCE))
        return np.concatenate([(part @ self.weights + self.bias).argmax(axis=1) for part in parts])


@dataclass(frozen=True, eq=False)
class Block:
    """What some teachers together say, and know."""

    counts: NDArray[np.integer]  # (Q, C)
    right: int  # votes for the label of the query
    moments: Moments

    def __add__(self, other: "Block") -> "Block":
        return Block(self.counts + other.counts, self.right + other.right, self.moments + other.moments)


def extract_features(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (n, FEATURES) of (n, 784) pictures, each row scaled to about unit mean square, with square roots taken."""
    return np.concatenate([_features(x[at : at + 128]) for at in range(0, len(x), 128)])


def fit_discriminant(moments: Moments, shrinkage: float) -> Discriminant:
    """Fit Fisher's discriminant; a class without a record is never the answer."""
    present = moments.number > 0
    means = moments.total / np.maximum(moments.number, 1)[:, np.newaxis]
    within = (moments.second - moments.total.T @ means) / moments.number.sum()
    within[np.diag_indices(FEATURES)] += shrinkage * np.trace(within) / FEATURES
    weights = np.linalg.solve(within, means.T)
    frequency = np.log(np.where(present, moments.number, 1))
    bias = np.where(present, frequency - 0.5 * (means.T * weights).sum(axis=0), -np.inf)
    return Discriminant(weights.astype(np.float32), bias.astype(np.float32))


def ask_block(task: GlyphTask, teachers: range) -> Block:
    """Train some teachers and count their votes on the pool, on one thread: the same numbers however many jobs."""
    classes = task.style.classes
    with require("threadpoolctl").threadpool_limits(1):
        features, truth = _pool(task)
        counts = np.zeros(task.pool * classes, dtype=np.int32)  # half of what travels
        first = np.arange(task.pool) * classes
        moments = Moments.none(classes)
        right = 0
        for teacher in teachers:
            shard = task.shard(teacher)
            own = Moments.of(extract_features(shard.x), shard.y, classes)
            votes = fit_discriminant(own, task.shrinkage).predict(features)
            counts[first + votes] += 1
            right += int((votes == truth).sum())
            moments += own
    return Block(counts.reshape(task.pool, classes), right, moments)


@cache
def _pool(task: GlyphTask) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return features and labels of the pool, made once in a process."""
    public = task.public()
    return extract_features(public.x), public.y


def _features(x: NDArray[np.float32]) -> NDArray[np.float32]:
    image = x.reshape(-1, SIDE, SIDE)
    halved = image[:, ::2] + image[:, 1::2]
    padded = np.pad(halved[:, :, ::2] + halved[:, :, 1::2], ((0, 0), (1, 1), (1, 1)))
    down = (padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]).reshape(len(x), -1)
    across = (padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]).reshape(len(x), -1)
    parts = []
    for angle in np.arange(ORIENTATIONS // 2) * (2.0 * np.pi / ORIENTATIONS):
        slope = np.float32(np.cos(angle)) * down + np.float32(np.sin(angle)) * across
        rising = np.maximum(slope, 0.0)
        parts += [rising @ _cells(), (rising - slope) @ _cells()]
    found = np.concatenate(parts, axis=1)
    return np.asarray(np.sqrt(found / (np.sqrt((found**2).mean(axis=1, keepdims=True)) + np.float32(0.1))))


@cache
def _cells() -> NDArray[np.float32]:
    """Return (196, CELLS²): how much each place of the halved picture counts in each cell, which overlap."""
    width = 3.0  # places
    at = np.arange(SIDE // 2) - (SIDE // 2 - 1) / 2.0
    middles = (np.arange(CELLS) - (CELLS - 1) / 2.0) * width
    hats = np.clip(1.0 - np.abs(at[:, np.newaxis] - middles) / width, 0.0, None)
    return np.kron(hats, hats).astype(np.float32)
