"""What a voter is and what a release must be: the only door for ε, δ, K and m.

Everything above this module takes a `PrivacyParams` or a `MajorityProblem`, never a bare ε together with K, m or a δ.
Numbers are kept as the exact fractions that the user typed, because a certificate is about 1/10 and ``float(0.1)`` is
not 1/10; formulas read the nearest floats.

====================  =================  ==========================================================================
here                  [D]                meaning
====================  =================  ==========================================================================
``each``              (ε, Δ)             what every voter satisfies
``target``            (mε, δ)            what the released majority must satisfy
``m``                 m                  the privacy allowance, ``target.epsilon / each.epsilon``
``budget``            e^{mε} − 1 + 2δ    the right-hand side of Lemma 3.4
====================  =================  ==========================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from darrm import checks
from darrm.allowance import default_delta
from darrm.exact_decimals import Number, decimal_text, exact_number
from darrm.overlap import checked_overlap

# e^700 is about 1e304: beyond it e^{mε} has no room left in a float, and below 1e-323 ε and δ have none
LARGEST_EXPONENT, SMALLEST_NUMBER = 700, Fraction(1, 10**323)


def _as_typed(value: Number) -> Number:
    """Show a fraction as its decimal in messages."""
    return float(value) if isinstance(value, Fraction) else value


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

    Raises
    ------
    ValueError
        If a value lies outside its range.

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
        if exact_epsilon is not None and (exact_epsilon < 0 or 0 < exact_epsilon < SMALLEST_NUMBER):
            checks.fail(
                "epsilon", _as_typed(epsilon), "a finite number of at least 0, and 1e-323 or more if it is not 0"
            )
        if not 0 <= exact_delta < 1 or 0 < exact_delta < SMALLEST_NUMBER:
            checks.fail("delta", _as_typed(delta), "in [0, 1), and 1e-323 or more if it is not 0")
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

    def __repr__(self) -> str:
        return f"PrivacyParams(epsilon={self.epsilon_text}, delta={self.delta_text})"

    def __str__(self) -> str:
        return f"({self.epsilon:.6g}, {self.delta:.6g})" if self.is_private else "(inf, 0)"


@dataclass(frozen=True)
class MajorityProblem:
    """K voters, each (ε, Δ)-private, whose majority is to be released with (mε, δ)-privacy [D, Problem 1.1].

    Parameters
    ----------
    K
        Number of voters, at least 1. For even K a tie is answered by a fair coin.
    each
        What every voter satisfies, ε > 0; (∞, 0) for voters that are not private, such as PATE's teachers.
    target
        What the release must satisfy: m = target.epsilon / each.epsilon in [1, K] and target.delta ≥ each.delta; any
        finite ε > 0 if the voters are not private.
    overlap
        How many voters one person's data can reach at most, 1 … K; K (the paper's analysis) if None.

    Raises
    ------
    ValueError
        If a value lies outside its range, or e^{mε} overflows.

    Examples
    --------
    >>> problem = MajorityProblem(K=11, each=PrivacyParams(0.1, 1e-5), target=PrivacyParams(0.3, 3e-5))
    >>> problem.m, problem.half_size
    (3.0, 6)
    >>> round(problem.budget, 6)
    0.349919
    """

    K: int
    each: PrivacyParams
    target: PrivacyParams
    overlap: int | None = None

    def __post_init__(self) -> None:
        checks.integer_at_least(1, K=self.K, advice="K is the number of voters")
        object.__setattr__(self, "overlap", checked_overlap(self.K, self.overlap))
        if self.each.is_private and self.each.exact_epsilon <= 0:
            checks.fail("each.epsilon", self.each.epsilon, "positive", "voters with epsilon = 0 carry no information")
        if self.target.exact_epsilon > LARGEST_EXPONENT:
            checks.fail(
                "target.epsilon (m * epsilon)",
                self.target.epsilon,
                f"at most {LARGEST_EXPONENT}",
                "e^(m*epsilon) would overflow, and such a target protects nobody",
            )
        if not self.each.is_private and self.target.exact_epsilon == 0:
            checks.fail("target.epsilon", 0, "positive")
        if self.each.is_private and not 1 <= self.exact_m <= self.K:
            checks.fail("m", float(self.exact_m), f"in [1, K] = [1, {self.K}]", "m = target.epsilon / each.epsilon")
        if self.target.exact_delta < self.each.exact_delta:
            checks.fail(
                "target.delta",
                self.target.delta,
                f"at least each.delta = {self.each.delta}",
                "a majority cannot fail less often than one voter",
            )

    @classmethod
    def from_allowance(
        cls, K: int, m: Number, each: PrivacyParams, delta: Number | None = None, overlap: int | None = None
    ) -> MajorityProblem:
        """State the problem in the paper's way: the target is (m·ε, δ).

        Parameters
        ----------
        K, each
            As in `MajorityProblem`.
        m
            The privacy allowance, a real number in [1, K].
        delta
            δ of the target; by default 1 − (1 − Δ)^m, rounded down to 15 significant digits.
        overlap
            As in `MajorityProblem`.

        Examples
        --------
        >>> MajorityProblem.from_allowance(K=11, m=3, each=PrivacyParams(0.1, 1e-5)).target
        PrivacyParams(epsilon=0.3, delta=0.000029999700001)
        """
        checks.integer_at_least(1, K=K, advice="K is the number of voters")
        allowance = exact_number("m", m)
        if not 1 <= allowance <= K:
            checks.fail("m", m, f"in [1, K] = [1, {K}]")
        target_delta = default_delta(allowance, each.exact_delta) if delta is None else exact_number("delta", delta)
        return cls(K, each, PrivacyParams(allowance * each.exact_epsilon, target_delta), overlap)

    @property
    def reached(self) -> int:
        """How many voters one person's data can reach at most: the overlap t of `darrm.proof.corners`."""
        return self.K if self.overlap is None else self.overlap

    @property
    def exact_m(self) -> Fraction:
        """The privacy allowance m as a fraction; raises `ValueError` for voters that are not private."""
        if not self.each.is_private:
            raise ValueError("voters that are not private have no allowance m: state the target itself")
        return self.target.exact_epsilon / self.each.exact_epsilon

    @property
    def m(self) -> float:
        """The privacy allowance, target.epsilon / each.epsilon."""
        return float(self.exact_m)

    @property
    def cost_ratio(self) -> float:
        """The factor c = e^{mε} of the second term of the privacy cost."""
        return math.exp(self.target.epsilon)

    @property
    def budget(self) -> float:
        """B = e^{mε} − 1 + 2δ, what the privacy cost may be [D, Lemma 3.4]."""
        return math.expm1(self.target.epsilon) + 2.0 * self.target.delta

    @property
    def first_majority(self) -> int:
        """The smallest number of ones that is a strict majority, floor(K/2) + 1."""
        return self.K // 2 + 1

    @property
    def half_size(self) -> int:
        """Number of free values of γ: those at l = floor(K/2) + 1 … K."""
        return self.K - self.K // 2

    def explain(self) -> str:
        """Say the problem in words."""
        tie = "" if self.K % 2 else "; a tie is answered by a fair coin"
        reach = "all" if self.overlap is None else f"at most {self.overlap}"
        private = self.each.is_private
        voters = f"each {self.each}-differentially private" if private else "and are not private themselves"
        allowance = f" (m = {self.m:.6g})" if private else ""
        return (
            f"{self.K} voters answer 0 or 1, {voters}; one person's data may reach {reach} of them. "
            f"The released majority must be {self.target}-differentially private{allowance}{tie}."
        )
