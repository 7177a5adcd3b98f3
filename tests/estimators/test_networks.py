"""Networks: one DP-SGD model as a private classifier, and the student for images, which goes on after a kill."""

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.naive_bayes import GaussianNB

from darrm import PrivacyLedger, PrivacyParams
from darrm.estimators import PATEClassifier, PrivateModelsVotingClassifier, ResumeWarning, fixmatch, load, save
from darrm.estimators.dpsgd import PrivateSGDClassifier
from darrm.pate import GNMax
from darrm.training import compute_privacy
from darrm.training import student as training
from darrm.training.student import StudentRecipe

X, y = load_digits(return_X_y=True)
X = X / 16
SHORT = StudentRecipe(steps=4, batch=4, consistency=1.0, weight=0.0, averaging=0.5)


def pate(**settings: Any) -> PATEClassifier:
    given = {"n_teachers": 10, "epsilon": 40, "max_answers": 40, "aggregator": GNMax(2.0), **settings}
    return PATEClassifier(GaussianNB(), student="fixmatch", **given)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (X[:, :60], "X must be 1 × side × side pixels, the side a multiple of 4, got rows of 60 numbers"),
        (X * 16, "X must be pixels from 0 to 1, got numbers from 0 to 16: fixmatch is for images: divide bytes by 255"),
    ],
)
def test_what_are_no_images_is_refused_before_it_is_paid_for(images: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        pate(ledger=tmp_path / "l").fit(images[:200], y[:200], images[200:260])
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "l").exists()


def test_another_word_is_no_student() -> None:
    with pytest.raises(ValueError, match="student must be one of fixmatch, got 'mixmatch'"):
        pate().set_params(student="mixmatch").fit(X[:200], y[:200], X[200:260])


@pytest.mark.slow  # plans
def test_a_student_of_images_is_kept_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixmatch, "FIXMATCH", SHORT)
    fitted = pate(random_state=0, aggregator="best").fit(X[:200], y[:200], X[200:260])
    save(fitted, tmp_path / "student.skops")
    loaded = load(tmp_path / "student.skops")
    shown = loaded.predict_proba(X[260:])
    assert np.array_equal(shown, fitted.predict_proba(X[260:]))
    assert shown.sum(axis=1) == pytest.approx(1.0)
    assert np.array_equal(loaded.classes_[shown.argmax(axis=1)], fitted.predict(X[260:]))


@pytest.mark.parametrize("seed", [None, 3, "generator"])
def test_a_student_that_was_killed_goes_on_from_its_last_checkpoint(
    seed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def state() -> Any:
        return np.random.RandomState(3) if seed == "generator" else seed  # one that is passed anew, and has moved on

    monkeypatch.setattr(fixmatch, "FIXMATCH", SHORT)
    monkeypatch.setattr(training, "_CHECKPOINT_EVERY", 2)
    loss, done = training._Training.loss, list[float]()

    def dies_once(self: Any, x: Any, classes: Any, share: float) -> Any:
        done.append(share)
        if len(done) == 4:
            raise KeyboardInterrupt
        return loss(self, x, classes, share)

    monkeypatch.setattr(training._Training, "loss", dies_once)
    with pytest.raises(KeyboardInterrupt):
        pate(ledger=tmp_path / "l", random_state=state()).fit(X[:200], y[:200], X[200:260])
    assert (tmp_path / "l.student").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        again = pate(ledger=tmp_path / "l", random_state=state()).fit(X[:200], y[:200], X[200:260])
    assert done == [0.0, 0.25, 0.5, 0.75, 0.5, 0.75]
    assert not (tmp_path / "l.student").exists()
    assert again.report_.answered == 40
    assert len(list(PrivacyLedger(tmp_path / "l").entries())) == 1


@pytest.mark.slow
def test_unlabeled_images_teach() -> None:
    """The whole student with an eighth of its steps: 50 labels of digits, and 1,250 images without one."""
    recipe = StudentRecipe(steps=600, learning_rate=3e-3, batch=16, unlabeled=3, weight=0.0, consistency=1.0)
    labels = np.where(np.arange(1300) < 50, y[:1300], -1)
    learned = fixmatch.FixMatchClassifier(recipe=recipe, random_state=0).fit(X[:1300], labels)
    alone = fixmatch.FixMatchClassifier(recipe=recipe, random_state=0).fit(X[:50], y[:50])
    assert learned.score(X[1300:], y[1300:]) > max(0.8, alone.score(X[1300:], y[1300:]))


@pytest.mark.slow
def test_models_of_dpsgd_vote_without_noise_and_say_what_they_cost() -> None:
    inputs, kinds = load_breast_cancer(return_X_y=True)
    inputs = np.clip((inputs - inputs.mean(axis=0)) / inputs.std(axis=0), -3, 3)  # a test may look
    words = np.array(["bad", "good"])[kinds]
    model = PrivateSGDClassifier(partial(torch.nn.Linear, 30, 2), ["bad", "good"], epsilon=4.0, steps=40)
    vote = PrivateModelsVotingClassifier(model, 3, epsilon=4, delta=1e-5).fit(inputs, words)
    assert vote.plan_.workload.voters.each == PrivacyParams(4, "1e-5")
    assert vote.plan_.aggregator is None
    assert vote.privacy_spent_.epsilon == 4
    assert np.mean(vote.predict(inputs) == words) > 0.8
    for teacher in vote.teachers_:
        assert 3.9 < compute_privacy(teacher.network_.recipe, 1e-5).epsilon <= 4
    assert "those that the guarantee of the models covers" in vote.to_model_card()


@pytest.mark.slow
def test_a_shard_of_one_class_is_trained_on_like_any_other() -> None:
    model = PrivateSGDClassifier(partial(torch.nn.Linear, 1, 2), [0, 1], steps=2)
    assert set(model.fit([[0.0]] * 4, [1, 1, 1, 1]).predict([[0.0], [1.0]])) <= {0, 1}


@pytest.mark.parametrize(
    ("outputs", "labels", "complaint"),
    [
        (2, [0, 1, 2, 1], "y must be one of the classes"),
        (3, [0, 1, 0, 1], "build must be a network with 2 outputs, got 3 outputs"),
        (1, [0, 1, 0, 1], "got 1 outputs|y must be"),
    ],
)
def test_other_classes_are_refused_before_anything_is_trained(outputs: int, labels: Any, complaint: str) -> None:
    model = PrivateSGDClassifier(partial(torch.nn.Linear, 1, outputs), [0, 1], steps=10**6)
    with pytest.raises(ValueError, match=complaint):
        model.fit([[0.0]] * 4, labels)
