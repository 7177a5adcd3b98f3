"""Kill servers, clients and PostgreSQL while questions are asked, and count the faults."""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from darrm import PrivacyLedger
from darrm.serve.client import ServeClient, ServerRefusedError
from experiments.pages import Row
from tests.load.processes import AS_INSTALLED, STORES, Place, place

PORT, ASKERS, SEED = 8770, 4, 20
_LONGEST_LIFE = 0.25  # seconds
_VICTIMS = {"SQLite": ("server", "client"), "PostgreSQL": ("server", "client", "PostgreSQL")}
Labels = list[tuple[str, int]]  # ids and labels


def measure(folder: Path, kills: int) -> Iterator[Row]:
    """Kill ``kills`` processes of each store, in turn, and look at every id that was asked."""
    for store in STORES:
        with place(folder / f"kills{store}", store, 10**7) as here:
            begin = time.perf_counter()
            several, counted = _kill(here, store, kills)
            yield {"store": store, "kills": kills, "victims": counted, **_look(here, several)} | {
                "seconds": time.perf_counter() - begin,
                "load": os.getloadavg()[0],
            }


def _kill(here: Place, store: str, kills: int) -> tuple[list[tuple[int, Labels]], dict[str, int]]:
    stop, dice, server = threading.Event(), random.Random(SEED), here.serve(PORT)  # noqa: S311 (repeated)
    victims: list[str] = []
    with ThreadPoolExecutor(ASKERS) as pool:
        asking = [pool.submit(_ask, here.token, number, stop) for number in range(ASKERS)]
        try:
            for number in range(kills):
                victims.append(_VICTIMS[store][number % len(_VICTIMS[store])])
                time.sleep(dice.uniform(0.02, _LONGEST_LIFE))
                if victims[-1] == "server":
                    server.kill()
                    server.start()
                elif victims[-1] == "client":
                    _client_that_dies(here, f"dead{number}", dice.uniform(0.02, _LONGEST_LIFE))
                elif here.postgres is not None:
                    here.postgres.stop()
                    here.postgres.start(AS_INSTALLED)
        finally:
            stop.set()
        several = [one.result() for one in asking]
    server.kill()
    return several, dict(Counter(victims))


def _ask(token: str, number: int, stop: threading.Event) -> tuple[int, Labels]:
    """Ask question after question, each until it has its label, and old ones again; return all labels."""
    dice, asked, labels = random.Random(SEED + number), 0, list[tuple[str, int]]()  # noqa: S311 (repeated)
    with ServeClient(f"http://127.0.0.1:{PORT}", token, attempts=1, timeout=5.0) as client:
        while not stop.is_set():
            asked += 1
            rows = [{"id": f"a{number}-{each}", "votes": [1, 1, 0]} for each in {asked, dice.randint(1, asked)}]
            while not stop.is_set():
                try:
                    answers = client.ask(rows)
                    labels += [(one["id"], one["label"]) for one in answers if one["state"] == "answered"]
                    break
                except (httpx.TransportError, ServerRefusedError):
                    time.sleep(0.02)
    return asked, labels


def _client_that_dies(here: Place, name: str, seconds: float) -> None:
    words = f"from tests.load.processes import Load; Load({PORT}, '{here.token}', '{name}', 4).run(60)"
    with subprocess.Popen([sys.executable, "-c", words], stderr=subprocess.DEVNULL) as client:
        time.sleep(0.5 + seconds)
        client.kill()


def _look(here: Place, several: Sequence[tuple[int, Labels]]) -> Row:
    server = here.serve(PORT)
    paid = Counter(name for entry in PrivacyLedger(here.ledger).entries() for name in entry.questions)
    labels: dict[str, set[int]] = {}
    for _, answers in several:
        for name, label in answers:
            labels.setdefault(name, set()).add(label)
    lost = 0
    with ServeClient(f"http://127.0.0.1:{server.port}", here.token) as client:
        for name in paid:
            row = client.read(name, wait=30)
            lost += row["state"] != "answered"
            labels.setdefault(name, set()).add(row.get("label", -1))
    return {
        "asked": sum(asked for asked, _ in several),
        "answers": sum(len(answers) for _, answers in several),
        "paid": len(paid),
        "paid_twice": sum(times > 1 for times in paid.values()),
        "two_labels": sum(len(each) > 1 for each in labels.values()),
        "unpaid": sum(name not in paid for name in labels),
        "lost": lost,
    }
