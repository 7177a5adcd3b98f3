"""An ensemble of K teachers on disjoint shards: train, vote, save, load.

Each process trains a stack of teachers. joblib distributes the stacks: ``jobs=2`` starts two processes; on a cluster::

    with joblib.parallel_config(backend="dask"):  # or "ray" with n_jobs=-1, after ray.util.joblib.register_ray()
        ensemble = train_teachers(x, y, partition, recipe)

The parameters of private teachers are (ε, Δ)-private, so an ensemble trained by `PrivateSGD` may be published. Never
publish an ensemble trained by `PlainSGD`, or its votes before an aggregator has released them.

**Partition.** A partition holds one teacher number per record, so no two teachers share a record. The numbers depend on
positions and the seed, never on content.

Neighbors: in one data set the content of one record is blanked. The position remains, and a blank record contributes no
gradient. Only one shard changes, so disjoint shards compose in parallel. For a sum of clipped gradients, blanking
equals removal, the neighbor relation of DP-SGD's accounting. Removing a position would shift all later positions.
"""

from __future__ import annotations

import math
import secrets
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call

from darrm.errors import CheckpointError
from darrm.privacy import PrivacyParams
from darrm.training.calibration import compute_privacy
from darrm.training.network import (
    Array,
    Build,
    Tensor,
    ask_in_batches,
    build_network,
    check_fits,
    choose_device,
    convolutional_network,
    network_digest,
)
from darrm.training.recipes import PrivateSGD, RandomSource, Recipe, destroy_key, read_or_create_key, recipe_from
from darrm.training.training import Group, check_model, load_tensors, save_tensors, train_group
from darrm.util import checks, files
from darrm.util.extras import require
from darrm.util.files import Document
from darrm.util.progress import track
from darrm.votes import Votes
from darrm.votes.reading import load_matrix
from darrm.votes.votes_file import npy_bytes


@dataclass(frozen=True, eq=False)
class Partition:
    """A disjoint split of n records over K teachers: ``teacher_of``, (n,) integers in 0 … K − 1.

    `ValueError` for other arrays, or if a teacher owns no record.
    """

    K: int
    teacher_of: NDArray[np.int64]

    __setstate__ = checks.set_read_only

    def __post_init__(self) -> None:
        checks.integer_at_least(1, K=self.K, advice="K is the number of teachers")
        array = np.asarray(self.teacher_of)
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            description = checks.Text(f"shape {array.shape}, dtype {array.dtype}")
            checks.fail("teacher_of", description, "a list of integers, one a record")
        numbers = np.array(array, dtype=np.int64)
        if numbers.size and not (numbers.min() >= 0 and numbers.max() < self.K):
            checks.fail("teacher_of", (int(numbers.min()), int(numbers.max())), f"in 0 … K - 1 = 0 … {self.K - 1}")
        if np.unique(numbers).size != self.K:
            checks.fail("n", numbers.size, f"enough for every one of the K = {self.K} teachers to own a record")
        numbers.setflags(write=False)
        object.__setattr__(self, "teacher_of", numbers)

    @classmethod
    def random(cls, n: int, K: int, *, seed: int) -> Partition:
        """Deal n ≥ K shuffled records to K teachers in turn; the seed ≥ 0 may be public.

        >>> Partition.random(11, 3, seed=0).sizes
        (4, 4, 3)
        """
        checks.integer_at_least(1, K=K, advice="K is the number of teachers")
        checks.integer_at_least(K, n=n, advice=f"every one of the {K} teachers needs a record")
        checks.integer_at_least(0, seed=seed)
        numbers = np.empty(n, dtype=np.int64)
        numbers[np.random.default_rng(seed).permutation(n)] = np.arange(n) % K
        return cls(K, numbers)

    @property
    def n(self) -> int:
        """Number of records."""
        return int(self.teacher_of.size)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of records of each teacher, K integers."""
        return tuple(int(count) for count in np.bincount(self.teacher_of, minlength=self.K))

    def shard(self, teacher: int) -> NDArray[np.int64]:
        """Positions of the records that one teacher owns, ascending."""
        checks.integer_at_least(0, teacher=teacher)
        if teacher >= self.K:
            checks.fail("teacher", teacher, f"in 0 … K - 1 = 0 … {self.K - 1}")
        return np.flatnonzero(self.teacher_of == teacher)


SEED_CONSENT = "nobody else knows the seed"  #: consent for `TeacherEnsemble.privacy`
_KEY_FILE = "noise.key"  # in the folder of the checkpoints
_MAX_CLASS = np.iinfo(np.int8).max  # of votes
_CPU_STACK, _GPU_STACK = 6, 64  # teachers per stack: measured, larger stacks only use more memory


class PredictableNoiseWarning(UserWarning):
    """The noise of private teachers comes from a known seed."""


class Settings(TypedDict, total=False):
    """Execution of `train_teachers`; only stack size and device may change the last digits of the result."""

    jobs: int | None
    stack_size: int | None
    device: str
    progress: bool


@dataclass(frozen=True, eq=False)
class TeacherEnsemble:
    """K trained teachers; `ValueError` if the parameters do not fit the network."""

    parameters: dict[str, Array]  # {name: (K, …)} floats
    build: Build  # makes the network of the parameters
    recipe: Recipe  # of the training; `privacy` computes its cost
    seeded: bool = False  # whether the noise came from a seed: not private against anyone who knows it

    def __post_init__(self) -> None:
        expected_shapes = {name: tuple(value.shape) for name, value in build_network(self.build).named_parameters()}
        shapes = {name: tuple(value.shape[1:]) for name, value in self.parameters.items()}
        if expected_shapes != shapes or len({len(value) for value in self.parameters.values()}) != 1:
            checks.fail("parameters", shapes, f"stacks of the network's parameters {expected_shapes}")

    @property
    def K(self) -> int:
        """Number of teachers."""
        return len(next(iter(self.parameters.values())))

    @property
    def private(self) -> bool:
        """Whether each teacher is private: trained by `PrivateSGD`, with unrepeatable noise."""
        return isinstance(self.recipe, PrivateSGD) and not self.seeded

    def privacy(self, delta: float, *, consent: str = "") -> PrivacyParams:
        """Compute each teacher's (ε, δ) by `compute_privacy`, for `Voters(K, each, models=True)`.

        `ValueError` for teachers without privacy. Seeded teachers require ``consent=SEED_CONSENT``.
        """
        if not isinstance(self.recipe, PrivateSGD):
            checks.fail("recipe", self.recipe, "a PrivateSGD", 'these teachers are plain: PrivacyParams("inf")')
        if self.seeded and consent != SEED_CONSENT:
            description = checks.Text("noise from a seed, which others may know")
            checks.fail("the ensemble", description, "trained without one", f"or say consent={SEED_CONSENT!r}")
        return compute_privacy(self.recipe, delta)

    def votes(
        self, x: Array, *, device: str = "auto", batch: int = 256, jobs: int | None = None, progress: bool = False
    ) -> NDArray[np.int8]:
        """Ask every teacher about every input: (Q, …) → (Q, K) classes, as private as the teachers.

        Neither ``jobs`` (processes; None is joblib's configuration) nor a cluster changes the votes. ``device`` is as
        for `train_student`.
        """
        checks.integer_at_least(1, batch=batch)
        inputs = _check_inputs(x)
        stacks = [
            {name: value[stack] for name, value in self.parameters.items()} for stack in _split_stacks(self.K, device)
        ]
        # bind by partial: Dask puts an array argument on one worker, and loses it with that worker
        calls = [
            partial(_ask_teachers, self.build, parameters, inputs[start : start + batch], device)
            for start in range(0, len(inputs), batch)
            for parameters in stacks
        ]
        joblib = require("joblib")
        tracked_calls = track(calls, "votes of stacks", enabled=progress)
        answers = joblib.Parallel(n_jobs=jobs)(joblib.delayed(call)() for call in tracked_calls)
        rows = [np.concatenate(answers[i : i + len(stacks)], axis=1) for i in range(0, len(answers), len(stacks))]
        votes = np.concatenate([np.empty((0, self.K), dtype=np.int64), *rows])
        if votes.size and votes.max() > _MAX_CLASS:
            checks.fail("a vote", int(votes.max()), f"a class of at most {_MAX_CLASS}")
        return votes.astype(np.int8)

    def save(self, path: Path | str) -> None:
        """Write the ensemble to a safetensors file, with the digest of its parameters and of its network."""
        facts: Document = {"kind": "ensemble", "recipe": self.recipe.to_dict(), "network": network_digest(self.build)}
        facts["seeded"] = self.seeded
        save_tensors(Path(path), self.parameters, facts)

    @classmethod
    def load(cls, path: Path | str, build: Build = convolutional_network) -> TeacherEnsemble:
        """Read an ensemble; ``build`` supplies the network's code, and the file numbers only.

        `CheckpointError` if the file is damaged, contains something else, or belongs to another network.
        """
        arrays, facts = load_tensors(Path(path))
        if facts.get("kind") != "ensemble":
            raise CheckpointError(str(path), "it holds no ensemble")
        if facts.get("network") != network_digest(build):
            advice = "name the network, in the very code, that they were trained with"
            message = f"its teachers were trained with another network than build makes: {advice}"
            raise CheckpointError(str(path), message)
        try:
            return cls(arrays, build, recipe_from(facts["recipe"]), seeded=facts["seeded"] is not False)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(str(path), f"it holds no such ensemble: {checks.one_line(error)}") from error


def train_teachers(
    x: Array,
    y: Array,
    partition: Partition,
    recipe: Recipe,
    *,
    build: Build = convolutional_network,
    seed: int | None = None,
    checkpoints: Path | str | None = None,
    **settings: Unpack[Settings],
) -> TeacherEnsemble:
    """Train one teacher on every shard of a partition of (n, …) floats ``x`` and (n,) classes ``y``.

    Parameters
    ----------
    recipe
        `PrivateSGD` or `PlainSGD`.
    build
        Makes the network, in single or double precision. Frozen parameters keep their initial values. A layer that
        mixes examples, draws at random or cannot be differentiated by `torch.func` is refused by name.
    seed
        ``None`` draws from the operating system. An integer is for experiments only: anyone who knows it can subtract
        the noise.
    checkpoints
        A folder from which a killed training resumes. It contains unfinished teachers and, without a seed, the key of
        their noise, until the last teacher is trained. Protect it like the training data.
    **settings
        ``jobs``, processes (None is joblib's configuration); ``stack_size``, teachers per process at once (6 on a CPU,
        64 on a GPU); ``device``; ``progress``, bars on standard error.

    `ValueError` if shapes or values do not fit; `CheckpointError` if a checkpoint is damaged, or belongs to another
    training. `PredictableNoiseWarning` if private teachers are trained with a seed.
    """
    checks.instance(Partition, partition=partition, advice="say Partition.random(len(x), K, seed=…)")
    if not isinstance(recipe, Recipe):
        checks.fail("recipe", recipe, "a PrivateSGD or a PlainSGD", "it defines the training of a teacher")
    inputs, classes = _check_inputs(x), _check_classes(y)
    if not len(inputs) == len(classes) == partition.n:
        description = checks.Text(f"{len(classes)} classes")
        checks.fail("y", description, f"one for each of {partition.n} records, as x ({len(inputs)})")
    unknown = settings.keys() - Settings.__annotations__.keys()
    if unknown:
        raise TypeError(f"train_teachers() got an unexpected keyword argument {min(unknown)!r}")
    device = settings.get("device", "auto")
    stacks = _split_stacks(partition.K, device, settings.get("stack_size"))
    seeded, is_private = seed is not None, isinstance(recipe, PrivateSGD)
    outputs = check_fits(build_network(build), inputs, classes)
    if outputs > _MAX_CLASS + 1:
        advice = "votes are stored in bytes"
        checks.fail("build", checks.Text(f"{outputs} classes"), f"for {_MAX_CLASS + 1} classes at most", advice)
    check_model(build_network(build), inputs[0], private=is_private)
    folder = None if checkpoints is None else Path(checkpoints)
    if seeded and is_private:
        message = (
            "an attacker who knows the seed can subtract the noise: these teachers are not private, leave seed=None"
        )
        warnings.warn(message, PredictableNoiseWarning, stacklevel=2)
    source = _make_source(seed, folder, is_private=is_private)
    network = "" if folder is None else network_digest(build)
    joblib = require("joblib")
    calls = []
    for teachers in (tuple(stack.tolist()) for stack in stacks):
        shard_inputs, shard_classes = (tuple(rows[partition.shard(k)] for k in teachers) for rows in (inputs, classes))
        group = Group(shard_inputs, shard_classes, teachers, build, recipe, source, network)
        checkpoint = None if folder is None else folder / f"teachers-{teachers[0]}.safetensors"
        task = joblib.delayed(train_group)
        calls.append(task(group, device=device, checkpoint=checkpoint, progress=settings.get("progress", True)))
    results = joblib.Parallel(n_jobs=settings.get("jobs"))(calls)
    if folder is not None:
        destroy_key(folder / _KEY_FILE)
    parameters = {name: np.concatenate([result[name] for result in results]) for name in results[0]}
    return TeacherEnsemble(parameters, build, recipe, seeded=seeded)


def _make_source(seed: int | None, folder: Path | None, *, is_private: bool) -> RandomSource:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        return RandomSource(seed) if seed is not None else RandomSource(key=read_or_create_key(folder / _KEY_FILE))
    if seed is None and not is_private:
        return RandomSource(secrets.randbits(63))  # the batches of an epoch share one order: it must be repeatable
    return RandomSource(seed)


def _split_stacks(teachers: int, device: str, size: int | None = None) -> list[NDArray[np.int64]]:
    if size is None:
        size = _CPU_STACK if choose_device(device).type == "cpu" else _GPU_STACK
    checks.integer_at_least(1, stack_size=size)
    return np.array_split(np.arange(teachers), math.ceil(teachers / size))


def _ask_teachers(build: Build, parameters: dict[str, Array], x: Array, device: str) -> NDArray[np.int64]:
    target = choose_device(device)
    model = build_network(build).to(target).eval()
    # a worker may have read-only arrays, and torch warns about them
    writable = (np.require(value, requirements="W") for value in parameters.values())
    values = zip(*(torch.as_tensor(value, device=target) for value in writable), strict=True)
    teachers = [dict(zip(parameters, tensors, strict=True)) for tensors in values]

    def ask(inputs: Tensor) -> Tensor:
        # one by one: measured, stacked convolutions with shared inputs take twice as long
        logits = [functional_call(model, teacher, (inputs,)) for teacher in teachers]
        return torch.stack(logits).argmax(dim=-1).T

    (classes,) = ask_in_batches(ask, x, target, len(x))
    return np.asarray(classes, dtype=np.int64)


def _check_inputs(x: Array) -> NDArray[np.float32]:
    array = np.asarray(x)
    if array.ndim < 2 or not np.issubdtype(array.dtype, np.floating):
        checks.fail("x", checks.Text(f"shape {array.shape}, dtype {array.dtype}"), "floats, one row a record")
    with np.errstate(over="ignore"):
        inputs = array.astype(np.float32)
    if not np.isfinite(inputs).all():
        checks.fail("x", checks.Text("an array with NaN, infinite or huge values"), "finite in single precision")
    return inputs


def _check_classes(y: Array) -> NDArray[np.int64]:
    array = np.asarray(y)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer) or (array.size and array.min() < 0):
        checks.fail("y", checks.Text(f"shape {array.shape}, dtype {array.dtype}"), "classes 0, 1, …, one a record")
    return array.astype(np.int64)


def majority(votes: object, classes: int = 2) -> NDArray[np.int64]:
    """Return each query's most frequent class, the lowest class in a tie, without noise.

    >>> majority([[0, 1, 1], [0, 0, 1]]).tolist()
    [1, 0]
    """
    return np.asarray(Votes.from_labels(_check_votes(votes), classes).counts.argmax(axis=1), dtype=np.int64)


def save_votes(path: Path, votes: object) -> None:
    """Write votes to a new .npy file of its owner, atomically; `ValueError` for another suffix."""
    if path.suffix != ".npy":
        checks.fail("path", str(path), "a name that ends in .npy")
    array = _check_votes(votes)
    with files.replace_file(path, private=True) as temporary:
        temporary.write_bytes(npy_bytes(array))


def load_votes(path: Path) -> NDArray[np.int8]:
    """Read the votes of `save_votes`; `ValueError` if the file is damaged or contains something else."""
    return _check_votes(load_matrix(path))


def _check_votes(votes: object) -> NDArray[np.int8]:
    array = np.asarray(votes)
    if array.ndim != 2 or array.shape[1] == 0 or not np.issubdtype(array.dtype, np.integer):
        checks.fail("votes", checks.Text(f"shape {array.shape}, dtype {array.dtype}"), "a (Q, K) array of integers")
    if array.size and not (array.min() >= 0 and array.max() <= _MAX_CLASS):
        checks.fail("votes", (int(array.min()), int(array.max())), f"in 0 … {_MAX_CLASS}")
    return array.astype(np.int8)
