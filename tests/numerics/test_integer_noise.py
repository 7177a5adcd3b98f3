import math

import numpy as np
import pytest
from flint import arb, ctx

from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace, IntegerNoise

NOISES = [
    DiscreteGaussian(0.7),
    DiscreteGaussian(123.4),
    DiscreteLaplace(0.3),
    AsymmetricNoise(right=4.1, left=8.3, right_power=3.0, left_power=2.5),
    AsymmetricNoise(right=0.5, left=2.0, right_power=1.0, left_power=3.0),
    AsymmetricNoise(right=777.7, left=333.3, right_power=2.25, left_power=1.5),
]
POINTS = np.arange(-3000, 3001, 7)


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_log_weights_are_as_near_to_the_law_as_promised(noise: IntegerNoise) -> None:
    with ctx.workprec(200):
        for found, true in zip(
            noise.log_weights(POINTS).tolist(), noise.enclosed_log_weights(POINTS.tolist()), strict=True
        ):
            assert abs(arb(found) - true) <= arb(2) ** -50 * abs(true)


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_every_noise_is_log_concave(noise: IntegerNoise) -> None:
    with ctx.workprec(200):
        logs = list(noise.enclosed_log_weights(range(-400, 401)))
        assert all(logs[n - 1] + logs[n + 1] <= 2 * logs[n] + 1e-40 for n in range(1, len(logs) - 1))


@pytest.mark.parametrize("noise", NOISES[3:], ids=str)
def test_the_deviation_is_about_that_of_the_law(noise: AsymmetricNoise) -> None:
    points = np.arange(-20000, 20001)
    masses = np.exp(noise.log_weights(points))
    masses /= masses.sum()
    deviation = math.sqrt(masses @ points**2 - (masses @ points) ** 2)
    assert noise.deviation == pytest.approx(deviation, rel=0.01 if noise.right > 1 else 0.3)


def test_shaped_noise_with_two_equal_halves_is_a_gaussian() -> None:
    shaped = AsymmetricNoise(right=4.0, left=4.0, right_power=2.0, left_power=2.0)
    gaussian = DiscreteGaussian(4.0 / math.sqrt(2.0))
    points = np.arange(-50, 51)
    assert shaped.log_weights(points) == pytest.approx(gaussian.log_weights(points), rel=1e-14)
    assert shaped.deviation == pytest.approx(gaussian.deviation)


@pytest.mark.parametrize(
    "parameters",
    [
        (0.4, 1, 2, 2),
        (1, 5000, 2, 2),
        (1, 1, 0.9, 2),
        (1, 1, 2, 3.25),
        (1, 1, 2.3, 2),
        (math.nan, 1, 2, 2),
        (1, 1, math.nan, 2),
    ],
)
def test_numbers_out_of_range_are_refused(parameters: tuple[float, float, float, float]) -> None:
    with pytest.raises(ValueError, match=r"must be (in|a)"):
        AsymmetricNoise(*parameters)
