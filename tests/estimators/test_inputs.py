"""What `fit` and `predict` take and refuse: labels, tables, frames, sparse inputs, texts, groups, first steps."""

import pickle
from collections.abc import Callable
from functools import partial
from itertools import product
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
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
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
from darrm.estimators.ensemble import reader_of
from darrm.estimators.fixmatch import FixMatchClassifier
from darrm.pate import GNMax
from darrm.pate.analysis import PrivateFigureWarning
from darrm.util.progress import StatusLine
from tests.estimators.common import X, y

DATA = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
TEACHERS = {
    "scaled logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
    "tree": DecisionTreeClassifier,
    "naive Bayes": lambda: GaussianNB(var_smoothing=1e-3),
    "nearest neighbor": lambda: KNeighborsClassifier(1),
    "support vectors": lambda: make_pipeline(StandardScaler(), SVC()),
}
MODELS = ("tree", "naive Bayes", "nearest neighbor")  # those that learn from a shard of one class, too


TYPES = [
    *(np.array([3, 1, 2], dtype=kind) for kind in "bHiQed"),
    *(pytest.param(np.array([3, 1, 2], dtype=kind), marks=pytest.mark.slow) for kind in "BhIlLqf"),
    np.array([-1.0, 2.0, 1e6]),
    np.array([True, False, True]),
    np.array(["b", "", "a longer name"]),
    np.array(["b", "a", "ä"], dtype=object),
]
ESTIMATORS: dict[str, Any] = {
    "vote": lambda: PrivateVotingClassifier(GaussianNB(), 60, aggregator=GNMax(90.0), random_state=0),
    "student": lambda: PATEClassifier(
        GaussianNB(), n_teachers=60, max_answers=20, aggregator="best", random_state=0, public_share=0.4
    ),
    "models": lambda: PrivateModelsVotingClassifier(DecisionTreeClassifier(), 5, epsilon_each=1, random_state=0),
}


def split(name: str) -> Any:
    X, y = DATA[name](return_X_y=True)
    words = np.array([f"class {number}" for number in range(10)])
    return train_test_split(X, words[y], test_size=60, random_state=0, stratify=y)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("teacher", "data"),
    [
        pytest.param(*pair, marks=[pytest.mark.slow] * (pair[0] == "scaled logistic regression" and pair[1] != "wine"))
        for pair in product(TEACHERS, DATA)
    ],
)
def test_votes_are_right_far_more_often_than_chance(teacher: str, data: str) -> None:
    X, held, y, truth = split(data)
    # with so large a budget a label is almost surely the plurality; below is then twice and more what guessing finds
    vote = PrivateVotingClassifier(TEACHERS[teacher](), 5, epsilon=300, max_queries=60, random_state=0)
    vote.fit(X, y)
    labels = vote.predict(held)
    assert labels.dtype.kind == "U"
    assert np.mean(labels == truth) > 0.55 if len(vote.classes_) > 2 else np.mean(labels == truth) > 0.8
    assert vote.queries_left_ == 0


@pytest.mark.slow
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("teacher", TEACHERS)
def test_students_learn_from_every_teacher(teacher: str, data: str) -> None:
    X, held, y, truth = split(data)
    X, public, y, _ = train_test_split(X, y, test_size=50, random_state=1, stratify=y)
    pate = PATEClassifier(TEACHERS[teacher](), n_teachers=5, epsilon=300, max_answers=50, random_state=0)
    found = pate.fit(X, y, public).predict(held)
    assert np.mean(found == truth) > 0.5
    assert np.allclose(pate.predict_proba(held).sum(axis=1), 1.0)
    assert pate.report_.answered <= 50


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("model", MODELS)
def test_models_vote_without_noise(model: str, data: str) -> None:
    X, held, y, truth = split(data)
    vote = PrivateModelsVotingClassifier(TEACHERS[model](), 5, epsilon_each=1, random_state=0).fit(X, y)
    spent = vote.privacy_spent_
    assert np.mean(vote.predict(held) == truth) > 0.55
    assert vote.plan_.aggregator is None
    assert vote.privacy_spent_ == spent  # whatever is asked: the models were paid for once


def test_a_vote_without_noise_is_the_plurality_of_its_teachers() -> None:
    X, held, y, _ = split("wine")
    vote = PrivateModelsVotingClassifier(GaussianNB(), 7, epsilon_each=1, random_state=0).fit(X, y)
    answers = np.array([teacher.predict(held) for teacher in vote.teachers_])
    for row, label in enumerate(vote.predict(held)):
        counts = [np.sum(answers[:, row] == name) for name in vote.classes_]
        assert counts[list(vote.classes_).index(label)] == max(counts)
        assert vote.votes(held).counts[row].tolist() == counts


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("labels", [np.array([-1, 1]), np.array([False, True]), np.array(["no", "yes"], dtype=object)])
def test_labels_keep_their_names(labels: Any) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    vote = PrivateVotingClassifier(DecisionTreeClassifier(), 9, epsilon=100, max_queries=100, random_state=0)
    found = vote.fit(X, labels[y]).predict(X[:100])
    assert set(found.tolist()) <= set(labels.tolist())
    assert np.mean(found == labels[y[:100]]) > 0.8
    pate = PATEClassifier(DecisionTreeClassifier(), n_teachers=9, epsilon=100, random_state=0)
    assert np.mean(pate.fit(X, labels[y], X[:200]).predict(X) == labels[y]) > 0.8


@pytest.mark.slow
def test_classes_that_no_shard_has_may_be_named_and_others_are_refused() -> None:
    X, _, y, _ = split("iris")
    vote = PrivateVotingClassifier(GaussianNB(), 5, epsilon=30, max_queries=60, classes=["class 9", *np.unique(y)])
    assert vote.fit(X, y).classes_.tolist()[-1] == "class 9"
    assert "was given" in vote.to_model_card()
    assert f"Paid by the ledger whose digest was then `{vote.ledger_.digest()}`." in vote.to_model_card()
    with pytest.raises(ValueError, match=r"classes must be text or numbers below 2\^53, got nan"):
        PrivateVotingClassifier(GaussianNB(), 5, classes=[0, 1, np.nan]).fit(X, np.unique(y, return_inverse=True)[1])
    vote.set_params(classes=["class 0", "class 1"])
    with pytest.raises(ValueError, match=r"one of the classes.*got 'class 2'"):
        vote.fit(X, y)


def test_more_teachers_than_rows_and_a_teacher_that_cannot_learn_are_refused() -> None:
    X, _, y, _ = split("iris")
    with pytest.raises(ValueError, match="n_teachers must be at most the number of rows, n_samples=90"):
        PrivateVotingClassifier(GaussianNB(), 91).fit(X, y)
    unlearned = LogisticRegression(class_weight={99: 1.0})
    with pytest.raises(ValueError, match=r"teacher 0 could not be trained on its .* rows"):
        PrivateVotingClassifier(unlearned, 5, epsilon=300, max_queries=60).fit(X, y)


class Fails(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """A classifier whose fit raises an error of the caller's."""

    def __init__(self, error: Any = None) -> None:
        self.error = error

    def fit(self, _: Any, __: Any) -> Any:
        raise self.error

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X))


@pytest.mark.parametrize("error", [RuntimeError("two\nlines"), TypeError("t"), IndexError("i"), AssertionError()])
def test_an_error_of_a_teacher_or_a_student_is_one_line_of_ours(error: Exception) -> None:
    X, _, y, _ = split("iris")
    with pytest.raises(ValueError, match=r"teacher 0 could not be trained on its .* rows \(.*\): take fewer") as caught:
        PrivateVotingClassifier(Fails(error), 5, epsilon=300, max_queries=60).fit(X, y)
    assert len(str(caught.value).splitlines()) == 1
    pate = PATEClassifier(GaussianNB(), Fails(error), n_teachers=5, epsilon=300)
    with pytest.raises(ValueError, match=r"the student could not be trained .* the next fit resumes there") as caught:
        pate.fit(X, y, X[:40])
    assert len(str(caught.value).splitlines()) == 1
    assert (pate.answers_ >= 0).any()  # released, and told


@pytest.mark.parametrize(
    "wrong",
    [
        DecisionTreeClassifier(max_depth=-1),
        LogisticRegression(C="much"),
        make_pipeline(StandardScaler(), LogisticRegression(C=-1)),
        BaggingClassifier(DecisionTreeClassifier(min_samples_leaf=0)),
    ],
)
def test_parameters_that_no_fit_takes_are_refused_before_anything_is_taught_or_paid(wrong: Any, tmp_path: Path) -> None:
    X, _, y, _ = split("iris")
    with pytest.raises(ValueError, match=r"estimator cannot be trained: The '\w+' parameter of"):
        PrivateVotingClassifier(wrong, 5, ledger=tmp_path / "ledger").fit(X, y)
    with pytest.raises(ValueError, match=r"student cannot be trained: The '\w+' parameter of"):
        PATEClassifier(GaussianNB(), wrong, n_teachers=5, ledger=tmp_path / "ledger").fit(X, y, X[:40])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_teachers_without_rows_vote_for_a_class_that_no_data_decide() -> None:
    X, _, y, _ = split("iris")
    vote = PrivateVotingClassifier(KNeighborsClassifier(1), 60, aggregator=GNMax(90.0), random_state=0)
    vote.fit(X, y, groups=["one person"] * len(X))
    kinds = [type(teacher).__name__ for teacher in vote.teachers_]
    assert (kinds.count("KNeighborsClassifier"), kinds.count("DummyClassifier")) == (1, 59)


def test_sparse_inputs_and_their_dense_copies_have_the_same_votes() -> None:
    X, held, y, _ = split("digits")
    votes = []
    for made in (np.asarray, csr_array):
        vote = PrivateModelsVotingClassifier(KNeighborsClassifier(1), 4, epsilon_each=1, random_state=0)
        votes.append(vote.fit(made(X), y).votes(made(held)).counts)
    assert np.array_equal(*votes)


def test_data_frames_reach_the_teachers_as_they_are() -> None:
    pandas = pytest.importorskip("pandas")
    from sklearn.compose import make_column_transformer
    from sklearn.preprocessing import OneHotEncoder

    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"size": rng.normal(size=400), "color": rng.choice(["red", "blue"], 400)})
    y = np.where((frame["color"] == "red") ^ (frame["size"] > 1.0), "yes", "no")
    teacher = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["color"]), remainder="passthrough"), DecisionTreeClassifier()
    )
    vote = PrivateVotingClassifier(teacher, 5, epsilon=100, max_queries=50, random_state=0)
    assert np.mean(vote.fit(frame[50:], pandas.Series(y[50:])).predict(frame[:50]) == y[:50]) > 0.85
    assert vote.feature_names_in_.tolist() == ["size", "color"]
    with pytest.raises(ValueError, match="feature names"):
        vote.predict(frame[["color", "size"]])
    pate = PATEClassifier(teacher, make_pipeline(*teacher.steps[0][1:], DecisionTreeClassifier()), n_teachers=5)
    pate.set_params(epsilon=100, aggregator="best", random_state=0)
    assert np.mean(pate.fit(frame[150:], y[150:], frame[50:150]).predict(frame[:50]) == y[:50]) > 0.8


@pytest.mark.slow
def test_teachers_train_and_vote_in_processes_as_in_one() -> None:
    X, held, y, _ = split("wine")
    counts = []
    for jobs in (None, 2):
        teacher = DecisionTreeClassifier(max_features=1)
        vote = PrivateVotingClassifier(teacher, 5, epsilon=300, max_queries=60, random_state=0, n_jobs=jobs)
        with pytest.warns(PrivateFigureWarning):
            counts.append(vote.fit(X, y).votes(held).counts)
    assert np.array_equal(*counts)


def test_a_pipeline_with_groups() -> None:
    X, held, y, _ = split("wine")
    vote = PrivateVotingClassifier(GaussianNB(), 5, epsilon=300, max_queries=60, random_state=0)
    pipe = make_pipeline(StandardScaler(), vote)
    pipe.fit(X, y, privatevotingclassifier__groups=np.arange(len(X)) // 2)
    assert pipe.predict(held[:9]).shape == (9,)
    assert "one group" in pipe[-1].to_model_card()


@pytest.mark.slow
def test_a_card_is_about_the_fit_and_not_about_settings_of_later() -> None:
    X, _, y, _ = split("iris")
    vote = PrivateVotingClassifier(GaussianNB(), 5, epsilon=30, max_queries=60, random_state=0).fit(X, y)
    card = vote.to_model_card()
    assert "is in one of them only" not in card  # the key is published
    vote.set_params(estimator=None, n_teachers=9, epsilon=1, delta=0, max_queries=1, classes=["a"], random_state=None)
    assert vote.to_model_card() == card


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("names", TYPES, ids=lambda names: f"{names.dtype} {names[0]!r}")
@pytest.mark.parametrize(
    "estimator", ["vote", *(pytest.param(name, marks=pytest.mark.slow) for name in ("models", "student"))]
)
def test_labels_of_every_type_are_learned_by_shards_of_one_class_too(estimator: str, names: Any) -> None:
    # 60 teachers of 150 rows: about 5 have no row, and 20 rows of one class only
    fitted = ESTIMATORS[estimator]().fit(X, names[y])
    answers = fitted.predict(X[:20])
    assert answers.dtype == names.dtype
    assert set(answers.tolist()) <= set(names.tolist())


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    "mixed",
    [
        np.array(["a", 7, "b"], dtype=object),
        np.array(["a", None, "b"], dtype=object),
        *([1, "a", "b"], ["a", 2.5, 3], [float("nan"), "a", "b"], ["a", None, "b"]),
    ],
)
def test_labels_of_several_types_are_refused_and_not_made_text(estimator: str, mixed: Any) -> None:
    with pytest.raises(ValueError, match="y must be all numbers, or all text, got labels of several types"):
        ESTIMATORS[estimator]().fit(X, [mixed[code] for code in y] if isinstance(mixed, list) else mixed[y])
    with pytest.raises(ValueError, match=r"classes must be (all numbers, or all text|text or numbers)"):
        ESTIMATORS[estimator]().set_params(classes=mixed).fit(X, y)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"semi_supervised": "yes"}, "semi_supervised must be 'auto', True or False"),
        ({"accounting": "tested", "votes_look_like": ["dirichlet:0.1"]}, "votes_look_like must be a str"),
        ({"accounting": "tested", "aggregator": GNMax(9.0)}, "aggregator must be a str"),
        ({"accounting": "tested", "aggregator": ["best"]}, "aggregator must be a str"),
    ],
)
def test_settings_of_another_kind_are_refused_in_words(settings: Any, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        PATEClassifier(GaussianNB(), n_teachers=6, **settings).fit(X, y, X[:9])


def test_a_share_of_models_that_are_none_is_refused() -> None:
    with pytest.raises(ValueError, match="estimator must be a classifier"):
        PrivateModelsVotingClassifier(None, 3, epsilon_each=1, classes=[0, 1]).expected_accuracy()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_texts_without_a_table_are_refused_in_words(estimator: str) -> None:
    texts = [f"text {number}" for number in range(150)]
    for inputs in (texts, np.array(texts), np.array(texts, dtype=object), texts[0]):
        with pytest.raises(ValueError, match=r"X must be a table.*pipeline that begins with what reads texts"):
            ESTIMATORS[estimator]().fit(inputs, y)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    "teacher",
    [
        LinearRegression(),
        make_pipeline(StandardScaler(), LinearRegression()),
        GridSearchCV(LinearRegression(), {}),
        KMeans(),
        StandardScaler(),
        DecisionTreeClassifier,
        None,
    ],
    ids=lambda teacher: repr(teacher)[:20],
)
def test_what_is_no_classifier_is_refused_by_fit(estimator: str, teacher: Any, tmp_path: Path) -> None:
    made = ESTIMATORS[estimator]().set_params(ledger=tmp_path / "l")
    made.set_params(**{made.teacher_parameter: teacher})
    with pytest.raises(ValueError, match=r"must be a classifier"):
        made.fit(X, y)
    assert not (tmp_path / "l").exists()


def test_public_inputs_are_asked_for_or_held_out(tmp_path: Path) -> None:
    pate = PATEClassifier(GaussianNB(), n_teachers=5, epsilon=20, ledger=tmp_path / "l", random_state=0)
    with pytest.raises(ValueError, match="X_public must be the public inputs"):
        pate.fit(X, y)
    for share in (0, 1, "half"):
        with pytest.raises(ValueError, match="public_share"):
            pate.set_params(public_share=share).fit(X, y)
    assert not (tmp_path / "l").exists()
    pate.set_params(public_share=1e-9)
    with pytest.raises(ValueError, match="leaves rows on both sides"):
        pate.fit(X, y)
    taught: list[Any] = []
    pate.set_params(public_share=0.4, teacher=_Seen(taught)).fit(X, y, groups=np.arange(150) // 3)
    held = pate.report_.inputs
    assert 30 < held < 90
    assert f"The inputs of {held} rows that were held out" in pate.to_model_card()
    assert held % 3 == 0  # whole persons
    assert sum(len(rows) for rows in taught) <= 150 - held  # nobody learns from a row that is held out


class _Seen(GaussianNB):  # type: ignore[misc]  # scikit-learn ships no types
    """A teacher that says what it was taught."""

    def __init__(self, log: Any = None) -> None:
        super().__init__()
        self.log = log

    def __sklearn_clone__(self) -> Any:
        return _Seen(self.log)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self.log.append(X)
        return super().fit(X, y, sample_weight)


@pytest.mark.slow
def test_cross_validation_of_a_student_learns_from_held_out_inputs() -> None:
    data, labels = load_breast_cancer(return_X_y=True)
    teacher = make_pipeline(StandardScaler(), GaussianNB())
    pate = PATEClassifier(teacher, n_teachers=20, epsilon=20, public_share=0.4, random_state=0)
    assert cross_val_score(pate, data, labels, cv=3).mean() > 0.85  # the majority has 0.63


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("estimator", ESTIMATORS)
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


@pytest.mark.slow
def test_the_share_right_is_said_before_anything_is_paid(tmp_path: Path) -> None:
    made = PrivateVotingClassifier(GaussianNB(), 60, max_queries=20, epsilon=3, ledger=tmp_path / "l", random_state=0)
    with pytest.raises(ValueError, match="classes must be given before a fit"):
        made.expected_accuracy()
    share = made.set_params(classes=[2, 0, 1]).expected_accuracy()
    assert not (tmp_path / "l").exists()
    assert 1 / 3 < share < 1
    fitted = made.set_params(classes=None).fit(X, y)
    assert fitted.expected_accuracy() == share == fitted.plan_.accuracy
    assert fitted.privacy_spent_.epsilon == 0
    assert made.set_params(epsilon=8).expected_accuracy() > share
    with pytest.raises(ValueError, match="aggregator must be 'best'"):
        ESTIMATORS["vote"]().set_params(classes=[0, 1, 2]).expected_accuracy()
    assert ESTIMATORS["models"]().set_params(classes=[0, 1, 2]).expected_accuracy() == pytest.approx(
        1
    )  # no noise is needed


@pytest.mark.slow
def test_progress_is_shown_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[bool, str]] = []
    monkeypatch.setattr(StatusLine, "show", lambda line, text: shown.append((line.enabled, text)))
    for verbose in (0, 1):
        ESTIMATORS["vote"]().set_params(verbose=verbose).fit(X, y)
        ESTIMATORS["student"]().set_params(verbose=verbose).fit(X, y)
    said = [(enabled, text) for enabled, text in shown if "teachers" in text]
    texts = ["planning 1,000 answers of 60 teachers", "training 60 teachers", "planning, and training 60 teachers"]
    assert said == [(enabled, text) for enabled in (False, True) for text in texts]


def test_steps_whose_output_is_set_hand_data_frames_to_teachers(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    seen: list[type] = []
    learn = DecisionTreeClassifier.fit

    def noted(tree: Any, inputs: Any, labels: Any, *rest: Any, **more: Any) -> Any:
        seen.append(type(inputs))
        return learn(tree, inputs, labels, *rest, **more)

    monkeypatch.setattr(DecisionTreeClassifier, "fit", noted)
    scaler = StandardScaler().set_output(transform="pandas")
    vote = PrivateVotingClassifier(DecisionTreeClassifier(), 5, epsilon=20, max_queries=5, random_state=0)
    make_private_pipeline(scaler, vote).fit(X, y).predict(X[:5])
    assert len(seen) == 5
    assert set(seen) == {pandas.DataFrame}


@pytest.mark.parametrize("labels", [np.array(["a", "b", "c"], dtype=object)[y], np.array(["a", "b", "c"])[y]])
def test_text_where_the_classes_are_numbers_is_refused_in_words(labels: Any) -> None:
    with pytest.raises(ValueError, match=r"y must be one of the classes \[0, 1, 2\], got 'a'"):
        ESTIMATORS["vote"]().set_params(classes=[0, 1, 2]).fit(X, labels)


@pytest.mark.parametrize("classes", [10, np.int64(10), np.array(10), range(10), tuple(range(10))])
def test_a_number_of_classes_is_the_classes_from_zero_on(classes: Any) -> None:
    vote = PrivateVotingClassifier(GaussianNB(), 6, aggregator=GNMax(90.0), classes=classes, random_state=0)
    assert vote.fit(X, y).classes_.tolist() == list(range(10))
    best = PrivateVotingClassifier(GaussianNB(), 6, epsilon=3, max_queries=20, classes=classes)
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
        ([0, 1, 1, 2], "different labels"),
        ("open", "listed, or their number"),
    ],
)
def test_what_is_no_list_of_classes_is_refused_in_words(classes: Any, line: str) -> None:
    for estimator in (*ESTIMATORS, "model"):
        model = PrivateSGDClassifier(partial(torch.nn.Linear, 4, 3), classes)
        made = model if estimator == "model" else ESTIMATORS[estimator]().set_params(classes=classes)
        with pytest.raises(ValueError, match=f"classes must be .*{line}"):
            made.fit(X, y)


@pytest.mark.parametrize("wrapper", [VotingClassifier, StackingClassifier])
def test_wrappers_that_pass_numbers_for_names_are_named(wrapper: Any) -> None:
    names = np.array(["no", "yes", "maybe"])[y]

    def wrapped(classes: Any) -> Any:
        vote = PrivateVotingClassifier(GaussianNB(), 6, aggregator=GNMax(90.0), classes=classes)
        return wrapper([("private", vote), ("public", GaussianNB())])

    with pytest.raises(ValueError, match="StackingClassifier pass numbers for names: use classes=3"):
        wrapped(["no", "yes", "maybe"]).fit(X, names)
    assert set(wrapped(3).fit(X, names).predict(X[:20])) <= set(names)


def test_the_messages_of_scikit_learn_are_one_line() -> None:
    vote = ESTIMATORS["vote"]()
    for inputs, labels in ((X[0], y), (X, y + 1j), (np.where(X > 7, np.nan, X), y)):
        with pytest.raises((ValueError, TypeError)) as caught:
            vote.fit(inputs, labels)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="Reshape your data") as caught:
        vote.fit(X, y).predict(X[0])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("labels", [["a", "b"] * 10, [1, "a"] * 10, [0.5, 1] * 10, [None, 1] * 10])
def test_labels_of_images_are_whole_numbers(labels: list[Any]) -> None:
    with pytest.raises(ValueError, match="y must be"):
        FixMatchClassifier().fit(np.zeros((20, 64)), labels)
    with pytest.raises(ValueError, match="y must be"):
        FixMatchClassifier().fit(np.zeros((20, 64)), np.array(labels, dtype=object))


@pytest.mark.parametrize("student", [LinearRegression(), make_pipeline(StandardScaler(), LinearRegression())])
def test_a_student_that_is_no_classifier_is_refused_before_anything_is_paid(student: Any, tmp_path: Path) -> None:
    pate = PATEClassifier(GaussianNB(), student, n_teachers=5, ledger=tmp_path / "l")
    with pytest.raises(ValueError, match="student must be a classifier, got a regressor"):
        pate.fit(X, y, X[:50])
    assert not (tmp_path / "l").exists()


SAID = np.array([["good", "fine", "nice", "a", "the"], ["bad", "poor", "ugly", "a", "the"]])
LABELS = np.random.default_rng(0).integers(0, 2, 150)
TEXTS = [" ".join(np.random.default_rng(row).choice(SAID[label], 5)) for row, label in enumerate(LABELS)]
TEACHER = make_pipeline(CountVectorizer(), MultinomialNB())


def series(texts: Any) -> Any:
    return pytest.importorskip("pandas").Series(texts, index=range(7, 7 + len(texts)))  # rows are no positions


FORMS: list[Callable[[Any], Any]] = [list, tuple, np.array, lambda texts: np.array(texts, dtype=object), series]


def text_vote(**settings: Any) -> PrivateVotingClassifier:
    return PrivateVotingClassifier(
        TEACHER, 15, aggregator=GNMax(3.0), epsilon=100, max_queries=150, random_state=0, **settings
    )


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("form", FORMS, ids=["list", "tuple", "array", "objects", "Series"])
def test_every_form_of_a_list_teaches_the_same_teachers(form: Callable[[Any], Any]) -> None:
    fitted, plain = text_vote().fit(form(TEXTS[:120]), LABELS[:120]), text_vote().fit(TEXTS[:120], LABELS[:120])
    # counts, not labels: these are drawn; a shard that took a Series by its index would train others
    votes = [each._counts(each.teachers_, each._inputs(form(TEXTS[120:]), reset=False)) for each in (fitted, plain)]
    assert np.array_equal(*votes)
    assert (fitted.predict(form(TEXTS[120:])) == LABELS[120:]).mean() > 0.7
    assert not hasattr(fitted, "n_features_in_")


def test_a_word_of_one_person_is_read_by_one_teacher() -> None:
    # the wrong program: what reads texts learns its words from all rows, in front of the shards
    texts, groups = list(TEXTS), np.arange(150) // 2
    texts[10], texts[11] = texts[10] + " uncommon", texts[11] + " uncommon"
    fitted = text_vote().fit(texts, LABELS, groups=groups)
    knows = ["uncommon" in teacher[0].vocabulary_ for teacher in fitted.teachers_ if hasattr(teacher, "steps")]
    assert sum(knows) == 1
    others = text_vote().fit(TEXTS, LABELS, groups=groups).teachers_
    same = [
        teacher[0].vocabulary_ == other[0].vocabulary_
        for teacher, other in zip(fitted.teachers_, others, strict=True)
        if hasattr(teacher, "steps")
    ]
    assert sum(same) == len(same) - 1


@pytest.mark.slow
@pytest.mark.parametrize("student", [None, make_pipeline(TfidfVectorizer(), MultinomialNB())], ids=["none", "own"])
def test_a_student_of_texts_is_kept_in_a_file(student: Any, tmp_path: Path) -> None:
    made = PATEClassifier(
        LogisticRegression(), student, n_teachers=15, aggregator="best", epsilon=20, max_answers=30, random_state=0
    )
    if student is None:
        made = make_private_pipeline(TfidfVectorizer(), made)
    else:
        made.set_params(teacher=TEACHER)
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
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_list_of_texts_is_refused_in_a_line(inputs: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        text_vote(ledger=tmp_path / "l").fit(inputs, LABELS)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "l").exists()


def test_a_table_is_refused_where_texts_were_learned() -> None:
    frame = pytest.importorskip("pandas").DataFrame(
        {"text": TEXTS}
    )  # whose rows are its columns' names, to an iterator
    fitted = text_vote().fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match=r"got a DataFrame of shape \(150, 1\)"):
        fitted.predict(frame)
    assert fitted.privacy_spent_.epsilon == 0


def test_a_student_that_reads_no_texts_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    made = PATEClassifier(TEACHER, LogisticRegression(), n_teachers=5, ledger=tmp_path / "l")
    with pytest.raises(ValueError, match=r"student must be a pipeline that begins with what reads texts"):
        made.fit(TEXTS[:100], LABELS[:100], X_public=TEXTS[100:])
    assert not (tmp_path / "l").exists()


def test_who_reads_texts_is_known_by_the_first_step() -> None:
    union = FeatureUnion([("words", TfidfVectorizer()), ("pairs", CountVectorizer())])
    assert reader_of(make_pipeline(union, MultinomialNB())) is union
    assert reader_of(GridSearchCV(make_pipeline(TEACHER, MultinomialNB()), {})) is TEACHER[0]
    for other in (make_pipeline("passthrough", MultinomialNB()), make_pipeline(OneHotEncoder(), MultinomialNB())):
        assert reader_of(other) is None  # an encoder takes texts, in a table
    assert reader_of(_Steps()) is None
    tags = get_tags(text_vote()).input_tags
    assert (tags.string, tags.two_d_array) == (True, False)
    assert get_tags(PrivateVotingClassifier(MultinomialNB())).input_tags.two_d_array


class _Steps(MultinomialNB):  # type: ignore[misc]  # scikit-learn ships no types
    """No pipeline, though it has steps, as what is trained by gradients has."""

    steps = 100


def test_a_fit_to_texts_forgets_the_columns_of_an_earlier_one() -> None:
    fitted = text_vote().set_params(estimator=MultinomialNB()).fit(np.ones((150, 3)), LABELS)
    assert fitted.n_features_in_ == 3
    assert not hasattr(fitted.set_params(estimator=TEACHER).fit(TEXTS, LABELS), "n_features_in_")


WINE, KINDS = load_wine(return_X_y=True)


def wine_vote() -> PrivateVotingClassifier:
    return PrivateVotingClassifier(GaussianNB(), 12, aggregator=GNMax(90.0), random_state=0, classes=[0, 1, 2])


def changed(pipeline: Any) -> int:
    """Count the teachers that one person's row moves."""
    fits = []
    for value in (0.0, 1e6):
        inputs = WINE.copy()
        inputs[7] = value
        fitted = pipeline.fit(inputs, KINDS)
        fits.append([pickle.dumps(teacher) for teacher in getattr(fitted, "teachers_", None) or fitted[-1].teachers_])
    return sum(one != other for one, other in zip(*fits, strict=True))


def test_one_person_reaches_one_teacher_through_the_steps() -> None:
    assert changed(make_private_pipeline(StandardScaler(), wine_vote())) == 1
    assert changed(make_pipeline(StandardScaler(), wine_vote())) == 12  # what the helper is for


def test_the_student_s_steps_learn_from_public_inputs() -> None:
    pate = PATEClassifier(GaussianNB(), LogisticRegression(), n_teachers=5, epsilon=300, random_state=0)
    made = make_private_pipeline(StandardScaler(), pate).fit(WINE, KINDS, WINE[::2])
    assert np.allclose(made.student_[0].mean_, WINE[::2][made.answers_ >= 0].mean(axis=0))
    assert isinstance(pate.teacher, GaussianNB)  # the caller's own is left alone
    assert make_private_pipeline(StandardScaler(), pate.set_params(student=None)).student is None


def test_a_pipeline_is_no_way_around_the_noise_of_private_models() -> None:
    for last in (PrivateModelsVotingClassifier(GaussianNB(), 5, epsilon_each=1), DecisionTreeClassifier()):
        with pytest.raises(ValueError, match="the last step must be a PrivateVotingClassifier"):
            make_private_pipeline(StandardScaler(), last)
    with pytest.raises(ValueError, match="the last step must be"):
        make_private_pipeline()


def test_the_student_of_images_stands_behind_no_steps() -> None:
    with pytest.raises(ValueError, match="images are no input for steps"):
        make_private_pipeline(StandardScaler(), PATEClassifier(GaussianNB(), "fixmatch"))
