"""Labels of Parquet files: one debit for all rows, one label for each, whoever dies on the way."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

from darrm.account.ledger import PrivacyLedger  # noqa: E402 (after the check for pyarrow)
from darrm.errors import BudgetExceededError, PaidError  # noqa: E402 (as above)
from darrm.laws.noise_function import NoiseFunction  # noqa: E402 (as above)
from darrm.mechanisms.release import Release  # noqa: E402 (as above)
from darrm.privacy import PrivacyParams  # noqa: E402 (as above)
from darrm.problem import Problem, Voters  # noqa: E402 (as above)
from darrm.proof.table import certify  # noqa: E402 (as above)
from darrm.release import __main__ as command  # noqa: E402 (as above)
from darrm.release import partitions  # noqa: E402 (as above)
from darrm.release.debited import recover  # noqa: E402 (as above)
from darrm.release.engine import engine_of  # noqa: E402 (as above)
from darrm.release.partitions import (  # noqa: E402 (as above)
    ReleasedPartitions,
    recover_partitions,
    release_partitions,
)
from darrm.system import parquet_file  # noqa: E402 (as above)
from darrm.system.command_line import run  # noqa: E402 (as above)
from darrm.system.parquet_file import layout_of  # noqa: E402 (as above)
from darrm.votes import Votes, class_names, vote_batches  # noqa: E402 (as above)
from tests.exhaustive import EXHAUSTIVE  # noqa: E402 (as above)
from tests.killed import KILLED, apart, ended  # noqa: E402 (as above)

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
K = 3
NAMES = ("year=2024/a.parquet", "year=2024/b.parquet", "year=2025/a.parquet")
QUERIES = 40  # of each file: coins of half of them come out alike twice with probability 2⁻²⁰


def table() -> Any:
    """What tells unanimous votes as they are, and of others a coin."""
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.02")), 3)
    return certify(problem, NoiseFunction(K, [0, 0.05]))


def matrix(seed: int, queries: int = QUERIES) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (queries, K), dtype=np.int8)


def write(path: Path, votes: np.ndarray, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {**columns, **{f"v{k}": votes[:, k] for k in range(votes.shape[1])}}
    parquet.write_table(arrow.table(data), path, row_group_size=16)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files of votes, which are read seven rows at a time, a table and a ledger."""
    prepare(tmp_path)
    monkeypatch.setattr(parquet_file, "ROWS_AT_ONCE", 7)
    return tmp_path


def prepare(folder: Path) -> None:
    for seed, name in enumerate(NAMES):
        write(folder / "votes" / name, matrix(seed), id=100 * seed + np.arange(QUERIES))
    table().save(folder / "table.json")
    PrivacyLedger.create(folder / "l.sqlite", PrivacyParams(10**6, "1e-2"))


def ledger_in(folder: Path) -> PrivacyLedger:
    return PrivacyLedger(folder / "l.sqlite")


def release(folder: Path, output: str = "labels", **options: Any) -> ReleasedPartitions:
    options = {"keep": ["id"], **options}
    return release_partitions(
        Release(table()), folder / "votes", ledger=ledger_in(folder), output=folder / output, **options
    )


def labels_of(folder: Path, output: str = "labels") -> dict[str, list[int]]:
    return {
        name: parquet.ParquetFile(folder / output / name).read(columns=["label"])["label"].to_pylist() for name in NAMES
    }


def check_whole(folder: Path, output: str = "labels") -> None:
    """One debit that is delivered, a label beside each key, and nothing left."""
    entries = ledger_in(folder).entries()
    assert [entry.count for entry in entries] == [len(NAMES) * QUERIES]
    assert entries[0].delivered
    found = sorted(path.relative_to(folder / output).as_posix() for path in (folder / output).rglob("*.parquet"))
    assert found == sorted(NAMES)
    for seed, name in enumerate(NAMES):
        rows = parquet.ParquetFile(folder / output / name).read()
        assert rows.column_names == ["id", "label"]
        assert rows["id"].to_pylist() == list(range(100 * seed, 100 * seed + QUERIES))
        assert set(rows["label"].to_pylist()) <= {0, 1}
    assert not list(folder.glob(".*"))


def untouched(folder: Path) -> bool:
    """Whether nothing was paid or made."""
    return not ledger_in(folder).entries() and {path.name for path in folder.iterdir()} <= {
        "votes",
        "table.json",
        "l.sqlite",
    }


class Sure(Release):
    """Tells the majority as it is, so that a test knows the labels; what a table of it would cost is not asked."""

    def release(self, votes: Any, *, rng: Any = None) -> np.ndarray:
        del rng
        return votes.labeled((2 * votes.ones > K).astype(np.int64))


@pytest.fixture
def sure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "release_of", lambda document: Sure(type(table()).from_json(document)))
    partitions._manifest.cache_clear()


@pytest.mark.usefixtures("sure")
def test_a_folder_becomes_a_folder_with_each_label_at_its_row(folder: Path) -> None:
    done = release(folder)
    assert (done.rows, done.files) == (len(NAMES) * QUERIES, len(NAMES))
    check_whole(folder)
    found = labels_of(folder)
    for seed, name in enumerate(NAMES):
        assert found[name] == (matrix(seed).sum(axis=1) >= 2).astype(int).tolist()


@pytest.mark.usefixtures("sure")
def test_a_file_becomes_a_file(folder: Path) -> None:
    ledger = ledger_in(folder)
    done = release_partitions(
        Release(table()),
        folder / "votes" / NAMES[1],
        ledger=ledger,
        output=folder / "labels.parquet",
        columns=["v2", "v0", "v1"],
        note="one file",
    )
    rows = parquet.ParquetFile(folder / "labels.parquet").read()
    assert rows.column_names == ["label"]
    assert rows["label"].to_pylist() == (matrix(1).sum(axis=1) >= 2).astype(int).tolist()
    assert (done.rows, done.files) == (QUERIES, 1)
    assert [(entry.count, entry.note, entry.delivered) for entry in ledger.entries()] == [(QUERIES, "one file", True)]
    assert not list(folder.glob(".*"))


def test_the_command_line_says_what_the_library_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(folder / "votes"), "--table", str(folder / "table.json"), "--ledger", str(folder / "l.sqlite")]
    words += ["--keep", "id", "--output", str(folder / "labels"), "--format", "json"]
    assert run(lambda: command.main(words)) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == len(NAMES) * QUERIES
    check_whole(folder)
    assert run(lambda: command.main(words)) == 2
    assert "exists already: labels are paid for" in capsys.readouterr().err


# what is read

KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "int8": lambda votes: arrow.array(votes.astype(np.int8)),
    "uint64": lambda votes: arrow.array(votes.astype(np.uint64)),
    "bool": lambda votes: arrow.array(votes.astype(bool)),
    "text": lambda votes: arrow.array([("no", "yes", "maybe")[vote] for vote in votes]),
    "dictionary": lambda votes: arrow.array([("no", "yes", "maybe")[vote] for vote in votes]).dictionary_encode(),
}


@given(
    seed=st.integers(0, 2**32),
    queries=st.integers(0, 40),
    kind=st.sampled_from(sorted(KINDS)),
    group=st.integers(1, 41),
    at_once=st.integers(1, 41),
    classes=st.integers(2, 3),
)
def test_batches_hold_the_votes_of_the_whole_matrix(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    queries: int,
    kind: str,
    group: int,
    at_once: int,
    classes: int,
) -> None:
    number = 2 if kind == "bool" else classes
    votes = np.random.default_rng(seed).integers(0, number, (queries, K + 1))
    names: Any = ("no", "yes", "maybe")[:number] if kind in {"text", "dictionary"} else number
    path = tmp_path_factory.mktemp("votes") / "votes.parquet"
    columns = [KINDS[kind](votes[:, k]) for k in range(K + 1)]
    columns = [column.cast(arrow.string()) if kind == "text" else column for column in columns]
    schema = arrow.table({"key": np.arange(queries), **{f"{k}": column for k, column in enumerate(columns)}})
    parquet.write_table(schema, path, row_group_size=group)
    if queries == 0 and kind in {"text", "dictionary"}:  # a column without a row has no type of text
        return
    layout = layout_of(path, class_names(names), K + 1, keep=("key",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_file, "ROWS_AT_ONCE", at_once)
        found = list(vote_batches(path, layout))
    assert all(0 < each.queries <= at_once for each, _ in found)
    expected = Votes.of_labels(votes, number).counts
    assert np.array_equal(np.concatenate([np.empty((0, number), int), *(each.counts for each, _ in found)]), expected)
    assert [key for _, batch in found for key in batch.column("key").to_pylist()] == list(range(queries))
    assert all(each.classes == (names if isinstance(names, tuple) else tuple(range(number))) for each, _ in found)


def test_a_file_is_read_whole_as_any_other(tmp_path: Path) -> None:
    write(tmp_path / "votes.parquet", matrix(5))
    np.save(tmp_path / "votes.npy", matrix(5))
    read = [Votes.read(tmp_path / f"votes.{end}", classes=2, votes_format="labels") for end in ("parquet", "npy")]
    assert np.array_equal(read[0].counts, read[1].counts)
    assert Votes.read(tmp_path / "votes.parquet", voters=K).voters == K
    with pytest.raises(ValueError, match="5 columns, one a voter, got 3 columns"):
        Votes.read(tmp_path / "votes.parquet", voters=5)
    with pytest.raises(ValueError, match=r"must be 'refuse' for \.parquet files, got 'coin'"):
        Votes.read(tmp_path / "votes.parquet", missing="coin")
    write(tmp_path / "counts.parquet", np.array([[3, 0], [1, 2]]))
    assert Votes.read(tmp_path / "counts.parquet", voters=3).ones.tolist() == [0, 2]
    assert Votes.read(tmp_path / "counts.parquet", votes_format="counts").voters == 3
    with pytest.raises(ValueError, match="could be labels or counts"):
        Votes.read(tmp_path / "counts.parquet")
    write(tmp_path / "none.parquet", matrix(0, 0))
    assert Votes.read(tmp_path / "none.parquet").queries == 0


def test_counts_are_told_by_the_number_of_columns(tmp_path: Path) -> None:
    path = tmp_path / "counts.parquet"
    write(path, np.array([[3, 0], [1, 2]]))
    (votes, _) = next(vote_batches(path, layout_of(path, (0, 1), K)))
    assert votes.ones.tolist() == [0, 2]
    write(path, np.array([[3, 0], [1, 1]]))
    with pytest.raises(ValueError, match="the sum of row 1 of the vote counts must be K = 3, got 2"):
        list(vote_batches(path, layout_of(path, (0, 1), K)))
    with pytest.raises(ValueError, match="could be labels or counts"):
        layout_of(path, (0, 1), 2)


@pytest.mark.parametrize(
    ("column", "classes", "message"),
    [
        (arrow.array([0, 1, None]), 2, "row 9, column 'v0' holds no vote: it is missing"),
        (arrow.array(["no", None, "yes"]), ("no", "yes"), "row 8, column 'v0' holds no vote: it is missing"),
        (arrow.array([0, 1, 2]), 2, "row 9, column 'v0' holds '2', and a vote is one of 0, 1"),
        (arrow.array([0, -1, 1]), 2, "row 8, column 'v0' holds '-1', and a vote is one of 0, 1"),
        (arrow.array([0, 2**64 - 1, 1], arrow.uint64()), 2, "row 8, column 'v0' holds '18446744073709551615'"),
        (arrow.array(["no", "yes", "?"]), ("no", "yes"), r"row 9, column 'v0' holds '\?', and a vote is one of 'no'"),
        (arrow.array([3, 7, 0]), ("3", "7"), "row 9, column 'v0' holds '0', and a vote is one of 3, 7"),
        (arrow.array([0.0, 1.0, 1.0]), 2, "column 'v0' of .* must be whole numbers, got double"),
        (arrow.array(["no", "yes", "no"]), 2, "column 'v0' of .* must be whole numbers, got string"),
        (arrow.array([[0], [1], [1]]), 2, "column 'v0' of .* must be whole numbers, got list"),
        (arrow.array([True, False, True]), ("no", "yes"), "column 'v0' of .* must be text, of the classes no, yes"),
    ],
)
def test_what_is_no_vote_is_named(
    column: Any, classes: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "votes.parquet"
    rows = arrow.table({"v0": column})
    if column.type in {arrow.int64(), arrow.uint64(), arrow.string()}:  # behind seven rows that are votes
        first = arrow.table({"v0": arrow.array([column[0].as_py()] * 7, column.type)})
        rows = arrow.concat_tables([first, rows])
    parquet.write_table(rows, path)
    monkeypatch.setattr(parquet_file, "ROWS_AT_ONCE", 2)
    with pytest.raises(ValueError, match=message):
        list(vote_batches(path, layout_of(path, class_names(classes), 1)))


def test_bad_votes_in_the_last_file_are_refused_before_anything_is_paid(folder: Path) -> None:
    votes = matrix(2)
    votes[QUERIES - 1, 1] = 2
    write(folder / "votes" / NAMES[2], votes, id=np.arange(QUERIES))
    with pytest.raises(ValueError, match=r"year=2025/a\.parquet', row 39, column 'v1' holds '2'"):
        release(folder)
    assert untouched(folder)


IDS = np.arange(QUERIES)
WIDE = {"id": IDS, **{f"w{k}": matrix(1)[:, k] for k in range(K)}}


def empty(votes: Path) -> None:
    for name in NAMES:
        write(votes / name, matrix(0, 0), id=IDS[:0])


SPOILING: dict[str, Callable[[Path], object]] = {
    "another type": lambda votes: write(votes / NAMES[1], matrix(1).astype(np.int64), id=IDS),
    "another column": lambda votes: parquet.write_table(arrow.table(WIDE), votes / NAMES[1]),
    "a file of another kind": lambda votes: (votes / "more.csv").write_text("0,1,1\n"),
    "a link to a folder": lambda votes: (votes / "year=2026").symlink_to(votes / "year=2025"),
    "no Parquet": lambda votes: (votes / NAMES[1]).write_bytes(b"PAR1" + bytes(100) + b"PAR1"),
    "no rows": empty,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "too many columns": {"keep": ()},
    "no such column": {"columns": ["v0", "v1", "v9"]},
    "kept and a vote": {"columns": ["id", "v1", "v2"]},
    "inside the votes": {"output": "votes/labels"},
    "other classes": {"classes": ("a", "b", "c")},
}


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("another type", "b.parquet' with other types than"),
        ("another column", "the columns must be in .*b.parquet', got 'v0': every partition has the same columns"),
        ("too many columns", "3 columns, one a voter, got 4 columns in .*name those that hold votes"),
        ("no such column", "the columns must be in .*, got 'v9'"),
        ("kept and a vote", "got the same name twice: a column is votes or kept, once"),
        ("a file of another kind", "votes must be a file that ends in .parquet, got .*more.csv"),
        ("a link to a folder", "votes must be no link to a folder"),
        ("no Parquet", "b.parquet' is no Parquet file that can be read, or it is damaged"),
        ("inside the votes", "the output must be outside the folder of the votes"),
        ("no rows", "votes must be at least one query, got no rows"),
        ("other classes", "classes must be 2 different labels"),
    ],
)
def test_what_cannot_be_released_is_not_paid(what: str, message: str, folder: Path) -> None:
    if what in SPOILING:
        SPOILING[what](folder / "votes")
    with pytest.raises(ValueError, match=message):
        release(folder, **OPTIONS.get(what, {}))
    assert untouched(folder)


def test_a_budget_that_does_not_admit_all_rows_leaves_nothing(folder: Path) -> None:
    (folder / "l.sqlite").unlink()
    PrivacyLedger.create(folder / "l.sqlite", PrivacyParams("0.01"))
    with pytest.raises(BudgetExceededError, match="does not admit 120 queries"):
        release(folder)
    assert untouched(folder)


def test_names_that_spark_leaves_are_not_read(folder: Path) -> None:
    (folder / "votes" / "_SUCCESS").touch()
    (folder / "votes" / "year=2024" / ".a.parquet.crc").write_bytes(b"x")
    release(folder)
    check_whole(folder)


# what is paid, and what is kept


def test_the_ledger_holds_nothing_of_the_votes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    debit = PrivacyLedger.debit

    def look(self: PrivacyLedger, charge: Any, *, manifest: bytes, **options: Any) -> None:
        kept.append(json.loads(manifest))
        stands = next(folder.glob(".labels*-*"))
        assert stands.stat().st_mode & 0o077 == 0
        debit(self, charge, manifest=manifest, **options)

    monkeypatch.setattr(PrivacyLedger, "debit", look)
    release(folder)
    release(folder, "labels-2")
    assert set(kept[0]) == {"format", "release", "manifest"}
    assert kept[0]["manifest"] != kept[1]["manifest"]  # the same votes: a digest without a random number would be equal


def test_sizes_do_not_depend_on_labels(tmp_path: Path) -> None:
    sizes = set()
    for name, labels in (("a", np.zeros(1000, int)), ("b", np.ones(1000, int)), ("c", np.arange(1000) % 2)):
        path = tmp_path / name
        with parquet_file.label_file(path, [], (0, 1, -1), "x") as add:
            add(labels, arrow.record_batch({}))
        sizes.add(path.stat().st_size)
        assert parquet.ParquetFile(path).schema_arrow.field("label").type == arrow.int8()
    assert len(sizes) == 1


def test_of_two_attempts_at_once_the_first_decides(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decided: dict[int, bytes] = {}
    draw = partitions._draw

    def twice(staging: str, digest: str, index: int, advance: Any) -> Any:
        def other(path: Path) -> Any:
            """Another worker gets the same partition, and ends, while this one reads the votes."""
            monkeypatch.setattr(partitions, "stamp_of", parquet_file.stamp_of)
            draw(staging, digest, index, advance)
            decided[index] = (Path(staging) / "labels" / NAMES[index]).read_bytes()
            return parquet_file.stamp_of(path)

        monkeypatch.setattr(partitions, "stamp_of", other)
        return draw(staging, digest, index, advance)

    monkeypatch.setattr(partitions, "_draw", twice)
    release(folder)
    check_whole(folder)
    assert [decided[index] for index in range(3)] == [(folder / "labels" / name).read_bytes() for name in NAMES]


def test_a_file_that_changed_after_the_survey_stops_and_goes_on_when_it_is_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = folder / "votes" / NAMES[1]
    good = changed.read_bytes()
    debit = PrivacyLedger.debit

    def change(self: PrivacyLedger, *arguments: Any, **options: Any) -> None:
        write(changed, 1 - matrix(1), id=np.arange(QUERIES))
        debit(self, *arguments, **options)

    monkeypatch.setattr(PrivacyLedger, "debit", change)
    with pytest.raises(PaidError, match=r"changed after its votes were checked: put the file back.*recover 1") as found:
        release(folder)
    monkeypatch.undo()
    assert found.value.entry == 1
    assert not (folder / "labels").exists()
    (staging,) = folder.glob(".labels-*")
    first = (staging / "labels" / NAMES[0]).read_bytes()
    assert not list((staging / "drawing").glob("*.parquet"))
    words = ["recover", "1", "--ledger", str(folder / "l.sqlite"), "--output", str(folder / "labels"), "--quiet"]
    assert run(lambda: command.main(words)) == 2
    assert "put the file back as it was" in capsys.readouterr().err
    changed.write_bytes(good)
    assert run(lambda: command.main(words)) == 0
    check_whole(folder)
    assert (folder / "labels" / NAMES[0]).read_bytes() == first  # decided before, so never drawn again
    assert run(lambda: command.main(words)) == 2
    assert "the entry must be undelivered, and none is" in capsys.readouterr().err


@pytest.mark.parametrize("single", [True, False])
def test_a_death_after_publishing_is_only_written_down(
    single: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, name = ("votes/" + NAMES[0], "labels.parquet") if single else ("votes", "labels")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivacyLedger, "forget_labels", die)
    ledger, output = ledger_in(folder), folder / name
    with pytest.raises(PaidError, match="interrupted; the budget is spent and what was not drawn yet is paid for"):
        release_partitions(Release(table()), folder / source, ledger=ledger, output=output, keep=["id"])
    monkeypatch.undo()
    before = {path: path.read_bytes() for path in [output, *output.rglob("*")] if path.is_file()}
    monkeypatch.setattr(partitions, "_draw", die)
    done = recover_partitions(ledger, 1, output)
    assert (done.rows, done.files) == (QUERIES * len(before), len(before))
    assert {path: path.read_bytes() for path in before} == before
    assert ledger.undelivered() == ()


def test_what_another_program_put_at_the_output_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = partitions._draw

    def meanwhile(*arguments: Any) -> Any:
        (folder / "labels").mkdir(exist_ok=True)
        (folder / "labels" / "theirs").write_text("theirs")
        return draw(*arguments)

    monkeypatch.setattr(partitions, "_draw", meanwhile)
    with pytest.raises(PaidError, match="was made by another program meanwhile: move it away"):
        release(folder)
    assert (folder / "labels" / "theirs").read_text() == "theirs"
    shutil.rmtree(folder / "labels")
    recover_partitions(ledger_in(folder), 1, folder / "labels")
    check_whole(folder)


def test_without_the_staging_nothing_is_drawn_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_draw", lambda *_: 1 / 0)
    with pytest.raises(PaidError):
        release(folder)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="which is not there: say the output that the entry names"):
        recover_partitions(ledger_in(folder), 1, folder / "elsewhere")
    (staging,) = folder.glob(".labels-*")
    manifest = staging / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"rows": 40', b'"rows": 41'))
    partitions._manifest.cache_clear()
    with pytest.raises(ValueError, match="was changed after the debit: restore it"):
        recover_partitions(ledger_in(folder), 1, folder / "labels")


def test_the_two_kinds_of_recovery_are_not_mistaken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_draw", lambda *_: 1 / 0)
    with pytest.raises(PaidError):
        release(folder)
    ledger = ledger_in(folder)
    with pytest.raises(ValueError, match="those of this one are drawn file by file"):
        recover(ledger, 1, folder / "labels.npy")
    assert f"--output {folder}/labels" in ledger.recovery(1, ledger.undelivered()[0].output)


def _changes(folder: Path, monkeypatch: pytest.MonkeyPatch, rows: int, *, while_drawing: bool) -> list[int]:
    """Let the first file be another one, of so many rows, once it was compared or once its first votes were read.

    Returns how many labels were drawn at once, call by call.
    """
    first, drawn = folder / "votes" / NAMES[0], list[int]()
    write(folder / "another", matrix(9, rows), id=np.arange(rows))
    debit, draw = PrivacyLedger.debit, Release.release

    def change() -> None:
        with suppress(FileNotFoundError):  # once
            (folder / "another").replace(first)  # whoever reads the old one reads on

    def compared(path: Path) -> Any:
        stamp = parquet_file.stamp_of(path)
        change()
        return stamp

    def release_(self: Release, votes: Any, **options: Any) -> Any:
        drawn.append(votes.queries)
        if while_drawing:
            change()
        return draw(self, votes, **options)

    def debited(self: PrivacyLedger, *arguments: Any, **options: Any) -> None:
        if not while_drawing:
            monkeypatch.setattr(partitions, "stamp_of", compared)
        debit(self, *arguments, **options)

    monkeypatch.setattr(Release, "release", release_)
    monkeypatch.setattr(PrivacyLedger, "debit", debited)
    return drawn


@pytest.mark.parametrize(
    ("rows", "while_drawing"),
    [(QUERIES - 1, False), (QUERIES, False), (QUERIES + 1, False), (3 * QUERIES, False), (QUERIES, True)],
)
def test_votes_that_change_while_they_are_read_decide_nothing(
    rows: int, while_drawing: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = (folder / "votes" / NAMES[0]).read_bytes()
    drawn = _changes(folder, monkeypatch, rows, while_drawing=while_drawing)
    with pytest.raises(PaidError, match="changed after its votes were checked"):
        release(folder)
    monkeypatch.undo()
    assert sum(drawn) <= QUERIES  # what was paid for this file
    assert not list(folder.glob(".labels-*/labels/*/*"))
    (folder / "votes" / NAMES[0]).write_bytes(good)
    recover_partitions(ledger_in(folder), 1, folder / "labels")
    check_whole(folder)


def test_what_another_program_put_at_the_file_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, output, ledger = partitions._draw, folder / "labels.parquet", ledger_in(folder)

    def meanwhile(*arguments: Any) -> Any:
        output.write_text("theirs")
        return draw(*arguments)

    monkeypatch.setattr(partitions, "_draw", meanwhile)
    with pytest.raises(PaidError, match="was made by another program meanwhile: move it away"):
        release_partitions(Release(table()), folder / "votes" / NAMES[0], ledger=ledger, output=output, keep=["id"])
    assert output.read_text() == "theirs"
    assert len(ledger.undelivered()) == 1


def test_an_interrupt_behind_the_debit_says_that_it_is_paid(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def interrupted(cluster: object) -> Iterator[Any]:
        with engine_of(cluster) as engine:
            yield engine
        if ledger_in(folder).entries():
            raise KeyboardInterrupt

    monkeypatch.setattr(partitions, "engine_of", interrupted)
    with pytest.raises(PaidError, match=r"the budget is spent and the labels are in .*labels"):
        release(folder)
    check_whole(folder)


def test_a_process_that_cannot_prove_the_manifest_stops_before_the_debit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sees_nothing(staging: str, digest: str) -> Any:
        raise ValueError(f"{staging} with {digest} is not there")

    monkeypatch.setattr(partitions, "_manifest", sees_nothing)
    with pytest.raises(ValueError, match="is not there"):
        release(folder)
    assert untouched(folder)


@pytest.mark.parametrize("what", ["a part of it", "another release"])
def test_what_is_not_all_of_the_release_does_not_end_it(
    what: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if what == "another release":
        release(folder, "other")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivacyLedger, "forget_labels", die)
    with pytest.raises(PaidError):
        release(folder)
    monkeypatch.undo()
    ledger = ledger_in(folder)
    (entry,) = ledger.undelivered()
    if what == "another release":  # as many rows, of the same votes
        shutil.rmtree(folder / "labels")
        (folder / "other").rename(folder / "labels")
    else:
        (folder / "labels" / NAMES[1]).unlink()
    partitions._manifest.cache_clear()  # whoever recovers is another process
    with pytest.raises(ValueError, match="which is not there"):
        recover_partitions(ledger, entry.number, folder / "labels")
    assert ledger.undelivered() == (entry,)


def test_equal_votes_under_an_equal_name_have_manifests_of_different_digests(folder: Path) -> None:
    """The name of a release stands in its output: whoever has the ledger as well shall not test guesses of votes."""
    found = [partitions.survey(Release(table()), folder / "votes", folder / "labels", keep=["id"]) for _ in range(2)]
    first, second = (replace(manifest, release="0").to_bytes() for manifest in found)
    assert first != second
    assert min(len(manifest.salt) for manifest in found) >= 32  # hexadecimal digits: 128 bits cannot be tried


def _held(path: Path) -> object:
    """How many bytes a file has, or which names stand in a folder."""
    return sorted(each.name for each in path.iterdir()) if path.is_dir() else path.stat().st_size


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux says what an open file is called")
def test_a_power_failure_finds_what_the_next_step_rests_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name counts only where the bytes behind it are durable, a step only where those before it are.

    Kept here: what of a file's bytes, and of a folder's names, is durable, by the number of their inode.
    """
    durable: dict[int, object] = {}
    steps: list[str] = []
    sync, link, rename, remove = os.fsync, os.link, Path.rename, shutil.rmtree
    debit, forget = PrivacyLedger.debit, PrivacyLedger.forget_labels

    def is_durable(path: Path) -> bool:
        return durable.get(path.stat().st_ino) == _held(path)

    def synced(handle: int) -> None:
        sync(handle)
        path = Path(f"/proc/self/fd/{handle}").readlink()
        durable[path.stat().st_ino] = _held(path)

    def linked(source: Path, target: Path) -> None:
        if target.parent.name != "drawing":  # there links are only tried
            assert is_durable(source)
            steps.append("decide")
        link(source, target)

    def renamed(self: Path, target: Path) -> Path:
        assert all(is_durable(path) for path in [self, *self.rglob("*")])
        steps.append("publish")
        return rename(self, target)

    def removed(path: Path, **options: Any) -> None:
        assert is_durable(folder)
        steps.append("remove")
        remove(path, **options)

    def debited(self: PrivacyLedger, *arguments: Any, **options: Any) -> None:
        (staging,) = folder.glob(".labels-*")
        assert is_durable(staging)
        assert is_durable(staging / "manifest.json")
        assert all(is_durable(path) for path in (staging / "labels").rglob("*") if path.is_dir())
        steps.append("debit")
        debit(self, *arguments, **options)

    def forgotten(*arguments: Any) -> None:
        steps.append("forget")
        assert is_durable(folder / "labels.receipt.json")
        forget(*arguments)

    for owner, name, function in (
        (os, "fsync", synced),
        (os, "link", linked),
        (Path, "rename", renamed),
        (shutil, "rmtree", removed),
        (PrivacyLedger, "debit", debited),
        (PrivacyLedger, "forget_labels", forgotten),
    ):
        monkeypatch.setattr(owner, name, function)
    release(folder)
    receipt = ["decide", "remove"]  # a file of its own, linked to its name
    assert steps == ["debit", *["decide"] * len(NAMES), "publish", "remove", *receipt, "forget"]


# deaths


def client(folder: Path, output: str) -> int:
    """Fork a process that releases, and return its number."""
    number = os.fork()
    if number:
        return number
    parquet_file.ROWS_AT_ONCE = 7
    words = [str(folder / "votes"), "--table", str(folder / "table.json"), "--ledger", str(folder / "l.sqlite")]
    status = 99
    try:
        status = run(lambda: command.main([*words, "--keep", "id", "--output", str(folder / output), "--quiet"]))
    finally:
        os._exit(status)


def kill_many(folder: Path, kills: int, seed: int) -> tuple[int, int]:
    """Kill releases at random moments and end them; count those that were killed after the debit, and before."""
    prepare(folder)
    moments = np.random.default_rng(seed)
    partitions._manifest.cache_clear()
    whole, after, before = 0.0, 0, 0
    for kill in range(kills):
        output = f"labels-{kill}"
        start, number = time.monotonic(), client(folder, output)
        if kill >= 2:
            time.sleep(whole * moments.uniform(0.0, 1.0))
            os.kill(number, signal.SIGKILL)
        status = ended(number)
        whole = time.monotonic() - start if kill < 2 else whole
        assert status in {0, KILLED}, status
        ledger = ledger_in(folder)
        waiting = ledger.undelivered()
        paid = [entry for entry in ledger.entries() if entry.output == str(folder / output)]
        assert len(paid) <= 1
        if not paid:
            assert not (folder / output).exists()
            before += 1
            continue
        decided = {path.parts[-2:]: path.read_bytes() for path in folder.glob(f".{output}-*/labels/*/*.parquet")}
        for entry in waiting:
            recover_partitions(ledger, entry.number, entry.output)
        published = {path.parts[-2:]: path.read_bytes() for path in (folder / output).rglob("*.parquet")}
        assert decided.items() <= published.items()  # no second draw of what was decided
        assert sum(map(len, labels_of(folder, output).values())) == paid[0].count == len(NAMES) * QUERIES
        assert not list(folder.glob(f".{output}-*"))
        after += bool(waiting)
    assert ledger_in(folder).accountant().queries == len(ledger_in(folder).entries()) * len(NAMES) * QUERIES
    return after, before


def run_kills(folder: Path, kills: int, seed: int) -> tuple[int, int]:
    after, before = map(int, apart(__file__, folder, f"*kills.kill_many(folder, {kills}, {seed})").split())
    return after, before


@pytest.mark.slow
def test_five_kills_lose_nothing(tmp_path: Path) -> None:
    run_kills(tmp_path, 5, seed=3)


@pytest.mark.slow
def test_many_kills_lose_nothing(tmp_path: Path) -> None:
    after, before = run_kills(tmp_path, 400 if EXHAUSTIVE else 60, seed=11)
    assert after
    assert before


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says how much memory a process took")
def test_ten_times_the_rows_take_hardly_more_memory(tmp_path: Path) -> None:
    voters = 51
    problem = Problem.from_allowance(Voters(voters, PrivacyParams("0.001")), 1)
    certify(problem, NoiseFunction(voters, [0.01] * (voters // 2 + 1))).save(tmp_path / "table.json")
    script = (
        "import sys; from darrm.release.__main__ import main; from darrm.system.command_line import run; "
        "status = run(lambda: main(sys.argv[1:])); "
        "print(status, *(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    taken = []
    for rows in (100_000, 1_000_000):  # 46 MB more of votes of one byte; in the file, one row group, 184 MB more
        rng = np.random.default_rng(0)
        votes = [arrow.array(rng.integers(0, 2, rows, dtype=np.int8)) for _ in range(voters)]
        whole = arrow.table(votes, names=[f"v{k}" for k in range(voters)])
        parquet.write_table(whole, tmp_path / f"{rows}.parquet", compression="none", use_dictionary=False)
        words = [
            f"{rows}.parquet",
            "--table",
            "table.json",
            "--ledger",
            f"{rows}.sqlite",
            "--create-budget",
            "1000,0.1",
        ]
        call = [sys.executable, "-c", script, *words, "--output", f"labels-{rows}.parquet", "--quiet"]
        done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False, env=ENVIRONMENT)
        status, kibibytes = map(int, done.stdout.split())
        assert status == 0, done.stderr
        taken.append(kibibytes)
        assert parquet.ParquetFile(tmp_path / f"labels-{rows}.parquet").metadata.num_rows == rows
    assert taken[1] - taken[0] < 30_000, taken


def test_a_misspelt_keyword_is_refused_before_anything_is_paid(folder: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colums'"):
        release(folder, colums=["v0"])
    assert ledger_in(folder).entries() == ()
