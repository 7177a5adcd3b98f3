"""Teachers for the experiments: trained once, on disjoint shards of some images, their votes kept and used again."""

import hashlib
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.training.network import Build, network_digest
from darrm.training.partition import Partition
from darrm.training.recipes import Recipe
from darrm.training.teachers import PredictableNoiseWarning, TeacherEnsemble, train_teachers
from experiments.datasets import LabeledImages
from experiments.kept import digest_of, kept_votes


@dataclass(frozen=True)
class Machine:
    """Where and how training runs; it changes no result beyond rounding."""

    jobs: int  # processes
    device: str  # "auto", "cpu" or "cuda"
    progress: bool  # whether to show bars
    folder: Path  # where votes are kept


@dataclass(frozen=True)
class Training:
    """How many teachers are trained, and how: with the images, all that their votes depend on."""

    teachers: int
    partition_seed: int
    recipe: Recipe
    build: Build
    seed: int

    def run(
        self, x: NDArray[np.float32], y: NDArray[np.int64], machine: Machine, checkpoints: Path | None = None
    ) -> TeacherEnsemble:
        """Train the teachers on disjoint shards of some images."""
        shards = Partition.random(len(y), self.teachers, seed=self.partition_seed)
        how = partial(train_teachers, jobs=machine.jobs, device=machine.device, progress=machine.progress)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PredictableNoiseWarning)  # of public data, and to be repeated
            return how(x, y, shards, self.recipe, build=self.build, seed=self.seed, checkpoints=checkpoints)

    def file_name(self, data: LabeledImages) -> str:
        """Return the file name of this training on these data, without a suffix, by the digest of all inputs."""
        arrays = [data.train_x, data.train_y, data.test_x]
        digests = [hashlib.sha256(np.ascontiguousarray(array).data).hexdigest() for array in arrays]
        recipe, network = self.recipe.to_dict(), network_digest(self.build)
        facts: list[Any] = [recipe, self.seed, self.teachers, self.partition_seed]
        facts += [data.train_x.shape, digests, network]
        return f"{data.name}-{recipe['kind']}-{self.seed}-{digest_of(facts)}"


def obtain_labels(data: LabeledImages, training: Training, machine: Machine) -> tuple[NDArray[np.int8], float]:
    """Train teachers and ask them about the test images, or read the votes of the same training: see `kept_votes`."""
    path = machine.folder / f"votes-{training.file_name(data)}.npy"

    def train_and_ask() -> NDArray[np.int8]:
        ensemble = training.run(data.train_x, data.train_y, machine, machine.folder / f"checkpoints-{path.stem}")
        ensemble.save(path.with_suffix(".safetensors"))
        return ensemble.votes(data.test_x, device=machine.device)

    return kept_votes(path, train_and_ask)
