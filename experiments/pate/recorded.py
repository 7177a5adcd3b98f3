"""What an ensemble said about the public inputs: all that the rows of the tables start from."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.votes import Votes


@dataclass(frozen=True, eq=False)
class Recorded:
    """The votes of K teachers on Q public inputs, and images or rows that nobody was asked about.

    Attributes
    ----------
    name
        The data set.
    votes
        The teachers' votes on the pool, in the order in which it is asked.
    pool_x, pool_y
        (Q, …) public inputs, and their true classes (Q,), which serve for measuring alone.
    test_x, test_y
        (n, …) and (n,): held out, for measuring students.
    teacher_accuracy
        Mean accuracy of the teachers on the pool.
    seconds
        How long training and asking the teachers took.
    """

    name: str
    votes: Votes
    pool_x: NDArray[Any]
    pool_y: NDArray[np.int64]
    test_x: NDArray[Any]
    test_y: NDArray[np.int64]
    teacher_accuracy: float
    seconds: float

    @property
    def plurality_accuracy(self) -> float:
        """How often the class with the most votes (the lowest of a tie) is the true one, on the pool."""
        return float(np.mean(self.votes.counts.argmax(axis=1) == self.pool_y))

    @property
    def digest(self) -> str:
        """The SHA-256 of the counts, as little-endian 64-bit integers, row by row."""
        return hashlib.sha256(np.ascontiguousarray(self.votes.counts, dtype="<i8").tobytes()).hexdigest()
