"""Points of charges, and which of them are worth a proof: a choice by floats, on which no claim rests.

A proof of one point takes as long as a proof of privacy, and chords between the proved points lie above the profile. A
corner at t = e^ε where the slope in t rises by s has masses t·s and s at the losses ε and −ε, so it adds s·φ(t) to the
moment E[e^{λL}] of a query, φ(t) = t^{1+λ} + t^{−λ}. Without it the chord passes its masses on to the corners beside
it, by the lever rule in t, which adds

    s·((t″ − t)·φ(t′) + (t − t′)·φ(t″))/(t″ − t′) − s·φ(t),        t′ < t < t″.

The corner whose absence adds least goes, one after the other. With spread V of all losses, λ = √(2·log(1/δ)/V) is where
e^{λ·(ΣL − ε)} bounds δ best, next to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import exp, inf, log, sqrt

from darrm.losses.charges import Charge
from darrm.verify.sums import Kind, Point

MOST_EPSILON = 700  # of one query: beyond it e^ε is no float
_MOST_EXPONENT = 600.0  # so that moments are floats


@dataclass(frozen=True)
class _Corner:
    t: float  # e^ε
    height: float  # δ


def kinds_of(charges: Sequence[Charge]) -> list[Kind] | None:
    """Read the points off charges, of a profile where there is one; None if one of them has none below `MOST_EPSILON`.

    Whether the points hold is not looked at: that is to be proved elsewhere.
    """
    kinds: list[Kind] = []
    for charge in charges:
        if charge.profile is not None:
            pairs = zip(charge.profile.epsilons, charge.profile.deltas, strict=True)
            kinds.append(([(Fraction(epsilon), Fraction(delta)) for epsilon, delta in pairs], charge.count))
        elif charge.guarantee is not None and charge.guarantee.exact_epsilon <= MOST_EPSILON:
            kinds.append(([(charge.guarantee.exact_epsilon, charge.guarantee.exact_delta)], charge.count))
        else:
            return None
    return kinds


def telling_points(kinds: Sequence[Kind], delta: Fraction, most: int) -> list[list[Point]]:
    """Choose up to so many points of each kind, at least two: those that matter most for the ε of all at this δ.

    >>> line = [(Fraction(place, 4), Fraction(4 - place, 8)) for place in range(5)]
    >>> [[float(epsilon) for epsilon, _ in points] for points in telling_points([(line, 9)], Fraction(1, 1000), 3)]
    [[0.0, 0.5, 1.0]]
    """
    spread = sum(count * _second_moment(_corners(points)) for points, count in kinds)
    tilt = sqrt(2.0 * log(1.0 / delta) / spread) if spread > 0.0 and 0 < delta < 1 else 0.0
    return [_thinned(_distinct(points), tilt, max(2, most)) for points, _ in kinds]


def _thinned(points: list[Point], tilt: float, most: int) -> list[Point]:
    """Drop points one after the other, each time the one whose absence adds least to the moment."""
    corners, kept = _corners(points), list(range(len(points)))
    tilt = min(tilt, max(0.0, _MOST_EXPONENT / (1.0 + float(points[-1][0])) - 1.0))
    growths = [inf, *(_growth(corners[at - 1 : at + 2], tilt) for at in kept[1:-1]), inf]
    while len(kept) > most:
        place = growths.index(min(growths))
        del kept[place], growths[place]
        for near in (place - 1, place):
            if 0 < near < len(kept) - 1:
                growths[near] = _growth([corners[at] for at in kept[near - 1 : near + 2]], tilt)
    return [points[place] for place in kept]


def _growth(three: Sequence[_Corner], tilt: float) -> float:
    before, own, after = three
    share = (after.t - own.t) / (after.t - before.t)
    chord = share * _moment(before.t, tilt) + (1.0 - share) * _moment(after.t, tilt)
    return max(0.0, _slope(own, after) - _slope(before, own)) * (chord - _moment(own.t, tilt))


def _moment(t: float, tilt: float) -> float:
    return float(t ** (1.0 + tilt) + t**-tilt)


def _second_moment(corners: Sequence[_Corner]) -> float:
    slopes = [*(_slope(*pair) for pair in pairwise(corners)), 0.0]
    rises = [max(0.0, after - before) for before, after in pairwise(slopes)]
    return sum(log(corner.t) ** 2 * (corner.t + 1.0) * rise for corner, rise in zip(corners[1:], rises, strict=True))


def _slope(first: _Corner, last: _Corner) -> float:
    return (last.height - first.height) / (last.t - first.t)


def _corners(points: Sequence[Point]) -> list[_Corner]:
    return [_Corner(exp(epsilon), float(height)) for epsilon, height in _distinct(points)]


def _distinct(points: Sequence[Point]) -> list[Point]:
    return sorted(dict(sorted(points, reverse=True)).items())
