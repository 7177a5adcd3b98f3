"""The votes of teachers on a stand-in for Glyph, its student and its baselines.

The data set of [P] is not public: `experiments.pate.glyph_images` makes its like, and no number from it is a number of
[P]. Labels, those of the pool and of the test included, are wrong as often as the data set's: the accuracies are
against the labels as they are given, as in [P].

**5,000 linear teachers.** Features are a histogram of oriented gradients, in which no data had a part. A teacher is
Fisher's linear discriminant of its own records: the class whose mean is nearest in the metric of the covariance within
classes, by how frequent it is. It needs the records' count, sum and second moments only, so a teacher takes
milliseconds, and the discriminant of all shards, the non-private baseline, is a sum of moments. A block of teachers
makes its shards from the seed and sends back counts, so any backend of joblib may run it. The student is the
discriminant of the answered queries; labeling the unanswered ones by itself made it worse. **70 convolutional
teachers**, of three convolutions where [P] has 32 layers. Each learns from 1,000 records, turned and stretched
differently in every step.
"""

import hashlib
import time
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from darrm.training.network import student_network
from darrm.training.student import Perturbation, Student, StudentRecipe, train_student
from darrm.util import checks
from darrm.util.extras import require
from darrm.util.files import replacing
from darrm.util.progress import bar
from darrm.votes import Votes
from experiments.kept import digest_of
from experiments.pages import Row
from experiments.pate.glyph_images import CHARACTERS, SIDE, STRANGERS, Records, Style, draw_records, load_atlas
from experiments.pate.recorded import Recorded
from experiments.pate.settings import NETWORKS, Study
from experiments.teachers import Machine

CELLS = 4  # on each side of the grid
ORIENTATIONS = 8
FEATURES = CELLS**2 * ORIENTATIONS
AT_ONCE = 2000  # queries asked together, whose scores stay in a processor's cache


@dataclass(frozen=True)
class GlyphTask:
    """All that the votes depend on."""

    style: Style = field(default_factory=Style)
    teachers: int = 5_000
    records: int = 1_000  # in the shard of each teacher
    pool: int = 16_000
    test: int = 10_000
    shrinkage: float = 0.1  # towards a covariance with equal variances
    seed: int = 2018

    def shard(self, teacher: int) -> Records:
        """Make the records of one teacher."""
        return draw_records(self.style, (self.seed, 0, teacher), self.records)

    def public(self) -> Records:
        """Make the pool: no teacher's records, and labeled wrongly as often as theirs."""
        return draw_records(self.style, (self.seed, 1), self.pool)

    def held_out(self) -> Records:
        """Make the records that students are measured on."""
        return draw_records(self.style, (self.seed, 2), self.test)


@dataclass(frozen=True, eq=False)
class Moments:
    """Sufficient statistics of a linear discriminant; they add up over shards."""

    number: NDArray[np.int64]  # (C,) records of each class
    total: NDArray[np.float64]  # (C, FEATURES) the sum of their features
    second: NDArray[np.float64]  # (FEATURES, FEATURES) the sum of f fᵀ over all records

    @classmethod
    def of(cls, features: NDArray[np.float32], labels: NDArray[np.int64], classes: int) -> Self:
        """Sum up labeled features."""
        member = (labels == np.arange(classes)[:, np.newaxis]).astype(np.float32)
        number = np.bincount(labels, minlength=classes)
        return cls(number, (member @ features).astype(np.float64), (features.T @ features).astype(np.float64))

    @classmethod
    def none(cls, classes: int) -> Self:
        """Return the moments of no record."""
        square = np.zeros((FEATURES, FEATURES))
        return cls(np.zeros(classes, np.int64), np.zeros((classes, FEATURES)), square)

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(self.number + other.number, self.total + other.total, self.second + other.second)


@dataclass(frozen=True, eq=False)
class Discriminant:
    """A linear classifier of features: the largest of f W + b."""

    weights: NDArray[np.float32]  # (FEATURES, C)
    bias: NDArray[np.float32]  # (C,)

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the class of each of (n, FEATURES)."""
        parts = (features[at : at + AT_ONCE] for at in range(0, len(features), AT_ONCE))
        return np.concatenate([(part @ self.weights + self.bias).argmax(axis=1) for part in parts])


@dataclass(frozen=True, eq=False)
class Block:
    """What some teachers together say, and know."""

    counts: NDArray[np.integer]  # (Q, C)
    right: int  # votes for the label of the query
    moments: Moments

    def __add__(self, other: "Block") -> "Block":
        return Block(self.counts + other.counts, self.right + other.right, self.moments + other.moments)


def extract_features(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (n, FEATURES) of (n, …) pictures, each row scaled to about unit mean square, with square roots taken."""
    return np.concatenate([_features(x[at : at + 128]) for at in range(0, len(x), 128)])


def fit_discriminant(moments: Moments, shrinkage: float) -> Discriminant:
    """Fit Fisher's discriminant; a class without a record is never the answer."""
    present = moments.number > 0
    means = moments.total / np.maximum(moments.number, 1)[:, np.newaxis]
    within = (moments.second - moments.total.T @ means) / moments.number.sum()
    within[np.diag_indices(FEATURES)] += shrinkage * np.trace(within) / FEATURES
    weights = np.linalg.solve(within, means.T)
    frequency = np.log(np.where(present, moments.number, 1))
    bias = np.where(present, frequency - 0.5 * (means.T * weights).sum(axis=0), -np.inf)
    return Discriminant(weights.astype(np.float32), bias.astype(np.float32))


def ask_block(task: GlyphTask, teachers: range) -> Block:
    """Train some teachers and count their votes on the pool, on one thread: the same numbers however many jobs."""
    classes = task.style.classes
    with require("threadpoolctl").threadpool_limits(1):
        features, truth = _pool(task)
        counts = np.zeros(task.pool * classes, dtype=np.int32)  # half of what travels
        first = np.arange(task.pool) * classes
        moments = Moments.none(classes)
        right = 0
        for teacher in teachers:
            shard = task.shard(teacher)
            own = Moments.of(extract_features(shard.x), shard.y, classes)
            votes = fit_discriminant(own, task.shrinkage).predict(features)
            counts[first + votes] += 1
            right += int((votes == truth).sum())
            moments += own
    return Block(counts.reshape(task.pool, classes), right, moments)


@cache
def _pool(task: GlyphTask) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return features and labels of the pool, made once in a process."""
    public = task.public()
    return extract_features(public.x), public.y


def _features(x: NDArray[np.float32]) -> NDArray[np.float32]:
    image = x.reshape(-1, SIDE, SIDE)
    halved = image[:, ::2] + image[:, 1::2]
    padded = np.pad(halved[:, :, ::2] + halved[:, :, 1::2], ((0, 0), (1, 1), (1, 1)))
    down = (padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]).reshape(len(x), -1)
    across = (padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]).reshape(len(x), -1)
    parts = []
    for angle in np.arange(ORIENTATIONS // 2) * (2.0 * np.pi / ORIENTATIONS):
        slope = np.float32(np.cos(angle)) * down + np.float32(np.sin(angle)) * across
        rising = np.maximum(slope, 0.0)
        parts += [rising @ _cells(), (rising - slope) @ _cells()]
    found = np.concatenate(parts, axis=1)
    return np.asarray(np.sqrt(found / (np.sqrt((found**2).mean(axis=1, keepdims=True)) + np.float32(0.1))))


@cache
def _cells() -> NDArray[np.float32]:
    """Return (196, CELLS²): how much each place of the halved picture counts in each cell, which overlap."""
    width = 3.0  # places
    at = np.arange(SIDE // 2) - (SIDE // 2 - 1) / 2.0
    middles = (np.arange(CELLS) - (CELLS - 1) / 2.0) * width
    hats = np.clip(1.0 - np.abs(at[:, np.newaxis] - middles) / width, 0.0, None)
    return np.kron(hats, hats).astype(np.float32)


CHANGE = Perturbation(shift=1, rotation=6, scale=0.1, shear=0.1)
RECIPE = StudentRecipe(steps=400, learning_rate=4e-3, batch=32, weight=0.0, averaging=0.98, change=CHANGE)
_BASELINE = replace(RECIPE, steps=1500, batch=128, averaging=0.99)
_QUICK_STEPS = 200


def ask_networks(task: GlyphTask, teachers: range) -> Block:
    """Train some teachers and count their votes on the pool: the same numbers however many jobs, up to rounding."""
    public = task.public()
    votes = np.array([_trained([task.shard(one)], task, RECIPE, one).predict(public.images) for one in teachers])
    counts = np.zeros((task.pool, task.style.classes), dtype=np.int32)
    for one in votes:
        counts[np.arange(task.pool), one] += 1
    return Block(counts, int((votes == public.y).sum()), Moments.none(task.style.classes))


def networks_baseline(task: GlyphTask, *, seed: int, quick: bool) -> float:
    """Return the test accuracy of one network of all teachers' records together, without any privacy."""
    recipe = replace(_BASELINE, steps=_QUICK_STEPS) if quick else _BASELINE
    held_out = task.held_out()
    union = _trained([task.shard(one) for one in range(task.teachers)], task, recipe, seed)
    return float((union.predict(held_out.images) == held_out.y).mean())


def _trained(shards: list[Records], task: GlyphTask, recipe: StudentRecipe, seed: int) -> Student:
    x: NDArray[np.float32] = np.concatenate([shard.images for shard in shards])
    y: NDArray[np.int64] = np.concatenate([shard.y for shard in shards])
    build = partial(student_network, classes=task.style.classes)
    return train_student(x, y, x[:0], recipe=recipe, build=build, seed=seed, device="cpu")


SHRINKAGE = 0.03  # a teacher's is 0.1, for a tenth of the records
TEMPERATURES = np.geomspace(1.0, 16.0, 17)
_HELD_BACK = 5  # one answer in five sets the temperature


@dataclass(frozen=True, eq=False)
class GlyphStudent:
    """A discriminant whose scores are divided by a temperature, so that it is as sure as it is right."""

    discriminant: Discriminant
    temperature: float

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Return the class of each of (n, …) pictures."""
        return self.discriminant.predict(extract_features(x))

    def scores(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Return the probabilities of the classes for each of (n, …) pictures: (n, C), rows that sum to 1."""
        return np.exp(_log_probabilities(self.discriminant, extract_features(x), self.temperature))


def train_glyph_student(x: NDArray[Any], labels: NDArray[np.int64], classes: int) -> GlyphStudent:
    """Learn from the answered among (q, …) pictures, which are those whose label is not −1.

    `ValueError` if fewer than five are answered.
    """
    answered = np.flatnonzero(labels >= 0)
    if len(answered) < _HELD_BACK:
        checks.fail("labels", f"{len(answered)} answers", f"at least {_HELD_BACK} answers", "ask more queries")
    features, known = extract_features(x[answered]), labels[answered]
    held = np.arange(len(known)) % _HELD_BACK == 0
    shown = fit_discriminant(Moments.of(features[~held], known[~held], classes), SHRINKAGE)
    rows = np.arange(held.sum())
    found = [_log_probabilities(shown, features[held], temperature)[rows, known[held]] for temperature in TEMPERATURES]
    # an answer of a class that none of the others has says nothing about the temperature
    seen = np.isfinite(found[0])
    likelihood = [float(logs[seen].sum()) for logs in found]
    student = fit_discriminant(Moments.of(features, known, classes), SHRINKAGE)
    return GlyphStudent(student, float(TEMPERATURES[int(np.argmax(likelihood))]))


def _log_probabilities(
    discriminant: Discriminant, features: NDArray[np.float32], temperature: float
) -> NDArray[np.float64]:
    logits = (features @ discriminant.weights + discriminant.bias).astype(np.float64) / temperature
    return np.asarray(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))


BLOCK = 10  # teachers that one call of a worker trains
STAGE = 20  # blocks whose counts are in memory together
QUICK = GlyphTask(Style(classes=20), teachers=200, records=150, pool=600, test=600)
QUICK_NETWORKS = replace(QUICK, teachers=10)
BASELINE_SHRINKAGE = 0.01  # of the discriminant of all shards' records, which needs less than a teacher's


def glyph_task(study: Study, *, quick: bool) -> GlyphTask:
    """Return the task of a study of the stand-in; a quick one has few classes and teachers."""
    if quick:
        return QUICK_NETWORKS if study.name == NETWORKS else QUICK
    return GlyphTask(Style(classes=study.classes), teachers=study.teachers, pool=study.pool)


def obtain_glyph(study: Study, machine: Machine, *, quick: bool = False) -> Recorded:
    """Train the teachers and count their votes, by joblib in whatever backend is configured, or read the counts."""
    task = glyph_task(study, quick=quick)
    public, held_out = task.public(), task.held_out()
    asked, seconds = _ask_teachers(task, machine, study.name)
    return Recorded(
        name=study.name,
        votes=Votes.of_counts(asked.counts, task.teachers),
        pool_x=public.images,
        pool_y=public.y,
        test_x=held_out.images,
        test_y=held_out.y,
        teacher_accuracy=asked.right / (task.teachers * task.pool),
        seconds=seconds,
    )


def glyph_baseline(study: Study, machine: Machine, *, quick: bool = False) -> float:
    """Return the test accuracy of the discriminant of all teachers' records together, without any privacy."""
    task = glyph_task(study, quick=quick)
    held_out = task.held_out()
    union = fit_discriminant(_ask_teachers(task, machine, study.name)[0].moments, BASELINE_SHRINKAGE)
    return float((union.predict(extract_features(held_out.x)) == held_out.y).mean())


def _ask_teachers(task: GlyphTask, machine: Machine, name: str) -> tuple[Block, float]:
    """Train and ask all teachers of a task, or read their kept votes; return the seconds too."""
    ask = ask_networks if name == NETWORKS else ask_block
    path = machine.folder / f"{name}-{_digest(task, *([repr(RECIPE)] if name == NETWORKS else []))}.npz"
    if path.is_file():
        with np.load(path, allow_pickle=False) as saved:
            moments = Moments(saved["number"], saved["total"], saved["second"])
            return Block(saved["counts"].astype(np.int64), int(saved["right"]), moments), float(saved["seconds"])
    started, joblib = time.perf_counter(), require("joblib")
    asked = Block(np.zeros((task.pool, task.style.classes), np.int64), 0, Moments.none(task.style.classes))
    with (
        bar(task.teachers, "teachers", enabled=machine.progress) as advance,
        joblib.Parallel(n_jobs=machine.jobs) as parallel,
    ):
        for start in range(0, task.teachers, STAGE * BLOCK):
            end = min(start + STAGE * BLOCK, task.teachers)
            calls = (joblib.delayed(ask)(task, range(at, min(at + BLOCK, end))) for at in range(start, end, BLOCK))
            asked = sum(parallel(calls), start=asked)
            advance(end - start)
    seconds = time.perf_counter() - started
    arrays: Row = vars(asked.moments) | {"right": asked.right, "seconds": seconds}
    machine.folder.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, counts=asked.counts.astype(np.int32), **arrays)
    return asked, seconds


def _digest(task: GlyphTask, *recipe: str) -> str:
    """Return what tells a task from another, the drawing of the fonts included."""
    outlines = load_atlas(CHARACTERS[: task.style.classes] + STRANGERS).outlines
    facts: list[object] = [asdict(task), hashlib.sha256(outlines.data).hexdigest(), *recipe]
    return digest_of(facts)
