"""The separations and the ball proof against enumeration of every multiset, and against exact fractions."""

from collections.abc import Iterable
from functools import cache
from itertools import product

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from darrm.majority import certify, kernels
from darrm.majority.certify import worst_cost_ball
from darrm.majority.corners import Row, budget_below, corners_of, enclose_exp
from darrm.majority.dominating import DominatingFamily, LevelMaxima
from darrm.majority.full_set import FullSet
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from tests.oracle import (
    exact_budget,
    exact_worst_cost,
    exponential,
    laws_of_ones,
    list_corners,
    lowest_partner,
    privacy_cost,
    signed_floats,
    worst_cost,
)
from tests.strategies import gammas, problems

SLOW = pytest.mark.slow


def full_set(problem: Problem) -> FullSet:
    return FullSet(problem.voters, problem.target.exact_epsilon)


def family_maxima(problem: Problem, half: Array) -> LevelMaxima:
    return DominatingFamily(problem.voters).maxima(half, enclose_exp(problem.target.exact_epsilon))


def check_costs(problem: Problem, gamma: NoiseFunction, rows: Iterable[tuple[float, Row]]) -> None:
    """Check that each row's probabilities and coefficients give its cost."""
    for cost, row in rows:
        p, p_prime = row.probabilities(problem.voters)
        assert p.shape == p_prime.shape == (problem.voters.K,)
        close = pytest.approx(cost, abs=1e-12 * (1 + problem.cost_ratio))
        assert privacy_cost(problem, gamma, p, p_prime) == close
        assert row.coefficients(problem.voters, problem.cost_ratio) @ gamma.half == close


@given(data=st.data(), problem=problems(most_voters=6))
def test_full_set_and_balls_find_the_worst_of_all_multisets(data: st.DataObject, problem: Problem) -> None:
    gamma = data.draw(gammas(problem.voters.K))
    exact = worst_cost(problem, gamma)
    maxima = full_set(problem).maxima(gamma.half, limit=-np.inf)
    ball = worst_cost_ball(problem, gamma)
    unit = 1.0 + problem.cost_ratio
    assert exact - 1e-14 * unit <= maxima.worst <= exact + 1e-11 * unit
    assert abs(float(ball.mid()) - exact) <= 1e-13 * unit
    # the float bound covers the real number in spite of rounding
    assert ball <= maxima.worst
    check_costs(problem, gamma, maxima.broken)


@given(data=st.data(), problem=problems(most_voters=7))
def test_dominating_family_is_enough_for_monotone_gamma(data: st.DataObject, problem: Problem) -> None:
    gamma = data.draw(gammas(problem.voters.K))
    monotone = NoiseFunction(problem.voters.K, np.sort(gamma.half))
    assert family_maxima(problem, monotone.half).worst >= worst_cost(problem, monotone) - 1e-14
    assert full_set(problem).maxima(monotone.half).levels == 0
    family, maxima = DominatingFamily(problem.voters), family_maxima(problem, gamma.half)
    check_costs(problem, gamma, ((cost, family.row(maxima, j)) for j, cost in enumerate(maxima.costs)))


@given(data=st.data(), problem=problems(most_voters=6))
def test_border_names_rows_above_the_limit(data: st.DataObject, problem: Problem) -> None:
    gamma = data.draw(gammas(problem.voters.K))
    worst, broken = full_set(problem).border(gamma.half, problem.budget)
    assert worst <= full_set(problem).maxima(gamma.half).worst
    assert all(cost > problem.budget for cost, _ in broken)
    check_costs(problem, gamma, broken)


# from random searches: below about 31 voters no γ is known for which (lo, hi) is ever the worst corner
NEEDS_LOW = [0, 0, 1, 0, 0, 1, 0, 0, 1, 1, 0, 1, 1, 1, 0, 0]
NEEDS_INTERIOR_MOVES = [1, 1, 0, 0, 1]  # a search of the vertices alone misses the worst cost by 0.15


@pytest.mark.parametrize(
    ("voters", "m", "half", "family_share"),
    [
        pytest.param(Voters(7, PrivacyParams("2", "0.01")), 3, [1, 0, 0, 1], 0.99992, id="high corner"),
        pytest.param(Voters(31, PrivacyParams("0.5")), 1, NEEDS_LOW, 0.9, id="low corner"),
        pytest.param(Voters(9, PrivacyParams("1", "0.5")), "2.5", NEEDS_INTERIOR_MOVES, 0.96, id="interior moves"),
    ],
)
def test_a_row_outside_the_dominating_family_can_be_the_worst(
    voters: Voters, m: int | str, half: list[int], family_share: float
) -> None:
    problem, gamma = Problem.from_allowance(voters, m), NoiseFunction(voters.K, half)
    exact, family = worst_cost(problem, gamma), family_maxima(problem, gamma.half).worst
    assert family < family_share * exact
    assert full_set(problem).maxima(gamma.half).worst == pytest.approx(exact, rel=1e-11)
    assert float(worst_cost_ball(problem, gamma).mid()) == pytest.approx(exact, rel=1e-13)
    worst, broken = full_set(problem).border(gamma.half, problem.budget)
    if half != NEEDS_INTERIOR_MOVES:
        assert worst == pytest.approx(exact, rel=1e-11)
        assert broken
        assert any(row.low for _, row in broken) == (half == NEEDS_LOW)


def first_monotone_level(problem: Problem, half: Array) -> int:
    """Find the first j at which E[g(s + Bin(j, hi))] does not fall in s."""
    K, g, hi = problem.voters.K, signed_floats(problem.voters.K, half), float(list_corners(problem.voters.each)[2][0])
    for j in range(K):
        if np.all(np.diff(np.correlate(g, laws_of_ones(np.full(j, hi)), "valid")) >= -1e-15):
            return j
    return K


@pytest.mark.parametrize(
    ("half", "last_level"),
    [
        ([0.1, 0.1, 1.0, 0.9], 1),
        ([0.1, 0.9, 0.5, 1.0], 2),
        ([0.1, 1.0, 0.0, 1.0], 3),
        ([0.9, 0.1, 0.5, 0.1], 7),
        ([0.9, 0.9, 0.0, 0.0], 8),
    ],
)
def test_full_set_searches_both_chains_up_to_the_first_monotone_level(
    half: list[float], last_level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No theorem covers the rows of the first monotone level itself."""
    problem = Problem.from_allowance(Voters(8, PrivacyParams("1", "0.01")), 2)
    assert first_monotone_level(problem, np.array(half)) == last_level
    shapes: list[tuple[int, ...]] = []
    screen = kernels.screen

    def record(block: Array, tails: Array) -> Array:
        shapes.append(block.shape)
        return screen(block, tails)

    monkeypatch.setattr(kernels, "screen", record)
    monkeypatch.setattr("darrm.majority.full_set.KERNEL.nanoseconds", -np.inf)
    assert full_set(problem).maxima(np.array(half)).levels == last_level + 1
    assert shapes == [(1, 9), *((2, 9 - j) for j in range(1, last_level + 1))]


def test_cost_of_moves_grows_with_the_fall_and_the_voters_left() -> None:
    # a γ whose fall is too small to see: a level passes only with a positive price, for each voter that is left
    problem = Problem.from_allowance(Voters(5, PrivacyParams("0.1")), 2)
    full = full_set(problem)
    assert full._bound_cost_of_moves(0, 0.0) == 0.0
    for j in range(6):
        assert full._bound_cost_of_moves(j, 1e-9) >= (5 - j) * (1 + problem.cost_ratio) * np.tanh(0.05) * 1e-9


def parabola(N: int, delta: float) -> Array:
    """Return a level with T'' = −0.01 everywhere and E[T(Bin(N, Δ))] = T(0)."""
    return np.asarray(-0.005 * (np.arange(N + 1.0) - (delta * N + 1.0 - delta) / 2.0) ** 2)


def average_moves(level: Array, delta: float, a: int) -> float:
    return float(laws_of_ones(np.full(a, delta)) @ level[: a + 1])


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_curvature_bound_is_attained_on_a_parabola(compiled: bool, mirrored: bool) -> None:
    """With T'' = −c and equal ends, E[T(Bin(a, Δ))] is c·Δ²·N²/8 above both of them halfway."""
    N, delta = 12, 0.1
    if compiled:
        pytest.importorskip("numba")
    kernel = kernels.load() if compiled else kernels.NUMPY
    assert kernel is not None
    level = parabola(N, delta)
    end, middle = average_moves(level, delta, 0), average_moves(level, delta, N // 2)
    assert middle - end == pytest.approx(0.01 * delta**2 * N**2 / 8.0, rel=1e-9)
    params = full_set(Problem.from_allowance(Voters(N, PrivacyParams("0.5", "0.1")), 2)).params
    values, bounds, choice = np.empty((1, N + 1)), np.empty((1, N + 1)), np.empty((1, N + 1), dtype=np.int64)
    kernel.vertices((level[::-1] if mirrored else level)[None, :].copy(), params, values, bounds, choice)
    place = N if mirrored else 0
    assert values[0, place] == pytest.approx(end, abs=1e-15)
    assert middle <= bounds[0, place] <= middle + 2e-4 * (middle - end)


def test_search_cuts_a_cell_where_its_bound_is_attained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best number of moves is in the middle of the only cell, and the curvature bound is its value."""
    monkeypatch.setattr("darrm.majority.full_set._MAX_PAIRS", 0)
    monkeypatch.setattr("darrm.majority.full_set._GRID_CELLS", 1)
    N, delta = 12, 0.1
    full = full_set(Problem.from_allowance(Voters(N, PrivacyParams("0.5", "0.1")), 2))
    level = parabola(N, delta)
    middle = average_moves(level, delta, N // 2)
    vertices = full.vertices(level[None, :])
    enough = 0.5 * (middle + float(vertices.values[0, 0]))
    best, upper, a, a_1 = full.search(level[None, :], vertices, 0, 0, enough)
    assert (a, a_1) == (N // 2, 0)
    assert best == pytest.approx(middle, abs=1e-15)
    assert upper >= middle - 1e-15


def test_no_second_difference_exceeds_the_curvature_bound() -> None:
    """J = 1, so that the tail is large: the step of a second difference reaches beyond the moves."""
    full = full_set(Problem.from_allowance(Voters(12, PrivacyParams("0.1", "0.01")), 5))
    full.family.__dict__["terms"] = 1
    N, delta = 12, full.corners.delta
    block = np.zeros((1, N + 1))
    block[0, 6:] = 1.0
    bound = kernels.curvature(block, 1)[0] + full.params.tail_curvature
    curvature = np.abs(np.diff(block[0], n=2))  # at 1 … N − 1

    def mean(n_1: int, a: int, a_1: int, step: int) -> float:
        """Compute E|T''(n_1 − X + Y + step)|."""
        up, down = (laws_of_ones(np.full(n, delta)) for n in (a, a_1))
        return float(
            sum(up[i] * down[k] * curvature[n_1 + i - k + step - 1] for i in range(a + 1) for k in range(a_1 + 1))
        )

    for n_1 in range(N + 1):
        n_0 = N - n_1
        means = [mean(n_1, a, a_1, 1) for a in range(n_0 - 1) for a_1 in range(n_1 + 1)]
        means += [mean(n_1, a, a_1, -1) for a in range(n_0 + 1) for a_1 in range(n_1 - 1)]
        assert max(means) <= bound[n_1]


@pytest.mark.parametrize(
    ("K", "delta"),
    [
        *((K, delta) for K in (1, 2, 3) for delta in ("0", "0.01", "0.05")),
        (4, "0.01"),
        *(pytest.param(4, delta, marks=SLOW) for delta in ("0", "0.05")),
        *(pytest.param(5, delta, marks=SLOW) for delta in ("0", "0.01", "0.05")),
    ],
)
def test_costs_and_budgets_are_those_of_exact_fractions_for_every_overlap(K: int, delta: str) -> None:
    random = np.random.default_rng(K).random(K - K // 2)
    worst = []
    for overlap in range(1, K + 1):
        problem = Problem.from_allowance(Voters(K, PrivacyParams("0.5", delta), overlap), "1.5" if K > 1 else 1)
        for half in (np.sort(random), random):
            exact = exact_worst_cost(problem, half)
            ball = worst_cost_ball(problem, NoiseFunction(K, half))
            assert abs(float(ball.mid()) - float(exact)) <= 1e-15 * (1 + problem.cost_ratio)
            assert full_set(problem).maxima(half).worst >= exact
        worst.append(full_set(problem).maxima(random).worst)
        assert float(exact_budget(problem)) * (1 - 1e-15) <= budget_below(problem.target) <= exact_budget(problem)
    assert worst == sorted(worst)


def test_corners_are_the_corners_of_the_region() -> None:
    each = PrivacyParams("0.7", "0.05")
    e, delta = exponential(each.exact_epsilon), each.exact_delta
    for p, p_prime in list_corners(each):
        pairs = [(p, p_prime), (p_prime, p), (1 - p, 1 - p_prime), (1 - p_prime, 1 - p)]
        slacks = [e * y + delta - x for x, y in pairs] + [p, 1 - p, p_prime, 1 - p_prime]
        assert min(slacks) >= 0
        assert sum(slack == 0 for slack in slacks) >= 2
    corners = corners_of(each)
    hi, lo = list_corners(each)[2]
    assert (corners.hi, 1.0 - corners.hi, corners.delta) == pytest.approx((float(hi), float(lo), 0.05), abs=1e-16)
    non_private = corners_of(PrivacyParams("inf"))
    assert (non_private.hi, non_private.delta) == (1.0, 0.0)


@pytest.mark.parametrize("K", [3, 6])
def test_random_points_of_the_region_never_cost_more_than_the_worst_corner(K: int) -> None:
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.5", "0.01")), 2)
    rng = np.random.default_rng(K)
    p = rng.beta(0.3, 0.3, size=(10_000, K))
    low, high = lowest_partner(p, problem.voters.each), 1 - lowest_partner(1 - p, problem.voters.each)
    p_prime = low + rng.beta(0.3, 0.3, size=p.shape) * (high - low)
    for half in rng.random((5, problem.voters.num_upper_levels)):
        costs = privacy_cost(problem, NoiseFunction(K, half), p, p_prime)
        assert np.max(costs) <= full_set(problem).maxima(half).worst


def floats(balls: list[arb]) -> Array:
    return np.array([float(ball.mid()) for ball in balls])


@cache
def binomials(n: int, delta: float) -> Array:
    """Compute the laws of Bin(0, Δ) … Bin(n, Δ), one for each row."""
    return np.array([np.pad(laws_of_ones(np.full(a, delta)), (0, n - a)) for a in range(n + 1)])


def average_all_moves(level: Array, delta: float, n_1: int) -> Array:
    """Compute E[T(n_1 − Bin(a_1, Δ) + Bin(a, Δ))] for every (a, a_1)."""
    n_0 = level.size - 1 - n_1
    values = level[n_1 + np.arange(n_0 + 1)[:, None] - np.arange(n_1 + 1)]
    return np.asarray(binomials(n_0, delta) @ values @ binomials(n_1, delta).T)


@pytest.mark.parametrize("N", [1, 2, 7, 20])
@pytest.mark.parametrize("delta", [0.5, 0.2, 1e-6])
@pytest.mark.parametrize("rising", [False, True])
def test_best_moves_in_balls_are_exact_and_their_first_order_bound_is_near(N: int, delta: float, rising: bool) -> None:
    parabola_values = np.arange(N + 1.0) ** 2 / N**2  # uses up the second order
    for values in [*np.random.default_rng(N).uniform(-1.0, 1.0, (20, N + 1)), parabola_values]:
        level = np.sort(values) if rising else values
        exact = [np.max(average_all_moves(level, delta, n_1)) for n_1 in range(N + 1)]
        balls, ball_delta = [arb(value) for value in level.tolist()], arb(delta)
        with ctx.workprec(128):
            assert floats(certify._compute_best_moves(balls, ball_delta)) == pytest.approx(exact, abs=1e-14)
            if rising:
                assert floats(certify._move_all_zeros(balls, ball_delta)) == pytest.approx(exact, abs=1e-14)
            first_order = floats(certify._bound_first_order(balls, ball_delta))
        curvature = np.max(np.abs(np.diff(level, n=2)), initial=0.0)
        excess = first_order - exact
        assert np.all((excess >= -1e-14) & (excess <= (delta * N) ** 2 * curvature + 1e-14))


CASES = [
    *((N, delta, None) for N in (2, 5) for delta in ("0.3", "0.05", "1e-5")),
    *((150, "0.05", cells) for cells in (None, 4, 64)),
    *(pytest.param(9, delta, None, marks=SLOW) for delta in ("0.3", "0.05", "1e-5")),
]


@pytest.mark.parametrize(("N", "delta", "cells"), CASES)
def test_moves_near_zero_and_one_are_bounded_and_searched(
    N: int, delta: str, cells: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By all pairs of moves, or by a grid of cells."""
    if cells is not None:
        monkeypatch.setattr("darrm.majority.full_set._MAX_PAIRS", 0)
        monkeypatch.setattr("darrm.majority.full_set._GRID_CELLS", cells)
    full, rng = full_set(Problem.from_allowance(Voters(N, PrivacyParams("0.5", delta)), 1)), np.random.default_rng(N)
    block = np.round(rng.uniform(-1.0, 1.0, (40, N + 1))) if N < 10 else (rng.random((15, N + 1)) < 0.05).astype(float)
    vertices, screened = full.vertices(block), kernels.screen(block, full.params.tails)
    excess = 0.0
    for state, ones in product(range(len(block)), range(N + 1) if N < 10 else (0, 1, 70, 149, 150)):
        values = average_all_moves(block[state], full.corners.delta, ones)
        best, best_vertex = np.max(values), np.max(values[:: max(1, N - ones), :: max(1, ones)])
        for enough in (-np.inf, best - 0.01, best + 1e-9, best + 1e-6):
            value, upper, a, a_1 = full.search(block, vertices, state, ones, enough)
            assert value == pytest.approx(values[a, a_1], abs=1e-13)
            assert best - 1e-13 <= upper <= max(value, enough) + 1e-14
        assert vertices.values[state, ones] == pytest.approx(best_vertex, abs=1e-13)
        assert min(vertices.bounds[state, ones], screened[state, ones]) >= best - 1e-13
        excess = max(excess, best - best_vertex)
    # where Δ·N is large an interior choice is better than all vertices
    if N * float(delta) > 1:
        assert excess > 1e-4
