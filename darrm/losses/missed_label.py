"""What a label costs at most, given only how likely it is not the likeliest class: c(q), the same for all votes.

Let q be the probability that the label is not the class that is most likely to win (the top), α the order, and
E = exp((α − 1)·D_α), in either direction, of the label before and after one vote moves.

**A move from or to the top.** The label is drawn from D, the difference of the noises of the two classes between which
the vote moves (`MovedVote`), and Pr[top | D = k] is monotone in k: given D = k the other of the two counts has a law
∝ f(x)·f(x − k), whose likelihood ratio in k is monotone for log-concave f. A monotone function with mean 1 − q is a
mixture of thresholds, and joint convexity bounds E by the mixture of the E of "at the threshold or beyond, the top;
before it, D itself": so E(q) is at most the concave majorant over the thresholds, four families of them, for the top
may lose or win a vote, and for both directions.

**A move between others, a and b.** Given the noisy counts of all the rest, whose best stands at a known level, two
independent bits say whether a and b reach it. Where at most one of them does, the bits tell the label; where both do,
let everything be told. So E is at most E_a·E_b + R_a·R_b: the bits' divergences, and the sums Σ f^α·f'^{1−α} over the
noise beyond each level. The mean over the level of "a or b is on top" is at most q: again the concave majorant in q, of
all pairs of levels. This part holds for every noise, and for every pair of classes with q = Pr[a] + Pr[b].

One vote takes q = t(κ) to at most t(κ − 2), see `MovedVote`: with c this bounds how far a cost can move.

**Any noise.** Let L be the loss of the two noisy counts between which a vote moves: a sum of two independent ones. An
event of probability q before the move has one of at most N(q) after it, and its outcomes add at most A(q) to E, where
N and A fill an event with the least and with the largest losses first (Neyman and Pearson). So E is at most
(1 − q)^α·(1 − N(q))^{1−α} + A(q), and likewise in reverse; all of these are read off the law of L, rounded to a grid to
the side that is safe. This is `MissedByLosses`; what stands above says more of Gaussian noise.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from darrm.losses.label import label_curve
from darrm.losses.label_laws import MovedVote
from darrm.probability import Array
from darrm.probability.integer_noise import DiscreteGaussian, IntegerNoise

Curve = tuple[Array, Array]  # increasing places, and the values there; straight between them

_ROUNDING, _TINY = 1e-9, 1e-15  # relative and absolute, of E − 1: sums of 2^16 positive terms, and 1 − 1
_ARGUMENT = 1e-6  # relative: what a computed q may err by, with room
_LEVELS = 16.0  # blocks of levels to a deviation
_BINS = 4096  # of log q
_LEAST_LOG_Q = -45.0
_REACH = 13.0  # deviations: levels beyond have a probability below e^{−80}
_REACH_OF_TOP = 2.0 / 3.0  # of the tables of `MovedVote`: 20σ
_SUBDIVISIONS = 16  # of one κ: a cell more than one vote is 3 % of it
_LOG_CUT = -80.0  # of the noise that is left out, as it counts at the order
_LOG_DEEP = -345.0  # of a mass: the product of two that are larger is a float
_LOSS_STEP, _LOSS_CELLS = 1e-3, 8192.0  # of the grid of losses, over the order; and the most cells of one count's
_STEPS_A_VOTE = 32
_MOST_LEVELS = 40.0  # deviations: higher orders need more levels, and pairs of them would fill the memory


class Missed:
    """c(q) at one order, and how far one vote moves it."""

    order: float

    def cost(self, missed: Array) -> Array:
        """Bound the cost of labels that miss the likeliest class with such probabilities, elementwise; it rises."""
        raise NotImplementedError

    @property
    def ceiling(self) -> float:
        """What a label costs at most, whatever the votes."""
        raise NotImplementedError

    @property
    def places(self) -> tuple[Array, int]:
        """Probabilities that fall, and a number: one vote takes each of them to at most the one so many before."""
        raise NotImplementedError

    @cached_property
    def after_one_vote(self) -> tuple[Array, Array]:
        """Bound the cost after one vote has moved by the cost before: vertices of a concave rising function from 0 on.

        At 0 it is 0, as for a query that is not asked: so n·U(G/n) grows with n, and bounds runs of fewer queries.
        """
        low, high, shift = self.costs_at_places
        return majorant(np.append(0.0, low[shift + 1 :]), np.append(0.0, high[: -shift - 1]))

    @property
    def least(self) -> float:
        """About what a label costs at least; less is counted as that."""
        return float(self.costs_at_places[0][-1])

    @cached_property
    def costs_at_places(self) -> tuple[Array, Array, int]:
        """Bound the cost at each of the places from both sides, for computed q; and the shift of one vote."""
        q, shift = self.places
        return self.cost(q * (1.0 - _ARGUMENT)), self.cost(np.minimum(q * (1.0 + _ARGUMENT), 1.0)), shift


@dataclass(frozen=True)
class MissedLabel(Missed):
    """c(q) at one order for discrete Gaussian noise of σ votes on each count, two or more classes, any tie rule.

    For orders beyond 8σ it is what a label costs at most, whatever the votes.

    >>> bound = MissedLabel(40.0, 20.0)
    >>> bound.cost(np.array([1e-4, 0.03, 0.5])).round(6).tolist()
    [6.6e-05, 0.003755, 0.008127]
    """

    sigma: float
    order: float

    def cost(self, missed: Array) -> Array:
        """Bound the cost of labels that miss the likeliest class with such probabilities, elementwise; it rises."""
        if not MovedVote(self.sigma).summed(self.order):
            return np.full(np.shape(missed), self.ceiling)
        excess = np.maximum(np.interp(missed, *self._top), np.interp(missed, *self._others))
        costs = np.log1p(excess * (1.0 + _ROUNDING) + _TINY) / (self.order - 1.0)
        return np.asarray(np.minimum(costs, self.ceiling))

    @cached_property
    def ceiling(self) -> float:
        """What a label costs at most, whatever the votes."""
        return label_curve(DiscreteGaussian(self.sigma)).bound_at(self.order)

    @property
    def places(self) -> tuple[Array, int]:
        """t(κ), `_SUBDIVISIONS` to one κ, and as many of them as one vote is."""
        tails = np.exp(MovedVote(self.sigma).log_tails)
        where = np.arange(0, (tails.size - 1) * _SUBDIVISIONS + 1) / _SUBDIVISIONS
        return np.interp(where, np.arange(tails.size), tails), 2 * _SUBDIVISIONS

    def overtakes(self, gaps: NDArray[np.int64]) -> Array:
        """Compute how likely a class that is so many votes behind another has no fewer after the noise."""
        law = MovedVote(self.sigma)
        return np.asarray(np.exp(law.log_tails[np.minimum(gaps, law.last) - law.first]))

    @cached_property
    def _top(self) -> tuple[Array, Array]:
        law, less = MovedVote(self.sigma), self.order - 1.0
        hit = law.log_tails[::-1]  # log(1 − t(κ)) = log t(1 − κ), one place further
        a, b = (np.exp(law.log_sums(self.order, sign)) for sign in (1, -1))
        # beyond, E hardly grows (more is told the earlier the threshold is), and the sums lack terms
        inside = np.arange(-law.first - int(_REACH_OF_TOP * law.last), -law.first + int(_REACH_OF_TOP * law.last) + 1)
        t = np.exp(law.log_tails[inside])

        def stays(before: int, after: int) -> Array:
            """(1 − t)^α·(1 − t')^{1−α} − 1 at κ moved by so much."""
            first, second = hit[inside - 1 + before], hit[inside - 1 + after]
            return np.asarray(np.expm1(first + less * (first - second)))

        with np.errstate(over="ignore", invalid="ignore"):
            families = (
                b[inside] + stays(0, -2),
                a[inside - 2] + stays(-2, 0),
                a[inside] + stays(0, 2),
                b[inside + 2] + stays(2, 0),
            )
        return majorant(np.tile(t, 4), np.nan_to_num(np.concatenate(families), nan=np.inf))

    @cached_property
    def _others(self) -> tuple[Array, Array]:
        return others_majorant(DiscreteGaussian(self.sigma), self.order)


@dataclass(frozen=True)
class MissedByLosses(Missed):
    """c(q) at one order for any noise on each count; see the module.

    >>> from darrm.probability.integer_noise import DiscreteLaplace
    >>> bound = MissedByLosses(DiscreteLaplace(0.05), 20.0)
    >>> bound.cost(np.array([1e-6, 1e-3, 0.5])).round(6).tolist()
    [0.0, 0.000461, 0.029148]
    """

    noise: IntegerNoise
    order: float

    def cost(self, missed: Array) -> Array:
        """Bound the cost of labels that miss the likeliest class with such probabilities, elementwise; it rises."""
        costs = np.log1p(np.interp(missed, *self._excess)) / (self.order - 1.0)
        return np.asarray(np.minimum(costs, self.ceiling))

    @cached_property
    def ceiling(self) -> float:
        """What a label costs at most, whatever the votes."""
        return label_curve(self.noise).bound_at(self.order)

    @cached_property
    def places(self) -> tuple[Array, int]:
        """Probabilities of which each is N of the one `_STEPS_A_VOTE` places on; of noise that is too narrow, all 1."""
        if not self._is_resolved:
            return np.ones(2 * _STEPS_A_VOTE + 2), _STEPS_A_VOTE
        grows, _, _ = self._sums
        first = math.exp(_LEAST_LOG_Q)
        chain = np.geomspace(first, float(np.interp(first, *grows)), _STEPS_A_VOTE, endpoint=False).tolist()
        while chain[-1] < 1.0:
            chain.append(min(float(np.interp(chain[-_STEPS_A_VOTE], *grows)) * (1.0 + _ROUNDING), 1.0))
        chain += [1.0] * (_STEPS_A_VOTE + 1)  # one vote may take all of them to 1
        return np.array(chain[::-1]), _STEPS_A_VOTE

    @cached_property
    def _excess(self) -> tuple[Array, Array]:
        """A concave rising bound on E − 1 by q: on a cell of a grid each part is taken at its larger end."""
        if not self._is_resolved:
            return np.zeros(1), np.full(1, np.inf)
        grows, added, fallen = self._sums
        edges = np.append(0.0, np.exp(np.linspace(_LEAST_LOG_Q, 0.0, _BINS)))
        low, high, alpha = edges[:-1], edges[1:], self.order
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            stays = alpha * np.log1p(-low) - (alpha - 1.0) * np.log1p(-np.minimum(np.interp(high, *grows), 1.0))
            returns = alpha * np.log1p(-np.interp(low, *fallen)) - (alpha - 1.0) * np.log1p(-high)
            excess = np.maximum(
                np.expm1(stays) + np.interp(high, *added[0]), np.expm1(returns) + np.interp(high, *added[1])
            )
        loss = (alpha - 1.0) * self.ceiling
        most = math.expm1(loss) if loss < 700.0 else math.inf
        return majorant(
            low, np.minimum(np.nan_to_num(excess * (1.0 + _ROUNDING) + _TINY, nan=np.inf, posinf=np.inf), most)
        )

    @cached_property
    def _sums(self) -> tuple[Curve, tuple[Curve, Curve], Curve]:
        """By q: N, what an event adds forward and in reverse, and the least probability after the move."""
        loss, step, masses = self._losses
        with np.errstate(over="ignore", divide="ignore"):
            logs = np.log(masses)
            after, before = np.exp(logs - loss), np.exp(logs - loss - step)
            forward, reverse = np.exp(logs + (self.order - 1.0) * (loss + step)), np.exp(logs - self.order * loss)

        def summed(values: Array, side: int) -> Curve:
            return tuple(np.append(0.0, np.cumsum(part[::side])) for part in (masses, values))  # type: ignore[return-value]

        return summed(after, 1), (summed(forward, -1), summed(reverse, 1)), summed(before, -1)

    @cached_property
    def _losses(self) -> tuple[Array, float, Array]:
        points = self._support
        logs = self.noise.log_weights(points)
        masses = np.exp(logs[1:-1] - np.logaddexp.reduce(logs))
        parts = logs[1:-1] - logs[2:], logs[1:-1] - logs[:-2]
        span = max(float(np.ptp(part)) for part in parts)
        step = max(_LOSS_STEP / self.order, span / _LOSS_CELLS)
        cells = [np.floor(part / step).astype(np.int64) for part in parts]
        binned = [np.bincount(cell - cell.min(), weights=masses) for cell in cells]
        total = np.convolve(binned[0], binned[1])
        loss = (np.arange(total.size) + sum(int(cell.min()) for cell in cells)) * step
        return np.asarray(loss, dtype=np.float64), 2.0 * step, np.asarray(total, dtype=np.float64)

    @cached_property
    def _is_resolved(self) -> bool:
        """Whether what counts lies where the product of two masses is a float: not of very narrow noise."""
        logs = self.noise.log_weights(self._support)
        slopes = np.abs(np.diff(logs))
        inner = logs[1:-1] - np.logaddexp.reduce(logs)
        counted = inner + self.order * np.maximum(slopes[1:], slopes[:-1])  # α > 1: more than N asks for
        deep = counted[inner < _LOG_DEEP]
        return not deep.size or float(np.max(deep) + max(np.max(counted), 0.0)) < _LOG_CUT / 2.0

    @cached_property
    def _support(self) -> NDArray[np.int64]:
        """Whole numbers beyond which neither law, nor what counts at the order, has a part above e^{−80}."""
        reach = int(self.noise.deviation) + 2
        while True:
            points = np.arange(-reach, reach + 1)
            logs = self.noise.log_weights(points)
            edges, slopes = logs[[0, -1]], np.abs(np.diff(logs)[[0, -1]])
            if np.max(edges + self.order * slopes) < np.max(logs) + _LOG_CUT:
                return points
            reach *= 2


@lru_cache(maxsize=64)
def missed_label(noise: IntegerNoise, order: float) -> Missed:
    """Keep the tables of a bound that is asked for several runs."""
    return MissedLabel(noise.sigma, order) if isinstance(noise, DiscreteGaussian) else MissedByLosses(noise, order)


class _Bits:
    def __init__(self, noise: IntegerNoise, less: float, beyond: int) -> None:
        support = np.arange(-beyond - 2, beyond + 3)
        self.less = less  # α − 1
        self.logs = noise.log_weights(support) - np.logaddexp.reduce(noise.log_weights(support))
        self.above = np.logaddexp.accumulate(self.logs[::-1])[::-1]  # log Pr[X ≥ x]
        self.below = np.concatenate([[-np.inf], np.logaddexp.accumulate(self.logs)[:-1]])  # log Pr[X < x]
        self.at = np.arange(2, support.size - 2)

    def moved(self, before: int, after: int, shift: int) -> tuple[Array, Array, Array]:
        """E − 1 of the bit X ≥ level, whose level moves, the share of 1 in it, and Σ f(x)^α·f(x + shift)^{1−α} in 1."""
        here, there = self.at + before, self.at + after
        with np.errstate(over="ignore", invalid="ignore"):
            one, zero = (
                np.exp(part[here] + self.less * (part[here] - part[there])) for part in (self.above, self.below)
            )
        shifted = np.roll(self.logs, -shift)
        shifted[:1], shifted[-1:] = self.logs[:1], self.logs[-1:]  # where nothing is known the ratio counts as 1
        sums = np.logaddexp.accumulate((self.logs + self.less * (self.logs - shifted))[::-1])[::-1]
        resolved = np.exp(np.minimum(sums[here], 700.0))
        return np.nan_to_num(one + zero, nan=np.inf) - 1.0, np.nan_to_num(one, nan=0.0), resolved


@lru_cache(maxsize=256)
def others_majorant(noise: IntegerNoise, order: float) -> tuple[Array, Array]:
    """Bound E − 1 of a move between two classes by the probability that one of them wins: a concave function of it.

    A constant where the order is far beyond the deviation.
    """
    less = order - 1.0
    loss = less * label_curve(noise).bound_at(order)
    most = math.expm1(loss) if loss < 700.0 else math.inf
    beyond = int(_REACH * max(noise.deviation, 1.0) * 2.0 + order) + 4
    if beyond > _MOST_LEVELS * max(noise.deviation, 1.0):
        return np.zeros(1), np.array([most])
    bits = _Bits(noise, less, beyond)
    pairs = (
        (bits.moved(0, 1, 1), bits.moved(0, -1, -1)),  # forward: a loses, b wins a vote
        (bits.moved(1, 0, -1), bits.moved(-1, 0, 1)),  # reverse
    )
    size = 2 * beyond + 1
    block = max(1, int(noise.deviation / _LEVELS))
    starts = np.arange(0, size, block)
    ends = np.minimum(starts + block, size) - 1
    least = np.exp(bits.above[bits.at])[ends]
    q = least[:, None] + least - least[:, None] * least
    edges = np.exp(np.linspace(_LEAST_LOG_Q, 0.0, _BINS))
    place = np.searchsorted(edges, q.ravel(), side="right")
    best = np.zeros(_BINS + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        for (loses, loses_one, loses_all), (wins, wins_one, wins_all) in pairs:
            first, second = (np.maximum.reduceat(one, starts) for one in (loses, wins))
            told, again = (np.minimum.reduceat(one, starts) for one in (loses_one, wins_one))
            value = first[:, None] + second + first[:, None] * second
            value += loses_all[starts][:, None] * wins_all[starts] - told[:, None] * again
            np.maximum.at(best, place, np.minimum(np.nan_to_num(value, nan=np.inf), most).ravel())
    return majorant(np.append(0.0, edges), best)


def majorant(places: Array, values: Array) -> tuple[Array, Array]:
    """Return the vertices of the least concave rising function above some points with places of at least 0.

    >>> [part.tolist() for part in majorant(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 2.0, 1.0, 3.0]))]
    [[0.0, 1.0, 3.0], [0.0, 2.0, 3.0]]
    """
    order = np.lexsort((-values, places))
    x, y = places[order], np.maximum.accumulate(values[order])
    new = np.append(True, y[1:] > y[:-1])  # the others lie below a rising function anyway
    kept: list[tuple[float, float]] = []
    for point in zip(x[new].tolist(), y[new].tolist(), strict=True):
        while len(kept) > 1 and _below(kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    return np.array([x for x, _ in kept]), np.array([y for _, y in kept])


def _below(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    if math.isinf(last[1]):
        return math.isinf(middle[1])
    return (middle[1] - first[1]) * (last[0] - first[0]) <= (last[1] - first[1]) * (middle[0] - first[0])
