import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.noisy_max.noise_tails import log1mexp


@given(st.floats(-700.0, 0.0).map(lambda value: round(value, 9)))
def test_complements_against_many_digits(value: float) -> None:
    with mpmath.workdps(350):
        rest = float(mpmath.log(1 - mpmath.e ** mpmath.mpf(value))) if value else -np.inf
    assert float(log1mexp(value)) == pytest.approx(rest, rel=1e-12, abs=0.0)


def test_the_ends() -> None:
    assert float(log1mexp(0.0)) == -np.inf
    assert float(log1mexp(-np.inf)) == 0.0


def test_a_negative_complement_is_refused() -> None:
    with pytest.raises(ValueError, match="x <= 0"):
        log1mexp(1e-9)
