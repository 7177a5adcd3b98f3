"""Files that are either the old one or the new one, never half of one."""

from __future__ import annotations

import os
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


def check_parent(path: Path) -> None:
    """Raise `ValueError` unless the folder that will hold ``path`` exists and ``path`` is no folder.

    >>> check_parent(Path("/no/such/folder/table.json"))
    Traceback (most recent call last):
    ...
    ValueError: the folder '/no/such/folder' of '/no/such/folder/table.json' does not exist: create it first
    """
    if not path.parent.is_dir():
        raise ValueError(f"the folder {str(path.parent)!r} of {str(path)!r} does not exist: create it first")
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder: name a file")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; on success it replaces ``path`` in one step, else it vanishes.

    The temporary name keeps the suffix, so that libraries which look at it write the right format.
    """
    check_parent(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace the file at ``path`` by ``text`` (UTF-8) in one step."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_matrix(path: Path) -> NDArray[Any]:
    """Read a matrix of numbers from a ``.npy`` file, or from comma-separated text in any other file.

    Raises
    ------
    ValueError
        If the file is missing, empty, no matrix of numbers, or would need pickle.
    """
    if not path.is_file():
        raise ValueError(f"the file {str(path)!r} does not exist")
    matrix: NDArray[Any]
    try:
        if path.suffix == ".npy":
            matrix = np.load(path, allow_pickle=False)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # an empty file is reported below
                matrix = np.loadtxt(path, delimiter=",", ndmin=2)
    except (ValueError, EOFError) as error:
        reason = str(error).partition(";")[0]
        raise ValueError(f"{str(path)!r} is no matrix of numbers: {reason}") from error
    if matrix.ndim != 2 or matrix.size == 0 or matrix.dtype.kind not in "biuf":
        raise ValueError(
            f"{str(path)!r} must hold a matrix of numbers with at least one entry, got shape {matrix.shape} "
            f"of type {matrix.dtype}"
        )
    return matrix


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
