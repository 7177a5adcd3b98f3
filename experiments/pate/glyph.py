"""The votes of teachers on a stand-in for Glyph, trained and kept; and its baseline.

They are 5,000 linear discriminants, trained in minutes, or in a study of its own 70 convolutional networks.

The data set of [P] is not public: `experiments.pate.glyph_images` makes its like, and no number from it is a number of
[P]. Labels, those of the pool and of the test included, are wrong as often as the data set's: the accuracies are
against the labels as they are given, as in [P].
"""

import hashlib
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from darrm.util.extras import require
from darrm.util.files import replacing
from darrm.util.progress import bar
from darrm.votes import Votes
from experiments.kept import digest_of
from experiments.pages import Row
from experiments.pate.glyph_images import CHARACTERS, STRANGERS, Style, load_atlas
from experiments.pate.glyph_networks import RECIPE, ask_networks
from experiments.pate.glyph_teachers import Block, GlyphTask, Moments, ask_block, extract_features, fit_discriminant
from experiments.pate.recorded import Recorded
from experiments.pate.settings import NETWORKS, Study
from experiments.teachers import Machine

BLOCK = 10  # teachers that one call of a worker trains
STAGE = 20  # blocks between two savings, of networks one for each process
QUICK = GlyphTask(Style(classes=20), teachers=200, records=150, pool=600, test=600)
QUICK_NETWORKS = replace(QUICK, teachers=10)
BASELINE_SHRINKAGE = 0.01  # of the discriminant of all shards' records, which needs less than a teacher's


@dataclass(frozen=True, eq=False)
class _Progress:
    """How far the teachers are, and what those asked so far say."""

    teachers: int
    seconds: float
    block: Block


def glyph_task(study: Study, *, quick: bool) -> GlyphTask:
    """Return what a study of the stand-in asks for; a quick one is of few classes and teachers."""
    if quick:
        return QUICK_NETWORKS if study.name == NETWORKS else QUICK
    return GlyphTask(Style(classes=study.classes), teachers=study.teachers, pool=study.pool)


def obtain_glyph(study: Study, machine: Machine, *, quick: bool = False) -> Recorded:
    """Train the teachers and count their votes, or read the counts of the same task and go on from there.

    Spread by joblib in whatever backend is configured; saved every few hundred teachers.
    """
    task = glyph_task(study, quick=quick)
    public, held_out = task.public(), task.held_out()
    asked = _ask_teachers(task, machine, study.name)
    return Recorded(
        name=study.name,
        votes=Votes.of_counts(asked.block.counts, task.teachers),
        pool_x=public.images,
        pool_y=public.y,
        test_x=held_out.images,
        test_y=held_out.y,
        teacher_accuracy=asked.block.right / (task.teachers * task.pool),
        seconds=asked.seconds,
    )


def glyph_baseline(study: Study, machine: Machine, *, quick: bool = False) -> float:
    """Return the test accuracy of the discriminant of all teachers' records together, without any privacy."""
    task = glyph_task(study, quick=quick)
    held_out = task.held_out()
    union = fit_discriminant(_ask_teachers(task, machine, study.name).block.moments, BASELINE_SHRINKAGE)
    return float((union.predict(extract_features(held_out.x)) == held_out.y).mean())


def _ask_teachers(task: GlyphTask, machine: Machine, name: str) -> _Progress:
    """Go on from the saved counts of a task to all its teachers."""
    machine.folder.mkdir(parents=True, exist_ok=True)
    ask = ask_networks if name == NETWORKS else ask_block
    path = machine.folder / f"{name}-{_digest(task, *([repr(RECIPE)] if name == NETWORKS else []))}.npz"
    asked = _load(path, task)
    joblib = require("joblib")
    with (
        bar(task.teachers, "teachers", enabled=machine.progress, done=asked.teachers) as advance,
        joblib.Parallel(n_jobs=machine.jobs) as parallel,
    ):
        while asked.teachers < task.teachers:
            started = time.perf_counter()
            end = min(asked.teachers + (machine.jobs if name == NETWORKS else STAGE) * BLOCK, task.teachers)
            starts = range(asked.teachers, end, BLOCK)
            blocks = parallel(joblib.delayed(ask)(task, range(at, min(at + BLOCK, end))) for at in starts)
            seconds = asked.seconds + time.perf_counter() - started
            advance(end - asked.teachers)
            asked = _Progress(end, seconds, sum(blocks, start=asked.block))
            _save(path, asked)
    return asked


def _digest(task: GlyphTask, *recipe: str) -> str:
    """Return what tells a task from another, the drawing of the fonts included."""
    outlines = load_atlas(CHARACTERS[: task.style.classes] + STRANGERS).outlines
    facts: list[Any] = [asdict(task), hashlib.sha256(outlines.data).hexdigest(), *recipe]
    return digest_of(facts)


def _load(path: Path, task: GlyphTask) -> _Progress:
    if not path.is_file():
        nothing = np.zeros((task.pool, task.style.classes), dtype=np.int64)
        return _Progress(0, 0.0, Block(nothing, 0, Moments.none(task.style.classes)))
    with np.load(path, allow_pickle=False) as saved:
        moments = Moments(saved["number"], saved["total"], saved["second"])
        block = Block(saved["counts"].astype(np.int64), int(saved["right"]), moments)
        return _Progress(int(saved["teachers"]), float(saved["seconds"]), block)


def _save(path: Path, asked: _Progress) -> None:
    moments = asked.block.moments
    arrays: Row = {"teachers": asked.teachers, "seconds": asked.seconds, "right": asked.block.right}
    arrays |= {"number": moments.number, "total": moments.total, "second": moments.second}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, counts=asked.block.counts.astype(np.int32), **arrays)
