"""Learning rates, batches and the student's regularization, chosen on training data alone.

A fifth of the training images is held out and teachers are trained on the rest. Private teachers are compared by the
accuracy of their majority on the fifth, which is what will be released; teachers without privacy by their own mean
accuracy, since GNMax needs them unanimous; both accuracies are kept. The student is compared on simulated labels: 100
training images of which a fifth carry the wrong label. No test image and no test label is read. (As in the paper, this
choice is not part of the privacy accounting.)
"""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from darrm.ensemble.recipes import PlainSGD, PrivateSGD, Recipe
from darrm.ensemble.teachers import majority
from experiments.datasets import LabeledImages
from experiments.knowledge_transfer import settings
from experiments.knowledge_transfer.settings import Setup
from experiments.knowledge_transfer.students import student_accuracy
from experiments.knowledge_transfer.teachers import private_recipe, training_of
from experiments.pages import Row
from experiments.teachers import Machine

SPLIT_SEED, HELD_OUT = 5, 0.2
SEEDS = (101, 102)  # no training of the experiment itself uses them
PRIVATE_SEEDS = (101, 102, 103, 104, 105)  # private trainings vary more
STUDENT_QUERIES, STUDENT_WRONG, STUDENT_POOL = 100, 0.2, 900


def select(data: LabeledImages, setup: Setup, machine: Machine) -> Row:
    """Try every setting of the grids; return all scores and the best setting of each kind."""
    order = np.random.default_rng(SPLIT_SEED).permutation(len(data.train_y))
    held = round(HELD_OUT * len(order))
    split = (order[held:], order[:held])
    private = [
        _score(data, split, replace(private_recipe(setup), learning_rate=rate), machine)
        for rate in settings.PRIVATE_RATES
    ]
    plain = [
        _score(data, split, PlainSGD(rate, setup.plain.epochs, batch), machine)
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
        "held_out": held,
        "tried": tried,
        "best": {kind: max(scores, key=_what_counts) for kind, scores in tried.items()},
    }


def _score(data: LabeledImages, split: tuple[Any, Any], recipe: Recipe, machine: Machine) -> Row:
    rest, held = split
    teacher, crowd = [], []
    for seed in PRIVATE_SEEDS if isinstance(recipe, PrivateSGD) else SEEDS:
        ensemble = training_of(data, recipe, seed).run(data.train_x[rest], data.train_y[rest], machine)
        votes = ensemble.votes(data.train_x[held], device=machine.device)
        truth = data.train_y[held]
        teacher.append(float((votes == truth[:, None]).mean()))
        crowd.append(float((majority(votes) == truth).mean()))
    return {
        **recipe.to_dict(),
        "trainings": len(teacher),
        "accuracy": float(np.mean(teacher)),
        "majority_accuracy": float(np.mean(crowd)),
    }


def _student_score(data: LabeledImages, split: tuple[Any, Any], radius: float, weight: float, device: str) -> Row:
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
