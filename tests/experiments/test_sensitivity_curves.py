"""Figures 2 and 3 of [S]: the bounds on the effort, its rate, and the order statistics' shares."""

import math

from hypothesis import given
from hypothesis import strategies as st

from darrm.random_dp.sample_size import sample_size
from experiments.sensitivity.curves import effort_bounds, index_share


@given(gamma=st.floats(1e-7, 0.999))
def test_the_bounds_of_corollary_16(gamma: float) -> None:
    low, high = effort_bounds(gamma)
    assert low <= sample_size(gamma=gamma).m <= high
    assert high < 1.6 * low + 2


def test_the_rate_is_theta_with_constant_one_half() -> None:
    ratios = [sample_size(gamma=g).m * g * g / math.log(1 / g) for g in (1e-2, 1e-4, 1e-7)]
    assert ratios[0] > ratios[1] > ratios[2] > 0.5


def test_shares_of_the_order_statistics() -> None:
    assert index_share(100, 0.1) is None
    assert index_share(100, 0.16) == 1.0
    assert index_share(100, 0.5) == sample_size(gamma=0.5, m=100).k / 100 < 0.7
