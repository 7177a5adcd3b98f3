"""Publishing a data-dependent ε: sanitise it by smooth sensitivity [P, Section B.6].

The published figure is

    ε = noisy answers' cost + checks' cost + GNSS's own cost + conversion at λ and δ,

where the first part is f + SS_β·N(0, σ_SS²) for the data-dependent Rényi cost f at the order λ (plus the checks' cost
where that was accounted from the data), and the others do not depend on the votes. Order, β and σ_SS must be fixed
without looking at the private votes: from `gnss.rules_of_thumb`, or on votes that are public or simulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from darrm import checks
from darrm.accounting.charges import Charge
from darrm.accounting.renyi import CONVERSIONS
from darrm.aggregators.analysis import Analysis, has_check
from darrm.aggregators.cost_shape import CostShape
from darrm.aggregators.gnss import GnssParameters, best_noise_scale, largest_smoothness, noisy_value
from darrm.aggregators.interactive import InteractiveGNMax
from darrm.aggregators.noisy_max import GNMax, LNMax
from darrm.aggregators.smooth_sensitivity import answer_profile, check_profile, reach_of, smooth_sensitivity
from darrm.privacy import PrivacyParams

if TYPE_CHECKING:
    from numpy.typing import NDArray

# relative rounding of the costs, which is added to the sensitivity so that it bounds the computed f too
ROUNDING = 1e-6


@dataclass(frozen=True)
class Sanitized:
    """A privacy cost that may be published.

    Attributes
    ----------
    epsilon, delta
        The figure: an estimate of the run's ε, its own publication included.
    order, conversion
        λ and the name of the conversion.
    noisy_cost
        The sanitised part of the Rényi cost at λ, clipped to what is possible whatever the votes.
    public_cost
        The parts of the Rényi cost that do not depend on the votes: checks and GNSS.
    understated_with
        Probability that the figure is too small: ½ unless a safety was added.
    """

    epsilon: float
    delta: float
    order: float
    conversion: str
    noisy_cost: float
    public_cost: float
    understated_with: float

    def charge(self) -> Charge:
        """Describe the whole run, its publication included, by the sanitised figure."""
        return Charge("PATE run, sanitised cost", guarantee=PrivacyParams(self.epsilon, self.delta))

    def __str__(self) -> str:
        return (
            f"epsilon = {self.epsilon:.4f} at delta = {self.delta:g} (sanitised, may be published; order "
            f"{self.order:g}, {self.conversion} conversion; too small with probability {self.understated_with:.3g})"
        )


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
        return smooth_sensitivity(profile, largest, smoothness) * (1.0 + ROUNDING)


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


def sanitize(analysis: Analysis, parameters: GnssParameters, *, rng: np.random.Generator | None = None) -> Sanitized:
    """Give the figure that may be published for a run that is over.

    Parameters
    ----------
    analysis
        From `analyze`, with ``answered=`` the released pattern of answers where the aggregator has a check.
    parameters
        Order, β, σ_SS and safety, fixed without looking at the votes.
    rng
        None draws from the operating system. A generator is for experiments only: no privacy is claimed.

    Raises
    ------
    ValueError
        If the analysis holds expectations instead of answers, or for `LNMax`.
    ConditionError
        If a condition of [P, Section B.2] fails: then no sanitised figure exists at this order.

    Notes
    -----
    Each call is a new release and costs its own share: publish one figure for a run, not the best of several.
    """
    if analysis.answered is None:
        raise ValueError("sanitize needs the answers that were given: analyze(..., answered=labels >= 0)")
    order = parameters.order
    smooth = smooth_cost(analysis, order, parameters.smoothness)
    weights = analysis.answered.astype(np.float64)
    sensitivity = smooth.sensitivity(weights, parameters.smoothness)
    noisy = noisy_value(smooth.value(weights), sensitivity, parameters, rng=rng)
    checks_cost, ceiling = _public_costs(analysis, order, float(weights.sum()))
    noisy = min(max(noisy, 0.0), ceiling)
    public = checks_cost + parameters.cost
    epsilon = converted(order, noisy + public, analysis.delta, analysis.conversion)
    understated = 0.5 * math.erfc(parameters.safety / math.sqrt(2.0))
    return Sanitized(epsilon, analysis.delta, order, analysis.conversion, noisy, public, understated)


@dataclass(frozen=True)
class Expected:
    """What publishing with given parameters would lead to, on average over the check's outcomes: private.

    Attributes
    ----------
    parameters
        Order, β, σ_SS.
    renyi
        Expected Rényi cost at the order, without the publication's own.
    epsilon
        Expected sanitised ε.
    deviation
        Expected standard deviation of its noise, σ_SS·SS.
    sensitivity
        Expected smooth sensitivity SS_β.
    """

    parameters: GnssParameters
    renyi: float
    epsilon: float
    deviation: float
    sensitivity: float


def expected_publication(
    analysis: Analysis, parameters: GnssParameters, *, simulations: int = 20, seed: int = 0
) -> Expected:
    """Compute what `sanitize` would give on average, as [P, Table 2] reports it.

    f is an exact expectation, SS_β an average over simulated outcomes of the check.

    Parameters
    ----------
    analysis
        With or without the pattern of answers.
    parameters
        Order, β, σ_SS, safety.
    simulations, seed
        How many outcomes of the check to average over where none is given, and their seed.
    """
    smooth = smooth_cost(analysis, parameters.order, parameters.smoothness)
    return _expected(analysis, smooth, _patterns(analysis, simulations, seed), parameters)


def search_parameters(
    analysis: Analysis, order: float | None = None, *, simulations: int = 20, grid: int = 40, seed: int = 0
) -> Expected:
    """Search (β, σ_SS) with the smallest expected ε plus two standard deviations of its noise [P, Section B.6].

    Parameters
    ----------
    analysis
        Of votes that are public or simulated: chosen on private votes, the parameters themselves reveal something.
    order
        λ; by default the analysis's best order.
    simulations, seed
        As in `expected_publication`.
    grid
        How many values of β to try.
    """
    checks.integer_at_least(1, grid=grid)
    chosen = analysis.order if order is None else order
    candidates = largest_smoothness(chosen) * np.linspace(0.0, 1.0, grid + 2)[1:-1]
    smooth = smooth_cost(analysis, chosen, float(candidates[0]))
    patterns = _patterns(analysis, simulations, seed)
    found: list[Expected] = []
    for smoothness in map(float, candidates):
        sensitivity = float(np.mean([smooth.sensitivity(pattern, smoothness) for pattern in patterns]))
        scale = best_noise_scale(chosen, smoothness, max(sensitivity, ROUNDING))
        found.append(_expected(analysis, smooth, patterns, GnssParameters(chosen, smoothness, scale), sensitivity))
    return min(found, key=lambda one: one.epsilon + 2.0 * one.deviation)


def _patterns(analysis: Analysis, simulations: int, seed: int) -> NDArray[np.float64]:
    """Patterns of answered queries: the released one, or simulated ones: (simulations, Q) of 0 and 1."""
    checks.integer_at_least(1, simulations=simulations)
    if analysis.answered is not None:
        return analysis.answered[np.newaxis].astype(np.float64)
    draws = np.random.default_rng(seed).random((simulations, analysis.queries))
    return (draws < analysis.probabilities).astype(np.float64)


def _expected(
    analysis: Analysis,
    smooth: SmoothCost,
    patterns: NDArray[np.float64],
    parameters: GnssParameters,
    sensitivity: float | None = None,
) -> Expected:
    if sensitivity is None:
        sensitivity = float(np.mean([smooth.sensitivity(pattern, parameters.smoothness) for pattern in patterns]))
    checks_cost, _ = _public_costs(analysis, parameters.order, 0.0)
    renyi = smooth.value(analysis.probabilities) + checks_cost
    deviation = parameters.noise_scale * sensitivity
    total = renyi + parameters.cost + parameters.safety * deviation
    epsilon = converted(parameters.order, total, analysis.delta, analysis.conversion)
    return Expected(parameters, renyi, epsilon, deviation, sensitivity)


def converted(order: float, renyi: float, delta: float, conversion: str) -> float:
    """Convert a Rényi cost at one order to ε at δ, at least 0."""
    return max(0.0, float(CONVERSIONS[conversion](np.array([order]), np.array([renyi]), delta)[0]))


def _public_costs(analysis: Analysis, order: float, answered: float) -> tuple[float, float]:
    """Costs at ``order`` that no vote enters: of the checks, and the most that the sanitised part can be."""
    aggregator = analysis.aggregator
    if not has_check(aggregator):
        return 0.0, answered * float(aggregator.answer_independent(np.array([order]))[0])  # type: ignore[union-attr]
    all_checks = analysis.queries * float(aggregator.check.independent([order])[0])
    ceiling = answered * float(aggregator.answer.answer_independent([order])[0])
    return (0.0, ceiling + all_checks) if analysis.check == "data-dependent" else (all_checks, ceiling)
