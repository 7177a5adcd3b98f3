"""Compute open-set answers from the definition: named strings and all votes, without symmetry."""

import math
from collections import Counter, defaultdict
from fractions import Fraction

import highspy

from darrm.plurality.plurality_law import ONE, PluralityLaw
from darrm.privacy import PrivacyParams
from darrm.problem import OPEN, Problem, Voters
from tests.noisy_max.oracles import Counts, histograms, neighbors


def open_problem(K: int, epsilon: str, delta: str, overlap: int = 1) -> Problem:
    return Problem(Voters(K, PrivacyParams("inf"), overlap=overlap), PrivacyParams(epsilon, delta), OPEN)


def compute_ewens(counts: Counts, theta: Fraction) -> Fraction:
    """Compute the probability of table sizes in the Chinese restaurant process."""
    law: dict[Counts, Fraction] = {(): Fraction(1)}
    for num_seated in range(sum(counts)):
        next_law = defaultdict[Counts, Fraction](Fraction)
        for sizes, probability in law.items():
            weights: list[int | Fraction] = [*sizes, theta]  # the last table is new
            for table, weight in enumerate(weights):
                next_sizes = [size + (place == table) for place, size in enumerate((*sizes, 0))]
                shape = tuple(sorted(filter(None, next_sizes), reverse=True))
                next_law[shape] += probability * weight / (theta + num_seated)
        law = next_law
    return law[counts]


def list_neighbors(counts: Counts, overlap: int) -> set[Counts]:
    """List the counts that ``overlap`` changed votes can produce."""
    reached = {counts}
    for _ in range(overlap):
        reached |= {moved for row in reached for moved in neighbors(row)}
    return reached - {counts}


def list_probabilities(law: PluralityLaw, counts: Counts) -> list[Fraction]:
    """List the exact probability of each string, and of no answer last."""
    partitions = law.partitions
    place = partitions.places[*sorted(filter(None, counts), reverse=True), 0]

    def compute_probability(votes: int) -> Fraction:
        group = partitions.groups[place, votes]
        return Fraction(int(law.weights[group]), ONE * int(partitions.sizes[group]))

    return [compute_probability(votes) if votes else Fraction(0) for votes in counts] + [compute_probability(0)]


def find_largest_difference(law: PluralityLaw, ratio: Fraction, overlap: int) -> Fraction:
    """Compute the largest Pr[S] − ratio·Pr'[S] over all neighbors on enough strings."""
    laws = {counts: list_probabilities(law, counts) for counts in histograms(law.K, law.K + overlap)}
    assert all(sum(probabilities) == 1 for probabilities in laws.values())
    return max(
        sum((max(Fraction(0), p - ratio * q) for p, q in zip(laws[counts], laws[other], strict=True)), Fraction(0))
        for counts in laws
        for other in list_neighbors(counts, overlap)
    )


def find_optimum(K: int, epsilon: float, delta: float, theta: Fraction, overlap: int) -> float:
    """Solve for the probabilities of all strings and of no answer on all data sets."""
    data_sets = histograms(K, K + overlap)
    shapes = {counts: tuple(sorted(filter(None, counts), reverse=True)) for counts in data_sets}
    multiplicity = Counter(shapes.values())
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    variables, gains = {}, []
    for counts in data_sets:
        strings = [highs.addVariable(0.0, 1.0 if votes else 0.0) for votes in counts]
        variables[counts] = [*strings, highs.addVariable(0.0, 1.0)]
        highs.addConstr(highs.qsum(variables[counts]) == 1.0)
        weight = float(compute_ewens(shapes[counts], theta)) / multiplicity[shapes[counts]]
        gains += [weight * x for x, votes in zip(strings, counts, strict=True) if votes == max(counts)]
    for counts in data_sets:
        for other in list_neighbors(counts, overlap):
            slacks = [highs.addVariable(0.0, 1.0) for _ in variables[counts]]
            for x, y, slack in zip(variables[counts], variables[other], slacks, strict=True):
                highs.addConstr(x - math.exp(epsilon) * y - slack <= 0.0)
            highs.addConstr(highs.qsum(slacks) <= delta)
    highs.maximize(highs.qsum(gains))
    return float(highs.getInfo().objective_function_value)
