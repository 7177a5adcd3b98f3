"""What a cluster costs: teachers trained and asked on local Dask workers, beside one process.

    python -m experiments.pate.cluster --quick                          # digits, 12 teachers
    python -m experiments.pate.cluster --output docs/reproduction       # MNIST, 250 teachers

Writes OUTPUT/pate/cluster.json: seconds, whether teachers and votes are the same to the last bit, and the peak memory
of every process, of the workers as the difference to what they took before they were given anything.
"""

import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.ensemble.partition import Partition
from darrm.ensemble.teachers import TeacherEnsemble, train_teachers
from darrm.system.command_line import CommandLine, run
from darrm.system.extras import require
from experiments import pages
from experiments.pate import ensembles
from experiments.pate.settings import STUDIES

QUICK_TEACHERS, QUICK_QUERIES = 12, 200


def peak_megabytes() -> float:
    """Return the largest resident memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def measure(workers: int, *, quick: bool) -> dict[str, Any]:
    """Train and ask the study's teachers in this process and on as many local workers."""
    study = STUDIES["digits" if quick else "mnist"]
    data, _, _ = ensembles.split(study)
    recipe = ensembles.RECIPES[study.name]
    if quick:
        recipe = replace(recipe, epochs=recipe.epochs // ensembles.QUICK)
    teachers = QUICK_TEACHERS if quick else study.teachers
    shards = Partition.random(len(data.train_y), teachers, seed=ensembles.PARTITION_SEED)
    queries = data.test_x[: QUICK_QUERIES if quick else None]

    def both() -> tuple[TeacherEnsemble, NDArray[np.int8], float]:
        start = time.perf_counter()
        how = partial(train_teachers, build=ensembles.network_for(study), seed=ensembles.SEED, progress=False)
        trained = how(data.train_x, data.train_y, shards, recipe, device="cpu")
        return trained, trained.votes(queries, device="cpu"), time.perf_counter() - start

    distributed, joblib = require("distributed"), require("joblib")
    with (
        distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(_imports)
        before = client.run(peak_megabytes)
        with joblib.parallel_config(backend="dask"):
            trained, votes, seconds = both()
        after = client.run(peak_megabytes)
    alone, expected, seconds_alone = both()
    return {
        "dataset": study.name,
        "teachers": teachers,
        "queries": len(queries),
        "workers": workers,
        "processors": os.cpu_count(),
        "same_teachers": all((trained.parameters[name] == value).all() for name, value in alone.parameters.items()),
        "same_votes": bool(np.array_equal(votes, expected)),
        "seconds": seconds,
        "seconds_alone": seconds_alone,
        "training_megabytes": data.train_x.nbytes / 2**20,
        "worker_megabytes_before": [round(before[name]) for name in sorted(before)],
        "worker_megabytes": [round(after[name]) for name in sorted(after)],
        "megabytes_alone": round(peak_megabytes()),
    }


def _imports() -> None:
    """Load what a worker needs, which is not what is measured."""
    require("darrm.ensemble.teachers")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = CommandLine(prog="python -m experiments.pate.cluster", description=str(__doc__))
    parser.add_argument("--quick", action="store_true", help="digits, 12 teachers, a fifth of the training")
    parser.add_argument("--workers", type=int, default=2, help="processes of the cluster (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("results"), metavar="FOLDER", help="default results")
    options = parser.parse_args(arguments)
    checks.integer_at_least(1, workers=options.workers)
    folder = options.output / "pate"
    folder.mkdir(parents=True, exist_ok=True)
    found = measure(options.workers, quick=options.quick)
    for name, value in found.items():
        print(f"{name}: {value}")
    pages.write_json(folder / "cluster.json", found)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
