"""Smooth sensitivity of a run's cost by Theorem 6 of [P]: its largest change when teachers change their votes.

[P, Definition 12, Theorem 24]: SS_β = max_d e^{−βd} · Σ_i max_{dist ≤ d} L̃S_i over the queries i. The inner maxima, for
d = 0, 1, …, are the *profile* (D, Q):

* GNMax answers [P, Algorithm 4]: L̃S increases with q up to q₁, is constant to q₀ and decreases beyond. Below q₁ the
  worst histogram at distance d moves d votes from the first to the second class; above q₀ it moves d votes to the first
  class, each from the class that is second at that moment.
* The threshold check, if accounted from the data: its statistic changes by at most d, so the profile is the largest
  local difference within d steps, computed exactly.

From a public distance D on, every term counts as the largest possible one: still a smooth bound.

**The cost as a function of q.** With w = (C − 1)·c (c = 1 for continuous noise) and the normal distribution function Φ,
B_U(q) = min(1, w·Φ(Φ⁻¹(q/w) + √2/σ)) and B_L(q) = w·Φ(Φ⁻¹(q/w) − √2/σ) bound the q of neighbors: gaps change by at most
2, and u ↦ Φ(Φ⁻¹(u) ± a) is concave (+) or convex (−), so equal gaps are the extreme case (Jensen), also if all gaps are
shifted, as for discrete noise.

β may jump from β(q₀) to β* just above q₀ (C5 allows it), and then a q slightly above q₁ has a neighbor of cost β*. So
the plateau is β* − β(q₁), unlike the printed [P, Algorithm 3] (docs/pate.md).
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from darrm.errors import DarrmError
from darrm.noisy_max.mechanisms import LNMax
from darrm.noisy_max.noise_law import check_noise, gaussian_log_tails, log_tail_factor, sum_of_tails, winner_gaps
from darrm.numerics import Array
from darrm.numerics.bisection import bisect_safe
from darrm.numerics.special import log_ndtr, ndtri_exp
from darrm.pate.analysis import Analysis, find_noisy_max
from darrm.pate.confident import CheckedGNMax, InteractiveGNMax, NoisyCheck
from darrm.pate.theorem_6 import LOG_HALF, gaussian_renyi
from darrm.util import checks

_MAX_SMOOTHING_LENGTHS = 10.0  # smoothing lengths 1/β; beyond, e^{−βd} < 5e-5
_MAX_DISTANCES = 2**15  # computed one by one, which takes seconds
# the computed f errs by up to 1e-12 of the largest possible f; these shares of it keep the sensitivity smooth
_RELATIVE_ROUNDING, _ABSOLUTE_ROUNDING = 1e-6, 1e-8
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

    def cost(self, log_q: Array | float) -> Array:
        """Compute β(q), the smaller of Theorem 6 and λ/σ²."""
        return np.asarray(gaussian_renyi(log_q, self.sigma, [self.order])[:, 0])

    @cached_property
    def log_q0(self) -> float:
        """Log of q₀, the largest q up to ½ at which Theorem 6 is below λ/σ²; −∞ if none."""

        def is_below_ceiling(log_q: float) -> bool:
            return bool(self.cost(log_q)[0] < self.ceiling)

        low = 2.0 * LOG_HALF
        while not is_below_ceiling(low):
            low *= 2.0
            if low < -1e9:
                return -math.inf
        return bisect_safe(is_below_ceiling, inside=low, outside=LOG_HALF)

    @cached_property
    def log_q1(self) -> float:
        return float(self.bound_neighbor(self.log_q0, -1))

    @cached_property
    def plateau(self) -> float:
        """The largest change of the cost by one vote: the larger of β* − β(q₁) and β(q₁) − β(B_L(q₁))."""
        if math.isinf(self.log_q0):
            return 0.0
        plateau_cost, lower_cost = self.cost(np.array([self.log_q1, float(self.bound_neighbor(self.log_q1, -1))]))
        return float(max(self.ceiling - plateau_cost, plateau_cost - lower_cost))

    def bound_neighbor(self, log_q: Array | float, sign: int) -> Array:
        """Compute log B_U(q) for ``sign`` 1, log B_L(q) for −1: the largest and smallest log q of a neighbor."""
        shift = sign * math.sqrt(2.0) / self.sigma
        neighbor_log_q = log_ndtr(ndtri_exp(np.minimum(log_q - self._log_weight, 0.0)) + shift) + self._log_weight
        return np.asarray(np.minimum(neighbor_log_q, 0.0))

    def bound_local_change(self, log_q: Array) -> Array:
        """Bound the change of the cost by one vote, L̃S(q), with the corrected plateau."""
        costs = self.cost(log_q)
        lower_costs, upper_costs = (self.cost(self.bound_neighbor(log_q, sign)) for sign in (-1, 1))
        is_plateau = (log_q >= self.log_q1) & (log_q <= self.log_q0)
        return np.where(is_plateau, self.plateau, np.maximum(upper_costs - costs, costs - lower_costs))

    def log_q(self, gaps: NDArray[np.int64]) -> Array:
        """Bound log q by the gaps to the plurality class, −1 for that class: (n, C) → (n,)."""
        return sum_of_tails(gaps, gaussian_log_tails(np.maximum(gaps, 0), self.sigma, self.noise))

    def smallest_log_q(self, voters: int) -> float:
        return min(float(gaussian_log_tails(voters, self.sigma, self.noise)) + math.log(self.classes - 1), 0.0)

    def never_helps(self, voters: int) -> bool:
        """Return whether even full agreement costs λ/σ²."""
        return self.smallest_log_q(voters) >= self.log_q0

    def check_conditions(self, voters: int) -> None:
        """Raise `ConditionError` unless C5, C6 and B_U(q₀) < 1 hold on a grid of gaps from q(all agree) to q₀."""
        if self.never_helps(voters):
            return
        parameters = f"at sigma = {self.sigma:g} and order = {self.order:g}"
        if self.bound_neighbor(self.log_q0, 1) >= 0.0:
            raise ConditionError("B_U(q0) < 1", f"B_U(q0) = 1 {parameters}")
        if _is_falling(self.cost(self._build_grid(voters, self.log_q0))):
            raise ConditionError("C5", f"the cost falls as q grows, {parameters}")
        if self.smallest_log_q(voters) < self.log_q1:
            grid = self._build_grid(voters, self.log_q1)
            if _is_falling(self.cost(self.bound_neighbor(grid, 1)) - self.cost(grid)):
                raise ConditionError("C6", f"the change of the cost falls as q grows, {parameters}")

    def _build_grid(self, voters: int, log_end: float) -> Array:
        """Return a grid from the smallest q to an end, even in votes."""
        start, stop = ndtri_exp(np.array([self.smallest_log_q(voters), log_end]) - self._log_weight)
        grid = log_ndtr(np.linspace(start, stop, _GRID_POINTS)) + self._log_weight
        return np.asarray(np.minimum(grid, log_end))

    @property
    def _log_weight(self) -> float:
        return math.log(self.classes - 1) + log_tail_factor(self.sigma, self.noise)


def _is_falling(values: Array) -> bool:
    return bool(np.any(np.diff(values) < -_TOLERANCE * values.max()))


@dataclass(frozen=True, eq=False)
class SmoothCost:
    """The cost of a run at one order, and its sensitivity: **private data**."""

    answers: Array  # (Q,) cost of answering each query
    answers_profile: Array  # (D, Q) its largest change within each number of changed votes
    largest_answer: float  # the largest change of the cost of an answer, for any votes
    checks: float  # total data-dependent cost of the checks; 0 if their cost does not depend on data
    checks_profile: Array  # (D,) its largest change

    def value(self, weights: Array) -> float:
        return float(weights @ self.answers) + self.checks

    def sensitivity(self, weights: Array, smoothness: float) -> float:
        """Compute SS_β of f for the answered queries [P, Theorem 24]."""
        profile = self.answers_profile @ weights + self.checks_profile
        largest = float(weights.sum()) * self.largest_answer + float(self.checks_profile[-1])
        computed = smooth_sensitivity(profile, largest, smoothness)
        return computed * (1.0 + _RELATIVE_ROUNDING) + _ABSOLUTE_ROUNDING * largest


def smooth_cost(analysis: Analysis, order: float, smoothness: float) -> SmoothCost:
    """Compute the cost at ``order`` and its profile for ``smoothness`` or more.

    `ValueError` for `LNMax`; `ConditionError` if [P, Section B.2] fails.
    """
    aggregator, counts, voters = analysis.aggregator, analysis.histograms, analysis.voters
    answer = find_noisy_max(aggregator)
    if isinstance(answer, LNMax):
        checks.fail("the aggregator", aggregator, "of the GNMax kind", "[P] has no smooth sensitivity for LNMax")
    shape = CostShape(answer.sigma, order, counts.shape[1], answer.noise)
    distances = count_distances(smoothness, voters)
    advice = "take fewer queries or a larger beta, or leave Table 2 out (--no-table-2)"
    if distances > _MAX_DISTANCES:
        checks.fail("the number of distances", distances, f"at most {_MAX_DISTANCES}", advice)
    profile = f"a profile of {distances:,} distances and {len(counts):,} queries"
    checks.affordable(profile, distances * len(counts), advice)
    checks_cost, checks_profile = 0.0, np.zeros(distances)
    if isinstance(aggregator, CheckedGNMax) and analysis.statistic is not None and analysis.check == "data-dependent":
        values = np.arange(-voters if isinstance(aggregator, InteractiveGNMax) else 0, voters + 1)
        checks_cost = float(aggregator.check.dependent(analysis.statistic, [order])[:, 0].sum())
        checks_profile = check_profile(analysis.statistic, values, aggregator.check, order, distances)
    return SmoothCost(
        answers=analysis.theorem_6.answers.at(order),
        answers_profile=answer_profile(counts, shape, distances),
        largest_answer=0.0 if shape.never_helps(voters) else shape.plateau,
        checks=checks_cost,
        checks_profile=checks_profile,
    )


def count_distances(smoothness: float, voters: int) -> int:
    """Choose the number of distances, from public numbers only."""
    checks.positive(smoothness=smoothness)
    is_cut = voters * smoothness > _MAX_SMOOTHING_LENGTHS
    return (math.ceil(_MAX_SMOOTHING_LENGTHS / smoothness) if is_cut else voters) + 1


def answer_profile(counts: NDArray[np.int64], shape: CostShape, distances: int) -> Array:
    """Bound each answer's local sensitivity within d < D changed votes [P, Algorithm 4]: (Q, C) → (D, Q), private."""
    queries, classes = counts.shape
    if classes != shape.classes:
        checks.fail("the number of classes", classes, f"that of the cost, {shape.classes}")
    voters = int(counts[0].sum())
    if shape.never_helps(voters):
        return np.zeros((distances, queries))  # the cost does not depend on the votes
    shape.check_conditions(voters)
    profile = np.full((distances, queries), shape.plateau)
    log_q = shape.log_q(winner_gaps(counts))
    descending = -np.sort(-counts, axis=1)
    for is_below in (True, False):  # below q₁ or above q₀, until moved votes reach the plateau
        rows = np.flatnonzero(log_q < shape.log_q1 if is_below else log_q > shape.log_q0)
        votes = descending[rows]
        for distance in range(distances):
            logs = shape.log_q(winner_gaps(votes))
            is_off_plateau = logs <= shape.log_q1 if is_below else logs >= shape.log_q0
            rows, votes = rows[is_off_plateau], votes[is_off_plateau]
            profile[distance, rows] = shape.bound_local_change(logs[is_off_plateau])
            if is_below:  # from the first class to the second
                votes[:, :2] += [-1, 1]
            else:  # to the first class from the second one
                row_index, second = np.arange(rows.size), 1 + votes[:, 1:].argmax(axis=1)
                step = np.minimum(votes[row_index, second], 1)
                votes[row_index, second] -= step
                votes[:, 0] += step
            is_ordered = votes[:, 0] >= votes[:, 1]
            rows, votes = rows[is_ordered], votes[is_ordered]
            if not rows.size:
                break
    return profile


def check_profile(
    statistic: NDArray[np.int64], values: NDArray[np.int64], check: NoisyCheck, order: float, distances: int
) -> Array:
    """Bound the local sensitivity of all checks within d < D changed votes, private; the last for any votes: (D,).

    ``values`` are all possible statistics.
    """
    steps = np.abs(np.diff(check.dependent(values, [order])[:, 0]))
    # the larger of the two neighboring differences
    local_change = np.maximum(np.append(steps, 0.0), np.append(0.0, steps))
    index = statistic - values[0]
    profile = [
        maximum_filter1d(local_change, 2 * distance + 1, mode="nearest")[index] for distance in range(distances - 1)
    ]
    # beyond the computed distances every statistic may be the worst
    return np.append([distance_changes.sum() for distance_changes in profile], statistic.size * local_change.max())


def smooth_sensitivity(total_profile: Array, largest: float, smoothness: float) -> float:
    """Compute SS_β = max_d e^{−βd}·profile(d), with ``largest`` beyond it."""
    checks.positive(smoothness=smoothness)
    values = np.append(total_profile, largest)
    return float(np.max(np.exp(-smoothness * np.arange(values.size)) * values))
