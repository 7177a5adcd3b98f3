"""Servers in processes, and clients. A client asks one question at a time, over its own connection.

All clients share one thread and do little work: they only search an answer for ``answered``.
"""

import http.client
import os
import selectors
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from darrm import PrivacyLedger, PrivacyParams, Problem, Voters, certify
from darrm.majority import baselines
from darrm.serve.clients import Client, add_client
from tests.ledger.servers import Server as Postgres

EACH = "0.001"  # of a question 0.003: the three voters' add up
AS_INSTALLED = "-c shared_buffers=128MB -c max_connections=100"  # other tests use less
_READY_SECONDS = 120
STORES = ("SQLite", "PostgreSQL")


@dataclass
class Place:
    folder: Path
    store: str
    postgres: Postgres | None
    ledger: str
    token: str
    servers: "list[Server]" = field(default_factory=list)

    def serve(self, port: int, name: str = "serve") -> "Server":
        server = Server(self, port, name)
        server.start()
        self.servers.append(server)
        return server

    def paid(self) -> int:
        return sum(entry.count for entry in PrivacyLedger(self.ledger).entries())

    def debits(self) -> int:
        return len(PrivacyLedger(self.ledger).entries())


@contextmanager
def open_place(folder: Path, store: str, questions: int) -> Iterator[Place]:
    """Make a place whose budget admits exactly ``questions`` questions; end its processes afterwards."""
    folder.mkdir()
    postgres = None
    if store == "PostgreSQL":
        postgres = Postgres.make(folder)
        postgres.start(AS_INSTALLED)
    ledger = str(folder / "ledger.sqlite") if postgres is None else postgres.url
    problem = Problem.from_allowance(Voters(3, PrivacyParams(EACH)), 3)
    certify(problem, baselines.double_subsampling(problem)).save(folder / "table.json")
    PrivacyLedger.create(ledger, PrivacyParams(f"{3 * questions}e-3"))
    token = add_client(folder / "clients.json", Client("load", "0" * 64, questions=10**9))
    place = Place(folder, store, postgres, ledger, token)
    try:
        yield place
    finally:
        for server in place.servers:
            server.stop()
        if postgres is not None:
            postgres.stop()


@dataclass
class Server:
    place: Place
    port: int
    name: str
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        folder = self.place.folder
        words = ["start", "--quiet", "--port", str(self.port), "--stream", self.name]
        words += ["--table", str(folder / "table.json"), "--clients", str(folder / "clients.json"), "--missing", "coin"]
        words += ["--ledger", self.place.ledger, "--state", str(folder / f"{self.name}.questions")]
        self.process = subprocess.Popen([sys.executable, "-m", "darrm.serve", *words])
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            try:
                link.request("GET", "/health")
                link.getresponse().read()
            except OSError:
                time.sleep(0.02)
            else:
                return
            finally:
                link.close()
        raise SystemExit("the server did not start")

    def kill(self) -> None:
        """End it like a power cut."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """End it like a supervisor."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def status(self) -> dict[str, float]:
        process = self.process
        number = 0 if process is None else process.pid
        pages = int(Path(f"/proc/{number}/statm").read_text(encoding="utf-8").split()[1])
        times = Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
        return {
            "megabytes": pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
            "processor_seconds": sum(map(int, times)) / os.sysconf("SC_CLK_TCK"),
        }


def measure_sync(folder: Path, repeats: int = 200) -> float:
    """Return the median milliseconds to make 4 KiB durable on the disk."""
    times = []
    with (folder / "sync").open("wb") as file:
        for _ in range(repeats):
            file.write(os.urandom(4096))
            file.flush()
            begin = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - begin)
    return 1000 * median(times)


_MAX_SILENCE = 60.0  # seconds


@dataclass
class _Asker:
    link: socket.socket
    number: int
    count: int = 0
    begin: float = 0.0
    received: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True)
class Load:
    """Clients of a server, and how many questions each request has."""

    port: int
    token: str
    name: str  # the prefix of every id
    clients: int = 32
    together: int = 1
    gap: float = 0.0  # seconds between requests, of all clients together; 0: a client asks when it is answered

    def run(self, seconds: float = float("inf"), most: float = float("inf")) -> "Answers":
        """Ask for ``seconds``, or until ``most`` requests are sent; return the answers."""
        answers, begin, sent, asking = Answers(), time.perf_counter(), 0, 0
        with selectors.DefaultSelector() as selector:
            idle = deque(self._connect(selector, number) for number in range(self.clients))
            while True:
                now = time.perf_counter()
                is_over = now - begin >= seconds or sent >= most
                while idle and not is_over and now >= begin + sent * self.gap:
                    self._ask(idle.popleft())
                    sent, asking, is_over = sent + 1, asking + 1, sent + 1 >= most
                if is_over and not asking:
                    break
                pause = begin + sent * self.gap - now if idle and not is_over else _MAX_SILENCE
                events = selector.select(max(0.0, pause))
                if not events and pause == _MAX_SILENCE:
                    raise SystemExit(f"the server was silent for {_MAX_SILENCE:g} seconds")
                for asker in _read_answers(events):
                    answers.add(time.perf_counter() - asker.begin, bytes(asker.received))
                    asker.received.clear()
                    idle.append(asker)
                    asking -= 1
            for asker in idle:
                asker.link.close()
        answers.seconds = time.perf_counter() - begin
        return answers

    def _connect(self, selector: selectors.BaseSelector, number: int) -> _Asker:
        asker = _Asker(socket.create_connection(("127.0.0.1", self.port)), number)
        asker.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(asker.link, selectors.EVENT_READ, asker)
        return asker

    def _ask(self, asker: _Asker) -> None:
        asker.count += 1
        name = f"{self.name}-{asker.number}-{asker.count}"
        rows = ",".join(f'{{"id":"{name}-{n}","votes":[1,1,0]}}' for n in range(self.together))
        body = f"[{rows}]"
        asker.begin = time.perf_counter()
        asker.link.sendall(
            f"POST /ask HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )


def _read_answers(events: list[tuple[selectors.SelectorKey, int]]) -> Iterator[_Asker]:
    """Read from all connections; yield those with a whole answer."""
    for key, _ in events:
        asker: _Asker = key.data
        piece = asker.link.recv(2**20)
        if not piece:
            raise SystemExit("the server hung up")
        asker.received += piece
        head, end, body = asker.received.partition(b"\r\n\r\n")
        if end and len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
            yield asker


@dataclass
class Answers:
    """The seconds of each request, and the numbers of answered and refused questions."""

    times: list[float] = field(default_factory=list)
    answered: int = 0
    refused: int = 0
    seconds: float = 0.0

    def add(self, seconds: float, answer: bytes) -> None:
        """Count an answer; `SystemExit` for an error."""
        answered, refused = answer.count(b'"state":"answered"'), answer.count(b'"state":"refused"')
        if not answered + refused:
            raise SystemExit(f"the server answered {answer[:200]!r}")
        self.times.append(seconds)
        self.answered += answered
        self.refused += refused

    def milliseconds(self, share: float) -> float:
        return 1000 * sorted(self.times)[min(len(self.times) - 1, int(share * len(self.times)))]
