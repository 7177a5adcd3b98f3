"""Write the packaged noise functions into ``darrm/tables``.

    python -m experiments make_tables                # all sizes: some minutes on one core
    python -m experiments make_tables --K 11 21      # these sizes only

Each K of `SIZES` has tables for every integer m up to (K + 1)/2, every ε of `EPSILONS` and every Δ of `DELTAS`, free
and monotone. The target has δ = 1 − (1 − Δ)^m, and the prior is independent p_i ~ U[0.5, 1]. Each K of `LARGE_SIZES`
has the smaller lists. Each K is one compressed JSON file. Without ``--K``, the program also writes a file with the
settings of [D] outside this grid.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from darrm.loss.composition import compose_general
from darrm.optimize import SolveOptions
from darrm.optimize.optimizer import optimize_many, optimize_table
from darrm.priors import Independent
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.library import PAPER_FILE, PRIOR, PaperSetting, Setting, compress, compress_whole
from darrm.table.optimality import SHAPES
from darrm.table.table import Table
from darrm.util import checks
from darrm.util.files import replace_file
from experiments.pages import CommandLine

SIZES = (3, 5, 7, 9, 11, 13, 15, 21, 31, 41, 51, 101)
EPSILONS = ("0.05", "0.1", "0.25", "0.5", "1")
DELTAS = ("0", "1e-5", "1e-4")
LARGE_SIZES = (201, 251, 301, 501, 1001)
LARGE_ALLOWANCES = (1, 2, 3, 5, 10, 20, 50)
LARGE_EPSILONS = ("0.1", "0.5", "1")
LARGE_DELTAS = ("0", "1e-5")
FOLDER = Path(__file__).parent.parent / "darrm" / "tables"
# above this K only monotone γ: free γ take minutes for small m
_MAX_FREE_K = 501
_LARGE_OPTIONS = SolveOptions(gap=1e-7)  # the last digits would take most of the time


def list_settings(K: int) -> list[Setting]:
    """List the settings of one K in the order of its file."""
    is_large = max(SIZES) < K
    return [
        Setting(K, m, PrivacyParams(epsilon, delta), shape)
        for m in (LARGE_ALLOWANCES if is_large else range(1, (K + 1) // 2 + 1))
        for epsilon in (LARGE_EPSILONS if is_large else EPSILONS)
        for delta in (LARGE_DELTAS if is_large else DELTAS)
        for shape in SHAPES
        if K <= _MAX_FREE_K or shape == "monotone"
    ]


def list_paper_settings() -> list[PaperSetting]:
    """List the settings of [D] outside the grid, in the order of the paper."""
    settings = []
    for epsilon in ("0.0892", "0.0852"):  # of the teachers on MNIST and Fashion-MNIST; δ = mΔ [D, Section 6.2]
        voters = Voters(11, PrivacyParams(epsilon, "1e-4"))
        for m in (1, 3, 5, 7):
            target = PrivacyParams(m * voters.each.exact_epsilon, m * voters.each.exact_delta)
            settings += [PaperSetting(Problem(voters, target), PRIOR, shape) for shape in SHAPES]
    voters = Voters(35, PrivacyParams("0.1", "1e-5"))
    for subsampled in (10, 13, 15, 20):  # general composition of M voters [D, Table 3, Figure 6]
        problem = Problem(voters, compose_general(voters.each, subsampled, 0.1))
        settings += [PaperSetting(problem, PRIOR, shape) for shape in SHAPES]
    for m in (3, 5):  # the surrogate of T_P [D, Figure 9]
        problem = Problem.from_allowance(Voters(11, PrivacyParams("0.1")), m)
        settings += [PaperSetting(problem, Independent(0.7, 1.0), shape) for shape in SHAPES]
    return settings


def pack_paper_tables() -> bytes:
    """Optimize, certify and pack the tables of the paper's settings."""
    return compress_whole(
        [optimize_table(setting.problem, prior=setting.prior, shape=setting.shape) for setting in list_paper_settings()]
    )


def pack_tables(K: int, settings: Sequence[Setting], jobs: int = 1) -> bytes:
    """Optimize, certify and pack the tables of all settings; the bytes do not depend on the number of processes."""
    options = _LARGE_OPTIONS if max(SIZES) < K else None
    tables_by_setting: dict[Setting, Table] = {}
    for shape in SHAPES:
        sweep = [setting for setting in settings if setting.shape == shape]
        problems = [setting.problem for setting in sweep]
        tables = optimize_many(problems, prior=PRIOR, shape=shape, options=options, jobs=jobs)
        tables_by_setting.update(zip(sweep, tables, strict=True))
    first_provenance = tables_by_setting[settings[0]].provenance
    provenance = {"solver": first_provenance["solver"], "made by": first_provenance["made by"]}
    return compress(K, PRIOR, provenance, [(setting, tables_by_setting[setting]) for setting in settings])


def write_tables(path: Path, pack: Callable[[], bytes]) -> None:
    """Write a file of tables; print its size and the seconds."""
    started = time.perf_counter()
    packed = pack()
    with replace_file(path) as temporary:
        temporary.write_bytes(packed)
    print(f"{path.name}: {len(packed):,d} bytes, {time.perf_counter() - started:.1f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandLine("experiments make_tables", __doc__)
    parser.add_argument("--K", type=int, nargs="+", default=None, metavar="INT", help="sizes (default: all)")
    parser.add_argument("--output", type=Path, default=FOLDER, metavar="FOLDER", help="where to (default darrm/tables)")
    parser.add_argument("--jobs", type=int, default=1, metavar="INT", help="processes (default 1; -1: all cores)")
    options = parser.parse_args(arguments)
    if options.jobs != -1:
        checks.integer_at_least(1, jobs=options.jobs, advice="or -1 for all cores")
    sizes = [*SIZES, *LARGE_SIZES] if options.K is None else options.K
    for K in sizes:
        checks.integer_at_least(1, K=K)
    if options.K is None:
        write_tables(options.output / PAPER_FILE, pack_paper_tables)
    for K in sorted(sizes):
        write_tables(options.output / f"K{K}.json.gz", partial(pack_tables, K, list_settings(K), options.jobs))
    return 0
