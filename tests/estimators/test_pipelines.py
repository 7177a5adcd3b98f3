"""A step in front of an ensemble sees everybody, and voids its guarantee; inside it, it sees one shard."""

import pickle
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
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
from darrm.pate import GNMax

X, y = load_wine(return_X_y=True)


def vote() -> PrivateVotingClassifier:
    return PrivateVotingClassifier(GaussianNB(), 12, aggregator=GNMax(90.0), random_state=0, classes=[0, 1, 2])


def changed(pipeline: Any) -> int:
    """Count the teachers that one person's row moves."""
    fits = []
    for value in (0.0, 1e6):
        inputs = X.copy()
        inputs[7] = value
        fitted = pipeline.fit(inputs, y)
        fits.append([pickle.dumps(teacher) for teacher in getattr(fitted, "teachers_", None) or fitted[-1].teachers_])
    return sum(one != other for one, other in zip(*fits, strict=True))


def test_one_person_reaches_one_teacher_through_the_steps() -> None:
    assert changed(make_private_pipeline(StandardScaler(), vote())) == 1
    assert changed(make_pipeline(StandardScaler(), vote())) == 12  # what the helper is for


def test_the_student_s_steps_learn_from_public_inputs() -> None:
    pate = PATEClassifier(GaussianNB(), LogisticRegression(), n_teachers=5, epsilon=300, random_state=0)
    made = make_private_pipeline(StandardScaler(), pate).fit(X, y, X[::2])
    assert np.allclose(made.student_[0].mean_, X[::2][made.answers_ >= 0].mean(axis=0))
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
