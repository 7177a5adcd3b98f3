"""The theorem of γ_DSub: voters that are not alike, Δ > 0, even K; and that its constants are the best ones."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from darrm import PrivacyParams, Problem, Voters, certify
from darrm.majority import baselines


def majority_of(p: list[Fraction]) -> Fraction:
    """Pr[most of an odd number of independent votes are 1]."""
    law = [Fraction(1)]
    for one in p:
        law = [
            (law[ones] if ones < len(law) else 0) * (1 - one) + (law[ones - 1] if ones else 0) * one
            for ones in range(len(law) + 1)
        ]
    return sum(law[len(p) // 2 + 1 :], Fraction(0))


def of_a_sample(p: list[Fraction], size: int) -> Fraction:
    """The same of a random subset of voters."""
    samples = list(combinations(p, size))
    return sum((majority_of(list(each)) for each in samples), Fraction(0)) / len(samples)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 1000), Fraction(1, 10)])
def test_the_theorem_in_exact_fractions(seed: int, delta: Fraction) -> None:
    rng = np.random.default_rng(seed)
    exp_epsilon = Fraction(11 + seed, 10)
    K, m = int(rng.integers(1, 8)), int(rng.integers(1, 4))
    size = min(2 * m - 1, K - 1 + K % 2)
    for small in (False, True):
        lower = [Fraction(int(n), 10**6) / (10**4 if small else 1) for n in rng.integers(0, 10**6, K)]
        # the largest p with p ≤ e^ε p' + Δ and 1 − p' ≤ e^ε (1 − p) + Δ
        upper = [max(q, min(exp_epsilon * q + delta, 1 - (1 - q - delta) / exp_epsilon, Fraction(1))) for q in lower]
        slack = 1 - (1 - delta) ** m
        assert of_a_sample(upper, size) <= exp_epsilon**m * of_a_sample(lower, size) + slack
        zeros = [[1 - one for one in side] for side in (upper, lower)]
        assert of_a_sample(zeros[1], size) <= exp_epsilon**m * of_a_sample(zeros[0], size) + slack


def test_the_factor_m_is_the_best_one() -> None:
    tiny = [Fraction(1, 10**6)] * 5
    ratio = majority_of([2 * p for p in tiny]) / majority_of(tiny)
    assert 8 - Fraction(1, 10**4) < ratio < 8  # e^ε = 2, m = 3


@pytest.mark.parametrize("K", [3, 4, 6, 7, 12])
@pytest.mark.parametrize(("epsilon", "delta"), [("0.1", "0"), ("1", "1e-5"), ("0.5", "0.01"), ("2", "0.2")])
def test_it_is_certified_as_it_stands_where_the_theorem_covers_it(K: int, epsilon: str, delta: str) -> None:
    for m in range(1, min(K, 5) + 1):
        problem = Problem.from_allowance(Voters(K, PrivacyParams(epsilon, delta)), m)
        assert baselines.is_covered_by_theorem(problem)
        assert certify(problem, baselines.double_subsampling(problem)).certificate.scale > 1.0 - 1e-9


def test_voters_with_different_guarantees_are_covered_by_the_weakest() -> None:
    voters = Voters.of(
        [PrivacyParams(e, d) for e, d in (("0.1", "0"), ("0.3", "1e-3"), ("0.2", "0"), ("0.3", 0), ("0.1", 0))]
    )
    problem = Problem.from_allowance(voters, 2)
    assert baselines.is_covered_by_theorem(problem)
    assert certify(problem, baselines.double_subsampling(problem)).certificate.scale > 1.0 - 1e-9


@pytest.mark.parametrize(("epsilon", "target"), [("0.1", "0.2"), ("0.01", "0.03")])
def test_a_smaller_delta_is_not_enough(epsilon: str, target: str) -> None:
    problem = Problem(Voters(7, PrivacyParams(epsilon, "0.01")), PrivacyParams(target, "0.01"))
    assert not baselines.is_covered_by_theorem(problem)
    assert certify(problem, baselines.double_subsampling(problem)).certificate.scale < 0.997


def test_what_is_not_covered() -> None:
    half = Problem.from_allowance(Voters(11, PrivacyParams("0.1")), "2.5")
    public = Problem(Voters(11, PrivacyParams("inf"), overlap=1), PrivacyParams("1"))
    assert not baselines.is_covered_by_theorem(half)
    assert not baselines.is_covered_by_theorem(public)
