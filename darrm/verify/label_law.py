"""Compute the probability of every label from the numbers of a file, without the code that draws labels.

With U uniform in [0, 1], which is how early a class comes or who wins a tie, a class of n votes is answered with
probability

    Σ_v f(v − n)·E[Π (F(v − 1 − n_j) + U·f(v − n_j))]    or    e^{−r·lag}·E[Π (1 − U·e^{−r·lag_j})],

products over the other classes: by noise of mass f and distribution function F on every count, and by permute and flip.
Both are polynomials of U, which Gauss's rule integrates without error. Of noise, v are left out where Π F(v − n_j) or
the mass beyond is below e^{−50}, and n nodes are enough where (n!)⁴/((2n + 1)·(2n)!³)·s^{2n} times the product at U = 1
is next to nothing, s = Σ f(v − n_j)/F(v − 1 − n_j): its derivative of order 2n is at most s^{2n} times as large. The
exponential mechanism and tables list their laws. For private voters, labels are averaged over all possible votes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from darrm.aggregator import Released
from darrm.noisy_max.mechanisms import NoisyMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip
from darrm.numerics import Array
from darrm.numerics.integer_noise import IntegerNoise
from darrm.pate.tested import TestedRun
from darrm.plurality.partitions import histograms_of
from darrm.plurality.plurality_law import ONE, PluralityLaw
from darrm.problem import is_law_a_gamma, is_open
from darrm.table.release import Release

_MOST_CLASSES = 1_000
_MOST_TERMS, _MOST_VOTES = 2**23, 2**21  # of a sum: a quarter of a second; different votes: seconds
_LEAST_LOG_WEIGHT = -50.0  # of noise that counts
_NODES, _LEAST_ERROR = (8, 16, 32, 64), 1e-16  # of Gauss's rule, and of all that it may be off by

Histogram = NDArray[np.int64]  # (C,); several are (n, C)
_OfVotes = Callable[[Histogram, Histogram], Array]  # different numbers of votes, how many classes have each → one's law
Law = Callable[[Histogram], Array]  # votes to the probability of every label: (n, C) → (n, C)


_nodes = lru_cache(maxsize=8)(np.polynomial.legendre.leggauss)


class TooLongError(ValueError):
    """The law of the labels has too many terms."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Two neighboring votes: groups of voters with the same law of a vote.

    If voters resample examples per query, the first side includes the person with probability ``rate``, and the second
    side never does.
    """

    sizes: Histogram  # (G,)
    sides: Array  # (2, G, C)
    rate: float = 1.0

    def labels(self, law: Law) -> Array:
        """Compute the probability of every label on both sides, (2, C), over all votes."""
        drawn, other = (chances @ law(votes) for votes, chances in map(self._votes, self.sides))
        return np.array([self.rate * drawn + (1.0 - self.rate) * other, other])

    def _votes(self, side: Array) -> tuple[Histogram, Array]:
        votes, chances = np.zeros((1, side.shape[1]), dtype=np.int64), np.ones(1)
        for n, each in zip(self.sizes.tolist(), side, strict=True):
            said = np.flatnonzero(each)
            if len(votes) * math.comb(n + said.size - 1, n) > _MOST_VOTES:
                raise TooLongError("private voters may vote in too many ways to be summed")
            own = np.zeros((math.comb(n + said.size - 1, n), side.shape[1]), dtype=np.int64)
            own[:, said] = histograms_of(n, said.size).counts
            logs = gammaln(n + 1.0) - np.sum(gammaln(own + 1.0), axis=1) + own[:, said] @ np.log(each[said])
            sums = (votes[:, None] + own).reshape(-1, side.shape[1])
            votes, place = np.unique(sums, axis=0, return_inverse=True)
            chances = np.asarray(np.bincount(place.ravel(), np.outer(chances, np.exp(logs)).ravel()), dtype=np.float64)
        return votes, chances


def open_law_of(aggregator: Released) -> Law:
    """Return the law of an open answer as a function of the votes for each string, zeros for none: (n, S) → (n, S).

    >>> from darrm import PrivacyParams, Voters
    >>> from darrm.noisy_max.mechanisms import GNMax
    >>> aggregator = NoisyMaximum(GNMax(2.0), Voters(5, PrivacyParams("inf"), 1), "open", threshold=4)
    >>> open_law_of(aggregator)(np.array([[4, 1, 0]])).round(4)
    array([[0.5802, 0.0608, 0.    ]])
    """
    match aggregator:
        case NoisyMaximum(mechanism=NoisyMax(law=noise), threshold=threshold):
            of_votes = _of_noise(noise, threshold)
        case _:
            raise TooLongError("the share of open answers of a table is computed with the table")

    def of_row(row: Histogram) -> Array:
        own, said = np.zeros(row.size), row > 0
        votes, place, strings = np.unique(row[said], return_inverse=True, return_counts=True)
        own[said] = of_votes(votes, strings)[place.ravel()] if votes.size else 0.0
        return own

    return lambda rows: np.array([of_row(row) for row in rows])


def law_of(aggregator: Released) -> Law:
    """Return the law of the label as a function of the votes; `TooLongError` there, or here, if it takes too long.

    >>> from darrm import PrivacyParams, Voters
    >>> from darrm.noisy_max.mechanisms import GNMax
    >>> from darrm.noisy_max.noisy_maximum import NoisyMaximum
    >>> aggregator = NoisyMaximum(GNMax(2.0), Voters(5, PrivacyParams("inf"), 1), classes=3)
    >>> law_of(aggregator)(np.array([[3, 1, 1]])).round(4)
    array([[0.6307, 0.1847, 0.1847]])
    """
    if isinstance(aggregator, TestedRun):
        raise TooLongError("whether a label leaves depends on all votes of the run")
    if is_open(aggregator.classes):
        raise TooLongError("open answers have no classes to be summed over")
    if aggregator.classes > _MOST_CLASSES:
        raise TooLongError(f"labels of more than {_MOST_CLASSES:,} classes are not summed")
    if isinstance(aggregator, Release):
        if is_law_a_gamma(aggregator.classes):
            return aggregator.table.gamma.probabilities
        of_votes = _of_weights(aggregator.table.plurality)
    elif isinstance(aggregator.mechanism, NoisyMax):
        of_votes = _of_noise(aggregator.mechanism.law)
    else:
        of_votes = _of_selection(aggregator.mechanism)

    def of_row(row: Histogram) -> Array:
        votes, place, classes = np.unique(row, return_inverse=True, return_counts=True)
        return of_votes(votes, classes)[place.ravel()]

    return lambda rows: np.array([of_row(row) for row in rows])


def _of_weights(law: PluralityLaw) -> _OfVotes:
    stored = dict(zip(law.partitions.parts, law.to_json(), strict=True))

    def of_votes(votes: Histogram, classes: Histogram) -> Array:
        falling = tuple(np.repeat(votes, classes)[::-1].tolist())
        return np.asarray(np.array(stored[falling][::-1]) / (classes * float(ONE)))

    return of_votes


def _of_noise(noise: IntegerNoise, threshold: int | None = None) -> _OfVotes:
    reach = 1
    while np.max(noise.log_weights(np.array([-reach, reach]))) > _LEAST_LOG_WEIGHT:
        reach *= 2
        if reach > _MOST_TERMS:
            raise TooLongError("the noise is too wide to be summed")
    weights = np.exp(noise.log_weights(np.arange(-reach, reach + 1)))
    masses = np.append(weights / np.sum(weights), 0.0)
    below = np.append(0.0, np.cumsum(masses[:-1]))
    with np.errstate(divide="ignore"):
        logs = np.log(np.append(below[1:], 1.0))  # of F
    last = int(np.searchsorted(below, -math.expm1(_LEAST_LOG_WEIGHT)))

    def of_votes(votes: Histogram, classes: Histogram) -> Array:
        # the winning noisy count is at least the least one of the leader, and no noisy count exceeds it
        lags, others = votes[-1] - votes, max(1, int(classes.sum()) - 1)
        first = int(np.searchsorted(logs, _LEAST_LOG_WEIGHT / others)) - int(lags[0])
        first = max(first, -1 if threshold is None else threshold + reach - int(votes[-1]))
        if first > last:
            return np.zeros(votes.size)
        places = np.minimum(np.arange(max(0, first), last + 1) + lags[:, None], 2 * reach + 1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            s = classes @ np.nan_to_num(masses[places] / below[places], nan=0.0)
            product = np.nan_to_num(np.exp(classes @ logs[places] - logs[places[-1]]), nan=0.0)  # without the leader
        return _of_first(below[places], masses[places], classes, _enough_nodes(s, product))

    return of_votes


def _enough_nodes(s: Array, product: Array) -> int:
    """Count the nodes that are enough for all products, see the module; the most nodes if s is large."""
    for n in _NODES:
        constant = 4.0 * math.lgamma(n + 1) - math.log(2 * n + 1) - 3.0 * math.lgamma(2 * n + 1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if np.sum(product * np.exp(constant + 2.0 * n * np.log(s))) < _LEAST_ERROR:
                return n
    return _MOST_CLASSES


def _of_selection(mechanism: ExponentialMechanism | PermuteAndFlip) -> _OfVotes:
    rate = mechanism.epsilon / (2 * mechanism.reached)

    def of_votes(votes: Histogram, classes: Histogram) -> Array:
        heads = np.exp(rate * (votes - votes[-1]))
        if isinstance(mechanism, ExponentialMechanism):
            return np.asarray(heads / (heads @ classes))
        return -_of_first(np.ones((heads.size, 1)), -heads[:, None], classes)

    return of_votes


def _of_first(starts: Array, slopes: Array, classes: Histogram, enough: int = _MOST_CLASSES) -> Array:
    """Sum b_k·∫₀¹ Π (a_j + u·b_j)^{m_j − (j = k)} du over the columns of a and b: (n, columns) and (n,) → (n,)."""
    size = min(enough, -(-int(classes.sum()) // 2))
    if starts.size * size > _MOST_TERMS:
        raise TooLongError("the noise is too wide, or the classes too many, to be summed")
    result = np.zeros(classes.size)
    for node, weight in zip(*_nodes(size), strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(starts + (node + 1.0) / 2.0 * slopes)
            others = np.exp(classes @ logs - logs)
        result += weight / 2.0 * np.sum(np.where(slopes != 0.0, slopes * others, 0.0), axis=1)
    return result
