"""The guarantee of random differential privacy, as a separate type.

A mechanism M is (ε, δ, γ)-random differentially private under a distribution P if, for neighboring data sets D, D′ of n
records (n + 1 independent draws from P; D and D′ share n − 1 records),

    Pr[ for all R: Pr(M(D) ∈ R) ≤ e^ε · Pr(M(D′) ∈ R) + δ ] ≥ 1 − γ                       [S, Definition 4]

This is weaker than (ε, δ)-differential privacy: a share γ of the pairs has no guarantee, and neither have data that P
does not describe. So a `RandomDP` has no ``epsilon`` or ``delta``, and composes only with other `RandomDP`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from decimal import ROUND_UP, Context, Decimal, localcontext
from fractions import Fraction
from typing import NoReturn

from darrm.privacy import Number, PrivacyPair, PrivacyParams, at_most, decimal_text, exact_number
from darrm.util import checks

_FIFTEEN_DIGITS_UP = Context(prec=15, rounding=ROUND_UP)
_PLAIN_PRIVACY_NAMES = ("epsilon", "delta", "exact_epsilon", "exact_delta", "is_private")


@dataclass(frozen=True, init=False)
class RandomDP:
    """An (ε, δ, γ) guarantee of random differential privacy [S, Definition 4]; it composes under one name of P.

    >>> promise = RandomDP(PrivacyParams(0.5), gamma=0.05, records=1000, distribution="Exp(1)")
    >>> print(promise)
    (0.5, 0)-private on all but a share 0.05 of the neighboring pairs of 1000 records from Exp(1)
    >>> hasattr(promise, "epsilon")
    False
    """

    on_covered_pairs: PrivacyParams  # holds on a share 1 − γ of the neighboring pairs
    exact_gamma: Fraction  # γ in (0, 1), the largest share of pairs without a guarantee
    records: int  # n, of each data set
    distribution: str  # a name of P, the distribution of one record
    noise: str  # a description of the release's noise and its randomness

    def __init__(
        self, on_covered_pairs: PrivacyPair, gamma: Number, records: int, distribution: str, noise: str = "not stated"
    ) -> None:
        exact_gamma = exact_number("gamma", gamma)
        on_covered_pairs = PrivacyParams.of(on_covered_pairs, "on_covered_pairs")
        if not 0 < exact_gamma < 1:
            advice = "a share of 1 or more promises nothing: sample more, or release less"
            checks.fail("gamma", float(exact_gamma), "in (0, 1)", advice)
        checks.integer_at_least(1, records=records)
        if not isinstance(distribution, str) or not distribution:
            checks.fail("distribution", distribution, "a name of the distribution of one record")
        values = (on_covered_pairs, exact_gamma, int(records), distribution, noise)
        for field, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)

    @property
    def gamma(self) -> float:
        """The float nearest to γ."""
        return float(self.exact_gamma)

    def under(self, distribution: str, divergence: float) -> RandomDP:
        """Transfer the guarantee to another distribution Q: γ grows by √((n + 1)·τ/2) [S, Proposition 8].

        ``divergence`` is τ ≥ KL(P‖Q) for one record, in nats. `ValueError` if the new γ is 1 or more.

        >>> RandomDP(PrivacyParams(0.5), gamma=0.05, records=199, distribution="P").under("Q", divergence=1e-4).gamma
        0.15
        """
        checks.non_negative(divergence=divergence)
        square = (self.records + 1) * exact_number("divergence", divergence) / 2
        with localcontext(Context(prec=60)):
            root = (Decimal(square.numerator) / square.denominator).sqrt()
        gamma = self.exact_gamma + Fraction(_FIFTEEN_DIGITS_UP.plus(root))
        return RandomDP(self.on_covered_pairs, gamma, self.records, distribution, self.noise)

    def __str__(self) -> str:
        return (
            f"{self.on_covered_pairs}-private on all but a share {at_most(self.gamma, 6)} of the neighboring pairs of "
            f"{self.records} records from {self.distribution}"
        )

    def __repr__(self) -> str:
        return (
            f"RandomDP({self.on_covered_pairs!r}, gamma={decimal_text(self.exact_gamma)}, records={self.records}, "
            f"distribution={self.distribution!r}, noise={self.noise!r})"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name in _PLAIN_PRIVACY_NAMES:
            raise AttributeError(
                f"a RandomDP guarantee has no {name}: it is no differential privacy and must not be composed as such; "
                "on_covered_pairs holds the (epsilon, delta) that all but a share gamma of the pairs enjoy"
            )
        raise AttributeError(f"RandomDP has no attribute {name!r}")


def compose(guarantees: Iterable[RandomDP]) -> RandomDP:
    """Compose releases about the same data: ε and δ add, and the γ add by a union bound.

    With probability at least 1 − Σγ all releases cover a pair. `TypeError` for other guarantees; `ValueError` if
    distributions or numbers of records differ, or Σγ ≥ 1.

    >>> one = RandomDP(PrivacyParams(0.1, 1e-6), gamma=0.02, records=100, distribution="P")
    >>> print(compose([one, one, one]))
    (0.3, 3e-06)-private on all but a share 0.06 of the neighboring pairs of 100 records from P
    """
    terms = list(guarantees)
    if not terms:
        checks.fail("guarantees", terms, "at least one guarantee")
    for term in terms:
        if not isinstance(term, RandomDP):
            raise TypeError(f"only RandomDP guarantees compose with each other, got {term!r}")
    first = terms[0]
    for term in terms:
        if (term.records, term.distribution) != (first.records, first.distribution):
            checks.fail("guarantees", [str(first), str(term)], "about the same number of records and distribution")
    privacy = PrivacyParams(
        sum(term.on_covered_pairs.exact_epsilon for term in terms),
        sum(term.on_covered_pairs.exact_delta for term in terms),
    )
    noise = "; ".join(dict.fromkeys(term.noise for term in terms))
    return RandomDP(privacy, sum(term.exact_gamma for term in terms), first.records, first.distribution, noise)
