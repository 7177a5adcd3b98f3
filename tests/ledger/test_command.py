"""The command that makes and moves ledgers and makes keys."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from darrm.errors import LedgerError
from darrm.ledger.__main__ import main, move
from darrm.ledger.ledger import PrivacyLedger
from darrm.ledger.sqlite import SQLiteDatabase, SQLiteStore
from darrm.ledger.transaction import Transaction
from darrm.privacy import PrivacyParams
from tests.doors import validated
from tests.ledger.support import BUDGET, QUERY


def test_command_makes_the_ledger_of_its_options_and_moves_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = str(tmp_path / "a.sqlite"), str(tmp_path / "b.sqlite")
    words = ["create", old, "--budget", "3", "1e-3", "--composition", "adaptive", "--population", "ward 7", "--json"]
    assert main(words) == 0
    report = validated(capsys.readouterr().out, "ledger_report")
    ledger = PrivacyLedger(old)
    assert (ledger.budget, ledger.composition, ledger.population) == (PrivacyParams(3, "1e-3"), "adaptive", "ward 7")
    assert report["ledger_digest"]["text"] == str(ledger.digest())
    ledger.debit(QUERY)
    digest = ledger.digest()
    assert main(["move", old, new, "--json"]) == 0
    report = validated(capsys.readouterr().out, "ledger_report")
    assert (report["to"], report["ledger_digest"]["text"]) == (new, str(digest))
    assert PrivacyLedger(new).digest() == digest


def test_command_makes_a_key_and_a_ledger_that_signs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cryptography")
    key, path = str(tmp_path / "a.key"), str(tmp_path / "a.sqlite")
    assert main(["key", key, "--json"]) == 0
    assert validated(capsys.readouterr().out, "ledger_report")["public"] == f"{key}.pub"
    assert main(["create", path, "--budget", "3,1e-3", "--signing-key", f"{key}.none"]) == 2
    assert not Path(path).exists()
    assert main(["create", path, "--budget", "3,1e-3", "--signing-key", key, "--quiet"]) == 0
    ledger = PrivacyLedger(path, signing_key=key)
    ledger.debit(QUERY)
    assert "ed25519:" in json.dumps(ledger.receipt(1))


def test_second_of_two_moves_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second move reads that the ledger is open; then the first move closes it."""
    old, first, second = (str(tmp_path / name) for name in ("a.sqlite", "b.sqlite", "c.sqlite"))
    PrivacyLedger.create(old, BUDGET).debit(QUERY)

    def move_and_create(self: SQLiteStore) -> None:
        monkeypatch.undo()
        move(old, first)
        self.create()

    monkeypatch.setattr(SQLiteStore, "create", move_and_create)
    with pytest.raises(LedgerError, match=r"closed, its budget moved to .*b\.sqlite already"):
        move(old, second)
    assert PrivacyLedger(first).debit(QUERY) == 2
    assert not Path(second).exists()


@pytest.mark.parametrize("is_old_closed", [False, True])
def test_move_that_is_cut_off_leaves_one_budget_and_continues(
    is_old_closed: bool, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, transaction = str(tmp_path / "old.sqlite"), SQLiteStore.transaction
    ledger = PrivacyLedger.create(old, BUDGET)
    ledger.debit(QUERY)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    @contextmanager
    def close_and_die(store: SQLiteStore, *, write: bool) -> Iterator[SQLiteDatabase]:
        with transaction(store, write=write) as database:
            yield database
        if write and store.path == old:
            die()

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteStore, "discard", lambda _: None)  # a killed process tidies nothing up
        if is_old_closed:
            patch.setattr(SQLiteStore, "transaction", close_and_die)
        else:
            patch.setattr(Transaction, "set_moved", die)
        with pytest.raises(KeyboardInterrupt):
            move(old, place)
    with pytest.raises(LedgerError, match=r"it is empty|there is no ledger in it"):
        PrivacyLedger(place)
    if not is_old_closed:
        assert ledger.debit(QUERY) == 2
    moved = move(old, place)
    assert moved.digest() == ledger.digest() == move(old, place).digest()  # the second call finds all done
    assert moved.debit(QUERY) == len(ledger.entries()) + 1
    with pytest.raises(LedgerError, match="it is closed"):
        ledger.debit(QUERY)


def test_move_continues_into_its_own_ledger_only(tmp_path: Path) -> None:
    old, new = str(tmp_path / "old.sqlite"), tmp_path / "new.sqlite"
    PrivacyLedger.create(old, BUDGET)
    move(old, str(new))
    new.rename(tmp_path / "away.sqlite")
    PrivacyLedger.create(new, BUDGET)
    with pytest.raises(LedgerError, match="it exists already"):
        move(old, str(new))
