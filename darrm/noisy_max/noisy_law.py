"""Pr[label = c | counts] for many histograms at once, for planning, and a search for the best asymmetric noise.

This is the law of `noise_law` with few nodes, and approximate for wide noise; `cost_given_votes` bounds the same
integral. Of two classes, the one that is M votes behind wins with probability ½(Pr[D ≥ M] + Pr[D ≥ M + 1]), where D is
the difference of the noises.

`best_shape` searches shapes (p, ℓ/s, q) by local steps from the Gaussian (2, 1, 2) until no neighbor is better, on
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
from darrm.priors import Dirichlet, Prior, check_prior
from darrm.util import checks

_LOG_WEIGHT_CUT = 40.0  # −log of a weight relative to the likeliest point: the rest has probability 1e-15
_MAX_EIGHT_NODE_DEVIATION = 8.0  # votes of deviation
_MAX_TWO_NODE_DEVIATION = 32.0  # votes of deviation: two nodes to a vote, and from here on 32 nodes to a deviation
_CELLS_PER_DEVIATION = 1024.0  # to a deviation, at most: wider noise is constant on each of them
_FINE_CELLS_PER_DEVIATION = 32768.0  # the same for two classes: they change a probability by less than 1e-9
_MAX_LAGS_PER_CLASS = 25  # different lags to a class: below, one product of matrices is faster than a sum over classes
_MAX_LEADER_LAGS_PER_CLASS = 10  # the same if only the leader's probability is needed
_MAX_TABLE_ENTRIES = 2**22  # entries of a (lags, nodes) table; two tables take 64 megabytes
_MAX_BLOCK_ENTRIES = 2**18  # entries of the (histograms, nodes) arrays: two megabytes, which fit the cache


@dataclass(frozen=True)
class WinningLaw:
    """The law of a noisy maximum as a function of histograms; `compute_accuracy` takes half the time."""

    noise: IntegerNoise

    def __call__(self, counts: Integers) -> Array:
        return winning_probabilities(self.noise, counts)

    def compute_accuracy(self, counts: Integers) -> Array:
        """Compute the probability that the answer has the most votes, (n, C) → (n,)."""
        is_leader = counts == counts.max(axis=1, keepdims=True)
        if counts.shape[1] == 2:
            return np.asarray(np.sum(_compute_two_class_law(self.noise, counts) * is_leader, axis=1))
        return np.asarray(_integrate_label(self.noise, counts, of_leader=True)[:, 0] * is_leader.sum(axis=1))


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
    return _compute_two_class_law(noise, counts) if counts.shape[1] == 2 else _integrate_label(noise, counts)


def answering_probabilities(noise: IntegerNoise, counts: Integers, threshold: int) -> Array:
    """Compute the probability that each string is the answer to an open question, (n, S) counts → (n, S), ties shared.

    Entries with count 0 never win; the rest is the probability of no answer. Accurate as `winning_probabilities`.

    >>> from darrm.numerics.integer_noise import DiscreteGaussian
    >>> answering_probabilities(DiscreteGaussian(25.0), np.array([[150, 1, 0], [135, 60, 5]]), 135).round(4)
    array([[0.7324, 0.    , 0.    ],
           [0.5078, 0.0009, 0.    ]])
    """
    law = _Tables(noise, max(2, counts.shape[1]))
    # strings further behind than the noise reaches, or absent, never win
    lags, place = list_lags(np.where(counts > 0, counts, -(2**31)), max_gap=law.largest_gap)
    first, last = law.support[0], law.support[-1]
    least_noise = np.maximum((threshold - counts.max(axis=1)) // law.cell, first)  # relative to the leader
    result = np.empty(counts.shape)
    for remainder in np.unique(least_noise % law.stride):
        rows = np.flatnonzero(least_noise % law.stride == remainder)
        nodes, weights = law.list_nodes(first + (remainder - first) % law.stride, last)
        threshold_weights = np.where(nodes >= least_noise[rows, None], weights, 0.0)
        result[rows] = sum_nodes(place[rows], *law.tabulate(nodes, lags), threshold_weights)
    return result * (counts > 0)


def sum_nodes(index: Integers, log_below: Array, hazard: Array, weights: Array, *, of_leader: bool = False) -> Array:
    """Compute Σ over nodes of weight · h of a class · Π F̃ of all classes: (n, C) places in tables → (n, C).

    Tables are (L, N) for L places and N nodes, weights (N,) or (n, N); ``of_leader`` computes place 0 only: (n, 1).
    """
    (size, nodes), classes = log_below.shape, index.shape[1]
    result = np.empty((len(index), 1 if of_leader else classes))
    weights = np.broadcast_to(weights, (len(index), nodes))
    by_class = size > (_MAX_LEADER_LAGS_PER_CLASS if of_leader else _MAX_LAGS_PER_CLASS) * classes
    rows = max(1, (_MAX_BLOCK_ENTRIES // 4 if by_class else _MAX_BLOCK_ENTRIES) // nodes)
    for start in range(0, len(index), rows):
        block, rows_slice = index[start : start + rows], slice(start, start + rows)
        if by_class:
            density = np.zeros((len(block), nodes))
            for c in range(classes):
                density += log_below[block[:, c]]
        else:  # count the classes at each place
            flat_index = np.arange(len(block))[:, None] * size + block
            class_counts = np.bincount(flat_index.ravel(), minlength=len(block) * size).reshape(-1, size)
            density = class_counts.astype(np.float64) @ log_below
        np.exp(density, out=density)
        density *= weights[rows_slice]
        if of_leader:
            result[rows_slice, 0] = density @ hazard[0]
        elif by_class:
            class_columns = [np.einsum("ij,ij->i", hazard[block[:, c]], density) for c in range(classes)]
            result[rows_slice] = np.column_stack(class_columns)
        else:
            result[rows_slice] = np.take_along_axis(density @ hazard.T, block, axis=1)
    return result


def list_lags(counts: Integers, max_gap: int | None = None) -> tuple[Integers, Integers]:
    """List the gaps to the leaders, and the index of each class in the list."""
    gaps = counts.max(axis=1, keepdims=True) - counts
    if max_gap is not None:
        gaps = np.minimum(gaps, max_gap)
    if gaps.max() > gaps.size + _MAX_BLOCK_ENTRIES:
        lags, lag_index = np.unique(gaps, return_inverse=True)
        return lags, lag_index.reshape(gaps.shape)
    occurs = np.bincount(gaps.ravel()) > 0
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[gaps]


def _integrate_label(noise: IntegerNoise, counts: Integers, *, of_leader: bool = False) -> Array:
    law = _Tables(noise, counts.shape[1])
    nodes, weights = law.list_nodes(law.support[0], law.support[-1])
    lags, lag_index = list_lags(counts, max_gap=law.largest_gap)
    result = np.zeros((len(counts), 1 if of_leader else counts.shape[1]))
    size = max(1, _MAX_TABLE_ENTRIES // lags.size)
    for start in range(0, nodes.size, size):
        node_slice = slice(start, start + size)
        result += sum_nodes(lag_index, *law.tabulate(nodes[node_slice], lags), weights[node_slice], of_leader=of_leader)
    return result


def _compute_two_class_law(noise: IntegerNoise, counts: Integers) -> Array:
    cell = max(1, int(noise.deviation / _FINE_CELLS_PER_DEVIATION))
    support, mass = _tabulate_masses(noise, cell)
    width = int(support[-1] - support[0])
    size = 1 << (2 * width + 1).bit_length()
    differences = np.fft.irfft(np.abs(np.fft.rfft(mass, size)) ** 2, size)[: width + 1]  # Pr[D = 0 … reach]
    tails = np.append(np.cumsum(np.maximum(0.0, differences)[::-1])[::-1], [0.0, 0.0])  # Pr[D ≥ 0 … reach + 2]
    lead = np.abs(counts[:, 0] - counts[:, 1]) / cell
    loser_probability = np.interp(lead, np.arange(width + 2), 0.5 * (tails[:-1] + tails[1:]))
    first_probability = np.where(counts[:, 0] >= counts[:, 1], 1.0 - loser_probability, loser_probability)
    return np.column_stack([first_probability, 1.0 - first_probability])


def _tabulate_masses(noise: IntegerNoise, cell: int) -> tuple[Integers, Array]:
    right, left = ((find_reach(noise, sign, _LOG_WEIGHT_CUT) - 1) // cell for sign in (1, -1))
    support = np.arange(-left, right + 1)
    weights = np.exp(noise.log_weights(support * cell))
    return support, weights / weights.sum()


class _Tables:
    def __init__(self, noise: IntegerNoise, classes: int) -> None:
        self.cell = max(1, int(noise.deviation / _CELLS_PER_DEVIATION))
        self.support, self.mass = _tabulate_masses(noise, self.cell)
        self.largest_gap = (self.support.size + 1) * self.cell  # votes: a larger gap does not matter
        deviation = noise.deviation / self.cell
        self.stride = max(1, int(deviation / _MAX_TWO_NODE_DEVIATION))
        node_count = 8 if deviation < _MAX_EIGHT_NODE_DEVIATION else 2 if deviation < _MAX_TWO_NODE_DEVIATION else 1
        self._rule = unit_rule(min(-(-classes // 2), node_count))

    def list_nodes(self, first: int, last: int) -> tuple[Array, Array]:
        offsets, weights = self._rule
        starts = np.arange(first, last + 1, self.stride)
        return (starts[:, None] + offsets).ravel(), np.tile(weights * self.stride, starts.size)

    def tabulate(self, nodes: Array, lags: Integers) -> tuple[Array, Array]:
        """Compute log F̃ and h of a class ``lags`` behind: (lags, nodes) each."""
        first, mass = self.support[0], self.mass
        ends, total = np.arange(first, self.support[-1] + 2), np.append(0.0, np.cumsum(mass))
        log_below, hazard = np.empty((2, lags.size, nodes.size))
        rows = max(1, _MAX_BLOCK_ENTRIES // nodes.size)
        for start in range(0, lags.size, rows):  # bounds the memory of intermediate arrays
            block = slice(start, start + rows)
            shifted = nodes + lags[block, None] / self.cell
            cumulative = np.interp(shifted, ends, total)
            index = np.floor(shifted).astype(np.int64) - first
            density = np.where((index >= 0) & (index < mass.size), mass[np.clip(index, 0, mass.size - 1)], 0.0)
            log_below[block], hazard[block] = np.log(cumulative), density / cumulative
        return log_below, hazard


SEED = 20_250_102  # of the histograms, public: results are reproducible
_DRAWS, _FINAL_DRAWS = 500, 4000  # histograms, fewer for many classes
_MAX_COUNTS = 25_000  # at most, of all histograms of a search step
_MAX_SCALE_STEPS, _COST_TOLERANCE = 6, 0.003  # of the search for a scale; relative, between cost and budget
_MAX_CERTIFICATIONS = 6
DEAR = 200.0  # votes of deviation: beyond, a certificate takes seconds
_CERTIFIED_RATIO = 1.0125  # typical ratio of a certified cost to its estimate
_SCALE_MARGIN = 1.0005  # of a scale whose certified cost exceeded the budget
_RATIOS = 2.0 ** (np.arange(-8, 13) / 4.0)  # ℓ/s
_GAUSSIAN_SHAPE = (POWERS.index(2.0), 8, POWERS.index(2.0))  # places of p, ℓ/s and q
_Shape = tuple[int, int, int]


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
    belief = Dirichlet() if prior is None else check_prior(prior, classes)
    counts = belief.sample(K, classes, min(_DRAWS, max(1, _MAX_COUNTS // classes)), rng=np.random.default_rng(SEED))
    noise, cost = _certify_scale(_search_shape(counts, order, budget), order, budget)
    draws = min(_FINAL_DRAWS, max(2, 8 * _MAX_COUNTS // classes))
    counts = belief.sample(K, classes, draws, rng=np.random.default_rng(SEED + 1))
    hits = WinningLaw(noise).compute_accuracy(counts)
    gains = hits - WinningLaw(_fit_scale(_GAUSSIAN_SHAPE, order, cost)).compute_accuracy(counts)
    error = float(gains.std(ddof=1) / np.sqrt(gains.size))
    return BestShape(noise, cost, float(hits.mean()), float(gains.mean()), error)


def _search_shape(counts: NDArray[np.int64], order: float, budget: float) -> _Shape:
    @cache
    def compute_mean_accuracy(shape: _Shape) -> float:
        if not all(0 <= i < size for i, size in zip(shape, (len(POWERS), _RATIOS.size, len(POWERS)), strict=True)):
            return 0.0
        return float(WinningLaw(_fit_scale(shape, order, budget)).compute_accuracy(counts).mean())

    best = _GAUSSIAN_SHAPE
    for step in (2, 1):
        while True:
            p, ratio, q = best
            neighbors = [(p + d, ratio, q) for d in (step, -step)] + [(p, ratio + d, q) for d in (step, -step)]
            candidate = max([*neighbors, (p, ratio, q + step), (p, ratio, q - step)], key=compute_mean_accuracy)
            if compute_mean_accuracy(candidate) <= compute_mean_accuracy(best):
                break
            best = candidate
    return best


def _build_noise(shape: _Shape, scale: float) -> AsymmetricNoise:
    p, ratio, q = POWERS[shape[0]], float(_RATIOS[shape[1]]), POWERS[shape[2]]
    try:
        return AsymmetricNoise(64.0, 64.0 * ratio, q, p).with_right_scale(scale)
    except ValueError as error:
        raise PlanError(f"no asymmetric noise has a label of this cost: {error}") from error


def _fit_scale(shape: _Shape, order: float, budget: float) -> AsymmetricNoise:
    scale = math.sqrt(order / budget)
    for _ in range(_MAX_SCALE_STEPS):
        cost_ratio = float(label_estimate(_build_noise(shape, scale), [order])[0]) / budget
        scale *= math.sqrt(cost_ratio)
        if abs(cost_ratio - 1.0) < _COST_TOLERANCE:
            break
    return _build_noise(shape, scale)


def _certify_scale(shape: _Shape, order: float, budget: float) -> tuple[AsymmetricNoise, float]:
    noise, order_index = _fit_scale(shape, order, budget), int(np.searchsorted(DEFAULT_ORDERS, order))
    if noise.deviation > DEAR:  # certify once only
        noise = _fit_scale(shape, order, budget / _CERTIFIED_RATIO)
    for _ in range(_MAX_CERTIFICATIONS):
        cost = float(label_curve(noise, moved=1).values[order_index])
        if cost <= budget:
            return noise, cost
        noise = _build_noise(shape, noise.right * math.sqrt(min(4.0, cost / budget)) * _SCALE_MARGIN)
    raise PlanError(f"no scale of asymmetric noise was certified to cost at most {budget:g} at order {order:g}")
