"""The picture of [P, Figure 5] for given votes: the answered queries, their costs, and the total."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.loss.renyi import CONVERSIONS
from darrm.pate.analysis import Analysis
from darrm.pate.confident import CheckedGNMax
from darrm.privacy import at_most
from darrm.util.figures import BLACK, BLUE, LIGHT_GRAY, SKY_BLUE, Figure, saved_figure

BINS = 25
POINTS = 200
LEAST_COST = 1e-14  # of the largest: smaller costs are not drawn
NOTE = "private data: computed from the votes"
ALL, ANSWERED, COST, CHECK = LIGHT_GRAY, SKY_BLUE, BLACK, BLUE


def draw_figure_5(analysis: Analysis, path: Path) -> None:
    """Draw both panels side by side and save them to ``path``; the picture is private data."""
    with saved_figure(path, width=16.0, height=5.0, private=True) as figure:
        left, right = figure.subfigures(1, 2)
        draw_plurality_counts(left, analysis)
        draw_total_cost(right, analysis)


def draw_plurality_counts(figure: Figure, analysis: Analysis) -> None:
    """Draw histograms of the plurality counts of all and of answered queries, and the mean cost of an answer by bin."""
    plurality = analysis.histograms.max(axis=1)
    edges = np.linspace(0.0, analysis.voters, min(BINS, analysis.voters) + 1)
    total, _ = np.histogram(plurality, edges)
    spent, _ = np.histogram(plurality, edges, weights=analysis.cost.answers.at(analysis.order))
    axes = figure.add_subplot()
    axes.hist(plurality, edges, color=ALL, label="all queries")
    axes.hist(plurality, edges, weights=analysis.probabilities, color=ANSWERED, alpha=0.85, label=_answered(analysis))
    axes.set_title(NOTE, loc="right", fontsize=8, color=COST)
    axes.set(xlabel="votes for the plurality class", ylabel="queries", xlim=(0, analysis.voters))
    cost_axes = axes.twinx()
    filled = total > 0
    centers = 0.5 * (edges[1:] + edges[:-1])
    mean_cost = np.maximum(spent[filled] / total[filled], np.finfo(np.float64).tiny)
    bottom = max(float(mean_cost.min()) / 3.0, float(mean_cost.max()) * LEAST_COST)
    seen = mean_cost > bottom
    cost_axes.semilogy(centers[filled][seen], mean_cost[seen], "o", color=COST, label="mean cost of an answer (right)")
    cost_axes.set_ylim(bottom, float(mean_cost.max()) * 3.0)
    cost_axes.set_ylabel(f"Rényi cost at order {analysis.order:g}, nats")
    handles = [*axes.get_legend_handles_labels()[0], *cost_axes.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)


def draw_total_cost(figure: Figure, analysis: Analysis) -> None:
    """Draw the total ε over the number of answered queries, the part of the checks, and the cost without checks."""
    seen = np.unique(np.linspace(1, analysis.queries, min(POINTS, analysis.queries)).astype(np.int64))
    checks = np.outer(seen, analysis.cost.checks.values / analysis.queries)
    costs = _cumulative_costs(analysis, analysis.probabilities, seen) + checks
    total, best = _epsilons(analysis, costs)
    answered = np.cumsum(analysis.probabilities)[seen - 1]
    axes = figure.add_subplot()
    if isinstance(analysis.aggregator, CheckedGNMax):
        points = np.arange(seen.size)
        check_part = total * checks[points, best] / costs[points, best]
        label = "selecting queries (its share of the Rényi cost)"
        axes.fill_between(answered, check_part, color=CHECK, lw=0, label=label)
        axes.fill_between(answered, check_part, total, color=ANSWERED, alpha=0.55, lw=0, label="answering them")
        everything, _ = _epsilons(analysis, _cumulative_costs(analysis, np.ones(analysis.queries), seen))
        axes.plot(seen, everything, color=COST, ls="--", label="answering every query, without a check")
        axes.set_xlim(0, float(answered[-1]))
        axes.set_ylim(0, 1.15 * float(max(total[-1], everything[np.searchsorted(seen, answered[-1]) - 1])))
    else:
        axes.plot(answered, total, color=ANSWERED, label="answering every query")
        axes.set(xlim=(0, float(answered[-1])), ylim=(0, None))
    axes.set_title(NOTE, loc="right", fontsize=8, color=COST)
    axes.set(xlabel=_answered(analysis), ylabel=f"ε at δ = {at_most(analysis.delta, 6)}")
    axes.legend(loc="upper left", frameon=False)


def _answered(analysis: Analysis) -> str:
    return "answered queries (expected)" if analysis.answered is None else "answered queries"


def _cumulative_costs(analysis: Analysis, weights: NDArray[np.float64], seen: NDArray[np.int64]) -> NDArray[np.float64]:
    blocks = [
        analysis.cost.answers.total(weights, slice(start, stop))
        for start, stop in zip(np.append(0, seen[:-1]), seen, strict=True)
    ]
    return np.asarray(np.cumsum(blocks, axis=0))


def _epsilons(analysis: Analysis, costs: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    epsilons = CONVERSIONS[analysis.conversion](analysis.curve.orders, costs, analysis.delta)
    return epsilons.min(axis=1), epsilons.argmin(axis=1)
