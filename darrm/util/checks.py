"""Argument checks whose messages name the argument, its value, the allowed range and a remedy.

Each check takes the arguments to look at as keywords, so that the message can name them:

>>> positive(epsilon=0.1)
>>> positive(epsilon=-1.0)
Traceback (most recent call last):
...
ValueError: epsilon must be a positive finite number, got -1.0
"""

import math
import os
import sys
from collections.abc import Collection
from numbers import Integral, Real
from typing import NoReturn

from darrm.util.extras import Untyped

# bytes of the largest array of a call: with its other arrays, a call needs less than 1 GiB
MOST_BYTES = 2**28
_MIN_POSITIVE, _BELOW_ONE, _MAX_FINITE = math.nextafter(0.0, 1.0), math.nextafter(1.0, 0.0), sys.float_info.max
_MAX_CHARACTERS = 200  # of a refused value in a message
_MAX_ENTRIES = 10  # of a refused array: larger ones are data


class Text(str):
    """A description of a value, which messages show without quotes.

    >>> fail("votes", Text("5 columns"), "of K = 7 voters")
    Traceback (most recent call last):
    ...
    ValueError: votes must be of K = 7 voters, got 5 columns
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def fail(name: str, value: object, allowed: str, advice: str = "") -> NoReturn:
    text = f"{name} must be {allowed}, got {_format_value(value)}"
    raise ValueError(f"{text}: {advice}" if advice else text)


def positive(*, advice: str = "", **arguments: object) -> None:
    """Each argument is in (0, ∞)."""
    _check_range(arguments, _MIN_POSITIVE, _MAX_FINITE, "a positive finite number", advice)


def finite(*, advice: str = "", **arguments: object) -> None:
    _check_range(arguments, -_MAX_FINITE, _MAX_FINITE, "a finite number", advice)


def non_negative(*, advice: str = "", **arguments: object) -> None:
    """Each argument is in [0, ∞)."""
    _check_range(arguments, 0.0, _MAX_FINITE, "a finite number of at least 0", advice)


def probability(*, advice: str = "", **arguments: object) -> None:
    """Each argument is in [0, 1]."""
    _check_range(arguments, 0.0, 1.0, "in [0, 1]", advice)


def probability_below_one(*, advice: str = "", **arguments: object) -> None:
    """Each argument is in [0, 1)."""
    _check_range(arguments, 0.0, _BELOW_ONE, "in [0, 1)", advice)


def open_probability(*, advice: str = "", **arguments: object) -> None:
    """Each argument is in (0, 1)."""
    _check_range(arguments, _MIN_POSITIVE, _BELOW_ONE, "in (0, 1)", advice)


def integer_at_least(minimum: int, *, most: float = math.inf, advice: str = "", **arguments: object) -> None:
    """Each argument is an integer, and no bool."""
    for name, value in arguments.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < minimum:
            fail(name, value, f"an integer of at least {minimum}", advice)
        if int(value) > most:
            fail(name, value, f"an integer of at most {most}", advice)


def one_of(allowed: Collection[str], *, advice: str = "", **arguments: object) -> None:
    for name, value in arguments.items():
        if not isinstance(value, str) or value not in allowed:
            fail(name, value, "one of " + ", ".join(sorted(allowed)), advice)


def instance(kind: type, *, advice: str = "", **arguments: object) -> None:
    for name, value in arguments.items():
        if not isinstance(value, kind):
            article = "an" if kind.__name__[0] in "AEIOU" else "a"
            fail(name, value, f"{article} {kind.__name__}", advice)


def file_name(**arguments: object) -> None:
    """Messages show no other value: it may be private votes."""
    for name, value in arguments.items():
        if not isinstance(value, str | os.PathLike):
            fail(name, Text(type(value).__name__), "the name of a file", "pass text or a pathlib.Path")


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def affordable(subject: str, size: float, advice: str, *, bytes_each: int = 8) -> None:
    """Raise `ValueError` if an array of ``size`` numbers takes more than `MOST_BYTES`."""
    if not size * bytes_each <= MOST_BYTES:
        needed, allowed = f"{size * bytes_each / 2**30:.3g} GiB", f"{MOST_BYTES / 2**30:.3g} GiB"
        raise ValueError(f"{subject} needs {needed}, more than the {allowed} that a call may take: {advice}")


def _check_range(arguments: dict[str, object], minimum: float, maximum: float, allowed: str, advice: str) -> None:
    for name, value in arguments.items():
        if not isinstance(value, Real) or isinstance(value, bool) or not minimum <= _nearest_float(value) <= maximum:
            fail(name, value, allowed, advice)


def _nearest_float(value: Untyped) -> float:  # any Real; its type has no order
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, 1 if value > 0 else -1)


def _format_value(value: object) -> str:
    """Return one short line without private records."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and math.prod(shape) > _MAX_ENTRIES:
        return f"{type(value).__name__} of shape {shape}"
    try:
        text = " ".join(repr(value).splitlines())
    except (ValueError, RecursionError):  # more digits than Python writes, or a nest without end
        text = f"{type(value).__name__} too long to be shown"
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"


def ascii_digits(text: str) -> str:
    """Return the text; `ValueError` for spellings that Python reads, such as １２ and 1_0."""
    if not text.isascii() or "_" in text:
        fail("the number", text, "of the digits 0 to 9")
    return text


def set_read_only(frozen: object, state: dict[str, object]) -> None:
    """Be a ``__setstate__`` that keeps arrays read-only, which pickle and deepcopy forget."""
    frozen.__dict__.update(state)
    for value in state.values():
        if hasattr(value, "setflags"):
            value.setflags(write=False)
