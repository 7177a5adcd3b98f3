"""Seconds and memory of the stand-in's teachers on local Dask workers and in one process.

    python -m tests.load.cluster --recompute       # 5,000 teachers; --quick: 200

Writes OUTPUT/pate/cluster.json: seconds, whether the votes are the same to the last bit, and the peak memory of every
process. The votes of one process are read from OUTPUT/pate, or made there first.
"""

import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from darrm.commands.command_line import run
from darrm.util import checks
from darrm.util.extras import require
from experiments import pages
from experiments.pages import Row
from experiments.pate.glyph import obtain_glyph
from experiments.pate.settings import STUDIES
from experiments.teachers import Machine


def peak_megabytes() -> int:
    """Return the largest resident memory that this process ever had."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0)


def measure(workers: int, folder: Path, *, quick: bool) -> Row:
    """Train and ask teachers in this process and on as many local workers."""
    study = STUDIES["glyph"]
    with (
        require("distributed").LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        require("distributed").Client(cluster) as client,
        tempfile.TemporaryDirectory() as empty,
    ):
        client.run(require, "experiments.pate.glyph")  # imports are not measured
        before = client.run(peak_megabytes)
        with require("joblib").parallel_config(backend="dask"):
            # -1: as many jobs as the backend has workers
            asked = obtain_glyph(study, Machine(-1, "cpu", progress=False, folder=Path(empty)), quick=quick)
        after = client.run(peak_megabytes)
    alone = obtain_glyph(study, Machine(1, "cpu", progress=False, folder=folder), quick=quick)
    return {
        "dataset": study.name,
        "teachers": asked.votes.voters,
        "queries": asked.votes.queries,
        "workers": workers,
        "processors": os.cpu_count(),
        "same_votes": bool(np.array_equal(asked.votes.counts, alone.votes.counts)),
        "seconds": asked.seconds,
        "seconds_alone": alone.seconds,
        "worker_megabytes_before": [before[name] for name in sorted(before)],
        "worker_megabytes": [after[name] for name in sorted(after)],
        "megabytes_alone": peak_megabytes(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the JSON."""
    parser = pages.command_line("pate", __doc__, module="tests.load.cluster", quick="200 teachers of 20 classes")
    parser.add_argument("--workers", type=int, default=2, help="processes of the cluster (default: %(default)s)")
    options = parser.parse_args(arguments)
    checks.integer_at_least(1, workers=options.workers)
    folder = pages.data_folder(options, "pate")
    if not options.page:
        pages.write_json(folder / "cluster.json", measure(options.workers, folder, quick=options.quick))
    click.echo(f"wrote {folder / 'cluster.json'}; the page is written by python -m experiments pate")
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
