"""Pr[label = c | counts] for many histograms at once, for planning, and a search for the best asymmetric noise.

This is the law of `noise_law` with few nodes, and approximate for wide noise; `cost_given_votes` bounds the same
integral. Of two classes the one that is M votes behind wins with ½(Pr[D ≥ M] + Pr[D ≥ M + 1]), where D is the
difference of the noises.

`best_shape` climbs over shapes (p, ℓ/s, q), from the Gaussian one (2, 1, 2) to one that is best among its neighbors, on
histograms drawn with a public seed. It uses estimates of the divergence, but certifies the final scale. The gain grows
with classes and noise: 5,000 voters on 150 classes rise from an accuracy of a seventh to a quarter, 250 voters on ten
classes by 1.8 points, two and three classes by half a point.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from darrm.errors import PlanError
from darrm.loss.renyi import DEFAULT_ORDERS
from darrm.noisy_max.label_cost import label_curve, label_estimate
from darrm.noisy_max.noise_law import Integers, find_reach, unit_rule
from darrm.numerics import Array
from darrm.numerics.integer_noise import POWERS, AsymmetricNoise, IntegerNoise
from darrm.priors import Dirichlet, Prior, checked
from darrm.util import checks

_CUT = 40.0  # −log of a weight relative to the likeliest point: the rest has probability 1e-15
_EIGHT_NODES_BELOW = 8.0  # votes of deviation
_TWO_NODES_BELOW = 32.0  # votes of deviation: two nodes to a vote, and from here on 32 nodes to a deviation
_CELLS = 1024.0  # to a deviation, at most: wider noise is constant on each of them
_FINE_CELLS = 32768.0  # the same for two classes: they change a probability by less than 1e-9
_FEW_LAGS = 25  # different lags to a class: below, one product of matrices is faster than a sum over classes
_FEW_LAGS_OF_ONE = 10  # the same if only the leader's probability is needed
_MOST_TABLED = 2**22  # entries of the (lags, nodes) tables: of two, 64 megabytes
_ROWS_AT_ONCE = 2**18  # entries of the (histograms, nodes) arrays: two megabytes, which fit the cache


@dataclass(frozen=True)
class WinningLaw:
    """The law of a noisy maximum as a function of histograms; `right` takes half the time."""

    noise: IntegerNoise

    def __call__(self, counts: Integers) -> Array:
        return winning_probabilities(self.noise, counts)

    def right(self, counts: Integers) -> Array:
        """Compute the probability that the answer has the most votes, (n, C) → (n,)."""
        leading = counts == counts.max(axis=1, keepdims=True)
        if counts.shape[1] == 2:
            return np.asarray(np.sum(_by_difference(self.noise, counts) * leading, axis=1))
        return np.asarray(_summed(self.noise, counts, of_leader=True)[:, 0] * leading.sum(axis=1))


def winning_probabilities(noise: IntegerNoise, counts: Integers) -> Array:
    """Compute the probability that each class has the largest noisy count, (n, C) counts → (n, C), ties shared.

    For two classes, and for a deviation below 8 votes and up to 16 classes, exact up to rounding (1e-12). Below 32
    votes errors are at most 1e-6, beyond 1e-4, or 2e-4 for noise with a corner, as Laplace noise at 0.

    >>> from darrm.numerics.integer_noise import DiscreteGaussian
    >>> winning_probabilities(DiscreteGaussian(40.0), np.array([[130, 120], [125, 125]])).round(4)
    array([[0.5702, 0.4298],
           [0.5   , 0.5   ]])
    """
    checks.integer_at_least(2, classes=counts.shape[1])
    return _by_difference(noise, counts) if counts.shape[1] == 2 else _summed(noise, counts)


def answering_probabilities(noise: IntegerNoise, counts: Integers, threshold: int) -> Array:
    """Compute the probability that each string is the answer to an open question, (n, S) counts → (n, S), ties shared.

    Entries with count 0 never win; the rest is the probability of no answer. Accurate as `winning_probabilities`.

    >>> from darrm.numerics.integer_noise import DiscreteGaussian
    >>> answering_probabilities(DiscreteGaussian(25.0), np.array([[150, 1, 0], [135, 60, 5]]), 135).round(4)
    array([[0.7324, 0.    , 0.    ],
           [0.5078, 0.0009, 0.    ]])
    """
    law = _Tables(noise, max(2, counts.shape[1]))
    # strings that are behind all of the noise, or absent, never win
    lags, place = list_lags(np.where(counts > 0, counts, -(2**31)), most=law.beyond)
    first, last = law.support[0], law.support[-1]
    reached = np.maximum((threshold - counts.max(axis=1)) // law.cell, first)  # relative to the leader
    result = np.empty(counts.shape)
    for offset in np.unique(reached % law.stride):
        rows = np.flatnonzero(reached % law.stride == offset)
        nodes, weights = law.nodes(first + (offset - first) % law.stride, last)
        counting = np.where(nodes >= reached[rows, None], weights, 0.0)
        result[rows] = sum_nodes(place[rows], *law.at(nodes, lags), counting)
    return result * (counts > 0)


def sum_nodes(place: Integers, log_below: Array, hazard: Array, weights: Array, *, of_leader: bool = False) -> Array:
    """Compute Σ over nodes of weight · h of a class · Π F̃ of all classes: (n, C) places in tables → (n, C).

    Tables are (L, N) for L places and N nodes, weights (N,) or (n, N); ``of_leader`` computes place 0 only: (n, 1).
    """
    (size, nodes), classes = log_below.shape, place.shape[1]
    result = np.empty((len(place), 1 if of_leader else classes))
    weights = np.broadcast_to(weights, (len(place), nodes))
    gathers = size > (_FEW_LAGS_OF_ONE if of_leader else _FEW_LAGS) * classes
    rows = max(1, (_ROWS_AT_ONCE // 4 if gathers else _ROWS_AT_ONCE) // nodes)
    for start in range(0, len(place), rows):
        block, some = place[start : start + rows], slice(start, start + rows)
        if gathers:
            density = np.zeros((len(block), nodes))
            for c in range(classes):
                density += log_below[block[:, c]]
        else:  # count the classes at each place
            at = np.arange(len(block))[:, None] * size + block
            classes_with = np.bincount(at.ravel(), minlength=len(block) * size).reshape(-1, size)
            density = classes_with.astype(np.float64) @ log_below
        np.exp(density, out=density)
        density *= weights[some]
        if of_leader:
            result[some, 0] = density @ hazard[0]
        elif gathers:
            of_class = [np.einsum("ij,ij->i", hazard[block[:, c]], density) for c in range(classes)]
            result[some] = np.column_stack(of_class)
        else:
            result[some] = np.take_along_axis(density @ hazard.T, block, axis=1)
    return result


def list_lags(counts: Integers, most: int | None = None) -> tuple[Integers, Integers]:
    """List the gaps to the leaders, and the index of each class in the list."""
    behind = counts.max(axis=1, keepdims=True) - counts
    if most is not None:
        behind = np.minimum(behind, most)
    if behind.max() > behind.size + _ROWS_AT_ONCE:
        lags, place = np.unique(behind, return_inverse=True)
        return lags, place.reshape(behind.shape)
    occurs = np.bincount(behind.ravel()) > 0
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[behind]


def _summed(noise: IntegerNoise, counts: Integers, *, of_leader: bool = False) -> Array:
    law = _Tables(noise, counts.shape[1])
    nodes, weights = law.nodes(law.support[0], law.support[-1])
    lags, place = list_lags(counts, most=law.beyond)
    result = np.zeros((len(counts), 1 if of_leader else counts.shape[1]))
    size = max(1, _MOST_TABLED // lags.size)
    for start in range(0, nodes.size, size):
        some = slice(start, start + size)
        result += sum_nodes(place, *law.at(nodes[some], lags), weights[some], of_leader=of_leader)
    return result


def _by_difference(noise: IntegerNoise, counts: Integers) -> Array:
    cell = max(1, int(noise.deviation / _FINE_CELLS))
    support, mass = _masses(noise, cell)
    reach = int(support[-1] - support[0])
    size = 1 << (2 * reach + 1).bit_length()
    differences = np.fft.irfft(np.abs(np.fft.rfft(mass, size)) ** 2, size)[: reach + 1]  # Pr[D = 0 … reach]
    tails = np.append(np.cumsum(np.maximum(0.0, differences)[::-1])[::-1], [0.0, 0.0])  # Pr[D ≥ 0 … reach + 2]
    lead = np.abs(counts[:, 0] - counts[:, 1]) / cell
    behind = np.interp(lead, np.arange(reach + 2), 0.5 * (tails[:-1] + tails[1:]))
    first = np.where(counts[:, 0] >= counts[:, 1], 1.0 - behind, behind)
    return np.column_stack([first, 1.0 - first])


def _masses(noise: IntegerNoise, cell: int) -> tuple[Integers, Array]:
    right, left = ((find_reach(noise, sign, _CUT) - 1) // cell for sign in (1, -1))
    support = np.arange(-left, right + 1)
    weights = np.exp(noise.log_weights(support * cell))
    return support, weights / weights.sum()


class _Tables:
    def __init__(self, noise: IntegerNoise, classes: int) -> None:
        self.cell = max(1, int(noise.deviation / _CELLS))
        self.support, self.mass = _masses(noise, self.cell)
        self.beyond = (self.support.size + 1) * self.cell  # votes: a larger gap does not matter
        deviation = noise.deviation / self.cell
        self.stride = max(1, int(deviation / _TWO_NODES_BELOW))
        few = 8 if deviation < _EIGHT_NODES_BELOW else 2 if deviation < _TWO_NODES_BELOW else 1
        self._rule = unit_rule(min(-(-classes // 2), few))

    def nodes(self, first: int, last: int) -> tuple[Array, Array]:
        inside, weights = self._rule
        starts = np.arange(first, last + 1, self.stride)
        return (starts[:, None] + inside).ravel(), np.tile(weights * self.stride, starts.size)

    def at(self, nodes: Array, lags: Integers) -> tuple[Array, Array]:
        """Compute log F̃ and h of a class ``lags`` behind: (lags, nodes) each."""
        first, mass = self.support[0], self.mass
        ends, total = np.arange(first, self.support[-1] + 2), np.append(0.0, np.cumsum(mass))
        log_below, hazard = np.empty((2, lags.size, nodes.size))
        rows = max(1, _ROWS_AT_ONCE // nodes.size)
        for start in range(0, lags.size, rows):  # bounds the memory of intermediate arrays
            block = slice(start, start + rows)
            shifted = nodes + lags[block, None] / self.cell
            below = np.interp(shifted, ends, total)
            at = np.floor(shifted).astype(np.int64) - first
            density = np.where((at >= 0) & (at < mass.size), mass[np.clip(at, 0, mass.size - 1)], 0.0)
            log_below[block], hazard[block] = np.log(below), density / below
        return log_below, hazard


SEED = 20_250_102  # of the histograms, public: results are reproducible
_DRAWS, _FINAL_DRAWS = 500, 4000  # histograms, fewer for many classes
_COUNTS = 25_000  # at most, of all histograms of a search step
_STEPS, _NEAR = 6, 0.003  # towards a scale; the relative distance of a cost to the budget at which the search ends
_CERTIFICATIONS = 6
DEAR = 200.0  # votes of deviation: beyond, a certificate takes seconds
_CERTIFIED = 1.0125  # typical ratio of a certified cost to its estimate
_MARGIN = 1.0005  # of a scale whose certified cost exceeded the budget
_RATIOS = 2.0 ** (np.arange(-8, 13) / 4.0)  # ℓ/s
_GAUSSIAN = (POWERS.index(2.0), 8, POWERS.index(2.0))  # places of p, ℓ/s and q
_Place = tuple[int, int, int]


@dataclass(frozen=True)
class BestShape:
    noise: AsymmetricNoise  # for `darrm.pate.AsymmetricMax`
    cost: float  # a certified bound on the label's Rényi divergence at the order, within the budget
    accuracy: float  # the share of labels that are a class with the most votes, over the sampled histograms
    gain: float  # in accuracy over a Gaussian of the same estimated cost, on the same histograms
    gain_error: float  # its standard error


def best_shape(K: int, classes: int, prior: Prior | str | None = None, *, order: float, budget: float) -> BestShape:
    """Find the asymmetric noise with the most accurate labels within a Rényi budget for one query.

    The default prior is uniform on histograms. ``budget`` is for one moved vote, at an ``order`` of `DEFAULT_ORDERS`;
    for t moved votes about 1/t² of it. `ValueError` for numbers out of range, `PlanError` if no scale is within the
    budget.

    >>> shape = best_shape(100, 10, order=16.0, budget=0.05)
    >>> shape.cost <= 0.05, shape.gain > 0.005
    (True, True)
    """
    checks.integer_at_least(1, K=K)
    checks.integer_at_least(2, classes=classes)
    checks.positive(order=order, budget=budget)
    if order not in DEFAULT_ORDERS:
        checks.fail("order", order, "one of darrm.loss.renyi.DEFAULT_ORDERS", "divergences are kept at these orders")
    belief = Dirichlet() if prior is None else checked(prior, classes)
    counts = belief.sample(K, classes, min(_DRAWS, max(1, _COUNTS // classes)), rng=np.random.default_rng(SEED))
    noise, cost = _certify_scale(_climb(counts, order, budget), order, budget)
    draws = min(_FINAL_DRAWS, max(2, 8 * _COUNTS // classes))
    counts = belief.sample(K, classes, draws, rng=np.random.default_rng(SEED + 1))
    hits = WinningLaw(noise).right(counts)
    gained = hits - WinningLaw(_scaled(_GAUSSIAN, order, cost)).right(counts)
    error = float(gained.std(ddof=1) / np.sqrt(gained.size))
    return BestShape(noise, cost, float(hits.mean()), float(gained.mean()), error)


def _climb(counts: NDArray[np.int64], order: float, budget: float) -> _Place:
    @cache
    def value(place: _Place) -> float:
        if not all(0 <= one < size for one, size in zip(place, (len(POWERS), _RATIOS.size, len(POWERS)), strict=True)):
            return 0.0
        return float(WinningLaw(_scaled(place, order, budget)).right(counts).mean())

    best = _GAUSSIAN
    for step in (2, 1):
        while True:
            p, ratio, q = best
            near = [(p + d, ratio, q) for d in (step, -step)] + [(p, ratio + d, q) for d in (step, -step)]
            better = max([*near, (p, ratio, q + step), (p, ratio, q - step)], key=value)
            if value(better) <= value(best):
                break
            best = better
    return best


def _shaped(place: _Place, scale: float) -> AsymmetricNoise:
    p, ratio, q = POWERS[place[0]], float(_RATIOS[place[1]]), POWERS[place[2]]
    try:
        return AsymmetricNoise(64.0, 64.0 * ratio, q, p).scaled(scale)
    except ValueError as error:
        raise PlanError(f"no asymmetric noise has a label of this cost: {error}") from error


def _scaled(place: _Place, order: float, budget: float) -> AsymmetricNoise:
    scale = math.sqrt(order / budget)
    for _ in range(_STEPS):
        relative = float(label_estimate(_shaped(place, scale), [order])[0]) / budget
        scale *= math.sqrt(relative)
        if abs(relative - 1.0) < _NEAR:
            break
    return _shaped(place, scale)


def _certify_scale(place: _Place, order: float, budget: float) -> tuple[AsymmetricNoise, float]:
    noise, at = _scaled(place, order, budget), int(np.searchsorted(DEFAULT_ORDERS, order))
    if noise.deviation > DEAR:  # certify once only
        noise = _scaled(place, order, budget / _CERTIFIED)
    for _ in range(_CERTIFICATIONS):
        cost = float(label_curve(noise, moved=1).values[at])
        if cost <= budget:
            return noise, cost
        noise = _shaped(place, noise.right * math.sqrt(min(4.0, cost / budget)) * _MARGIN)
    raise PlanError(f"no scale of asymmetric noise was certified to cost at most {budget:g} at order {order:g}")
