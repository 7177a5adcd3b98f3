"""Read the labels of a Parquet file, a bounded number of rows at a time.

The decompressed size of each page is checked first: the header of a page of a few bytes may claim two gigabytes, and
pyarrow allocates them. The footer is checked as well, because pyarrow ends the process if the metadata of a column are
damaged. Both are structures of Thrift's compact protocol: https://github.com/apache/parquet-format
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

LABEL = "label"  # the column that a release adds
_MOST_PAGE_BYTES = 2**27  # of a decompressed page
_MOST_FOOTER = 2**24  # bytes that describe a file
_MOST_HEADER, _MOST_PAGES = 2**20, 2**18  # bytes, of a column in a row group
_MOST_DEPTH = 12
_ROWS_AT_ONCE, _BUFFER_BYTES = 2**16, 2**16
_MOST_ROWS = 2**27
_SHOWN = 200  # characters of a message of pyarrow
_END = b"PAR1"


def pyarrow(name: str = "pyarrow") -> Any:  # noqa: ANN401 (pyarrow has no types)
    """Import pyarrow, or raise `ValueError` with the command that installs it."""
    try:
        return import_module(name)
    except ImportError:
        raise ValueError("labels in Parquet need pyarrow: pip install pyarrow") from None


def label_columns(path: Path) -> Iterator[Any]:
    """Yield the column ``label``, else the last one, a number of rows at a time; `ValueError` if it cannot be read."""
    _check_pages(path, "")  # the footer alone
    with _opened(path, []) as file:
        schema = file.schema_arrow
        if len(set(schema.names)) != len(schema.names):
            raise ValueError(f"{str(path)!r} has two columns of one name")
        if file.metadata.num_rows > _MOST_ROWS:
            raise ValueError(
                f"{str(path)!r} says that it holds {file.metadata.num_rows:,} rows: {_MOST_ROWS:,} are read"
            )
        column = LABEL if LABEL in schema.names else schema.names[-1] if schema.names else None
        is_text = column is not None and str(schema.field(column).type) in {"string", "large_string"}
    if column is None:
        return
    _check_pages(path, column)
    with _opened(path, [column] if is_text else []) as file:  # one long word a million times stays one
        left = file.metadata.num_rows
        batches = file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=[column], use_threads=False)
        while True:
            with _translated(path):
                batch = next(batches, None)
            if batch is None:
                break
            left -= batch.num_rows
            yield batch.column(0)
        if left:
            raise ValueError(f"{str(path)!r} lacks {left:,} of its rows: it is damaged")


@contextmanager
def _opened(path: Path, texts: list[str]) -> Iterator[Any]:
    with _translated(path):
        files = pyarrow("pyarrow.parquet")
        file = files.ParquetFile(str(path), buffer_size=_BUFFER_BYTES, pre_buffer=False, read_dictionary=texts)
    with file:
        yield file


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except (pyarrow().ArrowException, OSError, UnicodeDecodeError) as error:
        if getattr(error, "errno", None):
            raise
        said = (str(error).splitlines() or [type(error).__name__])[0][:_SHOWN]
        raise ValueError(f"{str(path)!r} is no Parquet file that can be read, or it is damaged: {said}") from error


def _check_pages(path: Path, column: str) -> None:
    """Raise `ValueError` unless every page of a column fits into memory."""
    with path.open("rb") as file:
        try:
            for chunk in _chunks(file):
                name = b".".join(chunk[3]).decode()
                if column and (name == column or name.startswith(f"{column}.")):
                    largest = _largest_page(file, chunk)
                    if largest > _MOST_PAGE_BYTES:
                        what = f"a page that unfolds to {largest:,} bytes, and {_MOST_PAGE_BYTES:,} are read"
                        raise ValueError(f"{str(path)!r} holds {what}: write it with pages of a megabyte")
        except (IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError):
            raise ValueError(f"{str(path)!r} is damaged: its columns are not described as Parquet does it") from None


def _chunks(file: BinaryIO) -> list[dict[int, Any]]:
    """Return the metadata of each column of each row group, by the numbers of their fields."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != _END or length > size - 8:
        raise IndexError
    if length > _MOST_FOOTER:
        raise ValueError(f"{length:,} bytes describe the file, and {_MOST_FOOTER:,} are read")
    file.seek(size - 8 - length)
    footer = _Thrift(file.read(length)).struct()
    return [column[3] for group in footer.get(4, []) for column in group[1]]


def _largest_page(file: BinaryIO, chunk: dict[int, Any]) -> int:
    at = min((offset for offset in (chunk.get(11), chunk[9]) if offset), default=0)
    end, largest, pages = at + chunk[7], 0, 0
    while at < end and pages < _MOST_PAGES:
        pages += 1
        header, length = _page_header(file, at)
        unfolded, stored = header[2], header[3]
        if unfolded < 0 or stored < 0:
            raise ValueError("a page has a negative size")
        largest, at = max(largest, unfolded), at + length + stored
    if at < end:
        raise ValueError(f"a column of a row group has more than {_MOST_PAGES:,} pages")
    return largest


def _page_header(file: BinaryIO, at: int) -> tuple[dict[int, Any], int]:
    for length in (256, _MOST_HEADER):  # it may hold long statistics
        file.seek(at)
        header = _Thrift(file.read(length))
        try:
            return header.struct(), header.at
        except IndexError:
            continue
    raise ValueError("a page's header is damaged, or longer than a megabyte")


class _Thrift:
    """A reader of the compact protocol; `IndexError` if the bytes end too early."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read a structure; return its values by the numbers of their fields."""
        fields, field = dict[int, Any](), 0
        while kind := self._byte():
            field = field + (kind >> 4) if kind >> 4 else self._integer()
            fields[field] = kind & 15 == 1 if kind & 15 in {1, 2} else self._value(kind & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:  # noqa: ANN401 (a number, bytes, a list or fields)
        if depth > _MOST_DEPTH:
            raise IndexError
        if kind in {1, 2, 3}:
            return self._byte()
        if kind in {4, 5, 6}:
            return self._integer()
        if kind in {7, 8}:
            return self._bytes(8 if kind == 7 else self._varint())
        if kind in {9, 10}:
            head = self._byte()
            size = self._varint() if head >> 4 == 15 else head >> 4
            return [self._value(head & 15, depth + 1) for _ in range(size)]
        if kind == 12:
            return self.struct(depth + 1)
        raise IndexError  # a map, which Parquet does not use

    def _bytes(self, length: int) -> bytes:
        if self.at + length > len(self.data):
            raise IndexError
        self.at += length
        return self.data[self.at - length : self.at]

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value, shift = value | (byte & 127) << shift, shift + 7
            if shift > 63:
                raise IndexError
        return value | byte << shift

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
