"""Identify each file of an audit by its first bytes, never by its name alone.

A folder means all files in it and below it, except hidden ones. A named file of unknown format is an error. Files in a
folder may have any format: those of unknown format are listed as not judged, with the reason.

**Ledgers.** A ledger itself is never opened. Its file is copied under its lock, with the journal of a crash if there is
one, and every checksum and hash of the copy is recomputed. The report refers to this copy.
"""

import fcntl
import hashlib
import os
import re
import sqlite3
import stat
import tempfile
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import filterfalse, groupby
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from darrm.verify.formats import (
    DIGEST_PREFIX,
    MALFORMED,
    RECEIPT_FORMAT,
    RELEASE,
    RUN,
    TABLES,
    Charge,
    exact_number,
    join,
    parse_json,
    read,
    read_charge,
    read_texts,
)
from darrm.verify.label_files import LabelsFile, read_labels, read_parquet_labels
from darrm.verify.numbers import Point

BESIDE = ("-journal", "-wal", "-shm")  # name endings of the files that SQLite leaves after a crash
COMPOSITIONS = ("one", "planned", "adaptive", "renyi")
STREAM = "-"  # begins the output of a stream; that of a file is an absolute path
_ATTEMPTS, _PAUSE = 500, 0.01  # seconds, while another process writes


_APPLICATION, _VERSION = 0x6C656467, 1


class LedgerFaultError(ValueError):
    """A ledger is damaged, or has an unknown version."""


@dataclass(frozen=True)
class Entry:
    """One debit."""

    number: int  # from 1 on
    time: str
    cost: int  # the number of its cost
    count: int
    note: str
    table: str  # the digest of the release that answered
    labels: str  # the digest of the labels
    output: str
    questions: tuple[str, ...]
    files: tuple[tuple[str, str], ...]  # drawn after the debit: the name and the SHA-256 of each
    signature: str
    waiting: bytes | None  # the labels until they are delivered
    what: str = ""
    each: int = 1  # labels that one query pays for, at most

    @property
    def answers(self) -> int:
        """How many labels were paid for, at most."""
        return self.count * self.each

    def pays_for(self, labels: int) -> bool:
        """Whether it is a debit of this number of labels."""
        return labels == self.count if self.each == 1 else labels <= self.answers

    @property
    def is_of_a_stream(self) -> bool:
        """Whether its labels answered questions that arrived one by one."""
        return self.output.startswith(STREAM)


@dataclass(frozen=True, eq=False)
class Ledger:
    """The contents of a copy of a ledger."""

    identity: str
    epsilon: str
    delta: str
    composition: str
    population: str
    created: str
    charges: Mapping[int, Charge]  # of each kind of query, with the number of queries
    costs: Mapping[int, str]  # the same as text
    entries: tuple[Entry, ...]
    hashes: tuple[str, ...]  # computed here: before the first entry, and of each
    queries: tuple[int, ...]  # up to each

    @property
    def budget(self) -> Point:
        """The (ε, δ) that all queries together may cost."""
        return exact_number(self.epsilon), exact_number(self.delta)

    @property
    def digests(self) -> set[str]:
        """The digests of the releases that its entries name."""
        return {entry.table for entry in self.entries if entry.table}


def ledger_files(path: Path) -> dict[str, bytes]:
    """Read a ledger's file and SQLite's files next to it, by name ending, while no process writes.

    Raises
    ------
    ValueError
        If another process keeps writing.
    OSError
        If a file cannot be read.
    """
    real = Path(os.path.realpath(path))  # SQLite writes its journal next to the file, not next to a link to it
    names = {end: real.with_name(real.name + end) for end in ("", *BESIDE)}
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE)
        with locked(real) as is_locked:
            if not is_locked:
                continue
            before = {end: state for end, name in names.items() if (state := _state(name)) is not None}
            try:
                found = {end: names[end].read_bytes() for end in {"": None} | before}
            except FileNotFoundError:  # a journal that was just dropped
                if real.exists():
                    continue
                raise
            if {end: state for end, name in names.items() if (state := _state(name)) is not None} == before:
                return found
    raise LedgerFaultError(f"{str(path)!r} is being written all the time: verify a copy of it")


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


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


def read_ledger(files: Mapping[str, bytes]) -> Ledger:
    """Read a copy of a ledger's files; `LedgerFaultError` if it is damaged or no ledger."""
    with tempfile.TemporaryDirectory(prefix="darrm-verify-") as folder:
        copy = Path(folder) / "ledger.sqlite"
        for beside, content in files.items():
            copy.with_name(copy.name + beside).write_bytes(content)
        try:
            with closing(sqlite3.connect(f"{copy.absolute().as_uri()}?mode=rw", uri=True)) as connection:
                _check_whole(connection)
                return _read(connection)
        except ValueError as error:
            raise LedgerFaultError(str(error)) from error
        except (sqlite3.Error, *MALFORMED) as error:
            raise LedgerFaultError(f"it cannot be read ({type(error).__name__}: {error})") from error


def _check_whole(connection: sqlite3.Connection) -> None:
    numbers = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    if numbers != [_APPLICATION, _VERSION]:
        raise ValueError("it is no ledger, or of a version that is not read")
    added = "SELECT count(*) FROM sqlite_master WHERE type IN ('trigger', 'view')"
    if connection.execute(added).fetchone() != (0,):
        raise ValueError("a trigger or a view was added, which may undo a debit")
    if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise ValueError("its pages are damaged")


def read_postgres(url: str) -> Ledger:
    """Read a ledger in PostgreSQL; `LedgerFaultError` if it is damaged, `ValueError` if it cannot be reached."""
    try:
        psycopg: Any = import_module("psycopg")
    except ImportError:
        raise ValueError("a ledger in PostgreSQL needs psycopg: pip install psycopg") from None
    try:
        with psycopg.connect(url, autocommit=False) as connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            return _read(connection)
    except psycopg.OperationalError:
        raise ValueError("the server of the ledger cannot be reached: check the URL and PGPASSWORD") from None
    except ValueError as error:
        raise LedgerFaultError(str(error)) from error
    except (psycopg.Error, *MALFORMED) as error:
        raise LedgerFaultError(f"the server holds no ledger ({type(error).__name__})") from error


def _read(connection: Any) -> Ledger:  # noqa: ANN401 (of sqlite3 or psycopg)
    words = "SELECT identity, epsilon, delta, composition, population, created, checksum FROM budget"
    budgets = connection.execute(words).fetchall()
    if len(budgets) != 1:
        raise ValueError("it has no single budget")
    budget: tuple[str, str, str, str, str, str] = budgets[0][:6]
    first = join("darrm-ledger 1", *budget)  # the hash that the first entry follows
    if budgets[0][6] != first or not budget[0] or budget[3] not in COMPOSITIONS:
        raise ValueError("the budget was changed")
    _ = exact_number(budget[1]), exact_number(budget[2])
    kinds, totals = _read_kinds(connection)
    entries, hashes, queries, counts = list[Entry](), [first], [0], dict.fromkeys(kinds, 0)
    words = (
        "SELECT id, time, cost, count, note, table_digest, labels_digest, token, output, questions, entry_hash, "
        "signature, files, labels FROM entries ORDER BY id"
    )
    for row in connection.execute(words):
        number, moment, cost, count, note, table, labels, token, output, questions, stored, signature, files, kept = row
        charge, _, what, checksum = kinds[cost]
        hashed = (number, moment, checksum, count, note, table, labels, token, output, questions)
        hashes.append(join(hashes[-1], *hashed))
        if number != len(hashes) - 1 or stored != hashes[-1]:
            raise ValueError(f"entry {number} does not carry the hash of itself and of the entry before it")
        queries.append(queries[-1] + count)
        counts[cost] += count
        asked: tuple[str, ...] = read(parse_json(questions.encode()), [str]) if questions else ()
        drawn: dict[str, str] = read_texts(parse_json(files.encode())) if files else {}
        more = (asked, tuple(drawn.items()), str(signature), None if kept is None else bytes(kept))
        entries.append(Entry(number, moment, cost, count, note, table, labels, output, *more, what, charge.labels))
    last, moved_to, stored = connection.execute("SELECT last_entry, moved_to, checksum FROM state").fetchone()
    if last != len(entries) or stored != join(last, hashes[-1], moved_to, *totals):
        raise ValueError("entries are missing, or the totals are not those of the entries")
    if any(count != kinds[number][0].count for number, count in counts.items()):
        raise ValueError("the entries and the totals differ")
    charges, costs = ({number: kind[part] for number, kind in kinds.items()} for part in (0, 1))
    return Ledger(*budget, charges, costs, tuple(entries), tuple(hashes), tuple(queries))


def _read_kinds(connection: Any) -> tuple[dict[int, Any], list[object]]:  # noqa: ANN401 (of sqlite3 or psycopg)
    """Read the cost, its text, its words and its checksum of each kind of query; and what the state hashes of them."""
    kinds, totals = dict[int, Any](), list[object]()
    words = "SELECT id, cost, what, total, table_digest, checksum FROM costs ORDER BY id"
    for number, cost, what, total, answered, stored in connection.execute(words).fetchall():
        if stored != join(cost, what):
            raise ValueError("the cost of a query was changed")
        kinds[number] = read_charge(cost).repeated(total), cost, what, stored
        totals += [number, total, answered]
    return kinds, totals


ROLES = ("release", "ledger", "labels", "receipt", "notes", "figure")
ANSWERS, LEDGER, LABELS, RECEIPT, NOTES, FIGURE = ROLES
OTHER = "other"
_MOST_BYTES = 2**30  # of a file that is read piece by piece
_MOST_TEXT = 2**24  # of one that is read whole: tables hold kilobytes
_MOST_HELD = 2**27  # of all that are read whole, and of one ledger
_MOST_FILES = 10_000  # of a folder
_PARTITION = ".parquet"
_SQLITE, _ZIP, _PARQUET = b"SQLite format 3\x00", b"PK\x03\x04", b"PAR1"
_RELEASES, _SANITIZED, _SUFFIXES = {RELEASE, RUN, *TABLES}, "darrm sanitized figure", (".npy", ".csv")
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
    parts: tuple[tuple[str, bytes], ...] = ()  # contents of the file, and of files next to it, by name ending
    sealed: tuple[Sealed, ...] = ()  # of files that are not in memory
    labels: LabelsFile | None = None
    is_parquet: bool = False
    reason: str = ""  # why it is not judged

    @property
    def digests(self) -> tuple[Sealed, ...]:
        """The size and the SHA-256 of each of its files."""
        held = ((end, len(content), hashlib.sha256(content).hexdigest()) for end, content in self.parts)
        return self.sealed or tuple(held)

    @property
    def content(self) -> bytes:
        """The contents of the file."""
        return self.parts[0][1]


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
    yield from (Piece(LEDGER, str(url)) for url in dict.fromkeys(filter(is_url, paths)))
    for path in map(Path, filterfalse(is_url, paths)):
        for piece in _of_folder(path, seen) if path.is_dir() else _once(path, seen):
            size = sum(len(content) for _, content in piece.parts)
            size += 0 if piece.labels is None else piece.labels.places.nbytes
            if held + size > _MOST_HELD:
                reason = f"the files hold more than the {_MOST_HELD:,} bytes that one audit reads: give it alone"
                yield Piece(OTHER, piece.path, reason=reason)
                continue
            held += size
            yield piece


def _once(path: Path, seen: set[str]) -> Iterator[Piece]:
    if (real := os.path.realpath(path)) not in seen:
        seen.add(real)
        yield _named(path)


def _of_folder(folder: Path, seen: set[str]) -> Iterator[Piece]:
    hidden = re.compile(r"(^|/)\.")
    entries = [part for part in sorted(folder.rglob("*")) if not hidden.search(part.relative_to(folder).as_posix())]
    faults = {part: fault for part in entries if (fault := _why_not(part, folder))}
    yield from (Piece(OTHER, str(part), reason=fault) for part, fault in faults.items())
    inside = [part for part in entries if part not in faults and part.is_file()]
    if not [*inside, *faults] or len(inside) > _MOST_FILES:
        raise ValueError(f"the folder {str(folder)!r} has {len(inside):,} files, not 1 to {_MOST_FILES:,}: {_ABSENT}")
    inside = [part for part in inside if os.path.realpath(part) not in seen and not part.name.endswith(BESIDE)]
    seen |= set(map(os.path.realpath, inside))
    for (parent, partitions), parts in groupby(inside, key=lambda part: (part.parent, part.suffix == _PARTITION)):
        alike = list(parts)
        if partitions:
            yield _guarded(parent, partial(_of_partitions, parent, alike))
        else:
            yield from (_guarded(path, partial(_named, path)) for path in alike)


def _why_not(path: Path, folder: Path) -> str:
    """Return why an entry of a folder is not read. A link must not leak an auditor's own files into the report."""
    if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        return "it is a link that leaves the folder: give what it leads to by its name"
    if path.is_symlink() and not path.is_file():
        return "it is a link to a folder, or to nothing: give what it leads to by its name"
    return "" if path.is_file() or path.is_dir() else "it is no regular file"


def _guarded(path: Path, read_piece: Callable[[], Piece]) -> Piece:
    """Read a file of a folder, which may hold anything."""
    try:
        return read_piece()
    except (ValueError, OSError) as error:
        return Piece(OTHER, str(path), reason=str(error))  # no digest, because nothing was read
    except Exception as error:  # noqa: BLE001 (whatever a file holds; no message, which may quote it)
        return Piece(OTHER, str(path), reason=f"it cannot be read ({type(error).__name__})")


def _named(path: Path) -> Piece:
    check_regular(path, _MOST_BYTES)
    with locked(path) as is_free:  # a ledger that is being written is not even opened
        if is_free:
            with path.open("rb") as file:
                start = file.read(len(_SQLITE))
        else:
            start = _SQLITE
    if start == _SQLITE:
        return _of_ledger(path)
    if start.startswith(_PARQUET):
        return Piece(LABELS, str(path), sealed=_sealed(path), labels=read_parquet_labels([path]), is_parquet=True)
    if path.suffix in _SUFFIXES:
        return _of_labels(path)
    if start.startswith(_ZIP):
        return _not_judged(path, _ESTIMATOR)
    return _of_text(path)


def _of_ledger(path: Path) -> Piece:
    for journal in (path.with_name(path.name + end) for end in BESIDE):
        try:
            is_file = stat.S_ISREG(journal.lstat().st_mode)
        except FileNotFoundError:  # one `lstat`: between two calls a journal may vanish by a commit
            continue
        if not is_file:
            raise ValueError(f"{str(journal)!r} is a link or no file, and no journal that SQLite left")
    check_regular(path, _MOST_HELD)
    return Piece(LEDGER, str(path), tuple(ledger_files(path).items()))


def _of_labels(path: Path) -> Piece:
    with path.open("rb") as file:
        head = file.read(len(BOM_UTF8 + _VOTERS_HEAD)).removeprefix(BOM_UTF8)
    if head.startswith(_VOTERS_HEAD):
        return _not_judged(path, _OF_VOTERS)
    return Piece(LABELS, str(path), sealed=_sealed(path), labels=read_labels(path))


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
            return Piece(NOTES, whole, (("", content),))
        return _not_judged(path, _BESIDE if content.startswith(_KEY) else f"nothing is known of such files; {_ABSENT}")
    if not isinstance(data, dict):
        raise ValueError(f"{whole!r} holds no JSON object")  # noqa: TRY004 (a bad file, not a bad type)
    named = data.get("format")
    roles = {RECEIPT_FORMAT: RECEIPT, _SANITIZED: FIGURE, **dict.fromkeys(_RELEASES, ANSWERS)}
    if named is None and {"warning", "table_1"} <= data.keys():
        return _not_judged(path, _PRIVATE)
    if not isinstance(named, str) or named in roles or "checksum" in data:
        return Piece(roles.get(str(named), ANSWERS), whole, (("", content),))
    is_report = named.startswith("darrm ")
    return _not_judged(path, f"{_REPORTS} (format {named!r})" if is_report else "it is of a format that is not known")


def _not_judged(path: Path, reason: str) -> Piece:
    return Piece(OTHER, str(path), sealed=_sealed(path), reason=reason)


def _of_partitions(folder: Path, paths: Sequence[Path]) -> Piece:
    sealed = tuple(seal for path in paths for seal in _sealed(path, f"/{path.name}"))
    return Piece(LABELS, str(folder), sealed=sealed, labels=read_parquet_labels(paths), is_parquet=True)


def _sealed(path: Path, end: str = "") -> tuple[Sealed, ...]:
    with path.open("rb") as file:
        return ((end, os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()),)
