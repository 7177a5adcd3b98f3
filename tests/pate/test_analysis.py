"""The cost of a run from its votes: a loop over queries from the paper's formulas, and over exact labels."""

import math
import warnings
from typing import Any

import numpy as np
import pytest

from darrm.loss.renyi import RenyiGridWarning
from darrm.noisy_max.cost_given_votes import label_costs
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.pate import analysis
from darrm.pate.analysis import PateAggregator, PrivateFigureWarning, analyze, find_noisy_max
from darrm.pate.confident import ConfidentGNMax, InteractiveGNMax, NoisyCheck
from darrm.votes import Votes
from tests.noisy_max.oracles import wide_law_of
from tests.pate.support import analyze_quietly, lnmax_moments, theorem_6

ORDERS = (1.5, 3.0, 8.0, 14.0, 20.0, 40.0, 90.0)
COUNTS = np.random.default_rng(2).multinomial(250, [0.8, 0.1, 0.05, 0.05], size=30)
COUNTS[:5] = [[126, 124, 0, 0], [250, 0, 0, 0], [125, 125, 0, 0], [63, 63, 62, 62], [200, 30, 20, 0]]
SCORES = np.random.default_rng(3).dirichlet([1.0] * 4, size=30)
CONFIDENT = ConfidentGNMax(200, 150.0, 40.0, noise="continuous")
PATTERN = np.arange(30) % 3 == 0


def normal_tail(x: float) -> float:
    return 0.5 * math.erfc(x / math.sqrt(2.0))


def list_gaps(row: list[int]) -> list[int]:
    """List the votes that each rival lies behind the plurality."""
    return [max(row) - votes for votes in sorted(row)[:-1]]


def cost_answer(row: list[int], order: float) -> float:
    q = sum(normal_tail(gap / (math.sqrt(2) * 40)) for gap in list_gaps(row))
    return order / 1600 if q >= 1 else float(theorem_6(math.log(q), 40.0, order))


@pytest.mark.parametrize(
    ("aggregator", "options", "weights"),
    [
        (CONFIDENT, {}, [normal_tail((200 - max(row)) / 150) for row in COUNTS.tolist()]),
        (CONFIDENT, {"answered": PATTERN}, PATTERN.tolist()),
        (CONFIDENT, {"answered": np.zeros(30, dtype=bool)}, [0.0] * 30),
        (
            InteractiveGNMax(100, 150.0, 40.0, 0.9, noise="continuous"),
            {"scores": SCORES},
            [normal_tail((100 - s) / 150) for s in (COUNTS - np.rint(250 * SCORES)).max(axis=1)],
        ),
    ],
    ids=["expected", "released", "none answered", "interactive"],
)
def test_every_query_pays_for_the_check_and_only_answers_for_the_label(
    aggregator: PateAggregator, options: dict[str, Any], weights: list[float]
) -> None:
    result = analyze_quietly(COUNTS, aggregator, orders=ORDERS, **options)
    assert result.expected_answered == pytest.approx(sum(weights))
    for index, order in enumerate(ORDERS):
        checks = 30 * order / (2 * 150**2)
        answers = sum(w * cost_answer(row, order) for w, row in zip(weights, COUNTS.tolist(), strict=True))
        assert result.cost.checks.values[index] == pytest.approx(checks)
        assert result.curve.values[index] == pytest.approx(checks + answers, rel=1e-11)
        assert result.independent_curve.values[index] == pytest.approx(checks + sum(weights) * order / 1600)
        assert result.worst_curve.values[index] == pytest.approx(checks + 30 * order / 1600)


def test_lnmax_is_the_loop_over_queries() -> None:
    gamma = 0.05
    result = analyze_quietly(COUNTS, LNMax(gamma, noise="continuous"), orders=ORDERS)
    for index, order in enumerate(ORDERS):
        total = 0.0
        for row in COUNTS.tolist():
            q = sum((2 + gamma * gap) / (4 * math.exp(gamma * gap)) for gap in list_gaps(row))
            total += float(lnmax_moments(min(math.log(q), 0.0), gamma, order))
        assert result.curve.values[index] == pytest.approx(total, rel=1e-11)
    assert (result.expected_answered, result.check_share) == (30, 0.0)


def test_a_data_dependent_check_is_theorem_6_for_two_outcomes() -> None:
    sharp = ConfidentGNMax(150, 20.0, 40.0, noise="continuous")
    result = analyze_quietly(COUNTS, sharp, orders=ORDERS, check="data-dependent")
    assert (result.charged, result.exact, result.label) == ("Theorem 6", None, None)
    total = 0.0
    for row in COUNTS.tolist():
        q = min(normal_tail((150 - max(row)) / 20), normal_tail((max(row) - 150) / 20))
        total += float(theorem_6(math.log(q), math.sqrt(2.0) * 20.0, 8.0))
    assert result.cost.checks.values[2] == pytest.approx(total, rel=1e-6)
    assert result.epsilon < analyze_quietly(COUNTS, sharp, orders=ORDERS).epsilon


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = analyze_quietly(COUNTS, CONFIDENT, orders=ORDERS).curve.values
    monkeypatch.setattr(analysis, "_MAX_PAIRS", 11 * len(ORDERS))
    monkeypatch.setattr("darrm.pate.theorem_6._ENTRIES_AT_ONCE", 4 * len(ORDERS))
    assert analyze_quietly(COUNTS, CONFIDENT, orders=ORDERS).curve.values == pytest.approx(whole, rel=1e-13)


def test_parts_of_a_run_cost_as_much_as_the_whole() -> None:
    result = analyze_quietly(COUNTS, ConfidentGNMax(200, 150.0, 40.0), orders=ORDERS)
    assert result.exact is not None
    for evidence in (result.theorem_6, result.exact):
        first, second = (evidence.answers.total(result.probabilities, part) for part in (slice(0, 7), slice(7, 30)))
        assert first + second + evidence.checks.values == pytest.approx(evidence.curve.values, rel=1e-9)
        for order in (3.0, 14.0):
            total = result.probabilities @ evidence.answers.at(order)
            assert total == pytest.approx((first + second)[ORDERS.index(order)], rel=1e-9)


def test_theorem_6_costs_a_little_more_for_discrete_noise() -> None:
    continuous, discrete = analyze_quietly(COUNTS, CONFIDENT), analyze_quietly(COUNTS, ConfidentGNMax(200, 150.0, 40.0))
    assert continuous.epsilon < discrete.to_epsilon(discrete.theorem_6.curve) < 1.02 * continuous.epsilon


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("check", ["data-independent", "data-dependent"])
@pytest.mark.parametrize("aggregator", [ConfidentGNMax(150, 20.0, 40.0), GNMax(40.0), LNMax(0.05)])
def test_the_exact_cost_is_the_loop_over_labels_and_checks(aggregator: PateAggregator, check: str) -> None:
    result = analyze_quietly(COUNTS, aggregator, orders=ORDERS, check=check)
    answer = find_noisy_max(aggregator)
    label = label_costs(answer.law, COUNTS, ORDERS)
    assert result.exact is not None
    assert result.forward is not None
    for order in (3.0, 8.0, 14.0):
        index, largest = ORDERS.index(order), answer.guarantee.bound_at(order)
        costs = np.minimum([label.forward[:, index], label.worst[:, index]], largest)[:, label.histogram_index]
        totals = costs @ result.probabilities
        if isinstance(aggregator, ConfidentGNMax):
            bit = aggregator.check.guarantee.bound_at(order)
            exact = np.stack([part[:, 0] for part in aggregator.check.exact(COUNTS.max(axis=1), [order])])
            totals += np.minimum(exact, bit).sum(axis=1) if check == "data-dependent" else 30 * bit
        for total, evidence in zip(totals, (result.forward, result.exact), strict=True):
            # between the knots costs are bounded by chords
            assert total * (1.0 - 1e-12) <= evidence.curve.values[index] <= total * 1.1
    assert result.charged == "exact"
    assert result.epsilon == result.to_epsilon(result.exact.curve) < result.to_epsilon(result.theorem_6.curve)


def test_a_bit_costs_the_worst_of_its_two_neighbors() -> None:
    check, order = NoisyCheck(6.5, 2.0), 5.0
    values, logs = wide_law_of(DiscreteGaussian(2.0))
    passes = [float(np.exp(logs[values + s >= 6.5]).sum()) for s in range(-1, 15)]
    laws = [np.array([p, 1.0 - p]) for p in passes]
    for statistic in range(14):
        before, here, after = laws[statistic : statistic + 3]
        forward = max(math.log(np.sum(here**order * q ** (1.0 - order))) / (order - 1.0) for q in (before, after))
        reverse = max(math.log(np.sum(q**order * here ** (1.0 - order))) / (order - 1.0) for q in (before, after))
        costs = [part[0, 0] for part in check.exact(np.array([statistic]), [order])]
        assert costs == pytest.approx([forward, max(forward, reverse)], abs=1e-9)
        assert costs[0] >= forward * (1.0 - 1e-12)


def test_it_warns_of_a_private_figure_and_of_an_order_at_the_edge() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = analyze(Votes.from_counts(COUNTS), CONFIDENT, 1e-5, orders=[2.0, 3.0])
    assert [warning.category for warning in caught] == [PrivateFigureWarning, RenyiGridWarning]
    assert "itself private data" in str(caught[0].message)
    assert "edge of the grid [2, 3]" in str(caught[1].message)
    assert (result.best.at_edge, result.order) == (True, 3.0)
    with pytest.warns(PrivateFigureWarning):  # and of nothing else on a wide grid
        analyze(Votes.from_counts(COUNTS), CONFIDENT, 1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta": 0.0}, "delta must be in"),
        ({"conversion": "modern"}, "conversion must be one of"),
        ({"check": "free"}, "check must be one of"),
        ({"answered": np.ones(30)}, "answered must be 30 booleans"),
        ({"answered": np.ones(4, dtype=bool)}, "answered must be 30 booleans"),
        ({"scores": SCORES}, "scores are for InteractiveGNMax only"),
        ({"orders": [1.0, 2.0]}, "orders must be"),
        ({"counts": [[1, 2], [1, 1]]}, "the sum of row 1"),
        ({"aggregator": InteractiveGNMax(1, 1.0, 1.0, 0.5)}, "needs scores="),
        ({"aggregator": GNMax(40.0), "answered": np.zeros(30, dtype=bool)}, "answered must be all True"),
        ({"aggregator": GNMax(40.0), "scores": SCORES}, "scores are for InteractiveGNMax only"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        analyze_quietly(**{"counts": COUNTS, "aggregator": CONFIDENT, **changes})
