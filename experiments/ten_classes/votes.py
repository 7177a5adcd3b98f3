"""The votes as they are kept beside the page, so that everything can be counted again without any training."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.plan.accuracy import Law
from darrm.util.files import replacing
from darrm.votes import Votes
from experiments.ten_classes.settings import CLASSES

Labels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class KeptVotes:
    """What the teachers of T trainings say about n test images, with and without DP-SGD: (T, n, K) each."""

    private: Labels
    plain: Labels
    truth: Labels  # (n,) true classes, for measuring alone

    def save(self, path: Path) -> None:
        """Write them to one compressed file."""
        with replacing(path) as temporary:
            np.savez_compressed(temporary, private=self.private, plain=self.plain, truth=self.truth)

    @classmethod
    def load(cls, path: Path) -> "KeptVotes":
        """Read what `save` wrote."""
        with np.load(path) as arrays:
            return cls(arrays["private"], arrays["plain"], arrays["truth"])


def plurality(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Answer with a class that has the most votes, one of several at random: a law without noise, (n, C) → (n, C).

    >>> plurality(np.array([[5, 5, 1]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    leads = counts == counts.max(axis=1, keepdims=True)
    return np.asarray(leads / leads.sum(axis=1, keepdims=True))


def shares_right(votes: Labels, truth: Labels, law: Law) -> list[float]:
    """Compute how often a law that treats classes alike answers with the true class, for each of T trainings.

    The law is asked about sorted histograms; its probabilities are averaged, and nothing is drawn.

    >>> votes = np.array([[[2, 2, 2], [0, 0, 1]]], dtype=np.uint8)
    >>> shares_right(votes, np.array([2, 1], dtype=np.uint8), lambda counts: counts / 3)
    [0.6666666666666666]
    """
    return [_share_right(Votes.of_labels(labels, CLASSES).counts, truth, law) for labels in votes]


def _share_right(counts: NDArray[np.int64], truth: Labels, law: Law) -> float:
    """Average the probability of the true class over the questions of one training."""
    questions = np.arange(len(counts))
    histograms, which = np.unique(-np.sort(-counts, axis=1), axis=0, return_inverse=True)
    votes_for_truth = counts[questions, truth]
    place = np.argmax(histograms[which] == votes_for_truth[:, None], axis=1)  # the first with as many votes
    return float(np.mean(law(histograms)[which, place]))
