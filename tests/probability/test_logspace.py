from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.probability.logspace import log1mexp, log_add, log_sub, log_sum

LOGS = st.floats(-700.0, 0.0).map(lambda value: round(value, 9))


@given(first=LOGS, second=LOGS)
def test_sums_and_differences_against_many_digits(first: float, second: float) -> None:
    larger, smaller = max(first, second), min(first, second)
    with mpmath.workdps(350):
        total = float(mpmath.log(mpmath.e**larger + mpmath.e**smaller))
        difference = mpmath.e ** mpmath.mpf(larger) - mpmath.e ** mpmath.mpf(smaller)
        expected = float(mpmath.log(difference)) if difference > 0 else -np.inf
    assert float(log_add(larger, smaller)) == pytest.approx(total, rel=1e-13, abs=1e-13)
    assert float(log_sub(larger, smaller)) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_the_ends() -> None:
    assert float(log1mexp(0.0)) == -np.inf
    assert float(log1mexp(-np.inf)) == 0.0
    assert float(log_sub(-np.inf, -np.inf)) == -np.inf
    assert float(log_sum([-np.inf, -np.inf])) == -np.inf
    assert log_sum(np.log([[0.5, 0.5], [0.25, 0.25]])).tolist() == pytest.approx([0.0, np.log(0.5)])


def test_negative_differences_are_refused() -> None:
    with pytest.raises(ValueError, match="larger >= smaller"):
        log_sub(-1.0, 0.0)
    with pytest.raises(ValueError, match="x <= 0"):
        log1mexp(1e-9)
