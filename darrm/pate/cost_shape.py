"""The cost of one answer as a function of q at one order, and the conditions for smooth sensitivity.

With w = (C − 1)·c (c = 1 for continuous noise) and the normal distribution function Φ,
B_U(q) = min(1, w·Φ(Φ⁻¹(q/w) + √2/σ)) and B_L(q) = w·Φ(Φ⁻¹(q/w) − √2/σ) bound the q of neighbors: gaps change by at most
2, and u ↦ Φ(Φ⁻¹(u) ± a) is concave (+) or convex (−), so equal gaps are the extreme case (Jensen). A shift of all gaps,
as for discrete noise, does not matter.

β may jump from β(q₀) to β* just above q₀ (C5 allows it), and then a q slightly above q₁ has a neighbor above q₀ with
cost β*. So the plateau is β* − β(q₁), unlike the printed [P, Algorithm 3] (see docs/pate.md).
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from darrm.errors import DarrmError
from darrm.noisy_max.noise_tails import check_noise, gaussian_log_tails, log_tail_factor
from darrm.numerics.bisection import bisect_safe
from darrm.numerics.special import log_ndtr, ndtri_exp
from darrm.pate.theorem_6 import LOG_HALF, gaussian_renyi
from darrm.util import checks

_GRID_POINTS = 4001  # at which the conditions are checked
_TOLERANCE = 1e-10  # relative: β and its differences carry rounding of 1e-12, which is not a violation


class ConditionError(DarrmError):
    """A condition of [P, Section B.2], such as ``"C6"``, fails for this σ and order: no smooth sensitivity is known."""

    def __init__(self, condition: str, message: str) -> None:
        super().__init__(f"condition {condition} fails: {message}; choose another order or sigma")
        self.condition = condition


@dataclass(frozen=True)
class CostShape:
    """The cost of a GNMax answer of σ votes to C classes at the order λ > 1, as a function of q.

    >>> shape = CostShape(sigma=40.0, order=14.0, classes=10)
    >>> round(math.exp(shape.log_q0), 5), round(shape.plateau, 6)
    (0.03327, 0.00067)
    """

    sigma: float
    order: float
    classes: int
    noise: str = "continuous"

    def __post_init__(self) -> None:
        check_noise(self.sigma, self.noise)
        checks.integer_at_least(2, classes=self.classes)
        if not 1.0 < self.order < math.inf:
            checks.fail("order", self.order, "a finite number above 1")

    @property
    def ceiling(self) -> float:
        """β* = λ/σ², the largest cost of an answer, attained for q > q₀."""
        return self.order / self.sigma**2

    def cost(self, log_q: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute β(q), the smaller of Theorem 6 and λ/σ² at the order λ, for a vector of log q."""
        return np.asarray(gaussian_renyi(log_q, self.sigma, [self.order])[:, 0])

    @cached_property
    def log_q0(self) -> float:
        """Log of q₀, the largest q for which Theorem 6 gives less than λ/σ², at most ½; −∞ if there is none."""

        def helps(log_q: float) -> bool:
            return bool(self.cost(np.array([log_q]))[0] < self.ceiling)

        low = 2.0 * LOG_HALF
        while not helps(low):
            low *= 2.0
            if low < -1e9:
                return -math.inf
        return bisect_safe(helps, inside=low, outside=LOG_HALF)

    @cached_property
    def log_q1(self) -> float:
        """Log of q₁ = B_L(q₀)."""
        return float(self.lower(np.array([self.log_q0]))[0])

    @cached_property
    def plateau(self) -> float:
        """The largest change of the cost by one vote: the larger of β* − β(q₁) and β(q₁) − β(B_L(q₁))."""
        if math.isinf(self.log_q0):
            return 0.0
        at_q1 = np.array([self.log_q1])
        here, below = self.cost(at_q1)[0], self.cost(self.lower(at_q1))[0]
        return float(max(self.ceiling - here, here - below))

    def upper(self, log_q: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute log B_U(q), the largest log q of a neighbor."""
        return self._moved(log_q, math.sqrt(2.0) / self.sigma)

    def lower(self, log_q: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute log B_L(q), the smallest log q of a neighbor."""
        return self._moved(log_q, -math.sqrt(2.0) / self.sigma)

    def local(self, log_q: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the change of the cost by one vote, L̃S(q) [P, Algorithm 3], with the corrected plateau."""
        here, below, above = self.cost(log_q), self.cost(self.lower(log_q)), self.cost(self.upper(log_q))
        flat = (log_q >= self.log_q1) & (log_q <= self.log_q0)
        return np.where(flat, self.plateau, np.maximum(above - here, here - below))

    def log_tails(self, gaps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Bound log Pr[D ≥ g] for each gap."""
        return gaussian_log_tails(gaps, self.sigma, self.noise)

    def smallest_log_q(self, voters: int) -> float:
        """Compute log q of full agreement."""
        return min(float(self.log_tails(np.array([voters]))[0]) + math.log(self.classes - 1), 0.0)

    def check_conditions(self, voters: int) -> None:
        """Raise `ConditionError` unless C5, C6 and B_U(q₀) < 1 hold on a grid of gaps from q(all agree) to q₀."""
        if self.never_helps(voters):
            return
        if self.upper(np.array([self.log_q0]))[0] >= 0.0:
            raise ConditionError("B_U(q0) < 1", f"B_U(q0) = 1 at sigma = {self.sigma:g}, order = {self.order:g}")
        cost = self.cost(self._grid(voters, self.log_q0))
        self._check_rising("C5", "the cost", cost)
        if self.smallest_log_q(voters) < self.log_q1:
            grid = self._grid(voters, self.log_q1)
            self._check_rising("C6", "the change of the cost", self.cost(self.upper(grid)) - self.cost(grid))

    def never_helps(self, voters: int) -> bool:
        """Return whether even full agreement costs λ/σ², so that the cost does not depend on the votes."""
        return self.smallest_log_q(voters) >= self.log_q0

    def _grid(self, voters: int, log_end: float) -> NDArray[np.float64]:
        """Return a grid from the smallest q to an end, even in Φ⁻¹, that is in votes."""
        start, stop = ndtri_exp(np.array([self.smallest_log_q(voters), log_end]) - self._log_weight)
        grid = log_ndtr(np.linspace(start, stop, _GRID_POINTS)) + self._log_weight
        return np.asarray(np.minimum(grid, log_end))

    def _check_rising(self, condition: str, what: str, values: NDArray[np.float64]) -> None:
        if np.any(np.diff(values) < -_TOLERANCE * values.max()):
            where = f"at sigma = {self.sigma:g} and order = {self.order:g}"
            raise ConditionError(condition, f"{what} falls as q grows, {where}")

    @property
    def _log_weight(self) -> float:
        return math.log(self.classes - 1) + log_tail_factor(self.sigma, self.noise)

    def _moved(self, log_q: NDArray[np.float64], shift: float) -> NDArray[np.float64]:
        """Compute the smaller of log(w·Φ(Φ⁻¹(q/w) + shift)) and 0."""
        weight = self._log_weight
        moved = log_ndtr(ndtri_exp(np.minimum(log_q - weight, 0.0)) + shift) + weight
        return np.asarray(np.minimum(moved, 0.0))
