"""Answers a second and latencies, memory at a fixed rate, and servers that share one budget."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from experiments.pages import Row
from tests.load.processes import STORES, Answers, Load, middle, place, sync_milliseconds

PORT = 8799
CLIENTS, RUNS, SERIES = 32, 3, 3


def speed(folder: Path, seconds: float) -> Iterator[Row]:
    several = []
    for number in range(SERIES):
        (folder / str(number)).mkdir(mode=0o755)
        several.append(list(one_series(folder / str(number), seconds)))
    yield from in_the_middle(several)


def in_the_middle(several: list[list[Row]]) -> Iterator[Row]:
    """Yield for each store the series with the middle number of answers, and what all gave."""
    for rows in zip(*several, strict=True):
        ordered = sorted(rows, key=lambda row: row["answers_a_second"])
        yield ordered[len(ordered) // 2] | {"series": [row["answers_a_second"] for row in rows]}


def one_series(folder: Path, seconds: float) -> Iterator[Row]:
    for store in STORES:
        with place(folder / store, store, 10**6) as here:
            server = here.serve(PORT)
            Load(PORT, here.token, "warm", CLIENTS).run(1.0)
            before, runs, loads = server.status()["processor_seconds"], [], []
            for number in range(RUNS):
                runs.append(Load(PORT, here.token, f"run{number}", CLIENTS).run(seconds))
                loads.append(os.getloadavg()[0])
            processor = server.status()["processor_seconds"] - before
            alone = Load(PORT, here.token, "alone", 1).run(seconds / 2)
            yield {
                "store": store,
                "clients": CLIENTS,
                **middle(runs),
                "each": [run.answered / run.seconds for run in runs],
                "alone_p50_milliseconds": alone.milliseconds(0.5),
                "processor_milliseconds": 1000 * processor / sum(run.answered for run in runs),
                "paid": here.paid(),
                "debits": here.debits(),
                "sync_milliseconds": sync_milliseconds(folder),
                "loads": loads,
            }


PARTS = 12
_RATE = {"SQLite": 250.0, "PostgreSQL": 400.0}  # questions a second


def soak(folder: Path, seconds: float) -> Iterator[Row]:
    """Ask at a fixed rate, and note the memory a dozen times: first after a minute, or what there is."""
    for store in STORES:
        with place(folder / f"soak{store}", store, 10**7) as here:
            server, noted, answered = here.serve(PORT), [], 0
            taken: list[float] = []
            for part in range(PARTS + 1):
                load = Load(PORT, here.token, f"part{part}", gap=1 / _RATE[store])
                answers = load.run(seconds / PARTS)
                noted.append(server.status()["megabytes"])
                answered, taken = answered + answers.answered, taken + answers.taken
            yield {
                "store": store,
                "minutes": seconds * (PARTS + 1) / PARTS / 60,
                "rate": _RATE[store],
                "answered": answered,
                "p99_milliseconds": 1000 * sorted(taken)[int(0.99 * len(taken))],
                "begin_megabytes": noted[0],
                "end_megabytes": noted[-1],
                "megabytes": noted,
                "load": os.getloadavg()[0],
            }


SERVERS, RACERS = 4, 16


def race(folder: Path, budget: int, together: int) -> Row:
    """Ask twice the budget, in requests of ``together`` questions; count the answered, refused and paid ones."""
    requests = 2 * budget // (together * SERVERS)
    with place(folder / "race", "PostgreSQL", budget) as here:
        for number in range(SERVERS):
            here.serve(PORT + number, f"server{number}")
        begin = time.perf_counter()
        with ProcessPoolExecutor(SERVERS) as pool:
            several = [
                pool.submit(ask, Load(PORT + number, here.token, f"s{number}", RACERS, together), requests)
                for number in range(SERVERS)
            ]
            answers = [one.result() for one in several]
        return {
            "budget": budget,
            "asked": requests * together * SERVERS,
            "together": together,
            "servers": SERVERS,
            "answered": sum(one.answered for one in answers),
            "refused": sum(one.refused for one in answers),
            "paid": here.paid(),
            "debits": here.debits(),
            "seconds": time.perf_counter() - begin,
            "load": os.getloadavg()[0],
        }


def ask(load: Load, requests: int) -> Answers:
    return load.run(most=requests)
