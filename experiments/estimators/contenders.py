"""Train the contenders: our estimators, diffprivlib's, and two without privacy. All settings are fixed in advance.

The rows of the six data sets are scaled to [-1, 1] by bounds that all contenders treat as public: the range of each
column, rounded outwards to one digit, as a domain expert might state it. The bounds come from the rows, and no
guarantee, ours or diffprivlib's, covers that. Images are averaged over 2 × 2 pixels.
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

MAX_QUESTIONS, MAX_PUBLIC = 100, 500  # and each at most a fifth of the rows
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
    """Private rows with labels, public rows without labels, and questions with answers."""

    x: Array  # (N, d) in [-1, 1]
    y: Labels  # (N,)
    public: Array
    questions: Array
    answers: Labels
    classes: int


def load(name: str) -> tuple[Array, Labels]:
    """Load all rows of a data set, scaled to [-1, 1], and their classes as whole numbers from 0."""
    sets = require("sklearn.datasets")
    if name == "synthetic":
        options = {"n_informative": 10, "n_classes": 7, "n_clusters_per_class": 1, "class_sep": 1.5, "random_state": 37}
        return scale_to_bounds(*sets.make_classification(10_000, 20, **options))
    if name not in ("adult", "mnist"):
        return scale_to_bounds(*getattr(sets, f"load_{name.replace('-', '_')}")(return_X_y=True))
    data = datasets.load(name)
    x, y = np.concatenate([data.train_x, data.test_x]), np.concatenate([data.train_y, data.test_y])
    if name == "adult":
        return scale_to_bounds(x.astype(np.float64), y)
    averaged = x[:, 0].astype(np.float64).reshape(len(x), 14, 2, 14, 2).mean(axis=(2, 4)).reshape(len(x), -1)
    return 2.0 * averaged - 1.0, y


def scale_to_bounds(x: Array, y: Labels) -> tuple[Array, Labels]:
    """Scale columns to [-1, 1] by their rounded ranges.

    >>> scale_to_bounds(np.array([[0.0, 3.0], [7.0, 3.0], [3.5, 3.0]]), np.arange(3))[0].tolist()
    [[-1.0, 1.0], [1.0, 1.0], [0.0, 1.0]]
    """
    low, high = round_outwards(x.min(axis=0), np.floor), round_outwards(x.max(axis=0), np.ceil)
    low = np.where(low == high, 0.0, low)
    width = np.where(low == high, 1.0, high - low)
    return 2.0 * (x - low) / width - 1.0, np.asarray(y, dtype=np.int64)


def round_outwards(bounds: Array, rounding: np.ufunc) -> Array:
    """Round numbers to one digit, up or down by ``rounding``.

    >>> round_outwards(np.array([0.0, 7.2, 1234.0, -31.0]), np.ceil).tolist()
    [0.0, 8.0, 2000.0, -30.0]
    """
    digit = 10.0 ** np.floor(np.log10(np.maximum(np.abs(bounds), 1e-12)))
    return np.asarray(rounding(bounds / digit) * digit)


def split(name: str, seed: int) -> Split:
    """Split a data set at random into private rows, public rows, and questions."""
    x, y = load(name)
    order = np.random.default_rng(seed).permutation(len(x))
    questions, public = min(MAX_QUESTIONS, len(x) // 5), min(MAX_PUBLIC, len(x) // 5)
    question_rows, public_rows, private_rows = np.split(order, [questions, questions + public])
    return Split(x[private_rows], y[private_rows], x[public_rows], x[question_rows], y[question_rows], int(y.max()) + 1)


DELTA = 1e-5
ROWS_PER_TEACHER, MIN_TEACHERS, MAX_TEACHERS = 25, 10, 250
STUDENT_ANSWERS = 50  # labels for a student
MODELS = 3  # private models that vote
STEPS, BATCH, LEARNING_RATE = 100, 250, 2.0  # of DP-SGD
PRIOR_NAME = "dirichlet:0.1"  # teachers mostly agree
DARRM, DIFFPRIVLIB, NON_PRIVATE = "ours", "diffprivlib", "not private"


def normalize_rows(x: Array) -> Array:
    """Add a column of ones and scale every row to length 1, which bounds the sensitivity."""
    rows = np.column_stack([x, np.ones(len(x))])
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def choose_teachers(rows: int) -> int:
    return min(MAX_TEACHERS, max(MIN_TEACHERS, rows // ROWS_PER_TEACHER))


def _make_linear() -> Untyped:
    return require("sklearn.linear_model").LogisticRegression(max_iter=200)


def _list_options(data: Split, epsilon: float, seed: int) -> dict[str, Untyped]:
    """List the options that our votes and PATE share."""
    return {"epsilon": epsilon, "delta": DELTA, "classes": range(data.classes), "random_state": seed}


def _make_vote(data: Split, epsilon: float, seed: int) -> Untyped:
    options, teachers = _list_options(data, epsilon, seed), choose_teachers(len(data.x))
    return PrivateVotingClassifier(_make_linear(), teachers, max_queries=len(data.questions), **options)


def _make_pate(data: Split, epsilon: float, seed: int, **options: Untyped) -> Untyped:
    student = _make_linear() if options["aggregator"] == "best" else None
    options |= _list_options(data, epsilon, seed)
    options |= {"n_teachers": choose_teachers(len(data.x)), "max_answers": min(STUDENT_ANSWERS, len(data.public))}
    return PATEClassifier(_make_linear(), student, **options)


def _make_sgd(data: Split, epsilon: float, seed: int | None = None, models: int = 1) -> Untyped:
    del seed  # the operating system draws the noise of training
    dpsgd, torch = require("darrm.estimators.dpsgd"), require("torch")
    width = data.x.shape[1] + 1
    return dpsgd.PrivateSGDClassifier(
        partial(torch.nn.Linear, width, data.classes, bias=False),
        range(data.classes),
        epsilon=epsilon,
        delta=DELTA,
        learning_rate=LEARNING_RATE,
        steps=STEPS,
        sampling_rate=min(1.0, BATCH / (len(data.x) // models)),
    )


def _make_private_models(data: Split, epsilon: float, seed: int) -> Untyped:
    options, model = _list_options(data, epsilon, seed), _make_sgd(data, epsilon, models=MODELS)
    return PrivateModelsVotingClassifier(model, MODELS, max_queries=len(data.questions), **options)


def _make_theirs(name: str, data: Split, epsilon: float, seed: int) -> Untyped:
    """Make a model of diffprivlib."""
    bounds = (-np.ones(data.x.shape[1]), np.ones(data.x.shape[1]))
    options: dict[str, Untyped] = {
        "LogisticRegression": {"data_norm": 1.0, "max_iter": 500, "fit_intercept": False},
        "GaussianNB": {"bounds": bounds},
        "RandomForestClassifier": {"n_estimators": 10, "bounds": bounds, "classes": list(range(data.classes))},
    }
    return getattr(require("diffprivlib.models"), name)(epsilon=epsilon, random_state=seed, **options[name])


def _make_guess(data: Split, epsilon: float, seed: int) -> Untyped:
    del data, epsilon, seed
    return require("sklearn.dummy").DummyClassifier(strategy="most_frequent")


def _make_noiseless(data: Split, epsilon: float, seed: int) -> Untyped:
    del data, epsilon, seed
    return _make_linear()


CONTENDERS: dict[str, tuple[str, Callable[[Split, float, int], Untyped]]] = {
    "vote": (DARRM, _make_vote),
    "PATE, best": (DARRM, partial(_make_pate, aggregator="best")),
    "PATE, tested": (DARRM, partial(_make_pate, aggregator="best", accounting="tested", votes_look_like=PRIOR_NAME)),
    "PATE, confident": (DARRM, partial(_make_pate, aggregator="confident")),
    "private models": (DARRM, _make_private_models),
    "DP-SGD": (DARRM, _make_sgd),
    "LogisticRegression": (DIFFPRIVLIB, partial(_make_theirs, "LogisticRegression")),
    "GaussianNB": (DIFFPRIVLIB, partial(_make_theirs, "GaussianNB")),
    "RandomForest": (DIFFPRIVLIB, partial(_make_theirs, "RandomForestClassifier")),
    "a model without noise": (NON_PRIVATE, _make_noiseless),
    "the largest class": (NON_PRIVATE, _make_guess),
}
NEED_UNIT_ROWS = ("private models", "DP-SGD", "LogisticRegression")


def predict(name: str, data: Split, epsilon: float, seed: int) -> Labels:
    """Train a contender and answer the questions."""
    model = CONTENDERS[name][1](data, epsilon, seed)
    prepare: Callable[[Array], Array] = normalize_rows if name in NEED_UNIT_ROWS else np.asarray
    options = {"X_public": data.public} if name.startswith("PATE") else {}
    return np.asarray(model.fit(prepare(data.x), data.y, **options).predict(prepare(data.questions)))


def measure_accuracy(name: str, data: Split, epsilon: float, seed: int) -> float | None:
    """Return a contender's accuracy on the questions, or None if no plan fits the budget."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence, bounds, and students without answers
        try:
            return float(np.mean(predict(name, data, epsilon, seed) == data.answers))
        except PlanError:
            return None
