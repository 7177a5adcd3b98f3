"""Norms of the difference f(D) − f(D′), rounded up so that a sensitivity is never below the true one.

A difference of two floats is rounded once and a sum of d terms at most d times more, each by a factor of at most
1 + 2⁻⁵²; so the factor 1 + (d + 4)·2⁻⁵¹ covers all of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from darrm import checks

Norm = str | Callable[[NDArray[np.float64]], float]


NAMED = ("l1", "l2", "sup")


def check_norm(norm: Norm) -> None:
    """Raise `ValueError` unless ``norm`` is "l1", "l2", "sup" or a callable."""
    if not callable(norm):
        checks.one_of(NAMED, norm=norm, advice="or give a callable that takes the difference and returns its norm")


def norm_of(difference: NDArray[np.float64], norm: Norm) -> float:
    """Compute the norm of a difference, rounded up; a callable's value is taken as it is.

    Parameters
    ----------
    difference
        f(D) − f(D′), of any shape.
    norm
        "l1" (sum), "l2" (Euclidean), "sup" (largest absolute value), or a callable.

    Raises
    ------
    ValueError
        If the norm is not a finite number of at least 0.

    Examples
    --------
    >>> difference = np.array([3.0, -4.0])
    >>> [round(norm_of(difference, name), 12) for name in NAMED]
    [7.0, 5.0, 4.0]
    """
    value = float(norm(difference)) if callable(norm) else _named(np.abs(difference).ravel(), norm)
    if not 0.0 <= value < math.inf:
        checks.fail("the norm of f(D) - f(D')", value, "a finite number of at least 0")
    return value


def _named(sizes: NDArray[np.float64], norm: str) -> float:
    largest = float(np.max(sizes, initial=0.0))
    if largest in (0.0, math.inf):
        return largest
    # divided by the largest, squares neither overflow nor vanish
    shares = sizes / largest
    value = {"l1": float(np.sum(shares)), "l2": math.sqrt(float(np.sum(shares * shares))), "sup": 1.0}[norm] * largest
    return math.nextafter(value * (1.0 + (sizes.size + 4) * 2.0**-51), math.inf)
