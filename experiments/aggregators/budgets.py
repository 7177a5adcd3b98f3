"""Draw the README's picture, accuracy over the budget: ``python -m experiments budgets --recompute``.

Writes OUTPUT/aggregators/budgets.json and budgets.png. Each of the three panels is a sweep of ``darrm plan --sweep``
for one kind of voters, under the uniform prior on histograms.
"""

from collections.abc import Sequence

from darrm.plan import MECHANISMS, sweep
from darrm.priors import Dirichlet
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from experiments import pages
from experiments.aggregators.pictures import BUDGET_LINES, FIRST_CHOICE, save_budgets
from experiments.aggregators.settings import PRIVATE, RELEASED_FIRST, make_workload, name_mechanism
from experiments.pages import Row

PANELS = (  # title, workload, and the ε of the sweep
    (
        "11 private voters, ε = 0.1 each, a person in all\none question",
        Workload(Voters(11, PRIVATE), 1, PrivacyParams(1, "1e-4")),
        "0.1 0.2 0.3 0.4 0.5 0.6",
    ),
    (
        "250 teachers, a person in one\n1,000 questions, two classes",
        make_workload(250, 1000, ("1", "1e-5")),
        "0.5 1 2 4 8",
    ),
    (
        "250 teachers, a person in one\n500 questions, ten classes",
        make_workload(250, 500, ("1", "1e-5"), 10),
        "0.5 1 2 4 8",
    ),
)


def compute_points(panel: int, epsilons: Sequence[str] | None = None) -> list[Row]:
    """Sweep over the budgets of a panel (default: all); return the accuracies of the plotted mechanisms.

    For two classes, the objective is the expected error of [D], as on the pages of the comparison.
    """
    title, work, epsilon_words = PANELS[panel]
    print(title.splitlines()[0], flush=True)
    result = sweep(
        work,
        epsilons or epsilon_words.split(),
        prior=Dirichlet(),
        mechanisms=[kind for kind in MECHANISMS if kind.slug in RELEASED_FIRST or name_mechanism(kind) in BUDGET_LINES],
        objective="error" if work.has_noise_function else "accuracy",
        complete=True,
        report=print,
    )
    points: list[Row] = []
    for plan in result.plans:
        accuracies = {name_mechanism(row): row.accuracy for row in plan.rows if name_mechanism(row) in BUDGET_LINES}
        right = {**accuracies, FIRST_CHOICE: plan.best.accuracy}
        points.append({"epsilon": plan.workload.total.epsilon, "right": right})
    return points


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure with ``--recompute``, and draw."""
    options = pages.make_command_line("aggregators", __doc__, module="experiments budgets").parse_args(arguments)
    folder = pages.prepare_folder(options, "aggregators")
    if not options.page:
        panels = [{"title": title, "points": compute_points(panel)} for panel, (title, *_) in enumerate(PANELS)]
        pages.write_json(folder / "budgets.json", panels)
    save_budgets(folder / "budgets.png", pages.read_json(folder / "budgets.json"))
    return 0
