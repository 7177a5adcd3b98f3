"""Names, tables and messages of all ledgers, and a ledger in one SQLite file, opened again for every transaction.

SQLite and PostgreSQL read ``$1``, ``$2`` … as parameters and the same upserts, and compare texts by code points.

A connection that lives only as long as its transaction needs no care in forked processes and threads; a killed process
leaves at most a journal, which the next opening rolls back. A writer takes the write lock first (``BEGIN IMMEDIATE``),
so no process decides on a total that another is about to change. ``synchronous=EXTRA`` makes a commit durable before it
returns, also the folder of the journal. A copy of a ledger needs its journal.

A transaction refuses a file with a second name, because a journal has only one of them, and a file that is not the one
that this object found first: by its inode here, by its identity in `darrm.ledger.ledger`.

A forked child inherits SQLite's memory of locks without the locks, and would wait for itself. So a fork waits for the
transactions of all threads to end.

**SQLite's locks are not enough.** A process loses all its POSIX locks on a file when it closes any handle of that file,
also one that a backup opened in another thread. So every transaction, a reader's too, first takes `hold_lock`, by
flock on an empty file ``.NAME.lock``; only closing its handle ends that lock. The file may be deleted while the ledger
is not in use, and a copy needs none. Before darrm opens a file that may be a ledger as plain bytes, it waits until this
process is in no transaction: `between_transactions`.
"""

import errno
import fcntl
import math
import os
import re
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from darrm.errors import LedgerError
from darrm.util import checks
from darrm.util.extras import Untyped
from darrm.util.files import between_transactions

MEMORY = ":memory:"
RESTORE = "restore a copy that is at least as new as the last release, or count its whole budget as spent"
HOW_TO_CREATE = "make a ledger first, by PrivacyLedger.create(path, budget) or release --create-budget EPS,DELTA"
EXISTS_ADVICE = "it exists already, and a new budget would forget all debits: open it as it is"
# a URL or the words of libpq: other schemes and spellings, and words that may hold a password
_NOT_A_FILE = re.compile(
    r"://|^\s*[a-z][a-z0-9+.]+:/|(password|passwd|secret|_key)\s*=|\b(host|hostaddr|dbname)\s*=", re.IGNORECASE
)


def is_url(name: object) -> bool:
    """Whether a ledger's name is the URL of a database; `ValueError`, without the name, if it is no file either."""
    if not isinstance(name, str):
        return False
    if name.startswith(("postgresql:", "postgres:")):
        return True
    if _NOT_A_FILE.search(name):
        explanation = "a ledger is a file or a URL like postgresql://USER@HOST:PORT/DATABASE, and this is neither"
        raise ValueError(f"{explanation}: it is not shown, because it may hold a password")
    return False


def ledger_name(text: str) -> Path | str:
    # a path would lose the slashes of a URL
    return text if is_url(text) else Path(text)


def schema(integer: str, text: str, blob: str, one_cost: str) -> tuple[str, ...]:
    return (
        f"""CREATE TABLE budget (id {integer} PRIMARY KEY CHECK (id = 1), format {text}, identity {text},
            epsilon {text}, delta {text}, composition {text}, population {text}, created {text}, checksum {text})""",
        f"""CREATE TABLE costs (id {integer} PRIMARY KEY, cost {text}, what {text},
            total {integer} NOT NULL CHECK (total >= 0), table_digest {text}, checksum {text}, {one_cost})""",
        f"""CREATE TABLE entries (id {integer} PRIMARY KEY, time {text}, cost {integer} NOT NULL REFERENCES costs (id),
            count {integer} NOT NULL CHECK (count > 0), note {text}, table_digest {text}, labels_digest {text},
            token {text}, output {text}, questions {text}, entry_hash {text}, signature {text}, files {text},
            labels {blob})""",
        f"""CREATE TABLE state (id {integer} PRIMARY KEY CHECK (id = 1), last_entry {integer} NOT NULL,
            moved_to {text}, checksum {text})""",
    )


def corrupted(path: str, reason: str) -> LedgerError:
    return LedgerError(path, f"it is corrupted ({reason}): {RESTORE}")


_APPLICATION_ID, _FORMAT_VERSION = 0x6C656467, 1  # "ledg"; both are in the header of the file
_SCHEMA = (
    *schema("INTEGER", "TEXT NOT NULL", "BLOB", "UNIQUE (cost)"),
    "CREATE INDEX undelivered ON entries (output) WHERE labels IS NOT NULL",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_FORMAT_VERSION}",
)
_POLLING_SECONDS = 0.002  # far below the time of a debit, which waits for the disk
_WAL_ADVICE = (
    "another program switched it to a write-ahead log (WAL), so a copy of the file lacks the newest entries, and "
    "holds it open: close that program; nothing was debited"
)
_NO_LOCKS_ADVICE = (
    "the file system does not lock files ({}), so nothing was debited: keep the ledger on a disk of this machine, or "
    "mount the folder with locks"
)
_PERMISSION_ADVICE = "it cannot be accessed: check the permissions of the file and its folder"
ADVICE = {
    sqlite3.SQLITE_ERROR: f"it is corrupted, a table or a column of it is missing or damaged: {RESTORE}",
    sqlite3.SQLITE_FULL: "the disk is full: nothing was debited; free some space and try again",
    sqlite3.SQLITE_IOERR: "the file system refused to read or write: nothing was released; check the disk",
    sqlite3.SQLITE_READONLY: "it cannot be written, so nothing was debited: make the file and its folder writable",
    sqlite3.SQLITE_PERM: _PERMISSION_ADVICE,
    sqlite3.SQLITE_AUTH: _PERMISSION_ADVICE,
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened, or its journal cannot be written: check that the file and its "
    "folder exist and are writable",
    sqlite3.SQLITE_BUSY: "another process kept it locked for too long: nothing was debited; try again",
    sqlite3.SQLITE_NOTADB: f"it is no ledger at all, so check the name, or it is corrupted: {RESTORE}",
    sqlite3.SQLITE_CORRUPT: f"it is corrupted: {RESTORE}",
}


def check_kept(path: Path | str) -> None:
    if str(path) == MEMORY:
        checks.fail("--ledger", str(path), "a file", "a ledger in memory forgets all debits; name a file")


_fork_lock = threading.RLock()  # a waiting fork holds it, so that threads which debit all the time let it pass


for _lock in (between_transactions, _fork_lock):  # hooks before a fork run in reverse order
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@contextmanager
def hold_lock(path: str, *, write: bool) -> Iterator[bool]:
    """Hold the lock of a ledger's transactions; yield False if another process does. A reader makes no file."""
    real = Path(os.path.realpath(path))  # of the file, not of a link to it
    lock_file = real.with_name(f".{real.name}.lock")
    try:
        handle = _open_lock_file(lock_file, real, write=write)
    except OSError as error:
        if write:
            message = f"it cannot be written, so nothing was debited: {lock_file.name} next to it cannot be opened"
            raise LedgerError(path, f"{message} ({error.strerror}); make the folder writable") from error
        yield True
        return
    try:
        yield _acquire_lock(handle, lock_file, path)
    finally:
        os.close(handle)


def _open_lock_file(lock_file: Path, real: Path, *, write: bool) -> int:
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    if not write:
        try:
            return os.open(lock_file, os.O_RDWR | flags)
        except PermissionError:
            return os.open(lock_file, os.O_RDONLY | flags)
    handle = os.open(lock_file, os.O_RDWR | os.O_CREAT | flags, 0o600)
    with suppress(OSError):  # another user made it
        lock, ledger = os.fstat(handle), real.stat()
        mode = stat.S_IMODE(ledger.st_mode) & 0o666 | 0o600
        if (lock.st_uid, lock.st_gid) != (ledger.st_uid, ledger.st_gid):
            os.fchown(handle, ledger.st_uid, ledger.st_gid)  # root may come first, and the owner later
        if stat.S_IMODE(lock.st_mode) != mode:
            os.fchmod(handle, mode)
    return handle


def _acquire_lock(handle: int, lock_file: Path, path: str) -> bool:
    # an emulated lock of a network folder is exclusive only for who may write
    lock_type = fcntl.LOCK_EX if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR else fcntl.LOCK_SH
    try:
        fcntl.flock(handle, lock_type | fcntl.LOCK_NB)
        with suppress(BlockingIOError):  # SQLite's kind of lock: it reports a lack of them as a file that is locked
            fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(handle), lock_file.stat())  # it may have been deleted since it was opened
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError as error:
        raise LedgerError(
            path, _NO_LOCKS_ADVICE.format(errno.errorcode.get(error.errno or 0, error.strerror))
        ) from error


class SQLiteDatabase:
    schema = _SCHEMA

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self.connection, self.path = connection, path

    def execute(self, statement: str, *values: object) -> list[tuple[Untyped, ...]]:
        return self.connection.execute(statement, {str(n): value for n, value in enumerate(values, 1)}).fetchall()

    def check_format(self) -> None:
        application, version = (self._query_value(f"PRAGMA {name}") for name in ("application_id", "user_version"))
        if application != _APPLICATION_ID:
            if self.is_empty:
                state = f"it is empty: {RESTORE}. If its creation was cut short and it never paid, delete it, and"
                raise LedgerError(self.path, f"{state} {HOW_TO_CREATE}")
            raise LedgerError(self.path, f"it is no ledger: {HOW_TO_CREATE}")
        if version != _FORMAT_VERSION:
            message = f"it is a ledger of format {version}, and this darrm reads format {_FORMAT_VERSION}"
            raise LedgerError(self.path, f"{message}: use the version of darrm that wrote it")
        if self._query_value("SELECT count(*) FROM sqlite_master WHERE type IN ('trigger', 'view')"):
            raise corrupted(self.path, "a trigger or a view was added, which may undo a debit")

    @property
    def is_empty(self) -> bool:
        # as after a creation that was cut off
        return bool(self._query_value("SELECT count(*) FROM sqlite_master") == 0)

    def check_pages(self) -> None:
        if (answer := self._query_value("PRAGMA quick_check(1)")) != "ok":
            raise corrupted(self.path, str(answer))

    def _query_value(self, statement: str) -> Untyped:
        return self.execute(statement)[0][0]


class SQLiteStore:
    """Transactions on a file or ``:memory:``; ``timeout`` is in seconds."""

    def __init__(self, path: str, *, timeout: float) -> None:
        checks.positive(timeout=timeout)
        # a later change of the working folder must not lead to another file
        self.path = path if path == MEMORY else str(Path(path).absolute())
        self.timeout = timeout
        self._inode: tuple[int, int] | None = None
        self._memory: sqlite3.Connection | None = None
        self._memory_owner = os.getpid()
        self._memory_lock = threading.RLock()

    def create(self) -> None:
        """Make an empty file; the first transaction fills it."""
        if self.path == MEMORY:
            self._memory = sqlite3.connect(MEMORY, isolation_level=None, check_same_thread=False)
            return
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError as error:
            raise LedgerError(self.path, EXISTS_ADVICE) from error
        except OSError as error:
            raise LedgerError(self.path, f"it cannot be created: {error.strerror}; check its folder") from error

    def discard(self) -> None:
        if self.path != MEMORY:
            Path(self.path).unlink(missing_ok=True)

    def is_unfinished(self) -> bool:
        """Whether the creation of a file was cut off."""
        if self.path == MEMORY or not Path(self.path).is_file():
            return False
        with self.transaction(write=False) as database:
            return database.is_empty

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[SQLiteDatabase]:
        with translate_errors(self.path), self._connection() as connection, self._begin(connection, write=write):
            try:
                self._check_file()
                yield SQLiteDatabase(connection, self.path)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if self.path == MEMORY:
            with self._memory_lock:
                if self._memory is None or os.getpid() != self._memory_owner:
                    message = "a ledger in memory belongs to the process that made it: use a file to share a budget"
                    raise LedgerError(self.path, message)
                yield self._memory
            return
        if not Path(self.path).is_file():
            state = "it is a folder" if Path(self.path).is_dir() else "there is no such file"
            raise LedgerError(self.path, f"{state}: {HOW_TO_CREATE}")
        # mode=rw: a file that has vanished must not come back empty, with its whole budget
        uri = f"{Path(self.path).as_uri()}?mode=rw"
        # a fork while SQLite opens or closes would leave locks of SQLite locked in the child
        with between_transactions:
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=0)
        try:
            yield connection
        finally:
            with between_transactions:
                connection.close()

    @contextmanager
    def _begin(self, connection: sqlite3.Connection, *, write: bool) -> Iterator[None]:
        """Wait for the lock; in SQLite's own waiting a reader among many writers sleeps for seconds."""
        deadline = time.monotonic() + self.timeout
        while True:
            with _fork_lock:
                pass
            lock = nullcontext(enter_result=True) if self.path == MEMORY else hold_lock(self.path, write=write)
            with between_transactions, lock as is_locked:
                obstacle = _try_begin(connection, write=write) if is_locked else ADVICE[sqlite3.SQLITE_BUSY]
                if not obstacle:
                    connection.execute(f"PRAGMA busy_timeout = {math.ceil(1000 * self.timeout)}")  # a commit's readers
                    yield
                    return
            if time.monotonic() > deadline:
                raise LedgerError(self.path, obstacle) from TimeoutError("another process kept it locked for too long")
            time.sleep(_POLLING_SECONDS)

    def _check_file(self) -> None:
        if self.path == MEMORY:
            return
        try:
            status = Path(self.path).stat()
        except OSError as error:
            raise LedgerError(self.path, f"it was moved away: {RESTORE}") from error
        if status.st_nlink != 1:
            message = f"it has {status.st_nlink} names (hard links), and a journal is found by one of them only"
            raise LedgerError(self.path, f"{message}: keep one name; nothing was debited")
        inode = (status.st_dev, status.st_ino)
        if self._inode not in {None, inode}:
            message = "another file was put in its place since it was opened, so nothing was debited"
            raise LedgerError(self.path, f"{message}: {RESTORE}")
        self._inode = inode


def _try_begin(connection: sqlite3.Connection, *, write: bool) -> str:
    """Begin a transaction, or return why another program prevents it."""
    obstacle = ADVICE[sqlite3.SQLITE_BUSY]
    try:
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone stops at the drive's cache
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master")  # a reader locks when it first reads
        if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            return ""
        obstacle = _WAL_ADVICE  # switch it back: a copy of the file would lack the newest entries
        connection.execute("ROLLBACK")
        connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.OperationalError as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
    return obstacle


@contextmanager
def translate_errors(path: str) -> Iterator[None]:
    """Turn errors of SQLite into `LedgerError`, with the consequence for the budget."""
    try:
        yield
    except sqlite3.Error as error:
        primary = getattr(error, "sqlite_errorcode", 0) & 0xFF  # extended codes keep the primary one in the low byte
        advice = ADVICE.get(primary, "the database refused, so nothing was released")
        raise LedgerError(path, f"{advice} (SQLite: {error})") from error
    except UnicodeDecodeError as error:  # a text of the schema or of a row is no text any more
        raise LedgerError(path, ADVICE[sqlite3.SQLITE_CORRUPT]) from error
