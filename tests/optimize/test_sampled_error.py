"""The optimum of a sampled expected error: against cvxpy with one row a draw, its surrogate, and held-out draws."""

from typing import Any

import numpy as np
import pytest

from darrm import PrivacyParams, Problem, optimize_table, priors
from darrm.majority import baselines
from darrm.majority.noise_function import compute_errors, differences
from darrm.optimize import SolveOptions
from darrm.problem import Voters
from lp_models.gamma_lp import SampledError
from tests.optimality import held_out_of, optimality_of
from tests.oracle import all_coefficients

UNIFORM = priors.Independent(0.0, 1.0)


def state_problem(K: int, m: str, each_delta: str = "1e-5") -> Problem:
    return Problem.from_allowance(Voters(K, PrivacyParams("0.1", each_delta)), m)


def solve_with_cvxpy(problem: Problem, sampled: np.ndarray, *, monotone: bool) -> float:
    """Solve Eq. 2 over the draws with every privacy row of Lemma 5.1 written down."""
    cp = pytest.importorskip("cvxpy")
    gamma = cp.Variable(problem.voters.num_upper_levels)
    constraints = [gamma >= 0, gamma <= 1, all_coefficients(problem) @ gamma <= problem.budget]
    if monotone:
        constraints.append(cp.diff(gamma) >= 0)
    objective = cp.Minimize(0.5 * cp.norm1(sampled @ (1 - gamma)) / len(sampled))
    return float(cp.Problem(objective, constraints).solve(solver=cp.HIGHS))


@pytest.mark.parametrize("shape", ["free", "monotone"])
@pytest.mark.parametrize(("K", "m", "delta"), [(3, "1", "0"), (5, "2", "1e-3"), (6, "2.5", "1e-3"), (7, "3", "0")])
def test_sampled_optimum_agrees_with_cvxpy(K: int, m: str, delta: str, shape: str) -> None:
    problem = state_problem(K, m, delta)
    table = optimize_table(problem, prior=UNIFORM, shape=shape, draws=300, rng=np.random.default_rng(K))
    sampled = differences(UNIFORM.probabilities(K, 300, rng=np.random.default_rng(K)))
    expected, optimality = solve_with_cvxpy(problem, sampled, monotone=shape == "monotone"), optimality_of(table)
    assert optimality.value == pytest.approx(expected, abs=1e-7)
    assert optimality.bound <= expected + 1e-9
    assert optimality.value == pytest.approx(float(np.mean(compute_errors(table.gamma.half, sampled))), abs=1e-15)
    assert table.certificate.worst_cost <= table.certificate.budget


class BalancedVotes(priors.Prior):
    """Only draws whose error changes its sign: all of the cost is generated, and the cuts have to find the turns."""

    text = "balanced"
    has_closed_form = False

    def weights(self, K: int) -> np.ndarray:
        raise NotImplementedError

    def probabilities(self, K: int, count: int, *, rng: np.random.Generator) -> np.ndarray:
        p = UNIFORM.probabilities(K, 200 * count, rng=rng)
        d = differences(p)
        balance = np.abs(d.sum(axis=1)) / np.abs(d).sum(axis=1)
        return p[np.argsort(balance)[:count]]


def test_sampled_optimum_with_balanced_votes_agrees_with_cvxpy() -> None:
    problem, prior = state_problem(5, "2", "0"), BalancedVotes()
    table = optimize_table(problem, prior=prior, draws=100, rng=np.random.default_rng(3))
    sampled = differences(prior.probabilities(5, 100, rng=np.random.default_rng(3)))
    assert SampledError(sampled).share > 0.9
    expected = solve_with_cvxpy(problem, sampled, monotone=False)
    assert optimality_of(table).value == pytest.approx(expected, abs=1e-8)
    assert optimality_of(table).gap <= 1e-8


def test_eleven_voters_have_the_reference_errors() -> None:
    problem = state_problem(11, "3")
    expected_error, surrogate, default = (
        optimize_table(problem, prior="uniform", objective="expected-error"),
        optimize_table(problem, prior="uniform", objective="surrogate"),
        optimize_table(problem),
    )
    assert default.gamma.half.tolist() == surrogate.gamma.half.tolist()
    assert optimality_of(default).prior == priors.Independent(0.5, 1.0)
    held_out = held_out_of(expected_error)
    assert held_out.draws == 20_000
    assert held_out.mean == pytest.approx(0.0153, abs=4e-4)
    assert abs(held_out.mean - optimality_of(expected_error).value) <= 6.0 * held_out.standard_error
    pure = state_problem(11, "3", "0")
    gammas = (default.gamma, baselines.double_subsampling(pure), baselines.subsampling(pure))
    assert [gamma.expected_error(UNIFORM) for gamma in gammas] == pytest.approx([0.0376, 0.067, 0.095], abs=1.5e-3)


@pytest.mark.parametrize(
    ("prior", "surrogate"),
    [
        ("uniform", "uniform:0.5,1"),
        ("uniform:0.25,0.75", "uniform:0.5,0.75"),
        ("two-sided:0.7,1", "uniform:0.7,1"),
        ("common", "dirichlet:1"),
        ("point:0.2", "point:0.2"),
    ],
)
def test_surrogate_moves_every_voter_to_the_side_of_the_majority(prior: str, surrogate: str) -> None:
    problem = state_problem(7, "2")
    table = optimize_table(problem, prior=prior, objective="surrogate")
    linear = optimize_table(problem, prior=surrogate, objective="expected-error")
    assert table.gamma.half.tolist() == linear.gamma.half.tolist()
    assert optimality_of(table).prior == priors.parse(surrogate)
    assert optimality_of(table).held_out is None


def test_a_time_limit_keeps_the_proof() -> None:
    table = optimize_table(state_problem(101, "10"), prior=UNIFORM, draws=1_000, options=SolveOptions(time_limit=0.0))
    assert optimality_of(table).status == "time limit"
    assert optimality_of(table).bound <= optimality_of(table).value
    assert table.certificate.worst_cost <= table.certificate.budget


def test_equal_draws_give_equal_tables_and_other_draws_judge_them() -> None:
    first, again, other = (
        optimize_table(state_problem(5, "2"), prior=UNIFORM, draws=100, rng=rng)
        for rng in (None, None, np.random.default_rng(1))
    )
    assert first.gamma.half.tolist() == again.gamma.half.tolist()
    assert optimality_of(first) == optimality_of(again)
    assert optimality_of(other).value != optimality_of(first).value
    assert held_out_of(first).mean != optimality_of(first).value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prior": "uniform:0.2,1", "objective": "surrogate"}, "symmetric about 1/2"),
        ({"prior": UNIFORM, "solver": "reference"}, "solver must be 'production' for a sampled expected error"),
        ({"prior": UNIFORM, "draws": 1}, "draws must be an integer of at least 2"),
    ],
)
def test_sampled_error_refuses_other_options(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        optimize_table(state_problem(3, "1"), **arguments)
