"""Privacy amplification when voters resample examples per query: the cost of a label for a person who is rarely drawn.

Given all other data, the label has the law A without the person and B with them, or, for a sample of fixed size, with a
replacement; A and B belong to votes that differ by the overlap. The person is drawn with probability q.

==========  ============================================  ========================================================
scheme      one direction, the largest over all A and B   the other direction
==========  ============================================  ========================================================
``poisson``  (1 − q)A + qB against A                      A against (1 − q)A + qB
``fixed``    (1 − q)A + qB against (1 − q)A + qB'         the same
==========  ============================================  ========================================================

All of these are convex in B (and B'), so if a person has several records, and some are drawn, the cost is at most that
of one B. With u = e^ε,

    sup_S ((1 − q)A + qB)(S) − u·A(S) = q·sup_S B(S) − t·A(S),                      t = 1 + (u − 1)/q,
    sup_S A(S) − u·((1 − q)A + qB)(S) = c·(sup_S A(S) − (qu/c)·B(S)),               c = 1 − (1 − q)u > 0, else 0,

with qu/c ≥ 1: both directions follow exactly from the cost for a person who certainly takes part. For fixed samples the
first is attained at B' = A, and by joint convexity nothing costs more than it at the worst pair; so the first is exact
there. An α-divergence exp((α − 1)D) is jointly convex, too: it is at most 1 − q + q·exp((α − 1)D) of B and A, or of B
and B'. If the law has few numbers, its divergences are computed for every pair.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import islice

import numpy as np
from flint import ctx

from darrm.verify.formats import Sampling
from darrm.verify.noisy_labels import Between, RenyiPenalty, between
from darrm.verify.numbers import Array, Enclosure, Laws, ball, exponential, upper_end

_PRECISION = 400
_MOST_LOSS = Fraction(600)  # of a label for a person who takes part: δ beyond it counts as 0
_NEXT_TO_NONE = 1e-280  # of a probability
_OF_FLOATS = 2.0**-49  # relative, of a probability and of an exponential
_LAWS_AT_ONCE = 4096
_CELLS, _SETTLED, _MOST_CELLS, _HALVINGS = 64, 1e-6, 1 << 16, 60

Sides = tuple[Array, Array]  # laws Q of rows, and P − Q


def pure_epsilon(epsilon: float, sampling: Sampling | None) -> float:
    """Round up ln(1 + q(e^ε − 1)), the ε of an (ε, 0)-private label after subsampling, if there is any."""
    if math.isinf(epsilon) or sampling is None:
        return epsilon
    with ctx.workprec(_PRECISION):
        value = (1 + ball(sampling.rate) * (ball(Fraction(epsilon)).exp() - 1)).log()
        return math.nextafter(float(upper_end(value)), math.inf)


def sampled_deltas(
    deltas: Callable[[Sequence[Fraction], Sequence[float]], list[Enclosure] | None],
    sampling: Sampling,
    epsilons: Sequence[Fraction],
    enough: Sequence[float],
    *,
    back: bool,
) -> list[Enclosure] | None:
    """Enclose δ for each ε by the ``deltas`` of a person who certainly takes part, see the module.

    >>> quarter = [Enclosure(Fraction(1, 4), Fraction(1, 4))]
    >>> [found] = sampled_deltas(lambda *_: quarter, Sampling(Fraction(1, 10)), [Fraction(0)], (), back=False) or []
    >>> found.lower == found.upper == Fraction(1, 40)
    True
    """
    rate, enclosed, back = sampling.rate, list[Enclosure](), back and sampling.is_directed
    for epsilon, asked in zip(epsilons, enough or (0.0,) * len(epsilons), strict=True):
        grown = exponential(epsilon)
        most, least = (1 - (1 - rate) * u if back else rate for u in (grown.lower, grown.upper))
        if most <= 0:
            enclosed.append(Enclosure(Fraction(0), Fraction(0)))
            continue
        low, high = (
            rate * u / factor if back and factor > 0 else 1 + (u - 1) / rate
            for u, factor in ((grown.lower, most), (grown.upper, least))
        )
        with ctx.workprec(_PRECISION):
            at = min(_MOST_LOSS, max(Fraction(0), -upper_end(-ball(low).log())))
        own = deltas([at], [asked / float(most)])
        if own is None:
            return None
        # δ falls by no more than e^ε grows
        lower = least * (own[0].lower - high + exponential(at).lower)
        upper = min(Fraction(1), most * own[0].upper)
        enclosed.append(Enclosure(max(Fraction(0), lower), upper, own[0].rows))
    return enclosed


def pairs_of_ones(K: int, reached: int) -> Iterator[tuple[int, int]]:
    """List all numbers of ones without a person and with them."""
    return (
        (ones, other) for ones in range(K + 1) for other in range(max(0, ones - reached), min(K, ones + reached) + 1)
    )


def sides_of_laws(without: Array, gain: Array, rate: float, *, back: bool | None = None) -> list[Sides]:
    """Return (Q, P − Q) for Poisson subsampling, in both directions or in one of them."""
    forward, other = (without, rate * gain), (without + rate * gain, -rate * gain)
    return [forward, other] if back is None else [other if back else forward]


def sides_of_bits(bits: Array, reached: int, rate: float, *, back: bool | None = None) -> list[Sides]:
    """Return (Q, P − Q) of all numbers of ones that differ by the overlap, from Pr[0] and Pr[1]: (K + 1, 2)."""
    ones = np.array(list(pairs_of_ones(len(bits) - 1, reached)))
    without, with_person = bits[ones[:, 0]], bits[ones[:, 1]]
    gain = with_person - without
    rarer = np.where(without[:, 0] < 0.5, gain[:, 0], -gain[:, 1])  # differences near 1 lose digits
    return sides_of_laws(without, np.stack([rarer, -rarer], axis=1), rate, back=back)


def float_deltas(sides: Sequence[Sides], epsilons: Sequence[Fraction]) -> list[Enclosure]:
    """Enclose the largest δ of rows for each ε, their probabilities exact but for their floats."""
    enclosed = []
    for epsilon in epsilons:
        growth, low, high = math.expm1(epsilon), 0.0, 0.0
        for q, gain in sides:
            excess, error = gain - growth * q, _OF_FLOATS * (np.abs(gain) + growth * q)
            low = max(low, float(np.max(np.sum(np.maximum(0.0, excess - error), axis=1))))
            high = max(high, float(np.max(np.sum(np.maximum(0.0, excess + error), axis=1))))
            high += _NEXT_TO_NONE * bool(np.any(q <= 0.0))  # for underflow
        enclosed.append(Enclosure(Fraction(low), Fraction(min(1.0, high)), "all pairs of votes"))
    return enclosed


def renyi_of_sides(sides: Sequence[Sides], order: float) -> Between:
    """Enclose the largest Rényi divergence of rows, their probabilities exact but for their floats."""
    found = [Between(0.0, 0.0)]
    for q, gain in (side for side in sides if side[0].size):
        if np.any((q == 0.0) & (gain > 0.0)):
            return Between(math.inf, math.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(q > 0.0, gain / q, 0.0)
            logs = order * np.log1p(np.maximum(t, -1.0))
            if np.max(logs) > _MOST_LOSS:
                found.append(between(float(np.max(np.logaddexp.reduce(logs + np.log(q), axis=1))) / (order - 1.0)))
                continue
        grown = np.expm1(logs)
        sums = np.sum(q * np.maximum(0.0, grown - order * t), axis=1)
        errors = _OF_FLOATS * np.sum(q * (1.0 + np.abs(grown)) * np.minimum(1.0, order * np.abs(t)), axis=1)
        low, high = (math.log1p(max(0.0, float(np.max(end)))) / (order - 1.0) for end in (sums - errors, sums + errors))
        found.append(Between(between(low).low, between(high).high))
    return Between(max(one.low for one in found), max(one.high for one in found))


def renyi_of_laws(pairs: Iterable[Laws], unit: int, order: float, sampling: Sampling | None = None) -> Between:
    """Enclose the largest Rényi divergence of pairs of laws in whole numbers, or under Poisson subsampling.

    >>> found = renyi_of_laws([((1, 3), (3, 1))], 4, 2.0)
    >>> found.low < math.log(3**2 / 4 + 1 / 12) < found.high
    True
    """
    pairs, bounds = iter(pairs), [Between(0.0, 0.0)]
    while block := list(islice(pairs, _LAWS_AT_ONCE)):
        own, other = ([[x / unit for x in law] for law in side] for side in zip(*block, strict=True))
        gain = np.array([[(y - x) / unit for x, y in zip(*laws, strict=True)] for laws in block])
        if sampling is None:
            sides = [(np.array(other), -gain)]
        else:
            sides = sides_of_laws(np.array(own), gain, float(sampling.rate))
        bounds.append(renyi_of_sides(sides, order))
    return Between(max(one.low for one in bounds), max(one.high for one in bounds))


def of_convexity(certain: Between, sampling: Sampling, order: float) -> Between:
    """Bound a Rényi divergence by that of a person who certainly takes part."""
    if (order - 1.0) * certain.high > _MOST_LOSS:
        return Between(0.0, certain.high)
    grown = float(sampling.rate) * math.expm1((order - 1.0) * certain.high)
    return Between(0.0, between(math.log1p(grown) / (order - 1.0)).high)


def renyi_of_exponential(epsilon: float, rate: float, order: float) -> Between:
    """Enclose the Rényi divergence of an exponential mechanism under Poisson subsampling.

    The person changes the odds of two classes by e^ε. With Pr = (u, 1 − u), which two classes attain, the ratios of the
    laws are r/E r, r of e^{−ε} and 1. Both ratios rise in u; a cell of u is bounded by both ends, and halved.
    """
    penalties = [RenyiPenalty(order, rate, back=back) for back in (False, True)]
    tails = np.geomspace(1e-15, 0.5, _CELLS)
    ends = np.concatenate([[0.0], tails, 1.0 - tails[-2::-1], [1.0]])

    def cost(low: Array, high: Array) -> Array:
        falls = -np.log((1.0 - low) + low * math.exp(-epsilon)) - epsilon
        rises = -np.log((1.0 - high) + high * math.exp(-epsilon))
        with np.errstate(invalid="ignore"):
            both = [high * one.of(falls) + (1.0 - low) * one.of(rises) for one in penalties]
        return np.asarray(np.nan_to_num(np.max(both, axis=0), nan=math.inf, posinf=math.inf))

    low, high, best, most = ends[:-1], ends[1:], 0.0, 0.0
    for step in range(_HALVINGS):
        bounds, middle = cost(low, high), 0.5 * (low + high)
        attained = cost(middle, middle)
        best = max(best, float(np.max(attained, where=np.isfinite(attained), initial=0.0)))
        open_cells = bounds > best * (1.0 + _SETTLED)
        last = step + 1 == _HALVINGS or 2 * np.count_nonzero(open_cells) > _MOST_CELLS
        most = max(most, best, float(np.max(bounds if last else bounds[~open_cells], initial=0.0)))
        if last or not np.any(open_cells):
            break
        starts, cuts, stops = low[open_cells], middle[open_cells], high[open_cells]
        low, high = np.concatenate([starts, cuts]), np.concatenate([cuts, stops])
    return Between(between(math.log1p(best) / (order - 1.0)).low, between(math.log1p(most) / (order - 1.0)).high)
