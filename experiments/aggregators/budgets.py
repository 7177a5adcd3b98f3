"""Draw the README's picture: the share of right labels over the budget, ``python -m experiments.aggregators.budgets``.

Writes OUTPUT/aggregators/budgets.json and budgets.png: every aggregator that `advise` asks, at each budget.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from darrm.advise import advise
from darrm.plan.families import FAMILIES
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.system.command_line import run
from darrm.system.figures import saved_figure
from experiments import pages
from experiments.pages import Row

TEACHERS = Voters(250, PrivacyParams("inf"), overlap=1)
FRESH = Voters(11, PrivacyParams("0.1", "1e-5"))
PANELS = (  # title, voters, questions, classes, δ, and every ε
    (
        "11 private voters, ε = 0.1 each, a person in all\none question",
        FRESH,
        1,
        2,
        "1e-4",
        "0.1 0.2 0.3 0.4 0.5 0.6",
    ),
    ("250 teachers, a person in one\n1,000 questions, two classes", TEACHERS, 1000, 2, "1e-5", "0.5 1 2 4 8"),
    ("250 teachers, a person in one\n500 questions, ten classes", TEACHERS, 500, 10, "1e-5", "0.5 1 2 4 8"),
)
# What is drawn, from the back to the front. Colors that the color-blind can tell apart (Okabe and Ito), and a marker.
LINES = {
    "randomized response": ("#999999", "x"),
    "subsampling": ("#56B4E9", "v"),
    "double subsampling": ("#009E73", "^"),
    "LNMax": ("#E69F00", "s"),
    "exponential mechanism": ("#CC79A7", "D"),
    "GNMax, tight σ": ("#D55E00", "P"),
    "darrm": ("#000000", "o"),
}


def workloads(panel: int) -> Iterator[Workload]:
    """Yield the workloads of a panel, one for each budget."""
    _, voters, queries, classes, delta, epsilons = PANELS[panel]
    for epsilon in epsilons.split():
        yield Workload(voters, queries, PrivacyParams(epsilon, delta), classes)


def shares_right(work: Workload) -> dict[str, float]:
    """Compute the share of right labels of each aggregator by its name; what this library would release is darrm."""
    drawn = [family for family in FAMILIES if family.planned or family.name in LINES]
    advice = advise(work, families=drawn)
    shares = {option.name: option.right for option in advice.options if option.name in LINES}
    return {**shares, "darrm": advice.recommended.right}


def measure() -> list[Row]:
    """Ask `advise` at every budget of every panel."""
    found = []
    for panel, (title, *_) in enumerate(PANELS):
        points = []
        for work in workloads(panel):
            points.append({"epsilon": work.total.epsilon, "right": shares_right(work)})
            print(f"{work.voters.K} voters, {work.classes} classes, {work.total}", flush=True)
        found.append({"title": title, "points": points})
    return found


def save_budgets(path: Path, panels: list[Row]) -> None:
    """Draw the share of right labels over the total ε, one panel for each kind of voters."""
    with saved_figure(path, width=11.0, height=4.2, dpi=110) as figure:
        axes = figure.subplots(1, len(panels), sharey=True)
        shown: Row = {}
        for axis, panel in zip(axes, panels, strict=True):
            for name, (color, marker) in LINES.items():
                points = [(each["epsilon"], each["right"][name]) for each in panel["points"] if name in each["right"]]
                if points:
                    width = 2.6 if name == "darrm" else 1.3
                    (shown[name],) = axis.plot(*zip(*points, strict=True), color=color, marker=marker, linewidth=width)
            ticks = [each["epsilon"] for each in panel["points"]]
            axis.set_xscale("log")
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.minorticks_off()
            axis.set_title(panel["title"], fontsize=9)
            axis.set_xlabel("total ε, all questions together")
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("share of right labels")
        names = [name for name in reversed(LINES) if name in shown]
        figure.legend([shown[name] for name in names], names, loc="outside lower center", ncols=len(names), fontsize=9)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure unless ``--page`` is given, and draw."""
    options = pages.command_line("aggregators", str(__doc__), module="aggregators.budgets").parse_args(arguments)
    folder = pages.data_folder(options, "aggregators")
    if not options.page:
        pages.write_json(folder / "budgets.json", measure())
    save_budgets(folder / "budgets.png", pages.read_json(folder / "budgets.json"))
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
