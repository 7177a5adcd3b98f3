"""The claims of a plurality's table, decided in whole numbers by code that shares nothing with the prover.

The file holds, for each partition of K votes into C counts (the largest first) and each different count in it, the
probability that the answer is one of the classes with so many votes, in units of 2^-53; these classes share it alike.
So it names a law h on every histogram. It is (ε, δ)-private exactly if Σ_c max(0, h_c(n) − e^ε·h_c(n')) ≤ δ for all
histograms n and n' with Σ_c |n_c − n'_c| ≤ 2t. As h treats classes alike, n may be taken among the partitions; n' runs
over all histograms, class by class. With the least common multiple of 1 … C all numbers are whole; only e^ε is rounded.

Of open answers a list has no zeros, and its last number is the probability of no answer. A histogram n' has places for
t strings that nobody said in n; the answer is never a string that nobody says, so h_c is 0 where a count is.

Private voters sit at corners: on the two data sets one says (a, b) with probabilities (hi, lo) and (lo, hi), and with
probability Δ u and v instead. Every multiset of them is walked through, voter by voter, as a law on histograms; with hi
and Δ rounded either way the result is enclosed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import comb, factorial, lcm, prod

import numpy as np

from darrm.laws.priors import Dirichlet, Ewens, Prior, Spread
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, is_open
from darrm.proof.charge import charge_of
from darrm.proof.evidence import MOVES, OPEN_ROWS
from darrm.proof.table import Table
from darrm.verify.answering import OfTable
from darrm.verify.drawn import MOST_PAIRS
from darrm.verify.exact import ONE, Enclosure, Laws, exponential, largest_sums
from darrm.verify.noisy_labels import Between, between, divergence
from darrm.verify.verdicts import CLAIMED, Verdict

MOST_WORK = 24_000_000  # classes of pairs of histograms: about twenty seconds
_UNIT, _GRAIN = 2**53, 2**64
_NO_ANSWER = -1  # in place of the votes for it

Histogram = tuple[int, ...]
_Weights = dict[Histogram, int]
_Corner = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class ExactPlurality(OfTable):
    """A law on histograms, whose cost is its largest Σ_c max(0, h_c(n) − e^ε·h_c(n')), the δ that it needs."""

    numbers, version, read = "weights", MOVES.versions[-1], Table.from_json
    merit, sign = "share of right labels", 1
    tolerance = Fraction(1, 10**10)  # a prior is computed in floats
    not_in_the_file = "the file holds the name of the prior only"

    def worst(self, epsilon: Fraction) -> Enclosure | None:
        """Enclose the largest cost at ε; None if there are too many pairs of neighbors."""
        found = self.certain_deltas([epsilon])
        return None if found is None else found[0]

    def budget(self, target: PrivacyParams) -> Enclosure:
        """Return δ, which is what the cost may be."""
        return Enclosure(target.exact_delta, target.exact_delta)

    def certain_deltas(self, epsilons: Sequence[Fraction]) -> list[Enclosure] | None:
        """Enclose the smallest δ of one label for each ε; None if there are too many neighbors."""
        if self.voters.are_plain:
            return worst_differences(self.table, epsilons, self.voters.reached)
        return worst_of_private_voters(self.table, epsilons)

    def certain_renyi(self, order: float) -> Between | None:
        """Enclose the Rényi divergence of a label at an order; None if there are too many neighbors."""
        return _renyi(self.table, order, self.voters.reached) if self.voters.are_plain else None

    def laws(self) -> tuple[list[Laws], int] | None:
        """List the laws of a label on all histograms that differ by a person's votes, one of them a partition."""
        table, reached = self.table, self.voters.reached
        return None if _number(table, reached) > MOST_PAIRS else (list(_pairs(table, reached)), _common(table) * _UNIT)

    def value(self) -> Fraction | None:
        """Compute the share of right labels exactly; None if the file does not hold the prior."""
        return share_right(self.table)

    def notes(self) -> Iterator[Verdict]:
        """Nothing else is said."""
        return iter(())

    @property
    def believed(self) -> str:
        """For which prior the share is stated."""
        return "" if self.table.optimality is None else f"where {self.table.optimality.prior} is believed"

    @property
    def bound_claim(self) -> str:
        """What the bound says."""
        optimality = self.table.optimality
        bound = None if optimality is None else optimality.bound
        return f"no private mechanism has a share of right labels above {bound!r}"

    def search(self) -> tuple[str, str]:
        """Look for nothing: the file must hold what proves its bound."""
        return CLAIMED, "the file does not hold what it takes to compute it"

    def cost(self, *, voters: Voters | None = None, exact: bool | None = None) -> Charge:
        """Describe what a query costs, for voters of whom it is proved."""
        return _charge_of_one(self.table, voters, exact)

    def in_words(self, labels: str) -> str:
        """Say what one of the labels tells."""
        voters = self.table.problem.voters
        if is_open(self.classes):
            told = "with probabilities that depend on the votes"
            return (
                f"{labels} is the answer that most of {voters.K} voters gave, another that some gave, or none, {told}."
            )
        law = self.table.plurality
        top = law.weights[law.partitions.starts] / 2.0**53
        truth = f"with a probability between {top.min():.4g} and {top.max():.4g} that depends on the votes"
        return f"{labels} is one of {law.classes} classes: one with the most votes of {voters.K} voters {truth}."


def worst_differences(table: Table, epsilons: Sequence[Fraction], reached: int) -> list[Enclosure] | None:
    """Enclose the largest Σ_c max(0, h_c(n) − e^ε·h_c(n')) for each ε; None if there are too many pairs."""
    if _number(table, reached) * _places(table, reached) * len(epsilons) > MOST_WORK:
        return None
    worst, unit = largest_sums(_pairs(table, reached), epsilons), _common(table) * _UNIT * ONE
    return [Enclosure(Fraction(low, unit), Fraction(high, unit), "all pairs of histograms") for low, high in worst]


def worst_of_private_voters(table: Table, epsilons: Sequence[Fraction]) -> list[Enclosure] | None:
    """Enclose the largest Σ_c max(0, Pr[c] − e^ε·Pr'[c]) for each ε; None if there are too many multisets."""
    problem = table.problem
    K, C, kinds = problem.voters.K, problem.classes, problem.voters.kinds
    ends = [[_corners(each, C, up=up) for _, each in kinds] for up in (False, True)]
    multisets = prod(comb(n + len(corners) - 1, n) for (n, _), corners in zip(kinds, ends[0], strict=True))
    if multisets * comb(K + C - 1, K) * 4 > MOST_WORK:
        return None
    common, law = _common(table), _law(table)
    ratios, bits = [exponential(epsilon) for epsilon in epsilons], 1 << 128
    worst, nobody = [[0, 0] for _ in epsilons], ({(0,) * C: 1}, {(0,) * C: 1})
    for end, corners in enumerate(ends):
        grown = [int(ratio.lower * bits) if end else int(ratio.upper * bits) + 1 for ratio in ratios]
        for before, after in _laws_of_histograms([n for n, _ in kinds], corners, problem.voters.reached, nobody):
            sides = [[_mean(side, law, label) for label in range(C)] for side in (before, after)]
            for at, ratio in enumerate(grown):
                total = sum(max(0, p * bits - ratio * q) for p, q in zip(*sides, strict=True))
                worst[at][end] = max(worst[at][end], total)
    unit = common * _UNIT * bits * _GRAIN**K
    return [Enclosure(Fraction(low, unit), Fraction(high, unit), "all multisets of corners") for low, high in worst]


def _weights(table: Table) -> list[list[int]]:
    """Return the weights of a file that lists them by partition, or by own votes and the most of another string."""
    stored = table.law.to_json()
    if table.evidence is not OPEN_ROWS:
        return stored
    lists, K = list[list[int]](), table.problem.voters.K
    for part in partitions(K, K, K):
        each = [
            part.count(votes) * stored[votes - 1][part[0] if votes < part[0] else part[1] if K > 1 else 0]
            for votes in sorted(set(part) - {0}, reverse=True)
        ]
        lists.append([*each, _UNIT - sum(each)])
    return lists


def _partitions(table: Table) -> int:
    if table.evidence is not OPEN_ROWS:
        return len(table.law.to_json())
    ways = [1] + [0] * table.problem.voters.K
    for size in range(1, len(ways)):
        for total in range(size, len(ways)):
            ways[total] += ways[total - size]
    return ways[-1]


def _places(table: Table, reached: int) -> int:
    """Count the classes of a pair of histograms: those that are listed, or the strings of both."""
    C = table.problem.classes
    return table.problem.voters.K + reached if is_open(C) else C


def _number(table: Table, reached: int) -> int:
    # of pairs of histograms, up to those that are reached twice
    C = _places(table, reached)
    return int(_partitions(table) * (C * (C - 1)) ** reached)


def _common(table: Table) -> int:
    return lcm(*range(1, _places(table, 0) + 1))


def _law(table: Table, reached: int = 0) -> dict[Histogram, dict[int, int]]:
    """Return Pr[a class with so many votes] for each partition, and no answer's, in units of 2^-53 over `_common`."""
    K, C, common = table.problem.voters.K, table.problem.classes, _common(table)
    law = {}
    for part, weights in zip(partitions(K, C or K, K), _weights(table), strict=True):
        values = sorted(set(part) - ({0} if is_open(C) else set()), reverse=True)
        own = {votes: w * common // part.count(votes) for votes, w in zip(values, weights, strict=not is_open(C))}
        if is_open(C):
            own |= {0: 0, _NO_ANSWER: weights[len(values)] * common}
        law[(*part, *(0,) * reached) if is_open(C) else part] = own
    return law


def _pairs(table: Table, reached: int) -> Iterator[tuple[list[int], list[int]]]:
    """List the laws of a label on all pairs of histograms, up to classes that have equally many votes in the first."""
    law = _law(table, reached)
    for part, own in law.items():
        for aligned in {tuple(sorted(zip(part, other, strict=True))) for other in _within(part, reached)}:
            theirs = law[tuple(sorted((y for _, y in aligned), reverse=True))]
            answers = [*aligned, (_NO_ANSWER, _NO_ANSWER)] if _NO_ANSWER in own else aligned
            yield [own[x] for x, _ in answers], [theirs[y] for _, y in answers]


@lru_cache(maxsize=64)  # tables do not change, and a ledger and a plan ask for the same orders
def _renyi(table: Table, order: float, reached: int) -> Between | None:
    if _number(table, reached) * _places(table, reached) > MOST_WORK:
        return None
    pairs, unit = list(_pairs(table, reached)), float(_common(table) * _UNIT)
    before, after = (np.array(side, dtype=float) / unit for side in zip(*pairs, strict=True))
    return between(divergence(before, after, order))


def _corners(each: PrivacyParams, C: int, *, up: bool) -> list[_Corner]:
    """List the corners of a voter in units of 2^-64, with hi and Δ rounded up or down."""
    high = Fraction(1)
    if each.is_private:
        growth = exponential(each.exact_epsilon)
        end = growth.upper if up else growth.lower
        high = end / (1 + end)
    delta = int(each.exact_delta * _GRAIN) + (up and each.exact_delta > 0)
    rest = _GRAIN - delta
    first = min(rest, int(high * rest) + (up and high < 1))
    corners = set()
    for a, b, u, v in product(range(C), repeat=4):
        p, q = [0] * C, [0] * C
        for law, main, other, more in ((p, a, b, u), (q, b, a, v)):
            law[main] += first
            law[other] += rest - first
            law[more] += delta
        corners.add((tuple(p), tuple(q)))
    return sorted(corners)


def _laws_of_histograms(
    sizes: Sequence[int],
    corners: Sequence[Sequence[_Corner]],
    reached: int,
    both: tuple[_Weights, _Weights],
    first: int = 0,
) -> Iterator[tuple[_Weights, _Weights]]:
    if not any(sizes):
        yield both
        return
    kind = next(number for number, left in enumerate(sizes) if left)
    left = [size - (number == kind) for number, size in enumerate(sizes)]
    for place in range(first, len(corners[kind])):
        p, q = corners[kind][place]
        if p == q or reached:
            grown = (_with_one_more(both[0], p), _with_one_more(both[1], q))
            after = place if left[kind] else 0
            yield from _laws_of_histograms(left, corners, reached - (p != q), grown, after)


def _with_one_more(law: _Weights, voter: Sequence[int]) -> _Weights:
    grown: _Weights = {}
    for counts, weight in law.items():
        for c, share in enumerate(voter):
            if share:
                key = (*counts[:c], counts[c] + 1, *counts[c + 1 :])
                grown[key] = grown.get(key, 0) + weight * share
    return grown


def _mean(side: _Weights, law: dict[Histogram, dict[int, int]], label: int) -> int:
    return sum(weight * law[tuple(sorted(counts, reverse=True))][counts[label]] for counts, weight in side.items())


def share_right(table: Table, prior: Prior | None = None) -> Fraction | None:
    """Compute the share of right labels exactly, by default under the file's prior; None if that is not known.

    A Dirichlet law of concentration a gives n the probability K!/Π n_c! · Π (a)_{n_c}/(Ca)_K, (a)_n = a·…·(a + n − 1);
    Ewens' law a partition of which m_j strings have j votes K!/(θ)_K · Π (θ/j)^{m_j}/m_j!. The prior called ``spread``
    is the mean of Dirichlet's laws with a = 1, 1/C and 1/(10C), of open answers of Ewens' with θ = 10, 1 and 1/10.
    """
    C = table.problem.classes
    if prior is None and table.optimality is not None:
        prior = table.optimality.prior
    match prior:
        case Ewens():
            return _share_right_open(table, Fraction(repr(prior.theta)))
        case Dirichlet():
            return _share_right_listed(table, Fraction(repr(prior.concentration)))
        case Spread() if is_open(C):
            return sum((_share_right_open(table, Fraction(theta, 10)) for theta in (100, 10, 1)), Fraction(0)) / 3
        case Spread():
            three = (Fraction(1), Fraction(1, C), Fraction(1, 10 * C))
            return sum((_share_right_listed(table, a) for a in three), Fraction(0)) / 3
    return None


def _share_right_listed(table: Table, a: Fraction) -> Fraction:
    K, C = table.problem.voters.K, table.problem.classes
    rising = [prod((a + i for i in range(n)), start=Fraction(1)) / factorial(n) for n in range(K + 1)]
    total = Fraction(0)
    for part, given in zip(partitions(K, C, K), table.plurality.to_json(), strict=True):
        arrangements = factorial(C) // prod(factorial(part.count(votes)) for votes in set(part))
        total += arrangements * prod((rising[votes] for votes in part), start=Fraction(1)) * given[0]
    return total * factorial(K) / prod((C * a + i for i in range(K)), start=Fraction(1)) / _UNIT


def _share_right_open(table: Table, theta: Fraction) -> Fraction:
    K, total = table.problem.voters.K, Fraction(0)
    if table.evidence is OPEN_ROWS:
        return _share_right_of_two_counts(table, theta)
    for part, weights in zip(partitions(K, K, K), _weights(table), strict=True):
        counts = {votes: part.count(votes) for votes in set(part) - {0}}
        total += weights[0] * prod((theta / votes) ** m / factorial(m) for votes, m in counts.items())
    return total * factorial(K) / prod((theta + i for i in range(K)), start=Fraction(1)) / _UNIT


def _share_right_of_two_counts(table: Table, theta: Fraction) -> Fraction:
    # x(n, m) over the strings with n votes that are expected at the top, m the most of another. Permutations of L whose
    # cycles have at most m weigh θ to their number, c_m(L) of them over L!: L·c_m(L) is θ Σ_{j ≤ m} c_m(L − j), and
    # a string with n votes takes θ/n
    K, stored = table.problem.voters.K, table.law.to_json()
    fewer = [Fraction(1)] + [Fraction(0)] * K
    expected = [Fraction(0)] * (K + 1)
    for m in range(1, K + 1):
        weighs, last = [Fraction(1)], Fraction(1)  # the sum of the last m of them
        for length in range(1, K + 1):
            weighs.append(theta * last / length)
            last += weighs[length] - (weighs[length - m] if length >= m else 0)
        for n in range(m, K - m + 1):
            expected[n] += stored[n - 1][m] * theta / n * (weighs[K - n] - fewer[K - n])
        fewer = weighs
    expected[K] += stored[K - 1][0] * theta / K
    return sum(expected, Fraction(0)) / fewer[K] / _UNIT


def partitions(K: int, C: int, most: int) -> Iterator[tuple[int, ...]]:
    """List the partitions of K votes into C counts of at most so many votes, the largest first."""
    if C == 1:
        if most >= K:
            yield (K,)
        return
    if K == 0:  # at once: of many classes most have no votes
        yield (0,) * C
        return
    for first in range(min(K, most), -(-K // C) - 1, -1):
        for rest in partitions(K - first, C - 1, first):
            yield (first, *rest)


def _within(part: Histogram, reached: int) -> set[Histogram]:
    found = {part}
    for _ in range(reached):
        found |= {
            tuple(votes - (c == source) + (c == target) for c, votes in enumerate(counts))
            for counts in found
            for source in range(len(part))
            for target in range(len(part))
            if counts[source]
        }
    return found - {part}


@lru_cache(maxsize=8)  # tables do not change, and their exact descriptions take seconds
def _charge_of_one(table: Table, voters: Voters | None, exact: bool | None) -> Charge:
    return charge_of(table, voters=voters, exact=exact)
