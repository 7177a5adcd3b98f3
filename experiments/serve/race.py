"""Four servers on one budget in PostgreSQL, asked for twice what it admits."""

import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from experiments.pages import Row
from experiments.serve.load import Answers, Load
from experiments.serve.places import place

PORT, SERVERS, CLIENTS = 8790, 4, 16


def measure(folder: Path, budget: int, together: int) -> Row:
    """Ask twice the budget, in requests of so many questions; count what was answered, refused and paid for."""
    requests = 2 * budget // (together * SERVERS)
    with place(folder / "race", "PostgreSQL", budget) as here:
        for number in range(SERVERS):
            here.serve(PORT + number, f"server{number}")
        begin = time.perf_counter()
        with ProcessPoolExecutor(SERVERS) as pool:
            several = [
                pool.submit(ask, Load(PORT + number, here.token, f"s{number}", CLIENTS, together), requests)
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
    """Ask one server."""
    return load.run(most=requests)
