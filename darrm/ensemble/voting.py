"""Votes: (Q, K) small integers, kept as .npy so that aggregation can be repeated without training."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.errors import TableError
from darrm.system import files

_LARGEST_CLASS = 127  # of an int8


def majority(votes: object, classes: int = 2) -> NDArray[np.int64]:
    """Return each query's most frequent class, the lowest one of a tie; without any privacy of its own.

    >>> majority([[0, 1, 1], [0, 0, 1]]).tolist()
    [1, 0]
    """
    array = _check_votes(votes, classes=classes)
    histograms = (array[:, :, None] == np.arange(classes)).sum(axis=1)
    return np.asarray(histograms.argmax(axis=1), dtype=np.int64)


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
        np.save(temporary, array, allow_pickle=False)


def load_votes(path: Path) -> NDArray[np.int8]:
    """Read votes that `save_votes` wrote.

    Raises
    ------
    TableError
        If the file holds something else, or is damaged.
    FileNotFoundError
        If there is no such file.
    """
    try:
        stored: Any = np.load(path, allow_pickle=False)
        return _check_votes(stored)
    except (ValueError, EOFError) as error:
        raise TableError("votes", f"{str(path)!r} is no file of votes: {error}") from error


def _check_votes(votes: object, *, classes: int | None = None) -> NDArray[np.int8]:
    """Return votes as a (Q, K) array of small integers, each in 0 … classes − 1."""
    array = np.asarray(votes)
    if array.ndim != 2 or array.shape[1] == 0 or not np.issubdtype(array.dtype, np.integer):
        checks.fail("votes", f"shape {array.shape}, dtype {array.dtype}", "a (Q, K) array of integers")
    most = _LARGEST_CLASS if classes is None else classes - 1
    if array.size and not (array.min() >= 0 and array.max() <= most):
        checks.fail("votes", (int(array.min()), int(array.max())), f"in 0 … {most}")
    return array.astype(np.int8)
