"""One answer of private voters, for two and more classes at equal targets: the optimum and what is usually taken."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from darrm.plan.mechanisms import named
from darrm.plan.planner import plan
from darrm.priors import Dirichlet
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.util.figures import saved_figure, style
from experiments.aggregators.names import name_of
from experiments.pages import Row, table

# (K, C): as many voters of more classes as are solved in seconds
SIZES = ((7, 2), (7, 3), (7, 5), (4, 10))
EACH, ALLOWANCES = "0.1", (1, 2, 3)
SLUGS = (
    "optimal",
    "randomized-response",
    "double-subsampling",
    "subsampling",
    "permute-and-flip",
    "exponential",
    "lnmax",
)
SHOWN = tuple(name_of(named(slug)) for slug in SLUGS)


def compare_private(*, quick: bool) -> list[Row]:
    """Compute the share of right labels of every release, where each histogram is equally likely."""
    return [_compared(K, C, m) for K, C in (SIZES[1:2] if quick else SIZES) for m in ALLOWANCES]


def _compared(K: int, C: int, m: int) -> Row:
    target = PrivacyParams(m * PrivacyParams(EACH).exact_epsilon)
    work = Workload(Voters(K, PrivacyParams(EACH)), 1, target, C)
    made = plan(work, prior=Dirichlet(), mechanisms=list(map(named, SLUGS)), complete=True)
    shares = {name_of(row): row.accuracy for row in made.rows}
    print(f"K = {K}, C = {C}, m = {m}: {shares['per query']:.4f}", flush=True)
    return {"voters": K, "classes": C, "m": m, "epsilon": EACH, "right": shares}


def private_table(rows: Sequence[Row]) -> str:
    """Tabulate the shares, the largest of a row in bold."""
    cells = []
    for row in rows:
        best = max(row["right"].values())
        shares = (row["right"].get(name) for name in SHOWN)
        written = ("–" if x is None else f"**{x:.4f}**" if x >= best - 5e-5 else f"{x:.4f}" for x in shares)
        cells.append([row["classes"], row["voters"], row["m"], *written])
    return table(["C", "K", "m", *SHOWN], cells)


def save_private(path: Path, rows: Sequence[Row]) -> None:
    """Draw the shares over the allowance, one panel for each number of classes."""
    drawn = {name_of(named(slug)): replace(style(place), color=named(slug).color) for place, slug in enumerate(SLUGS)}
    numbers = list(dict.fromkeys(row["classes"] for row in rows))
    with saved_figure(path, width=3.4 * len(numbers), height=3.8, dpi=110) as figure:
        axes = figure.subplots(1, len(numbers), squeeze=False)[0]
        lines: dict[str, object] = {}
        for axis, classes in zip(axes, numbers, strict=True):
            chosen = [row for row in rows if row["classes"] == classes]
            for name in SHOWN:
                points = [(row["m"], row["right"][name]) for row in chosen if name in row["right"]]
                if points:
                    (lines[name],) = axis.plot(*zip(*points, strict=True), **drawn[name].line(len(points)))
            axis.set_title(f"C = {classes}, K = {chosen[0]['voters']}", fontsize=9)
            axis.set_xticks(ALLOWANCES)
            axis.set_ylim(0.0, 1.03)
            axis.set_xlabel("m, each voter 0.1-private", fontsize=9)
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("share of right labels", fontsize=9)
        figure.legend(list(lines.values()), list(lines), loc="outside lower center", ncols=4, fontsize=9)
