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
from darrm.release.partitions import release_surveyed, survey
from darrm.table.release import Release
from darrm.util.extras import require
from experiments import pages
from experiments.pages import Claim, Row

VOTERS, FILES = 250, 8
WORKERS = (0, 1, 2, 4)  # none: this process
KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "booleans": lambda votes: votes.astype(bool),
    "bytes": lambda votes: votes.astype(np.int8),
    "text": lambda votes: require("pyarrow").DictionaryArray.from_arrays(votes.astype(np.int8), ["no", "yes"]),
}
NAMES = {"text": ("no", "yes")}


def measure(folder: Path, rows: int) -> Iterator[Row]:
    """Release the same votes in each way and yield the measurements."""
    problem = Problem.from_allowance(Voters(VOTERS, PrivacyParams("0.1")), 10)
    Release(optimize_table(problem, shape="monotone")).table.save(folder / "table.json")
    for kind in KINDS:
        _write_votes(folder / kind, kind, rows)
        size = sum(path.stat().st_size for path in (folder / kind).iterdir())
        for workers in WORKERS:
            with _engine(workers) as (call, cluster):
                found = call(_release, folder, kind, cluster)
            yield {"kind": kind, "workers": workers, "megabytes": size / 1e6, **found}
            print(f"{kind}, {workers} workers: {found}", flush=True)


def _write_votes(folder: Path, kind: str, rows: int) -> None:
    arrow, parquet = require("pyarrow"), require("pyarrow.parquet")
    folder.mkdir()
    rng = np.random.default_rng(0)
    for index in range(FILES):
        columns = [KINDS[kind](rng.integers(0, 2, rows)) for _ in range(VOTERS)]
        parquet.write_table(arrow.table(columns, names=[f"v{k}" for k in range(VOTERS)]), folder / f"{index}.parquet")


@contextmanager
def _engine(workers: int) -> Iterator[tuple[Callable[..., Any], Any]]:
    """Yield a caller of functions, in a new process without workers, and the cluster."""
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
    """Import the libraries of a worker before the measurement."""
    require("pyarrow.parquet")
    require("pyarrow.compute")


def _release(folder: Path, kind: str, cluster: Any) -> dict[str, float]:  # noqa: ANN401 (an untyped library)
    """Release the votes of one kind; return the seconds of both passes, of the processors, and the peak of memory."""
    _load()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        ledger = PrivacyLedger.create(Path(name) / "l.sqlite", PrivacyParams(10**9, "0.1"))
        before, start = _processor(cluster), time.perf_counter()
        output = Path(name) / "labels"
        aggregator = load_release(folder / "table.json")
        jobs = 1 if cluster is None else None  # as many as the cluster has
        found = survey(aggregator, folder / kind, output, classes=NAMES.get(kind), jobs=jobs)
        middle = time.perf_counter()
        release_surveyed(found, aggregator, ledger, jobs=jobs)
        end, after = time.perf_counter(), _processor(cluster)
    return {
        "survey_seconds": middle - start,
        "draw_seconds": end - middle,
        "processor_seconds": after - before,
        "peak_megabytes": max(_everywhere(cluster, _peak)),
    }


def _processor(cluster: Any) -> float:  # noqa: ANN401 (an untyped library)
    return time.process_time() + (sum(_everywhere(cluster, time.process_time)) if cluster is not None else 0.0)


def _everywhere(cluster: Any, function: Callable[[], float]) -> list[float]:  # noqa: ANN401 (an untyped library)
    return [function()] if cluster is None else list(cluster.run(function).values())


def _peak() -> float:
    """Return the most megabytes that this process took, without those of the process that it was forked from."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6


MANY_ROWS = 10**8

NAME = "partitions"
ROWS, ROWS_QUICK = 50_000, 2_000  # of a file


def main(arguments: Sequence[str] | None = None) -> int:
    """Write votes, release them in each way, write the page."""
    parser = pages.command_line(NAME, __doc__ or "", quick=f"{ROWS_QUICK:,} rows a file instead of {ROWS:,}")
    options = parser.parse_args(arguments)
    folder = pages.data_folder(options, NAME)
    if not options.page:
        rows = ROWS_QUICK if options.quick else ROWS
        with tempfile.TemporaryDirectory() as name:
            measured = list(measure(Path(name), rows))
        data = {"cores": os.cpu_count(), "voters": VOTERS, "files": FILES, "rows": rows * FILES, "measured": measured}
        pages.write_json(folder / "throughput.json", data)
    data = pages.read_json(folder / "throughput.json")
    return pages.finish(folder, page(data), decide(data))


def page(data: Row) -> str:
    """Fill the page from the machine, how much was released, and what every release took."""
    rows, votes = data["rows"], data["rows"] * data["voters"] / 1e6
    measured = [
        row
        | {
            "workers": row["workers"] or "none",
            "rows_a_second": rows / seconds_of(row),
            "votes_a_second": votes / seconds_of(row),
            "votes_a_processor_second": votes / row["processor_seconds"],
            "busy": row["processor_seconds"] / seconds_of(row),
            "minutes_for_many": MANY_ROWS * seconds_of(row) / rows / 60.0,
        }
        for row in data["measured"]
    ]
    return pages.filled("partitions", {"claims": pages.claims_table(decide(data)), "measured": measured}, data)


def decide(data: Row) -> list[Claim]:
    """Decide the claims of the page."""
    one, two = ([seconds_of(row) for row in data["measured"] if row["workers"] == workers] for workers in (1, 2))
    speeds = [alone / both for alone, both in zip(one, two, strict=True)]
    whole = data["rows"] * data["voters"] / 1e6
    most = max(row["peak_megabytes"] for row in data["measured"])
    return [
        Claim(
            "two workers are at least 1.6 times as fast as one",
            ", ".join(f"{speed:.2f} times" for speed in speeds),
            min(speeds) >= 1.6,
        ),
        Claim(
            "no process takes 512 MB of memory",
            f"at most {most:.1f} MB; the votes would take {whole:,.1f} MB at a byte each",
            most < 512,
        ),
    ]


def seconds_of(row: Row) -> float:
    """Return the seconds of both passes of a release."""
    return float(row["survey_seconds"] + row["draw_seconds"])


if __name__ == "__main__":
    sys.exit(run(main))
