"""Draw pictures for the theory: Figures 4 and 5 of [D], and 1 and 8 of [S].

    python -m experiments drawings --output docs/pictures

The pictures show the region that a voter's guarantee allows, with its corners; how the sensitivity sampler inverts an
empirical distribution; and the two branches of Lambert's W, the lower of which has the operating points.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.special import lambertw

from darrm.privacy import PrivacyParams
from darrm.random_dp.sample_size import sample_size
from darrm.util.figures import BLACK, Axes, save_figure, style
from experiments.pages import CommandLine
from experiments.sensitivity.mean import RECORDS, draw_exponential

EACH = PrivacyParams("0.7", "0.1")  # large values, to separate the corners
GAMMA, SAMPLES, SEED = 0.25, 120, 8


def draw_region(axes: Axes) -> None:
    """Draw the pairs (p, p′) that (ε, Δ) allows, and the corners at which the privacy cost is largest."""
    growth, delta = math.exp(EACH.epsilon), EACH.delta
    p = np.linspace(0.0, 1.0, 801)
    upper = np.minimum(np.minimum(growth * p + delta, 1.0), 1.0 - np.maximum(0.0, 1.0 - p - delta) / growth)
    lower = np.maximum(np.maximum(0.0, (p - delta) / growth), 1.0 - np.minimum(1.0, growth * (1.0 - p) + delta))
    axes.fill_between(p, lower, upper, color=style(0).color, alpha=0.25, label="allowed")
    corners = list_corners(EACH)
    axes.plot(*zip(*corners, strict=True), "o", color=style(1).color, label=f"{len(corners)} corners")
    axes.plot([0, 1], [0, 1], ":", color=BLACK, label="p = p′")
    axes.set(xlabel="p, probability of a 1 on one data set", ylabel="p′, on its neighbor", aspect="equal")


def list_corners(each: PrivacyParams) -> list[tuple[float, float]]:
    """List the corners of the region [D, Lemma 5.1]."""
    high = (math.exp(each.epsilon) + each.delta) / (math.exp(each.epsilon) + 1.0)
    upper_corners = [(0.0, 0.0), (1.0, 1.0), (each.delta, 0.0), (1.0, 1.0 - each.delta), (high, 1.0 - high)]
    return list(dict.fromkeys([*upper_corners, *((second, first) for first, second in upper_corners)]))


def draw_sampler(axes: Axes) -> None:
    """Draw the distribution of a mean's sensitivity, the empirical one, and the selected order statistic."""
    size = sample_size(gamma=GAMMA, m=SAMPLES)
    draws = draw_exponential(np.random.default_rng(SEED), 2 * SAMPLES).reshape(2, -1)
    sampled = np.sort(np.abs(draws[0] - draws[1])) / RECORDS
    grid = np.linspace(0.0, 1.1 * sampled[-1], 200)
    axes.plot(grid, 1.0 - np.exp(-RECORDS * grid), color=style(0).color, label="true law of the sensitivity")
    axes.step(sampled, np.arange(1, SAMPLES + 1) / SAMPLES, where="post", color=style(1).color, label="of the sample")
    quantile, share = sampled[size.k - 1], size.k / SAMPLES
    axes.plot([0.0, quantile, quantile], [share, share, 0.0], ":", color=BLACK, label="inverted at k/m")
    axes.axhline(1.0 - GAMMA, color=style(2).color, linestyle="--", label="1 − γ, the promise")
    axes.set(xlabel="sensitivity", ylabel="share of pairs", ylim=(0.0, 1.02), xlim=(0.0, None))


def draw_branches(axes: Axes) -> None:
    """Draw W₀ and W₋₁: the solutions w of w·e^w = x."""
    x = -np.exp(-1.0) + np.geomspace(1e-9, 1.2, 400)
    axes.plot(x, lambertw(x, 0).real, color=style(0).color, label="W₀")
    negative = x[x < -1e-3]
    axes.plot(negative, lambertw(negative, -1).real, color=style(1).color, label="W₋₁, of the operating points")
    axes.set(xlabel="x", ylabel="w")


DRAWINGS = {"region": draw_region, "sampler": draw_sampler, "lambert": draw_branches}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandLine("experiments drawings", __doc__)
    parser.add_argument("--output", type=Path, default=Path("results"), metavar="FOLDER", help="for three .png files")
    folder = Path(parser.parse_args(arguments).output)
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWINGS.items():
        with save_figure(folder / f"{name}.png", width=5.6, height=4.2) as figure:
            axes = figure.add_subplot()
            draw(axes)
            axes.grid(visible=True, alpha=0.3)
            axes.legend(fontsize=9)
        print(f"wrote {folder / f'{name}.png'}")
    return 0
