"""The sampled expected error: a convex, piecewise linear cost, made linear by cuts on top of another oracle's rows.

Data: T draws d_t of shape (h,). Only |d_t · (1 − γ)| matters, so each may be turned to Σ_l d_{t,l} ≥ 0.

    F(γ) = (1/T) Σ_t ½ |d_t · (1 − γ)|

A draw without a negative entry keeps its sign for every γ ≤ 1; together they are one linear term. The others, a tenth
of the draws of U[0, 1], share one epigraph variable θ, the mean of ½|d·(1 − γ)| over them, pressed from below by cuts:
the tangents at the points that were visited. One row a draw would be the same program.

Measured (K = 11, 41, 101, T = 5,000 and 20,000): with one θ, with one for every group of draws, and with one for every
draw the same three to six rounds suffice, because few draws turn near the optimum; one is the fastest.
"""

from collections.abc import Sequence

import numpy as np

from lp_models.gamma_lp import Shape
from lp_models.program import Array
from lp_models.row_generation import Oracle, Separation

# a cut is added when it lifts the cost by more than this part of a fair coin's expected error
_SMALLEST_LIFT = 1e-14


class SampledError:
    """F of the module for the draws d of shape (T, h), split into its linear part and the draws that γ may turn.

    >>> sampled = SampledError(np.array([[0.2, 0.4], [-0.3, 0.1]]))
    >>> sampled.linear, sampled.mixed, sampled.share
    (array([0.1, 0.2]), array([[ 0.3, -0.1]]), 0.5)
    >>> round(sampled.value(np.array([0.5, 1.0])), 12)  # (½·0.2·0.5 + ½·0.3·0.5)/2
    0.0625
    """

    def __init__(self, differences: Array) -> None:
        turned = differences * np.where(np.sum(differences, axis=1) < 0.0, -1.0, 1.0)[:, None]
        mixed = np.any(turned < 0.0, axis=1)
        self.linear = np.sum(turned[~mixed], axis=0) / len(turned)
        self.weights = np.mean(turned, axis=0)  # of F as long as γ turns no draw; nowhere above F
        self.mixed = turned[mixed]
        self.share = float(np.mean(mixed))
        self.mean_size = np.mean(np.abs(differences), axis=0)

    def mixed_error(self, gamma: Array) -> float:
        """Compute θ(γ), the mean of ½|d·(1 − γ)| over the mixed draws; 0 if there are none."""
        return float(np.sum(0.5 * np.abs(self.mixed @ (1.0 - gamma)))) / max(1, len(self.mixed))

    def tangent(self, gamma: Array) -> Array:
        """Compute t, the mean of ½ sign(d·(1 − γ)) d over the mixed draws: θ ≥ t·(1 − γ) everywhere, shape (h,)."""
        signs = np.where(self.mixed @ (1.0 - gamma) < 0.0, -0.5, 0.5)
        return np.asarray(signs @ self.mixed, dtype=np.float64) / max(1, len(self.mixed))

    def value(self, gamma: Array) -> float:
        """Compute F(γ)."""
        return float(0.5 * self.linear @ (1.0 - gamma)) + self.share * self.mixed_error(gamma)


class EpigraphOracle:
    """Knows the cuts of F and the rows of another oracle, which repairs a point by moving x, over (x, θ).

    The cuts are labeled by their tangents.
    """

    def __init__(self, rows: Oracle, sampled: SampledError, shape: Shape) -> None:
        self.rows, self.sampled, self.shape = rows, sampled, shape
        self.least_lift = _SMALLEST_LIFT * float(np.sum(sampled.mean_size))

    def separate(self, point: Array, *, thorough: bool, deadline: float) -> Separation:
        """Look for broken rows and for a tangent above θ; a repaired point gets the epigraph of its γ."""
        x, theta = point[:-1], float(point[-1])
        gamma = self.shape.variables_to_gamma(x)
        is_above = self.sampled.share * (self.sampled.mixed_error(gamma) - theta) > self.least_lift
        found = self.rows.separate(x, thorough=thorough, deadline=deadline)
        return self.lifted(found, [self.sampled.tangent(gamma)] if is_above else [])

    def lifted(self, found: Separation, tangents: Sequence[Array]) -> Separation:
        """Turn an answer about x into one about (x, θ), with the cuts of some tangents."""
        rows = np.hstack([found.matrix, np.zeros((found.limits.size, 1))])
        cuts = [[*self.shape.rows(-tangent), -1.0] for tangent in tangents]
        limits = np.append(found.limits, [-np.sum(tangent) for tangent in tangents])
        epigraph = self.sampled.mixed_error(self.shape.variables_to_gamma(found.feasible))
        feasible = np.append(found.feasible, epigraph)
        return Separation(np.vstack([rows, *cuts]), limits, feasible, found.thorough, [*found.labels, *tangents])
