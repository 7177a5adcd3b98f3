"""Votes: one parser for labels and counts, and what it refuses."""

import math
from pathlib import Path

import numpy as np
import pytest

from darrm.votes import ABSTAIN, ROWS_AT_ONCE, Votes, counts_of, require_votes

NAN, INF = math.nan, math.inf


def test_labels_become_counts() -> None:
    labels = np.array([[0, 1, 1, 3], [2, 2, 2, 2]])
    votes = Votes.of_labels(labels, classes=4)
    assert votes.counts.tolist() == [[1, 2, 0, 1], [0, 0, 4, 0]]
    assert (votes.queries, votes.voters, votes.classes, votes.given) == (2, 4, (0, 1, 2, 3), "labels")
    assert Votes.of_labels(labels, classes=6).counts.shape == (2, 6)
    assert Votes.of_labels(np.zeros((1, 3))).counts.tolist() == [[3, 0]]
    assert Votes.of_labels(np.zeros((0, 3))).counts.shape == (0, 2)
    assert Votes.of_labels([[0, 2, 2]], classes=(2, 0)).counts.tolist() == [[2, 1]]


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float64, object])
def test_every_type_of_vote_is_counted_alike(dtype: type) -> None:
    rows = ROWS_AT_ONCE + 3 if dtype is not object else 10  # more than one block
    labels = np.random.default_rng(0).random((rows, 3)) < 0.6
    votes = Votes.of_labels(labels.astype(dtype), classes=2)
    assert np.array_equal(votes.ones, labels.sum(axis=1))
    assert np.array_equal(votes.counts.sum(axis=1), np.full(rows, 3))


def test_votes_do_not_change_and_the_input_stays_free() -> None:
    for array, votes in (
        (already := np.array([[2, 1]]), Votes.of_counts(already)),
        (floats := np.array([[2.0, 1.0]]), Votes.of_counts(floats)),
        (labels := np.array([[1, 0, 0]]), Votes.of_labels(labels)),
    ):
        array[0, 0] = 9
        assert votes.counts.tolist() == [[2, 1]]
        assert votes.counts.dtype == np.int64
        with pytest.raises(ValueError, match="read-only"):
            votes.counts[0, 0] = 9


def test_votes_made_by_hand_are_checked_and_copied() -> None:
    owner = np.array([[2, 1]])
    view = owner[:]
    view.setflags(write=False)
    votes = Votes(view, 3, (0, 1), "counts")
    owner[0, 0] = 9
    assert votes.counts.tolist() == [[2, 1]]
    for counts, classes in (([[2, 1]], [0, 1]), (np.array([[2.0, 1.0]]), (0, 1))):
        made = Votes(counts, 3, classes, "counts")  # type: ignore[arg-type]
        assert (made.counts.tolist(), made.counts.dtype.name, made.classes) == ([[2, 1]], "int64", (0, 1))
    for wrong, message in (
        ((np.array([2, 1]), 3, (0, 1), "counts"), r"vote counts must be of shape \(queries, classes\)"),
        ((np.array([[2.5, 0.5]]), 3, (0, 1), "counts"), "vote counts must be whole numbers"),
        ((np.array([[2, 1]]), 3, (0, 1, 2), "counts"), "the number of columns of the counts, 2, got 3"),
        ((np.array([[2, 1]]), 3, (0, 0), "counts"), "classes must be different labels"),
        ((np.array([[2, 1]]), 3, (0, 1), "rumors"), "given must be one of"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            Votes(*wrong)
        assert "\n" not in str(caught.value)


def test_rows_are_cut() -> None:
    votes = Votes.of_counts([[3, 0], [1, 2], [0, 3]], classes=("a", "b"))
    assert votes[1:].counts.tolist() == [[1, 2], [0, 3]]
    assert votes[np.array([True, False, True])].ones.tolist() == [0, 3]
    assert (votes[:1].classes, votes[:0].queries, votes[:0].voters) == (("a", "b"), 0, 3)
    with pytest.raises(TypeError, match="cut by rows"):
        votes[0]  # type: ignore[index]


def test_a_line_says_what_they_are_and_no_vote() -> None:
    assert repr(Votes.of_counts([[3, 0]])) == "Votes(1 queries to 3 voters, classes 0, 1; from counts)"
    many = Votes.of_labels([["g", "a"]], classes=tuple("abcdefg"))
    assert str(many) == "Votes(1 queries to 2 voters, classes a, b, c, d, e, …; from labels)"


@pytest.mark.parametrize("classes", [("no", "yes"), (5, 8), (-1, 1), (False, True)])
def test_answers_are_named_again(classes: tuple) -> None:
    votes = Votes.of_labels([[classes[0], classes[1]]], classes=classes)
    assert votes.labeled(np.array([1, 0, 1])).tolist() == [classes[1], classes[0], classes[1]]
    declined = votes.labeled(np.array([1, ABSTAIN])).tolist()
    assert [str(label) for label in declined] == [str(int(c) if c is True else c) for c in (classes[1], ABSTAIN)]


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([[0, -1]], None, "votes must be 0 or 1, got -1 from voter 1 to query 0: every voter must answer every query"),
        ([[0, 1], [0, 5]], 3, "votes must be 0, 1 or 2, got 5 from voter 1 to query 1"),
        ([[0, 9]], 9, "votes must be one of 0, 1 … 8, got 9"),
        ([[0.0, NAN]], None, "got nan from voter 1"),
        ([[0.0, INF]], 2, "got inf"),
        ([[0.5, 1]], None, "got 0.5"),
        ([["cat", "cow"]], ("cat", "dog"), "votes must be 'cat' or 'dog', got 'cow' from voter 1"),
        ([["1", "0"]], 2, "got '1' from voter 0"),
        ([[None, 1]], 2, "got None from voter 0"),
        ([[0, 1]], 1, "classes must be an integer of at least 2"),
        ([[0, 1]], (1, 1), "classes must be different labels"),
        ([[0, 1]], "ab", "classes must be different labels"),
        # the number of classes is public: one voter's 9 must not make ten columns out of two
        ([[0, 9]], None, r"votes must be 0 or 1, got 9 .*: .*; for more classes .* say classes=C \(--classes C on"),
        (np.ma.masked_equal([[0, 1], [1, 7]], 7), 2, "votes must be complete, got 'masked entries'"),
        ([np.ma.masked_equal([0, 7], 7)], 2, "votes must be complete"),
        ([[]], None, r"votes must be of shape \(queries, voters\)"),
        ([0, 1, 1], None, r"reshape one query to \(1, 3\)"),
        (np.zeros((2, 3, 1)), None, "one row is one query"),
        ([[1, 2], [3]], None, "votes must be a rectangular array"),
        (None, None, "votes must be of shape"),
        ("votes", None, "votes must be of shape"),
    ],
)
def test_malformed_labels_are_named(labels: object, classes: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Votes.of_labels(labels, classes)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([[1.0, NAN]], "vote counts must be finite, got nan"),
        ([[1.0, INF]], "vote counts must be finite, got inf"),
        ([[3, -1]], "vote counts must be at least 0, got -1"),
        ([[1.5, 1.5]], "vote counts must be whole numbers"),
        ([[3, 1], [2, 1]], "the sum of row 1 of the vote counts must be K = 4, got 3"),
        ([[0, 0]], "voters must be an integer of at least 1, got 0"),
        (np.ma.masked_equal([[3, 1], [4, 0]], 0), "vote counts must be complete"),
        ([[5]], "classes must be an integer of at least 2, got 1: with one class there is nothing"),
        ([3, 1], "vote counts must be of shape"),
        (np.zeros((0, 3)), "at least one row"),
        ([["a", "b"]], "the type of the vote counts must be whole numbers"),
        ([[1, 2], [3]], "vote counts must be a rectangular array"),
        ([[2**40, 1]], "vote counts must be whole numbers of at most"),
        ([[1e300, 1]], "vote counts must be whole numbers of at most"),
        (None, "the type of the vote counts"),
    ],
)
def test_malformed_counts_are_named(counts: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Votes.of_counts(counts)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_what_is_known_is_compared() -> None:
    assert Votes.of_counts(np.zeros((0, 3)), voters=5).queries == 0
    for call, message in (
        (lambda: Votes.of_counts([[3, 1]], voters=5), "the sum of row 0 of the vote counts must be K = 5, got 4"),
        (lambda: Votes.of_counts([[3, 1]], classes=3), "the number of columns of the counts, 2, got 3"),
        (lambda: Votes.of_labels([[0, 1]]).of_voters(3), "of K = 3 voters, got '2 columns'"),
        (lambda: Votes.of_counts([[3, 1]]).of_voters(3), "of K = 3 voters, got '4 votes on every query'"),
        (lambda: Votes.of_labels([[0, 2]], classes=3).ones, "about two classes"),
        (lambda: require_votes([[3, 1]]), r"Votes.of_labels\(labels, classes\) or Votes.of_counts\(counts\)"),
        (lambda: counts_of(Votes.of_labels(np.zeros((0, 2)))), "at least one query"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def read(folder: Path, matrix: object, suffix: str = ".npy", **named: object) -> Votes:
    path = folder / f"votes{suffix}"
    if suffix == ".npy":
        np.save(path, np.array(matrix))
    else:
        np.savetxt(path, np.array(matrix), delimiter=",", fmt="%s")
    return Votes.read(path, **named)  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
@pytest.mark.parametrize(
    ("matrix", "named", "given", "counts"),
    [
        # K is known: the columns decide
        ([[1, 1, 1]], {"voters": 3, "classes": 2}, "labels", [[0, 3]]),
        ([[3, 0]], {"voters": 3, "classes": 2}, "counts", [[3, 0]]),
        ([[1, 0], [1, 1]], {"voters": 2, "classes": 2}, "labels", [[1, 1], [0, 2]]),
        ([[2, 0], [1, 1]], {"voters": 2, "classes": 2}, "counts", [[2, 0], [1, 1]]),
        ([["no", "yes", "yes"]], {"voters": 3, "classes": ("no", "yes")}, "labels", [[1, 2]]),
        ([[5, 8, 8]], {"voters": 3, "classes": ("5", "8")}, "labels", [[1, 2]]),
        ([[3, 0], [0, 3]], {"voters": 3}, "counts", [[3, 0], [0, 3]]),
        ([[1, 1, 0], [0, 1, 1]], {"voters": 3}, "labels", [[1, 2], [1, 2]]),
        # else the entries do
        ([[3, 0], [1, 2]], {}, "counts", [[3, 0], [1, 2]]),
        ([[0, 1, 1], [1, 1, 1]], {}, "labels", [[1, 2], [0, 3]]),
        ([[1, 1], [1, 1]], {"votes_format": "labels"}, "labels", [[0, 2], [0, 2]]),
        ([[1, 1], [1, 1]], {"votes_format": "counts"}, "counts", [[1, 1], [1, 1]]),
        ([[4, 1]], {"votes_format": "counts", "classes": ("no", "yes")}, "counts", [[4, 1]]),
    ],
)
def test_files_are_told_apart(
    matrix: object, named: dict, given: str, counts: list, suffix: str, tmp_path: Path
) -> None:
    votes = read(tmp_path, matrix, suffix, **named)
    assert votes.given == given
    assert votes.counts.tolist() == counts


@pytest.mark.parametrize(
    ("matrix", "named", "message"),
    [
        ([[1, 1], [1, 1]], {}, "could be labels or counts"),
        ([[0, 1], [1, 0]], {}, "could be labels or counts"),
        ([[3, 2]], {}, "could be labels or counts"),
        ([[1, 1], [1, 1]], {"voters": 2, "classes": 2}, "could be labels or counts"),
        ([[1, 1, 1], [0, 1, 2]], {"voters": 3}, "could be labels or counts"),
        ([[0, 1, 2], [2, 2, 2]], {"voters": 3}, "say classes=C"),
        ([[9, 0], [8, 0]], {}, r"no counts \(row 1 sums to 8, row 0 to 9\) and hardly labels"),
        ([[1, 1, 1]], {"voters": 5, "classes": 2}, "of K = 5 voters"),
        ([[3, 1]], {"voters": 5, "classes": 2}, "must be K = 5, got 4"),
        ([[0, 1]], {"votes_format": "xml"}, "votes_format must be one of"),
        ([[0, 1]], {"votes_format": "labels", "classes": ("a", "b")}, "classes must be numbers"),
        ([0, 1], {}, r"must hold a matrix of votes .*: one row is one query; reshape a single one"),
        (np.zeros((0, 3)), {}, r"must hold a matrix of votes with at least one entry, got shape \(0, 3\)"),
    ],
)
def test_files_that_are_refused(matrix: object, named: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, matrix, **named)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0,1,1\n0,1\n", "columns"),
        (b"0,1,x\n", "could not convert"),
        (b"a,b\n", "could not convert"),
        (b"", "with at least one entry"),
        (b"0,1,nan\n", "got nan"),
        (b"0;1;1\n", "could not convert"),
        (b"\xff", "no table of votes"),
        (b"\x93NUMPY", "no table of votes"),
    ],
)
def test_broken_files(content: bytes, message: str, tmp_path: Path) -> None:
    for suffix, words in (("csv", message), ("npy", "no table of votes")):
        (tmp_path / f"votes.{suffix}").write_bytes(content)
        with pytest.raises(ValueError, match=words) as caught:
            Votes.read(tmp_path / f"votes.{suffix}", classes=2)
        assert "\n" not in str(caught.value)
    with pytest.raises(OSError, match="not found"):
        Votes.read(tmp_path / "nowhere.csv")
