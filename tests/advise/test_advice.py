"""Advice: what applies, what needs no noise, how models are counted, and that every option can be released as said."""

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.account.bounds import Bound, models_bound
from darrm.advise import advise
from darrm.advise.advice import Advice
from darrm.advise.report import text_report
from darrm.errors import PlanError
from darrm.laws import priors
from darrm.optimize.plurality_bounds import right_at_most
from darrm.plan import FAMILIES, Family, Parameter, Proposal, Search
from darrm.plan.__main__ import build_parser
from darrm.plan.budget import counted
from darrm.plan.parameter import fixed
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.proof.table import Table
from darrm.system.flags import workload_of
from darrm.votes import Votes
from tests.planned import FRESH, MANY, MODELS, ONE, ORACLE, advised, planned, rivals

MODEL = PrivacyParams("0.0892", "1e-4")
TOTAL = PrivacyParams(1, "1e-4")
NO_NOISE = "no noise"
NAMES = [
    "Rényi",
    "per query",
    "permute-and-flip",
    "exponential mechanism",
    "GNMax by label",
    "LNMax by label",
    "shaped noise",
    "GNMax, paper's σ",
    "GNMax, tight σ",
    "LNMax",
    "subsampling",
    "double subsampling",
    "DaRRM of the paper",
    "randomized response",
]


def of_names(*names: str) -> list[Family]:
    return [family for family in FAMILIES if family.name in names]


FEW = of_names("permute-and-flip", "GNMax by label", "randomized response")


def test_private_models_on_disjoint_shards_need_no_noise() -> None:
    work = Workload(Voters(5, MODEL, overlap=1, models=True), 20, TOTAL)
    found = advise(work, families=of_names(NO_NOISE, "LNMax"))
    best = found.options[0]
    assert best.name == NO_NOISE
    cap = models_bound(Voters(1, MODEL, models=True), 1e-4)
    assert cap is not None
    assert best.cost.epsilon == cap.epsilon == 0.0892
    assert "No noise is needed" in found.remarks[0]


@pytest.mark.parametrize(("overlap", "fits"), [(2, True), (None, False)])
def test_models_that_share_people_cost_what_a_person_reaches(overlap: int | None, fits: bool) -> None:
    cap = models_bound(Voters(overlap or 5, MODEL, models=True), 1e-2)
    assert cap is not None
    assert (cap.epsilon <= 0.2) is fits
    work = Workload(Voters(5, MODEL, overlap=overlap, models=True), 9, PrivacyParams("0.2", "1e-2"))
    found = advise(work, families=of_names(NO_NOISE, "LNMax"))
    assert (found.options[0].name == NO_NOISE) is fits
    if fits:
        assert found.options[0].cost.epsilon == cap.epsilon
    else:
        assert f"{cap.epsilon:.6g} together" in dict(found.absent)[NO_NOISE]


@pytest.mark.slow
def test_models_beyond_their_cap_are_counted_as_plain_voters() -> None:
    found = advised(MODELS, families=FEW)
    assert not counted(found.workload).voters.each.is_private
    assert any("the costs of single queries do not add up" in remark for remark in found.remarks)
    assert any("nothing beats randomized response" in remark for remark in found.remarks)
    constant = next(option for option in found.options if option.name == "randomized response")
    assert found.options[0].accuracy(found.prior) >= constant.accuracy(found.prior) - 1e-9
    # one query is one query, for models too
    once = advise(Workload(Voters(3, MODEL, models=True), 1, TOTAL), families=of_names("per query"))
    assert once.options[0].workload.voters.each == MODEL


def test_fresh_voters_on_disjoint_shards_need_no_noise_either() -> None:
    work = Workload(Voters(9, PrivacyParams("0.1"), overlap=1), 10, PrivacyParams("2", "1e-5"))
    found = advise(work, families=of_names("per query", "LNMax", "subsampling"))
    assert found.options[0].name == "per query"
    assert np.all(found.options[0].truth == 1.0)
    assert "parallel composition" in found.remarks[0]
    assert "--models" in found.remarks[1]


@pytest.mark.slow
def test_the_ranking_is_of_the_librarys_own_numbers() -> None:
    prior = priors.Point(0.7)
    found = advised(MANY, prior)
    accuracies = [option.accuracy(prior) for option in found.options]
    assert accuracies == sorted(accuracies, reverse=True)
    expected = {option.name: option.truth.tolist() for option in rivals(MANY).options}  # none of them asks the prior
    assert {option.name: option.truth.tolist() for option in found.options if option.name in expected} == expected
    assert found.recommended.truth.tolist() == planned(MANY, prior).best.truth.tolist()
    assert not any("No noise" in remark for remark in found.remarks)


def test_the_names_are_those_of_the_pages() -> None:
    assert [*dict.fromkeys(family.name for family in FAMILIES)] == [NO_NOISE, *NAMES]


def printed(advice: Advice) -> dict[str, tuple[float, float, float, bool]]:
    """Share of right labels, accuracy, total ε and mark of every mechanism, as a reader finds them in the report."""
    rows = text_report(advice).partition("mechanism\n")[2].partition("\n\n")[0].splitlines()
    number = len(advice.options)
    absent = len(advice.absent)
    does = "does" if absent == 1 else "do"
    assert rows[number:] == ([f"  {absent} more {does} not apply: --all says why"] if absent else [])
    found = {}
    for row in rows[:number]:
        accuracy, right, total, words = row[2:10].strip(), row[12:20].strip(), row[49:58].strip(), row[61:]
        name = next(name for name in sorted([NO_NOISE, *NAMES], key=len, reverse=True) if words.startswith(name))
        if accuracy != "–":
            found[name] = (float(right), float(accuracy), float(total), row.startswith("*"))
    return found


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("work", [MANY, pytest.param(FRESH, marks=pytest.mark.slow), MODELS, ONE], ids=str)
def test_every_number_of_the_report_is_the_options(work: Workload) -> None:
    """Compared with what a draw of the prior gives by the definition of the error, and with the accountant."""
    advice = advised(work, families=FEW if work is MODELS else None)
    K, p = work.voters.K, (np.arange(20_000) + 0.5) / 20_000
    votes = np.arange(K + 1)
    choose = np.array([float(np.prod([(K - i) / (i + 1) for i in range(k)])) for k in votes])
    law = choose[:, None] * p ** votes[:, None] * (1.0 - p) ** (K - votes[:, None])

    def error(truth: np.ndarray) -> float:
        """The mean over p of |Pr[answer is 1] − Pr[majority is 1]|."""
        tells = np.concatenate([1.0 - truth[::-1], [0.5] * (K % 2 == 0), truth])
        majority = np.where(2 * votes == K, 0.5, 2 * votes > K)
        return float(np.mean(np.abs((tells - majority) @ law)))

    shown = printed(advice)
    assert set(shown) == {option.name for option in advice.options}
    for option in advice.options:
        right, accuracy, total, marked = shown[option.name]
        # every number of ones from 0 to K is equally likely, and a tie has no wrong answer
        alike = (2.0 * option.truth.sum() + (K % 2 == 0)) / (K + 1)
        assert right == pytest.approx(alike, abs=1e-5)
        assert accuracy == pytest.approx(1.0 - error(option.truth), abs=1e-5)
        assert total == pytest.approx(option.cost.epsilon, rel=1e-4)
        assert marked is (option is advice.recommended)
    coin, share = map(float, text_report(advice).partition("a fair coin has ")[2].partition("\n")[0].split(" and "))
    assert share == pytest.approx(0.5 * (K + 1 + (K % 2 == 0)) / (K + 1), abs=1e-5)
    assert coin == pytest.approx(1.0 - error(np.full(work.voters.half_size, 0.5)), abs=1e-5)


@pytest.mark.parametrize("work", [MANY, pytest.param(FRESH, marks=pytest.mark.slow), ONE], ids=str)
def test_what_is_printed_releases_what_the_option_promises(work: Workload) -> None:
    rng = np.random.default_rng(3)
    votes = rng.integers(0, 2, (work.queries, work.voters.K))
    counts = np.stack([work.voters.K - votes.sum(axis=1), votes.sum(axis=1)], axis=1)
    for option in advised(work).options:
        assert bool(option.instructions) is (option.aggregator is not None) is not bool(option.only_compared)
        if option.aggregator is None:
            continue
        charge = option.aggregator.charge(work.queries)
        account = PrivacyAccountant(charges=[charge])
        assert account.admits(work.total), option.name
        assert account.spent(work.total.delta).epsilon == pytest.approx(option.cost.epsilon, rel=1e-9), option.name
        words = shlex.split(option.instructions[0])
        assert words[:3] == ["python", "-m", "darrm.plan"]
        options = build_parser().parse_args(words[3:])
        assert workload_of(options) == work
        assert options.family == option.name
        assert option.aggregator.release(Votes.of_counts(counts), rng=rng).shape == (work.queries,)


def test_a_prior_of_ones_own_is_planned_with_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No flag of `python -m darrm.plan` reads it, whatever its name."""

    class Own(priors.Point):
        def weights(self, K: int) -> np.ndarray:
            return 0.5 * super().weights(K)

    monkeypatch.chdir(tmp_path)
    found = planned(ONE, Own(0.9))
    *python, release = found.option.instructions
    exec("\n".join(python), {"workload": ONE, "prior": Own(0.9)})  # noqa: S102 (the lines under test)
    assert Table.load("plan.json").gamma.half.tolist() == found.table.gamma.half.tolist()
    assert "--table plan.json" in release
    assert "--prior" not in " ".join(found.option.instructions)


@pytest.mark.slow
def test_noisy_counts_are_calibrated_to_all_votes_that_a_person_reaches() -> None:
    families = of_names("GNMax by label", "LNMax by label")
    found = {option.name: option for option in advised(FRESH, families=families).options}
    for name in ("GNMax by label", "LNMax by label"):
        option = found[name]
        assert option.aggregator is not None
        assert option.aggregator.charge().reached == FRESH.voters.reached > 1
        account = PrivacyAccountant(FRESH.voters, [option.aggregator.charge(FRESH.queries)])
        assert account.admits(FRESH.total)


def test_a_new_aggregator_is_one_entry() -> None:
    found = advised(ONE, families=(*FAMILIES, ORACLE))
    assert found.recommended.name == "oracle"
    text = text_report(found)
    assert "*  1.00000   1.00000    1.000    1.000    1.000        0.5   oracle (by hope)" in text
    assert text.endswith("Do this:\n  ask the oracle\n")
    more = Workload(Voters(3, PrivacyParams("inf"), overlap=1), 41, PrivacyParams(1))
    with pytest.raises(PlanError, match="nothing applies: oracle: it tires"):
        advise(more, families=[ORACLE])


def test_a_new_aggregator_of_more_classes_is_ranked_by_its_share() -> None:
    work = Workload(Voters(8, PrivacyParams("inf"), overlap=1), 1, PrivacyParams("0.5", "1e-5"), 3)
    few = of_names("per query", "exponential mechanism")

    def almost(search: Search) -> list[Parameter]:
        total = Bound("hope", search.workload.total.epsilon, "")
        law = Proposal(law=lambda counts: np.where(counts == counts.max(axis=1)[:, None], 0.99, 0.0), total=total)
        return [fixed(search.workload, law)]

    mine = Family("oracle", almost, only_compared="none")
    found = advised(work, families=[*few, mine, replace(ORACLE, name="for two")])
    assert [option.name for option in found.options] == ["oracle", "per query", "exponential mechanism"]
    assert found.options[0].right == pytest.approx(1.0, abs=0.011)
    assert ("for two", "it is for two classes only") in found.absent
    assert found.recommended.name == "per query"


def test_an_option_that_is_only_compared_is_not_recommended() -> None:
    secret = replace(ORACLE, only_compared="nobody can ask it")
    found = advised(ONE, families=(*FAMILIES, secret))
    assert found.options[0].name == "oracle"
    assert found.recommended.name == "per query"
    assert (
        "oracle is only compared: nobody can ask it.\nOf these the library releases * (names in capitals"
        in text_report(found)
    )
    with pytest.raises(PlanError, match="none of the options that apply is released"):
        _ = advise(ONE, families=[secret]).recommended
    with pytest.raises(ValueError, match="either what releases it or why it is only compared"):
        replace(found.options[0], only_compared="")


def test_advice_on_more_classes_says_what_no_release_exceeds() -> None:
    """One question on three classes: the theorem's bound over all histograms, above every option."""
    work = Workload(Voters(8, PrivacyParams("inf"), overlap=1), 1, PrivacyParams("0.5", "1e-5"), 3)
    found = advise(work, prior=priors.Dirichlet(), families=of_names("per query", "exponential mechanism"))
    (remark,) = (each for each in found.remarks if each.startswith("No private release whatsoever"))
    limit = float(remark.partition("more often than ")[2].split()[0])
    rows = [(a, b, 8 - a - b) for a in range(9) for b in range(9 - a)]
    assert limit == pytest.approx(float(np.mean(right_at_most(rows, work.total))), abs=6e-6)
    assert all(option.right <= limit for option in found.options)


@pytest.mark.slow
def test_a_budget_that_floats_hardly_hold_is_advised_on() -> None:
    work = Workload(Voters(3, PrivacyParams("inf"), overlap=1), 1, PrivacyParams("1e-320", "1e-300"))
    shares = {
        option.name: option.share_right for option in advise(work, families=of_names("LNMax", "per query")).options
    }
    assert shares["LNMax"] is not None
    assert shares["LNMax"].value == pytest.approx(0.5, abs=1e-9)
