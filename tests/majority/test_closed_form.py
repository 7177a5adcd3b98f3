"""Plain voters: the closed form against linear programs, grids in exact fractions and the solver."""

import math
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from darrm import priors
from darrm.account.accountant import PrivacyAccountant
from darrm.loss.composition import compose_simple
from darrm.majority import baselines
from darrm.majority.closed_form import best_for_non_private_voters
from darrm.majority.corners import corners_of
from darrm.majority.full_set import FullSet
from darrm.majority.noise_function import NoiseFunction
from darrm.optimize.optimizer import optimize_table
from darrm.optimize.privacy_oracle import PrivacyOracle
from darrm.optimize.report import compare
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.release import Release
from darrm.table.table import Table, certify
from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.options import SolveOptions
from lp_models.row_generation import minimize_with_rows
from tests.doors import validated
from tests.optimality import optimality_of
from tests.oracle import exact_budget, exact_worst_cost, exponential

TARGETS = [("0.2676", "0.0003"), ("0.01", "1e-6"), ("2", "1e-5"), ("0.5", "0.2"), ("0.3", "0"), ("6", "0.9")]


def plain(K: int, target: tuple[str, str], overlap: int | None = 1) -> Problem:
    return Problem(Voters(K, PrivacyParams(math.inf, 0), overlap=overlap), PrivacyParams(*target))


def smallest_h(K: int, s: int, ratio: float, delta: float) -> float:
    """Minimize h(s) over every symmetric private h: the rows written down from the definition of privacy."""
    rows = []
    for given, neighbor in [(i, i + 1) for i in range(K)] + [(i + 1, i) for i in range(K)]:
        one, zero = np.zeros(K + 1), np.zeros(K + 1)
        one[neighbor], one[given] = 1.0, -ratio  # Pr[1]: h(neighbor) − c·h(given) ≤ δ
        zero[neighbor], zero[given] = -1.0, ratio  # Pr[0]: (1 − h(neighbor)) − c·(1 − h(given)) ≤ δ
        rows += [(one, delta), (zero, delta + ratio - 1.0)]
    symmetric = np.eye(K + 1) + np.eye(K + 1)[::-1]
    found = linprog(
        np.eye(K + 1)[s],
        A_ub=np.array([row for row, _ in rows]),
        b_ub=np.array([limit for _, limit in rows]),
        A_eq=symmetric,
        b_eq=np.ones(K + 1),
        bounds=(0, 1),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return float(found.fun)


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
    found = minimize_with_rows(program, PrivacyOracle(problem, shape), SolveOptions())
    gamma: NDArray[np.float64] = shape.variables_to_gamma(found.point)
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
    found = FullSet(problem.voters, problem.target.exact_epsilon).maxima(half).worst
    assert exact <= found <= exact + Fraction(1, 10**12)
    table = certify(problem, NoiseFunction(K, half))
    assert exact_worst_cost(problem, table.gamma.half.tolist()) <= exact_budget(problem)


def test_the_error_falls_with_the_overlap() -> None:
    common = priors.Dirichlet()
    tables = [optimize_table(plain(11, ("0.5", "1e-5"), t), prior=common) for t in range(1, 12)]
    errors = [table.gamma.expected_error(common) for table in tables]
    assert all(few <= many + 1e-9 for few, many in pairwise(errors))
    assert errors[0] < 0.6 * errors[-1]
    # reached by all, the majority flips in one step: nothing beats randomized response
    constant = certify(tables[-1].problem, baselines.randomized_response(tables[-1].problem))
    assert tables[-1].gamma.half == pytest.approx(constant.gamma.half, abs=1e-9)


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
    charge = aggregator.privacy_cost(10)
    accountant = PrivacyAccountant()
    accountant.add(charge)
    assert accountant.admits(PrivacyParams(8, "0.01"))
    with pytest.raises(ValueError, match="epsilon must be a finite number"):
        accountant.admits(PrivacyParams("inf"))
    assert charge.profile is not None
    assert charge.profile.deltas[32] <= 0.0003 + 1e-9
    # one person moves one vote by one: δ(ε) = max_s h(s+1) − e^ε·h(s), here at ε = 0
    h = [float(aggregator.probability_of_one(s)) for s in range(12)]
    assert charge.profile.deltas[0] == pytest.approx(max(np.diff(h)), abs=2e-12)


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
    assert repr(nothing) == "PrivacyParams(epsilon=inf, delta=0)"
    assert str(nothing) == "(inf, 0)"
    for read in ("epsilon", "exact_epsilon"):
        with pytest.raises(ValueError, match="epsilon must be a finite number"):
            getattr(nothing, read)
    with pytest.raises(ValueError, match="epsilon must be a finite number"):
        PrivacyParams(epsilon, "1e-5")
    with pytest.raises(ValueError, match="epsilon must be a finite number"):
        Problem(Voters(3, PrivacyParams("0.1")), nothing)
    with pytest.raises(ValueError, match=r"target\.epsilon must be positive"):
        Problem(Voters(3, nothing), PrivacyParams(0, "0.1"))
    with pytest.raises(ValueError, match=r"have no allowance m: state the target"):
        Problem.from_allowance(Voters(3, nothing), 2)


def test_the_constants_are_exact() -> None:
    corners = corners_of(PrivacyParams("inf"))
    assert (corners.hi, corners.delta) == (1.0, 0.0)
