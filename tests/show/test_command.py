"""`darrm show`: each kind of file is named, with its numbers, and no vote is printed."""

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
from tests.doors import one_error, releasing, validated


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.2", "1e-5")), "1.5")
    certify(problem, NoiseFunction(3, [0.5, 1.0])).save("table.json")
    PrivacyLedger.create("l.sqlite", PrivacyParams(2, "1e-3"))
    np.save("votes.npy", np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]]))
    return tmp_path


def shown(file: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert main([file, "--json"]) == 0
    report = validated(capsys.readouterr().out, "show_report")
    assert main([file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 10
    assert lines[0] == f"{file}: {report['kind']}"
    return {"kind": report["kind"], **report["facts"]}


@pytest.mark.usefixtures("folder")
def test_a_table_is_proved_again(capsys: pytest.CaptureFixture[str]) -> None:
    facts = shown("table.json", capsys)
    assert facts["kind"] == "a table, proved again just now"
    assert "3 voters" in facts["voters"]
    assert facts["guarantee"].startswith("(0.3, 1.5e-05)")
    data = json.loads(Path("table.json").read_text(encoding="utf-8"))
    Path("table.json").write_text(json.dumps(data | {"gamma": [0.9, 1.0]}), encoding="utf-8")
    assert main(["table.json"]) == 2
    one_error("", capsys)


@pytest.mark.usefixtures("folder")
def test_a_mechanism_and_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    teachers = Voters(10, PrivacyParams("inf"), overlap=1)
    mechanism = NoisyMaximum(GNMax(4.0), teachers, 3)
    save_release("release.json", mechanism)
    assert shown("release.json", capsys)["kind"].startswith("a mechanism, GNMax")
    words = "plan --K 5 --non-private --overlap 1 --queries 3 --total 1,1e-5 --quiet --output plan.json"
    assert front.main(words.split()) == 0
    facts = shown("plan.json", capsys)
    assert facts["kind"].startswith("a plan: ")
    assert facts["planned for"].startswith("3 queries within (1, 1e-05)")


def test_a_ledger_votes_and_labels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown("l.sqlite", capsys)["entries"] == "0, for 0 queries"
    assert releasing(folder, "votes.npy", "--quiet", output="labels.csv") == 0
    capsys.readouterr()
    ledger = shown("l.sqlite", capsys)
    assert ledger["kind"] == "a ledger"
    assert ledger["entries"] == "1, for 4 queries"
    assert "4 queries" in ledger["spent"]
    votes = shown("votes.npy", capsys)
    assert (votes["rows"], votes["columns"][:2]) == ("4: queries", "3:")
    assert shown("labels.csv", capsys)["labels"] == "4"
    receipt = next(path.name for path in folder.glob("labels.csv.*"))
    assert "receipt" in shown(receipt, capsys)["kind"]


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_line_of_names_is_no_query(separator: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / ("votes.csv" if separator == "," else "votes.tsv")
    path.write_text(separator.join("abc") + "\n" + f"0{separator}1{separator}1\n" * 5, encoding="utf-8")
    assert shown(path.name, capsys)["rows"] == "5: queries"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("none.json", None, "No such file"),
        ("empty.json", "", "is no"),
        ("list.json", "[1]", "JSON without a format"),
        ("other.json", '{"format": "other"}', "expected"),
        ("votes.npy", "no array", "does not hold one array"),
    ],
)
def test_what_is_no_file_of_ours_is_one_line(
    name: str, text: str | None, line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (folder / name).write_text(text, encoding="utf-8")
    assert main([name]) == 2
    one_error(line, capsys)


def test_help_and_version_are_words_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main(["help", "optimize"]) == 0
    assert capsys.readouterr().out.startswith("Usage: darrm optimize")
    assert front.main(["help"]) == 0
    assert "Commands:" in capsys.readouterr().out
    assert front.main(["version"]) == 0
    assert capsys.readouterr().out.startswith("darrm ")
