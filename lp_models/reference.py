"""The same programs written in cvxpy: a second opinion, with every row written down."""

import importlib

import numpy as np

from lp_models.program import LinearProgram, Solution, Status, lagrangian_bound


def solve_with_cvxpy(program: LinearProgram) -> Solution:
    """Solve a linear program through cvxpy's HiGHS interface, from nothing and with all its rows.

    >>> import numpy as np
    >>> from lp_models.program import LinearProgram
    >>> program = LinearProgram(np.array([-1.0, -2.0]), np.array([[1.0, 1.0]]), np.array([1.0]))
    >>> round(solve_with_cvxpy(program).value, 9)
    -2.0
    """
    cvxpy = importlib.import_module("cvxpy")
    x = cvxpy.Variable(program.cost.size)
    rows = program.matrix @ x <= program.limits
    problem = cvxpy.Problem(cvxpy.Minimize(program.cost @ x), [rows, x >= 0.0, x <= 1.0])
    problem.solve(solver=cvxpy.HIGHS, primal_feasibility_tolerance=1e-10, dual_feasibility_tolerance=1e-10, threads=1)
    if x.value is None:
        empty = np.zeros(program.cost.size)
        return Solution(empty, np.zeros(program.limits.size), program.offset, -np.inf, Status.FAILED)
    point = np.clip(np.asarray(x.value, dtype=np.float64), 0.0, 1.0)
    duals = np.maximum(np.asarray(rows.dual_value, dtype=np.float64).reshape(-1), 0.0)
    value = float(program.cost @ point) + program.offset
    return Solution(point, duals, value, lagrangian_bound(program, duals), Status.OPTIMAL)
