"""Numbers as the fractions that their decimals mean, and fractions as decimals."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

from darrm import checks

Number = int | float | str | Fraction | Decimal


def exact_number(name: str, value: Number) -> Fraction:
    """Read a number as the fraction that its decimal writing means.

    A float counts as its shortest decimal writing, which is what the user typed.

    Raises
    ------
    ValueError
        If ``value`` is no number, or not finite.

    Examples
    --------
    >>> exact_number("epsilon", 0.1), exact_number("epsilon", "1e-5")
    (Fraction(1, 10), Fraction(1, 100000))
    """
    text = repr(float(value)) if isinstance(value, float) else value
    try:
        return Fraction(text)
    except (ValueError, OverflowError, TypeError, ZeroDivisionError):
        return checks.fail(name, value, "a finite number")


def decimal_text(value: Fraction) -> str:
    """Write a fraction as a decimal where it ends, else as ``p/q``; `exact_number` reads both back.

    Examples
    --------
    >>> decimal_text(Fraction(1, 100000)), decimal_text(Fraction(3, 10)), decimal_text(Fraction(1, 3))
    ('0.00001', '0.3', '1/3')
    """
    numerator, denominator = value.as_integer_ratio()
    rest, twos, fives = denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return f"{numerator}/{denominator}"
    places = max(twos, fives)
    digits = Decimal(numerator * 2 ** (places - twos) * 5 ** (places - fives))
    return str(digits.scaleb(-places, Context(prec=places + 400))).lower()
