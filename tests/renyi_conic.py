"""Optimize γ under a Rényi budget by a conic program with all rows in cvxpy, as an independent check.

Data: weights w_l ≥ 0; for every row r of neighbors the coefficients a_r, b_r with E_p[g] = a_r·γ and E_{p'}[g] =
b_r·γ; an order α > 1, a budget ρ > 0 and a smallest lie η. Variables γ and, for every row, x_r and y_r:

    (1)  min   ½ Σ_l w_l (1 − γ(l))                               the expected error
    (2)  s.t.  P_r = ½(1 + a_r·γ),   Q_r = ½(1 + b_r·γ)            the two laws of the answer
    (3)        x_r^{1/α} Q_r^{1−1/α} ≥ P_r                         x_r ≥ P^α Q^{1−α}, a power cone
    (4)        y_r^{1/α} (1 − Q_r)^{1−1/α} ≥ 1 − P_r               y_r ≥ (1 − P)^α (1 − Q)^{1−α}, a power cone
    (5)        x_r + y_r ≤ e^{(α−1)ρ}                              D_α(P_r ‖ Q_r) ≤ ρ
    (6)        0 ≤ γ(first) ≤ … ≤ γ(last) ≤ 1 − 2η                 monotone, with lies of at least η
"""

import importlib
import math
import warnings

import numpy as np

from lp_models.program import Array


def solve_renyi_with_cvxpy(
    weights: Array, first: Array, second: Array, *, order: float, budget: float, smallest_lie: float
) -> Array | None:
    """Solve (1)–(6) through Clarabel: γ of shape (h,), or None if no optimum was found.

    ``weights`` is w, shape (h,); ``first`` and ``second`` are a and b, shapes (r, h), with both directions of every
    pair of neighbors; ``order``, ``budget`` and ``smallest_lie`` are α, ρ and η.
    """
    cvxpy = importlib.import_module("cvxpy")
    gamma = cvxpy.Variable(weights.size)
    P, Q = 0.5 * (1.0 + first @ gamma), 0.5 * (1.0 + second @ gamma)  # (2)
    x, y = cvxpy.Variable(len(first)), cvxpy.Variable(len(first))
    share = np.full(len(first), 1.0 / order)
    constraints = [
        cvxpy.constraints.PowCone3D(x, Q, P, share),  # (3)
        cvxpy.constraints.PowCone3D(y, 1.0 - Q, 1.0 - P, share),  # (4)
        x + y <= math.exp((order - 1.0) * budget),  # (5)
        gamma[0] >= 0.0,
        gamma[-1] <= 1.0 - 2.0 * smallest_lie,  # (6)
    ]
    if weights.size > 1:
        constraints.append(cvxpy.diff(gamma) >= 0.0)
    problem = cvxpy.Problem(cvxpy.Minimize(0.5 * weights @ (1.0 - gamma)), constraints)  # (1)
    with warnings.catch_warnings():
        # Clarabel often stops at "almost solved" with many cones; the caller sets its tolerance accordingly
        warnings.filterwarnings("ignore", message="Solution may be inaccurate", category=UserWarning)
        problem.solve(solver=cvxpy.CLARABEL)
    if gamma.value is None:
        return None
    return np.clip(np.maximum.accumulate(np.asarray(gamma.value, dtype=np.float64)), 0.0, 1.0 - 2.0 * smallest_lie)
