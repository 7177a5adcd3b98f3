"""Draw the pictures of the comparison of aggregators."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from darrm.plan import Mechanism
from darrm.util.figures import Style, save_figure, style
from experiments.aggregators.comparison import Comparison, list_aggregators
from experiments.aggregators.settings import name_mechanism

COLUMNS = 3


def make_styles(mechanisms: Sequence[type[Mechanism]] | None = None) -> dict[str, Style]:
    """Map the name of each aggregator (default: `list_aggregators()`) to its line style."""
    return {
        name_mechanism(mechanism): replace(style(place), color=mechanism.color, width=mechanism.linewidth)
        for place, mechanism in enumerate(list_aggregators(mechanisms))
    }


def save_margins(
    path: Path, comparisons: list[Comparison], *, mechanisms: Sequence[type[Mechanism]] | None = None
) -> None:
    """Draw the probability of the true majority over the margin, one panel for each workload.

    ``mechanisms`` selects the lines (default: `list_aggregators()`).
    """
    columns = min(COLUMNS, len(comparisons))
    rows = -(-len(comparisons) // columns)
    styles = make_styles(mechanisms)
    with save_figure(path, width=5.0 * columns, height=3.6 * rows + 0.8, dpi=110) as figure:
        axes = figure.subplots(rows, columns, squeeze=False)
        lines: dict[str, object] = {}
        for axis, comparison in zip(axes.flat, comparisons, strict=False):
            K = comparison.workload["K"]
            margins = [2 * level - K for level in comparison.levels]
            for option in comparison.options[::-1]:
                name = option["name"]
                (lines[name],) = axis.plot(margins, option["truth"], **styles[name].line(len(margins)))
            axis.set_title(comparison.title, fontsize=9)
            axis.set_ylim(0.48, 1.02)
            axis.grid(alpha=0.3)
            axis.set_xlabel("margin, 2l − K votes", fontsize=9)
        for axis in axes[:, 0]:
            axis.set_ylabel("Pr[true majority]", fontsize=9)
        for axis in list(axes.flat)[len(comparisons) :]:
            axis.set_axis_off()
        names = [name for name in styles if name in lines]
        figure.legend([lines[name] for name in names], names, loc="outside lower center", ncols=5, fontsize=9)
