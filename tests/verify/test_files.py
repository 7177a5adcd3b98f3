"""Files of any size are judged within one gigabyte.

A bomb is a small file that asks for much memory.
"""

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from darrm.verify import files
from darrm.verify.files import read_parquet_labels
from darrm.verify.verdicts import PROVED
from darrm.votes.parquet_file import record_batches
from tests.verify.files import TABLE, write_equal_rows, write_parquet, write_zip
from tests.verify.lies import update_checksum

LIMITED = (
    "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30)); "
    "resource.setrlimit(resource.RLIMIT_CPU, (120, 120)); runpy.run_module(sys.argv.pop(1), run_name='__main__')"
)


def run_limited(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module with one gigabyte and two minutes of its processor."""
    command = [sys.executable, "-c", LIMITED, module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def write_sparse(path: Path, start: bytes) -> None:
    path.write_bytes(start)
    os.truncate(path, 2**30)


def write_npy_header(path: Path) -> None:
    file = io.BytesIO()
    header = {"descr": "|i1", "fortran_order": False, "shape": (2**30 - 128,)}
    np.lib.format.write_array_header_1_0(file, header)
    write_sparse(path, file.getvalue())


def write_long_gamma(path: Path) -> None:
    """Write a table whose proof takes the prover minutes."""
    data = json.loads(json.dumps(TABLE.to_json()))
    data["problem"]["K"], data["gamma"] = 20_001, [1e-9, 0.0] * 5000 + [1e-9]
    path.write_text(json.dumps(update_checksum(data)))


BOMBS: dict[str, Callable[[Path], object]] = {
    "unknown.bin": lambda path: write_sparse(path, b""),
    "ledger.sqlite": lambda path: write_sparse(path, b"SQLite format 3\0"),
    "zeros.npy": write_npy_header,
    "gamma.json": write_long_gamma,
    "lists.json": lambda path: path.write_bytes(b"[" + b"[]," * 5_000_000 + b"[]]"),
    "large.json": lambda path: path.write_bytes(b"[" + b"1.5," * 5_000_000 + b"1]"),
    "large.skops": lambda path: write_zip(path, b'"' + b"x" * 200_000_000 + b'"'),
    "rows.parquet": lambda path: write_equal_rows(path, 2**27 + 1, "a"),
    "unfolds.parquet": lambda path: write_equal_rows(path, 60_000, "x" * 1_000_000),
    "page.parquet": lambda path: write_parquet(path, ["x" * 300_000_000]),
    "different.csv": lambda path: path.write_text("".join(f"w{number}\n" for number in range(600_000))),
    "numbers.csv": lambda path: path.write_text("".join(f"{number},1\n" for number in range(4_200_000))),
    "one-long.csv": lambda path: path.write_bytes(b"a\n" * 1_000_000 + b"b" * 200 + b"\n"),
    "line.csv": lambda path: path.write_bytes(b"a" * 50_000_000),
    "quotes.csv": lambda path: path.write_bytes(b'"' + b'""' * 5_000_000),
}
LABELS: dict[str, Callable[[Path], object]] = {
    "digits.csv": lambda path: path.write_bytes(b"0\n" * 50_000_000),
    "words.csv": lambda path: path.write_bytes(b"yes\nno\n" * 14_000_000),
    "rows.parquet": lambda path: write_equal_rows(path, 100_000_000, "a"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_in_a_folder_gets_a_verdict_and_stops_no_other(name: str, tmp_path: Path) -> None:
    BOMBS[name](tmp_path / name)
    TABLE.save(tmp_path / "table.json")
    process = run_limited("darrm.verify", str(tmp_path), "--quiet", "--format", "json")
    assert process.returncode == 0, process.stderr
    verdicts = json.loads(process.stdout)["verdicts"]
    assert any(Path(one["file"]).name == name for one in verdicts) or name.endswith(".parquet")
    assert any(one["file"].endswith("table.json") and one["verdict"] == PROVED for one in verdicts)


@pytest.mark.slow
@pytest.mark.parametrize("name", LABELS)
def test_many_labels_are_read_piece_by_piece(name: str, tmp_path: Path) -> None:
    LABELS[name](tmp_path / name)
    process = run_limited("darrm.verify", str(tmp_path / name), "--quiet", "--format", "json")
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["labels"][0]["labels"] >= 28_000_000


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "message"), [(1, "unfold"), (60_000, "is none of the classes")])
def test_a_bomb_of_votes_is_refused_by_a_release(rows: int, message: str, tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = arrow.array(["x" * 100_000_000])
    if rows > 1:
        column = arrow.DictionaryArray.from_arrays(np.zeros(rows, np.int8), arrow.array(["x" * 1_000_000]))
    parquet.write_table(arrow.table(dict.fromkeys("abc", column)), tmp_path / "votes.parquet", compression="zstd")
    TABLE.save(tmp_path / "table.json")
    budget = ["--ledger", str(tmp_path / "ledger.sqlite"), "--create-budget", "9,1e-5", "--classes", "no,yes"]
    paths = ["--table", str(tmp_path / "table.json"), "--output", str(tmp_path / "out.parquet")]
    process = run_limited("darrm.release", str(tmp_path / "votes.parquet"), *paths, *budget)
    assert process.returncode == 2, process.stderr
    assert message in process.stderr


def encode_varint(value: int) -> bytes:
    """Write a number as Thrift does in a page's header."""
    value *= 2
    parts = [value >> shift & 127 | 128 for shift in range(0, max(1, value.bit_length()), 7)]
    return bytes([*parts[:-1], parts[-1] & 127])


@pytest.mark.slow
def test_a_page_that_claims_two_gigabytes_is_refused_in_one_line(tmp_path: Path) -> None:
    path, size = tmp_path / "page.parquet", 2**24
    write_parquet(path, ["x" * size], use_dictionary=False, write_statistics=False)
    content, true_size = path.read_bytes(), encode_varint(size + 10)  # with the levels of its row
    assert content.count(true_size) == 1
    for claimed in (size + 10, 2**31 - 1):
        path.write_bytes(content.replace(true_size, encode_varint(claimed)))
        process = run_limited("darrm.verify", str(path))
        assert (process.returncode, process.stderr.count("\n")) == (2, 1)
        assert process.stderr.startswith(f"error: '{path}' ")


@pytest.mark.parametrize("block", [1, 3, 2**20])
@pytest.mark.parametrize(
    ("text", "labels", "first"),
    [
        ("no\nyes\nno\nno\n", ["no", "yes", "no", "no"], None),
        ("\ufeff0\r\n12\r\n0", ["0", "12", "0"], None),
        ('"a,\r\nb"\n"say ""c"""\nd\n', ["a,\r\nb", 'say "c"', "d"], None),
        ('5,"a,b"\n4,c\n5,"a,b"\n6,c\n', ["c", "a,b", "c"], 4),
        ("id,label\nx,1\ny,0\nx,1\n", ["1", "0", "1"], None),
    ],
)
def test_labels_are_read_alike_in_blocks_of_any_size(
    block: int, text: str, labels: list[str], first: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "labels.csv").write_bytes(text.encode())
    for name in ("_BYTES_PER_BLOCK", "_ROWS_PER_BLOCK", "_LABELS_PER_BLOCK"):
        monkeypatch.setattr(files, name, block)
    file = files.read_labels(tmp_path / "labels.csv")
    assert ([file.names[place] for place in file.places], file.first) == (labels, first)
    for start, stop in ((0, None), (1, 3), (2, 2)):
        lines = "".join(f"{files.quote_field(label)}\n" for label in labels[start:stop])
        assert file.digest(start, stop) == hashlib.sha256(lines.encode()).hexdigest()


@pytest.mark.parametrize(
    ("limit", "value", "accepted", "refused"),
    [
        ("MAX_DISTINCT", 2, "a\nb\na\n", "a\nb\nc\n"),
        ("MAX_LABELS", 3, "a\nb\na\n", "a\nb\na\nb\n"),
        ("MAX_NUMBERED", 2, "1,a\n2,a\n", "1,a\n2,a\n3,a\n"),
        ("_MAX_LABEL_BYTES", 4, "a\nb\n", "a\nbc\n"),
        ("_MAX_NAME_LENGTH", 2, "ab\n", "abc\n"),
        ("_MAX_NAME_LENGTH", 5, "id,label\nabcde,1\n", "id,label\nabcdef,1\n"),
    ],
)
def test_labels_are_read_up_to_each_limit(
    limit: str, value: int, accepted: str, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, limit, value)
    path = tmp_path / "labels.csv"
    path.write_text(accepted)
    assert files.read_labels(path).size == accepted.count("\n") - accepted.startswith("id")
    path.write_text(refused)
    with pytest.raises(ValueError, match=r"labels\.csv"):
        files.read_labels(path)


def test_a_parquet_file_without_its_rows_is_refused(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "labels.parquet"
    parquet.write_table(arrow.table({"label": np.arange(30) % 2}), path, use_dictionary=False, compression="none")
    content = bytearray(path.read_bytes())
    content[5] = 0x39  # another kind of page, which pyarrow skips in silence
    path.write_bytes(content)
    with pytest.raises(ValueError, match="holds no labels: it lacks 30 of its rows"):
        read_parquet_labels([path])


def test_labels_of_parquet_are_those_of_the_column_label(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"id": ["a", "b", "c"], "label": ["yes", None, "yes"]})
    parquet.write_table(table, tmp_path / "labels.parquet")
    assert read_parquet_labels([tmp_path / "labels.parquet"]).labels.tolist() == ["yes", "", "yes"]


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("names", "column"),
    [(["label"] * 2, [1]), (["label"], [1, None, 2]), (["a", "b"], [1]), (["label"], [[1], [2]])],
)
def test_parquet_files_without_one_column_of_labels_are_refused(
    names: list[str], column: list[object], tmp_path: Path
) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_arrays([column] * len(names), names=names), tmp_path / "odd.parquet")
    with pytest.raises(ValueError, match=r"odd\.parquet"):
        read_parquet_labels([tmp_path / "odd.parquet"])


def test_the_largest_page_is_measured_as_it_was_written(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    from darrm.votes import parquet_file

    rng, path = np.random.default_rng(0), tmp_path / "a.parquet"
    for version, size in (("1.0", 2**10), ("2.0", 2**14)):
        numbers = rng.integers(0, 2**60, 50_000)
        write_parquet(path, numbers, use_dictionary=False, data_page_size=size, data_page_version=version)
        with path.open("rb") as raw:
            [chunk] = parquet_file._read_chunks(raw)
            largest = parquet_file._find_largest_page(raw, chunk)
        column = parquet.read_metadata(path).row_group(0).column(0)
        assert (chunk[7], chunk[9], chunk[5]) == (column.total_compressed_size, column.data_page_offset, 50_000)
        assert size <= largest <= 2 * size + 2**13


@pytest.mark.parametrize("rows", [0, 1, 5000])
def test_damaged_parquet_files_of_votes_are_refused_in_one_line(rows: int, tmp_path: Path) -> None:
    path, rng = tmp_path / "a.parquet", np.random.default_rng(rows)
    write_parquet(path, [f"word {row % 9}" for row in range(rows)], data_page_size=2**9)
    content = path.read_bytes()
    assert sum(batch.num_rows for batch in record_batches(path, ["label"])) == rows
    for _ in range(150):
        damaged = bytearray(content)
        damaged[rng.integers(len(damaged))] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            list(record_batches(path, ["label"]))
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017 (one line)
