"""The five verdicts on a claim, and the exact and enclosed numbers behind them.

No proof uses float arithmetic: a float is read as its exact fraction, or enclosed in a ball of `flint`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import ClassVar, Generic, Literal, TypeVar

from flint import arb, ctx
from numpy import float64
from numpy.typing import NDArray

Array = NDArray[float64]
Point = tuple[Fraction, Fraction]  # (ε, δ) of one query
Laws = tuple[Sequence[int], Sequence[int]]  # the laws of a label on two neighboring data sets, in one unit
Number = TypeVar("Number", float, Fraction)
BITS = 128  # bits after the binary point of corners and factors
ONE = 1 << BITS
MAX_EPSILON = 700  # of one query: beyond it e^ε overflows
RELATIVE_TOLERANCE = 1e-9  # for rounding in the prover's floats and in ours


@dataclass(frozen=True)
class Interval(Generic[Number]):
    """A number lies between ``lower`` and ``upper``."""

    lower: Number
    upper: Number
    rows: str = ""  # the examined rows, if it encloses a worst cost


@lru_cache(maxsize=4096)
def exponential(x: Fraction) -> Interval[Fraction]:
    """Enclose e^x for x ≥ 0, to about 2^-320.

    >>> float(exponential(Fraction(1)).lower), exponential(Fraction(1)).upper - exponential(Fraction(1)).lower < 1e-80
    (2.718281828459045, True)
    """
    with ctx.workprec(330 + 2 * ceil(x)):
        value = ball(x).exp()
        return Interval(-upper_end(-value), upper_end(value))


def bound_largest_sums(pairs: Iterable[Laws], epsilons: Sequence[Fraction]) -> list[tuple[int, int]]:
    """Bound the largest Σ max(0, p − e^ε·q) for each ε, in units of 2^-128, from below and above."""
    ratios = [(to_units(interval.upper, up=True), to_units(interval.lower)) for interval in map(exponential, epsilons)]
    worst = [[0, 0] for _ in epsilons]
    for p, q in pairs:
        for index, bounds in enumerate(ratios):
            for side, ratio in enumerate(bounds):
                total = sum(max(0, x * ONE - ratio * y) for x, y in zip(p, q, strict=True))
                worst[index][side] = max(worst[index][side], total)
    return [(lower, upper) for lower, upper in worst]


def to_units(value: Fraction, bits: int = BITS, *, up: bool = False) -> int:
    """Convert a value to whole units of 2^-bits, rounded down or ``up``."""
    return -(-(value.numerator << bits) // value.denominator) if up else (value.numerator << bits) // value.denominator


def ball(x: Fraction) -> arb:
    return arb(x.numerator) / x.denominator


def upper_end(value: arb) -> Fraction:
    mantissa, exponent = value.upper().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def upper_float(value: arb) -> float:
    return math.nextafter(float(value.upper()), math.inf)


def round_up(value: Fraction) -> float:
    rounded = float(value)
    return rounded if Fraction(rounded) >= value else math.nextafter(rounded, math.inf)


def conversion(order: Fraction, delta: Fraction) -> arb:
    """Enclose c(α) = log(1 − 1/α) − (log δ + log α)/(α − 1): ε = ρ + c(α) [CKS20, Prop. 12]."""
    alpha = ball(order)
    return (1 - 1 / alpha).log() - (ball(delta).log() + alpha.log()) / (alpha - 1)


def format_bound(bound: float | Fraction, digits: int = 6) -> str:
    """Write an upper bound with ``digits`` significant digits, rounded up.

    >>> format_bound(2.31252, 5), format_bound(0.1 + 0.2), format_bound(Fraction(1, 3), 2)
    ('2.3126', '0.3', '0.34')
    """
    if not isinstance(bound, Fraction):
        if bound == 0.0 or not math.isfinite(bound):
            return f"{abs(bound):g}"
        bound = Fraction(repr(math.nextafter(bound, -math.inf)))
    context = Context(prec=digits, rounding=ROUND_CEILING)
    return f"{float(context.divide(Decimal(bound.numerator), Decimal(bound.denominator))):.{digits}g}"


def format_pair(epsilon: float | Fraction, delta: float | Fraction, digits: int = 6) -> str:
    """Write a guaranteed pair, both rounded up.

    >>> format_pair(0.30000049, 1e-5)
    '(0.300001, 1e-05)'
    """
    return f"({format_bound(epsilon, digits)}, {format_bound(delta, 6)})"


def pluralize(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"


MEANINGS = {
    "proved independently": "by this verifier alone, in exact or ball arithmetic",
    "consistent": "agrees with everything else that was given",
    "assumed": "no file can show it",
    "unknown": "not decided by these files; the reason says why",
    "false": "contradicted by the files themselves",
}
PROVED, CONSISTENT, ASSUMED, UNKNOWN, FALSE = VERDICTS = tuple(MEANINGS)
Topic = Literal["cost of a label", "composition", "optimality", "labels match their debit", "history", "file", "ledger",
                "receipt", "plan", "voters", "estimate", "model card", "attack"]  # fmt: skip
COST: Topic = "cost of a label"
OPTIMALITY: Topic = "optimality"


class TooLargeError(ValueError):
    """A file holds more than an audit reads, so nothing is known about it."""


class FaultError(ValueError):
    """A file contradicts itself."""

    about: ClassVar[Topic]
    claim: ClassVar[str]


class LedgerFaultError(FaultError):
    about, claim = "ledger", "it is a whole ledger"


class ReceiptFaultError(FaultError):
    about, claim = "receipt", "it is a receipt"


@dataclass(frozen=True)
class Verdict:
    about: Topic
    claim: str
    verdict: str  # one of `VERDICTS`
    reason: str
    file: str = ""  # the file with the claim

    def __str__(self) -> str:
        return f"{self.verdict.upper() if self.verdict == FALSE else self.verdict:<22}{self.claim} ({self.reason})"


def decide(about: Topic, claim: str, reason: str, *, holds: bool, how: str = CONSISTENT) -> Verdict:
    return Verdict(about, claim, how if holds else FALSE, reason)
