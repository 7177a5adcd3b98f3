"""The paper's simulations as pictures: γ above, errors below, one column a panel, one color a method."""

from pathlib import Path
from typing import Any

import numpy as np

from darrm.system.figures import saved_figure

COLUMN_WIDTH, ROW_HEIGHT = 3.1, 2.9
DPI = 100  # the committed pictures stay small
# color, line style, marker; the paper has γ_opt in red and γ_DSub in cyan
STYLES = {
    "γ_opt": ("red", "-", "o"),
    "γ_opt-U": ("red", "-", "o"),
    "γ_opt-P": ("darkorange", "-", "P"),
    "γ_Sub": ("blue", "--", "s"),
    "γ_DSub": ("darkturquoise", "-.", "^"),
    "γ_const": ("dimgray", ":", "D"),
    "γ_const* (ours)": ("silver", ":", "d"),
    "γ_true (ours)": ("green", "-", "v"),
    "γ_true-P (ours)": ("yellowgreen", "-", "X"),
    "γ_mono (ours)": ("magenta", "--", "*"),
}
MOST_MARKED = 40  # more points than this are drawn as lines only


def draw(path: Path, data: dict[str, Any]) -> None:
    """Draw a figure."""
    panels = data["panels"]
    laws = [error["actual"] for error in panels[0]["curves"][0]["errors"]]
    rows, columns = 1 + len(laws), len(panels)
    width = COLUMN_WIDTH * columns + (2.0 if columns <= 2 else 0.0)
    with saved_figure(path, width=width, height=ROW_HEIGHT * rows + 0.6, dpi=DPI) as figure:
        axes = figure.subplots(rows, columns, squeeze=False)
        for column, panel in enumerate(panels):
            _draw_shapes(axes[0, column], panel)
            for row, _ in enumerate(laws):
                _draw_errors(axes[1 + row, column], panel, row)
        axes[0, 0].set_ylabel("γ(l)")
        for row, law in enumerate(laws):
            axes[1 + row, 0].set_ylabel(f"error, {law}", fontsize=8)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        lines = -(-len(labels) // round(0.8 * width))
        figure.legend(handles, labels, loc="outside upper center", ncols=-(-len(labels) // lines), fontsize=8)


def _draw_shapes(axes: Any, panel: dict[str, Any]) -> None:  # noqa: ANN401 (matplotlib ships no types)
    levels = np.arange(panel["K"] + 1)
    for index, curve in enumerate(panel["curves"]):
        style = dict(zip(("color", "linestyle", "marker"), STYLES[curve["name"]], strict=True))
        if levels.size > MOST_MARKED:
            del style["marker"]
        width = 2.4 if index == 0 else 1.4
        axes.plot(levels, curve["gamma"], label=curve["name"], markersize=4, linewidth=width, alpha=0.85, **style)
    axes.set_title(panel["title"], fontsize=10)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("l, number of ones", fontsize=8)
    axes.set_ylim(-0.04, 1.06)
    axes.grid(alpha=0.3)


def _draw_errors(axes: Any, panel: dict[str, Any], law: int) -> None:  # noqa: ANN401 (matplotlib ships no types)
    curves = panel["curves"]
    means = [curve["errors"][law]["mean"] for curve in curves]
    spreads = [curve["errors"][law]["standard_error"] for curve in curves]
    largest = max(means)
    top = 1.18 * largest if largest > 1e-12 else 1.0
    for index, (curve, mean, spread) in enumerate(zip(curves, means, spreads, strict=True)):
        axes.bar(index, mean, yerr=spread, color=STYLES[curve["name"]][0], alpha=0.75, capsize=3)
        axes.text(index, mean + 0.02 * top, _short(mean), ha="center", va="bottom", fontsize=6.5)
    axes.set(xticks=[], ylim=(0.0, top))
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", alpha=0.3)


def _short(mean: float) -> str:
    if mean < 1e-12:
        return "0"
    return f"{mean:.3f}" if mean >= 1e-3 else f"{mean:.0e}"
