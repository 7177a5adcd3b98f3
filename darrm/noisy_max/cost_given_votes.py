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
_NODES = ((64.0, 3), (16.0, 4), (8.0, 6), (0.0, 16))  # least deviation, nodes a vote
_MANY = 1 << 18  # histograms times classes squared: from here on moves are skipped that cannot be the worst
LEAST_MISSED = math.exp(-30.0)  # the least probability of another answer that is reported
SmallNoise = DiscreteGaussian | DiscreteLaplace


@dataclass(frozen=True, eq=False)
class LabelCosts:
    """The cost of each of Q labels at L orders, rounded up, in nats; **private data**."""

    orders: Array  # (L,)
    forward: Array  # (U, L) worst D(M(votes) ‖ M(neighbor)) of each different histogram
    reverse: Array  # (U, L) worst D(M(neighbor) ‖ M(votes))
    missed: Array  # (U,) probability that the label is not the likeliest class, rounded up, at least about 1e-12
    which: Integers  # (Q,) the histogram of each query

    def times(self, weights: Array, queries: slice = slice(None)) -> Array:
        """Sum the weights of the queries of each histogram: (U,)."""
        times = np.bincount(self.which[queries], weights=weights[queries], minlength=len(self.missed))
        return times.astype(np.float64)

    @property
    def both(self) -> Array:
        """(U, L) the larger direction."""
        return np.maximum(self.forward, self.reverse)


def exactly_charged(noise: object) -> bool:
    return isinstance(noise, DiscreteGaussian | DiscreteLaplace) and noise.deviation <= WIDEST


def label_costs(noise: SmallNoise, histograms: ArrayLike, orders: ArrayLike) -> LabelCosts:
    """Compute the cost of each label at its votes, against every neighbor that moves one vote.

    (Q, C) vote counts and (L,) increasing orders above 1; `ValueError` if malformed, or the noise is too wide.

    >>> costs = label_costs(DiscreteGaussian(40.0), [[240, 10, 0], [150, 60, 40]], [20.0])
    >>> costs.forward[costs.which].round(7).tolist(), costs.reverse[costs.which].round(7).tolist()
    ([[1.92e-05], [0.004695]], [[2.16e-05], [0.0048482]])
    """
    if not exactly_charged(noise):
        checks.fail("noise", noise, f"discrete Gaussian or Laplace noise of a deviation up to {WIDEST:g} votes")
    grid = np.asarray(orders, dtype=np.float64)
    if grid.ndim != 1 or not grid.size or not np.all((grid > 1.0) & np.isfinite(grid)) or np.any(np.diff(grid) <= 0.0):
        checks.fail("orders", orders, "increasing, each above 1")
    counts = np.asarray(histograms)
    if counts.ndim != 2 or counts.shape[1] < 2 or not counts.size or counts.dtype.kind not in "iu" or counts.min() < 0:
        described = checks.Text(f"shape {counts.shape}, dtype {counts.dtype}")
        checks.fail("histograms", described, "vote counts, one row a query")
    rows, which = np.unique(np.sort(counts.astype(np.int64), axis=1), axis=0, return_inverse=True)
    # a class behind by Laplace noise loses at most this many nats at each order, so "far" has to be deeper
    depth = 2.0 * noise.gamma * float(grid[-1]) if isinstance(noise, DiscreteLaplace) else 0.0
    tables = _build_tables(noise, rows.shape[1], depth=depth)
    law = tables.difference
    sums = None if law is None else np.array([law.log_sums(order, 1) for order in grid.tolist()])
    many = rows.size * rows.shape[1] >= _MANY
    costs = [_costs(tables, row, grid, sums, many=many) for row in rows]
    forward, reverse, missed = (np.array(part) for part in zip(*costs, strict=True))
    return LabelCosts(grid, forward, reverse, missed, np.asarray(which).reshape(-1))


def missed_probabilities(noise: IntegerNoise, counts: Integers) -> Array:
    """Compute the probability that each label is not the likeliest class, rounded up: (Q, C) counts → (Q,)."""
    # equal rows are computed again: their number is private, and the time would reveal it
    tables = _build_tables(noise, counts.shape[1])
    return np.array([_histogram(tables, row).missed for row in np.sort(counts.astype(np.int64), axis=1)])


class _Tables:
    """F̃ and h and their changes by one vote, by distance from a count; ``depth`` nats deepen all cuts."""

    def __init__(self, noise: IntegerNoise, classes: int, finer: int = 1, depth: float = 0.0) -> None:
        self.noise, self.classes, self.finer, self.depth = noise, classes, finer, depth
        # the noise exceeds the reach, on either side, with a probability below e^{−66 − depth}
        beyond = depth - _LOG_CUT + math.log(2.0 * noise.deviation + 2.0)
        self.reach = reach = max(find_reach(noise, sign, beyond) for sign in (1, -1))
        enough = finer * next(nodes for least, nodes in _NODES if noise.deviation >= least)
        exact = -(-classes // 2)
        nodes, weights = unit_rule(min(enough, exact))
        self.nodes, self.log_weights = nodes.size, np.log(weights)
        # log f(x) and log F(x − 1) for x from −reach − 2 to 3·reach + 2; a tabulated class is at most 2·reach behind
        logs, inside = tabulate_log_masses(noise, -3 * reach - 3, 3 * reach + 3), slice(2 * reach + 1, -1)
        masses, below = logs[inside], np.minimum(log_below(logs)[inside], 0.0)
        self.log_F = np.logaddexp(below[:, None], np.log(nodes) + masses[:, None])  # (distances, nodes)
        self.log_h = masses[:, None] - self.log_F
        self.rest = None  # for an exact rule
        if exact > enough:  # the f/F(⌊u⌋ − 1) after a vote was gained, the terms of H
            ratio = np.exp(masses - below)
            self.rest = np.append(ratio[:1], ratio[:-1])
        self.difference = NoiseDifference(noise.sigma) if isinstance(noise, DiscreteGaussian) else None
        self.log_tails = self._log_tails(np.exp(masses[2 : 2 * reach + 3]))
        # the least gap at which a class wins with probability at most e^{−36 − depth}
        self.far = int(np.argmax(self.log_tails <= _LOG_FAR - depth))

    @cached_property
    def changes(self) -> list[Array]:
        """Factors of F̃, then h, after a vote is lost and gained: (distances, nodes)."""
        factors = []
        for values in (self.log_F, self.log_h):
            lost = np.append(values[1:], values[-1:], axis=0) - values
            gained = np.append(values[:1], values[:-1], axis=0) - values
            factors += [np.exp(lost), np.exp(gained)]
        return factors

    def _log_tails(self, masses: Array) -> Array:
        """Bound log Pr[D ≥ g] from g = 0 on."""
        if self.difference is not None:
            return self.difference.log_tails[-self.difference.first :]
        if isinstance(self.noise, DiscreteLaplace):
            return laplace_log_tails(np.arange(2 * self.reach + 2), self.noise.gamma, "discrete")
        differences = np.convolve(masses, masses[::-1])
        tails = np.cumsum(differences[::-1])[::-1][2 * self.reach :]
        return np.log(tails + math.exp(_LOG_CUT))

    def at(self, table: Array, gap: int) -> Array:
        """Read a table at all nodes for a class ``gap`` votes behind the top."""
        return table[gap + 2 : gap + 2 * self.reach + 3].reshape(-1)

    def event(self, log_probability: float, orders: Array, sums: Array | None) -> tuple[Array, Array]:
        """Bound the log of the contribution of an unlikely event, both ways: (L,) each."""
        if sums is None or self.difference is None or log_probability == -math.inf:
            loss = 2.0 * self.noise.gamma if isinstance(self.noise, DiscreteLaplace) else 0.0
            return log_probability + loss * (orders - 1.0), log_probability + loss * orders
        index = self.difference.find_index(log_probability)
        return sums[:, index], sums[:, max(index - 2, 0)]


_build_tables = lru_cache(maxsize=16)(_Tables)


# log-probabilities of groups of classes, one row a move: before it, bounds on those after it from below and above
# (equal where neither class is far behind), and the size of each group
_Moves = tuple[Array, Array, Array, Array]


class _Histogram:
    """The law of one label by groups of equal counts, the top last; in a move, index `groups` is a class far behind."""

    def __init__(self, tables: _Tables, row: Integers) -> None:
        values, sizes = np.unique(row, return_counts=True)
        gaps = values[-1] - values
        far = gaps >= tables.far
        self.tables = tables
        self.gaps, self.sizes = gaps, sizes
        self.near, self.counts = gaps[~far], sizes[~far].astype(np.float64)
        self.groups = int(self.near.size)
        self.voted = values[~far] > 0
        self.far, self.far_voted = int(sizes[far].sum()), bool(np.any(far & (values > 0)))
        behind = tables.log_tails[np.minimum(gaps[far], tables.log_tails.size - 1)]
        self.log_far_mass = float(np.logaddexp.reduce(np.log(sizes[far]) + behind)) if np.any(far) else -math.inf
        product = np.tile(tables.log_weights, 2 * tables.reach + 1)
        for gap, size in zip(gaps, sizes, strict=True):
            if gap <= 2 * tables.reach:
                product += size * tables.at(tables.log_F, gap)
        logs = self._rows(tables.log_h) + product
        self.scales = logs.max(axis=1)
        self.weights = np.exp(logs - self.scales[:, None])
        self.before = np.log(self.weights.sum(axis=1)) + self.scales
        self.error = _ROUNDING + self._rule_error()

    @property
    def missed(self) -> float:
        law = np.exp(self.before)
        others = float(law[:-1] @ self.counts[:-1] + law[-1] * (self.counts[-1] - 1.0))
        return min(max(others * (1.0 + self.error) + math.exp(self.log_far_mass), LEAST_MISSED), 1.0)

    def pairs(self) -> NDArray[np.bool_]:
        exist = np.ones((self.groups + 1, self.groups + 1), dtype=bool)
        exist[:-1, :-1][np.diag_indices(self.groups)] = self.counts > 1.0
        exist[:-1][~self.voted] = False
        exist[-1] &= self.far_voted
        exist[:, -1] &= self.far > 0
        exist[-1, -1] &= self.far > 1
        return exist

    def moves(self, wanted: NDArray[np.bool_]) -> _Moves:
        """Compute the laws after the wanted moves: groups, loser, gainer."""
        losers, gainers = np.nonzero(wanted)
        before = np.append(self.before, 0.0)
        laws = np.column_stack([np.tile(self.before, (losers.size, 1)), before[losers], before[gainers]])
        classes = np.column_stack([np.tile(self.counts, (losers.size, 1)), losers < self.groups, gainers < self.groups])
        for one in (losers, gainers):
            near = np.flatnonzero(one < self.groups)
            classes[near, one[near]] -= 1.0
        lowest = self._after(wanted, low=True)
        far = bool(wanted[-1].any() or wanted[:, -1].any())
        return laws, lowest, self._after(wanted, low=False) if far else lowest, classes

    def _after(self, wanted: NDArray[np.bool_], *, low: bool) -> Array:
        """Compute the law after each move, with the lower or higher factors of classes far behind."""
        groups, tables = self.groups, self.tables
        up, down, own_up, own_down = (self._rows(table) for table in tables.changes)
        ones = np.ones((1, self.weights.shape[1]))
        lose = np.vstack([up, ones if low else tables.at(tables.changes[0], tables.far)])
        gain = np.vstack([down, tables.at(tables.changes[1], tables.far) if low else ones])
        parts = []
        for loser in np.flatnonzero(wanted.any(axis=1)):
            gainers = np.flatnonzero(wanted[loser])
            factors = lose[loser] * gain[gainers]
            after = np.full((gainers.size, groups + 2), -np.inf)
            after[:, :groups] = np.log(factors @ self.weights.T) + self.scales
            if loser < groups:
                after[:, groups] = np.log(factors @ (self.weights[loser] * own_up[loser])) + self.scales[loser]
            near = gainers[gainers < groups]  # the first ones
            own = np.einsum("ij,ij->i", factors[: near.size], self.weights[near] * own_down[near])
            after[: near.size, groups + 1] = np.log(own) + self.scales[near]
            parts.append(after)
        return np.concatenate(parts)

    def _rows(self, table: Array) -> Array:
        return np.array([self.tables.at(table, gap) for gap in self.near])

    def _rule_error(self) -> float:
        tables = self.tables
        if tables.rest is None:
            return 0.0
        nodes = tables.nodes
        total = np.zeros(2 * tables.reach + 1)
        for gap, size in zip(self.gaps, self.sizes, strict=True):
            if gap <= 2 * tables.reach:
                total += size * tables.at(tables.rest, gap)
        with np.errstate(divide="ignore"):
            beyond = 2 * nodes * np.log(total) - math.lgamma(2 * nodes + 1) + total
        relative = np.exp(np.minimum(beyond, 700.0)) / (2 * nodes + 1)
        shares = self.weights.reshape(self.groups, total.size, nodes).sum(axis=2)
        return 2.0 * float(np.max(shares @ relative / shares.sum(axis=1)))


def _costs(
    tables: _Tables, row: Integers, orders: Array, sums: Array | None, *, many: bool
) -> tuple[Array, Array, float]:
    votes = _histogram(tables, row)
    event = tables.event(votes.log_far_mass, orders, sums)
    exist = votes.pairs()
    top = votes.groups - 1
    of_top = np.zeros_like(exist)
    of_top[top], of_top[:, top] = exist[top], exist[:, top]
    others = exist & ~of_top
    worst = _bound_divergences(votes.moves(of_top), orders, event, votes.error)
    if others.any() and many:
        likely = np.append(np.exp(votes.before), math.exp(votes.log_far_mass)) * (1.0 + votes.error)
        others &= ~_skipped(tables.noise, likely[:, None] + likely, orders, np.minimum(*worst))
    if others.any():
        worst = np.maximum(worst, _bound_divergences(votes.moves(others), orders, event, votes.error))
    return worst[0], worst[1], votes.missed


def _histogram(tables: _Tables, row: Integers) -> _Histogram:
    votes = _Histogram(tables, row)
    while votes.error > _LARGEST_ERROR:  # the rule is exact for C/2 nodes
        finer = _build_tables(tables.noise, tables.classes, 2 * votes.tables.finer, tables.depth)
        votes = _Histogram(finer, row)
    return votes


def _skipped(noise: IntegerNoise, likely: Array, orders: Array, known: Array) -> NDArray[np.bool_]:
    skipped = np.ones(likely.shape, dtype=bool)
    for order, cost in zip(orders.tolist(), known.tolist(), strict=True):
        excess = np.interp(likely, *others_majorant(noise, order))
        skipped &= np.log1p(excess) / (order - 1.0) <= cost
    return skipped


def _bound_divergences(moves: _Moves, orders: Array, event: tuple[Array, Array], error: float) -> Array:
    """Compute the largest divergences, forward and in reverse, rounded up: (2, L)."""
    worst = []
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        before, lowest, highest, classes = moves
        log_sizes = np.log(classes)
        for p, q, added in ((before, lowest, event[0]), (highest, before, event[1])):
            sums = log_renyi_sums(p + log_sizes, q + log_sizes, orders).max(axis=1)
            values = np.logaddexp(sums, added) / (orders - 1.0) + (2.0 * orders - 1.0) / (orders - 1.0) * error
            worst.append(np.where(np.isnan(values), np.inf, np.maximum(values, 0.0)))
    return np.array(worst)
