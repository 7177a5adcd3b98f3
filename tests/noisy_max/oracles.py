"""Slow, obviously right laws of labels, and their divergences."""

import math
from collections.abc import Mapping
from itertools import permutations, product

import numpy as np

from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip
from darrm.numerics import Array
from darrm.numerics.integer_noise import IntegerNoise

ORDERS = np.array([1.25, 2.0, 4.0, 8.0, 20.0])
REACH = 90  # votes; beyond, the weights of the noises of these tests are below e^-27 of the largest
Counts = tuple[int, ...]


def histograms(K: int, C: int) -> list[Counts]:
    """All counts of K votes on C classes."""
    return [counts for counts in product(range(K + 1), repeat=C) if sum(counts) == K]


def neighbors(counts: Counts) -> list[Counts]:
    """All counts after one vote moved."""
    step = np.eye(len(counts), dtype=np.int64)
    moves = permutations(range(len(counts)), 2)
    return [tuple((np.array(counts) - step[a] + step[b]).tolist()) for a, b in moves if counts[a]]


def law_of(noise: IntegerNoise, reach: int = REACH) -> tuple[np.ndarray, Array]:
    """The whole numbers within the reach, and the log-probabilities of the noise."""
    points = np.arange(-reach, reach + 1)
    logs = noise.log_weights(points)
    return points, np.asarray(logs - np.logaddexp.reduce(logs))


def wide_law_of(noise: IntegerNoise) -> tuple[np.ndarray, Array]:
    """Return the law up to forty deviations, for tails that a test compares."""
    return law_of(noise, math.ceil(40.0 * noise.deviation) + 30)


def divergences(p: Array, q: Array, orders: Array = ORDERS) -> Array:
    """D_α at each order; impossible outcomes of p add nothing."""
    seen = p > 0.0
    with np.errstate(divide="ignore"):
        logs = orders[:, None] * np.log(p[seen]) - (orders[:, None] - 1.0) * np.log(q[seen])
    return np.asarray(np.logaddexp.reduce(logs, axis=1) / (orders - 1.0))


def worst_divergence(
    laws: Mapping[Counts, Array], counts: Counts, order: float, *, forward_only: bool = False
) -> float:
    """The largest D_α to a neighbor, and from one, over the outcomes whose probabilities are floats."""
    worst, here = 0.0, laws[counts]
    for there in (laws[moved] for moved in neighbors(counts)):
        seen = (here > 0.0) & (there > 0.0)
        for p, q in ((here[seen], there[seen]), (there[seen], here[seen]))[: 1 if forward_only else 2]:
            worst = max(worst, float(divergences(p, q, np.array([order]))[0]))
    return worst


def hockey_stick(p: Array, q: Array, epsilon: float) -> float:
    """The largest p(S) − e^ε·q(S)."""
    return float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0.0)))


def label_laws(noise: IntegerNoise, counts: Counts, *, fair: bool, reach: int = REACH) -> Array:
    """Pr[label] by sums over the winner's noisy count: ties to the lowest class, or shared evenly."""
    support, logs = law_of(noise, reach)
    masses = np.exp(logs)
    tops = np.arange(-reach, reach + 1 + max(counts))
    at = np.array([np.interp(tops - n, support, masses, left=0.0, right=0.0) for n in counts])
    below = np.array([np.interp(tops - n - 1, support, np.cumsum(masses), left=0.0, right=1.0) for n in counts])
    shares, weights = np.polynomial.legendre.leggauss(4)  # a tie with r others is won with probability ∫ s^r ds
    laws = []
    for c in range(len(counts)):
        others = [k for k in range(len(counts)) if k != c]
        if fair:
            win = sum(
                w / 2 * np.prod([below[k] + (s + 1) / 2 * at[k] for k in others], axis=0)
                for s, w in zip(shares, weights, strict=True)
            )
        else:
            win = np.prod([below[k] + (at[k] if k > c else 0.0) for k in others], axis=0)
        laws.append(np.sum(at[c] * win))
    return np.array(laws)


def three_outcomes(noise: IntegerNoise, x: int, y: int) -> Array:
    """Pr[a, b, other] by the joint law of both counts, where ties go to the others, then to b."""
    support, logs = law_of(noise)
    joint = np.exp(np.add.outer(logs, logs))
    a, b = np.meshgrid(support + x, support + y, indexing="ij")
    wins = (a > 0) & (a > b), (b > 0) & (b >= a), (a <= 0) & (b <= 0)
    return np.array([joint[outcome].sum() for outcome in wins])


def selection_law(mechanism: ExponentialMechanism | PermuteAndFlip, counts: Counts | list[int]) -> Array:
    """The law of a selection by its definition: weights, or every order of the classes."""
    votes = np.array(counts, dtype=np.float64)
    heads = np.exp((votes - votes.max()) * float(mechanism.epsilon) / (2 * mechanism.reached))
    if isinstance(mechanism, ExponentialMechanism):
        return np.asarray(heads / heads.sum())
    law = np.zeros(votes.size)
    for order in permutations(range(votes.size)):
        left = 1.0 / math.factorial(votes.size)
        for c in order:
            law[c] += left * heads[c]
            left *= 1.0 - heads[c]
    return law
