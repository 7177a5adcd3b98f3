"""A ledger in a SQLite file: names, damage, durability, locks, full disks, forks."""

import errno
import fcntl
import os
import random
import shutil
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest

from darrm.errors import LedgerError
from darrm.ledger.ledger import PrivacyLedger
from darrm.ledger.sqlite import SQLiteDatabase, hold_lock
from darrm.privacy import PrivacyParams
from darrm.util import files
from darrm.util.files import check_parent
from darrm.verify.audit import audit
from darrm.verify.files import ledger_files
from tests.ledger.support import BUDGET, QUERY, change_connections, edit, run_python, start_python


@pytest.fixture
def ledger(path: Path) -> PrivacyLedger:
    return PrivacyLedger.create(path, BUDGET)


@pytest.fixture
def lock_file(path: Path) -> Path:
    return path.with_name(".ledger.sqlite.lock")


# names and contents of files


def test_create_never_replaces_a_file(ledger: PrivacyLedger, path: Path, tmp_path: Path) -> None:
    ledger.debit(QUERY)
    with pytest.raises(LedgerError, match="it exists already"):
        PrivacyLedger.create(path, PrivacyParams(100, 0.1))
    assert PrivacyLedger(path).spent.queries == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(LedgerError, match="cannot be created: No such file"):
        PrivacyLedger.create(tmp_path / "no" / "ledger", BUDGET)


def test_missing_file_never_comes_back_empty(
    ledger: PrivacyLedger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.unlink()
    with pytest.raises(LedgerError, match="no such file"):
        PrivacyLedger(path)
    monkeypatch.setattr(type(path), "is_file", lambda _: True)  # it vanishes after this question
    with pytest.raises(LedgerError, match="cannot be opened"):
        ledger.debit(QUERY)
    assert not path.exists()


@pytest.mark.parametrize("name", ["a?b#c%20.sqlite", "ü ö.sqlite", "file:x?mode=memory", os.fsdecode(b"\xff?#%")])
def test_odd_name_leads_to_one_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = PrivacyLedger.create(name, BUDGET)
    monkeypatch.chdir("/")  # a relative path stays where it was
    ledger.debit(QUERY)
    assert str(tmp_path).encode() in ledger.recovery(1).encode()  # every terminal can show it
    assert PrivacyLedger(tmp_path / name).spent.queries == 1


def write_other_database(path: Path) -> None:
    path.write_bytes(b"")
    edit(path, "CREATE TABLE budget (epsilon REAL)")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(b""), r"it is empty: restore a copy .* count its whole budget as spent\. If"),
        (lambda path: path.write_bytes(b"\x00" * 8192), "no ledger"),
        (lambda path: path.write_bytes(b"SQLite"), "corrupted"),
        (lambda path: path.write_bytes(b"once upon a time " * 999), "corrupted"),
        (lambda path: path.write_bytes(path.read_bytes()[:9000]), "corrupted"),
        (write_other_database, "it is no ledger"),
    ],
)
def test_file_that_is_no_ledger_is_refused(spoil: Any, message: str, ledger: PrivacyLedger, path: Path) -> None:
    ledger.debit(QUERY)
    spoil(path)
    for use in (lambda: PrivacyLedger(path), lambda: ledger.debit(QUERY)):
        with pytest.raises(LedgerError, match=message):
            use()


@pytest.mark.parametrize("flips", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_no_flipped_bit_brings_budget_back(flips: int, ledger: PrivacyLedger, path: Path) -> None:
    for count in (3, 1, 7):
        ledger.debit(QUERY.repeat(count))
    content = path.read_bytes()
    generator = random.Random(20261121)  # noqa: S311 (places to damage, no secrets)
    num_refused = 0
    for place in generator.sample([place for place, byte in enumerate(content) if byte], flips):
        damaged = bytearray(content)
        damaged[place] ^= 1 << generator.randrange(8)
        path.write_bytes(bytes(damaged))
        try:
            reopened = PrivacyLedger(path)
            assert reopened.budget == BUDGET, place
            assert reopened.accountant().costs == (QUERY.repeat(11),), place
        except LedgerError:
            num_refused += 1
    assert num_refused > flips / 4


# durability and full disks


def test_commits_are_durable(ledger: PrivacyLedger) -> None:
    with ledger._store.transaction(write=True) as database:
        connection = cast("SQLiteDatabase", database).connection
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_full_disk_loses_nothing(ledger: PrivacyLedger, path: Path) -> None:
    ledger.debit(QUERY.repeat(3))
    script = """
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(sys.argv[1]), resource.RLIM_INFINITY))
        for attempt in range(3):
            try:
                ledger.debit(query, note="x" * 100_000)
            except LedgerError as error:
                print(error)
        print(ledger.accountant().queries)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        ledger.debit(query, note="x" * 100_000)
    """
    *errors, queries = run_python(script, path).splitlines()
    assert (len(errors), queries) == (3, "3")
    assert all("the file system refused to read or write: nothing was released" in error for error in errors)
    assert [entry.count for entry in PrivacyLedger(path).entries()] == [3, 1]


def test_full_database_debits_nothing(ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        # SQLite takes the present size instead
        change_connections(patch, lambda connection: connection.execute("PRAGMA max_page_count = 1"))
        with pytest.raises(LedgerError, match="the disk is full: nothing was debited"):
            ledger.debit(QUERY, note="x" * 100_000)
    assert ledger.entries() == ()


def test_read_only_file_is_refused() -> None:
    script = """
        if os.getuid() == 0:
            os.setuid(65534)  # root may write anything
        try:
            ledger.debit(query)
        except LedgerError as error:
            print(error)
        print(ledger.accountant().queries)
    """
    with TemporaryDirectory() as folder:  # pytest closes its own folders to the user above
        Path(folder).chmod(0o755)
        path = Path(folder, "ledger.sqlite")
        PrivacyLedger.create(path, BUDGET).debit(QUERY)
        path.chmod(0o444)
        error, queries = run_python(script, path).splitlines()
    assert "cannot be written, so nothing was debited" in error
    assert queries == "1"


# locks


def test_lock_holds_while_the_file_is_opened_and_closed(ledger: PrivacyLedger, path: Path) -> None:
    """Closing any handle of a file ends the POSIX locks of a process."""
    with ledger._transaction(write=True):
        path.read_bytes()
        _, errors = start_python("ledger.debit(query)", path, timeout=0.2).communicate()
        assert "another process kept it locked for too long: nothing was debited" in errors
    run_python("ledger.debit(query)", path)
    assert ledger.accountant().queries == 1


def test_lock_of_another_program_is_respected(path: Path, ledger: PrivacyLedger) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="another process kept it locked"):
            PrivacyLedger(path, timeout=0.05).debit(QUERY)
        other.execute("ROLLBACK")
    ledger.debit(QUERY)
    assert ledger.spent.queries == 1


def refuse_to_replace(path: Path) -> None:
    with pytest.raises(ValueError, match="is a database"):
        check_parent(path)


@pytest.mark.parametrize("open_file", [ledger_files, refuse_to_replace, lambda path: audit([path])])
def test_darrm_opens_no_ledger_during_a_transaction_of_its_process(
    open_file: Any, ledger: PrivacyLedger, path: Path
) -> None:
    other = threading.Thread(target=open_file, args=(path,))
    with ledger._transaction(write=True):
        other.start()
        other.join(0.2)
        assert other.is_alive()
    other.join(30)
    assert not other.is_alive()


def test_lock_is_one_for_all_names_of_a_file(
    ledger: PrivacyLedger, path: Path, lock_file: Path, tmp_path: Path
) -> None:
    link = tmp_path / "folder" / "link.sqlite"
    link.parent.mkdir()
    link.symlink_to(path)
    with hold_lock(str(path), write=True) as is_first_locked:
        assert is_first_locked
        for name, write in ((path, True), (path, False), (link, True)):
            with hold_lock(str(name), write=write) as is_locked:
                assert not is_locked
    lock_file.unlink()
    ledger.debit(QUERY)  # a deleted lock file is made again
    assert lock_file.stat().st_size == 0


def test_lock_file_is_made_by_writers_with_the_mode_of_the_ledger(
    ledger: PrivacyLedger, path: Path, lock_file: Path
) -> None:
    assert stat.S_IMODE(lock_file.stat().st_mode) == 0o600
    lock_file.unlink()
    PrivacyLedger(path).check()
    assert not lock_file.exists()
    path.chmod(0o664)
    ledger.debit(QUERY)
    assert stat.S_IMODE(lock_file.stat().st_mode) == 0o664  # as the ledger
    assert [Path(file.path).name for file in audit([path.parent]).files] == ["ledger.sqlite"]
    with pytest.raises(LedgerError, match="empty"):
        PrivacyLedger(lock_file)


@pytest.mark.parametrize(
    ("lock", "number"),
    [("flock", errno.EOPNOTSUPP), ("flock", errno.ENOLCK), ("flock", errno.ENOSYS), ("lockf", errno.ENOLCK)],
)
def test_file_system_without_locks_is_refused(
    lock: str, number: int, ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite reports a lack of its locks (lockf) as a file that somebody else has locked."""

    def refuse(*_: Any) -> None:
        raise OSError(number, "no locks here")

    monkeypatch.setattr(fcntl, lock, refuse)
    message = rf"does not lock files \({errno.errorcode[number]}\).*nothing was debited: keep the ledger on a disk"
    with pytest.raises(LedgerError, match=message):
        ledger.debit(QUERY)


def test_write_ahead_log_of_another_program_is_switched_back(ledger: PrivacyLedger, path: Path) -> None:
    """Else a copy of the file would lack the newest entries."""
    ledger.debit(QUERY)
    hasty = PrivacyLedger(path, timeout=0.05)
    with closing(sqlite3.connect(path)) as tool:
        assert tool.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
        tool.execute("BEGIN")
        tool.execute("SELECT * FROM budget").fetchone()
        with pytest.raises(LedgerError, match="write-ahead log"):
            hasty.debit(QUERY)
    for _ in range(5):
        ledger.debit(QUERY)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    shutil.copy(path, path.with_name("copy.sqlite"))
    assert PrivacyLedger(path.with_name("copy.sqlite")).spent.queries == 6


# forks


@pytest.mark.slow
@pytest.mark.usefixtures("ledger")
def test_children_forked_while_threads_debit_do_not_wait_for_themselves(path: Path) -> None:
    script = """
        import threading, warnings
        warnings.simplefilter("ignore")  # later Pythons warn of forks in programs with threads
        free, stop = PrivacyCost("free", guarantee=PrivacyParams(0)), threading.Event()
        def repeat(call):
            while not stop.is_set():
                call()
        calls = (lambda: ledger.debit(free), ledger.entries)
        threads = [threading.Thread(target=repeat, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        statuses = []
        for _ in range(10):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    PrivacyLedger(sys.argv[1], timeout=10).debit(free)
                    status = 0
                finally:
                    os._exit(status)
            statuses.append(os.waitpid(child, 0)[1])
        stop.set()
        for thread in threads:
            thread.join()
        print(statuses)
    """
    assert run_python(script, path) == f"{[0] * 10}\n"


def test_files_are_opened_and_closed_under_the_lock_that_forks_wait_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a forked child inherits locks of SQLite."""
    opened, closed = list[bool](), list[bool]()  # whether this thread held the lock
    connect = sqlite3.connect
    lock: Any = files.between_transactions

    class Watched(sqlite3.Connection):
        def close(self) -> None:
            closed.append(lock._is_owned())
            super().close()

    def connect_watched(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(lock._is_owned())
        return connect(*arguments, factory=Watched, **options)

    monkeypatch.setattr(sqlite3, "connect", connect_watched)
    PrivacyLedger.create(path, BUDGET).debit(QUERY)
    assert len(opened) == len(closed) >= 3
    assert all(opened + closed)
