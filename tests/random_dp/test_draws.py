"""Neighboring data sets, norms that never round down, and values of black boxes."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from darrm.random_dp.draws import NORMS, check_norm, count, neighbors, norm_of, value_of

NUMBERS = st.floats(-1e150, 1e150)


@pytest.mark.parametrize("make", [list, np.array, lambda values: (np.array(values), np.array(values) * 2)])
def test_neighbors_share_all_records_but_one(make: object) -> None:
    draws = make([1, 2, 3, 4])  # type: ignore[operator]
    for position in range(3):
        first, second = neighbors(draws, position)
        assert count(first) == count(second) == 3
        columns = zip(first, second, strict=True) if isinstance(draws, tuple) else [(first, second)]
        for one, two in columns:
            assert [index for index in range(3) if one[index] != two[index]] == [position]


def test_neighbors_are_copies() -> None:
    draws = np.arange(4.0)
    first, second = neighbors(draws, 0)
    first[:] = -1
    assert second.tolist() == [3, 1, 2]
    assert draws.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", [(), (np.zeros(2), np.zeros(3)), 5])
def test_what_is_no_data_set(bad: object) -> None:
    with pytest.raises(ValueError, match="records must be"):
        count(bad)


@given(arrays(np.float64, st.integers(1, 40), elements=NUMBERS))
def test_norms_are_never_below_the_exact_ones(difference: np.ndarray) -> None:
    exact = [abs(Fraction(float(x))) for x in difference]
    square = sum(x * x for x in exact)
    assert Fraction(norm_of(difference, "l1")) >= sum(exact)
    assert Fraction(norm_of(difference, "l2")) ** 2 >= square
    assert Fraction(norm_of(difference, "sup")) >= max(exact)
    assert Fraction(norm_of(difference, "l1")) <= sum(exact) * (1 + Fraction(1, 10**13)) + Fraction(1, 10**300)
    assert Fraction(norm_of(difference, "l2")) ** 2 <= square * (1 + Fraction(1, 10**13)) + Fraction(1, 10**300)


def test_norms_at_the_limits() -> None:
    for name in NORMS:
        assert norm_of(np.zeros(3), name) == 0.0
        assert norm_of(np.zeros(0), name) == 0.0
        assert norm_of(np.array([1e-200, 0.0]), name) >= 1e-200
        with pytest.raises(ValueError, match="finite"):
            norm_of(np.array([math.inf]), name)
    assert norm_of(np.full(4, 1e200), "l2") == pytest.approx(2e200)


def test_a_callable_norm() -> None:
    assert norm_of(np.array([3.0, -1.0]), lambda d: float(d[0])) == 3.0
    with pytest.raises(ValueError, match="at least 0"):
        norm_of(np.array([-3.0]), lambda d: float(d[0]))
    with pytest.raises(ValueError, match="nan"):
        norm_of(np.array([-3.0]), lambda _: math.nan)
    with pytest.raises(ValueError, match="norm must be one of l1, l2, sup"):
        check_norm("L1")


@pytest.mark.parametrize("bad", [math.nan, [1.0, math.inf], "text", [[1], [2, 3]], 1j, None])
def test_values_that_are_no_finite_numbers(bad: object) -> None:
    with pytest.raises(ValueError, match=r"function's value|inhomogeneous"):
        value_of(lambda _: bad, [1])


def test_values_become_floats() -> None:
    assert value_of(lambda _: True, [1]) == 1.0
    assert value_of(lambda data: np.array(data, dtype=np.int8), [1, 2]).dtype == np.float64
