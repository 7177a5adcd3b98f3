"""``darrm show``: each kind of file is named, with its numbers, and no vote is printed."""

import json
from pathlib import Path

import numpy as np
import pytest

import darrm.__main__ as front
from darrm import NoiseFunction, PrivacyLedger, PrivacyParams, Problem, Voters, certify
from darrm.aggregator import save_release
from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.show.__main__ import main
from tests.doors import refused, releasing, validated


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.2", "1e-5")), "1.5")
    certify(problem, NoiseFunction(3, [0.5, 1.0])).save("table.json")
    return tmp_path


def show(file: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return the kind and the facts, after a check that the text has ten lines."""
    assert main([file, "--json"]) == 0
    report = validated(capsys.readouterr().out, "show_report")
    assert main([file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 10
    assert lines[0] == f"{file}: {report['kind']}"
    return {"kind": report["kind"], **report["facts"]}


def test_a_table_is_proved_again(capsys: pytest.CaptureFixture[str]) -> None:
    facts = show("table.json", capsys)
    assert facts["kind"] == "a table, proved again just now"
    assert "3 voters" in facts["voters"]
    assert facts["guarantee"].startswith("(0.3, 1.5e-05)")
    document = json.loads(Path("table.json").read_text(encoding="utf-8"))
    Path("table.json").write_text(json.dumps(document | {"gamma": [0.9, 1.0]}), encoding="utf-8")
    refused(main, "table.json", "", capsys)


def test_a_mechanism_and_a_plan_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    save_release("release.json", NoisyMaximum(GNMax(4.0), Voters.non_private(10, 1), 3))
    assert show("release.json", capsys)["kind"].startswith("a mechanism, GNMax")
    words = "plan --K 5 --non-private --overlap 1 --queries 3 --total 1,1e-5 --mechanism exponential --quiet"
    assert front.main([*words.split(), "--output", "plan.json"]) == 0
    facts = show("plan.json", capsys)
    assert facts["kind"].startswith("a plan: ")
    assert facts["planned for"].startswith("3 queries within (1, 1e-05)")


def test_a_ledger_votes_labels_and_a_receipt_are_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    PrivacyLedger.create("l.sqlite", PrivacyParams(2, "1e-3"))
    np.save("votes.npy", np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]]))
    assert show("l.sqlite", capsys)["entries"] == "0, for 0 queries"
    assert releasing(folder, "votes.npy", "--quiet", output="labels.csv") == 0
    capsys.readouterr()
    ledger = show("l.sqlite", capsys)
    assert (ledger["kind"], ledger["entries"]) == ("a ledger", "1, for 4 queries")
    assert "4 queries" in ledger["spent"]
    votes = show("votes.npy", capsys)
    assert (votes["rows"], votes["columns"][:2]) == ("4: queries", "3:")
    assert show("labels.csv", capsys)["labels"] == "4"
    receipt = next(path.name for path in folder.glob("labels.csv.*"))
    assert "receipt" in show(receipt, capsys)["kind"]


@pytest.mark.parametrize(("name", "separator"), [("votes.csv", ","), ("votes.tsv", "\t")])
def test_a_line_of_names_is_no_query(name: str, separator: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(name).write_text(separator.join("abc") + "\n" + separator.join("011") + "\n", encoding="utf-8")
    assert show(name, capsys)["rows"] == "1: queries"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none.json", None, "No such file"),
        ("empty.json", "", "is no"),
        ("list.json", "[1]", "JSON without a format"),
        ("other.json", '{"format": "other"}', "expected"),
        ("votes.npy", "no array", "does not hold one array"),
    ],
)
def test_show_refuses(name: str, text: str | None, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    if text is not None:
        Path(name).write_text(text, encoding="utf-8")
    refused(main, [name], message, capsys)


@pytest.mark.parametrize(
    ("words", "text"),
    [("help optimize", "Usage: darrm optimize"), ("help", "Usage: darrm [OPTIONS] COMMAND"), ("version", "darrm ")],
)
def test_help_and_version_are_words_too(words: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main(words.split()) == 0
    assert capsys.readouterr().out.startswith(text)
