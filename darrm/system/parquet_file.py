"""Parquet files, a stated number of rows at a time: columns in, labels out (pyarrow, the extra ``parquet``).

A file of 10⁸ rows is never in memory at once, however its writer cut it into row groups: at most `ROWS_AT_ONCE` rows
and `VALUES_AT_ONCE` values are decoded, and beside them stands one page of each column (a megabyte, unless the writer
was told otherwise).

Labels are written plainly encoded and uncompressed, without statistics. So how much an attempt to write them takes of
a disk does not depend on what was drawn, where classes are numbers.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.system.extras import require
from darrm.system.files import check_regular

SUFFIX = ".parquet"
ROWS_AT_ONCE = 2**16
VALUES_AT_ONCE = 2**24
MOST_BYTES = 2**42  # of one file
LABEL = "label"  # the column that a release adds
_BUFFER_BYTES = 2**16  # for each column that is being read
_HIDDEN = (".", "_")  # how names begin that Spark, Hive and pyarrow do not read: _SUCCESS, .part-0.crc
_SHOWN = 200  # characters of what pyarrow says
_RELEASE = b"darrm.release"


@dataclass(frozen=True)
class Stamp:
    """What a file was when it was read: its size in bytes and its SHA-256."""

    size: int
    sha256: str


def is_parquet(path: Path) -> bool:
    """Whether a name says that it is a Parquet file, or it is a folder, which is read as a partitioned one."""
    return path.suffix.lower() == SUFFIX or path.is_dir()


def check_absent(path: Path) -> None:
    """Raise `ValueError` unless labels can be published at ``path``, a Parquet file or a folder of them."""
    if not path.parent.is_dir():
        raise ValueError(f"the folder {str(path.parent)!r} of {str(path)!r} does not exist: create it first")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"the folder {str(path.parent)!r} of {str(path)!r} cannot be written to: name another")
    if os.path.lexists(path):
        raise ValueError(f"{str(path)!r} exists already: labels are paid for, so name another or move this one")


def partitions_of(source: Path) -> tuple[str, ...]:
    """Return the names of the Parquet files in a folder, relative to it and sorted; that of a file is its own.

    Names that begin with a dot or an underscore are left out, as Spark and Hive do. Anything else that is no Parquet
    file is refused with `ValueError`: votes in it would be lost silently.
    """
    if not source.is_dir():
        return (source.name,)
    found = []
    for folder, folders, files in os.walk(source, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
        for name in folders:
            if Path(folder, name).is_symlink():
                checks.fail("votes", str(Path(folder, name)), "no link to a folder", "move what it holds here")
        for name in files:
            path = Path(folder, name)
            if name.startswith(_HIDDEN):
                continue
            if path.suffix.lower() != SUFFIX:
                advice = "a folder of votes holds nothing else; what begins with . or _ is not read"
                checks.fail("votes", str(path), "a file that ends in .parquet", advice)
            found.append(path.relative_to(source).as_posix())
    if not found:
        checks.fail("votes", str(source), "a folder with .parquet files")
    return tuple(sorted(found))


def _raise(error: OSError) -> None:
    raise error


def stamp_of(path: Path) -> Stamp:
    """Read a regular file from end to end; `ValueError` if it is none, `OSError` if it cannot be read."""
    check_regular(path, MOST_BYTES)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Stamp(os.fstat(file.fileno()).st_size, digest)


def rows_and_types(path: Path) -> tuple[int, dict[str, Any]]:
    """Return how many rows a file says it has, and the Arrow type of each column in its order; `ValueError` if none."""
    with _opened(path) as file, _translated(path):
        schema = file.schema_arrow
        if len(set(schema.names)) != len(schema.names):
            twice = next(name for name in schema.names if schema.names.count(name) > 1)
            raise ValueError(f"{str(path)!r} has two columns {twice[:_SHOWN]!r}: their names tell columns apart")
        return int(file.metadata.num_rows), dict(zip(schema.names, schema.types, strict=True))


def record_batches(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    """Yield the rows of a file in their order, as record batches of bounded size with these columns in this order."""
    rows = max(1, min(ROWS_AT_ONCE, VALUES_AT_ONCE // max(1, len(columns))))
    with _opened(path) as file:
        batches = file.iter_batches(batch_size=rows, columns=list(columns), use_threads=False)
        while True:
            with _translated(path):
                batch = next(batches, None)
                if batch is None:
                    return
                batch = batch.select(list(columns))  # they come in the file's order
            yield batch


@contextmanager
def label_file(
    path: Path, kept: Sequence[tuple[str, Any]], classes: Sequence[object], release: str
) -> Iterator[Callable[[NDArray[Any], Any], None]]:
    """Write a file of labels beside columns that are kept; yield what adds a batch of both.

    ``classes`` are all names that a label may have: whole numbers, or text. The file carries the name of the release.
    """
    arrow, parquet = require("pyarrow"), require("pyarrow.parquet")
    kind = _type_of(classes)
    schema = arrow.schema([*kept, (LABEL, kind)]).with_metadata({_RELEASE: release.encode()})
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with parquet.ParquetWriter(str(path), schema, **options) as writer:

        def write(labels: NDArray[Any], batch: Any) -> None:  # noqa: ANN401 (a record batch)
            column = arrow.array(labels.tolist() if labels.dtype.kind == "U" else labels, type=kind)
            arrays = [batch.column(name) for name, _ in kept]
            writer.write_batch(arrow.record_batch([*arrays, column], schema=schema))

        yield write


def release_and_rows(path: Path) -> tuple[str, int]:
    """Return which release wrote a file of labels, and how many rows it has; no name if none did."""
    with _opened(path) as file:
        return (file.schema_arrow.metadata or {}).get(_RELEASE, b"").decode(), int(file.metadata.num_rows)


def _type_of(classes: Sequence[object]) -> Any:  # noqa: ANN401 (an Arrow type)
    """Return text, or the smallest whole number that holds every class: its width tells nothing of the labels."""
    arrow = require("pyarrow")
    if any(isinstance(name, str) for name in classes):
        return arrow.string()
    numbers = [int(str(name)) for name in classes]
    kinds = (np.min_scalar_type(min(number, -number - 1)) for number in numbers)  # of both signs, so none is unsigned
    return arrow.from_numpy_dtype(np.result_type(*kinds))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a Parquet file; `ValueError` for what is none, `OSError` for what cannot be read."""
    parquet = require("pyarrow.parquet")
    check_regular(path, MOST_BYTES)
    with _translated(path):
        file = parquet.ParquetFile(str(path), buffer_size=_BUFFER_BYTES, pre_buffer=False)  # not whole columns
    with file:
        yield file


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Turn what pyarrow says of damaged files into one line; what the operating system refuses stays as it is."""
    arrow = require("pyarrow")
    try:
        yield
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if getattr(error, "errno", None):
            raise
        said = (str(error).splitlines() or [type(error).__name__])[0][:_SHOWN]
        raise ValueError(f"{str(path)!r} is no Parquet file that can be read, or it is damaged: {said}") from error
