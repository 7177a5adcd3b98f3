"""The separations and the ball proof against enumeration of every multiset, and against exact fractions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.majority import kernels
from darrm.majority.certify import worst_cost_ball
from darrm.majority.corners import budget_below, enclose_exp
from darrm.majority.dominating import DominatingFamily, LevelMaxima
from darrm.majority.full_set import FullSet
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array
from darrm.numerics.binomial import poisson_binomial_pmf
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from tests.oracle import (
    corner_list,
    corner_pairs,
    exact_budget,
    exact_worst_cost,
    exponential,
    lowest_partner,
    privacy_cost,
    worst_cost,
)
from tests.strategies import gammas, problems


def full_set(problem: Problem) -> FullSet:
    return FullSet(problem.voters, problem.target.exact_epsilon)


def family_maxima(problem: Problem, half: Array) -> LevelMaxima:
    return DominatingFamily(problem.voters).maxima(half, enclose_exp(problem.target.exact_epsilon))


@given(data=st.data(), problem=problems(most_voters=6))
def test_all_ways_to_the_worst_cost_agree(data: st.DataObject, problem: Problem) -> None:
    gamma = data.draw(gammas(problem.voters.K))
    slow = worst_cost(problem, gamma)
    fast = full_set(problem).maxima(gamma.half)
    ball = worst_cost_ball(problem, gamma)
    unit = 1.0 + problem.cost_ratio
    assert fast.worst >= slow - 1e-14 * unit
    assert fast.worst <= slow + 1e-11 * unit
    assert abs(float(ball.mid()) - slow) <= 1e-13 * unit
    # the float bound covers the real number, whatever the rounding
    assert ball <= fast.worst


@given(data=st.data(), problem=problems(most_voters=6))
def test_named_rows_cost_what_was_said(data: st.DataObject, problem: Problem) -> None:
    gamma = data.draw(gammas(problem.voters.K))
    maxima = full_set(problem).maxima(gamma.half, limit=-np.inf)
    family = DominatingFamily(problem.voters)
    level = family_maxima(problem, gamma.half)
    rows = [*maxima.broken, *((cost, family.row(level, j)) for j, cost in enumerate(level.costs))]
    for cost, row in rows:
        p, p_prime = row.probabilities(problem.voters)
        assert p.shape == p_prime.shape == (problem.voters.K,)
        said = pytest.approx(cost, abs=1e-12 * (1 + problem.cost_ratio))
        assert privacy_cost(problem, gamma, p, p_prime) == said
        assert row.coefficients(problem.voters, problem.cost_ratio) @ gamma.half == said


@given(data=st.data(), problem=problems(most_voters=7))
def test_the_dominating_family_is_enough_for_monotone_gamma(data: st.DataObject, problem: Problem) -> None:
    gamma = data.draw(gammas(problem.voters.K))
    monotone = NoiseFunction(problem.voters.K, np.sort(gamma.half))
    assert family_maxima(problem, monotone.half).worst >= worst_cost(problem, monotone) - 1e-14
    assert full_set(problem).maxima(monotone.half).levels == 0


def test_the_dominating_family_is_not_enough_for_every_gamma() -> None:
    problem = Problem.from_allowance(Voters(7, PrivacyParams("2", "0.01")), 3)
    gamma = NoiseFunction(7, [1.0, 0.0, 0.0, 1.0])
    assert full_set(problem).maxima(gamma.half).worst > family_maxima(problem, gamma.half).worst + 1e-3
    worst, broken = full_set(problem).border(gamma.half, problem.budget)
    assert worst > problem.budget
    assert broken


def first_monotone_level(problem: Problem, half: Array) -> int:
    """The first j at which E[g(s + Bin(j, hi))] does not fall in s."""
    g = NoiseFunction(problem.voters.K, half).signed
    hi = float(corner_pairs(problem.voters)[2, 0])
    for j in range(problem.voters.K):
        law = poisson_binomial_pmf(np.full(j, hi)) if j else np.ones(1)
        if np.all(np.diff(np.correlate(g, law, "valid")) >= -1e-15):
            return j
    return problem.voters.K


def test_the_first_monotone_level_is_looked_at_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with exactly so many voters at (lo, hi) are covered by no theorem."""
    problem = Problem.from_allowance(Voters(8, PrivacyParams("1", "0.01")), 2)
    seen: list[tuple[int, ...]] = []
    look = kernels.screen

    def recorded(block: Array, tails: Array) -> Array:
        seen.append(block.shape)
        return look(block, tails)

    monkeypatch.setattr(kernels, "screen", recorded)
    monkeypatch.setattr("darrm.majority.full_set.KERNEL.nanoseconds", -np.inf)
    halves = (
        [0.1, 0.1, 1.0, 0.9],
        [0.1, 0.9, 0.5, 1.0],
        [0.1, 1.0, 0.0, 1.0],
        [0.9, 0.1, 0.5, 0.1],
        [0.9, 0.9, 0.0, 0.0],
    )
    for half, last in zip(halves, (1, 2, 3, 7, 8), strict=True):
        assert first_monotone_level(problem, np.array(half)) == last
        seen.clear()
        assert full_set(problem).maxima(np.array(half)).levels == last + 1
        assert seen == [(1, 9), *((2, 9 - j) for j in range(1, last + 1))]  # both chains of each level


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_curvature_bound_is_attained_on_a_parabola(compiled: bool, mirrored: bool) -> None:
    """With T'' = −c everywhere and equal ends, E[T(Bin(a, Δ))] is c·Δ²·N²/8 above both of them halfway."""
    N, delta, c = 12, 0.1, 0.01
    if compiled:
        pytest.importorskip("numba")
    chosen = kernels.load() if compiled else kernels.NUMPY
    assert chosen is not None
    middle = (delta * N + 1.0 - delta) / 2.0
    level = -c / 2.0 * (np.arange(N + 1.0) - middle) ** 2
    moves = [float(poisson_binomial_pmf(np.full(a, delta)) @ level[: a + 1]) if a else level[0] for a in range(N + 1)]
    assert moves[N // 2] - moves[0] == pytest.approx(c * delta**2 * N**2 / 8.0, rel=1e-9)
    assert moves[N] == pytest.approx(moves[0], abs=1e-15)
    numbers = full_set(Problem.from_allowance(Voters(N, PrivacyParams("0.5", "0.1")), 2)).params
    values, bounds, choice = np.empty((1, N + 1)), np.empty((1, N + 1)), np.empty((1, N + 1), dtype=np.int64)
    place = N if mirrored else 0
    chosen.vertices((level[::-1] if mirrored else level)[None, :].copy(), numbers, values, bounds, choice)
    assert values[0, place] == pytest.approx(moves[0], abs=1e-15)
    assert moves[N // 2] <= bounds[0, place] <= moves[N // 2] + 2e-4 * (moves[N // 2] - moves[0])


def test_no_second_difference_exceeds_the_curvature_bound() -> None:
    """J = 1, so that the tail is no matter of 1e-18: the step of a second difference reaches beyond the moves."""
    full = full_set(Problem.from_allowance(Voters(12, PrivacyParams("0.1", "0.01")), 5))
    full.family.__dict__["terms"] = 1
    N, delta = 12, full.corners.delta
    block = np.zeros((1, N + 1))
    block[0, 6:] = 1.0
    bound = kernels.curvature(block, 1)[0] + full.params.tail_curvature
    curvature = np.abs(np.diff(block[0], n=2))  # at 1 … N − 1

    def mean(n_1: int, a: int, a_1: int, step: int) -> float:
        """E|T''(n_1 − X + Y + step)|."""
        up, down = (poisson_binomial_pmf(np.full(n, delta)) if n else np.ones(1) for n in (a, a_1))
        centers = [(n_1 + i - k + step, up[i] * down[k]) for i in range(a + 1) for k in range(a_1 + 1)]
        return float(sum(weight * curvature[center - 1] for center, weight in centers))

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
        *(pytest.param(4, delta, marks=pytest.mark.slow) for delta in ("0", "0.05")),
        *(pytest.param(5, delta, marks=pytest.mark.slow) for delta in ("0", "0.01", "0.05")),
    ],
)
def test_exact_fractions_over_every_assignment_for_every_overlap(K: int, delta: str) -> None:
    worst = []
    half = np.random.default_rng(K).random(K - K // 2)
    for overlap in range(1, K + 1):
        voters = Voters(K, PrivacyParams("0.5", delta), overlap=overlap)
        problem = Problem.from_allowance(voters, "1.5" if K > 1 else 1)
        check_exactly(problem, half)
        check_exactly(problem, np.sort(half))
        worst.append(full_set(problem).maxima(half).worst)
    assert worst == sorted(worst)


def check_exactly(problem: Problem, half: np.ndarray) -> None:
    K = problem.voters.K
    exact = exact_worst_cost(problem, half)
    ball = worst_cost_ball(problem, NoiseFunction(K, half))
    assert abs(float(ball.mid()) - float(exact)) <= 1e-15 * (1 + problem.cost_ratio)
    assert full_set(problem).maxima(half).worst >= exact
    assert budget_below(problem.target) <= exact_budget(problem)
    assert budget_below(problem.target) >= float(exact_budget(problem)) * (1 - 1e-15)


def test_the_corners_are_the_corners_of_the_region() -> None:
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.7", "0.05")), 1)
    e, delta = exponential(problem.voters.each.exact_epsilon), problem.voters.each.exact_delta
    tight = []
    for p, p_prime in corner_list(problem):
        slacks = [
            e * p_prime + delta - p,
            e * p + delta - p_prime,
            e * (1 - p_prime) + delta - (1 - p),
            e * (1 - p) + delta - (1 - p_prime),
            p,
            1 - p,
            p_prime,
            1 - p_prime,
        ]
        assert min(slacks) >= 0
        tight.append(sum(slack == 0 for slack in slacks))
    assert min(tight) == 2
    floats = corner_pairs(problem.voters)
    assert np.allclose(floats, np.array(corner_list(problem), dtype=float), atol=1e-16)


@pytest.mark.parametrize("K", [3, 6])
def test_random_points_of_the_region_never_cost_more_than_the_worst_corner(K: int) -> None:
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.5", "0.01")), 2)
    rng = np.random.default_rng(K)
    p = rng.beta(0.3, 0.3, size=(10_000, K))
    low, high = lowest_partner(p, problem.voters.each), 1 - lowest_partner(1 - p, problem.voters.each)
    side = rng.beta(0.3, 0.3, size=p.shape)
    p_prime = low + side * (high - low)
    for half in rng.random((5, problem.voters.num_upper_levels)):
        costs = privacy_cost(problem, NoiseFunction(K, half), p, p_prime)
        assert np.max(costs) <= full_set(problem).maxima(half).worst


def test_moves_to_the_family_are_paid_for() -> None:
    # a γ whose fall is too small to see: a level passes only with a positive price, for each voter that is left
    problem = Problem.from_allowance(Voters(5, PrivacyParams("0.1")), 2)
    full = full_set(problem)
    assert full._bound_cost_of_moves(0, 0.0) == 0.0
    for j in range(6):
        assert full._bound_cost_of_moves(j, 1e-9) >= (5 - j) * (1 + problem.cost_ratio) * np.tanh(0.05) * 1e-9


@given(data=st.data(), problem=problems(most_voters=6))
def test_the_border_is_part_of_the_full_set(data: st.DataObject, problem: Problem) -> None:
    gamma = data.draw(gammas(problem.voters.K))
    worst, broken = full_set(problem).border(gamma.half, problem.budget)
    assert worst <= full_set(problem).maxima(gamma.half).worst
    for cost, row in broken:
        p, p_prime = row.probabilities(problem.voters)
        assert privacy_cost(problem, gamma, p, p_prime) == pytest.approx(cost, abs=1e-12 * (1 + problem.cost_ratio))
        assert cost > problem.budget


# found by a random search: below K = 31 or so no γ was seen for which (lo, hi) is ever the worst corner
NEEDS_LOW = [0, 0, 1, 0, 0, 1, 0, 0, 1, 1, 0, 1, 1, 1, 0, 0]


def test_the_corner_lo_hi_matters_and_every_way_sees_it() -> None:
    problem = Problem.from_allowance(Voters(31, PrivacyParams("0.5")), 1)
    gamma = NoiseFunction(31, NEEDS_LOW)
    slow = worst_cost(problem, gamma)
    assert family_maxima(problem, gamma.half).worst < 0.9 * slow
    assert full_set(problem).maxima(gamma.half).worst == pytest.approx(slow, rel=1e-11)
    assert float(worst_cost_ball(problem, gamma).mid()) == pytest.approx(slow, rel=1e-13)
    worst, broken = full_set(problem).border(gamma.half, problem.budget)
    assert worst > 1.001 * family_maxima(problem, gamma.half).worst
    assert any(row.low for _, row in broken)


@pytest.mark.parametrize(
    ("N", "delta"),
    [
        *((N, delta) for N in (2, 5) for delta in ("0.3", "0.05", "1e-5")),
        *(pytest.param(9, delta, marks=pytest.mark.slow) for delta in ("0.3", "0.05", "1e-5")),
    ],
)
def test_moves_near_zero_and_one_against_every_choice(N: int, delta: str) -> None:
    problem = Problem.from_allowance(Voters(N, PrivacyParams("0.5", delta)), 1)
    full = full_set(problem)
    rng = np.random.default_rng(N)
    block = np.round(rng.uniform(-1.0, 1.0, size=(40, N + 1)))
    vertices, screened = full.vertices(block), kernels.screen(block, full.params.tails)
    d = float(delta)
    beaten = 0.0
    for state, ones in np.ndindex(block.shape):
        values = {}
        for a in range(N - ones + 1):
            for a_1 in range(ones + 1):
                p = np.array([d] * a + [0.0] * (N - ones - a) + [1.0 - d] * a_1 + [1.0] * (ones - a_1))
                values[a, a_1] = float(poisson_binomial_pmf(p) @ block[state])
        best = max(values.values())
        maxima, upper, a, a_1 = full.search(block, vertices, state, ones, -np.inf)
        assert maxima == pytest.approx(values[a, a_1], abs=1e-13)
        assert maxima - 1e-13 <= best <= upper + 1e-13
        assert upper <= maxima + 1e-14
        for enough in (best - 0.01, best + 1e-9):
            some, above, a, a_1 = full.search(block, vertices, state, ones, enough)
            assert some == pytest.approx(values[a, a_1], abs=1e-13)
            assert best - 1e-13 <= above <= max(some, enough) + 1e-14
        corners = [values[a, a_1] for a in (0, N - ones) for a_1 in (0, ones)]
        assert vertices.values[state, ones] == pytest.approx(max(corners), abs=1e-13)
        for bound in (vertices.bounds[state, ones], screened[state, ones]):
            assert bound >= best - 1e-13
        beaten = max(beaten, best - max(corners))
    # the choice between the vertices is not the whole story: where Δ is large an interior choice wins
    if delta == "0.3" and N == 9:
        assert beaten > 1e-3


def test_a_cell_is_cut_where_its_bound_is_attained(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a parabola the best number of moves is in the middle of the one cell, and the curvature bound is its value."""
    monkeypatch.setattr("darrm.majority.full_set._MAX_PAIRS", 0)
    monkeypatch.setattr("darrm.majority.full_set._GRID_CELLS", 1)
    N, delta = 12, 0.1
    full = full_set(Problem.from_allowance(Voters(N, PrivacyParams("0.5", "0.1")), 2))
    level = -0.005 * (np.arange(N + 1.0) - (delta * N + 1.0 - delta) / 2.0) ** 2
    middle = float(poisson_binomial_pmf(np.full(N // 2, delta)) @ level[: N // 2 + 1])
    vertices = full.vertices(level[None, :])
    enough = 0.5 * (middle + float(vertices.values[0, 0]))
    maxima, upper, a, a_1 = full.search(level[None, :], vertices, 0, 0, enough)
    assert (a, a_1) == (N // 2, 0)
    assert maxima == pytest.approx(middle, abs=1e-15)
    assert upper >= middle - 1e-15


@pytest.mark.parametrize("pieces", [None, 4, 64])
@pytest.mark.parametrize("n_1", [0, 1, 70, 149, 150])
def test_many_moves_are_searched_as_if_all_were_tried(
    n_1: int, pieces: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By all pairs, and by grids of cells."""
    if pieces is not None:
        monkeypatch.setattr("darrm.majority.full_set._MAX_PAIRS", 0)
        monkeypatch.setattr("darrm.majority.full_set._GRID_CELLS", pieces)
    N = 150
    full = full_set(Problem.from_allowance(Voters(N, PrivacyParams("0.5", "0.05")), 1))
    weights, J = full.family.delta_weights, full.family.terms
    rng = np.random.default_rng(n_1)
    beaten = 0.0
    for _ in range(20):
        level = (rng.random(N + 1) < 0.05).astype(np.float64)
        padded = np.concatenate([np.zeros(J), level, np.zeros(J)])
        steps = np.arange(J + 1)
        window = padded[n_1 + J + steps[:, None] - steps[None, :]]
        values = weights[:, : N - n_1 + 1].T @ window @ weights[:, : n_1 + 1]
        vertices = full.vertices(level[None, :])
        maxima, upper, a, a_1 = full.search(level[None, :], vertices, 0, n_1, -np.inf)
        assert maxima == pytest.approx(values[a, a_1], abs=1e-13)
        assert maxima == pytest.approx(np.max(values), abs=1e-13)
        assert maxima <= upper <= maxima + 1e-13
        some, above, _, _ = full.search(level[None, :], vertices, 0, n_1, maxima + 1e-6)
        assert some <= maxima + 1e-13
        assert maxima - 1e-13 <= above <= maxima + 1e-6
        beaten = max(beaten, maxima - float(vertices.values[0, n_1]))
    assert beaten > 1e-4  # the vertices alone would not do


def test_an_interior_number_of_moves_can_be_the_worst() -> None:
    # found by a random search: looking at the vertices alone would miss this by 0.15
    problem = Problem.from_allowance(Voters(9, PrivacyParams("1", "0.5")), "2.5")
    gamma = NoiseFunction(9, [1, 1, 0, 0, 1])
    assert full_set(problem).maxima(gamma.half).worst == pytest.approx(worst_cost(problem, gamma), rel=1e-11)
    assert float(worst_cost_ball(problem, gamma).mid()) == pytest.approx(worst_cost(problem, gamma), rel=1e-13)
