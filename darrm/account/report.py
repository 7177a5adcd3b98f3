"""What `python -m darrm.account` prints and draws."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from darrm.account.accountant import PrivacyAccountant, Spent
from darrm.account.bounds import MODELS_BOUNDS
from darrm.account.ledger import PrivacyLedger
from darrm.losses.charges import Charge
from darrm.problem import Voters
from darrm.system.figures import name_lines, saved_figure, say_instead, style
from darrm.system.files import Document
from darrm.system.progress import StatusLine

BOUNDS = ("simple", "general", "optimal", "profile", "renyi", "pld", *MODELS_BOUNDS)
_LAST_ENTRIES = 10  # of the log, in the text
_PLOT_POINTS = 24
_MOST_QUERIES_COUNTED = 1_000_000


def ledger_text(ledger: PrivacyLedger, *, everything: bool = False) -> str:
    """Write the budget, what was spent, how much is left, and the last lines of the log, or ``everything`` in it."""
    entries = ledger.entries()
    lines = [f"budget: {ledger.budget}", f"spent:  {ledger.spent}"]
    if entries:
        charge = ledger.accountant().charges[-1].kind
        fit = ledger.queries_that_fit(charge, most=_MOST_QUERIES_COUNTED)
        least = "at least " if fit == _MOST_QUERIES_COUNTED else ""
        lines.append(f"left:   {least}{fit} more queries of {charge.what}")
    if ledger.identity:
        lines += [f"of:     {ledger.population}"] if ledger.population else []
        lines.append(f"head:   {ledger.head()}")
    shown = entries if everything else entries[-_LAST_ENTRIES:]
    if len(entries) > len(shown):
        lines.append(f"the last {len(shown)} of {len(entries)} entries (--log lists all):")
    for entry in shown:
        note = f"  {entry.note}" if entry.note else ""
        lines.append(f"  {entry.time}  {entry.count:>8}  {entry.what}{note}")
        lines += [f"    entry {entry.number} paid for {', '.join(entry.questions)}"] if entry.questions else []
    lines += [
        f"entry {entry.number}: {entry.count} labels were paid for and not delivered; "
        f"`{ledger.recovery(entry.number, entry.output)}` writes them and pays nothing"
        for entry in entries
        if not entry.delivered
    ]
    return "\n".join(lines) + "\n"


def ledger_json(ledger: PrivacyLedger) -> Document:
    """Write the budget, what was spent and the whole log as plain data."""
    return {
        "budget": ledger.budget.to_json(),
        "kinds": ledger.kinds,
        "spent": ledger.spent.to_json(),
        "population": ledger.population,
        "head": ledger.head().to_json() if ledger.identity else None,
        "entries": [{**vars(entry), "files": dict(entry.files)} for entry in ledger.entries()],
    }


def spent_by(charge: Charge, queries: int, delta: float, voters: Voters) -> Spent:
    """Evaluate every bound for so many queries of such voters, each at one charge."""
    return PrivacyAccountant(voters, [charge.repeated(queries)]).spent(delta)


def table_text(charge: Charge, results: Mapping[int, Spent], delta: float) -> str:
    """Write the bounds as a table, one row for each number of queries; ``*`` marks the smallest."""
    rows_by_count = {queries: _by_name(spent) for queries, spent in results.items()}
    columns = [name for name in BOUNDS if any(name in row for row in rows_by_count.values())]
    lines = [
        f"each query: {'' if charge.guarantee is None else f'{charge.guarantee} by '}{charge.what}",
        f"total epsilon at delta = {delta:g}{_about(charge)}:",
        "queries" + "".join(name.rjust(16) for name in columns),
    ]
    for queries, row in rows_by_count.items():
        best = results[queries].bound
        cells = [f"{row[name]:.4f}{'*' if name == best else ' '}" if name in row else "- " for name in columns]
        lines.append(f"{queries:7d}" + "".join(cell.rjust(16) for cell in cells))
    last = results[max(results)]
    by = f"by {last.bound}" if last.bounds else "nothing bounds epsilon"
    lines.append(f"* smallest; for {last.queries} queries {by}: {last.explanation}")
    return "\n".join(lines) + "\n"


def _about(charge: Charge) -> str:
    return "" if charge.sampling is None else f", for neighbors that {charge.sampling.neighbors}"


def table_json(results: Mapping[int, Spent], delta: float) -> Document:
    """Write the bounds for each number of queries as plain data."""
    return {"delta": delta, "queries": {str(queries): spent.to_json() for queries, spent in results.items()}}


def plot_bounds(
    path: Path,
    charge: Charge,
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
        axes.set_ylabel(f"total ε at δ = {delta:g}")
        each = "" if charge.guarantee is None else f", {charge.guarantee} a query"
        axes.set_title(f"{charge.what}{each}{_about(charge)}", fontsize="medium" if charge.sampling else None)
        axes.set_ylim(bottom=0.0)
        axes.grid(visible=True, alpha=0.3)
        if axes.lines:
            name_lines(axes)
        else:
            say_instead(axes, f"nothing bounds ε at δ = {delta:g}")


def _by_name(spent: Spent) -> dict[str, float]:
    return {bound.name: bound.epsilon for bound in spent.bounds}
