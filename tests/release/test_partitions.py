"""Labels of Parquet files: a debit for each file, one label for each row, also if a release stops on the way."""

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
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
from darrm.release.partitions import ReleasedPartitions, VotesFile, release_partitions
from darrm.table.release import Release
from darrm.table.table import certify
from darrm.util.progress import StatusLine
from darrm.votes import Votes, labels_file, parquet_file, vote_batches
from darrm.votes.labels_file import labels_digest, read_label_column
from darrm.votes.parquet_file import infer_schema
from darrm.votes.vote_arrays import VoteFormat
from tests.release.support import name_columns, raise_error, table_of, write_parquet

arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
NAMES = ("year=2024/a.parquet", "year=2024/b.parquet", "year=2025/a.parquet")
QUERIES = 40  # of each file
IDS = np.arange(QUERIES)


def draw_votes(seed: int, queries: int = QUERIES) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (queries, 3), dtype=np.int8)


def write_votes(path: Path, votes: np.ndarray, ids: Any = IDS) -> None:
    write_parquet(path, {"id": ids, **name_columns(votes)}, row_group_size=16)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with three files of votes, which are read seven rows at a time, a table and a ledger."""
    for seed, name in enumerate(NAMES):
        write_votes(tmp_path / "votes" / name, draw_votes(seed), 100 * seed + IDS)
    table_of().save(tmp_path / "table.json")
    PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(10**6, "1e-2"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parquet_file, "ROWS_AT_ONCE", 7)
    return tmp_path


@pytest.fixture
def ledger(folder: Path) -> PrivacyLedger:
    return PrivacyLedger(folder / "l.sqlite")


WORDS = ["votes", "--table", "table.json", "--ledger", "l.sqlite", "--keep", "id", "--output", "labels"]


def release(output: str = "labels", source: str = "votes", **options: Any) -> ReleasedPartitions:
    options = {"keep": ["id"], "aggregator": Release(table_of()), "ledger": PrivacyLedger("l.sqlite"), **options}
    return release_partitions(options.pop("aggregator"), source, output=output, **options)


def check_whole(folder: Path) -> None:
    """Check that each file has one delivered debit, each row its label, and that nothing else is left."""
    entries = PrivacyLedger(folder / "l.sqlite").entries()
    assert [(entry.count, entry.delivered) for entry in entries] == [(QUERIES, True)] * len(NAMES)
    assert sorted(entry.output for entry in entries) == [str(folder / "labels" / name) for name in sorted(NAMES)]
    paths = [path for path in (folder / "labels").rglob("*") if path.is_file()]
    assert sorted(path.relative_to(folder / "labels").as_posix() for path in paths) == sorted(NAMES)
    for seed, name in enumerate(NAMES):
        rows = parquet.ParquetFile(folder / "labels" / name).read().to_pydict()
        majorities = (draw_votes(seed).sum(axis=1) >= 2).astype(int)
        assert rows == {"id": (100 * seed + IDS).tolist(), "label": majorities.tolist()}
    assert all(labels_digest(read_label_column(Path(entry.output))) == entry.labels for entry in entries)
    assert [path.name for path in folder.glob(".*")] == [".l.sqlite.lock"]


def is_untouched(folder: Path) -> bool:
    """Whether nothing was paid or made."""
    names = {"votes", "table.json", "l.sqlite", ".l.sqlite.lock"}
    return not PrivacyLedger(folder / "l.sqlite").entries() and {path.name for path in folder.iterdir()} <= names


def compute_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("jobs", [1, None, pytest.param(2, marks=pytest.mark.slow)])
def test_folder_of_votes_becomes_a_folder_with_each_label_at_its_row(
    jobs: int | None, folder: Path, ledger: PrivacyLedger
) -> None:
    pytest.importorskip("joblib")
    (folder / "votes" / "_SUCCESS").touch()  # files that Spark leaves are not read
    (folder / "votes" / "year=2024" / ".a.parquet.crc").write_bytes(b"x")
    result = release(jobs=jobs)
    assert (result.rows, result.files) == (len(NAMES) * QUERIES, len(NAMES))
    check_whole(folder)
    receipt = json.loads((folder / "labels.receipt.json").read_text())
    assert receipt["files"] == {name: compute_digest(folder / "labels" / name) for name in NAMES}
    assert receipt["ledger_digest"]["text"] == str(ledger.digest())
    with pytest.raises(ValueError, match="already"):
        release()
    (folder / "labels").rename(folder / "moved")
    with pytest.raises(ValueError, match="the receipt of other labels"):
        release()
    (folder / "labels.receipt.json").unlink()
    release()  # labels that were delivered and moved away are paid for again
    assert [(entry.count, entry.delivered) for entry in ledger.entries()] == [(QUERIES, True)] * 2 * len(NAMES)


def test_file_of_votes_becomes_a_file_of_labels(folder: Path, ledger: PrivacyLedger) -> None:
    columns = ["v2", "v0", "v1"]
    result = release("labels.parquet", f"votes/{NAMES[1]}", columns=columns, keep=(), note="one file")
    majorities = (draw_votes(1).sum(axis=1) >= 2).astype(int)
    assert parquet.ParquetFile("labels.parquet").read().to_pydict() == {"label": majorities.tolist()}
    assert (result.rows, result.files) == (QUERIES, 1)
    assert [(entry.count, entry.note, entry.delivered) for entry in ledger.entries()] == [(QUERIES, "one file", True)]
    assert "files" not in json.loads(Path("labels.parquet.receipt.json").read_text())
    assert [path.name for path in folder.glob(".*")] == [".l.sqlite.lock"]


def test_file_without_queries_becomes_a_file_without_labels(folder: Path) -> None:
    write_votes(folder / "votes" / NAMES[1], draw_votes(1, 0), IDS[:0])
    assert release().rows == 2 * QUERIES
    assert parquet.ParquetFile(folder / "labels" / NAMES[1]).metadata.num_rows == 0


def test_command_releases_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda: command.main([*WORDS, "--format", "json"])) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == len(NAMES) * QUERIES
    check_whole(folder)
    assert run(lambda: command.main(WORDS)) == 2
    assert "exists already: labels are paid for" in capsys.readouterr().err


def test_progress_of_each_file_is_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, clock = list[str](), itertools.cycle([1.0, 3.0, 3.0, 5.0])  # of the start, and of three files
    monkeypatch.setattr(partitions, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(StatusLine, "show", lambda _, text: texts.append(text))
    release(line=StatusLine(enabled=True))
    steps = [
        f"{activity}: {rows}"
        for activity in ("checking votes", "drawing 120 labels")
        for rows in ("40 rows, 20 a second", "80 rows, 40 a second", "120 rows, 30 a second")
    ]
    assert [text for text in texts if " a second" in text] == steps
    check_whole(folder)


# what is read

KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "int8": lambda votes: arrow.array(votes.astype(np.int8)),
    "uint64": lambda votes: arrow.array(votes.astype(np.uint64)),
    "bool": lambda votes: arrow.array(votes.astype(bool)),
    "text": lambda votes: arrow.array([("no", "yes", "maybe")[vote] for vote in votes], arrow.string()),
    "dictionary": lambda votes: KINDS["text"](votes).dictionary_encode(),
}


@given(
    seed=st.integers(0, 2**32),
    queries=st.integers(0, 40),
    kind=st.sampled_from(sorted(KINDS)),
    group=st.integers(1, 41),
    at_once=st.integers(1, 41),
    classes=st.integers(2, 3),
)
def test_batches_hold_the_votes_of_the_whole_file(
    tmp_path_factory: pytest.TempPathFactory, seed: int, queries: int, kind: str, group: int, at_once: int, classes: int
) -> None:
    class_count = 2 if kind == "bool" else classes
    votes = np.random.default_rng(seed).integers(0, class_count, (queries, 4))
    names: Any = ("no", "yes", "maybe")[:class_count] if kind in {"text", "dictionary"} else class_count
    path = tmp_path_factory.mktemp("votes") / "votes.parquet"
    columns = {"key": np.arange(queries), **{f"{k}": KINDS[kind](votes[:, k]) for k in range(4)}}
    write_parquet(path, columns, row_group_size=group)
    schema = infer_schema(path, VoteFormat(4, names), keep=("key",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_file, "ROWS_AT_ONCE", at_once)
        batches = list(vote_batches(path, schema))
    assert all(0 < batch_votes.queries <= at_once for batch_votes, _ in batches)
    counts = np.concatenate([np.empty((0, class_count), int), *(batch_votes.counts for batch_votes, _ in batches)])
    assert np.array_equal(counts, Votes.from_labels(votes, class_count).counts)
    assert [key for _, batch in batches for key in batch.column("key").to_pylist()] == list(range(queries))
    expected_classes = names if isinstance(names, tuple) else tuple(range(class_count))
    assert all(batch_votes.classes == expected_classes for batch_votes, _ in batches)


@pytest.mark.parametrize(
    ("normalize", "names"), [(None, [("a", "b"), ("b", "B"), ("a",)]), ("casefold", [("a", "b"), ("b",), ("a",)])]
)
def test_batch_of_answers_holds_its_own_strings_only(
    normalize: str | None, names: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the strings of a whole file would fill the memory."""
    monkeypatch.setattr(parquet_file, "ROWS_AT_ONCE", 1)
    write_parquet(tmp_path / "v.parquet", {"v0": ["a", "b", "a"], "v1": ["b", "B", "a"]})
    schema = infer_schema(tmp_path / "v.parquet", VoteFormat(2, "open", normalize=normalize))
    batches = [votes for votes, _ in vote_batches(tmp_path / "v.parquet", schema)]
    assert [votes.names for votes in batches] == names
    assert [votes.sparse.toarray().tolist() for votes in batches] == [
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
        (arrow.array([b"no", b"yes"]), ("no", "yes"), "'v0' of .* must be numbers or text, of the .*, got binary"),
    ],
)
def test_entry_that_is_no_vote_is_named(
    column: Any, classes: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "votes.parquet"
    rows = arrow.table({"v0": column})
    if column.type in {arrow.int64(), arrow.uint64(), arrow.string()}:  # after seven rows that are votes
        first_rows = arrow.table({"v0": arrow.array([column[0].as_py()] * 7, column.type)})
        rows = arrow.concat_tables([first_rows, rows])
    parquet.write_table(rows, path)
    monkeypatch.setattr(parquet_file, "ROWS_AT_ONCE", 2)
    with pytest.raises(ValueError, match=message):
        list(vote_batches(path, infer_schema(path, VoteFormat(1, classes))))


# what is refused before anything is paid


def write_bad_vote(votes: Path) -> None:
    bad_votes = draw_votes(2)
    bad_votes[QUERIES - 1, 1] = 2
    write_votes(votes / NAMES[2], bad_votes)


def write_no_rows(votes: Path) -> None:
    for name in NAMES:
        write_votes(votes / name, draw_votes(0, 0), IDS[:0])


def rename_column(votes: Path) -> None:
    write_parquet(votes / NAMES[1], {"id": IDS, **{f"w{k}": draw_votes(1)[:, k] for k in range(3)}})


def replace_ledger(votes: Path) -> None:
    (votes.parent / "l.sqlite").unlink()
    PrivacyLedger.create(votes.parent / "l.sqlite", PrivacyParams("0.01"))


def rename_to_bytes(votes: Path) -> None:
    (votes / NAMES[0]).rename(votes / os.fsdecode(b"s\xe9.parquet"))


def do_nothing(_: Path) -> None:
    pass


NOT_UTF8 = r"the name of a Parquet file must be in UTF-8, got '.*s\\udce9.*': rename"
REFUSED: list[tuple[Callable[[Path], Any], dict[str, Any], str]] = [
    (write_bad_vote, {}, r"year=2025/a\.parquet', row 39, column 'v1': '2' is none of"),
    (write_no_rows, {}, "votes must be at least one query, got no rows"),
    (lambda votes: write_votes(votes / NAMES[1], draw_votes(1).astype(np.int64)), {}, "b.parquet' with other types"),
    (rename_column, {}, "the columns must be in .*b.parquet', got 'v0': every partition has the same columns"),
    (lambda votes: (votes / "more.csv").write_text("0,1,1\n"), {}, "a file that ends in .parquet, got .*more.csv"),
    (lambda votes: (votes / "link").symlink_to(votes / "year=2025"), {}, "votes must be no link to a folder"),
    (
        lambda votes: (votes / NAMES[1]).write_bytes(b"PAR1" + bytes(100) + b"PAR1"),
        {},
        "b.parquet' is no Parquet file that can be read, or it is damaged",
    ),
    (rename_to_bytes, {}, NOT_UTF8),
    (replace_ledger, {}, "does not admit 120 queries"),
    (do_nothing, {"output": os.fsdecode(b"s\xe9")}, NOT_UTF8),
    (do_nothing, {"output": "votes/labels"}, "the output must be outside the folder of the votes"),
    (do_nothing, {"output": "votes"}, "the output must be outside the folder of the votes"),
    (do_nothing, {"output": "labels.csv"}, "the output must be a folder, got '.*labels.csv'"),
    (do_nothing, {"source": f"votes/{NAMES[0]}"}, "the output must be a file that ends in .parquet, got '.*labels'"),
    (
        lambda votes: (votes / "more.csv").write_text("0,1,1\n"),
        {"source": "votes/more.csv", "output": "labels.parquet"},
        "the output must be a file that ends in .parquet",
    ),
    (do_nothing, {"keep": ()}, "3 columns, one a voter, got 4 columns in .*name those that hold votes"),
    (
        do_nothing,
        {"columns": ["v0", "v1", "v9"]},
        "names 0 columns .v9.: the schema of .* names the columns that --id,",
    ),
    (do_nothing, {"columns": ["id", "v1", "v2"]}, "got the same name twice: a column holds votes or is kept"),
    (do_nothing, {"classes": ("a", "b", "c")}, "classes must be two different labels"),
    (do_nothing, {"colums": ["v0"]}, "unexpected keyword argument 'colums'"),
]


@pytest.mark.parametrize(("spoil", "options", "message"), REFUSED)
def test_release_refuses_votes_and_options_before_anything_is_paid(
    spoil: Callable[[Path], Any], options: dict[str, Any], message: str, folder: Path
) -> None:
    spoil(folder / "votes")
    with pytest.raises((ValueError, TypeError, BudgetExceededError), match=message):
        release(**options)
    assert is_untouched(folder)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(partitions, name) for name in ("label_file", "check_space", "write_text", "sync")] + [(delivery, "check_ids")],
)
def test_step_that_fails_before_the_first_debit_leaves_nothing(
    owner: Any, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, raise_error(OSError(28, "it fails")))
    with pytest.raises(OSError, match="it fails"):
        release()
    assert is_untouched(folder)


def test_full_disk_is_refused_before_anything_is_paid(
    folder: Path, ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2**16))
    with pytest.raises(ValueError, match=r"65,656 bytes are needed in .*, and 65,536 are free: free some space"):
        release()
    with pytest.raises(ValueError, match="65,576 bytes are needed in"):
        release_debited(Release(table_of()), Votes.from_labels(draw_votes(0)), ledger=ledger, output="labels.csv")
    assert is_untouched(folder)


def test_file_with_too_many_rows_for_one_debit_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "MOST_KEPT", QUERIES - 1)
    with pytest.raises(ValueError, match=r"a.parquet' has 40 rows, too many for one debit: split it into files of at"):
        release()
    assert is_untouched(folder)


@pytest.mark.parametrize(("names", "size"), [((0, 1, -1), 1), ((0, 300, -1), 2), (("no", "yes", "-1"), 12), ((), 800)])
def test_labels_of_one_debit_fit_into_half_a_gigabyte(names: tuple[object, ...], size: int) -> None:
    rows = 2**29 // size
    partitions._check_files((VotesFile("a", rows, "", (), ""),), names)
    with pytest.raises(ValueError, match=f"split it into files of at most {rows:,} rows"):
        partitions._check_files((VotesFile("a", rows + 1, "", (), ""),), names)


class Failing(Release):
    """An aggregator that fails."""

    def release(self, votes: Any, *, rng: Any = None) -> np.ndarray:
        raise LedgerError(f"{type(votes)} {rng}", "it fails")


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_error_of_a_worker_is_one_line(backend: str, folder: Path) -> None:
    joblib = pytest.importorskip("joblib")
    votes = folder / "votes" / NAMES[1]
    content = votes.read_bytes()
    votes.write_bytes(content[:-100])
    message = r"b.parquet' is no Parquet file that can be read, or it is damaged"
    with joblib.parallel_config(backend), pytest.raises(ValueError, match=message) as error:
        release(jobs=2)
    assert "\n" not in str(error.value)
    votes.write_bytes(content)
    with joblib.parallel_config("threading"), pytest.raises(ValueError, match="it fails"):
        release(aggregator=Failing(table_of()), jobs=2)
    assert is_untouched(folder)


@pytest.mark.parametrize(
    ("rows", "while_drawing"),
    [*((rows, False) for rows in (QUERIES - 1, QUERIES, QUERIES + 1, 3 * QUERIES)), (QUERIES, True)],
)
def test_votes_that_change_while_they_are_read_are_not_paid_for(
    rows: int, while_drawing: bool, folder: Path, ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, digests = Release.release, list[str]()
    write_votes(folder / "another", draw_votes(9, rows), np.arange(rows))

    def replace_once() -> None:
        with suppress(FileNotFoundError):
            (folder / "another").replace(folder / "votes" / NAMES[0])  # an open file stays the old one

    def digest_and_replace(path: Path) -> Any:
        digests.append(parquet_file.compute_digest(path))
        if len(digests) == len(NAMES) + 1 and not while_drawing:  # after the survey
            replace_once()
        return digests[-1]

    def replace_and_draw(self: Release, votes: Any, **options: Any) -> Any:
        if while_drawing:
            replace_once()
        return draw(self, votes, **options)

    monkeypatch.setattr(partitions, "compute_digest", digest_and_replace)
    monkeypatch.setattr(Release, "release", replace_and_draw)
    with pytest.raises(ValueError, match="changed after its votes were checked"):
        release()
    assert not ledger.entries()
    assert not os.path.lexists("labels")


def test_file_of_another_program_at_the_output_is_left(
    folder: Path, ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, output = partitions._Run.release, folder / "labels" / NAMES[0]

    def write_and_draw(*arguments: Any) -> Any:
        output.write_text("theirs")
        return draw(*arguments)

    monkeypatch.setattr(partitions._Run, "release", write_and_draw)
    with pytest.raises(ValueError, match=r"a.parquet' exists already: labels are paid for"):
        release()
    assert output.read_text() == "theirs"
    assert not ledger.entries()


# what is published and kept


def test_digests_of_votes_are_private_and_do_not_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Votes could be guessed from a digest."""
    debit, digests = PrivacyLedger.debit, [compute_digest(folder / "votes" / name) for name in NAMES]

    def check_plan_and_debit(self: PrivacyLedger, *arguments: Any, **options: Any) -> int:
        plan = folder / ".labels.release.json"
        assert plan.stat().st_mode & 0o077 == 0
        assert all(digest in plan.read_text() for digest in digests)
        return debit(self, *arguments, **options)

    monkeypatch.setattr(PrivacyLedger, "debit", check_plan_and_debit)
    release()
    files = (path for path in folder.rglob("*") if path.is_file() and "votes" not in path.parts)
    content = b"".join(path.read_bytes() for path in files)
    assert not any(digest.encode() in content or bytes.fromhex(digest) in content for digest in digests)


def test_size_of_a_file_does_not_depend_on_its_labels(tmp_path: Path) -> None:
    sizes = set()
    for name, labels in (("a", np.zeros(1000, int)), ("b", np.ones(1000, int)), ("c", np.arange(1000) % 2)):
        path = tmp_path / name
        with labels_file.label_file(path, [], (0, 1, -1)) as write:
            write(labels, arrow.record_batch({}))
        sizes.add(path.stat().st_size)
        assert parquet.ParquetFile(path).schema_arrow.field("label").type == arrow.int8()
    assert len(sizes) == 1


# releases that stop and go on; `test_kills.py` kills them


def test_one_of_two_releases_at_once_pays_for_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, results = partitions._Run.release, list[ReleasedPartitions]()

    def release_and_draw(self: Any, file: Any) -> Any:
        """Let another process release all files while this one draws the labels of the first one."""
        monkeypatch.setattr(partitions._Run, "release", draw)
        results.append(release())
        return draw(self, file)

    monkeypatch.setattr(partitions._Run, "release", release_and_draw)
    with pytest.raises(DeliveryError, match=r"exists already.*3 of 3 files are delivered"):
        release()
    assert results[0].files == len(NAMES)
    check_whole(folder)


def test_release_stops_at_a_changed_file_and_goes_on_when_it_is_restored(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    votes = folder / "votes" / NAMES[1]
    content, debit = votes.read_bytes(), PrivacyLedger.debit

    def change_and_debit(self: PrivacyLedger, *arguments: Any, **options: Any) -> int:
        write_votes(votes, 1 - draw_votes(1))
        return debit(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(PrivacyLedger, "debit", change_and_debit)
        assert run(lambda: command.main([*WORDS, "--quiet"])) == 3
    error = capsys.readouterr().err
    assert "changed after its votes were checked: put the file back as it was" in error
    assert "1 of 3 files are delivered: release again into the same output" in error
    first_file = (folder / "labels" / NAMES[0]).read_bytes()
    assert run(lambda: command.main([*WORDS, "--quiet"])) == 2  # with other votes it does not go on
    assert "is of another release into this output, which did not end" in capsys.readouterr().err
    votes.write_bytes(content)
    assert run(lambda: command.main([*WORDS, "--quiet"])) == 0
    check_whole(folder)
    assert (folder / "labels" / NAMES[0]).read_bytes() == first_file


def test_delivered_labels_that_are_gone_are_not_paid_for_again(
    folder: Path, ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget, numbers = PrivacyLedger.forget_labels, list[int]()

    def forget_and_interrupt(self: PrivacyLedger, number: int) -> None:
        forget(self, number)
        numbers.append(number)
        if len(numbers) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PrivacyLedger, "forget_labels", forget_and_interrupt)
        with pytest.raises(DeliveryError, match="2 of 3 files are delivered"):
            release()
    (folder / "labels" / NAMES[0]).rename(folder / "aside")
    with pytest.raises(ValueError, match="was paid for and delivered, and is gone: put it back"):
        release()
    assert len(ledger.entries()) == 2
    (folder / "aside").rename(folder / "labels" / NAMES[0])
    release()
    check_whole(folder)


def test_release_whose_ledger_goes_away_continues_when_it_is_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    debit = PrivacyLedger.debit

    def debit_and_move(self: PrivacyLedger, *arguments: Any, **options: Any) -> int:
        number = debit(self, *arguments, **options)
        (folder / "l.sqlite").rename(folder / "away")
        return number

    with monkeypatch.context() as patch:
        patch.setattr(PrivacyLedger, "debit", debit_and_move)
        with pytest.raises(DeliveryError, match="files may be paid for: release again into the same output"):
            release()
    (folder / "away").rename(folder / "l.sqlite")
    release()
    check_whole(folder)


def test_release_whose_receipt_failed_goes_on_and_pays_for_nothing(
    folder: Path, ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(PrivacyLedger, "receipt", raise_error(ZeroDivisionError()))
        with pytest.raises(DeliveryError, match=r"ZeroDivisionError; .* 3 of 3 files are delivered"):
            release()
    assert not Path("labels.receipt.json").exists()
    release()
    check_whole(folder)
    assert json.loads(Path("labels.receipt.json").read_text())["ledger_digest"]["text"] == str(ledger.digest())


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells how much memory a process took")
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    voters = 51
    problem = Problem.from_allowance(Voters(voters, PrivacyParams("0.001")), 1)
    certify(problem, NoiseFunction(voters, [0.01] * (voters // 2 + 1))).save(tmp_path / "table.json")
    script = (
        "import sys; from darrm.release.__main__ import main; from darrm.commands.command_line import run; "
        "status = run(lambda: main(sys.argv[1:])); "
        "print(status, *(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    peaks = []
    for rows in (100_000, 1_000_000):  # 46 MB more of votes of one byte; in the file, one row group, 184 MB more
        votes = np.random.default_rng(0).integers(0, 2, (rows, voters), dtype=np.int8)
        write_parquet(tmp_path / f"{rows}.parquet", name_columns(votes), compression="none", use_dictionary=False)
        words = f"{rows}.parquet --table table.json --ledger {rows}.sqlite --create-budget 1000,0.1 --quiet --output"
        call = [sys.executable, "-c", script, *words.split(), f"labels-{rows}.parquet"]
        process = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
        status, kibibytes = map(int, process.stdout.split())
        assert status == 0, process.stderr
        peaks.append(kibibytes)
        assert parquet.ParquetFile(tmp_path / f"labels-{rows}.parquet").metadata.num_rows == rows
    assert peaks[1] - peaks[0] < 30_000, peaks
