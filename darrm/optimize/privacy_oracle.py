"""Separate a point from the private γ: find violated rows among the chains, the border and the full set."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from darrm.majority.corners import CornerCounts, Row, budget_below
from darrm.majority.dominating import choose_violated, stop_after
from darrm.majority.groups import GroupSet, rows_of
from darrm.numerics import Array
from darrm.optimize.request import thorough_rows
from darrm.problem import Problem
from lp_models.gamma_lp import Shape
from lp_models.row_generation import Separation

# the border of the full set is searched too, once no row of the dominating family exceeds the budget by more than this
# factor
_BORDER_FACTOR = 1.01
# a row is violated if its cost exceeds the budget by more than this fraction of it
_BROKEN = 1e-12


class PrivacyOracle:
    """The privacy rows of a problem, over the variables of a shape."""

    def __init__(self, problem: Problem, shape: Shape) -> None:
        self.problem, self.shape, self.voters = problem, shape, problem.voters
        self.full = rows_of(problem.voters, problem.target.exact_epsilon)
        self.budget = budget_below(problem.target)

    def separate(self, point: Array, *, thorough: bool, deadline: float) -> Separation:
        """Find violated rows: of both chains, and for Δ > 0 of all moves near 0 and 1 if few other rows are violated.

        For Δ = 0, and for a γ that never decreases, both chains suffice, so the search is thorough.
        """
        gamma, full = self.shape.variables_to_gamma(point), self.full
        limit = self.budget * (1.0 + _BROKEN)
        rows: Sequence[Row]
        if isinstance(full, GroupSet):
            seen = full.maxima(gamma, limit, deadline)
            worst, rows, thorough = seen.worst, [row for _, row in seen.broken], True
        elif thorough:
            found = full.maxima(gamma, limit, deadline)
            worst, rows = found.worst, self.most_useful(found.broken, limit)
        else:
            look = partial(full.family.maxima, gamma, full.ratio, deadline, floor=limit)
            chains = [look()]
            falls = bool(np.any(np.diff(gamma) < 0.0))
            thorough = not falls or full.corners.delta == 0.0
            outside: tuple[tuple[float, CornerCounts], ...] = ()
            worst = chains[0].worst
            if not thorough and worst <= self.budget * _BORDER_FACTOR:
                border_worst, outside = full.border(gamma, limit, deadline)
                worst = max(worst, border_worst)
            elif falls:
                chains.append(look(low=True))
                worst = max(worst, chains[1].worst)
            rows = [full.family.row(each, j) for each in chains for j in choose_violated(each.costs, limit)]
            rows += self.most_useful(outside, limit)
        # recomputed from γ, which is clipped
        feasible = self.shape.gamma_to_variables(gamma * (self.budget / max(worst, self.budget)))
        matrix = self.rows_over_variables(rows, deadline)
        return Separation(matrix, np.full(len(rows), self.budget), feasible, thorough, rows)

    def beginning(self, rows: Sequence[Row], point: Array | None = None) -> Separation:
        """Return a starting point for a solve: rows, and a feasible point in these variables, if one is known."""
        feasible = np.zeros(self.voters.num_upper_levels) if point is None else point
        limits = np.full(len(rows), self.budget)
        matrix = self.rows_over_variables(rows, np.inf)
        return Separation(matrix, limits, feasible, thorough=point is not None, labels=rows)

    def rows_over_variables(self, rows: Sequence[Row], deadline: float) -> Array:
        """Compute the coefficients of r rows: shape (r, n)."""
        matrix = np.empty((len(rows), self.voters.num_upper_levels))
        for place, row in enumerate(rows):
            stop_after(deadline)
            matrix[place] = row.coefficients(self.voters, self.full.ratio.value)
        return self.shape.rows(matrix)

    def most_useful(self, broken: Sequence[tuple[float, CornerCounts]], limit: float) -> list[CornerCounts]:
        """Choose among the rows of a thorough separation."""
        costs = np.array([cost for cost, _ in broken])
        return [broken[index][1] for index in choose_violated(costs, limit, thorough_rows(self.problem.voters.K))]
