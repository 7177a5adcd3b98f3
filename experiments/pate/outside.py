"""Check labels that the authors of [P17] published for MNIST, and train our student on them.

    python -m experiments pate_outside --recompute

`npapernot/multiple-teachers-for-privacy` on GitHub has LNMax's labels of the first 9,000 test images, from the votes of
250 teachers, and the indices of the 100 labels that the paper's student learned from. The program downloads the files,
checks their hashes, and trains the student of Table 1 on those 100 labels. It writes OUTPUT/pate/outside.json.
"""

import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.votes import ABSTAIN, Votes
from experiments import pages
from experiments.datasets import FILES
from experiments.download import obtain
from experiments.pate.ensembles import split
from experiments.pate.page import OUTSIDE_FILE
from experiments.pate.recorded import Recorded, StudentAccuracies
from experiments.pate.settings import STUDIES
from experiments.pate.students import find_recipe, make_student
from experiments.teachers import read_or_compute


def load_published() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the published labels (9000,), and the indices (100,) of the labels for the paper's student."""
    labels, places = (np.load(io.BytesIO(obtain(file))).astype(np.int64) for file in FILES["multiple-teachers"])
    return labels, places


def measure(folder: Path, seeds: Sequence[int], *, quick: bool) -> pages.Row:
    """Measure the published labels, and train students on the 100 labels of the paper's student."""
    data, test_x, test_y = split(STUDIES["mnist"])
    labels, places = load_published()
    student_labels = np.full(len(labels), ABSTAIN)
    student_labels[places] = labels[places]
    votes = Votes.from_labels(labels[:, np.newaxis].astype(np.int8), classes=10)
    recorded = Recorded("mnist", votes, data.test_x, data.test_y, test_x, test_y, np.nan, np.nan)

    def train(seed: int) -> StudentAccuracies:
        student = make_student(recorded, student_labels, seed=seed, quick=quick)
        return recorded.measure_student(student, len(student_labels))

    facts = {seed: [recorded.digest, seed, quick, find_recipe("mnist")] for seed in seeds}
    students = [read_or_compute(folder / "kept", "outside", facts[seed], partial(train, seed))[0] for seed in seeds]
    return {
        "labels": len(labels),
        "labels_right": float(np.mean(labels == data.test_y)),
        "used": len(places),
        "used_right": int(np.sum(labels[places] == data.test_y[places])),
        "held_out": len(test_y),
        "students": students,
        "paper": 0.98,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = pages.make_command_line("pate", __doc__, module="experiments pate_outside", quick="a short student")
    parser.add_argument("--students", type=int, default=1, metavar="N", help="how many (default 1)")
    options = parser.parse_args(arguments)
    folder = pages.prepare_folder(options, "pate")
    if not options.page:
        pages.write_json(folder / OUTSIDE_FILE, measure(folder, range(options.students), quick=options.quick))
    print(f"wrote {folder / OUTSIDE_FILE}; the page is written by python -m experiments pate")
    return 0
