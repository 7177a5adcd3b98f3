"""Votes: (Q, K) small integers, kept as .npy so that aggregation can be repeated without training."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.system import files
from darrm.system.votes_file import load_matrix, npy_bytes
from darrm.votes import Votes

_LARGEST_CLASS = 127  # of an int8


def majority(votes: object, classes: int = 2) -> NDArray[np.int64]:
    """Return each query's most frequent class, the lowest one of a tie; without any privacy of its own.

    >>> majority([[0, 1, 1], [0, 0, 1]]).tolist()
    [1, 0]
    """
    return np.asarray(Votes.of_labels(_check_votes(votes), classes).counts.argmax(axis=1), dtype=np.int64)


def save_votes(path: Path, votes: object) -> None:
    """Write votes to a .npy file, replacing it in one step.

    Raises
    ------
    ValueError
        If the votes are no votes, or the file's name does not end in .npy.
    """
    if path.suffix != ".npy":
        checks.fail("path", str(path), "a name that ends in .npy")
    array = _check_votes(votes)
    with files.replacing(path) as temporary:
        temporary.write_bytes(npy_bytes(array))


def load_votes(path: Path) -> NDArray[np.int8]:
    """Read votes that `save_votes` wrote.

    Raises
    ------
    ValueError
        If the file holds something else, or is damaged.
    FileNotFoundError
        If there is no such file.
    """
    return _check_votes(load_matrix(path))


def _check_votes(votes: object) -> NDArray[np.int8]:
    array = np.asarray(votes)
    if array.ndim != 2 or array.shape[1] == 0 or not np.issubdtype(array.dtype, np.integer):
        checks.fail("votes", checks.Found(f"shape {array.shape}, dtype {array.dtype}"), "a (Q, K) array of integers")
    if array.size and not (array.min() >= 0 and array.max() <= _LARGEST_CLASS):
        checks.fail("votes", (int(array.min()), int(array.max())), f"in 0 … {_LARGEST_CLASS}")
    return array.astype(np.int8)
