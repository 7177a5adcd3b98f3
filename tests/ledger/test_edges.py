"""Rules of a ledger that one wrong constant or sign would break, found by `tests.mutants`."""

import stat
from pathlib import Path

import pytest

from darrm.ledger import transaction
from darrm.ledger.chain import Entry
from darrm.ledger.ledger import PrivacyLedger
from tests.ledger.common import BUDGET, QUERY


def test_a_ledger_is_its_owners(tmp_path: Path) -> None:
    PrivacyLedger.create(tmp_path / "ledger", BUDGET)
    assert stat.S_IMODE((tmp_path / "ledger").stat().st_mode) == 0o600


def test_a_long_log_is_read_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = PrivacyLedger.create(tmp_path / "ledger", BUDGET)
    for number in range(5):
        ledger.debit(QUERY, note=str(number))
    monkeypatch.setattr(transaction, "_PAGE", 2)
    monkeypatch.setattr(transaction, "_RECENT", 1)
    entries = PrivacyLedger(tmp_path / "ledger").entries()
    assert [(entry.number, entry.note) for entry in entries] == [(number + 1, str(number)) for number in range(5)]


def test_a_run_pays_for_at_most_its_labels() -> None:
    one, run = (Entry("", "", 3, "", each=each) for each in (1, 7))
    assert [one.pays_for(labels) for labels in (2, 3, 4)] == [False, True, False]
    assert [run.pays_for(labels) for labels in (0, 20, 21, 22)] == [True, True, True, False]
