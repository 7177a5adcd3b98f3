"""Solve the reference program for γ with cvxpy: it lists every row of Lemma 5.1."""

import numpy as np

from darrm.errors import SolveError
from darrm.majority.corners import CornerCounts, budget_below
from darrm.majority.error_bound import largest
from darrm.majority.noise_function import NoiseFunction
from darrm.optimize.noise_functions import LEAST_SIZE, in_proportion
from darrm.optimize.plurality import versions
from darrm.optimize.request import Request, in_range
from darrm.priors import weights_of
from darrm.table.optimality import Solution
from darrm.table.table import Table, certify
from darrm.util.extras import require
from lp_models.gamma_lp import expected_error_program
from lp_models.program import Status
from lp_models.reference import gamma_program, solve_with_cvxpy


def solve_every_row(request: Request) -> Table:
    """Solve the program and certify the result; `SolveError` if the solver finds no optimum."""
    require("cvxpy")
    prior, shape = request.belief, request.of_shape
    problem, factor = in_range(request.problem.conditional_on_inclusion, LEAST_SIZE)
    K, whole = problem.voters.K, gamma_program(problem)
    matrix, limits = whole.program.matrix, np.full(len(whole.counts), budget_below(problem.target))
    solution = solve_with_cvxpy(expected_error_program(weights_of(prior, K), shape, matrix, limits))
    status = solution.status.value
    if solution.status is not Status.OPTIMAL:
        raise SolveError("the reference solver found no optimum: try --solver production", status=status)
    duals = solution.duals[-len(matrix) :]
    rows = [(float(duals[row]), counts_at(whole.counts[row].tolist())) for row in np.flatnonzero(duals)]
    made_by = {"made by": versions("darrm", "cvxpy", "highspy"), "rows written": str(len(matrix))}
    multipliers = in_proportion(largest(rows, problem.voters), problem.voters, factor)
    found = Solution(prior, multipliers, status, request.of_shape.value, request.objective)
    table = certify(request.problem, NoiseFunction(K, shape.variables_to_gamma(solution.point)))
    return table.with_solution(found, {"solver": request.solver, **made_by})


def counts_at(counts: list[int]) -> CornerCounts:
    """Convert the numbers of voters at the corners of `lp_models.reference.corner_pairs` to the label of their row.

    >>> counts_at([1, 0, 2, 0, 0, 3, 0, 0])
    CornerCounts(high=2, low=0, zeros=4, ones=0, moved_zeros=3, moved_ones=0, moved_zeros_prime=0, moved_ones_prime=0)
    """
    zeros, ones, high, low, moved_zeros_prime, moved_zeros, moved_ones, moved_ones_prime = counts + [0] * (
        8 - len(counts)
    )
    all_zeros, all_ones = zeros + moved_zeros + moved_zeros_prime, ones + moved_ones + moved_ones_prime
    return CornerCounts(high, low, all_zeros, all_ones, moved_zeros, moved_ones, moved_zeros_prime, moved_ones_prime)
