"""A privacy budget that survives crashes: a ledger of charges in one SQLite file, shared by any number of processes.

A debit is one transaction: lock, add up, compare with the budget, write, make durable. Only then does the caller hold
the right to let labels out, so a process that is killed at any moment has debited at least what it released. The labels
themselves are kept in the ledger by the very transaction that pays for them, until they are delivered: a process that
is killed after it paid has lost nothing. Where they are too many, a manifest is kept that says how to draw them after
the debit. Of the votes nothing is kept, not even a digest, which could be guessed back.

Every transaction believes only what it reads: budget, kinds, totals and the sums of the log are read and compared in
the transaction that debits, and an object refuses a file that is not the one that it opened.

**Bounds are computed while the lock is free.** An account is private if a larger one of the same kinds is: dropping
answers is post-processing, and the sums of the filter only shrink. So an object remembers the counts of an account that
it found within the budget; they are replaced as a whole and read once, so they always are those of one account. A debit
that stays below them is admitted by comparing counts, under the lock; otherwise the lock is released, a larger account
is bounded, and the debit tried again. What is refused stays refused: totals never fall. After `_ATTEMPTS` rounds, in
which others debited faster than the bounds were computed, it is decided under the lock.

What the budget means depends on what is decided when:

==============  ======================================================================================================
``kinds``       the total stays within (ε, δ) …
==============  ======================================================================================================
``one``         … for queries of one kind; how many of them may depend on the answers. The default; a second kind is
                refused
``planned``     … for several kinds, if kinds and numbers were fixed before the first answer
``adaptive``    … for several kinds chosen at will; costs more, see `PrivacyAccountant.spent_adaptively`
==============  ======================================================================================================
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import shlex
import sqlite3
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.account.accountant import PrivacyAccountant, Spent
from darrm.account.ledger_store import MEMORY, RESTORE, SCHEMA, SCHEMA_VERSION, UPGRADE, LedgerStore, check_header
from darrm.errors import BudgetExceededError, LedgerError, PaidError
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.system.parquet_file import check_absent
from darrm.system.votes_file import SUFFIXES, check_new, labels_digest

KINDS = ("one", "planned", "adaptive")
DEFAULT_TIMEOUT = 60.0
MOST_QUERIES = 2**53  # in a charge and in a ledger: beyond it neither floats nor SQLite's sums count exactly
_ATTEMPTS = 5
_STREAM = "-"  # begins the output of a stream: that of a file is an absolute path
# a ledger knows no voters, so it has no cap to fall back on
SHARED_QUERY = (
    "answers of trained models share the randomness of their training, and what is proved for several of them does not "
    "fit: plan further queries with --voters plain"
)
_ENTRIES = "SELECT id, time, kind, count, note FROM charges"
_FORGET = "UPDATE charges SET labels = NULL WHERE"
_LOG = {
    1: "SELECT charges.id, time, what, count, note, '', '', '', '', '', 0, kinds.seal",
    2: "SELECT charges.id, time, what, count, note, proof, digest, token, output, charges.seal, labels IS NOT NULL, "
    "kinds.seal",
}


@dataclass(frozen=True)
class Entry:
    """One line of the log: when, what, how many queries, and the caller's note."""

    time: str
    what: str
    count: int
    note: str
    table: str = ""  # the digest of the proven table that answered
    labels: str = ""  # the digest of the labels that were paid for, `darrm.system.votes_file.labels_digest`
    delivered: bool = True  # False while the labels, or what says how to draw them, wait in the ledger
    output: str = ""  # the file, the folder, or the stream that they are for
    number: int = 0  # counts from 1

    @property
    def is_of_a_stream(self) -> bool:
        """Whether its labels answered questions that arrived one by one, and not a file."""
        return self.output.startswith(_STREAM)


@dataclass(frozen=True)
class Turn:
    """Whose turn it is in a stream of answers that share an output: the entry that comes next after ``after``."""

    stream: str  # what stands for the output; no file's name
    after: int  # the number of the stream's last entry, 0 if it has none

    @classmethod
    def of(cls, name: str, after: int = 0) -> Turn:
        """Return the turn in the stream of a name; `ValueError` for a name that is no printable text."""
        _check_text("the name of a stream", name)
        return cls(f"{_STREAM}{name}", after)


class PrivacyLedger:
    """A budget and the log of its charges.

    Parameters
    ----------
    path
        An existing ledger's file; see `create` for a new one.
    timeout
        Seconds to wait while another process debits.

    Raises
    ------
    LedgerError
        If the file is missing, corrupted, of another version or not a ledger.

    Examples
    --------
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

    _seen: tuple[Any, ...]  # the newest entry that some transaction of this object found

    def __init__(self, path: str | PathLike[str], *, timeout: float = DEFAULT_TIMEOUT) -> None:
        self._start(path, timeout)
        self._load()

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        budget: PrivacyParams,
        *,
        kinds: str = "one",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> PrivacyLedger:
        """Make a new ledger; an existing file is never replaced, because that would forget what was spent.

        Parameters
        ----------
        path
            A file that does not exist yet, or ``:memory:``.
        budget
            What all debited queries together must satisfy, ε > 0.
        kinds
            ``"one"``, ``"planned"`` or ``"adaptive"``, see the module.

        Raises
        ------
        LedgerError
            If the file exists or cannot be written.
        """
        checks.instance(PrivacyParams, budget=budget, advice="say PrivacyParams(epsilon, delta), after the path")
        checks.positive(budget_epsilon=budget.epsilon, advice="a budget of 0 admits nothing")
        checks.one_of(KINDS, kinds=kinds)
        ledger = cls.__new__(cls)
        ledger._start(path, timeout)  # noqa: SLF001 (its own constructor reads a file)
        ledger._store.create()  # noqa: SLF001
        row = (budget.epsilon_text, budget.delta_text, kinds, now())
        try:
            with ledger._store.transaction(write=True) as connection:  # noqa: SLF001
                for statement in SCHEMA:
                    connection.execute(statement)
                connection.execute("INSERT INTO budget VALUES (1, ?, ?, ?, ?, ?)", (*row, seal(*row)))
                _upgrade(connection)
        except LedgerError:
            ledger._store.discard()  # noqa: SLF001
            raise
        ledger._load()  # noqa: SLF001
        return ledger

    @property
    def path(self) -> str:
        """The file, or ``:memory:``."""
        return self._store.path

    @property
    def identity(self) -> str:
        """What no other ledger has, whatever its file is called; empty for one of version 1 until it is written to."""
        return self._identity

    @property
    def budget(self) -> PrivacyParams:
        """What all debited queries together satisfy."""
        return self._budget

    @property
    def kinds(self) -> str:
        """What may be debited: ``one``, ``planned`` or ``adaptive``, see the module."""
        return self._kinds

    def debit(
        self,
        charge: Charge,
        *,
        note: str = "",
        labels: NDArray[Any] | None = None,
        manifest: bytes | None = None,
        output: Path | None = None,
        turn: Turn | None = None,
        deliver: Callable[[], object] | None = None,
    ) -> int:
        """Debit a charge, durably, or raise and change nothing.

        Parameters
        ----------
        charge
            What is about to be released.
        note
            The caller's words for the log.
        labels
            (charge.count,) what the charge pays for: kept in the ledger by the same transaction, until delivered.
        manifest
            In place of ``labels`` what says how they are drawn after the debit (`darrm.release.partitions`): kept until
            they are delivered.
        output
            The new file that the labels are for; another debit for it is refused until they are delivered.
        turn
            In place of ``output`` the place of the labels in a stream: they stay in the ledger when this returns, and
            the same transaction drops those of the entry before. Refused if the stream went on meanwhile.
        deliver
            Called after the debit: hands the labels over. They then leave the ledger.

        Returns
        -------
        number
            That of the new entry.

        Raises
        ------
        BudgetExceededError
            If the total would pass the budget, or has no bound because what is proved for several answers of private
            models does not fit: carries what was asked, what is left, how many queries still fit.
        ValueError
            If the ledger is for queries of one kind and this is another, a count passes `MOST_QUERIES`, the note is no
            printable text, the labels are not as many as the queries, the output exists or is taken, or it is no
            longer the stream's turn.
        LedgerError
            If the file cannot be read or written, or is not the one that was opened; nothing was debited.
        PaidError
            If anything failed after the debit, also in ``deliver``.
        """
        checks.instance(Charge, charge=charge, advice="say aggregator.charge(queries)")
        _check_text("note", note)
        _check_text("the charge's words", charge.what)
        _check_count("the number of queries in a charge", charge.count)
        kept = manifest if labels is None else _to_npy(labels, charge.count)
        digest = "" if labels is None else labels_digest(labels)
        target = "" if output is None else _words(output.absolute())
        target = target if turn is None else turn.stream
        token, written = secrets.token_hex(16), 0
        try:
            for attempt in range(_ATTEMPTS + 1):
                with self._transaction(write=True) as (connection, accountant):
                    self._check_addition(accountant, charge)
                    self._check_output(connection, output, target, check_new if manifest is None else check_absent)
                    self._check_turn(connection, turn)
                    trial = PrivacyAccountant(charges=(*accountant.charges, charge))
                    if self._is_admitted(trial) or (attempt == _ATTEMPTS and self._admits(trial)):
                        written = _write(connection, charge, (note, charge.table, digest, token, target), kept)
                        if turn is not None:
                            connection.execute(f"{_FORGET} id = ?", (turn.after,))
                        newest = _newest(connection)
                if written:
                    self._seen = newest
                    break
                if attempt == _ATTEMPTS or not self._admits_with_room(accountant, charge):
                    self._refuse(accountant, charge)
            if deliver is not None:
                deliver()
            if kept is not None and turn is None:
                self._forget_labels("token", token)
        except BaseException as error:
            if written:
                self._raise_if_paid(token, error)
            raise
        return written

    @property
    def spent(self) -> Spent:
        """What was spent at the budget's δ, by which bound, and why; read anew from the file."""
        accountant, delta = self.accountant(), self._budget.delta
        return accountant.spent_adaptively(delta) if self._adaptive else accountant.spent(delta)

    def accountant(self) -> PrivacyAccountant:
        """Return an accountant that holds everything debited so far."""
        with self._transaction(write=False) as (_, accountant):
            return accountant

    def queries_that_fit(self, charge: Charge, *, most: int = 1_000_000) -> int:
        """Count how many more queries of this kind can be debited, up to ``most``."""
        checks.instance(Charge, charge=charge, advice="say aggregator.charge()")
        accountant = self.accountant()
        if self._is_second_kind(accountant, charge):
            return 0
        most = min(most, MOST_QUERIES - accountant.queries)
        return accountant.queries_that_fit(charge, self._budget, most=most, adaptive=self._adaptive)

    def entries(self) -> tuple[Entry, ...]:
        """List the log, oldest first."""
        with self._transaction(write=False) as (connection, _):
            return self._log(connection)

    def undelivered(self) -> tuple[Entry, ...]:
        """List the entries whose labels were paid for and wait in the ledger, oldest first."""
        return tuple(entry for entry in self.entries() if not entry.delivered)

    def kept_labels(self, number: int) -> NDArray[Any]:
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
        raise self._corrupted("the labels that wait in it were changed")

    def kept_manifest(self, number: int) -> bytes | None:
        """Return the manifest of an undelivered entry, None if its labels wait; `ValueError` for any other entry."""
        kept, digest = self._kept(number)
        if not isinstance(kept, bytes):
            raise self._corrupted("what waits in it was changed")
        return None if digest else kept

    def _kept(self, number: int) -> tuple[Any, str]:
        """Return what waits for an undelivered entry, and the digest of its labels, empty for a manifest."""
        with self._transaction(write=False) as (connection, _):
            waiting = [entry.number for entry in self._log(connection) if not entry.delivered]
            if number not in waiting:
                allowed = f"one of {', '.join(map(str, waiting))}" if waiting else "undelivered, and none is"
                checks.fail("the entry", number, allowed)
            row = connection.execute("SELECT labels, digest FROM charges WHERE id = ?", (number,)).fetchone()
        return row[0], str(row[1])

    def forget_labels(self, number: int) -> None:
        """Drop the labels of an entry from the ledger, because they were delivered."""
        self._forget_labels("id", number)

    def recovery(self, number: int | str, output: str = "") -> str:
        """Return the command that delivers the labels of an undelivered entry, and pays nothing.

        ``output`` is where the entry's labels go; those that are drawn file by file can go nowhere else.
        """
        ledger = shlex.quote(_words(self._store.path))
        by_parts = output and not output.startswith(_STREAM) and not output.lower().endswith(SUFFIXES)
        there = shlex.quote(output) if by_parts else f"labels-{number}.csv"
        return f"python -m darrm.release --recover {number} --ledger {ledger} --output {there}"

    @property
    def _adaptive(self) -> bool:
        return self._kinds == "adaptive"

    def _refuse(self, accountant: PrivacyAccountant, charge: Charge) -> NoReturn:
        fit = accountant.queries_that_fit(charge, self._budget, most=charge.count - 1, adaptive=self._adaptive)
        spent = accountant.smallest_epsilon(self._budget.delta, adaptive=self._adaptive)
        asked = f"{charge.count} {'query' if charge.count == 1 else 'queries'} of {charge.what}"
        left = max(0.0, self._budget.epsilon - spent)
        remaining = f"epsilon {left:.6g} of {self._budget.epsilon:.6g} at delta {self._budget.delta:g}"
        one_more = PrivacyAccountant(charges=(*accountant.charges, charge.kind))
        hopeless = math.isinf(one_more.smallest_epsilon(self._budget.delta, adaptive=self._adaptive))
        reason = "; one more would fail with more than that delta, whatever epsilon is" if hopeless else ""
        if not PrivacyAccountant(charges=(*accountant.charges, charge)).composes:
            reason = f"; {SHARED_QUERY}"
        raise BudgetExceededError(
            f"the budget {self._budget} does not admit {asked}: {fit} still {'fits' if fit == 1 else 'fit'}, "
            f"{remaining} is left{reason}; nothing was debited",
            requested=asked,
            remaining=remaining,
            queries_that_fit=fit,
        )

    def _start(self, path: str | PathLike[str], timeout: float) -> None:
        """Set what every ledger has before its file is read."""
        checks.file_name(path=path)
        self._store = LedgerStore(str(path), timeout=timeout)
        self._row: tuple[str, ...] = ()
        self._identity = ""
        self._seen = ()
        self._admitted: dict[Charge, int] = {}
        self._room, self._growing = 0, True

    def _load(self) -> None:
        """Read the whole file once, page by page and row by row."""
        with self._transaction(write=False) as (connection, _):
            (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise self._corrupted(state)
            self._log(connection)

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[tuple[sqlite3.Connection, PrivacyAccountant]]:
        """Run a block as one transaction, with the account that it reads."""
        with self._store.transaction(write=write) as connection:
            version = check_header(connection, self._store.path)
            self._read_budget(connection, version)
            if write and version < SCHEMA_VERSION:
                self._log(connection)
                _upgrade(connection)
            accountant, seen = self._read_account(connection), self._seen
            if seen and seen != connection.execute(f"{_ENTRIES} WHERE id = ?", seen[:1]).fetchone():
                lost = f"entry {seen[0]}, which it had, is gone or was changed"
                raise self._corrupted(f"{lost}: an older copy took its place")
            self._seen = _newest(connection)
            yield connection, accountant

    def _read_budget(self, connection: sqlite3.Connection, version: int) -> None:
        """Check that the budget and the identity are those of the first transaction."""
        found = connection.execute("SELECT * FROM budget").fetchone()
        identified = found is not None and len(found) > 6
        if found is None or identified is (version == 1) or found[5] != seal(*found[1:5], *found[6:]):
            raise self._corrupted("the budget was changed")
        row, identity = found[1:5], "".join(found[6:])
        if self._row and (row != self._row or self._identity not in {"", identity}):
            raise self._corrupted("its budget or its identity changed since it was opened")
        if not self._row:
            try:
                self._budget = PrivacyParams(row[0], row[1])
                checks.one_of(KINDS, kinds=row[2])
            except ValueError as error:
                raise self._corrupted(str(error)) from error
            self._kinds: str = row[2]
        self._row, self._identity = row, identity

    def _read_account(self, connection: sqlite3.Connection) -> PrivacyAccountant:
        """Read the totals and compare them with the sums of the log."""
        sums = dict(connection.execute("SELECT kind, sum(count) FROM charges GROUP BY kind"))
        accountant = PrivacyAccountant()
        for kind, cost, what, total, stored in connection.execute(
            "SELECT id, cost, what, total, seal FROM kinds ORDER BY id"
        ):
            if stored != seal(cost, what):
                raise self._corrupted("the cost of a query was changed")
            if sums.pop(kind, None) != total:
                raise self._corrupted("the log and its totals differ")
            try:
                accountant.add(Charge.from_text(cost, what=what).repeated(total))
            except (ValueError, RecursionError) as error:
                raise self._corrupted(str(error)) from error
        if sums:
            raise self._corrupted("the log and its totals differ")
        numbers = connection.execute(
            "SELECT count(*), max(id), (SELECT max(seq) FROM sqlite_sequence WHERE name = 'charges') FROM charges"
        ).fetchone()
        if len({number or 0 for number in numbers}) > 1:  # SQLite numbers them from 1 on, and no number twice
            raise self._corrupted("entries of the log are missing")
        return accountant

    def _log(self, connection: sqlite3.Connection) -> tuple[Entry, ...]:
        """Read the log and check its seals, where it has some."""
        version = check_header(connection, self._store.path)
        entries = []
        for row in connection.execute(
            f"{_LOG[version]} FROM charges JOIN kinds ON kinds.id = kind ORDER BY charges.id"
        ):
            number, time, what, count, note, proof, digest, token, output, stored, waits, kind = row
            if version > 1 and stored != seal(number, time, kind, count, note, proof, digest, token, output):
                raise self._corrupted(f"entry {number} of the log was changed")
            entries.append(Entry(time, what, count, note, proof, digest, not waits, output, number))
        return tuple(entries)

    def _check_addition(self, accountant: PrivacyAccountant, charge: Charge) -> None:
        """Raise `ValueError` for a second kind where there may be one only, and for too many queries."""
        if self._is_second_kind(accountant, charge):
            raise ValueError(
                f"this ledger accounts for queries of one kind, {accountant.charges[0].what!r}, and "
                f"{charge.what!r} costs something else: keep to the first (a voter that left keeps an empty column, "
                "--missing coin), or make one for several kinds by PrivacyLedger.create(path, budget, kinds='planned') "
                "before the first answer; another ledger is another budget of the same people, and the two add up"
            )
        _check_count("the number of queries in a ledger", accountant.queries + charge.count)

    def _is_second_kind(self, accountant: PrivacyAccountant, charge: Charge) -> bool:
        return self._kinds == "one" and any(other.kind != charge.kind for other in accountant.charges)

    def _check_output(
        self, connection: sqlite3.Connection, output: Path | None, target: str, check: Callable[[Path], None]
    ) -> None:
        """Raise `ValueError` if the file exists or other labels wait for it: asked under the lock, so that one wins."""
        if output is None:
            return
        waiting = "SELECT id FROM charges WHERE labels IS NOT NULL AND output = ?"
        row = connection.execute(waiting, (target,)).fetchone()
        if row is not None:
            raise ValueError(
                f"labels for {target!r} were paid for already and are not delivered yet (entry {row[0]} of the "
                f"ledger): wait for the other release, or run `{self.recovery(row[0], target)}`; nothing was debited"
            )
        check(output)

    def _check_turn(self, connection: sqlite3.Connection, turn: Turn | None) -> None:
        """Raise `ValueError` if somebody else took the turn: asked under the lock, so that no place is taken twice."""
        if turn is None:
            return
        later = "SELECT max(id) FROM charges WHERE id > ? AND output = ?"
        (number,) = connection.execute(later, (turn.after, turn.stream)).fetchone()
        if number is not None:
            raise ValueError(
                f"another process answers this stream (entry {number} of the ledger): stop one of them, or give each a "
                "name (--stream NAME); nothing was debited for this question"
            )

    def _is_admitted(self, trial: PrivacyAccountant) -> bool:
        """Return whether an account holds no more of any kind than one that is known to stay within the budget."""
        admitted = self._admitted  # once: another thread may replace it
        return all(charge.count <= admitted.get(charge.kind, 0) for charge in trial.charges)

    def _admits(self, trial: PrivacyAccountant) -> bool:
        """Bound an account, and remember it if it stays within the budget."""
        if not trial.admits(self._budget, adaptive=self._adaptive):
            return False
        self._admitted = {charge.kind: charge.count for charge in trial.charges}
        return True

    def _admits_with_room(self, accountant: PrivacyAccountant, charge: Charge) -> bool:
        """Bound an account with room for further queries, twice as many each time until they no longer fit."""
        trial = PrivacyAccountant(charges=(*accountant.charges, charge))
        if self._room:
            if self._admits(PrivacyAccountant(charges=(*trial.charges, charge.kind.repeated(self._room)))):
                self._room *= 2 if self._growing else 1
                return True
            self._room, self._growing = self._room // 2, False
        admitted = self._admits(trial)
        if admitted and self._growing:
            self._room = charge.count
        return admitted

    def _forget_labels(self, column: str, value: int | str) -> None:
        with self._transaction(write=True) as (connection, _):
            connection.execute(f"{_FORGET} {column} = ?", (value,))

    def _raise_if_paid(self, token: str, error: BaseException) -> None:
        """Raise `PaidError` unless the transaction that wrote the token was rolled back."""
        failure, path = reason_of(error), self._store.path
        try:
            with self._transaction(write=False) as (connection, _):
                row = connection.execute(
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
        raise PaidError(path, f"{failure}; the budget is spent (entry {number} of the ledger)") from error

    def _corrupted(self, what: str) -> LedgerError:
        return LedgerError(self._store.path, f"it is corrupted ({what}): {RESTORE}")


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


def _write(connection: sqlite3.Connection, charge: Charge, words: tuple[str, ...], kept: bytes | None) -> int:
    """Add a charge to totals and log; ``words`` are note, digests, token and output. Return the entry's number."""
    cost, count, time = charge.to_text(), int(charge.count), now()
    connection.execute(
        "INSERT INTO kinds (cost, what, total, seal) VALUES (?, ?, 0, ?) ON CONFLICT (cost) DO NOTHING",
        (cost, charge.what, seal(cost, charge.what)),
    )
    connection.execute("UPDATE kinds SET total = total + ? WHERE cost = ?", (count, cost))
    kind, stored = connection.execute("SELECT id, seal FROM kinds WHERE cost = ?", (cost,)).fetchone()
    number = connection.execute(
        "INSERT INTO charges (time, kind, count, note, proof, digest, token, output) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (time, kind, count, *words),
    ).lastrowid
    # the labels come last: an UPDATE writes a whole row again
    sealed = (seal(number, time, stored, count, *words), kept, number)
    connection.execute("UPDATE charges SET seal = ?, labels = ? WHERE id = ?", sealed)
    return int(number or 0)


def _newest(connection: sqlite3.Connection) -> tuple[Any, ...]:
    return connection.execute(f"{_ENTRIES} ORDER BY id DESC LIMIT 1").fetchone() or ()


def _upgrade(connection: sqlite3.Connection) -> None:
    """Turn version 1 into version 2: an identity for the file, and a seal for every entry."""
    for statement in UPGRADE:
        connection.execute(statement)
    row = (*connection.execute("SELECT epsilon, delta, kinds, created FROM budget").fetchone(), secrets.token_hex(16))
    connection.execute("UPDATE budget SET identity = ?, seal = ?", (row[-1], seal(*row)))
    old = connection.execute(
        "SELECT charges.id, time, kinds.seal, count, note FROM charges JOIN kinds ON kinds.id = kind"
    ).fetchall()
    connection.executemany(
        "UPDATE charges SET seal = ? WHERE id = ?", [(seal(*entry, "", "", "", ""), entry[0]) for entry in old]
    )


def _check_text(name: str, text: str) -> None:
    """Raise `ValueError` for text that a terminal or a file cannot show as it is."""
    if not isinstance(text, str) or not all(
        letter.isprintable() or unicodedata.category(letter) == "Zs" for letter in text
    ):
        checks.fail(name, text, "printable Unicode text on one line", "leave out control characters")


def _check_count(name: str, count: int) -> None:
    if count > MOST_QUERIES:
        checks.fail(name, count, f"at most 2**53 = {MOST_QUERIES}", "larger numbers are not counted exactly")


def _words(path: str | PathLike[str]) -> str:
    """Return the name of a file as text that every terminal and SQLite can hold."""
    name = os.fspath(path)
    return name if name.isprintable() else ascii(name)[1:-1]


def _to_npy(labels: NDArray[Any], count: int) -> bytes:
    """Return (count,) labels as the bytes of an .npy file."""
    if labels.shape != (count,):
        checks.fail("labels", labels.shape, f"({count},), one for each query of the charge")
    file = BytesIO()
    np.save(file, labels, allow_pickle=False)
    return file.getvalue()


def seal(*fields: object) -> str:
    """Return a digest of the fields of a row: finds damage (a text that became a blob, too), not forgery."""
    return hashlib.sha256("\x1f".join(map(str, fields)).encode()).hexdigest()


def now() -> str:
    """Return the time in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
