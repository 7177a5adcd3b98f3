"""What SQLite and PostgreSQL have in common as stores of a ledger: names, tables, and messages.

Both databases read ``$1``, ``$2`` … as parameters, the same upserts, and compare texts by their code points. They
differ in the types of columns, in what shows that a database is a ledger, and in how a transaction begins and ends:
`darrm.ledger.sqlite` and `darrm.ledger.postgres`. All other statements are in `darrm.ledger.transaction`.
"""

import re
from pathlib import Path

from darrm.errors import LedgerError
from darrm.util.extras import Untyped

RESTORE = "restore a copy that is at least as new as the last release, or count its whole budget as spent"
HOW_TO_CREATE = "make a ledger first, by PrivacyLedger.create(path, budget) or release --create-budget EPS,DELTA"
IS_TAKEN = "it exists already, and a new budget would forget all debits: open it as it is"
# a URL or the words of libpq: other schemes and spellings, and words that may hold a password
_NO_FILE = re.compile(
    r"://|^\s*[a-z][a-z0-9+.]+:/|(password|passwd|secret|_key)\s*=|\b(host|hostaddr|dbname)\s*=", re.IGNORECASE
)


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


class Database:
    """The database of a ledger within one open transaction."""

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


def corrupted(path: str, what: str) -> LedgerError:
    """Return the error for a damaged ledger, with the remedy."""
    return LedgerError(path, f"it is corrupted ({what}): {RESTORE}")
