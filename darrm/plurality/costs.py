"""The exact Rényi curve and privacy profile of one answer of a plurality.

Both are about the law as it is drawn, whole numbers over 2^53. For a pair of neighbors with the terms t of k_t classes,
h_t before and h'_t after,

    (α − 1) D_α = log Σ_t k_t h_t^α h'_t^{1−α},        δ(ε) = Σ_t k_t (h_t − e^ε h'_t)_+.

As a function of x = e^ε the second is the largest of straight lines, one for each number of the terms with the largest
losses h_t/h'_t; so is the maximum over all pairs, whose corners hold the whole profile.

**Non-private voters.** Every pair of neighboring histograms may occur, and by joint convexity no pair of laws on the
votes is worse.

**Private voters.** For every ε the hockey-stick divergence of the answer is convex in each voter's pair of laws, so its
largest value is attained at the corners of `darrm.plurality.voter_corners`: δ(ε) is the largest of 0 and
E_p[h_S] − e^ε E_{p'}[h_S] over all rows and sets S of answers, straight lines in e^ε. exp((α − 1)D_α) is convex, too,
so for Δ = 0 the same corners hold the curve, with the terms E_p[h_c] and E_{p'}[h_c] of the classes c.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from darrm.loss.amplification import subsampled_curve
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve, log_renyi_sums
from darrm.loss.vote_counts import ROUNDING, profile_of_lines, undominated
from darrm.numerics import Array
from darrm.plurality.partitions import Pairs, histograms_of, partitions_of
from darrm.plurality.plurality_law import PluralityLaw
from darrm.plurality.voter_corners import CornerSet, number_of_rows, row_blocks
from darrm.problem import Problem

# a few seconds: the curve takes rows for every class and order
_MOST_ROWS, _MOST_ROWS_OF_CURVE = 3_000_000, 100_000
_AT_ONCE = 2**22  # numbers of an array: orders times terms


def curve_of_law(law: PluralityLaw, reached: int, rate: float = 1.0) -> RenyiCurve:
    """Compute the largest Rényi divergence of all pairs at every order, rounded up; ∞ where an answer can vanish.

    With a ``rate`` below 1 a person is included in each query with that probability, independently.

    A voter who answers truly with probability 3/4, and each of two other ways with 1/8:

    >>> law = PluralityLaw.of_probabilities(1, 3, [0.75, 0.125])
    >>> curve = curve_of_law(law, 1)
    >>> float(curve.values[curve.orders == 2.0].round(6)[0]), round(float(np.log(6**2 / 8 + 1 / 6 / 8 + 1 / 8)), 6)
    (1.535971, 1.535971)
    """
    pairs = partitions_of(law.K, law.classes).pairs(reached)
    with np.errstate(divide="ignore"):
        logs = np.log(law.each)
    before, after = pairs.sides(logs, absent=-np.inf)
    if rate < 1.0:
        # without the person the law is the one after the move or, as moves go both ways, the one before
        present, absent = (_by_pair(pairs, np.log(pairs.classes) + side, -np.inf) for side in (before, after))
        return subsampled_curve(present, absent, rate)
    # the logarithms of powers are off by a few units in the last place of their exponents
    size = float(np.max(-logs, where=np.isfinite(logs), initial=1.0))
    sums = partial(_sums_of_pairs, pairs, before, after)
    return _curve(sums, 16.0 * np.finfo(np.float64).eps * (1.0 + size))


def _sums_of_pairs(pairs: Pairs, before: Array, after: Array, orders: Array) -> Array:
    """Compute `log_renyi_sums` of all pairs of neighbors from the logarithms of their terms: (L,) → (L, pairs)."""
    impossible, counts, sizes = np.isneginf(before), np.log(pairs.classes), np.bincount(pairs.pair)
    sums = np.empty((orders.size, sizes.size))
    for block in np.array_split(np.arange(orders.size), 1 + orders.size * before.size // _AT_ONCE):
        a = orders[block, None]
        with np.errstate(invalid="ignore", over="ignore"):
            powers = np.where(impossible, -np.inf, counts + a * before - (a - 1.0) * after)
            largest = np.maximum.reduceat(powers, pairs.starts, axis=1)
            scaled = np.exp(powers - np.repeat(largest, sizes, axis=1))
            total = largest + np.log(np.add.reduceat(scaled, pairs.starts, axis=1))
        sums[block] = np.where(np.isposinf(largest), np.inf, total)
    return sums


def _by_pair(pairs: Pairs, values: Array, padding: float = 0.0) -> Array:
    """Write the values of all terms as a row for each pair, padded: shape (terms,) → (pairs, most terms)."""
    place = np.arange(pairs.pair.size) - pairs.starts[pairs.pair]
    rows = np.full((len(pairs.first), int(place.max()) + 1), padding)
    rows[pairs.pair, place] = values
    return rows


def curve_of_answers(problem: Problem, law: PluralityLaw) -> RenyiCurve | None:
    """Compute the same for private voters, over all rows; None with Δ > 0, or for many rows.

    >>> from darrm import PrivacyParams, Voters
    >>> voter = Problem(Voters(1, PrivacyParams(1)), PrivacyParams(1), 3)
    >>> curve = curve_of_answers(voter, PluralityLaw.of_probabilities(1, 3, [1.0, 0.0]))
    >>> bool(np.allclose(curve.values, RenyiCurve.of_pure(1.0).values))
    True
    """
    K, C = problem.voters.K, problem.classes
    corners = CornerSet(problem.voters, C, 1)
    if corners.voters_fail or number_of_rows(problem.voters, C) > _MOST_ROWS_OF_CURVE:
        return None
    values = law.probabilities(histograms_of(K, C).counts)
    with np.errstate(divide="ignore"):
        parts = [
            np.log([[level.before.ravel(), level.after.ravel()] for level in levels])
            for levels in zip(*(corners.levels(values[:, label]) for label in range(C)), strict=True)
        ]
    before, after = np.concatenate(parts, axis=2).transpose(1, 2, 0)
    error = 2.0**-50 * (K + C + 8) * float(np.max(-after, where=np.isfinite(after), initial=1.0))
    return _curve(partial(log_renyi_sums, before, after), error)


def _curve(sums: Callable[[Array], Array], error: float) -> RenyiCurve:
    """Tabulate the largest divergence of pairs of laws from their logarithmic sums, (L,) → (L, pairs)."""

    def value_at(orders: Array) -> Array:
        worst = sums(orders).max(axis=1) / (orders - 1.0)
        slack = error * (2.0 * orders + 1.0) / (orders - 1.0)
        return np.asarray((np.maximum(worst, 0.0) + slack) * (1.0 + ROUNDING))

    return RenyiCurve.of(value_at)


def profile_of_law(law: PluralityLaw, reached: int) -> PrivacyProfile | None:
    """Compute the privacy profile at all its corners, rounded up; None if it bounds nothing, δ = 1.

    >>> law = PluralityLaw.of_probabilities(1, 3, [0.75, 0.125])
    >>> profile = profile_of_law(law, 1)
    >>> round(profile.deltas[0], 9), round(float(np.exp(profile.epsilons[-1])), 9)
    (0.625, 6.0)
    """
    pairs = partitions_of(law.K, law.classes).pairs(reached)
    before, after = (_by_pair(pairs, pairs.classes * side) for side in pairs.sides(law.each))
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(after > 0.0, np.log(before) - np.log(after), np.where(before > 0.0, np.inf, -np.inf))
    falling = np.argsort(-loss, axis=1, kind="stable")
    p, q = (np.cumsum(np.take_along_axis(each, falling, axis=1), axis=1).ravel() for each in (before, after))
    certain = float(np.max(np.sum(before, axis=1, where=np.isposinf(loss))))
    return profile_of_lines(p, q, largest=float(np.max(loss[np.isfinite(loss)], initial=0.0)), certain=certain)


def are_few(problem: Problem) -> bool:
    """Whether profile and curve, if there is one, take a few seconds at most."""
    return number_of_rows(problem.voters, problem.classes) <= _MOST_ROWS


def profile_of_answers(problem: Problem, law: PluralityLaw) -> PrivacyProfile | None:
    """Compute the privacy profile of one answer at its corners, rounded up; None if it bounds nothing, δ = 1.

    The profile of one voter that is returned as it is:

    >>> from darrm import PrivacyParams, Voters
    >>> profile = profile_of_answers(
    ...     Problem(Voters(1, PrivacyParams(1)), PrivacyParams(1), 3), PluralityLaw.of_probabilities(1, 3, [1.0, 0.0])
    ... )
    >>> round(profile.deltas[0], 9), round(profile.epsilons[-1], 9)  # tanh(1/2)
    (0.462117157, 1.0)
    """
    highest, slopes = [np.zeros(1)], [np.zeros(1)]
    largest = certain = 0.0
    for block in row_blocks(problem, law.each, range(1, problem.classes)):
        p, q = np.minimum(1.0, block.upper + block.error).ravel(), np.maximum(0.0, block.lower - block.error).ravel()
        certain = max(certain, float(np.max(p, where=q == 0.0, initial=0.0)))
        with np.errstate(divide="ignore"):
            largest = max(largest, float(np.max(np.log(p) - np.log(q), where=q > 0.0, initial=0.0)))
        kept = undominated(p, q)
        highest.append(p[kept])
        slopes.append(q[kept])
    return profile_of_lines(np.concatenate(highest), np.concatenate(slopes), largest=largest, certain=certain)
