"""Measure answers a second and latencies of ``darrm serve``, asked one question at a time, on 127.0.0.1 only.

python -m experiments.serve [--clients 32] [--seconds 10] [--folder DIR] prints JSON: the median of three runs.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from darrm import PrivacyLedger, PrivacyParams, Problem, Voters, certify
from darrm.laws import baselines
from darrm.serve.__main__ import TOKEN
from darrm.serve.client import ServeClient
from darrm.serve.clients import Client, add_client
from darrm.system.command_line import CommandLine, run
from darrm.system.extras import require

_PORT = 8799
_READY_SECONDS = 60


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


def ask_all(url: str, token: str, run: str, seconds: float, clients: int) -> list[float]:
    """Let clients ask, each one question at a time; return how long each answer took."""
    taken: list[float] = []

    def ask(number: int) -> None:
        count, until = 0, time.perf_counter() + seconds
        with ServeClient(url, token) as client:
            while time.perf_counter() < until:
                count += 1
                begin = time.perf_counter()
                (one,) = client.ask([{"id": f"{run}-{number}-{count}", "votes": [1, 1, 0]}])
                if one["state"] != "answered":
                    raise SystemExit(f"a question is {one['state']}")
                taken.append(time.perf_counter() - begin)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(taken)


def ask_from_processes(url: str, token: str, run: str, options: argparse.Namespace) -> list[float]:
    """Let four processes share the clients, so that one interpreter is not what is measured."""
    command = [sys.executable, "-m", "experiments.serve", "--as-client", url, run, "--seconds", str(options.seconds)]
    share = str(options.clients // 4)
    several = [
        subprocess.Popen(  # noqa: S603 (ours)
            [*command, "--clients", share, "--number", str(n)], stdout=subprocess.PIPE, env={**os.environ, TOKEN: token}
        )
        for n in range(4)
    ]
    return sorted(value for process in several for value in json.loads(process.communicate()[0]))


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Start a server on a new ledger and measure three times."""
    problem = Problem.from_allowance(Voters(3, PrivacyParams(0.001)), 3)
    certify(problem, baselines.double_subsampling(problem)).save(folder / "table.json")
    PrivacyLedger.create(folder / "ledger.sqlite", PrivacyParams(3000))
    token = add_client(folder / "clients.json", Client("load", "0" * 64, questions=10**6))
    command = [sys.executable, "-m", "darrm.serve", "start", "--quiet", "--rate", "1000000", "--port", str(_PORT)]
    for flag, name in (("--table", "table.json"), ("--ledger", "ledger.sqlite"), ("--clients", "clients.json")):
        command += [flag, str(folder / name)]
    server, url = subprocess.Popen(command), f"http://127.0.0.1:{_PORT}"  # noqa: S603 (ours)
    try:
        for _ in range(_READY_SECONDS * 10):
            try:
                require("httpx").get(f"{url}/health")
                break
            except require("httpx").TransportError:
                time.sleep(0.1)
        runs = [ask_from_processes(url, token, f"run{n}", options) for n in range(3)]
    finally:
        server.terminate()
        server.wait()
    paid = sum(entry.count for entry in PrivacyLedger(folder / "ledger.sqlite").entries())
    entries = len(PrivacyLedger(folder / "ledger.sqlite").entries())
    return {
        "store": "SQLite",
        "clients": options.clients,
        "answers a second": round(median(len(run) / options.seconds for run in runs), 1),
        "p50 milliseconds": round(1000 * median(run[len(run) // 2] for run in runs), 1),
        "p99 milliseconds": round(1000 * median(run[int(0.99 * len(run))] for run in runs), 1),
        "answered": sum(map(len, runs)),
        "paid": paid,
        "debits": entries,
        "sync milliseconds": round(sync_milliseconds(folder), 3),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or be one of the processes that ask."""
    parser = CommandLine(prog="python -m experiments.serve", description=str(__doc__))
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, help="where the ledger lies: on the disk that is meant")
    parser.add_argument("--as-client", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--number", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.as_client:
        url, name = options.as_client
        token = os.environ[TOKEN]
        print(json.dumps(ask_all(url, token, f"{name}-{options.number}", options.seconds, options.clients)))
        return 0
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        print(json.dumps(measure(Path(folder), options), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
