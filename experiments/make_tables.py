"""Write the noise functions that come with the package into ``darrm/tables``.

    python -m experiments.make_tables                # all sizes: some minutes on one core
    python -m experiments.make_tables --K 11 21      # these sizes only

For each K: every integer m up to (K + 1)/2, every ε of `EPSILONS`, every Δ of `DELTAS`, free and monotone, optimized
for independent p_i ~ U[0.5, 1] with δ = 1 − (1 − Δ)^m. One compressed JSON file a K.
"""

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from darrm import checks
from darrm.gamma.priors import Independent
from darrm.optimize.optimizer import optimize_gamma
from darrm.privacy import PrivacyParams
from darrm.proof.library import Setting, compress
from darrm.proof.optimality import SHAPES
from darrm.system.command_line import CommandLine, run
from darrm.system.files import replacing

SIZES = (3, 5, 7, 9, 11, 13, 15, 21, 31, 41, 51, 101)
EPSILONS = ("0.05", "0.1", "0.25", "0.5", "1")
DELTAS = ("0", "1e-5", "1e-4")
PRIOR = Independent(0.5, 1.0)
FOLDER = Path(__file__).parent.parent / "darrm" / "tables"


def settings_of(K: int) -> list[Setting]:
    """List the settings of the table of one size, in the order in which the file holds them."""
    return [
        Setting(K, m, PrivacyParams(epsilon, delta), shape)
        for m in range(1, (K + 1) // 2 + 1)
        for epsilon in EPSILONS
        for delta in DELTAS
        for shape in SHAPES
    ]


def library_bytes(K: int, settings: Sequence[Setting]) -> bytes:
    """Optimize and certify every setting and pack the tables."""
    tables = [(setting, optimize_gamma(setting.problem, prior=PRIOR, shape=setting.shape)) for setting in settings]
    maker = dict(tables[0][1].provenance)
    return compress(K, PRIOR, {"solver": maker["solver"], "made by": maker["made by"]}, tables)


def write_size(folder: Path, K: int) -> tuple[int, int, float]:
    """Write the file of one size; return K, its size in bytes and the seconds it took."""
    started = time.perf_counter()
    packed = library_bytes(K, settings_of(K))
    with replacing(folder / f"K{K}.json.gz") as temporary:
        temporary.write_bytes(packed)
    return K, len(packed), time.perf_counter() - started


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables and report their sizes."""
    renamed = {"--folder": "--output"}
    parser = CommandLine(prog="python -m experiments.make_tables", description=str(__doc__), renamed=renamed)
    parser.add_argument("--K", type=int, nargs="+", default=list(SIZES), metavar="INT", help="sizes to write")
    parser.add_argument("--output", type=Path, default=FOLDER, metavar="FOLDER", help="where to (default darrm/tables)")
    parser.add_argument("--jobs", type=int, default=1, metavar="INT", help="processes (default 1)")
    options = parser.parse_args(arguments)
    checks.integer_at_least(1, jobs=options.jobs)
    for K in options.K:
        checks.integer_at_least(1, K=K)
    total = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for K, size, seconds in pool.map(partial(write_size, options.output), sorted(options.K, reverse=True)):
            total += size
            print(f"K = {K:4d}: {len(settings_of(K)):5d} tables, {size:9,d} bytes, {seconds:6.1f} s", flush=True)
    print(f"{total:,} bytes in all")
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
