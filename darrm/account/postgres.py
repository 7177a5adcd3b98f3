"""A ledger in PostgreSQL: the rows, checks and links of `darrm.account.ledger_rows`, in a database of many machines.

**One after another.** A transaction that writes is SERIALIZABLE and locks the table of the budget before its snapshot
is taken, as SQLite's ``BEGIN IMMEDIATE`` does: nobody decides on a total that another process is about to change, and
no debit of darrm makes another one fail. Who else writes to these tables may: nothing was debited then, and the message
says so. Readers take one snapshot and wait for no other process. Threads of one process take turns, over one
connection, and share commits: `darrm.account.group_commit`.

**A commit that was cut off.** If the connection breaks while the server commits, nobody here knows what came of it. The
debit then looks for its own token in the next transaction, which first takes a lock that the one before holds until it
has ended, either way.

The statements are those of `ledger_rows`; `_WORDS` has what PostgreSQL calls otherwise. Texts compare by their code
points (``COLLATE "C"``), as in SQLite. The tables stand in the schema that the connection's search path names first:
``public``, or what ``?options=-csearch_path%3DNAME`` says. Passwords come from ``PGPASSWORD``, ``~/.pgpass`` or a
service file, and never stand in a URL, which command lines and logs show.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache

from darrm.account.ledger_store import HOW_TO_CREATE, RESTORE, LedgerStore
from darrm.account.store import Connection, Store, is_url
from darrm.errors import LedgerError, checks
from darrm.system.extras import Untyped, require

_LIKE = "write postgresql://USER@HOST:PORT/DATABASE, or postgresql:///?service=NAME"
_SECRETS = ("password", "sslpassword")
_BROKEN = "08"  # the class of SQLSTATEs of connections
_SCHEMA = (
    """CREATE TABLE ledger (id INTEGER PRIMARY KEY CHECK (id = 1), application INTEGER NOT NULL,
       version INTEGER NOT NULL, last INTEGER NOT NULL, moved TEXT NOT NULL)""",
    "INSERT INTO ledger VALUES (1, 0, 0, 0, '')",
)
_ALONE = "SELECT pg_advisory_xact_lock(1684107890)"  # "darr": one ledger is made at a time
_NEXT = "WITH next AS (UPDATE ledger SET last = last + 1 RETURNING last)"
_WORDS = (
    ("INTEGER PRIMARY KEY AUTOINCREMENT", "bigint PRIMARY KEY"),
    # a B-tree takes no text of more than 2,700 bytes; a Rényi curve is longer
    ("cost TEXT NOT NULL UNIQUE", "cost TEXT NOT NULL, EXCLUDE USING hash (cost WITH =)"),
    ("ON charges (output)", "ON charges USING hash (output)"),
    ("(cost) DO NOTHING", "DO NOTHING"),
    ("INTEGER", "bigint"),
    ("TEXT", 'text COLLATE "C"'),
    ("BLOB", "bytea"),
    ("ifnull(", "coalesce("),
    ("max(answered, ?)", "greatest(answered, ?)"),
    ("(SELECT max(seq) FROM sqlite_sequence WHERE name = 'charges')", "(SELECT last FROM ledger)"),
    # numbers without gaps, which a sequence does not promise
    ("INSERT INTO charges (time, kind,", f"{_NEXT} INSERT INTO charges (id, time, kind,"),
    ("questions) VALUES (", "questions) VALUES ((SELECT last FROM next), "),
    ("INTO kinds (cost,", "INTO kinds (id, cost,"),
    ("seal) VALUES (?, ?, 0", "seal) VALUES ((SELECT coalesce(max(id), 0) + 1 FROM kinds), ?, ?, 0"),
    ("?", "%s"),
)
_STATE = """SELECT application, version, (SELECT count(*) FROM pg_catalog.pg_class c
    LEFT JOIN pg_catalog.pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal
    LEFT JOIN pg_catalog.pg_rewrite r ON r.ev_class = c.oid
    WHERE c.relnamespace = current_schema()::regnamespace AND (t.oid IS NOT NULL OR r.oid IS NOT NULL)), 'ok'
    FROM ledger"""
_ASKED = {  # of SQLite's own, answered by what a transaction read at its beginning
    "PRAGMA application_id": 0,
    "PRAGMA user_version": 1,
    "SELECT count(*) FROM sqlite_master WHERE type IN ('trigger', 'view')": 2,
    "PRAGMA quick_check(1)": 3,  # pages are the server's own: see its data_checksums
}
_MOST_KEPT = 100  # rows of what was read, for as long as nothing is written
_NOTHING = (0, 0, 0, "ok")
_SET = {"PRAGMA application_id": "application", "PRAGMA user_version": "version"}
_ADVICE = {  # by SQLSTATE, or its class
    "42P01": f"there is no ledger in it: {HOW_TO_CREATE}",
    "42P07": "it exists already, and a new budget would forget what was spent: open it as it is",
    "42501": "this user may not do that: GRANT it SELECT, INSERT, UPDATE on the ledger's tables; nothing was debited",
    "42": f"it is corrupted, a table or a column of it is missing or damaged: {RESTORE}",
    "25006": "it cannot be written, so nothing was debited: the server or this user is read-only (a standby?)",
    "40": "another program wrote to its tables at the same moment: nothing was debited; try again",
    "55P03": "another process kept it locked for too long: nothing was debited; try again",
    "53100": "the disk of the server is full: nothing was debited; free some space and try again",
    "53": "the server lacks memory or connections: nothing was debited; try again later",
    "57": "the server stops or restarts: nothing was released; try again",
    "58": "the server's file system refused to read or write: nothing was released; check its disk",
    "XX": f"it is corrupted: {RESTORE}",
    "23": f"it is corrupted, the server refuses a row: {RESTORE}",
}
_LOST = (
    "the server cannot be reached, or lets nobody in: nothing was released; check that it runs, the URL, and the "
    "password in PGPASSWORD, ~/.pgpass or a service file"
)


def check_url(url: str) -> None:
    """Refuse a URL with a password in it, or one that cannot be read, with `ValueError` that does not show it."""
    psycopg = require("psycopg")
    try:
        words = require("psycopg.conninfo").conninfo_to_dict(url)
    except psycopg.Error:
        raise ValueError(f"the URL of the ledger cannot be read: {_LIKE}") from None
    if any(words.get(secret) for secret in _SECRETS):
        advice = "command lines and logs show it: set PGPASSWORD, ~/.pgpass or a service file (PGSERVICEFILE)"
        raise ValueError(f"the URL of a ledger must have no password in it: {advice}")


def open_store(name: str, *, timeout: float) -> Store:
    """Return the store of a ledger, by its URL or the name of its file."""
    return PostgresStore(name, timeout=timeout) if is_url(name) else LedgerStore(name, timeout=timeout)


class PostgresStore(Store):
    """Transactions on a ledger in PostgreSQL, over one connection for each process.

    Parameters
    ----------
    path
        Its URL, as libpq reads it, without a password.
    timeout
        Seconds to wait for the server, and for another process's transaction.

    Raises
    ------
    ValueError
        If the URL is none, or has a password, or psycopg is not installed.
    """

    def __init__(self, path: str, *, timeout: float) -> None:
        checks.positive(timeout=timeout)
        check_url(path)
        self.path, self.timeout = path, timeout
        self._is_new, self._is_uncertain = False, False
        self._afresh()

    def _afresh(self) -> None:
        """Begin without a connection: a forked child must leave that of its parent alone."""
        self._process = os.getpid()
        self._link: Untyped = None
        self._close: Callable[[], object] = lambda: None
        self._turn = threading.Lock()

    def create(self) -> None:
        """Let the next transaction make the tables; it raises `LedgerError` if they are there."""
        self._is_new = True

    def discard(self) -> None:
        """Do nothing: tables whose creation failed were never there."""

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Untyped]:
        """Run a block as one transaction, or as part of one: durable when it ends, undone if it raises.

        Raises
        ------
        LedgerError
            If the server refuses or is gone; the block's changes are then undone, or `PrivacyLedger.debit` finds out.
        """
        if self._process != os.getpid():
            self._afresh()
        with self._turn, _translated(self.path):
            connection = self._begin(write=write)
            try:
                if write:
                    self.check_open(connection)
                yield connection
                self._commit()
            except BaseException:
                if self._link is not None:
                    with suppress(require("psycopg").Error):  # a connection that is not idle is dropped later
                        self._link.execute("ROLLBACK")
                raise

    def moved(self, connection: Connection) -> str:
        """Return where the ledger was moved to; empty for one that was not."""
        return str(connection.execute("SELECT moved FROM ledger").fetchone()[0])

    def close(self, connection: Connection, there: str) -> None:
        """Let the ledger pay no more, because it was moved."""
        connection.execute("UPDATE ledger SET moved = ?", (there,))

    def set_last(self, connection: Connection, number: int) -> None:
        """Say which number an entry got last, in a ledger whose rows were copied."""
        connection.execute("UPDATE ledger SET last = ?", (number,))

    def _begin(self, *, write: bool) -> Connection:
        """Start a transaction, over a new connection if the old one was lost while nobody used it."""
        psycopg = require("psycopg")
        is_idle = self._link is not None and self._link.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if not is_idle:
            self._drop()
            self._link = self._connect()
            self._close = weakref.finalize(self, _close, self._link, self._process)
        try:
            return self._begun(write=write)
        except BaseException as error:
            is_lost = is_idle and isinstance(error, psycopg.OperationalError) and self._link.closed
            self._drop()
            if not is_lost:
                raise
        return self._begin(write=write)

    def _begun(self, *, write: bool) -> Connection:
        level = "SERIALIZABLE" if write else "REPEATABLE READ, READ ONLY"
        self._link.execute(f"BEGIN ISOLATION LEVEL {level}")
        connection = _Connection(self._link, self.path)
        if self._is_new and write:
            self._is_new = False
            self._link.execute(_ALONE)
            for statement in _SCHEMA:
                connection.execute(statement)
        elif write or self._is_uncertain:  # a reader waits for a commit that was cut off
            self._link.execute("LOCK TABLE budget IN EXCLUSIVE MODE")
        connection.read_state()
        self._is_uncertain = False
        return connection

    def _connect(self) -> Untyped:
        link = require("psycopg").connect(
            self.path,
            autocommit=True,
            connect_timeout=max(2, round(min(self.timeout, 10.0))),
            tcp_user_timeout=round(1000 * self.timeout),
            fallback_application_name="darrm",
            client_encoding="utf8",
        )
        link.adapters.register_loader("numeric", require("psycopg.types.numeric").IntLoader)  # sums of counts
        link.execute("SELECT set_config('search_path', quote_ident(current_schema()), false)")
        link.execute(f"SET lock_timeout = {round(1000 * self.timeout)}")
        link.execute("SET row_security = off")  # rows that a policy hides are an error
        settings = ("fsync", "synchronous_commit", "server_encoding")
        fsync, commit, encoding = (link.execute(f"SHOW {name}").fetchone()[0] for name in settings)
        if commit == "off":
            link.execute("SET synchronous_commit = on")
        if fsync != "on" or encoding != "UTF8":
            link.close()
            wrong = "its server does not wait for the disk (fsync = off)" if fsync != "on" else f"it is {encoding}"
            raise LedgerError(self.path, f"{wrong}: a ledger needs fsync = on and a database in UTF8")
        return link

    def _commit(self) -> None:
        try:
            self._link.execute("COMMIT")
        except BaseException:
            self._is_uncertain = True
            self._drop()
            raise

    def _drop(self) -> None:
        self._link = None
        self._close()


def _close(link: Untyped, process: int) -> None:
    """Close a connection, but not a parent's."""
    if os.getpid() == process:
        with suppress(require("psycopg").Error):
            link.close()


class _Connection:
    """What `ledger_rows` says to SQLite, said to PostgreSQL; what was read stays so until something is written."""

    def __init__(self, link: Untyped, path: str) -> None:
        self._link, self._path = link, path
        self._state: tuple[Untyped, ...] = _NOTHING
        self._read: dict[tuple[str, tuple[object, ...]], _Answer] = {}

    def read_state(self) -> None:
        """Read what says whether the tables are a ledger, and of which version."""
        self._state = self._link.execute(_STATE).fetchone() or _NOTHING

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> Untyped:
        """Run a statement of SQLite's."""
        if statement in _ASKED:
            return _Answer([(self._state[_ASKED[statement]],)])
        words, _, value = statement.partition(" = ")
        if words in _SET:
            self._link.execute(f"UPDATE ledger SET {_SET[words]} = {int(value)}")  # noqa: S608 (a number)
            return self.read_state()
        if not statement.startswith("SELECT"):
            self._read.clear()
        elif (statement, values) in self._read:
            return self._read[statement, values]
        with _translated(self._path):
            cursor = self._link.execute(_in_its_words(statement), values or None)
        answer = _Answer(cursor.fetchall() if cursor.description else ())
        if statement.startswith("SELECT") and len(answer.fetchall()) <= _MOST_KEPT:
            self._read[statement, values] = answer
        return answer

    def executemany(self, statement: str, values: Iterable[tuple[object, ...]]) -> None:
        """Run a statement for each row of values."""
        self._read.clear()
        with _translated(self._path), self._link.cursor() as cursor:
            cursor.executemany(_in_its_words(statement), values)


class _Answer:
    """The rows that a statement returned, read from the first one on."""

    def __init__(self, rows: Iterable[tuple[Untyped, ...]]) -> None:
        self._rows = list(rows)

    @property
    def lastrowid(self) -> int:
        """The number of the entry that was written."""
        return int(self._rows[0][0])

    def __iter__(self) -> Iterator[tuple[Untyped, ...]]:
        return iter(self._rows)

    def fetchone(self) -> tuple[Untyped, ...] | None:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[tuple[Untyped, ...]]:
        return self._rows


@cache
def _in_its_words(statement: str) -> str:
    for theirs, ours in _WORDS:
        statement = statement.replace(theirs, ours)
    return f"{statement} RETURNING id" if statement.startswith(_NEXT) else statement


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Turn PostgreSQL's errors into `LedgerError` with what it means for the budget."""
    psycopg = require("psycopg")
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or _BROKEN
        named = [state[:length] for length in (5, 2) if state[:length] in _ADVICE]
        unknown = _LOST if isinstance(error, psycopg.OperationalError) else "the database refused: nothing was released"
        words = " ".join(str(error).split()) or type(error).__name__
        raise LedgerError(path, f"{_ADVICE[named[0]] if named else unknown} (PostgreSQL: {words})") from error
