"""Lower bounds from outside: what released labels refute, beside what a table claims and what is true.

The prover knows two neighboring votes on which a table loses most. Labels are drawn through the release itself, with
the voters at p and at p', and counted; likewise on the neighbors on which a majority without noise would lose most,
where a release with too little noise shows, and on random ones. With P and P' the probabilities of an event on both
sides, the claim says

    P ≤ e^ε·P' + δ    and    P' ≤ e^ε·P + δ.

**Theorem (Clopper and Pearson).** If N of n independent draws fall into an event of probability P, then

    Pr[P < a(N)] ≤ β  with a(N) the β-quantile of Beta(N, n − N + 1), a(0) = 0,

and 1 − a(n − N) is an upper bound in the same sense. *Proof.* a(N) grows with N, and it is the P at which
Pr[Bin(n, P) ≥ N] = β. So a(N) > P says Pr[Bin(n, P) ≥ N] < β, and Pr[Pr[Bin(n, P) ≥ N] < β] ≤ β for every law. ∎ With
β = (1 − confidence)/(number of bounds), over all events, sides and pairs of neighbors, all bounds hold at once with the
confidence stated. Then log((a − δ)/b) < ε for any true (ε, δ)-claim, where a is a lower bound on P and b an upper one
on P'; and D_α(Bern(P) ‖ Bern(P')) is at least its value at the two nearest points of the intervals, for it grows as P
or P' moves away from the other. By data processing it is a lower bound on the divergence of the labels.

**Events.** Every label is released beside the label of a vote that nobody moves, floor(K/2) ones on both sides, which
costs nothing. So any event of both labels is bound by the claim about one, and a release that reuses a coin, or lets
one label depend on another, is seen: the known label tells what the coin was.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from darrm.errors import checks
from darrm.laws.noise_function import NoiseFunction
from darrm.mechanisms.release import Release
from darrm.privacy import PrivacyParams
from darrm.probability import Array
from darrm.probability.binomial import poisson_binomial_pmf
from darrm.problem import Voters
from darrm.proof.corners import corner_pairs
from darrm.proof.full_set import FullSet
from darrm.proof.kinds import KindSet
from darrm.proof.table import Table
from darrm.votes import Votes

CONFIDENCE = 0.999999  # of all bounds together: one false alarm in a million attacks
ORDERS = (2.0, 8.0, 32.0)
_RANDOM_PAIRS = 2  # beside the worst ones
_DRAWS_AT_ONCE = 2**14  # labels of one call: small beside what a release decides with one block of random bytes
_MOST_STEPS = 60  # of Dinkelbach's iteration, which ends after a few
_LAW_ERROR = 1e-11  # of a probability that is computed in floats for thousands of voters
# the columns are (known label, label) = 00, 01, 10, 11
_EVENTS = {
    "label 1": (0, 1, 0, 1),
    "label 0": (1, 0, 1, 0),
    "known label 0, label 0": (1, 0, 0, 0),
    "known label 0, label 1": (0, 1, 0, 0),
    "known label 1, label 0": (0, 0, 1, 0),
    "known label 1, label 1": (0, 0, 0, 1),
}
_MEMBERS = np.array(list(_EVENTS.values()))


@dataclass(frozen=True, eq=False)
class Intervals:
    """Bounds on the probabilities of events on both sides: two arrays (2, events), all true at once."""

    lower: Array
    upper: Array

    @classmethod
    def of_counts(cls, counts: ArrayLike, draws: int, miss: float) -> Self:
        """Bound probabilities from counts of ``draws`` draws; each single bound fails with probability ≤ ``miss``.

        >>> bounds = Intervals.of_counts([[0, 10], [5, 10]], 10, 0.025)
        >>> bounds.lower.round(4).tolist(), bounds.upper.round(4).tolist()
        ([[0.0, 0.6915], [0.1871, 0.6915]], [[0.3085, 1.0], [0.8129, 1.0]])
        """
        seen = np.asarray(counts, dtype=np.float64)
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
        return float(np.max(np.where(above | under, bernoulli_divergence(own, other, order), 0.0)))


@dataclass(frozen=True, eq=False)
class Refutation:
    """What an attack refuted, beside what is claimed and what is true."""

    epsilon: float  # the largest ε that the labels refute at the target's δ
    claimed: PrivacyParams  # the table's target
    worst: float  # the smallest true ε at that δ: what the worst pair of neighbors attains
    renyi: Mapping[float, float]  # order: lower bound on the divergence from the labels
    worst_renyi: Mapping[float, float]  # order: the true divergence, the largest of the pairs that were drawn
    departures: tuple[str, ...]  # events whose frequency is not that of the table: the release is another mechanism
    draws: int  # labels from either side of each pair
    pairs: int
    confidence: float

    @property
    def refuted(self) -> bool:
        """Whether the labels refute the claim."""
        return self.epsilon > self.claimed.epsilon

    @property
    def text(self) -> str:
        """The numbers in words."""
        orders = ", ".join(f"{self.renyi[at]:.4g} of {self.worst_renyi[at]:.4g} at order {at:g}" for at in self.renyi)
        size = f"{self.draws:,} labels from either side of {self.pairs} pairs of neighbors"
        numbers = f"refuted {self.epsilon:.6g}, true worst case {self.worst:.6g}, claimed {self.claimed.epsilon:.6g}"
        lines = [
            f"attack: {size}, confidence {self.confidence:g}",
            f"epsilon at delta = {self.claimed.delta:g}: {numbers}",
            f"Rényi divergence: {orders}",
        ]
        if self.refuted:
            lines.append("THE CLAIM IS FALSE: the labels refute it")
        if self.departures:
            lines.append(f"THE LABELS ARE NOT THOSE OF THE TABLE: {'; '.join(self.departures)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Write the numbers as plain data."""
        return {
            "refuted_epsilon": self.epsilon,
            "claimed": self.claimed.to_json(),
            "worst_epsilon": self.worst,
            "renyi": [
                {"order": order, "refuted": self.renyi[order], "true": self.worst_renyi[order]} for order in self.renyi
            ],
            "claim_refuted": self.refuted,
            "departures": list(self.departures),
            "draws": self.draws,
            "pairs": self.pairs,
            "confidence": self.confidence,
        }


def attack(
    table: Table,
    draws: int,
    *,
    confidence: float = CONFIDENCE,
    orders: tuple[float, ...] = ORDERS,
    rng: np.random.Generator | None = None,
    report: Callable[[str], None] | None = None,
) -> Refutation:
    """Draw labels on the worst pairs of neighbors and on random ones, and say what they refute.

    Parameters
    ----------
    table
        The table whose release is attacked, `darrm.mechanisms.majority.DaRRM`.
    draws
        How many labels are drawn from either side of every pair, at least 1; with a million a loss of 0.3 is seen to
        about 0.01.
    confidence
        Of everything that is said, in (0, 1): an honest release is called false with at most the rest.
    orders
        Orders of the Rényi divergences, above 1.
    rng
        For experiments: draws the votes and the labels. None draws the votes from a fresh generator, since they are
        made up, and the labels from the operating system, as every release.
    report
        Is told what is being drawn.

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    Examples
    --------
    >>> from darrm import Problem, PrivacyParams, Voters, certify
    >>> problem = Problem.from_allowance(Voters(11, PrivacyParams(1)), 3)
    >>> table = certify(problem, NoiseFunction(11, [1.0] * 6))
    >>> found = attack(table, 20_000, rng=np.random.default_rng(1))
    >>> found.epsilon < found.worst <= found.claimed.epsilon, found.refuted, found.departures
    (True, False, ())
    """
    checks.instance(Table, table=table)
    checks.integer_at_least(1, draws=draws, advice="how many labels are drawn from either side of a pair")
    checks.open_probability(confidence=confidence)
    if not all(1.0 < order < math.inf for order in orders):
        checks.fail("orders", orders, "finite and above 1")
    gamma, target = table.gamma, table.problem.target
    generator = np.random.default_rng() if rng is None else rng
    aggregator, worst, pairs = Release(table), worst_pair(table)[0], _pairs(table, generator)
    miss = (1.0 - confidence) / (len(pairs) * 2 * len(_EVENTS) * 2)  # sides, and bounds from below and above
    known = float(0.5 * (1.0 + gamma.signed[gamma.K // 2]))
    epsilon, departures = 0.0, []
    divergences, truth = dict.fromkeys(orders, 0.0), dict.fromkeys(orders, 0.0)
    for name, sides in pairs.items():
        if report is not None:
            report(f"drawing labels on the {name}")
        cells = np.array([_cells(aggregator, p, draws, generator, real=rng is None) for p in sides])
        bounds = Intervals.of_counts(cells @ _MEMBERS.T, draws, miss)
        ones = [_probability_of_one(gamma, p) for p in sides]
        laws = np.array([np.outer([1.0 - known, known], [1.0 - one, one]).ravel() for one in ones]) @ _MEMBERS.T
        epsilon = max(epsilon, bounds.epsilon(target.delta))
        for order in orders:
            divergences[order] = max(divergences[order], bounds.renyi(order))
            truth[order] = max(truth[order], Intervals(laws, laws).renyi(order))
        outside = (laws < bounds.lower - _LAW_ERROR) | (laws > bounds.upper + _LAW_ERROR)
        departures += [
            f"{event}, {name}, side {side + 1}"
            for side in range(2)
            for event, departs in zip(_EVENTS, outside[side], strict=True)
            if departs
        ]
    return Refutation(epsilon, target, worst, divergences, truth, tuple(departures), draws, len(pairs), confidence)


def _pairs(table: Table, rng: np.random.Generator) -> dict[str, tuple[Array, Array]]:
    """Choose the neighbors on which labels are drawn, by name."""
    voters, target = table.problem.voters, table.problem.target
    bare = NoiseFunction(voters.K, np.ones(voters.half_size))
    without_noise = _costliest(voters, bare, target.exact_epsilon)
    random = {f"random pair {number + 1}": _random_pair(voters, rng) for number in range(_RANDOM_PAIRS)}
    return {"worst pair": worst_pair(table)[1], "worst pair without noise": without_noise} | random


def worst_pair(table: Table) -> tuple[float, tuple[Array, Array]]:
    """Find the smallest true ε at the target's δ and probabilities (p, p') of neighbors that attain it, both (K,).

    Dinkelbach's iteration: the row that costs most at e^ε has the loss ε₁ = log((P − δ)/P'), the row that costs most at
    e^{ε₁} a larger one, until nothing changes: then no row costs more than δ at that ε.

    >>> from darrm import Problem, PrivacyParams, Voters, certify
    >>> problem = Problem.from_allowance(Voters(1, PrivacyParams("0.1", "1e-5")), 1)
    >>> epsilon, (p, p_prime) = worst_pair(certify(problem, NoiseFunction(1, [0.5])))
    >>> round(epsilon, 6), p.round(6), p_prime.round(6)
    (0.049959, array([0.524984]), array([0.475016]))
    """
    voters, gamma, target = table.problem.voters, table.gamma, table.problem.target
    best, at, found = -1.0, target.exact_epsilon, None
    for _ in range(_MOST_STEPS):
        pair = _costliest(voters, gamma, at)
        first, second = (np.array([_probability_of_one(gamma, p)]) for p in pair)
        loss = Intervals(np.stack([first, second]), np.stack([np.ones(1), second])).epsilon(target.delta)
        loss = min(loss, target.epsilon)  # as is proved: what is above it is rounding
        if found is not None and loss <= best:
            break
        best, at, found = loss, Fraction(loss), pair
    return best, found if found is not None else pair


def _costliest(voters: Voters, gamma: NoiseFunction, epsilon: Fraction) -> tuple[Array, Array]:
    """Find the row of the full set with the largest privacy cost at e^ε."""
    if voters.own is not None:
        return KindSet(voters, epsilon).maxima(gamma.half, -math.inf).broken[0][1].probabilities(voters)
    separation = FullSet(voters, epsilon)
    found = separation.family.maxima(gamma.half, separation.ratio)
    level = int(np.argmax(found.costs))
    row = separation.family.row(found, level)
    if not gamma.is_monotone:
        worse = separation.maxima(gamma.half, float(found.costs[level])).broken
        row = max(worse, key=lambda item: item[0], default=(0.0, row))[1]
    return row.probabilities(voters)


def _random_pair(voters: Voters, rng: np.random.Generator) -> tuple[Array, Array]:
    """Choose a corner for every voter, with random shares of the corners; those out of reach are 0 or 1."""
    within = np.arange(voters.K) < voters.reached
    if voters.own is not None:
        rng.shuffle(within)  # where voters are alike, it does not matter who is within reach
    first, second, start = np.empty(voters.K), np.empty(voters.K), 0
    for n, each in voters.kinds:
        corners, here = corner_pairs(Voters(1, each)), slice(start, start + n)
        chosen = rng.choice(len(corners), size=n, p=rng.dirichlet(np.ones(len(corners))))
        chosen = np.where(within[here], chosen, chosen % 2)  # the first two corners are (0, 0) and (1, 1)
        first[here], second[here], start = corners[chosen, 0], corners[chosen, 1], start + n
    return first, second


def _probability_of_one(gamma: NoiseFunction, p: Array) -> float:
    """Compute Pr[output 1] = (1 + E[g(L)])/2 for voters at p."""
    return float(0.5 * (1.0 + poisson_binomial_pmf(p) @ gamma.signed))


def _cells(aggregator: Release, p: Array, draws: int, rng: np.random.Generator, *, real: bool) -> NDArray[np.int64]:
    """Count (known label, label) = 00, 01, 10, 11 among labels released on drawn votes of voters at p."""
    K = p.size
    values, sizes = np.unique(p, return_counts=True)
    cells = np.zeros(4, dtype=np.int64)
    for start in range(0, draws, _DRAWS_AT_ONCE):
        size = min(_DRAWS_AT_ONCE, draws - start)
        ones = np.full((size, 2), K // 2, dtype=np.int64)
        # voters at one probability are independent, so the number of their ones is binomial
        ones[:, 1] = sum(rng.binomial(n, value, size) for n, value in zip(sizes, values, strict=True))
        votes = Votes.of_counts(np.stack([K - ones.ravel(), ones.ravel()], axis=1), K)
        labels = aggregator.release(votes, rng=None if real else rng).reshape(size, 2)
        cells += np.bincount(2 * labels[:, 0] + labels[:, 1], minlength=4)
    return cells


def _lower(counts: Array, draws: int, miss: float) -> Array:
    """Compute the lower bounds of Clopper and Pearson: the ``miss``-quantiles of Beta(N, n − N + 1), 0 for N = 0."""
    return np.where(counts > 0, betaincinv(np.maximum(counts, 1.0), draws - counts + 1.0, miss), 0.0)


def bernoulli_divergence(P: Array, Q: Array, order: float) -> Array:
    """Compute D_α(Bern(P) ‖ Bern(Q)) = log(P^α Q^{1−α} + (1 − P)^α (1 − Q)^{1−α})/(α − 1), elementwise.

    >>> bernoulli_divergence(np.array([0.75]), np.array([0.25]), 2.0).round(6)
    array([0.847298])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = [
            np.where(p > 0.0, order * np.log(p) + (1.0 - order) * np.log(q), -np.inf)
            for p, q in ((P, Q), (1 - P, 1 - Q))
        ]
        return np.maximum(0.0, np.logaddexp(*terms) / (order - 1.0))
