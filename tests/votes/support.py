"""Write files of votes, read them, and check refusals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.votes import Votes

NO_YES = ("no", "yes")


def check_refusal(call: Callable[[], object], message: str) -> None:
    """Check that a call raises `ValueError` with one line that matches ``message``."""
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def read_csv(folder: Path, content: bytes | str, **options: Any) -> Votes:
    """Write a .csv file and read it."""
    path = folder / "votes.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Votes.read(path, **options)


def read_npy(folder: Path, matrix: object, **options: Any) -> Votes:
    """Write an .npy file and read it."""
    path = folder / "votes.npy"
    np.save(path, np.array(matrix))
    return Votes.read(path, **options)


def write_parquet(path: Path, columns: dict[str, Any], **options: Any) -> None:
    """Write columns to a Parquet file; skip the test if pyarrow is not installed."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(columns), path, **options)


def list_missing(votes: Votes) -> list[int]:
    """Return the number of missing votes of each query."""
    return [0] * votes.queries if votes.missing is None else votes.missing.tolist()


def count_answers(votes: Votes) -> list[dict[Any, int]]:
    """Return the votes for each answer to each query, from the sparse counts; None stands for a missing answer."""
    rows: list[dict[Any, int]] = [{} for _ in range(votes.queries)]
    for row, column, count in zip(*votes.sparse.nonzero(), votes.sparse.data, strict=True):
        rows[row][votes.names[column]] = int(count)
    return rows
