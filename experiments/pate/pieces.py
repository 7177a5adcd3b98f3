"""How long the MNIST study takes from data to all rows, put together from its pieces: it was never run in whole.

    python -m experiments.pate.pieces --output docs/reproduction

Trains a few steps of everything, less what starting takes, and multiplies; the accounting is done in whole. Writes
OUTPUT/pate/pieces.json, in seconds of one processor, which another machine changes. Needs the study's JSON and counts.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from darrm.ensemble.student import StudentRecipe, train_student
from darrm.privacy import PrivacyParams
from darrm.system.command_line import run
from darrm.system.progress import status_line
from experiments import pages
from experiments.datasets import LabeledImages
from experiments.pate.dpsgd import SETTINGS, fitted
from experiments.pate.ensembles import PARTITION_SEED, RECIPES, SEED, network_for, split
from experiments.pate.models import BASELINE_BATCH
from experiments.pate.page import PIECES
from experiments.pate.scattering import scattered
from experiments.pate.search import search
from experiments.pate.settings import MNIST_SIZE, MNIST_WAY, STUDIES
from experiments.pate.students import RECIPES as STUDENTS
from experiments.pate.students import network_for as student_network_for
from experiments.pate.whole import recompute
from experiments.teachers import Machine, Training

STUDY = STUDIES["mnist"]
TEACHERS, EPOCHS, STEPS, IMAGES = 6, 6, 40, 500  # of a stack, of teachers, of a student and of DP-SGD, scattered


def seconds_of(work: Callable[[], object]) -> float:
    """Return how many seconds of a processor some work takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(folder: Path) -> pages.Row:
    """Measure every piece."""
    result, (data, _, _) = pages.read_json(folder / f"{STUDY.name}.json"), split(STUDY)
    rows = [row for kind in ("rows", "points", "by_label", "searched") for row in result[kind]]
    students = sum(len(row["students"]) for row in rows)
    ensemble = _teachers(data)
    passes = sum(round(RECIPES[STUDY.name].epochs * size / STUDY.teachers) for size in STUDY.retrained)
    recipe = STUDENTS[STUDY.name]
    supervised = replace(recipe, batch=BASELINE_BATCH, consistency=0.0, robustness=0.0)
    features = seconds_of(lambda: scattered(data.train_x[:IMAGES])) / IMAGES * (len(data.train_x) + len(data.test_x))
    counts = folder / f"{STUDY.name}-counts.npz"
    with status_line(quiet=True) as line:
        accounting = seconds_of(lambda: recompute(counts, line, quick=False))
    accounting += seconds_of(lambda: search(MNIST_WAY, MNIST_SIZE, STUDY.delta))
    parts = {
        f"{STUDY.teachers} teachers": ensemble,
        f"Figure 4's {len(STUDY.retrained)} smaller ensembles": ensemble * passes / RECIPES[STUDY.name].epochs,
        f"{students} students": students * _student(data, recipe),
        "the baseline": _student(data, supervised),
        "DP-SGD of the network, twice": 2 * _private(data),
        "scattering, and four linear models": features + sum(one["seconds"] for one in result["linear"]),
        "labels, their cost and its publication, parameters from public votes, the figures": accounting,
    }
    whole = sum(parts.values())
    listed = [{"part": name, "seconds": found} for name, found in parts.items()]
    return {"parts": listed, "all": whole, "minutes": whole / 120}  # of two processors


def _teachers(data: LabeledImages) -> float:
    """Measure some epochs of a few teachers, and multiply."""
    recipe, size = RECIPES[STUDY.name], len(data.train_y) // STUDY.teachers * TEACHERS

    def train(epochs: int) -> float:
        short = Training(TEACHERS, PARTITION_SEED, replace(recipe, epochs=epochs), network_for(STUDY), SEED)
        return _trained(short, data, size)

    return (train(1 + EPOCHS) - train(1)) / EPOCHS * recipe.epochs * STUDY.teachers / TEACHERS


def _private(data: LabeledImages) -> float:
    """Measure some steps of DP-SGD on all images, and multiply."""
    recipe = fitted(SETTINGS[STUDY.name], len(data.train_y), PrivacyParams(1, STUDY.delta))

    def train(steps: int) -> float:
        short = Training(1, PARTITION_SEED, replace(recipe, steps=steps), network_for(STUDY), SEED)
        return _trained(short, data, len(data.train_y))

    return (train(2 * STEPS) - train(STEPS)) / STEPS * recipe.steps


def _trained(training: Training, data: LabeledImages, size: int) -> float:
    machine = Machine(1, "cpu", progress=False, folder=Path())
    return seconds_of(lambda: training.run(data.train_x[:size], data.train_y[:size], machine))


def _student(data: LabeledImages, recipe: StudentRecipe) -> float:
    """Measure a few steps of a student when all parts of its loss are there, and multiply."""
    labels = data.test_y.copy()
    labels[400:] = -1
    build = student_network_for(data.test_x, STUDY.classes)

    def train(steps: int) -> float:
        short = replace(recipe, steps=steps)
        return seconds_of(lambda: train_student(data.test_x, labels, data.test_x[:0], recipe=short, build=build))

    return (train(2 * STEPS) - train(STEPS)) / STEPS * recipe.steps


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the JSON."""
    parser = pages.command_line("pate", str(__doc__), module="pate.pieces")
    options = parser.parse_args(arguments)
    folder = pages.data_folder(options, "pate")
    if not options.page:
        pages.write_json(folder / PIECES, measure(folder))
    print(f"wrote {folder / PIECES}; the page is written by python -m experiments.pate --page")
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
