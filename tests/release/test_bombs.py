"""Small files that unfold to gigabytes: refused before anything is paid, in bounded memory."""

import gzip
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.ledger.ledger import PrivacyLedger
from darrm.privacy import PrivacyParams
from tests.release.tables import table_of

arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

MOST_BYTES = 3 * 2**29  # of address space, half of it for what libraries map
ROWS = 100_000


def repeated(word: str) -> Any:
    """A column that names one word again and again, which takes few bytes."""
    return arrow.DictionaryArray.from_arrays(arrow.array(np.zeros(ROWS, np.int32)), arrow.array([word]))


def parquet_file(path: Path, **columns: Any) -> None:
    """Write a compressed file."""
    parquet.write_table(arrow.table(columns), path, compression="zstd")


VOTES = {name: np.zeros(ROWS, np.int8) for name in "abc"}
BOMBS: dict[str, tuple[Callable[[Path], Any], list[str], str, str]] = {
    "words.parquet": (
        lambda path: parquet_file(path, **dict.fromkeys("abc", repeated("x" * 10**6))),
        [],
        ".csv",
        "row 0",
    ),
    "words-too.parquet": (
        lambda path: parquet_file(path, **dict.fromkeys("abc", repeated("x" * 10**6))),
        [],
        ".parquet",
        "is no number",
    ),
    "kept.parquet": (
        lambda path: parquet_file(path, **VOTES, k=repeated("x" * 10**6)),
        ["--keep", "k"],
        ".parquet",
        "rows of column 'k' unfold to 65,536,000,000 bytes",
    ),
    "ids.parquet": (
        lambda path: parquet_file(path, **VOTES, k=repeated("x" * 10**6)),
        ["--id", "k"],
        ".csv",
        "the id of row 0 must be Unicode text of at most 200 characters",
    ),
    "rows.parquet": (
        lambda path: parquet_file(path, **{name: np.zeros(3 * 10**7, np.int8) for name in "abc"}),
        [],
        ".csv",
        "has 30,000,000 rows, too many for its size",
    ),
    "zeros.csv.gz": (
        lambda path: path.write_bytes(gzip.compress(b"0,0,0\n" * 2 * 10**7, 1)),
        [],
        ".csv",
        "unfolds to more",
    ),
    "line.csv.gz": (lambda path: path.write_bytes(gzip.compress(b"0," * 10**7)), [], ".csv", "16,777,216 characters"),
    "zeros.npz": (
        lambda path: np.savez_compressed(path, v=np.zeros((10**8, 3), np.int8)),
        [],
        ".csv",
        "it unfolds to 300",
    ),
}


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_unfolds_to_gigabytes_is_refused_in_a_line_and_free(name: str, tmp_path: Path) -> None:
    write, more, end, message = BOMBS[name]
    write(tmp_path / name)
    table_of([1.0, 1.0], epsilon=1, delta=0).save(tmp_path / "table.json")
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams("1e9", "0.5"))
    words = [name, "--table", "table.json", "--ledger", "l.sqlite", "--output", f"labels{end}", "--quiet", *more]
    done = subprocess.run(
        [sys.executable, "-m", "darrm.release", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES)),
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert message in done.stderr
    assert ledger.entries() == ()
