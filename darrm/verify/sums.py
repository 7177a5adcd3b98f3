"""Compose queries by sums of privacy losses, in exact arithmetic with every rounding on the safe side.

A *kind* is a number of queries with proved points (ε_a, δ_a), ε_a ≥ 0: each query is (ε_a, δ_a)-private in both
directions. H(t) = sup_S P(S) − t·P'(S), t ≥ 0, of neighbors P, P' is convex, falls, H(0) = 1 and H(e^{ε_a}) ≤ δ_a. A
random *loss* L in (−∞, ∞] dominates a kind if E[max(0, 1 − t·e^{−L})] ≥ H(t) for all t, neighbors and earlier answers.
Then the sum of independent losses, one for each query, dominates all answers [ZDW22]: they are (ε, δ)-private with

    δ = E[max(0, 1 − e^{ε−ΣL})].

This grows with every L, so every rounding moves masses to larger losses, or to infinite ones.

**Theorem.** Let y_j ≥ H(e^{jh}) for j = 0 … n, in both directions, never rising, and

    P(L > (j−1)h) ≥ y_{j−1} + (y_{j−1} − y_j)/(e^h − 1)            for j = 1 … n,        P(L > nh) ≥ y_n,
    P(L > −jh) ≥ 1 − (y_{j−1} − y_j)/(e^{jh} − e^{(j−1)h})         for j = 1 … n,

or P(L > ·) = 1, for a loss on the multiples of h from −n on. It dominates the kind.

*Proof.* With S(l) = P(L > l) the mean is G(t) = ∫_{log t}^∞ t·e^{−l}·S(l) dl. As S is constant between the multiples of
h, G(e^{jh}) = (1 − e^{−h})·S(jh) + e^{−h}·G(e^{(j+1)h}); with equality above this gives y_j for j ≥ 0, and z_j = 1 −
e^{−jh} + e^{−jh}·y_j at −j, and larger S larger G. Exchanging the neighbors, H(e^{−jh}) ≤ z_j. So G ≥ H at all e^{jh}
with S < 1 from there on. Between them, and beyond, G is linear or constant, and H convex or falling. Below the first, G
is 1 − c·t, the chord to 1 at t = 0. ∎ As y_j bounds both directions, L dominates either. If smaller y'_j ≥ H(e^{jh}),
y'_0 = y_0, are known for one direction, they replace the y_j of the second line, and L dominates the other direction
alone. For the direction of the y'_j, y and y' change places.

A chord of proved points, as function of t, lies above H: it gives the y_j, and (ε, δ) proves the point (1,
(e^ε − 1 + 2δ)/(e^ε + 1)). The means of 1 and e^{−L} are kept, so errors are of second order in h [DGKKM22].

Kinds and numbers must be fixed before the first answer. Answers may choose the questions, and when to stop.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, exp, floor, lcm, log, sqrt
from operator import itemgetter

from flint import ctx, fmpz_poly

from darrm.verify.verdicts import BITS, Point, ball, exponential, upper_end

Kind = tuple[Sequence[Point], int]  # proved points of one query, and the number of queries
_Corner = tuple[float, float]  # e^ε and δ, in floats
_Law = tuple[int, list[int]]  # the lowest loss in steps, and the masses from there on
_MOST_POWERS = 1000  # of a fraction, so that its digits stay few
_NOTHING = Fraction(0)
_GUARD = 128  # bits behind those of a sum, while the loss of one query is built
_BITS, _SPARE = 80, 2**40  # of a sum, beyond those of δ and of the number of queries; the part of δ that ends are worth
_MOST_CELLS, _MOST_WORK = 2**18, 2**23  # of a sum, and of all its products: about ten seconds
_COARSEST = 8  # times the size of most losses, the first step
_REACH = 24.0  # standard deviations of a sum, at most, that are kept
_GAIN, _GAIN_OF_DELTA = Fraction(1, 2000), Fraction(1, 100)  # relative: a half step that gains less is the last
_NEAR, _MOST_RATIO = Fraction(1, 10**9), 1024  # relative: of an ε to a lattice; of the smallest ε to a common step
_MOST_EXPONENT = 600.0  # so that moments are floats


class Directed(list[Point]):
    """Points for both directions, and points ``back`` for one, the second for ``side`` = 1."""

    def __init__(self, points: Sequence[Point], back: Sequence[Point], side: int = 1) -> None:
        super().__init__(points)
        self.back, self.side = back, side

    @property
    def exchanged(self) -> "Directed":
        return Directed(self, self.back, 1 - self.side)


@dataclass(frozen=True)
class LossSum:
    """A sum of losses, rounded up; the mass that 1 lacks is of an infinite loss."""

    step: Fraction
    lowest: int  # the loss of the first mass, in steps
    masses: tuple[int, ...]  # in units of 2^-bits
    bits: int

    def delta(self, epsilon: Fraction) -> Fraction:
        *_, (cell, above, damped) = self._tails(until=floor(epsilon / self.step) + 1)
        gap = max(_NOTHING, cell * self.step - epsilon)
        return min(Fraction(1), (above - damped / exponential(gap).upper) / (1 << self.bits))

    def epsilon(self, delta: Fraction) -> Fraction | None:
        """Bound the smallest ε with this δ from above; None if it is infinite."""
        allowed = floor(delta * (1 << self.bits))
        enough = None
        for tail in self._tails(until=0):
            if tail[1] - tail[2] > allowed:
                break
            enough = tail
        if enough is None:
            return None
        cell, above, damped = enough
        below = self.step  # how far below the cell ε may be
        if above > allowed:
            with ctx.workprec(BITS):
                below = min(below, max(_NOTHING, -upper_end(-ball(Fraction(damped, above - allowed)).log())))
        return max(_NOTHING, cell * self.step - below)

    def _tails(self, until: int) -> Iterator[tuple[int, int, int]]:
        """Yield cells downwards with two masses: at x ≤ step below, δ is one − e^{−x}·the other."""
        cell, above, damped = self.lowest + len(self.masses), (1 << self.bits) - sum(self.masses), 0
        yield cell, above, damped
        shrink = floor((1 << self.bits) / exponential(self.step).upper)
        while cell > max(until, self.lowest):
            cell -= 1
            mass = self.masses[cell - self.lowest]
            above, damped = above + mass, mass + (damped * shrink >> self.bits)
            yield cell, above, damped


def composed_epsilon(kinds: Sequence[Kind], delta: Fraction, *, enough: Fraction = _NOTHING) -> Fraction | None:
    """Bound the ε of all queries together at one δ from above, no closer than ``enough``; None if it is infinite.

    >>> round(float(composed_epsilon([([(Fraction(1, 2), Fraction(0))], 30)], Fraction(1, 10**5))), 3)
    12.984
    """
    epsilon = sum((count * max(points)[0] for points, count in kinds), _NOTHING)
    simple = epsilon if sum(count * max(points)[1] for points, count in kinds) <= delta else None
    if delta <= 0:
        return simple
    settled = _settled((total.epsilon(delta) for total in _sums(kinds, delta)), _GAIN, enough)
    if settled is not None and any(isinstance(points, Directed) for points, _ in kinds):
        other = [(points.exchanged if isinstance(points, Directed) else points, count) for points, count in kinds]
        reverse = _settled((total.epsilon(delta) for total in _sums(other, delta)), _GAIN, max(enough, settled))
        settled = None if reverse is None else max(settled, reverse)
    return settled if simple is None or (settled is not None and settled < simple) else simple


def composed_delta(kinds: Sequence[Kind], epsilon: Fraction, *, least: Fraction = Fraction(1, 10**12)) -> Fraction:
    """Bound the δ of all queries together at one ε from above, up to a thousandth of ``least`` > 0.

    >>> round(float(composed_delta([([(Fraction(1, 2), Fraction(0))], 30)], Fraction(12))), 7)
    7.85e-05
    """
    most = [(max(points), count) for points, count in kinds]
    if epsilon >= sum(count * point[0] for point, count in most):  # no finite loss is above it
        failing = [(1 - point[1]) ** count for point, count in most if point[1] and count <= _MOST_POWERS]
        if len(failing) == sum(bool(point[1]) for point, _ in most):
            return 1 - math.prod(failing, start=Fraction(1))
    settled = _settled((total.delta(epsilon) for total in _sums(kinds, least)), _GAIN_OF_DELTA, least)
    return Fraction(1) if settled is None else settled


def compose(kinds: Sequence[Kind], step: Fraction, delta: Fraction) -> LossSum:
    """Add losses on multiples of a step; cut off masses far below δ."""
    queries = sum(count for _, count in kinds)
    bits = _BITS + queries.bit_length() + ceil(1 / delta).bit_length()
    spare = floor(delta * (1 << bits) / (2 * _SPARE * (len(kinds) + 1)))
    total = (0, [1 << bits])
    for points, count in kinds:
        total = _cut(_times(total, _power(_loss(points, step, bits), count, bits, spare), bits), spare)
    return LossSum(step, total[0], tuple(total[1]), bits)


def _loss(points: Sequence[Point], step: Fraction, bits: int) -> _Law:
    fine = bits + _GUARD
    one = 1 << fine
    sides = [_corners(points, one)] * 2
    if isinstance(points, Directed):
        sides[points.side] = _corners(points.back, one, sides[0])
    growth = exponential(step)
    low, high = floor(growth.lower * one), ceil(growth.upper * one)
    top = before = min(_height(side, one) for side in sides)  # at t = 1 both directions cost the same
    at, above, rises, falls = one, one, list[int](), list[int]()
    for _ in range(max(1, ceil(max(points)[0] / step))):
        at, above = at * low >> fine, -(-above * high >> fine)
        height, behind = min(top, _height(sides[0], at)), min(before, _height(sides[1], at))
        fall, drop = top - height, before - behind
        rises.append(top - (-fall * one // (low - one)))
        falls.append(one - drop * one * high // (above * (high - one)))
        top, before = height, behind
    rises.append(top)
    cells = len(falls)
    tails, largest = [], 0
    for tail in reversed([one, *reversed(falls), *rises]):
        largest = max(largest, tail)
        tails.append(min(1 << bits, -(-largest >> _GUARD)))
    return -cells, [before - after for after, before in pairwise(tails)][::-1]


def _corners(points: Sequence[Point], one: int, both: Sequence[tuple[int, int]] = ()) -> list[tuple[int, int]]:
    """List (e^ε, δ), rounded up: the corners of the largest convex function below them."""
    # the points ``both`` hold in this direction, too
    proved = sorted((ceil(exponential(epsilon).upper * one), ceil(delta * one)) for epsilon, delta in points)
    middle = (-((growth - one + 2 * height) * one // -(growth + one)) for growth, height in proved)
    start = both or [(one, min(middle))]
    corners: list[tuple[int, int]] = []
    for growth, height in sorted([*start, *proved]):
        if corners and height >= corners[-1][1]:
            continue
        while len(corners) > 1:
            (first, top), (last, bottom) = corners[-2:]
            if (bottom - top) * (growth - first) < (height - top) * (last - first):
                break
            corners.pop()
        corners.append((growth, height))
    return corners


def _height(corners: Sequence[tuple[int, int]], at: int) -> int:
    after = bisect_right(corners, at, key=itemgetter(0))
    if after == len(corners):
        return corners[-1][1]
    (first, top), (last, bottom) = corners[after - 1 : after + 1]
    return bottom - (-(top - bottom) * (last - at) // (last - first))


def _power(law: _Law, count: int, bits: int, spare: int) -> _Law:
    """Add ``count`` losses; the ends cut off have a total mass of ``spare``."""
    result, done = law, 1
    for digit in bin(count)[3:]:
        for factor, more in ((result, done), (law, 1))[: 1 + int(digit)]:
            done += more
            result = _cut(_times(result, factor, bits), spare * done // (4 * count * count.bit_length()))
    return result


def _times(first: _Law, second: _Law, bits: int) -> _Law:
    """Add two independent losses; rounding moves mass to the infinite loss."""
    product = fmpz_poly(first[1]) * fmpz_poly(second[1])
    return first[0] + second[0], [int(mass) >> bits for mass in product.coeffs()] or [0]


def _cut(law: _Law, spare: int) -> _Law:
    lowest, masses = law
    last, cut = len(masses), 0
    while last > 1 and cut + masses[last - 1] <= spare:
        last, cut = last - 1, cut + masses[last - 1]
    start, moved = 0, 0
    while start + 1 < last and moved + masses[start] <= spare:
        start, moved = start + 1, moved + masses[start]
    return lowest + start, [masses[start] + moved, *masses[start + 1 : last]]


def _sums(kinds: Sequence[Kind], delta: Fraction) -> Iterator[LossSum]:
    queries, products = sum(count for _, count in kinds), sum(min(count.bit_length(), 4) for _, count in kinds)
    largest = max((max(points)[0] for points, _ in kinds), default=_NOTHING) or Fraction(1)
    finest = largest * Fraction(_REACH * sqrt(queries) / _MOST_CELLS)  # no sum spreads further
    if finest > largest:
        return
    common = _common_step(kinds)
    if common is not None and common >= finest:
        yield compose(kinds, common, delta)
        return
    step, work = largest, Fraction(0)
    size = max(sqrt(_second_moment(_distinct(points))) or float(max(points)[0]) for points, _ in kinds) or 1.0
    while step > _COARSEST * size:  # most losses are far below the largest
        step /= 2
    while 2 * work <= _MOST_WORK:
        total = compose(kinds, step, delta)
        yield total
        work, step = products * (len(total.masses) + 2 * largest / step), step / 2


def _common_step(kinds: Sequence[Kind]) -> Fraction | None:
    epsilons = [epsilon for points, _ in kinds for epsilon, _ in points if epsilon]
    least = min(epsilons, default=Fraction(1))
    ratios = [(epsilon / least).limit_denominator(_MOST_RATIO) for epsilon in epsilons]
    if any(abs(ratio * least - epsilon) > _NEAR * epsilon for ratio, epsilon in zip(ratios, epsilons, strict=True)):
        return None
    return least / lcm(*(ratio.denominator for ratio in ratios))


def _settled(values: Iterator[Fraction | None], gain: Fraction, enough: Fraction) -> Fraction | None:
    best: Fraction | None = None
    for value in values:
        if value is None:
            return best
        before, best = best, value if best is None else min(best, value)
        if best <= enough:
            return best
        # if the same gain again would be enough, try another step
        if before is not None and before - best <= gain * before and 2 * best - before > enough:
            return best
    return best


def telling_points(kinds: Sequence[Kind], delta: Fraction, most: int) -> list[list[Point]]:
    """Choose two to ``most`` points of each kind that matter most at this δ; no claim rests on the choice.

    A corner t = e^ε where the slope rises by s adds s·(t^{1+λ} + t^{−λ}) to the moment E[e^{λL}]; without it, the chord
    passes its masses on. Corners whose absence adds least are dropped. λ = √(2·log(1/δ)/V), V the variance of all
    losses, bounds δ best.

    >>> line = [(Fraction(place, 4), Fraction(4 - place, 8)) for place in range(5)]
    >>> [[float(epsilon) for epsilon, _ in points] for points in telling_points([(line, 9)], Fraction(1, 1000), 3)]
    [[0.0, 0.5, 1.0]]
    """
    profiles = [_distinct(points) for points, _ in kinds]
    spread = sum(count * _second_moment(points) for points, (_, count) in zip(profiles, kinds, strict=True))
    best = sqrt(2.0 * log(1.0 / delta) / spread) if spread > 0.0 and 0 < delta < 1 else 0.0
    for points in profiles:
        tilt = min(best, max(0.0, _MOST_EXPONENT / (1.0 + float(points[-1][0])) - 1.0))
        corners = [(exp(epsilon), float(delta)) for epsilon, delta in points]
        while len(points) > max(2, most):
            growths = [_growth(corners[at : at + 3], tilt) for at in range(len(points) - 2)]
            place = 1 + growths.index(min(growths))
            del points[place], corners[place]
    return profiles


def _distinct(points: Sequence[Point]) -> list[Point]:
    """Sort points; of those with one e^ε in floats keep the smallest."""
    return sorted({exp(point[0]): point for point in sorted(points, reverse=True)}.values())


def _growth(three: Sequence[_Corner], tilt: float) -> float:
    """Compute how much the moment grows without the middle corner."""
    before, own, after = three
    low, middle, high = (t ** (1.0 + tilt) + t**-tilt for t, _ in three)
    share = (after[0] - own[0]) / (after[0] - before[0])
    rise = _slope(own, after) - _slope(before, own)
    return float(max(0.0, rise) * (share * low + (1.0 - share) * high - middle))


def _second_moment(points: Sequence[Point]) -> float:
    corners = [(exp(epsilon), float(delta)) for epsilon, delta in points]
    slopes = [*(_slope(*pair) for pair in pairwise(corners)), 0.0]
    rises = [max(0.0, after - before) for before, after in pairwise(slopes)]
    return sum(log(t) ** 2 * (t + 1.0) * rise for (t, _), rise in zip(corners[1:], rises, strict=True))


def _slope(first: _Corner, last: _Corner) -> float:
    return (last[1] - first[1]) / (last[0] - first[0])
