"""Algorithm 2: a sampled sensitivity goes into a mechanism of the same norm, and the guarantee says so."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from darrm.privacy import PrivacyParams
from darrm.random_dp.bernstein import Bernstein
from darrm.random_dp.mechanisms import Exponential, Gaussian, Laplace
from darrm.random_dp.sensitivity_sampler import SensitivitySampler, respond, sample_then_respond

ONE = PrivacyParams(1)
DATA = np.linspace(0.0, 1.0, 30)


def uniform(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.random(count)


def test_the_release_is_the_mechanisms_with_the_sampled_sensitivity() -> None:
    sampler = SensitivitySampler(np.mean, uniform, "l1", distribution="U[0, 1]")
    answer = sample_then_respond(DATA, Laplace(ONE), sampler, gamma=0.2, seed=1, rng=np.random.default_rng(5))
    again = Laplace(ONE).release(np.mean(DATA), answer.sensitivity.value, rng=np.random.default_rng(5))
    assert answer.value == again
    assert answer.sensitivity == sampler.estimate(30, gamma=0.2, seed=1)
    assert answer.guarantee.on_covered_pairs == ONE
    assert answer.guarantee.gamma == 0.2
    assert (answer.guarantee.records, answer.guarantee.distribution) == (30, "U[0, 1]")
    assert "experiments only" in answer.guarantee.noise


def test_a_sensitivity_is_reused_for_the_same_function_only() -> None:
    sampler = SensitivitySampler(np.mean, uniform, "l1")
    found = sampler.estimate(30, gamma=0.3, seed=1)
    answer = respond(DATA, Laplace(ONE), sampler, found)
    assert "exactly from the operating system" in answer.guarantee.noise
    with pytest.raises(ValueError, match="number of records must be 29"):
        respond(DATA[1:], Laplace(ONE), sampler, found)
    with pytest.raises(ValueError, match="distribution must be"):
        respond(DATA, Laplace(ONE), SensitivitySampler(np.mean, uniform, "l1", distribution="other"), found)
    with pytest.raises(ValueError, match="shape of the function's value"):
        respond(DATA, Laplace(ONE), SensitivitySampler(lambda data: data[:2], uniform, "l1"), found)
    with pytest.raises(ValueError, match="norm must be 'l2'"):
        respond(DATA, Gaussian(PrivacyParams(1, 1e-5)), sampler, found)
    with pytest.raises(ValueError, match="the sampler's norm must be 'l2', as the mechanism needs, got 'l1'"):
        sample_then_respond(DATA, Gaussian(PrivacyParams(1, 1e-5)), sampler, gamma=0.2)


def test_every_mechanism_responds() -> None:
    gaussian = SensitivitySampler(lambda data: [data.mean(), data.std()], uniform, "l2")
    assert sample_then_respond(DATA, Gaussian(PrivacyParams(1, 1e-5)), gaussian, gamma=0.4).value.shape == (2,)
    choice = Exponential(ONE, (0.25, 0.5, 0.75), score=lambda data, r: -abs(float(np.median(data)) - r))
    scored = SensitivitySampler(choice.scores, uniform, "sup")
    assert sample_then_respond(DATA, choice, scored, gamma=0.4).value in (0.25, 0.5, 0.75)
    curve = Bernstein(ONE, size=4, order=2)
    cdf = SensitivitySampler(curve.restriction(lambda data, points: (data <= points).mean(axis=1)), uniform, "sup")
    released = sample_then_respond(DATA, curve, cdf, gamma=0.4)
    assert released.value(np.linspace(0, 1, 5)).shape == (5,)


def test_a_constant_function_is_released_as_it_is_and_the_guarantee_says_so() -> None:
    sampler = SensitivitySampler(lambda _: 7.0, uniform, "l1")
    with pytest.warns(UserWarning, match=r"the sampled sensitivity is 0, so no noise is added.* a share 0\.3 at most"):
        answer = sample_then_respond(DATA, Laplace(ONE), sampler, gamma=0.3)
    assert answer.value == 7.0
    assert "no noise: the sampled sensitivity is 0" in answer.guarantee.noise


def test_a_failure_on_the_real_data_is_reported() -> None:
    sampler = SensitivitySampler(lambda data: np.log(data[0]) if data[0] > 0 else np.nan, uniform, "l1")
    with pytest.raises(ValueError, match="function's value must be finite"):
        sample_then_respond(DATA, Laplace(ONE), sampler, gamma=0.4)


@pytest.mark.filterwarnings("ignore:the sampled sensitivity is 0")
@pytest.mark.parametrize(
    "function",
    [
        lambda data: np.rint(np.mean(data)),  # 0.0 or -0.0
        lambda data: np.zeros(3) * (1.0 if data[0] < 0 else -1.0),
        lambda data: np.ones((2, 3), order="F" if data[0] < 0 else "C"),
        lambda data: np.ones(2, dtype=np.float32 if data[0] < 0 else np.int8),
        lambda data: np.longdouble(1.0) + (np.longdouble(2.0) ** -60 if data[0] < 0 else 0),
        lambda data: 2**53 + int(data[0] < 0),  # one float
        lambda data: np.ones((3, 2)).T if data[0] < 0 else np.ones((2, 3)),
        lambda data: [True] if data[0] < 0 else (1.0,),
        lambda data: np.ma.array([1.0, 2.0], mask=[data[0] < 0, False]),
    ],
)
def test_at_sensitivity_zero_covered_pairs_give_the_same_bytes(function: Callable[[Any], Any]) -> None:
    sampler = SensitivitySampler(function, lambda rng, count: rng.uniform(-0.4, 0.4, count), "l1", distribution="U")
    sampled = sampler.estimate(3, gamma=0.2, seed=1)
    assert sampled.value == 0.0
    seen = set()
    for index in range(40):
        value = respond(sampler.replay(3, 9, index)[0], Laplace(ONE), sampler, sampled).value
        buffer = io.BytesIO()
        np.save(buffer, value)
        seen.add((buffer.getvalue(), type(value), value.strides))
    assert len(seen) == 1


@pytest.mark.parametrize("mechanism", [Laplace(ONE), Gaussian(PrivacyParams(1, 1e-5)), Bernstein(ONE, size=1)])
def test_minus_zero_is_released_as_zero(mechanism: Any) -> None:
    released = mechanism.release([-0.0, 0.0], 0.0)
    assert not np.signbit(getattr(released, "values", released)).any()


def test_the_exponential_mechanism_chooses_between_equal_zeros() -> None:
    assert {Exponential(ONE, (0, 1)).release([-0.0, 0.0], 0.0) for _ in range(60)} == {0, 1}
