"""How fast votes in Parquet files are released, in this process and on Dask workers of this machine.

Writes OUTPUT/partitions/throughput.json and the page OUTPUT/partitions.md made from it.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from darrm.aggregator import load_release
from darrm.commands.command_line import run
from darrm.ledger.ledger import PrivacyLedger
from darrm.optimize.optimizer import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.release.partitions import survey
from darrm.table.release import Release
from darrm.util.extras import require
from experiments import pages
from experiments.pages import Row

VOTERS, FILES = 250, 8
WORKERS = (0, 1, 2, 4)  # none: this process
KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "booleans": lambda votes: votes.astype(bool),
    "bytes": lambda votes: votes.astype(np.int8),
    "text": lambda votes: require("pyarrow").DictionaryArray.from_arrays(votes.astype(np.int8), ["no", "yes"]),
}
NAMES = {"text": ("no", "yes")}


def measure(folder: Path, rows: int) -> Iterator[Row]:
    problem = Problem.from_allowance(Voters(VOTERS, PrivacyParams("0.1")), 10)
    Release(optimize_table(problem, shape="monotone")).table.save(folder / "table.json")
    for kind in KINDS:
        _write_votes(folder / kind, kind, rows)
        size = sum(path.stat().st_size for path in (folder / kind).iterdir())
        for workers in WORKERS:
            with _engine(workers) as (call, cluster):
                figures = call(_release, folder, kind, cluster)
            yield {"kind": kind, "workers": workers, "megabytes": size / 1e6, **figures}


def _write_votes(folder: Path, kind: str, rows: int) -> None:
    arrow, parquet = require("pyarrow"), require("pyarrow.parquet")
    folder.mkdir()
    rng = np.random.default_rng(0)
    for index in range(FILES):
        columns = [KINDS[kind](rng.integers(0, 2, rows)) for _ in range(VOTERS)]
        parquet.write_table(arrow.table(columns, names=[f"v{k}" for k in range(VOTERS)]), folder / f"{index}.parquet")


@contextmanager
def _engine(workers: int) -> Iterator[tuple[Callable[..., Any], Any]]:
    """Yield a function that calls functions, in a new process if there are no workers, and the cluster."""
    if not workers:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            yield lambda *call: pool.submit(*call).result(), None
        return
    distributed = require("distributed")
    with (
        distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        require("joblib").parallel_config("dask"),
    ):
        client.run(_load)
        yield lambda function, *call: function(*call), client


def _load() -> None:
    require("pyarrow.parquet")
    require("pyarrow.compute")


def _release(folder: Path, kind: str, cluster: Any) -> dict[str, float]:
    """Release the votes of one kind; return the seconds of both passes, of the processors, and the peak of memory."""

    def run_everywhere(function: Callable[[], float]) -> list[float]:
        return [] if cluster is None else list(cluster.run(function).values())

    _load()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        ledger = PrivacyLedger.create(Path(name) / "l.sqlite", PrivacyParams(10**9, "0.1"))
        before, start = time.process_time() + sum(run_everywhere(time.process_time)), time.perf_counter()
        output = Path(name) / "labels"
        aggregator = load_release(folder / "table.json")
        jobs = 1 if cluster is None else None  # as many as the cluster has
        pending = survey(aggregator, folder / kind, output, classes=NAMES.get(kind), jobs=jobs)
        middle = time.perf_counter()
        pending.release(ledger, jobs=jobs)
        end, after = time.perf_counter(), time.process_time() + sum(run_everywhere(time.process_time))
    return {
        "survey_seconds": middle - start,
        "draw_seconds": end - middle,
        "processor_seconds": after - before,
        "peak_megabytes": max(run_everywhere(_measure_peak) or [_measure_peak()]),
    }


def _measure_peak() -> float:
    """Return the peak of this process in megabytes, without that of its parent."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6


NAME = "partitions"
ROWS, ROWS_QUICK, MANY_ROWS = 50_000, 2_000, 10**8  # of a file; of an extrapolation
TWICE, MOST_MEGABYTES = 1.6, 512  # the aims: two workers against one, and the memory of a process


def main(arguments: Sequence[str] | None = None) -> int:
    quick = f"{ROWS_QUICK:,} rows a file instead of {ROWS:,}"
    options = pages.make_command_line(NAME, __doc__, module="tests.load.partitions", quick=quick).parse_args(arguments)

    def measured() -> Row:
        rows = ROWS_QUICK if options.quick else ROWS
        with tempfile.TemporaryDirectory() as name:
            figures = list(measure(Path(name), rows))
        return {"cores": os.cpu_count(), "voters": VOTERS, "files": FILES, "rows": rows * FILES, "measured": figures}

    return pages.run_measurement(options, f"{NAME}/throughput.json", measured, page)


def page(data: Row) -> str:
    rows, votes = data["rows"], data["rows"] * data["voters"] / 1e6
    for row in data["measured"]:
        seconds = row["survey_seconds"] + row["draw_seconds"]
        row |= {
            "seconds": seconds,
            "workers": row["workers"] or "none",
            "rows_a_second": rows / seconds,
            "votes_a_second": votes / seconds,
            "votes_a_processor_second": votes / row["processor_seconds"],
            "busy": row["processor_seconds"] / seconds,
            "minutes_for_many": MANY_ROWS * seconds / rows / 60.0,
        }
    one, two = ([row["seconds"] for row in data["measured"] if row["workers"] == workers] for workers in (1, 2))
    speeds = [alone / both for alone, both in zip(one, two, strict=True)]
    most = max(row["peak_megabytes"] for row in data["measured"])
    facts = {
        "speeds": ", ".join(f"{speed:.2f} times" for speed in speeds),
        "is_faster": min(speeds) >= TWICE,
        "most": most,
        "is_small": most < MOST_MEGABYTES,
        "whole": votes,
    }
    return pages.fill_template(NAME, facts, data)


if __name__ == "__main__":
    sys.exit(run(main))
