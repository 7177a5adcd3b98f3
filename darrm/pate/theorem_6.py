"""The Rényi cost of one answer given the votes, as in [P]: Theorem 6 with Propositions 7, 8 and 10.

======================  ==========  ==============================================================================
here                    [P]         meaning
======================  ==========  ==============================================================================
``log_q``               log q̃       bound on Pr[the answer is not the plurality class], logarithm
``sigma``               σ           standard deviation of the noise on each count, in votes
``orders``              λ           orders of the Rényi divergence, each above 1
``rise``                r = log A   A = (1 − q)/(1 − (q e^{ε₂})^{(μ₂−1)/μ₂})
``jump``                t = log B   B = e^{ε₁}/q^{1/(μ₁−1)}
======================  ==========  ==============================================================================

With L = log(1/q), the optimal orders of Proposition 10 are μ₂ = σ√L, μ₁ = μ₂ + 1, and everything simplifies:

    (q e^{ε₂})^{(μ₂−1)/μ₂} = q e^s,  s = 2√L/σ − 1/σ²,      log B = t = 2√L/σ + 1/σ²,
    log A = r = −log1p(−q·expm1(s)/(1 − q)),
    bound(λ) = log1p((1 − q)·expm1((λ−1) r) + q·expm1((λ−1) t)) / (λ−1):

a sum of positive terms, which does not cancel even for q = 1e-300. The bound holds for q < 1, μ₂ > 1, λ ≤ μ₁ and
q ≤ e^{(μ₂−1)ε₂}/(μ₁/(μ₁−1) · μ₂/(μ₂−1))^{μ₂}. Otherwise, or if it is smaller, the data-independent bound of
Proposition 8 is used. Every result is rounded up by more than the arithmetic can lose.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.noisy_max.noise_law import check_noise, gaussian_log_tails, laplace_log_tails, sum_of_tails, winner_gaps
from darrm.numerics import Array
from darrm.util import checks
from darrm.votes import to_counts

LOG_HALF = -math.log(2.0)
_ROUNDING = 1e-12  # relative: ten times the error of the kernel against fifty digits
_CONDITION_MARGIN = 1e-9  # relative: a condition that holds with equality is treated as failing
_LARGEST_EXPONENT = 700.0  # nats: e^709 is the largest float
_SMALLEST_LOG_Q = -1e12  # nats: replaces log q = −∞
_SMALLEST_NORMAL = float(np.finfo(np.float64).tiny)
_LARGEST_SHARE = 1.0 - 2.0**-50  # beyond, 1 − share has no correct digit
_SMALLEST_SIGMA, _LARGEST_SIGMA = 1e-6, 1e12  # votes, including the √2 of a check: σ² and 1/σ² do not overflow
_ENTRIES_AT_ONCE = 1 << 15  # (query, order) pairs at a time, which fit the cache


def log_q(histograms: ArrayLike, sigma: float, *, noise: str = "continuous") -> Array:
    """Bound log Pr[noisy maximum ≠ plurality] for Gaussian noise [P, Proposition 7]: (Q, C) vote counts → (Q,) ≤ 0.

    q = min(1, Σ_{i≠i*} ½ erfc((n_{i*} − n_i)/(2σ))), rounded up, a bound up to ½; for discrete noise see `noise_law`.

    >>> log_q([[250, 0], [130, 120]], sigma=40.0).round(4).tolist()
    [-12.2165, -0.8443]
    """
    counts = to_counts(histograms)
    check_noise(sigma, noise)
    gaps = winner_gaps(counts)
    return sum_of_tails(gaps, gaussian_log_tails(np.maximum(gaps, 0), sigma, noise))


def laplace_log_q(histograms: ArrayLike, gamma: float, *, noise: str = "continuous") -> Array:
    """Bound log Pr[noisy maximum ≠ plurality] for Laplace noise [P17, Lemma 4]."""
    gaps = winner_gaps(to_counts(histograms))
    return sum_of_tails(gaps, laplace_log_tails(np.maximum(gaps, 0), gamma, noise))


def gaussian_renyi(log_q: ArrayLike, sigma: float, orders: ArrayLike) -> Array:
    """Bound the Rényi divergence of one GNMax answer from the votes [P, Theorem 6, Proposition 8, Proposition 10].

    The smaller of the data-dependent bound and λ/σ², for both noises with their q: Theorem 6 only requires λ/σ² at all
    orders [CKS20, Proposition 5]. (Q,) log q and (L,) orders above 1 → (Q, L) nats, **private data**.

    >>> gaussian_renyi([-40.0, -0.1], sigma=40.0, orders=[2.0, 14.0]).round(6).tolist()
    [[0.0, 0.0], [0.00125, 0.00875]]
    """
    logs, grid = _check_arguments(log_q, orders)
    checks.positive(sigma=sigma)
    if not _SMALLEST_SIGMA <= sigma <= _LARGEST_SIGMA:
        checks.fail("sigma", sigma, f"in [{_SMALLEST_SIGMA:g}, {_LARGEST_SIGMA:g}] votes")
    logs = np.maximum(logs, _SMALLEST_LOG_Q)  # a larger q only enlarges the bound
    root = np.sqrt(-logs)
    mu = sigma * root
    slope = 2.0 * root / sigma
    allowed = _is_theorem_6_valid(logs, mu, sigma)
    rise = _compute_log_ratio(logs, np.where(allowed, slope - 1.0 / sigma**2, 0.0))
    jump = np.where(allowed, slope + 1.0 / sigma**2, 0.0)
    largest_order = np.where(allowed, mu * (1.0 - _CONDITION_MARGIN), 0.0)  # on λ − 1: λ ≤ μ₁ = μ₂ + 1
    return _take_smaller_bound(logs, rise, jump, grid, largest_order=largest_order, independent=grid / sigma**2)


def laplace_renyi(log_q: ArrayLike, gamma: float, orders: ArrayLike) -> Array:
    """Bound the Rényi divergence of one LNMax answer from the votes [P17, Theorem 2, Theorem 3].

    The smaller of 2γ²λ, 2γ and, for q < (e^{2γ} − 1)/(e^{4γ} − 1), Theorem 6 of [P] with μ₁ = μ₂ = ∞:

        log((1 − q)·((1 − q)/(1 − e^{2γ} q))^{λ−1} + q·e^{2γ(λ−1)}) / (λ−1).

    >>> laplace_renyi([-20.0, -0.1], gamma=0.05, orders=[5.0]).round(11).tolist()
    [[4.7e-10], [0.025]]
    """
    logs, grid = _check_arguments(log_q, orders)
    checks.positive(gamma=gamma)
    epsilon = 2.0 * gamma
    allowed = logs < -np.logaddexp(0.0, epsilon) - _CONDITION_MARGIN
    rise = _compute_log_ratio(logs, np.where(allowed, epsilon, 0.0))
    jump = np.where(allowed, epsilon, 0.0)
    largest_order = np.where(allowed, np.inf, 0.0)
    independent = laplace_independent(gamma, grid)
    return _take_smaller_bound(logs, rise, jump, grid, largest_order=largest_order, independent=independent)


def laplace_independent(gamma: float, orders: Array) -> Array:
    """Bound the cost of one LNMax answer by min(2γ²λ, 2γ) [P17, Theorem 2]."""
    return np.minimum(2.0 * gamma**2 * orders, 2.0 * gamma)


def answer_independent(answer: LNMax | GNMax, orders: ArrayLike) -> Array:
    """Bound the cost of both noisy counts for one moved vote, for any votes."""
    grid = np.asarray(orders, dtype=np.float64)
    return laplace_independent(answer.gamma, grid) if isinstance(answer, LNMax) else grid / answer.sigma**2


def _check_arguments(log_q: ArrayLike, orders: ArrayLike) -> tuple[Array, Array]:
    logs = np.atleast_1d(np.asarray(log_q, dtype=np.float64))
    grid = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    if logs.ndim != 1 or np.any(np.isnan(logs)) or np.any(logs > 0.0):
        checks.fail("log_q", log_q, "a vector of logarithms of probabilities, each at most 0")
    if grid.ndim != 1 or grid.size == 0 or not np.all((grid > 1.0) & np.isfinite(grid)):
        checks.fail("orders", orders, "a vector of finite orders, each above 1")
    return logs, grid


def _is_theorem_6_valid(logs: Array, mu: Array, sigma: float) -> NDArray[np.bool_]:
    """Check μ₂ > 1, log q ≤ (μ₂−1)ε₂ − μ₂·log((μ₂+1)/(μ₂−1)) and q ≤ ½."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        log_ratio = np.log1p(2.0 / (mu - 1.0))
        bound = (mu - 1.0) * mu / sigma**2 - mu * log_ratio
        margin = _CONDITION_MARGIN * (1.0 + np.abs(logs))
        return (mu > 1.0 + _CONDITION_MARGIN) & (logs <= bound - margin) & (logs <= LOG_HALF)


def _compute_log_ratio(logs: Array, exponent: Array) -> Array:
    """Compute log((1 − q)/(1 − q e^s)) = −log1p(−q·expm1(s)/(1 − q)), at least the smallest normal number."""
    probability = np.exp(logs)
    # q·expm1(s) < 1 − q if the bound applies; otherwise s = 0
    gain = _multiply_expm1(logs, probability, exponent)
    share = np.where(exponent > 0.0, gain / np.maximum(1.0 - probability, _SMALLEST_NORMAL), 0.0)
    ratio = -np.log1p(-np.minimum(share, _LARGEST_SHARE))
    return np.where(share < _LARGEST_SHARE, np.maximum(ratio, _SMALLEST_NORMAL), np.inf)  # ∞: no bound from Theorem 6


def _multiply_expm1(logs: Array, probability: Array, exponent: Array) -> Array:
    """Compute q·expm1(s), s ≥ 0, from log q and q: q may underflow where s is large."""
    large = np.exp(np.minimum(logs + exponent, _LARGEST_EXPONENT)) - probability
    return np.where(exponent < 1.0, probability * np.expm1(np.minimum(exponent, 1.0)), large)


def _take_smaller_bound(
    logs: Array, rise: Array, jump: Array, orders: Array, *, largest_order: Array, independent: Array
) -> Array:
    """Return the smaller of log1p((1 − q)·expm1(k r) + q·expm1(k t))/k, k = λ − 1, and the independent bound."""
    power = orders - 1.0
    result = np.empty((logs.size, orders.size))
    rows = max(1, _ENTRIES_AT_ONCE // orders.size)
    for start in range(0, logs.size, rows):
        block = slice(start, start + rows)
        log_probability = logs[block, np.newaxis]
        probability = np.exp(log_probability)
        rise_exponent = rise[block, np.newaxis] * power
        jump_exponent = jump[block, np.newaxis] * power
        with np.errstate(over="ignore", invalid="ignore"):
            rise_term = (1.0 - probability) * np.expm1(np.minimum(rise_exponent, _LARGEST_EXPONENT))
            total = rise_term + _multiply_expm1(log_probability, probability, jump_exponent)
            # exponents are capped at 700; beyond, log(1 + inside) equals the exponent to the last digit
            value = np.maximum(np.log1p(total), log_probability + jump_exponent)
            value = np.where(rise_exponent > _LARGEST_EXPONENT, np.maximum(value, rise_exponent), value) / power
        value = np.maximum(value * (1.0 + _ROUNDING), _SMALLEST_NORMAL)
        np.minimum(value, independent, out=value)
        result[block] = np.where(power <= largest_order[block, np.newaxis], value, independent)
    return result
