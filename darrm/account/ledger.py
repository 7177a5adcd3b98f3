"""A privacy budget that survives crashes: a ledger of charges in one SQLite file, shared by any number of processes.

A debit is one transaction: lock, add up, compare with the budget, write, make durable. Only then does the caller hold
the right to let labels out, so a process that is killed at any moment has debited at least what it released. The labels
themselves are kept in the ledger by the very transaction that pays for them, until they are delivered: a process that
is killed after it paid has lost nothing. Where they are too many, a manifest is kept that says how to draw them after
the debit. Of the votes nothing is kept, not even a digest, which could be guessed back.

Every transaction believes only what it reads: budget, kinds, totals and the sums of the log are read and compared in
the transaction that debits, and an object refuses a file that is not the one that it opened.

**Bounds are computed while the lock is free.** A debit whose counts stay below those of an account that is known to fit
the budget is admitted by comparing them, under the lock; otherwise the lock is released, `Admission.make_room` bounds a
larger account, and the debit is tried again. What is refused stays refused: totals never fall. After `_ATTEMPTS`
rounds, in which others debited faster than the bounds were computed, it is decided under the lock.

What the budget means depends on what is decided when:

==============  ======================================================================================================
``kinds``       the total stays within (ε, δ) …
==============  ======================================================================================================
``one``         … for queries of one kind; how many of them may depend on the answers. The default; a second kind is
                refused
``planned``     … for several kinds, if kinds and numbers were fixed before the first answer
``renyi``       … for several kinds chosen at will that have a Rényi curve, or δ = 0; see `darrm.account.filters`
``adaptive``    … for any kinds chosen at will; half of δ is set aside for their own
==============  ======================================================================================================
"""

from __future__ import annotations

import os
import secrets
import shlex
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from darrm.account.accountant import KINDS, Admission, PrivacyAccountant, Spent
from darrm.account.group_commit import GroupCommit, Job
from darrm.account.head import Head
from darrm.account.ledger_rows import STREAM, Entry, Identity, Rows, corrupted
from darrm.account.ledger_store import MEMORY
from darrm.account.postgres import open_store
from darrm.account.signing import SigningKey
from darrm.account.store import Store
from darrm.errors import LedgerError, PaidError, PrivateFigureError, checks
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.system.files import Document
from darrm.system.parquet_file import check_absent
from darrm.system.votes_file import SUFFIXES, check_new, labels_digest
from darrm.votes import Labels

DEFAULT_TIMEOUT = 60.0
LONGEST_ID = 100  # characters of what a question is called
_ATTEMPTS = 5
MOST_CHECKED = 10_000  # entries of a ledger that is read as a whole when it is opened: a tenth of a second


@dataclass(frozen=True)
class Turn:
    """Whose turn it is in a stream of answers that share an output: the entry that comes next after ``after``."""

    stream: str  # what stands for the output; no file's name
    after: int  # the number of the stream's last entry, 0 if it has none
    questions: tuple[
        str, ...
    ] = ()  # the public ids of what is answered, one for each query; empty where they have none

    @classmethod
    def of(cls, name: str, after: int = 0) -> Turn:
        """Return the turn in the stream of a name; `ValueError` for a name that is no printable text."""
        _check_text("the name of a stream", name)
        return cls(f"{STREAM}{name}", after)


class PrivacyLedger:
    """A budget and the log of its charges.

    Parameters
    ----------
    path
        An existing ledger's file, its URL in PostgreSQL (`darrm.account.postgres`), or the store that holds it; see
        `create` for a new one.
    timeout
        Seconds to wait while another process debits.
    signing_key
        The file of an Ed25519 key that signs every entry from the first one on: `darrm.account.signing`.

    Raises
    ------
    LedgerError
        If the file is missing, corrupted, of another version or not a ledger, or has entries that the key did not sign.
    ValueError
        If the key is none, encrypted, or readable by others.

    Examples
    --------
    >>> from darrm.errors import BudgetExceededError
    >>> ledger = PrivacyLedger.create(":memory:", PrivacyParams(3, 1e-5))
    >>> charge = Charge("majority of 11", guarantee=PrivacyParams(0.3, 0))
    >>> ledger.debit(charge.repeated(10), note="first batch")
    1
    >>> print(ledger.spent)
    10 queries: (2.9974, 1e-05) by optimal: the best that the (epsilon, delta) of each query allow
    >>> try:
    ...     ledger.debit(charge.repeated(90))
    ... except BudgetExceededError as error:
    ...     print(error.requested, "|", error.queries_that_fit)
    90 queries of majority of 11 | 0
    """

    def __init__(
        self,
        path: str | PathLike[str] | Store,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        signing_key: str | PathLike[str] | None = None,
    ) -> None:
        if not isinstance(path, Store):
            checks.file_name(path=path)
        self._store = path if isinstance(path, Store) else open_store(str(path), timeout=timeout)
        self._key = None if signing_key is None else SigningKey(signing_key)
        self._identity: Identity | None = None
        self._seen: tuple[object, ...] = ()  # the newest entry that some transaction of this object read
        with self._transaction(write=False) as (rows, _):
            self._budget, self._kinds = rows.budget(), rows.identity().kinds
            rows.check(most=MOST_CHECKED)
            if self._key is not None:
                rows.check_key()
        self._admission = Admission(self._budget, self._kinds)
        self._group = GroupCommit(partial(self._transaction, write=True), self._store.path)

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        budget: PrivacyParams,
        *,
        kinds: str = "one",
        population: str = "",
        timeout: float = DEFAULT_TIMEOUT,
        signing_key: str | PathLike[str] | None = None,
    ) -> PrivacyLedger:
        """Make a new ledger; an existing file is never replaced, because that would forget what was spent.

        Parameters
        ----------
        path
            A file that does not exist yet, ``:memory:``, or the URL of an empty schema in PostgreSQL.
        budget
            What all debited queries together must satisfy, ε > 0.
        kinds
            ``"one"``, ``"planned"``, ``"renyi"`` or ``"adaptive"``, see the module.
        population
            A public name for the people behind the votes, at most `LONGEST_ID` printable characters: of several ledgers
            of one population an audit adds up what they spent.
        timeout, signing_key
            As of `PrivacyLedger`.

        Raises
        ------
        ValueError
            If the budget, the kinds, the name or the key is none that a ledger can have.
        LedgerError
            If the file exists or cannot be written.
        """
        checks.instance(PrivacyParams, budget=budget, advice="say PrivacyParams(epsilon, delta), after the path")
        checks.positive(budget_epsilon=budget.epsilon, advice="a budget of 0 admits nothing")
        checks.one_of(KINDS, kinds=kinds)
        if population != "":
            check_id("population", population)
        checks.file_name(path=path)
        if signing_key is not None:
            SigningKey(signing_key)  # before a ledger is made that it cannot sign
        store = open_store(str(path), timeout=timeout)
        store.create()
        try:
            with store.transaction(write=True) as connection:
                Rows(connection, store.path).create(Identity.of(budget, kinds, population))
        except LedgerError:
            store.discard()
            raise
        return cls(store, signing_key=signing_key)

    @property
    def path(self) -> str:
        """The file, the URL, or ``:memory:``."""
        return self._store.path

    @property
    def identity(self) -> str:
        """What no other ledger has, whatever its file is called; empty for one of version 1 until it is written to."""
        return "" if self._identity is None else self._identity.name

    @property
    def created(self) -> str:
        """When it was made, in UTC."""
        return "" if self._identity is None else self._identity.created

    @property
    def budget(self) -> PrivacyParams:
        """What all debited queries together satisfy."""
        return self._budget

    @property
    def kinds(self) -> str:
        """What may be debited, one of `KINDS`: see the module."""
        return self._kinds

    @property
    def population(self) -> str:
        """What whoever made it calls the people behind the votes; empty for no name."""
        return "" if self._identity is None else self._identity.population

    def head(self, number: int | None = None) -> Head:
        """Return what shows later whether entries were changed or are gone: at an entry, by default the last.

        Raises
        ------
        ValueError
            If there is no such entry, or the ledger is of version 1, which has a head from its next debit on.
        LedgerError
            If the ledger cannot be read.

        Examples
        --------
        >>> ledger = PrivacyLedger.create(":memory:", PrivacyParams(3, 1e-5), population="ward 7")
        >>> ledger.debit(Charge("majority of 11", guarantee=PrivacyParams(0.3, 0)).repeated(10))
        1
        >>> head = ledger.head()
        >>> head.number, head.queries, head.population, Head.from_text(str(head)) == head
        (1, 10, 'ward 7', True)
        """
        with self._transaction(write=False) as (rows, _):
            return rows.head(number)

    def receipt(self, number: int) -> Document:
        """Return what an entry paid for, and the head at it, to be kept beside its labels; errors as `head`."""
        with self._transaction(write=False) as (rows, _):
            return rows.receipt(number)

    def debit(
        self,
        charge: Charge,
        *,
        note: str = "",
        labels: Labels | None = None,
        manifest: bytes | None = None,
        output: Path | None = None,
        turn: Turn | None = None,
        deliver: Callable[[int], Mapping[str, str] | None] | None = None,
    ) -> int:
        """Debit a charge, durably, or raise and change nothing.

        Parameters
        ----------
        charge
            What is about to be released.
        note
            The caller's words for the log.
        labels
            (charge.count,) what the charge pays for, of a run at most so many: kept in the ledger by the same
            transaction until they are delivered.
        manifest
            In place of ``labels`` what says how they are drawn after the debit (`darrm.release.partitions`): kept until
            they are delivered.
        output
            The new file that the labels are for; another debit for it is refused until they are delivered.
        turn
            In place of ``output`` the place of the labels in a stream: they stay in the ledger when this returns, and
            the same transaction drops those of the entry before. Refused if the stream went on meanwhile.
        deliver
            Called with the entry's number after the debit: hands the labels over. They then leave the ledger, unless
            they are of a stream. It may return the SHA-256 of files that it drew, by their names: the entry keeps them.

        Returns
        -------
        number
            That of the new entry.

        Raises
        ------
        PrivateFigureError
            If the cost depends on the data, and is private data or bears no consent in words.
        BudgetExceededError
            If the total would pass the budget, or has no bound because what is proved for several answers of private
            models does not fit: carries what was asked, what is left, how many queries still fit.
        ValueError
            If the ledger is for queries of one kind and this is another, a count passes `MOST_QUERIES`, the note is no
            printable text, the labels or the ids of questions are not as many as the queries, an id is refused by
            `check_id`, the output exists or is taken, or it is no longer the stream's turn.
        LedgerError
            If the file cannot be read or written, is not the one that was opened, or is signed with another key than
            this object has; nothing was debited.
        PaidError
            If anything failed after the debit, also in ``deliver``, which may raise one with better words.
        """
        checks.instance(Charge, charge=charge, advice="say aggregator.charge(queries)")
        _check_text("note", note)
        _check_charge(charge)
        kept = manifest if labels is None else _to_npy(labels, charge)
        target = _target(output, turn)
        asked = () if turn is None else _ids(turn.questions, charge.count)
        token = secrets.token_hex(16)
        words = (note, charge.table, "" if labels is None else labels_digest(labels), token, target)

        def write(rows: Rows, account: PrivacyAccountant, *, decide: bool = False) -> tuple[int, PrivacyAccountant]:
            held = self._held(account, charge)
            self._check_output(rows, output, target, check_new if manifest is None else check_absent)
            self._check_turn(rows, turn)
            if not self._admission.admits(account, held, decide=decide):
                return 0, account
            number = rows.write(held, words, kept, asked)
            if turn is not None:
                rows.forget_labels(turn.after)
            return number, account.plus(held)

        job = Job(write)
        try:
            for attempt in range(_ATTEMPTS + 1):
                if job.spent is not None:
                    self._admission.make_room(job.spent, self._held(job.spent, charge))
                job = Job(partial(write, decide=attempt == _ATTEMPTS))
                self._group.run(job)
                if job.number:
                    break
            files = None if deliver is None else deliver(job.number)
            if kept is not None and turn is None:
                self.forget_labels(job.number, files)
        except BaseException as error:
            if job.number:
                self._raise_if_paid(token, error)
            raise
        return job.number

    def _held(self, account: PrivacyAccountant, charge: Charge) -> Charge:
        return account.as_held(charge) if self._kinds == "one" else charge

    @property
    def spent(self) -> Spent:
        """What was spent at the budget's δ, by which bound, and why; read anew from the file."""
        return self.accountant().spent_under(self._kinds, self._budget.delta)

    def accountant(self) -> PrivacyAccountant:
        """Return an accountant that holds everything debited so far."""
        with self._transaction(write=False) as (_, account):
            return account

    def queries_that_fit(self, charge: Charge, *, most: int = 1_000_000) -> int:
        """Count how many more queries of this kind can be debited, up to ``most``."""
        checks.instance(Charge, charge=charge, advice="say aggregator.charge()")
        return self._admission.queries_that_fit(self.accountant(), charge, most=most)

    def entries(self) -> tuple[Entry, ...]:
        """List the log, oldest first."""
        with self._transaction(write=False) as (rows, _):
            return rows.entries()

    def check(self) -> None:
        """Read the whole file and log, whatever their size: `LedgerError` if a sum or a link is not what it should be.

        A ledger of more than `MOST_CHECKED` entries is opened and debited by its totals and the end of its log.
        """
        with self._transaction(write=False) as (rows, _):
            rows.check()

    def costs(self) -> dict[int, Charge]:
        """Return what all queries of each kind cost together, by `Entry.kind`."""
        with self._transaction(write=False) as (rows, _):
            return rows.costs()

    def undelivered(self) -> tuple[Entry, ...]:
        """List the entries whose labels were paid for and wait in the ledger, oldest first."""
        return tuple(entry for entry in self.entries() if not entry.delivered)

    def kept_labels(self, number: int) -> Labels:
        """Return the labels of an undelivered entry, as they were drawn; `ValueError` for any other entry."""
        kept, digest = self._kept(number)
        if not digest:
            checks.fail("the entry", number, "one whose labels wait", "those of this one are drawn file by file")
        try:
            labels = np.load(BytesIO(kept), allow_pickle=False)
            if labels_digest(labels) == digest:
                return np.asarray(labels)
        except (ValueError, EOFError, TypeError):
            pass
        raise corrupted(self.path, "the labels that wait in it were changed")

    def kept_manifest(self, number: int) -> bytes | None:
        """Return the manifest of an undelivered entry, None if its labels wait; `ValueError` for any other entry."""
        kept, digest = self._kept(number)
        if not isinstance(kept, bytes):
            raise corrupted(self.path, "what waits in it was changed")
        return None if digest else kept

    def _kept(self, number: int) -> tuple[Any, str]:
        """Return what waits for an undelivered entry, and the digest of its labels, empty for a manifest."""
        with self._transaction(write=False) as (rows, _):
            waiting = [entry.number for entry in rows.entries() if not entry.delivered]
            if number not in waiting:
                allowed = f"one of {', '.join(map(str, waiting))}" if waiting else "undelivered, and none is"
                checks.fail("the entry", number, allowed)
            row = rows.connection.execute("SELECT labels, digest FROM charges WHERE id = ?", (number,)).fetchone()
        return row[0], str(row[1])

    def forget_labels(self, number: int, files: Mapping[str, str] | None = None) -> None:
        """Drop the labels of an entry from the ledger, because they were delivered: to files with these digests."""
        with self._transaction(write=True) as (rows, _):
            rows.forget_labels(number, files)

    def recovery(self, number: int | str, output: str = "") -> str:
        """Return the command that delivers the labels of an undelivered entry, and pays nothing.

        ``output`` is where the entry's labels go; those that are drawn file by file can go nowhere else.
        """
        ledger = shlex.quote(_words(self._store.path))
        by_parts = output and not output.startswith(STREAM) and not output.lower().endswith(SUFFIXES)
        there = shlex.quote(output) if by_parts else f"labels-{number}.csv"
        return f"python -m darrm.release recover {number} --ledger {ledger} --output {there}"

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[tuple[Rows, PrivacyAccountant]]:
        with self._store.transaction(write=write) as connection:
            rows = Rows(connection, self._store.path, self._key)
            identity = rows.identity()
            if self._identity is not None and not identity.follows(self._identity):
                raise rows.corrupted("its budget or its identity changed since it was opened")
            self._identity = identity
            account = rows.account()
            rows.check_holds(self._seen)
            self._seen = rows.newest()  # as it stands if all is rolled back
            if write:
                rows.upgrade()
            yield rows, account
            newest = rows.newest()
        self._seen = newest  # committed

    def _check_output(self, rows: Rows, output: Path | None, target: str, check: Callable[[Path], None]) -> None:
        """Raise `ValueError` if the file exists or other labels wait for it: asked under the lock, so that one wins."""
        if output is None:
            return
        waiting = "SELECT id FROM charges WHERE labels IS NOT NULL AND output = ?"
        row = rows.connection.execute(waiting, (target,)).fetchone()
        if row is not None:
            raise ValueError(
                f"labels for {target!r} were paid for already and are not delivered yet (entry {row[0]} of the "
                f"ledger): wait for the other release, or run `{self.recovery(row[0], target)}`; nothing was debited"
            )
        check(output)

    def _check_turn(self, rows: Rows, turn: Turn | None) -> None:
        """Raise `ValueError` if somebody else took the turn: asked under the lock, so that no place is taken twice."""
        if turn is None:
            return
        later = "SELECT max(id) FROM charges WHERE id > ? AND output = ?"
        (number,) = rows.connection.execute(later, (turn.after, turn.stream)).fetchone()
        if number is not None:
            raise ValueError(
                f"another process answers this stream (entry {number} of the ledger): stop one of them, or give each a "
                "name (--stream NAME); nothing was debited for this question"
            )

    def _raise_if_paid(self, token: str, error: BaseException) -> None:
        """Raise `PaidError` unless the transaction that wrote the token was rolled back."""
        if isinstance(error, PaidError):
            raise error
        failure, path = reason_of(error), self._store.path
        try:
            with self._transaction(write=False) as (rows, _):
                row = rows.connection.execute(
                    "SELECT id, labels IS NOT NULL, digest, output FROM charges WHERE token = ?", (token,)
                ).fetchone()
        except BaseException as unread:
            where = shlex.quote(_words(path))
            raise PaidError(
                path,
                f"{failure}; the ledger cannot be read now, so count the budget as spent: if `python -m darrm.account "
                f"--ledger {where}` lists the labels as undelivered, `{self.recovery('ENTRY')}` writes them",
            ) from unread
        if row is None:
            return
        number, waits, digest, output = row
        if waits and path != MEMORY:
            where = "the labels are kept" if digest else "what was not drawn yet is paid for"
            message = f"{failure}; the budget is spent and {where}: `{self.recovery(number, output)}` writes them"
            raise PaidError(path, message, entry=number) from error
        there = f" and the labels are in {output!r}" if output and not output.startswith(STREAM) else ""
        raise PaidError(path, f"{failure}; the budget is spent{there} (entry {number} of the ledger)") from error


def reason_of(error: BaseException) -> str:
    """Return why something failed after a debit, without a `LedgerError`'s words that nothing was debited.

    >>> reason_of(KeyboardInterrupt())
    'interrupted'
    """
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, LedgerError) and error.__cause__ is not None:
        return f"ledger {error.path!r}: {error.__cause__}"
    return str(error) or type(error).__name__


def _check_charge(charge: Charge) -> None:
    _check_text("the charge's words", charge.what)
    if charge.data_dependent and charge.understated is None:
        raise PrivateFigureError(charge.what, "a ledger keeps no cost that is private data: publish it with noise")


def _check_text(name: str, text: str) -> None:
    if not isinstance(text, str) or not all(
        letter.isprintable() or unicodedata.category(letter) == "Zs" for letter in text
    ):
        checks.fail(name, text, "printable Unicode text on one line", "leave out control characters")


def check_id(name: str, question: str) -> None:
    """Refuse an id of a question that a log cannot show: with `ValueError`, which calls it ``name``.

    >>> check_id("the id", "2026-11-23/7")
    """
    if not isinstance(question, str) or not 0 < len(question) <= LONGEST_ID or not question.isprintable():
        shown = checks.Found("an empty one") if question == "" else str(question)[:LONGEST_ID]
        checks.fail(name, shown, f"printable text of at most {LONGEST_ID} characters", "the ledger's log shows it")


def _ids(questions: tuple[str, ...], count: int) -> tuple[str, ...]:
    if len(questions) not in {0, count}:
        checks.fail("the ids of questions", len(questions), f"{count}, one for each query of the charge, or none")
    for question in questions:
        check_id("the id of a question", question)
    return tuple(questions)


def _target(output: Path | None, turn: Turn | None) -> str:
    if turn is not None:
        return turn.stream
    return "" if output is None else _words(output.absolute())


def _words(path: str | PathLike[str]) -> str:
    name = os.fspath(path)
    return name if name.isprintable() else ascii(name)[1:-1]


def _to_npy(labels: Labels, charge: Charge) -> bytes:
    most = charge.count * charge.labels
    if labels.shape != (most,) and not (charge.labels > 1 and labels.ndim == 1 and labels.size <= most):
        checks.fail("labels", labels.shape, f"({most},), one for each query of the charge")
    file = BytesIO()
    np.save(file, labels, allow_pickle=False)
    return file.getvalue()
