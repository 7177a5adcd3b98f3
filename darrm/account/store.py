"""What keeps a ledger: a file of SQLite's, `darrm.account.ledger_store`, or PostgreSQL, `darrm.account.postgres`."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from darrm.errors import LedgerError
from darrm.system.extras import Untyped


class Connection(Protocol):
    """What a ledger's rows are read and written through, in SQLite's words."""

    def execute(self, statement: str, values: tuple[object, ...] = (), /) -> Untyped:
        """Run a statement."""

    def executemany(self, statement: str, values: Iterable[tuple[object, ...]], /) -> Untyped:
        """Run a statement for each row of values."""


def is_url(name: object) -> bool:
    """Whether a ledger's name is the URL of a database, and not a file's.

    >>> is_url("postgresql://budget@db.example/ward7"), is_url("ledger.sqlite")
    (True, False)
    """
    return isinstance(name, str) and name.startswith(("postgresql:", "postgres:"))


def ledger_name(text: str) -> Path | str:
    """Read the value of ``--ledger``: a file, or a URL, whose slashes a path would lose.

    >>> ledger_name("postgresql://db.example/ward7")
    'postgresql://db.example/ward7'
    """
    return text if is_url(text) else Path(text)


class Store(ABC):
    """Transactions on one ledger; every method raises `LedgerError` where the store refuses.

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
        """Make room for a ledger where none is; the first transaction fills it."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what `create` made, if its first transaction failed."""

    @abstractmethod
    def transaction(self, *, write: bool) -> AbstractContextManager[Untyped]:
        """Run a block as one transaction: durable when it ends, undone if it raises."""

    @abstractmethod
    def moved(self, connection: Connection) -> str:
        """Return where the ledger was moved to; empty for one that was not."""

    @abstractmethod
    def close(self, connection: Connection, there: str) -> None:
        """Let the ledger pay no more, because it was moved."""

    @abstractmethod
    def set_last(self, connection: Connection, number: int) -> None:
        """Say which number an entry got last, in a ledger whose rows were copied."""

    def check_open(self, connection: Connection) -> None:
        """Refuse to write to a ledger that was moved."""
        if there := self.moved(connection):
            raise LedgerError(self.path, f"it is closed, its budget moved to {there}: debit there; nothing was debited")
