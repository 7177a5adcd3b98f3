"""Kill servers, clients and PostgreSQL while questions are asked, and count what went wrong.

A server starts as a fork of a process that has read the library, so that a kill takes a fraction of a second.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from darrm import PrivacyLedger
from darrm.serve.client import ServeClient, ServerRefusedError
from experiments.pages import Row
from experiments.serve.load import STORES, Place, Server, place

PORT, ASKERS, SEED = 8770, 4, 20
_LONGEST_LIFE = 0.25  # seconds
_VICTIMS = {"SQLite": ("server", "client"), "PostgreSQL": ("server", "client", "PostgreSQL")}


@dataclass
class _Asker(threading.Thread):
    """Asks question after question, each until it has its label, whatever dies, and old ones again."""

    port: int
    token: str
    number: int
    stop: threading.Event
    labels: list[tuple[str, int]] = field(default_factory=list)
    asked: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        """Ask until it is stopped."""
        dice = random.Random(SEED + self.number)  # noqa: S311 (repeated)
        with ServeClient(f"http://127.0.0.1:{self.port}", self.token, attempts=1, timeout=5.0) as client:
            while not self.stop.is_set():
                self.asked += 1
                numbers = {self.asked, dice.randint(1, self.asked)}
                rows = [{"id": f"a{self.number}-{number}", "votes": [1, 1, 0]} for number in numbers]
                while not self.stop.is_set():
                    try:
                        answers = client.ask(rows)
                        self.labels += [(one["id"], one["label"]) for one in answers if one["state"] == "answered"]
                        break
                    except (httpx.TransportError, ServerRefusedError):
                        time.sleep(0.02)


@dataclass
class _Nursery:
    """A process that forks servers; each is killed by its number."""

    here: Place
    process: subprocess.Popen[str] = field(init=False)
    pid: int = 0

    def __post_init__(self) -> None:
        line = [sys.executable, "-c", "import sys; from experiments.serve.kills import nurse; nurse(sys.stdin)"]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603 (ours)

    def start(self) -> None:
        """Fork a server, and wait until it listens."""
        words = Server(self.here, PORT, "serve").words()
        stdin, stdout = self.process.stdin, self.process.stdout
        if stdin is None or stdout is None:
            raise SystemExit("the nursery has no pipes")
        stdin.write(json.dumps(words) + "\n")
        stdin.flush()
        self.pid = int(stdout.readline())

    def kill(self) -> None:
        """End the server as a power cut does."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        if self.process.stdout is not None:
            self.process.stdout.readline()  # it is dead

    def close(self) -> None:
        """End the process."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


def nurse(lines: Sequence[str] | Iterator[str]) -> None:
    """Fork a server for each line, and say its number, and when it is dead."""
    import darrm.serve.app  # noqa: PLC0415 (read once, before the forks)
    import darrm.serve.server  # noqa: PLC0415, F401 (as above)
    from darrm.serve.__main__ import main  # noqa: PLC0415 (as above)

    for line in lines:
        pid = os.fork()
        if not pid:
            with suppress(BaseException):
                main(json.loads(line))
            os._exit(0)
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("dead", flush=True)


def measure(folder: Path, kills: int) -> Iterator[Row]:
    """Kill each store's processes so often, in turn, and look at every id that was asked."""
    for store in STORES:
        with place(folder / f"kills{store}", store, 10**7) as here:
            begin = time.perf_counter()
            several, counted = _kill(here, store, kills)
            yield {"store": store, "kills": kills, "victims": counted, **_look(here, several)} | {
                "seconds": time.perf_counter() - begin,
                "load": os.getloadavg()[0],
            }


def _kill(here: Place, store: str, kills: int) -> tuple[list[_Asker], dict[str, int]]:
    """Kill one victim after the other while four askers ask."""
    stop, dice, nursery = threading.Event(), random.Random(SEED), _Nursery(here)  # noqa: S311 (repeated)
    several = [_Asker(PORT, here.token, number, stop) for number in range(ASKERS)]
    nursery.start()
    for asker in several:
        asker.start()
    victims: list[str] = []
    try:
        for number in range(kills):
            victims.append(_VICTIMS[store][number % len(_VICTIMS[store])])
            time.sleep(dice.uniform(0.02, _LONGEST_LIFE))
            if victims[-1] == "server":
                nursery.kill()
                nursery.start()
            elif victims[-1] == "client":
                _client_that_dies(here, f"dead{number}", dice.uniform(0.02, _LONGEST_LIFE))
            elif here.postgres is not None:
                here.postgres.stop("immediate")
                here.postgres.start()
    finally:
        stop.set()
        for asker in several:
            asker.join()
        nursery.kill()
        nursery.close()
    return several, dict(Counter(victims))


def _client_that_dies(here: Place, name: str, seconds: float) -> None:
    """Start a client that asks as fast as it can, and kill it."""
    words = f"from experiments.serve.load import Load; Load({PORT}, '{here.token}', '{name}', 4).run(60)"
    with subprocess.Popen([sys.executable, "-S", "-c", words], stderr=subprocess.DEVNULL) as client:  # noqa: S603 (ours)
        time.sleep(0.1 + seconds)
        client.kill()


def _look(here: Place, several: list[_Asker]) -> Row:
    """Restart, read every id that was asked or paid for, and count the faults."""
    server = here.serve(PORT)
    paid = Counter(name for entry in PrivacyLedger(here.ledger).entries() for name in entry.questions)
    labels: dict[str, set[int]] = {}
    for asker in several:
        for name, label in asker.labels:
            labels.setdefault(name, set()).add(label)
    lost = 0
    with ServeClient(f"http://127.0.0.1:{server.port}", here.token) as client:
        for name in paid:
            row = client.read(name, wait=30)
            lost += row["state"] != "answered"
            labels.setdefault(name, set()).add(row.get("label", -1))
    return {
        "asked": sum(asker.asked for asker in several),
        "answers": sum(len(asker.labels) for asker in several),
        "paid": len(paid),
        "paid_twice": sum(times > 1 for times in paid.values()),
        "two_labels": sum(len(each) > 1 for each in labels.values()),
        "unpaid": sum(name not in paid for name in labels),
        "lost": lost,
    }
