"""Numbers of ones: binomial and hypergeometric laws, and sums of independent Bernoulli variables.

Binomial and hypergeometric probabilities are products of ratios of neighbors, starting at the mode: d steps from the
mode the relative error is about 4·d·2⁻⁵³. Differences of log-gamma functions would lose 1e-11 at n = 20,000.

`smooth` is the step of every expectation: if T(s) = E[g(s + X)], then (1 − p)·T(s) + p·T(s + 1) =
E[g(s + X + Bernoulli(p))]. From T_0 = g, j steps give T_j(s) = E[g(s + Bin(j, p))] for all s: a Pascal triangle.

Rounding: with numbers of absolute value at most M, two products and one sum of relative error 2⁻⁵³ have an absolute
error of at most 2.01·2⁻⁵³·M. A float p̂ with |p − p̂| ≤ 2⁻⁵³, and the float nearest to 1 − p̂, add at most 2·2⁻⁵³·M. A
step averages the errors of its inputs, so j steps err by at most j·`STEP_ERROR`·M.
"""

import numpy as np

from darrm.numerics import Array
from darrm.util import checks


def binomial_pmf(n: int, p: float) -> Array:
    """Compute Pr[Bin(n, p) = k] for k = 0 … n, shape (n + 1,).

    >>> binomial_pmf(2, 0.25)
    array([0.5625, 0.375 , 0.0625])
    """
    checks.integer_at_least(0, n=n)
    checks.probability(p=p)
    result = np.zeros(n + 1)
    if p in {0.0, 1.0}:
        result[n if p == 1.0 else 0] = 1.0
        return result
    mode = min(n, int((n + 1) * p))
    upward = np.arange(mode + 1, n + 1)
    downward = np.arange(mode, 0, -1)
    return _normalize_ratios(
        (n - upward + 1) / upward * (p / (1.0 - p)), downward / (n - downward + 1) * ((1.0 - p) / p)
    )


def hypergeometric_pmf(population: int, ones: int, draws: int) -> Array:
    """Compute Pr[j ones among ``draws`` drawn without replacement] for j = 0 … draws, shape (draws + 1,).

    >>> hypergeometric_pmf(4, 2, 2) * 6
    array([1., 4., 1.])
    """
    checks.integer_at_least(0, population=population, ones=ones, draws=draws)
    low, high = max(0, draws - (population - ones)), min(draws, ones)
    if ones > population or draws > population:
        raise ValueError(f"cannot draw {draws} of {population} with {ones} ones: draws and ones must not exceed it")
    result = np.zeros(draws + 1)
    mode = min(high, max(low, (draws + 1) * (ones + 1) // (population + 2)))
    up = np.arange(mode + 1, high + 1)
    down = np.arange(mode, low, -1)
    zeros = population - ones
    result[low : high + 1] = _normalize_ratios(
        (ones - up + 1) * (draws - up + 1) / (up * (zeros - draws + up)),
        down * (zeros - draws + down) / ((ones - down + 1) * (draws - down + 1)),
    )
    return result


def tail_bound(n: int, p: float, limit: int) -> float:
    """Bound Pr[Bin(n, p) > most] from above by the union bound C(n, most+1)·p^{most+1}.

    >>> tail_bound(1000, 1e-5, 8) < 1e-20
    True
    >>> tail_bound(5, 0.5, 5)
    0.0
    """
    if limit >= n or p == 0.0:
        return 0.0
    bound = 1.0
    for k in range(limit + 1):
        bound *= (n - k) * p / (k + 1)
    # each of the few roundings above is below 2^-52
    return float(min(1.0, bound * (1.0 + 4.0 * (limit + 2) * np.finfo(np.float64).eps)))


def _normalize_ratios(upward: Array, downward: Array) -> Array:
    weights = np.concatenate([np.cumprod(downward)[::-1], [1.0], np.cumprod(upward)])
    return np.asarray(weights / np.sum(weights), dtype=np.float64)


STEP_ERROR = 4.1 * 2.0**-53
_MAX_SEQUENTIAL = 128  # variables; for more, convolving the laws of two halves is faster


def smooth(values: Array, p: float) -> Array:
    """Average neighbors along the last axis, (1 − p)·values[s] + p·values[s + 1]: shape (…, n) → (…, n − 1).

    >>> smooth(np.array([0.0, 1.0, 4.0]), 0.25)
    array([0.25, 1.75])
    """
    return (1.0 - p) * values[..., :-1] + p * values[..., 1:]


def poisson_binomial_pmf(probabilities: Array) -> Array:
    """Compute the law of the number of ones among independent variables: shape (…, K) → (…, K + 1).

    Nothing is subtracted, so every value is right to about K·2⁻⁵² of itself.

    >>> poisson_binomial_pmf(np.array([0.5, 0.25]))
    array([0.375, 0.5  , 0.125])
    """
    p = np.asarray(probabilities, dtype=np.float64)
    count = p.shape[-1]
    pmf = np.zeros((*p.shape[:-1], count + 1))
    if count > _MAX_SEQUENTIAL:
        halves = poisson_binomial_pmf(p[..., : count // 2]), poisson_binomial_pmf(p[..., count // 2 :])
        for row in np.ndindex(*p.shape[:-1]):
            pmf[row] = np.convolve(halves[0][row], halves[1][row])
        return pmf
    pmf[..., 0] = 1.0
    for k in range(count):
        p_k = p[..., k, None]
        pmf[..., 1 : k + 2] = pmf[..., 1 : k + 2] * (1.0 - p_k) + pmf[..., : k + 1] * p_k
        pmf[..., 0] *= 1.0 - p[..., k]
    return pmf
