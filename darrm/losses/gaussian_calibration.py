"""How much Gaussian noise (ε, δ) needs, for every ε > 0.

Corollary 12 of [S] takes σ² > 2 Δ² log(1.25/δ)/ε², whose proof needs ε ≤ 1; for larger ε it is wrong. Here the noise is
calibrated through concentrated differential privacy: ρ-concentrated DP implies (ε, δ) for every order α > 1 with

    δ = exp((α − 1)(α ρ − ε)) / (α − 1) · (1 − 1/α)^α                                  [CKS20]

so any α gives a valid bound, and the best of a fine grid is taken.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from darrm import checks
from darrm.privacy import PrivacyParams
from darrm.probability.bisection import last_allowed

ORDERS_LESS_ONE = np.geomspace(1e-3, 1e9, 20_001)
LOG_MARGIN = 1e-9  # far above the rounding errors of the formula, whose terms stay below 1e4 where they matter
HALVINGS = 60


def concentration_for(privacy: PrivacyParams) -> Fraction:
    """Compute the largest ρ (rounded down) such that ρ-concentrated DP implies (ε, δ).

    Raises
    ------
    ValueError
        If ε or δ is 0.

    Examples
    --------
    >>> from darrm.privacy import PrivacyParams
    >>> rho = concentration_for(PrivacyParams(1, 1e-5))
    >>> round(1 / math.sqrt(2 * rho), 4), round(math.sqrt(2 * math.log(1.25e5)), 4)    # σ/Δ here and in Corollary 12
    (4.0451, 4.8448)
    """
    checks.positive(epsilon=privacy.epsilon, advice="the Gaussian mechanism needs epsilon > 0")
    checks.positive(delta=privacy.delta, advice="the Gaussian mechanism needs delta > 0; Laplace does without")
    target = math.log(privacy.delta) - LOG_MARGIN
    epsilon = math.nextafter(privacy.epsilon, 0.0)
    # ρ-concentrated DP with ρ ≥ ε does not give ε at any δ of use
    rho = last_allowed(lambda trial: log_delta(trial, epsilon) <= target, 0.0, epsilon, steps=HALVINGS)
    if rho == 0.0:
        checks.fail("delta", privacy.delta, "larger for this epsilon", "no Gaussian noise of practical size reaches it")
    return Fraction(rho)


def log_delta(rho: float, epsilon: float) -> float:
    """Bound log δ at ε for ρ-concentrated DP by the best order of a grid [CKS20]."""
    less_one = ORDERS_LESS_ONE
    alpha = 1.0 + less_one
    # log(1 − 1/α) = log(less_one/α)
    bounds = less_one * (alpha * rho - epsilon) - np.log(less_one) + alpha * np.log(less_one / alpha)
    return float(np.min(bounds))
