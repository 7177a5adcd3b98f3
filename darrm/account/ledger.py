"""A privacy budget that survives crashes: a ledger of charges in one SQLite file, shared by any number of processes.

A debit is one transaction: lock, add up, compare with the budget, write, make durable. Only then does the caller hold
the right to let labels out, so a process that is killed at any moment has debited at least what it released.

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
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike

from darrm import checks
from darrm.account.accountant import PrivacyAccountant, Spent
from darrm.account.ledger_store import RESTORE, SCHEMA, LedgerStore, check_header
from darrm.errors import BudgetExceededError, LedgerError
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams

KINDS = ("one", "planned", "adaptive")
DEFAULT_TIMEOUT = 60.0
# a ledger knows no voters, so it has no cap to fall back on
SHARED_QUERY = (
    "answers of trained models share the randomness of their training, so several do not add up and a ledger admits "
    "one query: plan further queries with --voters plain"
)


@dataclass(frozen=True)
class Entry:
    """One line of the log: when, what, how many queries, and the caller's note."""

    time: str
    what: str
    count: int
    note: str


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
    >>> print(ledger.spent)
    10 queries: (2.9974, 1e-05) by optimal: the best that the (epsilon, delta) of each query allow
    >>> try:
    ...     ledger.debit(charge.repeated(90))
    ... except BudgetExceededError as error:
    ...     print(error.requested, "|", error.queries_that_fit)
    90 queries of majority of 11 | 0
    """

    def __init__(self, path: str | PathLike[str], *, timeout: float = DEFAULT_TIMEOUT) -> None:
        self._store = LedgerStore(str(path), timeout=timeout)
        self._load_budget()

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
        checks.positive(budget_epsilon=budget.epsilon, advice="a budget of 0 admits nothing")
        checks.one_of(KINDS, kinds=kinds)
        ledger = cls.__new__(cls)
        ledger._store = LedgerStore(str(path), timeout=timeout)  # noqa: SLF001 (its own constructor reads a file)
        ledger._store.create()  # noqa: SLF001
        row = (budget.epsilon_text, budget.delta_text, kinds, now())
        try:
            with ledger._store.transaction(write=True) as connection:  # noqa: SLF001
                for statement in SCHEMA:
                    connection.execute(statement)
                connection.execute("INSERT INTO budget VALUES (1, ?, ?, ?, ?, ?)", (*row, seal(*row)))
        except LedgerError:
            ledger._store.discard()  # noqa: SLF001
            raise
        ledger._load_budget()  # noqa: SLF001
        return ledger

    @property
    def budget(self) -> PrivacyParams:
        """What all debited queries together satisfy."""
        return self._budget

    @property
    def kinds(self) -> str:
        """What may be debited: ``one``, ``planned`` or ``adaptive``, see the module."""
        return self._kinds

    def debit(self, charge: Charge, *, note: str = "") -> None:
        """Debit a charge, durably, or raise and change nothing.

        Parameters
        ----------
        charge
            What is about to be released.
        note
            The caller's words for the log.

        Raises
        ------
        BudgetExceededError
            If the total would pass the budget, or has no bound because several answers of private models do not add
            up: carries what was asked, what is left, how many queries still fit.
        ValueError
            If the ledger is for queries of one kind and this is another.
        LedgerError
            If the file cannot be read or written.
        """
        with self._store.transaction(write=True) as connection:
            accountant = self._accountant(connection)
            if self._kinds == "one" and any(other.kind != charge.kind for other in accountant.charges):
                raise ValueError(
                    f"this ledger accounts for queries of one kind, {accountant.charges[0].what!r}, and "
                    f"{charge.what!r} costs something else: make a ledger with kinds='planned' or kinds='adaptive'"
                )
            trial = PrivacyAccountant(charges=(*accountant.charges, charge))
            admitted = trial.admits(self._budget, adaptive=self._adaptive)
            if admitted:
                self._write(connection, charge, note)
        # the refusal takes longer than the decision: the lock is free again
        if not admitted:
            raise self._refusal(accountant, charge)

    @property
    def spent(self) -> Spent:
        """What was spent at the budget's δ, by which bound, and why; read anew from the file."""
        accountant, delta = self.accountant(), self._budget.delta
        return accountant.spent_adaptively(delta) if self._adaptive else accountant.spent(delta)

    def accountant(self) -> PrivacyAccountant:
        """Return an accountant that holds everything debited so far."""
        with self._store.transaction(write=False) as connection:
            return self._accountant(connection)

    def queries_that_fit(self, charge: Charge, *, most: int = 1_000_000) -> int:
        """Count how many more queries of this kind fit, up to ``most``."""
        return self.accountant().queries_that_fit(charge, self._budget, most=most, adaptive=self._adaptive)

    def entries(self) -> tuple[Entry, ...]:
        """List the log, oldest first."""
        with self._store.transaction(write=False) as connection:
            check_header(connection, self._store.path)
            rows = connection.execute(
                "SELECT time, what, count, note FROM charges JOIN kinds ON kinds.id = charges.kind ORDER BY charges.id"
            )
            return tuple(Entry(*row) for row in rows)

    @property
    def _adaptive(self) -> bool:
        return self._kinds == "adaptive"

    def _refusal(self, accountant: PrivacyAccountant, charge: Charge) -> BudgetExceededError:
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
        return BudgetExceededError(
            f"the budget {self._budget} does not admit {asked}: {fit} still {'fits' if fit == 1 else 'fit'}, "
            f"{remaining} is left{reason}; nothing was debited",
            requested=asked,
            remaining=remaining,
            queries_that_fit=fit,
        )

    def _write(self, connection: sqlite3.Connection, charge: Charge, note: str) -> None:
        cost = charge.to_text()
        connection.execute(
            "INSERT INTO kinds (cost, what, total, seal) VALUES (?, ?, 0, ?) ON CONFLICT (cost) DO NOTHING",
            (cost, charge.what, seal(cost, charge.what)),
        )
        connection.execute("UPDATE kinds SET total = total + ? WHERE cost = ?", (charge.count, cost))
        connection.execute(
            "INSERT INTO charges (time, kind, count, note) SELECT ?, id, ?, ? FROM kinds WHERE cost = ?",
            (now(), charge.count, note, cost),
        )

    def _accountant(self, connection: sqlite3.Connection) -> PrivacyAccountant:
        check_header(connection, self._store.path)
        accountant = PrivacyAccountant()
        for cost, what, total, stored in connection.execute("SELECT cost, what, total, seal FROM kinds ORDER BY id"):
            if stored != seal(cost, what):
                raise self._corrupted("the cost of a query was changed")
            try:
                accountant.add(Charge.from_text(cost, what=what).repeated(total))
            except ValueError as error:
                raise self._corrupted(str(error)) from error
        return accountant

    def _load_budget(self) -> None:
        with self._store.transaction(write=False) as connection:
            check_header(connection, self._store.path)
            (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise self._corrupted(state)
            row = connection.execute("SELECT epsilon, delta, kinds, created, seal FROM budget").fetchone()
            if row is None or row[4] != seal(*row[:4]):
                raise self._corrupted("the budget was changed")
            differs = """SELECT 1 FROM kinds WHERE total < 1 OR total <>
                         (SELECT coalesce(sum(count), 0) FROM charges WHERE charges.kind = kinds.id)"""
            strays = "SELECT 1 FROM charges WHERE kind NOT IN (SELECT id FROM kinds)"
            if connection.execute(differs).fetchone() or connection.execute(strays).fetchone():
                raise self._corrupted("the log and its totals differ")
        self._budget = PrivacyParams(row[0], row[1])
        self._kinds: str = row[2]

    def _corrupted(self, what: str) -> LedgerError:
        return LedgerError(self._store.path, f"it is corrupted ({what}): {RESTORE}")


def seal(*fields: object) -> str:
    """Return a digest of the fields of a row: finds damage (a text that became a blob, too), not forgery."""
    return hashlib.sha256("\x1f".join(map(str, fields)).encode()).hexdigest()


def now() -> str:
    """Return the time in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
