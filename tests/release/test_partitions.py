"""Labels of Parquet files: a debit for each file, one label for each row, also if processes die on the way."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.commands.command_line import run
from darrm.errors import BudgetExceededError, DeliveryError, LedgerError
from darrm.ledger.ledger import PrivacyLedger
from darrm.majority.noise_function import NoiseFunction
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.release import __main__ as command
from darrm.release import delivery, partitions
from darrm.release.delivery import release_debited
from darrm.release.partitions import ReleasedPartitions, release_partitions
from darrm.table.release import Release
from darrm.table.table import certify
from darrm.votes import Votes, labels_file, parquet_file, vote_batches
from darrm.votes.labels_file import labels_digest, read_label_column
from darrm.votes.parquet_file import infer_schema
from darrm.votes.vote_arrays import VoteFormat

arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
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


def words_of(folder: Path) -> list[str]:
    files = ["--table", str(folder / "table.json"), "--ledger", str(folder / "l.sqlite")]
    return [str(folder / "votes"), *files, "--keep", "id", "--output", str(folder / "labels")]


def ledger_in(folder: Path) -> PrivacyLedger:
    return PrivacyLedger(folder / "l.sqlite")


def release(folder: Path, output: str = "labels", **options: Any) -> ReleasedPartitions:
    options = {"keep": ["id"], "aggregator": Release(table()), **options}
    return release_partitions(
        options.pop("aggregator"), folder / "votes", ledger=ledger_in(folder), output=folder / output, **options
    )


def labels_of(folder: Path, output: str = "labels") -> dict[str, list[int]]:
    return {
        name: parquet.ParquetFile(folder / output / name).read(columns=["label"])["label"].to_pylist() for name in NAMES
    }


def check_whole(folder: Path, output: str = "labels") -> None:
    """A debit a file that is delivered, a label beside each key, and nothing left."""
    entries = ledger_in(folder).entries()
    assert [(entry.count, entry.delivered) for entry in entries] == [(QUERIES, True)] * len(NAMES)
    assert sorted(entry.output for entry in entries) == [str(folder / output / name) for name in sorted(NAMES)]
    found = sorted(path.relative_to(folder / output).as_posix() for path in (folder / output).rglob("*"))
    assert [name for name in found if not (folder / output / name).is_dir()] == sorted(NAMES)
    for seed, name in enumerate(NAMES):
        rows = parquet.ParquetFile(folder / output / name).read()
        assert rows.column_names == ["id", "label"]
        assert rows["id"].to_pylist() == list(range(100 * seed, 100 * seed + QUERIES))
        assert set(rows["label"].to_pylist()) <= {0, 1}
    for entry in entries:
        assert labels_digest(read_label_column(Path(entry.output))) == entry.labels
    assert [path.name for path in folder.glob(".*")] == [".l.sqlite.lock"]


def untouched(folder: Path) -> bool:
    """Whether nothing was paid or made."""
    names = {"votes", "table.json", "l.sqlite", ".l.sqlite.lock"}
    return not ledger_in(folder).entries() and {path.name for path in folder.iterdir()} <= names


class Sure(Release):
    """Tells the majority as it is, so that a test knows the labels; what a table of it would cost is not asked."""

    def release(self, votes: Any, *, rng: Any = None) -> np.ndarray:
        del rng
        return votes.name_labels((2 * votes.ones > K).astype(np.int64))


def test_a_folder_becomes_a_folder_with_each_label_at_its_row(folder: Path) -> None:
    done = release(folder, aggregator=Sure(table()))
    assert (done.rows, done.files) == (len(NAMES) * QUERIES, len(NAMES))
    check_whole(folder)
    found = labels_of(folder)
    for seed, name in enumerate(NAMES):
        assert found[name] == (matrix(seed).sum(axis=1) >= 2).astype(int).tolist()


def test_labels_that_were_deleted_after_delivery_are_paid_for_again(folder: Path) -> None:
    """The entries of an earlier release to the same place belong to that release."""
    release(folder)
    shutil.rmtree(folder / "labels")
    (folder / "labels.receipt.json").unlink(missing_ok=True)
    release(folder)
    entries = ledger_in(folder).entries()
    assert [(entry.count, entry.delivered) for entry in entries] == [(QUERIES, True)] * 2 * len(NAMES)
    for entry in entries[len(NAMES) :]:
        assert labels_digest(read_label_column(Path(entry.output))) == entry.labels


def test_a_file_becomes_a_file(folder: Path) -> None:
    ledger = ledger_in(folder)
    done = release_partitions(
        Sure(table()),
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
    assert [path.name for path in folder.glob(".*")] == [".l.sqlite.lock"]


def test_the_command_line_says_what_the_library_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*words_of(folder), "--format", "json"]
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
    tmp_path_factory: pytest.TempPathFactory, seed: int, queries: int, kind: str, group: int, at_once: int, classes: int
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
    schema = infer_schema(path, VoteFormat(K + 1, names), keep=("key",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_file, "ROWS_AT_ONCE", at_once)
        found = list(vote_batches(path, schema))
    assert all(0 < each.queries <= at_once for each, _ in found)
    expected = Votes.from_labels(votes, number).counts
    assert np.array_equal(np.concatenate([np.empty((0, number), int), *(each.counts for each, _ in found)]), expected)
    assert [key for _, batch in found for key in batch.column("key").to_pylist()] == list(range(queries))
    assert all(each.classes == (names if isinstance(names, tuple) else tuple(range(number))) for each, _ in found)


@pytest.mark.parametrize(
    ("normalize", "names"), [(None, [("a", "b"), ("b", "B"), ("a",)]), ("casefold", [("a", "b"), ("b",), ("a",)])]
)
def test_each_batch_of_answers_has_its_own_strings(
    normalize: str | None, names: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the strings of a whole file would fill the memory."""
    monkeypatch.setattr(parquet_file, "ROWS_AT_ONCE", 1)
    parquet.write_table(arrow.table({"v0": ["a", "b", "a"], "v1": ["b", "B", "a"]}), tmp_path / "v.parquet")
    schema = infer_schema(tmp_path / "v.parquet", VoteFormat(2, "open", normalize=normalize))
    found = [votes for votes, _ in vote_batches(tmp_path / "v.parquet", schema)]
    assert [votes.names for votes in found] == names
    assert [votes.sparse.toarray().tolist() for votes in found] == [
        [[1] * len(n) if len(n) > 1 else [2]] for n in names
    ]


@pytest.mark.parametrize(
    ("column", "classes", "message"),
    [
        (arrow.array([0, 1, None]), 2, "row 9, column 'v0': the vote is missing"),
        (arrow.array([0, 1, 2]), 2, "row 9, column 'v0': '2' is none of the classes '0', '1'"),
        (arrow.array([0, 2**64 - 1, 1], arrow.uint64()), 2, "row 8, column 'v0': '18446744073709551615' is none"),
        (arrow.array([0.0, np.nan, 0.5]), 2, "row 1, column 'v0': the vote is missing"),
        (arrow.array([Decimal("1.0"), Decimal("1.5")]), 2, "row 1, column 'v0': '1.5' is none of the classes"),
        (arrow.array(["no", "yes", "no"]), 2, "row 7, column 'v0': 'yes' is no number|row 0, column 'v0': 'no' is no"),
        (arrow.array([[0], [1], [2]]), 2, r"row 2, column 'v0\[0\]': '2' is none of the classes"),
        (arrow.array([[0], [1, 1], [1]]), 2, "row 1 holds 2 votes, and the first one 1"),
        (arrow.array([True, False, True]), ("no", "yes"), "row 0, column 'v0': 'True' is none of the classes 'no', "),
        (
            arrow.array([b"no", b"yes"]),
            ("no", "yes"),
            "column 'v0' of .* must be numbers or text, of the .*, got binary",
        ),
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
        list(vote_batches(path, infer_schema(path, VoteFormat(1, classes))))


def test_bad_votes_in_the_last_file_are_refused_before_anything_is_paid(folder: Path) -> None:
    votes = matrix(2)
    votes[QUERIES - 1, 1] = 2
    write(folder / "votes" / NAMES[2], votes, id=np.arange(QUERIES))
    with pytest.raises(ValueError, match=r"year=2025/a\.parquet', row 39, column 'v1': '2' is none of"):
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
        ("no such column", "names 0 columns .v9.: the schema of .* names the columns that --id,"),
        ("kept and a vote", "got the same name twice: a column holds votes or is kept"),
        ("a file of another kind", "votes must be a file that ends in .parquet, got .*more.csv"),
        ("a link to a folder", "votes must be no link to a folder"),
        ("no Parquet", "b.parquet' is no Parquet file that can be read, or it is damaged"),
        ("inside the votes", "the output must be outside the folder of the votes"),
        ("no rows", "votes must be at least one query, got no rows"),
        ("other classes", "classes must be two different labels"),
    ],
)
def test_what_cannot_be_released_is_not_paid(what: str, message: str, folder: Path) -> None:
    if what in SPOILING:
        SPOILING[what](folder / "votes")
    with pytest.raises(ValueError, match=message):
        release(folder, **OPTIONS.get(what, {}))
    assert untouched(folder)


@pytest.mark.parametrize("place", ["votes", "output"])
def test_a_name_that_is_no_text_is_refused_before_anything_is_paid(place: str, folder: Path) -> None:
    """A receipt cannot name it, and pyarrow cannot open it."""
    odd, source, output = os.fsdecode(b"s\xe9"), folder / "votes" / "year=2024", folder / "labels"
    if place == "votes":
        (source / "a.parquet").rename(source / f"{odd}.parquet")
    else:
        output = folder / odd
    with pytest.raises(ValueError, match=r"the name of a Parquet file must be in UTF-8, got '.*s\\udce9.*': rename"):
        release_partitions(Release(table()), source, ledger=ledger_in(folder), output=output, keep=["id"])
    assert not ledger_in(folder).entries()
    assert not os.path.lexists(output)


def fails(*_: Any, **__: Any) -> Any:
    raise OSError(28, "it fails")


@pytest.mark.parametrize(
    ("owner", "name"),
    [(partitions, "label_file"), (partitions, "check_space"), (delivery, "check_ids"), (partitions, "sync")],
)
def test_what_can_fail_without_votes_fails_before_anything_is_paid(
    owner: Any, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, fails)
    with pytest.raises(OSError, match="it fails"):
        release(folder)
    assert untouched(folder)


def test_a_full_disk_is_refused_before_anything_is_paid(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2**16))
    with pytest.raises(ValueError, match=r"65,656 bytes are needed in .*, and 65,536 are free: free some space"):
        release(folder)
    with pytest.raises(ValueError, match="bytes are needed in"):
        release_debited(Release(table()), matrix(0), ledger=ledger_in(folder), output=folder / "labels.csv")
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


def test_nobody_else_reads_the_digests_of_votes_and_they_do_not_stay(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A digest could be guessed back to votes."""
    debit, digests = PrivacyLedger.debit, [hashlib.sha256((folder / "votes" / name).read_bytes()) for name in NAMES]

    def look(self: PrivacyLedger, *arguments: Any, **options: Any) -> int:
        plan = folder / ".labels.release.json"
        assert plan.stat().st_mode & 0o077 == 0
        assert all(digest.hexdigest() in plan.read_text() for digest in digests)
        return debit(self, *arguments, **options)

    monkeypatch.setattr(PrivacyLedger, "debit", look)
    release(folder)
    left = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and "votes" not in path.parts)
    assert not any(digest.hexdigest().encode() in left or digest.digest() in left for digest in digests)


def test_sizes_do_not_depend_on_labels(tmp_path: Path) -> None:
    sizes = set()
    for name, labels in (("a", np.zeros(1000, int)), ("b", np.ones(1000, int)), ("c", np.arange(1000) % 2)):
        path = tmp_path / name
        with labels_file.label_file(path, [], (0, 1, -1)) as add:
            add(labels, arrow.record_batch({}))
        sizes.add(path.stat().st_size)
        assert parquet.ParquetFile(path).schema_arrow.field("label").type == arrow.int8()
    assert len(sizes) == 1


def test_of_two_releases_at_once_one_pays_for_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, others = partitions._Run.release, []

    def overtaken(self: Any, file: Any) -> Any:
        """Another process gets the same file, and ends all of it, while this one draws."""
        monkeypatch.setattr(partitions._Run, "release", draw)
        others.append(release(folder))
        return draw(self, file)

    monkeypatch.setattr(partitions._Run, "release", overtaken)
    with pytest.raises(DeliveryError, match=r"exists already.*3 of 3 files are delivered"):
        release(folder)
    assert others[0].files == len(NAMES)
    check_whole(folder)


def test_a_file_that_changed_after_the_survey_stops_and_goes_on_when_it_is_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = folder / "votes" / NAMES[1]
    good, debit = changed.read_bytes(), PrivacyLedger.debit

    def change(self: PrivacyLedger, *arguments: Any, **options: Any) -> int:
        write(changed, 1 - matrix(1), id=np.arange(QUERIES))
        return debit(self, *arguments, **options)

    words = [*words_of(folder), "--quiet"]
    monkeypatch.setattr(PrivacyLedger, "debit", change)
    assert run(lambda: command.main(words)) == 3
    error = capsys.readouterr().err
    assert "changed after its votes were checked: put the file back as it was" in error
    assert "1 of 3 files are delivered: release again into the same output" in error
    monkeypatch.undo()
    first = (folder / "labels" / NAMES[0]).read_bytes()
    assert run(lambda: command.main(words)) == 2  # with other votes it does not go on
    assert "is of another release into this output, which did not end" in capsys.readouterr().err
    changed.write_bytes(good)
    assert run(lambda: command.main(words)) == 0
    check_whole(folder)
    assert (folder / "labels" / NAMES[0]).read_bytes() == first
    assert run(lambda: command.main(words)) == 2
    assert "exists already" in capsys.readouterr().err


def test_labels_that_were_paid_for_and_are_gone_are_not_paid_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget, calls = PrivacyLedger.forget_labels, []

    def die(self: PrivacyLedger, *arguments: Any) -> None:
        forget(self, *arguments)
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(PrivacyLedger, "forget_labels", die)
    with pytest.raises(DeliveryError, match="2 of 3 files are delivered"):
        release(folder)
    monkeypatch.undo()
    (folder / "labels" / NAMES[0]).rename(folder / "aside")
    with pytest.raises(ValueError, match="was paid for and delivered, and is gone: put it back"):
        release(folder)
    assert len(ledger_in(folder).entries()) == 2
    (folder / "aside").rename(folder / "labels" / NAMES[0])
    release(folder)
    check_whole(folder)


def test_labels_that_fill_the_memory_are_refused_before_anything_is_paid(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MOST_KEPT", QUERIES - 1)
    with pytest.raises(ValueError, match=r"a.parquet' has 40 rows, too many for one debit: split it into files of at"):
        release(folder)
    assert untouched(folder)


@pytest.mark.parametrize(
    ("rows", "while_drawing"),
    [(QUERIES - 1, False), (QUERIES, False), (QUERIES + 1, False), (3 * QUERIES, False), (QUERIES, True)],
)
def test_votes_that_change_while_they_are_read_are_not_paid_for(
    rows: int, while_drawing: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, draw, stamps = folder / "votes" / NAMES[0], Release.release, list[Any]()
    write(folder / "another", matrix(9, rows), id=np.arange(rows))

    def change() -> None:
        with suppress(FileNotFoundError):  # once
            (folder / "another").replace(first)  # whoever reads the old one reads on

    def compared(path: Path) -> Any:
        stamps.append(parquet_file.compute_digest(path))
        if len(stamps) == len(NAMES) + 1 and not while_drawing:  # after the survey
            change()
        return stamps[-1]

    def drawing(self: Release, votes: Any, **options: Any) -> Any:
        if while_drawing:
            change()
        return draw(self, votes, **options)

    monkeypatch.setattr(partitions, "compute_digest", compared)
    monkeypatch.setattr(Release, "release", drawing)
    with pytest.raises(ValueError, match="changed after its votes were checked"):
        release(folder)
    assert not ledger_in(folder).entries()
    assert not os.path.lexists(folder / "labels")


@pytest.mark.parametrize("jobs", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_files_are_released_side_by_side(jobs: int | None, folder: Path) -> None:
    pytest.importorskip("joblib")
    done = release(folder, jobs=jobs)
    assert (done.rows, done.files) == (len(NAMES) * QUERIES, len(NAMES))
    check_whole(folder)


def test_what_a_process_refuses_comes_back_as_one_line(folder: Path) -> None:
    joblib = pytest.importorskip("joblib")
    votes = folder / "votes" / NAMES[1]
    good = votes.read_bytes()
    votes.write_bytes(good[:-100])
    with pytest.raises(ValueError, match=r"b.parquet' is no Parquet file that can be read, or it is damaged") as found:
        release(folder, jobs=2)
    assert "\n" not in str(found.value)
    votes.write_bytes(good)
    with joblib.parallel_config("threading"), pytest.raises(ValueError, match="it fails"):
        release(folder, aggregator=Failing(table()), jobs=2)
    assert untouched(folder)


class Failing(Release):
    """Cannot answer."""

    def release(self, votes: Any, *, rng: Any = None) -> np.ndarray:
        raise LedgerError(f"{type(votes)} {rng}", "it fails")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says how much memory a process took")
def test_ten_times_the_rows_take_hardly_more_memory(tmp_path: Path) -> None:
    voters = 51
    problem = Problem.from_allowance(Voters(voters, PrivacyParams("0.001")), 1)
    certify(problem, NoiseFunction(voters, [0.01] * (voters // 2 + 1))).save(tmp_path / "table.json")
    script = (
        "import sys; from darrm.release.__main__ import main; from darrm.commands.command_line import run; "
        "status = run(lambda: main(sys.argv[1:])); "
        "print(status, *(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    taken = []
    for rows in (100_000, 1_000_000):  # 46 MB more of votes of one byte; in the file, one row group, 184 MB more
        rng = np.random.default_rng(0)
        votes = [arrow.array(rng.integers(0, 2, rows, dtype=np.int8)) for _ in range(voters)]
        whole = arrow.table(votes, names=[f"v{k}" for k in range(voters)])
        parquet.write_table(whole, tmp_path / f"{rows}.parquet", compression="none", use_dictionary=False)
        words = f"{rows}.parquet --table table.json --ledger {rows}.sqlite --create-budget 1000,0.1 --quiet --output"
        call = [sys.executable, "-c", script, *words.split(), f"labels-{rows}.parquet"]
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


def test_what_another_program_put_at_the_output_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, theirs = partitions._Run.release, folder / "labels" / NAMES[0]

    def meanwhile(*arguments: Any) -> Any:
        theirs.write_text("theirs")
        return draw(*arguments)

    monkeypatch.setattr(partitions._Run, "release", meanwhile)
    with pytest.raises(ValueError, match=r"a.parquet' exists already: labels are paid for"):
        release(folder)
    assert theirs.read_text() == "theirs"
    assert not ledger_in(folder).entries()
