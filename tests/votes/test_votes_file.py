"""Tables of votes in .csv, .npy and .npz: what they hold, and what is refused in one line."""

import csv
import gzip
import os
import re
import tempfile
import tracemalloc
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from darrm.util import progress
from darrm.votes import Votes, votes_file
from darrm.votes.reading import load_matrix
from darrm.votes.vote_arrays import ClassLookup
from darrm.votes.votes_file import TextTable
from tests.votes.support import NO_YES, check_refusal, count_answers, read_csv, read_npy


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
@pytest.mark.parametrize(
    ("matrix", "options", "source_format", "counts"),
    [
        # K is known: the number of columns decides
        ([[1, 1, 1]], {"voters": 3, "classes": 2}, "labels", [[0, 3]]),
        ([[3, 0]], {"voters": 3, "classes": 2}, "counts", [[3, 0]]),
        ([["no", "yes", "yes"]], {"voters": 3, "classes": NO_YES}, "labels", [[1, 2]]),
        ([[5, 8, 8]], {"voters": 3, "classes": ("5", "8")}, "labels", [[1, 2]]),
        ([[1, 1, 0], [0, 1, 1]], {"voters": 3}, "labels", [[1, 2], [1, 2]]),
        ([["no", "yes"]], {"voters": 2, "classes": NO_YES}, "labels", [[1, 1]]),  # words are no counts
        # K is unknown
        ([[0, 1, 1], [1, 1, 1]], {}, "labels", [[1, 2], [0, 3]]),
        ([[1, 1], [1, 1]], {"layout": "counts"}, "counts", [[1, 1], [1, 1]]),
        ([[4, 1]], {"layout": "counts", "classes": NO_YES}, "counts", [[4, 1]]),
    ],
)
def test_a_table_holds_labels_or_counts(
    matrix: Any, options: dict[str, Any], source_format: str, counts: list[list[int]], suffix: str, tmp_path: Path
) -> None:
    text = "".join(",".join(map(str, row)) + "\n" for row in matrix)
    votes = read_npy(tmp_path, matrix, **options) if suffix == ".npy" else read_csv(tmp_path, text, **options)
    assert votes.source_format == source_format
    assert votes.counts.tolist() == counts


@pytest.mark.parametrize(
    ("matrix", "options", "message"),
    [
        ([[1, 1], [1, 1]], {}, "could be labels or counts"),
        ([[1, 1], [1, 1]], {"voters": 2, "classes": 2}, "could be labels or counts"),
        ([[1, 1, 1], [2, 0, 1]], {"voters": 3, "classes": 3}, "could be labels or counts"),
        ([[1, 1, 1]], {"voters": 5, "classes": 2}, "of K = 5 voters"),
        ([[3, 1]], {"voters": 5, "classes": 2}, "must be K = 5, got 4"),
        ([[0, 1]], {"layout": "labels", "classes": ("a", "b")}, "classes must be numbers"),
        ([[0, 1]], {"layout": "xml"}, "layout must be one of"),
        ([[True, False, True]], {"voters": 3, "classes": NO_YES}, "classes must be numbers, got 'no,yes'"),
        ([0, 1], {}, r"a matrix with at least one entry, .*: one row is one query, .*; reshape a single row"),
        (np.zeros((0, 3)), {}, r"must hold a matrix with at least one entry, got shape \(0, 3\)"),
        (np.zeros((0, 10**9, 10**9)), {}, "one row is one query"),
        ([[1e308, 1e308], [0.0, 0.0]], {"voters": 5}, "whole numbers of at most"),
        (np.array([[2**63, 5]], dtype=np.uint64), {"voters": 5}, "whole numbers of at most"),
        (np.array([[2**63, 2**63, 1]], dtype=np.uint64), {"voters": 3}, "got 9223372036854775808 from voter 0"),
    ],
)
def test_an_array_that_holds_no_votes_is_refused(
    matrix: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    check_refusal(lambda: read_npy(tmp_path, matrix, **options), message)


C_D = {"classes": ("C", "D")}


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"0,1,1\n0,1\n", {}, "line 2 has 2 fields, the lines before it 3"),
        ("0,1\n1,1\n".encode("utf-16"), {}, "line 1 holds zero bytes, as UTF-16 does: save it as UTF-8"),
        (b"0,1\n0,\xff\n", {}, "line 2 is not in UTF-8"),
        *((text, {}, "at least one line") for text in (b"", b"\n\n")),
        (b"0,1\n\n1,1\n", {}, "line 2 is blank: every line is a query"),
        (b"0,\n\n1,1\n", {"missing": "coin"}, "line 2 is blank"),
        (b"\n0,1\n", {}, "line 1 is blank"),
        (b"a,b\n", {}, "at least one line"),
        (b"0,1,nan\n", {}, r"line 1, field 3: the vote is missing \('nan'\): every voter must answer every query"),
        (b"0,inf\n", {}, "line 1, field 2: 'inf' is no number"),
        (b"0,1_0\n", {}, "'1_0' is no number"),
        ("0,１\n", {}, "'１' is no number"),
        (b"0," + b"9" * 120_000 + b"x\n", {}, "9' is no number"),
        (b'x,"1,000"\n0,1\n', {}, "line 1, field 1: 'x' is no number"),
        ("x,\uff11\n0,1\n", {}, "line 1, field 1: 'x' is no number"),
        (b"a,b\n0,1\n0,2\n", {}, "line 3, field 2: '2' is none of the classes '0', '1'"),
        (b"Yes,No\nyes,no\n", {"classes": ("yes", "no")}, "line 1, field 1: 'Yes' is none of the classes"),
        (b'C,"C\n', C_D, "line 1: unexpected end of data"),
        (b'C,"C"D\n', C_D, "line 1: ',' expected after '\"'"),
        (b"0," * 2**24, {}, "line 1 has 16,777,216 characters or more"),
        (b"0,1\n0," + b"1" * 200_000, {}, "line 2: field larger than field limit"),
        (b"3,1\n3,2\n", {"layout": "counts"}, r"the sum of row 1 .* \(row 0 is line 1 of '"),
        (b"a,b\n3,1\n3,2\n", {"layout": "counts"}, r"the sum of row 1 .* \(row 0 is line 2 of '"),
        (b"1,1,1\n2,0,1\n", {"layout": "auto", "voters": 3, "classes": ("0", "1", "2")}, "could be labels or counts"),
        (b"a, a\n", {"classes": ("a", " a")}, "without spaces around it in a .csv file"),
        (b"0,1\n", {"classes": 2_000_000_001}, "classes must be at most 1,000,000"),
        (b"0,2000000000\n", {"classes": 3}, "line 1, field 2"),
        (b"0,,1\n", {"missing": "coin", "voters": 5}, "of K = 5 voters, got 3 columns"),
        # a missing vote, if such votes are allowed
        (b"0,?\n1,1\n", {"missing": "coin"}, r"line 1, field 2: '\?' is no vote, and a missing one is '' or 'NA'"),
        (b"yes,null\n", {"missing": "coin", "classes": NO_YES}, "'null' is no vote, and a missing one is '' or 'NA'"),
        (b"NA,null\n", {"missing": "coin", "classes": ("NA", "yes")}, "'null' is no vote, and a missing one is ''$"),
        (b",north,south\n0,1,0\n", {"missing": "coin"}, "line 1, field 2: 'north' is no number"),
        (b"3,1\n", {"missing": "coin", "layout": "counts"}, "must be 'refuse' for counts"),
        (b"3,1\n", {"missing": "coin", "voters": 4}, "line 1, field 1: '3' is none of the classes '0', '1'"),
    ],
)
def test_a_text_that_holds_no_votes_is_refused(
    content: bytes | str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_csv(tmp_path, content, **{"layout": "labels", **options})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("content", "classes", "counts"),
    [
        (b"\xef\xbb\xbfC,D\r\nD,D\r\n", ("C", "D"), [[1, 1], [0, 2]]),
        (b" C ,\tD\n", ("C", "D"), [[1, 1]]),
        (b'"a,b","c""d"\n"e\nf","a,b"\n', ("a,b", 'c"d', "e\nf"), [[1, 1, 0], [1, 0, 1]]),
        ("é,ß\n", ("é", "ß"), [[1, 1]]),
        (b"8,5,5\n", (5, 8), [[2, 1]]),
        (b"\xef\xbb\xbf+1,0.0,1e0\r1,1,1\r", 2, [[1, 2], [0, 3]]),
        (b"0,1,2,3\n", 4, [[1, 1, 1, 1]]),
        (b'\xef\xbb\xbf"the\nnorth",south\r\n0,1\r\n', 2, [[1, 1]]),
        (b"x,no y\nno,yes\n", NO_YES, [[1, 1]]),
        (b"a;b;c\r\n0;1,0;1\r\n", 2, [[1, 2]]),  # a decimal comma
        (b"C;D,C;D\n", ("C;D", "x"), [[2, 0]]),  # the name of a class
        (b"True,False\nTRUE,true\n", 2, [[1, 1], [0, 2]]),
        (b"True,False\n", ("False", "True"), [[1, 1]]),
        (b"1.0,0\n0.0,1\n", ("0", "1"), [[1, 1], [1, 1]]),
        (b"1.0,1\n", ("1", "1.0"), [[1, 1]]),  # spelling comes before value
        ("e\u0301,\u00e9\n", ("\u00e9", "a"), [[2, 0]]),
    ],
)
def test_a_text_holds_one_query_per_line(
    content: bytes | str, classes: Any, counts: list[list[int]], tmp_path: Path
) -> None:
    votes = read_csv(tmp_path, content, classes=classes, layout="labels")
    assert votes.counts.tolist() == counts
    assert len(votes.classes) == classes if isinstance(classes, int) else votes.classes == classes


def is_name(field: str, names: tuple[str, ...]) -> bool:
    with suppress(ValueError):
        float(field.replace(",", "."))
        return False
    return any(map(str.isalpha, field)) and field not in names


def parse_lines(text: str, names: tuple[str, ...]) -> list[list[float]] | None:
    """Read a .csv file line by line, as an oracle; return the indices of the classes, or None for a refusal."""
    matrix: list[list[float]] = []
    lines = re.split("\r\n|\r|\n", re.sub(r"(\r\n|\r|\n)+\Z", "", text))
    line_1 = re.sub('"[^"]*"', "", text.split("\n", maxsplit=1)[0])
    for number, line in enumerate(lines):
        try:
            rows = list(csv.reader([line], strict=True, delimiter=";" if ";" in line_1 else ","))
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


@settings(max_examples=max(100, settings().max_examples))
@given(
    st.lists(st.tuples(FIELDS, SEPARATORS), max_size=12), st.sampled_from([("0", "1"), ("C", "D"), ("1", "C#", "0")])
)
@example([("C", ","), ("C", ","), ("C#", "\n"), ("D", ","), ("D", ","), ("D", "\n")], ("C", "D"))
def test_a_text_is_read_like_a_parser_of_lines_reads_it(parts: list[tuple[str, str]], names: tuple[str, ...]) -> None:
    text = "".join(map("".join, parts))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "votes.csv"
        path.write_bytes(text.encode())
        result: object
        try:
            table, lookup = TextTable(path), ClassLookup(names)
            table.find_header(lookup.words)
            result = list(chain.from_iterable(block.tolist() for block in table.blocks(lookup))) or None
        except ValueError as error:
            result = None if "line" in str(error) else str(error)
        assert result == parse_lines(text, names)


# the quick reader of plain text against the reader of .csv

NAMES = st.sampled_from([None, ("0", "1"), ("1", "0", "7"), ("a", "Z"), ("C1", "D"), ("é", "1"), ("no", "a" * 9, "D")])
NUMBERS = ["0", "7", "10", "250", "999", "1000", "007", "+1", "2.0"]
MUTATIONS = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from(["replace", "insert", "delete"]), st.integers(0, 255)), max_size=2
)
LIKELY_BYTES = b'0123456789,\n\r" \0aZ\xff\xef;.-+'


@st.composite
def files(draw: Any) -> tuple[bytes, tuple[str, ...] | None, bool]:
    """Draw a file, the names of its classes, and whether the quick reader must read it."""
    names = draw(NAMES)
    single = "0123456789" if names is None else [name for name in names if len(name) == 1 and name.isascii()]
    words = draw(st.sampled_from([single, NUMBERS if names is None else names, single]))
    width, lines, end = draw(st.integers(1, 6)), draw(st.integers(1, 8)), draw(st.sampled_from([b"\n", b"\r\n"]))
    row = st.lists(st.sampled_from(words), min_size=width, max_size=width)
    content = end.join(",".join(draw(row)).encode() for _ in range(lines)) + draw(st.sampled_from([end, b""]))
    has_line_break = lines > 1 or content.endswith(end)
    mutations = draw(MUTATIONS)
    for offset, kind, byte in mutations:
        if content:
            start = offset % len(content)
            other = bytes([LIKELY_BYTES[byte % len(LIKELY_BYTES)] if byte < 250 else byte])
            content = content[:start] + (b"" if kind == "delete" else other) + content[start + (kind != "insert") :]
    return content, names, has_line_break and not mutations and words == single


def read_or_refuse(path: Path, names: tuple[str, ...] | None) -> list[object]:
    """Return the numbers and the counts in a file, or the messages of the refusals."""
    results: list[object] = []
    for read in (lambda: load_matrix(path), lambda: Votes.read(path, classes=names, layout="labels").counts):
        try:
            results.append(read().tolist())
        except ValueError as error:
            results.append(str(error))
    return results


def measure_plain_bytes(path: Path, names: tuple[str, ...] | None) -> int:
    """Return how many bytes of a file the quick reader reads."""
    values = {name: place for place, name in enumerate(names or "0123456789") if len(name.encode()) == 1}
    width = path.read_bytes().split(b"\n")[0].count(b",") + 1
    with path.open("rb") as file:
        return sum(size for _, size in votes_file.plain_blocks(file, values, width, ",", 100))


@given(files(), st.sampled_from([1, 8, 2**22]))
@example((b"0,1,2,3,4\n0,0,0,0,0\n", None, False), 8)  # looks like a header
@example((b"1,0\n0,1\n\n", None, False), 8)
@example((b"1,0\n0,1\n\n1,1\n", None, False), 8)
@example((b"1\n\n0\n", None, False), 1)
@example((b"1,0\n0,1,\n", None, False), 8)
@example((b"1,0\n0,11,\n1,1\n", None, False), 1)
@example((b'1,0\n0,"\n"\n', None, False), 1)
@example((b"1,0\n0\r1\n", None, False), 1)
@example((b"\xef\xbb\xbf1,0\n0,1\n", None, False), 8)
@example((b"a,b\n0,1\n0,1\n0,x\n", None, False), 1)  # the first line names the columns
@example((b'"a",b\n0,1\n', None, False), 1)
@example((b'"a\n1",b\n0,1\n', None, False), 1)
@example((b"1;0\n0;1\n0;1;\n", None, False), 1)
@example((b"a\0,Z\nZ,a\n", ("a", "Z"), False), 2**22)  # a zero byte does not end a word
@example((b"no,D\nD,no,\n", ("no", "a" * 9, "D"), False), 2**22)
@example((b"no,D,D\nno\nD,D\n", ("no", "a" * 9, "D"), False), 2**22)
@example((b"10,250\n7,\n", None, False), 2**22)
def test_the_quick_reader_agrees_with_the_reader_of_csv(
    file: tuple[bytes, tuple[str, ...] | None, bool], bytes_at_once: int
) -> None:
    content, names, is_quick = file
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "votes.csv"
        path.write_bytes(content)
        patch.setattr(votes_file, "_BYTES_AT_ONCE", bytes_at_once)
        results = read_or_refuse(path, names)
        if is_quick:
            assert measure_plain_bytes(path, names) in {len(content), len(content) + 1}
        patch.setattr(votes_file, "plain_blocks", lambda *_: iter(()))
        assert results == read_or_refuse(path, names)


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"no,yes\nyes,a\nno,no\n", [[0, 1], [1, 2], [0, 0]]),
        (b"eight888,a\r\na,yes", [[3, 2], [2, 1]]),
        (b"a,a\n", [[2, 2]]),
        (b"a,b\n", []),  # an unknown word, then no field, too many fields, a long word and a quoted one
        *((text, []) for text in (b",a\n", b"a,a,a\n", b"eight8888,a\n", b'"a",a\n')),
    ],
)
def test_the_quick_reader_reads_lines_of_short_words(content: bytes, rows: list[list[int]], tmp_path: Path) -> None:
    path, values = tmp_path / "votes.csv", {"no": 0, "yes": 1, "a": 2, "eight888": 3}
    path.write_bytes(content)
    with path.open("rb") as file:
        blocks = list(votes_file.plain_blocks(file, values, 2, ",", 100))
    assert [row for block, _ in blocks for row in block.tolist()] == rows


@pytest.mark.parametrize("last", ["0", "0.00"])  # for the quick reader, and for the reader of .csv
def test_reading_a_long_text_shows_its_progress(
    last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LOGGED_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(votes_file, "_BYTES_AT_ONCE", 6_000)
    with progress.status_line(quiet=False) as line:
        votes = read_csv(tmp_path, "0,1,1\n" * 2_499 + f"0,1,{last}\n", classes=2, layout="labels", line=line)
    lines = [text.partition(", ")[0] for text in capsys.readouterr().err.splitlines()]
    assert votes.queries == 2_500
    assert lines == [f"reading votes.csv: {n} lines" for n in ("1,000", "2,000", *["2,500"][: last == "0"])]


# arrays


def npy(header: str, data: bytes = b"\0" * 24, version: bytes = b"\x01\x00") -> bytes:
    width = 2 if version == b"\x01\x00" else 4
    return b"\x93NUMPY" + version + len(header).to_bytes(width, "little") + header.encode("latin-1") + data


def npy_header(dtype: str, shape: str) -> str:
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY\x01\x00",
        npy(npy_header("<i8", "(1, 3)"), version=b"\x09\x00"),
        *(npy(header) for header in ("{" * 60_000, "(((((" * 1000)),
        *(npy(npy_header("<i8", shape)) for shape in ("(3,)", "(1, 1, 3)")),
        npy(npy_header("<i8", "(1, -3)")),
        npy(npy_header("<i8", f"({10**23}, 3)")),
        npy(npy_header("<i8", "(" + "9" * 5000 + ", 3)")),
        npy(npy_header("<i8", "(1, 3)"), b"\0" * 23),
        npy(npy_header("|V8", "(1, 3)")),
        npy(npy_header("|O", "(1, 3)")),
        npy(npy_header("<U0", "(1, 3)"), b""),
        npy(npy_header("<U1", "(2, 3)"), b"\0" * 20 + b"\0\0\x11\0"),
        npy(npy_header(">U1", "(2, 3)"), b"\0" * 20 + b"\xff\0\0\0"),
        npy(npy_header("|b1", "(8, 3)"), b"\x01" * 23 + b"\x02"),
        npy("{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': (1, 3), }"),
    ],
)
def test_hostile_npy_files_are_refused_in_little_memory(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "votes.npy").write_bytes(content)
    tracemalloc.start()
    check_refusal(lambda: Votes.read(tmp_path / "votes.npy", classes=2), "is no table of votes: it")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**22


def test_damaged_npy_files_are_what_numpy_reads_or_refused(tmp_path: Path) -> None:
    path, rng, accepted = tmp_path / "votes.npy", np.random.default_rng(0), 0
    arrays = [np.array([[0, 1, 1], [1, 1, 0]], dtype=">i2"), np.array([["no", "yes"]]), np.ones((2, 3), order="F")]
    for trial in range(300):
        np.save(path, arrays[trial % 3])
        content = bytearray(path.read_bytes())
        for _ in range(int(rng.integers(1, 4))):
            offset = rng.integers(len(content)) if trial % 2 else rng.integers(80)
            content[offset] = rng.choice(list(b"0123456789 '(){}[],:<>|=-TrueFalsi\xff\0"))
        path.write_bytes(content)
        try:
            matrix = load_matrix(path)
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017 (one line)
        else:
            accepted += 1
            expected = np.load(path, allow_pickle=False)
            assert (matrix.dtype, matrix.shape) == (expected.dtype, expected.shape)
            assert matrix.tobytes() == expected.tobytes()
    assert 5 < accepted < 290


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["?", "<i1", ">i8", "<u4", ">f4", "<f8", ">U3", "<U3"])
def test_npy_files_of_every_type_and_order_are_read(dtype: str, order: Any, tmp_path: Path) -> None:
    labels = np.random.default_rng(0).integers(0, 2, (5, 3))
    array = np.where(labels, "no", "yes") if "U" in dtype else labels
    np.save(tmp_path / "votes.npy", np.asarray(array.astype(dtype), order=order))
    assert np.load(tmp_path / "votes.npy").flags.f_contiguous == (order == "F")
    classes = ("yes", "no") if "U" in dtype else 2
    votes = Votes.read(tmp_path / "votes.npy", classes=classes, layout="labels")
    assert votes.ones.tolist() == labels.sum(axis=1).tolist()


@pytest.mark.parametrize(
    ("classes", "counts"), [(("False", "True"), [[1, 2]]), (("True", "False"), [[2, 1]]), (("0", "1"), [[1, 2]])]
)
def test_arrays_of_booleans_hold_votes_for_the_classes_of_these_names(
    classes: tuple[str, str], counts: list[list[int]], tmp_path: Path
) -> None:
    assert read_npy(tmp_path, [[True, False, True]], classes=classes, voters=3).counts.tolist() == counts


def test_an_npy_file_is_mapped_and_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "votes.npy", np.zeros((2**21, 11), dtype=np.int8))
    tracemalloc.start()
    Votes.read(tmp_path / "votes.npy", voters=11, classes=2, layout="labels")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2.7 * 2**21 * 2 * 8  # the counts, their checked copy and their sums; the labels would be eleven


def test_what_is_no_regular_file_is_never_opened(tmp_path: Path) -> None:
    for suffix in ("npy", "csv"):
        os.mkfifo(tmp_path / f"pipe.{suffix}")
        (tmp_path / f"zeros.{suffix}").symlink_to("/dev/zero")
        (tmp_path / f"folder.{suffix}").mkdir()
        for name, message in (
            ("folder", "a folder with .parquet files"),
            ("pipe", "it is no regular file"),
            ("zeros", "it is no regular file"),
        ):
            check_refusal(lambda path=tmp_path / f"{name}.{suffix}": Votes.read(path), message)  # type: ignore[misc]
        with pytest.raises(FileNotFoundError):
            Votes.read(tmp_path / f"nowhere.{suffix}")


def test_a_text_beyond_a_gigabyte_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "votes.csv").open("wb") as file:
        file.truncate(2**30 + 1)  # a hole
    message = "has 1,073,741,825 bytes and at most 1,073,741,824 are read"
    check_refusal(lambda: Votes.read(tmp_path / "votes.csv"), message)


GZIP = gzip.compress(b"0,1,1\n" * 1000, mtime=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GZIP[:-20], "it is no gzip file, or it is damaged"),
        (b"0,1,1\n", "it is no gzip file, or it is damaged"),
        (GZIP[:40] + b"\0\0\0" + GZIP[43:], "it is no gzip file, or it is damaged|line "),
        (b"", "at least one line|it is no gzip file"),
    ],
    ids=["cut", "text", "changed", "empty"],
)
def test_damaged_gzip_files_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "votes.csv.gz"
    path.write_bytes(content)
    check_refusal(lambda: Votes.read(path, layout="labels"), message)


def test_archives_that_hold_no_single_array_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "votes.npz"
    np.savez(path, a=np.zeros((1, 3)), b=np.zeros((1, 3)))
    check_refusal(lambda: Votes.read(path), "it holds 2 arrays")
    np.savez(path, a=np.array([[None, 1]], dtype=object))
    check_refusal(lambda: Votes.read(path), "Object arrays cannot be loaded")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    check_refusal(lambda: Votes.read(path), "is no table of votes")
    (tmp_path / "votes.npy").write_bytes(content)
    check_refusal(lambda: Votes.read(tmp_path / "votes.npy"), "does not begin as an .npy file")
    check_refusal(lambda: votes_file.npy_bytes(np.array([{}])), "Object arrays cannot be saved")


def test_a_survey_has_a_line_for_each_voter(tmp_path: Path) -> None:
    path = tmp_path / "survey.csv"
    path.write_text("town,drink\nRome,tea\nParis,\nrome,gin\n", encoding="utf-8")
    votes = Votes.read_survey(path, 3, missing="blank", normalize="casefold")
    assert count_answers(votes) == [{"rome": 2, "paris": 1}, {"tea": 1, "gin": 1, None: 1}]
    whole = Votes.read_survey(path, 4, missing="blank")
    assert count_answers(whole)[0] == {"town": 1, "Rome": 1, "Paris": 1, "rome": 1}
    for voters, message in ((2, "must be 2 or 3, got 4"), (3, "line 3, field 2")):
        check_refusal(lambda K=voters: Votes.read_survey(path, K), message)  # type: ignore[misc]
    check_refusal(lambda: Votes.read_survey(tmp_path / "votes.npy", 3), "turn the votes round")
