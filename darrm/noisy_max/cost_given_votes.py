"""The Rényi cost of a label at given votes: the worst divergence over all neighbors, in both directions.

With F̃ and h of `noise_law`, Pr[c wins] = Σ_x ∫_0^1 h(x + v − n_c)·Π_j F̃(x + v − n_j) dv. A vote that moves from a to
b multiplies the product by F̃(u − n_a + 1)/F̃(u − n_a) · F̃(u − n_b − 1)/F̃(u − n_b). All terms are positive, so sums have
relative errors.

- **The integral.** Π_j (1 + v·f_j/F_j) has coefficients in [0, H^k/k!], where H is the sum of the f_j/F_j at ⌊u⌋ and
  below it. The Gauss-Legendre rule with m nodes is exact below degree 2m, and errs by at most 1/(2m + 1) of the rest:
  the cost includes this error.
- **Classes far behind**, each winning with probability at most e^{−36}, form one event. `NoiseDifference` bounds its
  contribution for Gaussian noise, a loss of at most 2γ for Laplace noise. If a or b is far behind, its factor lies
  between 1 and the factor of a class at the edge of "far", because F is log-concave. The worse end is charged.
- **Moves between classes other than the top** are skipped for large histograms where `others_majorant` proves that they
  are not the worst at any order.

(`tests/noisy_max/test_cost_given_votes.py`)
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.loss.renyi import log_renyi_sums
from darrm.noisy_max.mislabel_bound import others_majorant
from darrm.noisy_max.noise_law import (
    Integers,
    NoiseDifference,
    find_reach,
    laplace_log_tails,
    log_below,
    tabulate_log_masses,
    unit_rule,
)
from darrm.numerics import Array
from darrm.numerics.integer_noise import DiscreteGaussian, DiscreteLaplace, IntegerNoise
from darrm.util import checks

_LOG_FAR, _LOG_CUT = -36.0, -66.0  # of a class that counts as far behind; of the noise outside the tables
WIDEST = 1000.0  # votes of deviation: beyond, a label takes too long
# relative, of each probability: sums of up to 2^16 products of some hundred factors, whose logs err by 2^-50
_ROUNDING = 4e-12
_LARGEST_ERROR = 1e-7  # relative, of the rule; the scale of votes relies on it
_NODES = ((64.0, 3), (16.0, 4), (8.0, 6), (0.0, 16))  # smallest deviation in votes, nodes per vote
_LARGE_SIZE = 1 << 18  # histograms × classes²: from here on, moves that cannot be the worst are skipped
LEAST_MISSED = math.exp(-30.0)  # a smaller probability of another answer is reported as this
SmallNoise = DiscreteGaussian | DiscreteLaplace


@dataclass(frozen=True, eq=False)
class LabelCosts:
    """The cost of each of Q labels at L orders, rounded up, in nats; **private data**."""

    orders: Array  # (L,)
    forward: Array  # (U, L) worst D(M(votes) ‖ M(neighbor)) of each different histogram
    reverse: Array  # (U, L) worst D(M(neighbor) ‖ M(votes))
    missed: Array  # (U,) probability that the label is not the likeliest class, rounded up, at least about 1e-12
    histogram_index: Integers  # (Q,) the histogram of each query

    def sum_weights(self, weights: Array, queries: slice = slice(None)) -> Array:
        """Sum the weights of the queries of each histogram: (U,)."""
        times = np.bincount(self.histogram_index[queries], weights=weights[queries], minlength=len(self.missed))
        return times.astype(np.float64)

    @property
    def worst(self) -> Array:
        """(U, L) the larger direction."""
        return np.maximum(self.forward, self.reverse)


def has_exact_cost(noise: object) -> bool:
    return isinstance(noise, DiscreteGaussian | DiscreteLaplace) and noise.deviation <= WIDEST


def label_costs(noise: SmallNoise, histograms: ArrayLike, orders: ArrayLike) -> LabelCosts:
    """Compute the cost of each label at its votes, against every neighbor that moves one vote.

    (Q, C) vote counts and (L,) increasing orders above 1; `ValueError` if malformed, or the noise is too wide.

    >>> costs = label_costs(DiscreteGaussian(40.0), [[240, 10, 0], [150, 60, 40]], [20.0])
    >>> costs.forward[costs.histogram_index].round(7).tolist(), costs.reverse[costs.histogram_index].round(7).tolist()
    ([[1.92e-05], [0.004695]], [[2.16e-05], [0.0048482]])
    """
    if not has_exact_cost(noise):
        checks.fail("noise", noise, f"discrete Gaussian or Laplace noise of a deviation up to {WIDEST:g} votes")
    grid = np.asarray(orders, dtype=np.float64)
    if grid.ndim != 1 or not grid.size or not np.all((grid > 1.0) & np.isfinite(grid)) or np.any(np.diff(grid) <= 0.0):
        checks.fail("orders", orders, "increasing, each above 1")
    counts = np.asarray(histograms)
    if counts.ndim != 2 or counts.shape[1] < 2 or not counts.size or counts.dtype.kind not in "iu" or counts.min() < 0:
        description = checks.Text(f"shape {counts.shape}, dtype {counts.dtype}")
        checks.fail("histograms", description, "vote counts, one row a query")
    rows, inverse = np.unique(np.sort(counts.astype(np.int64), axis=1), axis=0, return_inverse=True)
    # under Laplace noise a far class loses up to this many nats at each order, so "far" must be deeper
    depth = 2.0 * noise.gamma * float(grid[-1]) if isinstance(noise, DiscreteLaplace) else 0.0
    tables = _build_tables(noise, rows.shape[1], depth=depth)
    law = tables.difference
    sums = None if law is None else np.array([law.log_sums(order, 1) for order in grid.tolist()])
    is_large = rows.size * rows.shape[1] >= _LARGE_SIZE
    costs = [_compute_costs(tables, row, grid, sums, is_large=is_large) for row in rows]
    forward, reverse, missed = (np.array(part) for part in zip(*costs, strict=True))
    return LabelCosts(grid, forward, reverse, missed, np.asarray(inverse).reshape(-1))


def missed_probabilities(noise: IntegerNoise, counts: Integers) -> Array:
    """Compute the probability that each label is not the likeliest class, rounded up: (Q, C) counts → (Q,)."""
    # equal rows are computed again: their number is private, and the time would reveal it
    tables = _build_tables(noise, counts.shape[1])
    return np.array([_build_histogram(tables, row).missed for row in np.sort(counts.astype(np.int64), axis=1)])


class _Tables:
    """F̃ and h and their changes by one vote, by distance from a count; ``depth`` nats deepen all cuts."""

    def __init__(self, noise: IntegerNoise, classes: int, finer: int = 1, depth: float = 0.0) -> None:
        self.noise, self.classes, self.finer, self.depth = noise, classes, finer, depth
        # the noise exceeds the reach, on either side, with a probability below e^{−66 − depth}
        exponent = depth - _LOG_CUT + math.log(2.0 * noise.deviation + 2.0)
        self.reach = reach = max(find_reach(noise, sign, exponent) for sign in (1, -1))
        node_count = finer * next(nodes for min_deviation, nodes in _NODES if noise.deviation >= min_deviation)
        exact_count = -(-classes // 2)
        nodes, weights = unit_rule(min(node_count, exact_count))
        self.nodes, self.log_weights = nodes.size, np.log(weights)
        # log f(x) and log F(x − 1) for x from −reach − 2 to 3·reach + 2; a tabulated class is at most 2·reach behind
        logs, inner = tabulate_log_masses(noise, -3 * reach - 3, 3 * reach + 3), slice(2 * reach + 1, -1)
        masses, log_cumulative = logs[inner], np.minimum(log_below(logs)[inner], 0.0)
        self.log_F = np.logaddexp(log_cumulative[:, None], np.log(nodes) + masses[:, None])  # (distances, nodes)
        self.log_h = masses[:, None] - self.log_F
        self.term_ratios = None  # for an exact rule
        if exact_count > node_count:  # the f/F(⌊u⌋ − 1) after a vote was gained, the terms of H
            ratio = np.exp(masses - log_cumulative)
            self.term_ratios = np.append(ratio[:1], ratio[:-1])
        self.difference = NoiseDifference(noise.sigma) if isinstance(noise, DiscreteGaussian) else None
        self.log_tails = self._bound_log_tails(np.exp(masses[2 : 2 * reach + 3]))
        # the least gap at which a class wins with probability at most e^{−36 − depth}
        self.far_gap = int(np.argmax(self.log_tails <= _LOG_FAR - depth))

    @cached_property
    def changes(self) -> list[Array]:
        """Factors of F̃, then h, after a vote is lost and gained: (distances, nodes)."""
        factors = []
        for values in (self.log_F, self.log_h):
            log_lost = np.append(values[1:], values[-1:], axis=0) - values
            log_gained = np.append(values[:1], values[:-1], axis=0) - values
            factors += [np.exp(log_lost), np.exp(log_gained)]
        return factors

    def _bound_log_tails(self, masses: Array) -> Array:
        """Bound log Pr[D ≥ g] from g = 0 on."""
        if self.difference is not None:
            return self.difference.log_tails[-self.difference.first :]
        if isinstance(self.noise, DiscreteLaplace):
            return laplace_log_tails(np.arange(2 * self.reach + 2), self.noise.gamma, "discrete")
        differences = np.convolve(masses, masses[::-1])
        tails = np.cumsum(differences[::-1])[::-1][2 * self.reach :]
        return np.log(tails + math.exp(_LOG_CUT))

    def read(self, table: Array, gap: int) -> Array:
        """Read a table at all nodes for a class ``gap`` votes behind the top."""
        return table[gap + 2 : gap + 2 * self.reach + 3].reshape(-1)

    def bound_event(self, log_probability: float, orders: Array, sums: Array | None) -> tuple[Array, Array]:
        """Bound the log of the contribution of an unlikely event in both directions: (L,) each."""
        if sums is None or self.difference is None or log_probability == -math.inf:
            loss = 2.0 * self.noise.gamma if isinstance(self.noise, DiscreteLaplace) else 0.0
            return log_probability + loss * (orders - 1.0), log_probability + loss * orders
        index = self.difference.find_index(log_probability)
        return sums[:, index], sums[:, max(index - 2, 0)]


_build_tables = lru_cache(maxsize=16)(_Tables)


# one row per move: log-probabilities of the groups before it, lower and upper bounds on them after it (equal unless
# a class is far behind), and the sizes of the groups
_MoveLaws = tuple[Array, Array, Array, Array]


class _Histogram:
    """The law of one label by groups of equal counts, the top last; in a move, index `groups` is a far class."""

    def __init__(self, tables: _Tables, row: Integers) -> None:
        values, sizes = np.unique(row, return_counts=True)
        gaps = values[-1] - values
        is_far = gaps >= tables.far_gap
        self.tables = tables
        self.gaps, self.sizes = gaps, sizes
        self.near_gaps, self.near_sizes = gaps[~is_far], sizes[~is_far].astype(np.float64)
        self.groups = int(self.near_gaps.size)
        self.has_votes = values[~is_far] > 0
        self.far_count, self.far_has_votes = int(sizes[is_far].sum()), bool(np.any(is_far & (values > 0)))
        tails = tables.log_tails[np.minimum(gaps[is_far], tables.log_tails.size - 1)]
        self.log_far_mass = float(np.logaddexp.reduce(np.log(sizes[is_far]) + tails)) if np.any(is_far) else -math.inf
        product = np.tile(tables.log_weights, 2 * tables.reach + 1)
        for gap, size in zip(gaps, sizes, strict=True):
            if gap <= 2 * tables.reach:
                product += size * tables.read(tables.log_F, gap)
        logs = self._read_near(tables.log_h) + product
        self.scales = logs.max(axis=1)
        self.weights = np.exp(logs - self.scales[:, None])
        self.log_law = np.log(self.weights.sum(axis=1)) + self.scales
        self.error = _ROUNDING + self._bound_rule_error()

    @property
    def missed(self) -> float:
        law = np.exp(self.log_law)
        wrong_probability = float(law[:-1] @ self.near_sizes[:-1] + law[-1] * (self.near_sizes[-1] - 1.0))
        return min(max(wrong_probability * (1.0 + self.error) + math.exp(self.log_far_mass), LEAST_MISSED), 1.0)

    def find_moves(self) -> NDArray[np.bool_]:
        exist = np.ones((self.groups + 1, self.groups + 1), dtype=bool)
        exist[:-1, :-1][np.diag_indices(self.groups)] = self.near_sizes > 1.0
        exist[:-1][~self.has_votes] = False
        exist[-1] &= self.far_has_votes
        exist[:, -1] &= self.far_count > 0
        exist[-1, -1] &= self.far_count > 1
        return exist

    def compute_laws(self, requested: NDArray[np.bool_]) -> _MoveLaws:
        """Compute the laws after the requested moves, of all groups, the loser and the gainer."""
        losers, gainers = np.nonzero(requested)
        log_law = np.append(self.log_law, 0.0)
        laws = np.column_stack([np.tile(self.log_law, (losers.size, 1)), log_law[losers], log_law[gainers]])
        classes = np.column_stack(
            [np.tile(self.near_sizes, (losers.size, 1)), losers < self.groups, gainers < self.groups]
        )
        for movers in (losers, gainers):
            near_moves = np.flatnonzero(movers < self.groups)
            classes[near_moves, movers[near_moves]] -= 1.0
        lowest = self._compute_law_after(requested, use_lower=True)
        has_far_move = bool(requested[-1].any() or requested[:, -1].any())
        return laws, lowest, self._compute_law_after(requested, use_lower=False) if has_far_move else lowest, classes

    def _compute_law_after(self, requested: NDArray[np.bool_], *, use_lower: bool) -> Array:
        """Compute the law after each move, with the lower or higher factors of classes far behind."""
        groups, tables = self.groups, self.tables
        losses, gains, own_losses, own_gains = (self._read_near(table) for table in tables.changes)
        ones = np.ones((1, self.weights.shape[1]))
        loser_table = np.vstack([losses, ones if use_lower else tables.read(tables.changes[0], tables.far_gap)])
        gainer_table = np.vstack([gains, tables.read(tables.changes[1], tables.far_gap) if use_lower else ones])
        parts = []
        for loser in np.flatnonzero(requested.any(axis=1)):
            gainers = np.flatnonzero(requested[loser])
            factors = loser_table[loser] * gainer_table[gainers]
            log_law = np.full((gainers.size, groups + 2), -np.inf)
            log_law[:, :groups] = np.log(factors @ self.weights.T) + self.scales
            if loser < groups:
                log_law[:, groups] = np.log(factors @ (self.weights[loser] * own_losses[loser])) + self.scales[loser]
            rows = gainers[gainers < groups]  # not far behind; they come first
            own_sums = np.einsum("ij,ij->i", factors[: rows.size], self.weights[rows] * own_gains[rows])
            log_law[: rows.size, groups + 1] = np.log(own_sums) + self.scales[rows]
            parts.append(log_law)
        return np.concatenate(parts)

    def _read_near(self, table: Array) -> Array:
        return np.array([self.tables.read(table, gap) for gap in self.near_gaps])

    def _bound_rule_error(self) -> float:
        tables = self.tables
        if tables.term_ratios is None:
            return 0.0
        nodes = tables.nodes
        total = np.zeros(2 * tables.reach + 1)
        for gap, size in zip(self.gaps, self.sizes, strict=True):
            if gap <= 2 * tables.reach:
                total += size * tables.read(tables.term_ratios, gap)
        with np.errstate(divide="ignore"):
            log_remainder = 2 * nodes * np.log(total) - math.lgamma(2 * nodes + 1) + total
        remainder = np.exp(np.minimum(log_remainder, 700.0)) / (2 * nodes + 1)
        shares = self.weights.reshape(self.groups, total.size, nodes).sum(axis=2)
        return 2.0 * float(np.max(shares @ remainder / shares.sum(axis=1)))


def _compute_costs(
    tables: _Tables, row: Integers, orders: Array, sums: Array | None, *, is_large: bool
) -> tuple[Array, Array, float]:
    histogram = _build_histogram(tables, row)
    event = tables.bound_event(histogram.log_far_mass, orders, sums)
    is_move = histogram.find_moves()
    top = histogram.groups - 1
    is_top = np.zeros_like(is_move)
    is_top[top], is_top[:, top] = is_move[top], is_move[:, top]
    is_other = is_move & ~is_top
    worst = _bound_divergences(histogram.compute_laws(is_top), orders, event, histogram.error)
    if is_other.any() and is_large:
        likely = np.append(np.exp(histogram.log_law), math.exp(histogram.log_far_mass)) * (1.0 + histogram.error)
        is_other &= ~_find_skippable(tables.noise, likely[:, None] + likely, orders, np.minimum(*worst))
    if is_other.any():
        worst = np.maximum(worst, _bound_divergences(histogram.compute_laws(is_other), orders, event, histogram.error))
    return worst[0], worst[1], histogram.missed


def _build_histogram(tables: _Tables, row: Integers) -> _Histogram:
    histogram = _Histogram(tables, row)
    while histogram.error > _LARGEST_ERROR:  # the rule is exact for C/2 nodes
        finer = _build_tables(tables.noise, tables.classes, 2 * histogram.tables.finer, tables.depth)
        histogram = _Histogram(finer, row)
    return histogram


def _find_skippable(noise: IntegerNoise, probabilities: Array, orders: Array, costs: Array) -> NDArray[np.bool_]:
    is_skippable = np.ones(probabilities.shape, dtype=bool)
    for order, cost in zip(orders.tolist(), costs.tolist(), strict=True):
        excess = np.interp(probabilities, *others_majorant(noise, order))
        is_skippable &= np.log1p(excess) / (order - 1.0) <= cost
    return is_skippable


def _bound_divergences(moves: _MoveLaws, orders: Array, event: tuple[Array, Array], error: float) -> Array:
    """Compute the largest divergences, forward and in reverse, rounded up: (2, L)."""
    worst = []
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_law, lowest, highest, classes = moves
        log_sizes = np.log(classes)
        for p, q, event_bound in ((log_law, lowest, event[0]), (highest, log_law, event[1])):
            sums = log_renyi_sums(p + log_sizes, q + log_sizes, orders).max(axis=1)
            values = np.logaddexp(sums, event_bound) / (orders - 1.0) + (2.0 * orders - 1.0) / (orders - 1.0) * error
            worst.append(np.where(np.isnan(values), np.inf, np.maximum(values, 0.0)))
    return np.array(worst)
