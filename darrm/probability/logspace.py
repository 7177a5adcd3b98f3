"""Arithmetic on logarithms, for probabilities from 1e-300 to 1 − 1e-16."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


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
