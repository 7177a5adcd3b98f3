"""The benchmark of the estimators: what everybody gets, who is called best, and what is claimed of it."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
from experiments.estimators import contenders
from experiments.estimators.contenders import CONTENDERS, DIFFPRIVLIB, NON_PRIVATE, measure_accuracy


def test_rows_lie_in_bounds_and_a_split_shares_none() -> None:
    made = contenders.split("wine", 3)
    x, y = contenders.load("wine")
    parts = made.x, made.public, made.questions
    assert [len(part) for part in parts] == [178 - 2 * 35, 35, 35]
    assert -1 <= x.min() < -0.9 < 0.9 < x.max() <= 1
    np.testing.assert_array_equal(np.sort(np.concatenate(parts), axis=0), np.sort(x, axis=0))
    rows = {row.tobytes(): label for row, label in zip(x, y, strict=True)}
    assert [rows[row.tobytes()] for row in made.x] == made.y.tolist()
    assert [rows[row.tobytes()] for row in made.questions] == made.answers.tolist()
    assert not np.array_equal(contenders.split("wine", 4).questions, made.questions)


@pytest.mark.slow
@pytest.mark.parametrize("who", [who for who, (kind, _) in CONTENDERS.items() if kind != NON_PRIVATE])
def test_every_contender_learns_where_the_budget_is_large(who: str) -> None:
    pytest.importorskip("torch")
    if CONTENDERS[who][0] == DIFFPRIVLIB:
        pytest.importorskip("diffprivlib")
    made = contenders.split("wine", 0)
    largest = measure_accuracy("the largest class", made, 100, 0)
    assert largest is not None
    assert (measure_accuracy(who, made, 100, 0) or 0.0) > largest + 0.1
    assert len(made.x) * contenders.DELTA < 0.01
