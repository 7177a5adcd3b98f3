"""The pictures of the comparison of aggregators."""

from collections.abc import Sequence
from pathlib import Path

from darrm.advise import Contender
from darrm.advise import contenders as registry
from darrm.system.figures import saved_figure
from experiments.aggregators.comparison import Comparison

COLUMNS = 3


def save_margins(path: Path, comparisons: list[Comparison], *, contenders: Sequence[Contender] | None = None) -> None:
    """Draw the probability of the true majority over the margin, one panel for each workload.

    The lines are those of ``contenders``, by default `registry.CONTENDERS`.
    """
    columns = min(COLUMNS, len(comparisons))
    rows = -(-len(comparisons) // columns)
    drawn = {each.name: each for each in (registry.CONTENDERS if contenders is None else contenders)}
    with saved_figure(path, width=5.0 * columns, height=3.6 * rows + 0.8, dpi=110) as figure:
        axes = figure.subplots(rows, columns, squeeze=False)
        shown: dict[str, object] = {}
        for axis, comparison in zip(axes.flat, comparisons, strict=False):
            K = comparison.workload["K"]
            margins = [2 * level - K for level in comparison.levels]
            for option in comparison.options[::-1]:
                each = drawn[option["name"]]
                (shown[each.name],) = axis.plot(margins, option["truth"], color=each.color, linewidth=each.linewidth)
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
