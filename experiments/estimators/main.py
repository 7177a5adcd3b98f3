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
from darrm.util.figures import COLORS, GRAY, saved_figure
from experiments import pages
from experiments.estimators.contenders import (
    CONTENDERS,
    DELTA,
    NEITHER,
    OURS,
    THEIRS,
    TITLES,
    accuracy,
    split,
    teachers_of,
)
from experiments.pages import Row

NAME = "estimators"
SGD = "DP-SGD"  # one model, without a vote
EPSILONS = (0.5, 1, 2, 4, 8)
SEEDS = 10
AIM = 2 / 3  # of the cells


def result_of(name: str, *, seeds: int) -> Row:
    """Measure every contender at every budget: a share of right answers for each seed."""
    splits = [split(name, seed) for seed in range(seeds)]
    data = splits[0]
    return {
        "title": TITLES[name],
        "rows": len(data.x),
        "columns": data.x.shape[1],
        "classes": data.classes,
        "public": len(data.public),
        "questions": len(data.questions),
        "teachers": teachers_of(len(data.x)),
        "seeds": len(splits),
        "cells": [
            {
                "epsilon": epsilon,
                "right": {
                    who: [accuracy(who, data, epsilon, seed) for seed, data in enumerate(splits)] for who in CONTENDERS
                },
            }
            for epsilon in EPSILONS
        ],
    }


def means_of(cell: Row) -> dict[str, tuple[float, float]]:
    """Return the mean over seeds and its standard error of each contender that could answer within the budget."""
    shares = {who: np.array(values) for who, values in cell["right"].items() if None not in values}
    return {
        who: (float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))) for who, values in shares.items()
    }


def judged(title: str, cell: Row) -> Row:
    """Name the best private contender, and say whether one of ours is, or within a standard error of it."""
    means = means_of(cell)
    private = {who: mean for who, mean in means.items() if CONTENDERS[who][0] != NEITHER}
    best = max(private, key=lambda who: private[who][0])
    level = [who for who in private if private[who][0] >= private[best][0] - private[best][1]]
    kinds = {who: CONTENDERS[who][0] for who in level}
    return {
        "title": title,
        "epsilon": cell["epsilon"],
        "best": best,
        "mean": private[best][0],
        "error": private[best][1],
        "level": [who for who in level if who != best],
        "ours": OURS in kinds.values(),
        "vote": any(kind == OURS and who != SGD for who, kind in kinds.items()),
        "sgd": SGD in level,
        "theirs": THEIRS in kinds.values(),
        "useless": private[best][0] <= means["the largest class"][0],
        "shown": [_shown(who, means, bold=who in level) for who in CONTENDERS],
    }


def _shown(who: str, means: dict[str, tuple[float, float]], *, bold: bool) -> str:
    if who not in means:
        return "–"
    mean = f"{means[who][0]:.3f}"
    return f"**{mean}**" if bold else mean


def page(results: dict[str, Row]) -> str:
    cells = {name: [judged(result["title"], cell) for cell in result["cells"]] for name, result in results.items()}
    every = [cell for row in cells.values() for cell in row]
    lost = Counter(cell["title"] for cell in every if not cell["vote"])
    planned = len(TITLES) * len(EPSILONS)  # a cell that was not run supports no claim
    counts: Row = {kind: sum(cell[kind] for cell in every) for kind in ("ours", "vote", "sgd")}
    facts = {
        "holds": {kind: counts[kind] >= AIM * planned for kind in ("ours", "vote")},
        "cells": every,
        "number": len(every),
        "behind": lost.total(),
        "behind_on": ", ".join(f"{title} {number}" for title, number in lost.items()) or "none",
        "planned": planned,
        "seeds": min(result["seeds"] for result in results.values()),
        "where": [
            {"title": results[name]["title"], **{kind: _budgets(row, kind) for kind in ("vote", "sgd", "theirs")}}
            for name, row in cells.items()
        ],
        "lost": [f"{cell['title']} at ε = {cell['epsilon']} ({cell['best']})" for cell in every if not cell["ours"]],
        "useless": [f"{cell['title']} at ε = {cell['epsilon']}" for cell in every if cell["useless"]],
        "results": results,
        "contenders": list(CONTENDERS),
        "delta": f"{DELTA:g}",
        "lacks": [title for name, title in TITLES.items() if name not in results],
    }
    return pages.filled(NAME, counts | facts)


def _budgets(cells: Sequence[Row], kind: str) -> str:
    """List at which ε a kind of contender is best on a data set, or as good within a standard error."""
    return ", ".join(f"{cell['epsilon']}" for cell in cells if cell[kind]) or "none"


def draw(folder: Path, results: dict[str, Row]) -> None:
    """Draw the share of right answers over ε, a panel for each data set."""
    bright = [color for color in COLORS if color != GRAY]
    colors = dict(zip(CONTENDERS, (*bright, *bright), strict=False))
    lines = (len(results) + 1) // 2  # two panels in a row are readable on a phone
    with saved_figure(folder / "right.png", width=6.5, height=2.4 * lines + 1.1, dpi=120) as figure:
        panels = figure.subplots(lines, 2, sharex=True, squeeze=False).ravel()
        for result, panel in zip(results.values(), panels, strict=False):
            means = [means_of(cell) for cell in result["cells"]]
            for who, (kind, _) in CONTENDERS.items():
                line = {OURS: "o-", NEITHER: ":"}.get(kind, "s--")
                shown = [100.0 * mean[who][0] if who in mean else np.nan for mean in means]
                color = GRAY if kind == NEITHER else colors[who]
                width = 2.5 if who == SGD else 1.3
                panel.plot(EPSILONS, shown, line, color=color, label=who, markersize=4, linewidth=width)
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
    """Measure the data sets that were asked for, and write the page about all that were."""
    parser = pages.command_line(NAME, __doc__, figures=list(TITLES))
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help=f"how many (default {SEEDS})")
    options = parser.parse_args(arguments)
    checks.integer_at_least(2, seeds=options.seeds, advice="a standard error needs two")
    return pages.run_figures(options, NAME, TITLES, partial(result_of, seeds=options.seeds), page, draw)
