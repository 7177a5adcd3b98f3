"""The reference program for γ: every row of Lemma 5.1 written down, and cvxpy."""

import numpy as np

from darrm.errors import SolveError
from darrm.laws.noise_function import NoiseFunction
from darrm.laws.priors import weights_of
from darrm.optimize.plurality import versions
from darrm.optimize.question import Question
from darrm.proof.corners import budget_below
from darrm.proof.definition import all_coefficients, all_multisets, counts_of
from darrm.proof.error_bound import largest
from darrm.proof.optimality import Solution
from darrm.proof.table import Table, certify
from darrm.system.extras import require
from lp_models.gamma_lp import expected_error_program
from lp_models.program import Status
from lp_models.reference import solve_with_cvxpy


class EveryRow:
    """The solver that checks the other."""

    def answers(self, question: Question) -> bool:
        """Whether it was asked for."""
        return question.problem.has_noise_function and question.solver == "reference"

    def table(self, question: Question) -> Table:
        """Solve, and prove what came out; `SolveError` if the solver found no optimum."""
        require("cvxpy")
        problem, prior, shape = question.problem.for_certain, question.belief, question.of_shape
        K, matrix = problem.voters.K, all_coefficients(problem)
        limits = np.full(len(matrix), budget_below(problem.target))
        solution = solve_with_cvxpy(expected_error_program(weights_of(prior, K), shape, matrix, limits))
        status = solution.status.value
        if solution.status is not Status.OPTIMAL:
            raise SolveError("the reference solver found no optimum: try --solver production", status=status)
        duals, pairs = solution.duals[-len(matrix) :], all_multisets(problem.voters)
        rows = [(float(duals[r]), counts_of(problem.voters, pairs[0][r], pairs[1][r])) for r in np.flatnonzero(duals)]
        made_by = {"made by": versions("darrm", "cvxpy", "highspy"), "rows written": str(len(matrix))}
        found = Solution(prior, largest(rows, problem.voters), status, question.of_shape.value, question.objective)
        table = certify(question.problem, NoiseFunction(K, shape.variables_to_gamma(solution.point)))
        return table.with_solution(found, {"solver": question.solver, **made_by})
