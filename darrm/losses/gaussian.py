"""How much noise GNMax needs for a target (ε, δ): the paper's way, and the least that suffices.

Two counts change by 1, so the noisy histogram is a Gaussian mechanism of sensitivity √2, and its argmax costs no more.

>>> target = PrivacyParams("0.2676", "0.0003")
>>> found = renyi_sigma(target)
>>> round(found.sigma, 2), round(found.order, 2), round(analytic_sigma(target), 2)
(21.46, 62.31, 12.9)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr

from darrm import checks
from darrm.privacy import PrivacyParams
from darrm.probability.bisection import last_allowed

SENSITIVITY = math.sqrt(2.0)
LARGEST_ORDER, ORDER_STEP = 500.0, 0.5  # the grid of [D, Section D.2.1]
# ndtr errs by a few units in the last place; the search aims at a δ that much smaller
ROUNDING = 1e-12


@dataclass(frozen=True)
class RenyiSigma:
    """The noise that the Rényi bound of GNMax asks for, and the order at which it does.

    Attributes
    ----------
    sigma
        σ, in votes.
    order
        λ.
    """

    sigma: float
    order: float


def renyi_sigma(target: PrivacyParams, queries: int = 1) -> RenyiSigma:
    """Find σ for GNMax answers as [D, Section D.2.1] does: the least over a grid of orders.

    Qλ/σ² + log(1/δ)/(λ−1) = ε gives σ² = Qλ/(ε − log(1/δ)/(λ−1)), for λ from log(1/δ)/ε + 1 to 500 in steps of 0.5.
    The σ of [D, Table 4], 21.46 and 22.46, come out; its λ (34.31 and 35.74) do not: in the same formula they give
    σ = 37.7 and 40.2, and the minimum lies at 62.31 and 64.74.

    Parameters
    ----------
    target
        (ε, δ) of all answers together, both positive.
    queries
        Q, how many answers.

    Raises
    ------
    ValueError
        If ε or δ is 0, or so small that the grid ends before it starts.

    Examples
    --------
    >>> renyi_sigma(PrivacyParams("0.2556", "0.0003")).sigma.__round__(2)
    22.46
    """
    checks.integer_at_least(1, queries=queries)
    epsilon, log_inverse_delta = _target(target)
    smallest = log_inverse_delta / epsilon + 1.0
    orders = np.arange(smallest + ORDER_STEP, LARGEST_ORDER + ORDER_STEP / 2.0, ORDER_STEP)
    if not orders.size:
        checks.fail(
            "target.epsilon",
            epsilon,
            f"at least {log_inverse_delta / (LARGEST_ORDER - 1.0):.4g} for this delta",
            f"the grid of orders ends at {LARGEST_ORDER:g}; use analytic_sigma",
        )
    variances = queries * orders / (epsilon - log_inverse_delta / (orders - 1.0))
    best = int(np.argmin(variances))
    return RenyiSigma(math.sqrt(float(variances[best])), float(orders[best]))


def analytic_sigma(target: PrivacyParams, *, sensitivity: float = SENSITIVITY) -> float:
    """Find the least σ for which a Gaussian mechanism is (ε, δ)-private: analytic calibration [BW18, Theorem 8].

    The condition, with a = s/(2σ) and b = εσ/s for sensitivity s: Φ(a − b) − e^ε·Φ(−a − b) ≤ δ. It is exact, so no
    smaller σ will do for the noisy histogram. It is one answer's guarantee; many compose better as Rényi curves.

    Parameters
    ----------
    target
        (ε, δ), δ > 0.
    sensitivity
        s > 0; √2 for GNMax, 1 for a noisy threshold check.

    Examples
    --------
    >>> round(analytic_sigma(PrivacyParams(1, 1e-5), sensitivity=1.0), 4)
    3.7306
    """
    checks.positive(sensitivity=sensitivity)
    epsilon, _ = _target(target)
    delta = target.delta * (1.0 - ROUNDING)

    def private(sigma: float) -> bool:
        return gaussian_delta(epsilon, sigma, sensitivity) <= delta

    low = high = sensitivity
    while not private(high):
        high *= 2.0
    while private(low):
        low /= 2.0
    return last_allowed(private, inside=high, outside=low, geometric=True)


def gaussian_delta(epsilon: float, sigma: float, sensitivity: float) -> float:
    """Compute the exact δ of a Gaussian mechanism at ε: Φ(a − b) − e^ε·Φ(−a − b) [BW18, Theorem 8]."""
    a, b = sensitivity / (2.0 * sigma), epsilon * sigma / sensitivity
    return float(ndtr(a - b) - math.exp(min(epsilon + float(log_ndtr(-a - b)), 0.0)))


def _target(target: PrivacyParams) -> tuple[float, float]:
    if not isinstance(target, PrivacyParams):
        checks.fail("target", target, "PrivacyParams(epsilon, delta)")
    checks.positive(target_epsilon=target.epsilon)
    checks.open_probability(target_delta=target.delta, advice="Gaussian noise gives no (epsilon, 0)")
    return target.epsilon, -math.log(target.delta)
