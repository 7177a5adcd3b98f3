"""What the three estimators share: inputs, classes, shards, and teachers."""

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

from darrm.errors import checks
from darrm.estimators import shards
from darrm.estimators.teachers import check_classifier, counts, trained
from darrm.estimators.texts import reader_of, texts_of
from darrm.system.extras import Untyped
from darrm.system.people import persons_of
from darrm.system.progress import StatusLine, status_line


class Ensemble(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Inputs, classes, shards and teachers of an estimator whose teachers are clones of one parameter."""

    teacher_parameter = "estimator"
    seeded = True  # whether random_state governs the teachers' training, too
    classes: Any
    n_jobs: int | None
    random_state: Any
    verbose: int

    def __sklearn_tags__(self) -> Untyped:
        """Return scikit-learn's tags: what the teachers take, and that answers are drawn."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # an answer is drawn anew each time
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
        """Leave the estimator as it was where a block fails, with its budget, and show where the block stands."""
        before = dict(self.__dict__)
        try:
            with status_line(quiet=not self.verbose) as line:
                yield line
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

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

    def _data(self, X: Untyped, y: Untyped) -> tuple[Untyped, NDArray[Untyped]]:
        check_classifier(self.teacher_parameter, getattr(self, self.teacher_parameter))
        if y is None:
            name = type(self).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        inputs = self._inputs(X, reset=True)
        labels = column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name="y")
        check_consistent_length(inputs, labels)
        present = _sorted("y", labels)
        check_classification_targets(labels)
        self.classes_ = present if self.classes is None else self._said_classes()
        missing = present[~np.isin(present, self.classes_)]
        if len(missing):
            advice = "the list of classes is public: say all of them"
            checks.fail("y", missing[0].item(), f"one of the classes {self.classes_.tolist()[:10]}", advice)
        if len(self.classes_) < 2:
            checks.fail("y", "1 class", "of two classes or more", "with one class there is nothing to vote on")
        return inputs, labels

    def _said_classes(self) -> NDArray[Untyped]:
        said = np.asarray(self.classes)
        assert_all_finite(said, input_name="classes")
        return _sorted("classes", said)

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
        """Say that the labels of a vote's last `predict`, or of a student's `fit`, are safe: the ledger drops them."""
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


def _sorted(name: str, labels: NDArray[Untyped]) -> NDArray[Untyped]:
    """Return each label once, in order; `ValueError` where labels of several types have none."""
    try:
        return np.unique(labels)
    except TypeError:
        return checks.fail(name, checks.Found("labels of several types, or None"), "all numbers, or all text")


def check_enough_rows(X: Untyped, teachers: int) -> None:
    """Raise `ValueError` for more teachers than rows, most of whom would have nothing to learn from."""
    checks.integer_at_least(1, n_teachers=teachers, advice="how many shards the rows are dealt to")
    if teachers > _num_samples(X):
        advice = "take fewer teachers: with some ten rows and more for each of them they learn something"
        checks.fail("n_teachers", teachers, f"at most the number of rows, n_samples={_num_samples(X)}", advice)


def check_nothing_else(refused: Mapping[str, Untyped]) -> None:
    """Raise for what no `fit` takes: `ValueError` for weights, in words, and `TypeError` for the rest."""
    if refused.get("sample_weight") is not None:
        advice = "a guarantee is about people who count alike; groups= says which rows are one person's"
        checks.fail("sample_weight", checks.Found("weights"), "left out", advice)
    others = [name for name in refused if name != "sample_weight"]
    if others:
        raise TypeError(f"fit() got an unexpected keyword argument {others[0]!r}")
