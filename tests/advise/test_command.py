"""`python -m darrm.advise`: its report, its schema, the commands it prints, and its refusals."""

import csv
import json
import shlex
from functools import partial
from pathlib import Path

import pytest

from darrm.advise.__main__ import build_parser, main
from darrm.plan.__main__ import main as plan_main
from darrm.plan.families import named
from darrm.system.command_line import run
from darrm.system.flags import flags_of, workload_of
from tests.doors import validated
from tests.planned import MANY_FLAGS, known, share

MODELS = ["--K", "5", "--epsilon", "0.0892", "--each-delta", "1e-4", "--overlap", "1", "--models"]
MODELS += ["--queries", "20", "--total", "1,1e-4"]


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    share(monkeypatch)


def test_the_printed_command_does_what_was_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(lambda: main([*MANY_FLAGS, "--format", "json", "--prior", "point:0.7"])) == 0
    advice = json.loads(capsys.readouterr().out)
    assert advice["winner"] == "Rényi"
    monkeypatch.undo()  # the command is typed into another session
    words = shlex.split(advice["commands"][0])
    assert words[:3] == ["python", "-m", "darrm.plan"]
    monkeypatch.chdir(tmp_path)
    assert run(lambda: plan_main([*words[3:], "--format", "json"])) == 0
    planned = json.loads(capsys.readouterr().out)["candidates"][0]
    assert (tmp_path / "plan.json").exists()
    ours = next(option for option in advice["options"] if option["name"] == advice["winner"])
    assert 1.0 - planned["expected_error"] == pytest.approx(ours["accuracy"], abs=1e-12)
    assert planned["spent"]["epsilon"] == pytest.approx(ours["epsilon"], rel=1e-12)


@pytest.mark.slow
def test_json_follows_its_schema_and_the_text_says_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("darrm.plan.search.calibrate", known)  # asked three times, calibrated once
    for arguments in (MANY_FLAGS, MODELS):
        assert run(partial(main, [*arguments, "--format", "json"])) == 0
        report = validated(capsys.readouterr().out, "advice")
        assert run(partial(main, arguments)) == 0
        text = capsys.readouterr().out
        for option in report["options"]:
            assert f"{option['accuracy']:.5f}" in text
        absent = report["absent"]
        assert (f"{len(absent)} more do not apply: --all says why" in text) is (len(absent) > 1)
        assert not any(row["reason"] in text for row in absent)
        assert run(partial(main, [*arguments, "--all"])) == 0
        longer = capsys.readouterr().out
        assert all(f"{row['name']} does not apply: {row['reason']}" in longer for row in absent)
        assert "--all says why" not in longer
        for command in report["commands"]:
            assert command in text
    assert "No noise is needed" in text
    assert "publish the majority of the models' votes as it is" in text


@pytest.mark.slow
def test_both_doors_say_what_a_newcomer_misses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in ("darrm.plan.search", "darrm.advise.advice"):
        monkeypatch.setattr(f"{room}.FAMILIES", [named("permute-and-flip"), named("randomized response")])
    plain = ["--K", "3", "--voters", "plain", "--queries", "2", "--total", "1,1e-5"]
    hopeless = (
        "One person may move every vote, so nothing beats randomized response. If a person's data reach fewer voters"
    )
    for door in (main, plan_main):
        for overlap, is_hopeless in (([], True), (["--overlap", "1"], False)):
            assert run(partial(door, [*plain, *overlap])) == 0
            text = capsys.readouterr().out
            assert (hopeless in text) is is_hopeless
            assert text.count("of your own votes more or fewer may be right") == 1
            if door is main:
                assert "Do this (names in capitals are files of your own):\n  python -m darrm.plan" in text
                assert "release VOTES.csv --table plan.json --ledger LEDGER.sqlite --create-budget 1,0.00001" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "reasons"),
    [
        ("--total 1e-2,0 --queries 100000000000", {"LNMax": "no parameter composes within (0.01, 0)"}),
        pytest.param("--total 600,1e-5", {}, marks=pytest.mark.slow),
        pytest.param("--total 690,1e-5", {}, marks=pytest.mark.slow),
        ("--total 700,0", {}),
        pytest.param(
            "--total 1e-300,1e-5",
            {"GNMax, paper's σ": "target.epsilon must be at least 0.02307"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_budget_beyond_one_aggregators_range_leaves_the_others(
    arguments: str, reasons: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = ["--K", "3", "--voters", "plain", "--overlap", "1", *arguments.split(), "--format", "json"]
    assert run(lambda: main(said)) == 0
    report = json.loads(capsys.readouterr().out)
    names = {option["name"] for option in report["options"]}
    assert names & {"per query", "Rényi", "permute-and-flip"}
    assert names.isdisjoint(reasons)
    absent = {row["name"]: row["reason"] for row in report["absent"]}
    assert all(absent[name].startswith(reason) for name, reason in reasons.items())
    assert all(len(reason) < 300 for reason in absent.values())


def test_flags_are_read_back() -> None:
    parser = build_parser()
    for arguments in (MANY_FLAGS, ["--total", "0.3,1e-4", "--queries", "7"], ["--K", "5", "--total", "1/3,0"]):
        work = workload_of(parser.parse_args(arguments))
        assert workload_of(parser.parse_args(flags_of(work).split())) == work


def test_names_of_classes_count_as_their_number() -> None:
    parser = build_parser()
    assert workload_of(parser.parse_args(["--total", "2,0", "--classes", "cat, dog,horse"])).classes == 3
    with pytest.raises(ValueError, match="--classes must be their number, different labels"):
        workload_of(parser.parse_args(["--total", "2,0", "--classes", "cat,dog,cat"]))


def test_options_are_written_as_the_files_name_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darrm.plan.search.calibrate", known)  # asked three times, calibrated once
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("matplotlib")
    for name in ("a.json", "a.csv", "a.tex"):
        plot = ["--plot", "a.png"] * (name == "a.tex")
        assert run(partial(main, [*MANY_FLAGS, "--quiet", "--output", name, *plot])) == 0
    report = validated(Path("a.json").read_text(encoding="utf-8"), "advice")
    with Path("a.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["mechanism"] for row in rows] == [option["name"] for option in report["options"]]
    for row, option in zip(rows, report["options"], strict=True):
        assert (float(row["accuracy"]), float(row["epsilon"])) == (option["accuracy"], option["epsilon"])
    lines = Path("a.tex").read_text(encoding="utf-8").splitlines()
    assert lines[2:5:2] == [r"\toprule", r"\midrule"]
    assert {line.count("&") for line in lines if line.endswith(r"\\")} == {8}
    assert sum(line.endswith(r"\\") for line in lines) == 1 + len(rows)
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["advice.xlsx", "no/such/folder/a.csv"])
def test_files_that_cannot_be_written_are_refused_before_the_work(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("darrm.advise.__main__.advise", None)  # not called
    assert run(partial(main, [*MANY_FLAGS, "--output", name])) == 2
    assert capsys.readouterr().err.count("\n") == 1
