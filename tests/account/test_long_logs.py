"""What a debit costs whatever the log, what it believes of it, and threads that share a transaction."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from darrm import PrivacyLedger
from darrm.account import ledger as ledger_module
from darrm.account.group_commit import GroupCommit, Job
from darrm.account.ledger_store import LedgerStore
from darrm.errors import BudgetExceededError, LedgerError, PaidError
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from tests.relinked import reseal

QUERY = Charge("majority of 11", guarantee=PrivacyParams("0.001", 0))


def long_ledger(path: Path, entries: int) -> PrivacyLedger:
    ledger = PrivacyLedger.create(path, PrivacyParams(9, "1e-3"))
    with ledger._transaction(write=True) as (rows, _):
        for _ in range(entries):
            rows.write(QUERY, ("", "", "", "", ""), None)
        rows.seal_totals()
    return ledger


def steps_of(work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """Count the instructions of SQLite's virtual machine."""
    steps = [0]
    connect = sqlite3.connect

    def counted(*arguments: Any, **named: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **named)

        def count() -> int:
            steps[0] += 1
            return 0

        connection.set_progress_handler(count, 1)
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", counted)
        work()
    return steps[0]


def test_a_debit_reads_as_much_of_a_long_log_as_of_a_short_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    for entries in (30, 3000):
        ledger = long_ledger(tmp_path / f"{entries}", entries)
        ledger.debit(QUERY)
        steps.append(steps_of(partial(ledger.debit, QUERY), monkeypatch))
    assert steps[1] <= 1.01 * steps[0]


@pytest.mark.parametrize(
    ("statement", "notices"),
    [
        ("UPDATE charges SET count = 2 WHERE id = 39", True),
        ("UPDATE charges SET link = 'ab' WHERE id = 39", True),
        ("UPDATE kinds SET total = 39", True),
        ("UPDATE kinds SET answered = 'ab'", True),
        ("UPDATE totals SET seal = 'ab'", True),
        ("DELETE FROM totals", True),
        ("DELETE FROM charges WHERE id = 30", True),
        ("UPDATE charges SET count = 2 WHERE id = 3", False),  # the totals are what they were
        ("DELETE FROM charges WHERE id = 3", False),
    ],
)
def test_a_debit_believes_the_totals_and_the_end_of_the_log(
    statement: str, notices: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MOST_CHECKED", 20)
    path = tmp_path / "l"
    ledger = long_ledger(path, 40)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)
    for opened in (ledger, None):
        if notices:
            with pytest.raises(LedgerError, match="it is corrupted"):
                (opened or PrivacyLedger(path)).debit(QUERY)
        else:
            (opened or PrivacyLedger(path)).debit(QUERY)
    with pytest.raises(LedgerError, match="it is corrupted"):
        (ledger if not notices else PrivacyLedger(path)).check()
    monkeypatch.setattr(ledger_module, "MOST_CHECKED", 100)  # a ledger that is read as a whole when it is opened
    with pytest.raises(LedgerError, match="it is corrupted"):
        PrivacyLedger(path)


def test_sums_are_compared_where_the_whole_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "l"
    ledger = long_ledger(path, 40)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE kinds SET total = 10")
        reseal(connection)  # by whoever can write to the file
    for read in (ledger.entries, ledger.check):
        with pytest.raises(LedgerError, match="the log and its totals differ"):
            read()


class Slow:
    """A commit that takes so long that all threads ask before it ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commits, self.gate, self.fail = 0, threading.Event(), False
        transaction = LedgerStore.transaction

        @contextmanager
        def slow(store: LedgerStore, *, write: bool) -> Iterator[Any]:
            with transaction(store, write=write) as connection:
                yield connection
                if write:
                    self.gate.wait(60)
                    self.commits += 1
                    if self.fail:
                        raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(LedgerStore, "transaction", slow)


def until(happened: Callable[[], bool]) -> None:
    """Wait for something; where a thread had to bound its account first, the others may have gone on by then."""
    for _ in range(500):
        if happened():
            return
        time.sleep(0.004)


def together(ledger: PrivacyLedger, slow: Slow, charges: list[Charge]) -> list[object]:
    """Debit in as many threads, of which the first one writes while the others ask; return numbers or errors."""
    came: list[object] = [None] * len(charges)

    def debit(place: int) -> None:
        try:
            came[place] = ledger.debit(charges[place])
        except Exception as error:  # noqa: BLE001 (what came of it)
            came[place] = error

    threads = [threading.Thread(target=debit, args=(place,)) for place in range(len(charges))]
    threads[0].start()
    until(ledger._group._writing.locked)
    for thread in threads[1:]:
        thread.start()
    until(lambda: len(ledger._group._waiting) == len(charges) - 1)
    slow.gate.set()
    for thread in threads:
        thread.join(60)
    return came


def test_threads_share_a_commit_and_what_is_refused_is_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = PrivacyLedger.create(tmp_path / "l", PrivacyParams("0.01", 0))  # ten queries
    ledger.debit(QUERY)
    slow = Slow(monkeypatch)
    other = Charge("something else", guarantee=PrivacyParams("0.002", 0))
    charges = [QUERY, QUERY.repeated(2), other, QUERY.repeated(7), QUERY.repeated(3)]
    came = together(ledger, slow, charges)
    assert isinstance(came.pop(2), ValueError)
    charges.pop(2)
    assert {type(one) for one in came} == {int, BudgetExceededError}
    paid = 1 + sum(charge.count for charge, one in zip(charges, came, strict=True) if isinstance(one, int))
    assert ledger.accountant().queries == paid <= 10
    ledger.check()


def test_threads_that_wait_share_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = PrivacyLedger.create(tmp_path / "l", PrivacyParams(9, 0))
    ledger.debit(QUERY.repeated(40))
    ledger.debit(QUERY)  # there is room: nothing is tried twice
    slow = Slow(monkeypatch)
    assert sorted(map(str, together(ledger, slow, [QUERY] * 9))) == sorted(map(str, range(3, 12)))
    assert slow.commits == 2  # of the first, and of all who asked meanwhile


def test_a_shared_commit_that_fails_debits_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = PrivacyLedger.create(tmp_path / "l", PrivacyParams(9, 0))
    ledger.debit(QUERY.repeated(40))
    ledger.debit(QUERY)  # there is room: nothing is tried twice
    slow = Slow(monkeypatch)
    slow.fail = True
    came = together(ledger, slow, [QUERY] * 6)
    assert all(isinstance(one, LedgerError) and not isinstance(one, PaidError) for one in came)
    monkeypatch.undo()
    assert ledger.accountant().queries == 41
    assert ledger.debit(QUERY) == 3


def test_an_interrupt_leaves_nothing_in_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = PrivacyLedger.create(tmp_path / "l", PrivacyParams(9, 0))
    ledger.debit(QUERY)

    class Interrupted:
        def __enter__(self) -> None:
            raise KeyboardInterrupt

        def __exit__(self, *_: object) -> None:
            """Never entered."""

    writing = ledger._group._writing
    monkeypatch.setattr(ledger._group, "_writing", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        ledger.debit(QUERY)
    monkeypatch.setattr(ledger._group, "_writing", writing)
    assert ledger._group._waiting == []
    assert ledger.debit(QUERY) == 2


def test_who_is_told_nothing_by_an_interrupted_leader_releases_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = PrivacyLedger.create(tmp_path / "l", PrivacyParams(9, 0))
    released: list[int] = []
    # as if whoever leads took all jobs and was interrupted before it began
    monkeypatch.setattr(GroupCommit, "_run_all", lambda *_: None)
    with pytest.raises(LedgerError, match="interrupted"):
        ledger.debit(QUERY, deliver=released.append)
    monkeypatch.undo()
    assert released == []
    # as if it was interrupted after the rollback, while it told the others
    run_all = GroupCommit._run_all

    def untold(group: GroupCommit, jobs: list[Job], own: Job) -> None:
        run_all(group, jobs, own)
        own.error = None

    slow = Slow(monkeypatch)
    slow.fail = True
    slow.gate.set()
    ledger.queries_that_fit(QUERY)
    monkeypatch.setattr(GroupCommit, "_run_all", untold)
    with pytest.raises(LedgerError, match="interrupted"):
        ledger.debit(QUERY, deliver=released.append)
    monkeypatch.undo()
    assert (released, ledger.entries()) == ([], ())


def test_an_interrupt_right_after_asking_leaves_nothing_in_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = PrivacyLedger.create(tmp_path / "l", PrivacyParams(9, 0))
    ledger.debit(QUERY.repeated(40))
    ledger.debit(QUERY)  # there is room: nothing is tried twice
    asking = ledger._group._asking
    interrupts = [True]

    class Interrupted:
        def __enter__(self) -> None:
            asking.acquire()

        def __exit__(self, *_: object) -> None:
            asking.release()
            if interrupts:
                interrupts.clear()
                raise KeyboardInterrupt

    monkeypatch.setattr(ledger._group, "_asking", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        ledger.debit(QUERY, note="interrupted")
    assert ledger.debit(QUERY, note="after it") == 3
    assert [entry.note for entry in ledger.entries()] == ["", "", "after it"]
