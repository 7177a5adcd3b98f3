"""Curves and profiles of a label that depends on the number of votes, by the definition."""

import math

import numpy as np
import pytest

from darrm.loss.renyi import DEFAULT_ORDERS
from darrm.loss.vote_counts import curve_of_votes, profile_of_votes
from darrm.majority.costs import renyi_divergences
from darrm.majority.noise_function import NoiseFunction
from darrm.problem import Voters


@pytest.mark.parametrize("overlap", [1, 2, 4])
@pytest.mark.parametrize("K", [4, 7])
def test_the_curve_of_votes_is_that_of_the_noise_function(K: int, overlap: int) -> None:
    lies = np.exp(-0.3 * (2 * np.arange(K // 2 + 1, K + 1) - K)) / 2.0
    orders, gamma = DEFAULT_ORDERS[::20], NoiseFunction(K, 1.0 - 2.0 * lies)
    exact = renyi_divergences(Voters.non_private(K, overlap), gamma, orders)
    assert curve_of_votes(np.log(lies), K, overlap).values[::20] == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("overlap", [1, 2, 4])
@pytest.mark.parametrize("K", [4, 7])
@pytest.mark.parametrize("rate", [0.05, 1.0, 9.0])
def test_the_profile_of_votes_is_exact_at_its_corners(K: int, overlap: int, rate: float) -> None:
    lies = 0.5 * np.exp(-rate * (2 * np.arange(K // 2 + 1, K + 1) - K) / 2.0)
    profile = profile_of_votes(np.log(lies), K, overlap)
    assert profile is not None
    one = [*lies[::-1], *[0.5] * (K % 2 == 0), *(1.0 - lies)]
    pairs = [(one[a], one[b]) for a in range(K + 1) for b in range(K + 1) if abs(a - b) <= overlap]
    for epsilon, delta in zip(profile.epsilons, profile.deltas, strict=True):
        exact = max(0.0, *(p - math.exp(epsilon) * q for p, q in pairs))  # 1 − p and 1 − q are such a pair, too
        assert exact - 1e-13 <= delta <= exact + 3e-12
    assert profile.deltas[-1] == 0.0
    assert profile.epsilons[-1] == pytest.approx(max(math.log(p / q) for p, q in pairs), rel=1e-11, abs=1e-11)


def test_a_loss_beyond_every_profile_has_none() -> None:
    assert profile_of_votes(np.array([-1e6]), 1, 1) is None
