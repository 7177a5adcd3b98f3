"""One teacher per shard: shards drawn by a hash of the person alone, training, and counts of votes.

The guarantee of an ensemble needs ``overlap=1``: *one person's data influence one teacher*. Shards that are balanced by
label violate it: one changed label moves many people. So a keyed hash of the person alone draws the teacher:

    teacher(p) = H(key, p) mod K,        key from ``random_state``, K = ``n_teachers``.

**Theorem.** Let D and D' differ in one person p: p's rows are replaced, or (with ``groups``) p is in one of them only.
For every key all shards except that of teacher(p) hold the same rows in the same order. *Proof.* A row's teacher is a
function of the key and of the row's person. The rows of all others are the same in D and D', in the same order, so
every shard without p is the same list. ∎

The seed of a teacher depends on the key and on the teacher's number only, so all other teachers are equal to the bit,
and at most one of K votes changes. `tests/estimators/test_shards.py` guards both.

Without ``groups`` every row is a person, identified by its position, and neighbors differ in the content of one row.
Removing a row would shift all later positions. A secret key (``random_state=None``) covers this too: hashes of
different positions are independent uniform draws, so the law of the ensemble on D without p is that of independent
draws for all other rows; couple them with the draws on D, and only p's shard differs. With a *published* key, use
``groups`` if people may be added or removed.

Forked workers (joblib's ``multiprocessing``) share the state of their parent's random generators: private models would
draw the same noise, and their difference would have none. So each worker seeds these generators for each model: from
the operating system for a private model, by its seed for a teacher.
"""

import hashlib
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

KEY_BYTES = 16
SEEDS = 2**31  # the range of scikit-learn's random_state
# one message for every teacher: the number of the teacher, and its vote, are private
UNANSWERED = (
    "a teacher cannot answer these inputs by one of the classes. The cause depends on private data: do not show it to "
    "clients, and use an estimator that answers all inputs (with encoders that ignore unknown values)"
)


def assign(persons: list[Any], teachers: int, key: bytes) -> NDArray[np.int64]:
    """Draw the teacher of each row from the key and the row's person alone: (n,) numbers in 0 … K − 1.

    >>> rows = assign(["ann", "bob", "ann"], 100, b"key")
    >>> bool(rows[0] == rows[2]), bool(rows[0] == assign(["ann"], 100, b"key")[0])
    (True, True)
    """
    drawn = {person: _digest(key, "person", person) % teachers for person in dict.fromkeys(persons)}
    return np.array([drawn[person] for person in persons], dtype=np.int64)


def hold_out(persons: list[Any], share: float, key: bytes) -> NDArray[np.bool_]:
    """Draw the rows to hold out, each person with probability ``share``, from the key and the person alone: (n,).

    >>> hold_out(["ann", "ed", "ann"], 0.5, b"key").tolist()
    [False, True, False]
    """
    drawn = {person: _digest(key, "public", person) < share * 2**64 for person in dict.fromkeys(persons)}
    return np.array([drawn[person] for person in persons])


def draw_seeds(teachers: int, key: bytes) -> list[int]:
    """Draw the seed of each teacher's training, independent of all data."""
    return [_digest(key, "teacher", number) % SEEDS for number in range(teachers)]


def _digest(key: bytes, what: str, name: object) -> int:
    """Return 64 bits of a keyed digest; ``repr`` tells 1 from "1"."""
    return int.from_bytes(hashlib.blake2b(f"{what} {name!r}".encode(), key=key, digest_size=8).digest())


def check_classifier(name: str, estimator: Untyped) -> None:
    """Raise `ValueError` unless it is a classifier whose parameters are valid, before training and debits."""
    if isinstance(estimator, type) or not (hasattr(estimator, "fit") and hasattr(estimator, "predict")):
        advice = "pass an object, such as DecisionTreeClassifier()"
        if isinstance(estimator, list | tuple):
            advice = "fitted models go to PrivateVotingClassifier.from_fitted(models, overlap=1)"
        checks.fail(name, checks.Found(repr(estimator)[:200]), "a classifier with fit and predict", advice)
    kind = get_tags(estimator).estimator_type
    if kind not in {None, "classifier"}:
        found = checks.Found(f"a {kind}, {repr(estimator)[:200]}")
        checks.fail(name, found, "a classifier", "only a vote on classes has a plurality")
    parts = estimator.get_params().values() if hasattr(estimator, "get_params") else ()
    for part in (estimator, *parts):
        if isinstance(part, BaseEstimator) and hasattr(part, "_parameter_constraints"):
            try:
                part._validate_params()  # noqa: SLF001 (as its `fit` does)
            except ValueError as error:
                raise ValueError(f"{name} cannot be trained: {checks.one_line(error)}") from error


def fit_teachers(
    estimator: Untyped,
    X: Untyped,
    y: NDArray[Any],
    shards: Sequence[NDArray[np.int64]],
    classes: NDArray[Any],
    *,
    seeds: Sequence[int] | None,
    n_jobs: int | None,
) -> list[Any]:
    """Train K clones of an estimator, each on the rows of its shard; a worker gets no other rows.

    A seeded teacher without rows, or with rows of one class only, is a constant: that class, or the class of its
    number. ``seeds=None`` is for private estimators: their noise must not be seeded, and they are always fitted,
    because an exception for some shards would reveal private data. `ValueError` if a teacher cannot be trained, or
    all of them would be one object.
    """
    if clone(estimator) is estimator:
        advice = "clones share their fitted state, as FrozenEstimator does, so a person influences all teachers"
        checks.fail("the estimator", repr(estimator), "one whose clones are unfitted", advice)
    teachers: list[Any] = Parallel(n_jobs=n_jobs)(
        delayed(_fit_teacher)(
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


def _fit_teacher(
    teacher: Untyped, X: Untyped, y: NDArray[Untyped], number: int, seed: int | None, default: Untyped, parent: int
) -> Untyped:
    if seed is not None:
        present = np.unique(y)
        if len(present) < 2:
            return constant_classifier(present if len(present) else np.array([default]))
        set_seed(teacher, seed)
    if os.getpid() != parent:  # None seeds from the operating system
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (estimators without a random_state use it)
        if "torch" in sys.modules:
            torch = sys.modules["torch"]
            torch.seed() if seed is None else torch.manual_seed(seed)
    try:
        return teacher.fit(X, y)
    except MemoryError:
        raise
    except Exception as error:  # a teacher is any code
        raise ValueError(
            f"teacher {number} could not be trained on its {len(y)} rows ({checks.one_line(error)}): take fewer "
            "teachers, or an estimator that learns from few rows"
        ) from error


def constant_classifier(label: NDArray[Untyped]) -> DummyClassifier:
    """Return a constant classifier: the class of (1,) labels, of any type."""
    # ``strategy="constant"`` takes integers and text only
    return DummyClassifier(strategy="most_frequent").fit([[0]], label)


def set_seed(estimator: Untyped, seed: int) -> Untyped:
    """Set every ``random_state`` of an estimator and of its parts, and return it."""
    names = [name for name in estimator.get_params() if name.rpartition("__")[2] == "random_state"]
    return estimator.set_params(**dict.fromkeys(names, seed))


def count_votes(teachers: Sequence[Any], X: Untyped, classes: NDArray[Any], *, n_jobs: int | None) -> NDArray[np.int64]:
    """Count the votes of all teachers on Q inputs: (Q, C), **private data**."""
    total = np.zeros((_num_samples(X), len(classes)), dtype=np.int64)
    rows = np.arange(len(total))
    for codes in Parallel(n_jobs=n_jobs)(delayed(_codes)(teacher, X, classes) for teacher in teachers):
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
