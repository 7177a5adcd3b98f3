"""Open-set answers: how they are counted, normalized, named, and refused."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.problem import OPEN
from darrm.votes import ABSTAIN, Votes, vote_arrays
from darrm.votes.vote_arrays import count_codes, count_entries
from tests.votes.support import check_refusal, count_answers, list_missing

STRANGE = (
    *("None", "null", "-1", "NA", "nan", " ", "0", "a,b", 'say "no"', "two\nlines", "\ttab"),
    *("🦊", "שלום", "é", "e\u0301"),
)
WORDS = st.sampled_from(STRANGE) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=3
)


def rows_of(answers: st.SearchStrategy[Any]) -> st.SearchStrategy[list[list[Any]]]:
    """Draw one to four rows of as many answers."""
    return st.integers(1, 4).flatmap(
        lambda K: st.lists(st.lists(answers, min_size=K, max_size=K), min_size=1, max_size=4)
    )


def copy_votes(votes: Votes) -> Votes:
    return Votes(votes.sparse, votes.voters, (), "answers", vocabulary=votes.vocabulary)


@given(rows_of(WORDS))
def test_from_answers_counts_each_string(rows: list[list[str]]) -> None:
    expected = [dict(Counter(row)) for row in rows]
    votes = Votes.from_answers(rows)
    assert count_answers(votes) == expected
    assert set(votes.names) == {word for row in rows for word in row}
    assert (votes.voters, votes.queries, votes.source_format) == (len(rows[0]), len(rows), "answers")
    assert len(votes.classes) == OPEN == 0
    numbers = [list(row.values()) for row in expected]
    assert count_answers(Votes.from_answers([list(row) for row in expected], numbers)) == expected
    assert count_answers(Votes.from_answers(np.array(rows, dtype=object))) == expected
    joined = Votes.concatenate([copy_votes(votes)[1:], votes[:0], Votes.from_answers(rows[:1])])
    assert count_answers(joined) == expected[1:] + expected[:1]
    assert count_answers(votes[np.arange(len(rows)) % 2 == 1]) == expected[1::2]


@given(rows_of(st.sampled_from([None, "", *STRANGE[:3]])))
def test_a_missing_answer_counts_for_no_string(rows: list[list[str | None]]) -> None:
    votes = Votes.from_answers(rows, missing="blank")  # type: ignore[arg-type]
    other: Any = ["x"] * len(rows[0])
    joined = Votes.concatenate([votes[:1], Votes.from_answers([other]), votes])
    for result, answers in ((votes, rows), (joined, [rows[0], other, *rows])):
        assert result.sparse.sum(axis=1).tolist() == [result.voters] * len(answers)
        for query, row in enumerate(answers):
            counts = result.sparse[query : query + 1]
            labels = result.name_labels(counts.indices).tolist()
            pairs = list(zip(labels, counts.data.tolist(), strict=True))
            # each missing answer has a column of its own, and its label is no answer
            assert [n for label, n in pairs if label is None] == [1 for word in row if not word]
            assert {label: n for label, n in pairs if label} == Counter(word for word in row if word)
        assert result.blanks == sum(not word for row in answers for word in row)
    copied = copy_votes(votes)
    assert (copied.blanks, copied.strings) == (votes.blanks, len({word for row in rows for word in row if word}))
    assert ("missing" in repr(votes)) == (votes.blanks > 0)


def test_labels_are_strings_and_no_answer_is_none() -> None:
    votes = Votes.from_answers([["None", "-1", "-1"]])
    labels = votes.name_labels(np.array([0, 1, ABSTAIN]))
    assert labels.dtype == np.dtype(object)  # the width of a text type would reveal the longest string
    assert labels.tolist() == ["None", "-1", None]


FLU = Votes.from_answers([["flu", "cold"]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FLU.counts, "open answers: their counts are votes.sparse"),
        (lambda: FLU.ones, "got open answers"),
        (FLU.impute_missing, "open answers have no list of strings to draw from"),
        (lambda: FLU.require_voters(3), "of K = 3 voters, got 2 columns"),
        (lambda: Votes.concatenate([FLU, Votes.from_labels([[0, 1]])]), "of the same voters on the same classes"),
        (lambda: Votes.concatenate([FLU, Votes.from_answers([["a", "b"]], normalize="strip")]), "of the same voters"),
        (lambda: Votes.from_answers([["a"]], missing="coin"), "must be 'refuse', or 'blank' .*: open answers have no"),
        (lambda: Votes.from_answers([["a"]], missing="no"), "missing must be one of blank, coin, refuse"),
        (lambda: Votes.from_answers([["a"]], [[1]], missing="blank"), "missing must be 'refuse' beside numbers"),
        (lambda: Votes.from_labels([[0]], missing="blank"), "missing .* must be 'refuse' or 'coin' where classes are"),
        (lambda: Votes.from_labels([["flu"]], OPEN), r"use Votes.from_answers\(rows\)"),
        (lambda: Votes.from_labels([["flu"]], "open"), r"use Votes.from_answers\(rows\)"),
        (lambda: Votes.from_answers([["A"]], normalize="upper"), "some of casefold, nfc, spaces, strip, with commas"),
        (lambda: Votes.from_answers([["A"]], normalize=""), "must be some of"),
        (lambda: Votes.from_answers([["A"]], normalize=3), "a function of one answer"),  # type: ignore[arg-type]
        (lambda: Votes.from_answers([["A"]], normalize=lambda _: ""), "got 'A': leave the question"),
        (lambda: Votes.from_answers([["A"]], normalize=lambda _: 3), "text"),  # type: ignore[arg-type, return-value]
    ],
)
def test_open_answers_refuse_what_needs_listed_classes(call: Callable[[], object], message: str) -> None:
    check_refusal(call, message)


@pytest.mark.parametrize(
    ("rows", "numbers", "message"),
    [
        ([["a", ""]], None, "query 0, voter 1: .* at least one character, got '': leave the question out"),
        ([["a", "b"], ["c", None]], None, "query 1, voter 1: an answer must be .*, got None: leave the question"),
        ([["a", float("nan")]], None, "query 0, voter 1: an answer must be text .*, got nan"),
        ([["a", 1]], None, "got 1: write numbers as text"),
        ([["a", ["b"]]], None, "query 0, voter 1: "),
        ([["a", "b"], ["c"]], None, "query 1 has 1 answers, and those before it 2"),
        ([[]], None, "query 0 has 0 answers"),
        ([], None, "at least one query"),
        ([], [], "at least one query"),
        (["ab"], None, "query 0 must be a row of strings"),
        ("ab", None, "answers must be rows of strings"),
        ({"a": 1}, None, "answers must be rows of strings"),
        (3, None, "answers must be rows of strings"),
        (np.ma.masked_equal([["a", "b"]], "b"), None, "answers must be complete, got masked entries"),
        ([["a" * 201, "b"]], None, "at most 200 characters"),
        ([["\ud800", "b"]], None, "Unicode text"),
        ([["a\0", "b"]], None, "none zero"),
        ([["a", "b"]], [[1]], "got 2 strings and 1 numbers"),
        ([["a", "b"]], [[1, 0]], "numbers of query 0 must be an integer of at least 1"),
        ([["a", "b"]], [[2.7, 1]], "numbers of query 0 must be an integer of at least 1, got 2.7"),
        ([["a", "b"]], [[1, float("nan")]], "numbers of query 0 must be an integer"),
        ([["a", "b"]], [["2", 1]], "numbers of query 0 must be an integer"),
        ([["a", "b"]], [[2**31, 1]], "numbers of query 0 must be an integer of at most"),
        ([["a"], ["b"]], [[2], [0]], "numbers of query 1 must be an integer of at least 1, got 0"),
        ([["a"], ["b"]], [[2], [3]], "the sum of query 1 must be K = 2, that of query 0, got 3"),
    ],
)
def test_from_answers_refuses_what_is_no_answer(rows: Any, numbers: Any, message: str) -> None:
    check_refusal(lambda: Votes.from_answers(rows, numbers), message)


SPARSE = count_codes(np.array([[0, 0, 1]]), 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.array([[2, 1]]), 3, (), "answers", None, ("a", "b")), "sparse counts without classes"),
        ((SPARSE, 3, ("a", "b"), "answers", None, ("a", "b")), "sparse counts without classes"),
        ((SPARSE, 3, (), "answers", np.array([0]), ("a", "b")), "without missing votes"),
        ((SPARSE, 3, (), "answers", None, ("a", "a")), "different strings"),
        ((SPARSE, 3, (), "answers", None, ("a", "")), "at least one character"),
        ((SPARSE, 3, (), "answers", None, (None, "a")), "different strings, and None after them"),
        ((SPARSE, 3, (), "answers", None, ("a",)), "the number of columns of the counts, 2, got 1"),
        ((SPARSE, 4, (), "answers", None, ("a", "b")), "the sum of row 0 of the vote counts must be K = 4, got 3"),
        ((SPARSE, 4, ("a", "b"), "counts"), "the sum of row 0 of the vote counts must be K = 4, got 3"),
        ((SPARSE / 2, 3, ("a", "b"), "counts"), "sparse counts must be whole numbers"),
        ((count_entries([4, -1], [0, 1], [0, 2], 2), 3, ("a", "b"), "counts"), "whole numbers of at least 1"),
    ],
)
def test_votes_refuse_wrong_sparse_counts(arguments: tuple[Any, ...], message: str) -> None:
    check_refusal(lambda: Votes(*arguments), message)


def test_votes_are_read_only_copies_of_sparse_counts() -> None:
    sparse = SPARSE.copy()
    votes = Votes(sparse, 3, ("a", "b"), "counts", vocabulary=("x",))
    sparse.data[:] = 9
    assert (votes.names, votes.counts.tolist()) == (("a", "b"), [[2, 1]])
    with pytest.raises(ValueError, match="read-only"):
        votes.sparse.data[0] = 9


@given(st.integers(1, 5), st.integers(0, 5), st.integers(1, 5), st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_sparse_counts_are_those_of_each_row(K: int, Q: int, C: int, seed: int, places_at_once: int) -> None:
    codes = np.random.default_rng(seed).integers(-1, C, (Q, K))
    expected = [[row.count(c) for c in range(C)] for row in codes.tolist()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vote_arrays, "_PLACES_AT_ONCE", places_at_once)
        counts = count_codes(codes, C)
    assert (counts.toarray().tolist(), counts.shape, counts.has_canonical_format) == (expected, (Q, C), True)


def test_coins_replace_missing_votes_on_many_classes() -> None:
    votes = Votes.from_labels([[5.0, np.nan], [np.nan, np.nan]], 300, missing="coin")
    assert (list_missing(votes), votes.sparse.sum(axis=1).tolist()) == ([1, 2], [1, 0])
    complete = votes.impute_missing(rng=np.random.default_rng(0))
    assert (complete.missing, complete.sparse.sum(axis=1).tolist()) == (None, [2, 2])
    assert list_missing(Votes.concatenate([votes[1:], Votes.from_labels([[1, 2]], 300)])) == [2, 0]


@pytest.mark.parametrize(
    ("normalize", "strings"),
    [
        (None, [3, 3]),
        ("casefold", [3, 2]),
        ("strip, casefold", [3, 2]),
        ("spaces,casefold", [1, 2]),
        ("nfc,casefold,spaces", [1, 1]),
        (lambda answer: answer[:1].strip() or "x", [3, 3]),
    ],
)
def test_answers_are_normalized_before_they_are_counted(normalize: Any, strings: list[int]) -> None:
    rows = [[" Flu  season", "flu season", "FLU\tSEASON "], ["\u00e9", "e\u0301", "\u00c9"]]
    assert list(map(len, count_answers(Votes.from_answers(rows, normalize=normalize)))) == strings


def test_a_normalization_sees_each_answer_once() -> None:
    numbers = Votes.from_answers([["Flu", "flu", "cold"]], [[2, 1, 1]], normalize="casefold")
    assert count_answers(numbers) == [{"flu": 3, "cold": 1}]
    steps = {"a": "b", "b": "c"}  # another answer after each further step
    votes = Votes.from_answers([["a", "b", "a"]], normalize=lambda word: steps[word])
    assert count_answers(votes) == [{"b": 2, "c": 1}]


def test_votes_keep_the_name_of_their_normalization() -> None:
    votes = Votes.from_answers([["A"]], normalize=" strip,casefold")
    for result in (votes, votes[:1], Votes.concatenate([votes, votes])):
        assert result.normalized == "strip,casefold"
    assert "normalized by strip,casefold" in repr(votes)
    assert Votes.from_answers([["A"]], normalize=str.upper).normalized == "str.upper"
