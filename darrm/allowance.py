"""The δ that the paper gives a release by default."""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction


def default_delta(m: Fraction, each_delta: Fraction) -> Fraction:
    """Compute the paper's δ = 1 − (1 − Δ)^m, rounded down to 15 significant digits but never below Δ.

    Rounding down is the safe side: a release private with the smaller δ is private with the larger one.

    Examples
    --------
    >>> float(default_delta(Fraction(2), Fraction(1, 10))), float(default_delta(Fraction(5, 2), Fraction(0)))
    (0.19, 0.0)
    """
    if each_delta == 0:
        return Fraction(0)
    magnitude = max(0, -math.floor(math.log10(each_delta)))
    work = Context(prec=60 + magnitude)
    if m.denominator == 1:
        value = 1 - (1 - each_delta) ** m.numerator
        quotient = Context(prec=15, rounding=ROUND_DOWN).divide(Decimal(value.numerator), Decimal(value.denominator))
    else:
        base = work.divide(Decimal((1 - each_delta).numerator), Decimal(each_delta.denominator))
        exponent = work.divide(Decimal(m.numerator), Decimal(m.denominator))
        power = work.power(base, exponent)
        # at 60 digits the rounding errors so far are below 1e-50 relative; the margin covers them
        below = work.multiply(work.subtract(Decimal(1), power), Decimal(1) - Decimal("1e-40"))
        quotient = Context(prec=15, rounding=ROUND_DOWN).plus(below)
    return max(each_delta, Fraction(quotient))
