"""Compare four costs of a Confident-GNMax run: for any votes, as published, tested first, and at these votes.

    python -m experiments tested --recompute --figure agreeing             # simulated votes: minutes, no download
    python -m experiments tested --recompute --figure ridge --figure convolutional --jobs 2

Each ensemble is a figure. The votes of all ensembles are public here: of private votes neither the exact cost nor the
chance to pass may be published. The file private_teachers.json has the accuracy of labels of private teachers, measured
by an earlier version of the library.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.publication import expected_publication, search_publication
from darrm.pate.tested import BudgetTest, TestedRun
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.util import checks
from darrm.util.figures import BLUE, GRAY, GREEN, LIGHT_GRAY, VERMILION, saved_figure
from darrm.votes import Votes
from experiments import pages
from experiments.aggregators.votes import ten_classes
from experiments.pages import Row
from experiments.pate.accounting import account
from experiments.pate.settings import STUDIES, VoteSize, pate_like_votes
from experiments.teachers import Machine

NAME, EARLIER = "tested", "private_teachers"
AGREEING = VoteSize(2_000, 5_000, 10, (20.0, 1.2))
QUICK_AGREEING = VoteSize(200, 500, 10, (20.0, 1.2))
CHANCE = 0.99  # with which a run is to pass
SAFETY = 2.0  # of what is published: too small with probability 0.023
ORDERS = (0.6, 0.8, 1.05, 1.4)  # times log(1/δ)/ε, above 1
GAIN = 0.01  # of ε: the search stops where orders around the best one gain less
STEPS = 14  # of the bisection of ε
KINDS = {
    "data_independent": ("for any votes", GRAY),
    "published": ("published estimate", VERMILION),
    "tested": ("tested guarantee", BLUE),
    "exact": ("exact, private", GREEN),
}
TICKS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)  # ε


@dataclass(frozen=True)
class Setting:
    queries: int
    threshold: float
    sigma_threshold: float
    sigma_answer: float

    @property
    def aggregator(self) -> ConfidentGNMax:
        return ConfidentGNMax(self.threshold, self.sigma_threshold, self.sigma_answer)


@dataclass(frozen=True)
class Ensemble:
    """Voters, the settings of their runs, and δ."""

    title: str
    settings: tuple[Setting, ...]
    delta: float = 1e-5


ENSEMBLES = {
    "ridge": Ensemble("linear teachers, MNIST", (Setting(400, 200, 150.0, 40.0),)),
    "convolutional": Ensemble(
        "convolutional teachers, MNIST",
        (Setting(640, 200, 150.0, 40.0), Setting(2_000, 200, 150.0, 40.0), Setting(2_000, 240, 100.0, 25.0)),
    ),
    "agreeing": Ensemble(
        "simulated teachers that agree",
        (
            Setting(2_000, 3_500, 1_500.0, 200.0),
            Setting(2_000, 3_500, 800.0, 100.0),
            Setting(2_000, 3_000, 1_000.0, 60.0),
        ),
    ),
}


def votes_of(name: str, machine: Machine, *, quick: bool) -> Votes:
    """Read or make the votes of an ensemble; ``quick`` takes fewer voters or less training."""
    if name == "agreeing":
        return Votes.of_counts(pate_like_votes(QUICK_AGREEING if quick else AGREEING))
    if name == "ridge":
        return ten_classes("digits" if quick else "mnist", 50 if quick else 250).votes
    from experiments.pate.students import obtain  # noqa: PLC0415 (needs torch)

    return obtain(STUDIES["digits" if quick else "mnist"], machine, quick=quick).votes


def scaled(setting: Setting, votes: Votes, voters: int) -> Setting:
    """Scale a setting for ``voters`` voters to votes of fewer, and to as many queries as they have.

    >>> scaled(Setting(640, 200, 150.0, 40.0), Votes.of_counts([[30, 20]] * 9), 250)
    Setting(queries=9, threshold=40, sigma_threshold=30.0, sigma_answer=8.0)
    """
    part = votes.voters / voters
    noise = (float(np.round(sigma * part, 3)) for sigma in (setting.sigma_threshold, setting.sigma_answer))
    return Setting(min(setting.queries, votes.queries), round(setting.threshold * part), *noise)


def measure(votes: Votes, setting: Setting, delta: float) -> Row:
    """Compute the four costs of one run; δ is that of each."""
    asked = votes[: setting.queries]
    analysis = account(asked, setting.aggregator, delta)
    parameters = search_publication(analysis).parameters
    if analysis.exact is None:
        raise ValueError(f"{setting} has no exact cost: its noise is too wide or too narrow")
    tested, order = least_budget(asked, setting, delta, analysis.data_independent_epsilon)
    return asdict(setting) | {
        "voters": asked.voters,
        "delta": delta,
        "answered": analysis.expected_answered,
        "data_independent": analysis.data_independent_epsilon,
        "published": expected_publication(analysis, replace(parameters, safety=SAFETY)).epsilon,
        "tested": tested,
        "exact": analysis.epsilon_of(analysis.exact.curve),
        "order": order,
        "pass_chance": tested_run(asked, setting, PrivacyParams(tested, delta), order).pass_chance(asked),
    }


def tested_run(votes: Votes, setting: Setting, budget: PrivacyParams, order: float) -> TestedRun:
    voters = Voters(votes.voters, PrivacyParams("inf"), overlap=1)
    answer = NoisyMaximum(GNMax(setting.sigma_answer), voters, len(votes.classes))
    return TestedRun(answer, setting.queries, budget, order, setting.aggregator.check)


def least_budget(votes: Votes, setting: Setting, delta: float, guess: float) -> tuple[float, float]:
    """Find the least ε at some orders, and its order, with which these votes pass as wanted; others may need less."""
    best, at = math.inf, 0.0
    around, before = guess, math.inf
    while best < (1.0 - GAIN) * before or math.isinf(best):
        before, around = best, min(best, around)
        for order in (round(1.0 + factor * math.log(1.0 / delta) / around, 2) for factor in ORDERS):
            epsilon = _least_at(votes, tested_run(votes, setting, PrivacyParams(around, delta), order))
            best, at = min((best, at), (epsilon, order))
    return best, at


def _least_at(votes: Votes, run: TestedRun) -> float:
    """Find the least ε at one order: the levels depend on the order alone."""
    level = int(run.find_level(float(run.bound_costs(votes.counts).sum())))

    def passes(epsilon: float) -> bool:
        budget = PrivacyParams(epsilon, run.budget.delta)
        return bool(BudgetTest(run.order, budget).chances(run.costs)[level] >= CHANCE)

    low, high = 0.0, 2.0 * run.budget.epsilon
    while not passes(high):
        low, high = high, 2.0 * high
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if passes(middle) else (middle, high)
    return math.ceil(high * 1e4) / 1e4


def result_of(name: str, machine: Machine, *, quick: bool) -> Row:
    """Read or make the votes of an ensemble and measure its runs."""
    ensemble, votes = ENSEMBLES[name], votes_of(name, machine, quick=quick)
    title, settings = ensemble.title, ensemble.settings
    if quick:
        voters = 5_000 if settings[0].threshold > 250 else 250
        title, settings = "teachers of a quick run", (scaled(settings[0], votes, voters),)
    return {"title": title, "rows": [measure(votes, setting, ensemble.delta) for setting in settings]}


def rows_of(results: dict[str, Row]) -> list[Row]:
    return [{"title": result["title"]} | row for result in results.values() for row in result["rows"]]


def page(results: dict[str, Row]) -> str:
    """Fill the page; the smaller of both guarantees is bold."""
    private = results.pop(EARLIER, None)
    rows = rows_of(results)
    for row in rows:
        row["ratio"] = row["tested"] / row["data_independent"]
        least = min(row["tested"], row["data_independent"])
        row["bold"] = {kind: "**" * (row[kind] == least) for kind in ("tested", "data_independent")}
    dear = [row for row in rows if row["ratio"] >= 1.0]
    return pages.filled(NAME, {"rows": rows, "dear": dear, "chance": CHANCE, "private": private})


def draw(folder: Path, results: dict[str, Row]) -> None:
    rows = rows_of(results)
    with saved_figure(folder / "epsilons.png", width=8.0, height=0.55 * len(rows) + 1.4, dpi=110) as figure:
        axes = figure.subplots()
        for (kind, (words, color)), marker in zip(KINDS.items(), "sDo^", strict=True):
            values = [row[kind] for row in rows]
            axes.plot(values, range(len(rows)), marker, color=color, label=words, markersize=7)
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
        axes.set_xticks([value for value in TICKS if low <= value <= high])
        axes.minorticks_off()
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("ε of the whole run")
        axes.grid(alpha=0.3, axis="x", which="both")
        figure.legend(loc="outside lower center", ncols=4, fontsize=9)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the runs of the chosen ensembles, and write the page about all that were."""
    parser = pages.command_line(NAME, __doc__, quick="smaller ensembles, one run each", figures=list(ENSEMBLES))
    parser.add_argument("--jobs", type=int, default=1, help="processes for teachers (default 1)")
    options = parser.parse_args(arguments)
    checks.integer_at_least(1, jobs=options.jobs)
    machine = Machine(options.jobs, "cpu", progress=False, folder=pages.data_folder(options, NAME) / "votes")
    compute = partial(result_of, machine=machine, quick=options.quick)
    return pages.run_figures(options, NAME, ENSEMBLES, compute, page, draw, [EARLIER])
