"""What `python -m darrm.account --table` prints and draws: every bound on the total of queries."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from darrm.account.accountant import PrivacyAccountant, Spent
from darrm.account.bounds import MODELS_BOUNDS
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import at_most
from darrm.problem import Voters
from darrm.util.figures import name_lines, saved_figure, say_instead, style
from darrm.util.files import Document
from darrm.util.progress import StatusLine

BOUNDS = ("simple", "general", "optimal", "profile", "renyi", "pld", *MODELS_BOUNDS)
_PLOT_POINTS = 24


def spent_by(charge: PrivacyCost, queries: int, delta: float, voters: Voters) -> Spent:
    """Evaluate every bound for a number of queries of these voters, each at one charge."""
    return PrivacyAccountant(voters, [charge.repeated(queries)]).spent(delta)


def table_text(charge: PrivacyCost, results: Mapping[int, Spent], delta: float) -> str:
    """Write the bounds as a table, one row for each number of queries that has one; ``*`` marks the smallest."""
    rows_by_count = {queries: _by_name(spent) for queries, spent in results.items() if spent.bounds}
    columns = [name for name in BOUNDS if any(name in row for row in rows_by_count.values())]
    lines = [
        f"each query: {'' if charge.guarantee is None else f'{charge.guarantee} by '}{charge.what}",
        f"total epsilon at delta = {at_most(delta, 6)}{_about(charge)}:",
    ]
    if columns:
        lines.append("queries" + "".join(name.rjust(16) for name in columns))
    for queries, row in rows_by_count.items():
        best = results[queries].bound
        cells = [f"{at_most(row[name])}{'*' if name == best else ' '}" if name in row else "- " for name in columns]
        lines.append(f"{queries:7d}" + "".join(cell.rjust(16) for cell in cells))
    if rows_by_count:
        last = results[max(rows_by_count)]
        lines.append(f"* smallest; for {last.queries} queries by {last.bound}: {last.explanation}")
    lines += [
        f"for {queries} queries nothing bounds epsilon: {spent.explanation}"
        for queries, spent in results.items()
        if not spent.bounds
    ]
    return "\n".join(lines) + "\n"


def _about(charge: PrivacyCost) -> str:
    return "" if charge.sampling is None else f", for neighbors that {charge.sampling.neighbors}"


def table_json(results: Mapping[int, Spent], delta: float) -> Document:
    """Write the bounds for each number of queries as plain data."""
    return {"delta": delta, "queries": {str(queries): spent.to_json() for queries, spent in results.items()}}


def plot_bounds(
    path: Path,
    charge: PrivacyCost,
    most: int,
    delta: float,
    voters: Voters,
    report: Callable[[str], None] | None = None,
) -> None:
    """Draw ε over queries, one line a bound; ``report`` is called with a few words at every point."""
    show = report or StatusLine(enabled=False).show
    counts = np.unique(np.round(np.linspace(1, most, min(most, _PLOT_POINTS))).astype(int)).tolist()
    rows = []
    for queries in counts:
        show(f"bounds of the picture, {queries:,} of {most:,} queries")
        rows.append(_by_name(spent_by(charge, queries, delta, voters)))
    with saved_figure(path) as figure:
        axes = figure.add_subplot()
        for place, name in enumerate(BOUNDS):
            if any(name in row for row in rows):
                values = [row.get(name, math.nan) for row in rows]
                axes.plot(counts, values, label=name, **style(place).line(len(counts)))
        axes.set_xlabel("queries")
        axes.set_ylabel(f"total ε at δ = {at_most(delta, 6)}")
        each = "" if charge.guarantee is None else f", {charge.guarantee} a query"
        axes.set_title(f"{charge.what}{each}{_about(charge)}", fontsize="medium" if charge.sampling else None)
        axes.set_ylim(bottom=0.0)
        axes.grid(visible=True, alpha=0.3)
        if axes.lines:
            name_lines(axes)
        else:
            say_instead(axes, f"nothing bounds ε at δ = {at_most(delta, 6)}")


def _by_name(spent: Spent) -> dict[str, float]:
    return {bound.name: bound.epsilon for bound in spent.bounds}
