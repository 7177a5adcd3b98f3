"""Figures 2 and 3 of [S]: how many pairs to sample, and which order statistic to take."""

from __future__ import annotations

import math

import numpy as np

from darrm.random_dp.exchangeability import exchangeable_sample_size
from darrm.random_dp.sample_size import effort_bounds, effort_curve, index_curve
from experiments.sensitivity.page import Claim, FigureData

EFFORT_GAMMAS = np.geomspace(0.001, 0.5, 28)
INDEX_GAMMAS = np.linspace(0.02, 0.5, 25)
SAMPLE_SIZES = (100, 1_000, 10_000)


def figure2() -> FigureData:
    """Compute the least m for each γ [S, Figure 2], with the bounds of Corollary 16 and the exchangeable m."""
    gammas = [float(f"{gamma:.4g}") for gamma in EFFORT_GAMMAS]
    efforts = effort_curve(gammas)
    rows: list[list[float | None]] = [
        [gamma, int(m), *effort_bounds(gamma), exchangeable_sample_size(gamma=gamma).m]
        for gamma, m in zip(gammas, efforts, strict=True)
    ]
    ratios = [m * gamma**2 / math.log(1 / gamma) for gamma, m in zip(gammas, efforts, strict=True)]
    tiny = 1e-6
    limit = int(effort_curve([tiny])[0]) * tiny**2 / math.log(1 / tiny)
    within = all(row[2] <= row[1] <= row[3] for row in rows)  # type: ignore[operator]  # this table has no gaps
    claims = [
        Claim("m grows as γ falls", f"m from {efforts[-1]} to {efforts[0]}", bool(np.all(np.diff(efforts) < 0))),
        Claim(
            "m lies between the bounds that follow from those on the Lambert function", f"{len(rows)} values", within
        ),
        Claim(
            "m = o(γ⁻² log(1/γ)) (Corollary 16)",
            f"m·γ²/log(1/γ) falls from {ratios[-1]:.3f} (γ = {gammas[-1]}) to {ratios[0]:.3f} (γ = {gammas[0]}) and "
            f"{limit:.3f} (γ = {tiny}), towards 1/2: a big O, not a small one",
            holds=False,
        ),
    ]
    columns = ("gamma", "m", "lower bound", "upper bound", "m by exchangeability")
    notes = ["The last column is not in the paper: a fresh pair's rank among the sampled gives the same promise."]
    return FigureData(
        2, "sampler effort m against the confidence γ", {"γ": "0.001 to 0.5"}, columns, rows, claims, notes
    )


def figure3() -> FigureData:
    """Compute k/m against γ for three sample sizes [S, Figure 3]."""
    gammas = [round(float(gamma), 4) for gamma in INDEX_GAMMAS]
    rows: list[list[float | None]] = []
    for m in SAMPLE_SIZES:
        rows += [
            [m, gamma, None if math.isnan(share) else float(share)]
            for gamma, share in zip(gammas, index_curve(m, gammas), strict=True)
        ]
    shares = {m: [row[2] for row in rows if row[0] == m] for m in SAMPLE_SIZES}
    falls = all(np.all(np.diff([share for share in shares[m] if share is not None]) < 0) for m in SAMPLE_SIZES)
    at = gammas.index(0.3)
    picked = [float(shares[m][at] or math.nan) for m in SAMPLE_SIZES]
    claims = [
        Claim("k/m falls as γ grows", f"{len(rows)} values", bool(falls)),
        Claim(
            "a larger sample allows a smaller k/m",
            ", ".join(f"{share:.3f} (m = {m})" for m, share in zip(SAMPLE_SIZES, picked, strict=True)) + " at γ = 0.3",
            bool(np.all(np.diff(picked) < 0)),
        ),
    ]
    settings = {"m": "100, 1000, 10000"}
    return FigureData(3, "order statistic k/m against γ", settings, ("m", "gamma", "k/m"), rows, claims, [])
