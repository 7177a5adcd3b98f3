"""Read tables of votes in .csv, .tsv, .npy and .npz; `darrm.votes.parquet_file` reads .parquet.

Every line of a text is a query, or an error that names the line. A compressed file with too much content is an error. A
file that is not regular is never opened.
"""

import csv
import gzip
import io
import re
import stat
import sys
import zlib
from array import array
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np
from numpy.typing import NDArray

from darrm.util import checks
from darrm.util.extras import Untyped
from darrm.util.files import check_parent
from darrm.util.progress import StatusLine

Block = NDArray[Any]  # votes of any type
Labels = Block  # (Q,) names of classes: whole numbers or texts
Names = tuple[Hashable, ...]  # of the classes, in their order
Ids = tuple[str, tuple[str, ...]]  # the name of a column, and its value for each query

SUFFIXES = (".npy", ".csv")  # of labels
TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".npy", ".npz", ".parquet")  # of votes
MOST_CSV_BYTES = 2**30
MOST_NPY_BYTES = 2**40  # memory-mapped
LONGEST_NAME = 200  # characters of a class; numpy takes four bytes for each
LONGEST_LINE = 2**24  # characters: eight million voters
LABEL = "label"  # the column of labels in a file with ids
VALUES_AT_ONCE = 2**22
_MIN_UNFOLDED_BYTES, _MAX_COMPRESSION = 2**26, 64  # bytes; factor of a compressed file
_MAX_NUMBER_CHARACTERS = 100  # characters
_LINES_PER_UPDATE = 1000  # lines between two progress messages
_NUMBERS_LOOKED_UP = 1000  # smaller whole numbers are looked up, not parsed
PLAIN_WORD = re.compile(r"[!#-+\--:<-~]{0,8}")  # ASCII without spaces, quotes, commas and semicolons
MOST_REMEMBERED = 4096  # cached fields
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WORDS_FOR_MISSING = frozenset(("", "?", "-", ".", "na", "n/a", "nan", "nil", "none", "null"))  # in lower case
EXISTS_ADVICE = (
    "exists already: labels are paid for, and those of these votes may be in it: to release them again costs again "
    "(python -m darrm.release recover writes for nothing what was paid for and did not arrive); for other votes name "
    "another file"
)
_BYTES_AT_ONCE = 2**20
_MAX_WORD_BYTES = 8
_BYTE_MASKS = np.array([2 ** (8 * count) - 1 for count in range(_MAX_WORD_BYTES + 1)], dtype=np.uint64)
MISSING_WORDS = ("", "NA")  # a missing vote in text, if missing votes are allowed
COIN_ADVICE = 'let a fair coin stand for it, of more classes a die (release --missing coin, missing="coin")'


def _has_suffix(path: Path, suffixes: Sequence[str]) -> bool:
    return path.name.lower().endswith(tuple(suffixes))


def is_csv(path: Path) -> bool:
    return _has_suffix(path, (".csv",))


def is_text_table(path: Path) -> bool:
    return _has_suffix(path, TABLES[:4])


def check_suffix(name: str, path: Path, suffixes: Sequence[str]) -> None:
    if not _has_suffix(path, suffixes):
        frame = f"pandas.read_excel({path.name!r})" if path.suffix.lower().startswith(".xls") else "frame"
        advice = f"pandas writes one: {frame}.to_csv('{path.stem}.csv', index=False)" if name == "votes" else ""
        checks.fail(name, str(path), f"a file that ends in {', '.join(suffixes[:-1])} or {suffixes[-1]}", advice)


def _check_size(path: Path, max_bytes: int) -> int:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is no regular file: copy its content into one")
    if status.st_size > max_bytes:
        raise ValueError(f"it has {status.st_size:,} bytes and at most {max_bytes:,} are read: split it or use .npy")
    return status.st_size


def max_unfolded_size(size: int) -> int:
    """Return the most bytes, or votes, of a compressed file of this size."""
    return min(_MIN_UNFOLDED_BYTES + _MAX_COMPRESSION * size, MOST_CSV_BYTES)


def check_new(path: Path) -> None:
    check_suffix("the output", path, (*SUFFIXES, ".parquet"))
    if path.is_file():  # before it is opened: it may be the ledger
        raise ValueError(f"{str(path)!r} {EXISTS_ADVICE}")
    check_parent(path)


class Words(dict[str, float]):
    """The values of fields, in a bounded cache; ``code`` is their `array` type."""

    code = "d"

    def __init__(self, *, comma: bool = False) -> None:
        super().__init__()
        self.comma = comma  # the decimal mark, if semicolons separate fields

    def __missing__(self, field: str) -> float:
        value = self.meaning(field.strip(" \t"))
        if len(self) < MOST_REMEMBERED:
            self[field] = value
        return value

    def meaning(self, word: str) -> float:
        number = self.number(word)
        if number is None:
            raise ValueError(f"{quote_names([word])} is no number; name classes that are words (--classes A,B)")
        return number

    def number(self, word: str) -> float | None:
        """Read a finite decimal number, or None."""
        if self.comma and word.count(",") == 1:
            word = word.replace(",", ".")
        number = float(word) if len(word) <= _MAX_NUMBER_CHARACTERS and _NUMBER.fullmatch(word) else np.inf
        return number if np.isfinite(number) else None

    def plain(self) -> dict[str, float]:
        """Return the values of common words without spaces, quotes and separators."""
        return {str(number): number for number in range(_NUMBERS_LOOKED_UP)}


def is_missing_word(word: str) -> bool:
    return word.strip().lower() in _WORDS_FOR_MISSING


def value_blocks(
    rows: Iterable[tuple[int, Sequence[object]]],
    words: Mapping[Untyped, float],
    code: str,
    row_name: str,
    field_name: str,
) -> Iterator[Block]:
    """Yield (n, K) values of numbered rows; errors name the row and the field."""
    values: array[float] = array(code)
    width = 0
    for number, row in rows:
        width = width or len(row)
        if len(row) != width or not width:
            fields = "fields" if row_name == "line" else "answers"
            raise ValueError(f"{row_name} {number} has {len(row)} {fields}, and those before it {width}")
        try:
            values.extend(map(words.__getitem__, row))
        except (ValueError, TypeError):
            for position, field in enumerate(row, 1 if field_name == "field" else 0):
                try:
                    words[field]
                except (ValueError, TypeError) as error:
                    raise ValueError(f"{row_name} {number}, {field_name} {position}: {error}") from error
            raise
        if len(values) >= VALUES_AT_ONCE:
            yield np.frombuffer(values, dtype=code).reshape(-1, width)
            values = array(code)
    if width and len(values):
        yield np.frombuffer(values, dtype=code).reshape(-1, width)


def choose_columns(names: Sequence[str], where: str, columns: Sequence[str] | None, keep: Sequence[str]) -> list[int]:
    """Return the indices of the columns with votes; for None, of all columns that are not kept."""
    name_counts, wanted_counts = Counter(names), Counter((*keep, *(columns or ())))
    for name, times in wanted_counts.items():
        if name_counts[name] != 1:
            advice = f"{where} names the columns that --id, --columns and --keep choose"
            raise ValueError(
                f"{where}, {quote_names(names)}, names {name_counts[name]} columns {name[:40]!r}: {advice}"
            )
        if times > 1:
            checks.fail(
                "the columns", checks.Text("the same name twice"), "different", "a column holds votes or is kept"
            )
    index_of_name = {name: index for index, name in enumerate(names)}
    indices = map(index_of_name.__getitem__, columns or ())
    vote_columns = [index for index, name in enumerate(names) if name not in keep] if columns is None else [*indices]
    return vote_columns or checks.fail("the columns", checks.Text("none with votes"), "at least one")


class TextTable:
    """A text table with a line for each query.

    ``width`` is the number of columns with votes; ``header`` holds their names, empty if line 1 is a query; ``ids``
    those of the rows read so far. ``separator`` is a tab in .tsv, and a semicolon if the first line has one and no
    class does.
    """

    def __init__(
        self,
        path: Path,
        line: StatusLine | None = None,
        *,
        words: Sequence[str] = (),
        is_open: bool = False,
        columns: Sequence[str] | None = None,
        id_column: str | None = None,
    ) -> None:
        self._path, self._status_line = path, line
        with open_unfolded(path) as file:
            self._line_1 = file.readline(LONGEST_LINE)
        unquoted = re.sub(rb'"[^"]*"', b"", self._line_1)
        semicolons = b";" in unquoted and not any(";" in word for word in words) and not (is_open and b"," in unquoted)
        self.separator = "\t" if _has_suffix(path, (".tsv", ".tsv.gz")) else ";" if semicolons else ","
        first_fields = next((fields for _, fields in records(path, self.separator)), None)
        if first_fields is None:
            raise ValueError("it must hold at least one line: every line is a query")
        self._names = tuple(name.strip() for name in first_fields)
        self.header, self.width, self.ids = tuple[str, ...](), len(first_fields), list[str]()
        self._columns: list[int] | None = None
        self._id_column = id_column
        if columns is not None or id_column is not None:
            self._columns = choose_columns(self._names, "line 1", columns, () if id_column is None else (id_column,))
            self.header = tuple(self._names[index] for index in self._columns)
            self.width = len(self._columns)

    def find_header(self, classes: Collection[str]) -> None:
        """Take the first line as names if all differ and none is a number, a class or a missing vote."""
        names = {name.casefold() for name in self._names}
        vote_words = {"true", "false", *_WORDS_FOR_MISSING, *map(str.casefold, classes)}
        are_names = len(names) == self.width and not names & vote_words and not any(map(is_number, names))
        if self._columns is None and are_names:
            self.header = self._names

    def blocks(self, words: Words) -> Iterator[Block]:
        is_one_line = not re.search(rb'["\r]', self._line_1.rstrip(b"\r\n"))
        offset = (
            len(BOM_UTF8) * self._line_1.startswith(BOM_UTF8) if not self.header else len(self._line_1) * is_one_line
        )
        lines = 1 if self.header and is_one_line else 0
        if self._columns is None and (is_one_line or not self.header):
            with open_unfolded(self._path) as file:
                file.seek(offset)
                for block, size in plain_blocks(file, words.plain(), self.width, self.separator, LONGEST_LINE):
                    offset, lines = offset + size, lines + len(block)
                    self._show(lines)
                    yield block
        yield from value_blocks(self.rows(offset, lines), words, words.code, "line", "field")

    def rows(self, offset: int = 0, lines: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Yield the fields of each query, with the number of its line; ``lines`` come before byte ``offset``."""
        lines_of_file = records(self._path, self.separator, offset, lines)
        id_index = None if self._id_column is None else self._names.index(self._id_column)
        for number, fields in islice(lines_of_file, 1, None) if self.header and not lines else lines_of_file:
            if len(fields) != len(self._names):
                raise ValueError(f"line {number} has {len(fields)} fields, the lines before it {len(self._names)}")
            if number % _LINES_PER_UPDATE == 0:
                self._show(number)
            if id_index is not None:
                self.ids.append(fields[id_index])
            yield number, fields if self._columns is None else [fields[index] for index in self._columns]

    def _show(self, lines: int) -> None:
        if self._status_line is not None:
            self._status_line.show(f"reading {self._path.name}: {lines:,} lines")


def plain_blocks(
    file: BinaryIO, values: Mapping[str, float], width: int, separator: str, longest_line: int
) -> Iterator[tuple[Block, int]]:
    """Yield the (n, width) values of whole lines and their size in bytes; stop at the first block that is not plain.

    A .csv reader would find the same: known words have up to eight ASCII characters without spaces and quotes, and all
    lines of a block have as many fields.
    """
    codes = sorted((int.from_bytes(word.encode("ascii"), "little"), value) for word, value in values.items())
    keys, results = (np.array([key for key, _ in codes], dtype=np.uint64), np.array([value for _, value in codes]))
    if codes and results.dtype != np.float64:
        results = results.astype(np.min_scalar_type(-1 - results.max()))
    tail, is_end = b"", False
    while codes and not is_end:
        data = file.read(_BYTES_AT_ONCE)
        is_end = not data
        # the last line may lack its line break
        body, newline, tail = (tail + b"\n" * bool(tail), b"", b"") if is_end else (tail + data).rpartition(b"\n")
        if len(tail) >= longest_line:
            return
        if body or newline:
            lines = body + newline
            block = _look_up_values(
                lines.replace(b"\r\n", b"\n") if b"\r" in lines else lines, width, ord(separator), keys, results
            )
            if block is None:
                return
            yield block, len(lines)


def _look_up_values(data: bytes, width: int, separator: int, keys: NDArray[np.uint64], values: Block) -> Block | None:
    characters = np.frombuffer(data, dtype=np.uint8)
    if len(data) % (2 * width) == 0:
        words, separators = characters[::2].reshape(-1, width), characters[1::2].reshape(-1, width)
        if _are_lines(separators, separator):  # each field is one character, the usual case
            index_by_byte = np.full(256, -1, dtype=np.int16)
            index_by_byte[keys[(keys > 0) & (keys < 256)].astype(np.uint8)] = np.flatnonzero((keys > 0) & (keys < 256))
            indices = index_by_byte[words]
            return values[indices] if (indices >= 0).all() else None
    separator_ends = np.flatnonzero((characters == separator) | (characters == ord("\n")))
    lengths = np.diff(separator_ends, prepend=-1) - 1
    if separator_ends.size % width or not characters.all() or lengths.max() > _MAX_WORD_BYTES:
        return None
    if not _are_lines(characters[separator_ends].reshape(-1, width), separator) or (width == 1 and not lengths.all()):
        return None  # other numbers of fields, or a blank line
    # read eight bytes at every place and mask them by the word's length; no word holds a zero byte
    windows = np.ndarray(len(data), dtype="<u8", buffer=data + bytes(_MAX_WORD_BYTES), strides=(1,))
    words = windows[separator_ends - lengths] & _BYTE_MASKS[lengths]
    key_indices = np.minimum(np.searchsorted(keys, words), keys.size - 1)
    return values[key_indices].reshape(-1, width) if np.array_equal(keys[key_indices], words) else None


def _are_lines(separators: NDArray[np.uint8], separator: int) -> bool:
    return bool((separators[:, :-1] == separator).all() and (separators[:, -1] == ord("\n")).all())


@contextmanager
def name_table_in_errors(path: Path, content: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is no table of {content}: {error}") from error


def read_class_names(path: Path) -> tuple[str, ...]:
    names = []
    for line, fields in records(path):
        if len(fields) != 1:
            raise ValueError(f"{str(path)!r}, line {line} has {len(fields)} fields: a line is the name of a class")
        names += fields
    return tuple(names)


def load_npy(path: Path, *, dimensions: int) -> Block:
    """Load the one array of an .npy or .npz file without pickle; an .npy file is memory-mapped."""
    size = _check_size(path, MOST_NPY_BYTES)
    try:
        if path.suffix.lower() == ".npz":
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                array = _load_single_array(archive, size)
        else:
            array = np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # numpy and zipfile raise many kinds for damaged files
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        advice = "save such an array by numpy.save"
        raise ValueError(f"it does not begin as an .npy file of numbers or text does ({reason}): {advice}") from error
    if array.ndim != dimensions or (array.nbytes == 0 and dimensions == 2):
        requirement = "a matrix with at least one entry" if dimensions == 2 else "one row"
        advice = "one row is one query, one column a voter" + ("; reshape a single row" if array.ndim == 1 else "")
        raise ValueError(f"it must hold {requirement}, got shape {array.shape} of type {array.dtype}: {advice}")
    if array.dtype.kind not in "biufU":
        raise ValueError(f"it holds an array of type {array.dtype}: save numbers or text by numpy.save")
    if isinstance(array, np.memmap) and array.offset + array.nbytes != size:
        raise ValueError(f"its header says {array.shape} of type {array.dtype}, which does not fit its {size:,} bytes")
    if array.size and array.dtype.kind in "bU":  # some bit patterns are not valid booleans or Unicode
        max_code, code_type = (1, "u1") if array.dtype.kind == "b" else (sys.maxunicode, f"{array.dtype.str[0]}u4")
        codes = array.ravel(order="K")
        if int(codes.view(code_type).max()) > max_code:
            raise ValueError(f"it holds bytes that are nothing of type {array.dtype}: it is damaged")
    return np.asarray(array)


def _load_single_array(archive: Untyped, size: int) -> Block:
    (name,) = archive.files if len(archive.files) == 1 else (None,)
    if name is None:
        raise ValueError(f"it holds {len(archive.files)} arrays")
    if archive.zip.infolist()[0].file_size > max_unfolded_size(size):
        raise ValueError(f"it unfolds to {archive.zip.infolist()[0].file_size:,} bytes")
    return np.asarray(archive[name])


class _Gzip(gzip.GzipFile):
    """A compressed file with a limit on its uncompressed size."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")
        self._max_bytes = max_unfolded_size(_check_size(path, MOST_CSV_BYTES))

    def read(self, size: int | None = -1) -> bytes:
        return self._check_bound(super().read(size))

    def read1(self, size: int = -1) -> bytes:
        return self._check_bound(super().read1(size))

    def _check_bound(self, data: bytes) -> bytes:
        if self.tell() > self._max_bytes:
            raise ValueError(f"it unfolds to more than {self._max_bytes:,} bytes: unfold it first (gunzip -k FILE)")
        return data


@contextmanager
def open_unfolded(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file, of limited size, and unfold .gz."""
    _check_size(path, MOST_CSV_BYTES)
    try:
        with _Gzip(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            yield file  # type: ignore[misc]
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"it is no gzip file, or it is damaged ({error})") from error


def records(path: Path, separator: str = ",", offset: int = 0, lines: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Yield numbered lines as fields, from byte ``offset`` on; ``lines`` come before it."""
    blank_line = 0
    with open_unfolded(path) as file:
        file.seek(offset)
        encoding = "utf-8" if offset else "utf-8-sig"
        text = io.TextIOWrapper(file, encoding=encoding, errors="surrogateescape", newline="")
        reader = csv.reader(_read_lines(text, lines), strict=True, delimiter=separator)
        while True:
            number = lines + reader.line_num + 1
            try:
                fields = next(reader, None)
            except csv.Error as error:
                raise ValueError(f"line {number}: {error}") from error
            if fields is None:
                return
            blank_line = blank_line or (0 if fields else number)
            if fields and blank_line:  # blank lines are allowed at the end
                raise ValueError(f"line {blank_line} is blank: every line is a query")
            if fields:
                yield number, fields


def _read_lines(file: TextIO, number: int) -> Iterator[str]:
    while line := file.readline(LONGEST_LINE):
        number += 1
        check_line(line, number)
        yield line


def check_line(line: str, number: int) -> None:
    """Raise `ValueError` unless the line, decoded by ``surrogateescape``, was UTF-8."""
    if len(line) == LONGEST_LINE:
        raise ValueError(f"line {number} has {LONGEST_LINE:,} characters or more")
    if "\0" in line:
        advice = "save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"
        raise ValueError(f"line {number} holds zero bytes, as UTF-16 does: {advice}")
    if not is_text(line):
        raise ValueError(f"line {number} is not in UTF-8: save it as UTF-8 (iconv -f WINDOWS-1252 -t UTF-8)")


def is_text(text: str) -> bool:
    """Return whether a string is without lone surrogates."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def is_number(word: str) -> bool:
    """Return whether a program may read a word as a number."""
    try:
        float(word.replace(",", "."))
    except ValueError:
        return not any(map(str.isalpha, word))
    return True


def quote_names(words: Collection[str]) -> str:
    return ", ".join(repr(word[:40]) for word in islice(words, 4)) + (", …" if len(words) > 4 else "")


def npy_bytes(array: Block) -> bytes:
    """Return an .npy file; `numpy.save` to a file misses a disk that is full at the last flush."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()
