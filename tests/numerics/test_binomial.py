from fractions import Fraction
from functools import reduce
from itertools import pairwise, product
from math import comb
from operator import mul

import numpy as np
import pytest
from flint import arb, arb_poly, ctx
from hypothesis import given
from hypothesis import strategies as st

from darrm.numerics.binomial import (
    STEP_ERROR,
    binomial_pmf,
    hypergeometric_pmf,
    poisson_binomial_pmf,
    smooth,
    tail_bound,
)


@pytest.mark.parametrize(("n", "p"), [(1, 0.5), (7, 0.3), (50, 1e-5), (200, 0.999), (301, 0.525)])
def test_binomial_against_exact_fractions(n: int, p: float) -> None:
    q = Fraction(p)
    exact = [float(comb(n, k) * q**k * (1 - q) ** (n - k)) for k in range(n + 1)]
    np.testing.assert_allclose(binomial_pmf(n, p), exact, rtol=4e-16 * (n + 40), atol=1e-300)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_binomial_of_certain_outcomes(p: float) -> None:
    assert binomial_pmf(3, p).tolist() == ([1.0, 0, 0, 0] if p == 0.0 else [0, 0, 0, 1.0])
    assert binomial_pmf(0, 0.4).tolist() == [1.0]


@given(population=st.integers(1, 40), data=st.data())
def test_hypergeometric_against_counting(population: int, data: st.DataObject) -> None:
    ones, draws = data.draw(st.integers(0, population)), data.draw(st.integers(0, population))
    exact = [
        float(Fraction(comb(ones, j) * comb(population - ones, draws - j), comb(population, draws)))
        for j in range(draws + 1)
    ]
    np.testing.assert_allclose(hypergeometric_pmf(population, ones, draws), exact, rtol=1e-13, atol=0)


@given(n=st.integers(0, 60), p=st.sampled_from([1e-5, 0.01, 0.1, 0.6]), max_count=st.integers(0, 12))
def test_tail_bound_is_above_the_tail_and_near_small_ones(n: int, p: float, max_count: int) -> None:
    q = Fraction(p)
    tail = sum((comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(max_count + 1, n + 1)), Fraction(0))
    assert tail <= tail_bound(n, p, max_count)
    assert tail_bound(n, p, max_count) <= 1.0
    # and it is not idle: for small means it is close
    if n * p < 1e-2 and tail:
        assert tail_bound(n, p, max_count) <= 1.02 * float(tail)


@pytest.mark.parametrize(
    ("arguments", "message"), [((-1, 0.5), "n must be"), ((3, 1.5), "p must be"), ((2.5, 0.5), "n")]
)
def test_binomials_refuse_parameters_out_of_range(arguments: tuple[int, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        binomial_pmf(*arguments)
    with pytest.raises(ValueError, match="must not exceed"):
        hypergeometric_pmf(3, 4, 1)


@pytest.mark.parametrize("K", [1, 3, 6])
def test_poisson_binomial_against_all_outcomes(K: int) -> None:
    p = np.random.default_rng(K).random(K)
    exact = [Fraction(0)] * (K + 1)
    for outcome in product((0, 1), repeat=K):
        term = Fraction(1)
        for chance, vote in zip(p, outcome, strict=True):
            term *= Fraction(float(chance)) if vote else 1 - Fraction(float(chance))
        exact[sum(outcome)] += term
    np.testing.assert_allclose(poisson_binomial_pmf(p), [float(value) for value in exact], rtol=1e-14)
    np.testing.assert_array_equal(poisson_binomial_pmf(np.stack([p, p]))[1], poisson_binomial_pmf(p))


@pytest.mark.parametrize("K", [129, 300])
def test_poisson_binomial_of_many_variables_against_balls(K: int) -> None:
    p = np.random.default_rng(K).random((2, K))
    with ctx.workprec(200):
        for chances, pmf in zip(p, poisson_binomial_pmf(p), strict=True):
            product_of_all = reduce(mul, (arb_poly([1 - arb(float(one)), arb(float(one))]) for one in chances))
            exact = [float(value.mid()) for value in product_of_all.coeffs()]
            np.testing.assert_allclose(pmf, exact, rtol=K * 2.0**-52)


def test_smooth_is_an_expectation_within_its_error_bound() -> None:
    rng = np.random.default_rng(0)
    K, p = 60, 0.5249791874789399
    g = rng.uniform(-1.0, 1.0, K + 1)
    level, exact = g, [Fraction(float(value)) for value in g]
    q = Fraction(p)
    for j in range(1, K + 1):
        level = smooth(level, p)
        exact = [(1 - q) * a + q * b for a, b in pairwise(exact)]
        errors = [abs(Fraction(float(value)) - truth) for value, truth in zip(level, exact, strict=True)]
        assert max(errors) <= j * STEP_ERROR
