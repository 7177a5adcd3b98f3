"""The file behind a privacy ledger: one SQLite database, opened afresh for every transaction.

A connection that lives only as long as its transaction needs no care in forked processes and threads, and a killed
process leaves at most a journal that the next opening rolls back. Every transaction takes the write lock first
(``BEGIN IMMEDIATE``), so nobody decides on a total that another process is about to change; ``synchronous=EXTRA`` makes
a commit durable before it returns, even where the power fails right after it (the rollback journal's folder is synced
too). A journal beside the file belongs to it: whoever copies a ledger copies both.

A transaction believes only what it reads. It refuses a file with a second name (a journal lies beside one name and is
not seen through the other), and a file that is not the one that this object found first: its inode, here, and its
identity, in `darrm.account.ledger_rows`.

SQLite remembers the locks that a process holds, and a forked child inherits that memory without the locks: it would
wait for itself. So a fork waits until no other thread of its process is inside a transaction.
"""

import errno
import fcntl
import math
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from darrm.account.store import Connection, Store
from darrm.errors import LedgerError, checks

MEMORY = ":memory:"
_POLLING_SECONDS = 0.002  # far below the time of a debit, which waits for the disk
RESTORE = "restore a copy that is at least as new as the last release, or count its whole budget as spent"
HOW_TO_CREATE = "make a ledger first, by PrivacyLedger.create(path, budget) or release --create-budget EPS,DELTA"
_IN_WAL = (
    "another program switched it to a write-ahead log (WAL), of which a copy of the file lacks the newest entries, and "
    "holds it open: close that program; nothing was debited"
)
_WITHOUT_LOCKS = (
    "the file system does not lock files (ENOLCK), so nothing was debited: keep the ledger on a disk of this machine, "
    "or mount the folder with locks"
)
_PERMISSIONS = "it cannot be accessed: check the permissions of the file and its folder"
ADVICE = {
    sqlite3.SQLITE_ERROR: f"it is corrupted, a table or a column of it is missing or damaged: {RESTORE}",
    sqlite3.SQLITE_FULL: "the disk is full: nothing was debited; free some space and try again",
    sqlite3.SQLITE_IOERR: "the file system refused to read or write: nothing was released; check the disk",
    sqlite3.SQLITE_READONLY: "it cannot be written, so nothing was debited: make the file and its folder writable",
    sqlite3.SQLITE_PERM: _PERMISSIONS,
    sqlite3.SQLITE_AUTH: _PERMISSIONS,
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened, or no journal can be written beside it: check that the file and its "
    "folder exist and are writable",
    sqlite3.SQLITE_BUSY: "another process kept it locked for too long: nothing was debited; try again",
    sqlite3.SQLITE_NOTADB: f"it is no ledger at all, so check the name, or it is corrupted: {RESTORE}",
    sqlite3.SQLITE_CORRUPT: f"it is corrupted: {RESTORE}",
}


def check_kept(path: Path | str) -> None:
    """Raise `ValueError` for a ledger in memory where a command line needs one that outlives it.

    >>> check_kept(Path(":memory:"))
    Traceback (most recent call last):
    ...
    ValueError: --ledger must be a file, got ':memory:': a ledger in memory forgets what was spent; name a file
    """
    if str(path) == MEMORY:
        checks.fail("--ledger", str(path), "a file", "a ledger in memory forgets what was spent; name a file")


_transacting = threading.RLock()  # held while a file is opened or closed, during every transaction and every fork
_turn = threading.RLock()  # held by a fork that waits, so that threads which debit all the time let it pass


def _before_fork() -> None:
    _turn.acquire()
    _transacting.acquire()


def _after_fork() -> None:
    _transacting.release()
    _turn.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


class LedgerStore(Store):
    """Transactions on one ledger file, or on a database in memory.

    Parameters
    ----------
    path
        The file, or ``:memory:``.
    timeout
        Seconds to wait for another process's transaction.
    """

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
        """Make an empty file that nobody else made, or the database in memory.

        Raises
        ------
        LedgerError
            If something stands at the path already.
        """
        if self.path == MEMORY:
            self._memory = sqlite3.connect(MEMORY, isolation_level=None, check_same_thread=False)
            return
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError as error:
            message = "it exists already, and a new budget would forget what was spent: open it as it is"
            raise LedgerError(self.path, message) from error
        except OSError as error:
            raise LedgerError(self.path, f"it cannot be created: {error.strerror}; check its folder") from error

    def discard(self) -> None:
        """Remove a file whose creation failed before its first transaction ended."""
        if self.path != MEMORY:
            Path(self.path).unlink(missing_ok=True)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        """Run a block as one transaction: committed at its end, rolled back if it raises.

        Raises
        ------
        LedgerError
            If the database refuses; the block's changes are then undone.
        """
        with translated(self.path), self._connection() as connection, self._begun(connection, write=write):
            try:
                self._check_file()
                if write:
                    self.check_open(connection)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def moved(self, connection: Connection) -> str:
        """Return where the ledger was moved to; empty for one that was not."""
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'moved'").fetchone()
        return str(connection.execute("SELECT max(there) FROM moved").fetchone()[0]) if tables else ""

    def close(self, connection: Connection, there: str) -> None:
        """Let the ledger pay no more, because it was moved."""
        connection.execute("CREATE TABLE moved (there TEXT NOT NULL)")
        connection.execute("INSERT INTO moved VALUES (?)", (there,))

    def set_last(self, connection: Connection, number: int) -> None:
        """Say which number an entry got last, in a ledger whose rows were copied."""
        connection.execute("DELETE FROM sqlite_sequence WHERE name = 'charges'")
        connection.execute("INSERT INTO sqlite_sequence VALUES ('charges', ?)", (number,))

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
        # SQLite opens and closes under locks of its own, which a fork in between would leave locked in the child
        with _transacting:
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=0)
        try:
            yield connection
        finally:
            with _transacting:
                connection.close()

    @contextmanager
    def _begun(self, connection: sqlite3.Connection, *, write: bool) -> Iterator[None]:
        """Wait for the lock; SQLite's own waiting sleeps so long that a reader among many writers waits for seconds."""
        deadline = time.monotonic() + self.timeout
        while True:
            with _turn:
                pass
            with _transacting:
                if self._begins(connection, write=write, last=time.monotonic() > deadline):
                    connection.execute(f"PRAGMA busy_timeout = {math.ceil(1000 * self.timeout)}")  # a commit's readers
                    yield
                    return
            time.sleep(_POLLING_SECONDS)

    def _begins(self, connection: sqlite3.Connection, *, write: bool, last: bool) -> bool:
        """Try to begin a transaction; False if the file is locked, which raises at the last attempt."""
        # what another program switched to a write-ahead log is switched back: a copy of the file lacks what it holds
        begun = False  # with a rollback journal
        try:
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone stops at the drive's cache
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master")  # a reader locks when it first reads
            begun = connection.execute("PRAGMA journal_mode").fetchone() != ("wal",)
            if not begun:
                connection.execute("ROLLBACK")
                connection.execute("PRAGMA journal_mode = DELETE")
                if last:
                    raise LedgerError(self.path, _IN_WAL)
        except sqlite3.OperationalError as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            self._check_locks()
            if last:
                if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
                    raise LedgerError(self.path, _IN_WAL) from error
                raise
        return begun

    def _check_locks(self) -> None:
        """Tell a file system without locks, which SQLite reports as a file that is locked, from another process."""
        if self.path == MEMORY:
            return
        file = os.open(self.path, os.O_RDONLY)
        try:
            # beyond the bytes that SQLite locks; closing gives up all locks of this process, which has none now
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 2**40)
        except OSError as error:
            if error.errno == errno.ENOLCK:
                raise LedgerError(self.path, _WITHOUT_LOCKS) from error
        finally:
            os.close(file)

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


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn SQLite's errors into `LedgerError` with what it means for the budget."""
    try:
        yield
    except sqlite3.Error as error:
        primary = getattr(error, "sqlite_errorcode", 0) & 0xFF  # extended codes keep the primary one in the low byte
        advice = ADVICE.get(primary, "the database refused, so nothing was released")
        raise LedgerError(path, f"{advice} (SQLite: {error})") from error
    except UnicodeDecodeError as error:  # a text of the schema or of a row is no text any more
        raise LedgerError(path, ADVICE[sqlite3.SQLITE_CORRUPT]) from error
