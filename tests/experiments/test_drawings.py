"""The drawings of the theory: they are drawn, and the corners are corners."""

import math

import pytest

from darrm.privacy import PrivacyParams
from experiments.drawings import corners_of


@pytest.mark.parametrize(("epsilon", "delta", "count"), [("0.7", "0.1", 8), ("1", "0", 4)])
def test_every_corner_is_allowed_and_lies_on_two_borders(epsilon: str, delta: str, count: int) -> None:
    corners = corners_of(PrivacyParams(epsilon, delta))
    growth, slack = math.exp(float(epsilon)), float(delta)
    assert len(corners) == count
    for p, q in corners:
        rooms = [growth * q + slack - p, growth * p + slack - q, growth * (1 - q) + slack - (1 - p)]
        rooms += [growth * (1 - p) + slack - (1 - q), p, q, 1 - p, 1 - q]
        assert min(rooms) > -1e-12
        assert sum(abs(room) < 1e-12 for room in rooms) >= 2
