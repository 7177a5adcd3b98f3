"""The baselines: the theorem of γ_DSub in exact fractions, with its best constants, and the laws of samples."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from darrm import PrivacyParams, Problem, Voters, certify
from darrm.majority import baselines
from tests.oracle import law


def majority_probability(p: list[Fraction]) -> Fraction:
    """Compute Pr[most of an odd number of independent votes are 1]."""
    return sum(law(p)[len(p) // 2 + 1 :], Fraction(0))


def sample_majority_probability(p: list[Fraction], size: int) -> Fraction:
    samples = [majority_probability(list(sample)) for sample in combinations(p, size)]
    return sum(samples, Fraction(0)) / len(samples)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 1000), Fraction(1, 10)])
def test_the_theorem_in_exact_fractions(seed: int, delta: Fraction) -> None:
    rng = np.random.default_rng(seed)
    exp_epsilon = Fraction(11 + seed, 10)
    K, m = int(rng.integers(1, 8)), int(rng.integers(1, 4))
    size = min(2 * m - 1, K - 1 + K % 2)
    for scale in (10**6, 10**10):
        lower = [Fraction(int(n), scale) for n in rng.integers(0, 10**6, K)]
        # the largest p with p ≤ e^ε p' + Δ and 1 − p' ≤ e^ε (1 − p) + Δ
        upper = [max(q, min(exp_epsilon * q + delta, 1 - (1 - q - delta) / exp_epsilon, Fraction(1))) for q in lower]
        zeros = [[1 - p for p in side] for side in (lower, upper)]
        for first, second in ((upper, lower), zeros):
            growth = exp_epsilon**m * sample_majority_probability(second, size)
            assert sample_majority_probability(first, size) <= growth + 1 - (1 - delta) ** m


def test_the_factor_m_is_the_best_one() -> None:
    tiny = [Fraction(1, 10**6)] * 5
    ratio = majority_probability([2 * p for p in tiny]) / majority_probability(tiny)
    assert 8 - Fraction(1, 10**4) < ratio < 8  # e^ε = 2, m = 3


PAIRS = [("0.1", "0"), ("1", "1e-5"), ("0.5", "0.01"), ("2", "0.2")]
DIFFERING = Voters.of([PrivacyParams("0.3", "1e-3"), *(PrivacyParams(e) for e in ("0.1", "0.1", "0.2", "0.3"))])


@pytest.mark.parametrize(
    "voters", [*(Voters(K, PrivacyParams(*pair)) for K in (3, 4, 6, 7, 12) for pair in PAIRS), DIFFERING], ids=str
)
def test_double_subsampling_is_certified_unscaled_where_the_theorem_covers_it(voters: Voters) -> None:
    for m in range(1, min(voters.K, 5) + 1):
        problem = Problem.from_allowance(voters, m)
        assert baselines.is_covered_by_theorem(problem)
        assert certify(problem, baselines.double_subsampling(problem)).certificate.scale > 1.0 - 1e-9


@pytest.mark.parametrize(("epsilon", "target"), [("0.1", "0.2"), ("0.01", "0.03")])
def test_a_smaller_delta_is_not_enough(epsilon: str, target: str) -> None:
    problem = Problem(Voters(7, PrivacyParams(epsilon, "0.01")), PrivacyParams(target, "0.01"))
    assert not baselines.is_covered_by_theorem(problem)
    assert certify(problem, baselines.double_subsampling(problem)).certificate.scale < 0.997


def test_theorem_covers_neither_fractions_nor_non_private_voters() -> None:
    fraction = Problem.from_allowance(Voters(11, PrivacyParams("0.1")), "2.5")
    assert not baselines.is_covered_by_theorem(fraction)
    assert not baselines.is_covered_by_theorem(Problem(Voters(11, PrivacyParams("inf"), 1), PrivacyParams("1")))
    for propose in (baselines.subsampling, baselines.double_subsampling):
        with pytest.raises(ValueError, match="m must be an integer"):
            propose(fraction)


@pytest.mark.parametrize(("K", "m"), [(5, 1), (5, 2), (5, 3), (6, 3), (6, 4), (7, 5)])
def test_subsampling_has_the_law_of_a_random_sample(K: int, m: int) -> None:
    gamma = baselines.subsampling(Problem.from_allowance(Voters(K, PrivacyParams("0.1")), m))
    for ones in range(K + 1):
        votes = [1] * ones + [-1] * (K - ones)
        signs = [np.sign(sum(sample)) for sample in combinations(votes, m)]
        assert gamma.signed[ones] == pytest.approx(float(np.mean(signs)), abs=1e-15)


def test_double_subsampling_draws_2m_minus_1_voters() -> None:
    double, five, all_voters = (Problem.from_allowance(Voters(11, PrivacyParams("0.1")), m) for m in (3, 5, 6))
    assert baselines.double_subsampling(double).half == pytest.approx(baselines.subsampling(five).half)
    assert np.all(baselines.double_subsampling(all_voters).half == 1.0)


def test_randomized_response_follows_lemma_a1() -> None:
    # pure privacy, one voter more than the allowance: only simple composition applies
    problem = Problem.from_allowance(Voters(2, PrivacyParams("3")), 1)
    e, tau = np.exp(3.0), np.exp(6.0)
    expected = (e - 1) / (2 * (tau - e) / (tau + 1) + e - 1)
    assert baselines.randomized_response(problem).half[0] == pytest.approx(expected, rel=1e-12)


def test_randomized_response_survives_huge_exponents() -> None:
    problem = Problem.from_allowance(Voters(501, PrivacyParams("2")), 300)
    assert 0.0 < baselines.randomized_response(problem).half[0] <= 1.0
