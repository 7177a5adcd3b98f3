"""The shares that a plan claims: honest ones are not false, whatever was drawn, and lies beyond what is drawn are."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from darrm import PrivacyParams, Voters, Workload
from darrm.laws.priors import Dirichlet, Point, Prior, Spread
from darrm.plan import plan
from darrm.plan.families import named
from darrm.probability import Array
from darrm.problem import OPEN
from darrm.system.files import Json
from darrm.verify.audit import audit
from darrm.verify.plan import _figure, _judged
from darrm.verify.verdicts import ABOUT_PLAN, CONSISTENT, FALSE, PROVED, Verdict

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


WORK = Workload(Voters(40, PrivacyParams("inf"), overlap=1), 20, PrivacyParams(8, "1e-4"), 8)
RARE = np.where(np.arange(1365) < 12, 0.3, 1.0)  # what a plan drew


def verdict(own: Array, value: float, standard_error: float, drawn: int = 1365) -> str:
    figure = {"value": value, "standard_error": standard_error}
    return _judged(("share", "there"), figure, lambda: _figure(own, None, drawn), WORK).verdict


@pytest.mark.parametrize("hits", [0, 1, 4])
def test_what_is_rare_may_be_drawn_by_a_plan_alone(hits: int) -> None:
    ours = np.where(np.arange(1333) < hits, 0.3, 1.0)
    assert verdict(ours, RARE.mean(), RARE.std() / np.sqrt(1365)) == CONSISTENT
    audits = np.where(np.arange(1333) < 60, 0.0, 1.0)  # or by an audit: eight are expected in so few
    few = np.where(np.arange(174) < hits, 0.0, 1.0)
    assert verdict(audits, few.mean(), few.std() / np.sqrt(173), 174) == CONSISTENT


def test_a_standard_error_that_hides_a_lie_is_false() -> None:
    ours = np.random.default_rng(5).uniform(0.5, 1.0, 1333)
    error = ours.std() / np.sqrt(1365)
    assert verdict(ours, ours.mean() + 3 * error, 1.05 * error) == CONSISTENT
    assert verdict(ours, ours.mean() + 9 * error, 2 * error) == FALSE
    assert verdict(np.ones(1333), 0.99, 0.01) == FALSE  # more than of zeros and ones with such a mean


def test_the_mean_of_three_laws_has_the_error_of_thirds() -> None:
    right = np.resize([0.2, 0.5, 0.9], 3000) + np.random.default_rng(5).normal(0.0, 0.01, 3000)
    ours = _figure(right, None, 3000, samples=3)
    assert ours.error == pytest.approx(0.01 / np.sqrt(3000), rel=0.1)


KEYS: dict[str, Callable[[Json], object]] = {
    "an expected error of three classes": lambda told: told.update(expected_error=0.1),
    "a share that says more": lambda told: told["share_right"].update(worst=0.99),
    "a column that says more": lambda told: told["columns"]["mixed"].update(x="guaranteed"),
    "a column that is a number": lambda told: told["columns"].update(mixed=0.5),
}


@pytest.mark.parametrize("change", KEYS)
def test_what_a_plan_does_not_say_is_false(change: str, planned: Callable[..., Json], judge: Judge) -> None:
    data = planned(9, 3)
    assert false(judge(data)) == []
    KEYS[change](data["plan"])
    assert any("it says what a plan says" in line for line in false(judge(data)))


@pytest.mark.slow
@pytest.mark.parametrize(("K", "classes"), [(60, 8), (12, 3)])
def test_a_share_is_the_mean_of_its_columns(K: int, classes: int, planned: Callable[..., Json], judge: Judge) -> None:
    data = planned(K, classes)
    assert false(judge(data)) == []
    data["plan"]["columns"]["mixed"]["value"] -= 1e-4
    data["plan"]["columns"]["mixed"]["standard_error"] = 0.004 if K > 12 else 0.0
    assert any("is the mean" in line for line in false(judge(data)))
    assert not any("0.3333333" in one.claim for one in judge(data))  # a third, for people


@pytest.mark.parametrize("prior", [Spread(), Dirichlet(0.3), Point(0.7)])
def test_an_expected_error_is_proved_without_the_planners_weights(
    prior: Prior, tmp_path: Path, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Workload(Voters(8, PrivacyParams("inf"), overlap=1), 2, PrivacyParams(2), 2)
    plan(work, families=[named("exponential mechanism")], prior=prior).save(tmp_path / "planned.json")
    data = json.loads((tmp_path / "planned.json").read_text(encoding="utf-8"))
    if prior != Point(0.7):
        monkeypatch.setattr("darrm.verify.plan.priors.weights_of", None)
    found = {one.claim[:18]: one for one in judge(data)}
    assert found["the expected error"].verdict == (CONSISTENT if prior == Point(0.7) else PROVED)
    assert ("the planner's weights" in found["the expected error"].reason) == (prior == Point(0.7))
    data["plan"]["expected_error"] -= 1e-5
    assert any("expected error" in line for line in false(judge(data)))


@pytest.mark.slow
@pytest.mark.parametrize("K", [15, 30])  # summed by plan and audit, and by the audit alone
def test_few_open_answers_are_summed(K: int, planned: Callable[..., Json], judge: Judge) -> None:
    data = planned(K, OPEN, "GNMax by label")
    honest = [one for one in judge(data) if "the share right is" in one.claim and "mean" not in one.claim]
    assert {one.verdict for one in honest} == {PROVED if K == 15 else CONSISTENT}
    if K == 15:
        told = data["plan"]
        for share in (told["share_right"], *told["columns"].values()):
            share["value"] += 1e-4
        assert len(false(judge(data))) == 4
