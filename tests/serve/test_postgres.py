"""A server on a ledger in PostgreSQL that goes away, reads only, is full, or loses the answer to a commit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from darrm import PrivacyLedger, PrivacyParams
from darrm.serve.worker import Deployment
from tests.ledger.servers import Server
from tests.ledger.servers import running as postgres
from tests.serve.deployments import ask, deployment, paid, read, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as running_server:
        yield running_server


def deploy(server: Server, folder: Path) -> Deployment:
    url = server.empty()
    PrivacyLedger.create(url, PrivacyParams(30))
    return deployment(folder, ledger=url)


def test_questions_wait_for_a_database_that_is_away_or_reads_only_and_are_paid_for_once(tmp_path: Path) -> None:
    with postgres() as server, running(deployed := deploy(server, tmp_path)) as worker:
        ask(worker, "q0")
        row = read(worker, "q0")
        server.stop("immediate")
        ask(worker, "q1")
        trouble = worker.wait_for_trouble()
        assert "nothing was released" in trouble
        assert "127.0.0.1" not in trouble
        server.start()
        assert read(worker, "q1")["state"] == "answered"
        server.stop("fast")
        server.start("-c default_transaction_read_only=on")
        ask(worker, "q2")
        assert "nothing was debited" in worker.wait_for_trouble()
        server.stop("fast")
        server.start()
        assert read(worker, "q2")["state"] == "answered"
        assert not worker.trouble
        assert read(worker, "q0") == row
        assert paid(deployed) == ["q0", "q1", "q2"]


@pytest.mark.parametrize("name", ["DiskFull", "SerializationFailure", "AdminShutdown", "OperationalError"])
@pytest.mark.parametrize("step", ["INSERT INTO entries", "COMMIT"])
def test_a_debit_that_fails_is_repeated_and_paid_for_once(
    name: str, step: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    psycopg = pytest.importorskip("psycopg")
    deployed, execute = deploy(server, tmp_path), psycopg.Connection.execute
    failures: list[str] = []

    def fail_twice(link: Any, statement: str, *values: Any) -> Any:
        is_in_transaction = link.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        if step not in statement or len(failures) == 2 or not is_in_transaction:
            return execute(link, statement, *values)
        failures.append(statement)
        if step == "COMMIT" and len(failures) == 2:
            execute(link, statement, *values)  # the answer is lost, the commit is not
        raise getattr(psycopg.errors, name, psycopg.OperationalError)("once")

    with running(deployed) as worker:
        monkeypatch.setattr(psycopg.Connection, "execute", fail_twice)
        for n in range(3):
            ask(worker, f"q{n}")
        assert all(read(worker, f"q{n}")["state"] == "answered" for n in range(3))
    assert len(failures) == 2
    assert sorted(paid(deployed)) == ["q0", "q1", "q2"]
