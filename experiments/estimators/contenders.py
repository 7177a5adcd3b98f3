"""Who is compared: our estimators, diffprivlib's, and two that are not private. All settings are fixed beforehand."""

import warnings
from collections.abc import Callable
from functools import partial

import numpy as np

from darrm.errors import PlanError
from darrm.estimators import PATEClassifier, PrivateModelsVotingClassifier, PrivateVotingClassifier
from darrm.numerics import Array
from darrm.util.extras import Untyped, require
from experiments.estimators.data import Labels, Split

DELTA = 1e-5
ROWS_EACH, FEWEST, MOST = 25, 10, 250  # of a teacher, and how many teachers
ANSWERS = 50  # that a student learns from
MODELS = 3  # that are private themselves
STEPS, BATCH, RATE = 100, 250, 2.0  # of DP-SGD
BELIEF = "dirichlet:0.1"  # teachers agree more often than not
OURS, THEIRS, NEITHER = "ours", "diffprivlib", "not private"


def unit(x: Array) -> Array:
    """Add a column of ones, and scale every row to length 1: of use where a row's length is what noise is paid for."""
    rows = np.column_stack([x, np.ones(len(x))])
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def teachers_of(rows: int) -> int:
    """Say how many teachers a number of rows has."""
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


def share_right(name: str, data: Split, epsilon: float, seed: int) -> float | None:
    """Return which share of the questions a contender answers rightly; None where nothing fits into the budget."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence, of bounds that are said, of students without answers
        try:
            return float(np.mean(CONTENDERS[name][1](data, epsilon, seed) == data.answers))
        except PlanError:
            return None
