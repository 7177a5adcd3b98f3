"""Identify each file of an audit by its first bytes, and read released labels piece by piece.

A folder means all files in and below it, except hidden ones. A named file of unknown format is an error; in a folder it
is listed as not judged. A ledger is never opened: its file is copied under its lock, with the journal of a crash.

A label is stored as its place among the different ones, which bounds the memory; larger files raise `TooLargeError`. No
message quotes a file: it may hold passwords. A Parquet page may claim two gigabytes in a few bytes, and damaged
metadata end the process of pyarrow: a process of its own reads such files.
"""

import csv
import fcntl
import hashlib
import json
import os
import re
import resource
import stat
import subprocess
import sys
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from io import BytesIO
from itertools import chain, groupby, islice
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tokenize import TokenError
from typing import Any, Literal, NoReturn
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from darrm.verify.formats import DIGEST_PREFIX, RECEIPT_FORMAT, RELEASE, RUN, TABLES, parse_json
from darrm.verify.verdicts import LedgerFaultError, TooLargeError

BESIDE = ("-journal", "-wal", "-shm")  # name endings of the files that SQLite leaves after a crash
Role = Literal["release", "ledger", "labels", "receipt", "notes", "figure", "other"]
_ATTEMPTS, _PAUSE = 500, 0.01  # seconds, while another process writes
_MOST_BYTES = 2**30  # of a file that is read piece by piece
_MOST_TEXT = 2**24  # of one that is read whole: tables hold kilobytes
_MOST_HELD = 2**27  # of all that are read whole, and of one ledger
_MOST_FILES = 10_000  # of a folder
_PARTITION, _HIDDEN = ".parquet", re.compile(r"(^|/)\.")
_SQLITE, _ZIP, _PARQUET = b"SQLite format 3\x00", b"PK\x03\x04", b"PAR1"
_FORMATS: dict[str, Role] = dict.fromkeys((RELEASE, RUN, *TABLES), "release")
_FORMATS |= {RECEIPT_FORMAT: "receipt", "darrm sanitized figure": "figure"}
_VOTERS_HEAD, _OF_VOTERS = b"name,epsilon,delta", "it names voters: give it with --voters"
_REPORTS = "it is what a command printed, and repeats what other files claim"
_KEY, _BESIDE = b"-----BEGIN PUBLIC KEY-----", "a key from the audited folder proves nothing: use --public-key"
_ESTIMATOR = "a saved estimator is no release; give its ledger, and the plan that it was made with"
_ABSENT = "give a table, a mechanism (plan.json), a ledger, labels, or a folder that holds them"
# other schemes and spellings of URLs, and words that may hold a password
_NO_FILE = re.compile(
    r"://|^\s*[a-z][a-z0-9+.]+:/|(password|passwd|secret|_key)\s*=|\b(host|hostaddr|dbname)\s*=", re.IGNORECASE
)
_SECRET = re.compile(r"://[^/@]*:[^/@]*@|(password|passwd|secret|_key)\s*=", re.IGNORECASE)
Sealed = tuple[str, int, str]  # the end of a name, the size in bytes, the SHA-256
LABEL = "label"  # the column that a release adds
MOST_LABELS, MOST_NUMBERED, MOST_DIFFERENT = 2**27, 2**22, 2**19
_MOST_LABEL_BYTES = 2**28  # of a .csv or .npy file
_MOST_MEMORY, _BUFFER_BYTES = 2**30, 2**16  # of the process that reads Parquet
_SHOWN = 200  # characters of a message of pyarrow
_DAMAGED, _TOO_LARGE = 2, 3  # its exit status
_READ = "from darrm.verify.files import print_labels; print_labels()"
_AT_ONCE, _ROWS_AT_ONCE, _BYTES_AT_ONCE = 2**18, 2**14, 2**20  # labels, rows of .csv with quotes, bytes
_LONGEST_LINE, _LONGEST_NAME = 2**12, 200  # bytes; characters of a label
_UNQUOTED = re.compile(r"(?!\ufeff)[^\s\",](?:[^\",\r\n]*[^\s\",])?")  # a field without quotes
_BLANK = "a line is blank: every line is an answer"
_WHOLE_NUMBER = re.compile("0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True, eq=False)
class LabelsFile:
    places: NDArray[Any]  # (Q,) of each label among the names
    names: tuple[str, ...]
    first: int | None = None  # the number of the first question, where lines are ``number,label``

    @classmethod
    def of(cls, labels: Sequence[Any] | NDArray[Any], first: int | None = None) -> "LabelsFile":
        found, whole = _Places(), np.asarray(labels)
        for start in range(0, len(whole), _AT_ONCE):
            values, which = np.unique(whole[start : start + _AT_ONCE], return_inverse=True)
            found.add(np.array([found[str(value)] for value in values.tolist()])[which])
        return found.file(first)

    @property
    def size(self) -> int:
        return int(self.places.size)

    @property
    def labels(self) -> NDArray[Any]:
        whole = all(map(_WHOLE_NUMBER.fullmatch, self.names))
        return np.asarray(np.array([int(name) if whole else name for name in self.names])[self.places])

    def digest(self, start: int = 0, stop: int | None = None) -> str:
        """Return the SHA-256 of labels as a release writes them to .csv."""
        digest, chosen = hashlib.sha256(), self.places[start:stop]
        for place in range(0, chosen.size, _AT_ONCE):
            block = chosen[place : place + _AT_ONCE]
            if isinstance(self._lines, list):
                digest.update(b"".join(map(self._lines.__getitem__, block.tolist())))
            else:
                digest.update(self._lines[block].tobytes())
        return digest.hexdigest()

    @cached_property
    def _lines(self) -> list[bytes] | NDArray[Any]:
        lines = [f"{quoted(name)}\n".encode() for name in self.names]
        return np.array(lines) if len(set(map(len, lines))) == 1 else lines


class _Places(dict[str, int]):
    """The places of labels: a new one gets the next place."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[NDArray[Any]] = []
        self.size = 0

    def __missing__(self, label: str) -> int:
        if len(self) == MOST_DIFFERENT:
            raise TooLargeError(f"it holds more than {MOST_DIFFERENT:,} different labels")
        if len(label) > _LONGEST_NAME or any("\ud800" <= character <= "\udfff" for character in label) or "\0" in label:
            raise ValueError(f"a label is no Unicode text of at most {_LONGEST_NAME} characters without zeros")
        place = self[label] = len(self)
        return place

    def add(self, places: NDArray[Any]) -> None:
        self.size += len(places)
        width = 1 if len(self) <= 256 else 4  # bytes
        if self.size * width > MOST_LABELS:
            raise TooLargeError(f"it holds more than {MOST_LABELS // width:,} labels")
        self.blocks.append(places.astype(f"u{width}"))

    def add_texts(self, labels: Sequence[str]) -> None:
        self.add(np.fromiter(map(self.__getitem__, labels), dtype=np.uint32, count=len(labels)))

    def add_column(self, column: Any) -> None:  # noqa: ANN401 (pyarrow has no types)
        """Add labels of Parquet; null text is no answer."""
        types = import_module("pyarrow").types
        encoded = column if types.is_dictionary(column.type) else column.dictionary_encode()
        names, indices = encoded.dictionary.to_pylist(), encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) <= len(names):
            raise ValueError("it is damaged: a label is none of its dictionary")
        is_text_column = types.is_string(encoded.dictionary.type) or types.is_large_string(encoded.dictionary.type)
        places = np.zeros(len(names) + 1, dtype=np.int64)
        for used in np.flatnonzero(np.bincount(indices, minlength=len(places))).tolist():
            name = None if used == len(names) else names[used]
            if name is None and not is_text_column:
                raise ValueError("there are rows without a label")
            places[used] = self["" if name is None else str(name)]
        self.add(places[indices])

    def file(self, first: int | None = None) -> LabelsFile:
        places = np.concatenate(self.blocks) if self.blocks else np.empty(0, dtype=np.uint8)
        self.blocks.clear()
        return LabelsFile(places, tuple(self), first)


def quoted(text: str) -> str:
    return text if _UNQUOTED.fullmatch(text) else '"' + text.replace('"', '""') + '"'


def read_labels(path: Path) -> LabelsFile:
    """Read released labels from a .csv or .npy file; `ValueError` if it holds anything that a release does not write.

    A .csv file may hold lines ``number,label`` in any order and with repetitions, as a stream prints them, or lines
    ``id,label`` below ``NAME,label``. A spreadsheet's line ends, byte order mark and last line break change no label.
    """
    if path.stat().st_size > _MOST_LABEL_BYTES:
        raise TooLargeError(f"{str(path)!r} holds more than {_MOST_LABEL_BYTES:,} bytes")
    try:
        if path.suffix == ".csv":
            return _of_csv(path)
        with path.open("rb") as file:
            return _of_npy(mmap(file.fileno(), 0, access=ACCESS_READ))
    except TooLargeError as error:
        raise TooLargeError(f"{str(path)!r}: {error}") from None
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{str(path)!r} is no file of labels: {error}") from None


def read_parquet_labels(paths: Sequence[Path]) -> LabelsFile:
    """Read the column ``label``, else the last one; raise as `read_labels`."""
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-c", _READ, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, check=False, env=where)  # noqa: S603 (this program)
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][: 2 * _SHOWN]
        kind = TooLargeError if done.returncode == _TOO_LARGE else ValueError
        named = message if done.returncode in {_DAMAGED, _TOO_LARGE} else ""
        raise kind(named or f"{str(paths[0])!r} is damaged, or needs more memory than an audit has")
    head, _, places = done.stdout.partition(b"\n")
    width, names = json.loads(head)
    return LabelsFile(np.frombuffer(places, dtype=f"u{width}"), tuple(names))


def print_labels() -> None:
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    with suppress(ValueError):  # a system without such limits
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY if most < 0 else min(_MOST_MEMORY, most), most))
    found, path = _Places(), ""
    try:
        parquet, errors = import_module("pyarrow.parquet"), import_module("pyarrow").ArrowException
    except ImportError:
        _fail("labels in Parquet need pyarrow: pip install pyarrow", _DAMAGED)
    try:
        for path in sys.argv[1:]:
            for column in _label_columns(parquet, path):
                found.add_column(column)
    except TooLargeError as error:
        _fail(f"{path!r}: {error}", _TOO_LARGE)
    except (ValueError, LookupError, OSError, MemoryError, errors) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0][:_SHOWN]
        _fail(f"{path!r} holds no labels: {said}", _DAMAGED)
    labels = found.file()
    sys.stdout.buffer.write(json.dumps([labels.places.itemsize, labels.names]).encode() + b"\n")
    sys.stdout.buffer.write(labels.places.data)


def _fail(message: str, status: int) -> NoReturn:
    sys.stderr.write(message)
    sys.exit(status)


def _label_columns(parquet: Any, path: str) -> Iterator[Any]:  # noqa: ANN401 (pyarrow has no types)
    schema = parquet.read_schema(path)
    if len(set(schema.names)) != len(schema.names):
        raise ValueError("two columns have one name")
    if not schema.names:
        return
    if LABEL not in schema.names and len(schema.names) > 1:
        raise ValueError(f"it has several columns, and none is named {LABEL!r}")
    column = LABEL if LABEL in schema.names else schema.names[0]
    # one long word a million times stays one
    texts = [column] if str(schema.field(column).type) in {"string", "large_string"} else []
    with parquet.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False, read_dictionary=texts) as file:
        if (left := file.metadata.num_rows) > MOST_LABELS:
            raise TooLargeError(f"it claims {left:,} rows: {MOST_LABELS:,} are read")
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=[column], use_threads=False):
            left -= batch.num_rows
            yield batch.column(0)
        if left:
            raise ValueError(f"lacks {left:,} of its rows: it is damaged")


def read_waiting(content: bytes) -> LabelsFile | None:
    try:
        return _of_npy(content)
    except ValueError:
        return None


def _of_npy(content: bytes | mmap) -> LabelsFile:
    head = BytesIO(content[: 2 * _LONGEST_LINE])
    try:
        np.lib.format.read_magic(head)
        shape, _, dtype = np.lib.format.read_array_header_1_0(head, max_header_size=_LONGEST_LINE)
    except (ValueError, TypeError, SyntaxError, EOFError, TokenError, OverflowError):  # whose messages quote the file
        raise ValueError("it does not begin as an .npy file of labels does") from None
    if len(shape) != 1 or dtype.kind not in "biufU" or not dtype.itemsize:
        raise ValueError("it is no row of numbers or text")
    if head.tell() + shape[0] * dtype.itemsize != len(content):
        raise ValueError("its header does not fit its size: it is damaged")
    labels = np.frombuffer(content, dtype, offset=head.tell()) if shape[0] else np.empty(0, dtype)
    if dtype.kind in "bU" and labels.size:  # not every pattern of bits is a boolean, or Unicode
        most, raw = (1, "u1") if dtype.kind == "b" else (sys.maxunicode, f"{dtype.str[0]}u4")
        if int(labels.view(raw).max()) > most:
            raise ValueError("its bits are no booleans, or no characters: it is damaged")
    return LabelsFile.of(labels)


def _of_csv(path: Path) -> LabelsFile:
    found, written = _Places(), hashlib.sha256()
    pieces = _pieces_of(path, written)
    numbers, beside, is_plain = list[NDArray[np.int64]](), None, True
    for piece in pieces:
        if b'"' in piece or b"," in piece:
            is_plain = False
            numbers, beside = _add_rows(found, chain([piece], pieces))
        elif b"\n\n" in piece or piece.startswith(b"\n"):
            raise ValueError(_BLANK)
        else:
            found.add_texts(piece[:-1].decode().split("\n"))
    labels = found.file()
    if numbers:
        return _in_order(labels, np.concatenate(numbers))
    if is_plain:  # each line is a label without quotes
        same = all(quoted(name) == name for name in labels.names)
    else:
        same = written.hexdigest() == (labels.digest() if beside is None else beside.hexdigest())
    if not same:
        raise ValueError("it was changed after it was written, or by another program")
    return labels


def _add_rows(found: _Places, pieces: Iterator[bytes]) -> tuple[list[NDArray[np.int64]], Any]:
    """Return the numbers of numbered rows, or the digest of lines with an id."""
    numbers, beside = list[NDArray[np.int64]](), None
    lines = (f"{line}\n" for piece in pieces for line in piece[:-1].decode().split("\n"))
    reader = csv.reader(lines, strict=True)
    while rows := list(islice(reader, _ROWS_AT_ONCE)):
        if not all(rows):
            raise ValueError(_BLANK)
        if not found.size and len(rows[0]) == 2 and rows[0][1] == LABEL and not rows[0][0].isdigit():
            beside = hashlib.sha256(f"{quoted(rows.pop(0)[0])},{LABEL}\n".encode())
        if beside is not None:
            if any(len(row) != 2 or len(row[0]) > _LONGEST_NAME for row in rows):
                raise ValueError(f"a line is no id and label of at most {_LONGEST_NAME} characters each")
            beside.update("".join(f"{quoted(name)},{quoted(label)}\n" for name, label in rows).encode())
        elif any(len(row) != 1 for row in rows):
            words = [row[0] for row in rows if len(row) == 2 and _WHOLE_NUMBER.fullmatch(row[0])]
            if len(words) < len(rows):
                raise ValueError("a line is no single label, or no number and its answer: one line is one answer")
            numbers.append(np.array(words, dtype=np.int64))
        found.add_texts([row[-1] for row in rows])
        if numbers and found.size > MOST_NUMBERED:
            raise TooLargeError(f"it holds more than {MOST_NUMBERED:,} numbered lines")
    return numbers, beside


def _pieces_of(path: Path, written: Any) -> Iterator[bytes]:  # noqa: ANN401 (of hashlib)
    """Yield whole lines, with the line ends of a release outside of quotes."""
    quotes = 0
    with path.open("rb") as file:
        rest, data = file.read(len(BOM_UTF8)).removeprefix(BOM_UTF8), b"\n"
        while data:
            data = file.read(_BYTES_AT_ONCE)
            whole, newline, rest = (rest + data).rpartition(b"\n")
            if rest and not data:  # the last line break is missing
                whole, newline, rest = rest, b"\n", b""
            if len(rest) > _LONGEST_LINE:
                raise ValueError(f"a line has more than {_LONGEST_LINE:,} bytes")
            if newline:
                parts = (whole + newline).split(b'"')
                ends = [part if (quotes + n) % 2 else part.replace(b"\r\n", b"\n") for n, part in enumerate(parts)]
                quotes, lines = quotes + len(parts) - 1, b'"'.join(ends)
                written.update(lines)
                try:
                    lines.decode()
                except UnicodeDecodeError:
                    raise ValueError("it is not in UTF-8: save it as UTF-8") from None
                yield lines


def _in_order(file: LabelsFile, numbers: NDArray[np.int64]) -> LabelsFile:
    if numbers.size != file.size:
        raise ValueError("some lines are numbered answers: then all must be")
    order = np.argsort(numbers, kind="stable")
    numbers, places = numbers[order], file.places[order]
    again = numbers[1:] == numbers[:-1]
    if np.any(again & (places[1:] != places[:-1])):
        raise ValueError("a question has two different labels")
    first = np.concatenate([[True], ~again])
    if int(numbers[-1]) - int(numbers[0]) + 1 != np.count_nonzero(first):
        raise ValueError("some numbers of questions are left out")
    return LabelsFile(places[first], file.names, int(numbers[0]))


@dataclass(frozen=True, eq=False)
class Piece:
    role: Role
    path: str
    parts: Mapping[str, bytes] = field(default_factory=dict)  # contents of the file, and next to it, by name ending
    sealed: tuple[Sealed, ...] = ()  # of files that are not in memory
    labels: LabelsFile | None = None
    is_parquet: bool = False
    reason: str = ""  # why it is not judged

    @property
    def digests(self) -> list[Sealed]:
        held = ((end, len(content), hashlib.sha256(content).hexdigest()) for end, content in self.parts.items())
        return [*self.sealed, *held]

    @property
    def content(self) -> bytes:
        return self.parts[""]

    @property
    def size(self) -> int:
        return sum(map(len, self.parts.values())) + (0 if self.labels is None else self.labels.places.nbytes)


def is_url(name: object) -> bool:
    """Whether a ledger is in a database; the `ValueError` for other URLs shows no password."""
    if not isinstance(name, str):
        return False
    is_postgres = name.startswith(("postgresql:", "postgres:"))
    if _SECRET.search(unquote(name)) if is_postgres else _NO_FILE.search(name):
        like = "a ledger is a file or a URL like postgresql://USER@HOST:PORT/DATABASE, and this is neither"
        raise ValueError(f"{like}: it is not shown, because it may hold a password. Use PGPASSWORD for passwords")
    return is_postgres


def check_regular(path: Path, most_bytes: int) -> None:
    """Raise `ValueError` for a large file, or one that is not regular: a pipe would block."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{str(path)!r} is no regular file: copy its content into a file first")
    if status.st_size > most_bytes:
        raise ValueError(f"{str(path)!r} holds {status.st_size:,} bytes, more than the {most_bytes:,} that are read")


def pieces_of(paths: Sequence[Path | str]) -> Iterator[Piece]:
    """Raise `ValueError` or `OSError` for a named path that cannot be used."""
    if not paths:
        raise ValueError(f"PATH is missing: {_ABSENT}")
    seen, held = set[str](), 0
    for path in dict.fromkeys(paths):
        if is_url(path):
            yield Piece("ledger", str(path))
            continue
        named, real = Path(path), os.path.realpath(path)
        pieces = _of_folder(named, seen) if named.is_dir() else () if real in seen else [_named(named)]
        seen.add(real)
        for piece in pieces:
            if held + piece.size > _MOST_HELD:
                reason = f"the files hold more than the {_MOST_HELD:,} bytes that one audit reads: give it alone"
                yield Piece("other", piece.path, reason=reason)
                continue
            held += piece.size
            yield piece


def _of_folder(folder: Path, seen: set[str]) -> Iterator[Piece]:
    entries = [part for part in sorted(folder.rglob("*")) if not _HIDDEN.search(part.relative_to(folder).as_posix())]
    faults = {part: fault for part in entries if (fault := _why_not(part, folder))}
    yield from (Piece("other", str(part), reason=fault) for part, fault in faults.items())
    inside = [part for part in entries if part not in faults and part.is_file()]
    if not [*inside, *faults] or len(inside) > _MOST_FILES:
        raise ValueError(f"the folder {str(folder)!r} has {len(inside):,} files, not 1 to {_MOST_FILES:,}: {_ABSENT}")
    inside = [part for part in inside if os.path.realpath(part) not in seen and not part.name.endswith(BESIDE)]
    seen |= set(map(os.path.realpath, inside))
    for (parent, are_partitions), parts in groupby(inside, key=lambda part: (part.parent, part.suffix == _PARTITION)):
        if are_partitions:
            yield _guarded(parent, partial(_of_partitions, parent, list(parts)))
        else:
            yield from (_guarded(path, partial(_named, path)) for path in parts)


def _why_not(path: Path, folder: Path) -> str:
    if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        return "it is a link that leaves the folder: name its target"
    if path.is_symlink() and not path.is_file():
        return "it is a link to a folder, or to nothing: name its target"
    return "" if path.is_file() or path.is_dir() else "it is no regular file"


def _guarded(path: Path, read_piece: Callable[[], Piece]) -> Piece:
    try:
        return read_piece()
    except (ValueError, OSError) as error:
        return Piece("other", str(path), reason=str(error))  # no digest, because nothing was read
    except Exception as error:  # noqa: BLE001 (whatever a file holds; no message, which may quote it)
        return Piece("other", str(path), reason=f"it cannot be read ({type(error).__name__})")


def _named(path: Path) -> Piece:
    check_regular(path, _MOST_BYTES)
    start = _SQLITE
    with locked(path) as is_free:  # a ledger that is being written is not even opened
        if is_free:
            with path.open("rb") as file:
                start = file.read(len(BOM_UTF8 + _VOTERS_HEAD))
    if start.startswith(_SQLITE):
        return Piece("ledger", str(path), ledger_files(path))
    if start.startswith(_PARQUET):
        return _of_partitions(path, [path])
    if path.suffix == ".csv" and start.removeprefix(BOM_UTF8).startswith(_VOTERS_HEAD):
        return _not_judged(path, _OF_VOTERS)
    if path.suffix in {".csv", ".npy"}:
        return Piece("labels", str(path), sealed=_sealed(path), labels=read_labels(path))
    return _not_judged(path, _ESTIMATOR) if start.startswith(_ZIP) else _of_text(path)


def _of_text(path: Path) -> Piece:
    if (size := path.stat().st_size) > _MOST_TEXT:
        reason = f"it holds {size:,} bytes, and {_MOST_TEXT:,} of a text are read; nothing is known of such files"
        return Piece("other", str(path), reason=reason)
    content, whole = path.read_bytes(), str(path)
    try:
        data = parse_json(content)
    except ValueError as error:
        if path.suffix == ".json":
            reason = "no UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            wanted = "give what --output of optimize or plan wrote"
            raise ValueError(f"{whole!r} holds no JSON of this project ({reason}); {wanted}") from None
        if DIGEST_PREFIX.encode() in content:  # a model card, a report, or a copied digest
            return Piece("notes", whole, {"": content})
        return _not_judged(path, _BESIDE if content.startswith(_KEY) else f"nothing is known of such files; {_ABSENT}")
    if not isinstance(data, dict):
        raise ValueError(f"{whole!r} holds no JSON object")  # noqa: TRY004 (a bad file, not a bad type)
    named = data.get("format")
    if named is None and {"warning", "table_1"} <= data.keys():
        return _not_judged(path, "it is private data: what darrm pate computed from the votes, and not to be handed on")
    if not isinstance(named, str) or named in _FORMATS or "checksum" in data:
        return Piece(_FORMATS.get(str(named), "release"), whole, {"": content})
    is_report = named.startswith("darrm ")
    return _not_judged(path, f"{_REPORTS} (format {named!r})" if is_report else "it is of a format that is not known")


def _not_judged(path: Path, reason: str) -> Piece:
    return Piece("other", str(path), sealed=_sealed(path), reason=reason)


def _of_partitions(whole: Path, paths: Sequence[Path]) -> Piece:
    sealed = [seal for path in paths for seal in _sealed(path, "" if path == whole else f"/{path.name}")]
    return Piece("labels", str(whole), sealed=tuple(sealed), labels=read_parquet_labels(paths), is_parquet=True)


def _sealed(path: Path, end: str = "") -> tuple[Sealed, ...]:
    with path.open("rb") as file:
        return ((end, os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()),)


def ledger_files(path: Path) -> dict[str, bytes]:
    """Read a ledger and its journals by name ending while no process writes; else `ValueError`."""
    real = Path(os.path.realpath(path))  # SQLite writes its journal next to the file, not next to a link to it
    for attempt in range(_ATTEMPTS):
        time.sleep(_PAUSE if attempt else 0.0)
        with locked(real) as is_free:
            if not is_free:
                continue
            before = _states(real)
            try:
                found = {end: real.with_name(real.name + end).read_bytes() for end in before}
            except FileNotFoundError:  # a journal that was just dropped
                continue
            if before == _states(real):
                return found
    raise LedgerFaultError(f"{str(path)!r} is being written all the time: verify a copy of it")


def _states(ledger: Path) -> dict[str, tuple[int, int, int]]:
    check_regular(ledger, _MOST_HELD)
    states = {}
    for end in ("", *BESIDE):
        own = ledger.with_name(ledger.name + end)
        try:
            found = own.lstat()  # one call: between two a journal may vanish by a commit
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{str(own)!r} is a link or no file, and no journal that SQLite left")
        states[end] = found.st_mtime_ns, found.st_size, found.st_ino
    return states


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock ``.NAME.lock``, if it exists; yield False if another process does.

    Closing any handle of a file drops all POSIX locks of the process, so no ledger is opened without it.
    """
    real = Path(os.path.realpath(path))
    beside = real.with_name(f".{real.name}.lock")
    try:
        handle = os.open(beside, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield True
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            is_free = os.path.samestat(os.fstat(handle), beside.stat())  # it may have been deleted since it was opened
        except (BlockingIOError, FileNotFoundError):
            is_free = False
        except OSError:  # a file system without locks
            is_free = True
        yield is_free
    finally:
        os.close(handle)
