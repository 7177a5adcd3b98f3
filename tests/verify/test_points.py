"""Which points are worth a proof: the moments of the law without them, and ε from few points."""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import pytest

from darrm.loss.privacy_cost import PrivacyCost
from darrm.noisy_max.label_cost import label_profile
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.verify.numbers import Point
from darrm.verify.sums import Kind, composed_epsilon, telling_points
from tests.verify.support import charge_of

SMALL = Fraction(1, 10**6)


def labels(sigma: float, count: int) -> Kind:
    cost = PrivacyCost("labels", profile=label_profile(DiscreteGaussian(sigma)), count=count)
    return charge_of(cost).points(), count


@pytest.mark.parametrize(
    ("sigma", "count"), [(100.0, 1000), (10.0, 100), (10.0, 1), pytest.param(300.0, 10_000, marks=pytest.mark.slow)]
)
def test_twelve_points_are_as_good_as_all(sigma: float, count: int) -> None:
    points, _ = labels(sigma, count)
    chosen = telling_points([(points, count)], SMALL, 12)[0]
    assert len(chosen) == 12
    assert set(chosen) < set(points)
    assert (chosen[0], chosen[-1]) == (points[0], points[-1])
    best, near = (composed_epsilon([(some, count)], SMALL) for some in (points, chosen))
    assert best is not None
    assert near is not None
    assert best <= near <= best * Fraction(1011, 1000)
    even = composed_epsilon([(points[::9], count)], SMALL)  # also twelve
    assert even is not None
    assert even > near


def moment(points: Sequence[Point], tilt: float) -> float:
    """E[e^{λL}] of the law whose profile is the line through these points, an atom at a corner."""
    t, heights = [math.exp(epsilon) for epsilon, _ in points], [float(delta) for _, delta in points]
    slopes = [(heights[at + 1] - heights[at]) / (t[at + 1] - t[at]) for at in range(len(t) - 1)]
    rises = [after - before for before, after in pairwise([*slopes, 0.0])]
    # at ε = 0 both directions meet, and what all others leave has the loss 0
    masses = [(x * rise, math.log(x)) for x, rise in zip(t[1:], rises, strict=True)]
    masses += [(rise, -math.log(x)) for x, rise in zip(t[1:], rises, strict=True)]
    at_zero = 1.0 - heights[-1] - sum(mass for mass, _ in masses)
    return at_zero + sum(mass * math.exp(tilt * loss) for mass, loss in masses)


def test_the_first_to_go_adds_least_to_the_moment() -> None:
    every, count = labels(10.0, 50)
    points = list(every)[:40:3]
    variance = count * (moment(points, 1e-3) + moment(points, -1e-3) - 2.0 * moment(points, 0.0)) / 1e-6
    tilt = math.sqrt(2.0 * math.log(1.0 / SMALL) / variance)
    without = {place: moment(points[:place] + points[place + 1 :], tilt) for place in range(1, len(points) - 1)}
    gone = min(without, key=lambda place: without[place])
    assert telling_points([(points, count)], SMALL, len(points) - 1) == [points[:gone] + points[gone + 1 :]]


def test_limits() -> None:
    line = [(Fraction(place), Fraction(1, 2 + place)) for place in range(5)]
    assert telling_points([(line, 1), (line[:1], 2)], SMALL, 1) == [[line[0], line[-1]], line[:1]]
    assert telling_points([(line[::-1], 1)], Fraction(0), 9) == [line]
    assert telling_points([([*line, (Fraction(4), Fraction(1))], 1)], SMALL, 9) == [line]
    far = [(Fraction(place * 100), Fraction(1, 2**place)) for place in range(8)]
    assert len(telling_points([(far, 1)], SMALL, 3)[0]) == 3
