"""Deployments for tests: three voters, a ledger with a budget for some questions, clients, workers and servers."""

import asyncio
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest

from darrm import PrivacyLedger, PrivacyParams, Problem, Table, Voters, certify
from darrm.majority import baselines
from darrm.serve.clients import Client, add_client
from darrm.serve.questions import WAITING, Questions, VoteSchema
from darrm.serve.requests import Question
from darrm.serve.worker import AnswerWorker, Deployment
from darrm.table.release import Release

ROOT = Path(__file__).parents[2]
ASKER = Client("study", "0" * 64, questions=1000)
P = ParamSpec("P")
T = TypeVar("T")


def table() -> Table:
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.01")), 3)
    return certify(problem, baselines.double_subsampling(problem))


def deployment(
    folder: Path, fit: int = 1000, missing: str = "coin", name: str = "state", ledger: str | None = None
) -> Deployment:
    """Make a deployment whose budget admits exactly ``fit`` questions: their ε add up, and δ is 0."""
    path = ledger or str(folder / "ledger.sqlite")
    if ledger is None and not Path(path).exists():
        PrivacyLedger.create(path, PrivacyParams(f"{3 * fit}e-2"))
    return Deployment(Release(table()), path, folder / name, VoteSchema(3, 2, missing))


class Running:
    """A worker in a separate event loop, for use from threads."""

    def __init__(self, deployed: Deployment, report: Callable[[str], object] = lambda _: None) -> None:
        self.worker = AnswerWorker(deployed, report)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.loop.call_soon_threadsafe(self.worker.start)

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def do(self, method: Callable[Concatenate[Questions, P], T], *values: P.args, **keywords: P.kwargs) -> T:
        return self.begin(self.worker.do(method, *values, **keywords)).result(30)

    def stop(self) -> None:
        self.begin(self.worker.stop()).result(60)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    @property
    def trouble(self) -> str:
        return self.worker.trouble

    def wait_for_trouble(self) -> str:
        """Return why nothing is answered, once that is so."""
        wait_until(lambda: self.trouble)
        return self.trouble


@contextmanager
def running(deployed: Deployment, report: Callable[[str], object] = lambda _: None) -> Iterator[Running]:
    worker = Running(deployed, report)
    try:
        yield worker
    finally:
        worker.stop()


def ask(worker: Running, name: str, client: Client = ASKER, **fields: Any) -> bool:
    return worker.do(Questions.ask, Question(id=name, **(fields or {"votes": [1, 1, 0]})), client, 1000)


def vote(worker: Running, name: str, voter: int, value: object) -> bool:
    return worker.do(Questions.vote, name, voter, value)


def read(worker: Running, name: str) -> dict[str, Any]:
    """Return the question when it is finished."""

    async def wait_for_end() -> dict[str, Any]:
        outcome = worker.worker.wait_for(name)
        row = await worker.worker.do(Questions.find_row, name) or {}
        return await outcome if row.get("state", "open") in WAITING else row

    return worker.begin(wait_for_end()).result(30)


def answer(worker: Running, name: str, **fields: Any) -> dict[str, Any]:
    """Ask a question with all its votes; return it when it is finished."""
    ask(worker, name, **fields)
    return read(worker, name)


def vote_all(worker: Running, name: str) -> dict[str, Any]:
    """Let all three voters vote for 1; return the question when it is finished."""
    for voter in (1, 2, 3):
        vote(worker, name, voter, 1)
    return read(worker, name)


def paid(deployed: Deployment) -> list[str]:
    """List the question ids of all debits of the ledger."""
    return [name for entry in PrivacyLedger(deployed.ledger).entries() for name in entry.questions]


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for_server(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a process answers on a port; kill it and fail if it does not."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
                with suppress(ConnectionError):  # of a server that wants TLS
                    link.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                    link.recv(1)  # it listens before it answers
                return
        except OSError:
            time.sleep(0.02)
    process.kill()
    raise AssertionError(process.communicate()[1])


def tokens_of(path: Path) -> dict[str, str]:
    """Make a file of clients: three voters, an asker, two askers of a project with small limits, and a reader."""
    clients = [Client(f"voter{n}", "0" * 64, voter=n) for n in (1, 2, 3)]
    clients += [Client("study", "0" * 64, questions=1000), Client("reader", "0" * 64, reads=True)]
    clients += [Client(f"small{n}", "0" * 64, questions=2, project="p", project_questions=3) for n in (1, 2)]
    return {client.name: add_client(path, client) for client in clients}


def certificate_of(folder: Path) -> tuple[Path, Path]:
    """Make a self-signed certificate of this machine, and its key."""
    pytest.importorskip("cryptography", reason="makes the certificate")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(1)
    )
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = builder.add_extension(address, critical=True).sign(key, hashes.SHA256())
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    encoding = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths[1].write_bytes(key.private_bytes(*encoding))
    return paths
