"""Bounds on the probability that noise reverses a gap in votes, and so on q, the probability of a wrong label.

A class that is g votes behind reaches the winner with probability Pr[D ≥ g], where D is the difference of two noises.

==========================  ==========================================================================================
noise                       Pr[D ≥ g], or the bound in use
==========================  ==========================================================================================
continuous Gaussian σ       ½ erfc(g/(2σ)), exact [P, Proposition 7]
discrete Gaussian σ         at most c · ½ erfc((g − ½)/(2σ)) for g ≥ 1, c = 1 + 2.1·e^{−π²σ²} (proof below)
continuous Laplace 1/γ      (2 + γg)/4 · e^{−γg}, exact [P17, Lemma 4]
discrete Laplace 1/γ        exact geometric sums, see `laplace_log_tails`
==========================  ==========================================================================================

**Theorem.** For σ ≥ ½ and g ≥ 1 the difference D of two discrete Gaussians has Pr[D ≥ g] ≤ c · ½ erfc((g − ½)/(2σ)).
*Proof.* Let f(x) = e^{−x²/(4σ²)}. Completing the square, Pr[D = k] = f(k)·S_k/Z² with Z = Σ_j e^{−j²/(2σ²)} and
S_k = Σ_j e^{−(j + k/2)²/σ²} ≤ S_0.

1. d(k) = ∫_{k−½}^{k+½} f − f(k) is a Gaussian smoothing of a box minus a point mass. That difference changes sign
   twice, and Gaussian smoothing adds no sign change (total positivity). So over k = 0, 1, … the sign of d is − then +.
2. E(g) = Σ_{k≥g} d(k) therefore rises and then falls as g decreases. Its smallest value on g ≥ 1 is its limit 0 or
   E(1) = ½(Σ_{k∈Z} d(k) − d(0)). By Poisson summation Σ_{k∈Z} d(k) > −2σ√π·2.1·e^{−4π²σ²}, and −d(0) ≥ 1/(24·2σ²) −
   1/(1920·σ⁴·(4/3)) is larger for σ ≥ ½. So Σ_{k≥g} f(k) ≤ ∫_{g−½}^∞ f for every g ≥ 1.
3. Poisson summation again: S_0/Z² ≤ (1 + 2.1·e^{−π²σ²})/(2σ√π) for σ ≥ ½. ∎ (`tests/noisy_max/test_noise_tails.py`)

Ties count as reached, so the bound holds for every tie rule. At g = 0 the formula exceeds ½, and a q above ½ is never
used. With f(x) = e^{−x²/(2σ²)} the same steps bound one discrete Gaussian: Pr[X ≥ k] ≤ ½ erfc((k − ½)/(√2σ)) for k ≥ 1
and σ ≥ √½, as Z ≥ σ√(2π). A smaller σ makes the event less likely.

All arithmetic is on logarithms, for probabilities from 1e-300 to 1 − 1e-16.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.noisy_max.noise_law import log_above, log_masses_of
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.numerics.special import log_ndtr
from darrm.util import checks

NOISES = ("continuous", "discrete")
_SMALLEST_DISCRETE_SIGMA = 0.5
_SMALLEST_SIGMA, _LARGEST_SIGMA = 1e-6, 1e11  # votes: σ² and its inverse stay far from overflow
MOST_SUMMED = 2**20  # values of a discrete Gaussian in a table; beyond, the bound is within 1e-9
# log_ndtr and the rounding of its argument err by less than 2^-48 of |log|; the tests compare with fifty digits
_RELATIVE_ROUNDING = 2.0**-46


def check_noise(sigma: float, noise: str) -> None:
    """Raise `ValueError` unless the noise is known and its σ within the range of the bounds."""
    checks.positive(sigma=sigma)
    checks.one_of(NOISES, noise=noise)
    if not _SMALLEST_SIGMA <= sigma <= _LARGEST_SIGMA:
        checks.fail("sigma", sigma, f"in [{_SMALLEST_SIGMA:g}, {_LARGEST_SIGMA:g}] votes")
    if noise == "discrete" and sigma < _SMALLEST_DISCRETE_SIGMA:
        checks.fail("sigma", sigma, f"at least {_SMALLEST_DISCRETE_SIGMA} for discrete noise", "add more noise")


def log_tail_factor(sigma: float, noise: str) -> float:
    """Compute log c, the factor of discrete noise: 0 for continuous noise."""
    return math.log1p(2.1 * math.exp(-((math.pi * sigma) ** 2))) if noise == "discrete" else 0.0


def gaussian_log_tails(gaps: ArrayLike, sigma: float, noise: str = "continuous") -> NDArray[np.float64]:
    """Bound log Pr[D ≥ g] for Gaussian noise of σ votes on each count, elementwise for whole g ≥ 0, rounded up.

    >>> np.exp(gaussian_log_tails([0, 1, 2], sigma=1.0)).round(4).tolist()
    [0.5, 0.2398, 0.0786]
    """
    check_noise(sigma, noise)
    apart = np.asarray(gaps, dtype=np.float64) - (0.5 if noise == "discrete" else 0.0)
    return _round_up(log_ndtr(-apart / (math.sqrt(2.0) * sigma)) + log_tail_factor(sigma, noise))


def laplace_log_tails(gaps: ArrayLike, gamma: float, noise: str = "continuous") -> NDArray[np.float64]:
    """Compute log Pr[D ≥ g] for Laplace noise of scale 1/γ on each count, elementwise for whole g ≥ 0, rounded up.

    For the discrete law with a = e^{−γ}: Pr[D = k] = ((1 − a)/(1 + a))²·a^k·(k + b), b = (1 + a²)/(1 − a²), and
    Pr[D ≥ g] = ((1 − a)/(1 + a))²·a^g·((g + b)/(1 − a) + a/(1 − a)²).

    >>> np.exp(laplace_log_tails([0, 1], gamma=1.0)).round(4).tolist()
    [0.5, 0.2759]
    """
    checks.positive(gamma=gamma)
    checks.one_of(NOISES, noise=noise)
    apart = np.asarray(gaps, dtype=np.float64)
    if noise == "continuous":
        return _round_up(np.log((2.0 + gamma * apart) / 4.0) - gamma * apart)
    a, one_minus_a = math.exp(-gamma), -math.expm1(-gamma)
    # multiplied out, because 1 − a may be tiny
    weight = apart * one_minus_a + (1.0 + a * a) / (1.0 + a) + a
    return _round_up(np.log(weight) - 2.0 * math.log1p(a) - gamma * apart)


def discrete_gaussian_log_survival(points: NDArray[np.int64], sigma: float) -> NDArray[np.float64]:
    """Compute log Pr[X ≥ k] elementwise, where Pr[X = x] is proportional to e^{−x²/(2σ²)}.

    The relative error is below 1e-12. For wide noise the smaller of Pr[X ≥ k] and Pr[X < k] is an upper bound.
    """
    checks.positive(sigma=sigma)
    last = int(np.abs(points).max()) + math.ceil(40.0 * sigma) + 1  # beyond: below e^-800 of the tails inside
    if last > MOST_SUMMED:
        apart = np.where(points >= 1, points, 1 - points) - 0.5
        smaller = _round_up(log_ndtr(-apart / max(sigma, math.sqrt(0.5))))
        return np.where(points >= 1, smaller, np.log1p(-np.exp(smaller)))  # smaller is below log ½
    return np.asarray(log_above(log_masses_of(DiscreteGaussian(sigma), -last, last))[last + points])


def sum_of_tails(gaps: NDArray[np.int64], log_tails: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute log Σ_i Pr[D ≥ gap_i] along the last axis, at most 0, without the winner, whose gap is −1."""
    logs = np.where(gaps < 0, -np.inf, log_tails)
    largest = logs.max(axis=-1)
    logs -= largest[..., np.newaxis]
    np.exp(logs, out=logs)
    total = largest + np.log(logs.sum(axis=-1))
    # adding C positive terms errs by less than C·2^-52 relative
    return np.asarray(np.minimum(total + 2.0 * gaps.shape[-1] * np.finfo(np.float64).eps, 0.0))


def winner_gaps(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Compute by how many votes each class is behind the row's plurality class; −1 marks that class."""
    winners = counts.argmax(axis=1)
    rows = np.arange(counts.shape[0])
    gaps = counts[rows, winners][:, np.newaxis] - counts
    gaps[rows, winners] = -1
    return np.asarray(gaps)


def _round_up(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.minimum(logs + _RELATIVE_ROUNDING * (1.0 + np.abs(logs)), 0.0)
