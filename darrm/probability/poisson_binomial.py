"""Sums of independent Bernoulli variables: their distribution, and expectations of a function of them.

`smooth` is the one step from which every expectation of this project is built: if T(s) = E[g(s + X)], then
(1 − p)·T(s) + p·T(s + 1) = E[g(s + X + Bernoulli(p))]. Starting from T_0 = g and stepping with one p gives
T_j(s) = E[g(s + Bin(j, p))] for all s at once, in one vector operation a level: a Pascal triangle.

Rounding: a step takes a convex combination of numbers of absolute value at most M. Two products and one sum, each
with relative error 2⁻⁵³, give an absolute error of at most 2.01·2⁻⁵³·M; replacing p by a float p̂ with
|p − p̂| ≤ 2⁻⁵³ and 1 − p by the float nearest to 1 − p̂ adds at most 2·2⁻⁵³·M. A step averages the errors it inherits,
so j steps are off by at most j·`STEP_ERROR`·M.
"""

import numpy as np

from darrm.probability import Array

STEP_ERROR = 4.1 * 2.0**-53
_ONE_BY_ONE = 128  # variables; beyond so many their halves' laws are convolved, which is faster


def smooth(values: Array, p: float) -> Array:
    """Average neighbors along the last axis, (1 − p)·values[s] + p·values[s + 1]: shape (…, n) → (…, n − 1).

    >>> smooth(np.array([0.0, 1.0, 4.0]), 0.25)
    array([0.25, 1.75])
    """
    return (1.0 - p) * values[..., :-1] + p * values[..., 1:]


def poisson_binomial_pmf(probabilities: Array) -> Array:
    """Compute the distribution of the number of ones among independent variables: shape (…, K) → (…, K + 1).

    One variable after the other, and for many variables two halves at a time: the law of a sum is the convolution of
    its halves' laws. Nothing is subtracted, so every value is right to about K·2⁻⁵² of itself.

    >>> poisson_binomial_pmf(np.array([0.5, 0.25]))
    array([0.375, 0.5  , 0.125])
    """
    p = np.asarray(probabilities, dtype=np.float64)
    count = p.shape[-1]
    pmf = np.zeros((*p.shape[:-1], count + 1))
    if count > _ONE_BY_ONE:
        halves = poisson_binomial_pmf(p[..., : count // 2]), poisson_binomial_pmf(p[..., count // 2 :])
        for row in np.ndindex(*p.shape[:-1]):
            pmf[row] = np.convolve(halves[0][row], halves[1][row])
        return pmf
    pmf[..., 0] = 1.0
    for k in range(count):
        one = p[..., k, None]
        pmf[..., 1 : k + 2] = pmf[..., 1 : k + 2] * (1.0 - one) + pmf[..., : k + 1] * one
        pmf[..., 0] *= 1.0 - p[..., k]
    return pmf
