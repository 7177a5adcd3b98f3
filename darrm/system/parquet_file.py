"""Parquet files, a stated number of rows at a time: columns in, labels out (pyarrow, the extra ``parquet``).

Which of labels (a column a voter) and counts (a column a class) a file of votes holds is said by its number of columns,
K or C, never by its entries, which are private. A vote is a whole number or a boolean, or text (a dictionary of text,
too) where the classes have names. It never changes its meaning: another number, a null or another word raises, with its
file, row and column.

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
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.errors import checks
from darrm.system.answers import MISSING, Normalize, Vocabulary
from darrm.system.extras import Untyped, require
from darrm.system.files import check_folder, check_regular
from darrm.system.sparse_counts import SparseCounts
from darrm.system.votes_file import ALREADY_THERE, Names

SUFFIX = ".parquet"
ROWS_AT_ONCE = 2**16
VALUES_AT_ONCE = 2**24
MOST_BYTES = 2**42  # of one file
LABEL = "label"  # the column that a release adds
_BUFFER_BYTES = 2**16  # for each column that is being read
_HIDDEN = (".", "_")  # how names begin that Spark, Hive and pyarrow do not read: _SUCCESS, .part-0.crc
_SHOWN = 200  # characters of what pyarrow says
_SHORT = 40  # characters of a name or a vote
_RELEASE = b"darrm.release"
_MOST_COMPARED = 256  # classes: votes on more are looked up, and counted without zeros


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
    check_folder(path)
    if os.path.lexists(path):
        raise ValueError(f"{str(path)!r} {ALREADY_THERE}")


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


@dataclass(frozen=True)
class Layout:
    """What the columns of every partition are."""

    votes: tuple[str, ...]  # columns that hold votes: K of them for labels, C for counts
    keep: tuple[str, ...]  # columns that are copied beside the labels
    voters: int | None  # K; None for counts whose rows are not known to sum to it
    classes: Names  # what the C classes are called: whole numbers, or text
    given: str  # "labels", "counts", or "answers", which have no classes
    normalize: Normalize = None  # what is done to open answers before they are counted
    missing: str = "refuse"  # what is done about open answers that are missing


def layout_of(
    path: Path,
    names: Names,
    voters: int | None = None,
    *,
    votes_format: str = "auto",
    columns: tuple[str, ...] | None = None,
    keep: tuple[str, ...] = (),
) -> Layout:
    """Return what the columns of a file are; `ValueError` if they are no votes of so many voters on these classes.

    Without ``voters`` as many columns as classes could be labels or counts, and otherwise there is a voter a column.
    Answers are open where there are no names.
    """
    _, types = rows_and_types(path)
    votes = tuple(name for name in types if name not in keep) if columns is None else columns
    for name in (*votes, *keep):
        if name not in types:
            checks.fail("the columns", name[:_SHORT], f"in {str(path)!r}", "see --columns and --keep")
    if len({*votes, *keep}) != len(votes) + len(keep) or LABEL in keep:
        advice = f"a column is votes or kept, once, and {LABEL!r} is what the labels are called"
        checks.fail("the columns", checks.Found("the same name twice"), "different", advice)
    names = tuple(name.item() if isinstance(name, np.generic) else name for name in names)
    if names and all(isinstance(name, str) for name in names) and not any(_is_text(types[name]) for name in votes):
        names = _as_numbers(names)
    if not names:
        votes_format = "answers"
    elif not all(isinstance(name, str) for name in names) and not all(isinstance(name, int) for name in names):
        checks.fail("classes", names[:5], "whole numbers, or text", "a column of labels has one type")
    given = _given(len(votes), voters, len(names)) if votes_format == "auto" else votes_format
    expected = len(names) if given == "counts" else len(votes) if voters is None else voters
    if len(votes) != expected:
        found = checks.Found(f"{len(votes)} columns in {str(path)!r}")
        advice = "name those that hold votes (--columns A,B,…), or others that do not (--keep ID)"
        one = "class" if given == "counts" else "voter"
        checks.fail("votes", found, f"{expected} columns, one a {one}", advice)
    layout = Layout(votes, keep, voters if given == "counts" else len(votes), names, given)
    check_types(path, layout)
    return layout


def check_types(path: Path, layout: Layout) -> tuple[int, tuple[str, ...]]:
    """Return how many rows a file has, and the types of its columns; `ValueError` unless they may hold such votes."""
    types = require("pyarrow").types
    rows, found = rows_and_types(path)
    for name in (*layout.votes, *layout.keep):
        if name not in found:
            checks.fail("the columns", name[:_SHORT], f"in {str(path)!r}", "every partition has the same columns")
    whole = layout.given == "counts" or any(isinstance(name, int) for name in layout.classes)
    for name in layout.votes:
        kind = found[name]
        kind = kind.value_type if types.is_dictionary(kind) else kind
        boolean = types.is_boolean(kind) and layout.given == "labels" and layout.classes == (0, 1)
        if not ((types.is_integer(kind) or boolean) if whole else _is_text(kind)):
            listed = f", of the classes {', '.join(map(str, layout.classes[:5]))}" if layout.classes else ""
            allowed = "whole numbers" if whole else f"text{listed}"
            advice = "classes that are words are named (--classes A,B), a column that is no vote is kept (--keep ID)"
            checks.fail(
                f"column {name[:_SHORT]!r} of {str(path)!r}",
                checks.Found(str(kind)[:_SHORT]),
                allowed,
                advice,
            )
    return rows, tuple(str(found[name]) for name in (*layout.votes, *layout.keep))


def kept_types(path: Path, layout: Layout) -> list[tuple[str, Any]]:
    """Return the names and the Arrow types of the columns that are kept."""
    _, types = rows_and_types(path)
    return [(name, types[name]) for name in layout.keep]


def count_batches(path: Path, layout: Layout) -> Iterator[tuple[NDArray[Any] | SparseCounts, int, Untyped]]:
    """Yield the (n, C) counts of some rows at a time, the number of the first, and the record batch they stand in.

    Labels are counted, and `ValueError` names what is no vote; counts are as they stand there.
    """
    first = 0
    for batch in record_batches(path, (*layout.votes, *layout.keep)):
        columns = [_complete(batch.column(name), path, first, name) for name in layout.votes]
        if layout.given == "labels":
            yield _counted(columns, layout, path, first), first, batch
        else:
            yield np.column_stack([_plain(column).to_numpy() for column in columns]), first, batch
        first += batch.num_rows


def answer_batches(
    path: Path, layout: Layout, vocabulary: Vocabulary | None = None
) -> Iterator[tuple[NDArray[np.int32], Vocabulary, Untyped]]:
    """Yield the (n, K) columns of open answers in a vocabulary, of their own unless one is given, and their batch."""
    first = 0
    for batch in record_batches(path, (*layout.votes, *layout.keep)):
        said = Vocabulary(layout.normalize, layout.missing) if vocabulary is None else vocabulary
        places = np.empty((batch.num_rows, len(layout.votes)), dtype=np.int32)
        for voter, name in enumerate(layout.votes):
            column = _complete(batch.column(name), path, first, name, may_miss=layout.missing == "blank")
            column = _plain(column).dictionary_encode()  # anew, for it may hold words that nobody said
            indices = column.indices.fill_null(len(column.dictionary)).to_numpy()
            try:
                columns = [*map(said.__getitem__, column.dictionary.to_pylist()), MISSING]
            except ValueError as error:  # an answer that is none, or bytes that are no text
                row = first + _first_refused(column.dictionary, indices, said)
                raise ValueError(f"{str(path)!r}, column {name[:_SHORT]!r}, row {row:,}: {error}") from error
            places[:, voter] = np.array(columns, dtype=np.int32)[indices]
        yield places, said, batch
        first += batch.num_rows


def _first_refused(words: Untyped, indices: NDArray[Any], vocabulary: Vocabulary) -> int:
    for place in range(len(words)):
        try:
            vocabulary[words[place].as_py()]
        except ValueError:
            return int(np.argmax(indices == place))
    return 0


def _given(columns: int, voters: int | None, classes: int) -> str:
    if (columns if voters is None else voters) == classes:
        raise ValueError("the votes could be labels or counts: say --votes-format labels or --votes-format counts")
    return "counts" if columns == classes else "labels"


def _as_numbers(names: Names) -> Names:
    try:
        return tuple(int(str(name)) for name in names)
    except ValueError:
        return names


def _is_text(kind: Untyped) -> bool:
    types = require("pyarrow").types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _plain(column: Untyped) -> Untyped:
    return column.dictionary_decode() if require("pyarrow").types.is_dictionary(column.type) else column


def _complete(column: Untyped, path: Path, first: int, name: str, *, may_miss: bool = False) -> Untyped:
    """Return a column of votes without nulls: this is the one place where a missing vote is seen."""
    if hasattr(column, "dictionary"):
        ends = require("pyarrow.compute").min_max(column.indices).as_py()
        if ends["min"] is not None and not 0 <= ends["min"] <= ends["max"] < len(column.dictionary):
            raise ValueError(
                f"{str(path)!r} is damaged: column {name[:_SHORT]!r} names what its dictionary does not hold"
            )
    missing = column.null_count or (hasattr(column, "dictionary") and column.dictionary.null_count)
    if missing and not may_miss and (missing := _plain(column)).null_count:
        row = first + int(np.argmax(missing.is_null().to_numpy(zero_copy_only=False)))
        advice = "leave the query out, or write .csv or .npy files (--missing coin)"
        raise ValueError(f"{str(path)!r}, row {row:,}, column {name[:_SHORT]!r} holds no vote: it is missing: {advice}")
    return column


def _places(column: Untyped, names: tuple[Untyped, ...]) -> NDArray[Untyped]:
    """Return the place among the classes of each vote, something below 0 or above C − 1 for what is none."""
    arrow = require("pyarrow")
    if arrow.types.is_dictionary(column.type):
        return np.asarray(_places(column.dictionary, names)[column.indices.to_numpy()])
    if _is_text(column.type):
        found = require("pyarrow.compute").index_in(column, value_set=_value_set(names, str(column.type)))
        return np.asarray(found.fill_null(-1).to_numpy())
    values = np.asarray(column.to_numpy(zero_copy_only=False))
    values = values.view(np.int8) if values.dtype == np.bool_ else values
    if len(names) > _MOST_COMPARED:
        index = _index(names)
        distinct, which = np.unique(values, return_inverse=True)
        return np.array([index.get(value, -1) for value in distinct.tolist()], dtype=np.int64)[which]
    if names == tuple(range(len(names))):
        return values
    places = np.full(len(values), -1)
    for place, name in enumerate(names):
        places[values == name] = place
    return places


@lru_cache(maxsize=2)
def _value_set(names: tuple[str, ...], kind: str) -> Untyped:
    return require("pyarrow").array(names, type=kind)


@lru_cache(maxsize=2)
def _index(names: tuple[object, ...]) -> dict[object, int]:
    return {name: place for place, name in enumerate(names)}


def _counted(columns: list[Any], layout: Layout, path: Path, first: int) -> NDArray[np.int64] | SparseCounts:
    """Count the votes of a batch, column by column, which is how they lie in memory: (n, C)."""
    number = len(layout.classes)
    many = number > _MOST_COMPARED
    chosen = np.empty((len(columns[0]), len(columns) if many else 0), dtype=np.int32)
    counts = np.zeros((0 if many else number, len(columns[0])), dtype=np.int32)
    for voter, (name, column) in enumerate(zip(layout.votes, columns, strict=True)):
        places = _places(column, layout.classes)
        if len(places) and (int(places.min()) < 0 or int(places.max()) >= number):
            row = int(np.argmax((places < 0) | (places >= number)))
            _no_vote(column[row], layout.classes, f"{str(path)!r}, row {first + row:,}, column {name[:_SHORT]!r}")
        if many:
            chosen[:, voter] = places
            continue
        for place in range(1, number):
            counts[place] += places == place
    if many:
        return SparseCounts.of_places(chosen, number)
    counts[0] = len(columns) - counts[1:].sum(axis=0)
    return counts.T.astype(np.int64)


def _no_vote(vote: Untyped, names: tuple[Untyped, ...], where: str) -> None:
    try:
        found = repr(str(vote.as_py())[:_SHORT])
    except UnicodeDecodeError:
        found = "bytes that are no text"
    shown = ", ".join(repr(name)[:_SHORT] for name in names[:5]) + (", …" if len(names) > 5 else "")
    advice = "name the classes (--classes A,B), or say how many there are (--classes C)"
    raise ValueError(f"{where} holds {found}, and a vote is one of {shown}: {advice}")


@contextmanager
def label_file(
    path: Path, kept: Sequence[tuple[str, Any]], classes: Sequence[object], release: str
) -> Iterator[Callable[[NDArray[Any], Any], None]]:
    """Write a file of labels beside columns that are kept; yield what adds a batch of both.

    ``classes`` are all names that a label may have: whole numbers, or text, and for open answers none; no answer is
    null. The file carries the name of the release.
    """
    arrow, parquet = require("pyarrow"), require("pyarrow.parquet")
    kind = _type_of(classes)
    schema = arrow.schema([*kept, (LABEL, kind)]).with_metadata({_RELEASE: release.encode()})
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with parquet.ParquetWriter(str(path), schema, **options) as writer:

        def write(labels: NDArray[Untyped], batch: Untyped) -> None:
            column = arrow.array(labels.tolist() if labels.dtype.kind in "UO" else labels, type=kind)
            arrays = [batch.column(name) for name, _ in kept]
            writer.write_batch(arrow.record_batch([*arrays, column], schema=schema))

        yield write


def release_and_rows(path: Path) -> tuple[str, int]:
    """Return which release wrote a file of labels, and how many rows it has; no name if none did."""
    with _opened(path) as file:
        return (file.schema_arrow.metadata or {}).get(_RELEASE, b"").decode(), int(file.metadata.num_rows)


def _type_of(classes: Sequence[object]) -> Untyped:
    arrow = require("pyarrow")
    if not classes or any(isinstance(name, str) for name in classes):
        return arrow.string()
    numbers = [int(str(name)) for name in classes]
    kinds = (np.min_scalar_type(min(number, -number - 1)) for number in numbers)  # of both signs, so none is unsigned
    return arrow.from_numpy_dtype(np.result_type(*kinds))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
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
