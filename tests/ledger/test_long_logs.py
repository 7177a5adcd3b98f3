"""What a debit costs whatever the length of the log, and what it believes of the log."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from darrm import PrivacyLedger
from darrm.errors import LedgerError
from darrm.ledger import ledger as ledger_module
from darrm.ledger.chain import EntryRow
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams
from tests.ledger.common import edit
from tests.relinked import reseal

QUERY = PrivacyCost("majority of 11", guarantee=PrivacyParams("0.001", 0))


def long_ledger(path: Path, entries: int) -> PrivacyLedger:
    ledger = PrivacyLedger.create(path, PrivacyParams(9, "1e-3"))
    with ledger._transaction(write=True) as (written, _):
        for _ in range(entries):
            written.write(EntryRow(queries=1), QUERY, None)
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
        connection.execute("UPDATE costs SET total = 10")
        reseal(connection)  # by whoever can write to the file
    for read in (ledger.entries, ledger.check):
        with pytest.raises(LedgerError, match="the log and its totals differ"):
            read()
