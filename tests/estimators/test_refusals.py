"""`fit` refuses wrong settings and data of every estimator, in one line, before it opens a ledger."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from darrm import PrivacyLedger, PrivacyParams, Voters
from darrm.errors import PlanError
from darrm.estimators import PrivateVotingClassifier, make_private_pipeline
from darrm.estimators.budget import LimitedConfident
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.pate import ConfidentGNMax, GNMax, InteractiveGNMax
from darrm.pate.tested import TestedRun
from tests.estimators.support import MAKERS, TEXT_LABELS, TEXT_TEACHER, TEXTS, WORDS, X, make_pate, make_vote, y

PEOPLE = np.arange(len(X)) // 2


class Private(LogisticRegression):  # type: ignore[misc]  # scikit-learn ships no types
    """A stand-in of a private estimator, with its guarantee as parameters."""

    def __init__(self, epsilon: Any = 0.5, delta: float = 0.0) -> None:
        super().__init__(max_iter=2000)
        self.epsilon, self.delta = epsilon, delta


class Shared(DecisionTreeClassifier):  # type: ignore[misc]
    """An estimator whose clones are one object."""

    def __sklearn_clone__(self) -> Any:
        return self


def name_rows(names: list[Any], *, as_objects: bool = False) -> Any:
    """Return a label of each row, by the row's class."""
    return np.array(names, dtype=object)[y] if as_objects else [names[code] for code in y]


RUN = TestedRun(NoisyMaximum(GNMax(9.0), Voters(6, PrivacyParams("inf"), 1), 3), 50, PrivacyParams(3, 1e-5), 4.0)
SCORED = InteractiveGNMax(6, 9.0, 9.0, 0.9).with_scores(np.full((len(X), 3), 1 / 3))
TESTED = {"accounting": "tested"}
MIXED = "all numbers, or all text"

# the message, the estimators ("": all), their settings
WRONG_SETTINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("must be a classifier", "", {"teacher": LinearRegression()}),
    *(
        ("must be a classifier", "vote", {"teacher": teacher})
        for teacher in (make_pipeline(LinearRegression()), GridSearchCV(LinearRegression(), {}), KMeans(), None)
    ),
    ("pass an object", "vote", {"teacher": DecisionTreeClassifier}),
    (r"go to PrivateVotingClassifier\.from_fitted", "vote", {"teacher": [GaussianNB()]}),
    *(
        ("estimator cannot be trained: ", "vote", {"teacher": teacher})
        for teacher in (
            DecisionTreeClassifier(max_depth=-1),
            make_pipeline(StandardScaler(), LogisticRegression(C=-1)),
            BaggingClassifier(DecisionTreeClassifier(min_samples_leaf=0)),
        )
    ),
    ("n_teachers must be at most the number of rows, n_samples=150", "vote", {"n_teachers": 151}),
    ("n_models must be at most the number of rows", "models", {"n_models": 151}),
    ("max_queries must be", "vote", {"max_queries": 0}),
    ("max_answers must be", "student", {"max_answers": 0}),
    ("in order, the one for class 0 first, .*a set has no order", "", {"classes": {"a", "b"}}),
    ("or their number, got 'abc'", "vote", {"classes": "abc"}),
    ("or their number, got True", "vote", {"classes": True}),
    ("an integer of at least 2, got 1", "vote", {"classes": 1}),
    (r"or their number, got 3\.0", "vote", {"classes": 3.0}),
    ("text or numbers", "vote", {"classes": [[0, 1, 2]]}),
    (r"below 2\^53, got nan", "vote", {"classes": [0, 1, np.nan]}),
    ("different labels", "vote", {"classes": [0, 1, 1, 2]}),
    ("listed, or their number", "vote", {"classes": "open"}),
    (f"classes must be ({MIXED}|text or numbers)", "vote", {"classes": [1, "a", "b"]}),
    (f"classes must be ({MIXED}|text or numbers)", "vote", {"classes": name_rows(["a", None, "b"], as_objects=True)}),
    ("one of the classes.*got 2", "vote", {"classes": [0, 1]}),
    ("'best', or an aggregator", "vote", {"aggregator": "bets"}),
    ("'best', or an aggregator", "vote", {"aggregator": GNMax}),
    ("do not fit", "vote", {"aggregator": GNMax(1.0)}),
    # an error would reveal, without cost, that a query was declined
    ("a PATEClassifier declines", "vote", {"epsilon": 30, "aggregator": ConfidentGNMax(6, 3, 3)}),
    ("a PATEClassifier declines", "vote", {"aggregator": LimitedConfident(ConfidentGNMax(6, 9, 9), 50, 9)}),
    ("a PATEClassifier declines", "vote", {"aggregator": RUN}),
    ("scores are for queries in order", "student", {"aggregator": SCORED}),
    ("pass delta, or aggregator='best'", "student", {"aggregator": "confident", "delta": 0}),
    ("the path of a file", "vote", {"ledger": ":memory:"}),
    ("say ledger.path", "vote", {"ledger": PrivacyLedger.create(":memory:", PrivacyParams(3, 1e-5))}),
    ("semi_supervised must be 'auto', True or False", "student", {"semi_supervised": "yes"}),
    ("student must be a classifier, got a regressor", "student", {"student": LinearRegression()}),
    ("student cannot be trained", "student", {"student": DecisionTreeClassifier(max_depth=-1)}),
    ("student must be one of fixmatch, got 'mixmatch'", "student", {"student": "mixmatch"}),
    ("accounting", "student", {"accounting": "exact"}),
    ("votes_look_like must be said", "student", TESTED | {"aggregator": "best"}),
    ("votes_look_like must be a str", "student", TESTED | {"votes_look_like": ["dirichlet:0.1"]}),
    ("aggregator must be a str", "student", TESTED | {"aggregator": GNMax(9.0)}),
    ("aggregator must be one of", "student", TESTED | {"aggregator": "worst", "votes_look_like": "dirichlet:0.1"}),
    ("X_public must be the public inputs", "student", {"public_share": None}),
    *(("public_share", "student", {"public_share": share}) for share in (0, 1, "half")),
    ("on both sides", "student", {"public_share": 1e-9}),
    # the guarantee of one model, if nobody states it; scikit-learn's epsilons are no guarantees
    *(
        ("pass epsilon_each=", "models", {"teacher": teacher, "epsilon_each": None})
        for teacher in (LogisticRegression(), SGDClassifier(), make_pipeline(StandardScaler(), MLPClassifier()))
    ),
    *(  # an ensemble fits its part ten times, and a scaler adds no noise
        ("pass the guarantee of one fit of the whole", "models", {"teacher": teacher, "epsilon_each": None})
        for teacher in (BaggingClassifier(Private()), make_pipeline(StandardScaler(), Private()))
    ),
    (r"epsilon_each must be at least 0\.5", "models", {"teacher": Private(), "epsilon_each": 0.1}),
    ("the estimator's epsilon must be a finite number", "models", {"teacher": Private("auto")}),
]
# the message, the estimators, their settings, and arguments of `fit`
WRONG_DATA: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    *(
        (f"y must be {MIXED}", "vote", {}, {"y": name_rows(names)})
        for names in ([1, "a", "b"], ["a", 2.5, 3], [float("nan"), "a", "b"], ["a", None, "b"])
    ),
    *((f"y must be {MIXED}", "", {}, {"y": name_rows(["a", odd, "b"], as_objects=True)}) for odd in (7, None)),
    ("StackingClassifier pass numbers for names: use classes=3", "vote", {"classes": ["a", "b", "c"]}, {}),
    ("requires y", "vote", {}, {"y": None}),
    ("of two classes or more", "vote", {}, {"y": np.zeros(150)}),
    (r"\[0, 1, 2\], got 'a'", "vote", {"classes": 3}, {"y": WORDS}),
    ("Reshape your data|2D array", "vote", {}, {"X": X[0]}),
    ("Complex|omplex", "vote", {}, {"y": y + 1j}),
    ("NaN", "vote", {"teacher": GaussianNB()}, {"X": np.where(X > 7, np.nan, X)}),
    ("sample_weight must be left out, got weights: .*groups=", "", {}, {"sample_weight": np.ones(150)}),
    ("unexpected keyword argument 'weights'", "", {}, {"weights": None}),
    *(
        (r"X must be a table.*pipeline that begins with what reads texts", "vote", {}, {"X": inputs})
        for inputs in (TEXTS, np.array(TEXTS), np.array(TEXTS, dtype=object), TEXTS[0])
    ),
    ("epsilon_each must be a number where groups are given", "models", {"epsilon_each": None}, {"groups": PEOPLE}),
    (
        "delta_each must be a number where groups are given",
        "models",
        {"teacher": Private(delta=1e-6)},
        {"groups": PEOPLE},
    ),
]
# what is no list of texts, for teachers that begin with a vectorizer
WRONG_TEXTS: list[tuple[str, Any]] = [
    ("got one text: put it into a list", TEXTS[0]),
    ("at least one text", []),
    ("got NoneType as number 149", [*TEXTS[1:], None]),
    ("got float as number 149", [*TEXTS[1:], float("nan")]),
    ("got bytes as number 0", [text.encode() for text in TEXTS]),
    (r"got a list of shape \(150, 1\)", [[text] for text in TEXTS]),
    (r"shape \(150, 2\): the teacher begins with CountVectorizer", np.zeros((150, 2))),
    (r"got a csr_array of shape \(150, 150\)", csr_array(np.eye(150))),
    ("got a set of shape", set(TEXTS)),
    ("got a list of shape", [np.zeros((2, 3)), np.zeros((2, 4))]),
]


def list_cases() -> Iterator[Any]:
    cases: list[tuple[Any, ...]] = [*WRONG_SETTINGS, *WRONG_DATA]
    for message, kinds, settings, *data in cases:
        for kind in kinds.split() or MAKERS:
            yield pytest.param(kind, settings, *(data or [{}]), message, id=f"{kind}: {message[:40]}")
    text_data = {"X": TEXTS, "y": TEXT_LABELS}
    for message, texts in WRONG_TEXTS:
        yield pytest.param("vote", {"teacher": TEXT_TEACHER}, text_data | {"X": texts}, message, id=message[:40])
    no_vectorizer = {"teacher": TEXT_TEACHER, "student": LogisticRegression()}
    yield pytest.param("student", no_vectorizer, text_data, "student must be a pipeline that begins", id="student")


@pytest.mark.parametrize(("kind", "settings", "data", "message"), list(list_cases()))
def test_fit_refuses_wrong_arguments_before_it_opens_a_ledger(
    kind: str, settings: dict[str, Any], data: dict[str, Any], message: str, tmp_path: Path
) -> None:
    estimator = MAKERS[kind](ledger=tmp_path / "ledger")
    names = {"teacher": estimator.teacher_parameter}
    estimator.set_params(**{names.get(name, name): value for name, value in settings.items()})
    with pytest.raises((ValueError, TypeError, PlanError), match=message) as refusal:
        estimator.fit(**({"X": X, "y": y} | data))
    assert "\n" not in str(refusal.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("teacher", [Shared(), FrozenEstimator(DecisionTreeClassifier().fit(X, y))])
def test_fit_refuses_teachers_whose_clones_share_what_they_learned(teacher: Any) -> None:
    with pytest.raises(ValueError, match="one whose clones are unfitted"):
        MAKERS["vote"](estimator=teacher).fit(X, y)


@pytest.mark.parametrize("error", [RuntimeError("two\nlines"), AssertionError()])
def test_an_error_of_a_teacher_or_a_student_becomes_one_line(error: Exception) -> None:
    class Failing(DummyClassifier):  # type: ignore[misc]
        def fit(self, *_: Any) -> Any:
            raise error

    with pytest.raises(
        ValueError, match=r"teacher 0 could not be trained on its .* rows \(.*\): take fewer"
    ) as refusal:
        MAKERS["vote"](estimator=Failing()).fit(X, y)
    assert "\n" not in str(refusal.value)
    pate = MAKERS["student"](student=Failing())
    with pytest.raises(ValueError, match=r"the student could not be trained .* the next fit resumes there") as refusal:
        pate.fit(X, y)
    assert "\n" not in str(refusal.value)
    assert (pate.answers_ >= 0).any()  # they are released


FITTED = [GaussianNB().fit(X, y), GaussianNB().fit(X[:100], y[:100])]  # the second knows two classes
from_fitted = PrivateVotingClassifier.from_fitted


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_private_pipeline(StandardScaler(), MAKERS["models"]()), "the last step must be a P"),
        (lambda: make_private_pipeline(DecisionTreeClassifier()), "the last step must be a PrivateVotingClassifier"),
        (make_private_pipeline, "the last step must be"),
        (lambda: make_private_pipeline(make_pate(student="fixmatch")), "images are no input for steps"),
        (lambda: make_vote(LinearRegression(), classes=3).expected_accuracy(), "must be a classifier"),
        (lambda: make_vote(aggregator="best").expected_accuracy(), "classes must be given before a fit"),
        (lambda: make_vote(classes=3).expected_accuracy(), "aggregator must be 'best'"),
        (lambda: from_fitted([], overlap=1), "at least one"),
        (lambda: from_fitted([GaussianNB], overlap=1), "pass an object"),
        (lambda: from_fitted([3], overlap=1), "fit and predict"),
        (lambda: from_fitted([GaussianNB()], overlap=1), "not fitted yet"),
        (lambda: from_fitted(FITTED[:1], overlap=0), "overlap must be an integer"),
        (lambda: from_fitted(FITTED, overlap=1), "classes must be given, because the models know different ones"),
    ],
)
def test_other_calls_refuse_wrong_arguments(call: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, NotFittedError), match=message):
        call()
