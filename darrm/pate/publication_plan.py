"""What publishing a run's cost would lead to, on average, and the parameters that make it cheap [P, Section B.6].

For planning, on votes that are public or simulated: parameters that were chosen on private votes reveal
something of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.losses.renyi import CONVERSIONS
from darrm.pate.analysis import Analysis
from darrm.pate.cost_shape import ConditionError
from darrm.pate.gnss import GnssParameters, best_noise_scale, largest_smoothness
from darrm.pate.smooth_cost import ROUNDING, SmoothCost, converted, public_costs, smooth_cost

ORDERS_TRIED = 3
# of the largest possible β; smaller ones need far distances, and noise that is hardly smaller
SMOOTHNESS_RANGE = (0.3, 0.98)


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
    """Search (λ, β, σ_SS) with the smallest expected ε plus two standard deviations of its noise [P, Section B.6].

    Parameters
    ----------
    analysis
        Of votes that are public or simulated: chosen on private votes, the parameters themselves reveal something.
    order
        λ; by default the best among the `ORDERS_TRIED` orders of the analysis's grid with the smallest ε for which the
        conditions of [P, Section B.2] hold.
    simulations, seed
        As in `expected_publication`.
    grid
        How many values of β to try.

    Raises
    ------
    ValueError
        For `LNMax`.
    ConditionError
        If the conditions fail at the order, or at every order of the grid.
    """
    checks.integer_at_least(1, grid=grid)
    patterns = _patterns(analysis, simulations, seed)
    if order is not None:
        return _search_at(analysis, patterns, order, grid)
    curve = analysis.curve
    epsilons = CONVERSIONS[analysis.conversion](curve.orders, curve.values, analysis.delta)
    found: list[Expected] = []
    refused: ConditionError | None = None
    for candidate in curve.orders[np.argsort(epsilons)]:
        try:
            found.append(_search_at(analysis, patterns, float(candidate), grid))
        except ConditionError as error:
            refused = refused or error
        if len(found) == ORDERS_TRIED:
            break
    if not found and refused is not None:
        raise refused
    return min(found, key=_with_two_deviations)


def _search_at(analysis: Analysis, patterns: NDArray[np.float64], order: float, grid: int) -> Expected:
    candidates = largest_smoothness(order) * np.linspace(*SMOOTHNESS_RANGE, grid)
    smooth = smooth_cost(analysis, order, float(candidates[0]))
    found: list[Expected] = []
    for smoothness in map(float, candidates):
        sensitivity = float(np.mean([smooth.sensitivity(pattern, smoothness) for pattern in patterns]))
        scale = best_noise_scale(order, smoothness, max(sensitivity, ROUNDING))
        found.append(_expected(analysis, smooth, patterns, GnssParameters(order, smoothness, scale), sensitivity))
    return min(found, key=_with_two_deviations)


def _with_two_deviations(one: Expected) -> float:
    return one.epsilon + 2.0 * one.deviation


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
    checks_cost, _ = public_costs(analysis, parameters.order, 0.0)
    renyi = smooth.value(analysis.probabilities) + checks_cost
    deviation = parameters.noise_scale * sensitivity
    total = renyi + parameters.cost + parameters.safety * deviation
    epsilon = converted(parameters.order, total, analysis.delta, analysis.conversion)
    return Expected(parameters, renyi, epsilon, deviation, sensitivity)
