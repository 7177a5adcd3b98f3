"""What other programs, and other file systems, do to a ledger's file."""

import errno
import fcntl
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from darrm.account.__main__ import main
from darrm.commands.command_line import run
from darrm.errors import LedgerError
from darrm.ledger.ledger import PrivacyLedger
from darrm.privacy import PrivacyParams
from tests.ledger.common import QUERY


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    PrivacyLedger.create(path, PrivacyParams(3, "1e-3")).debit(QUERY)
    return path


def mode(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def switched(path: Path) -> sqlite3.Connection:
    """Switch a ledger to a write-ahead log, as a tool does, and hold it open."""
    tool = sqlite3.connect(path)
    assert tool.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    return tool


def test_a_copy_of_the_file_has_all_entries_whatever_a_tool_did(path: Path) -> None:
    ledger = PrivacyLedger(path)
    switched(path).close()
    assert mode(path) == "wal"
    for _ in range(5):
        ledger.debit(QUERY)
    assert mode(path) == "delete"
    shutil.copy(path, path.with_name("copy.sqlite"))
    assert PrivacyLedger(path.with_name("copy.sqlite")).spent.queries == 6


def test_while_the_tool_reads_the_file_nothing_is_debited(path: Path) -> None:
    ledger = PrivacyLedger(path, timeout=0.05)
    with closing(switched(path)) as tool:
        tool.execute("BEGIN")
        tool.execute("SELECT * FROM budget").fetchone()
        with pytest.raises(LedgerError, match="write-ahead log"):
            ledger.debit(QUERY)
    assert PrivacyLedger(path).spent.queries == 1


def test_a_file_system_without_locks_is_named_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite reports ENOLCK as a file that somebody else has locked."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerError, match="kept it locked for too long"):
            PrivacyLedger(path, timeout=0.05)

        def refuse(*_: Any) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "lockf", refuse)
        start = time.monotonic()
        with pytest.raises(LedgerError, match="ENOLCK"):
            PrivacyLedger(path, timeout=60)
        assert time.monotonic() - start < 30  # it waits for nobody


def test_a_terminal_obeys_nothing_that_a_ledger_holds(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE entries SET note = ?", ("\x1b[2J\x9b1m\u202egnihton",))
        connection.execute("PRAGMA user_version")
    for arguments in (["--ledger", str(path)], ["--ledger", str(path), "--format", "json"]):
        run(lambda arguments=arguments: main(arguments))  # type: ignore[misc]
        shown = "".join(capsys.readouterr())
        assert all(character.isprintable() or character == "\n" for character in shown)
