"""The cost of a label that depends only on the number of its votes, for non-private voters.

**Theorem.** Let h(l) = Pr[1 | l] with Pr[1 | l] = Pr[0 | K − l], and let a person influence t voters. The worst pair of
neighbors is one of K + 1 pairs of vote counts: each l with the l' within t that has the largest h. *Proof.* The person
moves the number of ones from l to some l' with |l − l'| ≤ t, and every such pair occurs. By joint convexity of the
divergences no pair of laws on the votes is worse than a pair of numbers. The divergence of two bits grows with their
distance, so for every l the worst l' has the largest h, once for each answer. ∎ (`tests/loss/test_amplification.py`)

So the privacy profile is the maximum of K + 1 straight lines in e^ε, and its corners describe it exactly.
"""

import math
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from darrm.loss.amplification import subsampled_curve
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve, curve_of_pairs
from darrm.numerics import Array
from darrm.privacy import LARGEST_EXPONENT

_ROUNDING = 1e-12  # of a profile, absolute
_MIN_DISTANCE = 1e-4  # between corners, relative to the last: closer ones add little or differ by rounding


def curve_of_votes(log_lies: Array, K: int, overlap: int, rate: float = 1.0) -> RenyiCurve:
    """Compute the Rényi curve of a bit that depends on the number of ones, if a person moves up to ``overlap`` votes.

    ``log_lies`` is log Pr[the answer is not the majority] for l = floor(K/2) + 1 … K; a tie is a fair coin. With a
    ``rate`` below 1 the votes move with that probability, independently for each query. Randomized response with ε = 1:

    >>> lie = np.log([1.0 / (1.0 + math.e)])
    >>> bool(np.allclose(curve_of_votes(lie, 1, 1).values, RenyiCurve.from_pure(1.0).values))
    True
    """
    (p_one, q_one), (p_zero, q_zero) = _list_neighbors(log_lies, K, overlap)
    log_p, log_q = np.stack([p_one, p_zero], axis=1), np.stack([q_one, q_zero], axis=1)
    if rate < 1.0:
        return subsampled_curve(log_p, log_q, rate)
    return curve_of_pairs(log_p, log_q)


def profile_of_votes(log_lies: Array, K: int, overlap: int) -> PrivacyProfile | None:
    """Compute the privacy profile of the bit of `curve_of_votes` at all its corners, rounded up; None if δ = 1.

    Randomized response with ε = log 3 has total variation distance 1/2:

    >>> profile = profile_of_votes(np.log([0.25]), 1, 1)
    >>> round(profile.deltas[0], 9), round(profile.epsilons[-1] - math.log(3.0), 9)
    (0.5, 0.0)
    """
    (log_p, log_q), _ = _list_neighbors(log_lies, K, overlap)
    p, q = np.exp(log_p), np.exp(log_q)
    with np.errstate(invalid="ignore"):
        losses = np.where(q > 0.0, log_p - log_q, 0.0)
    infinite_mass = float(np.max(p, where=q == 0.0, initial=0.0))
    return profile_of_lines(p, q, largest=float(np.max(losses)), certain=infinite_mass)


def profile_of_lines(p: Array, q: Array, *, largest: float, certain: float) -> PrivacyProfile | None:
    """Compute the largest of 0 and the lines p − e^ε·q at its corners, rounded up; None if δ = 1.

    ``largest`` is the largest finite privacy loss; from there on δ(ε) = ``certain``.
    """
    top = max(0.0, largest) + _ROUNDING * (1.0 + max(0.0, largest))
    if certain + _ROUNDING >= 1.0 or top > LARGEST_EXPONENT:
        return None
    hull = _compute_hull(p, q)
    corners = [_find_crossing(*pair) for pair in pairwise(hull)]
    grid = np.array(_thin_out([0.0, *(math.log(x) for x in corners if 1.0 < x < math.exp(top)), top]))
    intercepts, slopes = np.array(hull).T
    deltas = np.maximum(0.0, np.max(intercepts - np.exp(grid)[:, None] * slopes, axis=1)) + _ROUNDING
    deltas[-1] = certain + _ROUNDING if certain else 0.0  # the last loss is rounded up
    bounds = np.minimum(1.0, np.maximum.accumulate(deltas[::-1])[::-1])
    return PrivacyProfile(tuple(grid.tolist()), tuple(bounds.tolist()))


def find_undominated(p: Array, q: Array) -> NDArray[np.int64]:
    """Return the places of the lines p − e^ε·q that no line dominates, in the order of q.

    >>> find_undominated(np.array([0.5, 0.7, 0.6]), np.array([0.2, 0.3, 0.3])).tolist()
    [0, 1]
    """
    order = np.lexsort((-p, q))
    highest = np.maximum.accumulate(p[order])
    return np.asarray(order[np.concatenate([[True], p[order][1:] > highest[:-1]])])


def _list_neighbors(log_lies: Array, K: int, overlap: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """List log (Pr[answer | l'], Pr[answer | l]) of the answers 1 and 0 for all l and the worst l'."""
    log_zero = np.full(K + 1, math.log(0.5))
    log_zero[K // 2 + 1 :] = log_lies
    with np.errstate(divide="ignore"):
        log_zero[: log_lies.size] = np.log1p(-np.exp(log_lies))[::-1]
    log_one = log_zero[::-1]
    radius = min(overlap, K)
    # padding with −inf never gives the maximum, because every window contains its center
    windows = sliding_window_view(np.pad(log_one, radius, constant_values=-np.inf), 2 * radius + 1)
    worst = np.argmax(windows, axis=1) + np.arange(K + 1) - radius
    worst = np.clip(worst, 0, K)  # a window of zeros: any place
    return (log_one[worst], log_one), (log_zero[worst], log_zero)


def _thin_out(points: list[float]) -> list[float]:
    selected = [points[-1]]
    for point in reversed(points[1:-1]):
        if min(selected[-1] - point, point) > _MIN_DISTANCE * points[-1]:
            selected.append(point)
    return [0.0, *reversed(selected)]


def _compute_hull(p: Array, q: Array) -> list[tuple[float, float]]:
    """Return the lines among p − x·q and 0 that are the largest somewhere, in the order of x."""
    hull: list[tuple[float, float]] = []
    # from the steepest line on: flatter lines win to the right, and of equal slopes the highest
    for slope, height in sorted({*zip((-q).tolist(), p.tolist(), strict=True), (0.0, 0.0)}):
        line = height, -slope
        if hull and hull[-1][1] == line[1]:
            hull.pop()
        while len(hull) > 1 and _find_crossing(hull[-1], line) <= _find_crossing(*hull[-2:]):
            hull.pop()
        hull.append(line)
    return hull


def _find_crossing(steep: tuple[float, float], flat: tuple[float, float]) -> float:
    return (steep[0] - flat[0]) / (steep[1] - flat[1])
