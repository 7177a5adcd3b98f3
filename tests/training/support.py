"""A small network, and images that it learns, for the tests of training."""

import functools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
from darrm.training.network import convolutional_network

BUILD = functools.partial(convolutional_network, side=8)
CPU: dict[str, Any] = {"device": "cpu", "progress": False}


@functools.cache
def make_images(n: int, side: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Make dark and bright images, and their classes 0 and 1."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return (0.5 * rng.random((n, 1, side, side)) + 0.5 * y[:, None, None, None]).astype(np.float32), y
