"""Plans of runs that are tested first: what passes, what is said, what does not apply."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from darrm import PrivacyParams, Voters, Votes, Workload
from darrm.aggregator import load_release
from darrm.errors import PlanError
from darrm.pate.tested import TestedRun
from darrm.plan import noisy
from darrm.plan.__main__ import main
from darrm.plan.accuracy import Measure
from darrm.plan.calibration import calibrate
from darrm.plan.planner import find_mechanism
from darrm.priors import Dirichlet, RecordedVotes

GNMAX, CONFIDENT = find_mechanism("gnmax-tested"), find_mechanism("confident-tested")
ELSE = find_mechanism("gnmax-tested-else")
TEACHERS = Voters(100, PrivacyParams("inf"), overlap=1)
WORK = Workload(TEACHERS, 100, PrivacyParams(2, "1e-5"), classes=3)


def agreeing(K: int = 100, queries: int = 1000, seed: int = 1) -> Votes:
    rng = np.random.default_rng(seed)
    top = rng.binomial(K, rng.beta(20.0, 1.2, queries))
    return Votes.from_counts(np.column_stack([top, K - top, np.zeros(queries, dtype=np.int64)]))


@pytest.mark.slow
def test_where_votes_agree_a_run_has_far_less_noise_and_passes_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noisy, "_MAX_HISTOGRAMS", 128)
    measure = Measure(WORK, RecordedVotes("public", agreeing()))
    option = calibrate(WORK, GNMAX, measure=measure)
    usual = calibrate(WORK, find_mechanism("gnmax"), measure=measure)
    assert option.settings["sigma"] < 0.6 * usual.settings["sigma"]
    assert option.settings["chance"] >= 0.99
    assert option.accuracy > usual.accuracy
    assert option.spent.epsilon == 2.0
    run = option.aggregator
    assert isinstance(run, TestedRun)
    others = agreeing(queries=100, seed=2)
    assert run.pass_chance(others) > 0.8
    assert run.pass_chance(Votes.from_counts([[40, 35, 25]] * 100)) < 0.01


@pytest.mark.slow
def test_otherwise_all_are_answered_within_the_same_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    one_test(monkeypatch)
    measure = Measure(WORK, RecordedVotes("public", agreeing()))
    option = calibrate(WORK, ELSE, measure=measure)
    run = option.aggregator
    assert isinstance(run, TestedRun)
    assert run.otherwise is not None
    usual = calibrate(WORK, find_mechanism("gnmax"), measure=measure)
    assert run.otherwise.mechanism.sigma < 1.4 * usual.settings["sigma"]  # type: ignore[union-attr]
    assert option.settings["sigma"] < 0.6 * usual.settings["sigma"]
    assert option.accuracy > max(usual.accuracy, calibrate(WORK, GNMAX, measure=measure).accuracy)
    assert "answers all queries" in option.remark
    divided = Votes.from_counts([[40, 35, 25]] * 100)
    assert run.pass_chance(divided) < 0.01
    assert np.all(run.release(divided) >= 0)


@pytest.mark.slow
def test_a_check_has_its_own_threshold_and_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    one_test(monkeypatch)
    option = calibrate(WORK, CONFIDENT, measure=Measure(WORK, RecordedVotes("public", agreeing())))
    assert option.settings["threshold"] == 60.0
    assert option.settings["sigma_threshold"] == pytest.approx(4.0 * option.settings["sigma"], rel=1e-5)
    assert option.settings["chance"] >= 0.99


def one_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noisy, "_ORDER_FACTORS", (1.0,))
    monkeypatch.setattr(noisy, "_CHECK_SETTINGS", noisy._CHECK_SETTINGS[:1])
    monkeypatch.setattr(noisy, "_MAX_HISTOGRAMS", 128)
    monkeypatch.setattr(noisy, "_FINAL_STEPS", 2)


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (Workload(TEACHERS, 100, PrivacyParams(2), classes=3), "needs a delta"),
        (Workload(TEACHERS, 100, PrivacyParams(2, "1e-5"), classes=3, missing=1), "no missing votes"),
        (Workload(Voters(100, PrivacyParams("inf"), overlap=2), 9, PrivacyParams(2, "1e-5"), classes=3), "reaches one"),
        (Workload(Voters(9, PrivacyParams("inf"), overlap=1), 10**6, PrivacyParams(".5", "1e-5"), 3), "at no noise"),
    ],
)
def test_what_cannot_be_tested_is_said(work: Workload, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one_test(monkeypatch)
    monkeypatch.setattr(noisy, "MAX_TESTED_DEVIATION", 30.0)
    with pytest.raises(PlanError, match=words):
        calibrate(work, GNMAX, measure=Measure(work, Dirichlet(0.1)))


@pytest.mark.slow
def test_the_command_asks_for_runs_where_it_is_said_what_votes_look_like(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one_test(monkeypatch)
    monkeypatch.setattr("darrm.plan.__main__.MECHANISMS", [find_mechanism("gnmax"), find_mechanism("exponential")])
    public = tmp_path / "public.csv"
    np.savetxt(public, agreeing().counts, fmt="%d", delimiter=",")
    output = tmp_path / "run.json"
    asked = f"--K 100 --non-private --overlap 1 --queries 100 --total 2,1e-5 --classes 3 --output {output}".split()
    like = ["--votes-look-like", str(public)]
    assert main([*asked, *like]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^\* .*gnmax-tested-else", said, re.MULTILINE)
    assert "Labels leave only if a private test passes" in " ".join(said.split())
    assert isinstance(load_release(output), TestedRun)
    assert json.loads(output.read_text())["plan"]["family"] == "gnmax-tested-else"
    assert main([*asked, *like, "--prior", "dirichlet", "--force"]) == 2
    assert "leave --prior out" in capsys.readouterr().err
