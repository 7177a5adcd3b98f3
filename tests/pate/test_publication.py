import math
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyLedger, PrivacyParams, Problem, Voters, certify
from darrm.account.accountant import PrivacyAccountant
from darrm.errors import PrivateFigureError
from darrm.ledger.report import ledger_text
from darrm.loss.privacy_cost import ESTIMATED_TOTAL, PRIVATE_TOTAL, PrivacyCost
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.pate import publication
from darrm.pate.analysis import Analysis
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.gnss import GnssParameters, rules_of_thumb
from darrm.pate.publication import Sanitized, expected_publication, sanitize, search_parameters
from darrm.pate.smooth_sensitivity import ConditionError, SmoothCost, smooth_cost
from darrm.pate.vote_scale import PublicationParameters
from darrm.privacy import at_most
from darrm.verify.audit import audit
from darrm.verify.verdicts import ASSUMED
from tests.pate.pate_oracles import quiet

RNG = np.random.default_rng(6)
SHARES = RNG.beta(6.0, 1.2, size=200)
VOTES = np.array([RNG.multinomial(250, [share, *[(1 - share) / 9] * 9]) for share in SHARES])
ANSWERED = np.arange(200) % 2 == 0
WEIGHTS = ANSWERED.astype(float)
CONFIDENT = ConfidentGNMax(200, 150.0, 40.0)
PARAMETERS = GnssParameters(14.0, 0.02, 7.0)


@pytest.fixture(scope="module")
def released() -> Analysis:
    return quiet(VOTES, CONFIDENT, 1e-5, answered=ANSWERED, conversion="classic")


@pytest.fixture
def smooth(released: Analysis, monkeypatch: pytest.MonkeyPatch) -> SmoothCost:
    """The smooth cost of the released run, which each of many draws would compute again."""
    found = smooth_cost(released, 14.0, 0.02)
    monkeypatch.setattr(publication, "smooth_cost", lambda *_: found)
    return found


def sanitized(analysis: Analysis, parameters: GnssParameters, count: int) -> list[Sanitized]:
    return [sanitize(analysis, parameters, rng=np.random.default_rng(seed)) for seed in range(count)]


def test_the_published_figure_is_the_sum_of_its_parts(released: Analysis, smooth: SmoothCost) -> None:
    assert smooth.value(WEIGHTS) == pytest.approx(released.theorem_6.answers.at(14.0)[ANSWERED].sum())
    for one in sanitized(released, PARAMETERS, 20):
        noise = (one.noisy_cost - smooth.value(WEIGHTS)) / smooth.sensitivity(WEIGHTS, 0.02)
        assert 0.0 < abs(noise) < 5.0 * PARAMETERS.noise_scale
        assert one.public_cost == pytest.approx(200 * 14.0 / (2 * 150**2) + PARAMETERS.cost)
        assert one.epsilon == pytest.approx(one.noisy_cost + one.public_cost + math.log(1e5) / 13.0)


@pytest.mark.usefixtures("smooth")
def test_the_sanitized_part_stays_possible(released: Analysis) -> None:
    drawn = [one.noisy_cost for one in sanitized(released, GnssParameters(14.0, 0.02, 1e4), 20)]
    assert min(drawn) == 0.0
    assert max(drawn) == pytest.approx(100 * 14.0 / 1600, rel=1e-12)


def test_a_sanitized_run_enters_a_total_that_is_called_an_estimate(released: Analysis, tmp_path: Path) -> None:
    run, words = sanitize(released, PARAMETERS), "no guarantee: it holds published estimates about the data at hand, "
    words += "too small with probability up to"
    assert str(run) == (
        f"epsilon = {at_most(run.epsilon)} at delta = 1e-05 (sanitized, may be published; order 14, classic "
        "conversion; about the data at hand, too small with probability 0.5 for the one direction of Theorem 6, "
        "with an unknown one for both)"
    )
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", PrivacyParams(9, "1e-2"))
    for refused in (run.privacy_cost(), run.privacy_cost(consent=PRIVATE_TOTAL)):
        with pytest.raises(PrivateFigureError, match="about the data at hand and no guarantee, too small with prob"):
            PrivacyAccountant(costs=[refused])
        with pytest.raises(PrivateFigureError, match=f"say consent='{ESTIMATED_TOTAL}'"):
            ledger.debit(refused)
    with pytest.raises(PrivateFigureError, match="keeps no cost that is private data"):
        ledger.debit(replace(released.privacy_cost(), consent=PRIVATE_TOTAL))
    accountant = PrivacyAccountant()
    accountant.add(run.privacy_cost(), consent=ESTIMATED_TOTAL)
    assert accountant.spent(1e-5).epsilon == pytest.approx(run.epsilon)
    assert f"{words} 1" in str(accountant.spent(1e-5))
    for times, failure_probability in ((1, 1.0), (2, 1.0)):
        ledger.debit(run.privacy_cost(consent=ESTIMATED_TOTAL))
        again = PrivacyLedger(ledger.path)
        assert again.spent.failure_probability == again.spent.to_json()["failure_probability"] == failure_probability
        assert f"{words} {failure_probability:g}" in " ".join(ledger_text(again).split())
        assert again.spent.queries == times
    mixed = PrivacyAccountant(costs=[run.privacy_cost(consent=ESTIMATED_TOTAL), PrivacyCost("x", PrivacyParams(1))])
    assert mixed.spent(1e-4).failure_probability == 1.0
    assert PrivacyAccountant(costs=[PrivacyCost("x", PrivacyParams(1))]).spent(1e-4).failure_probability is None


def test_an_audit_promises_nothing_by_an_estimate(released: Analysis, tmp_path: Path) -> None:
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", PrivacyParams(9, "1e-2"))
    ledger.debit(sanitize(released, PARAMETERS).privacy_cost(consent=ESTIMATED_TOTAL))
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.2")), 2)
    certify(problem, NoiseFunction(3, [0.1, 0.2])).save(tmp_path / "table.json")
    found = audit([tmp_path / "table.json", tmp_path / "ledger.sqlite"])
    sums = [verdict for verdict in found.verdicts if verdict.about == "composition"]
    assert {verdict.verdict for verdict in sums} == {ASSUMED}
    assert "no guarantee" in sums[0].reason


@pytest.mark.slow
@pytest.mark.parametrize("check", [pytest.param("data-independent", marks=pytest.mark.slow), "data-dependent"])
def test_one_vote_changes_the_cost_by_no_more_than_its_sensitivity(check: str) -> None:
    few = 60

    def cost(votes: np.ndarray) -> SmoothCost:
        aggregator = ConfidentGNMax(150, 20.0, 40.0)
        return smooth_cost(quiet(votes, aggregator, 1e-5, answered=ANSWERED[:few], check=check), 14.0, 0.02)

    here = cost(VOTES[:few])
    for source, target in ((0, 1), (3, 0), (0, 9)):
        moved = VOTES[:few].copy()
        able = moved[:, source] > 0
        moved[able, source] -= 1
        moved[able, target] += 1
        there = cost(moved)
        step = abs(here.value(WEIGHTS[:few]) - there.value(WEIGHTS[:few]))
        first, second = (one.sensitivity(WEIGHTS[:few], 0.02) for one in (here, there))
        assert 0.0 < step <= min(first, second)
        assert abs(math.log(first / second)) <= 0.02 * (1 + 1e-9)


@pytest.mark.slow
def test_the_search_takes_the_best_of_the_three_first_orders_that_meet_the_conditions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def at(orders: list[float]) -> Analysis:
        return quiet(VOTES, CONFIDENT, 1e-5, answered=ANSWERED, conversion="classic", orders=orders)

    monkeypatch.setattr(publication, "_SMOOTHNESS_SHARES", np.linspace(0.3, 0.98, 5))
    analysis = at([13.0, 15.0, 17.0, 19.0, 21.0, 40.0])  # ε grows from 40, where C6 fails, down to 13
    one = {order: search_parameters(analysis, order) for order in (15.0, 17.0, 19.0, 21.0)}
    found = search_parameters(analysis)
    assert found == one[17.0]  # the third; 15 would be the fourth, and better
    assert min(one, key=lambda order: one[order].epsilon + 2.0 * one[order].deviation) == 15.0
    with pytest.raises(ConditionError, match="C6"):
        search_parameters(at([40.0, 45.0]))


def test_gnmax_without_a_check_needs_no_pattern() -> None:
    assert sanitize(quiet(VOTES[:20], GNMax(40.0), 1e-5), PARAMETERS).public_cost == pytest.approx(PARAMETERS.cost)


def test_it_refuses_what_cannot_be_published() -> None:
    with pytest.raises(ValueError, match="needs the pattern of answers"):
        sanitize(quiet(VOTES[:1], CONFIDENT, 1e-5), PARAMETERS)
    with pytest.raises(ValueError, match="no smooth sensitivity for LNMax"):
        sanitize(quiet(VOTES[:1], LNMax(0.05), 1e-5), PARAMETERS)
    with pytest.raises(ConditionError, match="C6"):
        sanitize(quiet([[12, 0]], GNMax(2.0), 1e-5), GnssParameters(4.0, 0.02, 7.0))


def test_a_figure_by_theorem_6_says_nothing_of_how_often_it_is_below_the_cost_of_both_directions() -> None:
    analysis = quiet(np.tile([53, 47], (20, 1)), GNMax(1.0), 1e-5, answered=np.ones(20, dtype=bool))
    one = GnssParameters(2.0, 0.3, 0.1, safety=3.0)
    figures = [sanitize(analysis, one, rng=np.random.default_rng(seed)) for seed in range(20)]
    here, near = NormalDist().cdf(6.0 / math.sqrt(2.0)), NormalDist().cdf(4.0 / math.sqrt(2.0))
    both = 20.0 * max(math.log(p * p / q + (1.0 - p) ** 2 / (1.0 - q)) for p, q in ((here, near), (near, here)))
    assert np.mean([figure.noisy_cost < both for figure in figures]) > 0.3
    assert figures[0].failure_probability == pytest.approx(0.00135, rel=1e-2)
    assert "probability 0.00135 for the one direction of Theorem 6, with an unknown one for both" in str(figures[0])
    account = PrivacyAccountant(costs=[figures[0].privacy_cost(consent=ESTIMATED_TOTAL)])
    assert "too small with probability up to 1" in str(account.spent(1e-5))


def test_a_figure_on_the_scale_of_votes_is_about_both_directions(released: Analysis) -> None:
    analysis = quiet(VOTES[:20], GNMax(40.0), 1e-5, answered=np.ones(20, dtype=bool))
    figure = sanitize(analysis, PublicationParameters(8.0, 8.0, safety=2.0))
    assert not figure.is_of_one_direction
    assert figure.privacy_cost(consent=ESTIMATED_TOTAL).failure_probability == pytest.approx(NormalDist().cdf(-2.0))
    assert "direction" not in str(figure)
    assert sanitize(released, PARAMETERS).is_of_one_direction


@pytest.mark.slow
def test_the_search_beats_its_neighbors_and_the_rules_of_thumb(released: Analysis) -> None:
    found = search_parameters(released, 14.0)
    best = found.epsilon + 2.0 * found.deviation
    thumb = rules_of_thumb(2.0, 1e-5)
    others = [
        GnssParameters(14.0, thumb.smoothness, thumb.noise_scale),
        GnssParameters(14.0, found.parameters.smoothness, 1.2 * found.parameters.noise_scale),
        GnssParameters(14.0, 0.6 * found.parameters.smoothness, found.parameters.noise_scale),
        GnssParameters(14.0, 1.3 * found.parameters.smoothness, found.parameters.noise_scale),
    ]
    for parameters in others:
        other = expected_publication(released, parameters)
        assert best <= other.epsilon + 2.0 * other.deviation
