"""One person's data influence one teacher, to the bit, and labels, tables and texts reach the teachers unchanged."""

import pickle
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
import joblib
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import get_tags

from darrm.estimators import PrivateVotingClassifier, make_private_pipeline
from darrm.estimators.ensemble import assign, find_vectorizer
from darrm.noisy_max.selection import PermuteAndFlip
from darrm.pate import GNMax
from darrm.pate.analysis import PrivateFigureWarning
from darrm.util.people import identify_persons
from darrm.util.progress import StatusLine
from tests.estimators.support import (
    MAKERS,
    TEXT_LABELS,
    TEXT_TEACHER,
    TEXTS,
    X,
    make_models,
    make_pate,
    make_student,
    make_text_vote,
    make_vote,
    y,
)

slow = pytest.mark.slow
KEY = b"0123456789abcdef"
K = 12
WINE, WINE_CLASSES = load_wine(return_X_y=True)


def make_tree_vote() -> PrivateVotingClassifier:
    tree = DecisionTreeClassifier(max_features=2)
    return make_vote(tree, n_teachers=K, aggregator=GNMax(90.0), random_state=3, classes=[0, 1, 2])


def list_changed(one: Any, other: Any) -> list[int]:
    """Return the numbers of the teachers that differ."""
    pairs = zip(one.teachers_, other.teachers_, strict=True)
    return [number for number, (a, b) in enumerate(pairs) if pickle.dumps(a) != pickle.dumps(b)]


def test_a_replaced_row_changes_one_teacher() -> None:
    fitted = make_tree_vote().fit(WINE, WINE_CLASSES)
    assert len({teacher.random_state for teacher in fitted.teachers_}) == K
    expected = assign(identify_persons(len(WINE), None), K, np.random.RandomState(3).bytes(16))
    for row in (0, 77, 177):
        inputs, labels = WINE.copy(), WINE_CLASSES.copy()
        inputs[row], labels[row] = -1000.0, (labels[row] + 1) % 3
        assert list_changed(fitted, make_tree_vote().fit(inputs, labels)) == [expected[row]]


def test_a_person_who_leaves_with_all_rows_changes_one_teacher() -> None:
    people = np.array([f"person {row // 3}" for row in range(len(WINE))])
    fitted, stays = make_tree_vote().fit(WINE, WINE_CLASSES, people), people != "person 20"
    assert len(list_changed(fitted, make_tree_vote().fit(WINE[stays], WINE_CLASSES[stays], people[stays]))) == 1


@pytest.mark.parametrize(("make", "changed"), [(make_private_pipeline, 1), (make_pipeline, K)])
def test_a_private_pipeline_fits_its_steps_inside_the_teachers(make: Any, changed: int) -> None:
    fits = []
    for value in (0.0, 1e6):
        inputs = WINE.copy()
        inputs[7] = value
        pipeline = make(StandardScaler(), make_tree_vote()).fit(inputs, WINE_CLASSES)
        fits.append(pipeline if hasattr(pipeline, "teachers_") else pipeline[-1])
    assert len(list_changed(*fits)) == changed


@pytest.mark.statistical
def test_shards_are_uniform_and_depend_on_the_key() -> None:
    # a chi-square of 9 degrees of freedom is above 48 with probability 2.5e-7
    people = identify_persons(20_000, None)
    sizes = np.bincount(assign(people, 10, KEY), minlength=10)
    assert np.sum((sizes - 2000) ** 2 / 2000) < 48.0
    assert not np.array_equal(assign(people[:50], 10, KEY), assign(people[:50], 10, KEY[::-1]))


@pytest.mark.parametrize("name", ["ann", 2.5, True, 2**70, "a name that is longer than all others"])
def test_the_name_of_one_person_moves_nobody_else(name: Any) -> None:
    shards = assign(identify_persons(4, [1, 2, 3, "1"]), 10**6, KEY)
    assert shards[0] != shards[3]  # a number and its text are different people
    for names in ([1, 2, 3, "1", name], [1.0, np.int8(2), 3, "1", name]):
        assert np.array_equal(assign(identify_persons(5, names), 10**6, KEY)[:4], shards)
    assert np.array_equal(assign(identify_persons(4, np.array([1.0, 2.0, 3.0, 4.5])), 10**6, KEY)[:3], shards[:3])


class Unknown:
    """As pandas.NA: whether it equals itself is undefined."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        raise TypeError("boolean value of NA is ambiguous")


NAN_TUPLES = np.empty(2, dtype=object)
NAN_TUPLES[:] = [("ann", float("nan")), ("ann", float("nan"))]


@pytest.mark.parametrize(
    "names",
    [
        *(["a"], [["a"], ["b"]], np.array(["a", None], dtype=object), [Unknown(), 1], NAN_TUPLES),
        *([object(), object()], np.ma.array([1, 2], mask=[False, True]), [Decimal("sNaN"), 1], [1.0, np.nan], [{}, 1]),
    ],
)
def test_groups_refuses_names_of_nobody(names: Any) -> None:
    with pytest.raises(ValueError, match="groups must be"):
        identify_persons(2, names)


def test_labels_are_drawn_without_the_seed_of_the_teachers() -> None:
    # 180 nearly even coins are equal with probability below 1e-60, unless they are seeded
    settings: dict[str, Any] = {"epsilon": 0.01, "max_queries": 178, "aggregator": PermuteAndFlip(5e-5)}
    votes = [make_vote(DecisionTreeClassifier(), **settings).fit(WINE, WINE_CLASSES) for _ in range(2)]
    assert list_changed(*votes) == []
    assert not np.array_equal(votes[0].predict(WINE), votes[1].predict(WINE))


def test_private_models_are_unseeded_and_fitted_to_every_shard() -> None:
    one_class = WINE[:59], WINE_CLASSES[:59]  # the first class
    models = make_models(DecisionTreeClassifier(), n_models=4, classes=[0, 1, 2]).fit(*one_class)
    assert {type(model) for model in models.teachers_} == {DecisionTreeClassifier}
    assert {model.random_state for model in models.teachers_} == {None}
    vote = make_tree_vote().fit(*one_class, groups=np.zeros(59))  # all rows in one shard
    assert {type(teacher) for teacher in vote.teachers_} == {DummyClassifier}
    assert {int(teacher.predict([[0.0] * 13])[0]) for teacher in vote.teachers_} == {0, 1, 2}  # by their numbers


class NoisyModel(DummyClassifier):  # type: ignore[misc]  # scikit-learn ships no types
    """A model with noise from numpy's and Python's global generators, as in many libraries."""

    def fit(self, inputs: Any, labels: Any) -> Any:
        self.noise = np.random.laplace(), random.random()  # noqa: NPY002, S311 (the subject of the test)
        return super().fit(inputs, labels)


def draw_in_workers(ensemble: Any) -> list[float]:
    """Return the noise of models that are trained in forked workers."""
    with joblib.parallel_config(backend="multiprocessing"):
        fitted = clone(ensemble).fit(WINE, WINE_CLASSES)
    return [noise for model in fitted.teachers_ for noise in getattr(model, "noise", ())]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python, where the tests run threads
def test_forked_workers_draw_independent_noise_for_each_model() -> None:
    # a fork copies its parent's generators, so a second fit would repeat the noise of the first
    models = make_models(NoisyModel(), n_models=6, n_jobs=2)
    assert len({*draw_in_workers(models), *draw_in_workers(models)}) == 2 * 6 * 2
    vote = make_vote(NoisyModel(), n_jobs=2)
    noise = draw_in_workers(vote)
    assert len(set(noise)) == 6 * 2
    assert draw_in_workers(vote) == noise


LABELS = [
    *(np.array([3, 1, 2], dtype=kind) for kind in "bHed"),
    *(pytest.param(np.array([3, 1, 2], dtype=kind), marks=slow) for kind in "BhiIlLqQf"),
    np.array([-1.0, 2.0, 1e6]),
    np.array([True, False, True]),
    np.array(["b", "", "a longer name"]),
    np.array(["b", "a", "ä"], dtype=object),
]


LITTLE_NOISE: dict[str, Any] = {"aggregator": GNMax(0.5), "epsilon": 500}
SETTINGS = {"vote": LITTLE_NOISE, "models": {}, "student": LITTLE_NOISE | {"student": KNeighborsClassifier(1)}}


@pytest.mark.parametrize("names", LABELS, ids=lambda names: f"{names.dtype} {names[0]!r}")
@pytest.mark.parametrize("kind", ["vote", pytest.param("models", marks=slow), pytest.param("student", marks=slow)])
def test_answers_are_labels_of_the_type_of_y_and_mostly_right(kind: str, names: Any) -> None:
    estimator = MAKERS[kind](**SETTINGS[kind]).fit(X[::2], names[y[::2]], sample_weight=None)
    answers = estimator.predict(X[1:100:2])
    assert answers.dtype == names.dtype
    assert set(answers.tolist()) <= set(names.tolist())
    # by the law of the noise, at most 42 of 50 votes are right with probability 1e-36; one of the student's 20 labels
    # differs from the plurality with probability 6e-7
    assert np.mean(answers == names[y[1:100:2]]) > (0.8 if kind == "student" else 0.85)
    if kind == "student":
        assert np.allclose(estimator.predict_proba(X).sum(axis=1), 1.0)
    if kind == "vote":  # three people of one class each: half of the shards have no row
        few_people = make_vote(**LITTLE_NOISE).fit(X[::2], names[y[::2]], groups=np.arange(75) // 25)
        assert set(few_people.predict(X[:20]).tolist()) <= set(names.tolist())


@pytest.mark.parametrize("classes", [10, np.int64(10), np.array(10), range(10), tuple(range(10)), list(range(10))])
def test_a_number_of_classes_is_a_list_of_the_classes_from_zero(classes: Any) -> None:
    assert make_vote(classes=classes).fit(X, y).classes_.tolist() == list(range(10))


@pytest.mark.parametrize("wrapper", [VotingClassifier, StackingClassifier])
def test_a_wrapper_that_passes_numbers_for_names_votes_with_a_number_of_classes(wrapper: Any) -> None:
    names = np.array(["no", "yes", "maybe"])[y]
    ensemble = wrapper([("private", make_vote(classes=3)), ("public", GaussianNB())])
    assert set(ensemble.fit(X, names).predict(X[:20])) <= set(names)


def test_groups_pass_through_a_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), make_vote())
    pipeline.fit(X, y, privatevotingclassifier__groups=np.arange(len(X)) // 2)
    assert "one person is one group" in pipeline[-1].to_model_card()
    assert pipeline.predict(X[:9]).shape == (9,)


@slow
def test_teachers_of_two_processes_vote_as_those_of_one() -> None:
    one, two = (make_vote(DecisionTreeClassifier(max_features=1), n_jobs=jobs).fit(X, y) for jobs in (None, 2))
    with pytest.warns(PrivateFigureWarning):
        assert np.array_equal(one.votes(X).counts, two.votes(X).counts)


@slow
@pytest.mark.parametrize(
    ("make", "text"), [(make_vote, "training 6 teachers"), (make_student, "planning, and training 6 teachers")]
)
def test_verbose_shows_progress(make: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[bool, str]] = []
    monkeypatch.setattr(StatusLine, "show", lambda line, text, *_: lines.append((line.enabled, text)))
    for verbose in (0, 1):
        make(verbose=verbose, aggregator="best").fit(X, y)
    assert [line for line in lines if text in line[1]] == [(False, text), (True, text)]


def test_data_frames_reach_teachers_and_student_unchanged() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"size": rng.normal(size=1000), "color": rng.choice(["red", "blue"], 1000)})
    labels = np.where((frame["color"] == "red") ^ (frame["size"] > 1.0), "yes", "no")
    columns = make_column_transformer((OneHotEncoder(), ["color"]), remainder="passthrough")
    teacher = make_pipeline(columns, DecisionTreeClassifier())
    vote = make_vote(teacher, **LITTLE_NOISE).fit(frame[50:], pandas.Series(labels[50:]))
    assert np.mean(vote.predict(frame[:50]) == labels[:50]) > 0.85
    assert vote.feature_names_in_.tolist() == ["size", "color"]
    with pytest.raises(ValueError, match="feature names"):
        vote.predict(frame[["color", "size"]])
    student = make_pate(teacher, teacher, **LITTLE_NOISE).fit(frame[150:], labels[150:], frame[50:150])
    assert np.mean(student.predict(frame[:50]) == labels[:50]) > 0.8


def test_steps_of_a_private_pipeline_may_give_data_frames_to_teachers() -> None:
    pytest.importorskip("pandas")
    scaler = StandardScaler().set_output(transform="pandas")
    vote = make_private_pipeline(scaler, make_vote(DecisionTreeClassifier())).fit(X, y)
    assert [teacher[-1].feature_names_in_.tolist() for teacher in vote.teachers_] == [["x0", "x1", "x2", "x3"]] * 6
    assert vote.predict(X[:5]).shape == (5,)  # a frame without its names would be a warning, an error here


def test_private_models_and_students_read_texts() -> None:
    models = make_models(TEXT_TEACHER).fit(TEXTS[:120], TEXT_LABELS[:120])
    pate = make_pate(LogisticRegression(), n_teachers=3, **LITTLE_NOISE)
    student = make_private_pipeline(TfidfVectorizer(), pate).fit(TEXTS[:90], TEXT_LABELS[:90], TEXTS[90:120])
    assert isinstance(student.student_[0], TfidfVectorizer)
    # the noise changes two or more of the student's 30 labels with probability 3.5e-7
    for estimator in (models, student):
        assert np.mean(estimator.predict(TEXTS[120:]) == TEXT_LABELS[120:]) > 0.8


def make_series(texts: Any) -> Any:
    return pytest.importorskip("pandas").Series(texts, index=range(7, 7 + len(texts)))  # rows are no positions


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("convert", [make_series, tuple, np.array, lambda texts: np.array(texts, dtype=object)])
def test_every_form_of_a_list_of_texts_trains_the_same_teachers(convert: Any) -> None:
    fitted = make_text_vote().fit(convert(TEXTS[:120]), TEXT_LABELS[:120])
    assert list_changed(fitted, make_text_vote().fit(TEXTS[:120], TEXT_LABELS[:120])) == []
    assert np.mean(fitted.predict(convert(TEXTS[120:])) == TEXT_LABELS[120:]) > 0.7
    assert not hasattr(fitted, "n_features_in_")


def test_a_word_of_one_person_is_read_by_one_teacher() -> None:
    texts, people = list(TEXTS), np.arange(150) // 2
    texts[10], texts[11] = texts[10] + " uncommon", texts[11] + " uncommon"
    fits = [make_text_vote().fit(inputs, TEXT_LABELS, groups=people) for inputs in (texts, TEXTS)]
    changed = list_changed(*fits)
    assert len(changed) == 1
    assert "uncommon" in fits[0].teachers_[changed[0]][0].vocabulary_


def test_an_estimator_takes_either_tables_or_texts() -> None:
    pandas = pytest.importorskip("pandas")
    vote = make_text_vote().fit(TEXTS, TEXT_LABELS)
    with pytest.raises(ValueError, match=r"got a DataFrame of shape \(150, 1\)"):
        vote.predict(pandas.DataFrame({"text": TEXTS}))  # iteration would give the names of its columns
    assert vote.privacy_spent_.epsilon == 0
    vote.set_params(estimator=MultinomialNB()).fit(np.ones((150, 3)), TEXT_LABELS)
    assert vote.n_features_in_ == 3
    assert not hasattr(vote.set_params(estimator=TEXT_TEACHER).fit(TEXTS, TEXT_LABELS), "n_features_in_")


class Steps(MultinomialNB):  # type: ignore[misc]  # scikit-learn ships no types
    """No pipeline, although it has steps, as estimators that are trained by gradients have."""

    steps = 100


def test_find_vectorizer_looks_at_the_first_step() -> None:
    union = FeatureUnion([("words", TfidfVectorizer()), ("pairs", CountVectorizer())])
    assert find_vectorizer(make_pipeline(union, MultinomialNB())) is union
    assert find_vectorizer(GridSearchCV(make_pipeline(TEXT_TEACHER, MultinomialNB()), {})) is TEXT_TEACHER[0]
    for estimator in (make_pipeline("passthrough", MultinomialNB()), make_pipeline(OneHotEncoder(), MultinomialNB())):
        assert find_vectorizer(estimator) is None
    assert find_vectorizer(Steps()) is None
    tags = get_tags(make_text_vote()).input_tags
    assert (tags.string, tags.two_d_array) == (True, False)
    for estimator in (MultinomialNB(), [MultinomialNB()]):  # `fit` refuses the list
        assert get_tags(PrivateVotingClassifier(estimator)).input_tags.two_d_array
