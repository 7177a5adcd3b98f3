"""A ledger that moves to another store, and the copy that an audit reads.

**Never two budgets.** All rows are copied and checked within a transaction of the new store that is not committed yet;
then the old ledger is closed, durably; then the new one is committed. Whatever is cut off in between, at most one of
them pays: a closed ledger refuses debits and says where its budget went, and the same command goes on from there.
"""

import tempfile
from pathlib import Path

from darrm.account.ledger import DEFAULT_TIMEOUT, PrivacyLedger
from darrm.account.ledger_rows import Identity, Rows
from darrm.account.ledger_store import LedgerStore
from darrm.account.postgres import open_store
from darrm.account.store import Connection, Store
from darrm.errors import LedgerError, checks
from darrm.privacy import PrivacyParams
from darrm.system.extras import Untyped

_TABLES = ("budget", "kinds", "charges", "totals")
_AT_ONCE = 10_000  # rows
_LAST = "SELECT (SELECT max(seq) FROM sqlite_sequence WHERE name = 'charges')"
_PLACEHOLDER = Identity.of(PrivacyParams(1), "one")  # makes the tables, and is copied over


def move(name: str, there: str, *, timeout: float = DEFAULT_TIMEOUT) -> PrivacyLedger:
    """Move a ledger to another store, and close the old one.

    Parameters
    ----------
    name, there
        The file or the URL that it has, and the one that it gets, where no ledger is yet.
    timeout
        As of `PrivacyLedger`.

    Returns
    -------
    ledger
        The new one: the same identity, entries, links, and labels that wait.

    Raises
    ------
    LedgerError
        If either store refuses, the old ledger is damaged or was moved elsewhere, or the new place is taken.
    ValueError
        If a name is none, or both are the same.
    """
    source, target = open_store(name, timeout=timeout), open_store(there, timeout=timeout)
    if source.path == target.path:
        checks.fail("the new place", there, "another than the old one")
    moved = _moved(source)
    if moved not in {"", target.path}:
        raise LedgerError(source.path, f"it is closed, its budget moved to {moved} already")
    goes_on = _is_cut_off(target)
    if not goes_on:
        target.create()
    with target.transaction(write=True) as new:
        try:
            with source.transaction(write=not moved) as old:
                _fill(Rows(old, source.path), Rows(new, target.path), source, target)
                if not moved:
                    source.close(old, target.path)
        except BaseException:
            if not goes_on:  # it may be another process's by now
                target.discard()
            raise
    return PrivacyLedger(target)


def _fill(rows: Rows, copy: Rows, source: Store, target: Store) -> None:
    if not source.moved(rows.connection):
        rows.upgrade()
    copy_rows(rows, copy, source, target)
    if copy.entries() != rows.entries():
        raise rows.corrupted("its copy differs from it")


def _is_cut_off(target: Store) -> bool:
    """Whether there is a file without any table, which a move leaves that was killed; a server has nothing then."""
    if not isinstance(target, LedgerStore) or not Path(target.path).is_file():
        return False
    with target.transaction(write=False) as connection:
        return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,))


def _moved(store: Store) -> str:
    with store.transaction(write=False) as connection:
        return store.moved(connection)


def copy_rows(rows: Rows, copy: Rows, source: Store, target: Store) -> None:
    """Fill a new database with all rows of a ledger of this version, as they are, true or not."""
    old, new = rows.connection, copy.connection
    version = rows.version
    copy.create(_PLACEHOLDER)
    if version != copy.version:
        raise LedgerError(source.path, f"it has version {version} still: debit from it once, which brings it up to now")
    for table in reversed(_TABLES):
        new.execute(f"DELETE FROM {table}")  # noqa: S608 (words of our own)
    for table in _TABLES:
        _copy_table(old, new, table)
    target.set_last(new, old.execute(_LAST).fetchone()[0] or 0)


def _copy_table(old: Connection, new: Connection, table: str) -> None:
    (last,) = old.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()  # noqa: S608 (as above)
    some = f"SELECT * FROM {table} WHERE id > ? AND id <= ? ORDER BY id"  # noqa: S608 (as above)
    for start in range(0, last, _AT_ONCE):
        rows: list[tuple[Untyped, ...]] = old.execute(some, (start, start + _AT_ONCE)).fetchall()
        if rows:
            places = ", ".join("?" * len(rows[0]))
            new.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608 (as above)


def copy_of(url: str, *, timeout: float = DEFAULT_TIMEOUT) -> bytes:
    """Return a ledger in PostgreSQL as the file that SQLite would hold, for an audit; nothing is checked or changed.

    Raises
    ------
    LedgerError
        If the server cannot be read, or it has triggers, rules or no ledger.
    """
    source = open_store(url, timeout=timeout)
    with tempfile.TemporaryDirectory(prefix="darrm-ledger-") as folder:
        target = LedgerStore(str(Path(folder) / "ledger.sqlite"), timeout=timeout)
        target.create()
        with target.transaction(write=True) as new, source.transaction(write=False) as old:
            copy_rows(Rows(old, source.path), Rows(new, target.path), source, target)
        return Path(target.path).read_bytes()
