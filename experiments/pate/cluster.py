"""What a cluster costs: teachers trained and asked on local Dask workers, beside one process.

    python -m experiments.pate.cluster --quick                          # digits, 12 networks
    python -m experiments.pate.cluster --output docs/reproduction       # the stand-in for Glyph, 5,000 discriminants

Writes OUTPUT/pate/cluster.json: seconds, whether teachers and votes are the same to the last bit, and the peak memory
of every process, of the workers as the difference to what they took before they were given anything. The votes of
5,000 teachers are those that OUTPUT/pate keeps, made in one process, or are made there first.
"""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.commands.command_line import run
from darrm.training.partition import Partition
from darrm.training.teachers import train_teachers
from darrm.util import checks
from darrm.util.extras import require
from experiments import pages
from experiments.command_line import CommandLine
from experiments.pages import Row
from experiments.pate import ensembles
from experiments.pate.glyph import obtain_glyph
from experiments.pate.settings import STUDIES
from experiments.teachers import Machine

QUICK_TEACHERS, QUICK_QUERIES = 12, 200


def peak_megabytes() -> float:
    """Return the largest resident memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def measure(workers: int, folder: Path, *, quick: bool) -> Row:
    """Train and ask teachers in this process and on as many local workers."""
    distributed, joblib = require("distributed"), require("joblib")
    with (
        distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(_imports)
        before = client.run(peak_megabytes)
        with joblib.parallel_config(backend="dask"):
            asked = _networks() if quick else _discriminants(folder, fresh=True)
        after = client.run(peak_megabytes)
    alone = _networks() if quick else _discriminants(folder, fresh=False)
    return {
        "dataset": "digits" if quick else "glyph",
        "teachers": asked.teachers,
        "queries": len(asked.votes),
        "workers": workers,
        "processors": os.cpu_count(),
        "same_votes": bool(np.array_equal(asked.votes, alone.votes)),
        "same_teachers": None if asked.parameters is None else _same(asked.parameters, alone.parameters),
        "seconds": asked.seconds,
        "seconds_alone": alone.seconds,
        "worker_megabytes_before": [round(before[name]) for name in sorted(before)],
        "worker_megabytes": [round(after[name]) for name in sorted(after)],
        "megabytes_alone": round(peak_megabytes()),
    }


@dataclass(frozen=True, eq=False)
class _Asked:
    """What some teachers said, and, of networks, what they are."""

    teachers: int
    votes: NDArray[Any]
    seconds: float
    parameters: dict[str, NDArray[Any]] | None = None


def _networks() -> _Asked:
    """Train and ask a few networks on digits, by whatever backend is configured."""
    study = STUDIES["digits"]
    data, _, _ = ensembles.split(study)
    recipe = ensembles.RECIPES[study.name]
    recipe = replace(recipe, epochs=recipe.epochs // ensembles.QUICK)
    shards = Partition.random(len(data.train_y), QUICK_TEACHERS, seed=ensembles.PARTITION_SEED)
    start = time.perf_counter()
    how = partial(train_teachers, build=ensembles.network_for(study), seed=ensembles.SEED, progress=False)
    trained = how(data.train_x, data.train_y, shards, recipe, device="cpu")
    votes = trained.votes(data.test_x[:QUICK_QUERIES], device="cpu")
    return _Asked(QUICK_TEACHERS, votes, time.perf_counter() - start, trained.parameters)


def _discriminants(folder: Path, *, fresh: bool) -> _Asked:
    """Train and ask the stand-in's teachers, or read what they said."""
    study = STUDIES["glyph"]
    with tempfile.TemporaryDirectory() as empty:
        jobs, kept = (-1, Path(empty)) if fresh else (1, folder)  # -1: as many as the backend has workers
        machine = Machine(jobs, "cpu", progress=False, folder=kept)
        recorded = obtain_glyph(study, machine)
    return _Asked(study.teachers, recorded.votes.counts, recorded.seconds)


def _same(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]] | None) -> bool:
    return other is not None and all(bool((one[name] == value).all()) for name, value in other.items())


def _imports() -> None:
    """Load what a worker needs, which is not what is measured."""
    require("darrm.training.teachers")
    require("experiments.pate.glyph")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = CommandLine(prog="python -m experiments.pate.cluster", description=__doc__ or "")
    parser.add_argument("--quick", action="store_true", help="digits, 12 teachers, a fifth of the training")
    parser.add_argument("--workers", type=int, default=2, help="processes of the cluster (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("results"), metavar="FOLDER", help="default results")
    options = parser.parse_args(arguments)
    checks.integer_at_least(1, workers=options.workers)
    folder = options.output / "pate"
    folder.mkdir(parents=True, exist_ok=True)
    asked = measure(options.workers, folder, quick=options.quick)
    for name, value in asked.items():
        print(f"{name}: {value}")
    pages.write_json(folder / "cluster.json", asked)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
