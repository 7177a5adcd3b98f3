"""The teachers of the experiment: trained once, their votes on the test images kept and used again."""

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.ensemble.calibration import calibrate_sampling
from darrm.ensemble.network import Build, convolutional_network, network_digest
from darrm.ensemble.partition import Partition
from darrm.ensemble.recipes import PrivateSGD, Recipe
from darrm.ensemble.teachers import TeacherEnsemble, train_teachers
from darrm.ensemble.voting import load_votes, majority, save_votes
from experiments.composition_tables import K
from experiments.datasets import LabeledImages
from experiments.knowledge_transfer.settings import CLIP, PARTITION_SEED, Setup


@dataclass(frozen=True, eq=False)
class TeacherVotes:
    """What the teachers of one training, with and without DP-SGD, say about the n test images: (n, K) each."""

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


@dataclass(frozen=True)
class Machine:
    """Where and how training runs; it changes no result beyond rounding."""

    jobs: int  # processes
    device: str  # "auto", "cpu" or "cuda"
    progress: bool  # whether to show bars
    folder: Path  # where votes are kept


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
    private = _votes(data, private_recipe(setup), seed, machine)
    plain = _votes(data, setup.plain, seed, machine)
    return TeacherVotes(private, plain, data.test_y)


def train(
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    recipe: Recipe,
    seed: int,
    machine: Machine,
    checkpoints: Path | None = None,
) -> TeacherEnsemble:
    """Train K teachers on disjoint shards of some images."""
    shards = Partition.random(len(y), K, seed=PARTITION_SEED)
    how = partial(train_teachers, jobs=machine.jobs, device=machine.device, progress=machine.progress)
    return how(x, y, shards, recipe, build=network_for(x), seed=seed, checkpoints=checkpoints)


def network_for(x: NDArray[np.float32]) -> Build:
    """Return what makes the teachers' network for such images."""
    return partial(convolutional_network, side=x.shape[-1])


def _votes(data: LabeledImages, recipe: Recipe, seed: int, machine: Machine) -> NDArray[np.int8]:
    arrays = [data.train_x, data.train_y, data.test_x]
    digests = [hashlib.sha256(np.ascontiguousarray(array).data).hexdigest() for array in arrays]
    network = network_digest(network_for(data.train_x))
    facts: list[Any] = [recipe.to_dict(), seed, K, PARTITION_SEED, data.train_x.shape, digests, network]
    name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    path = machine.folder / f"votes-{data.name}-{recipe.to_dict()['kind']}-{seed}-{name}.npy"
    if path.is_file():
        return load_votes(path)
    checkpoints = machine.folder / f"checkpoints-{path.stem}"
    ensemble = train(data.train_x, data.train_y, recipe, seed, machine, checkpoints)
    ensemble.save(path.with_suffix(".safetensors"))
    votes = ensemble.votes(data.test_x, device=machine.device)
    save_votes(path, votes)
    return votes
