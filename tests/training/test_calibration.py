import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

pytest.importorskip("dp_accounting")

from darrm.privacy import PrivacyParams
from darrm.training import calibration
from darrm.training.calibration import calibrate_noise, calibrate_sampling, compute_privacy
from darrm.training.recipes import PrivateSGD


def recipe(noise: float, sampling_rate: float, steps: int) -> PrivateSGD:
    return PrivateSGD(0.1, steps, sampling_rate, noise)


def exact_delta_of_one_step(epsilon: float, noise: float, rate: float) -> float:
    """The hockey-stick divergences of (1 − q)·N(0, σ²) + q·N(1, σ²) and N(0, σ²), both ways, by quadrature."""
    grid = np.linspace(-40 * noise, 40 * noise + 1, 400_001)
    null = np.exp(-(grid**2) / (2 * noise**2)) / (noise * math.sqrt(2 * math.pi))
    other = np.exp(-((grid - 1) ** 2) / (2 * noise**2)) / (noise * math.sqrt(2 * math.pi))
    mixture = (1 - rate) * null + rate * other
    factor, width = math.exp(epsilon), grid[1] - grid[0]
    removed = float(np.maximum(mixture - factor * null, 0.0).sum() * width)
    added = float(np.maximum(null - factor * mixture, 0.0).sum() * width)
    return max(removed, added)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "rate", "delta"),
    [(1.0, 0.1, 1e-3), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((0.6, 0.3, 1e-5), (2.0, 1.0, 1e-4)))],
)
def test_one_step_agrees_with_quadrature(noise: float, rate: float, delta: float) -> None:
    epsilon = compute_privacy(recipe(noise, rate, 1), delta).epsilon
    assert exact_delta_of_one_step(epsilon, noise, rate) <= delta * (1 + 1e-6)
    assert exact_delta_of_one_step(epsilon * 0.999, noise, rate) > delta * (1 - 1e-3)


def test_without_sampling_steps_add_up_like_one_gaussian() -> None:
    # T steps with noise σ are one step with noise σ/√T
    many = compute_privacy(recipe(20.0, 1.0, 100), 1e-5).epsilon
    one = compute_privacy(recipe(2.0, 1.0, 1), 1e-5).epsilon
    assert many == pytest.approx(one, rel=1e-3)


@pytest.mark.parametrize("delta", [1e-5, 1e-12, 1e-14])
def test_what_a_composition_rounds_is_within_its_epsilon(delta: float) -> None:
    # without sampling the answer is known: dp-accounting's own composition is 0.003 too small at 1e-12, 0.05 at 1e-14
    mu = mpmath.sqrt(1000) / 30

    def exact(epsilon: float) -> mpmath.mpf:
        far = mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - far

    with mpmath.workdps(40):
        epsilon = compute_privacy(recipe(30.0, 1.0, 1000), delta).epsilon
        assert exact(epsilon) <= delta < exact(epsilon * 0.999)


@pytest.mark.parametrize(("noise", "rate", "delta"), [(1.0, 0.00105, 1e-3), (0.5, 1e-4, 1e-2), (4.0, 1e-3, 1e-2)])
def test_where_delta_alone_is_enough_epsilon_is_zero_on_the_coarsest_grid(
    noise: float, rate: float, delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    intervals = []
    on_grid = calibration._compose_epsilon

    def recorded(interval: float, *rest: Any) -> float:
        intervals.append(interval)
        return on_grid(interval, *rest)

    monkeypatch.setattr(calibration, "_compose_epsilon", recorded)
    assert exact_delta_of_one_step(0.0, noise, rate) < delta
    assert compute_privacy(recipe(noise, rate, 1), delta).epsilon == 0.0
    assert intervals == [1e-3]  # a grid of 1e-6 took 36 s


@pytest.mark.parametrize(("noise", "rate", "delta"), [(5.0, 0.01, 1e-5), (30.0, 0.5, 1e-3), (20.0, 1.0, 1e-2)])
def test_small_epsilons_need_no_finer_grid(noise: float, rate: float, delta: float) -> None:
    epsilon = compute_privacy(recipe(noise, rate, 1), delta).epsilon
    assert 0.0 < epsilon < 0.1
    assert exact_delta_of_one_step(epsilon, noise, rate) <= delta * (1 + 1e-6)
    assert exact_delta_of_one_step(epsilon - 2e-6, noise, rate) > delta


def test_the_papers_teachers() -> None:
    # 909 images a teacher, batches of 32, five epochs; the paper reports 0.0852, the bound on its own grid
    assert compute_privacy(recipe(12.0, 32 / 909, 143), 1e-4).epsilon == pytest.approx(0.0852, abs=2e-4)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("noise", "rate", "steps"), [(12.0, 5 / 130, 130), (1.0, 0.01, 1000), (4.0, 0.2, 50)])
def test_renyi_accounting_is_never_smaller(noise: float, rate: float, steps: int) -> None:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    accountant = RdpAccountant(orders=[1.1, 1.5, 2, 3, 5, 8, 12, 20, 32, 64, 128, 256])
    by_renyi = accountant.compose(event, steps).get_epsilon(1e-5)
    by_loss = compute_privacy(recipe(noise, rate, steps), 1e-5).epsilon
    assert 0.3 * by_renyi < by_loss <= by_renyi


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Opacus warns about its own grid of orders
@pytest.mark.parametrize(("noise", "rate", "steps"), [(12.0, 5 / 130, 130), (1.0, 0.01, 1000)])
def test_opacus_agrees(noise: float, rate: float, steps: int) -> None:
    prv = pytest.importorskip("opacus.accountants")
    second = prv.PRVAccountant()
    second.history = [(noise, rate, steps)]
    ours = compute_privacy(recipe(noise, rate, steps), 1e-4).epsilon
    assert ours == pytest.approx(second.get_epsilon(1e-4, eps_error=1e-3), abs=3e-3)


@pytest.mark.slow  # the doctest knows the number of steps
@pytest.mark.parametrize("epsilon", ["0.0892", "0.0852", "1"])
def test_sampling_is_the_largest_that_fits(epsilon: str) -> None:
    target = PrivacyParams(epsilon, "1e-4")
    found = calibrate_sampling(target, noise=12.0, epochs=5)
    rate, steps = found.value, int(found.settings["steps"])
    assert rate * steps == pytest.approx(5.0)
    assert compute_privacy(recipe(12.0, rate, steps), 1e-4).epsilon <= target.epsilon
    assert steps == 5 or compute_privacy(recipe(12.0, 5 / (steps - 1), steps - 1), 1e-4).epsilon > target.epsilon


@pytest.mark.slow  # the doctest asks the same of another setting
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 30.0])
def test_noise_is_the_smallest_that_fits(epsilon: float) -> None:
    noise = calibrate_noise(PrivacyParams(epsilon, 1e-5), sampling_rate=0.02, steps=200).value
    assert compute_privacy(recipe(noise, 0.02, 200), 1e-5).epsilon <= epsilon
    assert compute_privacy(recipe(noise * 0.998, 0.02, 200), 1e-5).epsilon > epsilon


@pytest.mark.slow
def test_noise_is_found_for_steps_whose_cost_at_less_noise_fits_no_memory() -> None:
    noise = calibrate_noise(PrivacyParams(1, 1e-5), sampling_rate=1, steps=1_000_000).value
    one = calibrate_noise(PrivacyParams(1, 1e-5), sampling_rate=1, steps=1).value  # without sampling, σ/√T is all
    assert 0.999 <= noise / (1000.0 * one) < 1.05  # of so many steps the grid costs something
    with pytest.raises(ValueError, match="reachable with noise of at most 1e"):
        calibrate_noise(PrivacyParams("1e-9", 1e-9), sampling_rate=1, steps=1_000_000)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: compute_privacy(recipe(30.0, 1.0, 1000), 1e-40), "no finite epsilon is known"),
        (lambda: compute_privacy(recipe(1e-3, 0.5, 1), 1e-5), "noise must be at least 0.1, got 0.001"),
        (lambda: compute_privacy(recipe(0.5, 0.5, 10**8), 1e-5), "needs .* GiB, more than the 0.25 GiB"),
        (lambda: calibrate_noise(PrivacyParams(1.0, 0), sampling_rate=0.1, steps=10), "a pair of positive numbers"),
        (lambda: calibrate_sampling(PrivacyParams(0, 1e-5), noise=1.0, epochs=1), "a pair of positive numbers"),
        pytest.param(
            lambda: calibrate_sampling(PrivacyParams(1e-4, 1e-9), noise=0.3, epochs=1),
            "use more noise or fewer epochs",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_nothing_reaches_or_fits_no_memory_is_refused(call: Callable[[], object], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        call()
