"""Three calibrations of Gaussian noise to a target (ε, δ), and the result type of calibrations.

====================  ==================  =============================================================================
here                  source              noise
====================  ==================  =============================================================================
`renyi_sigma`         [D, Section D.2.1]  GNMax as in the paper: the least over a grid of Rényi orders
`analytic_sigma`      [BW18, Theorem 8]   the least for one answer, continuous noise
`concentrated_sigma`  [CKS20]             the least by concentrated differential privacy, discrete noise included
====================  ==================  =============================================================================

GNMax's noisy histogram has sensitivity √2; its argmax costs at most as much.

>>> target = PrivacyParams("0.2676", "0.0003")
>>> print(renyi_sigma(target))
sigma = 21.4606 (order 62.3129) for (0.2676, 0.0003), by the Rényi divergences of a grid
>>> print(analytic_sigma(target))
sigma = 12.9039 for (0.2676, 0.0003), by the exact divergence of a Gaussian mechanism
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from darrm.numerics.bisection import bisect_safe
from darrm.numerics.special import log_ndtr, ndtr
from darrm.privacy import PrivacyPair, PrivacyParams
from darrm.util import checks

SENSITIVITY = math.sqrt(2.0)
_LARGEST_ORDER, _ORDER_STEP = 500.0, 0.5  # the grid of [D, Section D.2.1]
# ndtr errs by a few units in the last place, so the search reduces δ by this share
_ROUNDING = 1e-12
_ORDERS_LESS_ONE = np.geomspace(1e-3, 1e9, 20_001)
_LOG_MARGIN = 1e-9  # far above the rounding errors of the formula, whose relevant terms are below 1e4


@dataclass(frozen=True)
class Calibration:
    """A parameter that meets a privacy target, such as the standard deviation of noise."""

    parameter: str  # its name, such as "sigma"
    value: float
    target: PrivacyParams  # satisfied by the value
    bound: str  # the proof in words
    settings: Mapping[str, float] = field(default_factory=dict, hash=False)  # further results of the search, by name

    def __str__(self) -> str:
        settings = ", ".join(f"{name} {value:.6g}" for name, value in self.settings.items())
        details = f" ({settings})" if settings else ""
        return f"{self.parameter} = {self.value:.6g}{details} for {self.target}, by {self.bound}"


def renyi_sigma(target: PrivacyPair, queries: int = 1) -> Calibration:
    """Find σ in votes for Q GNMax answers as in [D, Section D.2.1]: the least over a grid of orders.

    Qλ/σ² + log(1/δ)/(λ−1) = ε gives σ², for λ from log(1/δ)/ε + 1 to 500 in steps of 0.5. This reproduces the σ of [D,
    Table 4], 21.46 and 22.46, at λ = 62.31 and 64.74, not its λ (34.31 and 35.74). `ValueError` if ε or δ is 0, or too
    small for the grid.

    >>> renyi_sigma(PrivacyParams("0.2556", "0.0003")).value.__round__(2)
    22.46
    """
    checks.integer_at_least(1, queries=queries)
    target = _check_target(target)
    epsilon, log_inverse_delta = target.epsilon, -math.log(target.delta)
    smallest_order = log_inverse_delta / epsilon + 1.0
    first_order = min(smallest_order, _LARGEST_ORDER) + _ORDER_STEP
    orders = np.arange(first_order, _LARGEST_ORDER + _ORDER_STEP / 2.0, _ORDER_STEP)
    if not orders.size:
        checks.fail(
            "target.epsilon",
            epsilon,
            f"at least {log_inverse_delta / (_LARGEST_ORDER - 1.0):.4g} for this delta",
            f"the grid of orders ends at {_LARGEST_ORDER:g}; use analytic_sigma",
        )
    variances = queries * orders / (epsilon - log_inverse_delta / (orders - 1.0))
    best = int(np.argmin(variances))
    sigma, order = math.sqrt(float(variances[best])), float(orders[best])
    return Calibration("sigma", sigma, target, "the Rényi divergences of a grid", {"order": order})


def analytic_sigma(target: PrivacyPair, *, sensitivity: float = SENSITIVITY) -> Calibration:
    """Find the least σ for which a Gaussian mechanism is (ε, δ)-private, for one answer [BW18, Theorem 8].

    The exact condition for sensitivity s is Φ(a − b) − e^ε·Φ(−a − b) ≤ δ with a = s/(2σ) and b = εσ/s; ε, δ, s > 0.

    >>> round(analytic_sigma(PrivacyParams(1, 1e-5), sensitivity=1.0).value, 4)
    3.7306
    """
    checks.positive(sensitivity=sensitivity)
    target = _check_target(target)
    epsilon, delta = target.epsilon, target.delta * (1.0 - _ROUNDING)

    def is_private(sigma: float) -> bool:
        return gaussian_delta(epsilon, sigma, sensitivity) <= delta

    low = high = sensitivity
    while not is_private(high):
        high *= 2.0
    while is_private(low):
        low /= 2.0
    sigma = bisect_safe(is_private, inside=high, outside=low, geometric=True)
    return Calibration("sigma", sigma, target, "the exact divergence of a Gaussian mechanism")


def gaussian_delta(epsilon: float, sigma: float, sensitivity: float) -> float:
    """Compute Φ(a − b) − e^ε·Φ(−a − b)."""
    a, b = sensitivity / (2.0 * sigma), epsilon * sigma / sensitivity
    return float(ndtr(a - b) - math.exp(min(epsilon + float(log_ndtr(-a - b)), 0.0)))


def concentrated_sigma(target: PrivacyPair) -> Calibration:
    """Find σ for sensitivity 1 through concentrated differential privacy: for every ε > 0, and for discrete noise too.

    σ² = Δ²/(2ρ), and ρ-concentrated DP implies (ε, δ) for every order α > 1 with

        δ = exp((α − 1)(α ρ − ε)) / (α − 1) · (1 − 1/α)^α                                  [CKS20].

    (Corollary 12 of [S], σ² > 2 Δ² log(1.25/δ)/ε², is wrong for ε > 1.) The settings contain ρ, rounded down, for exact
    draws. `ValueError` if ε or δ is 0, or δ too small for ε.

    >>> calibrated = concentrated_sigma(PrivacyParams(1, 1e-5))
    >>> round(calibrated.value, 4), round(math.sqrt(2 * math.log(1.25e5)), 4)    # σ/Δ here and in Corollary 12
    (4.0451, 4.8448)
    """
    target = PrivacyParams.of(target, "target")
    checks.positive(epsilon=target.epsilon, advice="the Gaussian mechanism needs epsilon > 0")
    checks.positive(delta=target.delta, advice="the Gaussian mechanism needs delta > 0; Laplace does without")
    log_delta = math.log(target.delta) - _LOG_MARGIN
    epsilon = math.nextafter(target.epsilon, 0.0)
    orders_less_one = _ORDERS_LESS_ONE
    alpha = 1.0 + orders_less_one
    log_share = alpha * np.log(orders_less_one / alpha) - np.log(orders_less_one)  # log of (1 − 1/α)^α/(α − 1)

    def is_sufficient(rho: float) -> bool:
        return float(np.min(orders_less_one * (alpha * rho - epsilon) + log_share)) <= log_delta

    # ρ-concentrated DP with ρ ≥ ε gives ε at no useful δ
    rho = bisect_safe(is_sufficient, 0.0, epsilon, steps=60)
    if rho == 0.0:
        checks.fail("delta", target.delta, "larger for this epsilon", "no Gaussian noise of practical size reaches it")
    return Calibration("sigma", 1.0 / math.sqrt(2.0 * rho), target, "concentrated differential privacy", {"rho": rho})


def _check_target(pair: PrivacyPair) -> PrivacyParams:
    target = PrivacyParams.of(pair, "target")
    checks.positive(target_epsilon=target.epsilon)
    checks.open_probability(target_delta=target.delta, advice="Gaussian noise gives no (epsilon, 0)")
    return target
