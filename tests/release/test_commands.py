"""The command line that releases: what it prints, what it refuses, what it leaves behind."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from darrm.account import __main__ as account
from darrm.commands.command_line import run
from darrm.ledger.ledger import PrivacyLedger, printable
from darrm.majority import baselines
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.table import certify
from darrm.votes import ROWS_AT_ONCE
from tests.doors import one_error, releasing
from tests.release.tables import table_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table_of([0.5, 1.0], "1.5", epsilon="0.2", delta="1e-5").save(tmp_path / "table.json")
    votes = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
    np.save(tmp_path / "votes.npy", votes)
    np.savetxt(tmp_path / "votes.csv", votes, fmt="%d", delimiter=",")
    return tmp_path


@pytest.mark.parametrize("suffix", ["npy", "csv"])
def test_a_file_of_votes_becomes_a_file_of_labels(
    suffix: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert releasing(folder, f"votes.{suffix}", "--create-budget", "2, 1e-3", output=f"labels.{suffix}") == 0
    path = folder / f"labels.{suffix}"
    labels = np.load(path) if suffix == "npy" else np.loadtxt(path, dtype=int)
    assert labels.shape == (4,)
    assert set(labels.tolist()) <= {0, 1}
    out = capsys.readouterr().out
    assert "4 labels written to" in out
    budget, spent = out.splitlines()[1:3]
    assert budget == "budget: (2, 0.001), which all labels together keep to"
    assert spent.startswith("4 queries: (")
    assert "if the number of queries did not depend on the answers" in spent
    np.save(folder / "one.npy", np.array([[1, 1, 0]]))
    assert releasing(folder, "one.npy", output="one.csv") == 0
    assert capsys.readouterr().out.startswith("1 label written to ")
    assert releasing(folder, "votes.npy", "--note", "again", "--quiet", output="more.csv") == 0
    assert capsys.readouterr().out == ""
    entries = PrivacyLedger(folder / "l.sqlite").entries()
    assert [(entry.count, entry.note) for entry in entries] == [
        (4, f"votes.{suffix} to labels.{suffix}"),
        (1, "one.npy to one.csv"),
        (4, "again"),
    ]


BAD_VOTES = {
    "nan": (np.array([[0.0, 1.0, np.nan]]), "got nan from voter 2 to query 0"),
    "other K": (np.zeros((4, 5)), "of K = 3 voters, got 5 columns"),
    "words": (np.array([["a", "b", "c"]]), "votes must be 0 or 1"),
}


@pytest.mark.parametrize("name", BAD_VOTES)
@pytest.mark.parametrize("ledger", ["old", "new"])
def test_bad_votes_debit_nothing(name: str, ledger: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    votes, word = BAD_VOTES[name]
    np.save(folder / "bad.npy", votes)
    if ledger == "old":
        PrivacyLedger.create(folder / "l.sqlite", PrivacyParams(2, "1e-3"))
        assert releasing(folder, "bad.npy") == 2
        assert PrivacyLedger(folder / "l.sqlite").entries() == ()
    else:
        assert releasing(folder, "bad.npy", "--create-budget", "2,1e-3") == 2
        assert not (folder / "l.sqlite").exists()
    one_error(word, capsys)
    assert not (folder / "labels.npy").exists()


def test_a_late_bad_row_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    votes = np.zeros((ROWS_AT_ONCE + 10, 3), dtype=np.int8)
    votes[ROWS_AT_ONCE + 4, 1] = 3
    np.save(folder / "late.npy", votes)
    assert releasing(folder, "late.npy", "--create-budget", "2,1e-3") == 2
    assert f"got 3 from voter 1 to query {ROWS_AT_ONCE + 4}: write classes=C" in capsys.readouterr().err


def test_counts_are_released_and_reported_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(folder / "counts.npy", np.array([[3, 0], [1, 2]]))
    assert releasing(folder, "counts.npy", "--create-budget", "2,1e-3", "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    spent = PrivacyLedger(folder / "l.sqlite").spent
    assert document["labels"] == 2 == len(np.load(folder / "labels.npy"))
    assert document["spent"]["epsilon"] == spent.epsilon
    assert document["budget"] == PrivacyParams(2, "1e-3").to_json()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--create-budget", "3"], "EPS,DELTA, like 2,1e-5, got '3': write the delta too, after a comma"),
        (["--create-budget", "3,2"], "delta"),
        (["--create-budget", "x,0"], "epsilon"),
        (["--create-budget", "2,1e-3", "--classes", "a,b"], "classes must be numbers"),
        (["--create-budget", "2,1e-3", "--classes", "a"], "different labels, at least two"),
        (["--create-budget", "2,1e-3", "--classes", "a,b,c"], "table.json is for 2 classes"),
        (["--create-budget", "2,1e-3", "--classes", "0"], "two different labels"),
        (["--create-budget", "2,1e-3", "--layout", "counts"], "the number of columns of the counts, 3"),
        (["--create-budget", "2,1e-3", "--plot", "p.png"], "There is no option --plot"),
        (
            ["--create-budget", "2,1e-3", "--note", "caf\udce9"],
            "note must be printable Unicode text on one line, got 'caf\\udce9'",
        ),
        (["--create-budget", "0.01,0"], "does not admit 4 queries of DaRRM over 3 voters: 0 still fit"),
        ([], "no such file"),
        (["--composition", "one"], "--composition needs --create-budget"),
    ],
)
def test_bad_options(arguments: list[str], word: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert releasing(folder, "votes.npy", *arguments) == 2
    one_error(word, capsys)
    assert not (folder / "labels.npy").exists()
    assert not (folder / "l.sqlite").exists()


@pytest.mark.parametrize(
    ("budget", "proposed"),
    [("0.01,1e-3", r"0\.\d+,0\.001"), ("5,1e-9", r"5,(0\.000\d+|\d\.\de-05)"), ("0.001,0", r"0\.\d+,0\.01")],
)
@pytest.mark.parametrize(
    "kinds", ["one", *(pytest.param(kinds, marks=pytest.mark.slow) for kinds in ("planned", "adaptive"))]
)
def test_a_budget_that_is_too_small_is_told_one_that_would_do(
    budget: str, proposed: str, kinds: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.1", "1e-5")), 2)
    certify(problem, baselines.subsampling(problem)).save(folder / "table.json")
    more = ["--composition", kinds, "--create-budget"]
    assert releasing(folder, "votes.npy", *more, budget) == 2
    told = re.search(r"nothing was debited; (\S+) would admit it, if that is private enough$", capsys.readouterr().err)
    assert told is not None
    assert re.fullmatch(proposed, told[1])
    assert releasing(folder, "votes.npy", *more, told[1]) == 0
    assert PrivacyLedger(folder / "l.sqlite").composition == kinds


def test_a_table_without_a_curve_is_told_of_other_kinds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.1", "1e-5")), 2)
    certify(problem, baselines.subsampling(problem)).save(folder / "table.json")
    assert releasing(folder, "votes.npy", "--composition", "renyi", "--create-budget", "9,0.1") == 2
    told = capsys.readouterr().err
    assert "it needs a Rényi curve, or delta 0, on a ledger of composition 'renyi': --composition adaptive" in told
    assert not (folder / "l.sqlite").exists()


def test_columns_that_are_not_the_voters_are_told_what_helps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for columns, helps in ((4, "remove other columns"), (2, "for counts say")):
        np.save(folder / "wide.npy", np.eye(columns, dtype=np.int8)[[0] * 7])
        assert releasing(folder, "wide.npy", "--create-budget", "2,1e-3", "--layout", "labels") == 2
        error = capsys.readouterr().err
        assert f"K = 3 voters, got {columns} columns: one column is one voter" in error
        assert helps in error


@pytest.mark.parametrize("name", ["l.npy", "./l.npy", "link.npy"])
@pytest.mark.parametrize("budget", [[], ["--create-budget", "2,1e-3"]])
def test_labels_never_replace_their_ledger(
    name: str, budget: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "link.npy").symlink_to(folder / "l.npy")
    if not budget:
        PrivacyLedger.create(folder / "l.npy", PrivacyParams(2, "1e-3"))
    assert releasing(folder, "votes.npy", *budget, "--ledger", str(folder / "l.npy"), output=name) == 2
    why = "it would overwrite ledger" if budget else "is a database, such as a ledger, which would be replaced"
    assert why in capsys.readouterr().err
    assert (folder / "l.npy").exists() is (not budget)
    if not budget:
        assert PrivacyLedger(folder / "l.npy").entries() == ()


@pytest.mark.parametrize("path", [":memory:", "./:memory:"])
def test_a_ledger_that_forgets_is_refused(path: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert releasing(folder, "votes.npy", "--create-budget", "2,1e-3", "--ledger", path) == 2
    assert "--ledger must be a file, got ':memory:'" in capsys.readouterr().err
    assert not (folder / "labels.npy").exists()
    assert run(lambda: account.main(["--ledger", path])) == 2
    assert "--ledger must be a file" in capsys.readouterr().err


def test_names_of_files_that_are_no_text_are_noted() -> None:
    assert printable("v\udcff.npy to labels.npy") == "v\\udcff.npy to labels.npy"
    assert printable("v\n\x1b[2J.npy to labels.npy") == "v\\n\\x1b[2J.npy to labels.npy"


def test_labels_are_never_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert releasing(folder, "votes.npy", "--create-budget", "2,1e-3") == 0
    before = (folder / "labels.npy").read_bytes()
    assert releasing(folder, "votes.npy") == 2
    assert "exists already" in capsys.readouterr().err
    assert (folder / "labels.npy").read_bytes() == before
    assert len(PrivacyLedger(folder / "l.sqlite").entries()) == 1
    assert releasing(folder, "votes.npy", "--create-budget", "2,1e-3", output="other.npy") == 2
    told = capsys.readouterr().err
    assert "it exists already and paid for 4 labels, perhaps of these very votes" in told
    assert releasing(folder, "votes.npy", output="labels.txt") == 2
    assert releasing(folder, "votes.npy", output="no/labels.npy") == 2
    assert len(PrivacyLedger(folder / "l.sqlite").entries()) == 1
