"""Large problems, by means other than the solver: duality, random points of the region, scaled-down brute force."""

import numpy as np
import pytest

from darrm import PrivacyParams, Problem, Table, optimize_table
from darrm.majority.certify import FLOATS
from darrm.optimize import SolveOptions
from darrm.priors import Dirichlet
from darrm.problem import Voters
from tests.oracle import corner_pairs, lowest_partner, privacy_cost


def check(table: Table, relative_gap: float) -> None:
    problem, optimality = table.problem, table.optimality
    assert table.certificate.worst_cost <= table.certificate.budget
    assert optimality is not None
    assert optimality.gap <= relative_gap * optimality.value
    # a γ at its optimum uses its budget up; one scaled too far would not
    assert table.certificate.worst_cost >= table.certificate.budget * (1 - 1e-4)
    rng = np.random.default_rng(5)
    p = rng.beta(0.2, 0.2, size=(100, problem.voters.K))
    low = lowest_partner(p, problem.voters.each)
    assert np.max(privacy_cost(problem, table.gamma, p, low)) <= problem.budget
    pairs = corner_pairs(problem.voters)
    shares = rng.dirichlet(np.full(len(pairs), 0.2), size=100)
    rows = np.array([rng.choice(len(pairs), size=problem.voters.K, p=share) for share in shares])
    assert np.max(privacy_cost(problem, table.gamma, pairs[rows, 0], pairs[rows, 1])) <= problem.budget


SLOW = [(K, delta, shape) for K in (301, 1001) for delta in ("0", "1e-5") for shape in ("free", "monotone")]


@pytest.mark.parametrize(
    ("K", "delta", "shape"),
    [
        *((101, delta, shape) for delta in ("0", "1e-5") for shape in ("free", "monotone")),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [*SLOW, (5001, "1e-5", "monotone")]),
    ],
)
def test_hundreds_and_thousands_of_voters(K: int, delta: str, shape: str) -> None:
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.1", delta)), 10)
    gap = 1e-10 if K == 1001 else 1e-9
    table = optimize_table(problem, prior=Dirichlet(), shape=shape, options=SolveOptions(gap=gap))
    assert K < 1001 or table.certificate.method == FLOATS
    check(table, 1e-8)


@pytest.mark.slow  # test_full_set searches moves quickly
def test_the_bound_is_met_where_interior_moves_decide() -> None:
    """Without the search over near shifts the scale stays 1, and the expected error is sixty times the bound."""
    optimality = optimize_table(Problem.from_allowance(Voters(101, PrivacyParams("0.1", "1e-2")), 5)).optimality
    assert optimality is not None
    assert optimality.value - optimality.bound <= 1e-9
    assert optimality.value == pytest.approx(7.945427e-4, rel=1e-6)
