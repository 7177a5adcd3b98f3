"""Half load for a while: what the server's memory does."""

import os
from collections.abc import Iterator
from pathlib import Path

from experiments.pages import Row
from experiments.serve.load import Load
from experiments.serve.places import STORES, place

PORT, PARTS = 8780, 12
_HALF = {"SQLite": 250.0, "PostgreSQL": 400.0}  # questions a second: about half of what a machine in use answers


def measure(folder: Path, seconds: float) -> Iterator[Row]:
    """Ask at half load, and note the memory a dozen times: first after a minute, or what there is."""
    for store in STORES:
        with place(folder / f"soak{store}", store, 10**7) as here:
            server, noted, answered = here.serve(PORT), [], 0
            taken: list[float] = []
            for part in range(PARTS + 1):
                load = Load(PORT, here.token, f"part{part}", gap=1 / _HALF[store])
                answers = load.run(seconds / PARTS)
                noted.append(server.status()["megabytes"])
                answered, taken = answered + answers.answered, taken + answers.taken
            yield {
                "store": store,
                "minutes": seconds * (PARTS + 1) / PARTS / 60,
                "rate": _HALF[store],
                "answered": answered,
                "p99_milliseconds": 1000 * sorted(taken)[int(0.99 * len(taken))],
                "begin_megabytes": noted[0],
                "end_megabytes": noted[-1],
                "megabytes": noted,
                "load": os.getloadavg()[0],
            }
