"""Argument checks that name the argument, its value, what is allowed and what to do.

Each check takes the arguments to look at as keywords, so that the message can name them:

>>> positive(epsilon=0.1)
>>> positive(epsilon=-1.0)
Traceback (most recent call last):
...
ValueError: epsilon must be a positive finite number, got -1.0
"""

import math
from collections.abc import Callable, Collection
from numbers import Integral, Real
from typing import NoReturn


def fail(name: str, value: object, allowed: str, advice: str = "") -> NoReturn:
    """Raise the `ValueError` that every check raises: name, allowed range, value, advice."""
    text = f"{name} must be {allowed}, got {value!r}"
    raise ValueError(f"{text}: {advice}" if advice else text)


def positive(*, advice: str = "", **named: object) -> None:
    """Check that every argument is a number in (0, ∞)."""
    _each(named, lambda x: 0.0 < x < math.inf, "a positive finite number", advice)


def finite(*, advice: str = "", **named: object) -> None:
    """Check that every argument is a finite number."""
    _each(named, math.isfinite, "a finite number", advice)


def non_negative(*, advice: str = "", **named: object) -> None:
    """Check that every argument is a number in [0, ∞)."""
    _each(named, lambda x: 0.0 <= x < math.inf, "a finite number of at least 0", advice)


def probability(*, advice: str = "", **named: object) -> None:
    """Check that every argument is a number in [0, 1]."""
    _each(named, lambda x: 0.0 <= x <= 1.0, "in [0, 1]", advice)


def probability_below_one(*, advice: str = "", **named: object) -> None:
    """Check that every argument is a number in [0, 1)."""
    _each(named, lambda x: 0.0 <= x < 1.0, "in [0, 1)", advice)


def open_probability(*, advice: str = "", **named: object) -> None:
    """Check that every argument is a number in (0, 1)."""
    _each(named, lambda x: 0.0 < x < 1.0, "in (0, 1)", advice)


def integer_at_least(minimum: int, *, advice: str = "", **named: object) -> None:
    """Check that every argument is an integer (not a bool) of at least ``minimum``.

    >>> integer_at_least(1, K=0)
    Traceback (most recent call last):
    ...
    ValueError: K must be an integer of at least 1, got 0
    """
    for name, value in named.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < minimum:
            fail(name, value, f"an integer of at least {minimum}", advice)


def one_of(allowed: Collection[str], *, advice: str = "", **named: object) -> None:
    """Check that every argument is one of the allowed words."""
    for name, value in named.items():
        if value not in allowed:
            fail(name, value, "one of " + ", ".join(sorted(allowed)), advice)


def instance(kind: type, **named: object) -> None:
    """Check that every argument is of a class."""
    for name, value in named.items():
        if not isinstance(value, kind):
            fail(name, value, f"a {kind.__name__}")


def _each(named: dict[str, object], is_allowed: Callable[[float], bool], allowed: str, advice: str) -> None:
    for name, value in named.items():
        if not isinstance(value, Real) or isinstance(value, bool) or not is_allowed(float(value)):
            fail(name, value, allowed, advice)
