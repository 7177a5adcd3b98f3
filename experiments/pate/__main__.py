"""Run PATE on real votes: Tables 1 and 2 and Figures 1, 4 and 5 of [P]; recompute its printed columns.

    python -m experiments pate --recompute --dataset digits --quick --output results       # no download
    python -m experiments pate --recompute --dataset mnist

The program trains the teachers of a data set, or reads their votes. It releases labels by every aggregator, computes
their costs and the sanitized costs, and trains students. It writes OUTPUT/pate/NAME.json, its pictures, and
OUTPUT/pate.md from all results in that folder. OUTPUT/pate also has votes, labels, costs and students, so an
interrupted run can continue. The program downloads the data, or reads them from the folder DARRM_DATA_DIR; digits need
no download.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from darrm.commands.command_line import run
from darrm.noisy_max.mechanisms import LNMax
from darrm.pate.analysis import Analysis
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.vote_scale import PublicationParameters
from darrm.privacy import PrivacyParams
from darrm.util import checks
from darrm.util.extras import require
from darrm.util.progress import StatusLine, status_line
from darrm.votes import ABSTAIN, Votes
from experiments import pages
from experiments.pages import CommandLine, Row
from experiments.pate import accounting, printed
from experiments.pate.curves import compute_figure_1, compute_figure_4, compute_figure_5
from experiments.pate.dpsgd import LINEAR, measure_dpsgd, measure_linear_models
from experiments.pate.ensembles import obtain, obtain_smaller
from experiments.pate.page import fill_page
from experiments.pate.pictures import draw, draw_figure_10
from experiments.pate.recorded import LABEL_SEED, Labels, Recorded, StudentAccuracies, load_counts, save_counts
from experiments.pate.settings import STUDIES, Study, Way
from experiments.pate.students import find_recipe, make_student, measure_baseline
from experiments.teachers import Machine, digest_array, read_or_compute

STUDENT_SEEDS = (0, 1, 2, 3, 4)  # for rows of Table 1: all on Adult, else the last, because networks take minutes
ONE_SEED = (0,)  # for other rows and quick runs


@dataclass(frozen=True, eq=False)
class Run:
    """A running study: its recorded votes, and the folder of stored results."""

    study: Study
    recorded: Recorded
    folder: Path
    line: StatusLine

    def read_or_compute(self, stage: str, facts: Sequence[object], compute: Callable[[], Any]) -> Any:  # noqa: ANN401 (plain data)
        """Read the result of a stage for these votes and ``facts``, or compute it."""
        facts = [self.recorded.digest, *facts]
        return read_or_compute(self.folder, f"{stage}-{self.study.name}", facts, compute)

    def release_labels(self, way: Way) -> Labels:
        """Release labels (Q,) with exact noise from the experiment's seed; `ABSTAIN` means no label."""

        def draw() -> list[int]:
            self.line.show(f"labels by {way.name}")
            rng = np.random.default_rng([LABEL_SEED, way.queries])
            return [int(label) for label in way.aggregator.release(self.recorded.votes[: way.queries], rng=rng)]

        facts = [repr(way.aggregator), way.queries, LABEL_SEED]
        return np.array(self.read_or_compute("labels", facts, draw), dtype=np.int64)

    def analyze(self, way: Way) -> Analysis:
        self.line.show(f"accounting for {way.name}, {way.queries} queries")
        answered = self.release_labels(way) != ABSTAIN if isinstance(way.aggregator, ConfidentGNMax) else None
        return accounting.account(self.recorded.votes[: way.queries], way.aggregator, self.study.delta, answered)

    def compute_cost(self, stage: str, way: Way, facts: Sequence[object], compute: Callable[[Analysis], Row]) -> Row:
        """Read or compute numbers about the cost of one way's labels."""
        facts = [repr(way.aggregator), digest_array(self.release_labels(way)), self.study.delta, *facts]
        return dict(self.read_or_compute(stage, facts, lambda: compute(self.analyze(way))))


def describe_labels(run: Run, way: Way) -> Row:
    """Describe the answers and their accuracy, and the accuracy of the plurality over all queries."""
    labels = run.release_labels(way)
    answered, truth = labels != ABSTAIN, run.recorded.pool_y[: len(labels)]
    plurality = run.recorded.votes.counts[: len(labels)].argmax(axis=1)
    row: Row = {"name": way.name, "aggregator": repr(way.aggregator), "queries": way.queries}
    if run.study.classes == 2:
        row["ones"] = [float(np.mean(values[answered] == 1)) for values in (labels, truth)]
    return row | {
        "answered": int(answered.sum()),
        "label_accuracy": float(np.mean(labels[answered] == truth[answered])) if answered.any() else None,
        "plurality_accuracy": float(np.mean(plurality == truth)),
    }


def compute_row(run: Run, way: Way) -> Row:
    """Describe a row: its answers, their accuracy and cost, the published cost, and what [P] prints."""

    def compute(analysis: Analysis) -> Row:
        return {
            "costs": accounting.compute_costs(analysis),
            "in_paper": accounting.publish_as_in_paper(analysis),
            "ours": accounting.publish_on_vote_scale(analysis),
        }

    printed = way.printed and dict(zip(("answered", "epsilon", "accuracy"), way.printed, strict=True))
    return describe_labels(run, way) | run.compute_cost("costs", way, [], compute) | {"paper": printed}


def compute_searched_row(run: Run, base: Way) -> tuple[Row, Way]:
    """Describe a row whose parameters come from a search on public votes that matches ``base``."""
    aggregator, size = base.aggregator, run.study.searched
    if not isinstance(aggregator, ConfidentGNMax) or size is None:
        checks.fail("base", base.name, "a way with a check")
    run.line.show("parameters on public votes")
    search = partial(accounting.search_aggregator, aggregator, size, run.study.delta)
    parameters = run.read_or_compute("search", [repr(aggregator), repr(size), run.study.delta], search)
    way = Way("Confident-GNMax, searched", ConfidentGNMax(*parameters["aggregator"]), base.queries)
    published = PublicationParameters(*parameters["publication"])
    row = compute_row(run, way) | {"search": parameters}
    for key, published_way in (("beforehand", way), ("base_beforehand", base)):
        row[key] = run.compute_cost(
            "beforehand",
            published_way,
            parameters["publication"],
            lambda analysis: accounting.publish_with_parameters(analysis, published),
        )
    row["base_by_logarithm"] = run.compute_cost("logarithm", base, [], accounting.publish_by_logarithm)
    return row, way


def compute_by_label_row(run: Run, way: Way) -> Row:
    """Describe a row with label-only accounting; its ε does not depend on the votes, so it is public."""
    epsilon = way.aggregator.guarantee.repeat(way.queries).best(run.study.delta).epsilon
    return describe_labels(run, way) | {"epsilon": epsilon}


def measure(study: Study, machine: Machine, line: StatusLine, *, quick: bool) -> Row:
    """Run a study; read long stages that are already stored in ``machine.folder``."""
    recorded = obtain(study, machine, quick=quick)
    start = time.perf_counter()
    run = Run(study, recorded, machine.folder / "kept", line)
    num_queries = min(study.figure_4_queries, recorded.votes.queries)
    smaller = [obtain_smaller(study, count, num_queries, machine, quick=quick) for count in study.retrained]
    rows = [(compute_row(run, way), way) for way in study.rows]
    points = [(compute_row(run, way), way) for way in study.points]
    by_label = [(compute_by_label_row(run, way), way) for way in study.by_label]
    searched = [] if study.searched is None or quick else [compute_searched_row(run, study.rows[-1])]
    seeds = ONE_SEED if quick else STUDENT_SEEDS
    repeated_rows = rows if study.name == "adult" else rows[-1:]  # a network takes minutes
    _train_students(run, repeated_rows, seeds, machine.jobs, quick=quick)
    single_rows = [*rows[: len(rows) - len(repeated_rows)], *searched, *points, *by_label]
    _train_students(run, single_rows, ONE_SEED, machine.jobs, quick=quick)
    line.show("baseline")
    baselines = [_measure_baseline(run, seed, quick=quick) for seed in ONE_SEED]
    dpsgd_rows, linear_rows = _train_by_dpsgd(run, machine) if not quick else ([], [])
    line.show("figures")
    save_counts(machine.folder / f"{study.name}-counts.npz", recorded, smaller)
    row_parts = {"rows": rows, "points": points, "by_label": by_label, "searched": searched}
    return {
        "dataset": study.name,
        "quick": quick,
        "teachers": recorded.votes.voters,
        "classes": len(recorded.votes.classes),
        "pool": recorded.votes.queries,
        "held_out": len(recorded.test_y),
        "delta": study.delta,
        "digest": recorded.digest,
        "teacher_accuracy": recorded.teacher_accuracy,
        "plurality_accuracy": recorded.plurality_accuracy,
        "label_seed": LABEL_SEED,
        "student_seeds": list(seeds),
        **{name: [row for row, _ in part] for name, part in row_parts.items()},
        "baseline": baselines,
        "dpsgd": dpsgd_rows,
        "linear": linear_rows,
        **_compute_figures(run, smaller),
        "teacher_seconds": recorded.seconds,
        "seconds": round(time.perf_counter() - start, 1),
    }


def recompute(path: Path, line: StatusLine) -> Row:
    """Recompute a study's results from the counts and classes in a file of `save_counts`.

    Labels, their costs, published costs, and figures need neither inputs nor models.
    """
    recorded, smaller = load_counts(path)
    study = STUDIES[recorded.name]
    with TemporaryDirectory() as folder:
        run = Run(study, recorded, Path(folder), line)
        return {
            "digest": recorded.digest,
            "plurality_accuracy": recorded.plurality_accuracy,
            "rows": [compute_row(run, way) for way in study.rows],
            "points": [compute_row(run, way) for way in study.points],
            "by_label": [compute_by_label_row(run, way) for way in study.by_label],
            **_compute_figures(run, smaller),
        }


def _compute_figures(run: Run, smaller: Sequence[Votes]) -> Row:
    """Compute the figures for the first LNMax and the last Confident-GNMax of Table 1."""
    study, recorded = run.study, run.recorded
    lnmax = next(way.aggregator for way in study.rows if isinstance(way.aggregator, LNMax))
    way, confident = [(way, way.aggregator) for way in study.rows if isinstance(way.aggregator, ConfidentGNMax)][-1]
    labels, pool = run.release_labels(way), recorded.votes.queries
    facts = [repr(study), labels.tolist(), *(digest_array(votes.counts) for votes in smaller)]

    def compute() -> Row:
        return {
            "figure_1": compute_figure_1(recorded, lnmax, confident, labels, study.delta),
            "figure_4": compute_figure_4(recorded, min(study.figure_4_queries, pool), study.delta, smaller),
            "figure_5": compute_figure_5(recorded, lnmax, confident.sigma_answer, pool, study.delta),
        }

    return dict(run.read_or_compute("figures", facts, compute))


def _train_students(run: Run, rows: Sequence[tuple[Row, Way]], seeds: Sequence[int], jobs: int, *, quick: bool) -> None:
    """Train the students of every row in ``jobs`` processes, and add their accuracies to the rows."""
    joblib = require("joblib")
    tasks = [(row, run.release_labels(way), seed) for row, way in rows for seed in seeds]
    train = joblib.delayed(_measure_student)
    calls = [train(run.folder, run.recorded, labels, seed, quick) for _, labels, seed in tasks]
    for row, _ in rows:
        row["students"], row["rest"] = [], []
    accuracies = joblib.Parallel(n_jobs=jobs, return_as="generator")(calls)
    for place, ((row, _, _), (test_accuracy, pool_accuracy)) in enumerate(zip(tasks, accuracies, strict=True), start=1):
        row["students"].append(test_accuracy)
        row["rest"].append(pool_accuracy)
        run.line.show(f"students: {place} of {len(tasks)}")


def _measure_student(folder: Path, recorded: Recorded, labels: Labels, seed: int, quick: bool) -> StudentAccuracies:
    arrays = [digest_array(array) for array in (recorded.pool_x, recorded.test_x, labels)]
    facts: list[object] = [*arrays, seed, quick, find_recipe(recorded.name)]

    def train() -> StudentAccuracies:
        return recorded.measure_student(make_student(recorded, labels, seed=seed, quick=quick), len(labels))

    return list(read_or_compute(folder, f"students-{recorded.name}", facts, train))


def _measure_baseline(run: Run, seed: int, *, quick: bool) -> float:
    """Measure a model without privacy, or read its stored accuracy."""
    train = partial(measure_baseline, run.study, run.recorded, seed=seed, quick=quick)
    facts = [digest_array(run.recorded.test_x), seed, quick, find_recipe(run.study.name)]
    return float(run.read_or_compute("baseline", facts, train))


def _train_by_dpsgd(run: Run, machine: Machine) -> tuple[list[Row], list[Row]]:
    """Train networks and linear models by DP-SGD at every budget of a study, or read the stored results."""
    study, networks = run.study, []
    budgets = [PrivacyParams(epsilon, study.delta) for epsilon in study.budgets]
    for budget in budgets:
        run.line.show(f"DP-SGD at ε = {budget.epsilon:g}")
        train = partial(measure_dpsgd, study, budget, machine)
        networks.append(read_or_compute(run.folder, f"dpsgd-{study.name}", [budget.epsilon, study.delta], train))
    if not study.scattering:
        return networks, []
    run.line.show("DP-SGD on scattering features")
    facts, train_linear = [repr(budgets), repr(LINEAR)], partial(measure_linear_models, study, budgets)
    return networks, list(read_or_compute(run.folder, f"linear-{study.name}", facts, train_linear))


NAME = "pate"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one study, write its JSON and pictures, and the page about all of them."""
    options = _make_parser().parse_args(arguments)
    folder = pages.prepare_folder(options, NAME)
    with status_line(quiet=options.quiet) as line:
        if options.recount:
            return pages.recompute(folder, "-counts.npz", lambda path, _: recompute(path, line))
        if not options.page:
            checks.integer_at_least(1, jobs=options.jobs)
            write_printed(folder)
            machine = Machine(options.jobs, options.device, progress=not options.quiet, folder=folder)
            in_one_go = not (folder / "kept").exists()  # no stored results of an earlier run
            result = measure(STUDIES[options.dataset], machine, line, quick=options.quick)
            pages.write_json(
                folder / f"{options.dataset}.json", result | {"in_one_go": in_one_go, "jobs": options.jobs}
            )
            draw(folder, result)
    return pages.write_page(folder, fill_page(folder))


def write_printed(folder: Path) -> None:
    """Write the numbers that follow from printed columns alone."""
    parts = (printed.table_2, printed.fixed_part, printed.table_4, printed.figure_10)
    numbers: pages.Row = {part.__name__: part() for part in parts}
    pages.write_json(folder / "printed.json", numbers)
    draw_figure_10(folder / "printed-figure-10.png", numbers["figure_10"])


def _make_parser() -> CommandLine:
    parser = pages.make_command_line(NAME, __doc__, quick="fewer teachers, one short student a row")
    add, devices = parser.add_argument, ("auto", "cpu", "cuda")
    add("--dataset", choices=STUDIES, default="digits", help="digits needs no download (default)")
    add("--recount", action="store_true", help="count again what OUTPUT has, from the counts kept there")
    add("--jobs", type=int, default=1, help="processes for teachers and students (default 1)")
    add("--device", choices=devices, default="cpu", help="of the training (default cpu)")
    add("--quiet", action="store_true", help="no progress bars")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
