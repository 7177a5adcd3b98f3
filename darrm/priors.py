"""Public priors on the votes: laws on histograms, and the expected error or accuracy of a law under them.

A `Prior` is a law on histograms (n_1, …, n_C) of K votes. It must be public, not fitted to private votes. The
*accuracy* of a release is the probability that its answer is one of the classes with the most votes.

**Two classes.** Voter i answers 1 with probability p_i. The error of γ is ``|½ Σ_{l>K/2} (α_l − α_{K−l})(1 − γ(l))|``
with α the law of the number of ones [D, Definition 2.4]. If no α_l − α_{K−l} changes sign (all p_i ≥ 1/2, or one common
p [D, Lemma B.11]), the expected error is linear: ½ Σ w_l (1 − γ(l)) with ``w_l = E|α_l − α_{K−l}|``.

* independent p_i with mean μ give a Binomial(K, μ) number of ones, so only the mean counts;
* a common p ~ Beta(a, a), `Dirichlet`, gives a beta-binomial one and integrates to the incomplete beta function;
* votes that are certain given the data, as recorded ones, have w_l = Pr[l ones] + Pr[K − l ones].

Independent p_i on both sides of 1/2 have no such weights: draws of `Prior.probabilities` give the expected error.

**A user's prior** inherits from `Prior` (docs/how-to/own-prior.md, ``tests/contracts/test_priors.py``). A table keeps
its name and digest.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from darrm.numerics import Array
from darrm.numerics.binomial import binomial_pmf
from darrm.numerics.special import betainc, gammaln, logsumexp
from darrm.privacy import exact_number
from darrm.problem import OPEN, describe_classes, is_law_a_gamma, is_open
from darrm.util import checks
from darrm.util.files import Json
from darrm.votes import Votes, require_votes

Counts = NDArray[np.int64]

_TWO, _LISTED, _OPEN_SET, _ANY = "two classes", "listed classes", "open-set answers", "any answers"

_DIGEST_DRAWS = 100  # from a fixed seed, for the digest of a prior without coefficients
_STORED_KIND = "other"  # the kind of a prior stored as name and digest
_VOTES_KIND, _LIKE_KIND = "votes", "like"  # kinds of texts that name a file: recorded votes, votes to fit `Led`
_LOG_RANGE = (-12.0, 12.0)  # logarithms of the fitted numbers
_COMMON_KIND = "common"  # the paper's name for `Dirichlet()` of two classes


class Prior:
    """A public belief about the votes, with one of two pairs of methods; equal priors have equal hashes.

    * `log_probabilities` and `sample`: a law on histograms that is symmetric in the classes;
    * `weights` and `probabilities`: how probable a 1 is for each voter, for two classes.
    """

    @property
    def text(self) -> str:
        """The name; for the priors of this module ``parse(prior.text) == prior``."""
        raise NotImplementedError

    @property
    def has_closed_form(self) -> bool:
        """Whether the expected error of two classes is linear in γ, with `weights`."""
        return True

    def log_probabilities(self, counts: Counts) -> Array:
        """Compute log Pr[histogram] for (n, C) counts of one sum → (n,); `ValueError` if it is unknown."""
        return checks.fail("the prior", self.text, f"one that knows the law of {counts.shape[1]} counts")

    def log_of_partitions(self, parts: Sequence[tuple[int, ...]]) -> Array:  # noqa: ARG002 (subclasses use it)
        """Compute log Pr[partition] of open-set answers; `ValueError` if it is unknown."""
        return checks.fail("the prior", self.text, "one on open answers", "say Ewens(1.0), ewens:1")

    def strings(self, K: int) -> Array:  # noqa: ARG002 (subclasses use it)
        """Compute the expected number of strings with n votes and largest other count m, (K + 1, K + 1); or raise."""
        return checks.fail("the prior", self.text, "one on open answers", "say Ewens(1.0), ewens:1")

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> Counts:
        """Draw histograms of K votes: (count, C); of open-set answers the counts of partitions, zeros last."""
        if not is_law_a_gamma(classes):
            checks.fail("the prior", self.text, "about histograms of more than two classes", "say Dirichlet()")
        p = self.probabilities(K, count, rng=rng)
        ones = np.sum(rng.random(p.shape) < p, axis=1)
        return np.column_stack([K - ones, ones])

    def weights(self, K: int) -> Array:
        """Compute w_l ≥ 0 for l = ⌊K/2⌋ + 1 … K, shape (K − ⌊K/2⌋,), or raise `ValueError`."""
        checks.integer_at_least(1, K=K)
        ones = np.arange(K + 1)
        law = np.exp(self.log_probabilities(np.column_stack([K - ones, ones])))
        return np.asarray((law + law[::-1])[K // 2 + 1 :])

    def probabilities(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        """Draw the K voters' probabilities of a 1 ``count`` times, shape (count, K); certain votes have 0 or 1."""
        ones = self.sample(K, 2, count, rng=rng)[:, 1]
        return np.asarray(np.arange(K) < ones[:, None], dtype=np.float64)


@dataclass(frozen=True)
class _BuiltIn(Prior):
    kind: ClassVar[str]  # the first word of its text
    classes: ClassVar[str] = _TWO  # the classes that it covers
    positive: ClassVar[bool] = False  # whether its fields are positive numbers; otherwise they are probabilities

    def __post_init__(self) -> None:
        for name in self._write_decimals():
            value = getattr(self, name)
            (checks.positive if self.positive else checks.probability)(**{name: value})
            object.__setattr__(self, name, float(value))

    def _write_decimals(self) -> dict[str, str]:
        return {field.name: repr(getattr(self, field.name)).removesuffix(".0") for field in fields(self)}

    @property
    def text(self) -> str:
        numbers = ",".join(self._write_decimals().values())
        return f"{self.kind}:{numbers}" if numbers else self.kind

    def to_json(self) -> dict[str, str]:
        """Write exact decimals."""
        return {"kind": self.kind, **self._write_decimals()}

    @classmethod
    def usage(cls) -> str:
        names = ",".join(field.name.upper() for field in fields(cls))
        return ", ".join([cls.kind] * cls.has_defaults() + [f"{cls.kind}:{names}"] * bool(names))

    @classmethod
    def has_defaults(cls) -> bool:
        return all(field.default is not MISSING for field in fields(cls))

    @classmethod
    def is_about(cls, classes: int) -> bool:
        if is_open(classes):
            return cls.classes in {_OPEN_SET, _ANY}
        return cls.classes in {_LISTED, _ANY, _TWO if is_law_a_gamma(classes) else _ANY}


@dataclass(frozen=True)
class Dirichlet(_BuiltIn):
    """Voters choose independently with common probabilities from a symmetric Dirichlet law.

    With concentration 1 every histogram is equally likely; for two classes this is a common p ~ U[0, 1]. A smaller
    concentration makes clear majorities likely.

    >>> np.exp(Dirichlet().log_probabilities(np.array([[2, 0, 0], [0, 1, 1]]))).round(6)  # one of six each
    array([0.166667, 0.166667])
    """

    concentration: float = 1.0
    kind: ClassVar[str] = "dirichlet"
    classes: ClassVar[str] = _LISTED
    positive: ClassVar[bool] = True

    def __str__(self) -> str:
        if self.concentration == 1.0:
            return "every histogram of votes equally likely"
        return f"voters choose with probabilities from a Dirichlet law of concentration {self.concentration:g}"

    def log_probabilities(self, counts: Counts) -> Array:
        """Compute the Dirichlet-multinomial law K!/Π n_c!·Π (a)_{n_c}/(Ca)_K, (a)_n = a⋯(a + n − 1)."""
        K = counts.sum(axis=1)
        # factors are relative to a large concentration: a difference of two log Γ would lose all digits
        scale = max(1.0, self.concentration)
        start, steps = self.concentration / scale, np.arange(K.max(initial=0)) / scale
        rising, total = (np.append(0.0, np.cumsum(np.log(times * start + steps))) for times in (1, counts.shape[1]))
        return np.asarray((rising[counts] - gammaln(counts + 1.0)).sum(axis=1) + gammaln(K + 1.0) - total[K])

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> Counts:
        checks.integer_at_least(1, K=K, count=count)
        checks.integer_at_least(2, classes=classes)
        return np.asarray(rng.multinomial(K, rng.dirichlet(np.full(classes, self.concentration), count)))

    def weights(self, K: int) -> Array:
        """Compute 2·Pr[l]·(1 − 2·I_{1/2}(l + a, K − l + a)), Pr beta-binomial, for l > K/2; a = 1: Pr = 1/(K + 1)."""
        checks.integer_at_least(1, K=K)
        levels, a = np.arange(K // 2 + 1, K + 1), self.concentration
        sides = 1.0 - 2.0 * betainc(levels + a, K - levels + a, 0.5)
        if not np.all(sides > 0.0):
            advice = "so large a concentration is p = 1/2 to all digits: every noise function has error 0"
            checks.fail("the prior", self.text, "one of a smaller concentration", advice)
        if a == 1.0:
            return np.asarray(2.0 * sides / (K + 1), dtype=np.float64)
        return np.asarray(2.0 * np.exp(self.log_probabilities(np.column_stack([K - levels, levels]))) * sides)

    def probabilities(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        checks.integer_at_least(1, K=K, count=count)
        return np.repeat(rng.beta(self.concentration, self.concentration, (count, 1)), K, axis=1)


def _check_public(votes: Votes) -> None:
    checks.instance(Votes, votes=votes, advice="say Votes.from_counts(counts) or Votes.read(file)")
    require_votes(votes)
    if not votes.queries:
        checks.fail("votes", votes, "of at least one query")


@dataclass(frozen=True)
class Led(_BuiltIn):
    """One class leads: voters choose with probabilities from a Dirichlet law, with ``leader`` added for a random class.

    The law is the mean over the leading class c of the Dirichlet-multinomial law with the parameter ``others`` +
    ``leader`` at c and ``others`` elsewhere.

    >>> np.exp(Led(0.5, 1.0).log_probabilities(np.array([[2, 0], [1, 1], [0, 2]]))).round(6)
    array([0.328571, 0.342857, 0.328571])
    """

    leader: float
    others: float
    kind: ClassVar[str] = "led"
    classes: ClassVar[str] = _LISTED
    positive: ClassVar[bool] = True

    def __str__(self) -> str:
        leader, others = self._write_decimals().values()
        return f"one class leads, by {leader} over {others} for each"

    @classmethod
    def fit(cls, votes: Votes) -> "Led":
        """Fit both numbers to public votes by maximum likelihood, to three digits."""
        _check_public(votes)
        counts, times = np.unique(np.sort(votes.counts, axis=1), axis=0, return_counts=True)

        def compute_likelihood(logs: Array) -> float:
            leader, others = np.exp(np.clip(logs, *_LOG_RANGE)).tolist()
            return float(times @ cls(leader, others).log_probabilities(counts))

        # ascend in one of eight directions; halve the step if none ascends
        directions = np.array([(x, y) for x in (-1.0, 0.0, 1.0) for y in (-1.0, 0.0, 1.0)])
        step, point = 1.0, np.array([1.5, -1.0])  # log leader, log others
        best_likelihood = compute_likelihood(point)
        while step > 1e-3:
            best = max((point + step * direction for direction in directions), key=compute_likelihood)
            new_likelihood = compute_likelihood(best)
            if new_likelihood > best_likelihood:
                point, best_likelihood = best, new_likelihood
            else:
                step /= 2.0
        return cls(*(float(f"{number:.3g}") for number in np.exp(np.clip(point, *_LOG_RANGE))))

    def log_probabilities(self, counts: Counts) -> Array:
        K, C, a, b = counts.sum(axis=1), counts.shape[1], self.others, self.leader
        log_ways = gammaln(K + 1.0) - gammaln(counts + 1.0).sum(axis=1)
        log_rising, log_led = (gammaln(start + counts) - gammaln(start) for start in (a, a + b))
        total = gammaln(C * a + b + K) - gammaln(C * a + b)
        return np.asarray(
            log_ways + log_rising.sum(axis=1) + logsumexp(log_led - log_rising, axis=1) - math.log(C) - total
        )

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> Counts:
        checks.integer_at_least(1, K=K, count=count)
        checks.integer_at_least(2, classes=classes)
        alpha = np.full(classes, self.others)
        alpha[0] += self.leader
        return np.asarray(rng.permuted(rng.multinomial(K, rng.dirichlet(alpha, count)), axis=1))


@dataclass(frozen=True)
class Ewens(_BuiltIn):
    """Open-set answers: voter i + 1 gives a new answer with probability θ/(θ + i), else a random earlier voter's.

    The law of the partition is [Ewens 1972] K!/(θ ⋯ (θ + K − 1))·Π_j (θ/j)^{m_j}/m_j!, m_j strings having j votes.

    >>> np.exp(Ewens().log_of_partitions([(3,), (2, 1), (1, 1, 1)])).round(6)
    array([0.333333, 0.5     , 0.166667])
    """

    theta: float = 1.0
    kind: ClassVar[str] = "ewens"
    classes: ClassVar[str] = _OPEN_SET
    positive: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"open answers by Ewens' law, θ = {self._write_decimals()['theta']}"

    def log_of_partitions(self, parts: Sequence[tuple[int, ...]]) -> Array:
        log_theta = math.log(self.theta)
        rising = {K: float(np.sum(np.log(self.theta + np.arange(K)))) for K in set(map(sum, parts))}
        return np.array(
            [
                math.lgamma(sum(part) + 1.0)
                - rising[sum(part)]
                + sum(m * (log_theta - math.log(j)) - math.lgamma(m + 1.0) for j, m in Counter(part).items())
                for part in parts
            ]
        )

    def strings(self, K: int) -> Array:
        """Compute (θ/n)·(c_m − c_{m−1})(K − n)/c_K(K), c_m(L) being the coefficient of z^L in exp(θ Σ_{j ≤ m} z^j/j).

        L·c_m(L) = θ Σ_{j ≤ m} c_m(L − j). All are relative to c_L(L) = (θ ⋯ (θ + L − 1))/L!, which may overflow.
        """
        checks.integer_at_least(1, K=K)
        sizes, shares = np.arange(K + 1), np.zeros((K + 1, K + 1))
        log_whole = np.append(0.0, np.cumsum(np.log(self.theta + sizes[:K]) - np.log1p(sizes[:K])))
        shares[:, 0] = 1.0
        for length in range(1, K + 1):
            cycles = np.arange(1, length + 1)
            factors = np.exp(math.log(self.theta / length) + log_whole[length - cycles] - log_whole[length])
            is_allowed = cycles <= sizes[:, None]
            shares[:, length] = np.sum(np.where(is_allowed, shares[:, length - cycles], 0.0) * factors, axis=1)
        exact_shares = np.diff(shares, axis=0, prepend=0.0)
        expected = np.zeros((K + 1, K + 1))
        for n in range(1, K + 1):
            factor = math.exp(math.log(self.theta / n) + log_whole[K - n] - log_whole[K])
            expected[n, : K - n + 1] = factor * np.maximum(0.0, exact_shares[: K - n + 1, K - n])
        return expected

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> Counts:
        """Draw the counts of partitions, zeros last, as gaps between heads of coins θ/(θ + i) (Feller)."""
        if not is_open(classes):
            checks.fail("the prior", self.text, "about open answers", "say Dirichlet() for listed classes")
        checks.integer_at_least(1, K=K, count=count)
        is_new = rng.random((count, K)) < self.theta / (self.theta + np.arange(K))  # the first one always
        rows, starts = np.nonzero(is_new)
        is_last = np.append(rows[1:] != rows[:-1], True)
        sizes = np.where(is_last, K, np.append(starts[1:], 0)) - starts
        rank = np.arange(rows.size) - np.searchsorted(rows, rows)
        counts = np.zeros((count, int(rank.max()) + 1), dtype=np.int64)
        counts[rows, rank] = sizes
        return -np.sort(-counts, axis=1)


def reference_priors(classes: int) -> Mapping[str, _BuiltIn]:
    """Return priors of low, medium and high consensus: Dirichlet laws, or Ewens laws for open-set answers."""
    if is_open(classes):
        return {"low": Ewens(10.0), "medium": Ewens(), "high": Ewens(0.1)}
    return {"low": Dirichlet(), "medium": Dirichlet(1.0 / classes), "high": Dirichlet(0.1 / classes)}


@dataclass(frozen=True)
class Spread(_BuiltIn):
    """The mean of the three `reference_priors`. Samples alternate between them."""

    kind: ClassVar[str] = "spread"
    classes: ClassVar[str] = _ANY

    def __str__(self) -> str:
        return "the mean of priors of low, medium and high consensus"

    def log_probabilities(self, counts: Counts) -> Array:
        logs = [prior.log_probabilities(counts) for prior in reference_priors(counts.shape[1]).values()]
        return np.asarray(logsumexp(logs, axis=0) - math.log(3.0))

    def log_of_partitions(self, parts: Sequence[tuple[int, ...]]) -> Array:
        logs = [prior.log_of_partitions(parts) for prior in reference_priors(OPEN).values()]
        return np.asarray(logsumexp(logs, axis=0) - math.log(3.0))

    def strings(self, K: int) -> Array:
        return np.asarray(np.mean([prior.strings(K) for prior in reference_priors(OPEN).values()], axis=0))

    def weights(self, K: int) -> Array:
        return np.asarray(np.mean([prior.weights(K) for prior in reference_priors(2).values()], axis=0))

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> Counts:
        checks.integer_at_least(1, K=K, count=count)
        samples = [prior.sample(K, classes, -(-count // 3), rng=rng) for prior in reference_priors(classes).values()]
        width = max(part.shape[1] for part in samples)
        padded = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in samples]
        return np.stack(padded, axis=1).reshape(-1, width)[:count]

    def probabilities(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        samples = [prior.probabilities(K, -(-count // 3), rng=rng) for prior in reference_priors(2).values()]
        return np.stack(samples, axis=1).reshape(-1, K)[:count]


@dataclass(frozen=True)
class RecordedVotes(Prior):
    """A random question of recorded public votes, with classes renamed at random.

    For another number of voters, each voter independently copies a random recorded voter of the question.

    >>> seen = RecordedVotes("two.csv", Votes.from_counts([[3, 0, 1], [2, 2, 0]]))
    >>> seen.text, seen.digest[:8], np.exp(seen.log_probabilities(np.array([[0, 2, 2], [4, 0, 0]]))).round(6).tolist()
    ('votes:two.csv', '35a4ce7b', [0.166667, 0.0])
    """

    name: str
    votes: Votes = field(compare=False, repr=False)
    digest: str = field(init=False)  # SHA-256 of the counts

    def __post_init__(self) -> None:
        _check_public(self.votes)
        counts = np.ascontiguousarray(self.votes.counts, dtype="<i8")
        shape = ",".join(map(str, counts.shape)).encode()
        object.__setattr__(self, "digest", hashlib.sha256(shape + counts.tobytes()).hexdigest())

    @property
    def text(self) -> str:
        return f"votes:{self.name}"

    def __str__(self) -> str:
        votes = self.votes
        return f"the {votes.queries:,} questions that {votes.voters:,} voters were asked (SHA-256 {self.digest[:16]}…)"

    def log_probabilities(self, counts: Counts) -> Array:
        """Compute the log of the share of a histogram's partition, divided by its number of histograms."""
        self.check_classes(counts.shape[1])
        if np.any(counts.sum(axis=1) != self.votes.voters):
            advice = "for another number of voters such a prior only samples: record as many, or say dirichlet:A"
            allowed = f"histograms of the {self.votes.voters} recorded voters"
            checks.fail("counts", checks.Text("another sum"), allowed, advice)
        partitions, times = np.unique(np.sort(self.votes.counts, axis=1), axis=0, return_counts=True)
        shares = dict(zip(map(bytes, partitions), times / self.votes.queries, strict=True))
        with np.errstate(divide="ignore"):
            log_shares = np.log([shares.get(bytes(row), 0.0) for row in np.sort(counts, axis=1)])
        return np.asarray(log_shares - log_arrangements(counts))

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> Counts:
        checks.integer_at_least(1, K=K, count=count)
        self.check_classes(classes)
        counts = self.votes.counts[rng.integers(self.votes.queries, size=count)]
        if self.votes.voters != K:
            counts = rng.multinomial(K, counts / self.votes.voters)
        return np.asarray(rng.permuted(counts, axis=1))

    def check_classes(self, classes: int) -> None:
        """Raise `ValueError` unless the number of classes is the recorded one."""
        if classes != self.votes.counts.shape[1]:
            checks.fail("classes", classes, f"the {self.votes.counts.shape[1]} of the recorded votes")


@dataclass(frozen=True)
class _IndependentVoters(_BuiltIn):
    """Independent voters, for two classes: the number of ones is Binomial(K, mean)."""

    @property
    def mean(self) -> float:
        raise NotImplementedError

    def log_probabilities(self, counts: Counts) -> Array:
        if counts.shape[1] != 2:
            checks.fail("the prior", self.text, f"one for {counts.shape[1]} classes", "this one is about two")
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(binomial_pmf(int(counts[0].sum()), self.mean))[counts[:, 1]])

    def weights(self, K: int) -> Array:
        """Compute ``|Bin(K, μ)(l) − Bin(K, μ)(K − l)|`` with the mean μ, for l > K/2."""
        checks.integer_at_least(1, K=K)
        if not self.has_closed_form:
            advice = "the majority may change sides: only draws give the expected error"
            advice += "; uniform:LOW,HIGH has a linear one with 0.5 <= LOW <= HIGH and HIGH > 0.5"
            checks.fail("the prior", self.text, "one with a linear expected error", advice)
        # α_l − α_{K−l} = α_l·(1 − ((1−p)/p)^{2l−K}), without cancellation
        levels, p = np.arange(K // 2 + 1, K + 1), max(self.mean, 1.0 - self.mean)
        pmf = binomial_pmf(K, p)[K // 2 + 1 :]
        if p == 1.0:
            return pmf
        return np.asarray(pmf * -np.expm1((2 * levels - K) * (math.log1p(-p) - math.log(p))), dtype=np.float64)


@dataclass(frozen=True)
class Independent(_IndependentVoters):
    """Independent p_i ~ U[low, high]; the default is the paper's T_U, U[0, 1].

    With 1/2 ≤ low the expected error is linear, and its weights depend on the mean (low + high)/2 alone.

    >>> Independent(0.5, 1.0).weights(3)
    array([0.28125, 0.40625])
    """

    low: float = 0.0
    high: float = 1.0
    kind: ClassVar[str] = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            checks.fail("low", self.low, f"at most high = {self.high}")

    def __str__(self) -> str:
        return f"independent p_i, uniform on [{', '.join(self._write_decimals().values())}]"

    @property
    def has_closed_form(self) -> bool:
        return self.low >= 0.5 and self.high > 0.5

    @property
    def mean(self) -> float:
        return 0.5 * (self.low + self.high)

    def probabilities(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        checks.integer_at_least(1, K=K, count=count)
        return rng.uniform(self.low, self.high, (count, K))


@dataclass(frozen=True)
class TwoSided(_IndependentVoters):
    """Independent p_i ~ U([1 − high, 1 − low] ∪ [low, high]): every voter is decided, either way [D, D.1.3].

    The paper's T_P is (0.7, 1.0). By symmetry every E[α_l − α_{K−l}] is 0.
    """

    low: float
    high: float
    kind: ClassVar[str] = "two-sided"
    has_closed_form: ClassVar[bool] = False  # the majority may fall on either side
    mean: ClassVar[float] = 0.5  # both sides are equally likely

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.5 <= self.low <= self.high:
            checks.fail("low", self.low, f"in [0.5, high] = [0.5, {self.high}]")

    def __str__(self) -> str:
        return f"independent p_i, each 1 − q or q with q uniform on [{', '.join(self._write_decimals().values())}]"

    def probabilities(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        checks.integer_at_least(1, K=K, count=count)
        majority_side = rng.uniform(self.low, self.high, (count, K))
        return np.where(rng.random((count, K)) < 0.5, 1.0 - majority_side, majority_side)


@dataclass(frozen=True)
class Point(_IndependentVoters):
    """All p_i equal to one known p ≠ 1/2."""

    p: float
    kind: ClassVar[str] = "point"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p == 0.5:
            checks.fail("p", self.p, "different from 0.5", "with p = 1/2 every noise function has error 0")

    def __str__(self) -> str:
        return f"every p_i = {self._write_decimals()['p']}"

    @property
    def mean(self) -> float:
        return self.p

    def probabilities(self, K: int, count: int, *, rng: np.random.Generator) -> Array:
        checks.integer_at_least(1, K=K, count=count)
        return rng.uniform(self.p, self.p, (count, K))


@dataclass(frozen=True)
class StoredPrior(Prior):
    """The name and the digest of a prior that no file can store; its methods raise `ValueError`."""

    name: str  # the `text` that the prior had
    digest: str  # its `compute_digest`
    has_closed_form: ClassVar[bool] = False  # unknown

    @property
    def text(self) -> str:
        return self.name

    def __str__(self) -> str:
        return f"the prior {self.text!r}"

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        checks.fail("the prior", self.text, "given itself", "the table keeps its name and a digest only")

    log_probabilities = sample = weights = probabilities = _refuse

    def to_json(self) -> dict[str, str]:
        """Write name and digest."""
        return {"kind": _STORED_KIND, "name": self.text, "sha256": self.digest}


_KINDS: dict[str, type[_BuiltIn]] = {
    prior.kind: prior for prior in (Independent, TwoSided, Point, Spread, Ewens, Dirichlet, Led)
}


def parse(text: str, classes: int = 2) -> Prior:
    """Read a prior for a number of classes, as ``--prior`` does.

    Valid texts are the `text` of a prior of this module; ``common`` for ``dirichlet`` of two classes; ``votes:FILE``
    for recorded public votes, and ``like:FILE`` for the `Led` fitted to them. `ValueError` for other texts, numbers and
    files; `OSError` if a file cannot be read.

    >>> parse("uniform:0.7,1"), parse("dirichlet:0.5", classes=10)
    (Independent(low=0.7, high=1.0), Dirichlet(concentration=0.5))
    """
    checks.instance(str, text=text, advice="a prior itself needs no parsing")
    kind, colon, arguments = text.partition(":")
    if kind in {_VOTES_KIND, _LIKE_KIND} and arguments and not is_open(classes):
        try:  # counts with a column for each class, else labels: public votes may have any number of voters
            votes = Votes.read(arguments, classes=classes, layout="counts")
        except ValueError:
            votes = Votes.read(arguments, classes=classes, layout="labels")
        return Led.fit(votes) if kind == _LIKE_KIND else RecordedVotes(arguments, votes)
    if text == _COMMON_KIND and is_law_a_gamma(classes):
        return Dirichlet()
    prior = _KINDS.get(kind)
    if prior is not None and prior.is_about(classes):
        try:
            numbers = [float(checks.ascii_digits(part)) for part in arguments.split(",")] if colon else []
        except ValueError:
            numbers = [math.nan]
        is_complete = len(numbers) == len(fields(prior)) or (not colon and prior.has_defaults())
        if is_complete and not any(map(math.isnan, numbers)):
            return prior(*numbers)
    allowed = [prior.usage() for prior in _KINDS.values() if prior.is_about(classes)]
    if is_open(classes):
        return checks.fail("the prior", text, f"{', '.join(allowed)} for open answers", "for example ewens:0.5")
    if is_law_a_gamma(classes):
        allowed, example, suffix = [*allowed, _COMMON_KIND], "uniform:0.7,1", ""
    else:
        example, suffix = "dirichlet:0.5", " for more than two classes"
    expected = f"{', '.join(allowed)}, like:FILE or votes:FILE{suffix}"
    return checks.fail("the prior", text, expected, f"for example {example}")


def check_prior(prior: Prior | str, classes: int = 2) -> Prior:
    """Return a prior, or the prior of a text; `ValueError` if it does not cover this number of classes."""
    if isinstance(prior, str):
        return parse(prior, classes)
    if not isinstance(prior, Prior):
        advice = "say Dirichlet() or 'dirichlet'; a prior of one's own inherits from darrm.priors.Prior"
        checks.fail("prior", prior, "a darrm.priors.Prior, or its text", advice)
    if isinstance(prior, RecordedVotes):
        prior.check_classes(classes)
    if isinstance(prior, _BuiltIn) and not prior.is_about(classes):
        advice = "say Dirichlet(), the belief that every histogram is equally likely"
        advice = "say Ewens()" if is_open(classes) else advice
        checks.fail("prior", prior.text, f"a belief about {describe_classes(classes)}", advice)
    return prior


def find_surrogate(prior: Prior) -> Prior | None:
    """Return the prior of max(p_i, 1 − p_i), whose linear expected error the paper optimizes; None if there is none.

    >>> find_surrogate(Independent(0, 1)), find_surrogate(TwoSided(0.7, 1))  # [D, Eq. 202 and 204]
    (Independent(low=0.5, high=1.0), Independent(low=0.7, high=1.0))
    """
    if prior.has_closed_form:
        return prior
    if isinstance(prior, TwoSided):
        return Independent(prior.low, prior.high)
    if isinstance(prior, Independent) and math.isclose(prior.low + prior.high, 1.0) and prior.low < prior.high:
        return Independent(0.5, prior.high)
    return None


def find_two_sided(prior: Prior) -> Prior | None:
    """Return the prior on both sides of 1/2 that has this surrogate; None if there is none."""
    if not (isinstance(prior, Independent) and prior.has_closed_form):
        return None
    return Independent() if (prior.low, prior.high) == (0.5, 1.0) else TwoSided(prior.low, prior.high)


def default_prior(classes: int) -> Prior:
    """Return the default prior: every histogram equally likely, or Ewens' law with θ = 1."""
    return Ewens() if is_open(classes) else Dirichlet()


def is_built_in(prior: object) -> bool:
    """Whether the text determines the prior; False for subclasses, which may have other weights."""
    return type(prior) in {*_KINDS.values(), RecordedVotes}


def describe_prior(prior: Prior) -> str:
    """Describe a prior for a report, with its flag: every p_i = 0.8 (--prior point:0.8)."""
    return f"{prior} (--prior {prior.text})" if is_built_in(prior) else f"the prior {prior.text!r}"


def to_json(prior: Prior, K: int, classes: int = 2) -> dict[str, str]:
    """Write a prior of this module with its numbers, any other by its name and digest for K voters."""
    if isinstance(prior, _BuiltIn | StoredPrior) and type(prior) in {*_KINDS.values(), StoredPrior}:
        return prior.to_json()
    return StoredPrior(str(prior.text), compute_digest(prior, K, classes)).to_json()


def from_json(data: Json) -> Prior:
    """Read the output of `to_json`; `KeyError`, `TypeError` or `ValueError` if malformed."""
    values = dict(data)
    for name, value in values.items():
        if not isinstance(value, str):
            checks.fail(f"the prior's {name}", value, "text")
        value.encode()
    kind = values.pop("kind")
    if kind == _STORED_KIND:
        if not values.keys() <= {"name", "sha256"}:
            checks.fail("the prior's fields", sorted(values), "name and sha256")
        return StoredPrior(values["name"], values["sha256"])
    names = [field.name for field in fields(_KINDS[kind])]
    if values.keys() != set(names):
        checks.fail("the prior's fields", sorted(values), f"those of {kind}: {names}")
    return _KINDS[kind](**{name: float(exact_number(name, number)) for name, number in values.items()})


def compute_digest(prior: Prior, K: int, classes: int = 2) -> str:
    """Compute the SHA-256 of a prior's coefficients for K voters, or of some draws without coefficients."""
    numbers: Array | Counts
    if not is_law_a_gamma(classes):
        numbers = prior.sample(K, classes, _DIGEST_DRAWS, rng=np.random.default_rng(0))
    elif prior.has_closed_form:
        numbers = compute_weights(prior, K)
    else:
        numbers = prior.probabilities(K, _DIGEST_DRAWS, rng=np.random.default_rng(0))
    return hashlib.sha256(np.ascontiguousarray(numbers, dtype="<f8").tobytes()).hexdigest()


def compute_weights(prior: Prior | str, K: int) -> Array:
    """Compute ``prior.weights(K)``; `ValueError` if they are not K − ⌊K/2⌋ finite numbers of at least 0."""
    prior = check_prior(prior)
    weights = np.asarray(prior.weights(K), dtype=np.float64)
    if weights.shape != (K - K // 2,) or not np.all((weights >= 0.0) & (weights < np.inf)):
        checks.fail(f"the weights of the prior {prior.text!r}", weights, f"{K - K // 2} finite numbers of at least 0")
    return weights


def compute_strings(prior: Prior, K: int) -> Array:
    """Compute ``prior.strings(K)``; `ValueError` unless these numbers of strings have K votes in total."""
    expected = np.asarray(prior.strings(K), dtype=np.float64)
    votes = float(np.sum(np.arange(K + 1)[:, None] * expected)) if expected.shape == (K + 1, K + 1) else math.nan
    if not (abs(votes - K) <= 1e-6 * K and np.all(expected >= 0.0)):
        checks.fail(f"the strings that the prior {prior.text!r} expects", votes, f"of {K} votes together")
    return expected


def law_of_ones(prior: Prior, K: int) -> Array | None:
    """Compute Pr[l ones] for l = 0 … K, shape (K + 1,); None if it is unknown."""
    members = {"log_probabilities", "sample", "weights", "probabilities"}
    defining = next(kind for kind in type(prior).__mro__ if members & vars(kind).keys())
    if not {"log_probabilities", "mean"} & vars(defining).keys():  # a subclass with other weights
        return None
    ones = np.arange(K + 1)
    try:
        return np.exp(prior.log_probabilities(np.column_stack([K - ones, ones])))
    except ValueError:
        return None


def log_arrangements(counts: Counts) -> Array:
    """Compute the log of the number of permutations of each histogram, (n, C) → (n,)."""
    ordered = np.sort(counts, axis=1)
    run, log_ways = np.ones(len(ordered)), np.zeros(len(ordered))
    for place in range(1, ordered.shape[1]):
        run = np.where(ordered[:, place] == ordered[:, place - 1], run + 1.0, 1.0)
        log_ways += math.log(place + 1.0) - np.log(run)  # C!/Πm! as a product: each class by its place in its run
    return log_ways
