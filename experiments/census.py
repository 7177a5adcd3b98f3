"""The census data of UCI, "Adult" [P, Section 5.1]: who earns more than 50,000 dollars a year.

Of the 14 columns the weight of the sample (fnlwgt) is left out, which says nothing about the person. Each category is a
column of zeros and ones, in the order of the data set's description; a missing value, ``?``, is a row of zeros.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.datasets import FILES
from experiments.download import obtain

_WORDS = {
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
COLUMNS = {name: words.split() for name, words in _WORDS.items()}  # categories; none of a number
MISSING, LEFT_OUT = "?", "fnlwgt"
CLASSES = ("<=50K", ">50K")


@dataclass(frozen=True, eq=False)
class LabeledTable:
    """Rows of numbers with their classes, split as they come."""

    name: str
    train_x: NDArray[np.float32]  # (n, columns)
    train_y: NDArray[np.int64]  # (n,)
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]


def load_adult() -> LabeledTable:
    """Load the 32,561 rows for training and the 16,281 for the test, 104 columns each."""
    (train_x, train_y), (test_x, test_y) = (
        read_rows(obtain(file), f"{file.folder}/{file.name}") for file in FILES["adult"]
    )
    return LabeledTable("adult", train_x, train_y, test_x, test_y)


def read_rows(content: bytes, where: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Read rows ``39, State-gov, 77516, …, <=50K``; lines that are empty or start with ``|`` are none.

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
        label = label.removesuffix(".")  # as the lines of adult.test end
        if len(values) != len(COLUMNS) or label not in CLASSES:
            raise ValueError(
                f"line {number} of {where} is no row of {len(COLUMNS)} values and one of {', '.join(CLASSES)}: {line!r}"
            )
        try:
            rows.append([part for column, value in zip(COLUMNS, values, strict=True) for part in _parts(column, value)])
        except ValueError as error:
            raise ValueError(f"line {number} of {where}: {error}") from error
        labels.append(CLASSES.index(label))
    if not rows:
        raise ValueError(f"{where} has no rows")
    return np.array(rows, dtype=np.float32), np.array(labels, dtype=np.int64)


def _parts(column: str, value: str) -> list[float]:
    """Return the numbers of a value."""
    categories = COLUMNS[column]
    if column == LEFT_OUT:
        return []
    if not categories:
        return [float(value)]
    if value != MISSING and value not in categories:
        raise ValueError(f"{value!r} is no category of {column}")
    return [float(value == category) for category in categories]
