"""Read and write files of released labels: .csv, .npy and .parquet."""

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from darrm.util import checks
from darrm.util.files import sync
from darrm.util.progress import StatusLine, blocks
from darrm.votes.parquet_file import read_label_column, write_label_column
from darrm.votes.votes_file import (
    LABEL,
    LONGEST_NAME,
    MOST_REMEMBERED,
    SUFFIXES,
    Ids,
    Labels,
    check_suffix,
    is_csv,
    is_text,
    load_npy,
    records,
)

_LABELS_AT_ONCE = 2**18  # labels per write
_UNQUOTED = re.compile(r"(?!\ufeff)[^\s\",](?:[^\",\r\n]*[^\s\",])?")  # needs no quotes


def labels_digest(labels: Labels) -> str:
    """Return the hexadecimal SHA-256 of labels as .csv, whatever the format of their file.

    >>> labels_digest(np.array([1, 0, 1]))[:16], labels_digest(np.array(["1", "0", "1"]))[:16]
    ('a714acf0208a1a2e', 'a714acf0208a1a2e')
    """
    digest = hashlib.sha256()
    for piece in _csv_pieces(labels):
        digest.update(piece)
    return digest.hexdigest()


def check_ids(path: Path, ids: Ids | None) -> None:
    if ids is None:
        return
    name, values = ids
    if path.suffix.lower() == ".npy":
        checks.fail("the output", str(path), "a .csv or .parquet file for ids (--id)", "an .npy file has no column")
    if name in {"", LABEL} or name.isdigit() or not name.isprintable():
        checks.fail("the name of the column of ids (--id)", name[:LONGEST_NAME], f"a word other than {LABEL!r}")
    for row, text in enumerate(values):
        if len(text) > LONGEST_NAME or not is_text(text) or "\0" in text:
            checks.fail(f"the id of row {row}", text[:40], f"Unicode text of at most {LONGEST_NAME} characters")


def save_labels(path: Path, labels: Labels, line: StatusLine | None = None, ids: Ids | None = None) -> None:
    """Write labels durably to a temporary file; ids are the first column of .csv and .parquet, which has a header then.

    In .csv a label is quoted if it holds a comma, a quote or a line break, or ends in a space; a missing open-set label
    is an empty text.
    """
    if path.suffix.lower() == ".parquet":
        write_label_column(path, labels, ids)
    else:
        with path.open("wb") as file:
            if is_csv(path):
                file.writelines(_csv_pieces(labels, line, ids))
            else:  # to an object that only writes: numpy does not notice a disk that is full at the last flush
                np.lib.format.write_array(SimpleNamespace(write=file.write), as_text(labels), allow_pickle=False)
    sync(path)


def load_labels(path: Path) -> Labels:
    """Read (Q,) labels, text from .csv; `ValueError` if the file holds others."""
    check_suffix("labels", path, (*SUFFIXES, ".parquet"))
    try:
        if path.suffix.lower() == ".parquet":
            return read_label_column(path)
        return _labels_of_csv(path) if is_csv(path) else np.array(load_npy(path, dimensions=1))
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is no file of labels: {error}") from error


def _labels_of_csv(path: Path) -> Labels:
    rows = list(records(path))
    width = 2 if rows and len(rows[0][1]) == 2 and rows[0][1][1] == LABEL else 1  # with ids
    for line, fields in rows:
        if len(fields) != width or len(fields[-1]) > LONGEST_NAME:
            raise ValueError(f"line {line} is no single label of at most {LONGEST_NAME} characters")
    return np.array([fields[-1] for _, fields in rows[width - 1 :]], dtype=np.str_)


def as_text(labels: Labels) -> Labels:
    if labels.dtype != object:
        return labels
    return np.array(["" if label is None else label for label in labels], dtype=np.str_)


@lru_cache(MOST_REMEMBERED)
def _line(text: str) -> str:
    return quoted(text) + "\n"


def _csv_pieces(labels: Labels, line: StatusLine | None = None, ids: Ids | None = None) -> Iterator[bytes]:
    names = iter(()) if ids is None else iter(ids[1])
    if ids is not None:
        yield f"{quoted(ids[0])},{LABEL}\n".encode()
    for block in blocks(as_text(labels), _LABELS_AT_ONCE, line, "writing labels"):
        if ids is None and block.dtype.kind in "iu" and block.min() >= 0 and block.max() <= 9:
            lines = np.full((len(block), 2), ord("\n"), dtype=np.uint8)
            lines[:, 0] = block
            lines[:, 0] += ord("0")
            yield lines.tobytes()
            continue
        texts: Iterator[str] = map(_line, map(str, block.tolist()))
        if ids is not None:
            texts = (f"{quoted(name)},{text}" for text, name in zip(texts, names, strict=False))
        yield "".join(texts).encode()


def quoted(text: str) -> str:
    return text if _UNQUOTED.fullmatch(text) else '"' + text.replace('"', '""') + '"'
