"""Draw the README's picture: the share of right labels over the budget, ``python -m experiments.aggregators.budgets``.

Writes OUTPUT/aggregators/budgets.json and budgets.png: the sweeps of ``python -m darrm.advise --sweep`` for three kinds
of voters, all histograms of votes equally likely, side by side.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from darrm.advise import sweep
from darrm.advise.sweep import BEST, Point, draw_curves
from darrm.laws.priors import Dirichlet
from darrm.plan.families import FAMILIES
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.system.command_line import run
from darrm.system.figures import saved_figure
from experiments import pages
from experiments.pages import Row

TEACHERS = Voters(250, PrivacyParams("inf"), overlap=1)
FRESH = Voters(11, PrivacyParams("0.1", "1e-5"))
_WIDE = "0.5 1 2 4 8"
PANELS = (  # title, what is released, and every ε
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
# What is drawn, from the back to the front. Colors that the color-blind can tell apart (Okabe and Ito), and a marker.
LINES = {
    "randomized response": ("#999999", "x"),
    "subsampling": ("#56B4E9", "v"),
    "double subsampling": ("#009E73", "^"),
    "LNMax": ("#E69F00", "s"),
    "exponential mechanism": ("#CC79A7", "D"),
    "GNMax, tight σ": ("#D55E00", "P"),
    BEST: ("#000000", "o"),
}


def points_of(panel: int, epsilons: Sequence[str] | None = None) -> list[Point]:
    """Sweep over the budgets of a panel, or over some of them, and keep the lines that are drawn."""
    title, work, every = PANELS[panel]
    asked = [family for family in FAMILIES if family.planned or family.name in LINES]
    show = lambda text: print(f"{title.splitlines()[0]}: {text}", flush=True)  # noqa: E731
    found = sweep(work, epsilons or every.split(), prior=Dirichlet(), families=asked, report=show).points
    return [
        {
            "epsilon": point["epsilon"],
            "right": {name: share for name, share in point["right"].items() if name in LINES},
        }
        for point in found
    ]


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
            draw_curves(axis, panel["points"], looks)
            axis.set_title(panel["title"], fontsize=9)
            shown |= {line.get_label(): line for line in axis.get_lines()}
        axes[0].set_ylabel("share of right labels")
        names = [name for name in reversed(LINES) if name in shown]
        figure.legend([shown[name] for name in names], names, loc="outside lower center", ncols=len(names), fontsize=9)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure unless ``--page`` is given, and draw."""
    options = pages.command_line("aggregators", str(__doc__), module="aggregators.budgets").parse_args(arguments)
    folder = pages.data_folder(options, "aggregators")
    if not options.page:
        panels = [{"title": title, "points": points_of(panel)} for panel, (title, *_) in enumerate(PANELS)]
        pages.write_json(folder / "budgets.json", panels)
    save_budgets(folder / "budgets.png", pages.read_json(folder / "budgets.json"))
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
