"""Students of the tables: what they may see, and where Interactive-GNMax gets its scores."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from darrm.training.student import StudentRecipe
from darrm.votes import ABSTAIN, Votes
from experiments.datasets import ALL_CLASSES, load
from experiments.pate import students
from experiments.pate.recorded import Recorded

SHORT = StudentRecipe(steps=40, learning_rate=3e-3, weight=0.0)


def recorded() -> Recorded:
    digits = load("digits", ALL_CLASSES)
    x, y = digits.test_x, digits.test_y
    votes = Votes.of_counts(50 * np.eye(10, dtype=np.int64)[y[:200]])
    return Recorded("digits", votes, x[:200], y[:200], x[200:], y[200:], 1.0, 0.0)


@pytest.fixture(autouse=True)
def short_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(students.RECIPES, "digits", SHORT)


def test_a_student_of_true_labels_beats_one_of_wrong_labels() -> None:
    data = recorded()
    (right, rest), (wrong, _) = (
        students.student_accuracy(data, (data.pool_y[:100] + moved) % 10, seed=0, quick=False) for moved in (0, 1)
    )
    assert right is not None
    assert wrong is not None
    assert rest is not None
    assert right > 0.6
    assert wrong < 0.2
    assert right != rest > 0.6  # of the hundred images that nobody was asked about


def test_true_classes_of_the_pool_and_the_held_out_images_teach_nothing() -> None:
    data = recorded()
    blind = replace(data, pool_y=np.zeros_like(data.pool_y), test_y=np.zeros_like(data.test_y))
    labels = np.where(np.arange(100) % 3 == 0, ABSTAIN, data.pool_y[:100])
    one, other = (students.student_scores(each, labels, seed=0, quick=True) for each in (data, blind))
    assert one.shape == (200, 10)
    assert (one == other).all()
    # labels that stop early are those of a pool whose rest was never asked about
    padded = np.concatenate([labels, np.full(100, ABSTAIN)])
    assert (students.student_scores(data, padded, seed=0, quick=True) == one).all()
