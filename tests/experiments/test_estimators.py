"""The benchmark of the estimators: disjoint splits, and contenders that learn."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
from experiments import estimators as contenders
from experiments.estimators import CONTENDERS, DIFFPRIVLIB, NON_PRIVATE, measure_accuracy


def test_a_split_has_every_row_once_within_bounds() -> None:
    x, y = contenders.load("wine")
    split = contenders.split("wine", 3)
    parts = split.x, split.public, split.questions
    assert [len(part) for part in parts] == [178 - 2 * 35, 35, 35]
    assert -1 <= x.min() < -0.9 < 0.9 < x.max() <= 1
    np.testing.assert_array_equal(np.sort(np.concatenate(parts), axis=0), np.sort(x, axis=0))
    labels = {row.tobytes(): label for row, label in zip(x, y, strict=True)}
    assert [labels[row.tobytes()] for row in split.x] == split.y.tolist()
    assert [labels[row.tobytes()] for row in split.questions] == split.answers.tolist()
    assert not np.array_equal(contenders.split("wine", 4).questions, split.questions)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (kind, _) in CONTENDERS.items() if kind != NON_PRIVATE])
def test_a_contender_learns_if_the_budget_is_large(name: str) -> None:
    pytest.importorskip("torch")
    if CONTENDERS[name][0] == DIFFPRIVLIB:
        pytest.importorskip("diffprivlib")
    split = contenders.split("wine", 0)
    guess, accuracy = (measure_accuracy(contender, split, 100, 0) for contender in ("the largest class", name))
    assert guess is not None
    assert accuracy is not None
    assert accuracy > guess + 0.1
