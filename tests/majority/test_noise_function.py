from fractions import Fraction
from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

from darrm import priors
from darrm.majority import baselines
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics.binomial import poisson_binomial_pmf
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters


def problem_of(K: int, m: int, epsilon: str = "0.1", delta: str = "0") -> Problem:
    return Problem.from_allowance(Voters(K, PrivacyParams(epsilon, delta)), m)


class TestNoiseFunction:
    def test_the_callers_array_stays_writable_and_apart(self) -> None:
        mine = np.array([0.5, 1.0])
        gamma = NoiseFunction(3, mine)
        mine[0] = 0.0
        assert gamma.half[0] == 0.5
        with pytest.raises(ValueError, match="read-only"):
            gamma.half[0] = 1.0

    def test_even_number_of_voters_has_a_fair_tie(self) -> None:
        gamma = NoiseFunction(4, [0.25, 1.0])
        assert gamma.full.tolist() == [1.0, 0.25, 0.0, 0.25, 1.0]
        assert gamma.signed.tolist() == [-1.0, -0.25, 0.0, 0.25, 1.0]
        assert NoiseFunction.from_full(gamma.full).half.tolist() == gamma.half.tolist()

    @pytest.mark.parametrize(
        ("K", "half", "message"),
        [
            (0, [1.0], "K must be an integer of at least 1"),
            (2.0, [1.0], "K must be an integer of at least 1"),
            (3, [1.0], "half must be of shape"),
            (3, [0.5, 1.5], r"γ\(3\) must be in \[0, 1\], got 1.5"),
            (3, [0.5, float("nan")], r"γ\(3\) must be in \[0, 1\], got nan"),
            (3, ["a", "b"], "half must be an array of 2 numbers"),
        ],
    )
    def test_bad_input(self, K: int, half: list[float], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            NoiseFunction(K, half)

    def test_a_tie_cannot_have_truth(self) -> None:
        with pytest.raises(ValueError, match=r"γ\(1\) must be 0 for even K"):
            NoiseFunction.from_full([1.0, 0.5, 1.0])

    @pytest.mark.parametrize("K", [1, 2, 7, 8])
    def test_a_function_is_asked_from_the_first_majority_to_unanimity(self, K: int) -> None:
        asked: list[int] = []

        def gamma(ones: int) -> float:
            asked.append(ones)
            return ones / (K + 1)

        result = NoiseFunction.from_function(K, gamma)
        assert asked == [ones for ones in range(K + 1) if 2 * ones > K]
        assert result.full[asked].tolist() == [ones / (K + 1) for ones in asked]

    @pytest.mark.parametrize(
        ("gamma", "message"),
        [
            (lambda ones: ones, r"γ\(2\) must be in \[0, 1\], got 2"),
            (lambda ones: 0.5 if ones < 3 else float("nan"), r"γ\(3\) must be in \[0, 1\], got nan"),
            (lambda _ones: None, r"γ\(2\) must be in \[0, 1\], got nan"),
            (lambda _ones: "much", "half must be an array of 2 numbers"),
            ([0.5, 1.0], "gamma must be a function of the number of ones"),
        ],
    )
    def test_a_function_that_is_none(self, gamma: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            NoiseFunction.from_function(3, gamma)

    def test_scaling_rounds_down(self) -> None:
        gamma = NoiseFunction(5, [0.1, 0.7, 1.0])
        scaled = gamma.scale_by(1 / 3)
        for value, original in zip(scaled.half, gamma.half, strict=True):
            assert Fraction(float(value)) <= Fraction(float(original)) * Fraction(1 / 3)
        assert NoiseFunction(5, [0.3, 0.3, 0.3]).scale_by(0.9).is_monotone


class TestPriors:
    @pytest.mark.parametrize("K", [1, 2, 5, 10, 11])
    def test_independent_laws_only_matter_through_their_mean(self, K: int) -> None:
        # the exact expectation of the Poisson binomial over a two-point law with the same mean
        low, high = 0.6, 1.0
        expected = np.zeros(K + 1)
        for choice in product((low, high), repeat=K):
            expected += poisson_binomial_pmf(np.array(choice)) / 2**K
        levels = np.arange(K // 2 + 1, K + 1)
        weights = priors.Independent(low, high).weights(K)
        np.testing.assert_allclose(weights, expected[levels] - expected[K - levels], rtol=1e-10, atol=1e-14)

    @pytest.mark.parametrize("K", [1, 4, 11])
    def test_a_common_p_is_integrated_exactly(self, K: int) -> None:
        for index, level in enumerate(range(K // 2 + 1, K + 1)):

            def difference(p: float, level: int = level) -> float:
                pmf = poisson_binomial_pmf(np.full(K, p))
                return abs(float(pmf[level] - pmf[K - level]))

            value = quad(difference, 0.0, 0.5)[0] + quad(difference, 0.5, 1.0)[0]
            assert priors.Dirichlet().weights(K)[index] == pytest.approx(value, rel=1e-8)

    def test_a_point_next_to_one_half_keeps_its_digits(self) -> None:
        weights = priors.Point(0.500001).weights(101)
        p = Fraction("0.500001")
        for index, level in enumerate(range(51, 102)):
            exact = comb(101, level) * (p**level * (1 - p) ** (101 - level) - p ** (101 - level) * (1 - p) ** level)
            assert weights[index] == pytest.approx(float(exact), rel=1e-9)

    def test_weights_reach_far_down(self) -> None:
        weights = priors.Independent(0.5, 1.0).weights(501)

        def exact(level: int) -> Fraction:
            return comb(501, level) * Fraction(3, 4) ** level * Fraction(1, 4) ** (501 - level)

        assert float(exact(251)) < 1e-30
        expected = [float(exact(level) - exact(501 - level)) for level in range(251, 502)]
        np.testing.assert_allclose(weights, expected, rtol=1e-11)

    def test_malformed_text(self) -> None:
        uniform = ("uniform:", "uniform:0.5", "uniform:0.9,0.6", "uniform:0.6,nan", "uniform:0.5,a,b", "Uniform")
        two_sided = ("two-sided", "two-sided:0.7", "two-sided:0.3,0.9", "two-sided:0.9,0.8")
        for text in (*uniform, *two_sided, "", "point", "point:2", "point:0.5", "point:1,2", "common:1"):
            with pytest.raises(ValueError, match="must be"):
                priors.parse(text)

    def test_below_one_half_the_error_is_not_linear(self) -> None:
        with pytest.raises(ValueError, match="must be one with a linear expected error"):
            priors.Independent(0.0, 1.0).weights(11)


class TestBaselines:
    @pytest.mark.parametrize(("K", "m"), [(5, 1), (5, 2), (5, 3), (6, 3), (6, 4), (7, 5)])
    def test_subsampling_has_the_law_of_drawing_voters(self, K: int, m: int) -> None:
        gamma = baselines.subsampling(problem_of(K, m))
        for ones in range(K + 1):
            votes = [1] * ones + [0] * (K - ones)
            outcomes = [2 * sum(votes[i] for i in drawn) - m for drawn in combinations(range(K), m)]
            truth = Fraction(sum((o > 0) - (o < 0) for o in outcomes), len(outcomes))
            assert gamma.signed[ones] == pytest.approx(float(truth), abs=1e-15)

    def test_double_subsampling_draws_2m_minus_1(self) -> None:
        assert baselines.double_subsampling(problem_of(11, 3)).half == pytest.approx(
            baselines.subsampling(problem_of(11, 5)).half
        )
        assert np.all(baselines.double_subsampling(problem_of(11, 6)).half == 1.0)

    def test_only_integer_allowances_can_be_drawn(self) -> None:
        problem = Problem.from_allowance(Voters(11, PrivacyParams("0.1")), "2.5")
        for propose in (baselines.subsampling, baselines.double_subsampling):
            with pytest.raises(ValueError, match="m must be an integer"):
                propose(problem)

    def test_randomized_response_follows_lemma_a1(self) -> None:
        # pure privacy, one voter more than the allowance: only simple composition applies
        problem = Problem.from_allowance(Voters(2, PrivacyParams("3")), 1)
        e, tau = np.exp(3.0), np.exp(6.0)
        expected = (e - 1) / (2 * (tau - e) / (tau + 1) + e - 1)
        assert baselines.randomized_response(problem).half[0] == pytest.approx(expected, rel=1e-12)

    def test_randomized_response_survives_huge_exponents(self) -> None:
        problem = Problem.from_allowance(Voters(501, PrivacyParams("2")), 300)
        value = float(baselines.randomized_response(problem).half[0])
        assert 0.0 < value <= 1.0
