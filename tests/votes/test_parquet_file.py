"""Parquet files of votes: the types of their columns, and damage that pyarrow does not report."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.verify.files import read_parquet_labels
from darrm.votes import Votes, parquet_file
from darrm.votes.parquet_file import record_batches
from tests.votes.support import check_refusal, write_parquet

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

LABELS = np.array([[0, 1, 1], [1, 1, 1], [0, 0, 1]])
COUNTS = [[1, 2], [0, 3], [2, 1]]
TYPES: list[Any] = [
    *(arrow.int8(), arrow.uint64(), arrow.float32(), arrow.float64(), arrow.decimal128(5, 2), arrow.bool_()),
    *(arrow.string(), arrow.large_string(), *([arrow.string_view()] if hasattr(arrow, "string_view") else [])),
    *(arrow.dictionary(arrow.int8(), arrow.string()), arrow.dictionary(arrow.int8(), arrow.int64())),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_column_of_labels_may_have_any_type(kind: Any, tmp_path: Path) -> None:
    path, is_text, is_dictionary = tmp_path / "v.parquet", "string" in str(kind), "dictionary" in str(kind)
    columns = [arrow.array(map(str, column) if is_text else column.astype(np.int8)) for column in LABELS.T]
    columns = [column.dictionary_encode() if is_dictionary else column.cast(kind) for column in columns]
    write_parquet(path, dict(zip("abc", columns, strict=True)))
    for classes in (2, ("0", "1")):
        votes = Votes.read(path, voters=3, classes=classes, layout="labels")
        assert (votes.counts.tolist(), votes.voter_names) == (COUNTS, ("a", "b", "c"))


@pytest.mark.parametrize(
    "kind", [arrow.list_(arrow.int8()), arrow.list_(arrow.float64(), 3), arrow.large_list(arrow.string())], ids=str
)
def test_a_column_of_lists_holds_the_labels_of_all_voters(kind: Any, tmp_path: Path) -> None:
    rows = [[*map(str, row)] if "string" in str(kind) else row for row in LABELS.tolist()]
    write_parquet(tmp_path / "v.parquet", {"votes": arrow.array(rows, kind)})
    assert Votes.read(tmp_path / "v.parquet", voters=3).counts.tolist() == COUNTS


@pytest.mark.parametrize("kind", [arrow.int32(), arrow.float64(), arrow.decimal128(5, 0)], ids=str)
def test_a_column_of_counts_has_any_type_of_numbers(kind: Any, tmp_path: Path) -> None:
    columns = {name: arrow.array(c, arrow.int8()).cast(kind) for name, c in (("a", [3, 2]), ("b", [0, 1]))}
    write_parquet(tmp_path / "v.parquet", columns)
    assert Votes.read(tmp_path / "v.parquet", voters=3).ones.tolist() == [0, 1]


@pytest.mark.parametrize(("column", "classes"), [([b"no"], ("no", "yes")), ([1], "open")])
def test_a_column_of_another_type_is_refused(column: list[Any], classes: Any, tmp_path: Path) -> None:
    write_parquet(tmp_path / "v.parquet", {"a": column})
    message = "column 'a' of .* must be numbers or text"
    check_refusal(lambda: Votes.read(tmp_path / "v.parquet", classes=classes), message)


def test_an_id_that_is_null_is_an_empty_text(tmp_path: Path) -> None:
    write_parquet(tmp_path / "v.parquet", {"query": [7, None], "a": [0, 1], "b": [1, 1]})
    votes = Votes.read(tmp_path / "v.parquet", id_column="query", voters=2, layout="labels")
    assert (votes.ones.tolist(), votes.ids) == ([1, 2], ("query", ("7", "")))


def test_both_unicode_spellings_are_one_class(tmp_path: Path) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    write_parquet(tmp_path / "v.parquet", {"a": [composed], "b": [decomposed]})
    assert Votes.read(tmp_path / "v.parquet", classes=("tea", composed)).counts.tolist() == [[0, 2]]


def test_a_dictionary_that_lacks_words_is_damaged() -> None:
    def read(*indices: int) -> list[int]:
        words, codes = arrow.array(["no", "yes"]), arrow.array(indices, arrow.int8())
        column = arrow.DictionaryArray.from_arrays(codes, words, safe=False)
        return list(parquet_file._read_values(column, ["no", "yes"].index, Path("a"), "v", 0))

    assert read(0, 1, 1) == [0, 1, 1]
    check_refusal(lambda: read(0, 1, 21), "'a', column 'v' is damaged: it names what its dictionary does not hold")


def test_a_file_whose_pages_lack_rows_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    write_parquet(path, {"label": np.arange(30) % 2}, use_dictionary=False, compression="none")
    content = bytearray(path.read_bytes())
    content[5] = 0x39  # another kind of page, which pyarrow skips silently
    path.write_bytes(content)
    assert parquet.read_table(path).num_rows == 0
    for read in (lambda: read_parquet_labels([path]), lambda: list(record_batches(path, ["label"]))):
        check_refusal(read, "lacks 30 of its rows: it is damaged")


def test_the_compact_protocol_is_read_as_specified() -> None:
    fields = [
        (b"\x19\x22\x01\x02", [1, 2]),  # two booleans, one byte each
        (b"\x18\x02ab", b"ab"),
        (b"\x17" + bytes(range(8)), bytes(range(8))),  # a double
        *((kind + b"\x05", -3) for kind in (b"\x14", b"\x15", b"\x16")),  # zigzag
        (b"\x11", True),
        (b"\x12", False),
        (b"\x1c\x16\xac\x02\x00", {1: 150}),
        (b"\x19\xf3\x0f" + bytes(range(15)), list(range(15))),
    ]
    content = b"".join(part for part, _ in fields) + b"\x05\x3c\x02\x00"  # field 30 by its full number
    expected = dict(enumerate((value for _, value in fields), 1)) | {30: 1}
    reader = parquet_file._ThriftReader(content + b"more")
    assert (dict(reader.read_struct()), reader.offset) == (expected, len(content))
    for length in range(len(content)):
        with pytest.raises(IndexError):
            parquet_file._ThriftReader(content[:length]).read_struct()
