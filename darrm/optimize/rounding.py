"""Round voters that differ up to fewer kinds, and bound the cost of the rounding.

An active row at the optimum of the rounded voters assigns a number of them to each corner. With the true (ε_i, Δ_i) at
the same corners it is a row of the true voters. Every γ that is private for the true voters satisfies these rows. So
the program with these rows alone bounds the error of every such γ. The bound is proved from the multipliers, like any
other (`darrm.table.optimality`).
"""

from collections.abc import Iterator
from dataclasses import astuple
from functools import reduce
from itertools import islice

import numpy as np

from darrm.majority.certify import largest, lower_bound
from darrm.majority.corners import CornerCounts, Row, budget_below
from darrm.majority.groups import MOST_GROUPS, GroupCounts, can_be_looked_at
from darrm.plurality import voter_corners
from darrm.priors import Prior, weights_of
from darrm.problem import Problem, Voters, is_law_a_gamma
from darrm.table.table import Table
from lp_models.gamma_lp import Shape, expected_error_program
from lp_models.highs import Master


def fitting(voters: Voters, classes: int = 2) -> Voters:
    """Return the same voters if all rows can be searched, else with ε and Δ rounded up to as many kinds as fit.

    A guarantee for the rounded voters also holds for the original ones.

    >>> from darrm import PrivacyParams
    >>> many = Voters.of([PrivacyParams(f"0.{n}") for n in range(10, 50)])
    >>> len(many.groups), len(fitting(many).groups), fitting(many).cover(many)
    (40, 3, True)
    """

    def fits(rounded: Voters) -> bool:
        if is_law_a_gamma(classes):
            return can_be_looked_at(rounded)
        return voter_corners.can_be_looked_at(rounded, classes)

    if voters.per_voter is None or fits(voters):
        return voters
    fitted = Voters(voters.K, voters.each, voters.overlap, voters.models)
    for kinds in range(2, min(MOST_GROUPS, len(voters.groups)) + 1):
        rounded = voters.rounded(kinds)
        if not fits(rounded):
            break
        fitted = rounded
    return fitted


def least_error(voters: Voters, table: Table, prior: Prior) -> float:
    """Bound from below the expected error of every monotone γ that is private for ``voters``.

    ``voters`` are the true voters, ``table`` is optimal under ``prior`` for `Voters.rounded`.

    >>> from darrm import Problem, PrivacyParams, Voters, optimize_table
    >>> from darrm.priors import Dirichlet
    >>> voters = Voters.of([PrivacyParams(epsilon) for epsilon in ("0.1", "0.2", "0.3", "0.4", "0.5")])
    >>> rounded = optimize_table(Problem(voters.rounded(2), PrivacyParams("0.5")), prior=Dirichlet())
    >>> exact = optimize_table(Problem(voters, PrivacyParams("0.5")), prior=Dirichlet())
    >>> bound = least_error(voters, rounded, Dirichlet())
    >>> round(bound, 4) <= round(exact.optimality.value, 4) <= round(rounded.optimality.value, 4)
    True
    """
    optimality = table.optimality
    if optimality is None or not optimality.multipliers:
        return 0.0
    problem = Problem(voters, table.problem.target)
    rows = [row for _, held in optimality.multipliers for row in _true_rows(held, table.problem.voters, voters)]
    weights, budget = weights_of(prior, voters.K), budget_below(problem.target)
    coefficients = np.array([row.coefficients(voters, problem.cost_ratio) for row in rows])
    master = Master(expected_error_program(weights, Shape.MONOTONE))
    master.add_rows(Shape.MONOTONE.rows(coefficients), np.full(len(rows), budget), rows)
    duals = zip(master.solve().duals.tolist(), master.labels, strict=True)
    multipliers = [(y, row) for y, row in duals if isinstance(row, GroupCounts)]
    return lower_bound(problem, weights, "monotone", largest(multipliers, voters))


def _true_rows(row: Row, rounded: Voters, voters: Voters) -> Iterator[GroupCounts]:
    """Put the true voters at the corners of a rounded row: of each kind the weakest at (hi, lo), or the strongest."""
    parts = [(part, n) for (part, _), (n, _) in zip(row.parts_of(rounded), rounded.groups, strict=True)]
    for weakest_first in (True, False):
        places: list[CornerCounts] = []
        for part, n in parts:
            near = [CornerCounts(0, 0, 1, 0, moved_zeros=int(i < part.moved_zeros)) for i in range(part.zeros)]
            moved = part.moved_ones_prime
            near += [CornerCounts(0, 0, 0, 1, moved_ones_prime=int(i < moved)) for i in range(part.ones)]
            high = [CornerCounts(1, 0, 0, 0)] * (n - len(near))
            places += high + near if weakest_first else near + high
        at = iter(places)
        yield GroupCounts(tuple(reduce(_together, islice(at, n)) for n, _ in voters.groups))


def _together(one: CornerCounts, other: CornerCounts) -> CornerCounts:
    return CornerCounts(*(a + b for a, b in zip(astuple(one), astuple(other), strict=True)))
