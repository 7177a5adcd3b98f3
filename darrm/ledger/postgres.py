"""A ledger in PostgreSQL, for several machines: the tables and checks of a file, in one database.

A transaction that writes is SERIALIZABLE and locks the table of the budget before its snapshot is taken, so no process
decides on a total that another is about to change. If another program writes to these tables, a debit fails and nothing
is debited. Readers take one snapshot, and wait for no process. Threads of one process share a connection.

If the connection breaks while the server commits, the client cannot know the outcome. The debit then looks for its
token in the next transaction, which first takes a lock that the one before holds until it has ended.

The tables are in the first schema of the connection's search path: ``public``, or the NAME of
``?options=-csearch_path%3DNAME``. Passwords come from ``PGPASSWORD``, ``~/.pgpass`` or a service file.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from darrm.errors import LedgerError
from darrm.ledger.sqlite import (
    EXISTS_ADVICE,
    HOW_TO_CREATE,
    RESTORE,
    SQLiteDatabase,
    SQLiteStore,
    corrupted,
    is_url,
    schema,
)
from darrm.util import checks
from darrm.util.extras import Untyped, require

_URL_ADVICE = "write postgresql://USER@HOST:PORT/DATABASE, or postgresql:///?service=NAME"
_SECRET_SUFFIXES = ("password", "secret", "_key")  # suffixes of libpq's secret parameters; sslkey names a file
_CONNECTION_CLASS = "08"  # the class of SQLSTATEs of connections
_SCHEMA = (
    # a B-tree takes no text of more than 2,700 bytes, and a Rényi curve is longer
    *schema("bigint", 'text COLLATE "C" NOT NULL', "bytea", "EXCLUDE USING hash (cost WITH =)"),
    "CREATE INDEX undelivered ON entries USING hash (output) WHERE labels IS NOT NULL",
)
_LOCK_CREATION = "SELECT pg_advisory_xact_lock(1684107890)"  # "darr": one ledger is made at a time
_COUNT_TRIGGERS = """SELECT count(*) FROM pg_catalog.pg_class c
    LEFT JOIN pg_catalog.pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal
    LEFT JOIN pg_catalog.pg_rewrite r ON r.ev_class = c.oid
    WHERE c.relnamespace = current_schema()::regnamespace AND (t.oid IS NOT NULL OR r.oid IS NOT NULL)"""
_ADVICE = {  # by SQLSTATE, or its class
    "42P01": f"there is no ledger in it: {HOW_TO_CREATE}",
    "42P07": EXISTS_ADVICE,
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
_UNREACHABLE = (
    "the server cannot be reached, or refuses the login: nothing was released; check that it runs, the URL, and the "
    "password in PGPASSWORD, ~/.pgpass or a service file"
)


def check_url(url: str) -> None:
    """Refuse a URL with a password, without showing it."""
    psycopg = require("psycopg")
    try:
        words = require("psycopg.conninfo").conninfo_to_dict(url)
    except psycopg.Error:
        raise ValueError(f"the URL of the ledger cannot be read: {_URL_ADVICE}") from None
    if any(value and word.endswith(_SECRET_SUFFIXES) for word, value in words.items()):
        advice = "command lines and logs show it: set PGPASSWORD, ~/.pgpass or a service file (PGSERVICEFILE)"
        raise ValueError(f"the URL of a ledger must have no password in it: {advice}")


class PostgresStore:
    """Transactions over one connection for each process; ``path`` is a URL of libpq, ``timeout`` in seconds."""

    def __init__(self, path: str, *, timeout: float) -> None:
        checks.positive(timeout=timeout)
        check_url(path)
        self.path, self.timeout = path, timeout
        self._is_new, self._is_uncertain = False, False
        self._reset_connection()

    def _reset_connection(self) -> None:
        """Begin without a connection: a forked child must not use its parent's connection."""
        self._process = os.getpid()
        self._connection: Untyped = None
        self._close: Callable[[], object] = lambda: None
        self._lock = threading.Lock()

    def create(self) -> None:
        """Let the next transaction make the tables."""
        self._is_new = True

    def discard(self) -> None:
        """Do nothing: a creation that failed left no tables."""

    def is_unfinished(self) -> bool:
        return False  # a creation is one transaction

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator["PostgresDatabase"]:
        if self._process != os.getpid():
            self._reset_connection()
        with self._lock, _translate_errors(self.path):
            database = self._begin(write=write)
            try:
                yield database
                self._commit()
            except BaseException:
                if self._connection is not None:
                    with suppress(require("psycopg").Error):  # a connection that is not idle is dropped later
                        self._connection.execute("ROLLBACK")
                raise

    def _begin(self, *, write: bool) -> "PostgresDatabase":
        """Start a transaction, over a new connection if the old one was lost while idle."""
        psycopg = require("psycopg")
        idle = psycopg.pq.TransactionStatus.IDLE
        is_idle = self._connection is not None and self._connection.info.transaction_status == idle
        if not is_idle:
            self._drop_connection()
            self._connection = self._connect()
            self._close = weakref.finalize(self, _close, self._connection, self._process)
        try:
            level = "SERIALIZABLE" if write else "REPEATABLE READ, READ ONLY"
            self._connection.execute(f"BEGIN ISOLATION LEVEL {level}")
            if self._is_new and write:
                self._connection.execute(_LOCK_CREATION)
            elif write or self._is_uncertain:  # a reader waits for a commit that was cut off
                self._connection.execute("LOCK TABLE budget IN EXCLUSIVE MODE")
        except BaseException as error:
            is_lost = is_idle and isinstance(error, psycopg.OperationalError) and self._connection.closed
            self._drop_connection()
            if not is_lost:
                raise
            return self._begin(write=write)
        self._is_new = self._is_new and not write
        self._is_uncertain = False
        return PostgresDatabase(self._connection, self.path)

    def _connect(self) -> Untyped:
        connection = require("psycopg").connect(
            self.path,
            autocommit=True,
            connect_timeout=max(2, round(min(self.timeout, 10.0))),
            tcp_user_timeout=round(1000 * self.timeout),
            fallback_application_name="darrm",
            client_encoding="utf8",
            cursor_factory=require("psycopg").RawCursor,  # reads $1, as SQLite does
        )
        connection.adapters.register_loader("numeric", require("psycopg.types.numeric").IntLoader)  # sums of counts
        connection.execute("SELECT set_config('search_path', quote_ident(current_schema()), false)")
        connection.execute(f"SET lock_timeout = {round(1000 * self.timeout)}")
        connection.execute("SET row_security = off")  # rows that a policy hides are an error
        settings = ("fsync", "synchronous_commit", "server_encoding")
        fsync, commit_mode, encoding = (connection.execute(f"SHOW {name}").fetchone()[0] for name in settings)
        if commit_mode == "off":
            connection.execute("SET synchronous_commit = on")
        if fsync != "on" or encoding != "UTF8":
            connection.close()
            problem = "its server does not wait for the disk (fsync = off)" if fsync != "on" else f"it is {encoding}"
            raise LedgerError(self.path, f"{problem}: a ledger needs fsync = on and a database in UTF8")
        return connection

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except BaseException:
            self._is_uncertain = True
            self._drop_connection()
            raise

    def _drop_connection(self) -> None:
        self._connection = None
        self._close()


def _close(connection: Untyped, process: int) -> None:
    if os.getpid() == process:  # not a parent's connection
        with suppress(require("psycopg").Error):
            connection.close()


class PostgresDatabase:
    schema = _SCHEMA

    def __init__(self, connection: Untyped, path: str) -> None:
        self.connection, self.path = connection, path

    def execute(self, statement: str, *values: object) -> list[tuple[Untyped, ...]]:
        with _translate_errors(self.path):
            cursor = self.connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def check_format(self) -> None:
        """Refuse triggers and rules; a schema without tables fails later."""
        if self.execute(_COUNT_TRIGGERS) != [(0,)]:
            raise corrupted(self.path, "a trigger or a view was added, which may undo a debit")

    def check_pages(self) -> None:
        """Do nothing: a server checks its own pages."""


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    """Turn errors of PostgreSQL into `LedgerError`, with the consequence for the budget."""
    psycopg = require("psycopg")
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or _CONNECTION_CLASS
        codes = [state[:length] for length in (5, 2) if state[:length] in _ADVICE]
        is_away = isinstance(error, psycopg.OperationalError)
        advice = _UNREACHABLE if is_away else "the database refused: nothing was released"
        words = " ".join(str(error).split()) or type(error).__name__
        raise LedgerError(path, f"{_ADVICE[codes[0]] if codes else advice} (PostgreSQL: {words})") from error


Store = SQLiteStore | PostgresStore
Database = SQLiteDatabase | PostgresDatabase


def open_store(name: str, *, timeout: float) -> Store:
    return PostgresStore(name, timeout=timeout) if is_url(name) else SQLiteStore(name, timeout=timeout)
