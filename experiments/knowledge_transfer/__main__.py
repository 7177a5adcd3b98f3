"""Train private teachers, release labels, and train students: Tables 1, 2 and 4 to 10 of [D].

    python -m experiments knowledge_transfer --recompute --dataset digits --quick --output results       # no download
    python -m experiments knowledge_transfer --recompute --dataset mnist --trainings 10

Writes OUTPUT/knowledge_transfer/NAME.json and .png, and OUTPUT/knowledge_transfer.md from all results. The same folder
has votes and teachers; NAME-votes.npz has the votes of all trainings. --recount releases every label again from those
files. The program downloads MNIST and Fashion-MNIST, or reads them from the folder DARRM_DATA_DIR.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from darrm.commands.command_line import run
from darrm.training.calibration import compute_privacy
from darrm.util import checks
from experiments import pages
from experiments.composition_tables import K
from experiments.datasets import LabeledImages, load
from experiments.knowledge_transfer import settings
from experiments.knowledge_transfer.fresh import compute_fresh_rows
from experiments.knowledge_transfer.labels import compute_exact_rows, compute_total_rows, measure_label_rows
from experiments.knowledge_transfer.page import draw, fill_page, fill_section
from experiments.knowledge_transfer.selection import select, train_students
from experiments.knowledge_transfer.settings import Setup, choose_training, make_private_recipe
from experiments.pages import CommandLine, Row
from experiments.teachers import Machine, TeacherVotes, obtain_votes

NAME = "knowledge_transfer"
QUICK_STEPS, QUICK_ALLOWANCES = 60, (3,)  # student steps and m of a --quick run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one data set: train or read votes, release labels, account, train students, write JSON, PNG and the page."""
    options = _make_parser().parse_args(arguments)
    folder = pages.prepare_folder(options, NAME)
    if options.recount:
        return pages.recompute(folder, "-votes.npz", lambda path, stored: recompute(path, stored, stored["allowances"]))
    if not options.page:
        checks.integer_at_least(1, jobs=options.jobs, trainings=options.trainings, draws=options.draws)
        checks.integer_at_least(0, seed=options.seed)
        machine = Machine(options.jobs, options.device, progress=not options.quiet, folder=folder)
        data, setup, stem = load(options.dataset), settings.SETUPS[options.dataset], options.dataset
        selection_path = folder / f"selection-{data.name}.json"
        if options.select:
            pages.write_json(selection_path, select(data, setup, machine))
            print(json.dumps(pages.read_json(selection_path)["best"], indent=1))
            return 0
        if options.private_rate is not None:
            setup, stem = replace(setup, private_rate=options.private_rate), f"{stem}-rate-{options.private_rate:g}"
        result = _measure(options, data, setup, machine, folder / f"{stem}-votes.npz")
        is_selected = options.private_rate is None and selection_path.exists()  # it does not cover other rates
        result["selection"] = pages.read_json(selection_path) if is_selected else None
        pages.write_json(folder / f"{stem}.json", result)
        draw(folder / f"{stem}.png", result, queries=setup.queries[-1])
        if not options.quiet:
            print(f"{fill_section(result)}\n{result['seconds']} s; JSON, PNG and votes are in {folder}")
    return pages.write_page(folder, fill_page(folder))


def recompute(path: Path, stored: Row, allowances: Sequence[int]) -> Row:
    """Measure the teachers and release labels for some m again, from the votes at ``path``."""
    votes, setup = TeacherVotes.load(path), settings.SETUPS[stored["dataset"]]
    labels = measure_label_rows(stored["dataset"], setup, tuple(allowances), votes, draws=stored["draws"])
    seeds = [training["seed"] for training in stored["trainings"]]
    exact_rows = compute_exact_rows(setup, tuple(allowances), votes)
    return {"trainings": _measure_trainings(seeds, votes), "labels": labels, "exact": exact_rows}


def _measure_trainings(seeds: Iterable[int], votes: TeacherVotes) -> list[Row]:
    return [{"seed": seed, **measured} for seed, measured in zip(seeds, votes.accuracies(), strict=True)]


def _measure(options: argparse.Namespace, data: LabeledImages, setup: Setup, machine: Machine, votes_path: Path) -> Row:
    start = time.perf_counter()
    trainings, draws, allowances, student = options.trainings, options.draws, options.m, settings.STUDENT
    if options.quick:
        trainings, draws, allowances = 1, settings.PAPER_DRAWS, allowances or QUICK_ALLOWANCES
        student = replace(student, steps=QUICK_STEPS)
    allowances = allowances or settings.ALLOWANCES
    student_allowances = options.student_m or ((3,) if 3 in allowances else allowances)
    if options.no_students:
        student_allowances = ()
    seeds = range(options.seed, options.seed + trainings)
    recipe = make_private_recipe(setup)
    votes = obtain_votes(
        data,
        *([choose_training(data, kind, seed) for seed in seeds] for kind in (recipe, setup.plain)),
        machine=machine,
    )
    votes.save(votes_path)
    spent = compute_privacy(recipe, setup.each.delta)
    students = train_students(data, setup, student_allowances, votes, machine, student) if student_allowances else []
    return {
        "dataset": data.name,
        "allowances": list(allowances),
        "K": K,
        "epochs": setup.epochs,
        "draws": draws,
        "train_size": len(data.train_y),
        "test_size": len(data.test_y),
        "held_size": len(data.test_y) - len(data.test_y) // 2,
        "each": {"epsilon": setup.each.epsilon, "delta": setup.each.delta},
        "each_spent": {"epsilon": spent.epsilon, "delta": spent.delta},
        "private_training": recipe.to_dict(),
        "plain_training": setup.plain.to_dict(),
        "trainings": _measure_trainings(seeds, votes),
        "fresh": compute_fresh_rows(allowances, data, min(setup.queries)),
        "exact": compute_exact_rows(setup, allowances, votes),
        "labels": measure_label_rows(data.name, setup, allowances, votes, draws=draws),
        "totals": compute_total_rows(data.name, setup, allowances),
        "students": students,
        "seconds": round(time.perf_counter() - start, 1),
    }


def _parse_allowances(text: str) -> tuple[int, ...]:
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or len(set(values)) != len(values) or not set(values) <= set(settings.ALLOWANCES):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of different numbers out of 1,3,5,7")
    return tuple(sorted(values))


def _make_parser() -> CommandLine:
    parser = pages.make_command_line(NAME, __doc__, quick="m = 3 alone, one training, ten draws, short students")
    add, cores = parser.add_argument, min(2, os.cpu_count() or 1)
    add("--dataset", choices=sorted(settings.SETUPS), default="digits", help="digits needs no download (default)")
    add("--m", type=_parse_allowances, help="privacy allowances (default: 1,3,5,7)")
    add("--private-rate", type=float, metavar="RATE", help="another learning rate of DP-SGD")
    add("--student-m", type=_parse_allowances, help="students for these m (default: 3, or what --m gives)")
    add("--trainings", type=int, default=1, help=f"trainings from other seeds; error bars: {settings.TRAININGS}")
    add("--seed", type=int, default=0, help="of the first training and its shards; others count on")
    add("--draws", type=int, default=settings.DRAWS, help="draws of the queries for each training")
    add("--select", action="store_true", help="choose learning rates on a split of the training data")
    add("--no-students", action="store_true", help="stop at the labels, as the paper does")
    add("--recount", action="store_true", help="release all labels again from the votes in OUTPUT")
    add("--jobs", type=int, default=cores, help="processes (default: %(default)s)")
    add("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    add("--quiet", action="store_true", help="no text report and no bars on standard error")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
