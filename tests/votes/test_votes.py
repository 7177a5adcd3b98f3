"""Votes: one parser for labels and counts, and what it refuses."""

import csv
import gzip
import math
import os
import re
import tempfile
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from darrm.util import progress
from darrm.verify.files import read_labels, read_parquet_labels
from darrm.votes import ABSTAIN, ROWS_AT_ONCE, Votes, parquet_file, require_votes, to_counts, votes_file
from darrm.votes.labels_file import labels_digest, save_labels
from darrm.votes.parquet_file import record_batches
from darrm.votes.reading import load_matrix
from darrm.votes.vote_arrays import ClassLookup
from darrm.votes.votes_file import TextTable

NAN, INF = math.nan, math.inf


def test_labels_become_counts() -> None:
    labels = np.array([[0, 1, 1, 3], [2, 2, 2, 2]])
    votes = Votes.from_labels(labels, classes=4)
    assert votes.counts.tolist() == [[1, 2, 0, 1], [0, 0, 4, 0]]
    assert (votes.queries, votes.voters, votes.classes, votes.source_format) == (2, 4, (0, 1, 2, 3), "labels")
    assert Votes.from_labels(labels, classes=6).counts.shape == (2, 6)
    assert Votes.from_labels(np.zeros((1, 3))).counts.tolist() == [[3, 0]]
    assert Votes.from_labels(np.zeros((0, 3))).counts.shape == (0, 2)
    assert Votes.from_labels([[0, 2, 2]], classes=(2, 0)).counts.tolist() == [[2, 1]]


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float64, object])
def test_every_type_of_vote_is_counted_alike(dtype: type) -> None:
    rows = ROWS_AT_ONCE + 3 if dtype is not object else 10  # more than one block
    labels = np.random.default_rng(0).random((rows, 3)) < 0.6
    votes = Votes.from_labels(labels.astype(dtype), classes=2)
    assert np.array_equal(votes.ones, labels.sum(axis=1))
    assert np.array_equal(votes.counts.sum(axis=1), np.full(rows, 3))


def test_many_voters_are_counted() -> None:  # sums of one byte hold 255
    labels = np.arange(600) >= np.array([[0], [300], [344], [600]])
    for K in (255, 256, 257, 600):
        votes = Votes.from_labels(labels[:, :K])
        assert votes.ones.tolist() == labels[:, :K].sum(axis=1).tolist()


def test_votes_do_not_change_and_the_input_stays_free() -> None:
    for array, votes in (
        (already := np.array([[2, 1]]), Votes.from_counts(already)),
        (floats := np.array([[2.0, 1.0]]), Votes.from_counts(floats)),
        (labels := np.array([[1, 0, 0]]), Votes.from_labels(labels)),
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
        ((np.array([[2, 1]]), 3, (0, 1), "rumors"), "source_format must be one of"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            Votes(*wrong)
        assert "\n" not in str(caught.value)


def test_rows_are_cut() -> None:
    votes = Votes.from_counts([[3, 0], [1, 2], [0, 3]], classes=("a", "b"))
    assert votes[1:].counts.tolist() == [[1, 2], [0, 3]]
    assert votes[np.array([True, False, True])].ones.tolist() == [0, 3]
    assert (votes[:1].classes, votes[:0].queries, votes[:0].voters) == (("a", "b"), 0, 3)
    with pytest.raises(TypeError, match="cut by rows"):
        votes[0]  # type: ignore[index]


@pytest.mark.parametrize("classes", [("no", "yes"), (5, 8), (-1, 1), (False, True)])
def test_answers_are_named_again(classes: tuple) -> None:
    votes = Votes.from_labels([[classes[0], classes[1]]], classes=classes)
    assert votes.name_labels(np.array([1, 0, 1])).tolist() == [classes[1], classes[0], classes[1]]
    declined = votes.name_labels(np.array([1, ABSTAIN])).tolist()
    assert [str(label) for label in declined] == [str(int(c) if c is True else c) for c in (classes[1], ABSTAIN)]


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([[0, -1]], None, "votes must be 0 or 1, got -1 from voter 1 to query 0: name the classes"),
        ([[0.0, NAN]], None, "got nan from voter 1"),
        ([[0.5, 1]], None, "got 0.5"),
        ([["cat", "cow"]], ("cat", "dog"), "votes must be 'cat' or 'dog', got 'cow' from voter 1"),
        ([["1", "0"]], 2, "got '1' from voter 0"),
        ([[0, 1]], 1, "classes must be an integer of at least 2"),
        ([[0, 1]], (1, 1), "classes must be different labels"),
        ([[0, 1]], "ab", "classes must be different labels"),
        # the number of classes is public: one voter's 9 must not make ten columns out of two
        ([[0, 9]], None, r"votes must be 0 or 1, got 9 .*: write classes=C \(--classes C\) for more classes"),
        (np.ma.masked_equal([[0, 1], [1, 7]], 7), 2, "votes must be complete, got masked entries"),
        ([np.ma.masked_equal([0, 7], 7)], 2, "votes must be complete"),
        ([[]], None, r"votes must be of shape \(queries, voters\)"),
        ([0, 1, 1], None, r"reshape one query to \(1, 3\)"),
        ([[1, 2], [3]], None, "votes must be a rectangular array"),
        (None, None, "votes must be of shape"),
        ("votes", None, "votes must be of shape"),
    ],
)
def test_malformed_labels_are_named(labels: object, classes: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Votes.from_labels(labels, classes)  # type: ignore[arg-type]
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
        Votes.from_counts(counts)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_what_is_known_is_compared() -> None:
    assert Votes.from_counts(np.zeros((0, 3)), voters=5).queries == 0
    for call, message in (
        (lambda: Votes.from_counts([[3, 1]], voters=5), "the sum of row 0 of the vote counts must be K = 5, got 4"),
        (lambda: Votes.from_counts([[3, 1]], classes=3), "the number of columns of the counts, 2, got 3"),
        (lambda: Votes.from_labels([[0, 1]]).require_voters(3), "of K = 3 voters, got 2 columns"),
        (lambda: Votes.from_counts([[3, 1]]).require_voters(3), "of K = 3 voters, got 4 votes on every query"),
        (lambda: Votes.from_labels([[0, 2]], classes=3).ones, "about two classes"),
        (lambda: require_votes([[3, 1]]), r"Votes.from_labels\(labels, classes\) or Votes.from_counts\(counts\)"),
        (lambda: to_counts(Votes.from_labels(np.zeros((0, 2)))), "at least one query"),
        (lambda: Votes.concatenate([]), "votes must be those on at least one query, got none"),
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
        ([["no", "yes", "yes"]], {"voters": 3, "classes": ("no", "yes")}, "labels", [[1, 2]]),
        ([[5, 8, 8]], {"voters": 3, "classes": ("5", "8")}, "labels", [[1, 2]]),
        ([[3, 0], [0, 3]], {"voters": 3}, "counts", [[3, 0], [0, 3]]),
        ([[1, 1, 0], [0, 1, 1]], {"voters": 3}, "labels", [[1, 2], [1, 2]]),
        ([["no", "yes"]], {"voters": 2, "classes": ("no", "yes")}, "labels", [[1, 1]]),  # words are no counts
        # else they are said to be counts
        ([[0, 1, 1], [1, 1, 1]], {}, "labels", [[1, 2], [0, 3]]),
        ([[1, 1], [1, 1]], {"layout": "counts"}, "counts", [[1, 1], [1, 1]]),
        ([[4, 1]], {"layout": "counts", "classes": ("no", "yes")}, "counts", [[4, 1]]),
    ],
)
def test_files_are_told_apart(
    matrix: object, named: dict, given: str, counts: list, suffix: str, tmp_path: Path
) -> None:
    votes = read(tmp_path, matrix, suffix, **named)
    assert votes.source_format == given
    assert votes.counts.tolist() == counts


@pytest.mark.parametrize(
    ("matrix", "named", "message"),
    [
        ([[1, 1], [1, 1]], {}, "could be labels or counts"),
        ([[1, 1], [1, 1]], {"voters": 2, "classes": 2}, "could be labels or counts"),
        ([[1, 1, 1], [2, 0, 1]], {"voters": 3, "classes": 3}, "could be labels or counts"),
        ([[1, 1, 1]], {"voters": 5, "classes": 2}, "of K = 5 voters"),
        ([[3, 1]], {"voters": 5, "classes": 2}, "must be K = 5, got 4"),
        ([[0, 1]], {"layout": "xml"}, "layout must be one of"),
        ([[0, 1]], {"layout": "labels", "classes": ("a", "b")}, "classes must be numbers"),
        ([0, 1], {}, r"must hold a matrix with at least one entry, .*: one row is one query, .*; reshape a single row"),
        (np.zeros((0, 3)), {}, r"must hold a matrix with at least one entry, got shape \(0, 3\)"),
        (np.zeros((0, 10**9, 10**9)), {}, "one row is one query"),
        ([[1e308, 1e308], [0.0, 0.0]], {"voters": 5}, "whole numbers of at most"),
        (np.array([[2**63, 5]], dtype=np.uint64), {"voters": 5}, "whole numbers of at most"),
        (np.array([[2**63, 2**63, 1]], dtype=np.uint64), {"voters": 3}, "got 9223372036854775808 from voter 0"),
    ],
)
def test_files_that_are_refused(matrix: object, named: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, matrix, **named)


def refusal(path: Path, **named: object) -> str:
    """Read a file and return the one line that refuses it."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (each test looks at the text)
        Votes.read(path, **named)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


WORDS = {"classes": ("C", "D")}


@pytest.mark.parametrize(
    ("content", "named", "message"),
    [
        (b"0,1,1\n0,1\n", {}, "line 2 has 2 fields, the lines before it 3"),
        (b"0,1,1\n0,1,x\n", {}, "line 2, field 3: 'x' is no number"),
        (b"0,1\n\n1,1\n", {}, "line 2 is blank: every line is a query"),
        (b"\n0,1\n", {}, "line 1 is blank"),
        (b"\n\n", {}, "at least one line"),
        (b"", {}, "at least one line"),
        (b"0,1,nan\n", {}, "line 1, field 3: the vote is missing ('nan'): every voter must answer every query"),
        (b"0,,1\n", {}, "line 1, field 2: the vote is missing ('')"),
        (b"0,inf\n", {}, "line 1, field 2: 'inf' is no number"),
        (b"0,1_0\n", {}, "'1_0' is no number"),
        ("0,１\n".encode(), {}, "'１' is no number"),
        (b"0," + b"9" * 120_000 + b"x\n", {}, "9' is no number"),
        (b"a,b\n", {}, "at least one line"),
        (b"a,a\n0,1\n", {}, "line 1, field 1: 'a' is no number"),  # names of columns differ
        (b'x,"1,000"\n0,1\n', {}, "line 1, field 1: 'x' is no number"),
        ("x,\uff11\n0,1\n".encode(), {}, "line 1, field 1: 'x' is no number"),
        (b"a,b\n0,1\n0,2\n", {}, "line 3, field 2: '2' is none of the classes '0', '1'"),
        (b"Yes,No\nyes,no\n", {"classes": ("yes", "no")}, "line 1, field 1: 'Yes' is none of the classes"),
        (b"voter,voter\nC,D\n", WORDS, "line 1, field 1: 'voter' is none of the classes"),
        (b"0,1,2,3,4\n0,0,0,0,0\n", {}, "line 1, field 3: '2' is none of the classes"),
        (b",0,1,2\n0,1,0,1\n", {}, "line 1, field 1: the vote is missing"),
        (b"4,1\n", WORDS, "line 1, field 1: '4' is none of the classes"),
        (b'C,"C\nD,D\nC,C"\n', WORDS, "is none of the classes"),
        (b'C,"C\n', WORDS, "line 1: unexpected end of data"),
        (b'C,"C"D\n', WORDS, "line 1: ',' expected after '\"'"),
        ("0,1\n1,1\n".encode("utf-16"), {}, "line 1 holds zero bytes, as UTF-16 does: save it as UTF-8"),
        (b"0,1\n0,\xff\n", {}, "line 2 is not in UTF-8"),
        (b"0," * 2**24, {}, "line 1 has 16,777,216 characters or more"),
        (b"0,1\n0," + b"1" * 200_000, {}, "line 2: field larger than field limit"),
        (b"3,1\n3,2\n", {"layout": "counts"}, r"the sum of row 1 .* \(row 0 is line 1 of '"),
        (b"a,b\n3,1\n3,2\n", {"layout": "counts"}, r"the sum of row 1 .* \(row 0 is line 2 of '"),
        (b"1,1,1\n2,0,1\n", {"layout": "auto", "voters": 3, "classes": ("0", "1", "2")}, "could be labels or counts"),
        (b"a, a\n", {"classes": ("a", " a")}, "without spaces around it in a .csv file"),
    ],
)
def test_lines_that_are_no_query(content: bytes, named: dict, message: str, tmp_path: Path) -> None:
    (tmp_path / "votes.csv").write_bytes(content)
    found = refusal(tmp_path / "votes.csv", **{"layout": "labels", **named})
    assert message in found or re.search(message, found)
    assert len(found) < 600


@pytest.mark.parametrize(
    ("content", "classes", "counts"),
    [
        (b"C,D\nD,D", ("C", "D"), [[1, 1], [0, 2]]),
        (b"\xef\xbb\xbfC,D\r\nD,D\r\n", ("C", "D"), [[1, 1], [0, 2]]),
        (b" C ,\tD\n", ("C", "D"), [[1, 1]]),
        (b'"C","D"\n', ("C", "D"), [[1, 1]]),
        (b'"a,b","c""d"\n"e\nf","a,b"\n', ("a,b", 'c"d', "e\nf"), [[1, 1, 0], [1, 0, 1]]),
        (b"#,C\n", ("#", "C"), [[1, 1]]),
        ("é,ß\n".encode(), ("é", "ß"), [[1, 1]]),
        (b"8,5,5\n", (5, 8), [[2, 1]]),
        (b"\xef\xbb\xbf+1,0.0,1e0\r1,1,1\r", 2, [[1, 2], [0, 3]]),
        (b"0,1,2,3\n", 4, [[1, 1, 1, 1]]),
        (b"0,1\n\n", 2, [[1, 1]]),  # a blank last line
        (b"0,1\r\n\r\n\n", 2, [[1, 1]]),
        (b"north,south\n0,1\n1,1\n", 2, [[1, 1], [0, 2]]),
        (b'\xef\xbb\xbf"the\nnorth",south\r\n0,1\r\n', 2, [[1, 1]]),
        (b"north,south\rC,D\r", ("C", "D"), [[1, 1]]),
        (b"x,no y\nno,yes\n", ("no", "yes"), [[1, 1]]),
        (b"0;1;1\n1;1;1\n", 2, [[1, 2], [0, 3]]),
        (b"a;b;c\r\n0;1;1\r\n", 2, [[1, 2]]),
        (b"C;D,C;D\n", ("C;D", "x"), [[2, 0]]),  # a class that is called so
        (b"True,False\nTRUE,true\n", 2, [[1, 1], [0, 2]]),
        (b"True,False\n", ("False", "True"), [[1, 1]]),
        (b"1.0,0\n0.0,1\n", ("0", "1"), [[1, 1], [1, 1]]),
        (b"1.0,1\n", ("1", "1.0"), [[1, 1]]),  # what is spelled so is meant
        ("e\u0301,\u00e9\n".encode(), ("\u00e9", "a"), [[2, 0]]),
    ],
)
def test_lines_that_are_queries(content: bytes, classes: object, counts: list, tmp_path: Path) -> None:
    (tmp_path / "votes.csv").write_bytes(content)
    votes = Votes.read(str(tmp_path / "votes.csv"), classes=classes, layout="labels")  # type: ignore[arg-type]
    assert votes.counts.tolist() == counts
    assert len(votes.classes) == classes if isinstance(classes, int) else votes.classes == classes


def npy(header: str, data: bytes = b"\0" * 24, version: bytes = b"\x01\x00") -> bytes:
    width = 2 if version == b"\x01\x00" else 4
    return b"\x93NUMPY" + version + len(header).to_bytes(width, "little") + header.encode("latin-1") + data


def described(dtype: str, shape: str) -> str:
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY\x01\x00",
        npy(described("<i8", "(1, 3)"), version=b"\x09\x00"),
        npy("(((((" * 1000),
        npy("{" * 60_000),
        npy(described("<i8", "(1, -3)")),
        npy(described("<i8", "(3,)")),
        npy(described("<i8", "(1, 1, 3)")),
        npy(described("<i8", f"({10**23}, 3)")),
        npy(described("<i8", "(" + "9" * 5000 + ", 3)")),
        npy(described("<i8", "(1, 3)"), b"\0" * 23),
        npy(described("|V8", "(1, 3)")),
        npy(described("|O", "(1, 3)")),
        npy(described("<U0", "(1, 3)"), b""),
        npy(described("<U1", "(2, 3)"), b"\0" * 20 + b"\0\0\x11\0"),
        npy(described(">U1", "(2, 3)"), b"\0" * 20 + b"\xff\0\0\0"),
        npy(described("|b1", "(8, 3)"), b"\x01" * 23 + b"\x02"),
        npy("{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': (1, 3), }"),
    ],
)
def test_hostile_npy_files(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "votes.npy").write_bytes(content)
    tracemalloc.start()
    found = refusal(tmp_path / "votes.npy", classes=2)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "is no table of votes: it" in found
    assert most < 2**22


def test_damaged_npy_files_are_what_numpy_reads_or_refused(tmp_path: Path) -> None:
    path, rng, read = tmp_path / "votes.npy", np.random.default_rng(0), 0
    arrays = [np.array([[0, 1, 1], [1, 1, 0]], dtype=">i2"), np.array([["no", "yes"]]), np.ones((2, 3), order="F")]
    for trial in range(300):
        np.save(path, arrays[trial % 3])
        content = bytearray(path.read_bytes())
        for _ in range(int(rng.integers(1, 4))):
            place = rng.integers(len(content)) if trial % 2 else rng.integers(80)
            content[place] = rng.choice(list(b"0123456789 '(){}[],:<>|=-TrueFalsi\xff\0"))
        path.write_bytes(content)
        try:
            found = load_matrix(path)
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017 (one line)
        else:
            read += 1
            expected = np.load(path, allow_pickle=False)
            assert (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
    assert 5 < read < 290


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["?", "<i1", ">i8", "<u4", ">f4", "<f8", ">U3", "<U3"])
def test_npy_files_of_every_kind(dtype: str, order: Any, tmp_path: Path) -> None:
    labels = np.random.default_rng(0).integers(0, 2, (5, 3))
    array = np.where(labels, "no", "yes") if "U" in dtype else labels
    np.save(tmp_path / "votes.npy", np.asarray(array.astype(dtype), order=order))
    assert np.load(tmp_path / "votes.npy").flags.f_contiguous == (order == "F")
    classes = ("yes", "no") if "U" in dtype else 2
    votes = Votes.read(tmp_path / "votes.npy", classes=classes, layout="labels")
    assert votes.ones.tolist() == labels.sum(axis=1).tolist()


def test_what_is_no_regular_file_is_never_opened(tmp_path: Path) -> None:
    for suffix in ("npy", "csv"):
        os.mkfifo(tmp_path / f"pipe.{suffix}")
        (tmp_path / f"zeros.{suffix}").symlink_to("/dev/zero")
        (tmp_path / f"folder.{suffix}").mkdir()
        assert "a folder with .parquet files" in refusal(tmp_path / f"folder.{suffix}")
        for name in ("pipe", "zeros"):
            assert "it is no regular file" in refusal(tmp_path / f"{name}.{suffix}")
        with pytest.raises(FileNotFoundError):
            Votes.read(tmp_path / f"nowhere.{suffix}")
    with (tmp_path / "votes.csv").open("wb") as file:
        file.truncate(2**30 + 1)  # a hole
    assert "has 1,073,741,825 bytes and at most 1,073,741,824 are read" in refusal(tmp_path / "votes.csv")


def test_memory_is_refused_before_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "votes.csv").write_text("0,2000000000\n0,0\n", encoding="utf-8")
    tracemalloc.start()
    calls: tuple[tuple[Callable[[], Votes], str], ...] = (
        (lambda: Votes.read(tmp_path / "votes.csv", classes=2_000_000_001), "classes must be at most 1,000,000"),
        (lambda: Votes.read(tmp_path / "votes.csv", voters=2, classes=3), "line 1, field 2"),
        (lambda: Votes.from_labels([[0, 2_000_000_000]], 2_000_000_001), "classes must be at most 1,000,000"),
        (lambda: Votes.from_labels(np.broadcast_to(np.int8(0), (2**22, 1)), 256), "at most 536,870,912 counts"),
    )
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
    assert tracemalloc.get_traced_memory()[1] < 2**21
    tracemalloc.stop()


def test_a_mapped_file_is_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "votes.npy", np.zeros((2**21, 11), dtype=np.int8))
    tracemalloc.start()
    Votes.read(tmp_path / "votes.npy", voters=11, classes=2, layout="labels")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2.7 * 2**21 * 2 * 8  # the counts, their checked copy and their sums; the labels would be eleven


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (("a", "\udce9"), "Unicode text"),
        (("a", "a\0"), "Unicode text"),
        (("a", "b" * 201), "Unicode text of at most 200"),
        ((1, "1"), "classes must be different labels"),
        ((0, 2**70), "text or numbers"),
        ((0, Fraction(1, 2)), "text or numbers"),
        (((0, 1), (1, 0)), "text or numbers"),
        (1.5, "classes must be different labels"),
    ],
)
def test_names_that_no_file_could_keep(classes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Votes.from_labels([[0, 1]], classes)


TEXTS = st.text(st.sampled_from("ab,\"\r\n #0'é\ufeff\u2028\x1f"), max_size=4)
LABELS = st.one_of(
    st.lists(TEXTS, min_size=1, max_size=5),
    st.lists(st.integers(-(2**62), 2**62), max_size=5),
    st.lists(st.booleans(), min_size=1, max_size=5),
    st.lists(st.sampled_from(["0", "1", "-1", "01", "-0", "+1", "1.0"]), min_size=1, max_size=3),
)


@given(LABELS, st.sampled_from(["labels.csv", "labels.npy"]))
@example(["\r\n", "a\r\nb"], "labels.csv")
def test_labels_come_back(values: list, name: str) -> None:
    labels = np.array(values) if values else np.empty(0, dtype=np.int64)
    with tempfile.TemporaryDirectory() as folder:
        save_labels(Path(folder) / name, labels)
        loaded = read_labels(Path(folder) / name).labels
    assert list(map(str, loaded.tolist())) == list(map(str, labels.tolist()))
    assert labels_digest(loaded) == labels_digest(labels)


@given(st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=3))
@example(["a\nb", "c"], ["a", "b\nc"])
def test_other_labels_have_another_digest(one: list[str], other: list[str]) -> None:
    digests = [labels_digest(np.array(texts, dtype=np.str_)) for texts in (one, other)]
    assert (digests[0] == digests[1]) == (one == other)


def test_answers_of_a_stream_are_labels_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text('3,"a,b"\n2,yes\n2,yes\n4,yes\n')
    assert read_labels(path).labels.tolist() == ["yes", "a,b", "yes"]
    path.write_text("1,0\n2,1\n")
    assert labels_digest(read_labels(path).labels) == labels_digest(np.array([0, 1]))


def test_lines_that_are_no_labels_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    numbered = (b"1,0\n1\n", b"1,0\n3,0\n", b"1,0\n1,1\n", b"1," + b"x" * 201 + b"\n")
    for wrong in (*numbered, b"1\n\n0\n", b'"1"\n', b"x" * 201 + b"\n"):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match="is no file of labels"):
            read_labels(path)
    np.save(tmp_path / "labels.npy", np.zeros((2, 2)))
    with pytest.raises(ValueError, match="is no file of labels: it is no row"):
        read_labels(tmp_path / "labels.npy")


@pytest.mark.parametrize("last", ["0", "0.00"])  # read by comparing bytes, and by the reader of .csv
def test_reading_a_long_csv_file_says_how_far_it_is(
    last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LOGGED_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(votes_file, "_BYTES_AT_ONCE", 6_000)
    path = tmp_path / "votes.csv"
    path.write_text("0,1,1\n" * 2_499 + f"0,1,{last}\n", encoding="utf-8")
    with progress.status_line(quiet=False) as line:
        votes = Votes.read(path, classes=2, layout="labels", line=line)
    shown = [text.partition(", ")[0] for text in capsys.readouterr().err.splitlines()]
    assert votes.queries == 2_500
    assert shown == [f"reading votes.csv: {lines} lines" for lines in ("1,000", "2,000", *["2,500"][: last == "0"])]


def test_parquet_labels_beyond_their_dictionary_are_damage() -> None:
    arrow = pytest.importorskip("pyarrow")
    whole = arrow.DictionaryArray.from_arrays(arrow.array([0, 1, 1], arrow.int8()), arrow.array(["no", "yes"]))
    broken = arrow.DictionaryArray.from_arrays(
        arrow.array([0, 1, 21], arrow.int8()), arrow.array(["no", "yes"]), safe=False
    )
    assert parquet_file._read_values(whole, ["no", "yes"].index, Path("a"), "v", 0).tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match="'a', column 'v' is damaged: it names what its dictionary does not hold"):
        parquet_file._read_values(broken, ["no", "yes"].index, Path("a"), "v", 0)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.array([[2048, 2048]], np.float16), 3000),  # 2049 is 2048 there
        (np.array([[2048, 5]], np.float16), (2049, 5)),
        (np.array([[5, 33690000]], np.float32), (33690000, 33690001, 5)),
        (np.array([[5, 33690000]], np.float32), (33690001, 5)),
        (np.array([[0.1, 0.5]], np.float16), (0.1, 0.1000001, 0.5)),
    ],
)
def test_a_type_that_cannot_tell_classes_apart_is_refused(labels: np.ndarray, classes: Any) -> None:
    with pytest.raises(ValueError, match="must be a type that distinguishes the classes, got float"):
        Votes.from_labels(labels, classes)


def test_numbers_that_a_float_takes_for_others_are_no_classes() -> None:
    for wrong in (2**53, -(2**53), float(2**53), 2.0**60, np.int64(2**53), INF):
        with pytest.raises(ValueError, match=r"text or numbers below 2\^53|classes must be text"):
            Votes.from_labels([[0, 1]], (0, wrong))
    largest = 2**53 - 1
    for dtype in (np.int64, np.float64, object):
        votes = Votes.from_labels(np.array([[largest, 0, 0]], dtype), (0.0, largest))
        assert votes.counts.tolist() == [[2, 1]]
        with pytest.raises(ValueError, match=r"got 9007199254740993|got 9007199254740992"):
            Votes.from_labels(np.array([[largest + 2, 0, 0]], dtype), (0.0, largest))
    assert Votes.from_labels(np.array([[2047, 0]], np.float16), 2048).counts[0, 2047] == 1
    assert Votes.from_labels(np.array([[0.1, 0.5]], np.float32), (0.1, 0.5)).counts.tolist() == [[1, 1]]


def test_objects_that_are_equal_to_several_classes_are_named() -> None:
    class Everything:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, _: object) -> bool:
            return True

    with pytest.raises(ValueError, match="from voter 1 to query 0"):
        Votes.from_labels(np.array([[0, Everything()]], dtype=object))


def test_two_spellings_of_unicode_are_one_class(tmp_path: Path) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    for name in (composed, decomposed):
        for votes in ([[composed, decomposed, "tea"]], np.array([[composed, decomposed, "tea"]], dtype=object)):
            assert Votes.from_labels(votes, (name, "tea")).counts.tolist() == [[2, 1]]
        long = (name, *map(str, range(300)))  # too many to be compared one by one
        assert Votes.from_labels([[composed, decomposed, "0"]], long).sparse.toarray()[0, :2].tolist() == [2, 1]
    with pytest.raises(ValueError, match="classes must be different labels"):
        Votes.from_labels([[composed]], (composed, decomposed))
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": [composed], "b": [decomposed]}), tmp_path / "v.parquet")
    assert Votes.read(tmp_path / "v.parquet", classes=("tea", composed)).counts.tolist() == [[0, 2]]


def test_arrays_of_truth_values_are_classes_that_are_called_so(tmp_path: Path) -> None:
    np.save(tmp_path / "votes.npy", [[True, False, True]])
    for classes, counts in ((("False", "True"), [[1, 2]]), (("True", "False"), [[2, 1]]), (("0", "1"), [[1, 2]])):
        assert Votes.read(tmp_path / "votes.npy", classes=classes, voters=3).counts.tolist() == counts
    with pytest.raises(ValueError, match="classes must be numbers, got 'no,yes'"):
        Votes.read(tmp_path / "votes.npy", classes=("no", "yes"), voters=3)


def test_parquet_columns_of_every_kind_hold_votes(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, truth = tmp_path / "v.parquet", np.array([[0, 1, 1], [1, 1, 1], [0, 0, 1]])
    kinds: list[Any] = [
        arrow.int8(),
        arrow.uint64(),
        arrow.float32(),
        arrow.float64(),
        arrow.decimal128(5, 2),
        arrow.bool_(),
        arrow.string(),
        arrow.large_string(),
        arrow.dictionary(arrow.int8(), arrow.string()),
        arrow.dictionary(arrow.int8(), arrow.int64()),
        *([arrow.string_view()] if hasattr(arrow, "string_view") else []),
    ]
    for kind in kinds:
        text = "string" in str(kind)
        columns = [arrow.array(map(str, column) if text else column.astype(np.int8)) for column in truth.T]
        typed = [c.dictionary_encode() if "dictionary" in str(kind) else c.cast(kind) for c in columns]
        parquet.write_table(arrow.table(dict(zip("abc", typed, strict=True))), path)
        for classes in (2, ("0", "1")):
            votes = Votes.read(path, voters=3, classes=classes, layout="labels")
            assert (votes.counts.tolist(), votes.voter_names) == ([[1, 2], [0, 3], [2, 1]], ("a", "b", "c")), kind
    for kind in (arrow.list_(arrow.int8()), arrow.list_(arrow.float64(), 3), arrow.large_list(arrow.string())):
        rows = [[*map(str, row)] if "string" in str(kind) else row for row in truth.tolist()]
        parquet.write_table(arrow.table({"votes": arrow.array(rows, kind)}), path)
        assert Votes.read(path, voters=3).counts.tolist() == [[1, 2], [0, 3], [2, 1]], kind
    for kind in (arrow.int32(), arrow.float64(), arrow.decimal128(5, 0)):
        columns = [arrow.array(column, arrow.int8()) for column in ([3, 2], [0, 1])]
        parquet.write_table(arrow.table({name: c.cast(kind) for name, c in zip("ab", columns, strict=True)}), path)
        assert Votes.read(path, voters=3).ones.tolist() == [0, 1], kind


def test_damaged_and_odd_compressed_tables_are_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"0,1,1\n" * 1000)
    for content, message in (
        (whole[:-20], "it is no gzip file, or it is damaged"),
        (b"0,1,1\n", "it is no gzip file, or it is damaged"),
        (whole[:40] + b"\0\0\0" + whole[43:], "it is no gzip file, or it is damaged|line "),
        (b"", "at least one line|it is no gzip file"),
    ):
        (tmp_path / "votes.csv.gz").write_bytes(content)
        assert re.search(message, refusal(tmp_path / "votes.csv.gz", layout="labels"))
    np.savez(tmp_path / "votes.npz", a=np.zeros((1, 3)), b=np.zeros((1, 3)))
    assert "it holds 2 arrays" in refusal(tmp_path / "votes.npz")
    np.savez(tmp_path / "votes.npz", a=np.array([[None, 1]], dtype=object))
    assert "Object arrays cannot be loaded" in refusal(tmp_path / "votes.npz")
    content = (tmp_path / "votes.npz").read_bytes()
    (tmp_path / "votes.npy").write_bytes(content)
    assert "does not begin as an .npy file" in refusal(tmp_path / "votes.npy")
    (tmp_path / "votes.npz").write_bytes(content[: len(content) // 2])
    refusal(tmp_path / "votes.npz")


def test_a_parquet_file_whose_pages_lack_rows_is_refused(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "labels.parquet"
    parquet.write_table(arrow.table({"label": np.arange(30) % 2}), path, use_dictionary=False, compression="none")
    content = bytearray(path.read_bytes())
    content[5] = 0x39  # another kind of page, which pyarrow skips in silence
    path.write_bytes(content)
    assert parquet.read_table(path).num_rows == 0
    with pytest.raises(ValueError, match="lacks 30 of its rows: it is damaged"):
        read_parquet_labels([path])
    with pytest.raises(ValueError, match="lacks 30 of its rows: it is damaged"):
        list(record_batches(path, ["label"]))


def is_name(field: str, names: tuple[str, ...]) -> bool:
    with suppress(ValueError):
        float(field.replace(",", "."))
        return False
    return any(map(str.isalpha, field)) and field not in names


def oracle(text: str, names: tuple[str, ...]) -> list | None:
    """The places in a .csv file, read line by line; None for what must be refused."""
    matrix: list[list[float]] = []
    lines = re.split("\r\n|\r|\n", re.sub(r"(\r\n|\r|\n)+\Z", "", text))
    first = re.sub('"[^"]*"', "", text.split("\n", maxsplit=1)[0])
    for number, line in enumerate(lines):
        try:
            rows = list(csv.reader([line], strict=True, delimiter=";" if ";" in first else ","))
            fields = [field.strip(" ") for field in rows[0]]
            if number == 0 and len({*fields}) == len(fields) and all(is_name(field, names) for field in fields):
                matrix, width = [[]], len(fields)
                continue
            row = [float(names.index(re.sub(r"^1e0$", "1", field))) for field in fields]
        except (ValueError, IndexError, csv.Error):
            return None
        if not row or (number and len(fields) != width):
            return None
        width = len(fields)
        matrix.append(row)
    return [row for row in matrix if row] or None


FIELDS = st.sampled_from(
    ["0", "1", "2", " 1", "C", "D", '"C"', '"1"', "C#", "#", "", "nan", "1e0", "-1", '"', "x", '""']
)


SEPARATORS = st.sampled_from([",", ",", ",", ",", "\n", "\n", "\r\n", "\n\n", "\r", ";", " "])


@given(
    st.lists(st.tuples(FIELDS, SEPARATORS), max_size=12), st.sampled_from([("0", "1"), ("C", "D"), ("1", "C#", "0")])
)
@example([("C", ","), ("C", ","), ("C#", "\n"), ("D", ","), ("D", ","), ("D", "\n")], ("C", "D"))
def test_a_csv_file_is_what_its_lines_say(parts: list[tuple[str, str]], names: tuple[str, ...]) -> None:
    text = "".join(field + separator for field, separator in parts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "votes.csv"
        path.write_bytes(text.encode())
        expected = oracle(text, names)
        try:
            table = TextTable(path)
            lookup = ClassLookup(names)
            table.find_header(lookup.words)
            found = np.concatenate(list(table.blocks(lookup))).tolist()
        except ValueError as error:
            found = None if "line" in str(error) or "concatenate" in str(error) else str(error)
        assert found == expected
