"""A bound c(q) on the cost of a label that depends only on q, the probability of not being the likeliest class.

Let q be the probability that the label is not the class that is most likely to win (the top), α the order, and
E = exp((α − 1)·D_α), in either direction, of the label before and after one vote moves.

**Theorem (a move from or to the top, Gaussian noise).** E is at most the concave majorant, at q, of the E of threshold
tests on D: four families, for a lost or a won vote and for both directions. *Proof.* The label is drawn from D, the
difference of the noises of the two classes of the move (`NoiseDifference`), and Pr[top | D = k] is monotone in k: given
D = k the other of the two counts has a law ∝ f(x)·f(x − k), whose likelihood ratio in k is monotone for log-concave f.
A monotone function with mean 1 − q is a mixture of thresholds. By joint convexity E is at most the mixture of the E of
"top from the threshold on, and D itself before it". ∎

**Theorem (a move between two other classes a and b, any noise).** E is at most the concave majorant, at q, over all
pairs of levels, of E_a·E_b + R_a·R_b. Here E_a and E_b belong to the bits "a, or b, reaches its level", and R_a, R_b
are the sums Σ f^α·f'^{1−α} over the noise beyond the levels. *Proof.* Given the noisy counts of all other classes, the
best of them is a known level, and two independent bits tell whether a and b reach it. If at most one does, the bits
determine the label; otherwise reveal both counts. The mean over the level of "a or b wins" is at most q. ∎ It also
holds for every pair of classes with q = Pr[a] + Pr[b].

One vote changes q = t(κ) to at most t(κ − 2), which bounds the change of the cost.

**Theorem (any noise).** Let L be the loss of the two noisy counts of a move. An event of probability q before the move
has probability at most N(q) after it, and its outcomes add at most A(q) to E, where N and A fill an event with the
least and with the largest losses first (Neyman and Pearson). So E is at most (1 − q)^α·(1 − N(q))^{1−α} + A(q), and
likewise in reverse. `MislabelBoundByLosses` reads these from the law of L, rounded to a grid in the safe direction. For
Gaussian noise the first two theorems are tighter.

(`tests/noisy_max/test_cost_given_votes.py`)
"""

import math
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from darrm.noisy_max.label_cost import label_curve
from darrm.noisy_max.noise_law import NoiseDifference, log_above, log_below, tabulate_log_masses
from darrm.numerics import Array
from darrm.numerics.integer_noise import DiscreteGaussian, IntegerNoise

Curve = tuple[Array, Array]  # increasing places, and the values there; linear between them

_ROUNDING, _TINY = 1e-9, 1e-15  # relative and absolute, of E − 1: sums of 2^16 positive terms, and 1 − 1
_ARGUMENT_ERROR = 1e-6  # relative: more than the error of a computed q
_BLOCKS_PER_DEVIATION = 16.0  # blocks of levels to a deviation
_BINS = 4096  # of log q
_SMALLEST_LOG_Q = -45.0
_LEVEL_REACH = 13.0  # deviations: levels beyond have a probability below e^{−80}
_TABLE_SHARE = 2.0 / 3.0  # of the tables of `NoiseDifference`: 20σ
_SUBDIVISIONS = 16  # of one κ: one extra cell is 3 % of a vote
_LOG_CUT = -80.0  # of the noise outside the table, weighted as at the order
_LOG_UNDERFLOW = -345.0  # log of a mass: the product of two larger masses is a float
_LOSS_STEP, _MAX_LOSS_CELLS = 1e-3, 8192.0  # of the grid of losses, over the order; cells of one count at most
_STEPS_PER_VOTE = 32
_MAX_LEVEL_REACH = 40.0  # deviations: more levels, for higher orders, would fill the memory


class MislabelBound:
    """c(q) at one order, and its change by one vote."""

    noise: IntegerNoise
    order: float

    def cost(self, missed: Array) -> Array:
        """Bound the cost of labels by their q, elementwise; increasing."""
        costs = np.log1p(self.excess(missed)) / (self.order - 1.0)
        return np.asarray(np.minimum(costs, self.ceiling))

    def excess(self, missed: Array) -> Array:
        """Bound E − 1; ∞ where only the ceiling is known."""
        raise NotImplementedError

    @cached_property
    def ceiling(self) -> float:
        """The largest cost of a label, for any votes."""
        return label_curve(self.noise).bound_at(self.order)

    @property
    def places(self) -> tuple[Array, int]:
        """Decreasing probabilities; one vote changes each to at most the one ``shift`` places before."""
        raise NotImplementedError

    @cached_property
    def after_one_vote(self) -> Curve:
        """Vertices of a concave increasing U, the cost after a vote by that before; U(0) = 0, for fewer queries."""
        low, high, shift = self.costs_at_places
        return majorant(np.append(0.0, low[shift + 1 :]), np.append(0.0, high[: -shift - 1]))

    @property
    def least(self) -> float:
        """Approximately the smallest cost; smaller costs count as this one."""
        return float(self.costs_at_places[0][-1])

    @cached_property
    def costs_at_places(self) -> tuple[Array, Array, int]:
        """Bounds on the cost at each place from below and above, and the shift."""
        q, shift = self.places
        return self.cost(q * (1.0 - _ARGUMENT_ERROR)), self.cost(np.minimum(q * (1.0 + _ARGUMENT_ERROR), 1.0)), shift


class GaussianMislabelBound(MislabelBound):
    """c(q) at one order for discrete Gaussian noise of σ votes, any tie rule; beyond order 8σ the ceiling.

    >>> bound = GaussianMislabelBound(40.0, 20.0)
    >>> bound.cost(np.array([1e-4, 0.03, 0.5])).round(6).tolist()
    [6.6e-05, 0.003755, 0.008127]
    """

    def __init__(self, sigma: float, order: float) -> None:
        self.noise, self.order, self._law = DiscreteGaussian(sigma), order, NoiseDifference(sigma)

    def excess(self, missed: Array) -> Array:
        if not self._law.covers(self.order):
            return np.full(np.shape(missed), np.inf)
        other_curve = others_majorant(self.noise, self.order)
        excess = np.maximum(np.interp(missed, *self._top), np.interp(missed, *other_curve))
        return np.asarray(excess * (1.0 + _ROUNDING) + _TINY)

    @property
    def places(self) -> tuple[Array, int]:
        """t(κ), with `_SUBDIVISIONS` places for each κ."""
        tails = np.exp(self._law.log_tails)
        kappa = np.arange(0, (tails.size - 1) * _SUBDIVISIONS + 1) / _SUBDIVISIONS
        return np.interp(kappa, np.arange(tails.size), tails), 2 * _SUBDIVISIONS

    def bound_overtaking(self, gaps: NDArray[np.int64]) -> Array:
        """Compute the probability that a class ``gap`` votes behind draws level."""
        return np.asarray(np.exp(self._law.log_tails[np.minimum(gaps, self._law.last) - self._law.first]))

    @cached_property
    def _top(self) -> Curve:
        law, power = self._law, self.order - 1.0
        log_stays = law.log_tails[::-1]  # log(1 − t(κ)) = log t(1 − κ), one place further
        a, b = (np.exp(law.log_sums(self.order, sign)) for sign in (1, -1))
        # beyond these κ the growth of E is negligible (a lower threshold reveals more), and the sums lack terms
        indices = np.arange(-law.first - int(_TABLE_SHARE * law.last), -law.first + int(_TABLE_SHARE * law.last) + 1)
        t = np.exp(law.log_tails[indices])

        def compute_stay_excess(shift_before: int, shift_after: int) -> Array:
            """(1 − t)^α·(1 − t')^{1−α} − 1 for κ shifted before and after the move."""
            log_before, log_after = log_stays[indices - 1 + shift_before], log_stays[indices - 1 + shift_after]
            return np.asarray(np.expm1(log_before + power * (log_before - log_after)))

        with np.errstate(over="ignore", invalid="ignore"):
            families = (
                b[indices] + compute_stay_excess(0, -2),
                a[indices - 2] + compute_stay_excess(-2, 0),
                a[indices] + compute_stay_excess(0, 2),
                b[indices + 2] + compute_stay_excess(2, 0),
            )
        return majorant(np.tile(t, 4), np.nan_to_num(np.concatenate(families), nan=np.inf))


class MislabelBoundByLosses(MislabelBound):
    """c(q) at one order for any noise on each count."""

    def __init__(self, noise: IntegerNoise, order: float) -> None:
        self.noise, self.order, reach = noise, order, int(noise.deviation) + 2
        # widen the table until both laws and the terms at the order have parts below e^{−80} beyond it
        while True:
            logs = self._log_masses = tabulate_log_masses(noise, -reach, reach)
            if np.max(logs[[0, -1]] + order * np.abs(np.diff(logs)[[0, -1]])) < np.max(logs) + _LOG_CUT:
                break
            reach *= 2

    def excess(self, missed: Array) -> Array:
        return np.interp(missed, *self._excess)

    @cached_property
    def places(self) -> tuple[Array, int]:
        """Probabilities: each is N of the one `_STEPS_PER_VOTE` places later; all 1 for unresolved noise."""
        if not self._is_resolved:
            return np.ones(2 * _STEPS_PER_VOTE + 2), _STEPS_PER_VOTE
        N, _, _ = self._sums
        start = math.exp(_SMALLEST_LOG_Q)
        chain = np.geomspace(start, float(np.interp(start, *N)), _STEPS_PER_VOTE, endpoint=False).tolist()
        while chain[-1] < 1.0:
            chain.append(min(float(np.interp(chain[-_STEPS_PER_VOTE], *N)) * (1.0 + _ROUNDING), 1.0))
        chain += [1.0] * (_STEPS_PER_VOTE + 1)  # one vote may change all of them to 1
        return np.array(chain[::-1]), _STEPS_PER_VOTE

    @cached_property
    def _excess(self) -> Curve:
        """A bound on E − 1 by q: on each cell of a grid every term is taken at its larger end."""
        if not self._is_resolved:
            return np.zeros(1), np.full(1, np.inf)
        N, A, least_N = self._sums
        edges = np.append(0.0, np.exp(np.linspace(_SMALLEST_LOG_Q, 0.0, _BINS)))
        low, high, alpha = edges[:-1], edges[1:], self.order
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            stay_logs = alpha * np.log1p(-low) - (alpha - 1.0) * np.log1p(-np.minimum(np.interp(high, *N), 1.0))
            return_logs = alpha * np.log1p(-np.interp(low, *least_N)) - (alpha - 1.0) * np.log1p(-high)
            forward = np.expm1(stay_logs) + np.interp(high, *A[0])
            reverse = np.expm1(return_logs) + np.interp(high, *A[1])
            excess = np.maximum(forward, reverse) * (1.0 + _ROUNDING) + _TINY
        largest = _compute_excess(self.ceiling, self.order)
        return majorant(low, np.minimum(np.nan_to_num(excess, nan=np.inf, posinf=np.inf), largest))

    @cached_property
    def _sums(self) -> tuple[Curve, tuple[Curve, Curve], Curve]:
        """By q: N, the contributions of an event forward and in reverse, and its least probability after."""
        loss, step, masses = self._losses
        with np.errstate(over="ignore", divide="ignore"):
            logs = np.log(masses)
            upper, lower = np.exp(logs - loss), np.exp(logs - loss - step)
            forward, reverse = np.exp(logs + (self.order - 1.0) * (loss + step)), np.exp(logs - self.order * loss)

        def accumulate(values: Array, side: int) -> Curve:
            return np.append(0.0, np.cumsum(masses[::side])), np.append(0.0, np.cumsum(values[::side]))

        return accumulate(upper, 1), (accumulate(forward, -1), accumulate(reverse, 1)), accumulate(lower, -1)

    @cached_property
    def _losses(self) -> tuple[Array, float, Array]:
        """The losses of two counts on a grid, rounded down, its step, and their probabilities."""
        logs = self._log_masses
        masses = np.exp(logs[1:-1])
        count_losses = logs[1:-1] - logs[2:], logs[1:-1] - logs[:-2]
        span = max(float(np.ptp(count_loss)) for count_loss in count_losses)
        step = max(_LOSS_STEP / self.order, span / _MAX_LOSS_CELLS)
        cells = [np.floor(count_loss / step).astype(np.int64) for count_loss in count_losses]
        binned = [np.bincount(cell - cell.min(), weights=masses) for cell in cells]
        total = np.convolve(binned[0], binned[1])
        loss = (np.arange(total.size) + sum(int(cell.min()) for cell in cells)) * step
        return np.asarray(loss, dtype=np.float64), 2.0 * step, np.asarray(total, dtype=np.float64)

    @cached_property
    def _is_resolved(self) -> bool:
        """Whether the relevant masses have float products: false for very narrow noise."""
        logs = self._log_masses
        slopes = np.abs(np.diff(logs))
        log_masses = logs[1:-1]
        log_terms = log_masses + self.order * np.maximum(slopes[1:], slopes[:-1])  # α > 1: N needs less
        small_terms = log_terms[log_masses < _LOG_UNDERFLOW]
        return not small_terms.size or float(np.max(small_terms) + max(np.max(log_terms), 0.0)) < _LOG_CUT / 2.0


@lru_cache(maxsize=64)
def tightest_mislabel_bound(noise: IntegerNoise, order: float) -> MislabelBound:
    return (
        GaussianMislabelBound(noise.sigma, order)
        if isinstance(noise, DiscreteGaussian)
        else MislabelBoundByLosses(noise, order)
    )


@lru_cache(maxsize=256)
def others_majorant(noise: IntegerNoise, order: float) -> Curve:
    """Bound E − 1 of a move of two classes by the probability that one of them wins; constant for large orders."""
    largest = _compute_excess(label_curve(noise).bound_at(order), order)
    reach = int(_LEVEL_REACH * max(noise.deviation, 1.0) * 2.0 + order) + 4
    if reach > _MAX_LEVEL_REACH * max(noise.deviation, 1.0):
        return np.zeros(1), np.array([largest])
    logs = tabulate_log_masses(noise, -reach - 2, reach + 2)
    log_tail = log_above(logs)
    tails, block_least = (log_tail, log_below(logs)), np.exp(log_tail[2:-2])
    # a loses and b wins a vote, forward and in reverse
    pairs = (((0, 1, 1), (0, -1, -1)), ((1, 0, -1), (-1, 0, 1)))
    starts = np.arange(0, block_least.size, max(1, int(noise.deviation / _BLOCKS_PER_DEVIATION)))
    block_least = block_least[np.append(starts[1:], block_least.size) - 1]
    q = block_least[:, None] + block_least - block_least[:, None] * block_least
    edges = np.exp(np.linspace(_SMALLEST_LOG_Q, 0.0, _BINS))
    bins = np.searchsorted(edges, q.ravel(), side="right")
    best = np.zeros(_BINS + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        for pair in pairs:
            (loser, loser_one, loser_both), (winner, winner_one, winner_both) = (
                _compute_bit_moves(logs, tails, order, *move) for move in pair
            )
            excess_a, excess_b = (np.maximum.reduceat(excesses, starts) for excesses in (loser, winner))
            least_a, least_b = (np.minimum.reduceat(excesses, starts) for excesses in (loser_one, winner_one))
            value = excess_a[:, None] + excess_b + excess_a[:, None] * excess_b
            value += loser_both[starts][:, None] * winner_both[starts] - least_a[:, None] * least_b
            np.maximum.at(best, bins, np.minimum(np.nan_to_num(value, nan=np.inf), largest).ravel())
    return majorant(np.append(0.0, edges), best)


def _compute_bit_moves(
    logs: Array, tails: tuple[Array, Array], order: float, start: int, end: int, shift: int
) -> tuple[Array, Array, Array]:
    """Compute E − 1 of the bit X ≥ level after a move, the part of X ≥ level, and Σ f(x)^α·f(x + shift)^{1−α} there."""
    place = np.arange(2, logs.size - 2) + start
    ones, zeros = (np.exp(tail[place] + (order - 1.0) * (tail[place] - tail[place + end - start])) for tail in tails)
    shifted = np.roll(logs, -shift)
    shifted[:1], shifted[-1:] = logs[:1], logs[-1:]  # at the ends the ratio counts as 1
    both_counts = np.exp(np.minimum(log_above(logs + (order - 1.0) * (logs - shifted))[place], 700.0))
    return np.nan_to_num(ones + zeros, nan=np.inf) - 1.0, np.nan_to_num(ones, nan=0.0), both_counts


def _compute_excess(divergence: float, order: float) -> float:
    loss = (order - 1.0) * divergence
    return math.expm1(loss) if loss < 700.0 else math.inf


def majorant(places: Array, values: Array) -> tuple[Array, Array]:
    """Return the vertices of the least concave increasing function above points.

    >>> [part.tolist() for part in majorant(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 2.0, 1.0, 3.0]))]
    [[0.0, 1.0, 3.0], [0.0, 2.0, 3.0]]
    """
    order = np.lexsort((-values, places))
    x, y = places[order], np.maximum.accumulate(values[order])
    is_higher = np.append(True, y[1:] > y[:-1])  # the other points are below an increasing function
    vertices: list[tuple[float, float]] = []
    for point in zip(x[is_higher].tolist(), y[is_higher].tolist(), strict=True):
        while len(vertices) > 1 and _is_below(vertices[-2], vertices[-1], point):
            vertices.pop()
        vertices.append(point)
    return np.array([x for x, _ in vertices]), np.array([y for _, y in vertices])


def _is_below(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    if math.isinf(last[1]):
        return math.isinf(middle[1])
    return (middle[1] - first[1]) * (last[0] - first[0]) <= (last[1] - first[1]) * (middle[0] - first[0])
