"""What `python -m experiments.scaling` shows: lines, a summary, a picture and a page, all from its measurements."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from darrm.system.figures import saved_figure, style
from experiments.pages import table

LOOPS = ("compiled", "numpy")
REFERENCE_SIZES = (7, 9, 11, 13)
EPSILON = "0.1"


@dataclass(frozen=True)
class Case:
    """One solve."""

    K: int
    m: int
    each_delta: str
    shape: str
    solver: str
    loops: str = "compiled"  # or "numpy"


case_of = attrgetter(
    "K", "m", "each_delta", "shape", "solver", "loops"
)  # of a case or its measurement, to sort and compare


@dataclass(frozen=True, kw_only=True)
class Measurement(Case):
    """A solve, what it took and what it reached."""

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
    runs: int = 1  # of which this one took the median time

    @property
    def over_floor(self) -> float:
        """Total time in units of one separation pass."""
        return self.seconds / self.separation_seconds


def exponent(measurements: Sequence[Measurement]) -> float:
    """Fit seconds ~ K^a over the sizes of one series, K ≥ 101; NaN with fewer than two sizes."""
    points = [(item.K, item.seconds) for item in measurements if item.K >= 101]
    sizes, seconds = np.log(np.array(points).reshape(-1, 2)).T
    return float(np.polyfit(sizes, seconds, 1)[0]) if len(points) >= 2 else float("nan")


def series(measurements: Sequence[Measurement], loops: str) -> dict[tuple[int, str, str], list[Measurement]]:
    """Group the production solves with one kind of loops by (m, Δ, shape)."""
    groups = defaultdict(list)
    for item in measurements:
        if item.K not in REFERENCE_SIZES and item.loops == loops:
            groups[item.m, item.each_delta, item.shape].append(item)
    return groups


def cells(item: Measurement) -> list[str]:
    """Write one measurement as the cells under `COLUMNS`."""
    return [form.format(item) for form in COLUMNS.values()]


def summary(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Compute what the claims are about: speed-ups over the reference, and growth exponents."""
    production = {(item.K, item.m): item for item in measurements if item.solver == "production"}
    speedups = {}
    for item in measurements:
        if item.solver == "reference":
            twin = production[item.K, item.m]
            speedups[str(item.K)] = {
                "times faster": item.seconds / twin.seconds,
                "difference in value": abs(item.expected_error - twin.expected_error),
            }
    exponents = {
        f"m={m}, Δ={delta}, {shape}, {loops} loops": exponent(items)
        for loops in LOOPS
        for (m, delta, shape), items in series(measurements, loops).items()
    }
    return {"against the reference": speedups, "exponent of seconds over K": exponents}


def plot(path: Path, measurements: Sequence[Measurement]) -> None:
    """Draw seconds over K, with the floor."""
    with saved_figure(path, width=9.0, height=6.0) as figure:
        axes = figure.add_subplot()
        drawn = series(measurements, "compiled")
        for place, ((m, delta, shape), items) in enumerate(drawn.items()):
            label = f"{shape}, m = {m}, Δ = {delta}"
            sizes = [item.K for item in items]
            axes.loglog(sizes, [item.seconds for item in items], label=label, **style(place).line(len(sizes)))
        lines = {
            "one separation pass (Δ = 0)": ("separation_seconds", (10, "0", "monotone", "production", "compiled")),
            "the same in numpy": ("separation_seconds", (10, "0", "monotone", "production", "numpy")),
            "free, m = 3, Δ = 1e-5": ("seconds", (3, "1e-5", "free", "production", "compiled")),
            "every row, cvxpy (Δ = 1e-5)": ("seconds", (3, "1e-5", "free", "reference", "compiled")),
        }
        for place, (label, (quantity, case)) in enumerate(lines.items(), len(drawn)):
            chosen = [item for item in measurements if case_of(item)[1:] == case]
            sizes = [item.K for item in chosen]
            values = [getattr(item, quantity) for item in chosen]
            axes.loglog(sizes, values, label=label, **style(place).line(len(sizes)))
        title = f"Optimal and proven noise functions (ε = {EPSILON}, common prior)"
        axes.set(xlabel="K, number of voters", ylabel="seconds, proof included", title=title)
        axes.grid(alpha=0.3, which="both")
        figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)


def page(measurements: Sequence[Measurement]) -> str:
    """Write the page of the documentation."""
    found = summary(measurements)
    faster = [
        f"- K = {K}: {entry['times faster']:.0f} times faster than the reference; the values differ by "
        f"{entry['difference in value']:.0e}."
        for K, entry in found["against the reference"].items()
    ]
    growth = [f"- {name}: K^{value:.2f}" for name, value in found["exponent of seconds over K"].items()]
    parts = [INTRODUCTION, table(list(COLUMNS), map(cells, measurements))]
    parts += ["## Against every row written down", "\n".join(faster), GROWTH, "\n".join(growth)]
    return "\n\n".join(parts) + "\n"


COLUMNS = {
    "K": "{0.K}",
    "m": "{0.m}",
    "Δ": "{0.each_delta}",
    "shape": "{0.shape}",
    "solver": "{0.solver}",
    "loops": "{0.loops}",
    "seconds": "{0.seconds:.3f}",
    "runs": "{0.runs}",
    "rows of full set": "{0.rows_used:,} of {0.rows_full_set:.3g}",
    "rounds": "{0.rounds}",
    "error": "{0.expected_error:.6f}",
    "relative gap": "{0.relative_gap:.1e}",
    "MB": "{0.peak_megabytes:.0f}",
    "× floor": "{0.over_floor:.0f}",
    "ended": "{0.status}",
}

INTRODUCTION = """# How solves grow with the number of voters

Written by `python -m experiments.scaling --output docs/reproduction` from its measurements, of several starts where
`--keep` was given (ε = 0.1, common prior, two shared cores: read ratios, not seconds). Shown is the run of median
seconds; what takes more than a minute was run once. Seconds include the proof over the full set of multisets; the gap
is between the certified expected error and a bound on every private γ of the shape, relative to that error; up to
K = 301 a gap of 1e-11 was asked for, beyond 1e-6. Loops are those of the extra `compiled`, or numpy's; imports and
compiled code are loaded before. × floor is the time in units of one pass over the dominating family. "Stalled" means
that nothing was broken any more by more than 1e-12 of the budget while the gap was still above the one that was asked
for.

The common prior has an opinion of every number of ones. The uniform one, the command's default, gives most of them
weights below rounding, and for thousands of voters the simplex method goes around in such programs: ask for a wider
`--gap`, or set a `--time-limit`, after which the best γ so far is proved and its gap said.

![Seconds over K](scaling/scaling.png)

*Seconds over K,* both axes logarithmic: each line is one setting, each mark one proven solve."""

GROWTH = """## Growth

Least-squares exponents of seconds over K, from K = 101 on. One look at all rows is K² work for both shapes: opposite
voters average frozen ones, so that the full set is two chains of K levels ([proof](../theory/problem.md)). What grows
faster than that is the linear program, whose rounds and rows grow with K where γ is free."""
