import math
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.errors import PrivateFigureError
from darrm.loss.privacy_cost import PRIVATE_TOTAL
from darrm.loss.renyi import RenyiGridWarning
from darrm.noisy_max.cost_given_votes import label_costs
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.pate import analysis
from darrm.pate.analysis import PateAggregator, PrivateFigureWarning, analyze, find_noisy_max
from darrm.pate.confident import ConfidentGNMax, InteractiveGNMax, NoisyCheck
from darrm.votes import Votes
from tests.noisy_max.oracles import wide_law_of
from tests.pate.pate_oracles import lnmax_moments, quiet, theorem_6

ORDERS = (1.5, 3.0, 8.0, 14.0, 20.0, 40.0, 90.0)
VOTES = np.random.default_rng(2).multinomial(250, [0.8, 0.1, 0.05, 0.05], size=30)
VOTES[:5] = [[126, 124, 0, 0], [250, 0, 0, 0], [125, 125, 0, 0], [63, 63, 62, 62], [200, 30, 20, 0]]
SCORES = np.random.default_rng(3).dirichlet([1.0] * 4, size=30)
CONFIDENT = ConfidentGNMax(200, 150.0, 40.0, noise="continuous")


def normal_tail(x: float) -> float:
    return 0.5 * math.erfc(x / math.sqrt(2.0))


def gaps(row: list[int]) -> list[int]:
    """How many votes each rival lies behind the plurality."""
    return [max(row) - votes for votes in sorted(row)[:-1]]


def loop_over_queries(order: float, answered: list[float]) -> tuple[float, float]:
    """Check and answer cost, a query at a time, from the paper's formulas."""
    check = answer = 0.0
    for row, weight in zip(VOTES.tolist(), answered, strict=True):
        q = sum(normal_tail(gap / (math.sqrt(2) * 40)) for gap in gaps(row))
        cost = order / 1600 if q >= 1 else float(theorem_6(math.log(q), 40.0, order))
        check += order / (2 * 150**2)
        answer += weight * cost
    return check, answer


def test_expected_cost_is_the_loop_over_queries() -> None:
    found = quiet(VOTES, CONFIDENT, 1e-5, orders=ORDERS)
    answered = [normal_tail((200 - max(row)) / 150) for row in VOTES.tolist()]
    assert found.expected_answered == pytest.approx(sum(answered))
    for index, order in enumerate(ORDERS):
        check, answer = loop_over_queries(order, answered)
        assert found.curve.values[index] == pytest.approx(check + answer, rel=1e-11)
        assert found.cost.checks.values[index] == pytest.approx(check)
        assert found.independent_curve.values[index] == pytest.approx(check + sum(answered) * order / 1600)
        assert found.worst_curve.values[index] == pytest.approx(30 * (order / 45000 + order / 1600))


def test_the_check_is_charged_for_every_query_and_the_answer_only_where_given() -> None:
    answered = np.arange(30) % 3 == 0
    found = quiet(VOTES, CONFIDENT, 1e-5, orders=ORDERS, answered=answered)
    check, answer = loop_over_queries(14.0, answered.astype(float).tolist())
    assert found.curve.values[3] == pytest.approx(check + answer, rel=1e-11)
    assert found.expected_answered == 10
    none = quiet(VOTES, CONFIDENT, 1e-5, orders=ORDERS, answered=np.zeros(30, dtype=bool))
    assert none.curve == none.cost.checks
    assert none.check_share == 1.0
    assert none.epsilon > 0.0


def test_lnmax_is_the_loop_over_queries() -> None:
    gamma = 0.05
    found = quiet(VOTES, LNMax(gamma, noise="continuous"), 1e-5, orders=ORDERS)
    for index, order in enumerate(ORDERS):
        total = 0.0
        for row in VOTES.tolist():
            q = sum((2 + gamma * gap) / (4 * math.exp(gamma * gap)) for gap in gaps(row))
            total += float(lnmax_moments(min(math.log(q), 0.0), gamma, order))
        assert found.curve.values[index] == pytest.approx(total, rel=1e-11)
    assert found.expected_answered == 30
    assert found.check_share == 0.0


def test_a_data_dependent_check_costs_less_and_is_theorem_6_for_two_outcomes() -> None:
    sharp = ConfidentGNMax(150, 20.0, 40.0, noise="continuous")
    plain = quiet(VOTES, sharp, 1e-5, orders=ORDERS)
    dependent = quiet(VOTES, sharp, 1e-5, orders=ORDERS, check="data-dependent")
    total = 0.0
    for row in VOTES.tolist():
        passes = normal_tail((150 - max(row)) / 20)
        log_q = math.log(min(passes, normal_tail((max(row) - 150) / 20)))
        total += float(theorem_6(log_q, math.sqrt(2.0) * 20.0, 8.0))
    assert dependent.cost.checks.values[2] == pytest.approx(total, rel=1e-6)
    assert dependent.epsilon < plain.epsilon


def test_interactive_is_confident_with_another_statistic() -> None:
    interactive = InteractiveGNMax(100, 150.0, 40.0, 0.9, noise="continuous")
    found = quiet(VOTES, interactive, 1e-5, orders=ORDERS, scores=SCORES)
    statistic = (VOTES - np.rint(250 * SCORES)).max(axis=1)
    answered = [normal_tail((100 - s) / 150) for s in statistic]
    check, answer = loop_over_queries(8.0, answered)
    assert found.curve.values[2] == pytest.approx(check + answer, rel=1e-11)
    assert found.cost.checks.values[2] == pytest.approx(check)


def test_order_of_queries_and_of_classes_does_not_matter() -> None:
    rng = np.random.default_rng(4)
    first = quiet(VOTES, ConfidentGNMax(200, 150.0, 40.0), 1e-5)
    shuffled = quiet(rng.permuted(VOTES[rng.permutation(30)], axis=1), ConfidentGNMax(200, 150.0, 40.0), 1e-5)
    assert shuffled.epsilon == pytest.approx(first.epsilon, rel=1e-12)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = quiet(VOTES, CONFIDENT, 1e-5, orders=ORDERS).curve.values
    monkeypatch.setattr(analysis, "_MAX_PAIRS", 11 * len(ORDERS))
    monkeypatch.setattr("darrm.pate.theorem_6._ENTRIES_AT_ONCE", 4 * len(ORDERS))
    assert quiet(VOTES, CONFIDENT, 1e-5, orders=ORDERS).curve.values == pytest.approx(whole, rel=1e-13)


def test_parts_of_a_run_cost_what_the_whole_does() -> None:
    found = quiet(VOTES, ConfidentGNMax(200, 150.0, 40.0), 1e-5, orders=ORDERS)
    assert found.exact is not None
    for evidence in (found.theorem_6, found.exact):
        parts = [evidence.answers.total(found.probabilities, part) for part in (slice(0, 7), slice(7, 30))]
        assert sum(parts) + evidence.checks.values == pytest.approx(evidence.curve.values, rel=1e-9)
        for order in (ORDERS[1], ORDERS[3]):
            whole = found.probabilities @ evidence.answers.at(order)
            assert whole == pytest.approx(evidence.answers.total(found.probabilities)[ORDERS.index(order)], rel=1e-9)


def test_discrete_noise_costs_a_little_more_than_the_papers() -> None:
    continuous, discrete = (
        quiet(VOTES, ConfidentGNMax(200, 150.0, 40.0, noise=noise), 1e-5) for noise in ("continuous", "discrete")
    )
    by_theorem_6 = discrete.to_epsilon(discrete.theorem_6.curve)
    assert continuous.epsilon < by_theorem_6 < 1.02 * continuous.epsilon
    assert (continuous.charged, continuous.exact, continuous.label) == ("Theorem 6", None, None)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("aggregator", [GNMax(40.0), LNMax(0.05), ConfidentGNMax(150, 20.0, 40.0)])
@pytest.mark.parametrize("check", ["data-independent", "data-dependent"])
def test_the_exact_cost_is_the_loop_over_labels_and_checks(aggregator: PateAggregator, check: str) -> None:
    found = quiet(VOTES, aggregator, 1e-5, orders=ORDERS, check=check)
    answer = find_noisy_max(aggregator)
    label = label_costs(answer.law, VOTES, ORDERS)
    both, forward = 0.0, 0.0
    for order in (3.0, 8.0, 14.0):
        index = ORDERS.index(order)
        most = answer.guarantee.bound_at(order)
        both = forward = 0.0
        for row, weight, which in zip(VOTES, found.probabilities, label.histogram_index, strict=True):
            both += weight * min(label.worst[which, index], most)
            forward += weight * min(label.forward[which, index], most)
            if isinstance(aggregator, ConfidentGNMax):
                bit = aggregator.check.guarantee.bound_at(order)
                costs = [one[0, 0] for one in aggregator.check.exact(row.max(keepdims=True), [order])]
                forward += min(costs[0], bit) if check == "data-dependent" else bit
                both += min(costs[1], bit) if check == "data-dependent" else bit
        assert found.exact is not None
        assert found.forward is not None
        # between the knots costs are bounded by chords
        assert both * (1.0 - 1e-12) <= found.exact.curve.values[index] <= both * 1.1
        assert forward * (1.0 - 1e-12) <= found.forward.curve.values[index] <= forward * 1.1
    assert found.exact is not None
    assert found.charged == "exact"
    assert found.epsilon == found.to_epsilon(found.exact.curve) < found.to_epsilon(found.theorem_6.curve)


def test_a_bit_costs_the_worst_of_its_two_neighbors() -> None:
    check, order = NoisyCheck(6.5, 2.0), 5.0
    values, logs = wide_law_of(DiscreteGaussian(2.0))
    mass = np.exp(logs)
    for statistic in range(14):
        laws = [
            np.array([p, 1.0 - p]) for p in (mass[values + s >= 6.5].sum() for s in range(statistic - 1, statistic + 2))
        ]
        pairs = [(laws[1], laws[0]), (laws[1], laws[2])]
        forward = max(math.log(np.sum(p**order * q ** (1.0 - order))) / (order - 1.0) for p, q in pairs)
        reverse = max(math.log(np.sum(q**order * p ** (1.0 - order))) / (order - 1.0) for p, q in pairs)
        found = [one[0, 0] for one in check.exact(np.array([statistic]), [order])]
        assert found == pytest.approx([forward, max(forward, reverse)], abs=1e-9)
        assert found[0] >= forward * (1.0 - 1e-12)


def test_it_warns_that_the_figure_is_private_and_of_a_best_order_at_the_edge() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = analyze(Votes.from_counts(VOTES), CONFIDENT, 1e-5, orders=[2.0, 3.0])
    assert [one.category for one in caught] == [PrivateFigureWarning, RenyiGridWarning]
    assert "itself private data" in str(caught[0].message)
    assert "edge of the grid [2, 3]" in str(caught[1].message)
    assert found.best.at_edge
    assert found.order == 3.0
    with pytest.warns(PrivateFigureWarning):  # and of nothing else where the grid is wide enough
        analyze(Votes.from_counts(VOTES), CONFIDENT, 1e-5)


def test_the_accountant_refuses_it_unless_told_in_words() -> None:
    cost = quiet(VOTES, CONFIDENT, 1e-5).privacy_cost()
    accountant = PrivacyAccountant()
    for consent in (None, "yes", ""):
        with pytest.raises(PrivateFigureError, match="is private itself"):
            accountant.add(cost, consent=consent)
    with pytest.raises(PrivateFigureError):
        PrivacyAccountant(costs=[cost])
    assert accountant.queries == 0
    accountant.add(cost, consent=PRIVATE_TOTAL)
    assert accountant.spent(1e-5).epsilon == pytest.approx(quiet(VOTES, CONFIDENT, 1e-5).epsilon, rel=1e-9)
    accountant.add(GNMax(40.0).privacy_cost(3))  # what the votes do not enter needs no consent


def test_arrays_that_may_be_labels_or_counts_are_refused() -> None:
    votes: Any = VOTES
    analyzed, checked = partial(analyze, votes, CONFIDENT, 1e-5), partial(CONFIDENT.statistic, votes)
    for call in (analyzed, checked, partial(InteractiveGNMax(1, 1.0, 1.0, 0.5).statistic, votes, SCORES)):
        with pytest.raises(
            ValueError, match=r"use Votes.from_labels\(labels, classes\) or Votes.from_counts\(counts\)"
        ):
            call()


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"delta": 0.0}, "delta must be in"),
        ({"conversion": "modern"}, "conversion must be one of"),
        ({"check": "free"}, "check must be one of"),
        ({"answered": np.ones(30)}, "answered must be 30 booleans"),
        ({"answered": np.ones(4, dtype=bool)}, "answered must be 30 booleans"),
        ({"scores": SCORES}, "scores are for InteractiveGNMax only"),
        ({"orders": [1.0, 2.0]}, "orders must be"),
        ({"votes": [[1, 2], [1, 1]]}, "the sum of row 1"),
        ({"aggregator": InteractiveGNMax(1, 1.0, 1.0, 0.5)}, "needs scores="),
        ({"aggregator": GNMax(40.0), "answered": np.zeros(30, dtype=bool)}, "answered must be all True"),
        ({"aggregator": GNMax(40.0), "scores": SCORES}, "scores are for InteractiveGNMax only"),
    ],
)
def test_bad_arguments(named: dict, message: str) -> None:
    arguments = {"votes": VOTES, "aggregator": CONFIDENT, "delta": 1e-5} | named
    with pytest.raises(ValueError, match=message):
        quiet(**arguments)
