"""The command that releases: formats of votes and labels, what it reports, what it refuses before anything is paid."""

import gzip
import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.account import __main__ as account
from darrm.commands.command_line import run
from darrm.ledger.ledger import PrivacyLedger, printable
from darrm.majority import baselines
from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.privacy import PrivacyParams
from darrm.problem import OPEN, Problem, Voters
from darrm.release import __main__ as command
from darrm.table.release import Release
from darrm.table.table import certify
from darrm.verify.__main__ import main as verify
from darrm.votes import ABSTAIN, ROWS_AT_ONCE, Votes
from darrm.votes.labels_file import load_labels
from tests.doors import one_error, refused, releasing
from tests.release.support import MAJORITIES, VOTES, MajorityAnswer, name_columns, raise_error, table_of, write_parquet

CREATE = ("--create-budget", "2,1e-3")
IDS = ["first, of all", "2", 'the "third"', "é"]
PLAIN = "".join(",".join(map(str, row)) + "\n" for row in VOTES)
NAMED = "north,south,west\n" + PLAIN
WITH_IDS = "query,a,b,c\n" + "".join(
    f'"{name.replace(chr(34), chr(34) * 2)}",{line}\n' for name, line in zip(IDS, PLAIN.split(), strict=True)
)


def write_folder(path: Path) -> None:
    write_parquet(path / "1.parquet", name_columns(VOTES[:3]))
    write_parquet(path / "2.parquet", name_columns(VOTES[3:]))


WRITERS: dict[str, Callable[[Path], Any]] = {
    "plain.csv": lambda path: path.write_text(PLAIN),
    "named.csv": lambda path: path.write_text(NAMED),
    "small.csv.gz": lambda path: path.write_bytes(gzip.compress(NAMED.encode())),
    "one.npz": lambda path: np.savez_compressed(path, votes=np.array(VOTES)),
    "array.npy": lambda path: np.save(path, VOTES),
    "columns.parquet": lambda path: write_parquet(path, name_columns(VOTES)),
    "lists.parquet": lambda path: write_parquet(path, {"votes": VOTES}),
    "folder": write_folder,
}


def verify_release(folder: Path, output: str) -> int:
    files = (folder / name for name in ("table.json", "l.sqlite", output, f"{output}.receipt.json"))
    return run(lambda: verify([*map(str, files)]))


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("output", ["labels.csv", "labels.npy", "labels.parquet"])
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.usefixtures("ledger")
def test_votes_of_any_format_become_labels_of_any_format(
    name: str, output: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if output.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    WRITERS[name](folder / name)
    assert releasing(folder, name, output=output) == 0
    path = folder / output
    parts = sorted(path.iterdir()) if path.is_dir() else [path]
    assert [int(label) for part in parts for label in load_labels(part).tolist()] == MAJORITIES
    assert verify_release(folder, output) == 0
    assert "never paid" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ids.tsv", "ids.csv.gz", "ids.parquet"])
@pytest.mark.parametrize("output", ["labels.csv", "labels.parquet"])
@pytest.mark.usefixtures("ledger")
def test_ids_of_queries_are_written_beside_their_labels(name: str, output: str, folder: Path) -> None:
    if name.endswith(".parquet"):
        write_parquet(folder / name, {"query": IDS, **name_columns(VOTES)})
    elif name.endswith(".gz"):
        (folder / name).write_bytes(gzip.compress(WITH_IDS.encode()))
    else:
        (folder / name).write_text(re.sub(",(?! )", "\t", WITH_IDS), encoding="utf-8")
    assert releasing(folder, name, "--id", "query", output=output) == 0
    if output.endswith(".csv"):
        text = (folder / output).read_text(encoding="utf-8")
        assert text == 'query,label\n"first, of all",1\n2,0\n"the ""third""",1\né,0\n'
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        assert parquet.read_table(folder / output).to_pydict() == {"query": IDS, "label": MAJORITIES}
    assert verify_release(folder, output) == 0


@pytest.mark.usefixtures("ledger")
def test_columns_are_chosen_by_their_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "more.csv").write_text("c,note,a,query,b\n0,x,1,p,1\n0,y,0,q,0\n")
    assert releasing(folder, "more.csv", "--columns", "a,b,c", "--id", "query", output="labels.csv") == 0
    assert (folder / "labels.csv").read_text() == "query,label\np,1\nq,0\n"
    assert "line 1 of more.csv names the voters and is no query: 'a', 'b', 'c'" in capsys.readouterr().err
    (folder / "counts.csv").write_text("yes,no\n3,0\n1,2\n")
    assert releasing(folder, "counts.csv", "--classes", "no,yes", output="words.csv") == 0
    assert (folder / "words.csv").read_text() == "yes\nno\n"


@pytest.mark.usefixtures("ledger")
def test_recovered_labels_have_the_order_of_the_queries(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "ids.csv").write_text(WITH_IDS, encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr("darrm.release.delivery.save_labels", raise_error(OSError("no space left")))
        assert releasing(folder, "ids.csv", "--id", "query", output="labels.csv") == 3
    assert run(lambda: command.main(["recover", "1", "--ledger", "l.sqlite", "--output", "labels.csv"])) == 0
    assert (folder / "labels.csv").read_text() == "1\n0\n1\n0\n"


def test_report_names_labels_budget_and_receipt(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert releasing(folder, "votes.csv", *CREATE, "--population", "ward 7", output="labels.csv") == 0
    ledger = PrivacyLedger(folder / "l.sqlite")
    assert (ledger.population, ledger.budget) == ("ward 7", PrivacyParams(2, "1e-3"))
    labels, budget, spent, receipt, digest = capsys.readouterr().out.splitlines()
    assert labels.startswith("4 labels written to ")
    assert budget == "budget: (2, 0.001), which all labels together keep to"
    assert spent == str(ledger.spent)
    assert receipt == f"receipt: {folder / 'labels.csv.receipt.json'}"
    assert digest == f"digest: {ledger.digest()}"
    np.save(folder / "one.npy", np.array([[3, 0]]))
    assert releasing(folder, "one.npy", "--format", "json", output="one.csv") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["labels"], report["spent"]["epsilon"]) == (1, ledger.spent.epsilon)
    assert report["budget"] == PrivacyParams(2, "1e-3").to_json()
    assert releasing(folder, "votes.npy", "--note", "again", "--quiet") == 0
    assert capsys.readouterr().out == ""
    entries = [(entry.count, entry.note) for entry in ledger.entries()]
    assert entries == [(4, "votes.csv to labels.csv"), (1, "one.npy to one.csv"), (4, "again")]


NON_PRIVATE = Voters(3, PrivacyParams("inf"), overlap=1)


class NoLabel(MajorityAnswer):
    """Gives no query a label."""

    classes = 3  # type: ignore[assignment]

    def release(self, votes: Votes, *, rng: Any = None) -> Any:  # noqa: ARG002
        return np.full(votes.queries, ABSTAIN)


@pytest.mark.parametrize(
    ("aggregator", "rows", "notes"),
    [
        (MajorityAnswer(), "a,b,c\nd,e,f\n", ["(an empty field): no string had enough votes; the budget is spent"]),
        (MajorityAnswer(), "a,b,c\nd,d,f\n", []),
        (
            NoLabel(),
            "0,1,2\n1,1,1\n",
            ["no query has a label (-1 is no label): the test did not pass; the budget is sp"],
        ),
        (
            NoisyMaximum(GNMax(2.0), NON_PRIVATE, 3),
            "0,,2\n1,NA,1\n",
            ["2 of 6 votes are missing, and a fair die stands for each"],
        ),
        (Release(table_of()), "0,,1\n1,0,1\n", ["1 of 6 votes are missing, and a fair coin stands for each"]),
    ],
)
@pytest.mark.usefixtures("ledger")
def test_missing_votes_and_labels_are_noted(
    aggregator: Any,
    rows: str,
    notes: list[str],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "load_release", lambda _: aggregator)
    (folder / "answers.csv").write_text(rows)
    missing = "blank" if aggregator.classes == OPEN else "coin"
    assert releasing(folder, "answers.csv", "--missing", missing, "--layout", "labels", output="labels.csv") == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(notes)
    assert all(note in line for note, line in zip(notes, lines, strict=True))


def test_note_escapes_names_that_are_no_text() -> None:
    assert printable("v\udcff.npy") == "v\\udcff.npy"
    assert printable("v\n\x1b[2J.npy") == "v\\n\\x1b[2J.npy"


# what is refused before anything is paid

LATE = np.zeros((ROWS_AT_ONCE + 10, 3), dtype=np.int8)
LATE[ROWS_AT_ONCE + 4, 1] = 3
CONTENTS: dict[str, Any] = {
    "nan.npy": np.array([[0.0, 1.0, np.nan]]),
    "letters.npy": np.array([["a", "b", "c"]]),
    "wide.npy": np.eye(4, dtype=np.int8)[[0] * 7],
    "narrow.npy": np.eye(2, dtype=np.int8)[[0] * 7],
    "late.npy": LATE,
    "ids.csv": WITH_IDS,
    "long.csv": "query,a,b,c\n" + "x" * 201 + ",0,0,0\n",
    "folder": write_folder,
}
REFUSED: list[tuple[str, str, str, str]] = [  # votes, options, output, message
    ("nan.npy", "", "x.npy", "got nan from voter 2 to query 0"),
    ("letters.npy", "", "x.npy", "votes must be 0 or 1"),
    ("late.npy", "", "x.npy", f"got 3 from voter 1 to query {ROWS_AT_ONCE + 4}: write classes=C"),
    (
        "wide.npy",
        "--layout labels",
        "x.npy",
        "got 4 columns: one column is one voter: remove other columns",
    ),
    ("narrow.npy", "--layout labels", "x.npy", "K = 3 voters, got 2 columns: one column is one voter; for counts say"),
    ("votes.npy", "--layout counts", "x.npy", "the number of columns of the counts, 3"),
    ("votes.npy", "--classes a,b", "x.npy", "classes must be numbers"),
    ("votes.npy", "--classes a", "x.npy", "different labels, at least two"),
    ("votes.npy", "--classes a,b,c", "x.npy", "table.json is for 2 classes"),
    ("votes.npy", "--classes 0", "x.npy", "two different labels"),
    ("votes.npy", "--note caf\udce9", "x.npy", "note must be printable Unicode text on one line, got 'caf\\udce9'"),
    ("votes.npy", "--plot p.png", "x.npy", "There is no option --plot"),
    ("votes.npy", "--create-budget 3", "x.npy", "EPS,DELTA, like 2,1e-5, got '3': write the delta too"),
    ("votes.npy", "--create-budget 3,2", "x.npy", "delta"),
    ("votes.npy", "--create-budget x,0", "x.npy", "epsilon"),
    ("votes.npy", "--create-budget 0.01,0", "x.npy", "does not admit 4 queries of DaRRM over 3 voters: 0 still fit"),
    ("votes.npy", "--population a\x07b", "x.npy", "population must be printable text"),
    ("votes.npy", "--ledger :memory:", "x.npy", "--ledger must be a file, got ':memory:'"),
    ("votes.npy", "--ledger ./:memory:", "x.npy", "--ledger must be a file, got ':memory:'"),
    ("votes.npy", "--ledger x.npy", "./x.npy", "it would overwrite ledger"),
    ("votes.npy", "--ledger x.npy", "link.npy", "it would overwrite ledger"),
    ("votes.npy", "", "no/x.npy", "does not exist"),
    ("votes.npy", "", "x.txt", "a file that ends in .npy, .csv or .parquet"),
    ("votes.npy", "", "votes.csv", "exists already: labels are paid for"),
    ("ids.csv", "--id Query", "x.csv", "names 0 columns 'Query': line 1 names the columns that --id,"),
    ("votes.csv", "--id query", "x.csv", "names 0 columns 'query'"),
    ("votes.npy", "--id query", "x.csv", "an array has no names of columns"),
    ("votes.npy", "--keep query", "x.csv", "--keep and --jobs are for votes and labels in .parquet files"),
    ("votes.npy", "--jobs 2", "x.csv", "--keep and --jobs are for votes and labels in .parquet files"),
    ("votes.csv", "--rows voters", "x.csv", "queries where classes are listed, got 'voters': transpose the votes"),
    ("folder", "--force", "labels", "--force is for"),
    ("folder", "--rows voters", "labels", "--rows voters is"),
]
REFUSED_BY_FILE = [  # of labels, after the ledger is made
    ("ids.csv", "--id query", "x.npy", "a .csv or .parquet file for ids"),
    ("long.csv", "--id query", "x.csv", "the id of row 0 must be Unicode text of at most 200 characters"),
]


@pytest.mark.parametrize(("votes", "options", "output", "message"), [*REFUSED, *REFUSED_BY_FILE])
def test_command_refuses_votes_and_options_before_anything_is_paid(
    votes: str, options: str, output: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = CONTENTS.get(votes)
    if isinstance(content, str):
        (folder / votes).write_text(content, encoding="utf-8")
    elif callable(content):
        content(folder / votes)
    elif content is not None:
        np.save(folder / votes, content)
    (folder / "link.npy").symlink_to("x.npy")
    before = {path: path.is_file() and path.read_bytes() for path in folder.iterdir()}
    words = [*CREATE, *options.split(), "--quiet"]
    assert releasing(folder, votes, *words, output=output) == 2
    one_error(message, capsys)
    if (votes, options, output, message) not in REFUSED_BY_FILE:
        assert {path: path.is_file() and path.read_bytes() for path in folder.iterdir()} == before
        PrivacyLedger.create(folder / "l.sqlite", PrivacyParams(2, "1e-3"))
    if "--ledger" not in words and words.count("--create-budget") == 1:
        assert releasing(folder, votes, *words[2:], output=output) == 2
    assert PrivacyLedger(folder / "l.sqlite").entries() == ()
    assert (folder / output).exists() == (output == "votes.csv")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["streem"], "'streem' is neither a sub-command (did you mean stream?) nor a file of votes"),
        (["recover", "x"], "must be an integer of at least 1, got 'x'"),
        ([], "VOTES is required: .csv, .tsv (also .gz), .npy, .npz, .parquet or a folder of these"),
        (["votes.npy", "--first", "1"], "There is no option --first"),
        (["votes.npy"], "--table T.json is required"),
        (["file", "votes.npy", "--table", "table.json"], "--output FILE is required"),
        (["votes.npy", "--table", "table.json"], "no such file"),
        (["votes.npy", "--table", "table.json", "--composition", "one"], "--composition needs --create-budget"),
        (["votes.npy", "--table", "table.json", "--population", "a"], "--population needs --create-budget"),
    ],
)
def test_command_refuses_words_without_a_ledger(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = [] if words[:1] in (["streem"], ["file"]) else ["--output", "x.csv"]
    refused(command.main, [*words, "--ledger", "l.sqlite", *output], message, capsys)
    assert not (folder / "x.csv").exists()
    assert not (folder / "l.sqlite").exists()


@pytest.mark.parametrize("name", ["l.npy", "./l.npy", "link.npy"])
def test_labels_never_replace_their_ledger(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "link.npy").symlink_to(folder / "l.npy")
    ledger = PrivacyLedger.create(folder / "l.npy", PrivacyParams(2, "1e-3"))
    assert releasing(folder, "votes.npy", "--ledger", "l.npy", "--force", output=name) == 2
    one_error("is a database, such as a ledger, which would be replaced", capsys)
    assert ledger.entries() == ()


def test_report_of_a_ledger_in_memory_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    refused(account.main, ["--ledger", ":memory:"], "--ledger must be a file", capsys)


@pytest.mark.parametrize(
    ("budget", "suggested"),
    [("0.01,1e-3", r"0\.\d+,0\.001"), ("5,1e-9", r"5,(0\.000\d+|\d\.\de-05)"), ("0.001,0", r"0\.\d+,0\.01")],
)
@pytest.mark.parametrize(
    "composition", ["one", *(pytest.param(name, marks=pytest.mark.slow) for name in ("planned", "adaptive"))]
)
def test_refused_budget_suggests_one_that_admits_the_votes(
    budget: str, suggested: str, composition: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.1", "1e-5")), 2)
    certify(problem, baselines.subsampling(problem)).save(folder / "table.json")
    options = ["--composition", composition, "--create-budget"]
    assert releasing(folder, "votes.npy", *options, budget) == 2
    match = re.search(r"nothing was debited; (\S+) would admit it, if that is private enough$", capsys.readouterr().err)
    assert match is not None
    assert re.fullmatch(suggested, match[1])
    assert releasing(folder, "votes.npy", *options, match[1]) == 0
    assert PrivacyLedger(folder / "l.sqlite").composition == composition


def test_table_without_a_renyi_curve_is_refused_by_renyi(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.1", "1e-5")), 2)
    certify(problem, baselines.subsampling(problem)).save(folder / "table.json")
    assert releasing(folder, "votes.npy", "--composition", "renyi", "--create-budget", "9,0.1") == 2
    one_error("it needs a Rényi curve, or delta 0, on a ledger of composition 'renyi': --composition adaptive", capsys)
    assert not (folder / "l.sqlite").exists()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_column_votes_once(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"votes{suffix}"
    if suffix == ".csv":
        path.write_text("a,b,c\n0,1,1\n")
    else:
        write_parquet(path, {"a": [0], "b": [1], "c": [1]})
    for options in ({"columns": ("a", "b", "b")}, {"columns": ("a", "b", "c"), "id_column": "c"}):
        with pytest.raises(ValueError, match="the columns must be different, got the same name twice"):
            Votes.read(path, layout="labels", **options)
    with pytest.raises(ValueError, match="at least one, got none with votes"):
        Votes.read(path, columns=())


# small files that unfold to gigabytes

MOST_BYTES = 3 * 2**29  # of address space, half of it for what libraries map
ROWS = 100_000


def repeat_word() -> Any:
    """Return a column that repeats a long word, which takes few bytes."""
    arrow = pytest.importorskip("pyarrow")
    return arrow.DictionaryArray.from_arrays(arrow.array(np.zeros(ROWS, np.int32)), arrow.array(["x" * 10**6]))


def write_words(path: Path) -> None:
    write_parquet(path, dict.fromkeys("abc", repeat_word()), compression="zstd")


def write_kept_column(path: Path) -> None:
    write_parquet(path, {**dict.fromkeys("abc", np.zeros(ROWS, np.int8)), "k": repeat_word()}, compression="zstd")


def write_rows(path: Path) -> None:
    write_parquet(path, dict.fromkeys("abc", np.zeros(3 * 10**7, np.int8)), compression="zstd")


def write_gzip(line: bytes, count: int) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(gzip.compress(line * count, 1))


def write_zeros(path: Path) -> None:
    np.savez_compressed(path, v=np.zeros((10**8, 3), np.int8))


BOMBS: list[tuple[str, Callable[[Path], Any], list[str], str, str]] = [  # name, writer, options, output, message
    ("words.parquet", write_words, [], "x.csv", "row 0"),
    ("kept.parquet", write_kept_column, ["--keep", "k"], "x.parquet", "column 'k' unfold to 65,536,000,000 bytes"),
    ("words.parquet", write_words, [], "x.parquet", "is no number"),
    ("ids.parquet", write_kept_column, ["--id", "k"], "x.csv", "the id of row 0 must be Unicode text of at most 200"),
    ("rows.parquet", write_rows, [], "x.csv", "has 30,000,000 rows, too many for its size"),
    ("zeros.csv.gz", write_gzip(b"0,0,0\n", 2 * 10**7), [], "x.csv", "unfolds to more"),
    ("line.csv.gz", write_gzip(b"0,", 10**7), [], "x.csv", "16,777,216 characters"),
    ("zeros.npz", write_zeros, [], "x.csv", "unfolds to 300"),
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("name", "write", "options", "output", "message"), BOMBS)
def test_file_that_unfolds_to_gigabytes_is_refused(
    name: str, write: Any, options: list[str], output: str, message: str, folder: Path, ledger: PrivacyLedger
) -> None:
    write(folder / name)
    words = [name, "--table", "table.json", "--ledger", "l.sqlite", "--output", output, "--quiet", *options]
    process = subprocess.run(
        [sys.executable, "-m", "darrm.release", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES)),
    )
    assert (process.returncode, process.stderr.count("\n")) == (2, 1), process.stderr
    assert message in process.stderr
    assert ledger.entries() == ()
