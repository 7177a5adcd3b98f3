"""Answers a second and latencies of one server, asked one question at a time."""

import os
from collections.abc import Iterator
from pathlib import Path

from experiments.pages import Row
from experiments.serve.load import Load, middle
from experiments.serve.places import STORES, place, sync_milliseconds

PORT = 8799
CLIENTS, RUNS = 32, 3


def measure(folder: Path, seconds: float) -> Iterator[Row]:
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
