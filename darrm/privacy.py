"""An (ε, δ) pair, kept as the exact fractions that the user typed.

A certificate is about 1/10, and ``float(0.1)`` is not 1/10; formulas read the nearest floats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

from darrm import checks

Number = int | float | str | Fraction | Decimal

# e^700 is about 1e304: beyond it e^{mε} has no room left in a float, and below 1e-323 ε and δ have none
LARGEST_EXPONENT, SMALLEST_NUMBER = 700, Fraction(1, 10**323)


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


@dataclass(frozen=True, init=False, repr=False)
class PrivacyParams:
    """An (ε, δ) pair of differential privacy.

    Parameters
    ----------
    epsilon
        ε ≥ 0. A float counts as its shortest decimal writing; text and fractions are taken exactly. Infinity, with
        delta = 0, says that nothing is promised: so much for voters that are not private, and refused anywhere else.
    delta
        δ in [0, 1).

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
        if str(epsilon).strip().lower().lstrip("+") in {"inf", "infinity"}:
            exact_epsilon = None
            if exact_delta != 0:
                checks.fail("epsilon", epsilon, "a finite number of at least 0 where delta is not 0")
        else:
            exact_epsilon = exact_number("epsilon", epsilon)
        for name, given, exact, most, allowed in (
            ("epsilon", epsilon, exact_epsilon, math.inf, "a finite number of at least 0"),
            ("delta", delta, exact_delta, 1, "in [0, 1)"),
        ):
            if exact is not None and not (exact == 0 or SMALLEST_NUMBER <= exact < most):
                shown = float(given) if isinstance(given, Fraction) else given
                checks.fail(name, shown, f"{allowed}, and 1e-323 or more if it is not 0")
        object.__setattr__(self, "finite_epsilon", exact_epsilon)
        object.__setattr__(self, "exact_delta", exact_delta)

    @property
    def is_private(self) -> bool:
        """Whether ε is finite: False for voters about whom nothing is promised."""
        return self.finite_epsilon is not None

    @property
    def exact_epsilon(self) -> Fraction:
        """ε as a fraction; raises `ValueError` if it is infinite, so that no formula meets it by accident."""
        if self.finite_epsilon is None:
            checks.fail("epsilon", math.inf, "a finite number of at least 0", "only voters may be not private")
        return self.finite_epsilon

    @property
    def epsilon(self) -> float:
        """The float nearest to ε, ∞ for one beyond all floats; raises `ValueError` if it is infinite itself."""
        return math.inf if self.exact_epsilon > 10**308 else float(self.exact_epsilon)

    @property
    def delta(self) -> float:
        """The float nearest to δ."""
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
        """Write the pair as the decimals that were typed."""
        return {"epsilon": self.epsilon_text, "delta": self.delta_text}

    @classmethod
    def from_json(cls, data: dict[str, str]) -> PrivacyParams:
        """Read what `to_json` wrote; `KeyError`, `TypeError` or `ValueError` if it is malformed."""
        return cls(data["epsilon"], data["delta"])

    def __repr__(self) -> str:
        return f"PrivacyParams(epsilon={self.epsilon_text}, delta={self.delta_text})"

    def __str__(self) -> str:
        return f"({self.epsilon:.6g}, {self.delta:.6g})" if self.is_private else "(inf, 0)"
