"""What `python -m experiments.scaling` shows: a summary, a picture and a page, all from its measurements."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import numpy as np

from darrm.util.figures import saved_figure, style
from experiments.pages import Row, filled

LOOPS = ("compiled", "numpy")
REFERENCE_SIZES = (7, 9, 11, 13)
EPSILON = "0.1"
GAP, LARGE_GAP, LARGEST_TO_GAP = 1e-11, 1e-6, 301  # relative, up to K = 301 and beyond


@dataclass(frozen=True)
class Case:
    """One solve."""

    K: int
    m: int
    each_delta: str
    shape: str
    solver: str
    loops: str = "compiled"  # or "numpy"
    prior: str = "common"  # or "uniform"


# of a case or its measurement, to sort and compare
case_of = attrgetter("prior", "K", "m", "each_delta", "shape", "solver", "loops")


@dataclass(frozen=True, kw_only=True)
class Measurement(Case):
    """A solve: its seconds and memory, its error and bound."""

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
    runs: int = 1  # this one has the median time

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
        if item.K not in REFERENCE_SIZES and item.loops == loops and item.prior == "common":
            groups[item.m, item.each_delta, item.shape].append(item)
    return groups


def summary(measurements: Sequence[Measurement]) -> dict[str, list[Row]]:
    """Compute the page's speed-ups over the reference, and growth exponents."""
    production = {(item.K, item.m): item for item in measurements if item.solver == "production"}
    twins = [(item, production[item.K, item.m]) for item in measurements if item.solver == "reference"]
    speedups = [
        {
            "K": item.K,
            "times_faster": item.seconds / twin.seconds,
            "difference": abs(item.expected_error - twin.expected_error),
        }
        for item, twin in twins
    ]
    exponents = [
        {"m": m, "delta": delta, "shape": shape, "loops": loops, "exponent": exponent(items)}
        for loops in LOOPS
        for (m, delta, shape), items in series(measurements, loops).items()
    ]
    return {"speedups": speedups, "exponents": exponents}


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
            chosen = [item for item in measurements if case_of(item)[2:] == case and item.prior == "common"]
            sizes = [item.K for item in chosen]
            values = [getattr(item, quantity) for item in chosen]
            axes.loglog(sizes, values, label=label, **style(place).line(len(sizes)))
        title = f"Optimal and proven noise functions (ε = {EPSILON}, common prior)"
        axes.set(xlabel="K, number of voters", ylabel="seconds, proof included", title=title)
        axes.grid(alpha=0.3, which="both")
        figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)


def page(measurements: Sequence[Measurement]) -> str:
    """Fill the page of the documentation."""
    limits = {"epsilon": EPSILON, "gap": GAP, "large_gap": LARGE_GAP, "largest_to_gap": LARGEST_TO_GAP}
    by_prior = {prior: [item for item in measurements if item.prior == prior] for prior in ("common", "uniform")}
    return filled("scaling", by_prior, summary(measurements), limits)
