"""Bisection from an allowed number towards a forbidden one.

The result is ``inside`` or a number that passed ``allowed``, never an untested one. So a search from the safe side
returns a valid bound after any number of steps, even if ``allowed`` is not monotone.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

Number = TypeVar("Number", float, Fraction)


def bisect_safe(
    allowed: Callable[[Number], bool],
    inside: Number,
    outside: Number,
    *,
    steps: int = 200,
    tolerance: float = 0.0,
    geometric: bool = False,
) -> Number:
    """Bisect for the allowed number that is nearest to ``outside``, upwards or downwards.

    Neither end is tested: ``inside`` must be allowed, and ``outside`` is never returned. The search stops when no
    number lies between the ends, after ``steps`` steps, or at the relative distance ``tolerance``. While the ratio of
    positive ends is above 2, ``geometric`` takes their geometric mean, for unknown orders of magnitude.

    >>> bisect_safe(lambda x: x * x <= 2.0, 1.0, 2.0)
    1.414213562373095
    >>> bisect_safe(lambda x: x * x >= 2.0, 2.0, 1.0)
    1.4142135623730951
    """
    for _ in range(steps):
        low, high = min(inside, outside), max(inside, outside)
        if high - low <= tolerance * high:
            break
        middle = (low + high) / 2
        if geometric and high > 2 * low:
            middle = type(high)(math.sqrt(low) * math.sqrt(high))
        if not low < middle < high:
            break
        inside, outside = (middle, outside) if allowed(middle) else (inside, middle)
    return inside


def last_allowed_integer(allowed: Callable[[int], bool], inside: int, outside: int) -> int:
    """Bisect for the allowed integer that is nearest to ``outside``; neither end is tested.

    >>> last_allowed_integer(lambda n: n * n <= 2000, 0, 2000)
    44
    """
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if allowed(middle) else (inside, middle)
    return inside
