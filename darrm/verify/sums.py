"""Compose queries by sums of privacy losses, in exact arithmetic with every rounding on the safe side.

A *kind* is a number of queries with proved points (ε_a, δ_a), ε_a ≥ 0: each query is (ε_a, δ_a)-private in both
directions. H(t) = sup_S P(S) − t·P'(S), t ≥ 0, of neighbors P, P' is convex, falls, H(0) = 1 and H(e^{ε_a}) ≤ δ_a. A
random *loss* L in (−∞, ∞] dominates a kind if E[max(0, 1 − t·e^{−L})] ≥ H(t) for all t, neighbors and earlier answers.
Then the sum of independent losses, one for each query, dominates all answers [ZDW22]: they are (ε, δ)-private with

    δ = E[max(0, 1 − e^{ε−ΣL})].

δ grows with every L, so every rounding moves masses to larger losses, or to infinite ones.

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

H, a function of t, lies below the chords of its proved points: they give the y_j, and (ε, δ) proves the point (1,
(e^ε − 1 + 2δ)/(e^ε + 1)). The grid keeps the means of 1 and e^{−L}, so errors are of second order in h [DGKKM22].

Kinds and numbers of queries are fixed before the first answer. Answers may decide the questions, and when to stop.
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
_MAX_EXACT_COUNT = 1000  # queries: the exact power of a fraction has few enough digits
_ZERO = Fraction(0)
_GUARD_BITS = 128  # extra bits while the loss of one query is built
# bits of a sum, beyond the bits of δ and of the number of queries; δ divided by the mass of tails that are cut off
_SUM_BITS, _TAIL_DIVISOR = 80, 2**40
_MAX_CELLS, _MAX_WORK = 2**18, 2**23  # of a sum, and of all its products: about ten seconds
_MAX_STEP_RATIO = 8  # the first step is at most this multiple of a typical loss
_MAX_DEVIATIONS = 24.0  # standard deviations of a sum that its cells cover
# relative: with a smaller gain the step is not halved again
_MIN_GAIN, _MIN_DELTA_GAIN = Fraction(1, 2000), Fraction(1, 100)
# relative: the distance of an ε from a lattice; the smallest ε in units of a common step
_LATTICE_TOLERANCE, _MAX_DENOMINATOR = Fraction(1, 10**9), 1024
_MAX_EXPONENT = 600.0  # so that moments are floats


class DirectedPoints(list[Point]):
    """Points that hold in both directions, and ``reverse_points`` for one: the second if ``side`` is 1."""

    def __init__(self, points: Sequence[Point], reverse_points: Sequence[Point], side: int = 1) -> None:
        super().__init__(points)
        self.reverse_points, self.side = reverse_points, side

    @property
    def exchanged(self) -> "DirectedPoints":
        return DirectedPoints(self, self.reverse_points, 1 - self.side)


@dataclass(frozen=True)
class LossSum:
    """A sum of losses, rounded up; the mass that is missing to 1 belongs to an infinite loss."""

    step: Fraction
    lowest: int  # the loss of the first mass, in steps
    masses: tuple[int, ...]  # in units of 2^-bits
    bits: int

    def delta(self, epsilon: Fraction) -> Fraction:
        *_, (cell, mass, damped) = self._list_tails(until=floor(epsilon / self.step) + 1)
        distance = max(_ZERO, cell * self.step - epsilon)
        return min(Fraction(1), (mass - damped / exponential(distance).upper) / (1 << self.bits))

    def epsilon(self, delta: Fraction) -> Fraction | None:
        """Bound the smallest ε with this δ from above; None if it is infinite."""
        allowed = floor(delta * (1 << self.bits))
        last_tail = None
        for tail in self._list_tails(until=0):
            if tail[1] - tail[2] > allowed:
                break
            last_tail = tail
        if last_tail is None:
            return None
        cell, mass, damped = last_tail
        distance = self.step  # how far below the cell ε may be
        if mass > allowed:
            with ctx.workprec(BITS):
                distance = min(distance, max(_ZERO, -upper_end(-ball(Fraction(damped, mass - allowed)).log())))
        return max(_ZERO, cell * self.step - distance)

    def _list_tails(self, until: int) -> Iterator[tuple[int, int, int]]:
        """Yield (cell, mass, damped) downwards: at x ≤ step below the cell, δ = mass − e^{−x}·damped."""
        cell, total_mass, damped = self.lowest + len(self.masses), (1 << self.bits) - sum(self.masses), 0
        yield cell, total_mass, damped
        shrink = floor((1 << self.bits) / exponential(self.step).upper)
        while cell > max(until, self.lowest):
            cell -= 1
            mass = self.masses[cell - self.lowest]
            total_mass, damped = total_mass + mass, mass + (damped * shrink >> self.bits)
            yield cell, total_mass, damped


def compose_epsilon(kinds: Sequence[Kind], delta: Fraction, *, goal: Fraction = _ZERO) -> Fraction | None:
    """Bound the total ε at δ from above, None if it is infinite; a bound of at most ``goal`` is not refined.

    >>> round(float(compose_epsilon([([(Fraction(1, 2), Fraction(0))], 30)], Fraction(1, 10**5))), 3)
    12.984
    """
    epsilon = sum((count * max(points)[0] for points, count in kinds), _ZERO)
    simple = epsilon if sum(count * max(points)[1] for points, count in kinds) <= delta else None
    if delta <= 0:
        return simple
    smallest = _find_smallest((total.epsilon(delta) for total in _refine_sums(kinds, delta)), _MIN_GAIN, goal)
    if smallest is not None and any(isinstance(points, DirectedPoints) for points, _ in kinds):
        exchanged = [
            (points.exchanged if isinstance(points, DirectedPoints) else points, count) for points, count in kinds
        ]
        reverse = _find_smallest(
            (total.epsilon(delta) for total in _refine_sums(exchanged, delta)), _MIN_GAIN, max(goal, smallest)
        )
        smallest = None if reverse is None else max(smallest, reverse)
    return smallest if simple is None or (smallest is not None and smallest < simple) else simple


def compose_delta(kinds: Sequence[Kind], epsilon: Fraction, *, least: Fraction = Fraction(1, 10**12)) -> Fraction:
    """Bound the total δ at ε from above; a bound of at most ``least`` > 0 is not refined.

    >>> round(float(compose_delta([([(Fraction(1, 2), Fraction(0))], 30)], Fraction(12))), 7)
    7.85e-05
    """
    worst = [(max(points), count) for points, count in kinds]
    if epsilon >= sum(count * point[0] for point, count in worst):  # no finite loss is above it
        chances = [(1 - point[1]) ** count for point, count in worst if point[1] and count <= _MAX_EXACT_COUNT]
        if len(chances) == sum(bool(point[1]) for point, _ in worst):
            return 1 - math.prod(chances, start=Fraction(1))
    smallest = _find_smallest((total.delta(epsilon) for total in _refine_sums(kinds, least)), _MIN_DELTA_GAIN, least)
    return Fraction(1) if smallest is None else smallest


def compose(kinds: Sequence[Kind], step: Fraction, delta: Fraction) -> LossSum:
    """Add losses on multiples of a step; cut off masses far below δ."""
    queries = sum(count for _, count in kinds)
    bits = _SUM_BITS + queries.bit_length() + ceil(1 / delta).bit_length()
    cut_mass = floor(delta * (1 << bits) / (2 * _TAIL_DIVISOR * (len(kinds) + 1)))
    total = (0, [1 << bits])
    for points, count in kinds:
        total = _cut_tails(
            _add_losses(total, _repeat(_build_loss(points, step, bits), count, bits, cut_mass), bits), cut_mass
        )
    return LossSum(step, total[0], tuple(total[1]), bits)


def _build_loss(points: Sequence[Point], step: Fraction, bits: int) -> _Law:
    fine_bits = bits + _GUARD_BITS
    unit = 1 << fine_bits
    sides = [_find_corners(points, unit)] * 2
    if isinstance(points, DirectedPoints):
        sides[points.side] = _find_corners(points.reverse_points, unit, sides[0])
    growth = exponential(step)
    step_low, step_high = floor(growth.lower * unit), ceil(growth.upper * unit)
    top = back_top = min(_interpolate(side, unit) for side in sides)  # at t = 1 both directions cost the same
    growth_low, growth_high, rises, falls = unit, unit, list[int](), list[int]()
    for _ in range(max(1, ceil(max(points)[0] / step))):
        growth_low, growth_high = growth_low * step_low >> fine_bits, -(-growth_high * step_high >> fine_bits)
        height = min(top, _interpolate(sides[0], growth_low))
        back_height = min(back_top, _interpolate(sides[1], growth_low))
        fall, back_fall = top - height, back_top - back_height
        rises.append(top - (-fall * unit // (step_low - unit)))
        falls.append(unit - back_fall * unit * step_high // (growth_high * (step_high - unit)))
        top, back_top = height, back_height
    rises.append(top)
    cells = len(falls)
    tails, largest = [], 0
    for tail in reversed([unit, *reversed(falls), *rises]):
        largest = max(largest, tail)
        tails.append(min(1 << bits, -(-largest >> _GUARD_BITS)))
    return -cells, [higher - lower for lower, higher in pairwise(tails)][::-1]


def _find_corners(
    points: Sequence[Point], unit: int, shared_points: Sequence[tuple[int, int]] = ()
) -> list[tuple[int, int]]:
    """List (e^ε, δ), rounded up: the corners of the largest convex function below them."""
    # the ``shared_points`` hold in this direction, too
    proved = sorted((ceil(exponential(epsilon).upper * unit), ceil(delta * unit)) for epsilon, delta in points)
    middle = (-((growth - unit + 2 * height) * unit // -(growth + unit)) for growth, height in proved)
    start = shared_points or [(unit, min(middle))]
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


def _interpolate(corners: Sequence[tuple[int, int]], growth: int) -> int:
    index = bisect_right(corners, growth, key=itemgetter(0))
    if index == len(corners):
        return corners[-1][1]
    (first, top), (last, bottom) = corners[index - 1 : index + 1]
    return bottom - (-(top - bottom) * (last - growth) // (last - first))


def _repeat(law: _Law, count: int, bits: int, cut_mass: int) -> _Law:
    """Add ``count`` losses; the tails cut off have a total mass of ``cut_mass``."""
    result, added = law, 1
    for digit in bin(count)[3:]:
        for factor, increment in ((result, added), (law, 1))[: 1 + int(digit)]:
            added += increment
            result = _cut_tails(_add_losses(result, factor, bits), cut_mass * added // (4 * count * count.bit_length()))
    return result


def _add_losses(first: _Law, second: _Law, bits: int) -> _Law:
    """Add two independent losses; rounding moves mass to the infinite loss."""
    product = fmpz_poly(first[1]) * fmpz_poly(second[1])
    return first[0] + second[0], [int(mass) >> bits for mass in product.coeffs()] or [0]


def _cut_tails(law: _Law, max_mass: int) -> _Law:
    lowest, masses = law
    last, cut_mass = len(masses), 0
    while last > 1 and cut_mass + masses[last - 1] <= max_mass:
        last, cut_mass = last - 1, cut_mass + masses[last - 1]
    start, moved_mass = 0, 0
    while start + 1 < last and moved_mass + masses[start] <= max_mass:
        start, moved_mass = start + 1, moved_mass + masses[start]
    return lowest + start, [masses[start] + moved_mass, *masses[start + 1 : last]]


def _refine_sums(kinds: Sequence[Kind], delta: Fraction) -> Iterator[LossSum]:
    queries, products = sum(count for _, count in kinds), sum(min(count.bit_length(), 4) for _, count in kinds)
    largest = max((max(points)[0] for points, _ in kinds), default=_ZERO) or Fraction(1)
    finest = largest * Fraction(_MAX_DEVIATIONS * sqrt(queries) / _MAX_CELLS)  # no sum spreads further
    if finest > largest:
        return
    common = _find_common_step(kinds)
    if common is not None and common >= finest:
        yield compose(kinds, common, delta)
        return
    step, work = largest, Fraction(0)
    size = max(sqrt(_find_moment(_sort_distinct(points))) or float(max(points)[0]) for points, _ in kinds) or 1.0
    while step > _MAX_STEP_RATIO * size:  # most losses are far below the largest
        step /= 2
    while 2 * work <= _MAX_WORK:
        total = compose(kinds, step, delta)
        yield total
        work, step = products * (len(total.masses) + 2 * largest / step), step / 2


def _find_common_step(kinds: Sequence[Kind]) -> Fraction | None:
    epsilons = [epsilon for points, _ in kinds for epsilon, _ in points if epsilon]
    smallest = min(epsilons, default=Fraction(1))
    ratios = [(epsilon / smallest).limit_denominator(_MAX_DENOMINATOR) for epsilon in epsilons]
    if any(
        abs(ratio * smallest - epsilon) > _LATTICE_TOLERANCE * epsilon
        for ratio, epsilon in zip(ratios, epsilons, strict=True)
    ):
        return None
    return smallest / lcm(*(ratio.denominator for ratio in ratios))


def _find_smallest(values: Iterator[Fraction | None], gain: Fraction, goal: Fraction) -> Fraction | None:
    best: Fraction | None = None
    for value in values:
        if value is None:
            return best
        previous, best = best, value if best is None else min(best, value)
        if best <= goal:
            return best
        # a further step is worth it only if the same gain again would reach the goal
        if previous is not None and previous - best <= gain * previous and 2 * best - previous > goal:
            return best
    return best


def choose_points(kinds: Sequence[Kind], delta: Fraction, max_points: int) -> list[list[Point]]:
    """Choose two to ``max_points`` points of each kind that matter most at this δ; no claim rests on the choice.

    A corner t = e^ε where the slope rises by s adds s·(t^{1+λ} + t^{−λ}) to the moment E[e^{λL}]; without the corner,
    its mass moves to the neighboring ones. Corners whose removal adds least are dropped. λ = √(2·log(1/δ)/V), V the
    variance of all losses, bounds δ best.

    >>> line = [(Fraction(place, 4), Fraction(4 - place, 8)) for place in range(5)]
    >>> [[float(epsilon) for epsilon, _ in points] for points in choose_points([(line, 9)], Fraction(1, 1000), 3)]
    [[0.0, 0.5, 1.0]]
    """
    profiles = [_sort_distinct(points) for points, _ in kinds]
    spread = sum(count * _find_moment(points) for points, (_, count) in zip(profiles, kinds, strict=True))
    best_tilt = sqrt(2.0 * log(1.0 / delta) / spread) if spread > 0.0 and 0 < delta < 1 else 0.0
    for points in profiles:
        tilt = min(best_tilt, max(0.0, _MAX_EXPONENT / (1.0 + float(points[-1][0])) - 1.0))
        corners = [(exp(epsilon), float(delta)) for epsilon, delta in points]
        while len(points) > max(2, max_points):
            growths = [_compute_growth(corners[start : start + 3], tilt) for start in range(len(points) - 2)]
            index = 1 + growths.index(min(growths))
            del points[index], corners[index]
    return profiles


def _sort_distinct(points: Sequence[Point]) -> list[Point]:
    """Sort points; of those whose e^ε is the same float keep the smallest."""
    return sorted({exp(point[0]): point for point in sorted(points, reverse=True)}.values())


def _compute_growth(corners: Sequence[_Corner], tilt: float) -> float:
    """Compute how much the moment grows without the middle corner."""
    left, corner, right = corners
    low, middle, high = (t ** (1.0 + tilt) + t**-tilt for t, _ in corners)
    share = (right[0] - corner[0]) / (right[0] - left[0])
    rise = _compute_slope(corner, right) - _compute_slope(left, corner)
    return float(max(0.0, rise) * (share * low + (1.0 - share) * high - middle))


def _find_moment(points: Sequence[Point]) -> float:
    corners = [(exp(epsilon), float(delta)) for epsilon, delta in points]
    slopes = [*(_compute_slope(*pair) for pair in pairwise(corners)), 0.0]
    rises = [max(0.0, next_slope - slope) for slope, next_slope in pairwise(slopes)]
    return sum(log(t) ** 2 * (t + 1.0) * rise for (t, _), rise in zip(corners[1:], rises, strict=True))


def _compute_slope(first: _Corner, last: _Corner) -> float:
    return (last[1] - first[1]) / (last[0] - first[0])
