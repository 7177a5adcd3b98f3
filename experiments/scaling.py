"""Measure how time, memory and gap grow with the number of voters, from 7 to 100,001.

    python -m experiments scaling --recompute --quick    # below a minute
    python -m experiments scaling --recompute            # up to K = 5,001, where a free γ takes minutes
    python -m experiments scaling --recompute --long     # K = 20,001 and 100,001 as well

Writes OUTPUT/scaling/scaling.json, peers.json and scaling.png, and OUTPUT/scaling.md from the JSON.

The program compares the paper's full linear program in cvxpy with the production solver, and then measures the
production solver at larger K. Every solve runs in a separate process. Solves of up to a minute run three times, and the
JSON has the run of median time. One separation pass over all rows is a lower bound for every method.
"""

import math
import multiprocessing
import resource
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product, starmap
from operator import itemgetter
from pathlib import Path

import numpy as np

from darrm import priors
from darrm.commands.values import integers
from darrm.majority import kernels
from darrm.majority.corners import enclose_exp, full_set_size
from darrm.majority.dominating import DominatingFamily
from darrm.optimize import SolveOptions
from darrm.optimize.optimizer import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.util.figures import save_figure, style
from experiments import pages, peers
from experiments.pages import Row

NAME = "scaling"
DELTAS, SHAPES, ALLOWANCES, LOOPS = ("0", "1e-5"), ("free", "monotone"), (5, 10), ("compiled", "numpy")
REFERENCE_SIZES = (7, 9, 11, 13)
QUICK_SIZES, SIZES, LONG_SIZES = (41, 101, 301), (41, 101, 301, 1001, 2001, 5001), (20_001, 100_001)
NUMPY_SIZES = (101, 301, 1001)  # also solved without compiled loops
LARGEST_FREE_CASE = (10_001, 5, "1e-5", "free", "production")
UNIFORM_CASES = (  # for the default prior
    (2001, 5, "1e-5", "free"),
    (5001, 5, "1e-5", "free"),
    (20_001, 5, "1e-5", "monotone"),
)
EPSILON = "0.1"
GAP, LARGE_GAP, MAX_SMALL_GAP_K = 1e-11, 1e-6, 301  # relative, up to K = 301 and above
TIME_LIMIT = 600.0  # seconds of row generation for each solve, without the proof
RUNS, MAX_REPEATED_SECONDS = 3, 60.0  # a solve that takes more seconds runs once
UNIFORM_PRIOR = "uniform:0.5,1"  # the default prior of the command
MAX_WARM_UP_K = 101  # of the solve before the measured one


@dataclass(frozen=True)
class Case:
    K: int
    m: int
    each_delta: str
    shape: str
    solver: str
    loops: str = "compiled"  # or "numpy"
    prior: str = "common"  # or `UNIFORM_PRIOR`


case_of = itemgetter("prior", "K", "m", "each_delta", "shape", "solver", "loops")  # a sort key


def list_cases(sizes: Sequence[int], *, quick: bool, long: bool) -> list[Case]:
    """List the solves: small ones of both solvers, large ones, and without ``quick`` those for the default prior."""
    reference_sizes = REFERENCE_SIZES[:3] if quick else REFERENCE_SIZES
    cases = [*product(reference_sizes, (3,), ("1e-5",), ("free",), ("reference", "production"))]
    cases += (case for case in product(sizes, ALLOWANCES, DELTAS, SHAPES, ("production",)) if case[1] <= case[0])
    in_numpy = [K for K in sizes if K in NUMPY_SIZES]
    cases += product(in_numpy, ALLOWANCES, DELTAS, SHAPES, ("production",), ("numpy",))
    if not quick:
        cases += ((*case, "production", "compiled", UNIFORM_PRIOR) for case in UNIFORM_CASES)
    if long:
        cases += [*product(LONG_SIZES, (10,), DELTAS, ("monotone",), ("production",)), LARGEST_FREE_CASE]
    result = list(starmap(Case, cases))
    if kernels.is_available():
        return result
    return list(dict.fromkeys(replace(case, loops="numpy") for case in result))


def measure(case: Case) -> Row:
    """Solve a case: its seconds and memory, its error and bound."""
    problem = Problem.from_allowance(Voters(case.K, PrivacyParams(EPSILON, case.each_delta)), case.m)
    options = SolveOptions(gap=GAP if case.K <= MAX_SMALL_GAP_K else LARGE_GAP, time_limit=TIME_LIMIT)
    prior = priors.parse(case.prior)
    # warm up: do not measure imports, compilation and first calls
    kernels.KERNEL.nanoseconds = kernels.LOADING if case.loops == "compiled" else -math.inf
    warm_up = Problem.from_allowance(Voters(min(case.K, MAX_WARM_UP_K), problem.voters.each), case.m)
    optimize_table(warm_up, prior=prior, shape=case.shape, solver=case.solver)
    started = time.perf_counter()
    table = optimize_table(problem, prior=prior, shape=case.shape, solver=case.solver, options=options)
    seconds = time.perf_counter() - started
    family, ratio = DominatingFamily(problem.voters), enclose_exp(problem.target.exact_epsilon)
    family.maxima(table.gamma.half, ratio)  # fills the caches
    started = time.perf_counter()
    family.maxima(table.gamma.half, ratio)
    separation_seconds = time.perf_counter() - started
    optimality, provenance = table.optimality, table.provenance
    if optimality is None:
        raise ValueError("the optimized table has no optimality")
    return {
        **asdict(case),
        "seconds": seconds,
        "separation_seconds": separation_seconds,
        "rows_full_set": full_set_size(problem.voters),
        "rows_used": int(provenance.get("rows generated", provenance.get("rows written", "0"))),
        "rounds": int(provenance.get("rounds", "1")),
        "expected_error": optimality.value,
        "bound": optimality.bound,
        "relative_gap": optimality.gap / optimality.value if optimality.value > 0.0 else 0.0,
        "status": optimality.status,
        "method": table.certificate.method,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
    }


def measure_in_process(case: Case) -> Row:
    """Solve one case in a new process."""
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, case).result()


def measure_median(case: Case, runs: int) -> Row:
    """Measure a case ``runs`` times, or once if it is slow; return the run of median time."""
    measurements = [measure_in_process(case)]
    while len(measurements) < runs and measurements[0]["seconds"] <= MAX_REPEATED_SECONDS:
        measurements.append(measure_in_process(case))
    median = sorted(measurements, key=itemgetter("seconds"))[len(measurements) // 2]
    return median | {"runs": len(measurements)}


def fit_exponent(measurements: Sequence[Row]) -> float:
    """Fit seconds ~ K^a over the sizes of one series, K ≥ 101; NaN with fewer than two sizes."""
    points = [(item["K"], item["seconds"]) for item in measurements if item["K"] >= 101]
    sizes, seconds = np.log(np.array(points).reshape(-1, 2)).T
    return float(np.polyfit(sizes, seconds, 1)[0]) if len(points) >= 2 else float("nan")


def group_series(measurements: Sequence[Row], loops: str) -> dict[tuple[int, str, str], list[Row]]:
    """Group the production solves with these loops by (m, Δ, shape)."""
    groups = defaultdict(list)
    for item in measurements:
        if item["K"] not in REFERENCE_SIZES and item["loops"] == loops and item["prior"] == "common":
            groups[item["m"], item["each_delta"], item["shape"]].append(item)
    return groups


def summarize(measurements: Sequence[Row]) -> dict[str, list[Row]]:
    production = {(item["K"], item["m"]): item for item in measurements if item["solver"] == "production"}
    speedups = []
    for item in measurements:
        if item["solver"] == "reference":
            solved = production[item["K"], item["m"]]
            difference = abs(item["expected_error"] - solved["expected_error"])
            ratio = item["seconds"] / solved["seconds"]
            speedups.append({"K": item["K"], "times_faster": ratio, "difference": difference})
    exponents = [
        {"m": m, "delta": delta, "shape": shape, "loops": loops, "exponent": fit_exponent(items)}
        for loops in LOOPS
        for (m, delta, shape), items in group_series(measurements, loops).items()
    ]
    return {"speedups": speedups, "exponents": exponents}


def draw(path: Path, measurements: Sequence[Row]) -> None:
    lines = {
        f"{shape}, m = {m}, Δ = {delta}": ("seconds", items)
        for (m, delta, shape), items in group_series(measurements, "compiled").items()
    }
    others = {
        "one separation pass (Δ = 0)": ("separation_seconds", (10, "0", "monotone", "production", "compiled")),
        "the same in numpy": ("separation_seconds", (10, "0", "monotone", "production", "numpy")),
        "free, m = 3, Δ = 1e-5": ("seconds", (3, "1e-5", "free", "production", "compiled")),
        "every row, cvxpy (Δ = 1e-5)": ("seconds", (3, "1e-5", "free", "reference", "compiled")),
    }
    for label, (quantity, case) in others.items():
        lines[label] = quantity, [item for item in measurements if case_of(item) == ("common", item["K"], *case)]
    with save_figure(path, width=9.0, height=6.0) as figure:
        axes = figure.add_subplot()
        for place, (label, (quantity, items)) in enumerate(lines.items()):
            points = [(item["K"], item[quantity]) for item in items]
            axes.loglog(*np.reshape(points, (-1, 2)).T, label=label, **style(place).line(len(items)))
        title = f"Optimal and proven noise functions (ε = {EPSILON}, common prior)"
        axes.set(xlabel="K, number of voters", ylabel="seconds, proof included", title=title)
        axes.grid(alpha=0.3, which="both")
        figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)


def fill_page(measurements: Sequence[Row], comparisons: Sequence[Row]) -> str:
    limits = {"epsilon": EPSILON, "gap": GAP, "large_gap": LARGE_GAP, "largest_to_gap": MAX_SMALL_GAP_K}
    groups = {"common": "common", "uniform": UNIFORM_PRIOR}
    by_prior = {group: [item for item in measurements if item["prior"] == prior] for group, prior in groups.items()}
    rows = [row | {"ratio": row["seconds"] / row["peer_seconds"]} for row in comparisons]
    return pages.fill_template(NAME, by_prior, summarize(measurements), limits, {"peers": rows})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = pages.make_command_line(NAME, __doc__, quick="up to K = 301, below a minute")
    parser.add_argument("--long", action="store_true", help="K = 10,001 free, 20,001 and 100,001 monotone as well")
    parser.add_argument("--sizes", metavar="K,K,...", help="other sizes for the production solver")
    options = parser.parse_args(arguments)
    sizes: Sequence[int] = QUICK_SIZES if options.quick else SIZES
    if options.sizes is not None:
        sizes = integers("--sizes", options.sizes)
    folder = pages.prepare_folder(options, NAME)
    path, peers_path = folder / "scaling.json", folder / "peers.json"
    if not options.page:
        measurements: list[Row] = []
        for case in list_cases(sizes, quick=options.quick, long=options.long):
            measurements.append(measure_median(case, 1 if options.quick else RUNS))
            print(f"{case}: {measurements[-1]['seconds']:.3f} s, {measurements[-1]['status']}", flush=True)
            measurements.sort(key=case_of)
            pages.write_json(path, measurements)
        draw(folder / "scaling.png", measurements)
        if not options.quick:
            pages.write_json(peers_path, [peers.compare(peer, RUNS) for peer in peers.list_peers()])
    comparisons = pages.read_json(peers_path) if peers_path.exists() else []
    return pages.write_page(folder, fill_page(pages.read_json(path), comparisons))
