import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.mechanisms.noise_tails import log1mexp, log_sum

LOGS = st.floats(-700.0, 0.0).map(lambda value: round(value, 9))


@given(first=LOGS, second=LOGS)
def test_sums_and_complements_against_many_digits(first: float, second: float) -> None:
    with mpmath.workdps(350):
        total = float(mpmath.log(mpmath.e**first + mpmath.e**second))
        rest = float(mpmath.log(1 - mpmath.e ** mpmath.mpf(first))) if first else -np.inf
    assert float(log_sum([first, second])) == pytest.approx(total, rel=1e-13, abs=1e-13)
    assert float(log1mexp(first)) == pytest.approx(rest, rel=1e-12, abs=0.0)


def test_the_ends() -> None:
    assert float(log1mexp(0.0)) == -np.inf
    assert float(log1mexp(-np.inf)) == 0.0
    assert float(log_sum([-np.inf, -np.inf])) == -np.inf
    assert log_sum(np.log([[0.5, 0.5], [0.25, 0.25]])).tolist() == pytest.approx([0.0, np.log(0.5)])


def test_a_negative_complement_is_refused() -> None:
    with pytest.raises(ValueError, match="x <= 0"):
        log1mexp(1e-9)
