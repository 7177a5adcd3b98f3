"""A server on a ledger in PostgreSQL that goes away, reads only, is full, or is written to by others."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from darrm import PrivacyLedger, PrivacyParams
from darrm.serve.questions import VoteSchema
from darrm.serve.worker import Deployment
from darrm.table.release import Release
from tests.ledger.servers import Server
from tests.ledger.servers import running as servers
from tests.serve.deployments import Running, ask, paid, read, running, table


def on(url: str, folder: Path) -> Deployment:
    PrivacyLedger.create(url, PrivacyParams(30))
    return Deployment(Release(table()), url, folder / "state", VoteSchema(3, 2, "coin"))


def until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with servers() as made:
        yield made


def trouble(worker: Running, ended: str) -> str:
    """Ask what cannot be answered now; return the worker's words."""
    ask(worker, ended)
    until(lambda: worker.trouble)
    return worker.trouble


@pytest.mark.slow
def test_what_waits_while_the_database_is_away_or_reads_only_is_answered_once(tmp_path: Path) -> None:
    with servers() as own_server:
        _go_away_and_come_back(own_server, tmp_path)


def _go_away_and_come_back(own_server: Server, tmp_path: Path) -> None:
    what = on(own_server.empty(), tmp_path)
    with running(what) as worker:
        ask(worker, "q0")
        first = read(worker, "q0")
        own_server.stop("immediate")
        assert "nothing was released" in trouble(worker, "q1")
        assert "127.0.0.1" not in worker.trouble
        own_server.start()
        assert read(worker, "q1")["state"] == "answered"
        own_server.stop("fast")
        own_server.start("-c default_transaction_read_only=on")
        assert "nothing was debited" in trouble(worker, "q2")
        own_server.stop("fast")
        own_server.start()
        assert read(worker, "q2")["state"] == "answered"
        assert not worker.trouble
        assert read(worker, "q0") == first
    assert paid(what) == ["q0", "q1", "q2"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DiskFull", "SerializationFailure", "AdminShutdown", "OperationalError"])
@pytest.mark.parametrize("at", ["INSERT INTO entries", "COMMIT"])
def test_a_debit_that_fails_is_made_again_and_none_twice(
    name: str, at: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    what, execute = on(server.empty(), tmp_path), psycopg.Connection.execute
    failed: list[str] = []

    def fails(link: Any, statement: str, *values: Any) -> Any:
        if at in statement and len(failed) < 2 and link.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
            failed.append(statement)
            if at == "COMMIT" and len(failed) == 2:
                execute(link, statement, *values)  # the answer is lost, the commit is not
            raise getattr(psycopg.errors, name, psycopg.OperationalError)("once")
        return execute(link, statement, *values)

    with running(what) as worker:
        monkeypatch.setattr(psycopg.Connection, "execute", fails)
        for n in range(3):
            ask(worker, f"q{n}")
        assert all(read(worker, f"q{n}")["state"] == "answered" for n in range(3))
    assert len(failed) == 2
    assert sorted(paid(what)) == ["q0", "q1", "q2"]
