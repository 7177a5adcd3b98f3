"""Train teachers on disjoint shards of real images, and let them label the public images."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from darrm.training.network import Build, convolutional_network
from darrm.training.recipes import Augmentation, PlainSGD
from darrm.votes import Votes
from experiments.datasets import ALL_CLASSES, LabeledImages, load
from experiments.pate.recorded import Recorded
from experiments.pate.settings import Study
from experiments.teachers import Machine, Training, obtain_labels

SEED, PARTITION_SEED, POOL_SEED = 0, 1, 2018
QUICK = 5  # a quick run trains for a fifth of the epochs
RECIPES = {
    "digits": PlainSGD(0.02, 60, 32, adam=True, augmentation=Augmentation(shift=0.5, distortion=0.1)),
    "mnist": PlainSGD(0.004, 50, 32, adam=True, augmentation=Augmentation(shift=2.0, distortion=0.2)),
    "fashion-mnist": PlainSGD(0.004, 25, 32, adam=True, augmentation=Augmentation(mirror=True)),
}


def strided_network(classes: int = 10) -> Any:  # noqa: ANN401 (torch ships no types)
    """Make a small network for 28×28 images, with 13,466 parameters: a CPU can train hundreds of teachers.

    A 7×7 convolution of stride 2 (16 channels), pooling, a 3×3 convolution (32 channels), and a linear layer.
    """
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


Ask = Callable[..., tuple[NDArray[np.int8], float]]  # with the signature of `obtain_network_labels`


def obtain(study: Study, machine: Machine, *, quick: bool, ask: Ask | None = None) -> Recorded:
    """Train the study's teachers and let them label its pool, or read their stored votes.

    An interrupted training continues from its checkpoint. ``quick`` trains for fewer epochs.
    """
    data, test_x, test_y = split(study)
    labels, seconds = (ask or obtain_network_labels)(study, data, study.teachers, machine, quick=quick)
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
    """Return the labels of ``teachers`` teachers and the seconds of their training."""
    recipe = RECIPES[study.name]
    epochs = round(recipe.epochs * teachers / study.teachers) // (QUICK if quick else 1)
    recipe = replace(recipe, epochs=max(1, epochs))
    training = Training(teachers, PARTITION_SEED, recipe, network_for(study), SEED)
    return obtain_labels(data, training, machine)
