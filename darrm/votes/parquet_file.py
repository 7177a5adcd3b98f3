"""Read votes from and write labels to Parquet files in bounded memory (pyarrow, the extra ``parquet``).

The number of columns, K or C, decides between labels and counts, never the entries, which are private. One column of
lists of length n replaces n columns. Null is a missing vote.

At most `ROWS_AT_ONCE` rows, `VALUES_AT_ONCE` values, and one page of each column are decoded at once. Labels are
written without compression and statistics, so the size of a file of numbers does not depend on them.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from darrm.util import checks
from darrm.util.extras import Untyped, require
from darrm.util.files import check_folder, check_regular
from darrm.votes.answers import Vocabulary
from darrm.votes.vote_arrays import ClassLookup, VoteFormat
from darrm.votes.votes_file import EXISTS_ADVICE, LABEL, Block, choose_columns

SUFFIX = ".parquet"
ROWS_AT_ONCE = 2**16
VALUES_AT_ONCE = 2**24
MOST_BYTES = 2**42  # of one file
MOST_CHUNK = 2**28  # bytes of one column of a row group, or of kept texts
_BUFFER_BYTES = 2**16  # for each column
_HIDDEN_PREFIXES = (".", "_")  # files that Spark, Hive and pyarrow skip: _SUCCESS, .part-0.crc
_MAX_MESSAGE = 200  # characters of pyarrow's message
_MAX_NAME = 40  # characters of a name or a vote
MOST_PAGE_BYTES, _PAGE_BYTES_PER_COLUMN = 2**27, 2**21  # uncompressed bytes of one page of each column, in total
MOST_FOOTER = 2**24  # bytes of the footer
_MAX_HEADER_BYTES, _MAX_PAGES = 2**20, 2**18  # bytes; pages of a column in a row group
_MAX_DEPTH = 12
_MAGIC = b"PAR1"
Struct = dict[int, Untyped]  # a Thrift structure: numbers, bytes, lists and structures by field number


def is_parquet(path: Path) -> bool:
    """Return whether a path is a .parquet file, or a folder: a partitioned file."""
    return path.suffix.lower() == SUFFIX or path.is_dir()


def check_absent(path: Path) -> None:
    check_folder(path)
    if os.path.lexists(path):
        raise ValueError(f"{str(path)!r} {EXISTS_ADVICE}")


def list_parquet_files(source: Path) -> tuple[str, ...]:
    """Return the sorted relative names of the Parquet files in a folder, or the name of a file.

    `ValueError` for other visible files: their votes would be lost silently.
    """
    if not source.is_dir():
        return (source.name,)
    paths = []
    for folder, folders, files in os.walk(source, onerror=_reraise):
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN_PREFIXES)]
        for name in folders:
            if Path(folder, name).is_symlink():
                checks.fail("votes", str(Path(folder, name)), "no link to a folder", "move its files here")
        for name in files:
            path = Path(folder, name)
            if name.startswith(_HIDDEN_PREFIXES):
                continue
            if path.suffix.lower() != SUFFIX:
                advice = "move other files away; names that begin with . or _ are skipped"
                checks.fail("votes", str(path), "a file that ends in .parquet", advice)
            paths.append(path.relative_to(source).as_posix())
    if not paths:
        checks.fail("votes", str(source), "a folder with .parquet files")
    return tuple(sorted(paths))


def _reraise(error: OSError) -> None:
    raise error


def compute_digest(path: Path) -> str:
    """Return the SHA-256 of a regular file."""
    check_regular(path, MOST_BYTES)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def rows_and_types(path: Path, columns: Sequence[str] = ()) -> tuple[int, dict[str, Untyped]]:
    """Return the number of rows, and the Arrow type of each column in order; each of ``columns`` must be there."""
    with _open_file(path) as file, _translate_errors(path):
        schema = file.schema_arrow
        if len(set(schema.names)) != len(schema.names):
            duplicate = next(name for name in schema.names if schema.names.count(name) > 1)
            raise ValueError(
                f"{str(path)!r} has two columns {duplicate[:_MAX_MESSAGE]!r}: their names tell columns apart"
            )
        for name in columns:
            if name not in schema.names:
                checks.fail(
                    "the columns", name[:_MAX_NAME], f"in {str(path)!r}", "every partition has the same columns"
                )
        return int(file.metadata.num_rows), dict(zip(schema.names, schema.types, strict=True))


def record_batches(path: Path, columns: Sequence[str], width: int = 1) -> Iterator[Untyped]:
    """Yield batches of bounded size with these columns in this order."""
    _, types = rows_and_types(path, columns)
    rows = max(1, min(ROWS_AT_ONCE, VALUES_AT_ONCE // max(1, len(columns), width)))
    texts = [name for name in columns if is_text_type(types[name])]  # stores a repeated long word once
    with _open_file(path, texts) as file:
        with _translate_errors(path):
            check_pages(path, columns)
        remaining_rows = file.metadata.num_rows
        batches = file.iter_batches(batch_size=rows, columns=list(columns), use_threads=False)
        while True:
            with _translate_errors(path):
                batch = next(batches, None)
                if batch is None:
                    break
                batch = batch.select(list(columns))  # pyarrow yields the file's order
            remaining_rows -= batch.num_rows
            yield batch
        if remaining_rows:
            raise ValueError(f"{str(path)!r} lacks {remaining_rows:,} of its rows: it is damaged")


@dataclass(frozen=True)
class ParquetSchema:
    votes: tuple[str, ...]  # columns that hold votes: K of them for labels, C for counts
    keep: tuple[str, ...]  # columns that are copied to the output
    how: VoteFormat  # its voters are K, None for counts without a stated K; its classes are as the columns hold them
    source_format: str  # "labels", "counts", or "answers" (without classes)
    width: int = 0  # the number of votes in a column of lists, else 0


def infer_schema(
    path: Path, vote_format: VoteFormat, *, columns: tuple[str, ...] | None = None, keep: tuple[str, ...] = ()
) -> ParquetSchema:
    """Infer the schema of the votes; `ValueError` unless the columns fit the format."""
    _, types = rows_and_types(path)
    if LABEL in keep:
        checks.fail("the columns that are kept", LABEL, "other ones", "it is the name of the column of labels")
    column_names = tuple(types)
    votes = tuple(
        column_names[index] for index in choose_columns(column_names, f"the schema of {str(path)!r}", columns, keep)
    )
    names = tuple(name.item() if isinstance(name, np.generic) else name for name in vote_format.names)
    are_texts = any(is_text_type(_get_item_type(types[name])) for name in votes)
    if names and all(isinstance(name, str) for name in names) and not are_texts:
        with suppress(ValueError):
            names = tuple(int(str(name)) for name in names)
    if not all(isinstance(name, str) for name in names) and not all(isinstance(name, int) for name in names):
        checks.fail("classes", names[:5], "whole numbers, or text", "a column of labels has one type")
    list_length = 0
    if len(votes) == 1 and _get_item_type(types[votes[0]]) != types[votes[0]]:
        batch = next((batch for batch in record_batches(path, votes) if batch.num_rows), None)
        list_length = 0 if batch is None else len(batch.column(0)[0].as_py() or ())
    width = list_length or len(votes)
    are_words = are_texts and bool(ClassLookup(names).words)
    source_format = vote_format.source_format(width, are_words=are_words)
    expected = len(names) if source_format == "counts" else width if vote_format.voters is None else vote_format.voters
    if width != expected:
        description = checks.Text(f"{width} {'votes' if list_length else 'columns'} in {str(path)!r}")
        advice = "name those that hold votes (--columns A,B,…), or others that do not (--keep ID)"
        unit = "class" if source_format == "counts" else "voter"
        checks.fail("votes", description, f"{expected} columns, one a {unit}", advice)
    voters = vote_format.voters if source_format == "counts" else width
    vote_format = replace(vote_format, voters=voters, classes=names or vote_format.classes)
    schema = ParquetSchema(votes, keep, vote_format, source_format, list_length)
    check_types(path, schema)
    return schema


def check_types(path: Path, schema: ParquetSchema) -> tuple[int, tuple[str, ...]]:
    """Return the number of rows and the types; `ValueError` unless the columns may hold such votes."""
    types = require("pyarrow").types
    rows, column_types = rows_and_types(path, (*schema.votes, *schema.keep))
    for name in schema.votes:
        arrow_type = _get_item_type(column_types[name]) if schema.width else column_types[name]
        arrow_type = arrow_type.value_type if types.is_dictionary(arrow_type) else arrow_type
        is_number = types.is_integer(arrow_type) or types.is_floating(arrow_type) or types.is_decimal(arrow_type)
        is_text = is_text_type(arrow_type) and schema.source_format != "counts"
        is_other = schema.source_format == "labels" and (types.is_boolean(arrow_type) or types.is_null(arrow_type))
        if not (is_text or ((is_number or is_other) and schema.source_format != "answers")):
            class_list = f", of the classes {', '.join(map(str, schema.how.names[:5]))}" if schema.how.names else ""
            allowed = "numbers" if schema.source_format == "counts" else f"numbers or text{class_list}"
            advice = "a column that is no vote is kept (--keep ID), or others are named (--columns A,B,…)"
            checks.fail(
                f"column {name[:_MAX_NAME]!r} of {str(path)!r}",
                checks.Text(str(arrow_type)[:_MAX_NAME]),
                allowed,
                advice,
            )
    return rows, tuple(str(column_types[name]) for name in (*schema.votes, *schema.keep))


def value_batches(path: Path, schema: ParquetSchema, vocabulary: Vocabulary) -> Iterator[tuple[Block, int, Untyped]]:
    """Yield votes as in `VoteTable.blocks`, the number of their first row, and their record batch."""
    first_row, index_of = 0, None
    dtype: np.dtype[np.generic] = np.dtype(float)
    if schema.source_format == "answers":
        index_of, dtype = vocabulary.__getitem__, np.dtype(np.int32)
    elif schema.source_format == "labels":
        index_of = ClassLookup(schema.how.names, schema.how.missing).find_index
        dtype = np.min_scalar_type(-len(schema.how.names) - 1)
    for batch in record_batches(path, (*schema.votes, *schema.keep), schema.width):
        columns = [(name, batch.column(name)) for name in schema.votes]
        if schema.width:
            columns = _split_lists(columns[0][1], schema, path, first_row)
        values = np.empty((len(columns), batch.num_rows), dtype=dtype).T  # columns are contiguous
        for index, (name, column) in enumerate(columns):
            values[:, index] = _read_values(column, index_of, path, name[:_MAX_NAME], first_row)
        yield values, first_row, batch
        first_row += batch.num_rows


def _split_lists(column: Untyped, schema: ParquetSchema, path: Path, first_row: int) -> list[tuple[str, Untyped]]:
    """Turn a column of lists into columns."""
    lengths = require("pyarrow.compute").list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    if (lengths != schema.width).any():
        row = int(np.argmax(lengths != schema.width))
        content = "no list" if lengths[row] < 0 else f"{lengths[row]} votes"
        raise ValueError(f"{str(path)!r}, row {first_row + row:,} holds {content}, and the first one {schema.width}")
    items = column.flatten()
    first_items = np.arange(len(column)) * schema.width
    return [
        (f"{schema.votes[0][:_MAX_NAME]}[{index}]", items.take(first_items + index)) for index in range(schema.width)
    ]


def _read_values(
    column: Untyped, index_of: Callable[[Untyped], int] | None, path: Path, name: str, first_row: int
) -> Block:
    arrow = require("pyarrow")
    if hasattr(column, "dictionary"):
        bounds = require("pyarrow.compute").min_max(column.indices).as_py()
        if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] < len(column.dictionary):
            raise ValueError(f"{str(path)!r}, column {name!r} is damaged: it names what its dictionary does not hold")
    if index_of is None:
        column = column.dictionary_decode() if hasattr(column, "dictionary") else column
        if column.null_count:
            row = first_row + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise ValueError(f"{str(path)!r}, row {row:,}, column {name!r}: the count is missing: leave the query out")
        return np.asarray(column.cast(arrow.float64()).to_numpy(zero_copy_only=False))
    if not hasattr(column, "dictionary"):
        column = column.cast(arrow.large_string()) if is_text_type(column.type) else column
        column = column.dictionary_encode()
    words = column.dictionary
    indices = column.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
    # the dictionary may hold unused words
    used_indices = np.flatnonzero(np.bincount(indices, minlength=len(words) + 1))
    value_by_index = np.empty(len(words) + 1, dtype=np.int32)
    for index in used_indices.tolist():
        try:
            value_by_index[index] = index_of(words[index].as_py() if index < len(words) else None)
        except ValueError as error:  # not a vote, or bytes that are not text
            row = first_row + int(np.argmax(indices == index))
            reason = "it holds bytes that are no text" if isinstance(error, UnicodeDecodeError) else str(error)
            raise ValueError(f"{str(path)!r}, row {row:,}, column {name!r}: {reason}") from error
    return np.asarray(value_by_index[indices])


def _get_item_type(arrow_type: Untyped) -> Untyped:
    types = require("pyarrow").types
    is_list = types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type)
    return arrow_type.value_type if is_list else arrow_type


def is_text_type(arrow_type: Untyped) -> bool:
    types = require("pyarrow").types
    arrow_type = arrow_type.value_type if types.is_dictionary(arrow_type) else arrow_type
    return bool(types.is_string(arrow_type) or types.is_large_string(arrow_type) or str(arrow_type) == "string_view")


def to_texts(column: Untyped) -> list[str]:
    if not hasattr(column, "dictionary"):
        return ["" if value is None else str(value) for value in column.to_pylist()]
    words = [*map(str, column.dictionary.to_pylist()), ""]
    return [words[index] for index in column.indices.fill_null(len(words) - 1).to_pylist()]


@contextmanager
def _open_file(path: Path, texts: Sequence[str] = ()) -> Iterator[Untyped]:
    parquet = require("pyarrow.parquet")
    check_regular(path, MOST_BYTES)
    with _translate_errors(path):
        file = parquet.ParquetFile(str(path), buffer_size=_BUFFER_BYTES, pre_buffer=False, read_dictionary=list(texts))
    with file:
        yield file


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Turn pyarrow's errors into one line; pass the operating system's on."""
    arrow = require("pyarrow")
    try:
        yield
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if getattr(error, "errno", None):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0][:_MAX_MESSAGE]
        raise ValueError(f"{str(path)!r} is no Parquet file that can be read, or it is damaged: {reason}") from error


def check_pages(path: Path, columns: Sequence[str]) -> None:
    """Raise `ValueError` unless one page of each column fits into memory together, and the footer is whole.

    pyarrow ends the process if the metadata of a column are damaged.
    """
    largest, max_bytes = dict.fromkeys(columns, 0), max(MOST_PAGE_BYTES, _PAGE_BYTES_PER_COLUMN * len(columns))
    with path.open("rb") as file:
        try:
            for chunk in _read_chunks(file):
                name = b".".join(chunk[3]).decode()
                while name not in largest and "." in name:  # a nested column
                    name = name.rpartition(".")[0]
                if name in largest:
                    largest[name] = max(largest[name], _find_largest_page(file, chunk))
                    if sum(largest.values()) > max_bytes:
                        problem = f"pages that unfold to {sum(largest.values()):,} bytes, and {max_bytes:,} are read"
                        raise ValueError(f"{str(path)!r} holds {problem}: write it with pages of a megabyte")
        except (IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError):
            raise ValueError(f"{str(path)!r} is damaged: its columns are not described as Parquet does it") from None


def _read_chunks(file: BinaryIO) -> list[Struct]:
    """Return the metadata of all columns by the numbers of their fields."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > size - 8:
        raise IndexError
    if length > MOST_FOOTER:
        raise ValueError(f"{length:,} bytes describe the file, and {MOST_FOOTER:,} are read")
    file.seek(size - 8 - length)
    footer = _ThriftReader(file.read(length)).read_struct()
    return [column[3] for group in footer.get(4, []) for column in group[1]]


def _find_largest_page(file: BinaryIO, chunk: Struct) -> int:
    offset = min((page_offset for page_offset in (chunk.get(11), chunk[9]) if page_offset), default=0)
    end, largest, pages = offset + chunk[7], 0, 0
    while offset < end and pages < _MAX_PAGES:
        pages += 1
        header, length = _read_page_header(file, offset)
        unfolded_size, stored_size = header[2], header[3]
        if unfolded_size < 0 or stored_size < 0:
            raise ValueError("a page has a negative size")
        largest, offset = max(largest, unfolded_size), offset + length + stored_size
    if offset < end:
        raise ValueError(f"a column of a row group has more than {_MAX_PAGES:,} pages")
    return largest


def _read_page_header(file: BinaryIO, offset: int) -> tuple[Struct, int]:
    for length in (256, _MAX_HEADER_BYTES):  # it may hold long statistics
        file.seek(offset)
        header = _ThriftReader(file.read(length))
        try:
            return header.read_struct(), header.offset
        except IndexError:
            continue
    raise ValueError("a page's header is damaged, or longer than a megabyte")


class _ThriftReader:
    """A reader of the compact protocol; `IndexError` at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.offset = data, 0

    def read_struct(self, depth: int = 0) -> Struct:
        """Return the values of a structure by the numbers of their fields."""
        fields, field = Struct(), 0
        while kind := self._read_byte():
            field = field + (kind >> 4) if kind >> 4 else self._read_integer()
            fields[field] = kind & 15 == 1 if kind & 15 in {1, 2} else self._read_value(kind & 15, depth)
        return fields

    def _read_value(self, kind: int, depth: int) -> Untyped:
        if depth > _MAX_DEPTH:
            raise IndexError
        if kind in {1, 2, 3}:
            return self._read_byte()
        if kind in {4, 5, 6}:
            return self._read_integer()
        if kind in {7, 8}:
            length = 8 if kind == 7 else self._read_varint()
            if self.offset + length > len(self.data):
                raise IndexError
            self.offset += length
            return self.data[self.offset - length : self.offset]
        if kind in {9, 10}:
            head = self._read_byte()
            size = self._read_varint() if head >> 4 == 15 else head >> 4
            return [self._read_value(head & 15, depth + 1) for _ in range(size)]
        if kind == 12:
            return self.read_struct(depth + 1)
        raise IndexError  # Parquet uses no maps

    def _read_byte(self) -> int:
        self.offset += 1
        return self.data[self.offset - 1]

    def _read_varint(self) -> int:
        value = shift = 0
        while (byte := self._read_byte()) & 128:
            value, shift = value | (byte & 127) << shift, shift + 7
            if shift > 63:
                raise IndexError
        return value | byte << shift

    def _read_integer(self) -> int:
        value = self._read_varint()
        return (value >> 1) ^ -(value & 1)
