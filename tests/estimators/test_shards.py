"""One person reaches one teacher: on neighboring data all other teachers are the same, to the bit."""

import pickle
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
import joblib
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeClassifier

from darrm.estimators import PATEClassifier, PrivateModelsVotingClassifier, PrivateVotingClassifier
from darrm.estimators.ensemble import assign
from darrm.noisy_max.selection import PermuteAndFlip
from darrm.util.people import identify_persons

KEY = b"0123456789abcdef"
TEACHERS = 12


class Unknown:
    """As pandas.NA: whether it equals itself is not known."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        raise TypeError("boolean value of NA is ambiguous")


class OfOneDraw(DummyClassifier):  # type: ignore[misc]  # scikit-learn ships no types
    """A model whose noise is numpy's, as that of many libraries."""

    def fit(self, X: Any, y: Any) -> Any:
        self.noise = np.random.laplace(), random.random()  # noqa: NPY002, S311 (what this is about)
        return super().fit(X, y)


def fitted(X: Any, y: Any, groups: Any = None) -> PrivateVotingClassifier:
    vote = PrivateVotingClassifier(
        DecisionTreeClassifier(max_features=2),
        TEACHERS,
        epsilon=20,
        max_queries=5,
        aggregator=PermuteAndFlip(1.0),
        random_state=3,
        classes=[0, 1, 2],
    )
    return vote.fit(X, y, groups=groups)


def changed(one: PrivateVotingClassifier, other: PrivateVotingClassifier) -> list[int]:
    both = zip(one.teachers_, other.teachers_, strict=True)
    return [number for number, (a, b) in enumerate(both) if pickle.dumps(a) != pickle.dumps(b)]


def test_a_replaced_row_changes_one_teacher_whatever_its_label_becomes() -> None:
    X, y = load_wine(return_X_y=True)
    before = fitted(X, y)
    expected = assign(identify_persons(len(X), None), TEACHERS, np.random.RandomState(3).bytes(16))
    for row in (0, 77, 177):
        inputs, labels = X.copy(), y.copy()
        inputs[row], labels[row] = -1000.0, (y[row] + 1) % 3
        assert changed(before, fitted(inputs, labels)) == [expected[row]]


def test_a_person_who_leaves_with_all_rows_changes_one_teacher() -> None:
    X, y = load_wine(return_X_y=True)
    people = [f"person {row // 3}" for row in range(len(X))]
    stays = np.array([person != "person 20" for person in people])
    left = fitted(X[stays], y[stays], [person for person in people if person != "person 20"])
    assert len(changed(fitted(X, y, people), left)) == 1


@pytest.mark.statistical
def test_shards_are_drawn_evenly_and_by_the_key() -> None:
    # a chi-square of 9 degrees of freedom is above 48 with probability 2.5e-7
    rows = 20_000
    sizes = np.bincount(assign(identify_persons(rows, None), 10, KEY), minlength=10)
    assert np.sum((sizes - rows / 10) ** 2 / (rows / 10)) < 48.0
    assert not np.array_equal(
        assign(identify_persons(50, None), 10, KEY), assign(identify_persons(50, None), 10, KEY[::-1])
    )


@pytest.mark.parametrize("newcomer", ["ann", 2.5, True, 2**70, "a name that is longer than all others"])
def test_how_one_person_is_named_moves_nobody_else(newcomer: Any) -> None:
    before = assign(identify_persons(4, [1, 2, 3, "bob"]), 10**6, KEY)
    assert np.array_equal(assign(identify_persons(5, [1, 2, 3, "bob", newcomer]), 10**6, KEY)[:4], before)
    numbers = assign(identify_persons(3, [1, 2, 3]), 10**6, KEY)
    for others in ([1, 2, 3, newcomer], [1.0, np.int8(2), 3, newcomer], np.array([1.0, 2.0, 3.0, 4.5])):
        assert np.array_equal(assign(identify_persons(4, others), 10**6, KEY)[:3], numbers)


def test_numbers_and_their_words_are_different_people_and_seeds_differ() -> None:
    assert assign([1, "1"], 10**6, KEY)[0] != assign([1, "1"], 10**6, KEY)[1]
    X, y = load_wine(return_X_y=True)
    vote = PrivateVotingClassifier(DecisionTreeClassifier(), 10, max_queries=1, random_state=0).fit(X, y)
    assert len({teacher.random_state for teacher in vote.teachers_}) == 10


TWICE = np.empty(2, dtype=object)
TWICE[:] = [("ann", float("nan")), ("ann", float("nan"))]
NO_NAMES = (
    TWICE,
    [object(), object()],
    np.ma.array([1, 2], mask=[False, True]),
    [Decimal("sNaN"), 1],
    [1.0, np.nan],
    [{}, 1],
)


@pytest.mark.parametrize("groups", [["a"], [["a"], ["b"]], ["a", None], [Unknown(), 1], *NO_NAMES])
def test_groups_that_name_nobody_are_refused(groups: Any) -> None:
    with pytest.raises(ValueError, match="groups must be"):
        identify_persons(2, np.asarray(groups, dtype=object) if groups[-1] is None else groups)


def test_the_teachers_noise_is_their_own_and_that_of_labels_is_not_seeded() -> None:
    X, y = load_wine(return_X_y=True)
    # 180 coins of nearly even odds: equal with probability below 1e-60 if they are drawn anew, and always if seeded
    votes = [
        PrivateVotingClassifier(
            DecisionTreeClassifier(), 4, epsilon=0.01, max_queries=178, aggregator=PermuteAndFlip(5e-5), random_state=0
        ).fit(X, y)
        for _ in range(2)
    ]
    assert changed(*votes) == []
    assert not np.array_equal(votes[0].predict(X), votes[1].predict(X))


@pytest.mark.slow
def test_an_estimator_whose_clones_are_one_object_is_refused() -> None:
    class Shared(DecisionTreeClassifier):  # type: ignore[misc]  # scikit-learn ships no types
        def __sklearn_clone__(self) -> Any:
            return self

    X, y = load_wine(return_X_y=True)
    for each in (Shared(), FrozenEstimator(DecisionTreeClassifier().fit(X, y))):
        with pytest.raises(ValueError, match="one whose clones are unfitted"):
            PrivateVotingClassifier(each, 5, epsilon=20, max_queries=5).fit(X, y)


def test_a_fitted_student_holds_neither_teachers_nor_votes() -> None:
    X, y = load_wine(return_X_y=True)
    pate = PATEClassifier(DecisionTreeClassifier(), n_teachers=5, epsilon=5, random_state=0).fit(X, y, X[:40])
    assert not hasattr(pate, "teachers_")
    assert b"DecisionTree" not in pickle.dumps({name: value for name, value in vars(pate).items() if name != "teacher"})


def test_the_noise_of_private_models_is_never_seeded_and_every_shard_is_fitted() -> None:
    X, y = load_wine(return_X_y=True)
    settings: dict[str, Any] = {"epsilon_each": 1, "random_state": 0, "classes": [0, 1, 2]}
    # the first 59 rows are of class 0: every shard of these has one class only
    models = PrivateModelsVotingClassifier(DecisionTreeClassifier(), 4, **settings).fit(X[:59], y[:59])
    assert {type(each).__name__ for each in models.teachers_} == {"DecisionTreeClassifier"}
    assert {each.random_state for each in models.teachers_} == {None}
    plain = fitted(X, y)
    assert None not in {getattr(each, "random_state", 0) for each in plain.teachers_}
    constant = fitted(X[:59], y[:59])
    assert {type(each).__name__ for each in constant.teachers_} == {"DummyClassifier"}


def forked(ensemble: Any) -> list[Any]:
    """Return what models draw that are trained in forked workers."""
    X, y = load_wine(return_X_y=True)
    with joblib.parallel_config(backend="multiprocessing"):
        return [noise for model in clone(ensemble).fit(X, y).teachers_ for noise in getattr(model, "noise", ())]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python, where the tests run threads
def test_what_is_trained_in_forked_workers_draws_from_generators_of_its_own() -> None:
    # a fork leaves its parent's generators as they were: a second fit would repeat the first
    models = PrivateModelsVotingClassifier(OfOneDraw(), 6, epsilon_each=1, n_jobs=2)
    assert len({*forked(models), *forked(models)}) == 2 * 6 * 2
    vote = PrivateVotingClassifier(OfOneDraw(), 6, aggregator=PermuteAndFlip(0.01), random_state=0, n_jobs=2)
    teachers = forked(vote)
    assert len(set(teachers)) == 6 * 2
    assert forked(vote) == teachers
