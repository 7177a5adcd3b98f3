"""Identify each file of an audit by its first bytes, and read released labels piece by piece.

A folder means all files in and below it, except hidden ones. A named file of unknown format is an error; in a folder it
is listed as not judged. A ledger is never opened: its file is copied under its lock, with the journal of a crash.

A label is stored as an index of the different labels, which bounds the memory; larger files raise `TooLargeError`. No
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
from numpy.typing import ArrayLike, NDArray

from darrm.verify.formats import DIGEST_PREFIX, RECEIPT_FORMAT, RELEASE, RUN, TABLES, parse_json
from darrm.verify.verdicts import LedgerFaultError, TooLargeError

JOURNAL_ENDINGS = ("-journal", "-wal", "-shm")  # name endings of the files that SQLite leaves after a crash
Role = Literal["release", "ledger", "labels", "receipt", "notes", "figure", "other"]
_MAX_ATTEMPTS, _PAUSE_SECONDS = 500, 0.01  # seconds, while another process writes
_MAX_BYTES = 2**30  # of a file that is read piece by piece
_MAX_TEXT_BYTES = 2**24  # of one that is read whole: tables hold kilobytes
_MAX_TOTAL_BYTES = 2**27  # of all that are read whole, and of one ledger
_MAX_FILES = 10_000  # of a folder
_PARQUET_SUFFIX, _HIDDEN = ".parquet", re.compile(r"(^|/)\.")
_SQLITE, _ZIP, _PARQUET = b"SQLite format 3\x00", b"PK\x03\x04", b"PAR1"
_FORMATS: dict[str, Role] = dict.fromkeys((RELEASE, RUN, *TABLES), "release")
_FORMATS |= {RECEIPT_FORMAT: "receipt", "darrm sanitized figure": "figure"}
_VOTERS_HEADER, _VOTERS_REASON = b"name,epsilon,delta", "it names voters: give it with --voters"
_REPORT_REASON = "it is what a command printed, and repeats what other files claim"
_KEY_START, _KEY_REASON = (
    b"-----BEGIN PUBLIC KEY-----",
    "a key from the audited folder proves nothing: use --public-key",
)
_ESTIMATOR_REASON = "a saved estimator is no release; give its ledger, and the plan that it was made with"
_PATH_ADVICE = "give a table, a mechanism (plan.json), a ledger, labels, or a folder that holds them"
# other schemes and spellings of URLs, and words that may hold a password
_OTHER_URL = re.compile(
    r"://|^\s*[a-z][a-z0-9+.]+:/|(password|passwd|secret|_key)\s*=|\b(host|hostaddr|dbname)\s*=", re.IGNORECASE
)
_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@|(password|passwd|secret|_key)\s*=", re.IGNORECASE)
FileDigest = tuple[str, int, str]  # the end of a name, the size in bytes, the SHA-256
LABEL = "label"  # the column that a release adds
MAX_LABELS, MAX_NUMBERED, MAX_DISTINCT = 2**27, 2**22, 2**19
_MAX_LABEL_BYTES = 2**28  # of a .csv or .npy file
_MAX_PROCESS_BYTES, _BUFFER_BYTES = 2**30, 2**16  # of the process that reads Parquet
_MAX_MESSAGE_LENGTH = 200  # characters of a message of pyarrow
_STATUS_DAMAGED, _STATUS_TOO_LARGE = 2, 3  # its exit status
_READER_CODE = "from darrm.verify.files import print_labels; print_labels()"
_LABELS_PER_BLOCK, _ROWS_PER_BLOCK, _BYTES_PER_BLOCK = 2**18, 2**14, 2**20  # labels, rows of .csv with quotes, bytes
_MAX_LINE_BYTES, _MAX_NAME_LENGTH = 2**12, 200  # bytes; characters of a label
_UNQUOTED = re.compile(r"(?!\ufeff)[^\s\",](?:[^\",\r\n]*[^\s\",])?")  # a field without quotes
_BLANK_REASON = "a line is blank: every line is an answer"
_WHOLE_NUMBER = re.compile("0|-?[1-9][0-9]{0,17}")
Indices = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class LabelsFile:
    places: Indices  # (Q,) the index of each label in ``names``
    names: tuple[str, ...]
    first: int | None = None  # the number of the first question, where lines are ``number,label``

    @classmethod
    def of(cls, labels: ArrayLike, first: int | None = None) -> "LabelsFile":
        collector, array = _LabelPlaces(), np.asarray(labels)
        for start in range(0, len(array), _LABELS_PER_BLOCK):
            values, inverse = np.unique(array[start : start + _LABELS_PER_BLOCK], return_inverse=True)
            collector.add(np.array([collector[str(value)] for value in values.tolist()])[inverse])
        return collector.file(first)

    @property
    def size(self) -> int:
        return int(self.places.size)

    @property
    def labels(self) -> NDArray[np.generic]:
        are_numbers = all(map(_WHOLE_NUMBER.fullmatch, self.names))
        return np.asarray(np.array([int(name) if are_numbers else name for name in self.names])[self.places])

    def digest(self, start: int = 0, stop: int | None = None) -> str:
        """Return the SHA-256 of labels as a release writes them to .csv."""
        digest, selection = hashlib.sha256(), self.places[start:stop]
        for first in range(0, selection.size, _LABELS_PER_BLOCK):
            block = selection[first : first + _LABELS_PER_BLOCK]
            if isinstance(self._lines, list):
                digest.update(b"".join(map(self._lines.__getitem__, block.tolist())))
            else:
                digest.update(self._lines[block].tobytes())
        return digest.hexdigest()

    @cached_property
    def _lines(self) -> list[bytes] | NDArray[np.bytes_]:
        lines = [f"{quote_field(name)}\n".encode() for name in self.names]
        return np.array(lines) if len(set(map(len, lines))) == 1 else lines


class _LabelPlaces(dict[str, int]):
    """The index of each label, in the order of first appearance."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[Indices] = []
        self.size = 0

    def __missing__(self, label: str) -> int:
        if len(self) == MAX_DISTINCT:
            raise TooLargeError(f"it holds more than {MAX_DISTINCT:,} different labels")
        if (
            len(label) > _MAX_NAME_LENGTH
            or any("\ud800" <= character <= "\udfff" for character in label)
            or "\0" in label
        ):
            raise ValueError(f"a label is no Unicode text of at most {_MAX_NAME_LENGTH} characters without zeros")
        index = self[label] = len(self)
        return index

    def add(self, places: Indices) -> None:
        self.size += len(places)
        width = 1 if len(self) <= 256 else 4  # bytes
        if self.size * width > MAX_LABELS:
            raise TooLargeError(f"it holds more than {MAX_LABELS // width:,} labels")
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
        for entry in np.flatnonzero(np.bincount(indices, minlength=len(places))).tolist():
            name = None if entry == len(names) else names[entry]
            if name is None and not is_text_column:
                raise ValueError("there are rows without a label")
            places[entry] = self["" if name is None else str(name)]
        self.add(places[indices])

    def file(self, first: int | None = None) -> LabelsFile:
        places = np.concatenate(self.blocks) if self.blocks else np.empty(0, dtype=np.uint8)
        self.blocks.clear()
        return LabelsFile(places, tuple(self), first)


def quote_field(text: str) -> str:
    return text if _UNQUOTED.fullmatch(text) else '"' + text.replace('"', '""') + '"'


def read_labels(path: Path) -> LabelsFile:
    """Read released labels from a .csv or .npy file; `ValueError` if it holds anything that a release does not write.

    A .csv file may hold lines ``number,label`` in any order and with repetitions, as a stream prints them, or lines
    ``id,label`` below ``NAME,label``. A spreadsheet's line ends, byte order mark and last line break change no label.
    """
    if path.stat().st_size > _MAX_LABEL_BYTES:
        raise TooLargeError(f"{str(path)!r} holds more than {_MAX_LABEL_BYTES:,} bytes")
    try:
        if path.suffix == ".csv":
            return _read_csv(path)
        with path.open("rb") as file:
            return _read_npy(mmap(file.fileno(), 0, access=ACCESS_READ))
    except TooLargeError as error:
        raise TooLargeError(f"{str(path)!r}: {error}") from None
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{str(path)!r} is no file of labels: {error}") from None


def read_parquet_labels(paths: Sequence[Path]) -> LabelsFile:
    """Read the column ``label``, else the last one; raise as `read_labels`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-c", _READER_CODE, *map(str, paths)]
    process = subprocess.run(command, capture_output=True, check=False, env=environment)  # noqa: S603 (this program)
    if process.returncode:
        message = process.stderr.decode(errors="replace").strip().rpartition("\n")[2][: 2 * _MAX_MESSAGE_LENGTH]
        error_class = TooLargeError if process.returncode == _STATUS_TOO_LARGE else ValueError
        text = message if process.returncode in {_STATUS_DAMAGED, _STATUS_TOO_LARGE} else ""
        raise error_class(text or f"{str(paths[0])!r} is damaged, or needs more memory than an audit has")
    header, _, places = process.stdout.partition(b"\n")
    width, names = json.loads(header)
    return LabelsFile(np.frombuffer(places, dtype=f"u{width}"), tuple(names))


def print_labels() -> None:
    limit = resource.getrlimit(resource.RLIMIT_AS)[1]
    with suppress(ValueError):  # a system without such limits
        resource.setrlimit(
            resource.RLIMIT_AS, (_MAX_PROCESS_BYTES if limit < 0 else min(_MAX_PROCESS_BYTES, limit), limit)
        )
    collector, path = _LabelPlaces(), ""
    try:
        parquet, errors = import_module("pyarrow.parquet"), import_module("pyarrow").ArrowException
    except ImportError:
        _fail("labels in Parquet need pyarrow: pip install pyarrow", _STATUS_DAMAGED)
    try:
        for path in sys.argv[1:]:
            for column in _label_columns(parquet, path):
                collector.add_column(column)
    except TooLargeError as error:
        _fail(f"{path!r}: {error}", _STATUS_TOO_LARGE)
    except (ValueError, LookupError, OSError, MemoryError, errors) as error:
        message = (str(error).splitlines() or [type(error).__name__])[0][:_MAX_MESSAGE_LENGTH]
        _fail(f"{path!r} holds no labels: {message}", _STATUS_DAMAGED)
    labels = collector.file()
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
    # a dictionary holds a repeated long word once
    text_columns = [column] if str(schema.field(column).type) in {"string", "large_string"} else []
    with parquet.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False, read_dictionary=text_columns) as file:
        if (missing_rows := file.metadata.num_rows) > MAX_LABELS:
            raise TooLargeError(f"it claims {missing_rows:,} rows: {MAX_LABELS:,} are read")
        for batch in file.iter_batches(batch_size=_ROWS_PER_BLOCK, columns=[column], use_threads=False):
            missing_rows -= batch.num_rows
            yield batch.column(0)
        if missing_rows:
            raise ValueError(f"it lacks {missing_rows:,} of its rows: it is damaged")


def read_waiting_labels(content: bytes) -> LabelsFile | None:
    try:
        return _read_npy(content)
    except ValueError:
        return None


def _read_npy(content: bytes | mmap) -> LabelsFile:
    header = BytesIO(content[: 2 * _MAX_LINE_BYTES])
    try:
        np.lib.format.read_magic(header)
        shape, _, dtype = np.lib.format.read_array_header_1_0(header, max_header_size=_MAX_LINE_BYTES)
    except (ValueError, TypeError, SyntaxError, EOFError, TokenError, OverflowError):  # their messages quote the file
        raise ValueError("it does not begin as an .npy file of labels does") from None
    if len(shape) != 1 or dtype.kind not in "biufU" or not dtype.itemsize:
        raise ValueError("it is no row of numbers or text")
    if header.tell() + shape[0] * dtype.itemsize != len(content):
        raise ValueError("its header does not fit its size: it is damaged")
    labels = np.frombuffer(content, dtype, offset=header.tell()) if shape[0] else np.empty(0, dtype)
    if dtype.kind in "bU" and labels.size:  # not every pattern of bits is a boolean, or Unicode
        maximum, raw_type = (1, "u1") if dtype.kind == "b" else (sys.maxunicode, f"{dtype.str[0]}u4")
        if int(labels.view(raw_type).max()) > maximum:
            raise ValueError("its bits are no booleans, or no characters: it is damaged")
    return LabelsFile.of(labels)


def _read_csv(path: Path) -> LabelsFile:
    collector, digest = _LabelPlaces(), hashlib.sha256()
    pieces = _read_blocks(path, digest)
    numbers, id_digest, is_plain = list[NDArray[np.int64]](), None, True
    for piece in pieces:
        if b'"' in piece or b"," in piece:
            is_plain = False
            numbers, id_digest = _add_rows(collector, chain([piece], pieces))
        elif b"\n\n" in piece or piece.startswith(b"\n"):
            raise ValueError(_BLANK_REASON)
        else:
            collector.add_texts(piece[:-1].decode().split("\n"))
    labels = collector.file()
    if numbers:
        return _sort_numbered(labels, np.concatenate(numbers))
    if is_plain:  # each line is a label without quotes
        is_unchanged = all(quote_field(name) == name for name in labels.names)
    else:
        is_unchanged = digest.hexdigest() == (labels.digest() if id_digest is None else id_digest.hexdigest())
    if not is_unchanged:
        raise ValueError("it was changed after it was written, or by another program")
    return labels


def _add_rows(
    collector: _LabelPlaces, pieces: Iterator[bytes]
) -> tuple[list[NDArray[np.int64]], "hashlib._Hash | None"]:
    """Return the numbers of numbered rows, or the digest of lines with an id."""
    numbers, id_digest = list[NDArray[np.int64]](), None
    lines = (f"{line}\n" for piece in pieces for line in piece[:-1].decode().split("\n"))
    reader = csv.reader(lines, strict=True)
    while rows := list(islice(reader, _ROWS_PER_BLOCK)):
        if not all(rows):
            raise ValueError(_BLANK_REASON)
        if not collector.size and len(rows[0]) == 2 and rows[0][1] == LABEL and not rows[0][0].isdigit():
            id_digest = hashlib.sha256(f"{quote_field(rows.pop(0)[0])},{LABEL}\n".encode())
        if id_digest is not None:
            if any(len(row) != 2 or len(row[0]) > _MAX_NAME_LENGTH for row in rows):
                raise ValueError(f"a line is no id and label of at most {_MAX_NAME_LENGTH} characters each")
            id_digest.update("".join(f"{quote_field(name)},{quote_field(label)}\n" for name, label in rows).encode())
        elif any(len(row) != 1 for row in rows):
            words = [row[0] for row in rows if len(row) == 2 and _WHOLE_NUMBER.fullmatch(row[0])]
            if len(words) < len(rows):
                raise ValueError("a line is no single label, or no number and its answer: one line is one answer")
            numbers.append(np.array(words, dtype=np.int64))
        collector.add_texts([row[-1] for row in rows])
        if numbers and collector.size > MAX_NUMBERED:
            raise TooLargeError(f"it holds more than {MAX_NUMBERED:,} numbered lines")
    return numbers, id_digest


def _read_blocks(path: Path, digest: "hashlib._Hash") -> Iterator[bytes]:
    """Yield whole lines, with the line ends of a release outside of quotes."""
    quotes = 0
    with path.open("rb") as file:
        remainder, data = file.read(len(BOM_UTF8)).removeprefix(BOM_UTF8), b"\n"
        while data:
            data = file.read(_BYTES_PER_BLOCK)
            lines_read, newline, remainder = (remainder + data).rpartition(b"\n")
            if remainder and not data:  # the last line break is missing
                lines_read, newline, remainder = remainder, b"\n", b""
            if len(remainder) > _MAX_LINE_BYTES:
                raise ValueError(f"a line has more than {_MAX_LINE_BYTES:,} bytes")
            if newline:
                quoted_parts = (lines_read + newline).split(b'"')
                normalized = [
                    part if (quotes + n) % 2 else part.replace(b"\r\n", b"\n") for n, part in enumerate(quoted_parts)
                ]
                quotes, lines = quotes + len(quoted_parts) - 1, b'"'.join(normalized)
                digest.update(lines)
                try:
                    lines.decode()
                except UnicodeDecodeError:
                    raise ValueError("it is not in UTF-8: save it as UTF-8") from None
                yield lines


def _sort_numbered(file: LabelsFile, numbers: NDArray[np.int64]) -> LabelsFile:
    if numbers.size != file.size:
        raise ValueError("some lines are numbered answers: then all must be")
    order = np.argsort(numbers, kind="stable")
    numbers, places = numbers[order], file.places[order]
    is_repeated = numbers[1:] == numbers[:-1]
    if np.any(is_repeated & (places[1:] != places[:-1])):
        raise ValueError("a question has two different labels")
    is_first = np.concatenate([[True], ~is_repeated])
    if int(numbers[-1]) - int(numbers[0]) + 1 != np.count_nonzero(is_first):
        raise ValueError("some numbers of questions are left out")
    return LabelsFile(places[is_first], file.names, int(numbers[0]))


@dataclass(frozen=True, eq=False)
class Piece:
    role: Role
    path: str
    parts: Mapping[str, bytes] = field(default_factory=dict)  # contents of the file, and next to it, by name ending
    file_digests: tuple[FileDigest, ...] = ()  # of files that are not in memory
    labels: LabelsFile | None = None
    is_parquet: bool = False
    reason: str = ""  # why it is not judged

    @property
    def digests(self) -> list[FileDigest]:
        part_digests = (
            (ending, len(content), hashlib.sha256(content).hexdigest()) for ending, content in self.parts.items()
        )
        return [*self.file_digests, *part_digests]

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
    if _PASSWORD.search(unquote(name)) if is_postgres else _OTHER_URL.search(name):
        description = "a ledger is a file or a URL like postgresql://USER@HOST:PORT/DATABASE, and this is neither"
        raise ValueError(
            f"{description}: it is not shown, because it may hold a password. Use PGPASSWORD for passwords"
        )
    return is_postgres


def check_regular(path: Path, most_bytes: int) -> None:
    """Raise `ValueError` for a large file, or one that is not regular: a pipe would block."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{str(path)!r} is no regular file: copy its content into a file first")
    if status.st_size > most_bytes:
        raise ValueError(f"{str(path)!r} holds {status.st_size:,} bytes, more than the {most_bytes:,} that are read")


def read_pieces(paths: Sequence[Path | str]) -> Iterator[Piece]:
    """Raise `ValueError` or `OSError` for a named path that cannot be used."""
    if not paths:
        raise ValueError(f"PATH is missing: {_PATH_ADVICE}")
    seen_paths, total_size = set[str](), 0
    for path in dict.fromkeys(paths):
        if is_url(path):
            yield Piece("ledger", str(path))
            continue
        target, real = Path(path), os.path.realpath(path)
        pieces = (
            _read_folder(target, seen_paths) if target.is_dir() else () if real in seen_paths else [_read_file(target)]
        )
        seen_paths.add(real)
        for piece in pieces:
            if total_size + piece.size > _MAX_TOTAL_BYTES:
                reason = f"the files hold more than the {_MAX_TOTAL_BYTES:,} bytes that one audit reads: give it alone"
                yield Piece("other", piece.path, reason=reason)
                continue
            total_size += piece.size
            yield piece


def _read_folder(folder: Path, seen_paths: set[str]) -> Iterator[Piece]:
    entries = [part for part in sorted(folder.rglob("*")) if not _HIDDEN.search(part.relative_to(folder).as_posix())]
    faults = {part: fault for part in entries if (fault := _find_fault(part, folder))}
    yield from (Piece("other", str(part), reason=fault) for part, fault in faults.items())
    files = [part for part in entries if part not in faults and part.is_file()]
    if not [*files, *faults] or len(files) > _MAX_FILES:
        raise ValueError(
            f"the folder {str(folder)!r} has {len(files):,} files, not 1 to {_MAX_FILES:,}: {_PATH_ADVICE}"
        )
    files = [
        part for part in files if os.path.realpath(part) not in seen_paths and not part.name.endswith(JOURNAL_ENDINGS)
    ]
    seen_paths |= set(map(os.path.realpath, files))
    for (parent, are_partitions), parts in groupby(
        files, key=lambda part: (part.parent, part.suffix == _PARQUET_SUFFIX)
    ):
        if are_partitions:
            yield _read_guarded(parent, partial(_read_partitions, parent, list(parts)))
        else:
            yield from (_read_guarded(path, partial(_read_file, path)) for path in parts)


def _find_fault(path: Path, folder: Path) -> str:
    if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        return "it is a link that leaves the folder: name its target"
    if path.is_symlink() and not path.is_file():
        return "it is a link to a folder, or to nothing: name its target"
    return "" if path.is_file() or path.is_dir() else "it is no regular file"


def _read_guarded(path: Path, read_piece: Callable[[], Piece]) -> Piece:
    try:
        return read_piece()
    except (ValueError, OSError) as error:
        return Piece("other", str(path), reason=str(error))  # no digest, because nothing was read
    except Exception as error:  # noqa: BLE001 (a file may hold anything; no message, which may quote it)
        return Piece("other", str(path), reason=f"it cannot be read ({type(error).__name__})")


def _read_file(path: Path) -> Piece:
    check_regular(path, _MAX_BYTES)
    first_bytes = _SQLITE
    with hold_lock(path) as is_free:  # a ledger that is being written is not even opened
        if is_free:
            with path.open("rb") as file:
                first_bytes = file.read(len(BOM_UTF8 + _VOTERS_HEADER))
    if first_bytes.startswith(_SQLITE):
        return Piece("ledger", str(path), ledger_files(path))
    if first_bytes.startswith(_PARQUET):
        return _read_partitions(path, [path])
    if path.suffix == ".csv" and first_bytes.removeprefix(BOM_UTF8).startswith(_VOTERS_HEADER):
        return _skip(path, _VOTERS_REASON)
    if path.suffix in {".csv", ".npy"}:
        return Piece("labels", str(path), file_digests=_hash_file(path), labels=read_labels(path))
    return _skip(path, _ESTIMATOR_REASON) if first_bytes.startswith(_ZIP) else _read_text(path)


def _read_text(path: Path) -> Piece:
    if (size := path.stat().st_size) > _MAX_TEXT_BYTES:
        reason = f"it holds {size:,} bytes, and {_MAX_TEXT_BYTES:,} of a text are read; nothing is known of such files"
        return Piece("other", str(path), reason=reason)
    content, name = path.read_bytes(), str(path)
    try:
        data = parse_json(content)
    except ValueError as error:
        if path.suffix == ".json":
            reason = "no UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            advice = "give what --output of optimize or plan wrote"
            raise ValueError(f"{name!r} holds no JSON of this project ({reason}); {advice}") from None
        if DIGEST_PREFIX.encode() in content:  # a model card, a report, or a copied digest
            return Piece("notes", name, {"": content})
        return _skip(
            path, _KEY_REASON if content.startswith(_KEY_START) else f"nothing is known of such files; {_PATH_ADVICE}"
        )
    if not isinstance(data, dict):
        raise ValueError(f"{name!r} holds no JSON object")  # noqa: TRY004 (a bad file, not a bad type)
    format_name = data.get("format")
    if format_name is None and {"warning", "table_1"} <= data.keys():
        return _skip(path, "it is private data: what darrm pate computed from the votes, and not to be handed on")
    if not isinstance(format_name, str) or format_name in _FORMATS or "checksum" in data:
        return Piece(_FORMATS.get(str(format_name), "release"), name, {"": content})
    is_report = format_name.startswith("darrm ")
    return _skip(
        path, f"{_REPORT_REASON} (format {format_name!r})" if is_report else "it is of a format that is not known"
    )


def _skip(path: Path, reason: str) -> Piece:
    return Piece("other", str(path), file_digests=_hash_file(path), reason=reason)


def _read_partitions(name: Path, paths: Sequence[Path]) -> Piece:
    digests = [digest for path in paths for digest in _hash_file(path, "" if path == name else f"/{path.name}")]
    return Piece("labels", str(name), file_digests=tuple(digests), labels=read_parquet_labels(paths), is_parquet=True)


def _hash_file(path: Path, ending: str = "") -> tuple[FileDigest, ...]:
    with path.open("rb") as file:
        return ((ending, os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()),)


def ledger_files(path: Path) -> dict[str, bytes]:
    """Read a ledger and its journals by name ending while no process writes; else `ValueError`."""
    real = Path(os.path.realpath(path))  # SQLite writes its journal next to the file, not next to a link to it
    for attempt in range(_MAX_ATTEMPTS):
        time.sleep(_PAUSE_SECONDS if attempt else 0.0)
        with hold_lock(real) as is_free:
            if not is_free:
                continue
            states = _stat_files(real)
            try:
                contents = {ending: real.with_name(real.name + ending).read_bytes() for ending in states}
            except FileNotFoundError:  # a journal that was just dropped
                continue
            if states == _stat_files(real):
                return contents
    raise LedgerFaultError(f"{str(path)!r} is being written all the time: verify a copy of it")


def _stat_files(ledger: Path) -> dict[str, tuple[int, int, int]]:
    check_regular(ledger, _MAX_TOTAL_BYTES)
    states = {}
    for ending in ("", *JOURNAL_ENDINGS):
        path = ledger.with_name(ledger.name + ending)
        try:
            status = path.lstat()  # one call: between two a journal may vanish by a commit
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{str(path)!r} is a link or no file, and no journal that SQLite left")
        states[ending] = status.st_mtime_ns, status.st_size, status.st_ino
    return states


@contextmanager
def hold_lock(path: Path) -> Iterator[bool]:
    """Hold the lock ``.NAME.lock``, if it exists; yield False if another process does.

    Closing any handle of a file drops all POSIX locks of the process, so no ledger is opened without it.
    """
    real = Path(os.path.realpath(path))
    lock_path = real.with_name(f".{real.name}.lock")
    try:
        handle = os.open(lock_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield True
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            # it may have been deleted since it was opened
            is_free = os.path.samestat(os.fstat(handle), lock_path.stat())
        except (BlockingIOError, FileNotFoundError):
            is_free = False
        except OSError:  # a file system without locks
            is_free = True
        yield is_free
    finally:
        os.close(handle)
