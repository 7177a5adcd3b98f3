"""Large problems, by means other than the solver: duality, random points of the region, scaled-down brute force."""

import numpy as np
import pytest

from darrm import PrivacyParams, Problem, optimize_table
from darrm.majority.certify import FLOATS
from darrm.optimize import SolveOptions
from darrm.priors import Dirichlet
from darrm.problem import Voters
from tests.optimality import optimality_of
from tests.oracle import list_corners, lowest_partner, privacy_cost

SLOW = [(K, delta, shape) for K in (301, 1001) for delta in ("0", "1e-5") for shape in ("free", "monotone")]


@pytest.mark.parametrize(
    ("K", "delta", "shape"),
    [
        *((101, delta, shape) for delta in ("0", "1e-5") for shape in ("free", "monotone")),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [*SLOW, (5001, "1e-5", "monotone")]),
    ],
)
def test_an_optimum_for_many_voters_is_private_and_uses_its_budget(K: int, delta: str, shape: str) -> None:
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.1", delta)), 10)
    gap = 1e-10 if K == 1001 else 1e-9
    table = optimize_table(problem, prior=Dirichlet(), shape=shape, options=SolveOptions(gap=gap))
    assert K < 1001 or table.certificate.method == FLOATS
    assert optimality_of(table).gap <= 1e-8 * optimality_of(table).value
    assert table.certificate.budget * (1 - 1e-4) <= table.certificate.worst_cost <= table.certificate.budget
    rng = np.random.default_rng(5)
    p = rng.beta(0.2, 0.2, size=(100, K))
    corners = np.array(list_corners(problem.voters.each), dtype=np.float64)
    shares = rng.dirichlet(np.full(len(corners), 0.2), size=100)
    rows = corners[np.array([rng.choice(len(corners), size=K, p=share) for share in shares])]
    for pair in ((p, lowest_partner(p, problem.voters.each)), (rows[:, :, 0], rows[:, :, 1])):
        assert np.max(privacy_cost(problem, table.gamma, *pair)) <= problem.budget


@pytest.mark.slow  # test_full_set searches moves quickly
def test_the_bound_is_met_where_interior_moves_decide() -> None:
    """Without the search over near shifts the scale stays 1, and the expected error is sixty times the bound."""
    table = optimize_table(Problem.from_allowance(Voters(101, PrivacyParams("0.1", "1e-2")), 5))
    assert optimality_of(table).gap <= 1e-9
    assert optimality_of(table).value == pytest.approx(7.945427e-4, rel=1e-6)
