"""A ledger in PostgreSQL, for several machines: the tables and checks of a file, in one database.

**One after another.** A transaction that writes is SERIALIZABLE and locks the table of the budget before its snapshot
is taken, as SQLite's ``BEGIN IMMEDIATE`` does: no process decides on a total that another is about to change, and no
debit of darrm makes another one fail. If another program writes to these tables, a debit may fail: then
nothing was debited. Readers take one snapshot, and wait for no process. Threads of one process
take turns, over one connection.

**A commit that was cut off.** If the connection breaks while the server commits, the client cannot know the outcome.
The debit then looks for its token in the next transaction, which first takes a lock that the one before holds until
it has ended, either way.

Texts compare by their code points (``COLLATE "C"``), as in SQLite. The tables are in the schema that the connection's
search path names first: ``public``, or the NAME of ``?options=-csearch_path%3DNAME``. Passwords come from
``PGPASSWORD``, ``~/.pgpass`` or a service file, and never from a URL, which command lines and logs show.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from darrm.errors import LedgerError
from darrm.ledger.rows import FORMAT, Budget, Cost, EntryRow, State
from darrm.ledger.sqlite import SQLiteStore
from darrm.ledger.store import HOW_TO_CREATE, IS_TAKEN, RESTORE, Store, Tables, is_url
from darrm.util import checks
from darrm.util.extras import Untyped, require

_LIKE = "write postgresql://USER@HOST:PORT/DATABASE, or postgresql:///?service=NAME"
_SECRETS = ("password", "secret", "_key")  # how such words of libpq end; sslkey names a file
_BROKEN = "08"  # the class of SQLSTATEs of connections
_TEXT = 'text COLLATE "C" NOT NULL'
_SCHEMA = (
    f"""CREATE TABLE budget (id bigint PRIMARY KEY CHECK (id = 1), format {_TEXT}, identity {_TEXT}, epsilon {_TEXT},
       delta {_TEXT}, composition {_TEXT}, population {_TEXT}, created {_TEXT}, checksum {_TEXT})""",
    # a B-tree takes no text of more than 2,700 bytes, and a Rényi curve is longer
    f"""CREATE TABLE costs (id bigint PRIMARY KEY, cost {_TEXT}, what {_TEXT}, total bigint NOT NULL CHECK (total >= 0),
       table_digest {_TEXT}, checksum {_TEXT}, EXCLUDE USING hash (cost WITH =))""",
    f"""CREATE TABLE entries (id bigint PRIMARY KEY, time {_TEXT}, cost bigint NOT NULL REFERENCES costs (id),
       count bigint NOT NULL CHECK (count > 0), note {_TEXT}, table_digest {_TEXT}, labels_digest {_TEXT},
       token {_TEXT}, output {_TEXT}, questions {_TEXT}, entry_hash {_TEXT}, signature {_TEXT}, files {_TEXT},
       labels bytea)""",
    "CREATE INDEX undelivered ON entries USING hash (output) WHERE labels IS NOT NULL",
    f"""CREATE TABLE state (id bigint PRIMARY KEY CHECK (id = 1), last_entry bigint NOT NULL, moved_to {_TEXT},
       checksum {_TEXT})""",
)
_ALONE = "SELECT pg_advisory_xact_lock(1684107890)"  # "darr": one ledger is made at a time
_ADDED = """SELECT count(*) FROM pg_catalog.pg_class c
    LEFT JOIN pg_catalog.pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal
    LEFT JOIN pg_catalog.pg_rewrite r ON r.ev_class = c.oid
    WHERE c.relnamespace = current_schema()::regnamespace AND (t.oid IS NOT NULL OR r.oid IS NOT NULL)"""
_ADVICE = {  # by SQLSTATE, or its class
    "42P01": f"there is no ledger in it: {HOW_TO_CREATE}",
    "42P07": IS_TAKEN,
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
    "the server cannot be reached, or refuses the login: nothing was released; check that it runs, the URL, and the "
    "password in PGPASSWORD, ~/.pgpass or a service file"
)


def check_url(url: str) -> None:
    """Refuse a URL with a password in it, or one that cannot be read, with `ValueError` that does not show it."""
    psycopg = require("psycopg")
    try:
        words = require("psycopg.conninfo").conninfo_to_dict(url)
    except psycopg.Error:
        raise ValueError(f"the URL of the ledger cannot be read: {_LIKE}") from None
    if any(value and word.endswith(_SECRETS) for word, value in words.items()):
        advice = "command lines and logs show it: set PGPASSWORD, ~/.pgpass or a service file (PGSERVICEFILE)"
        raise ValueError(f"the URL of a ledger must have no password in it: {advice}")


def open_store(name: str, *, timeout: float) -> Store:
    """Return the store of a ledger, by its URL or the name of its file."""
    return PostgresStore(name, timeout=timeout) if is_url(name) else SQLiteStore(name, timeout=timeout)


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
    def transaction(self, *, write: bool) -> Iterator["PostgresTables"]:
        """Run a block as one transaction, or as part of one: durable when it ends, undone if it raises.

        Raises
        ------
        LedgerError
            If the server refuses or is gone; the block's changes are then undone, or `PrivacyLedger.debit` finds out.
        """
        if self._process != os.getpid():
            self._afresh()
        with self._turn, _translated(self.path):
            tables = self._begin(write=write)
            try:
                yield tables
                self._commit()
            except BaseException:
                if self._link is not None:
                    with suppress(require("psycopg").Error):  # a connection that is not idle is dropped later
                        self._link.execute("ROLLBACK")
                raise

    def _begin(self, *, write: bool) -> "PostgresTables":
        """Start a transaction, over a new connection if the old one was lost while idle."""
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

    def _begun(self, *, write: bool) -> "PostgresTables":
        level = "SERIALIZABLE" if write else "REPEATABLE READ, READ ONLY"
        self._link.execute(f"BEGIN ISOLATION LEVEL {level}")
        if self._is_new and write:
            self._link.execute(_ALONE)
        elif write or self._is_uncertain:  # a reader waits for a commit that was cut off
            self._link.execute("LOCK TABLE budget IN EXCLUSIVE MODE")
        self._is_new = self._is_new and not write
        self._is_uncertain = False
        return PostgresTables(self._link, self.path)

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


class PostgresTables(Tables):
    """The tables of a ledger over one connection of psycopg."""

    def __init__(self, link: Untyped, path: str) -> None:
        self.link, self._path = link, path

    def create(self, budget: Budget) -> None:
        """Make the tables, with the budget."""
        for statement in _SCHEMA:
            self._execute(statement)
        self._execute("INSERT INTO budget VALUES (1, %s, %s, %s, %s, %s, %s, %s, %s)", *budget)

    def budget(self) -> Budget:
        """Read the budget; `LedgerError` if the schema holds no ledger of this format."""
        columns = "SELECT format, identity, epsilon, delta, composition, population, created, checksum FROM budget"
        rows = self._execute(columns)
        if self._execute(_ADDED) != [(0,)]:
            raise self._corrupted("a trigger or a view was added, which may undo a debit")
        if len(rows) != 1 or rows[0][0] != FORMAT:
            raise self._corrupted("the budget was changed")
        return Budget(*rows[0])

    def state(self) -> State:
        """Read the state."""
        rows = self._execute("SELECT last_entry, moved_to, checksum FROM state")
        if len(rows) != 1:
            raise self._corrupted("its state is gone")
        return State(*rows[0])

    def costs(self) -> list[Cost]:
        """Read all costs, in the order of their numbers."""
        columns = "SELECT id, cost, what, total, table_digest, checksum FROM costs ORDER BY id"
        return [Cost(*row) for row in self._execute(columns)]

    def entries(self, first: int = 1) -> Iterator[EntryRow]:
        """Read the entries from ``first`` on, oldest first."""
        columns = (
            "SELECT id, time, cost, count, note, table_digest, labels_digest, token, output, questions, entry_hash, "
            "signature, files, labels IS NOT NULL FROM entries WHERE id >= %s ORDER BY id"
        )
        yield from map(EntryRow._make, self._execute(columns, first))

    def waiting_for(self, output: str) -> int:
        """Return the number of the entry whose labels wait for an output, 0 for none."""
        waiting = "SELECT coalesce(max(id), 0) FROM entries WHERE labels IS NOT NULL AND output = %s"
        return int(self._execute(waiting, output)[0][0])

    def newest_for(self, output: str, after: int) -> int:
        """Return the number of the newest entry for an output among those after an entry, 0 for none."""
        newest = "SELECT coalesce(max(id), 0) FROM entries WHERE id > %s AND output = %s"
        return int(self._execute(newest, after, output)[0][0])

    def labels(self, number: int) -> bytes | None:
        """Read what waits for the delivery of an entry; None if nothing does."""
        rows = self._execute("SELECT labels FROM entries WHERE id = %s", number)
        return bytes(rows[0][0]) if rows and rows[0][0] is not None else None

    def put_cost(self, cost: Cost) -> None:
        """Write a cost, or its new total."""
        self._execute(
            "INSERT INTO costs (id, cost, what, total, table_digest, checksum) VALUES (%s, %s, %s, %s, %s, %s) "
            "ON CONFLICT (id) DO UPDATE SET total = excluded.total, table_digest = excluded.table_digest",
            *cost,
        )

    def put_entry(self, entry: EntryRow, labels: bytes | None) -> None:
        """Write a new entry."""
        self._execute(
            "INSERT INTO entries (id, time, cost, count, note, table_digest, labels_digest, token, output, questions, "
            "entry_hash, signature, files, labels) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            *entry[:-1],
            labels,
        )

    def put_state(self, state: State) -> None:
        """Write the state."""
        self._execute(
            "INSERT INTO state VALUES (1, %s, %s, %s) ON CONFLICT (id) DO UPDATE "
            "SET last_entry = excluded.last_entry, moved_to = excluded.moved_to, checksum = excluded.checksum",
            *state,
        )

    def forget_labels(self, number: int, files: str) -> None:
        """Drop what waits for the delivery of an entry; write the digests of ``files`` if there are any."""
        self._execute("UPDATE entries SET labels = NULL WHERE id = %s", number)
        if files:
            self._execute("UPDATE entries SET files = %s WHERE id = %s", files, number)

    def check_pages(self) -> None:
        """Do nothing: the server checks its pages, see its data_checksums."""

    def _execute(self, statement: str, *values: object) -> list[tuple[Untyped, ...]]:
        with _translated(self._path):
            cursor = self.link.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def _corrupted(self, what: str) -> LedgerError:
        return LedgerError(self._path, f"it is corrupted ({what}): {RESTORE}")


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Turn errors of PostgreSQL into `LedgerError`, with the consequence for the budget."""
    psycopg = require("psycopg")
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or _BROKEN
        named = [state[:length] for length in (5, 2) if state[:length] in _ADVICE]
        unknown = _LOST if isinstance(error, psycopg.OperationalError) else "the database refused: nothing was released"
        words = " ".join(str(error).split()) or type(error).__name__
        raise LedgerError(path, f"{_ADVICE[named[0]] if named else unknown} (PostgreSQL: {words})") from error
