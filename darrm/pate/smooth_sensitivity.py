"""Smooth sensitivity of a data-dependent cost: how far the total can move when teachers change their votes.

[P, Definition 12]: SS_β(n) = max_d e^{−βd} · max_{dist(n, n') ≤ d} L̃S(n'); for a sum over queries [P, Theorem 24]
SS_β = max_d e^{−βd} · Σ_i max_{dist ≤ d} L̃S_i. The inner maxima, for d = 0, 1, …, are the *profile* (D, Q) here:

* GNMax answers [P, Algorithm 4]: L̃S rises with q up to q₁, is flat to q₀ and falls from there. Below q₁ the worst
  histogram at distance d moves d votes from the first to the second class; above q₀ it gives the first class d votes,
  each taken from the class that is second at that moment. (The paper's line 19 sums to d where it must sum to m.)
* The threshold's cost, where it is accounted from the data: its statistic moves by at most d, so the largest local
  difference within d steps on the integers, computed exactly.

From a public distance D on, every term counts as the largest possible one: still a smooth bound, and it ends the loop.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm import checks
from darrm.pate.confident import NoisyCheck
from darrm.pate.cost_shape import CostShape
from darrm.pate.noise_tails import gaussian_log_tails, sum_of_tails, winner_gaps
from darrm.pate.vote_counts import check_histograms

# e^{−βd} < 5e-5 from this many smoothing lengths on
SMOOTHING_LENGTHS = 10.0


def reach_of(smoothness: float, voters: int) -> int:
    """Choose the number D of distances that are looked at one by one: public, since β and K are."""
    checks.positive(smoothness=smoothness)
    return min(voters, math.ceil(SMOOTHING_LENGTHS / smoothness)) + 1


def answer_profile(histograms: ArrayLike, shape: CostShape, reach: int) -> NDArray[np.float64]:
    """Bound the local sensitivity of each answer's cost within d changed votes [P, Algorithm 4].

    Parameters
    ----------
    histograms
        (Q, C) vote counts.
    shape
        The cost at one order; C must be that of the counts.
    reach
        Number D of distances.

    Returns
    -------
    NDArray
        (D, Q), each column non-decreasing; private data.

    Raises
    ------
    ValueError
        If the counts are malformed or C differs.
    ConditionError
        If a condition of [P, Section B.2] fails for the shape.

    Examples
    --------
    >>> from darrm.pate.cost_shape import CostShape
    >>> profile = answer_profile([[200, 50], [130, 120]], CostShape(40.0, 14.0, 2), reach=3)
    >>> bool(np.all(np.diff(profile, axis=0) >= 0.0)), profile.shape
    (True, (3, 2))
    """
    counts = check_histograms(histograms)
    queries, classes = counts.shape
    if classes != shape.classes:
        checks.fail("the number of classes", classes, f"that of the cost, {shape.classes}")
    voters = int(counts[0].sum())
    profile = np.zeros((reach, queries))
    if shape.never_helps(voters):
        return profile  # the cost is the same for all votes
    shape.check_conditions(voters)
    tails = gaussian_log_tails(voters, shape.sigma, shape.noise)
    log_q = sum_of_tails(winner_gaps(counts), tails)
    descending = -np.sort(-counts, axis=1)
    profile[:] = shape.plateau
    _fill_below(profile, np.flatnonzero(log_q < shape.log_q1), descending, shape, tails)
    _fill_above(profile, np.flatnonzero(log_q > shape.log_q0), descending, shape, tails)
    return profile


def check_profile(
    statistic: NDArray[np.int64], check: NoisyCheck, order: float, *, lowest: int, highest: int, reach: int
) -> NDArray[np.float64]:
    """Bound the local sensitivity of each check's data-dependent cost within d changed votes.

    Parameters
    ----------
    statistic
        (Q,) values that the check looked at, each in lowest … highest.
    check, order
        The check, and λ.
    lowest, highest
        The range of the statistic over all votes.
    reach
        Number D of distances.

    Returns
    -------
    NDArray
        (D, Q), each column non-decreasing; private data.
    """
    values = np.arange(lowest, highest + 1)
    steps = np.abs(np.diff(check.dependent(values, [order])[:, 0]))
    widest = np.maximum(np.append(steps, 0.0), np.append(0.0, steps))  # the larger of the two neighbouring differences
    profile = np.empty((reach, statistic.size))
    for distance in range(reach):
        profile[distance] = widest[statistic - lowest]
        padded = np.pad(widest, 1, mode="edge")
        widest = np.maximum(widest, np.maximum(padded[:-2], padded[2:]))
    return profile


def smooth_sensitivity(total_profile: NDArray[np.float64], largest: float, smoothness: float) -> float:
    """Compute SS_β = max_d e^{−βd}·profile(d), counting distances beyond the profile as the largest possible sum.

    Parameters
    ----------
    total_profile
        (D,) sums over the queries of their profiles [P, Theorem 24].
    largest
        The largest value that the sum can take for any votes.
    smoothness
        β > 0.

    Examples
    --------
    >>> round(smooth_sensitivity(np.array([0.0, 0.5]), 1.0, 0.1), 6)
    0.818731
    """
    checks.positive(smoothness=smoothness)
    distances = np.arange(total_profile.size)
    within = np.max(np.exp(-smoothness * distances) * total_profile, initial=0.0)
    return float(max(within, math.exp(-smoothness * total_profile.size) * largest))


def _fill_below(
    profile: NDArray[np.float64],
    rows: NDArray[np.intp],
    descending: NDArray[np.int64],
    shape: CostShape,
    tails: NDArray[np.float64],
) -> None:
    """Fill queries with q < q₁: move d votes from the first class to the second, until q passes q₁."""
    gaps = descending[rows, :1] - descending[rows]
    gaps[:, 0] = -1
    for distance in range(profile.shape[0]):
        apart = gaps[:, 1] >= 2 * distance
        moved = gaps[apart] - distance
        moved[:, 0] = -1
        moved[:, 1] -= distance
        log_q = sum_of_tails(moved, tails)
        low = log_q <= shape.log_q1
        gaps, rows = gaps[apart][low], rows[apart][low]
        if not rows.size:
            return
        profile[distance, rows] = shape.local(log_q[low])


def _fill_above(
    profile: NDArray[np.float64],
    rows: NDArray[np.intp],
    descending: NDArray[np.int64],
    shape: CostShape,
    tails: NDArray[np.float64],
) -> None:
    """Fill queries with q > q₀: give votes of the second class to the first, until q passes q₀ or none are left."""
    top, others = descending[rows, 0].copy(), descending[rows, 1:].copy()
    for distance in range(profile.shape[0]):
        if distance:
            second = others.argmax(axis=1)
            index = np.arange(rows.size)
            taken = np.minimum(others[index, second], 1)
            others[index, second] -= taken
            top += taken
        log_q = sum_of_tails(top[:, np.newaxis] - others, tails)
        high = log_q >= shape.log_q0
        top, others, rows = top[high], others[high], rows[high]
        if not rows.size:
            return
        profile[distance, rows] = shape.local(log_q[high])
