"""Share iris data and estimators that need no planning between the tests of estimators."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from darrm.estimators import PATEClassifier, PrivateModelsVotingClassifier, PrivateVotingClassifier
from darrm.pate import GNMax

X, y = load_iris(return_X_y=True)
WORDS = np.array(["a", "b", "c"])[y]
UNTEACHABLE = LogisticRegression(class_weight={99: 1.0})  # fails for labels other than 99
NOT_TRAINED = r"student could not be trained .*class_weight"


def vote(**settings: Any) -> PrivateVotingClassifier:
    defaults: dict[str, Any] = {"n_teachers": 6, "epsilon": 3, "max_queries": 50, "random_state": 0}
    defaults |= {"estimator": KNeighborsClassifier(1), "aggregator": GNMax(25.0)}
    return PrivateVotingClassifier(**(defaults | settings))


def pate(teacher: Any = None, student: Any = None, **settings: Any) -> PATEClassifier:
    defaults: dict[str, Any] = {"n_teachers": 6, "epsilon": 4, "random_state": 0}
    return PATEClassifier(KNeighborsClassifier(1) if teacher is None else teacher, student, **(defaults | settings))


def models(**settings: Any) -> PrivateModelsVotingClassifier:
    return PrivateModelsVotingClassifier(KNeighborsClassifier(1), 5, **({"epsilon_each": 1} | settings))
