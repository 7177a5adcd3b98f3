"""The command that makes and moves ledgers: what it makes is what was typed."""

import json
from pathlib import Path

import pytest

from darrm.errors import LedgerError
from darrm.ledger.__main__ import main, move
from darrm.ledger.ledger import PrivacyLedger
from darrm.ledger.sqlite import SQLiteStore
from darrm.privacy import PrivacyParams
from tests.doors import validated
from tests.ledger.common import QUERY


def test_a_ledger_is_made_as_typed_and_moved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = str(tmp_path / "a.sqlite"), str(tmp_path / "b.sqlite")
    words = ["create", old, "--budget", "3", "1e-3", "--composition", "adaptive", "--population", "ward 7", "--json"]
    assert main(words) == 0
    made = validated(capsys.readouterr().out, "ledger_report")
    ledger = PrivacyLedger(old)
    assert (ledger.budget, ledger.composition, ledger.population) == (PrivacyParams(3, "1e-3"), "adaptive", "ward 7")
    assert made["ledger_digest"]["text"] == str(ledger.digest())
    ledger.debit(QUERY)
    digest = ledger.digest()
    assert main(["move", old, new, "--json"]) == 0
    moved = validated(capsys.readouterr().out, "ledger_report")
    assert (moved["to"], moved["ledger_digest"]["text"]) == (new, str(digest))
    assert PrivacyLedger(new).digest() == digest
    assert main(["create", old, "--budget", "3,1e-3"]) == 2
    assert "it exists already" in capsys.readouterr().err
    assert PrivacyLedger(old).digest() == digest


def test_a_ledger_that_is_made_with_a_key_signs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cryptography")
    key, path = str(tmp_path / "a.key"), str(tmp_path / "a.sqlite")
    assert main(["key", key, "--json"]) == 0
    validated(capsys.readouterr().out, "ledger_report")
    assert main(["create", path, "--budget", "3,1e-3", "--signing-key", f"{key}.none"]) == 2
    assert not Path(path).exists()
    assert main(["create", path, "--budget", "3,1e-3", "--signing-key", key, "--quiet"]) == 0
    ledger = PrivacyLedger(path, signing_key=key)
    assert ledger.debit(QUERY) == 1
    assert json.dumps(ledger.receipt(1)).count("ed25519:") == 1


def test_of_two_moves_at_once_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one read that the ledger is open, and then the first one closed it: there is one budget."""
    old, first, second = (str(tmp_path / name) for name in ("a.sqlite", "b.sqlite", "c.sqlite"))
    PrivacyLedger.create(old, PrivacyParams(3, "1e-3")).debit(QUERY)

    def create(self: SQLiteStore) -> None:
        monkeypatch.undo()
        move(old, first)
        self.create()

    monkeypatch.setattr(SQLiteStore, "create", create)
    with pytest.raises(LedgerError, match=r"closed, its budget moved to .*b\.sqlite already"):
        move(old, second)
    assert PrivacyLedger(first).debit(QUERY) == 2
    assert not Path(second).exists()
