"""What `fit` and `predict` take and refuse: labels, tables, frames, sparse inputs, texts, groups, first steps."""

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("torch")
import torch
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import get_tags

from darrm.estimators import (
    PATEClassifier,
    PrivateModelsVotingClassifier,
    PrivateVotingClassifier,
    load,
    make_private_pipeline,
    save,
)
from darrm.estimators.dpsgd import PrivateSGDClassifier
from darrm.estimators.ensemble import find_vectorizer
from darrm.estimators.fixmatch import FixMatchClassifier
from darrm.pate import GNMax
from darrm.pate.analysis import PrivateFigureWarning
from darrm.util.progress import StatusLine
from tests.estimators.common import UNTEACHABLE, X, y

DATA = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
TEACHERS = {
    "scaled logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
    "tree": DecisionTreeClassifier,
    "naive Bayes": lambda: GaussianNB(var_smoothing=1e-3),
    "nearest neighbor": lambda: KNeighborsClassifier(1),
    "support vectors": lambda: make_pipeline(StandardScaler(), SVC()),
}
slow = pytest.mark.slow


def vote(teacher: Any = None, teachers: int = 60, **settings: Any) -> PrivateVotingClassifier:
    fixed: dict[str, Any] = {"random_state": 0, **({} if "epsilon" in settings else {"aggregator": GNMax(90.0)})}
    return PrivateVotingClassifier(GaussianNB() if teacher is None else teacher, teachers, **(fixed | settings))


ESTIMATORS: dict[str, Any] = {
    "vote": vote,
    "student": lambda: PATEClassifier(
        GaussianNB(), n_teachers=60, max_answers=20, aggregator="best", random_state=0, public_share=0.4
    ),
    "models": lambda: PrivateModelsVotingClassifier(DecisionTreeClassifier(), 5, epsilon_each=1, random_state=0),
}
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


def split(name: str) -> Any:
    inputs, codes = DATA[name](return_X_y=True)
    words = np.array([f"class {number}" for number in range(10)])
    return train_test_split(inputs, words[codes], test_size=60, random_state=0, stratify=codes)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("teacher", "data"), [*((teacher, "wine") for teacher in TEACHERS), ("tree", "breast cancer"), ("tree", "digits")]
)
def test_votes_are_right_far_more_often_than_chance(teacher: str, data: str) -> None:
    inputs, held, labels, truth = split(data)
    # with so large a budget a label is almost surely the plurality; below is then twice and more what guessing finds
    made = vote(TEACHERS[teacher](), 5, epsilon=300, max_queries=60).fit(inputs, labels)
    answers = made.predict(held)
    assert answers.dtype.kind == "U"
    assert np.mean(answers == truth) > (0.55 if len(made.classes_) > 2 else 0.8)
    assert made.queries_left_ == 0


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("model", ["tree", "naive Bayes", "nearest neighbor"])  # they learn from one class, too
def test_models_vote_without_noise_the_plurality(model: str) -> None:
    inputs, held, labels, truth = split("wine")
    made = PrivateModelsVotingClassifier(TEACHERS[model](), 5, epsilon_each=1, random_state=0).fit(inputs, labels)
    spent, answers = made.privacy_spent_, made.predict(held)
    assert np.mean(answers == truth) > 0.55
    assert made.plan_.aggregator is None
    assert made.privacy_spent_ == spent  # whatever is asked: the models were paid for once
    theirs = np.array([teacher.predict(held) for teacher in made.teachers_])
    counts = np.array([np.sum(theirs == name, axis=0) for name in made.classes_]).T
    assert np.array_equal(made.votes(held).counts, counts)
    chosen = np.searchsorted(made.classes_, answers)
    assert np.array_equal(counts[np.arange(len(held)), chosen], counts.max(axis=1))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("labels", [np.array([-1, 1]), np.array([False, True]), np.array(["no", "yes"], dtype=object)])
def test_labels_keep_their_names(labels: Any) -> None:
    inputs, codes = load_breast_cancer(return_X_y=True)
    found = vote(DecisionTreeClassifier(), 9, epsilon=100, max_queries=100).fit(inputs, labels[codes])
    answers = found.predict(inputs[:100])
    assert set(answers.tolist()) <= set(labels.tolist())
    assert np.mean(answers == labels[codes[:100]]) > 0.8
    pate = PATEClassifier(DecisionTreeClassifier(), n_teachers=9, epsilon=100, random_state=0)
    assert np.mean(pate.fit(inputs, labels[codes], inputs[:200]).predict(inputs) == labels[codes]) > 0.8
    assert np.allclose(pate.predict_proba(inputs).sum(axis=1), 1.0)


TYPES = [
    *(np.array([3, 1, 2], dtype=kind) for kind in "bHiQed"),
    *(pytest.param(np.array([3, 1, 2], dtype=kind), marks=slow) for kind in "BhIlLqf"),
    np.array([-1.0, 2.0, 1e6]),
    np.array([True, False, True]),
    np.array(["b", "", "a longer name"]),
    np.array(["b", "a", "ä"], dtype=object),
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("names", TYPES, ids=lambda names: f"{names.dtype} {names[0]!r}")
@pytest.mark.parametrize("estimator", ["vote", *(pytest.param(name, marks=slow) for name in ("models", "student"))])
def test_labels_of_every_type_are_learned_by_shards_of_one_class_too(estimator: str, names: Any) -> None:
    # 60 teachers of 150 rows: about 5 have no row, and 20 rows of one class only
    answers = ESTIMATORS[estimator]().fit(X, names[y]).predict(X[:20])
    assert answers.dtype == names.dtype
    assert set(answers.tolist()) <= set(names.tolist())


@slow
def test_classes_that_no_shard_has_may_be_named_and_others_are_refused() -> None:
    inputs, _, labels, _ = split("iris")
    made = vote(GaussianNB(), 5, epsilon=30, max_queries=60, classes=["class 9", *np.unique(labels)])
    assert made.fit(inputs, labels).classes_.tolist()[-1] == "class 9"
    assert "was given" in made.to_model_card()
    assert f"Paid by the ledger whose digest was then `{made.ledger_.digest()}`." in made.to_model_card()
    for classes, words in (
        (["class 0", "class 1"], r"one of the classes.*got 'class 2'"),
        (3, r"\[0, 1, 2\], got 'class 0'"),
    ):
        with pytest.raises(ValueError, match=words):
            made.set_params(classes=classes).fit(inputs, labels)


@each_estimator
@pytest.mark.parametrize(
    "mixed",
    [
        *(np.array(["a", odd, "b"], dtype=object) for odd in (7, None)),
        *([1, "a", "b"], ["a", 2.5, 3], [float("nan"), "a", "b"], ["a", None, "b"]),
    ],
)
def test_labels_of_several_types_are_refused_and_not_made_text(estimator: str, mixed: Any) -> None:
    with pytest.raises(ValueError, match="y must be all numbers, or all text, got labels of several types"):
        ESTIMATORS[estimator]().fit(X, [mixed[code] for code in y] if isinstance(mixed, list) else mixed[y])
    with pytest.raises(ValueError, match=r"classes must be (all numbers, or all text|text or numbers)"):
        ESTIMATORS[estimator]().set_params(classes=mixed).fit(X, y)


@pytest.mark.parametrize("classes", [10, np.int64(10), np.array(10), range(10), tuple(range(10))])
def test_a_number_of_classes_is_the_classes_from_zero_on(classes: Any) -> None:
    assert vote(teachers=6, classes=classes).fit(X, y).classes_.tolist() == list(range(10))
    best = vote(teachers=6, epsilon=3, max_queries=20, classes=classes)
    assert best.expected_accuracy() == best.set_params(classes=list(range(10))).expected_accuracy()


@pytest.mark.parametrize(
    ("classes", "line"),
    [
        ({"a", "b"}, "in order, the one for class 0 first, .*a set has no order"),
        (frozenset((0, 1, 2)), "a set has no order"),
        ("abc", "different labels.* or their number, got 'abc'"),
        (True, "or their number, got True"),
        (1, "an integer of at least 2, got 1"),
        (3.0, r"or their number, got 3\.0"),
        ([[0, 1, 2]], "text or numbers"),
        ([0, 1, np.nan], r"text or numbers below 2\^53, got nan"),
        ([0, 1, 1, 2], "different labels"),
        ("open", "listed, or their number"),
    ],
)
def test_what_is_no_list_of_classes_is_refused_in_words(classes: Any, line: str) -> None:
    made = [ESTIMATORS[name]().set_params(classes=classes) for name in ESTIMATORS]
    for estimator in (*made, PrivateSGDClassifier(partial(torch.nn.Linear, 4, 3), classes)):
        with pytest.raises(ValueError, match=f"classes must be .*{line}"):
            estimator.fit(X, y)


@pytest.mark.parametrize("wrapper", [VotingClassifier, StackingClassifier])
def test_wrappers_that_pass_numbers_for_names_are_named(wrapper: Any) -> None:
    names = np.array(["no", "yes", "maybe"])[y]

    def wrapped(classes: Any) -> Any:
        return wrapper([("private", vote(teachers=6, classes=classes)), ("public", GaussianNB())])

    with pytest.raises(ValueError, match="StackingClassifier pass numbers for names: use classes=3"):
        wrapped(["no", "yes", "maybe"]).fit(X, names)
    assert set(wrapped(3).fit(X, names).predict(X[:20])) <= set(names)


@pytest.mark.parametrize("labels", [["a", "b"] * 10, [1, "a"] * 10, [0.5, 1] * 10, [None, 1] * 10])
def test_labels_of_images_are_whole_numbers(labels: list[Any]) -> None:
    for kind in (list, partial(np.array, dtype=object)):
        with pytest.raises(ValueError, match="y must be"):
            FixMatchClassifier().fit(np.zeros((20, 64)), kind(labels))


NO_CLASSIFIERS = [
    LinearRegression(),
    make_pipeline(StandardScaler(), LinearRegression()),
    GridSearchCV(LinearRegression(), {}),
    *(KMeans(), StandardScaler(), DecisionTreeClassifier, None),
]
CANNOT_BE_TRAINED = [
    DecisionTreeClassifier(max_depth=-1),
    LogisticRegression(C="much"),
    make_pipeline(StandardScaler(), LogisticRegression(C=-1)),
    BaggingClassifier(DecisionTreeClassifier(min_samples_leaf=0)),
]
TESTED = {"accounting": "tested", "public_share": None}


@pytest.mark.parametrize(
    ("estimator", "settings", "line"),
    [
        *(
            (name, {"teacher" if name == "student" else "estimator": teacher}, "must be a classifier")
            for name in ESTIMATORS
            for teacher in NO_CLASSIFIERS
        ),
        *(("vote", {"estimator": teacher}, "estimator cannot be trained: ") for teacher in CANNOT_BE_TRAINED),
        ("vote", {"n_teachers": 151}, "n_teachers must be at most the number of rows, n_samples=150"),
        ("models", {"n_models": 151}, "n_models must be at most the number of rows, n_samples=150"),
        ("student", {"semi_supervised": "yes"}, "semi_supervised must be 'auto', True or False"),
        ("student", TESTED | {"votes_look_like": ["dirichlet:0.1"]}, "votes_look_like must be a str"),
        ("student", TESTED | {"aggregator": GNMax(9.0)}, "aggregator must be a str"),
        ("student", TESTED | {"aggregator": ["best"]}, "aggregator must be a str"),
        ("student", {"student": LinearRegression()}, "student must be a classifier, got a regressor"),
        (
            "student",
            {"student": DecisionTreeClassifier(max_depth=-1)},
            r"student cannot be trained: The '\w+' parameter",
        ),
    ],
)
def test_settings_are_refused_before_anything_is_paid(
    estimator: str, settings: dict[str, Any], line: str, tmp_path: Path
) -> None:
    made = ESTIMATORS[estimator]().set_params(ledger=tmp_path / "l", classes=[0, 1, 2], **settings)
    public = () if estimator != "student" else (X[:9],)
    calls = [partial(made.fit, X, y, *public)]
    if estimator != "student" and line == "must be a classifier":
        calls.append(made.expected_accuracy)
    for call in calls:
        with pytest.raises(ValueError, match=line):
            call()
    assert not list(tmp_path.iterdir())


class Fails(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """A classifier whose fit raises an error of the caller's."""

    def __init__(self, error: Any = None) -> None:
        self.error = error

    def fit(self, _: Any, __: Any) -> Any:
        raise self.error

    def predict(self, inputs: Any) -> Any:
        return np.zeros(len(inputs))


@pytest.mark.parametrize("error", [RuntimeError("two\nlines"), TypeError("t"), IndexError("i"), AssertionError()])
def test_an_error_of_a_teacher_or_a_student_is_one_line_of_ours(error: Exception) -> None:
    with pytest.raises(ValueError, match=r"teacher 0 could not be trained on its .* rows"):
        vote(UNTEACHABLE, 5, epsilon=300, max_queries=60).fit(X, y)
    with pytest.raises(ValueError, match=r"teacher 0 could not be trained on its .* rows \(.*\): take fewer") as caught:
        vote(Fails(error), 5, epsilon=300, max_queries=60).fit(X, y)
    assert len(str(caught.value).splitlines()) == 1
    pate = PATEClassifier(GaussianNB(), Fails(error), n_teachers=5, epsilon=300)
    with pytest.raises(ValueError, match=r"the student could not be trained .* the next fit resumes there") as caught:
        pate.fit(X, y, X[::4])
    assert len(str(caught.value).splitlines()) == 1
    assert (pate.answers_ >= 0).any()  # released, and told


@each_estimator
def test_texts_without_a_table_are_refused_in_words(estimator: str) -> None:
    texts = [f"text {number}" for number in range(150)]
    for inputs in (texts, np.array(texts), np.array(texts, dtype=object), texts[0]):
        with pytest.raises(ValueError, match=r"X must be a table.*pipeline that begins with what reads texts"):
            ESTIMATORS[estimator]().fit(inputs, y)


def test_the_messages_of_scikit_learn_are_one_line() -> None:
    for inputs, labels in ((X[0], y), (X, y + 1j), (np.where(X > 7, np.nan, X), y)):
        with pytest.raises((ValueError, TypeError)) as caught:
            vote().fit(inputs, labels)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="Reshape your data") as caught:
        vote().fit(X, y).predict(X[0])
    assert "\n" not in str(caught.value)


@pytest.mark.quick_cases(1)
@each_estimator
def test_weights_are_refused_in_words_and_the_rest_as_python_does(estimator: str, tmp_path: Path) -> None:
    made = ESTIMATORS[estimator]().set_params(ledger=tmp_path / "l")
    with pytest.raises(ValueError, match=r"sample_weight must be left out, got weights: .*groups="):
        made.fit(X, y, sample_weight=np.ones(len(X)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        made.fit(X, y, weights=None)
    assert not (tmp_path / "l").exists()
    assert hasattr(made.fit(X, y, sample_weight=None), "classes_")


@pytest.mark.parametrize("estimator", ["vote", "models"])
def test_a_vote_says_why_it_has_no_probabilities(estimator: str) -> None:
    made = ESTIMATORS[estimator]()
    with pytest.raises(AttributeError, match="shares of noisy votes are no probabilities"):
        made.predict_proba(X)
    assert not hasattr(made, "predict_proba")


class Seen(GaussianNB):  # type: ignore[misc]  # scikit-learn ships no types
    """A teacher that says what it was taught."""

    def __init__(self, log: Any = None) -> None:
        super().__init__()
        self.log = log

    def __sklearn_clone__(self) -> Any:
        return Seen(self.log)

    def fit(self, inputs: Any, labels: Any, sample_weight: Any = None) -> Any:
        self.log.append(inputs)
        return super().fit(inputs, labels, sample_weight)


def test_public_inputs_are_asked_for_or_held_out(tmp_path: Path) -> None:
    pate = PATEClassifier(GaussianNB(), n_teachers=5, epsilon=20, ledger=tmp_path / "l", random_state=0)
    with pytest.raises(ValueError, match="X_public must be the public inputs"):
        pate.fit(X, y)
    for share, line in ((0, "public_share"), (1, "public_share"), ("half", "public_share"), (1e-9, "on both sides")):
        with pytest.raises(ValueError, match=line):
            pate.set_params(public_share=share).fit(X, y)
    assert not (tmp_path / "l").exists()
    taught: list[Any] = []
    pate.set_params(public_share=0.4, teacher=Seen(taught)).fit(X, y, groups=np.arange(150) // 3)
    held = pate.report_.inputs
    assert 30 < held < 90
    assert f"The inputs of {held} rows that were held out" in pate.to_model_card()
    assert held % 3 == 0  # whole persons
    assert sum(len(rows) for rows in taught) <= 150 - held  # nobody learns from a row that is held out


@slow
def test_the_accuracy_is_said_before_anything_is_paid(tmp_path: Path) -> None:
    made = vote(epsilon=3, max_queries=20, ledger=tmp_path / "l")
    with pytest.raises(ValueError, match="classes must be given before a fit"):
        made.expected_accuracy()
    accuracy = made.set_params(classes=[2, 0, 1]).expected_accuracy()
    assert not (tmp_path / "l").exists()
    assert 1 / 3 < accuracy < 1
    fitted = made.set_params(classes=None).fit(X, y)
    assert fitted.expected_accuracy() == accuracy == fitted.plan_.accuracy
    assert fitted.privacy_spent_.epsilon == 0
    assert made.set_params(epsilon=8).expected_accuracy() > accuracy
    with pytest.raises(ValueError, match="aggregator must be 'best'"):
        vote(classes=[0, 1, 2]).expected_accuracy()
    free = ESTIMATORS["models"]().set_params(classes=[0, 1, 2])
    assert free.expected_accuracy() == pytest.approx(1)  # no noise is needed


@slow
def test_progress_is_shown_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[bool, str]] = []
    monkeypatch.setattr(StatusLine, "show", lambda line, text, *_: shown.append((line.enabled, text)))
    for verbose in (0, 1):
        ESTIMATORS["vote"]().set_params(verbose=verbose).fit(X, y)
        ESTIMATORS["student"]().set_params(verbose=verbose).fit(X, y)
    said = [(enabled, text) for enabled, text in shown if "teachers" in text]
    texts = ["planning 1,000 answers of 60 teachers", "training 60 teachers", "planning, and training 60 teachers"]
    assert said == [(enabled, text) for enabled in (False, True) for text in texts]


def test_sparse_inputs_and_their_dense_copies_have_the_same_votes() -> None:
    inputs, held, labels, _ = split("digits")
    votes = []
    for made in (np.asarray, csr_array):
        models = PrivateModelsVotingClassifier(KNeighborsClassifier(1), 4, epsilon_each=1, random_state=0)
        votes.append(models.fit(made(inputs), labels).votes(made(held)).counts)
    assert np.array_equal(*votes)


def test_data_frames_reach_the_teachers_as_they_are() -> None:
    pandas = pytest.importorskip("pandas")
    from sklearn.compose import make_column_transformer

    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"size": rng.normal(size=400), "color": rng.choice(["red", "blue"], 400)})
    labels = np.where((frame["color"] == "red") ^ (frame["size"] > 1.0), "yes", "no")
    columns = make_column_transformer((OneHotEncoder(), ["color"]), remainder="passthrough")
    teacher = make_pipeline(columns, DecisionTreeClassifier())
    made = vote(teacher, 5, epsilon=100, max_queries=50).fit(frame[50:], pandas.Series(labels[50:]))
    assert np.mean(made.predict(frame[:50]) == labels[:50]) > 0.85
    assert made.feature_names_in_.tolist() == ["size", "color"]
    with pytest.raises(ValueError, match="feature names"):
        made.predict(frame[["color", "size"]])
    student = make_pipeline(columns, DecisionTreeClassifier())
    pate = PATEClassifier(teacher, student, n_teachers=5, epsilon=100, aggregator="best", random_state=0)
    assert np.mean(pate.fit(frame[150:], labels[150:], frame[50:150]).predict(frame[:50]) == labels[:50]) > 0.8


@slow
def test_teachers_train_and_vote_in_processes_as_in_one() -> None:
    inputs, held, labels, _ = split("wine")
    counts = []
    for jobs in (None, 2):
        made = vote(DecisionTreeClassifier(max_features=1), 5, epsilon=300, max_queries=60, n_jobs=jobs)
        with pytest.warns(PrivateFigureWarning):
            counts.append(made.fit(inputs, labels).votes(held).counts)
    assert np.array_equal(*counts)


def test_a_pipeline_with_groups() -> None:
    inputs, held, labels, _ = split("wine")
    pipe = make_pipeline(StandardScaler(), vote(GaussianNB(), 5, epsilon=300, max_queries=60))
    pipe.fit(inputs, labels, privatevotingclassifier__groups=np.arange(len(inputs)) // 2)
    assert pipe.predict(held[:9]).shape == (9,)
    assert "one group" in pipe[-1].to_model_card()


@slow
def test_a_card_is_about_the_fit_and_not_about_settings_of_later() -> None:
    made = vote(GaussianNB(), 5, epsilon=30, max_queries=60).fit(X, y)
    card = made.to_model_card()
    assert "is in one of them only" not in card  # the key is published
    made.set_params(estimator=None, n_teachers=9, epsilon=1, delta=0, max_queries=1, classes=["a"], random_state=None)
    assert made.to_model_card() == card


# texts, for teachers that begin with what reads them

SAID = np.array([["good", "fine", "nice", "a", "the"], ["bad", "poor", "ugly", "a", "the"]])
LABELS = np.random.default_rng(0).integers(0, 2, 150)
TEXTS = [" ".join(np.random.default_rng(row).choice(SAID[label], 5)) for row, label in enumerate(LABELS)]
TEACHER = make_pipeline(CountVectorizer(), MultinomialNB())


def series(texts: Any) -> Any:
    return pytest.importorskip("pandas").Series(texts, index=range(7, 7 + len(texts)))  # rows are no positions


def text_vote(**settings: Any) -> PrivateVotingClassifier:
    return vote(TEACHER, 15, epsilon=100, max_queries=150, **({"aggregator": GNMax(3.0)} | settings))


FORMS: list[Callable[[Any], Any]] = [list, tuple, np.array, lambda texts: np.array(texts, dtype=object), series]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("form", FORMS, ids=["list", "tuple", "array", "objects", "Series"])
def test_every_form_of_a_list_teaches_the_same_teachers(form: Callable[[Any], Any]) -> None:
    fitted, plain = text_vote().fit(form(TEXTS[:120]), LABELS[:120]), text_vote().fit(TEXTS[:120], LABELS[:120])
    # counts, not labels: these are drawn; a shard that took a Series by its index would train others
    votes = [
        each._count_votes(each.teachers_, each._check_inputs(form(TEXTS[120:]), reset=False))
        for each in (fitted, plain)
    ]
    assert np.array_equal(*votes)
    assert (fitted.predict(form(TEXTS[120:])) == LABELS[120:]).mean() > 0.7
    assert not hasattr(fitted, "n_features_in_")


def test_a_word_of_one_person_is_read_by_one_teacher() -> None:
    # the wrong program: what reads texts learns its words from all rows, in front of the shards
    texts, groups = list(TEXTS), np.arange(150) // 2
    texts[10], texts[11] = texts[10] + " uncommon", texts[11] + " uncommon"
    words = [
        [
            teacher[0].vocabulary_
            for teacher in text_vote().fit(each, LABELS, groups=groups).teachers_
            if hasattr(teacher, "steps")
        ]
        for each in (texts, TEXTS)
    ]
    assert sum("uncommon" in each for each in words[0]) == 1
    assert sum(one == other for one, other in zip(*words, strict=True)) == len(words[0]) - 1


@slow
@pytest.mark.parametrize("student", [None, make_pipeline(TfidfVectorizer(), MultinomialNB())], ids=["none", "own"])
def test_a_student_of_texts_is_kept_in_a_file(student: Any, tmp_path: Path) -> None:
    made = PATEClassifier(
        TEACHER, student, n_teachers=15, aggregator="best", epsilon=20, max_answers=30, random_state=0
    )
    if student is None:
        made = make_private_pipeline(TfidfVectorizer(), made.set_params(teacher=LogisticRegression()))
    made.fit(TEXTS[:90], LABELS[:90], X_public=TEXTS[90:130])
    assert isinstance(made.student_[0], TfidfVectorizer)
    assert (made.predict(TEXTS[130:]) == LABELS[130:]).mean() > 0.7
    save(made, tmp_path / "student.skops")
    again = load(tmp_path / "student.skops")
    assert (again.predict_proba(TEXTS) == made.predict_proba(TEXTS)).all()


def test_private_models_read_texts_too() -> None:
    models = PrivateModelsVotingClassifier(TEACHER, 5, epsilon_each=1, random_state=0).fit(TEXTS[:120], LABELS[:120])
    assert (models.predict(TEXTS[120:]) == LABELS[120:]).mean() > 0.8


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (TEXTS[0], "got one text: put it into a list"),
        ([], "at least one text"),
        ([*TEXTS[1:], None], "got NoneType as number 149"),
        ([*TEXTS[1:], float("nan")], "got float as number 149"),
        ([text.encode() for text in TEXTS], "got bytes as number 0"),
        ([[text] for text in TEXTS], r"got a list of shape \(150, 1\)"),
        (np.zeros((150, 2)), r"shape \(150, 2\): the teacher begins with CountVectorizer"),
        (csr_array(np.eye(150)), r"got a csr_array of shape \(150, 150\)"),
        (set(TEXTS), "got a set of shape"),
        ([np.zeros((2, 3)), np.zeros((2, 4))], "got a list of shape"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_list_of_texts_is_refused_in_a_line(inputs: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        text_vote(ledger=tmp_path / "l").fit(inputs, LABELS)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "l").exists()


def test_tables_and_texts_do_not_mix(tmp_path: Path) -> None:
    frame = pytest.importorskip("pandas").DataFrame({"text": TEXTS})  # whose rows, to an iterator, are column names
    fitted = text_vote().fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match=r"got a DataFrame of shape \(150, 1\)"):
        fitted.predict(frame)
    assert fitted.privacy_spent_.epsilon == 0
    made = PATEClassifier(TEACHER, LogisticRegression(), n_teachers=5, ledger=tmp_path / "l")
    with pytest.raises(ValueError, match=r"student must be a pipeline that begins with what reads texts"):
        made.fit(TEXTS[:100], LABELS[:100], X_public=TEXTS[100:])
    assert not (tmp_path / "l").exists()
    table = text_vote().set_params(estimator=MultinomialNB()).fit(np.ones((150, 3)), LABELS)
    assert table.n_features_in_ == 3
    assert not hasattr(table.set_params(estimator=TEACHER).fit(TEXTS, LABELS), "n_features_in_")


class Steps(MultinomialNB):  # type: ignore[misc]  # scikit-learn ships no types
    """No pipeline, though it has steps, as what is trained by gradients has."""

    steps = 100


def test_who_reads_texts_is_known_by_the_first_step() -> None:
    union = FeatureUnion([("words", TfidfVectorizer()), ("pairs", CountVectorizer())])
    assert find_vectorizer(make_pipeline(union, MultinomialNB())) is union
    assert find_vectorizer(GridSearchCV(make_pipeline(TEACHER, MultinomialNB()), {})) is TEACHER[0]
    for other in (make_pipeline("passthrough", MultinomialNB()), make_pipeline(OneHotEncoder(), MultinomialNB())):
        assert find_vectorizer(other) is None  # an encoder takes texts, in a table
    assert find_vectorizer(Steps()) is None
    tags = get_tags(text_vote()).input_tags
    assert (tags.string, tags.two_d_array) == (True, False)
    assert get_tags(PrivateVotingClassifier(MultinomialNB())).input_tags.two_d_array
    assert get_tags(PrivateVotingClassifier([MultinomialNB()])).input_tags.two_d_array  # `fit` says what to do


# a step in front of an ensemble sees everybody, and voids its guarantee; inside it, it sees one shard

WINE, KINDS = load_wine(return_X_y=True)


@pytest.mark.parametrize(("make", "reached"), [(make_private_pipeline, 1), (make_pipeline, 12)])
def test_one_person_reaches_one_teacher_through_the_steps(make: Any, reached: int) -> None:
    pipeline, fits = make(StandardScaler(), vote(teachers=12, classes=[0, 1, 2])), []
    for value in (0.0, 1e6):
        inputs = WINE.copy()
        inputs[7] = value
        fitted = pipeline.fit(inputs, KINDS)
        fits.append([pickle.dumps(teacher) for teacher in getattr(fitted, "teachers_", None) or fitted[-1].teachers_])
    assert sum(one != other for one, other in zip(*fits, strict=True)) == reached


def test_the_student_s_steps_learn_from_public_inputs() -> None:
    pate = PATEClassifier(GaussianNB(), LogisticRegression(), n_teachers=5, epsilon=300, random_state=0)
    made = make_private_pipeline(StandardScaler(), pate).fit(WINE, KINDS, WINE[::2])
    assert np.allclose(made.student_[0].mean_, WINE[::2][made.answers_ >= 0].mean(axis=0))
    assert isinstance(pate.teacher, GaussianNB)  # the caller's own is left alone
    assert make_private_pipeline(StandardScaler(), pate.set_params(student=None)).student is None


@pytest.mark.parametrize(
    ("steps", "line"),
    [
        (
            (StandardScaler(), PrivateModelsVotingClassifier(GaussianNB(), 5, epsilon_each=1)),
            "the last step must be a P",
        ),
        ((StandardScaler(), DecisionTreeClassifier()), "the last step must be a PrivateVotingClassifier"),
        ((), "the last step must be"),
        ((StandardScaler(), PATEClassifier(GaussianNB(), "fixmatch")), "images are no input for steps"),
    ],
)
def test_a_pipeline_is_no_way_around_the_noise_of_private_models(steps: Any, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        make_private_pipeline(*steps)


@slow
def test_teachers_without_rows_vote_for_a_class_that_no_data_decide() -> None:
    made = vote(KNeighborsClassifier(1)).fit(X, y, groups=["one person"] * len(X))
    kinds = [type(teacher).__name__ for teacher in made.teachers_]
    assert (kinds.count("KNeighborsClassifier"), kinds.count("DummyClassifier")) == (1, 59)


def test_steps_whose_output_is_set_hand_data_frames_to_teachers(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    seen: list[type] = []
    learn = DecisionTreeClassifier.fit

    def noted(tree: Any, inputs: Any, labels: Any, *rest: Any, **more: Any) -> Any:
        seen.append(type(inputs))
        return learn(tree, inputs, labels, *rest, **more)

    monkeypatch.setattr(DecisionTreeClassifier, "fit", noted)
    scaler = StandardScaler().set_output(transform="pandas")
    made = make_private_pipeline(scaler, vote(DecisionTreeClassifier(), 5, epsilon=20, max_queries=5))
    made.fit(X, y).predict(X[:5])
    assert seen == [pandas.DataFrame] * 5
