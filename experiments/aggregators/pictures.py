"""Draw the pictures of the comparison of aggregators, one panel for each kind of voters."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from darrm.plan import Mechanism
from darrm.plan.planner import find_mechanism
from darrm.plan.report import draw_accuracies
from darrm.util.figures import Axes, Figure, Style, save_figure, style
from experiments.aggregators.comparison import ALLOWANCES, SLUGS, Comparison, list_aggregators
from experiments.aggregators.settings import name_mechanism
from experiments.pages import Row

COLUMNS = 3
FIRST_CHOICE = "darrm"  # name of the first choice in the legend of the budgets
# lines of the budgets from back to front: color-blind safe colors (Okabe and Ito) and markers
BUDGET_LINES = {
    "randomized response": ("#999999", "x"),
    "subsampling": ("#56B4E9", "v"),
    "double subsampling": ("#009E73", "^"),
    "LNMax": ("#E69F00", "s"),
    "exponential mechanism": ("#CC79A7", "D"),
    "GNMax, tight σ": ("#D55E00", "P"),
    FIRST_CHOICE: ("#000000", "o"),
}


def make_styles(mechanisms: Sequence[type[Mechanism]]) -> dict[str, Style]:
    """Map the name of each mechanism to its line style."""
    return {
        name_mechanism(mechanism): replace(style(place), color=mechanism.color)
        for place, mechanism in enumerate(mechanisms)
    }


def save_margins(
    path: Path, comparisons: list[Comparison], *, mechanisms: Sequence[type[Mechanism]] | None = None
) -> None:
    """Draw the probability of the true majority over the margin, one panel for each workload.

    ``mechanisms`` selects the lines (default: `list_aggregators()`).
    """
    columns = min(COLUMNS, len(comparisons))
    rows = -(-len(comparisons) // columns)
    aggregators = list_aggregators(mechanisms)
    styles = {
        name: replace(line, width=mechanism.linewidth)
        for (name, line), mechanism in zip(make_styles(aggregators).items(), aggregators, strict=True)
    }
    with save_figure(path, width=5.0 * columns, height=3.6 * rows + 0.8, dpi=110) as figure:
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis, comparison in zip(axes.flat, comparisons, strict=False):
            margins = [2 * level - comparison.workload["K"] for level in comparison.levels]
            for option in comparison.options[::-1]:
                axis.plot(margins, option["truth"], label=option["name"], **styles[option["name"]].line(len(margins)))
            axis.set_title(comparison.title, fontsize=9)
            axis.set_ylim(0.48, 1.02)
            axis.grid(alpha=0.3)
            axis.set_xlabel("margin, 2l − K votes", fontsize=9)
        for axis in axes[:, 0]:
            axis.set_ylabel("Pr[true majority]", fontsize=9)
        for axis in list(axes.flat)[len(comparisons) :]:
            axis.set_axis_off()
        _add_legend(figure, axes.flat, list(styles), columns=5)


def save_private(path: Path, rows: Sequence[Row]) -> None:
    """Plot accuracies for private voters over the allowance m, one panel for each number of classes."""
    styles = make_styles([find_mechanism(slug) for slug in SLUGS])
    class_numbers = list(dict.fromkeys(row["classes"] for row in rows))
    with save_figure(path, width=3.4 * len(class_numbers), height=3.8, dpi=110) as figure:
        axes = figure.subplots(1, len(class_numbers), squeeze=False)[0]
        for axis, classes in zip(axes, class_numbers, strict=True):
            class_rows = [row for row in rows if row["classes"] == classes]
            for name, line in styles.items():
                points = [(row["m"], row["right"][name]) for row in class_rows if name in row["right"]]
                if points:
                    axis.plot(*zip(*points, strict=True), label=name, **line.line(len(points)))
            axis.set_title(f"C = {classes}, K = {class_rows[0]['voters']}", fontsize=9)
            axis.set_xticks(ALLOWANCES)
            axis.set_ylim(0.0, 1.03)
            axis.set_xlabel("m, each voter 0.1-private", fontsize=9)
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("share of right labels", fontsize=9)
        _add_legend(figure, axes, list(styles), columns=4)


def save_budgets(path: Path, panels: list[Row]) -> None:
    """Plot accuracy over the total ε, one panel for each kind of voters."""
    line_styles = {
        name: {"color": color, "marker": marker, "linewidth": 2.6 if name == FIRST_CHOICE else 1.3}
        for name, (color, marker) in BUDGET_LINES.items()
    }
    with save_figure(path, width=11.0, height=4.2, dpi=110) as figure:
        axes = figure.subplots(1, len(panels), sharey=True)
        for axis, panel in zip(axes, panels, strict=True):
            accuracies = {
                name: {point["epsilon"]: point["right"][name] for point in panel["points"] if name in point["right"]}
                for name in BUDGET_LINES
            }
            draw_accuracies(axis, accuracies, line_styles)
            axis.set_title(panel["title"], fontsize=9)
        axes[0].set_ylabel("share of right labels")
        _add_legend(figure, axes, list(BUDGET_LINES)[::-1])


def _add_legend(figure: Figure, axes: Sequence[Axes], names: Sequence[str], columns: int | None = None) -> None:
    """Add one legend for all panels, with the drawn lines in the order of the names."""
    lines = {line.get_label(): line for axis in axes for line in axis.get_lines()}
    names = [name for name in names if name in lines]
    figure.legend(
        [lines[name] for name in names], names, loc="outside lower center", ncols=columns or len(names), fontsize=9
    )
