"""The rows of Tables 1 and 2 of [P] for given votes, the publication of the exact cost, and the picture of Figure 5.

Rows are dictionaries, with functions that format them; the picture shows answered queries, their costs, and the total.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.loss.renyi import CONVERSIONS, RenyiGridWarning
from darrm.noisy_max.mechanisms import LNMax
from darrm.pate.analysis import WARNING, Analysis, PateAggregator, PrivateFigureWarning, analyze
from darrm.pate.confident import CheckedGNMax
from darrm.pate.gnss import GnssParameters, printed_cost
from darrm.pate.publication import (
    Expected,
    epsilon_at,
    expected_on_vote_scale,
    expected_publication,
    failure_probability,
    search_parameters,
    search_publication,
)
from darrm.pate.smooth_sensitivity import ConditionError
from darrm.pate.vote_scale import PublicationParameters
from darrm.privacy import at_most
from darrm.util.figures import BLACK, BLUE, LIGHT_GRAY, SKY_BLUE, Figure, saved_figure
from darrm.util.files import Document, Json
from darrm.votes import Votes

_EXPECTED = "expectation over the noise of the check; pass the released answers to account for a run"


def quiet_analysis(
    votes: Votes,
    aggregator: PateAggregator,
    delta: float,
    *,
    conversion: str,
    check: str = "data-independent",
    scores: NDArray[np.float64] | None = None,
) -> Analysis:
    """Analyze without Python warnings; the report contains both of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivateFigureWarning)
        warnings.simplefilter("ignore", RenyiGridWarning)
        return analyze(votes, aggregator, delta, scores=scores, conversion=conversion, check=check)


def table_1_row(analysis: Analysis) -> Document:
    """Return the row of Table 1 of [P] for an aggregator and votes."""
    printed = analysis.theorem_6.curve.best(analysis.delta, conversion="classic")
    theorem_6 = analysis.theorem_6.curve.best(analysis.delta, conversion=analysis.conversion)
    exact = None
    if analysis.exact is not None:
        exact = analysis.exact.curve.best(analysis.delta, conversion=analysis.conversion)
    if analysis.answered is None:
        answered_is = _EXPECTED
    else:
        answered_is = "all queries are answered" if analysis.answered.all() else "as released"
    return {
        "aggregator": repr(analysis.aggregator),
        "queries": analysis.queries,
        "voters": analysis.voters,
        "classes": int(analysis.histograms.shape[1]),
        "answered": analysis.expected_answered,
        "answered_is": answered_is,
        "delta": analysis.delta,
        "conversion": analysis.conversion,
        "epsilon": analysis.epsilon,
        "charged": analysis.charged,
        "epsilon_exact": None if exact is None else exact.epsilon,
        "order_exact": None if exact is None else exact.order,
        "epsilon_exact_one_direction": (
            None if analysis.forward is None else analysis.epsilon_of(analysis.forward.curve)
        ),
        "epsilon_theorem_6": theorem_6.epsilon,
        "order_theorem_6": theorem_6.order,
        "epsilon_as_printed": printed.epsilon,
        "order_as_printed": printed.order,
        "order_at_edge_of_grid": analysis.best.at_edge,
        "check_share": analysis.check_share,
        "data_independent_epsilon": analysis.data_independent_epsilon,
        "worst_case_epsilon": analysis.worst_case_epsilon,
        "private": True,
    }


def table_2_row(
    analysis: Analysis,
    parameters: GnssParameters | None,
    *,
    report: Callable[[str], None] | None = None,
) -> Document:
    """Return the row of Table 2 of [P]: the publication of the cost by Theorem 6, or the reason of a refusal.

    Without ``parameters`` they are searched on these votes, which makes them private; ``report`` receives the progress.
    """
    if isinstance(analysis.aggregator, LNMax):
        return {"refused": "LNMax has no smooth sensitivity: publish the data-independent epsilon"}
    try:
        if parameters is None:
            choice = search_parameters(analysis, report=report)
        else:
            choice = expected_publication(analysis, parameters)
    except (ConditionError, ValueError) as error:  # too many distances raise ValueError
        return {"refused": str(error)}
    used = choice.parameters
    product = used.order * used.smoothness
    return {
        **_published(analysis, choice, chosen=parameters is None),
        "beta": used.smoothness,
        "smooth_sensitivity": choice.sensitivity,
        "sigma_ss": used.noise_scale,
        "gnss_cost": used.cost,
        "gnss_cost_as_printed_in_theorem_23": (
            printed_cost(used.order, used.smoothness, used.noise_scale) if product < 0.5 else None
        ),
    }


def vote_scale_row(analysis: Analysis, parameters: PublicationParameters | None) -> Document:
    """Return the publication of the exact cost on the scale of votes, or a refusal; as `table_2_row`."""
    try:
        choice = search_publication(analysis) if parameters is None else expected_on_vote_scale(analysis, parameters)
    except ValueError as error:
        return {"refused": str(error)}
    return {
        **_published(analysis, choice, chosen=parameters is None),
        "one_vote": choice.sensitivity,
        "deviation": choice.parameters.deviation,
        "cost": choice.parameters.cost,
    }


def _published(analysis: Analysis, choice: Expected[Any], *, chosen: bool) -> Document:
    return {
        "epsilon": epsilon_at(analysis, choice.parameters.order, choice.renyi),
        "delta": analysis.delta,
        "conversion": analysis.conversion,
        "order": choice.parameters.order,
        "sanitized_epsilon": choice.epsilon,
        "sanitized_deviation": choice.deviation,
        "failure_probability": failure_probability(choice.parameters.safety),
        "parameters_chosen": "on these votes: private" if chosen else "beforehand",
        "private": True,
    }


def table_1_text(t: Json) -> str:
    """Format a row of Table 1 for a terminal."""
    exact = {"epsilon, exact": "unknown for this noise"}
    if t["epsilon_exact"] is not None:
        exact = {
            "epsilon, exact": f"{at_most(t['epsilon_exact'])}  at order {t['order_exact']:g} (both directions)",
            "  one direction": at_most(t["epsilon_exact_one_direction"]),
        }
    figures = {
        "answered": f"{t['answered']:.1f}  ({t['answered_is']})",
        **exact,
        "epsilon, Theorem 6": f"{at_most(t['epsilon_theorem_6'])}  at order {t['order_theorem_6']:g} (one direction)",
        "as printed in [P]": f"{t['epsilon_as_printed']:.4f}  at order {t['order_as_printed']:g} (Theorems 6 and 5)",
        "share of the check": f"{t['check_share']:.1%}",
        "data-independent": f"{at_most(t['data_independent_epsilon'])}  for as many answers ({t['conversion']})",
        "worst case": f"{at_most(t['worst_case_epsilon'])}  if every query is answered; public",
    }
    lines = [
        f"{t['aggregator']}",
        f"{t['queries']} queries to {t['voters']} voters, {t['classes']} classes, delta = {at_most(t['delta'], 6)}",
        f"PRIVATE: {WARNING}.",
        "",
        "Table 1 row",
        *_aligned(figures),
    ]
    if t["order_at_edge_of_grid"]:
        lines.append("  the best order is at the edge of the grid: other orders may give less")
    return "\n".join(lines) + "\n"


def table_2_text(row: Json) -> str:
    """Format the publication of the cost by Theorem 6 for a terminal."""
    details, about = {}, "one direction of these votes; of both, unknown"
    if "refused" not in row:
        printed = row["gnss_cost_as_printed_in_theorem_23"]
        note = "outside its range" if printed is None else f"{printed:.4f}, too small where order * beta > 1/4"
        details = {
            "beta": f"{row['beta']:.5f}",
            "smooth sensitivity": f"{row['smooth_sensitivity']:.5f}",
            "sigma_SS": f"{row['sigma_ss']:.3f}",
            "cost of publishing": f"{at_most(row['gnss_cost'])}  (Theorem 23 as printed: {note})",
        }
    return _publication_text("Table 2 row: Theorem 6, published by smooth sensitivity", row, details, about)


def vote_scale_text(row: Json) -> str:
    """Format the publication of the exact cost for a terminal."""
    details = {}
    if "refused" not in row:
        details = {
            "one vote more": f"{row['one_vote']:.5f}",
            "noise, in votes": f"{row['deviation']:.3f}",
            "cost of publishing": at_most(row["cost"]),
        }
    return _publication_text("The exact cost, published on the scale of votes", row, details, "about these votes only")


def _publication_text(title: str, row: Json, details: dict[str, str], about: str) -> str:
    if "refused" in row:
        return f"\n{title}\n  refused: {row['refused']}\n"
    figures = {
        "epsilon": f"{at_most(row['epsilon'])}  at order {row['order']:g} ({row['conversion']} conversion)",
        **details,
        "sanitized epsilon": f"{at_most(row['sanitized_epsilon'])} +- {row['sanitized_deviation']:.4f}",
        "too small with": f"probability {at_most(row['failure_probability'], 3)} (--safety), {about}",
        "parameters chosen": row["parameters_chosen"],
    }
    return "\n".join(["", title, *_aligned(figures)]) + "\n"


def _aligned(figures: dict[str, str]) -> list[str]:
    return [f"  {name:<22}{figure}" for name, figure in figures.items()]


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
