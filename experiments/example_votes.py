"""Make the votes under examples/ that the README's commands read: ``python -m experiments example_votes``.

``votes.csv`` has the answers of 11 hospitals to 20 questions, no or yes (0 or 1). ``teachers.csv`` has the votes of 250
teachers on 500 images; its ten columns are vote counts of the classes. The seed is fixed, and Python's own generator
makes the same files on every machine.
"""

import random
from collections.abc import Sequence
from pathlib import Path

from darrm.util.files import write_text
from experiments.pages import CommandLine

HOSPITALS, QUESTIONS = 11, 20
TEACHERS, CLASSES, IMAGES = 250, 10, 500
SEED = 11


def draw_hospital_answers(rng: random.Random) -> list[list[int]]:
    """Draw answers 0 or 1, shape (QUESTIONS, HOSPITALS), with a random share of yes for each question."""
    rows = []
    for _ in range(QUESTIONS):
        share_of_yes = rng.random()
        rows.append([int(rng.random() < share_of_yes) for _ in range(HOSPITALS)])
    return rows


def draw_teacher_counts(rng: random.Random) -> list[list[int]]:
    """Draw vote counts (IMAGES, CLASSES): some teachers are right, some confuse two classes, the others guess."""
    rows = []
    for _ in range(IMAGES):
        true_class, other_class = (int(CLASSES * rng.random()) for _ in range(2))
        share_correct, share_confused = 0.5 + 0.5 * rng.random(), rng.random()
        counts = [0] * CLASSES
        for _ in range(TEACHERS):
            if rng.random() < share_correct:
                counts[true_class] += 1
            else:
                counts[other_class if rng.random() < share_confused else int(CLASSES * rng.random())] += 1
        rows.append(counts)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandLine("experiments example_votes", __doc__)
    parser.add_argument("--output", type=Path, default=Path("examples"), metavar="FOLDER", help="default examples")
    folder: Path = parser.parse_args(arguments).output
    rng = random.Random(SEED)  # noqa: S311 (made-up votes)
    for name, rows in (("votes.csv", draw_hospital_answers(rng)), ("teachers.csv", draw_teacher_counts(rng))):
        write_text(folder / name, "".join(",".join(map(str, row)) + "\n" for row in rows))
        print(f"wrote {folder / name}")
    return 0
