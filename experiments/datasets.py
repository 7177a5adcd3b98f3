"""The images: classes of MNIST or Fashion-MNIST [D, Section 6.2], or of scikit-learn's digits with no download."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.system.extras import require
from experiments.download import RemoteFile, obtain

CLASSES = (5, 8)  # the paper's two "randomly chosen" classes
ALL_CLASSES = tuple(range(10))
UNSIGNED_BYTE = 8  # the IDX format's code for its type of number
MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
FASHION_MIRRORS = (
    "https://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)
_SIZES = (47040016, 60008, 7840016, 10008)
_NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_HASHES = {  # of the uncompressed content
    "mnist": (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    "fashion-mnist": (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
}
DATASETS = ("digits", "fashion-mnist", "mnist")


@dataclass(frozen=True, eq=False)
class LabeledImages:
    """Images of some classes, named 0, 1, … in the order in which they were asked for."""

    name: str
    train_x: NDArray[np.float32]  # (n, 1, side, side) in [0, 1]
    train_y: NDArray[np.int64]  # (n,)
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]


def load(name: str, classes: Sequence[int] = CLASSES) -> LabeledImages:
    """Load some classes of a data set, by default 5 and 8, split as it comes (digits: a fixed fifth for the test).

    >>> digits = load("digits")
    >>> digits.train_x.shape, digits.test_x.shape, int(load("digits", ALL_CLASSES).test_y.max())
    ((285, 1, 8, 8), (71, 1, 8, 8), 9)
    """
    checks.one_of(DATASETS, dataset=name)
    if name == "digits":
        return _digits(classes)
    mirrors = MNIST_MIRRORS if name == "mnist" else FASHION_MIRRORS
    contents = [
        read_idx(obtain(RemoteFile(name, file, size, sha256, mirrors)), f"{name}/{file}")
        for file, size, sha256 in zip(_NAMES, _SIZES, _HASHES[name], strict=True)
    ]
    train, test = (
        _chosen(contents[part].astype(np.float32) / np.float32(255), contents[part + 1], classes) for part in (0, 2)
    )
    return LabeledImages(name, *train, *test)


def read_idx(content: bytes, where: str) -> NDArray[np.uint8]:
    """Read an array of bytes in IDX format: two zeros, type 8, the number of axes, their lengths, the numbers.

    >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), "here").tolist()
    [7, 8, 9]
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UNSIGNED_BYTE or content[3] == 0:
        raise ValueError(f"{where} is no IDX file of bytes")
    axes = content[3]
    start = 4 + 4 * axes
    if len(content) < start:
        raise ValueError(f"{where} is truncated within its header")
    shape = struct.unpack(f">{axes}I", content[4:start])
    expected = start + int(np.prod([int(length) for length in shape], dtype=object))
    if len(content) != expected:
        raise ValueError(f"{where} has {len(content)} bytes where its header says {expected}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _chosen(
    images: NDArray[np.float32], labels: NDArray[np.int64] | NDArray[np.uint8], classes: Sequence[int]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Keep the images of some classes, with their places in the list as labels."""
    place = np.full(256, -1, dtype=np.int64)
    place[list(classes)] = np.arange(len(classes))
    named = place[labels]
    return images[named >= 0][:, None].astype(np.float32), named[named >= 0]


def _digits(classes: Sequence[int]) -> LabeledImages:
    bunch = require("sklearn.datasets").load_digits()
    x, y = _chosen((bunch.images / 16.0).astype(np.float32), bunch.target.astype(np.int64), classes)
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[: round(len(y) / 5)], order[round(len(y) / 5) :]
    return LabeledImages("digits", x[train], y[train], x[test], y[test])
