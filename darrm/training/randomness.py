"""Random numbers for training: from the operating system by default, from a seed for experiments.

All draws derive from 64-bit words. With a seed or a key, the words of (teacher, purpose, step) do not depend on other
draws, so a resumed training continues with the same numbers. A seed is not secret: an attacker who knows it can
subtract the noise. A key is 256 secret bits from the operating system, in a file that only its owner can read
(`kept_key`). The words are SHAKE-256 of the key: without the key or preimages of SHAKE-256, an attacker learns nothing
about the noise.

Limitation: the Gaussian uses floats (Box–Muller over 53-bit uniforms), but the accounting assumes real numbers. An
attacker who sees the last bits of a released noise value could in principle distinguish them [M12]. Here only trained
parameters or votes are released, after many roundings; we have no proof that this is harmless.
"""

import hashlib
import math
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.errors import CheckpointError
from darrm.util import checks

INITIAL, BATCH, NOISE, AUGMENTATION = range(4)  # purposes of a stream of words
_BITS = 53
_KEY_BYTES = 32


@dataclass(frozen=True)
class RandomSource:
    """Source of random words: the operating system, a seed ≥ 0 (**for experiments only**), or a key of 32 secret bytes.

    >>> source = RandomSource(seed=7)
    >>> bool((source.words(4, 0, BATCH, 3) == source.words(4, 0, BATCH, 3)).all())
    True
    """

    seed: int | None = None
    key: bytes = field(default=b"", repr=False)

    @property
    def can_be_repeated(self) -> bool:
        """Whether repeated calls return the same words."""
        return self.seed is not None or bool(self.key)

    @property
    def name(self) -> int | str | None:
        """Identifier of the source: the seed, or a one-way digest of the key."""
        return hashlib.sha256(self.key).hexdigest() if self.key else self.seed

    def bound_to(self, training: str) -> "RandomSource":
        """Return the source for one training: a key gives different noise to trainings on different data."""
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
    """Remove a key file and overwrite its content, so that the noise cannot be drawn again."""
    with suppress(FileNotFoundError), path.open("r+b") as file:
        path.unlink()  # unlink first: a crash must not leave a key of zeros
        file.write(bytes(_KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())


def coins(words: NDArray[np.uint64], probability: float) -> NDArray[np.bool_]:
    """Turn words into coins with Pr[1] = floor(2⁵³·p)/2⁵³ ≤ p: never above the accounted rate.

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
    radius = np.sqrt(-2.0 * np.log1p(-fractions[:half]))  # 1 - fraction is in (0, 1]
    angle = 2.0 * np.pi * fractions[half : 2 * half]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
