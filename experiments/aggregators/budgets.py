"""Draw the README's picture: the share of right labels over the budget, ``python -m experiments budgets --recompute``.

Writes OUTPUT/aggregators/budgets.json and budgets.png: the sweeps of ``darrm plan --sweep`` for three kinds
of voters, all histograms of votes equally likely, side by side.
"""

from collections.abc import Sequence
from pathlib import Path

from darrm.plan import MECHANISMS, sweep
from darrm.plan.report import draw_accuracies
from darrm.priors import Dirichlet
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.util.figures import saved_figure
from experiments import pages
from experiments.aggregators.settings import RELEASED_FIRST, name_of
from experiments.pages import Row

TEACHERS = Voters(250, PrivacyParams("inf"), overlap=1)
FRESH = Voters(11, PrivacyParams("0.1", "1e-5"))
_WIDE = "0.5 1 2 4 8"
PANELS = (  # title, arguments of the plan, and every ε
    (
        "11 private voters, ε = 0.1 each, a person in all\none question",
        Workload(FRESH, 1, PrivacyParams(1, "1e-4")),
        "0.1 0.2 0.3 0.4 0.5 0.6",
    ),
    (
        "250 teachers, a person in one\n1,000 questions, two classes",
        Workload(TEACHERS, 1000, PrivacyParams(1, "1e-5")),
        _WIDE,
    ),
    (
        "250 teachers, a person in one\n500 questions, ten classes",
        Workload(TEACHERS, 500, PrivacyParams(1, "1e-5"), 10),
        _WIDE,
    ),
)
BEST = "darrm"  # this library's first choice
# the lines, from the back to the front: color-blind safe colors (Okabe and Ito), and a marker
LINES = {
    "randomized response": ("#999999", "x"),
    "subsampling": ("#56B4E9", "v"),
    "double subsampling": ("#009E73", "^"),
    "LNMax": ("#E69F00", "s"),
    "exponential mechanism": ("#CC79A7", "D"),
    "GNMax, tight σ": ("#D55E00", "P"),
    BEST: ("#000000", "o"),
}


def points_of(panel: int, epsilons: Sequence[str] | None = None) -> list[Row]:
    """Sweep over the budgets of a panel, or over some of them, and keep the lines that are drawn.

    Two classes are planned by the expected error of [D], as all pages of the comparison.
    """
    title, work, every = PANELS[panel]
    asked = [one for one in MECHANISMS if one.slug in RELEASED_FIRST or name_of(one) in LINES]
    print(title.splitlines()[0], flush=True)
    objective = "error" if work.has_noise_function else "accuracy"
    budgets = epsilons or every.split()
    found = sweep(work, budgets, prior=Dirichlet(), mechanisms=asked, objective=objective, complete=True, report=print)
    points: list[Row] = []
    for made in found.plans:
        right = {name_of(row): row.accuracy for row in made.rows if name_of(row) in LINES}
        points.append({"epsilon": made.workload.total.epsilon, "right": {**right, BEST: made.best.accuracy}})
    return points


def lines_of(points: Sequence[Row]) -> dict[str, dict[float, float]]:
    """Return the accuracies of each name over ε."""
    return {
        name: {point["epsilon"]: point["right"][name] for point in points if name in point["right"]} for name in LINES
    }


def save_budgets(path: Path, panels: list[Row]) -> None:
    """Draw the share of right labels over the total ε, one panel for each kind of voters."""
    looks = {
        name: {"color": color, "marker": marker, "linewidth": 2.6 if name == BEST else 1.3}
        for name, (color, marker) in LINES.items()
    }
    with saved_figure(path, width=11.0, height=4.2, dpi=110) as figure:
        axes = figure.subplots(1, len(panels), sharey=True)
        shown: Row = {}
        for axis, panel in zip(axes, panels, strict=True):
            draw_accuracies(axis, lines_of(panel["points"]), looks)
            axis.set_title(panel["title"], fontsize=9)
            shown |= {line.get_label(): line for line in axis.get_lines()}
        axes[0].set_ylabel("share of right labels")
        names = [name for name in reversed(LINES) if name in shown]
        figure.legend([shown[name] for name in names], names, loc="outside lower center", ncols=len(names), fontsize=9)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure with ``--recompute``, and draw."""
    options = pages.command_line("aggregators", __doc__, module="experiments budgets").parse_args(arguments)
    folder = pages.data_folder(options, "aggregators")
    if not options.page:
        panels = [{"title": title, "points": points_of(panel)} for panel, (title, *_) in enumerate(PANELS)]
        pages.write_json(folder / "budgets.json", panels)
    save_budgets(folder / "budgets.png", pages.read_json(folder / "budgets.json"))
    return 0
