"""What is believed about the voters' probabilities, as weights of the expected error.

The error of a noise function is |½ Σ_{l>K/2} (α_l − α_{K−l})(1 − γ(l))| with α the distribution of the number of ones
[D, Definition 2.4]. For the priors here the difference α_l − α_{K−l} does not change sign (all p_i ≥ 1/2, or one
common p whose side of 1/2 decides the sign of every term, [D, Lemma B.11]), so the expected error is linear:
½ Σ w_l (1 − γ(l)) with w_l = E|α_l − α_{K−l}|. No sampling is needed:

* independent p_i with mean μ make the number of ones exactly Binomial(K, μ);
* a common p ~ U[0, 1] integrates to the regularised incomplete beta function.

Independent p_i on both sides of 1/2 have no such weights: the absolute value stays, and `Prior.sample` feeds
`darrm.gamma.sampled_error` and the objective ``"expected-error"``.

A prior must be public: it must never be fitted to private votes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from darrm import checks
from darrm.probability.binomial import binomial_pmf

Array = NDArray[np.float64]


class Prior(Protocol):
    """A belief about the voters."""

    def weights(self, K: int) -> Array:
        """Compute w_l ≥ 0 for l = floor(K/2) + 1 … K, shape (K − floor(K/2),), or raise `ValueError`."""
        ...

    def sample(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        """Draw the K voters' probabilities ``count`` times, shape (count, K)."""
        ...

    @property
    def has_closed_form(self) -> bool:
        """Whether the expected error is linear in γ, with `weights`."""
        ...

    @property
    def text(self) -> str:
        """The prior as the command line writes it."""
        ...


@dataclass(frozen=True)
class Independent:
    """Independent p_i ~ U[low, high]; with 1/2 ≤ low the paper's surrogate [D, Eq. 202] in closed form.

    The weight of γ(l) is then Bin(K, μ)(l) − Bin(K, μ)(K − l) with μ = (low + high)/2. The paper's T_U is (0, 1), which
    its objective replaces by (0.5, 1).

    Examples
    --------
    >>> Independent(0.5, 1.0).weights(3)
    array([0.28125, 0.40625])
    """

    low: float = 0.5
    high: float = 1.0

    def __post_init__(self) -> None:
        checks.probability(low=self.low, high=self.high)
        if self.low > self.high:
            checks.fail("low", self.low, f"at most high = {self.high}")

    @property
    def text(self) -> str:
        """The prior as the command line writes it."""
        return f"uniform:{self.low:g},{self.high:g}"

    def weights(self, K: int) -> Array:
        """Compute Bin(K, μ)(l) − Bin(K, μ)(K − l) for l > K/2."""
        if self.low < 0.5 or self.high == 0.5:
            checks.fail(
                "the prior",
                self.text,
                "uniform:LOW,HIGH with 0.5 <= LOW <= HIGH and HIGH > 0.5",
                "below 1/2 the majority changes sides and the expected error is not linear in γ: "
                "the objective expected-error takes such priors",
            )
        return _binomial_weights(K, 0.5 * (self.low + self.high))

    @property
    def has_closed_form(self) -> bool:
        """Whether no p_i can fall below 1/2."""
        return self.low >= 0.5 and self.high > 0.5

    def sample(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        """Draw count × K independent probabilities.

        Examples
        --------
        >>> Independent(0.5, 1.0).sample(3, 2, rng=np.random.default_rng(0)).round(3)
        array([[0.818, 0.635, 0.52 ],
               [0.508, 0.907, 0.956]])
        """
        _check_sample(K, count)
        return rng.uniform(self.low, self.high, (count, K))


@dataclass(frozen=True)
class TwoSided:
    """Independent p_i ~ U([1 − high, 1 − low] ∪ [low, high]): every voter decided, but not which way [D, D.1.3].

    The paper's T_P is (0.7, 1.0). There are no weights: by symmetry every E[α_l − α_{K−l}] is 0.

    Examples
    --------
    >>> TwoSided(0.7, 1.0).sample(3, 1, rng=np.random.default_rng(0)).round(3)
    array([[0.109, 0.781, 0.712]])
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        checks.probability(low=self.low, high=self.high)
        if not 0.5 <= self.low <= self.high:
            checks.fail("low", self.low, f"in [0.5, high] = [0.5, {self.high}]")

    @property
    def text(self) -> str:
        """The prior as the command line writes it."""
        return f"two-sided:{self.low:g},{self.high:g}"

    @property
    def has_closed_form(self) -> bool:
        """Never: the majority may fall on either side."""
        return False

    def weights(self, K: int) -> Array:
        """Refuse: the expected error is not linear in γ."""
        _ = K
        return checks.fail(
            "the prior", self.text, "one with a linear expected error", "the objective expected-error takes this one"
        )

    def sample(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        """Draw count × K independent probabilities."""
        _check_sample(K, count)
        decided = rng.uniform(self.low, self.high, (count, K))
        return np.where(rng.random((count, K)) < 0.5, 1.0 - decided, decided)


@dataclass(frozen=True)
class CommonP:
    """One p ~ U[0, 1] shared by all voters; the expected error is then exactly linear.

    The weight of γ(l) is 2 ∫_{1/2}^{1} (α_l − α_{K−l}) dp = 2·(1 − 2·I_{1/2}(l+1, K−l+1)) / (K+1).

    Examples
    --------
    >>> CommonP().weights(1)
    array([0.5])
    """

    @property
    def text(self) -> str:
        """The prior as the command line writes it."""
        return "common"

    def weights(self, K: int) -> Array:
        """Compute 2·(1 − 2·I_{1/2}(l+1, K−l+1))/(K+1) for l > K/2."""
        levels = np.arange(K // 2 + 1, K + 1)
        return np.asarray(2.0 * (1.0 - 2.0 * betainc(levels + 1.0, K - levels + 1.0, 0.5)) / (K + 1), dtype=np.float64)

    @property
    def has_closed_form(self) -> bool:
        """Always."""
        return True

    def sample(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        """Draw count probabilities and repeat each K times."""
        _check_sample(K, count)
        return np.repeat(rng.random((count, 1)), K, axis=1)


@dataclass(frozen=True)
class Point:
    """All p_i equal to one known p ≠ 1/2.

    Examples
    --------
    >>> Point(0.8).weights(1), Point(0.2).weights(1)
    (array([0.6]), array([0.6]))
    """

    p: float

    def __post_init__(self) -> None:
        checks.probability(p=self.p)
        if self.p == 0.5:
            checks.fail("p", self.p, "different from 0.5", "with p = 1/2 every noise function has error 0")

    @property
    def text(self) -> str:
        """The prior as the command line writes it."""
        return f"point:{self.p!r}"

    def weights(self, K: int) -> Array:
        """Compute |Bin(K, p)(l) − Bin(K, p)(K − l)| for l > K/2."""
        return _binomial_weights(K, max(self.p, 1.0 - self.p))

    @property
    def has_closed_form(self) -> bool:
        """Always."""
        return True

    def sample(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        """Repeat p count × K times; nothing is drawn."""
        _ = rng
        _check_sample(K, count)
        return np.full((count, K), self.p)


def parse(text: str) -> Prior:
    """Read ``uniform``, ``uniform:LOW,HIGH``, ``two-sided:LOW,HIGH``, ``common`` or ``point:P``.

    Raises
    ------
    ValueError
        If the text is none of these or a number is out of range.

    Examples
    --------
    >>> parse("uniform:0.7,1"), parse("common"), parse("point:0.8")
    (Independent(low=0.7, high=1.0), CommonP(), Point(p=0.8))
    """
    kind, _, arguments = text.partition(":")
    try:
        numbers = [float(part) for part in arguments.split(",")] if arguments else []
    except ValueError:
        numbers = [math.nan]
    if not any(math.isnan(number) for number in numbers):
        if kind == "common" and text == "common":
            return CommonP()
        if kind == "uniform" and (text == "uniform" or len(numbers) == 2):
            return Independent(*numbers)
        if kind == "two-sided" and len(numbers) == 2:
            return TwoSided(*numbers)
        if kind == "point" and len(numbers) == 1:
            return Point(numbers[0])
    allowed = "uniform, uniform:LOW,HIGH, two-sided:LOW,HIGH, common or point:P"
    return checks.fail("the prior", text, allowed, "for example uniform:0.7,1")


def _check_sample(K: int, count: int) -> None:
    checks.integer_at_least(1, K=K, count=count)


def _binomial_weights(K: int, p: float) -> Array:
    """Compute α_l − α_{K−l} = α_l·(1 − ((1−p)/p)^{2l−K}) without cancellation, for p > 1/2."""
    levels = np.arange(K // 2 + 1, K + 1)
    pmf = binomial_pmf(K, p)[K // 2 + 1 :]
    if p == 1.0:
        return pmf
    return np.asarray(pmf * -np.expm1((2 * levels - K) * (math.log1p(-p) - math.log(p))), dtype=np.float64)
