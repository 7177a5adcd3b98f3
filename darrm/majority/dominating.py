"""The dominating family: the C(K+2, 2) rows that are enough for a monotone γ, with O(1) work a row.

If γ does not fall away from K/2 then g is non-decreasing, E[g] is non-decreasing in every probability, and f is largest
where every p_i is as large and every p'_i as small as its corner allows: at (Δ, 0), (1, 1−Δ) or (hi, lo). For other γ
the family is a relaxation. With q = 1 − p' the cost is f = E_p[g] + c·E_q[g], and reflecting a row of the family swaps
its zeros and ones. So with j voters at (hi, lo), b at (1, 1−Δ) and

    U_j(b) = E[g(b + Bin(j, hi) + Bin(K−j−b, Δ))]

the row costs U_j(b) + c·U_j(K−j−b). The part Bin(j, hi) comes from the triangle of `darrm.numerics.binomial.smooth`;
Bin(n, Δ) is a short sum of J + 1 terms with a bounded tail.

If one person touches at most t voters, j stops at t, and only t − j of the voters near 0 and 1 may move. With s of the
K − t unaffected voters at 1 this is the same row over the window T(s) … T(s + t − j), its mirror image over the window
of K − t − s: (K − t + 1)·C(t + 2, 2) rows.
"""

import time
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from darrm.majority.corners import CornerCounts, ExpEpsilon, corners_of
from darrm.majority.kernels import KERNEL, LEVELS_A_TOP, KernelParams
from darrm.majority.noise_function import signed_function
from darrm.numerics import Array
from darrm.numerics.binomial import STEP_ERROR, tail_bound
from darrm.privacy import PrivacyParams
from darrm.problem import Voters

TAIL = 1e-18
_MAX_ROWS_PER_ROUND = 40
_PLACES_PER_CALL = 2**26  # between two checks of the deadline


@dataclass(frozen=True, eq=False)
class LevelMaxima:
    """The largest cost at each number j = 0 … t of voters at (hi, lo), and where; arrays of shape (t + 1,)."""

    costs: Array  # computed in floats; −∞ if the cost is at most ``floor``
    ones: NDArray[np.int64]  # the number of voters at (1, 1−Δ) that attains it
    unaffected_ones: NDArray[np.int64]  # the number of unaffected voters at 1 that attains it
    rounding: float  # upper bound on how far any of the costs is from its real value
    low: bool = False  # whether the j voters are at (lo, hi) instead: rows outside the family

    @property
    def worst(self) -> float:
        """An upper bound on the largest real cost of the family, if any exceeds ``floor``."""
        return float(np.max(self.costs)) + self.rounding


class DominatingFamily:
    def __init__(self, voters: Voters) -> None:
        self.voters = voters
        self.corners = corners_of(voters.each)

    @cached_property
    def terms(self) -> int:
        """J: the binomial parts Bin(n, Δ) keep the terms 0 … J."""
        return moves_followed(self.voters.K, self.corners.delta)

    @cached_property
    def delta_weights(self) -> Array:
        """Pr[Bin(n, Δ) = i] for i = 0 … J (rows) and n = 0 … K (columns)."""
        return delta_weights(self.voters.K, self.voters.each, self.terms)

    @cached_property
    def _weight_error(self) -> float:
        return float(np.max(np.abs(self.delta_weights.sum(axis=0) - 1.0)))

    def rounding(self, exp_epsilon: ExpEpsilon) -> float:
        """Bound the distance between a computed cost and the real one, for |g| ≤ 1.

        A value of U takes at most t averaging steps for the touched voters at hi and Δ together, t = K by default, and
        J + 1 products and sums for the short binomial; f adds U and c·U with two more roundings and the error of c.
        """
        one_term = STEP_ERROR * (self.voters.reached + 2 * self.terms + 8) + 2.0 * TAIL
        return (1.0 + exp_epsilon.value) * (one_term + STEP_ERROR) + exp_epsilon.error

    def params(self, exp_epsilon: ExpEpsilon) -> KernelParams:
        return KernelParams(
            self.delta_weights, self.corners.hi, exp_epsilon.value, self.excess(exp_epsilon), 2.0 * STEP_ERROR
        )

    def excess(self, exp_epsilon: ExpEpsilon) -> float:
        """Bound how far a computed cost exceeds the bound from the largest T up to `LEVELS_A_TOP` levels before.

        Moves of voters near 0 and near 1 are Σ over two short binomials.
        """
        return (1.0 + exp_epsilon.value) * (STEP_ERROR * (LEVELS_A_TOP + 2 * self.terms + 8) + 3.0 * self._weight_error)

    def maxima(
        self,
        half: Array,
        exp_epsilon: ExpEpsilon,
        deadline: float = np.inf,
        *,
        low: bool = False,
        floor: float = -np.inf,
    ) -> LevelMaxima:
        """Compute the largest cost of each level; ``half`` is γ at l > K/2. `TimeoutError` after the deadline.

        Levels whose costs are all at most ``floor`` have −∞. If ``low``, the rows have j voters at (lo, hi) in the
        place of (hi, lo): because g is odd about K/2, T_j(s) becomes −T_j(K − j − s).
        """
        K, levels, level = self.voters.K, self.voters.reached + 1, signed_function(half, self.voters.K)
        kernels, params = KERNEL.choose(self._estimate_nanoseconds()), self.params(exp_epsilon)
        costs, places = np.empty(levels), np.empty(levels, dtype=np.int64)
        unaffected = 0 if self.corners.delta == 0.0 else K - self.voters.reached
        step = max(1, _PLACES_PER_CALL // (K + 1))
        for first in range(0, levels, step):
            stop_after(deadline)
            block = slice(first, first + step)
            kernels.triangle_maxima(level[: K + 1 - first], params, low, floor, unaffected, costs[block], places[block])
        costs[costs <= floor] = -np.inf
        unaffected_ones, ones = np.divmod(
            np.where(np.isneginf(costs), 0, places), K + 1 - unaffected - np.arange(levels)
        )
        return LevelMaxima(costs, ones, unaffected_ones, self.rounding(exp_epsilon), low)

    def _estimate_nanoseconds(self) -> float:
        places = self.windows(np.empty(self.voters.K + 1)).size / 2.0
        return (self.voters.reached + 1.0) * (self.terms + 2.0) * (places + 10_000.0)

    def windows(self, level: Array) -> Array:
        """Cut T into windows of the touched voters, one row for each number of unaffected voters at 1.

        For Δ = 0 touched voters at (0,0) or (1,1) count as unaffected, so one window holds every row: shape (K − j +
        1,) → (1, K − j + 1), otherwise → (K − t + 1, t − j + 1).
        """
        unaffected = self.voters.K - self.voters.reached
        if unaffected == 0 or self.corners.delta == 0.0:
            return level[None, :]
        return sliding_window_view(level, level.size - unaffected)

    def row(self, maxima: LevelMaxima, j: int) -> CornerCounts:
        """Return the row that attains the largest cost with j voters at (hi, lo), or at (lo, hi)."""
        high, low = (0, j) if maxima.low else (j, 0)
        touched_ones = int(maxima.ones[j])
        ones = touched_ones + int(maxima.unaffected_ones[j])
        zeros = self.voters.K - j - ones
        if self.corners.delta == 0.0:
            return CornerCounts(high, low, zeros, ones)
        touched_zeros = self.voters.reached - j - touched_ones
        return CornerCounts(high, low, zeros, ones, moved_zeros=touched_zeros, moved_ones_prime=touched_ones)


def moves_followed(n: int, delta: float) -> int:
    """Find the smallest J for which Bin(n, Δ) exceeds J with probability `TAIL` at most."""
    J = 0
    while tail_bound(n, delta, J) > TAIL:
        J += 1
    return J


@lru_cache(maxsize=4)
def delta_weights(K: int, each: PrivacyParams, terms: int) -> Array:
    """Compute the short binomials term by term: w_i(n) = (1 − Δ)·w_i(n − 1) + Δ·w_{i−1}(n − 1)."""
    delta = corners_of(each).delta
    complement = 1.0 - delta

    def mix(weight: float, lower_weight: float) -> float:
        return complement * weight + delta * lower_weight

    rows = [list(accumulate([0.0] * K, mix, initial=1.0))]
    for _ in range(terms):
        rows.append(list(accumulate(rows[-1][:-1], mix, initial=0.0)))
    weights = np.array(rows)
    weights.flags.writeable = False
    return weights


def stop_after(deadline: float) -> None:
    """Raise `TimeoutError` if `time.perf_counter` is past the deadline."""
    if time.perf_counter() > deadline:
        raise TimeoutError


def choose_violated(costs: Array, limit: float, max_rows: int = _MAX_ROWS_PER_ROUND) -> list[int]:
    """Choose which of the levels with cost above ``limit`` to add: the local maxima, then others evenly spaced.

    Neighboring levels make nearly parallel rows.

    >>> choose_violated(np.array([0.0, 2.0, 1.5, 3.0, 0.0]), 1.0)
    [3, 1, 2]
    """
    padded = np.concatenate([[-np.inf], costs, [-np.inf]])
    is_violated = costs > limit
    is_peak = is_violated & (costs >= padded[:-2]) & (costs >= padded[2:])
    peaks = np.flatnonzero(is_peak)
    others = np.flatnonzero(is_violated & ~is_peak)
    peaks = peaks[np.argsort(-costs[peaks], kind="stable")]
    others = others[np.argsort(-costs[others], kind="stable")]
    selected = peaks[: max_rows // 2]
    num_others = max_rows - selected.size
    stride = max(1, -(-others.size // num_others))
    return [int(level) for level in np.concatenate([selected, others[::stride]])]
