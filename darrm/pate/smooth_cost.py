"""The data-dependent part of a run's cost at one order, with its sensitivity: what a sanitised figure is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.losses.renyi import CONVERSIONS
from darrm.pate.analysis import Analysis, has_check
from darrm.pate.cost_shape import CostShape
from darrm.pate.interactive import InteractiveGNMax
from darrm.pate.noisy_max import GNMax, LNMax
from darrm.pate.smooth_sensitivity import answer_profile, check_profile, reach_of, smooth_sensitivity

# the computed f may differ from the true one by 1e-12 of the largest possible f; these shares are added to its
# sensitivity, which stays smooth: a factor, and a constant
ROUNDING = 1e-6
ABSOLUTE_ROUNDING = 1e-8


@dataclass(frozen=True, eq=False)
class SmoothCost:
    """The data-dependent part of a run's cost at one order and its sensitivity within 0, 1, … changed votes: private.

    Attributes
    ----------
    answers
        (Q,) cost of answering each query at the order.
    answers_profile
        (D, Q) how far it can move, see `smooth_sensitivity`.
    largest_answer
        The most that one answer's cost can move, whatever the votes.
    checks
        Total data-dependent cost of the checks; 0 where they are accounted independently of the data.
    checks_profile
        (D,) how far that can move.
    """

    answers: NDArray[np.float64]
    answers_profile: NDArray[np.float64]
    largest_answer: float
    checks: float
    checks_profile: NDArray[np.float64]

    def value(self, weights: NDArray[np.float64]) -> float:
        """Compute f for the answered queries (weights 0 or 1)."""
        return float(weights @ self.answers) + self.checks

    def sensitivity(self, weights: NDArray[np.float64], smoothness: float) -> float:
        """Compute SS_β of f for the answered queries [P, Theorem 24]."""
        profile = self.answers_profile @ weights + self.checks_profile
        largest = float(weights.sum()) * self.largest_answer + float(self.checks_profile[-1])
        found = smooth_sensitivity(profile, largest, smoothness)
        return found * (1.0 + ROUNDING) + ABSOLUTE_ROUNDING * largest


def smooth_cost(analysis: Analysis, order: float, smoothness: float) -> SmoothCost:
    """Compute the data-dependent cost at ``order`` and its profile, as far as ``smoothness`` (or more) needs.

    Raises
    ------
    ValueError
        For `LNMax`, for which [P] gives no smooth sensitivity.
    ConditionError
        If a condition of [P, Section B.2] fails for this σ and order.
    """
    aggregator, counts = analysis.aggregator, analysis.histograms
    if isinstance(aggregator, LNMax):
        checks.fail("the aggregator", aggregator, "of the GNMax kind", "[P] has no smooth sensitivity for LNMax")
    voters = int(counts[0].sum())
    answer = aggregator if isinstance(aggregator, GNMax) else aggregator.answer
    shape = CostShape(answer.sigma, order, counts.shape[1], answer.noise)
    reach = reach_of(smoothness, voters)
    checks_cost, checks_profile = 0.0, np.zeros(reach)
    if has_check(aggregator) and analysis.statistic is not None and analysis.check == "data-dependent":
        lowest = -voters if isinstance(aggregator, InteractiveGNMax) else 0
        costs = aggregator.check.dependent(analysis.statistic, [order])[:, 0]
        # beyond the reach every statistic may be the worst one: the last distance covers the whole range
        profile = check_profile(
            analysis.statistic, aggregator.check, order, lowest=lowest, highest=voters, reach=voters - lowest + 1
        )
        checks_cost = float(costs.sum())
        checks_profile = np.append(profile[: reach - 1].sum(axis=1), profile[-1].sum())
    profile = answer_profile(counts, shape, reach)
    largest = 0.0 if shape.never_helps(voters) else shape.plateau
    return SmoothCost(analysis.answer_costs(order), profile, largest, checks_cost, checks_profile)


def converted(order: float, renyi: float, delta: float, conversion: str) -> float:
    """Convert a Rényi cost at one order to ε at δ, at least 0."""
    return max(0.0, float(CONVERSIONS[conversion](np.array([order]), np.array([renyi]), delta)[0]))


def public_costs(analysis: Analysis, order: float, answered: float) -> tuple[float, float]:
    """Costs at ``order`` that no vote enters: of the checks, and the most that the sanitised part can be."""
    aggregator = analysis.aggregator
    if not has_check(aggregator):
        return 0.0, answered * float(aggregator.answer_independent(np.array([order]))[0])  # type: ignore[union-attr]
    all_checks = analysis.queries * float(aggregator.check.independent([order])[0])
    ceiling = answered * float(aggregator.answer.answer_independent([order])[0])
    return (0.0, ceiling + all_checks) if analysis.check == "data-dependent" else (all_checks, ceiling)
