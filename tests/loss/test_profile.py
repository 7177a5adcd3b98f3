import math

import numpy as np
import pytest

from darrm.loss.profile import PrivacyProfile
from darrm.privacy import PrivacyParams
from tests.noisy_max.oracles import hockey_stick


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


@pytest.mark.parametrize("pair", [PrivacyParams(1, "0.1"), PrivacyParams(0, "0.1"), PrivacyParams("0.3")])
def test_the_profile_of_a_pair_is_that_of_its_worst_mechanism(pair: PrivacyParams) -> None:
    high = 1.0 / (1.0 + math.exp(-pair.epsilon))
    law = np.array([pair.delta, (1.0 - pair.delta) * high, (1.0 - pair.delta) * (1.0 - high), 0.0])
    for epsilon in (0.0, 0.2, 0.7, 1.0, 3.0):
        exact = hockey_stick(law, law[::-1], epsilon)
        assert PrivacyProfile.from_pair(pair).delta_at(epsilon) == pytest.approx(exact, rel=1e-12, abs=1e-15)


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
