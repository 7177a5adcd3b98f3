"""The bound from multipliers of pairs, before it is compared with the value of a table."""

import pytest

from darrm import PrivacyParams, Problem, Voters, optimize_table
from darrm.plurality.accuracy_bound import upper_bound
from darrm.priors import Dirichlet


@pytest.mark.parametrize("delta", ["0.05", "0.3"])
def test_the_multipliers_of_an_optimum_bound_it_where_delta_is_large(delta: str) -> None:
    problem = Problem(Voters(4, PrivacyParams("inf"), overlap=1), PrivacyParams("0.5", delta), 3)
    optimality = optimize_table(problem, prior=Dirichlet()).optimality
    assert optimality is not None
    assert optimality.multipliers
    assert upper_bound(problem, Dirichlet(), optimality.multipliers) == pytest.approx(optimality.value, abs=1e-7)
