"""Learning rates, batches and the student's regularization, chosen on training data alone.

A fifth of the training images is held out and teachers are trained on the rest. Private teachers are compared by the
accuracy of their majority on the fifth, which is what will be released; teachers without privacy by their own mean
accuracy, since GNMax needs them unanimous; both accuracies are kept. The student is compared on simulated labels: 100
training images of which a fifth carry the wrong label. No test image and no test label is read. (As in the paper, this
choice is not part of the privacy accounting.)
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from darrm.training.recipes import PlainSGD, PrivateSGD, Recipe
from darrm.training.teachers import majority
from experiments.datasets import LabeledImages
from experiments.knowledge_transfer import settings
from experiments.knowledge_transfer.settings import Setup
from experiments.knowledge_transfer.students import student_accuracy
from experiments.knowledge_transfer.teachers import private_recipe, training_of
from experiments.pages import Row
from experiments.teachers import Machine, Training

Split = tuple[NDArray[np.int64], NDArray[np.int64]]  # places among the training images

SPLIT_SEED, HELD_OUT = 5, 0.2
SEEDS = (101, 102)  # no training of the experiment itself uses them
PRIVATE_SEEDS = (101, 102, 103, 104, 105)  # private trainings vary more
STUDENT_QUERIES, STUDENT_WRONG, STUDENT_POOL = 100, 0.2, 900


def select(data: LabeledImages, setup: Setup, machine: Machine) -> Row:
    """Try every setting of the grids; return all scores and the best setting of each kind."""
    split = held_out(data)
    private = [
        score(data, split, _trainings(data, replace(private_recipe(setup), learning_rate=rate)), machine)
        for rate in settings.PRIVATE_RATES
    ]
    plain = [
        score(data, split, _trainings(data, PlainSGD(rate, setup.plain.epochs, batch)), machine)
        for rate, batch in itertools.product(settings.PLAIN_RATES, settings.PLAIN_BATCHES)
    ]
    students = [
        _student_score(data, split, radius, weight, machine.device)
        for radius, weight in itertools.product(settings.STUDENT_RADII, settings.STUDENT_WEIGHTS)
        if weight > 0 or radius == settings.STUDENT_RADII[0]
    ]
    tried = {"private": private, "plain": plain, "student": students}
    return {
        "dataset": data.name,
        "held_out": len(split[1]),
        "tried": tried,
        "best": {kind: max(scores, key=_what_counts) for kind, scores in tried.items()},
    }


def held_out(data: LabeledImages, share: float = HELD_OUT) -> Split:
    """Split the training images: the places of those that teachers are trained on, and of those held out."""
    order = np.random.default_rng(SPLIT_SEED).permutation(len(data.train_y))
    held = round(share * len(order))
    return order[held:], order[:held]


def score(data: LabeledImages, split: Split, trainings: Sequence[Training], machine: Machine) -> Row:
    """Train with one recipe and several seeds, and measure a teacher and the majority on the images held out."""
    rest, held = split
    truth, classes = data.train_y[held], int(data.train_y.max()) + 1
    teacher, crowd = [], []
    for training in trainings:
        ensemble = training.run(data.train_x[rest], data.train_y[rest], machine)
        votes = ensemble.votes(data.train_x[held], device=machine.device)
        teacher.append(float((votes == truth[:, None]).mean()))
        crowd.append(float((majority(votes, classes) == truth).mean()))
    return {
        **trainings[0].recipe.to_dict(),
        "trainings": len(teacher),
        "accuracy": float(np.mean(teacher)),
        "majority_accuracy": float(np.mean(crowd)),
    }


def _trainings(data: LabeledImages, recipe: Recipe) -> list[Training]:
    """Return the trainings by which a recipe is judged."""
    seeds = PRIVATE_SEEDS if isinstance(recipe, PrivateSGD) else SEEDS
    return [training_of(data, recipe, seed) for seed in seeds]


def _student_score(data: LabeledImages, split: Split, radius: float, weight: float, device: str) -> Row:
    rest, held = split
    x, y, recipe = data.train_x, data.train_y, replace(settings.STUDENT, radius=radius, weight=weight)
    found = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        pool = rng.permutation(rest)[:STUDENT_POOL]
        asked, unlabeled = np.split(pool, [min(STUDENT_QUERIES, len(pool) // 2)])
        labels = np.where(rng.random(len(asked)) < STUDENT_WRONG, 1 - y[asked], y[asked])
        measured = (x[held], y[held])
        found.append(student_accuracy(x[asked], labels, x[unlabeled], measured, recipe, seed=seed, device=device))
    return {"radius": radius, "weight": weight, "trainings": len(found), "accuracy": float(np.mean(found))}


def _what_counts(score: Row) -> float:
    """Return what decides: for private teachers the majority's accuracy, else the accuracy of one model."""
    return float(score["majority_accuracy" if score.get("kind") == "private" else "accuracy"])
