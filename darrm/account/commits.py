"""Threads of one process that debit at the same moment share one durable commit.

A commit waits for the disk, and nothing else does. So who finds others waiting leaves the transaction open for the next
one of them; who finds nobody, or a transaction that is old, commits what all did, and only then may any of them go on.
Who joins a transaction works within a savepoint: what is refused is undone alone. If the commit fails nothing was
debited for any of them, and all are told.

A reader who comes between them reads what is not committed yet, so it waits for the commit as they do: nobody ever goes
on with what a crash may still take away.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from darrm.account.store import Connection

_OLDEST_SECONDS = 0.02  # of a transaction that others may still join: some times what a disk takes to sync
_POLLING_SECONDS = 0.05


@dataclass
class _Shared:
    connection: Connection
    since: float = field(default_factory=time.monotonic)
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class SharedCommits:
    """Blocks that run one after another, in transactions that they share.

    Parameters
    ----------
    begin
        Starts a transaction, that of a reader if its argument is false, and returns the connection.
    commit
        Makes the open transaction durable, or raises: then nothing of it is known to be.
    """

    def __init__(self, begin: Callable[[bool], Connection], commit: Callable[[], None]) -> None:
        self._begin, self._commit = begin, commit
        self._running, self._counting = threading.Lock(), threading.Lock()
        self._waiting = 0
        self._open: _Shared | None = None

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Connection]:
        """Run a block, and return when what it did is durable; undo it if it raises."""
        self._wait_for_turn()
        try:
            joined = self._open is not None
            shared = self._open = self._open or _Shared(self._begin(write))
            with self._undone(shared, joined=joined):
                yield shared.connection
        finally:
            try:
                if self._open is not None and self._is_over(self._open, write=write):
                    self._close(self._open)
            finally:
                self._running.release()
        self._wait_for_commit(shared)

    def _wait_for_turn(self) -> None:
        with self._counting:
            self._waiting += 1
        try:
            self._running.acquire()
        finally:
            with self._counting:
                self._waiting -= 1

    @contextmanager
    def _undone(self, shared: _Shared, *, joined: bool) -> Iterator[None]:
        """Undo a block that raises; where that fails the whole transaction, which its connection takes along."""
        try:
            if joined:
                shared.connection.execute("SAVEPOINT mine")
            yield
            if joined:
                shared.connection.execute("RELEASE SAVEPOINT mine")
        except BaseException:
            if not joined:  # nobody else's work is in it
                self._open = None
                shared.done.set()
                with suppress(Exception):
                    shared.connection.execute("ROLLBACK")
                raise
            try:
                shared.connection.execute("ROLLBACK TO SAVEPOINT mine")
            except Exception as error:  # noqa: BLE001 (raised again in every other thread that takes part)
                shared.error = error
            raise

    def _is_over(self, shared: _Shared, *, write: bool) -> bool:
        """Whether nobody may join any more: a transaction that began for a reader cannot be written in."""
        alone = self._waiting == 0 or time.monotonic() - shared.since > _OLDEST_SECONDS
        return alone or not write or shared.error is not None

    def _close(self, shared: _Shared) -> None:
        self._open = None
        try:
            if shared.error is None:
                self._commit()
        except BaseException as error:  # noqa: BLE001 (raised again in every thread that takes part)
            shared.error = error
        finally:
            shared.done.set()

    def _wait_for_commit(self, shared: _Shared) -> None:
        """Wait for whoever came last, and commit where an interrupt took him away."""
        while not shared.done.wait(_POLLING_SECONDS):
            if self._running.acquire(blocking=False):
                try:
                    if self._open is shared:
                        self._close(shared)
                finally:
                    self._running.release()
        if shared.error is not None:
            raise shared.error
