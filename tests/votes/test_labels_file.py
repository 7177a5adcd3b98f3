"""Files of labels, and their digests."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from darrm.verify.files import read_labels
from darrm.votes import labels_file
from darrm.votes.labels_file import label_type, labels_digest, save_labels
from tests.votes.support import check_refusal

TEXTS = st.text(st.sampled_from("ab,\"\r\n #0'é\ufeff\u2028\x1f"), max_size=4)
LABELS = st.one_of(
    st.lists(TEXTS, min_size=1, max_size=5),
    st.lists(st.integers(-(2**62), 2**62), max_size=5),
    st.lists(st.booleans(), min_size=1, max_size=5),
    st.lists(st.sampled_from(["0", "1", "-1", "01", "-0", "+1", "1.0"]), min_size=1, max_size=3),
)


@given(LABELS, st.sampled_from(["labels.csv", "labels.npy"]))
@example(["\r\n", "a\r\nb"], "labels.csv")
def test_saved_labels_are_loaded_with_their_digest(values: list[Any], name: str) -> None:
    labels = np.array(values) if values else np.empty(0, dtype=np.int64)
    with tempfile.TemporaryDirectory() as folder:
        save_labels(Path(folder) / name, labels)
        loaded = read_labels(Path(folder) / name).labels
    assert list(map(str, loaded.tolist())) == list(map(str, labels.tolist()))
    assert labels_digest(loaded) == labels_digest(labels)


@given(st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=3))
@example(["a\nb", "c"], ["a", "b\nc"])
def test_different_labels_have_different_digests(first: list[str], second: list[str]) -> None:
    digests = [labels_digest(np.array(texts, dtype=np.str_)) for texts in (first, second)]
    assert (digests[0] == digests[1]) == (first == second)


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
def test_labels_are_written_one_per_line_and_as_numpy_writes_them(
    labels: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels_file, "_LABELS_AT_ONCE", 7)
    quoted = {"a,b": '"a,b"', 'c"d': '"c""d"', " e": '" e"'}
    save_labels(tmp_path / "labels.csv", labels)
    lines = [quoted.get(str(label), str(label)) + "\n" for label in labels.tolist()]
    assert (tmp_path / "labels.csv").read_text() == "".join(lines)
    np.save(tmp_path / "by-numpy.npy", labels)
    save_labels(tmp_path / "labels.npy", labels)
    assert (tmp_path / "labels.npy").read_bytes() == (tmp_path / "by-numpy.npy").read_bytes()


def test_answers_of_a_stream_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text('3,"a,b"\n2,yes\n2,yes\n4,yes\n')
    assert read_labels(path).labels.tolist() == ["yes", "a,b", "yes"]
    path.write_text("1,0\n2,1\n")
    assert labels_digest(read_labels(path).labels) == labels_digest(np.array([0, 1]))


@pytest.mark.parametrize(
    "content",
    [
        *(b"1,0\n1\n", b"1,0\n3,0\n", b"1,0\n1,1\n", b"1," + b"x" * 201 + b"\n"),
        *(b"1\n\n0\n", b'"1"\n', b"x" * 201 + b"\n"),
    ],
)
def test_lines_that_are_no_labels_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes(content)
    check_refusal(lambda: read_labels(path), "is no file of labels")


def test_a_matrix_of_labels_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", np.zeros((2, 2)))
    check_refusal(lambda: read_labels(tmp_path / "labels.npy"), "is no file of labels: it is no row")


@pytest.mark.parametrize(
    ("classes", "dtype"),
    [((0, 127), np.int8), ((0, 128), np.int16), ((-128, 0), np.int8), ((-129, 0), np.int16), ((0, "a"), None)],
)
def test_labels_have_the_smallest_type_that_holds_all_classes(classes: tuple[object, ...], dtype: Any) -> None:
    assert label_type(classes) == (None if dtype is None else np.dtype(dtype))


def test_a_missing_open_answer_is_an_empty_text(tmp_path: Path) -> None:
    labels = np.array(["ab", None], dtype=object)
    save_labels(tmp_path / "labels.csv", labels)
    assert (tmp_path / "labels.csv").read_text() == 'ab\n""\n'
    save_labels(tmp_path / "labels.npy", labels)
    assert np.load(tmp_path / "labels.npy").tolist() == ["ab", ""]
