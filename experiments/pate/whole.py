"""The whole way of one study: teachers, votes, labels, their cost, its publication, students, and the figures."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from darrm.noisy_max.mechanisms import LNMax
from darrm.pate.confident import ConfidentGNMax
from darrm.privacy import PrivacyParams
from darrm.util.extras import require
from darrm.util.progress import StatusLine
from darrm.votes import Votes
from experiments.kept import array_digest, kept
from experiments.pages import Row
from experiments.pate.curves import figure_1, figure_4, figure_5
from experiments.pate.dpsgd import dpsgd_accuracy
from experiments.pate.ensembles import obtain_fewer
from experiments.pate.linear_dpsgd import LINEAR, linear_rows
from experiments.pate.models import models_of
from experiments.pate.recorded import Measured, Recorded, load_counts, save_counts
from experiments.pate.rows import LABEL_SEED, Labels, Run, by_label_row, released, row_of, searched_row, two_rounds_row
from experiments.pate.settings import STUDIES, Plan, Study, plan_of
from experiments.teachers import Machine

STUDENT_SEEDS = (0, 1, 2, 3, 4)  # of the rows of Table 1, of the last alone where a student takes minutes
ONE_SEED = (0,)  # of all else, and of a shortened run


def measure(study: Study, machine: Machine, line: StatusLine, *, quick: bool) -> Row:
    """Run a study; every stage that takes long is read from ``machine.folder`` if it was done before."""
    models = models_of(study.name)
    recorded = models.obtain(study, machine, quick=quick)
    start = time.perf_counter()
    plan = plan_of(study, quick=quick)
    run = Run(study, recorded, machine.folder / "kept", line)
    asked = min(plan.figure_4_queries, recorded.votes.queries)
    smaller = [obtain_fewer(study, count, asked, machine, quick=quick) for count in study.retrained]
    found = [row_of(run, way) for way in plan.rows]
    if plan.rounds is not None and models.scores is not None:
        score = partial(models.scores, recorded, seed=STUDENT_SEEDS[0], quick=quick)
        found.append(two_rounds_row(run, plan.rounds, score, [STUDENT_SEEDS[0], quick, models.recipe]))
    points = [row_of(run, way) for way in plan.points]
    by_label = [by_label_row(run, way) for way in plan.by_label]
    searched = [] if plan.searched is None or quick else [searched_row(run, plan.rows[-1], plan.searched)]
    seeds = ONE_SEED if quick else STUDENT_SEEDS
    often = found[-1:] if models.costly else found
    _train(run, often, seeds, machine.jobs, quick=quick)
    seldom = [*found[: len(found) - len(often)], *searched, *points, *by_label]
    _train(run, seldom, ONE_SEED, machine.jobs, quick=quick)
    line.show("baseline")
    baseline = [_baseline(run, machine, seed, quick=quick) for seed in ONE_SEED]
    outsiders = []
    for epsilon in () if quick else plan.budgets:
        line.show(f"DP-SGD at ε = {epsilon:g}")
        outsiders.append({"epsilon": epsilon, **_dpsgd(study, epsilon, machine, quick=quick)})
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
        "rows": [row for row, _ in found],
        "points": [row for row, _ in points],
        "by_label": [row for row, _ in by_label],
        "searched": [row for row, _ in searched],
        "baseline": baseline,
        "dpsgd": outsiders,
        "linear": linear_of(study, machine, line, quick=quick),
        **_figures(run, plan, smaller),
        "teacher_seconds": recorded.seconds,
        "seconds": round(time.perf_counter() - start, 1),
    }


def recompute(path: Path, line: StatusLine, *, quick: bool) -> Row:
    """Count again, from the counts and classes that `save_counts` left at ``path``, what a study's JSON says of them.

    All that takes neither inputs nor models: labels, their costs, what publishing these costs, and the figures. Two
    rounds need a student's scores, and are left out.
    """
    recorded, smaller = load_counts(path)
    study = STUDIES[recorded.name]
    plan = plan_of(study, quick=quick)
    with TemporaryDirectory() as folder:
        run = Run(study, recorded, Path(folder), line)
        found = {
            "digest": recorded.digest,
            "plurality_accuracy": recorded.plurality_accuracy,
            "rows": [row_of(run, way)[0] for way in plan.rows],
            "points": [row_of(run, way)[0] for way in plan.points],
            "by_label": [by_label_row(run, way)[0] for way in plan.by_label],
        }
        return found | _figures(run, plan, smaller)


def linear_of(study: Study, machine: Machine, line: StatusLine, *, quick: bool) -> list[Row]:
    """Train linear models by DP-SGD at every budget of a study whose images have features, or read what they reach."""
    if quick or not study.scattering:
        return []
    line.show("DP-SGD on scattering features")
    budgets = [PrivacyParams(epsilon, study.delta) for epsilon in plan_of(study, quick=quick).budgets]
    train = partial(linear_rows, study, budgets)
    return list(kept(machine.folder / "kept", f"linear-{study.name}", [repr(budgets), repr(LINEAR)], train))


def draw_on(path: Path, machine: Machine, line: StatusLine, *, quick: bool) -> Row:
    """Train the smaller ensembles of Figure 4 alone, keep their counts at ``path`` too, and compute the figures."""
    recorded, _ = load_counts(path)
    study = STUDIES[recorded.name]
    plan = plan_of(study, quick=quick)
    asked = min(plan.figure_4_queries, recorded.votes.queries)
    smaller = [obtain_fewer(study, count, asked, machine, quick=quick) for count in study.retrained]
    save_counts(path, recorded, smaller)
    with TemporaryDirectory() as folder:
        return _figures(Run(study, recorded, Path(folder), line), plan, smaller)


def _figures(run: Run, plan: Plan, smaller: Sequence[Votes]) -> Row:
    """Compute the numbers of the figures, of the first LNMax and the last Confident-GNMax of Table 1."""
    recorded, delta = run.recorded, run.study.delta
    lnmax = next(way.aggregator for way in plan.rows if isinstance(way.aggregator, LNMax))
    way, confident = [(way, way.aggregator) for way in plan.rows if isinstance(way.aggregator, ConfidentGNMax)][-1]
    labels = released(run, way)
    pool = recorded.votes.queries
    facts = [repr(plan), delta, labels.tolist(), *(array_digest(votes.counts) for votes in smaller)]

    def compute() -> Row:
        return {
            "figure_1": figure_1(recorded, lnmax, confident, labels, delta),
            "figure_4": figure_4(recorded, min(plan.figure_4_queries, pool), delta, smaller),
            "figure_5": figure_5(recorded, lnmax, confident.sigma_answer, pool, delta),
        }

    return dict(run.kept("figures", facts, compute))


def _train(run: Run, rows: Sequence[tuple[Row, Labels]], seeds: Sequence[int], jobs: int, *, quick: bool) -> None:
    """Train the students of every row, in ``jobs`` processes, and note their accuracies in the rows."""
    tasks = [(row, labels, seed) for row, labels in rows for seed in seeds]
    joblib = require("joblib")
    calls = [joblib.delayed(_student)(run.folder, run.recorded, labels, seed, quick) for _, labels, seed in tasks]
    for row, _ in rows:
        row["students"], row["rest"] = [], []
    accuracies = joblib.Parallel(n_jobs=jobs, return_as="generator")(calls)
    for done, ((row, _, _), (held_out, rest)) in enumerate(zip(tasks, accuracies, strict=True), start=1):
        row["students"].append(held_out)
        row["rest"].append(rest)
        run.line.show(f"students: {done} of {len(tasks)}")


def _baseline(run: Run, machine: Machine, seed: int, *, quick: bool) -> float:
    """Measure a model without privacy, or read what it reached."""
    models = models_of(run.study.name)
    measure_one = partial(models.baseline, run.study, run.recorded, machine, seed=seed, quick=quick)
    facts = [array_digest(run.recorded.test_x), seed, quick, models.recipe]
    return float(run.kept("baseline", facts, measure_one))


def _student(folder: Path, recorded: Recorded, labels: Labels, seed: int, quick: bool) -> Measured:
    """Train and measure one student, or read what it reached."""
    arrays = [array_digest(array) for array in (recorded.pool_x, recorded.test_x, labels)]
    models = models_of(recorded.name)
    facts = [*arrays, seed, quick, models.recipe]
    train = partial(models.accuracy, recorded, labels, seed=seed, quick=quick)
    return list(kept(folder, f"students-{recorded.name}", facts, train))


def _dpsgd(study: Study, epsilon: float, machine: Machine, *, quick: bool) -> Row:
    """Train by DP-SGD at a budget, or read what it reached."""
    budget = PrivacyParams(epsilon, study.delta)
    train = partial(dpsgd_accuracy, study, budget, machine, quick=quick)
    return dict(kept(machine.folder / "kept", f"dpsgd-{study.name}", [epsilon, study.delta, quick], train))
