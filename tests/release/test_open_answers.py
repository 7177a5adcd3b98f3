"""Answers that no list names, through every way that reads them; what leaves are strings, or no answer."""

import csv
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.commands.command_line import run
from darrm.errors import DeliveryError
from darrm.ledger.ledger import PrivacyLedger
from darrm.optimize import optimize_table
from darrm.pate import __main__ as pate
from darrm.privacy import PrivacyParams
from darrm.problem import OPEN, Problem, Voters
from darrm.release import __main__ as command
from darrm.release import delivery, open_release, partitions, release_debited
from darrm.release.delivery import check_answered, recover
from darrm.release.partitions import release_partitions
from darrm.table.release import Release
from darrm.verify import __main__ as verify
from darrm.verify.files import read_labels
from darrm.votes import Votes
from darrm.votes.labels_file import labels_digest, save_labels
from tests.doors import refused
from tests.release.support import MajorityAnswer, write_parquet
from tests.votes.test_open_votes import STRANGE

ROWS = [[word, "other", word] for word in STRANGE] + [["all", "of them", "differ"]]
LABELS = [*STRANGE, None]


@pytest.fixture
def answers_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, where table.json answers with the majority of open answers."""
    monkeypatch.setattr(command, "load_release", lambda _: MajorityAnswer())
    monkeypatch.setattr(partitions, "make_document", lambda _: {"format": "majority answer"})
    return folder


def write(path: Path, rows: list[list[str]]) -> None:
    if path.suffix == ".npy":
        np.save(path, np.array(rows))
    elif path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\r\n", quoting=csv.QUOTE_ALL).writerows(rows)
    else:
        arrow = pytest.importorskip("pyarrow")
        columns = {f"v{k}": arrow.array([row[k] for row in rows], arrow.string()) for k in range(len(rows[0]))}
        write_parquet(path, {**columns, "v0": columns["v0"].dictionary_encode()})


def read(path: Path) -> list[str | None]:
    if path.suffix == ".parquet":
        labels: list[str | None] = pytest.importorskip("pyarrow.parquet").read_table(path)["label"].to_pylist()
        return labels
    return [label or None for label in read_labels(path).labels.tolist()]


def release_words(*words: str) -> int:
    return run(lambda: command.main([*words, "--table", "table.json", "--ledger", "l.sqlite"]))


def ask(questions: str, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    Path("questions").write_bytes(questions.encode())
    with Path("questions").open("rb") as file:
        monkeypatch.setattr(sys, "stdin", file)
        return release_words("stream", "--quiet", *words)


@pytest.mark.parametrize(
    ("votes", "labels"), [("v.csv", "l.csv"), ("v.npy", "l.npy"), ("v.csv", "l.npy"), ("v.parquet", "l.parquet")]
)
def test_strings_of_any_kind_are_released(votes: str, labels: str, answers_folder: Path, ledger: PrivacyLedger) -> None:
    write(answers_folder / votes, ROWS)
    assert release_words(votes, "--output", labels) == 0
    assert read(answers_folder / labels) == LABELS
    assert ledger.accountant().queries == len(ROWS)
    assert run(lambda: verify.main(["l.sqlite", labels, f"{labels}.receipt.json", "--quiet"])) == 0


def test_file_is_as_wide_as_its_longest_label(tmp_path: Path) -> None:
    save_labels(tmp_path / "short.npy", np.array(["ab", None], dtype=object))
    assert np.load(tmp_path / "short.npy").dtype == np.dtype("<U2")
    save_labels(tmp_path / "none.csv", np.array([None, None], dtype=object))
    assert (tmp_path / "none.csv").read_bytes() == b'""\n""\n'
    no_answer, word = (np.array(["a", label], dtype=object) for label in (None, "None"))
    assert labels_digest(no_answer) != labels_digest(word)


@pytest.mark.usefixtures("answers_folder")
def test_strings_are_recovered(ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(delivery, "save_labels", lambda *_: os.fsync(-1))
        with pytest.raises(DeliveryError):
            release_debited(MajorityAnswer(), Votes.from_answers(ROWS), ledger=ledger, output="l.csv")
    (entry,) = ledger.undelivered()
    assert recover(ledger, entry.number, "l.csv").tolist() == [label or "" for label in LABELS]
    assert read(Path("l.csv")) == LABELS
    assert ledger.undelivered() == ()
    assert release_debited(MajorityAnswer(), Votes.from_answers(ROWS), ledger=ledger).tolist() == LABELS


@pytest.mark.usefixtures("answers_folder", "ledger")
def test_stream_answers_with_strings(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    questions = "".join(json.dumps(row) + "\n" for row in ROWS)
    assert ask(questions, monkeypatch, "--format", "json") == 0
    answers = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert answers == [{"query": number, "label": label} for number, label in enumerate(LABELS, 1)]
    rows = [row for row in ROWS if "\n" not in row[0]]
    lines = (",".join('"' + word.replace('"', '""') + '"' for word in row) + "\n" for row in rows)
    assert ask("".join(lines), monkeypatch, "--stream", "b") == 0
    Path("answers.csv").write_text(capfd.readouterr().out, encoding="utf-8", newline="")
    assert read(Path("answers.csv")) == [label for label in LABELS if label != "two\nlines"]
    assert Path("answers.csv").read_text(encoding="utf-8").endswith(f"\n{len(rows)},\n")


def test_unacknowledged_strings_are_handed_out_again(ledger: PrivacyLedger) -> None:
    open_release(MajorityAnswer(), ledger).answer(["a", "b", "c"])  # then its process dies
    second = open_release(MajorityAnswer(), ledger)
    assert second.waiting() == [None]
    assert second.answer(["None", "None", "c"]) == "None"
    third = open_release(MajorityAnswer(), ledger)
    assert (third.waiting(), third.answered) == (["None"], 2)


@pytest.mark.parametrize("way", ["votes.csv", "votes.parquet", "stream", "python"])
def test_log_names_the_normalization_of_answers(
    way: str, answers_folder: Path, ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, options = [["Flu ", "flu", "cold"]], ["--classes", "open", "--normalize", "casefold,strip", "--note", "mine"]
    if way == "stream":
        assert ask("Flu ,flu,cold\n", monkeypatch, *options) == 0
    elif way == "python":
        votes = Votes.from_answers(rows, normalize="casefold,strip")
        release_debited(MajorityAnswer(), votes, ledger=ledger, note="mine")
    else:
        output = way.replace("votes", "labels")
        write(answers_folder / way, rows)
        assert release_words(way, *options, "--output", output) == 0
        assert read(answers_folder / output) == ["flu"]
    assert [entry.note for entry in ledger.entries()] == ["mine; answers normalized by casefold,strip"]


def test_folder_of_answers_continues_after_a_failure(
    answers_folder: Path, ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        write(answers_folder / "votes" / f"{name}.parquet", ROWS)
    with monkeypatch.context() as patch:
        patch.setattr(partitions.PartitionDestination, "publish", lambda *_: os.fsync(-1))
        with pytest.raises(DeliveryError):
            release_partitions(MajorityAnswer(), "votes", ledger=ledger, output="labels", normalize="casefold")
    wrong_options: tuple[tuple[Any, str], ...] = (
        ({"normalize": str.upper}, "normalize must be a str, .* a function cannot be written into the plan"),
        ({"missing": "coin"}, "must be 'refuse', or 'blank' for open answers"),
    )
    for options, message in wrong_options:
        with pytest.raises(ValueError, match=message):
            release_partitions(MajorityAnswer(), "votes", ledger=ledger, output="more", **options)
    result = release_partitions(MajorityAnswer(), "votes", ledger=ledger, output="labels", normalize="casefold")
    assert result.rows == ledger.accountant().queries == 2 * len(ROWS)
    for name in "ab":
        labels = read(answers_folder / "labels" / f"{name}.parquet")
        assert labels == [label and label.casefold() for label in LABELS]
    assert run(lambda: verify.main(["l.sqlite", "labels", "labels.receipt.json", "--quiet"])) == 0


# missing answers


@pytest.mark.parametrize("way", [".csv", ".npy", ".parquet", "json", "lines"])
@pytest.mark.usefixtures("ledger")
def test_missing_answers_count_for_no_string(
    way: str, answers_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    rows: list[list[Any]] = [["", "b", ""], ["a", "", "a"], ["NA", "NA", ""]]
    labels: list[str | None]
    if way == "json":
        questions = "".join(json.dumps([word or None for word in row]) + "\n" for row in rows)
        assert ask(questions, monkeypatch, "--missing", "blank", "--format", "json") == 0
        labels = [json.loads(line)["label"] for line in capfd.readouterr().out.splitlines()]
    elif way == "lines":
        assert ask("".join(",".join(row) + "\n" for row in rows), monkeypatch, "--missing", "blank") == 0
        labels = [line.partition(",")[2] or None for line in capfd.readouterr().out.splitlines()]
    else:
        missing: Any = None if way == ".parquet" else ""
        write(answers_folder / f"v{way}", [[word or missing for word in row] for row in rows])
        assert release_words(f"v{way}", "--output", f"l{way}", "--missing", "blank") == 0
        labels = read(answers_folder / f"l{way}")
        assert ("4 of 9 answers are missing and count for no string" in capfd.readouterr().err) == (way != ".parquet")
    assert labels == [None, "a", "NA"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[None] * 3], "query 0: leave it out"),
        ([[1, None, None], [None] * 3, [0, 0, 0]], "query 1: leave it out"),
        ([[None] * 3] * 5, "queries 0, 1, 2, 3, 4: leave them out"),
        ([[None] * 3] * 7, "queries 0, 1, 2, 3, 4 and 2 more: leave them out"),
    ],
)
@pytest.mark.parametrize("is_open", [False, True])
def test_queries_without_a_vote_are_named(rows: Any, message: str, is_open: bool) -> None:
    words: Any = [[None if vote is None else f"w{vote}" for vote in row] for row in rows]
    votes = Votes.from_answers(words, missing="blank") if is_open else Votes.from_labels(rows, missing="coin")
    with pytest.raises(ValueError, match=message):
        check_answered(votes)
    check_answered(votes[:0])


def test_queries_without_a_vote_are_refused_in_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("v.csv").write_text("1,0,1\n" * 20 + ",,\n" * 3)
    before = set(folder.iterdir())
    words = "v.csv --table table.json --ledger l.sqlite --create-budget 3,0 --missing coin --output l.csv --quiet"
    refused(command.main, words, "none for queries 20, 21, 22: leave them out", capsys)
    assert set(folder.iterdir()) == before


def test_queries_without_a_vote_are_refused_in_parquet_files(folder: Path, ledger: PrivacyLedger) -> None:
    rows = [["a", "b", "a"]] * 3 + [[None] * 3] + [["a", None, None]]
    write(folder / "v.parquet", rows)  # type: ignore[arg-type]
    problem = Problem(Voters(3, PrivacyParams("inf"), overlap=1), PrivacyParams("0.1"), OPEN)
    release = Release(optimize_table(problem))
    with pytest.raises(ValueError, match=r"v\.parquet.*none for query 3: leave it out"):
        release_partitions(release, "v.parquet", output="o.parquet", ledger=ledger, missing="blank")
    assert ledger.entries() == ()


@pytest.mark.usefixtures("answers_folder")
@pytest.mark.parametrize(
    ("questions", "options"), [("1,,1\n,,\n", ()), ('["1",null,"1"]\n[null,null,null]\n', ("--format", "json"))]
)
def test_question_without_a_vote_ends_a_stream(
    questions: str,
    options: tuple[str, ...],
    ledger: PrivacyLedger,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert ask(questions, monkeypatch, "--missing", "blank", *options) == 2
    assert "line 2 has no vote at all: leave the question out" in capfd.readouterr().err
    assert [entry.count for entry in ledger.entries()] == [1]


def test_votes_in_memory_without_a_vote_are_answered(ledger: PrivacyLedger, aggregator: Release) -> None:
    """A refusal would reveal that all prompts failed."""
    votes = Votes.from_labels(np.full((1, 3), None), missing="coin")
    assert release_debited(aggregator, votes, ledger=ledger).size == 1


# what is refused


def write_bytes(path: Path) -> None:
    """Write a column of strings with a byte that is no UTF-8."""
    arrow = pytest.importorskip("pyarrow")
    offsets, content = arrow.py_buffer(np.array([0, 1, 2, 4], dtype=np.int32)), arrow.py_buffer(b"aa\xe9a")
    column = arrow.Array.from_buffers(arrow.string(), 3, [None, offsets, content])
    write_parquet(path, {"v0": column, "v1": ["a"] * 3, "v2": ["a"] * 3})


REFUSED: list[tuple[str, Callable[[Path], Any], str]] = [
    ("v.csv", lambda path: path.write_text("a,b,c\na,,c\n"), "line 2, field 2: an answer must be text with"),
    ("v.csv", lambda path: path.write_text("a,b\n"), "of K = 3 voters, got 2 columns"),
    ("v.csv", lambda path: path.write_text(f"a,b,{'c' * 201}\n"), "line 1, field 3: .* at most 200 characters"),
    ("v.npy", lambda path: np.save(path, [[1, 2, 3]]), "open answers are text, and its type is int64"),
    ("v.parquet", lambda path: write(path, [["a", "b", "c"], ["a", "b", None]]), "row 1, column 'v2': an answer"),  # type: ignore[list-item]
    ("v.parquet", lambda path: write(path, [["a", "b", "c"], ["a", "", "c"]]), "row 1, column 'v1': an answer must"),
    ("v.parquet", lambda path: write(path, [["a", "b", "c", "d"]]), "3 columns, one a voter"),
    ("v.parquet", write_bytes, r"v\.parquet', row 2, column 'v0': "),
]


@pytest.mark.parametrize(("name", "write_file", "message"), REFUSED)
def test_file_without_answers_is_refused(
    name: str, write_file: Callable[[Path], Any], message: str, tmp_path: Path
) -> None:
    write_file(tmp_path / name)
    with pytest.raises(ValueError, match=message) as error:
        Votes.read(tmp_path / name, classes=OPEN, voters=3)
    assert "\n" not in str(error.value)
    assert type(error.value) is ValueError


def test_word_of_a_dictionary_that_no_voter_answers_is_ignored(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    column = arrow.DictionaryArray.from_arrays([1, 1], ["", "a", "b"])
    write_parquet(tmp_path / "v.parquet", {"v": column})
    assert Votes.read(tmp_path / "v.parquet", classes=OPEN).names == ("a",)
    write_parquet(tmp_path / "none.parquet", {"v": column.slice(0, 0)})
    assert Votes.read(tmp_path / "none.parquet", classes=OPEN, normalize="strip").queries == 0


@pytest.mark.parametrize(
    ("is_open", "options", "message"),
    [
        (True, ["--classes", "a,b"], "--classes must be open, or left out, got 'a,b'"),
        (False, ["--classes", "open"], "--classes must be two different labels, like no,yes, got 'open': table.json"),
        (False, ["--normalize", "strip"], "normalize (--normalize) must be left out where classes are listed"),
    ],
)
def test_options_of_the_other_kind_of_classes_are_refused(
    is_open: bool,
    options: list[str],
    message: str,
    folder: Path,
    ledger: PrivacyLedger,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if is_open:
        monkeypatch.setattr(command, "load_release", lambda _: MajorityAnswer())
    write(folder / "v.csv", ROWS)
    assert release_words("v.csv", "--output", "l.csv", *options) == 2
    assert message in capsys.readouterr().err
    assert ledger.entries() == ()


def test_analysis_of_pate_refuses_open_answers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder / "v.csv", ROWS)
    words = "v.csv --classes open --sigma2 40 --delta 1e-5"
    refused(pate.main, words, "votes must be about classes that are listed, got open answers", capsys)
