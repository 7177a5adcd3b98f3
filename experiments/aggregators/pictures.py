"""The pictures of the comparison of aggregators."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from darrm.advise import Contender
from darrm.advise import contenders as registry
from darrm.system.figures import Style, saved_figure, style
from experiments.aggregators.comparison import Comparison

COLUMNS = 3


def styles(contenders: Sequence[Contender] | None = None) -> dict[str, Style]:
    """Return the style of each aggregator, by default of `registry.CONTENDERS`.

    Its own color, and dashes by its place in the list, ours first.
    """
    asked = registry.CONTENDERS if contenders is None else contenders
    ranked = sorted(asked, key=lambda each: each is not registry.OURS)
    return {
        each.name: replace(style(place), color=each.color, width=each.linewidth) for place, each in enumerate(ranked)
    }


def save_margins(path: Path, comparisons: list[Comparison], *, contenders: Sequence[Contender] | None = None) -> None:
    """Draw the probability of the true majority over the margin, one panel for each workload.

    The lines are those of ``contenders``, by default `registry.CONTENDERS`.
    """
    columns = min(COLUMNS, len(comparisons))
    rows = -(-len(comparisons) // columns)
    drawn = styles(contenders)
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
