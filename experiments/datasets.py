"""Load MNIST and Fashion-MNIST [D, Section 6.2], Adult [P, Section 5.1], and scikit-learn's digits.

Digits need no download. `FILES` lists the files of the other data sets. *Adult* is census data from UCI; its classes
are incomes up to and above 50,000 dollars a year. The loader omits one of the 14 columns, the sampling weight (fnlwgt),
because it does not describe the person. Each category becomes a column of zeros and ones, in the order of the data
set's description; a missing value, ``?``, becomes zeros.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.util import checks
from darrm.util.extras import require
from experiments.download import RemoteFile, obtain

CLASSES = (5, 8)  # the paper's two "randomly chosen" classes
ALL_CLASSES = tuple(range(10))
UNSIGNED_BYTE = 8  # code of the number type in the IDX format
MIRRORS = {
    "mnist": ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    "fashion-mnist": (
        "https://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
    "adult": ("https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",),
    "multiple-teachers": ("https://raw.githubusercontent.com/npapernot/multiple-teachers-for-privacy/master/",),
}
_IDX_FILES = (
    ("train-images-idx3-ubyte.gz", 47040016),
    ("train-labels-idx1-ubyte.gz", 60008),
    ("t10k-images-idx3-ubyte.gz", 7840016),
    ("t10k-labels-idx1-ubyte.gz", 10008),
)
_IDX_HASHES = {
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
_STUDENT_PLACES = "mnist_250_teachers_100_indices_used_by_student.npy"
_FILES = {  # names, sizes and hashes
    **{name: [(*file, h) for file, h in zip(_IDX_FILES, hashes, strict=True)] for name, hashes in _IDX_HASHES.items()},
    "adult": [
        ("adult.data", 3974305, "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
        ("adult.test", 2003153, "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
    ],
    "multiple-teachers": [
        (
            "mnist_250_student_labels_lap_20.npy",
            36080,
            "17601aba0f993e8d5a3bd5914f37081fe142b4ac3bea53a4da700fe83570336b",
        ),
        (_STUDENT_PLACES, 880, "eca12d5b3b838f3b5a87832203fb4cd4b2b8bee80249662a431023a057b32c4d"),
    ],
}
FILES = {name: tuple(RemoteFile(name, *file, MIRRORS[name]) for file in files) for name, files in _FILES.items()}
IMAGE_SETS = ("fashion-mnist", "mnist")  # read as IDX files


@dataclass(frozen=True, eq=False)
class LabeledImages:
    """Images of the requested classes, labeled 0, 1, … in the order of the request; for Adult, rows of numbers."""

    name: str
    train_x: NDArray[np.float32]  # (n, channels, side, side) in [0, 1], or (n, columns)
    train_y: NDArray[np.int64]  # (n,)
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]


def load(name: str, classes: Sequence[int] = CLASSES) -> LabeledImages:
    """Load some classes of a data set; its split is fixed (digits: a fifth for the test).

    The loader is that of `LOADERS`, or reads the IDX files.

    >>> digits = load("digits")
    >>> digits.train_x.shape, digits.test_x.shape, int(load("digits", ALL_CLASSES).test_y.max())
    ((285, 1, 8, 8), (71, 1, 8, 8), 9)
    """
    checks.one_of({*IMAGE_SETS, *LOADERS}, dataset=name)
    if name in LOADERS:
        return LOADERS[name](classes)
    images, labels, test_images, test_labels = (read_idx(obtain(file), f"{name}/{file.name}") for file in FILES[name])
    train_x, train_y = _select_classes(images[:, None], labels, classes)
    test_x, test_y = _select_classes(test_images[:, None], test_labels, classes)
    return LabeledImages(name, _scale_bytes(train_x), train_y, _scale_bytes(test_x), test_y)


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


def _select_classes(
    images: NDArray[Any], labels: NDArray[np.integer[Any]], classes: Sequence[int]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Select the images of some classes; the new labels are indices into ``classes``."""
    index_of = np.full(256, -1, dtype=np.int64)
    index_of[list(classes)] = np.arange(len(classes))
    new_labels = index_of[labels]
    return images[new_labels >= 0], new_labels[new_labels >= 0]


def _scale_bytes(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Map bytes to [0, 1]."""
    scaled = images.astype(np.float32, order="C")
    scaled /= np.float32(255)
    return scaled


def _load_digits(classes: Sequence[int]) -> LabeledImages:
    bunch = require("sklearn.datasets").load_digits()
    x, y = _select_classes((bunch.images / 16.0).astype(np.float32)[:, None], bunch.target.astype(np.int64), classes)
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[: round(len(y) / 5)], order[round(len(y) / 5) :]
    return LabeledImages("digits", x[train], y[train], x[test], y[test])


_CATEGORIES = {
    "age": "",
    "workclass": "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked",
    "fnlwgt": "",
    "education": "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters "
    "1st-4th 10th Doctorate 5th-6th Preschool",
    "education-num": "",
    "marital-status": "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
    "Married-AF-spouse",
    "occupation": "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
    "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces",
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
    "capital-gain": "",
    "capital-loss": "",
    "hours-per-week": "",
    "native-country": "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India "
    "Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland "
    "France Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand "
    "Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands",
}
COLUMNS = {name: words.split() for name, words in _CATEGORIES.items()}  # empty for a column of numbers
MISSING, IGNORED_COLUMN = "?", "fnlwgt"
INCOMES = ("<=50K", ">50K")


def read_rows(content: bytes, where: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Read rows ``39, State-gov, 77516, …, <=50K``; ignore lines that are empty or start with ``|``.

    Returns
    -------
    tuple
        (n, columns) numbers, and (n,) classes: 1 for more than 50,000 dollars.
    """
    rows, labels = [], []
    for number, line in enumerate(content.decode("latin-1").splitlines(), start=1):
        if not line.strip() or line.startswith("|"):
            continue
        *values, label = (value.strip() for value in line.split(","))
        label = label.removesuffix(".")  # labels in adult.test end with a period
        if len(values) != len(COLUMNS) or label not in INCOMES:
            raise ValueError(
                f"line {number} of {where} is no row of {len(COLUMNS)} values and one of {', '.join(INCOMES)}: {line!r}"
            )
        try:
            rows.append(
                [part for column, value in zip(COLUMNS, values, strict=True) for part in _encode_value(column, value)]
            )
        except ValueError as error:
            raise ValueError(f"line {number} of {where}: {error}") from error
        labels.append(INCOMES.index(label))
    if not rows:
        raise ValueError(f"{where} has no rows")
    return np.array(rows, dtype=np.float32), np.array(labels, dtype=np.int64)


def _encode_value(column: str, value: str) -> list[float]:
    categories = COLUMNS[column]
    if column == IGNORED_COLUMN:
        return []
    if not categories:
        return [float(value)]
    if value != MISSING and value not in categories:
        raise ValueError(f"{value!r} is no category of {column}")
    return [float(value == category) for category in categories]


def _load_adult(classes: Sequence[int]) -> LabeledImages:
    """Load 32,561 training rows and 16,281 test rows with 104 columns; the two classes are fixed."""
    del classes
    train, test = (read_rows(obtain(file), f"{file.folder}/{file.name}") for file in FILES["adult"])
    return LabeledImages("adult", *train, *test)


# functions from classes to images; add your data set here
LOADERS: dict[str, Callable[[Sequence[int]], LabeledImages]] = {"digits": _load_digits, "adult": _load_adult}
