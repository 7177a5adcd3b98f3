"""The quick way to read .csv files finds what the reader of .csv finds, and leaves to it whatever is unusual."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from darrm.votes import Votes, labels_file, reading, votes_file

NAMES = st.sampled_from([None, ("0", "1"), ("1", "0", "7"), ("a", "Z"), ("C1", "D"), ("é", "1"), ("no", "a" * 9, "D")])
NUMBERS = ["0", "7", "10", "250", "999", "1000", "007", "+1", "2.0"]
MUTATIONS = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from(["replace", "insert", "delete"]), st.integers(0, 255)), max_size=2
)
LIKELY = b'0123456789,\n\r" \0aZ\xff\xef;.-+'


def outcome(path: Path, names: tuple[str, ...] | None) -> tuple[object, ...]:
    """What reading a file gives: its numbers, its counts, or what is said instead."""
    found: list[object] = []
    for read in (
        lambda: reading.load_matrix(path),
        lambda: Votes.read(path, classes=names, layout="labels").counts,
    ):
        try:
            found.append(read().tolist())
        except ValueError as error:
            found.append(str(error))
    return tuple(found)


@st.composite
def files(draw: Any) -> tuple[bytes, tuple[str, ...] | None, bool]:
    """A file, the names of its classes, and whether the quick way must read it."""
    names = draw(NAMES)
    single = "0123456789" if names is None else [name for name in names if len(name) == 1 and name.isascii()]
    words = draw(st.sampled_from([single, NUMBERS if names is None else names, single]))
    width, lines, end = draw(st.integers(1, 6)), draw(st.integers(1, 8)), draw(st.sampled_from([b"\n", b"\r\n"]))
    row = st.lists(st.sampled_from(words), min_size=width, max_size=width)
    content = end.join(",".join(draw(row)).encode() for _ in range(lines)) + draw(st.sampled_from([end, b""]))
    ended = lines > 1 or content.endswith(end)
    mutations = draw(MUTATIONS)
    for somewhere, kind, byte in mutations:
        if content:
            place = somewhere % len(content)
            other = bytes([LIKELY[byte % len(LIKELY)] if byte < 250 else byte])
            content = content[:place] + (b"" if kind == "delete" else other) + content[place + (kind != "insert") :]
    return content, names, ended and not mutations and words == single


@given(files(), st.sampled_from([1, 8, 2**22]))
@example((b"0,1,2,3,4\n0,0,0,0,0\n", None, False), 8)  # a header, as it seems
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
@example((b"a\0,Z\nZ,a\n", ("a", "Z"), False), 2**22)  # a zero byte is no end of a word
@example((b"no,D\nD,no,\n", ("no", "a" * 9, "D"), False), 2**22)
@example((b"no,D,D\nno\nD,D\n", ("no", "a" * 9, "D"), False), 2**22)
@example((b"10,250\n7,\n", None, False), 2**22)
def test_both_ways_read_and_say_the_same(file: tuple[bytes, tuple[str, ...] | None, bool], at_once: int) -> None:
    content, names, quick = file
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        path = Path(folder) / "votes.csv"
        path.write_bytes(content)
        monkeypatch.setattr(votes_file, "_BYTES_AT_ONCE", at_once)
        found = outcome(path, names)
        if quick:  # not every file is left to the other reader
            values = {name: place for place, name in enumerate(names or "0123456789") if len(name.encode()) == 1}
            with path.open("rb") as opened:
                blocks = list(
                    votes_file.plain_blocks(opened, values, content.split(b"\n")[0].count(b",") + 1, ",", 100)
                )
            assert sum(size for _, size in blocks) in {len(content), len(content) + 1}
        monkeypatch.setattr(votes_file, "plain_blocks", lambda *_: iter(()))
        assert found == outcome(path, names)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, 9, 3], dtype=np.int8),
        np.arange(20) % 10,
        np.array([0, 10, 3]),
        np.array([3, -1, 0]),
        np.array([250, 251], dtype=np.uint8),
        np.array([True, False]),
        np.array([0.0, -0.0, 1.0]),
        np.array(["yes", "a,b", "yes", 'c"d', " e"]),
        np.array([7, 8, 9, 10, 11, 9, 8])[::2],
    ],
)
def test_labels_are_written_as_each_of_them_alone(
    labels: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels_file, "_LABELS_AT_ONCE", 7)
    quoted = {"a,b": '"a,b"', 'c"d': '"c""d"', " e": '" e"'}
    text = "".join(quoted.get(str(label), str(label)) + "\n" for label in labels.tolist())
    labels_file.save_labels(tmp_path / "labels.csv", labels)
    assert (tmp_path / "labels.csv").read_text() == text
    np.save(tmp_path / "by-numpy.npy", labels)
    labels_file.save_labels(tmp_path / "labels.npy", labels)
    assert (tmp_path / "labels.npy").read_bytes() == (tmp_path / "by-numpy.npy").read_bytes()
