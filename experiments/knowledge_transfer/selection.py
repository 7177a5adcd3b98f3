"""Select learning rates, batches and the student's regularization on training data alone, and train students.

The selection holds out a fifth of the training images and trains teachers on the others. It scores private teachers by
the held-out accuracy of their majority, because majorities are released. It scores teachers without privacy by their
mean accuracy, because GNMax needs unanimous teachers. The JSON has both accuracies. The selection scores students on
simulated labels: 100 training images, a fifth with the wrong label. It reads no test image and no test label. As in the
paper, the privacy accounting does not cover this selection.

Students learn from an aggregator's labels. As in [P, Section 5.1], the test images are split in two halves. The first
half is public: Q of its images have labels, the others have none. The second half measures accuracy. The fully
supervised model learns from the private training images and their true classes; it shows the accuracy without privacy
and without a limit on labels.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from darrm.training.network import convolutional_network
from darrm.training.recipes import PlainSGD, PrivateSGD, Recipe
from darrm.training.student import StudentRecipe, train_student
from darrm.training.teachers import majority
from darrm.util.extras import require
from experiments.datasets import LabeledImages
from experiments.knowledge_transfer import settings
from experiments.knowledge_transfer.labels import make_methods
from experiments.knowledge_transfer.settings import Setup, choose_training, make_private_recipe
from experiments.pages import Row
from experiments.teachers import Machine, TeacherVotes, Training

TRUE_LABELS, SUPERVISED = "non-private student", "fully supervised"
SHARED_METHODS = (settings.PRIVATE_MAJORITY, settings.PLAIN_MAJORITY)  # the same for every m

# one student: its row, the indices of its test images, and their labels
Task = tuple[Row, NDArray[np.int64], NDArray[np.int64]]


def train_students(
    data: LabeledImages,
    setup: Setup,
    allowances: tuple[int, ...],
    votes: TeacherVotes,
    machine: Machine,
    recipe: StudentRecipe,
) -> list[Row]:
    """Train a student for every aggregator, m and Q on the first training's labels, and two without private labels."""
    order = np.random.default_rng([0, 1]).permutation(len(data.test_y))
    public, measured_images = order[: len(order) // 2], order[len(order) // 2 :]
    tasks = _list_tasks(setup, allowances, votes, public)
    test_data = (data.test_x[measured_images], data.test_y[measured_images])
    measure = partial(measure_student, test_data=test_data, seed=0, device=machine.device)
    joblib = require("joblib")
    accuracies = joblib.Parallel(n_jobs=machine.jobs)(
        joblib.delayed(measure)(data.test_x[images], labels, data.test_x[np.setdiff1d(public, images)], recipe=recipe)
        for _, images, labels in tasks
    )
    rows = [{**row, "accuracy": accuracy} for (row, _, _), accuracy in zip(tasks, accuracies, strict=True)]
    supervised = measure(data.train_x, data.train_y, data.train_x[:0], recipe=replace(recipe, weight=0.0))
    rows.append({"m": None, "queries": len(data.train_y), "labels": SUPERVISED, "accuracy": supervised})
    return rows


def _list_tasks(
    setup: Setup, allowances: tuple[int, ...], votes: TeacherVotes, public: NDArray[np.int64]
) -> list[Task]:
    tasks: list[Task] = []
    for queries in setup.queries:
        rng = np.random.default_rng([0, 2, queries])
        images = public[:queries]  # in random order; the same for every aggregator
        truth = votes.truth[images]
        tasks.append(({"m": None, "queries": queries, "labels": TRUE_LABELS, "label_accuracy": 1.0}, images, truth))
        methods = [(m, method) for m in allowances for method in make_methods(setup.each, m)]
        for m, method in methods:
            is_shared = method.name in SHARED_METHODS
            if is_shared and m != allowances[0]:
                continue
            labels = method.label(method.votes(votes)[0, images], rng)
            row: Row = {"m": None if is_shared else m, "queries": queries, "labels": method.name}
            tasks.append((row | {"label_accuracy": float((labels == truth).mean())}, images, labels))
    return tasks


def measure_student(
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    unlabeled: NDArray[np.float32],
    test_data: tuple[NDArray[np.float32], NDArray[np.int64]],
    recipe: StudentRecipe,
    *,
    seed: int,
    device: str,
) -> float:
    """Train one student and measure its accuracy on the test data."""
    build = partial(convolutional_network, side=x.shape[-1])
    student = train_student(x, labels, unlabeled, recipe=recipe, build=build, seed=seed, device=device)
    return float((student.predict(test_data[0]) == test_data[1]).mean())


Split = tuple[NDArray[np.int64], NDArray[np.int64]]  # indices of training images: for training, and held out

SPLIT_SEED, HELD_OUT_SHARE = 5, 0.2
SEEDS = (101, 102)  # the experiment uses other seeds
PRIVATE_SEEDS = (101, 102, 103, 104, 105)  # more, because private trainings vary more
STUDENT_QUERIES, STUDENT_WRONG, STUDENT_POOL = 100, 0.2, 900


def select(data: LabeledImages, setup: Setup, machine: Machine) -> Row:
    """Score every setting of the grids; return all scores and the best setting of each kind."""
    split, private = split_training(data), make_private_recipe(setup)

    def score(recipe: Recipe) -> Row:
        seeds = PRIVATE_SEEDS if isinstance(recipe, PrivateSGD) else SEEDS
        return score_recipe(data, split, [choose_training(data, recipe, seed) for seed in seeds], machine)

    scores_by_kind: dict[str, list[Row]] = {
        "private": [score(replace(private, learning_rate=rate)) for rate in settings.PRIVATE_RATES],
        "plain": [
            score(PlainSGD(rate, setup.plain.epochs, batch))
            for rate, batch in itertools.product(settings.PLAIN_RATES, settings.PLAIN_BATCHES)
        ],
        "student": [
            _score_student(data, split, radius, weight, machine.device)
            for radius, weight in itertools.product(settings.STUDENT_RADII, settings.STUDENT_WEIGHTS)
            if weight > 0 or radius == settings.STUDENT_RADII[0]
        ],
    }
    # private teachers by the accuracy of their majority, else of one model
    keys = {"private": "majority_accuracy", "plain": "accuracy", "student": "accuracy"}
    best = {kind: max(scores, key=itemgetter(keys[kind])) for kind, scores in scores_by_kind.items()}
    return {"dataset": data.name, "held_out": len(split[1]), "tried": scores_by_kind, "best": best}


def split_training(data: LabeledImages) -> Split:
    """Split the indices of the training images: for training, and held out."""
    order = np.random.default_rng(SPLIT_SEED).permutation(len(data.train_y))
    num_held_out = round(HELD_OUT_SHARE * len(order))
    return order[num_held_out:], order[:num_held_out]


def score_recipe(data: LabeledImages, split: Split, trainings: Sequence[Training], machine: Machine) -> Row:
    """Measure teachers and their majority on the held-out images, over trainings of one recipe."""
    train_places, held_places = split
    truth, classes = data.train_y[held_places], int(data.train_y.max()) + 1
    teacher_accuracies, majority_accuracies = [], []
    for training in trainings:
        ensemble = training.run(data.train_x[train_places], data.train_y[train_places], machine)
        votes = ensemble.votes(data.train_x[held_places], device=machine.device)
        teacher_accuracies.append(float((votes == truth[:, None]).mean()))
        majority_accuracies.append(float((majority(votes, classes) == truth).mean()))
    return {
        **trainings[0].recipe.to_dict(),
        "trainings": len(teacher_accuracies),
        "accuracy": float(np.mean(teacher_accuracies)),
        "majority_accuracy": float(np.mean(majority_accuracies)),
    }


def _score_student(data: LabeledImages, split: Split, radius: float, weight: float, device: str) -> Row:
    train_places, held_places = split
    x, y, recipe = data.train_x, data.train_y, replace(settings.STUDENT, radius=radius, weight=weight)
    accuracies = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        pool = rng.permutation(train_places)[:STUDENT_POOL]
        labeled, unlabeled = np.split(pool, [min(STUDENT_QUERIES, len(pool) // 2)])
        labels = np.where(rng.random(len(labeled)) < STUDENT_WRONG, 1 - y[labeled], y[labeled])
        test_data = (x[held_places], y[held_places])
        accuracies.append(
            measure_student(x[labeled], labels, x[unlabeled], test_data, recipe, seed=seed, device=device)
        )
    return {"radius": radius, "weight": weight, "trainings": len(accuracies), "accuracy": float(np.mean(accuracies))}
