"""What keeps a ledger: a file of SQLite, `darrm.ledger.sqlite`, or PostgreSQL, `darrm.ledger.postgres`."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from darrm.ledger.rows import Budget, Cost, EntryRow, State

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


class Tables(ABC):
    """The tables of a ledger within one open transaction; nothing that they hold is checked here."""

    @abstractmethod
    def create(self, budget: Budget) -> None:
        """Make the tables, with the budget."""

    @abstractmethod
    def budget(self) -> Budget:
        """Read the budget; `LedgerError` if the database is no ledger of this format."""

    @abstractmethod
    def state(self) -> State:
        """Read the state."""

    @abstractmethod
    def costs(self) -> list[Cost]:
        """Read all costs, in the order of their numbers."""

    @abstractmethod
    def entries(self, first: int = 1) -> Iterator[EntryRow]:
        """Read the entries from ``first`` on, oldest first."""

    @abstractmethod
    def waiting_for(self, output: str) -> int:
        """Return the number of the entry whose labels wait for an output, 0 for none."""

    @abstractmethod
    def newest_for(self, output: str, after: int) -> int:
        """Return the number of the newest entry for an output among those after an entry, 0 for none."""

    @abstractmethod
    def labels(self, number: int) -> bytes | None:
        """Read what waits for the delivery of an entry; None if nothing does."""

    @abstractmethod
    def put_cost(self, cost: Cost) -> None:
        """Write a cost, or its new total."""

    @abstractmethod
    def put_entry(self, entry: EntryRow, labels: bytes | None) -> None:
        """Write a new entry."""

    @abstractmethod
    def put_state(self, state: State) -> None:
        """Write the state."""

    @abstractmethod
    def forget_labels(self, number: int, files: str) -> None:
        """Drop what waits for the delivery of an entry; write the digests of ``files`` if there are any."""

    @abstractmethod
    def check_pages(self) -> None:
        """Raise `LedgerError` if a page of a file is damaged."""


class Store(ABC):
    """Transactions on one ledger; every method raises `LedgerError` if the store refuses.

    Attributes
    ----------
    path
        What names it in messages and on command lines.
    timeout
        Seconds to wait for another transaction.
    """

    path: str
    timeout: float

    @abstractmethod
    def create(self) -> None:
        """Prepare a place for a new ledger; the first transaction fills it."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what `create` made, if its first transaction failed."""

    @abstractmethod
    def transaction(self, *, write: bool) -> AbstractContextManager[Tables]:
        """Run a block as one transaction: durable when it ends, undone if it raises."""

    def is_unfinished(self) -> bool:
        """Whether a creation was cut off and left something without a table."""
        return False
