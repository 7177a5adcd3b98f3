"""What `fit` takes and refuses: labels of every type, texts that are no table, teachers that are no classifiers."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("torch")
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from darrm.estimators import (
    PATEClassifier,
    PrivateModelsVotingClassifier,
    PrivateVotingClassifier,
    make_private_pipeline,
)
from darrm.estimators.dpsgd import PrivateSGDClassifier
from darrm.estimators.fixmatch import FixMatchClassifier
from darrm.pate import GNMax
from darrm.util.progress import StatusLine

X, y = load_iris(return_X_y=True)
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
@pytest.mark.parametrize("odd", [7, None])
def test_labels_that_have_no_order_are_refused_in_words(estimator: str, odd: Any) -> None:
    mixed = np.array(["a", odd, "b"], dtype=object)
    with pytest.raises(ValueError, match="y must be all numbers, or all text"):
        ESTIMATORS[estimator]().fit(X, mixed[y])
    with pytest.raises(ValueError, match=r"classes must be (all numbers, or all text|text or numbers below 2\^53)"):
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


def test_a_student_that_is_no_classifier_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    pate = PATEClassifier(GaussianNB(), LinearRegression(), n_teachers=5, ledger=tmp_path / "l")
    with pytest.raises(ValueError, match="student must be a classifier, got a regressor"):
        pate.fit(X, y, X[:50])
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


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("mixed", [[1, "a", "b"], ["a", 2.5, 3], [float("nan"), "a", "b"], ["a", None, "b"]])
def test_a_list_of_numbers_and_text_is_refused_and_not_made_text(estimator: str, mixed: list[Any]) -> None:
    with pytest.raises(ValueError, match="y must be all numbers, or all text, got labels of several types"):
        ESTIMATORS[estimator]().fit(X, [mixed[code] for code in y])
    with pytest.raises(ValueError, match=r"classes must be (all numbers, or all text|text or numbers)"):
        ESTIMATORS[estimator]().set_params(classes=mixed).fit(X, y)


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
