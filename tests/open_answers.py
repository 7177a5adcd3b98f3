"""Open answers by definition: named strings, every vote of every voter, no symmetry."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction

import highspy

from darrm.plurality.plurality_law import ONE, PluralityLaw
from darrm.privacy import PrivacyParams
from darrm.problem import OPEN, Problem, Voters

Answers = dict[str, int]  # the votes for each string that was said


def problem_of(K: int, epsilon: str, delta: str, overlap: int = 1) -> Problem:
    return Problem(Voters(K, PrivacyParams("inf"), overlap=overlap), PrivacyParams(epsilon, delta), OPEN)


def ewens(counts: tuple[int, ...], theta: Fraction) -> Fraction:
    """Seat voters one by one, Chinese restaurant: the probability of the sizes of the tables."""
    law: dict[tuple[int, ...], Fraction] = {(): Fraction(1)}
    for seated in range(sum(counts)):
        grown = defaultdict[tuple[int, ...], Fraction](Fraction)
        for sizes, probability in law.items():
            for table in range(len(sizes) + 1):  # the last one is new
                others = sizes[:table] + sizes[table + 1 :]
                size, weight = (sizes[table], Fraction(sizes[table])) if table < len(sizes) else (0, theta)
                after = tuple(sorted((*others, size + 1), reverse=True))
                grown[after] += probability * weight / (theta + seated)
        law = grown
    return law[counts]


def data_sets(K: int, strings: str) -> Iterator[tuple[int, ...]]:
    yield from (n for n in itertools.product(range(K + 1), repeat=len(strings)) if sum(n) == K)


def neighbors_of(counts: tuple[int, ...], reached: int) -> set[tuple[int, ...]]:
    """List what so many changed votes make of the votes for some strings."""
    reachable = {counts}
    for _ in range(reached):
        for n in reachable.copy():
            for a, b in itertools.permutations(range(len(n)), 2):
                if n[a]:
                    reachable.add(tuple(v - (c == a) + (c == b) for c, v in enumerate(n)))
    return reachable - {counts}


def law_of(law: PluralityLaw, counts: tuple[int, ...]) -> list[Fraction]:
    partitions = law.partitions
    place = partitions.places[*sorted(filter(None, counts), reverse=True), 0]

    def of(votes: int) -> Fraction:
        group = partitions.groups[place, votes]
        return Fraction(int(law.weights[group]), ONE * int(partitions.sizes[group]))

    return [of(votes) if votes else Fraction(0) for votes in counts] + [of(0)]


def largest_difference(law: PluralityLaw, ratio: Fraction, reached: int) -> Fraction:
    """Compute the largest Pr[S] − ratio·Pr'[S] over all pairs of data sets on enough strings."""
    strings = "abcdefghij"[: law.K + reached]
    worst = Fraction(0)
    for counts in data_sets(law.K, strings):
        own = law_of(law, counts)
        assert sum(own) == 1
        for other in neighbors_of(counts, reached):
            theirs = law_of(law, other)
            worst = max(
                worst, sum((max(Fraction(0), p - ratio * q) for p, q in zip(own, theirs, strict=True)), Fraction(0))
            )
    return worst


def optimum(K: int, epsilon: float, delta: float, theta: Fraction, reached: int) -> float:
    """Solve for a probability of every string and no answer on every data set, with a slack for each of each pair."""
    strings = "abcdefghij"[: K + reached]
    all_counts = list(data_sets(K, strings))
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    h = {
        n: [highs.addVariable(0.0, 1.0 if votes else 0.0) for votes in n] + [highs.addVariable(0.0, 1.0)]
        for n in all_counts
    }
    for row in h.values():
        highs.addConstr(sum(row[1:], row[0]) == 1.0)
    for n in all_counts:
        for other in neighbors_of(n, reached):
            slacks = [highs.addVariable(0.0, 1.0) for _ in h[n]]
            for x, y, slack in zip(h[n], h[other], slacks, strict=True):
                highs.addConstr(x - math.exp(epsilon) * y - slack <= 0.0)
            highs.addConstr(sum(slacks[1:], slacks[0]) <= delta)
    shapes = Counter(tuple(sorted(filter(None, n), reverse=True)) for n in all_counts)
    gains = [
        float(ewens(shape, theta)) / shapes[shape] * h[n][c]
        for n in all_counts
        for shape in [tuple(sorted(filter(None, n), reverse=True))]
        for c, votes in enumerate(n)
        if votes == max(n)
    ]
    highs.maximize(sum(gains[1:], gains[0]))
    return float(highs.getInfo().objective_function_value)
