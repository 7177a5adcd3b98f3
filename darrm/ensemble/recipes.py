"""How a teacher is trained: stochastic gradient descent, with or without privacy.

Both recipes answer the same two questions, how many steps there are and which records a step sees;
`darrm.ensemble.training` asks nothing else about batches.

Images may be distorted at random, so that a teacher of few is not misled by them. An image is seen through a random
affine map of its plane: every pixel p, in coordinates from the center, shows what the image has at (I + E)·p + t,
between pixels by linear interpolation, and 0 outside. The entries of E and of t are independent and uniform. Together
they shift, turn, stretch and slant.
"""

import math
from dataclasses import asdict, dataclass, fields

import numpy as np
from numpy.typing import NDArray
from torch import nn

from darrm.ensemble.network import Tensor
from darrm.ensemble.randomness import BATCH, RandomSource, coins, signed_uniforms
from darrm.errors import checks
from darrm.system.files import Document, Json

WORDS = 7  # random words an image: four entries of E, two of t, and whether it is mirrored


@dataclass(frozen=True)
class Augmentation:
    """How far an image is distorted before each step that sees it.

    Parameters
    ----------
    shift
        Largest entry of t, in pixels, ≥ 0.
    distortion
        Largest entry of E, in [0, 1): 0.2 turns by up to about 11 degrees and stretches by up to a fifth.
    mirror
        Whether left and right are exchanged in half of the cases.

    Examples
    --------
    >>> Augmentation(shift=2.0)
    Augmentation(shift=2.0, distortion=0.0, mirror=False)
    """

    shift: float = 0.0
    distortion: float = 0.0
    mirror: bool = False

    def __post_init__(self) -> None:
        checks.non_negative(shift=self.shift, distortion=self.distortion)
        if self.distortion >= 1.0:
            checks.fail("distortion", self.distortion, "below 1", "beyond, an image may be turned inside out")

    def maps(self, words: NDArray[np.uint64], shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Turn ``WORDS``·n words into n maps [I + E, t], (n, 2, 3), for images of ``shape`` (…, height, width).

        Coordinates are those of torch: both axes of an image run from −1 to 1, horizontal first.

        Examples
        --------
        >>> (Augmentation().maps(np.zeros(WORDS, dtype=np.uint64), (28, 28)) + 0.0).tolist()
        [[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]
        """
        draws = signed_uniforms(words).reshape(-1, WORDS)
        height, width = shape[-2:]
        scale = 2.0 * self.shift / np.array([width, height])
        linear = np.eye(2) + self.distortion * draws[:, :4].reshape(-1, 2, 2)
        if self.mirror:
            linear[:, 0] *= np.where(draws[:, 6] < 0.0, -1.0, 1.0)[:, np.newaxis]
        return np.concatenate([linear, (scale * draws[:, 4:6])[:, :, np.newaxis]], axis=2).astype(np.float32)


def distorted(images: Tensor, maps: Tensor) -> Tensor:
    """Return (n, channels, height, width) images seen through (n, 2, 3) maps; `ValueError` if they are no images."""
    if images.ndim != 4:
        advice = "leave the augmentation out"
        checks.fail(
            "x", checks.Found(f"records of shape {tuple(images.shape[1:])}"), "images (channels, height, width)", advice
        )
    grid = nn.functional.affine_grid(maps, list(images.shape), align_corners=False)
    return nn.functional.grid_sample(images, grid, align_corners=False)


@dataclass(frozen=True)
class PrivateSGD:
    """DP-SGD: Poisson batches, clipped per-example gradients, Gaussian noise [ACG16, Algorithm 1].

    A step moves the parameters by −η·(Σ_i min(1, C/‖g_i‖)·g_i + N(0, (σC)²·I)) / (q·n).

    Parameters
    ----------
    learning_rate
        η > 0.
    steps
        Number of steps T ≥ 1.
    sampling_rate
        q in (0, 1]: each record enters each batch by a coin of its own; an empty batch is a step with noise alone.
    noise
        σ > 0, in units of the clipping threshold.
    clip
        Clipping threshold C > 0.

    Examples
    --------
    >>> recipe = PrivateSGD(learning_rate=0.05, steps=143, sampling_rate=5 / 143, noise=12.0)
    >>> recipe.step_count(1025), round(recipe.expected_batch(1025), 1)
    (143, 35.8)
    """

    learning_rate: float
    steps: int
    sampling_rate: float
    noise: float
    clip: float = 1.0

    def __post_init__(self) -> None:
        checks.positive(learning_rate=self.learning_rate, noise=self.noise, clip=self.clip)
        checks.integer_at_least(1, steps=self.steps)
        checks.probability(sampling_rate=self.sampling_rate)
        checks.positive(sampling_rate=self.sampling_rate)

    def step_count(self, size: int) -> int:  # noqa: ARG002 (the shard's size decides for the other recipe)
        """Return the number of steps."""
        return self.steps

    def expected_batch(self, size: int) -> float:
        """Return q·n, the public constant that a step divides by (never the batch's own, private size)."""
        return self.sampling_rate * size

    def batch(self, source: RandomSource, teacher: int, step: int, size: int) -> NDArray[np.int64]:
        """Draw a Poisson batch: positions within the shard, possibly none."""
        return np.flatnonzero(coins(source.words(size, teacher, BATCH, step), self.sampling_rate))

    def to_dict(self) -> Document:
        """Write the recipe as plain data; `recipe_from` reads it back."""
        return {"kind": "private", **asdict(self)}


@dataclass(frozen=True)
class PlainSGD:
    """Stochastic gradient descent without privacy: shuffled batches, the mean gradient of each.

    Parameters
    ----------
    learning_rate
        η > 0.
    epochs
        Passes over the shard, at least 1.
    batch_size
        Records a step (the last batch of an epoch may be smaller).
    adam
        Whether the steps are Adam's [KB15, Algorithm 1], with β₁ = 0.9, β₂ = 0.999 and a learning rate that falls
        linearly from η to 0.
    augmentation
        How images are distorted, anew in every step; ``None`` leaves the records as they are.

    Examples
    --------
    >>> PlainSGD(learning_rate=0.1, epochs=5, batch_size=32).step_count(1025)
    165
    """

    learning_rate: float
    epochs: int
    batch_size: int
    adam: bool = False
    augmentation: Augmentation | None = None

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
        """Write the recipe as plain data, without what has its default value; `recipe_from` reads it back."""
        chosen = {part.name for part in fields(self) if getattr(self, part.name) != part.default}
        return {"kind": "plain"} | {name: value for name, value in asdict(self).items() if name in chosen}


Recipe = PrivateSGD | PlainSGD


def recipe_from(data: Json) -> Recipe:
    """Read a recipe that ``to_dict`` wrote.

    >>> recipe_from(PlainSGD(0.1, 5, 32).to_dict())
    PlainSGD(learning_rate=0.1, epochs=5, batch_size=32, adam=False, augmentation=None)
    """
    values = dict(data)
    kind = values.pop("kind", None)
    checks.one_of(("private", "plain"), kind=kind)
    if "augmentation" in values:
        values["augmentation"] = Augmentation(**values["augmentation"])
    return PrivateSGD(**values) if kind == "private" else PlainSGD(**values)
