"""Noise on a lattice, drawn exactly: round a value to multiples of a step, then add whole numbers of steps.

Floating-point noise on a floating-point value leaks the value through the gaps of the float grid. Here a value v
becomes z = round(v / step), and the release is (z + noise)·step with integer noise of an exactly known law. Rounding
moves each of the d coordinates by at most half a step, so two values at distance Δ lie at a distance of at most

    Δ/step + d  in L1,        Δ/step + √d  in L2,        Δ/step + 1  in the largest coordinate

steps, and the noise is scaled to that. The step is a power of two of about 2⁻¹⁰ of Δ, chosen from Δ and d alone, never
from the value.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from darrm.probability.exact_sampling import discrete_gaussian, discrete_laplace, uniform_below

_ROUNDING_SHARE = Fraction(1, 2**10)  # how much the rounding may add to the sensitivity
_SMALLEST_STEP_EXPONENT = -1000  # multiples of 2^-1000 are floats; a smaller sensitivity is treated as a larger one
_LARGEST_INT64_STEPS = 2.0**62


def step_for(sensitivity: float, coordinates: int) -> Fraction:
    """Choose the lattice's step: the largest power of two of at most 2⁻¹⁰·Δ/d.

    >>> step_for(1.0, 1), step_for(1.0, 3)
    (Fraction(1, 1024), Fraction(1, 4096))
    """
    target = Fraction(sensitivity) * _ROUNDING_SHARE / coordinates
    exponent = target.numerator.bit_length() - target.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > target  # the lengths say 2^(exponent - 1) < target < 2^(exponent + 1)
    return Fraction(2) ** max(exponent, _SMALLEST_STEP_EXPONENT)


def to_lattice(value: NDArray[np.float64], step: Fraction) -> NDArray[np.generic]:
    """Round (N,) values to whole numbers of steps, half to even, exactly: int64 where they fit, else Python's.

    >>> to_lattice(np.array([0.26, -1.0]), Fraction(1, 2)).tolist()
    [1, -2]
    """
    with np.errstate(over="ignore"):
        steps = value * float(1 / step) if step >= Fraction(1, 2**1000) else np.full(value.shape, np.inf)
    if np.all(np.abs(steps) < _LARGEST_INT64_STEPS):
        return np.rint(steps).astype(np.int64)  # a product by a power of two is exact
    return np.array([round(Fraction(float(number)) / step) for number in value], dtype=object)


def from_lattice(steps: list[int], step: Fraction) -> NDArray[np.float64]:
    """Return whole numbers of steps as the nearest floats (±∞ beyond them); this is post-processing.

    >>> from_lattice([3, -2], Fraction(1, 2))
    array([ 1.5, -1. ])
    """
    return np.array([_nearest_float(count * step) for count in steps], dtype=np.float64)


def laplace_release(
    value: NDArray[np.float64], sensitivity: float, epsilon: Fraction, rng: np.random.Generator | None
) -> NDArray[np.float64]:
    """Add discrete Laplace noise of scale ⌈(Δ/step + d)/ε⌉ steps to every coordinate: ε-private for L1 sensitivity Δ.

    With s ≥ (Δ/step + d)/ε, Pr[output | z] ∝ exp(−‖output − z‖₁/s) changes by at most e^{‖z − z′‖₁/s} ≤ e^ε.
    """
    step = step_for(sensitivity, value.size)
    scale = math.ceil((Fraction(sensitivity) / step + value.size) / epsilon)
    noise = discrete_laplace(Fraction(scale), value.size, uniform_below(rng))
    return _add(value, step, noise)


def gaussian_release(
    value: NDArray[np.float64], sensitivity: float, concentration: Fraction, rng: np.random.Generator | None
) -> NDArray[np.float64]:
    """Add discrete Gaussian noise of variance ⌈(Δ/step + √d)²/(2ρ)⌉ steps: ρ-concentrated DP for L2 sensitivity Δ.

    The bound ρ = Δ²/(2σ²) for integer vectors holds for the discrete Gaussian as for the continuous one [CKS20].
    """
    step = step_for(sensitivity, value.size)
    root = math.isqrt(value.size - 1) + 1  # an upper bound on √d
    steps = Fraction(sensitivity) / step + root
    variance = math.ceil(steps**2 / (2 * concentration))
    return _add(value, step, discrete_gaussian(Fraction(variance), value.size, uniform_below(rng)))


def _add(value: NDArray[np.float64], step: Fraction, noise: NDArray[np.int64]) -> NDArray[np.float64]:
    rounded = to_lattice(value.ravel(), step)
    # Python's whole numbers: the sum may leave 64 bits
    sums = [int(steps) + int(extra) for steps, extra in zip(rounded, noise, strict=True)]
    return from_lattice(sums, step).reshape(value.shape)


def _nearest_float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
