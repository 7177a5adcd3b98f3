"""GNSS: publish a data-dependent number with Gaussian noise scaled by its smooth sensitivity [P, Definition 22].

**Theorem.** Two neighboring outputs are N(f, (σ SS)²) and N(f', (σ SS')²) with |log(SS'/SS)| ≤ β and
|f − f'| ≤ min(SS, SS'). Their divergence at order λ < 1/(1 − e^{−2β}) is at most, with equality for some pair,

    ε = λ/(2σ²·(λ − (λ−1)e^{2β})) − β − ln(λ − (λ−1)e^{2β})/(2(λ−1)).

*Proof.* With u = (SS'/SS)² and Δ(u) = |f − f'|/SS the divergence is

    D(u) = λ·Δ(u)²/(2σ²(1 − λ + λu)) + (λ·ln u − ln(1 − λ + λu))/(2(λ − 1)).

Both terms are largest at u = e^{−2β}: for Δ² = min(1, u) the first falls in u on either side of 1, and the second falls
to 0 at u = 1 and rises more slowly after it. ∎
(`tests/pate/test_gnss.py`) [P, Theorem 23] as printed is smaller and never charged (docs/pate.md).
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np

from darrm.numerics.exact_sampling import discrete_gaussian, uniform_below
from darrm.util import checks

_SMOOTHNESS_ROUNDING = 1e-9  # relative error of SS and f per changed vote, added to β
_STEPS_PER_DEVIATION = 2**48  # of the discrete Gaussian in one standard deviation of the normal
_PARTS_PER_DECIMAL = 2**90  # parts of a step in a unit of the last decimal, at least
_LARGEST_ORDER, _SCALES = 1e9, (1e-9, 1e9)  # squares and exponentials stay far from overflow
_DECIMALS = 6  # of a published figure


@final
@dataclass(frozen=True)
class GnssParameters:
    """Parameters for publishing a data-dependent cost; choose them without the private votes.

    ``order`` is λ > 1, ``smoothness`` β in (0, ½·log(λ/(λ−1))) per changed vote, ``noise_scale`` σ_SS > 0 the deviation
    of the noise in units of SS_β. ``safety`` z ≥ 0 adds z·σ_SS·SS: the figure is below the cost of Theorem 6, which
    covers one direction, with probability Φ(−z).

    >>> round(GnssParameters(order=14.0, smoothness=0.0329, noise_scale=6.23).cost, 4)
    1.6071
    """

    order: float
    smoothness: float
    noise_scale: float
    safety: float = 0.0

    def __post_init__(self) -> None:
        checks.positive(smoothness=self.smoothness, noise_scale=self.noise_scale)
        check_publication(self.order, _LARGEST_ORDER, self.safety, ("noise_scale", self.noise_scale), _SCALES, unit="")
        if self.smoothness > 1.0 or _compute_margin(self.order, _round_up(self.smoothness)) <= 0.0:
            allowed = f"below log(order/(order-1))/2 = {largest_smoothness(self.order):.6g}"
            checks.fail("smoothness", self.smoothness, allowed, "take a smaller one")

    @property
    def cost(self) -> float:
        """The Rényi cost of the publication, for any votes."""
        return exact_cost(self.order, self.smoothness, self.noise_scale, self.safety)


def largest_smoothness(order: float) -> float:
    """Compute ½·log(λ/(λ−1)), the β of an infinite cost."""
    return -0.5 * math.log1p(-1.0 / order)


def exact_cost(order: float, smoothness: float, noise_scale: float, safety: float = 0.0) -> float:
    """Compute the worst divergence of two neighboring GNSS outputs.

    A ``safety`` z moves the mean by z·σ·|SS − SS'| more: Δ(u) = min(1, √u) + zσ·|1 − √u|. For u ≤ 1 the worst case
    remains u = e^{−2β}; for u ≥ 1 each term is bounded by its larger end.
    """
    beta = _round_up(smoothness)

    def divergence(root: float, log_root: float) -> float:  # the two terms of D(u)
        distance = min(1.0, root) + safety * noise_scale * abs(1.0 - root)
        mean = order * distance**2 / (2.0 * noise_scale**2 * (1.0 - order + order * root**2))
        spread = 2.0 * order * log_root - math.log1p(order * math.expm1(2.0 * log_root))
        return mean + spread / (2.0 * (order - 1.0))

    return max(divergence(math.exp(-beta), -beta), divergence(1.0, beta), divergence(math.exp(beta), beta))


def printed_cost(order: float, smoothness: float, noise_scale: float) -> float:
    """Compute [P, Theorem 23] as printed, λe^{2β}/σ² + (βλ − ½ ln(1 − 2λβ))/(λ − 1): too small for λβ > 1/4.

    >>> round(printed_cost(14.0, 0.0329, 6.23), 2)
    0.52
    """
    if not 0.0 < smoothness < 0.5 / order:
        checks.fail("smoothness", smoothness, f"in (0, 1/(2·order)) = (0, {0.5 / order:g})")
    mean_term = order * math.exp(2.0 * smoothness) / noise_scale**2
    return mean_term + (smoothness * order - 0.5 * math.log1p(-2.0 * order * smoothness)) / (order - 1.0)


def rules_of_thumb(epsilon: float, delta: float, *, safety: float = 0.0) -> GnssParameters:
    """Choose λ = 1 + 2·log(1/δ)/ε, β = 0.4/λ and σ_SS = 3·√((λ+1)/ε) without the votes [P, Section B.6].

    >>> chosen = rules_of_thumb(epsilon=2.0, delta=1e-5)
    >>> round(chosen.order, 3), round(chosen.smoothness, 4), round(chosen.noise_scale, 3), round(chosen.cost, 3)
    (12.513, 0.032, 7.798, 0.459)
    """
    order = order_for(epsilon, delta)
    return GnssParameters(order, 0.4 / order, 3.0 * math.sqrt((order + 1.0) / epsilon), safety)


def order_for(epsilon: float, delta: float) -> float:
    checks.positive(epsilon=epsilon)
    checks.open_probability(delta=delta)
    return 1.0 - 2.0 * math.log(delta) / epsilon


def check_publication(
    order: float, largest_order: float, safety: float, noise: tuple[str, float], scales: tuple[float, float], unit: str
) -> None:
    name, scale = noise
    checks.non_negative(safety=safety)
    if not 1.0 < order <= largest_order:
        checks.fail("order", order, f"above 1 and at most {largest_order:g}")
    if not scales[0] <= scale <= scales[1] or safety > scales[1]:
        checks.fail(name, f"{scale:g} (safety {safety:g})", f"in [{scales[0]:g}, {scales[1]:g}]{unit}")


def best_noise_scale(order: float, smoothness: float, sensitivity: float) -> float:
    """Minimize cost + 2·σ·SS over σ: σ = (a/SS)^{1/3} for a cost of a/σ² + constant."""
    checks.positive(sensitivity=sensitivity)
    return float((order / (2.0 * _compute_margin(order, _round_up(smoothness))) / sensitivity) ** (1.0 / 3.0))


def noisy_value(
    value: float, sensitivity: float, parameters: GnssParameters, *, rng: np.random.Generator | None = None
) -> float:
    """Draw value + safety·σ·SS + σ·SS·N(0, 1), rounded to six decimals; ``rng`` is for experiments only.

    The normal draw is (X + U)/s, s = 2⁴⁸, with X a discrete Gaussian of deviation s and U uniform in [−½, ½), in 2⁹⁰ or
    more parts for each unit of the last decimal (without U the density of the numbers would depend on value and SS). A
    unit cell has weight e^{−x²/(2s²)}·(1 + O(x²/s⁴)), and within it a normal density changes by a part of |x|/s². So
    each number has its probability under rounded Definition 22 up to a factor of 1 ± 2⁻³⁹ for |x| < 2⁸·s: a divergence
    of order λ errs by less than 2⁻³⁸·(2λ − 1)/(λ − 1).
    """
    checks.finite(value=value)
    checks.non_negative(sensitivity=sensitivity)
    deviation = Fraction(parameters.noise_scale) * Fraction(sensitivity)
    part_count = 2 ** (math.ceil(deviation * 10**_DECIMALS * _PARTS_PER_DECIMAL) // _STEPS_PER_DEVIATION).bit_length()
    uniform = uniform_below(rng)
    offset = Fraction(2 * int(uniform(np.array([part_count], dtype=object))[0]) + 1 - part_count, 2 * part_count)
    draw = (int(discrete_gaussian(Fraction(_STEPS_PER_DEVIATION) ** 2, 1, uniform)[0]) + offset) / _STEPS_PER_DEVIATION
    value_drawn = Fraction(value) + deviation * (Fraction(parameters.safety) + draw)
    return float(round(value_drawn, _DECIMALS))


def _round_up(smoothness: float) -> float:
    return smoothness * (1.0 + _SMOOTHNESS_ROUNDING) + _SMOOTHNESS_ROUNDING


def _compute_margin(order: float, smoothness: float) -> float:
    """Compute λ − (λ − 1)·e^{2β}, positive for a finite cost."""
    return order - (order - 1.0) * math.exp(2.0 * smoothness)
