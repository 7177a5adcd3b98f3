"""What the label of a noisy maximum costs at given votes: the worst divergence over all neighbors, in both directions.

With f and F the probabilities and the distribution function of the integer noise and ties shared evenly, that is by a
uniform V in [0, 1) for each class, F̃(u) = Pr[X + V ≤ u] = F(⌊u⌋ − 1) + (u − ⌊u⌋)·f(⌊u⌋) and h(u) = f(⌊u⌋)/F̃(u),

    Pr[c wins] = Σ_x ∫_0^1 h(x + v − n_c)·Π_j F̃(x + v − n_j) dv,

and a vote that moves from a to b multiplies the product by F̃(u − n_a + 1)/F̃(u − n_a) · F̃(u − n_b − 1)/F̃(u − n_b).
All terms are positive, so sums err relatively; classes with equal counts have equal laws and are computed once.

- **The integral.** Π_j (1 + v·f_j/F_j) has positive coefficients, at most H^k/k! each where H is the sum of the f_j/F_j
  (at ⌊u⌋ and below it); Gauss and Legendre's rule with m nodes is exact below degree 2m, and errs by at most
  1/(2m + 1) of what is beyond. That part of the integral is computed with it and charged; where it is not tiny there
  are more nodes.
- **Classes far behind**, which win with a probability of at most e^{−36} each, are one event: `MovedVote` bounds what
  it adds for Gaussian noise, a loss of at most 2γ what it adds for Laplace noise. As a or b of a move they multiply the
  product by something between 1 and the factor of a class that is just so far behind: F is log-concave, so that factor
  is monotone. The end that is worse is charged.
- **Moves between others than the top** are left out, where there are many, if `missed_label` shows that they are not
  the worst at any order.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.errors import checks
from darrm.losses.label_laws import MovedVote
from darrm.losses.missed_label import others_majorant
from darrm.probability import Array
from darrm.probability.integer_noise import DiscreteGaussian, DiscreteLaplace, IntegerNoise

_LOG_FAR, _LOG_CUT = -36.0, -66.0  # of a class that counts as far behind; of the noise that is left out
WIDEST = 1000.0  # votes of deviation: beyond, an answer takes too long
# relative, of each probability: sums of up to 2^16 products of some hundred factors, whose logs err by 2^-50
_ROUNDING = 4e-12
_LARGEST_ERROR = 1e-7  # relative, of the rule; the scale of votes relies on it
_NODES = ((64.0, 3), (16.0, 4), (8.0, 6), (0.0, 16))  # to a vote, for a deviation of at least so many votes
_MANY = 1 << 18  # histograms times classes squared: from here on moves that cannot be the worst are looked for
_TERMS_AT_ONCE = 1 << 20
LEAST_MISSED = math.exp(-30.0)  # the least probability of another answer that is told
SmallNoise = DiscreteGaussian | DiscreteLaplace


@dataclass(frozen=True, eq=False)
class LabelCosts:
    """What each of Q labels costs at L orders, rounded up, in nats; **private data**."""

    orders: Array  # (L,)
    forward: Array  # (U, L) worst D(M(votes) ‖ M(neighbor)) of each different histogram
    reverse: Array  # (U, L) worst D(M(neighbor) ‖ M(votes))
    missed: Array  # (U,) chance that the label is not the likeliest class, rounded up, at least about 1e-12
    which: NDArray[np.int64]  # (Q,) the histogram of each query

    def times(self, weights: Array, queries: slice = slice(None)) -> Array:
        """Return how often each different histogram counts where each of some queries counts so often: (U,)."""
        times = np.bincount(self.which[queries], weights=weights[queries], minlength=len(self.missed))
        return times.astype(np.float64)

    @property
    def both(self) -> Array:
        """(U, L) the larger of both directions."""
        return np.maximum(self.forward, self.reverse)


def exactly_charged(noise: object) -> bool:
    """Return whether `label_costs` knows this noise."""
    return isinstance(noise, DiscreteGaussian | DiscreteLaplace) and noise.deviation <= WIDEST


def label_costs(noise: SmallNoise, histograms: ArrayLike, orders: ArrayLike) -> LabelCosts:
    """Compute what each label costs at its votes, against every neighbor that moves one vote.

    (Q, C) vote counts and (L,) increasing orders above 1; `ValueError` if they are malformed, or the noise is too wide.

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
        found = checks.Found(f"shape {counts.shape}, dtype {counts.dtype}")
        checks.fail("histograms", found, "vote counts, one row a query")
    rows, which = np.unique(np.sort(counts.astype(np.int64), axis=1), axis=0, return_inverse=True)
    # a class of Laplace noise that is behind loses at most so many nats at each order: it is looked at closer
    depth = 2.0 * noise.gamma * float(grid[-1]) if isinstance(noise, DiscreteLaplace) else 0.0
    tables = _tables_of(noise, rows.shape[1], depth=depth)
    sums = tables.event_sums(grid)
    many = rows.size * rows.shape[1] >= _MANY
    costs = [_costs(tables, row, grid, sums, many=many) for row in rows]
    forward, reverse, missed = (np.array(part) for part in zip(*costs, strict=True))
    return LabelCosts(grid, forward, reverse, missed, np.asarray(which).reshape(-1))


def missed_probabilities(noise: IntegerNoise, counts: NDArray[np.int64]) -> Array:
    """Compute the probability that each label is not the likeliest class, rounded up: (Q, C) counts → (Q,).

    >>> missed_probabilities(DiscreteGaussian(40.0), np.array([[240, 10, 0], [150, 60, 40]])).round(6).tolist()
    [3.5e-05, 0.073617]
    """
    rows, which = np.unique(np.sort(counts.astype(np.int64), axis=1), axis=0, return_inverse=True)
    tables = _tables_of(noise, rows.shape[1])
    return np.array([_histogram(tables, row).missed for row in rows])[np.asarray(which).reshape(-1)]


@lru_cache(maxsize=16)
def _tables_of(noise: IntegerNoise, classes: int, finer: int = 1, depth: float = 0.0) -> "_Tables":
    return _Tables(noise, classes, finer, depth)


@dataclass(frozen=True)
class _Tables:
    """F̃, h and what one vote changes of them at the nodes, over how far a whole number lies above a count."""

    noise: IntegerNoise
    classes: int
    finer: int  # so many times the usual nodes
    depth: float  # nats: so much less likely than else is what counts as far behind, and what is left out

    @cached_property
    def reach(self) -> int:
        """The noise is beyond so many votes, on either side, with a probability below e^{−66 − depth}."""
        step, reach = max(1, int(self.noise.deviation / 8.0)), 1
        beyond = _LOG_CUT - self.depth - math.log(2.0 * self.noise.deviation + 2.0)
        while np.max(self.noise.log_weights(np.array([-reach, reach]))) > beyond:
            reach += step
        return reach

    @cached_property
    def rule(self) -> tuple[Array, Array, bool]:
        """Nodes in [0, 1), weights, and whether the rule is exact for so many classes."""
        deviation = self.noise.deviation
        enough = self.finer * next(nodes for least, nodes in _NODES if deviation >= least)
        exact = -(-self.classes // 2)
        nodes, weights = np.polynomial.legendre.leggauss(min(enough, exact))
        return (nodes + 1.0) / 2.0, weights / 2.0, exact <= enough

    @cached_property
    def lags(self) -> NDArray[np.int64]:
        """Whole numbers minus a count: a class that is in the tables is at most 2·`reach` votes behind."""
        return np.arange(-self.reach - 2, 3 * self.reach + 3)

    @cached_property
    def log_masses(self) -> Array:
        """Log f at the lags."""
        around = np.arange(-3 * self.reach - 3, 3 * self.reach + 4)
        return np.asarray(
            self.noise.log_weights(self.lags) - np.logaddexp.reduce(self.noise.log_weights(around)), dtype=np.float64
        )

    @cached_property
    def log_below(self) -> Array:
        """Log F(⌊u⌋ − 1) at the lags."""
        first = int(self.lags[0])
        lower = np.arange(first - 2 * self.reach, first)
        total = np.logaddexp.reduce(self.noise.log_weights(np.arange(-3 * self.reach - 3, 3 * self.reach + 4)))
        start = np.logaddexp.reduce(self.noise.log_weights(lower)) - total
        sums = np.logaddexp.accumulate(np.concatenate([[start], self.log_masses[:-1]]))
        return np.asarray(np.minimum(sums, 0.0))

    @cached_property
    def log_F(self) -> Array:
        """Log F̃ at the nodes of the lags: (lags, nodes)."""
        nodes = np.log(self.rule[0])
        return np.logaddexp(self.log_below[:, None], nodes + self.log_masses[:, None])

    @cached_property
    def log_h(self) -> Array:
        """Log h at the nodes of the lags: (lags, nodes)."""
        return self.log_masses[:, None] - self.log_F

    @cached_property
    def changes(self) -> tuple[Array, Array, Array, Array]:
        """F̃ and h after the count has lost a vote over those before, and after it has gained one: (lags, nodes)."""
        factors = []
        for values in (self.log_F, self.log_h):
            lost, gained = np.zeros_like(values), np.zeros_like(values)
            lost[:-1], gained[1:] = values[1:] - values[:-1], values[:-1] - values[1:]
            factors += [np.exp(lost), np.exp(gained)]
        return factors[0], factors[1], factors[2], factors[3]

    @cached_property
    def log_tails(self) -> Array:
        """Bound log Pr[D ≥ g] of the difference of two noises, for g from 0 on."""
        if isinstance(self.noise, DiscreteGaussian):
            law = MovedVote(self.noise.sigma)
            return law.log_tails[-law.first :]
        if isinstance(self.noise, DiscreteLaplace):  # Pr[D = k] = c²·r^k·(k + (1 + r²)/(1 − r²)), c = (1 − r)/(1 + r)
            gamma, gaps = self.noise.gamma, np.arange(2 * self.reach + 2)
            less = -math.expm1(-gamma)
            inner = (gaps + 1.0 / math.tanh(gamma)) / less + math.exp(-gamma) / less**2
            return np.asarray(np.minimum(np.log(inner) - gaps * gamma + 2.0 * math.log(math.tanh(gamma / 2.0)), 0.0))
        masses = np.exp(self.log_masses[2 : 2 * self.reach + 3])
        differences = np.convolve(masses, masses[::-1])
        tails = np.cumsum(differences[::-1])[::-1][2 * self.reach :]
        return np.log(tails + math.exp(_LOG_CUT))

    @cached_property
    def far(self) -> int:
        """How many votes behind the first a class wins with probability at most e^{−36 − depth}."""
        return int(np.argmax(self.log_tails <= _LOG_FAR - self.depth))

    @cached_property
    def rest(self) -> Array | None:
        """The f/F(⌊u⌋ − 1) after a vote was gained, of which H is made; None where the rule is exact."""
        if self.rule[2]:
            return None
        ratio = np.exp(self.log_masses - self.log_below)
        return np.append(ratio[:1], ratio[:-1])

    def at(self, table: Array, gap: int) -> Array:
        """Read a table at all nodes for a class that is so many votes behind the top."""
        first = gap + 2
        return table[first : first + 2 * self.reach + 1].reshape(-1)

    def event_sums(self, orders: Array) -> Array | None:
        """Return the tables of `MovedVote.log_sums` for Gaussian noise: (L, …)."""
        if not isinstance(self.noise, DiscreteGaussian):
            return None
        law = MovedVote(self.noise.sigma)
        return np.array([law.log_sums(float(order), 1) for order in orders])

    def event(self, log_probability: float, orders: Array, sums: Array | None) -> tuple[Array, Array]:
        """Bound the logarithm of what an event of at most such a probability adds, both ways: (L,) each."""
        if log_probability == -math.inf:
            return np.full_like(orders, -np.inf), np.full_like(orders, -np.inf)
        if isinstance(self.noise, DiscreteLaplace):
            loss = 2.0 * self.noise.gamma
            return log_probability + loss * (orders - 1.0), log_probability + loss * orders
        if sums is None or not isinstance(self.noise, DiscreteGaussian):
            return np.full_like(orders, np.inf), np.full_like(orders, np.inf)
        index = MovedVote(self.noise.sigma).index_of(log_probability)
        return sums[:, index], sums[:, max(index - 2, 0)]


@dataclass(frozen=True, eq=False)
class _Moves:
    before: Array
    lowest: Array  # bounds on the law after the move, equal where a and b are not far behind
    highest: Array
    classes: Array


class _Histogram:
    # The groups that are not far behind come first in the order of their counts, the top last of them; `FAR` stands for
    # one class of those that are far behind.

    def __init__(self, tables: _Tables, row: NDArray[np.int64]) -> None:
        values, sizes = np.unique(row, return_counts=True)
        gaps = values[-1] - values
        far = gaps >= tables.far
        self.tables = tables
        self.gaps, self.sizes = gaps, sizes
        self.near, self.counts = gaps[~far], sizes[~far].astype(np.float64)
        self.voted = values[~far] > 0
        self.far, self.far_voted = int(sizes[far].sum()), bool(np.any(far & (values > 0)))
        behind = tables.log_tails[np.minimum(gaps[far], tables.log_tails.size - 1)]
        self.log_far_mass = float(np.logaddexp.reduce(np.log(sizes[far]) + behind)) if np.any(far) else -math.inf
        product = np.tile(np.log(tables.rule[1]), 2 * tables.reach + 1)
        for gap, size in zip(gaps, sizes, strict=True):
            if gap <= 2 * tables.reach:
                product += size * tables.at(tables.log_F, gap)
        logs = self._rows(tables.log_h) + product
        self.scales = logs.max(axis=1)
        self.weights = np.exp(logs - self.scales[:, None])
        self.before = np.log(self.weights.sum(axis=1)) + self.scales
        self.error = _ROUNDING + self._remainder()

    @cached_property
    def changes(self) -> tuple[Array, Array, Array, Array]:
        """What a move changes of the product for its loser and its gainer, and of the hazard of each."""
        up, down, own_up, own_down = (self._rows(table) for table in self.tables.changes)
        return up, down, own_up, own_down

    @property
    def groups(self) -> int:
        """How many groups are not far behind; also the index of `FAR` among the gainers."""
        return int(self.near.size)

    @property
    def missed(self) -> float:
        """Bound the probability that the label is not the likeliest class."""
        law = np.exp(self.before)
        others = float(law[:-1] @ self.counts[:-1] + law[-1] * (self.counts[-1] - 1.0))
        return min(max(others * (1.0 + self.error) + math.exp(self.log_far_mass), LEAST_MISSED), 1.0)

    def pairs(self) -> NDArray[np.bool_]:
        """Tell which moves exist: (losers, gainers), the far ones last."""
        exist = np.ones((self.groups + 1, self.groups + 1), dtype=bool)
        exist[:-1, :-1][np.diag_indices(self.groups)] = self.counts > 1.0
        exist[:-1][~self.voted] = False
        exist[-1] &= self.far_voted
        exist[:, -1] &= self.far > 0
        exist[-1, -1] &= self.far > 1
        return exist

    def moves(self, wanted: NDArray[np.bool_]) -> _Moves:
        """Compute the laws after the moves that are wanted, (losers, gainers)."""
        parts = [self._moves_from(loser, np.flatnonzero(row)) for loser, row in enumerate(wanted) if row.any()]
        return _Moves(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def _moves_from(self, loser: int, gainers: NDArray[np.intp]) -> tuple[Array, ...]:
        groups, tables, (up, lower, own_up, own_down) = self.groups, self.tables, self.changes
        far = loser == groups
        ones = np.ones(self.weights.shape[1])
        inside = np.flatnonzero(gainers < groups)
        down = lower[gainers[inside]]
        afters = []
        for low in (True, False):
            factors = np.empty((gainers.size, ones.size))
            factors[inside] = down
            if inside.size < gainers.size:
                factors[inside.size :] = tables.at(tables.changes[1], tables.far) if low else ones
            if far:
                factors *= ones if low else tables.at(tables.changes[0], tables.far)
            else:
                factors *= up[loser]
            after = np.full((gainers.size, groups + 2), -np.inf)
            after[:, :groups] = np.log(factors @ self.weights.T) + self.scales
            if not far:
                after[:, groups] = np.log(factors @ (self.weights[loser] * own_up[loser])) + self.scales[loser]
            own = self.weights[gainers[inside]] * own_down[gainers[inside]]
            sums = np.einsum("ij,ij->i", factors[inside], own)
            after[inside, groups + 1] = np.log(sums) + self.scales[gainers[inside]]
            afters.append(after)
            if inside.size == gainers.size and not far:
                afters.append(after)
                break
        before = np.tile(np.append(self.before, [0.0, 0.0]), (gainers.size, 1))
        classes = np.tile(np.append(self.counts, [0.0, 0.0]), (gainers.size, 1))
        if not far:
            before[:, groups] = self.before[loser]
            classes[:, loser] -= 1.0
            classes[:, groups] = 1.0
        before[inside, groups + 1] = self.before[gainers[inside]]
        classes[inside, gainers[inside]] -= 1.0
        classes[inside, groups + 1] = 1.0
        return before, afters[0], afters[1], classes

    def _rows(self, table: Array) -> Array:
        return np.array([self.tables.at(table, gap) for gap in self.near])

    def _remainder(self) -> float:
        tables = self.tables
        if tables.rest is None:
            return 0.0
        nodes = tables.rule[0].size
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
    tables: _Tables, row: NDArray[np.int64], orders: Array, sums: Array | None, *, many: bool
) -> tuple[Array, Array, float]:
    votes = _histogram(tables, row)
    added = tables.event(votes.log_far_mass, orders, sums)
    exist = votes.pairs()
    top = votes.groups - 1
    of_top = np.zeros_like(exist)
    of_top[top], of_top[:, top] = exist[top], exist[:, top]
    others = exist & ~of_top
    worst = _both(votes.moves(of_top), orders, added, votes.error)
    if others.any():
        if many:
            likely = np.append(np.exp(votes.before), math.exp(votes.log_far_mass)) * (1.0 + votes.error)
            others &= ~_skipped(tables.noise, likely[:, None] + likely, orders, np.minimum(*worst))
        if others.any():
            also = _both(votes.moves(others), orders, added, votes.error)
            worst = np.maximum(worst[0], also[0]), np.maximum(worst[1], also[1])
    return worst[0], worst[1], votes.missed


def _histogram(tables: _Tables, row: NDArray[np.int64]) -> _Histogram:
    votes = _Histogram(tables, row)
    while votes.error > _LARGEST_ERROR:  # the rule is exact for C/2 nodes
        finer = _tables_of(tables.noise, tables.classes, 2 * votes.tables.finer, tables.depth)
        votes = _Histogram(finer, row)
    return votes


def _skipped(noise: IntegerNoise, likely: Array, orders: Array, known: Array) -> NDArray[np.bool_]:
    skipped = np.ones(likely.shape, dtype=bool)
    for order, cost in zip(orders.tolist(), known.tolist(), strict=True):
        excess = np.interp(likely, *others_majorant(noise, order))
        skipped &= np.log1p(excess) / (order - 1.0) <= cost
    return skipped


def _both(moves: _Moves, orders: Array, added: tuple[Array, Array], error: float) -> tuple[Array, Array]:
    """Find the largest divergences over the moves at each order, forward and in reverse, rounded up: (L,) each."""
    counted = moves.classes > 0.0
    less = orders - 1.0
    block = max(1, _TERMS_AT_ONCE // moves.classes.size)
    worst = []
    for first, second, far in ((moves.before, moves.lowest, added[0]), (moves.highest, moves.before, added[1])):
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            start = np.where(counted, first, -np.inf) + np.log(moves.classes)
            ratio = np.where(counted, first - second, 0.0)
            sums = np.empty(orders.size)
            for low in range(0, orders.size, block):
                logs = start + less[low : low + block, None, None] * ratio
                top = logs.max(axis=2)
                sums[low : low + block] = (np.log(np.exp(logs - top[..., None]).sum(axis=2)) + top).max(axis=1)
            values = np.logaddexp(sums, far) / less + (2.0 * orders - 1.0) / less * error
        worst.append(np.where(np.isnan(values), np.inf, np.maximum(values, 0.0)))
    return worst[0], worst[1]
