"""The teachers of the experiment: trained once, their votes on the test images kept and used again."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.training.calibration import calibrate_sampling
from darrm.training.network import convolutional_network
from darrm.training.recipes import PrivateSGD, Recipe
from darrm.training.teachers import majority
from darrm.util.files import replacing
from experiments.composition_tables import K
from experiments.datasets import LabeledImages
from experiments.knowledge_transfer.settings import CLIP, Setup
from experiments.teachers import Machine, Training, obtain_labels


@dataclass(frozen=True, eq=False)
class TeacherVotes:
    """Votes of the teachers of one training, with and without DP-SGD, on the n test images: (n, K) each."""

    private: NDArray[np.int8]
    plain: NDArray[np.int8]
    truth: NDArray[np.int64]  # (n,) true classes, for measuring accuracy alone

    def accuracies(self) -> dict[str, float]:
        """Measure teachers and majorities on all test images."""
        found = {}
        for name, votes in (("private", self.private), ("plain", self.plain)):
            found[f"{name}_teacher"] = float((votes == self.truth[:, None]).mean())
            found[f"{name}_majority"] = float((majority(votes) == self.truth).mean())
        return found


def save_votes(path: Path, votes: Sequence[TeacherVotes]) -> None:
    """Keep the votes of all trainings, a bit each, so readers can release labels again."""
    with replacing(path) as temporary:
        np.savez_compressed(
            temporary,
            trainings=len(votes),
            truth=votes[0].truth.astype(np.uint8),
            private=np.packbits([one.private for one in votes]),
            plain=np.packbits([one.plain for one in votes]),
        )


def load_votes(path: Path) -> list[TeacherVotes]:
    """Read what `save_votes` wrote."""
    with np.load(path) as kept:
        truth = kept["truth"].astype(np.int64)
        shape = (int(kept["trainings"]), len(truth), K)
        private, plain = (
            np.unpackbits(kept[name], count=int(np.prod(shape))).reshape(shape).astype(np.int8)
            for name in ("private", "plain")
        )
    return [TeacherVotes(*pair, truth) for pair in zip(private, plain, strict=True)]


def private_recipe(setup: Setup) -> PrivateSGD:
    """Fit the batches of DP-SGD to the budget of one teacher."""
    found = calibrate_sampling(setup.each, noise=setup.noise, epochs=setup.epochs)
    return PrivateSGD(
        learning_rate=setup.private_rate,
        steps=int(found.settings["steps"]),
        sampling_rate=found.value,
        noise=setup.noise,
        clip=CLIP,
    )


def obtain_votes(data: LabeledImages, setup: Setup, seed: int, machine: Machine) -> TeacherVotes:
    """Train both ensembles with ``seed`` and ask them about the test images, or read the votes of the same training."""
    trainings = [training_of(data, recipe, seed) for recipe in (private_recipe(setup), setup.plain)]
    private, plain = (obtain_labels(data, training, machine)[0] for training in trainings)
    return TeacherVotes(private, plain, data.test_y)


def training_of(data: LabeledImages, recipe: Recipe, seed: int) -> Training:
    """Return the training of K teachers, on other shards than the other trainings: these are independent."""
    build = partial(convolutional_network, side=data.train_x.shape[-1])
    return Training(K, seed, recipe, build, seed)
