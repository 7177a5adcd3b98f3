"""Votes and labels in files: .npy or .csv, one row a query."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.system.files import check_parent, replacing

SUFFIXES = (".npy", ".csv")


def check_suffix(name: str, path: Path) -> None:
    """Raise `ValueError` unless the file's name ends in .npy or .csv."""
    if path.suffix.lower() not in SUFFIXES:
        checks.fail(name, str(path), "a file that ends in .npy or .csv")


def check_new(path: Path) -> None:
    """Raise `ValueError` unless labels can be written to ``path`` without losing others."""
    check_suffix("--output", path)
    check_parent(path)
    if path.exists():
        raise ValueError(f"{str(path)!r} exists already: labels are paid for, so name another file or move this one")


def load_votes(path: Path, *, named_classes: bool) -> NDArray[Any]:
    """Read votes; an .npy file is mapped, not copied.

    Parameters
    ----------
    path
        Ends in .npy or .csv.
    named_classes
        Read a .csv file as words instead of numbers.

    Raises
    ------
    ValueError
        If the file is no table of votes.
    OSError
        If it cannot be read.
    """
    check_suffix("votes", path)
    if path.suffix.lower() == ".npy":
        try:
            loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{str(path)!r} is no .npy file of plain votes: {error}") from error
        return np.asarray(loaded) if isinstance(loaded, np.ndarray) else checks.fail("votes", path.name, "one array")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an empty file is reported below
        try:
            votes = np.loadtxt(
                path, delimiter=",", ndmin=2, dtype=str if named_classes else np.float64, encoding="utf-8"
            )
        except (ValueError, UnicodeDecodeError) as error:
            raise ValueError(f"{str(path)!r} is no table of votes: {error}") from error
    return np.char.strip(votes) if named_classes else votes


def parse_classes(text: str, votes: NDArray[Any]) -> tuple[Any, Any]:
    """Read ``A,B`` as two labels of the type that the votes have."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or "" in parts or parts[0] == parts[1]:
        checks.fail("--classes", text, "two different labels, like no,yes")
    if votes.dtype.kind in "biuf":
        try:
            numbers = tuple(float(part) for part in parts)
        except ValueError:
            checks.fail("--classes", text, "two numbers", f"the votes are of type {votes.dtype}")
        first, second = (int(number) if number.is_integer() else number for number in numbers)
        return first, second
    return parts[0], parts[1]


def save_labels(path: Path, labels: NDArray[Any]) -> None:
    """Write labels in one step: the file is complete or it is not there."""
    with replacing(path) as temporary:
        if path.suffix.lower() == ".npy":
            np.save(temporary, labels, allow_pickle=False)
        else:
            np.savetxt(temporary, labels, fmt="%s", encoding="utf-8")
