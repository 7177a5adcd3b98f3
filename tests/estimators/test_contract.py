"""Every estimator with every kind of teacher on every data set; labels of text, data frames, sparse inputs, groups."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from darrm.estimators import PATEClassifier, PrivateModelsVotingClassifier, PrivateVotingClassifier
from darrm.pate import GNMax
from darrm.pate.analysis import PrivateFigureWarning

DATA = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
TEACHERS = {
    "scaled logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
    "tree": DecisionTreeClassifier,
    "naive Bayes": lambda: GaussianNB(var_smoothing=1e-3),
    "nearest neighbor": lambda: KNeighborsClassifier(1),
    "support vectors": lambda: make_pipeline(StandardScaler(), SVC()),
}
MODELS = ("tree", "naive Bayes", "nearest neighbor")  # those that learn from a shard of one class, too


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
