"""What is believed about the voters' probabilities, as weights of the expected error.

The error of a noise function is ``|½ Σ_{l>K/2} (α_l − α_{K−l})(1 − γ(l))|`` with α the distribution of the number of
ones [D, Definition 2.4]. For the priors here the difference α_l − α_{K−l} does not change sign (all p_i ≥ 1/2, or one
common p whose side of 1/2 decides the sign of every term, [D, Lemma B.11]), so the expected error is linear:
½ Σ w_l (1 − γ(l)) with ``w_l = E|α_l − α_{K−l}|``. No sampling is needed:

* independent p_i with mean μ make the number of ones exactly Binomial(K, μ);
* a common p ~ U[0, 1] integrates to the regularized incomplete beta function.

Independent p_i on both sides of 1/2 have no such weights: the absolute value stays, and `Prior.sample` feeds
`darrm.laws.sampled_error` and the objective ``"expected-error"``.

A prior must be public: it must never be fitted to private votes.

**A prior of your own** is any object with the four members of `Prior`; ``tests/contracts/test_priors.py`` says what
they must fulfilll. Here p is 0.9 in easy questions and 0.6 in hard ones, the same for all voters:

>>> class EasyAndHard:
...     text = "easy and hard"
...     has_closed_form = True
...
...     def weights(self, K):
...         return 0.5 * (Point(0.9).weights(K) + Point(0.6).weights(K))
...
...     def sample(self, K, count, *, rng):
...         return np.repeat(rng.choice([0.9, 0.6], (count, 1)), K, axis=1)
>>> from darrm import Problem, PrivacyParams, Voters, optimize_gamma
>>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 2)
>>> table = optimize_gamma(problem, prior=EasyAndHard())
>>> round(table.optimality.value, 6) == round(table.gamma.expected_error(EasyAndHard()), 6)
True

A table keeps the name of such a prior and a digest of its coefficients: enough to recognize it, and no table depends on
more, because privacy has nothing to do with the prior.

>>> to_json(EasyAndHard(), 3)["name"], to_json(Point(0.9), 3)
('easy and hard', {'kind': 'point', 'p': '0.9'})
"""

import hashlib
import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.special import betainc

from darrm import checks
from darrm.probability import Array
from darrm.probability.binomial import binomial_pmf

_DIGEST_DRAWS = 100  # draws, from a fixed seed, that stand for a prior without coefficients in its digest
_OTHER = "other"  # the kind of a prior of which a file keeps name and digest


class Prior(Protocol):
    """A belief about the voters; ``str(prior)`` says it in words."""

    @property
    def text(self) -> str:
        """Its name; for the priors of this module what ``--prior`` reads: ``parse(prior.text) == prior``."""
        ...

    @property
    def has_closed_form(self) -> bool:
        """Whether the expected error is linear in γ, with `weights`."""
        ...

    def weights(self, K: int) -> Array:
        """Compute w_l ≥ 0 for l = floor(K/2) + 1 … K, shape (K − floor(K/2),), or raise `ValueError`."""
        ...

    def sample(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        """Draw the K voters' probabilities ``count`` times, shape (count, K)."""
        ...


@dataclass(frozen=True)
class _Known:
    """What the priors of this module share: a kind, and probabilities that text and JSON keep to the last digit."""

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        for name in self._decimals():
            checks.probability(**{name: getattr(self, name)})
            object.__setattr__(self, name, float(getattr(self, name)))

    def _decimals(self) -> dict[str, str]:
        """Return the fields as their shortest decimals that give the same floats back."""
        return {field.name: repr(getattr(self, field.name)).removesuffix(".0") for field in fields(self)}

    @property
    def text(self) -> str:
        """The prior as ``--prior`` reads it."""
        numbers = ",".join(self._decimals().values())
        return f"{self.kind}:{numbers}" if numbers else self.kind

    def to_json(self) -> dict[str, str]:
        """Write the prior as plain data, with exact decimals."""
        return {"kind": self.kind, **self._decimals()}


@dataclass(frozen=True)
class Independent(_Known):
    """Independent p_i ~ U[low, high]; with 1/2 ≤ low the paper's surrogate [D, Eq. 202] in closed form.

    The weight of γ(l) is then Bin(K, μ)(l) − Bin(K, μ)(K − l) with μ = (low + high)/2. The paper's T_U is (0, 1), which
    its objective replaces by (0.5, 1).

    >>> Independent(0.5, 1.0).weights(3)
    array([0.28125, 0.40625])
    >>> Independent(0.5, 1.0).sample(3, 2, rng=np.random.default_rng(0)).round(3)
    array([[0.818, 0.635, 0.52 ],
           [0.508, 0.907, 0.956]])
    >>> print(Independent(2 / 3, 1))
    independent p_i, uniform on [0.6666666666666666, 1]
    """

    low: float = 0.5
    high: float = 1.0
    kind: ClassVar[str] = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            checks.fail("low", self.low, f"at most high = {self.high}")

    def __str__(self) -> str:
        return f"independent p_i, uniform on [{', '.join(self._decimals().values())}]"

    @property
    def has_closed_form(self) -> bool:
        """Whether no p_i can fall below 1/2."""
        return self.low >= 0.5 and self.high > 0.5

    def weights(self, K: int) -> Array:
        """Compute Bin(K, μ)(l) − Bin(K, μ)(K − l) for l > K/2."""
        if not self.has_closed_form:
            checks.fail(
                "the prior",
                self.text,
                "uniform:LOW,HIGH with 0.5 <= LOW <= HIGH and HIGH > 0.5",
                "below 1/2 the majority changes sides and the expected error is not linear in γ: "
                "the objective expected-error takes such priors",
            )
        return _binomial_weights(K, 0.5 * (self.low + self.high))

    def sample(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        """Draw count × K independent probabilities."""
        checks.integer_at_least(1, K=K, count=count)
        return rng.uniform(self.low, self.high, (count, K))


@dataclass(frozen=True)
class TwoSided(_Known):
    """Independent p_i ~ U([1 − high, 1 − low] ∪ [low, high]): every voter decided, but not which way [D, D.1.3].

    The paper's T_P is (0.7, 1.0). There are no weights: by symmetry every E[α_l − α_{K−l}] is 0.

    >>> TwoSided(0.7, 1.0).sample(3, 1, rng=np.random.default_rng(0)).round(3)
    array([[0.109, 0.781, 0.712]])
    """

    low: float
    high: float
    kind: ClassVar[str] = "two-sided"
    has_closed_form: ClassVar[bool] = False  # the majority may fall on either side

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.5 <= self.low <= self.high:
            checks.fail("low", self.low, f"in [0.5, high] = [0.5, {self.high}]")

    def __str__(self) -> str:
        return f"independent p_i, each 1 − q or q with q uniform on [{', '.join(self._decimals().values())}]"

    def weights(self, K: int) -> Array:
        """Refuse: the expected error is not linear in γ."""
        checks.integer_at_least(1, K=K)
        advice = "the objective expected-error takes this one"
        return checks.fail("the prior", self.text, "one with a linear expected error", advice)

    def sample(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        """Draw count × K independent probabilities."""
        checks.integer_at_least(1, K=K, count=count)
        decided = rng.uniform(self.low, self.high, (count, K))
        return np.where(rng.random((count, K)) < 0.5, 1.0 - decided, decided)


@dataclass(frozen=True)
class CommonP(_Known):
    """One p ~ U[0, 1] shared by all voters; the expected error is then exactly linear.

    The weight of γ(l) is 2 ∫_{1/2}^{1} (α_l − α_{K−l}) dp = 2·(1 − 2·I_{1/2}(l+1, K−l+1)) / (K+1).

    >>> CommonP().weights(1)
    array([0.5])
    """

    kind: ClassVar[str] = "common"
    has_closed_form: ClassVar[bool] = True

    def __str__(self) -> str:
        return "one p shared by all voters, uniform on [0, 1]"

    def weights(self, K: int) -> Array:
        """Compute 2·(1 − 2·I_{1/2}(l+1, K−l+1))/(K+1) for l > K/2."""
        levels = np.arange(K // 2 + 1, K + 1)
        return np.asarray(2.0 * (1.0 - 2.0 * betainc(levels + 1.0, K - levels + 1.0, 0.5)) / (K + 1), dtype=np.float64)

    def sample(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        """Draw count probabilities and repeat each K times."""
        checks.integer_at_least(1, K=K, count=count)
        return np.repeat(rng.random((count, 1)), K, axis=1)


@dataclass(frozen=True)
class Point(_Known):
    """All p_i equal to one known p ≠ 1/2.

    >>> Point(0.8).weights(1), Point(0.2).weights(1)
    (array([0.6]), array([0.6]))
    """

    p: float
    kind: ClassVar[str] = "point"
    has_closed_form: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p == 0.5:
            checks.fail("p", self.p, "different from 0.5", "with p = 1/2 every noise function has error 0")

    def __str__(self) -> str:
        return f"every p_i = {self._decimals()['p']}"

    def weights(self, K: int) -> Array:
        """Compute ``|Bin(K, p)(l) − Bin(K, p)(K − l)|`` for l > K/2."""
        return _binomial_weights(K, max(self.p, 1.0 - self.p))

    def sample(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        """Repeat p count × K times: draws from an interval of length 0."""
        checks.integer_at_least(1, K=K, count=count)
        return rng.uniform(self.p, self.p, (count, K))


@dataclass(frozen=True)
class StoredPrior:
    """The name and the digest of a prior that a file could not keep: it can be recognized, not computed with.

    >>> StoredPrior("beta", "9f0a").weights(3)
    Traceback (most recent call last):
    ...
    ValueError: the prior must be given itself, got 'beta': the table keeps its name and a digest only
    """

    text: str  # the name that the prior had
    digest: str  # its `digest_of`; empty in files that were written before there were digests
    has_closed_form: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"the prior {self.text!r}"

    def weights(self, K: int) -> Array:
        """Refuse: nothing but the name and the digest is known."""
        checks.integer_at_least(1, K=K)
        return checks.fail("the prior", self.text, "given itself", "the table keeps its name and a digest only")

    def sample(self, K: int, count: int, *, rng: np.random.Generator) -> Array:  # noqa: ARG002 (as the protocol has it)
        """Refuse, as `weights` does."""
        checks.integer_at_least(1, K=K, count=count)
        return self.weights(K)

    def to_json(self) -> dict[str, str]:
        """Write name and digest as plain data."""
        return {"kind": _OTHER, "name": self.text, "sha256": self.digest}


_KINDS: dict[str, type[Independent | TwoSided | CommonP | Point]] = {
    prior.kind: prior for prior in (Independent, TwoSided, CommonP, Point)
}


def parse(text: str) -> Prior:
    """Read ``uniform``, ``uniform:LOW,HIGH``, ``two-sided:LOW,HIGH``, ``common`` or ``point:P``.

    `ValueError` if the text is none of these or a number is out of range.

    >>> parse("uniform:0.7,1"), parse("common"), parse("point:0.8")
    (Independent(low=0.7, high=1.0), CommonP(), Point(p=0.8))
    """
    checks.instance(str, text=text, advice="a prior itself needs no parsing")
    kind, colon, arguments = text.partition(":")
    try:
        numbers = [float(part) for part in arguments.split(",")] if colon else []
    except ValueError:
        numbers = [math.nan] * 3  # as many as no prior has
    if kind in _KINDS and (len(numbers) == len(fields(_KINDS[kind])) or text == Independent.kind):
        return _KINDS[kind](*numbers)
    allowed = "uniform, uniform:LOW,HIGH, two-sided:LOW,HIGH, common or point:P"
    return checks.fail("the prior", text, allowed, "for example uniform:0.7,1")


def is_built_in(prior: object) -> bool:
    """Whether its text says all of a prior: a subclass of one of this module may have weights of its own.

    >>> class Doubled(Point):
    ...     def weights(self, K):
    ...         return 2.0 * super().weights(K)
    >>> is_built_in(Point(0.8)), is_built_in(Doubled(0.8))
    (True, False)
    """
    return type(prior) in _KINDS.values()


def to_json(prior: Prior, K: int) -> dict[str, str]:
    """Write what a file about K voters keeps of a prior: all of one of this module, name and digest of any other."""
    if isinstance(prior, _Known | StoredPrior) and type(prior) in {*_KINDS.values(), StoredPrior}:
        return prior.to_json()
    return StoredPrior(str(prior.text), digest_of(prior, K)).to_json()


def from_json(data: Any) -> Prior:  # noqa: ANN401 (whatever a JSON file holds)
    """Read what `to_json` wrote, or the text of older files; `KeyError`, `TypeError` or `ValueError` if malformed.

    >>> from_json({"kind": "uniform", "low": "0.6666667", "high": "1"}) == from_json("uniform:0.6666667,1")
    True
    """
    if isinstance(data, str):
        data.encode()  # what cannot be written again is no text
        try:
            return parse(data)
        except ValueError:  # the name of a user's own prior
            return StoredPrior(data, "")
    values = dict(data)
    for name, value in values.items():
        if not isinstance(value, str):
            checks.fail(f"the prior's {name}", value, "text")
        value.encode()
    kind = values.pop("kind")
    if kind == _OTHER:
        return StoredPrior(text=values["name"], digest=values["sha256"])
    return _KINDS[kind](**{name: float(number) for name, number in values.items()})


def digest_of(prior: Prior, K: int) -> str:
    """Compute the SHA-256 of a prior's coefficients for K voters; of a few draws, if it has no coefficients."""
    if prior.has_closed_form:
        numbers = weights_of(prior, K)
    else:
        numbers = prior.sample(K, _DIGEST_DRAWS, rng=np.random.default_rng(0))
    return hashlib.sha256(np.ascontiguousarray(numbers, dtype="<f8").tobytes()).hexdigest()


def in_words(prior: Prior) -> str:
    """Write a prior for a report: in words and, where there is one, with the flag that asks for the very same.

    >>> in_words(Point(0.8))
    'every p_i = 0.8 (--prior point:0.8)'
    """
    return f"{prior} (--prior {prior.text})" if is_built_in(prior) else f"the prior {prior.text!r}"


def check(prior: object) -> None:
    """Check that a prior is an object with the members of `Prior`, and not its name."""
    members = ("text", "has_closed_form", "weights", "sample")
    if isinstance(prior, type) or not all(hasattr(prior, member) for member in members):
        advice = "say CommonP(), or darrm.laws.priors.parse(text) for text"
        checks.fail("prior", prior, "an object with weights and sample", advice)


def weights_of(prior: Prior, K: int) -> Array:
    """Compute ``prior.weights(K)``; `ValueError` if they are not K − floor(K/2) finite numbers of at least 0."""
    check(prior)
    weights = np.asarray(prior.weights(K), dtype=np.float64)
    if weights.shape != (K - K // 2,) or not np.all((weights >= 0.0) & (weights < np.inf)):
        checks.fail(f"the weights of the prior {prior.text!r}", weights, f"{K - K // 2} finite numbers of at least 0")
    return weights


def law_of_ones(prior: Prior, K: int) -> Array | None:
    """Compute Pr[l ones] for l = 0 … K, shape (K + 1,); None for a prior of your own, whose draws alone are known.

    >>> law_of_ones(CommonP(), 3)
    array([0.25, 0.25, 0.25, 0.25])
    """
    if not is_built_in(prior):
        return None
    if isinstance(prior, CommonP):
        return np.full(K + 1, 1.0 / (K + 1))
    if isinstance(prior, Independent):
        return binomial_pmf(K, 0.5 * (prior.low + prior.high))
    return binomial_pmf(K, prior.p if isinstance(prior, Point) else 0.5)  # two-sided: each side is as likely


def _binomial_weights(K: int, p: float) -> Array:
    """Compute α_l − α_{K−l} = α_l·(1 − ((1−p)/p)^{2l−K}) without cancellation, for p > 1/2."""
    levels = np.arange(K // 2 + 1, K + 1)
    pmf = binomial_pmf(K, p)[K // 2 + 1 :]
    if p == 1.0:
        return pmf
    return np.asarray(pmf * -np.expm1((2 * levels - K) * (math.log1p(-p) - math.log(p))), dtype=np.float64)
