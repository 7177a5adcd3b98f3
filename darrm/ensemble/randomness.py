"""Random numbers for training: from the operating system by default, from a seed for experiments.

Everything is made from 64-bit words, so that both kinds share one way to a coin and to a Gaussian. With a seed, the
words of (teacher, purpose, step) do not depend on any other draw: a training that resumes after a kill continues with
the very numbers it would have had.

Sharp edge: the Gaussian is a float one (Box–Muller over 53-bit uniforms). The accounting is about real numbers, and an
attacker who sees the last bits of a release of the noise itself could in principle tell them apart [M12]. Here only
trained parameters or votes leave, after many roundings; nothing proves this harmless.
"""

import math
import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darrm.errors import checks

INITIAL, BATCH, NOISE, AUGMENTATION = range(4)  # what a stream of words is for
_BITS = 53


@dataclass(frozen=True)
class RandomSource:
    """Where the words come from.

    Parameters
    ----------
    seed
        ``None`` (the default): the operating system. An integer ≥ 0: reproducible words, **for experiments only**,
        since whoever knows the seed can subtract the noise.

    Examples
    --------
    >>> source = RandomSource(seed=7)
    >>> bool((source.words(4, 0, BATCH, 3) == source.words(4, 0, BATCH, 3)).all())
    True
    """

    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            checks.integer_at_least(0, seed=self.seed, advice="seed=None draws from the operating system")

    def words(self, count: int, teacher: int, purpose: int, step: int) -> NDArray[np.uint64]:
        """Draw ``count`` uniform 64-bit words."""
        if self.seed is None:
            return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        generator = np.random.default_rng([self.seed, teacher, purpose, step])
        return generator.integers(0, 2**64, size=count, dtype=np.uint64, endpoint=False)


def coins(words: NDArray[np.uint64], probability: float) -> NDArray[np.bool_]:
    """Turn words into coins that show 1 with probability floor(2⁵³·p)/2⁵³ ≤ p: never more often than accounted for.

    >>> coins(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64), 0.5).tolist()
    [True, False, False]
    """
    checks.probability(probability=probability)
    threshold = np.uint64(math.floor(probability * 2.0**_BITS))  # the product is exact: a power of two
    return (words >> np.uint64(64 - _BITS)) < threshold


def signed_uniforms(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Turn words into numbers uniform on [−1, 1).

    >>> signed_uniforms(np.array([0, 2**63, 3 * 2**62], dtype=np.uint64)).tolist()
    [-1.0, 0.0, 0.5]
    """
    return (words >> np.uint64(64 - _BITS)).astype(np.float64) * 2.0 ** (1 - _BITS) - 1.0


def gaussians(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Turn 2n words into 2n independent standard Gaussians (Box and Muller's transformation).

    >>> sample = gaussians(RandomSource(1).words(200_000, 0, NOISE, 0))
    >>> round(float(sample.mean()), 1) + 0.0, round(float(sample.std()), 2)
    (0.0, 1.0)
    """
    half = words.size // 2
    fractions = (words >> np.uint64(64 - _BITS)).astype(np.float64) * 2.0**-_BITS
    radius = np.sqrt(-2.0 * np.log1p(-fractions[:half]))  # 1 - fraction lies in (0, 1]
    angle = 2.0 * np.pi * fractions[half : 2 * half]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
