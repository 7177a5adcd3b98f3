"""The student for images: it learns from unlabeled images, and its training resumes after a kill."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB

from darrm import PrivacyLedger
from darrm.estimators import PATEClassifier, ResumeWarning, fixmatch, load, save
from darrm.pate import GNMax
from darrm.training import student
from darrm.training.student import StudentRecipe
from tests.estimators.support import make_pate

X, y = load_digits(return_X_y=True)
X = X / 16
PUBLIC = X[200:260]
SHORT = StudentRecipe(steps=4, batch=4, consistency=1.0, weight=0.0, averaging=0.5)


def fit_pate(**settings: Any) -> PATEClassifier:
    defaults = {"n_teachers": 10, "epsilon": 40, "max_answers": 40, "aggregator": GNMax(2.0)}
    return make_pate(GaussianNB(), "fixmatch", **(defaults | settings)).fit(X[:200], y[:200], PUBLIC)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (X[:, :60], "X must be 1 × side × side pixels, the side a multiple of 4, got rows of 60 numbers"),
        (X * 16, "X must be pixels from 0 to 1, got numbers from 0 to 16"),
    ],
)
def test_fit_refuses_other_inputs_before_a_charge(images: Any, message: str, tmp_path: Path) -> None:
    pate = make_pate(GaussianNB(), "fixmatch", aggregator=GNMax(20.0), ledger=tmp_path / "ledger")
    with pytest.raises(ValueError, match=message):
        pate.fit(images[:200], y[:200], images[200:260])
    assert not (tmp_path / "ledger").exists()


@pytest.mark.parametrize("labels", [["a", "b"] * 10, [1, "a"] * 10, [0.5, 1] * 10, [None, 1] * 10])
def test_fit_refuses_labels_that_are_no_whole_numbers(labels: list[Any]) -> None:
    for form in (labels, np.array(labels, dtype=object)):
        with pytest.raises(ValueError, match="y must be"):
            fixmatch.FixMatchClassifier().fit(np.zeros((20, 64)), form)


@pytest.mark.slow  # it plans
def test_a_loaded_student_of_images_answers_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixmatch, "FIXMATCH", SHORT)
    pate = fit_pate(aggregator="best")
    save(pate, tmp_path / "student.skops")
    loaded = load(tmp_path / "student.skops")
    probabilities = loaded.predict_proba(X[260:])
    assert np.array_equal(probabilities, pate.predict_proba(X[260:]))
    assert probabilities.sum(axis=1) == pytest.approx(1.0)
    assert np.array_equal(loaded.classes_[probabilities.argmax(axis=1)], pate.predict(X[260:]))


@pytest.mark.parametrize("seed", [None, 3, "generator"])
def test_a_killed_student_resumes_from_its_last_checkpoint(
    seed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, shares = student._Training.loss, list[float]()

    def compute_loss_or_die(self: Any, x: Any, classes: Any, share: float) -> Any:
        shares.append(share)
        if len(shares) == 4:
            raise KeyboardInterrupt
        return loss(self, x, classes, share)

    def fit() -> PATEClassifier:
        # a generator that is passed again has another state
        state = np.random.RandomState(3) if seed == "generator" else seed
        return fit_pate(ledger=tmp_path / "ledger", random_state=state)

    monkeypatch.setattr(fixmatch, "FIXMATCH", SHORT)
    monkeypatch.setattr(student, "_CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(student._Training, "loss", compute_loss_or_die)
    with pytest.raises(KeyboardInterrupt):
        fit()
    assert (tmp_path / "ledger.student").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        resumed = fit()
    assert shares == [0.0, 0.25, 0.5, 0.75, 0.5, 0.75]
    assert not (tmp_path / "ledger.student").exists()
    assert resumed.report_.answered == 40
    assert len(list(PrivacyLedger(tmp_path / "ledger").entries())) == 1


@pytest.mark.slow
def test_unlabeled_images_improve_the_student() -> None:
    # an eighth of the steps: 50 labels of digits, and 1,250 images without one
    recipe = StudentRecipe(steps=600, learning_rate=3e-3, batch=16, unlabeled=3, weight=0.0, consistency=1.0)
    labels = np.where(np.arange(1300) < 50, y[:1300], -1)
    learned = fixmatch.FixMatchClassifier(recipe=recipe, random_state=0).fit(X[:1300], labels)
    alone = fixmatch.FixMatchClassifier(recipe=recipe, random_state=0).fit(X[:50], y[:50])
    assert learned.score(X[1300:], y[1300:]) > max(0.8, alone.score(X[1300:], y[1300:]))
