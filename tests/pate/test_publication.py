from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.pate.analysis import Analysis, analyze
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.cost_shape import ConditionError
from darrm.pate.gnss import GnssParameters, rules_of_thumb
from darrm.pate.noisy_max import GNMax, LNMax
from darrm.pate.publication import expected_publication, sanitize, search_parameters
from darrm.pate.smooth_sensitivity import smooth_cost

RNG = np.random.default_rng(6)
SHARES = RNG.beta(6.0, 1.2, size=200)
VOTES = np.array([RNG.multinomial(250, [share, *[(1 - share) / 9] * 9]) for share in SHARES])
ANSWERED = np.arange(200) % 2 == 0
CONFIDENT = ConfidentGNMax(200, 150.0, 40.0)
PARAMETERS = GnssParameters(14.0, 0.02, 7.0)


def quiet(*arguments: object, **named: object) -> Analysis:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return analyze(*arguments, **named)  # type: ignore[arg-type]


def test_the_published_figure_is_the_sum_of_its_parts() -> None:
    analysis = quiet(VOTES, CONFIDENT, 1e-5, answered=ANSWERED, conversion="classic")
    smooth = smooth_cost(analysis, 14.0, 0.02)
    weights = ANSWERED.astype(float)
    assert smooth.value(weights) == pytest.approx(analysis.answer_costs(14.0)[ANSWERED].sum())
    draws = [sanitize(analysis, PARAMETERS, rng=np.random.default_rng(seed)) for seed in range(100)]
    check = 200 * 14.0 / (2 * 150**2)
    for one in draws[:20]:
        assert one.public_cost == pytest.approx(check + PARAMETERS.cost)
        assert one.epsilon == pytest.approx(one.noisy_cost + one.public_cost + math.log(1e5) / 13.0)
    noisy = np.array([one.noisy_cost for one in draws])
    deviation = 7.0 * smooth.sensitivity(weights, 0.02)
    assert abs(noisy.mean() - smooth.value(weights)) < 5.5 * deviation / math.sqrt(100)
    assert noisy.std() == pytest.approx(deviation, rel=0.5)


def test_safety_makes_the_figure_an_upper_bound_almost_always() -> None:
    analysis = quiet(VOTES, CONFIDENT, 1e-5, answered=ANSWERED)
    safe = GnssParameters(14.0, 0.02, 7.0, safety=4.0)
    true = smooth_cost(analysis, 14.0, 0.02).value(ANSWERED.astype(float))
    drawn = [sanitize(analysis, safe, rng=np.random.default_rng(seed)) for seed in range(50)]
    assert all(one.noisy_cost >= true for one in drawn)
    assert drawn[0].understated_with == pytest.approx(3.17e-5, rel=1e-2)
    assert safe.cost > PARAMETERS.cost
    assert sanitize(analysis, PARAMETERS).understated_with == 0.5


def test_the_sanitised_part_stays_possible() -> None:
    analysis = quiet(VOTES, CONFIDENT, 1e-5, answered=ANSWERED)
    wild = GnssParameters(14.0, 0.02, 1e4)
    for seed in range(20):
        assert (
            0.0
            <= sanitize(analysis, wild, rng=np.random.default_rng(seed)).noisy_cost
            <= 100 * 14.0 / 1600 * (1 + 1e-12)
        )


def test_a_sanitised_run_may_enter_a_published_total() -> None:
    run = sanitize(quiet(VOTES, CONFIDENT, 1e-5, answered=ANSWERED), PARAMETERS)
    accountant = PrivacyAccountant()
    accountant.add(run.charge())
    assert accountant.spent(1e-5).epsilon == pytest.approx(run.epsilon)
    assert "may be published" in str(run)


def test_one_vote_changes_the_cost_by_no_more_than_its_sensitivity() -> None:
    for check in ("data-independent", "data-dependent"):
        aggregator = ConfidentGNMax(150, 20.0, 40.0)
        analysis = quiet(VOTES, aggregator, 1e-5, answered=ANSWERED, check=check)
        weights = ANSWERED.astype(float)
        here = smooth_cost(analysis, 14.0, 0.02)
        for source, target in ((0, 1), (3, 0), (0, 9)):
            moved = VOTES.copy()
            able = moved[:, source] > 0
            moved[able, source] -= 1
            moved[able, target] += 1
            there = smooth_cost(quiet(moved, aggregator, 1e-5, answered=ANSWERED, check=check), 14.0, 0.02)
            step = abs(here.value(weights) - there.value(weights))
            first, second = here.sensitivity(weights, 0.02), there.sensitivity(weights, 0.02)
            assert 0.0 < step <= min(first, second)
            assert abs(math.log(first / second)) <= 0.02 * (1 + 1e-9)


def test_the_threshold_adds_its_sensitivity_only_where_its_cost_is_data_dependent() -> None:
    aggregator = ConfidentGNMax(150, 20.0, 40.0)
    plain = smooth_cost(quiet(VOTES, aggregator, 1e-5), 14.0, 0.02)
    dependent = smooth_cost(quiet(VOTES, aggregator, 1e-5, check="data-dependent"), 14.0, 0.02)
    assert not plain.checks_profile.any()
    assert plain.checks == 0.0
    assert dependent.checks > 0.0
    assert dependent.sensitivity(np.ones(200), 0.02) > plain.sensitivity(np.ones(200), 0.02)
    assert np.all(np.diff(dependent.checks_profile) >= 0.0)


def test_the_search_beats_its_neighbours_and_the_rules_of_thumb() -> None:
    analysis = quiet(VOTES, CONFIDENT, 1e-5, answered=ANSWERED)
    found = search_parameters(analysis, 14.0)
    best = found.epsilon + 2.0 * found.deviation
    thumb = rules_of_thumb(2.0, 1e-5)
    others = [
        GnssParameters(14.0, thumb.smoothness, thumb.noise_scale),
        GnssParameters(14.0, found.parameters.smoothness, 1.2 * found.parameters.noise_scale),
        GnssParameters(14.0, 0.6 * found.parameters.smoothness, found.parameters.noise_scale),
        GnssParameters(14.0, 1.3 * found.parameters.smoothness, found.parameters.noise_scale),
    ]
    for parameters in others:
        other = expected_publication(analysis, parameters)
        assert best <= other.epsilon + 2.0 * other.deviation


def test_expectations_are_averages_over_the_check() -> None:
    planned = quiet(VOTES, CONFIDENT, 1e-5)
    found = expected_publication(planned, PARAMETERS, simulations=10)
    answers = planned.probabilities @ planned.answer_costs(14.0)
    assert found.renyi == pytest.approx(answers + 200 * 14.0 / 45000)
    tight = math.log1p(-1 / 14) - (math.log(1e-5) + math.log(14)) / 13
    assert found.epsilon == pytest.approx(found.renyi + PARAMETERS.cost + tight)
    assert found.deviation == pytest.approx(7.0 * found.sensitivity)


def test_it_refuses_what_cannot_be_published() -> None:
    with pytest.raises(ValueError, match="needs the answers that were given"):
        sanitize(quiet(VOTES, CONFIDENT, 1e-5), PARAMETERS)
    with pytest.raises(ValueError, match="no smooth sensitivity for LNMax"):
        sanitize(quiet(VOTES, LNMax(0.05), 1e-5), PARAMETERS)
    with pytest.raises(ConditionError, match="C6"):
        sanitize(quiet([[12, 0]], GNMax(2.0), 1e-5), GnssParameters(4.0, 0.02, 7.0))


def test_gnmax_without_a_check_needs_no_pattern() -> None:
    run = sanitize(quiet(VOTES, GNMax(40.0), 1e-5), PARAMETERS)
    assert run.public_cost == pytest.approx(PARAMETERS.cost)
