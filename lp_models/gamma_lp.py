"""The γ-optimization as linear programs.

Data: weights w_l ≥ 0 and rows (a_r, b_r) for the free half l = 1 … h of a noise function.

Free shape, variables x_l = γ(l):

    (1)  min   ½ Σ_l w_l (1 − x_l)                   the expected error
    (2)  s.t.  Σ_l a_{r,l} x_l ≤ b_r   for every r    the privacy rows
    (3)        0 ≤ x_l ≤ 1

Monotone shape, variables u_l ≥ 0 with γ(l) = u_1 + … + u_l, so that monotonicity costs no rows:

    (4)  min   ½ Σ_l w_l (1 − Σ_{k≤l} u_k)
    (5)  s.t.  Σ_k (Σ_{l≥k} a_{r,l}) u_k ≤ b_r  for every r
    (6)        Σ_k u_k ≤ 1,  0 ≤ u_k ≤ 1

Sampled expected error [D, Eq. 2], in either shape: the cost of `lp_models.epigraph`, w the linear part of the sample,
s the share of the draws that are mixed and θ their mean error. With the privacy rows and the shape as above:

    (7)  min   ½ Σ_l w_l (1 − γ(l)) + s θ
    (8)  s.t.  −Σ_l t_{k,l} γ(l) − θ ≤ −Σ_l t_{k,l}   for every tangent t_k, as they are found
    (9)        0 ≤ θ ≤ 1
"""

from enum import Enum

import numpy as np

from lp_models.program import Array, LinearProgram


class Shape(Enum):
    """Which noise functions are allowed: any, or those that do not fall away from the tie."""

    FREE = "free"
    MONOTONE = "monotone"

    def variables_to_gamma(self, point: Array) -> Array:
        """Turn the program's variables into γ, shapes (h,) and (h,)."""
        if self is Shape.FREE:
            return np.clip(point, 0.0, 1.0)
        return np.clip(np.cumsum(point), 0.0, 1.0)

    def gamma_to_variables(self, gamma: Array) -> Array:
        """Turn γ into the program's variables, shapes (h,) and (h,)."""
        if self is Shape.FREE:
            return gamma
        return np.diff(gamma, prepend=0.0)

    def rows(self, coefficients: Array) -> Array:
        """Turn coefficients of γ, shape (r, h) or (h,), into coefficients of the variables."""
        if self is Shape.FREE:
            return coefficients
        return np.cumsum(coefficients[..., ::-1], axis=-1)[..., ::-1]


def expected_error_program(
    weights: Array, shape: Shape, matrix: Array | None = None, limits: Array | None = None
) -> LinearProgram:
    """State (1)–(3) or (4)–(6) for weights w, shape (h,), with the rows over γ so far, shapes (r, h) and (r,).

    >>> program = expected_error_program(np.array([1.0, 3.0]), Shape.MONOTONE)
    >>> program.cost, program.matrix, program.limits, program.offset
    (array([-2. , -1.5]), array([[1., 1.]]), array([1.]), 2.0)
    """
    size = weights.size
    privacy_rows = np.empty((0, size)) if matrix is None else matrix
    privacy_limits = np.empty(0) if limits is None else limits
    cost, offset = -0.5 * weights, 0.5 * float(np.sum(weights))  # (1)
    if shape is Shape.FREE:
        return LinearProgram(cost, privacy_rows, privacy_limits, offset)  # (2), (3)
    return LinearProgram(
        shape.rows(cost),  # (4)
        np.vstack([np.ones((1, size)), shape.rows(privacy_rows)]),  # (6), (5)
        np.concatenate([[1.0], privacy_limits]),
        offset,
    )


def sampled_error_program(weights: Array, share: float, shape: Shape) -> LinearProgram:
    """State (7) and (9) for w and s with the shape's own rows; the tangents (8) and the privacy rows are generated.

    >>> program = sampled_error_program(np.array([1.0, 3.0]), 0.25, Shape.MONOTONE)
    >>> program.cost, program.matrix, program.offset
    (array([-2.  , -1.5 ,  0.25]), array([[1., 1., 0.]]), 2.0)
    """
    linear = expected_error_program(weights, shape)
    return LinearProgram(
        np.append(linear.cost, share),  # (7)
        np.hstack([linear.matrix, np.zeros((linear.limits.size, 1))]),
        linear.limits,
        linear.offset,
    )
