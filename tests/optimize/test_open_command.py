"""`optimize --classes open`: from the command line to a label, and what it refuses."""

import json
from pathlib import Path

import jsonschema
import pytest

from darrm.commands.command_line import run
from darrm.optimize.__main__ import main
from darrm.release.__main__ import main as release

SCHEMAS = Path(__file__).parents[2] / "darrm" / "schemas"
ASKED = ["--classes", "open", "--K", "6", "--non-private", "--overlap", "1", "--target", "3,0.05"]


def test_from_a_table_to_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, votes, labels = (tmp_path / name for name in ("table.json", "votes.csv", "labels.csv"))
    assert main([*ASKED, "--output", str(table)]) == 0
    shown = capsys.readouterr().out
    assert "6 voters, open answers" in shown
    assert "of the questions have an answer" in shown
    jsonschema.validate(json.loads(table.read_text()), json.loads((SCHEMAS / "plurality_table.json").read_text()))
    votes.write_text("tea,tea,tea,tea,tea,tea\na,b,c,d,e,f\n")
    arguments = ["file", str(votes), "--table", str(table), "--classes", "open", "--output", str(labels)]
    assert release([*arguments, "--ledger", str(tmp_path / "ledger.db"), "--create-budget", "6,0.2"]) == 0
    answers = labels.read_text().splitlines()
    assert len(answers) == 2
    assert answers[0] in {"tea", ""}


def test_the_report_as_json_fits_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--prior", "ewens:0.5", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json.loads((SCHEMAS / "plurality_report.json").read_text()))
    assert document["problem"]["classes"] == "open"
    assert document["share_right"] <= document["share_answered"] <= 1.0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--prior", "dirichlet"], "ewens"),
        (["--plot", "x.png"], "two classes"),
        (["--prior", "ewens:-1"], "positive"),
        (["--prior", "votes:recorded.csv"], "ewens, ewens:THETA for open answers"),
        (["--K", "400"], "at most 80"),
    ],
)
def test_what_cannot_be_is_a_line(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda: main([*ASKED, *flags])) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
