"""Private voters of any number of classes by brute force: their corners, the laws of histograms, and random laws."""

from functools import cache
from itertools import combinations, product
from math import exp

import numpy as np
from scipy.optimize import linprog

from darrm import PrivacyParams, Problem, Voters
from darrm.numerics import Array
from darrm.plurality.partitions import histograms_of, list_partitions
from darrm.plurality.plurality_law import PluralityLaw

Corner = tuple[Array, Array]


def list_corners(each: PrivacyParams, classes: int) -> list[Corner]:
    """List all corners (a, b, u, v) of theorem 1."""
    hi = exp(each.epsilon) / (1.0 + exp(each.epsilon)) if each.is_private else 1.0
    unit, delta = np.eye(classes), each.delta
    corners = {}
    for a, b, u, v in product(range(classes), repeat=4):
        p = (1 - delta) * (hi * unit[a] + (1 - hi) * unit[b]) + delta * unit[u]
        q = (1 - delta) * ((1 - hi) * unit[a] + hi * unit[b]) + delta * unit[v]
        corners[(*p.round(12), *q.round(12))] = (p, q)
    return list(corners.values())


def add_voter(laws: Array, vote: Array) -> Array:
    """Add a voter to laws of histograms, (n, cells) with cells of C digits to the base K + 1; ``vote`` is (C,)."""
    classes = vote.shape[-1]
    base = round(laws.shape[-1] ** (1.0 / classes))
    grown = np.zeros_like(laws)
    for label in range(classes):
        step = base ** (classes - 1 - label)
        grown[:, step:] += vote[label] * laws[:, :-step]
    return grown


@cache
def pairs_of_laws(voters: Voters, classes: int) -> tuple[Array, Array]:
    """Compute the laws of the histogram on both sides for every multiset of corners with at most t changed voters."""
    before = after = np.eye(1, (voters.K + 1) ** classes)
    num_changed = np.zeros(1, dtype=int)
    for count, each in voters.groups:
        corners = list_corners(each, classes)
        changes = [not np.allclose(p, q) for p, q in corners]
        last = np.zeros(len(num_changed), dtype=int)  # a multiset is a row that never goes back
        for _ in range(count):
            rows = [
                np.flatnonzero((last <= index) & (num_changed + change <= voters.reached))
                for index, change in enumerate(changes)
            ]
            before, after = (
                np.concatenate([add_voter(laws[row], corner[side]) for row, corner in zip(rows, corners, strict=True)])
                for side, laws in enumerate((before, after))
            )
            num_changed = np.concatenate([num_changed[row] + change for row, change in zip(rows, changes, strict=True)])
            last = np.repeat(np.arange(len(corners)), [len(row) for row in rows])
    cells = histograms_of(voters.K, classes).counts @ (voters.K + 1) ** np.arange(classes)[::-1]
    return before[:, cells], after[:, cells]


def worst_by_hand(voters: Voters, law: PluralityLaw, ratio: float) -> float:
    answers = law.probabilities(histograms_of(law.K, law.classes).counts)
    p, q = pairs_of_laws(voters, law.classes)
    return float(np.maximum(0.0, p @ answers - ratio * (q @ answers)).sum(axis=1).max())


def optimum_by_hand(problem: Problem, weights: Array) -> float:
    """Compute the largest accuracy with every row written down for every set of answers."""
    K, C = problem.voters.K, problem.classes
    partitions, counts = list_partitions(K, C), histograms_of(K, C).counts
    groups, size = partitions.find_groups(counts), partitions.sizes.size
    ratio, rows = exp(problem.target.epsilon), []
    for p, q in zip(*pairs_of_laws(problem.voters, C), strict=True):
        for number in range(1, C) if problem.target.delta else [1]:
            rows += [
                sum(np.bincount(groups[:, c], p - ratio * q, minlength=size) for c in answers)
                for answers in combinations(range(C), number)
            ]
    gains = np.zeros(size)
    gains[partitions.starts] = weights * partitions.sizes[partitions.starts]
    equal = np.zeros((len(partitions.parts), size))
    equal[partitions.blocks, np.arange(size)] = partitions.sizes
    matrix = np.unique(np.array(rows).round(13), axis=0)
    solution = linprog(-gains, matrix, np.full(len(matrix), problem.target.delta), equal, np.ones(len(equal)))
    return float(-solution.fun)


def any_law(voters: Voters, classes: int, seed: int, *, falls: bool) -> PluralityLaw:
    """Draw a random law, in which more votes never harm a class unless it falls."""
    rng, partitions = np.random.default_rng(seed), list_partitions(voters.K, classes)
    each = np.exp(rng.normal() * partitions.votes) if falls else np.exp(abs(rng.normal()) * partitions.votes)
    if falls:
        each = each * rng.random(partitions.sizes.size)
    each /= np.add.reduceat(each * partitions.sizes, partitions.starts)[partitions.blocks]
    return PluralityLaw.from_probabilities(voters.K, classes, each)


def worst_in_turn(voters: Voters, answers: int, law: PluralityLaw, ratio: float) -> float:
    """Compute the worst of voters in turn, with memory of the order of votes and of both probabilities, for Δ = 0."""
    hi, histograms = exp(voters.each.epsilon) / (1.0 + exp(voters.each.epsilon)), histograms_of(voters.K, law.classes)
    sums = law.probabilities(histograms.counts)[:, :answers].sum(axis=1)
    values = dict(zip(map(tuple, histograms.counts.tolist()), sums.tolist(), strict=True))

    def find_worst(counts: tuple[int, ...], p: float, q: float) -> float:
        if sum(counts) == voters.K:
            return (p - ratio * q) * values[counts]
        grown = [tuple(n + (c == label) for c, n in enumerate(counts)) for label in range(law.classes)]
        return max(
            find_worst(grown[a], hi * p, (1 - hi) * q) + find_worst(grown[b], (1 - hi) * p, hi * q)
            if a != b
            else find_worst(grown[a], p, q)
            for a, b in product(range(law.classes), repeat=2)
        )

    return find_worst((0,) * law.classes, 1.0, 1.0)
