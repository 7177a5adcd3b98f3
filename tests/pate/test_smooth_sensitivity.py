import math
from collections.abc import Callable

import numpy as np
import pytest

from darrm.pate.confident import NoisyCheck
from darrm.pate.smooth_sensitivity import (
    ConditionError,
    CostShape,
    SmoothCost,
    answer_profile,
    check_profile,
    count_distances,
    smooth_sensitivity,
)
from darrm.pate.theorem_6 import log_q
from tests.pate.support import compute_distances, list_histograms

SMOOTHNESS = 0.2


@pytest.mark.parametrize(
    ("voters", "classes", "sigma", "order", "noise"),
    [
        (12, 2, 1.5, 1.5, "continuous"),
        (12, 2, 3.0, 8.0, "continuous"),
        (12, 2, 2.0, 2.0, "discrete"),
        (12, 3, 2.0, 2.0, "continuous"),
        (12, 3, 3.0, 1.5, "discrete"),
        (9, 3, 3.0, 4.0, "continuous"),
        (7, 2, 2.0, 4.0, "discrete"),
    ],
)
def test_against_all_histograms(voters: int, classes: int, sigma: float, order: float, noise: str) -> None:
    rows = list_histograms(voters, classes)
    distances = compute_distances(rows)
    shape = CostShape(sigma, order, classes, noise)
    logs = log_q(rows, sigma, noise=noise)
    cost, bounds = shape.cost(logs), shape.bound_local_change(logs)
    local = np.array([np.abs(cost - cost[i])[distances[i] <= 1].max() for i in range(len(rows))])
    assert local.max() > 0.0
    profile = answer_profile(rows, shape, voters + 1)

    def find_largest(values: np.ndarray, distance: int) -> np.ndarray:
        return np.where(distances <= distance, values, 0.0).max(axis=1)

    for distance, row in enumerate(profile):
        # it bounds the true local sensitivity, and it is Definition 12's maximum of L̃S [P, Theorem 20]
        largest = find_largest(bounds, distance)
        assert np.all(row >= np.maximum(find_largest(local, distance), largest) * (1 - 1e-12))
        assert np.all(row <= np.maximum(largest, shape.plateau) * (1 + 1e-12))
        below = (row < shape.plateau) & (largest < shape.plateau * (1 - 1e-9))
        assert np.allclose(row[below], largest[below], rtol=1e-9)
    smooth = np.array([smooth_sensitivity(column, shape.plateau, SMOOTHNESS) for column in profile.T])
    exact = np.max([math.exp(-SMOOTHNESS * d) * find_largest(local, d) for d in range(voters + 1)], axis=0)
    assert np.all(smooth >= exact * (1 - 1e-12))
    ratio = np.where(distances == 1, smooth[:, np.newaxis] / smooth[np.newaxis], 0.0)
    assert ratio.max() <= math.exp(SMOOTHNESS) * (1 + 1e-9)


def test_the_profile_is_below_the_plateau_far_from_q1() -> None:
    shape = CostShape(40.0, 14.0, 10)  # the plateau at once would be safe, but useless
    profile = answer_profile(np.array([[240, 10, *[0] * 8]]), shape, 120)[:, 0]
    assert profile[0] < shape.plateau / 10
    assert profile[-1] == shape.plateau
    assert np.all(np.diff(profile) >= 0.0)


def test_a_jump_of_the_cost_at_q0_belongs_to_the_plateau() -> None:
    shape = CostShape(0.152, 1.094, 2)
    shape.check_conditions(12)
    at_q0, at_q1 = shape.cost(np.array([shape.log_q0, shape.log_q1]))
    largest_step = np.abs(np.diff(shape.cost(log_q(list_histograms(12, 2), 0.152)))).max()
    assert at_q0 < 0.7 * shape.ceiling  # the jump
    assert largest_step > at_q0 - at_q1  # the plateau as printed is no bound
    assert largest_step <= shape.plateau


@pytest.mark.parametrize(
    ("sigma", "classes", "noise", "looseness"),
    [(2.0, 3, "continuous", 0.15), (2.0, 3, "discrete", 0.15), (0.5, 2, "discrete", 1e-12)],  # exact for two classes
)
def test_the_q_of_a_neighbor_is_bounded_closely(sigma: float, classes: int, noise: str, looseness: float) -> None:
    rows, shape = list_histograms(12, classes), CostShape(sigma, 2.0, classes, noise)
    logs = log_q(rows, sigma, noise=noise)
    here, there = logs[np.argwhere(compute_distances(rows) == 1)].T
    above, below = shape.bound_neighbor(here, 1) - there, there - shape.bound_neighbor(here, -1)
    assert -min(1e-9, looseness) <= above.min() < looseness
    assert below.min() >= -min(1e-9, looseness)
    assert classes > 2 or below.min() < looseness


def test_refuses_where_condition_6_fails() -> None:
    shape = CostShape(2.0, 4.0, 2)
    with pytest.raises(ConditionError, match="condition C6 fails") as caught:
        answer_profile(np.array([[12, 0]]), shape, 3)
    assert caught.value.condition == "C6"
    grid = np.linspace(shape.smallest_log_q(12), shape.log_q1, 500)
    assert np.any(np.diff(shape.cost(shape.bound_neighbor(grid, 1)) - shape.cost(grid)) < 0.0)


def test_refuses_where_condition_5_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = CostShape(40.0, 14.0, 2)
    _ = shape.log_q0
    monkeypatch.setattr(CostShape, "cost", lambda _self, logs: -np.asarray(logs))
    with pytest.raises(ConditionError, match="condition C5 fails"):
        shape.check_conditions(250)


def test_no_sensitivity_where_even_agreement_costs_the_ceiling() -> None:
    shape = CostShape(2.0, 8.0, 3)
    assert shape.never_helps(12)
    assert not answer_profile(list_histograms(12, 3), shape, 4).any()


def test_the_profile_of_a_check_is_its_largest_step_within_reach() -> None:
    check, voters, order = NoisyCheck(9, 1.5), 12, 3.0
    values = np.arange(voters + 1)
    cost = check.dependent(values, [order])[:, 0]
    steps = np.abs(np.diff(cost))
    assert cost.min() < 0.5 * cost.max()
    for statistic in values:
        profile = check_profile(np.array([statistic]), values, check, order, 5)
        for distance in range(4):
            reached = steps[max(statistic - distance - 1, 0) : statistic + distance + 1]
            assert profile[distance] == pytest.approx(reached.max(), rel=1e-12)
        assert profile[4] == steps.max()


def test_the_sensitivity_of_a_run_adds_answers_and_checks() -> None:
    answers_profile = np.array([[0.0, 0.1], [0.2, 0.3], [0.4, 0.5]])
    run = SmoothCost(np.array([1.0, 2.0]), answers_profile, 0.7, 0.25, np.array([0.5, 1.0, 3.0]))
    assert run.value(np.array([0.0, 1.0])) == 2.25
    for weights, profile, largest in (([1.0, 1.0], 0.9 + 3.0, 2 * 0.7 + 3.0), ([0.0, 1.0], 0.5 + 3.0, 0.7 + 3.0)):
        for smoothness in (0.01, 0.5):
            expected = max(math.exp(-2 * smoothness) * profile, math.exp(-3 * smoothness) * largest)
            rounded = expected * (1 + 1e-6) + 1e-8 * largest
            assert run.sensitivity(np.array(weights), smoothness) == pytest.approx(rounded, rel=1e-12)
    assert (count_distances(0.01, 250), count_distances(0.5, 250)) == (251, 21)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: answer_profile(np.array([[3, 1]]), CostShape(2.0, 2.0, 3), 3), "the number of classes must be"),
        (lambda: smooth_sensitivity(np.zeros(1), 0.0, 0.0), "smoothness must be"),
        (lambda: CostShape(2.0, 1.0, 3), "order must be"),
        (lambda: CostShape(2.0, 2.0, 1), "classes must be"),
    ],
)
def test_refusals(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
