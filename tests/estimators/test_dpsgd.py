"""DP-SGD models under the vote of private models."""

from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
import torch
from sklearn.datasets import load_breast_cancer

from darrm import PrivacyParams
from darrm.estimators import PrivateModelsVotingClassifier
from darrm.estimators.dpsgd import PrivateSGDClassifier
from darrm.training import privacy_of


@pytest.mark.slow
def test_models_of_dpsgd_vote_without_noise_and_say_what_they_cost() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = np.clip((X - X.mean(axis=0)) / X.std(axis=0), -3, 3)  # a test may look: the accuracy is not the point
    words = np.array(["bad", "good"])[y]
    model = PrivateSGDClassifier(partial(torch.nn.Linear, 30, 2), ["bad", "good"], epsilon=4.0, steps=40)
    vote = PrivateModelsVotingClassifier(model, 3, epsilon=4, delta=1e-5).fit(X, words)
    assert vote.plan_.workload.voters.each == PrivacyParams(4, "1e-5")
    assert vote.plan_.aggregator is None
    assert vote.privacy_spent_.epsilon == 4
    assert np.mean(vote.predict(X) == words) > 0.8
    for teacher in vote.teachers_:
        assert 3.9 < privacy_of(teacher.network_.recipe, 1e-5).epsilon <= 4
    assert "such as the promise of the models is about" in vote.to_model_card()


def test_labels_outside_the_public_classes_are_refused() -> None:
    model = PrivateSGDClassifier(partial(torch.nn.Linear, 1, 2), [0, 1], steps=2)
    with pytest.raises(ValueError, match="y must be one of the classes"):
        model.fit([[0.0]] * 4, [0, 1, 2, 1])


@pytest.mark.slow
def test_a_shard_of_one_class_is_trained_on_like_any_other() -> None:
    model = PrivateSGDClassifier(partial(torch.nn.Linear, 1, 2), [0, 1], steps=2)
    assert set(model.fit([[0.0]] * 4, [1, 1, 1, 1]).predict([[0.0], [1.0]])) <= {0, 1}


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_network_of_other_classes_is_refused_before_it_is_trained(outputs: int) -> None:
    model = PrivateSGDClassifier(partial(torch.nn.Linear, 2, outputs), ["no", "yes"], steps=10**6)
    with pytest.raises(ValueError, match=rf"build must be a network with 2 outputs, got {outputs} outputs|y must be"):
        model.fit(np.zeros((4, 2)), ["no", "yes"] * 2)
