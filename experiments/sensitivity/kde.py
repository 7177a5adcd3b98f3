"""Compute Figure 7 of [S]: a kernel density estimate, released as a function by the Bernstein mechanism."""

import math

import numpy as np
from numpy.typing import NDArray

from darrm.privacy import PrivacyParams
from darrm.random_dp.bernstein import Bernstein, BernsteinFunction
from darrm.random_dp.sample_size import sample_size
from darrm.random_dp.sensitivity_sampler import Execution, SensitivitySampler, compute_order_statistic
from experiments.pages import Claim
from experiments.sensitivity.page import FigureData

RECORDS = 5_000
LATTICE = 10
ORDER = 3
PAIRS = 50_000
GAMMAS = (0.01, 0.2)
BANDWIDTH = 0.1  # our choice: the paper has none
REPEATS = 1_000
EPSILONS = tuple(float(f"{epsilon:.3g}") for epsilon in np.geomspace(0.01, 100.0, 13))
GRID = np.linspace(0.0, 1.0, 201)
SEED = 20170806
PEAK = 1.0 / (BANDWIDTH * math.sqrt(2.0 * math.pi))  # of the kernel


def draw_mixture(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Draw from 0.4·N(0.5, 0.02) + 0.6·N(0.75, 0.005); the second parameter is the variance."""
    is_first = rng.random(count) < 0.4
    noise = rng.standard_normal(count)
    return np.where(is_first, 0.5 + math.sqrt(0.02) * noise, 0.75 + math.sqrt(0.005) * noise)


def estimate_density(data: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Estimate the density at points, (P, 1) → (P,), with a Gaussian kernel."""
    scaled = (points.reshape(-1, 1) - data) / BANDWIDTH
    return np.asarray(PEAK * np.mean(np.exp(-0.5 * scaled * scaled), axis=1))


def estimate_on_lattice(data: NDArray[np.float64]) -> NDArray[np.float64]:
    """Estimate the density on the Bernstein mechanism's lattice; the sampler measures its sensitivity."""
    return estimate_density(data, np.arange(LATTICE + 1) / LATTICE)


def compute_figure7(*, quick: bool, jobs: int) -> FigureData:
    """Compare the largest errors of the released density with sampled and global sensitivities."""
    pairs, repeats = (1_000, 20) if quick else (PAIRS, REPEATS)
    gammas = (0.1, 0.2) if quick else GAMMAS
    sampler = SensitivitySampler(estimate_on_lattice, draw_mixture, "sup", distribution="a mixture of two normal laws")
    execution = Execution(jobs=jobs, batch_size=250, progress=True)
    sample = sampler.measure(RECORDS, pairs, seed=SEED, execution=execution)
    sampled = [compute_order_statistic(sample, sample_size(gamma=gamma, m=pairs).k) for gamma in gammas]
    sharp_bound, triangle_bound = PEAK / RECORDS, 2.0 * PEAK / RECORDS
    sensitivities = [*sampled, sharp_bound, triangle_bound]

    rng = np.random.default_rng(SEED)
    data = draw_mixture(rng, RECORDS)
    values, truth = estimate_on_lattice(data), estimate_density(data, GRID)
    approximation = float(np.max(np.abs(BernsteinFunction(values, ORDER)(GRID) - truth)))
    errors = np.zeros((len(EPSILONS), len(sensitivities)))
    for row, epsilon in enumerate(EPSILONS):
        mechanism = Bernstein(PrivacyParams(epsilon), LATTICE, ORDER)
        for column, sensitivity in enumerate(sensitivities):
            densities = [mechanism.release(values, sensitivity, rng=rng)(GRID) for _ in range(repeats)]
            errors[row, column] = np.mean(np.max(np.abs(np.array(densities) - truth), axis=1))
    first_errors, last_errors = errors[0].tolist(), errors[-1].tolist()
    claims = [
        _compare_at_high_privacy(first_errors, gammas, column=3, bound="2K(0)/n (triangle inequality)"),
        _compare_at_high_privacy(first_errors, gammas, column=2, bound="K(0)/n (sharp)"),
        Claim(
            "at low privacy all converge to the polynomial's approximation error",
            f"errors {', '.join(f'{value:.3f}' for value in last_errors)}; approximation error {approximation:.3f} "
            f"(ε = {EPSILONS[-1]})",
            max(last_errors) < 1.1 * approximation,
        ),
    ]
    settings = {
        "n": RECORDS, "k": LATTICE, "h": ORDER, "m": pairs, "γ": " and ".join(map(str, gammas)), "repeats": repeats,
        "bandwidth": BANDWIDTH, "sampled sensitivity": " and ".join(f"{value:.4g}" for value in sampled),
        "global bounds": f"{sharp_bound:.4g} (sharp, K(0)/n) and {triangle_bound:.4g} (triangle inequality, 2K(0)/n)",
    }  # fmt: skip
    names = tuple(f"sampled, gamma = {gamma}" for gamma in gammas)
    columns = ("epsilon", *names, "global, sharp", "global, triangle", "approximation")
    title = "error of the kernel density estimate released by the Bernstein mechanism"
    rows = [[epsilon, *means, approximation] for epsilon, means in zip(EPSILONS, errors.tolist(), strict=True)]
    return FigureData(7, title, settings, columns, rows, claims, quick)


def _compare_at_high_privacy(errors: list[float], gammas: tuple[float, ...], *, column: int, bound: str) -> Claim:
    """Compare the errors at the smallest ε, one for each γ, with that of a global bound."""
    ratios = [errors[column] / error for error, _ in zip(errors, gammas, strict=False)]
    return Claim(
        f"at high privacy (ε = {EPSILONS[0]}) the error is at least a tenth smaller than with the global bound {bound}",
        ", ".join(f"{ratio:.2f} times smaller at γ = {gamma}" for gamma, ratio in zip(gammas, ratios, strict=True)),
        min(ratios) >= 1.1,
    )
