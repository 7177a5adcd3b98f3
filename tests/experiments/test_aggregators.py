"""The comparison of aggregators: claims that can fail, exact accuracies, and stored numbers that are computed again."""

from pathlib import Path

import numpy as np
import pytest

from darrm.majority.closed_form import best_for_non_private_voters
from darrm.plan import MECHANISMS
from darrm.problem import Problem, Voters
from darrm.votes import Votes
from experiments.aggregators import budgets
from experiments.aggregators.comparison import Comparison, compare, decide_claims
from experiments.aggregators.plurality_page import compute_label_costs, compute_three_outcomes, compute_two_class_curve
from experiments.aggregators.votes import EnsembleVotes
from experiments.pages import read_json
from tests.planned import ONE, share

BUDGETS = Path(__file__).parents[2] / "docs" / "reproduction" / "aggregators" / "budgets.json"


@pytest.fixture(autouse=True)
def share_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    share(monkeypatch)


@pytest.mark.parametrize(
    ("ours", "theirs", "every_margin", "expected"),
    [
        ([0.6, 0.7, 0.9], [0.6, 0.6, 0.8], True, True),
        ([0.5, 0.7, 0.9], [0.6, 0.6, 0.8], False, True),
        ([0.6, 0.6, 0.8], [0.6, 0.7, 0.9], False, False),
    ],
)
@pytest.mark.parametrize(("queries", "words"), [(1, "one query"), (7, "many queries")])
def test_claims_can_fail(
    ours: list[float], theirs: list[float], *, every_margin: bool, expected: bool, queries: int, words: str
) -> None:
    workload = {"K": 5, "voters": "plain", "overlap": 1, "queries": queries, "epsilon": 1.0, "delta": 1e-5}
    worst = {"worst_margin": 1, "worst_difference": float(np.min(np.subtract(ours, theirs)))}
    options = [{"name": "ours", "accuracy": np.mean(ours)}, {"name": "rival", "accuracy": np.mean(theirs), **worst}]
    claims = decide_claims([Comparison(workload, options, [], 0.0)])
    assert len(claims) == 2
    for claim in claims:
        assert claim.statement.startswith(words)
        assert claim.holds == (every_margin if claim.statement.endswith("every margin") else expected)


def test_compare_ranks_the_optimum_first_at_every_margin() -> None:
    comparison, options = compare(ONE, mechanisms=MECHANISMS[-2:])
    best = best_for_non_private_voters(Problem(Voters(11, ONE.voters.each, overlap=1), ONE.total))
    assert comparison.options[0]["truth"] == pytest.approx((0.5 + 0.5 * best.half).tolist(), abs=1e-6)
    assert comparison.options[0]["name"] == options[0].name == "ours"
    assert comparison.levels == [6, 7, 8, 9, 10, 11]
    assert all(option["worst_difference"] >= -1e-12 for option in comparison.options[1:])
    assert "K = 11, plain, overlap 1, Q = 1" in comparison.title


@pytest.mark.slow
@pytest.mark.parametrize(("panel", "point"), [(0, 2), (1, 2), (2, 4)])
def test_a_stored_budget_is_computed_again(panel: int, point: int) -> None:
    (row,) = budgets.compute_points(panel, [budgets.PANELS[panel][2].split()[point]])
    assert row["right"] == pytest.approx(read_json(BUDGETS)[panel]["points"][point]["right"], abs=1e-6)


def test_accuracies_of_recorded_votes_are_expected_over_the_noise() -> None:
    def record(counts: list[list[int]], labels: list[int]) -> EnsembleVotes:
        return EnsembleVotes("hand", Votes.from_counts(counts), np.array(labels))

    odd = record([[0, 5], [2, 3], [3, 2], [5, 0]], [1, 0, 0, 1])
    truth = np.array([0.6, 0.8, 0.9])  # for 3, 4 and 5 votes
    assert odd.accuracy(truth) == pytest.approx((0.9 + 0.4 + 0.6 + 0.1) / 4)
    assert odd.plurality_accuracy == 0.5
    even = record([[2, 2], [0, 4]], [1, 1])
    assert even.accuracy(np.array([0.7, 1.0])) == pytest.approx((0.5 + 1.0) / 2)
    assert even.plurality_accuracy == 0.75
    ties = record([[2, 2, 2], [0, 3, 3], [1, 1, 4]], [0, 0, 2])
    assert ties.plurality_accuracy == pytest.approx((1 / 3 + 0 + 1) / 3)


def test_three_outcomes_agree_with_draws() -> None:
    """200,000 draws; a false alarm needs five standard deviations."""
    rng, draws = np.random.default_rng(7), 200_000
    x, y = np.array([0.3, -1.0, 2.5]), np.array([0.9, 0.4, 2.0])
    a, b = np.stack([x, y])[:, :, None] + rng.standard_normal((2, 3, draws))
    shares = np.array([np.mean(wins, axis=1) for wins in ((a > b) & (a > 0), (b > a) & (b > 0), (a < 0) & (b < 0))])
    exact = compute_three_outcomes(x, y)
    assert exact.sum(axis=0) == pytest.approx(np.ones(3), abs=1e-12)
    assert np.all(np.abs(shares - exact) < 5.0 * np.sqrt(exact * (1.0 - exact) / draws))


def test_the_certified_label_cost_is_at_most_a_hundredth_above_the_worst_point() -> None:
    costs = compute_label_costs()
    ratio, worst = costs["ratios"][1], np.max(costs["surface"]["shares"])
    assert worst * 8.0 / 1600.0 == pytest.approx(0.003204, abs=1e-6)  # of 0.005
    assert worst <= ratio["label"][ratio["orders"].index(8.0)] <= 1.01 * worst
    assert np.all(np.array(ratio["two_classes"]) <= ratio["label"])
    # at small orders, a label of two classes costs 2/π of the counts
    assert compute_two_class_curve(1000.0, np.array([2.0]))[0] * 1000.0**2 / 2.0 == pytest.approx(2.0 / np.pi, abs=1e-4)
