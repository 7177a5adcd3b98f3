"""The optimum under a Rényi budget: rows against a conic program and against the closed form."""

import numpy as np
import pytest

from darrm import priors
from darrm.majority import closed_form
from darrm.majority.closed_form import COARSE, SMALLEST_LIE, RenyiOptimum, optimize_under_renyi
from darrm.majority.costs import renyi_divergences
from darrm.majority.noise_function import NoiseFunction
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from lp_models.reference import gamma_program
from tests.renyi_conic import solve_renyi_with_cvxpy

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
    weights, whole = priors.weights_of(prior, K), gamma_program(problem)
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
    found = optimize_under_renyi(differing, priors.Dirichlet(), 4.0, 0.2)
    alike = optimize_under_renyi(Voters(5, differing.each), priors.Dirichlet(), 4.0, 0.2)
    assert found.gamma.half == pytest.approx(alike.gamma.half, abs=1e-9)
    assert renyi_divergences(differing, found.gamma, [4.0])[0] <= 0.2 * (1 + 1e-7)


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


def test_what_is_refused() -> None:
    problem = problem_of(5, "0.1", "0", None)
    for order, budget, message in ((1.0, 0.1, "order must be above 1"), (2.0, 0.0, "budget must be")):
        with pytest.raises(ValueError, match=message):
            optimize_under_renyi(problem.voters, priors.Dirichlet(), order, budget)
    with pytest.raises(ValueError, match="linear expected error"):
        optimize_under_renyi(problem.voters, priors.TwoSided(0.7, 1.0), 2.0, 0.1)


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
