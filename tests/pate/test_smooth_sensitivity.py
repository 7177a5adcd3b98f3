import math

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
from tests.pate.pate_oracles import distances, histograms

CASES = [
    (12, 2, 1.5, 1.5, "continuous"),
    (12, 2, 3.0, 8.0, "continuous"),
    (12, 2, 2.0, 2.0, "discrete"),
    (12, 3, 2.0, 2.0, "continuous"),
    (12, 3, 3.0, 1.5, "discrete"),
    (9, 3, 3.0, 4.0, "continuous"),
    (7, 2, 2.0, 4.0, "discrete"),
]
SMOOTHNESS = 0.2


@pytest.mark.parametrize(("voters", "classes", "sigma", "order", "noise"), CASES)
def test_against_all_histograms(voters: int, classes: int, sigma: float, order: float, noise: str) -> None:
    rows = histograms(voters, classes)
    apart = distances(rows)
    shape = CostShape(sigma, order, classes, noise)
    logs = log_q(rows, sigma, noise=noise)
    cost = shape.cost(logs)
    local = np.array([np.abs(cost - cost[i])[apart[i] <= 1].max() for i in range(len(rows))])
    profile = answer_profile(rows, shape, voters + 1)
    assert local.max() > 0.0

    def within(values: np.ndarray, distance: int) -> np.ndarray:
        return np.where(apart <= distance, values, 0.0).max(axis=1)

    bounds = shape.bound_local_change(logs)
    found = np.empty(len(rows))
    for i in range(len(rows)):
        found[i] = smooth_sensitivity(profile[:, i], shape.plateau, SMOOTHNESS)
    for distance in range(voters + 1):
        # it bounds the true local sensitivity, and it is Definition 12's maximum of L̃S [P, Theorem 20]
        assert np.all(profile[distance] >= within(local, distance) * (1 - 1e-12))
        assert np.all(profile[distance] >= within(bounds, distance) * (1 - 1e-12))
        assert np.all(profile[distance] <= np.maximum(within(bounds, distance), shape.plateau) * (1 + 1e-12))
        reached = within(bounds, distance) < shape.plateau * (1 - 1e-9)
        low = profile[distance] < shape.plateau
        assert np.allclose(profile[distance][low & reached], within(bounds, distance)[low & reached], rtol=1e-9)
    true = np.max([math.exp(-SMOOTHNESS * d) * within(local, d) for d in range(voters + 1)], axis=0)
    assert np.all(found >= true * (1 - 1e-12))
    # smooth: neighbors differ by a factor of at most e^β
    ratio = np.where(apart == 1, found[:, np.newaxis] / found[np.newaxis], 0.0)
    assert ratio.max() <= math.exp(SMOOTHNESS) * (1 + 1e-9)


def test_the_profile_stops_at_the_plateau_only_where_it_must() -> None:
    # far from q1 the first steps are below the plateau: stopping at once would be safe but useless
    shape = CostShape(40.0, 14.0, 10)
    profile = answer_profile(np.array([[240, 10, *[0] * 8]]), shape, 120)[:, 0]
    assert profile[0] < shape.plateau / 10
    assert profile[-1] == shape.plateau
    assert np.all(np.diff(profile) >= 0.0)


def test_a_jump_of_the_cost_at_q0_belongs_to_the_plateau() -> None:
    shape = CostShape(0.152, 1.094, 2)
    shape.check_conditions(12)
    at_q0, at_q1 = shape.cost(np.array([shape.log_q0, shape.log_q1]))
    cost = shape.cost(log_q(histograms(12, 2), 0.152))
    largest_step = np.abs(np.diff(cost)).max()
    assert at_q0 < 0.7 * shape.ceiling  # the jump
    assert largest_step > at_q0 - at_q1  # the plateau as printed is no bound
    assert largest_step <= shape.plateau


def test_bounds_on_neighbors_hold_for_all_histograms() -> None:
    for noise in ("continuous", "discrete"):
        rows, shape = histograms(12, 3), CostShape(2.0, 2.0, 3, noise)
        logs = log_q(rows, 2.0, noise=noise)
        pairs = np.argwhere(distances(rows) == 1)
        here, there = logs[pairs[:, 0]], logs[pairs[:, 1]]
        assert np.all(there <= shape.bound_neighbor(here, 1) + 1e-9)
        assert np.all(there >= shape.bound_neighbor(here, -1) - 1e-9)
        assert np.min(shape.bound_neighbor(here, 1) - there) < 0.15  # and close somewhere
    # of two classes the bounds are attained: also by noise so narrow that what the lattice costs can be seen
    rows, shape = histograms(12, 2), CostShape(0.5, 2.0, 2, "discrete")
    logs = log_q(rows, 0.5, noise="discrete")
    here, there = logs[np.argwhere(distances(rows) == 1)].T
    assert np.max(there - shape.bound_neighbor(here, 1)) == pytest.approx(0.0, abs=1e-12)
    assert np.max(shape.bound_neighbor(here, -1) - there) == pytest.approx(0.0, abs=1e-12)


def test_upper_and_lower_are_inverse_up_to_q0() -> None:
    shape = CostShape(40.0, 14.0, 10)
    logs = np.linspace(20 * shape.log_q0, shape.log_q0, 50)
    assert np.allclose(shape.bound_neighbor(shape.bound_neighbor(logs, 1), -1), logs, rtol=1e-9)


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
    assert not answer_profile(histograms(12, 3), shape, 4).any()


def test_the_thresholds_profile_is_the_largest_step_within_reach() -> None:
    check, voters, order = NoisyCheck(9, 1.5), 12, 3.0
    values = np.arange(voters + 1)
    cost = check.dependent(values, [order])[:, 0]
    assert cost.min() < 0.5 * cost.max()
    for statistic in values:
        profile = check_profile(np.array([statistic]), values, check, order, 5)
        for distance in range(4):
            near = [v for v in values if abs(v - statistic) <= distance]
            steps = [abs(cost[w] - cost[v]) for v in near for w in (v - 1, v + 1) if 0 <= w <= voters]
            assert profile[distance] == pytest.approx(max(steps), rel=1e-12)
        assert profile[4] == np.abs(np.diff(cost)).max()


def test_sums_and_the_tail_beyond_the_profile() -> None:
    assert smooth_sensitivity(np.array([1.0, 1.5]), 4.0, 1.0) == 1.0
    assert smooth_sensitivity(np.array([1.0, 1.5]), 4.0, 0.1) == pytest.approx(4.0 * math.exp(-0.2))
    assert smooth_sensitivity(np.zeros(3), 0.0, 0.1) == 0.0
    assert count_distances(0.01, 250) == 251
    assert count_distances(0.5, 250) == 21


def test_the_sensitivity_of_a_run_adds_answers_and_checks() -> None:
    answers_profile = np.array([[0.0, 0.1], [0.2, 0.3], [0.4, 0.5]])
    run = SmoothCost(np.array([1.0, 2.0]), answers_profile, 0.7, 0.25, np.array([0.5, 1.0, 3.0]))
    assert run.value(np.array([0.0, 1.0])) == 2.25
    for weights, profile, largest in (([1.0, 1.0], 0.9 + 3.0, 2 * 0.7 + 3.0), ([0.0, 1.0], 0.5 + 3.0, 0.7 + 3.0)):
        for smoothness in (0.01, 0.5):
            expected = max(math.exp(-2 * smoothness) * profile, math.exp(-3 * smoothness) * largest)
            found = run.sensitivity(np.array(weights), smoothness)
            assert found == pytest.approx(expected * (1 + 1e-6) + 1e-8 * largest, rel=1e-12)  # rounding on top


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="the number of classes must be that of the cost"):
        answer_profile(np.array([[3, 1]]), CostShape(2.0, 2.0, 3), 3)
    with pytest.raises(ValueError, match="smoothness must be"):
        smooth_sensitivity(np.zeros(1), 0.0, 0.0)
    with pytest.raises(ValueError, match="order must be"):
        CostShape(2.0, 1.0, 3)
    with pytest.raises(ValueError, match="classes must be"):
        CostShape(2.0, 2.0, 1)
