"""Small files that unfold to gigabytes: refused before anything is paid, in bounded memory."""

import gzip
import resource
import subprocess
import sys
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


# name, options, end of the labels' name, message
BOMBS = [
    ("words.parquet", [], ".csv", "row 0"),
    ("kept.parquet", ["--keep", "k"], ".parquet", "rows of column 'k' unfold to 65,536,000,000 bytes"),
    ("words-too.parquet", [], ".parquet", "is no number"),
    ("ids.parquet", ["--id", "k"], ".csv", "the id of row 0 must be Unicode text of at most 200 characters"),
    ("rows.parquet", [], ".csv", "has 30,000,000 rows, too many for its size"),
    ("zeros.csv.gz", [], ".csv", "unfolds to more"),
    ("line.csv.gz", [], ".csv", "16,777,216 characters"),
    ("zeros.npz", [], ".csv", "it unfolds to 300"),
]


def write(path: Path) -> None:
    wide, votes = repeated("x" * 10**6), {name: np.zeros(ROWS, np.int8) for name in "abc"}
    if path.name == "zeros.npz":
        np.savez_compressed(path, v=np.zeros((10**8, 3), np.int8))
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(b"0,0,0\n" * 2 * 10**7 if "zeros" in path.name else b"0," * 10**7, 1))
    elif path.name.startswith("words"):
        parquet_file(path, **dict.fromkeys("abc", wide))
    elif path.name.startswith("rows"):
        parquet_file(path, **{name: np.zeros(3 * 10**7, np.int8) for name in "abc"})
    else:
        parquet_file(path, **votes, k=wide)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("name", "more", "end", "message"), BOMBS)
def test_a_file_that_unfolds_to_gigabytes_is_refused_in_a_line_and_free(
    name: str, more: list[str], end: str, message: str, tmp_path: Path
) -> None:
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
