"""A sweep is advice at several budgets, and nothing else."""

import csv
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from darrm.advise import advise, sweep
from darrm.advise.__main__ import main
from darrm.advise.advice import Advice
from darrm.advise.sweep import BEST
from darrm.errors import PlanError
from darrm.plan.families import named
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.system.command_line import run
from tests.doors import validated

WORK = Workload(Voters(21, PrivacyParams("inf"), overlap=1), 5, PrivacyParams(9, "1e-5"), 3)
FEW = [named("exponential mechanism"), named("GNMax, tight σ")]
FLAGS = ["--K", "9", "--voters", "plain", "--overlap", "1", "--total", "1,1e-5", "--sweep", "1, 0.25,0.5"]


def test_each_point_is_the_advice_at_its_budget() -> None:
    found = sweep(WORK, ["2", "0.5", "2"], families=FEW)
    for epsilon, point in zip((0.5, 2.0), found.points, strict=True):
        alone = advise(Workload(WORK.voters, 5, PrivacyParams(epsilon, "1e-5"), 3), families=FEW)
        shares = {option.name: option.right for option in alone.options}
        assert point == {"epsilon": epsilon, "right": {**shares, BEST: alone.recommended.right}}


def test_budgets_at_which_nothing_applies_are_left_out() -> None:
    pure = Workload(WORK.voters, 5, PrivacyParams(1))
    assert len(sweep(pure, [0.5], families=FEW).points[0]["right"]) == 2  # no Gaussian without a delta
    with pytest.raises(PlanError, match="nothing applies"):
        sweep(pure, [0.5, 1], families=FEW[1:])


@pytest.mark.slow
def test_text_json_and_files_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    assert run(partial(main, [*FLAGS, "--output", "a.csv", "--plot", "a.svg"])) == 0
    text = capsys.readouterr().out
    assert run(partial(main, [*FLAGS, "--format", "json", "--output", "a.tex"])) == 0
    document = validated(capsys.readouterr().out, "advice_sweep")
    with Path("a.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    told = []
    for point in document["points"]:
        inner = validated(json.dumps(point["advice"]), "advice")
        for option in inner["options"]:
            share = option["share_right"]["value"]
            told.append((option["name"], point["total"]["epsilon"], share))
            (line,) = (line for line in text.splitlines() if line[2:].startswith(option["name"] + "  "))
            assert f"{share:.5f}" in line
    assert [(row["mechanism"], row["total epsilon"], float(row["share right"])) for row in rows] == told
    assert [point["total"]["epsilon"] for point in document["points"]] == ["0.25", "0.5", "1"]
    assert "<svg" in Path("a.svg").read_text(encoding="utf-8")
    assert Path("a.tex").read_text(encoding="utf-8").count("\n") == 7 + len(rows)


def test_both_ways_round_are_not_asked_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(partial(main, [*FLAGS, "--right", "0.9"])) == 2
    assert "say one of them" in capsys.readouterr().err


def test_what_is_stopped_before_anything_is_known_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules[sweep.__module__], "advise", interrupted)
    with pytest.raises(PlanError, match="stopped before any budget was known: give it more time"):
        sweep(WORK, [1], families=FEW, stoppable=True)
    with pytest.raises(KeyboardInterrupt):
        sweep(WORK, [1], families=FEW)


def test_a_budget_that_is_left_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_large(asked: Workload, **flags: Any) -> Advice:
        if asked.total.epsilon < 1:
            raise PlanError("nothing is affordable")
        return advise(asked, **flags)

    monkeypatch.setattr(sys.modules[sweep.__module__], "advise", of_large)
    with pytest.warns(UserWarning, match=r"total epsilon of 0\.5: nothing is affordable"):
        assert len(sweep(WORK, [0.5, 2], families=FEW).points) == 1
