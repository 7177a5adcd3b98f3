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


case_of = attrgetter("K", "m", "each_delta", "shape", "solver")  # of a case or its measurement, to sort and compare


@dataclass(frozen=True)
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

    @property
    def over_floor(self) -> float:
        """Total time in units of one separation pass."""
        return self.seconds / self.separation_seconds


def exponent(measurements: Sequence[Measurement]) -> float:
    """Fit seconds ~ K^a over the sizes of one series, K ≥ 101; NaN with fewer than two sizes."""
    points = [(item.K, item.seconds) for item in measurements if item.K >= 101]
    sizes, seconds = np.log(np.array(points).reshape(-1, 2)).T
    return float(np.polyfit(sizes, seconds, 1)[0]) if len(points) >= 2 else float("nan")


def series(measurements: Sequence[Measurement]) -> dict[tuple[int, str, str], list[Measurement]]:
    """Group the production solves by (m, Δ, shape)."""
    groups = defaultdict(list)
    for item in measurements:
        if item.K not in REFERENCE_SIZES:
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
        f"m={m}, Δ={delta}, {shape}": exponent(items) for (m, delta, shape), items in series(measurements).items()
    }
    return {"against the reference": speedups, "exponent of seconds over K": exponents}


def plot(path: Path, measurements: Sequence[Measurement]) -> None:
    """Draw seconds over K, with the floor."""
    with saved_figure(path, width=9.0, height=6.0) as figure:
        axes = figure.add_subplot()
        drawn = series(measurements)
        for place, ((m, delta, shape), items) in enumerate(drawn.items()):
            label = f"{shape}, m = {m}, Δ = {delta}"
            sizes = [item.K for item in items]
            axes.loglog(sizes, [item.seconds for item in items], label=label, **style(place).line(len(sizes)))
        lines = {
            "one separation pass (Δ = 0)": ("separation_seconds", (10, "0", "monotone", "production")),
            "free, m = 3, Δ = 1e-5": ("seconds", (3, "1e-5", "free", "production")),
            "every row, cvxpy (Δ = 1e-5)": ("seconds", (3, "1e-5", "free", "reference")),
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
    "seconds": "{0.seconds:.3f}",
    "rows of full set": "{0.rows_used:,} of {0.rows_full_set:.3g}",
    "rounds": "{0.rounds}",
    "error": "{0.expected_error:.6f}",
    "relative gap": "{0.relative_gap:.1e}",
    "MB": "{0.peak_megabytes:.0f}",
    "× floor": "{0.over_floor:.0f}",
    "ended": "{0.status}",
}

INTRODUCTION = """# How solves grow with the number of voters

Written by `python -m experiments.scaling --output docs/reproduction` from its measurements, of several runs where
`--keep` was given (ε = 0.1, common prior, two shared cores: read ratios, not seconds). Seconds include the proof over
the full set of multisets; the gap is between the certified expected error and a bound on every private γ of the shape,
relative to that error; × floor is the time in units of one pass over the dominating family. "Stalled" means that
nothing was broken any more by more than 1e-12 of the budget while the gap was still above the very small one that was
asked for.

![Seconds over K](scaling/scaling.png)

*Seconds over K,* both axes logarithmic: each line is one setting, each mark one proven solve."""

GROWTH = """## Growth

Least-squares exponents of seconds over K, from K = 101 on. Monotone solves need the dominating family alone, K² work a
pass. For free ones the proof looks at the levels of the full set up to the first monotone one, which is a fixed share
of K: that is K³ work a pass, and it is what their exponents show."""
