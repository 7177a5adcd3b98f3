"""Ledgers in PostgreSQL: names, passwords, and what only a server can do; `test_ledger.py` has the contract."""

import sys
import threading
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.account import __main__ as account
from darrm.commands.command_line import run
from darrm.errors import DeliveryError, LedgerError
from darrm.ledger import __main__ as command
from darrm.ledger.__main__ import move
from darrm.ledger.ledger import PrivacyLedger, StreamCursor
from darrm.ledger.postgres import PostgresStore, _translate_errors, open_store
from darrm.ledger.sqlite import SQLiteStore, is_url
from darrm.ledger.transaction import Transaction
from darrm.majority.noise_function import NoiseFunction
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.release import __main__ as release
from darrm.table.table import certify
from darrm.verify import __main__ as verify
from tests.doors import refused
from tests.exhaustive import EXHAUSTIVE
from tests.ledger.servers import Server
from tests.ledger.support import BUDGET, QUERY, SMALL

KILLS = 200 if EXHAUSTIVE else 5


@pytest.fixture
def url(server: Server) -> str:
    return server.empty()


@pytest.fixture
def ledger(url: str) -> PrivacyLedger:
    return PrivacyLedger.create(url, BUDGET)


def test_name_is_a_file_or_a_url() -> None:
    assert [is_url(name) for name in ("postgresql://db/ward", "postgres://db/ward")] == [True, True]
    assert [is_url(name) for name in ("ledger.sqlite", Path("postgresql:"))] == [False, False]
    assert type(open_store("ledger.sqlite", timeout=1.0)) is SQLiteStore


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@db/ward",
        "postgresql://db/ward?password=hunter2",
        "postgresql://db/ward?sslpassword=hunter2",
        "postgresql://db/ward?oauth_client_secret=hunter2",
        "postgresql://db/ward?pass%77ord=hunter2",
        "postgresql://me:hunter2%zz@db/ward",
    ],
)
def test_url_with_a_password_is_refused_and_never_shown(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("psycopg")
    for make in (PrivacyLedger, lambda name: PrivacyLedger.create(name, BUDGET)):
        with pytest.raises(ValueError, match=r"the URL of (a|the) ledger") as error:
            make(url)
        assert "hunter2" not in str(error.value)
        assert error.value.__cause__ is None
        assert error.value.__suppress_context__ is ("%zz" in url)
    assert "hunter2" not in refused(account.main, ["--ledger", url], "the URL of", capsys)


@pytest.mark.parametrize(
    "name",
    [
        "POSTGRESQL://me:hunter2@db/ward",
        "Postgres://me:hunter2@db/ward",
        "postgresql+psycopg://me:hunter2@db/ward",
        "jdbc:postgresql://db/ward?user=me&password=hunter2",
        "host=db dbname=ward password=hunter2",
        "dbname=ward scram_client_key=hunter2",
        "host=hunter2",
    ],
)
def test_name_that_may_hold_a_password_is_refused_and_never_shown(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    makers = (PrivacyLedger, lambda name: PrivacyLedger.create(name, BUDGET), lambda name: PrivacyLedger(Path(name)))
    for make in makers:
        with pytest.raises(ValueError, match="a file or a URL") as error:
            make(name)
        assert "hunter2" not in str(error.value)
    commands: list[tuple[Any, list[str]]] = [
        (account.main, ["--ledger", name]),
        (command.main, ["move", "old.sqlite", name]),
        (release.main, ["v.csv", "--table", "t", "--ledger", name, "--create-budget", "1,0", "--output", "l.csv"]),
        (verify.main, [name]),
    ]
    for main, words in commands:
        assert "hunter2" not in refused(main, words, "a file or a URL", capsys)
    assert run(lambda: account.main(["--ledger", *name.split()])) == 2  # quotes were forgotten
    assert "hunter2" not in capsys.readouterr().err.replace("host=hunter2", "")
    assert not list(tmp_path.iterdir())


def test_missing_psycopg_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ValueError, match=r"pip install 'darrm\[postgres\]'"):
        PrivacyLedger("postgresql://db/ward")


def test_trigger_is_refused_and_another_column_is_not(ledger: PrivacyLedger, url: str, server: Server) -> None:
    server.change(url, "CREATE RULE forget AS ON INSERT TO entries DO INSTEAD NOTHING")
    with pytest.raises(LedgerError, match="a trigger or a view was added"):
        ledger.debit(QUERY)
    server.change(url, "DROP RULE forget ON entries", "ALTER TABLE entries ADD COLUMN more text")
    assert ledger.debit(QUERY) == 1


def test_database_without_a_ledger_is_refused(server: Server) -> None:
    with pytest.raises(LedgerError, match="there is no ledger in it: make a ledger first"):
        PrivacyLedger(server.empty())
    with pytest.raises(LedgerError, match=r'refuses the login.*database "nobody" does not exist') as error:
        PrivacyLedger(server.url.replace("/postgres?", "/nobody?"))
    assert "\n" not in str(error.value)
    with pytest.raises(LedgerError, match="the server cannot be reached"):
        PrivacyLedger("postgresql:///x?host=/nowhere/at/all")
    server.run("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(LedgerError, match="it is LATIN1: a ledger needs fsync = on and a database in UTF8"):
        PrivacyLedger(server.url.replace("/postgres?", "/latin?"))


def test_user_without_rights_and_a_read_only_server_debit_nothing(
    ledger: PrivacyLedger, url: str, server: Server
) -> None:
    schema = url.rpartition("%3D")[2]
    reader = f"reader_{schema}"
    server.run(f"CREATE ROLE {reader} LOGIN", f"GRANT USAGE ON SCHEMA {schema} TO {reader}")
    server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {reader}")
    other = PrivacyLedger(url.replace("user=postgres", f"user={reader}"))
    with pytest.raises(LedgerError, match="this user may not do that"):
        other.debit(QUERY)
    server.run(f"GRANT INSERT, UPDATE ON ALL TABLES IN SCHEMA {schema} TO {reader}")
    assert other.debit(QUERY) == 1
    frozen = PrivacyLedger(f"{url}%20-cdefault_transaction_read_only%3Don")
    with pytest.raises(LedgerError, match="it cannot be written, so nothing was debited"):
        frozen.debit(QUERY)
    assert frozen.entries() == other.entries() == ledger.entries()


ERRORS = {
    "DiskFull": "the disk of the server is full: nothing was debited; free some space",
    "TooManyConnections": "the server lacks memory or connections: nothing was debited",
    "AdminShutdown": "the server stops or restarts: nothing was released",
    "IoError": "the server's file system refused to read or write: nothing was released",
    "DataCorrupted": "it is corrupted: restore a copy",
    "UndefinedTable": "there is no ledger in it",
    "UndefinedColumn": "it is corrupted, a table or a column of it is missing",
    "DuplicateTable": "it exists already",
    "InsufficientPrivilege": "this user may not do that",
    "ReadOnlySqlTransaction": "it cannot be written, so nothing was debited",
    "SerializationFailure": "another program wrote to its tables at the same moment: nothing was debited",
    "LockNotAvailable": "another process kept it locked for too long: nothing was debited",
    "CheckViolation": "it is corrupted, the server refuses a row",
    "ConnectionFailure": "the server cannot be reached",
    "NotSupportedError": "the database refused: nothing was released",
}


@pytest.mark.parametrize("name", ERRORS)
def test_error_of_the_server_is_one_line_with_its_consequence(name: str) -> None:
    errors = pytest.importorskip("psycopg.errors")
    with pytest.raises(LedgerError, match=rf"{ERRORS[name]}.*\(PostgreSQL: no more\)"), _translate_errors("ledger"):
        raise getattr(errors, name)("no\nmore")


def test_error_of_the_server_debits_nothing(ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    execute = psycopg.Connection.execute

    def fail(connection: Any, statement: str, *values: Any) -> Any:
        if "INSERT INTO entries" in statement:
            raise psycopg.errors.DiskFull("no\nmore")
        return execute(connection, statement, *values)

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "execute", fail)
        with pytest.raises(LedgerError, match=rf"{ERRORS['DiskFull']}.*\(PostgreSQL: no more\)"):
            ledger.debit(QUERY)
    assert ledger.debit(QUERY) == 1


def test_commits_are_durable_whatever_the_url_asks(ledger: PrivacyLedger, url: str) -> None:
    ledger.check()
    store = PostgresStore(f"{url}%20-csynchronous_commit%3Doff", timeout=5.0)
    with store.transaction(write=True) as tables:
        for setting, value in (("synchronous_commit", "on"), ("transaction_isolation", "serializable")):
            assert tables.connection.execute(f"SELECT current_setting('{setting}')").fetchone() == (value,)


@pytest.mark.slow
def test_another_program_that_locks_or_writes_the_tables_debits_nothing(ledger: PrivacyLedger, url: str) -> None:
    import psycopg

    ledger.debit(QUERY)
    ledger = PrivacyLedger(url, timeout=0.2)
    with psycopg.connect(url) as other:
        other.execute("SELECT * FROM budget FOR UPDATE")
        with pytest.raises(LedgerError, match="another process kept it locked for too long: nothing was debited"):
            ledger.debit(QUERY)
    with psycopg.connect(url) as other:
        message = "another program wrote to its tables at the same moment"
        with pytest.raises(LedgerError, match=message), ledger._store.transaction(write=True) as tables:  # noqa: PT012
            changed = Transaction(tables)
            (cost,) = changed.cost_rows.values()
            other.execute("UPDATE costs SET what = what")
            other.commit()
            changed.put_cost(cost._replace(total=100))
    assert ledger.debit(QUERY) == 2


def test_one_process_keeps_its_connection_and_another_opens_its_own(
    ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = ledger._store
    ledger.debit(QUERY)
    connection = store._connection
    ledger.debit(QUERY)
    assert store._connection is connection
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: -1)  # as in a forked child
        assert ledger.debit(QUERY) == 3
    assert store._connection is not connection
    assert not connection.closed
    for open_connection in (connection, store._connection):
        open_connection.close()


def test_lost_idle_connection_is_made_again(ledger: PrivacyLedger, server: Server) -> None:
    server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'darrm'")
    assert ledger.debit(QUERY) == 1


def test_ledger_moves_there_and_back_and_the_old_one_is_closed(url: str, tmp_path: Path) -> None:
    old, back = str(tmp_path / "old.sqlite"), str(tmp_path / "back.sqlite")
    ledger = PrivacyLedger.create(old, BUDGET, population="ward 7")
    ledger.debit(QUERY.repeat(2), labels=np.array([0, 1]), cursor=StreamCursor.of("wards"))
    ledger.debit(QUERY, note="ü")
    moved = move(old, url)
    assert (moved.path, moved.entries(), moved.digest()) == (url, ledger.entries(), ledger.digest())
    assert moved.kept_labels(1).tolist() == [0, 1]
    for closed in (ledger, PrivacyLedger(old)):
        with pytest.raises(LedgerError, match=r"it is closed, its budget moved to postgresql:.*: debit there; nothing"):
            closed.debit(QUERY)
    with pytest.raises(LedgerError, match=r"moved to postgresql:.* already"):
        move(old, back)
    assert move(old, url).digest() == moved.digest()  # the report of the first move was lost
    assert moved.debit(QUERY) == 3
    assert move(old, url).digest() == moved.digest()
    returned = move(url, back)
    assert returned.debit(QUERY) == 4
    assert returned.entries()[:3] == PrivacyLedger(url).entries()
    with pytest.raises(LedgerError, match="it is closed, its budget moved to"):
        moved.debit(QUERY)


def test_commands_take_urls(url: str, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.2", "1e-5")), "1.5")
    table, votes, old = tmp_path / "table.json", tmp_path / "votes.csv", tmp_path / "old.sqlite"
    certify(problem, NoiseFunction(3, [0.5, 1.0])).save(table)
    votes.write_text("1,0,1\n0,0,1\n")
    words = [str(votes), "--table", str(table), "--quiet", "--ledger"]
    first_words = [*words, str(old), "--create-budget", "3,1e-3"]
    assert run(lambda: release.main([*first_words, "--output", str(tmp_path / "a.csv")])) == 0
    assert run(lambda: command.main(["move", str(old), url, "--quiet"])) == 0
    capsys.readouterr()
    refused(release.main, [*words, str(old), "--output", str(tmp_path / "b.csv")], "its budget moved", capsys)
    refused(command.main, ["move", url], "TO is required", capsys)
    assert run(lambda: release.main([*words, url, "--output", str(tmp_path / "b.csv")])) == 0
    assert run(lambda: account.main(["--ledger", url, "--digest"])) == 0
    digest = capsys.readouterr().out.strip().splitlines()[-1]
    assert digest == str(PrivacyLedger(url).digest())
    files = [str(table), url, str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    assert run(lambda: verify.main([*files, "--digest", digest, "--quiet"])) == 0
    server.change(url, "UPDATE entries SET note = 'x' WHERE id = 1")
    assert run(lambda: verify.main(files)) == 1
    assert "entry 1" in capsys.readouterr().out


@pytest.mark.slow
def test_ledger_survives_a_server_that_stops_restarts_or_is_killed(own_server: Server) -> None:
    url = own_server.empty()
    ledger = PrivacyLedger.create(url, BUDGET, timeout=5.0)
    ledger.debit(QUERY)
    own_server.stop("fast")
    with pytest.raises(LedgerError, match=r"the server (cannot be reached|stops or restarts)"):
        ledger.debit(QUERY)
    own_server.start()
    assert ledger.debit(QUERY) == 2
    own_server.stop("immediate")
    own_server.start()
    assert [entry.number for entry in ledger.entries()] == [1, 2]
    own_server.stop()
    own_server.start("-c fsync=off")
    with pytest.raises(LedgerError, match="its server does not wait for the disk"):
        PrivacyLedger(url)


@pytest.mark.slow
def test_debits_while_the_server_is_killed_are_paid_once_or_not_at_all(own_server: Server) -> None:
    url, ended = own_server.empty(), threading.Event()
    PrivacyLedger.create(url, PrivacyParams(300, "1e-3"))
    paid, uncertain, refused_notes = list[str](), list[str](), list[str]()

    def debit(name: int) -> None:
        ledger = PrivacyLedger(url)
        for number in count():
            if ended.is_set():
                return
            note = f"{name}:{number}"
            try:
                ledger.debit(SMALL, note=note)
                paid.append(note)
            except DeliveryError:
                uncertain.append(note)
            except LedgerError:
                refused_notes.append(note)
                ended.wait(0.01)

    threads = [threading.Thread(target=debit, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(KILLS):
        ended.wait(0.3)
        own_server.stop("immediate")
        own_server.start()
    ended.set()
    for thread in threads:
        thread.join()
    notes = [entry.note for entry in PrivacyLedger(url).entries()]
    assert len(notes) == len(set(notes))  # none twice
    assert set(paid) <= set(notes) <= {*paid, *uncertain}  # none lost, and none unpaid
    assert paid
    assert refused_notes
