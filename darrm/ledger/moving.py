"""A ledger that moves to another store.

**Never two budgets.** All rows are copied and checked within a transaction of the new store that is not committed yet;
then the old ledger is closed, durably; then the new one is committed. If the move is cut off anywhere, at most one of
them pays: a closed ledger refuses debits and says where its budget went, and the same command continues from there. If
only its report was cut off, it finds the new ledger and reports it.
"""

from contextlib import suppress

from darrm.errors import LedgerError
from darrm.ledger.chain import Budget
from darrm.ledger.ledger import DEFAULT_TIMEOUT, PrivacyLedger
from darrm.ledger.postgres import Store, open_store
from darrm.ledger.transaction import Transaction
from darrm.util import checks


def move(name: str, there: str, *, timeout: float = DEFAULT_TIMEOUT) -> PrivacyLedger:
    """Move a ledger, a file or URL, to a new place without a ledger, close the old one, and return the new one.

    It has the same identity, entries, hashes, and labels that wait. `LedgerError` if either store refuses, the old
    ledger is damaged or was moved elsewhere, or the new place is taken; `ValueError` if a name is none, or both are the
    same.
    """
    source, target = open_store(name, timeout=timeout), open_store(there, timeout=timeout)
    if source.path == target.path:
        checks.fail("the new place", there, "another than the old one")
    with source.transaction(write=False) as database:
        old = Transaction(database)
        budget, moved = old.budget, old.state.moved_to
    if moved not in {"", target.path}:
        raise LedgerError(source.path, f"it is closed, its budget moved to {moved} already")
    if moved and _holds(target, budget):  # the move is complete, and only its report was cut off
        return PrivacyLedger(target)
    continues = target.is_unfinished()
    if not continues:
        target.create()
    with target.transaction(write=True) as new:
        try:
            with source.transaction(write=not moved) as database:
                _copy_and_close(Transaction(database), Transaction(new))
        except BaseException:
            if not continues:  # it may be another process's by now
                target.discard()
            raise
    return PrivacyLedger(target)


def _holds(store: Store, budget: Budget) -> bool:
    with suppress(LedgerError), store.transaction(write=False) as database:
        return Transaction(database).budget == budget
    return False  # there is no ledger yet, or an empty file


def _copy_and_close(old: Transaction, new: Transaction) -> None:
    old.account()
    new.copy(old)
    new.set_moved("")
    if not old.state.moved_to:
        old.set_moved(new.path)
