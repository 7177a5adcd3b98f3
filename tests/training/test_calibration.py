"""The cost of DP-SGD against quadrature, exact formulas and other libraries, and the trainings that fit a budget."""

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest

pytest.importorskip("dp_accounting")

from darrm.privacy import PrivacyParams
from darrm.training.calibration import calibrate_noise, calibrate_sampling, compute_privacy
from darrm.training.recipes import PrivateSGD

slow = pytest.mark.slow


def bound_epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    return compute_privacy(PrivateSGD(0.1, steps, rate, noise), delta).epsilon


def compute_delta_of_one_step(epsilon: float, noise: float, rate: float) -> float:
    """The hockey-stick divergences of (1 − q)·N(0, σ²) + q·N(1, σ²) and N(0, σ²), both ways, by quadrature."""
    grid = np.linspace(-40 * noise, 40 * noise + 1, 400_001)
    null = np.exp(-(grid**2) / (2 * noise**2)) / (noise * math.sqrt(2 * math.pi))
    other = np.exp(-((grid - 1) ** 2) / (2 * noise**2)) / (noise * math.sqrt(2 * math.pi))
    mixture = (1 - rate) * null + rate * other
    factor, width = math.exp(epsilon), grid[1] - grid[0]
    removed = float(np.maximum(mixture - factor * null, 0.0).sum() * width)
    added = float(np.maximum(null - factor * mixture, 0.0).sum() * width)
    return max(removed, added)


@pytest.mark.parametrize(
    ("noise", "rate", "delta"),
    [
        *((5.0, 0.01, 1e-5), (30.0, 0.5, 1e-3), (20.0, 1.0, 1e-2)),  # of epsilons below 0.1
        *((1.0, 0.00105, 1e-3), (0.5, 1e-4, 1e-2), (4.0, 1e-3, 1e-2)),  # of ε = 0
        *(pytest.param(*case, marks=slow) for case in ((1.0, 0.1, 1e-3), (0.6, 0.3, 1e-5), (2.0, 1.0, 1e-4))),
    ],
)
def test_one_step_agrees_with_quadrature(noise: float, rate: float, delta: float) -> None:
    epsilon = bound_epsilon(noise, rate, 1, delta)
    assert compute_delta_of_one_step(epsilon, noise, rate) <= delta * (1 + 1e-6)
    slack, least_delta = (2e-6, delta) if epsilon < 0.1 else (1e-3 * epsilon, delta * (1 - 1e-3))
    assert epsilon == 0.0 or compute_delta_of_one_step(epsilon - slack, noise, rate) > least_delta
    assert epsilon > 0.0 or compute_delta_of_one_step(0.0, noise, rate) < delta


@pytest.mark.parametrize("delta", [1e-5, 1e-12, 1e-14])
def test_a_composition_without_sampling_bounds_the_exact_epsilon(delta: float) -> None:
    # dp-accounting's own composition is 0.003 too small at 1e-12, 0.05 at 1e-14
    mu = mpmath.sqrt(1000) / 30

    def compute_delta(epsilon: float) -> mpmath.mpf:
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)

    with mpmath.workdps(40):
        epsilon = bound_epsilon(30.0, 1.0, 1000, delta)
        assert compute_delta(epsilon) <= delta < compute_delta(epsilon * 0.999)


def test_the_teachers_of_the_paper_have_its_epsilon() -> None:
    # 909 images a teacher, batches of 32, five epochs; the paper reports 0.0852, the bound on its own grid
    assert bound_epsilon(12.0, 32 / 909, 143, 1e-4) == pytest.approx(0.0852, abs=2e-4)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("noise", "rate", "steps"), [(12.0, 5 / 130, 130), (1.0, 0.01, 1000), (4.0, 0.2, 50)])
def test_the_bound_is_below_renyi_accounting(noise: float, rate: float, steps: int) -> None:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    accountant = RdpAccountant(orders=[1.1, 1.5, 2, 3, 5, 8, 12, 20, 32, 64, 128, 256])
    renyi_epsilon = accountant.compose(event, steps).get_epsilon(1e-5)
    assert 0.3 * renyi_epsilon < bound_epsilon(noise, rate, steps, 1e-5) <= renyi_epsilon


@slow
@pytest.mark.filterwarnings("ignore")  # Opacus warns about its own grid of orders
@pytest.mark.parametrize(("noise", "rate", "steps"), [(12.0, 5 / 130, 130), (1.0, 0.01, 1000)])
def test_the_bound_agrees_with_opacus(noise: float, rate: float, steps: int) -> None:
    accountant = pytest.importorskip("opacus.accountants").PRVAccountant()
    accountant.history = [(noise, rate, steps)]
    expected = accountant.get_epsilon(1e-4, eps_error=1e-3)
    assert bound_epsilon(noise, rate, steps, 1e-4) == pytest.approx(expected, abs=3e-3)


@slow  # the doctest checks the number of steps
@pytest.mark.parametrize("epsilon", ["0.0892", "0.0852", "1"])
def test_calibrate_sampling_finds_the_largest_rate_that_fits(epsilon: str) -> None:
    target = PrivacyParams(epsilon, "1e-4")
    calibration = calibrate_sampling(target, noise=12.0, epochs=5)
    rate, steps = calibration.value, int(calibration.settings["steps"])
    assert rate * steps == pytest.approx(5.0)
    assert bound_epsilon(12.0, rate, steps, 1e-4) <= target.epsilon
    assert steps == 5 or bound_epsilon(12.0, 5 / (steps - 1), steps - 1, 1e-4) > target.epsilon


@slow  # the doctest checks another setting
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 30.0])
def test_calibrate_noise_finds_the_least_noise_that_fits(epsilon: float) -> None:
    noise = calibrate_noise(PrivacyParams(epsilon, 1e-5), sampling_rate=0.02, steps=200).value
    assert bound_epsilon(noise, 0.02, 200, 1e-5) <= epsilon < bound_epsilon(noise * 0.998, 0.02, 200, 1e-5)


@slow
def test_calibrate_noise_steps_over_noise_whose_cost_fits_no_memory() -> None:
    noise = calibrate_noise(PrivacyParams(1, 1e-5), sampling_rate=1, steps=1_000_000).value
    of_one_step = calibrate_noise(PrivacyParams(1, 1e-5), sampling_rate=1, steps=1).value
    assert 0.999 <= noise / (1000.0 * of_one_step) < 1.05  # σ/√T decides without sampling; the grid adds a little
    with pytest.raises(ValueError, match="reachable with noise of at most 1e"):
        calibrate_noise(PrivacyParams("1e-9", 1e-9), sampling_rate=1, steps=1_000_000)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bound_epsilon(30.0, 1.0, 1000, 1e-40), "no finite epsilon is known"),
        (lambda: bound_epsilon(1e-3, 0.5, 1, 1e-5), "noise must be at least 0.1, got 0.001"),
        (lambda: bound_epsilon(0.5, 0.5, 10**8, 1e-5), "needs .* GiB, more than the 0.25 GiB"),
        (lambda: calibrate_noise(PrivacyParams(1.0, 0), sampling_rate=0.1, steps=10), "a pair of positive numbers"),
        (lambda: calibrate_sampling(PrivacyParams(0, 1e-5), noise=1.0, epochs=1), "a pair of positive numbers"),
        pytest.param(
            lambda: calibrate_sampling(PrivacyParams(1e-4, 1e-9), noise=0.3, epochs=1),
            "use more noise or fewer epochs",
            marks=slow,
        ),
    ],
)
def test_accounting_refuses_targets_out_of_reach_or_memory(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
