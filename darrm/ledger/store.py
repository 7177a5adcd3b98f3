"""Ledger storage: the tables of a ledger, with the same statements in SQLite and PostgreSQL.

Both databases read ``$1``, ``$2`` … as parameters, the same upserts, and compare texts by their code points. They
differ in the types of columns, in what shows that a database is a ledger, and in how a transaction begins and ends:
`darrm.ledger.sqlite` and `darrm.ledger.postgres`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from darrm.errors import LedgerError
from darrm.ledger.rows import FORMAT, Budget, Cost, EntryRow, State
from darrm.util.extras import Untyped

RESTORE = "restore a copy that is at least as new as the last release, or count its whole budget as spent"
HOW_TO_CREATE = "make a ledger first, by PrivacyLedger.create(path, budget) or release --create-budget EPS,DELTA"
IS_TAKEN = "it exists already, and a new budget would forget all debits: open it as it is"
# a URL or the words of libpq: other schemes and spellings, and words that may hold a password
_NO_FILE = re.compile(
    r"://|^\s*[a-z][a-z0-9+.]+:/|(password|passwd|secret|_key)\s*=|\b(host|hostaddr|dbname)\s*=", re.IGNORECASE
)
_PAGE = 10_000  # entries that are read at once


def is_url(name: object) -> bool:
    """Whether a ledger's name is the URL of a database, and not a file's; `ValueError`, without it, if it is neither.

    >>> is_url("postgresql://budget@db.example/ward7"), is_url("ledger.sqlite")
    (True, False)
    >>> is_url("POSTGRESQL://budget:secret@db.example/ward7")
    Traceback (most recent call last):
    ...
    ValueError: a ledger is a file or a URL like postgresql://USER@HOST:PORT/DATABASE, and this is neither: it is not \
shown, because it may hold a password
    """
    if not isinstance(name, str):
        return False
    if name.startswith(("postgresql:", "postgres:")):
        return True
    if _NO_FILE.search(name):
        like = "a ledger is a file or a URL like postgresql://USER@HOST:PORT/DATABASE, and this is neither"
        raise ValueError(f"{like}: it is not shown, because it may hold a password")
    return False


def ledger_name(text: str) -> Path | str:
    """Read the value of ``--ledger``: a file, or a URL, whose slashes a path would lose.

    >>> ledger_name("postgresql://db.example/ward7")
    'postgresql://db.example/ward7'
    """
    return text if is_url(text) else Path(text)


def schema(integer: str, text: str, blob: str, one_cost: str) -> tuple[str, ...]:
    """Return the statements that make the tables, from the types of their columns and the constraint on costs."""
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


class Tables:
    """The tables of a ledger within one open transaction; the values of their rows are not checked here."""

    path: str
    schema: tuple[str, ...]

    def execute(self, statement: str, *values: object) -> list[tuple[Untyped, ...]]:
        """Run a statement with its values ``$1``, ``$2`` …; return the rows that it yields."""
        raise NotImplementedError

    def check_format(self) -> None:
        """Raise `LedgerError` if the database is no ledger of this format, or changes rows by itself."""
        raise NotImplementedError

    def check_pages(self) -> None:
        """Raise `LedgerError` if a page of a file is damaged; a server checks its own (data_checksums)."""

    def create(self, budget: Budget) -> None:
        """Make the tables, with the budget."""
        for statement in self.schema:
            self.execute(statement)
        self.execute("INSERT INTO budget VALUES (1, $1, $2, $3, $4, $5, $6, $7, $8)", *budget)

    def budget(self) -> Budget:
        """Read the budget; `LedgerError` if the database is no ledger of this format."""
        self.check_format()
        rows = self.execute(
            "SELECT format, identity, epsilon, delta, composition, population, created, checksum FROM budget"
        )
        if len(rows) != 1 or rows[0][0] != FORMAT:
            raise self.corrupted("the budget was changed")
        return Budget(*rows[0])

    def state(self) -> State:
        """Read the state."""
        rows = self.execute("SELECT last_entry, moved_to, checksum FROM state")
        if len(rows) != 1:
            raise self.corrupted("its state is gone")
        return State(*rows[0])

    def put_state(self, state: State) -> None:
        """Write the state."""
        self.execute(
            "INSERT INTO state VALUES (1, $1, $2, $3) ON CONFLICT (id) DO UPDATE "
            "SET last_entry = excluded.last_entry, moved_to = excluded.moved_to, checksum = excluded.checksum",
            *state,
        )

    def costs(self) -> list[Cost]:
        """Read all costs, in the order of their numbers."""
        rows = self.execute("SELECT id, cost, what, total, table_digest, checksum FROM costs ORDER BY id")
        return [Cost(*row) for row in rows]

    def put_cost(self, cost: Cost) -> None:
        """Write a cost, or its new total."""
        self.execute(
            "INSERT INTO costs (id, cost, what, total, table_digest, checksum) VALUES ($1, $2, $3, $4, $5, $6) "
            "ON CONFLICT (id) DO UPDATE SET total = excluded.total, table_digest = excluded.table_digest",
            *cost,
        )

    def entries(self, first: int = 1) -> Iterator[EntryRow]:
        """Read the entries from ``first`` on, oldest first."""
        statement = (
            "SELECT id, time, cost, count, note, table_digest, labels_digest, token, output, questions, entry_hash, "
            "signature, labels IS NOT NULL FROM entries WHERE id >= $1 ORDER BY id LIMIT $2"
        )
        rows: list[tuple[Untyped, ...]] = [(first - 1,)] * _PAGE
        while len(rows) == _PAGE:  # pages, so that a long log needs little memory
            rows = self.execute(statement, rows[-1][0] + 1, _PAGE)
            yield from map(EntryRow._make, rows)

    def put_entry(self, entry: EntryRow, labels: bytes | None) -> None:
        """Write a new entry."""
        self.execute(
            "INSERT INTO entries (id, time, cost, count, note, table_digest, labels_digest, token, output, questions, "
            "entry_hash, signature, files, labels) "  # the format has a column of files, which stays empty
            "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, '', $13)",
            *entry[:-1],
            labels,
        )

    def waiting_for(self, output: str) -> int:
        """Return the number of the entry whose labels wait for an output, 0 for none."""
        waiting = "SELECT coalesce(max(id), 0) FROM entries WHERE labels IS NOT NULL AND output = $1"
        return int(self.execute(waiting, output)[0][0])

    def newest_for(self, output: str, after: int) -> int:
        """Return the number of the newest entry for an output among those after an entry, 0 for none."""
        newest = "SELECT coalesce(max(id), 0) FROM entries WHERE id > $1 AND output = $2"
        return int(self.execute(newest, after, output)[0][0])

    def labels(self, number: int) -> bytes | None:
        """Read what waits for the delivery of an entry; None if nothing does."""
        rows = self.execute("SELECT labels FROM entries WHERE id = $1", number)
        labels = rows[0][0] if rows else None
        if not isinstance(labels, bytes | None):
            raise self.corrupted("what waits in it was changed")
        return labels

    def forget_labels(self, number: int) -> None:
        """Drop what waits for the delivery of an entry."""
        self.execute("UPDATE entries SET labels = NULL WHERE id = $1", number)

    def corrupted(self, what: str) -> LedgerError:
        """Return the error for a damaged ledger, with the remedy."""
        return corrupted(self.path, what)


def corrupted(path: str, what: str) -> LedgerError:
    """Return the error for a damaged ledger, with the remedy."""
    return LedgerError(path, f"it is corrupted ({what}): {RESTORE}")
