"""Train teachers on disjoint shards of images once, and store their votes for all experiments."""

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.training.network import Build, network_digest
from darrm.training.recipes import Recipe
from darrm.training.teachers import (
    Partition,
    PredictableNoiseWarning,
    TeacherEnsemble,
    load_votes,
    majority,
    save_votes,
    train_teachers,
)
from darrm.util.files import replace_file
from experiments.datasets import LabeledImages
from experiments.pages import read_json, write_json


def compute_digest(facts: object) -> str:
    """Return the first sixteen hexadecimal digits of the SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def digest_array(array: NDArray[Any]) -> str:
    """Return the SHA-256 of an array's type, shape and content."""
    contiguous = np.ascontiguousarray(array)
    return hashlib.sha256(f"{contiguous.dtype.str} {contiguous.shape} ".encode() + contiguous.tobytes()).hexdigest()


def read_or_compute(folder: Path, stage: str, facts: object, compute: Callable[[], Any]) -> Any:  # noqa: ANN401 (plain data)
    """Return the plain data that ``compute`` returns, or read those stored for the same facts."""
    path = folder / f"{stage}-{compute_digest(facts)}.json"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, compute())
    return read_json(path)


def read_or_train(path: Path, collect_votes: Callable[[], NDArray[np.int8]]) -> tuple[NDArray[np.int8], float]:
    """Return votes (n, K) from ``path`` or from the function, and the seconds of the training.

    After an interrupted training, the seconds are those of its last part, or NaN.
    """
    facts = path.with_suffix(".json")
    if path.is_file():
        return load_votes(path), read_json(facts)["seconds"] if facts.is_file() else float("nan")
    path.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    votes = collect_votes()
    seconds = time.perf_counter() - start
    write_json(facts, {"seconds": seconds})
    save_votes(path, votes)
    return votes, seconds


@dataclass(frozen=True)
class Machine:
    """Where and how training runs; results differ by rounding at most."""

    jobs: int  # processes
    device: str  # "auto", "cpu" or "cuda"
    progress: bool  # whether to show bars
    folder: Path  # for votes and checkpoints


def digest_data(data: LabeledImages) -> list[str]:
    """Return the SHA-256 of the arrays that determine teachers and their votes."""
    arrays = (data.train_x, data.train_y, data.test_x)
    return [hashlib.sha256(np.ascontiguousarray(array).data).hexdigest() for array in arrays]


@dataclass(frozen=True)
class Training:
    """The number of teachers and their training; with the images, it determines their votes."""

    teachers: int
    partition_seed: int
    recipe: Recipe
    build: Build
    seed: int

    def run(
        self, x: NDArray[np.float32], y: NDArray[np.int64], machine: Machine, checkpoints: Path | None = None
    ) -> TeacherEnsemble:
        shards = Partition.random(len(y), self.teachers, seed=self.partition_seed)
        train = partial(train_teachers, jobs=machine.jobs, device=machine.device, progress=machine.progress)
        with warnings.catch_warnings():
            # the data are public, and the run must be reproducible
            warnings.simplefilter("ignore", PredictableNoiseWarning)
            return train(x, y, shards, self.recipe, build=self.build, seed=self.seed, checkpoints=checkpoints)

    def file_name(self, data: LabeledImages) -> str:
        """Return a file name, without a suffix, from the digest of the training and the data."""
        recipe, digests = self.recipe.to_dict(), digest_data(data)
        facts: list[Any] = [recipe, self.seed, self.teachers, self.partition_seed]
        facts += [data.train_x.shape, digests, network_digest(self.build)]
        return f"{data.name}-{recipe['kind']}-{self.seed}-{compute_digest(facts)}"


def obtain_labels(data: LabeledImages, training: Training, machine: Machine) -> tuple[NDArray[np.int8], float]:
    """Train teachers and let them label the test images, or read the votes of the same training."""
    path = machine.folder / f"votes-{training.file_name(data)}.npy"

    def collect_votes() -> NDArray[np.int8]:
        ensemble = training.run(data.train_x, data.train_y, machine, machine.folder / f"checkpoints-{path.stem}")
        ensemble.save(path.with_suffix(".safetensors"))
        return ensemble.votes(data.test_x, device=machine.device)

    return read_or_train(path, collect_votes)


@dataclass(frozen=True, eq=False)
class TeacherVotes:
    """Votes of the K teachers of each of T trainings on n test images, with and without DP-SGD: (T, n, K) each."""

    private: NDArray[np.int8]
    plain: NDArray[np.int8]
    truth: NDArray[np.int64]  # (n,) true classes, for measuring accuracy alone

    def save(self, path: Path) -> None:
        """Write the votes to a compressed file; for two classes, a vote is one bit."""
        arrays: dict[str, Any] = {"private": self.private.astype(np.uint8), "plain": self.plain.astype(np.uint8)}
        if self.truth.max() <= 1:
            arrays = {name: np.packbits(votes) for name, votes in arrays.items()} | {"trainings": len(self.private)}
        with replace_file(path) as temporary:
            np.savez_compressed(temporary, truth=self.truth.astype(np.uint8), **arrays)

    @classmethod
    def load(cls, path: Path) -> "TeacherVotes":
        """Read a file of `save`."""
        with np.load(path) as arrays:
            truth, votes = arrays["truth"].astype(np.int64), [arrays["private"], arrays["plain"]]
            if "trainings" in arrays:
                images = int(arrays["trainings"]) * len(truth)
                votes = [np.unpackbits(bits)[: 8 * len(bits) // images * images] for bits in votes]
                votes = [bits.reshape(int(arrays["trainings"]), len(truth), -1) for bits in votes]
        private, plain = (labels.astype(np.int8) for labels in votes)
        return cls(private, plain, truth)

    def accuracies(self) -> list[dict[str, float]]:
        """Return the accuracy of single teachers and of majorities in each training."""
        classes, rows = int(self.truth.max()) + 1, []
        for private, plain in zip(self.private, self.plain, strict=True):
            row: dict[str, float] = {}
            for name, votes in (("private", private), ("plain", plain)):
                row[f"{name}_teacher"] = float((votes == self.truth[:, None]).mean())
                row[f"{name}_majority"] = float((majority(votes, classes) == self.truth).mean())
            rows.append(row)
        return rows


def obtain_votes(
    data: LabeledImages, private: Sequence[Training], plain: Sequence[Training], *, machine: Machine
) -> TeacherVotes:
    """Obtain the votes of teachers with and without DP-SGD."""
    private_votes, plain_votes = (
        np.stack([obtain_labels(data, training, machine)[0] for training in trainings])
        for trainings in (private, plain)
    )
    return TeacherVotes(private_votes, plain_votes, data.test_y)
