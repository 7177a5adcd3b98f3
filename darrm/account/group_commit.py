"""Debits of several threads that share a transaction, and with it the wait until the disk has it.

A commit is durable when it returns, which takes as long as the disk takes, whatever was written. So threads that want
to write at once do not wait one after the other: whoever comes first runs what all have asked for until then, in the
order in which they asked, each within a savepoint of its own, and commits once. What goes wrong for one of them undoes
its own part only. Where the database fails, or the commit, nothing of any is kept, and each is told so.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from darrm.account.accountant import PrivacyAccountant
from darrm.account.ledger_rows import Rows
from darrm.errors import LedgerError

Transaction = Callable[[], AbstractContextManager[tuple[Rows, PrivacyAccountant]]]


@dataclass(eq=False)
class Job:
    """What a thread wants to be written: a function of the rows and of what was spent, and what came of it."""

    write: Callable[[Rows, PrivacyAccountant], tuple[int, PrivacyAccountant]]  # the entry's number, 0 for none
    number: int = 0  # once it is written; it stands in the file if the transaction is committed
    spent: PrivacyAccountant | None = None  # before it
    done: bool = False  # only after the transaction ended well; whoever leads may be interrupted anywhere
    error: BaseException | None = None


class _NothingWrittenError(Exception):
    """Ends a transaction in which nobody wrote anything, so that it is rolled back."""


class GroupCommit:
    """Writes what several threads ask for in common transactions."""

    def __init__(self, transaction: Transaction, path: str) -> None:
        self._transaction, self._path = transaction, path
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._asking, self._writing = threading.Lock(), threading.Lock()
        self._waiting: list[Job] = []

    def run(self, job: Job) -> None:
        """Write a job together with those that wait, or raise what went wrong for it."""
        if self._process != os.getpid():  # locks that a fork found locked stay locked in the child
            self._reset()
        try:
            with self._asking:
                self._waiting.append(job)
            with self._writing:
                if not job.done and job.error is None:
                    with self._asking:
                        jobs, self._waiting = self._waiting, []
                    self._run_all(jobs, job)
        except BaseException:  # an interrupt: nobody has the job, or whoever has it is waited for
            with self._asking:
                taken = job not in self._waiting
                self._waiting = [other for other in self._waiting if other is not job]
            if taken and not job.done:
                with self._writing:
                    pass
            raise
        if job.error is not None:
            raise job.error
        if not job.done:
            raise LedgerError(self._path, "the thread that wrote it was interrupted before it said what came of it")

    def _run_all(self, jobs: Sequence[Job], own: Job) -> None:
        try:
            with suppress(_NothingWrittenError), self._transaction() as (rows, account):
                self._write_all(jobs, rows, account)
            for job in jobs:
                job.done = True
        except BaseException as error:  # noqa: BLE001 (each thread raises its own)
            for job in jobs:
                shared = LedgerError(self._path, f"the transaction that it shared with others failed ({error})")
                job.error = error if job is own else job.error or shared

    @staticmethod
    def _write_all(jobs: Sequence[Job], rows: Rows, account: PrivacyAccountant) -> None:
        for job in jobs:
            job.spent = account
            rows.connection.execute("SAVEPOINT debit")
            try:
                job.number, account = job.write(rows, account)
            except sqlite3.Error:  # which may have undone the whole transaction
                raise
            except Exception as error:  # noqa: BLE001 (its own thread raises it)
                rows.connection.execute("ROLLBACK TO debit")
                job.error = error
            rows.connection.execute("RELEASE debit")
        if not any(job.number for job in jobs):
            raise _NothingWrittenError
        rows.seal_totals()
