"""How time, memory and gap grow with the number of voters, from 7 to 100,001.

    python -m experiments.scaling --quick          # below a minute
    python -m experiments.scaling                  # up to K = 5,001; the free ones there take minutes each
    python -m experiments.scaling --long           # K = 20,001 and 100,001 as well
    python -m experiments.scaling --only uniform   # these alone; the other measurements stay

Writes OUTPUT/scaling/scaling.json and .png, and OUTPUT/scaling.md from the JSON.

One run measures the paper's whole linear program in cvxpy against the production solver, then the production solver
alone. Every solve runs in a separate process, and three times unless it takes more than a minute: the run of median
seconds is kept. The floor of any method is one separation pass over every row.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import chain, product, starmap
from operator import attrgetter
from pathlib import Path

from darrm.commands.command_line import run
from darrm.commands.values import integers, real
from darrm.majority import kernels
from darrm.util import checks
from experiments import pages
from experiments.scaling.measuring import measure_apart
from experiments.scaling.page import (
    REFERENCE_SIZES,
    Case,
    Measurement,
    case_of,
    page,
    plot,
    summary,
)

NAME = "scaling"
DELTAS = ("0", "1e-5")
SHAPES = ("free", "monotone")
ALLOWANCES = (5, 10)
SIZES = (41, 101, 301, 1001, 2001, 5001)
QUICK_SIZES = (41, 101, 301)
LONG_SIZES = (20_001, 100_001)
LONGEST_FREE = (10_001, 5, "1e-5", "free", "production")
UNIFORM = (  # the default prior, which has no opinion of most numbers of ones
    (2001, 5, "1e-5", "free"),
    (5001, 5, "1e-5", "free"),
    (20_001, 5, "1e-5", "monotone"),
)
TIME_LIMIT = "600"  # seconds of row generation a solve; the proof comes on top
RUNS, LONGEST_REPEATED = 3, 60.0  # the median run is shown; a solve that takes more seconds is run once
GROUPS = ("reference", "alone", "uniform", "long")
NUMPY_SIZES = (101, 301, 1001)  # solved without compiled loops as well


def cases(sizes: Sequence[int], reference_sizes: Sequence[int], shapes: Sequence[str]) -> dict[str, list[Case]]:
    """List what to measure, by group, small first."""
    against = [(K, 3, "1e-5", "free", solver) for K in reference_sizes for solver in ("reference", "production")]
    alone = product(sizes, ALLOWANCES, DELTAS, shapes, ("production",))
    numpy_alone = product(
        [K for K in sizes if K in NUMPY_SIZES], ALLOWANCES, DELTAS, shapes, ("production",), ("numpy",)
    )
    longest = [*product(LONG_SIZES, (10,), DELTAS, ("monotone",), ("production",)), LONGEST_FREE]
    groups = {
        "reference": against,
        "alone": chain(alone, numpy_alone),
        "uniform": [(*case, "production", "compiled", "uniform") for case in UNIFORM],
        "long": longest,
    }
    found = {name: list(starmap(Case, group)) for name, group in groups.items()}
    if not kernels.is_available():
        return {name: [replace(case, loops="numpy") for case in group] for name, group in found.items()}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = pages.command_line(NAME, __doc__, quick="up to K = 301, below a minute")
    parser.add_argument("--long", action="store_true", help="K = 10,001 free, 20,001 and 100,001 monotone as well")
    parser.add_argument("--only", choices=GROUPS, help="measure these alone and keep the rest, as --keep does")
    parser.add_argument("--sizes", metavar="K,K,...", help="other sizes for the production solver")
    parser.add_argument("--keep", action="store_true", help="add to the measurements that the folder already holds")
    parser.add_argument("--shapes", default=",".join(SHAPES), metavar="SHAPE,...", help="default free,monotone")
    parser.add_argument(
        "--time-limit", default=TIME_LIMIT, metavar="SECONDS", help="of row generation a solve (default 600)"
    )
    options = parser.parse_args(arguments)
    sizes: Sequence[int] = QUICK_SIZES if options.quick else SIZES
    if options.sizes is not None:
        sizes = integers("--sizes", options.sizes)
    shapes, time_limit = options.shapes.split(","), real("--time-limit", options.time_limit)
    for shape in shapes:
        checks.one_of(SHAPES, shape=shape)
    folder = pages.data_folder(options, NAME)
    data = folder / "scaling.json"
    if not options.page:
        groups = cases(sizes, REFERENCE_SIZES[:3] if options.quick else REFERENCE_SIZES, shapes)
        names = [options.only] if options.only else groups_of(options)
        todo = [case for name in names for case in groups[name]]
        measurements = kept(data, todo) if options.keep or options.only else []
        for case in todo:
            measurements.append(median_run(case, time_limit, 1 if options.quick else RUNS))
            print(f"{case}: {measurements[-1].seconds:.3f} s, {measurements[-1].status}", flush=True)
            measurements.sort(key=case_of)
            pages.write_json(data, [asdict(item) for item in measurements])
        print(json.dumps(summary(measurements), indent=1, ensure_ascii=False))
        plot(folder / "scaling.png", measurements)
    return pages.finish(folder, page(read_measurements(data)))


def groups_of(options: Namespace) -> list[str]:
    """Name the groups that are measured together; few of a quick run."""
    usual = ["alone"] if options.keep else ["reference", "alone"]
    return usual + ["uniform"] * (not options.quick) + ["long"] * options.long


def median_run(case: Case, time_limit: float, runs: int) -> Measurement:
    """Measure a case several times, or once if that takes long; return the run of median seconds."""
    found = [measure_apart(case, time_limit)]
    while len(found) < runs and found[0].seconds <= LONGEST_REPEATED:
        found.append(measure_apart(case, time_limit))
    median = sorted(found, key=attrgetter("seconds"))[len(found) // 2]
    return replace(median, runs=len(found))


def kept(data: Path, todo: Sequence[Case]) -> list[Measurement]:
    """Read the measurements of an earlier run, without the cases that are measured again."""
    earlier = read_measurements(data) if data.exists() else []
    again = set(map(case_of, todo))
    return [item for item in earlier if case_of(item) not in again]


def read_measurements(data: Path) -> list[Measurement]:
    """Read measurements that were written before."""
    return [Measurement(**item) for item in pages.read_json(data)]


if __name__ == "__main__":
    sys.exit(run(main))
