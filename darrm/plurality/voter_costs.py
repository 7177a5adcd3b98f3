"""The privacy profile and the Rényi curve of one answer of private voters, for any number of classes.

For every ε the hockey-stick divergence of the answer is convex in each voter's pair of laws, so its largest value is
attained at the corners of `darrm.plurality.voter_corners`: δ(ε) is the largest of 0 and E_p[h_S] − e^ε E_{p'}[h_S] over
all rows and sets S of answers, straight lines in e^ε. exp((α − 1)D_α) is convex, too, so for Δ = 0 the same corners
hold the curve:

    (α − 1) D_α = log Σ_c E_p[h_c]^α E_{p'}[h_c]^{1−α}.
"""

import numpy as np

from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.loss.vote_counts import ROUNDING, profile_of_lines, undominated
from darrm.numerics import Array
from darrm.plurality.histograms import histograms_of
from darrm.plurality.plurality_law import PluralityLaw
from darrm.plurality.voter_corners import CornerSet, looks, number_of_rows
from darrm.problem import Problem

# a few seconds: the curve takes rows for every class and order
_MOST_ROWS, _MOST_ROWS_OF_CURVE = 3_000_000, 100_000
_AT_ONCE = 2**21


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
    for look in looks(problem, law.each, range(1, problem.classes)):
        p, q = np.minimum(1.0, look.upper + look.error).ravel(), np.maximum(0.0, look.lower - look.error).ravel()
        certain = max(certain, float(np.max(p, where=q == 0.0, initial=0.0)))
        with np.errstate(divide="ignore"):
            largest = max(largest, float(np.max(np.log(p) - np.log(q), where=q > 0.0, initial=0.0)))
        kept = undominated(p, q)
        highest.append(p[kept])
        slopes.append(q[kept])
    return profile_of_lines(np.concatenate(highest), np.concatenate(slopes), largest=largest, certain=certain)


def curve_of_answers(problem: Problem, law: PluralityLaw) -> RenyiCurve | None:
    """Compute the largest Rényi divergence of one answer at every order, rounded up; None with Δ > 0, or for many rows.

    >>> from darrm import PrivacyParams, Voters
    >>> voter = Problem(Voters(1, PrivacyParams(1)), PrivacyParams(1), 3)
    >>> curve = curve_of_answers(voter, PluralityLaw.of_probabilities(1, 3, [1.0, 0.0]))
    >>> bool(np.allclose(curve.values, RenyiCurve.of_pure(1.0).values))
    True
    """
    K, C = problem.voters.K, problem.classes
    corners = CornerSet(problem.voters, C, 1)
    if corners.says_more or number_of_rows(problem.voters, C) > _MOST_ROWS_OF_CURVE:
        return None
    values = law.probabilities(histograms_of(K, C).counts)
    with np.errstate(divide="ignore"):
        parts = [
            np.log([[level.before.ravel(), level.after.ravel()] for level in levels])
            for levels in zip(*(corners.levels(values[:, label]) for label in range(C)), strict=True)
        ]
    before, after = np.concatenate(parts, axis=2).transpose(1, 0, 2)
    error = 2.0**-50 * (K + C + 8) * float(np.max(-after, where=np.isfinite(after), initial=1.0))

    def value_at(orders: Array) -> Array:
        worst = np.empty(orders.size)
        for block in np.array_split(np.arange(orders.size), 1 + orders.size * before.size // _AT_ONCE):
            a = orders[block, None, None]
            with np.errstate(invalid="ignore"):
                powers = np.where(np.isneginf(before), -np.inf, a * before - (a - 1.0) * after)
            top = np.max(powers, axis=1, keepdims=True)
            with np.errstate(invalid="ignore"):
                sums = np.squeeze(top, 1) + np.log(np.sum(np.exp(powers - top), axis=1))
            sums = np.where(np.isposinf(np.squeeze(top, 1)), np.inf, sums)
            worst[block] = np.max(sums, axis=1) / (orders[block] - 1.0)
        slack = error * (2.0 * orders + 1.0) / (orders - 1.0)
        return np.asarray((np.maximum(worst, 0.0) + slack) * (1.0 + ROUNDING))

    return RenyiCurve.of(value_at)
