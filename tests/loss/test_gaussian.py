import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from darrm.loss.gaussian import analytic_sigma, gaussian_delta, renyi_sigma
from darrm.noisy_max.mechanisms import GNMax
from darrm.privacy import PrivacyParams

MNIST, FASHION = PrivacyParams("0.2676", "0.0003"), PrivacyParams("0.2556", "0.0003")


def test_table_4_of_the_paper() -> None:
    assert round(renyi_sigma(MNIST).value, 2) == 21.46
    assert round(renyi_sigma(FASHION).value, 2) == 22.46
    # with the λ printed there the same formula gives much more noise
    assert math.sqrt(34.31 / (0.2676 - math.log(1 / 0.0003) / 33.31)) > 37.0
    assert round(analytic_sigma(MNIST).value, 2) == 12.90


@pytest.mark.parametrize("target", [MNIST, PrivacyParams("0.4", "0.0001")])  # the best orders are of both halves
def test_renyi_sigma_minimizes_over_the_grid_of_the_paper(target: PrivacyParams) -> None:
    calibration, log_inverse_delta = renyi_sigma(target), math.log(1 / target.delta)
    orders = np.arange(log_inverse_delta / target.epsilon + 1.5, 500.1, 0.5)
    variances = orders / (target.epsilon - log_inverse_delta / (orders - 1))
    assert calibration.value**2 == pytest.approx(variances.min())
    assert calibration.settings["order"] == pytest.approx(orders[variances.argmin()])
    curve = GNMax(calibration.value).guarantee
    assert curve.convert(target.delta, conversion="classic").epsilon <= target.epsilon * 1.001


@pytest.mark.parametrize(
    ("epsilon", "delta", "sensitivity"),
    [(0.2676, 3e-4, math.sqrt(2)), (1.0, 1e-5, 1.0), (10.0, 1e-9, 1.0), (1e-3, 0.4, 1.0), (30.0, 1e-12, 2.0)],
)
def test_the_analytic_sigma_is_the_smallest(epsilon: float, delta: float, sensitivity: float) -> None:
    sigma = analytic_sigma(PrivacyParams(epsilon, delta), sensitivity=sensitivity).value

    def compute_delta(noise: float) -> mpmath.mpf:
        with mpmath.workdps(50):
            a, b = sensitivity / (2 * mpmath.mpf(noise)), epsilon * mpmath.mpf(noise) / sensitivity
            return mpmath.ncdf(a - b) - mpmath.exp(epsilon) * mpmath.ncdf(-a - b)

    assert compute_delta(sigma) <= delta
    assert compute_delta(sigma * (1 - 1e-8)) > delta
    assert gaussian_delta(epsilon, sigma, sensitivity) == pytest.approx(float(compute_delta(sigma)), rel=1e-9)


@pytest.mark.parametrize(
    ("calibrate", "message"),
    [
        (lambda: renyi_sigma(PrivacyParams(0, 1e-5)), "target_epsilon must be"),
        (lambda: renyi_sigma(PrivacyParams(1, 0)), "target_delta must be"),
        (lambda: renyi_sigma(PrivacyParams("0.001", "1e-5")), "target.epsilon must be at least"),
        (lambda: analytic_sigma(PrivacyParams(1, 0)), "target_delta must be"),
        (lambda: analytic_sigma(1.0), "target must be a pair"),  # type: ignore[arg-type]
        (lambda: analytic_sigma(PrivacyParams(1, 1e-5), sensitivity=0.0), "sensitivity must be"),
    ],
)
def test_calibrations_refuse(calibrate: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrate()
