"""Locks of a ledger's file that hold whatever else the same process does with that file."""

import errno
import fcntl
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from darrm.account.__main__ import main
from darrm.commands.command_line import run
from darrm.errors import LedgerError
from darrm.ledger.ledger import PrivacyLedger
from darrm.ledger.sqlite import hold_lock
from darrm.loss.composition import compose_optimal
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams
from darrm.util.files import check_parent
from darrm.verify.audit import audit
from darrm.verify.files import ledger_files

QUERY = PrivacyCost("majority of 11", guarantee=PrivacyParams("0.001", 0))

ONE_DEBIT = """
    import sys
    from darrm.ledger.ledger import PrivacyLedger
    from darrm.loss.privacy_cost import PrivacyCost
    from darrm.privacy import PrivacyParams
    ledger = PrivacyLedger(sys.argv[1], timeout=0.2)
    ledger.debit(PrivacyCost("majority of 11", guarantee=PrivacyParams("0.001", 0)))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    PrivacyLedger.create(path, PrivacyParams(10))
    return path


def started(script: str, *words: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_file_that_is_opened_and_closed_lets_nobody_in(path: Path) -> None:
    ledger = PrivacyLedger(path)
    with ledger._transaction(write=True):
        path.open("rb").close()
        path.read_bytes()
        _, error = started(ONE_DEBIT, path).communicate()
        assert "another process kept it locked for too long: nothing was debited" in error
    assert started(ONE_DEBIT, path).communicate()[1] == ""
    assert ledger.accountant().queries == 1


def refused(path: Path) -> None:
    with pytest.raises(ValueError, match="is a database"):
        check_parent(path)


@pytest.mark.parametrize("means", [ledger_files, refused, lambda path: audit([path])])
def test_darrm_opens_no_ledger_during_a_transaction_of_its_process(means: Any, path: Path) -> None:
    other = threading.Thread(target=means, args=(path,))
    with PrivacyLedger(path)._transaction(write=True):
        other.start()
        other.join(0.2)
        assert other.is_alive()
    other.join(30)
    assert not other.is_alive()


def test_a_lock_whose_file_was_deleted_is_taken_on_the_new_file(path: Path) -> None:
    beside = path.with_name(".ledger.sqlite.lock")
    with hold_lock(str(path), write=True) as is_locked:
        assert is_locked
        with hold_lock(str(path), write=True) as again:
            assert not again
        with hold_lock(str(path), write=False) as again:
            assert not again
    beside.unlink()
    PrivacyLedger(path).debit(QUERY)
    assert beside.stat().st_size == 0


def test_readers_make_no_file_and_audits_judge_none(path: Path) -> None:
    beside = path.with_name(".ledger.sqlite.lock")
    beside.unlink()
    PrivacyLedger(path).check()
    assert [Path(file.path).name for file in audit([path.parent]).files] == ["ledger.sqlite"]
    assert not beside.exists()
    PrivacyLedger(path).debit(QUERY)
    assert beside.exists()
    assert [Path(file.path).name for file in audit([path.parent]).files] == ["ledger.sqlite"]
    with pytest.raises(LedgerError, match=r"SQLite|no ledger|empty"):
        PrivacyLedger(beside)


def test_who_may_write_to_the_ledger_may_lock_it(path: Path) -> None:
    beside = path.with_name(".ledger.sqlite.lock")
    assert stat.S_IMODE(beside.stat().st_mode) == 0o600
    path.chmod(0o664)
    PrivacyLedger(path).debit(QUERY)
    assert stat.S_IMODE(beside.stat().st_mode) == 0o664


def test_links_to_a_ledger_share_its_lock(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "folder" / "link.sqlite"
    link.parent.mkdir()
    link.symlink_to(path)
    with hold_lock(str(path), write=True), hold_lock(str(link), write=True) as is_locked:
        assert not is_locked


@pytest.mark.parametrize(
    ("lock", "number"),
    [("flock", errno.EOPNOTSUPP), ("flock", errno.ENOLCK), ("flock", errno.ENOSYS), ("lockf", errno.ENOLCK)],
)
def test_a_file_system_without_locks_is_refused_in_one_line(
    lock: str, number: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite reports a lack of its locks (lockf) as a file that somebody else has locked."""

    def refuse(*_: Any) -> None:
        raise OSError(number, "no locks here")

    ledger = PrivacyLedger(path)
    monkeypatch.setattr(fcntl, lock, refuse)
    line = rf"does not lock files \({errno.errorcode[number]}\).*nothing was debited: keep the ledger on a disk"
    with pytest.raises(LedgerError, match=line) as error:
        ledger.debit(QUERY)
    assert len(str(error.value).splitlines()) == 1


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
    ledger.debit(QUERY)
    switched(path).close()
    assert mode(path) == "wal"
    for _ in range(5):
        ledger.debit(QUERY)
    assert mode(path) == "delete"
    shutil.copy(path, path.with_name("copy.sqlite"))
    assert PrivacyLedger(path.with_name("copy.sqlite")).spent.queries == 6


def test_while_the_tool_reads_the_file_nothing_is_debited(path: Path) -> None:
    ledger = PrivacyLedger(path, timeout=0.05)
    ledger.debit(QUERY)
    with closing(switched(path)) as tool:
        tool.execute("BEGIN")
        tool.execute("SELECT * FROM budget").fetchone()
        with pytest.raises(LedgerError, match="write-ahead log"):
            ledger.debit(QUERY)
    assert PrivacyLedger(path).spent.queries == 1


def test_a_terminal_obeys_nothing_that_a_ledger_holds(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    PrivacyLedger(path).debit(QUERY)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE entries SET note = ?", ("\x1b[2J\x9b1m\u202egnihton",))
        connection.execute("PRAGMA user_version")
    for arguments in (["--ledger", str(path)], ["--ledger", str(path), "--format", "json"]):
        run(lambda arguments=arguments: main(arguments))  # type: ignore[misc]
        shown = "".join(capsys.readouterr())
        assert all(character.isprintable() or character == "\n" for character in shown)


PARAMS = PrivacyParams("0.05", "1e-8")

WORKER = """
    import sys
    from darrm.loss.privacy_cost import PrivacyCost
    from darrm.ledger.ledger import PrivacyLedger
    from darrm.errors import BudgetExceededError
    from darrm.privacy import PrivacyParams
    query = PrivacyCost("q", guarantee=PrivacyParams("0.05", "1e-8"))
    ledger = PrivacyLedger(sys.argv[1])
    done = 0
    for _ in range(int(sys.argv[2])):
        try:
            ledger.debit(query, note=sys.argv[3])
            done += 1
        except BudgetExceededError:
            pass
    print(done)
"""


def processes(place: str, count: int, debits: int) -> list[int]:
    running = [started(WORKER, place, debits, f"process {number}") for number in range(count)]
    results = [process.communicate() for process in running]
    assert all(process.returncode == 0 for process in running), [errors for _, errors in results]
    return [int(output) for output, _ in results]


@pytest.mark.parametrize(("several", "debits", "fit"), [(2, 15, 20), pytest.param(8, 200, 400, marks=pytest.mark.slow)])
def test_processes_share_what_the_budget_admits(several: int, debits: int, fit: int, place: str) -> None:
    epsilon = compose_optimal(PARAMS, fit, 1e-3).epsilon  # a budget that admits exactly so many queries
    PrivacyLedger.create(place, PrivacyParams(epsilon, 1e-3))
    assert sum(processes(place, several, debits)) == fit
    ledger = PrivacyLedger(place)
    assert ledger.accountant().queries == len(ledger.entries()) == fit
    assert ledger.queries_that_fit(PrivacyCost("q", guarantee=PARAMS)) == 0
