"""Open answers, and long lists of classes: held sparse, and the same votes as one by one."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.problem import OPEN
from darrm.votes import ABSTAIN, Votes, vote_arrays
from darrm.votes import votes as votes_module
from darrm.votes.vote_arrays import count_codes, count_entries

STRANGE = (
    "None",
    "null",
    "-1",
    "NA",
    "nan",
    " ",
    "a,b",
    'say "no"',
    "two\nlines",
    "\ttab",
    "🦊",
    "שלום",
    "é",
    "é",
    "0",
)
words = st.sampled_from(STRANGE) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=3
)


def counted(votes: Votes) -> list[dict[Any, int]]:
    """What was said to each query, and how often, from the sparse counts."""
    sparse = votes.sparse
    rows: list[dict[Any, int]] = [{} for _ in range(votes.queries)]
    for row, column, value in zip(*sparse.nonzero(), sparse.data, strict=True):
        rows[row][votes.names[column]] = int(value)
    return rows


@given(st.integers(1, 4).flatmap(lambda K: st.lists(st.lists(words, min_size=K, max_size=K), min_size=1, max_size=4)))
def test_answers_are_counted(rows: list[list[str]]) -> None:
    expected = [dict(Counter(row)) for row in rows]
    votes = Votes.from_answers(rows)
    assert counted(votes) == expected
    assert set(votes.names) == {word for row in rows for word in row}
    assert (votes.voters, votes.queries, votes.source_format) == (len(rows[0]), len(rows), "answers")
    assert len(votes.classes) == OPEN == 0
    numbers = [list(row.values()) for row in expected]
    assert counted(Votes.from_answers([list(row) for row in expected], numbers)) == expected
    assert counted(Votes.from_answers(np.array(rows, dtype=object))) == expected
    again = Votes(votes.sparse, votes.voters, (), "answers", vocabulary=votes.vocabulary)
    assert (
        counted(Votes.concatenate([again[1:], votes[:0], Votes.from_answers(rows[:1])])) == expected[1:] + expected[:1]
    )
    cut = votes[np.arange(len(rows)) % 2 == 1]
    assert counted(cut) == expected[1::2]


def test_an_answer_is_named_and_no_answer_is_none() -> None:
    votes = Votes.from_answers([["None", "-1", "-1"]])
    labels = votes.name_labels(np.array([0, 1, ABSTAIN]))
    assert labels.dtype == np.dtype(object)  # a text type would tell the longest string, which nobody sees
    assert labels.tolist() == ["None", "-1", None]


@given(
    st.integers(1, 4).flatmap(
        lambda K: st.lists(st.lists(st.sampled_from([None, "", *STRANGE[:3]]), min_size=K, max_size=K), min_size=1)
    )
)
def test_an_answer_that_is_missing_counts_for_no_string(rows: list[list[str | None]]) -> None:
    votes = Votes.from_answers(rows, missing="blank")  # type: ignore[arg-type]
    joined = Votes.concatenate([votes[:1], Votes.from_answers([["x"] * len(rows[0])]), votes])
    several: list[tuple[Votes, Any]] = [(votes, rows), (joined, [rows[0], ["x"] * len(rows[0]), *rows])]
    for made, asked in several:
        sparse = made.sparse
        assert sparse.sum(axis=1).tolist() == [made.voters] * len(asked)
        for row, said in enumerate(asked):
            named = made.name_labels(sparse[row : row + 1].indices).tolist()
            counts = sparse[row : row + 1].data.tolist()
            pairs = list(zip(named, counts, strict=True))
            # each that is missing is alone, and its label is no answer
            assert [n for word, n in pairs if word is None] == [1 for word in said if not word]
            assert {word: n for word, n in pairs if word} == Counter(word for word in said if word)
        assert made.blanks == sum(not word for said in asked for word in said)
    again = Votes(votes.sparse, votes.voters, (), "answers", vocabulary=votes.vocabulary)
    assert (again.blanks, again.strings) == (votes.blanks, len({word for row in rows for word in row if word}))
    assert ("missing" in repr(votes)) == (votes.blanks > 0)


def test_what_listed_classes_offer_is_refused_in_one_line() -> None:
    votes = Votes.from_answers([["flu", "cold"]])
    for call, message in (
        (lambda: votes.counts, "open answers: their counts are votes.sparse"),
        (lambda: votes.ones, "got open answers"),
        (votes.impute_missing, "open answers have no list of strings to draw from"),
        (lambda: votes.require_voters(3), "of K = 3 voters, got 2 columns"),
        (lambda: Votes.concatenate([votes, Votes.from_labels([[0, 1]])]), "of the same voters on the same classes"),
        (lambda: Votes.concatenate([votes, Votes.from_answers([["a", "b"]], normalize="strip")]), "of the same voters"),
        (
            lambda: Votes.from_answers([["a"]], missing="coin"),
            "missing .* must be 'refuse', or 'blank' .*: open answers have no list",
        ),
        (lambda: Votes.from_answers([["a"]], missing="no"), "missing must be one of blank, coin, refuse"),
        (lambda: Votes.from_answers([["a"]], [[1]], missing="blank"), "missing must be 'refuse' beside numbers"),
        (lambda: Votes.from_labels([[0]], missing="blank"), "missing .* must be 'refuse' or 'coin' where classes are"),
        (lambda: Votes.from_labels([["flu"]], OPEN), r"use Votes.from_answers\(rows\)"),
        (lambda: Votes.from_labels([["flu"]], "open"), r"use Votes.from_answers\(rows\)"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


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
        ([["a", "b", "c"]], [[-1, 3, 1]], "numbers of query 0 must be an integer of at least 1, got -1"),
        ([["a"], ["b"]], [[2], [3]], "the sum of query 1 must be K = 2, that of query 0, got 3"),
    ],
)
def test_what_is_no_answer_is_named(rows: Any, numbers: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Votes.from_answers(rows, numbers)
    assert "\n" not in str(caught.value)


def test_votes_made_by_hand_are_checked() -> None:
    sparse = count_codes(np.array([[0, 0, 1]]), 2)
    for wrong, message in (
        ((np.array([[2, 1]]), 3, (), "answers", None, ("a", "b")), "sparse counts without classes"),
        ((sparse, 3, ("a", "b"), "answers", None, ("a", "b")), "sparse counts without classes"),
        ((sparse, 3, (), "answers", np.array([0]), ("a", "b")), "without missing votes"),
        ((sparse, 3, (), "answers", None, ("a", "a")), "different strings"),
        ((sparse, 3, (), "answers", None, ("a", "")), "at least one character"),
        ((sparse, 3, (), "answers", None, (None, "a")), "different strings, and None after them"),
        ((sparse, 3, (), "answers", None, ("a",)), "the number of columns of the counts, 2, got 1"),
        ((sparse, 4, (), "answers", None, ("a", "b")), "the sum of row 0 of the vote counts must be K = 4, got 3"),
        ((sparse, 4, ("a", "b"), "counts"), "the sum of row 0 of the vote counts must be K = 4, got 3"),
        ((sparse / 2, 3, ("a", "b"), "counts"), "sparse counts must be whole numbers"),
        ((count_entries([4, -1], [0, 1], [0, 2], 2), 3, ("a", "b"), "counts"), "whole numbers of at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            Votes(*wrong)
    votes = Votes(sparse, 3, ("a", "b"), "counts", vocabulary=("x",))
    sparse.data[:] = 9
    assert (votes.names, votes.counts.tolist()) == (("a", "b"), [[2, 1]])
    with pytest.raises(ValueError, match="read-only"):
        votes.sparse.data[0] = 9


@given(st.integers(1, 5), st.integers(0, 5), st.integers(1, 5), st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_sparse_counts_are_what_is_counted_one_by_one(K: int, Q: int, C: int, seed: int, at_once: int) -> None:
    codes = np.random.default_rng(seed).integers(-1, C, (Q, K))
    dense = [[row.count(c) for c in range(C)] for row in codes.tolist()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vote_arrays, "_PLACES_AT_ONCE", at_once)
        counts = count_codes(codes, C)
    assert (counts.toarray().tolist(), counts.shape, counts.has_canonical_format) == (dense, (Q, C), True)


def test_answers_are_made_alike_before_they_are_counted() -> None:
    rows = [[" Flu  season", "flu season", "FLU\tSEASON "], ["\u00e9", "e\u0301", "\u00c9"]]
    for normalize, expected in (
        (None, [3, 3]),
        ("casefold", [3, 2]),
        ("strip, casefold", [3, 2]),
        ("spaces,casefold", [1, 2]),
        ("nfc,casefold,spaces", [1, 1]),
        (lambda answer: answer[:1].strip() or "x", [3, 3]),
    ):
        votes = Votes.from_answers(rows, normalize=normalize)
        assert [len(row) for row in counted(votes)] == expected
    numbers = Votes.from_answers([["Flu", "flu", "cold"]], [[2, 1, 1]], normalize="casefold")
    assert counted(numbers) == [{"flu": 3, "cold": 1}]
    # a function that is not its own fixed point sees each answer as it was given
    steps = {"a": "b", "b": "c"}
    assert counted(Votes.from_answers([["a", "b", "a"]], normalize=lambda word: steps[word])) == [{"b": 2, "c": 1}]


def test_what_was_done_to_answers_is_said() -> None:
    votes = Votes.from_answers([["A"]], normalize=" strip,casefold")
    assert votes.normalized == votes[:1].normalized == Votes.concatenate([votes, votes]).normalized == "strip,casefold"
    assert "normalized by strip,casefold" in repr(votes)
    assert Votes.from_answers([["A"]], normalize=str.upper).normalized == "str.upper"
    for normalize, message in (
        ("upper", "normalize .* must be some of casefold, nfc, spaces, strip, with commas between, got 'upper'"),
        ("", "must be some of"),
        (3, "a function of one answer"),
        (lambda _: "", "got 'A': leave the question"),
        (lambda _: 3, "text"),
    ):
        with pytest.raises(ValueError, match=message):
            Votes.from_answers([["A"]], normalize=normalize)  # type: ignore[arg-type]


LISTS: list[tuple[Any, Any, str]] = [
    ([[0, 2, 2], [1, 1, 0]], 3, "refuse"),
    ([[False, True], [True, True]], 2, "refuse"),
    (np.array([[0, 2], [1, 1]], dtype=np.uint8), 3, "refuse"),
    ([[0.0, np.nan], [1.0, 2.0]], 3, "coin"),
    ([["b", "a"], ["c", "c"]], ("a", "b", "c"), "refuse"),
    ([["b", ""], ["NA", "c"]], ("a", "b", "c"), "coin"),
    (np.array([["b", None], [np.nan, "c"]], dtype=object), ("a", "b", "c"), "coin"),
    (np.array([[5, True, 8.0]], dtype=object), (1, 5, 8), "refuse"),
    (np.array([[0.1, 0.5]], dtype=np.float32), (0.1, 0.5, 2), "refuse"),
    # what is no vote
    ([[0, -1]], 3, "refuse"),
    (np.array([[0, 2**63]], dtype=np.uint64), 3, "refuse"),
    ([[0.5, 1]], 3, "refuse"),
    ([[0, -1]], 3, "coin"),
    ([["d", "a"]], ("a", "b", "c"), "refuse"),
    (np.array([[0, [1]]], dtype=object), 3, "refuse"),
    ([[None, 1]], 2, "refuse"),
]


def _said(labels: Any, classes: Any, missing: str) -> tuple[Any, ...]:
    try:
        votes = Votes.from_labels(labels, classes, missing=missing)
    except ValueError as error:
        return ("refused", str(error))
    absent = None if votes.missing is None else votes.missing.tolist()
    return votes.counts.tolist(), votes.sparse.toarray().tolist(), absent, votes.names, repr(votes)


@pytest.mark.parametrize(("labels", "classes", "missing"), LISTS)
def test_many_classes_are_counted_as_few(
    labels: Any, classes: Any, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = _said(labels, classes, missing)
    for module in (votes_module, vote_arrays):
        monkeypatch.setattr(module, "MOST_DENSE", 1)
        monkeypatch.setattr(module, "ROWS_AT_ONCE", 1)
    assert _said(labels, classes, missing) == few


def test_a_long_list_is_held_sparse_and_costs_what_the_votes_cost() -> None:
    names = tuple(f"code {place}" for place in range(100_000))
    rows = np.array(names)[np.random.default_rng(0).integers(0, 100, (1000, 20)) ** 2]
    votes = Votes.from_labels(rows, names)
    assert counted(votes) == [dict(Counter(row)) for row in rows.tolist()]
    assert counted(Votes.concatenate([votes[1:], votes[:1]])) == counted(votes)[1:] + counted(votes)[:1]
    assert votes.name_labels(np.array([99_999])).tolist() == ["code 99999"]
    assert votes[:2].counts.shape == (2, 100_000)
    with pytest.raises(ValueError, match="6,000 queries and 100,000 classes: take some of the queries at a time"):
        Votes.concatenate([votes] * 6).counts  # noqa: B018


def test_coins_stand_for_missing_votes_on_many_classes() -> None:
    votes = Votes.from_labels([[5.0, np.nan], [np.nan, np.nan]], 300, missing="coin")
    assert (votes.missing.tolist(), votes.sparse.sum(axis=1).tolist()) == ([1, 2], [1, 0])  # type: ignore[union-attr]
    whole = votes.impute_missing(rng=np.random.default_rng(0))
    assert (whole.missing, whole.sparse.sum(axis=1).tolist()) == (None, [2, 2])
    joined = Votes.concatenate([votes[1:], Votes.from_labels([[1, 2]], 300)])
    assert joined.missing.tolist() == [2, 0]  # type: ignore[union-attr]


def test_a_survey_is_turned_round(tmp_path: Path) -> None:
    file = tmp_path / "survey.csv"
    file.write_text("town,drink\nRome,tea\nParis,\nrome,gin\n", encoding="utf-8")
    votes = Votes.read_survey(file, 3, missing="blank", normalize="casefold")
    assert counted(votes) == [{"rome": 2, "paris": 1}, {"tea": 1, "gin": 1, None: 1}]
    assert votes.voters == 3
    whole = Votes.read_survey(file, 4, missing="blank")
    assert counted(whole)[0] == {"town": 1, "Rome": 1, "Paris": 1, "rome": 1}
    for voters, message in ((2, "must be 2 or 3, got 4"), (3, "line 3, field 2")):
        with pytest.raises(ValueError, match=message):
            Votes.read_survey(file, voters)
    with pytest.raises(ValueError, match="turn the votes round"):
        Votes.read_survey(tmp_path / "votes.npy", 3)
