"""What the measures run on: a PostgreSQL of our own, servers as processes, a table of three voters; all in a folder."""

import http.client
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from darrm import PrivacyLedger, PrivacyParams, Problem, Voters, certify
from darrm.majority import baselines
from darrm.serve.clients import Client, add_client

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/nowhere"))
EACH = "0.001"  # of a question 0.003: the three voters' add up
_READY_SECONDS = 120
STORES = ("SQLite", "PostgreSQL")


@dataclass
class Postgres:
    """Debian's PostgreSQL in a folder, reached by a socket there; as it is installed, fsync and all."""

    folder: Path
    as_user: tuple[str, ...] = ()

    @classmethod
    def make(cls, folder: Path) -> "Postgres":
        """Make an empty cluster and start it."""
        folder.mkdir()
        made = cls(folder)
        if os.getuid() == 0:  # the server refuses to run as root
            shutil.chown(folder, "postgres")
            for parent in [folder.parent]:
                parent.chmod(0o755)
            made.as_user = ("runuser", "-u", "postgres", "--")
        made.program("initdb", "-D", folder / "data", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        made.start()
        return made

    def program(self, name: str, *arguments: object) -> None:
        """Run a program of PostgreSQL's."""
        line = [*self.as_user, PROGRAMS / name, *arguments]
        subprocess.run([*map(str, line)], check=True, stdout=subprocess.DEVNULL, cwd="/")  # noqa: S603 (ours)

    def start(self) -> None:
        """Start it."""
        settings = f"-k {self.folder} -c listen_addresses=''"
        self.program("pg_ctl", "-D", self.folder / "data", "-l", self.folder / "log", "-w", "-o", settings, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it; ``immediate`` is what a power cut leaves."""
        self.program("pg_ctl", "-D", self.folder / "data", "-w", "-m", mode, "stop")

    @property
    def url(self) -> str:
        """Where the ledger is."""
        return f"postgresql:///postgres?host={self.folder}&user=postgres"


@dataclass
class Place:
    """A folder with a table, a ledger and one client who may ask anything."""

    folder: Path
    store: str
    postgres: Postgres | None
    ledger: str
    token: str
    servers: "list[Server]" = field(default_factory=list)

    def serve(self, port: int, name: str = "serve") -> "Server":
        """Start a server with a stream and a file of questions of its own, and wait until it listens."""
        server = Server(self, port, name)
        server.start()
        self.servers.append(server)
        return server

    def paid(self) -> int:
        """Count the questions that the ledger paid for."""
        return sum(entry.count for entry in PrivacyLedger(self.ledger).entries())

    def debits(self) -> int:
        """Count the entries of the ledger."""
        return len(PrivacyLedger(self.ledger).entries())


@contextmanager
def place(folder: Path, store: str, questions: int) -> Iterator[Place]:
    """Make a place whose budget admits exactly so many questions; end its processes afterwards."""
    folder.mkdir()
    postgres = Postgres.make(folder / "postgres") if store == "PostgreSQL" else None
    ledger = str(folder / "ledger.sqlite") if postgres is None else postgres.url
    problem = Problem.from_allowance(Voters(3, PrivacyParams(EACH)), 3)
    certify(problem, baselines.double_subsampling(problem)).save(folder / "table.json")
    PrivacyLedger.create(ledger, PrivacyParams(f"{3 * questions}e-3"))
    token = add_client(folder / "clients.json", Client("load", "0" * 64, questions=10**9))
    made = Place(folder, store, postgres, ledger, token)
    try:
        yield made
    finally:
        for server in made.servers:
            server.stop()
        if postgres is not None:
            postgres.stop("immediate")


@dataclass
class Server:
    """`darrm serve` as a process."""

    place: Place
    port: int
    name: str
    process: subprocess.Popen[bytes] | None = None

    def words(self) -> list[str]:
        """Return the words of its command line."""
        folder = self.place.folder
        words = ["start", "--quiet", "--port", str(self.port), "--stream", self.name]
        words += ["--table", str(folder / "table.json"), "--clients", str(folder / "clients.json"), "--missing", "coin"]
        return [*words, "--ledger", self.place.ledger, "--state", str(folder / f"{self.name}.questions")]

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.process = subprocess.Popen([sys.executable, "-m", "darrm.serve", *self.words()])  # noqa: S603 (ours)
        until = time.monotonic() + _READY_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
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
        """End it as a power cut does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """End it as a supervisor does."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def status(self) -> dict[str, float]:
        """Return its resident megabytes and the processor seconds it used."""
        process = self.process
        number = 0 if process is None else process.pid
        pages = int(Path(f"/proc/{number}/statm").read_text(encoding="utf-8").split()[1])
        times = Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
        return {
            "megabytes": pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
            "processor_seconds": sum(map(int, times)) / os.sysconf("SC_CLK_TCK"),
        }


def sync_milliseconds(folder: Path, times: int = 200) -> float:
    """Return the median of what the disk takes to make 4 KiB durable."""
    taken = []
    with (folder / "sync").open("wb") as file:
        for _ in range(times):
            file.write(os.urandom(4096))
            file.flush()
            begin = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - begin)
    return 1000 * median(taken)
