"""A ledger that believes nothing: files put in its place, and edited rows, whatever the length of the log."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from darrm.account.__main__ import main as account
from darrm.commands.command_line import run
from darrm.errors import LedgerError
from darrm.ledger import ledger as ledger_module
from darrm.ledger import transaction
from darrm.ledger.chain import EntryRow
from darrm.ledger.ledger import PrivacyLedger
from darrm.privacy import PrivacyParams
from tests.ledger.support import BUDGET, QUERY, SMALL, change_connections, edit
from tests.relinked import relink, reseal


def put_other_ledger(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    PrivacyLedger.create(path, PrivacyParams(1, "1e-3"))


def put_copy(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)


def overwrite_content(path: Path) -> None:
    other = PrivacyLedger.create(path.with_suffix(".other"), BUDGET)
    other.debit(QUERY.repeat(4))
    path.write_bytes(path.with_suffix(".other").read_bytes())


def run_sql(*statements: str) -> Callable[[Path], None]:
    return lambda path: edit(path, *statements)


MISSING, DIFFER, TABLE_DAMAGED = "entries of the log are missing", "the log and its totals differ", "it is corrupted"
UNDO = "CREATE TRIGGER undo AFTER INSERT ON entries BEGIN DELETE FROM entries WHERE id = NEW.id; END"
FORGERIES: dict[str, tuple[Callable[[Path], object], str]] = {
    "another ledger at the path": (put_other_ledger, "another file was put in its place"),
    "a copy at the path": (put_copy, "another file was put in its place"),
    "another ledger in the file": (overwrite_content, "its identity changed"),
    "moved away": (lambda path: path.rename(path.with_suffix(".old")), "no such file"),
    "a second name": (lambda path: os.link(path, path.with_suffix(".link")), "it has 2 names"),
    "a larger budget": (run_sql("UPDATE budget SET epsilon = '300'"), "the budget was changed"),
    "a larger budget with its hashes": (
        lambda path: relink(path, "UPDATE budget SET epsilon = '300'"),
        "its budget or its identity changed",
    ),
    "no budget": (run_sql("DELETE FROM budget"), "the budget was changed"),
    "an emptied log": (run_sql("DELETE FROM entries"), MISSING),
    "a note of bytes": (run_sql("UPDATE entries SET note = x'78' WHERE id = 2"), "entry 2 of the log was changed"),
    "a changed first entry": (run_sql("UPDATE entries SET note = 'x' WHERE id = 1"), "entry 1 of the log was changed"),
    "no first entry": (run_sql("DELETE FROM entries WHERE id = 1", "UPDATE costs SET total = 2"), MISSING),
    "no last entry": (run_sql("DELETE FROM entries WHERE id = 2", "UPDATE costs SET total = 2"), MISSING),
    "no last entry and number": (
        run_sql("DELETE FROM entries WHERE id = 2", "UPDATE costs SET total = 2", "UPDATE state SET last_entry = 1"),
        DIFFER,
    ),
    "a smaller total": (run_sql("UPDATE costs SET total = 1"), DIFFER),
    "no costs": (run_sql("DELETE FROM costs"), DIFFER),
    "a trigger": (run_sql(UNDO), "a trigger or a view was added"),
    "no state": (run_sql("DELETE FROM state"), "its state is gone"),
    "a last entry that is no number": (run_sql("UPDATE state SET last_entry = 'x'"), "the number of its last entry"),
    "no table of budgets": (run_sql("DROP TABLE budget"), TABLE_DAMAGED),
    "no table of costs": (run_sql("DROP TABLE costs"), TABLE_DAMAGED),
    "no table of entries": (run_sql("DROP TABLE entries"), TABLE_DAMAGED),
    "a lost column": (run_sql("ALTER TABLE entries RENAME COLUMN count TO n"), TABLE_DAMAGED),
    "another program's file": (run_sql("PRAGMA application_id = 1"), "it is no ledger"),
    "another format": (run_sql("PRAGMA user_version = 7"), "a ledger of format 7, and this darrm reads format 1"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_open_ledger_refuses_a_forged_file(name: str, path: Path) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    ledger.debit(QUERY.repeat(2))
    ledger.debit(QUERY.repeat(2), note="b'x'")  # the text of these bytes
    forge, message = FORGERIES[name]
    forge(path)
    before = path.read_bytes() if path.exists() else None
    for call in (lambda: ledger.debit(QUERY), ledger.accountant, ledger.entries):
        with pytest.raises(LedgerError, match=message) as error:
            call()
        assert "\n" not in str(error.value)
    assert (path.read_bytes() if path.exists() else None) == before


def test_open_ledger_refuses_an_older_copy(path: Path) -> None:
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


def test_terminal_obeys_no_text_of_a_ledger(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    PrivacyLedger.create(path, BUDGET).debit(QUERY)
    relink(path, "UPDATE entries SET note = '\x1b[2J\x9b1m\u202egnihton'", "UPDATE costs SET what = '\x1b[2J'")
    for words in (["--all"], ["--format", "json"]):
        assert run(lambda words=words: account([str(path), *words])) == 0  # type: ignore[misc]
        output = "".join(capsys.readouterr())
        assert "gnihton" in output
        assert all(character.isprintable() or character == "\n" for character in output)


def test_clock_that_was_set_back_does_not_reorder_entries(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = PrivacyLedger.create(path, BUDGET)
    latest = "2101-02-03T04:05:06.789+00:00"
    times = iter(["2001-01-01T00:00:00.000+00:00", latest, "2101-02-03T04:00:00.000+00:00"])
    monkeypatch.setattr(transaction, "now", lambda: next(times))
    for _ in range(3):
        ledger.debit(QUERY)
    assert [entry.time for entry in ledger.entries()] == [ledger.created, latest, latest]


# the cost of a debit does not depend on the length of the log


def make_long_ledger(path: Path, entries: int) -> PrivacyLedger:
    ledger = PrivacyLedger.create(path, PrivacyParams(9, "1e-3"))
    with ledger._transaction(write=True) as (written, _):
        for number in range(entries):
            written.write(EntryRow(queries=1, note=str(number)), SMALL, None)
    return ledger


def count_steps(work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """Count the instructions of SQLite's virtual machine."""
    steps: list[None] = []
    with monkeypatch.context() as patch:
        change_connections(patch, lambda connection: connection.set_progress_handler(lambda: steps.append(None), 1))
        work()
    return len(steps)


def test_debit_reads_as_much_of_a_long_log_as_of_a_short_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = (make_long_ledger(tmp_path / f"{entries}", entries) for entries in (30, 3000))
    for ledger in (short, long):
        ledger.debit(SMALL)
    few, many = (count_steps(partial(ledger.debit, SMALL), monkeypatch) for ledger in (short, long))
    assert many <= 1.01 * few


def test_long_log_is_read_in_pages(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_long_ledger(path, 5)
    monkeypatch.setattr(transaction, "_PAGE", 2)
    monkeypatch.setattr(transaction, "_RECENT", 1)
    entries = PrivacyLedger(path).entries()
    assert [(entry.number, entry.note) for entry in entries] == [(number + 1, str(number)) for number in range(5)]


@pytest.mark.parametrize(
    ("statement", "is_noticed"),
    [
        ("UPDATE entries SET count = 2 WHERE id = 39", True),
        ("UPDATE entries SET entry_hash = 'ab' WHERE id = 39", True),
        ("UPDATE costs SET total = 39", True),
        ("UPDATE costs SET table_digest = 'ab'", True),
        ("UPDATE state SET checksum = 'ab'", True),
        ("DELETE FROM entries WHERE id = 30", True),
        ("UPDATE entries SET count = 2 WHERE id = 3", False),  # the totals are what they were
        ("DELETE FROM entries WHERE id = 3", False),
    ],
)
def test_debit_checks_the_totals_and_the_end_of_the_log(
    statement: str, is_noticed: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MOST_CHECKED", 20)
    ledger = make_long_ledger(path, 40)
    edit(path, statement)
    for opened in (ledger, None):
        with pytest.raises(LedgerError, match="it is corrupted") if is_noticed else nullcontext():
            (opened or PrivacyLedger(path)).debit(SMALL)
    with pytest.raises(LedgerError, match="it is corrupted"):
        ledger.check()
    monkeypatch.setattr(ledger_module, "MOST_CHECKED", 100)  # a ledger that is read as a whole when it is opened
    with pytest.raises(LedgerError, match="it is corrupted"):
        PrivacyLedger(path)


def test_whole_log_is_added_up_and_compared_with_the_totals(path: Path) -> None:
    ledger = make_long_ledger(path, 40)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE costs SET total = 10")
    reseal(connection)  # as anybody with write access can
    connection.close()
    for read in (ledger.entries, ledger.check):
        with pytest.raises(LedgerError, match=DIFFER):
            read()
