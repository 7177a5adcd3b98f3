"""Train teachers on disjoint shards of real images or census rows, and let them label the public inputs.

On Adult, every teacher is a random forest with scikit-learn's default parameters, as in the paper that [P] builds on.
That paper encodes categories as numbers 0, 1, …; `experiments.datasets` has a column for each category.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from darrm.training.network import Build, convolutional_network
from darrm.training.recipes import Augmentation, PlainSGD
from darrm.training.teachers import Partition
from darrm.util.extras import require
from darrm.util.progress import track
from darrm.votes import Votes
from experiments.datasets import ALL_CLASSES, LabeledImages, load
from experiments.pate.recorded import Recorded
from experiments.pate.settings import Study
from experiments.teachers import Machine, Training, compute_digest, digest_data, obtain_labels, read_or_train

SEED, PARTITION_SEED, POOL_SEED = 0, 1, 2018
QUICK = 5  # a quick run trains for a fifth of the epochs
TREES, QUICK_TREES = 100, 10  # scikit-learn's default, and for a quick run
RECIPES = {
    "digits": PlainSGD(0.02, 60, 32, adam=True, augmentation=Augmentation(shift=0.5, distortion=0.1)),
    "mnist": PlainSGD(0.004, 50, 32, adam=True, augmentation=Augmentation(shift=2.0, distortion=0.2)),
    "fashion-mnist": PlainSGD(0.004, 25, 32, adam=True, augmentation=Augmentation(mirror=True)),
}


def strided_network(classes: int = 10) -> Any:  # noqa: ANN401 (torch ships no types)
    """Make a small network for 28×28 images, with 13,466 parameters: a CPU can train hundreds of teachers."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=7, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 5 * 5, classes),
    )


def network_for(study: Study) -> Build:
    if study.name == "digits":
        return partial(convolutional_network, side=8, classes=study.classes)
    return partial(strided_network, study.classes)


def split(study: Study) -> tuple[LabeledImages, NDArray[np.float32], NDArray[np.int64]]:
    """Split a data set's test images; return the data with the pool as test images, and the held-out ones."""
    data = load(study.name, ALL_CLASSES)
    order = np.arange(len(data.test_y))
    if not study.in_order:
        order = np.random.default_rng(POOL_SEED).permutation(order)
    pool, held_out = order[: study.pool], order[study.pool :]
    pool_data = replace(data, test_x=data.test_x[pool], test_y=data.test_y[pool])
    return pool_data, data.test_x[held_out], data.test_y[held_out]


def obtain(study: Study, machine: Machine, *, quick: bool) -> Recorded:
    """Train the study's teachers and let them label its pool, or read their stored votes.

    An interrupted training continues from its checkpoint. ``quick`` trains for fewer epochs, or fewer trees.
    """
    data, test_x, test_y = split(study)
    collect = obtain_forest_labels if study.name == "adult" else obtain_network_labels
    labels, seconds = collect(study, data, study.teachers, machine, quick=quick)
    return Recorded(
        name=study.name,
        votes=Votes.from_labels(labels, classes=study.classes),
        pool_x=data.test_x,
        pool_y=data.test_y,
        test_x=test_x,
        test_y=test_y,
        teacher_accuracy=float(np.mean(labels == data.test_y[:, np.newaxis])),
        seconds=seconds,
    )


def obtain_smaller(study: Study, teachers: int, queries: int, machine: Machine, *, quick: bool) -> Votes:
    """Train fewer teachers, on larger shards in about as many steps, and let them label the first queries."""
    data, _, _ = split(study)
    first_queries = replace(data, test_x=data.test_x[:queries], test_y=data.test_y[:queries])
    labels, _ = obtain_network_labels(study, first_queries, teachers, machine, quick=quick)
    return Votes.from_labels(labels, classes=study.classes)


def obtain_network_labels(
    study: Study, data: LabeledImages, teachers: int, machine: Machine, *, quick: bool
) -> tuple[NDArray[np.int8], float]:
    """Return the labels (Q, K) of ``teachers`` networks and the seconds of their training."""
    recipe = RECIPES[study.name]
    epochs = round(recipe.epochs * teachers / study.teachers) // (QUICK if quick else 1)
    recipe = replace(recipe, epochs=max(1, epochs))
    training = Training(teachers, PARTITION_SEED, recipe, network_for(study), SEED)
    return obtain_labels(data, training, machine)


def obtain_forest_labels(
    study: Study, data: LabeledImages, teachers: int, machine: Machine, *, quick: bool
) -> tuple[NDArray[np.int8], float]:
    """Return the labels (Q, K) of ``teachers`` forests and the seconds of their training."""
    trees = QUICK_TREES if quick else TREES
    facts = [teachers, trees, PARTITION_SEED, require("sklearn").__version__, digest_data(data)]

    def collect_votes() -> NDArray[np.int8]:
        partition, joblib = Partition.random(len(data.train_y), teachers, seed=PARTITION_SEED), require("joblib")
        shards = map(partition.shard, track(range(teachers), "forests", enabled=machine.progress))
        answers = joblib.Parallel(n_jobs=machine.jobs)(
            joblib.delayed(_predict_by_forest)(data.train_x[shard], data.train_y[shard], data.test_x, seed, trees)
            for seed, shard in enumerate(shards)
        )
        return np.stack(answers, axis=1)

    return read_or_train(machine.folder / f"votes-{study.name}-forests-{compute_digest(facts)}.npy", collect_votes)


def train_forest(x: NDArray[np.float32], y: NDArray[np.int64], seed: int, trees: int) -> Any:  # noqa: ANN401 (untyped)
    return require("sklearn.ensemble").RandomForestClassifier(trees, random_state=seed).fit(x, y)


def _predict_by_forest(
    x: NDArray[np.float32], y: NDArray[np.int64], questions: NDArray[np.float32], seed: int, trees: int
) -> NDArray[np.int8]:
    return np.asarray(train_forest(x, y, seed, trees).predict(questions), dtype=np.int8)
