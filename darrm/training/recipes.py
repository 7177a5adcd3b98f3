"""Training recipes, stochastic gradient descent with or without privacy, and their random numbers.

All draws derive from 64-bit words of (teacher, purpose, step), so a resumed training continues with the same numbers.
A seed is not secret: anyone who knows it can subtract the noise. A key is 256 secret bits from the operating system, in
a file that only its owner can read (`read_or_create_key`); the words are SHAKE-256 of it.

Limitation: the Gaussian uses floats (Box–Muller over 53-bit uniforms), but the accounting assumes real numbers. An
attacker who sees the last bits of a released noise value could in principle distinguish them [M12]. Only trained
parameters or votes are released, after many roundings; we have no proof that this is harmless.
"""

import hashlib
import math
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from darrm.errors import CheckpointError
from darrm.training.network import Tensor
from darrm.util import checks
from darrm.util.files import Document, Json

INITIAL, BATCH, NOISE, AUGMENTATION = range(4)  # purposes of a stream of words
_BITS = 53
_KEY_BYTES = 32


@dataclass(frozen=True)
class RandomSource:
    """Source of random words: the operating system, a seed (**for experiments only**), or a key of 32 secret bytes."""

    seed: int | None = None
    key: bytes = field(default=b"", repr=False)

    @property
    def can_be_repeated(self) -> bool:
        return self.seed is not None or bool(self.key)

    @property
    def name(self) -> int | str | None:
        """Identifier of the source: the seed, or a one-way digest of the key."""
        return hashlib.sha256(self.key).hexdigest() if self.key else self.seed

    def bind_to(self, training: str) -> "RandomSource":
        """Return the source for one training: a key gives different noise to trainings on different data."""
        return RandomSource(key=hashlib.sha256(self.key + training.encode()).digest()) if self.key else self

    def __post_init__(self) -> None:
        if self.seed is not None:
            checks.integer_at_least(0, seed=self.seed, advice="seed=None draws from the operating system")

    def words(self, count: int, teacher: int, purpose: int, step: int) -> NDArray[np.uint64]:
        if self.key:
            stream = hashlib.shake_256(self.key + np.array([teacher, purpose, step], dtype="<i8").tobytes())
            return np.frombuffer(stream.digest(8 * count), dtype="<u8").astype(np.uint64)
        if self.seed is None:
            return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        generator = np.random.default_rng([self.seed, teacher, purpose, step])
        return generator.integers(0, 2**64, size=count, dtype=np.uint64, endpoint=False)


def read_or_create_key(path: Path) -> bytes:
    """Read or create a key file that only its owner can read; `CheckpointError` for any other file."""
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        key, status = path.read_bytes(), path.stat()
        if len(key) != _KEY_BYTES:
            raise CheckpointError(str(path), f"it holds no key of {_KEY_BYTES} bytes: name another folder") from None
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise CheckpointError(str(path), "others made or may read this key: name another folder") from None
        return key
    key = os.urandom(_KEY_BYTES)
    try:
        os.write(handle, key)
        os.fsync(handle)
    finally:
        os.close(handle)
    return key


def destroy_key(path: Path) -> None:
    with suppress(FileNotFoundError), path.open("r+b") as file:
        path.unlink()  # unlink first: a crash must not leave a key of zeros
        file.write(bytes(_KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())


def coins(words: NDArray[np.uint64], probability: float) -> NDArray[np.bool_]:
    """Turn words into coins with Pr[1] = floor(2⁵³·p)/2⁵³ ≤ p: never above the accounted rate."""
    checks.probability(probability=probability)
    threshold = np.uint64(math.floor(probability * 2.0**_BITS))  # the product is exact: a power of two
    return (words >> np.uint64(64 - _BITS)) < threshold


def gaussians(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Turn 2n words into 2n independent standard Gaussians (Box and Muller)."""
    half = words.size // 2
    fractions = (words >> np.uint64(64 - _BITS)).astype(np.float64) * 2.0**-_BITS
    radius = np.sqrt(-2.0 * np.log1p(-fractions[:half]))  # 1 - fraction is in (0, 1]
    angle = 2.0 * np.pi * fractions[half : 2 * half]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])


_MIN_CLIP = 1e-100
WORDS = 7  # random words per image: four entries of E, two of t, one for the mirror


@dataclass(frozen=True)
class Augmentation:
    """Random distortion of images before each step, so that a teacher with few images overfits less.

    Pixel p, in coordinates from the center, shows the image at (I + E)·p + t, with linear interpolation and 0 outside.
    The entries of E and t are independent and uniform.
    """

    shift: float = 0.0  # largest entry of t, in pixels, ≥ 0
    distortion: float = 0.0  # largest entry of E, in [0, 1): 0.2 turns by up to 11 degrees, and stretches by a fifth
    mirror: bool = False  # whether to mirror an image left to right with probability 1/2

    def __post_init__(self) -> None:
        checks.non_negative(shift=self.shift, distortion=self.distortion)
        if self.distortion >= 1.0:
            checks.fail("distortion", self.distortion, "below 1", "beyond, an image may be turned inside out")

    def maps(self, words: NDArray[np.uint64], shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Turn ``WORDS``·n words into n maps [I + E, t], (n, 2, 3), for images of ``shape`` (…, height, width).

        Both axes run from −1 to 1, horizontal first, as torch's.
        """
        draws = (words >> np.uint64(64 - _BITS)).astype(np.float64) * 2.0 ** (1 - _BITS) - 1.0  # in [−1, 1)
        draws = draws.reshape(-1, WORDS)
        linear = np.eye(2) + self.distortion * draws[:, :4].reshape(-1, 2, 2)
        if self.mirror:
            linear[:, 0] *= np.where(draws[:, 6] < 0.0, -1.0, 1.0)[:, np.newaxis]
        maps = make_affine_maps(torch.as_tensor(linear), torch.as_tensor(self.shift * draws[:, 4:6]), shape)
        return np.asarray(maps.float().numpy())


def make_affine_maps(linear: Tensor, shifts: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Assemble n maps [A, t], (n, 2, 3), from (n, 2, 2) matrices and (n, 2) shifts in pixels."""
    height, width = shape[-2:]
    shifts = 2.0 * shifts / shifts.new_tensor([width, height])  # the image is 2 wide and 2 high
    return torch.cat([linear, shifts[:, :, None]], dim=2)


def distort(images: Tensor, maps: Tensor) -> Tensor:
    """Apply (n, 2, 3) maps to (n, channels, height, width) images, with 0 outside; `ValueError` for other shapes."""
    if images.ndim != 4:
        description = checks.Text(f"inputs of shape {tuple(images.shape[1:])}")
        checks.fail("x", description, "images", "other inputs cannot be shifted, turned or mirrored")
    grid = nn.functional.affine_grid(maps, list(images.shape), align_corners=False)
    return nn.functional.grid_sample(images, grid, align_corners=False)


@dataclass(frozen=True)
class PrivateSGD:
    """DP-SGD: Poisson batches, clipped per-example gradients, Gaussian noise [ACG16, Algorithm 1].

    A step moves the parameters by −η·(Σ_i min(1, C/‖g_i‖)·g_i + N(0, (σC)²·I)) / (q·n); an independent coin selects
    each record with probability q, and an empty batch adds only noise.

    >>> recipe = PrivateSGD(learning_rate=0.05, steps=143, sampling_rate=5 / 143, noise=12.0)
    >>> recipe.step_count(1025), round(recipe.expected_batch(1025), 1)
    (143, 35.8)
    """

    learning_rate: float  # η > 0
    steps: int  # T ≥ 1
    sampling_rate: float  # q in (0, 1]
    noise: float  # σ > 0, in units of the clipping threshold
    clip: float = 1.0  # C, from 1e-100 to 1e100: squares of these lengths are finite in double precision

    def __post_init__(self) -> None:
        checks.positive(learning_rate=self.learning_rate, noise=self.noise, clip=self.clip)
        if not _MIN_CLIP <= self.clip <= 1.0 / _MIN_CLIP:
            checks.fail("clip", self.clip, f"in [{_MIN_CLIP:g}, {1.0 / _MIN_CLIP:g}]", "lengths near 1 are usual")
        checks.integer_at_least(1, steps=self.steps)
        checks.probability(sampling_rate=self.sampling_rate)
        checks.positive(sampling_rate=self.sampling_rate)

    def step_count(self, size: int) -> int:  # noqa: ARG002 (the shard's size decides for the other recipe)
        """Return the number of steps."""
        return self.steps

    def expected_batch(self, size: int) -> float:
        """Return q·n, the public divisor of a step (never the batch size, which is private)."""
        return self.sampling_rate * size

    def batch(self, source: RandomSource, teacher: int, step: int, size: int) -> NDArray[np.int64]:
        """Draw a Poisson batch: positions within the shard, possibly none."""
        return np.flatnonzero(coins(source.words(size, teacher, BATCH, step), self.sampling_rate))

    def to_dict(self) -> Document:
        """Return the recipe as plain data, the inverse of `recipe_from`."""
        return {"kind": "private", **asdict(self)}


@dataclass(frozen=True)
class PlainSGD:
    """Stochastic gradient descent without privacy: shuffled batches, the mean gradient of each.

    With ``adam``, Adam [KB15, Algorithm 1], β₁ = 0.9, β₂ = 0.999 and a learning rate that falls linearly from η to 0.

    >>> PlainSGD(learning_rate=0.1, epochs=5, batch_size=32).step_count(1025)
    165
    """

    learning_rate: float  # η > 0
    epochs: int  # passes over the shard
    batch_size: int  # the last batch of an epoch may be smaller
    adam: bool = False
    augmentation: Augmentation | None = None  # of images, drawn again in every step

    def __post_init__(self) -> None:
        checks.positive(learning_rate=self.learning_rate)
        checks.integer_at_least(1, epochs=self.epochs, batch_size=self.batch_size)

    def step_count(self, size: int) -> int:
        """Return the number of steps for a shard of ``size`` records."""
        return self.epochs * math.ceil(size / self.batch_size)

    def batch(self, source: RandomSource, teacher: int, step: int, size: int) -> NDArray[np.int64]:
        """Take the next slice of this epoch's shuffled shard."""
        if not source.can_be_repeated:
            raise ValueError("shuffled batches need a seeded source: the batches of one epoch share one order")
        epoch, place = divmod(step, math.ceil(size / self.batch_size))
        order = np.argsort(source.words(size, teacher, BATCH, epoch), kind="stable")
        return order[place * self.batch_size : (place + 1) * self.batch_size]

    def to_dict(self) -> Document:
        """Return the recipe as plain data without default values."""
        changed_fields = {part.name for part in fields(self) if getattr(self, part.name) != part.default}
        return {"kind": "plain"} | {name: value for name, value in asdict(self).items() if name in changed_fields}


Recipe = PrivateSGD | PlainSGD


def recipe_from(data: Json) -> Recipe:
    values = dict(data)
    kind = values.pop("kind", None)
    checks.one_of(("private", "plain"), kind=kind)
    if "augmentation" in values:
        values["augmentation"] = Augmentation(**values["augmentation"])
    return PrivateSGD(**values) if kind == "private" else PlainSGD(**values)
