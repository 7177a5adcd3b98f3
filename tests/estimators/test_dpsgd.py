"""One DP-SGD model as a private classifier."""

from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
import torch
from sklearn.datasets import load_breast_cancer

from darrm import PrivacyParams
from darrm.estimators import PrivateModelsVotingClassifier
from darrm.estimators.dpsgd import PrivateSGDClassifier
from darrm.training import compute_privacy


@pytest.mark.slow
def test_models_of_dpsgd_vote_without_noise_for_their_guarantee() -> None:
    inputs, codes = load_breast_cancer(return_X_y=True)
    inputs = np.clip((inputs - inputs.mean(axis=0)) / inputs.std(axis=0), -3, 3)  # not private, for the test only
    labels = np.array(["bad", "good"])[codes]
    model = PrivateSGDClassifier(partial(torch.nn.Linear, 30, 2), ["bad", "good"], epsilon=4.0, steps=40)
    vote = PrivateModelsVotingClassifier(model, 3, epsilon=4, delta=1e-5).fit(inputs, labels)
    assert vote.plan_.workload.voters.each == PrivacyParams(4, "1e-5")
    assert vote.plan_.aggregator is None
    assert vote.privacy_spent_.epsilon == 4
    assert np.mean(vote.predict(inputs) == labels) > 0.8
    for teacher in vote.teachers_:
        assert 3.9 < compute_privacy(teacher.network_.recipe, 1e-5).epsilon <= 4
    assert "those that the guarantee of the models covers" in vote.to_model_card()


@pytest.mark.slow
def test_a_shard_of_one_class_trains_a_model() -> None:
    model = PrivateSGDClassifier(partial(torch.nn.Linear, 1, 2), [0, 1], steps=2)
    assert set(model.fit([[0.0]] * 4, [1, 1, 1, 1]).predict([[0.0], [1.0]])) <= {0, 1}


@pytest.mark.parametrize(
    ("outputs", "classes", "labels", "message"),
    [
        (2, [0, 1], [0, 1, 2, 1], "y must be one of the classes"),
        (2, {"a", "b"}, [0, 1, 0, 1], "a set has no order"),
        (2, [0, 1], [0, 1, "a", 1], "all numbers, or all text"),
        (3, [0, 1], [0, 1, 0, 1], "build must be a network with 2 outputs, got 3 outputs"),
        (1, [0, 1], [0, 1, 0, 1], "got 1 outputs|y must be"),
    ],
)
def test_fit_refuses_other_classes_before_it_trains(outputs: int, classes: Any, labels: Any, message: str) -> None:
    model = PrivateSGDClassifier(partial(torch.nn.Linear, 1, outputs), classes, steps=10**6)
    with pytest.raises(ValueError, match=message):
        model.fit([[0.0]] * 4, labels)
