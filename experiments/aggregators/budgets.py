"""Draw the README's picture, accuracy over the budget: ``python -m experiments budgets --recompute``.

Writes OUTPUT/aggregators/budgets.json and budgets.png. Each of the three panels is a sweep of ``darrm plan --sweep``
for one kind of voters, under the uniform prior on histograms.
"""

from collections.abc import Sequence
from pathlib import Path

from darrm.plan import MECHANISMS, sweep
from darrm.plan.report import draw_accuracies
from darrm.priors import Dirichlet
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.util.figures import save_figure
from experiments import pages
from experiments.aggregators.settings import RELEASED_FIRST, name_mechanism
from experiments.pages import Row

TEACHERS = Voters(250, PrivacyParams("inf"), overlap=1)
PRIVATE_VOTERS = Voters(11, PrivacyParams("0.1", "1e-5"))
_WIDE_EPSILONS = "0.5 1 2 4 8"
PANELS = (  # title, workload, and the ε of the sweep
    (
        "11 private voters, ε = 0.1 each, a person in all\none question",
        Workload(PRIVATE_VOTERS, 1, PrivacyParams(1, "1e-4")),
        "0.1 0.2 0.3 0.4 0.5 0.6",
    ),
    (
        "250 teachers, a person in one\n1,000 questions, two classes",
        Workload(TEACHERS, 1000, PrivacyParams(1, "1e-5")),
        _WIDE_EPSILONS,
    ),
    (
        "250 teachers, a person in one\n500 questions, ten classes",
        Workload(TEACHERS, 500, PrivacyParams(1, "1e-5"), 10),
        _WIDE_EPSILONS,
    ),
)
FIRST_CHOICE = "darrm"  # name of the first choice in the legend
# lines from back to front: color-blind safe colors (Okabe and Ito) and markers
LINES = {
    "randomized response": ("#999999", "x"),
    "subsampling": ("#56B4E9", "v"),
    "double subsampling": ("#009E73", "^"),
    "LNMax": ("#E69F00", "s"),
    "exponential mechanism": ("#CC79A7", "D"),
    "GNMax, tight σ": ("#D55E00", "P"),
    FIRST_CHOICE: ("#000000", "o"),
}


def compute_points(panel: int, epsilons: Sequence[str] | None = None) -> list[Row]:
    """Sweep over the budgets of a panel (default: all); return the accuracies of the plotted mechanisms.

    For two classes, the objective is the expected error of [D], as on the pages of the comparison.
    """
    title, work, epsilon_words = PANELS[panel]
    mechanisms = [
        mechanism for mechanism in MECHANISMS if mechanism.slug in RELEASED_FIRST or name_mechanism(mechanism) in LINES
    ]
    print(title.splitlines()[0], flush=True)
    objective = "error" if work.has_noise_function else "accuracy"
    budgets = epsilons or epsilon_words.split()
    sweep_result = sweep(
        work, budgets, prior=Dirichlet(), mechanisms=mechanisms, objective=objective, complete=True, report=print
    )
    points: list[Row] = []
    for result in sweep_result.plans:
        accuracies = {name_mechanism(row): row.accuracy for row in result.rows if name_mechanism(row) in LINES}
        points.append(
            {"epsilon": result.workload.total.epsilon, "right": {**accuracies, FIRST_CHOICE: result.best.accuracy}}
        )
    return points


def draw_lines(points: Sequence[Row]) -> dict[str, dict[float, float]]:
    """Map each name to its accuracies by ε."""
    return {
        name: {point["epsilon"]: point["right"][name] for point in points if name in point["right"]} for name in LINES
    }


def save_budgets(path: Path, panels: list[Row]) -> None:
    """Plot accuracy over the total ε, one panel for each kind of voters."""
    line_styles = {
        name: {"color": color, "marker": marker, "linewidth": 2.6 if name == FIRST_CHOICE else 1.3}
        for name, (color, marker) in LINES.items()
    }
    with save_figure(path, width=11.0, height=4.2, dpi=110) as figure:
        axes = figure.subplots(1, len(panels), sharey=True)
        lines: Row = {}
        for axis, panel in zip(axes, panels, strict=True):
            draw_accuracies(axis, draw_lines(panel["points"]), line_styles)
            axis.set_title(panel["title"], fontsize=9)
            lines |= {line.get_label(): line for line in axis.get_lines()}
        axes[0].set_ylabel("share of right labels")
        names = [name for name in reversed(LINES) if name in lines]
        figure.legend([lines[name] for name in names], names, loc="outside lower center", ncols=len(names), fontsize=9)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure with ``--recompute``, and draw."""
    options = pages.make_command_line("aggregators", __doc__, module="experiments budgets").parse_args(arguments)
    folder = pages.prepare_folder(options, "aggregators")
    if not options.page:
        panels = [{"title": title, "points": compute_points(panel)} for panel, (title, *_) in enumerate(PANELS)]
        pages.write_json(folder / "budgets.json", panels)
    save_budgets(folder / "budgets.png", pages.read_json(folder / "budgets.json"))
    return 0
