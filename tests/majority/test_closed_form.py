"""Optima in closed form and under a Rényi budget: linear and conic programs, grids in exact fractions, the solver."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from darrm import priors
from darrm.account.accountant import PrivacyAccountant
from darrm.loss.composition import compose_simple
from darrm.majority import closed_form
from darrm.majority.closed_form import (
    COARSE,
    SMALLEST_LIE,
    RenyiOptimum,
    bernoulli_divergence,
    best_for_non_private_voters,
    best_under_renyi,
    optimize_under_renyi,
)
from darrm.majority.corners import corners_of
from darrm.majority.costs import renyi_divergences
from darrm.majority.full_set import FullSet
from darrm.majority.noise_function import NoiseFunction
from darrm.optimize.noise_functions import PrivacyOracle
from darrm.optimize.optimizer import optimize_table
from darrm.optimize.report import compare
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.release import Release
from darrm.table.table import Table, certify
from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.options import SolveOptions
from lp_models.reference import gamma_program
from lp_models.row_generation import minimize_with_rows
from tests.doors import validated
from tests.optimality import optimality_of
from tests.oracle import exact_budget, exact_worst_cost, exponential
from tests.renyi_conic import solve_renyi_with_cvxpy

TARGETS = [("0.2676", "0.0003"), ("0.01", "1e-6"), ("2", "1e-5"), ("0.5", "0.2"), ("0.3", "0"), ("6", "0.9")]


def plain(K: int, target: tuple[str, str], overlap: int | None = 1) -> Problem:
    return Problem(Voters(K, PrivacyParams(math.inf, 0), overlap=overlap), PrivacyParams(*target))


def smallest_h(K: int, s: int, ratio: float, delta: float) -> float:
    """Minimize h(s) over every symmetric private h: the rows written down from the definition of privacy."""
    rows = []
    for own, neighbor in [(i, i + 1) for i in range(K)] + [(i + 1, i) for i in range(K)]:
        one, zero = np.zeros(K + 1), np.zeros(K + 1)
        one[neighbor], one[own] = 1.0, -ratio  # Pr[1]: h(neighbor) − c·h(own) ≤ δ
        zero[neighbor], zero[own] = -1.0, ratio  # Pr[0]: (1 − h(neighbor)) − c·(1 − h(own)) ≤ δ
        rows += [(one, delta), (zero, delta + ratio - 1.0)]
    symmetric = np.eye(K + 1) + np.eye(K + 1)[::-1]
    result = linprog(
        np.eye(K + 1)[s],
        A_ub=np.array([row for row, _ in rows]),
        b_ub=np.array([limit for _, limit in rows]),
        A_eq=symmetric,
        b_eq=np.ones(K + 1),
        bounds=(0, 1),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return float(result.fun)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("K", [1, 2, 3, 4, 8, 11])
def test_no_symmetric_h_tells_the_truth_more_often_anywhere(K: int, target: tuple[str, str]) -> None:
    problem = plain(K, target)
    gamma = best_for_non_private_voters(problem).half
    delta = float(target[1])
    best = [1.0 - 2.0 * smallest_h(K, s, problem.cost_ratio, delta) for s in range(K - K // 2 - 1, -1, -1)]
    assert gamma == pytest.approx(best, abs=1e-9)
    assert FullSet(problem.voters, problem.target.exact_epsilon).maxima(gamma).worst <= problem.budget * (1 + 1e-12)


@pytest.mark.parametrize("target", [("0.5", "0.05"), ("1", "0"), ("0.2", "0.3")])
@pytest.mark.parametrize("K", [3, 4, 5])
def test_no_h_on_a_grid_is_better_in_exact_fractions(K: int, target: tuple[str, str]) -> None:
    problem = plain(K, target)
    steps = 12
    best = [(1 + Fraction(float(value))) / 2 for value in best_for_non_private_voters(problem).half]
    ratio, delta = exponential(problem.target.exact_epsilon), problem.target.exact_delta
    seen = 0
    for top in product(range(steps + 1), repeat=problem.voters.num_upper_levels):
        upper = [Fraction(value, steps) for value in top]
        h = [1 - value for value in reversed(upper)] + ([Fraction(1, 2)] if K % 2 == 0 else []) + upper
        pairs = [*pairwise(h), *pairwise(h[::-1])]
        if all(b <= ratio * a + delta and 1 - b <= ratio * (1 - a) + delta for a, b in pairs):
            seen += 1
            assert all(value <= limit + Fraction(1, 10**14) for value, limit in zip(upper, best, strict=True))
    assert seen > 1


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("shape", list(Shape))
@pytest.mark.parametrize(
    ("K", "target"),
    [
        *((1, TARGETS[0]), (2, TARGETS[2]), (11, TARGETS[0]), (250, TARGETS[1])),
        *(pytest.param(K, target, marks=pytest.mark.slow) for K in (501, 1001) for target in TARGETS),
    ],
)
def test_the_solver_finds_the_closed_form(K: int, target: tuple[str, str], shape: Shape) -> None:
    assert distance_of_the_solver(plain(K, target), shape) <= 1e-9


def distance_of_the_solver(problem: Problem, shape: Shape) -> float:
    """Row generation alone, without the closed form, under a prior that has an opinion at every l."""
    program = expected_error_program(priors.Dirichlet().weights(problem.voters.K), shape)
    result = minimize_with_rows(program, PrivacyOracle(problem, shape), SolveOptions())
    gamma: NDArray[np.float64] = shape.variables_to_gamma(result.point)
    return float(np.max(np.abs(gamma - best_for_non_private_voters(problem).half)))


@pytest.mark.parametrize("prior", [priors.Dirichlet(), priors.Independent(0.5, 1.0)])
@pytest.mark.parametrize("K", [11, 100, 1001])
def test_the_optimum_is_the_closed_form_and_the_solvers_bound_agrees(K: int, prior: priors.Prior) -> None:
    problem = plain(K, ("0.5", "0.2"))
    table = optimize_table(problem, prior=prior, shape="monotone")
    assert table.gamma.half == pytest.approx(best_for_non_private_voters(problem).half, abs=1e-11)
    assert optimality_of(table).gap <= 1e-9
    assert table.gamma.is_monotone


@pytest.mark.parametrize("overlap", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("K", [1, 2, 3, 4, 5])
def test_every_overlap_against_exact_fractions(K: int, overlap: int) -> None:
    if overlap > K:
        return
    problem = plain(K, ("0.7", "0.01"), overlap)
    half = np.random.default_rng(K).random(problem.voters.num_upper_levels)
    exact = exact_worst_cost(problem, half.tolist())
    result = FullSet(problem.voters, problem.target.exact_epsilon).maxima(half).worst
    assert exact <= result <= exact + Fraction(1, 10**12)
    table = certify(problem, NoiseFunction(K, half))
    assert exact_worst_cost(problem, table.gamma.half.tolist()) <= exact_budget(problem)


def test_what_cannot_be_said_of_plain_voters() -> None:
    problem = plain(11, TARGETS[0])
    assert "not private themselves" in str(problem)
    with pytest.raises(ValueError, match="no allowance m"):
        _ = problem.m
    entries = {entry.name: entry for entry in compare(optimize_table(problem), priors.Dirichlet())}
    assert entries["γ_Sub"].table is None
    assert "no allowance" in entries["γ_Sub"].remark
    assert entries["γ_const"].table is not None
    with pytest.raises(ValueError, match="epsilon must be a finite number"):
        compose_simple(PrivacyParams("inf"), 3)
    with pytest.raises(ValueError, match="with overlap 1"):
        best_for_non_private_voters(plain(5, TARGETS[0], 2))


@pytest.mark.parametrize("epsilon", [math.inf, "inf", "Infinity", "+inf"])
def test_infinity_is_for_voters_only(epsilon: float | str) -> None:
    nothing = PrivacyParams(epsilon)
    assert not nothing.is_private
    assert nothing == PrivacyParams("inf")
    assert (repr(nothing), str(nothing)) == ("PrivacyParams(epsilon=inf, delta=0)", "(inf, 0)")
    for use in (
        lambda: nothing.epsilon,
        lambda: nothing.exact_epsilon,
        lambda: PrivacyParams(epsilon, "1e-5"),
        lambda: Problem(Voters(3, PrivacyParams("0.1")), nothing),
    ):
        with pytest.raises(ValueError, match="epsilon must be a finite number"):
            use()


def law(K: int, upper: tuple[float, ...]) -> list[float]:
    """h(0) … h(K) from its upper half."""
    return [1.0 - value for value in reversed(upper)] + ([0.5] if K % 2 == 0 else []) + list(upper)


def is_private(h: list[float], order: float, budget: float, rate: float = 1.0) -> bool:
    """Whether both directions cost no more than the budget where a person moves a vote with probability ``rate``."""
    pairs = [*pairwise(h), *pairwise(h[::-1])]
    mixed = [((1.0 - rate) * x + rate * y, x) for x, y in pairs]
    return all(bernoulli_divergence(order, x, y) <= budget for pair in mixed for x, y in (pair, pair[::-1]))


@pytest.mark.parametrize(
    ("order", "budget", "rate"),
    [(2.0, 0.3, 1.0), (9.0, 0.05, 1.0), (1.2, 0.1, 1.0), (3.0, 0.01, 0.2), (6.0, 2e-4, 0.02)],
)
@pytest.mark.parametrize("K", [1, 2, 3, 4, 5])
def test_no_private_h_on_a_grid_is_better_anywhere(K: int, order: float, budget: float, rate: float) -> None:
    best = 0.5 * (1.0 + best_under_renyi(K, order, budget, rate).half)
    assert is_private(law(K, tuple(best)), order, budget * (1 + 1e-9), rate)
    grid = [0.5 + step / 30.0 for step in range(15)] + [0.999]
    seen = 0
    for upper in product(grid, repeat=K - K // 2):
        if is_private(law(K, upper), order, budget, rate):
            seen += 1
            assert np.all(np.array(upper) <= best + 1e-9)
    assert seen >= 1


@given(st.integers(1, 60), st.floats(1.05, 200.0), st.floats(1e-6, 3.0))
def test_within_the_budget_monotone_and_tight(K: int, order: float, budget: float) -> None:
    gamma = best_under_renyi(K, order, budget)
    assert gamma.is_monotone
    assert np.min(0.5 * (1.0 - gamma.half)) >= SMALLEST_LIE
    spent = renyi_divergences(Voters(K, PrivacyParams("inf"), overlap=1), gamma, [order])[0]
    assert spent <= budget * (1 + 1e-5) + 1e-12
    if gamma.half[-1] < 1.0 - 1e-6:
        assert spent >= budget * (1 - 1e-6)


def test_many_queries_tend_to_an_arc_that_ends() -> None:
    K, order, budget = 2001, 4.0, 1e-5
    truth = 0.5 * (1.0 + best_under_renyi(K, order, budget).half)
    lead = np.arange(K // 2 + 1, K + 1) - K / 2.0
    angle = np.minimum(math.pi / 2, math.pi / 4 + math.sqrt(budget / (2.0 * order)) * lead)
    assert truth == pytest.approx(np.sin(angle) ** 2, abs=2e-3)


def test_the_arc_is_steeper_at_the_tie_than_a_gaussian_count_of_the_same_divergence() -> None:
    order, budget = 4.0, 1e-6
    truth = 0.5 * (1.0 + best_under_renyi(201, order, budget).half)
    # a count with noise has divergence α·μ²/2 for a step of μ standard deviations
    gaussian = math.sqrt(2.0 * budget / order) / math.sqrt(2.0 * math.pi)
    assert (truth[1] - truth[0]) / gaussian == pytest.approx(math.sqrt(math.pi / 2.0), rel=1e-3)


PROBLEMS = [
    (5, "inf", None, 1, 4.0, 0.2),
    (5, "inf", None, 2, 4.0, 0.2),
    (8, "inf", None, 3, 2.0, 0.05),
    (11, "inf", None, 1, 9.0, 0.02),
    (4, "0.5", "0.01", 3, 9.0, 0.05),
    (5, "0.1", "1e-5", None, 9.0, 0.002),
    (6, "1", "0.1", 2, 3.0, 0.02),
    (11, "0.3", "0", 4, 3.0, 0.02),
    (1, "1", "0", None, 2.0, 0.1),
]


def by_rows(voters: Voters, prior: priors.Prior, order: float, budget: float) -> RenyiOptimum:
    """Generate rows also where there is a closed form."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(closed_form, "has_closed_form", lambda _: False)
        return optimize_under_renyi(voters, prior, order, budget)


def problem_of(K: int, epsilon: str, delta: str | None, overlap: int | None) -> Problem:
    each = PrivacyParams(epsilon, delta or 0)
    return Problem(Voters(K, each, overlap=overlap), each if each.is_private else PrivacyParams(1))


@pytest.mark.parametrize(("K", "epsilon", "delta", "overlap", "order", "budget"), PROBLEMS)
def test_rows_and_cones_agree(
    K: int, epsilon: str, delta: str | None, overlap: int | None, order: float, budget: float
) -> None:
    pytest.importorskip("cvxpy")
    problem, prior = problem_of(K, epsilon, delta, overlap), priors.Dirichlet()
    rows = by_rows(problem.voters, prior, order, budget)
    weights, whole = priors.compute_weights(prior, K), gamma_program(problem)
    first, second = whole.first, whole.second
    half = solve_renyi_with_cvxpy(weights, first, second, order=order, budget=budget, smallest_lie=SMALLEST_LIE)
    assert half is not None
    assert rows.value == pytest.approx(NoiseFunction(K, half).expected_error(prior), abs=2e-6)
    assert rows.bound <= rows.value + 1e-12
    assert rows.value - rows.bound <= 1e-6 * rows.value + 1e-9
    assert rows.gamma.is_monotone
    assert renyi_divergences(problem.voters, rows.gamma, [order])[0] <= budget * (1 + 1e-7)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("K", "order", "budget"),
    [(11, 9.0, 0.02), (30, 4.0, 0.01), (81, 5.0, 0.005), pytest.param(301, 5.0, 0.002, marks=pytest.mark.slow)],
)
def test_rows_find_the_closed_form(K: int, order: float, budget: float) -> None:
    problem, prior = problem_of(K, "inf", None, 1), priors.Dirichlet()
    rows = by_rows(problem.voters, prior, order, budget)
    closed = optimize_under_renyi(problem.voters, prior, order, budget)
    assert closed.value <= rows.value + 1e-12
    assert rows.value - closed.value <= 1e-4 * closed.value
    # the relaxation's bound knows nothing of the closed form: their order is a proof of its optimality
    assert rows.bound <= closed.value + 1e-9


def test_voters_that_differ_are_bounded_as_if_all_were_as_the_weakest() -> None:
    differing = Voters.of([("0.1", 0), ("0.3", 0), ("1", 0), ("1", 0), ("0.5", 0)])
    result = optimize_under_renyi(differing, priors.Dirichlet(), 4.0, 0.2)
    alike = optimize_under_renyi(Voters(5, differing.each), priors.Dirichlet(), 4.0, 0.2)
    assert result.gamma.half == pytest.approx(alike.gamma.half, abs=1e-9)
    assert renyi_divergences(differing, result.gamma, [4.0])[0] <= 0.2 * (1 + 1e-7)


@pytest.mark.slow
def test_a_coarse_solution_is_a_start_for_a_fine_one() -> None:
    voters, prior = Voters(101, PrivacyParams("0.1", "1e-5")), priors.Dirichlet()
    coarse = optimize_under_renyi(voters, prior, 3.0, 0.0265, options=COARSE)
    alone = optimize_under_renyi(voters, prior, 3.0, 0.0265)
    started = optimize_under_renyi(voters, prior, 3.0, 0.0265, start=coarse)
    assert coarse.planes
    assert started.value == pytest.approx(alone.value, rel=2e-6)
    assert coarse.bound * (1.0 - 1e-12) <= started.bound <= started.value
    assert renyi_divergences(voters, started.gamma, [3.0])[0] <= 0.0265 * (1 + 1e-7)


def test_a_solve_that_errs_too_much_stops_with_a_bound_that_says_so() -> None:
    voters, prior = Voters(101, PrivacyParams("0.1", "1e-5")), priors.Dirichlet()
    best = optimize_under_renyi(voters, prior, 3.0, 0.0265)
    stopped = optimize_under_renyi(voters, prior, 3.0, 0.0265, to_beat=0.7 * best.value)
    assert 0.7 * best.value < stopped.bound <= best.value
    assert stopped.bound < best.bound  # it did not go on to the end
    assert optimize_under_renyi(voters, prior, 3.0, 0.0265, to_beat=1.01 * best.value).value == best.value


@pytest.mark.parametrize(
    ("solve", "message"),
    [
        (lambda: best_under_renyi(0, 2.0, 1.0), "K must"),
        (lambda: best_under_renyi(3, 1.0, 1.0), "order must be above 1"),
        (lambda: best_under_renyi(3, 2.0, 0.0), "budget must be"),
        (lambda: optimize_under_renyi(Voters(5, ("0.1", 0)), priors.Dirichlet(), 1.0, 0.1), "order must be above 1"),
        (lambda: optimize_under_renyi(Voters(5, ("0.1", 0)), priors.Dirichlet(), 2.0, 0.0), "budget must be"),
        (lambda: optimize_under_renyi(Voters(5, ("0.1", 0)), priors.TwoSided(0.7, 1.0), 2.0, 0.1), "linear expected"),
    ],
)
def test_what_is_refused(solve: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        solve()


def test_a_larger_budget_or_a_smaller_overlap_never_hurts() -> None:
    values = [
        optimize_under_renyi(problem_of(9, "0.5", "0.001", 9).voters, priors.Dirichlet(), 4.0, b).value
        for b in (0.01, 0.1)
    ]
    assert values[1] < values[0]
    by_overlap = [
        optimize_under_renyi(problem_of(9, "0.5", "0.001", t).voters, priors.Dirichlet(), 4.0, 0.05).value
        for t in (2, 5, 9)
    ]
    assert by_overlap == sorted(by_overlap)
    assert np.ptp(by_overlap) > 0.01


def test_a_table_is_kept_released_and_charged(tmp_path: Path) -> None:
    table = optimize_table(plain(11, TARGETS[0]))
    table.save(tmp_path / "t.json")
    validated(tmp_path / "t.json", "gamma_table")
    again = Table.load(tmp_path / "t.json")
    assert again.problem == table.problem
    assert again.gamma.half.tolist() == table.gamma.half.tolist()
    aggregator = Release(again)
    assert aggregator.release(np.ones((3, 11), dtype=int)).shape == (3,)
    assert float(aggregator.probability_of_one(11)) == pytest.approx(0.887, abs=5e-4)
    cost = aggregator.privacy_cost(10)
    accountant = PrivacyAccountant()
    accountant.add(cost)
    assert accountant.admits(PrivacyParams(8, "0.01"))
    with pytest.raises(ValueError, match="epsilon must be a finite number"):
        accountant.admits(PrivacyParams("inf"))
    assert cost.profile is not None
    assert cost.profile.deltas[32] <= 0.0003 + 1e-9
    # one person moves one vote by one: δ(ε) = max_s h(s+1) − e^ε·h(s), here at ε = 0
    h = [float(aggregator.probability_of_one(s)) for s in range(12)]
    assert cost.profile.deltas[0] == pytest.approx(max(np.diff(h)), abs=2e-12)


def test_who_is_rarely_drawn_may_be_told_the_truth() -> None:
    # K = 10, q = 0.004, 1,000 questions, (3, 1e-5) at order 6: from the tie 0, 0.977, 1.000 …
    budget = (3.0 - math.log1p(-1.0 / 6.0) + (math.log(1e-5) + math.log(6.0)) / 5.0) / 1000.0
    half = best_under_renyi(10, 6.0, budget, 0.004).half
    assert half[0] == pytest.approx(0.977, abs=5e-4)
    assert np.all(half[1:] > 0.9995)


def test_the_constants_are_exact() -> None:
    corners = corners_of(PrivacyParams("inf"))
    assert (corners.hi, corners.delta) == (1.0, 0.0)
