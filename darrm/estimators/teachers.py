"""Training one estimator per shard, and counting their votes, by joblib with any backend.

Forked workers (joblib's ``multiprocessing``) share the state of their parent's random generators: private models would
draw the same noise, and their difference would have none; and the draws of one teacher would influence others. So each
worker seeds these generators for each model: from the operating system for a private model, by its seed for a teacher.
"""

import os
import random
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.dummy import DummyClassifier
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples

from darrm.util import checks
from darrm.util.extras import Untyped

# one message for every teacher: the number of the teacher, and its vote, are private
UNANSWERED = (
    "a teacher cannot answer these inputs by one of the classes. The cause depends on private data: do not show it to "
    "clients, and use an estimator that answers all inputs (with encoders that ignore unknown values)"
)


def check_classifier(name: str, estimator: Untyped) -> None:
    """Raise `ValueError` unless it is a classifier, before training and debits."""
    if isinstance(estimator, type) or not (hasattr(estimator, "fit") and hasattr(estimator, "predict")):
        found = checks.Found(repr(estimator)[:200])
        advice = "pass an object, such as DecisionTreeClassifier()"
        if isinstance(estimator, list | tuple):
            advice = "fitted models go to PrivateVotingClassifier.from_fitted(models, overlap=1)"
        checks.fail(name, found, "a classifier with fit and predict", advice)
    kind = get_tags(estimator).estimator_type
    if kind not in {None, "classifier"}:
        advice = "only a vote on classes has a plurality"
        checks.fail(name, checks.Found(f"a {kind}, {repr(estimator)[:200]}"), "a classifier", advice)
    parts = estimator.get_params().values() if hasattr(estimator, "get_params") else ()
    for part in (estimator, *parts):
        if isinstance(part, BaseEstimator) and hasattr(part, "_parameter_constraints"):
            try:
                part._validate_params()  # noqa: SLF001 (as its `fit` does)
            except ValueError as error:
                raise ValueError(f"{name} cannot be trained: {checks.one_line(error)}") from error


def trained(
    estimator: Untyped,
    X: Untyped,
    y: NDArray[Any],
    shards: Sequence[NDArray[np.int64]],
    classes: NDArray[Any],
    *,
    seeds: Sequence[int] | None,
    n_jobs: int | None,
) -> list[Any]:
    """Train K clones of an estimator, each on its shard; a worker gets only the rows of its shard.

    Parameters
    ----------
    estimator
        The prototype.
    X, y
        n rows and their labels.
    shards
        The rows of each of K teachers.
    classes
        The public list of classes.
    seeds
        The seed of each teacher. A teacher without rows, or with rows of one class only, is then a constant: that
        class, or the class of its number. None is for private estimators: their noise must not be seeded, and they are
        always fitted, because an exception for some shards would reveal private data.
    n_jobs
        For joblib.

    Raises
    ------
    ValueError
        If a teacher cannot be trained, or all of them would be one object.
    """
    if clone(estimator) is estimator:
        advice = "clones share their fitted state, as FrozenEstimator does, so a person influences all teachers"
        checks.fail("the estimator", repr(estimator), "one whose clones are unfitted", advice)
    teachers: list[Any] = Parallel(n_jobs=n_jobs)(
        delayed(_trained)(
            clone(estimator),
            _safe_indexing(X, rows),
            y[rows],
            number,
            None if seeds is None else seeds[number],
            classes[number % len(classes)],
            os.getpid(),
        )
        for number, rows in enumerate(shards)
    )
    return teachers


def _trained(
    teacher: Untyped,
    X: Untyped,
    y: NDArray[Untyped],
    number: int,
    seed: int | None,
    otherwise: Untyped,
    parent: int,
) -> Untyped:
    if seed is not None:
        present = np.unique(y)
        if len(present) < 2:
            return constant_classifier(present if len(present) else np.array([otherwise]))
        seeded(teacher, seed)
    if os.getpid() != parent:
        _seed_generators(seed)
    try:
        return teacher.fit(X, y)
    except MemoryError:
        raise
    except Exception as error:  # a teacher is any code
        raise ValueError(
            f"teacher {number} could not be trained on its {len(y)} rows ({checks.one_line(error)}): take fewer "
            "teachers, or an estimator that learns from so few rows"
        ) from error


def _seed_generators(seed: int | None) -> None:
    """Seed the generators of Python, numpy and a loaded torch; None is the operating system."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (estimators without a random_state use it)
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.seed() if seed is None else torch.manual_seed(seed)


def constant_classifier(label: NDArray[Untyped]) -> DummyClassifier:
    """Return a constant classifier: the class of (1,) labels, of any type."""
    # ``strategy="constant"`` takes integers and text only
    return DummyClassifier(strategy="most_frequent").fit([[0]], label)


def seeded(estimator: Untyped, seed: int) -> Untyped:
    """Set every ``random_state`` of an estimator and of its parts, and return it."""
    names = [name for name in estimator.get_params() if name.rpartition("__")[2] == "random_state"]
    return estimator.set_params(**dict.fromkeys(names, seed))


def counts(
    teachers: Sequence[Any],
    X: Untyped,
    classes: NDArray[Any],
    *,
    n_jobs: int | None,
) -> NDArray[np.int64]:
    """Count the votes of all teachers on Q inputs: (Q, C), **private data**."""
    votes = Parallel(n_jobs=n_jobs)(delayed(_codes)(teacher, X, classes) for teacher in teachers)
    total = np.zeros((len(votes[0]), len(classes)), dtype=np.int64)
    rows = np.arange(len(total))
    for codes in votes:
        total[rows, codes] += 1
    return total


def _codes(teacher: Untyped, X: Untyped, classes: NDArray[Untyped]) -> NDArray[np.int64]:
    try:
        answers = np.asarray(teacher.predict(X))
        codes = np.minimum(np.searchsorted(classes, answers), len(classes) - 1)
        if codes.shape == (_num_samples(X),) and np.array_equal(classes[codes], answers):
            return codes
    except Exception as error:
        raise ValueError(UNANSWERED) from error
    raise ValueError(UNANSWERED)
