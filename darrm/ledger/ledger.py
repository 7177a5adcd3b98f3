"""A privacy budget that survives crashes: a ledger of debits, shared by any number of processes.

A debit is one transaction: lock, add up, compare with the budget, write, make durable. Only then may labels leave, so a
process that is killed at any moment has debited all its releases. The same transaction keeps the labels until they are
delivered, so no label is lost. Every transaction checks budget, totals and the end of the log, and refuses another
file than the one that was opened.

**Bounds are computed while the lock is free.** A debit is admitted under the lock if its counts stay below those of an
account that is known to fit the budget. Otherwise `Admission.make_room` bounds a larger account without the lock, and
the debit is tried again. A refusal is final, because totals never fall. After `_ATTEMPTS` rounds, in which others
debited faster than the bounds were computed, it is decided under the lock.

The composition mode is fixed before the first answer. It determines the queries that the budget covers:

===============  =======================================================================================================
``composition``  the total stays within (ε, δ) …
===============  =======================================================================================================
``one``          … for queries of one kind; their number may depend on the answers. The default; refuses a second kind
``planned``      … for several kinds, if kinds and numbers were fixed before the first answer
``renyi``        … for several kinds chosen at will, each with a Rényi curve or δ = 0; see `darrm.account.filters`
``adaptive``     … for any kinds chosen at will; half of δ is set aside for their own
===============  =======================================================================================================

The budget is the guarantee. The privacy loss so far is smaller, and holds only if the number of queries did not depend
on the answers: an analyst who stops at the first 1 has spent little, and learned how many answers came before it.
"""

from __future__ import annotations

import json
import secrets
import shlex
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from darrm.account.accountant import COMPOSITIONS, PrivacyAccountant, Spent, describe_guarantee
from darrm.account.admission import Admission
from darrm.errors import DeliveryError, LedgerError, PrivateFigureError
from darrm.ledger.chain import FORMAT, STREAM, Budget, Entry, EntryRow, LedgerDigest, SigningKey, now
from darrm.ledger.postgres import Store, open_store
from darrm.ledger.sqlite import HOW_TO_CREATE, MEMORY, corrupted
from darrm.ledger.transaction import Transaction
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyPair, PrivacyParams
from darrm.util import checks
from darrm.util.files import Document
from darrm.votes import Labels
from darrm.votes.labels_file import labels_digest
from darrm.votes.votes_file import SUFFIXES, check_new

DEFAULT_TIMEOUT = 60.0
LONGEST_ID = 100  # characters of the id of a question
_ATTEMPTS = 5
MOST_CHECKED = 10_000  # entries of a ledger that is read as a whole when it is opened: a tenth of a second


@dataclass(frozen=True)
class StreamCursor:
    """The place of the next answer in a stream."""

    stream: str  # in place of an output; not the name of a file
    after: int  # the number of the stream's last entry, 0 if it has none
    questions: tuple[str, ...] = ()  # the public ids of the questions, one for each query; empty for none

    @classmethod
    def of(cls, name: str, after: int = 0) -> StreamCursor:
        """Make the cursor of a named stream; `ValueError` unless the name is printable."""
        _check_text("the name of a stream", name)
        return cls(f"{STREAM}{name}", after)


class PrivacyLedger:
    """A budget and the log of its costs.

    ``path`` is an existing file, or a URL (`darrm.ledger.postgres`); `create` makes a new ledger. ``timeout`` is in
    seconds. ``signing_key`` is the file of an Ed25519 key that signs every entry (`darrm.ledger.chain`).

    `LedgerError` if the file is missing, corrupted or not a ledger, or has entries that the key did not sign;
    `ValueError` if the key is none, encrypted, or readable by others.

    Examples
    --------
    >>> from darrm.errors import BudgetExceededError
    >>> ledger = PrivacyLedger.create(":memory:", PrivacyParams(3, 1e-5))
    >>> cost = PrivacyCost("majority of 11", guarantee=PrivacyParams(0.3, 0))
    >>> ledger.debit(cost.repeat(10), note="first batch")
    1
    >>> print(ledger.spent)
    10 queries: (2.9975, 1e-05), if the number of queries did not depend on the answers, by optimal: the best that \
the (epsilon, delta) of each query allow
    >>> print(ledger.guarantee)
    (3, 0.00001), which all labels together keep to
    >>> try:
    ...     ledger.debit(cost.repeat(90))
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
        self._key, self._key_file = None if signing_key is None else SigningKey(signing_key), signing_key
        with self._store.transaction(write=False) as database:
            transaction = Transaction(database, self._key)
            self._row, self._budget = transaction.budget, transaction.params
            transaction.account()
            transaction.check(max_entries=MOST_CHECKED)
            if self._key is not None:
                transaction.check_key()
            self._newest = transaction.newest  # the newest entry that a transaction of this object read
        self._admission = Admission(self.budget, self.composition)

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        budget: PrivacyPair,
        *,
        composition: str = "one",
        population: str = "",
        timeout: float = DEFAULT_TIMEOUT,
        signing_key: str | PathLike[str] | None = None,
    ) -> PrivacyLedger:
        """Make a new ledger; never replace an existing file, because that would forget all debits.

        ``path`` is a new file, ``:memory:``, or the URL of an empty schema; the budget has ε > 0. ``population`` names
        the people behind the votes, in at most `LONGEST_ID` printable characters: an audit adds up their ledgers.

        `LedgerError` if the file exists or cannot be written; `ValueError` for other invalid arguments.
        """
        budget = PrivacyParams.of(budget, "budget")
        checks.positive(budget_epsilon=budget.epsilon, advice="a budget of 0 admits nothing")
        checks.one_of(COMPOSITIONS, composition=composition)
        if population != "":
            check_id("population", population)
        checks.file_name(path=path)
        if signing_key is not None:
            SigningKey(signing_key)  # before a ledger is made that it cannot sign
        identity, pair = secrets.token_hex(16), (budget.epsilon_text, budget.delta_text)
        row = Budget(FORMAT, identity, *pair, composition, population, now())
        store = open_store(str(path), timeout=timeout)
        store.create()
        try:
            with store.transaction(write=True) as database:
                Transaction(database).create(row)
        except LedgerError:
            store.discard()
            raise
        return cls(store, signing_key=signing_key)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path == MEMORY:
            raise TypeError("a ledger in memory is known to the process that made it: use a file")
        return partial(PrivacyLedger, signing_key=self._key_file), (self.path,)

    def __repr__(self) -> str:
        return f"PrivacyLedger({self.path!r})"

    def __str__(self) -> str:
        return f"budget: {self.guarantee}\nspent:  {self.spent}"

    @property
    def path(self) -> str:
        """The file, the URL, or ``:memory:``."""
        return self._store.path

    @property
    def identity(self) -> str:
        """Random and unique to the ledger."""
        return self._row.identity

    @property
    def created(self) -> str:
        """The time of its creation, in UTC."""
        return self._row.created

    @property
    def budget(self) -> PrivacyParams:
        """What all debited queries together satisfy."""
        return self._budget

    @property
    def composition(self) -> str:
        """One of `COMPOSITIONS`."""
        return self._row.composition

    @property
    def population(self) -> str:
        """The public name of the people, or empty."""
        return self._row.population

    def digest(self, number: int | None = None) -> LedgerDigest:
        """Return the digest at an entry, by default the last. It later reveals changed or missing entries."""
        with self._transaction(write=False) as (transaction, _):
            return transaction.digest(number)

    def receipt(self, number: int) -> Document:
        """Return an entry with the digest at it, to keep with its labels."""
        with self._transaction(write=False) as (transaction, _):
            return transaction.receipt(number)

    def debit(
        self,
        cost: PrivacyCost,
        *,
        note: str = "",
        labels: Labels | None = None,
        output: Path | None = None,
        cursor: StreamCursor | None = None,
    ) -> int:
        """Debit a cost, durably, and return the number of the new entry.

        The same transaction keeps the labels, (cost.count,), or at most that many for a run, until `forget_labels`.
        ``output`` is their new file; another debit for it is refused until they are delivered. With a ``cursor``
        instead, the transaction drops the labels of its last entry.

        Nothing is debited after a `BudgetExceededError`; a `PrivateFigureError` for a cost that is private data;
        `ValueError` if the composition refuses a second kind, the output is taken, the stream went on, or an argument
        is invalid; or a `LedgerError`. After a `DeliveryError` the debit is committed, and its report failed.
        """
        checks.instance(PrivacyCost, cost=cost, advice="say aggregator.privacy_cost(queries)")
        _check_text("note", note)
        _check_text("the cost's words", cost.what)
        if cost.data_dependent and cost.failure_probability is None:
            raise PrivateFigureError(cost.what, "a ledger keeps no cost that is private data: publish it with noise")
        stored_labels = None if labels is None else _encode_npy(labels, cost)
        entry = EntryRow(
            queries=int(cost.count),
            note=note,
            table_digest=cost.table,
            labels_digest="" if labels is None else labels_digest(labels),
            token=secrets.token_hex(16),
            output=_name_output(output, cursor),
            questions="" if cursor is None else _format_ids(cursor.questions, cost.count),
            waits=labels is not None,
        )
        number, newest = 0, self._newest[0]
        account = None
        try:
            for attempt in range(_ATTEMPTS + 1):
                if account is not None:
                    self._admission.make_room(account, self._charge_for(account, cost))
                with self._transaction(write=True) as (transaction, account):
                    stored_cost = self._charge_for(account, cost)
                    self._check_output(transaction, output, cursor)
                    if self._admission.admits(account, stored_cost, decide=attempt == _ATTEMPTS):
                        number = transaction.write(entry, stored_cost, stored_labels)
                        if cursor is not None:
                            transaction.forget_labels(cursor.after)
                if number:
                    break
        except BaseException as error:
            if number:
                self.raise_if_paid(error, after=newest, token=entry.token)
            raise
        return number

    def check_admits(self, cost: PrivacyCost) -> None:
        """Raise as `debit` unless the budget admits a cost."""
        account = self.accountant()
        self._admission.admits(account, self._charge_for(account, cost), decide=True)

    def _charge_for(self, account: PrivacyAccountant, cost: PrivacyCost) -> PrivacyCost:
        return account.match_stored_kind(cost) if self.composition == "one" else cost

    @property
    def spent(self) -> Spent:
        """The privacy loss at the δ of the budget, with its bound, condition and reason."""
        return self.accountant().spent_under(self.composition, self.budget.delta)

    @property
    def guarantee(self) -> str:
        """The budget in words; it holds without the condition of `spent`."""
        failure_probability = self.accountant().failure_probability
        return describe_guarantee(self.budget, self.composition) if failure_probability is None else str(self.budget)

    def accountant(self) -> PrivacyAccountant:
        """Return an accountant with all debits."""
        with self._transaction(write=False) as (_, account):
            return account

    def queries_that_fit(self, cost: PrivacyCost, *, most: int = 1_000_000) -> int:
        """Count how many more queries of this kind can be debited, up to ``most``."""
        checks.instance(PrivacyCost, cost=cost, advice="say aggregator.privacy_cost()")
        return self._admission.queries_that_fit(self.accountant(), cost, most=most)

    def entries(self) -> tuple[Entry, ...]:
        """Return the log, oldest first."""
        with self._transaction(write=False) as (transaction, _):
            return transaction.entries()

    def check(self) -> None:
        """Read the whole log: `LedgerError` if a sum or a hash is wrong. Opening reads up to `MOST_CHECKED` entries."""
        with self._transaction(write=False) as (transaction, _):
            transaction.check()

    def costs(self) -> dict[int, PrivacyCost]:
        """Return the total cost of each `Entry.kind`."""
        with self._transaction(write=False) as (transaction, _):
            return transaction.costs()

    def undelivered(self) -> tuple[Entry, ...]:
        """List the entries whose labels wait in the ledger, oldest first."""
        return tuple(entry for entry in self.entries() if not entry.delivered)

    def kept_labels(self, number: int) -> Labels:
        """Return the labels of an undelivered entry; `ValueError` for any other."""
        with self._transaction(write=False) as (transaction, _):
            waiting = {entry.number: entry for entry in transaction.entries() if not entry.delivered}
            if number not in waiting:
                allowed = f"one of {', '.join(map(str, waiting))}" if waiting else "undelivered, and none is"
                checks.fail("the entry", number, allowed)
            content, digest = transaction.labels(number) or b"", waiting[number].labels
        try:
            labels = np.load(BytesIO(content), allow_pickle=False)
            if labels_digest(labels) == digest:
                return np.asarray(labels)
        except (ValueError, EOFError, TypeError):
            pass
        raise corrupted(self.path, "the labels that wait in it were changed")

    def forget_labels(self, number: int) -> None:
        """Drop the labels of a delivered entry."""
        with self._transaction(write=True) as (transaction, _):
            transaction.forget_labels(number)

    def recovery(self, number: int | str, output: str = "") -> str:
        """Return the command that delivers an entry's labels."""
        ledger = shlex.quote(printable(self.path))
        is_folder = output and not output.startswith(STREAM) and not output.lower().endswith(SUFFIXES)
        target = shlex.quote(output) if is_folder else f"labels-{number}.csv"
        return f"python -m darrm.release recover {number} --ledger {ledger} --output {target}"

    def _check_output(self, transaction: Transaction, output: Path | None, cursor: StreamCursor | None) -> None:
        if cursor is not None and (newer_entry := transaction.newest_for(cursor.stream, after=cursor.after)):
            raise ValueError(
                f"another process answers this stream (entry {newer_entry} of the ledger): stop one of them, or "
                "name each stream (--stream NAME); nothing was debited for this question"
            )
        if output is None:
            return
        target = _name_output(output, None)
        if entry := transaction.newest_for(target, waits=True):
            raise ValueError(
                f"labels for {target!r} were paid for already and are not delivered yet (entry {entry} of the "
                f"ledger): wait for the other release, or run `{self.recovery(entry, target)}`; nothing was debited"
            )
        check_new(output)

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[tuple[Transaction, PrivacyAccountant]]:
        with self._store.transaction(write=write) as database:
            transaction = Transaction(database, self._key)
            if transaction.budget != self._row:
                raise transaction.corrupted("its budget or its identity changed since it was opened")
            account = transaction.account()
            transaction.check_contains(*self._newest)
            self._newest = transaction.newest  # valid if the transaction is rolled back
            if write and (new_place := transaction.state.moved_to):
                message = f"it is closed, its budget moved to {new_place}: debit there; nothing was debited"
                raise LedgerError(self.path, message)
            yield transaction, account
            newest = transaction.newest
        self._newest = newest  # committed

    def raise_if_paid(self, error: BaseException, *, after: int, token: str = "") -> None:
        """Raise a `DeliveryError` if the call with the token wrote an entry with a number above ``after``."""
        if isinstance(error, DeliveryError):
            raise error
        failure, path = describe_failure(error), self.path
        try:
            with self._transaction(write=False) as (transaction, _):
                entries = transaction.read_entries(after + 1)
                row = next((entry for entry in entries if token in {"", entry.token}), None)
        except BaseException as read_error:
            where = shlex.quote(printable(path))
            spent = f"{failure}; the ledger cannot be read now, so count the budget as spent"
            advice = f"if `python -m darrm.account --ledger {where}` lists the labels as undelivered"
            raise DeliveryError(path, f"{spent}: {advice}, `{self.recovery('ENTRY')}` writes them") from read_error
        if row is None:
            return
        number, output = row.number, row.output
        if row.waits and path != MEMORY:
            where = "the labels are kept" if row.labels_digest else "the labels to draw are paid for"
            message = f"{failure}; the budget is spent and {where}: `{self.recovery(number, output)}` writes them"
            raise DeliveryError(path, message, entry=number) from error
        location = f" and the labels are in {output!r}" if output and not output.startswith(STREAM) else ""
        raise DeliveryError(path, f"{failure}; the budget is spent{location} (entry {number} of the ledger)") from error


def describe_failure(error: BaseException) -> str:
    """Return the reason of an error after a debit.

    A `LedgerError` may say that nothing was debited, or advise a new ledger: these words are dropped.
    """
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, LedgerError) and error.__cause__ is not None:
        return f"ledger {error.path!r}: {error.__cause__}"
    return str(error).removesuffix(f": {HOW_TO_CREATE}") or type(error).__name__


def _check_text(name: str, text: str) -> None:
    if not isinstance(text, str) or not all(
        letter.isprintable() or unicodedata.category(letter) == "Zs" for letter in text
    ):
        checks.fail(name, text, "printable Unicode text on one line", "leave out control characters")


def check_id(name: str, question: str) -> None:
    if not isinstance(question, str) or not 0 < len(question) <= LONGEST_ID or not question.isprintable():
        excerpt = checks.Text("an empty one") if question == "" else str(question)[:LONGEST_ID]
        checks.fail(name, excerpt, f"printable text of at most {LONGEST_ID} characters", "the ledger's log shows it")


def _format_ids(questions: tuple[str, ...], count: int) -> str:
    if len(questions) not in {0, count}:
        checks.fail("the ids of questions", len(questions), f"{count}, one for each query of the cost, or none")
    for question in questions:
        check_id("the id of a question", question)
    return json.dumps(questions, ensure_ascii=False) if questions else ""


def _name_output(output: Path | None, cursor: StreamCursor | None) -> str:
    if cursor is not None:
        return cursor.stream
    return "" if output is None else printable(str(output.absolute()))


def printable(name: str) -> str:
    """Escape a file's name if a log cannot show it."""
    return name if name.isprintable() else ascii(name)[1:-1]


def _encode_npy(labels: Labels, cost: PrivacyCost) -> bytes:
    max_labels = cost.count * cost.labels
    if labels.shape != (max_labels,) and not (cost.labels > 1 and labels.ndim == 1 and labels.size <= max_labels):
        checks.fail("labels", labels.shape, f"({max_labels},), one for each query of the cost")
    file = BytesIO()
    np.save(file, labels, allow_pickle=False)
    return file.getvalue()
