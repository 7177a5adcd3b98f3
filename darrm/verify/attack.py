"""Attack a release: lower bounds on its privacy loss from labels that it draws, compared with claimed and true values.

The release draws labels on two neighboring votes (`darrm.verify.neighbors`). With P and P' the probabilities of an
event on both sides, a claim (ε, δ) means

    P ≤ e^ε·P' + δ    and    P' ≤ e^ε·P + δ.

**Theorem (Clopper and Pearson).** If N of n independent draws fall into an event of probability P, then

    Pr[P < a(N)] ≤ β  with a(N) the β-quantile of Beta(N, n − N + 1), a(0) = 0,

and 1 − a(n − N) is an upper bound in the same sense. *Proof.* a(N) grows with N, and Pr[Bin(n, P) ≥ N] = β at
P = a(N). So a(N) > P implies Pr[Bin(n, P) ≥ N] < β, and Pr[Pr[Bin(n, P) ≥ N] < β] ≤ β for every law. ∎ With
β = (1 − confidence)/(number of bounds), over all events, sides and pairs of neighbors, all bounds hold at once with the
stated confidence. Let a be a lower bound on P and b an upper bound on P'. Then log((a − δ)/b) < ε for any true claim
(ε, δ). D_α(Bern(P) ‖ Bern(P')) is at least its value at the two nearest points of the intervals, because it grows as P
or P' moves away from the other. By data processing it is a lower bound on the divergence of the labels.

**Events.** A second label is released with every label: that of a fixed vote, a near tie on both sides. It costs
nothing, so the claim about one label bounds any event of both. If a release reuses random bits, or lets one label
depend on another, the second label reveals it. The events are each label, alone and jointly with whether the second
label is the same; and, for every claim, the set {P > e^ε·P'}. The first half of the draws chooses this set. The second
half, which is independent of the choice, is counted.

**Rare draws.** If voters resample examples per query, the votes of one side include the person with the declared
probability; the votes of the other side never do.

**The law.** `darrm.verify.label_law` gives the probability of every event. A probability outside of its bounds shows
that the labels come from another mechanism.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from darrm.aggregator import Released, release_of
from darrm.loss.privacy_cost import PrivacyCost
from darrm.numerics import Array
from darrm.table.evidence import CORNERS
from darrm.table.release import Release
from darrm.util import checks
from darrm.verify.label_law import Histogram, Law, Pair, TooLongError, law_of
from darrm.verify.neighbors import near_ties, random_pair, voters_of, worst_pairs
from darrm.verify.verdicts import CONSISTENT, FALSE, UNKNOWN
from darrm.votes import Votes

CONFIDENCE = 0.999999  # of all bounds together: one false alarm in a million attacks
ORDERS = (2.0, 8.0, 32.0)
MOST_DRAWS = 10**9  # of an attack: minutes
_SHARES, _SOME_DELTA = (0.5, 0.1), 0.01  # of the total variation: δ for a profile; δ for a curve alone
_RANDOM_PAIRS = 2  # in addition to the worst ones
_DRAWS_AT_ONCE = 2**14  # labels of one call: few, compared with the labels that one block of random bytes decides
_LAW_ERROR, _RAREST = 1e-9, 1e-15  # of a probability that is summed in floats; one that no draws show
_LARGEST_LOSS = 700.0  # e^709 is the largest float


@dataclass(frozen=True, eq=False)
class Intervals:
    """Bounds on the probabilities of events on both sides: two arrays (2, events), all true at once."""

    lower: Array
    upper: Array

    @classmethod
    def of_counts(cls, counts: ArrayLike, draws: ArrayLike, miss: float) -> Self:
        """Bound probabilities from counts of ``draws``; each single bound fails with probability ≤ ``miss``.

        >>> bounds = Intervals.of_counts([[0, 10], [5, 10]], 10, 0.025)
        >>> bounds.lower.round(4).tolist(), bounds.upper.round(4).tolist()
        ([[0.0, 0.6915], [0.1871, 0.6915]], [[0.3085, 1.0], [0.8129, 1.0]])
        """
        seen, draws = np.asarray(counts, dtype=np.float64), np.asarray(draws, dtype=np.float64)
        return cls(_lower(seen, draws, miss), 1.0 - _lower(draws - seen, draws, miss))

    def epsilon(self, delta: float) -> float:
        """Return the largest ε that the bounds refute at δ; 0 if they refute none, ∞ if they refute all."""
        gained, lost = self.lower - delta, self.upper[::-1]
        refuting = gained > lost
        with np.errstate(divide="ignore"):
            return float(np.max(np.log(gained[refuting]) - np.log(lost[refuting]), initial=0.0))

    def renyi(self, order: float) -> float:
        """Bound the Rényi divergence of an order from below, in both directions."""
        other_lower, other_upper = self.lower[::-1], self.upper[::-1]
        above, under = self.lower > other_upper, self.upper < other_lower
        own = np.where(above, self.lower, self.upper)
        other = np.where(above, other_upper, other_lower)
        both = renyi_divergence(np.stack([own, 1.0 - own], axis=-1), np.stack([other, 1.0 - other], axis=-1), order)
        return float(np.max(np.where(above | under, both, 0.0)))


@dataclass(frozen=True)
class Bound:
    """A claim, ε at a δ or the Rényi divergence of an order, with the lower bound that the labels prove."""

    is_epsilon: bool
    at: float  # δ, or the order
    claimed: float | None  # None without a claim
    refuted: float = 0.0
    true: float = 0.0  # the largest of the pairs that were drawn on

    @property
    def is_false(self) -> bool:
        """Whether the labels refute the claim."""
        return self.claimed is not None and self.refuted > self.claimed

    def true_of(self, laws: Array) -> float:
        """Compute the true number of two laws of the label, (2, C), in the worse direction, but for the rarest."""
        laws = np.where(laws.max(axis=0) > _RAREST, laws, 0.0)
        if not self.is_epsilon:
            return max(*(float(renyi_divergence(laws[k], laws[1 - k], self.at)) for k in (0, 1)))
        with np.errstate(divide="ignore", invalid="ignore"):
            rising = np.argsort(laws[0] / laws[1])  # the sets of largest loss are prefixes, from either end
        sums = np.hstack([np.cumsum(laws[:, rising], axis=1), np.cumsum(laws[:, rising[::-1]], axis=1)])
        return Intervals(sums, sums).epsilon(self.at)

    def with_pair(self, bounds: Intervals, laws: Array) -> "Bound":
        """Include one more pair of neighbors."""
        refuted = bounds.epsilon(self.at) if self.is_epsilon else bounds.renyi(self.at)
        return replace(self, refuted=max(self.refuted, refuted), true=max(self.true, self.true_of(laws)))

    def to_json(self) -> dict[str, Any]:
        """Write the numbers as plain data."""
        at = "delta" if self.is_epsilon else "order"
        return {at: self.at, "refuted": self.refuted, "true": self.true, "claimed": self.claimed}

    def __str__(self) -> str:
        what = f"ε at δ = {self.at:.6g}" if self.is_epsilon else f"Rényi divergence of order {self.at:g}"
        claimed = "nothing claimed" if self.claimed is None else f"claimed {self.claimed:.6g}"
        return f"{what}: refuted {self.refuted:.6g}, true on these pairs {self.true:.6g}, {claimed}"


@dataclass(frozen=True, eq=False)
class Refutation:
    """The result of an attack: refuted, claimed and true numbers."""

    bounds: tuple[Bound, ...]  # the guarantee first, if the release has one
    departures: tuple[str, ...]  # events more, or less, frequent than under the law of the release
    draws: int  # labels from either side of each pair
    pairs: int
    confidence: float

    @property
    def epsilon(self) -> float:
        """The largest ε that the labels refute at the δ of the first claim."""
        return self.bounds[0].refuted

    @property
    def worst(self) -> float:
        """The smallest true ε at that δ on the pairs that were drawn on; of a γ the worst of all is one of them."""
        return self.bounds[0].true

    @property
    def false(self) -> tuple[Bound, ...]:
        """The claims that the labels refute."""
        return tuple(bound for bound in self.bounds if bound.is_false)

    @property
    def refuted(self) -> bool:
        """Whether the labels refute a claim."""
        return bool(self.false)

    @property
    def text(self) -> str:
        """The numbers in words."""
        size = f"{self.draws:,} labels from either side of {self.pairs} pairs of neighbors"
        lines = [f"attack: {size}, confidence {self.confidence:g}", *map(str, self.bounds)]
        if self.refuted:
            lines.append("THE CLAIM IS FALSE: the labels refute it")
        if self.departures:
            lines.append(f"THE LABELS ARE NOT THOSE OF THE RELEASE: {'; '.join(self.departures)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Write the numbers as plain data."""
        first = self.bounds[0]
        return {
            "refuted_epsilon": first.refuted,
            "claimed": {"epsilon": repr(first.claimed), "delta": repr(first.at)},
            "worst_epsilon": first.true,
            "epsilons": [bound.to_json() for bound in self.bounds if bound.is_epsilon],
            "renyi": [bound.to_json() for bound in self.bounds if not bound.is_epsilon],
            "claim_refuted": self.refuted,
            "departures": list(self.departures),
            "draws": self.draws,
            "pairs": self.pairs,
            "confidence": self.confidence,
        }


def judge_attack(content: bytes, draws: int, report: Callable[[str], None]) -> tuple[dict[str, Any] | None, str, str]:
    """Attack the release in a file, see `attack`; return the numbers as plain data, a verdict, and its reason."""
    if draws > MOST_DRAWS:
        checks.fail("--attack", draws, f"at most {MOST_DRAWS:,}", "a million labels take seconds")
    try:
        result = attack(release_of(json.loads(content.decode("utf-8-sig"))), draws, report=report)
    except TooLongError as error:
        return None, UNKNOWN, f"no label was drawn: {error}"
    parts = [*dict.fromkeys([result.bounds[0], *result.false]), f"confidence {result.confidence:g}"]
    parts += [f"not the labels of the release: {', '.join(result.departures)}"] if result.departures else []
    refuted = result.refuted or bool(result.departures)
    return result.to_json(), FALSE if refuted else CONSISTENT, "; ".join(map(str, parts))


def attack(
    aggregator: Released,
    draws: int,
    *,
    confidence: float = CONFIDENCE,
    orders: tuple[float, ...] = ORDERS,
    rng: np.random.Generator | None = None,
    report: Callable[[str], None] = lambda _text: None,
) -> Refutation:
    """Draw labels on costly and on random pairs of neighbors, and list the claims that they refute.

    Parameters
    ----------
    aggregator
        The release to attack, as `darrm.aggregator.load_release` reads it. Its claims are the cost of one query.
    draws
        Labels from either side of every pair, 1 to 10⁹; a million show a loss of 0.3 to about 0.01.
    confidence
        Of all bounds together, in (0, 1). An honest release is called false with probability ≤ 1 − confidence.
    orders
        Orders of the Rényi divergences, above 1.
    rng
        For experiments: draws the votes and the labels. With None the operating system draws the labels, as in every
        release, and a fresh generator draws the synthetic votes.
    report
        Called with a line of progress.

    Raises
    ------
    ValueError
        If an argument lies outside its range, or the law of the labels has too many terms to be summed.

    Examples
    --------
    >>> from darrm import PrivacyParams, Voters
    >>> from darrm.noisy_max.noisy_maximum import NoisyMaximum
    >>> from darrm.noisy_max.selection import ExponentialMechanism
    >>> aggregator = NoisyMaximum(ExponentialMechanism(1.0), Voters(11, PrivacyParams("inf"), 1), classes=3)
    >>> result = attack(aggregator, 20_000, rng=np.random.default_rng(1))
    >>> result.epsilon < result.worst <= result.bounds[0].claimed, result.refuted, result.departures
    (True, False, ())
    """
    if not isinstance(aggregator, Released):
        checks.fail("aggregator", aggregator, "a Release or a NoisyMaximum", "load_release reads one from a file")
    advice = "how many labels are drawn from either side of a pair"
    checks.integer_at_least(1, most=MOST_DRAWS, draws=draws, advice=advice)
    checks.open_probability(confidence=confidence)
    if not all(1.0 < order < math.inf for order in orders):
        checks.fail("orders", orders, "finite and above 1")
    generator = np.random.default_rng() if rng is None else rng
    law, claims, departures = law_of(aggregator), _claims(aggregator.privacy_cost(), orders), list[str]()
    pairs = _pairs(aggregator, law, claims, generator)
    known = law(_tie(aggregator.voters.K, aggregator.classes)[None])[0]
    sizes = (draws // 2, draws - draws // 2)
    for name, pair in pairs.items():
        tell = _progress(report, f"drawing labels on the {name}", 2 * draws)
        halves = [_cells(aggregator, pair, size, generator, tell, real=rng is None) for size in sizes]
        sets = _sets(halves[0], claims)
        counts = np.hstack([_events(halves[0] + halves[1]), halves[1] @ sets.T])
        of = np.repeat([draws, sizes[1]], [counts.shape[1] - len(sets), len(sets)])
        # sides, events, bounds from below and above
        bounds = Intervals.of_counts(counts, of, (1.0 - confidence) / (len(pairs) * counts.size * 2))
        labels = pair.labels(law)
        cells = np.stack([labels * (1.0 - known), labels * known], axis=-1).reshape(2, -1)
        departures += _departures(name, bounds, np.hstack([_events(cells), cells @ sets.T]))
        claims = [claim.with_pair(bounds, labels) for claim in claims]
    return Refutation(tuple(claims), tuple(departures), draws, len(pairs), confidence)


def _progress(report: Callable[[str], None], words: str, total: int) -> Callable[[int], None]:
    done = 0

    def advance(draws: int) -> None:
        nonlocal done
        done += draws
        report(f"{words}: {done / total:.0%}")

    return advance


def _claims(charge: PrivacyCost, orders: tuple[float, ...]) -> list[Bound]:
    curve, points = charge.renyi, []
    if charge.guarantee is not None:
        points.append((charge.guarantee.delta, charge.guarantee.epsilon))
    if charge.profile is not None:
        deltas = [share * charge.profile.delta_at(0.0) for share in _SHARES]
        points += [(delta, charge.profile.epsilon_at(delta)) for delta in deltas]
    if curve is not None and not points:
        points.append((_SOME_DELTA, curve.convert(_SOME_DELTA).epsilon))
    bounds = [Bound(is_epsilon=True, at=delta, claimed=e) for delta, e in points if math.isfinite(e)]
    for order in orders:  # a divergence grows with its order
        above = math.inf if curve is None else float(np.min(curve.values[curve.orders >= order], initial=math.inf))
        bounds.append(Bound(is_epsilon=False, at=order, claimed=above if math.isfinite(above) else None))
    return bounds


def _events(cells: NDArray[Any]) -> NDArray[Any]:
    """Append the sums for every label to its counts with another, or the same, known label: (…, 2C) → (…, 3C)."""
    return np.concatenate([cells[..., ::2] + cells[..., 1::2], cells], axis=-1)


def _sets(cells: NDArray[np.int64], claims: list[Bound]) -> NDArray[np.int64]:
    ratios = [math.exp(min(claim.claimed or 0.0, _LARGEST_LOSS)) for claim in claims if claim.is_epsilon]
    sets = [own > ratio * other for ratio in ratios for own, other in (cells, cells[::-1])]
    return np.array(sets, dtype=np.int64)


def _departures(name: str, bounds: Intervals, laws: Array) -> list[str]:
    outside = (laws < bounds.lower - _LAW_ERROR) | (laws > bounds.upper + _LAW_ERROR)
    counts = [f"{np.sum(side)} of {side.size} events, {name}, side {place}" for place, side in enumerate(outside, 1)]
    return [count for count, side in zip(counts, outside, strict=True) if np.any(side)]


def _tie(K: int, classes: int) -> Histogram:
    """Return a near tie of two classes: its label depends most on the random bits."""
    return np.array([K - K // 2, K // 2, *(0,) * (classes - 2)], dtype=np.int64)


def _cells(
    aggregator: Released, pair: Pair, draws: int, rng: np.random.Generator, tell: Callable[[int], None], *, real: bool
) -> NDArray[np.int64]:
    """Count labels on drawn votes of both sides, by whether the known label is another or the same: (2, 2C)."""
    C, K = aggregator.classes, aggregator.voters.K
    cells = np.zeros((2, 2 * C), dtype=np.int64)
    at_once = max(2 * _DRAWS_AT_ONCE // C, _DRAWS_AT_ONCE // 16)
    for side, laws in enumerate(pair.sides):
        for start in range(0, draws, at_once):
            size = min(at_once, draws - start)
            counts = np.empty((size, 2, C), dtype=np.int64)
            counts[:, 0], counts[:, 1] = _tie(K, C), _votes(pair.sizes, laws, size, rng)
            if side == 0 and pair.rate < 1.0:
                absent = rng.random(size) >= pair.rate
                counts[absent, 1] = _votes(pair.sizes, pair.sides[1], int(np.count_nonzero(absent)), rng)
            votes = Votes.of_counts(counts.reshape(-1, C), K)
            labels = aggregator.release(votes, rng=None if real else rng).reshape(size, 2)
            cells[side] += np.bincount(2 * labels[:, 1] + (labels[:, 0] == labels[:, 1]), minlength=2 * C)
            tell(size)
    return cells


def _votes(sizes: Histogram, laws: Array, draws: int, rng: np.random.Generator) -> Histogram:
    votes = np.zeros((draws, laws.shape[1]), dtype=np.int64)
    for n, law in zip(sizes.tolist(), laws, strict=True):
        said = np.flatnonzero(law)
        if said.size == 1:
            votes[:, said] += n
        elif said.size == 2:  # faster than the general case
            first = rng.binomial(n, law[said[0]], draws)
            votes[:, said[0]] += first
            votes[:, said[1]] += n - first
        else:
            votes[:, said] += rng.multinomial(n, law[said] / law[said].sum(), draws)
    return votes


def _pairs(aggregator: Released, law: Law, claims: list[Bound], rng: np.random.Generator) -> dict[str, Pair]:
    voters, C, sampled = voters_of(aggregator), aggregator.classes, aggregator.voters.sampled
    rate = 1.0 if sampled is None else float(sampled.rate)
    if isinstance(aggregator, Release) and aggregator.table.evidence is CORNERS and sampled is None:
        pairs = worst_pairs(aggregator.table)
    else:
        tried = {name: replace(pair, rate=rate) for name, pair in near_ties(voters, C)}
        if sampled is not None:  # the laws with and without the person differ
            tried |= {f"{name}, reversed": replace(pair, sides=pair.sides[::-1]) for name, pair in tried.items()}
        laws = {name: pair.labels(law) for name, pair in tried.items()}
        costs = [{name: claim.true_of(laws[name]) for name in tried} for claim in (claims[0], claims[-1])]
        names = [max(cost, key=cost.__getitem__) for cost in costs]
        names += [next(name for name in tried if name.startswith(f"{leaders} classes ")) for leaders in (2, C)]  # ties
        pairs = {name: tried[name] for name in names}
    others = {f"random pair {number + 1}": random_pair(voters, C, rng) for number in range(_RANDOM_PAIRS)}
    return pairs | {name: replace(pair, rate=rate) for name, pair in others.items()}


def _lower(counts: Array, draws: Array, miss: float) -> Array:
    return np.where(counts > 0, betaincinv(np.maximum(counts, 1.0), draws - counts + 1.0, miss), 0.0)


def renyi_divergence(P: Array, Q: Array, order: float) -> Array:
    """Compute D_α(P ‖ Q) = log Σ P^α Q^{1−α}/(α − 1) of laws along the last axis.

    >>> renyi_divergence(np.array([0.75, 0.25]), np.array([0.25, 0.75]), 2.0).round(6)
    np.float64(0.847298)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(P > 0.0, order * np.log(P) + (1.0 - order) * np.log(Q), -np.inf)
        return np.asarray(np.maximum(0.0, np.logaddexp.reduce(terms, axis=-1) / (order - 1.0)))
