"""How likely noise turns a gap in votes around: the tails behind every bound on q.

A rival that is g votes behind overtakes (or ties) with probability Pr[D ≥ g], D = the rival's noise minus the winner's.

==========================  ==========================================================================================
noise                       Pr[D ≥ g], or the bound on it that is used
==========================  ==========================================================================================
continuous Gaussian σ       ½ erfc(g/(2σ)), exact [P, Proposition 7]
discrete Gaussian σ         at most c · ½ erfc((g − ½)/(2σ)) for g ≥ 1, c = 1 + 2.1·e^{−π²σ²} (proof below)
continuous Laplace 1/γ      (2 + γg)/4 · e^{−γg}, exact [P17, Lemma 4]
discrete Laplace 1/γ        exact geometric sums, see `laplace_log_tails`
==========================  ==========================================================================================

Why the discrete Gaussian's tail is bounded so. Write f(x) = e^{−x²/(4σ²)}. Completing the square,
Pr[D = k] = f(k)·S_k/Z² with Z = Σ_j e^{−j²/(2σ²)} and S_k = Σ_j e^{−(j + k/2)²/σ²} ≤ S_0.

1. d(k) = ∫_{k−½}^{k+½} f − f(k) is a Gaussian smoothing of (a box minus a point mass), which changes sign twice on the
   line; smoothing by a Gaussian adds no sign change (total positivity). So over k = 0, 1, … the sign of d is − then +.
2. E(g) = Σ_{k≥g} d(k) therefore rises and then falls as g decreases, and its smallest value on g ≥ 1 is the limit 0 at
   infinity or E(1) = ½(Σ_{k∈Z} d(k) − d(0)). By Poisson summation Σ_{k∈Z} d(k) > −2σ√π·2.1·e^{−4π²σ²}, while
   −d(0) ≥ 1/(24·2σ²) − 1/(1920·σ⁴·(4/3)) is larger for σ ≥ ½. So Σ_{k≥g} f(k) ≤ ∫_{g−½}^∞ f for every g ≥ 1.
3. Poisson summation again: S_0/Z² ≤ (1 + 2.1·e^{−π²σ²})/(2σ√π) for σ ≥ ½.

Ties count as overtaking, so the bound holds for every rule that breaks them. For g = 0 the formula is used too; it is
above ½ there, and no cost is ever drawn from a q above ½.

The same steps with f(x) = e^{−x²/(2σ²)} bound one discrete Gaussian: Pr[X ≥ k] ≤ ½ erfc((k − ½)/(√2σ)) for k ≥ 1 and
σ ≥ √½, because its Z ≥ σ√(2π) by Poisson summation. A smaller σ makes it only less likely: the ratio of the weights of
|X| = x under two σ is monotone in x.

All arithmetic is on logarithms, for probabilities from 1e-300 to 1 − 1e-16.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.errors import checks
from darrm.probability.special import log_ndtr


def log1mexp(x: ArrayLike) -> NDArray[np.float64]:
    """Compute log(1 − e^x) for x ≤ 0 without cancellation; −∞ at 0.

    >>> round(float(log1mexp(-1e-20)), 9), float(log1mexp(-50.0))
    (-46.05170186, -1.9287498479639178e-22)
    """
    values = np.asarray(x, dtype=np.float64)
    if np.any(values > 0):
        raise ValueError("log1mexp needs x <= 0: 1 - exp(x) would be negative")
    with np.errstate(divide="ignore"):
        near_zero = np.log(-np.expm1(values))
        far = np.log1p(-np.exp(values))
    return np.where(values > -np.log(2.0), near_zero, far)


def log_sum(values: ArrayLike, axis: int = -1) -> NDArray[np.float64]:
    """Compute log Σ e^x along an axis; −∞ stands for 0.

    >>> round(float(log_sum(np.log([0.25, 0.5]))), 12)
    -0.287682072452
    """
    return np.asarray(np.logaddexp.reduce(np.asarray(values, dtype=np.float64), axis=axis))


NOISES = ("continuous", "discrete")
_SMALLEST_DISCRETE_SIGMA = 0.5
_SMALLEST_SIGMA, _LARGEST_SIGMA = 1e-6, 1e11  # votes: σ² and its inverse stay far from overflow
MOST_SUMMED = 2**20  # values of a discrete Gaussian that are summed one by one: beyond, the bound is closer than 1e-9
# log_ndtr and the rounding of its argument err by less than 2^-48 of |log|; the tests compare with fifty digits
_RELATIVE_ROUNDING = 2.0**-46
LogTails = Callable[[NDArray[np.int64]], NDArray[np.float64]]  # gaps to log Pr[D ≥ g], elementwise


def check_noise(sigma: float, noise: str) -> None:
    """Raise `ValueError` unless the noise is known and its σ within the range that the bounds cover."""
    checks.positive(sigma=sigma)
    checks.one_of(NOISES, noise=noise)
    if not _SMALLEST_SIGMA <= sigma <= _LARGEST_SIGMA:
        checks.fail("sigma", sigma, f"in [{_SMALLEST_SIGMA:g}, {_LARGEST_SIGMA:g}] votes")
    if noise == "discrete" and sigma < _SMALLEST_DISCRETE_SIGMA:
        checks.fail("sigma", sigma, f"at least {_SMALLEST_DISCRETE_SIGMA} for discrete noise", "add more noise")


def log_tail_factor(sigma: float, noise: str) -> float:
    """Compute log c, the factor that the lattice costs: 0 for continuous noise."""
    return math.log1p(2.1 * math.exp(-((math.pi * sigma) ** 2))) if noise == "discrete" else 0.0


def gaussian_log_tails(gaps: ArrayLike, sigma: float, noise: str = "continuous") -> NDArray[np.float64]:
    """Bound log Pr[D ≥ g] for Gaussian noise of σ votes on each count, elementwise for whole g ≥ 0, rounded up.

    >>> np.exp(gaussian_log_tails([0, 1, 2], sigma=1.0)).round(4).tolist()
    [0.5, 0.2398, 0.0786]
    """
    check_noise(sigma, noise)
    # the lattice shortens every gap by half a vote
    apart = np.asarray(gaps, dtype=np.float64) - (0.5 if noise == "discrete" else 0.0)
    return _rounded_up(log_ndtr(-apart / (math.sqrt(2.0) * sigma)) + log_tail_factor(sigma, noise))


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
        return _rounded_up(np.log((2.0 + gamma * apart) / 4.0) - gamma * apart)
    a, one_minus_a = math.exp(-gamma), -math.expm1(-gamma)
    # multiplied out, so that nothing is divided by 1 − a, which may be tiny
    weight = apart * one_minus_a + (1.0 + a * a) / (1.0 + a) + a
    return _rounded_up(np.log(weight) - 2.0 * math.log1p(a) - gamma * apart)


def discrete_gaussian_log_survival(points: NDArray[np.int64], sigma: float) -> NDArray[np.float64]:
    """Compute log Pr[X ≥ k] elementwise, where Pr[X = x] is proportional to e^{−x²/(2σ²)}.

    Used for expectations (how many queries pass a check) and for q of a check. Relative error below 1e-12 where the
    values are summed; where they are too many, the smaller of Pr[X ≥ k] and Pr[X < k] is bounded from above.
    """
    checks.positive(sigma=sigma)
    reach = int(np.abs(points).max()) + math.ceil(40.0 * sigma) + 1  # beyond: below e^-800 of what is kept
    if reach > MOST_SUMMED:
        apart = np.where(points >= 1, points, 1 - points) - 0.5
        smaller = _rounded_up(log_ndtr(-apart / max(sigma, math.sqrt(0.5))))
        return np.where(points >= 1, smaller, log1mexp(smaller))
    support = np.arange(-reach, reach + 1, dtype=np.float64)
    logs = -(support**2) / (2.0 * sigma**2)
    upper = np.logaddexp.accumulate(logs[::-1])[::-1] - log_sum(logs)
    return np.asarray(upper[reach + points], dtype=np.float64)


def sum_of_tails(gaps: NDArray[np.int64], log_tails: LogTails) -> NDArray[np.float64]:
    """Compute log Σ_i Pr[D ≥ gap_i] along the last axis, at most 0; the winner's own gap is marked by −1."""
    logs = np.where(gaps < 0, -np.inf, log_tails(np.maximum(gaps, 0)))
    largest = logs.max(axis=-1)
    logs -= largest[..., np.newaxis]
    np.exp(logs, out=logs)
    total = largest + np.log(logs.sum(axis=-1))
    # adding C positive terms errs by less than C·2^-52 relative
    return np.asarray(np.minimum(total + 2.0 * gaps.shape[-1] * np.finfo(np.float64).eps, 0.0))


def winner_gaps(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Compute how many votes each class lies behind the row's plurality class, which itself is marked by −1."""
    winners = counts.argmax(axis=1)
    rows = np.arange(counts.shape[0])
    gaps = counts[rows, winners][:, np.newaxis] - counts
    gaps[rows, winners] = -1
    return np.asarray(gaps)


def _rounded_up(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.minimum(logs + _RELATIVE_ROUNDING * (1.0 + np.abs(logs)), 0.0)
