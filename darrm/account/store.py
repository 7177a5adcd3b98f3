"""What keeps a ledger: a file of SQLite's, `darrm.account.ledger_store`, or PostgreSQL, `darrm.account.postgres`."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Protocol

from darrm.system.extras import Untyped


class Connection(Protocol):
    """What a ledger's rows are read and written through, in SQLite's words."""

    def execute(self, statement: str, values: tuple[object, ...] = (), /) -> Untyped:
        """Run a statement."""


class Store(ABC):
    """Transactions on one ledger; every method raises `LedgerError` where the store refuses.

    Attributes
    ----------
    path
        What names it in messages and on command lines.
    """

    path: str

    @abstractmethod
    def create(self) -> None:
        """Make room for a ledger where none is; the first transaction fills it."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what `create` made, if its first transaction failed."""

    @abstractmethod
    def transaction(self, *, write: bool) -> AbstractContextManager[Untyped]:
        """Run a block as one transaction: durable when it ends, undone if it raises."""
