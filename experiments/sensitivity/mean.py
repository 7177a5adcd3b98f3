"""Compute Figures 4 and 9 of [S]: the mean of exponential draws, and of uniform draws in [0, 1]^d.

For exponential draws, the high-probability sensitivity has a closed form. |f(D) − f(D′)| = |D_n − D′_n|/n has the
distribution Exp(nλ), so its 1 − γ quantile is log(1/γ)/(λ n) [S, Example 6]. For uniform draws with d = 1, it is
(1 − √γ)/n, because two draws differ by more than t with probability (1 − t)². For uniform draws, the global sensitivity
is d/n; two opposite corners attain it.
"""

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from darrm.random_dp.sample_size import sample_size, smallest_gamma
from darrm.random_dp.sensitivity_sampler import Execution, SensitivitySampler, compute_order_statistic
from experiments.pages import Claim
from experiments.sensitivity.page import FigureData

RECORDS = 100  # our choice: the paper has none
REPEATS = 50
SAMPLE_SIZES = (100, 1_000, 10_000)
GAMMAS = tuple(round(float(gamma), 4) for gamma in np.geomspace(0.02, 0.5, 12))
SEED = 20170804
BOUNDED_RECORDS, DIMENSIONS, BOUNDED_GAMMAS = 500, (1, 2, 4, 8, 16, 32, 64), (0.02, 0.05, 0.1, 0.2, 0.5)


def draw_exponential(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Draw records from Exp(1)."""
    return rng.exponential(size=count)


def compute_figure4(*, quick: bool, jobs: int) -> FigureData:
    repeats, sizes = (5, SAMPLE_SIZES[:2]) if quick else (REPEATS, SAMPLE_SIZES)
    sampler = SensitivitySampler(np.mean, draw_exponential, "l1", distribution="Exp(1)")
    execution = Execution(jobs=jobs, batch_size=250)
    rows: list[list[float | None]] = []
    for m in sizes:
        samples = [sampler.measure(RECORDS, m, seed=SEED + repeat, execution=execution) for repeat in range(repeats)]
        _, least_gamma = smallest_gamma(m)
        for gamma in GAMMAS:
            analytic = math.log(1.0 / gamma) / RECORDS
            if gamma < least_gamma:
                rows.append([m, gamma, None, None, analytic])
                continue
            k = sample_size(gamma=gamma, m=m).k
            estimates = [compute_order_statistic(sample, k) for sample in samples]
            rows.append([m, gamma, float(np.mean(estimates)), float(np.std(estimates)), analytic])
    ratio_at = {(row[0], row[1]): row[2] / row[4] for row in rows if row[2] is not None and row[4]}
    least_ratio, claim_gamma = min(ratio_at.values()), GAMMAS[-4]
    ratios = [ratio_at[m, claim_gamma] for m in sizes]
    ratio_texts = ", ".join(f"ratio {share:.3f} (m = {m})" for m, share in zip(sizes, ratios, strict=True))
    claims = [
        Claim(
            "the sampled sensitivity is on the safe side of the analytical one",
            f"least ratio {least_ratio:.3f}, over {len(ratio_at)} points",
            least_ratio >= 1.0,
        ),
        Claim(
            "it converges quickly to the exact one as m grows",
            f"{ratio_texts} at γ = {claim_gamma}",
            bool(np.all(np.diff(ratios) < 0)),
        ),
    ]
    settings = {"n": RECORDS, "λ": 1, "repeats": repeats}
    columns = ("m", "gamma", "sampled (mean)", "sampled (deviation)", "analytical")
    title = "analytical and sampled sensitivity of the mean of exponential draws"
    return FigureData(4, title, settings, columns, rows, claims, quick)


def draw_uniform(rng: np.random.Generator, count: int, *, dimension: int) -> NDArray[np.float64]:
    """Draw records from the uniform distribution on [0, 1]^d."""
    return rng.random((count, dimension))


def compute_figure9(*, quick: bool, jobs: int) -> FigureData:
    """Compare the sampled L1 sensitivity of the mean on [0, 1]^d, at the least m for each γ, with the global one."""
    rows: list[list[float | None]] = []
    gammas = BOUNDED_GAMMAS[2:] if quick else BOUNDED_GAMMAS
    for dimension in DIMENSIONS:
        draws = partial(draw_uniform, dimension=dimension)
        sampler = SensitivitySampler(partial(np.mean, axis=0), draws, "l1", distribution=f"U[0, 1]^{dimension}")
        for gamma in gammas:
            size = sample_size(gamma=gamma)
            sample = sampler.measure(BOUNDED_RECORDS, size.m, seed=SEED, execution=Execution(jobs=jobs, batch_size=250))
            rows.append([dimension, gamma, compute_order_statistic(sample, size.k), dimension / BOUNDED_RECORDS])
    factors = [row[3] / row[2] for row in rows if row[2] and row[3]]
    max_factors = {d: max(factor for row, factor in zip(rows, factors, strict=True) if row[0] == d) for d in DIMENSIONS}
    claims = [
        Claim("the sampled sensitivity is below the global one", f"{len(rows)} points", min(factors) >= 1.0),
        Claim(
            "the reduction is striking (at least tenfold)",
            ", ".join(f"{max_factors[d]:.2f} (d = {d})" for d in DIMENSIONS) + ", where 3 is the limit of large d",
            max(factors) >= 10.0,
        ),
    ]
    title = "global and sampled sensitivity of the mean on [0, 1]^d"
    settings = {"n": BOUNDED_RECORDS, "m": "the least for γ"}
    return FigureData(9, title, settings, ("d", "gamma", "sampled", "global bound"), rows, claims, quick)
