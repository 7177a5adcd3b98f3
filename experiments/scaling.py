"""How time, memory and gap grow with the number of voters, from 7 to 20,001.

    python -m experiments.scaling --quick          # below a minute
    python -m experiments.scaling                  # up to K = 5,001; the free ones there take ten minutes and more each
    python -m experiments.scaling --long           # K = 20,001 as well

One run measures everything side by side: the paper's whole linear program in cvxpy against the production solver, then
the production solver alone. Every solve runs in a process of its own, so that its peak memory is its own. The floor of
any method is one separation pass: every row must be looked at once.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from darrm import checks
from darrm.commands import CommandLine, run
from darrm.files import write_text
from darrm.gamma.corners import full_set_size
from darrm.gamma.dominating import DominatingFamily
from darrm.gamma.optimizer import optimize_gamma
from darrm.gamma.priors import CommonP
from darrm.plotting import saved_figure
from darrm.privacy import MajorityProblem, PrivacyParams
from lp_models.row_generation import SolveOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

EPSILON = "0.1"
DELTAS = ("0", "1e-5")
SHAPES = ("free", "monotone")
ALLOWANCES = (5, 10)
REFERENCE_SIZES = (7, 9, 11, 13)
SIZES = (41, 101, 301, 1001, 2001, 5001)
QUICK_SIZES = (41, 101, 301)
LONG_SIZE = 20_001
TIME_LIMIT = 600.0  # seconds of row generation a solve; the proof comes on top
GAP = 1e-11


@dataclass(frozen=True)
class Case:
    """One solve."""

    K: int
    m: int
    each_delta: str
    shape: str
    solver: str
    time_limit: float


@dataclass(frozen=True)
class Measurement:
    """What one solve took and reached."""

    K: int
    m: int
    each_delta: str
    shape: str
    solver: str
    seconds: float
    separation_seconds: float
    rows_full_set: int
    rows_used: int
    rounds: int
    expected_error: float
    bound: float
    relative_gap: float
    status: str
    method: str
    peak_megabytes: float

    @property
    def over_floor(self) -> float:
        """Total time in units of one separation pass."""
        return self.seconds / self.separation_seconds


def measure(case: Case) -> Measurement:
    """Solve one case in this process and say what it took."""
    problem = MajorityProblem.from_allowance(case.K, case.m, PrivacyParams(EPSILON, case.each_delta))
    options = SolveOptions(gap=GAP, time_limit=case.time_limit)
    warm_up = MajorityProblem.from_allowance(3, 2, problem.each)  # imports and first calls are not what is measured
    optimize_gamma(warm_up, prior=CommonP(), shape=case.shape, solver=case.solver)
    started = time.perf_counter()
    table = optimize_gamma(problem, prior=CommonP(), shape=case.shape, solver=case.solver, options=options)
    seconds = time.perf_counter() - started
    family = DominatingFamily(problem)
    family.maxima(table.gamma.half)  # fills the caches
    started = time.perf_counter()
    family.maxima(table.gamma.half)
    separation = time.perf_counter() - started
    optimality = table.optimality
    if optimality is None:
        raise ValueError("an optimised table says how good it is")
    provenance = table.provenance
    return Measurement(
        K=case.K,
        m=case.m,
        each_delta=case.each_delta,
        shape=case.shape,
        solver=case.solver,
        seconds=seconds,
        separation_seconds=separation,
        rows_full_set=full_set_size(problem),
        rows_used=int(provenance.get("rows generated", provenance.get("rows written", "0"))),
        rounds=int(provenance.get("rounds", "1")),
        expected_error=optimality.value,
        bound=optimality.bound,
        relative_gap=optimality.gap / optimality.value if optimality.value > 0.0 else 0.0,
        status=optimality.status,
        method=table.certificate.method,
        peak_megabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
    )


def measure_apart(case: Case) -> Measurement:
    """Solve one case in a new process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(measure, case).result()


def cases(
    sizes: Sequence[int], reference_sizes: Sequence[int], shapes: Sequence[str], time_limit: float, *, long: bool
) -> list[Case]:
    """List what to measure, small first."""
    listed: list[Case] = []
    for K in reference_sizes:
        listed.extend(Case(K, 3, "1e-5", "free", solver, time_limit) for solver in ("reference", "production"))
    for K in sizes:
        for m in ALLOWANCES:
            for each_delta in DELTAS:
                listed.extend(Case(K, m, each_delta, shape, "production", time_limit) for shape in shapes)
    if long:
        listed.extend(
            Case(LONG_SIZE, 10, each_delta, "monotone", "production", 3 * time_limit) for each_delta in DELTAS
        )
    return listed


def exponent(measurements: Sequence[Measurement]) -> float:
    """Fit seconds ~ K^a over the sizes of one series, K ≥ 101; NaN with fewer than two sizes."""
    points = [(np.log(item.K), np.log(item.seconds)) for item in measurements if item.K >= 101]
    if len(points) < 2:
        return float("nan")
    x, y = np.array(points).T
    return float(np.polyfit(x, y, 1)[0])


def series(measurements: Sequence[Measurement]) -> dict[tuple[int, str, str], list[Measurement]]:
    """Group the production solves by (m, Δ, shape)."""
    groups: dict[tuple[int, str, str], list[Measurement]] = {}
    for item in measurements:
        if item.K not in REFERENCE_SIZES:
            groups.setdefault((item.m, item.each_delta, item.shape), []).append(item)
    return groups


def line(item: Measurement) -> str:
    """Write one measurement as a line of the table."""
    return (
        f"{item.K:>6} {item.m:>3} {item.each_delta:>5} {item.shape:>8} {item.solver:>10} {item.seconds:>9.3f} "
        f"{item.rows_used:>7,} of {item.rows_full_set:<10.3g} {item.rounds:>5} {item.expected_error:>10.6f} "
        f"{item.relative_gap:>8.1e} {item.peak_megabytes:>7.0f} {item.over_floor:>8.1f}  {item.status}"
    )


HEADER = (
    f"{'K':>6} {'m':>3} {'Δ':>5} {'shape':>8} {'solver':>10} {'seconds':>9} {'rows':>7} of "
    f"{'full set':<10} {'rounds':>5} {'error':>10} {'rel. gap':>8} {'MB':>7} {'x floor':>8}  status"
)


def summary(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Compute what the claims are about: speed-ups over the reference, and growth exponents."""
    speedups = {}
    for item in measurements:
        if item.solver == "reference":
            twin = next(
                other
                for other in measurements
                if other.solver == "production" and (other.K, other.m) == (item.K, item.m)
            )
            speedups[str(item.K)] = {
                "times faster": item.seconds / twin.seconds,
                "difference in value": abs(item.expected_error - twin.expected_error),
            }
    exponents = {
        f"m={m}, Δ={delta}, {shape}": exponent(items) for (m, delta, shape), items in series(measurements).items()
    }
    return {"against the reference": speedups, "exponent of seconds over K": exponents}


def plot(path: Path, measurements: Sequence[Measurement]) -> None:
    """Draw seconds over K, with the floor."""
    with saved_figure(path, width=9.0, height=6.0) as figure:
        axes = figure.add_subplot()
        for (m, delta, shape), items in series(measurements).items():
            style = {"free": "o-", "monotone": "s--"}[shape]
            label = f"{shape}, m = {m}, Δ = {delta}"
            axes.loglog([item.K for item in items], [item.seconds for item in items], style, label=label)
        chosen = ("production", "0", 10, "monotone")
        floor = [item for item in measurements if (item.solver, item.each_delta, item.m, item.shape) == chosen]
        axes.loglog(
            [item.K for item in floor],
            [item.separation_seconds for item in floor],
            "k:",
            label="one separation pass (Δ = 0)",
        )
        small = [item for item in measurements if item.K in REFERENCE_SIZES and item.solver == "production"]
        axes.loglog([item.K for item in small], [item.seconds for item in small], "rv-", label="free, m = 3, Δ = 1e-5")
        reference = [item for item in measurements if item.solver == "reference"]
        axes.loglog(
            [item.K for item in reference],
            [item.seconds for item in reference],
            "r^-",
            label="every row, cvxpy (Δ = 1e-5)",
        )
        axes.set_xlabel("K, number of voters")
        axes.set_ylabel("seconds, proof included")
        axes.set_title(f"Optimal and proven noise functions (ε = {EPSILON}, common prior)")
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=8)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = CommandLine(prog="python -m experiments.scaling", description="Measure how solves grow with K.")
    parser.add_argument("--quick", action="store_true", help="up to K = 301, below a minute")
    parser.add_argument("--long", action="store_true", help="K = 20,001 as well")
    parser.add_argument("--sizes", default="", metavar="K,K,...", help="other sizes for the production solver")
    parser.add_argument("--shapes", default=",".join(SHAPES), metavar="SHAPE,...", help="default free,monotone")
    parser.add_argument(
        "--time-limit", type=float, default=TIME_LIMIT, metavar="SECONDS", help="of row generation a solve"
    )
    parser.add_argument("--output", type=Path, default=Path("results"), metavar="FOLDER", help="default results")
    options = parser.parse_args(arguments)
    try:
        chosen = tuple(int(size) for size in options.sizes.split(",") if size)
    except ValueError as error:
        raise ValueError(f"--sizes must be numbers of voters separated by commas, got {options.sizes!r}") from error
    shapes = options.shapes.split(",")
    for shape in shapes:
        checks.one_of(SHAPES, shape=shape)
    sizes = chosen or (QUICK_SIZES if options.quick else SIZES)
    options.output.mkdir(parents=True, exist_ok=True)
    measurements: list[Measurement] = []
    print(HEADER)
    reference_sizes = REFERENCE_SIZES[:3] if options.quick else REFERENCE_SIZES
    for case in cases(sizes, reference_sizes, shapes, options.time_limit, long=options.long):
        measurements.append(measure_apart(case))
        print(line(measurements[-1]), flush=True)
        report = {"measurements": [asdict(item) for item in measurements], "summary": summary_or_none(measurements)}
        write_text(options.output / "scaling.json", json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(summary(measurements), indent=1, ensure_ascii=False))
    plot(options.output / "scaling.png", measurements)
    print(f"written to {options.output / 'scaling.json'} and {options.output / 'scaling.png'}")
    return 0


def summary_or_none(measurements: Sequence[Measurement]) -> dict[str, Any] | None:
    """Summarise once every reference solve has its twin."""
    solvers = [item.solver for item in measurements]
    return summary(measurements) if solvers.count("production") >= solvers.count("reference") else None


if __name__ == "__main__":
    sys.exit(run(main))
