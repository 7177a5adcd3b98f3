"""Plans for many open questions: noise and a threshold, by file, ledger, release and audit."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.aggregator import load_release, save_release
from darrm.errors import TableError
from darrm.ledger.ledger import PrivacyLedger
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.noisy_max.noisy_law import answering_probabilities
from darrm.noisy_max.noisy_maximum import NoisyMaximum, bound_vanishing
from darrm.noisy_max.selection import PermuteAndFlip
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace
from darrm.pate.tested import TestedRun
from darrm.plan import plan
from darrm.plan.__main__ import main
from darrm.plan.planner import find_mechanism
from darrm.priors import Dirichlet, Ewens
from darrm.privacy import PrivacyParams
from darrm.problem import OPEN, Voters, Workload
from darrm.release import release_debited
from darrm.subsampling import Subsampling
from darrm.verify.__main__ import main as verify
from darrm.verify.costs import judge_charge
from darrm.verify.totals import smallest_total
from darrm.verify.verdicts import FALSE, PROVED, UNKNOWN
from darrm.votes import Votes
from tests.doors import refused, validated
from tests.noisy_max.test_vanishing import open_law
from tests.verify.support import charge_of, cost_of

PLAIN = PrivacyParams("inf")
WORK = Workload(Voters(60, PLAIN, overlap=1), 8, PrivacyParams("3", "1e-4"), classes=OPEN)
DRAWN = Subsampling(Fraction(1, 10))
FLAGS = ["--K", "60", "--non-private", "--overlap", "1", "--classes", "open", "--queries", "8", "--total", "3,1e-4"]


@pytest.mark.parametrize(
    ("noise", "reach"),
    [(DiscreteGaussian(1.0), 8), (DiscreteLaplace(1.0), 30), (AsymmetricNoise(1.5, 2.5, 3.0, 1.5), 26)],
)
@pytest.mark.parametrize("threshold", [1, 3, 5, 30])
def test_the_law_of_an_answer_is_the_sum_over_all_noises(
    noise: DiscreteGaussian | DiscreteLaplace | AsymmetricNoise, reach: int, threshold: int
) -> None:
    counts = np.array([[4, 0, 0], [3, 1, 0], [2, 1, 1], [2, 2, 0], [0, 0, 0], [300, 299, 0]])
    expected = [open_law(tuple(row), noise, threshold, reach)[:-1] for row in counts.tolist()]
    assert answering_probabilities(noise, counts, threshold) == pytest.approx(np.array(expected), abs=1e-12)


def test_answers_are_drawn_with_their_probabilities() -> None:
    """Of 20,000 draws each share lies within five standard errors: a false alarm in two million runs."""
    release = NoisyMaximum(GNMax(2.0), Voters(9, PLAIN, overlap=1), OPEN, threshold=7)
    votes = Votes.from_answers([["tea"] * 5 + ["ale"] * 4] * 20_000)
    drawn = release.release(votes, rng=np.random.default_rng(3))
    told = answering_probabilities(DiscreteGaussian(2.0), np.array([[5, 4]]), 7)[0]
    for answer, chance in (("tea", told[0]), ("ale", told[1]), (None, 1.0 - told.sum())):
        share = np.mean([one == answer for one in drawn.tolist()])
        assert abs(share - chance) < 5.0 * np.sqrt(chance * (1.0 - chance) / 20_000)
    low = NoisyMaximum(GNMax(3.0), Voters(1, PLAIN, overlap=1), OPEN, threshold=1)  # nobody's place has no noise
    answered = np.mean(low.release(Votes.from_answers([["tea"]] * 20_000), rng=np.random.default_rng(4)) == "tea")
    chance = answering_probabilities(DiscreteGaussian(3.0), np.array([[1]]), 1)[0, 0]
    assert abs(answered - chance) < 5.0 * np.sqrt(chance * (1.0 - chance) / 20_000)
    nobody = Votes.from_answers([[""] * 9] * 3, missing="blank")
    assert release.release(nobody).tolist() == [None] * 3


@pytest.mark.slow
def test_one_question_is_answered_by_the_optimum() -> None:
    work = Workload(Voters(14, PLAIN, overlap=1), 1, PrivacyParams("1", "1e-5"), classes=OPEN)
    found = plan(work, prior=Ewens())
    assert found.best.slug == "optimal"
    assert found.best.accuracy == pytest.approx(0.2558, abs=5e-5)
    assert found.best.answered == pytest.approx(found.table.law.share_answered(Ewens()), abs=1e-9)
    wide = Workload(Voters(30, PLAIN, overlap=1), 1, PrivacyParams("1", "1e-5"), classes=OPEN)
    best = plan(wide, prior=Ewens()).best
    assert best.table is not None
    assert best.accuracy == pytest.approx(best.table.law.accuracy(Ewens()), abs=0.02)  # of drawn partitions


@pytest.mark.slow
def test_plan_release_ledger_and_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, ledger, out = tmp_path / "plan.json", tmp_path / "ledger.sqlite", tmp_path / "labels.csv"
    assert main([*FLAGS, "--mechanism", "asymmetric", "--output", str(file), "--format", "json"]) == 0
    report = validated(capsys.readouterr().out, "plan_report")
    assert report["mechanisms"][0]["answered"] > 0.1
    validated(file.read_text(), "release")
    release = load_release(file)
    votes = Votes.from_answers([["tea"] * 60, [""] * 60] * 4, missing="blank")
    budget = PrivacyLedger.create(ledger, PrivacyParams("3", "1e-4"))
    drawn = release_debited(release, votes, ledger=budget, output=out)
    assert drawn[1::2].tolist() == [None] * 4
    assert set(drawn[::2].tolist()) == {"tea"}  # of 60 votes all but surely
    assert verify([str(file), str(ledger), str(out), "--all"]) == 0
    told = capsys.readouterr().out
    assert "a string that one person alone says is an answer with probability" in told
    assert "the labels are 1 answers" in told  # an empty field is none
    stored = json.loads(file.read_text())
    stored["threshold"] -= 10
    lied = tmp_path / "lied.json"
    lied.write_text(json.dumps(stored))
    assert verify([str(lied), str(ledger)]) == 1  # the plan's total, and the ledger's cost, are those of another


def test_a_filter_over_open_questions_is_believed_to_the_accountant_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The audit's own sums of a filter know of no strings that vanish."""
    release = NoisyMaximum(GNMax(4.0), Voters(60, PLAIN, overlap=1), OPEN, threshold=24)
    budget = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams("3", "1e-4"), composition="adaptive")
    release_debited(release, Votes.from_answers([["tea"] * 60]), ledger=budget)
    save_release(tmp_path / "r.json", release)
    assert verify([str(tmp_path / "r.json"), str(tmp_path / "l.sqlite")]) == 0
    assert capsys.readouterr().out.startswith("OPEN  1 label keeps to the budget (3, 0.0001) is unknown: no filter")


def verdict_of(mechanism: GNMax | LNMax, share: float) -> str:
    """Judge a statement of what one person alone says that is so many times the honest one."""
    release = NoisyMaximum(mechanism, Voters(9, PLAIN, overlap=mechanism.reached), OPEN, threshold=25)
    cost = release.privacy_cost()
    stated = replace(cost, vanishing=cost.vanishing * share)
    (told,) = [one for one in judge_charge(cost_of(release), charge_of(stated)) if "one person alone" in one.claim]
    return told.verdict


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("mechanism", [GNMax(3.0), LNMax(0.4), GNMax(3.0, reached=2), GNMax(40.0, reached=3)])
def test_an_audit_adds_up_what_vanishes(mechanism: GNMax | LNMax) -> None:
    assert verdict_of(mechanism, 1.0) == PROVED
    assert verdict_of(mechanism, 0.6) == FALSE
    if mechanism.reached == 1:
        assert verdict_of(mechanism, 0.99) == FALSE
    if mechanism.reached == 3:  # three strings of one vote each: their events overlap, and their sum is a bound
        assert verdict_of(mechanism, 0.9) == UNKNOWN


def test_an_audit_pays_for_what_vanishes_before_its_sums() -> None:
    cost = NoisyMaximum(GNMax(8.0), Voters(9, PLAIN, overlap=1), OPEN, threshold=30).privacy_cost(10)
    lost, delta = Fraction(cost.vanishing) * 10, Fraction(1, 100)
    own = smallest_total([(charge_of(cost), None)], delta, goal=0.0)
    rest = smallest_total([(charge_of(replace(cost, vanishing=0.0)), None)], delta - lost, goal=0.0)
    assert own is not None
    assert rest is not None
    assert own.epsilon == rest.epsilon
    assert smallest_total([(charge_of(cost), None)], lost * Fraction(9, 10), goal=0.0) is None


@pytest.mark.parametrize("mechanism", [LNMax(0.4), LNMax(0.4, reached=2), GNMax(3.0, reached=2)])
def test_a_charge_has_no_pair_and_the_guarantee_holds(mechanism: GNMax | LNMax) -> None:
    release = NoisyMaximum(mechanism, Voters(9, PLAIN, overlap=mechanism.reached), OPEN, threshold=20)
    cost, guarantee = release.privacy_cost(), release.guarantee
    assert cost.guarantee is None
    assert cost.vanishing == bound_vanishing(mechanism.law, 20, moved=mechanism.reached)
    assert isinstance(guarantee, PrivacyParams)
    assert PrivacyAccountant(costs=[cost]).spent(guarantee.delta).epsilon <= guarantee.epsilon * (1.0 + 1e-9)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--total": "3,0"}, "a threshold hides"),
        ({"--K": "5001"}, "at most 5000"),
        ({"--mechanism": "permute-and-flip"}, "it is for 2 to 1,000 classes only"),
        ({"--prior": "dirichlet"}, "ewens"),
    ],
)
def test_what_cannot_be_planned_is_said_in_a_line(
    changed: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*FLAGS, *(part for pair in changed.items() for part in pair)]  # of an option the last value counts
    refused(main, words, message, capsys)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"threshold": None}, "threshold"),
        ({"threshold": 0}, "at least 1"),
        ({"classes": 3}, "it is for open-set answers"),
        ({"mechanism": PermuteAndFlip(1.0)}, "GNMax, LNMax or AsymmetricMax"),
        (
            {"voters": Voters(9, PLAIN, overlap=1, sampled=DRAWN)},
            "the same for every open question",
        ),
        ({"mechanism": LNMax(1e-6)}, "at most 20000 votes"),
        ({"threshold": 2**70}, "at most"),
        ({"voters": Voters(9, PrivacyParams(1), overlap=1)}, "plain"),
    ],
)
def test_no_open_release_without_its_threshold(made: dict[str, object], message: str) -> None:
    good = {"mechanism": GNMax(2.0), "voters": Voters(9, PLAIN, overlap=1), "classes": OPEN, "threshold": 8}
    with pytest.raises(ValueError, match=message):
        NoisyMaximum(**(good | made))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="for listed classes"):
        TestedRun(NoisyMaximum(**good), 5, PrivacyParams(1, "1e-5"), 8.0)  # type: ignore[arg-type]
    stored = NoisyMaximum(**good).to_json()  # type: ignore[arg-type]
    assert NoisyMaximum.from_json(stored).threshold == 8
    for broken in ({**stored, "threshold": 8.0}, {**stored, "threshold": "8"}, {**stored, "classes": 3}):
        with pytest.raises(TableError):
            NoisyMaximum.from_json(broken)


@pytest.mark.slow
def test_a_long_list_is_planned_like_open_answers() -> None:
    work = Workload(Voters(30, PLAIN, overlap=1), 2, PrivacyParams(4, "1e-3"), classes=20_000)
    long = plan(work, prior=Dirichlet(1.5 / 20_000), mechanisms=[find_mechanism("gnmax")])
    same = plan(replace(work, classes=OPEN), prior=Ewens(1.5), mechanisms=[find_mechanism("gnmax")])
    assert long.best.settings == same.best.settings
    assert long.best.accuracy == same.best.accuracy
    assert (long.listed, same.listed) == (20_000, 0)
    assert "20,000 classes is planned like open answers" in " ".join(str(long).split())
    private = replace(work, voters=Voters(30, PrivacyParams("0.1"), overlap=1))
    with pytest.raises(ValueError, match="longer lists are planned for non-private voters"):
        plan(private)
