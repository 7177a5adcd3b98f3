"""Decide in whole numbers whether a law on histograms is private.

For each partition of K votes into C counts (the largest first) and each different count n in it, the file holds the
probability that the answer is a class with n votes, in units of 2^-53; these classes share it equally. This defines a
law h on every histogram. It is (ε, δ)-private exactly if Σ_c max(0, h_c(n) − e^ε·h_c(n')) ≤ δ for all
histograms n and n' with Σ_c |n_c − n'_c| ≤ 2t. As h treats classes alike, n may be a partition; n' is any histogram.
With the least common multiple of 1 … C all numbers are whole; only e^ε is rounded.

For open-set answers a list has no zeros, and its last number is the probability of no answer. A histogram n' has places
for t strings without votes in n. The answer always has votes, so h_c = 0 if n_c = 0.

Private voters are at corners: on the two data sets a voter returns (a, b) with probabilities (hi, lo) and (lo, hi), and
with probability Δ u and v instead. Every multiset of at most t of them is examined, voter by voter, as averages of h;
all others are certain. With hi and Δ rounded either way the result is enclosed.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import permutations, product
from math import comb, lcm, prod

from darrm.verify.formats import OPEN, OPEN_TABLE, WEIGHT_ONE, Table
from darrm.verify.gamma import placements
from darrm.verify.noisy_labels import Between
from darrm.verify.numbers import ONE, Enclosure, Laws, Point, exponential, largest_sums, units
from darrm.verify.sampling import renyi_of_laws
from darrm.verify.verdicts import TooLargeError

MOST_WORK = 24_000_000  # classes of pairs of histograms: about twenty seconds
MOST_PAIRS = 200_000  # of laws that are listed, in whole numbers: some seconds
_MOST_PARTITIONS, _MOST_VOTERS, _MOST_CLASSES = 5000, 10_000, 100
_NO_ANSWER = -1  # in place of the votes for it

Histogram = tuple[int, ...]
_Values = dict[Histogram, list[int]]  # of every label
_Corner = tuple[tuple[int, ...], tuple[int, ...]]


def worst_differences(table: Table, epsilons: Sequence[Fraction], reached: int) -> list[Enclosure] | None:
    """Enclose the largest Σ_c max(0, h_c(n) − e^ε·h_c(n')) for each ε; None if there are too many pairs."""
    if number_of_pairs(table, reached) * _places(table, reached) * len(epsilons) > MOST_WORK:
        return None
    worst, unit = largest_sums(pairs(table, reached), epsilons), common_unit(table) * WEIGHT_ONE * ONE
    return [Enclosure(Fraction(low, unit), Fraction(high, unit), "all pairs of histograms") for low, high in worst]


def worst_of_private_voters(table: Table, epsilons: Sequence[Fraction]) -> list[Enclosure] | None:
    """Enclose the largest Σ_c max(0, Pr[c] − e^ε·Pr'[c]) for each ε; None if there are too many multisets."""
    K, C, reached = table.voters.K, table.classes, table.voters.reached
    ends = [[(count, _corners(each, C, up=up)) for count, each in table.voters.kinds] for up in (False, True)]
    multisets = prod(comb(count + len(corners) - 1, count) for count, corners in ends[0])
    if multisets * comb(K + C - 1, K) * 4 > MOST_WORK:
        return None
    law = _law(table)
    values = {counts: [own[votes] for votes in counts] for part, own in law.items() for counts in permutations(part)}

    def laws(kinds: Sequence[tuple[int, Sequence[_Corner]]]) -> Iterator[Laws]:
        movers = [(count, [(p, q) for p, q in corners if p != q]) for count, corners in kinds]
        for placed, first, second in placements(movers, reached, values, _average):
            rest = ONE ** (reached - placed)
            for counts, before in first.items():
                yield [rest * x for x in before], [rest * y for y in second[counts]]

    lowest, highest = (largest_sums(laws(kinds), epsilons) for kinds in ends)
    unit = common_unit(table) * WEIGHT_ONE * ONE ** (reached + 1)
    return [
        Enclosure(Fraction(low, unit), Fraction(high, unit), "all multisets of corners")
        for (low, _), (_, high) in zip(lowest, highest, strict=True)
    ]


def weights_of(table: Table) -> list[list[int]]:
    """Return the weights of a file, listed by partition, or by a string's votes and the most votes of another."""
    stored: list[list[int]] = table.law
    if table.format != OPEN_TABLE:
        return stored
    lists, K = list[list[int]](), table.voters.K
    for part in partitions(K, K, K):
        each = [
            part.count(votes) * stored[votes - 1][part[0] if votes < part[0] else part[1] if K > 1 else 0]
            for votes in sorted(set(part) - {0}, reverse=True)
        ]
        lists.append([*each, WEIGHT_ONE - sum(each)])
    return lists


def check_size(table: Table) -> None:
    """Raise `ValueError` unless the weights cover all partitions, and are few enough to list."""
    K, C = table.voters.K, table.classes
    ways = 0 if K > _MOST_VOTERS or table.format == OPEN_TABLE else _number_of_partitions(K, C)
    if K > _MOST_VOTERS or C > _MOST_CLASSES or (table.format != OPEN_TABLE and ways > _MOST_PARTITIONS):
        raise TooLargeError(f"K = {K:,} voters and {C or 'open'} classes have more histograms than are listed")
    if table.format != OPEN_TABLE and len(table.law) != ways:
        raise ValueError(f"it has weights of {len(table.law):,} partitions, and there are {ways:,}")
    for part, weights in zip(partitions(K, C or K, K), table.law if table.format != OPEN_TABLE else (), strict=False):
        if len(weights) != (len(set(part)) if C else len(set(part) - {0}) + 1):
            raise ValueError("a partition has not one weight for each of its counts")


def _number_of_partitions(K: int, C: int) -> int:
    """Count the partitions of K votes into C counts, or until they are too many."""
    ways = [1] + [0] * K
    for size in range(1, min(C, K) + 1):
        for total in range(size, len(ways)):
            ways[total] = min(ways[total] + ways[total - size], MOST_WORK)
    return ways[K]


def _places(table: Table, reached: int) -> int:
    """Count the classes of a pair of histograms: those that are listed, or the strings of both."""
    C = table.classes
    return table.voters.K + reached if C == OPEN else C


def number_of_pairs(table: Table, reached: int) -> int:
    """Bound the number of pairs of neighbors that are listed."""
    C = _places(table, reached)
    parts = len(table.law) if table.format != OPEN_TABLE else _number_of_partitions(table.voters.K, table.voters.K)
    return int(parts * (C * (C - 1)) ** reached)


def common_unit(table: Table) -> int:
    """Return the common denominator of the shares of tied classes."""
    return lcm(*range(1, _places(table, 0) + 1))


def _law(table: Table, reached: int = 0) -> dict[Histogram, dict[int, int]]:
    """Return Pr[a class with n votes] by n, for each partition, and that of no answer, over `common_unit`·2^53."""
    K, C, common = table.voters.K, table.classes, common_unit(table)
    law = {}
    for part, weights in zip(partitions(K, C or K, K), weights_of(table), strict=True):
        values = sorted(set(part) - ({0} if C == OPEN else set()), reverse=True)
        own = {votes: w * common // part.count(votes) for votes, w in zip(values, weights, strict=C != OPEN)}
        if C == OPEN:
            own |= {0: 0, _NO_ANSWER: weights[len(values)] * common}
        law[(*part, *(0,) * reached) if C == OPEN else part] = own
    return law


def pairs(table: Table, reached: int) -> Iterator[tuple[list[int], list[int]]]:
    """List the laws of a label on all pairs of histograms, up to classes that have equally many votes in the first."""
    law = _law(table, reached)
    for part, own in law.items():
        for aligned in {tuple(sorted(zip(part, other, strict=True))) for other in _within(part, reached)}:
            theirs = law[tuple(sorted((y for _, y in aligned), reverse=True))]
            answers = [*aligned, (_NO_ANSWER, _NO_ANSWER)] if _NO_ANSWER in own else aligned
            yield [own[x] for x, _ in answers], [theirs[y] for _, y in answers]


@lru_cache(maxsize=64)  # tables do not change, and a ledger and a plan ask for the same orders
def renyi(table: Table, order: float, reached: int) -> Between | None:
    """Enclose the Rényi divergence of a label; None if there are too many pairs."""
    if number_of_pairs(table, reached) * _places(table, reached) > MOST_WORK:
        return None
    return renyi_of_laws(pairs(table, reached), common_unit(table) * WEIGHT_ONE, order)


def _corners(each: Point | None, C: int, *, up: bool) -> list[_Corner]:
    """List the corners of a voter in units of 2^-128, with hi and Δ rounded up or down."""
    main, moved = ONE, 0
    if each is not None:
        growth, moved = exponential(each[0]), units(each[1], up=up)
        end = growth.upper if up else growth.lower
        main = units((ONE - moved) * end / (1 + end), 0, up=up)
    corners = set()
    for a, b, u, v in product(range(C), repeat=4):
        laws = [0] * C, [0] * C
        for law, first, second, third in zip(laws, (a, b), (b, a), (u, v), strict=True):
            law[first] += main
            law[second] += ONE - moved - main
            law[third] += moved
        corners.add((tuple(laws[0]), tuple(laws[1])))
    return sorted(corners)


def _average(values: _Values, voter: Sequence[int]) -> _Values:
    """Average over one voter, by the histogram of the others."""
    fewer: _Values = {}
    for counts, weights in values.items():
        for c, share in enumerate(voter):
            if counts[c]:
                others = (*counts[:c], counts[c] - 1, *counts[c + 1 :])
                sums = fewer.setdefault(others, [0] * len(counts))
                for label, weight in enumerate(weights):
                    sums[label] += share * weight
    return fewer


def partitions(K: int, C: int, most: int) -> Iterator[tuple[int, ...]]:
    """List the partitions of K votes into C counts of at most ``most`` votes, the largest first."""
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
