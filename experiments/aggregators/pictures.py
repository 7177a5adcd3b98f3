"""The pictures of the comparison of aggregators."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from darrm.plan import Mechanism
from darrm.util.figures import Style, saved_figure, style
from experiments.aggregators.comparison import Comparison, listed
from experiments.aggregators.settings import name_of

COLUMNS = 3


def styles(mechanisms: Sequence[type[Mechanism]] | None = None) -> dict[str, Style]:
    """Return color and dashes of each aggregator, by default of `listed()`, ours first."""
    return {
        name_of(one): replace(style(place), color=one.color, width=one.linewidth)
        for place, one in enumerate(listed(mechanisms))
    }


def save_margins(
    path: Path, comparisons: list[Comparison], *, mechanisms: Sequence[type[Mechanism]] | None = None
) -> None:
    """Draw the probability of the true majority over the margin, one panel for each workload.

    The lines are those of ``mechanisms``, by default `listed()`.
    """
    columns = min(COLUMNS, len(comparisons))
    rows = -(-len(comparisons) // columns)
    drawn = styles(mechanisms)
    with saved_figure(path, width=5.0 * columns, height=3.6 * rows + 0.8, dpi=110) as figure:
        axes = figure.subplots(rows, columns, squeeze=False)
        shown: dict[str, object] = {}
        for axis, comparison in zip(axes.flat, comparisons, strict=False):
            K = comparison.workload["K"]
            margins = [2 * level - K for level in comparison.levels]
            for option in comparison.options[::-1]:
                name = option["name"]
                (shown[name],) = axis.plot(margins, option["truth"], **drawn[name].line(len(margins)))
            axis.set_title(comparison.title, fontsize=9)
            axis.set_ylim(0.48, 1.02)
            axis.grid(alpha=0.3)
            axis.set_xlabel("margin, 2l − K votes", fontsize=9)
        for axis in axes[:, 0]:
            axis.set_ylabel("Pr[true majority]", fontsize=9)
        for axis in list(axes.flat)[len(comparisons) :]:
            axis.set_axis_off()
        names = [name for name in drawn if name in shown]
        figure.legend([shown[name] for name in names], names, loc="outside lower center", ncols=5, fontsize=9)
