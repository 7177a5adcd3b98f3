"""Data and estimators that the tests of estimators share; most need no planning."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.datasets import load_iris
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from darrm.estimators import PATEClassifier, PrivateModelsVotingClassifier, PrivateVotingClassifier
from darrm.pate import GNMax

X, y = load_iris(return_X_y=True)
WORDS = np.array(["a", "b", "c"])[y]
PUBLIC = X[::4]
UNTEACHABLE = LogisticRegression(class_weight={99: 1.0})  # fails for labels other than 99
NOT_TRAINED = r"student could not be trained .*class_weight"

VOCABULARIES = np.array([["good", "fine", "nice", "a", "the"], ["bad", "poor", "ugly", "a", "the"]])
TEXT_LABELS = np.random.default_rng(0).integers(0, 2, 150)
TEXTS = [" ".join(np.random.default_rng(row).choice(VOCABULARIES[label], 5)) for row, label in enumerate(TEXT_LABELS)]
TEXT_TEACHER = make_pipeline(CountVectorizer(), MultinomialNB())


def make_vote(estimator: Any = None, **settings: Any) -> PrivateVotingClassifier:
    defaults: dict[str, Any] = {"n_teachers": 6, "epsilon": 3, "max_queries": 50, "random_state": 0}
    defaults["aggregator"] = GNMax(25.0)
    teacher = KNeighborsClassifier(1) if estimator is None else estimator
    return PrivateVotingClassifier(teacher, **(defaults | settings))


def make_pate(teacher: Any = None, student: Any = None, **settings: Any) -> PATEClassifier:
    defaults: dict[str, Any] = {"n_teachers": 6, "epsilon": 4, "random_state": 0}
    return PATEClassifier(KNeighborsClassifier(1) if teacher is None else teacher, student, **(defaults | settings))


def make_student(**settings: Any) -> PATEClassifier:
    """A `PATEClassifier` that holds out its public inputs, so that its `fit` is called like that of a vote."""
    defaults: dict[str, Any] = {"public_share": 0.4, "aggregator": GNMax(4.0), "epsilon": 500, "max_answers": 20}
    return make_pate(**(defaults | settings))


def make_models(estimator: Any = None, **settings: Any) -> PrivateModelsVotingClassifier:
    model = KNeighborsClassifier(1) if estimator is None else estimator
    return PrivateModelsVotingClassifier(model, **({"n_models": 5, "epsilon_each": 1, "random_state": 0} | settings))


def make_text_vote(**settings: Any) -> PrivateVotingClassifier:
    defaults: dict[str, Any] = {"n_teachers": 15, "epsilon": 100, "max_queries": 150, "aggregator": GNMax(3.0)}
    return make_vote(TEXT_TEACHER, **(defaults | settings))


MAKERS: dict[str, Any] = {"vote": make_vote, "student": make_student, "models": make_models}
