"""Read and write files of released labels: .csv, .npy and .parquet."""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from darrm.util import checks
from darrm.util.extras import Untyped, require
from darrm.util.files import sync
from darrm.util.progress import StatusLine, blocks
from darrm.votes.parquet_file import MOST_CHUNK, is_text_type, record_batches, rows_and_types
from darrm.votes.votes_file import (
    LABEL,
    LONGEST_NAME,
    MOST_REMEMBERED,
    SUFFIXES,
    Block,
    Ids,
    Labels,
    check_suffix,
    is_csv,
    is_text,
    load_npy,
    records,
)

_LABELS_AT_ONCE = 2**18  # labels per write
_UNQUOTED_FIELD = re.compile(r"(?!\ufeff)[^\s\",](?:[^\",\r\n]*[^\s\",])?")  # needs no quotes


def labels_digest(labels: Labels) -> str:
    """Return the hexadecimal SHA-256 of labels as .csv, in any format."""
    digest = hashlib.sha256()
    for piece in _format_csv(labels):
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

    A missing open-set label is an empty text.
    """
    if path.suffix.lower() == ".parquet":
        arrow = require("pyarrow")
        labels = labels if labels.dtype.kind in "iuO" else labels.astype(np.str_)
        limits = () if labels.dtype.kind in "UO" else (np.iinfo(labels.dtype).min, np.iinfo(labels.dtype).max)
        kept_columns = [] if ids is None else [(ids[0], arrow.string())]
        with label_file(path, kept_columns, limits) as write:
            write(labels, ids and arrow.record_batch([arrow.array(ids[1], arrow.string())], [ids[0]]))
    else:
        with path.open("wb") as file:
            if is_csv(path):
                file.writelines(_format_csv(labels, line, ids))
            else:  # to an object that only writes: numpy does not notice a disk that is full at the last flush
                np.lib.format.write_array(SimpleNamespace(write=file.write), as_text(labels), allow_pickle=False)
    sync(path)


def load_labels(path: Path) -> Labels:
    """Read (Q,) labels, text from .csv; `ValueError` if the file holds others."""
    check_suffix("labels", path, (*SUFFIXES, ".parquet"))
    try:
        if path.suffix.lower() == ".parquet":
            return read_label_column(path)
        return _read_csv_labels(path) if is_csv(path) else np.array(load_npy(path, dimensions=1))
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is no file of labels: {error}") from error


def _read_csv_labels(path: Path) -> Labels:
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
def _format_line(text: str) -> str:
    return quote(text) + "\n"


def _format_csv(labels: Labels, line: StatusLine | None = None, ids: Ids | None = None) -> Iterator[bytes]:
    names = iter(()) if ids is None else iter(ids[1])
    if ids is not None:
        yield f"{quote(ids[0])},{LABEL}\n".encode()
    for block in blocks(as_text(labels), _LABELS_AT_ONCE, line, "writing labels"):
        if ids is None and block.dtype.kind in "iu" and block.min() >= 0 and block.max() <= 9:
            lines = np.full((len(block), 2), ord("\n"), dtype=np.uint8)
            lines[:, 0] = block
            lines[:, 0] += ord("0")
            yield lines.tobytes()
            continue
        texts: Iterator[str] = map(_format_line, map(str, block.tolist()))
        if ids is not None:
            texts = (f"{quote(name)},{text}" for text, name in zip(texts, names, strict=False))
        yield "".join(texts).encode()


def quote(text: str) -> str:
    return text if _UNQUOTED_FIELD.fullmatch(text) else '"' + text.replace('"', '""') + '"'


@contextmanager
def label_file(
    path: Path, kept_columns: Sequence[tuple[str, Untyped]], classes: Sequence[object]
) -> Iterator[Callable[[Block, Untyped], None]]:
    """Yield a function that writes labels with the record batch of the kept columns.

    ``classes`` are all names of a label; empty for open-set answers, where null is no answer.
    """
    arrow, parquet = require("pyarrow"), require("pyarrow.parquet")
    dtype = label_type(classes)
    arrow_type = arrow.string() if dtype is None else arrow.from_numpy_dtype(dtype)
    schema = arrow.schema([*kept_columns, (LABEL, arrow_type)])
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    # pyarrow rejects some names, but accepts open files
    with path.open("wb") as file, parquet.ParquetWriter(file, schema, **options) as writer:

        def write(labels: Block, batch: Untyped) -> None:
            column = arrow.array(labels.tolist() if labels.dtype.kind in "UO" else labels, type=arrow_type)
            arrays = [_decode_column(batch.column(name), arrow_type) for name, arrow_type in kept_columns]
            writer.write_batch(arrow.record_batch([*arrays, column], schema=schema))

        yield write


def check_kept(batch: Untyped, keep: Sequence[str]) -> None:
    """Raise `ValueError`, before the debit, if kept texts are too large for memory."""
    compute = require("pyarrow.compute")
    for name in keep:
        column = batch.column(name)
        if hasattr(column, "dictionary") and is_text_type(column.dictionary.type):
            size = compute.sum(compute.binary_length(column.dictionary).take(column.indices)).as_py() or 0
            if size > MOST_CHUNK:
                raise ValueError(f"{len(column):,} rows of column {name[:40]!r} unfold to {size:,} bytes: keep another")


def _decode_column(column: Untyped, arrow_type: Untyped) -> Untyped:
    if not hasattr(column, "dictionary") or require("pyarrow").types.is_dictionary(arrow_type):
        return column
    return column.dictionary_decode().cast(arrow_type)


def read_label_column(path: Path) -> Block:
    """Read labels; a missing open-set label is an empty text."""
    arrow_type = rows_and_types(path)[1].get(LABEL)
    if arrow_type is None or not (is_text_type(arrow_type) or require("pyarrow").types.is_integer(arrow_type)):
        raise ValueError(f"it has no column {LABEL!r} of whole numbers or text")
    columns = []
    for batch in record_batches(path, [LABEL]):
        check_kept(batch, [LABEL])
        columns.append(batch.column(0))
    are_texts = is_text_type(arrow_type)
    columns = [_decode_column(column, arrow_type).fill_null("") if are_texts else column for column in columns]
    if any(column.null_count for column in columns):
        raise ValueError("there are rows without a label")
    arrays = [np.asarray(column.to_numpy(zero_copy_only=False)) for column in columns]
    labels = np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)
    return labels.astype(np.str_) if are_texts else labels


def label_type(classes: Sequence[object]) -> np.dtype[np.signedinteger[Untyped]] | None:
    """Return the smallest signed type that holds all labels; None for text."""
    if not classes or any(isinstance(name, str) for name in classes):
        return None
    numbers = [int(str(name)) for name in classes]
    return np.result_type(*(np.min_scalar_type(min(number, -number - 1)) for number in numbers))
