"""Attack a release: draw labels on neighboring votes, and compare lower bounds on its privacy loss with its claims.

With P and P' the probabilities of an event on two neighboring votes, a claim (ε, δ) means P ≤ e^ε·P' + δ, and the same
with P and P' exchanged.

**Bounds.** If N of n independent draws fall into an event of probability P, then P < a(N) with probability at most β,
a(N) the β-quantile of Beta(N, n − N + 1) and a(0) = 0, and P > 1 − a(n − N) likewise [Clopper and Pearson]. With
β = (1 − confidence)/(number of bounds) all bounds hold at once with the stated confidence. For a lower bound a on P and
an upper bound b on P', log((a − δ)/b) < ε for any true claim (ε, δ).

**Events.** A second label, of a near tie on both sides, is released with every label: it costs nothing, and reveals
reused random bits. The events are each label, alone and with whether the second is the same; and for every claim the
set {P > e^ε·P'}, which the first half of the draws chooses and the second half counts.

**Neighbors.** A γ gets its costliest pair, and that of a majority without noise, which reveals too little noise. Other
releases get the costliest of many near ties and leads. A private voter is at a corner, a non-private one of the overlap
votes for another class. With resampled examples, one side includes the person with the declared probability.

**The law.** A probability of a label outside of its bounds shows that the labels come from another mechanism. Permute
and flip answers with class c with probability e_c·∫ Π (1 − e_o·s) ds over the others, s in [0, 1], a polynomial that
Gauss's rule integrates without error.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from operator import itemgetter
from typing import Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, gammaln

from darrm.aggregator import Released, read_release
from darrm.errors import CertificationError, TableError
from darrm.loss.privacy_cost import PrivacyCost
from darrm.majority.corners import corners_of
from darrm.majority.full_set import FullSet
from darrm.majority.groups import GroupSet
from darrm.majority.noise_function import NoiseFunction
from darrm.noisy_max.mechanisms import NoisyMax
from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip
from darrm.numerics import Array
from darrm.numerics.binomial import poisson_binomial_pmf
from darrm.pate.tested import TestedRun
from darrm.plurality.partitions import histograms_of
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, is_open
from darrm.table.release import Release
from darrm.table.table import Table
from darrm.util import checks
from darrm.util.files import Json
from darrm.verify.verdicts import CONSISTENT, FALSE, UNKNOWN, format_bound
from darrm.votes import Votes

CONFIDENCE = 0.999999  # of all bounds together: one false alarm in a million attacks
MAX_DRAWS = 10**9  # of an attack: minutes
_DELTA_SHARES, _CURVE_DELTA = (0.5, 0.1), 0.01  # of the total variation: δ for a profile; δ for a curve alone
_DRAWS_PER_CALL = 2**14  # labels of one call: few, compared with the labels that one block of random bytes decides
_LAW_ERROR, _MIN_PROBABILITY = 2e-4, 1e-9  # of a probability, at most, for wide noise; one that no draws show
_MAX_STEPS = 60  # of Dinkelbach's iteration, which ends after a few
_MAX_CLASSES = 1_000

Histogram = NDArray[np.int64]  # (C,); several are (n, C)
Counts = TypeVar("Counts", Histogram, Array)
Law = Callable[[Histogram], Array]  # votes to the probability of every label: (n, C) → (n, C)


class TooLongError(ValueError):
    """The law of the labels has too many terms."""


@dataclass(frozen=True, eq=False)
class ConfidenceIntervals:
    """Bounds on the probabilities of events on both sides, (2, events), all true at once."""

    lower: Array
    upper: Array

    @classmethod
    def from_counts(cls, counts: ArrayLike, draws: ArrayLike, miss: float) -> Self:
        """Bound probabilities from counts of ``draws``; each single bound fails with probability ≤ ``miss``.

        >>> bounds = ConfidenceIntervals.from_counts([[0, 10], [5, 10]], 10, 0.025)
        >>> bounds.lower.round(4).tolist(), bounds.upper.round(4).tolist()
        ([[0.0, 0.6915], [0.1871, 0.6915]], [[0.3085, 1.0], [0.8129, 1.0]])
        """
        counts_array, draws = np.asarray(counts, dtype=np.float64), np.asarray(draws, dtype=np.float64)
        lower, distance = (
            np.where(successes > 0, betaincinv(np.maximum(successes, 1.0), draws - successes + 1.0, miss), 0.0)
            for successes in (counts_array, draws - counts_array)
        )
        return cls(lower, 1.0 - distance)

    def epsilon(self, delta: float) -> float:
        """Return the largest ε refuted at δ: 0 if none is, ∞ if all are."""
        gains, losses = self.lower - delta, self.upper[::-1]
        is_refuting = gains > losses
        with np.errstate(divide="ignore"):
            return float(np.max(np.log(gains[is_refuting]) - np.log(losses[is_refuting]), initial=0.0))


@dataclass(frozen=True)
class Bound:
    delta: float
    claimed: float
    refuted: float = 0.0
    true: float = 0.0  # the largest of the pairs that were drawn on

    @property
    def is_false(self) -> bool:
        return self.refuted > self.claimed

    def true_epsilon(self, laws: Array) -> float:
        laws = np.where(laws.max(axis=0) > _MIN_PROBABILITY, laws, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            rising = np.argsort(laws[0] / laws[1])  # the sets of largest loss are prefixes, from either end
        sums = np.hstack([np.cumsum(laws[:, rising], axis=1), np.cumsum(laws[:, rising[::-1]], axis=1)])
        return ConfidenceIntervals(sums, sums).epsilon(self.delta)

    def __str__(self) -> str:
        numbers = f"refuted {self.refuted:.6g}, true on these pairs {self.true:.6g}, claimed {self.claimed:.6g}"
        return f"ε at δ = {format_bound(self.delta)}: {numbers}"


@dataclass(frozen=True, eq=False)
class Refutation:
    bounds: tuple[Bound, ...]  # the guarantee first, if the release has one
    departures: tuple[str, ...]  # events more, or less, frequent than under the law of the release
    draws: int  # labels from either side of each pair
    pairs: int
    confidence: float

    @property
    def epsilon(self) -> float:
        return self.bounds[0].refuted

    @property
    def worst(self) -> float:
        """The smallest true ε at that δ on these pairs; for a γ they include the worst of all."""
        return self.bounds[0].true

    @property
    def refuted(self) -> bool:
        return any(bound.is_false for bound in self.bounds)

    def to_json(self) -> dict[str, Json]:
        first = self.bounds[0]
        return {
            "refuted_epsilon": first.refuted,
            "claimed": {"epsilon": repr(first.claimed), "delta": repr(first.delta)},
            "worst_epsilon": first.true,
            "epsilons": [vars(bound) for bound in self.bounds],
            "claim_refuted": self.refuted,
            "departures": list(self.departures),
            "draws": self.draws,
            "pairs": self.pairs,
            "confidence": self.confidence,
        }


@dataclass(frozen=True, eq=False)
class Pair:
    """Groups of voters with one law each, on both sides; the first includes the person at ``rate``."""

    sizes: Histogram  # (G,)
    sides: Array  # (2, G, C)
    rate: float = 1.0

    def labels(self, law: Law) -> Array:
        with_person, without_person = (chances @ law(votes) for votes, chances in map(self._list_votes, self.sides))
        return np.array([self.rate * with_person + (1.0 - self.rate) * without_person, without_person])

    def _list_votes(self, side: Array) -> tuple[Histogram, Array]:
        votes, chances = np.zeros((1, side.shape[1]), dtype=np.int64), np.ones(1)
        for n, law in zip(self.sizes.tolist(), side, strict=True):
            possible = np.flatnonzero(law)
            ways = math.comb(n + possible.size - 1, n)
            if len(votes) * ways > 2**21:  # different votes: seconds
                raise TooLongError("private voters may vote in too many ways to be summed")
            histograms = np.zeros((ways, side.shape[1]), dtype=np.int64)
            histograms[:, possible] = histograms_of(n, possible.size).counts
            logs = (
                gammaln(n + 1.0)
                - np.sum(gammaln(histograms + 1.0), axis=1)
                + histograms[:, possible] @ np.log(law[possible])
            )
            sums = (votes[:, None] + histograms).reshape(-1, side.shape[1])
            votes, index = np.unique(sums, axis=0, return_inverse=True)
            chances = np.asarray(np.bincount(index.ravel(), np.outer(chances, np.exp(logs)).ravel()), dtype=np.float64)
        return votes, chances


def judge_attack(content: bytes, draws: int, report: Callable[[str], None]) -> tuple[dict[str, Json] | None, str, str]:
    try:
        aggregator = read_release(json.loads(content.decode("utf-8-sig")))
    except (TableError, CertificationError) as error:
        return None, UNKNOWN, f"no label was drawn: the library refuses this release ({error})"
    try:
        result = attack(aggregator, draws, report=report)
    except TooLongError as error:
        return None, UNKNOWN, f"no label was drawn: {error}"
    listed = [bound for bound in result.bounds if bound is result.bounds[0] or bound.is_false]
    parts = [*map(str, listed), f"confidence {result.confidence:g}"]
    parts += [f"not the labels of the release: {', '.join(result.departures)}"] if result.departures else []
    return result.to_json(), FALSE if result.refuted or result.departures else CONSISTENT, "; ".join(parts)


def attack(
    aggregator: Released,
    draws: int,
    *,
    confidence: float = CONFIDENCE,
    rng: np.random.Generator | None = None,
    report: Callable[[str], None] = lambda _text: None,
) -> Refutation:
    """Draw labels on costly pairs of neighbors, and list the claims that they refute.

    ``draws`` labels, 1 to 10⁹, are of either side of every pair: a million show a loss of 0.3 to about 0.01. An honest
    release is called false with probability ≤ 1 − ``confidence``. Without ``rng`` the operating system draws them.
    `ValueError` for an argument out of range, or if the law of the labels has too many terms.

    >>> from darrm.noisy_max.noisy_maximum import NoisyMaximum
    >>> aggregator = NoisyMaximum(ExponentialMechanism(1.0), Voters(11, PrivacyParams("inf"), 1), classes=3)
    >>> result = attack(aggregator, 20_000, rng=np.random.default_rng(1))
    >>> result.epsilon < result.worst <= result.bounds[0].claimed, result.refuted, result.departures
    (True, False, ())
    """
    if not isinstance(aggregator, Released):
        checks.fail("aggregator", aggregator, "a Release or a NoisyMaximum", "load_release reads one from a file")
    advice = "how many labels are drawn from either side of a pair"
    checks.integer_at_least(1, most=MAX_DRAWS, draws=draws, advice=advice)
    checks.open_probability(confidence=confidence)
    generator = np.random.default_rng() if rng is None else rng
    law, claims, departures = label_law(aggregator), _list_claims(aggregator.privacy_cost()), list[str]()
    pairs = _choose_pairs(aggregator, law, claims)
    tie_law = law(_make_tie(aggregator.voters.K, aggregator.classes)[None])[0]
    sizes = (draws // 2, draws - draws // 2)
    for name, pair in pairs.items():
        report(f"drawing labels on the {name}")
        halves = [_count_cells(aggregator, pair, size, generator, is_exact=rng is None) for size in sizes]
        sets = _choose_sets(halves[0], claims)
        counts = np.hstack([_append_sums(halves[0] + halves[1]), halves[1] @ sets.T])
        draws_of_event = np.repeat([draws, sizes[1]], [counts.shape[1] - len(sets), len(sets)])
        # sides, events, bounds from below and above
        miss = (1.0 - confidence) / (len(pairs) * counts.size * 2)
        bounds = ConfidenceIntervals.from_counts(counts, draws_of_event, miss)
        labels = pair.labels(law)
        cells = np.stack([labels * (1.0 - tie_law), labels * tie_law], axis=-1).reshape(2, -1)
        expected = np.hstack([_append_sums(cells), cells @ sets.T])
        is_outside = (expected < bounds.lower - _LAW_ERROR) | (expected > bounds.upper + _LAW_ERROR)
        sides = [(np.sum(side), side.size, index) for index, side in enumerate(is_outside, 1)]
        departures += [f"{n} of {events} events, {name}, side {index}" for n, events, index in sides if n]
        for index, claim in enumerate(claims):
            refuted = max(claim.refuted, bounds.epsilon(claim.delta))
            claims[index] = replace(claim, refuted=refuted, true=max(claim.true, claim.true_epsilon(labels)))
    return Refutation(tuple(claims), tuple(departures), draws, len(pairs), confidence)


def _list_claims(charge: PrivacyCost) -> list[Bound]:
    points = []
    if charge.guarantee is not None:
        points.append((charge.guarantee.delta, charge.guarantee.epsilon))
    if charge.profile is not None:
        deltas = [share * charge.profile.delta_at(0.0) for share in _DELTA_SHARES]
        points += [(delta, charge.profile.epsilon_at(delta)) for delta in deltas]
    if charge.renyi is not None and not points:
        points.append((_CURVE_DELTA, charge.renyi.convert(_CURVE_DELTA).epsilon))
    return [Bound(delta, epsilon) for delta, epsilon in points if math.isfinite(epsilon)]


def _append_sums(cells: Counts) -> Counts:
    """Append the sums for every label, (…, 2C) → (…, 3C)."""
    return np.concatenate([cells[..., ::2] + cells[..., 1::2], cells], axis=-1)


def _choose_sets(cells: NDArray[np.int64], claims: list[Bound]) -> NDArray[np.int64]:
    ratios = [math.exp(min(claim.claimed, 700.0)) for claim in claims]  # e^709 is the largest float
    sets = [first > ratio * second for ratio in ratios for first, second in (cells, cells[::-1])]
    return np.array(sets, dtype=np.int64)


def _make_tie(K: int, classes: int) -> Histogram:
    return np.array([K - K // 2, K // 2, *(0,) * (classes - 2)], dtype=np.int64)


def _count_cells(
    aggregator: Released, pair: Pair, draws: int, rng: np.random.Generator, *, is_exact: bool
) -> NDArray[np.int64]:
    """Count labels by side, and by whether the known label is another or the same: (2, 2C)."""
    C, K = aggregator.classes, aggregator.voters.K
    cells = np.zeros((2, 2 * C), dtype=np.int64)
    block_size = max(2 * _DRAWS_PER_CALL // C, _DRAWS_PER_CALL // 16)
    for side, laws in enumerate(pair.sides):
        for start in range(0, draws, block_size):
            size = min(block_size, draws - start)
            counts = np.empty((size, 2, C), dtype=np.int64)
            counts[:, 0], counts[:, 1] = _make_tie(K, C), _draw_votes(pair.sizes, laws, size, rng)
            if side == 0 and pair.rate < 1.0:
                absent = rng.random(size) >= pair.rate
                counts[absent, 1] = _draw_votes(pair.sizes, pair.sides[1], int(np.count_nonzero(absent)), rng)
            votes = Votes.from_counts(counts.reshape(-1, C), K)
            labels = aggregator.release(votes, rng=None if is_exact else rng).reshape(size, 2)
            cells[side] += np.bincount(2 * labels[:, 1] + (labels[:, 0] == labels[:, 1]), minlength=2 * C)
    return cells


def _draw_votes(sizes: Histogram, laws: Array, draws: int, rng: np.random.Generator) -> Histogram:
    votes = np.zeros((draws, laws.shape[1]), dtype=np.int64)
    for n, law in zip(sizes.tolist(), laws, strict=True):
        likely = np.flatnonzero(law)
        votes[:, likely] += n if likely.size == 1 else rng.multinomial(n, law[likely] / law[likely].sum(), draws)
    return votes


def _choose_pairs(aggregator: Released, law: Law, claims: list[Bound]) -> dict[str, Pair]:
    voters, C, sampled = aggregator.voters, aggregator.classes, aggregator.voters.sampled
    if not isinstance(aggregator, Release):  # a mechanism is private for any votes
        voters = Voters(voters.K, PrivacyParams("inf"), min(aggregator.mechanism.reached, voters.K))
    rate = 1.0 if sampled is None else float(sampled.rate)
    if isinstance(aggregator, Release) and isinstance(aggregator.table.law, NoiseFunction) and sampled is None:
        return _find_worst_pairs(aggregator.table)
    candidates = {name: replace(pair, rate=rate) for name, pair in list_near_ties(voters, C)}
    if sampled is not None:  # the laws with and without the person differ
        candidates |= {f"{name}, reversed": replace(pair, sides=pair.sides[::-1]) for name, pair in candidates.items()}
    laws = {name: pair.labels(law) for name, pair in candidates.items()}
    costs = [{name: claim.true_epsilon(laws[name]) for name in candidates} for claim in (claims[0], claims[-1])]
    names = [max(cost, key=cost.__getitem__) for cost in costs]
    names += [next(name for name in candidates if name.startswith(f"{leaders} classes ")) for leaders in (2, C)]  # ties
    return {name: candidates[name] for name in names}


def list_near_ties(voters: Voters, classes: int) -> Iterator[tuple[str, Pair]]:
    t = voters.reached
    for moving in sorted({t} if voters.are_non_private else {1, -(-t // 2), t}):
        others = voters.K - moving
        leads = dict.fromkeys(
            min(lead, others) for lead in (moving, 0, 1, 2, others // 8, others // 4, others // 2, others)
        )
        for leaders in sorted({2, min(3, classes), classes}):
            for lead in leads:
                votes = np.zeros(classes, dtype=np.int64)
                votes[:leaders], remainder = divmod(others - lead, leaders)
                votes[0] += lead
                votes[leaders % classes] += remainder
                for targets in sorted({(1,), (classes - 1,), tuple(range(1, min(3, classes)))}):
                    name = (
                        f"{leaders} classes at a lead of {lead}, {moving} moving to {' and '.join(map(str, targets))}"
                    )
                    yield name, _make_pair(voters, moving, targets, votes)


def _make_pair(voters: Voters, moving: int, targets: tuple[int, ...], votes: Histogram) -> Pair:
    """Let the least private voters move from class 0 to other classes, with all of their Δ."""
    units, sizes = np.eye(votes.size), votes.tolist()
    sides = [units, units]
    for n, guarantee in voters.groups:
        chance = guarantee.delta + (1.0 - guarantee.delta) * corners_of(guarantee).share
        for index, label in enumerate(targets):
            sizes.append((min(n, moving) + index) // len(targets))
            laws = [
                chance * units[source] + (1.0 - chance) * units[target] for source, target in ((0, label), (label, 0))
            ]
            sides = [np.vstack(pair) for pair in zip(sides, laws, strict=True)]
        moving -= min(n, moving)
    is_present = np.flatnonzero(sizes)
    return Pair(np.array(sizes)[is_present], np.stack(sides)[:, is_present])


def _find_worst_pairs(table: Table) -> dict[str, Pair]:
    voters = table.problem.voters
    noiseless = NoiseFunction(voters.K, np.ones(voters.num_upper_levels))
    without_noise = _find_costliest(voters, noiseless, table.problem.target.exact_epsilon)
    pairs = {}
    for name, sides in {"worst pair": find_worst_pair(table)[1], "worst pair without noise": without_noise}.items():
        ones, sizes = np.unique(np.stack(sides), axis=1, return_counts=True)
        pairs[name] = Pair(sizes, np.stack([1.0 - ones, ones], axis=-1))
    return pairs


def find_worst_pair(table: Table) -> tuple[float, tuple[Array, Array]]:
    """Find the smallest true ε at the target's δ and neighbors (p, p') that attain it, both (K,).

    Dinkelbach's iteration: the row that costs most at e^ε₁ has a larger loss log((P − δ)/P') than ε₁, until no row has.
    """
    voters, gamma, target = table.problem.voters, table.gamma, table.problem.target
    best_loss, epsilon, best_pair = -1.0, target.exact_epsilon, None
    for _ in range(_MAX_STEPS):
        pair = _find_costliest(voters, gamma, epsilon)
        first, second = (0.5 * (1.0 + float(poisson_binomial_pmf(p) @ gamma.signed)) for p in pair)
        gain = first - target.delta
        loss = 0.0 if gain <= second else math.log(gain / second) if second else math.inf
        loss = min(loss, target.epsilon)  # the proved bound: any excess is rounding
        if best_pair is not None and loss <= best_loss:
            break
        best_loss, epsilon, best_pair = loss, Fraction(loss), pair
    return best_loss, best_pair if best_pair is not None else pair


def _find_costliest(voters: Voters, gamma: NoiseFunction, epsilon: Fraction) -> tuple[Array, Array]:
    rows = FullSet(voters, epsilon) if voters.per_voter is None else GroupSet(voters, epsilon)
    _, row = max(rows.maxima(gamma.half, -math.inf).broken, key=itemgetter(0))
    return row.probabilities(voters)


def label_law(aggregator: Released) -> Law:
    """Return the law of a label, by votes; `TooLongError` if it has too many terms."""
    if isinstance(aggregator, TestedRun):
        raise TooLongError("whether a label leaves depends on all votes of the run")
    if is_open(aggregator.classes) or aggregator.classes > _MAX_CLASSES:
        raise TooLongError(f"labels of open answers, or of more than {_MAX_CLASSES:,} classes, are not summed")
    if isinstance(aggregator, Release):
        return aggregator.table.law.probabilities
    if isinstance(aggregator.mechanism, NoisyMax):
        return partial(winning_probabilities, aggregator.mechanism.law)
    return partial(_compute_odds_law, aggregator.mechanism)


def _compute_odds_law(mechanism: ExponentialMechanism | PermuteAndFlip, rows: Histogram) -> Array:
    odds = np.exp(mechanism.epsilon / (2 * mechanism.reached) * (rows - rows.max(axis=1, keepdims=True)))
    if isinstance(mechanism, ExponentialMechanism):
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))
    result = np.zeros(odds.shape)
    for node, weight in zip(*np.polynomial.legendre.leggauss(-(-odds.shape[1] // 2)), strict=True):
        for c in range(odds.shape[1]):
            others = np.prod(1.0 - 0.5 * (node + 1.0) * np.delete(odds, c, axis=1), axis=1)
            result[:, c] += 0.5 * weight * odds[:, c] * others
    return result
