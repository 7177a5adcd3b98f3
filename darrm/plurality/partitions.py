"""Histograms of votes up to the names of classes: partitions, their groups of classes, and pairs of neighbors.

If classes are exchangeable, only the partition of a histogram of K votes matters: its counts in falling order. Classes
of a partition with equal counts form a *group*.

Two histograms are neighbors if at most t votes differ, for overlap t. Up to a common renaming of classes such a pair is
a partition n with the histogram n' aligned to it; classes with equal (n_c, n'_c) form a *term*. The reverse of a pair
is a pair, too.

**Open-set answers.** A histogram is a partition of K into the votes for strings; the answer is one of these strings or
none, because each of infinitely many strings without votes has probability 0. "No answer" replaces the classes without
votes, as a group of one. A string that only n holds is a term without a group in n'; one that only n' holds costs
nothing.

`Histograms` lists all histograms of named classes, to follow single votes.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import comb, factorial, prod

import numpy as np
from numpy.typing import NDArray

from darrm.numerics import Array
from darrm.priors import Prior
from darrm.problem import is_open
from darrm.util import checks

Histogram = tuple[int, ...]
Indices = NDArray[np.int64]

# limits for lists that take seconds and programs that take minutes
MOST_PARTITIONS, MOST_PAIRS, MOST_LISTED = 5_000, 30_000, 100
MOST_HISTOGRAMS = 200_000  # a second to list
SIZES = "C = 3 to K = 200, C = 4 to K = 60, C = 5 to K = 35 and C = 10 to K = 22 are solved at overlap 1"
OPEN_SIZES = "open answers of K = 24 voters are solved at overlap 1, of K = 16 at overlap 2, of K = 11 at overlap 3"
ABSENT = -1  # the group in n' of a string that only n holds
_MAX_KEY = 2**63
_SUM_TOLERANCE = 1e-6  # for the sum of a prior's probabilities: far above rounding
_ADVICE = f"take fewer voters, fewer classes, or a smaller overlap; {SIZES}"


@dataclass(frozen=True, eq=False)
class Pairs:
    """The terms of all pairs of neighbors, in order of the pairs; both directions are listed."""

    first: tuple[int, ...]  # for every pair, the number of the partition n
    second: tuple[Histogram, ...]  # the histogram n', aligned to n
    pair: Indices  # for every term, the number of its pair
    before: Indices  # the number of its group in n
    after: Indices  # and in n', or `ABSENT`
    classes: Indices  # the number of its classes

    @property
    def starts(self) -> Indices:
        return np.flatnonzero(np.diff(self.pair, prepend=-1))

    def sides(self, values: Array, absent: float = 0.0) -> tuple[Array, Array]:
        """Return the value of one class on both sides of every term; ``absent`` if n' has no such class."""
        return values[self.before], np.where(self.after == ABSENT, absent, values[self.after])


@dataclass(frozen=True)
class Partitions:
    """The partitions of K votes into C parts, zeros included, the largest first; made by `list_partitions`.

    >>> listed = list_partitions(3, 3)
    >>> listed.parts
    ((3, 0, 0), (2, 1, 0), (1, 1, 1))
    >>> listed.votes.tolist(), listed.sizes.tolist()
    ([3, 0, 2, 1, 0, 1], [1, 2, 1, 1, 1, 3])
    """

    K: int
    classes: int

    def __post_init__(self) -> None:
        checks.integer_at_least(1, K=self.K)
        checks.integer_at_least(2, most=MOST_LISTED, classes=self.classes, advice="all histograms are listed")
        count = number_of_partitions(self.K, self.classes)
        if count > MOST_PARTITIONS:
            name = f"partitions of {self.K} votes into {self.classes} classes"
            checks.fail(
                f"the number of {name}", checks.Text(f"{count:,} or more"), f"at most {MOST_PARTITIONS:,}", _ADVICE
            )

    @cached_property
    def parts(self) -> tuple[Histogram, ...]:
        return tuple(falling_counts(self.K, self.classes, self.K))

    @cached_property
    def places(self) -> dict[Histogram, int]:
        return {part: place for place, part in enumerate(self.parts)}

    @cached_property
    def groups(self) -> dict[tuple[int, int], int]:
        """The number of the group of classes by (partition, votes)."""
        keys = ((place, votes) for place, part in enumerate(self.parts) for votes in dict.fromkeys(part))
        return {key: number for number, key in enumerate(keys)}

    @cached_property
    def blocks(self) -> Indices:
        return np.array([place for place, _ in self.groups], dtype=np.int64)

    @cached_property
    def votes(self) -> Indices:
        """The votes of each class of a group."""
        return np.array([votes for _, votes in self.groups], dtype=np.int64)

    @cached_property
    def sizes(self) -> Indices:
        """The number of classes of a group."""
        return np.array([self.parts[place].count(votes) for place, votes in self.groups], dtype=np.int64)

    @cached_property
    def starts(self) -> Indices:
        """The first group of every partition: the classes with the most votes."""
        return np.flatnonzero(np.diff(self.blocks, prepend=-1))

    def find_places(self, counts: Indices) -> Indices:
        """Return the number of the partition of every histogram, (n, C) → (n,); `ValueError` for other histograms."""
        ordered = np.sort(counts, axis=1)[:, ::-1]
        if counts.shape[1:] != (self.classes,) or np.any(counts < 0) or np.any(counts.sum(axis=1) != self.K):
            checks.fail("votes", counts[:1].tolist(), f"{self.K} votes for {self.classes} classes")
        length = min(self.K, self.classes)  # later counts are 0
        base = [(self.K + 1) ** power for power in range(length - 1, -1, -1)]
        if base[0] * (self.K + 1) < _MAX_KEY:  # whole numbers in the order of the partitions, from the last on
            keys = np.array([part[:length] for part in reversed(self.parts)]) @ np.array(base)
            return np.asarray(keys.size - 1 - np.searchsorted(keys, ordered[:, :length] @ np.array(base)))
        rows, inverse = np.unique(ordered, axis=0, return_inverse=True)
        places = [self.places[tuple(row)] for row in rows.tolist()]
        return np.array(places, dtype=np.int64)[inverse.reshape(-1)]

    def find_groups(self, counts: Indices) -> Indices:
        """Return the number of the group of each class of each histogram, (n, C) → (n, C); errors as `find_places`."""
        places = self.find_places(counts)
        order = np.argsort(-counts, axis=1, kind="stable")
        is_lower = np.diff(np.take_along_axis(counts, order, axis=1), axis=1, prepend=counts.max(axis=1)[:, None]) < 0
        groups = np.empty_like(counts)
        np.put_along_axis(groups, order, self.starts[places][:, None] + np.cumsum(is_lower, axis=1), axis=1)
        return groups

    @property
    def advice(self) -> str:
        return _ADVICE

    @property
    def random_shares(self) -> list[Fraction]:
        """The probability of each group under random guessing."""
        return [Fraction(size, self.classes) for size in self.sizes.tolist()]

    @property
    def random(self) -> Array:
        """The probability of one class of each group under random guessing."""
        return np.asarray(np.array(self.random_shares, dtype=np.float64) / self.sizes)

    def _count_histograms(self, place: int) -> int:
        """Count the histograms of a partition, C!/Π_g m_g!."""
        counts = Counter(self.parts[place]).values()
        return factorial(self.classes) // prod(map(factorial, counts))

    def probabilities(self, prior: Prior) -> Array:
        """Compute the probability of every partition under a prior.

        `ValueError` if the prior only samples, or its probabilities do not add up to 1.
        """
        if not hasattr(prior, "log_probabilities"):
            checks.fail("prior", prior, "a Prior", "say Dirichlet(concentration)")
        histogram_law = np.exp(prior.log_probabilities(np.array(self.parts, dtype=np.int64)))
        arrangements = [self._count_histograms(place) for place in range(len(self.parts))]
        return check_law(histogram_law * np.array(arrangements, dtype=np.float64))

    def pairs(self, reached: int) -> Pairs:
        return _list_pairs(self, min(reached, self.K))

    def neighbors(self, place: int, reached: int) -> list[Histogram]:
        return neighbors(self.parts[place], reached)

    def terms(self, place: int, aligned: Histogram) -> list[tuple[int, int, int]]:
        """List the terms of a pair: the groups in n and n', the number of classes; `KeyError` for other pairs."""
        target = self.places[tuple(sorted(aligned, reverse=True))]
        sizes = Counter(zip(self.parts[place], aligned, strict=True))
        return [(self.groups[place, x], self.groups[target, y], count) for (x, y), count in sizes.items()]


class OpenPartitions(Partitions):
    """The partitions of K votes into the votes for each string; the 0 at the end belongs to no answer.

    >>> from darrm.problem import OPEN
    >>> listed = list_partitions(3, OPEN)
    >>> listed.parts
    ((3, 0), (2, 1, 0), (1, 1, 1, 0))
    >>> listed.votes.tolist(), listed.sizes.tolist()
    ([3, 0, 2, 1, 0, 1, 0], [1, 1, 1, 1, 1, 3, 1])
    """

    def __post_init__(self) -> None:
        checks.integer_at_least(1, K=self.K)
        count = number_of_partitions(self.K, self.K)
        if count > MOST_PARTITIONS:
            name, allowed = f"the number of partitions of {self.K} votes", f"at most {MOST_PARTITIONS:,}"
            checks.fail(name, checks.Text(f"{count:,} or more"), allowed, self.advice)

    @property
    def advice(self) -> str:
        return f"take fewer voters, or a smaller overlap; {OPEN_SIZES}"

    @cached_property
    def parts(self) -> tuple[Histogram, ...]:
        return tuple((*filter(None, part), 0) for part in falling_counts(self.K, self.K, self.K))

    @property
    def random_shares(self) -> list[Fraction]:
        return [Fraction(votes == 0) for votes in self.votes.tolist()]

    def find_places(self, counts: Indices) -> Indices:
        rows = (tuple(sorted(filter(None, row), reverse=True)) for row in counts.tolist())
        try:
            return np.array([self.places[*row, 0] for row in rows], dtype=np.int64)
        except KeyError as error:
            return checks.fail("votes", list(error.args[0][:-1]), f"{self.K} votes for strings")

    def find_groups(self, counts: Indices) -> Indices:
        """As for listed classes; no answer last: (n, S) → (n, S + 1)."""
        places, votes = self.find_places(counts).tolist(), np.pad(counts, ((0, 0), (0, 1))).tolist()
        return np.array([[self.groups[place, v] for v in row] for place, row in zip(places, votes, strict=True)])

    def probabilities(self, prior: Prior) -> Array:
        """Compute the probability of every partition under a prior; errors as for listed classes."""
        return check_law(np.exp(prior.log_of_partitions([part[:-1] for part in self.parts])))

    def neighbors(self, place: int, reached: int) -> list[Histogram]:
        return neighbors(self._pad_part(place, reached), reached, self.advice)

    def _pad_part(self, place: int, strings: int) -> Histogram:
        return self.parts[place][:-1] + (0,) * strings

    def terms(self, place: int, aligned: Histogram) -> list[tuple[int, int, int]]:
        padded_part = self._pad_part(place, len(aligned) + 1 - len(self.parts[place]))
        target = self.places[*sorted(filter(None, aligned), reverse=True), 0]
        sizes = Counter((x, y) for x, y in zip(padded_part, aligned, strict=True) if x)
        group = self.groups
        strings = [(group[place, x], group[target, y] if y else ABSENT, count) for (x, y), count in sizes.items()]
        return [*strings, (group[place, 0], group[target, 0], 1)]


@lru_cache(maxsize=16)
def list_partitions(K: int, classes: int) -> Partitions:
    return OpenPartitions(K, classes) if is_open(classes) else Partitions(K, classes)


def check_law(probabilities: Array) -> Array:
    """Return probabilities; `ValueError` unless they add up to 1."""
    total = float(np.sum(probabilities))
    if not abs(total - 1.0) <= _SUM_TOLERANCE:
        checks.fail("the sum of the prior's probabilities of histograms", total, "1")
    return np.asarray(probabilities)


def number_of_partitions(K: int, classes: int) -> int:
    """Count the partitions of K votes into at most C parts."""
    # equal to the number of partitions into parts of at most C; a part may repeat
    counts = [1] + [0] * K
    for size in range(1, min(classes, K) + 1):
        for total in range(size, K + 1):
            counts[total] += counts[total - size]
        if counts[K] > MOST_PARTITIONS:
            break  # it only grows
    return counts[K]


def falling_counts(K: int, classes: int, limit: int) -> Iterator[Histogram]:
    """Yield the partitions of K votes into C counts of at most ``limit``, zeros allowed, the largest first.

    >>> list(falling_counts(4, 2, 3))
    [(3, 1), (2, 2)]
    """
    if classes == 1 or K == 0:
        yield (K, *(0,) * (classes - 1))
        return
    for largest in range(min(K, limit), -(-K // classes) - 1, -1):
        for other_counts in falling_counts(K - largest, classes - 1, largest):
            yield (largest, *other_counts)


@lru_cache(maxsize=16)
def _list_pairs(partitions: Partitions, reached: int) -> Pairs:
    first, second = list[int](), list[Histogram]()
    terms = list[tuple[int, int, int, int]]()
    for place in range(len(partitions.parts)):
        for aligned in partitions.neighbors(place, reached):
            terms += [(len(first), *term) for term in partitions.terms(place, aligned)]
            first.append(place)
            second.append(aligned)
        if len(first) > MOST_PAIRS:
            checks.fail("the number of pairs of neighbors", len(first), f"at most {MOST_PAIRS:,}", partitions.advice)
    columns = np.array(terms, dtype=np.int64).T
    return Pairs(tuple(first), tuple(second), *columns)


def neighbors(part: Histogram, reached: int, advice: str = _ADVICE) -> list[Histogram]:
    """List the histograms that differ from a partition by at most ``reached`` votes, aligned to it, up to symmetry.

    Classes with equal counts in the partition may be exchanged: their aligned counts fall.

    >>> neighbors((2, 1, 0), 1)
    [(1, 2, 0), (1, 1, 1), (3, 0, 0), (2, 0, 1)]
    """
    histograms = {part: None}
    frontier = [part]
    for _ in range(reached):
        reachable = dict[Histogram, None]()
        for counts in frontier:
            kinds = list(zip(part, counts, strict=True))
            places = list(dict.fromkeys(kinds))
            for source in places:
                for target in places:
                    giver = kinds.index(source)
                    taker = kinds.index(target)
                    if source == target:
                        if kinds.count(source) < 2:
                            continue
                        taker = kinds.index(source, giver + 1)
                    if counts[giver]:
                        moved_counts = [*counts]
                        moved_counts[giver] -= 1
                        moved_counts[taker] += 1
                        reachable[_align(part, moved_counts)] = None
        frontier = [counts for counts in reachable if counts not in histograms]
        histograms |= dict.fromkeys(frontier)
        if len(histograms) > MOST_PAIRS:
            checks.fail("the number of neighbors of a histogram", len(histograms), f"at most {MOST_PAIRS:,}", advice)
    del histograms[part]
    return list(histograms)


def _align(part: Histogram, counts: list[int]) -> Histogram:
    ordered = sorted(zip(part, counts, strict=True), reverse=True)
    return tuple(count for _, count in ordered)


@dataclass(frozen=True)
class Histograms:
    """All histograms of K ≥ 0 votes for C classes, in falling order; made by `histograms_of`.

    >>> histograms_of(2, 2).counts.tolist(), histograms_of(1, 2).plus(0).tolist()
    ([[2, 0], [1, 1], [0, 2]], [0, 1])
    """

    K: int
    classes: int

    def __post_init__(self) -> None:
        count, name = self.number, f"histograms of {self.K} votes for {self.classes} classes"
        if count > MOST_HISTOGRAMS:
            advice = "take fewer voters or fewer classes"
            checks.fail(f"the number of {name}", count, f"at most {MOST_HISTOGRAMS:,}", advice)

    @property
    def number(self) -> int:
        return comb(self.K + self.classes - 1, self.classes - 1)

    @cached_property
    def counts(self) -> Indices:
        if self.classes == 1:
            return np.array([[self.K]])
        parts = []
        for first in range(self.K, -1, -1):
            others = Histograms(self.K - first, self.classes - 1).counts
            parts.append(np.column_stack([np.full(len(others), first), others]))
        return np.concatenate(parts)

    def find_places(self, counts: Indices) -> Indices:
        """Compute the numbers of histograms, (n, C) → (n,); larger first counts come first."""
        C = self.classes
        rows = ([comb(n + k - 1, k) if n else 0 for k in range(C)] for n in range(self.K + 1))
        table = np.array(list(rows))
        remaining = self.K - np.cumsum(counts, axis=1)
        num_later = np.arange(C - 1, 0, -1)
        return np.asarray(table[remaining[:, :-1], num_later].sum(axis=1))

    def plus(self, label: int) -> Indices:
        """Return the place of each histogram among those of K + 1 votes, with one more vote for a class."""
        return _find_places(self, label)


histograms_of = lru_cache(maxsize=256)(Histograms)


@lru_cache(maxsize=1024)
def _find_places(histograms: Histograms, label: int) -> Indices:
    counts = histograms.counts.copy()
    counts[:, label] += 1
    return histograms_of(histograms.K + 1, histograms.classes).find_places(counts)
