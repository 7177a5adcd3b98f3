"""The base of the estimators: inputs, classes, and one teacher per shard; a keyed hash assigns people to teachers.

The guarantee of an ensemble needs ``overlap=1``: *one person's data influence one teacher*. Shards that are balanced by
label violate it: one changed label moves many people. So a keyed hash of the person alone determines the teacher:

    teacher(p) = H(key, p) mod K,        key from ``random_state``, K = ``n_teachers``.

**Theorem.** Let D and D' differ in one person p: p's rows are replaced, or (with ``groups``) p is in one of them only.
For every key all shards except that of teacher(p) hold the same rows in the same order. *Proof.* A row's teacher is a
function of the key and the row's person. The rows of all others are the same in D and D', in the same order. ∎

The seed of a teacher depends on the key and the teacher's number only, so all other teachers are equal to the bit, and
at most one of K votes changes. `tests/estimators/test_ensemble.py` guards both.

Without ``groups`` every row is a person, identified by its position, and neighbors differ in the content of one row.
Removing a row shifts all later positions. A secret key (``random_state=None``) covers this too: hashes of different
positions are independent uniform draws, so all other rows have independent uniform draws with or without p; couple
them, and only p's shard differs. With a *published* key, use ``groups`` if people may be added or removed.

Forked workers share the state of their parent's random generators: private models would draw the same noise, and their
difference would have none. So each worker seeds these generators for each model: from the operating system for a
private model, by its seed for a teacher.
"""

import hashlib
import math
import os
import random
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.utils import _safe_indexing, assert_all_finite, check_random_state, column_or_1d, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples, check_consistent_length, check_is_fitted, validate_data

from darrm.util import checks
from darrm.util.extras import Untyped
from darrm.util.progress import StatusLine, status_line
from darrm.votes.vote_arrays import class_names

KEY_BYTES = 16
SEED_RANGE = 2**31  # the range of scikit-learn's random_state
# one message for every teacher: the number of the teacher, and its vote, are private
UNANSWERED_MESSAGE = (
    "a teacher cannot answer these inputs by one of the classes. The cause depends on private data: do not show it to "
    "clients, and use an estimator that answers all inputs (with encoders that ignore unknown values)"
)
_ONE_TYPE = "all numbers, or all text"
_MIXED_TYPES = checks.Text("labels of several types, or None")


@contextmanager
def _shorten_errors() -> Iterator[None]:
    """Write scikit-learn's messages of several lines in one."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if "\n" not in str(error):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(checks.one_line(error)) from error


class Ensemble(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Inputs, classes, shards and teachers; a dataclass for ``__init__``, with scikit-learn's equality and printing."""

    teacher_parameter = "estimator"
    count_parameter = "n_teachers"
    seeded = True  # whether random_state governs the teachers' training
    classes: Untyped
    n_jobs: int | None
    random_state: Untyped
    verbose: int

    def __sklearn_tags__(self) -> Untyped:
        """Return scikit-learn's tags: the inputs of the teachers, and random answers."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # each answer is a new draw
        tags.classifier_tags.poor_score = True  # a small budget may leave little but noise
        teacher = self._teacher
        if hasattr(teacher, "__sklearn_tags__") and not isinstance(teacher, type):
            teacher_tags = get_tags(teacher)
            tags.input_tags.sparse = teacher_tags.input_tags.sparse
            tags.input_tags.allow_nan = teacher_tags.input_tags.allow_nan
            if find_vectorizer(teacher) is not None:
                tags.input_tags.string, tags.input_tags.two_d_array = True, False
            if teacher_tags.classifier_tags is not None:
                tags.classifier_tags.multi_class = teacher_tags.classifier_tags.multi_class
        return tags

    @property
    def _teacher(self) -> Untyped:
        return getattr(self, self.teacher_parameter)

    def _teacher_count(self, rows: float = math.inf) -> int:
        count = getattr(self, self.count_parameter)
        checks.integer_at_least(1, **{self.count_parameter: count}, advice="how many shards the rows are dealt to")
        if count > rows:
            advice = "take fewer teachers: each needs some ten rows or more"
            checks.fail(self.count_parameter, count, f"at most the number of rows, n_samples={rows}", advice)
        return int(count)

    @contextmanager
    def _unchanged_on_failure(self) -> Iterator[StatusLine]:
        """Restore the estimator and its budget if a block fails, and show progress."""
        saved_state = dict(self.__dict__)
        try:
            with status_line(quiet=not self.verbose) as line:
                yield line
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(saved_state)
            raise

    @_shorten_errors()
    def _check_inputs(self, X: Untyped, *, reset: bool) -> Untyped:
        reader = find_vectorizer(self._teacher)
        if reader is not None:
            for name in ("n_features_in_", "feature_names_in_"):  # of an earlier fit; texts have no columns
                self.__dict__.pop(name, None)
            return read_texts(X, reader)
        is_list = isinstance(X, list | tuple | str) or getattr(X, "ndim", 0) == 1
        if is_list and isinstance(next(iter(X), None), str | bytes):
            advice = "let the teacher be a pipeline that begins with what reads texts, such as a TfidfVectorizer"
            checks.fail("X", checks.Text("a list of texts"), "a table, one row for each sample", advice)
        if hasattr(X, "columns") and hasattr(X, "shape"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if not len(X):
                checks.fail("X", "0 sample(s)", "at least one row")
            return X
        tags = get_tags(self).input_tags
        sparse = ("csr",) if tags.sparse else False
        return validate_data(self, X, reset=reset, accept_sparse=sparse, ensure_all_finite=not tags.allow_nan)

    @_shorten_errors()
    def _check_data(self, X: Untyped, y: Untyped) -> tuple[Untyped, NDArray[Untyped]]:
        check_classifier(self.teacher_parameter, self._teacher)
        if y is None:
            name = type(self).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        inputs = self._check_inputs(X, reset=True)
        check_one_type("y", y)
        labels = column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name="y")
        check_consistent_length(inputs, labels)
        label_names = _sort_labels("y", labels)
        check_classification_targets(labels)
        self.classes_ = label_names if self.classes is None else public_classes(self.classes)
        encode_labels(label_names, self.classes_)
        if len(self.classes_) < 2:
            checks.fail("y", "1 class", "of two classes or more", "with one class there is nothing to vote on")
        return inputs, labels

    def _make_key(self) -> bytes:
        seed = self.random_state  # numpy's global generator may be seeded
        return secrets.token_bytes(KEY_BYTES) if seed is None else check_random_state(seed).bytes(KEY_BYTES)

    def _train_teachers(
        self, X: Untyped, y: NDArray[Untyped], persons: list[Untyped], teachers: int, held_out: Untyped = False
    ) -> list[Untyped]:
        """Train clones of the teacher, each on the rows of its shard; a worker gets no other rows.

        A seeded teacher without rows, or of one class only, is a constant: that class, or the class of its number.
        Private models have no seed, and are always fitted: an exception for some shards would reveal private data.
        """
        if clone(self._teacher) is self._teacher:
            advice = "clones share their fitted state, as FrozenEstimator does, so a person influences all teachers"
            checks.fail("the estimator", repr(self._teacher), "one whose clones are unfitted", advice)
        key = self._make_key()
        assignment = np.where(held_out, -1, assign(persons, teachers, key))
        shards = [np.flatnonzero(assignment == number) for number in range(teachers)]
        models: list[Untyped] = Parallel(n_jobs=self.n_jobs)(
            delayed(_fit_teacher)(
                clone(self._teacher),
                _safe_indexing(X, rows),
                y[rows],
                number,
                keyed_digest(key, "teacher", number) % SEED_RANGE if self.seeded else None,  # it depends on no data
                self.classes_[number % len(self.classes_)],
                os.getpid(),
            )
            for number, rows in enumerate(shards)
        )
        return models

    def _store_facts(self, groups: Untyped) -> None:
        self._grouped, self._named = groups is not None, self.classes is not None
        self._unseeded = self.random_state is None

    def _count_votes(self, teachers: list[Untyped], X: Untyped) -> NDArray[np.int64]:
        """Count all teachers' votes on Q checked inputs: (Q, C), **private data**."""
        total = np.zeros((_num_samples(X), len(self.classes_)), dtype=np.int64)
        rows = np.arange(len(total))
        for codes in Parallel(n_jobs=self.n_jobs)(
            delayed(_predict_codes)(teacher, X, self.classes_) for teacher in teachers
        ):
            total[rows, codes] += 1
        return total

    def acknowledge(self) -> None:
        """Confirm the labels of a vote's last `predict`, or of a student's `fit`: the ledger deletes them."""
        check_is_fitted(self)
        handle = getattr(self, "_spending", None)
        if handle is not None:
            handle.acknowledge(getattr(self, "_entry", 0))


def check_one_type(name: str, labels: Untyped) -> None:
    """Refuse lists of numbers and text, which numpy converts to text."""
    may_mix_types = isinstance(labels, list | tuple) or getattr(getattr(labels, "dtype", None), "kind", "") == "O"
    if may_mix_types and len({isinstance(label, str) for label in labels}) > 1:
        checks.fail(name, _MIXED_TYPES, _ONE_TYPE)


def public_classes(classes: Untyped) -> NDArray[Untyped]:
    """Return public classes in order: a sorted list, or 0 … C - 1 for a number C."""
    names = class_names(classes.item() if isinstance(classes, np.ndarray) and not classes.ndim else classes)
    check_one_type("classes", names)
    return _sort_labels("classes", np.asarray(names))


def encode_labels(labels: NDArray[Untyped], classes: NDArray[Untyped]) -> NDArray[np.int64]:
    codes = {name: number for number, name in enumerate(classes.tolist())}
    label_list = labels.tolist()
    missing = next((label for label in label_list if label not in codes), None)
    if missing is not None:
        advice = "the list of classes is public: pass all of them"
        if classes.dtype.kind in "OU" and missing in range(len(classes)):
            callers = "VotingClassifier and StackingClassifier"
            advice = f"{callers} pass numbers for names: use classes={len(classes)} in them"
        checks.fail("y", missing, f"one of the classes {classes.tolist()[:10]}", advice)
    return np.array([codes[label] for label in label_list], dtype=np.int64)


def _sort_labels(name: str, labels: NDArray[Untyped]) -> NDArray[Untyped]:
    try:
        return np.unique(labels)
    except TypeError:
        return checks.fail(name, _MIXED_TYPES, _ONE_TYPE)


def check_no_others(arguments: Mapping[str, Untyped]) -> None:
    """Refuse other arguments of `fit`: `ValueError` for weights, `TypeError` for the rest."""
    if arguments.get("sample_weight") is not None:
        advice = "the guarantee is about people of equal weight; groups= names the person of each row"
        checks.fail("sample_weight", checks.Text("weights"), "left out", advice)
    unknown_names = [name for name in arguments if name != "sample_weight"]
    if unknown_names:
        raise TypeError(f"fit() got an unexpected keyword argument {unknown_names[0]!r}")


def find_vectorizer(estimator: Untyped) -> Untyped:
    """Return the vectorizer at the start of an estimator; None if it takes tables."""
    while isinstance(estimator, Pipeline) or hasattr(estimator, "estimator"):  # a search over pipelines holds one
        estimator = estimator.steps[0][1] if isinstance(estimator, Pipeline) else estimator.estimator
    first = estimator
    while isinstance(first, Pipeline | FeatureUnion):
        first = (first.steps if isinstance(first, Pipeline) else first.transformer_list)[0][1]
    if not hasattr(first, "__sklearn_tags__"):  # a step that was left out, or is of another library
        return None
    tags = get_tags(first).input_tags
    return estimator if tags.string and not tags.two_d_array else None


def read_texts(X: Untyped, reader: Untyped) -> NDArray[np.object_]:
    allowed, advice = "a list of texts, one for each sample", f"the teacher begins with {type(reader).__name__}"
    if isinstance(X, str):
        checks.fail("X", checks.Text("one text"), allowed, "put it into a list")
    try:
        texts = np.asarray(X, dtype=object)
    except ValueError:  # lists of unequal tables
        texts = np.empty((len(X), 0), dtype=object)
    if texts.ndim != 1:
        shape = getattr(X, "shape", texts.shape)
        checks.fail("X", checks.Text(f"a {type(X).__name__} of shape {shape}"), allowed, advice)
    for index, text in enumerate(texts):
        if not isinstance(text, str):  # the value may be private
            description = checks.Text(f"{type(text).__name__} as number {index}")
            checks.fail("X", description, allowed, f"{advice}; write missing texts as ''")
    if not len(texts):
        checks.fail("X", checks.Text("0 sample(s)"), "at least one text")
    return texts


def make_private_pipeline(*steps: Untyped) -> Untyped:
    """Move steps that learn from data, such as a scaler, into the teachers; the last step is an estimator of these.

    In ``make_pipeline(StandardScaler(), PrivateVotingClassifier(tree))`` the scaler is fitted to all rows: one person
    influences all teachers, and the guarantee is void, undetected. Here every teacher's steps are fitted to its shard,
    and those of a `PATEClassifier`'s student to public inputs.

    Returns a clone of the last step. `ValueError` unless it is a `PrivateVotingClassifier` or a `PATEClassifier`, and
    for a student of images. (Noise of private models does not cover a non-private step.)

    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from darrm.estimators import PrivateVotingClassifier
    >>> make_private_pipeline(StandardScaler(), PrivateVotingClassifier(DecisionTreeClassifier(), 9)).estimator
    Pipeline(steps=[('standardscaler', StandardScaler()),
                    ('decisiontreeclassifier', DecisionTreeClassifier())])
    """
    *first_steps, ensemble = steps or (None,)
    if not isinstance(ensemble, Ensemble) or not ensemble.seeded:
        advice = "steps in front of models that are private themselves must be private, too, and a part of the models"
        allowed = "a PrivateVotingClassifier or a PATEClassifier"
        checks.fail("the last step", checks.Text(type(ensemble).__name__), allowed, advice)
    if isinstance(getattr(ensemble, "student", None), str):
        advice = "images are no input for steps; put the steps into the teacher, as a pipeline"
        checks.fail("student", ensemble.student, "a classifier behind these steps, or None", advice)
    copy = clone(ensemble)
    for name in (copy.teacher_parameter, "student"):
        if getattr(copy, name, None) is not None:
            copy.set_params(**{name: make_pipeline(*map(clone, first_steps), getattr(copy, name))})
    return copy


def assign(persons: list[Untyped], teachers: int, key: bytes) -> NDArray[np.int64]:
    """Assign a teacher to each row by the key and the row's person alone: (n,) numbers in 0 … K − 1."""
    numbers = {person: keyed_digest(key, "person", person) % teachers for person in dict.fromkeys(persons)}
    return np.array([numbers[person] for person in persons], dtype=np.int64)


def keyed_digest(key: bytes, what: str, name: object) -> int:
    """Return 64 bits of a keyed digest; ``repr`` distinguishes 1 from "1"."""
    return int.from_bytes(hashlib.blake2b(f"{what} {name!r}".encode(), key=key, digest_size=8).digest())


def check_classifier(name: str, estimator: Untyped) -> None:
    """Refuse all but classifiers with valid parameters, before training and debits."""
    if isinstance(estimator, type) or not (hasattr(estimator, "fit") and hasattr(estimator, "predict")):
        advice = "pass an object, such as DecisionTreeClassifier()"
        if isinstance(estimator, list | tuple):
            advice = "fitted models go to PrivateVotingClassifier.from_fitted(models, overlap=1)"
        checks.fail(name, checks.Text(repr(estimator)[:200]), "a classifier with fit and predict", advice)
    kind = get_tags(estimator).estimator_type
    if kind not in {None, "classifier"}:
        description = checks.Text(f"a {kind}, {repr(estimator)[:200]}")
        checks.fail(name, description, "a classifier", "only a vote on classes has a plurality")
    parameters = estimator.get_params().values() if hasattr(estimator, "get_params") else ()
    for value in (estimator, *parameters):
        if isinstance(value, BaseEstimator) and hasattr(value, "_parameter_constraints"):
            try:
                value._validate_params()  # noqa: SLF001 (as its `fit` does)
            except ValueError as error:
                raise ValueError(f"{name} cannot be trained: {checks.one_line(error)}") from error


def _fit_teacher(
    teacher: Untyped, X: Untyped, y: NDArray[Untyped], number: int, seed: int | None, default: Untyped, parent: int
) -> Untyped:
    if seed is not None:
        label_names = np.unique(y)
        if len(label_names) < 2:
            return constant_classifier(label_names if len(label_names) else np.array([default]))
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
    except Exception as error:  # a teacher may run any code
        raise ValueError(
            f"teacher {number} could not be trained on its {len(y)} rows ({checks.one_line(error)}): take fewer "
            "teachers, or an estimator that learns from few rows"
        ) from error


def constant_classifier(label: NDArray[Untyped]) -> DummyClassifier:
    # ``strategy="constant"`` takes integers and text only
    return DummyClassifier(strategy="most_frequent").fit([[0]], label)


def set_seed(estimator: Untyped, seed: int) -> Untyped:
    names = [name for name in estimator.get_params() if name.rpartition("__")[2] == "random_state"]
    return estimator.set_params(**dict.fromkeys(names, seed))


def _predict_codes(teacher: Untyped, X: Untyped, classes: NDArray[Untyped]) -> NDArray[np.int64]:
    try:
        answers = np.asarray(teacher.predict(X))
        codes = np.minimum(np.searchsorted(classes, answers), len(classes) - 1)
        if codes.shape == (_num_samples(X),) and np.array_equal(classes[codes], answers):
            return codes
    except Exception as error:
        raise ValueError(UNANSWERED_MESSAGE) from error
    raise ValueError(UNANSWERED_MESSAGE)
