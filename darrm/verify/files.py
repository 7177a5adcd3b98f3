"""Identify each file of an audit by its first bytes.

A folder means all files in and below it, except hidden ones. A named file of unknown format is an error; in a folder it
is listed as not judged, with the reason. A ledger is never opened: its file is copied under its lock, with the journal
of a crash if there is one.
"""

import fcntl
import hashlib
import os
import re
import stat
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from urllib.parse import unquote

from darrm.verify.formats import DIGEST_PREFIX, RECEIPT_FORMAT, RELEASE, RUN, TABLES, parse_json
from darrm.verify.label_files import LabelsFile, read_labels, read_parquet_labels
from darrm.verify.verdicts import LedgerFaultError

BESIDE = ("-journal", "-wal", "-shm")  # name endings of the files that SQLite leaves after a crash
ROLES = ("release", "ledger", "labels", "receipt", "notes", "figure")
ANSWERS, LEDGER, LABELS, RECEIPT, NOTES, FIGURE = ROLES
OTHER = "other"
_ATTEMPTS, _PAUSE = 500, 0.01  # seconds, while another process writes
_MOST_BYTES = 2**30  # of a file that is read piece by piece
_MOST_TEXT = 2**24  # of one that is read whole: tables hold kilobytes
_MOST_HELD = 2**27  # of all that are read whole, and of one ledger
_MOST_FILES = 10_000  # of a folder
_PARTITION, _HIDDEN = ".parquet", re.compile(r"(^|/)\.")
_SQLITE, _ZIP, _PARQUET = b"SQLite format 3\x00", b"PK\x03\x04", b"PAR1"
_FORMATS = {RECEIPT_FORMAT: RECEIPT, "darrm sanitized figure": FIGURE} | dict.fromkeys((RELEASE, RUN, *TABLES), ANSWERS)
_VOTERS_HEAD, _OF_VOTERS = b"name,epsilon,delta", "it names voters: give it with --voters"
_REPORTS = "it is what a command printed, and repeats what other files claim"
_KEY, _BESIDE = b"-----BEGIN PUBLIC KEY-----", "a key from the audited folder proves nothing: use --public-key"
_ESTIMATOR = "a saved estimator is no release; give its ledger, and the plan that it was made with"
_PRIVATE = "it is private data: what darrm pate computed from the votes, and not to be handed on"
_ABSENT = "give a table, a mechanism (plan.json), a ledger, labels, or a folder that holds them"
# other schemes and spellings of URLs, and words that may hold a password
_NO_FILE = re.compile(
    r"://|^\s*[a-z][a-z0-9+.]+:/|(password|passwd|secret|_key)\s*=|\b(host|hostaddr|dbname)\s*=", re.IGNORECASE
)
_SECRET = re.compile(r"://[^/@]*:[^/@]*@|(password|passwd|secret|_key)\s*=", re.IGNORECASE)
Sealed = tuple[str, int, str]  # the end of a name, the size in bytes, the SHA-256


@dataclass(frozen=True, eq=False)
class Piece:
    """One piece of evidence, usually a file: its role and its contents."""

    role: str
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
    """Whether a ledger's name is the URL of a database; `ValueError`, which does not show it, for other URLs."""
    if not isinstance(name, str):
        return False
    is_postgres = name.startswith(("postgresql:", "postgres:"))
    if _SECRET.search(unquote(name)) if is_postgres else _NO_FILE.search(name):
        like = "a ledger is a file or a URL like postgresql://USER@HOST:PORT/DATABASE, and this is neither"
        raise ValueError(f"{like}: it is not shown, because it may hold a password. Use PGPASSWORD for passwords")
    return is_postgres


def check_regular(path: Path, most_bytes: int) -> None:
    """Raise `ValueError` unless ``path`` is a regular file of at most ``most_bytes``; a pipe would block."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{str(path)!r} is no regular file: copy what it holds into a file first")
    if status.st_size > most_bytes:
        raise ValueError(f"{str(path)!r} holds {status.st_size:,} bytes, more than the {most_bytes:,} that are read")


def pieces_of(paths: Sequence[Path | str]) -> Iterator[Piece]:
    """Read files, folders and the URLs of ledgers; `ValueError` or `OSError` for a named path that cannot be used."""
    if not paths:
        raise ValueError(f"PATH is missing: {_ABSENT}")
    seen, held = set[str](), 0
    for path in dict.fromkeys(paths):
        if is_url(path):
            yield Piece(LEDGER, str(path))
            continue
        named, real = Path(path), os.path.realpath(path)
        pieces = _of_folder(named, seen) if named.is_dir() else () if real in seen else [_named(named)]
        seen.add(real)
        for piece in pieces:
            if held + piece.size > _MOST_HELD:
                reason = f"the files hold more than the {_MOST_HELD:,} bytes that one audit reads: give it alone"
                yield Piece(OTHER, piece.path, reason=reason)
                continue
            held += piece.size
            yield piece


def _of_folder(folder: Path, seen: set[str]) -> Iterator[Piece]:
    entries = [part for part in sorted(folder.rglob("*")) if not _HIDDEN.search(part.relative_to(folder).as_posix())]
    faults = {part: fault for part in entries if (fault := _why_not(part, folder))}
    yield from (Piece(OTHER, str(part), reason=fault) for part, fault in faults.items())
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
        return "it is a link that leaves the folder: give what it leads to by its name"
    if path.is_symlink() and not path.is_file():
        return "it is a link to a folder, or to nothing: give what it leads to by its name"
    return "" if path.is_file() or path.is_dir() else "it is no regular file"


def _guarded(path: Path, read_piece: Callable[[], Piece]) -> Piece:
    try:
        return read_piece()
    except (ValueError, OSError) as error:
        return Piece(OTHER, str(path), reason=str(error))  # no digest, because nothing was read
    except Exception as error:  # noqa: BLE001 (whatever a file holds; no message, which may quote it)
        return Piece(OTHER, str(path), reason=f"it cannot be read ({type(error).__name__})")


def _named(path: Path) -> Piece:
    check_regular(path, _MOST_BYTES)
    start = _SQLITE
    with locked(path) as is_free:  # a ledger that is being written is not even opened
        if is_free:
            with path.open("rb") as file:
                start = file.read(len(BOM_UTF8 + _VOTERS_HEAD))
    if start.startswith(_SQLITE):
        return Piece(LEDGER, str(path), ledger_files(path))
    if start.startswith(_PARQUET):
        return _of_partitions(path, [path])
    if path.suffix == ".csv" and start.removeprefix(BOM_UTF8).startswith(_VOTERS_HEAD):
        return _not_judged(path, _OF_VOTERS)
    if path.suffix in {".csv", ".npy"}:
        return Piece(LABELS, str(path), sealed=_sealed(path), labels=read_labels(path))
    return _not_judged(path, _ESTIMATOR) if start.startswith(_ZIP) else _of_text(path)


def _of_text(path: Path) -> Piece:
    if (size := path.stat().st_size) > _MOST_TEXT:
        reason = f"it holds {size:,} bytes, and {_MOST_TEXT:,} of a text are read; nothing is known of such files"
        return Piece(OTHER, str(path), reason=reason)
    content, whole = path.read_bytes(), str(path)
    try:
        data = parse_json(content)
    except ValueError as error:
        if path.suffix == ".json":
            reason = "no UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            wanted = "give what --output of optimize or plan wrote"
            raise ValueError(f"{whole!r} holds no JSON of this project ({reason}); {wanted}") from None
        if DIGEST_PREFIX.encode() in content:  # a model card, a report, or a copied digest
            return Piece(NOTES, whole, {"": content})
        return _not_judged(path, _BESIDE if content.startswith(_KEY) else f"nothing is known of such files; {_ABSENT}")
    if not isinstance(data, dict):
        raise ValueError(f"{whole!r} holds no JSON object")  # noqa: TRY004 (a bad file, not a bad type)
    named = data.get("format")
    if named is None and {"warning", "table_1"} <= data.keys():
        return _not_judged(path, _PRIVATE)
    if not isinstance(named, str) or named in _FORMATS or "checksum" in data:
        return Piece(_FORMATS.get(str(named), ANSWERS), whole, {"": content})
    is_report = named.startswith("darrm ")
    return _not_judged(path, f"{_REPORTS} (format {named!r})" if is_report else "it is of a format that is not known")


def _not_judged(path: Path, reason: str) -> Piece:
    return Piece(OTHER, str(path), sealed=_sealed(path), reason=reason)


def _of_partitions(whole: Path, paths: Sequence[Path]) -> Piece:
    sealed = [seal for path in paths for seal in _sealed(path, "" if path == whole else f"/{path.name}")]
    return Piece(LABELS, str(whole), sealed=tuple(sealed), labels=read_parquet_labels(paths), is_parquet=True)


def _sealed(path: Path, end: str = "") -> tuple[Sealed, ...]:
    with path.open("rb") as file:
        return ((end, os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()),)


def ledger_files(path: Path) -> dict[str, bytes]:
    """Read a ledger's file and SQLite's files next to it, by name ending, while no process writes.

    `ValueError` if another process keeps writing, or SQLite cannot have left a file next to it.
    """
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
    """Hold a ledger's lock ``.NAME.lock``, if the file exists; yield False if another process holds it.

    A process that closes any handle of a file loses all its POSIX locks on it, so a ledger is not opened without it.
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
