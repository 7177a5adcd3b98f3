"""Reproduce the paper's simulations: Figures 2, 6, 7, 8, 9 and Table 3 of [D].

    python -m experiments simulations --recompute --figure 2
    python -m experiments simulations --recompute      # the published page

Writes OUTPUT/simulations/figureN.json and .png, and OUTPUT/simulations.md from all JSON files in that folder. Every γ
is optimized in the run, not read from the packaged tables.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from darrm.util.figures import Axes, Style, save_figure, say_instead, style
from experiments import pages
from experiments.pages import Row
from experiments.simulations import curves
from experiments.simulations.curves import PANELS, compute_figure, compute_table_3
from experiments.simulations.page import MAX_ROUNDING, fill_page

COLUMN_WIDTH, ROW_HEIGHT, NAME_WIDTH = 2.9, 2.9, 1.3  # inches
WORDS_HEIGHT = 0.7  # inches, of a row without errors to plot
DPI = 100  # small files for the repository
NAMES = (
    (curves.OPTIMAL, curves.OPTIMAL_U),
    (curves.SUB,),
    (curves.TRUE,),
    (curves.MONOTONE,),
    (curves.DOUBLE_SUB, curves.TRUE_P),  # never in the same picture
    (curves.OPTIMAL_P,),
    (curves.CONSTANT,),
    (curves.BEST_CONSTANT,),
    (curves.FLAT,),
)
STYLES: dict[str, Style] = {
    name: style(place, width=1.6 if place else 2.6) for place, names in enumerate(NAMES) for name in names
}
AXIS_FACTOR = 1.6  # the axis extends beyond the errors by this factor


def draw(path: Path, data: Row) -> None:
    panels = data["panels"]
    laws = panels[0]["curves"][0]["errors"]
    heights = [ROW_HEIGHT, *(ROW_HEIGHT if _has_errors(panels, law) else WORDS_HEIGHT for law in range(len(laws)))]
    width = COLUMN_WIDTH * len(panels) + NAME_WIDTH
    with save_figure(path, width=width, height=sum(heights), dpi=DPI) as figure:
        axes = figure.subplots(len(heights), len(panels), squeeze=False, sharey="row", height_ratios=heights)
        for column, panel in enumerate(panels):
            _draw_shapes(axes[0, column], panel)
        axes[0, 0].set_ylabel("γ(l)")
        for law, error in enumerate(laws):
            _draw_errors(axes[1 + law], panels, law, error["actual"])


def _has_errors(panels: list[Row], law: int) -> bool:
    return any(curve["errors"][law]["mean"] > MAX_ROUNDING for panel in panels for curve in panel["curves"])


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
    """Plot the mean errors under one law, with one scale for all panels, and method names on the left."""
    names = [curve["name"] for curve in panels[0]["curves"]]
    errors = [[curve["errors"][law] for curve in panel["curves"]] for panel in panels]
    means = [error["mean"] for panel in errors for error in panel if error["mean"] > MAX_ROUNDING]
    lower = 10.0 ** np.floor(np.log10(min(means) / AXIS_FACTOR)) if means else 0.1
    upper = max(means) * AXIS_FACTOR if means else 1.0
    for axes, panel_errors in zip(row, errors, strict=True):
        if all(error["mean"] <= MAX_ROUNDING for error in panel_errors):
            say_instead(axes, f"{actual}:\nthe error of every γ is 0")
            continue
        axes.set(xscale="log", xlim=(lower, upper), ylim=(len(names) - 0.5, -0.8))
        for place, (name, error) in enumerate(zip(names, panel_errors, strict=True)):
            _draw_error(axes, place, STYLES[name], error)
        axes.set_yticks(range(len(names)), labels=names, fontsize=8)
        axes.set_xlabel(f"error, {actual}", fontsize=8)
        axes.tick_params(axis="x", labelsize=7)
        axes.xaxis.minorticks_off()
        axes.grid(axis="x", alpha=0.3)


def _draw_error(axes: Axes, place: int, line_style: Style, error: Row) -> None:
    """Plot one mean as a line with a marker; write a 0 at the left, because a log axis has no 0."""
    lower, upper = axes.get_xlim()
    mean = error["mean"]
    if mean <= MAX_ROUNDING:
        axes.annotate("0", (lower, place), (5, 0), textcoords="offset points", va="center", fontsize=7)
        return
    axes.plot([lower, mean], [place, place], color=line_style.color, linestyle=line_style.dash, linewidth=1.0)
    spread = error["standard_error"]
    axes.errorbar(mean, place, xerr=spread, color=line_style.color, marker=line_style.marker, capsize=2, markersize=6)
    is_right = mean > np.sqrt(lower * upper)
    side = {"ha": "right" if is_right else "left", "textcoords": "offset points", "fontsize": 7}
    text = f"{mean:.3f}" if mean >= 1e-2 else f"{mean:.1e}"
    axes.annotate(text, (mean, place), (-6 if is_right else 6, 5), **side)


NAME = "simulations"
TABLE = "table3"


def main(arguments: Sequence[str] | None = None) -> int:
    options = pages.make_command_line(NAME, __doc__, figures=(*PANELS, TABLE)).parse_args(arguments)
    folder = pages.prepare_folder(options, NAME)
    selected = pages.select_figures(options, (*PANELS, TABLE))
    if TABLE in selected:
        pages.write_json(folder / f"{TABLE}.json", compute_table_3())
    for name in (name for name in selected if name != TABLE):
        data = compute_figure(name)
        pages.write_json(folder / f"figure{name}.json", data)
        draw(folder / f"figure{name}.png", data)
    return pages.write_page(folder, fill_page(folder))
