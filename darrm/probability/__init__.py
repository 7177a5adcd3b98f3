"""Distributions of vote counts, and sums of exponentials that neither overflow nor cancel."""

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Array",
    "binomial",
    "bisection",
    "exact_coins",
    "exact_inversion",
    "exact_sampling",
    "integer_noise",
    "logspace",
    "poisson_binomial",
]

Array = NDArray[np.float64]
