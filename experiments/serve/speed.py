"""Answers a second and latencies of one server, asked one question at a time."""

import os
from collections.abc import Iterator
from pathlib import Path

from experiments.pages import Row
from experiments.serve.load import Load, middle
from experiments.serve.places import STORES, place, sync_milliseconds

PORT = 8799
CLIENTS, RUNS, SERIES = 32, 3, 3


def measure(folder: Path, seconds: float) -> Iterator[Row]:
    """Measure three series, each of three runs."""
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
    """Measure each store, and one client alone; every run says how loaded the machine was."""
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
