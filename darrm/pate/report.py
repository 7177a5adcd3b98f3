"""The rows of Tables 1 and 2 of [P] for given votes, as a dictionary and as text."""

import warnings
from typing import Any

from numpy.typing import NDArray

from darrm.losses.renyi import RenyiGridWarning
from darrm.pate.analysis import WARNING, Analysis, PateAggregator, PrivateFigureWarning, analyze
from darrm.pate.cost_shape import ConditionError
from darrm.pate.gnss import GnssParameters, printed_cost
from darrm.pate.noisy_max import LNMax
from darrm.pate.publication import epsilon_at, expected_publication, search_parameters
from darrm.votes import Votes

_EXPECTED = "expectation over the noise of the check; pass the released answers to account for a run"


def quiet_analysis(
    votes: Votes,
    aggregator: PateAggregator,
    delta: float,
    *,
    conversion: str,
    check: str = "data-independent",
    scores: NDArray[Any] | None = None,
) -> Analysis:
    """Analyze without Python warnings: the report carries both of them in words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivateFigureWarning)
        warnings.simplefilter("ignore", RenyiGridWarning)
        return analyze(votes, aggregator, delta, scores=scores, conversion=conversion, check=check)


def table_1_row(analysis: Analysis) -> dict[str, Any]:
    """Return what Table 1 of [P] says about an aggregator, as far as votes determine it."""
    classic = analysis.curve.best(analysis.delta, conversion="classic")
    tight = analysis.curve.best(analysis.delta, conversion="tight")
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
        "epsilon_theorem_5": classic.epsilon,
        "order_theorem_5": classic.order,
        "epsilon_tight_conversion": tight.epsilon,
        "order_tight_conversion": tight.order,
        "order_at_edge_of_grid": analysis.best.at_edge,
        "check_share": analysis.check_share,
        "data_independent_epsilon": analysis.data_independent_epsilon,
        "worst_case_epsilon": analysis.worst_case_epsilon,
        "conversion": analysis.conversion,
        "private": True,
    }


def table_2_row(analysis: Analysis, parameters: GnssParameters | None, *, simulations: int = 20) -> dict[str, Any]:
    """Return what Table 2 of [P] says: how the cost would be published, at which price, or why it is refused.

    Without ``parameters`` they are searched on these votes, which makes them private.
    """
    if isinstance(analysis.aggregator, LNMax):
        return {"refused": "LNMax has no smooth sensitivity: publish the data-independent epsilon"}
    try:
        if parameters is None:
            choice = search_parameters(analysis, simulations=simulations)
        else:
            choice = expected_publication(analysis, parameters, simulations=simulations)
    except ConditionError as error:
        return {"refused": str(error)}
    used = choice.parameters
    product = used.order * used.smoothness
    return {
        "epsilon": epsilon_at(analysis, used.order, choice.renyi),
        "delta": analysis.delta,
        "conversion": analysis.conversion,
        "order": used.order,
        "beta": used.smoothness,
        "smooth_sensitivity": choice.sensitivity,
        "sigma_ss": used.noise_scale,
        "gnss_cost": used.cost,
        "gnss_cost_as_printed_in_theorem_23": (
            printed_cost(used.order, used.smoothness, used.noise_scale) if product < 0.5 else None
        ),
        "sanitized_epsilon": choice.epsilon,
        "sanitized_deviation": choice.deviation,
        "parameters_chosen": "on these votes: private" if parameters is None else "beforehand",
        "private": True,
    }


def report_text(table_1: dict[str, Any], table_2: dict[str, Any] | None) -> str:
    """Write both rows for a terminal."""
    t = table_1
    lines = [
        f"{t['aggregator']}",
        f"{t['queries']} queries to {t['voters']} voters, {t['classes']} classes, delta = {t['delta']:g}",
        "",
        "Table 1 row",
        f"  answered              {t['answered']:.1f}  ({t['answered_is']})",
        f"  epsilon, Theorem 5    {t['epsilon_theorem_5']:.4f}  at order {t['order_theorem_5']:g}",
        f"  epsilon, tight        {t['epsilon_tight_conversion']:.4f}  at order {t['order_tight_conversion']:g}",
        f"  share of the check    {t['check_share']:.1%}",
        f"  data-independent      {t['data_independent_epsilon']:.4f}  for as many answers ({t['conversion']})",
        f"  worst case            {t['worst_case_epsilon']:.4f}  if every query is answered; public",
    ]
    if t["order_at_edge_of_grid"]:
        lines.append("  the best order is at the edge of the grid: other orders may give less")
    if table_2 is not None:
        lines += ["", "Table 2 row", *_table_2_lines(table_2)]
    return "\n".join([*lines, "", f"PRIVATE: {WARNING}."])


def _table_2_lines(row: dict[str, Any]) -> list[str]:
    """Write the Table 2 row, a figure a line."""
    if "refused" in row:
        return [f"  refused: {row['refused']}"]
    printed = row["gnss_cost_as_printed_in_theorem_23"]
    note = "outside its range" if printed is None else f"{printed:.4f}, too small where order * beta > 1/4"
    return [
        f"  epsilon               {row['epsilon']:.4f}  at order {row['order']:g} ({row['conversion']} conversion)",
        f"  beta                  {row['beta']:.5f}",
        f"  smooth sensitivity    {row['smooth_sensitivity']:.5f}",
        f"  sigma_SS              {row['sigma_ss']:.3f}",
        f"  cost of publishing    {row['gnss_cost']:.4f}  (Theorem 23 as printed: {note})",
        f"  sanitized epsilon     {row['sanitized_epsilon']:.4f} +- {row['sanitized_deviation']:.4f}",
        f"  parameters chosen     {row['parameters_chosen']}",
    ]
