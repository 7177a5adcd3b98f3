import math

import numpy as np
import pytest

from darrm.loss.profile import PrivacyProfile


@pytest.fixture
def profile() -> PrivacyProfile:
    """The profile of an answer that is 1 with probability 0.5 or 0.4."""
    grid = np.linspace(0.0, 1.5, 33)
    pairs = [(0.5, 0.4), (0.5, 0.6), (0.4, 0.5), (0.6, 0.5)]
    deltas = [max(0.0, *(p - x * q for p, q in pairs)) for x in np.exp(grid)]
    return PrivacyProfile(tuple(grid), tuple(deltas))


@pytest.mark.parametrize("delta", [1e-3, 0.02, 0.05])
def test_epsilon_at_is_the_smallest(profile: PrivacyProfile, delta: float) -> None:
    epsilon = profile.epsilon_at(delta)
    assert profile.delta_at(epsilon) <= delta * (1.0 + 1e-12)
    assert profile.delta_at(epsilon - 1e-6) > delta


def test_epsilon_at_the_ends(profile: PrivacyProfile) -> None:
    assert profile.epsilon_at(0.2) == 0.0
    assert profile.epsilon_at(0.0) == pytest.approx(math.log(0.5 / 0.4), abs=0.1)
    assert PrivacyProfile((0.0,), (0.3,)).epsilon_at(0.2) == math.inf


@pytest.mark.parametrize(
    ("epsilons", "deltas", "reverse", "message"),
    [
        ((), (), None, "at least one"),
        ((0.0, 0.1), (0.1,), None, "as many"),
        ((0.1, 0.2), (0.1, 0.0), None, "from 0"),
        ((0.0, 0.0), (0.1, 0.0), None, "strictly"),
        ((0.0, 800.0), (0.1, 0.0), None, "at most 700"),
        ((0.0, 0.1), (0.1, 0.2), None, "non-increasing"),
        ((0.0,), (math.nan,), None, "non-increasing"),
        ((0.0,), (1.5,), None, "non-increasing"),
        ((0.0,), (0.1,), (0.2,), "nowhere above deltas"),
        ((0.0, 0.1), (0.1, 0.1), (0.0, 0.1), "nowhere above deltas"),
    ],
)
def test_a_profile_refuses(
    epsilons: tuple[float, ...], deltas: tuple[float, ...], reverse: tuple[float, ...] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        PrivacyProfile(epsilons, deltas, reverse)
