"""Read a ledger's files: copy them under the ledger's lock, and recompute every checksum and hash.

The ledger itself is never opened. Its file is copied, with the journal of a crash if there is one, and the copy is
read. The verdicts and the digests of the report refer to this copy.
"""

import fcntl
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from darrm.verify.formats import Charge, exact_number, join, read_charge
from darrm.verify.numbers import Point

BESIDE = ("-journal", "-wal", "-shm")  # name endings of the files that SQLite leaves after a crash
COMPOSITIONS = ("one", "planned", "adaptive", "renyi")
STREAM = "-"  # begins the output of a stream; that of a file is an absolute path
_ATTEMPTS, _PAUSE = 500, 0.01  # seconds, while another process writes
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


_APPLICATION, _VERSION = 0x6C656467, 1
_Budget = tuple[str, str, str, str, str, str, str]  # identity, ε, δ, composition, population, created, checksum


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
    names = ("", *BESIDE)
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE)
        with locked(real) as is_locked:
            if not is_locked:
                continue
            before = [_state(real, name) for name in names]
            try:
                found = {
                    name: real.with_name(real.name + name).read_bytes()
                    for name, state in zip(names, before, strict=True)
                    if state is not None
                }
            except FileNotFoundError:  # a journal that was just dropped
                continue
            if [_state(real, name) for name in names] == before:
                return found
    raise LedgerFaultError(f"{str(path)!r} is being written all the time: verify a copy of it")


def _state(path: Path, beside: str) -> tuple[int, int, int] | None:
    try:
        found = path.with_name(path.name + beside).stat()
    except FileNotFoundError:
        if not beside:
            raise
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold a ledger's lock ``.NAME.lock``, if the file exists; yield False if another process holds it.

    A process that closes any handle of a file loses all its POSIX locks on it, so a ledger is not opened without it.
    """
    real = Path(os.path.realpath(path))
    try:
        handle = os.open(real.with_name(f".{real.name}.lock"), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield True
        return
    try:
        yield _is_free(handle, real.with_name(f".{real.name}.lock"))
    finally:
        os.close(handle)


def _is_free(handle: int, beside: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(handle), beside.stat())  # it may have been deleted since it was opened
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:  # a file system without locks
        return True


def read_ledger(files: Mapping[str, bytes]) -> Ledger:
    """Read a copy of a ledger's files; `LedgerFaultError` if it is damaged or no ledger."""
    with tempfile.TemporaryDirectory(prefix="darrm-verify-") as folder:
        copy = Path(folder) / "ledger.sqlite"
        for beside, content in files.items():
            copy.with_name(copy.name + beside).write_bytes(content)
        try:
            with closing(sqlite3.connect(f"{copy.absolute().as_uri()}?mode=rw", uri=True)) as connection:
                (application,) = connection.execute("PRAGMA application_id").fetchone()
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if (application, version) != (_APPLICATION, _VERSION):
                    raise LedgerFaultError("it is no ledger, or of a version that is not read")
                added = "SELECT count(*) FROM sqlite_master WHERE type IN ('trigger', 'view')"
                if connection.execute(added).fetchone() != (0,):
                    raise LedgerFaultError("a trigger or a view was added, which may undo a debit")
                if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                    raise LedgerFaultError("its pages are damaged")
                return _read(connection)
        except (sqlite3.Error, UnicodeDecodeError, TypeError, KeyError, RecursionError, OverflowError) as error:
            raise LedgerFaultError(f"it cannot be read ({type(error).__name__}: {error})") from error


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
    except psycopg.Error as error:
        raise LedgerFaultError(f"the server holds no ledger ({type(error).__name__})") from error


def _read(connection: Any) -> Ledger:  # noqa: ANN401, C901 (of sqlite3 or psycopg; one check a line)
    words = "SELECT identity, epsilon, delta, composition, population, created, checksum FROM budget"
    budgets = connection.execute(words).fetchall()
    if len(budgets) != 1:
        raise LedgerFaultError("it has no single budget")
    budget: _Budget = budgets[0]
    first = join("darrm-ledger 1", *budget[:6])  # the hash that the first entry follows
    if budget[6] != first or not budget[0] or budget[3] not in COMPOSITIONS:
        raise LedgerFaultError("the budget was changed")
    charges, costs, checksums, totals, whats = (
        dict[int, Charge](),
        dict[int, str](),
        dict[int, str](),
        list[object](),
        {},
    )
    words = "SELECT id, cost, what, total, table_digest, checksum FROM costs ORDER BY id"
    for number, cost, what, total, answered, stored in connection.execute(words).fetchall():
        checksums[number] = join(cost, what)
        if stored != checksums[number]:
            raise LedgerFaultError("the cost of a query was changed")
        try:
            charges[number] = read_charge(cost).repeated(total)
        except ValueError as error:
            raise LedgerFaultError(str(error)) from error
        costs[number], whats[number] = cost, what
        totals += [number, total, answered]
    entries, hashes, queries = list[Entry](), [first], [0]
    counts = dict.fromkeys(costs, 0)
    words = (
        "SELECT id, time, cost, count, note, table_digest, labels_digest, token, output, questions, entry_hash, "
        "signature, files, labels FROM entries ORDER BY id"
    )
    for row in connection.execute(words):
        number, moment, cost, count, note, table, labels, token, output, questions, stored, signature, files, kept = row
        hashes.append(
            join(hashes[-1], number, moment, checksums[cost], count, note, table, labels, token, output, questions)
        )
        if number != len(hashes) - 1 or stored != hashes[-1]:
            raise LedgerFaultError(f"entry {number} does not carry the hash of itself and of the entry before it")
        queries.append(queries[-1] + count)
        counts[cost] += count
        entry = Entry(
            *(number, moment, cost, count, note, table, labels, output),
            tuple(_texts(questions, list)),
            tuple(_texts(files, dict).items()),
            str(signature),
            None if kept is None else bytes(kept),
            whats[cost],
            charges[cost].labels,
        )
        entries.append(entry)
    last, moved_to, stored = connection.execute("SELECT last_entry, moved_to, checksum FROM state").fetchone()
    if last != len(entries) or stored != join(last, hashes[-1], moved_to, *totals):
        raise LedgerFaultError("entries are missing, or the totals are not those of the entries")
    if any(count != charges[number].count for number, count in counts.items()):
        raise LedgerFaultError("the entries and the totals differ")
    ledger = Ledger(*budget[:6], charges, costs, tuple(entries), tuple(hashes), tuple(queries))
    try:
        _ = ledger.budget
    except ValueError as error:
        raise LedgerFaultError(str(error)) from error
    return ledger


def _texts(written: str, kind: type) -> Any:  # noqa: ANN401 (a list or a dictionary of texts)
    if not written:
        return kind()
    try:
        texts = json.loads(written)
    except ValueError:
        texts = None
    values = list(texts.values()) if isinstance(texts, dict) else texts
    if not isinstance(texts, kind) or not all(isinstance(text, str) for text in values):
        raise LedgerFaultError("the questions or files of an entry are no texts")
    return texts
