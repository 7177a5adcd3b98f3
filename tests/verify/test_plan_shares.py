"""The shares that a plan claims: honest ones are not false, whatever was drawn, and lies beyond what is drawn are."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from darrm import PrivacyParams, Voters, Workload
from darrm.plan import plan
from darrm.plan.families import named
from darrm.system.files import Json
from darrm.verify.audit import audit
from darrm.verify.verdicts import ABOUT_PLAN, FALSE, Verdict

Judge = Callable[[Json], list[Verdict]]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    def judged(data: Json) -> list[Verdict]:
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(data), encoding="utf-8")
        return [one for one in audit([path]).verdicts if one.about == ABOUT_PLAN]

    return judged


@pytest.fixture
def planned(tmp_path: Path) -> Callable[..., Json]:
    def saved(K: int, classes: int, family: str = "exponential mechanism") -> Json:
        work = Workload(Voters(K, PrivacyParams("inf"), overlap=1), 20, PrivacyParams(8, "1e-4"), classes)
        path = tmp_path / "planned.json"
        plan(work, families=[named(family)]).save(path)
        return json.loads(path.read_text(encoding="utf-8"))

    return saved


def false(verdicts: list[Verdict]) -> list[str]:
    return [str(one) for one in verdicts if one.verdict == FALSE]


@pytest.mark.slow
def test_of_long_lists_fewer_histograms_are_drawn(planned: Callable[..., Json], judge: Judge) -> None:
    assert false(judge(planned(30, 300))) == []
