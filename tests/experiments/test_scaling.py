"""The scaling experiment: what it reports is what it measured."""

import math

import pytest

from experiments.scaling.measuring import measure, measure_apart
from experiments.scaling.page import Case, Measurement, exponent, summary


def measurement(K: int, seconds: float, solver: str = "production") -> Measurement:
    return Measurement(
        K=K,
        m=10,
        each_delta="0",
        shape="free",
        solver=solver,
        seconds=seconds,
        separation_seconds=0.5,
        rows_full_set=9,
        rows_used=3,
        rounds=2,
        expected_error=0.1,
        bound=0.1,
        relative_gap=0.0,
        status="optimal",
        method="",
        peak_megabytes=1.0,
    )


def test_a_case_is_measured() -> None:
    item = measure(Case(41, 10, "1e-5", "free", "production"), 60.0)
    assert item.rows_full_set == 73_629_072
    assert 0 < item.rows_used < 1000
    assert item.relative_gap < 1e-9
    assert item.over_floor > 1.0


@pytest.mark.slow
def test_a_case_is_measured_in_a_process_of_its_own() -> None:
    apart = measure_apart(Case(11, 3, "0", "monotone", "production", "numpy"), 60.0)
    here = measure(Case(11, 3, "0", "monotone", "production"), 60.0)
    assert (apart.loops, here.loops) == ("numpy", "compiled")
    assert (apart.expected_error, apart.bound, apart.rounds) == (here.expected_error, here.bound, here.rounds)


def test_exponents_and_speedups_are_computed() -> None:
    quadratic = [measurement(K, 1e-6 * K**2) for K in (41, 101, 301, 1001)]
    assert exponent(quadratic) == pytest.approx(2.0)
    assert math.isnan(exponent(quadratic[:2]))
    found = summary([measurement(7, 5.0, "reference"), measurement(7, 0.5), *quadratic])
    assert found["speedups"][0]["times_faster"] == pytest.approx(10.0)
