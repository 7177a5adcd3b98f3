import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.numerics.bisection import bisect_safe, last_allowed_integer


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 10**9))
def test_last_allowed_integer_is_next_to_the_border_in_both_directions(start: int, steps: int, excess: int) -> None:
    border = start + steps
    assert last_allowed_integer(lambda n: n <= border, start, border + excess) == border
    assert last_allowed_integer(lambda n: n >= -border, -start, -border - excess) == -border


@given(st.floats(1e-300, 1e300), st.booleans())
def test_bisect_safe_ends_at_the_last_allowed_float(border: float, geometric: bool) -> None:
    low, high = 1e-301, 1e301
    steps = 2100  # halving the difference takes so many from 1e301 to the last place of 1e-300
    upwards = bisect_safe(lambda x: x <= border, low, high, geometric=geometric, steps=steps)
    downwards = bisect_safe(lambda x: x >= border, high, low, geometric=geometric, steps=steps)
    assert upwards == downwards == border


@given(st.integers(0, 30), st.floats(0.0, 0.5))
def test_bisect_safe_returns_an_allowed_point_after_any_number_of_steps(steps: int, tolerance: float) -> None:
    points: list[float] = []

    def allowed(x: float) -> bool:
        points.append(x)
        return math.sin(50.0 * x) > 0.0 or x > 0.7  # changes its mind many times

    result = bisect_safe(allowed, 1.0, 0.0, steps=steps, tolerance=tolerance)
    assert result == 1.0 or (result in points and allowed(result))
    assert len(points) <= steps + 1
    assert not {0.0, 1.0} & set(points[:-1])  # the ends are not tried


def test_bisect_safe_halves_differences_or_ratios() -> None:
    assert bisect_safe(lambda _: False, 0.0, 8.0, steps=1) == 0.0
    assert bisect_safe(lambda _: True, 0.0, 8.0, steps=2) == 6.0
    assert bisect_safe(lambda _: True, 1.0, 100.0, steps=2, geometric=True) == pytest.approx(100.0**0.75, rel=1e-15)
    assert bisect_safe(lambda _: True, 16.0, 8.0, steps=1, geometric=True) == 12.0  # ratio 2: by the difference
    assert bisect_safe(lambda _: True, -8.0, -4.0, steps=1) == -6.0


def test_bisect_safe_keeps_fractions_exact_up_to_the_tolerance() -> None:
    result = bisect_safe(lambda x: 3 * x <= 1, Fraction(0), Fraction(1), tolerance=1e-9)
    assert isinstance(result, Fraction)
    assert 0 <= Fraction(1, 3) - result <= Fraction(1, 3 * 10**9)


def test_bisection_stops_between_neighbors() -> None:
    above = float(np.nextafter(1.0, 2.0))
    assert bisect_safe(lambda _: pytest.fail("there is nothing to try"), 1.0, above) == 1.0
    assert bisect_safe(lambda _: pytest.fail("there is nothing to try"), 1.0, 1.0) == 1.0
    assert last_allowed_integer(lambda _: pytest.fail("there is nothing to try"), 5, 6) == 5
