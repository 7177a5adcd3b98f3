"""Bound the memory that a Parquet file needs: read the uncompressed size of its pages from their headers.

A page of a few bytes may claim an uncompressed size of two gigabytes, and a reader allocates it. The headers are
structures of Thrift's compact protocol: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

MOST_PAGE_BYTES, _A_COLUMN = 2**27, 2**21  # uncompressed bytes of one page of each column, in total
MOST_FOOTER = 2**24  # bytes of the footer
_MOST_HEADER, _MOST_PAGES = 2**20, 2**18  # bytes; pages of a column in a row group
_MOST_DEPTH = 12
_END = b"PAR1"


def check_pages(path: Path, columns: Sequence[str]) -> None:
    """Raise `ValueError` unless a page of each of these columns fits into memory together.

    This also reads the footer: pyarrow ends the process if the metadata of a column are damaged.
    """
    largest, most = dict.fromkeys(columns, 0), max(MOST_PAGE_BYTES, _A_COLUMN * len(columns))
    with path.open("rb") as file:
        try:
            for chunk in _chunks(file):
                name = b".".join(chunk[3]).decode()
                while name not in largest and "." in name:  # a nested column
                    name = name.rpartition(".")[0]
                if name in largest:
                    largest[name] = max(largest[name], _largest_page(file, chunk))
                    if sum(largest.values()) > most:
                        what = f"pages that unfold to {sum(largest.values()):,} bytes, and {most:,} are read"
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
    if length > MOST_FOOTER:
        raise ValueError(f"{length:,} bytes describe the file, and {MOST_FOOTER:,} are read")
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
    """A reader of the compact protocol; `IndexError` at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the values of a structure by the numbers of their fields."""
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
        raise IndexError  # Parquet uses no maps

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
