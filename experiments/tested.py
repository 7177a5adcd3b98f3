"""Compare four ε of a Confident-GNMax run: for any votes, published, propose-test-release, and exact.

    python -m experiments tested --recompute --figure agreeing             # simulated votes: minutes, no download
    python -m experiments tested --recompute --figure ridge --figure convolutional --jobs 2

Each ensemble is a figure. All votes here are public. If votes are private, the exact cost and the pass probability are
private too. The file private_teachers.json has the accuracy of labels of private teachers, from an earlier version of
the library.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.publication import expected_publication, search_publication
from darrm.pate.tested import BudgetTest, TestedRun
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.util import checks
from darrm.util.figures import BLUE, GRAY, GREEN, LIGHT_GRAY, VERMILION, save_figure
from darrm.votes import Votes
from experiments import pages
from experiments.aggregators.votes import record_ten_classes
from experiments.pages import Row
from experiments.pate.accounting import account
from experiments.pate.settings import STUDIES, VoteSize, draw_pate_votes
from experiments.teachers import Machine

NAME, EARLIER_FILE = "tested", "private_teachers"
DELTA = 1e-5
AGREEING, QUICK_AGREEING = (
    VoteSize(queries, voters, 10, (20.0, 1.2)) for queries, voters in ((2_000, 5_000), (200, 500))
)
TITLES = {
    "ridge": "linear teachers, MNIST",
    "convolutional": "convolutional teachers, MNIST",
    "agreeing": "simulated teachers that agree",
}
# queries of each run, and T, σ₁ and σ₂
RUNS = {
    "ridge": ((400, ConfidentGNMax(200, 150.0, 40.0)),),
    "convolutional": (
        (640, ConfidentGNMax(200, 150.0, 40.0)),
        (2_000, ConfidentGNMax(200, 150.0, 40.0)),
        (2_000, ConfidentGNMax(240, 100.0, 25.0)),
    ),
    "agreeing": (
        (2_000, ConfidentGNMax(3_500, 1_500.0, 200.0)),
        (2_000, ConfidentGNMax(3_500, 800.0, 100.0)),
        (2_000, ConfidentGNMax(3_000, 1_000.0, 60.0)),
    ),
}
PASS_PROBABILITY = 0.99  # the aim of a propose-test-release run
SAFETY = 2.0  # standard deviations: the published ε is too small with probability 0.023
ORDER_FACTORS = (0.6, 0.8, 1.05, 1.4)  # times log(1/δ)/ε, above 1
MIN_GAIN = 0.01  # relative: the search of orders stops at a smaller gain of ε
BISECTION_STEPS = 14  # of the bisection of ε
KINDS = {
    "data_independent": ("for any votes", GRAY),
    "published": ("published estimate", VERMILION),
    "tested": ("tested guarantee", BLUE),
    "exact": ("exact, private", GREEN),
}
TICKS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)  # ε


def collect_votes(name: str, machine: Machine, *, quick: bool) -> Votes:
    """Read or make the votes of an ensemble; ``quick`` uses fewer voters or shorter training."""
    if name == "agreeing":
        return Votes.from_counts(draw_pate_votes(QUICK_AGREEING if quick else AGREEING))
    if name == "ridge":
        return record_ten_classes("digits" if quick else "mnist", 50 if quick else 250).votes
    from experiments.pate.ensembles import obtain  # noqa: PLC0415 (needs torch)

    return obtain(STUDIES["digits" if quick else "mnist"], machine, quick=quick).votes


def measure(votes: Votes, aggregator: ConfidentGNMax, delta: float) -> Row:
    """Compute the four ε of one run on all votes, each at δ."""
    analysis = account(votes, aggregator, delta)
    parameters = search_publication(analysis).parameters
    if analysis.exact is None:
        raise ValueError(f"{aggregator} has no exact cost: its noise is too wide or too narrow")
    tested_epsilon, order = find_least_budget(votes, aggregator, delta, analysis.data_independent_epsilon)
    run = make_run(votes, aggregator, PrivacyParams(tested_epsilon, delta), order)
    return {
        "queries": votes.queries,
        **{name: value for name, value in asdict(aggregator).items() if name != "noise"},
        "voters": votes.voters,
        "delta": delta,
        "answered": analysis.expected_answered,
        "data_independent": analysis.data_independent_epsilon,
        "published": expected_publication(analysis, replace(parameters, safety=SAFETY)).epsilon,
        "tested": tested_epsilon,
        "exact": analysis.to_epsilon(analysis.exact.curve),
        "order": order,
        "pass_chance": run.pass_chance(votes),
    }


def make_run(votes: Votes, aggregator: ConfidentGNMax, budget: PrivacyParams, order: float) -> TestedRun:
    voters = Voters(votes.voters, PrivacyParams("inf"), overlap=1)
    answer = NoisyMaximum(GNMax(aggregator.sigma_answer), voters, len(votes.classes))
    return TestedRun(answer, votes.queries, budget, order, aggregator.check)


def find_least_budget(votes: Votes, aggregator: ConfidentGNMax, delta: float, guess: float) -> tuple[float, float]:
    """Search a few orders for the least ε with which these votes pass; return ε and its order."""
    best_epsilon, best_order = math.inf, 0.0
    center, previous_epsilon = guess, math.inf
    while best_epsilon < (1.0 - MIN_GAIN) * previous_epsilon or math.isinf(best_epsilon):
        previous_epsilon, center = best_epsilon, min(best_epsilon, center)
        for order in (round(1.0 + factor * math.log(1.0 / delta) / center, 2) for factor in ORDER_FACTORS):
            epsilon = _find_least_epsilon(votes, make_run(votes, aggregator, PrivacyParams(center, delta), order))
            best_epsilon, best_order = min((best_epsilon, best_order), (epsilon, order))
    return best_epsilon, best_order


def _find_least_epsilon(votes: Votes, run: TestedRun) -> float:
    """Find the least ε at the order of ``run``; the levels depend on the order alone."""
    level = int(run.find_level(float(run.bound_costs(votes.counts).sum())))

    def passes(epsilon: float) -> bool:
        budget = PrivacyParams(epsilon, run.budget.delta)
        return bool(BudgetTest(run.order, budget).chances(run.costs)[level] >= PASS_PROBABILITY)

    low, high = 0.0, 2.0 * run.budget.epsilon
    while not passes(high):
        low, high = high, 2.0 * high
    for _ in range(BISECTION_STEPS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if passes(middle) else (middle, high)
    return math.ceil(high * 1e4) / 1e4


def compute_result(name: str, machine: Machine, *, quick: bool) -> Row:
    """Read or make the votes of an ensemble and measure its runs; a quick run scales the first to its few voters."""
    votes, title = collect_votes(name, machine, quick=quick), TITLES[name]
    runs: Sequence[tuple[int, ConfidentGNMax]] = RUNS[name]
    if quick:
        title, scale = "teachers of a quick run", votes.voters / (AGREEING.voters if name == "agreeing" else 250)
        queries, first = runs[0]
        check_sigma, answer_sigma = (round(s * scale, 3) for s in (first.sigma_threshold, first.sigma_answer))
        runs = [(queries, ConfidentGNMax(round(first.threshold * scale), check_sigma, answer_sigma))]
    return {"title": title, "rows": [measure(votes[:queries], aggregator, DELTA) for queries, aggregator in runs]}


def list_rows(results: dict[str, Row]) -> list[Row]:
    return [{"title": result["title"]} | row for result in results.values() for row in result["rows"]]


def fill_page(results: dict[str, Row]) -> str:
    """Fill the page; the smaller of the two guarantees is bold."""
    private_teachers = results.pop(EARLIER_FILE, None)
    rows = list_rows(results)
    for row in rows:
        row["ratio"] = row["tested"] / row["data_independent"]
        smaller = min(row["tested"], row["data_independent"])
        row["bold"] = {kind: "**" * (row[kind] == smaller) for kind in ("tested", "data_independent")}
    costly_rows = [row for row in rows if row["ratio"] >= 1.0]
    return pages.fill_template(
        NAME, {"rows": rows, "dear": costly_rows, "chance": PASS_PROBABILITY, "private": private_teachers}
    )


def draw(folder: Path, results: dict[str, Row]) -> None:
    rows = list_rows(results)
    with save_figure(folder / "epsilons.png", width=8.0, height=0.55 * len(rows) + 1.4, dpi=110) as figure:
        axes = figure.subplots()
        for (kind, (label, color)), marker in zip(KINDS.items(), "sDo^", strict=True):
            axes.plot([row[kind] for row in rows], range(len(rows)), marker, color=color, label=label, markersize=7)
        for place, row in enumerate(rows):
            axes.plot([row["exact"], row["data_independent"]], [place] * 2, color=LIGHT_GRAY, zorder=0)
        names = [
            f"{row['voters']:,} {row['title']}\n{row['queries']:,} queries, σ₂ = {row['sigma_answer']:g}"
            for row in rows
        ]
        axes.set_yticks(range(len(rows)), names, fontsize=8)
        axes.invert_yaxis()
        axes.margins(y=0.12 if len(rows) < 4 else 0.06)
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        pages.set_log_ticks(axes, [value for value in TICKS if low <= value <= high])
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("ε of the whole run")
        figure.legend(loc="outside lower center", ncols=4, fontsize=9)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the selected ensembles, and write the page from all stored results."""
    parser = pages.make_command_line(NAME, __doc__, quick="smaller ensembles, one run each", figures=list(TITLES))
    parser.add_argument("--jobs", type=int, default=1, help="processes for teachers (default 1)")
    options = parser.parse_args(arguments)
    checks.integer_at_least(1, jobs=options.jobs)
    machine = Machine(options.jobs, "cpu", progress=False, folder=pages.prepare_folder(options, NAME) / "votes")
    compute = partial(compute_result, machine=machine, quick=options.quick)
    return pages.run_figures(options, NAME, TITLES, compute, fill_page, draw, [EARLIER_FILE])
