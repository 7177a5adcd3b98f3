"""The base of the three estimators: inputs, classes, shards, and teachers."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite, check_random_state, column_or_1d, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, check_consistent_length, check_is_fitted, validate_data

from darrm.estimators import shards
from darrm.estimators.teachers import check_classifier, counts, trained
from darrm.estimators.texts import reader_of, texts_of
from darrm.util import checks
from darrm.util.extras import Untyped
from darrm.util.people import persons_of
from darrm.util.progress import StatusLine, status_line
from darrm.votes.vote_arrays import class_names


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Write scikit-learn's messages of several lines in one."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if "\n" not in str(error):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(checks.one_line(error)) from error


class Ensemble(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Inputs, classes, shards and teachers of an estimator whose teachers are clones of one parameter."""

    teacher_parameter = "estimator"
    seeded = True  # whether random_state governs the teachers' training
    classes: Any
    n_jobs: int | None
    random_state: Any
    verbose: int

    def __sklearn_tags__(self) -> Untyped:
        """Return scikit-learn's tags: the inputs of the teachers, and random answers."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # each answer is a new draw
        tags.classifier_tags.poor_score = True  # a small budget may leave little but noise
        teacher = getattr(self, self.teacher_parameter)
        if teacher is not None:
            given = get_tags(teacher)
            tags.input_tags.sparse = given.input_tags.sparse
            tags.input_tags.allow_nan = given.input_tags.allow_nan
            if reader_of(teacher) is not None:
                tags.input_tags.string, tags.input_tags.two_d_array = True, False
            if given.classifier_tags is not None:
                tags.classifier_tags.multi_class = given.classifier_tags.multi_class
        return tags

    @contextmanager
    def _unchanged_on_failure(self) -> Iterator[StatusLine]:
        """Restore the estimator and its budget if a block fails, and show progress."""
        before = dict(self.__dict__)
        try:
            with status_line(quiet=not self.verbose) as line:
                yield line
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    @_in_one_line()
    def _inputs(self, X: Untyped, *, reset: bool) -> Untyped:
        reader = reader_of(getattr(self, self.teacher_parameter))
        if reader is not None:
            for name in ("n_features_in_", "feature_names_in_"):  # of an earlier fit; texts have no columns
                self.__dict__.pop(name, None)
            return texts_of(X, reader)
        if _is_text(X):
            advice = "let the teacher be a pipeline that begins with what reads texts, such as a TfidfVectorizer"
            checks.fail("X", checks.Found("a list of texts"), "a table, one row for each sample", advice)
        if hasattr(X, "columns") and hasattr(X, "shape"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if not len(X):
                checks.fail("X", "0 sample(s)", "at least one row")
            return X
        tags = get_tags(self).input_tags
        sparse = ("csr",) if tags.sparse else False
        return validate_data(self, X, reset=reset, accept_sparse=sparse, ensure_all_finite=not tags.allow_nan)

    @_in_one_line()
    def _data(self, X: Untyped, y: Untyped) -> tuple[Untyped, NDArray[Untyped]]:
        check_classifier(self.teacher_parameter, getattr(self, self.teacher_parameter))
        if y is None:
            name = type(self).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        inputs = self._inputs(X, reset=True)
        check_one_type("y", y)
        labels = column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name="y")
        check_consistent_length(inputs, labels)
        present = _sorted("y", labels)
        check_classification_targets(labels)
        self.classes_ = present if self.classes is None else public_classes(self.classes)
        codes_of(present, self.classes_)
        if len(self.classes_) < 2:
            checks.fail("y", "1 class", "of two classes or more", "with one class there is nothing to vote on")
        return inputs, labels

    def _key(self) -> bytes:
        seed, size = self.random_state, shards.KEY_BYTES  # numpy's global generator may be seeded
        return secrets.token_bytes(size) if seed is None else check_random_state(seed).bytes(size)

    def _teach(self, X: Untyped, y: NDArray[Untyped], groups: Untyped, teachers: int) -> list[Untyped]:
        persons, key = persons_of(_num_samples(X), groups), self._key()
        teacher_of = shards.assigned(persons, teachers, key)
        return trained(
            getattr(self, self.teacher_parameter),
            X,
            y,
            [np.flatnonzero(teacher_of == number) for number in range(teachers)],
            self.classes_,
            seeds=shards.seeds(teachers, key) if self.seeded else None,
            n_jobs=self.n_jobs,
        )

    def acknowledge(self) -> None:
        """Confirm the labels of a vote's last `predict`, or of a student's `fit`: the ledger deletes them."""
        check_is_fitted(self)
        handle = getattr(self, "_spending", None)
        if handle is not None:
            handle.acknowledge(getattr(self, "_entry", 0))

    def _remember(self, groups: Untyped) -> None:
        self._grouped, self._named = groups is not None, self.classes is not None
        self._unseeded = self.random_state is None

    def _counts(self, teachers: list[Untyped], X: Untyped) -> NDArray[np.int64]:
        """Count the teachers' votes on checked inputs: private."""
        return counts(teachers, X, self.classes_, n_jobs=self.n_jobs)


def _is_text(X: Untyped) -> bool:
    listed = isinstance(X, list | tuple | str) or getattr(X, "ndim", 0) == 1
    return listed and isinstance(next(iter(X), None), str | bytes)


_ONE_TYPE = "all numbers, or all text"


def check_one_type(name: str, labels: Untyped) -> None:
    """Raise `ValueError` for a list of numbers and text, because numpy converts it to text."""
    is_free = isinstance(labels, list | tuple) or getattr(getattr(labels, "dtype", None), "kind", "") == "O"
    if is_free and len({isinstance(label, str) for label in labels}) > 1:
        checks.fail(name, checks.Found("labels of several types, or None"), _ONE_TYPE)


def public_classes(classes: Untyped) -> NDArray[Untyped]:
    """Return public classes in order: a sorted list, or 0 … C - 1 for a number C."""
    names = class_names(classes.item() if isinstance(classes, np.ndarray) and not classes.ndim else classes)
    check_one_type("classes", names)
    return _sorted("classes", np.asarray(names))


def check_fitted(models: list[Untyped], classes: Untyped) -> NDArray[Untyped]:
    """Return the public classes of fitted classifiers: a given list, or the classes that all of them know."""
    if not models:
        checks.fail("models", models, "at least one fitted classifier")
    for model in models:
        check_classifier("models", model)
        check_is_fitted(model)
    if classes is not None:
        return public_classes(classes)
    known = [np.asarray(model.classes_) for model in models]
    if not all(np.array_equal(known[0], each) for each in known):
        advice = "the list is public: pass all of them"
        checks.fail("classes", None, "given, because the models know different ones", advice)
    return known[0]


def codes_of(labels: NDArray[Untyped], classes: NDArray[Untyped]) -> NDArray[np.int64]:
    """Return the index of each label's class; `ValueError` for an unknown label."""
    number_of = {name: number for number, name in enumerate(classes.tolist())}
    listed = labels.tolist()
    missing = next((label for label in listed if label not in number_of), None)
    if missing is not None:
        advice = "the list of classes is public: pass all of them"
        if classes.dtype.kind in "OU" and missing in range(len(classes)):
            who = "VotingClassifier and StackingClassifier"
            advice = f"{who} pass numbers for names: use classes={len(classes)} in them"
        checks.fail("y", missing, f"one of the classes {classes.tolist()[:10]}", advice)
    return np.array([number_of[label] for label in listed], dtype=np.int64)


def _sorted(name: str, labels: NDArray[Untyped]) -> NDArray[Untyped]:
    """Return each label once, in order; `ValueError` for labels of several types."""
    try:
        return np.unique(labels)
    except TypeError:
        return checks.fail(name, checks.Found("labels of several types, or None"), _ONE_TYPE)


def check_enough_rows(X: Untyped, teachers: int) -> None:
    """Raise `ValueError` for more teachers than rows."""
    checks.integer_at_least(1, n_teachers=teachers, advice="how many shards the rows are dealt to")
    if teachers > _num_samples(X):
        advice = "take fewer teachers: each needs some ten rows or more"
        checks.fail("n_teachers", teachers, f"at most the number of rows, n_samples={_num_samples(X)}", advice)


def check_nothing_else(refused: Mapping[str, Untyped]) -> None:
    """Refuse other arguments of `fit`: `ValueError` for weights, `TypeError` for the rest."""
    if refused.get("sample_weight") is not None:
        advice = "the guarantee is about people of equal weight; groups= names the person of each row"
        checks.fail("sample_weight", checks.Found("weights"), "left out", advice)
    others = [name for name in refused if name != "sample_weight"]
    if others:
        raise TypeError(f"fit() got an unexpected keyword argument {others[0]!r}")
