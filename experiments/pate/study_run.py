"""Run one study: teachers, votes, labels, their cost and its publication, students, and figures."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.noisy_max.mechanisms import LNMax
from darrm.pate.analysis import Analysis
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.vote_scale import PublicationParameters
from darrm.privacy import PrivacyParams
from darrm.util import checks
from darrm.util.extras import require
from darrm.util.progress import StatusLine
from darrm.votes import ABSTAIN, Votes
from experiments.pages import Row
from experiments.pate.accounting import (
    account,
    compute_costs,
    publish_as_in_paper,
    publish_by_logarithm,
    publish_on_vote_scale,
    publish_with_parameters,
    search_aggregator,
)
from experiments.pate.curves import compute_figure_1, compute_figure_4, compute_figure_5
from experiments.pate.dpsgd import LINEAR, measure_dpsgd, measure_linear_models
from experiments.pate.ensembles import obtain_smaller
from experiments.pate.recorded import LABEL_SEED, Labels, Recorded, StudentAccuracies, load_counts, save_counts
from experiments.pate.settings import PLANS, STUDIES, Plan, Study, VoteSize, Way
from experiments.pate.students import find_recipe, make_student, measure_baseline, obtain
from experiments.result_cache import digest_array, read_or_compute
from experiments.teachers import Machine


@dataclass(frozen=True, eq=False)
class Run:
    """A running study: its recorded votes, and the folder of stored results."""

    study: Study
    recorded: Recorded
    folder: Path
    line: StatusLine

    def read_or_compute(self, stage: str, facts: Sequence[object], compute: Callable[[], Any]) -> Any:  # noqa: ANN401 (plain data)
        """Read the result of a stage for these votes and ``facts``, or compute it."""
        return read_or_compute(self.folder, f"{stage}-{self.study.name}", [self.recorded.digest, *facts], compute)


def release_labels(run: Run, way: Way) -> Labels:
    """Release labels (Q,) with exact noise from the experiment's seed; `ABSTAIN` means no label."""

    def draw() -> list[int]:
        run.line.show(f"labels by {way.name}")
        rng = np.random.default_rng([LABEL_SEED, way.queries])
        return [int(label) for label in way.aggregator.release(run.recorded.votes[: way.queries], rng=rng)]

    return np.array(
        run.read_or_compute("labels", [repr(way.aggregator), way.queries, LABEL_SEED], draw), dtype=np.int64
    )


def run_analysis(run: Run, way: Way, labels: Labels) -> Analysis:
    answered = labels != ABSTAIN if isinstance(way.aggregator, ConfidentGNMax) else None
    return account(run.recorded.votes[: way.queries], way.aggregator, run.study.delta, answered)


def compute_row(run: Run, way: Way) -> tuple[Row, Labels]:
    """Describe a row: its answers, their accuracy and cost, and the published cost."""
    labels = release_labels(run, way)

    def compute() -> Row:
        run.line.show(f"accounting for {way.name}, {way.queries} queries")
        analysis = run_analysis(run, way, labels)
        return {
            "costs": compute_costs([analysis]),
            "in_paper": publish_as_in_paper([analysis]),
            "ours": publish_on_vote_scale([analysis]),
        }

    facts = [repr(way.aggregator), digest_array(labels), run.study.delta]
    row: Row = {"name": way.name, "aggregator": repr(way.aggregator), "queries": way.queries}
    row |= measure_labels(run, labels, labels != ABSTAIN) | run.read_or_compute("costs", facts, compute)
    return row | _describe_printed(way), labels


def describe_searched(run: Run, base: Way, size: VoteSize) -> tuple[Row, Labels]:
    """Describe a row whose parameters come from a search on public votes that matches ``base``."""
    aggregator, delta = base.aggregator, run.study.delta
    if not isinstance(aggregator, ConfidentGNMax):
        checks.fail("base", base.name, "a way with a check")

    def find_parameters() -> Row:
        run.line.show("parameters on public votes")
        result = search_aggregator(aggregator, size, delta)
        parameters, published = result.aggregator, result.parameters
        return {
            "aggregator": [parameters.threshold, parameters.sigma_threshold, parameters.sigma_answer],
            "publication": [published.order, published.deviation],
            "expected": result.epsilon,
            "expected_of_base": result.base_epsilon,
        }

    parameters = run.read_or_compute("search", [repr(aggregator), repr(size), delta], find_parameters)
    way = Way("Confident-GNMax, searched", ConfidentGNMax(*parameters["aggregator"]), base.queries)
    row, labels = compute_row(run, way)
    for publication_way, base_labels in ((way, labels), (base, release_labels(run, base))):
        facts = [repr(publication_way.aggregator), digest_array(base_labels), parameters["publication"]]
        published = PublicationParameters(*parameters["publication"])
        compute = partial(_publish_fixed, run, publication_way, base_labels, published)
        row["beforehand" if publication_way is way else "base_beforehand"] = run.read_or_compute(
            "beforehand", facts, compute
        )
    base_labels = release_labels(run, base)
    facts = [repr(base.aggregator), digest_array(base_labels), "logarithm"]
    row["base_by_logarithm"] = run.read_or_compute(
        "beforehand", facts, lambda: publish_by_logarithm(run_analysis(run, base, base_labels))
    )
    return row | {"search": parameters}, labels


def _publish_fixed(run: Run, way: Way, labels: Labels, parameters: PublicationParameters) -> Row:
    return publish_with_parameters(run_analysis(run, way, labels), parameters)


def describe_by_label(run: Run, way: Way) -> tuple[Row, Labels]:
    """Describe a row with label-only accounting; its ε does not depend on the votes, so it is public."""
    labels = release_labels(run, way)
    epsilon = way.aggregator.guarantee.repeat(way.queries).best(run.study.delta).epsilon
    row = {"name": way.name, "aggregator": repr(way.aggregator), "queries": way.queries, "epsilon": epsilon}
    return row | measure_labels(run, labels, labels != ABSTAIN), labels


def measure_labels(run: Run, labels: Labels, answered: NDArray[np.bool_]) -> Row:
    """Measure the accuracy of the answers, and of the plurality over all queries."""
    truth = run.recorded.pool_y[: len(labels)]
    plurality = run.recorded.votes.counts[: len(labels)].argmax(axis=1)
    ones = (
        {} if run.study.classes > 2 else {"ones": [float(np.mean(values[answered] == 1)) for values in (labels, truth)]}
    )
    return ones | {
        "answered": int(answered.sum()),
        "label_accuracy": float(np.mean(labels[answered] == truth[answered])) if answered.any() else None,
        "plurality_accuracy": float(np.mean(plurality == truth)),
    }


def _describe_printed(way: Way) -> Row:
    """Return what [P] prints for a row, or None."""
    return {"paper": None if way.printed is None else asdict(way.printed)}


STUDENT_SEEDS = (0, 1, 2, 3, 4)  # for rows of Table 1: all on Adult, else the last, because networks take minutes
ONE_SEED = (0,)  # for other rows and quick runs


def measure(study: Study, machine: Machine, line: StatusLine, *, quick: bool) -> Row:
    """Run a study; read long stages that are already stored in ``machine.folder``."""
    recorded = obtain(study, machine, quick=quick)
    start = time.perf_counter()
    plan = PLANS[study.name]
    run = Run(study, recorded, machine.folder / "kept", line)
    num_queries = min(plan.figure_4_queries, recorded.votes.queries)
    smaller = [obtain_smaller(study, count, num_queries, machine, quick=quick) for count in study.retrained]
    table_rows = [compute_row(run, way) for way in plan.rows]
    points = [compute_row(run, way) for way in plan.points]
    by_label = [describe_by_label(run, way) for way in plan.by_label]
    searched = [] if plan.searched is None or quick else [describe_searched(run, plan.rows[-1], plan.searched)]
    seeds = ONE_SEED if quick else STUDENT_SEEDS
    repeated_rows = table_rows if study.name == "adult" else table_rows[-1:]  # a network takes minutes
    _train_students(run, repeated_rows, seeds, machine.jobs, quick=quick)
    single_rows = [*table_rows[: len(table_rows) - len(repeated_rows)], *searched, *points, *by_label]
    _train_students(run, single_rows, ONE_SEED, machine.jobs, quick=quick)
    line.show("baseline")
    baselines = [_measure_baseline(run, seed, quick=quick) for seed in ONE_SEED]
    dpsgd_rows = []
    for epsilon in () if quick else plan.budgets:
        line.show(f"DP-SGD at ε = {epsilon:g}")
        dpsgd_rows.append({"epsilon": epsilon, **_measure_dpsgd(study, epsilon, machine, quick=quick)})
    line.show("figures")
    save_counts(machine.folder / f"{study.name}-counts.npz", recorded, smaller)
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
        "rows": [row for row, _ in table_rows],
        "points": [row for row, _ in points],
        "by_label": [row for row, _ in by_label],
        "searched": [row for row, _ in searched],
        "baseline": baselines,
        "dpsgd": dpsgd_rows,
        "linear": make_linear(study, machine, line, quick=quick),
        **_compute_figures(run, plan, smaller),
        "teacher_seconds": recorded.seconds,
        "seconds": round(time.perf_counter() - start, 1),
    }


def recompute(path: Path, line: StatusLine) -> Row:
    """Recompute a study's results from the counts and classes in a file of `save_counts`.

    Labels, their costs, published costs, and figures need neither inputs nor models.
    """
    recorded, smaller = load_counts(path)
    study = STUDIES[recorded.name]
    plan = PLANS[study.name]
    with TemporaryDirectory() as folder:
        run = Run(study, recorded, Path(folder), line)
        results = {
            "digest": recorded.digest,
            "plurality_accuracy": recorded.plurality_accuracy,
            "rows": [compute_row(run, way)[0] for way in plan.rows],
            "points": [compute_row(run, way)[0] for way in plan.points],
            "by_label": [describe_by_label(run, way)[0] for way in plan.by_label],
        }
        return results | _compute_figures(run, plan, smaller)


def make_linear(study: Study, machine: Machine, line: StatusLine, *, quick: bool) -> list[Row]:
    """Train linear models by DP-SGD at every budget of a study, or read the stored results."""
    if quick or not study.scattering:
        return []
    line.show("DP-SGD on scattering features")
    budgets = [PrivacyParams(epsilon, study.delta) for epsilon in PLANS[study.name].budgets]
    train = partial(measure_linear_models, study, budgets)
    return list(read_or_compute(machine.folder / "kept", f"linear-{study.name}", [repr(budgets), repr(LINEAR)], train))


def retrain_smaller(path: Path, machine: Machine, line: StatusLine, *, quick: bool) -> Row:
    """Train only the smaller ensembles of Figure 4, add their counts to ``path``, and compute the figures."""
    recorded, _ = load_counts(path)
    study = STUDIES[recorded.name]
    plan = PLANS[study.name]
    num_queries = min(plan.figure_4_queries, recorded.votes.queries)
    smaller = [obtain_smaller(study, count, num_queries, machine, quick=quick) for count in study.retrained]
    save_counts(path, recorded, smaller)
    with TemporaryDirectory() as folder:
        return _compute_figures(Run(study, recorded, Path(folder), line), plan, smaller)


def _compute_figures(run: Run, plan: Plan, smaller: Sequence[Votes]) -> Row:
    """Compute the figures for the first LNMax and the last Confident-GNMax of Table 1."""
    recorded, delta = run.recorded, run.study.delta
    lnmax = next(way.aggregator for way in plan.rows if isinstance(way.aggregator, LNMax))
    way, confident = [(way, way.aggregator) for way in plan.rows if isinstance(way.aggregator, ConfidentGNMax)][-1]
    labels = release_labels(run, way)
    pool = recorded.votes.queries
    facts = [repr(plan), delta, labels.tolist(), *(digest_array(votes.counts) for votes in smaller)]

    def compute() -> Row:
        return {
            "figure_1": compute_figure_1(recorded, lnmax, confident, labels, delta),
            "figure_4": compute_figure_4(recorded, min(plan.figure_4_queries, pool), delta, smaller),
            "figure_5": compute_figure_5(recorded, lnmax, confident.sigma_answer, pool, delta),
        }

    return dict(run.read_or_compute("figures", facts, compute))


def _train_students(
    run: Run, rows: Sequence[tuple[Row, Labels]], seeds: Sequence[int], jobs: int, *, quick: bool
) -> None:
    """Train the students of every row in ``jobs`` processes, and add their accuracies to the rows."""
    tasks = [(row, labels, seed) for row, labels in rows for seed in seeds]
    joblib = require("joblib")
    calls = [
        joblib.delayed(_measure_student)(run.folder, run.recorded, labels, seed, quick) for _, labels, seed in tasks
    ]
    for row, _ in rows:
        row["students"], row["rest"] = [], []
    accuracies = joblib.Parallel(n_jobs=jobs, return_as="generator")(calls)
    for num_done, ((row, _, _), (test_accuracy, pool_accuracy)) in enumerate(
        zip(tasks, accuracies, strict=True), start=1
    ):
        row["students"].append(test_accuracy)
        row["rest"].append(pool_accuracy)
        run.line.show(f"students: {num_done} of {len(tasks)}")


def _measure_baseline(run: Run, seed: int, *, quick: bool) -> float:
    """Measure a model without privacy, or read its stored accuracy."""
    measure_one = partial(measure_baseline, run.study, run.recorded, seed=seed, quick=quick)
    facts = [digest_array(run.recorded.test_x), seed, quick, find_recipe(run.study.name)]
    return float(run.read_or_compute("baseline", facts, measure_one))


def _measure_student(folder: Path, recorded: Recorded, labels: Labels, seed: int, quick: bool) -> StudentAccuracies:
    arrays = [digest_array(array) for array in (recorded.pool_x, recorded.test_x, labels)]

    def train() -> StudentAccuracies:
        return recorded.measure_student(make_student(recorded, labels, seed=seed, quick=quick), len(labels))

    return list(
        read_or_compute(folder, f"students-{recorded.name}", [*arrays, seed, quick, find_recipe(recorded.name)], train)
    )


def _measure_dpsgd(study: Study, epsilon: float, machine: Machine, *, quick: bool) -> Row:
    budget = PrivacyParams(epsilon, study.delta)
    train = partial(measure_dpsgd, study, budget, machine, quick=quick)
    return dict(read_or_compute(machine.folder / "kept", f"dpsgd-{study.name}", [epsilon, study.delta, quick], train))
