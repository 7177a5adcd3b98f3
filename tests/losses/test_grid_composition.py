"""The composition on a grid against exact sums, and its bound on rounding against the truth in many digits."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darrm.losses.grid_composition import GridComposition, GridQueries


def exact_sum(kinds: list[GridQueries]) -> tuple[int, list[mpmath.mpf]]:
    """Convolve one query after another, in 60 digits; the smallest loss, and the masses."""
    first, total = 0, [mpmath.mpf(1)]
    for kind in kinds:
        masses = [mpmath.mpf(float(mass)) for mass in kind.masses]
        for _ in range(kind.count):
            first += kind.first
            longer = [mpmath.mpf(0)] * (len(total) + len(masses) - 1)
            for place, one in enumerate(total):
                for shift, other in enumerate(masses):
                    longer[place + shift] += one * other
            total = longer
    return first, total


def exact_delta(kinds: list[GridQueries], step: float, epsilon: float) -> mpmath.mpf:
    first, total = exact_sum(kinds)
    finite = math.prod(((1 - mpmath.mpf(kind.infinite)) ** kind.count for kind in kinds), start=mpmath.mpf(1))
    losses = [mpmath.mpf(step) * (first + place) for place in range(len(total))]
    rest = (mass * -mpmath.expm1(epsilon - loss) for loss, mass in zip(losses, total, strict=True) if loss > epsilon)
    return 1 - finite + mpmath.fsum(rest)


@st.composite
def queries(draw: st.DrawFn) -> GridQueries:
    """A law with finite losses and, sometimes, an infinite one; some masses are tiny."""
    weights = draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0, 1e-9, 1e-30]), min_size=2, max_size=6))
    infinite = draw(st.sampled_from([0.0, 1e-12, 1e-4]))
    masses = np.array([1.0, *weights])
    first = draw(st.integers(-4, 0))  # as privacy losses, which are not all positive
    return GridQueries(first, (1.0 - infinite) * masses / masses.sum(), infinite, draw(st.integers(1, 9)))


@settings(deadline=None)
@given(st.lists(queries(), min_size=1, max_size=2), st.sampled_from([0.01, 0.3, 2.0]), st.integers(1, 12))
def test_what_is_found_is_safe_and_nearly_the_smallest(kinds: list[GridQueries], step: float, digits: int) -> None:
    delta = 3.0 * 10.0**-digits
    with mpmath.workdps(60):
        epsilon = GridComposition(kinds, step).smallest_epsilon(delta)
        if math.isinf(epsilon):
            assert exact_delta(kinds, step, 1e6) > delta * (1.0 - 1e-6)
            return
        assert exact_delta(kinds, step, epsilon) <= delta
        if epsilon > 0.0:
            assert exact_delta(kinds, step, epsilon * (1.0 - 1e-6)) > delta * (1.0 - 1e-6)


def randomized_response_delta(epsilon_of_one: float, count: int, epsilon: float) -> mpmath.mpf:
    """Σ C(k, l) p^l (1 − p)^{k−l} max(0, 1 − e^{ε − loss})."""
    p = 1 / (1 + mpmath.exp(-epsilon_of_one))
    weight, total = (1 - p) ** count, mpmath.mpf(0)
    for ones in range(count + 1):
        loss = mpmath.mpf(epsilon_of_one) * (2 * ones - count)
        if loss > epsilon:
            total -= weight * mpmath.expm1(epsilon - loss)
        weight *= mpmath.mpf(count - ones) / (ones + 1) * p / (1 - p)
    return total


@pytest.mark.parametrize("step_parts", [1, 64])  # 64: a transform of less cells than the sum has
@pytest.mark.parametrize("delta", [1e-2, 1e-9, 1e-40])
def test_many_queries_keep_the_digits_of_a_small_delta(delta: float, step_parts: int) -> None:
    each, count = 0.125, 3000
    # rounded up to where they sum to one: what is exact is not the last digit of a mass
    one = 1.0 / (1.0 + math.exp(-each))
    masses = np.zeros(2 * step_parts + 1)
    masses[0], masses[-1] = 1.0 - one, one
    epsilon = GridComposition([GridQueries(-step_parts, masses, 0.0, count)], each / step_parts).smallest_epsilon(delta)
    with mpmath.workdps(60):
        true = randomized_response_delta(each, count, epsilon)
        assert true <= delta * (1.0 + 1e-10)  # the float p, three thousand times
        assert true > delta * (1.0 - 1e-6)


def test_no_finite_epsilon_where_infinite_losses_take_all_of_delta() -> None:
    kind = GridQueries(0, np.array([0.4, 0.6 - 1e-3]), 1e-3, 50)
    assert GridComposition([kind], 0.1).smallest_epsilon(0.04) == math.inf
    assert GridComposition([kind], 0.1).smallest_epsilon(0.05) < 5.0


def test_losses_that_are_never_positive_cost_nothing() -> None:
    assert GridComposition([GridQueries(-2, np.array([0.5, 0.0, 0.5]), 0.0, 7)], 0.1).smallest_epsilon(1e-9) == 0.0
