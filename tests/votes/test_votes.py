"""Votes in memory: what is counted, copied, renamed and refused."""

import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.votes import ABSTAIN, ROWS_AT_ONCE, Votes, require_votes, to_counts
from tests.votes.support import check_refusal, list_missing, read_csv

NAN, INF = np.nan, np.inf


def test_from_labels_counts_each_class() -> None:
    labels = np.array([[0, 1, 1, 3], [2, 2, 2, 2]])
    votes = Votes.from_labels(labels, classes=4)
    assert votes.counts.tolist() == [[1, 2, 0, 1], [0, 0, 4, 0]]
    assert (votes.queries, votes.voters, votes.classes, votes.source_format) == (2, 4, (0, 1, 2, 3), "labels")
    assert Votes.from_labels(labels, classes=6).counts.shape == (2, 6)
    assert Votes.from_labels(np.zeros((0, 3))).counts.shape == (0, 2)
    assert Votes.from_labels([[0, 2, 2]], classes=(2, 0)).counts.tolist() == [[2, 1]]


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float64, object])
def test_from_labels_accepts_every_type(dtype: type) -> None:
    rows = 10 if dtype is object else ROWS_AT_ONCE + 3  # more than one block
    labels = np.random.default_rng(0).random((rows, 3)) < 0.6
    votes = Votes.from_labels(labels.astype(dtype), classes=2)
    assert np.array_equal(votes.counts, np.column_stack([(~labels).sum(axis=1), labels.sum(axis=1)]))


# more than one block of rows; sums of one byte hold 255
@pytest.mark.parametrize("shape", [(ROWS_AT_ONCE + 7, 3), (4, 255), (4, 256), (4, 700)])
def test_from_labels_counts_many_rows_and_many_voters(shape: tuple[int, int]) -> None:
    labels = np.random.default_rng(5).choice([0.0, 1.0, NAN], shape)
    labels[:3] = [[0.0], [1.0], [NAN]]
    votes = Votes.from_labels(labels, missing="coin")
    for column in (0, 1):
        assert np.array_equal(votes.counts[:, column], (labels == column).sum(axis=1))
    assert list_missing(votes) == np.isnan(labels).sum(axis=1).tolist()


def test_votes_are_checked_read_only_copies_of_their_input() -> None:
    owner = np.array([[2, 1]])
    view = owner[:]
    view.setflags(write=False)
    floats, labels = np.array([[2.0, 1.0]]), np.array([[1, 0, 0]])
    for array, votes in (
        (owner, Votes.from_counts(owner)),
        (owner, Votes(view, 3, (0, 1), "counts")),
        (floats, Votes.from_counts(floats)),
        (floats, Votes(floats, 3, [0, 1], "counts")),  # type: ignore[arg-type]
        (labels, Votes.from_labels(labels)),
    ):
        original = array.copy()
        array[0, 0] = 9
        assert (votes.counts.tolist(), votes.classes) == ([[2, 1]], (0, 1))
        assert votes.counts.dtype == np.int64
        with pytest.raises(ValueError, match="read-only"):
            votes.counts[0, 0] = 9
        array[:] = original


def test_votes_are_cut_by_rows() -> None:
    votes = Votes.from_counts([[3, 0], [1, 2], [0, 3]], classes=("a", "b"))
    assert votes[1:].counts.tolist() == [[1, 2], [0, 3]]
    assert votes[np.array([True, False, True])].ones.tolist() == [0, 3]
    assert (votes[:1].classes, votes[:0].queries, votes[:0].voters) == (("a", "b"), 0, 3)
    with pytest.raises(TypeError, match="cut by rows"):
        votes[0]  # type: ignore[index]


def test_concatenated_votes_keep_their_rows_and_ids(tmp_path: Path) -> None:
    votes = read_csv(tmp_path, "query,a,b\np,0,0\nq,1,1\n", id_column="query", layout="labels")
    for batches, ones, ids in (
        ([votes], [0, 2], ("query", ("p", "q"))),
        ([votes[1:], votes[:1]], [2, 0], ("query", ("q", "p"))),
        ([votes, Votes.from_counts([[1, 1]])], [0, 2, 1], None),
    ):
        joined = Votes.concatenate(batches)
        assert (joined.ones.tolist(), joined.ids, joined.source_format) == (ones, ids, "labels")


@pytest.mark.parametrize("classes", [("no", "yes"), (5, 8), (-1, 1), (False, True)])
def test_labels_get_the_names_of_their_classes(classes: tuple[Any, ...]) -> None:
    votes = Votes.from_labels([[classes[0], classes[1]]], classes=classes)
    assert votes.name_labels(np.array([1, 0, 1])).tolist() == [classes[1], classes[0], classes[1]]
    with_abstention = votes.name_labels(np.array([1, ABSTAIN])).tolist()
    expected = [1 if classes[1] is True else classes[1], ABSTAIN]  # numpy has no array of booleans and numbers
    assert list(map(str, with_abstention)) == list(map(str, expected))


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([[0, -1]], None, "votes must be 0 or 1, got -1 from voter 1 to query 0: name the classes"),
        ([["cat", "cow"]], ("cat", "dog"), "votes must be 'cat' or 'dog', got 'cow' from voter 1"),
        ([["1", "0"]], 2, "got '1' from voter 0"),
        ([[0, 1]], (1, 1), "classes must be different labels"),
        ([[0, 1]], "ab", "classes must be different labels"),
        # the number of classes is public: one voter's 9 must not make ten columns out of two
        ([[0, 9]], None, r"votes must be 0 or 1, got 9 .*: write classes=C \(--classes C\) for more classes"),
        (np.ma.masked_equal([[0, 1], [1, 7]], 7), 2, "votes must be complete, got masked entries: .* None"),
        ([np.ma.masked_equal([0, 7], 7)], 2, "votes must be complete"),
        ([[]], None, r"votes must be of shape \(queries, voters\)"),
        *((labels, None, "votes must be of shape") for labels in (None, "votes")),
        ([0, 1, 1], None, r"reshape one query to \(1, 3\)"),
        ([[1, 2], [3]], None, "votes must be a rectangular array"),
        (np.broadcast_to(np.int8(0), (2**22, 1)), 256, "at most 536,870,912 counts"),
        ([[0, 2_000_000_000]], 2_000_000_001, "classes must be at most 1,000,000"),
        # names that a file cannot keep, and numbers that a float confuses
        ([[0, 1]], ("a", "\udce9"), "Unicode text"),
        ([[0, 1]], ("a", "a\0"), "Unicode text"),
        ([[0, 1]], ("a", "b" * 201), "Unicode text of at most 200"),
        ([[0, 1]], (1, "1"), "classes must be different labels"),
        ([[0, 1]], ("caf\u00e9", "cafe\u0301"), "classes must be different labels"),
        ([[0, 1]], ("a", NAN), "classes must be text or numbers"),
        *(([[0, 1]], (0, n), "text or numbers") for n in (2**70, Fraction(1, 2))),
        ([[0, 1]], ((0, 1), (1, 0)), "text or numbers"),
        ([[0, 1]], 1.5, "classes must be different labels"),
        *(([[0, 1]], (0, n), r"numbers below 2\^53") for n in (2**53, -(2**53), float(2**53), np.int64(2**53), INF)),
        # 2049 is 2048 in half precision, and floats of 32 bits are as coarse beyond 2^24
        (np.array([[2048, 2048]], np.float16), 3000, "a type that distinguishes the classes, got float"),
        (np.array([[2048, 5]], np.float16), (2049, 5), "a type that distinguishes the classes, got float"),
        (np.array([[5, 33690000]], np.float32), (33690000, 33690001, 5), "a type that distinguishes the classes"),
        (np.array([[5, 33690000]], np.float32), (33690001, 5), "a type that distinguishes the classes"),
        (np.array([[0.1, 0.5]], np.float16), (0.1, 0.1000001, 0.5), "a type that distinguishes the classes"),
    ],
)
def test_from_labels_refuses_what_is_no_vote_and_no_class(labels: Any, classes: Any, message: str) -> None:
    tracemalloc.start()
    check_refusal(lambda: Votes.from_labels(labels, classes), message)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**21  # what is too large is refused before memory is taken


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
        ([["a", "b"]], "the type of the vote counts must be whole numbers"),
        (np.zeros((0, 3)), "at least one row"),
        ([[1, 2], [3]], "vote counts must be a rectangular array"),
        ([[2**31, 1]], "vote counts must be whole numbers of at most 2147483647"),
        ([[-(2**31), 1]], "vote counts must be whole numbers of at most"),
        ([[1e300, 1]], "vote counts must be whole numbers of at most"),
        (None, "the type of the vote counts"),
    ],
)
def test_from_counts_refuses_what_is_no_count(counts: Any, message: str) -> None:
    check_refusal(lambda: Votes.from_counts(counts), message)


TWO_ONE = np.array([[2, 1]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Votes.from_counts([[3, 1]], voters=5), "the sum of row 0 of the vote counts must be K = 5, got 4"),
        (lambda: Votes.from_counts([[3, 1]], classes=3), "the number of columns of the counts, 2, got 3"),
        (lambda: Votes.from_labels([[0, 1]]).require_voters(3), "of K = 3 voters, got 2 columns"),
        (lambda: Votes.from_counts([[3, 1]]).require_voters(3), "of K = 3 voters, got 4 votes on every query"),
        (lambda: Votes.from_labels([[0, 2]], classes=3).ones, "about two classes"),
        (lambda: require_votes([[3, 1]]), r"Votes.from_labels\(labels, classes\) or Votes.from_counts\(counts\)"),
        (lambda: to_counts(Votes.from_labels(np.zeros((0, 2)))), "at least one query"),
        (lambda: Votes.concatenate([]), "votes must be those on at least one query, got none"),
        (lambda: Votes(np.array([2, 1]), 3, (0, 1), "counts"), r"counts must be of shape \(queries, classes\)"),
        (lambda: Votes(TWO_ONE, 3, (0, 0), "counts"), "classes must be different labels"),
        (lambda: Votes(TWO_ONE, 3, (0, 1, 2), "counts"), "the number of columns of the counts, 2, got 3"),
        (lambda: Votes(TWO_ONE / 2, 3, (0, 1), "counts"), "vote counts must be whole numbers"),
        (lambda: Votes(TWO_ONE, 3, (0, 1), "rumors"), "source_format must be one of"),  # type: ignore[arg-type]
    ],
)
def test_votes_that_contradict_what_is_known_are_refused(call: Callable[[], object], message: str) -> None:
    check_refusal(call, message)


def test_from_counts_needs_the_number_of_voters_only_without_rows() -> None:
    assert Votes.from_counts(np.zeros((0, 3)), voters=5).queries == 0


def test_classes_are_told_apart_up_to_the_largest_whole_float() -> None:
    largest = 2**53 - 1
    for dtype in (np.int64, np.float64, object):
        votes = Votes.from_labels(np.array([[largest, 0, 0]], dtype), (0.0, largest))
        assert votes.counts.tolist() == [[2, 1]]
        with pytest.raises(ValueError, match=r"got 900719925474099[23]"):
            Votes.from_labels(np.array([[largest + 2, 0, 0]], dtype), (0.0, largest))
    assert Votes.from_labels(np.array([[2047, 0]], np.float16), 2048).counts[0, 2047] == 1
    assert Votes.from_labels(np.array([[0.1, 0.5]], np.float32), (0.1, 0.5)).counts.tolist() == [[1, 1]]


def test_from_labels_refuses_an_object_that_equals_every_class() -> None:
    class Everything:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, _: object) -> bool:
            return True

    check_refusal(lambda: Votes.from_labels(np.array([[0, Everything()]], dtype=object)), "from voter 1 to query 0")


@pytest.mark.parametrize("name", ["caf\u00e9", "cafe\u0301"])
def test_both_unicode_spellings_are_one_class(name: str) -> None:
    row = ["caf\u00e9", "cafe\u0301", "tea"]
    for labels in ([row], np.array([row], dtype=object)):
        assert Votes.from_labels(labels, (name, "tea")).counts.tolist() == [[2, 1]]
    long_list = (name, "tea", *map(str, range(300)))  # too long to compare name by name
    assert Votes.from_labels([row], long_list).sparse.toarray()[0, :2].tolist() == [2, 1]


# the same votes, counted densely and, as if there were many classes, sparsely
MATRICES: list[tuple[Any, Any, str]] = [
    ([[0, 2, 2], [1, 1, 0]], 3, "refuse"),
    ([[False, True], [True, True]], 2, "refuse"),
    (np.array([[0, 2], [1, 1]], dtype=np.uint8), 3, "refuse"),
    ([[0.0, NAN], [1.0, 2.0]], 3, "coin"),
    ([["b", "a"], ["c", "c"]], ("a", "b", "c"), "refuse"),
    ([["b", ""], ["NA", "c"]], ("a", "b", "c"), "coin"),
    (np.array([["b", None], [NAN, "c"]], dtype=object), ("a", "b", "c"), "coin"),
    (np.array([[5, True, 8.0]], dtype=object), (1, 5, 8), "refuse"),
    (np.array([[0.1, 0.5]], dtype=np.float32), (0.1, 0.5, 2), "refuse"),
    # and what is no vote
    ([[0, 1], [0, -1]], 3, "refuse"),
    (np.array([[0, 2**63]], dtype=np.uint64), 3, "refuse"),
    ([[0.5, 1]], 3, "refuse"),
    ([[0, -1]], 3, "coin"),
    ([["d", "a"]], ("a", "b", "c"), "refuse"),
    (np.array([[0, [1]]], dtype=object), 3, "refuse"),
    ([[None, 1]], 2, "refuse"),
]


def describe_votes(labels: Any, classes: Any, missing: str) -> tuple[Any, ...]:
    try:
        votes = Votes.from_labels(labels, classes, missing=missing)
    except ValueError as error:
        return ("refused", str(error))
    return votes.counts.tolist(), votes.sparse.toarray().tolist(), list_missing(votes), votes.names, repr(votes)


@pytest.mark.parametrize(("labels", "classes", "missing"), MATRICES)
def test_many_classes_are_counted_like_few(
    labels: Any, classes: Any, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = describe_votes(labels, classes, missing)
    for module in ("votes", "vote_arrays"):
        monkeypatch.setattr(f"darrm.votes.{module}.MOST_DENSE", 1)
        monkeypatch.setattr(f"darrm.votes.{module}.ROWS_AT_ONCE", 1)
    assert describe_votes(labels, classes, missing) == dense


def test_a_long_list_of_classes_costs_what_its_votes_cost() -> None:
    names = tuple(f"code {place}" for place in range(100_000))
    columns = np.random.default_rng(0).integers(0, 100, (1000, 20)) ** 2
    expected = np.zeros((1000, 10_000), dtype=int)
    np.add.at(expected, (np.arange(1000)[:, np.newaxis], columns), 1)
    votes = Votes.from_labels(np.array(names)[columns], names)
    assert np.array_equal(votes.sparse[:, :10_000].toarray(), expected)
    joined = Votes.concatenate([votes[1:], votes[:1]])
    assert np.array_equal(joined.sparse[:, :10_000].toarray(), np.roll(expected, -1, axis=0))
    assert votes.name_labels(np.array([99_999])).tolist() == ["code 99999"]
    assert votes[:2].counts.shape == (2, 100_000)
    message = "6,000 queries and 100,000 classes: take some of the queries at a time"
    check_refusal(lambda: Votes.concatenate([votes] * 6).counts, message)
