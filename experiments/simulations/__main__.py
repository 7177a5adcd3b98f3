"""The paper's simulations: Figures 2, 6, 7, 8, 9 and Table 3 of [D].

    python -m experiments simulations --recompute --figure 2
    python -m experiments simulations --recompute      # the published page

Writes OUTPUT/simulations/figureN.json and .png, and OUTPUT/simulations.md from all the JSON files that lie there.
γ is solved for, never loaded.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from darrm.commands.command_line import run
from darrm.util.extras import require
from darrm.util.figures import Axes, Style, saved_figure, say_instead, style
from experiments import pages
from experiments.pages import Row
from experiments.simulations import curves
from experiments.simulations.curves import PANELS, figure_data, table_3
from experiments.simulations.page import page

COLUMN_WIDTH, ROW_HEIGHT, NAME_WIDTH = 2.9, 2.9, 1.3  # inches
WORDS_HEIGHT = 0.7  # of a row that has nothing to draw
DPI = 100  # the committed pictures stay small
NAMES = (
    (curves.OPTIMAL, curves.OPTIMAL_U),
    (curves.SUB,),
    (curves.TRUE,),
    (curves.MONOTONE,),
    (curves.DOUBLE_SUB, curves.TRUE_P),  # never in one picture
    (curves.OPTIMAL_P,),
    (curves.CONSTANT,),
    (curves.BEST_CONSTANT,),
    (curves.FLAT,),
)
STYLES: dict[str, Style] = {
    name: style(place, width=1.6 if place else 2.6) for place, names in enumerate(NAMES) for name in names
}
ZERO = 1e-12  # errors below are rounding
ROOM = 1.6  # the factor that is left free beyond the errors


def draw(path: Path, data: Row) -> None:
    panels = data["panels"]
    laws = panels[0]["curves"][0]["errors"]
    heights = [ROW_HEIGHT, *(ROW_HEIGHT if _is_seen(panels, law) else WORDS_HEIGHT for law in range(len(laws)))]
    width = COLUMN_WIDTH * len(panels) + NAME_WIDTH
    with saved_figure(path, width=width, height=sum(heights), dpi=DPI) as figure:
        axes = figure.subplots(len(heights), len(panels), squeeze=False, sharey="row", height_ratios=heights)
        for column, panel in enumerate(panels):
            _draw_shapes(axes[0, column], panel)
        axes[0, 0].set_ylabel("γ(l)")
        for law, error in enumerate(laws):
            _draw_errors(axes[1 + law], panels, law, error["actual"])


def _is_seen(panels: list[Row], law: int) -> bool:
    return any(curve["errors"][law]["mean"] > ZERO for panel in panels for curve in panel["curves"])


def _draw_shapes(axes: Axes, panel: Row) -> None:
    levels = np.arange(panel["K"] + 1)
    for curve in panel["curves"]:
        axes.plot(levels, curve["gamma"], alpha=0.85, **STYLES[curve["name"]].line(levels.size))
    axes.set_title(panel["title"], fontsize=10)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("l, number of ones", fontsize=8)
    axes.set_ylim(-0.04, 1.06)
    axes.grid(alpha=0.3)


def _draw_errors(row: Sequence[Axes], panels: list[Row], law: int, actual: str) -> None:
    """Draw the mean errors under one law, all panels on one scale, the methods' names once, on the left."""
    names = [curve["name"] for curve in panels[0]["curves"]]
    errors = [[curve["errors"][law] for curve in panel["curves"]] for panel in panels]
    seen = [error["mean"] for panel in errors for error in panel if error["mean"] > ZERO]
    least, most = (min(seen) / ROOM, max(seen) * ROOM) if seen else (0.1, 1.0)
    least = 10.0 ** np.floor(np.log10(least))
    for axes, drawn in zip(row, errors, strict=True):
        if all(error["mean"] <= ZERO for error in drawn):
            say_instead(axes, f"{actual}:\nthe error of every γ is 0")
            continue
        axes.set(xscale="log", xlim=(least, most), ylim=(len(names) - 0.5, -0.8))
        for place, (name, error) in enumerate(zip(names, drawn, strict=True)):
            _draw_error(axes, place, STYLES[name], error)
        axes.set_yticks(range(len(names)), labels=names, fontsize=8)
        axes.set_xlabel(f"error, {actual}", fontsize=8)
        axes.tick_params(axis="x", labelsize=7)
        axes.xaxis.minorticks_off()
        axes.grid(axis="x", alpha=0.3)


def _draw_error(axes: Axes, place: int, how: Style, error: Row) -> None:
    """Draw one mean as a line from the left with its marker; 0, which such an axis lacks, as a number at the left."""
    least, most = axes.get_xlim()
    mean = error["mean"]
    if mean <= ZERO:
        axes.annotate("0", (least, place), (5, 0), textcoords="offset points", va="center", fontsize=7)
        return
    axes.plot([least, mean], [place, place], color=how.color, linestyle=how.dash, linewidth=1.0)
    spread = error["standard_error"]
    axes.errorbar(mean, place, xerr=spread, color=how.color, marker=how.marker, capsize=2, markersize=6)
    right = mean > np.sqrt(least * most)
    side = {"ha": "right" if right else "left", "textcoords": "offset points", "fontsize": 7}
    axes.annotate(_short(mean), (mean, place), (-6 if right else 6, 5), **side)


def _short(mean: float) -> str:
    if mean <= ZERO:
        return "0"
    return f"{mean:.3f}" if mean >= 1e-2 else f"{mean:.1e}"


NAME = "simulations"
TABLE = "table3"


def main(arguments: Sequence[str] | None = None) -> int:
    options = pages.command_line(NAME, __doc__, figures=(*PANELS, TABLE)).parse_args(arguments)
    folder = pages.data_folder(options, NAME)
    if not options.page:
        require("matplotlib")
    for name in pages.chosen_figures(options, (*PANELS, TABLE)):
        if name == TABLE:
            pages.write_json(folder / f"{TABLE}.json", table_3())
        else:
            data = figure_data(name)
            pages.write_json(folder / f"figure{name}.json", data)
            draw(folder / f"figure{name}.png", data)
    return pages.finish(folder, page(folder))


if __name__ == "__main__":
    sys.exit(run(main))
