"""`python -m darrm.plan`: its report, its files, its refusals, and that the table it writes can be released from."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from darrm.account.accountant import PrivacyAccountant
from darrm.account.bounds import MODELS_BOUNDS
from darrm.advise.__main__ import main as advise
from darrm.mechanisms.release import Release
from darrm.plan import plan, report
from darrm.plan.__main__ import main
from darrm.plan.families import named
from darrm.plan.option import Option
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.proof.table import Table
from darrm.release.__main__ import main as release
from darrm.system.command_line import run
from tests.doors import refused, validated
from tests.planned import FRESH, MANY, MANY_FLAGS, planned, share

MODELS = "--K 5 --each-delta 1e-5 --overlap 2 --models --queries 10 --total 2,1e-5"


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    share(monkeypatch)


def table_of(option: Option) -> Table:
    """The proven table of an option that has one."""
    assert option.table is not None
    return option.table


def truth_of(table: Table) -> list[float]:
    """What the aggregator of a table tells, from its own exact coins."""
    aggregator = Release(table)
    return [float(aggregator.probability_of_one(int(level))) for level in table.gamma.levels]


def test_the_written_table_releases_all_queries_within_the_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, votes, ledger = tmp_path / "plan.json", tmp_path / "votes.npy", tmp_path / "ledger.sqlite"
    assert run(lambda: main([*MANY_FLAGS, "--output", str(table)])) == 0
    text = capsys.readouterr().out
    assert "40 majority votes" in text
    assert (
        "the error is |Pr[the label is 1] − Pr[the majority is 1]| on average [D, Definition 2.4], not 1 − the" in text
    )
    assert "21 voters, not private themselves; one person's data reach at most 1 of them" in text
    assert f"--table {table} --ledger LEDGER.sqlite --create-budget 2,0.00001" in text
    charge = Release(Table.load(table)).charge(40)
    assert PrivacyAccountant(charges=[charge]).admits(PrivacyParams(2, "1e-5"))
    np.save(votes, np.ones((40, 21), dtype=np.int8))
    arguments = [str(votes), "--table", str(table), "--ledger", str(ledger), "--output", str(tmp_path / "l.npy")]
    assert run(lambda: release([*arguments, "--create-budget", "2,1e-5"])) == 0
    assert np.load(tmp_path / "l.npy").shape == (40,)


@pytest.mark.slow
def test_json_follows_its_schema_and_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    one = ["--family", "permute-and-flip"]
    for arguments in (
        MANY_FLAGS,
        ["--K", "5", "--queries", "30", "--total", "3,1e-3", "--prior", "uniform", *one],
        ["--total", "0.3,1e-4", "--K", "5"],
        [*MODELS.split(), *one],
    ):
        assert run(partial(main, [*arguments, "--format", "json", "--output", str(path)])) == 0
        report = validated(capsys.readouterr().out, "plan_report")
        table = Table.load(path)
        best = report["candidates"][0]
        assert best["truth"] == pytest.approx(truth_of(table), abs=1e-15)
        assert best["expected_error"] == min(found["expected_error"] for found in report["candidates"])
        assert float(best["spent"]["epsilon"]) <= float(report["workload"]["total"]["epsilon"]) * (1 + 1e-12)
        assert len(best["truth"]) == len(report["levels"])


def test_every_number_of_the_text_is_the_plans() -> None:
    plan = planned(MANY)
    text = report.text_report(plan, None)
    head, *rows = text.partition("true majority of l votes\n")[2].splitlines()
    assert head.split() == ["l", *(word for found in plan.options for word in found.name.split())]
    levels = plan.table.gamma.levels.tolist()
    exact = [truth_of(table_of(found)) for found in plan.options]
    shown = [row.split() for row in rows[: rows.index("")]]
    assert [int(row[0]) for row in shown] == levels
    for row in shown:
        for printed, truth in zip(row[1:], exact, strict=True):
            assert float(printed) == pytest.approx(truth[levels.index(int(row[0]))], abs=5.1e-5)
    for found in plan.options:
        (line,) = (line for line in text.splitlines() if line[2:].startswith(found.name + " ") and " by " in line)
        (share, *_, error), total = line[14:].split()[:5], line.partition("(")[2].partition(")")[0]
        weights = plan.prior.weights(21)
        told = np.array(truth_of(table_of(found)))
        assert float(share) == pytest.approx(2.0 * float(told.sum()) / 22, abs=1e-5)  # 0 … 21 ones, equally likely
        assert float(error) == pytest.approx(float(weights @ (1.0 - told)), rel=1e-5)
        epsilon, delta = (float(part) for part in total.split(","))
        account = PrivacyAccountant(charges=[Release(table_of(found)).charge(40)])
        assert epsilon == pytest.approx(account.spent(1e-5).epsilon, rel=1e-5)
        assert delta == 1e-5
        assert line.startswith("*") is (found is plan.best)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("work", [MANY, FRESH], ids=str)
def test_every_number_of_the_json_is_the_plans(work: Workload) -> None:
    plan, K = planned(work), work.voters.K
    said = report.json_report(plan, None)
    assert said["levels"] == list(range(K // 2 + 1, K + 1))
    assert Workload(Voters.from_json(said["workload"]), said["workload"]["queries"], work.total) == work
    assert PrivacyParams.from_json(said["workload"]["total"]) == work.total
    assert said["counted_as"] == said["workload"]
    assert len(said["candidates"]) == len(plan.options) > 1
    for shown, found in zip(said["candidates"], plan.options, strict=True):
        told = np.array(truth_of(table_of(found)))
        spent = PrivacyAccountant(charges=[Release(table_of(found)).charge(work.queries)]).spent(work.total.delta)
        assert shown["truth"] == pytest.approx(told, abs=1e-15)
        assert shown["expected_error"] == pytest.approx(float(plan.prior.weights(K) @ (1.0 - told)), rel=1e-12)
        assert shown["settings"] == found.settings
        assert PrivacyParams.from_json(shown["query"]) == table_of(found).problem.target
        assert shown["spent"] == {"epsilon": spent.epsilon, "delta": work.total.delta, "bound": spent.bound}


@pytest.mark.slow
def test_two_queries_to_models_are_not_summed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [named("permute-and-flip"), named("exponential mechanism")]
    for room in ("darrm.plan.search", "darrm.advise.advice"):
        monkeypatch.setattr(f"{room}.FAMILIES", few)
    two = ["--K", "3", "--overlap", "2", "--queries", "2", "--total", "0.5,1e-3", "--format", "json"]
    for door in (main, advise):
        assert run(partial(door, [*two, "--models"])) == 0
        counted = str(json.loads(capsys.readouterr().out)["counted_as"])
        assert "inf" in counted or "--voters plain" in counted
    work = Workload(Voters(3, PrivacyParams("0.1", "1e-5"), overlap=2), 2, PrivacyParams("0.5", "1e-3"))
    models = plan(replace(work, voters=replace(work.voters, models=True)))
    for found in models.candidates:
        assert table_of(found).problem.voters == models.workload.voters
        assert {bound.name for bound in found.spent.bounds} <= set(MODELS_BOUNDS)
    assert "at a time, as voters draw fresh randomness" in report.text_report(plan(work), None)


def test_models_are_said_to_count_by_their_votes_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda: main([*MODELS.split(), "--family", "permute-and-flip", "--format", "text"])) == 0
    text = capsys.readouterr().out
    assert "Their votes count as those of voters that are not private" in text
    assert "fresh randomness" not in text


def test_the_picture_shows_the_truth_of_every_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, path = planned(MANY), tmp_path / "plan.png"
    drawn: list[Any] = []
    original = Figure.savefig

    def savefig(figure: Figure, *args: Any, **options: Any) -> None:
        drawn.append(figure)
        original(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)
    assert run(lambda: main([*MANY_FLAGS, "--plot", str(path), "--quiet"])) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    (axes,) = drawn[0].axes
    assert len(axes.lines) == len(plan.options)
    for line, found in zip(axes.lines, plan.options, strict=True):
        assert line.get_xdata().tolist() == plan.table.gamma.levels.tolist()
        assert line.get_ydata().tolist() == pytest.approx(truth_of(table_of(found)), abs=1e-15)


def test_what_found_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--queries", "1000", "--total", "2,1e-5"]
    assert run(lambda: main(asked)) == 0
    short = capsys.readouterr().out
    assert "more do not apply: --all says why" in short
    assert "do not compose within" not in short
    assert run(lambda: main([*asked, "--all"])) == 0
    text = capsys.readouterr().out
    assert "do not compose within (2, 1e-05)" in text
    assert "fresh randomness" in text
    assert "Not saved" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "--total is needed: --total EPS,DELTA, like --total 2,1e-5"),
        ("--total 1", "--total must be EPS,DELTA"),
        ("--total 0,0.1", "epsilon of the total must be in (0, 700]"),
        ("--total 1e308,0.1", "epsilon of the total must be in"),
        ("--total nan,0.1", "epsilon must be a finite number"),
        ("--total inf,0", "epsilon must be a finite number"),
        ("--total 1,1", "delta must be in [0, 1)"),
        ("--total 1,1e-5 --K 0", "K must be an integer of at least 1"),
        ("--total 1,1e-5 --K two", "--K must be an integer"),
        ("--total 1,1e-5 --queries 0", "queries must be an integer of at least 1"),
        ("--total 1,1e-5 --overlap 12", "overlap must be at most K = 11"),
        ("--total 1,1e-5 --voters plain --epsilon 1", "--epsilon is about private voters"),
        ("--total 1,1e-5 --epsilon inf --each-delta 0", "--epsilon must be finite for private voters"),
        ("--total 1,1e-5 --epsilon 0", "each.epsilon must be positive"),
        ("--total 1,1e-5 --prior two-sided:0.7,1", "the prior must be one with a linear expected error"),
        ("--total 1,1e-5 --prior magic", "the prior must be"),
        ("--total 1,1e-5 --voters plain --each-delta 0", "--each-delta is about private voters"),
        ("--total 1,1e-5 --overlap x", "--overlap must be an integer"),
        ("--total 1,1e-5 --queries -3", "queries must be an integer of at least 1"),
        ("--total 1,1e-5 --K 11 surplus", "'surplus' is one word too many"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    for door in (main, advise):
        refused(door, arguments, message, capsys)


def test_what_is_refused_by_plan_alone(capsys: pytest.CaptureFixture[str]) -> None:
    refused(main, "--total 1e-9,0 --queries 100000000000", "no release within this budget was found", capsys)
    refused(main, "--total 1,1e-5 --output /nowhere/plan.json", "/nowhere", capsys)
