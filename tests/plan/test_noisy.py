"""Noisy maxima in plans: they use up the budget, and tested runs pass for votes like the public ones."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from darrm import PrivacyParams, Voters, Votes, Workload
from darrm.account.accountant import PrivacyAccountant
from darrm.aggregator import load_release
from darrm.errors import PlanError
from darrm.pate import GNMax, LNMax
from darrm.pate.tested import TestedRun
from darrm.plan import noisy
from darrm.plan.__main__ import main
from darrm.plan.accuracy import Measure
from darrm.plan.calibration import CalibratedMechanism, calibrate
from darrm.plan.planner import find_mechanism
from darrm.priors import Dirichlet, RecordedVotes
from tests.planned import PLAIN, calibrated


@pytest.mark.slow
def test_a_little_less_noise_breaks_the_budget() -> None:
    work = Workload(Voters(101, PLAIN, overlap=1), 100, PrivacyParams(3, "1e-5"))
    rates = {"gnmax": 1.0 / calibrated(work, "gnmax").settings["sigma"]}
    rates["lnmax"] = calibrated(work, "lnmax").settings["gamma"]
    for factor, is_admitted in ((1.0, True), (1.006, False)):
        for mechanism in (GNMax(1.0 / (factor * rates["gnmax"])), LNMax(factor * rates["lnmax"])):
            assert PrivacyAccountant(costs=[mechanism.privacy_cost(100)]).admits(work.total) is is_admitted
    assert rates["lnmax"] > 1.2 * calibrated(work, "lnmax-counts").settings["gamma"]
    curve = GNMax(calibrated(work, "gnmax-paper").settings["sigma"], "continuous").guarantee
    assert curve.repeat(100).convert(1e-5, conversion="classic").epsilon == pytest.approx(3.0, rel=2e-3)


# runs that a private test releases

TEACHERS = Voters(100, PLAIN, overlap=1)
WORK = Workload(TEACHERS, 100, PrivacyParams(2, "1e-5"), classes=3)
DIVIDED = Votes.from_counts([[40, 35, 25]] * 100)


def draw_agreeing_votes(queries: int = 1000, seed: int = 1) -> Votes:
    rng = np.random.default_rng(seed)
    top = rng.binomial(100, rng.beta(20.0, 1.2, queries))
    return Votes.from_counts(np.column_stack([top, 100 - top, np.zeros(queries, dtype=np.int64)]))


@pytest.fixture(autouse=True)
def _one_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try one test with few histograms: all would take minutes."""
    monkeypatch.setattr(noisy, "_ORDER_FACTORS", (1.0,))
    monkeypatch.setattr(noisy, "_CHECK_SETTINGS", noisy._CHECK_SETTINGS[:1])
    monkeypatch.setattr(noisy, "_MAX_HISTOGRAMS", 128)
    monkeypatch.setattr(noisy, "_FINAL_STEPS", 2)


def calibrate_for_agreeing_votes(slug: str) -> CalibratedMechanism:
    return calibrate(WORK, find_mechanism(slug), measure=Measure(WORK, RecordedVotes("public", draw_agreeing_votes())))


@pytest.mark.slow
def test_a_tested_run_has_less_noise_and_passes_for_votes_like_the_public_ones() -> None:
    tested, always = calibrate_for_agreeing_votes("gnmax-tested"), calibrate_for_agreeing_votes("gnmax")
    assert tested.settings["sigma"] < 0.6 * always.settings["sigma"]
    assert tested.settings["chance"] >= 0.99
    assert tested.accuracy > always.accuracy
    assert tested.spent.epsilon == 2.0
    assert isinstance(tested.aggregator, TestedRun)
    assert tested.aggregator.pass_chance(draw_agreeing_votes(queries=100, seed=2)) > 0.8
    assert tested.aggregator.pass_chance(DIVIDED) < 0.01


@pytest.mark.slow
def test_a_run_that_fails_its_test_answers_by_the_fallback() -> None:
    tested, always = calibrate_for_agreeing_votes("gnmax-tested-else"), calibrate_for_agreeing_votes("gnmax")
    run = tested.aggregator
    assert isinstance(run, TestedRun)
    assert run.otherwise is not None
    assert run.otherwise.mechanism.sigma < 1.4 * always.settings["sigma"]  # type: ignore[union-attr]
    assert tested.settings["sigma"] < 0.6 * always.settings["sigma"]
    assert tested.accuracy > max(always.accuracy, calibrate_for_agreeing_votes("gnmax-tested").accuracy)
    assert "answers all queries" in tested.remark
    assert run.pass_chance(DIVIDED) < 0.01
    assert np.all(run.release(DIVIDED) >= 0)


@pytest.mark.slow
def test_a_check_has_its_own_threshold_and_noise() -> None:
    settings = calibrate_for_agreeing_votes("confident-tested").settings
    assert settings["threshold"] == 60.0
    assert settings["sigma_threshold"] == pytest.approx(4.0 * settings["sigma"], rel=1e-5)
    assert settings["chance"] >= 0.99


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (Workload(TEACHERS, 100, PrivacyParams(2), classes=3), "needs a delta"),
        (Workload(TEACHERS, 100, PrivacyParams(2, "1e-5"), classes=3, missing=1), "no missing votes"),
        (Workload(Voters(100, PLAIN, overlap=2), 9, PrivacyParams(2, "1e-5"), classes=3), "reaches one"),
        (Workload(Voters(9, PLAIN, overlap=1), 10**6, PrivacyParams(".5", "1e-5"), 3), "at no noise"),
    ],
)
def test_a_tested_run_refuses(work: Workload, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noisy, "MAX_TESTED_DEVIATION", 30.0)
    with pytest.raises(PlanError, match=message):
        calibrate(work, find_mechanism("gnmax-tested"), measure=Measure(work, Dirichlet(0.1)))


@pytest.mark.slow
def test_the_command_plans_tested_runs_with_public_votes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("darrm.plan.__main__.MECHANISMS", [find_mechanism("gnmax"), find_mechanism("exponential")])
    public, output = tmp_path / "public.csv", tmp_path / "run.json"
    np.savetxt(public, draw_agreeing_votes().counts, fmt="%d", delimiter=",")
    words = f"--K 100 --non-private --overlap 1 --queries 100 --total 2,1e-5 --classes 3 --output {output}".split()
    words += ["--votes-look-like", str(public)]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert re.search(r"^\* .*gnmax-tested-else", text, re.MULTILINE)
    assert "Labels leave only if a private test passes" in " ".join(text.split())
    assert isinstance(load_release(output), TestedRun)
    assert json.loads(output.read_text())["plan"]["family"] == "gnmax-tested-else"
    assert main([*words, "--prior", "dirichlet", "--force"]) == 2
    assert "leave --prior out" in capsys.readouterr().err
