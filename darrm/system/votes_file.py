"""Votes and labels in files: .npy or .csv, one row a query.

A vote never changes its meaning on the way in, and a query never its place. So every line of a .csv file is a query, or
an error that names the line: there are no comments, no blank lines, no headers and, unless asked for, no missing votes
(an empty field, or NA where no class is called so). An .npy file is
mapped, not read, after its header was compared with its size; nothing in it is evaluated. What is no regular file (a
pipe, a device) is refused before it is opened.
"""

import csv
import hashlib
import math
import re
import stat
import string
import sys
from array import array
from codecs import BOM_UTF8
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np
from numpy.typing import NDArray

from darrm.errors import checks
from darrm.system.files import check_parent, replacing
from darrm.system.plain_csv import read_characters, read_words
from darrm.system.progress import StatusLine, blocks

Block = NDArray[Any]  # of votes of any type, as they are read
Labels = Block  # (Q,) names of classes: whole numbers or texts
Names = tuple[Hashable, ...]  # of the classes, in their order

SUFFIXES = (".npy", ".csv")
MOST_CSV_BYTES = 2**30  # its numbers may take four times as much memory; an .npy file is mapped and may be larger
MOST_NPY_BYTES = 2**40
LONGEST_NAME = 200  # characters of a class: labels as text take four bytes of memory for each
LONGEST_LINE = 2**24  # characters: eight million voters
_LONGEST_NUMBER = 100  # characters
_LONGEST_HEADER = 10_000  # bytes, numpy's own limit
_LINES_BETWEEN = 1000  # two words about how far the reading is
_PLAIN_NUMBERS = 1000  # whole numbers below it are looked up, not read: labels, and counts of as many voters
_PLAIN_WORD = re.compile(r"[!#-+\--~]{1,8}")  # ASCII without spaces, quotes and commas
_LABELS_AT_ONCE = 2**18  # written, as text or as they are
_MOST_REMEMBERED = 4096  # different fields whose meaning is looked up and not found again
_LEAST_COUNTED = 5  # fields: fewer that say 0, 1, 2 … may be votes, so many are the numbers of columns
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHOLE_NUMBER = re.compile("0|-?[1-9][0-9]{0,17}")
_UNQUOTED = re.compile(r"(?!\ufeff)[^\s\",](?:[^\",\r\n]*[^\s\",])?")  # needs no quotes
_OTHER_MARKS = {";": "semicolons", "\t": "tabs", " ": "spaces", "|": "bars"}  # that other programs write for commas
_MISSING = frozenset(("", "?", "-", ".", "na", "n/a", "nan", "nil", "none", "null"))  # in small letters
ALREADY_THERE = (
    "exists already: labels are paid for, and those of these votes may be in it: to release them again costs again "
    "(python -m darrm.release recover writes for nothing what was paid for and did not arrive); for other votes name "
    "another file"
)
ABSENT = ("", "NA")  # what stands for a missing vote in text, where missing votes are allowed; the others stay errors
OR_A_COIN = 'let a fair coin stand for it, of more classes a die (release --missing coin, missing="coin")'
_NPY_MAGIC = b"\x93NUMPY"
_NPY_HEADER = re.compile(
    r"\{\s*'descr':\s*'(?P<type>[<>|=]?(?:b1|[iu][1248]|f[248]|U[1-9][0-9]{0,5}))',"
    r"\s*'fortran_order':\s*(?P<fortran>True|False),"
    r"\s*'shape':\s*\((?P<shape>(?:[0-9]{1,30},\s*){0,32}(?:[0-9]{1,30})?)\),?\s*\}\s*"
)


def _check_suffix(name: str, path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        advice = "write tables of other programs as .csv with commas, arrays by numpy.save"
        checks.fail(name, str(path), "a file that ends in .npy or .csv", advice if name == "votes" else "")


def _size_of(path: Path, most_bytes: int) -> int:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is no regular file: copy what it holds into one")
    if found.st_size > most_bytes:
        raise ValueError(f"it has {found.st_size:,} bytes and at most {most_bytes:,} are read: split it or use .npy")
    return found.st_size


def check_new(path: Path) -> None:
    """Raise `ValueError` unless labels can be written to ``path`` without losing others."""
    _check_suffix("the output", path)
    check_parent(path)
    if path.exists():
        raise ValueError(f"{str(path)!r} {ALREADY_THERE}")


def is_csv(path: Path) -> bool:
    """Whether the name of a file says that it is text."""
    return path.suffix.lower() == ".csv"


def load_matrix(
    path: Path, names: Sequence[str] | None = None, line: StatusLine | None = None, *, absent: bool = False
) -> Block:
    """Read a matrix with at least one entry: numbers, or text; an .npy file is mapped, not copied.

    Where ``names`` are given a .csv file must hold these and is read as their places, 0 for the first. ``line`` shows
    how many lines of it were read. With ``absent`` the missing votes of a .csv file are read as NaN, and refused
    without. `ValueError` if the file holds no such matrix, `OSError` if it cannot be read.
    """
    _check_suffix("votes", path)
    missing = [word for word in ABSENT if absent and word not in (names or ())]
    try:
        return _read_csv(path, names, line, missing) if is_csv(path) else _map_npy(path, dimensions=2)
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is no table of votes: {error}") from error


def answer_rows(path: Path, line: StatusLine | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a table of text as they stand there, with their numbers: of lines from 1, of arrays from 0."""
    _check_suffix("votes", path)
    if is_csv(path):
        for number, fields in _records(path):
            if number == 1 and len(fields) >= _LEAST_COUNTED:
                _refuse_header(fields, {field.strip(): 0 for field in fields})  # that it numbers the columns
            if line is not None and number % _LINES_BETWEEN == 0:
                line.show(f"reading {path.name}: {number:,} lines")
            yield number, fields
        return
    matrix = _map_npy(path, dimensions=2)
    if matrix.dtype.kind != "U":
        raise ValueError(f"open answers are text, and its type is {matrix.dtype}: save an array of strings")
    for number, row in enumerate(matrix):
        yield number, row.tolist()


def listed_names(path: Path) -> tuple[str, ...]:
    """Read a long list of classes: a .csv file with one name a line."""
    names = []
    for line, fields in _records(path):
        if len(fields) != 1:
            raise ValueError(f"{str(path)!r}, line {line} has {len(fields)} fields: a line is the name of a class")
        names += fields
    return tuple(names)


def _map_npy(path: Path, *, dimensions: int) -> Block:
    size = _size_of(path, MOST_NPY_BYTES)
    with path.open("rb") as file:
        magic, version = file.read(len(_NPY_MAGIC)), file.read(2)
        length = int.from_bytes(file.read(2 if version == b"\x01\x00" else 4), "little")
        header = _NPY_HEADER.fullmatch(file.read(min(length, _LONGEST_HEADER)).decode("latin-1"))
        offset = file.tell()
    if magic != _NPY_MAGIC or version not in {b"\x01\x00", b"\x02\x00", b"\x03\x00"} or header is None:
        raise ValueError("it does not begin as an .npy file of numbers or text does: save such an array by numpy.save")
    dtype = np.dtype(header["type"])
    shape = tuple(int(length) for length in re.findall("[0-9]+", header["shape"]))
    count = math.prod(shape)
    if len(shape) != dimensions or (count == 0 and dimensions == 2):
        wanted = "a matrix with at least one entry" if dimensions == 2 else "one row"
        advice = "one row is one query, one column a voter" + ("; reshape a single row" if len(shape) == 1 else "")
        raise ValueError(f"it must hold {wanted}, got shape {shape} of type {dtype}: {advice}")
    if size - offset != count * dtype.itemsize:
        raise ValueError(
            f"its header says {shape} of type {dtype}, which does not fit its {size:,} bytes: it is damaged"
        )
    if count == 0:
        return np.empty(0, dtype=dtype)
    if dtype.kind in "bU":  # not every pattern of bits is a boolean, or Unicode
        most, raw = (1, "u1") if dtype.kind == "b" else (sys.maxunicode, f"{dtype.str[0]}u4")
        if int(np.memmap(path, dtype=raw, mode="r", offset=offset).max()) > most:
            raise ValueError(f"it holds what is nothing of type {dtype}: it is damaged")
    order: Literal["C", "F"] = "F" if header["fortran"] == "True" else "C"
    return np.asarray(np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order=order))


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    _size_of(path, MOST_CSV_BYTES)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(lines_of(file), strict=True)
        while True:
            line = reader.line_num + 1
            try:
                fields = next(reader, None)
            except csv.Error as error:
                raise ValueError(f"line {line}: {error}") from error
            if fields is None:
                return
            if not fields:
                raise ValueError(f"line {line} is blank: every line is a query")
            yield line, fields


def lines_of(file: TextIO) -> Iterator[str]:
    """Yield the lines of a text in UTF-8, none of them too long to be kept."""
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        if len(line) == LONGEST_LINE:
            raise ValueError(f"line {number} has {LONGEST_LINE:,} characters or more")
        if "\0" in line:
            raise ValueError(f"line {number} holds zero bytes, as UTF-16 does: save it as UTF-8")
        if not line.isascii() and not is_text(line):
            raise ValueError(f"line {number} is not in UTF-8: save it as UTF-8")
        yield line


def is_text(text: str) -> bool:
    r"""Whether a string is Unicode text: half a surrogate pair, which stands for bytes that are none, is not.

    >>> is_text("é"), is_text("\udce9")
    (True, False)
    """
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _read_csv(path: Path, names: Sequence[str] | None, progress: StatusLine | None, missing: Collection[str]) -> Block:
    places = None if names is None else {name: place for place, name in enumerate(names)}
    if (votes := _read_plain(path, places, progress)) is not None:  # none of them is missing
        return votes
    known: dict[str, float] = {**dict.fromkeys(missing, math.nan), **(places or {})}
    numbers: array[Any] = array("d" if names is None or missing else "i")
    width = 0
    for line, fields in _records(path):
        if progress is not None and line % _LINES_BETWEEN == 0:
            progress.show(f"reading {path.name}: {line:,} lines")
        if not width:
            width = len(fields)
            _refuse_header(fields, places, missing)
        if len(fields) != width:
            raise ValueError(f"line {line} has {len(fields)} fields, the lines before it {width}")
        end = len(numbers)
        try:
            numbers.extend(map(known.__getitem__, fields))
        except KeyError:  # a field that was not seen before
            del numbers[end:]
            numbers.extend(meanings(line, fields, known, places, missing))
    if not width:
        raise ValueError("it must hold at least one line: every line is a query")
    return np.frombuffer(numbers, dtype=numbers.typecode).reshape(-1, width)


def _read_plain(path: Path, places: dict[str, int] | None, progress: StatusLine | None) -> Block | None:
    _size_of(path, MOST_CSV_BYTES)
    names = map(str, range(_PLAIN_NUMBERS)) if places is None else filter(_PLAIN_WORD.fullmatch, places)
    meanings = {name: _meaning(name, places) for name in names}
    values = {name: int(value) for name, value in meanings.items() if value is not None}
    characters = {name: value for name, value in values.items() if len(name) == 1 and name.isalnum()}
    line = progress or StatusLine(enabled=False)

    def show(lines: int) -> None:
        line.show(f"reading {path.name}: {lines:,} lines")

    votes: Block | None = None
    if len(characters) < 255:
        votes = read_characters(path, characters, LONGEST_LINE, show)
    if votes is None:
        votes = read_words(path, values, LONGEST_LINE, show)
    if votes is not None:
        name_of = {value: name for name, value in values.items()}
        _refuse_header([name_of[vote] for vote in votes[0].tolist()], places)
    return votes


def _meaning(field: str, places: dict[str, int] | None) -> float | None:
    word = field.strip(" \t")
    if places is not None:
        return places.get(word)
    number = float(word) if len(word) <= _LONGEST_NUMBER and _NUMBER.fullmatch(word) else math.inf
    return number if math.isfinite(number) else None


def meanings(
    line: int, fields: list[str], known: dict[str, float], places: dict[str, int] | None, missing: Collection[str]
) -> list[Any]:
    """Return what each field of a line means, and remember it."""
    found = []
    for column, field in enumerate(fields, 1):
        number = math.nan if field.strip(" \t") in missing else _meaning(field, places)
        if number is None:
            raise ValueError(f"line {line}, field {column}: {_complaint(field, places, missing)}")
        if len(known) < _MOST_REMEMBERED:
            known[field] = number
        found.append(number)
    return found


def _is_missing(field: str) -> bool:
    return field.strip().lower() in _MISSING


def _complaint(field: str, places: dict[str, int] | None, missing: Collection[str]) -> str:
    if _is_missing(field) and missing:
        return f"{field!r} is no vote, and a missing one is {' or '.join(map(repr, missing))}"
    if _is_missing(field):
        advice = f"so leave other queries out, or {OR_A_COIN}"
        return f"the vote is missing ({field!r}): every voter must answer every query, {advice}"
    if places is None:
        return f"{_shown([field])} is no number; name classes that are words (--classes A,B)"
    return f"{_shown([field])} is none of the classes {_shown(places)}"


def _refuse_header(fields: list[str], places: dict[str, int] | None, missing: Collection[str] = ()) -> None:
    words = [field.strip(" \t") for field in fields]
    for mark, name in _OTHER_MARKS.items():
        parts = words[0].split(mark)
        if (
            len(words) == 1 < len(parts)
            and _meaning(words[0], places) is None
            and all(_meaning(part, places) is not None for part in parts)
        ):
            raise ValueError(f"line 1 has {name} between its votes, {_shown(words)}: write commas")
    named = all(_meaning(word, places) is _meaning(word, None) is None for word in words)
    named = named and len(set(words)) == len(words)  # labels come again, names of columns do not
    counted = words[0] in {"0", "1"} and all(word == str(i) for i, word in enumerate(words, int(words[0])))
    least = 4 if missing else 3  # fields: a vote that is missing, 0, 1 may be three votes
    if words[0] == "" and len(words) >= least and (named or words[1:] == [str(i) for i in range(len(words) - 1)]):
        advice = "delete it, and the column of row numbers: pandas' to_csv(path, header=False, index=False) writes none"
    elif named and not all(map(_is_missing, words)):
        what = "numbers; name classes that are words (--classes A,B)" if places is None else f"classes {_shown(places)}"
        advice = f"delete it if it is one; a line has, between commas, {what}"
    elif counted and len(words) >= _LEAST_COUNTED:
        advice = "delete it, for every line is a query; or use .npy if it is one"
    else:
        return
    raise ValueError(f"line 1 looks like a header: {_shown(words)}: {advice}")


def _shown(words: Collection[str]) -> str:
    return ", ".join(repr(word[:40]) for word in islice(words, 4)) + (", …" if len(words) > 4 else "")


def labels_digest(labels: Labels) -> str:
    """Return the SHA-256, in hexadecimal, of labels as `write_labels` writes them to .csv, whatever file they are in.

    >>> labels_digest(np.array([1, 0, 1]))[:16], labels_digest(np.array(["1", "0", "1"]))[:16]
    ('a714acf0208a1a2e', 'a714acf0208a1a2e')
    """
    digest = hashlib.sha256()
    for piece in _csv_pieces(labels):
        digest.update(piece)
    return digest.hexdigest()


def save_labels(path: Path, labels: Labels, line: StatusLine | None = None) -> None:
    """Write labels in one step: the file is complete or it is not there; ``line`` shows how many are written."""
    with replacing(path) as temporary:
        write_labels(temporary, labels, line)


def write_labels(path: Path, labels: Labels, line: StatusLine | None = None) -> None:
    """Write labels to a file that nobody reads yet; `load_labels` reads them back.

    A .csv file has one label a line, quoted where it holds a comma, a quote or a line break, or ends in a space. No
    answer to an open question is an empty text, in quotes where it stands alone.
    """
    with path.open("wb") as file:
        for piece in _csv_pieces(labels, line) if is_csv(path) else _npy_pieces(labels, line):
            file.write(piece)


def _npy_pieces(labels: Labels, line: StatusLine | None) -> Iterator[bytes]:
    header, labels = BytesIO(), as_text(labels)
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(labels))
    yield header.getvalue()
    for block in _label_blocks(labels, line):
        yield block.tobytes()


def _label_blocks(labels: Labels, line: StatusLine | None) -> Iterator[Labels]:
    return blocks(labels, _LABELS_AT_ONCE, line or StatusLine(enabled=False), "writing labels")


def npy_bytes(array: Block) -> bytes:
    """Return what an .npy file of an array holds.

    To a real file numpy would write by itself, and a disk that is full at the last flush would go unnoticed.
    """
    file = BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


@dataclass(frozen=True, eq=False)
class LabelsFile:
    """The labels of a file, and how it holds them."""

    labels: Labels  # (Q,) of their type from .npy, integers or text from .csv
    first: int | None = None  # the number of the first question, where lines are ``number,label``
    spelling: str = ""  # in which way the file is not to the byte what a release writes; no label differs


def load_labels(path: Path) -> Labels:
    """Read the (Q,) labels of a file, see `read_labels`."""
    return read_labels(path).labels


def read_labels(path: Path) -> LabelsFile:
    """Read what `write_labels` wrote.

    A .csv file may hold lines ``number,label`` as well, in any order and with repetitions, as a stream prints them. A
    spreadsheet's line ends, byte order mark and missing last line break change no label. Labels have the digest that
    they were written with, though 1 and "1" look alike in .csv. `ValueError` if the file says anything else than what
    would be written again (.csv) or holds no labels (.npy), `OSError` if it cannot be read.
    """
    _check_suffix("labels", path)
    try:
        return _labels_of_csv(path) if is_csv(path) else LabelsFile(np.array(_map_npy(path, dimensions=1)))
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is no file of labels: {error}") from error


def _labels_of_csv(path: Path) -> LabelsFile:
    labels = _digits_of_csv(path)
    if labels is None:
        texts: list[str] = []
        numbered: dict[int, str] = {}
        for line, fields in _records(path):
            if len(fields) == 2 and _WHOLE_NUMBER.fullmatch(fields[0]) and len(fields[1]) <= LONGEST_NAME:
                if numbered.setdefault(int(fields[0]), fields[1]) != fields[1]:
                    raise ValueError(f"line {line} gives question {fields[0]} another label than a line before")
                continue
            if len(fields) != 1 or len(fields[0]) > LONGEST_NAME:
                advice = "one line is one answer, as a release writes them"
                raise ValueError(f"line {line} is no single label of at most {LONGEST_NAME} characters: {advice}")
            texts += fields
        if numbered:
            return LabelsFile(_in_order(numbered, texts), first=min(numbered))
        labels = _typed(texts)
    return LabelsFile(labels, spelling=_spelling(path.read_bytes(), b"".join(_csv_pieces(labels))))


def _spelling(content: bytes, written: bytes) -> str:
    """Say how a file of labels differs from what a release writes; `ValueError` where the labels may differ, too."""
    if content == written:
        return ""
    marks = {"a byte order mark": content.startswith(BOM_UTF8), "CRLF line ends": b"\r\n" in content}
    plain = content.removeprefix(BOM_UTF8).replace(b"\r\n", b"\n")
    marks["no last line break"] = not plain.endswith(b"\n")
    if plain.removesuffix(b"\n") + b"\n" != written:
        raise ValueError("it was changed after it was written, or by another program")
    return ", ".join(mark for mark, is_there in marks.items() if is_there)


def _typed(texts: list[str]) -> Labels:
    whole = all(map(_WHOLE_NUMBER.fullmatch, texts))
    return np.array([int(text) for text in texts], dtype=np.int64) if whole else np.array(texts)


def _in_order(numbered: dict[int, str], others: list[str]) -> Labels:
    first = min(numbered)
    if others or max(numbered) - first + 1 != len(numbered):
        raise ValueError("some lines are numbered answers: then all must be, with no number left out")
    return _typed([numbered[number] for number in range(first, first + len(numbered))])


def _digits_of_csv(path: Path) -> NDArray[np.int64] | None:
    _size_of(path, MOST_CSV_BYTES)
    digits = {digit: int(digit) for digit in string.digits}
    found = read_characters(path, digits, 3, lambda _: None)
    return None if found is None else found[:, 0].astype(np.int64)


def as_text(labels: Labels) -> Labels:
    """Return labels of open answers as text, in which the empty string, which nobody can say, is no answer.

    >>> as_text(np.array(["None", None], dtype=object))
    array(['None', ''], dtype='<U4')
    """
    if labels.dtype != object:
        return labels
    return np.array(["" if label is None else label for label in labels], dtype=np.str_)


class _Lines(dict[str, str]):
    def __missing__(self, text: str) -> str:
        line = quoted(text) + "\n"
        if len(self) < _MOST_REMEMBERED:
            self[text] = line
        return line


def _csv_pieces(labels: Labels, line: StatusLine | None = None) -> Iterator[bytes]:
    known = _Lines()
    for block in _label_blocks(as_text(labels), line):
        if block.dtype.kind in "iu" and block.min() >= 0 and block.max() <= 9:
            lines = np.full((len(block), 2), ord("\n"), dtype=np.uint8)
            lines[:, 0] = block
            lines[:, 0] += ord("0")
            yield lines.tobytes()
        else:
            yield "".join(map(known.__getitem__, map(str, block.tolist()))).encode()


def quoted(text: str) -> str:
    """Return a field of a .csv file, in quotes where it needs them."""
    return text if _UNQUOTED.fullmatch(text) else '"' + text.replace('"', '""') + '"'
