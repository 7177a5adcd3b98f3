"""Training one estimator a shard, and counting what they vote; both by joblib, wherever its backend runs them.

A worker that was forked (joblib's ``multiprocessing``) has the state of its parent's generators, and so has the next
one: private models would draw the same noise, and the difference of two of them would have none; and what one teacher
draws would move what the next one shares with others. So in a worker these generators are seeded anew for each: from
the operating system for a private model, by its own seed for a teacher.
"""

import os
import random
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples

from darrm.errors import checks
from darrm.system.extras import Untyped

# said in the same words of every teacher: which one it was, and what it voted, is private
UNANSWERED = (
    "a teacher cannot answer these inputs, or not by one of the classes; this is private, and so is the cause: show "
    "neither to whoever asks, and take an estimator that answers whatever it learned from (with encoders that ignore "
    "what they do not know)"
)


def check_classifier(name: str, estimator: Untyped) -> None:
    """Raise `ValueError` for what cannot learn classes, before anything is learned or paid for."""
    if isinstance(estimator, type) or not (hasattr(estimator, "fit") and hasattr(estimator, "predict")):
        found = checks.Found(repr(estimator)[:200])
        checks.fail(name, found, "a classifier with fit and predict", "say an object, such as DecisionTreeClassifier()")
    kind = get_tags(estimator).estimator_type
    if kind not in {None, "classifier"}:
        advice = "only a vote on classes has a plurality"
        checks.fail(name, checks.Found(f"a {kind}, {repr(estimator)[:200]}"), "a classifier", advice)


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
    """Train K clones of an estimator, each on the rows of its own shard; a worker gets these rows and no others.

    Parameters
    ----------
    estimator
        What is cloned.
    X, y
        n rows and their labels.
    shards
        The rows of each of K teachers.
    classes
        The public list of classes.
    seeds
        The seed of each teacher. A teacher that has no row, or rows of one class only, is then no clone but votes for a
        class: its own, or that of its number. None is for estimators that are private themselves: their noise must not
        be seeded, and they are always fitted, as an exception for some shards would reveal what no noise hides.
    n_jobs
        For joblib.

    Raises
    ------
    ValueError
        If a teacher cannot be trained, or all of them would be one object.
    """
    if clone(estimator) is estimator:
        advice = "clones share what they learn, as those of FrozenEstimator do, and then a person reaches all teachers"
        checks.fail("the estimator", repr(estimator), "one whose clones learn anew", advice)
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
    except (ValueError, ArithmeticError) as error:
        raise ValueError(
            f"teacher {number} could not be trained on its {len(y)} rows ({error}): take fewer teachers, or an "
            "estimator that learns from so few rows"
        ) from error


def _seed_generators(seed: int | None) -> None:
    """Seed the generators of Python, numpy and torch, where it is loaded; None is the operating system."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (what estimators without a random_state of their own draw from)
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.seed() if seed is None else torch.manual_seed(seed)


def constant_classifier(label: NDArray[Untyped]) -> DummyClassifier:
    """Return what votes for a class whatever is asked: that of (1,) labels, of any type that labels may have."""
    # not by ``strategy="constant"``, which takes whole numbers and text only
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
