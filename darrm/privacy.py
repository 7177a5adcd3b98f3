"""An (ε, δ) pair, stored as the exact fractions of the user's decimals.

A certificate is about 1/10, and ``float(0.1)`` is not 1/10; formulas read the nearest floats.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import SupportsFloat

from darrm.util import checks

Number = int | float | str | Fraction | Decimal | SupportsFloat  # SupportsFloat covers numpy's scalars

# e^700 is about 1e304: e^{mε} overflows a float beyond it, and ε and δ underflow below 1e-323
LARGEST_EXPONENT, SMALLEST_NUMBER = 700, Fraction(1, 10**323)

# text is bounded before it is read: ten characters can denote a number of a billion digits. A fraction within these
# bits needs fewer characters, so each saved number can be loaded
_MAX_CHARACTERS, _MAX_BITS, _MAX_PLACES = 8000, 13_000, 1000
_MAX_NUMBER = 10**308  # no float overflows
_ALLOWED_NUMBERS = f"a finite number of at most {_MAX_CHARACTERS} characters and of a size up to 1e308"


def exact_number(name: str, value: Number) -> Fraction:
    """Read a number as an exact fraction; a float counts as its shortest decimal.

    `ValueError` if it is no number, not finite, beyond all floats, or has thousands of digits.

    >>> exact_number("epsilon", 0.1), exact_number("epsilon", "1e-5")
    (Fraction(1, 10), Fraction(1, 100000))
    >>> exact_number("epsilon", "1e999999999")
    Traceback (most recent call last):
    ...
    ValueError: epsilon must be a finite number of at most 8000 characters and of a size up to 1e308, \
got '1e999999999'
    """
    try:
        exact = _to_fraction(value)
    except (ValueError, OverflowError, TypeError, ZeroDivisionError):
        return checks.fail(name, value, "a finite number, like 0.1 or 1e-5", _advise(value))
    return checks.fail(name, value, _ALLOWED_NUMBERS) if exact is None or abs(exact) > _MAX_NUMBER else exact


def _advise(value: object) -> str:
    if isinstance(value, str) and "," in value:
        return "write decimals with a point"
    is_collection = isinstance(value, Collection | PrivacyParams) and not isinstance(value, str | bytes)
    return "give one number; PrivacyParams(epsilon, delta) takes two" if is_collection else ""


def _to_fraction(value: object) -> Fraction | None:
    """Read a number; None if it is too long."""
    if isinstance(value, bool):
        raise TypeError
    if isinstance(value, Rational):  # ints, fractions, and numpy's whole numbers, whose arithmetic would overflow
        exact = Fraction(int(value)) if isinstance(value, Integral) else Fraction(value)
    else:
        text = repr(float(value)) if isinstance(value, float) else str(value)
        if not isinstance(value, str | Decimal | Real):
            raise TypeError
        exponent = re.search("[eE][+-]?0*([0-9_]*)", text)
        if len(text) > _MAX_CHARACTERS or (exponent is not None and len(exponent[1]) > 3):
            return None
        exact = Fraction(checks.ascii_digits(text))
    return exact if max(map(int.bit_length, exact.as_integer_ratio())) <= _MAX_BITS else None


def decimal_text(value: Fraction) -> str:
    """Write a fraction as a finite decimal if it has few digits, else as ``p/q``; `exact_number` reads both.

    >>> decimal_text(Fraction(1, 100000)), decimal_text(Fraction(3, 10)), decimal_text(Fraction(1, 3))
    ('0.00001', '0.3', '1/3')
    """
    numerator, denominator = value.as_integer_ratio()
    cofactor, twos, fives = denominator, 0, 0
    while cofactor % 2 == 0:
        cofactor, twos = cofactor // 2, twos + 1
    while cofactor % 5 == 0:
        cofactor, fives = cofactor // 5, fives + 1
    places = max(twos, fives)
    if cofactor != 1 or places > _MAX_PLACES:
        return f"{numerator}/{denominator}"
    digits = Decimal(numerator * 2 ** (places - twos) * 5 ** (places - fives))
    return str(digits.scaleb(-places, Context(prec=places + 400))).lower()


def at_most(bound: float | Fraction, digits: int = 5) -> str:
    """Write an upper bound with ``digits`` significant digits, rounded up.

    A float counts as the decimal of the next smaller float, because sums of floats are already rounded up.

    >>> at_most(2.31252), at_most(0.1 + 0.2), at_most(Fraction(1, 3), 2), at_most(0.00004)
    ('2.3126', '0.3', '0.34', '4e-05')
    """
    return _round_bound(bound, digits, -math.inf)


def at_least(bound: float | Fraction, digits: int = 5) -> str:
    """Write a lower bound with ``digits`` significant digits, rounded down.

    >>> at_least(2.31258), at_least(0.3)
    ('2.3125', '0.3')
    """
    return _round_bound(bound, digits, math.inf)


def pair_at_most(epsilon: float | Fraction, delta: float | Fraction, digits: int = 6) -> str:
    """Write a guaranteed pair, ε with ``digits`` digits and δ with six, both rounded up.

    >>> pair_at_most(0.30000049, 1e-5)
    '(0.300001, 1e-05)'
    """
    return f"({at_most(epsilon, digits)}, {at_most(delta, 6)})"


def _round_bound(bound: float | Fraction, digits: int, direction: float) -> str:
    if not isinstance(bound, Fraction):
        if bound == 0.0 or not math.isfinite(bound):
            return f"{abs(bound):g}"
        bound = Fraction(repr(math.nextafter(bound, direction)))
    rounding = ROUND_CEILING if direction < 0.0 else ROUND_FLOOR
    rounded = Context(prec=digits, rounding=rounding).divide(Decimal(bound.numerator), Decimal(bound.denominator))
    return f"{float(rounded):.{digits}g}"


def _seem_swapped(epsilon: Fraction, delta: Fraction) -> bool:
    """Whether ε is as small as a δ and δ as large as an ε, both with at most three digits."""
    return epsilon < Fraction(1, 1000) and delta >= Fraction(1, 100) and max(epsilon.numerator, delta.numerator) < 1000


@dataclass(frozen=True, init=False, repr=False)
class PrivacyParams:
    """An (ε, δ) pair of differential privacy.

    Parameters
    ----------
    epsilon
        ε ≥ 0. A float counts as its shortest decimal; text and fractions are exact. Infinity, with delta = 0, means no
        guarantee and is for non-private voters only.
    delta
        δ in [0, 1).

    Warns
    -----
    UserWarning
        If ε and δ are probably swapped: ε below 0.001 and δ of at least 0.01, both with few digits.

    Examples
    --------
    >>> each = PrivacyParams(0.1, 1e-5)
    >>> each
    PrivacyParams(epsilon=0.1, delta=0.00001)
    >>> each.exact_epsilon, each.delta
    (Fraction(1, 10), 1e-05)
    """

    finite_epsilon: Fraction | None
    exact_delta: Fraction

    def __init__(self, epsilon: Number, delta: Number = 0) -> None:
        exact_delta = exact_number("delta", delta)
        if not isinstance(epsilon, Rational) and str(epsilon).strip().lower().lstrip("+") in {"inf", "infinity"}:
            exact_epsilon = None
            if exact_delta != 0:
                checks.fail("epsilon", epsilon, "a finite number of at least 0 where delta is not 0")
        else:
            exact_epsilon = exact_number("epsilon", epsilon)
        for name, number, exact, upper, allowed in (
            ("epsilon", epsilon, exact_epsilon, math.inf, "a finite number of at least 0"),
            ("delta", delta, exact_delta, 1, "in [0, 1)"),
        ):
            if exact is not None and not (exact == 0 or SMALLEST_NUMBER <= exact < upper):
                value = float(number) if isinstance(number, Fraction) else number
                hint = ", and 1e-323 or more if it is not 0" if 0 < exact < SMALLEST_NUMBER else ""
                is_swapped = name == "delta" and exact >= 1 and exact_epsilon is not None and 0 <= exact_epsilon < 1
                checks.fail(name, value, f"{allowed}{hint}", "are epsilon and delta swapped?" if is_swapped else "")
        # pairs of fractions come from computations
        is_typed = not (isinstance(epsilon, Fraction) and isinstance(delta, Fraction))
        if is_typed and exact_epsilon and _seem_swapped(exact_epsilon, exact_delta):
            pair = f"epsilon = {decimal_text(exact_epsilon)} beside delta = {decimal_text(exact_delta)}"
            warnings.warn(f"{pair} promises next to nothing: are the two swapped?", stacklevel=2)
        object.__setattr__(self, "finite_epsilon", exact_epsilon)
        object.__setattr__(self, "exact_delta", exact_delta)

    @classmethod
    def of(cls, value: PrivacyPair, name: str = "privacy") -> PrivacyParams:
        """Return a pair (ε, δ), such as ``(2, 1e-5)``, as `PrivacyParams`."""
        if isinstance(value, PrivacyParams):
            return value
        if not isinstance(value, tuple | list) or len(value) != 2:
            checks.fail(name, value, "a pair (epsilon, delta)", "say (0.1, 1e-5), or PrivacyParams(0.1, 1e-5)")
        return cls(*value)

    @property
    def is_private(self) -> bool:
        """Whether ε is finite: False for non-private voters."""
        return self.finite_epsilon is not None

    @property
    def exact_epsilon(self) -> Fraction:
        """ε; `ValueError` if it is infinite, so that no formula uses it by accident."""
        if self.finite_epsilon is None:
            checks.fail("epsilon", math.inf, "a finite number of at least 0", "only voters may be not private")
        return self.finite_epsilon

    @property
    def epsilon(self) -> float:
        """The nearest float; `ValueError` if ε is infinite."""
        return float(self.exact_epsilon)

    @property
    def delta(self) -> float:
        """The nearest float."""
        return float(self.exact_delta)

    @property
    def epsilon_text(self) -> str:
        """The decimal of ε, or ``inf``."""
        return "inf" if self.finite_epsilon is None else decimal_text(self.finite_epsilon)

    @property
    def delta_text(self) -> str:
        """The decimal of δ."""
        return decimal_text(self.exact_delta)

    def to_json(self) -> dict[str, str]:
        """Write decimals, as they were typed."""
        return {"epsilon": self.epsilon_text, "delta": self.delta_text}

    @classmethod
    def from_json(cls, data: dict[str, str]) -> PrivacyParams:
        """`KeyError`, `TypeError` or `ValueError` if the data is malformed."""
        return cls(data["epsilon"], data["delta"])

    def __repr__(self) -> str:
        return f"PrivacyParams(epsilon={self.epsilon_text}, delta={self.delta_text})"

    def __str__(self) -> str:
        return "(inf, 0)" if self.finite_epsilon is None else pair_at_most(self.finite_epsilon, self.exact_delta)


PrivacyPair = PrivacyParams | tuple[Number, Number]
