"""Answers that nobody listed, through every door that reads them, and what leaves: strings, or no answer."""

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
from darrm.errors import DarrmError, DeliveryError
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.privacy_cost import PrivacyCost
from darrm.majority.noise_function import NoiseFunction
from darrm.optimize import optimize_table
from darrm.pate import __main__ as pate
from darrm.privacy import PrivacyParams
from darrm.problem import OPEN, Problem, Voters
from darrm.release import __main__ as command
from darrm.release import delivery, open_release, partitions, release_debited
from darrm.release.delivery import check_answered, recover
from darrm.release.partitions import release_partitions
from darrm.table.release import Release
from darrm.table.table import certify
from darrm.verify import __main__ as verify
from darrm.verify.files import read_labels
from darrm.votes import ABSTAIN, Votes
from darrm.votes.labels_file import labels_digest, save_labels
from tests.serve.deployments import table as votes_table
from tests.votes.test_open_votes import STRANGE

ROWS = [[word, "other", word] for word in STRANGE] + [["all", "of them", "differ"]]
LABELS = [*STRANGE, None]


class MostSaid:
    """Answers with the string that more than half of three voters say: no privacy, so that a test can foretell it."""

    voters, classes = Voters(3, PrivacyParams("inf"), overlap=1), OPEN
    guarantee = PrivacyParams(1)

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        return PrivacyCost("open answers of 3", guarantee=self.guarantee).repeat(queries)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Any:  # noqa: ARG002
        places = np.full(votes.require_voters(3).queries, ABSTAIN)
        queries, columns = votes.sparse.nonzero()
        many = votes.sparse.data >= 2
        places[queries[many]] = columns[many]
        return votes.name_labels(places)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(command, "load_release", lambda _: MostSaid())
    monkeypatch.setattr(partitions, "make_document", lambda _: {"format": "most said"})
    PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(1000, "0.1"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, rows: list[list[str]]) -> None:
    if path.suffix == ".npy":
        np.save(path, np.array(rows))
    elif path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\r\n", quoting=csv.QUOTE_ALL).writerows(rows)
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        columns = {f"v{k}": [row[k] for row in rows] for k in range(len(rows[0]))}
        columns["v0"] = arrow.array(columns["v0"]).dictionary_encode()
        parquet.write_table(arrow.table(columns), path)


def read(path: Path) -> list[str | None]:
    if path.suffix == ".parquet":
        labels: list[str | None] = pytest.importorskip("pyarrow.parquet").read_table(path)["label"].to_pylist()
        return labels
    return [label or None for label in read_labels(path).labels.tolist()]


def do(*words: str) -> int:
    return run(lambda: command.main([*words, "--ledger", "l.sqlite", "--quiet"]))


def paid(folder: Path) -> int:
    return PrivacyLedger(folder / "l.sqlite").accountant().queries


@pytest.mark.parametrize(
    ("votes", "labels"),
    [("v.csv", "l.csv"), ("v.npy", "l.npy"), ("v.csv", "l.npy"), ("v.parquet", "l.parquet")],
)
def test_what_was_said_leaves_as_it_was_said(votes: str, labels: str, folder: Path) -> None:
    write(folder / votes, ROWS)
    assert do("file", votes, "--table", "t.json", "--output", labels) == 0
    assert read(folder / labels) == LABELS
    assert paid(folder) == len(ROWS)
    assert run(lambda: verify.main(["l.sqlite", labels, f"{labels}.receipt.json", "--quiet"])) == 0
    counted = Votes.read(folder / votes, classes="open", voters=3)
    assert MostSaid().release(counted).tolist() == LABELS


def test_a_file_is_as_wide_as_the_labels_not_as_the_answers(tmp_path: Path) -> None:
    save_labels(tmp_path / "short.npy", np.array(["ab", None], dtype=object))
    assert np.load(tmp_path / "short.npy").dtype == np.dtype("<U2")
    save_labels(tmp_path / "none.csv", np.array([None, None], dtype=object))
    assert (tmp_path / "none.csv").read_bytes() == b'""\n""\n'
    no_answer, word = (np.array(["a", label], dtype=object) for label in (None, "None"))
    assert labels_digest(no_answer) != labels_digest(word)


def test_classes_are_not_listed_for_open_answers(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(folder / "v.csv", ROWS)
    assert do("file", "v.csv", "--table", "t.json", "--output", "l.csv", "--classes", "a,b") == 2
    assert "--classes must be open, or left out, got 'a,b'" in capfd.readouterr().err
    assert paid(folder) == 0


def test_what_was_paid_for_and_not_delivered_is_recovered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = PrivacyLedger(folder / "l.sqlite")
    with monkeypatch.context() as broken:
        broken.setattr(delivery, "save_labels", lambda *_: os.fsync(-1))
        with pytest.raises(DeliveryError):
            release_debited(MostSaid(), Votes.from_answers(ROWS), ledger=ledger, output=folder / "l.csv")
    (entry,) = ledger.undelivered()
    assert recover(ledger, entry.number, folder / "l.csv").tolist() == [label or "" for label in LABELS]
    assert read(folder / "l.csv") == LABELS
    assert ledger.undelivered() == ()
    handed = release_debited(MostSaid(), Votes.from_answers(ROWS), ledger=ledger)
    assert handed.tolist() == LABELS


def ask(folder: Path, questions: str, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    (folder / "questions").write_bytes(questions.encode())
    with (folder / "questions").open("rb") as file:
        monkeypatch.setattr(sys, "stdin", file)
        return do("stream", "--table", "t.json", *words)


def test_a_stream_answers_with_strings(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = "".join(json.dumps(row) + "\n" for row in ROWS)
    assert ask(folder, asked, monkeypatch, "--format", "json") == 0
    answers = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert answers == [{"query": number, "label": label} for number, label in enumerate(LABELS, 1)]
    rows = [row for row in ROWS if "\n" not in row[0]]
    assert ask(folder, "".join(",".join(map(quoted, row)) + "\n" for row in rows), monkeypatch, "--stream", "b") == 0
    (folder / "answers.csv").write_text(capfd.readouterr().out, encoding="utf-8", newline="")
    assert read(folder / "answers.csv") == [label for label in LABELS if label != "two\nlines"]
    assert (folder / "answers.csv").read_text(encoding="utf-8").endswith(f"{len(rows)},\n")


def quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def test_answers_that_wait_are_handed_out_again(folder: Path) -> None:
    ledger = PrivacyLedger(folder / "l.sqlite")
    open_release(MostSaid(), ledger).answer(["a", "b", "c"])  # and its process dies
    again = open_release(MostSaid(), ledger)
    assert again.waiting() == [None]
    assert again.answer(["None", "None", "c"]) == "None"
    third = open_release(MostSaid(), ledger)
    assert (third.waiting(), third.answered) == (["None"], 2)


@pytest.mark.parametrize("door", ["file", "stream", "folder", "python"])
def test_what_was_done_to_the_answers_is_in_the_log(door: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, flags = [["Flu ", "flu", "cold"]], ["--classes", "open", "--normalize", "casefold,strip"]
    if door == "stream":
        assert ask(folder, "Flu ,flu,cold\n", monkeypatch, *flags, "--note", "mine") == 0
    elif door == "python":
        votes = Votes.from_answers(rows, normalize="casefold,strip")
        release_debited(MostSaid(), votes, ledger=PrivacyLedger(folder / "l.sqlite"), note="mine")
    else:
        name = "votes.csv" if door == "file" else "votes.parquet"
        write(folder / name, rows)
        output = f"labels{Path(name).suffix}"
        assert do("file", name, "--table", "t.json", *flags, "--note", "mine", "--output", output) == 0
        assert read(folder / output) == ["flu"]
    (entry,) = PrivacyLedger(folder / "l.sqlite").entries()
    assert entry.note == "mine; answers normalized by casefold,strip"


def test_a_folder_of_answers_is_drawn_again_where_it_was_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "votes").mkdir()
    for name in "ab":
        write(folder / "votes" / f"{name}.parquet", ROWS)
    ledger = PrivacyLedger(folder / "l.sqlite")
    with monkeypatch.context() as broken:
        broken.setattr(partitions.PartitionDestination, "publish", lambda *_: os.fsync(-1))
        with pytest.raises(DeliveryError):
            release_partitions(MostSaid(), "votes", ledger=ledger, output="labels", normalize="casefold")
    for named, message in (
        ({"normalize": str.upper}, "normalize must be a str, .* a function cannot be written into the plan"),
        ({"missing": "coin"}, "must be 'refuse', or 'blank' for open answers"),
    ):
        with pytest.raises(ValueError, match=message):
            release_partitions(MostSaid(), "votes", ledger=ledger, output="more", **named)
    done = release_partitions(MostSaid(), "votes", ledger=ledger, output="labels", normalize="casefold")
    assert (done.rows, paid(folder)) == (2 * len(ROWS), 2 * len(ROWS))
    for name in "ab":
        expected = [label and label.casefold() for label in LABELS]
        assert read(folder / "labels" / f"{name}.parquet") == expected
    assert run(lambda: verify.main(["l.sqlite", "labels", "labels.receipt.json", "--quiet"])) == 0


def test_open_answers_are_refused_where_classes_are_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    table = certify(Problem.from_allowance(Voters(3, PrivacyParams("0.02")), 3), NoiseFunction(3, [0, 0.05]))
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    table.save(folder / "t.json")
    write(folder / "v.csv", ROWS)
    for words, message in (
        (["--classes", "open"], "--classes must be two different labels, like no,yes, got 'open': t.json is for 2"),
        (["--normalize", "strip"], "normalize (--normalize) must be left out where classes are listed, got 'strip'"),
    ):
        assert do("file", "v.csv", "--table", "t.json", "--output", "l.csv", *words) == 2
        assert message in capfd.readouterr().err
    assert run(lambda: pate.main(["v.csv", "--classes", "open", "--sigma2", "40", "--delta", "1e-5"])) == 2
    assert "votes must be about classes that are listed, got open answers" in capfd.readouterr().err


@pytest.mark.parametrize("door", [".csv", ".npy", ".parquet", "json", "lines"])
def test_answers_that_are_missing_count_for_no_string(
    door: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [["", "b", ""], ["a", "", "a"], ["NA", "NA", ""]]
    if door == ".parquet":
        rows = [[None if word == "" else word for word in row] for row in rows]  # type: ignore[misc]
    if door in {"json", "lines"}:
        said = json.dumps(rows).replace('""', "null").replace("], ", "]\n")[1:-1] + "\n"
        said = said if door == "json" else "".join(",".join(row) + "\n" for row in rows)
        more = ["--format", "json"] if door == "json" else []
        assert ask(folder, said, monkeypatch, "--missing", "blank", *more) == 0
        out = capfd.readouterr().out.splitlines()
        labels = [json.loads(line)["label"] if more else line.partition(",")[2] or None for line in out]
    else:
        write(folder / f"v{door}", rows)
        words = ["file", f"v{door}", "--table", "t.json", "--output", f"l{door}", "--ledger", "l.sqlite"]
        assert run(lambda: command.main([*words, "--missing", "blank"])) == 0
        labels = read(folder / f"l{door}")
        assert ("4 of 9 answers are missing and count for no string" in capfd.readouterr().err) == (door != ".parquet")
    assert labels == [None, "a", "NA"]
    assert do("stream", "--table", "t.json", "--missing", "drop") == 2


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "an empty field": (lambda path: path.write_text("a,b,c\na,,c\n"), "line 2, field 2: an answer must be text with"),
    "other voters": (lambda path: path.write_text("a,b\n"), "of K = 3 voters, got 2 columns"),
    "too long": (lambda path: path.write_text(f"a,b,{'c' * 201}\n"), "line 1, field 3: .* at most 200 characters"),
    "no text": (lambda path: np.save(path, [[1, 2, 3]]), "open answers are text, and its type is int64"),
    "a null": (
        lambda path: write(path, [["a", "b", "c"], ["a", "b", None]]),  # type: ignore[list-item]
        "row 1, column 'v2': an answer must be text with at least one",
    ),
    "an empty string": (
        lambda path: write(path, [["a", "b", "c"], ["a", "", "c"]]),
        "row 1, column 'v1': an answer must be text with at least one",
    ),
    "four columns": (lambda path: write(path, [["a", "b", "c", "d"]]), "3 columns, one a voter"),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_that_hold_no_answers_are_named(case: str, tmp_path: Path) -> None:
    spoil, message = WRONG[case]
    suffix = {"no text": ".npy", "a null": ".parquet", "an empty string": ".parquet", "four columns": ".parquet"}
    path = tmp_path / f"votes{suffix.get(case, '.csv')}"
    spoil(path)
    with pytest.raises(ValueError, match=message) as caught:
        Votes.read(path, classes=OPEN, voters=3)
    assert "\n" not in str(caught.value)


def test_words_of_a_dictionary_that_nobody_said_are_not_said(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = arrow.DictionaryArray.from_arrays([1, 1], ["", "a", "b"])
    parquet.write_table(arrow.table({"v": column}), tmp_path / "v.parquet")
    assert Votes.read(tmp_path / "v.parquet", classes=OPEN).names == ("a",)
    parquet.write_table(arrow.table({"v": column.slice(0, 0)}), tmp_path / "none.parquet")
    assert Votes.read(tmp_path / "none.parquet", classes=OPEN, normalize="strip").queries == 0


def test_bytes_that_are_no_text_are_named_with_their_row(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    offsets, content = arrow.py_buffer(np.array([0, 1, 2, 4], dtype=np.int32)), arrow.py_buffer(b"aa\xe9a")
    column = arrow.Array.from_buffers(arrow.string(), 3, [None, offsets, content])
    parquet.write_table(arrow.table({"v": column}), tmp_path / "v.parquet")
    with pytest.raises(ValueError, match=r"v\.parquet', row 2, column 'v': ") as caught:
        Votes.read(tmp_path / "v.parquet", classes=OPEN)
    assert type(caught.value) is ValueError


# queries of a file or a stream that nobody answered are neither answered nor paid for

_OPEN = Release(optimize_table(Problem(Voters(3, PrivacyParams("inf"), overlap=1), PrivacyParams("0.1"), OPEN)))


def ledger_of(folder: Path) -> PrivacyLedger:
    return PrivacyLedger.create(folder / "l.sqlite", PrivacyParams(10, "0.1"))


def test_a_file_with_lines_of_commas_is_refused_with_their_numbers_and_leaves_no_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    votes_table().save(tmp_path / "t.json")
    (tmp_path / "v.csv").write_text("1,0,1\n" * 20 + ",,\n" * 3)
    words = [str(tmp_path / "v.csv"), "--table", str(tmp_path / "t.json"), "--ledger", str(tmp_path / "l.sqlite")]
    words += ["--create-budget", "3,0", "--missing", "coin", "--output", str(tmp_path / "labels.csv"), "--quiet"]
    assert run(lambda: command.main(words)) == 2
    assert "none for queries 20, 21, 22: leave them out" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json", "v.csv"]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([[None] * 3], "query 0: leave it out"),
        ([[1, None, None], [None] * 3, [0, 0, 0]], "query 1: leave it out"),
        ([[None] * 3] * 7, "queries 0, 1, 2, 3, 4 and 2 more: leave them out"),
    ],
)
@pytest.mark.parametrize("kind", ["labels", "answers"])
def test_queries_without_a_vote_are_named(rows: Any, named: str, kind: str) -> None:
    words: Any = [[None if vote is None else f"w{vote}" for vote in row] for row in rows]
    votes = Votes.from_labels(rows, missing="coin") if kind == "labels" else Votes.from_answers(words, missing="blank")
    with pytest.raises(ValueError, match=named):
        check_answered(votes)
    check_answered(votes[:0])


def test_votes_in_memory_are_answered_so_that_a_failure_of_all_prompts_is_not_seen(tmp_path: Path) -> None:
    rows: Any = [[None] * 3]
    ledger, votes = ledger_of(tmp_path), Votes.from_labels(rows, missing="coin")
    assert release_debited(Release(votes_table()), votes, ledger=ledger).size == 1


@pytest.mark.parametrize("more", [[], ["--format", "json"]])
@pytest.mark.parametrize("missing", ["coin", "blank"])
def test_a_line_of_a_stream_is_named_and_ends_it_unpaid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], missing: str, more: list[str]
) -> None:
    ledger = ledger_of(tmp_path)
    monkeypatch.setattr(command, "load_release", lambda _: Release(votes_table()) if missing == "coin" else _OPEN)
    one = '"1"' if more and missing == "blank" else "1"
    lines = f"[{one},null,{one}]\n[null,null,null]\n" if more else "1,,1\n,,\n"
    (tmp_path / "lines").write_text(lines)
    words = ["stream", "--table", "t.json", "--ledger", str(tmp_path / "l.sqlite"), "--missing", missing, "--quiet"]
    with (tmp_path / "lines").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert run(lambda: command.main([*words, *more])) == 2
    assert "line 2 has no vote at all: leave the question out" in capfd.readouterr().err
    assert [entry.count for entry in ledger.entries()] == [1]


def test_a_row_of_nulls_in_parquet_is_named_before_the_debit(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = np.array([["a", "b", "a"]] * 3 + [[None] * 3] + [["a", None, None]])
    columns = arrow.table({f"v{n}": arrow.array(rows[:, n].tolist(), arrow.string()) for n in range(3)})
    parquet.write_table(columns, tmp_path / "v.parquet", row_group_size=2)
    ledger = ledger_of(tmp_path)
    with pytest.raises((ValueError, DarrmError), match=r"v\.parquet.*none for query 3: leave it out"):
        release_partitions(
            _OPEN, tmp_path / "v.parquet", output=tmp_path / "o.parquet", ledger=ledger, classes="open", missing="blank"
        )
    assert ledger.entries() == ()
