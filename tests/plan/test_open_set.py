"""Plans for open-set answers: noise and a threshold, by file, ledger, release and audit."""

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
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace, IntegerNoise
from darrm.pate.tested import TestedRun
from darrm.plan import plan
from darrm.plan.__main__ import main
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
from tests.doors import validated
from tests.noisy_max.test_vanishing import open_law
from tests.planned import PLAIN, find_mechanisms
from tests.verify.support import charge_of, cost_of

NINE = Voters(9, PLAIN, overlap=1)


@pytest.mark.parametrize(
    ("noise", "reach"),
    [(DiscreteGaussian(1.0), 8), (DiscreteLaplace(1.0), 30), (AsymmetricNoise(1.5, 2.5, 3.0, 1.5), 26)],
)
@pytest.mark.parametrize("threshold", [1, 3, 5, 30])
def test_the_law_of_an_answer_is_the_sum_over_all_noises(noise: IntegerNoise, reach: int, threshold: int) -> None:
    counts = np.array([[4, 0, 0], [3, 1, 0], [2, 1, 1], [2, 2, 0], [0, 0, 0], [300, 299, 0]])
    expected = [open_law(tuple(row), noise, threshold, reach)[:-1] for row in counts.tolist()]
    assert answering_probabilities(noise, counts, threshold) == pytest.approx(np.array(expected), abs=1e-12)


@pytest.mark.parametrize(
    ("sigma", "threshold", "answers"), [(2.0, 7, {"tea": 5, "ale": 4}), (3.0, 1, {"tea": 1})], ids=str
)
def test_answers_are_drawn_with_their_probabilities(sigma: float, threshold: int, answers: dict[str, int]) -> None:
    """Of 20,000 draws each share is within five standard errors: a false alarm in two million runs."""
    counts = np.array([list(answers.values())])
    release = NoisyMaximum(GNMax(sigma), Voters.non_private(counts.sum(), 1), OPEN, threshold=threshold)
    votes = Votes.from_answers([[answer for answer, count in answers.items() for _ in range(count)]] * 20_000)
    labels = release.release(votes, rng=np.random.default_rng(3)).tolist()
    law = answering_probabilities(DiscreteGaussian(sigma), counts, threshold)[0]
    for answer, chance in (*zip(answers, law, strict=True), (None, 1.0 - law.sum())):
        share = labels.count(answer) / 20_000
        assert abs(share - chance) < 5.0 * np.sqrt(chance * (1.0 - chance) / 20_000)
    blank = Votes.from_answers([[""] * counts.sum()] * 3, missing="blank")
    assert release.release(blank).tolist() == [None] * 3


@pytest.mark.slow
@pytest.mark.parametrize(("K", "accuracy"), [(14, 5e-5), (30, 0.02)])  # of 30 voters partitions are drawn
def test_one_open_question_is_answered_by_the_optimum(K: int, accuracy: float) -> None:
    result = plan(Workload(Voters(K, PLAIN, overlap=1), 1, PrivacyParams("1", "1e-5"), classes=OPEN), prior=Ewens())
    assert result.best.slug == "optimal"
    assert result.best.accuracy == pytest.approx(result.table.law.accuracy(Ewens()), abs=accuracy)
    if K == 14:
        assert result.best.accuracy == pytest.approx(0.2558, abs=5e-5)
        assert result.best.answered == pytest.approx(result.table.law.share_answered(Ewens()), abs=1e-9)


@pytest.mark.slow
def test_an_open_plan_is_released_debited_and_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, ledger, labels = tmp_path / "plan.json", tmp_path / "ledger.sqlite", tmp_path / "labels.csv"
    words = "--K 60 --non-private --overlap 1 --classes open --queries 8 --total 3,1e-4 --mechanism asymmetric"
    assert main([*words.split(), "--output", str(file), "--format", "json"]) == 0
    assert validated(capsys.readouterr().out, "plan_report")["mechanisms"][0]["answered"] > 0.1
    validated(file.read_text(), "release")
    votes = Votes.from_answers([["tea"] * 60, [""] * 60] * 4, missing="blank")
    budget = PrivacyLedger.create(ledger, PrivacyParams("3", "1e-4"))
    answers = release_debited(load_release(file), votes, ledger=budget, output=labels).tolist()
    assert answers == ["tea", None] * 4  # 60 votes for tea win all but surely
    assert verify([str(file), str(ledger), str(labels), "--all"]) == 0
    report = capsys.readouterr().out
    assert "a string that one person alone says is an answer with probability" in report
    assert "the labels are 1 answers" in report  # an empty field is none
    changed = json.loads(file.read_text())
    changed["threshold"] -= 10
    file.write_text(json.dumps(changed))
    assert verify([str(file), str(ledger)]) == 1  # the plan's total and the ledger's cost are not those of the file


@pytest.mark.slow
def test_a_long_list_is_planned_like_open_answers() -> None:
    work = Workload(Voters(30, PLAIN, overlap=1), 2, PrivacyParams(4, "1e-3"), classes=20_000)
    gnmax = find_mechanisms("gnmax")
    listed = plan(work, prior=Dirichlet(1.5 / 20_000), mechanisms=gnmax)
    unlisted = plan(replace(work, classes=OPEN), prior=Ewens(1.5), mechanisms=gnmax)
    assert (listed.best.settings, listed.best.accuracy) == (unlisted.best.settings, unlisted.best.accuracy)
    assert (listed.listed, unlisted.listed) == (20_000, 0)
    assert "20,000 classes is planned like open answers" in " ".join(str(listed).split())
    with pytest.raises(ValueError, match="longer lists are planned for non-private voters"):
        plan(replace(work, voters=Voters(30, PrivacyParams("0.1"), overlap=1)))


@pytest.mark.parametrize("mechanism", [LNMax(0.4), LNMax(0.4, reached=2), GNMax(3.0, reached=2)])
def test_an_open_cost_has_no_pair_and_the_guarantee_holds(mechanism: GNMax | LNMax) -> None:
    release = NoisyMaximum(mechanism, Voters.non_private(9, mechanism.reached), OPEN, threshold=20)
    cost, guarantee = release.privacy_cost(), release.guarantee
    assert cost.guarantee is None
    assert cost.vanishing == bound_vanishing(mechanism.law, 20, moved=mechanism.reached)
    assert isinstance(guarantee, PrivacyParams)
    assert PrivacyAccountant(costs=[cost]).spent(guarantee.delta).epsilon <= guarantee.epsilon * (1.0 + 1e-9)


GOOD = {"mechanism": GNMax(2.0), "voters": NINE, "classes": OPEN, "threshold": 8}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threshold": None}, "threshold"),
        ({"threshold": 0}, "at least 1"),
        ({"threshold": 2**70}, "at most"),
        ({"classes": 3}, "it is for open-set answers"),
        ({"mechanism": PermuteAndFlip(1.0)}, "GNMax, LNMax or AsymmetricMax"),
        ({"mechanism": LNMax(1e-6)}, "at most 20000 votes"),
        ({"voters": replace(NINE, sampled=Subsampling(Fraction(1, 10)))}, "the same for every open question"),
        ({"voters": Voters(9, PrivacyParams(1), overlap=1)}, "plain"),
    ],
)
def test_an_open_release_refuses(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NoisyMaximum(**(GOOD | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"threshold": 8.0}, {"threshold": "8"}, {"classes": 3}])
def test_a_stored_open_release_keeps_its_threshold(change: dict[str, object]) -> None:
    release = NoisyMaximum(**GOOD)  # type: ignore[arg-type]
    assert NoisyMaximum.from_json(release.to_json()).threshold == 8
    with pytest.raises(TableError):
        NoisyMaximum.from_json({**release.to_json(), **change})
    with pytest.raises(ValueError, match="for listed classes"):
        TestedRun(release, 5, PrivacyParams(1, "1e-5"), 8.0)


# the audit


def judge_vanishing(mechanism: GNMax | LNMax, share: float) -> str:
    """Judge a claim about strings of one person that is ``share`` times the honest one."""
    release = NoisyMaximum(mechanism, Voters.non_private(9, mechanism.reached), OPEN, threshold=25)
    cost = release.privacy_cost()
    claimed = replace(cost, vanishing=cost.vanishing * share)
    claims = judge_charge(cost_of(release), charge_of(claimed))
    (claim,) = [claim for claim in claims if "one person alone" in claim.claim]
    return claim.verdict


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("mechanism", "share", "verdict"),
    [
        (GNMax(3.0), 0.99, FALSE),
        (LNMax(0.4), 0.99, FALSE),
        (GNMax(3.0, reached=2), 0.6, FALSE),
        (GNMax(40.0, reached=3), 0.9, UNKNOWN),  # the events of three strings overlap: their sum is a bound
    ],
)
def test_the_audit_recomputes_the_probability_of_strings_of_one_person(
    mechanism: GNMax | LNMax, share: float, verdict: str
) -> None:
    assert judge_vanishing(mechanism, 1.0) == PROVED
    assert judge_vanishing(mechanism, share) == verdict


def test_the_audit_pays_for_strings_of_one_person_first() -> None:
    cost, delta = NoisyMaximum(GNMax(8.0), NINE, OPEN, threshold=30).privacy_cost(10), Fraction(1, 100)
    vanishing = Fraction(cost.vanishing) * 10
    total = smallest_total([(charge_of(cost), None)], delta, goal=0.0)
    lasting = smallest_total([(charge_of(replace(cost, vanishing=0.0)), None)], delta - vanishing, goal=0.0)
    assert total is not None
    assert lasting is not None
    assert total.epsilon == lasting.epsilon
    assert smallest_total([(charge_of(cost), None)], vanishing * Fraction(9, 10), goal=0.0) is None


def test_the_audit_leaves_a_filter_over_open_answers_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release = NoisyMaximum(GNMax(4.0), Voters(60, PLAIN, overlap=1), OPEN, threshold=24)
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams("3", "1e-4"), composition="adaptive")
    release_debited(release, Votes.from_answers([["tea"] * 60]), ledger=ledger)
    save_release(tmp_path / "r.json", release)
    assert verify([str(tmp_path / "r.json"), str(tmp_path / "l.sqlite")]) == 0
    assert capsys.readouterr().out.startswith("OPEN  1 label keeps to the budget (3, 0.0001) is unknown: no filter")
