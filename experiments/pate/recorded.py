"""Record the votes of an ensemble on public inputs, from which all rows of the tables are computed."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from darrm.util.files import replace_file
from darrm.votes import Votes

LABEL_SEED = 2018
Labels = NDArray[np.int64]
StudentAccuracies = list[float | None]  # on the held-out inputs, and on the pool beyond the queries


def save_counts(path: Path, recorded: "Recorded", smaller: Sequence[Votes] = ()) -> None:
    """Save the counts of all votes next to the page, so that readers can recompute their cost.

    The file also has the pool's true classes, and the counts of smaller ensembles on the first queries.
    """
    arrays: dict[str, Any] = {f"smaller_{votes.voters}": votes.counts.astype(np.uint16) for votes in smaller}
    arrays |= {"counts": recorded.votes.counts.astype(np.uint16), "classes": recorded.pool_y.astype(np.uint8)}
    with replace_file(path) as temporary:
        np.savez_compressed(temporary, **arrays)


def load_counts(path: Path) -> tuple["Recorded", list[Votes]]:
    """Read a file of `save_counts`: votes and classes without inputs, and the smaller ensembles' votes."""
    with np.load(path) as arrays:
        votes = Votes.from_counts(arrays["counts"].astype(np.int64))
        smaller = [
            Votes.from_counts(arrays[name].astype(np.int64)) for name in arrays.files if name.startswith("smaller_")
        ]
        classes, empty = arrays["classes"].astype(np.int64), np.empty(0, dtype=np.int64)
    name = path.stem.removesuffix("-counts")
    return Recorded(name, votes, empty, classes, empty, empty, np.nan, np.nan), smaller


class Predictor(Protocol):
    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Return the class of each input."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """The votes of K teachers on Q public inputs, and held-out images or rows."""

    name: str  # of the data set
    votes: Votes  # on the pool, in the order of the queries
    pool_x: NDArray[Any]  # (Q, …) public inputs
    pool_y: NDArray[np.int64]  # (Q,) their true classes, to measure accuracy only
    test_x: NDArray[Any]  # (n, …) held out, to measure students
    test_y: NDArray[np.int64]
    teacher_accuracy: float  # mean, on the pool
    seconds: float  # of training the teachers and collecting their votes

    @property
    def plurality_accuracy(self) -> float:
        """How often the class with the most votes (in a tie, the lowest) is the true class, on the pool."""
        return float(np.mean(self.votes.counts.argmax(axis=1) == self.pool_y))

    def measure_student(self, student: Predictor, num_queries: int) -> StudentAccuracies:
        """Return a student's accuracies: on held-out inputs, and on the pool beyond the first queries."""
        parts = ((self.test_x, self.test_y), (self.pool_x[num_queries:], self.pool_y[num_queries:]))
        return [float(np.mean(student.predict(x) == y)) if len(y) else None for x, y in parts]

    @property
    def digest(self) -> str:
        """The SHA-256 of the counts, as little-endian 64-bit integers, row by row."""
        return hashlib.sha256(np.ascontiguousarray(self.votes.counts, dtype="<i8").tobytes()).hexdigest()
