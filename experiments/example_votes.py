"""Make the votes under examples/ that the README's commands read: ``python -m experiments example_votes``.

They are generated from a seed. ``votes.csv``: 20 questions, no or yes (0 or 1), to 11 hospitals.
``teachers.csv``: 500 questions to 250 teachers, who choose one of ten classes; a column is the votes of a class.
Python's own generator makes the same files wherever it runs.
"""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from darrm.util.files import write_text
from experiments.pages import CommandLine

HOSPITALS, QUESTIONS = 11, 20
TEACHERS, CLASSES, IMAGES = 250, 10, 500
SEED = 11


def hospitals(rng: random.Random) -> list[list[int]]:
    """Draw the answers (QUESTIONS, HOSPITALS), 0 or 1: each question has a share of yes."""
    rows = []
    for _ in range(QUESTIONS):
        yes = rng.random()
        rows.append([int(rng.random() < yes) for _ in range(HOSPITALS)])
    return rows


def teachers(rng: random.Random) -> list[list[int]]:
    """Draw the counts (IMAGES, CLASSES): a share of the teachers knows the class, a share takes it for another one."""
    rows = []
    for _ in range(IMAGES):
        true, other = (int(CLASSES * rng.random()) for _ in range(2))
        known, confused = 0.5 + 0.5 * rng.random(), rng.random()
        counts = [0] * CLASSES
        for _ in range(TEACHERS):
            if rng.random() < known:
                counts[true] += 1
            else:
                counts[other if rng.random() < confused else int(CLASSES * rng.random())] += 1
        rows.append(counts)
    return rows


def as_csv(rows: Iterable[Iterable[int]]) -> str:
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    line = CommandLine("experiments example_votes", __doc__)
    line.add_argument("--output", type=Path, default=Path("examples"), metavar="FOLDER", help="default examples")
    folder: Path = line.parse_args(arguments).output
    rng = random.Random(SEED)  # noqa: S311 (made-up votes)
    for name, rows in (("votes.csv", hospitals(rng)), ("teachers.csv", teachers(rng))):
        write_text(folder / name, as_csv(rows))
        print(f"wrote {folder / name}")
    return 0
