"""The contenders: our estimators, diffprivlib's, and two that are not private. All settings are fixed in advance.

The rows of the six data sets lie in [-1, 1] by bounds that are public for everybody: a range of the column, rounded
outwards to one digit, as somebody who knows the field would state it. That it was read from the rows is covered by no
guarantee, ours or another's. Images are averaged over 2 × 2 pixels.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from darrm.errors import PlanError
from darrm.estimators import PATEClassifier, PrivateModelsVotingClassifier, PrivateVotingClassifier
from darrm.numerics import Array
from darrm.util.extras import Untyped, require
from experiments import datasets

QUESTIONS, PUBLIC = 100, 500  # at the most, and at most a fifth of the rows each
TITLES = {
    "wine": "wine",
    "breast-cancer": "breast cancer",
    "digits": "digits",
    "synthetic": "synthetic of seven classes",
    "adult": "Adult",
    "mnist": "MNIST 5 against 8",
}
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Private rows with their labels, public ones without, and questions with their answers."""

    x: Array  # (N, d) in [-1, 1]
    y: Labels  # (N,)
    public: Array
    questions: Array
    answers: Labels
    classes: int


def load(name: str) -> tuple[Array, Labels]:
    """Load all rows of a data set, scaled to [-1, 1], and their classes as whole numbers from 0."""
    sets = require("sklearn.datasets")
    if name == "wine":
        return bounded(*sets.load_wine(return_X_y=True))
    if name == "breast-cancer":
        return bounded(*sets.load_breast_cancer(return_X_y=True))
    if name == "digits":
        return bounded(*sets.load_digits(return_X_y=True))
    if name == "synthetic":
        made = sets.make_classification(
            10_000, 20, n_informative=10, n_classes=7, n_clusters_per_class=1, class_sep=1.5, random_state=37
        )
        return bounded(*made)
    if name == "adult":
        table = datasets.load(name)
        x = np.concatenate([table.train_x, table.test_x]).astype(np.float64)
        return bounded(x, np.concatenate([table.train_y, table.test_y]))
    images = datasets.load(name)
    x = np.concatenate([images.train_x, images.test_x])[:, 0].astype(np.float64)
    averaged = x.reshape(len(x), 14, 2, 14, 2).mean(axis=(2, 4)).reshape(len(x), -1)
    return 2.0 * averaged - 1.0, np.concatenate([images.train_y, images.test_y])


def bounded(x: Array, y: Labels) -> tuple[Array, Labels]:
    """Scale columns to [-1, 1] by their bounds.

    >>> bounded(np.array([[0.0, 3.0], [7.0, 3.0], [3.5, 3.0]]), np.arange(3))[0].tolist()
    [[-1.0, 1.0], [1.0, 1.0], [0.0, 1.0]]
    """
    low, high = outwards(x.min(axis=0), np.floor), outwards(x.max(axis=0), np.ceil)
    low = np.where(low == high, 0.0, low)
    width = np.where(low == high, 1.0, high - low)
    return 2.0 * (x - low) / width - 1.0, np.asarray(y, dtype=np.int64)


def outwards(bounds: Array, rounding: np.ufunc) -> Array:
    """Round numbers down or up to one digit.

    >>> outwards(np.array([0.0, 7.2, 1234.0, -31.0]), np.ceil).tolist()
    [0.0, 8.0, 2000.0, -30.0]
    """
    digit = 10.0 ** np.floor(np.log10(np.maximum(np.abs(bounds), 1e-12)))
    return np.asarray(rounding(bounds / digit) * digit)


def split(name: str, seed: int) -> Split:
    """Split a data set by a seed into private rows, public ones, and questions."""
    x, y = load(name)
    order = np.random.default_rng(seed).permutation(len(x))
    questions, public = min(QUESTIONS, len(x) // 5), min(PUBLIC, len(x) // 5)
    asked, shown, private = np.split(order, [questions, questions + public])
    return Split(x[private], y[private], x[shown], x[asked], y[asked], int(y.max()) + 1)


DELTA = 1e-5
ROWS_EACH, FEWEST, MOST = 25, 10, 250  # of a teacher, and how many teachers
ANSWERS = 50  # that a student learns from
MODELS = 3  # that are private themselves
STEPS, BATCH, RATE = 100, 250, 2.0  # of DP-SGD
BELIEF = "dirichlet:0.1"  # teachers agree more often than not
OURS, THEIRS, NEITHER = "ours", "diffprivlib", "not private"


def unit(x: Array) -> Array:
    """Add a column of ones, and scale every row to length 1, for noise that depends on a row's length."""
    rows = np.column_stack([x, np.ones(len(x))])
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def teachers_of(rows: int) -> int:
    return min(MOST, max(FEWEST, rows // ROWS_EACH))


def _linear() -> Untyped:
    return require("sklearn.linear_model").LogisticRegression(max_iter=200)


def _vote(data: Split, epsilon: float, seed: int) -> Labels:
    vote = PrivateVotingClassifier(
        _linear(),
        teachers_of(len(data.x)),
        epsilon=epsilon,
        delta=DELTA,
        max_queries=len(data.questions),
        classes=range(data.classes),
        random_state=seed,
    )
    return np.asarray(vote.fit(data.x, data.y).predict(data.questions))


def _pate(data: Split, epsilon: float, seed: int, **options: Untyped) -> Labels:
    pate = PATEClassifier(
        _linear(),
        _linear() if options.get("aggregator") == "best" else None,
        n_teachers=teachers_of(len(data.x)),
        epsilon=epsilon,
        delta=DELTA,
        max_answers=min(ANSWERS, len(data.public)),
        classes=range(data.classes),
        random_state=seed,
        **options,
    )
    return np.asarray(pate.fit(data.x, data.y, X_public=data.public).predict(data.questions))


def _sgd(data: Split, epsilon: float, models: int = 1) -> Untyped:
    dpsgd, torch = require("darrm.estimators.dpsgd"), require("torch")
    width = data.x.shape[1] + 1
    return dpsgd.PrivateSGDClassifier(
        partial(torch.nn.Linear, width, data.classes, bias=False),
        range(data.classes),
        epsilon=epsilon,
        delta=DELTA,
        learning_rate=RATE,
        steps=STEPS,
        sampling_rate=min(1.0, BATCH / (len(data.x) // models)),
    )


def _private_models(data: Split, epsilon: float, seed: int) -> Labels:
    vote = PrivateModelsVotingClassifier(
        _sgd(data, epsilon, MODELS),
        MODELS,
        epsilon=epsilon,
        delta=DELTA,
        max_queries=len(data.questions),
        classes=range(data.classes),
        random_state=seed,
    )
    return np.asarray(vote.fit(unit(data.x), data.y).predict(unit(data.questions)))


def _one_model(data: Split, epsilon: float, seed: int) -> Labels:
    del seed  # the noise of training is no seed's
    return np.asarray(_sgd(data, epsilon).fit(unit(data.x), data.y).predict(unit(data.questions)))


def _bounds(data: Split) -> tuple[Array, Array]:
    return -np.ones(data.x.shape[1]), np.ones(data.x.shape[1])


def _their_regression(data: Split, epsilon: float, seed: int) -> Labels:
    models = require("diffprivlib.models")
    model = models.LogisticRegression(
        epsilon=epsilon, data_norm=1.0, max_iter=500, fit_intercept=False, random_state=seed
    )
    return np.asarray(model.fit(unit(data.x), data.y).predict(unit(data.questions)))


def _their_bayes(data: Split, epsilon: float, seed: int) -> Labels:
    model = require("diffprivlib.models").GaussianNB(epsilon=epsilon, bounds=_bounds(data), random_state=seed)
    return np.asarray(model.fit(data.x, data.y).predict(data.questions))


def _their_forest(data: Split, epsilon: float, seed: int) -> Labels:
    model = require("diffprivlib.models").RandomForestClassifier(
        n_estimators=10, epsilon=epsilon, bounds=_bounds(data), classes=list(range(data.classes)), random_state=seed
    )
    return np.asarray(model.fit(data.x, data.y).predict(data.questions))


def _open_model(data: Split, epsilon: float, seed: int) -> Labels:
    del epsilon, seed
    return np.asarray(_linear().fit(data.x, data.y).predict(data.questions))


def _majority(data: Split, epsilon: float, seed: int) -> Labels:
    del epsilon, seed
    return np.full(len(data.questions), np.bincount(data.y).argmax())


CONTENDERS: dict[str, tuple[str, Callable[[Split, float, int], Labels]]] = {
    "vote": (OURS, _vote),
    "PATE, best": (OURS, partial(_pate, aggregator="best")),
    "PATE, tested": (OURS, partial(_pate, aggregator="best", accounting="tested", votes_look_like=BELIEF)),
    "PATE, confident": (OURS, partial(_pate, aggregator="confident")),
    "private models": (OURS, _private_models),
    "DP-SGD": (OURS, _one_model),
    "LogisticRegression": (THEIRS, _their_regression),
    "GaussianNB": (THEIRS, _their_bayes),
    "RandomForest": (THEIRS, _their_forest),
    "a model without noise": (NEITHER, _open_model),
    "the largest class": (NEITHER, _majority),
}


def accuracy(name: str, data: Split, epsilon: float, seed: int) -> float | None:
    """Return a contender's share of right answers, or None if nothing fits into the budget."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence, of given bounds, of students without answers
        try:
            return float(np.mean(CONTENDERS[name][1](data, epsilon, seed) == data.answers))
        except PlanError:
            return None
