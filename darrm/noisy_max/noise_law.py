"""The law of the noise on one count and of the label, for planning, costs and bounds.

Let f and F be the probabilities and the distribution function of the noise. A uniform V in [0, 1) for each class breaks
ties evenly, so class c wins if n_c + X_c + V_c is largest. X + V has the density f(⌊u⌋) and the piecewise linear
distribution function F̃(u) = F(⌊u⌋ − 1) + (u − ⌊u⌋)·f(⌊u⌋). With h(u) = f(⌊u⌋)/F̃(u),

    Pr[c wins] = ∫ h(u − n_c)·Π_j F̃(u − n_j) du.

Between whole numbers the integrand is a polynomial of degree C − 1, for which the Gauss-Legendre rule with C/2 nodes is
exact. `noisy_law` sums floats over many histograms, for planning; `cost_given_votes` adds logarithms for one, and
charges errors: one integrator for both would plan 8 to 27 times slower.

**The difference of two Gaussian noises.** D = X_a − X_b has Pr[D = k] = f(k) ∝ e^{−k²/(4σ²)}·Σ_j e^{−(j + k/2)²/σ²},
where the sum depends on the parity of k only. A label is drawn from D by the same kernel before and after a move, which
only changes f(k) to f(k + 2), so every bound for tests between the two holds for labels (`NoiseDifference`):

- *How far an event moves.* Let t(κ) = Pr[D ≥ κ], linear between whole κ. An event of probability t(κ) has a probability
  in [t(κ + 2), t(κ − 2)] after the move (Neyman and Pearson).
- *What an unlikely event costs.* Outcomes of an event of probability at most t(κ) add at most
  A(κ) = Σ_{k ≥ κ} f(k)^α·f(k + 2)^{1−α} to exp((α − 1)·D_α): p^α·q^{1−α} is convex and homogeneous, hence at most
  Σ_k Pr[event | k]·f(k)^α·f(k + 2)^{1−α}, and the second factor grows with k. In the reverse direction: A(κ − 2).

B(κ) is the same sum with f(k − 2), for an event that the move makes likelier.

**Tails.** A class that is g votes behind reaches the winner with probability Pr[D ≥ g], which bounds q, the
probability of a wrong label:

==========================  ==========================================================================================
noise                       Pr[D ≥ g], or the bound in use
==========================  ==========================================================================================
continuous Gaussian σ       ½ erfc(g/(2σ)), exact [P, Proposition 7]
discrete Gaussian σ ≥ ½     at most c · ½ erfc((g − ½)/(2σ)) for g ≥ 1, c = 1 + 2.1·e^{−π²σ²}
continuous Laplace 1/γ      (2 + γg)/4 · e^{−γg}, exact [P17, Lemma 4]
discrete Laplace 1/γ        exact geometric sums, see `laplace_log_tails`
==========================  ==========================================================================================

Ties count as reached, so the bound holds for every tie rule. At g = 0 the formula exceeds ½, and a q above ½ is never
used. One discrete Gaussian has Pr[X ≥ k] ≤ ½ erfc((k − ½)/(√2σ)) for k ≥ 1 and σ ≥ √½; a smaller σ makes the event less
likely. `docs/theory/pate.md` proves the second and the last bound (`tests/noisy_max/test_noise_tails.py`).
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.numerics import Array
from darrm.numerics.integer_noise import DiscreteGaussian, IntegerNoise
from darrm.numerics.special import log_ndtr
from darrm.util import checks

Integers = NDArray[np.int64]
_DOUBLINGS, _TRIALS_AT_ONCE = 62, 64  # doublings of a number of votes, up to 64 bits; numbers per round of a search
_TABLE_REACH = 30.0  # σ: tails down to e^{−225}
_MAX_ORDER_PER_SIGMA = 8.0  # times σ: the terms of A are largest near κ = 2(α − 1), within the tables


def tabulate_log_masses(noise: IntegerNoise, first: int, last: int) -> Array:
    """Tabulate log Pr[X = x], normalized to 1 from ``first`` to ``last``."""
    logs = noise.log_weights(np.arange(first, last + 1))
    return np.asarray(logs - np.logaddexp.reduce(logs))


def log_above(logs: Array) -> Array:
    """Compute log Σ_{y ≥ x} of a table of logarithms along its last axis."""
    return np.logaddexp.accumulate(logs[..., ::-1], axis=-1)[..., ::-1]


def log_below(logs: Array) -> Array:
    """Compute log Σ_{y < x}."""
    return np.append(-np.inf, np.logaddexp.accumulate(logs)[:-1])


def find_reach(noise: IntegerNoise, sign: int, exponent: float) -> int:
    """Find the least r with w(±r) ≤ e^{−exponent}, relative to the mode 0.

    By log-concavity Pr[X ≥ r] ≤ x/(1 − x) for x = w(r).
    """
    trials = np.concatenate([[0], 1 << np.arange(_DOUBLINGS)])
    while True:
        place = int(np.argmax(noise.log_weights(sign * trials) <= -exponent - 1e-9))
        if not place or trials[place] - trials[place - 1] == 1:
            return int(trials[place])
        trials = np.unique(np.linspace(trials[place - 1], trials[place], _TRIALS_AT_ONCE).astype(np.int64))


def unit_rule(size: int) -> tuple[Array, Array]:
    """Return the Gauss-Legendre nodes and weights on [0, 1], exact below degree 2·size."""
    nodes, weights = np.polynomial.legendre.leggauss(size)
    return (nodes + 1.0) / 2.0, weights / 2.0


class NoiseDifference:
    """The tails of D for discrete Gaussian noise of σ votes, at whole κ from `first` to `last`."""

    def __init__(self, sigma: float) -> None:
        self.sigma, self.last = sigma, int(_TABLE_REACH * max(sigma, 1.0)) + 4
        self.first = -self.last
        offsets = np.arange(-int(12.0 * sigma) - 12, int(12.0 * sigma) + 13)
        parity = np.log([np.sum(np.exp(-(((offsets + half) / sigma) ** 2))) for half in (0.0, 0.5)])
        self._points = np.arange(self.first, self.last + 1)
        logs = -((self._points / (2.0 * sigma)) ** 2) + parity[self._points % 2]
        self.log_masses = logs - np.logaddexp.reduce(logs)
        self.log_tails = log_above(self.log_masses)

    def covers(self, order: float) -> bool:
        return order <= _MAX_ORDER_PER_SIGMA * max(self.sigma, 1.0)

    def log_sums(self, order: float, sign: int) -> Array:
        """Compute log A(κ) for ``sign`` 1, log B(κ) for −1; ∞ beyond `covers`."""
        if not self.covers(order):
            return np.full(self.log_masses.shape, np.inf)
        # log f(k) − log f(k ± 2) = (1 ± k)/σ²
        return log_above(self.log_masses + (order - 1.0) * (1.0 + sign * self._points) / self.sigma**2)

    def find_index(self, log_probability: float) -> int:
        """Return the place of the largest κ with t(κ) at least the probability."""
        return max(int(np.searchsorted(-self.log_tails, -log_probability, side="right")) - 1, 0)


NOISES = ("continuous", "discrete")
_SMALLEST_DISCRETE_SIGMA = 0.5
_SMALLEST_SIGMA, _LARGEST_SIGMA = 1e-6, 1e11  # votes: σ² and its inverse stay far from overflow
MOST_SUMMED = 2**20  # values of a discrete Gaussian in a table; beyond, the bound is within 1e-9
# log_ndtr and the rounding of its argument err by less than 2^-48 of |log|; the tests compare with fifty digits
_RELATIVE_ROUNDING = 2.0**-46


def check_noise(sigma: float, noise: str) -> None:
    checks.positive(sigma=sigma)
    checks.one_of(NOISES, noise=noise)
    if not _SMALLEST_SIGMA <= sigma <= _LARGEST_SIGMA:
        checks.fail("sigma", sigma, f"in [{_SMALLEST_SIGMA:g}, {_LARGEST_SIGMA:g}] votes")
    if noise == "discrete" and sigma < _SMALLEST_DISCRETE_SIGMA:
        checks.fail("sigma", sigma, f"at least {_SMALLEST_DISCRETE_SIGMA} for discrete noise", "add more noise")


def log_tail_factor(sigma: float, noise: str) -> float:
    return math.log1p(2.1 * math.exp(-((math.pi * sigma) ** 2))) if noise == "discrete" else 0.0


def gaussian_log_tails(gaps: ArrayLike, sigma: float, noise: str = "continuous") -> NDArray[np.float64]:
    """Bound log Pr[D ≥ g] for Gaussian noise of σ votes, elementwise for whole g ≥ 0, rounded up.

    >>> np.exp(gaussian_log_tails([0, 1, 2], sigma=1.0)).round(4).tolist()
    [0.5, 0.2398, 0.0786]
    """
    check_noise(sigma, noise)
    distances = np.asarray(gaps, dtype=np.float64) - (0.5 if noise == "discrete" else 0.0)
    return _round_up(log_ndtr(-distances / (math.sqrt(2.0) * sigma)) + log_tail_factor(sigma, noise))


def laplace_log_tails(gaps: ArrayLike, gamma: float, noise: str = "continuous") -> NDArray[np.float64]:
    """Compute log Pr[D ≥ g] for Laplace noise of scale 1/γ, elementwise for whole g ≥ 0, rounded up.

    For the discrete law with a = e^{−γ}: Pr[D = k] = ((1 − a)/(1 + a))²·a^k·(k + b), b = (1 + a²)/(1 − a²), and
    Pr[D ≥ g] = ((1 − a)/(1 + a))²·a^g·((g + b)/(1 − a) + a/(1 − a)²).

    >>> np.exp(laplace_log_tails([0, 1], gamma=1.0)).round(4).tolist()
    [0.5, 0.2759]
    """
    checks.positive(gamma=gamma)
    checks.one_of(NOISES, noise=noise)
    distances = np.asarray(gaps, dtype=np.float64)
    if noise == "continuous":
        return _round_up(np.log((2.0 + gamma * distances) / 4.0) - gamma * distances)
    a, one_minus_a = math.exp(-gamma), -math.expm1(-gamma)
    # multiplied out, because 1 − a may be tiny
    weight = distances * one_minus_a + (1.0 + a * a) / (1.0 + a) + a
    return _round_up(np.log(weight) - 2.0 * math.log1p(a) - gamma * distances)


def discrete_gaussian_log_survival(points: NDArray[np.int64], sigma: float) -> NDArray[np.float64]:
    """Compute log Pr[X ≥ k], to 1e-12; for wide noise the smaller of it and log Pr[X < k] is an upper bound."""
    checks.positive(sigma=sigma)
    last = int(np.abs(points).max()) + math.ceil(40.0 * sigma) + 1  # beyond: below e^-800 of the tails inside
    if last > MOST_SUMMED:
        distances = np.where(points >= 1, points, 1 - points) - 0.5
        log_tail = _round_up(log_ndtr(-distances / max(sigma, math.sqrt(0.5))))
        return np.where(points >= 1, log_tail, np.log1p(-np.exp(log_tail)))  # smaller is below log ½
    return np.asarray(log_above(tabulate_log_masses(DiscreteGaussian(sigma), -last, last))[last + points])


def sum_of_tails(gaps: NDArray[np.int64], log_tails: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute log Σ_i Pr[D ≥ gap_i] along the last axis, at most 0, without the winner (gap −1)."""
    logs = np.where(gaps < 0, -np.inf, log_tails)
    largest = logs.max(axis=-1)
    logs -= largest[..., np.newaxis]
    np.exp(logs, out=logs)
    total = largest + np.log(logs.sum(axis=-1))
    # adding C positive terms errs by less than C·2^-52 relative
    return np.asarray(np.minimum(total + 2.0 * gaps.shape[-1] * np.finfo(np.float64).eps, 0.0))


def winner_gaps(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Compute the lag of each class behind the row's plurality class, which gets −1."""
    winners = counts.argmax(axis=1)
    rows = np.arange(counts.shape[0])
    gaps = counts[rows, winners][:, np.newaxis] - counts
    gaps[rows, winners] = -1
    return np.asarray(gaps)


def _round_up(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.minimum(logs + _RELATIVE_ROUNDING * (1.0 + np.abs(logs)), 0.0)
