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

Sampled expected error [D, Eq. 2], in either shape, for draws d_t of shape (h,): F(γ) = (1/T) Σ_t ½ |d_t · (1 − γ)|.
Change the sign of draws with Σ_l d_{t,l} < 0. A draw without a negative entry then keeps its sign for every γ ≤ 1:
these draws are one linear term with weights w. The share s of the others is *mixed*, a tenth for U[0, 1]. One variable
θ, their mean ½|d·(1 − γ)|, has its tangents t_k at the visited points as lower bounds. With (2), (3) or (5), (6):

    (7)  min   ½ Σ_l w_l (1 − γ(l)) + s θ
    (8)  s.t.  −Σ_l t_{k,l} γ(l) − θ ≤ −Σ_l t_{k,l}   for every tangent t_k, as they are found
    (9)        0 ≤ θ ≤ 1

One θ needs as many rounds as one θ for each draw, three to six (K = 11, 41, 101, T = 5,000 and 20,000): few draws
change sign near the optimum.
"""

from collections.abc import Sequence
from enum import Enum

import numpy as np

from lp_models.program import Array, LinearProgram
from lp_models.row_generation import Oracle, Separation

# a cut is added if it raises the cost by more than this share of a fair coin's expected error
_MIN_LIFT = 1e-14


class Shape(Enum):
    """The allowed noise functions: any, or only those that do not fall away from the tie."""

    FREE = "free"
    MONOTONE = "monotone"

    def variables_to_gamma(self, point: Array) -> Array:
        if self is Shape.FREE:
            return np.clip(point, 0.0, 1.0)
        return np.clip(np.cumsum(point), 0.0, 1.0)

    def gamma_to_variables(self, gamma: Array) -> Array:
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
    """State (1)–(3) or (4)–(6) for weights (h,), with known rows over γ, shapes (r, h) and (r,)."""
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
    """State (7) and (9) with the shape's own rows; tangents and privacy rows are generated."""
    linear = expected_error_program(weights, shape)
    return LinearProgram(
        np.append(linear.cost, share),  # (7)
        np.hstack([linear.matrix, np.zeros((linear.limits.size, 1))]),
        linear.limits,
        linear.offset,
    )


class SampledError:
    """F for the draws d of shape (T, h), split into its linear part and the mixed draws."""

    def __init__(self, differences: Array) -> None:
        oriented = differences * np.where(np.sum(differences, axis=1) < 0.0, -1.0, 1.0)[:, None]
        is_mixed = np.any(oriented < 0.0, axis=1)
        self.linear = np.sum(oriented[~is_mixed], axis=0) / len(oriented)
        self.weights = np.mean(oriented, axis=0)  # of F while no draw changes sign; nowhere above F
        self.mix = oriented[is_mixed]
        self.share = float(np.mean(is_mixed))
        self.mean_size = np.mean(np.abs(differences), axis=0)

    def mixed_error(self, gamma: Array) -> float:
        """Compute θ(γ)."""
        return float(np.sum(0.5 * np.abs(self.mix @ (1.0 - gamma)))) / max(1, len(self.mix))

    def tangent(self, gamma: Array) -> Array:
        """Compute t, the mean of ½ sign(d·(1 − γ)) d over the mixed draws: θ ≥ t·(1 − γ) everywhere."""
        signs = np.where(self.mix @ (1.0 - gamma) < 0.0, -0.5, 0.5)
        return np.asarray(signs @ self.mix, dtype=np.float64) / max(1, len(self.mix))

    def value(self, gamma: Array) -> float:
        return float(0.5 * self.linear @ (1.0 - gamma)) + self.share * self.mixed_error(gamma)


class EpigraphOracle:
    """The cuts (8), labeled by their tangents, and the rows of another oracle, over (x, θ)."""

    def __init__(self, rows: Oracle, sampled: SampledError, shape: Shape) -> None:
        self.rows, self.sampled, self.shape = rows, sampled, shape
        self.least_lift = _MIN_LIFT * float(np.sum(sampled.mean_size))

    def separate(self, point: Array, *, thorough: bool, deadline: float) -> Separation:
        x, theta = point[:-1], float(point[-1])
        gamma = self.shape.variables_to_gamma(x)
        is_above = self.sampled.share * (self.sampled.mixed_error(gamma) - theta) > self.least_lift
        separation = self.rows.separate(x, thorough=thorough, deadline=deadline)
        return self.lift(separation, [self.sampled.tangent(gamma)] if is_above else [])

    def lift(self, separation: Separation, tangents: Sequence[Array]) -> Separation:
        rows = np.hstack([separation.matrix, np.zeros((separation.limits.size, 1))])
        cuts = [[*self.shape.rows(-tangent), -1.0] for tangent in tangents]
        limits = np.append(separation.limits, [-np.sum(tangent) for tangent in tangents])
        epigraph = self.sampled.mixed_error(self.shape.variables_to_gamma(separation.feasible))
        feasible = np.append(separation.feasible, epigraph)
        labels = [*separation.labels, *tangents]
        return Separation(np.vstack([rows, *cuts]), limits, feasible, separation.thorough, labels)
