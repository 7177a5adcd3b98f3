"""Figures 2 and 3 of [S]: how many pairs to sample, and which order statistic to take."""

import math

import numpy as np

from darrm.privacy import exact_number
from darrm.random_dp.sample_size import exchangeable_sample_size, sample_size, smallest_gamma
from darrm.util import checks
from experiments.pages import Claim
from experiments.sensitivity.page import FigureData

EFFORT_GAMMAS = np.geomspace(0.001, 0.5, 28)
INDEX_GAMMAS = np.linspace(0.02, 0.5, 25)
SAMPLE_SIZES = (100, 1_000, 10_000)


def compute_figure2() -> FigureData:
    """Compute the least m for each γ [S, Figure 2], with the bounds of Corollary 16, and the exchangeable m."""
    gammas = [float(f"{gamma:.4g}") for gamma in EFFORT_GAMMAS]
    efforts = [sample_size(gamma=gamma).m for gamma in gammas]
    rows: list[list[float | None]] = [
        [gamma, m, *bound_effort(gamma), exchangeable_sample_size(gamma=gamma).m]
        for gamma, m in zip(gammas, efforts, strict=True)
    ]
    ratios = [m * gamma**2 / math.log(1 / gamma) for gamma, m in zip(gammas, efforts, strict=True)]
    small_gamma = 1e-6
    limit = sample_size(gamma=small_gamma).m * small_gamma**2 / math.log(1 / small_gamma)
    is_within = all(row[2] <= row[1] <= row[3] for row in rows)  # type: ignore[operator]  # this table has no gaps
    falling_texts = f"from {ratios[-1]:.3f} (γ = {gammas[-1]}) to {ratios[0]:.3f} (γ = {gammas[0]}) and {limit:.3f}"
    claims = [
        Claim("m grows as γ falls", f"m from {efforts[-1]} to {efforts[0]}", bool(np.all(np.diff(efforts) < 0))),
        Claim(
            "m lies between the bounds that follow from those on the Lambert function", f"{len(rows)} values", is_within
        ),
        Claim(
            "m = o(γ⁻² log(1/γ)) (Corollary 16)",
            f"m·γ²/log(1/γ) falls {falling_texts} (γ = {small_gamma}), towards 1/2: a big O, not a small one",
            holds=False,
        ),
    ]
    columns = ("gamma", "m", "lower bound", "upper bound", "m by exchangeability")
    return FigureData(2, "sampler effort m against the confidence γ", {"γ": "0.001 to 0.5"}, columns, rows, claims)


def compute_figure3() -> FigureData:
    """Compute k/m against γ for three sample sizes [S, Figure 3]."""
    gammas = [round(float(gamma), 4) for gamma in INDEX_GAMMAS]
    rows: list[list[float | None]] = [
        [m, gamma, compute_index_share(m, gamma)] for m in SAMPLE_SIZES for gamma in gammas
    ]
    shares = {m: [row[2] for row in rows if row[0] == m] for m in SAMPLE_SIZES}
    is_falling = all(np.all(np.diff([share for share in shares[m] if share is not None]) < 0) for m in SAMPLE_SIZES)
    place = gammas.index(0.3)
    shares_at_place = [float(shares[m][place] or math.nan) for m in SAMPLE_SIZES]
    share_texts = ", ".join(f"{share:.3f} (m = {m})" for m, share in zip(SAMPLE_SIZES, shares_at_place, strict=True))
    has_decrease = bool(np.all(np.diff(shares_at_place) < 0))
    claims = [
        Claim("k/m falls as γ grows", f"{len(rows)} values", bool(is_falling)),
        Claim("a larger sample allows a smaller k/m", f"{share_texts} at γ = 0.3", has_decrease),
    ]
    settings = {"m": "100, 1000, 10000"}
    return FigureData(3, "order statistic k/m against γ", settings, ("m", "gamma", "k/m"), rows, claims)


def bound_effort(gamma: float) -> tuple[float, float]:
    """Bound the least m for γ on both sides by the bounds of Chatzigeorgiou on W₋₁ [S, Corollary 16].

    At the optimum γ = ρ(1 + 2L) with L = log(1/ρ), so that m = (1 + 2L)²/(8 L γ²), increasing in L ≥ 1/2, and

        1/2 + √(2u) + 2u/3 < L < 1/2 + √(2u) + u,          u = log(2/γ) − 1/2.

    So m·γ²/log(1/γ) falls to 1/2: the rate is Θ(γ⁻² log(1/γ)); the paper writes a small o.

    >>> low, high = bound_effort(0.05)
    >>> low < sample_size(gamma=0.05).m < high
    True
    """
    checks.open_probability(gamma=gamma)
    u = math.log(2.0 / gamma) - 0.5
    low, high = (0.5 + math.sqrt(2.0 * u) + factor * u for factor in (2.0 / 3.0, 1.0))
    lower_bound, upper_bound = ((1.0 + 2.0 * exponent) ** 2 / (8.0 * exponent * gamma**2) for exponent in (low, high))
    return lower_bound, upper_bound + 1.0


def compute_index_share(m: int, gamma: float) -> float | None:
    """Compute k/m for γ at m samples; None if m is too small for γ [S, Figure 3]."""
    is_reached = exact_number("gamma", gamma) >= smallest_gamma(m)[1]
    return sample_size(gamma=gamma, m=m).k / m if is_reached else None
