"""Compare our estimators with other private classifiers at equal budgets (needs the extra benchmark).

python -m experiments estimators --recompute --figure wine --figure digits      # minutes, no download
python -m experiments estimators --recompute --figure adult --figure mnist      # longer
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from darrm.util import checks
from darrm.util.figures import COLORS, GRAY, save_figure
from experiments import pages
from experiments.estimators.contenders import (
    CONTENDERS,
    DARRM,
    DELTA,
    DIFFPRIVLIB,
    NON_PRIVATE,
    TITLES,
    choose_teachers,
    measure_accuracy,
    split,
)
from experiments.pages import Row

NAME = "estimators"
SGD = "DP-SGD"  # one model, without a vote
EPSILONS = (0.5, 1, 2, 4, 8)
SEEDS = 10
MIN_SHARE_OF_CELLS = 2 / 3  # for a claim to hold


def compute_result(name: str, *, seeds: int) -> Row:
    """Measure the accuracy of every contender at every budget for each seed."""
    splits = [split(name, seed) for seed in range(seeds)]
    first_split = splits[0]
    return {
        "title": TITLES[name],
        "rows": len(first_split.x),
        "columns": first_split.x.shape[1],
        "classes": first_split.classes,
        "public": len(first_split.public),
        "questions": len(first_split.questions),
        "teachers": choose_teachers(len(first_split.x)),
        "seeds": len(splits),
        "cells": [
            {
                "epsilon": epsilon,
                "right": {
                    contender: [measure_accuracy(contender, data, epsilon, seed) for seed, data in enumerate(splits)]
                    for contender in CONTENDERS
                },
            }
            for epsilon in EPSILONS
        ],
    }


def compute_means(cell: Row) -> dict[str, tuple[float, float]]:
    """Return mean accuracy and standard error over seeds for each contender that fits the budget."""
    shares = {name: np.array(values) for name, values in cell["right"].items() if None not in values}
    return {
        name: (float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))
        for name, values in shares.items()
    }


def judge_cell(title: str, cell: Row) -> Row:
    """Find the best private contender, and those within a standard error of it."""
    means = compute_means(cell)
    private = {name: mean for name, mean in means.items() if CONTENDERS[name][0] != NON_PRIVATE}
    best = max(private, key=lambda name: private[name][0])
    equal = [name for name in private if private[name][0] >= private[best][0] - private[best][1]]
    kinds = {name: CONTENDERS[name][0] for name in equal}
    return {
        "title": title,
        "epsilon": cell["epsilon"],
        "best": best,
        "mean": private[best][0],
        "error": private[best][1],
        "level": [name for name in equal if name != best],
        "ours": DARRM in kinds.values(),
        "vote": any(kind == DARRM and name != SGD for name, kind in kinds.items()),
        "sgd": SGD in equal,
        "theirs": DIFFPRIVLIB in kinds.values(),
        "useless": private[best][0] <= means["the largest class"][0],
        "shown": [_format_mean(name, means, bold=name in equal) for name in CONTENDERS],
    }


def _format_mean(name: str, means: dict[str, tuple[float, float]], *, bold: bool) -> str:
    if name not in means:
        return "–"
    mean = f"{means[name][0]:.3f}"
    return f"**{mean}**" if bold else mean


def fill_page(results: dict[str, Row]) -> str:
    cells = {name: [judge_cell(result["title"], cell) for cell in result["cells"]] for name, result in results.items()}
    all_cells = [cell for row in cells.values() for cell in row]
    losses = Counter(cell["title"] for cell in all_cells if not cell["vote"])
    planned = len(TITLES) * len(EPSILONS)  # a missing cell counts against a claim
    counts: Row = {kind: sum(cell[kind] for cell in all_cells) for kind in ("ours", "vote", "sgd")}
    facts = {
        "holds": {kind: counts[kind] >= MIN_SHARE_OF_CELLS * planned for kind in ("ours", "vote")},
        "cells": all_cells,
        "number": len(all_cells),
        "behind": losses.total(),
        "behind_on": ", ".join(f"{title} {number}" for title, number in losses.items()) or "none",
        "planned": planned,
        "seeds": min(result["seeds"] for result in results.values()),
        "where": [
            {"title": results[name]["title"], **{kind: _list_budgets(row, kind) for kind in ("vote", "sgd", "theirs")}}
            for name, row in cells.items()
        ],
        "lost": [
            f"{cell['title']} at ε = {cell['epsilon']} ({cell['best']})" for cell in all_cells if not cell["ours"]
        ],
        "useless": [f"{cell['title']} at ε = {cell['epsilon']}" for cell in all_cells if cell["useless"]],
        "results": results,
        "contenders": list(CONTENDERS),
        "delta": f"{DELTA:g}",
        "lacks": [title for name, title in TITLES.items() if name not in results],
    }
    return pages.fill_template(NAME, counts | facts)


def _list_budgets(cells: Sequence[Row], kind: str) -> str:
    """List the ε at which a kind of contender is best on a data set, or within a standard error of the best."""
    return ", ".join(f"{cell['epsilon']}" for cell in cells if cell[kind]) or "none"


def draw(folder: Path, results: dict[str, Row]) -> None:
    """Plot accuracy over ε, one panel for each data set."""
    bright_colors = [color for color in COLORS if color != GRAY]
    colors = dict(zip(CONTENDERS, (*bright_colors, *bright_colors), strict=False))
    num_rows = (len(results) + 1) // 2  # two panels in a row are readable on a phone
    with save_figure(folder / "right.png", width=6.5, height=2.4 * num_rows + 1.1, dpi=120) as figure:
        panels = figure.subplots(num_rows, 2, sharex=True, squeeze=False).ravel()
        for result, panel in zip(results.values(), panels, strict=False):
            means_by_budget = [compute_means(cell) for cell in result["cells"]]
            for contender, (kind, _) in CONTENDERS.items():
                line = {DARRM: "o-", NON_PRIVATE: ":"}.get(kind, "s--")
                percentages = [100.0 * mean[contender][0] if contender in mean else np.nan for mean in means_by_budget]
                color = GRAY if kind == NON_PRIVATE else colors[contender]
                width = 2.5 if contender == SGD else 1.3
                panel.plot(EPSILONS, percentages, line, color=color, label=contender, markersize=4, linewidth=width)
            panel.set_title(result["title"], fontsize=9)
            panel.set_xscale("log")
            panel.set_xticks(EPSILONS, [str(epsilon) for epsilon in EPSILONS])
            panel.minorticks_off()
            panel.grid(alpha=0.3)
        for panel in panels[len(results) :]:
            panel.set_axis_off()
        figure.supxlabel(f"ε, at δ = {DELTA:g}", fontsize=9)
        figure.supylabel("answers that are right, %", fontsize=9)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=8)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the selected data sets, and write the page from all stored results."""
    parser = pages.make_command_line(NAME, __doc__, figures=list(TITLES))
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help=f"how many (default {SEEDS})")
    options = parser.parse_args(arguments)
    checks.integer_at_least(2, seeds=options.seeds, advice="a standard error needs two")
    return pages.run_figures(options, NAME, TITLES, partial(compute_result, seeds=options.seeds), fill_page, draw)
