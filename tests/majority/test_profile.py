"""The privacy profile against every multiset of corners and every output."""

import math
from fractions import Fraction

import numpy as np
import pytest

from darrm.majority.costs import divergence, privacy_profile
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics.binomial import poisson_binomial_pmf
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from tests.oracle import all_multisets


def brute_force(problem: Problem, gamma: NoiseFunction, epsilon: float) -> float:
    """Largest Pr_p[o] − e^ε Pr_{p'}[o] over all corners and both outputs o."""
    p, p_prime = all_multisets(problem.voters)
    truth = (1.0 + gamma.signed) / 2.0
    first, second = poisson_binomial_pmf(p) @ truth, poisson_binomial_pmf(p_prime) @ truth
    ones = first - math.exp(epsilon) * second
    zeros = (1.0 - first) - math.exp(epsilon) * (1.0 - second)
    return float(max(0.0, ones.max(), zeros.max()))


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("delta", ["0", "1e-3", "0.05"])
def test_profile_is_the_worst_divergence(K: int, delta: str) -> None:
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.4", delta)), "1")
    generator = np.random.default_rng(K)
    size = K - K // 2
    for half in (np.ones(size), np.linspace(0.2, 0.9, size), generator.uniform(size=size)):
        gamma = NoiseFunction(K, half)
        for epsilon in ("0", "0.05", "0.3", "0.4", "0.9", "3"):
            exact = brute_force(problem, gamma, float(epsilon))
            bound = divergence(problem.voters, gamma, Fraction(epsilon))
            assert bound >= exact * (1.0 - 1e-12) - 1e-15
            assert bound == pytest.approx(exact, abs=1e-12)


def test_profile_of_the_problem() -> None:
    problem = Problem.from_allowance(Voters(5, PrivacyParams("0.1", "1e-3")), 2)
    gamma = NoiseFunction(5, [0.6, 0.9, 1.0])
    profile = privacy_profile(problem, gamma, points=9)
    assert profile.epsilons == pytest.approx(np.linspace(0.0, 0.4, 9))
    exact = [brute_force(problem, gamma, epsilon) for epsilon in np.linspace(0.0, 0.4, 9)]
    assert profile.deltas == pytest.approx(exact, abs=1.1e-12)
    assert all(bound >= true for bound, true in zip(profile.deltas, exact, strict=True))
    assert profile.deltas[0] > profile.deltas[3] > profile.deltas[5]


def test_bad_arguments() -> None:
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.1")), 1)
    gamma = NoiseFunction(3, [0.1, 0.2])
    with pytest.raises(ValueError, match="points must be odd"):
        privacy_profile(problem, gamma, points=8)
    with pytest.raises(ValueError, match="points"):
        privacy_profile(problem, gamma, points=1)
    with pytest.raises(ValueError, match=r"gamma\.K"):
        privacy_profile(problem, NoiseFunction(5, [0.1, 0.2, 0.3]))
