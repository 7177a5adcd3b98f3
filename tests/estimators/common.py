"""What the tests of estimators share: iris, a vote and a student that nothing has to be planned for."""

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
UNTEACHABLE = LogisticRegression(class_weight={99: 1.0})  # it takes no labels but this
NOT_TRAINED = r"student could not be trained .*class_weight"


def vote(**settings: Any) -> PrivateVotingClassifier:
    fixed: dict[str, Any] = {"n_teachers": 6, "epsilon": 3, "max_queries": 50, "random_state": 0}
    fixed |= {"estimator": KNeighborsClassifier(1), "aggregator": GNMax(25.0)}
    return PrivateVotingClassifier(**(fixed | settings))


def pate(teacher: Any = None, student: Any = None, **settings: Any) -> PATEClassifier:
    fixed: dict[str, Any] = {"n_teachers": 6, "epsilon": 4, "random_state": 0}
    return PATEClassifier(KNeighborsClassifier(1) if teacher is None else teacher, student, **(fixed | settings))


def models(**settings: Any) -> PrivateModelsVotingClassifier:
    return PrivateModelsVotingClassifier(KNeighborsClassifier(1), 5, **({"epsilon_each": 1} | settings))
