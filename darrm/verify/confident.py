"""What Confident-GNMax costs, recomputed from the words of a ledger: no file holds such a mechanism.

A query is checked, whether a statistic of sensitivity 1 and Gaussian noise of σ₁ votes reach a threshold, and answered
by GNMax with σ₂ votes. Whatever the threshold and the votes, a check tells one bit, `noisy_labels.renyi_of_bit`, and an
answer one label, `noisy_labels.renyi_of_label`; each may depend on the bits and labels before, so n bits and m labels
cost n times the one and m times the other [M17, Proposition 1].
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from darrm.verify.exact import Enclosure
from darrm.verify.noisy_labels import Between, TooWideError, gaussian, renyi_of_bit, renyi_of_label

_LEAST_SIGMA = 0.01  # votes: less is next to no noise
_NUMBER = r"([-+.\deE]+)"
_WORDS = re.compile(
    rf"(?:Confident|Interactive)GNMax\(threshold={_NUMBER}, sigma_threshold={_NUMBER}, sigma_answer={_NUMBER},"
    rf"(?: confidence={_NUMBER},)? noise='discrete'\)(?:: (\d{{1,15}}) checks, (\d{{1,15}}) answers)?"
)


@dataclass(frozen=True)
class ExactConfident:
    """Checks and answers that are charged for at once, with noise of so many votes."""

    sigma_check: float
    sigma_answer: float
    checks: int = 1
    answers: int = 1

    def renyi(self, order: float, enough: float = 0.0) -> Between | None:
        """Enclose the Rényi divergence of all of them; None where it takes too long.

        >>> found = ExactConfident(150.0, 40.0).renyi(8.0)
        >>> 0.00331 < found.low < found.high < 0.00333
        True
        """
        return _renyi(self, order, enough)

    def deltas(self, *_: object, **__: object) -> list[Enclosure] | None:
        """Return None: sums are made of the curve."""
        return None

    def for_plain_voters(self, overlap: int) -> Self:
        """Return itself: what it costs holds for all votes of which a person moves one."""
        if overlap > 1:
            raise ValueError(f"a person moves one vote, and reaches {overlap}")
        return self


def of_words(what: str) -> ExactConfident | None:
    """Read what queries are called; None where it is something else.

    >>> of_words("ConfidentGNMax(threshold=200, sigma_threshold=150, sigma_answer=40.0, noise='discrete')")
    ExactConfident(sigma_check=150.0, sigma_answer=40.0, checks=1, answers=1)
    """
    read = _WORDS.fullmatch(what)
    if read is None:
        return None
    try:
        return ExactConfident(float(read[2]), float(read[3]), int(read[5] or 1), int(read[6] or 1))
    except ValueError:
        return None


@lru_cache(maxsize=64)
def _renyi(exact: ExactConfident, order: float, enough: float) -> Between | None:
    if min(exact.sigma_check, exact.sigma_answer) < _LEAST_SIGMA or not exact.answers:
        return None
    try:
        bit = renyi_of_bit(gaussian(exact.sigma_check), order)
        left = max(0.0, enough - exact.checks * bit.high) / exact.answers
        label = renyi_of_label(gaussian(exact.sigma_answer), order, enough=left)
    except TooWideError:
        return None
    low, high = (exact.checks * b + exact.answers * a for b, a in ((bit.low, label.low), (bit.high, label.high)))
    return Between(low, high * (1.0 + 1e-15))
