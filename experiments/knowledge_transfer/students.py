"""The students: trained on an aggregator's labels, measured on images that nobody was asked about.

As in [P, Section 5.1] the test images are split in two halves: the first is public (Q of its images are labeled, the
rest are unlabeled), the second measures. The fully supervised model sees the private training images and their true
classes: it is what giving up privacy and the labeling budget would buy.
"""

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from darrm.training.network import convolutional_network
from darrm.training.student import StudentRecipe, train_student
from darrm.util.extras import require
from experiments.datasets import LabeledImages
from experiments.knowledge_transfer import settings
from experiments.knowledge_transfer.labels import ways
from experiments.knowledge_transfer.settings import Setup
from experiments.knowledge_transfer.teachers import TeacherVotes
from experiments.pages import Row
from experiments.teachers import Machine

TRUE_LABELS, SUPERVISED = "non-private student", "fully supervised"
SHARED = (settings.PRIVATE_MAJORITY, settings.PLAIN_MAJORITY)  # the same for every m

# one student to train: its row, positions among the public images, and their labels
Task = tuple[Row, NDArray[np.int64], NDArray[np.int64]]


def student_rows(
    data: LabeledImages,
    setup: Setup,
    allowances: tuple[int, ...],
    votes: TeacherVotes,
    machine: Machine,
    recipe: StudentRecipe,
) -> list[Row]:
    """Train a student for every aggregator, m and Q, the non-private student, and the fully supervised model."""
    order = np.random.default_rng([0, 1]).permutation(len(data.test_y))
    public, held = order[: len(order) // 2], order[len(order) // 2 :]
    tasks = _tasks(setup, allowances, votes, public)
    measured = (data.test_x[held], data.test_y[held])
    measure = partial(student_accuracy, measured=measured, seed=0, device=machine.device)
    joblib = require("joblib")
    found = joblib.Parallel(n_jobs=machine.jobs)(
        joblib.delayed(measure)(data.test_x[chosen], labels, data.test_x[np.setdiff1d(public, chosen)], recipe=recipe)
        for _, chosen, labels in tasks
    )
    rows = [{**row, "accuracy": accuracy} for (row, _, _), accuracy in zip(tasks, found, strict=True)]
    supervised = measure(data.train_x, data.train_y, data.train_x[:0], recipe=replace(recipe, weight=0.0))
    rows.append({"m": None, "queries": len(data.train_y), "labels": SUPERVISED, "accuracy": supervised})
    return rows


def _tasks(setup: Setup, allowances: tuple[int, ...], votes: TeacherVotes, public: NDArray[np.int64]) -> list[Task]:
    tasks: list[Task] = []
    for queries in setup.queries:
        rng = np.random.default_rng([0, 2, queries])
        chosen = public[:queries]  # the order is random already; every aggregator gets the same
        truth = votes.truth[chosen]
        row: Row = {"m": None, "queries": queries, "labels": TRUE_LABELS, "label_accuracy": 1.0}
        tasks.append((row, chosen, truth))
        for m in allowances:
            for way in ways(setup.each, m):
                if way.name in SHARED and m != allowances[0]:
                    continue
                theirs = votes.private if way.private_teachers else votes.plain
                labels = way.label(theirs[chosen], rng)
                row = {"m": None if way.name in SHARED else m, "queries": queries, "labels": way.name}
                tasks.append((row | {"label_accuracy": float((labels == truth).mean())}, chosen, labels))
    return tasks


def student_accuracy(
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    unlabeled: NDArray[np.float32],
    measured: tuple[NDArray[np.float32], NDArray[np.int64]],
    recipe: StudentRecipe,
    *,
    seed: int,
    device: str,
) -> float:
    """Train one student and measure its share of right answers on images with known classes."""
    build = partial(convolutional_network, side=x.shape[-1])
    student = train_student(x, labels, unlabeled, recipe=recipe, build=build, seed=seed, device=device)
    return float((student.predict(measured[0]) == measured[1]).mean())
