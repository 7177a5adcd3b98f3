"""Sparse counts: held against dense ones that are counted one vote at a time, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.votes.sparse_counts import SparseCounts


@st.composite
def places(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Up to five rows of up to five columns below C; -1 is nobody's."""
    queries, voters, classes = draw(st.integers(0, 5)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    row = st.lists(st.integers(-1, classes - 1), min_size=voters, max_size=voters)
    rows = draw(st.lists(row, min_size=queries, max_size=queries))
    return np.array(rows, dtype=np.int64).reshape(queries, voters), classes


@given(places(), st.randoms(use_true_random=False))
def test_they_are_what_dense_counts_are(drawn: tuple[np.ndarray, int], random: object) -> None:
    chosen, C = drawn
    dense = np.array([[sum(place == c for place in row) for c in range(C)] for row in chosen.tolist()], dtype=int)
    dense = dense.reshape(len(chosen), C)
    for counts in (
        SparseCounts.from_codes(chosen, C),
        SparseCounts.of_dense(dense),
        SparseCounts.of_rows([{c: int(n) for c, n in enumerate(row) if n} for row in dense], C),
    ):
        SparseCounts(counts.starts, counts.columns, counts.values, C)  # they are what may be made by hand
        assert counts.dense().tolist() == dense.tolist()
        assert (len(counts), counts.classes, counts.sums.tolist()) == (len(dense), C, dense.sum(axis=1).tolist())
        assert counts.row_of.tolist() == np.nonzero(dense)[0].tolist()
        for which in (slice(1, None), slice(None, None, -2), np.arange(len(dense)) % 2 == 0):
            assert counts.rows(which).dense().tolist() == dense[which].tolist()
        order = random.sample(range(C), C)  # type: ignore[attr-defined]
        called = counts.renumbered(np.array(order), C)
        assert called.dense()[:, order].tolist() == dense.tolist()
        assert (np.diff(called.columns)[np.diff(called.row_of) == 0] > 0).all()
        assert SparseCounts.concatenate([counts, called, counts]).dense().tolist() == [
            *dense.tolist(),
            *called.dense().tolist(),
            *dense.tolist(),
        ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (([0, 1], [0], [1, 1], 3), "1 columns and 2 values"),
        (([1, 1], [0], [1], 3), "starts must be from 0"),
        (([0, 2, 1], [0], [1], 3), "none below the one before"),
        (([], [], [], 3), "starts must be from 0"),
        (([0, 1], [3], [1], 3), "columns from 0 to 2"),
        (([0, 1], [-1], [1], 3), "columns from 0 to 2"),
        (([0, 1], [0], [0], 3), "values above 0"),
        (([0, 2], [1, 1], [1, 1], 3), "increasing within each row"),
        (([0, 0, 2, 2], [2, 1], [1, 1], 3), "increasing within each row"),
        (([0, 1], [0.0], [1], 3), "columns must be whole numbers"),
        (([0, 1], [[0]], [1], 3), "columns must be whole numbers in a row"),
        (([0], [], [], -1), "classes must be an integer of at least 0"),
    ],
)
def test_what_is_no_such_row_is_refused(wrong: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseCounts(*wrong)


def test_they_do_not_change() -> None:
    columns = np.array([0, 2])
    counts = SparseCounts(np.array([0, 1, 2]), columns, np.array([3, 4]), 3)
    columns[0] = 1
    assert counts.dense().tolist() == [[3, 0, 0], [0, 0, 4]]
    for array in (counts.starts, counts.columns, counts.values, counts.rows(slice(1)).values):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9
