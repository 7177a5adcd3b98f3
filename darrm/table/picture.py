"""A picture of γ over the number of ones, for one noise function or several."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from darrm.majority.noise_function import NoiseFunction
from darrm.problem import Problem
from darrm.util.extras import require
from darrm.util.figures import Figure, style
from darrm.util.files import check_parent, replacing


def plot_noise_functions(
    problem: Problem, named: Iterable[tuple[str, int, NoiseFunction]], path: Path | None = None
) -> Figure:
    """Draw noise functions for a problem, each with its label and the place of its style; save the figure if asked."""
    if path is not None:
        check_parent(path)
    figure = require("matplotlib.figure").Figure(figsize=(8.0, 5.0), layout="constrained")
    axes, levels = figure.add_subplot(), np.arange(problem.voters.K + 1)
    for label, place, gamma in named:
        axes.plot(levels, gamma.full, label=label, **style(place, width=1.6 if place else 2.6).line(levels.size))
    axes.set(xlabel="l, number of ones among the votes", ylabel="γ(l), probability of telling the true majority")
    allowance = f", m = {problem.m:g}" if problem.voters.each.is_private else ""
    axes.set_title(f"{problem.voters}\nreleased {problem.target}-private{allowance}", fontsize=9)
    axes.set_ylim(-0.03, 1.03)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", frameon=False)
    if path is not None:
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=150)
    return figure
