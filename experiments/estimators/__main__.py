"""Compare our estimators with other private classifiers at equal budgets (needs the extra benchmark).

    python -m experiments.estimators --figure wine --figure digits      # minutes, no download
    python -m experiments.estimators --figure adult --figure mnist      # longer

Writes OUTPUT/estimators/NAME.json, the picture of all that lie there, and OUTPUT/estimators.md.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from darrm.commands.command_line import run
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
    share_right,
    split,
    teachers_of,
)
from experiments.pages import Claim, Row

NAME, PICTURE = "estimators", "right.png"
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
                    who: [share_right(who, data, epsilon, seed) for seed, data in enumerate(splits)]
                    for who in CONTENDERS
                },
            }
            for epsilon in EPSILONS
        ],
    }


def results_of(folder: Path) -> list[Row]:
    """Read the results that lie in a folder."""
    results = [pages.read_json(path) for name in TITLES if (path := folder / f"{name}.json").is_file()]
    if not results:
        raise ValueError(f"{folder} holds no results: run it without --page first")
    return results


def means_of(cell: Row) -> dict[str, tuple[float, float]]:
    """Return the mean over seeds and its standard error of each contender that could answer within the budget."""
    shares = {who: np.array(values) for who, values in cell["right"].items() if None not in values}
    return {
        who: (float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))) for who, values in shares.items()
    }


def judged(title: str, cell: Row) -> Row:
    """Say who is best of those that are private, and whether one of ours is, or within a standard error of it."""
    means = means_of(cell)
    private = {who: mean for who, mean in means.items() if CONTENDERS[who][0] != NEITHER}
    best = max(private, key=lambda who: private[who][0])
    enough = private[best][0] - private[best][1]
    level = [who for who in private if private[who][0] >= enough]
    largest = means["the largest class"][0]
    return {
        "title": title,
        "epsilon": cell["epsilon"],
        "best": best,
        "mean": private[best][0],
        "error": private[best][1],
        "level": [who for who in level if who != best],
        "ours": any(CONTENDERS[who][0] == OURS for who in level),
        "vote": any(CONTENDERS[who][0] == OURS and who != SGD for who in level),
        "sgd": SGD in level,
        "theirs": any(CONTENDERS[who][0] == THEIRS for who in level),
        "useless": private[best][0] <= largest,
        "line": " | ".join(f"{means[who][0]:.3f} ± {means[who][1]:.3f}" if who in means else "–" for who in CONTENDERS),
    }


def cells_of(results: Sequence[Row]) -> list[Row]:
    """Judge all cells: a data set at a budget each."""
    return [judged(result["title"], cell) for result in results for cell in result["cells"]]


def budgets_of(title: str, cells: Sequence[Row], kind: str) -> str:
    """List at which ε a kind of contender is best on a data set, or as good within a standard error."""
    return ", ".join(f"{cell['epsilon']}" for cell in cells if cell["title"] == title and cell[kind]) or "none"


def claims_of(cells: Sequence[Row]) -> list[Claim]:
    """Compare the measured numbers with the aims."""
    words = {
        "ours": "one of ours is best, or within one standard error of the best, in two thirds of the cells",
        "vote": "so is one of our votes, which leaves DP-SGD out",
    }
    planned = len(TITLES) * len(EPSILONS)  # a cell that was not run bears nothing out
    numbers = {key: sum(cell[key] for cell in cells) for key in words}
    return [
        Claim(words[key], f"in {number} of {len(cells)} that were run, of {planned}", number >= AIM * planned)
        for key, number in numbers.items()
    ]


def page(folder: Path) -> str:
    """Fill the page."""
    results = results_of(folder)
    cells = cells_of(results)
    wins = {who: sum(who in (cell["best"], *cell["level"]) for cell in cells) for who in CONTENDERS}
    lost = [cell["title"] for cell in cells if not cell["vote"]]
    facts = {
        "claims": pages.claims_table(claims_of(cells)),
        "cells": cells,
        "number": len(cells),
        "ours": sum(cell["ours"] for cell in cells),
        "vote": sum(cell["vote"] for cell in cells),
        "behind": len(lost),
        "behind_on": ", ".join(f"{title} {n}" for title, n in Counter(lost).items()) or "none",
        "planned": len(TITLES) * len(EPSILONS),
        "seeds": min(result["seeds"] for result in results),
        "sgd": sum(cell["sgd"] for cell in cells),
        "where": [
            {"title": title, **{kind: budgets_of(title, cells, kind) for kind in ("vote", "sgd", "theirs")}}
            for title in dict.fromkeys(cell["title"] for cell in cells)
        ],
        "lost": [f"{cell['title']} at ε = {cell['epsilon']} ({cell['best']})" for cell in cells if not cell["ours"]],
        "useless": [f"{cell['title']} at ε = {cell['epsilon']}" for cell in cells if cell["useless"]],
        "wins": [
            {"who": who, "of": kind, "cells": wins[who]} for who, (kind, _) in CONTENDERS.items() if kind != NEITHER
        ],
        "results": [
            {**result, "rows_of": [cell for cell in cells if cell["title"] == result["title"]]} for result in results
        ],
        "head": "| ε | " + " | ".join(CONTENDERS) + " |\n" + "|---" * (len(CONTENDERS) + 1) + "|",
        "delta": f"{DELTA:g}",
        "lacks": [title for name, title in TITLES.items() if not (folder / f"{name}.json").is_file()],
    }
    return pages.filled(NAME, facts)


def draw(path: Path, results: Sequence[Row]) -> None:
    """Draw the share of right answers over ε, a panel for each data set."""
    bright = [color for color in COLORS if color != GRAY]
    colors = dict(zip(CONTENDERS, (*bright, *bright), strict=False))
    lines = (len(results) + 1) // 2  # two panels in a row are readable on a phone
    with saved_figure(path, width=6.5, height=2.4 * lines + 1.1, dpi=120) as figure:
        panels = figure.subplots(lines, 2, sharex=True, squeeze=False).ravel()
        for result, panel in zip(results, panels, strict=False):
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
    parser = pages.command_line(NAME, __doc__ or "", figures=list(TITLES))
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help=f"how many (default {SEEDS})")
    options = parser.parse_args(arguments)
    checks.integer_at_least(2, seeds=options.seeds, advice="a standard error needs two")
    shown = page, lambda folder: draw(folder / PICTURE, results_of(folder))
    return pages.run_figures(options, NAME, TITLES, partial(result_of, seeds=options.seeds), shown)


if __name__ == "__main__":
    sys.exit(run(main))
