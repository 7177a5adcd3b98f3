"""Command line: ``python -m experiments.knowledge_transfer --dataset mnist --m 1,3,5,7``."""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from darrm import checks
from darrm.ensemble.calibration import privacy_of
from darrm.system import files
from darrm.system.command_line import CommandLine, run
from experiments.datasets import DATASETS, load
from experiments.knowledge_transfer import report, settings
from experiments.knowledge_transfer.labels import label_rows
from experiments.knowledge_transfer.pictures import draw
from experiments.knowledge_transfer.selection import select
from experiments.knowledge_transfer.students import student_rows
from experiments.knowledge_transfer.teachers import Machine, obtain_votes, private_recipe
from experiments.knowledge_transfer.totals import total_rows

QUICK_STEPS, QUICK_ALLOWANCES = 60, (3,)  # steps of a student and values of m, with --quick


def main(arguments: list[str] | None = None) -> int:
    """Run one data set: train or read votes, release labels, account, train students, write JSON, PNG and text."""
    options = _parser().parse_args(arguments)
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    if options.page:
        return _page(Path(options.page), folder)
    checks.integer_at_least(1, jobs=options.jobs, trainings=options.trainings, draws=options.draws)
    machine = Machine(options.jobs, options.device, progress=not options.no_progress, folder=folder)
    data, setup, stem = load(options.dataset), settings.SETUPS[options.dataset], options.dataset
    if options.private_rate is not None:
        setup, stem = replace(setup, private_rate=options.private_rate), f"{stem}-rate-{options.private_rate:g}"
    if options.select:
        found = select(data, setup, machine)
        files.write_text(_selection_path(folder, data.name), json.dumps(found, indent=1))
        print(json.dumps(found["best"], indent=1))
        return 0
    start = time.perf_counter()
    trainings = 1 if options.quick else options.trainings
    draws = settings.PAPER_DRAWS if options.quick else options.draws
    allowances = options.m or (QUICK_ALLOWANCES if options.quick else settings.ALLOWANCES)
    votes = [obtain_votes(data, setup, seed, machine) for seed in range(trainings)]
    student_allowances = options.student_m or ((3,) if 3 in allowances else allowances)
    student = replace(settings.STUDENT, steps=QUICK_STEPS) if options.quick else settings.STUDENT
    recipe = private_recipe(setup)
    spent = privacy_of(recipe, setup.each.delta)
    result: dict[str, Any] = {
        "dataset": data.name,
        "allowances": list(allowances),
        "K": settings.K,
        "epochs": setup.epochs,
        "draws": draws,
        "train_size": len(data.train_y),
        "test_size": len(data.test_y),
        "held_size": len(data.test_y) - len(data.test_y) // 2,
        "each": {"epsilon": setup.each.epsilon, "delta": setup.each.delta},
        "each_spent": {"epsilon": spent.epsilon, "delta": spent.delta},
        "private_training": recipe.to_dict(),
        "plain_training": setup.plain.to_dict(),
        "trainings": [{"seed": seed, **one.accuracies()} for seed, one in enumerate(votes)],
        "labels": label_rows(data.name, setup, allowances, votes, draws=draws, seed=0),
        "totals": total_rows(data.name, setup, allowances),
        "students": []
        if options.no_students
        else student_rows(data, setup, student_allowances, votes[0], machine, recipe=student),
        "selection": _read(_selection_path(folder, data.name)),
    }
    result["seconds"] = round(time.perf_counter() - start, 1)
    files.write_text(folder / f"{stem}.json", json.dumps(result, indent=1))
    draw(folder / f"{stem}.png", result, queries=setup.queries[-1])
    print(report.text(result))
    print(f"{result['seconds']} s; JSON, PNG and votes are in {folder}")
    return 0


def _page(path: Path, folder: Path) -> int:
    results = [_read(folder / f"{name}.json") for name in ("mnist", "fashion-mnist", "digits")]
    known = [result for result in results if result]
    if not known:
        raise ValueError(f"{folder} holds no results: run --dataset mnist first")
    others = [result for file in sorted(folder.glob("*-rate-*.json")) if (result := _read(file))]
    report.write_page(path, known, others)
    return 0


def _selection_path(folder: Path, name: str) -> Path:
    return folder / f"selection-{name}.json"


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _allowances(text: str) -> tuple[int, ...]:
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or len(set(values)) != len(values) or not set(values) <= set(settings.ALLOWANCES):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of different numbers out of 1,3,5,7")
    return tuple(sorted(values))


def _parser() -> CommandLine:
    parser = CommandLine(
        prog="python -m experiments.knowledge_transfer",
        description="Private teachers, private labels, a student: Tables 1, 2 and 4 to 10 of [D].",
        epilog="MNIST and Fashion-MNIST are downloaded, or read from the folder that DARRM_DATA_DIR names.",
    )
    parser.add_argument("--dataset", choices=DATASETS, default="digits", help="digits needs no download (default)")
    parser.add_argument("--m", type=_allowances, help="privacy allowances (default: 1,3,5,7)")
    parser.add_argument("--private-rate", type=float, metavar="RATE", help="another learning rate of DP-SGD")
    parser.add_argument("--student-m", type=_allowances, help="students for these m (default: 3, or what --m gives)")
    parser.add_argument(
        "--trainings", type=int, default=1, help=f"independent trainings; error bars: {settings.TRAININGS}"
    )
    parser.add_argument("--draws", type=int, default=settings.DRAWS, help="draws of the queries for each training")
    parser.add_argument("--quick", action="store_true", help="m = 3 alone, one training, ten draws, short students")
    parser.add_argument("--select", action="store_true", help="choose learning rates on a split of the training data")
    parser.add_argument("--no-students", action="store_true", help="stop at the labels, as the paper does")
    parser.add_argument("--page", metavar="FILE", help="write the page of docs/reproduction from the JSON, and stop")
    parser.add_argument("--output", default="results/knowledge_transfer", metavar="FOLDER", help="default: %(default)s")
    parser.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes (default: %(default)s)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--no-progress", action="store_true", help="no bars on standard error")
    return parser


if __name__ == "__main__":
    raise SystemExit(run(main))
