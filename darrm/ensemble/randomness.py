"""Random numbers for training: from the operating system by default, from a seed for experiments.

Everything is made from 64-bit words, so that all kinds share one way to a coin and to a Gaussian. With a seed or a key,
the words of (teacher, purpose, step) do not depend on any other draw: a training that resumes after a kill continues
with the very numbers it would have had. A seed is known to whoever wrote it down, and so is the noise. A key is 256
bits of the operating system that nobody saw, in a file that its owner alone can read (`kept_key`), and the words are
SHAKE-256 of it; who has neither key nor preimages of SHAKE-256 knows nothing of the noise.

Sharp edge: the Gaussian is a float one (Box–Muller over 53-bit uniforms). The accounting is about real numbers, and an
attacker who sees the last bits of a release of the noise itself could in principle tell them apart [M12]. Here only
trained parameters or votes leave, after many roundings; nothing proves this harmless.
"""

import hashlib
import math
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.errors import CheckpointError, checks

INITIAL, BATCH, NOISE, AUGMENTATION = range(4)  # what a stream of words is for
_BITS = 53
_KEY_BYTES = 32


@dataclass(frozen=True)
class RandomSource:
    """Where the words come from.

    Without a seed from the operating system. With an integer ≥ 0 they are reproducible, **for experiments only**, since
    whoever knows the seed can subtract the noise. In its place stands a key of 32 random bytes that nobody knows.

    >>> source = RandomSource(seed=7)
    >>> bool((source.words(4, 0, BATCH, 3) == source.words(4, 0, BATCH, 3)).all())
    True
    """

    seed: int | None = None
    key: bytes = field(default=b"", repr=False)

    @property
    def can_be_repeated(self) -> bool:
        """Whether the words come again when they are asked for again."""
        return self.seed is not None or bool(self.key)

    @property
    def name(self) -> int | str | None:
        """What tells it from others: the seed, or a digest of the key, which says nothing about it."""
        return hashlib.sha256(self.key).hexdigest() if self.key else self.seed

    def bound_to(self, training: str) -> "RandomSource":
        """Return the source for one training: with a key another training, of other data, has other noise."""
        return RandomSource(key=hashlib.sha256(self.key + training.encode()).digest()) if self.key else self

    def __post_init__(self) -> None:
        if self.seed is not None:
            checks.integer_at_least(0, seed=self.seed, advice="seed=None draws from the operating system")

    def words(self, count: int, teacher: int, purpose: int, step: int) -> NDArray[np.uint64]:
        """Draw ``count`` uniform 64-bit words."""
        if self.key:
            stream = hashlib.shake_256(self.key + np.array([teacher, purpose, step], dtype="<i8").tobytes())
            return np.frombuffer(stream.digest(8 * count), dtype="<u8").astype(np.uint64)
        if self.seed is None:
            return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        generator = np.random.default_rng([self.seed, teacher, purpose, step])
        return generator.integers(0, 2**64, size=count, dtype=np.uint64, endpoint=False)


def kept_key(path: Path) -> bytes:
    """Read the key of a file that its owner alone can read, or make both; `CheckpointError` for any other file."""
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
    """Remove the file of a key, and overwrite what it held: the noise cannot be drawn again."""
    with suppress(FileNotFoundError), path.open("r+b") as file:
        path.unlink()  # first: who is killed in between leaves no key of zeros to be found
        file.write(bytes(_KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())


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
