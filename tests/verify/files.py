"""Write files of labels, votes and archives, and a small table."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyParams, Problem, Voters, certify

TABLE = certify(Problem(Voters(3, PrivacyParams("0.2")), PrivacyParams("0.3")), NoiseFunction(3, [0.3, 0.5]))


def write_zip(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", content)


def write_parquet(path: Path, column: Any, **settings: Any) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"label": column}), path, compression="zstd", **settings)


def write_equal_rows(path: Path, rows: int, text: str) -> None:
    """Write a column with one text, once as its dictionary."""
    arrow = pytest.importorskip("pyarrow")
    column = arrow.DictionaryArray.from_arrays(arrow.array(np.zeros(rows, np.int8)), arrow.array([text]))
    write_parquet(path, column, row_group_size=rows)
