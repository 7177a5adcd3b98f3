"""Plans for more than two classes: what they cost, what they are right about, and what would help."""

import json
from functools import partial
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.aggregator import load_release
from darrm.commands.command_line import run
from darrm.errors import BudgetExceededError, PlanError
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.privacy_cost import PrivacyCost
from darrm.plan import MECHANISMS, Plan, plan
from darrm.plan.__main__ import main
from darrm.plan.accuracy import Measure
from darrm.plan.calibration import largest_rate
from darrm.plan.planner import find_mechanism
from darrm.plan.tables import PermuteAndFlip
from darrm.priors import Dirichlet, Point, RecordedVotes
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.release import release_debited
from darrm.table.release import describe_cost
from darrm.votes import Votes
from tests.doors import refused
from tests.planned import calibrated, share

PLAIN = PrivacyParams("inf")
WORK = Workload(Voters(30, PLAIN, overlap=1), 12, PrivacyParams("3", "1e-5"), classes=4)
FLAGS = ["--K", "30", "--non-private", "--overlap", "1", "--classes", "4", "--queries", "12", "--total", "3,1e-5"]
MODELS = Workload(
    Voters(12, PrivacyParams("1", "1e-6"), overlap=1, models=True), 30, PrivacyParams("0.8", "1e-5"), classes=3
)
SMALL = Workload(Voters(5, PLAIN, overlap=1), 5, PrivacyParams("2", "1e-5"), classes=3)
WORKS = [SMALL, *(pytest.param(work, marks=pytest.mark.slow) for work in (WORK, MODELS))]
NOISY = {"gnmax", "lnmax", "asymmetric"}  # whose charges take time
SELECTION = tuple(one for one in MECHANISMS if one.slug not in NOISY)

SELECTED = [find_mechanism("exponential"), find_mechanism("permute-and-flip")]

_plans: dict[Workload, Plan] = {}


def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the mechanisms whose charges take no time."""

    monkeypatch.setattr("darrm.plan.planner.MECHANISMS", SELECTION)


def planned(work: Workload) -> Plan:
    if work not in _plans:
        _plans[work] = plan(work, mechanisms=[find_mechanism("exponential")] if work is SMALL else None)
    return _plans[work]


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_a_ledger_of_the_budget_admits_all_queries_and_not_one_more(work: Workload, tmp_path: Path) -> None:
    K, Q, C = work.voters.K, work.queries, work.classes
    planned(work).save(tmp_path / "plan.json")
    aggregator = load_release(tmp_path / "plan.json")
    assert aggregator.privacy_cost().to_text() == planned(work).aggregator.privacy_cost().to_text()
    votes = Votes.from_labels(np.random.default_rng(5).integers(0, C, (Q + 1, K)), classes=C)
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", work.total)
    assert release_debited(aggregator, votes[:Q], ledger=ledger).shape == (Q,)
    with pytest.raises(BudgetExceededError):
        release_debited(aggregator, votes[Q:], ledger=ledger)
    with pytest.raises(BudgetExceededError):
        release_debited(aggregator, votes, ledger=PrivacyLedger.create(":memory:", work.total))


def test_the_law_of_permute_and_flip_is_that_of_all_orders() -> None:
    epsilon, counts = 0.8, np.array([[5, 3, 3, 1], [4, 4, 2, 2]])
    law = PermuteAndFlip.law(epsilon / 4.0, counts)
    for row, found in zip(counts, law, strict=True):
        heads = np.exp(-epsilon * (row.max() - row) / 4)
        expected = np.zeros(4)
        for order in permutations(range(4)):
            tails = 1.0
            for place in order:
                expected[place] += tails * heads[place] / 24
                tails *= 1.0 - heads[place]
        assert found == pytest.approx(expected, abs=1e-12)


def test_the_truth_is_that_of_a_leader_before_even_others() -> None:
    measure = Measure(WORK, None)
    rows = measure.counts
    assert rows[:3].tolist() == [[9, 7, 7, 7], [10, 7, 7, 6], [11, 7, 6, 6]]
    assert rows[-1].tolist() == [30, 0, 0, 0]
    assert np.all(rows.sum(axis=1) == 30)
    for candidate in plan(WORK, mechanisms=[*SELECTED, find_mechanism("randomized-response")]).rows:
        assert candidate.levels.tolist() == list(range(9, 31))
        assert np.all(np.diff(candidate.curve) > -1e-9)
        if candidate.slug != "randomized-response":  # of ties several answers are right
            assert candidate.curve[-1] > candidate.accuracy


def test_the_rate_is_found_whatever_the_cost_looks_like() -> None:
    calls = []

    def cost(rate: float) -> PrivacyCost:
        calls.append(rate)
        return PrivacyCost("steps", guarantee=PrivacyParams(min(600.0, 1e-4 * min(1e3, rate) ** 3)))

    for start in (1e-6, 5.0, 1e6):
        calls.clear()
        rate = largest_rate(WORK, cost, start)
        spent = PrivacyAccountant(costs=[cost(rate).repeat(12)]).spent(1e-5).epsilon
        assert 3.0 * (1 - 1e-4) <= spent <= 3.0
        assert len(calls) < 45
    with pytest.raises(PlanError, match="no parameter composes"):
        largest_rate(WORK, lambda _rate: PrivacyCost("dear", guarantee=PrivacyParams(100)), 1.0)


@pytest.mark.slow
def test_what_private_voters_promise_is_worth_most_of_the_labels() -> None:
    work = Workload(Voters(5, PrivacyParams("0.1")), 10, PrivacyParams(1, 1e-5), 3)
    shares = {option.slug: option.accuracy for option in plan(work, complete=True).rows}
    assert max(shares, key=shares.__getitem__) == "optimal"
    assert shares["optimal"] > 1.8 * shares["gnmax"]
    assert {"subsampling", "double-subsampling", "randomized-response"} <= set(shares)
    best = plan(work)
    assert best.best.slug == "optimal"
    assert best.spent.epsilon <= 1
    assert best.table.problem.voters == work.voters
    ledger_charge = describe_cost(best.table, 10)
    assert PrivacyAccountant(work.voters, [ledger_charge]).spent(1e-5).epsilon <= 1


def test_one_answer_of_private_voters_is_the_optimum_of_one() -> None:
    work = Workload(Voters(7, PrivacyParams("0.1")), 1, PrivacyParams("0.3"), 3)
    assert abs(plan(work, prior=Dirichlet()).best.accuracy - 0.97385) < 1e-5
    with pytest.raises(PlanError, match="do not compose"):
        plan(Workload(Voters(7, PrivacyParams(1)), 1, PrivacyParams("0.01"), 3), mechanisms=[find_mechanism("optimal")])


def test_models_of_three_classes_are_planned_through_both_ends() -> None:
    work = Workload(Voters(5, PrivacyParams("0.5"), overlap=1, models=True), 30, PrivacyParams("0.3", "1e-5"), 3)
    found = plan(work, mechanisms=[find_mechanism("optimal")])
    assert found.spent.bound == "joint bound"
    assert found.table.problem.voters == work.voters


def test_other_beliefs_are_refused() -> None:
    with pytest.raises(ValueError, match="a belief about 4 classes"):
        plan(WORK, prior=Point(0.8))
    with pytest.raises(ValueError, match="the 3 of the recorded votes"):
        plan(WORK, prior=RecordedVotes("three", Votes.from_counts([[1, 2, 3]])))


class TestCommands:
    @pytest.fixture(autouse=True)
    def quick(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        without_noise(monkeypatch)
        share(monkeypatch)

    def test_recorded_votes_decide(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr("darrm.plan.planner.MECHANISMS", SELECTED)
        counts = np.array([[20, 4, 3, 3], [28, 1, 1, 0], [9, 8, 7, 6]])
        np.save("seen.npy", counts)
        assert run(partial(main, [*FLAGS, "--prior", "votes:seen.npy", "--format", "json"])) == 0
        said = json.loads(capsys.readouterr().out)
        found = plan(WORK, prior=RecordedVotes("seen.npy", Votes.from_counts(counts)))
        assert said["mechanisms"] == found.document()["mechanisms"]
        assert found.best.law is not None
        expected = np.mean(found.best.law(counts)[:, 0])
        assert said["mechanisms"][0]["accuracy"] == {"value": pytest.approx(expected), "standard_error": 0.0}

    @pytest.mark.parametrize(
        ("words", "line"),
        [
            ("--classes 1", "classes must be an integer of at least 2"),
            ("--classes a,b,a", "--classes must be their number"),
            ("--classes 2000000", "classes must be an integer of at most 1000000"),
            ("--classes 4 --prior common", "like:FILE or votes:FILE for more than two classes"),
            ("--classes 2 --prior beta", "the prior must be uniform"),
            ("--classes 4 --prior votes:none.npy", "none.npy"),
        ],
    )
    def test_bad_words_are_one_line(self, words: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
        refused(main, [*FLAGS, *words.split()], line, capsys)


@pytest.mark.parametrize("total", [PrivacyParams("1e-9", "1e-5"), PrivacyParams(2)])
def test_a_budget_that_no_rate_meets_is_a_plan_error(total: PrivacyParams) -> None:
    work = Workload(Voters(50, PLAIN, overlap=1), 500, total, classes=10)
    with pytest.raises(PlanError, match="no parameter composes"):
        calibrated(work, "gnmax")


def test_classes_beyond_what_is_computed_one_by_one_are_refused_where_votes_are_missing() -> None:
    work = Workload(Voters(8, PLAIN, overlap=1), 5, PrivacyParams(2, "1e-5"), classes=1001, missing=1)
    with pytest.raises(ValueError, match="classes must be an integer of at most 1000, got 1001"):
        plan(work)
