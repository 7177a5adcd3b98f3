"""What a wanted accuracy takes was planned, and has it; a sweep is a plan at each budget."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from darrm.commands.command_line import run
from darrm.errors import PlanError
from darrm.plan import Sweep, affordable, find_mechanism, plan, sweep
from darrm.plan.__main__ import main
from darrm.privacy import PrivacyParams
from darrm.problem import MOST_QUERIES, Voters, Workload
from tests.doors import refused, validated

PLAIN = PrivacyParams("inf")
WORK = Workload(Voters(11, PLAIN, overlap=1), 5, PrivacyParams(2))


def share(work: Workload) -> float:
    """A made-up share: it grows with voters and ε, and falls with queries."""
    value = work.voters.K * work.total.epsilon / work.queries
    return value / (1.0 + value)


def pretend(monkeypatch: pytest.MonkeyPatch, right: Callable[[Workload], float]) -> None:
    """Let a plan have an accuracy that the test knows."""
    monkeypatch.setattr(
        "darrm.plan.planner.plan", lambda work, **_: SimpleNamespace(best=SimpleNamespace(accuracy=right(work)))
    )


@pytest.mark.parametrize("right", [0.6, 0.9, 0.99])
def test_the_last_number_that_gives_the_share_is_found(right: float, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, share)
    needed = right / (1.0 - right)  # of K·ε/Q
    for what, best in (
        ("queries", 22 / needed),
        ("voters", needed * 2.5),
        ("epsilon", needed / 2.2),
    ):
        if what == "queries" and best < 1.0:
            with pytest.raises(PlanError, match="no queries up to 1 have"):
                affordable(WORK, right, what)
            continue
        asked = affordable(WORK, right, what)
        value = {"queries": asked.queries, "voters": asked.voters.K, "epsilon": asked.total.epsilon}[what]
        assert share(asked) >= right
        slack = 1.0 if what != "epsilon" else 0.0
        assert abs(value - best) <= 0.02 * max(value, best) + slack, what


@pytest.mark.slow
def test_a_real_plan_has_the_share_and_one_query_more_has_not() -> None:
    found = affordable(WORK, 0.8)
    more = Workload(WORK.voters, found.queries + 1, WORK.total)
    assert plan(found).best.accuracy >= 0.8 > plan(more).best.accuracy


def test_where_nothing_is_needed_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, lambda _: 1.0)
    assert affordable(WORK, 0.9).queries == MOST_QUERIES


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--non-private --find voters", "--find needs --accuracy P"),
        ("--non-private --accuracy 1.5", "accuracy must be"),
        ("--non-private --accuracy x", "--accuracy must be"),
        ("--epsilon 0.1,0.2 --each-delta 0 --accuracy 0.9 --find voters", "these voters differ"),
        ("--non-private --sweep 1,2 --accuracy 0.9", "--sweep excludes --accuracy and --output"),
        ("--non-private --sweep 1,2 --output plan.json", "--sweep excludes --accuracy and --output"),
    ],
)
def test_what_cannot_be_looked_for_is_refused(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(main, f"{words} --total 1,1e-5", message, capsys)


@pytest.mark.slow
def test_the_answer_is_before_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--K", "11", "--non-private", "--overlap", "1", "--total", "2,0", "--queries", "5"]
    assert run(lambda: main([*flags, "--accuracy", "0.8"])) == 0
    first, _, rest = capsys.readouterr().out.partition("\n\n")
    queries = affordable(WORK, 0.8).queries
    assert f"at most {queries} queries" in first
    assert f"Budget    {queries} majority votes" in rest


@pytest.mark.parametrize("calls", [1, 4])
def test_a_search_that_is_stopped_returns_the_hardest_that_was_enough(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def tiring(work: Workload) -> float:
        asked.append(work.queries)
        if len(asked) > calls:
            raise KeyboardInterrupt
        return 1.0 if work.queries <= 30 else 0.0  # of 5, 10, 20 and 40 the first three

    pretend(monkeypatch, tiring)
    with pytest.raises(KeyboardInterrupt):
        affordable(WORK, 0.9)
    asked.clear()
    with pytest.warns(UserWarning, match="stopped early"):
        assert affordable(WORK, 0.9, stoppable=True).queries == {1: 5, 4: 20}[calls]
    asked[:] = [0] * calls  # at once
    with pytest.raises(PlanError, match="take more time"):
        affordable(WORK, 0.9, stoppable=True)


SWEPT = Workload(Voters(21, PLAIN, overlap=1), 5, PrivacyParams(9, "1e-5"), 3)
FEW = [find_mechanism("exponential"), find_mechanism("gnmax-analytic")]
FLAGS = ["--K", "9", "--non-private", "--overlap", "1", "--total", "1,1e-5", "--sweep", "1, 0.25,0.5"]


def test_each_point_is_the_plan_at_its_budget() -> None:
    found = sweep(SWEPT, ["2", "0.5", "2"], mechanisms=FEW)
    assert list(found.best) == [0.5, 2.0]
    for epsilon, best in found.best.items():
        alone = plan(Workload(SWEPT.voters, 5, PrivacyParams(epsilon, "1e-5"), 3), mechanisms=FEW)
        assert best == alone.best.accuracy
        assert {row.slug: row.accuracy for row in alone.rows} == {
            slug: values[epsilon] for slug, values in found.accuracies.items()
        }


def test_budgets_without_a_plan_are_left_out_and_named() -> None:
    pure = Workload(SWEPT.voters, 5, PrivacyParams(1))
    assert list(sweep(pure, [0.5], mechanisms=FEW).accuracies) == ["exponential"]  # no Gaussian without a delta
    found = sweep(SWEPT, [0.5, 2], mechanisms=FEW)
    small, large = found.plans
    kept, absent = small.rows
    small = replace(small, rows=(kept,), left_out=((absent.slug, "too wide"),))
    assert f"–         {absent.slug} at 0.5: too wide" in str(Sweep((small, large))).splitlines()
    assert "–  " not in str(found)
    with pytest.raises(PlanError, match=r"the total epsilon 0\.5 has no plan"):
        sweep(pure, [0.5, 1], mechanisms=FEW[1:])
    private = Workload(Voters(11, PrivacyParams("0.1")), 1, PrivacyParams(1))
    with pytest.warns(UserWarning, match=r"the total epsilon 0\.05 has no plan"):
        assert len(sweep(private, [0.05, 0.5], mechanisms=[find_mechanism("optimal")]).plans) == 1


@pytest.mark.slow
def test_text_json_and_files_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    assert run(partial(main, [*FLAGS, "--csv", "a.csv", "--plot", "a.svg"])) == 0
    text = capsys.readouterr().out
    assert run(partial(main, [*FLAGS, "--format", "json"])) == 0
    document = validated(capsys.readouterr().out, "plan_sweep")
    with Path("a.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    shown = []
    for report in document["plans"]:
        validated(json.dumps(report), "plan_report")
        for row in report["mechanisms"]:
            shown.append((row["mechanism"], report["workload"]["total"]["epsilon"], row["accuracy"]["value"]))
            (line,) = (line for line in text.splitlines() if line.startswith(row["mechanism"] + " "))
            assert f"{100.0 * row['accuracy']['value']:.2f}" in line
    assert [(row["mechanism"], row["total epsilon"], float(row["accuracy"])) for row in rows] == shown
    assert [report["workload"]["total"]["epsilon"] for report in document["plans"]] == ["0.25", "0.5", "1"]
    assert "<svg" in Path("a.svg").read_text(encoding="utf-8")


def test_a_sweep_that_is_stopped_before_a_plan_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("darrm.plan.planner.plan", interrupted)
    with pytest.raises(PlanError, match="stopped before there was a plan for any budget"):
        sweep(SWEPT, [1], mechanisms=FEW, stoppable=True)
    with pytest.raises(KeyboardInterrupt):
        sweep(SWEPT, [1], mechanisms=FEW)
