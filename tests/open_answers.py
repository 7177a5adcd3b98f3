"""Compute open-set answers from the definition: named strings and all votes, without symmetry."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction

import highspy

from darrm.plurality.plurality_law import ONE, PluralityLaw
from darrm.privacy import PrivacyParams
from darrm.problem import OPEN, Problem, Voters

Answers = dict[str, int]  # the votes for each string


def problem_of(K: int, epsilon: str, delta: str, overlap: int = 1) -> Problem:
    return Problem(Voters(K, PrivacyParams("inf"), overlap=overlap), PrivacyParams(epsilon, delta), OPEN)


def compute_ewens(counts: tuple[int, ...], theta: Fraction) -> Fraction:
    """Compute the probability of table sizes in the Chinese restaurant process."""
    law: dict[tuple[int, ...], Fraction] = {(): Fraction(1)}
    for num_seated in range(sum(counts)):
        next_law = defaultdict[tuple[int, ...], Fraction](Fraction)
        for sizes, probability in law.items():
            for table in range(len(sizes) + 1):  # the last one is new
                others = sizes[:table] + sizes[table + 1 :]
                size, weight = (sizes[table], Fraction(sizes[table])) if table < len(sizes) else (0, theta)
                next_sizes = tuple(sorted((*others, size + 1), reverse=True))
                next_law[next_sizes] += probability * weight / (theta + num_seated)
        law = next_law
    return law[counts]


def list_data_sets(K: int, strings: str) -> Iterator[tuple[int, ...]]:
    yield from (n for n in itertools.product(range(K + 1), repeat=len(strings)) if sum(n) == K)


def neighbors_of(counts: tuple[int, ...], overlap: int) -> set[tuple[int, ...]]:
    """List the counts that ``overlap`` changed votes can produce."""
    neighbors = {counts}
    for _ in range(overlap):
        for n in neighbors.copy():
            for a, b in itertools.permutations(range(len(n)), 2):
                if n[a]:
                    neighbors.add(tuple(v - (c == a) + (c == b) for c, v in enumerate(n)))
    return neighbors - {counts}


def law_of(law: PluralityLaw, counts: tuple[int, ...]) -> list[Fraction]:
    partitions = law.partitions
    place = partitions.places[*sorted(filter(None, counts), reverse=True), 0]

    def probability_of(votes: int) -> Fraction:
        group = partitions.groups[place, votes]
        return Fraction(int(law.weights[group]), ONE * int(partitions.sizes[group]))

    return [probability_of(votes) if votes else Fraction(0) for votes in counts] + [probability_of(0)]


def find_largest_difference(law: PluralityLaw, ratio: Fraction, overlap: int) -> Fraction:
    """Compute the largest Pr[S] − ratio·Pr'[S] over all neighbors on enough strings."""
    strings = "abcdefghij"[: law.K + overlap]
    worst = Fraction(0)
    for counts in list_data_sets(law.K, strings):
        probabilities = law_of(law, counts)
        assert sum(probabilities) == 1
        for other in neighbors_of(counts, overlap):
            other_probabilities = law_of(law, other)
            worst = max(
                worst,
                sum(
                    (max(Fraction(0), p - ratio * q) for p, q in zip(probabilities, other_probabilities, strict=True)),
                    Fraction(0),
                ),
            )
    return worst


def find_optimum(K: int, epsilon: float, delta: float, theta: Fraction, overlap: int) -> float:
    """Solve for the probabilities of all strings and of no answer on all data sets."""
    strings = "abcdefghij"[: K + overlap]
    all_counts = list(list_data_sets(K, strings))
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    variables = {
        n: [highs.addVariable(0.0, 1.0 if votes else 0.0) for votes in n] + [highs.addVariable(0.0, 1.0)]
        for n in all_counts
    }
    for row in variables.values():
        highs.addConstr(sum(row[1:], row[0]) == 1.0)
    for n in all_counts:
        for other in neighbors_of(n, overlap):
            slacks = [highs.addVariable(0.0, 1.0) for _ in variables[n]]
            for x, y, slack in zip(variables[n], variables[other], slacks, strict=True):
                highs.addConstr(x - math.exp(epsilon) * y - slack <= 0.0)
            highs.addConstr(sum(slacks[1:], slacks[0]) <= delta)
    shapes = Counter(tuple(sorted(filter(None, n), reverse=True)) for n in all_counts)
    gains = [
        float(compute_ewens(shape, theta)) / shapes[shape] * variables[n][c]
        for n in all_counts
        for shape in [tuple(sorted(filter(None, n), reverse=True))]
        for c, votes in enumerate(n)
        if votes == max(n)
    ]
    highs.maximize(sum(gains[1:], gains[0]))
    return float(highs.getInfo().objective_function_value)
