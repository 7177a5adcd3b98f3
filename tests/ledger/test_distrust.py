"""A ledger that believes nothing: files put in its place, edited rows, odd names, huge counts, other formats."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.account.admission import MOST_QUERIES, Admission
from darrm.errors import BudgetExceededError, DeliveryError, LedgerError
from darrm.ledger import ledger as ledger_module
from darrm.ledger.chain import EntryRow, checksum
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.composition import compose_optimal
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams
from darrm.votes.labels_file import labels_digest
from tests.ledger.common import BUDGET, PARAMS, edit
from tests.relinked import reseal

QUERY = PrivacyCost("majority of 11", guarantee=PARAMS, table="ab" * 32)
_MISSING, _DIFFER = "entries of the log are missing", "the log and its totals differ"
FREE = PrivacyCost("nothing", guarantee=PrivacyParams(0))


def replaced(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    PrivacyLedger.create(path, PrivacyParams(1, "1e-3"))


def copied(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)


def overwritten(path: Path) -> None:
    other = PrivacyLedger.create(path.with_suffix(".other"), BUDGET)
    other.debit(QUERY.repeat(4))
    path.write_bytes(path.with_suffix(".other").read_bytes())


def resealed(path: Path) -> None:
    connection = sqlite3.connect(path)
    row = connection.execute("SELECT format, identity, epsilon, delta, composition, population, created FROM budget")
    fields = list(row.fetchone())
    fields[2] = "300"
    connection.execute("UPDATE budget SET epsilon = '300', checksum = ?", (checksum(*fields),))
    connection.commit()
    connection.close()


LIES: dict[str, tuple[Callable[[Path], object] | tuple[str, ...], str]] = {
    "another ledger at the path": (replaced, "another file was put in its place"),
    "a copy at the path": (copied, "another file was put in its place"),
    "another ledger in the file": (overwritten, "its identity changed"),
    "moved away": (lambda path: path.rename(path.with_suffix(".old")), "no such file"),
    "a second name": (lambda path: os.link(path, path.with_suffix(".link")), "it has 2 names"),
    "a larger budget with its checksum": (resealed, "its budget or its identity changed"),
    "an emptied log": (("DELETE FROM entries",), _MISSING),
    "a shorter log": (("DELETE FROM entries WHERE id = 1",), _MISSING),
    "a smaller total": (("UPDATE costs SET total = 1",), _DIFFER),
    "no costs": (("DELETE FROM costs",), _DIFFER),
    "log and totals": (("DELETE FROM entries WHERE id = 1", "UPDATE costs SET total = 2"), _MISSING),
    "the end of the log and totals": (("DELETE FROM entries WHERE id = 2", "UPDATE costs SET total = 2"), _MISSING),
    "the end of the log, totals and numbers": (
        ("DELETE FROM entries WHERE id = 2", "UPDATE costs SET total = 2", "UPDATE state SET last_entry = 1"),
        _DIFFER,
    ),
    "a larger budget": (("UPDATE budget SET epsilon = '300'",), "the budget was changed"),
    "a trigger": (
        ("CREATE TRIGGER undo AFTER INSERT ON entries BEGIN DELETE FROM entries WHERE id = NEW.id; END",),
        "a trigger or a view was added",
    ),
    "no budget": (("DELETE FROM budget",), "the budget was changed"),
    "no state": (("DELETE FROM state",), "its state is gone"),
    "a last entry that is no number": (
        ("UPDATE state SET last_entry = 'x'",),
        "the number of its last entry was changed",
    ),
    "no table budget": (("DROP TABLE budget",), "it is corrupted"),
    "no table costs": (("DROP TABLE costs",), "it is corrupted"),
    "no table entries": (("DROP TABLE entries",), "it is corrupted"),
    "a lost column": (("ALTER TABLE entries RENAME COLUMN count TO n",), "it is corrupted"),
    "another program's": (("PRAGMA application_id = 1",), "it is no ledger"),
    "another format": (("PRAGMA user_version = 7",), "it is a ledger of format 7, and this darrm reads format 1"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_open_ledger_notices(lie: str, path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    ledger.debit(QUERY.repeat(2))
    ledger.debit(QUERY.repeat(2))
    tell, word = LIES[lie]
    if isinstance(tell, tuple):
        edit(path, *tell)
    else:
        tell(path)
    before = path.read_bytes() if path.exists() else None
    for call in (lambda: ledger.debit(QUERY), ledger.accountant, ledger.entries):
        with pytest.raises(LedgerError, match=word) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert (path.read_bytes() if path.exists() else None) == before


def test_an_older_copy_in_its_place_is_noticed(path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    ledger.debit(QUERY)
    older = path.read_bytes()
    ledger.debit(QUERY)
    ledger.accountant()
    path.write_bytes(older)
    with pytest.raises(LedgerError, match="an older copy took its place"):
        ledger.debit(QUERY)
    PrivacyLedger(path).debit(QUERY.repeat(2))  # as many queries as before, and more
    with pytest.raises(LedgerError, match="entry 2, which it had, is gone or was changed"):
        ledger.debit(QUERY)


def test_counts_are_bounded(path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET, composition="planned")
    with pytest.raises(ValueError, match="the number of queries in a cost must be at most"):
        ledger.debit(FREE.repeat(2**62))
    ledger.debit(FREE.repeat(MOST_QUERIES - 1))
    ledger.debit(QUERY)
    with pytest.raises(ValueError, match="the number of queries in a ledger must be at most"):
        ledger.debit(QUERY)
    assert PrivacyLedger(path).accountant().queries == MOST_QUERIES


@pytest.mark.parametrize("note", ["a\nb", "\x1b[2J", "caf\udce9", "a\x00b", "a\u2028b", "\u202eabc"])
def test_notes_are_text_that_can_be_shown(note: str, path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    with pytest.raises(ValueError, match="note must be printable Unicode text on one line"):
        ledger.debit(QUERY, note=note)
    with pytest.raises(ValueError, match="the cost's words must be printable"):
        ledger.debit(PrivacyCost(note, guarantee=PARAMS))
    ledger.debit(QUERY, note="déjà\u00a0vu ✓")
    assert [entry.note for entry in ledger.entries()] == ["déjà\u00a0vu ✓"]


def test_counts_of_two_accounts_are_never_mixed(path: Path) -> None:
    """Another thread may put other counts in the place of those that a debit is compared with, between two kinds."""
    one, other = (PrivacyCost(name, guarantee=PrivacyParams(name)) for name in ("1", "2"))
    ledger = PrivacyLedger.create(path, PrivacyParams(4), composition="planned")
    ledger.debit(one.repeat(2))

    known, later = (PrivacyAccountant(costs=costs) for costs in ([one.repeat(2), other], [other.repeat(2)]))

    class Replaced(dict[PrivacyCost, int]):
        def get(self, kind: PrivacyCost, default: int = 0) -> int:  # type: ignore[override]
            ledger._admission._admitted_account = later  # within the budget, as the known one is
            return super().get(kind, default)

    known._counts = Replaced(known._counts)
    ledger._admission._admitted_account = known
    with pytest.raises(BudgetExceededError):
        ledger.debit(other.repeat(2))
    assert ledger.spent.epsilon == 2.0


def test_what_fits_can_be_debited(path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    ledger.debit(FREE.repeat(5))
    assert ledger.queries_that_fit(QUERY) == 0  # a second kind
    fit = ledger.queries_that_fit(FREE, most=2**60)
    assert fit == MOST_QUERIES - 5
    ledger.debit(FREE.repeat(fit))
    assert ledger.queries_that_fit(FREE) == 0


def test_bounds_are_computed_while_the_lock_is_free(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    admits, calls = PrivacyAccountant.admits, []

    def watched(self: PrivacyAccountant, budget: PrivacyParams, *, adaptive: bool = False) -> bool:
        other = sqlite3.connect(path, isolation_level=None, timeout=0)
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        other.close()
        calls.append(self.queries)
        return admits(self, budget, adaptive=adaptive)

    monkeypatch.setattr(PrivacyAccountant, "admits", watched)
    fit = ledger.queries_that_fit(QUERY)
    calls.clear()
    for _ in range(fit):
        ledger.debit(QUERY)
    with pytest.raises(BudgetExceededError):
        ledger.debit(QUERY)
    monkeypatch.undo()
    assert compose_optimal(PARAMS, fit, 1e-3).epsilon <= 3.0 < compose_optimal(PARAMS, fit + 1, 1e-3).epsilon
    assert len(calls) < 4 * np.log2(fit) + 4  # and not one for each debit


def test_others_who_debit_meanwhile_are_counted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = PrivacyLedger.create(path, BUDGET).queries_that_fit(QUERY)
    ledger, other = PrivacyLedger(path), PrivacyLedger(path)
    other.debit(QUERY.repeat(fit - 3))
    other.debit(QUERY)
    admits = PrivacyAccountant.admits

    def overtaken(self: PrivacyAccountant, budget: PrivacyParams, *, adaptive: bool = False) -> bool:
        monkeypatch.undo()
        other.debit(QUERY.repeat(2))
        return admits(self, budget, adaptive=adaptive)

    monkeypatch.setattr(PrivacyAccountant, "admits", overtaken)
    with pytest.raises(BudgetExceededError):
        ledger.debit(QUERY)
    assert ledger.accountant().queries == fit


def test_one_who_is_always_overtaken_decides_under_the_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, other = PrivacyLedger.create(path, BUDGET), PrivacyLedger(path)
    bound = Admission.make_room

    def overtaken(self: Admission, account: PrivacyAccountant, cost: PrivacyCost) -> None:
        if self is ledger._admission:
            other.debit(QUERY.repeat(3))
            self._reserve = 0
        bound(self, account, cost)

    monkeypatch.setattr(Admission, "make_room", overtaken)
    ledger.debit(QUERY)
    assert ledger.accountant().queries == 3 * ledger_module._ATTEMPTS + 1


class Interrupted:
    """A connection that presses Ctrl-C before or after its first commit of a write."""

    def __init__(self, connection: sqlite3.Connection, *, after: bool) -> None:
        self.connection, self.after = connection, after

    def __getattr__(self, name: str) -> object:
        return getattr(self.connection, name)

    def execute(self, statement: str, *arguments: object) -> object:
        if statement != "COMMIT":
            return self.connection.execute(statement, *arguments)  # type: ignore[arg-type]
        if self.after:
            self.connection.execute(statement)
        raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True])
def test_ctrl_c_around_the_commit_says_what_was_paid(after: bool, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    connect, labels, opened = sqlite3.connect, np.array([1, 0]), []

    def interrupted(*arguments: object, **options: object) -> object:
        opened.append(1)  # the first transaction bounds, the second one writes
        connection = connect(*arguments, **options)  # type: ignore[call-overload]
        return Interrupted(connection, after=after) if len(opened) == 2 else connection

    monkeypatch.setattr(sqlite3, "connect", interrupted)
    with pytest.raises(DeliveryError if after else KeyboardInterrupt) as caught:
        ledger.debit(QUERY.repeat(2), labels=labels)
    monkeypatch.undo()
    if after:
        assert "interrupted; the budget is spent and the labels are kept" in str(caught.value)
        (entry,) = PrivacyLedger(path).undelivered()
        assert (entry.labels, entry.table) == (labels_digest(labels), QUERY.table)
        assert ledger.kept_labels(entry.number).tolist() == [1, 0]
    else:
        assert PrivacyLedger(path).entries() == ()


def test_labels_that_wait_are_checked(path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    with pytest.raises(ValueError, match=r"labels must be \(3,\), one for each query"):
        ledger.debit(QUERY.repeat(3), labels=np.array([1, 0]))
    ledger.debit(QUERY.repeat(2), labels=np.array(["no", "yes"]))
    assert ledger.kept_labels(1).tolist() == ["no", "yes"]
    with pytest.raises(ValueError, match="the entry must be one of 1, got 2"):
        ledger.kept_labels(2)
    edit(path, "UPDATE entries SET labels = zeroblob(10)")
    with pytest.raises(LedgerError, match="the labels that wait in it were changed"):
        ledger.kept_labels(1)
    ledger.forget_labels(1)
    with pytest.raises(ValueError, match="the entry must be undelivered, and none is, got 1"):
        ledger.kept_labels(1)


# what a debit costs whatever the length of the log, and what it believes of the log

SMALL = PrivacyCost("majority of 11", guarantee=PrivacyParams("0.001", 0))


def long_ledger(path: Path, entries: int) -> PrivacyLedger:
    ledger = PrivacyLedger.create(path, PrivacyParams(9, "1e-3"))
    with ledger._transaction(write=True) as (written, _):
        for _ in range(entries):
            written.write(EntryRow(queries=1), SMALL, None)
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
        ledger.debit(SMALL)
        steps.append(steps_of(partial(ledger.debit, SMALL), monkeypatch))
    assert steps[1] <= 1.01 * steps[0]


@pytest.mark.parametrize(
    ("statement", "notices"),
    [
        ("UPDATE entries SET count = 2 WHERE id = 39", True),
        ("UPDATE entries SET entry_hash = 'ab' WHERE id = 39", True),
        ("UPDATE costs SET total = 39", True),
        ("UPDATE costs SET table_digest = 'ab'", True),
        ("UPDATE state SET checksum = 'ab'", True),
        ("DELETE FROM state", True),
        ("DELETE FROM entries WHERE id = 30", True),
        ("UPDATE entries SET count = 2 WHERE id = 3", False),  # the totals are what they were
        ("DELETE FROM entries WHERE id = 3", False),
    ],
)
def test_a_debit_believes_the_totals_and_the_end_of_the_log(
    statement: str, notices: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MOST_CHECKED", 20)
    path = tmp_path / "l"
    ledger = long_ledger(path, 40)
    edit(path, statement)
    for opened in (ledger, None):
        if notices:
            with pytest.raises(LedgerError, match="it is corrupted"):
                (opened or PrivacyLedger(path)).debit(SMALL)
        else:
            (opened or PrivacyLedger(path)).debit(SMALL)
    with pytest.raises(LedgerError, match="it is corrupted"):
        (ledger if not notices else PrivacyLedger(path)).check()
    monkeypatch.setattr(ledger_module, "MOST_CHECKED", 100)  # a ledger that is read as a whole when it is opened
    with pytest.raises(LedgerError, match="it is corrupted"):
        PrivacyLedger(path)


def test_sums_are_compared_where_the_whole_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "l"
    ledger = long_ledger(path, 40)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE costs SET total = 10")
        reseal(connection)  # by whoever can write to the file
    for read in (ledger.entries, ledger.check):
        with pytest.raises(LedgerError, match="the log and its totals differ"):
            read()
