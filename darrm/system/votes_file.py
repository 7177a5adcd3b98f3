"""Votes and labels in files: .npy or .csv, one row a query."""

import hashlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.system.files import check_parent, replacing

SUFFIXES = (".npy", ".csv")


def _check_suffix(name: str, path: Path) -> None:
    """Raise `ValueError` unless the name ends in .npy or .csv."""
    if path.suffix.lower() not in SUFFIXES:
        checks.fail(name, str(path), "a file that ends in .npy or .csv")


def check_new(path: Path) -> None:
    """Raise `ValueError` unless labels can be written to ``path`` without losing others."""
    _check_suffix("--output", path)
    check_parent(path)
    if path.exists():
        raise ValueError(f"{str(path)!r} exists already: labels are paid for, so name another file or move this one")


def load_matrix(path: Path, *, words: bool = False) -> NDArray[Any]:
    """Read a matrix with at least one entry: numbers, or text; an .npy file is mapped, not copied.

    ``words`` reads a .csv file as words. `ValueError` if the file holds no such matrix, `OSError` if it cannot be read.
    """
    _check_suffix("votes", path)
    try:
        matrix = _read_npy(path) if path.suffix.lower() == ".npy" else _read_csv(path, words=words)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{str(path)!r} is no table of votes: {error}") from error
    if matrix.ndim != 2 or matrix.size == 0 or matrix.dtype.kind not in "biufU":
        found = f"shape {matrix.shape} of type {matrix.dtype}"
        advice = "one row is one query; " + ("reshape a single one" if matrix.ndim == 1 else "no row is no vote")
        raise ValueError(f"{str(path)!r} must hold a matrix of votes with at least one entry, got {found}: {advice}")
    return matrix


def _read_npy(path: Path) -> NDArray[Any]:
    loaded = np.load(path, mmap_mode="r", allow_pickle=False)
    return np.asarray(loaded) if isinstance(loaded, np.ndarray) else checks.fail("votes", path.name, "one array")


def _read_csv(path: Path, *, words: bool) -> NDArray[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an empty file is reported by its shape
        table = np.loadtxt(path, delimiter=",", ndmin=2, dtype=str if words else np.float64, encoding="utf-8")
    return np.char.strip(table) if words else table


def classes_of(text: str | None) -> int | tuple[str, ...] | None:
    """Read ``--classes``: how many classes there are, or what they are called.

    >>> classes_of("10"), classes_of("no, yes")
    (10, ('no', 'yes'))
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1 and parts[0].isdecimal():
        return int(parts[0])
    if len(parts) < 2 or "" in parts or len(set(parts)) != len(parts):
        checks.fail("--classes", text, "their number or different labels, at least two, like no,yes")
    return tuple(parts)


def labels_digest(labels: NDArray[Any]) -> str:
    """Return the SHA-256, in hexadecimal, of released labels as text, one on a line: the same for .npy and .csv.

    >>> labels_digest(np.array([1, 0, 1]))[:16], labels_digest(np.array(["1", "0", "1"]))[:16]
    ('a714acf0208a1a2e', 'a714acf0208a1a2e')
    """
    return hashlib.sha256("".join(f"{label}\n" for label in labels.tolist()).encode()).hexdigest()


def save_labels(path: Path, labels: NDArray[Any]) -> None:
    """Write labels in one step: the file is complete or it is not there."""
    with replacing(path) as temporary:
        if path.suffix.lower() == ".npy":
            np.save(temporary, labels, allow_pickle=False)
        else:
            np.savetxt(temporary, labels, fmt="%s", encoding="utf-8")
