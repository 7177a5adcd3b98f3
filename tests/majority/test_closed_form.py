"""Optima in closed form and under a Rényi budget, against linear and conic programs, grids and the solver."""

import math
from collections.abc import Callable
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from darrm import priors
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
from darrm.majority.costs import renyi_divergences
from darrm.majority.full_set import FullSet
from darrm.majority.noise_function import NoiseFunction
from darrm.optimize.noise_functions import PrivacyOracle
from darrm.optimize.optimizer import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.options import SolveOptions
from lp_models.reference import gamma_program
from lp_models.row_generation import minimize_with_rows
from tests.optimality import optimality_of
from tests.renyi_conic import solve_renyi_with_cvxpy

TARGETS = [("0.2676", "0.0003"), ("0.01", "1e-6"), ("2", "1e-5"), ("0.5", "0.2"), ("0.3", "0"), ("6", "0.9")]
UNIFORM = priors.Dirichlet()


def non_private(K: int, target: tuple[str, str], overlap: int | None = 1) -> Problem:
    return Problem(Voters(K, PrivacyParams("inf"), overlap=overlap), PrivacyParams(*target))


def smallest_h(K: int, s: int, ratio: float, delta: float) -> float:
    """Minimize h(s) over every symmetric private h: the rows written down from the definition of privacy."""
    rows, limits = [], []
    for ones, neighbor in [*pairwise(range(K + 1)), *pairwise(range(K, -1, -1))]:
        row = np.zeros(K + 1)
        row[neighbor], row[ones] = 1.0, -ratio
        # h(neighbor) − c·h(ones) ≤ δ, and the same for 1 − h
        rows += [row, -row]
        limits += [delta, delta + ratio - 1.0]
    result = linprog(
        np.eye(K + 1)[s],
        A_ub=np.array(rows),
        b_ub=limits,
        A_eq=np.eye(K + 1) + np.eye(K + 1)[::-1],
        b_eq=np.ones(K + 1),
        bounds=(0, 1),
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return float(result.fun)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("K", [1, 2, 3, 4, 8, 11])
def test_closed_form_is_private_and_the_best_symmetric_h_everywhere(K: int, target: tuple[str, str]) -> None:
    problem = non_private(K, target)
    gamma = best_for_non_private_voters(problem).half
    best = [1.0 - 2.0 * smallest_h(K, s, problem.cost_ratio, float(target[1])) for s in range(K - K // 2 - 1, -1, -1)]
    assert gamma == pytest.approx(best, abs=1e-9)
    assert FullSet(problem.voters, problem.target.exact_epsilon).worst(gamma) <= problem.budget * (1 + 1e-12)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("shape", list(Shape))
@pytest.mark.parametrize(
    ("K", "target"),
    [
        *((1, TARGETS[0]), (2, TARGETS[2]), (11, TARGETS[0]), (250, TARGETS[1])),
        *(pytest.param(K, target, marks=pytest.mark.slow) for K in (501, 1001) for target in TARGETS),
    ],
)
def test_row_generation_finds_the_closed_form(K: int, target: tuple[str, str], shape: Shape) -> None:
    problem = non_private(K, target)
    program = expected_error_program(UNIFORM.weights(K), shape)
    result = minimize_with_rows(program, PrivacyOracle(problem, shape), SolveOptions())
    assert shape.variables_to_gamma(result.point) == pytest.approx(best_for_non_private_voters(problem).half, abs=1e-9)


@pytest.mark.parametrize("K", [11, 100, 1001])
@pytest.mark.parametrize("prior", [UNIFORM, priors.Independent(0.5, 1.0)])
def test_optimize_returns_the_closed_form_with_a_tight_bound(K: int, prior: priors.Prior) -> None:
    problem = non_private(K, ("0.5", "0.2"))
    table = optimize_table(problem, prior=prior, shape="monotone")
    assert table.gamma.half == pytest.approx(best_for_non_private_voters(problem).half, abs=1e-11)
    assert optimality_of(table).gap <= 1e-9
    assert table.gamma.is_monotone


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
    def extend(upper: tuple[float, ...]) -> list[float]:
        """Return h(0) … h(K) for the upper half."""
        return [1.0 - value for value in reversed(upper)] + ([0.5] if K % 2 == 0 else []) + list(upper)

    best = 0.5 * (1.0 + best_under_renyi(K, order, budget, rate).half)
    assert is_private(extend(tuple(best)), order, budget * (1 + 1e-9), rate)
    grid = [0.5 + step / 30.0 for step in range(15)] + [0.999]
    private = [upper for upper in product(grid, repeat=K - K // 2) if is_private(extend(upper), order, budget, rate)]
    assert private
    assert np.all(np.array(private) <= best + 1e-9)


@given(st.integers(1, 60), st.floats(1.05, 200.0), st.floats(1e-6, 3.0))
def test_best_under_renyi_is_monotone_and_uses_its_budget(K: int, order: float, budget: float) -> None:
    gamma = best_under_renyi(K, order, budget)
    assert gamma.is_monotone
    assert np.min(0.5 * (1.0 - gamma.half)) >= SMALLEST_LIE
    spent = renyi_divergences(Voters(K, PrivacyParams("inf"), overlap=1), gamma, [order])[0]
    assert spent <= budget * (1 + 1e-5) + 1e-12
    if gamma.half[-1] < 1.0 - 1e-6:
        assert spent >= budget * (1 - 1e-6)


def test_best_under_a_small_renyi_budget_is_an_arc_that_ends() -> None:
    K, order, budget = 2001, 4.0, 1e-5
    h = 0.5 * (1.0 + best_under_renyi(K, order, budget).half)
    lead = np.arange(K // 2 + 1, K + 1) - K / 2.0
    angle = np.minimum(math.pi / 2, math.pi / 4 + math.sqrt(budget / (2.0 * order)) * lead)
    assert h == pytest.approx(np.sin(angle) ** 2, abs=2e-3)
    assert h[1] - h[0] == pytest.approx(math.sqrt(budget / (2.0 * order)), rel=1e-3)


def test_best_under_renyi_is_nearly_certain_for_a_person_in_few_queries() -> None:
    # 1,000 queries at rate 0.004 within (3, 1e-5) at order 6: h is 0.977 next to the tie
    budget = (3.0 - math.log1p(-1.0 / 6.0) + (math.log(1e-5) + math.log(6.0)) / 5.0) / 1000.0
    half = best_under_renyi(10, 6.0, budget, 0.004).half
    assert half[0] == pytest.approx(0.977, abs=5e-4)
    assert np.all(half[1:] > 0.9995)


def optimize_by_rows(voters: Voters, order: float, budget: float) -> RenyiOptimum:
    """Generate rows also where there is a closed form."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(closed_form, "has_closed_form", lambda _: False)
        return optimize_under_renyi(voters, UNIFORM, order, budget)


@pytest.mark.parametrize(
    ("voters", "order", "budget"),
    [
        (Voters(5, PrivacyParams("inf"), 1), 4.0, 0.2),
        (Voters(5, PrivacyParams("inf"), 2), 4.0, 0.2),
        (Voters(8, PrivacyParams("inf"), 3), 2.0, 0.05),
        (Voters(11, PrivacyParams("inf"), 1), 9.0, 0.02),
        (Voters(4, PrivacyParams("0.5", "0.01"), 3), 9.0, 0.05),
        (Voters(5, PrivacyParams("0.1", "1e-5")), 9.0, 0.002),
        (Voters(6, PrivacyParams("1", "0.1"), 2), 3.0, 0.02),
        (Voters(11, PrivacyParams("0.3"), 4), 3.0, 0.02),
        (Voters(1, PrivacyParams("1")), 2.0, 0.1),
    ],
    ids=str,
)
def test_row_generation_under_renyi_agrees_with_a_conic_program(voters: Voters, order: float, budget: float) -> None:
    pytest.importorskip("cvxpy")
    rows = optimize_by_rows(voters, order, budget)
    whole = gamma_program(Problem(voters, voters.each if voters.each.is_private else PrivacyParams(1)))
    weights = priors.compute_weights(UNIFORM, voters.K)
    half = solve_renyi_with_cvxpy(
        weights, whole.first, whole.second, order=order, budget=budget, smallest_lie=SMALLEST_LIE
    )
    assert half is not None
    assert rows.value == pytest.approx(NoiseFunction(voters.K, half).expected_error(UNIFORM), abs=2e-6)
    assert rows.value * (1 - 1e-6) - 1e-9 <= rows.bound <= rows.value + 1e-12
    assert rows.gamma.is_monotone
    assert renyi_divergences(voters, rows.gamma, [order])[0] <= budget * (1 + 1e-7)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("K", "order", "budget"),
    [(11, 9.0, 0.02), (30, 4.0, 0.01), (81, 5.0, 0.005), pytest.param(301, 5.0, 0.002, marks=pytest.mark.slow)],
)
def test_row_generation_under_renyi_finds_the_closed_form(K: int, order: float, budget: float) -> None:
    voters = Voters(K, PrivacyParams("inf"), overlap=1)
    rows = optimize_by_rows(voters, order, budget)
    closed = optimize_under_renyi(voters, UNIFORM, order, budget)
    assert closed.value - 1e-12 <= rows.value <= (1 + 1e-4) * closed.value
    # the relaxation's bound does not use the closed form: their order is a proof of its optimality
    assert rows.bound <= closed.value + 1e-9


def test_voters_that_differ_are_bounded_like_the_weakest() -> None:
    differing = Voters.of([("0.1", 0), ("0.3", 0), ("1", 0), ("1", 0), ("0.5", 0)])
    result = optimize_under_renyi(differing, UNIFORM, 4.0, 0.2)
    alike = optimize_under_renyi(Voters(5, differing.each), UNIFORM, 4.0, 0.2)
    assert result.gamma.half == pytest.approx(alike.gamma.half, abs=1e-9)
    assert renyi_divergences(differing, result.gamma, [4.0])[0] <= 0.2 * (1 + 1e-7)


@pytest.mark.slow
def test_a_coarse_solution_is_a_start_for_a_fine_one() -> None:
    voters = Voters(101, PrivacyParams("0.1", "1e-5"))
    coarse = optimize_under_renyi(voters, UNIFORM, 3.0, 0.0265, options=COARSE)
    fine = optimize_under_renyi(voters, UNIFORM, 3.0, 0.0265)
    started = optimize_under_renyi(voters, UNIFORM, 3.0, 0.0265, start=coarse)
    assert coarse.planes
    assert started.value == pytest.approx(fine.value, rel=2e-6)
    assert coarse.bound * (1.0 - 1e-12) <= started.bound <= started.value
    assert renyi_divergences(voters, started.gamma, [3.0])[0] <= 0.0265 * (1 + 1e-7)


def test_a_solve_stops_once_its_bound_exceeds_the_error_to_beat() -> None:
    voters = Voters(101, PrivacyParams("0.1", "1e-5"))
    best = optimize_under_renyi(voters, UNIFORM, 3.0, 0.0265)
    stopped = optimize_under_renyi(voters, UNIFORM, 3.0, 0.0265, to_beat=0.7 * best.value)
    assert 0.7 * best.value < stopped.bound < best.bound
    assert optimize_under_renyi(voters, UNIFORM, 3.0, 0.0265, to_beat=1.01 * best.value).value == best.value


@pytest.mark.parametrize(
    ("solve", "message"),
    [
        (lambda: best_for_non_private_voters(non_private(5, TARGETS[0], 2)), "with overlap 1"),
        (lambda: best_under_renyi(0, 2.0, 1.0), "K must"),
        (lambda: best_under_renyi(3, 1.0, 1.0), "order must be above 1"),
        (lambda: best_under_renyi(3, 2.0, 0.0), "budget must be"),
        (lambda: optimize_under_renyi(Voters(5, ("0.1", 0)), UNIFORM, 1.0, 0.1), "order must be above 1"),
        (lambda: optimize_under_renyi(Voters(5, ("0.1", 0)), UNIFORM, 2.0, 0.0), "budget must be"),
        (lambda: optimize_under_renyi(Voters(5, ("0.1", 0)), priors.TwoSided(0.7, 1.0), 2.0, 0.1), "linear expected"),
    ],
)
def test_closed_form_refuses_arguments_out_of_range(solve: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        solve()
