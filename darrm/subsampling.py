"""Privacy amplification when voters resample examples per query, such as prompted language models.

Fix the data of all other people. A label has the law A if the person is not among the examples of the query, and B if
they are; B differs from A by at most the votes that the person can influence. They are among the examples with
probability q, independently for each query.

* **poisson**: each person is included independently. Neighbors add or remove a person: the label's law is A without
  them and (1 − q)A + qB with them, for any data of the others.
* **fixed**: a fixed number of people is drawn without replacement. Neighbors replace a person: the laws are
  (1 − q)A + qB and (1 − q)A + qB', and any two of A, B and B' differ by one person's votes.

Let h(x) bound the divergence H_{e^x} of any two laws that differ by the votes of one person, in both directions, and
let e^y = 1 + (e^x − 1)/q. Then, for x ≥ 0 [BBG18, Section 4],

    H_{e^x}((1 − q)A + qB ‖ A) = q·H_{e^y}(B ‖ A) ≤ q·h(y),
    H_{e^x}(A ‖ (1 − q)A + qB) ≤ (1 − (1 − q)e^x)·h(z),    e^z = q·e^x/(1 − (1 − q)e^x),    0 where (1 − q)e^x ≥ 1,
    H_{e^x}((1 − q)A + qB ‖ (1 − q)A + qB') ≤ q·h(y).

The second is at most the first's bound: z ≥ y, as q²e^x − (q + e^x − 1)(1 − (1 − q)e^x) = (1 − q)(e^x − 1)² ≥ 0. So an
(ε₀, δ₀)-private label is (ln(1 + q(e^{ε₀} − 1)), qδ₀)-private for both neighbor relations. Examples of queries are
independent, so the costs of queries compose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction

from darrm.privacy import LARGEST_EXPONENT, Number, PrivacyParams, decimal_text, exact_number
from darrm.util import checks
from darrm.util.files import Json

SCHEMES = {"poisson": "add or remove one person", "fixed": "replace one person"}
_MIN_RATE = Fraction(1, 10**15)  # one record among more than the world population
_MAX_RECORDS = 100  # of one person, because 1 − (1 − q)^r is an exact fraction
_PRECISION, _DIGITS = 60, 27  # decimal digits of a logarithm, and those of the result
_MAX_DELTA = 1 - Fraction(1, 2**53)


@dataclass(frozen=True)
class Subsampling:
    """The probability that a person is among the examples of a query.

    Parameters
    ----------
    record_rate
        The probability in [1e-15, 1] that one record is among the examples of a query.
    scheme
        ``"poisson"``: records are included independently, and neighbors add or remove one person; ``"fixed"``: a fixed
        number without replacement, the share ``record_rate`` of all, and neighbors replace one person. Costs under
        different schemes never add up.
    records
        The largest number of records of one person, who can influence as many voters.

    Examples
    --------
    >>> print(Subsampling("0.004"))
    a person is among the examples of a question with probability 0.004; neighbors add or remove one person
    >>> Subsampling("0.5", records=2).rate, Subsampling("0.25", "fixed", records=2).rate
    (Fraction(3, 4), Fraction(1, 2))
    """

    record_rate: Fraction
    scheme: str = "poisson"
    records: int = 1

    def __post_init__(self) -> None:
        rate = exact_number("the sampling rate", self.record_rate)
        if not _MIN_RATE <= rate <= 1:
            advice = "the probability that one person is among the examples of a question, like 0.004"
            checks.fail("the sampling rate", float(rate), "in (0, 1], and at least 1e-15", advice)
        checks.one_of(SCHEMES, scheme=self.scheme)
        checks.integer_at_least(1, most=_MAX_RECORDS, records=self.records, advice="how many records one person has")
        object.__setattr__(self, "record_rate", rate)
        object.__setattr__(self, "records", int(self.records))

    @classmethod
    def of(cls, rate: Number | Subsampling) -> Subsampling:
        """Return a number as Poisson sampling with one record for each person."""
        return rate if isinstance(rate, Subsampling) else cls(exact_number("the sampling rate", rate))

    @property
    def rate(self) -> Fraction:
        """q, the probability that a person is among the examples; for ``"fixed"`` an upper bound."""
        if self.scheme == "fixed":
            return min(Fraction(1), self.records * self.record_rate)
        return 1 - (1 - self.record_rate) ** self.records

    @property
    def neighbors(self) -> str:
        """The difference of neighboring data sets, in words."""
        return SCHEMES[self.scheme]

    def covers(self, other: Subsampling) -> bool:
        """Whether a proof for this sampling holds for another: equal neighbors and no larger rate."""
        return self.scheme == other.scheme and self.rate >= other.rate

    def conditional_on_inclusion(self, target: PrivacyParams) -> PrivacyParams:
        """Return the guarantee for a person among the examples that makes a label ``target``-private.

        (ln(1 + (e^ε − 1)/q), δ/q), rounded down.

        >>> Subsampling("0.004").conditional_on_inclusion(PrivacyParams("0.01", "1e-9"))
        PrivacyParams(epsilon=1.25633992670075907323155692, delta=2.5e-7)
        """
        if target.exact_epsilon > LARGEST_EXPONENT:
            checks.fail("the epsilon of a question", target.epsilon, f"at most {LARGEST_EXPONENT}")
        epsilon, delta = target.exact_epsilon, min(target.exact_delta / self.rate, _MAX_DELTA)
        magnitude = max(0, -math.floor(math.log10(epsilon))) if epsilon else 0
        with localcontext(Context(prec=_PRECISION + 2 * magnitude)):
            exponent = Decimal(epsilon.numerator) / epsilon.denominator
            rate = Decimal(self.rate.numerator) / self.rate.denominator
            # rounding errors at 60 digits after cancellation are far below the margin
            conditional_epsilon = (1 + (exponent.exp() - 1) / rate).ln() * (1 - Decimal("1e-40"))
        return PrivacyParams(Fraction(Context(prec=_DIGITS, rounding=ROUND_FLOOR).plus(conditional_epsilon)), delta)

    def __str__(self) -> str:
        rate, records = decimal_text(self.rate), ""
        if self.records > 1:
            rate = f"{float(self.rate):.6g}"
            records = f"; {self.records} records each, drawn with {decimal_text(self.record_rate)}"
        included = f"a person is among the examples of a question with probability {rate}{records}"
        return f"{included}; neighbors {self.neighbors}"

    def to_json(self) -> dict[str, Json]:
        """Write plain data."""
        records = {} if self.records == 1 else {"records": self.records}
        return {"rate": decimal_text(self.record_rate), "scheme": self.scheme, **records}

    @classmethod
    def from_json(cls, data: dict[str, Json]) -> Subsampling:
        """`KeyError`, `TypeError` or `ValueError` if the data is malformed."""
        if not isinstance(data, dict) or not isinstance(data["rate"], str) or set(data) - {"rate", "scheme", "records"}:
            checks.fail("sampled", str(data), 'like {"rate": "0.004", "scheme": "poisson"}')
        return cls(exact_number("the sampling rate", data["rate"]), data["scheme"], data.get("records", 1))
