"""Return the optimality of a table; the test fails if it is missing."""

from darrm import Table
from darrm.majority.noise_function import Estimate
from darrm.table.optimality import Optimality


def optimality_of(table: Table) -> Optimality:
    assert table.optimality is not None
    return table.optimality


def held_out_of(table: Table) -> Estimate:
    estimate = optimality_of(table).held_out
    assert estimate is not None
    return estimate
